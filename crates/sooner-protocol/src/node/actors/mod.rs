//! Actors on a node: those that have a process here or wait for one, and which local process learns of which
//! actor.

pub(super) mod local_actors;
pub(super) mod places;
pub(super) mod snapshot;
pub(super) mod suspending;
