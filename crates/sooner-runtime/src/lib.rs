//! What is done: the shells that give the state machines sockets, clocks and threads.
//!
//! [`client`] carries a [`sooner_protocol::worker::WorkerCore`] in a driver or worker, [`node`] carries a
//! [`sooner_protocol::engine::Solo`] as a thread of the driver or of a process of its own ([`daemon`]),
//! [`template`] is the fork server's loop, [`logs`] brings what workers print to the driver, [`session`]
//! makes and removes a node's directory, [`private`] tells what is this user's from what another one has made
//! in its stead, [`tool`] asks a running node about itself, [`metrics`] collects what user code measures,
//! [`identity`] proves to other machines who a process is, [`machine`] tells how much memory there is,
//! [`control`] keeps what must survive a cluster's head. There is no Python here: the bindings plug in
//! through [`client::Hooks`] and [`logs::Sink`].

// `println!` and `eprintln!` panic where nobody can read them, and a thread that panics takes a node or a
// program with it.
#![cfg_attr(not(test), warn(clippy::print_stderr, clippy::print_stdout))]

pub mod client;
pub mod clock;
pub mod control;
pub mod daemon;
pub mod groups;
mod held;
pub mod identity;
pub mod logs;
pub mod machine;
pub mod metrics;
pub mod node;
pub mod owned;
pub mod private;
#[cfg(test)]
mod scratch;
pub mod session;
pub mod template;
pub mod tool;
pub mod transport;
pub mod ulimits;
pub mod wait;

pub use sooner_protocol as protocol;
pub use sooner_store as store;
pub use sooner_wire as wire;
