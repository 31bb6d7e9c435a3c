//! Where the bundles of placement groups are, for demands in the groups: the control service knows, and is
//! asked once for each group that has no room here.
//!
//! It never decides whether there is room in a bundle of another node: that node does.

use sooner_wire::message::{FindGroup, GroupPhase, GroupRow, GroupState, Message};
use sooner_wire::strategy::{InGroup, Strategy};
use sooner_wire::{GroupId, NodeId, ResourceSet, WorkerId};

use super::bundles::Objection;
use super::requesters::Demand;
use super::spillback::Step;
use super::unable::Unable;
use crate::node::values::transfers::address;
use crate::node::{NodeAction, NodeActions, NodeCore};
use crate::scheduling::Pools;
use crate::scheduling::view::View;
use crate::table::Map;
use crate::time::Instant;
use crate::uplink::ToControl;

/// See the module.
#[derive(Debug, Default)]
pub(in crate::node) struct GroupPlaces {
    /// Per group: what each bundle has, and its node, as far as that is known.
    groups: Map<GroupId, Vec<(ResourceSet, Option<NodeId>)>>,
    /// Groups that the control service is to be asked for.
    wanted: Vec<GroupId>,
}

impl GroupPlaces {
    /// The next step for one unit of a demand in a group.
    pub(in crate::node) fn step(
        &mut self,
        place: InGroup,
        demand: &Demand,
        pools: &Pools,
        view: &View,
        (here, now): (NodeId, Instant),
        (unable, job): (&Unable, WorkerId),
    ) -> Step {
        let unlent = demand.unlent();
        if unable.may_serve(job, demand, here) && pools.fits(&demand.resources, demand.strategy.as_deref()) {
            let moved = || demand.oldest(now).map_or(Step::Waits, |from| Step::Moves(from, None));
            return if unlent > 0 { Step::Here } else { moved() };
        }
        if unlent == 0 {
            return Step::Waits;
        }
        let Some(bundles) = self.groups.get(&place.group) else {
            self.groups.insert(place.group, Vec::new());
            self.wanted.push(place.group);
            return Step::Waits;
        };
        let is_meant = |index: u32| place.bundle.is_none_or(|bundle| bundle == index);
        let meant = (0..).zip(bundles).filter(|(index, _)| is_meant(*index)).map(|(_, bundle)| bundle);
        let mut large = meant.filter(|(resources, _)| resources.covers(&demand.resources)).peekable();
        if large.peek().is_none() && !bundles.is_empty() {
            return Step::Never(Objection::Lacking(None));
        }
        let nodes = large.map(|(_, node)| *node);
        let why = |node: Option<NodeId>| node.and_then(|node| unable.objection(job, demand, node));
        if let Some(last) = nodes.clone().last()
            && nodes.clone().all(|node| why(node).is_some())
            && let Some(objection) = why(last)
        {
            return Step::Never(objection);
        }
        let asked = nodes.flatten().filter(|node| *node != here && view.may_be_asked(*node));
        let asked = asked.filter(|node| unable.may_serve(job, demand, *node));
        let waiting = |node: &NodeId| (demand.lent_to(*node), *node);
        asked.min_by_key(waiting).map_or(Step::Waits, |node| Step::There(node, 1))
    }

    fn note(&mut self, request: u64, row: GroupRow) {
        // Only answers to a request contain the bundles.
        if request != 0 {
            let bundles = row.bundles.into_iter().map(|bundle| (bundle.resources, bundle.node));
            self.groups.insert(row.group, bundles.collect());
        } else if row.phase == GroupPhase::Created {
            self.wanted.push(row.group);
        }
    }
}

impl NodeCore {
    /// Asks for groups whose bundles may be elsewhere.
    pub(in crate::node) fn ask_for_groups(&mut self, out: &mut NodeActions) {
        let from = address(self.id());
        for group in std::mem::take(&mut self.group_places.wanted) {
            let find = FindGroup { request: 1, group: Some(group), title: None, attempt: None };
            out.push(NodeAction::Control(ToControl::Routed { from, message: Box::new(find.into()) }));
        }
    }

    /// The control service has started again and forgotten that this node asked.
    pub fn ask_for_groups_again(&mut self) {
        self.group_places.wanted = self.group_places.groups.keys().copied().collect();
    }

    /// The control service sent a message to this node as if it were a process.
    pub(in crate::node) fn on_told(&mut self, message: Message, out: &mut NodeActions) {
        let Message::GroupState(GroupState { request, groups, .. }) = message else { return };
        for row in groups {
            if row.phase == GroupPhase::Removed {
                self.forget_group(row.group, out);
            } else if self.group_places.groups.contains_key(&row.group) {
                self.group_places.note(request, row);
            }
        }
    }

    /// A group is removed: its callers have been told, and no demand waits for a place in it.
    pub(in crate::node) fn forget_group(&mut self, group: GroupId, out: &mut NodeActions) {
        self.group_places.groups.swap_remove(&group);
        let is_in = |strategy: Option<&Strategy>| {
            strategy.and_then(Strategy::group).is_some_and(|place| place.group == group)
        };
        let askers: Vec<WorkerId> = self.askers.keys().copied().collect();
        for asker in askers {
            self.withdraw(asker, |demand| is_in(demand.strategy.as_deref()), out);
        }
    }
}
