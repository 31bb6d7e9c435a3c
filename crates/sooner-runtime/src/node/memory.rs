//! What a worker holds of the memory, when one is stopped to free some, and whom the kernel ended.
//!
//! A worker holds its anonymous pages. Shared memory, above all that of the object store, is not counted
//! against whoever has it mapped: its end would free none of it.
//!
//! It never decides who is stopped, and what cannot be read is not known, which is no error.

use std::fs;

pub use sooner_protocol::node::workers::memory::Limited;
use sooner_protocol::node::workers::memory::Usage;
use sooner_protocol::time::Instant;

use crate::machine::{Level, field};

/// How long somebody whom the kernel ended may be a worker whose end is not known yet (nanoseconds).
const CLAIM_NANOS: u64 = 2_000_000_000;

/// When workers are stopped to free memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MemoryOptions {
    /// From which share of the memory on; 0, and 1 or more, for never.
    pub threshold: f64,
    /// For tests: workers may hold so much together (bytes), whatever the machine has.
    pub stated: Option<u64>,
    /// Whose memory is limited by control groups, where that is possible.
    pub limited: Limited,
}

impl MemoryOptions {
    /// No worker is ever stopped, and nothing is measured.
    pub const OFF: Self = Self { threshold: 0.0, stated: None, limited: Limited::Nobody };

    /// Whether anything is measured.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.threshold > 0.0 && self.threshold < 1.0
    }

    /// How full this much memory is.
    #[must_use]
    pub fn usage(&self, level: Level, of: &str) -> Usage {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let threshold = (level.total as f64 * self.threshold) as u64;
        Usage { used: level.used, total: level.total, threshold, of: of.to_owned() }
    }
}

/// Processes that the kernel ended for want of memory: a worker that was killed shortly after may be one of
/// them.
///
/// The kernel tells how many there were and not whom, so each worker that was killed stands for one.
#[derive(Debug)]
pub struct Kills {
    counted: u64,
    unclaimed: u64,
    until: Instant,
}

impl Kills {
    /// There were so many before.
    #[must_use]
    pub fn new(counted: u64) -> Self {
        Self { counted, unclaimed: 0, until: Instant::default() }
    }

    /// There are so many now.
    pub fn see(&mut self, counted: u64, time: Instant) {
        if time >= self.until {
            self.unclaimed = 0;
        }
        if counted > self.counted {
            self.unclaimed = self.unclaimed.saturating_add(counted - self.counted);
            self.until = time.plus(CLAIM_NANOS);
        }
        self.counted = counted;
    }

    /// Whether one of them may be a worker whose end is not known yet, and whose memory not free.
    #[must_use]
    pub fn is_one_dying(&self, time: Instant) -> bool {
        self.unclaimed > 0 && time < self.until
    }

    /// A worker was killed, and not by its node: whether it was one of them.
    pub fn claim(&mut self) -> bool {
        let is_one = self.unclaimed > 0;
        self.unclaimed = self.unclaimed.saturating_sub(1);
        is_one
    }
}

/// What a process holds (bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holding {
    /// Its anonymous pages.
    pub now: u64,
    /// The most it held, if what it shares with others was then as it is now.
    pub peak: u64,
}

/// What a process holds; `None` if it is gone.
#[must_use]
pub fn holding(pid: u32) -> Option<Holding> {
    parse_holding(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

fn parse_holding(status: &str) -> Option<Holding> {
    let resident = field(status, "VmRSS")?;
    // A kernel that does not tell them apart counts them all.
    let now = field(status, "RssAnon").unwrap_or(resident);
    let shared = resident.saturating_sub(now);
    let peak = field(status, "VmHWM").map_or(now, |peak| peak.saturating_sub(shared));
    Some(Holding { now, peak: peak.max(now) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tpython\nVmHWM:\t  900 kB\nVmRSS:\t  500 kB\nRssAnon:\t  300 kB\n\
                          RssFile:\t  150 kB\nRssShmem:\t   50 kB\n";

    #[test]
    fn shared_pages_are_nobodys() {
        assert_eq!(parse_holding(STATUS), Some(Holding { now: 300 << 10, peak: 700 << 10 }));
        let old = "VmHWM:\t 9 kB\nVmRSS:\t 5 kB\n";
        assert_eq!(parse_holding(old), Some(Holding { now: 5 << 10, peak: 9 << 10 }));
        assert_eq!(parse_holding("State:\tZ (zombie)\n"), None, "it has no memory any more");
    }

    #[test]
    fn this_process_holds_something() {
        let own = holding(std::process::id()).expect("it lives");
        assert!(own.now > 0 && own.now <= own.peak);
    }

    #[test]
    fn each_end_by_the_kernel_is_one_workers() {
        let mut kills = Kills::new(7);
        kills.see(7, Instant(1));
        assert!(!kills.claim(), "nothing was ended since");
        kills.see(9, Instant(2));
        kills.see(9, Instant(3));
        assert!(kills.is_one_dying(Instant(3)) && !kills.is_one_dying(Instant(2 + CLAIM_NANOS)));
        assert_eq!([kills.claim(), kills.claim(), kills.claim()], [true, true, false]);
        assert!(!kills.is_one_dying(Instant(3)));
        kills.see(10, Instant(4));
        kills.see(10, Instant(4 + CLAIM_NANOS));
        assert!(!kills.claim(), "that was somebody else");
    }
}
