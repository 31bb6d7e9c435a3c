//! Processes and other nodes: who is connected with whom, who hears of whose end, and what an end means.

pub(super) mod connections;
pub mod deaths;
pub(super) mod departed;
pub mod watches;
