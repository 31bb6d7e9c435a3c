//! Placement groups: resources that are reserved together, in bundles (Ray's documentation, "Placement
//! Groups").
//!
//! A client asks the control service for a group. The control service prepares its bundles on nodes and
//! commits them when all are prepared.

use minicbor::{Decode, Encode};

use crate::strategy::LabelTerm;
use crate::{GroupId, NodeId, PlacementAttempt, ResourceSet, WorkerId};

/// How the bundles of a group are spread over nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum GroupStrategy {
    /// On as few nodes as possible.
    #[n(0)]
    Pack,
    /// On as many nodes as possible.
    #[n(1)]
    Spread,
    /// All on one node.
    #[n(2)]
    StrictPack,
    /// Each on a node of its own.
    #[n(3)]
    StrictSpread,
}

impl GroupStrategy {
    const ALL: [Self; 4] = [Self::Pack, Self::Spread, Self::StrictPack, Self::StrictSpread];

    /// What people call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pack => "PACK",
            Self::Spread => "SPREAD",
            Self::StrictPack => "STRICT_PACK",
            Self::StrictSpread => "STRICT_SPREAD",
        }
    }

    /// The strategy with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|strategy| strategy.name() == name)
    }
}

/// The phase of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum GroupPhase {
    /// Its bundles are not reserved.
    #[n(0)]
    Pending,
    /// Its bundles are reserved, and their nodes are being told to keep them.
    #[n(1)]
    Committing,
    /// Its bundles may be used.
    #[n(2)]
    Created,
    /// Bundles were on dead nodes: the control service looks for others.
    #[n(3)]
    Rescheduling,
    /// The group has ended for good.
    #[n(4)]
    Removed,
}

impl GroupPhase {
    /// What people call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Committing => "PREPARED",
            Self::Created => "CREATED",
            Self::Rescheduling => "RESCHEDULING",
            Self::Removed => "REMOVED",
        }
    }
}

/// A part of a group: its resources are on one node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(array)]
pub struct Bundle {
    #[n(0)]
    pub resources: ResourceSet,
    /// Conditions on the labels of its node.
    #[n(1)]
    pub labels: Vec<LabelTerm>,
}

/// Client to control: reserve these bundles.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct CreateGroup {
    /// Zero: no answer is wanted, only messages about the group. With a title one is: the name may be taken.
    #[n(0)]
    pub request: u64,
    #[n(1)]
    pub group: GroupId,
    /// Namespace and name.
    #[n(2)]
    pub title: Option<(String, String)>,
    #[n(3)]
    pub strategy: GroupStrategy,
    #[n(4)]
    pub bundles: Vec<Bundle>,
    /// The driver that the group ends with; `None`: it is detached.
    #[n(5)]
    pub driver: Option<WorkerId>,
}

row! { 160 CreateGroup: [process -> node, process => directory]; no values; }

/// Control to client: the answer to a question, or, unasked, the state of a group that concerns the client.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct GroupState {
    /// Zero: no question was asked. Then bundles are left out.
    #[n(0)]
    pub request: u64,
    #[n(1)]
    pub groups: Vec<GroupRow>,
    #[n(2)]
    pub error: Option<String>,
}

row! { 161 GroupState: [node -> process, directory => process, directory => node]; no values; }

/// Client to control: end a group with all that runs in it.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct RemoveGroup {
    #[n(0)]
    pub group: GroupId,
}

row! { 162 RemoveGroup: [process -> node, process => directory]; no values; }

/// Control to node: reserve these bundles, all or none, until the next message about them.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Prepare {
    #[n(0)]
    pub group: GroupId,
    /// The attempt; answers to an earlier one do not count.
    #[n(1)]
    pub attempt: PlacementAttempt,
    /// Indices of bundles of the group, and what to reserve for each.
    #[n(2)]
    pub bundles: Vec<(u32, ResourceSet)>,
}

row! { 163 Prepare: [directory -> node]; no values; }

/// What a node has done about the bundles of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum BundleStep {
    /// They are reserved.
    #[n(0)]
    Prepared,
    /// They may be used.
    #[n(1)]
    Committed,
    /// The node refuses: there is no room, or nothing was prepared.
    #[n(2)]
    Refused,
}

/// Node to control: the answer to [`Prepare`] and [`Commit`].
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Prepared {
    #[n(0)]
    pub group: GroupId,
    #[n(1)]
    pub attempt: PlacementAttempt,
    #[n(2)]
    pub step: BundleStep,
}

row! { 164 Prepared: [node -> directory]; no values; }

/// Control to node: what was prepared in this attempt may be used.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Commit {
    #[n(0)]
    pub group: GroupId,
    #[n(1)]
    pub attempt: PlacementAttempt,
}

row! { 165 Commit: [directory -> node]; no values; }

/// Control to node: give back what was reserved in this attempt, and end what runs in it.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Release {
    #[n(0)]
    pub group: GroupId,
    /// `None`: all of the group; it does not exist any more.
    #[n(1)]
    pub attempt: Option<PlacementAttempt>,
}

row! { 166 Release: [directory -> node]; no values; }

/// Client to control: asks for a group, by id or by name, or for all. Node to control: asks what becomes of
/// the bundles that were prepared in this attempt.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct FindGroup {
    /// Zero: the sender wants no answer, only messages about the group from now on.
    #[n(0)]
    pub request: u64,
    #[n(1)]
    pub group: Option<GroupId>,
    #[n(2)]
    pub title: Option<(String, String)>,
    #[n(3)]
    pub attempt: Option<PlacementAttempt>,
}

row! {
    167 FindGroup: [process -> node, process => directory, node -> directory, node => directory]; no values;
}

/// A group, in answers to questions.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct GroupRow {
    #[n(0)]
    pub group: GroupId,
    #[n(1)]
    pub title: Option<(String, String)>,
    #[n(2)]
    pub strategy: GroupStrategy,
    #[n(3)]
    pub phase: GroupPhase,
    /// The bundles, and where they are.
    #[n(4)]
    pub bundles: Vec<BundleRow>,
    /// Why it is not created yet, for people.
    #[n(5)]
    pub reason: Option<String>,
    /// It does not end with a driver.
    #[n(6)]
    pub detached: bool,
    /// How often nodes were asked to reserve its bundles, since the control service started.
    #[n(7)]
    pub attempts: u32,
}

/// A bundle, and where it is.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct BundleRow {
    #[n(0)]
    pub resources: ResourceSet,
    #[n(1)]
    pub node: Option<NodeId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_strategies_are_read_back() {
        for strategy in GroupStrategy::ALL {
            assert_eq!(GroupStrategy::from_name(strategy.name()), Some(strategy));
        }
        assert_eq!(GroupStrategy::from_name("NEAR"), None);
    }
}
