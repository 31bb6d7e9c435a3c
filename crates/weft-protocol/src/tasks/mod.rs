//! Tasks of this process: what is pending, what it waits for, and the leases it runs on.

mod leases;
mod pending;

pub use leases::{Lease, Leases, PushTo, Replied};
pub use pending::{Pending, Pendings, State};
