//! A cluster in virtual time: one head with its disk, and up to a thousand nodes that join, beat, fall
//! silent, die and come back.
//!
//! The head is the production core (`sooner_protocol::control::ControlCore`), and so is a node's half
//! (`node::uplink::reporter`). Models stand for the runtime around them: connections ([`conns`]), dialling
//! ([`daemons`]), the service ([`head`]), the store ([`disk`]). A seed decides the events and the faults
//! ([`faults`]). [`truth`] knows the true state, and checks the head against it at every step and at the end.
//!
//! The only time is [`world::World::now`], and only the seed decides anything: a seed gives the same trace on
//! every machine.

pub mod conns;
pub mod counts;
pub mod daemons;
pub mod disk;
pub mod faults;
pub mod head;
pub mod plan;
pub mod truth;
pub mod world;
