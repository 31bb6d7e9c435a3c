//! How a frame ends: with values, with an exception, or interrupted; and how a driver's program ends.

use sooner_protocol::probes::hit;
use sooner_wire::TaskId;
use sooner_wire::message::{Failure, FailureCode, Outcome, Return, TaskKind};

use super::{Frame, Method, Wait};
use crate::oracle::Raises;
use crate::world::World;

impl World {
    /// A frame has made all its steps. True if the frame stays.
    pub(super) fn finish_frame(&mut self, number: u32, frame: &mut Frame) -> bool {
        let Some(task) = frame.task else { return self.close_program(number, frame) };
        if !frame.raises && self.yields(number, frame, task) {
            return true;
        }
        let spec = &frame.incoming.as_ref().expect("tasks came from somewhere").push.spec;
        match spec.kind() {
            TaskKind::Creation => return self.end_constructor(number, frame, task),
            TaskKind::Method(actor) if frame.method == Some(Method::Exit) => {
                return self.exit_actor(number, frame, actor, task);
            }
            TaskKind::Task(_) | TaskKind::Method(_) => {}
        }
        let count = spec.returns;
        let retries_exceptions = spec.retry_exceptions;
        self.read_again(number, frame);
        let fact = self.oracle.facts.get_mut(&task).expect("it was submitted");
        let raises = match fact.raises {
            Raises::Never => false,
            Raises::Always => true,
            Raises::First(times) => fact.begun <= times,
        };
        if raises || frame.raises {
            fact.has_raised = true;
            let failure = Failure::new(FailureCode::Task, "raised");
            self.report(number, frame, task, vec![failed(failure)], retries_exceptions && raises);
        } else {
            self.record_base(frame);
            let returns = (0..count).map(|index| self.make_return(number, frame, index)).collect();
            self.report(number, frame, task, returns, false);
        }
        self.retire(number, task);
        false
    }

    /// Ends a task whose code was interrupted.
    pub(super) fn end_interrupted(&mut self, number: u32, frame: &mut Frame) -> bool {
        let Some(task) = frame.task else { return true };
        let kind = frame.incoming.as_ref().map(|incoming| incoming.push.spec.kind());
        if kind == Some(TaskKind::Creation) || matches!(frame.wait, Wait::End) {
            return true;
        }
        hit("a running task was interrupted");
        if !matches!(frame.wait, Wait::Nothing) {
            hit("a task was interrupted while it waited");
        }
        let failure = Failure::new(FailureCode::Cancelled, "was cancelled while it ran");
        self.report(number, frame, task, vec![failed(failure)], false);
        self.retire(number, task);
        false
    }

    fn report(&mut self, number: u32, frame: &mut Frame, task: TaskId, returns: Vec<Return>, retry: bool) {
        self.trace.send(|| format!("{number} ends {task:?}: {returns:?}"));
        for reader in std::mem::take(&mut frame.readers) {
            self.leave_stream(number, &reader);
        }
        // Returned references are dropped after the reply is made, the others when the function returns.
        let contained: Vec<_> = returns.iter().flat_map(|value| value.contained.clone()).collect();
        let (returned, gone): (Vec<_>, Vec<_>) =
            std::mem::take(&mut frame.locals).into_iter().partition(|local| contained.contains(&local.id));
        gone.into_iter().for_each(|reference| self.process_mut(number).release(reference));
        let nanos = [500, 20_000, 400_000, 3_000_000][self.random.below(4)];
        self.with_core(number, |core, out| core.on_finished(task, returns, nanos, retry, out));
        let process = self.process_mut(number);
        if process.is_running() {
            returned.into_iter().for_each(|reference| process.release(reference));
        }
        self.look_for_checkpoint(number);
    }

    /// Ends a worker after its task; its queued tasks go back.
    fn retire(&mut self, number: u32, task: TaskId) {
        if !self.oracle.facts[&task].retires || !self.process(number).is_running() {
            return;
        }
        if self.process(number).core.execution().queued() > 0 {
            hit("a worker ended after its task with others queued");
        }
        self.with_core(number, |core, out| core.return_queued(out));
        self.flush(number);
        self.kill(number, "ends after its task");
    }

    /// The driver drops its references, each once its object is there, and ends actors that would live on.
    fn close_program(&mut self, number: u32, frame: &mut Frame) -> bool {
        self.calm_down(number);
        if let Some(reader) = frame.readers.pop() {
            if self.random.chance(1, 4) {
                self.leave_stream(number, &reader);
            } else {
                frame.readers.push(reader);
                self.read_stream(number, frame);
            }
            return true;
        }
        let Some(reference) = frame.locals.pop() else { return false };
        if reference.is_actor {
            self.leave_actor(number, reference.id.task);
        } else if !reference.slot.has_outcome() {
            let (id, slot) = (reference.id, reference.slot.clone());
            self.with_core(number, |core, out| core.need(id, out));
            frame.wait = Wait::All(vec![(id, slot)]);
            frame.locals.push(reference);
            return true;
        } else if let Some(outcome) = reference.slot.outcome() {
            self.check_outcome(number, reference.id, &outcome);
        }
        self.process_mut(number).release(reference);
        true
    }
}

fn failed(failure: Failure) -> Return {
    Return { outcome: Outcome::Failed(Box::new(failure)), contained: Vec::new() }
}
