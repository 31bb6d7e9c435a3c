//! A cluster in virtual time: one head with its disk, and up to a thousand nodes that join, beat, fall
//! silent, die and come back.
//!
//! The head is the core that runs in production (`sooner_protocol::control::ControlCore`), and so is a
//! node's half (`node::uplink::reporter`). Around them are models of what the runtime does with them:
//! connections ([`conns`]), dialling ([`daemons`]), the service ([`head`]), the store ([`disk`]). A seed
//! decides who does what when, and what goes wrong ([`faults`]). [`truth`] knows what is so and holds the
//! head against it, at every step and when the faults are over.
//!
//! There is no time here but [`world::World::now`], and nothing outside the seed decides anything: a seed
//! gives the same trace on every machine.

pub mod conns;
pub mod counts;
pub mod daemons;
pub mod disk;
pub mod faults;
pub mod head;
pub mod plan;
pub mod truth;
pub mod world;
