//! Shared memory: the blocks of a node and their contents. The production allocator gives the addresses, so a
//! block that is freed too early is soon used for another value.

use sooner_wire::BlockId;
use std::collections::{BTreeMap, BTreeSet};

use sooner_store::Arena;

/// Bytes of the simulated memory: large enough that it is never full.
const CAPACITY: u64 = 1 << 30;
/// Bytes of a block.
pub const BLOCK_BYTES: u64 = 4096;

/// See the module.
#[derive(Debug)]
pub struct Blocks {
    arena: Arena,
    /// The file behind the memory; its offsets follow those of the memory.
    file: Arena,
    written: BTreeMap<u64, u64>,
    /// Blocks with states of actors.
    states: BTreeSet<u64>,
}

impl Default for Blocks {
    fn default() -> Self {
        let (arena, file) = (Arena::new(0, CAPACITY), Arena::new(CAPACITY, CAPACITY));
        Self { arena, file, written: BTreeMap::new(), states: BTreeSet::new() }
    }
}

impl Blocks {
    /// A new block.
    pub fn allocate(&mut self) -> u64 {
        let block = self.arena.allocate(BLOCK_BYTES).expect("the store is large");
        self.written.insert(block, 0);
        block
    }

    /// A new block in the file behind the memory.
    pub(super) fn allocate_in_file(&mut self) -> u64 {
        let block = self.file.allocate(BLOCK_BYTES).expect("the file is large");
        self.written.insert(block, 0);
        block
    }

    /// Whether a block is in the file behind the memory.
    #[must_use]
    pub fn is_in_file(block: u64) -> bool {
        block >= CAPACITY
    }

    /// The room in memory that freeing a block makes; each block counts as one.
    pub(super) fn length_in_memory(block: BlockId) -> u64 {
        u64::from(!Self::is_in_file(block.offset()))
    }

    /// Writes what a process stores.
    pub fn write(&mut self, block: u64, payload: u64) {
        self.written.insert(block, payload);
    }

    /// Records that a process has put its actor's state into a block, for the node to keep.
    pub fn record_state(&mut self, block: u64) {
        self.states.insert(block);
    }

    /// Whether a block holds the state of an actor.
    #[must_use]
    pub fn has_state(&self, block: u64) -> bool {
        self.states.contains(&block)
    }

    /// The content of a block; `None` if the block is free.
    #[must_use]
    pub fn read(&self, block: u64) -> Option<u64> {
        self.written.get(&block).copied()
    }

    /// Gives a block back; false if it was free.
    pub fn free(&mut self, block: u64) -> bool {
        self.states.remove(&block);
        self.written.remove(&block).is_some() && (self.arena.free(block) || self.file.free(block))
    }

    /// The blocks in use.
    #[must_use]
    pub fn in_use(&self) -> Vec<u64> {
        self.written.keys().copied().collect()
    }

    /// How many are in use.
    #[must_use]
    pub fn len(&self) -> usize {
        self.written.len()
    }

    /// Whether none is in use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.written.is_empty()
    }
}
