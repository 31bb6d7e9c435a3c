//! Blocks of shared memory whose contents are lost, until their memory may be used again.
//!
//! A lost block is not free: a process that does not know of the loss may still report a value there. When
//! the holders have given the block up, every process is asked to forget that it was lost. When all have
//! answered, no process can take a later value in the block for the lost one.
//!
//! It never touches memory: it says which blocks are free.

use sooner_wire::message::{Place, Round};
use sooner_wire::{BlockId, WorkerId};

use crate::table::{Map, Set};

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Lost {
    blocks: Set<BlockId>,
    /// Per question: its block, and the processes that have not answered.
    rounds: Map<Round, (BlockId, Set<WorkerId>)>,
    asked: u64,
    /// Processes that connected after a loss and have not learned of it.
    newcomers: Vec<WorkerId>,
}

impl Lost {
    /// The contents of a block are lost. False if the node knew that.
    pub fn insert(&mut self, block: BlockId) -> bool {
        self.blocks.insert(block)
    }

    /// Whether the contents of a place are lost. Those of a value on disk never are.
    #[must_use]
    pub fn contains(&self, place: Place) -> bool {
        place.block().is_some_and(|block| self.blocks.contains(&block))
    }

    /// A process has connected: if a block is lost, the process must learn of that.
    pub fn on_connected(&mut self, client: WorkerId) {
        self.newcomers.extend((!self.blocks.is_empty()).then_some(client));
    }

    /// Processes that have connected since the last call and must learn what is lost.
    pub fn take_newcomers(&mut self) -> Vec<WorkerId> {
        std::mem::take(&mut self.newcomers)
    }

    /// The lost blocks that some process may still believe in.
    #[must_use]
    pub fn believed(&self) -> Vec<BlockId> {
        let retired: Set<BlockId> = self.rounds.values().map(|(block, _)| *block).collect();
        self.blocks.iter().copied().filter(|block| !retired.contains(block)).collect()
    }

    /// No process holds a lost block any more. Gives the number of the question to ask `clients`, if there
    /// are any.
    pub fn retire(&mut self, block: BlockId, clients: &[WorkerId]) -> Option<Round> {
        self.asked += 1;
        let round = Round::of_lost(self.asked);
        self.rounds.insert(round, (block, clients.iter().copied().collect()));
        self.close(round).is_none().then_some(round)
    }

    /// A process has forgotten the loss. Gives the block if it was the last process: the block is free.
    pub fn on_answer(&mut self, round: Round, from: WorkerId) -> Option<BlockId> {
        self.rounds.get_mut(&round)?.1.swap_remove(&from);
        self.close(round)
    }

    /// A process is dead. Gives the blocks that are free now.
    pub fn on_dead(&mut self, client: WorkerId) -> Vec<BlockId> {
        let rounds: Vec<Round> = self.rounds.keys().copied().collect();
        rounds.into_iter().filter_map(|round| self.on_answer(round, client)).collect()
    }

    fn close(&mut self, round: Round) -> Option<BlockId> {
        let (block, open) = self.rounds.get(&round)?;
        if !open.is_empty() {
            return None;
        }
        let block = *block;
        self.rounds.swap_remove(&round);
        self.blocks.swap_remove(&block);
        Some(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_block_is_free_when_all_have_forgotten_it() {
        let mut lost = Lost::default();
        assert!(lost.insert(BlockId(64)) && !lost.insert(BlockId(64)));
        let round = lost.retire(BlockId(64), &[WorkerId(1), WorkerId(2)]).expect("somebody must be asked");
        lost.on_connected(WorkerId(3));
        assert_eq!((lost.take_newcomers(), lost.take_newcomers()), (vec![WorkerId(3)], vec![]));
        assert_eq!(lost.on_answer(round, WorkerId(1)), None);
        assert!(lost.contains(BlockId(64).into()));
        assert_eq!(lost.on_dead(WorkerId(2)), [BlockId(64)]);
        assert!(!lost.contains(BlockId(64).into()));
        lost.on_connected(WorkerId(4));
        assert_eq!(lost.take_newcomers(), []);
    }
}
