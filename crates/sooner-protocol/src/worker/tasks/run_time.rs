//! How long a task ran, as its worker reports.

use sooner_wire::message::Timing;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunTime {
    /// From the start to the end of the call (nanoseconds).
    pub nanos: u64,
    /// When it began and what its parts took, if that was measured.
    pub timing: Option<Timing>,
}

impl From<u64> for RunTime {
    fn from(nanos: u64) -> Self {
        Self { nanos, timing: None }
    }
}
