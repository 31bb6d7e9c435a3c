//! A node has no room for a value, and moves others elsewhere.

use crate::world::World;

impl World {
    /// Blocks have no length here: each counts as one.
    pub(super) fn fill_a_node(&mut self) {
        let at = self.random.below(self.nodes.len());
        let blocks = 1 + self.random.below(4) as u64;
        self.trace.send(|| format!("*** node {at} has no room for {blocks} blocks"));
        self.relieve(at, blocks);
    }
}
