//! Actors as their callers see them. The instance's side is in [`crate::execution`].

mod caller;

pub use caller::{ActorPlace, Callers};
