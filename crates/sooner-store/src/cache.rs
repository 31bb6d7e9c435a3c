//! Blocks that a process keeps after freeing them, so that it can create the next value in warm pages without
//! asking the node.
//!
//! Bounded by [`BLOCK_CACHE_BYTES`]; the oldest blocks go first. A block serves a value that needs at least
//! half of it, so that at most half of the cached memory is wasted by reuse.

use std::collections::VecDeque;

use sooner_wire::BlockId;
use sooner_wire::limits::BLOCK_CACHE_BYTES;

/// See the module.
#[derive(Debug, Default)]
pub struct BlockCache {
    /// Each with its size, oldest first.
    blocks: VecDeque<(BlockId, u64)>,
    bytes: u64,
    limit: u64,
}

impl BlockCache {
    /// A cache that keeps at most a sixteenth of the store, and never more than [`BLOCK_CACHE_BYTES`].
    #[must_use]
    pub fn new(store_bytes: u64) -> Self {
        Self { limit: BLOCK_CACHE_BYTES.min(store_bytes / 16), ..Self::default() }
    }

    /// The longest prefix of these sizes whose blocks fit into half of the cache.
    #[must_use]
    pub fn within<'a>(&self, sizes: &'a [u64]) -> &'a [u64] {
        let mut left = self.limit / 2;
        let fits = |size: &&u64| left.checked_sub(**size).map(|rest| left = rest).is_some();
        &sizes[..sizes.iter().take_while(fits).count()]
    }

    /// Takes a block for a value of `bytes`. Gives its size as well.
    pub fn take(&mut self, bytes: u64) -> Option<(BlockId, u64)> {
        let fits = |size: u64| size >= bytes && size / 2 <= bytes;
        let at = self.blocks.iter().rposition(|(_, size)| fits(*size))?;
        let (block, size) = self.blocks.remove(at)?;
        self.bytes -= size;
        Some((block, size))
    }

    /// Keeps a block. Returns blocks that must go back to the node in exchange.
    pub fn put(&mut self, block: BlockId, size: u64) -> Vec<BlockId> {
        self.blocks.push_back((block, size));
        self.bytes += size;
        let mut out = Vec::new();
        while self.bytes > self.limit {
            let Some((block, size)) = self.blocks.pop_front() else { break };
            self.bytes -= size;
            out.push(block);
        }
        out
    }

    /// Whether a block is kept.
    #[must_use]
    pub fn contains(&self, block: BlockId) -> bool {
        self.blocks.iter().any(|(kept, _)| *kept == block)
    }

    /// Empties the cache; returns its blocks.
    pub fn clear(&mut self) -> Vec<BlockId> {
        self.bytes = 0;
        self.blocks.drain(..).map(|(block, _)| block).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_block_serves_the_next_value_of_its_size() {
        let mut cache = BlockCache::new(1 << 30);
        assert!(cache.put(BlockId(4096), 8192).is_empty());
        assert_eq!(cache.take(9000), None, "too small");
        assert_eq!(cache.take(1000), None, "would waste too much");
        assert!(cache.contains(BlockId(4096)));
        assert_eq!(cache.take(8000), Some((BlockId(4096), 8192)));
        assert!(!cache.contains(BlockId(4096)));
        assert_eq!(cache.take(8000), None);
    }

    #[test]
    fn what_is_asked_for_ahead_is_a_part_of_what_is_kept() {
        let cache = BlockCache::new(16 * 100);
        assert_eq!(cache.within(&[20, 20, 20, 1]), [20, 20]);
        assert_eq!(cache.within(&[51, 1]), [0; 0]);
        assert_eq!(cache.within(&[u64::MAX]), [0; 0]);
    }

    #[test]
    fn the_bound_holds() {
        let mut cache = BlockCache::new(16 * 100);
        assert!(cache.put(BlockId(0), 60).is_empty());
        assert_eq!(cache.put(BlockId(60), 60), [BlockId(0)]);
        assert_eq!(cache.put(BlockId(200), 1000), [BlockId(60), BlockId(200)]);
        assert!(cache.clear().is_empty());
    }
}
