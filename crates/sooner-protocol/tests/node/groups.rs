//! Strategies, placement groups and priorities on a node that carries the control service, too.

use sooner_wire::message::{
    Bundle, Closed, CreateGroup, FailureCode, FindGroup, GroupPhase, GroupState, GroupStrategy, Infeasible,
    LeaseGranted, ReclaimLease, RemoveGroup, ReturnLease, WorkerDead,
};
use sooner_wire::strategy::{InGroup, LabelTerm, LabelTest, NodeAffinity, NodeLabels};
use sooner_wire::{GroupId, LeaseId, NodeId, Strategy};

use super::*;

const GROUP: GroupId = TaskId { owner: DRIVER, number: 70 };

fn create(strategy: GroupStrategy, bundles: &[f64]) -> CreateGroup {
    let bundle = |count: &f64| Bundle { resources: cpus(*count), labels: vec![] };
    CreateGroup {
        request: 0,
        group: GROUP,
        title: None,
        strategy,
        bundles: bundles.iter().map(bundle).collect(),
        driver: Some(DRIVER),
    }
}

fn in_group(bundle: Option<u32>) -> Option<Box<Strategy>> {
    Some(Box::new(Strategy::Group(InGroup { group: GROUP, bundle, captures: false })))
}

/// What the news of the group say.
fn news(out: &[NodeAction]) -> Vec<GroupPhase> {
    let phase = |action: &NodeAction| match action {
        NodeAction::Send(_, message) => match &**message {
            Message::GroupState(GroupState { request: 0, groups, .. }) => groups.first().map(|row| row.phase),
            _ => None,
        },
        _ => None,
    };
    out.iter().filter_map(phase).collect()
}

fn grants(out: &[NodeAction]) -> Vec<(ShapeId, LeaseId, WorkerId)> {
    let grant = |action: &NodeAction| match action {
        NodeAction::Send(_, message) => match &**message {
            Message::LeaseGranted(LeaseGranted { shape, lease, worker, .. }) => {
                Some((*shape, *lease, *worker))
            }
            _ => None,
        },
        _ => None,
    };
    out.iter().filter_map(grant).collect()
}

#[test]
fn a_group_is_created_in_one_step_and_its_bundles_are_only_its_own() {
    let mut node = node(3.0);
    let out = send(&mut node, DRIVER, create(GroupStrategy::StrictPack, &[1.0, 1.0]));
    assert_eq!(news(&out), [GroupPhase::Created]);
    // One CPU is left for everybody else.
    let starts = |number| [NodeAction::StartWorker(WorkerId(number))];
    assert_eq!(send(&mut node, DRIVER, request(0, 2)), starts(101));
    assert_eq!(grants(&connect(&mut node, WorkerId(101))).len(), 1);
    let in_second = RequestLease { strategy: in_group(Some(1)), ..request(1, 2) };
    assert_eq!(send(&mut node, DRIVER, in_second), starts(102));
    assert_eq!(grants(&connect(&mut node, WorkerId(102))).len(), 1);
    let in_any = RequestLease { strategy: in_group(None), ..request(2, 2) };
    assert_eq!(send(&mut node, DRIVER, in_any), starts(103), "bundle 0 is free");
}

#[test]
fn a_group_that_finds_no_node_is_told_and_holds_up_none_that_does() {
    let mut node = node(2.0);
    let mut out = NodeActions::new();
    let apart = CreateGroup {
        group: TaskId { number: 71, ..GROUP },
        ..create(GroupStrategy::StrictSpread, &[1.0, 1.0])
    };
    let last = CreateGroup { group: TaskId { number: 72, ..GROUP }, ..create(GroupStrategy::Pack, &[1.0]) };
    for create in [create(GroupStrategy::Pack, &[1.0]), apart, last] {
        assert_eq!(node.on_message(DRIVER, create.into(), NOW, &mut out), None);
    }
    node.after_events(NOW, &mut out);
    assert_eq!(news(&out), [GroupPhase::Created; 2]);
    let warned =
        |action: &NodeAction| matches!(action, NodeAction::Warn(text) if text.contains("of its own"));
    assert_eq!(out.iter().filter(|action| warned(action)).count(), 1);
    node.after_events(NOW, &mut out);
    assert_eq!(out.iter().filter(|action| warned(action)).count(), 1, "once");
    let groups = node.report().groups.expect("three");
    let reasons: Vec<bool> = groups.iter().map(|row| row.reason.is_some()).collect();
    assert_eq!(reasons, [false, true, false]);
}

#[test]
fn work_waits_for_its_group_and_the_group_for_room() {
    let mut node = node(2.0);
    let worker = WorkerId(101);
    send(&mut node, DRIVER, request(0, 1));
    let granted = grants(&connect(&mut node, worker));
    let [(_, lease, _)] = granted[..] else { panic!("{granted:?}") };
    let out = send(&mut node, DRIVER, create(GroupStrategy::Pack, &[2.0]));
    assert_eq!(news(&out), []);
    let waiting = RequestLease { resources: cpus(2.0), strategy: in_group(None), ..request(1, 1) };
    assert_eq!(send(&mut node, DRIVER, waiting), []);
    let out = send(&mut node, DRIVER, ReturnLease { lease });
    assert_eq!(news(&out), [GroupPhase::Created]);
    assert_eq!(grants(&out).len(), 1, "in the same step");
}

#[test]
fn removal_is_told_before_the_workers_end_and_gives_everything_back() {
    let mut node = node(2.0);
    let worker = WorkerId(101);
    send(&mut node, DRIVER, create(GroupStrategy::Pack, &[2.0]));
    send(&mut node, DRIVER, RequestLease { strategy: in_group(None), ..request(0, 1) });
    assert_eq!(grants(&connect(&mut node, worker)).len(), 1);
    let out = send(&mut node, DRIVER, RemoveGroup { group: GROUP });
    assert_eq!(news(&out), [GroupPhase::Removed]);
    let killed = out.iter().position(|action| *action == NodeAction::KillWorker(worker));
    assert!(killed.is_some_and(|at| at > 0), "{out:?}");
    let out = end(&mut node, worker);
    let gone = |action: &NodeAction| matches!(action, NodeAction::Send(_, message) if matches!(**message, Message::WorkerDead(WorkerDead { .. })));
    assert!(out.iter().any(gone));
    assert!(node.is_quiet(), "all resources are free");
    let find = FindGroup { request: 0, group: Some(GROUP), title: None, attempt: None };
    assert_eq!(news(&send(&mut node, DRIVER, find)), [GroupPhase::Removed]);
}

#[test]
fn groups_end_with_their_driver() {
    let mut node = node(2.0);
    connect(&mut node, OTHER);
    send(&mut node, DRIVER, create(GroupStrategy::Pack, &[2.0]));
    assert!(!node.is_quiet());
    end(&mut node, DRIVER);
    assert!(node.is_quiet());
    let find = FindGroup { request: 0, group: Some(GROUP), title: None, attempt: None };
    assert_eq!(news(&send(&mut node, OTHER, find)), [GroupPhase::Removed]);
}

#[test]
fn what_is_bound_to_a_node_that_is_not_there_is_told_once_that_it_never_runs() {
    let mut node = node(2.0);
    let bound = |node, soft| Some(Box::new(Strategy::Node(NodeAffinity { node: NodeId(node), soft })));
    let hard = RequestLease { strategy: bound(7 << 24, false), ..request(3, 1) };
    let out = send(&mut node, DRIVER, hard.clone());
    let [NodeAction::Send(DRIVER, message)] = &out[..] else { panic!("{out:?}") };
    let Message::Infeasible(Infeasible { closed: Some(closed), .. }) = &**message else {
        panic!("{message:?}")
    };
    let Closed { shape, failure, .. } = &**closed;
    assert_eq!((*shape, failure.code), (ShapeId(3), FailureCode::TaskUnschedulable));
    assert_eq!(send(&mut node, DRIVER, hard), []);
    let out = send(&mut node, DRIVER, RequestLease { strategy: bound(7 << 24, true), ..request(4, 1) });
    assert_eq!(out, [NodeAction::StartWorker(WorkerId(101))]);
}

#[test]
fn what_needs_other_labels_waits_and_is_told_so() {
    let mut node = node(2.0);
    node.set_labels(vec![("zone".to_owned(), "a".to_owned())]);
    let labels = |value: &str| {
        let hard = vec![LabelTerm { key: "zone".to_owned(), test: LabelTest::In(vec![value.to_owned()]) }];
        Some(Box::new(Strategy::Labels(NodeLabels { hard, ..NodeLabels::default() })))
    };
    let out = send(&mut node, DRIVER, RequestLease { strategy: labels("b"), ..request(0, 1) });
    let reason = Some("no node meets the labels zone in (b)".to_owned());
    let report = Infeasible { asked: cpus(1.0), total: cpus(2.0), closed: None, reason };
    assert_eq!(out, [told(DRIVER, report)]);
    let out = send(&mut node, DRIVER, RequestLease { strategy: labels("a"), ..request(1, 1) });
    assert_eq!(out, [NodeAction::StartWorker(WorkerId(101))]);
}

#[test]
fn the_more_urgent_demand_is_met_first_and_gets_leases_back_from_the_less_urgent() {
    let mut node = node(1.0);
    connect(&mut node, OTHER);
    send(&mut node, OTHER, request(0, 5));
    let granted = grants(&connect(&mut node, WorkerId(101)));
    let [(_, lease, _)] = granted[..] else { panic!("{granted:?}") };
    let out = send(&mut node, DRIVER, RequestLease { priority: Some(3), ..request(0, 1) });
    assert_eq!(out, [told(OTHER, ReclaimLease { count: 1, lease: None })], "although it has only one");
    send(&mut node, DRIVER, RequestLease { priority: Some(9), ..request(1, 1) });
    // The two are drivers: neither gets a worker of the other.
    assert_eq!(send(&mut node, OTHER, ReturnLease { lease }), [NodeAction::StartWorker(WorkerId(102))]);
    let out = connect(&mut node, WorkerId(102));
    assert_eq!(grants(&out).into_iter().map(|(shape, ..)| shape).collect::<Vec<_>>(), [ShapeId(1)]);
}
