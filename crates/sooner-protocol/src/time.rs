//! Time as the state machines see it: nanoseconds since a start that the shell chose. They never read a
//! clock.

/// A point in time (nanoseconds).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Instant(pub u64);

impl Instant {
    /// Nanoseconds since `earlier`, or zero.
    #[must_use]
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// This point plus nanoseconds.
    #[must_use]
    pub fn plus(self, nanos: u64) -> Self {
        Self(self.0.saturating_add(nanos))
    }
}
