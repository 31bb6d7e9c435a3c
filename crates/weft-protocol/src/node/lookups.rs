//! Actors that the node has not heard of: gone, or still on their way.
//!
//! A handle may reach a third process, and that one the node, before the owner's own message does: they come over
//! different connections. The owner said that the actor exists before it handed the handle on, so its answer to any
//! later question comes behind that word. The question is that for lost blocks, and names none.

use weft_wire::message::{ActorDead, ForgetLost};
use weft_wire::{ActorId, WorkerId};

use super::{NodeAction, NodeActions, NodeCore, actor_died};
use crate::table::Map;

/// Rounds from here on are lookups; those below ask about blocks.
const FIRST_ROUND: u64 = 1 << 63;

/// See the module. At most one per handle whose first call is on its way.
#[derive(Debug, Default)]
pub(super) struct Lookups {
    made: u64,
    open: Map<u64, (ActorId, WorkerId)>,
}

impl NodeCore {
    /// A caller asks for an actor that is not known.
    pub(super) fn look_up(&mut self, actor: ActorId, from: WorkerId, out: &mut NodeActions) {
        let owner = actor.owner;
        if from == owner || !self.clients.contains_key(&owner) {
            return Self::tell_gone(actor, from, out);
        }
        let round = FIRST_ROUND + self.lookups.made;
        self.lookups.made += 1;
        self.lookups.open.insert(round, (actor, from));
        let question = ForgetLost { round, offsets: Vec::new() };
        out.push(NodeAction::Send(owner, Box::new(question.into())));
    }

    /// The owner has answered: whatever it said before is known by now.
    pub(super) fn on_looked_up(&mut self, round: u64, out: &mut NodeActions) {
        let Some((actor, from)) = self.lookups.open.swap_remove(&round) else { return };
        if self.actors.contains_key(&actor) {
            self.on_subscribe(from, actor, out);
        } else {
            Self::tell_gone(actor, from, out);
        }
    }

    /// An owner that is gone answers nothing any more.
    pub(super) fn end_lookups_of(&mut self, gone: WorkerId, out: &mut NodeActions) {
        let rounds = self.lookups.open.iter().filter(|(_, (actor, _))| actor.owner == gone);
        for round in rounds.map(|(round, _)| *round).collect::<Vec<_>>() {
            self.on_looked_up(round, out);
        }
        self.lookups.open.retain(|_, (_, from)| *from != gone);
    }

    fn tell_gone(actor: ActorId, to: WorkerId, out: &mut NodeActions) {
        let failure = actor_died("the actor is gone: its last handle was dropped before this one was used");
        out.push(NodeAction::Send(to, Box::new(ActorDead { actor, failure }.into())));
    }
}
