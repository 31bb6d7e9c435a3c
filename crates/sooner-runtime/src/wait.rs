//! How a thread waits for a socket: a short yield-spin, then it blocks.
//!
//! Waking a halted virtual CPU costs about 35 us each way on the target machines. So a thread that expects a
//! reply soon polls for up to 50 us before it blocks. It yields between polls, because the replying process
//! may need this very core. On a loaded machine a yield gives away a whole time slice; so a yield that takes
//! long switches spinning off for a while, in proportion (`docs/adr/0003`).

use sooner_protocol::time::Instant;

use crate::clock::now;

/// How long to poll before blocking (nanoseconds).
const SPIN_NANOS: u64 = 50_000;
/// A yield that takes longer than this (nanoseconds) gave the core away.
const SLOW_YIELD_NANOS: u64 = 100_000;
/// A slow yield switches spinning off for so many times its duration: at most a seventeenth of the time is
/// lost to slow yields.
const PAUSE_FACTOR: u64 = 16;
/// Longest time without spinning (nanoseconds).
const PAUSE_NANOS_MAX: u64 = 1_000_000_000;

/// The state of one waiter.
#[derive(Debug, Default)]
pub struct Spinner {
    off_until: Instant,
}

impl Spinner {
    /// Calls `look` until it is true or the time for looking is over. True if it became true.
    pub fn spin(&mut self, mut look: impl FnMut() -> bool) -> bool {
        let start = now();
        if start < self.off_until {
            return false;
        }
        let mut last = start;
        loop {
            if look() {
                return true;
            }
            rustix::thread::sched_yield();
            let time = now();
            if time.since(last) > SLOW_YIELD_NANOS {
                self.pause(time, time.since(last));
                return look();
            }
            if time.since(start) > SPIN_NANOS {
                return false;
            }
            last = time;
        }
    }

    fn pause(&mut self, time: Instant, lost: u64) {
        self.off_until = time.plus((PAUSE_FACTOR * lost).min(PAUSE_NANOS_MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stops_when_the_condition_holds_and_when_it_does_not() {
        let mut spinner = Spinner::default();
        let mut looks = 0;
        spinner.spin(|| {
            looks += 1;
            looks == 3
        });
        assert!(looks >= 1);
        assert!(!spinner.spin(|| false));
    }

    #[test]
    fn after_a_slow_yield_it_pauses_in_proportion() {
        let time = Instant(1_000_000_000);
        let mut spinner = Spinner::default();
        spinner.pause(time, 200_000);
        assert_eq!(spinner.off_until, time.plus(3_200_000));
        spinner.pause(time, 10_000_000_000);
        assert_eq!(spinner.off_until, time.plus(PAUSE_NANOS_MAX));
    }

    #[test]
    fn while_it_pauses_it_does_not_look() {
        let mut spinner = Spinner { off_until: Instant(u64::MAX) };
        assert!(!spinner.spin(|| panic!("it looked")));
    }
}
