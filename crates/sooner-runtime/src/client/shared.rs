//! What is behind the core's lock, and what a step leaves to be done without it.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};
use sooner_protocol::time::Instant;
use sooner_protocol::worker::WorkerCore;
use sooner_protocol::worker::action::{Actions, Peer};
use sooner_protocol::worker::tasks::Counts;
use sooner_store::BlockCache;
use sooner_wire::ObjectId;
use sooner_wire::TaskId;
use sooner_wire::message::{GivenBlocks, Location, Message, UnknownBlocks};

use super::Outbox;
use super::local::LocalNode;
use crate::transport::TlsFailure;

/// What a step leaves to be done without the locks.
#[derive(Debug, Default)]
pub(crate) struct Aftermath {
    pub(super) ready: Vec<ObjectId>,
    pub(super) interrupts: Vec<(TaskId, bool)>,
    pub(super) warnings: Vec<String>,
    pub(super) ended_actors: Vec<(TaskId, bool)>,
    pub(super) memory_pressure: Option<bool>,
    pub(super) mistrust: Option<TlsFailure>,
    pub(super) end: Option<String>,
}

impl Aftermath {
    pub(super) fn is_empty(&self) -> bool {
        self.ready.is_empty()
            && self.interrupts.is_empty()
            && self.warnings.is_empty()
            && self.ended_actors.is_empty()
            && self.memory_pressure.is_none()
            && self.mistrust.is_none()
            && self.end.is_none()
    }
}

/// Everything behind the core's lock.
pub(crate) struct Shared {
    pub(crate) core: WorkerCore,
    pub(crate) outbox: Outbox,
    pub(super) actions: Actions,
    pub(super) answers: FxHashMap<u64, Option<Message>>,
    pub(super) cache: BlockCache,
    /// From here on offsets are in the file behind the memory.
    pub(super) memory_bytes: u64,
    /// Blocks with values that this process writes or has written and still has.
    pub(super) written: FxHashSet<u64>,
    pub(super) aftermath: Aftermath,
    /// When the background thread looks next if nobody wakes it; what counts only while it is away. `None`:
    /// not by itself.
    pub(super) looks_at: Option<Instant>,
    /// When a busy sender reads replies again.
    pub(super) next_look: Instant,
    /// What the node has been told of the core's counts.
    pub(super) told: Counts,
    /// Messages to ourselves: an actor that calls itself through its own handle, and everything in local
    /// mode.
    pub(super) loopback: VecDeque<(Peer, Message)>,
    pub(super) local: Option<LocalNode>,
}

impl Shared {
    /// When something is to be done although nothing comes.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        [self.core.next_deadline(), self.outbox.remotes.due()].into_iter().flatten().min()
    }

    /// The background thread is about to be away until then, unless it is woken.
    pub(super) fn looks_next(&mut self) -> Option<Instant> {
        self.looks_at = self.next_deadline();
        self.looks_at
    }

    /// Whether something is due before the background thread looks, which is away.
    pub(super) fn is_due_sooner(&self) -> bool {
        self.next_deadline().is_some_and(|at| self.looks_at.is_none_or(|looks| at < looks))
    }

    /// A block that was kept, for a value of `bytes`.
    pub(super) fn take_kept_block(&mut self, bytes: u64) -> Option<u64> {
        let (offset, _) = self.cache.take(bytes)?;
        self.written.insert(offset);
        Some(offset)
    }

    /// Keeps a block that nobody reads for the next value; what is too much goes back to the node.
    pub(super) fn keep_block(&mut self, location: Location) {
        self.written.remove(&location.offset);
        if location.offset >= self.memory_bytes {
            // The next value is better off in memory.
            return self.outbox.free_blocks(vec![location.offset]);
        }
        let back = self.cache.put(location.offset, sooner_store::Arena::rounded(location.length));
        self.outbox.free_blocks(back);
    }

    /// Which of these blocks are being written here, or kept for reuse.
    pub(super) fn without_value(&self, blocks: &[u64]) -> Vec<u64> {
        let is_here = |block: &u64| self.written.contains(block) || self.cache.contains(*block);
        blocks.iter().copied().filter(is_here).collect()
    }

    /// Tells the node which of these blocks nobody here knows.
    pub(super) fn disown_unknown(&mut self, question: GivenBlocks) {
        let known = self.without_value(&question.offsets);
        let offsets: Vec<u64> = question.offsets.into_iter().filter(|block| !known.contains(block)).collect();
        if !offsets.is_empty() {
            self.outbox.push(Peer::Node, &UnknownBlocks { giver: question.giver, offsets }.into());
        }
    }
}
