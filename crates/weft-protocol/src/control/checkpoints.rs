//! Which checkpoint of each actor stands, and who is told of it.
//!
//! The node of an actor's process holds the block of a state, and the owners of references inside keep their objects for
//! it ([`KeepObjects`]). Each caller is told which of its calls a checkpoint covers, and the last checkpoint that was
//! told of is given to the next process: what the callers still keep is exactly what that state lacks. Both go the way
//! of the news of a restart, and so in one order with it (`docs/adr/0013-checkpointed-actors.md`).

use weft_wire::message::{AddBorrow, Checkpoint, Checkpointed, KeepObjects, Outcome, Restore, Return};
use weft_wire::{ActorId, NodeId, ObjectId, WorkerId};

use super::actors::Phase;
use super::{ControlAction, ControlActions, ControlCore, ToNode};
use crate::table::Map;

/// What is known of one actor's checkpoints.
#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    /// How many were taken.
    pub(super) taken: u64,
    last: Option<Last>,
}

#[derive(Debug)]
struct Last {
    state: Return,
    /// Where the block of the state is kept.
    node: NodeId,
    /// References inside whose owners keep the objects. The others end with the actor's process.
    kept: Vec<ObjectId>,
}

impl Checkpoints {
    /// As a node tells of them: the last one, which is there or on the node that it names. Whether the owners of references
    /// inside were told to keep the objects is not known: what they keep they keep until they end.
    pub(super) fn learnt(state: Return, node: NodeId) -> Self {
        let node = holder(&state.outcome).and_then(|(at, _)| at).unwrap_or(node);
        Self { taken: 1, last: Some(Last { node, kept: Vec::new(), state }) }
    }

    /// None stands.
    pub(super) fn is_empty(&self) -> bool {
        self.last.is_none()
    }
}

/// Where the block of a state begins, and on which node if it says so.
fn holder(outcome: &Outcome) -> Option<(Option<NodeId>, u64)> {
    match outcome {
        Outcome::Stored(location) => Some((None, location.offset)),
        Outcome::Remote(remote) => Some((Some(remote.node), remote.location.offset)),
        Outcome::Inline(_) | Outcome::Failed(_) => None,
    }
}

impl ControlCore {
    /// An actor's process has taken a checkpoint. Its node keeps the block of the state.
    pub(super) fn on_checkpoint(&mut self, from: WorkerId, checkpoint: Checkpoint, out: &mut ControlActions) {
        let Checkpoint { actor: id, state, calls } = checkpoint;
        let kept: Vec<ObjectId> =
            state.contained.iter().copied().filter(|object| object.owner() != from).collect();
        let last = Last { state, node: from.node(), kept: kept.clone() };
        let actor = self.actors.get_mut(&id);
        let lives_here = actor.filter(|a| matches!(a.phase, Phase::Placed { worker, .. } if worker == from));
        let Some(checkpoints) = lives_here.and_then(|actor| actor.checkpoints.as_mut()) else {
            return let_go_of(Some(last), out);
        };
        checkpoints.taken += 1;
        let before = checkpoints.last.replace(last);
        self.tell_owners(&kept, before.as_ref().map_or(&[], |last| &last.kept), out);
        let_go_of(before, out);

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

    /// A process takes the actor over. Nothing to do for the actor's first process.
    pub(super) fn restore(&mut self, id: ActorId, node: NodeId, worker: WorkerId, out: &mut ControlActions) {
        let Some(actor) = self.actors.get(&id).filter(|actor| actor.restores()) else { return };
        let last = actor.checkpoints.as_ref().and_then(|checkpoints| checkpoints.last.as_ref());
        let state = last.map(|last| last.state.clone());
        let callers = actor.subscribers.iter().copied().collect();
        for object in state.iter().flat_map(|state| &state.contained) {
            self.say(object.owner(), AddBorrow { object: *object, borrower: worker }, out);
        }
        let restore = Box::new(Restore { actor: id, state, callers, takeover: None });
        let restore = ToNode::Restore { takeover: actor.takeovers, restore };
        out.push(ControlAction::Send(node, Box::new(restore)));
    }

    /// The actor is gone for good.
    pub(super) fn drop_checkpoint(&mut self, id: ActorId, out: &mut ControlActions) {
        let checkpoints = self.actors.get_mut(&id).and_then(|actor| actor.checkpoints.as_mut());
        let Some(last) = checkpoints.and_then(|checkpoints| checkpoints.last.take()) else { return };
        self.tell_owners(&[], &last.kept, out);
        let_go_of(Some(last), out);
    }

    /// Owners that are gone keep nothing, and their nodes pass nothing on to them.
    fn tell_owners(&self, begin: &[ObjectId], end: &[ObjectId], out: &mut ControlActions) {
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
}

fn let_go_of(last: Option<Last>, out: &mut ControlActions) {
    if let Some(Last { state, node, .. }) = last
        && let Some((_, block)) = holder(&state.outcome)
    {
        out.push(ControlAction::Send(node, Box::new(ToNode::LetGo { block })));
    }
}
