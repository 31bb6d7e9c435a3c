//! The tasks this process has submitted and that have not ended (Ownership, table 2: the creating task).
//!
//! A pending task keeps its description until the reply, so that it can be pushed again. It is in exactly one
//! state. It never decides where a task runs.

use std::sync::Arc;

use weft_wire::message::TaskSpec;
use weft_wire::{TaskId, WorkerId};

use super::Passed;
use crate::table::Map;
use crate::time::Instant;

/// Where a pending task is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Waits for the outcome of this many dependencies.
    Waiting {
        /// Dependencies without an outcome.
        missing: u32,
    },
    /// Waits for a lease or for its turn with an actor.
    Queued,
    /// Its worker crashed, and crashes before: it waits for a while.
    Delayed {
        /// Until when.
        until: Instant,
    },
    /// Sent to a worker.
    Pushed {
        /// Which.
        worker: WorkerId,
        /// How long it was taken to run (nanoseconds).
        estimate: u64,
        /// An argument may have to be brought there first: tasks that were sent after it may begin before it.
        may_wait: bool,
    },
}

/// A submitted task.
#[derive(Debug, Clone)]
pub struct Pending {
    /// Its description.
    pub spec: Arc<TaskSpec>,
    /// Where it is.
    pub state: State,
    /// Executions still allowed after a system failure; -1 for ever.
    pub retries: i32,
    /// It was cancelled: it is not executed again.
    pub cancelled: bool,
    /// It has ended before; its results, or some of them, are lost.
    pub recovers: bool,
    /// Workers that ended while they ran it.
    pub crashes: u8,
    /// Workers that its node stopped while they ran it, because memory ran out.
    pub memory_ends: u8,
    /// The task that submitted it, for recursive cancellation.
    pub parent: Option<TaskId>,
    /// When it passed what.
    pub passed: Passed,
}

impl Pending {
    /// The task and how long it was taken to run, if it is with a worker.
    pub fn pushed(&mut self) -> Option<(&mut Self, u64)> {
        match self.state {
            State::Pushed { estimate, .. } => Some((self, estimate)),
            State::Waiting { .. } | State::Queued | State::Delayed { .. } => None,
        }
    }

    /// An execution ended, and the task waits for another.
    pub fn repeat(&mut self, now: Instant) {
        self.passed.attempt = self.passed.attempt.saturating_add(1);
        self.passed.ready = now;
    }
}

/// All pending tasks, by number.
#[derive(Debug, Default)]
pub struct Pendings {
    tasks: Map<u64, Pending>,
}

impl Pendings {
    /// Enters a task.
    pub fn insert(&mut self, pending: Pending) {
        self.tasks.insert(pending.spec.task.number, pending);
    }

    /// Looks a task up.
    #[must_use]
    pub fn get(&self, number: u64) -> Option<&Pending> {
        self.tasks.get(&number)
    }

    /// Looks a task up to change it.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut Pending> {
        self.tasks.get_mut(&number)
    }

    /// Takes a task out: it has ended.
    pub fn remove(&mut self, number: u64) -> Option<Pending> {
        self.tasks.swap_remove(&number)
    }

    /// Tasks that `parent` submitted.
    #[must_use]
    pub fn children(&self, parent: TaskId) -> Vec<u64> {
        self.tasks.iter().filter(|(_, p)| p.parent == Some(parent)).map(|(n, _)| *n).collect()
    }

    /// Every pending task.
    pub fn iter(&self) -> impl Iterator<Item = &Pending> {
        self.tasks.values()
    }

    /// Number of pending tasks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether nothing is pending.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }
}
