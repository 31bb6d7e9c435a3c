//! What lies in shared memory is lost: owners have it computed again.

use weft_protocol::probes::hit;

use crate::program::Frame;
use crate::world::{DRIVER, World};

impl World {
    pub(super) fn lose_blocks(&mut self) {
        let used = self.node(DRIVER).blocks.in_use();
        if used.is_empty() {
            return;
        }
        let mut lost = vec![used[self.random.below(used.len())]];
        if self.random.chance(1, 4) {
            hit("several values were lost at once");
            lost.extend(used.iter().take(3));
        }
        let running = self.processes.running().flat_map(|process| &process.frames);
        if running.flat_map(Frame::blocks).any(|block| lost.contains(&block)) {
            hit("a value was lost while a task had it as an argument");
        }
        self.trace.say(|| format!("*** blocks {lost:?} are lost"));
        self.oracle.losses += 1;
        self.lose(DRIVER, &lost);
    }
}
