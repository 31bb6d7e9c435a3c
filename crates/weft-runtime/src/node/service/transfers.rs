//! Room for values of other nodes, and where they come from.

use weft_protocol::node::{NodeAction, NodeActions};
use weft_protocol::objects::{Fetching, StreamEnd};
use weft_wire::ObjectId;

use super::Service;
use crate::clock::now;

impl Service {
    /// Finds a block for a value of another node.
    pub(super) fn allocate_for(&mut self, object: ObjectId, bytes: u64, out: &mut NodeActions) {
        match self.arena.allocate(bytes) {
            Some(block) => self.core.on_block(object, block, out),
            None => {
                self.trim_caches(out);
                self.core.on_no_block(object, self.arena.capacity(), now(), out);
            }
        }
    }

    /// This node is alone: there is no other one that a value could come from.
    pub(super) fn fetch(&mut self, fetching: &Fetching, out: &mut NodeActions) {
        self.core.on_stream_end(fetching.object, fetching.attempt, StreamEnd::NotThere, out);
    }

    /// Room may be kept for reuse by processes.
    pub(super) fn trim_caches(&self, out: &mut NodeActions) {
        for (worker, token) in &self.tokens {
            if self.connections.get(token).is_some_and(|c| c.is_greeted) {
                let trim = weft_wire::message::TrimBlocks {};
                out.push(NodeAction::Send(*worker, Box::new(trim.into())));
            }
        }
    }
}
