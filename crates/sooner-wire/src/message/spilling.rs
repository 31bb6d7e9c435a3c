//! A node without room and the processes whose values lie there: which of them go to disk.
//!
//! A spilled value is at a place of its node like any other, with an offset that no block has ([`SPILLED`]).
//! So whoever is told of it has it brought, frees it and hears of its loss as with a value of another node.

use minicbor::{Decode, Encode};

use crate::NodeId;

/// Offsets from here on are not in shared memory: each stands for one spilled value, and is never used again.
pub const SPILLED: u64 = 1 << 63;

/// Whether an offset stands for a spilled value.
#[inline]
#[must_use]
pub const fn is_spilled(offset: u64) -> bool {
    offset >= SPILLED
}

/// A block that is to be given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Relinquishing {
    /// The block.
    #[n(0)]
    pub offset: u64,
    /// Where its value is to be from now on; `None`: it is a copy, and the value stays where it is.
    #[n(1)]
    pub spilled: Option<u64>,
}

/// Node to a process that holds blocks: memory is short; give up those that nobody reads at the moment.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Relinquish {
    /// They are answered all at once, by [`Relinquished`].
    #[n(0)]
    pub blocks: Vec<Relinquishing>,
    /// Others go first: what waits here for arguments gives up those that it has. Tasks go back to their
    /// callers ([`TasksReturned`](super::TasksReturned)), copies that calls wait with go.
    #[n(1)]
    pub gives_way: Option<bool>,
    /// Whose blocks they are; `None`: those of the process's own node.
    #[n(2)]
    pub node: Option<NodeId>,
    /// Values that tasks can make again need not go anywhere; `None`: all have places to go to.
    #[n(3)]
    pub recomputes: Option<Recompute>,
}

row! {
    180 Relinquish: [node -> process, node => process]; no values;
    only if |wanted, ends| wanted.node == Some(ends.from.node()), else "it asks for blocks of another node";
}

/// What becomes of values when those that tasks can make again are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Recompute {
    /// The others go to disk.
    #[n(0)]
    OrSpill,
    /// The others stay: there is no disk.
    #[n(1)]
    OrKeep,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Relinquished {
    /// Values that are at their new places from now on: the node writes them to disk.
    #[n(0)]
    pub moved: Vec<Relinquishing>,
    /// The others: they stay, because they may be read; or they have been freed, as copies, or because tasks
    /// can make their values again.
    #[n(1)]
    pub others: Vec<u64>,
    /// As in the question.
    #[n(2)]
    pub node: Option<NodeId>,
}

row! {
    181 Relinquished: [process -> node, process => node]; no values;
    only if |answer, ends| answer.node == Some(ends.to.node()), else "it gives up blocks of another node";
}
