//! Actors: creation, where they live, and their end.

use std::num::NonZeroU32;

use minicbor::{Decode, Encode};

use super::{Define, Failure, Push};
use crate::{ActorId, ResourceSet, TaskId, WorkerId};

/// Asks the node for an actor.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct CreateActor {
    #[n(0)]
    pub actor: ActorId,
    /// What must be free for the actor to be placed.
    #[n(1)]
    pub placement: ResourceSet,
    /// What the actor holds while it lives.
    #[n(2)]
    pub lifetime: ResourceSet,
    #[n(3)]
    pub class: Box<Define>,
    #[n(4)]
    pub constructor: Box<Push>,
    /// How often a new process takes over after a failure; -1 for ever. The constructor's `retries` count
    /// earlier processes that a restarted control service does not know of.
    #[n(5)]
    pub restarts: Option<i32>,
    /// It does not end with its owner or its handles.
    #[n(6)]
    pub detached: Option<bool>,
    /// The job whose workers may be its process. Set by the creator's node.
    #[n(8)]
    pub job: Option<WorkerId>,
}

row! { 50 CreateActor: [process -> node, process => directory]; values; }

/// The actor has a process. Calls may be pushed: they wait behind the constructor.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct ActorStarted {
    #[n(0)]
    pub actor: ActorId,
    #[n(1)]
    pub worker: WorkerId,
    #[n(2)]
    pub concurrency: u32,
    /// A new process has taken over an actor with checkpoints: the receiver repeats the calls that the
    /// restored checkpoint does not cover, as [`super::Replayed`] says.
    #[n(3)]
    pub replays: Option<bool>,
    /// How often another process has taken the actor over; `None`: never.
    #[n(4)]
    pub restarts: Option<NonZeroU32>,
}

row! { 51 ActorStarted: [node -> process, directory -> node]; no values; }

/// The actor's process is dead, and another one is coming.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct ActorRestarting {
    #[n(0)]
    pub actor: ActorId,
    /// For people: what happened to the process.
    #[n(1)]
    pub reason: String,
    /// The call that it began last.
    #[n(2)]
    pub last_started: Option<TaskId>,
    /// The time is unknown: calls are not to wait for the new process. Set by the callers' node.
    #[n(3)]
    pub nobody_starts_it: Option<bool>,
    /// Nothing of the actor had begun in the dead process: neither a call nor its constructor.
    #[n(4)]
    pub unbegun: Option<bool>,
}

row! { 58 ActorRestarting: [node -> process, directory -> node]; no values; }

/// The actor is dead for good.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct ActorDead {
    #[n(0)]
    pub actor: ActorId,
    #[n(1)]
    pub failure: Failure,
}

row! { 52 ActorDead: [node -> process, directory -> node, directory => process]; no values; }

/// A caller wants to know where the actor is.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct SubscribeActor {
    #[n(0)]
    pub actor: ActorId,
}

row! { 53 SubscribeActor: [process -> node, process => directory]; no values; }

/// End the actor's process now.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct KillActor {
    #[n(0)]
    pub actor: ActorId,
    /// The actor may start again if it has restarts left.
    #[n(1)]
    pub may_restart: Option<bool>,
}

row! { 54 KillActor: [process -> node, process => directory]; no values; }

/// Owner to node: no handle is left and no call is in flight.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct ActorOutOfScope {
    #[n(0)]
    pub actor: ActorId,
}

row! { 55 ActorOutOfScope: [process -> node, process => directory]; no values; }

/// Worker to node: the constructor has ended.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct ActorReady {
    #[n(0)]
    pub actor: ActorId,
    #[n(1)]
    pub failure: Option<Failure>,
}

row! { 56 ActorReady: [process -> node, process => directory]; no values; }

/// Worker to node: the constructor waits for a lost argument that is made again; until then others may use
/// the actor's resources. Sent once more, with `is_ready`, when the argument is there.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Suspended {
    #[n(0)]
    pub actor: ActorId,
    #[n(1)]
    pub is_ready: bool,
}

row! { 59 Suspended: [process -> node]; no values; }

/// Node to worker: the actor has its resources again, and its constructor may begin.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Resumed {
    #[n(0)]
    pub actor: ActorId,
    #[n(1)]
    pub gpus: Vec<u32>,
}

row! { 65 Resumed: [node -> process]; no values; }

/// Node to worker: finish the calls that you have and exit.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct ExitActor {
    #[n(0)]
    pub actor: ActorId,
}

row! { 57 ExitActor: [node -> process]; no values; }
