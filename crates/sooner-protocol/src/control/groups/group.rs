//! One placement group: its record, and the steps of its state machine.

use sooner_wire::limits::{PREPARE_NANOS, PREPARE_PAUSE_NANOS, PREPARE_PAUSE_NANOS_MAX};
use sooner_wire::message::{
    Bundle, BundleRow, Commit, GroupPhase, GroupRow, GroupState, GroupStrategy, Prepare, Release,
};
use sooner_wire::record::{BundleRecord, GroupRecord};
use sooner_wire::{GroupId, NodeId, PlacementAttempt, ResourceSet, WorkerId};

use super::GroupAction;
use crate::scheduling::policy::NodeRow;
use crate::scheduling::{Unplaced, place_bundles};
use crate::table::{Map, Set};
use crate::time::Instant;
use crate::uplink::BundleOrder;

/// The node of a bundle, and the attempt that reserved the bundle there.
pub(super) type Place = (NodeId, PlacementAttempt);

/// What must outlive a restart of the control service. Written before the first `Commit`, and when a group is
/// created or a bundle loses its place.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Record {
    /// Which group.
    pub group: GroupId,
    /// Namespace and name.
    pub title: Option<(String, String)>,
    /// How its bundles are spread over nodes.
    pub strategy: GroupStrategy,
    /// The driver that it ends with.
    pub driver: Option<WorkerId>,
    /// Its bundles, and where they are.
    pub bundles: Vec<(Bundle, Option<Place>)>,
}

impl Record {
    /// In its written form.
    #[must_use]
    pub fn to_record(&self) -> GroupRecord {
        let bundles = self.bundles.iter();
        GroupRecord {
            group: self.group,
            title: self.title.clone(),
            strategy: self.strategy,
            driver: self.driver,
            bundles: bundles.map(|(b, place)| BundleRecord { bundle: b.clone(), place: *place }).collect(),
        }
    }

    /// From its written form.
    #[must_use]
    pub fn from_record(record: GroupRecord) -> Self {
        let GroupRecord { group, title, strategy, driver, bundles } = record;
        let bundles = bundles.into_iter().map(|BundleRecord { bundle, place }| (bundle, place)).collect();
        Self { group, title, strategy, driver, bundles }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Phase {
    /// Waits until the nodes change, or until this time.
    Waiting { until: Option<Instant> },
    /// `silent`: nodes that have not answered; `places`: where each open bundle would go.
    Preparing { silent: Set<NodeId>, places: Vec<(u32, NodeId)>, until: Instant },
    /// All bundles have a place.
    Placed,
}

#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) record: Record,
    pub(super) phase: Phase,
    /// The number of the latest attempt.
    pub(super) attempt: PlacementAttempt,
    /// Nodes that were told to commit and have not reported that they did.
    pub(super) uncommitted: Set<Place>,
    /// The group was created once.
    pub(super) is_old: bool,
    /// How long the next pause is (nanoseconds).
    pub(super) pause: u64,
    /// Why the group waits, for people.
    pub(super) reason: Option<String>,
    /// No node is large enough, or there are too few nodes.
    pub(super) lacks: bool,
    /// Processes that receive changes of the group.
    pub(super) subscribers: Set<WorkerId>,
}

pub(super) fn blank_row(group: GroupId, strategy: GroupStrategy) -> GroupRow {
    let phase = GroupPhase::Removed;
    GroupRow {
        group,
        title: None,
        strategy,
        phase,
        bundles: Vec::new(),
        reason: None,
        detached: false,
        attempts: 0,
    }
}

impl Group {
    pub(super) fn new(record: Record, attempt: PlacementAttempt) -> Self {
        Self {
            record,
            phase: Phase::Waiting { until: None },
            attempt,
            uncommitted: Set::default(),
            is_old: false,
            pause: PREPARE_PAUSE_NANOS,
            reason: None,
            lacks: false,
            subscribers: Set::default(),
        }
    }

    /// Bundles without a place.
    pub(super) fn open(&self) -> impl Iterator<Item = (u32, &Bundle)> {
        let bundles = (0..).zip(&self.record.bundles);
        bundles.filter(|(_, (_, place))| place.is_none()).map(|(index, (bundle, _))| (index, bundle))
    }

    /// Where its bundles are, one entry for each.
    pub(super) fn places(&self) -> impl Iterator<Item = Place> {
        self.record.bundles.iter().filter_map(|(_, place)| *place)
    }

    pub(super) fn is_at(&self, node: NodeId, attempt: PlacementAttempt) -> bool {
        self.places().any(|place| place == (node, attempt))
    }

    /// Nodes that have bundles of the group, or were asked for some.
    pub(super) fn nodes(&self) -> Set<NodeId> {
        let mut nodes: Set<NodeId> = self.places().map(|(node, _)| node).collect();
        if let Phase::Preparing { places, .. } = &self.phase {
            nodes.extend(places.iter().map(|(_, node)| *node));
        }
        nodes
    }

    pub(super) fn row(&self, with_bundles: bool) -> GroupRow {
        let bundle = |(bundle, place): &(Bundle, Option<Place>)| BundleRow {
            resources: bundle.resources.clone(),
            node: place.map(|(node, _)| node),
        };
        let bundles = if with_bundles { &self.record.bundles[..] } else { &[] };
        let phase = match self.phase {
            Phase::Placed if self.uncommitted.is_empty() => GroupPhase::Created,
            Phase::Placed => GroupPhase::Committing,
            Phase::Waiting { .. } | Phase::Preparing { .. } if self.is_old => GroupPhase::Rescheduling,
            Phase::Waiting { .. } | Phase::Preparing { .. } => GroupPhase::Pending,
        };
        GroupRow {
            group: self.record.group,
            title: self.record.title.clone(),
            strategy: self.record.strategy,
            phase,
            bundles: bundles.iter().map(bundle).collect(),
            reason: self.reason.clone(),
            detached: self.record.driver.is_none(),
            // The upper half is the incarnation of the control service.
            attempts: self.attempt.0 as u32,
        }
    }

    pub(super) fn tell(&self, row: &GroupRow, out: &mut Vec<GroupAction>) {
        for subscriber in &self.subscribers {
            let state = GroupState { request: 0, groups: vec![row.clone()], error: None };
            out.push(GroupAction::Client(*subscriber, state.into()));
        }
    }

    pub(super) fn try_to_place(&mut self, rows: &mut [NodeRow], now: Instant, out: &mut Vec<GroupAction>) {
        let open: Vec<(u32, &Bundle)> = self.open().collect();
        let taken: Vec<NodeId> = self.places().map(|(node, _)| node).collect();
        let places = match place_bundles(&open, self.record.strategy, &taken, rows) {
            Ok(places) => places,
            Err(Unplaced::Busy(reason)) => return self.wait(reason, false),
            Err(Unplaced::Lacking(reason)) => {
                if self.reason.as_ref() != Some(&reason) {
                    let title = self.describe();
                    out.push(GroupAction::Warn(format!("{title} stays pending: {reason}")));
                }
                return self.wait(reason, true);
            }
        };
        self.attempt = self.attempt.next();
        let mut by_node: Map<NodeId, Vec<(u32, ResourceSet)>> = Map::default();
        for (index, node) in &places {
            let resources = self.record.bundles[*index as usize].0.resources.clone();
            if let Some(row) = rows.iter_mut().find(|row| row.node == *node) {
                // For the groups that are tried next; the node's own answer is what counts.
                let _ = row.free.subtract(&resources);
            }
            by_node.entry(*node).or_default().push((*index, resources));
        }
        self.reason = None;
        let silent = by_node.keys().copied().collect();
        self.phase = Phase::Preparing { silent, places, until: now.plus(PREPARE_NANOS) };
        for (node, bundles) in by_node {
            let prepare = Prepare { group: self.record.group, attempt: self.attempt, bundles };
            out.push(GroupAction::Node(node, BundleOrder::Prepare(prepare)));
        }
    }

    /// Waits until the nodes change; `lacks`: until there are other nodes.
    pub(super) fn wait(&mut self, reason: String, lacks: bool) {
        self.phase = Phase::Waiting { until: None };
        self.reason = Some(reason);
        self.lacks = lacks;
    }

    pub(super) fn describe(&self) -> String {
        match &self.record.title {
            Some((_, name)) => format!("placement group {name:?}"),
            None => "a placement group".to_owned(),
        }
    }

    /// All nodes have prepared: from now on the bundles have their places.
    pub(super) fn commit(&mut self, out: &mut Vec<GroupAction>) {
        let Phase::Preparing { places, .. } = std::mem::replace(&mut self.phase, Phase::Placed) else {
            return;
        };
        self.pause = PREPARE_PAUSE_NANOS;
        for (index, node) in places {
            self.record.bundles[index as usize].1 = Some((node, self.attempt));
            if self.uncommitted.insert((node, self.attempt)) {
                let commit = Commit { group: self.record.group, attempt: self.attempt };
                out.push(GroupAction::Node(node, BundleOrder::Commit(commit)));
            }
        }
    }

    pub(super) fn confirm_created(&mut self, out: &mut Vec<GroupAction>) {
        if self.phase == Phase::Placed && self.uncommitted.is_empty() {
            self.is_old = true;
            self.tell(&self.row(false), out);
        }
    }

    /// Gives back what this attempt may have reserved. With `now`, a pause precedes the next attempt.
    pub(super) fn roll_back(&mut self, now: Option<Instant>, out: &mut Vec<GroupAction>) {
        let phase = Phase::Waiting { until: now.map(|now| now.plus(self.pause)) };
        let Phase::Preparing { places, .. } = std::mem::replace(&mut self.phase, phase) else { return };
        if now.is_some() {
            self.pause = (2 * self.pause).min(PREPARE_PAUSE_NANOS_MAX);
        }
        let nodes: Set<NodeId> = places.into_iter().map(|(_, node)| node).collect();
        for node in nodes {
            let release = Release { group: self.record.group, attempt: Some(self.attempt) };
            out.push(GroupAction::Node(node, BundleOrder::Release(release)));
        }
    }

    /// The bundles on a node are lost.
    pub(super) fn lose(&mut self, node: NodeId, out: &mut Vec<GroupAction>) {
        let was_placed = self.phase == Phase::Placed;
        self.lacks = false;
        if matches!(self.phase, Phase::Preparing { .. }) {
            // The set of open bundles changes: the attempt begins anew, with all of them.
            self.roll_back(None, out);
        }
        for (_, place) in &mut self.record.bundles {
            if place.is_some_and(|(at, _)| at == node) {
                *place = None;
            }
        }
        self.uncommitted.retain(|(at, _)| *at != node);
        if was_placed {
            self.phase = Phase::Waiting { until: None };
            self.is_old = true;
            self.tell(&self.row(false), out);
        }
    }
}
