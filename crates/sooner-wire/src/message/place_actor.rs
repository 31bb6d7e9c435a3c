//! Actors between the control service and the nodes that give them a process (`docs/adr/0024`).
//!
//! Whatever concerns a process of an actor has the number of its takeover, so that news of an earlier process
//! is told from that of the present one. `ActorStarted`, `ActorRestarting` and `ActorDead` from the control
//! service to a node itself are for all processes of the node that hear of the actor.

use minicbor::{Decode, Encode};

use super::{ActorDead, ActorStarted, Checkpoint, CreateActor, Job, Place, Return, WorkerGone};
use crate::{ActorId, Blob, GroupId, NodeId, Takeover, TaskId, WorkerId};

/// Control to node: give an actor a process, when there is room.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct PlaceActor {
    /// How many processes the actor had before.
    #[n(0)]
    pub takeover: Takeover,
    /// Who began to wait earlier has a smaller number, and is served first.
    #[n(1)]
    pub turn: u64,
    /// Namespace and name.
    #[n(2)]
    pub name: Option<(String, String)>,
    /// [`super::Restore`] comes before the process may be told of its constructor.
    #[n(3)]
    pub restores: bool,
    /// What the process is told, and what must be free for it.
    #[n(4)]
    pub create: Box<CreateActor>,
    /// How often a new process may still take over after this one; -1 for ever. For [`ActorHere`].
    #[n(5)]
    pub restarts: Option<i32>,
    /// What a front end needs to make a handle of a named actor. For [`ActorHere`].
    #[n(6)]
    pub description: Option<Blob>,
}

row! { 150 PlaceActor: [directory -> node]; values; }

/// Node to control: an actor has a process. Its constructor is on the way there, unless its state comes
/// first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct ActorPlaced {
    #[n(0)]
    pub actor: ActorId,
    /// The takeover that the node was asked for.
    #[n(1)]
    pub takeover: Takeover,
    #[n(2)]
    pub worker: WorkerId,
}

row! {
    151 ActorPlaced: [node -> directory]; no values;
    only if |placed, ends| ends.speaks_for(placed.worker), else "it speaks for a process that is not its own";
}

/// Node to control: the actor gets no process here. It is not known here any more.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct PlaceRefused {
    #[n(0)]
    pub actor: ActorId,
    /// The takeover that the node was asked for.
    #[n(1)]
    pub takeover: Takeover,
    /// For people.
    #[n(2)]
    pub reason: String,
    /// Nothing of the actor has begun there, and this is what another node is to be told of it. Said by a
    /// node that leaves, when it is recalled ([`EndActor::recalls`]), and with `no_workers` or `for_now`.
    #[n(3)]
    pub create: Option<Box<CreateActor>>,
    /// The node can start no workers for the job of the actor: nothing is to be asked of it for that job.
    #[n(4)]
    pub no_workers: Option<bool>,
    /// Something of the machine is used up, and no worker could be started for long: this actor begins
    /// elsewhere, or not at all.
    #[n(5)]
    pub for_now: Option<bool>,
}

row! {
    152 PlaceRefused: [node -> directory]; values;
    only if |refused, _| refused.create.as_ref().is_none_or(|create| create.actor == refused.actor),
        else "it gives back another actor than it refuses";
}

/// Node to control: the process of an actor is gone, and what it held is free.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct ActorProcessGone {
    #[n(0)]
    pub actor: ActorId,
    /// The takeover that this process was.
    #[n(1)]
    pub takeover: Takeover,
    /// What the processes of its node are told.
    #[n(2)]
    pub gone: Box<WorkerGone>,
}

row! {
    153 ActorProcessGone: [node -> directory]; no values;
    only if |ended, ends| ends.speaks_for(ended.gone.worker),
        else "it speaks for a process that is not its own";
}

/// Control to node: an actor that was placed there is to end, whether it has a process yet or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct EndActor {
    #[n(0)]
    pub actor: ActorId,
    /// The takeover that this is for.
    #[n(1)]
    pub takeover: Takeover,
    /// Its process finishes what it has and leaves; otherwise it is killed.
    #[n(2)]
    pub finishes: bool,
    /// It does not end: if it waits there for room, it is given back with [`PlaceRefused`], to be placed
    /// elsewhere; otherwise nothing happens.
    #[n(3)]
    pub recalls: Option<bool>,
    /// It does not end: a process after this one has its state, and the node need not tell of this one any
    /// more.
    #[n(4)]
    pub is_succeeded: Option<bool>,
}

row! { 154 EndActor: [directory -> node]; no values; }

/// Control to node: a process of the node hears of an actor from now on.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct ActorSubscribed {
    #[n(0)]
    pub actor: ActorId,
    #[n(1)]
    pub process: WorkerId,
    /// Where the actor is, if it has a process.
    #[n(2)]
    pub started: Option<Box<ActorStarted>>,
}

row! { 156 ActorSubscribed: [directory -> node]; no values; }

/// Control to node: a block that lay in a checkpoint need not be kept any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct LetGo {
    /// Which one.
    #[n(0)]
    pub place: Place,
}

row! { 157 LetGo: [directory -> node]; no values; }

/// Node to a control service that has not heard of it before, ahead of all else: what is here, and what was
/// said of it.
#[derive(Debug, Clone, PartialEq, Default, Encode, Decode)]
#[cbor(array)]
pub struct ActorsHere {
    /// Actors that have a process here, or wait for one.
    #[n(0)]
    pub actors: Vec<ActorHere>,
    /// Jobs whose drivers are here.
    #[n(1)]
    pub jobs: Vec<Job>,
    /// Who of the node's processes hears of which actor, wherever that is.
    #[n(2)]
    pub subscribers: Vec<(ActorId, WorkerId)>,
    /// Who of the node's processes keeps objects for a checkpoint of which actor.
    #[n(3)]
    pub keepers: Option<Vec<(ActorId, WorkerId)>>,
    /// Blocks that the node keeps: with a state of that actor, or, without the block, with arguments for its
    /// constructor.
    #[n(4)]
    pub kept: Option<Vec<(ActorId, Option<Place>)>>,
    /// What an earlier control service may have heard of or said, and others not.
    #[n(5)]
    pub also: Option<Box<AlsoHere>>,
}

row! {
    155 ActorsHere: [node -> directory]; values;
    only if |here, ends| here.processes().all(|process| ends.speaks_for(process)),
        else "it speaks for a process that is not its own";
}

impl ActorsHere {
    /// Every process that the node speaks for in it.
    fn processes(&self) -> impl Iterator<Item = WorkerId> {
        let jobs = self.jobs.iter().map(|job| job.job);
        let subscribers = self.subscribers.iter().map(|(_, process)| *process);
        let workers = self.actors.iter().filter_map(|row| row.worker);
        let gone = self.actors.iter().filter_map(|row| row.gone.as_ref()).map(|gone| gone.worker);
        let checkpoints = self.also.iter().flat_map(|also| &also.checkpoints).map(|(process, _)| *process);
        jobs.chain(subscribers).chain(workers).chain(gone).chain(checkpoints)
    }
}

/// The rest of [`ActorsHere`].
#[derive(Debug, Clone, PartialEq, Default, Encode, Decode)]
#[cbor(array)]
pub struct AlsoHere {
    /// Checkpoints of the node's processes, in order, that are not known to stand.
    #[n(0)]
    pub checkpoints: Vec<(WorkerId, Checkpoint)>,
    /// Actors of which the node was told last that they are dead. The node of the creator may not have been.
    #[n(1)]
    pub dead: Vec<ActorDead>,
    /// Nodes with processes whose ends the node would have to hear of. One that has no record any more is
    /// gone, and who was told of that went with the earlier control service.
    #[n(2)]
    pub watched: Option<Vec<NodeId>>,
}

/// An actor on the node that says so. Its owner is in its id.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct ActorHere {
    #[n(0)]
    pub actor: ActorId,
    #[n(1)]
    pub takeover: Takeover,
    /// Its process; `None` while it waits for room, or for its state. Also one that has ended since.
    #[n(2)]
    pub worker: Option<WorkerId>,
    /// Its constructor has returned.
    #[n(3)]
    pub is_ready: bool,
    /// The job whose workers may be its process.
    #[n(4)]
    pub job: WorkerId,
    /// Namespace and name.
    #[n(5)]
    pub name: Option<(String, String)>,
    /// What a front end needs to make a handle, if it has a name.
    #[n(6)]
    pub description: Option<Blob>,
    /// What its class is called, for people.
    #[n(7)]
    pub class: String,
    /// It does not end with its owner or its handles.
    #[n(8)]
    pub detached: bool,
    #[n(9)]
    pub concurrency: u32,
    /// How often a new process may still take over; -1 for ever.
    #[n(10)]
    pub restarts: i32,
    /// What a new process is told, if one may take over: also before its constructor has returned, for this
    /// one may end before it has begun.
    #[n(11)]
    pub create: Option<Box<CreateActor>>,
    /// The last checkpoint that the node has heard of, if it takes any.
    #[n(12)]
    pub checkpoint: Option<Return>,
    /// Its process has ended since, and the control service may not have heard of it.
    #[n(13)]
    pub gone: Option<Box<WorkerGone>>,
    /// The placement group that it runs in.
    #[n(14)]
    pub group: Option<GroupId>,
    /// The latest calls that its checkpoints cover: their callers were perhaps not told.
    #[n(15)]
    pub covered: Option<Vec<TaskId>>,
}
