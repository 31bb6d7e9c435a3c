//! What the control service tells about itself when a tool asks: the actors.

use sooner_wire::message::GroupRow;
use sooner_wire::message::state::ActorRow;
use sooner_wire::{ActorId, ResourceSet};

use super::actors::{Actor, Phase};
use crate::control::Directory;

impl Directory {
    /// The actors. Each actor's node adds what only it knows ([`crate::node::NodeCore::complete`]).
    #[must_use]
    pub fn report(&self) -> Vec<ActorRow> {
        self.actors.iter().map(|(id, actor)| row(*id, actor)).collect()
    }

    /// The placement groups.
    #[must_use]
    pub fn groups(&self) -> Vec<GroupRow> {
        self.groups.rows()
    }
}

fn row(id: ActorId, actor: &Actor) -> ActorRow {
    let (phase, worker, death) = match &actor.phase {
        Phase::Reserved => (0, None, None),
        Phase::Pending(_) | Phase::Placing { .. } if actor.restarted() > 0 => (5, None, None),
        Phase::Pending(_) | Phase::Placing { .. } => (1, None, None),
        Phase::Placed { worker, .. } if actor.is_ready => (3, Some(*worker), None),
        Phase::Placed { worker, .. } if actor.restarted() > 0 => (5, Some(*worker), None),
        Phase::Placed { worker, .. } => (2, Some(*worker), None),
        Phase::Dead(failure) => (4, None, Some(failure.message.clone())),
    };
    let resources = match &actor.phase {
        Phase::Pending(create) => create.placement.clone(),
        _ => ResourceSet::default(),
    };
    ActorRow {
        actor: id,
        owner: actor.owner,
        class: actor.class.clone(),
        name: actor.name.clone(),
        phase,
        worker,
        pid: 0,
        death,
        resources,
        detached: Some(actor.detached),
        restarts: Some(actor.restarted()),
        checkpoints: actor.checkpoints.as_ref().map(|checkpoints| checkpoints.taken),
        job: Some(actor.job),
    }
}
