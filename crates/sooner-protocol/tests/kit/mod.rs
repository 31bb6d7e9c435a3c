//! Builders that tests of several rooms share.

#![allow(dead_code, reason = "each test takes what it needs")]

use sooner_wire::message::{NodeDead, Outcome, Reply, Return, WorkerDead};
use sooner_wire::{NodeId, ResourceSet, TaskId, WorkerId};

/// So many CPUs, and nothing else.
pub fn cpus(count: f64) -> ResourceSet {
    ResourceSet::from_amounts([("CPU".to_owned(), count)])
}

/// The end of a process, of which nothing more is known.
pub fn worker_dead(worker: WorkerId, reason: &str) -> WorkerDead {
    WorkerDead { worker, reason: reason.to_owned(), ..WorkerDead::default() }
}

/// The end of a node.
pub fn node_dead(node: NodeId) -> NodeDead {
    NodeDead { node, reason: String::new() }
}

/// A value without references inside.
pub fn plain(outcome: Outcome) -> Return {
    Return { outcome, contained: Vec::new() }
}

/// A task has ended after so many nanoseconds, and holds nothing on.
pub fn reply_of(task: TaskId, returns: Vec<Return>, nanos: u64) -> Reply {
    Reply { task, returns, held: Vec::new(), nanos, retry: false, timing: None, not_run: None }
}
