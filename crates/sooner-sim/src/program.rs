//! The programs that run in every process of the simulated world.
//!
//! A frame is one running function: the driver's program, a task, a call of an actor. Its next operation is
//! drawn when it has its turn ([`operations`]); it may wait for objects, time, a reader, or an answer of the
//! node. What its values are made of depends on its code and arguments only, so that the oracle knows them;
//! all else is chance.
//!
//! No program waits for itself: a task waits for what it submitted and for what it was given, which existed
//! before it; calls of an actor wait for tasks without arguments only; references that come out of an actor's
//! state, which may be of any age, stay with the driver; a task that finds an actor by its name waits for its
//! calls only if the constructor needs nothing.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use sooner_protocol::worker::execution::Incoming;
use sooner_protocol::worker::ownership::Slot;
use sooner_wire::message::Outcome;
use sooner_wire::{ActorId, ObjectId, TaskId, WorkerId};

use crate::oracle::State;

mod actors;
mod begin;
mod checkpoints;
mod end;
mod operations;
mod streams;
mod turns;
mod values;

/// What a call of an actor does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Counts.
    Count,
    /// Looks at an actor with checkpoints, and changes nothing.
    Read,
    /// Keeps the references that it is given.
    Keep,
    /// Returns one that it keeps.
    Hand,
    /// Drops what it keeps.
    Forget,
    /// Submits a task; waits for it, or returns its reference.
    Spawn,
    /// Ends the actor.
    Exit,
}

/// A handle of an object.
#[derive(Debug)]
pub struct Reference {
    /// The object.
    pub id: ObjectId,
    /// Where its outcome appears in this process.
    pub slot: Arc<Slot>,
    /// It is the handle of an actor.
    pub is_actor: bool,
    /// Its frame may wait for it; for calls of it, if it is the handle of an actor.
    pub may_wait: bool,
    /// It may be handed on.
    pub may_pass: bool,
}

/// The actor in a process.
#[derive(Debug)]
pub struct Instance {
    /// Which.
    pub actor: ActorId,
    /// The constructor has ended.
    pub is_constructed: bool,
    /// Calls that have run here.
    pub count: u64,
    /// Which process of the actor this is.
    pub incarnation: u32,
    /// References in its state.
    pub kept: Vec<Reference>,
    /// It has checkpoints.
    pub has_checkpoints: bool,
    /// One is to be taken before the next call.
    pub is_due: bool,
    /// The calls that its state has seen, if it has checkpoints.
    pub state: State,
    /// How many answered calls of each caller are known to be in it.
    pub checked: FxHashMap<WorkerId, usize>,
    /// Calls at a time: in each concurrency group, or in all.
    pub groups: Vec<u32>,
    /// Calls at a time over all.
    pub concurrency: u32,
    /// Its calls need no order.
    pub is_unordered: bool,
    /// The latest call that began, by caller and group.
    pub latest: FxHashMap<(WorkerId, Option<u32>), u64>,
}

impl Instance {
    /// Calls that may run at a time.
    #[must_use]
    pub fn places(&self) -> usize {
        if self.is_constructed { self.concurrency.max(1) as usize } else { 1 }
    }
}

/// Someone who reads the items of a streaming task.
#[derive(Debug)]
pub struct Reader {
    task: TaskId,
    taken: u32,
    has_failed: bool,
    has_lost: bool,
}

/// What a frame waits for.
#[derive(Debug)]
pub enum Wait {
    /// It runs.
    Nothing,
    /// All of these have an outcome.
    All(Vec<(ObjectId, Arc<Slot>)>),
    /// One of these has an outcome, or it is that late.
    Any(Vec<(ObjectId, Arc<Slot>)>, u64),
    /// It is that late.
    Time(u64),
    /// The reader of its items has taken so many.
    Reading(u32),
    /// The node's answer.
    Answer(u64),
    /// The end of its process.
    End,
}

/// One running function. See the module.
#[derive(Debug)]
pub struct Frame {
    /// Its number in the run.
    pub number: u64,
    /// Its task; the driver's program has none.
    pub task: Option<TaskId>,
    /// What it waits for.
    pub wait: Wait,
    /// It was cancelled.
    pub is_interrupted: bool,
    incoming: Option<Incoming>,
    code: u64,
    depth: u8,
    operations: u32,
    locals: Vec<Reference>,
    readers: Vec<Reader>,
    /// Arguments that were values: read again at the end.
    values: Vec<(ObjectId, Outcome)>,
    /// What its values are made of.
    base: u64,
    yielded: u32,
    /// It raises what a `get` raised.
    raises: bool,
    method: Option<Method>,
}

impl Frame {
    /// Its state in words.
    #[must_use]
    pub fn describe(&self) -> String {
        let wait = match &self.wait {
            Wait::All(slots) => {
                let open = slots.iter().filter(|(_, slot)| !slot.has_outcome()).map(|(id, _)| *id);
                format!("for all of {:?}", open.collect::<Vec<_>>())
            }
            Wait::Any(slots, until) => format!("for one of {} objects until {until}", slots.len()),
            other => format!("{other:?}"),
        };
        format!(
            "{:?} (method {:?}, {} operations left) waits {wait}",
            self.task, self.method, self.operations
        )
    }

    /// The concurrency group of the actor call that it is. One that has ended the actor takes no place any
    /// more.
    #[must_use]
    pub fn call_group(&self) -> Option<Option<u32>> {
        if matches!(self.wait, Wait::End) {
            return None;
        }
        self.method.and(self.incoming.as_ref()).map(|incoming| incoming.push.spec.group)
    }

    /// The blocks with its arguments.
    pub fn blocks(&self) -> impl Iterator<Item = u64> {
        self.values.iter().filter_map(|(_, outcome)| match outcome {
            Outcome::Stored(location) => Some(location.offset),
            Outcome::Inline(_) | Outcome::Failed(_) | Outcome::Remote(_) => None,
        })
    }

    /// Whether it waits for something that may never come.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        matches!(self.wait, Wait::All(_) | Wait::Reading(_) | Wait::Answer(_) | Wait::Any(..))
    }
}
