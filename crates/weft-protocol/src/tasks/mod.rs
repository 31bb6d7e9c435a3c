//! Tasks of this process: what is pending, what it waits for, and the leases it runs on.

mod leases;
mod pending;
mod streams;

pub use leases::{Lease, Leases, PushTo, Replied};
pub use pending::{Pending, Pendings, State};
pub use streams::{Arrival, Stream, Streams};
