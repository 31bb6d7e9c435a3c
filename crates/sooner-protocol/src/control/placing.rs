//! Where what has a strategy goes: actors that are bound to nodes, labels or placement groups, and the groups themselves.

use sooner_wire::message::{CreateActor, Failure, FailureCode, GroupPhase, GroupState, Infeasible, Message};
use sooner_wire::{ActorId, GroupId, NodeId, ResourceSet, Strategy, WorkerId};

use super::durable::{Held, Subject};
use super::groups::{GroupAction, Groups};
use super::{BundleAnswer, BundleOrder, ControlAction, ControlActions, ControlCore, ToNode, actor_died};
use crate::node::{unschedulable, unstartable};
use crate::scheduling::policy::{Asked, Choice, NodeRow, choose};
use crate::time::Instant;
use crate::worker::groups::removed_failure;

/// Where an actor goes.
pub(super) enum Target {
    /// There.
    Node(NodeId),
    /// It waits: for its group, or for a node that has what it needs.
    None,
    /// It will never run.
    Never(Failure),
}

impl ControlCore {
    /// A node says what it has free now, and which labels.
    pub fn on_report(&mut self, row: NodeRow) {
        if self.is_open(row.node) {
            self.rows.put(row);
        }
    }

    /// Whether anything waits for what nodes have free.
    #[must_use]
    pub fn wants_reports(&self) -> bool {
        self.groups.is_waiting()
    }

    /// Runs something on the groups and carries out what they want.
    pub(super) fn with_groups(
        &mut self,
        out: &mut ControlActions,
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
                    None => out.push(ControlAction::Send(node, Box::new(ToNode::Bundles(Box::new(order))))),
                },
                GroupAction::Client(client, message) => self.say(client, message, out),
                GroupAction::Warn(text) => out.push(ControlAction::Warn(text)),
            }
        }
    }

    /// The group whose record must be on disk before a node is told this.
    fn waits_for(&self, order: &BundleOrder) -> Option<GroupId> {
        match order {
            BundleOrder::Commit(commit) => Some(commit.group).filter(|group| !self.is_group_written(*group)),
            BundleOrder::Prepare(_) | BundleOrder::Release(_) => None,
        }
    }

    /// Whether this answers somebody who may build on one group that a control service to come would not know.
    fn must_be_written(&self, state: &GroupState) -> bool {
        let [row] = &state.groups[..] else { return false };
        let is_answer = state.request != 0 && state.error.is_none() && row.phase != GroupPhase::Removed;
        is_answer && !self.is_group_written(row.group)
    }

    pub(super) fn on_bundles(
        &mut self,
        node: NodeId,
        answer: BundleAnswer,
        now: Instant,
        out: &mut ControlActions,
    ) {
        self.with_groups(out, |groups, acts| match answer {
            BundleAnswer::Prepared(prepared) => groups.on_prepared(node, &prepared, now, acts),
            BundleAnswer::Asks(find) => groups.on_node_asks(node, &find, acts),
        });
    }

    pub(super) fn place_groups(&mut self, now: Instant, out: &mut ControlActions) {
        if self.groups.is_waiting() {
            let rows = std::mem::take(&mut self.rows);
            self.with_groups(out, |groups, acts| groups.settle(rows.all(), now, acts));
            self.rows = rows;
        }
    }

    /// Ends a group with the actors in it; tasks end with their workers.
    pub(super) fn remove_group(&mut self, group: GroupId, out: &mut ControlActions) {
        self.end_actors_in(group, out);
        self.with_groups(out, |groups, acts| groups.on_remove(group, acts));
    }

    /// Groups end with their driver.
    pub(super) fn end_groups_of(&mut self, process: WorkerId, out: &mut ControlActions) {
        for group in self.groups.of_driver(process) {
            self.remove_group(group, out);
        }
        self.groups.forget(process);
    }

    /// A node that has what an actor without a strategy needs: that of its owner, if it can be. Where there is none the actor
    /// waits for one that joins.
    fn place_for(&self, home: NodeId, create: &CreateActor, may: &dyn Fn(NodeId) -> bool) -> Option<NodeId> {
        let is_feasible = |node: &NodeId, total: &ResourceSet| {
            let covers = total.covers(&create.placement) && total.covers(&create.lifetime);
            covers && self.is_open(*node) && may(*node)
        };
        if self.nodes.get(&home).is_some_and(|total| is_feasible(&home, total)) {
            return Some(home);
        }
        self.nodes.iter().find(|(node, total)| is_feasible(node, total)).map(|(node, _)| *node)
    }

    /// Where an actor goes: not to a node that can start no workers for its job. What only such nodes could have never runs.
    pub(super) fn target_of(&self, id: ActorId, create: &CreateActor) -> Target {
        let home = id.owner.node();
        let unable = self.actors.get(&id).and_then(|actor| self.jobs.unable(actor.job));
        let Some(unable) = unable else { return self.target_among(home, create, &|_| true) };
        let target = self.target_among(home, create, &|node| !unable.contains_key(&node));
        if matches!(target, Target::Node(_)) {
            return target;
        }
        let why = match self.target_among(home, create, &|_| true) {
            Target::Node(node) => unable.get(&node),
            Target::None | Target::Never(_) => None,
        };
        why.map_or(target, |why| {
            let text = format!("{} could not begin: {}", self.title_of(id), unstartable(why));
            Target::Never(actor_died(text))
        })
    }

    /// Where an actor goes among the nodes where it may.
    fn target_among(&self, home: NodeId, create: &CreateActor, may: &dyn Fn(NodeId) -> bool) -> Target {
        let Some(strategy) = create.constructor.spec.strategy.as_deref() else {
            return self.place_for(home, create, may).map_or(Target::None, Target::Node);
        };
        if let Some(place) = strategy.group() {
            return match self.groups.nodes_of(place, &create.placement) {
                // Its own bundles' node knows best which of them has room.
                Some(nodes) => nodes.into_iter().find(|node| may(*node)).map_or(Target::None, Target::Node),
                None => Target::Never(removed_failure(place.group, None, FailureCode::ActorGroupRemoved)),
            };
        }
        match self.choose_for(home, create, may) {
            Choice::On(node) => Target::Node(node),
            Choice::Wait | Choice::Lacking(_) => Target::None,
            Choice::Never(why) => {
                Target::Never(Failure::new(FailureCode::ActorUnschedulable, unschedulable(&why)))
            }
        }
    }

    /// What is said of an actor for which no node has the labels.
    pub(super) fn lacks_labels(&self, home: NodeId, create: &CreateActor) -> Option<Infeasible> {
        let strategy = create.constructor.spec.strategy.as_deref();
        if !matches!(strategy, Some(Strategy::Labels(_))) {
            return None;
        }
        match self.choose_for(home, create, &|_| true) {
            Choice::Lacking(why) => {
                let (asked, total) = (create.placement.clone(), self.total());
                Some(Infeasible { asked, total, closed: None, reason: Some(why) })
            }
            Choice::On(_) | Choice::Wait | Choice::Never(_) => None,
        }
    }

    /// Whether there is a node for the next process of an actor that has one.
    pub(super) fn has_place_for(&self, id: ActorId) -> bool {
        let Some(create) = self.actors.get(&id).and_then(|actor| actor.creation.as_deref()) else {
            return false;
        };
        matches!(self.target_of(id, create), Target::Node(_))
    }

    fn choose_for(&self, home: NodeId, create: &CreateActor, may: &dyn Fn(NodeId) -> bool) -> Choice {
        let strategy = create.constructor.spec.strategy.as_deref();
        // It waits on its node for what is in use there.
        let empty = |row: &NodeRow| NodeRow { free: row.total.clone(), ..row.clone() };
        let rows: Vec<NodeRow> = self.rows.all().iter().filter(|row| may(row.node)).map(empty).collect();
        let asked =
            Asked { request: &create.placement, strategy, local: home, prefer: None, turn: self.turns };
        choose(&rows, &asked)
    }

    fn end_actors_in(&mut self, group: GroupId, out: &mut ControlActions) {
        let ended: Vec<ActorId> = self.actors_in(group);
        for actor in ended {
            let failure = removed_failure(group, None, FailureCode::ActorGroupRemoved);
            self.end_actor(actor, failure, out);
        }
    }
}
