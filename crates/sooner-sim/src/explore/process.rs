//! A process of an explored world: the production core and the program that uses it, as one deterministic
//! machine.
//!
//! It stands for the shell and the front end: it performs the core's actions, runs the bodies of tasks step
//! by step, and counts the handles of their variables. [`Process::facts`] tells what it can do next, and
//! which blocks it can read.

use std::sync::Arc;

use sooner_protocol::time::Instant;
use sooner_protocol::worker::action::{Action, Actions, Peer};
use sooner_protocol::worker::execution::Incoming;
use sooner_protocol::worker::ownership::Slot;
use sooner_protocol::worker::tasks::Awaited;
use sooner_protocol::worker::{ActorDemand, WorkerCore};
use sooner_wire::message::{
    ActorCreation, Define, Failure, FailureCode, FreeBlocks, FunctionCall, GivenBlocks, Location, Message,
    MethodCall, Outcome, Push, Return, Target, TaskKind, TaskSpec, UnknownBlocks,
};
use sooner_wire::{ActorId, Blob, FunctionId, Name, ObjectId, ResourceSet, Started, TaskId};

use super::facts::{BLOCK_BYTES, Facts, block_of, code_bit};
use super::program::{Body, Program, Step, index_of, payload_of, worker};

/// The time of all events; a timer that fires does so at [`LATER`].
pub const NOW: Instant = Instant(1);
/// Later than any time a core waits for.
pub const LATER: Instant = Instant(1_000_000_000_000);

/// The class of every actor.
const CLASS: FunctionId = FunctionId(1);

/// All functions: they have no code that would be sent.
const FUNCTION: FunctionId = FunctionId(0);

/// The effects of a process's actions, in order.
#[derive(Debug)]
pub enum Effect {
    /// A message to the node (0) or a process.
    Send(u8, Box<Message>),
    /// A block of shared memory was given to this process, which does not wait for an answer.
    Allocate(u64),
}

/// How many names were made. The count only makes the next name a new one, so it tells two states apart only
/// by the names in use ([`super::renaming`]).
#[derive(Debug)]
struct Made(u64);

#[derive(Debug)]
struct Handle {
    id: ObjectId,
    slot: Arc<Slot>,
}

/// A running body.
#[derive(Debug)]
struct Frame {
    body: usize,
    next: usize,
    variables: Vec<Option<Handle>>,
    /// Views of arguments in shared memory.
    views: Vec<Handle>,
    task: Option<(TaskId, TaskKind)>,
    /// The variable whose value the next step waits for.
    waits_for: Option<usize>,
    was_interrupted: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Process {
    core: WorkerCore,
    numbers: Made,
    blocks: u64,
    frame: Option<Frame>,
    kept: Vec<Handle>,
    is_blocked: bool,
    has_timer: bool,
    last_started: Option<Started>,
    /// The actor that lives in this process.
    actor: Option<ActorId>,
    /// The last call of each caller that has begun.
    calls: Vec<TaskId>,
    /// The actor's state, if it has checkpoints: the executed calls, in order.
    executed: Vec<TaskId>,
    /// A checkpoint is taken before the next call.
    is_due: bool,
    /// Failures that bodies have seen.
    failures: u32,
    /// Blocks that the core has given up: the shell may reuse them.
    freed: u64,
}

impl Process {
    /// Process `index`; the driver begins with its program.
    #[must_use]
    pub fn new(index: u8, program: &Program) -> Self {
        let mut core = WorkerCore::new(worker(index));
        let class = Define {
            function: CLASS,
            name: Name::from("A"),
            code: Blob::default(),
            references: Vec::new(),
            place: None,
        };
        core.define(class);
        let frame = (index == 1).then(|| Frame::new(0, Vec::new(), None, &program.bodies[0]));
        Self {
            core,
            numbers: Made(0),
            blocks: 0,
            frame,
            kept: Vec::new(),
            is_blocked: false,
            has_timer: false,
            last_started: None,
            actor: None,
            calls: Vec::new(),
            executed: Vec::new(),
            is_due: false,
            failures: 0,
            freed: 0,
        }
    }

    fn act<R>(
        &mut self,
        effects: &mut Vec<Effect>,
        work: impl FnOnce(&mut WorkerCore, &mut Actions) -> R,
    ) -> R {
        let mut out = Actions::new();
        let result = work(&mut self.core, &mut out);
        let mut to_self = self.perform(out, effects);
        while !to_self.is_empty() {
            let mut out = Actions::new();
            for message in std::mem::take(&mut to_self) {
                let me = Peer::Worker(self.core.me());
                self.core.on_message(me, message, NOW, &mut out);
            }
            to_self = self.perform(out, effects);
        }
        self.core.check();
        self.has_timer = self.core.next_deadline().is_some();
        result
    }

    /// Performs actions. Returns the messages that this process sends to itself.
    fn perform(&mut self, out: Actions, effects: &mut Vec<Effect>) -> Vec<Message> {
        let mut to_self = Vec::new();
        for action in out {
            let (to, message) = match action {
                Action::Send { to, message } => (to, message),
                Action::Push { worker, spec, dependencies, gpus } => {
                    let push = Push { spec: Box::new((*spec).clone()), dependencies, gpus };
                    (Peer::Worker(worker), Box::new(push.into()))
                }
                Action::FreeBlock(location) => {
                    self.freed |= block_of(location);
                    (Peer::Node, Box::new(FreeBlocks { places: vec![location.place()] }.into()))
                }
                Action::Interrupt { task, .. } => {
                    if let Some(frame) = &mut self.frame
                        && frame.task.is_some_and(|(running, kind)| {
                            running == task && matches!(kind, TaskKind::Task(_))
                        })
                    {
                        frame.was_interrupted = true;
                    }
                    continue;
                }
                Action::Ready(_) | Action::Warn(_) => continue,
            };
            match to {
                Peer::Worker(to) if to == self.core.me() => to_self.push(*message),
                Peer::Worker(to) => effects.push(Effect::Send(index_of(to), message)),
                Peer::Node => effects.push(Effect::Send(0, message)),
            }
        }
        to_self
    }

    /// The process receives a message; the shell looks at the timer after each.
    pub fn deliver(&mut self, from: u8, message: Message, program: &Program, effects: &mut Vec<Effect>) {
        let is_loss = matches!(message, Message::BlocksLost(_));
        let peer = if from == 0 { Peer::Node } else { Peer::Worker(worker(from)) };
        let left = self.act(effects, |core, out| {
            let left = core.on_message(peer, message, NOW, out);
            core.on_timer(NOW, out);
            left
        });
        match left {
            Some(Message::GivenBlocks(GivenBlocks { giver, places })) if !places.is_empty() => {
                let answer = UnknownBlocks { giver, places };
                effects.push(Effect::Send(0, Box::new(answer.into())));
            }
            // This shell keeps no blocks for reuse.
            Some(Message::ReadersOf(question)) => {
                self.act(effects, |core, out| core.on_readers_of(question, |_| false, out));
            }
            _ => {}
        }
        let waits_for = self.frame.as_ref().and_then(Frame::awaited).map(|handle| handle.id);
        if let (true, true, Some(object)) = (is_loss, program.asks_again, waits_for) {
            self.act(effects, |core, out| core.watch(object, out));
        }
    }

    /// The deadline comes for which the core waits.
    pub fn fire_timer(&mut self, effects: &mut Vec<Effect>) {
        self.act(effects, |core, out| core.on_timer(LATER, out));
    }

    /// The running task takes long: the tasks queued behind it go back.
    pub fn return_queued(&mut self, effects: &mut Vec<Effect>) {
        self.act(effects, WorkerCore::return_queued);
    }

    /// The running task has waited for a while: its CPU is lent.
    pub fn block(&mut self, effects: &mut Vec<Effect>) {
        self.is_blocked = true;
        self.act(effects, |core, out| core.set_blocked(true, out));
    }

    /// Runs the next step of the running body, or begins the next task.
    pub fn run(&mut self, program: &Program, effects: &mut Vec<Effect>) {
        if self.is_due {
            return self.take_checkpoint(effects);
        }
        let Some(mut frame) = self.frame.take() else { return self.begin(program, effects) };
        let body = &program.bodies[frame.body];
        if frame.was_interrupted {
            let failure = Failure::new(FailureCode::Cancelled, "interrupted");
            return self.end(frame, body, Some(failure), program, effects);
        }
        self.go_on(&mut frame, effects);
        let Some(step) = body.steps.get(frame.next) else {
            return self.end(frame, body, None, program, effects);
        };
        if let Step::Get(variable) = step {
            match self.look(&frame, *variable) {
                Look::Nothing => {
                    let id = frame.variables[*variable].as_ref().expect("looked at").id;
                    self.act(effects, |core, out| core.watch(id, out));
                    frame.waits_for = Some(*variable);
                }
                Look::Failed(failure) if frame.task.is_some() => {
                    return self.end(frame, body, Some(failure), program, effects);
                }
                Look::Value | Look::Failed(_) => frame.next += 1,
            }
        } else {
            self.step(&mut frame, step, effects);
            frame.next += 1;
        }
        // The driver's frame ends with its last step; the end of a task is a step of its own.
        if frame.task.is_none() && frame.next == body.steps.len() {
            return self.end(frame, body, None, program, effects);
        }
        self.frame = Some(frame);
    }

    fn go_on(&mut self, frame: &mut Frame, effects: &mut Vec<Effect>) {
        if frame.waits_for.take().is_some() && self.is_blocked {
            self.is_blocked = false;
            self.act(effects, |core, out| core.set_blocked(false, out));
        }
    }

    fn look(&mut self, frame: &Frame, variable: usize) -> Look {
        // An earlier failure kept this reference from coming: there is nothing to wait for.
        let Some(handle) = &frame.variables[variable] else { return Look::Value };
        let length = match handle.slot.outcome().as_deref() {
            None => return Look::Nothing,
            Some(Outcome::Failed(failure)) => {
                self.failures |= code_bit(failure.code);
                return Look::Failed((**failure).clone());
            }
            Some(Outcome::Inline(bytes)) => bytes.len(),
            Some(Outcome::Stored(location)) => usize::try_from(location.length).expect("short"),
            Some(Outcome::Remote(remote)) => panic!("there is one node, and not {:?}", remote.node),
        };
        assert_eq!(length, payload_of(handle.id), "I2: {:?} has the value of another object", handle.id);
        Look::Value
    }

    fn begin(&mut self, program: &Program, effects: &mut Vec<Effect>) {
        let Some(incoming) = self.core.next_execution() else { return };
        let spec = &incoming.push.spec;
        self.last_started = Some(Started { task: spec.task, in_actor: spec.kind().in_actor() });
        match spec.kind() {
            TaskKind::Creation => {
                assert!(self.actor.is_none(), "I7: one actor per process");
                self.actor = Some(spec.task);
                self.restore(effects);
            }
            TaskKind::Method(actor) => {
                assert_eq!(self.actor, Some(actor), "E3: a call runs before the constructor");
                self.record_call(spec.task);
            }
            TaskKind::Task(_) => {}
        }
        let number = spec.arguments.len();
        let task = (spec.task, spec.kind());
        self.frame = Some(Frame::new(number, decode(&incoming), Some(task), &program.bodies[number]));
        let frame = self.frame.as_mut().expect("set above");
        frame.views = stored_arguments(&incoming);
    }

    /// Restores an actor from its last checkpoint, if this process takes over one that has a checkpoint.
    fn restore(&mut self, effects: &mut Vec<Effect>) {
        let Some(restored) = self.act(effects, |core, _| core.take_restored()) else { return };
        let Outcome::Inline(bytes) = &restored.outcome else {
            panic!("I8: the actor goes on from {:?}, which nobody saved", restored.outcome)
        };
        self.executed = calls_in(bytes.len());
        for call in self.executed.clone() {
            self.record_call(call);
        }
        self.kept.extend(restored.contained.iter().map(Handle::met));
        self.act(effects, |core, out| core.on_restored(&restored, out));
    }

    fn take_checkpoint(&mut self, effects: &mut Vec<Effect>) {
        self.is_due = false;
        let actor = self.actor.expect("only actors have checkpoints");
        let outcome = Outcome::Inline(Blob::from(bytes_of(&self.executed)));
        let contained = self.kept.iter().map(|handle| handle.id).collect();
        let state = Return { outcome, contained };
        self.act(effects, |core, out| core.on_checkpoint(actor, state, out));
    }

    fn record_call(&mut self, call: TaskId) {
        match self.calls.iter_mut().find(|last| last.owner == call.owner) {
            Some(last) => {
                assert!(last.number < call.number, "E2: {call:?} begins after {last:?}");
                *last = call;
            }
            None => self.calls.push(call),
        }
    }

    fn step(&mut self, frame: &mut Frame, step: &Step, effects: &mut Vec<Effect>) {
        let ids = |variables: &[usize]| -> Vec<ObjectId> {
            variables.iter().filter_map(|at| frame.variables[*at].as_ref().map(|handle| handle.id)).collect()
        };
        match step {
            Step::Submit { body, dependencies, references, retries, into } => {
                let dependencies = ids(dependencies).into();
                let spec = TaskSpec { dependencies, ..self.task(*body, ids(references), *retries) };
                frame.variables[*into] = Some(self.submit(0, spec, frame, effects));
            }
            Step::SubmitAfter { values, body, references, retries, into } => {
                let spec = self.task(*body, ids(references), *retries);
                frame.variables[*into] = Some(self.submit(*values, spec, frame, effects));
            }
            Step::Put { is_stored, contains, into } => {
                let handle = self.put(*is_stored, &ids(contains), effects);
                frame.variables[*into] = Some(handle);
            }
            Step::Write { into } => frame.variables[*into] = Some(self.write(effects)),
            Step::Seal(variable) => self.seal(frame.variables[*variable].as_ref(), effects),
            Step::Open { of, at, into } => {
                let inner = frame.variables[*of].as_ref().and_then(|outer| self.open(outer, *at));
                frame.variables[*into] = inner;
            }
            Step::Drop(variable) => {
                let handle = frame.variables[*variable].take();
                self.let_go(handle, effects);
            }
            Step::Keep(variable) => self.kept.extend(frame.variables[*variable].take()),
            Step::Forget => {
                let kept = std::mem::take(&mut self.kept);
                self.let_go(kept, effects);
            }
            Step::Create { body, dependencies, restarts, checkpoint_every, into } => {
                let creation = ActorCreation {
                    concurrency: 1,
                    checkpoint_every: *checkpoint_every,
                    ..ActorCreation::new(CLASS)
                };
                let spec = TaskSpec {
                    dependencies: ids(dependencies).into(),
                    ..self.describe(Target::Class(creation), *body, 0)
                };
                let handle = self.create(spec, *restarts, effects);
                frame.variables[*into] = Some(handle);
            }
            Step::Call { actor, body, references, retries, is_kept, into } => {
                // The handle of the actor did not come: there is no actor to call.
                let Some(actor) = frame.variables[*actor].as_ref().map(|handle| handle.id.task) else {
                    return;
                };
                let call = MethodCall { kept: is_kept.then_some(true), ..MethodCall::new(actor) };
                let spec = TaskSpec {
                    references: ids(references).into(),
                    ..self.describe(Target::Method(call), *body, *retries)
                };
                frame.variables[*into] = Some(self.submit(0, spec, frame, effects));
            }
            Step::Cancel(variable) => {
                let Some(task) = frame.variables[*variable].as_ref().map(|handle| handle.id.task) else {
                    return;
                };
                self.act(effects, |core, out| core.cancel(task, false, true, out));
            }
            Step::Executed(count) => self.check_executed(*count),
            Step::Get(_) => unreachable!("waits are the caller's"),
        }
    }

    fn check_executed(&self, count: usize) {
        assert_eq!(self.executed.len(), count, "I8: the actor's state has other calls: {:?}", self.executed);
    }

    fn new_task(&mut self) -> TaskId {
        let Made(made) = &mut self.numbers;
        *made += 1;
        TaskId { owner: self.core.me(), number: *made }
    }

    fn task(&mut self, body: usize, references: Vec<ObjectId>, retries: i32) -> TaskSpec {
        let shape = self.core.shape(&one_cpu());
        let target = Target::Function(FunctionCall::new(shape, FUNCTION));
        TaskSpec { references: references.into(), ..self.describe(target, body, retries) }
    }

    fn describe(&mut self, target: Target, body: usize, retries: i32) -> TaskSpec {
        let arguments = Blob::from(vec![0; body]);
        let task = self.new_task();
        TaskSpec { retries, ..TaskSpec::of(task, target, Name::default(), arguments) }
    }

    fn submit(&mut self, after: usize, spec: TaskSpec, frame: &Frame, effects: &mut Vec<Effect>) -> Handle {
        let awaited = Awaited::new(after, spec.references.iter().copied());
        let parent = frame.task.map(|(task, _)| task);
        let handle = Handle::new(spec.task.object(0), Slot::default());
        let slot = handle.slot.clone();
        self.act(effects, |core, out| core.submit_after(awaited, Arc::new(spec), [slot], parent, out));
        handle
    }

    fn create(&mut self, spec: TaskSpec, restarts: i32, effects: &mut Vec<Effect>) -> Handle {
        let handle = Handle::new(spec.task.object(0), Slot::default());
        let slot = handle.slot.clone();
        let demand = ActorDemand { placement: one_cpu(), lifetime: one_cpu(), restarts, detached: false };
        self.act(effects, |core, out| core.create_actor(Arc::new(spec), slot, demand, out));
        handle
    }

    fn value(&mut self, object: ObjectId, is_stored: bool, effects: &mut Vec<Effect>) -> Outcome {
        let length = payload_of(object);
        if !is_stored {
            return Outcome::Inline(Blob::from(vec![0; length]));
        }
        let block = u64::from(index_of(self.core.me())) * 8 + self.blocks;
        self.blocks += 1;
        assert!(self.blocks <= 8 && block < 64, "a configuration of few blocks");
        effects.push(Effect::Allocate(block));
        Outcome::Stored(Location { offset: block * BLOCK_BYTES, length: length as u64 })
    }

    fn put(&mut self, is_stored: bool, contained: &[ObjectId], effects: &mut Vec<Effect>) -> Handle {
        let object = self.new_task().object(0);
        let outcome = self.value(object, is_stored, effects);
        let handle = Handle::new(object, Slot::with_outcome(outcome));
        let slot = handle.slot.clone();
        self.act(effects, |core, _| {
            core.ownership_mut().own(object, slot);
            core.ownership_mut().contain(object, contained);
        });
        handle
    }

    fn write(&mut self, effects: &mut Vec<Effect>) -> Handle {
        let object = self.new_task().object(0);
        let Outcome::Stored(block) = self.value(object, true, effects) else {
            unreachable!("it lies in shared memory");
        };
        let handle = Handle::new(object, Slot::default());
        let slot = handle.slot.clone();
        self.act(effects, |core, _| core.create(object, slot, block));
        handle
    }

    fn seal(&mut self, handle: Option<&Handle>, effects: &mut Vec<Effect>) {
        let object = handle.expect("it was made above").id;
        self.act(effects, |core, out| assert!(core.seal(object, out), "it is written here"));
    }

    fn open(&mut self, outer: &Handle, at: usize) -> Option<Handle> {
        if matches!(outer.slot.outcome().as_deref(), None | Some(Outcome::Failed(_))) {
            return None;
        }
        let id =
            *self.core.ownership().contained(outer.id).get(at).expect("the program knows what is inside");
        let slot = self.core.ownership_mut().meet(id);
        slot.acquire();
        Some(Handle { id, slot })
    }

    fn let_go(&mut self, handles: impl IntoIterator<Item = Handle>, effects: &mut Vec<Effect>) {
        for Handle { id, slot } in handles {
            if slot.release() {
                self.act(effects, |core, out| core.on_handles_dropped(&[id], out));
            }
        }
    }

    fn end(
        &mut self,
        mut frame: Frame,
        body: &Body,
        failure: Option<Failure>,
        program: &Program,
        effects: &mut Vec<Effect>,
    ) {
        self.go_on(&mut frame, effects);
        match frame.task {
            Some((task, TaskKind::Creation)) => {
                self.act(effects, |core, out| core.on_constructed(task, failure, out));
            }
            Some((task, kind)) => {
                if matches!(kind, TaskKind::Method(_)) {
                    assert!(!self.executed.contains(&task), "I8: {task:?} is executed twice in one state");
                    self.executed.push(task);
                }
                let value = self.returned(task, &frame, body, failure, effects);
                let nanos = program.task_nanos;
                self.act(effects, |core, out| core.on_finished(task, vec![value], nanos, false, out));
                self.is_due = self.core.checkpoint_is_due();
            }
            None => {}
        }
        // References inside the returned value stay alive until the caller is registered for them.
        let Frame { variables, views, .. } = frame;
        self.let_go(variables.into_iter().flatten().chain(views), effects);
    }

    fn returned(
        &mut self,
        task: TaskId,
        frame: &Frame,
        body: &Body,
        failure: Option<Failure>,
        effects: &mut Vec<Effect>,
    ) -> Return {
        if let Some(failure) = failure {
            return Return { outcome: Outcome::Failed(Box::new(failure)), contained: Vec::new() };
        }
        let outcome = self.value(task.object(0), body.returns_stored, effects);
        let contained = body
            .returns
            .iter()
            .filter_map(|at| frame.variables[*at].as_ref().map(|handle| handle.id))
            .collect();
        Return { outcome, contained }
    }

    /// The facts that the rest of the world needs.
    #[must_use]
    pub fn facts(&self) -> Facts {
        let frame = self.frame.as_ref();
        let waits = frame.is_some_and(Frame::waits);
        let handles = frame.into_iter().flat_map(Frame::handles).chain(&self.kept);
        let reads = handles.fold(0, |reads, handle| match handle.slot.outcome().as_deref() {
            Some(Outcome::Stored(location)) => reads | block_of(*location),
            _ => reads,
        });
        let execution = self.core.execution();
        Facts {
            can_run: if frame.is_some() { !waits } else { self.is_due || execution.can_take() },
            can_fire: self.has_timer,
            can_return: frame.is_some() && execution.queued() > 0,
            can_block: waits && !self.is_blocked && frame.is_some_and(|frame| frame.task.is_some()),
            is_idle: frame.is_none(),
            is_needed: self.core.is_needed(),
            leftover: self.leftover(),
            failures: self.failures,
            words: [false; 2],
            reads,
            freed: self.freed,
            blocks: 0,
            actor: self.actor.map_or(0, |actor| 1 + actor.number),
            last_started: self.last_started,
        }
    }

    /// The first table that is not empty although nothing is going on.
    fn leftover(&self) -> Option<&'static str> {
        let core = &self.core;
        let tables = [
            (!core.ownership().is_empty(), "records in the ownership table"),
            (core.pending_tasks() > 0, "pending tasks"),
            (core.open_streams() > 0, "open streams"),
            (core.leases_held() > 0, "leases"),
            (core.execution().queued() + core.execution().running() > 0, "tasks to execute"),
        ];
        tables.iter().find(|(is_left, _)| *is_left).map(|(_, what)| *what)
    }
}

enum Look {
    Nothing,
    Value,
    Failed(Failure),
}

impl Handle {
    fn new(id: ObjectId, slot: Slot) -> Self {
        slot.acquire();
        Self { id, slot: Arc::new(slot) }
    }

    fn met((id, slot): &(ObjectId, Arc<Slot>)) -> Self {
        slot.acquire();
        Self { id: *id, slot: slot.clone() }
    }
}

impl Frame {
    fn new(number: usize, given: Vec<Handle>, task: Option<(TaskId, TaskKind)>, body: &Body) -> Self {
        let mut variables: Vec<Option<Handle>> = given.into_iter().map(Some).collect();
        variables.resize_with(variables.len().max(body.variables()), || None);
        Self {
            body: number,
            next: 0,
            variables,
            views: Vec::new(),
            task,
            waits_for: None,
            was_interrupted: false,
        }
    }

    fn handles(&self) -> impl Iterator<Item = &Handle> {
        self.variables.iter().flatten().chain(&self.views)
    }

    /// The handle whose value the frame waits for.
    fn awaited(&self) -> Option<&Handle> {
        self.waits_for.and_then(|variable| self.variables[variable].as_ref())
    }

    /// Whether the frame can only wait.
    fn waits(&self) -> bool {
        !self.was_interrupted && self.awaited().is_some_and(|handle| !handle.slot.has_outcome())
    }
}

/// An actor's state, as a checkpoint saves it: encoded in the length, as every value is.
fn bytes_of(calls: &[TaskId]) -> Vec<u8> {
    let digit = |call: &TaskId| {
        assert!(call.number < 8, "a configuration of few calls");
        usize::from(index_of(call.owner)) * 8 + usize::try_from(call.number).expect("few")
    };
    vec![0; calls.iter().fold(0, |length, call| length * 64 + digit(call))]
}

fn calls_in(mut length: usize) -> Vec<TaskId> {
    let mut calls = Vec::new();
    while length > 0 {
        let owner = worker(u8::try_from(length % 64 / 8).expect("a digit"));
        calls.push(TaskId { owner, number: (length % 8) as u64 });
        length /= 64;
    }
    calls.reverse();
    calls
}

fn decode(incoming: &Incoming) -> Vec<Handle> {
    let contained = incoming.dependencies.iter().flat_map(|met| &met.contained);
    incoming.references.iter().chain(contained).map(Handle::met).collect()
}

fn stored_arguments(incoming: &Incoming) -> Vec<Handle> {
    let slots = incoming.push.dependencies.iter().zip(&incoming.dependencies);
    slots
        .filter_map(|(dependency, met)| {
            let slot = met.stored.as_ref()?;
            Some(Handle::met(&(dependency.object, slot.clone())))
        })
        .collect()
}

fn one_cpu() -> ResourceSet {
    ResourceSet::from_amounts([("CPU".to_owned(), 1.0)])
}
