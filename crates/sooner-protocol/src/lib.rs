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
//!   [`control::ControlCore`] is the control service of a cluster, one for all nodes; where everything runs
//!   on one machine, its [`control::Directory`] of actors, names and checkpoints is enough.
//!   [`engine::Engine`] is a node with its way to the control service: in the same process
//!   ([`engine::Solo`]), or elsewhere ([`node::uplink::Member`]).
//! - Between nodes, [`session::Link`] keeps messages in order over connections that can be cut.
//!
//! The shell around a core has one loop. It carries out actions in order, and before the next wait. It gives
//! the core the time with each batch, and wakes the core at its deadline even if nothing came:
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
//!         node.after_events(shell.now(), &mut out);
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
//! One turn of the loop has an order. In a process: of what one look at the sockets brought, first the
//! messages of other processes, then the node's; then what waited for the end of a connection; then timers;
//! then all that is to be sent; then the results for the user's threads. In a node: messages, `settle`, the
//! actions, the requests that wait for memory, then all that is to be sent.
//!
//! Three rules concern more than one list of actions. The shell has the sockets, and asks these types:
//!
//! - A process sends what is for its node before what is for others, and sends nothing to others while the
//!   node's socket is full: [`session::FlushOrder`].
//! - The answer to a death (`HeldFrom`) goes behind everything that was sent before, even to others. It waits
//!   until that has left for processes of the same node, and has arrived at processes of other nodes:
//!   [`session::goes_behind`] and [`session::Behind`].
//! - The connection of a dead process is read to its end before the core learns of the death, and what the
//!   node sends behind that message waits, too. A connection within a node ends at once; for one to another
//!   node, [`session::HeldNews`] limits the wait.
//!
//! Retries and their pauses: [`session::Redial`] (peers to dial), [`worker::memory::Allocation`] (a block of
//! memory), [`node::objects::Creations`] (requests that wait for one), and [`node::objects::Permit`]
//! (requests of other nodes that come too early). `docs/adr/0104` lists what stays with the shells.
//!
//! Production, the simulator and the tests run the same code. `scenarios/` has runs of it as text: the
//! messages that an operation takes.
//!
//! Modules use one another downwards only (`tools/tidy_rust.py` has the arrows): `engine` contains `node` and
//! `control`, which both speak through `uplink`; `worker` knows neither; `scheduling` and `session` know none
//! of them.

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
