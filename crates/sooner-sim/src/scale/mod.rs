//! A whole cluster in virtual time, up to some thousand nodes: the control service, schedulers and transfers
//! as they run in production, over machines and a network that a seed disturbs.
//!
//! The head is a `ControlCore`; every node is a `Member` with processes that are `WorkerCore`s. What drivers
//! do is scripted ([`script`]): they ask for leases, hold them and give them back, create actors, own values
//! and pull those of others. Models stand for the rest: sessions between two ends ([`net`]), uplinks that
//! carry values ([`uplinks`]), processes that start and end, and the head's disk. What connections do to
//! sessions is [`crate::cluster`]'s and the runtime's to test. [`truth`] knows what is so.
//!
//! There is no time here but [`world::World::now`], and nothing outside the seed decides anything.

pub mod counts;
pub mod faults;
pub mod head;
pub mod losses;
pub mod meter;
pub mod net;
pub mod node;
pub mod plan;
pub mod process;
pub mod report;
pub mod script;
pub mod truth;
pub mod uplinks;
pub mod world;
