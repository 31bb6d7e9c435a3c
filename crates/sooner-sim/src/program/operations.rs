//! The operations of a program, and how the next one is drawn.

use std::num::NonZeroU32;
use std::sync::Arc;

use sooner_protocol::probes::hit;
use sooner_protocol::worker::ownership::{Place, Slot};
use sooner_protocol::worker::tasks::Awaited;
use sooner_wire::message::{FunctionCall, Outcome, Priority, Streaming, Target, TaskKind, TaskSpec};
use sooner_wire::{Blob, Name, ObjectId, ResourceSet, TaskId};

use super::begin::FUNCTION;
use super::{Frame, Wait};
use crate::oracle::{Fact, Kind, Raises};
use crate::plan::Feature;
use crate::world::{Wake, World};

/// References that a frame holds at most.
const LOCALS_MAX: usize = 10;

impl World {
    /// The next operation of a frame.
    pub(super) fn operate(&mut self, number: u32, frame: &mut Frame) {
        if !frame.readers.is_empty() && self.random.chance(1, 3) {
            return self.read_stream(number, frame);
        }
        if frame.locals.len() >= LOCALS_MAX {
            return self.drop_one(number, frame);
        }
        let may_submit = frame.method.is_none() && (frame.task.is_none() || self.plan.has(Feature::Nested));
        match self.random.below(24) {
            0..=5 if may_submit && frame.depth > 0 => self.submit_task(number, frame),
            6 | 7 => self.put(number, frame),
            8..=10 => self.get(number, frame),
            11 if self.plan.has(Feature::Wait) => self.wait_for_any(number, frame),
            12 | 13 => self.drop_one(number, frame),
            14 => self.pause(number, frame),
            15 if may_submit && frame.depth > 0 && self.plan.has(Feature::Actors) => {
                self.create_actor(number, frame)
            }
            16..=18 => self.call_an_actor(number, frame),
            19 if self.plan.has(Feature::Cancel) => self.cancel_one(number, frame),
            20 if self.plan.has(Feature::Ending) => self.end_an_actor(number, frame),
            21 if self.plan.has(Feature::Free) => self.free_one(number, frame),
            22 if self.plan.has(Feature::State) => self.keep_one(number, frame),
            23 if self.plan.has(Feature::Named) => self.look_up(number, frame),
            _ => self.touch_one(number, frame),
        }
    }

    /// Picks a task's arguments: objects to be replaced by their values, and references.
    pub(super) fn pick_arguments(
        &mut self,
        number: u32,
        frame: &Frame,
        only_ready: bool,
    ) -> (Vec<ObjectId>, Vec<ObjectId>) {
        let (mut dependencies, mut references) = (Vec::new(), Vec::new());
        for local in frame.locals.iter().filter(|local| local.may_pass) {
            let is_value = !local.is_actor && (!only_ready || local.slot.has_outcome());
            let drawn = self.random.below(6);
            if drawn == 0 && is_value && !local.slot.is_freed() {
                dependencies.push(local.id);
            } else if drawn == 1 {
                references.push(local.id);
            } else {
                continue;
            }
            self.register(number, local);
        }
        (dependencies, references)
    }

    fn submit_task(&mut self, number: u32, frame: &mut Frame) {
        let (dependencies, references) = self.pick_arguments(number, frame, false);
        let task = self.process_mut(number).next_task();
        let cpu = ResourceSet::from_amounts([("CPU".to_owned(), 1.0)]);
        let shape = self.process_mut(number).core.shape(&cpu);
        let mut fact = self.new_fact(Kind::Task, frame, &dependencies);
        fact.depth = frame.depth - 1;
        fact.retires = self.plan.has(Feature::Retiring) && self.random.chance(1, 10);
        let mut spec = self.spec(task, TaskKind::Task(shape), &fact, references);
        let max_calls = NonZeroU32::new(u32::from(fact.retires));
        spec.target = Target::Function(FunctionCall { max_calls, ..FunctionCall::new(shape, FUNCTION) });
        if self.plan.has(Feature::Streams) && self.random.chance(1, 5) {
            let backpressure = u32::try_from(self.random.below(3)).expect("small");
            spec.stream = Some(Streaming { backpressure, dynamic: false });
            fact.items = Some(u32::try_from(self.random.below(6)).expect("small"));
        } else {
            spec.returns = [1, 1, 1, 1, 2, 0][self.random.below(6)];
        }
        self.oracle.facts.insert(task, fact);
        self.submit(number, frame, spec);
    }

    /// The oracle's fact of a new task.
    pub(super) fn new_fact(&mut self, kind: Kind, frame: &Frame, dependencies: &[ObjectId]) -> Fact {
        let code = self.random.next_number();
        let no_retries = self.plan.has(Feature::NoRetries) && self.random.chance(1, 3);
        let raises = if self.plan.has(Feature::Raising) && self.random.chance(1, 5) {
            [Raises::Always, Raises::First(1), Raises::First(2)][self.random.below(3)]
        } else {
            Raises::Never
        };
        // A task that always raises must have few retries.
        let most = if raises == Raises::Always { 5 } else { 6 };
        let payload = match kind {
            Kind::Task => self.oracle.base(code, dependencies),
            Kind::Call(..) | Kind::Creation | Kind::Put => None,
        };
        Fact {
            retries: if no_retries { 0 } else { [3, 3, 1, 5, -1][self.random.below(most - 1)] },
            raises,
            dependencies: dependencies.into(),
            parent: frame.task,
            payload,
            ..Fact::new(kind, code)
        }
    }

    /// A task's description, as the front end makes it.
    pub(super) fn spec(
        &mut self,
        task: TaskId,
        kind: TaskKind,
        fact: &Fact,
        references: Vec<ObjectId>,
    ) -> TaskSpec {
        let arguments = Blob::from(&fact.code.to_le_bytes()[..]);
        TaskSpec {
            dependencies: fact.dependencies.clone(),
            references: references.into(),
            retries: fact.retries,
            retry_exceptions: fact.raises != Raises::Never && self.random.chance(3, 4),
            ..TaskSpec::new(task, kind, FUNCTION, Name::from("f"), arguments)
        }
    }

    /// Submits a task or a call, and holds references to its return values.
    pub(super) fn submit(&mut self, number: u32, frame: &mut Frame, spec: TaskSpec) {
        let task = spec.task;
        self.trace.send(|| {
            let (uses, refs) = (&spec.dependencies, &spec.references);
            format!("{number} submits {task:?} {:?} of {uses:?} with {refs:?}", spec.kind())
        });
        let awaited = self.draw_awaited(frame, &spec);
        let parent = frame.task;
        let (streams, returns) = (spec.stream.is_some(), spec.returns);
        let spec = Arc::new(spec);
        if streams {
            Self::add_reader(frame, task);
            let slots = [Arc::new(Slot::default())];
            return self.with_core(number, |core, out| core.submit_after(awaited, spec, slots, parent, out));
        }
        let slots: Vec<Arc<Slot>> = (0..returns).map(|_| Arc::new(Slot::default())).collect();
        for (index, slot) in (0..).zip(&slots) {
            let reference = self.hold(task.object(index), slot.clone());
            frame.locals.push(reference);
        }
        self.with_core(number, |core, out| core.submit_after(awaited, spec, slots, parent, out));
    }

    /// What has to have come before a task is queued. Some references are counted twice.
    fn draw_awaited(&mut self, frame: &Frame, spec: &TaskSpec) -> Awaited {
        let may_wait = |object: &ObjectId| {
            frame.locals.iter().any(|local| local.id == *object && local.may_wait && !local.is_actor)
        };
        let is_task = matches!(spec.kind(), TaskKind::Task(_));
        if !is_task || spec.references.is_empty() || !spec.references.iter().all(may_wait) {
            return Awaited::default();
        }
        let twice = self.random.below(spec.references.len() + 1);
        let objects: Vec<ObjectId> =
            spec.references.iter().chain(&spec.references[..twice]).copied().collect();
        Awaited::new(self.random.below(objects.len() + 1), objects)
    }

    /// Picks some references that the frame may wait for.
    fn pick_awaited(&mut self, frame: &Frame) -> Vec<(ObjectId, Arc<Slot>)> {
        let mut picked = Vec::new();
        for local in frame.locals.iter().filter(|local| local.may_wait && !local.is_actor) {
            if self.random.chance(1, 3) {
                picked.push((local.id, local.slot.clone()));
            }
        }
        picked
    }

    fn need(&mut self, number: u32, objects: &[(ObjectId, Arc<Slot>)]) {
        if objects.iter().any(|(_, slot)| !slot.has_outcome()) {
            self.with_core(number, |core, out| {
                objects.iter().for_each(|(id, _)| core.need(*id, out));
            });
        }
    }

    fn get(&mut self, number: u32, frame: &mut Frame) {
        let objects = self.pick_awaited(frame);
        if !objects.is_empty() {
            self.need(number, &objects);
            frame.wait = Wait::All(objects);
        }
    }

    /// A `get` returns: checks every value; a failure may end the frame.
    pub(super) fn on_waited(&mut self, number: u32, frame: &mut Frame, objects: &[(ObjectId, Arc<Slot>)]) {
        if self.brings(number, frame, objects) {
            frame.wait = Wait::All(objects.to_vec());
            return;
        }
        for (id, slot) in objects {
            let Some(outcome) = slot.outcome() else { continue };
            let is_held = frame.locals.iter().any(|local| local.id == *id);
            if !is_held {
                continue;
            }
            self.check_outcome(number, *id, &outcome);
            if matches!(*outcome, Outcome::Remote(_)) {
                continue;
            }
            if matches!(*outcome, Outcome::Failed(_)) {
                if frame.task.is_some() && self.random.chance(1, 2) {
                    hit("a task raised what its get raised");
                    frame.raises = true;
                    frame.operations = 0;
                }
            } else if slot.is_registered() {
                let is_loose = matches!(
                    self.oracle.facts.get(&id.task).map(|fact| fact.kind),
                    Some(Kind::Call(_, super::Method::Hand))
                );
                self.decode(number, frame, *id, !is_loose);
            }
        }
    }

    /// Pulls values from other nodes to this one. False if there is none to pull.
    fn brings(&mut self, number: u32, frame: &Frame, objects: &[(ObjectId, Arc<Slot>)]) -> bool {
        let is_held = |id: ObjectId| frame.locals.iter().any(|local| local.id == id);
        let far = objects.iter().filter(|(id, slot)| slot.place() == Place::Elsewhere && is_held(*id));
        let far: Vec<ObjectId> = far.map(|(id, _)| *id).collect();
        if far.is_empty() {
            return false;
        }
        hit("a value was brought from another node");
        self.with_core(number, |core, out| {
            far.iter().filter(|id| core.ownership_mut().bring(**id, Priority::Get, out)).count() > 0
        })
    }

    fn wait_for_any(&mut self, number: u32, frame: &mut Frame) {
        let objects = self.pick_awaited(frame);
        if objects.is_empty() {
            return;
        }
        self.need(number, &objects);
        let nanos = 1 + self.random.below(20_000_000) as u64;
        self.wake_in(nanos, Wake::Process(number));
        frame.wait = Wait::Any(objects, self.time + nanos);
    }

    fn pause(&mut self, number: u32, frame: &mut Frame) {
        let nanos = [200_000, 3_000_000, 60_000_000, 3_000_000_000][self.random.below(4)];
        let nanos = 1 + self.random.below(nanos) as u64;
        self.wake_in(nanos, Wake::Process(number));
        frame.wait = Wait::Time(self.time + nanos);
    }

    pub(super) fn drop_one(&mut self, number: u32, frame: &mut Frame) {
        if frame.locals.is_empty() {
            return;
        }
        let at = self.random.below(frame.locals.len());
        let reference = frame.locals.swap_remove(at);
        if reference.is_actor && frame.task.is_none() {
            self.leave_actor(number, reference.id.task);
        }
        self.process_mut(number).release(reference);
        // The core learns of dropped handles at the process's next step, whenever that is.
        if self.random.chance(1, 2) {
            self.with_core(number, |_, _| ());
        }
    }

    fn cancel_one(&mut self, number: u32, frame: &mut Frame) {
        let tasks: Vec<TaskId> = frame
            .locals
            .iter()
            .filter(|local| !local.is_actor)
            .map(|local| local.id.task)
            .chain(frame.readers.iter().map(|reader| reader.task))
            .collect();
        if tasks.is_empty() {
            return;
        }
        let task = tasks[self.random.below(tasks.len())];
        let may_force = self.plan.has(Feature::Force) && self.random.chance(1, 3);
        let is_own = task.owner == self.process(number).id;
        let fact = self.oracle.facts.get_mut(&task).expect("it was submitted");
        let force = may_force && fact.kind == Kind::Task;
        fact.is_cancelled = true;
        if !is_own {
            hit("a borrower cancelled a task");
        }
        self.trace.send(|| format!("{number} cancels {task:?} (force: {force})"));
        self.with_core(number, |core, out| core.cancel(task, force, true, out));
        if is_own && let Some(fact) = self.oracle.facts.get_mut(&task) {
            fact.must_not_begin = true;
        }
    }

    fn free_one(&mut self, number: u32, frame: &mut Frame) {
        let core = &self.process(number).core;
        let sole =
            frame.locals.iter().position(|local| !local.is_actor && core.ownership().is_sole(local.id));
        let Some(at) = sole else { return };
        let reference = frame.locals.swap_remove(at);
        if reference.slot.is_registered() {
            hit("an object was freed while a reference to it was left");
            self.oracle.freed.insert(reference.id.task);
            self.with_core(number, |core, out| core.ownership_mut().free(reference.id, out));
        }
        self.process_mut(number).release(reference);
    }

    /// Keeps a reference beyond its frame.
    fn keep_one(&mut self, number: u32, frame: &mut Frame) {
        if self.process(number).kept.len() >= 4 {
            let gone = self.process_mut(number).kept.remove(0);
            return self.process_mut(number).release(gone);
        }
        if !frame.locals.is_empty() {
            let at = self.random.below(frame.locals.len());
            if frame.task.is_none() && frame.locals[at].is_actor {
                // The driver ends an actor that would live on when it drops the handle; see `close_program`.
                return;
            }
            let kept = frame.locals.swap_remove(at);
            if frame.task.is_some() && kept.id.owner() != self.process(number).id {
                hit("a borrowed reference was kept beyond its task");
            }
            self.process_mut(number).kept.push(kept);
        }
    }

    /// Reads a value again that is there.
    fn touch_one(&mut self, number: u32, frame: &Frame) {
        let kept = self.process(number).kept.iter();
        let readable: Vec<(ObjectId, Arc<Slot>)> = frame
            .locals
            .iter()
            .chain(kept)
            .filter(|reference| !reference.is_actor && reference.slot.has_outcome())
            .map(|reference| (reference.id, reference.slot.clone()))
            .collect();
        if readable.is_empty() {
            return;
        }
        let (id, slot) = &readable[self.random.below(readable.len())];
        if let Some(outcome) = slot.outcome() {
            self.check_outcome(number, *id, &outcome);
        }
    }

    /// Reads a task's arguments again at its end.
    pub(super) fn read_again(&mut self, number: u32, frame: &Frame) {
        for (id, outcome) in &frame.values {
            self.check_value(number, *id, outcome);
        }
    }
}
