//! A channel delivers nothing for a while: a partition between two processes that heals.

use crate::world::{Wake, World};

impl World {
    pub(super) fn stall_a_channel(&mut self) {
        let number = u32::try_from(self.random.below(self.channels.len().max(1))).expect("few channels");
        if self.channels.is_empty() || self.channels.get(number).is_stalled {
            return;
        }
        let nanos = [100_000, 10_000_000, 1_000_000_000][self.random.below(3)];
        let nanos = 1 + self.random.below(nanos) as u64;
        self.trace.send(|| format!("*** channel {number} stalls"));
        self.channels.get_mut(number).is_stalled = true;
        self.wake_in(nanos, Wake::Unstall(number));
    }
}
