//! Tasks of this process that come back: with a reply, unexecuted, or after the pause that follows crashes of
//! their workers ([`super::Delays`]).

use std::sync::Arc;

use sooner_wire::message::{
    Failure, FailureCode, FunctionCall, Outcome, Reply, Return, Target, TaskKind, TaskSpec, TasksReturned,
};
use sooner_wire::{FunctionId, WorkerId};

use super::cancelling::cancelled_failure;
use super::{Pending, Replied, State, Stream, tiny};
use crate::pace::pause_after;
use crate::probes::mark;
use crate::time::Instant;
use crate::worker::WorkerCore;
use crate::worker::action::{Action, Actions};

/// After this many times the pause of a task that lacks room grows no more: it is less than a second.
const GAVE_WAY_MAX: u8 = 5;

impl WorkerCore {
    pub(in crate::worker) fn on_reply(
        &mut self,
        worker: WorkerId,
        reply: Reply,
        now: Instant,
        out: &mut Actions,
    ) {
        for object in &reply.held {
            self.ownership.hand_over(*object, worker, out);
        }
        let number = reply.task.number;
        let Some((pending, estimate)) = self.pendings.get_mut(number).and_then(Pending::pushed) else {
            mark!("a reply came for a task that was not out any more");
            return self.on_ghost_reply(worker, &reply, out);
        };
        let mut spec = pending.spec.clone();
        // A call whose effects are kept is not executed again.
        let is_cut = spec.stream.is_some() && self.streams.get(number).is_some_and(Stream::begins_again);
        let again = (reply.retry || is_cut)
            && !pending.cancelled
            && pending.retries != 0
            && spec.kept() != Some(true);
        self.events.on_reply(pending, worker, &reply, again, now);
        if again {
            pending.retries -= i32::from(pending.retries > 0);
            pending.state = State::Queued;
            pending.repeat(now);
        }
        if again && !reply.retry {
            // The task makes lost items again; as a call, it may run behind calls that were made later.
            pending.recovers = true;
            let changed = Arc::make_mut(&mut pending.spec);
            changed.recovers = Some(true);
            changed.set_unordered();
            spec = pending.spec.clone();
            self.let_go_of_values(worker, &reply, out);
        }
        let waits = again && self.must_wait_again(number, out);
        match &spec.target {
            Target::Function(FunctionCall { shape, function, scheduling, .. }) => {
                let (shape, function, nanos) = (*shape, *function, reply.nanos);
                self.notice_tiny(function, nanos, out);
                let replied = Replied { shape, worker, task: number, estimate, function, nanos };
                if self.leases.on_reply(&replied, now) {
                    self.leases.return_leases(now, out);
                }
                if again && !waits {
                    self.leases.enqueue(shape, number, scheduling.priority);
                } else if !again {
                    self.end(number, worker, reply, out);
                }
                self.dispatch(shape, out);
            }
            Target::Method(call) => {
                let actor = call.actor;
                self.callers.on_reply(actor, number);
                if call.kept == Some(false) || reply.not_run == Some(true) {
                    self.forget_call(actor, number, out);
                }
                let has_place = waits && call.unordered;
                // The call goes before the queued ones: one of them may wait for its result.
                if !(again && (has_place || self.queue_again(actor, number))) {
                    self.end(number, worker, reply, out);
                }
                self.dispatch_actor(actor, out);
            }
            Target::Class(_) => {}
        }
    }

    /// Warns the user, once, if many tasks took less time than handing them over.
    fn notice_tiny(&mut self, function: FunctionId, nanos: u64, out: &mut Actions) {
        if self.tiny_tasks.note(nanos)
            && let Some(define) = self.functions.get(function)
        {
            out.push(Action::Warn(tiny::warning(define)));
        }
    }

    pub(in crate::worker) fn end(&mut self, number: u64, worker: WorkerId, reply: Reply, out: &mut Actions) {
        let Some(pending) = self.pendings.remove(number) else {
            return self.on_ghost_reply(worker, &reply, out);
        };
        let task = pending.spec.task;
        if pending.recovers {
            self.ownership.end_repeat(task);
        }
        let has_stored = reply.returns.iter().any(|value| value.outcome.is_in_memory());
        if pending.spec.stream.is_some() {
            self.keep_generator(&pending, has_stored, out);
        }
        if let [Return { outcome: Outcome::Failed(failure), .. }] = &reply.returns[..] {
            for index in 0..pending.spec.returns {
                self.resolve(task.object(index), Outcome::Failed(failure.clone()), &[], out);
            }
            self.end_stream(&pending.spec, Some(failure), out);
        } else {
            // A value that was not lost stays, wherever this execution put it. Lineage is kept before the
            // values come: one that only lineage counts is dropped at once, and must be able to return.
            let is_any_stored =
                || pending.recovers && self.ownership.is_any_stored(task, pending.spec.returns);
            if pending.spec.stream.is_none() && (has_stored || is_any_stored()) {
                self.keep_lineage(&pending, out);
            }
            for (index, value) in (0..).zip(reply.returns) {
                self.ownership.receive(&value.contained, worker);
                self.resolve(task.object(index), value.outcome, &value.contained, out);
            }
            self.end_stream(&pending.spec, None, out);
        }
        self.end_uses(&pending.spec, out);
    }

    /// Drops the values of an execution that another one follows.
    pub(in crate::worker) fn let_go_of_values(&mut self, worker: WorkerId, reply: &Reply, out: &mut Actions) {
        for (index, value) in (0..).zip(&reply.returns) {
            self.ownership.receive(&value.contained, worker);
            self.ownership.discard(reply.task.object(index), &value.outcome, &value.contained, out);
        }
    }

    pub(in crate::worker) fn on_returned(
        &mut self,
        worker: WorkerId,
        returned: &TasksReturned,
        out: &mut Actions,
    ) {
        for missing in returned.missing.iter().flatten() {
            self.on_missing(missing, out);
        }
        // Last first, so that they stand at the front in their old order.
        for task in returned.tasks.iter().rev() {
            let Some(pending) = self.pendings.get_mut(task.number) else { continue };
            let (TaskKind::Task(shape), State::Pushed { estimate, .. }) =
                (pending.spec.kind(), &pending.state)
            else {
                continue;
            };
            self.leases.on_returned(shape, worker, task.number, *estimate);
            if pending.cancelled {
                mark!("a cancelled task came back unexecuted");
                self.fail(task.number, &cancelled_failure(*task), out);
                continue;
            }
            if returned.lacks_room == Some(true) {
                // Others get their arguments meanwhile. This may happen to a task often, if it is not the
                // oldest.
                pending.gave_way = pending.gave_way.saturating_add(1).min(GAVE_WAY_MAX);
                let until = self.now.plus(pause_after(u32::from(pending.gave_way) + 1));
                pending.state = State::Delayed { until };
                self.delays.insert(until, task.number);
                continue;
            }
            pending.state = State::Queued;
            if !self.must_wait_again(task.number, out) {
                self.requeue(shape, task.number);
            }
        }
        if returned.lacks_room == Some(true) {
            self.record_lack();
        }
        for shape in self.leases.shape_ids() {
            self.dispatch(shape, out);
        }
    }

    /// Delays a task whose worker crashed, except the first time; false if it may go at once.
    pub(in crate::worker) fn delay(&mut self, number: u64) -> bool {
        let Some(pending) = self.pendings.get_mut(number) else { return false };
        let pause = pause_after(u32::from(pending.crashes));
        if pause > 0 {
            let until = self.now.plus(pause);
            pending.state = State::Delayed { until };
            self.delays.insert(until, number);
        }
        pause > 0
    }

    /// Queues the tasks whose pause is over. A task with unlimited retries whose result can no longer be
    /// wanted ends here.
    pub(in crate::worker) fn retry_delayed(&mut self, out: &mut Actions) {
        while let Some(number) = self.delays.take_due(self.now) {
            let Some(pending) = self.pendings.get_mut(number) else { continue };
            let (State::Delayed { until }, TaskKind::Task(shape)) = (&pending.state, pending.spec.kind())
            else {
                continue;
            };
            if *until > self.now {
                continue;
            }
            let spec = pending.spec.clone();
            let is_wanted =
                (0..spec.returns).any(|index| !self.ownership.is_unwanted(spec.task.object(index)));
            if pending.retries < 0 && !is_wanted {
                let failure = crashed_failure(&spec, "again and again, and nobody waits for its result");
                self.fail(number, &failure, out);
            } else {
                pending.state = State::Queued;
                if !self.must_wait_again(number, out) {
                    self.leases.enqueue(shape, number, spec.priority());
                    self.dispatch(shape, out);
                }
            }
        }
        self.run_unblocked(out);
    }
}

pub(in crate::worker) fn crashed_failure(spec: &TaskSpec, reason: &str) -> Failure {
    Failure::new(
        FailureCode::WorkerCrashed,
        format!(
            "the worker that ran {}() ended unexpectedly: {reason}. The task may have been executed in part; no retry is left (max_retries={})",
            spec.name.as_str(),
            spec.retries
        ),
    )
}
