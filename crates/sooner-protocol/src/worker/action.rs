//! What a core wants done. The shell carries the actions out in order.

use std::sync::Arc;

use sooner_wire::message::{Dependency, Location, Message, TaskSpec};
use sooner_wire::{ObjectId, TaskId, WorkerId};

/// The receiver or sender of a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Peer {
    /// The node of this process.
    Node,
    /// Another process, over a direct connection.
    Worker(WorkerId),
}

/// An effect that [`super::WorkerCore`] asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Send a message. Messages to one peer stay in order.
    Send {
        /// Receiver.
        to: Peer,
        /// The message to send.
        message: Box<Message>,
    },
    /// Send a task: encoded from its shared description, without a copy.
    Push {
        /// The leased worker, or the actor's.
        worker: WorkerId,
        /// The task.
        spec: Arc<TaskSpec>,
        /// Values of its dependencies.
        dependencies: Vec<Dependency>,
        /// GPUs of its lease.
        gpus: Vec<u32>,
    },
    /// A watched object has its outcome.
    Ready(ObjectId),
    /// This process owned this block, and no process reads it any more.
    FreeBlock(Location),
    /// Interrupt a task that is running in this process.
    Interrupt {
        /// Which.
        task: TaskId,
        /// End the whole process.
        force: bool,
    },
    /// Show the user a warning.
    Warn(String),
}

/// Actions in order.
pub type Actions = Vec<Action>;

/// Shorthand for [`Action::Send`].
pub fn send(out: &mut Actions, to: Peer, message: impl Into<Message>) {
    out.push(Action::Send { to, message: Box::new(message.into()) });
}
