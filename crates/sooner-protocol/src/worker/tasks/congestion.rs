//! Full connections to processes of other nodes: whatever can wait does.
//!
//! Messages sent over such a connection are kept until the other process has them, and that is bounded. So
//! tasks and calls stay queued until there is room. Messages needed for what was pushed already are sent at
//! once, and are bounded by that.
//!
//! It never drops anything, and waits for living connections only: the death of the other process ends the
//! wait, too.

use sooner_wire::WorkerId;

use crate::time::Instant;
use crate::worker::WorkerCore;
use crate::worker::action::Actions;

impl WorkerCore {
    /// A connection is full: no task or call is pushed there from now on.
    pub fn on_line_full(&mut self, worker: WorkerId) {
        if !self.ownership.is_dead(worker) && self.full_lines.insert(worker) {
            self.leases.set_held(worker, true);
        }
    }

    /// The connection has room again.
    pub fn on_line_free(&mut self, worker: WorkerId, now: Instant, out: &mut Actions) {
        self.now = now;
        if !self.full_lines.swap_remove(&worker) {
            return;
        }
        self.leases.set_held(worker, false);
        for shape in self.leases.shape_ids() {
            self.dispatch(shape, out);
        }
        for actor in self.callers.at(worker) {
            self.dispatch_actor(actor, out);
        }
        self.run_unblocked(out);
    }

    /// Whether the connection to a process is full.
    #[inline]
    pub(in crate::worker) fn is_line_full(&self, worker: WorkerId) -> bool {
        !self.full_lines.is_empty() && self.full_lines.contains(&worker)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sooner_wire::message::{ActorStarted, TaskKind, TaskSpec, WorkerDead};
    use sooner_wire::{Blob, Name, TaskId};

    use super::*;
    use crate::worker::action::Peer;
    use crate::worker::ownership::Slot;
    use crate::worker::testing::{FUNCTION, HERE, ME, THERE, core, grant, pushed};

    fn submit(core: &mut WorkerCore, kind: TaskKind, number: u64, out: &mut Actions) {
        let task = TaskId { owner: ME, number };
        let spec = TaskSpec::new(task, kind, FUNCTION, Name::from("f"), Blob::default());
        core.submit(Arc::new(spec), [Arc::new(Slot::default())], None, out);
    }

    #[test]
    fn tasks_wait_for_a_line_that_is_full_and_go_elsewhere_meanwhile() {
        let (mut core, shape) = core();
        let mut out = Actions::new();
        grant(&mut core, shape, THERE, 1, &mut out);
        core.on_line_full(THERE);
        core.on_line_full(THERE);
        submit(&mut core, TaskKind::Task(shape), 1, &mut out);
        assert_eq!(pushed(&out), []);
        grant(&mut core, shape, HERE, 2, &mut out);
        assert_eq!(pushed(&out), [(HERE, 1)]);
        submit(&mut core, TaskKind::Task(shape), 2, &mut out);
        let mut out = Actions::new();
        core.on_line_free(THERE, Instant(3), &mut out);
        core.on_line_free(THERE, Instant(3), &mut out);
        assert_eq!(pushed(&out), [(THERE, 2)]);
    }

    #[test]
    fn calls_wait_too_and_the_end_of_their_actor_ends_that() {
        let (mut core, _) = core();
        let mut out = Actions::new();
        let actor = TaskId { owner: HERE, number: 9 };
        core.on_line_full(THERE);
        submit(&mut core, TaskKind::Method(actor), 1, &mut out);
        let started = ActorStarted { actor, worker: THERE, concurrency: 1, replays: None, restarts: None };
        core.on_message(Peer::Node, started.into(), Instant(1), &mut out);
        submit(&mut core, TaskKind::Method(actor), 2, &mut out);
        assert_eq!(pushed(&out), []);
        core.on_line_free(THERE, Instant(2), &mut out);
        assert_eq!(pushed(&out), [(THERE, 1), (THERE, 2)], "in their order");
        core.on_line_full(THERE);
        let gone = WorkerDead { worker: THERE, ..WorkerDead::default() };
        core.on_message(Peer::Node, gone.into(), Instant(3), &mut out);
        assert!(!core.is_line_full(THERE));
        core.on_line_full(THERE);
        assert!(!core.is_line_full(THERE), "a word that comes late");
    }
}
