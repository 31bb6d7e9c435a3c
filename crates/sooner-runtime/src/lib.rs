//! The shells around the state machines: they provide sockets, clocks and threads, and carry out decisions.
//!
//! [`client`] runs a [`sooner_protocol::worker::WorkerCore`] in a driver or worker. [`node`] runs a
//! [`sooner_protocol::engine::Solo`], as a thread of the driver or of a process of its own ([`daemon`]).
//! [`template`] is the loop of the fork server, [`logs`] brings the output of workers to the driver,
//! [`session`] makes and removes a node's directory, [`private`] tells this user's files from those that
//! another user put in their place, [`tool`] queries a running node, [`metrics`] collects what user code
//! measures, [`identity`] proves to other machines who a process is, [`machine`] reports the memory there is,
//! [`control`] keeps what must survive a cluster's head. Every loop waits with a [`poller`]. There is no
//! Python here: the bindings plug in through [`client::Hooks`] and [`logs::Sink`].

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
pub mod poller;
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
