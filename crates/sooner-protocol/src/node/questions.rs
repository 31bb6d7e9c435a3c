//! Questions that clients ask and the node answers at once: resources, workers. Those about all nodes go to the control
//! service.

use sooner_wire::message::{Answer, Query, QueryKind};
use sooner_wire::{ResourceSet, WorkerId};

use super::core::{WorkerState, send};
use super::{NodeActions, NodeCore};

impl NodeCore {
    fn describe_own(&self, from: WorkerId, reply: &mut Answer) {
        let state = self.workers.get(&from).map(|worker| worker.state);
        match state {
            Some(WorkerState::Leased(lease)) => {
                reply.resources = self.leases.get(&lease).map(|l| l.grant.resources.clone());
            }
            Some(WorkerState::Actor(actor)) => {
                reply.names = self.local_actors.name(actor).map(|name| vec![name.clone()]);
                reply.resources = self.held_by(actor);
            }
            Some(WorkerState::Starting | WorkerState::Idle { .. } | WorkerState::Retired) | None => {}
        }
    }

    pub(super) fn on_query(&mut self, from: WorkerId, query: Query, out: &mut NodeActions) {
        let mut reply = Answer { request: query.request, ..Answer::default() };
        match query.what {
            QueryKind::TotalResources => return self.route(from, query, out),
            QueryKind::AvailableResources => {
                let mut free = self.resources.free().clone();
                self.resources.add_free_of_groups(&mut free);
                self.view.add_sums(&mut ResourceSet::default(), &mut free);
                reply.resources = Some(free);
            }
            QueryKind::Own => self.describe_own(from, &mut reply),
            QueryKind::Labels => reply.names = Some(self.labels.clone()),
            QueryKind::Workers => {
                reply.numbers = Some(self.workers.values().map(|w| u64::from(w.pid)).collect());
            }
        }
        out.push(send(from, reply));
    }
}
