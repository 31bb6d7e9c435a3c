//! Tasks that wait for their arguments give way to older ones
//! (`docs/adr/0041-arguments-are-admitted-together.md`).
//!
//! What a task waits with is in use: the arguments that were brought for it, and those that were in memory
//! when it was sent. Two tasks that wait in this way may keep from each other what they lack. So when all of
//! memory is in use, the worker of the youngest such task is asked to give way: the task goes back to whoever
//! submitted it, and comes again after a pause. Then nobody uses its arguments, and they go to disk like
//! others.
//!
//! The oldest never gives way, and those who make values never do: they run. So somebody goes on as long as
//! there is room for the arguments of one task beside what those keep that run.
//!
//! It never waits for an answer: one worker is asked at a time, and its end counts as one.

use sooner_wire::message::{Relinquish, Relinquishing};
use sooner_wire::{BlockId, ObjectId, WorkerId};

use crate::node::{NodeAction, NodeActions, NodeCore};
use crate::probes::mark;
use crate::table::Set;

/// See the module.
#[derive(Debug, Default)]
pub(in crate::node) struct Yielding {
    /// Who was asked, and has not answered.
    asked: Option<WorkerId>,
    /// Who was asked since anybody was asked first, or none was left.
    before: Set<WorkerId>,
}

impl NodeCore {
    /// All of memory is in use. Has somebody give way who waits for arguments: to whoever waits for `object`,
    /// or to one that makes a value (none). `length_of` gives the bytes of a block. True if room may come of
    /// it.
    pub fn give_way(
        &mut self,
        object: Option<ObjectId>,
        length_of: impl Fn(BlockId) -> u64,
        out: &mut NodeActions,
    ) -> bool {
        if self.yielding.asked.is_some() {
            return true;
        }
        let Yielding { before, .. } = &self.yielding;
        let is_spared = |process| before.contains(&process) || !self.clients.contains_key(&process);
        let Some(worker) = self.pulls.youngest_behind(object, is_spared) else {
            // Next time from the beginning: others may have come.
            self.yielding.before.clear();
            return false;
        };
        mark!("a task had to give way to an older one");
        self.yielding.asked = Some(worker);
        self.yielding.before.insert(worker);
        let is_its =
            |block: &BlockId| self.holders.of((*block).into()) == [worker] && !self.residency.is_busy(*block);
        let copies: Vec<BlockId> = self.pulls.copied_blocks().filter(is_its).collect();
        for block in &copies {
            self.residency.ask(*block, &[worker], length_of(*block), true);
        }
        let blocks =
            copies.into_iter().map(|block| Relinquishing { offset: block.offset(), spilled: None }).collect();
        let ask = Relinquish { blocks, gives_way: Some(true), node: None, recomputes: None };
        out.push(NodeAction::Send(worker, Box::new(ask.into())));
        true
    }

    /// A process has answered a question for blocks, or is gone.
    pub(in crate::node) fn end_yielding(&mut self, process: WorkerId) {
        if self.yielding.asked.take_if(|asked| *asked == process).is_some() {
            // What was in use may not be now.
            self.residency.on_room();
        }
    }
}
