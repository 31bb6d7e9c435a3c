//! What nodes have free by their last reports, less what was sent there since, for placing actors and groups.
//! The rows are in the order in which nodes first reported.
//!
//! An actor's resources count as used at once on the node that it is sent to: many more may be placed before
//! that node's next report. They count until the actor has a process and the node has reported since, or for
//! [`COUNTED_NANOS`] after that: a node reports nothing when nothing has changed. Meanwhile an actor may
//! count twice, and the node looks more used than it is.
//!
//! Every node reports up to twenty times a second, so a report must not cost more with more nodes.
//!
//! It never decides anything, and it is no ledger: a node that is asked because of it decides for itself.

use std::collections::VecDeque;

use sooner_wire::limits::VIEW_NANOS;
use sooner_wire::message::BundleFree;
use sooner_wire::{ActorId, GroupId, NodeId, ResourceSet, Strategy};

use crate::scheduling::policy::{NodeRow, Turns};
use crate::table::{Map, Set};
use crate::time::Instant;

/// How long (nanoseconds) the resources of a placed actor count in addition to its node's reports.
const COUNTED_NANOS: u64 = 2 * VIEW_NANOS;

/// An actor's resources on the node that it was sent to.
#[derive(Debug)]
struct Sent {
    node: NodeId,
    /// What the reports do not contain yet. Nothing for an actor that waits there: it takes what becomes
    /// free.
    takes: ResourceSet,
    /// What the actor holds when it has a process.
    holds: ResourceSet,
    /// The group from whose bundles the actor takes.
    group: Option<GroupId>,
    /// `Some` if it has a process: it counts until then, or until the node's next report.
    until: Option<Instant>,
    /// The actor holds no CPU.
    rests: bool,
}

/// What an actor takes of the node that it is sent to.
#[derive(Debug, Clone, Copy)]
pub(in crate::control) struct Load<'a> {
    pub(in crate::control) takes: &'a ResourceSet,
    pub(in crate::control) holds: &'a ResourceSet,
    pub(in crate::control) group: Option<GroupId>,
}

/// See the module. Each row belongs to one node, and `places` maps nodes to rows.
#[derive(Debug, Default)]
pub(in crate::control) struct Rows {
    rows: Vec<NodeRow>,
    /// The last reports of the nodes in `rows`.
    said: Vec<Said>,
    places: Map<NodeId, usize>,
    sent: Map<ActorId, Sent>,
    /// The actors that count, by node.
    counted: Map<NodeId, Set<ActorId>>,
    /// The number of actors that hold no CPU, by node.
    resting: Map<NodeId, u32>,
    /// Which node's turn it is, for strategies that spread.
    turns: Turns,
    /// Actors with a process, in the order of the times until which they count.
    ending: VecDeque<(Instant, ActorId)>,
    /// Some node may have more free than before.
    has_more: bool,
}

#[derive(Debug, Default)]
struct Said {
    free: ResourceSet,
    bundles: Vec<BundleFree>,
}

impl Rows {
    /// A node reports its resources.
    pub(in crate::control) fn put(&mut self, row: NodeRow) {
        let node = row.node;
        let before = match self.places.get(&node) {
            Some(at) => {
                self.said[*at].free.clone_from(&row.free);
                std::mem::replace(&mut self.rows[*at], row).free
            }
            None => {
                self.places.insert(node, self.rows.len());
                self.said.push(Said { free: row.free.clone(), bundles: Vec::new() });
                self.rows.push(row);
                // It may have a resource that no other node has, even if none is free.
                self.has_more = true;
                ResourceSet::default()
            }
        };
        // The report contains the actors that have begun there by now.
        if let Some(counted) = self.counted.get_mut(&node) {
            let sent = &self.sent;
            counted.retain(|actor| sent.get(actor).is_some_and(|sent| sent.until.is_none()));
        }
        self.count(node, &before);
    }

    /// A node reports the free resources of the bundles there.
    pub(in crate::control) fn put_bundles(&mut self, node: NodeId, bundles: Vec<BundleFree>) {
        if let Some(at) = self.places.get(&node) {
            self.has_more |= self.said[*at].bundles != bundles;
            self.said[*at].bundles = bundles;
        }
    }

    /// No actor begins on a node any more. This takes time in proportion to the number of nodes, which leave
    /// less often than they report.
    pub(in crate::control) fn remove(&mut self, node: NodeId) {
        if let Some(at) = self.places.get(&node) {
            self.said.remove(*at);
            self.rows.remove(*at);
            self.places = self.rows.iter().enumerate().map(|(at, row)| (row.node, at)).collect();
            self.turns.forget(node);
        }
    }

    /// The rows of all nodes.
    pub(in crate::control) fn all(&self) -> &[NodeRow] {
        &self.rows
    }

    /// The number of actors that hold no CPU, by node.
    pub(in crate::control) fn resting(&self) -> &Map<NodeId, u32> {
        &self.resting
    }

    /// Which node's turn it is, for strategies that spread.
    pub(in crate::control) fn turns(&self) -> &Turns {
        &self.turns
    }

    /// An actor with this strategy is placed on a node that has room.
    pub(in crate::control) fn take_turn(&mut self, strategy: Option<&Strategy>, node: NodeId) {
        self.turns.note(strategy, node);
    }

    /// The free resources of a bundle, if its node has reported them.
    pub(in crate::control) fn free_in_bundle(
        &self,
        node: NodeId,
        group: GroupId,
        bundle: u32,
    ) -> Option<ResourceSet> {
        let said = self.places.get(&node).map(|at| &self.said[*at])?;
        let is_it = |said: &&BundleFree| (said.group, said.bundle) == (group, bundle);
        said.bundles.iter().find(is_it).map(|said| said.free.clone())
    }

    /// What counts as taken from the bundles of a group on a node, one item per actor.
    pub(in crate::control) fn taken_in_group(
        &self,
        node: NodeId,
        group: GroupId,
    ) -> impl Iterator<Item = &ResourceSet> {
        let counted = self.counted.get(&node).into_iter().flatten();
        let sent = counted.filter_map(|actor| self.sent.get(actor));
        sent.filter(move |sent| sent.group == Some(group)).map(|sent| &sent.takes)
    }

    /// An actor is sent to a node. If it `waits` there, it takes what becomes free.
    pub(in crate::control) fn send(&mut self, actor: ActorId, node: NodeId, load: Load<'_>, waits: bool) {
        self.forget(actor);
        let takes = if waits { ResourceSet::default() } else { load.takes.clone() };
        let rests = load.holds.amount("CPU") == 0;
        if rests {
            *self.resting.entry(node).or_default() += 1;
        }
        if !takes.is_empty() {
            self.counted.entry(node).or_default().insert(actor);
            if let (Some(at), None) = (self.places.get(&node), load.group) {
                let _ = self.rows[*at].free.subtract(&takes);
            }
        }
        let (holds, group) = (load.holds.clone(), load.group);
        self.sent.insert(actor, Sent { node, takes, holds, group, until: None, rests });
    }

    /// An actor has a process on a node.
    pub(in crate::control) fn begun(&mut self, actor: ActorId, node: NodeId, now: Instant) {
        let Some(sent) = self.sent.get_mut(&actor) else { return };
        if sent.node != node {
            return self.forget(actor);
        }
        if sent.takes.is_empty() {
            return;
        }
        let until = now.plus(COUNTED_NANOS);
        sent.takes = std::mem::take(&mut sent.holds);
        sent.until = Some(until);
        self.ending.push_back((until, actor));
        self.count_again(node);
    }

    /// An actor is dead, or is sent elsewhere.
    pub(in crate::control) fn forget(&mut self, actor: ActorId) {
        let Some(sent) = self.sent.swap_remove(&actor) else { return };
        if sent.rests
            && let Some(resting) = self.resting.get_mut(&sent.node)
        {
            *resting -= 1;
            if *resting == 0 {
                self.resting.swap_remove(&sent.node);
            }
        }
        if self.counted.get_mut(&sent.node).is_some_and(|counted| counted.swap_remove(&actor)) {
            self.count_again(sent.node);
        }
    }

    /// An actor that was placed long ago is in the reports of its node.
    pub(in crate::control) fn expire(&mut self, now: Instant) {
        while let Some((_, actor)) = self.ending.pop_front_if(|(until, _)| *until <= now) {
            let Some(sent) = self.sent.get(&actor).filter(|sent| sent.until.is_some()) else { continue };
            let node = sent.node;
            if self.counted.get_mut(&node).is_some_and(|counted| counted.swap_remove(&actor)) {
                self.count_again(node);
            }
        }
    }

    /// When [`Self::expire`] is to be called.
    pub(in crate::control) fn next_deadline(&self) -> Option<Instant> {
        self.ending.front().map(|(until, _)| *until)
    }

    /// Whether some node may have more free than at the last call.
    pub(in crate::control) fn has_more(&mut self) -> bool {
        std::mem::take(&mut self.has_more)
    }

    fn count_again(&mut self, node: NodeId) {
        let Some(at) = self.places.get(&node) else { return };
        let before = std::mem::take(&mut self.rows[*at].free);
        // No row has what was taken from bundles.
        self.has_more |= !self.said[*at].bundles.is_empty();
        self.count(node, &before);
    }

    /// Subtracts from a node's report what was sent there since. `before`: the free resources until now.
    fn count(&mut self, node: NodeId, before: &ResourceSet) {
        if self.counted.get(&node).is_some_and(Set::is_empty) {
            self.counted.swap_remove(&node);
        }
        let Some(at) = self.places.get(&node) else { return };
        let free = &mut self.rows[*at].free;
        free.clone_from(&self.said[*at].free);
        let counted = self.counted.get(&node).into_iter().flatten();
        for sent in counted.filter_map(|actor| self.sent.get(actor)).filter(|sent| sent.group.is_none()) {
            let _ = free.subtract(&sent.takes);
        }
        self.has_more |= !before.covers(free);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sooner_wire::WorkerId;

    fn row(node: u64, cpus: f64) -> NodeRow {
        let total = ResourceSet::from_amounts([("CPU".to_owned(), cpus)]);
        NodeRow { node: NodeId(node), free: total.clone(), total, labels: Vec::new() }
    }

    #[test]
    fn what_an_actor_takes_counts_until_its_node_has_reported_it() {
        let cpus = |count: f64| ResourceSet::from_amounts([("CPU".to_owned(), count)]);
        let actor = |number| ActorId { owner: WorkerId(1), number };
        let mut rows = Rows::default();
        rows.put(row(1, 4.0));
        let (one, nothing) = (cpus(1.0), ResourceSet::default());
        rows.send(actor(1), NodeId(1), Load { takes: &one, holds: &one, group: None }, false);
        rows.send(actor(2), NodeId(1), Load { takes: &one, holds: &nothing, group: None }, false);
        rows.send(actor(3), NodeId(1), Load { takes: &one, holds: &one, group: None }, true);
        assert_eq!(rows.all()[0].free, cpus(2.0), "what waits takes nothing that is free");
        assert_eq!(rows.resting().get(&NodeId(1)), Some(&1));
        // A report that was on its way says nothing of them.
        rows.put(row(1, 4.0));
        assert_eq!(rows.all()[0].free, cpus(2.0));
        rows.begun(actor(1), NodeId(1), Instant(5));
        rows.begun(actor(2), NodeId(1), Instant(5));
        assert_eq!(rows.all()[0].free, cpus(3.0), "the second one holds nothing from then on");
        assert!(rows.has_more() && !rows.has_more());
        assert_eq!(rows.next_deadline(), Some(Instant(5 + COUNTED_NANOS)));
        rows.expire(Instant(5 + COUNTED_NANOS));
        assert_eq!((rows.all()[0].free.clone(), rows.next_deadline()), (cpus(4.0), None));
        assert!(rows.has_more());
        rows.forget(actor(2));
        assert_eq!(rows.resting().get(&NodeId(1)), None);
    }

    #[test]
    fn a_report_after_an_actor_has_begun_says_what_it_holds() {
        let one = ResourceSet::from_amounts([("CPU".to_owned(), 1.0)]);
        let actor = ActorId { owner: WorkerId(1), number: 1 };
        let mut rows = Rows::default();
        rows.put(row(1, 4.0));
        rows.send(actor, NodeId(1), Load { takes: &one, holds: &one, group: None }, false);
        rows.begun(actor, NodeId(1), Instant(5));
        rows.put(NodeRow { free: row(1, 3.0).free, ..row(1, 4.0) });
        assert_eq!(rows.all()[0].free, row(1, 3.0).free);
        // What is gone counts no more, also where its node reports nothing.
        rows.send(actor, NodeId(1), Load { takes: &one, holds: &one, group: None }, false);
        rows.forget(actor);
        assert_eq!(rows.all()[0].free, row(1, 3.0).free);
    }

    #[test]
    fn the_last_report_of_each_counts_and_the_order_stays() {
        let mut rows = Rows::default();
        [row(1, 1.0), row(2, 1.0), row(3, 1.0), row(2, 4.0)].into_iter().for_each(|row| rows.put(row));
        assert_eq!(rows.all(), [row(1, 1.0), row(2, 4.0), row(3, 1.0)]);
        rows.remove(NodeId(1));
        rows.remove(NodeId(1));
        rows.put(row(3, 2.0));
        rows.put(row(1, 3.0));
        assert_eq!(rows.all(), [row(2, 4.0), row(3, 2.0), row(1, 3.0)]);
    }
}
