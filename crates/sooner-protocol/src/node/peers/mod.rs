//! Processes and other nodes: which are connected, which learn of whose death, and what a death means.

pub(super) mod connections;
pub mod deaths;
pub(super) mod departed;
pub mod watches;
