//! What nodes and the control service say to each other.
//!
//! These are values: where both cores are in one thread ([`crate::engine::Solo`]) nothing is encoded. Between
//! machines they are messages ([`wire`]): each owns what it says, names processes and actors by ids that mean
//! the same everywhere, and can be late. Whatever concerns a process of an actor carries the number of its
//! takeover, so that news of an earlier process is told from that of the present one.

pub use sooner_wire::message::PlaceActor;
use sooner_wire::message::{
    ActorDead, ActorHere, ActorRestarting, ActorStarted, ActorsHere, Commit, CreateActor, FindGroup, Held,
    Job, Message, Place, Prepare, Prepared, Release, Restore, Settled, WorkerGone,
};
use sooner_wire::{ActorId, NodeId, Takeover, WorkerId};

pub mod wire;

/// A node speaks.
#[derive(Debug, Clone, PartialEq)]
pub enum ToControl {
    /// What a process of the node says to the control service.
    Routed {
        /// The process.
        from: WorkerId,
        /// Its words.
        message: Box<Message>,
    },
    /// An actor has a process. Its constructor is on the way there, unless the actor's state comes first.
    ActorPlaced {
        /// The actor.
        actor: ActorId,
        /// The takeover that the node was asked for.
        takeover: Takeover,
        /// The process.
        worker: WorkerId,
    },
    /// An actor cannot have a process there. The node does not know it any more.
    PlaceRefused {
        /// The actor.
        actor: ActorId,
        /// The takeover that the node was asked for.
        takeover: Takeover,
        /// For people.
        reason: String,
        /// Nothing of the actor has begun, and this is what another node is to be told: the node leaves, or
        /// has no workers for it.
        create: Option<Box<CreateActor>>,
        /// The node can start no workers for the actor's job.
        no_workers: bool,
        /// It could start none for long, because something of the machine is used up.
        for_now: bool,
    },
    /// The process of an actor is gone, and what it held is free.
    ActorProcessGone {
        /// The actor.
        actor: ActorId,
        /// The takeover that this process was.
        takeover: Takeover,
        /// What the processes of its node are told.
        gone: Box<WorkerGone>,
    },
    /// About bundles of a placement group.
    Bundles(Box<BundleAnswer>),
    /// A driver is about to end in order: its actors may, too.
    ProcessLeaves {
        /// Which.
        process: WorkerId,
    },
    /// A process that others may have heard of is gone, or was not there when something came for it.
    ProcessGone {
        /// Which.
        process: WorkerId,
        /// Nodes that have to do with it, besides its own: they are told.
        watchers: Vec<NodeId>,
        /// What they are told, if its death is settled by the control service.
        gone: Option<Box<WorkerGone>>,
    },
    /// What the clients of the node hold of a process that is gone. All of them were heard.
    Collected {
        /// The process, or the id before those of the processes of a node that is gone.
        gone: WorkerId,
        /// What they hold.
        held: Vec<Held>,
    },
    /// About the job of a driver: one here has begun, or the node has to know one from elsewhere.
    Job(Box<Job>),
    /// What is on the node, for a control service that has not heard of it.
    Here(Box<ActorsHere>),
}

impl ToControl {
    /// A process is gone that no other node has to do with.
    #[must_use]
    pub fn process_gone(process: WorkerId) -> Self {
        Self::ProcessGone { process, watchers: Vec::new(), gone: None }
    }
}

/// The control service speaks.
#[derive(Debug, Clone, PartialEq)]
pub enum ToNode {
    /// Something for one process of the node. If it is gone the node says so.
    Routed {
        /// The process.
        to: WorkerId,
        /// What it is told.
        message: Box<Message>,
    },
    /// The node is to give an actor a process, when there is room.
    PlaceActor(Box<PlaceActor>),
    /// What the process of an actor begins with, before its constructor.
    Restore {
        /// The takeover that this is for.
        takeover: Takeover,
        /// For its process.
        restore: Box<Restore>,
    },
    /// An actor that was placed here is to end, whether it has a process yet or not.
    EndActor {
        /// The actor.
        actor: ActorId,
        /// The takeover that this is for.
        takeover: Takeover,
        /// How.
        end: End,
    },
    /// A process of the node hears of an actor from now on.
    Subscribed {
        /// The actor.
        actor: ActorId,
        /// The process.
        process: WorkerId,
        /// Where the actor is, if it has a process.
        started: Option<Box<ActorStarted>>,
    },
    /// For all subscribers on the node: where an actor is.
    Started(Box<ActorStarted>),
    /// For all subscribers on the node: another process is coming.
    Restarting(Box<ActorRestarting>),
    /// For all subscribers on the node: the actor is gone for good. Nothing more is said of it.
    Dead(Box<ActorDead>),
    /// About bundles of a placement group.
    Bundles(Box<BundleOrder>),
    /// The node need not keep a block any more, which lay in a checkpoint.
    LetGo(Place),
    /// A process of another node is gone.
    Gone(Box<WorkerGone>),
    /// Deaths are settled: what their owners are to know of them.
    Settled(Box<Settled>),
    /// What has become of a job.
    Job(Box<Job>),
}

/// What a node says about bundles.
#[derive(Debug, Clone, PartialEq)]
pub enum BundleAnswer {
    /// What it has done.
    Prepared(Prepared),
    /// What becomes of those that it prepared?
    Asks(FindGroup),
}

/// What a node is to do about bundles.
#[derive(Debug, Clone, PartialEq)]
pub enum BundleOrder {
    /// Reserve them.
    Prepare(Prepare),
    /// They may be used.
    Commit(Commit),
    /// Give them back.
    Release(Release),
}

/// How an actor ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Its process is killed.
    Killed,
    /// Its process finishes what it has and leaves.
    Finished,
    /// Not at all: if it waits for room it is given back, for another node has some.
    Recalled,
    /// It has: a process after it has its state, and nothing need be told of it any more.
    Succeeded,
}

/// Whether it is an actor whose next process begins with the state of the one before.
pub(crate) fn takes_checkpoints(here: &ActorHere) -> bool {
    here.checkpoint.is_some()
        || here.create.as_ref().is_some_and(|create| create.constructor.spec.checkpoint_every.is_some())
}
