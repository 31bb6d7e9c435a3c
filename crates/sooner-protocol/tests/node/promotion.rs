//! Copies that become the values of their owners, at the node that has them and at the node of the owner
//! (`docs/adr/0052-copies-become-values.md`).

use sooner_protocol::node::objects::Serves;
use sooner_protocol::node::{NodeAction, NodeActions, NodeCore, Room, ServedCopy};
use sooner_protocol::uplink::ToNode;
use sooner_wire::message::{
    CopyLeaving, DropCopy, FreeBlocks, Located, Location, LostAt, Message, NodeDead, Place, Priority,
    Promote, Promoted, Pull, Pulled, Relinquish, Relinquished, Relinquishing, Remote, SpillId,
};
use sooner_wire::{BlockId, FetchAttempt, NodeId, ObjectId, TaskId, TransferAttempt, WorkerId};

use super::{NOW, cpus, on, told, worker_dead};

const HERE: NodeId = NodeId(1 << 24);
const THERE: NodeId = NodeId(2 << 24);
const THIRD: NodeId = NodeId(3 << 24);
const FAR: WorkerId = WorkerId((2 << 24) + 1);
const LENGTH: u64 = 1000;
const BLOCK: u64 = 64;
const GENERATION: u64 = 5;

/// Of a process at the other node.
fn object() -> ObjectId {
    TaskId { owner: FAR, number: 1 }.object(0)
}

/// The owner says something.
fn receive(node: &mut NodeCore, message: impl Into<Message>) -> NodeActions {
    let here = WorkerId(HERE.0);
    on(node, |node, out| assert_eq!(node.on_routed(FAR, here, message.into(), NOW, out), Ok(None)))
}

fn send(node: &mut NodeCore, from: WorkerId, message: impl Into<Message>) -> NodeActions {
    on(node, |node, out| assert_eq!(node.on_message(from, message.into(), NOW, out), None))
}

/// What is said to the owner.
fn to_owner(message: impl Into<Message>) -> NodeAction {
    NodeAction::Route { from: WorkerId(HERE.0), to: FAR, message: Box::new(message.into()) }
}

fn pull() -> Pull {
    let location = Location { offset: 4096, length: LENGTH };
    Pull { object: object(), remote: Remote { node: THIRD, location }, priority: Priority::Get }
}

fn free(place: impl Into<Place>) -> FreeBlocks {
    FreeBlocks { places: vec![place.into()] }
}

fn found(process: WorkerId) -> NodeAction {
    let location = Some(Location { offset: BLOCK, length: LENGTH });
    told(process, Pulled { object: object(), location, failure: None, tried: None })
}

fn promote() -> Promote {
    Promote { object: object(), node: HERE, length: LENGTH, generation: GENERATION }
}

fn yes() -> NodeAction {
    let location = Some(Location { offset: BLOCK, length: LENGTH });
    to_owner(Promoted { object: object(), node: HERE, location })
}

fn no() -> NodeAction {
    to_owner(Promoted { object: object(), node: HERE, location: None })
}

/// A node with a disk and a process, which pulls a value that its owner has it pull from the third node. The
/// number of the stream.
fn with_pull() -> (NodeCore, WorkerId, FetchAttempt) {
    let mut node = NodeCore::new(cpus(1.0), HERE.0, 2);
    node.join_cluster();
    node.ask_owners();
    node.set_spills();
    let process = node.new_worker_id();
    node.on_connected(process, 1, NOW);
    send(&mut node, process, pull());
    on(&mut node, |node, out| node.on_block(object(), BlockId(BLOCK), out));
    let sender = Some(Remote { node: THIRD, location: Location { offset: 0, length: LENGTH } });
    let word = Located {
        object: object(),
        node: HERE,
        sender,
        generation: GENERATION,
        attempt: Some(TransferAttempt(9)),
        is_copy: true,
    };
    let fetched = receive(&mut node, word);
    let [NodeAction::Fetch(fetching)] = &fetched[..] else { panic!("{fetched:?}") };
    let attempt = fetching.attempt;
    (node, process, attempt)
}

/// A node that has a copy, which a process there holds.
fn with_copy() -> (NodeCore, WorkerId) {
    let (mut node, process, attempt) = with_pull();
    on(&mut node, |node, out| node.on_bytes(object(), attempt, LENGTH, out));
    (node, process)
}

#[test]
fn a_copy_that_has_become_the_value_is_held_for_its_owner() {
    let (mut node, process) = with_copy();
    assert_eq!(receive(&mut node, promote()), [yes()]);
    assert_eq!(node.holders().of(Place::of(BLOCK)), [process, FAR]);
    assert_eq!(send(&mut node, process, free(BlockId(BLOCK))), []);
    assert_eq!(node.begin_serving(BlockId(BLOCK), object()), Serves::Yes, "it is found where its owner says");
    on(&mut node, |node, out| node.end_serving(BlockId(BLOCK), out));
    let served = node.begin_serving_copy(object(), GENERATION, LENGTH);
    assert_eq!(served, ServedCopy::Here(BlockId(BLOCK)), "and by who was sent here for a copy");
    on(&mut node, |node, out| node.end_serving(BlockId(BLOCK), out));
    assert_eq!(send(&mut node, process, pull()), [found(process)]);
    assert_eq!(receive(&mut node, free(BlockId(BLOCK))), [], "somebody reads it");
    assert_eq!(
        send(&mut node, process, free(BlockId(BLOCK))),
        [NodeAction::FreeBlock(BlockId(BLOCK))],
        "nobody would say when it is to go"
    );
    assert!(node.holders().is_empty());
}

#[test]
fn a_copy_that_nobody_needed_becomes_the_value() {
    let (mut node, process) = with_copy();
    assert_eq!(send(&mut node, process, free(BlockId(BLOCK))), [], "it stays as long as there is room");
    assert_eq!(receive(&mut node, promote()), [yes()]);
    assert_eq!(node.holders().of(Place::of(BLOCK)), [FAR]);
    assert_eq!(node.memory_use(|_| LENGTH).pinned, LENGTH);
    // That was said before the owner knew.
    assert_eq!(receive(&mut node, DropCopy { object: object(), node: HERE }), []);
    assert_eq!(receive(&mut node, free(BlockId(BLOCK))), [NodeAction::FreeBlock(BlockId(BLOCK))]);
    assert!(node.holders().is_empty());
}

#[test]
fn a_copy_that_is_about_to_leave_becomes_the_value() {
    let (mut node, process) = with_copy();
    send(&mut node, process, free(BlockId(BLOCK)));
    let leaving = on(&mut node, |node, out| assert!(node.relieve(Room::of(1), |_| LENGTH, out)));
    assert_eq!(leaving, [to_owner(CopyLeaving { object: object(), node: HERE })]);
    assert_eq!(receive(&mut node, promote()), [yes()]);
    assert_eq!(node.holders().of(Place::of(BLOCK)), [FAR]);
    assert_eq!(receive(&mut node, free(BlockId(BLOCK))), [NodeAction::FreeBlock(BlockId(BLOCK))]);
}

#[test]
fn what_is_not_all_here_or_something_else_does_not_become_the_value() {
    let (mut node, _, attempt) = with_pull();
    assert_eq!(receive(&mut node, promote()), [no()], "it is still arriving");
    on(&mut node, |node, out| node.on_bytes(object(), attempt, LENGTH, out));
    assert_eq!(receive(&mut node, Promote { generation: 4, ..promote() }), [no()], "of another execution");
    assert_eq!(receive(&mut node, Promote { length: 1, ..promote() }), [no()]);
    on(&mut node, |node, out| node.lose_blocks(&[BlockId(BLOCK)], out));
    assert_eq!(receive(&mut node, promote()), [no()], "it is lost");
}

#[test]
fn the_same_is_answered_to_a_question_that_is_said_again() {
    let (mut node, process) = with_copy();
    send(&mut node, process, free(BlockId(BLOCK)));
    assert_eq!(receive(&mut node, promote()), [yes()]);
    on(&mut node, |node, out| node.on_link_ended(THERE, out));
    assert_eq!(receive(&mut node, promote()), [yes()]);
    assert_eq!(node.holders().of(Place::of(BLOCK)), [FAR]);
    assert_eq!(receive(&mut node, free(BlockId(BLOCK))), [NodeAction::FreeBlock(BlockId(BLOCK))]);
    assert!(node.holders().is_empty());
}

#[test]
fn nobody_is_answered_who_is_gone_and_what_one_held_goes_with_it() {
    let gone = || ToNode::WorkerDead(Box::new(worker_dead(FAR, "")));
    let (mut node, process) = with_copy();
    on(&mut node, |node, out| node.on_control(gone(), out));
    assert_eq!(receive(&mut node, promote()), []);
    assert_eq!(send(&mut node, process, free(BlockId(BLOCK))), [NodeAction::FreeBlock(BlockId(BLOCK))]);

    let (mut node, process) = with_copy();
    receive(&mut node, promote());
    assert!(
        !on(&mut node, |node, out| node.on_control(gone(), out))
            .contains(&NodeAction::FreeBlock(BlockId(BLOCK)))
    );
    assert_eq!(node.holders().of(Place::of(BLOCK)), [process], "it is being read");
}

#[test]
fn what_has_become_the_value_goes_to_disk_like_any_other() {
    let (mut node, process) = with_copy();
    receive(&mut node, promote());
    send(&mut node, process, free(BlockId(BLOCK)));
    let number = SpillId(1);
    let blocks = vec![Relinquishing { block: BlockId(BLOCK), spilled: Some(number) }];
    let question = Relinquish { blocks: blocks.clone(), gives_way: None, node: Some(HERE), recomputes: None };
    assert_eq!(
        on(&mut node, |node, out| assert!(node.relieve(Room::of(1), |_| LENGTH, out))),
        [to_owner(question)]
    );
    let answer = Relinquished { moved: blocks, others: Vec::new(), node: Some(HERE) };
    assert_eq!(receive(&mut node, answer), [NodeAction::Spill { spilled: number, block: BlockId(BLOCK) }]);
    let written = on(&mut node, |node, out| node.on_spilled(number, true, out));
    assert_eq!(written, [NodeAction::FreeBlock(BlockId(BLOCK))]);
    assert_eq!(node.begin_serving_copy(object(), GENERATION, LENGTH), ServedCopy::No);
    assert_eq!(receive(&mut node, free(number)), [NodeAction::DropSpilled(number)]);
    assert!(node.holders().is_empty());
}

#[test]
fn the_owner_is_told_when_the_value_is_lost_again() {
    let (mut node, process) = with_copy();
    receive(&mut node, promote());
    send(&mut node, process, free(BlockId(BLOCK)));
    let lost = on(&mut node, |node, out| node.lose_blocks(&[BlockId(BLOCK)], out));
    assert!(lost.contains(&to_owner(LostAt { node: HERE, blocks: vec![BlockId(BLOCK)] })), "{lost:?}");
}

/// The owner is here, and asks the third node.
#[test]
fn an_owner_asks_through_its_node_until_there_is_an_answer() {
    let mut node = NodeCore::new(cpus(1.0), HERE.0, 2);
    node.join_cluster();
    let owners = [node.new_worker_id(), node.new_worker_id()];
    owners.iter().for_each(|owner| node.on_connected(*owner, 1, NOW));
    let ask =
        |owner: WorkerId| Promote { object: TaskId { owner, number: 1 }.object(0), node: THIRD, ..promote() };
    let asked = |owner: WorkerId| {
        let (to, message) = (WorkerId(THIRD.0), Box::new(ask(owner).into()));
        NodeAction::Route { from: owner, to, message }
    };
    let is_asked = |out: &NodeActions, owner| out.contains(&asked(owner));
    for owner in owners {
        assert_eq!(send(&mut node, owner, ask(owner)), [asked(owner)]);
    }
    let refused = node.on_message(owners[0], ask(owners[1]).into(), NOW, &mut NodeActions::new());
    assert!(refused.is_some(), "nobody asks for what is another one's");
    assert!(!is_asked(&on(&mut node, |node, out| node.on_link_ended(THERE, out)), owners[0]));
    let again = on(&mut node, |node, out| node.on_link_ended(THIRD, out));
    assert!(owners.iter().all(|owner| is_asked(&again, *owner)), "{again:?}");
    let answer = Promoted { object: ask(owners[0]).object, node: THIRD, location: None };
    let (third, mut out) = (WorkerId(THIRD.0), NodeActions::new());
    assert_eq!(node.on_routed(third, owners[0], answer.into(), NOW, &mut out), Ok(None));
    assert_eq!(out, [told(owners[0], answer)]);
    let again = on(&mut node, |node, out| node.on_link_ended(THIRD, out));
    assert!(!is_asked(&again, owners[0]) && is_asked(&again, owners[1]), "{again:?}");
    let gone = on(&mut node, |node, out| node.on_node_dead(THIRD, out));
    assert!(gone.contains(&told(owners[1], NodeDead { node: THIRD, reason: String::new() })));
    assert!(!is_asked(&gone, owners[1]), "its node says that it is gone");
}

/// A process has the copy, and its owner is another process of the same node.
#[test]
fn an_owner_asks_its_own_node() {
    let mut node = NodeCore::new(cpus(1.0), HERE.0, 2);
    node.join_cluster();
    node.ask_owners();
    let [owner, reader] = [node.new_worker_id(), node.new_worker_id()];
    [owner, reader].iter().for_each(|process| node.on_connected(*process, 1, NOW));
    let object = TaskId { owner, number: 1 }.object(0);
    send(&mut node, reader, Pull { object, ..pull() });
    on(&mut node, |node, out| node.on_block(object, BlockId(BLOCK), out));
    let sender = Some(pull().remote);
    let word = Located {
        object,
        node: HERE,
        sender,
        generation: GENERATION,
        attempt: Some(TransferAttempt(1)),
        is_copy: false,
    };
    let fetched = send(&mut node, owner, word);
    let [NodeAction::Fetch(fetching)] = &fetched[..] else { panic!("{fetched:?}") };
    let attempt = fetching.attempt;
    on(&mut node, |node, out| node.on_bytes(object, attempt, LENGTH, out));
    let location = Some(Location { offset: BLOCK, length: LENGTH });
    let answer = Promoted { object, node: HERE, location };
    assert_eq!(send(&mut node, owner, Promote { object, ..promote() }), [told(owner, answer)]);
    assert_eq!(node.holders().of(Place::of(BLOCK)), [reader, owner]);
    assert_eq!(send(&mut node, reader, free(BlockId(BLOCK))), []);
    assert_eq!(send(&mut node, owner, free(BlockId(BLOCK))), [NodeAction::FreeBlock(BlockId(BLOCK))]);
}
