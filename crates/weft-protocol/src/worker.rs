//! The core of a driver or worker: what it owns and borrows, the tasks it submitted, the leases and actors they
//! run on, and the tasks it executes itself.
//!
//! It joins the machines of [`crate::ownership`], [`crate::tasks`], [`crate::actors`] and [`crate::execution`].
//! Order of effects: the table is written before the message that depends on it is appended; a reference is
//! registered for its receiver before the message that carries it.
//!
//! Invariants:
//! - W1: every submitted task ends in an outcome for each of its returns.
//! - W2: a cancelled task is not executed again.
//! - W3: a task that may have been executed is only executed again within its retries; one that was not
//!   executed is executed again for free.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::probes::{bug, mark};
use weft_wire::message::{
    ActorReady, ActorRestarting, CancelTask, CreateActor, Define, Dependency, Failure, FailureCode,
    KillActor, LeaseGranted, Message, Outcome, Push, Replayed, Reply, Return, Returned, StillRead,
    SubscribeActor, TaskKind, TaskSpec, WorkerGone,
};
use weft_wire::{ActorId, FunctionId, ObjectId, ResourceSet, ShapeId, TaskId, WorkerId};

use crate::action::{Action, Actions, Peer, send};
use crate::actors::{ActorPlace, Callers, Instance};
use crate::execution::{Cancelled, Execution, Incoming, MetDependency, Running};
use crate::ownership::{Lineage, Ownership, Slot};
use crate::table::{Map, Set};
use crate::tasks::{Delays, Leases, Passed, Pending, Pendings, Replied, State, Streams, TaskEvents, code_of};
use crate::time::Instant;

mod checkpointing;
mod executing;
mod holds;
mod recovery;
mod replaying;
mod report;
mod retrying;
mod settling;
mod streaming;

/// A task that runs shorter than this (nanoseconds) costs more to hand over than to run.
const TINY_NANOS: u64 = 2_000;
/// So many of them are worth a word.
const TINY_TASKS: u32 = 500_000;

/// What an actor needs to be placed.
#[derive(Debug, Clone)]
pub struct ActorDemand {
    /// What must be free when it is placed.
    pub placement: ResourceSet,
    /// What it holds while it lives.
    pub lifetime: ResourceSet,
    /// How often a new process takes over after a failure; -1 for ever.
    pub restarts: i32,
    /// It lives on without handles and without its owner.
    pub detached: bool,
}

/// See the module.
#[derive(Debug)]
pub struct WorkerCore {
    me: WorkerId,
    ownership: Ownership,
    lineage: Lineage,
    /// Values of ours that were lost on their way.
    lost_on_arrival: Vec<ObjectId>,
    pendings: Pendings,
    streams: Streams,
    /// Tasks of ours that took next to no time; counted until somebody was told.
    tiny_tasks: u32,
    leases: Leases,
    callers: Callers,
    execution: Execution,
    instance: Instance,
    functions: Map<FunctionId, Arc<Define>>,
    /// Functions each peer knows.
    defined: Map<WorkerId, Set<FunctionId>>,
    creations: Map<ActorId, ActorDemand>,
    /// Arguments of tasks and calls that were with processes which are gone: used until their deaths are settled.
    lent: Vec<(WorkerId, Vec<ObjectId>)>,
    /// How often this process was lent a value in a block of a dead owner.
    orphans_met: u64,
    /// How often the node hears that a block changes hands: more than once only to measure what that costs.
    pins: u32,
    /// Tasks whose last dependency got its outcome: worked off in a loop, because a failure may run down a chain
    /// of any length.
    unblocked: VecDeque<u64>,
    delays: Delays,
    events: TaskEvents,
    /// The time as far as events brought it.
    now: Instant,
    /// When the tasks are submitted that come next; zero: they are not recorded.
    submitting: Instant,
}

impl WorkerCore {
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
            tiny_tasks: 0,
            leases: Leases::default(),
            callers: Callers::default(),
            execution: Execution::default(),
            instance: Instance::default(),
            functions: Map::default(),
            defined: Map::default(),
            creations: Map::default(),
            lent: Vec::new(),
            orphans_met: 0,
            pins: 1,
            unblocked: VecDeque::new(),
            delays: Delays::default(),
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
        self.leases.shape(resources)
    }

    /// Makes a function known; references in its code are pinned for the job.
    pub fn define(&mut self, define: Define) {
        if self.functions.contains_key(&define.function) {
            return;
        }
        for object in &define.references {
            self.ownership.add_use(*object);
        }
        self.functions.insert(define.function, Arc::new(define));
    }

    /// A function that was defined here or by a caller.
    #[must_use]
    pub fn function(&self, function: FunctionId) -> Option<Arc<Define>> {
        self.functions.get(&function).cloned()
    }

    /// Submits a task or an actor call. `slots` receive the outcomes of its returns.
    pub fn submit(
        &mut self,
        spec: Arc<TaskSpec>,
        slots: impl IntoIterator<Item = Arc<Slot>>,
        parent: Option<TaskId>,
        out: &mut Actions,
    ) {
        for (index, slot) in (0..).zip(slots) {
            self.ownership.own(spec.task.object(index), slot);
        }
        self.note_site(&spec);
        if let Some(options) = spec.stream {
            self.open_stream(spec.task, options);
        }
        let number = spec.task.number;
        let actor = match spec.kind {
            TaskKind::Method(actor) => Some(actor),
            TaskKind::Task(_) | TaskKind::Creation => None,
        };
        let is_unordered = spec.unordered == Some(true);
        self.enter(spec, parent, out);
        if let Some(actor) = actor {
            self.find_actor(actor, out);
            // A call that needs no order takes its place when its arguments are there.
            if !is_unordered && let Err(failure) = self.callers.enqueue(actor, number) {
                self.fail(number, &failure, out);
            }
        }
        self.advance(number, out);
        self.run_unblocked(out);
    }

    /// Asks where an actor is, once. One of ours that is not known any more is gone: the node would take the question for
    /// the word that it will come.
    fn find_actor(&mut self, actor: ActorId, out: &mut Actions) {
        if self.callers.place(actor).is_some() {
            return;
        }
        if actor.owner == self.me {
            return self.callers.refuse(actor, gone_failure());
        }
        self.callers.meet(actor);
        self.ownership.mark_actor(actor.object(0));
        send(out, Peer::Node, SubscribeActor { actor });
    }

    /// Creates an actor: its handle is return 0 of the constructor's task.
    pub fn create_actor(
        &mut self,
        spec: Arc<TaskSpec>,
        slot: Arc<Slot>,
        demand: ActorDemand,
        out: &mut Actions,
    ) {
        let actor = spec.task;
        self.ownership.own(actor.object(0), slot);
        self.ownership.mark_actor(actor.object(0));
        if demand.detached {
            self.ownership.add_use(actor.object(0));
        }
        self.note_site(&spec);
        self.callers.meet(actor);
        self.creations.insert(actor, demand);
        self.enter(spec, None, out);
        if self.pendings.get(actor.number).is_some_and(|p| p.state != State::Waiting { missing: 0 }) {
            // The handle may reach others, and they the node, while the constructor waits for its arguments.
            send(out, Peer::Node, SubscribeActor { actor });
        }
        self.advance(actor.number, out);
        self.run_unblocked(out);
    }

    fn enter(&mut self, spec: Arc<TaskSpec>, parent: Option<TaskId>, out: &mut Actions) {
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
        let passed = Passed { submitted: self.submitting, ..Passed::default() };
        let (cancelled, recovers, crashes) = (false, false, 0);
        let awaited = (missing > 0).then(|| spec.clone());
        self.pendings.insert(Pending { spec, state, retries, cancelled, recovers, crashes, parent, passed });
        for object in awaited.iter().flat_map(|spec| &spec.dependencies) {
            self.revive(*object, out);
        }
    }

    /// Moves a task on whose dependencies may be complete.
    fn advance(&mut self, number: u64, out: &mut Actions) {
        let Some(pending) = self.pendings.get_mut(number) else { return };
        if pending.state != (State::Waiting { missing: 0 }) {
            return;
        }
        pending.state = State::Queued;
        pending.passed.ready = self.now;
        let spec = pending.spec.clone();
        if let Some(failure) = self.failed_dependency(&spec) {
            self.remove_from_queue(&spec);
            if let (TaskKind::Method(actor), Some(_)) = (spec.kind, spec.kept) {
                self.forget_call(actor, number, out);
            }
            self.fail(number, &failure, out);
            if let TaskKind::Method(actor) = spec.kind {
                self.dispatch_actor(actor, out);
            }
            return;
        }
        match spec.kind {
            TaskKind::Task(shape) => {
                self.leases.enqueue(shape, number);
                self.dispatch(shape, out);
            }
            TaskKind::Method(actor) => {
                if spec.unordered == Some(true) {
                    let is_first = self.pendings.get(number).is_some_and(|pending| pending.recovers);
                    let enqueue = if is_first { Callers::enqueue_first } else { Callers::enqueue };
                    if let Err(failure) = enqueue(&mut self.callers, actor, number) {
                        return self.fail(number, &failure, out);
                    }
                }
                self.dispatch_actor(actor, out);
            }
            TaskKind::Creation if self.ownership.record(spec.task.object(0)).is_none() => {
                // Its last handle went while its arguments were awaited; the node has heard that it is out of scope.
                self.fail(number, &unborn_failure(&spec), out);
            }
            TaskKind::Creation => self.request_actor(&spec, out),
        }
    }

    fn run_unblocked(&mut self, out: &mut Actions) {
        self.lose_arrivals(out);
        while let Some(number) = self.unblocked.pop_front() {
            self.advance(number, out);
            self.lose_arrivals(out);
        }
        if self.callers.is_replaying() {
            self.go_on_replaying(out);
        }
        self.settle_lineage(out);
    }

    fn failed_dependency(&self, spec: &TaskSpec) -> Option<Failure> {
        spec.dependencies.iter().find_map(|object| match self.ownership.record(*object)?.slot.outcome()? {
            Outcome::Failed(failure) => Some((**failure).clone()),
            Outcome::Inline(_) | Outcome::Stored(_) => None,
        })
    }

    /// Pushes queued tasks of a shape to leases with room, and tells the node what is missing.
    fn dispatch(&mut self, shape: ShapeId, out: &mut Actions) {
        while let Some(front) = self.leases.front(shape) {
            let function = self.pendings.get(front).expect("L1: queued tasks are pending").spec.function;
            let Some(to) = self.leases.next_push(shape, function) else { break };
            self.push(to.task, to.worker, to.gpus, to.estimate, out);
        }
        self.leases.update_demand(shape, out);
    }

    fn dispatch_actor(&mut self, actor: ActorId, out: &mut Actions) {
        if self.callers.is_replaying() {
            self.replay(actor, out);
        }
        while let Some((number, worker)) = self.callers.next_call(actor) {
            let pending = self.pendings.get(number).expect("A1: queued calls are pending");
            if pending.state != State::Queued {
                return;
            }
            if pending.spec.kept.is_some() {
                let spec = pending.spec.clone();
                self.keep_call(actor, spec);
            }
            self.callers.on_pushed(actor);
            self.push(number, worker, Vec::new(), 0, out);
        }
    }

    fn push(&mut self, number: u64, worker: WorkerId, gpus: Vec<u32>, estimate: u64, out: &mut Actions) {
        let pending = self.pendings.get_mut(number).expect("only pending tasks are pushed");
        pending.state = State::Pushed { worker, estimate };
        pending.passed.pushed = self.now;
        let spec = pending.spec.clone();
        self.send_push(spec, worker, gpus, out);
    }

    fn send_push(&mut self, spec: Arc<TaskSpec>, worker: WorkerId, gpus: Vec<u32>, out: &mut Actions) {
        let knows = |known: &Set<FunctionId>| known.contains(&spec.function);
        if spec.function != FunctionId(0) && !self.defined.get(&worker).is_some_and(knows) {
            self.defined.entry(worker).or_default().insert(spec.function);
            let define = self.functions.get(&spec.function).expect("defined before it is submitted");
            send(out, Peer::Worker(worker), (**define).clone());
        }
        let dependencies = self.dependencies_of(&spec);
        let (task, streams) = (spec.task, spec.stream.is_some());
        out.push(Action::Push { worker, spec, dependencies, gpus });
        if streams {
            self.tell_progress(task, out);
        }
    }

    fn dependencies_of(&self, spec: &TaskSpec) -> Vec<Dependency> {
        let dependency = |object: &ObjectId| {
            let record = self.ownership.record(*object).expect("O1: used objects stay");
            let outcome = record.slot.outcome().expect("pushed when complete").clone();
            Dependency { object: *object, outcome, contained: self.ownership.contained(*object) }
        };
        if spec.dependencies.is_empty() {
            Vec::new()
        } else {
            spec.dependencies.iter().map(dependency).collect()
        }
    }

    fn request_actor(&mut self, spec: &Arc<TaskSpec>, out: &mut Actions) {
        let demand = self.creations.get(&spec.task).expect("created here").clone();
        let class = self.functions.get(&spec.function).expect("defined before it is created");
        let message = CreateActor {
            actor: spec.task,
            placement: demand.placement,
            lifetime: demand.lifetime,
            class: Box::new((**class).clone()),
            constructor: Box::new(Push {
                spec: Box::new((**spec).clone()),
                dependencies: self.dependencies_of(spec),
                gpus: Vec::new(),
            }),
            restarts: Some(demand.restarts),
            detached: Some(demand.detached),
        };
        send(out, Peer::Node, message);
    }

    /// Ends a task with a failure for all its returns.
    fn fail(&mut self, number: u64, failure: &Failure, out: &mut Actions) {
        let Some(pending) = self.pendings.remove(number) else { return };
        let changed = pending.recovers.then(|| recovery::reconstruction_failure(&pending.spec, failure));
        let failure = changed.as_ref().unwrap_or(failure);
        self.events.on_failed(&pending, code_of(failure), false, self.now);
        if pending.spec.kind == TaskKind::Creation {
            // Others that have the handle wait for word from the node.
            let (actor, failure) = (pending.spec.task, failure.clone());
            send(out, Peer::Node, ActorReady { actor, failure: Some(failure.clone()) });
            self.on_actor_dead(actor, failure, out);
        } else {
            for index in 0..pending.spec.returns {
                let outcome = Outcome::Failed(Box::new(failure.clone()));
                self.resolve(pending.spec.task.object(index), outcome, &[], out);
            }
            self.end_stream(pending.spec.task, Some(failure), out);
        }
        self.end_uses(&pending.spec, out);
    }

    fn end_uses(&mut self, spec: &TaskSpec, out: &mut Actions) {
        for object in uses(spec) {
            self.ownership.end_use(object, out);
        }
    }

    fn resolve(&mut self, object: ObjectId, outcome: Outcome, contained: &[ObjectId], out: &mut Actions) {
        if self.ownership.is_lost(&outcome) {
            if object.owner() != self.me {
                self.ownership.discard(object, &outcome, contained, out);
                return self.ownership.ask_again(object, out);
            }
            self.lost_on_arrival.push(object);
        }
        let resolved = self.ownership.resolve(object, outcome, contained, out);
        for number in resolved.dependents {
            if let Some(Pending { state: State::Waiting { missing }, .. }) = self.pendings.get_mut(number) {
                *missing -= 1;
                if *missing == 0 {
                    self.unblocked.push_back(number);
                }
            }
        }
        if self.execution.is_missing(object) {
            self.deliver_missing(object, out);
        }
    }

    /// A message came. What is not for the core (answers to the shell's own questions) comes back.
    pub fn on_message(
        &mut self,
        from: Peer,
        message: Message,
        now: Instant,
        out: &mut Actions,
    ) -> Option<Message> {
        self.now = now;
        match (message, from) {
            (Message::Push(push), _) => self.on_push(from, push, out),
            (Message::Reply(reply), Peer::Worker(worker)) => self.on_reply(worker, reply, now, out),
            (Message::Returned(returned), Peer::Worker(worker)) => {
                self.on_returned(worker, &returned, out);
            }
            (Message::Item(item), Peer::Worker(worker)) => self.on_item(worker, item, out),
            (Message::ItemsTaken(taken), Peer::Worker(_)) => {
                self.execution.on_items_taken(taken.task, taken.taken, taken.stop);
            }
            (Message::Define(define), _) => self.define(define),
            (Message::CancelTask(cancel), Peer::Worker(_)) => self.on_cancel(&cancel, out),
            (Message::Fetch(fetch), Peer::Worker(worker)) => {
                self.ownership.on_fetch(fetch.object, worker, out);
                self.revive(fetch.object, out);
            }
            (Message::Value(value), Peer::Worker(worker)) => {
                self.ownership.receive(&value.contained, worker);
                self.resolve(value.object, value.outcome, &value.contained, out);
            }
            // The node registers the process to which it gives the state of an actor.
            (Message::AddBorrow(add), _) => {
                let giver = if let Peer::Worker(giver) = from { giver } else { self.me };
                self.ownership.on_add_borrow(add.object, add.borrower, giver, out);
            }
            (Message::RemoveBorrow(remove), Peer::Worker(worker)) => {
                self.ownership.on_remove_borrow(worker, &remove, out);
            }
            (Message::LeaseGranted(grant), Peer::Node) => self.on_granted(grant, now, out),
            (Message::ReclaimLease(reclaim), Peer::Node) => {
                self.leases.on_reclaim(reclaim.count);
                self.leases.return_leases(now, out);
            }
            (Message::WorkerGone(gone), Peer::Node) => self.on_worker_gone(&gone, out),
            (Message::Settled(settled), Peer::Node) => self.on_settled(&settled, out),
            (Message::ActorStarted(started), Peer::Node) => {
                let replays = started.replays == Some(true);
                self.callers.on_started(started.actor, started.worker, started.concurrency, replays);
                if replays && self.callers.place(started.actor).is_none() {
                    // Out of scope here, so nothing is made again; the process waits to hear that.
                    send(out, Peer::Worker(started.worker), Replayed { actor: started.actor });
                }
                self.dispatch_actor(started.actor, out);
            }
            (Message::ActorRestarting(restarting), Peer::Node) => {
                self.on_actor_restarting(&restarting, out);
            }
            (Message::ActorDead(dead), Peer::Node) => {
                self.on_actor_dead(dead.actor, dead.failure, out);
            }
            (Message::Checkpointed(done), Peer::Node) => self.on_checkpointed(&done, out),
            (Message::Restore(restore), Peer::Node) => self.on_restore(restore, out),
            (Message::Replayed(_), Peer::Worker(worker)) => self.execution.on_replayed(worker),
            (Message::KeepObjects(keep), Peer::Node) => self.on_keep_objects(&keep, out),
            (Message::ReadersOf(question), Peer::Node) => {
                let offsets = self.ownership.inherit(question.offsets);
                let offsets = if bug!(BlockOfDeadOwnerFreed) { Vec::new() } else { offsets };
                let lent = Some(self.orphans_met);
                send(out, Peer::Node, StillRead { round: question.round, offsets, lent });
            }
            (Message::BlocksLost(lost), Peer::Node) => self.on_blocks_lost(&lost.offsets, out),
            (Message::ForgetLost(question), Peer::Node) => {
                self.ownership.forget_lost(&question.offsets);
                let answer = StillRead { round: question.round, offsets: Vec::new(), lent: None };
                send(out, Peer::Node, answer);
            }
            (Message::GivenBlocks(mut question), Peer::Node) => {
                // The shell knows of blocks without a value: being written, or kept for reuse.
                question.offsets.retain(|block| !self.ownership.knows_block(*block));
                return (!question.offsets.is_empty()).then(|| question.into());
            }
            (Message::Infeasible(what), Peer::Node) => out.push(Action::Warn(format!(
                "a task or actor asks for {}, but this cluster has only {}: it stays pending until resources are added. Ask for less, or start with more",
                what.asked.describe(),
                what.total.describe()
            ))),
            (other, _) => {
                self.run_unblocked(out);
                return Some(other);
            }
        }
        self.run_unblocked(out);
        None
    }

    fn on_granted(&mut self, grant: LeaseGranted, now: Instant, out: &mut Actions) {
        let shape = grant.shape;
        self.leases.on_granted(grant, now);
        self.dispatch(shape, out);
    }

    fn on_reply(&mut self, worker: WorkerId, reply: Reply, now: Instant, out: &mut Actions) {
        for object in &reply.held {
            self.ownership.hand_over(*object, worker, out);
        }
        let number = reply.task.number;
        let Some((pending, estimate)) = self.pendings.get_mut(number).and_then(Pending::pushed) else {
            mark!("a reply came for a task that was not out any more");
            return self.on_ghost_reply(worker, &reply, out);
        };
        let spec = pending.spec.clone();
        // An execution whose effects are kept is not followed by another one of the same call.
        let again = reply.retry && !pending.cancelled && pending.retries != 0 && spec.kept != Some(true);
        self.events.on_reply(pending, worker, &reply, again, now);
        if again {
            pending.retries -= i32::from(pending.retries > 0);
            pending.state = State::Queued;
            pending.repeat(now);
        }
        let waits = again && self.must_wait_again(number, out);
        match spec.kind {
            TaskKind::Task(shape) => {
                let function = spec.function;
                let nanos = reply.nanos;
                self.notice_tiny(function, nanos, out);
                let replied = Replied { shape, worker, task: number, estimate, function, nanos };
                self.leases.on_reply(&replied, now);
                if again && !waits {
                    self.leases.enqueue(shape, number);
                } else if !again {
                    self.end(number, worker, reply, out);
                }
                self.dispatch(shape, out);
            }
            TaskKind::Method(actor) => {
                self.callers.on_reply(actor, number);
                if spec.kept == Some(false) || reply.not_run == Some(true) {
                    self.forget_call(actor, number, out);
                }
                let has_place = waits && spec.unordered == Some(true);
                if again && (has_place || self.callers.enqueue_first(actor, number).is_ok()) {
                    // Goes before the calls that are queued: one of them may wait for its result.
                } else {
                    self.end(number, worker, reply, out);
                }
                self.dispatch_actor(actor, out);
            }
            TaskKind::Creation => {}
        }
    }

    /// Many tasks in a row that took less than handing them over are worth a word, once.
    fn notice_tiny(&mut self, function: FunctionId, nanos: u64, out: &mut Actions) {
        if nanos >= TINY_NANOS || self.tiny_tasks >= TINY_TASKS {
            return;
        }
        self.tiny_tasks += 1;
        if self.tiny_tasks < TINY_TASKS {
            return;
        }
        let Some(define) = self.functions.get(&function) else { return };
        let place = define.place.as_ref().map_or(String::new(), |place| format!("{}: ", place.as_str()));
        out.push(Action::Warn(format!(
            "{place}{TINY_TASKS} tasks took less than {} us each, the last of them {}(); handing such a task over takes as long. Let one task do many of them, or use weft.Executor().map(..., chunksize=n)",
            TINY_NANOS / 1000,
            define.name.as_str()
        )));
    }

    fn end(&mut self, number: u64, worker: WorkerId, reply: Reply, out: &mut Actions) {
        let Some(pending) = self.pendings.remove(number) else {
            return self.on_ghost_reply(worker, &reply, out);
        };
        let task = pending.spec.task;
        if let [Return { outcome: Outcome::Failed(failure), .. }] = &reply.returns[..] {
            for index in 0..pending.spec.returns {
                self.resolve(task.object(index), Outcome::Failed(failure.clone()), &[], out);
            }
            self.end_stream(task, Some(failure), out);
        } else {
            let is_stored = |value: &Return| matches!(value.outcome, Outcome::Stored(_));
            let has_stored = reply.returns.iter().any(is_stored);
            for (index, value) in (0..).zip(reply.returns) {
                self.ownership.receive(&value.contained, worker);
                self.resolve(task.object(index), value.outcome, &value.contained, out);
            }
            self.end_stream(task, None, out);
            // A value that was not lost stays, wherever this execution would have put it.
            if has_stored || (pending.recovers && self.ownership.is_any_stored(task, pending.spec.returns)) {
                self.keep_lineage(&pending, out);
            }
        }
        self.end_uses(&pending.spec, out);
    }

    fn on_returned(&mut self, worker: WorkerId, returned: &Returned, out: &mut Actions) {
        // Last first, so that they stand at the front in their old order.
        for task in returned.tasks.iter().rev() {
            let Some(pending) = self.pendings.get_mut(task.number) else { continue };
            let (TaskKind::Task(shape), State::Pushed { estimate, .. }) = (pending.spec.kind, &pending.state)
            else {
                continue;
            };
            self.leases.on_returned(shape, worker, task.number, *estimate);
            if pending.cancelled {
                mark!("a cancelled task came back unexecuted");
                self.fail(task.number, &cancelled_failure(*task), out);
                continue;
            }
            pending.state = State::Queued;
            if !self.must_wait_again(task.number, out) {
                self.leases.enqueue_front(shape, task.number);
            }
        }
        for shape in self.leases.shape_ids() {
            self.dispatch(shape, out);
        }
    }

    fn on_worker_gone(&mut self, gone: &WorkerGone, out: &mut Actions) {
        let worker = gone.worker;
        self.defined.swap_remove(&worker);
        let tasks = self.leases.on_worker_gone(worker);
        let is_news = !self.ownership.is_gone(worker);
        if is_news {
            self.keep_lent(worker, &tasks);
        }
        if tasks.len() > 1 {
            mark!("a worker died with several tasks in flight");
        }
        // Tasks run in the order they were pushed: those after the last one that began were not executed.
        let begun = gone
            .last_started
            .and_then(|last| tasks.iter().position(|t| last.owner == self.me && *t == last.number))
            .map_or(0, |at| at + 1);
        for (at, number) in tasks.iter().enumerate().rev() {
            self.after_crash(*number, at < begun, &gone.reason, out);
        }
        for object in self.ownership.on_worker_gone(worker) {
            let failure = owner_died_failure(object, gone);
            self.resolve(object, Outcome::Failed(Box::new(failure)), &[], out);
        }
        self.on_caller_gone(worker, out);
        if is_news {
            self.report_held(worker, out);
        }
        for shape in self.leases.shape_ids() {
            self.dispatch(shape, out);
        }
    }

    fn after_crash(&mut self, number: u64, maybe_executed: bool, reason: &str, out: &mut Actions) {
        let Some(pending) = self.pendings.get_mut(number) else { return };
        let TaskKind::Task(shape) = pending.spec.kind else { return };
        let task = pending.spec.task;
        let maybe_executed = maybe_executed || bug!(RetriesForTheUnbegun);
        if !maybe_executed {
            mark!("a worker died before it began a task that was pushed to it");
        }
        if pending.cancelled {
            mark!("a worker died with a cancelled task");
        }
        if pending.recovers {
            mark!("a worker died while it computed a lost value again");
        }
        if pending.cancelled && !bug!(RetryAfterCancel) {
            return self.fail(number, &cancelled_failure(task), out);
        }
        if maybe_executed && pending.retries == 0 {
            let failure = retrying::crashed_failure(&pending.spec, reason);
            return self.fail(number, &failure, out);
        }
        if maybe_executed {
            self.events.on_failed(pending, FailureCode::WorkerCrashed as u8 + 1, true, self.now);
            pending.repeat(self.now);
        }
        if !bug!(RetriesNeverEnd) {
            pending.retries -= i32::from(maybe_executed && pending.retries > 0);
        }
        pending.crashes = pending.crashes.saturating_add(u8::from(maybe_executed));
        if maybe_executed && self.delay(number) {
            return;
        }
        self.pendings.get_mut(number).expect("looked up above").state = State::Queued;
        if !self.must_wait_again(number, out) {
            self.leases.enqueue_front(shape, number);
        }
    }

    /// Calls in flight may have been executed: they are made again within their retries, in their order. Those of an
    /// actor with checkpoints are made again anyway.
    fn on_actor_restarting(&mut self, restarting: &ActorRestarting, out: &mut Actions) {
        let ActorRestarting { actor, reason, .. } = restarting;
        let actor = *actor;
        let interrupted = self.callers.on_restarting(actor);
        self.repeat_kept(restarting, &interrupted.kept, out);
        let mut calls = interrupted.others;
        if calls.len() > 1 {
            mark!("an actor restarted with several calls in flight");
        }
        if bug!(CallsReorderedAfterRestart) {
            calls.reverse();
        }
        if bug!(CallsLostAtRestart) {
            calls.clear();
        }
        for number in calls.into_iter().rev() {
            let Some(pending) = self.pendings.get_mut(number) else { continue };
            let task = pending.spec.task;
            if pending.cancelled {
                self.fail(number, &cancelled_failure(task), out);
            } else if pending.retries == 0 {
                let failure = restarting_failure(&pending.spec, reason);
                self.fail(number, &failure, out);
            } else {
                pending.retries -= i32::from(pending.retries > 0);
                pending.state = State::Queued;
                let is_unordered = pending.spec.unordered == Some(true);
                // One without order takes its place when its arguments are there.
                if !self.must_wait_again(number, out) || !is_unordered {
                    self.callers.enqueue_front(actor, number);
                }
            }
        }
    }

    fn on_actor_dead(&mut self, actor: ActorId, failure: Failure, out: &mut Actions) {
        let mut calls = self.callers.on_dead(actor, failure.clone());
        let kept = self.callers.take_kept(actor);
        // Calls that were in flight when the last process ended wait to be pushed again, and are in no queue.
        calls.extend(kept.iter().map(|spec| spec.task.number));
        for number in calls {
            let Some(pending) = self.pendings.get(number) else { continue };
            let cause =
                if pending.cancelled { cancelled_failure(pending.spec.task) } else { failure.clone() };
            self.fail(number, &cause, out);
        }
        self.release_kept(kept, out);
        if let Some(demand) = self.creations.swap_remove(&actor) {
            if demand.detached {
                // What kept it without handles; see `create_actor`.
                self.ownership.end_use(actor.object(0), out);
            }
            if let Some(pending) = self.pendings.remove(actor.number) {
                self.end_uses(&pending.spec, out);
            }
            // The handle's slot says that the actor is dead; it holds no value.
            let object = actor.object(0);
            self.resolve(object, Outcome::Failed(Box::new(failure)), &[], out);
        }
        if self.ownership.record(actor.object(0)).is_none() {
            self.callers.forget(actor);
        }
    }

    /// Ends an actor now. Calls that this process makes from here on fail at once; `title` names it in their errors.
    /// An actor that may restart starts again if it has restarts left.
    pub fn kill_actor(&mut self, actor: ActorId, title: &str, may_restart: bool, out: &mut Actions) {
        if !may_restart {
            let message = format!("{title} was ended by weft.kill()");
            self.callers.refuse(actor, Failure::new(FailureCode::ActorDied, message));
        }
        send(out, Peer::Node, KillActor { actor, may_restart: Some(may_restart) });
    }

    /// Calls of this process to an actor that have not ended.
    #[must_use]
    pub fn pending_calls(&self, actor: ActorId) -> usize {
        self.callers.pending_calls(actor)
    }

    /// Where an actor is, as far as this process knows.
    #[must_use]
    pub fn actor_place(&self, actor: ActorId) -> Option<&ActorPlace> {
        self.callers.place(actor)
    }

    /// Cancels the task that makes an object.
    pub fn cancel(&mut self, task: TaskId, force: bool, recursive: bool, out: &mut Actions) {
        if task.owner == self.me {
            self.cancel_own(task.number, force, recursive, out);
        } else {
            send(out, Peer::Worker(task.owner), CancelTask { task, force, recursive });
        }
        self.run_unblocked(out);
    }

    fn cancel_own(&mut self, number: u64, force: bool, recursive: bool, out: &mut Actions) {
        let Some(pending) = self.pendings.get_mut(number) else { return };
        pending.cancelled = true;
        let spec = pending.spec.clone();
        if let State::Pushed { worker, .. } = pending.state {
            send(out, Peer::Worker(worker), CancelTask { task: spec.task, force, recursive });
            return;
        }
        if spec.kind == TaskKind::Creation {
            return;
        }
        self.remove_from_queue(&spec);
        if let (TaskKind::Method(actor), Some(_)) = (spec.kind, spec.kept) {
            // It may wait to be pushed again. It was never answered, so nobody has built on it.
            self.forget_call(actor, number, out);
        }
        self.fail(number, &cancelled_failure(spec.task), out);
        match spec.kind {
            TaskKind::Task(shape) => self.dispatch(shape, out),
            TaskKind::Method(actor) => self.dispatch_actor(actor, out),
            TaskKind::Creation => {}
        }
    }

    fn remove_from_queue(&mut self, spec: &TaskSpec) {
        match spec.kind {
            TaskKind::Task(shape) => self.leases.remove_queued(shape, spec.task.number),
            TaskKind::Method(actor) => self.callers.remove_queued(actor, spec.task.number),
            TaskKind::Creation => {}
        }
    }

    /// Handles were dropped for the last time.
    pub fn on_handles_dropped(&mut self, objects: &[ObjectId], out: &mut Actions) {
        for object in objects {
            if *object == object.task.reader() {
                self.drop_stream(object.task, out);
            } else {
                self.ownership.on_handle_dropped(*object, out);
            }
        }
        self.settle_lineage(out);
        self.forget_dropped_actors();
    }

    /// Where an actor is does not matter to a process without handle or call.
    fn forget_dropped_actors(&mut self) {
        for actor in self.ownership.take_dropped_actors() {
            if self.ownership.record(actor.object(0)).is_none() {
                self.callers.forget(actor);
            }
        }
    }

    /// Returns idle leases and tries crashed tasks again. Gives the time to call again, if there is one.
    pub fn on_timer(&mut self, now: Instant, out: &mut Actions) -> Option<Instant> {
        self.forget_dropped_actors();
        self.now = now;
        self.retry_delayed(out);
        let leases = self.leases.return_leases(now, out);
        [leases, self.delays.next()].into_iter().flatten().min()
    }

    /// Tasks submitted and not ended.
    #[must_use]
    pub fn pending_tasks(&self) -> usize {
        self.pendings.len()
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

    /// The worker a task was pushed to: where its reply will come from.
    #[must_use]
    pub fn pushed_to(&self, task: TaskId) -> Option<WorkerId> {
        match self.pendings.get(task.number)?.state {
            State::Pushed { worker, .. } if task.owner == self.me => Some(worker),
            _ => None,
        }
    }

    /// Whether a pending task of ours is a call of an actor.
    #[must_use]
    pub fn is_actor_call(&self, task: TaskId) -> bool {
        let pending = self.pendings.get(task.number).filter(|_| task.owner == self.me);
        pending.is_some_and(|p| matches!(p.spec.kind, TaskKind::Method(_)))
    }

    /// Asserts the invariants across machines; for tests and the simulator.
    pub fn check(&self) {
        self.leases.check(|number| match self.pendings.get(number).map(|p| &p.state) {
            Some(State::Pushed { estimate, .. }) => *estimate,
            other => panic!("L1: task {number} is in flight but {other:?}"),
        });
    }
}

/// What a task keeps alive until it ends: its arguments, and the handle of the actor it calls.
fn uses(spec: &TaskSpec) -> impl Iterator<Item = ObjectId> + '_ {
    let handle = match spec.kind {
        TaskKind::Method(actor) => Some(actor.object(0)),
        TaskKind::Task(_) | TaskKind::Creation => None,
    };
    spec.dependencies.iter().chain(&spec.references).copied().chain(handle)
}

fn cancelled_failure(task: TaskId) -> Failure {
    Failure::new(FailureCode::Cancelled, format!("task {} was cancelled", hex(task)))
}

fn gone_failure() -> Failure {
    let message = "the actor is gone: its last handle was dropped before this one was used";
    Failure::new(FailureCode::ActorDied, message)
}

fn unborn_failure(spec: &TaskSpec) -> Failure {
    let message = format!("actor {} was dropped before it was created", spec.name.as_str());
    Failure::new(FailureCode::ActorDied, message)
}

fn restarting_failure(spec: &TaskSpec, reason: &str) -> Failure {
    Failure::new(
        FailureCode::ActorUnavailable,
        format!(
            "the process of the actor {reason} while {}() was on its way or running; the actor restarts. The call may have been executed in part; no retry is left (max_task_retries={})",
            spec.name.as_str(),
            spec.retries
        ),
    )
}

fn owner_died_failure(object: ObjectId, gone: &WorkerGone) -> Failure {
    let owner = gone.what.clone().unwrap_or_else(|| format!("process {:016x}", gone.worker.0));
    Failure::new(
        FailureCode::OwnerDied,
        format!(
            "the owner of object {}, {owner}, is gone ({}), and the value with it. Let a longer-lived process create the object, or create it again",
            hex(object.task),
            gone.reason
        ),
    )
}

fn hex(task: TaskId) -> String {
    format!("{:016x}{:016x}", task.owner.0, task.number)
}
