//! Who could serve what, and who is told.

use proptest::prelude::*;

use sooner_wire::Strategy;
use sooner_wire::message::AboutNode;
use sooner_wire::strategy::{LabelTest, NodeAffinity, NodeLabels};

use super::*;

fn cpus(count: f64) -> ResourceSet {
    ResourceSet::from_amounts([("CPU".to_owned(), count)])
}

fn at(millis: u64) -> Instant {
    Instant(millis * 1_000_000)
}

fn row(id: u64, total: ResourceSet) -> NodeRow {
    let about = AboutNode {
        kind: kind::DAEMON,
        name: format!("n{id}"),
        address: None,
        host: String::new(),
        boot_id: String::new(),
        resources: total,
        labels: vec![],
    };
    NodeRow { node: NodeId(id), about, state: node_state::ALIVE, is_slow: false }
}

fn report(version: u64, free: f64, waiting: u32) -> ResourceReport {
    let demand = vec![ShapeDemand { resources: cpus(1.0), count: waiting }];
    ResourceReport {
        version,
        free: cpus(free),
        demand: if waiting > 0 { demand } else { vec![] },
        bundles: None,
    }
}

/// Nodes of four CPUs with so many free.
fn view(free: &[f64]) -> View {
    let mut view = View::default();
    for (number, free) in (1..).zip(free) {
        view.on_node(&row(number, cpus(4.0)));
        view.on_report(NodeId(number), report(1, *free, 0)).expect("resources");
    }
    view
}

fn ids(candidates: &[Candidate]) -> Vec<(u64, bool)> {
    candidates.iter().map(|candidate| (candidate.node.0, candidate.is_free)).collect()
}

#[test]
fn the_fullest_that_fits_comes_first_then_the_least_busy() {
    let mut view = view(&[4.0, 1.0, 2.0, 0.0, 0.0]);
    view.on_report(NodeId(4), report(2, 0.0, 9)).expect("resources");
    let found = view.candidates(&cpus(1.0), 5, None, 0);
    assert_eq!(ids(&found), [(2, true), (3, true), (1, true), (5, false), (4, false)]);
    let found = view.candidates(&cpus(2.0), 2, Some(NodeId(3)), 0);
    assert_eq!(ids(&found), [(1, true), (2, false)], "not who asks, and not more than asked for");
}

#[test]
fn equals_are_told_apart_by_the_seed() {
    let view = view(&[4.0; 4]);
    let mut first: Vec<u64> =
        (0..4).map(|seed| view.candidates(&cpus(1.0), 1, None, seed)[0].node.0).collect();
    first.sort_unstable();
    assert_eq!(first, [1, 2, 3, 4]);
}

#[test]
fn what_no_node_has_has_no_candidate() {
    let mut view = view(&[4.0]);
    assert!(view.is_feasible(&cpus(4.0)) && !view.is_feasible(&cpus(5.0)));
    assert_eq!(view.candidates(&cpus(5.0), 3, None, 0), []);
    view.on_node(&NodeRow { state: node_state::DRAINING, ..row(1, cpus(4.0)) });
    let mut driver = row(2, cpus(4.0));
    driver.about.kind = kind::DRIVER;
    view.on_node(&driver);
    assert_eq!(view.candidates(&cpus(1.0), 3, None, 0), [], "one leaves, the other is a driver");
    assert!(!view.is_feasible(&cpus(1.0)));
}

#[test]
fn who_refused_is_full_until_it_reports() {
    let mut view = view(&[4.0, 1.0]);
    view.on_refused(NodeId(2));
    assert_eq!(ids(&view.candidates(&cpus(1.0), 2, None, 0)), [(1, true), (2, false)]);
    view.on_report(NodeId(2), report(2, 1.0, 0)).expect("resources");
    assert_eq!(ids(&view.candidates(&cpus(1.0), 1, None, 0)), [(2, true)]);
}

#[test]
fn older_reports_and_those_of_strangers_change_nothing() {
    let mut view = view(&[4.0]);
    view.on_report(NodeId(1), report(5, 1.0, 2)).expect("resources");
    view.on_report(NodeId(1), report(4, 3.0, 0)).expect("resources");
    view.on_report(NodeId(9), report(1, 3.0, 0)).expect("resources");
    assert_eq!(view.sums(), (cpus(4.0), cpus(1.0)));
    assert_eq!(view.demand(), [ShapeDemand { resources: cpus(1.0), count: 2 }]);
    let mut garbled = report(6, 1.0, 0);
    garbled.free = ResourceSet::from_amounts([(String::new(), 1.0)]);
    assert_eq!(view.on_report(NodeId(1), garbled), Err(NameError::Resource(String::new())));
}

fn told(view: &mut View, millis: u64) -> Vec<(u64, Vec<u64>, bool)> {
    let mut out = Vec::new();
    view.after_events(at(millis), &mut out);
    out.into_iter()
        .map(|(to, message)| {
            let Message::ResourceView(said) = message else { panic!("{message:?}") };
            (to.0, said.rows.iter().map(|row| row.node.0).collect(), said.must_ask)
        })
        .collect()
}

#[test]
fn small_clusters_are_told_what_changed() {
    let mut view = view(&[4.0, 4.0]);
    assert_eq!(told(&mut view, 1), [(1, vec![1, 2], false), (2, vec![1, 2], false)]);
    view.on_report(NodeId(2), report(2, 3.0, 0)).expect("resources");
    assert_eq!(told(&mut view, 50), [], "49 ms after the last news");
    assert_eq!(view.next_deadline(), Some(at(51)));
    assert_eq!(told(&mut view, 51), [(1, vec![2], false), (2, vec![2], false)]);
    assert_eq!(view.next_deadline(), None);
    view.on_joined(&row(3, cpus(1.0)));
    assert_eq!(told(&mut view, 200), [(1, vec![3], false), (2, vec![3], false), (3, vec![1, 2, 3], false)]);
    view.on_dead(NodeId(1));
    assert_eq!(told(&mut view, 300), []);
}

#[test]
fn who_comes_back_is_told_everything_again() {
    let mut view = view(&[4.0, 2.0]);
    told(&mut view, 1);
    view.on_joined(&row(2, cpus(4.0)));
    assert_eq!(told(&mut view, 100), [(1, vec![2], false), (2, vec![1, 2], false)]);
}

#[test]
fn large_ones_ask() {
    let mut view = view(&[4.0; VIEW_NODES_MAX]);
    assert_eq!(told(&mut view, 1).len(), VIEW_NODES_MAX);
    view.on_joined(&row(1000, cpus(1.0)));
    let news = told(&mut view, 100);
    assert_eq!(news.len(), VIEW_NODES_MAX + 1);
    assert!(news.iter().all(|(_, rows, must_ask)| rows.is_empty() && *must_ask));
    view.on_report(NodeId(1), report(2, 3.0, 0)).expect("resources");
    assert_eq!(told(&mut view, 200), [], "said once");
    view.on_dead(NodeId(1000));
    view.on_report(NodeId(1), report(3, 2.0, 0)).expect("resources");
    let news = told(&mut view, 300);
    assert!(news.iter().all(|(_, rows, must_ask)| rows.len() == VIEW_NODES_MAX && !must_ask));
}

#[test]
fn a_search_is_bounded_but_finds_the_only_one() {
    let mut view = View::default();
    for number in 0..3_000 {
        view.on_node(&row(number, cpus(4.0)));
        view.on_report(NodeId(number), report(1, 0.0, 1)).expect("resources");
    }
    view.on_report(NodeId(2_500), report(2, 1.0, 0)).expect("resources");
    let found = view.candidates(&cpus(1.0), 16, None, 7);
    assert_eq!((found.len(), found[0]), (CANDIDATES_MAX, Candidate { node: NodeId(2_500), is_free: true }));
}

proptest! {
    #[test]
    fn candidates_can_and_are_told_once(
        nodes in proptest::collection::vec((1u32..8, 0u32..8, 0u32..4), 0..20),
        asked in 1u32..8,
        count in 0usize..20,
        seed in any::<u64>(),
    ) {
        let mut view = View::default();
        for (number, (total, free, waiting)) in (1..).zip(&nodes) {
            view.on_node(&row(number, cpus(f64::from(*total))));
            let report = report(1, f64::from((*free).min(*total)), *waiting);
            view.on_report(NodeId(number), report).expect("resources");
        }
        let asked = cpus(f64::from(asked));
        let found = view.candidates(&asked, count, None, seed);
        let able = view.rows.values().filter(|row| row.total.covers(&asked)).count();
        prop_assert_eq!(found.len(), able.min(count).min(CANDIDATES_MAX));
        let mut seen = Set::default();
        for candidate in &found {
            prop_assert!(seen.insert(candidate.node));
            prop_assert_eq!(candidate.is_free, view.rows[&candidate.node].can_now(&asked));
        }
        let free: Vec<bool> = found.iter().map(|candidate| candidate.is_free).collect();
        prop_assert!(free.is_sorted_by(|a, b| a >= b), "those that can now come first");
        prop_assert_eq!(view.is_feasible(&asked), able > 0);
    }
}

#[test]
fn a_question_says_where_something_must_be_and_where_it_had_better_be() {
    let mut view = View::default();
    for (number, zone, free) in [(1, "a", 4.0), (2, "b", 3.0), (3, "b", 1.0), (4, "b", 0.0)] {
        let mut row = row(number, cpus(4.0));
        row.about.labels = vec![("zone".to_owned(), zone.to_owned()), ("a".to_owned(), String::new())];
        view.on_node(&row);
        view.on_report(NodeId(number), report(number, free, 0)).expect("resources");
    }
    let zone = |zone: &str| LabelTerm { key: "zone".to_owned(), test: LabelTest::In(vec![zone.to_owned()]) };
    let labels = |hard, soft| Strategy::Labels(NodeLabels { hard, soft, spread: false });
    let on = |node, soft| Strategy::Node(NodeAffinity { node: NodeId(node), soft });
    let ask = |strategy: Option<Strategy>, prefer: Option<u64>| {
        let find = FindNodes {
            request: 7,
            resources: cpus(1.0),
            count: 9,
            strategy: strategy.map(Box::new),
            prefer: prefer.map(NodeId),
        };
        let found = view.find(&find, NodeId(9), 5).expect("resources");
        assert_eq!(found.request, 7);
        let rows = found.rows.expect("what they have");
        assert_eq!(rows.iter().map(|row| row.node).collect::<Vec<_>>(), nodes_of(&found.nodes));
        assert!(rows.iter().all(|row| row.version == row.node.0));
        found.nodes.iter().map(|candidate| candidate.node.0).collect::<Vec<u64>>()
    };
    assert_eq!(ask(None, None), [3, 2, 1, 4], "the fullest that has room first");
    assert_eq!(ask(None, Some(1)), [1, 3, 2, 4]);
    assert_eq!(ask(None, Some(4)), [3, 2, 1, 4], "it has no room");
    assert_eq!(ask(Some(Strategy::Spread), None), [1, 2, 3, 4]);
    assert_eq!(ask(Some(labels(vec![zone("b")], vec![])), None), [3, 2, 4]);
    assert_eq!(ask(Some(labels(vec![], vec![zone("a")])), None), [1, 3, 2, 4]);
    assert_eq!(ask(Some(on(4, false)), None), [4]);
    assert_eq!(ask(Some(on(2, true)), None), [2, 3, 1, 4]);
    assert_eq!(ask(Some(on(8, false)), None), [0; 0]);
    let mut garbled = FindNodes { request: 1, resources: cpus(1.0), count: 1, strategy: None, prefer: None };
    garbled.resources = ResourceSet::from_amounts([(String::new(), 1.0)]);
    assert!(view.find(&garbled, NodeId(9), 0).is_err());
}

fn nodes_of(candidates: &[Candidate]) -> Vec<NodeId> {
    candidates.iter().map(|candidate| candidate.node).collect()
}
