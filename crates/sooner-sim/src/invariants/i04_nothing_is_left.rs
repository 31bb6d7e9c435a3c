//! I4: after the last reference nothing is left: no object, task, lease, actor, stream or block. I6: with
//! that, every count has come back to zero.

use sooner_wire::message::state::{ActorRow, Inspect, about};

use crate::violation::fail;
use crate::world::{SimNode, World, number_of};

impl World {
    fn describe_records(&self) -> String {
        let running = self.processes.running();
        running.map(|process| format!("{:?}\n", process.core.ownership())).collect()
    }

    /// The program is over, and all kept references were dropped.
    pub fn check_end(&self) {
        for process in self.processes.running() {
            let core = &process.core;
            let number = number_of(process.id);
            if core.pending_tasks() > 0 {
                let question =
                    Inspect { request: 0, about: about::TASKS, rows: 10, events: 0, ..Inspect::default() };
                let tasks = core.report(&question).tasks;
                fail("I4", format!("{number} has tasks left: {tasks:?}\n{}", self.describe_records()));
            }
            if !core.ownership().is_empty() {
                let left: Vec<_> = core
                    .ownership()
                    .objects()
                    .map(|(id, record)| format!("{id:?} borrowed by {:?}", record.borrowers()))
                    .collect();
                fail("I4", format!("{number} has records left: {left:?}\n{:?}", core.ownership()));
            }
            if core.open_streams() > 0 || core.leases_held() > 0 {
                let (streams, leases) = (core.open_streams(), core.leases_held());
                fail("I4", format!("{number} has {streams} streams and {leases} leases left"));
            }
            if core.execution().queued() > 0 {
                fail("I4", format!("{number} has tasks queued for ever\n{}", self.describe()));
            }
        }
        self.nodes.iter().for_each(|node| self.check_end_of(node));
        let actors = self.head.iter().flat_map(|head| head.core.directory().report());
        Self::check_actors(actors);
    }

    fn check_actors(mut actors: impl Iterator<Item = ActorRow>) {
        if let Some(actor) = actors.find(|actor| actor.phase == 2 || actor.phase == 3) {
            fail("I4", format!("an actor lives without anybody who could call it: {actor:?}"));
        }
    }

    fn check_end_of(&self, node: &SimNode) {
        let (core, blocks) = (&node.core, &node.blocks);
        if !core.is_quiet() {
            fail("I4", format!("the node holds resources\n{}\n{:?}", self.describe(), core.report()));
        }
        if !blocks.is_empty() || !core.holders().is_empty() {
            let (blocks, held) = (blocks.len(), core.holders().len());
            fail("I4", format!("{blocks} blocks are left; the node knows {held}: {:?}", core.holders()));
        }
        if core.spilled() > 0 || !node.disk.is_empty() {
            fail("I4", format!("{} values are left on disk: {:?}", core.spilled(), node.disk));
        }
        Self::check_actors(core.report().actors.into_iter());
    }
}
