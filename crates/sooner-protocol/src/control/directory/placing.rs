//! Where actors with a strategy go (bound to nodes, labels or placement groups), and where the groups go.

use sooner_wire::message::{
    BundleFree, CreateActor, Failure, FailureCode, GroupPhase, GroupState, Infeasible, Message,
};
use sooner_wire::strategy::InGroup;
use sooner_wire::{ActorId, GroupId, NodeId, Strategy, WorkerId};

use super::actor_died;
use super::durable::{Held, Subject};
use super::recalling::Needs;
use crate::control::groups::{GroupAction, Groups};
use crate::control::{Directory, DirectoryAction, DirectoryActions};
use crate::failures::removed_failure;
use crate::scheduling::policy::{Asked, Choice, NodeRow, choose, queue, unschedulable, unstartable};
use crate::table::Set;
use crate::time::Instant;
use crate::uplink::{BundleAnswer, BundleOrder, ToNode};

/// Where an actor goes.
pub(in crate::control) enum Target {
    /// To this node, now.
    Node(NodeId),
    /// To this node's queue, unless another node has room first.
    Queue(NodeId),
    /// Nowhere yet: it waits for its group, or for a node that has what it needs.
    None,
    /// Nowhere: the actor will never run.
    Never(Failure),
}

impl Directory {
    /// A node reports its free resources and its labels.
    pub fn on_report(&mut self, row: NodeRow) {
        if self.is_open(row.node) {
            self.rows.put(row);
        }
    }

    /// A node reports the free resources of the bundles there.
    pub fn on_bundles_free(&mut self, node: NodeId, bundles: Vec<BundleFree>) {
        self.rows.put_bundles(node, bundles);
    }

    /// Whether a group waits for reports of nodes.
    #[must_use]
    pub fn wants_reports(&self) -> bool {
        self.groups.is_waiting()
    }

    /// Runs `work` on the groups and carries out the resulting actions.
    pub(in crate::control) fn with_groups(
        &mut self,
        out: &mut DirectoryActions,
        work: impl FnOnce(&mut Groups, &mut Vec<GroupAction>),
    ) {
        let mut actions = Vec::new();
        work(&mut self.groups, &mut actions);
        for group in self.groups.take_changed() {
            self.note(|| Subject::Group(group));
        }
        for action in actions {
            match action {
                GroupAction::Client(client, Message::GroupState(state)) if self.must_be_written(&state) => {
                    let group = state.groups[0].group;
                    self.when_written(|| Subject::Group(group), Held::State(client, Box::new(state)), out);
                }
                GroupAction::Node(node, order) => match self.waits_for(&order) {
                    Some(group) => {
                        self.when_written(|| Subject::Group(group), Held::Commit(node, order), out)
                    }
                    None => out.push(DirectoryAction::Send(node, Box::new(ToNode::Bundles(Box::new(order))))),
                },
                GroupAction::Client(client, message) => self.send(client, message, out),
                GroupAction::Warn(text) => out.push(DirectoryAction::Warn(text)),
            }
        }
    }

    /// The group whose record must be on disk before a node is sent this order.
    fn waits_for(&self, order: &BundleOrder) -> Option<GroupId> {
        match order {
            BundleOrder::Commit(commit) => Some(commit.group).filter(|group| !self.is_group_written(*group)),
            BundleOrder::Prepare(_) | BundleOrder::Release(_) => None,
        }
    }

    /// Whether this answers a process that may rely on a group which a later control service would not know.
    fn must_be_written(&self, state: &GroupState) -> bool {
        let [row] = &state.groups[..] else { return false };
        let is_answer = state.request != 0 && state.error.is_none() && row.phase != GroupPhase::Removed;
        is_answer && !self.is_group_written(row.group)
    }

    pub(in crate::control) fn on_bundles(
        &mut self,
        node: NodeId,
        answer: BundleAnswer,
        now: Instant,
        out: &mut DirectoryActions,
    ) {
        self.with_groups(out, |groups, acts| match answer {
            BundleAnswer::Prepared(prepared) => groups.on_prepared(node, &prepared, now, acts),
            BundleAnswer::Asks(find) => groups.on_node_asks(node, &find, acts),
        });
    }

    pub(in crate::control) fn place_groups(&mut self, now: Instant, out: &mut DirectoryActions) {
        if self.groups.is_waiting() {
            let rows = std::mem::take(&mut self.rows);
            self.with_groups(out, |groups, acts| groups.after_events(rows.all(), now, acts));
            self.rows = rows;
        }
    }

    /// Ends a group with the actors in it; its tasks end with their workers.
    pub(in crate::control) fn remove_group(&mut self, group: GroupId, out: &mut DirectoryActions) {
        self.end_actors_in(group, out);
        self.with_groups(out, |groups, acts| groups.on_remove(group, acts));
    }

    /// Groups end with their driver.
    pub(in crate::control) fn end_groups_of(&mut self, process: WorkerId, out: &mut DirectoryActions) {
        for group in self.groups.of_driver(process) {
            self.remove_group(group, out);
        }
        self.groups.forget(process);
    }

    /// Where an actor goes: not to a node that can start no workers for its job, nor to the node `but`. If
    /// only nodes without workers could have the actor, it never runs.
    pub(in crate::control) fn target_of(
        &self,
        id: ActorId,
        needs: &Needs<'_>,
        but: Option<NodeId>,
    ) -> Target {
        let home = id.owner.node();
        let may = |node: NodeId| Some(node) != but;
        let Some(actor) = self.actors.get(&id) else { return self.target_among(home, needs, &may) };
        let unable = self.jobs.unable(actor.job);
        if unable.is_none() && actor.refusals.is_empty() {
            return self.target_among(home, needs, &may);
        }
        let why_not = |node: NodeId| {
            let for_good = unable.and_then(|unable| unable.get(&node)).map(|why| unstartable(why));
            let for_now = || actor.refusals.iter().find(|refused| refused.0 == node);
            for_good.or_else(|| for_now().map(|(_, why)| why.clone()))
        };
        let target = self.target_among(home, needs, &|node| may(node) && why_not(node).is_none());
        if matches!(target, Target::Node(_) | Target::Queue(_)) {
            return target;
        }
        let why = match self.target_among(home, needs, &may) {
            Target::Node(node) | Target::Queue(node) => why_not(node),
            Target::None | Target::Never(_) => None,
        };
        why.map_or(target, |why| {
            let text = format!("{} could not begin: {why}", self.title_of(id));
            Target::Never(actor_died(text))
        })
    }

    /// Where an actor goes among the allowed nodes.
    fn target_among(&self, home: NodeId, needs: &Needs<'_>, may: &dyn Fn(NodeId) -> bool) -> Target {
        let rows = match needs.strategy.and_then(Strategy::group) {
            Some(place) => match self.rows_in_group(place, needs) {
                Some(rows) => rows,
                None => {
                    return Target::Never(removed_failure(place.group, None, FailureCode::ActorGroupRemoved));
                }
            },
            None => Vec::new(),
        };
        let rows = if needs.strategy.and_then(Strategy::group).is_some() { &rows } else { self.rows.all() };
        let rows = rows.iter().filter(|row| may(row.node) && row.total.covers(needs.lifetime));
        let asked = self.asked(home, needs);
        match choose(rows.clone(), &asked) {
            Choice::On(node) => Target::Node(node),
            Choice::Wait => {
                let resting = |node: &NodeId| asked.resting.and_then(|resting| resting.get(node)).copied();
                let waiting = |node: &NodeId| (resting(node), self.recalls.waiting_at(*node), *node);
                queue(rows, &asked, |nodes| nodes.min_by_key(waiting)).map_or(Target::None, Target::Queue)
            }
            Choice::Lacking(_) => Target::None,
            Choice::Never(why) => {
                Target::Never(Failure::new(FailureCode::ActorUnschedulable, unschedulable(&why)))
            }
        }
    }

    fn asked<'a>(&'a self, home: NodeId, needs: &Needs<'a>) -> Asked<'a> {
        let rests = needs.lifetime.amount("CPU") == 0;
        Asked {
            request: needs.placement,
            strategy: needs.strategy,
            local: home,
            prefer: needs.prefer,
            turns: Some(self.rows.turns()),
            resting: rests.then(|| self.rows.resting()),
        }
    }

    /// The bundles in which an actor may run, each as a row of a node; `None` if the group is gone. A bundle
    /// whose node has not reported counts as free.
    fn rows_in_group(&self, place: InGroup, needs: &Needs<'_>) -> Option<Vec<NodeRow>> {
        let bundles = self.groups.bundles_for(place, needs.placement)?;
        let mut rows: Vec<NodeRow> = Vec::new();
        for (bundle, node, total) in bundles.filter(|(_, node, _)| self.is_open(*node)) {
            let said = self.rows.free_in_bundle(node, place.group, bundle);
            let (free, labels) = (said.unwrap_or_else(|| total.clone()), Vec::new());
            rows.push(NodeRow { node, total: total.clone(), free, labels });
        }
        let nodes: Set<NodeId> = rows.iter().map(|row| row.node).collect();
        for node in nodes {
            for takes in self.rows.taken_in_group(node, place.group) {
                let has_room = |row: &&mut NodeRow| row.node == node && row.free.covers(takes);
                if let Some(row) = rows.iter_mut().find(has_room) {
                    let _ = row.free.subtract(takes);
                }
            }
        }
        Some(rows)
    }

    /// The report for an actor whose labels no node has.
    pub(in crate::control) fn lacks_labels(&self, home: NodeId, create: &CreateActor) -> Option<Infeasible> {
        let needs = Needs::of(create);
        if !matches!(needs.strategy, Some(Strategy::Labels(_))) {
            return None;
        }
        match choose(self.rows.all(), &self.asked(home, &needs)) {
            Choice::Lacking(why) => {
                let (asked, total) = (create.placement.clone(), self.total());
                Some(Infeasible { asked, total, closed: None, reason: Some(why) })
            }
            Choice::On(_) | Choice::Wait | Choice::Never(_) => None,
        }
    }

    /// Whether some node could have the next process of an actor that has one.
    pub(in crate::control) fn has_place_for(&self, id: ActorId) -> bool {
        let Some(create) = self.actors.get(&id).and_then(|actor| actor.creation.as_deref()) else {
            return false;
        };
        matches!(self.target_of(id, &Needs::of(create), None), Target::Node(_) | Target::Queue(_))
    }

    fn end_actors_in(&mut self, group: GroupId, out: &mut DirectoryActions) {
        let ended: Vec<ActorId> = self.actors_in(group);
        for actor in ended {
            let failure = removed_failure(group, None, FailureCode::ActorGroupRemoved);
            self.end_actor(actor, failure, out);
        }
    }
}
