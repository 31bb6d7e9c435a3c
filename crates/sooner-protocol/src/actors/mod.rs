//! Actors as their callers see them, and what their processes know of checkpoints. How calls are executed is in
//! [`crate::execution`].

mod caller;
mod checkpoint;
mod instance;

use sooner_wire::message::{Failure, FailureCode};

pub use caller::{ActorPlace, Callers, Interrupted};
pub use checkpoint::Kept;
pub use instance::{Instance, Restored, Takeover};

/// Why nothing comes of a call to an actor that nobody knows any more.
pub(crate) fn gone_failure() -> Failure {
    let message = "the actor is gone: its last handle was dropped before this one was used, or it ended with its node while the cluster had no head";
    Failure::new(FailureCode::ActorDied, message)
}
