//! The executing side of a worker: the tasks pushed to it, which of them run, and what it replies.
//!
//! A task is queued, running, or has left. A blocked worker (its task waits in `get`) and a worker busy with
//! a long task send queued tasks back, so that nothing waits behind them (tasks only; calls of an actor stay
//! in order).
//!
//! Invariants:
//! - E1: every pushed task is answered once: by a reply or by being returned.
//! - E2: actor calls of one caller start in the order they were pushed.
//! - E3: no call of an actor starts before its constructor: calls come straight from callers and may overtake
//!   the constructor, which comes from the node.
//!
//! It never runs anything: the shell takes tasks with [`Execution::take_next`] and reports their end.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::probes::{bug, mark};
use sooner_wire::message::{Dependency, Failure, Location, Outcome, Push, Target, TaskKind};
use sooner_wire::{ObjectId, TaskId, WorkerId};

use super::action::Peer;
use super::ownership::Slot;
use crate::table::{Map, Set};
use crate::time::Instant;

mod checkpointing;
mod executing;
mod instance;
pub(super) mod suspending;

pub use instance::{Instance, Restored, TakingOver};

/// An object with its slot, to make handles and views from.
pub type Met = (ObjectId, Arc<Slot>);

/// The slots of one dependency.
#[derive(Debug, Default)]
pub struct MetDependency {
    /// The argument itself, if its value lies in shared memory.
    pub stored: Option<Arc<Slot>>,
    /// References inside the value.
    pub contained: Vec<Met>,
}

impl MetDependency {
    fn has_no_value(&self) -> bool {
        self.stored.as_ref().is_some_and(|slot| !slot.has_outcome())
    }
}

/// A pushed task with the slots of everything its arguments refer to.
#[derive(Debug)]
pub struct Incoming {
    /// The process that pushed it.
    pub from: Peer,
    /// The task.
    pub push: Push,
    /// Slots of the references inside the arguments.
    pub references: Vec<Met>,
    /// Slots per dependency.
    pub dependencies: Vec<MetDependency>,
    /// In a process that took an actor over: its caller has its answer, and the state was made with it.
    pub is_again: bool,
    /// It does not wait for calls that other callers make again, which may wait for it: it recovers a lost
    /// value, or its caller made it before one that does.
    pub is_early: bool,
}

impl Incoming {
    /// Every object whose record the task uses, once per use.
    #[must_use]
    pub fn uses(&self) -> Vec<ObjectId> {
        let mut uses: Vec<ObjectId> = self.references.iter().map(|(object, _)| *object).collect();
        for (dependency, met) in self.push.dependencies.iter().zip(&self.dependencies) {
            uses.extend(met.stored.as_ref().map(|_| dependency.object));
            uses.extend(met.contained.iter().map(|(object, _)| *object));
        }
        uses
    }

    /// Why an argument has no value, if one has none.
    #[must_use]
    pub fn failed_dependency(&self) -> Option<Failure> {
        self.push.dependencies.iter().find_map(|dependency| match &dependency.outcome {
            Outcome::Failed(failure) => Some(failure.of_argument(self.push.spec.name.as_str())),
            Outcome::Inline(_) | Outcome::Stored(_) | Outcome::Remote(_) => None,
        })
    }

    /// Arguments whose values were lost and have not come again.
    #[must_use]
    pub fn lost(&self) -> Vec<ObjectId> {
        self.lost_places().map(|(object, _)| object).collect()
    }

    /// The lost arguments, and where they were said to be.
    pub fn lost_places(&self) -> impl Iterator<Item = (ObjectId, &Outcome)> {
        let dependencies = self.push.dependencies.iter().zip(&self.dependencies);
        dependencies.filter(|(_, met)| met.has_no_value()).map(|(d, _)| (d.object, &d.outcome))
    }

    /// Arguments in the memory of another node.
    #[must_use]
    pub fn elsewhere(&self) -> Vec<ObjectId> {
        self.arguments(|dependency, _| dependency.is_elsewhere())
    }

    /// Arguments that cannot be read now: the task waits for them.
    #[must_use]
    pub fn missing(&self) -> Vec<ObjectId> {
        self.arguments(|dependency, met| met.has_no_value() || dependency.is_elsewhere())
    }

    fn arguments(&self, which: impl Fn(&Dependency, &MetDependency) -> bool) -> Vec<ObjectId> {
        let dependencies = self.push.dependencies.iter().zip(&self.dependencies);
        dependencies.filter(|(dependency, met)| which(dependency, met)).map(|(d, _)| d.object).collect()
    }
}

/// A task that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// The process that gets the reply.
    pub from: Peer,
    /// Objects whose records the task uses.
    pub uses: Vec<ObjectId>,
    /// It was cancelled while it ran.
    pub cancelled: bool,
    /// About when it began.
    pub since: Instant,
    /// The concurrency group it takes a place of.
    pub group: usize,
    /// Whether its effects are part of the state of an actor with checkpoints.
    pub kept: bool,
    /// It was cancelled before it began.
    pub not_run: bool,
    /// Whether it is executed to recover a lost value.
    pub recovers: bool,
}

/// How far the items of a streaming task have been read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Taken {
    /// Items taken.
    pub items: u32,
    /// The reader takes no more items.
    pub stop: bool,
}

/// What a cancellation found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// The task was queued and is taken out.
    Queued,
    /// The task runs: interrupt it.
    Running,
    /// The task has ended or never arrived.
    Unknown,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Execution {
    queue: VecDeque<Incoming>,
    /// New calls that wait until all calls were made again after a takeover. As many as may be in flight.
    held: VecDeque<Incoming>,
    takeover: TakingOver,
    running: Map<TaskId, Running>,
    /// Streaming tasks, queued or running.
    taken: Map<TaskId, Taken>,
    blocked: bool,
    has_constructor: bool,
    /// The constructor does not begin, even with all its arguments: its actor holds no resources.
    is_suspended: bool,
    /// The local actor, and the objects its constructor was given: used as long as the actor lives.
    constructed: Option<(TaskId, Vec<ObjectId>)>,
    groups: Groups,
    /// Lost values that queued calls wait for.
    missing: Set<ObjectId>,
    /// Number of running tasks that are executed to recover lost values.
    recovering: u32,
    /// A call that is made again was refused: if this process took an actor over, its state lacks that call.
    has_refused_again: bool,
}

/// The concurrency groups of an actor: free places per group, the default group first. Empty without groups:
/// the threads are the limit.
#[derive(Debug, Default)]
struct Groups {
    free: Vec<u32>,
}

impl Groups {
    fn new(all: u32, groups: &[u32]) -> Self {
        let default = all.saturating_sub(groups.iter().sum()).max(1);
        Self { free: std::iter::once(default).chain(groups.iter().copied()).collect() }
    }

    fn of(incoming: &Incoming) -> usize {
        incoming.push.spec.group().map_or(0, |group| group as usize + 1)
    }

    /// The group whose thread or event loop takes a call: the default one if the actor lacks its own.
    fn home(&self, incoming: &Incoming) -> usize {
        Some(Self::of(incoming)).filter(|group| *group < self.free.len()).unwrap_or(0)
    }

    fn has_room(&self, incoming: &Incoming) -> bool {
        // The front end refuses a group that the actor does not have; here it counts as unlimited.
        self.free.get(Self::of(incoming)).is_none_or(|free| *free > 0)
    }

    fn enter(&mut self, group: usize) {
        if let Some(free) = self.free.get_mut(group) {
            *free = free.saturating_sub(1);
        }
    }

    fn leave(&mut self, group: usize) {
        if let Some(free) = self.free.get_mut(group) {
            *free += 1;
        }
    }
}

impl Execution {
    /// Takes a pushed task, unless it must go back.
    ///
    /// # Errors
    /// The task itself when this worker is blocked.
    pub fn on_push(&mut self, incoming: Incoming) -> Result<(), Box<Incoming>> {
        if self.blocked && matches!(incoming.push.spec.kind(), TaskKind::Task(_)) {
            return Err(Box::new(incoming));
        }
        if let Target::Class(creation) = &incoming.push.spec.target {
            self.has_constructor = true;
            self.begin_actor();
            if let Some(groups) = &creation.groups {
                self.groups = Groups::new(creation.concurrency, groups);
            }
            self.queue.push_front(incoming);
        } else if recovers(&incoming) && !matches!(self.takeover, TakingOver::None) {
            self.let_through(incoming);
        } else if matches!(incoming.from, Peer::Worker(caller) if self.takeover.holds(caller)) {
            self.held.push_back(incoming);
        } else {
            self.queue.push_back(incoming);
        }
        Ok(())
    }

    /// The constructor arrives, in a takeover after `Restore`. Without one this is the actor's first process,
    /// and calls that came earlier are new.
    fn begin_actor(&mut self) {
        if self.takeover.begin_first() {
            self.has_refused_again = false;
            self.queue.iter_mut().for_each(|call| call.is_again = false);
        }
    }

    /// A call arrives that recovers a lost value, for which calls made again may wait. So it does not wait
    /// for those of other callers. If it has a place in the order, the earlier calls of its caller go with
    /// it.
    fn let_through(&mut self, incoming: Incoming) {
        let from = incoming.from;
        if incoming.push.spec.is_unordered() {
            return self.queue.push_back(Incoming { is_early: true, ..incoming });
        }
        let (early, held): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.held).into_iter().partition(|held| held.from == from);
        self.held = held;
        self.queue.extend(early);
        self.queue.push_back(incoming);
        for queued in self.queue.iter_mut().filter(|queued| queued.from == from && !queued.is_again) {
            queued.is_early = true;
        }
    }

    /// Whether a running task recovers a lost value: the tasks that it submits do, too.
    #[inline]
    #[must_use]
    pub fn is_recovering(&self, task: Option<TaskId>) -> bool {
        self.recovering > 0
            && task.is_some_and(|task| self.running.get(&task).is_some_and(|running| running.recovers))
    }

    /// The next task to run. It is running from now on.
    pub fn take_next(&mut self, now: Instant) -> Option<Incoming> {
        self.take_next_of(None, now)
    }

    /// [`Self::take_next`] for a thread that serves one concurrency group of an actor; 0 is the default one.
    pub fn take_next_of(&mut self, group: Option<usize>, now: Instant) -> Option<Incoming> {
        if self.lacks_call() {
            return None;
        }
        let at = self.next_at(group)?;
        let incoming = self.queue.remove(at)?;
        let group = Groups::of(&incoming);
        if incoming.push.spec.kind() != TaskKind::Creation {
            self.groups.enter(group);
        }
        let uses = incoming.uses();
        let kept = incoming.push.spec.kept() == Some(true);
        let recovers = recovers(&incoming);
        self.recovering += u32::from(recovers);
        let running = Running {
            from: incoming.from,
            uses,
            cancelled: false,
            group,
            kept,
            not_run: false,
            recovers,
            since: now,
        };
        self.running.insert(incoming.push.spec.task, running);
        Some(incoming)
    }

    /// This process takes an actor over; these callers make calls again.
    pub fn on_restore(&mut self, callers: &[WorkerId]) {
        if self.takeover.begin(callers) {
            self.queue.append(&mut self.held);
        }
    }

    /// A caller has made its calls again.
    pub fn on_replayed(&mut self, caller: WorkerId) {
        if self.takeover.on_replayed(caller) {
            self.queue.append(&mut self.held);
        }
    }

    /// Whether a call that arrives now from there has an answer already, if this process took an actor over.
    #[inline]
    #[must_use]
    pub fn is_again(&self, from: Peer, kept: bool) -> bool {
        kept && matches!(from, Peer::Worker(caller) if self.takeover.awaits(caller))
    }

    /// A call that is made again cannot be executed: its argument is lost for good.
    pub fn refuse_again(&mut self) {
        self.has_refused_again = true;
    }

    /// Whether the local actor's state lacks a call on whose answer a caller may have acted: nothing is
    /// executed then.
    #[inline]
    #[must_use]
    pub fn lacks_call(&self) -> bool {
        self.has_refused_again && !matches!(self.takeover, TakingOver::None)
    }

    fn next_at(&self, only: Option<usize>) -> Option<usize> {
        let front = self.queue.front()?;
        if !self.missing.is_empty() {
            return self.next_complete(only);
        }
        if matches!(front.push.spec.kind(), TaskKind::Method(_)) && !self.has_constructor {
            mark!("a call came before the constructor of its actor");
            if !bug!(CallBeforeConstructor) {
                return None;
            }
        }
        if front.push.spec.kind() == TaskKind::Creation {
            return (!self.is_suspended).then_some(0);
        }
        if self.groups.free.is_empty() {
            return Some(0);
        }
        self.queue.iter().position(|incoming| self.groups.has_room(incoming) && self.is_for(only, incoming))
    }

    /// The next task or call when some wait for values. Later calls of a caller stay behind its waiting one;
    /// others do not, nor earlier ones that are executed once more: the value may need one of them. But no
    /// new call overtakes a call made again.
    ///
    /// A call without order that recovers a value overtakes those, except the earlier ones of its caller: it
    /// must find a state with them. They are older, so their arguments are not made of its value.
    fn next_complete(&self, only: Option<usize>) -> Option<usize> {
        let (mut held_up, mut stopped) = (Map::<_, u64>::default(), Set::default());
        let mut again = Map::<_, u64>::default();
        for (at, incoming) in self.queue.iter().enumerate() {
            let (spec, group) = (&incoming.push.spec, Groups::of(incoming));
            let waits = !incoming.missing().is_empty();
            match spec.kind() {
                TaskKind::Creation => {
                    let may_begin = !waits && !self.is_suspended;
                    return (may_begin && !self.missing.contains(&spec.task.state())).then_some(at);
                }
                TaskKind::Method(_) if !self.has_constructor => return None,
                TaskKind::Method(_) | TaskKind::Task(_) => {}
            }
            let has_room = self.groups.free.is_empty() || self.groups.has_room(incoming);
            let is_unordered = spec.is_unordered() || matches!(spec.kind(), TaskKind::Task(_));
            let line = (incoming.from, group);
            let is_after = |first: Option<&u64>| first.is_some_and(|first| *first < spec.task.number);
            let is_new = !incoming.is_again && !incoming.is_early;
            let is_behind = if is_unordered {
                is_after(again.get(&line))
            } else {
                is_after(held_up.get(&line)) || (is_new && stopped.contains(&group))
            };
            if !waits && has_room && !is_behind && self.is_for(only, incoming) {
                return Some(at);
            }
            if !is_unordered {
                let first = held_up.entry(line).or_insert(spec.task.number);
                *first = spec.task.number.min(*first);
            }
            if incoming.is_again {
                let first = again.entry(line).or_insert(spec.task.number);
                *first = spec.task.number.min(*first);
                stopped.insert(group);
            }
        }
        None
    }

    fn is_for(&self, only: Option<usize>, incoming: &Incoming) -> bool {
        only.is_none_or(|group| self.groups.home(incoming) == group)
    }

    /// The constructor, if it has not begun.
    #[inline]
    #[must_use]
    pub fn constructor(&self) -> Option<&Incoming> {
        self.queue.front().filter(|front| front.push.spec.kind() == TaskKind::Creation)
    }

    /// The node has the actor's resources back.
    pub fn suspend(&mut self) {
        self.is_suspended = true;
    }

    /// The actor holds its resources again, with these GPUs.
    pub fn resume(&mut self, gpus: Vec<u32>) {
        self.is_suspended = false;
        let front = self.queue.front_mut();
        if let Some(front) = front.filter(|front| front.push.spec.kind() == TaskKind::Creation) {
            front.push.gpus = gpus;
        }
    }

    /// Whether something that is queued waits for a value.
    #[inline]
    #[must_use]
    pub fn waits_for_values(&self) -> bool {
        !self.missing.is_empty()
    }

    /// Whether nothing can run here before a lost argument is made again: no task runs, all that are queued
    /// wait, and one for a value that is not on its way.
    #[must_use]
    pub fn is_starved(&self) -> bool {
        let waits = |incoming: &Incoming| {
            matches!(incoming.push.spec.kind(), TaskKind::Task(_)) && !incoming.missing().is_empty()
        };
        self.running.is_empty()
            && self.queue.iter().any(|incoming| incoming.lost_places().next().is_some())
            && self.queue.iter().all(waits)
    }

    /// A queued call waits for a value, or a queued task for a value of another node.
    pub fn miss(&mut self, object: ObjectId) {
        self.missing.insert(object);
    }

    /// Whether a queued call waits for this value.
    #[inline]
    #[must_use]
    pub fn is_missing(&self, object: ObjectId) -> bool {
        !self.missing.is_empty() && self.missing.contains(&object)
    }

    /// Values are lost. Takes out the queued tasks that need them and whose callers learn of it; other tasks,
    /// and actor calls, wait here.
    pub fn on_lost(&mut self, lost: &[ObjectId], hears: impl Fn(&Incoming) -> bool) -> Vec<Incoming> {
        let lost: Set<ObjectId> = lost.iter().copied().collect();
        let takes_lost =
            |incoming: &Incoming| incoming.push.dependencies.iter().any(|d| lost.contains(&d.object));
        let (hit, mut stay): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.queue).into_iter().partition(|incoming| {
                let is_task = matches!(incoming.push.spec.kind(), TaskKind::Task(_));
                is_task && takes_lost(incoming) && hears(incoming)
            });
        for incoming in stay.iter_mut().chain(&mut self.held).filter(|incoming| takes_lost(incoming)) {
            self.missing.extend(incoming.missing());
        }
        self.queue = stay;
        for dependency in hit.iter().flat_map(|incoming| &incoming.push.dependencies) {
            self.forget_unless_waited_for(dependency.object);
        }
        self.forget_taken(&hit);
        hit.into()
    }

    /// A task that waited for a value went back.
    fn forget_unless_waited_for(&mut self, object: ObjectId) {
        let takes =
            |incoming: &Incoming| incoming.push.dependencies.iter().any(|other| other.object == object);
        if self.is_missing(object) && !self.queue.iter().chain(&self.held).any(takes) {
            self.missing.swap_remove(&object);
        }
    }

    /// A value arrived that calls wait for. Gives the number of arguments it fills, and the references that
    /// were in those before.
    pub fn on_value(&mut self, object: ObjectId, outcome: &Outcome, met: &[Met]) -> (usize, Vec<ObjectId>) {
        self.missing.swap_remove(&object);
        let (mut places, mut before) = (0, Vec::new());
        for incoming in self.queue.iter_mut().chain(&mut self.held) {
            for (dependency, known) in incoming.push.dependencies.iter_mut().zip(&mut incoming.dependencies) {
                if dependency.object != object || known.stored.is_none() {
                    continue;
                }
                places += 1;
                before.extend(known.contained.iter().map(|(inner, _)| *inner));
                dependency.outcome = outcome.clone();
                dependency.contained = met.iter().map(|(inner, _)| *inner).collect();
                known.contained = met.to_vec();
            }
        }
        (places, before)
    }

    /// A value was brought here: tasks that wait for it read the local copy.
    pub fn on_pulled(&mut self, object: ObjectId, location: Location) {
        self.missing.swap_remove(&object);
        for incoming in self.queue.iter_mut().chain(&mut self.held) {
            for dependency in &mut incoming.push.dependencies {
                if dependency.object == object && dependency.is_elsewhere() {
                    dependency.outcome = Outcome::Stored(location);
                }
            }
        }
    }

    /// No task or call waits for a value any more.
    pub fn forget_missing(&mut self, object: ObjectId) {
        self.missing.swap_remove(&object);
    }

    /// A value of another node cannot be brought here: takes out the tasks and calls that wait for it.
    pub fn take_unbrought(&mut self, object: ObjectId) -> Vec<Incoming> {
        self.take_waiting(object, |dependency, _| dependency.is_elsewhere())
    }

    /// A value will not come: takes out the calls that wait for it.
    pub fn take_missing(&mut self, object: ObjectId) -> Vec<Incoming> {
        self.take_waiting(object, |_, met| met.stored.is_some())
    }

    fn take_waiting(
        &mut self,
        object: ObjectId,
        waits: impl Fn(&Dependency, &MetDependency) -> bool,
    ) -> Vec<Incoming> {
        self.missing.swap_remove(&object);
        let takes = |incoming: &Incoming| {
            let mut dependencies = incoming.push.dependencies.iter().zip(&incoming.dependencies);
            dependencies.any(|(dependency, met)| dependency.object == object && waits(dependency, met))
        };
        let mut hit = VecDeque::new();
        for queue in [&mut self.queue, &mut self.held] {
            let (leave, stay): (VecDeque<_>, VecDeque<_>) =
                std::mem::take(queue).into_iter().partition(&takes);
            *queue = stay;
            hit.extend(leave);
        }
        self.forget_taken(&hit);
        hit.into()
    }

    /// Whether there is a task to run now.
    #[must_use]
    pub fn can_take(&self) -> bool {
        !self.lacks_call() && self.next_at(None).is_some()
    }

    /// Whether the local actor has concurrency groups: the end of one call may let another one begin.
    #[must_use]
    pub fn has_groups(&self) -> bool {
        !self.groups.free.is_empty()
    }

    /// Free places per concurrency group of the local actor, the default group first; empty without groups.
    #[must_use]
    pub fn free_places(&self) -> &[u32] {
        &self.groups.free
    }

    /// A running task ended.
    pub fn on_finished(&mut self, task: TaskId) -> Option<Running> {
        if !self.taken.is_empty() {
            self.taken.swap_remove(&task);
        }
        let running = self.running.swap_remove(&task)?;
        self.groups.leave(running.group);
        self.recovering -= u32::from(running.recovers);
        Some(running)
    }

    /// The constructor will not run, so no call may.
    pub fn on_constructor_refused(&mut self) {
        self.has_constructor = false;
    }

    /// The constructor ended; it takes no place of a group.
    pub fn on_constructed(&mut self, actor: TaskId) {
        if let Some(running) = self.running.swap_remove(&actor) {
            self.recovering -= u32::from(running.recovers);
            self.constructed = Some((actor, running.uses));
        }
    }

    /// The owner of a streaming task has read so far. Ignored unless the task is queued or running.
    pub fn on_items_taken(&mut self, task: TaskId, items: u32, stop: bool) {
        let is_here = self.running.contains_key(&task) || self.queue.iter().any(|i| i.push.spec.task == task);
        if is_here {
            self.taken.insert(task, Taken { items, stop });
        }
    }

    /// How far a streaming task has been read.
    #[must_use]
    pub fn taken(&self, task: TaskId) -> Taken {
        self.taken.get(&task).copied().unwrap_or_default()
    }

    /// The process that gets the reply of a running task.
    #[must_use]
    pub fn caller(&self, task: TaskId) -> Option<Peer> {
        self.running.get(&task).map(|running| running.from)
    }

    /// The objects that a running task was given.
    #[must_use]
    pub fn uses(&self, task: TaskId) -> &[ObjectId] {
        self.running.get(&task).map_or(&[], |running| &running.uses)
    }

    /// Takes out every queued task that may run elsewhere.
    pub fn return_queued(&mut self) -> Vec<Incoming> {
        let is_task = |incoming: &Incoming| matches!(incoming.push.spec.kind(), TaskKind::Task(_));
        let (back, stay): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.queue).into_iter().partition(is_task);
        self.queue = stay;
        self.forget_taken(&back);
        Vec::from(back)
    }

    /// Takes out every queued task that may run elsewhere and waits for an argument to be brought here.
    pub fn return_unbrought(&mut self) -> Vec<Incoming> {
        let waits = |incoming: &Incoming| {
            matches!(incoming.push.spec.kind(), TaskKind::Task(_)) && !incoming.elsewhere().is_empty()
        };
        let (back, stay): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.queue).into_iter().partition(waits);
        self.queue = stay;
        self.forget_taken(&back);
        Vec::from(back)
    }

    /// How often calls that have not begun take each of these objects.
    #[must_use]
    pub fn uses_by_queued(&self, objects: &Set<ObjectId>) -> Map<ObjectId, u32> {
        let mut counts: Map<ObjectId, u32> = Map::default();
        for incoming in self.queue.iter().chain(&self.held) {
            for (dependency, met) in incoming.push.dependencies.iter().zip(&incoming.dependencies) {
                if met.stored.is_some() && objects.contains(&dependency.object) {
                    *counts.entry(dependency.object).or_default() += 1;
                }
            }
        }
        counts
    }

    /// The copy of a value was given up: calls that have not begun wait until the value is brought from
    /// `from` again.
    pub fn on_copy_left(&mut self, object: ObjectId, from: &Outcome) {
        for incoming in self.queue.iter_mut().chain(&mut self.held) {
            for dependency in &mut incoming.push.dependencies {
                if dependency.object == object && matches!(dependency.outcome, Outcome::Stored(_)) {
                    dependency.outcome = from.clone();
                }
            }
        }
    }

    fn forget_taken(&mut self, gone: &VecDeque<Incoming>) {
        for incoming in gone.iter().filter(|incoming| incoming.push.spec.stream.is_some()) {
            self.taken.swap_remove(&incoming.push.spec.task);
        }
    }

    /// The running task begins to wait, or goes on.
    pub fn set_blocked(&mut self, blocked: bool) {
        self.blocked = blocked;
    }

    /// Whether the worker is blocked.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Cancels a task.
    pub fn cancel(&mut self, task: TaskId) -> (Cancelled, Option<Incoming>) {
        if let Some(running) = self.running.get_mut(&task) {
            running.cancelled = true;
            return (Cancelled::Running, None);
        }
        let take = |queue: &mut VecDeque<Incoming>| {
            let at = queue.iter().position(|incoming| incoming.push.spec.task == task)?;
            queue.remove(at)
        };
        match take(&mut self.queue).or_else(|| take(&mut self.held)) {
            Some(incoming) => {
                self.taken.swap_remove(&task);
                (Cancelled::Queued, Some(incoming))
            }
            None => (Cancelled::Unknown, None),
        }
    }

    /// Whether a running task was cancelled.
    #[must_use]
    pub fn is_cancelled(&self, task: TaskId) -> bool {
        self.running.get(&task).is_some_and(|running| running.cancelled)
    }

    /// A caller died: takes out its queued tasks and cancels its running ones. Gives both, to interrupt the
    /// latter.
    pub fn on_caller_dead(&mut self, worker: WorkerId) -> (Vec<Incoming>, Vec<TaskId>) {
        let from = Peer::Worker(worker);
        let mut gone = VecDeque::new();
        for queue in [&mut self.queue, &mut self.held] {
            let (leave, stay): (VecDeque<_>, VecDeque<_>) =
                std::mem::take(queue).into_iter().partition(|i| i.from == from);
            *queue = stay;
            gone.extend(leave);
        }
        if self.takeover.on_dead(worker) {
            self.queue.append(&mut self.held);
        }
        self.forget_taken(&gone);
        let mut interrupted = Vec::new();
        for (task, running) in self.running.iter_mut().filter(|(_, running)| running.from == from) {
            // An actor's thread is not interrupted: one that waits for a reader asks whether it was
            // cancelled.
            running.cancelled = true;
            interrupted.push(*task);
        }
        (gone.into(), interrupted)
    }

    /// The objects given to the tasks that run here for a caller, and to the actor that it created.
    #[must_use]
    pub fn lent_by(&self, caller: WorkerId) -> Vec<ObjectId> {
        let is_of = |task: &TaskId, from: Peer| {
            from == Peer::Worker(caller) || (from == Peer::Node && task.owner == caller)
        };
        let running = self.running.iter().filter(|(task, running)| is_of(task, running.from));
        let mut lent: Vec<ObjectId> = running.flat_map(|(_, running)| running.uses.iter().copied()).collect();
        // Its queued tasks are taken out; a queued constructor stays.
        let constructor =
            self.queue.iter().find(|i| i.from == Peer::Node && is_of(&i.push.spec.task, i.from));
        lent.extend(constructor.map(Incoming::uses).unwrap_or_default());
        if let Some((actor, uses)) = &self.constructed
            && actor.owner == caller
        {
            lent.extend(uses);
        }
        lent
    }

    /// Tasks that run.
    pub fn running_tasks(&self) -> impl Iterator<Item = (TaskId, &Running)> {
        self.running.iter().map(|(task, running)| (*task, running))
    }

    /// Tasks that are queued.
    pub fn queued_tasks(&self) -> impl Iterator<Item = &Incoming> {
        self.queue.iter().chain(&self.held)
    }

    /// The local actor, and the objects its constructor was given.
    #[must_use]
    pub fn constructed(&self) -> Option<(TaskId, &[ObjectId])> {
        self.constructed.as_ref().map(|(actor, uses)| (*actor, &uses[..]))
    }

    /// Tasks queued.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queue.len() + self.held.len()
    }

    /// Tasks running.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.len()
    }
}

/// Whether a task is executed to recover a lost value.
fn recovers(incoming: &Incoming) -> bool {
    incoming.push.spec.recovers == Some(true)
}
