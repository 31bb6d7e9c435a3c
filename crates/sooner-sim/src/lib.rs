//! What could happen: a deterministic simulator over the cores of sooner.
//!
//! [`world::World`] holds nodes, a driver and workers as the same cores that run in production, and carries
//! their messages in an order that a seed decides. The processes run programs ([`program`]) that a seed
//! draws, under faults ([`faults`]) that it draws too; the oracle knows what may come of each task, and the
//! [`invariants`] hold the run against it. Faults stop after a while; then everything must finish and nothing
//! may be left.
//!
//! Lines between processes are Unix sockets, or sessions over connections that are cut ([`lines`]), as
//! between machines. Where there are several nodes, the control service is apart from them. The simulator has
//! no sockets, clocks or threads of its own; [`runner`] runs many seeds on many threads.
//!
//! Three are worlds of their own: [`cluster`], a head and the nodes that join it; [`scale`], the same with
//! schedulers, directory and transfers, up to some thousand nodes; and [`transfer`], how long a broadcast
//! takes in virtual time.

pub mod bank;
pub mod cluster;
pub mod explore;
pub mod faults;
pub mod invariants;
pub mod lines;
pub mod oracle;
pub mod plan;
pub mod program;
pub mod random;
pub mod rare;
pub mod runner;
pub mod scale;
pub mod seeds;
pub mod trace;
pub mod transfer;
pub mod violation;
pub mod world;
