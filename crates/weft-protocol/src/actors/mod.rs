//! Actors as their callers see them, and what their processes know of checkpoints. How calls are executed is in
//! [`crate::execution`].

mod caller;
mod checkpoint;
mod instance;

pub use caller::{ActorPlace, Callers, Interrupted};
pub use checkpoint::Kept;
pub use instance::{Instance, Restored, Takeover};
