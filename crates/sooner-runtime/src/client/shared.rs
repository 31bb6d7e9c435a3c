//! The state behind the core's lock, and what a step leaves to be done after the lock is released.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};
use sooner_protocol::time::Instant;
use sooner_protocol::worker::WorkerCore;
use sooner_protocol::worker::action::{Actions, Peer};
use sooner_protocol::worker::tasks::Counts;
use sooner_store::BlockCache;
use sooner_wire::TaskId;
use sooner_wire::message::{GivenBlocks, Location, Message, Place, UnknownBlocks};
use sooner_wire::{BlockId, ObjectId};

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
    /// Offsets from here on are in the file behind the memory.
    pub(super) memory_bytes: u64,
    /// Blocks of values that this process is writing or has written and still holds.
    pub(super) written: FxHashSet<BlockId>,
    pub(super) aftermath: Aftermath,
    /// When the background thread looks next if no thread wakes it. Counts only while it is away. `None`: it
    /// does not look by itself.
    pub(super) looks_at: Option<Instant>,
    /// When a busy sender reads replies next.
    pub(super) next_look: Instant,
    /// The counts that the node has been sent.
    pub(super) told: Counts,
    /// Messages to this process itself: an actor that calls itself through its own handle, and all messages
    /// in local mode.
    pub(super) loopback: VecDeque<(Peer, Message)>,
    pub(super) local: Option<LocalNode>,
}

impl Shared {
    /// When there is work to do although no message comes.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        [self.core.next_deadline(), self.outbox.remotes.due()].into_iter().flatten().min()
    }

    /// The background thread is about to be away until the returned time, unless it is woken.
    pub(super) fn looks_next(&mut self) -> Option<Instant> {
        self.looks_at = self.next_deadline();
        self.looks_at
    }

    /// Whether a deadline is before the next look of the background thread, which is away.
    pub(super) fn is_due_sooner(&self) -> bool {
        self.next_deadline().is_some_and(|at| self.looks_at.is_none_or(|looks| at < looks))
    }

    /// A block from the cache, for a value of `bytes`.
    pub(super) fn take_kept_block(&mut self, bytes: u64) -> Option<BlockId> {
        let (block, _) = self.cache.take(bytes)?;
        self.written.insert(block);
        Some(block)
    }

    /// Keeps a block without readers for the next value; what exceeds the cache goes back to the node.
    pub(super) fn keep_block(&mut self, location: Location) {
        let Some(block) = location.place().block() else { return };
        self.written.remove(&block);
        if block.offset() >= self.memory_bytes {
            // The next value is better off in memory.
            return self.outbox.free_blocks(vec![block]);
        }
        let back = self.cache.put(block, sooner_store::Arena::rounded(location.length));
        self.outbox.free_blocks(back);
    }

    /// Which of these blocks this process is writing, holds, or keeps for reuse.
    pub(super) fn without_value(&self, places: &[Place]) -> Vec<BlockId> {
        let is_here = |block: &BlockId| self.written.contains(block) || self.cache.contains(*block);
        places.iter().filter_map(|place| place.block()).filter(is_here).collect()
    }

    /// Reports to the node which of these blocks this process does not know.
    pub(super) fn disown_unknown(&mut self, question: GivenBlocks) {
        let GivenBlocks { giver, mut places } = question;
        let known = self.without_value(&places);
        places.retain(|place| !place.block().is_some_and(|block| known.contains(&block)));
        if !places.is_empty() {
            self.outbox.push(Peer::Node, &UnknownBlocks { giver, places }.into());
        }
    }
}
