//! Scheduling on one node: what is free and which GPUs that means. Queues and leases are in [`crate::node`].

mod resources;

pub use resources::{Grant, NodeResources};
