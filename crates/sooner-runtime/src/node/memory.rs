//! The memory of workers: how much each holds, when one is stopped to free some, and which the kernel killed.
//!
//! A worker holds its anonymous pages. Shared memory, above all that of the object store, is not charged to
//! the processes that map it: their end would free none of it.
//!
//! It never decides which worker is stopped. What cannot be read is unknown, which is no error.

use std::fs;

pub use sooner_protocol::node::workers::memory::Limited;
use sooner_protocol::node::workers::memory::Usage;
use sooner_protocol::time::Instant;

use crate::machine::{Level, field};

/// How long a kill by the kernel may belong to a worker whose end is not known yet (nanoseconds).
const CLAIM_NANOS: u64 = 2_000_000_000;

/// When workers are stopped to free memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MemoryOptions {
    /// Share of the memory from which on workers are stopped; 0, and 1 or more: never.
    pub threshold: f64,
    /// For tests: how much workers may hold together (bytes), instead of the machine's memory.
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

/// Counts processes that the kernel killed for want of memory: a worker that was killed shortly after may be
/// one of them.
///
/// The kernel reports how many it killed, not which. So each killed worker uses up one of the count.
#[derive(Debug)]
pub struct Kills {
    counted: u64,
    unclaimed: u64,
    until: Instant,
}

impl Kills {
    /// `counted` kills came before.
    #[must_use]
    pub fn new(counted: u64) -> Self {
        Self { counted, unclaimed: 0, until: Instant::default() }
    }

    /// The kernel has counted so many kills by now.
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

    /// Whether a kill may belong to a worker whose end is not known yet, and whose memory is not free.
    #[must_use]
    pub fn is_one_dying(&self, time: Instant) -> bool {
        self.unclaimed > 0 && time < self.until
    }

    /// A worker was killed, not by its node: whether by the kernel. Uses up one kill.
    pub fn claim(&mut self) -> bool {
        let is_one = self.unclaimed > 0;
        self.unclaimed = self.unclaimed.saturating_sub(1);
        is_one
    }
}

/// Memory of a process (bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holding {
    /// Its anonymous pages.
    pub now: u64,
    /// The most pages it held, assuming that it shared as many then as now.
    pub peak: u64,
}

/// Memory of a process; `None` if it has ended.
#[must_use]
pub fn holding(pid: u32) -> Option<Holding> {
    parse_holding(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

fn parse_holding(status: &str) -> Option<Holding> {
    let resident = field(status, "VmRSS")?;
    // A kernel that does not report anonymous pages: all resident pages count.
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
