//! How other nodes learn of the end of a process (`docs/adr/0029`).
//!
//! The process's node reports the end to the control service first ([`ProcessLeft`]). The control service
//! tells the nodes that the process concerns ([`WorkerDead`]); each answers once for all its clients
//! ([`Collected`]), and when all have answered the control service sends [`super::Settled`].

use minicbor::{Decode, Encode};

use super::{Held, WorkerDead};
use crate::{NodeId, WorkerId};

/// Tell me when that process ends: client to its node, and node to the node of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Watch {
    #[n(0)]
    pub worker: WorkerId,
}

row! { 111 Watch: [process -> node, node => node]; no values; }

/// Dial me: one node to another that cannot be dialled itself, by way of the control service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct DialMe {
    /// The process that wants a connection, or its node.
    #[n(0)]
    pub from: WorkerId,
    /// The process that is to dial, or its node.
    #[n(1)]
    pub to: WorkerId,
    /// Between nodes: the connection is for values that the asking node wants to fetch.
    #[n(2)]
    pub values: Option<bool>,
}

row! { 112 DialMe: [node -> control, control -> node]; no values; }

/// The sender treats the process as dead, although it may live: end it. Client to its node, and node to the
/// control service. Control service to the node of the process: `worker` treats that process as dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Sever {
    #[n(0)]
    pub worker: WorkerId,
    /// What the sender is, as its node says: 0 for a driver, 1 for the process of an actor, 2 for another
    /// worker.
    #[n(1)]
    pub class: Option<u8>,
}

row! { 118 Sever: [process -> node, process => directory, directory => process]; no values; }

/// Node to control: one of its processes ends, or is dead.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct ProcessLeft {
    #[n(0)]
    pub process: WorkerId,
    /// The process is a driver that is about to end in order: its actors may, too. A second message reports
    /// its end.
    #[n(1)]
    pub in_order: bool,
    /// Nodes that the process concerns, besides its own.
    #[n(2)]
    pub watchers: Vec<NodeId>,
    /// The message for them. Absent if the process is about to end, or did not exist when a message for it
    /// came.
    #[n(3)]
    pub gone: Option<Box<WorkerDead>>,
}

row! {
    119 ProcessLeft: [node -> directory]; no values;
    only if |left, ends| ends.speaks_for(left.process), else "it speaks for a process that is not its own";
    only if |left, _| left.gone.as_ref().is_none_or(|gone| gone.worker == left.process),
        else "it says of one process that another one is gone";
}

/// Node to control: all its clients have answered about a dead process.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Collected {
    #[n(0)]
    pub gone: WorkerId,
    /// References that they still hold of all that it handed or lent them.
    #[n(1)]
    pub held: Vec<Held>,
}

row! {
    117 Collected: [node -> directory]; no values;
    only if |collected, ends| collected.held.iter().all(|held| ends.speaks_for(held.borrower)),
        else "it speaks for a process that is not its own";
}
