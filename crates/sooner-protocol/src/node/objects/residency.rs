//! Which values of a node are on disk, and which are on their way there.
//!
//! The node wants a block back, and *asks* its process. If nobody reads the value, the process gives the
//! block up, and the value is *written*; then the block is free, and the value is *on disk* until its owner
//! frees it. From the question on, the value has a number that is never used again ([`SpillId`]). A request
//! for this number that comes before the process has answered waits for the answer.
//!
//! No state waits for another value: a block that is being written needs no room, and a value that is brought
//! back takes room only when there is some. So spilling never waits for spilling.
//!
//! Invariants:
//! - VD1: a block is asked for, or written, at most once at a time, and not both.
//! - VD2: a value is on disk, or its block is here: it is never in neither place.
//!
//! A value that could not be written is tried again when there is need, after a pause that doubles: a disk
//! may have room later, and a broken disk should not be asked all the time.
//!
//! It moves nothing and holds no block: the node does.

use sooner_wire::limits::{SPILL_RETRY_NANOS, SPILL_RETRY_NANOS_MAX};
use sooner_wire::message::{Place, Pull, Relinquishing, SpillId};
use sooner_wire::{BlockId, NodeId, ObjectId, WorkerId};

use crate::table::{Map, Set};
use crate::time::Instant;

/// A block that a process was asked to give up.
#[derive(Debug)]
struct Asked {
    /// The processes that were asked.
    of: Vec<WorkerId>,
    /// The number of its value on disk; none for a copy.
    spilled: Option<SpillId>,
    bytes: u64,
    /// The block was in use when it was asked for before, and nothing has changed since.
    is_again: bool,
    /// No process holds the block any more: it is free as soon as the question is answered.
    is_free: bool,
}

/// What has to be done after a question was answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AfterAnswer {
    /// No value will have this number.
    pub nowhere: Option<SpillId>,
    /// This block is free.
    pub free: Option<BlockId>,
}

/// Where a spilled value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spilled {
    /// In this block, from which it is being written.
    Writing { block: BlockId, bytes: u64, is_wanted: bool },
    /// On disk.
    Written,
    /// In this block: it could not be written.
    Here { block: BlockId, bytes: u64 },
}

/// Where the bytes of a spilled value are read for another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpillSource {
    /// In this block, from which it is being written, or could not be.
    Block(BlockId),
    /// On disk.
    Disk,
}

/// What has to be done after a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AfterWrite {
    /// This block is not needed any more.
    pub frees: Option<BlockId>,
    /// Nor is the record of the value, written or not.
    pub is_dropped: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Residency {
    made: u64,
    asked: Map<BlockId, Asked>,
    spilled: Map<SpillId, Spilled>,
    writing: Map<BlockId, SpillId>,
    /// Blocks that were in use when asked for. Cleared when a block is given up or freed.
    refused: Set<BlockId>,
    /// Requests for values whose processes have not answered yet.
    early: Vec<(WorkerId, Pull)>,
    /// Blocks whose values could not be written, and these values.
    unwritten: Map<BlockId, SpillId>,
    /// When the unwritten values may be tried again, and the pause before that (nanoseconds).
    retry: Option<(Instant, u64)>,
    /// Objects of owners elsewhere that have left their blocks: per object the block and its number on disk.
    moved: Map<ObjectId, (BlockId, SpillId)>,
    /// The same objects, by number.
    objects: Map<SpillId, ObjectId>,
}

impl Residency {
    /// An object has left its block for good, as this value. Processes may still ask for it there, where
    /// another object may be by then.
    pub fn record_moved(&mut self, object: ObjectId, block: BlockId, spilled: SpillId) {
        self.moved.insert(object, (block, spilled));
        self.objects.insert(spilled, object);
    }

    /// Whether an object has left this block, and is still needed. If it was made again, it may be about to
    /// be given in another block.
    #[must_use]
    pub fn has_moved(&self, object: ObjectId, block: BlockId) -> bool {
        self.moved.get(&object).is_some_and(|(left, _)| *left == block)
    }

    /// A block is asked back from these processes. Gives the number of its value, unless it `is_copy`.
    pub fn ask(&mut self, block: BlockId, of: &[WorkerId], bytes: u64, is_copy: bool) -> Option<SpillId> {
        assert!(!self.is_busy(block), "VD1: once at a time");
        let spilled = (!is_copy).then(|| {
            self.made += 1;
            SpillId(self.made)
        });
        let is_again = self.refused.contains(&block);
        self.asked.insert(block, Asked { of: of.to_vec(), spilled, bytes, is_again, is_free: false });
        spilled
    }

    /// What processes of another node have been asked and have not answered, in that order.
    pub fn open_questions(&self, node: NodeId) -> impl Iterator<Item = (WorkerId, Relinquishing)> {
        let of_it = move |(block, asked): (&BlockId, &Asked)| {
            let question = Relinquishing { block: *block, spilled: asked.spilled };
            let of = asked.of.iter().copied().find(|of| of.node() == node);
            of.map(|of| (of, question))
        };
        self.asked.iter().filter_map(of_it)
    }

    /// Whether a block is asked for or written.
    #[must_use]
    pub fn is_busy(&self, block: BlockId) -> bool {
        self.asked.contains_key(&block) || self.writing.contains_key(&block)
    }

    /// No process holds a block any more. True if it is not free yet: the asked process may take the question
    /// for one about the next value there.
    #[must_use]
    pub fn delays(&mut self, block: BlockId) -> bool {
        let asked = self.asked.get_mut(&block);
        asked.map(|asked| asked.is_free = true).is_some()
    }

    /// Whether a block is being written.
    #[must_use]
    pub fn is_written_from(&self, block: BlockId) -> bool {
        self.writing.contains_key(&block)
    }

    /// Whether a block was in use when it was asked for, and nothing has changed since.
    #[must_use]
    pub fn is_refused(&self, block: BlockId) -> bool {
        self.refused.contains(&block)
    }

    /// Whether the value in a block could not be written, and may not be tried again yet.
    #[must_use]
    pub fn is_stuck(&self, block: BlockId, now: Instant) -> bool {
        self.unwritten.contains_key(&block) && self.retry.is_some_and(|(due, _)| now < due)
    }

    /// Whether the value in a block could not be written: then holders of the block read it there.
    #[must_use]
    pub fn is_unwritten(&self, block: BlockId) -> bool {
        self.unwritten.contains_key(&block)
    }

    /// Whether there are values that could not be written.
    #[must_use]
    pub fn has_unwritten(&self) -> bool {
        !self.unwritten.is_empty()
    }

    /// Unwritten values to write again, each with its block: about `bytes` bytes, if it is time. Values that
    /// are read in their blocks are left out.
    pub fn retry(
        &mut self,
        bytes: u64,
        now: Instant,
        is_read: impl Fn(BlockId) -> bool,
    ) -> Vec<(SpillId, BlockId)> {
        let mut left = bytes;
        let mut again: Vec<(SpillId, BlockId, u64)> = Vec::new();
        if self.unwritten.is_empty() || self.retry.is_some_and(|(due, _)| now < due) {
            return Vec::new();
        }
        for (block, spilled) in &self.unwritten {
            let Some(Spilled::Here { bytes, .. }) = self.spilled.get(spilled) else { continue };
            if left == 0 {
                break;
            }
            if !is_read(*block) && !self.asked.contains_key(block) {
                left = left.saturating_sub(*bytes);
                again.push((*spilled, *block, *bytes));
            }
        }
        for (spilled, block, bytes) in &again {
            self.unwritten.swap_remove(block);
            self.writing.insert(*block, *spilled);
            self.spilled.insert(*spilled, Spilled::Writing { block: *block, bytes: *bytes, is_wanted: true });
        }
        again.into_iter().map(|(spilled, block, _)| (spilled, block)).collect()
    }

    /// Bytes that may be free soon: asked for, or being written.
    #[must_use]
    pub fn bytes_to_come(&self) -> u64 {
        let asked: u64 = self.asked.values().map(|asked| asked.bytes).sum();
        let written = self.writing.values().map(|spilled| match self.spilled.get(spilled) {
            Some(Spilled::Writing { bytes, .. }) => *bytes,
            Some(Spilled::Written | Spilled::Here { .. }) | None => 0,
        });
        asked + written.sum::<u64>()
    }

    /// Whether room may come: a block is being written, or one is asked for that was not in use the last
    /// time.
    #[must_use]
    pub fn has_hope(&self) -> bool {
        !self.writing.is_empty() || self.asked.values().any(|asked| !asked.is_again)
    }

    /// A block is free: blocks that were in use may be free, too.
    pub fn on_room(&mut self) {
        self.refused.clear();
    }

    /// A process gives a block up: its value is to be written. False if the process was not asked, or the
    /// block is another's by now.
    pub fn on_moved(&mut self, from: WorkerId, block: BlockId, spilled: Option<SpillId>) -> bool {
        let is_answer = |asked: &Asked| asked.spilled == spilled && spilled.is_some() && asked.of == [from];
        if !self.asked.get(&block).is_some_and(is_answer) {
            return false;
        }
        let asked = self.asked.swap_remove(&block).expect("looked up above");
        let (Some(spilled), bytes) = (spilled, asked.bytes) else { return false };
        self.spilled.insert(spilled, Spilled::Writing { block, bytes, is_wanted: true });
        self.refused.clear();
        self.writing.insert(block, spilled);
        true
    }

    /// A process keeps a block, or gave up its copy in the block.
    pub fn on_answered(&mut self, from: WorkerId, block: BlockId) -> AfterAnswer {
        let Some(asked) = self.asked.get_mut(&block) else { return AfterAnswer::default() };
        asked.of.retain(|process| *process != from);
        if !asked.of.is_empty() {
            return AfterAnswer::default();
        }
        let Some(asked) = self.asked.swap_remove(&block) else { return AfterAnswer::default() };
        if !asked.is_free {
            self.refused.insert(block);
        }
        AfterAnswer { nowhere: asked.spilled, free: asked.is_free.then_some(block) }
    }

    /// A process is dead: it does not answer.
    pub fn on_dead(&mut self, process: WorkerId) -> Vec<AfterAnswer> {
        self.early.retain(|(from, _)| *from != process);
        let blocks = self.asked.iter().filter(|(_, asked)| asked.of.contains(&process));
        let blocks: Vec<BlockId> = blocks.map(|(block, _)| *block).collect();
        blocks.into_iter().map(|block| self.on_answered(process, block)).collect()
    }

    /// The block was written, or could not be.
    pub fn on_written(&mut self, spilled: SpillId, is_written: bool, now: Instant) -> AfterWrite {
        let Some(Spilled::Writing { block, bytes, is_wanted }) = self.spilled.get(&spilled).copied() else {
            return AfterWrite { frees: None, is_dropped: true };
        };
        self.writing.swap_remove(&block);
        self.record_write(is_written, now);
        if !is_wanted {
            self.spilled.swap_remove(&spilled);
            return AfterWrite { frees: Some(block), is_dropped: true };
        }
        let state = if is_written { Spilled::Written } else { Spilled::Here { block, bytes } };
        self.spilled.insert(spilled, state);
        if !is_written {
            self.unwritten.insert(block, spilled);
        }
        AfterWrite { frees: is_written.then_some(block), is_dropped: false }
    }

    /// The pause doubles with each failure after it; writes that were under way together count as one
    /// failure.
    fn record_write(&mut self, is_written: bool, now: Instant) {
        let pause = match self.retry {
            _ if is_written => return self.retry = None,
            Some((due, _)) if now < due => return,
            Some((_, pause)) => (pause * 2).min(SPILL_RETRY_NANOS_MAX),
            None => SPILL_RETRY_NANOS,
        };
        self.retry = Some((now.plus(pause), pause));
    }

    /// The disk is lost for good: so are the values on it, and values that are being written stay in their
    /// blocks. Gives what has to be done for the writes that failed by that.
    pub fn on_ended(&mut self, now: Instant) -> Vec<(SpillId, AfterWrite)> {
        self.spilled.retain(|_, value| !matches!(value, Spilled::Written));
        let writing: Vec<SpillId> = self.writing.values().copied().collect();
        writing.into_iter().map(|spilled| (spilled, self.on_written(spilled, false, now))).collect()
    }

    /// The value is not needed any more. Gives what to do at once: a value that is being written is dropped
    /// after the write.
    pub fn on_freed(&mut self, spilled: SpillId) -> AfterWrite {
        if let Some(object) = self.objects.swap_remove(&spilled)
            && self.moved.get(&object).is_some_and(|(_, number)| *number == spilled)
        {
            self.moved.swap_remove(&object);
        }
        match self.spilled.get_mut(&spilled) {
            Some(Spilled::Writing { is_wanted, .. }) => {
                *is_wanted = false;
                AfterWrite { frees: None, is_dropped: false }
            }
            Some(Spilled::Written) => {
                self.spilled.swap_remove(&spilled);
                AfterWrite { frees: None, is_dropped: true }
            }
            Some(Spilled::Here { block, .. }) => {
                let frees = Some(*block);
                self.unwritten.swap_remove(block);
                self.spilled.swap_remove(&spilled);
                AfterWrite { frees, is_dropped: true }
            }
            None => AfterWrite { frees: None, is_dropped: false },
        }
    }

    /// Whether the value is, or will be, on disk; `None`: its process has not answered.
    #[must_use]
    pub fn has(&self, spilled: SpillId) -> Option<bool> {
        if self.spilled.contains_key(&spilled) {
            return Some(true);
        }
        let is_asked = self.asked.values().any(|asked| asked.spilled == Some(spilled));
        if is_asked { None } else { Some(false) }
    }

    /// A process asks for a value whose own process has not answered.
    pub fn wait(&mut self, from: WorkerId, pull: Pull) {
        self.early.push((from, pull));
    }

    /// Takes the requests that wait for this answer.
    pub fn take_waiting(&mut self, spilled: SpillId) -> Vec<(WorkerId, Pull)> {
        self.early.extract_if(.., |(_, pull)| pull.remote.location.place() == Place::Disk(spilled)).collect()
    }

    /// The block of a value that could not be written.
    #[must_use]
    pub fn block_of(&self, spilled: SpillId) -> Option<BlockId> {
        match self.spilled.get(&spilled) {
            Some(Spilled::Here { block, .. }) => Some(*block),
            Some(Spilled::Writing { .. } | Spilled::Written) | None => None,
        }
    }

    /// Where a value is read; `None`: there is none, or its process has not answered.
    #[must_use]
    pub fn source_of(&self, spilled: SpillId) -> Option<SpillSource> {
        match self.spilled.get(&spilled)? {
            Spilled::Writing { block, .. } | Spilled::Here { block, .. } => Some(SpillSource::Block(*block)),
            Spilled::Written => Some(SpillSource::Disk),
        }
    }

    /// Values that are on disk or on their way there.
    #[must_use]
    pub fn len(&self) -> usize {
        self.spilled.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spilled.is_empty()
    }

    /// Asserts the invariants; for tests and the simulator.
    pub fn check(&self) {
        let writing = self.spilled.values().filter(|value| matches!(value, Spilled::Writing { .. })).count();
        assert_eq!(writing, self.writing.len(), "VD1: one write per block");
        let here = self.spilled.values().filter(|value| matches!(value, Spilled::Here { .. })).count();
        assert_eq!(here, self.unwritten.len(), "VD2: each that could not be written is known by its block");
        for (block, spilled) in &self.writing {
            assert!(!self.asked.contains_key(block), "VD1: not both");
            let is_there = matches!(self.spilled.get(spilled), Some(Spilled::Writing { block: from, .. }) if from == block);
            assert!(is_there, "VD2: a block is written from for its value");
        }
    }
}

#[cfg(test)]
mod tests {
    use sooner_wire::message::{Location, Priority, Remote};
    use sooner_wire::{NodeId, TaskId};

    use super::*;

    const OWNER: WorkerId = WorkerId((1 << 24) + 1);
    const OTHER: WorkerId = WorkerId((1 << 24) + 2);
    const NOW: Instant = Instant(5);

    fn pull(spilled: SpillId) -> Pull {
        let object = TaskId { owner: OWNER, number: 1 }.object(0);
        let location = Location { offset: spilled.offset(), length: 10 };
        Pull { object, remote: Remote { node: NodeId(1 << 24), location }, priority: Priority::Get }
    }

    #[test]
    fn a_value_is_asked_for_written_and_dropped() {
        let mut all = Residency::default();
        let spilled = all.ask(BlockId(64), &[OWNER], 10, false).expect("it is no copy");
        assert_eq!((all.has(spilled), all.bytes_to_come(), all.has_hope()), (None, 10, true));
        assert!(!all.on_moved(OTHER, BlockId(64), Some(spilled)), "it was not asked");
        assert!(all.on_moved(OWNER, BlockId(64), Some(spilled)));
        assert_eq!((all.has(spilled), all.bytes_to_come()), (Some(true), 10));
        all.check();
        assert_eq!(
            all.on_written(spilled, true, NOW),
            AfterWrite { frees: Some(BlockId(64)), is_dropped: false }
        );
        assert_eq!((all.bytes_to_come(), all.has_hope(), all.len()), (0, false, 1));
        assert_eq!(all.on_freed(spilled), AfterWrite { frees: None, is_dropped: true });
        assert_eq!((all.has(spilled), all.is_empty()), (Some(false), true));
    }

    #[test]
    fn an_object_has_left_its_block_until_the_value_on_disk_is_freed() {
        let object = |number| TaskId { owner: OWNER, number }.object(0);
        let mut all = Residency::default();
        all.record_moved(object(1), BlockId(64), SpillId(1));
        assert!(all.has_moved(object(1), BlockId(64)) && !all.has_moved(object(2), BlockId(64)));
        assert!(
            !all.has_moved(object(1), BlockId(128)),
            "it may be there again: it may have been lost and made anew"
        );
        all.record_moved(object(1), BlockId(128), SpillId(2));
        all.on_freed(SpillId(1));
        assert!(all.has_moved(object(1), BlockId(128)), "that was the one before");
        all.on_freed(SpillId(2));
        assert!(!all.has_moved(object(1), BlockId(128)));
        assert!(all.moved.is_empty() && all.objects.is_empty());
    }

    #[test]
    fn a_value_that_is_freed_while_it_is_written_is_dropped_afterwards() {
        let mut all = Residency::default();
        let spilled = all.ask(BlockId(64), &[OWNER], 10, false).expect("it is no copy");
        assert!(all.on_moved(OWNER, BlockId(64), Some(spilled)));
        assert_eq!(all.on_freed(spilled), AfterWrite { frees: None, is_dropped: false });
        assert_eq!(
            all.on_written(spilled, true, NOW),
            AfterWrite { frees: Some(BlockId(64)), is_dropped: true }
        );
        assert!(all.is_empty());
    }

    #[test]
    fn what_cannot_be_written_stays_in_its_block() {
        let mut all = Residency::default();
        let spilled = all.ask(BlockId(64), &[OWNER], 10, false).expect("it is no copy");
        assert!(all.on_moved(OWNER, BlockId(64), Some(spilled)));
        assert_eq!(all.on_written(spilled, false, NOW), AfterWrite { frees: None, is_dropped: false });
        assert_eq!(all.block_of(spilled), Some(BlockId(64)));
        assert_eq!(all.on_freed(spilled), AfterWrite { frees: Some(BlockId(64)), is_dropped: true });
    }

    /// A value of 10 bytes that could not be written, in block 64.
    fn unwritten() -> (Residency, SpillId) {
        let mut all = Residency::default();
        let spilled = all.ask(BlockId(64), &[OWNER], 10, false).expect("it is no copy");
        assert!(all.on_moved(OWNER, BlockId(64), Some(spilled)));
        all.on_written(spilled, false, NOW);
        (all, spilled)
    }

    #[test]
    fn what_could_not_be_written_is_tried_again_after_a_pause_that_doubles() {
        let (mut all, spilled) = unwritten();
        let (mut now, mut pause) = (NOW, SPILL_RETRY_NANOS);
        for _ in 0..10 {
            let early = Instant(now.0 + pause - 1);
            assert!(all.is_unwritten(BlockId(64)) && all.is_stuck(BlockId(64), early));
            assert_eq!(all.retry(10, early, |_| false), []);
            now = now.plus(pause);
            assert!(!all.is_stuck(BlockId(64), now));
            assert_eq!(all.retry(0, now, |_| false), [], "nobody needs room");
            assert_eq!(all.retry(10, now, |block| block == BlockId(64)), [], "it is read there");
            assert_eq!(all.retry(10, now, |_| false), [(spilled, BlockId(64))]);
            assert_eq!((all.block_of(spilled), all.bytes_to_come(), all.has_hope()), (None, 10, true));
            all.check();
            assert_eq!(all.on_written(spilled, false, now), AfterWrite { frees: None, is_dropped: false });
            pause = (2 * pause).min(SPILL_RETRY_NANOS_MAX);
        }
        assert_eq!(pause, SPILL_RETRY_NANOS_MAX);
        let now = now.plus(pause);
        assert_eq!(all.retry(10, now, |_| false), [(spilled, BlockId(64))]);
        let frees = AfterWrite { frees: Some(BlockId(64)), is_dropped: false };
        assert_eq!(all.on_written(spilled, true, now), frees);
        assert!(!all.is_unwritten(BlockId(64)));
        all.check();
    }

    #[test]
    fn writes_that_fail_together_are_one_failure() {
        let (mut all, _) = unwritten();
        let second = all.ask(BlockId(128), &[OWNER], 10, false).expect("it is no copy");
        assert!(all.on_moved(OWNER, BlockId(128), Some(second)));
        all.on_written(second, false, Instant(NOW.0 + 1));
        assert_eq!(all.retry(20, NOW.plus(SPILL_RETRY_NANOS), |_| false).len(), 2);
    }

    #[test]
    fn when_the_disk_is_gone_nothing_is_there_but_what_is_in_memory() {
        let mut all = Residency::default();
        let mut begin = |block| {
            let spilled = all.ask(block, &[OWNER], 10, false).expect("it is no copy");
            assert!(all.on_moved(OWNER, block, Some(spilled)));
            spilled
        };
        let (written, writing, unwanted) = (begin(BlockId(64)), begin(BlockId(128)), begin(BlockId(192)));
        let asked = all.ask(BlockId(256), &[OWNER], 10, false).expect("it is no copy");
        all.on_written(written, true, NOW);
        all.on_freed(unwanted);
        let kept = AfterWrite { frees: None, is_dropped: false };
        let freed = AfterWrite { frees: Some(BlockId(192)), is_dropped: true };
        assert_eq!(all.on_ended(NOW), [(unwanted, freed), (writing, kept)]);
        assert_eq!((all.has(written), all.has(writing)), (Some(false), Some(true)));
        assert_eq!(all.block_of(writing), Some(BlockId(128)));
        all.check();
        // Who answers only now has its value in its block, too.
        assert!(all.on_moved(OWNER, BlockId(256), Some(asked)));
        assert_eq!(all.on_written(asked, false, NOW), kept);
        assert_eq!(all.on_freed(written), kept, "there is nothing to drop");
        all.on_freed(writing);
        all.on_freed(asked);
        assert!(all.is_empty());
    }

    #[test]
    fn who_asks_early_waits_for_the_answer() {
        let mut all = Residency::default();
        let spilled = all.ask(BlockId(64), &[OWNER], 10, false).expect("it is no copy");
        all.wait(OTHER, pull(spilled));
        let stays = AfterAnswer { nowhere: Some(spilled), free: None };
        assert_eq!(all.on_answered(OWNER, BlockId(64)), stays, "it stays where it is");
        assert_eq!(all.take_waiting(spilled), [(OTHER, pull(spilled))]);
        let second = all.ask(BlockId(128), &[OWNER], 10, false).expect("it is no copy");
        assert_ne!(second, spilled, "a number is used once");
        all.wait(OTHER, pull(second));
        assert_eq!(all.on_dead(OTHER), [], "it needs no answer");
        assert_eq!(all.take_waiting(second), []);
        assert_eq!(all.on_dead(OWNER), [AfterAnswer { nowhere: Some(second), free: None }]);
    }

    /// Otherwise its process could take the question for one about the next value in it.
    #[test]
    fn a_block_that_is_freed_meanwhile_is_free_after_the_answer() {
        let mut all = Residency::default();
        assert!(!all.delays(BlockId(64)), "nobody was asked");
        let spilled = all.ask(BlockId(64), &[OWNER], 10, false).expect("it is no copy");
        assert!(all.delays(BlockId(64)));
        let after = AfterAnswer { nowhere: Some(spilled), free: Some(BlockId(64)) };
        assert_eq!(all.on_answered(OWNER, BlockId(64)), after);
        assert!(!all.is_busy(BlockId(64)) && !all.delays(BlockId(64)));
        all.ask(BlockId(64), &[OWNER], 10, false);
        assert!(all.delays(BlockId(64)));
        assert!(matches!(all.on_dead(OWNER)[..], [AfterAnswer { free: Some(BlockId(64)), .. }]));
    }

    #[test]
    fn there_is_no_hope_while_all_is_in_use() {
        let mut all = Residency::default();
        assert_eq!(all.ask(BlockId(64), &[OWNER, OTHER], 10, true), None, "a copy has no number");
        assert!(all.has_hope());
        assert_eq!(all.on_answered(OWNER, BlockId(64)), AfterAnswer::default());
        assert!(all.is_busy(BlockId(64)), "the other one has not answered");
        assert_eq!(all.on_answered(OTHER, BlockId(64)), AfterAnswer::default());
        all.ask(BlockId(64), &[OWNER, OTHER], 10, true);
        assert!(!all.has_hope(), "it was in use just now");
        all.on_room();
        all.on_answered(OWNER, BlockId(64));
        all.on_answered(OTHER, BlockId(64));
        all.on_room();
        all.ask(BlockId(64), &[OWNER], 10, true);
        assert!(all.has_hope(), "something has changed");
    }
}
