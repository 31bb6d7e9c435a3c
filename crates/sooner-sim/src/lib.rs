//! What could happen: a deterministic simulator over the cores of sooner.
//!
//! [`world::World`] holds nodes, drivers and workers, as the same cores that run in production. A seed
//! decides the order in which their messages arrive, the programs that the processes run ([`program`]), and
//! the faults ([`faults`]). The oracle knows the legal outcomes of each task, and the [`invariants`] check
//! the run against it. Faults stop after a while; then everything must finish and nothing may be left.
//!
//! A line between processes is a Unix socket or, as between machines, a session over connections that are cut
//! ([`lines`]). Where there are several nodes, the control service is apart from them. The simulator has no
//! sockets, clocks or threads of its own; [`runner`] runs many seeds on many threads.
//!
//! Three worlds stand alone: [`cluster`], a head and the nodes that join it; [`scale`], the same with
//! schedulers, directory and transfers, up to some thousand nodes; and [`transfer`], which measures
//! broadcasts in virtual time.

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
