//! What is decided: the protocols of sooner as deterministic state machines.
//!
//! The contract of this crate:
//! - A core is a struct; events come in by handlers named after them, with the time as an argument; what the
//!   core wants done comes out as [`worker::action::Action`]s (or [`node::NodeAction`]s,
//!   [`control::ControlAction`]s).
//! - Nothing here opens a socket, reads a clock, starts a thread, takes a lock, draws a random number or
//!   reads the environment. Ids and seeds come in. Iteration order is defined everywhere. `clippy.toml`
//!   enforces it.
//! - Messages to one peer stay in order; nothing is assumed about order between peers.
//! - [`worker::WorkerCore`] is a driver's or worker's half: ownership, tasks, leases, actor calls, execution.
//!   [`node::NodeCore`] is a node's half: resources, leases, worker pool, block holders, processes of actors.
//!   [`control::ControlCore`] is the control service of a cluster, one for all nodes; its
//!   [`control::Directory`] of actors, names and checkpoints is all of it that one machine needs.
//!   [`engine::Engine`] is a node with its way to the control service: carried in it ([`engine::Solo`]), or
//!   elsewhere ([`node::uplink::Member`]).
//! - Between nodes, "in order" is what [`session::Link`] makes of connections that can be cut.
//!
//! The shell that carries a core has one loop. Actions are carried out in order, and before the next wait;
//! the core is told the time with each batch, and woken at its deadline although nothing came:
//!
//! ```
//! use sooner_protocol::engine::{Engine, Part};
//! use sooner_protocol::node::NodeAction;
//! use sooner_protocol::time::Instant;
//! use sooner_protocol::wire::message::Message;
//! use sooner_protocol::wire::{ResourceSet, WorkerId};
//!
//! /// What the surroundings offer: messages that have come, a clock, and somebody who carries actions out.
//! trait Shell {
//!     fn wait_until(&mut self, deadline: Option<Instant>) -> Option<Vec<(WorkerId, Message)>>;
//!     fn now(&self) -> Instant;
//!     fn carry_out(&mut self, action: NodeAction);
//! }
//!
//! fn run(mut node: Engine, shell: &mut impl Shell) {
//!     let mut out = Vec::new();
//!     while let Some(batch) = shell.wait_until(node.next_deadline()) {
//!         for (from, message) in batch {
//!             // What comes back is the shell's own: a block of memory is to be allocated.
//!             let _for_the_store = node.on_message(from, message, shell.now(), &mut out);
//!         }
//!         node.settle(shell.now(), &mut out);
//!         for action in out.drain(..) {
//!             shell.carry_out(action);
//!         }
//!     }
//! }
//! # struct Nothing;
//! # impl Shell for Nothing {
//! #     fn wait_until(&mut self, _: Option<Instant>) -> Option<Vec<(WorkerId, Message)>> { None }
//! #     fn now(&self) -> Instant { Instant(0) }
//! #     fn carry_out(&mut self, _: NodeAction) {}
//! # }
//! # run(Engine::new(ResourceSet::default(), 1 << 20, 1, Part::Alone), &mut Nothing);
//! ```
//!
//! One turn of the loop has an order. In a process: of what one look at the sockets has brought, what came
//! from other processes, then what came from the node; then what waits for the end of a line; then timers;
//! then everything that is to be sent; then what the user's threads are told. In a node: what came, then
//! `settle`, then the actions, then those who wait for memory, then everything that is to be sent.
//!
//! Three rules reach beyond one list of actions. The shell has the sockets, and asks these:
//!
//! - What a process sends its node leaves before what it sends others, and nothing leaves for others while
//!   the node's socket is full: [`session::FlushOrder`].
//! - An answer to the news of a death (`HeldFrom`) goes behind all that was sent before, also to others. It
//!   waits until that has left for a process of the same node, and has arrived at one of another:
//!   [`session::goes_behind`] and [`session::Behind`].
//! - The line of a process that is gone is read to its end before the core hears that it is, and what the
//!   node says behind that news waits, too. A line within a node ends at once; of another node's,
//!   [`session::HeldNews`] says how long it is waited for.
//!
//! What is tried again, and after which pause: [`session::Redial`] (who is dialled),
//! [`worker::memory::Allocation`] (a block of memory), [`node::objects::Creations`] (who waits for one), and
//! [`node::objects::Permit`] (what another node asks for too early). `docs/adr/0104` lists what stays with
//! the shells.
//!
//! Production, the simulator and the tests run the same code. `scenarios/` has runs of it as text: what
//! messages a thing takes.
//!
//! Rooms know one another downwards only (`tools/tidy_rust.py` has the arrows): `engine` carries `node` and
//! `control`, both speak through `uplink`; `worker` knows neither; `scheduling` and `session` know none of
//! them.

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
