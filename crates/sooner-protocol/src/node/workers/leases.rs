//! Leases: which process asked for how many, which has them, and which is asked to give one back.
//!
//! A demand that fits takes its resources at once and becomes a placement, which waits for a worker
//! ([`super::pool`]).

use std::collections::VecDeque;

use super::bundles::Place;
use super::remote_leases::refuse;
use super::requesters::{Demand, Requester};
use sooner_wire::message::{LeaseGranted, RequestLease};
use sooner_wire::{LeaseId, ShapeId, Strategy, WorkerId};

use crate::node::core::Placement;
use crate::node::workers::pool::WorkerState;
use crate::node::{NodeAction, NodeActions, NodeCore};
use crate::probes::{bug, mark};
use crate::scheduling::{Grant, Pools};
use crate::table::Map;
use crate::time::Instant;

/// A lease of a worker of this node.
#[derive(Debug)]
pub(in crate::node) struct LeaseState {
    pub(in crate::node) client: WorkerId,
    pub(in crate::node) shape: ShapeId,
    pub(in crate::node) worker: WorkerId,
    pub(in crate::node) grant: Grant,
}

/// The leases of this node's workers, and the ids under which processes here know leases at all.
#[derive(Debug, Default)]
pub(in crate::node) struct Leases {
    held: Map<LeaseId, LeaseState>,
    last_lease: u64,
    /// Leases that processes of other nodes were given.
    granted_elsewhere: u64,
}

impl Leases {
    /// An id for a lease: of a local worker, or of a remote one as its local client knows it. No id is given
    /// twice.
    pub(in crate::node) fn new_id(&mut self) -> LeaseId {
        self.last_lease += 1;
        LeaseId(self.last_lease)
    }

    fn insert(&mut self, lease: LeaseId, state: LeaseState) {
        self.held.insert(lease, state);
    }

    fn remove(&mut self, lease: LeaseId) -> Option<LeaseState> {
        self.held.swap_remove(&lease)
    }

    pub(in crate::node) fn get(&self, lease: LeaseId) -> Option<&LeaseState> {
        self.held.get(&lease)
    }

    pub(in crate::node) fn iter(&self) -> impl Iterator<Item = (LeaseId, &LeaseState)> {
        self.held.iter().map(|(lease, state)| (*lease, state))
    }

    /// The leases that a process holds.
    pub(in crate::node) fn of(&self, client: WorkerId) -> impl Iterator<Item = (LeaseId, &LeaseState)> {
        self.iter().filter(move |(_, state)| state.client == client)
    }

    pub(in crate::node) fn len(&self) -> usize {
        self.held.len()
    }

    pub(in crate::node) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// A process of another node was given a lease.
    pub(in crate::node) fn record_granted_elsewhere(&mut self) {
        self.granted_elsewhere += 1;
    }

    pub(in crate::node) fn granted_elsewhere(&self) -> u64 {
        self.granted_elsewhere
    }
}

impl Demand {
    /// Whether leases that are given back could meet the demand. Demands in a placement group do not concern
    /// them.
    fn could_be_met(&self, resources: &Pools) -> bool {
        let group = self.strategy.as_deref().and_then(Strategy::group);
        self.unlent() > 0 && group.is_none() && resources.is_feasible(&self.resources, None)
    }
}

impl NodeCore {
    pub(in crate::node) fn on_request(&mut self, from: WorkerId, request: RequestLease) {
        if request.demand == 0 {
            self.drop_placements(|client, shape| client == from && shape == request.shape);
        }
        let Some(asker) = self.askers.get_mut(&from) else { return };
        let new = || Demand::new(request.resources, request.strategy, request.raises_memory);
        let demand = asker.demands.entry(request.shape).or_insert_with(new);
        demand.count = request.demand;
        demand.prefer = request.prefer;
        demand.set_priority(request.priority.unwrap_or(0));
        self.has_priorities |= demand.priority != 0;
        self.record_demand();
    }

    pub(in crate::node) fn on_return(
        &mut self,
        from: WorkerId,
        lease: LeaseId,
        now: Instant,
        out: &mut NodeActions,
    ) {
        match self.leases.get(lease) {
            Some(state) if state.client == from => self.end_returned(lease, now, out),
            Some(_) => {}
            None => self.return_alias(from, lease, out),
        }
    }

    /// A lease was given back: its worker serves others.
    pub(in crate::node) fn end_returned(&mut self, lease: LeaseId, now: Instant, out: &mut NodeActions) {
        let Some(state) = self.leases.get(lease) else { return };
        let worker = state.worker;
        let uses_gpu = !state.grant.gpu_indices().is_empty();
        let blocked = self.pool.get(worker).is_some_and(|worker| worker.blocked);
        self.end_lease(lease, blocked);
        self.lift_memory_limit(worker, out);
        let retires = self.pool.get(worker).is_some_and(|worker| worker.retires);
        if uses_gpu || retires {
            // A process keeps what a GPU library set up in it; the next user must not find it.
            return self.retire(worker, out);
        }
        self.pool.take_back(worker, now);
    }

    pub(in crate::node) fn on_blocked(&mut self, from: WorkerId, blocked: bool) {
        let Some(worker) = self.pool.get(from) else { return };
        if worker.blocked == blocked {
            return;
        }
        let grant = match worker.state {
            WorkerState::Leased(lease) => self.leases.get(lease).map(|state| &state.grant),
            WorkerState::Actor(actor) => self.local_actors.grant(actor),
            WorkerState::Starting | WorkerState::Idle { .. } | WorkerState::Retired => None,
        };
        let Some(grant) = grant else { return };
        self.pool.set_blocked(from, blocked);
        if blocked {
            self.resources.lend_cpu(grant);
        } else if !bug!(CpuNotReclaimed) {
            self.resources.reclaim_cpu(grant);
        }
    }

    pub(in crate::node) fn place_leases(&mut self, out: &mut NodeActions) {
        if self.has_others() {
            self.begin_choices();
        }
        if !self.has_priorities {
            return self.place_leases_of(0, out);
        }
        for priority in self.priorities() {
            self.place_leases_of(priority, out);
        }
    }

    fn place_leases_of(&mut self, priority: i32, out: &mut NodeActions) {
        let count = self.askers.len();
        if count == 0 {
            return;
        }
        // One lease per asker and pass, beginning behind the one that was served last: no asker starves for
        // another that is as urgent.
        let mut placed = true;
        while placed {
            placed = false;
            let first = self.turn;
            for step in 0..count {
                let at = (first + step) % count;
                if self.place_one(at, priority, out) {
                    placed = true;
                    self.turn = at + 1;
                }
            }
        }
    }

    /// Priorities of waiting demands, the most urgent first.
    fn priorities(&self) -> Vec<i32> {
        let waiting = self.askers.values().flat_map(|asker| asker.demands.values());
        let mut all: Vec<i32> = waiting.filter(|d| d.count > 0).map(|d| d.priority).collect();
        all.sort_unstable_by_key(|priority| std::cmp::Reverse(*priority));
        all.dedup();
        all
    }

    fn place_one(&mut self, at: usize, priority: i32, out: &mut NodeActions) -> bool {
        let node = self.id();
        let is_remote_job = self.askers.get_index(at).is_some_and(|(id, _)| self.is_elsewhere(*id));
        if !is_remote_job && self.has_others() {
            return self.place_over_nodes(at, priority, out);
        }
        if !self.role.runs_work() {
            // The program's demands wait until this node learns of others.
            return false;
        }
        let (id, asker) = self.askers.get_index_mut(at).expect("below the count");
        for (shape, demand) in &mut asker.demands {
            if demand.count == 0 || demand.priority != priority {
                continue;
            }
            let place = Place { resources: &self.resources, node, labels: &self.labels };
            let no_workers = self.unable.objection(asker.job, demand, node);
            let objection =
                no_workers.or_else(|| place.objection(&demand.resources, demand.strategy.as_deref()));
            if let Some(objection) = objection {
                if is_remote_job {
                    demand.count = 0;
                    refuse(node, (*id, *shape), "that node can never run it", true, out);
                } else if let Some(told) =
                    demand.object(objection, (*id, *shape), || self.resources.total().clone())
                {
                    out.push(told);
                }
                continue;
            }
            if let Some(grant) = demand.acquire(&mut self.resources) {
                demand.count -= 1;
                // All other nodes may have left since they were asked for a part of the demand.
                self.spillback.record_placed(demand);
                self.placements.push_back(Placement::Lease { client: *id, shape: *shape, grant });
                return true;
            }
        }
        false
    }

    pub(in crate::node) fn grant_lease(
        &mut self,
        client: WorkerId,
        shape: ShapeId,
        grant: Grant,
        worker: WorkerId,
        out: &mut NodeActions,
    ) {
        let lease = self.leases.new_id();
        self.pool.give(worker, WorkerState::Leased(lease));
        self.limit_memory(worker, &grant, out);
        self.demand_is_met(client, shape);
        let gpus = grant.gpu_indices();
        self.leases.insert(lease, LeaseState { client, shape, worker, grant });
        if let Some(asker) = self.askers.get_mut(&client) {
            asker.leases += 1;
        }
        self.notify_granted(client, LeaseGranted { shape, lease, worker, gpus }, out);
    }

    /// A demand got a lease: the nodes that it left out may have workers again, too.
    pub(in crate::node) fn demand_is_met(&mut self, client: WorkerId, shape: ShapeId) {
        let asker = self.askers.get_mut(&client);
        if let Some(demand) = asker.and_then(|asker| asker.demands.get_mut(&shape)) {
            demand.begin_anew();
        }
    }

    /// Asks the process with most leases to give one back for a waiting process that has fewer.
    pub(in crate::node) fn reclaim(&mut self, out: &mut NodeActions) {
        if self.has_priorities {
            let waiting = self.askers.values().flat_map(|asker| asker.demands.values());
            let waiting = waiting.filter(|demand| demand.could_be_met(&self.resources));
            let urgent = waiting.map(|demand| demand.priority).max();
            self.reclaim_for(urgent, out);
        }
        let waits = |asker: &Requester| asker.demands.values().any(|d| d.could_be_met(&self.resources));
        let Some(fewest) = self.askers.values().filter(|asker| waits(asker)).map(|asker| asker.leases).min()
        else {
            return;
        };
        let most = self.askers.iter().max_by_key(|(_, asker)| asker.leases);
        if let Some((id, asker)) = most
            && asker.leases > fewest
        {
            self.ask_back(*id, None, out);
        }
    }

    /// Asks for a lease that serves less urgent tasks than those that wait.
    fn reclaim_for(&mut self, urgent: Option<i32>, out: &mut NodeActions) {
        let Some(urgent) = urgent else { return };
        let priority = |lease: &LeaseState| {
            let demand = self.askers.get(&lease.client)?.demands.get(&lease.shape)?;
            (lease.grant.group().is_none() && demand.priority < urgent).then_some(demand.priority)
        };
        let lower = self.leases.iter().filter_map(|(id, lease)| Some((priority(lease)?, lease.client, id)));
        if let Some((_, holder, lease)) = lower.min_by_key(|(priority, _, _)| *priority) {
            self.ask_back(holder, Some(lease), out);
        }
    }

    pub(in crate::node) fn end_lease(&mut self, lease: LeaseId, blocked: bool) -> Option<WorkerId> {
        let state = self.leases.remove(lease)?;
        if blocked {
            mark!("a lease ended while its worker was blocked");
        }
        if bug!(OwnerDeathHandledTwice) && !self.askers.contains_key(&state.client) {
            self.resources.release(&state.grant);
        }
        if blocked {
            self.resources.reclaim_cpu(&state.grant);
        }
        self.resources.release(&state.grant);
        if let Some(asker) = self.askers.get_mut(&state.client) {
            asker.leases -= 1;
            asker.reclaiming = false;
        }
        Some(state.worker)
    }

    /// Ends the leases of a dead caller. The tasks in them have no owner, and their processes are not trusted
    /// to be idle.
    pub(in crate::node) fn end_leases_of(&mut self, gone: WorkerId, out: &mut NodeActions) {
        let held = self.leases.of(gone);
        out.extend(held.map(|(_, lease)| NodeAction::KillWorker(lease.worker)));
    }

    pub(in crate::node) fn drop_placements_of(&mut self, gone: WorkerId) {
        self.drop_placements(|client, _| client == gone);
    }

    fn drop_placements(&mut self, which: impl Fn(WorkerId, ShapeId) -> bool) {
        let mut kept = VecDeque::new();
        for placement in std::mem::take(&mut self.placements) {
            match &placement {
                Placement::Lease { client, shape, grant } if which(*client, *shape) => {
                    self.resources.release(grant);
                }
                Placement::Lease { .. } | Placement::Actor { .. } => kept.push_back(placement),
            }
        }
        self.placements = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_id_is_given_twice_and_each_process_has_its_own_leases() {
        let (one, other) = (WorkerId(1), WorkerId(2));
        let mut leases = Leases::default();
        let alias = leases.new_id();
        let ids = [one, other].map(|client| {
            let lease = leases.new_id();
            let grant = Grant::default();
            leases.insert(lease, LeaseState { client, shape: ShapeId(1), worker: WorkerId(9), grant });
            lease
        });
        assert!(leases.get(alias).is_none() && !ids.contains(&alias));
        assert_eq!(leases.of(one).map(|(lease, _)| lease).collect::<Vec<_>>(), [ids[0]]);
        assert!(leases.remove(ids[0]).is_some() && leases.remove(ids[0]).is_none());
        assert_eq!((leases.of(one).count(), leases.len()), (0, 1));
        assert!(leases.new_id() > ids[1]);
    }
}
