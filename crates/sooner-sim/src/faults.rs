//! Faults around a program, one file for each kind.
//!
//! In production, processes on one machine are connected by sockets: messages between two of them arrive once
//! and in order, or not at all once one of them is dead. So the faults here are deaths, pauses, delays, and
//! losses with a process. Between machines, connections are cut, too: see [`crate::lines`].

mod cuts;
mod full;
mod kills;
mod losses;
mod pauses;
mod stalls;

use sooner_protocol::probes::hit;

use crate::plan::Fault;
use crate::world::{World, number_of};

impl World {
    /// One fault of a kind that the plan has.
    pub fn strike(&mut self) {
        let kinds: Vec<Fault> = [
            Fault::Kill,
            Fault::Pause,
            Fault::Stall,
            Fault::LostBlocks,
            Fault::Cuts,
            Fault::Head,
            Fault::Full,
        ]
        .into_iter()
        .filter(|fault| self.plan.breaks(*fault))
        .collect();
        if kinds.is_empty() {
            return;
        }
        match kinds[self.random.below(kinds.len())] {
            Fault::Kill => {
                self.kill_a_worker();
                if self.plan.breaks(Fault::Together) && self.random.chance(1, 2) {
                    hit("two processes were killed at once");
                    self.kill_a_worker();
                }
            }
            Fault::Pause => self.pause_a_process(),
            Fault::LostBlocks => self.lose_blocks(),
            Fault::Cuts => self.cut_a_connection(),
            Fault::Head => self.restart_head(),
            Fault::Full => self.fill_a_node(),
            _ => self.stall_a_channel(),
        }
    }

    /// A running process that is no driver; `None` if there is none.
    fn some_worker(&mut self) -> Option<u32> {
        let workers = self.processes.running().filter(|process| !process.is_driver);
        let workers: Vec<u32> = workers.map(|process| number_of(process.id)).collect();
        (!workers.is_empty()).then(|| workers[self.random.below(workers.len())])
    }
}
