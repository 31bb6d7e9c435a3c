//! Values on disk, and a disk that is gone.

use sooner_protocol::engine::Solo;
use sooner_protocol::node::{NodeAction, NodeActions, Room};
use sooner_protocol::time::Instant;
use sooner_wire::message::state::MemoryRow;
use sooner_wire::message::{
    BlocksLost, ForgetLost, FreeAt, FreeBlocks, Location, Message, Priority, Pull, Pulled, Relinquish,
    Relinquished, Relinquishing, Remote, SpillId, StillRead,
};
use sooner_wire::{BlockId, NodeId, TaskId};

use super::{DRIVER, NOW, OTHER, node, send, told};

const BYTES: u64 = 10;

/// The driver gives up each of these blocks. Gives the numbers of their values.
fn give_up(node: &mut Solo, blocks: &[u64]) -> Vec<SpillId> {
    let mut out = NodeActions::new();
    assert!(node.relieve(Room::of(BYTES * blocks.len() as u64), |_| BYTES, &mut out));
    let [NodeAction::Send(DRIVER, message)] = &out[..] else { panic!("{out:?}") };
    let Message::Relinquish(Relinquish { blocks: asked, .. }) = &**message else { panic!("{message:?}") };
    assert_eq!(asked.iter().map(|one| one.block.offset()).collect::<Vec<_>>(), blocks);
    let numbers: Vec<SpillId> = asked.iter().map(|one| one.spilled.expect("no copy")).collect();
    let answer = Relinquished { moved: asked.clone(), others: Vec::new(), node: None };
    let writes = numbers.iter().zip(blocks).map(|(spilled, block)| (*spilled, *block));
    let writes: Vec<_> =
        writes.map(|(spilled, block)| NodeAction::Spill { spilled, block: BlockId(block) }).collect();
    assert_eq!(send(node, DRIVER, answer), writes);
    numbers
}

#[test]
fn when_spilling_ends_what_is_on_disk_is_lost_and_what_is_in_memory_stays() {
    let mut node = node(1.0);
    node.set_spills();
    for block in [64, 128, 192] {
        node.on_allocated(BlockId(block), DRIVER);
    }
    let numbers = give_up(&mut node, &[64, 128]);
    let (written, writing) = (numbers[0], numbers[1]);
    let mut out = NodeActions::new();
    node.on_spilled(written, true, &mut out);
    assert_eq!(out, [NodeAction::FreeBlock(BlockId(64))]);
    // The last block is asked for, and not answered.
    out.clear();
    assert!(node.relieve(Room::of(3 * BYTES), |_| BYTES, &mut out));
    let [NodeAction::Send(DRIVER, message)] = &out[..] else { panic!("{out:?}") };
    let Message::Relinquish(Relinquish { blocks: late, .. }) = &**message else { panic!("{message:?}") };
    let late: Vec<Relinquishing> = late.clone();

    out.clear();
    node.on_spilling_ended(&mut out);
    assert_eq!(out, []);
    assert!(!node.relieve(Room::of(BYTES), |_| BYTES, &mut out), "there is nowhere to put values");
    assert_eq!(out, []);

    let pull = |number: u64, spilled: SpillId| {
        let object = TaskId { owner: DRIVER, number }.object(0);
        let location = Location { offset: spilled.offset(), length: BYTES };
        Pull { object, remote: Remote { node: NodeId(0), location }, priority: Priority::Get }
    };
    let lost = pull(1, written);
    let answer = Pulled { object: lost.object, location: None, failure: None, tried: Some(lost.remote) };
    assert_eq!(send(&mut node, DRIVER, lost), [told(DRIVER, answer)]);
    let kept = pull(2, writing);
    let location = Some(Location { offset: 128, length: BYTES });
    let answer = Pulled { object: kept.object, location, failure: None, tried: None };
    assert_eq!(send(&mut node, DRIVER, kept), [told(DRIVER, answer)]);

    // What is answered only now is to be written nowhere, and stays in its block as well.
    let spilled = late[0].spilled.expect("no copy");
    let answer = Relinquished { moved: late, others: Vec::new(), node: None };
    assert_eq!(send(&mut node, DRIVER, answer), [NodeAction::Spill { spilled, block: BlockId(192) }]);
    out.clear();
    node.on_spilled(spilled, false, &mut out);
    assert_eq!(out, []);
    let free = FreeAt { node: NodeId(0), places: vec![written.into(), spilled.into()] };
    let gone = send(&mut node, DRIVER, free);
    assert_eq!(gone, [NodeAction::DropSpilled(spilled), NodeAction::FreeBlock(BlockId(192))]);
}

/// The process that gave it up has not heard of the loss, and never takes the value for lost by itself.
#[test]
fn what_was_lost_before_its_process_gave_it_up_is_not_on_disk() {
    let mut node = node(1.0);
    node.set_spills();
    node.on_allocated(BlockId(64), DRIVER);
    let mut out = NodeActions::new();
    assert!(node.relieve(Room::of(BYTES), |_| BYTES, &mut out));
    let [NodeAction::Send(DRIVER, message)] = &out[..] else { panic!("{out:?}") };
    let Message::Relinquish(Relinquish { blocks: moved, .. }) = &**message else { panic!("{message:?}") };
    let (moved, spilled) = (moved.clone(), moved[0].spilled.expect("no copy"));
    let mut lost = NodeActions::new();
    node.lose_blocks(&[BlockId(64)], &mut lost);
    assert_eq!(lost, [told(DRIVER, BlocksLost { blocks: vec![BlockId(64)] })]);

    let forgets = send(&mut node, DRIVER, Relinquished { moved, others: Vec::new(), node: None });
    let [NodeAction::Send(DRIVER, question)] = &forgets[..] else {
        panic!("nothing is written: {forgets:?}")
    };
    let Message::ForgetLost(ForgetLost { round, .. }) = **question else { panic!("{question:?}") };
    let object = TaskId { owner: DRIVER, number: 1 }.object(0);
    let remote = Remote { node: NodeId(0), location: Location { offset: spilled.offset(), length: BYTES } };
    let answer = Pulled { object, location: None, failure: None, tried: Some(remote) };
    let pull = Pull { object, remote, priority: Priority::Get };
    assert_eq!(send(&mut node, DRIVER, pull), [told(DRIVER, answer)]);
    assert_eq!(send(&mut node, DRIVER, FreeAt { node: NodeId(0), places: vec![spilled.into()] }), []);
    let forgotten = StillRead { round, places: Vec::new(), lent: None };
    assert_eq!(send(&mut node, DRIVER, forgotten), [NodeAction::FreeBlock(BlockId(64))]);
}

#[test]
fn a_node_says_what_its_memory_is_used_for() {
    let mut node = node(1.0);
    node.set_spills();
    for block in [64, 128, 192] {
        node.on_allocated(BlockId(block), DRIVER);
    }
    let row = |node: &Solo| node.memory_use(|_| BYTES);
    assert_eq!(row(&node), MemoryRow { pinned: 30, ..MemoryRow::default() });
    let numbers = give_up(&mut node, &[64, 128]);
    assert_eq!(row(&node), MemoryRow { pinned: 10, outgoing: 20, ..MemoryRow::default() });
    let mut out = NodeActions::new();
    node.on_spilled(numbers[0], true, &mut out);
    // What could not be written stays in its block.
    node.on_spilled(numbers[1], false, &mut out);
    assert_eq!(row(&node), MemoryRow { pinned: 20, ..MemoryRow::default() });
    assert_eq!(node.report().blocks, 2, "a number of a value on disk is no block");

    let object = TaskId { owner: DRIVER, number: 1 }.object(0);
    let remote =
        Remote { node: NodeId(0), location: Location { offset: numbers[0].offset(), length: BYTES } };
    let out = send(&mut node, DRIVER, Pull { object, remote, priority: Priority::Get });
    assert_eq!(out, [NodeAction::AllocateFor { object, bytes: BYTES }]);
    let mut out = NodeActions::new();
    node.on_block(object, BlockId(256), &mut out);
    let [NodeAction::Fetch(fetching)] = out[..] else { panic!("{out:?}") };
    assert_eq!(row(&node), MemoryRow { pinned: 20, incoming: 10, ..MemoryRow::default() });
    out.clear();
    node.on_bytes(object, fetching.attempt, BYTES, &mut out);
    assert_eq!(row(&node), MemoryRow { pinned: 20, cached: 10, ..MemoryRow::default() });
}

#[test]
fn a_copy_from_disk_is_found_again_and_goes_first_and_with_its_value() {
    let mut node = node(1.0);
    node.set_spills();
    node.on_connected(OTHER, 3, NOW);
    node.on_allocated(BlockId(64), DRIVER);
    let spilled = give_up(&mut node, &[64])[0];
    node.on_spilled(spilled, true, &mut NodeActions::new());
    let object = TaskId { owner: DRIVER, number: 1 }.object(0);
    let remote = Remote { node: NodeId(0), location: Location { offset: spilled.offset(), length: BYTES } };
    let pull = Pull { object, remote, priority: Priority::Argument };
    let bring = |node: &mut Solo, block| {
        send(node, OTHER, pull.clone());
        let mut out = NodeActions::new();
        node.on_block(object, block, &mut out);
        let [NodeAction::Fetch(fetching)] = out[..] else { panic!("{out:?}") };
        out.clear();
        node.on_bytes(object, fetching.attempt, BYTES, &mut out);
        let location = Some(Location { offset: block.offset(), length: BYTES });
        let here = Pulled { object, location, failure: None, tried: None };
        assert_eq!(out, [told(OTHER, here.clone())]);
        assert_eq!(send(node, OTHER, FreeBlocks { places: vec![block.into()] }), [], "there is room for it");
        here
    };
    let here = bring(&mut node, BlockId(128));
    assert_eq!(send(&mut node, OTHER, pull.clone()), [told(OTHER, here)], "nothing is read");
    send(&mut node, OTHER, FreeBlocks { places: vec![BlockId(128).into()] });
    // A value that would have to be written stays.
    node.on_allocated(BlockId(192), DRIVER);
    let mut out = NodeActions::new();
    assert!(node.relieve(Room::of(BYTES), |_| BYTES, &mut out));
    assert_eq!(out, [NodeAction::FreeBlock(BlockId(128))]);

    bring(&mut node, BlockId(256));
    let freed = send(&mut node, DRIVER, FreeAt { node: NodeId(0), places: vec![spilled.into()] });
    assert_eq!(freed, [NodeAction::FreeBlock(BlockId(256)), NodeAction::DropSpilled(spilled)]);
}

#[test]
fn a_copy_whose_value_goes_while_it_comes_from_disk_goes_with_who_asked_for_it() {
    let mut node = node(1.0);
    node.set_spills();
    node.on_connected(OTHER, 3, NOW);
    node.on_allocated(BlockId(64), DRIVER);
    let spilled = give_up(&mut node, &[64])[0];
    node.on_spilled(spilled, true, &mut NodeActions::new());
    let object = TaskId { owner: DRIVER, number: 1 }.object(0);
    let remote = Remote { node: NodeId(0), location: Location { offset: spilled.offset(), length: BYTES } };
    send(&mut node, OTHER, Pull { object, remote, priority: Priority::Argument });
    let mut out = NodeActions::new();
    node.on_block(object, BlockId(128), &mut out);
    let [NodeAction::Fetch(fetching)] = out[..] else { panic!("{out:?}") };
    send(&mut node, DRIVER, FreeAt { node: NodeId(0), places: vec![spilled.into()] });
    node.on_bytes(object, fetching.attempt, BYTES, &mut out);
    assert_eq!(
        send(&mut node, OTHER, FreeBlocks { places: vec![BlockId(128).into()] }),
        [NodeAction::FreeBlock(BlockId(128))],
        "nobody would say when it may go"
    );
}

#[test]
fn what_could_not_be_written_and_is_read_in_its_block_goes_to_disk_later() {
    let mut node = node(1.0);
    node.set_spills();
    node.on_allocated(BlockId(64), DRIVER);
    let spilled = give_up(&mut node, &[64])[0];
    node.on_spilled(spilled, false, &mut NodeActions::new());
    let object = TaskId { owner: DRIVER, number: 1 }.object(0);
    let remote = Remote { node: NodeId(0), location: Location { offset: spilled.offset(), length: BYTES } };
    let here = Some(Location { offset: 64, length: BYTES });
    let answer = Pulled { object, location: here, failure: None, tried: None };
    assert_eq!(
        send(&mut node, DRIVER, Pull { object, remote, priority: Priority::Get }),
        [told(DRIVER, answer)]
    );

    let relieve = |node: &mut Solo, seconds: u64| {
        let mut out = NodeActions::new();
        node.after_events(Instant(seconds * 1_000_000_000), &mut out);
        node.relieve(Room::of(BYTES), |_| BYTES, &mut out);
        out
    };
    assert_eq!(relieve(&mut node, 0), [], "not yet");
    let out = relieve(&mut node, 40);
    let copy = Relinquishing { block: BlockId(64), spilled: None };
    let asked = Relinquish { blocks: vec![copy], gives_way: None, node: None, recomputes: None };
    assert_eq!(out, [told(DRIVER, asked)]);
    assert_eq!(send(&mut node, DRIVER, FreeBlocks { places: vec![BlockId(64).into()] }), []);
    send(&mut node, DRIVER, Relinquished { moved: Vec::new(), others: vec![BlockId(64)], node: None });
    assert_eq!(relieve(&mut node, 41), [NodeAction::Spill { spilled, block: BlockId(64) }]);
}
