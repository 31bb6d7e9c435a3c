//! Scheduling: what is free on a node, which node work goes to, and where the bundles of placement groups go.
//! Queues and leases are in [`crate::node`].

mod bundles;
mod packing;
pub mod policy;
mod resources;
pub mod view;

pub use bundles::{Pools, add_formatted};
pub use packing::{Unplaced, place_bundles};
pub use resources::{Grant, NodeResources};
