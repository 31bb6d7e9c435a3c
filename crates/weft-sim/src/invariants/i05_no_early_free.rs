//! I5: an object's memory is not freed while somebody may read it, and not twice.

use crate::violation::fail;
use crate::world::World;

impl World {
    /// The node frees a block.
    pub fn free_block(&mut self, block: u64) {
        if !self.blocks.free(block) {
            fail("I5", format!("block {block} is freed twice"));
        }
        // Looking at every table costs too much each time; a reader meets its free block sooner or later.
        if self.random.chance(1, 16) {
            self.check_unread(block);
        }
    }

    fn check_unread(&self, block: u64) {
        for process in self.processes.iter().filter(|process| process.is_running()) {
            for (id, record) in process.core.ownership().objects() {
                let lies_there = matches!(
                    record.slot.outcome(),
                    Some(weft_wire::message::Outcome::Stored(location)) if location.offset == block
                );
                if lies_there && record.slot.handles() > 0 && !record.slot.is_freed() {
                    fail("I5", format!("block {block} is freed while {:?} has {id:?} in it", process.id));
                }
            }
        }
    }
}
