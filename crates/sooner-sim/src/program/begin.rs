//! How a frame begins: the driver's program, and tasks that were pushed to a process.

use sooner_protocol::probes::hit;
use sooner_protocol::worker::execution::Incoming;
use sooner_wire::message::{Define, Outcome, TaskKind};
use sooner_wire::{Blob, FunctionId, Name, ObjectId, Started};

use super::{Frame, Method, Reference, Wait};
use crate::oracle::{Kind, Oracle};
use crate::random::mix_two;
use crate::violation::fail;
use crate::world::World;

/// The function that every task calls.
pub(super) const FUNCTION: FunctionId = FunctionId(1);

impl World {
    /// A driver's program begins.
    pub fn begin_program(&mut self, driver: u32) {
        let frame = Frame {
            number: self.new_frame_number(),
            task: None,
            wait: Wait::Nothing,
            is_interrupted: false,
            incoming: None,
            code: 0,
            depth: self.plan.depth,
            operations: self.plan.operations,
            locals: Vec::new(),
            readers: Vec::new(),
            values: Vec::new(),
            base: 0,
            yielded: 0,
            raises: false,
            method: None,
        };
        self.process_mut(driver).frames.push(frame);
        self.touch(driver);
    }

    /// Defines the function that all tasks share, from the start.
    pub fn define_function(&mut self, number: u32) {
        let define = Define {
            function: FUNCTION,
            name: Name::from("f"),
            code: Blob::default(),
            references: Vec::new(),
            place: None,
        };
        self.process_mut(number).core.define(define);
    }

    /// The next task of a process begins.
    pub(super) fn begin_frame(&mut self, number: u32) {
        let Some(incoming) = self.with_core(number, |core, _| core.next_execution()) else { return };
        if !self.process(number).is_running() {
            return;
        }
        let spec = &incoming.push.spec;
        let task = spec.task;
        self.trace.note(task.number ^ (u64::from(number) << 32));
        self.trace.send(|| format!("{number} begins {task:?} ({:?})", spec.kind()));
        let code = u64::from_le_bytes(spec.arguments.as_slice().try_into().expect("eight bytes"));
        self.check_begin(number, &incoming, code);
        let fact = self.oracle.facts.get_mut(&task).expect("it was submitted");
        fact.begun += 1;
        let (depth, method) = match fact.kind {
            Kind::Call(_, method) => (0, Some(method)),
            Kind::Task | Kind::Creation | Kind::Put => (fact.depth, None),
        };
        let kind = spec.kind();
        let number_of_frame = self.new_frame_number();
        let operations = match (kind, method) {
            (TaskKind::Creation, _) => 0,
            (_, Some(Method::Count | Method::Read)) => self.random.below(3),
            (_, Some(_)) => 0,
            _ => self.random.below(4 + 3 * usize::from(depth)),
        };
        let process = self.process_mut(number);
        process.begun.insert(task);
        process.last_started = Some(Started { task, in_actor: kind.in_actor() });
        let mut frame = Frame {
            number: number_of_frame,
            task: Some(task),
            wait: Wait::Nothing,
            is_interrupted: false,
            incoming: None,
            code,
            depth,
            operations: u32::try_from(operations).expect("few"),
            locals: Vec::new(),
            readers: Vec::new(),
            values: Vec::new(),
            base: code,
            yielded: 0,
            raises: false,
            method,
        };
        if kind == TaskKind::Creation {
            self.begin_instance(number, &incoming);
        }
        self.read_arguments(number, &mut frame, &incoming);
        if let TaskKind::Method(_) = kind {
            self.begin_call(number, &mut frame, &incoming);
        }
        frame.incoming = Some(incoming);
        self.process_mut(number).frames.push(frame);
    }

    /// Decodes the arguments: values are checked, references get handles.
    fn read_arguments(&mut self, number: u32, frame: &mut Frame, incoming: &Incoming) {
        let is_task = matches!(incoming.push.spec.kind(), TaskKind::Task(_));
        let mut hold = |world: &Self, id: ObjectId, slot| {
            let mut reference: Reference = world.hold(id, slot);
            reference.may_wait = is_task;
            frame.locals.push(reference);
        };
        for (id, slot) in &incoming.references {
            hold(self, *id, slot.clone());
        }
        let mut base = frame.code;
        let mut values = Vec::new();
        for (dependency, met) in incoming.push.dependencies.iter().zip(&incoming.dependencies) {
            let payload = self.check_argument(number, dependency.object, &dependency.outcome);
            base = mix_two(base, payload);
            values.push((dependency.object, dependency.outcome.clone()));
            if let Some(slot) = &met.stored {
                hold(self, dependency.object, slot.clone());
            }
            for (id, slot) in &met.contained {
                hit("an argument contained a reference");
                hold(self, *id, slot.clone());
            }
        }
        frame.base = base;
        frame.values = values;
    }

    /// Checks that a value pushed with a task is the value of its object.
    fn check_argument(&mut self, number: u32, object: ObjectId, outcome: &Outcome) -> u64 {
        if let Outcome::Failed(failure) = outcome {
            fail(
                "I2",
                format!("{object:?} was pushed to {number} as an argument, but it failed: {failure:?}"),
            );
        }
        self.check_value(number, object, outcome)
    }

    /// Records the hash from which a task's values are derived in this execution.
    pub(super) fn record_base(&mut self, frame: &Frame) {
        let Some(task) = frame.task else { return };
        let fact = self.oracle.facts.get_mut(&task).expect("it was submitted");
        // A lost argument may have another value after it was made again.
        if self.oracle.losses == 0 && fact.answered_base.is_some_and(|base| base != frame.base) {
            fail("I8", format!("{task:?} was answered, and comes to another value when it is made again"));
        }
        match fact.payload {
            Some(base) if base != frame.base => {
                let values = (Oracle::value(base, 0), Oracle::value(frame.base, 0));
                fail("I2", format!("{task:?} got other arguments than it was given: {values:?}"));
            }
            Some(_) => {}
            None if fact.seen.last() == Some(&frame.base) => {}
            None => fact.seen.push(frame.base),
        }
    }
}
