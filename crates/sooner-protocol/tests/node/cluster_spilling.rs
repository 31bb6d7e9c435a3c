//! A node of a cluster without room: it asks owners here and at other nodes, and lets other nodes read what
//! it has written.

use sooner_protocol::node::objects::Serves;
use sooner_protocol::node::{NodeAction, NodeActions, NodeCore, Room, ServedSpill};
use sooner_wire::message::{
    AboutNode, FreeBlocks, GiveBlock, HandOver, HeldFrom, Location, Message, NodeRow, Place, Priority, Pull,
    Relinquish, Relinquished, Relinquishing, Remote, SpillId, kind, node_state,
};
use sooner_wire::{BlockId, NodeId, ObjectId, TaskId, WorkerId};

use super::{NOW, cpus, worker_dead};

const HERE: NodeId = NodeId(1 << 24);
const THERE: NodeId = NodeId(2 << 24);
const FAR: WorkerId = WorkerId((2 << 24) + 1);
const FIRST: SpillId = SpillId(1);

fn object(number: u64) -> ObjectId {
    TaskId { owner: FAR, number }.object(0)
}

fn known() -> NodeRow {
    let about = AboutNode {
        kind: kind::DAEMON,
        name: "other".to_owned(),
        address: None,
        host: String::new(),
        boot_id: String::new(),
        resources: cpus(4.0),
        labels: Vec::new(),
    };
    NodeRow { node: THERE, about, state: node_state::ALIVE, is_slow: false }
}

/// A node with a disk, a process of it, and a block of that which belongs to a process of another node.
fn node() -> (NodeCore, WorkerId) {
    let mut node = NodeCore::new(cpus(1.0), HERE.0, 2);
    node.join_cluster();
    node.set_spills();
    node.on_node_known(&known());
    let giver = node.new_worker_id();
    node.on_connected(giver, 1, NOW);
    give(&mut node, giver, 64, 1);
    (node, giver)
}

fn give(node: &mut NodeCore, giver: WorkerId, block: u64, number: u64) {
    node.on_allocated(BlockId(block), giver);
    let give = GiveBlock { block: BlockId(block), owner: FAR, object: Some(object(number)) };
    assert_eq!(node.on_message(giver, give.into(), NOW, &mut NodeActions::new()), None);
}

fn relieve(node: &mut NodeCore, bytes: u64) -> (bool, NodeActions) {
    let mut out = NodeActions::new();
    let moves = node.relieve(Room::of(bytes), |_| 100, &mut out);
    (moves, out)
}

fn asked(block: u64, spilled: SpillId) -> NodeAction {
    let blocks = vec![Relinquishing { block: BlockId(block), spilled: Some(spilled) }];
    let message = Box::new(Relinquish { blocks, gives_way: None, node: Some(HERE), recomputes: None }.into());
    NodeAction::Route { from: WorkerId(HERE.0), to: FAR, message }
}

/// The owner at the other node says something.
fn receive(node: &mut NodeCore, message: impl Into<Message>) -> NodeActions {
    let mut out = NodeActions::new();
    let rest = node.on_routed(FAR, WorkerId(HERE.0), message.into(), NOW, &mut out);
    assert_eq!(rest, Ok(None));
    out
}

fn moved(block: u64, spilled: SpillId) -> Relinquished {
    let moved = vec![Relinquishing { block: BlockId(block), spilled: Some(spilled) }];
    Relinquished { moved, others: Vec::new(), node: Some(HERE) }
}

#[test]
fn a_value_of_an_owner_elsewhere_goes_to_disk_and_is_read_there() {
    let (mut node, _) = node();
    assert_eq!(relieve(&mut node, 100), (true, vec![asked(64, FIRST)]));
    assert_eq!(relieve(&mut node, 100), (true, vec![]), "it was asked for");
    assert_eq!(node.begin_serving_spilled(FIRST, object(1)), ServedSpill::NotYet);
    assert_eq!(
        receive(&mut node, moved(64, FIRST)),
        [NodeAction::Spill { spilled: FIRST, block: BlockId(64) }]
    );
    assert_eq!(node.begin_serving_spilled(FIRST, object(1)), ServedSpill::Here(BlockId(64)));
    let mut out = NodeActions::new();
    assert_eq!(node.begin_serving(BlockId(64), object(1)), Serves::Yes, "who was sent there before finds it");
    node.end_serving(BlockId(64), &mut out);
    node.on_spilled(FIRST, true, &mut out);
    assert_eq!(out, [], "somebody reads it in the block");
    node.end_serving(BlockId(64), &mut out);
    assert_eq!(out, [NodeAction::FreeBlock(BlockId(64))]);
    assert_eq!(node.begin_serving_spilled(FIRST, object(1)), ServedSpill::Disk);
    let stranger = TaskId { owner: WorkerId(FAR.0 + 1), number: 1 }.object(0);
    assert_ne!(node.begin_serving_spilled(FIRST, stranger), ServedSpill::Disk, "of another owner");
    assert_eq!(
        receive(&mut node, FreeBlocks { places: vec![FIRST.into()] }),
        [NodeAction::DropSpilled(FIRST)]
    );
    assert_eq!(node.begin_serving_spilled(FIRST, object(1)), ServedSpill::No);
    assert_eq!(node.spilled(), 0);
}

/// Else who was sent to the block before would be told "not yet" for as long as the next value is there.
#[test]
fn what_has_moved_is_not_waited_for_where_it_was() {
    let (mut node, giver) = node();
    assert!(relieve(&mut node, 100).0);
    receive(&mut node, moved(64, FIRST));
    let mut out = NodeActions::new();
    node.on_spilled(FIRST, true, &mut out);
    assert_eq!(out, [NodeAction::FreeBlock(BlockId(64))]);
    node.on_allocated(BlockId(64), giver);
    assert_eq!(node.begin_serving(BlockId(64), object(1)), Serves::No);
    assert_eq!(node.begin_serving(BlockId(64), object(2)), Serves::NotYet, "its giver may say so");
    receive(&mut node, FreeBlocks { places: vec![FIRST.into()] });
    assert_eq!(node.begin_serving(BlockId(64), object(1)), Serves::NotYet, "nothing is kept of what is gone");
}

/// Found by the simulator: an actor that began anew asked for an argument of a process that was long gone,
/// where somebody else's value was, and went on asking as long as that was there.
#[test]
fn the_value_of_an_owner_whose_end_is_settled_is_not_waited_for() {
    let (mut node, giver) = node();
    node.on_allocated(BlockId(128), giver);
    assert_eq!(node.begin_serving(BlockId(128), object(2)), Serves::NotYet, "its giver may say so");
    let gone = worker_dead(FAR, "");
    let mut out = NodeActions::new();
    node.on_control(sooner_protocol::uplink::ToNode::WorkerDead(Box::new(gone)), &mut out);
    assert_eq!(node.begin_serving(BlockId(128), object(2)), Serves::NotYet, "the word may be on its way");
    let answer = HeldFrom { gone: FAR, held: Vec::new() };
    assert_eq!(node.on_message(giver, answer.into(), NOW, &mut out), None);
    assert_eq!(node.begin_serving(BlockId(128), object(2)), Serves::No);
    assert_eq!(node.begin_serving(BlockId(64), object(1)), Serves::Yes, "somebody may read what it left");
    let own = TaskId { owner: giver, number: 1 }.object(0);
    assert_eq!(node.begin_serving(BlockId(128), own), Serves::Yes);
}

#[test]
fn what_is_in_use_stays_and_is_asked_for_again_without_hope() {
    let (mut node, _) = node();
    assert!(relieve(&mut node, 100).0);
    let stays = Relinquished { moved: Vec::new(), others: vec![BlockId(64)], node: Some(HERE) };
    assert_eq!(receive(&mut node, stays.clone()), []);
    assert_eq!(node.begin_serving(BlockId(64), object(1)), Serves::Yes);
    node.end_serving(BlockId(64), &mut NodeActions::new());
    assert_eq!(relieve(&mut node, 100), (false, vec![asked(64, FIRST.next())]));
    assert_eq!(receive(&mut node, stays), []);
}

/// Else the owner would believe a value on disk that the node believes in its block.
#[test]
fn an_owner_is_asked_the_same_again_when_the_session_with_its_node_has_ended() {
    let (mut node, _) = node();
    assert!(relieve(&mut node, 100).0);
    let mut out = NodeActions::new();
    node.on_link_ended(THERE, &mut out);
    assert!(out.contains(&asked(64, FIRST)), "{out:?}");
    assert_eq!(
        receive(&mut node, moved(64, FIRST)),
        [NodeAction::Spill { spilled: FIRST, block: BlockId(64) }]
    );
    let mut out = NodeActions::new();
    node.on_link_ended(THERE, &mut out);
    assert!(!out.iter().any(|action| matches!(action, NodeAction::Route { message, .. } if matches!(**message, Message::Relinquish(_)))));
}

#[test]
fn an_owner_that_is_gone_is_not_waited_for() {
    let (mut node, giver) = node();
    assert!(relieve(&mut node, 100).0);
    let (_, mut out) = relieve(&mut node, 100);
    let gone = worker_dead(FAR, "");
    node.on_control(sooner_protocol::uplink::ToNode::WorkerDead(Box::new(gone)), &mut out);
    assert_eq!(node.begin_serving_spilled(FIRST, object(1)), ServedSpill::No);
    // Another one takes its place.
    node.on_allocated(BlockId(128), giver);
    let own = Relinquish {
        blocks: vec![Relinquishing { block: BlockId(128), spilled: Some(FIRST.next()) }],
        gives_way: None,
        node: None,
        recomputes: None,
    };
    let (moves, out) = relieve(&mut node, 100);
    assert_eq!((moves, out), (true, vec![NodeAction::Send(giver, Box::new(own.into()))]));
}

/// A process that was told of the value before asks its node for it while the owner is asked for the block.
#[test]
fn a_block_that_somebody_else_holds_by_then_is_free_when_both_are_done() {
    let (mut node, giver) = node();
    assert!(relieve(&mut node, 100).0);
    let remote = Remote { node: HERE, location: Location { offset: 64, length: 100 } };
    let pull = Pull { object: object(1), remote, priority: Priority::Get };
    assert_eq!(node.on_message(giver, pull.into(), NOW, &mut NodeActions::new()), None);
    assert_eq!(node.holders().of(Place::of(64)), [FAR, giver]);
    assert_eq!(
        receive(&mut node, moved(64, FIRST)),
        [NodeAction::Spill { spilled: FIRST, block: BlockId(64) }]
    );
    let mut out = NodeActions::new();
    node.on_spilled(FIRST, true, &mut out);
    assert_eq!(out, []);
    let free = FreeBlocks { places: vec![BlockId(64).into()] };
    assert_eq!(node.on_message(giver, free.into(), NOW, &mut out), None);
    assert_eq!(out, [NodeAction::FreeBlock(BlockId(64))]);
    assert_eq!(node.begin_serving_spilled(FIRST, object(1)), ServedSpill::Disk);
}

/// Else it would wait for a disk that is full, although there may be room where its owner is.
#[test]
fn what_no_disk_takes_is_brought_to_where_its_owner_is() {
    let (mut node, giver) = node();
    give(&mut node, giver, 128, 2);
    assert!(relieve(&mut node, 200).0);
    receive(&mut node, moved(64, FIRST));
    receive(&mut node, moved(128, FIRST.next()));
    let mut out = NodeActions::new();
    node.on_spilled(FIRST, true, &mut out);
    assert_eq!(relieve(&mut node, 100), (true, vec![]), "the other one is still on its way");
    node.on_spilled(FIRST.next(), false, &mut out);
    assert_eq!(out, [NodeAction::FreeBlock(BlockId(64))]);
    let hand = Box::new(HandOver { node: HERE, places: vec![FIRST.next().into()] }.into());
    let hand = NodeAction::Route { from: WorkerId(HERE.0), to: FAR, message: hand };
    assert_eq!(relieve(&mut node, 1_000), (true, vec![hand]), "what is on disk takes no room");
    assert_eq!(relieve(&mut node, 1_000), (true, vec![]), "it is on its way");
    // The owner pulls it, and gives it back.
    assert_eq!(node.begin_serving_spilled(FIRST.next(), object(2)), ServedSpill::Here(BlockId(128)));
    let mut out = receive(&mut node, FreeBlocks { places: vec![FIRST.next().into()] });
    node.end_serving(BlockId(128), &mut out);
    assert_eq!(out, [NodeAction::DropSpilled(FIRST.next()), NodeAction::FreeBlock(BlockId(128))]);
    assert_eq!(relieve(&mut node, 1_000), (false, vec![]));
}
