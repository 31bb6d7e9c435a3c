//! Workers of a node and which process has them: the pool, jobs, leases for local and remote processes, and
//! memory that runs out.

pub(super) mod bundles;
pub(super) mod group_places;
mod jobs;
pub(super) mod leases;
pub mod memory;
pub(super) mod pool;
pub(super) mod remote_leases;
pub(super) mod requesters;
pub(super) mod spillback;
pub(super) mod starving;
pub(super) mod unable;
