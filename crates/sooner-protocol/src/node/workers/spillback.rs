//! Leases on other nodes, as the node of the asking process sees them
//! (`docs/adr/0031-leases-on-other-nodes.md`).
//!
//! A client asks its own node only. Where there are other nodes, its node chooses for each unit of a demand
//! where it goes ([`crate::scheduling::policy`]): here, or to a node that has room by the view, which is
//! asked for it. A unit that was asked for elsewhere stays a part of the demand: the first node with room
//! meets it, and a unit that has waited elsewhere for long goes where there is room meanwhile. A unit that no
//! node has room for waits here, or, if it can never run here, at a node where it can.
//!
//! A lease that another node grants gets a number of this node, an alias: the client need not know the
//! granting node.
//!
//! Invariants:
//! - SB1: of a demand, no more is asked of other nodes than there is ([`super::requesters`]).
//! - SB2: a lease that another node granted has an alias here, or is given back at once.
//! - SB3: the other node is told of a change of what is asked of it after the change, by the number that
//!   counts from then on.
//!
//! This file never waits for an answer, and trusts no number of the view: the asked node decides by itself.

use sooner_wire::limits::CANDIDATES_MAX;
use sooner_wire::message::{
    self, Candidates, FindNodes, LeaseAt, LeaseGranted, LeaseGrantedAt, LeaseRefused, Message, ReclaimLease,
    ReclaimLeaseAt, ResourceView, ReturnLeaseAt,
};
use sooner_wire::{LeaseId, NodeId, ResourceSet, ShapeId, Strategy, WorkerId};

use super::bundles::Objection;
use super::requesters::Demand;
use super::unable::Unable;
use crate::node::core::{Placement, send};
use crate::node::values::transfers::address;
use crate::node::{NodeAction, NodeActions, NodeCore};
use crate::probes::mark;
use crate::scheduling::policy::{Asked, Choice, NodeRow, Turns, awaited, choose, queue};
use crate::scheduling::view::View;
use crate::table::Map;
use crate::time::Instant;

/// A lease of another node.
#[derive(Debug)]
struct Alias {
    node: NodeId,
    /// Its number on that node.
    lease: LeaseId,
    worker: WorkerId,
    client: WorkerId,
    shape: ShapeId,
    /// The version of the node's last report when it granted the lease: the next one counts the lease.
    version: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(in crate::node) struct Spillback {
    aliases: Map<LeaseId, Alias>,
    /// Which node's turn it is to get a spread demand.
    pub(in crate::node) turns: Turns,
    /// How often the control service was asked which nodes could serve a demand.
    questions: u64,
    /// Some demand may differ from what other nodes were told of it.
    is_unsaid: bool,
}

/// The next step for one unit of a demand.
pub(in crate::node) enum Step {
    /// The unit runs here.
    Here,
    /// Another node is asked for this many units.
    There(NodeId, u32),
    /// A unit that another node was asked for goes here, or to a third node.
    Moves(NodeId, Option<NodeId>),
    Waits,
    Never(Objection),
}

/// A demand among the nodes there are.
struct Chooser<'a> {
    view: &'a View,
    /// The node of the asking process.
    home: NodeId,
    /// This node, with nothing free if it has no room for this demand. `None` if it runs no work.
    here: Option<&'a NodeRow>,
    turns: &'a Turns,
    now: Instant,
    /// The job of the asking process, and the nodes that can start no workers for it.
    job: WorkerId,
    unable: &'a Unable,
}

impl Chooser<'_> {
    fn all_rows(&self) -> impl Iterator<Item = &NodeRow> + Clone {
        self.here.into_iter().chain(self.view.rows())
    }

    fn rows(&self, demand: &Demand) -> impl Iterator<Item = &NodeRow> + Clone {
        self.all_rows().filter(|row| self.unable.may_serve(self.job, demand, row.node))
    }

    /// Why a demand that no other node can run is not run by those that have what it needs.
    fn cannot_start(&self, demand: &Demand, asked: &Asked<'_>) -> Option<Objection> {
        let unable = self.all_rows().filter(|row| !self.unable.may_serve(self.job, demand, row.node));
        let all = awaited(unable, asked);
        let mut why = all.iter().filter_map(|row| self.unable.objection(self.job, demand, row.node));
        // A node that is unable for now may be able again.
        let first = why.next()?;
        Some(if first.is_for_now() { first } else { why.find(Objection::is_for_now).unwrap_or(first) })
    }

    fn step(&self, demand: &Demand) -> Step {
        let asked = Asked {
            request: &demand.resources,
            strategy: demand.strategy.as_deref(),
            local: self.home,
            prefer: demand.prefer,
            turns: Some(self.turns),
            resting: None,
        };
        let unlent = demand.unlent();
        match choose(self.rows(demand), &asked) {
            Choice::On(node) if unlent > 0 && node == self.home => Step::Here,
            Choice::On(node) if unlent > 0 => Step::There(node, 1),
            Choice::On(node) => match demand.oldest(self.now) {
                Some(from) if from != node => Step::Moves(from, Some(node).filter(|to| *to != self.home)),
                _ => Step::Waits,
            },
            Choice::Wait if unlent > 0 => self.queue(demand, &asked, unlent),
            Choice::Wait => Step::Waits,
            Choice::Lacking(why) => Step::Never(self.cannot_start(demand, &asked).unwrap_or_else(|| {
                let is_amount = !self.rows(demand).any(|row| row.total.covers(asked.request));
                Objection::Lacking((!is_amount).then_some(why))
            })),
            Choice::Never(why) => {
                Step::Never(self.cannot_start(demand, &asked).unwrap_or(Objection::Never(why)))
            }
        }
    }

    /// Where a demand waits for room: here, if it can run here.
    fn queue(&self, demand: &Demand, asked: &Asked<'_>, count: u32) -> Step {
        match queue(self.rows(demand), asked, |nodes| self.view.calmest(nodes)) {
            Some(node) if node != self.home && self.view.may_be_asked(node) => Step::There(node, count),
            _ => Step::Waits,
        }
    }
}

/// The resources of all nodes together, this one included.
fn total_of(here: &NodeRow, view: &View) -> ResourceSet {
    let mut total = here.total.clone();
    view.add_sums(&mut total, &mut ResourceSet::default());
    total
}

impl Spillback {
    /// These units of a demand go to another node.
    fn lend(&mut self, demand: &mut Demand, (node, count): (NodeId, u32), view: &mut View, now: Instant) {
        demand.lend(node, count, now);
        view.take(node, &demand.resources, count);
        self.turns.note(demand.strategy.as_deref(), node);
        self.is_unsaid = true;
    }

    /// A part of a demand was met here.
    pub(in crate::node) fn record_placed(&mut self, demand: &Demand) {
        self.is_unsaid |= !demand.lent.is_empty();
    }
}

impl NodeCore {
    /// A node takes part, or has changed.
    pub fn on_node_known(&mut self, row: &message::NodeRow) {
        if row.node != self.id() {
            self.view.on_known(row);
        }
    }

    /// The control service reports what nodes have free.
    pub fn on_view(&mut self, view: &ResourceView) {
        self.view.on_view(view);
    }

    /// The control service names nodes that could serve a demand.
    pub fn on_candidates(&mut self, candidates: &Candidates) {
        self.view.on_candidates(candidates.rows.as_deref().unwrap_or_default(), self.now);
    }

    /// Whether work may go to other nodes.
    pub(in crate::node) fn has_others(&self) -> bool {
        self.role.is_member() && !self.view.is_empty()
    }

    /// Takes off the view what other nodes were asked for, and what they granted, since their last reports.
    pub(in crate::node) fn begin_choices(&mut self) {
        let (here, now) = (self.id(), self.now);
        for demand in self.askers.values_mut().flat_map(|asker| asker.demands.values_mut()) {
            demand.lapse_refusals(now);
        }
        let own = || self.askers.iter().filter(|(id, _)| id.node() == here);
        let mut demands = own().flat_map(|(_, asker)| asker.demands.values());
        if !demands.any(|demand| demand.count > 0) {
            return;
        }
        self.view.begin(self.now);
        for demand in own().flat_map(|(_, asker)| asker.demands.values()) {
            for lent in &demand.lent {
                self.view.take(lent.node, &demand.resources, lent.count);
            }
        }
        for alias in self.spillback.aliases.values() {
            if self.view.version(alias.node) != Some(alias.version) {
                continue;
            }
            let demands = self.askers.get(&alias.client).map(|asker| &asker.demands);
            if let Some(demand) = demands.and_then(|demands| demands.get(&alias.shape)) {
                self.view.take(alias.node, &demand.resources, 1);
            }
        }
    }

    /// Finds a place for one unit of a client's demands, here or elsewhere. True if there is one.
    pub(super) fn place_over_nodes(&mut self, at: usize, priority: i32, out: &mut NodeActions) -> bool {
        let is_next = |demand: &Demand| demand.count > 0 && demand.priority == priority;
        let (_, asker) = self.askers.get_index(at).expect("below the count");
        if !asker.demands.values().any(is_next) {
            return false;
        }
        let mut here = self.row();
        let (id, asker) = self.askers.get_index_mut(at).expect("below the count");
        let job = asker.job;
        for (shape, demand) in &mut asker.demands {
            if !is_next(demand) {
                continue;
            }
            let strategy = demand.strategy.as_deref();
            let group = strategy.and_then(Strategy::group);
            let step = if let Some(place) = group {
                let place_and_time = (here.node, self.now);
                self.spillback.is_unsaid = true;
                let able = (&self.unable, job);
                self.group_places.step(place, demand, &self.resources, &self.view, place_and_time, able)
            } else {
                here.free.clone_from(self.resources.free());
                if !self.resources.fits(&demand.resources, strategy) {
                    here.free = ResourceSet::default();
                }
                let (view, turns, now, unable) = (&self.view, &self.spillback.turns, self.now, &self.unable);
                let home = here.node;
                let here = self.role.runs_work().then_some(&here);
                Chooser { view, home, here, turns, now, job, unable }.step(demand)
            };
            let taken = match step {
                Step::Here => None,
                Step::Moves(from, None) => Some(from),
                Step::There(node, count) => {
                    self.spillback.lend(demand, (node, count), &mut self.view, self.now);
                    return true;
                }
                Step::Moves(from, Some(to)) => {
                    mark!("what waited at one node went to another");
                    demand.take_back(from);
                    self.spillback.lend(demand, (to, 1), &mut self.view, self.now);
                    return true;
                }
                Step::Waits => {
                    if self.view.must_ask() && group.is_none() && demand.must_find(self.now) {
                        self.spillback.questions += 1;
                        out.push(find_nodes(self.spillback.questions, demand));
                    }
                    continue;
                }
                Step::Never(objection) => {
                    self.spillback.is_unsaid |= objection.is_final();
                    out.extend(demand.object(objection, (*id, *shape), || total_of(&here, &self.view)));
                    continue;
                }
            };
            if let Some(grant) = demand.acquire(&mut self.resources) {
                if let Some(from) = taken {
                    mark!("what waited at another node ran here");
                    demand.take_back(from);
                    self.spillback.is_unsaid = true;
                }
                demand.count -= 1;
                self.spillback.turns.note(demand.strategy.as_deref(), here.node);
                self.placements.push_back(Placement::Lease { client: *id, shape: *shape, grant });
                return true;
            }
        }
        false
    }

    /// Tells other nodes what is asked of them, where that has changed.
    pub(in crate::node) fn send_lent(&mut self, out: &mut NodeActions) {
        if !std::mem::take(&mut self.spillback.is_unsaid) {
            return;
        }
        self.ask_for_groups(out);
        let here = self.id();
        for (client, asker) in &mut self.askers {
            for (shape, demand) in &mut asker.demands {
                demand.trim();
                send_changes(here, *client, asker.job, *shape, demand, out);
            }
        }
    }

    /// A client wants nothing of these demands any more.
    pub(in crate::node) fn withdraw(
        &mut self,
        client: WorkerId,
        which: impl Fn(&Demand) -> bool,
        out: &mut NodeActions,
    ) {
        let here = self.id();
        let Some(asker) = self.askers.get_mut(&client) else { return };
        let job = asker.job;
        asker.demands.retain(|shape, demand| {
            let is_over = which(demand);
            if is_over {
                demand.count = 0;
                demand.trim();
                send_changes(here, client, job, *shape, demand, out);
            }
            !is_over
        });
    }

    /// Withdraws all that other nodes were asked for.
    pub(in crate::node) fn withdraw_all(&mut self, out: &mut NodeActions) {
        let demands = self.askers.values_mut().flat_map(|asker| asker.demands.values_mut());
        for lent in demands.flat_map(|demand| &mut demand.lent) {
            lent.count = 0;
            self.spillback.is_unsaid = true;
        }
        self.send_lent(out);
    }

    /// The demand of a client has changed.
    pub(in crate::node) fn record_demand(&mut self) {
        self.spillback.is_unsaid |= self.role.is_member();
    }

    /// Another node grants a lease.
    pub(in crate::node) fn on_lease_granted_at(&mut self, granted: LeaseGrantedAt, out: &mut NodeActions) {
        let LeaseGrantedAt { client, shape, lease, worker, gpus } = granted;
        let (here, node) = (self.id(), worker.node());
        let asker = self.askers.get_mut(&client).filter(|_| client.node() == here);
        let demand = asker.and_then(|asker| asker.demands.get_mut(&shape));
        let is_dead = self.departed.has(worker) || !self.view.has(node);
        let is_wanted = match demand {
            None => false,
            Some(demand) => {
                self.spillback.is_unsaid = true;
                let was_asked = demand.on_granted(node);
                if !was_asked {
                    mark!("a node granted what was not asked of it any more");
                }
                if is_dead || demand.count == 0 {
                    false
                } else {
                    demand.count -= 1;
                    demand.begin_anew();
                    true
                }
            }
        };
        if !is_wanted {
            return self.give_back_at(node, lease, out);
        }
        let alias = self.leases.new_id();
        let version = self.view.version(node).unwrap_or(0);
        self.spillback.aliases.insert(alias, Alias { node, lease, worker, client, shape, version });
        out.push(send(client, LeaseGranted { shape, lease: alias, worker, gpus }));
    }

    fn give_back_at(&self, node: NodeId, lease: LeaseId, out: &mut NodeActions) {
        route(self.id(), node, ReturnLeaseAt { lease }, out);
    }

    /// Another node grants nothing more of a demand.
    pub(in crate::node) fn on_lease_refused(&mut self, node: NodeId, refused: &LeaseRefused) {
        let is_for_good = refused.no_workers == Some(true);
        if !is_for_good {
            self.view.on_refused(node, self.now);
        }
        let asker = self.askers.get_mut(&refused.client);
        if let Some(asker) = asker.as_ref().filter(|_| is_for_good) {
            self.unable.note(asker.job, node, &refused.reason);
        }
        if let Some(demand) = asker.and_then(|asker| asker.demands.get_mut(&refused.shape)) {
            demand.forget_node(node);
            if refused.for_now == Some(true) {
                demand.refused(node, &refused.reason, self.now);
            }
        }
    }

    /// Another node wants a lease back for others.
    pub(in crate::node) fn on_reclaim_at(
        &mut self,
        node: NodeId,
        reclaim: ReclaimLeaseAt,
        out: &mut NodeActions,
    ) {
        let is_it = |alias: &Alias| alias.node == node && alias.lease == reclaim.lease;
        if let Some((id, alias)) = self.spillback.aliases.iter().find(|(_, alias)| is_it(alias)) {
            out.push(send(alias.client, ReclaimLease { count: 1, lease: Some(*id) }));
        }
    }

    /// A client gives back a lease that is none of this node's own.
    pub(in crate::node) fn return_alias(&mut self, from: WorkerId, lease: LeaseId, out: &mut NodeActions) {
        if self.spillback.aliases.get(&lease).is_some_and(|alias| alias.client == from) {
            let alias = self.spillback.aliases.swap_remove(&lease).expect("looked at above");
            self.give_back_at(alias.node, alias.lease, out);
        }
    }

    /// Leases of other nodes end with their worker or client. Their nodes know of that.
    pub(in crate::node) fn end_aliases_of(&mut self, gone: WorkerId) {
        self.spillback.aliases.retain(|_, alias| alias.worker != gone && alias.client != gone);
    }

    /// What another node was asked for and granted is void.
    pub(in crate::node) fn forget_lender(&mut self, node: NodeId) {
        self.spillback.aliases.retain(|_, alias| alias.node != node);
        for demand in self.askers.values_mut().flat_map(|asker| asker.demands.values_mut()) {
            demand.forget_node(node);
        }
    }

    /// When a unit that waits elsewhere may go to where there is room.
    pub(in crate::node) fn next_move(&self) -> Option<Instant> {
        if !self.has_others() {
            return None;
        }
        let demands = self.askers.values().flat_map(|asker| asker.demands.values());
        let finds = self.view.must_ask();
        let find = |demand: &Demand| if finds { demand.next_find(self.now) } else { None };
        let next = |demand: &Demand| {
            [demand.next_move(self.now), find(demand), demand.refusals_lapse_at()].into_iter().flatten().min()
        };
        let moves = demands.filter_map(next).min();
        // Perhaps no demand waits for the node that refused: then that node is looked at when one does.
        let asked_again = self.view.next_deadline().filter(|at| *at > self.now);
        [moves, asked_again].into_iter().flatten().min()
    }

    /// Whether another node has what a demand asks for, if not now.
    pub(in crate::node) fn could_run_elsewhere(&self, demand: &Demand) -> bool {
        let (request, strategy) = (&demand.resources, demand.strategy.as_deref());
        let asked = Asked { request, strategy, local: self.id(), prefer: None, turns: None, resting: None };
        !awaited(self.view.rows(), &asked).is_empty()
    }

    /// Leases of other nodes that local clients have.
    #[must_use]
    pub fn leases_elsewhere(&self) -> usize {
        self.spillback.aliases.len()
    }
}

fn find_nodes(request: u64, demand: &Demand) -> NodeAction {
    let count = demand.unlent().clamp(1, u32::try_from(CANDIDATES_MAX).unwrap_or(u32::MAX));
    let (resources, strategy, prefer) = (demand.resources.clone(), demand.strategy.clone(), demand.prefer);
    NodeAction::FindNodes(Box::new(FindNodes { request, resources, count, strategy, prefer }))
}

/// Sends a message to another node.
pub(in crate::node) fn route(me: NodeId, to: NodeId, message: impl Into<Message>, out: &mut NodeActions) {
    let message = Box::new(message.into());
    out.push(NodeAction::Route { from: address(me), to: address(to), message });
}

/// Tells other nodes what is asked of them of one demand, where that has changed.
fn send_changes(
    me: NodeId,
    client: WorkerId,
    job: WorkerId,
    shape: ShapeId,
    demand: &mut Demand,
    out: &mut NodeActions,
) {
    for lent in &mut demand.lent {
        let is_over = lent.count == 0 && lent.was_withdrawn;
        if lent.count == lent.said && !is_over && !lent.is_stale {
            continue;
        }
        lent.was_withdrawn |= lent.count < lent.said;
        lent.said = lent.count;
        lent.is_stale = false;
        let (resources, strategy) = (demand.resources.clone(), demand.strategy.clone());
        let priority = (demand.priority != 0).then_some(demand.priority);
        let raises_memory = demand.raises_memory.then_some(true);
        let ask =
            LeaseAt { client, job, shape, resources, demand: lent.count, strategy, priority, raises_memory };
        route(me, lent.node, ask, out);
    }
    demand.lent.retain(|lent| lent.count > 0);
}

#[cfg(test)]
mod tests;
