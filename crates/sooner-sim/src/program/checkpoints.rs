//! Actors with checkpoints: taking a checkpoint between two calls, and restoring the last one.

use sooner_protocol::probes::hit;
use sooner_wire::ActorId;
use sooner_wire::message::{Outcome, Return};

use super::Reference;
use crate::oracle::Oracle;
use crate::violation::fail;
use crate::world::World;

impl World {
    /// A call has ended: asks the core whether a checkpoint is due before the next one.
    pub(super) fn look_for_checkpoint(&mut self, number: u32) {
        let process = self.process_mut(number);
        let is_due = process.core.checkpoint_is_due();
        if let Some(instance) = &mut process.instance {
            instance.is_due = is_due;
        }
    }

    /// Takes the checkpoint that is due, after all messages have left.
    pub(super) fn take_checkpoint(&mut self, number: u32) {
        let Some(instance) = &mut self.process_mut(number).instance else { return };
        instance.is_due = false;
        let (actor, state) = (instance.actor, instance.state.clone());
        let held: Vec<_> = instance.kept.iter().map(|kept| (kept.id, kept.slot.clone())).collect();
        if self.random.chance(1, 16) {
            hit("a checkpoint was put off");
            return self.with_core(number, |core, _| core.postpone_checkpoint());
        }
        let payload = Oracle::value(self.random.next_number(), 0);
        self.oracle.states.insert(payload, (actor, state));
        let outcome = self.make_outcome(number, payload);
        if let Outcome::Stored(location) = &outcome {
            self.node_mut(number).blocks.record_state(location.offset);
        }
        let mut contained = Vec::new();
        for (id, slot) in held {
            let reference = Reference { id, slot, is_actor: false, may_wait: false, may_pass: false };
            self.register(number, &reference);
            contained.push(id);
        }
        if !contained.is_empty() {
            hit("a checkpoint contained references");
        }
        self.trace.send(|| format!("{number} takes a checkpoint of {actor:?} with {contained:?}"));
        let value = Return { outcome, contained };
        self.with_core(number, |core, out| core.on_checkpoint(actor, value, out));
    }

    /// The constructor's process restores the actor's state from its last checkpoint, if there is one.
    pub(super) fn restore(&mut self, number: u32, actor: ActorId) {
        let Some(restored) = self.with_core(number, |core, _| core.take_restored()) else { return };
        hit("an actor went on from a checkpoint");
        let payload = self.read(number, &restored.outcome);
        let Some((of, state)) = payload.and_then(|payload| self.oracle.states.get(&payload).cloned()) else {
            fail("I8", format!("{actor:?} goes on from a state that nobody saved: {:?}", restored.outcome));
        };
        if of != actor {
            fail("I8", format!("{actor:?} goes on from the state of {of:?}"));
        }
        self.check_restored(actor, &state);
        let mut kept: Vec<Reference> =
            restored.contained.iter().map(|(id, slot)| self.hold(*id, slot.clone())).collect();
        kept.iter_mut().for_each(|reference| reference.may_wait = false);
        if let Some(instance) = &mut self.process_mut(number).instance {
            let latest = state.latest().map(|call| ((call.owner, None), call.number));
            instance.latest = latest.collect();
            instance.state = state;
            instance.kept = kept;
        }
        self.with_core(number, |core, out| core.on_restored(&restored, out));
    }
}
