//! The caller's half of actors in the core: creating, finding and calling them, and what their deaths mean.

use std::sync::Arc;

use sooner_wire::message::{
    ActorRestarting, ActorStarted, CreateActor, Failure, FailureCode, KillActor, Outcome, Push, Replayed,
    SubscribeActor, TaskSpec,
};
use sooner_wire::{ActorId, FunctionId, ObjectId, ResourceSet, TaskId};

use super::{ActorPlace, replaying};
use crate::failures::death_failure;
use crate::probes::{bug, mark};
use crate::worker::WorkerCore;
use crate::worker::action::{Actions, Peer, send};
use crate::worker::ownership::Slot;
use crate::worker::tasks::cancelling::cancelled_failure;
use crate::worker::tasks::{Pending, State};

/// What an actor needs to be placed.
#[derive(Debug, Clone)]
pub struct ActorDemand {
    /// Resources that must be free when it is placed.
    pub placement: ResourceSet,
    /// Resources that it holds while it lives.
    pub lifetime: ResourceSet,
    /// How often a new process takes over after a failure; -1 for ever.
    pub restarts: i32,
    /// Whether it lives on without handles and without its owner.
    pub detached: bool,
}

impl WorkerCore {
    /// Asks the node where an actor is, once. An actor of this process that it no longer knows is dead: the
    /// node would take the question for an announcement.
    pub(in crate::worker) fn find_actor(&mut self, actor: ActorId, out: &mut Actions) {
        if self.callers.place(actor).is_some() {
            return;
        }
        if actor.owner == self.me {
            return self.callers.refuse(actor, death_failure());
        }
        self.callers.meet(actor);
        self.ownership.mark_actor(actor.object(0));
        send(out, Peer::Node, SubscribeActor { actor });
    }

    /// Enters the handle of an actor before it is created: others may find its name from now on.
    pub fn announce_actor(&mut self, actor: ActorId, slot: Arc<Slot>) {
        self.ownership.own(actor.object(0), slot);
        self.ownership.mark_actor(actor.object(0));
        self.callers.meet(actor);
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
        if self.ownership.record(actor.object(0)).is_none() {
            self.announce_actor(actor, slot);
        }
        if demand.detached {
            self.ownership.add_use(actor.object(0));
        }
        self.record_site(&spec);
        self.creations.insert(actor, demand);
        self.enter(spec, None, out);
        if self.pendings.get(actor.number).is_some_and(|p| p.state != State::Waiting { missing: 0 }) {
            // Other processes may get the handle, and ask the node, while the constructor waits for its
            // arguments.
            send(out, Peer::Node, SubscribeActor { actor });
        }
        self.advance(actor.number, out);
        self.run_unblocked(out);
    }

    pub(in crate::worker) fn request_actor(
        &mut self,
        spec: &Arc<TaskSpec>,
        class: FunctionId,
        out: &mut Actions,
    ) {
        let demand = self.creations.get(&spec.task).expect("created here").clone();
        let class = self.functions.get(class).expect("defined before it is created");
        let message = CreateActor {
            actor: spec.task,
            placement: demand.placement,
            lifetime: demand.lifetime,
            class: Box::new((**class).clone()),
            constructor: Box::new(Push {
                spec: Box::new((**spec).clone()),
                dependencies: self.dependencies_of(spec, None),
                gpus: Vec::new(),
            }),
            restarts: Some(demand.restarts),
            detached: Some(demand.detached),
            job: None,
        };
        send(out, Peer::Node, message);
    }

    pub(in crate::worker) fn dispatch_actor(&mut self, actor: ActorId, out: &mut Actions) {
        if self.callers.is_replaying() {
            self.replay(actor, out);
        }
        while let Some((number, worker)) = self.callers.next_call(actor) {
            let pending = self.pendings.get(number).expect("A1: queued calls are pending");
            if pending.state != State::Queued || self.is_line_full(worker) {
                return;
            }
            let bytes = self.ownership.bytes_in_memory(&pending.spec.dependencies);
            // A call that recovers a lost value may be what the calls in flight wait for.
            if !pending.recovers && self.callers.holds_back(actor, bytes) {
                mark!("a call waited at its caller because of the size of its arguments");
                return;
            }
            if pending.spec.kept().is_some() && !replaying::only_recovers(&pending.spec) {
                let spec = pending.spec.clone();
                self.keep_call(actor, spec);
            }
            self.callers.on_pushed(actor, number, bytes);
            self.push(number, worker, Vec::new(), 0, out);
        }
    }

    /// An actor has a process.
    pub(in crate::worker) fn on_actor_started(&mut self, started: &ActorStarted, out: &mut Actions) {
        let replays = started.replays == Some(true);
        self.callers.on_started(started);
        if replays && self.callers.place(started.actor).is_none() {
            // Out of scope here, so no call is made again; the process waits to learn that.
            send(out, Peer::Worker(started.worker), Replayed { actor: started.actor });
        }
        self.dispatch_actor(started.actor, out);
    }

    /// Calls in flight may have been executed: they are made again within their retries, in order. Calls of
    /// an actor with checkpoints are made again anyway.
    pub(in crate::worker) fn on_actor_restarting(&mut self, restarting: &ActorRestarting, out: &mut Actions) {
        let ActorRestarting { actor, reason, .. } = restarting;
        let actor = *actor;
        let interrupted = self.callers.on_restarting(actor);
        self.repeat_kept(restarting, &interrupted.kept, out);
        if restarting.nobody_starts_it == Some(true) {
            return self.on_actor_out_of_reach(actor, reason, interrupted.others, out);
        }
        let is_unbegun = restarting.unbegun == Some(true);
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
            } else if pending.retries == 0 && !is_unbegun {
                let failure = restarting_failure(&pending.spec, reason);
                self.fail(number, &failure, out);
            } else {
                pending.retries -= i32::from(pending.retries > 0 && !is_unbegun);
                pending.state = State::Queued;
                let (is_unordered, turn) = (pending.spec.is_unordered(), pending.turn_again());
                // A call without order is queued when its arguments are there.
                if self.must_wait_again(number, out) && is_unordered {
                    continue;
                }
                self.callers.enqueue_again(actor, number, turn);
            }
        }
    }

    /// The actor's process is taken for dead, and no node can start another one: its calls fail now. Kept
    /// calls of an actor with checkpoints that were in flight wait: each counts once, and no process knows
    /// whether it has.
    fn on_actor_out_of_reach(
        &mut self,
        actor: ActorId,
        reason: &str,
        in_flight: Vec<u64>,
        out: &mut Actions,
    ) {
        let failure = Failure::new(
            FailureCode::ActorUnavailable,
            format!(
                "the actor cannot be called: {reason}. A call that was on its way may have been executed; calls are taken again when the head is back"
            ),
        );
        let queued = self.callers.on_out_of_reach(actor, failure.clone());
        for number in in_flight.into_iter().chain(queued) {
            let Some(pending) = self.pendings.get(number) else { continue };
            let cause =
                if pending.cancelled { cancelled_failure(pending.spec.task) } else { failure.clone() };
            self.fail(number, &cause, out);
        }
    }

    pub(in crate::worker) fn on_actor_dead(&mut self, actor: ActorId, failure: Failure, out: &mut Actions) {
        let mut calls = self.callers.on_dead(actor, failure.clone());
        let kept = self.callers.take_kept(actor);
        // Calls in flight when the last process ended wait to be pushed again, and are in no queue.
        calls.extend(kept.iter().map(|spec| spec.task.number));
        for number in calls {
            let Some(pending) = self.pendings.get(number) else { continue };
            let cause =
                if pending.cancelled { cancelled_failure(pending.spec.task) } else { failure.clone() };
            self.fail(number, &cause, out);
        }
        self.release_kept(kept, out);
        if let Some(object) = self.callers.take_end(actor) {
            self.resolve(object, Outcome::Failed(Box::new(failure.clone())), &[], out);
        }
        if let Some(demand) = self.creations.swap_remove(&actor) {
            if demand.detached {
                // The use that kept the handle alive; see `create_actor`.
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

    /// Queues a call that has run once more. False if the actor takes no calls.
    pub(in crate::worker) fn queue_again(&mut self, actor: ActorId, number: u64) -> bool {
        let turn = self.pendings.get(number).map(Pending::turn_again);
        turn.is_some_and(|turn| self.callers.enqueue(actor, number, turn).is_ok())
    }

    /// Ends an actor now. Calls that this process makes from here on fail at once; `title` names it in their
    /// errors. An actor that may restart starts again if it has restarts left.
    pub fn kill_actor(&mut self, actor: ActorId, title: &str, may_restart: bool, out: &mut Actions) {
        if !may_restart {
            let message = format!("{title} was ended by sooner.kill()");
            self.callers.refuse(actor, Failure::new(FailureCode::ActorDied, message));
        }
        send(out, Peer::Node, KillActor { actor, may_restart: Some(may_restart) });
    }

    /// An object of this process that fails with the reason when an actor is dead for good, and never has a
    /// value. It does not keep the actor alive. There is one per actor: `fresh` is its id if it is new. The
    /// slot counts the handle that the caller makes of it.
    pub fn end_of_actor(
        &mut self,
        actor: ActorId,
        fresh: TaskId,
        out: &mut Actions,
    ) -> (ObjectId, Arc<Slot>) {
        self.find_actor(actor, out);
        let object = self.callers.watch_end(actor, fresh.object(0));
        if object.task == fresh {
            self.ownership.own(object, Arc::new(Slot::default()));
        }
        let slot = self.ownership.meet(object);
        slot.acquire();
        if let Some(ActorPlace::Dead(failure)) = self.callers.place(actor) {
            let failure = failure.clone();
            self.callers.take_end(actor);
            self.resolve(object, Outcome::Failed(Box::new(failure)), &[], out);
        }
        (object, slot)
    }

    /// How often another process has taken an actor over. `None`: this process does not know, because it has
    /// nothing to do with the actor, or the actor waits for a process.
    #[must_use]
    pub fn actor_restarts(&self, actor: ActorId) -> Option<u32> {
        self.callers.restarts(actor)
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

    /// Forgets the places of actors without handle or call here.
    pub(in crate::worker) fn forget_dropped_actors(&mut self) {
        for actor in self.ownership.take_dropped_actors() {
            if self.ownership.record(actor.object(0)).is_none() {
                self.callers.forget(actor);
            }
        }
    }
}

pub(in crate::worker) fn unborn_failure(spec: &TaskSpec) -> Failure {
    let message = format!("actor {} was dropped before it was created", spec.name.as_str());
    Failure::new(FailureCode::ActorDied, message)
}

pub(in crate::worker) fn restarting_failure(spec: &TaskSpec, reason: &str) -> Failure {
    Failure::new(
        FailureCode::ActorUnavailable,
        format!(
            "the process of the actor {reason} while {}() was on its way or running; the actor restarts. The call may have been executed in part; no retry is left (max_task_retries={})",
            spec.name.as_str(),
            spec.retries
        ),
    )
}
