//! What may come of every task, actor and object: the facts that a god's view of the run has, against which
//! [`crate::invariants`] holds what processes see.
//!
//! Payloads are unique: a task's is a hash of its code and of the payloads that its arguments have, so a
//! value says where it comes from, and an execution that is repeated must give the same.

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
    /// In so many first executions.
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
    /// Its arguments' bytes.
    pub code: u64,
    /// How deep it may nest.
    pub depth: u8,
    /// Executions beyond the first that it may have; -1 for ever.
    pub retries: i32,
    /// Items it yields, if it streams.
    pub items: Option<u32>,
    /// When it raises.
    pub raises: Raises,
    /// Its worker ends after it.
    pub retires: bool,
    /// Its arguments.
    pub dependencies: Box<[ObjectId]>,
    /// Who submitted it.
    pub parent: Option<TaskId>,
    /// What its values are made of, if that is known before it runs.
    pub payload: Option<u64>,
    /// What they were made of in its executions, if not.
    pub seen: Vec<u64>,
    /// Executions that began.
    pub begun: u32,
    /// Of those, how many ended with their process.
    pub crashed: u32,
    /// An execution raised.
    pub has_raised: bool,
    /// Somebody asked for its cancellation.
    pub is_cancelled: bool,
    /// Its owner did, when it was nowhere: it must not begin any more.
    pub must_not_begin: bool,
    /// A call of an actor with checkpoints: whether it changes the state.
    pub kept: Option<bool>,
    /// Answers when it was made, see [`Answers::now`].
    pub asked_at: u64,
    /// Its caller has read its reply: it is in every later state.
    pub is_answered: bool,
    /// What its values were made of then.
    pub answered_base: Option<u64>,
    /// It failed and is in no state.
    pub is_given_up: bool,
}

impl Fact {
    /// A task that nothing is known of yet.
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
    /// Processes that may take over; -1 for ever.
    pub restarts: i32,
    /// It lives on without handles.
    pub is_detached: bool,
    /// Its calls need no order.
    pub is_unordered: bool,
    /// It has concurrency groups.
    pub has_groups: bool,
    /// What its calls may be repeated.
    pub retries: i32,
    /// Processes of it that ended.
    pub deaths: u32,
    /// The program ended it, or it ended itself.
    pub is_ended: bool,
    /// The program ended its process.
    pub is_restarted: bool,
    /// Its constructor raises.
    pub raises: bool,
    /// Executions of its constructor.
    pub incarnations: u32,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Calls between two checkpoints.
    pub checkpoint_every: Option<u32>,
    /// A call that is kept brought references: they may lead back to the actor, and nobody resolves that.
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
    /// Tasks and values that were put of which a program has given up an object early.
    pub freed: FxHashSet<TaskId>,
    /// How often blocks of shared memory were lost.
    pub losses: u64,
    /// How often a node could start no processes for long: what waits for one fails.
    pub lacks: u64,
    /// Nodes without room drop values that tasks can make again: tasks that have ended begin once more.
    pub recomputes: bool,
    /// States that checkpoints saved, by what the saved value is.
    pub states: FxHashMap<u64, (ActorId, State)>,
    /// Calls of actors with checkpoints whose callers have the answer.
    pub answers: Answers,
    /// Readers left streams before their ends: their tasks may be cancelled.
    pub left_streams: FxHashSet<TaskId>,
}

impl Oracle {
    /// What a value of a task is, given what the task's values are made of.
    #[must_use]
    pub fn value(base: u64, index: u32) -> u64 {
        mix_two(base, u64::from(index) + 1)
    }

    /// What an object must hold, if that is known before it is made.
    #[must_use]
    pub fn expected(&self, object: ObjectId) -> Option<u64> {
        self.facts.get(&object.task)?.payload.map(|base| Self::value(base, object.index))
    }

    /// What the values of a task with these arguments are made of, if all of them are known.
    #[must_use]
    pub fn base(&self, code: u64, dependencies: &[ObjectId]) -> Option<u64> {
        dependencies.iter().try_fold(code, |base, object| Some(mix_two(base, self.expected(*object)?)))
    }

    /// A task leaves for a worker.
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

    /// These were lost with the process that sent or should have read them.
    pub fn on_lost<'a>(items: impl IntoIterator<Item = &'a Item>) {
        items.into_iter().for_each(crate::rare::note_lost);
    }

    /// Whether a task, or one that submitted it, was asked to be cancelled.
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
