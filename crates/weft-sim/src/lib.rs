//! What could happen: a deterministic simulator over the cores of weft.
//!
//! [`world::World`] holds a node, a driver and workers as the same cores that run in production, and carries their
//! messages in an order that a seed decides. The processes run programs ([`program`]) that a seed draws, under faults
//! ([`faults`]) that it draws too; the oracle knows what may come of each task, and the [`invariants`] hold the run
//! against it. Faults stop after a while; then everything must finish and nothing may be left.
//!
//! One node: many of them, networks that lose or repeat single messages, and sessions that are resumed come with the
//! cluster. The simulator has no sockets, clocks or threads of its own; [`runner`] runs many seeds on many threads.

pub mod bank;
pub mod explore;
pub mod faults;
pub mod invariants;
pub mod oracle;
pub mod plan;
pub mod program;
pub mod random;
pub mod rare;
pub mod runner;
pub mod trace;
pub mod violation;
pub mod world;
