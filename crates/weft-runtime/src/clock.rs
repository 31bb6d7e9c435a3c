//! The one clock of the shells: monotonic nanoseconds, as the machines take them.

use weft_protocol::time::Instant;

/// Now.
#[must_use]
pub fn now() -> Instant {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).expect("monotonic time is positive");
    let nanos = u64::try_from(time.tv_nsec).expect("nanoseconds are positive");
    Instant(seconds * 1_000_000_000 + nanos)
}
