//! The node's half of checkpoints: it keeps the last one of each actor and hands it to the process that takes over.
//!
//! The node holds the block of a state, and the owners of references inside keep their objects for it
//! ([`KeepObjects`]). It tells each caller which of its calls a checkpoint covers, and gives the last checkpoint that it
//! told of to the next process: what the callers still keep is exactly what that state lacks.

use weft_wire::message::{
    AddBorrow, Checkpoint, Checkpointed, KeepObjects, Message, Outcome, Restore, Return,
};
use weft_wire::{ActorId, ObjectId, WorkerId};

use super::{Actor, ActorPhase, NodeAction, NodeActions, NodeCore};
use crate::table::Map;

/// What the node knows of one actor's checkpoints.
#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    /// How many were taken.
    pub(super) taken: u64,
    last: Option<Last>,
}

#[derive(Debug)]
struct Last {
    state: Return,
    /// References inside whose owners keep the objects. The others have gone, or end with the actor's process.
    kept: Vec<ObjectId>,
}

impl NodeCore {
    /// An actor's process has taken a checkpoint.
    pub(super) fn on_checkpoint(&mut self, from: WorkerId, checkpoint: Checkpoint, out: &mut NodeActions) {
        let Checkpoint { actor: id, state, calls } = checkpoint;
        let lives_here =
            |actor: &Actor| matches!(actor.phase, ActorPhase::Placed { worker, .. } if worker == from);
        let Some(actor) = self.actors.get_mut(&id).filter(|actor| lives_here(actor)) else { return };
        let Some(checkpoints) = &mut actor.checkpoints else { return };
        if let Outcome::Stored(location) = state.outcome {
            self.holders.keep(location.offset);
            let is_free = self.holders.release(location.offset, from);
            debug_assert!(!is_free, "the node keeps it");
        }
        let is_kept =
            |object: &ObjectId| object.owner() != from && self.clients.contains_key(&object.owner());
        let kept: Vec<ObjectId> = state.contained.iter().copied().filter(is_kept).collect();
        checkpoints.taken += 1;
        let before = checkpoints.last.replace(Last { state, kept: kept.clone() });
        self.tell_owners(&kept, before.as_ref().map_or(&[], |last| &last.kept), out);
        self.let_go_of(before, out);

        let mut covered: Map<WorkerId, Vec<u64>> = Map::default();
        // The process itself is told, too, whether it called itself or not.
        covered.insert(from, Vec::new());
        for call in calls {
            covered.entry(call.owner).or_default().push(call.number);
        }
        for (caller, calls) in covered {
            self.say(caller, Checkpointed { actor: id, calls }, out);
        }
    }

    /// A process is about to take the actor over. Nothing to do for the actor's first process.
    pub(super) fn restore(&mut self, id: ActorId, worker: WorkerId, out: &mut NodeActions) {
        let Some(Actor { takeovers: 1.., checkpoints: Some(checkpoints), subscribers, .. }) =
            self.actors.get(&id)
        else {
            return;
        };
        let state = checkpoints.last.as_ref().map(|last| last.state.clone());
        let callers =
            subscribers.iter().copied().filter(|caller| self.clients.contains_key(caller)).collect();
        if let Some(Return { outcome, contained }) = &state {
            if let Outcome::Stored(location) = outcome {
                self.holders.share(location.offset, worker);
            }
            for object in contained {
                self.say(object.owner(), AddBorrow { object: *object, borrower: worker }, out);
            }
        }
        self.say(worker, Restore { actor: id, state, callers }, out);
    }

    /// The actor is gone for good.
    pub(super) fn drop_checkpoint(&mut self, id: ActorId, out: &mut NodeActions) {
        let checkpoints = self.actors.get_mut(&id).and_then(|actor| actor.checkpoints.as_mut());
        let Some(last) = checkpoints.and_then(|checkpoints| checkpoints.last.take()) else { return };
        self.tell_owners(&[], &last.kept, out);
        self.let_go_of(Some(last), out);
    }

    fn tell_owners(&self, begin: &[ObjectId], end: &[ObjectId], out: &mut NodeActions) {
        let mut by_owner: Map<WorkerId, KeepObjects> = Map::default();
        let none = || KeepObjects { begin: Vec::new(), end: Vec::new() };
        for object in begin {
            by_owner.entry(object.owner()).or_insert_with(none).begin.push(*object);
        }
        for object in end {
            by_owner.entry(object.owner()).or_insert_with(none).end.push(*object);
        }
        for (owner, keep) in by_owner {
            self.say(owner, keep, out);
        }
    }

    fn let_go_of(&mut self, last: Option<Last>, out: &mut NodeActions) {
        if let Some(Last { state: Return { outcome: Outcome::Stored(location), .. }, .. }) = last
            && self.holders.let_go(location.offset)
        {
            self.free_block(location.offset, out);
        }
    }

    /// Says something to a client that may be gone.
    fn say(&self, to: WorkerId, message: impl Into<Message>, out: &mut NodeActions) {
        if self.clients.contains_key(&to) {
            out.push(NodeAction::Send(to, Box::new(message.into())));
        }
    }
}
