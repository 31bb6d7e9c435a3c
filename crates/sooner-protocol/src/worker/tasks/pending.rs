//! The tasks this process has submitted and that have not ended (Ownership, table 2: the creating task).
//!
//! A pending task keeps its description until the reply, so that it can be pushed again. It is in exactly one
//! state. It never decides where a task runs.
//!
//! Which tasks use an object is recorded only once memory was short: other programs pay nothing for it.

use std::sync::Arc;

use sooner_wire::message::TaskSpec;
use sooner_wire::{ObjectId, TaskId, WorkerId};

use super::{Awaited, Timestamps};
use crate::table::{Map, Set};
use crate::time::Instant;
use crate::worker::calls::Turn;

/// Where a pending task is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Waits for the outcome of this many dependencies, and as one of them for [`Pending::awaited`].
    Waiting {
        /// Dependencies without an outcome.
        missing: u32,
    },
    /// Waits for a lease or for its turn with an actor.
    Queued,
    /// Waits for a pause: repeated crashes, memory that ran out, or no room for its arguments.
    Delayed {
        /// Until when.
        until: Instant,
    },
    /// Sent to a worker.
    Pushed {
        /// The worker.
        worker: WorkerId,
        /// Its expected run time (nanoseconds).
        estimate: u64,
        /// Whether an argument may have to be brought there first: then tasks pushed later may begin earlier.
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
    /// Whether it has ended before and results of it are lost.
    pub recovers: bool,
    /// Number of workers that crashed while they ran it.
    pub crashes: u8,
    /// Number of workers that were stopped by their nodes while they ran it, because memory ran out.
    pub memory_ends: u8,
    /// How often it came back because there was no room for its arguments.
    pub gave_way: u8,
    /// What it waits for besides its dependencies.
    pub awaited: Option<Box<Awaited>>,
    /// The task that submitted it, for recursive cancellation.
    pub parent: Option<TaskId>,
    /// When it passed which step.
    pub passed: Timestamps,
}

impl Pending {
    /// The task and its expected run time, if it is with a worker.
    pub fn pushed(&mut self) -> Option<(&mut Self, u64)> {
        match self.state {
            State::Pushed { estimate, .. } => Some((self, estimate)),
            State::Waiting { .. } | State::Queued | State::Delayed { .. } => None,
        }
    }

    /// Where a call that is executed once more is queued.
    pub fn turn_again(&self) -> Turn {
        if self.recovers { Turn::Recovering } else { Turn::First }
    }

    /// An execution ended, and the task waits for another.
    pub fn repeat(&mut self, now: Instant) {
        self.passed.attempt = self.passed.attempt.next();
        self.passed.ready = now;
    }
}

/// The tasks that use an object: usually one.
#[derive(Debug)]
enum Users {
    One(u64),
    Several(Set<u64>),
}

/// All pending tasks, by number.
#[derive(Debug, Default)]
pub struct Pendings {
    tasks: Map<u64, Pending>,
    /// Tasks by the objects they use; `None` until the first question.
    users: Option<Map<ObjectId, Users>>,
}

impl Pendings {
    /// Enters a task.
    pub fn insert(&mut self, pending: Pending) {
        if let Some(users) = &mut self.users {
            record_user(users, &pending.spec);
        }
        self.tasks.insert(pending.spec.task.number, pending);
    }

    /// The tasks that take an object as an argument, or inside one.
    pub fn users_of(&mut self, object: ObjectId) -> impl Iterator<Item = &Pending> {
        let tasks = &self.tasks;
        let users = self.users.get_or_insert_with(|| {
            let mut users = Map::default();
            tasks.values().for_each(|pending| record_user(&mut users, &pending.spec));
            users
        });
        let (one, several) = match users.get(&object) {
            Some(Users::One(task)) => (Some(*task), None),
            Some(Users::Several(tasks)) => (None, Some(tasks)),
            None => (None, None),
        };
        let numbers = one.into_iter().chain(several.into_iter().flatten().copied());
        numbers.filter_map(|number| tasks.get(&number))
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
        let pending = self.tasks.swap_remove(&number)?;
        if let Some(users) = &mut self.users {
            forget_user(users, &pending.spec);
        }
        Some(pending)
    }

    /// Tasks that `parent` submitted, the last one first: cancelled in that order, none begins in place of
    /// one cancelled before it.
    #[must_use]
    pub fn children(&self, parent: TaskId) -> Vec<u64> {
        let children = self.tasks.iter().filter(|(_, pending)| pending.parent == Some(parent));
        let mut numbers: Vec<u64> = children.map(|(number, _)| *number).collect();
        numbers.sort_unstable_by_key(|number| std::cmp::Reverse(*number));
        numbers
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

fn used(spec: &TaskSpec) -> impl Iterator<Item = ObjectId> + '_ {
    spec.dependencies.iter().chain(&spec.references).copied()
}

fn record_user(users: &mut Map<ObjectId, Users>, spec: &TaskSpec) {
    let number = spec.task.number;
    for object in used(spec) {
        match users.entry(object).or_insert(Users::One(number)) {
            Users::One(first) if *first == number => {}
            Users::Several(tasks) => {
                tasks.insert(number);
            }
            several => {
                let Users::One(first) = *several else { unreachable!("looked at above") };
                *several = Users::Several([first, number].into_iter().collect());
            }
        }
    }
}

fn forget_user(users: &mut Map<ObjectId, Users>, spec: &TaskSpec) {
    for object in used(spec) {
        let is_last = match users.get_mut(&object) {
            Some(Users::Several(tasks)) => {
                tasks.swap_remove(&spec.task.number);
                tasks.is_empty()
            }
            Some(Users::One(_)) => true,
            None => false,
        };
        if is_last {
            users.swap_remove(&object);
        }
    }
}

#[cfg(test)]
mod tests {
    use sooner_wire::message::TaskKind;
    use sooner_wire::{Blob, FunctionId, Name, ShapeId};

    use super::*;

    fn object(number: u64) -> ObjectId {
        TaskId { owner: WorkerId(1), number }.object(0)
    }

    fn pending(number: u64, dependencies: &[ObjectId], references: &[ObjectId]) -> Pending {
        let task = TaskId { owner: WorkerId(1), number };
        let kind = TaskKind::Task(ShapeId(0));
        let spec = TaskSpec {
            dependencies: dependencies.into(),
            references: references.into(),
            ..TaskSpec::new(task, kind, FunctionId(1), Name::from("f"), Blob::default())
        };
        Pending {
            spec: Arc::new(spec),
            state: State::Queued,
            retries: 0,
            cancelled: false,
            recovers: false,
            crashes: 0,
            memory_ends: 0,
            gave_way: 0,
            awaited: None,
            parent: None,
            passed: Timestamps::default(),
        }
    }

    fn users(all: &mut Pendings, number: u64) -> Vec<u64> {
        let mut users: Vec<u64> =
            all.users_of(object(number)).map(|pending| pending.spec.task.number).collect();
        users.sort_unstable();
        users
    }

    #[test]
    fn children_are_listed_from_the_last_one_whatever_has_ended() {
        let mut all = Pendings::default();
        let parents = [TaskId { owner: WorkerId(2), number: 7 }, TaskId { owner: WorkerId(2), number: 8 }];
        for number in 1..=6 {
            let parent = Some(parents[usize::from(number == 4)]);
            all.insert(Pending { parent, ..pending(number, &[], &[]) });
        }
        all.remove(1);
        all.remove(3);
        assert_eq!(all.children(parents[0]), [6, 5, 2]);
        assert_eq!(all.children(parents[1]), [4]);
    }

    #[test]
    fn who_uses_an_object_is_known_whenever_somebody_asks_first() {
        for asks_after in 0..=4 {
            let mut all = Pendings::default();
            for (number, dependencies, references) in [
                (1, vec![object(10), object(11)], vec![]),
                (2, vec![object(10), object(10)], vec![object(10)]),
                (3, vec![], vec![object(11)]),
                (4, vec![object(12), object(12)], vec![]),
            ] {
                all.insert(pending(number, &dependencies, &references));
                if number == asks_after {
                    users(&mut all, 10);
                }
            }
            assert_eq!(users(&mut all, 10), [1, 2]);
            assert_eq!(users(&mut all, 11), [1, 3]);
            assert_eq!((users(&mut all, 12), users(&mut all, 13)), (vec![4], vec![]));
            all.remove(1);
            all.remove(4);
            assert_eq!((users(&mut all, 10), users(&mut all, 11)), (vec![2], vec![3]));
            assert_eq!(users(&mut all, 12), [0; 0]);
            all.remove(2);
            all.remove(3);
            assert!(all.is_empty() && all.users.as_ref().is_some_and(Map::is_empty), "nothing is left");
        }
    }
}
