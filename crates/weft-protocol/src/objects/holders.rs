//! Who holds each block of a node's shared memory.
//!
//! A block is held by the process that owns the object in it. When an owner dies, its blocks must not be reused
//! while another process still has views of them: the node asks every process which ones it reads, and the
//! readers become holders. The node itself keeps blocks that it will show to processes to come: the arguments of a
//! detached actor, the states in checkpoints. A block is free when nobody holds it.
//!
//! A worker that ends may have told the node of a block it gave away and not the receiver of the value in it. So the
//! receivers are asked which blocks of a dead giver they do not know, and those are free. The question comes behind
//! the news of the end, before which a receiver reads all that the giver sent it (N4).
//!
//! It never touches memory: it says which blocks are free.

use weft_wire::WorkerId;

use crate::table::{Map, Set};

/// A question to all processes about the blocks of a dead owner.
#[derive(Debug)]
struct Round {
    /// Who held them.
    owner: WorkerId,
    /// Processes that have not answered.
    open: Set<WorkerId>,
    /// Blocks in question.
    blocks: Vec<u64>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Holders {
    blocks: Map<u64, Vec<WorkerId>>,
    /// Who gave a block last, and to whom. Goes with the block.
    given: Map<u64, (WorkerId, WorkerId)>,
    by_holder: Map<WorkerId, Set<u64>>,
    /// Blocks the node keeps, and how often.
    kept: Map<u64, u32>,
    rounds: Map<u64, Round>,
    next_round: u64,
    /// Blocks freed by a process before the message that gives them to it came: the giver and the receiver speak over
    /// different connections. At most one entry per block on its way.
    early: Set<(u64, WorkerId)>,
    /// Blocks that a process gave on before the message that gives them to it came, and to whom: it may have used the
    /// block again for a value that it returned.
    given_on: Map<(u64, WorkerId), WorkerId>,
}

impl Holders {
    /// A block was allocated for `holder`.
    pub fn insert(&mut self, block: u64, holder: WorkerId) {
        self.blocks.insert(block, vec![holder]);
        self.given.swap_remove(&block);
        self.by_holder.entry(holder).or_default().insert(block);
    }

    /// The block's object belongs to another process. True if the block is free, because that one has freed it.
    #[must_use]
    pub fn give(&mut self, block: u64, from: WorkerId, to: WorkerId) -> bool {
        if !self.replace(block, from, to) {
            if self.blocks.contains_key(&block) {
                self.given_on.insert((block, from), to);
            }
            return false;
        }
        if let Some(next) = self.given_on.swap_remove(&(block, to)) {
            return self.give(block, to, next);
        }
        self.by_holder.entry(to).or_default().insert(block);
        self.given.insert(block, (from, to));
        self.early.swap_remove(&(block, to)) && self.release(block, to)
    }

    /// The block's object belongs to a process that is gone. It may have told others of the value before its end, so
    /// they are asked as for the blocks it held: gives what [`Self::on_gone`] gives.
    pub fn give_to_gone(
        &mut self,
        block: u64,
        from: WorkerId,
        gone: WorkerId,
        others: &[WorkerId],
    ) -> (Option<u64>, Vec<u64>) {
        if !self.replace(block, from, gone) {
            return (None, Vec::new());
        }
        if let Some(next) = self.given_on.swap_remove(&(block, gone)) {
            let is_free = self.give(block, gone, next);
            return (None, if is_free { vec![block] } else { Vec::new() });
        }
        self.open_round(gone, vec![block], others)
    }

    /// Makes one process the holder instead of another; false if that one does not hold the block.
    fn replace(&mut self, block: u64, from: WorkerId, to: WorkerId) -> bool {
        let Some(holders) = self.blocks.get_mut(&block) else { return false };
        let Some(at) = holders.iter().position(|holder| *holder == from) else { return false };
        holders[at] = to;
        if let Some(blocks) = self.by_holder.get_mut(&from) {
            blocks.swap_remove(&block);
        }
        true
    }

    /// The node keeps a block until [`Self::let_go`].
    pub fn keep(&mut self, block: u64) {
        if self.blocks.contains_key(&block) {
            *self.kept.entry(block).or_default() += 1;
        }
    }

    /// A process holds a block, too: it frees it when it has no view of it any more.
    pub fn share(&mut self, block: u64, with: WorkerId) {
        if let Some(holders) = self.blocks.get_mut(&block) {
            holders.push(with);
            self.by_holder.entry(with).or_default().insert(block);
        }
    }

    /// Ends one [`Self::keep`]. True if nobody holds the block now.
    #[must_use]
    pub fn let_go(&mut self, block: u64) -> bool {
        let Some(count) = self.kept.get_mut(&block) else { return false };
        *count -= 1;
        if *count == 0 {
            self.kept.swap_remove(&block);
        }
        self.is_free_now(block)
    }

    /// Forgets a block that nobody holds.
    fn is_free_now(&mut self, block: u64) -> bool {
        let is_free = !self.kept.contains_key(&block) && self.blocks.get(&block).is_some_and(Vec::is_empty);
        if is_free {
            self.blocks.swap_remove(&block);
            self.given.swap_remove(&block);
            if !self.given_on.is_empty() {
                self.given_on.retain(|(given, _), _| *given != block);
            }
        }
        is_free
    }

    /// A holder frees a block. True if nobody holds it now.
    #[must_use]
    pub fn release(&mut self, block: u64, holder: WorkerId) -> bool {
        if let Some(blocks) = self.by_holder.get_mut(&holder) {
            blocks.swap_remove(&block);
        }
        let Some(holders) = self.blocks.get_mut(&block) else { return false };
        if !holders.contains(&holder) {
            self.early.insert((block, holder));
            return false;
        }
        holders.retain(|other| *other != holder);
        self.is_free_now(block)
    }

    /// The blocks that a process gave away last, for each receiver that holds them.
    #[must_use]
    pub fn given_by(&self, giver: WorkerId) -> Map<WorkerId, Vec<u64>> {
        let mut receivers: Map<WorkerId, Vec<u64>> = Map::default();
        for (block, (from, to)) in &self.given {
            if *from == giver && self.by_holder.get(to).is_some_and(|held| held.contains(block)) {
                receivers.entry(*to).or_default().push(*block);
            }
        }
        receivers
    }

    /// The receiver does not know a block that a dead process gave it. True if nobody holds it now. An answer that was
    /// overtaken (the block was freed since, or given by another one) changes nothing.
    #[must_use]
    pub fn disown(&mut self, block: u64, giver: WorkerId, receiver: WorkerId) -> bool {
        self.given.get(&block) == Some(&(giver, receiver)) && self.release(block, receiver)
    }

    /// A process is gone. Gives the number of the round to ask `others` in, if it held blocks, and the blocks that
    /// are free already (rounds that waited for its answer).
    pub fn on_gone(&mut self, worker: WorkerId, others: &[WorkerId]) -> (Option<u64>, Vec<u64>) {
        self.early.retain(|(_, holder)| *holder != worker);
        let mut free = Vec::new();
        for round in self.rounds.keys().copied().collect::<Vec<_>>() {
            free.extend(self.on_answer(round, worker, &[]));
        }
        let blocks: Vec<u64> = self.by_holder.swap_remove(&worker).unwrap_or_default().into_iter().collect();
        if blocks.is_empty() {
            return (None, free);
        }
        let (round, closed) = self.open_round(worker, blocks, others);
        free.extend(closed);
        (round, free)
    }

    /// The round holds the blocks in the name of the dead one until all have answered.
    fn open_round(
        &mut self,
        owner: WorkerId,
        blocks: Vec<u64>,
        others: &[WorkerId],
    ) -> (Option<u64>, Vec<u64>) {
        let number = self.next_round;
        self.next_round += 1;
        self.rounds.insert(number, Round { owner, open: others.iter().copied().collect(), blocks });
        let free = if others.is_empty() { self.close(number) } else { Vec::new() };
        (Some(number), free)
    }

    /// A process names the blocks it still reads. Gives the blocks that are free now. A block may be among them that the
    /// dead owner was to get and whose giver has not said so yet.
    pub fn on_answer(&mut self, round: u64, from: WorkerId, reads: &[u64]) -> Vec<u64> {
        let Some(state) = self.rounds.get_mut(&round) else { return Vec::new() };
        if !state.open.swap_remove(&from) {
            return Vec::new();
        }
        let done = state.open.is_empty();
        for block in reads {
            if let Some(holders) = self.blocks.get_mut(block) {
                holders.push(from);
                // It knows the block by reading it, whoever gave it before.
                self.given.swap_remove(block);
                self.by_holder.entry(from).or_default().insert(*block);
            }
        }
        if done { self.close(round) } else { Vec::new() }
    }

    fn close(&mut self, round: u64) -> Vec<u64> {
        let Some(state) = self.rounds.swap_remove(&round) else { return Vec::new() };
        let mut free = Vec::new();
        for block in state.blocks {
            let Some(holders) = self.blocks.get_mut(&block) else { continue };
            if let Some(at) = holders.iter().position(|holder| *holder == state.owner) {
                holders.remove(at);
            }
            if self.is_free_now(block) {
                free.push(block);
            }
        }
        free
    }

    /// Whether a process, and not the node, holds this block.
    #[must_use]
    pub fn is_held(&self, block: u64) -> bool {
        self.blocks.contains_key(&block) && !self.kept.contains_key(&block)
    }

    /// Blocks held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether no block is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: WorkerId = WorkerId(1);
    const READER: WorkerId = WorkerId(2);
    const OTHER: WorkerId = WorkerId(3);

    #[test]
    fn a_block_is_free_when_its_holder_frees_it() {
        let mut holders = Holders::default();
        holders.insert(0, OWNER);
        assert!(!holders.give(0, OWNER, READER));
        assert!(holders.release(0, READER));
        assert!(holders.is_empty());
    }

    #[test]
    fn a_block_may_be_given_on_before_it_is_given() {
        // The receiver read the value, freed its block, used it again, and returned that: before the node heard of it.
        let mut holders = Holders::default();
        holders.insert(0, OWNER);
        assert!(!holders.give(0, READER, OTHER));
        assert!(!holders.give(0, OWNER, READER));
        assert!(holders.release(0, OTHER));
        holders.insert(64, OWNER);
        assert!(!holders.give(64, READER, OTHER));
        assert_eq!(holders.give_to_gone(64, OWNER, READER, &[OTHER]), (None, Vec::new()));
        assert!(holders.release(64, OTHER));
        assert!(holders.is_empty());
    }

    #[test]
    fn a_block_may_be_freed_before_it_is_given() {
        // The reply reached the owner, and its release the node, before the worker's own message did.
        let mut holders = Holders::default();
        holders.insert(0, OWNER);
        assert!(!holders.release(0, READER));
        assert!(holders.give(0, OWNER, READER));
        assert!(holders.is_empty());
    }

    #[test]
    fn readers_inherit_the_blocks_of_a_dead_owner() {
        let mut holders = Holders::default();
        holders.insert(0, OWNER);
        holders.insert(64, OWNER);
        let (round, free) = holders.on_gone(OWNER, &[READER, OTHER]);
        let round = round.expect("it held blocks");
        assert!(free.is_empty());
        assert!(holders.on_answer(round, READER, &[64]).is_empty());
        assert_eq!(holders.on_answer(round, OTHER, &[]), [0]);
        assert!(holders.release(64, READER));
    }

    #[test]
    fn a_process_that_dies_during_a_round_has_answered() {
        let mut holders = Holders::default();
        holders.insert(0, OWNER);
        holders.on_gone(OWNER, &[READER]);
        let (_, free) = holders.on_gone(READER, &[]);
        assert_eq!(free, [0]);
    }

    #[test]
    fn a_block_that_the_node_keeps_outlives_its_holders() {
        let mut holders = Holders::default();
        holders.insert(0, OWNER);
        holders.keep(0);
        holders.keep(0);
        assert_eq!(holders.on_gone(OWNER, &[]), (Some(0), Vec::new()));
        assert!(!holders.let_go(0));
        assert!(holders.let_go(0));
        holders.insert(64, OWNER);
        holders.keep(64);
        assert!(!holders.let_go(64));
        assert!(holders.release(64, OWNER));
        assert!(holders.is_empty());
    }

    #[test]
    fn a_block_of_a_checkpoint_outlives_the_process_that_made_it() {
        let mut holders = Holders::default();
        holders.insert(0, OWNER);
        holders.keep(0);
        assert!(!holders.release(0, OWNER));
        assert_eq!(holders.on_gone(OWNER, &[]), (None, Vec::new()));
        holders.share(0, READER);
        assert!(!holders.let_go(0));
        assert!(holders.release(0, READER));
        assert!(holders.is_empty());
    }

    #[test]
    fn a_block_whose_value_never_came_is_disowned() {
        let mut holders = Holders::default();
        for block in [0, 64] {
            holders.insert(block, OTHER);
            assert!(!holders.give(block, OTHER, READER));
        }
        assert_eq!(holders.on_gone(OTHER, &[READER]), (None, Vec::new()));
        assert_eq!(holders.given_by(OTHER), Map::from_iter([(READER, vec![0, 64])]));
        assert!(holders.disown(64, OTHER, READER));
        assert!(holders.release(0, READER));
        assert!(holders.is_empty() && holders.given.is_empty());
    }

    #[test]
    fn an_answer_about_a_block_that_was_used_again_changes_nothing() {
        let mut holders = Holders::default();
        holders.insert(0, OTHER);
        assert!(!holders.give(0, OTHER, READER));
        assert_eq!(holders.given_by(OTHER).len(), 1);
        // The reader knew it and freed it, and got it again for a value of its own.
        assert!(holders.release(0, READER));
        holders.insert(0, READER);
        assert!(!holders.disown(0, OTHER, READER));
        // The reader freed that too, and the owner gave it the block with a value.
        assert!(holders.release(0, READER));
        holders.insert(0, OWNER);
        assert!(!holders.give(0, OWNER, READER));
        assert!(!holders.disown(0, OTHER, READER));
        assert_eq!(holders.len(), 1);
    }

    #[test]
    fn a_block_given_to_a_dead_process_is_free_when_nobody_reads_it() {
        // The dead process got the value and told a reader of it; the word of the giver comes last.
        let mut holders = Holders::default();
        holders.insert(0, OWNER);
        let (round, free) = holders.give_to_gone(0, OWNER, OTHER, &[OWNER, READER]);
        let round = round.expect("the others are asked");
        assert!(free.is_empty());
        assert!(holders.on_answer(round, READER, &[0]).is_empty());
        assert!(holders.on_answer(round, OWNER, &[]).is_empty());
        assert!(holders.release(0, READER));
        holders.insert(64, OWNER);
        assert_eq!(holders.give_to_gone(64, OWNER, OTHER, &[]).1, [64]);
        assert!(holders.is_empty());
    }

    #[test]
    fn a_reader_may_name_a_block_that_its_dead_owner_has_not_been_given_yet() {
        let mut holders = Holders::default();
        holders.insert(0, OTHER);
        holders.insert(64, OWNER);
        let (round, _) = holders.on_gone(OWNER, &[READER]);
        assert_eq!(holders.on_answer(round.expect("it held a block"), READER, &[0]), [64]);
        let (round, _) = holders.give_to_gone(0, OTHER, OWNER, &[READER]);
        assert!(holders.on_answer(round.expect("it is asked again"), READER, &[]).is_empty());
        assert!(holders.release(0, READER));
        assert!(holders.is_empty());
    }
}
