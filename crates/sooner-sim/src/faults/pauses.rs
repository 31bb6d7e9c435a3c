//! Processes are stopped for a while, as by SIGSTOP: nothing is lost, and everything is late.

use crate::plan::Fault;
use crate::world::{Wake, World};

impl World {
    pub(super) fn pause_a_process(&mut self) {
        let Some(number) = self.some_worker() else { return };
        if self.process(number).is_paused {
            return;
        }
        let mut nanos = [1_000_000, 100_000_000, 180_000_000_000][self.random.below(3)];
        if self.plan.breaks(Fault::Cuts) || self.nodes.len() > 1 {
            // A longer pause exceeds a session's patience with a cut: the session would end although both
            // processes live. The explorer covers that.
            nanos = nanos.min(1_000_000_000);
        }
        let nanos = 1 + self.random.below(nanos) as u64;
        self.trace.send(|| format!("*** {number} is stopped"));
        self.process_mut(number).is_paused = true;
        self.wake_in(nanos, Wake::Resume(number));
    }
}
