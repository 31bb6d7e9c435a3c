//! What a node tells about itself when a tool asks: workers, actors, resources and what waits for them.

use weft_wire::message::state::{ActorRow, DemandRow, NodeReport, WorkerRow};
use weft_wire::{ActorId, ResourceSet, WorkerId};

use super::{Actor, ActorPhase, NodeCore, Worker, WorkerState};

impl NodeCore {
    /// What the core knows; the shell adds the store, processes and metrics.
    #[must_use]
    pub fn report(&self) -> NodeReport {
        NodeReport {
            total: self.resources.total().clone(),
            free: self.resources.free().clone(),
            blocks: self.holders.len() as u64,
            workers: self.workers.iter().map(|(id, worker)| self.worker_row(*id, worker)).collect(),
            actors: self.actors.iter().map(|(id, actor)| self.actor_row(*id, actor)).collect(),
            demands: self.demand_rows(),
            leases: self.leases.len() as u64,
            ..NodeReport::default()
        }
    }

    fn worker_row(&self, id: WorkerId, worker: &Worker) -> WorkerRow {
        let mut row = WorkerRow {
            worker: id,
            pid: worker.pid,
            state: 0,
            client: None,
            actor: None,
            blocked: worker.blocked,
            resources: ResourceSet::default(),
        };
        match worker.state {
            WorkerState::Starting => {}
            WorkerState::Idle { .. } => row.state = 1,
            WorkerState::Leased(lease) => {
                row.state = 2;
                if let Some(lease) = self.leases.get(&lease) {
                    row.client = Some(lease.client);
                    row.resources = lease.grant.resources.clone();
                }
            }
            WorkerState::Actor(actor) => {
                row.state = 3;
                row.actor = Some(actor);
                row.resources = self.held_by(actor);
            }
        }
        row
    }

    fn held_by(&self, actor: ActorId) -> ResourceSet {
        match self.actors.get(&actor).map(|actor| &actor.phase) {
            Some(ActorPhase::Placed { grant, .. }) => grant.resources.clone(),
            Some(ActorPhase::Reserved | ActorPhase::Waiting(_) | ActorPhase::Dead(_)) | None => {
                ResourceSet::default()
            }
        }
    }

    fn actor_row(&self, id: ActorId, actor: &Actor) -> ActorRow {
        let (phase, worker, death) = match &actor.phase {
            ActorPhase::Reserved => (0, None, None),
            ActorPhase::Waiting(_) if actor.takeovers > 0 => (5, None, None),
            ActorPhase::Waiting(_) => (1, None, None),
            ActorPhase::Placed { worker, .. } if actor.is_ready => (3, Some(*worker), None),
            ActorPhase::Placed { worker, .. } if actor.takeovers > 0 => (5, Some(*worker), None),
            ActorPhase::Placed { worker, .. } => (2, Some(*worker), None),
            ActorPhase::Dead(failure) => (4, None, Some(failure.message.clone())),
        };
        let resources = match &actor.phase {
            ActorPhase::Waiting(create) => create.placement.clone(),
            ActorPhase::Reserved | ActorPhase::Placed { .. } | ActorPhase::Dead(_) => self.held_by(id),
        };
        ActorRow {
            actor: id,
            owner: actor.owner,
            class: actor.class.clone(),
            name: actor.name.clone(),
            phase,
            worker,
            pid: worker.and_then(|worker| self.workers.get(&worker)).map_or(0, |worker| worker.pid),
            death,
            resources,
            detached: Some(actor.detached),
            restarts: Some(actor.takeovers),
            checkpoints: actor.checkpoints.as_ref().map(|checkpoints| checkpoints.taken),
        }
    }

    fn demand_rows(&self) -> Vec<DemandRow> {
        let mut rows = Vec::new();
        for (id, client) in &self.clients {
            for demand in client.demands.values().filter(|demand| demand.count > 0) {
                rows.push(DemandRow {
                    client: *id,
                    resources: demand.resources.clone(),
                    count: demand.count,
                    feasible: self.resources.is_feasible(&demand.resources),
                });
            }
        }
        rows
    }
}
