//! What those who wait for a thread at spill files know of it, and it of them: whether the disk answers, and
//! whether anything is still wanted.
//!
//! A disk that hangs holds up the thread that uses it and nobody else. So nobody asks that thread: it counts
//! each answer of the disk, and looks before each question whether it is still to be asked. Neither side ever
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
    /// Nothing is written or read any more, but for what the disk was asked for already.
    pub fn end(&self) {
        self.is_ending.store(true, Ordering::Release);
    }

    /// How often the disk has answered. If that stays the same while something is to be done, the disk hangs.
    #[must_use]
    pub fn beats(&self) -> u64 {
        self.beats.load(Ordering::Acquire)
    }

    /// The disk has answered.
    pub fn beat(&self) {
        self.beats.fetch_add(1, Ordering::AcqRel);
    }

    /// Looks whether the disk is to be asked for more.
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
