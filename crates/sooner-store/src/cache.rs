//! Blocks that a process keeps after freeing them, so that it can create the next value in warm pages without
//! asking the node.
//!
//! Bounded by [`BLOCK_CACHE_BYTES`]; the oldest blocks go first. A block serves a value that needs at least
//! half of it, so that at most half of the cached memory is wasted by reuse.

use std::collections::VecDeque;

use sooner_wire::limits::BLOCK_CACHE_BYTES;

/// See the module.
#[derive(Debug, Default)]
pub struct BlockCache {
    /// Offset and size, oldest first.
    blocks: VecDeque<(u64, u64)>,
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

    /// Takes a block for a value of `bytes`.
    pub fn take(&mut self, bytes: u64) -> Option<(u64, u64)> {
        let fits = |size: u64| size >= bytes && size / 2 <= bytes;
        let at = self.blocks.iter().rposition(|(_, size)| fits(*size))?;
        let block = self.blocks.remove(at)?;
        self.bytes -= block.1;
        Some(block)
    }

    /// Keeps a block. Returns blocks that must go back to the node in exchange.
    pub fn put(&mut self, offset: u64, size: u64) -> Vec<u64> {
        self.blocks.push_back((offset, size));
        self.bytes += size;
        let mut out = Vec::new();
        while self.bytes > self.limit {
            let Some((offset, size)) = self.blocks.pop_front() else { break };
            self.bytes -= size;
            out.push(offset);
        }
        out
    }

    /// Whether a block is kept.
    #[must_use]
    pub fn contains(&self, offset: u64) -> bool {
        self.blocks.iter().any(|(kept, _)| *kept == offset)
    }

    /// Empties the cache; returns its blocks.
    pub fn clear(&mut self) -> Vec<u64> {
        self.bytes = 0;
        self.blocks.drain(..).map(|(offset, _)| offset).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_block_serves_the_next_value_of_its_size() {
        let mut cache = BlockCache::new(1 << 30);
        assert!(cache.put(4096, 8192).is_empty());
        assert_eq!(cache.take(9000), None, "too small");
        assert_eq!(cache.take(1000), None, "would waste too much");
        assert!(cache.contains(4096));
        assert_eq!(cache.take(8000), Some((4096, 8192)));
        assert!(!cache.contains(4096));
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
        assert!(cache.put(0, 60).is_empty());
        assert_eq!(cache.put(60, 60), [0]);
        assert_eq!(cache.put(200, 1000), [60, 200]);
        assert!(cache.clear().is_empty());
    }
}
