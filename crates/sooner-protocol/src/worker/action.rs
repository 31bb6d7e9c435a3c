//! What a core wants done. The shell carries actions out in order.

use std::sync::Arc;

use sooner_wire::message::{Dependency, Location, Message, TaskSpec};
use sooner_wire::{ObjectId, TaskId, WorkerId};

/// Who a message goes to or comes from.
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
        /// What to say.
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
    /// Nobody reads this block any more, and it was ours.
    FreeBlock(Location),
    /// Interrupt a task that is running here.
    Interrupt {
        /// Which.
        task: TaskId,
        /// End the whole process.
        force: bool,
    },
    /// Tell the user.
    Warn(String),
}

/// Actions in order.
pub type Actions = Vec<Action>;

/// Shorthand for [`Action::Send`].
pub fn send(out: &mut Actions, to: Peer, message: impl Into<Message>) {
    out.push(Action::Send { to, message: Box::new(message.into()) });
}
