//! What a spill thread and those who wait for it know of each other: whether the disk answers, and whether
//! anything is still wanted.
//!
//! A disk that hangs holds up only the thread that uses it. So no other thread calls into that one: it counts
//! each answer of the disk, and checks before each request whether that is still wanted. Neither side ever
//! waits here.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::SpillError;

/// See the module.
#[derive(Debug, Default)]
pub struct SpillPulse {
    is_ending: AtomicBool,
    beats: AtomicU64,
}

impl SpillPulse {
    /// Stops all writing and reading, but for requests that the disk already has.
    pub fn end(&self) {
        self.is_ending.store(true, Ordering::Release);
    }

    /// How often the disk has answered. If this does not change while there is work, the disk hangs.
    #[must_use]
    pub fn beats(&self) -> u64 {
        self.beats.load(Ordering::Acquire)
    }

    /// Counts an answer of the disk.
    pub fn beat(&self) {
        self.beats.fetch_add(1, Ordering::AcqRel);
    }

    /// Checks that the disk may be asked for more.
    ///
    /// # Errors
    /// [`SpillError::Ending`].
    pub fn check(&self) -> Result<(), SpillError> {
        if self.is_ending.load(Ordering::Acquire) { Err(SpillError::Ending) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_the_end_nothing_is_asked_and_answers_still_count() {
        let pulse = SpillPulse::default();
        assert_eq!(pulse.check(), Ok(()));
        pulse.beat();
        pulse.end();
        assert_eq!(pulse.check(), Err(SpillError::Ending));
        pulse.beat();
        assert_eq!(pulse.beats(), 2);
    }
}
