//! A node's half of the protocols, in rooms by noun, joined by one core.
//!
//! | room | holds |
//! |---|---|
//! | [`workers`] | the pool, jobs, leases here and at other nodes, and who is stopped when memory runs out |
//! | `actors` | actors that have a process here, and who here hears of which |
//! | [`objects`] | blocks of shared memory: who waits for one, holders, lost ones, pulls, and what is on disk |
//! | `values` | what moves: transfers between nodes, spilling, eviction, promotion |
//! | [`peers`] | processes and nodes as others see them: connections, watches, deaths |
//! | [`uplink`] | a node whose control service is elsewhere |

mod actors;
mod core;
mod draining;
pub mod objects;
pub mod peers;
mod report;
mod routed;
pub mod uplink;
mod values;
pub mod workers;

pub(crate) use actors::local_actors::{ended_unbegun, refused_for_now};
pub use core::{NodeAction, NodeActions, NodeCore};
pub use values::directions::ServedCopy;
pub use values::spilling::{Room, ServedSpill};
