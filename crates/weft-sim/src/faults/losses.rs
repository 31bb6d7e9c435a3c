//! What lies in shared memory is lost: owners have it computed again.

use weft_protocol::probes::hit;

use crate::world::World;

impl World {
    pub(super) fn lose_blocks(&mut self) {
        let used = self.blocks.in_use();
        if used.is_empty() {
            return;
        }
        let mut lost = vec![used[self.random.below(used.len())]];
        if self.random.chance(1, 4) {
            hit("several values were lost at once");
            lost.extend(used.iter().take(3));
        }
        self.trace.say(|| format!("*** blocks {lost:?} are lost"));
        self.oracle.losses += 1;
        self.lose(&lost);
    }
}
