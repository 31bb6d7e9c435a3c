//! Actors as their callers see them: where each lives, the order of the calls to it, and which calls are kept
//! for a checkpoint. How calls are executed is in [`super::execution`].

pub(super) mod actors;
mod caller;
mod checkpoint;
mod kept_objects;
pub(super) mod replaying;

pub use actors::ActorDemand;
pub use caller::{ActorPlace, Callers, Interrupted, Turn};
pub use checkpoint::Kept;
pub use kept_objects::KeptObjects;
