//! The checkpoints of the local actor: taking them, and taking an actor over from one.

use sooner_wire::ActorId;
use sooner_wire::message::{
    ActorReady, Checkpoint, Failure, FailureCode, Outcome, Priority, Restore, Return,
};

use super::Restored;
use crate::probes::mark;
use crate::worker::WorkerCore;
use crate::worker::action::{Actions, Peer, send};

impl WorkerCore {
    /// Whether a checkpoint of the actor in this process should be taken before its next call.
    #[must_use]
    pub fn checkpoint_is_due(&self) -> bool {
        self.instance.is_due()
    }

    /// A checkpoint cannot be taken now: tries again after as many calls as lie between two checkpoints.
    pub fn postpone_checkpoint(&mut self) {
        self.instance.postpone();
    }

    /// Sends the state of the local actor after its last call. The replies to all calls have left: if the
    /// process dies now, a caller has the outcome of each call that the checkpoint covers.
    pub fn on_checkpoint(&mut self, actor: ActorId, state: Return, out: &mut Actions) {
        for object in &state.contained {
            // Until the node has the next one. So whatever the node sends an owner of these references
            // arrives before this process's own reference ends there, by its message or its death.
            self.ownership.add_use(*object);
        }
        let calls = self.instance.on_taken(state.contained.clone());
        send(out, Peer::Node, Checkpoint { actor, state, calls });
    }

    /// The node has a checkpoint. If it is one of the local actor, the one before it is not needed any more.
    pub(in crate::worker) fn confirm_checkpoint(&mut self, actor: ActorId, out: &mut Actions) {
        if !self.instance.is_of(actor) {
            return;
        }
        for object in self.instance.on_confirmed() {
            self.ownership.end_use(object, out);
        }
    }

    /// This process takes an actor over; the constructor follows.
    pub(in crate::worker) fn on_restore(&mut self, restore: Restore, out: &mut Actions) {
        self.execution.on_restore(&restore.callers);
        self.end_incomplete(restore.actor, out);
        let Some(Return { outcome, contained }) = restore.state else { return };
        let object = restore.actor.state();
        let contained: Vec<_> = contained
            .into_iter()
            .map(|inner| {
                self.ownership.add_use(inner);
                (inner, self.ownership.received(inner))
            })
            .collect();
        let is_elsewhere = matches!(outcome, Outcome::Remote(_));
        let slot = outcome.is_in_memory().then(|| {
            self.ownership.adopt(object, outcome.clone());
            self.ownership.add_use(object);
            self.ownership.meet(object)
        });
        self.instance.restored = Some(Restored { object, outcome, slot, contained });
        if is_elsewhere {
            // The constructor waits for it.
            self.execution.miss(object);
            self.ownership.bring(object, Priority::Get, out);
        }
    }

    /// Ends the actor if its state lacks a call on whose answer a caller may have acted: that cannot be
    /// repaired. The caller of that call ends the actor as well, but its message may come too late, or be
    /// lost with it.
    pub(in crate::worker) fn end_incomplete(&mut self, actor: ActorId, out: &mut Actions) {
        if !self.execution.lacks_call() {
            return;
        }
        mark!("a restored actor ended for want of an argument");
        let message = "the actor ended: an argument is lost of a call that would have to be executed again to restore its state";
        send(
            out,
            Peer::Node,
            ActorReady { actor, failure: Some(Failure::new(FailureCode::ActorDied, message.to_owned())) },
        );
    }

    /// The state that the local actor begins with. [`Self::on_restored`] follows.
    pub fn take_restored(&mut self) -> Option<Restored> {
        self.instance.restored.take()
    }

    /// The state was read, or could not be.
    pub fn on_restored(&mut self, restored: &Restored, out: &mut Actions) {
        for (inner, _) in &restored.contained {
            self.ownership.end_use(*inner, out);
        }
        if restored.slot.is_some() {
            self.ownership.end_use(restored.object, out);
        }
    }
}
