//! Tasks that wait for arguments give way to older ones, as the node sees it.

use sooner_protocol::node::Room;
use sooner_wire::limits::SPILL_RETRY_NANOS;
use sooner_wire::message::{
    FreeBlocks, Location, Priority, Pull, Relinquish, Relinquished, Relinquishing, Remote, SpillId,
};
use sooner_wire::{BlockId, ObjectId};

use super::*;

const FIRST: WorkerId = WorkerId(101);
const SECOND: WorkerId = WorkerId(102);
const LENGTH: u64 = 100;

fn object(number: u64) -> ObjectId {
    TaskId { owner: DRIVER, number }.object(0)
}

/// A value of the driver, in a block of its own, is to go to disk. Its number there.
fn ask_for(node: &mut Solo, block: u64) -> SpillId {
    node.on_allocated(BlockId(block), DRIVER);
    let mut out = NodeActions::new();
    assert!(node.relieve(Room::of(LENGTH), |_| LENGTH, &mut out));
    let [NodeAction::Send(DRIVER, message)] = &out[..] else { panic!("{out:?}") };
    let Message::Relinquish(Relinquish { blocks, gives_way: None, .. }) = &**message else {
        panic!("{out:?}")
    };
    let [moved @ Relinquishing { spilled: Some(spilled), .. }] = blocks[..] else { panic!("{blocks:?}") };
    let written = send(node, DRIVER, Relinquished { moved: vec![moved], others: Vec::new(), node: None });
    assert_eq!(written, [NodeAction::Spill { spilled, block: BlockId(block) }]);
    spilled
}

/// ... and does.
fn spill(node: &mut Solo, block: u64) -> SpillId {
    let spilled = ask_for(node, block);
    let mut out = NodeActions::new();
    node.on_spilled(spilled, true, &mut out);
    assert!(out.contains(&NodeAction::FreeBlock(BlockId(block))), "{out:?}");
    spilled
}

fn pull(node: &mut Solo, worker: WorkerId, number: u64, spilled: SpillId) -> NodeActions {
    let location = Location { offset: spilled.offset(), length: LENGTH };
    let remote = Remote { node: DRIVER.node(), location };
    send(node, worker, Pull { object: object(number), remote, priority: Priority::Argument })
}

fn allocate(number: u64) -> NodeAction {
    NodeAction::AllocateFor { object: object(number), bytes: LENGTH }
}

/// A value is brought to this block.
fn bring(node: &mut Solo, number: u64, block: u64) {
    let mut out = NodeActions::new();
    node.on_block(object(number), BlockId(block), &mut out);
    let [NodeAction::Fetch(fetching)] = out[..] else { panic!("{out:?}") };
    node.on_bytes(object(number), fetching.attempt, LENGTH, &mut NodeActions::new());
}

fn give_way(node: &mut Solo, number: u64) -> (bool, NodeActions) {
    let mut out = NodeActions::new();
    (node.give_way(Some(object(number)), |_| LENGTH, &mut out), out)
}

fn asked(worker: WorkerId, blocks: &[u64]) -> NodeAction {
    let blocks =
        blocks.iter().map(|offset| Relinquishing { block: BlockId(*offset), spilled: None }).collect();
    told(worker, Relinquish { blocks, gives_way: Some(true), node: None, recomputes: None })
}

/// Each of two workers has one of two arguments, and waits for the other one: objects 2 and 4.
fn stuck() -> Solo {
    let mut node = node(2.0);
    connect(&mut node, FIRST);
    connect(&mut node, SECOND);
    node.set_spills();
    let spilled = [1, 2, 3, 4].map(|number| spill(&mut node, number * 64));
    for (worker, number, block) in [(FIRST, 1, 512), (SECOND, 3, 576)] {
        let at = usize::try_from(number).expect("small");
        assert_eq!(pull(&mut node, worker, number, spilled[at - 1]), [allocate(number)]);
        bring(&mut node, number, block);
        assert_eq!(pull(&mut node, worker, number + 1, spilled[at]), [allocate(number + 1)]);
    }
    node
}

#[test]
fn the_younger_one_gives_way_once_and_what_it_frees_goes_to_the_older_one() {
    let mut node = stuck();
    let mut out = NodeActions::new();
    node.on_no_block(object(2), 10_000, true, NOW, &mut out);
    assert_eq!(give_way(&mut node, 4), (false, vec![]), "nobody is younger");
    assert_eq!(give_way(&mut node, 2), (true, vec![asked(SECOND, &[576])]));
    assert_eq!(give_way(&mut node, 2), (true, vec![]), "it was asked");
    assert_eq!(
        send(&mut node, SECOND, FreeBlocks { places: vec![BlockId(576).into()] }),
        [],
        "its answer comes first"
    );
    let done =
        send(&mut node, SECOND, Relinquished { moved: Vec::new(), others: vec![BlockId(576)], node: None });
    assert_eq!(done, [NodeAction::FreeBlock(BlockId(576)), allocate(2)]);
}

#[test]
fn one_after_the_other_gives_way_and_then_nobody_is_left() {
    let mut node = stuck();
    let mut out = NodeActions::new();
    // To one that makes a value.
    for (worker, block) in [(SECOND, 576), (FIRST, 512)] {
        assert!(node.give_way(None, |_| LENGTH, &mut out));
        assert_eq!(std::mem::take(&mut out), [asked(worker, &[block])]);
        send(&mut node, worker, Relinquished { moved: Vec::new(), others: vec![BlockId(block)], node: None });
    }
    assert!(!node.give_way(None, |_| LENGTH, &mut out));
    assert_eq!(out, []);
    assert!(node.give_way(None, |_| LENGTH, &mut out), "from the beginning");
}

#[test]
fn what_could_not_be_written_is_written_later() {
    let mut node = node(2.0);
    node.set_spills();
    let spilled = ask_for(&mut node, 64);
    let mut out = NodeActions::new();
    node.on_spilled(spilled, false, &mut out);
    assert_eq!(out, [], "it stays in its block");
    let relieve = |node: &mut Solo, now: Instant| {
        after_events(node, now);
        let mut out = NodeActions::new();
        let is_hopeful = node.relieve(Room::of(LENGTH), |_| LENGTH, &mut out);
        (is_hopeful, out)
    };
    let due = NOW.plus(SPILL_RETRY_NANOS);
    assert_eq!(relieve(&mut node, Instant(due.0 - 1)), (false, vec![]), "too early");
    assert_eq!(relieve(&mut node, due), (true, vec![NodeAction::Spill { spilled, block: BlockId(64) }]));
    node.on_spilled(spilled, true, &mut out);
    assert_eq!(out, [NodeAction::FreeBlock(BlockId(64))]);
}

#[test]
fn ahead_of_need_what_is_in_use_is_asked_for_once() {
    let mut node = node(2.0);
    node.set_spills();
    node.on_allocated(BlockId(64), DRIVER);
    let ahead = |node: &mut Solo| {
        let mut out = NodeActions::new();
        node.spill_ahead(Room::of(LENGTH), |_| LENGTH, &mut out);
        out
    };
    assert_eq!(ahead(&mut node).len(), 1);
    assert_eq!(ahead(&mut node), [], "it was asked for");
    send(&mut node, DRIVER, Relinquished { moved: Vec::new(), others: vec![BlockId(64)], node: None });
    assert_eq!(ahead(&mut node), [], "it is in use");
    node.on_allocated(BlockId(128), DRIVER);
    let out = ahead(&mut node);
    let [NodeAction::Send(DRIVER, message)] = &out[..] else { panic!("{out:?}") };
    let Message::Relinquish(Relinquish { blocks, .. }) = &**message else { panic!("{out:?}") };
    assert_eq!(blocks.iter().map(|one| one.block).collect::<Vec<_>>(), [BlockId(128)]);
    assert!(
        node.relieve(Room::of(2 * LENGTH), |_| LENGTH, &mut NodeActions::new()),
        "when there is need, it is"
    );
}

#[test]
fn the_end_of_a_worker_counts_as_its_answer() {
    let mut node = stuck();
    assert!(give_way(&mut node, 2).0);
    end(&mut node, SECOND);
    assert_eq!(give_way(&mut node, 2), (false, vec![]), "nobody else waits");
}
