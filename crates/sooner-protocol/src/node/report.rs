//! What a node reports about itself when a tool asks: workers, resources and the demands that wait for them.
//! It answers the same questions of clients at once; those about all nodes go to the control service.

use sooner_wire::limits::BUNDLES_REPORTED_MAX;
use sooner_wire::message::state::{DemandRow, MemoryRow, NodeReport, WorkerRow};
use sooner_wire::message::{self as wire, Answer, Query, QueryKind, ShapeDemand};
use sooner_wire::{BlockId, ResourceSet, WorkerId};

use super::core::send;
use super::uplink::reporter::Spare;
use super::workers::bundles::Place;
use super::workers::pool::{Worker, WorkerState};
use super::{NodeActions, NodeCore};
use crate::table::Set;

impl NodeCore {
    /// What the core knows; the control service adds actors, the shell the store, processes and metrics.
    #[must_use]
    pub fn report(&self) -> NodeReport {
        NodeReport {
            total: self.resources.total().clone(),
            free: self.resources.free().clone(),
            blocks: self.holders.all().filter(|place| !place.is_disk()).count() as u64,
            workers: self.pool.iter().map(|(id, worker)| self.worker_row(id, worker)).collect(),
            demands: self.demand_rows(),
            leases: self.leases.len() as u64,
            peaks: Some(self.memory.peaks()).filter(|peaks| !peaks.is_empty()),
            labels: Some(self.labels.clone()).filter(|labels| !labels.is_empty()),
            ..NodeReport::default()
        }
    }

    /// What the blocks are for; `length_of` gives the bytes of a block. The shell knows what is on disk.
    #[must_use]
    pub fn memory_use(&self, length_of: impl Fn(BlockId) -> u64) -> MemoryRow {
        let mut row = MemoryRow::default();
        let arriving: Set<BlockId> = self.pulls.arriving().collect();
        row.incoming = arriving.iter().map(|block| length_of(*block)).sum();
        let blocks = self.holders.all().filter_map(wire::Place::block);
        for block in blocks.filter(|block| !arriving.contains(block)) {
            let bytes = length_of(block);
            if self.residency.is_written_from(block) {
                row.outgoing += bytes;
            } else if self.pulls.object_in(block).is_some() && !self.is_promoted(block) {
                row.cached += bytes;
            } else {
                row.pinned += bytes;
            }
        }
        row
    }

    /// Free resources now, and waiting demands, by shape.
    #[must_use]
    pub fn resources_now(&self) -> Spare {
        let mut demand: Vec<ShapeDemand> = Vec::new();
        for row in self.demand_rows() {
            match demand.iter_mut().find(|shape| shape.resources == row.resources) {
                Some(shape) => shape.count = shape.count.saturating_add(row.count),
                None => demand.push(ShapeDemand { resources: row.resources, count: row.count }),
            }
        }
        let bundles = self.resources.free_of_bundles(BUNDLES_REPORTED_MAX);
        (self.resources.free().clone(), demand, bundles, self.leases.granted_elsewhere())
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
            job: Some(worker.job),
        };
        match worker.state {
            WorkerState::Starting => {}
            WorkerState::Idle { .. } | WorkerState::Retired => row.state = 1,
            WorkerState::Leased(lease) => {
                row.state = 2;
                if let Some(lease) = self.leases.get(lease) {
                    row.client = Some(lease.client);
                    row.resources = lease.grant.resources.clone();
                }
            }
            WorkerState::Actor(actor) => {
                row.state = 3;
                row.actor = Some(actor);
                row.resources = self.held_by(actor).unwrap_or_default();
            }
        }
        row
    }

    fn demand_rows(&self) -> Vec<DemandRow> {
        let mut rows = Vec::new();
        // Demands of other nodes' processes are reported by those nodes.
        let own = self.askers.iter().filter(|(id, _)| !self.is_elsewhere(**id));
        let place = Place { resources: &self.resources, node: self.id(), labels: &self.labels };
        for (id, asker) in own {
            for demand in asker.demands.values().filter(|demand| demand.count > 0) {
                rows.push(DemandRow {
                    client: *id,
                    resources: demand.resources.clone(),
                    count: demand.count,
                    feasible: place.objection(&demand.resources, demand.strategy.as_deref()).is_none()
                        || self.could_run_elsewhere(demand),
                });
            }
        }
        rows
    }

    fn describe_own(&self, from: WorkerId, reply: &mut Answer) {
        let state = self.pool.state(from);
        match state {
            Some(WorkerState::Leased(lease)) => {
                reply.resources = self.leases.get(lease).map(|l| l.grant.resources.clone());
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
                reply.numbers = Some(self.pool.iter().map(|(_, worker)| u64::from(worker.pid)).collect());
            }
        }
        out.push(send(from, reply));
    }
}
