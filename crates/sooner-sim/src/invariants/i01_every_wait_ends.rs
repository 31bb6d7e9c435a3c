//! I1: every get and wait returns a value or a typed error. When nothing can happen any more, nobody waits.

use crate::violation::fail;
use crate::world::World;

impl World {
    /// No event is left, and faults are over: every program must have ended.
    pub fn check_everyone_finished(&self) {
        for process in self.processes.running() {
            if let Some(frame) = process.frames.iter().find(|frame| frame.is_stuck()) {
                fail(
                    "I1",
                    format!("{:?} waits for ever: {}\n{}", process.id, frame.describe(), self.describe()),
                );
            }
        }
    }
}
