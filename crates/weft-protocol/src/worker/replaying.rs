//! The caller's half of checkpoints: which calls it keeps, and making them again when another process takes over.
//!
//! A kept call uses its arguments, as a pending one does, but not the handle of the actor: otherwise the calls since the
//! last checkpoint would keep it alive.

use std::sync::Arc;

use weft_wire::message::{ActorRestarting, Checkpointed, KeepObjects, Replayed, Reply, TaskSpec};
use weft_wire::{ActorId, ObjectId};

use super::{Actions, Peer, State, WorkerCore, cancelled_failure, restarting_failure, send};

impl WorkerCore {
    /// A call is pushed for the first time.
    pub(super) fn keep_call(&mut self, actor: ActorId, spec: Arc<TaskSpec>) {
        for object in arguments(&spec) {
            self.ownership.add_use(object);
        }
        self.callers.keep(actor, spec);
    }

    /// A call need not be made again: it changed nothing, or it was never executed.
    pub(super) fn forget_call(&mut self, actor: ActorId, number: u64, out: &mut Actions) {
        let spec = self.callers.forget_kept(actor, number);
        self.release_kept(spec, out);
    }

    pub(super) fn release_kept(&mut self, specs: impl IntoIterator<Item = Arc<TaskSpec>>, out: &mut Actions) {
        for spec in specs {
            for object in arguments(&spec) {
                self.ownership.end_use(object, out);
            }
        }
    }

    /// The node has a checkpoint: of an actor that this process calls, or of the one in it.
    pub(super) fn on_checkpointed(&mut self, done: &Checkpointed, out: &mut Actions) {
        let covered = self.callers.cover(done.actor, &done.calls);
        self.release_kept(covered, out);
        if self.ownership.record(done.actor.object(0)).is_none() {
            self.callers.forget(done.actor);
        }
        self.confirm_checkpoint(done.actor, out);
    }

    /// Kept calls were in flight when the actor's process ended. They have not been answered, so no checkpoint has them.
    /// The one that ran then may be what ended the process: it is made again within its retries only.
    pub(super) fn repeat_kept(&mut self, restarting: &ActorRestarting, calls: &[u64], out: &mut Actions) {
        let ActorRestarting { actor, reason, last_started } = restarting;
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
        }
    }

    /// Pushes kept calls again as far as there is room: those that were answered, then word of that, then the others.
    /// Replies come in the order of the calls, so none of the others is before one that was answered.
    pub(super) fn replay(&mut self, actor: ActorId, out: &mut Actions) {
        while let Some((spec, worker)) = self.callers.next_replay(actor) {
            if !self.is_complete(&spec, out) {
                // An argument is lost, and on its way back.
                return;
            }
            let number = spec.task.number;
            let is_ghost = self.pendings.get(number).is_none();
            if !is_ghost {
                self.end_replay(actor, out);
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

    fn is_complete(&mut self, spec: &TaskSpec, out: &mut Actions) -> bool {
        let has_value = |object: &ObjectId| {
            self.ownership.record(*object).is_some_and(|record| record.slot.outcome().is_some())
        };
        let missing: Vec<ObjectId> =
            spec.dependencies.iter().copied().filter(|object| !has_value(object)).collect();
        for object in &missing {
            self.ownership.need(*object, out);
        }
        missing.is_empty()
    }

    /// Goes on with replays that waited for a lost argument.
    pub(super) fn go_on_replaying(&mut self, out: &mut Actions) {
        for actor in self.callers.replaying() {
            self.dispatch_actor(actor, out);
        }
    }

    fn end_replay(&mut self, actor: ActorId, out: &mut Actions) {
        if let Some(worker) = self.callers.take_replay_end(actor) {
            send(out, Peer::Worker(worker), Replayed { actor });
        }
    }

    /// A reply came for which no task waits: its values are let go. If the call was only made again for what it does, the
    /// caller has those of the first time.
    pub(super) fn on_ghost_reply(&mut self, reply: &Reply, out: &mut Actions) {
        for (index, value) in (0..).zip(&reply.returns) {
            self.ownership.discard(reply.task.object(index), &value.outcome, &value.contained, out);
        }
        if let Some(actor) = self.callers.on_ghost_reply(reply.task.number) {
            self.dispatch_actor(actor, out);
        }
    }

    /// Checkpoints of actors contain references to objects of this process.
    pub(super) fn on_keep_objects(&mut self, keep: &KeepObjects, out: &mut Actions) {
        keep.begin.iter().for_each(|object| self.ownership.add_use(*object));
        keep.end.iter().for_each(|object| self.ownership.end_use(*object, out));
    }
}

fn arguments(spec: &TaskSpec) -> impl Iterator<Item = ObjectId> + '_ {
    spec.dependencies.iter().chain(&spec.references).copied()
}
