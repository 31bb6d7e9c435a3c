//! Placement groups: where their bundles go, in two phases, and what happens when a node is lost.
//!
//! | phase | event | next |
//! |---|---|---|
//! | waiting | a view of the nodes with room for all open bundles | preparing; `Prepare` to each node |
//! | preparing | all prepared | committing; `Commit` to each |
//! | preparing | one refused, a node is gone, or it takes too long | waiting, after a pause; `Release` to all that were asked |
//! | committing | all committed | created |
//! | committing, created | a node with bundles is gone | waiting; only its bundles are open |
//! | any | removed, or its driver is gone | forgotten; `Release` to all with bundles |
//! | forgotten | a node asks about bundles of it | `Release`: it was not told before |
//!
//! Invariants:
//! - GR1: all open bundles of a group are reserved by one attempt, or none stays so: what one node refuses is
//!   given back everywhere before the next attempt.
//! - GR2: a bundle has one place: a node that says it reserved one for another attempt is told to give it
//!   back.
//! - GR3: a group is created only when every bundle's node has said that it is committed.
//!
//! It may be restarted from [`Record`]s: nodes ask about the bundles that they have reserved, and are told.
//! It never looks at the work in a group, and never waits for a dead node.

use std::collections::VecDeque;

use sooner_wire::limits::{GROUP_BUNDLES_MAX, GROUPS_ENDED_MAX, GROUPS_MAX};
use sooner_wire::message::{
    Bundle, BundleStep, Commit, CreateGroup, FindGroup, GroupPhase, GroupRow, GroupState, GroupStrategy,
    Message, Prepared, Release,
};
use sooner_wire::strategy::{InGroup, check_terms};
use sooner_wire::{GroupId, NodeId, PlacementAttempt, ResourceSet, WorkerId};

use crate::scheduling::add_formatted;
use crate::scheduling::policy::NodeRow;
use crate::table::{Map, Set};
use crate::time::Instant;
use crate::uplink::BundleOrder;
pub use group::Record;
use group::{Group, Phase, Place, blank_row};

mod group;

/// An effect that the groups ask for. Messages to one receiver stay in order.
#[derive(Debug, Clone, PartialEq)]
pub enum GroupAction {
    /// Send a node an order about bundles.
    Node(NodeId, BundleOrder),
    /// Send a message to a process.
    Client(WorkerId, Message),
    /// Warn the user.
    Warn(String),
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Groups {
    groups: Map<GroupId, Group>,
    names: Map<(String, String), GroupId>,
    /// Removed groups, the latest last: for tools that show the state.
    ended: VecDeque<GroupRow>,
    /// The first attempt of every group: above all attempts before the last restart.
    first_attempt: PlacementAttempt,
    /// What was known of the nodes at the last try to place; `is_dirty`: something else has changed since.
    seen: Vec<NodeRow>,
    is_dirty: bool,
    /// Some group may wait for something; recomputed when all are looked at.
    is_busy: bool,
    /// Groups whose records must be written anew; `None` where nothing is written.
    changed: Option<Set<GroupId>>,
}

impl Groups {
    /// The groups known before a restart, the `incarnation`th one. Commits are sent again, because they may
    /// not have arrived.
    #[must_use]
    pub fn restored(records: Vec<Record>, incarnation: u32, out: &mut Vec<GroupAction>) -> Self {
        let first_attempt = PlacementAttempt(u64::from(incarnation) << 32);
        let mut this = Self { first_attempt, is_dirty: true, is_busy: true, ..Self::default() };
        for record in records {
            let id = record.group;
            if let Some(title) = record.title.clone() {
                this.names.insert(title, id);
            }
            let mut group = Group::new(record, first_attempt);
            group.uncommitted = group.places().collect();
            group.is_old = !group.uncommitted.is_empty();
            if group.open().next().is_none() {
                group.phase = Phase::Placed;
            }
            for (node, attempt) in &group.uncommitted {
                out.push(GroupAction::Node(
                    *node,
                    BundleOrder::Commit(Commit { group: id, attempt: *attempt }),
                ));
            }
            this.groups.insert(id, group);
        }
        this
    }

    /// From now on, records changes of groups for [`Self::take_changed`].
    pub fn keep_records(&mut self) {
        self.changed.get_or_insert_default();
    }

    /// Groups whose records have changed since the last time.
    pub fn take_changed(&mut self) -> Set<GroupId> {
        self.changed.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn note(&mut self, group: GroupId) {
        if let Some(changed) = &mut self.changed {
            changed.insert(group);
        }
    }

    /// Whether no node was ever told to commit bundles of a group.
    #[must_use]
    pub fn is_new(&self, group: GroupId) -> bool {
        self.groups.get(&group).is_some_and(|group| !group.is_old && group.places().next().is_none())
    }

    /// Whether a node must still carry out an order that was held back.
    #[must_use]
    pub fn stands_by(&self, node: NodeId, order: &BundleOrder) -> bool {
        let BundleOrder::Commit(commit) = order else { return true };
        self.groups.get(&commit.group).is_some_and(|group| group.is_at(node, commit.attempt))
    }

    /// A group that a client asked for cannot be created.
    pub fn refuse(&mut self, id: GroupId, reason: String, out: &mut Vec<GroupAction>) {
        if let Some(group) = self.groups.get_mut(&id) {
            group.reason = Some(reason);
        }
        self.on_remove(id, out);
    }

    /// A node is connected that may not have learned which bundles to commit.
    pub fn commit_again(&self, node: NodeId, out: &mut Vec<GroupAction>) {
        for (id, group) in &self.groups {
            let its = group.uncommitted.iter().filter(|(at, _)| *at == node);
            let commit =
                |attempt: &PlacementAttempt| BundleOrder::Commit(Commit { group: *id, attempt: *attempt });
            out.extend(its.map(|(_, attempt)| GroupAction::Node(node, commit(attempt))));
        }
    }

    /// Nodes that have bundles.
    #[must_use]
    pub fn nodes(&self) -> Set<NodeId> {
        self.groups.values().flat_map(Group::places).map(|(node, _)| node).collect()
    }

    /// A group's record as of now; `None` when there is no such group.
    #[must_use]
    pub fn record(&self, group: GroupId) -> Option<&Record> {
        self.groups.get(&group).map(|group| &group.record)
    }

    /// A client asks for a group.
    pub fn on_create(&mut self, from: WorkerId, create: CreateGroup, out: &mut Vec<GroupAction>) {
        let (request, id) = (create.request, create.group);
        if let Some(group) = self.groups.get_mut(&id) {
            // The client asked before, and the answer did not arrive.
            group.subscribers.insert(from);
            let groups = vec![group.row(false)];
            return out.push(GroupAction::Client(from, GroupState { request, groups, error: None }.into()));
        }
        let error = self.objection(&create);
        if let Some(error) = error {
            let mut row = blank_row(id, create.strategy);
            row.reason = Some(error.clone());
            let state = GroupState { request, groups: vec![row], error: Some(error) };
            return out.push(GroupAction::Client(from, state.into()));
        }
        let CreateGroup { title, strategy, bundles, driver, .. } = create;
        let bundles = bundles.into_iter().map(|bundle| (bundle, None)).collect();
        let record = Record { group: id, title, strategy, driver, bundles };
        if let Some(title) = record.title.clone() {
            self.names.insert(title, id);
        }
        let mut group = Group::new(record, self.first_attempt);
        group.subscribers.insert(from);
        self.groups.insert(id, group);
        self.note(id);
        self.is_dirty = true;
        self.is_busy = true;
        if request != 0 {
            let groups = self.groups.get(&id).map(|group| group.row(false)).into_iter().collect();
            out.push(GroupAction::Client(from, GroupState { request, groups, error: None }.into()));
        }
    }

    /// Why a group cannot be created.
    fn objection(&self, create: &CreateGroup) -> Option<String> {
        if let Some(title) = &create.title
            && self.names.contains_key(title)
        {
            return Some(format!(
                "a placement group named {:?} exists in namespace {:?}: use get_placement_group(), remove it first, or choose another name",
                title.1, title.0
            ));
        }
        if self.groups.len() >= GROUPS_MAX {
            return Some(format!("there are {GROUPS_MAX} placement groups: remove some first"));
        }
        if create.bundles.is_empty() || create.bundles.len() > GROUP_BUNDLES_MAX {
            return Some(format!(
                "a placement group has 1 to {GROUP_BUNDLES_MAX} bundles, not {}",
                create.bundles.len()
            ));
        }
        let is_empty = |bundle: &Bundle| bundle.resources.is_empty();
        if let Some(at) = create.bundles.iter().position(is_empty) {
            return Some(format!("bundle {at} of a placement group asks for nothing: give it a resource"));
        }
        let labels = create.bundles.iter().find_map(|bundle| check_terms(&bundle.labels).err());
        labels.map(|error| error.to_string())
    }

    /// A client ends a group, and with it everything that runs in the group.
    pub fn on_remove(&mut self, id: GroupId, out: &mut Vec<GroupAction>) {
        // The others keep their turns.
        let Some(group) = self.groups.shift_remove(&id) else { return };
        self.note(id);
        // Callers learn of this before they learn that their workers died.
        let row = GroupRow { phase: GroupPhase::Removed, ..group.row(true) };
        group.tell(&GroupRow { bundles: Vec::new(), ..row.clone() }, out);
        for node in group.nodes() {
            out.push(GroupAction::Node(node, BundleOrder::Release(Release { group: id, attempt: None })));
        }
        if let Some(title) = &group.record.title
            && self.names.get(title) == Some(&id)
        {
            self.names.swap_remove(title);
        }
        self.ended.push_back(row);
        if self.ended.len() > GROUPS_ENDED_MAX {
            self.ended.pop_front();
        }
        // There may be room for others now.
        self.is_dirty = true;
    }

    /// A client asks for one group or all groups.
    pub fn on_find(&mut self, from: WorkerId, find: &FindGroup, out: &mut Vec<GroupAction>) {
        let id = match &find.title {
            Some(title) => self.names.get(title).copied(),
            None => find.group,
        };
        let mut state = GroupState { request: find.request, groups: Vec::new(), error: None };
        let with_bundles = find.request != 0;
        match id.and_then(|id| self.groups.get_mut(&id)) {
            Some(group) => {
                group.subscribers.insert(from);
                state.groups.push(group.row(with_bundles));
            }
            None if find.title.is_none() && find.group.is_none() => {
                state.groups = self.rows();
            }
            None => {
                let ended = find.group.and_then(|id| self.ended.iter().find(|row| row.group == id));
                let blank = || find.group.map(|id| blank_row(id, GroupStrategy::Pack));
                state.groups.extend(ended.cloned().or_else(blank));
                state.error = find.title.as_ref().map(|(namespace, name)| {
                    format!("there is no placement group named {name:?} in namespace {namespace:?}")
                });
            }
        }
        out.push(GroupAction::Client(from, state.into()));
    }

    /// A node asks about bundles that it prepared long ago, or before this control service began.
    pub fn on_node_asks(&mut self, node: NodeId, find: &FindGroup, out: &mut Vec<GroupAction>) {
        let (Some(id), Some(attempt)) = (find.group, find.attempt) else { return };
        let is_open =
            |group: &Group| group.attempt == attempt && matches!(group.phase, Phase::Preparing { .. });
        let order = match self.groups.get(&id) {
            // The node has reported the commit, or gets it from [`Self::commit_again`] after its report.
            Some(group) if group.is_at(node, attempt) && !group.uncommitted.contains(&(node, attempt)) => {
                return;
            }
            Some(group) if group.is_at(node, attempt) => BundleOrder::Commit(Commit { group: id, attempt }),
            // The node will be told when all have answered.
            Some(group) if is_open(group) => return,
            Some(_) => BundleOrder::Release(Release { group: id, attempt: Some(attempt) }),
            // The group was removed while the node could not be told, and everything that runs in it ends
            // with it.
            None => BundleOrder::Release(Release { group: id, attempt: None }),
        };
        out.push(GroupAction::Node(node, order));
    }

    /// A node has carried out an order about bundles, or refused.
    pub fn on_prepared(&mut self, node: NodeId, answer: &Prepared, now: Instant, out: &mut Vec<GroupAction>) {
        let Prepared { group: id, attempt, step } = *answer;
        let Some(group) = self.groups.get_mut(&id) else {
            if step != BundleStep::Refused {
                out.push(GroupAction::Node(node, BundleOrder::Release(Release { group: id, attempt: None })));
            }
            return;
        };
        self.is_busy = true;
        let is_at = group.is_at(node, attempt);
        match (&mut group.phase, step) {
            (_, BundleStep::Committed) if is_at => {
                if group.uncommitted.swap_remove(&(node, attempt)) {
                    group.confirm_created(out);
                }
            }
            (Phase::Preparing { silent, .. }, BundleStep::Prepared) if attempt == group.attempt => {
                silent.swap_remove(&node);
                if silent.is_empty() {
                    group.commit(out);
                    self.note(id);
                }
            }
            (Phase::Preparing { .. }, BundleStep::Refused) if attempt == group.attempt => {
                group.roll_back(Some(now), out);
                self.is_dirty = true;
            }
            (_, BundleStep::Refused) if is_at => {
                // The node should have bundles and has none: they are lost like those of a dead node.
                group.lose(node, out);
                self.is_dirty = true;
                self.note(id);
            }
            (_, BundleStep::Prepared) if is_at => {
                out.push(GroupAction::Node(node, BundleOrder::Commit(Commit { group: id, attempt })));
            }
            (_, BundleStep::Refused) => {}
            (_, BundleStep::Prepared | BundleStep::Committed) => {
                out.push(GroupAction::Node(
                    node,
                    BundleOrder::Release(Release { group: id, attempt: Some(attempt) }),
                ));
            }
        }
    }

    /// A node is dead.
    pub fn on_node_dead(&mut self, node: NodeId, out: &mut Vec<GroupAction>) {
        self.is_busy = true;
        for group in self.groups.values_mut() {
            if let Phase::Preparing { places, .. } = &group.phase
                && places.iter().any(|(_, at)| *at == node)
            {
                group.roll_back(None, out);
                self.is_dirty = true;
            }
            if group.places().any(|(at, _)| at == node) {
                group.lose(node, out);
                self.is_dirty = true;
                if let Some(changed) = &mut self.changed {
                    changed.insert(group.record.group);
                }
            }
        }
    }

    /// A process is dead: it is sent nothing any more.
    pub fn forget(&mut self, client: WorkerId) {
        for group in self.groups.values_mut() {
            group.subscribers.swap_remove(&client);
        }
    }

    /// Drivers whose groups end with them.
    pub fn drivers(&self) -> impl Iterator<Item = WorkerId> {
        self.groups.values().filter_map(|group| group.record.driver)
    }

    /// Groups that end with a driver.
    #[must_use]
    pub fn of_driver(&self, driver: WorkerId) -> Vec<GroupId> {
        let its = self.groups.iter().filter(|(_, group)| group.record.driver == Some(driver));
        its.map(|(id, _)| *id).collect()
    }

    /// Whether [`Self::after_events`] has anything to do with a view of the nodes.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.is_busy
    }

    /// Places waiting groups that have room, oldest first. A group that does not fit holds up none that
    /// does. `rows` is what is known of the nodes that take part.
    pub fn after_events(&mut self, rows: &[NodeRow], now: Instant, out: &mut Vec<GroupAction>) {
        self.is_busy = self.groups.values().any(|group| group.phase != Phase::Placed);
        for group in self.groups.values_mut() {
            if matches!(group.phase, Phase::Preparing { until, .. } if now >= until) {
                group.roll_back(Some(now), out);
            }
        }
        let is_due =
            |group: &Group| matches!(group.phase, Phase::Waiting { until: Some(until) } if now >= until);
        if !self.is_dirty && self.seen == rows && !self.groups.values().any(is_due) {
            return;
        }
        self.is_dirty = false;
        // A group that the nodes are too small for is tried again when the nodes change, not with every
        // change of what is free.
        let pairs = || self.seen.iter().zip(rows);
        let is_same = |(old, new): (&NodeRow, &NodeRow)| {
            old.node == new.node && old.total == new.total && old.labels == new.labels
        };
        let are_same = self.seen.len() == rows.len() && pairs().all(is_same);
        self.seen = rows.to_vec();
        let mut rows = rows.to_vec();
        for group in self.groups.values_mut() {
            let is_ready =
                matches!(group.phase, Phase::Waiting { until } if until.is_none_or(|until| now >= until));
            if is_ready && !(group.lacks && are_same) {
                group.try_to_place(&mut rows, now, out);
            }
        }
    }

    /// When [`Self::after_events`] must be called again, even if nothing happens.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        if !self.is_busy {
            return None;
        }
        let next = |group: &Group| match group.phase {
            Phase::Waiting { until } => until,
            Phase::Preparing { until, .. } => Some(until),
            Phase::Placed => None,
        };
        self.groups.values().filter_map(next).min()
    }

    /// The usable bundles of a group, with their indices and nodes, or only the named bundle; `None` when
    /// there is no such group. Bundles that are too small for `request` are left out.
    #[must_use]
    pub fn bundles_for<'a>(
        &'a self,
        place: InGroup,
        request: &'a ResourceSet,
    ) -> Option<impl Iterator<Item = (u32, NodeId, &'a ResourceSet)>> {
        let group = self.groups.get(&place.group)?;
        let bundles = (0..).zip(&group.record.bundles);
        let is_meant = move |index: u32| place.bundle.is_none_or(|bundle| bundle == index);
        let is_usable = |place: &Place| !group.uncommitted.contains(place);
        Some(bundles.filter_map(move |(index, (bundle, place))| {
            let (node, _) = place.filter(is_usable)?;
            let fits = is_meant(index) && bundle.resources.covers(request);
            fits.then_some((index, node, &bundle.resources))
        }))
    }

    /// Adds the resources of groups; see [`add_formatted`].
    pub fn add_formatted(&self, set: &mut ResourceSet) {
        for (id, group) in &self.groups {
            for (index, (bundle, place)) in (0..).zip(&group.record.bundles) {
                if place.is_some_and(|place| !group.uncommitted.contains(&place)) {
                    add_formatted(set, *id, index, &bundle.resources);
                }
            }
        }
    }

    /// Every group; removed groups come last.
    #[must_use]
    pub fn rows(&self) -> Vec<GroupRow> {
        self.groups.values().map(|group| group.row(true)).chain(self.ended.iter().cloned()).collect()
    }

    /// Asserts GR1 and GR3 as far as they are visible; for tests and the simulator.
    pub fn check(&self) {
        for (id, group) in &self.groups {
            let open = group.open().count();
            match &group.phase {
                Phase::Placed => assert_eq!(open, 0, "GR3: {id:?} is placed but not all of it"),
                Phase::Preparing { places, .. } => {
                    assert_eq!(open, places.len(), "GR1: {id:?} prepares all that is open");
                }
                Phase::Waiting { .. } => assert!(open > 0, "{id:?} waits for nothing"),
            }
        }
        for (title, id) in &self.names {
            let titled = self.groups.get(id).and_then(|group| group.record.title.as_ref());
            assert_eq!(titled, Some(title), "a name belongs to a group that has it");
        }
    }
}
