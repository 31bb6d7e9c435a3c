//! Actors that the control service does not know: dead, or their owner's message is still on its way.
//!
//! A handle may reach a third process, and that process may ask the control service before the owner's
//! message arrives, over another connection. The owner reported the actor before it handed the handle on, so
//! its answer to any later question arrives behind that report. That question is the one for lost blocks,
//! without a block. It never waits for a dead owner.

use sooner_wire::message::{ActorDead, ForgetLost, Round};
use sooner_wire::{ActorId, WorkerId};

use crate::control::{Directory, DirectoryActions};
use crate::failures::death_failure;
use crate::table::Map;

/// See the module. At most one per handle whose first call is on its way.
#[derive(Debug, Default)]
pub(in crate::control) struct Lookups {
    made: u64,
    open: Map<Round, (ActorId, WorkerId)>,
}

impl Lookups {
    /// The owners that are asked, and the processes that want to know.
    pub(in crate::control) fn processes(&self) -> impl Iterator<Item = WorkerId> {
        self.open.values().flat_map(|(actor, from)| [actor.owner, *from])
    }
}

impl Directory {
    /// A process asks for an actor that is not known.
    pub(in crate::control) fn look_up(&mut self, actor: ActorId, from: WorkerId, out: &mut DirectoryActions) {
        let owner = actor.owner;
        if from == owner || !self.nodes.contains_key(&owner.node()) {
            return self.notify_death(actor, from, out);
        }
        let round = Round::of_control(self.lookups.made);
        self.lookups.made += 1;
        self.lookups.open.insert(round, (actor, from));
        self.send(owner, ForgetLost { round, blocks: Vec::new() }, out);
    }

    /// The owner has answered: everything that it sent before has arrived.
    pub(in crate::control) fn on_looked_up(&mut self, round: Round, out: &mut DirectoryActions) {
        let Some((actor, from)) = self.lookups.open.swap_remove(&round) else { return };
        if self.actors.contains_key(&actor) {
            self.on_subscribe(from, actor, out);
        } else {
            self.notify_death(actor, from, out);
        }
    }

    /// A dead owner answers no question any more.
    pub(in crate::control) fn end_lookups_of(&mut self, gone: WorkerId, out: &mut DirectoryActions) {
        let rounds = self.lookups.open.iter().filter(|(_, (actor, _))| actor.owner == gone);
        for round in rounds.map(|(round, _)| *round).collect::<Vec<_>>() {
            self.on_looked_up(round, out);
        }
        self.lookups.open.retain(|_, (_, from)| *from != gone);
    }

    pub(in crate::control) fn notify_death(&self, actor: ActorId, to: WorkerId, out: &mut DirectoryActions) {
        self.send(to, ActorDead { actor, failure: death_failure() }, out);
    }
}
