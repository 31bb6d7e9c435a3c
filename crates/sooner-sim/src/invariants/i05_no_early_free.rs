//! I5: an object's memory is not freed while somebody may read it, and not twice.

use crate::violation::fail;
use crate::world::{Blocks, World, node_at, number_of};

impl World {
    /// A node frees a block.
    pub fn free_block(&mut self, at: usize, block: u64) {
        if !self.nodes[at].blocks.free(block) {
            fail("I5", format!("block {block} is freed twice"));
        }
        if !Blocks::is_in_file(block) {
            self.nodes[at].stuck.on_freed();
        }
        // Checking every table costs too much each time; a reader meets its free block sooner or later.
        if self.random.chance(1, 16) {
            self.check_unread(at, block);
        }
    }

    fn check_unread(&self, at: usize, block: u64) {
        let here = self.processes.running().filter(|process| node_at(number_of(process.id)) == at);
        for process in here {
            for (id, record) in process.core.ownership().objects() {
                let lies_there = matches!(
                    record.slot.outcome().as_deref(),
                    Some(sooner_wire::message::Outcome::Stored(location)) if location.offset == block
                );
                if lies_there && record.slot.handles() > 0 && !record.slot.is_freed() {
                    fail("I5", format!("block {block} is freed while {:?} has {id:?} in it", process.id));
                }
            }
        }
    }
}
