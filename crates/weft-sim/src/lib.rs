//! What could happen: a deterministic simulator over the cores of weft.
//!
//! [`world::World`] holds a node, a driver and workers as the same cores that run in production, and carries their
//! messages in an order that a seed decides. Workers may be killed at any step. Faults stop after a while; then
//! everything must finish ([`world::World::run`]). The simulator has no sockets, clocks or threads.

pub mod explore;
pub mod random;
pub mod world;
