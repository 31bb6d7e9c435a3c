//! The core of a driver or worker: objects it owns and borrows, tasks it submitted, the leases and actors
//! they run on, and tasks it executes itself.
//!
//! It joins the machines of [`super::ownership`], [`super::tasks`], [`super::calls`] and
//! [`super::execution`]. Order of effects: the table is written before the message that depends on it is
//! appended; a reference is registered for its receiver before the message that carries it.
//!
//! Invariants:
//! - W1: every submitted task ends in an outcome for each of its returns.
//! - W2: a cancelled task is not executed again.
//! - W3: a task that may have been executed is only executed again within its retries; one that was not
//!   executed is executed again for free.

use std::collections::VecDeque;
use std::sync::Arc;

use sooner_wire::limits::CALL_VALUES_BYTES_MAX;
use sooner_wire::message::{
    ActorReady, Define, Dependency, Failure, FailureCode, FunctionCall, Location, MethodCall, Outcome,
    Target, TaskKind, TaskSpec,
};
use sooner_wire::resources::size;
use sooner_wire::{ActorId, FunctionId, ObjectId, ResourceSet, ShapeId, TaskId, WorkerId};

use super::action::{Action, Actions, Peer, send};
use super::calls::actors::{ActorDemand, unborn_failure};
use super::calls::{Callers, KeptObjects, Turn};
use super::execution::{Execution, Instance};
use super::memory::{Unsealed, abandoned_failure};
use super::ownership::{Lent, Lineage, Ownership, Record, Slot};
use super::tasks::{
    Awaited, Delays, Leases, Pending, Pendings, State, Streams, TaskEvents, Timestamps, TinyTasks,
    argument_bytes_max, awaited, code_of,
};
use crate::table::{Map, Set};
use crate::time::Instant;

/// See the module.
#[derive(Debug)]
pub struct WorkerCore {
    pub(super) me: WorkerId,
    pub(super) ownership: Ownership,
    pub(super) lineage: Lineage,
    /// Owned values that were lost on their way here.
    pub(super) lost_on_arrival: Vec<ObjectId>,
    pub(super) pendings: Pendings,
    pub(super) streams: Streams,
    pub(super) tiny_tasks: TinyTasks,
    pub(super) leases: Leases,
    /// Processes of other nodes whose connection is full: nothing is pushed to them.
    pub(super) full_lines: Set<WorkerId>,
    pub(super) callers: Callers,
    pub(super) execution: Execution,
    pub(super) instance: Instance,
    pub(super) functions: super::functions::Functions,
    pub(super) creations: Map<ActorId, ActorDemand>,
    pub(super) kept_objects: KeptObjects,
    pub(super) unsealed: Unsealed,
    pub(super) groups: super::groups::Groups,
    pub(super) lent: Lent,
    pub(super) suspension: super::execution::suspending::Suspension,
    pub(super) need: super::needed::Need,
    /// How often the node is told that a block changes hands: more than once only to measure the cost.
    pub(super) pins: u32,
    /// Tasks whose last dependency got its outcome. Processed in a loop, because a failure may run down a
    /// chain of any length.
    pub(super) unblocked: VecDeque<u64>,
    pub(super) delays: Delays,
    pub(super) admitting: super::tasks::admitting::Admitting,
    pub(super) events: TaskEvents,
    /// The time, as far as events brought it.
    pub(super) now: Instant,
    /// When the tasks that come next are submitted; zero: they are not recorded.
    pub(super) submitting: Instant,
}

impl WorkerCore {
    /// The node's memory has `bytes` bytes.
    pub fn set_store_bytes(&mut self, bytes: u64) {
        self.leases.set_store_bytes(bytes);
        self.callers.set_argument_bytes(argument_bytes_max(bytes));
    }

    /// The core of process `me`.
    #[must_use]
    pub fn new(me: WorkerId) -> Self {
        Self {
            me,
            ownership: Ownership::new(me),
            lineage: Lineage::default(),
            lost_on_arrival: Vec::new(),
            pendings: Pendings::default(),
            streams: Streams::default(),
            tiny_tasks: TinyTasks::default(),
            leases: Leases::default(),
            full_lines: Set::default(),
            callers: Callers::default(),
            execution: Execution::default(),
            instance: Instance::default(),
            functions: super::functions::Functions::default(),
            creations: Map::default(),
            kept_objects: KeptObjects::default(),
            unsealed: Unsealed::default(),
            groups: super::groups::Groups::default(),
            lent: Lent::default(),
            suspension: super::execution::suspending::Suspension::default(),
            need: super::needed::Need::default(),
            pins: 1,
            unblocked: VecDeque::new(),
            delays: Delays::default(),
            admitting: super::tasks::admitting::Admitting::default(),
            events: TaskEvents::default(),
            now: Instant::default(),
            submitting: Instant::default(),
        }
    }

    /// This process.
    #[must_use]
    pub fn me(&self) -> WorkerId {
        self.me
    }

    /// The ownership table.
    #[must_use]
    pub fn ownership(&self) -> &Ownership {
        &self.ownership
    }

    /// The ownership table, for the shell's handles: putting, meeting, watching.
    pub fn ownership_mut(&mut self) -> &mut Ownership {
        &mut self.ownership
    }

    /// The executing side.
    #[must_use]
    pub fn execution(&self) -> &Execution {
        &self.execution
    }

    /// The number of a resource shape.
    pub fn shape(&mut self, resources: &ResourceSet) -> ShapeId {
        self.leases.shape(resources, None)
    }

    /// Enters a function; references in its code are pinned for the job.
    pub fn define(&mut self, define: Define) {
        if self.functions.contains(define.function) {
            return;
        }
        for object in &define.references {
            self.ownership.add_use(*object);
        }
        self.functions.insert(define);
    }

    /// Number of functions and classes known to this process.
    #[must_use]
    pub fn functions(&self) -> usize {
        self.functions.len()
    }

    /// A function that this process or a caller defined.
    #[must_use]
    pub fn function(&self, function: FunctionId) -> Option<Arc<Define>> {
        self.functions.get(function).cloned()
    }

    /// Submits a task or an actor call. `slots` receive the outcomes of its returns.
    pub fn submit(
        &mut self,
        spec: Arc<TaskSpec>,
        slots: impl IntoIterator<Item = Arc<Slot>>,
        parent: Option<TaskId>,
        out: &mut Actions,
    ) {
        self.submit_after(Awaited::default(), spec, slots, parent, out);
    }

    /// Submits a task or an actor call that is queued when values behind references have come, or when too
    /// many have failed for that. It keeps these references: they are among its arguments.
    pub fn submit_after(
        &mut self,
        awaited: Awaited,
        mut spec: Arc<TaskSpec>,
        slots: impl IntoIterator<Item = Arc<Slot>>,
        parent: Option<TaskId>,
        out: &mut Actions,
    ) {
        if self.execution.is_recovering(parent) {
            Arc::make_mut(&mut spec).recovers = Some(true);
        }
        for (index, slot) in (0..).zip(slots) {
            self.ownership.own(spec.task.object(index), slot);
        }
        self.record_site(&spec);
        if let Some(options) = spec.stream {
            self.open_stream(spec.task, options);
        }
        let number = spec.task.number;
        let actor = match spec.kind() {
            TaskKind::Method(actor) => Some(actor),
            TaskKind::Task(_) | TaskKind::Creation => None,
        };
        let (is_unordered, has_group) = (spec.is_unordered(), spec.group().is_some());
        self.enter(spec.clone(), parent, out);
        if !awaited.is_over() {
            for object in awaited::begin(awaited, &spec, &mut self.pendings, &mut self.ownership, out) {
                self.revive(object, out);
            }
        }
        if let Some(actor) = actor {
            self.find_actor(actor, out);
            if has_group {
                self.callers.record_groups(actor);
            }
            // A call that needs no order is queued when its arguments are there.
            if !is_unordered && let Err(failure) = self.callers.enqueue(actor, number, Turn::Last) {
                self.fail(number, &failure, out);
            }
        }
        self.advance(number, out);
        self.run_unblocked(out);
    }

    pub(super) fn enter(&mut self, mut spec: Arc<TaskSpec>, parent: Option<TaskId>, out: &mut Actions) {
        self.choose_shape(&mut spec, parent, 0);
        let mut missing = 0;
        for object in uses(&spec) {
            self.ownership.add_use(object);
        }
        for object in &spec.dependencies {
            missing += u32::from(self.ownership.depend(*object, spec.task.number, out));
        }
        let retries = spec.retries;
        let state = State::Waiting { missing };
        self.events.counts.submitted += 1;
        let passed = Timestamps { submitted: self.submitting, ..Timestamps::default() };
        let (cancelled, recovers, crashes, memory_ends) = (false, false, 0, 0);
        let awaited = (missing > 0).then(|| spec.clone());
        self.pendings.insert(Pending {
            spec,
            state,
            retries,
            cancelled,
            recovers,
            crashes,
            memory_ends,
            gave_way: 0,
            awaited: None,
            parent,
            passed,
        });
        for object in awaited.iter().flat_map(|spec| &spec.dependencies) {
            self.revive(*object, out);
        }
    }

    /// If all dependencies of a task have outcomes: fails it, or queues and sends it.
    pub(super) fn advance(&mut self, number: u64, out: &mut Actions) {
        let Some(pending) = self.pendings.get_mut(number) else { return };
        if pending.state != (State::Waiting { missing: 0 }) {
            return;
        }
        pending.state = State::Queued;
        pending.passed.ready = self.now;
        let spec = pending.spec.clone();
        let has_arguments = !spec.dependencies.is_empty();
        let (failure, is_elsewhere) =
            if has_arguments { self.look_at_arguments(&spec) } else { (None, false) };
        if let Some(failure) = failure {
            self.remove_from_queue(&spec);
            let call = spec.method();
            if let Some(MethodCall { actor, kept: Some(_), .. }) = call {
                self.forget_call(*actor, number, out);
            }
            self.fail(number, &failure, out);
            if let Some(call) = call {
                self.dispatch_actor(call.actor, out);
            }
            return;
        }
        match &spec.target {
            Target::Function(FunctionCall { shape, scheduling, .. }) => {
                let moves = is_elsewhere || self.leases.has_lanes();
                let shape = if moves { self.near_arguments(number, *shape) } else { *shape };
                self.leases.enqueue(shape, number, scheduling.priority);
                self.dispatch(shape, out);
            }
            Target::Method(MethodCall { actor, unordered, .. }) => {
                if *unordered {
                    let recovers = self.pendings.get(number).is_some_and(|pending| pending.recovers);
                    let turn = if recovers { Turn::Recovering } else { Turn::Last };
                    if let Err(failure) = self.callers.enqueue(*actor, number, turn) {
                        return self.fail(number, &failure, out);
                    }
                }
                self.dispatch_actor(*actor, out);
            }
            Target::Class(_) if self.ownership.record(spec.task.object(0)).is_none() => {
                // Its last handle went while its arguments were awaited; the node knows that it is out of
                // scope.
                self.fail(number, &unborn_failure(&spec), out);
            }
            Target::Class(creation) => self.request_actor(&spec, creation.class, out),
        }
    }

    pub(super) fn run_unblocked(&mut self, out: &mut Actions) {
        self.lose_arrivals(out);
        while let Some(number) = self.unblocked.pop_front() {
            self.advance(number, out);
            self.lose_arrivals(out);
        }
        if self.callers.is_replaying() {
            self.go_on_replaying(out);
        }
        self.drop_unneeded_lineage(out);
        self.lend_if_starved(out);
    }

    /// Why a task must fail, such as the failure of an argument; and whether any argument is in the memory of
    /// another node.
    pub(super) fn look_at_arguments(&self, spec: &TaskSpec) -> (Option<Failure>, bool) {
        let mut is_elsewhere = false;
        let mut inline = 0;
        let failure = spec.dependencies.iter().find_map(|object| {
            match &*self.ownership.record(*object)?.slot.outcome()? {
                Outcome::Failed(failure) => Some(failure.of_argument(spec.name.as_str())),
                Outcome::Inline(bytes) => {
                    inline += bytes.len() as u64;
                    None
                }
                Outcome::Stored(_) => None,
                Outcome::Remote(_) => {
                    is_elsewhere = true;
                    None
                }
            }
        });
        (failure.or_else(|| (inline > CALL_VALUES_BYTES_MAX).then(|| too_large(spec, inline))), is_elsewhere)
    }

    /// Pushes queued tasks of a shape to leases with room, and asks the node for missing leases.
    pub(super) fn dispatch(&mut self, shape: ShapeId, out: &mut Actions) {
        if self.leases.has_lanes() && self.dispatch_lanes(shape, out) {
            return;
        }
        while let Some(front) = self.leases.front(shape) {
            let spec = &self.pendings.get(front).expect("L1: queued tasks are pending").spec;
            let function = spec.function().expect("a task in the queue of a shape calls a function");
            let bytes = self.ownership.bytes_in_memory(&spec.dependencies);
            if !self.may_send(front, bytes) {
                // No leases are asked for either: other processes could use them.
                return;
            }
            let Some(to) = self.leases.next_push(shape, function, bytes) else { break };
            self.push(to.task, to.worker, to.gpus, to.estimate, out);
        }
        self.ask_for_leases(shape, out);
    }

    pub(super) fn push(
        &mut self,
        number: u64,
        worker: WorkerId,
        gpus: Vec<u32>,
        estimate: u64,
        out: &mut Actions,
    ) {
        let pending = self.pendings.get_mut(number).expect("only pending tasks are pushed");
        pending.state = State::Pushed { worker, estimate, may_wait: false };
        pending.passed.pushed = self.now;
        let spec = pending.spec.clone();
        self.send_push(spec, worker, gpus, out);
    }

    pub(super) fn send_push(
        &mut self,
        spec: Arc<TaskSpec>,
        worker: WorkerId,
        gpus: Vec<u32>,
        out: &mut Actions,
    ) {
        if let Some(function) = spec.function()
            && let Some(define) = self.functions.first_for(worker, function)
        {
            send(out, Peer::Worker(worker), define.clone());
        }
        let dependencies = self.dependencies_of(&spec, Some(worker));
        if dependencies.iter().any(|dependency| self.may_be_awaited(&dependency.outcome, worker)) {
            self.record_waits(&spec);
        }
        let (task, streams) = (spec.task, spec.stream.is_some());
        out.push(Action::Push { worker, spec, dependencies, gpus });
        if streams {
            if let Some(stream) = self.streams.get_mut(task.number) {
                stream.begin();
            }
            self.notify_progress(task, out);
        }
    }

    /// The values of a task's arguments, for the process that executes it (`to`, if known).
    pub(super) fn dependencies_of(&mut self, spec: &TaskSpec, to: Option<WorkerId>) -> Vec<Dependency> {
        let dependency = |object: &ObjectId| {
            let outcome =
                self.ownership.tell(*object, to).expect("O1: used objects stay; pushed when complete");
            Dependency { object: *object, outcome, contained: self.ownership.contained(*object) }
        };
        if spec.dependencies.is_empty() {
            Vec::new()
        } else {
            spec.dependencies.iter().map(dependency).collect()
        }
    }

    /// Ends a task with a failure for all its returns.
    pub(super) fn fail(&mut self, number: u64, failure: &Failure, out: &mut Actions) {
        let Some(pending) = self.pendings.remove(number) else { return };
        let changed = pending.recovers.then(|| {
            self.ownership.end_repeat(pending.spec.task);
            super::ownership::recovery::reconstruction_failure(&pending.spec, failure)
        });
        let failure = changed.as_ref().unwrap_or(failure);
        self.events.on_failed(&pending, code_of(failure), false, self.now);
        if pending.spec.kind() == TaskKind::Creation {
            // Other processes that have the handle wait for a message of the node.
            let (actor, failure) = (pending.spec.task, failure.clone());
            send(out, Peer::Node, ActorReady { actor, failure: Some(failure.clone()) });
            self.on_actor_dead(actor, failure, out);
        } else {
            for index in 0..pending.spec.returns {
                let outcome = Outcome::Failed(Box::new(failure.clone()));
                self.resolve(pending.spec.task.object(index), outcome, &[], out);
            }
            if pending.spec.stream.is_some() {
                self.keep_generator(&pending, false, out);
            }
            self.end_stream(&pending.spec, Some(failure), out);
        }
        self.end_uses(&pending.spec, out);
    }

    pub(super) fn end_uses(&mut self, spec: &TaskSpec, out: &mut Actions) {
        for object in uses(spec) {
            self.ownership.end_use(object, out);
        }
    }

    pub(super) fn resolve(
        &mut self,
        object: ObjectId,
        outcome: Outcome,
        contained: &[ObjectId],
        out: &mut Actions,
    ) {
        let is_lost = self.ownership.is_lost(object, &outcome) || self.ownership.is_missing(object, &outcome);
        let has_failed = matches!(outcome, Outcome::Failed(_));
        if is_lost && object.owner() != self.me {
            self.ownership.discard(object, &outcome, contained, out);
            return self.ownership.ask_again(object, &outcome, out);
        }
        let resolved = self.ownership.resolve(object, outcome, contained, out);
        // An object that has a value already, of an earlier execution, keeps it.
        if is_lost && self.ownership.has_lost_value(object) {
            self.lost_on_arrival.push(object);
        }
        for number in resolved.dependents {
            let complete = awaited::note_outcome(number, object, has_failed, &mut self.pendings);
            self.unblocked.extend(complete);
        }
        if self.execution.is_missing(object) {
            self.deliver_missing(object, out);
        }
    }

    /// Enters an object whose value this process writes at `block` until [`Self::seal`].
    pub fn create(&mut self, object: ObjectId, slot: Arc<Slot>, block: Location) {
        self.ownership.own(object, slot);
        self.unsealed.insert(object, block);
    }

    /// The value of an object is written, and never changes any more. False if it is not one that this
    /// process writes.
    pub fn seal(&mut self, object: ObjectId, out: &mut Actions) -> bool {
        let Some(block) = self.unsealed.remove(object) else { return false };
        self.resolve(object, Outcome::Stored(block), &[], out);
        self.run_unblocked(out);
        true
    }

    /// Values that this process writes.
    #[must_use]
    pub fn unsealed(&self) -> &Unsealed {
        &self.unsealed
    }

    /// A task returns the value of an object that is not sealed; the caller holds a handle of it. Gives the
    /// block if nothing else knows the object: the returned value has it now. An array that is left may still
    /// be written to: its value is copied, and it is sealed at the latest when it is dropped.
    pub fn on_written_returned(&mut self, object: ObjectId, out: &mut Actions) -> Option<Location> {
        let is_written = self.ownership.record(object).is_none_or(|record| record.slot.views() > 0);
        if is_written {
            self.unsealed.record_returned(object);
            return None;
        }
        if !self.ownership.is_sole(object) {
            self.seal(object, out);
            return None;
        }
        let block = self.unsealed.remove(object)?;
        self.resolve(object, Outcome::Failed(Box::new(abandoned_failure())), &[], out);
        Some(block)
    }

    /// The last handle of an object that is not sealed was dropped, unless there is a new one: nobody can
    /// write the value any more, or seal it.
    fn abandon(&mut self, object: ObjectId, out: &mut Actions) {
        let has_handles = |record: &Record| record.slot.handles() > 0;
        if self.ownership.record(object).is_some_and(has_handles) {
            return;
        }
        if self.unsealed.is_returned(object) {
            self.seal(object, out);
        } else if let Some(block) = self.unsealed.remove(object) {
            out.push(Action::FreeBlock(block));
            self.resolve(object, Outcome::Failed(Box::new(abandoned_failure())), &[], out);
            self.run_unblocked(out);
        }
    }

    /// The last handles of these objects were dropped.
    pub fn on_handles_dropped(&mut self, objects: &[ObjectId], out: &mut Actions) {
        for object in objects {
            if *object == object.task.reader() {
                self.drop_stream(object.task, out);
            } else if self.unsealed.contains(*object) {
                self.abandon(*object, out);
            } else {
                self.ownership.on_handle_dropped(*object, out);
            }
        }
        self.drop_unneeded_lineage(out);
        self.forget_dropped_actors();
    }

    /// Returns idle leases and tries crashed tasks again. To be called at [`Self::next_deadline`].
    pub fn on_timer(&mut self, now: Instant, out: &mut Actions) {
        self.forget_dropped_actors();
        self.now = now;
        self.retry_delayed(out);
        self.send_held_back(out);
        for shape in self.leases.late(now) {
            self.dispatch(shape, out);
        }
        self.leases.return_leases(now, out);
    }

    /// When [`Self::on_timer`] has something to do although no message comes. Any call into this core may
    /// bring it nearer, also a submission: the shell asks after each.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let held_back = self.admitting.next();
        // Held-back tasks are not stolen, and have a time of their own.
        let steal = self.leases.next_steal().filter(|_| held_back.is_none());
        [self.leases.next_return(), self.delays.next(), steal, held_back].into_iter().flatten().min()
    }

    /// Tasks submitted and not ended.
    #[must_use]
    pub fn pending_tasks(&self) -> usize {
        self.pendings.len()
    }

    /// [`Self::pending_tasks`] without living actors: a creation counts as a task while it may have to be
    /// repeated.
    #[must_use]
    pub fn pending_submissions(&self) -> usize {
        self.pendings.len().saturating_sub(self.creations.len())
    }

    /// Tasks submitted that wait for a worker.
    #[must_use]
    pub fn queued_tasks(&self) -> usize {
        self.leases.shapes().map(|(_, queued, _, _)| queued).sum()
    }

    /// Streaming tasks that have not ended or are not read to their end.
    #[must_use]
    pub fn open_streams(&self) -> usize {
        self.streams.len()
    }

    /// Leases held.
    #[must_use]
    pub fn leases_held(&self) -> usize {
        self.leases.held()
    }

    /// The worker a task was pushed to, from which its reply will come.
    #[must_use]
    pub fn pushed_to(&self, task: TaskId) -> Option<WorkerId> {
        match self.pendings.get(task.number)?.state {
            State::Pushed { worker, .. } if task.owner == self.me => Some(worker),
            _ => None,
        }
    }

    /// Whether a pending task of this process is a call of an actor.
    #[must_use]
    pub fn is_actor_call(&self, task: TaskId) -> bool {
        let pending = self.pendings.get(task.number).filter(|_| task.owner == self.me);
        pending.is_some_and(|p| matches!(p.spec.kind(), TaskKind::Method(_)))
    }

    /// Asserts the invariants across machines; for tests and the simulator.
    pub fn check(&self) {
        self.leases.check(|number| match self.pendings.get(number).map(|p| &p.state) {
            Some(State::Pushed { estimate, .. }) => *estimate,
            other => panic!("L1: task {number} is in flight but {other:?}"),
        });
    }
}

/// The objects that a task keeps alive until it ends: its arguments, and the handle of the actor it calls.
pub(super) fn uses(spec: &TaskSpec) -> impl Iterator<Item = ObjectId> + '_ {
    let handle = match spec.kind() {
        TaskKind::Method(actor) => Some(actor.object(0)),
        TaskKind::Task(_) | TaskKind::Creation => None,
    };
    spec.dependencies.iter().chain(&spec.references).copied().chain(handle)
}

pub(super) fn hex(task: TaskId) -> String {
    format!("{:016x}{:016x}", task.owner.0, task.number)
}

/// The failure of a task whose arguments do not fit into one message.
fn too_large(spec: &TaskSpec, inline: u64) -> Failure {
    let code = match spec.kind() {
        TaskKind::Creation => FailureCode::ActorUnschedulable,
        TaskKind::Task(_) | TaskKind::Method(_) => FailureCode::TaskUnschedulable,
    };
    let message = format!(
        "{}() cannot be sent: small values among its arguments have {} together. They travel inside one message, which holds \
         {} of them. Put them together into fewer values: larger ones lie in shared memory",
        spec.name.as_str(),
        size(inline),
        size(CALL_VALUES_BYTES_MAX)
    );
    Failure::new(code, message)
}
