//! The control service of a cluster, one for all nodes.
//!
//! [`ControlCore`] is all of it: [`membership`] knows which nodes have joined and are alive, [`view`] which
//! nodes could serve a request, and [`Directory`] which actors, names, groups and jobs exist. Where
//! everything runs on one machine, the directory is enough.
//!
//! It never takes part in tasks, calls or values, and never looks into them: leases, workers and blocks of
//! memory belong to the nodes ([`crate::node`]).

mod core;
pub mod deaths;
mod directory;
pub mod groups;
pub mod membership;
pub mod persist;
mod rejoin;
pub mod view;

pub use self::core::{Batch, Beginning, ControlAction, ControlActions, ControlCore};
pub use directory::{Directory, DirectoryAction, DirectoryActions};
pub use membership::Probed;
pub use rejoin::Found;
