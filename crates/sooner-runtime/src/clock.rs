//! The one clock of the shells: monotonic nanoseconds, as the machines take them.

use sooner_protocol::time::Instant;

/// Now.
#[must_use]
pub fn now() -> Instant {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).expect("monotonic time is positive");
    let nanos = u64::try_from(time.tv_nsec).expect("nanoseconds are positive");
    Instant(seconds * 1_000_000_000 + nanos)
}

/// A time span as the system calls take it.
#[must_use]
pub fn timespec(nanos: u64) -> rustix::event::Timespec {
    rustix::event::Timespec {
        tv_sec: i64::try_from(nanos / 1_000_000_000).expect("within an age"),
        tv_nsec: i64::try_from(nanos % 1_000_000_000).expect("below a second"),
    }
}
