//! Actors between the control service and the nodes that give them a process (`docs/adr/0024`).
//!
//! Every message about a process of an actor has the number of its takeover, which tells an earlier process
//! from the present one. `ActorStarted`, `ActorRestarting` and `ActorDead` from the control service to a node
//! itself are for all processes of the node that subscribe to the actor.

use minicbor::{Decode, Encode};

use super::{ActorDead, ActorStarted, Checkpoint, CreateActor, Job, Place, Return, WorkerDead};
use crate::{ActorId, Blob, GroupId, NodeId, Takeover, TaskId, WorkerId};

/// Control to node: give an actor a process, when there is room.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct PlaceActor {
    /// How many processes the actor had before.
    #[n(0)]
    pub takeover: Takeover,
    /// Actors that began to wait earlier have a smaller number, and are served first.
    #[n(1)]
    pub turn: u64,
    /// Namespace and name.
    #[n(2)]
    pub name: Option<(String, String)>,
    /// The node receives [`super::Restore`] before it may send the process its constructor.
    #[n(3)]
    pub restores: bool,
    /// The creation message for the process, and what must be free for it.
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

/// Node to control: the actor gets no process on this node, which does not know it any more.
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
    /// The creation message for another node, as nothing of the actor has begun on this one. Sent by a node
    /// that leaves, or is asked to give the actor back ([`EndActor::recalls`]), and with `no_workers` or
    /// `for_now`.
    #[n(3)]
    pub create: Option<Box<CreateActor>>,
    /// The node can start no workers for the actor's job: do not ask it again for that job.
    #[n(4)]
    pub no_workers: Option<bool>,
    /// A resource of the machine is used up, and no worker could be started for long: the actor begins
    /// elsewhere, or not at all.
    #[n(5)]
    pub for_now: Option<bool>,
}

row! {
    152 PlaceRefused: [node -> directory]; values;
    only if |refused, _| refused.create.as_ref().is_none_or(|create| create.actor == refused.actor),
        else "it gives back another actor than it refuses";
}

/// Node to control: the process of an actor is dead, and what it held is free.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct ActorProcessDead {
    #[n(0)]
    pub actor: ActorId,
    /// The takeover that made this process.
    #[n(1)]
    pub takeover: Takeover,
    /// The message that the processes of its node receive.
    #[n(2)]
    pub gone: Box<WorkerDead>,
}

row! {
    153 ActorProcessDead: [node -> directory]; no values;
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
    /// The process finishes the calls that it has and exits; otherwise it is killed.
    #[n(2)]
    pub finishes: bool,
    /// The actor does not end: if it waits for room, the node gives it back with [`PlaceRefused`], to be
    /// placed elsewhere; otherwise nothing happens.
    #[n(3)]
    pub recalls: Option<bool>,
    /// The actor does not end: a later process has its state, and the node need not report this one any more.
    #[n(4)]
    pub is_succeeded: Option<bool>,
}

row! { 154 EndActor: [directory -> node]; no values; }

/// Control to node: a process of the node subscribes to an actor from now on.
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
    /// The block.
    #[n(0)]
    pub place: Place,
}

row! { 157 LetGo: [directory -> node]; no values; }

/// Node to a control service that does not know it yet, before all other messages: what is on the node, and
/// what was said of it.
#[derive(Debug, Clone, PartialEq, Default, Encode, Decode)]
#[cbor(array)]
pub struct ActorsHere {
    /// Actors that have a process on this node, or wait for one.
    #[n(0)]
    pub actors: Vec<ActorHere>,
    /// Jobs whose drivers are on this node.
    #[n(1)]
    pub jobs: Vec<Job>,
    /// Which of the node's processes subscribe to which actor, on whichever node that is.
    #[n(2)]
    pub subscribers: Vec<(ActorId, WorkerId)>,
    /// Which of the node's processes keep objects for which actor's checkpoint.
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
    /// Every process that the node speaks for in the message.
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
    /// Actors that are dead by the last message to this node. The creator's node may not have received it.
    #[n(1)]
    pub dead: Vec<ActorDead>,
    /// Nodes with processes whose ends concern this node. One without a record is dead, and the earlier
    /// control service took the list of nodes that were told so with it.
    #[n(2)]
    pub watched: Option<Vec<NodeId>>,
}

/// An actor on the sending node. Its owner is in its id.
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
    /// The creation message for a new process, if one may take over: also before the constructor has
    /// returned, as this process may end before it has begun.
    #[n(11)]
    pub create: Option<Box<CreateActor>>,
    /// The last checkpoint that the node knows of, if the actor takes any.
    #[n(12)]
    pub checkpoint: Option<Return>,
    /// The process has ended, and the control service may not know of it.
    #[n(13)]
    pub gone: Option<Box<WorkerDead>>,
    /// The placement group that it runs in.
    #[n(14)]
    pub group: Option<GroupId>,
    /// The latest calls that its checkpoints cover: their callers may not have been told.
    #[n(15)]
    pub covered: Option<Vec<TaskId>>,
}
