//! The caller's half of checkpoints: which calls it keeps, and making them again when another process takes
//! over.
//!
//! A kept call uses its arguments, as a pending one does, but not the actor's handle: otherwise the calls
//! since the last checkpoint would keep the actor alive.

use std::sync::Arc;

use sooner_wire::message::{
    ActorRestarting, Checkpointed, Failure, FailureCode, KeepObjects, KillActor, Outcome, Replayed, Reply,
    TaskKind, TaskSpec,
};
use sooner_wire::{ActorId, ObjectId, WorkerId};

use super::actors::restarting_failure;
use crate::table::Set;
use crate::worker::WorkerCore;
use crate::worker::action::{Actions, Peer, send};
use crate::worker::tasks::State;
use crate::worker::tasks::cancelling::cancelled_failure;

impl WorkerCore {
    /// Keeps a call that is pushed for the first time.
    pub(in crate::worker) fn keep_call(&mut self, actor: ActorId, spec: Arc<TaskSpec>) {
        for object in arguments(&spec) {
            self.ownership.add_use(object);
        }
        self.callers.keep(actor, spec);
    }

    /// A call need not be made again: it changed nothing, or it was never executed.
    pub(in crate::worker) fn forget_call(&mut self, actor: ActorId, number: u64, out: &mut Actions) {
        let spec = self.callers.forget_kept(actor, number);
        self.release_kept(spec, out);
    }

    pub(in crate::worker) fn release_kept(
        &mut self,
        specs: impl IntoIterator<Item = Arc<TaskSpec>>,
        out: &mut Actions,
    ) {
        for spec in specs {
            for object in arguments(&spec) {
                self.ownership.end_use(object, out);
            }
        }
    }

    /// The node has a checkpoint: of an actor that this process calls, or of the one in this process.
    pub(in crate::worker) fn on_checkpointed(&mut self, done: &Checkpointed, out: &mut Actions) {
        let covered = self.callers.cover(done.actor, &done.calls);
        self.release_kept(covered, out);
        if self.ownership.record(done.actor.object(0)).is_none() {
            self.callers.forget(done.actor);
        }
        self.confirm_checkpoint(done.actor, out);
    }

    /// Kept calls were in flight when the actor's process ended. They have no reply, so no checkpoint covers
    /// them. The call that ran last may have ended the process: it is made again within its retries only.
    pub(in crate::worker) fn repeat_kept(
        &mut self,
        restarting: &ActorRestarting,
        calls: &[u64],
        out: &mut Actions,
    ) {
        let ActorRestarting { actor, reason, last_started, .. } = restarting;
        for number in calls {
            let Some(pending) = self.pendings.get_mut(*number) else { continue };
            let has_run = *last_started == Some(pending.spec.task);
            let failure = if pending.cancelled {
                Some(cancelled_failure(pending.spec.task))
            } else {
                (has_run && pending.retries == 0).then(|| restarting_failure(&pending.spec, reason))
            };
            if let Some(failure) = failure {
                self.forget_call(*actor, *number, out);
                self.fail(*number, &failure, out);
                continue;
            }
            pending.retries -= i32::from(has_run && pending.retries > 0);
            pending.state = State::Queued;
            pending.repeat(self.now);
            // It keeps its place, and waits there for a lost argument.
            self.must_wait_again(*number, out);
        }
    }

    /// Pushes kept calls again while there is room: first those that were answered, then `Replayed`, then the
    /// others. Replies come in call order, so every answered call comes before the others.
    pub(in crate::worker) fn replay(&mut self, actor: ActorId, out: &mut Actions) {
        while let Some((spec, worker)) = self.callers.next_replay(actor) {
            let number = spec.task.number;
            let state = self.pendings.get(number).map(|pending| &pending.state);
            let is_ghost = state.is_none();
            let is_queued = state.is_none_or(|state| *state == State::Queued);
            if !is_ghost {
                // First of all: what this call waits for may come from calls that wait for `Replayed`.
                self.end_replay(actor, out);
            }
            // A call with a lost argument holds the others up until the value is there again.
            if !is_queued || (is_ghost && !self.has_arguments(&spec, out)) {
                return self.push_recovering(actor, number, out);
            }
            self.callers.on_replayed(actor, number, is_ghost);
            if is_ghost {
                self.send_push(spec, worker, Vec::new(), out);
            } else {
                self.push(number, worker, Vec::new(), 0, out);
            }
        }
        if self.callers.finish_replay(actor) {
            self.end_replay(actor, out);
        }
    }

    /// Pushes calls that recover lost values, for which the kept call `before` may wait. They change nothing
    /// in the actor's state. Later ones are to find a state with `before`, whose arguments are not made of
    /// them.
    fn push_recovering(&mut self, actor: ActorId, before: u64, out: &mut Actions) {
        while let Some((number, worker)) = self.callers.next_recovering(actor, before) {
            self.callers.on_pushed(actor, number, 0);
            self.push(number, worker, Vec::new(), 0, out);
        }
    }

    /// Whether a ghost has its arguments. Lost ones are asked for; if one is lost for good, the actor ends,
    /// because its state was made with it.
    fn has_arguments(&mut self, spec: &TaskSpec, out: &mut Actions) -> bool {
        let mut is_complete = true;
        for object in &spec.dependencies {
            match self.ownership.outcome(*object) {
                Some(Outcome::Inline(_) | Outcome::Stored(_) | Outcome::Remote(_)) => {}
                Some(Outcome::Failed(_)) => {
                    self.give_actor_up(spec, out);
                    return false;
                }
                None => {
                    is_complete = false;
                    self.ownership.need(*object, out);
                    self.revive(*object, out);
                    if self.comes_from(*object, spec) {
                        self.give_actor_up(spec, out);
                        return false;
                    }
                }
            }
        }
        is_complete
    }

    /// Whether a lost argument of a call needs another call of the same actor, which waits for this one.
    /// Calls that read the actor's state for it do not ([`Self::push_recovering`]).
    fn comes_from(&self, argument: ObjectId, call: &TaskSpec) -> bool {
        let (mut todo, mut seen) = (vec![argument], Set::default());
        while let Some(object) = todo.pop() {
            let pending = self.pendings.get(object.task.number).filter(|_| object.owner() == self.me);
            let Some(pending) = pending.filter(|_| seen.insert(object)) else { continue };
            let goes_before = only_recovers(&pending.spec) && pending.spec.task.number < call.task.number;
            if pending.spec.kind() == call.kind() && !goes_before {
                return true;
            }
            todo.extend(&pending.spec.dependencies);
        }
        false
    }

    fn give_actor_up(&mut self, spec: &TaskSpec, out: &mut Actions) {
        let TaskKind::Method(actor) = spec.kind() else { return };
        let message = format!(
            "the actor ended: an argument of {}() is lost, which would have to be called again to restore its state",
            spec.name.as_str()
        );
        self.callers.refuse(actor, Failure::new(FailureCode::ActorDied, message));
        send(out, Peer::Node, KillActor { actor, may_restart: Some(false) });
    }

    /// Goes on with replays that waited for a lost argument.
    pub(in crate::worker) fn go_on_replaying(&mut self, out: &mut Actions) {
        for actor in self.callers.replaying() {
            self.dispatch_actor(actor, out);
        }
    }

    fn end_replay(&mut self, actor: ActorId, out: &mut Actions) {
        if let Some(worker) = self.callers.take_replay_end(actor) {
            send(out, Peer::Worker(worker), Replayed { actor });
        }
    }

    /// A reply came for which no task waits: drops its values. If the call was made again only for its
    /// effects, the caller has the values of the first time.
    pub(in crate::worker) fn on_ghost_reply(&mut self, worker: WorkerId, reply: &Reply, out: &mut Actions) {
        self.let_go_of_values(worker, reply, out);
        let number = reply.task.number;
        let Some(actor) = self.callers.on_ghost_reply(number) else { return };
        if reply.not_run == Some(true)
            && let Some(spec) = self.callers.forget_kept(actor, number)
        {
            // The arguments were lost on the way.
            self.give_actor_up(&spec, out);
            self.release_kept([spec], out);
        }
        self.dispatch_actor(actor, out);
    }

    /// Keeps objects of this process to which checkpoints of actors refer.
    pub(in crate::worker) fn on_keep_objects(&mut self, keep: KeepObjects, out: &mut Actions) {
        let KeepObjects { actor, objects, more } = keep;
        if more == Some(true) {
            let new = self.kept_objects.extend(actor, objects);
            return new.iter().for_each(|object| self.ownership.add_use(*object));
        }
        objects.iter().for_each(|object| self.ownership.add_use(*object));
        let before = self.kept_objects.replace(actor, objects);
        before.into_iter().for_each(|object| self.ownership.end_use(object, out));
    }
}

/// Whether a call that changes no state is made again for its lost result. It has no place in the order: it
/// could come behind a call that waits for its result.
pub(in crate::worker) fn only_recovers(spec: &TaskSpec) -> bool {
    spec.recovers == Some(true) && spec.is_unordered() && spec.kept() != Some(true)
}

pub(in crate::worker) fn arguments(spec: &TaskSpec) -> impl Iterator<Item = ObjectId> + '_ {
    spec.dependencies.iter().chain(&spec.references).copied()
}
