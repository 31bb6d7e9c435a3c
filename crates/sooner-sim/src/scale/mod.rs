//! A whole cluster in virtual time, up to some thousand nodes: the control service, schedulers and transfers
//! as they run in production, over machines and a network that a seed disturbs.
//!
//! The head is a `ControlCore`; every node is a `Member` with processes that are `WorkerCore`s. Drivers
//! follow a script ([`script`]): they ask for leases, hold them and give them back, create actors, own values
//! and pull those of others. Models stand for the rest: sessions between two ends ([`net`]), uplinks that
//! carry values ([`uplinks`]), starts and ends of processes, and the head's disk. [`crate::cluster`] and the
//! runtime test how sessions survive their connections. [`truth`] knows the true state.
//!
//! The only time is [`world::World::now`], and only the seed decides anything.

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
