//! Values in shared memory are lost; owners have them computed again.

use sooner_protocol::probes::hit;

use crate::program::Frame;
use crate::world::{World, node_at, number_of};

impl World {
    pub(super) fn lose_blocks(&mut self) {
        // A single node needs no draw.
        let at = if self.nodes.len() > 1 { self.random.below(self.nodes.len()) } else { 0 };
        let used = self.nodes[at].blocks.in_use();
        if used.is_empty() {
            return;
        }
        let mut lost = vec![used[self.random.below(used.len())]];
        if self.random.chance(1, 4) {
            hit("several values were lost at once");
            lost.extend(used.iter().take(3));
        }
        // Nodes do not lose the states of actors that they keep, nor a state that is still on its way to its
        // node, nor a block that an actor's process keeps for the next state before it learns of the loss.
        lost.retain(|block| !self.nodes[at].blocks.has_state(*block) && !self.is_for_state(at, *block));
        if lost.is_empty() {
            return;
        }
        let here = self.processes.running().filter(|process| node_at(number_of(process.id)) == at);
        if here.flat_map(|process| &process.frames).flat_map(Frame::blocks).any(|block| lost.contains(&block))
        {
            hit("a value was lost while a task had it as an argument");
        }
        self.trace.send(|| format!("*** blocks {lost:?} of node {at} are lost"));
        self.oracle.losses += 1;
        self.lose(at, &lost);
    }

    /// Whether the process of an actor on a node has a block for its next value, which may be a state.
    fn is_for_state(&self, at: usize, block: u64) -> bool {
        let here = self.processes.running().filter(|process| node_at(number_of(process.id)) == at);
        let mut actors = here.filter(|process| process.instance.is_some());
        actors.any(|process| process.cache.iter().any(|kept| kept.offset() == block))
    }
}
