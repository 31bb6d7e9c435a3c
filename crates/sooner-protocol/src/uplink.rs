//! The messages between nodes and the control service.
//!
//! They are values: where both cores are in one thread ([`crate::engine::Solo`]) nothing is encoded. Between
//! machines they are wire messages ([`wire`]): each owns its content, names processes and actors by ids that
//! mean the same everywhere, and may be late. Each message about a process of an actor carries the number of
//! the takeover, so that an earlier process is never confused with the present one.

pub use sooner_wire::message::PlaceActor;
use sooner_wire::message::{
    ActorDead, ActorHere, ActorRestarting, ActorStarted, ActorsHere, Commit, CreateActor, FindGroup, Held,
    Job, Message, Place, Prepare, Prepared, Release, Restore, Settled, WorkerDead,
};
use sooner_wire::{ActorId, NodeId, Takeover, WorkerId};

pub mod wire;

/// A message from a node.
#[derive(Debug, Clone, PartialEq)]
pub enum ToControl {
    /// A message from a process of the node to the control service.
    Routed {
        /// The process.
        from: WorkerId,
        /// Its message.
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
    /// An actor cannot have a process on the node, which has forgotten the actor.
    PlaceRefused {
        /// The actor.
        actor: ActorId,
        /// The takeover that the node was asked for.
        takeover: Takeover,
        /// For people.
        reason: String,
        /// What another node is to be sent, if nothing of the actor has begun: the node leaves, or has no
        /// workers for the actor.
        create: Option<Box<CreateActor>>,
        /// The node can start no workers for the actor's job.
        no_workers: bool,
        /// The node could start none for long, because something of the machine is used up.
        for_now: bool,
    },
    /// The process of an actor is dead, and its resources are free.
    ActorProcessDead {
        /// The actor.
        actor: ActorId,
        /// The takeover of this process.
        takeover: Takeover,
        /// What the processes of its node are told.
        gone: Box<WorkerDead>,
    },
    /// About bundles of a placement group.
    Bundles(Box<BundleAnswer>),
    /// A driver is about to end in order: its actors may, too.
    ProcessLeaves {
        /// Which.
        process: WorkerId,
    },
    /// A process that others may know is dead, or did not exist when a message for it came.
    ProcessDead {
        /// Which.
        process: WorkerId,
        /// Other nodes that know the process: they are told.
        watchers: Vec<NodeId>,
        /// What they are told, if the control service settles the death.
        gone: Option<Box<WorkerDead>>,
    },
    /// What the clients of the node hold of a dead process. All of them have answered.
    Collected {
        /// The process, or the id before those of the processes of a dead node.
        gone: WorkerId,
        /// What they hold.
        held: Vec<Held>,
    },
    /// About a driver's job: one on this node has begun, or the node must know one from elsewhere.
    Job(Box<Job>),
    /// What is on the node, for a control service that does not know it.
    Here(Box<ActorsHere>),
}

impl ToControl {
    /// The death of a process that no other node knows.
    #[must_use]
    pub fn process_dead(process: WorkerId) -> Self {
        Self::ProcessDead { process, watchers: Vec::new(), gone: None }
    }
}

/// A message from the control service to a node.
#[derive(Debug, Clone, PartialEq)]
pub enum ToNode {
    /// A message for one process of the node. If the process is dead, the node reports that.
    Routed {
        /// The process.
        to: WorkerId,
        /// The message.
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
    /// A process of the node receives changes of an actor from now on.
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
    /// For all subscribers on the node: the actor is dead for good. No message about it follows.
    Dead(Box<ActorDead>),
    /// About bundles of a placement group.
    Bundles(Box<BundleOrder>),
    /// The node need not keep a block any more, which held the state of a checkpoint.
    LetGo(Place),
    /// A process of another node is dead.
    WorkerDead(Box<WorkerDead>),
    /// Deaths are settled: what owners must know of them.
    Settled(Box<Settled>),
    /// What has become of a job.
    Job(Box<Job>),
}

/// A node's message about bundles.
#[derive(Debug, Clone, PartialEq)]
pub enum BundleAnswer {
    /// What it has done.
    Prepared(Prepared),
    /// What becomes of those that it prepared?
    Asks(FindGroup),
}

/// An order to a node about bundles.
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
    /// Not at all: if it waits for room, the node gives it back, because another node has room.
    Recalled,
    /// It has ended: a later process has its state, and the node need not report it any more.
    Succeeded,
}

/// Whether this is an actor whose next process begins with the state of the one before.
pub(crate) fn takes_checkpoints(here: &ActorHere) -> bool {
    here.checkpoint.is_some()
        || here.create.as_ref().is_some_and(|create| create.constructor.spec.checkpoint_every().is_some())
}
