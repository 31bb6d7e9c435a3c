//! Builders that tests of several rooms share.

#![allow(dead_code, reason = "each test takes what it needs")]

use sooner_wire::message::{NodeGone, Outcome, Reply, Return, WorkerGone};
use sooner_wire::{NodeId, ResourceSet, TaskId, WorkerId};

/// So many CPUs, and nothing else.
pub fn cpus(count: f64) -> ResourceSet {
    ResourceSet::from_amounts([("CPU".to_owned(), count)])
}

/// The end of a process, of which nothing more is known.
pub fn worker_gone(worker: WorkerId, reason: &str) -> WorkerGone {
    WorkerGone { worker, reason: reason.to_owned(), ..WorkerGone::default() }
}

/// The end of a node.
pub fn node_gone(node: NodeId) -> NodeGone {
    NodeGone { node, reason: String::new() }
}

/// A value without references inside.
pub fn plain(outcome: Outcome) -> Return {
    Return { outcome, contained: Vec::new() }
}

/// A task has ended after so many nanoseconds, and holds nothing on.
pub fn reply_of(task: TaskId, returns: Vec<Return>, nanos: u64) -> Reply {
    Reply { task, returns, held: Vec::new(), nanos, retry: false, timing: None, not_run: None }
}
