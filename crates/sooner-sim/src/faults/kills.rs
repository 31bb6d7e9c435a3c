//! Workers are killed, now and then one that matters: an actor's, or one that owns what others borrow.

use sooner_protocol::probes::hit;

use crate::world::World;

impl World {
    pub(super) fn kill_a_worker(&mut self) {
        let Some(number) = self.some_worker() else { return };
        let process = self.process(number);
        let owned = |(id, record): (sooner_wire::ObjectId, &sooner_protocol::worker::ownership::Record)| {
            id.owner() == process.id && !record.borrowers().is_empty()
        };
        if process.core.ownership().objects().any(owned) {
            hit("an owner was killed while others borrowed from it");
        }
        if process.is_paused {
            hit("a stopped process was killed");
        }
        if process.core.execution().is_blocked() {
            hit("a process was killed while its task waited");
        }
        if process.core.pending_tasks() > 0 {
            hit("a process was killed with tasks of its own");
        }
        if !process.dirty.is_empty() {
            hit("a process was killed with messages in its buffers");
        }
        self.kills += 1;
        self.kill(number, "was killed");
    }
}
