//! Actors on a node: those that have a process here or wait for one, and who here hears of actors anywhere.

pub(super) mod local_actors;
pub(super) mod places;
pub(super) mod snapshot;
pub(super) mod suspending;
