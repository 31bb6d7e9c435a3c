//! Where work and bundles go, judged by a checker that knows only what each strategy promises.

use proptest::prelude::*;
use sooner_protocol::scheduling::policy::{Asked, Choice, NodeRow, Turns, choose, holder_of_most};
use sooner_protocol::scheduling::{Unplaced, place_bundles};
use sooner_wire::message::{Bundle, GroupStrategy};
use sooner_wire::strategy::{LabelTerm, LabelTest, NodeAffinity, NodeLabels};
use sooner_wire::{NodeId, ResourceSet, Strategy as Where};

fn set(cpu: u32, gpu: u32) -> ResourceSet {
    ResourceSet::from_amounts([("CPU".to_owned(), f64::from(cpu)), ("GPU".to_owned(), f64::from(gpu))])
}

fn row(node: u64, total: (u32, u32), used: (u32, u32), zone: u8) -> NodeRow {
    let mut free = set(total.0, total.1);
    let _ = free.subtract(&set(used.0, used.1));
    let labels = vec![("zone".to_owned(), zone.to_string())];
    NodeRow { node: NodeId(node), total: set(total.0, total.1), free, labels }
}

fn in_zone(zone: u8) -> LabelTerm {
    LabelTerm { key: "zone".to_owned(), test: LabelTest::In(vec![zone.to_string()]) }
}

fn rows(most: usize) -> impl Strategy<Value = Vec<NodeRow>> {
    let node = ((0u32..6, 0u32..2), (0u32..6, 0u32..2), 0u8..3);
    let number = |(at, (total, used, zone))| row(at as u64 + 1, total, used, zone);
    prop::collection::vec(node, 1..most)
        .prop_map(move |nodes| nodes.into_iter().enumerate().map(number).collect())
}

fn strategies() -> impl Strategy<Value = Option<Where>> {
    let labels = |(hard, soft, spread): (Option<u8>, Option<u8>, bool)| {
        let term = |zone: Option<u8>| zone.map(in_zone).into_iter().collect();
        Some(Where::Labels(NodeLabels { hard: term(hard), soft: term(soft), spread }))
    };
    prop_oneof![
        Just(None),
        Just(Some(Where::Spread)),
        (1u64..9, any::<bool>())
            .prop_map(|(node, soft)| Some(Where::Node(NodeAffinity { node: NodeId(node), soft }))),
        (prop::option::of(0u8..3), prop::option::of(0u8..3), any::<bool>()).prop_map(labels),
    ]
}

fn meets(row: &NodeRow, terms: &[LabelTerm]) -> bool {
    terms.iter().all(|term| term.is_met(&row.labels))
}

/// Whether work with this strategy may run on a node at all.
fn is_allowed(row: &NodeRow, strategy: Option<&Where>) -> bool {
    match strategy {
        Some(Where::Node(affinity)) => affinity.soft || row.node == affinity.node,
        Some(Where::Labels(labels)) => meets(row, &labels.hard),
        Some(Where::Spread | Where::Group(_)) | None => true,
    }
}

proptest! {
    #[test]
    fn work_goes_where_it_may_and_has_room(
        rows in rows(7),
        strategy in strategies(),
        asked in (0u32..4, 0u32..2),
        (local, prefer, before) in
            (1u64..7, prop::option::of(1u64..9), prop::collection::vec(1u64..9, 0..9)),
    ) {
        let request = set(asked.0, asked.1);
        let strategy = strategy.as_ref();
        let (local, prefer) = (NodeId(local), prefer.map(NodeId));
        let mut turns = Turns::default();
        before.into_iter().for_each(|node| turns.note(Some(&Where::Spread), NodeId(node)));
        let turns = Some(&turns);
        let choice = choose(&rows, &Asked { request: &request, strategy, local, prefer, turns, resting: None });
        let fits = |row: &&NodeRow| is_allowed(row, strategy) && row.free.covers(&request);
        let fitting: Vec<&NodeRow> = rows.iter().filter(fits).collect();
        let feasible = rows.iter().any(|row| is_allowed(row, strategy) && row.total.covers(&request));
        match choice {
            Choice::On(node) => {
                let row = fitting.iter().find(|row| row.node == node);
                prop_assert!(row.is_some(), "{node:?} has no room or may not be used");
                if let Some(Where::Labels(labels)) = strategy {
                    let has_better = fitting.iter().any(|row| meets(row, &labels.soft));
                    prop_assert!(!has_better || meets(row.expect("found"), &labels.soft), "soft labels");
                }
                if let Some(Where::Node(affinity)) = strategy {
                    prop_assert!(node == affinity.node || !fitting.iter().any(|row| row.node == affinity.node));
                }
                let is_bound = matches!(strategy, Some(Where::Node(_) | Where::Labels(_)));
                if let (Some(prefer), false) = (prefer, is_bound) {
                    prop_assert!(node == prefer || !fitting.iter().any(|row| row.node == prefer), "locality");
                }
            }
            Choice::Wait => {
                prop_assert!(feasible);
                prop_assert!(fitting.is_empty(), "it waits only when nothing that it may use has room");
            }
            Choice::Lacking(_) => prop_assert!(!feasible && !matches!(strategy, Some(Where::Node(a)) if !a.soft)),
            Choice::Never(_) => {
                prop_assert!(!feasible && matches!(strategy, Some(Where::Node(affinity)) if !affinity.soft));
            }
        }
    }

    /// Whatever else is placed between them.
    #[test]
    fn what_is_spread_is_spread_evenly_over_the_nodes_with_room(
        used in prop::collection::vec(0u32..4, 2..6),
        others in prop::collection::vec(0u64..9, 0..40),
        is_labelled in any::<bool>(),
    ) {
        let rows = (1..).zip(&used).map(|(node, used)| row(node, (1000, 0), (*used, 0), 0));
        let rows: Vec<NodeRow> = rows.collect();
        let labels = NodeLabels { hard: vec![in_zone(0)], soft: vec![], spread: true };
        let spread = if is_labelled { Where::Labels(labels) } else { Where::Spread };
        let (request, strategy, local) = (set(1, 0), Some(&spread), NodeId(1));
        let (mut turns, mut counts) = (Turns::default(), vec![0u32; used.len()]);
        for other in others {
            turns.note(None, NodeId(other));
            let before = Some(&turns);
            let asked =
                Asked { request: &request, strategy, local, prefer: None, turns: before, resting: None };
            let Choice::On(node) = choose(&rows, &asked) else { panic!("there is room") };
            turns.note(strategy, node);
            counts[usize::try_from(node.0 - 1).expect("few")] += 1;
            let (most, least) = (counts.iter().max().expect("some"), counts.iter().min().expect("some"));
            prop_assert!(most - least <= 1, "{counts:?}");
        }
    }

    #[test]
    fn bundles_keep_the_promise_of_their_strategy(
        rows in rows(6),
        wanted in prop::collection::vec(((0u32..4, 0u32..2), prop::option::of(0u8..3)), 1..6),
        strategy in prop_oneof![
            Just(GroupStrategy::Pack), Just(GroupStrategy::Spread),
            Just(GroupStrategy::StrictPack), Just(GroupStrategy::StrictSpread)
        ],
        taken in prop::collection::vec(1u64..7, 0..3),
    ) {
        let bundles: Vec<Bundle> = wanted
            .into_iter()
            .map(|((cpu, gpu), zone)| Bundle {
                resources: set(cpu.max(1), gpu),
                labels: zone.map(in_zone).into_iter().collect(),
            })
            .collect();
        let open: Vec<(u32, &Bundle)> = (0..).zip(&bundles).collect();
        // Bundles that are placed already keep the promise, too.
        let mut taken: Vec<NodeId> = taken.into_iter().map(NodeId).collect();
        match strategy {
            GroupStrategy::StrictPack => taken.truncate(1),
            GroupStrategy::StrictSpread => {
                taken.sort();
                taken.dedup();
            }
            GroupStrategy::Pack | GroupStrategy::Spread => {}
        }
        let found = place_bundles(&open, strategy, &taken, &rows);
        let free = |row: &NodeRow| row.free.clone();
        let total = |row: &NodeRow| row.total.clone();
        let is_strict = matches!(strategy, GroupStrategy::StrictPack | GroupStrategy::StrictSpread);
        match found {
            Ok(places) => {
                prop_assert_eq!(places.len(), bundles.len());
                judge(&bundles, &places, strategy, &taken, &rows)?;
            }
            Err(Unplaced::Busy(_)) if is_strict => {
                prop_assert!(!is_possible(&bundles, strategy, &taken, &rows, free));
                prop_assert!(is_possible(&bundles, strategy, &taken, &rows, total));
            }
            Err(Unplaced::Lacking(_)) if is_strict => {
                prop_assert!(!is_possible(&bundles, strategy, &taken, &rows, total));
            }
            Err(_) => {
                // Best effort: at least a single bundle finds any node that has room.
                let is_simple = bundles.len() == 1;
                prop_assert!(!is_simple || !is_possible(&bundles, strategy, &taken, &rows, free));
            }
        }
    }
}

/// Nothing is given away twice, labels are met, and strict strategies are kept.
fn judge(
    bundles: &[Bundle],
    places: &[(u32, NodeId)],
    strategy: GroupStrategy,
    taken: &[NodeId],
    rows: &[NodeRow],
) -> Result<(), TestCaseError> {
    let mut room: Vec<ResourceSet> = rows.iter().map(|row| row.free.clone()).collect();
    let mut nodes = taken.to_vec();
    for (index, node) in places {
        let at = rows.iter().position(|row| row.node == *node).expect("a node that exists");
        let bundle = &bundles[*index as usize];
        prop_assert!(meets(&rows[at], &bundle.labels));
        prop_assert!(room[at].subtract(&bundle.resources).is_empty(), "more than there is");
        nodes.push(*node);
    }
    let count = nodes.len();
    nodes.sort();
    nodes.dedup();
    match strategy {
        GroupStrategy::StrictPack => prop_assert_eq!(nodes.len(), 1),
        GroupStrategy::StrictSpread => prop_assert_eq!(nodes.len(), count),
        GroupStrategy::Pack | GroupStrategy::Spread => {}
    }
    Ok(())
}

/// Tries every way.
fn is_possible(
    bundles: &[Bundle],
    strategy: GroupStrategy,
    taken: &[NodeId],
    rows: &[NodeRow],
    room: impl Fn(&NodeRow) -> ResourceSet,
) -> bool {
    fn search(
        bundles: &[Bundle],
        strategy: GroupStrategy,
        nodes: &mut Vec<NodeId>,
        rows: &[NodeRow],
        room: &mut Vec<ResourceSet>,
    ) -> bool {
        let Some((bundle, rest)) = bundles.split_first() else { return true };
        (0..rows.len()).any(|at| {
            let is_free = match strategy {
                GroupStrategy::StrictPack => nodes.iter().all(|node| *node == rows[at].node),
                GroupStrategy::StrictSpread => !nodes.contains(&rows[at].node),
                GroupStrategy::Pack | GroupStrategy::Spread => true,
            };
            if !is_free || !room[at].covers(&bundle.resources) || !meets(&rows[at], &bundle.labels) {
                return false;
            }
            let before = room[at].clone();
            let _ = room[at].subtract(&bundle.resources);
            nodes.push(rows[at].node);
            let is_found = search(rest, strategy, nodes, rows, room);
            nodes.pop();
            room[at] = before;
            is_found
        })
    }
    let mut nodes = taken.to_vec();
    search(bundles, strategy, &mut nodes, rows, &mut rows.iter().map(room).collect())
}

/// The node of work that needs so many CPUs, asked for on node 1.
fn packed(rows: &[NodeRow], cpu: u32) -> Choice {
    let request = set(cpu, 0);
    choose(
        rows,
        &Asked {
            request: &request,
            strategy: None,
            local: NodeId(1),
            prefer: None,
            turns: None,
            resting: None,
        },
    )
}

#[test]
fn nodes_are_packed_until_half_and_spread_from_there_on() {
    let rows = |used: [u32; 3]| -> Vec<NodeRow> {
        (1..).zip(used).map(|(node, used)| row(node, (10, 0), (used, 0), 0)).collect()
    };
    assert_eq!(packed(&rows([4, 0, 0]), 1), Choice::On(NodeId(1)), "its caller's node first");
    assert_eq!(packed(&rows([5, 4, 0]), 1), Choice::On(NodeId(2)), "packed on the next one");
    assert_eq!(packed(&rows([7, 6, 8]), 1), Choice::On(NodeId(2)), "all are above: the emptiest");
    assert_eq!(packed(&rows([10, 10, 10]), 1), Choice::Wait);
    assert!(matches!(packed(&rows([0, 0, 0]), 11), Choice::Lacking(text) if text.contains("11 CPU")));
}

#[test]
fn what_needs_no_gpu_stays_away_from_nodes_that_have_one() {
    let rows = [row(1, (4, 2), (0, 0), 0), row(2, (4, 0), (3, 0), 0)];
    assert_eq!(packed(&rows, 1), Choice::On(NodeId(2)));
    assert_eq!(packed(&rows, 2), Choice::On(NodeId(1)), "there is no other room");
}

#[test]
fn spread_takes_turns_among_those_that_have_room() {
    let rows: Vec<NodeRow> =
        [(1, 2), (2, 0), (3, 1)].map(|(node, used)| row(node, (4, 0), (used, 0), 0)).into();
    let request = set(1, 0);
    let mut turns = Turns::default();
    let mut next = |rows: &[NodeRow]| {
        let strategy = Some(&Where::Spread);
        let (local, turns_before) = (NodeId(1), Some(&turns));
        let asked =
            Asked { request: &request, strategy, local, prefer: None, turns: turns_before, resting: None };
        let Choice::On(node) = choose(rows, &asked) else { panic!("there is room") };
        turns.note(strategy, node);
        node.0
    };
    assert_eq!([(); 4].map(|()| next(&rows)), [2, 3, 1, 2], "the emptiest first, then in turn");
    assert_eq!([(); 2].map(|()| next(&rows[..2])), [1, 2], "the third one is full");
    let joined: Vec<NodeRow> = rows.into_iter().chain([row(4, (4, 0), (3, 0), 0)]).collect();
    assert_eq!([(); 5].map(|()| next(&joined)), [4, 3, 1, 2, 4], "one that joins is among them");
}

#[test]
fn the_holder_of_most_bytes_is_found() {
    let bytes = |pairs: &[(u64, u64)]| holder_of_most(pairs.iter().map(|(node, n)| (NodeId(*node), *n)));
    assert_eq!(bytes(&[]), None);
    assert_eq!(bytes(&[(1, 10), (2, 15), (1, 6)]), Some(NodeId(1)));
    assert_eq!(bytes(&[(3, 5), (2, 5)]), Some(NodeId(3)), "of equals the first");
}

#[test]
fn what_is_missing_is_sent() {
    let rows = [row(1, (4, 0), (0, 0), 0)];
    let send = |cpus: &[u32], strategy| {
        let bundles: Vec<Bundle> =
            cpus.iter().map(|cpu| Bundle { resources: set(*cpu, 0), labels: vec![] }).collect();
        let open: Vec<(u32, &Bundle)> = (0..).zip(&bundles).collect();
        match place_bundles(&open, strategy, &[], &rows) {
            Err(Unplaced::Lacking(text) | Unplaced::Busy(text)) => text,
            Ok(places) => panic!("{places:?}"),
        }
    };
    let spread = send(&[1, 1], GroupStrategy::StrictSpread);
    assert!(spread.contains("2 bundles") && spread.contains("has 1"), "{spread}");
    assert!(send(&[9], GroupStrategy::Pack).contains("9 CPU"));
    assert!(send(&[3, 3], GroupStrategy::StrictPack).contains("6 CPU"));
    assert!(send(&[3, 3], GroupStrategy::Pack).contains("together"));
}
