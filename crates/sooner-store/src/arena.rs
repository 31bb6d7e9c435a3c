//! Which parts of a node's shared memory are in use: a best-fit allocator over byte ranges.
//!
//! Among equally good gaps the lowest is taken, so that a program which frees and creates values of one size
//! gets the same warm pages again. Freed neighbours are joined at once.
//!
//! Invariants (checked by the property test):
//! - AR1: gaps and blocks cover the arena without overlap.
//! - AR2: no two gaps touch.

use std::collections::{BTreeMap, BTreeSet};

/// Blocks are multiples of this (bytes): a page, so that no two values share a page.
const GRAIN: u64 = 4096;

/// See the module.
#[derive(Debug)]
pub struct Arena {
    gaps: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
    blocks: BTreeMap<u64, u64>,
    capacity: u64,
    used: u64,
}

impl Arena {
    /// An arena over `capacity` bytes from offset `start`.
    #[must_use]
    pub fn new(start: u64, capacity: u64) -> Self {
        let mut arena = Self {
            gaps: BTreeMap::new(),
            by_size: BTreeSet::new(),
            blocks: BTreeMap::new(),
            capacity,
            used: 0,
        };
        arena.add_gap(start, capacity);
        arena
    }

    fn add_gap(&mut self, offset: u64, length: u64) {
        if length > 0 {
            self.gaps.insert(offset, length);
            self.by_size.insert((length, offset));
        }
    }

    fn remove_gap(&mut self, offset: u64, length: u64) {
        self.gaps.remove(&offset);
        self.by_size.remove(&(length, offset));
    }

    /// Bytes a block for `bytes` takes.
    #[must_use]
    pub fn rounded(bytes: u64) -> u64 {
        bytes.max(1).next_multiple_of(GRAIN)
    }

    /// Takes a block, or `None` when no gap is large enough.
    pub fn allocate(&mut self, bytes: u64) -> Option<u64> {
        let wanted = Self::rounded(bytes);
        let (length, offset) = *self.by_size.range((wanted, 0)..).next()?;
        self.remove_gap(offset, length);
        self.add_gap(offset + wanted, length - wanted);
        self.blocks.insert(offset, wanted);
        self.used += wanted;
        Some(offset)
    }

    /// Gives a block back. False if no block begins at this offset.
    pub fn free(&mut self, offset: u64) -> bool {
        let Some(length) = self.blocks.remove(&offset) else { return false };
        self.used -= length;
        let (mut start, mut end) = (offset, offset + length);
        if let Some((&before, &size)) = self.gaps.range(..offset).next_back()
            && before + size == offset
        {
            self.remove_gap(before, size);
            start = before;
        }
        if let Some(&size) = self.gaps.get(&end) {
            self.remove_gap(end, size);
            end += size;
        }
        self.add_gap(start, end - start);
        true
    }

    /// Whether `bytes` bytes from this offset on are within the block that begins there.
    #[must_use]
    pub fn holds(&self, offset: u64, bytes: u64) -> bool {
        self.blocks.get(&offset).is_some_and(|length| bytes <= *length)
    }

    /// Bytes of the block at this offset; 0 if none begins there.
    #[must_use]
    pub fn length(&self, offset: u64) -> u64 {
        self.blocks.get(&offset).copied().unwrap_or(0)
    }

    /// Length of the gap that begins at this offset; 0 if none begins there.
    #[must_use]
    pub fn gap_at(&self, offset: u64) -> u64 {
        self.gaps.get(&offset).copied().unwrap_or(0)
    }

    /// Offset and length of each gap, in order.
    pub fn gaps(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> {
        self.gaps.iter().map(|(offset, length)| (*offset, *length))
    }

    /// Bytes in blocks.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Bytes in all.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.capacity
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(arena: &Arena) {
        let mut parts: Vec<(u64, u64, bool)> = arena.gaps.iter().map(|(o, l)| (*o, *l, true)).collect();
        parts.extend(arena.blocks.iter().map(|(o, l)| (*o, *l, false)));
        parts.sort_unstable();
        let mut at = 4096;
        let mut after_gap = false;
        for (offset, length, is_gap) in parts {
            assert_eq!(offset, at, "AR1: no overlap and no hole");
            assert!(!(is_gap && after_gap), "AR2: gaps are joined");
            at += length;
            after_gap = is_gap;
        }
        assert_eq!(at, 4096 + arena.capacity());
        assert_eq!(arena.used(), arena.blocks.values().sum::<u64>());
    }

    #[test]
    fn the_same_pages_come_back() {
        let mut arena = Arena::new(4096, 1 << 20);
        let first = arena.allocate(10_000).expect("room");
        assert!(arena.free(first));
        assert!(!arena.holds(first, 10_000), "it is free");
        assert_eq!(arena.allocate(10_000), Some(first));
        assert!(!arena.free(12_345), "no block begins there");
        assert!(arena.holds(first, 12_288) && !arena.holds(first, 12_289) && !arena.holds(first + 4096, 1));
        assert_eq!(arena.allocate(2 << 20), None);
    }

    proptest! {
        #[test]
        fn any_order_of_use_keeps_the_arena_whole(steps in proptest::collection::vec((any::<bool>(), 1u64..60_000, any::<usize>()), 0..200)) {
            let mut arena = Arena::new(4096, 1 << 20);
            let mut held = Vec::new();
            for (take, bytes, which) in steps {
                if take {
                    held.extend(arena.allocate(bytes));
                } else if !held.is_empty() {
                    let offset = held.swap_remove(which % held.len());
                    prop_assert!(arena.free(offset));
                }
                check(&arena);
            }
        }
    }
}
