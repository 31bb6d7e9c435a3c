//! The worker's half of the core: tasks that other processes pushed to this one.

use sooner_wire::message::{GiveBlock, Missing, Retired};

use super::{Cancelled, Incoming, MetDependency, Running};
use crate::probes::{bug, mark};
use crate::worker::WorkerCore;
use crate::worker::action::{Action, Actions, Peer, send};
use crate::worker::tasks::RunTime;
use crate::worker::tasks::cancelling::cancelled_failure;
use sooner_wire::message::{
    ActorReady, CancelTask, Failure, FailureCode, Outcome, Push, Reply, Return, TaskKind, TasksReturned,
};
use sooner_wire::{ObjectId, TaskId, WorkerId};

impl WorkerCore {
    pub(in crate::worker) fn on_push(&mut self, from: Peer, push: Push, out: &mut Actions) {
        if let Some(every) = push.spec.checkpoint_every() {
            self.instance.begin(push.spec.task, every);
        }
        let hears = self.learns_of_losses(from, &push);
        let incoming = self.meet_arguments(from, push, out);
        if self.need.is_retired() && matches!(incoming.push.spec.kind(), TaskKind::Task(_)) {
            // The lease's holder does not know that this worker is retired, or got the lease since.
            self.give_back(vec![incoming], out);
            return send(out, from, Retired {});
        }
        let (failure, lost) = (incoming.failed_dependency(), incoming.lost());
        let is_complete = failure.is_none() && lost.is_empty();
        if !is_complete && matches!(incoming.push.spec.kind(), TaskKind::Task(_)) {
            if hears {
                return self.give_back(vec![incoming], out);
            }
            if failure.is_none()
                && let Some(missing) = self.missing_arguments(&incoming)
            {
                return self.give_back_as(vec![incoming], None, &missing, out);
            }
        }
        if let Some(failure) = failure {
            // A value owned here was lost, and the caller has not learned that it will not come back.
            return self.refuse(incoming, &failure, out);
        }
        for object in lost {
            self.execution.miss(object);
            self.ownership.need(object, out);
            self.revive(object, out);
        }
        let elsewhere = incoming.elsewhere();
        if let Err(refused) = self.execution.on_push(incoming) {
            return self.give_back(vec![*refused], out);
        }
        self.bring_arguments(elsewhere, out);
        self.suspend_if_lost(out);
    }

    /// Enters the objects that the arguments refer to; the task uses them until it ends.
    fn meet_arguments(&mut self, from: Peer, mut push: Push, out: &mut Actions) -> Incoming {
        let mut references = Vec::with_capacity(push.spec.references.len());
        for object in &push.spec.references {
            references.push((*object, self.ownership.begin_loan(*object)));
        }
        let mut dependencies = Vec::with_capacity(push.dependencies.len());
        for dependency in &mut push.dependencies {
            let mut met = MetDependency::default();
            if let Outcome::Stored(location) = dependency.outcome {
                self.ownership.meet_block(location.place());
                let slot = self.ownership.begin_loan(dependency.object);
                if self.ownership.is_lost(dependency.object, &dependency.outcome)
                    && let Some(latest) = slot.outcome()
                {
                    dependency.outcome = latest.into_owned();
                    dependency.contained = self.ownership.contained(dependency.object);
                }
                let is_mine = dependency.object.owner() == self.me;
                if !slot.has_outcome()
                    && !is_mine
                    && !self.ownership.is_lost(dependency.object, &dependency.outcome)
                {
                    self.resolve(dependency.object, dependency.outcome.clone(), &[], out);
                }
                let is_elsewhere = matches!(slot.outcome().as_deref(), Some(Outcome::Remote(_)));
                if is_elsewhere && !is_mine && matches!(dependency.outcome, Outcome::Stored(_)) {
                    // Its owner is on this node, and has a copy.
                    self.ownership.record_local(dependency.object, location, out);
                    self.deliver_copy(dependency.object, location);
                }
                met.stored = Some(slot);
            } else if let Outcome::Remote(_) = dependency.outcome {
                self.meet_remote(dependency, &mut met, out);
            }
            for object in &dependency.contained {
                met.contained.push((*object, self.ownership.begin_loan(*object)));
            }
            dependencies.push(met);
        }
        let is_again = self.execution.is_again(from, push.spec.kept() == Some(true));
        Incoming { from, push, references, dependencies, is_again, is_early: false }
    }

    /// The next task to run here.
    pub fn next_execution(&mut self) -> Option<Incoming> {
        self.execution.take_next(self.now)
    }

    /// The next call of one concurrency group of the actor here; 0 is the default one.
    pub fn next_execution_of(&mut self, group: usize) -> Option<Incoming> {
        self.execution.take_next_of(Some(group), self.now)
    }

    /// A task that ran here has ended. References inside the returns are registered for the caller first.
    pub fn on_finished(
        &mut self,
        task: TaskId,
        returns: Vec<Return>,
        ran: impl Into<RunTime>,
        retry: bool,
        out: &mut Actions,
    ) {
        let ran = ran.into();
        // The next task begins at this time, as nearly as can be known.
        let end = ran.timing.map_or(0, |timing| timing.started + ran.nanos + timing.store);
        self.now.0 = self.now.0.max(end);
        let Some(running) = self.execution.on_finished(task) else { return };
        if running.kept {
            self.instance.on_executed(task);
        }
        if running.cancelled && !running.kept && self.execution.constructed().is_some() {
            self.answer_cancelled(task, running, returns, ran, out);
        } else {
            self.answer(task, running, returns, ran, retry, out);
        }
        self.lend_if_starved(out);
    }

    /// A call was cancelled while it ran. Nothing stops a plain method, so it may have returned: the caller
    /// still gets the cancellation.
    fn answer_cancelled(
        &mut self,
        task: TaskId,
        running: Running,
        returns: Vec<Return>,
        ran: RunTime,
        out: &mut Actions,
    ) {
        let is_told = |one: &Return| matches!(&one.outcome, Outcome::Failed(failure) if failure.code == FailureCode::Cancelled);
        if returns.iter().any(is_told) {
            return self.answer(task, running, returns, ran, false, out);
        }
        for unseen in returns {
            if let Outcome::Stored(location) = unseen.outcome {
                out.push(Action::FreeBlock(location));
            }
        }
        self.answer(task, running, failed_returns(&cancelled_failure(task)), ran, false, out);
    }

    fn answer(
        &mut self,
        task: TaskId,
        running: Running,
        returns: Vec<Return>,
        ran: RunTime,
        retry: bool,
        out: &mut Actions,
    ) {
        let Peer::Worker(caller) = running.from else {
            // A constructor: its arguments stay used as long as the actor lives, as its creator keeps them.
            return;
        };
        if bug!(ReplyBeforeRegistration) {
            running.uses.iter().for_each(|object| self.ownership.end_loan(*object, out));
        }
        for (index, value) in (0..).zip(&returns) {
            self.give_away(task.object(index), value, caller, &running.uses, out);
        }
        let uses = if bug!(ReplyBeforeRegistration) { Vec::new() } else { running.uses };
        let held = self.end_arguments(uses, caller, out);
        let RunTime { nanos, timing } = ran;
        let not_run = running.not_run.then_some(true);
        send(out, running.from, Reply { task, returns, held, nanos, retry, timing, not_run });
    }

    /// From now on the node gets `times` messages for each block that goes to its owner. It ignores all but
    /// the first: this measures the cost of one.
    pub fn repeat_pins(&mut self, times: u32) {
        self.pins = times.max(1);
    }

    /// Hands a value over to its owner: the references inside it, and its block. References in `lent` came
    /// from that owner.
    pub(in crate::worker) fn give_away(
        &mut self,
        object: ObjectId,
        value: &Return,
        to: WorkerId,
        lent: &[ObjectId],
        out: &mut Actions,
    ) {
        for object in &value.contained {
            if lent.contains(object) {
                self.ownership.hand_back(*object, to, out);
            } else {
                self.ownership.hand_over(*object, to, out);
            }
        }
        if let Outcome::Stored(location) = value.outcome
            && let Some(block) = location.place().block()
        {
            for _ in 0..self.pins {
                let object = (to.node() != self.me.node()).then_some(object);
                send(out, Peer::Node, GiveBlock { block, owner: to, object });
            }
        }
    }

    /// Ends the loans of a task's arguments. Gives the objects that this process goes on holding: the caller
    /// registers it with their owners (Ownership, appendix A: the borrower is usually done when the task is
    /// done). None for a dead caller: what its task held was counted when the death was noticed.
    fn end_arguments(
        &mut self,
        mut uses: Vec<ObjectId>,
        caller: WorkerId,
        out: &mut Actions,
    ) -> Vec<ObjectId> {
        if bug!(BorrowerDroppedEarly) || self.ownership.is_dead(caller) {
            uses.iter().for_each(|object| self.ownership.end_loan(*object, out));
            return Vec::new();
        }
        let mut held: Vec<ObjectId> =
            uses.iter().copied().filter(|object| self.ownership.must_be_registered(*object)).collect();
        held.sort_unstable();
        held.dedup();
        if !held.is_empty() {
            mark!("a reference that was lent was handed on");
            self.ownership.hold_on(&held, caller);
        }
        for object in &uses {
            self.ownership.end_loan(*object, out);
        }
        uses.sort_unstable();
        uses.dedup();
        uses.retain(|object| self.ownership.is_kept_untold(*object, caller));
        self.ownership.hold_on(&uses, caller);
        held.append(&mut uses);
        held
    }

    /// The constructor ended.
    pub fn on_constructed(&mut self, actor: TaskId, failure: Option<Failure>, out: &mut Actions) {
        self.execution.on_constructed(actor);
        send(out, Peer::Node, ActorReady { actor, failure });
    }

    /// The local actor ends by its own wish. Calls that have not ended fail with it.
    pub fn on_actor_exits(&mut self, actor: TaskId, call: TaskId, failure: Failure, out: &mut Actions) {
        self.execution.on_finished(call);
        send(out, Peer::Node, ActorReady { actor, failure: Some(failure) });
    }

    /// The running task begins to wait, or goes on. While it waits, the node lends its CPU, and queued tasks
    /// go back.
    pub fn set_blocked(&mut self, blocked: bool, out: &mut Actions) {
        if self.execution.is_blocked() == blocked {
            return;
        }
        self.execution.set_blocked(blocked);
        if blocked {
            send(out, Peer::Node, sooner_wire::message::Blocked {});
            self.return_queued(out);
        } else {
            send(out, Peer::Node, sooner_wire::message::Unblocked {});
        }
    }

    /// The running task takes long: tasks queued behind it go back to their callers.
    pub fn return_queued(&mut self, out: &mut Actions) {
        let mut back = self.execution.return_queued();
        if bug!(QueuedTaskLostWhenBlocked) && !back.is_empty() {
            back.remove(0);
        }
        if !back.is_empty() {
            self.give_back(back, out);
        }
    }

    pub(in crate::worker) fn give_back(&mut self, tasks: Vec<Incoming>, out: &mut Actions) {
        self.give_back_as(tasks, None, &[], out);
    }

    /// `lacks_room`, `missing`: see [`TasksReturned`].
    pub(in crate::worker) fn give_back_as(
        &mut self,
        tasks: Vec<Incoming>,
        lacks_room: Option<bool>,
        missing: &[Missing],
        out: &mut Actions,
    ) {
        let mut by_caller: Vec<(Peer, Vec<TaskId>)> = Vec::new();
        for incoming in &tasks {
            let task = incoming.push.spec.task;
            match by_caller.iter_mut().find(|(from, _)| *from == incoming.from) {
                Some((_, list)) => list.push(task),
                None => by_caller.push((incoming.from, vec![task])),
            }
        }
        for incoming in tasks {
            for object in incoming.uses() {
                self.ownership.end_loan(object, out);
            }
        }
        for (from, tasks) in by_caller {
            let missing = (!missing.is_empty()).then(|| missing.to_vec());
            send(out, from, TasksReturned { tasks, lacks_room, missing });
        }
    }

    /// Ends a task, a call or a constructor that has not begun.
    pub(in crate::worker) fn refuse(&mut self, incoming: Incoming, failure: &Failure, out: &mut Actions) {
        let spec = &incoming.push.spec;
        if spec.kind() == TaskKind::Creation {
            self.execution.on_constructor_refused();
            return self.on_constructed(spec.task, Some(failure.clone()), out);
        }
        if let TaskKind::Method(actor) = spec.kind()
            && incoming.is_again
        {
            self.execution.refuse_again();
            self.end_incomplete(actor, out);
        }
        let (task, uses) = (spec.task, incoming.uses());
        let (from, since) = (incoming.from, self.now);
        let running = Running {
            from,
            uses,
            cancelled: false,
            group: 0,
            kept: false,
            not_run: true,
            recovers: false,
            since,
        };
        self.answer(task, running, failed_returns(failure), RunTime::default(), false, out);
    }

    pub(in crate::worker) fn on_cancel(&mut self, from: WorkerId, cancel: &CancelTask, out: &mut Actions) {
        let task = cancel.task;
        match self.execution.cancel(task) {
            (Cancelled::Queued, Some(incoming)) => self.refuse(incoming, &cancelled_failure(task), out),
            (Cancelled::Running, _) => {
                if cancel.recursive {
                    for child in self.pendings.children(task) {
                        self.cancel_own(child, cancel.force, true, out);
                    }
                }
                // The requester may know nothing but the id of a call's result: an actor's process is never
                // ended by force.
                let force = cancel.force && self.execution.constructed().is_none();
                out.push(Action::Interrupt { task, force });
            }
            // A process that executes its own task must not send the request to itself again.
            (Cancelled::Unknown, _) if task.owner == self.me && from != self.me => {
                self.cancel_own(task.number, cancel.force, cancel.recursive, out);
            }
            (Cancelled::Queued | Cancelled::Unknown, _) => {}
        }
    }

    pub(in crate::worker) fn on_caller_dead(&mut self, worker: WorkerId, out: &mut Actions) {
        let (queued, running) = self.execution.on_caller_dead(worker);
        for incoming in queued {
            for object in incoming.uses() {
                self.ownership.end_loan(object, out);
            }
        }
        for task in running {
            out.push(Action::Interrupt { task, force: false });
        }
    }

    /// Ends every call that is queued here: the local actor is dead.
    pub fn refuse_queued_calls(&mut self, failure: &Failure, out: &mut Actions) {
        while let Some(incoming) = self.next_execution() {
            let task = incoming.push.spec.task;
            if matches!(incoming.push.spec.kind(), TaskKind::Method(_)) {
                self.on_finished(task, failed_returns(failure), RunTime::default(), false, out);
            }
        }
    }
}

/// A single failure stands for all returns.
fn failed_returns(failure: &Failure) -> Vec<Return> {
    vec![Return { outcome: Outcome::Failed(Box::new(failure.clone())), contained: Vec::new() }]
}
