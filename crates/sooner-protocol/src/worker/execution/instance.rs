//! The process of an actor with checkpoints: when a checkpoint is due, which calls it covers, and whose calls
//! are executed after a takeover.
//!
//! After a takeover the callers make the calls again that the restored checkpoint does not cover. No
//! unanswered call runs before every living caller has made its answered calls again: it could see a state
//! without a call on whose answer a caller has acted.
//!
//! Invariants:
//! - CP3: a call is in exactly one checkpoint's list, or executed since the last one that was sent.
//! - CP4: references inside a checkpoint are used by this process until the node has the next one.

use std::collections::VecDeque;
use std::sync::Arc;

use sooner_wire::message::Outcome;
use sooner_wire::{ActorId, ObjectId, TaskId, WorkerId};

use super::Met;
use crate::table::Set;
use crate::worker::ownership::Slot;

/// The state that a process takes over.
#[derive(Debug, Clone)]
pub struct Restored {
    /// The id under which its block is known here.
    pub object: ObjectId,
    /// The state.
    pub outcome: Outcome,
    /// Keeps its block, if it lies in shared memory.
    pub slot: Option<Arc<Slot>>,
    /// References inside it.
    pub contained: Vec<Met>,
}

/// What a process knows of the checkpoints of its actor.
#[derive(Debug, Default)]
pub struct Instance {
    actor: Option<ActorId>,
    /// Calls between two checkpoints; zero: there are none.
    every: usize,
    /// Calls executed since the last checkpoint that was sent.
    since: Vec<TaskId>,
    /// Calls in `since` with which the next checkpoint is due.
    due: usize,
    /// References of checkpoints that the node has not confirmed, the latest last.
    sent: VecDeque<Vec<ObjectId>>,
    /// References of the one confirmed last.
    standing: Vec<ObjectId>,
    /// The state to begin with.
    pub restored: Option<Restored>,
}

impl Instance {
    /// This process has an actor with a checkpoint after `every` calls.
    pub fn begin(&mut self, actor: ActorId, every: u32) {
        self.actor = Some(actor);
        self.every = every as usize;
        self.due = self.every;
    }

    /// Sets the outcome of the state to begin with, if that is this object.
    pub fn set_state(&mut self, object: ObjectId, outcome: Outcome) {
        if let Some(restored) = self.restored.as_mut().filter(|restored| restored.object == object) {
            restored.outcome = outcome;
        }
    }

    /// Whether this process has that actor.
    #[must_use]
    pub fn is_of(&self, actor: ActorId) -> bool {
        self.actor == Some(actor)
    }

    /// A call whose effects are part of the state was executed.
    pub fn on_executed(&mut self, task: TaskId) {
        if self.every > 0 {
            self.since.push(task);
        }
    }

    /// Whether a checkpoint should be taken before the next call.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.every > 0 && self.since.len() >= self.due
    }

    /// A checkpoint cannot be taken now: tries again after as many calls as lie between two.
    pub fn postpone(&mut self) {
        self.due = self.since.len() + self.every;
    }

    /// A checkpoint with these references is sent. Gives the calls it covers.
    pub fn on_taken(&mut self, contained: Vec<ObjectId>) -> Vec<TaskId> {
        self.due = self.every;
        self.sent.push_back(contained);
        std::mem::take(&mut self.since)
    }

    /// The node has the oldest checkpoint that was sent. Gives the references of the one before.
    pub fn on_confirmed(&mut self) -> Vec<ObjectId> {
        let confirmed = self.sent.pop_front().unwrap_or_default();
        std::mem::replace(&mut self.standing, confirmed)
    }
}

/// Which callers' calls are executed after a takeover.
#[derive(Debug, Default)]
pub enum TakingOver {
    /// No takeover that this process knows of: the constructor has not come.
    #[default]
    None,
    /// Callers make calls again.
    Running {
        /// Callers that have done so.
        done: Set<WorkerId>,
        /// Callers that have not; `None` until the node has named them: their messages come over other
        /// connections.
        awaited: Option<Set<WorkerId>>,
    },
    /// All callers have, or this is the actor's first process: calls are executed in the order they arrive.
    Over,
}

impl TakingOver {
    /// Whether a call that arrives now is a new one, and has to wait.
    #[must_use]
    pub fn holds(&self, from: WorkerId) -> bool {
        match self {
            Self::None | Self::Over => false,
            Self::Running { done, awaited } => {
                done.contains(&from) || awaited.as_ref().is_some_and(|awaited| !awaited.contains(&from))
            }
        }
    }

    /// Whether a call that arrives now may be made again: its caller has not reported that all were.
    #[must_use]
    pub fn awaits(&self, from: WorkerId) -> bool {
        !matches!(self, Self::Over) && !self.holds(from)
    }

    /// The node names the callers that make calls again. True if none is awaited.
    pub fn begin(&mut self, callers: &[WorkerId]) -> bool {
        let done = match std::mem::take(self) {
            Self::Running { done, .. } => done,
            Self::None | Self::Over => Set::default(),
        };
        let awaited = callers.iter().copied().filter(|caller| !done.contains(caller)).collect();
        *self = Self::Running { done, awaited: Some(awaited) };
        self.end_if_answered()
    }

    /// The constructor arrives. True in the actor's first process: no caller makes calls again.
    pub fn begin_first(&mut self) -> bool {
        let is_first = matches!(self, Self::None);
        if is_first {
            *self = Self::Over;
        }
        is_first
    }

    /// A caller has made its calls again. True if no caller is awaited any more.
    pub fn on_replayed(&mut self, caller: WorkerId) -> bool {
        match self {
            Self::Over => return false,
            Self::None => {
                *self = Self::Running { done: std::iter::once(caller).collect(), awaited: None };
            }
            Self::Running { done, awaited } => {
                done.insert(caller);
                if let Some(awaited) = awaited {
                    awaited.swap_remove(&caller);
                }
            }
        }
        self.end_if_answered()
    }

    /// A caller is dead: its calls are not made again. True if no caller is awaited any more.
    pub fn on_dead(&mut self, caller: WorkerId) -> bool {
        match self {
            Self::None | Self::Over => false,
            Self::Running { awaited, .. } => {
                if let Some(awaited) = awaited {
                    awaited.swap_remove(&caller);
                }
                self.end_if_answered()
            }
        }
    }

    fn end_if_answered(&mut self) -> bool {
        let is_over = matches!(self, Self::Running { awaited: Some(awaited), .. } if awaited.is_empty());
        if is_over {
            *self = Self::Over;
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: WorkerId = WorkerId(1);
    const B: WorkerId = WorkerId(2);
    const LATE: WorkerId = WorkerId(3);

    #[test]
    fn new_calls_wait_for_every_caller() {
        let mut takeover = TakingOver::default();
        assert!(!takeover.holds(A));
        assert!(!takeover.begin(&[A, B]));
        assert!(!takeover.holds(A) && takeover.holds(LATE));
        assert!(!takeover.on_replayed(A));
        assert!(takeover.holds(A) && !takeover.holds(B));
        assert!(takeover.on_dead(B));
        assert!(!takeover.holds(A) && !takeover.holds(LATE));
        assert!(!takeover.on_replayed(LATE) && !takeover.holds(LATE));
    }

    #[test]
    fn callers_may_be_faster_than_the_node() {
        let mut takeover = TakingOver::default();
        assert!(!takeover.on_replayed(A));
        assert!(takeover.holds(A) && !takeover.holds(B));
        assert!(!takeover.on_dead(LATE));
        assert!(!takeover.begin(&[A, B]));
        assert!(takeover.on_replayed(B));
        let mut takeover = TakingOver::default();
        assert!(!takeover.on_replayed(A));
        assert!(takeover.begin(&[A]));
    }

    #[test]
    fn a_checkpoint_is_due_after_so_many_calls_and_covers_them_once() {
        let call = |number| TaskId { owner: A, number };
        let mut instance = Instance::default();
        instance.on_executed(call(1));
        assert!(!instance.is_due());
        instance.begin(call(0), 2);
        (1..=2).for_each(|number| instance.on_executed(call(number)));
        assert!(instance.is_due());
        instance.postpone();
        assert!(!instance.is_due());
        (3..=4).for_each(|number| instance.on_executed(call(number)));
        assert!(instance.is_due());
        assert_eq!(instance.on_taken(vec![call(9).object(0)]).len(), 4);
        assert!(!instance.is_due());
        assert_eq!(instance.on_taken(Vec::new()), []);
        assert_eq!(instance.on_confirmed(), []);
        assert_eq!(instance.on_confirmed(), [call(9).object(0)]);
    }
}
