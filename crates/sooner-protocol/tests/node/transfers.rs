//! Values of other nodes: pulled into a node, and served from it.

use sooner_protocol::node::objects::{Serves, StreamEnd};
use sooner_protocol::node::{NodeAction, NodeActions, NodeCore, Room, ServedCopy};
use sooner_protocol::uplink::ToNode;
use sooner_wire::limits::{PULL_AGAIN_NANOS, PULL_ROOM_NANOS};
use sooner_wire::message::{
    BlocksLost, CopyLeaving, CopyMade, Dependency, DropCopy, FailureCode, FreeAt, FreeBlocks, GiveBlock,
    GivenBlocks, Locate, Located, Location, LostAt, Message, NodeDead, Outcome, Place, Priority, Pull,
    Pulled, Remote, Settled, UnknownBlocks, Watch,
};
use sooner_wire::{BlockId, FetchAttempt, NodeId, ObjectId, TaskId, TransferAttempt, WorkerId};

use super::{NOW, cpus, create, on, told, worker_dead};

const HERE: NodeId = NodeId(1 << 24);
const THERE: NodeId = NodeId(2 << 24);
const FAR: WorkerId = WorkerId((2 << 24) + 1);
const LENGTH: u64 = 1000;

/// A node with two clients.
fn node() -> (NodeCore, WorkerId, WorkerId) {
    let mut node = NodeCore::new(cpus(1.0), HERE.0, 2);
    let clients = [node.new_worker_id(), node.new_worker_id()];
    clients.iter().for_each(|client| node.on_connected(*client, 1, NOW));
    (node, clients[0], clients[1])
}

fn object() -> ObjectId {
    TaskId { owner: FAR, number: 1 }.object(0)
}

fn pull() -> Pull {
    let location = Location { offset: 4096, length: LENGTH };
    Pull { object: object(), remote: Remote { node: THERE, location }, priority: Priority::Get }
}

/// Something comes over the link of another node.
fn routed(node: &mut NodeCore, from: WorkerId, message: impl Into<Message>) -> NodeActions {
    let here = WorkerId(HERE.0);
    on(node, |node, out| assert_eq!(node.on_routed(from, here, message.into(), NOW, out), Ok(None)))
}

fn send(node: &mut NodeCore, from: WorkerId, message: impl Into<Message>) -> NodeActions {
    on(node, |node, out| assert_eq!(node.on_message(from, message.into(), NOW, out), None))
}

fn free(offset: u64) -> FreeBlocks {
    FreeBlocks { places: vec![BlockId(offset).into()] }
}

/// A client asks, and there is a block at 64. The number of the stream.
fn fetch(node: &mut NodeCore, client: WorkerId) -> FetchAttempt {
    let asked = send(node, client, pull());
    assert_eq!(asked, [NodeAction::AllocateFor { object: object(), bytes: LENGTH }]);
    let fetched = on(node, |node, out| node.on_block(object(), BlockId(64), out));
    let [NodeAction::Fetch(fetching)] = &fetched[..] else { panic!("{fetched:?}") };
    assert_eq!((fetching.remote, fetching.at, fetching.block), (pull().remote, 0, BlockId(64)));
    fetching.attempt
}

#[test]
fn all_who_asked_hold_the_copy_that_came() {
    let (mut node, first, second) = node();
    let attempt = fetch(&mut node, first);
    assert_eq!(send(&mut node, second, pull()), []);
    let here = Pulled {
        object: object(),
        location: Some(Location { offset: 64, length: LENGTH }),
        failure: None,
        tried: None,
    };
    let came = on(&mut node, |node, out| node.on_bytes(object(), attempt, LENGTH, out));
    assert_eq!(came, [told(first, here.clone()), told(second, here.clone())]);
    assert_eq!(node.serves(Place::of(64), object()), Serves::Yes, "it can be pulled from here, too");
    assert_eq!(send(&mut node, first, free(64)), []);
    assert_eq!(send(&mut node, first, pull()), [told(first, here)], "it is here");
    assert_eq!(send(&mut node, first, free(64)), []);
    assert_eq!(send(&mut node, second, free(64)), [NodeAction::FreeBlock(BlockId(64))]);
    assert_eq!(node.serves(Place::of(64), object()), Serves::No);
    assert_eq!(send(&mut node, first, pull()), [NodeAction::AllocateFor { object: object(), bytes: LENGTH }]);
}

#[test]
fn a_pull_ends_with_who_asked() {
    let (mut node, first, _) = node();
    let attempt = fetch(&mut node, first);
    let ended = on(&mut node, |node, out| node.on_dead(first, "was killed", None, out));
    let stopped =
        [NodeAction::StopFetching { object: object(), attempt }, NodeAction::FreeBlock(BlockId(64))];
    assert!(stopped.iter().all(|action| ended.contains(action)), "{ended:?}");
    assert!(node.holders().is_empty());
}

/// Found by the simulator: it would go on asking until the next value in that block is gone, too.
#[test]
fn a_pull_ends_when_its_owner_gives_the_value_up() {
    let (mut node, owner, _) = node();
    let object = TaskId { owner, number: 1 }.object(0);
    send(&mut node, owner, Pull { object, ..pull() });
    let fetched = on(&mut node, |node, out| node.on_block(object, BlockId(64), out));
    let [NodeAction::Fetch(fetching)] = &fetched[..] else { panic!("{fetched:?}") };
    let freed = send(&mut node, owner, FreeAt { node: THERE, places: vec![BlockId(4096).into()] });
    let not_there = Pulled { object, location: None, failure: None, tried: Some(pull().remote) };
    let stop = NodeAction::StopFetching { object, attempt: fetching.attempt };
    assert_eq!(freed[..3], [stop, NodeAction::FreeBlock(BlockId(64)), told(owner, not_there)]);
    assert!(
        freed[3..].iter().any(|action| matches!(action, NodeAction::Route { to, .. } if to.0 == THERE.0))
    );
    assert!(node.holders().is_empty());
}

#[test]
fn what_is_not_there_is_sent() {
    let (mut node, first, _) = node();
    let attempt = fetch(&mut node, first);
    let ended = on(&mut node, |node, out| node.on_stream_end(object(), attempt, StreamEnd::NotThere, out));
    let not_there = Pulled { object: object(), location: None, failure: None, tried: Some(pull().remote) };
    assert_eq!(ended, [NodeAction::FreeBlock(BlockId(64)), told(first, not_there)]);
}

#[test]
fn what_lies_at_a_node_that_is_not_known_here_may_be_there() {
    let (mut node, first, _) = node();
    let attempt = fetch(&mut node, first);
    let ended = on(&mut node, |node, out| node.on_stream_end(object(), attempt, StreamEnd::NoSuchNode, out));
    let not_there = Pulled { object: object(), location: None, failure: None, tried: None };
    assert_eq!(ended, [NodeAction::FreeBlock(BlockId(64)), told(first, not_there)]);
}

#[test]
fn all_processes_hear_that_a_node_is_gone_before_they_hear_what_is_not_there() {
    let (mut node, first, second) = node();
    fetch(&mut node, first);
    let ended = on(&mut node, |node, out| node.on_node_dead(THERE, out));
    let gone = |to| told(to, NodeDead { node: THERE, reason: String::new() });
    assert_eq!(ended[..2], [gone(first), gone(second)]);
    let not_there = Pulled { object: object(), location: None, failure: None, tried: Some(pull().remote) };
    assert_eq!(ended.last(), Some(&told(first, not_there)));
}

#[test]
fn without_room_a_pull_is_tried_again_when_blocks_are_free_and_given_up_in_the_end() {
    let (mut node, first, second) = node();
    node.on_allocated(BlockId(128), second);
    send(&mut node, first, pull());
    assert_eq!(on(&mut node, |node, out| node.on_no_block(object(), 10_000, false, NOW, out)), []);
    let allocate = NodeAction::AllocateFor { object: object(), bytes: LENGTH };
    assert_eq!(send(&mut node, second, free(128)), [NodeAction::FreeBlock(BlockId(128)), allocate]);
    on(&mut node, |node, out| node.on_no_block(object(), 10_000, false, NOW, out));
    assert_eq!(node.next_deadline(), Some(NOW.plus(PULL_AGAIN_NANOS)), "a reader may end without a word");
    let deadline = NOW.plus(PULL_ROOM_NANOS);
    let mut out = NodeActions::new();
    node.after_events(deadline, &mut out);
    assert_eq!(out, [NodeAction::AllocateFor { object: object(), bytes: LENGTH }], "the last time");
    let out = on(&mut node, |node, out| node.on_no_block(object(), 10_000, false, deadline, out));
    let [NodeAction::Send(to, message)] = &out[..] else { panic!("{out:?}") };
    let Message::Pulled(Pulled { failure: Some(failure), .. }) = &**message else { panic!("{out:?}") };
    assert_eq!((*to, failure.code), (first, FailureCode::StoreFull));
}

/// A client has made a value for an owner at the other node, in block 64.
fn given() -> (NodeCore, WorkerId) {
    let (mut node, maker, _) = node();
    node.on_allocated(BlockId(64), maker);
    assert_eq!(node.serves(Place::of(64), object()), Serves::NotYet, "its maker may be about to say so");
    let give = GiveBlock { block: BlockId(64), owner: FAR, object: Some(object()) };
    assert_eq!(
        send(&mut node, maker, give),
        [],
        "nothing is known of processes elsewhere but what their nodes say"
    );
    assert_eq!(node.serves(Place::of(64), object()), Serves::Yes);
    (node, maker)
}

#[test]
fn a_block_is_held_from_another_node() {
    let (mut node, maker) = given();
    let ended = on(&mut node, |node, out| node.on_dead(maker, "was killed", None, out));
    assert!(!ended.contains(&NodeAction::FreeBlock(BlockId(64))), "{ended:?}");
    let freed = on(&mut node, |node, out| {
        assert_eq!(node.on_routed(FAR, WorkerId(HERE.0), free(64).into(), NOW, out), Ok(None));
    });
    assert_eq!(freed, [NodeAction::FreeBlock(BlockId(64))]);
    assert!(node.holders().is_empty());
}

#[test]
fn a_block_of_another_node_is_given_back_there() {
    let (mut node, client, _) = node();
    let there = send(&mut node, client, FreeAt { node: THERE, places: vec![BlockId(64).into()] });
    let message = Box::new(free(64).into());
    assert_eq!(there, [NodeAction::Route { from: client, to: WorkerId(THERE.0), message }]);
}

#[test]
fn a_loss_is_told_to_who_holds_the_block_elsewhere() {
    let (mut node, maker) = given();
    let lost = on(&mut node, |node, out| node.lose_blocks(&[BlockId(64)], out));
    assert!(lost.contains(&told(maker, BlocksLost { blocks: vec![BlockId(64)] })), "{lost:?}");
    let message = Box::new(LostAt { node: HERE, blocks: vec![BlockId(64)] }.into());
    assert!(lost.contains(&NodeAction::Route { from: WorkerId(HERE.0), to: FAR, message }), "{lost:?}");
    assert_eq!(node.serves(Place::of(64), object()), Serves::No);
    // At the other end it goes to the process.
    let (mut other, owner, _) = self::node();
    let news = LostAt { node: THERE, blocks: vec![BlockId(64)] };
    let passed = on(&mut other, |node, out| {
        assert_eq!(node.on_routed(WorkerId(THERE.0), owner, news.clone().into(), NOW, out), Ok(None));
    });
    assert_eq!(passed, [told(owner, news)]);
}

/// The same, in a cluster.
fn given_in_a_cluster() -> (NodeCore, WorkerId) {
    let (mut node, maker, _) = node();
    node.join_cluster();
    node.on_allocated(BlockId(64), maker);
    node.on_dialled_for(maker, FAR);
    let give = GiveBlock { block: BlockId(64), owner: FAR, object: Some(object()) };
    let message = Box::new(Watch { worker: FAR }.into());
    let watch = NodeAction::Route { from: WorkerId(HERE.0), to: WorkerId(THERE.0), message };
    assert_eq!(send(&mut node, maker, give), [watch], "the block is its owner's");
    (node, maker)
}

#[test]
fn the_receiver_of_a_block_at_another_node_is_asked_when_it_has_heard_all_that_the_giver_said() {
    let (mut node, maker) = given_in_a_cluster();
    let is_asked = |out: &NodeActions| {
        let message = Message::from(GivenBlocks { giver: maker, places: vec![BlockId(64).into()] });
        let question = NodeAction::Route { from: WorkerId(HERE.0), to: FAR, message: Box::new(message) };
        out.contains(&question)
    };
    let ended = on(&mut node, |node, out| node.on_dead(maker, "was killed", None, out));
    assert!(!is_asked(&ended), "it may not have read the reply: {ended:?}");
    let settled = Settled { gone: vec![maker], held: Vec::new() };
    let heard = on(&mut node, |node, out| node.on_control(ToNode::Settled(Box::new(settled)), out));
    assert!(is_asked(&heard), "{heard:?}");
    let unknown = UnknownBlocks { giver: maker, places: vec![BlockId(64).into()] };
    let freed = routed(&mut node, FAR, unknown);
    assert_eq!(freed, [NodeAction::FreeBlock(BlockId(64))]);
}

/// Found by the simulator (seed 494623223201, three nodes): the block was free, and its value read there.
#[test]
fn a_giver_may_be_dead_when_it_is_known_that_the_block_was_its_own() {
    let (mut node, maker, giver) = node();
    node.join_cluster();
    node.on_allocated(BlockId(64), maker);
    node.on_dialled_for(giver, FAR);
    // It had the block from the maker, whose word is late, and used it for a value of its own caller.
    send(&mut node, giver, GiveBlock { block: BlockId(64), owner: FAR, object: Some(object()) });
    on(&mut node, |node, out| node.on_dead(giver, "was killed", None, out));
    let late = send(&mut node, maker, GiveBlock { block: BlockId(64), owner: giver, object: None });
    let message = Message::from(GivenBlocks { giver, places: vec![BlockId(64).into()] });
    let question = NodeAction::Route { from: WorkerId(HERE.0), to: FAR, message: Box::new(message) };
    assert!(!late.contains(&question), "it may not have read the reply: {late:?}");
    let settled = Settled { gone: vec![giver], held: Vec::new() };
    let heard = on(&mut node, |node, out| node.on_control(ToNode::Settled(Box::new(settled)), out));
    assert!(heard.contains(&question), "{heard:?}");
}

#[test]
fn an_owner_elsewhere_hears_of_a_block_that_was_lost_before_it_was_given_to_it() {
    let (mut node, maker, _) = node();
    node.on_allocated(BlockId(64), maker);
    on(&mut node, |node, out| node.lose_blocks(&[BlockId(64)], out));
    let given = send(&mut node, maker, GiveBlock { block: BlockId(64), owner: FAR, object: Some(object()) });
    let message = Box::new(LostAt { node: HERE, blocks: vec![BlockId(64)] }.into());
    assert_eq!(given, [NodeAction::Route { from: WorkerId(HERE.0), to: FAR, message }]);
}

#[test]
fn what_is_said_of_blocks_of_another_node_goes_there() {
    let (mut node, client, _) = node();
    node.join_cluster();
    let unknown = UnknownBlocks { giver: FAR, places: vec![BlockId(64).into()] };
    let message = Box::new(unknown.clone().into());
    let route = NodeAction::Route { from: client, to: WorkerId(THERE.0), message };
    assert_eq!(send(&mut node, client, unknown), [route]);
}

#[test]
fn a_block_whose_owner_at_another_node_is_gone_is_free_when_nobody_reads_it() {
    let (mut node, maker) = given_in_a_cluster();
    let gone = worker_dead(FAR, "was killed");
    on(&mut node, |node, out| node.on_control(ToNode::WorkerDead(Box::new(gone)), out));
    assert!(node.holders().of(Place::of(64)).is_empty(), "whoever reads it is asked");
    // One that comes after that is nobody's, too.
    node.on_allocated(BlockId(128), maker);
    let give = GiveBlock { block: BlockId(128), owner: FAR, object: Some(object()) };
    send(&mut node, maker, give);
    assert!(node.holders().of(Place::of(128)).is_empty());
}

/// A value that a borrower at another node says to be here.
fn home_pull() -> Pull {
    let location = Location { offset: 64, length: LENGTH };
    Pull { object: object(), remote: Remote { node: HERE, location }, priority: Priority::Argument }
}

#[test]
fn a_value_that_lies_here_is_shared_and_not_copied() {
    let (mut node, maker) = given();
    let reader = WorkerId(maker.0 + 1);
    let location = Some(home_pull().remote.location);
    let here = Pulled { object: object(), location, failure: None, tried: None };
    assert_eq!(send(&mut node, reader, home_pull()), [told(reader, here)]);
    routed(&mut node, FAR, free(64));
    assert_eq!(
        send(&mut node, reader, free(64)),
        [NodeAction::FreeBlock(BlockId(64))],
        "the reader held it, too"
    );
    let tried = Some(home_pull().remote);
    let not_there = Pulled { object: object(), location: None, failure: None, tried };
    assert_eq!(send(&mut node, reader, home_pull()), [told(reader, not_there)]);
}

#[test]
fn who_asks_before_the_maker_has_spoken_waits() {
    let (mut node, maker, reader) = node();
    node.on_allocated(BlockId(64), maker);
    assert_eq!(send(&mut node, reader, home_pull()), []);
    let give = GiveBlock { block: BlockId(64), owner: FAR, object: Some(object()) };
    let location = Some(home_pull().remote.location);
    assert_eq!(
        send(&mut node, maker, give),
        [told(reader, Pulled { object: object(), location, failure: None, tried: None })]
    );
}

#[test]
fn who_waits_for_a_maker_that_does_not_speak_asks_the_owner() {
    let (mut node, maker, reader) = node();
    let not_there = |tried| told(reader, Pulled { object: object(), location: None, failure: None, tried });
    let is_certain = Some(home_pull().remote);
    for block in [64, 64] {
        node.on_allocated(BlockId(block), maker);
        assert_eq!(send(&mut node, reader, home_pull()), []);
        assert_eq!(
            send(&mut node, maker, free(block)),
            [NodeAction::FreeBlock(BlockId(block)), not_there(is_certain)]
        );
    }
    node.on_allocated(BlockId(64), maker);
    assert_eq!(send(&mut node, reader, home_pull()), []);
    let deadline = node.next_deadline().expect("it does not wait for ever");
    let mut out = NodeActions::new();
    node.after_events(deadline, &mut out);
    assert_eq!(out, [not_there(None)], "the maker may speak yet");
}

#[test]
fn an_argument_that_the_node_keeps_for_an_actor_is_served() {
    let (mut node, creator, _) = node();
    node.on_allocated(BlockId(64), creator);
    let argument = TaskId { owner: creator, number: 3 }.object(0);
    let mut create = create(TaskId { owner: creator, number: 4 });
    create.detached = Some(true);
    let outcome = Outcome::Stored(Location { offset: 64, length: LENGTH });
    create.constructor.dependencies.push(Dependency { object: argument, outcome, contained: Vec::new() });
    send(&mut node, creator, create);
    on(&mut node, |node, out| node.on_dead(creator, "was killed", None, out));
    assert_eq!(node.serves(Place::of(64), argument), Serves::Yes);
}

#[test]
fn a_copy_that_is_lost_is_pulled_again() {
    let (mut node, first, second) = node();
    let attempt = fetch(&mut node, first);
    on(&mut node, |node, out| node.on_bytes(object(), attempt, LENGTH, out));
    on(&mut node, |node, out| node.lose_blocks(&[BlockId(64)], out));
    let again = send(&mut node, second, pull());
    assert_eq!(again, [NodeAction::AllocateFor { object: object(), bytes: LENGTH }]);
}

/// What is said to the owner of the object, which is at the other node.
fn to_owner(message: impl Into<Message>) -> NodeAction {
    NodeAction::Route { from: WorkerId(HERE.0), to: FAR, message: Box::new(message.into()) }
}

#[test]
fn a_copy_is_made_as_its_owner_says_and_goes_when_the_owner_lets_it() {
    let (mut node, first, _) = node();
    node.join_cluster();
    node.ask_owners();
    let (object, third) = (object(), NodeId(3 << 24));
    let asked = send(&mut node, first, pull());
    assert!(asked.contains(&NodeAction::AllocateFor { object, bytes: LENGTH }), "{asked:?}");
    let watch = Box::new(Watch { worker: FAR }.into());
    assert!(asked.contains(&NodeAction::Route {
        from: WorkerId(HERE.0),
        to: WorkerId(THERE.0),
        message: watch
    }));
    let located = on(&mut node, |node, out| node.on_block(object, BlockId(64), out));
    assert_eq!(located, [to_owner(Locate { object, node: HERE })]);
    assert_eq!(node.begin_serving_copy(object, 5, LENGTH), ServedCopy::NotYet);

    let sender = Remote { node: third, location: Location { offset: 0, length: LENGTH } };
    let word = Located {
        object,
        node: HERE,
        sender: Some(sender),
        generation: 5,
        attempt: Some(TransferAttempt(9)),
        is_copy: true,
    };
    let fetched = routed(&mut node, FAR, word.clone());
    let [NodeAction::Fetch(fetching)] = &fetched[..] else { panic!("{fetched:?}") };
    assert_eq!(
        (fetching.remote, fetching.at, fetching.generation, fetching.after),
        (sender, 0, Some(5), None)
    );
    let attempt = fetching.attempt;
    assert_eq!(routed(&mut node, FAR, word.clone()), [], "it was said before");
    assert_eq!(
        node.begin_serving_copy(object, 5, LENGTH),
        ServedCopy::Moving { block: BlockId(64), attempt }
    );
    assert_eq!(node.begin_serving_copy(object, 5, LENGTH + 1), ServedCopy::NotYet);

    // Another sender: the stream goes on behind what has come by then.
    let switched = routed(&mut node, FAR, Located { attempt: Some(TransferAttempt(10)), ..word });
    let [NodeAction::Fetch(next)] = &switched[..] else { panic!("{switched:?}") };
    assert_eq!((next.after, next.block), (Some(attempt), BlockId(64)));
    let attempt = next.attempt;
    let came = on(&mut node, |node, out| node.on_bytes(object, attempt, LENGTH, out));
    let location = Some(Location { offset: 64, length: LENGTH });
    let here = told(first, Pulled { object, location, failure: None, tried: None });
    assert_eq!(came, [to_owner(CopyMade { object, node: HERE, attempt: TransferAttempt(10) }), here]);

    assert_eq!(node.begin_serving_copy(object, 4, LENGTH), ServedCopy::No, "of another execution");
    assert_eq!(node.begin_serving_copy(object, 5, LENGTH), ServedCopy::Here(BlockId(64)));
    on(&mut node, |node, out| node.end_serving(BlockId(64), out));
    on(&mut node, |node, out| node.end_serving(BlockId(64), out));
    assert_eq!(send(&mut node, first, free(64)), [], "there is room for it");
    let moves =
        |node: &mut NodeCore, out: &mut NodeActions| assert!(node.relieve(Room::of(1), |_| LENGTH, out));
    assert_eq!(on(&mut node, moves), [to_owner(CopyLeaving { object, node: HERE })]);
    assert_eq!(on(&mut node, moves), [], "it is about to go");
    assert_eq!(
        node.begin_serving_copy(object, 5, LENGTH),
        ServedCopy::Here(BlockId(64)),
        "somebody may be sent here"
    );
    let dropped = routed(&mut node, FAR, DropCopy { object, node: HERE });
    assert_eq!(dropped, [], "it is being read");
    assert_eq!(
        on(&mut node, |node, out| node.end_serving(BlockId(64), out)),
        [NodeAction::FreeBlock(BlockId(64))]
    );
    assert!(node.holders().is_empty());
}

/// A node with a copy in block 64 that its owner knows of, and that the first process has let go of.
fn with_copy() -> (NodeCore, WorkerId, WorkerId) {
    let (mut node, first, second) = node();
    node.join_cluster();
    node.ask_owners();
    let object = object();
    send(&mut node, first, pull());
    on(&mut node, |node, out| node.on_block(object, BlockId(64), out));
    let sender = Some(Remote { node: THERE, location: Location { offset: 128, length: LENGTH } });
    let word = Located {
        object,
        node: HERE,
        sender,
        generation: 5,
        attempt: Some(TransferAttempt(9)),
        is_copy: false,
    };
    let fetched = routed(&mut node, FAR, word);
    let [NodeAction::Fetch(fetching)] = &fetched[..] else { panic!("{fetched:?}") };
    let attempt = fetching.attempt;
    on(&mut node, |node, out| node.on_bytes(object, attempt, LENGTH, out));
    assert_eq!(send(&mut node, first, free(64)), []);
    (node, first, second)
}

/// What a process hears whose value is in block 64.
fn found(process: WorkerId) -> NodeAction {
    let location = Some(Location { offset: 64, length: LENGTH });
    told(process, Pulled { object: object(), location, failure: None, tried: None })
}

#[test]
fn a_copy_that_nobody_needs_is_found_again_and_goes_with_its_value() {
    let (mut node, first, second) = with_copy();
    assert_eq!(send(&mut node, second, pull()), [found(second)], "nothing is asked of anybody");
    assert_eq!(send(&mut node, first, pull()), [found(first)]);
    assert_eq!(send(&mut node, second, free(64)), []);
    assert_eq!(send(&mut node, first, free(64)), []);
    let dropped = routed(&mut node, FAR, DropCopy { object: object(), node: HERE });
    assert_eq!(dropped, [NodeAction::FreeBlock(BlockId(64))]);
    assert!(node.holders().is_empty());
}

/// Whoever was lent a copy of a value that was lost where it came from is told of the copy's place.
#[test]
fn a_copy_is_found_again_by_where_it_lies_too() {
    let (mut node, first, second) = with_copy();
    assert_eq!(send(&mut node, second, home_pull()), [found(second)]);
    assert_eq!(send(&mut node, first, home_pull()), [found(first)]);
    assert_eq!(send(&mut node, second, free(64)), []);
    let dropped = routed(&mut node, FAR, DropCopy { object: object(), node: HERE });
    assert_eq!(dropped, [], "the first one holds it");
    assert_eq!(send(&mut node, first, free(64)), [NodeAction::FreeBlock(BlockId(64))]);
    assert!(node.holders().is_empty());
}

#[test]
fn a_copy_that_nobody_needs_goes_when_its_owner_is_gone_or_may_have_said_so() {
    let (mut node, ..) = with_copy();
    let gone = worker_dead(FAR, "");
    let ended = on(&mut node, |node, out| node.on_control(ToNode::WorkerDead(Box::new(gone)), out));
    assert!(ended.contains(&NodeAction::FreeBlock(BlockId(64))), "{ended:?}");
    assert!(node.holders().is_empty());

    let (mut node, first, _) = with_copy();
    let again = on(&mut node, |node, out| node.on_link_ended(THERE, out));
    assert!(again.contains(&to_owner(CopyLeaving { object: object(), node: HERE })), "{again:?}");
    // In use meanwhile: what the owner answers is not the end of that.
    assert_eq!(send(&mut node, first, pull()), [found(first)]);
    assert_eq!(routed(&mut node, FAR, DropCopy { object: object(), node: HERE }), []);
    assert_eq!(send(&mut node, first, free(64)), [NodeAction::FreeBlock(BlockId(64))]);
    assert!(node.holders().is_empty());
}

#[test]
fn a_copy_that_is_lost_while_it_is_to_go_is_kept_for_nobody() {
    let (mut node, _, second) = with_copy();
    let object = object();
    let asked = on(&mut node, |node, out| assert!(node.relieve(Room::of(1), |_| LENGTH, out)));
    assert_eq!(asked, [to_owner(CopyLeaving { object, node: HERE })]);
    assert_eq!(send(&mut node, second, pull()), [found(second)]);
    on(&mut node, |node, out| node.lose_blocks(&[BlockId(64)], out));
    assert_eq!(routed(&mut node, FAR, DropCopy { object, node: HERE }), []);
    send(&mut node, second, free(64));
    assert!(node.holders().is_empty());
}

#[test]
fn no_value_is_written_when_copies_that_nobody_needs_are_enough() {
    let held = BlockId(4096);
    let with_value = || {
        let (mut node, first, _) = with_copy();
        node.set_spills();
        node.on_allocated(held, first);
        (node, first)
    };
    let copy_leaves = to_owner(CopyLeaving { object: object(), node: HERE });
    let room = Room { least: LENGTH, most: 2 * LENGTH };

    let (mut node, _) = with_value();
    let ahead = on(&mut node, |node, out| node.spill_ahead(room, |_| LENGTH, out));
    assert_eq!(ahead, std::slice::from_ref(&copy_leaves));
    let again = on(&mut node, |node, out| node.spill_ahead(room, |_| LENGTH, out));
    assert_eq!(again, [], "the copy is leaving");

    let (mut node, first) = with_value();
    let asked = on(&mut node, |node, out| assert!(node.relieve(room, |_| LENGTH, out)));
    assert_eq!(asked, std::slice::from_ref(&copy_leaves));
    let more = Room { least: LENGTH + 1, ..room };
    let asked = on(&mut node, |node, out| assert!(node.relieve(more, |_| LENGTH, out)));
    let [NodeAction::Send(holder, message)] = &asked[..] else { panic!("{asked:?}") };
    let Message::Relinquish(question) = &**message else { panic!("{message:?}") };
    assert_eq!((*holder, question.blocks[0].block), (first, held), "now the copy is too small");
}

#[test]
fn what_the_owner_directs_ends_with_it() {
    let (mut node, first, _) = node();
    node.join_cluster();
    node.ask_owners();
    send(&mut node, first, pull());
    on(&mut node, |node, out| node.on_block(object(), BlockId(64), out));
    let gone = worker_dead(FAR, "");
    let ended = on(&mut node, |node, out| node.on_control(ToNode::WorkerDead(Box::new(gone)), out));
    let not_there = told(first, Pulled { object: object(), location: None, failure: None, tried: None });
    assert!(ended.contains(&not_there) && ended.contains(&NodeAction::FreeBlock(BlockId(64))), "{ended:?}");
    assert!(node.holders().is_empty());
}
