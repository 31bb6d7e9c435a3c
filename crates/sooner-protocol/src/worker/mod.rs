//! A driver's or worker's half of the protocols, in rooms by noun, joined by one core.
//!
//! | room | holds |
//! |---|---|
//! | [`ownership`] | what this process owns or borrows, lineage, recovery, the directory of copies |
//! | [`tasks`] | tasks of this process: pending, leases, replies, retries, streams |
//! | [`calls`] | actors as their callers see them, and calls kept for checkpoints |
//! | [`execution`] | what others pushed here, and the processes of actors |
//! | [`memory`] | blocks that are asked for, and wanted back, and tasks stopped for want of memory |

pub mod action;
pub mod calls;
mod core;
mod deaths;
pub mod execution;
mod functions;
mod groups;
pub mod memory;
mod messages;
mod needed;
pub mod ownership;
mod report;
pub mod tasks;
#[cfg(test)]
mod testing;

pub use calls::ActorDemand;
pub use core::WorkerCore;
