//! Checkpoints of actors (Ray, section 5.1): the state of one, what it covers, and how a new process takes
//! over.

use minicbor::{Decode, Encode};

use super::Return;
use crate::{ActorId, ObjectId, Takeover, TaskId, WorkerId};

/// An actor's process to the node: its state after these calls. Their replies have left before.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Checkpoint {
    #[n(0)]
    pub actor: ActorId,
    /// What `__sooner_checkpoint__` returned, with the references inside.
    #[n(1)]
    pub state: Return,
    /// Calls executed since the checkpoint before, in the order of execution.
    #[n(2)]
    pub calls: Vec<TaskId>,
}

row! { 80 Checkpoint: [process -> node, process => directory]; values; }

/// Node to a caller and to the actor's process: the checkpoint stands, and the receiver's calls with these
/// numbers are in it.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Checkpointed {
    #[n(0)]
    pub actor: ActorId,
    #[n(1)]
    pub calls: Vec<u64>,
}

row! { 81 Checkpointed: [node -> process, directory => process]; no values; }

/// Node to the process that takes an actor over, before the constructor.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Restore {
    #[n(0)]
    pub actor: ActorId,
    /// The last checkpoint; `None` if there was none. The receiver borrows the references inside.
    #[n(1)]
    pub state: Option<Return>,
    /// Callers that make calls again before others are executed.
    #[n(2)]
    pub callers: Vec<WorkerId>,
    /// Control to node: the takeover that this is for. Its process is not told.
    #[n(3)]
    pub takeover: Option<Takeover>,
}

row! { 82 Restore: [node -> process, directory -> node]; values; }

/// A caller to the process that took an actor over: calls from here on are new, or were not answered by the
/// process before.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Replayed {
    #[n(0)]
    pub actor: ActorId,
}

row! { 83 Replayed: [process -> process]; no values; }

/// Node to an owner: references inside an actor's checkpoint that stands from now on. As long as it does,
/// they keep their objects. The message may come twice.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct KeepObjects {
    /// Whose checkpoint.
    #[n(0)]
    pub actor: ActorId,
    /// All objects that this owner keeps for it; those kept for an earlier one are let go.
    #[n(1)]
    pub objects: Vec<ObjectId>,
    /// ... but not now: there may be a later checkpoint, not yet reported.
    #[n(2)]
    pub more: Option<bool>,
}

row! { 84 KeepObjects: [node -> process, directory => process]; no values; }
