//! A node that leaves: what it gives back, what it hands over, and what the directory makes of its actors.

use sooner_protocol::control::{Directory, DirectoryAction, DirectoryActions};
use sooner_protocol::node::{NodeAction, NodeActions, NodeCore, Room};
use sooner_protocol::scheduling::policy::NodeRow;
use sooner_protocol::uplink::{End, PlaceActor, ToControl, ToNode};
use sooner_wire::message::{
    AboutNode, CreateActor, FreeBlocks, GiveBlock, HandOver, HandedOver, Message, Place, kind, node_state,
};
use sooner_wire::{ActorId, BlockId, NodeId, Takeover, TaskId, WorkerId, message};

use super::{NOW, cpus, create, worker_dead};

const HERE: NodeId = NodeId(1 << 24);
const THERE: NodeId = NodeId(2 << 24);
const FAR: WorkerId = WorkerId((2 << 24) + 1);

fn known(node: NodeId, state: u8) -> message::NodeRow {
    let about = AboutNode {
        kind: kind::DAEMON,
        name: format!("n{}", node.0),
        address: None,
        host: String::new(),
        boot_id: String::new(),
        resources: cpus(4.0),
        labels: Vec::new(),
    };
    message::NodeRow { node, about, state, is_slow: false }
}

/// A node of a cluster, a process of it, and a block of that which belongs to a process of another node.
fn node() -> (NodeCore, WorkerId) {
    let mut node = NodeCore::new(cpus(1.0), HERE.0, 2);
    node.join_cluster();
    node.on_node_known(&known(THERE, node_state::ALIVE));
    let giver = node.new_worker_id();
    node.on_connected(giver, 1, NOW);
    node.on_allocated(BlockId(64), giver);
    let object = Some(TaskId { owner: FAR, number: 1 }.object(0));
    let give = GiveBlock { block: BlockId(64), owner: FAR, object };
    assert_eq!(node.on_message(giver, give.into(), NOW, &mut NodeActions::new()), None);
    (node, giver)
}

fn after_events(node: &mut NodeCore) -> NodeActions {
    let mut out = NodeActions::new();
    node.after_events(NOW, &mut out);
    out
}

fn handed_over(out: &NodeActions) -> Vec<(WorkerId, Message)> {
    let handed = |action: &NodeAction| match action {
        NodeAction::Route { to, message, .. } => Some((*to, (**message).clone())),
        _ => None,
    };
    out.iter().filter_map(handed).filter(|(_, message)| matches!(message, Message::HandOver(_))).collect()
}

#[test]
fn a_node_that_drains_hands_values_over_to_their_owners() {
    let (mut node, _) = node();
    assert_eq!(handed_over(&after_events(&mut node)), [], "it stays");
    node.drain();
    let hand = HandOver { node: HERE, places: vec![BlockId(64).into()] };
    assert_eq!(handed_over(&after_events(&mut node)), [(FAR, hand.into())]);
    assert_eq!(handed_over(&after_events(&mut node)), [], "it is said once");
    assert!(!node.is_drained());
    let done = HandedOver { node: HERE, places: vec![BlockId(64).into()] }.into();
    let mut out = NodeActions::new();
    assert_eq!(node.on_routed(FAR, WorkerId(HERE.0), done, NOW, &mut out), Ok(None));
    assert!(node.is_drained());
    assert!(node.holders().is_held(Place::of(64)), "tasks here may read it");
}

fn routed(node: &mut NodeCore, message: impl Into<Message>) {
    let mut out = NodeActions::new();
    assert_eq!(node.on_routed(FAR, WorkerId(HERE.0), message.into(), NOW, &mut out), Ok(None));
}

fn relieve(node: &mut NodeCore, bytes: u64) -> (bool, Vec<(WorkerId, Message)>) {
    let mut out = NodeActions::new();
    let moves = node.relieve(Room::of(bytes), |_| 100, &mut out);
    (moves, handed_over(&out))
}

#[test]
fn a_node_without_room_hands_values_over_that_it_can_do_without() {
    let (mut node, giver) = node();
    let hand = |offset| (FAR, HandOver { node: HERE, places: vec![BlockId(offset).into()] }.into());
    node.on_allocated(BlockId(128), giver);
    let object = Some(TaskId { owner: FAR, number: 2 }.object(0));
    let give = GiveBlock { block: BlockId(128), owner: FAR, object };
    assert_eq!(node.on_message(giver, give.into(), NOW, &mut NodeActions::new()), None);
    assert_eq!(relieve(&mut node, 100), (true, vec![hand(64)]), "one block is enough");
    assert_eq!(relieve(&mut node, 100), (true, vec![]), "it is on its way");
    assert_eq!(relieve(&mut node, 200), (true, vec![hand(128)]));
    let done = |offset| HandedOver { node: HERE, places: vec![BlockId(offset).into()] };
    routed(&mut node, done(64));
    routed(&mut node, FreeBlocks { places: vec![BlockId(64).into()] });
    assert!(!node.holders().is_held(Place::of(64)));
    // The other one is read by a task here.
    routed(&mut node, done(128));
    assert_eq!(relieve(&mut node, 100), (true, vec![hand(128)]), "it is asked for again");
    // What is in a block that was given back is another value.
    node.on_allocated(BlockId(64), giver);
    let object = Some(TaskId { owner: FAR, number: 3 }.object(0));
    let give = GiveBlock { block: BlockId(64), owner: FAR, object };
    assert_eq!(node.on_message(giver, give.into(), NOW, &mut NodeActions::new()), None);
    node.drain();
    assert_eq!(handed_over(&after_events(&mut node)), [hand(64)]);
}

/// Else it would wait for room that nobody makes.
#[test]
fn an_owner_is_asked_again_when_it_may_not_have_heard_and_not_waited_for_when_it_is_gone() {
    let (mut node, _) = node();
    let hand = (FAR, HandOver { node: HERE, places: vec![BlockId(64).into()] }.into());
    assert_eq!(relieve(&mut node, 100), (true, vec![hand.clone()]));
    node.on_link_ended(THERE, &mut NodeActions::new());
    assert_eq!(relieve(&mut node, 100), (true, vec![hand]));
    let gone = worker_dead(FAR, "");
    node.on_control(ToNode::WorkerDead(Box::new(gone)), &mut NodeActions::new());
    assert_eq!(relieve(&mut node, 100), (false, vec![]));
}

#[test]
fn a_node_without_room_keeps_what_is_held_here_and_what_nobody_can_have() {
    let (mut node, giver) = node();
    node.on_allocated(BlockId(128), giver);
    assert_eq!(relieve(&mut node, 1_000).1.len(), 1, "not the one of a process here");
    let (mut node, _) = self::node();
    node.on_node_known(&known(THERE, node_state::DRAINING));
    assert_eq!(relieve(&mut node, 1_000), (false, vec![]), "its owner leaves");
}

#[test]
fn nothing_is_handed_over_to_a_node_that_leaves_too() {
    let (mut node, _) = node();
    node.on_node_known(&known(THERE, node_state::DRAINING));
    node.drain();
    assert_eq!(handed_over(&after_events(&mut node)), []);
    assert!(node.is_drained());
}

fn place(restarts: i32) -> PlaceActor {
    PlaceActor {
        takeover: Takeover(0),
        turn: 0,
        name: None,
        restores: false,
        create: Box::new(owned(restarts)),
        restarts: Some(restarts),
        description: None,
    }
}

const ACTOR: ActorId = TaskId { owner: FAR, number: 7 };

fn owned(restarts: i32) -> CreateActor {
    CreateActor { restarts: Some(restarts), ..create(ACTOR) }
}

#[test]
fn an_actor_that_waits_on_a_node_that_drains_is_given_back() {
    let (mut node, _) = node();
    node.drain();
    let mut out = NodeActions::new();
    node.on_control(ToNode::PlaceActor(Box::new(place(0))), &mut out);
    node.after_events(NOW, &mut out);
    let given_back = |action: &NodeAction| matches!(action, NodeAction::Control(ToControl::PlaceRefused { actor, create: Some(_), .. }) if *actor == ACTOR);
    assert_eq!(out.iter().filter(|action| given_back(action)).count(), 1, "{out:?}");
}

/// The directory with two nodes of four CPUs each, and an actor that its owner's node, `THERE`, was asked to
/// place.
fn directory(restarts: i32) -> Directory {
    let mut control = Directory::default();
    for node in [HERE, THERE] {
        let (free, total) = (cpus(4.0), cpus(4.0));
        control.on_node_joined(NodeRow { node, free, total, labels: Vec::new() });
    }
    let message = Box::new(owned(restarts).into());
    assert_eq!(placed_on(&send(&mut control, THERE, ToControl::Routed { from: FAR, message })), [(THERE, 0)]);
    control
}

pub(super) fn send(control: &mut Directory, node: NodeId, word: ToControl) -> DirectoryActions {
    let mut out = DirectoryActions::new();
    control.on_node(node, word, NOW, &mut out);
    control.after_events(NOW, &mut out);
    out
}

/// The nodes that are asked to place an actor, and for which takeover.
pub(super) fn placed_on(out: &DirectoryActions) -> Vec<(NodeId, u32)> {
    let placed = |action: &DirectoryAction| match action {
        DirectoryAction::Send(node, word) => match &**word {
            ToNode::PlaceActor(place) => Some((*node, place.takeover.0)),
            _ => None,
        },
        DirectoryAction::Warn(_) | DirectoryAction::Persist(..) => None,
    };
    out.iter().filter_map(placed).collect()
}

fn drain(control: &mut Directory) -> DirectoryActions {
    let mut out = DirectoryActions::new();
    control.on_node_drains(THERE, &mut out);
    control.after_events(NOW, &mut out);
    out
}

const PROCESS: WorkerId = WorkerId((2 << 24) + 9);

fn placed() -> ToControl {
    ToControl::ActorPlaced { actor: ACTOR, takeover: Takeover(0), worker: PROCESS }
}

fn gone(takeover: u32, worker: WorkerId) -> ToControl {
    let gone = worker_dead(worker, "ended");
    ToControl::ActorProcessDead { actor: ACTOR, takeover: Takeover(takeover), gone: Box::new(gone) }
}

#[test]
fn an_actor_moves_without_using_up_a_restart() {
    let mut control = directory(1);
    send(&mut control, THERE, placed());
    let end = ToNode::EndActor { actor: ACTOR, takeover: Takeover(0), end: End::Finished };
    assert_eq!(drain(&mut control), [DirectoryAction::Send(THERE, Box::new(end))]);
    assert_eq!(placed_on(&send(&mut control, THERE, gone(0, PROCESS))), [(HERE, 1)]);
    let next = WorkerId(HERE.0 + 9);
    send(&mut control, HERE, ToControl::ActorPlaced { actor: ACTOR, takeover: Takeover(1), worker: next });
    // Its restart is still there, and is the last one.
    assert_eq!(placed_on(&send(&mut control, HERE, gone(1, next))), [(HERE, 2)]);
    send(&mut control, HERE, ToControl::ActorPlaced { actor: ACTOR, takeover: Takeover(2), worker: next });
    assert_eq!(placed_on(&send(&mut control, HERE, gone(2, next))), []);
}

#[test]
fn an_actor_whose_process_began_meanwhile_moves_too() {
    let mut control = directory(1);
    assert_eq!(drain(&mut control), [], "it has no process yet, as far as is known");
    let out = send(&mut control, THERE, placed());
    let end = ToNode::EndActor { actor: ACTOR, takeover: Takeover(0), end: End::Finished };
    assert!(out.contains(&DirectoryAction::Send(THERE, Box::new(end))), "{out:?}");
    assert_eq!(placed_on(&send(&mut control, THERE, gone(0, PROCESS))), [(HERE, 1)]);
}

#[test]
fn an_actor_that_may_not_restart_stays() {
    let mut control = directory(0);
    send(&mut control, THERE, placed());
    assert_eq!(drain(&mut control), []);
}

#[test]
fn an_actor_that_was_given_back_begins_elsewhere() {
    let mut control = directory(0);
    drain(&mut control);
    let refused = ToControl::PlaceRefused {
        actor: ACTOR,
        takeover: Takeover(0),
        reason: "its node is about to end".to_owned(),
        create: Some(Box::new(owned(0))),
        no_workers: false,
        for_now: false,
    };
    assert_eq!(placed_on(&send(&mut control, THERE, refused)), [(HERE, 0)]);
}
