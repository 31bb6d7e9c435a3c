//! How soon a process may replace one that ended: at once, unless that happens again and again.
//!
//! It never reads a clock: an end is recorded first, and dated where processes are started.

use sooner_wire::limits::{RETRY_PAUSE_NANOS, RETRY_PAUSE_NANOS_MAX, START_PAUSE_NANOS_MAX};

use crate::time::Instant;

/// A process that lived this long (nanoseconds) was well: earlier ends do not count any more.
const WELL_NANOS: u64 = 1_000_000_000;

/// How many ends of a ready process one end before that counts as: it will most likely happen again, while a
/// process that worked may have been killed from outside.
const UNREADY: u32 = 10;

/// The longest pause (nanoseconds) after the end of a process that was ready: its callers wait.
const READY_PAUSE_NANOS_MAX: u64 = 100_000_000;

/// The pause (nanoseconds) after this many failures in a row.
#[must_use]
pub(crate) fn pause_after(failures: u32) -> u64 {
    match failures.checked_sub(2) {
        None => 0,
        Some(doublings) => {
            RETRY_PAUSE_NANOS.saturating_mul(1 << doublings.min(30)).min(RETRY_PAUSE_NANOS_MAX)
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    begun: Instant,
    /// Ends of short lives in a row, in units of a process that was ready.
    ends: u32,
    has_ended: bool,
    /// The longest pause after the last end (nanoseconds).
    longest: u64,
    not_before: Instant,
}

impl Pace {
    /// A process ended; `was_ready`: it had become ready. Several that end together count once.
    pub(crate) fn ended(&mut self, was_ready: bool) {
        if was_ready { self.note(1, READY_PAUSE_NANOS_MAX) } else { self.note(UNREADY, u64::MAX) }
    }

    /// A process could not be started: the machine lacks something that may become free at any time.
    pub(crate) fn failed(&mut self) {
        self.note(UNREADY, START_PAUSE_NANOS_MAX);
    }

    fn note(&mut self, ends: u32, longest: u64) {
        if !self.has_ended {
            self.ends = self.ends.saturating_add(ends);
            self.has_ended = true;
            self.longest = longest;
        }
    }

    /// A process is well, whenever it began.
    pub(crate) fn is_well(&mut self) {
        self.ends = 0;
    }

    /// Whether a process may begin now. If so, it counts as begun.
    pub(crate) fn may_begin(&mut self, now: Instant) -> bool {
        if self.has_ended {
            self.has_ended = false;
            if now.since(self.begun) >= WELL_NANOS {
                self.ends = 0;
            }
            self.not_before = now.plus(pause_after(self.ends / UNREADY).min(self.longest));
        }
        let may = self.not_before <= now;
        if may {
            self.begun = now;
        }
        may
    }

    /// A process has begun, some time after it was allowed to.
    pub(crate) fn begins(&mut self, now: Instant) {
        self.begun = now;
    }

    /// When a process may begin, if not at the time of the last question.
    pub(crate) fn next(&self) -> Option<Instant> {
        (self.not_before > self.begun).then_some(self.not_before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sooner_wire::limits::RETRY_PAUSE_NANOS;

    #[test]
    fn a_process_that_never_gets_ready_is_started_ever_later() {
        let mut pace = Pace::default();
        let mut now = Instant(5);
        assert!(pace.may_begin(now));
        let mut pauses = Vec::new();
        for _ in 0..4 {
            pace.ended(false);
            if !pace.may_begin(now) {
                let next = pace.next().expect("later");
                pauses.push(next.since(now) / RETRY_PAUSE_NANOS);
                now = next;
                assert!(pace.may_begin(now));
            } else {
                pauses.push(0);
            }
            assert_eq!(pace.next(), None);
        }
        assert_eq!(pauses, [0, 1, 2, 4]);
    }

    #[test]
    fn one_that_worked_is_replaced_at_once_for_a_while() {
        let mut pace = Pace::default();
        let mut now = Instant(5);
        for _ in 0..19 {
            assert!(pace.may_begin(now));
            pace.ended(true);
        }
        assert!(pace.may_begin(now), "the twentieth");
        pace.ended(true);
        assert!(!pace.may_begin(now));
        for _ in 0..200 {
            let next = pace.next().expect("a pause");
            assert!(next.since(now) <= READY_PAUSE_NANOS_MAX);
            now = next;
            assert!(pace.may_begin(now));
            pace.ended(true);
            assert!(!pace.may_begin(now));
        }
        now = pace.next().expect("a pause");
        assert!(pace.may_begin(now));
        now = now.plus(WELL_NANOS);
        pace.ended(true);
        assert!(pace.may_begin(now), "it was well for long");
    }
}
