//! Tasks of this process: pending tasks, what they wait for, and the leases they run on.

pub(super) mod admitting;
pub(super) mod awaited;
pub(super) mod cancelling;
mod congestion;
mod delays;
mod events;
mod labels;
mod lanes;
mod leases;
mod locality;
mod pending;
mod queue;
pub(super) mod replies;
mod run_time;
mod streaming;
mod streams;
mod tiny;

pub use awaited::Awaited;
pub use delays::Delays;
pub use events::{Counts, RECORD_BYTES, Record, TaskEvents, Timestamps, code_of};
pub use labels::Label;
pub use leases::{Lease, Leases, PushTo, Replied, argument_bytes_max};
pub use pending::{Pending, Pendings, State};
pub use run_time::RunTime;
pub use streams::{Arrival, Stream, Streams};
pub use tiny::TinyTasks;
