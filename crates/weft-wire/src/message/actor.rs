//! Actors: creation, where they live, and their end.

use minicbor::{Decode, Encode};

use super::{Define, Failure, Push};
use crate::{ActorId, ResourceSet, WorkerId};

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
    pub class: Define,
    #[n(4)]
    pub constructor: Push,
}

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
}

/// The actor is gone for good.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct ActorDead {
    #[n(0)]
    pub actor: ActorId,
    #[n(1)]
    pub failure: Failure,
}

/// A caller wants to know where the actor is.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct SubscribeActor {
    #[n(0)]
    pub actor: ActorId,
}

/// End the actor now.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct KillActor {
    #[n(0)]
    pub actor: ActorId,
}

/// Owner to node: no handle is left and no call is in flight.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct ActorOutOfScope {
    #[n(0)]
    pub actor: ActorId,
}

/// Worker to node: the constructor has ended.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct ActorReady {
    #[n(0)]
    pub actor: ActorId,
    #[n(1)]
    pub failure: Option<Failure>,
}

/// Node to worker: finish what you have and leave.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct ExitActor {
    #[n(0)]
    pub actor: ActorId,
}
