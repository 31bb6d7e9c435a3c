//! The oracle: the legal outcomes of every task, actor and object. It sees the whole run, and
//! [`crate::invariants`] checks what processes observe against it.
//!
//! Payloads are unique: a task's payload is a hash of its code and of its arguments' payloads. So a value
//! shows which task made it, and a repeated execution must make the same value.

use rustc_hash::{FxHashMap, FxHashSet};
use sooner_wire::{ActorId, ObjectId, TaskId};

use crate::program::Method;
use crate::random::mix_two;
use crate::world::Item;

mod states;

pub use states::{Answered, Answers, State};

/// When a task raises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Raises {
    /// It does not.
    Never,
    /// Each time.
    Always,
    /// In this many first executions.
    First(u32),
}

/// What a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A plain task.
    Task,
    /// A call of an actor.
    Call(ActorId, Method),
    /// The constructor of an actor.
    Creation,
    /// A value that was put.
    Put,
}

/// One task, or one value that was put.
#[derive(Debug, Clone)]
pub struct Fact {
    /// What it is.
    pub kind: Kind,
    /// The bytes of its arguments, unique to the task.
    pub code: u64,
    /// How many more levels of tasks it may submit.
    pub depth: u8,
    /// Executions that it may have beyond the first; -1: any number.
    pub retries: i32,
    /// Items it yields, if it streams.
    pub items: Option<u32>,
    /// When it raises.
    pub raises: Raises,
    /// Its worker ends after it.
    pub retires: bool,
    /// Its arguments.
    pub dependencies: Box<[ObjectId]>,
    /// The task that submitted it.
    pub parent: Option<TaskId>,
    /// The hash from which its values are derived, if it is known before the task runs.
    pub payload: Option<u64>,
    /// If not: the hash in each of its executions.
    pub seen: Vec<u64>,
    /// Executions that began.
    pub begun: u32,
    /// How many of those ended with their process.
    pub crashed: u32,
    /// An execution raised.
    pub has_raised: bool,
    /// A program asked for its cancellation.
    pub is_cancelled: bool,
    /// Its owner asked for its cancellation: it must not be pushed any more.
    pub must_not_begin: bool,
    /// `Some` for a call of an actor with checkpoints: whether the call changes the state.
    pub kept: Option<bool>,
    /// Answers that callers had read when the call was made, see [`Answers::now`].
    pub asked_at: u64,
    /// Its caller has read its reply: every later state contains it.
    pub is_answered: bool,
    /// The hash of its values when it was answered.
    pub answered_base: Option<u64>,
    /// The call failed, and no state may contain it.
    pub is_given_up: bool,
}

impl Fact {
    /// A task of which only kind and code are known.
    #[must_use]
    pub fn new(kind: Kind, code: u64) -> Self {
        Self {
            kind,
            code,
            depth: 0,
            retries: 0,
            items: None,
            raises: Raises::Never,
            retires: false,
            dependencies: Box::default(),
            parent: None,
            payload: None,
            seen: Vec::new(),
            begun: 0,
            crashed: 0,
            has_raised: false,
            is_cancelled: false,
            must_not_begin: false,
            kept: None,
            asked_at: 0,
            is_answered: false,
            answered_base: None,
            is_given_up: false,
        }
    }
}

/// One actor.
#[derive(Debug, Clone)]
pub struct ActorFact {
    /// Processes that may replace a failed one; -1: any number.
    pub restarts: i32,
    /// It lives on when no handle is left.
    pub is_detached: bool,
    /// Its calls need no order.
    pub is_unordered: bool,
    /// It has concurrency groups.
    pub has_groups: bool,
    /// Retries of its calls.
    pub retries: i32,
    /// How many of its processes have ended.
    pub deaths: u32,
    /// The program ended it, or it ended itself.
    pub is_ended: bool,
    /// The program ended its process, and the actor may restart.
    pub is_restarted: bool,
    /// Its constructor raises.
    pub raises: bool,
    /// Executions of its constructor.
    pub incarnations: u32,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Calls between two checkpoints.
    pub checkpoint_every: Option<u32>,
    /// A kept call brought references. They may lead back to the actor, and nothing collects such a cycle.
    pub may_hold_itself: bool,
    /// It holds a CPU for as long as it lives.
    pub holds_cpu: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Oracle {
    /// Tasks, calls, constructors and values that were put.
    pub facts: FxHashMap<TaskId, Fact>,
    /// Actors.
    pub actors: FxHashMap<ActorId, ActorFact>,
    /// Tasks and put values of which a program has freed an object early.
    pub freed: FxHashSet<TaskId>,
    /// How often blocks of shared memory were lost.
    pub losses: u64,
    /// How often a node could start no process for long: requests that wait for a process fail then.
    pub lacks: u64,
    /// Nodes without room drop values that tasks can make again, so finished tasks may begin once more.
    pub recomputes: bool,
    /// States that checkpoints saved, by the content of the saved value.
    pub states: FxHashMap<u64, (ActorId, State)>,
    /// Answered calls of actors with checkpoints.
    pub answers: Answers,
    /// Streaming tasks whose reader left before the end: they may be cancelled.
    pub left_streams: FxHashSet<TaskId>,
}

impl Oracle {
    /// The content of a task's value number `index`, given the hash from which its values are derived.
    #[must_use]
    pub fn value(base: u64, index: u32) -> u64 {
        mix_two(base, u64::from(index) + 1)
    }

    /// The content that an object must have, if that is known before it is made.
    #[must_use]
    pub fn expected(&self, object: ObjectId) -> Option<u64> {
        self.facts.get(&object.task)?.payload.map(|base| Self::value(base, object.index))
    }

    /// The hash from which the values of a task with these arguments are derived, if all arguments are known.
    #[must_use]
    pub fn base(&self, code: u64, dependencies: &[ObjectId]) -> Option<u64> {
        dependencies.iter().try_fold(code, |base, object| Some(mix_two(base, self.expected(*object)?)))
    }

    /// A task is pushed to a worker.
    pub fn on_pushed(&mut self, task: TaskId) {
        if let Some(fact) = self.facts.get_mut(&task)
            && fact.must_not_begin
            && !fact.is_answered
            && self.losses == 0
            && !self.recomputes
        {
            crate::violation::fail("W2", format!("{task:?} was cancelled, and is pushed"));
        }
    }

    /// These items were lost with their sender or their receiver.
    pub fn on_lost<'a>(items: impl IntoIterator<Item = &'a Item>) {
        items.into_iter().for_each(crate::rare::record_lost);
    }

    /// Whether cancellation was asked for a task or one of its ancestors.
    #[must_use]
    pub fn is_cancelled(&self, task: TaskId) -> bool {
        let mut task = Some(task);
        while let Some(at) = task {
            let Some(fact) = self.facts.get(&at) else { return false };
            if fact.is_cancelled || self.left_streams.contains(&at) {
                return true;
            }
            task = fact.parent;
        }
        false
    }
}
