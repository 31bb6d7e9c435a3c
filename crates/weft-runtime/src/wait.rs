//! How a thread waits for a socket: a short yield-spin, then it blocks.
//!
//! Waking a halted virtual CPU costs about 35 us each way on the target machines, so a thread that expects a reply
//! soon looks again for up to 50 us before it blocks, and yields between looks, because the one who replies may need
//! this very core. On a loaded machine a yield gives away a whole slice; a yield that takes long therefore switches
//! spinning off for a while, doubling (`docs/adr/0003`).

use weft_protocol::time::Instant;

use crate::clock::now;

/// How long to look again before blocking (nanoseconds).
const SPIN_NANOS: u64 = 50_000;
/// A yield that takes longer than this (nanoseconds) gave the core away.
const SLOW_YIELD_NANOS: u64 = 100_000;
/// First time without spinning after a slow yield (nanoseconds).
const BACK_OFF_NANOS: u64 = 20_000_000;
/// Longest time without spinning (nanoseconds).
const BACK_OFF_NANOS_MAX: u64 = 1_600_000_000;

/// A slow yield within so many times the last back-off shows that the machine is still loaded.
const RELAPSE_FACTOR: u64 = 4;

/// The state of one waiter.
#[derive(Debug, Default)]
pub struct Spinner {
    off_until: Instant,
    back_off: u64,
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
                self.back_off_from(time);
                return look();
            }
            if time.since(start) > SPIN_NANOS {
                return false;
            }
            last = time;
        }
    }

    /// A slow yield soon after the last one doubles the time; one after a long good time is an accident.
    fn back_off_from(&mut self, time: Instant) {
        let is_again = time.since(self.off_until) < RELAPSE_FACTOR * self.back_off;
        self.back_off = if is_again { (self.back_off * 2).min(BACK_OFF_NANOS_MAX) } else { BACK_OFF_NANOS };
        self.off_until = time.plus(self.back_off);
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
    fn slow_yields_in_a_row_switch_it_off_for_longer_and_rare_ones_do_not() {
        let mut spinner = Spinner::default();
        let mut time = Instant(1_000_000_000);
        let mut offs = Vec::new();
        for _ in 0..10 {
            spinner.back_off_from(time);
            offs.push(spinner.back_off / BACK_OFF_NANOS);
            time = spinner.off_until.plus(1_000_000);
        }
        assert_eq!(offs, [1, 2, 4, 8, 16, 32, 64, 80, 80, 80]);
        time = time.plus(10 * BACK_OFF_NANOS_MAX);
        spinner.back_off_from(time);
        assert_eq!(spinner.back_off, BACK_OFF_NANOS);
    }
}
