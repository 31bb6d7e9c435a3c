//! The programs that run in every process of the simulated world.
//!
//! A frame is one running function: the driver's program, a task, or a call of an actor. When the frame has
//! its turn, its next operation is drawn ([`operations`]); it may wait for objects, time, a reader, or an
//! answer of the node. Its values depend only on its code and arguments, so that the oracle knows them; all
//! else is chance.
//!
//! No program may wait for itself. A task waits only for tasks that it submitted and for its arguments, which
//! existed before it. Calls of an actor wait only for tasks without arguments. References out of an actor's
//! state, which may be of any age, stay with the driver. A task that looks an actor up by name waits for its
//! calls only if the constructor has no arguments.

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
    /// Reads the state of an actor with checkpoints, without changing it.
    Read,
    /// Keeps the references in its arguments.
    Keep,
    /// Returns a reference that the actor keeps.
    Hand,
    /// Drops the references that the actor keeps.
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
    /// Where the object's outcome appears in this process.
    pub slot: Arc<Slot>,
    /// It is the handle of an actor.
    pub is_actor: bool,
    /// Whether its frame may wait for the object or, if it is an actor's handle, for calls of the actor.
    pub may_wait: bool,
    /// Whether it may be passed to tasks and put into values.
    pub may_pass: bool,
}

/// The actor in a process.
#[derive(Debug)]
pub struct Instance {
    /// The actor's id.
    pub actor: ActorId,
    /// The constructor has ended.
    pub is_constructed: bool,
    /// Calls that have run in this process.
    pub count: u64,
    /// How many processes of the actor began before this one, plus one.
    pub incarnation: u32,
    /// References in its state.
    pub kept: Vec<Reference>,
    /// It has checkpoints.
    pub has_checkpoints: bool,
    /// A checkpoint is to be taken before the next call.
    pub is_due: bool,
    /// The calls that the actor's state contains, if it has checkpoints.
    pub state: State,
    /// How many answered calls of each caller were checked to be in the state.
    pub checked: FxHashMap<WorkerId, usize>,
    /// Calls that each concurrency group may run at a time; without groups, one number for all calls.
    pub groups: Vec<u32>,
    /// Calls that the actor may run at a time.
    pub concurrency: u32,
    /// Its calls need no order.
    pub is_unordered: bool,
    /// The latest call that began, by caller and group.
    pub latest: FxHashMap<(WorkerId, Option<u32>), u64>,
}

impl Instance {
    /// Calls that may run at a time now: one until the constructor has ended.
    #[must_use]
    pub fn places(&self) -> usize {
        if self.is_constructed { self.concurrency.max(1) as usize } else { 1 }
    }
}

/// A frame's reader of a streaming task's items.
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
    /// Nothing: it runs.
    Nothing,
    /// Until all of these have an outcome.
    All(Vec<(ObjectId, Arc<Slot>)>),
    /// Until one of these has an outcome, or until that time.
    Any(Vec<(ObjectId, Arc<Slot>)>, u64),
    /// Until that time.
    Time(u64),
    /// Until the reader lets the task yield the item with this number.
    Reading(u32),
    /// For the node's answer to this request.
    Answer(u64),
    /// For the end of its process.
    End,
}

/// One running function. See the module.
#[derive(Debug)]
pub struct Frame {
    /// Its number in the run.
    pub number: u64,
    /// Its task; `None` for a driver's program.
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
    /// Arguments that were passed by value: read again at the end.
    values: Vec<(ObjectId, Outcome)>,
    /// The hash from which its values are derived.
    base: u64,
    yielded: u32,
    /// It raises the failure that a `get` raised.
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

    /// The concurrency group of the actor call that this frame runs. A call that has ended its actor takes no
    /// place any more.
    #[must_use]
    pub fn call_group(&self) -> Option<Option<u32>> {
        if matches!(self.wait, Wait::End) {
            return None;
        }
        self.method.and(self.incoming.as_ref()).map(|incoming| incoming.push.spec.group())
    }

    /// The blocks with its arguments.
    pub fn blocks(&self) -> impl Iterator<Item = u64> {
        self.values.iter().filter_map(|(_, outcome)| match outcome {
            Outcome::Stored(location) => Some(location.offset),
            Outcome::Inline(_) | Outcome::Failed(_) | Outcome::Remote(_) => None,
        })
    }

    /// Whether its wait might never end.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        matches!(self.wait, Wait::All(_) | Wait::Reading(_) | Wait::Answer(_) | Wait::Any(..))
    }
}
