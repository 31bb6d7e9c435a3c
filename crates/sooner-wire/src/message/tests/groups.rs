//! Samples of the messages about placement groups, and of those that say where something must run.

use super::*;
use crate::strategy::{InGroup, LabelTerm, LabelTest, NodeAffinity, NodeLabels};
use crate::{NodeId, PlacementAttempt, Strategy};

pub(super) fn samples(add: &mut impl FnMut(Message)) {
    let group = TaskId { owner: WorkerId(7), number: 9 };
    let resources = ResourceSet::from_amounts([("CPU".to_owned(), 0.5)]);
    let term = LabelTerm { key: "zone".to_owned(), test: LabelTest::In(vec!["a".to_owned()]) };
    let title = Some(("space".to_owned(), "name".to_owned()));
    let bundle = Bundle { resources: resources.clone(), labels: vec![term.clone()] };
    let strategy = GroupStrategy::StrictSpread;
    let (bundles, driver) = (vec![bundle], Some(WorkerId(7)));
    add(CreateGroup { request: 1, group, title: title.clone(), strategy, bundles, driver }.into());
    let bundles = vec![BundleRow { resources: resources.clone(), node: Some(NodeId(5)) }];
    let (phase, reason) = (GroupPhase::Rescheduling, Some("waits".to_owned()));
    let row = GroupRow {
        group,
        title: title.clone(),
        strategy,
        phase,
        bundles,
        reason,
        detached: true,
        attempts: 3,
    };
    add(GroupState { request: 1, groups: vec![row], error: Some("taken".to_owned()) }.into());
    add(RemoveGroup { group }.into());
    add(Prepare { group, attempt: PlacementAttempt(3), bundles: vec![(1, resources.clone())] }.into());
    add(Prepared { group, attempt: PlacementAttempt(3), step: BundleStep::Refused }.into());
    add(Commit { group, attempt: PlacementAttempt(3) }.into());
    add(Release { group, attempt: None }.into());
    add(FindGroup { request: 0, group: Some(group), title, attempt: Some(PlacementAttempt(3)) }.into());
    let negated = LabelTerm { key: "rack".to_owned(), test: LabelTest::DoesNotExist };
    for strategy in [
        Strategy::Spread,
        Strategy::Node(NodeAffinity { node: NodeId(5), soft: true }),
        Strategy::Labels(NodeLabels { hard: vec![term], soft: vec![negated], spread: true }),
        Strategy::Group(InGroup { group, bundle: Some(2), captures: true }),
    ] {
        let (shape, demand, prefer, priority) = (ShapeId(1), 3, Some(NodeId(7)), Some(-4));
        let raises_memory = Some(true);
        let (resources, strategy) = (resources.clone(), Some(Box::new(strategy)));
        add(RequestLease { shape, resources, demand, strategy, prefer, priority, raises_memory }.into());
    }
    let failure = Failure::new(FailureCode::TaskUnschedulable, "gone");
    let closed = Some(Box::new(Closed { shape: ShapeId(1), failure, for_now: Some(true) }));
    add(Infeasible { asked: resources.clone(), total: resources, closed, reason: None }.into());
}
