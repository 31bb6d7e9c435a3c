//! Leases for processes of other nodes, as the node of the workers sees them
//! (`docs/adr/0031-leases-on-other-nodes.md`).
//!
//! Those nodes ask for leases, learn of the grants, and hand leases back. A process of another node is served
//! like a client of this one, in turn with them, and never reaches the tables of clients: the control service
//! reports its death.
//!
//! Invariants:
//! - What is asked for counts what was not granted yet: workers that are on their way included.
//! - A demand of another node is granted, withdrawn, refused, or waits.
//!
//! It never passes a demand on to a third node: the asking node chooses again.

use sooner_wire::limits::ASKERS_MAX;
use sooner_wire::message::{
    LeaseAt, LeaseGranted, LeaseGrantedAt, LeaseRefused, ReclaimLease, ReclaimLeaseAt, ReturnLeaseAt,
};
use sooner_wire::{LeaseId, NodeId, ShapeId, WorkerId};

use super::requesters::{Demand, Requester};
use super::spillback::route;
use crate::node::core::{Placement, send};
use crate::node::{NodeActions, NodeCore};
use crate::probes::mark;
use crate::time::Instant;

impl NodeCore {
    /// Another node says how many leases one of its processes could use here.
    pub(in crate::node) fn on_lease_at(&mut self, ask: LeaseAt, out: &mut NodeActions) {
        let LeaseAt { client, job, shape, resources, demand, strategy, priority, raises_memory } = ask;
        if self.departed.has(client) {
            // The message about its death came another way, and will not come again.
            return;
        }
        let coming = self.drop_placements_beyond(client, shape, demand);
        if demand == 0 {
            if let Some(asker) = self.askers.get_mut(&client) {
                asker.demands.swap_remove(&shape);
            }
            return;
        }
        if !self.role.runs_work() {
            return refuse(self.id(), (client, shape), "that node runs no work", true, out);
        }
        if self.draining.has_begun() {
            return refuse(self.id(), (client, shape), "its node is about to end", false, out);
        }
        if let Some(why) = self.cannot_start(job) {
            return refuse_for_good(self.id(), (client, shape), why, out);
        }
        if !self.askers.contains_key(&client) {
            if self.askers.len() >= ASKERS_MAX {
                let why = "too many processes ask for leases there";
                return refuse(self.id(), (client, shape), why, false, out);
            }
            self.askers.insert(client, Requester::new(job));
            self.on_watch(client, out);
        }
        let demands = &mut self.askers[&client].demands;
        let entry = demands.entry(shape).or_insert_with(|| Demand::new(resources, strategy, raises_memory));
        entry.count = demand - coming;
        entry.priority = priority.unwrap_or(0);
        self.has_priorities |= entry.priority != 0;
    }

    /// Gives back resources set aside for leases beyond `most`. Returns how many leases are on their way.
    fn drop_placements_beyond(&mut self, client: WorkerId, shape: ShapeId, most: u32) -> u32 {
        let is_its = |placement: &Placement| matches!(placement, Placement::Lease { client: whose, shape: of, .. } if (*whose, *of) == (client, shape));
        let mut coming = 0;
        let mut at = 0;
        while let Some(placement) = self.placements.get(at) {
            if !is_its(placement) {
                at += 1;
            } else if coming < most {
                coming += 1;
                at += 1;
            } else if let Some(Placement::Lease { grant, .. }) = self.placements.remove(at) {
                mark!("a lease was lent and withdrawn");
                self.resources.release(&grant);
            }
        }
        coming
    }

    /// Refuses all demands of processes of other nodes.
    pub(in crate::node) fn refuse_all(&mut self, reason: &str, out: &mut NodeActions) {
        let here = self.id();
        let guests: Vec<WorkerId> = self.askers.keys().copied().filter(|id| id.node() != here).collect();
        for client in guests {
            for shape in std::mem::take(&mut self.askers[&client].demands).into_keys() {
                refuse(here, (client, shape), reason, false, out);
            }
            self.drop_placements_of(client);
        }
    }

    /// Tells the process that asked for a lease that it has one.
    pub(in crate::node) fn notify_granted(
        &mut self,
        client: WorkerId,
        granted: LeaseGranted,
        out: &mut NodeActions,
    ) {
        let LeaseGranted { shape, lease, worker, gpus } = granted;
        if self.is_elsewhere(client) {
            self.leases.record_granted_elsewhere();
            self.record_line(worker, client);
            let granted = LeaseGrantedAt { client, shape, lease, worker, gpus };
            return route(self.id(), client.node(), granted, out);
        }
        self.introduce(client, worker, out);
        out.push(send(client, LeaseGranted { shape, lease, worker, gpus }));
    }

    /// Asks for a lease back, once until one comes. A process of another node is asked for the `named` lease,
    /// if there is one.
    pub(in crate::node) fn ask_back(
        &mut self,
        holder: WorkerId,
        named: Option<LeaseId>,
        out: &mut NodeActions,
    ) {
        let Some(asker) = self.askers.get_mut(&holder).filter(|asker| !asker.reclaiming) else { return };
        asker.reclaiming = true;
        if !self.is_elsewhere(holder) {
            return out.push(send(holder, ReclaimLease { count: 1, lease: None }));
        }
        let any = || self.leases.of(holder).next().map(|(lease, _)| lease);
        if let Some(lease) = named.or_else(any) {
            route(self.id(), holder.node(), ReclaimLeaseAt { client: holder, lease }, out);
        }
    }

    /// Another node gives a lease back.
    pub(in crate::node) fn on_return_at(
        &mut self,
        node: NodeId,
        returned: ReturnLeaseAt,
        now: Instant,
        out: &mut NodeActions,
    ) {
        if self.leases.get(returned.lease).is_some_and(|state| state.client.node() == node) {
            self.end_returned(returned.lease, now, out);
        }
    }

    /// A process of another node is dead, which may have asked for leases or worked under one.
    pub(in crate::node) fn end_remote(&mut self, gone: WorkerId, out: &mut NodeActions) {
        self.end_aliases_of(gone);
        self.forget_lines(|remote| remote == gone);
        if self.askers.swap_remove(&gone).is_some() {
            self.end_leases_of(gone, out);
            self.drop_placements_of(gone);
        }
    }

    /// The session with another node is over, though both may live: requests and grants between the two are
    /// void, and both do the same. Workers that served the other node are ended, so that no process takes
    /// them for its own.
    pub fn on_link_ended(&mut self, node: NodeId, out: &mut NodeActions) {
        self.watch_again(node, out);
        self.ask_owners_again(node, out);
        self.ask_for_blocks_again(node, out);
        self.ask_to_promote_again(node, out);
        self.draining.ask_node_again(node);
        self.forget_lender(node);
        let guests = self.askers.keys().copied().filter(|id| id.node() == node);
        for guest in guests.collect::<Vec<_>>() {
            self.end_remote(guest, out);
        }
    }
}

/// Tells a process of another node that it gets nothing more of its demand.
pub(in crate::node) fn refuse(
    me: NodeId,
    (client, shape): (WorkerId, ShapeId),
    reason: &str,
    infeasible: bool,
    out: &mut NodeActions,
) {
    let infeasible = infeasible.then_some(true);
    let refused = LeaseRefused { infeasible, ..refused((client, shape), reason) };
    route(me, client.node(), refused, out);
}

/// Like [`refuse`], because no worker can be started here for the job of that process.
pub(in crate::node) fn refuse_for_good(
    me: NodeId,
    (client, shape): (WorkerId, ShapeId),
    reason: &str,
    out: &mut NodeActions,
) {
    let refused = LeaseRefused { no_workers: Some(true), ..refused((client, shape), reason) };
    route(me, client.node(), refused, out);
}

/// Like [`refuse`], because no worker can be started here for now.
pub(in crate::node) fn refuse_for_now(
    me: NodeId,
    (client, shape): (WorkerId, ShapeId),
    reason: &str,
    out: &mut NodeActions,
) {
    let refused = LeaseRefused { for_now: Some(true), ..refused((client, shape), reason) };
    route(me, client.node(), refused, out);
}

/// A refusal with nothing but the reason.
fn refused((client, shape): (WorkerId, ShapeId), reason: &str) -> LeaseRefused {
    let reason = reason.to_owned();
    LeaseRefused { client, shape, reason, infeasible: None, no_workers: None, for_now: None }
}
