//! What is decided: the protocols of sooner as deterministic state machines.
//!
//! The contract of this room:
//! - A core is a struct; events come in by handlers named after them, with the time as an argument; what the core
//!   wants done comes out as [`action::Action`]s (or [`node::NodeAction`]s), to be carried out in order.
//! - Nothing here opens a socket, reads a clock, starts a thread, takes a lock, draws a random number or reads the
//!   environment. Ids and seeds come in. Iteration order is defined everywhere. `clippy.toml` enforces it.
//! - Messages to one peer stay in order; nothing is assumed about order between peers.
//! - [`worker::WorkerCore`] is a driver's or worker's half: ownership, tasks, leases, actor calls, execution.
//!   [`node::NodeCore`] is a node's half: resources, leases, worker pool, block holders, processes of actors.
//!   [`control::ControlCore`] is the control service of a cluster, one for all nodes; its [`control::Directory`] of actors, names
//!   and checkpoints is all of it that one machine needs. [`engine::Engine`] is a node with its way to the control service: carried
//!   in it ([`solo::Solo`]), or elsewhere ([`member::Member`]).
//! - Between nodes, "in order" is what [`session::Link`] makes of connections that can be cut.
//!
//! Production, the simulator and the tests run the same code.

pub mod control;
pub mod engine;
mod failures;
pub mod node;
mod pace;
pub mod probes;
pub mod scheduling;
pub mod session;
pub mod table;
pub mod time;
pub mod uplink;
pub mod worker;

pub use sooner_wire as wire;
