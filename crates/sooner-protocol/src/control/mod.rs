//! The control service of a cluster, one for all nodes.
//!
//! [`ControlCore`] is the whole of it: [`membership`] says who has joined and who lives, [`view`] who could
//! serve a request, and [`Directory`] which actors, names, groups and jobs there are. Where everything runs
//! on one machine the directory serves by itself.
//!
//! It is not on the path of tasks, calls or values, and never looks into them: leases, workers and blocks of
//! memory are the nodes' own ([`crate::node`]).

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
