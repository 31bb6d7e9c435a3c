//! Where actors go in a cluster by what its nodes have free, and how one that waits at a node goes to another
//! that has room first.

use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, proptest};
use sooner_protocol::control::{Directory, DirectoryAction, DirectoryActions};
use sooner_protocol::node::{NodeAction, NodeActions, NodeCore};
use sooner_protocol::scheduling::policy::NodeRow;
use sooner_protocol::time::Instant;
use sooner_protocol::uplink::{End, PlaceActor, ToControl, ToNode};
use sooner_wire::limits::REFUSAL_NANOS;
use sooner_wire::message::{CreateActor, Dependency, Location, Outcome, Remote};
use sooner_wire::{ActorId, NodeId, ResourceSet, Strategy, Takeover, TaskId, WorkerId};

use super::draining::{placed_on, send};
use super::{NOW, cpus, create, creation_of};

const HOME: NodeId = NodeId(1 << 24);
const SECOND: NodeId = NodeId(2 << 24);
const THIRD: NodeId = NodeId(3 << 24);
const PROGRAM: WorkerId = WorkerId(HOME.0 + 1);

fn directory(counts: &[(NodeId, f64)]) -> Directory {
    let mut control = Directory::default();
    for (node, count) in counts {
        let (free, total) = (cpus(*count), cpus(*count));
        control.on_node_joined(NodeRow { node: *node, free, total, labels: Vec::new() });
    }
    control
}

/// An actor that holds a CPU.
fn holds(number: u64) -> CreateActor {
    CreateActor { lifetime: cpus(1.0), ..create(actor(number)) }
}

/// One that holds nothing.
fn rests(number: u64) -> CreateActor {
    CreateActor { lifetime: ResourceSet::default(), ..create(actor(number)) }
}

fn actor(number: u64) -> ActorId {
    TaskId { owner: PROGRAM, number }
}

fn ask(control: &mut Directory, create: &CreateActor) -> Vec<NodeId> {
    let message = Box::new(create.clone().into());
    let out = send(control, HOME, ToControl::Routed { from: PROGRAM, message });
    placed_on(&out).into_iter().map(|(node, _)| node).collect()
}

fn begins(control: &mut Directory, number: u64, node: NodeId) {
    let worker = WorkerId(node.0 + 100 + number);
    send(control, node, ToControl::ActorPlaced { actor: actor(number), takeover: Takeover(0), worker });
}

fn reports(control: &mut Directory, node: NodeId, total: f64, free: f64, now: Instant) -> DirectoryActions {
    let (free, total) = (cpus(free), cpus(total));
    control.on_report(NodeRow { node, free, total, labels: Vec::new() });
    let mut out = DirectoryActions::new();
    control.after_events(now, &mut out);
    out
}

fn recalled(out: &DirectoryActions) -> Vec<(NodeId, ActorId)> {
    let recalled = |action: &DirectoryAction| match action {
        DirectoryAction::Send(node, word) => match &**word {
            ToNode::EndActor { actor, end: End::Recalled, .. } => Some((*node, *actor)),
            _ => None,
        },
        DirectoryAction::Warn(_) | DirectoryAction::Persist(..) => None,
    };
    out.iter().filter_map(recalled).collect()
}

fn given_back(control: &mut Directory, node: NodeId, create: CreateActor) -> DirectoryActions {
    let (actor, create) = (create.actor, Some(Box::new(create)));
    let reason = String::new();
    send(
        control,
        node,
        ToControl::PlaceRefused {
            actor,
            takeover: Takeover(0),
            reason,
            create,
            no_workers: false,
            for_now: false,
        },
    )
}

#[test]
fn actors_fill_all_nodes_and_then_wait_at_home() {
    let mut control = directory(&[(HOME, 1.0), (SECOND, 2.0)]);
    let went: Vec<NodeId> = (0..4).flat_map(|number| ask(&mut control, &holds(number))).collect();
    assert_eq!(went, [HOME, SECOND, SECOND, HOME], "by what was sent there, before anybody has reported");
}

proptest! {
    /// Asked for together, with others between them, and whatever the nodes have of their own.
    #[test]
    fn actors_that_are_spread_differ_by_one_at_most_between_nodes_with_room(
        used in prop::collection::vec(0u32..20, 2..6),
        others in prop::collection::vec(0u64..3, 0..30),
        holds_nothing in any::<bool>(),
        batch in 1usize..31,
    ) {
        let mut control = Directory::default();
        let node = |at: usize| NodeId((at as u64 + 1) << 24);
        for (at, used) in used.iter().enumerate() {
            let (free, total) = (cpus(100.0 - f64::from(*used)), cpus(100.0));
            control.on_node_joined(NodeRow { node: node(at), free, total, labels: Vec::new() });
        }
        let mut counts = vec![0; used.len()];
        let mut number = 0;
        for batch in others.chunks(batch) {
            let mut out = DirectoryActions::new();
            let mut spread = Vec::new();
            for others in batch {
                for is_spread in (0..*others).map(|_| false).chain([true]) {
                    number += 1;
                    let mut create = if holds_nothing { rests(number) } else { holds(number) };
                    if is_spread {
                        creation_of(&mut create).scheduling.strategy = Some(Box::new(Strategy::Spread));
                        spread.push(create.actor);
                    }
                    let message = Box::new(create.into());
                    control.on_node(HOME, ToControl::Routed { from: PROGRAM, message }, NOW, &mut out);
                }
            }
            control.after_events(NOW, &mut out);
            for action in out {
                let DirectoryAction::Send(to, word) = action else { continue };
                if let ToNode::PlaceActor(place) = *word
                    && spread.contains(&place.create.actor)
                {
                    let at = (0..used.len()).find(|at| node(*at) == to);
                    counts[at.expect("one of them")] += 1;
                }
            }
            let (most, least) = (counts.iter().max().expect("some"), counts.iter().min().expect("some"));
            prop_assert!(most - least <= 1, "{counts:?}");
        }
        prop_assert_eq!(counts.iter().sum::<usize>(), others.len());
    }
}

#[test]
fn actors_that_hold_nothing_are_counted() {
    let mut control = directory(&[(HOME, 2.0), (SECOND, 2.0), (THIRD, 4.0)]);
    let mut counts = [0; 3];
    for number in 0..16 {
        let [node] = ask(&mut control, &rests(number))[..] else { panic!("it goes somewhere") };
        begins(&mut control, number, node);
        let total = if node == THIRD { 4.0 } else { 2.0 };
        reports(&mut control, node, total, total, NOW);
        counts[[HOME, SECOND, THIRD].iter().position(|known| *known == node).expect("one of them")] += 1;
    }
    assert_eq!(counts, [4, 4, 8], "by what the nodes have");
    // Those that end count no more.
    let gone = sooner_wire::message::WorkerDead {
        worker: WorkerId(1),
        last_started: Some(actor(0)),
        ..Default::default()
    };
    for number in 0..16 {
        let gone = Box::new(gone.clone());
        send(
            &mut control,
            HOME,
            ToControl::ActorProcessDead { actor: actor(number), takeover: Takeover(0), gone },
        );
    }
    assert_eq!(ask(&mut control, &rests(20)), [HOME]);
}

#[test]
fn an_actor_goes_to_its_arguments_if_there_is_room() {
    let mut control = directory(&[(HOME, 4.0), (SECOND, 4.0), (THIRD, 1.0)]);
    let with = |number, node, length| {
        let mut create = holds(number);
        let location = Location { offset: 0, length };
        let outcome = Outcome::Remote(Box::new(Remote { node, location }));
        let object = TaskId { owner: PROGRAM, number: 99 }.object(0);
        create.constructor.dependencies.push(Dependency { object, outcome, contained: Vec::new() });
        create
    };
    assert_eq!(ask(&mut control, &with(1, THIRD, 1 << 20)), [THIRD]);
    assert_eq!(ask(&mut control, &with(2, THIRD, 1 << 20)), [HOME], "it is full");
    assert_eq!(ask(&mut control, &with(3, SECOND, 1 << 20)), [SECOND]);
}

#[test]
fn what_waits_goes_to_the_node_that_has_room_first() {
    let mut control = directory(&[(HOME, 1.0), (SECOND, 1.0)]);
    for (number, node) in [(1, HOME), (2, SECOND)] {
        assert_eq!(ask(&mut control, &holds(number)), [node]);
        begins(&mut control, number, node);
        assert_eq!(recalled(&reports(&mut control, node, 1.0, 0.0, NOW)), []);
    }
    assert_eq!(ask(&mut control, &holds(3)), [HOME]);
    assert_eq!(ask(&mut control, &holds(4)), [HOME]);
    assert_eq!(recalled(&reports(&mut control, HOME, 1.0, 0.0, NOW)), []);
    let out = reports(&mut control, SECOND, 1.0, 1.0, NOW);
    assert_eq!(
        recalled(&out),
        [(HOME, actor(3))],
        "the one that has waited longest, and no more than have room"
    );
    // Another one that comes meanwhile does not take its place.
    assert_eq!(ask(&mut control, &holds(5)), [HOME]);
    assert_eq!(placed_on(&given_back(&mut control, HOME, holds(3))), [(SECOND, 0)]);
    begins(&mut control, 3, SECOND);
    // The node of one that was asked back stays one where things begin.
    assert_eq!(ask(&mut control, &holds(6)), [HOME]);
}

#[test]
fn an_answer_for_an_actor_that_is_gone_says_nothing_of_its_node() {
    let mut control = directory(&[(HOME, 1.0), (SECOND, 1.0)]);
    for (number, node) in [(1, HOME), (2, SECOND)] {
        assert_eq!(ask(&mut control, &holds(number)), [node]);
        begins(&mut control, number, node);
        reports(&mut control, node, 1.0, 0.0, NOW);
    }
    let restarts = Some(3);
    let creator = WorkerId(HOME.0 + 2);
    let waits = TaskId { owner: creator, number: 3 };
    let creation = CreateActor { restarts, lifetime: cpus(1.0), ..create(waits) };
    let message = Box::new(creation.clone().into());
    let out = send(&mut control, HOME, ToControl::Routed { from: creator, message });
    assert_eq!(placed_on(&out), [(HOME, 0)]);
    assert_eq!(recalled(&reports(&mut control, SECOND, 1.0, 1.0, NOW)), [(HOME, waits)]);
    // It ends with its creator before its node has answered.
    send(&mut control, HOME, ToControl::ProcessLeaves { process: creator });
    assert_eq!(given_back(&mut control, HOME, creation), []);
    // The node does not leave: what begins there stays, and so does what it has free.
    assert_eq!(recalled(&reports(&mut control, HOME, 1.0, 1.0, NOW)), []);
    let next = CreateActor { restarts, ..holds(4) };
    assert_eq!(ask(&mut control, &next), [HOME]);
    let placed =
        ToControl::ActorPlaced { actor: actor(4), takeover: Takeover(0), worker: WorkerId(HOME.0 + 104) };
    let out = send(&mut control, HOME, placed);
    let ends = |action: &DirectoryAction| matches!(action, DirectoryAction::Send(_, word) if matches!(**word, ToNode::EndActor { .. }));
    assert!(!out.iter().any(ends), "{out:?}");
}

#[test]
fn what_was_sent_where_there_was_no_room_after_all_does_not_stay() {
    let mut control = directory(&[(HOME, 1.0), (SECOND, 1.0)]);
    assert_eq!(ask(&mut control, &holds(1)), [HOME]);
    // The node was full by the time it heard of that, and says nothing.
    assert_eq!(recalled(&reports(&mut control, HOME, 1.0, 0.0, NOW)), [], "it may be about to begin");
    let due = control.next_deadline().expect("it is looked at again");
    let mut out = DirectoryActions::new();
    control.after_events(due, &mut out);
    assert_eq!(recalled(&out), [(HOME, actor(1))]);
    // A word that was lost, or came too early, is said again.
    let again = control.next_deadline().expect("and again");
    let mut out = DirectoryActions::new();
    control.after_events(again, &mut out);
    assert_eq!(recalled(&out), [(HOME, actor(1))]);
    // It has begun meanwhile.
    begins(&mut control, 1, HOME);
    let end = control.next_deadline();
    let mut out = DirectoryActions::new();
    control.after_events(Instant(end.map_or(again.0, |end| end.0) + 1_000_000_000), &mut out);
    assert_eq!((recalled(&out), control.next_deadline()), (vec![], None));
}

fn place(number: u64, turn: u64) -> ToNode {
    let create = Box::new(holds(number));
    let restarts = Some(0);
    let (name, description) = (None, None);
    ToNode::PlaceActor(Box::new(PlaceActor {
        takeover: Takeover(0),
        turn,
        name,
        restores: false,
        create,
        restarts,
        description,
    }))
}

#[test]
fn a_node_gives_back_what_waits_and_nothing_that_has_its_room() {
    let mut node = NodeCore::new(cpus(1.0), HOME.0, 2);
    node.join_cluster();
    let mut out = NodeActions::new();
    node.on_control(place(1, 1), &mut out);
    node.on_control(place(2, 2), &mut out);
    node.after_events(NOW, &mut out);
    let mut recall = |number| {
        let mut out = NodeActions::new();
        let end = End::Recalled;
        node.on_control(ToNode::EndActor { actor: actor(number), takeover: Takeover(0), end }, &mut out);
        out.into_iter().filter(|action| matches!(action, NodeAction::Control(_))).collect::<Vec<_>>()
    };
    assert_eq!(recall(1), [], "its worker is on its way");
    let back = recall(2);
    assert!(
        matches!(&back[..], [NodeAction::Control(ToControl::PlaceRefused { actor: id, create: Some(_), no_workers: false, .. })] if *id == actor(2)),
        "{back:?}"
    );
    assert_eq!(recall(2), [], "it is not there any more");
}

#[test]
fn a_node_that_could_start_no_worker_for_an_actor_may_have_it_when_none_has_refused_it_for_long() {
    let mut control = directory(&[(HOME, 1.0), (SECOND, 1.0)]);
    assert_eq!(ask(&mut control, &holds(1)), [HOME]);
    begins(&mut control, 1, HOME);
    reports(&mut control, HOME, 1.0, 0.0, NOW);
    assert_eq!(ask(&mut control, &holds(2)), [SECOND]);
    let (actor, reason) = (actor(2), "too many processes".to_owned());
    let create = Some(Box::new(holds(2)));
    let refused = ToControl::PlaceRefused {
        actor,
        takeover: Takeover(0),
        reason,
        create,
        no_workers: false,
        for_now: true,
    };
    assert_eq!(placed_on(&send(&mut control, SECOND, refused)).len(), 1, "it waits where its creator is");
    let early = reports(&mut control, SECOND, 1.0, 1.0, NOW.plus(REFUSAL_NANOS - 1));
    assert_eq!(recalled(&early), [], "the other node may have no workers yet");
    assert!(control.next_deadline().is_some_and(|at| at <= NOW.plus(REFUSAL_NANOS)));
    let mut out = DirectoryActions::new();
    control.after_events(NOW.plus(REFUSAL_NANOS), &mut out);
    assert_eq!(recalled(&out), [(HOME, actor)]);
}
