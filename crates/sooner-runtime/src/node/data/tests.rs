//! Values between the threads of two and more nodes in one process, over loopback.

mod failures;
mod neighbours;
mod speed;
mod spilled;

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags};
use sooner_protocol::node::objects::{Fetching, Serves, StreamEnd};
use sooner_store::Mapping;
use sooner_wire::message::{Location, Place, Remote};
use sooner_wire::{BlockId, FetchAttempt, NodeId, ObjectId, TaskId, WorkerId};

use super::*;
use crate::identity::testing::member;

const A: NodeId = NodeId(0x0a00_0000);
const B: NodeId = NodeId(0x0b00_0000);
const C: NodeId = NodeId(0x0c00_0000);
const CLUSTER: u8 = 1;
const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;
/// Nothing in these tests takes so long (nanoseconds): it ends what hangs.
const WATCHDOG: u64 = 120 * SECOND;

/// Values are sent, also on one machine.
const SENT: Tuning = Tuning {
    connections: DATA_CONNECTIONS,
    // Every node is far: several connections are the harder case.
    far: 0,
    idle: DATA_IDLE_NANOS,
    patience: DATA_PATIENCE_NANOS,
    shares_memory: false,
};

/// What a node does around its thread, as far as values are concerned.
struct Node {
    id: NodeId,
    data: Option<Data>,
    mapping: Arc<Mapping>,
    wake: Arc<OwnedFd>,
    listener: TcpListener,
    directory: PathBuf,
    /// Objects that may be read, by block.
    objects: HashMap<u64, ObjectId>,
    /// Blocks that are kept for others, and how often.
    kept: HashMap<u64, u32>,
    /// Values that come, or have come, for those who want a copy: their blocks, and the streams by which they
    /// still come.
    arriving: HashMap<ObjectId, (u64, Option<u64>)>,
    /// How often somebody asked for a copy.
    asked_copies: usize,
    /// How many connections were made to it.
    guests_seen: usize,
    /// How often somebody is told to come again first.
    puts_off: u32,
    /// Whether the first one who asks for the beginning of a value gets no answer; and who that is, and for
    /// which block. Which of several connections is the first to ask depends on the handshakes.
    holds_beginning: bool,
    held: Option<(Ticket, u64)>,
    bytes: HashMap<u64, u64>,
    ends: HashMap<u64, StreamEnd>,
    /// What those who come want.
    guests: ForData,
    /// How often a node was to be asked to come.
    asked_for: HashMap<NodeId, usize>,
    /// Values on disk.
    disk: spilled::Disk,
}

impl Node {
    fn new(id: NodeId, store: u64) -> Self {
        Self::tuned(id, store, SENT)
    }

    fn tuned(id: NodeId, store: u64, tuning: Tuning) -> Self {
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        let wake = Arc::new(rustix::event::eventfd(0, flags).expect("a descriptor"));
        let mapping = Arc::new(Mapping::create(store).expect("memory"));
        // The log is of no interest, and there is no such directory.
        let directory = std::env::temp_dir().join(format!("sooner-test-no-such-{}", std::process::id()));
        let options = DataOptions {
            identity: member(id, CLUSTER),
            python: "3.11".to_owned(),
            mapping: mapping.clone(),
            wake: wake.clone(),
            directory: directory.clone(),
            tuning,
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        Self {
            id,
            data: Some(Data::start(options).expect("a thread")),
            mapping,
            wake,
            listener,
            directory,
            objects: HashMap::new(),
            kept: HashMap::new(),
            arriving: HashMap::new(),
            asked_copies: 0,
            guests_seen: 0,
            puts_off: 0,
            holds_beginning: false,
            held: None,
            bytes: HashMap::new(),
            ends: HashMap::new(),
            guests: ForData::Asks,
            asked_for: HashMap::new(),
            disk: spilled::Disk::default(),
        }
    }

    fn address(&self) -> SocketAddr {
        self.listener.local_addr().expect("bound")
    }

    fn data(&mut self) -> &mut Data {
        self.data.as_mut().expect("it runs")
    }

    /// A value in the memory of this node.
    fn put(&mut self, number: u64, length: u64) -> (ObjectId, Remote) {
        let object = object(number);
        let offset = Mapping::header_bytes();
        // SAFETY: one value at a time, of which nobody has heard yet.
        let bytes = unsafe { self.mapping.bytes_mut(offset, length) };
        fill(bytes, number);
        self.objects.insert(offset, object);
        (object, Remote { node: self.id, location: Location { offset, length } })
    }

    fn fetch(&mut self, value: (ObjectId, Remote), attempt: u64, at: u64, from: SocketAddr) {
        self.fetch_after(value, attempt, at, None, from);
    }

    fn fetch_after(
        &mut self,
        (object, remote): (ObjectId, Remote),
        attempt: u64,
        at: u64,
        after: Option<u64>,
        from: SocketAddr,
    ) {
        let (block, generation) = (Mapping::header_bytes(), None);
        let (attempt, after) = (FetchAttempt(attempt), after.map(FetchAttempt));
        let fetching = Fetching { object, remote, at, block: BlockId(block), attempt, generation, after };
        self.data().fetch(&fetching, Some(from));
    }

    /// A value comes by this stream, and may be sent on.
    fn passes_on(&mut self, value: (ObjectId, Remote), attempt: u64) {
        self.arriving.insert(value.0, (Mapping::header_bytes(), Some(attempt)));
    }

    /// Fetches a value to this block, from where it was made.
    fn fetch_to(&mut self, block: u64, (object, remote): (ObjectId, Remote), attempt: u64, from: SocketAddr) {
        self.arriving.insert(object, (block, Some(attempt)));
        let (attempt, after) = (FetchAttempt(attempt), None);
        let fetching =
            Fetching { object, remote, at: 0, block: BlockId(block), attempt, generation: None, after };
        self.data().fetch(&fetching, Some(from));
    }

    /// Fetches a value from a node that has a copy, or is getting one.
    fn fetch_copy(&mut self, value: (ObjectId, Remote), attempt: u64, from: &Node) {
        self.fetch_copy_to(Mapping::header_bytes(), value, attempt, from);
    }

    fn fetch_copy_to(&mut self, block: u64, (object, remote): (ObjectId, Remote), attempt: u64, from: &Node) {
        let generation = Some(1);
        let remote = Remote { node: from.id, ..remote };
        let (attempt, after) = (FetchAttempt(attempt), None);
        let fetching = Fetching { object, remote, at: 0, block: BlockId(block), attempt, generation, after };
        let address = from.address();
        self.data().fetch(&fetching, Some(address));
    }

    /// Does what is to be done without waiting.
    fn turn(&mut self) {
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        let Some(data) = &mut self.data else { return };
        while let Ok((socket, address)) = self.listener.accept() {
            self.guests_seen += 1;
            data.admit(socket.into(), address, self.guests);
        }
        for event in data.take_events() {
            match event {
                DataEvent::Bytes { attempt, bytes, .. } => {
                    self.bytes.insert(attempt.0, bytes);
                }
                DataEvent::AskFor(node) => *self.asked_for.entry(node).or_default() += 1,
                DataEvent::End { attempt, end, .. } => {
                    self.ends.insert(attempt.0, end);
                }
                DataEvent::Asked { ticket, object, generation: Some(_), .. } => {
                    self.asked_copies += 1;
                    let Some((block, stream)) = self.arriving.get_mut(&object) else {
                        data.answer(ticket, 0, Serves::NotYet);
                        continue;
                    };
                    if data.answer_copy(ticket, *block, stream.map(FetchAttempt)) {
                        *self.kept.entry(*block).or_default() += 1;
                    } else {
                        // The stream has ended since, or is about to be followed by another.
                        *stream = stream.filter(|attempt| !self.bytes.contains_key(attempt));
                        data.answer(ticket, *block, Serves::NotYet);
                    }
                }
                DataEvent::Asked { ticket, location, generation: None, part, .. }
                    if self.holds_beginning && part.start == 0 =>
                {
                    self.holds_beginning = false;
                    self.held = Some((ticket, location.offset));
                }
                DataEvent::Asked { ticket, object, location, generation: None, part } => {
                    if let Place::Disk(spilled) = location.place() {
                        self.disk.want(ticket, spilled, part);
                        continue;
                    }
                    let is_there = self.objects.get(&location.offset) == Some(&object);
                    let serves = match (is_there, self.puts_off) {
                        (true, 1..) => Serves::NotYet,
                        (true, 0) => Serves::Yes,
                        (false, _) => Serves::No,
                    };
                    self.puts_off = self.puts_off.saturating_sub(1);
                    if serves == Serves::Yes {
                        *self.kept.entry(location.offset).or_default() += 1;
                    }
                    data.answer(ticket, location.offset, serves);
                }
                DataEvent::Served { block } => {
                    let kept = self.kept.get_mut(&block).expect("kept before");
                    *kept -= 1;
                    if *kept == 0 {
                        self.kept.remove(&block);
                    }
                }
            }
        }
        self.disk.serve(data);
    }

    /// Answers whoever was held.
    fn let_go(&mut self) {
        let (ticket, block) = self.held.take().expect("somebody has asked");
        *self.kept.entry(block).or_default() += 1;
        self.data().answer(ticket, block, Serves::Yes);
    }

    fn has(&self, number: u64, length: u64) -> bool {
        self.has_in(Mapping::header_bytes(), number, length)
    }

    fn has_in(&self, block: u64, number: u64, length: u64) -> bool {
        let mut expected = vec![0; usize::try_from(length).expect("fits")];
        fill(&mut expected, number);
        self.mapping.bytes(block, length) == expected
    }
}

fn object(number: u64) -> ObjectId {
    TaskId { owner: WorkerId(A.0 + 1), number }.object(0)
}

/// Bytes that are at no other place of this value, nor in another one.
fn fill(bytes: &mut [u8], number: u64) {
    for (at, part) in bytes.chunks_mut(8).enumerate() {
        let word = (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number;
        part.copy_from_slice(&word.to_le_bytes()[..part.len()]);
    }
}

/// Lets nodes go on until `done`.
fn run(nodes: &mut [&mut Node], mut done: impl FnMut(&[&mut Node]) -> bool) {
    let deadline = crate::clock::now().plus(WATCHDOG);
    loop {
        nodes.iter_mut().for_each(|node| node.turn());
        if done(nodes) {
            return;
        }
        assert!(crate::clock::now() < deadline, "it hangs");
        let mut polled = Vec::new();
        for node in nodes.iter() {
            polled.push(PollFd::new(&*node.wake, PollFlags::IN));
            polled.push(PollFd::new(&node.listener, PollFlags::IN));
        }
        let timeout = rustix::event::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
        let _ = rustix::event::poll(&mut polled, Some(&timeout));
    }
}

fn is_kept_nowhere(nodes: &[&mut Node]) -> bool {
    nodes.iter().all(|node| node.kept.is_empty())
}

#[test]
fn values_of_all_sizes_arrive() {
    let (mut a, mut b) = (Node::new(A, 40 * MIB), Node::new(B, 40 * MIB));
    let chunk = u64::from(sooner_wire::limits::CHUNK_BYTES_MAX);
    let piece = sooner_wire::limits::PIECE_BYTES;
    let wide = sooner_wire::limits::WIDE_BYTES;
    let sizes = [
        1,
        2,
        31,
        4096,
        chunk - 1,
        chunk,
        chunk + 1,
        piece - 1,
        piece,
        piece + 1,
        wide,
        wide + 12_345,
        33 * MIB + 7,
    ];
    for (length, number) in sizes.into_iter().zip(1..) {
        let value = a.put(number, length);
        b.fetch(value, number, 0, a.address());
        run(&mut [&mut a, &mut b], |nodes| nodes[1].bytes.contains_key(&number) && is_kept_nowhere(nodes));
        assert_eq!(b.bytes[&number], length);
        assert!(b.has(number, length), "{length} bytes");
    }
    assert!(b.ends.is_empty());
}

#[test]
fn a_very_large_value_arrives() {
    let length = 256 * MIB - 3;
    let (mut a, mut b) = (Node::new(A, 256 * MIB), Node::new(B, 256 * MIB));
    let value = a.put(1, length);
    b.fetch(value, 1, 0, a.address());
    run(&mut [&mut a, &mut b], |nodes| nodes[1].bytes.contains_key(&1) && is_kept_nowhere(nodes));
    assert!(b.has(1, length));
}

#[test]
fn a_stream_goes_on_where_the_last_one_ended() {
    let length = 20 * MIB + 1;
    let (mut a, mut b) = (Node::new(A, 32 * MIB), Node::new(B, 32 * MIB));
    let value = a.put(1, length);
    let there = 7 * MIB + 77;
    // SAFETY: nobody reads or writes it yet.
    unsafe { b.mapping.bytes_mut(Mapping::header_bytes(), there) }.fill(0xee);
    b.fetch(value, 1, there, a.address());
    run(&mut [&mut a, &mut b], |nodes| nodes[1].bytes.contains_key(&1) && is_kept_nowhere(nodes));
    let (got, sent) =
        (b.mapping.bytes(Mapping::header_bytes(), length), a.mapping.bytes(Mapping::header_bytes(), length));
    let there = usize::try_from(there).expect("fits");
    assert!(got[..there].iter().all(|byte| *byte == 0xee), "what was there is not touched");
    assert!(got[there..] == sent[there..]);
}

#[test]
fn two_nodes_read_one_value_at_a_time() {
    let length = 18 * MIB + 5;
    let (mut a, mut b, mut c) = (Node::new(A, 20 * MIB), Node::new(B, 20 * MIB), Node::new(C, 20 * MIB));
    let value = a.put(1, length);
    b.fetch(value, 1, 0, a.address());
    c.fetch(value, 1, 0, a.address());
    run(&mut [&mut a, &mut b, &mut c], |nodes| {
        nodes[1..].iter().all(|node| node.bytes.contains_key(&1)) && is_kept_nowhere(nodes)
    });
    assert!(b.has(1, length) && c.has(1, length));
}

#[test]
fn who_cannot_be_dialled_comes_and_is_asked() {
    let length = 18 * MIB + 5;
    let (mut a, mut b) = (Node::new(A, 20 * MIB), Node::new(B, 20 * MIB));
    b.guests = ForData::Serves;
    let (object, remote) = a.put(1, length);
    let fetching = Fetching {
        object,
        remote,
        at: 0,
        block: BlockId(Mapping::header_bytes()),
        attempt: FetchAttempt(1),
        generation: None,
        after: None,
    };
    b.data().fetch(&fetching, None);
    run(&mut [&mut a, &mut b], |nodes| nodes[1].asked_for.contains_key(&A));
    let asked = b.asked_for[&A];
    assert_eq!(asked, Tuning::default().connections, "a large value comes over several");
    (0..asked).for_each(|_| a.data().offer(B, b.address()));
    run(&mut [&mut a, &mut b], |nodes| nodes[1].bytes.contains_key(&1) && is_kept_nowhere(nodes));
    assert!(b.has(1, length) && b.ends.is_empty());
    // The next one goes over what is there.
    b.data().fetch(&Fetching { attempt: FetchAttempt(2), ..fetching }, None);
    run(&mut [&mut a, &mut b], |nodes| nodes[1].bytes.contains_key(&2) && is_kept_nowhere(nodes));
    assert!(b.has(1, length));
    assert_eq!(b.asked_for[&A], asked);
}

#[test]
fn who_was_asked_to_come_in_vain_does_not_have_it() {
    let tuning = Tuning { patience: 50_000_000, ..SENT };
    let mut b = Node::tuned(B, MIB, tuning);
    let location = Location { offset: Mapping::header_bytes(), length: 1000 };
    let remote = Remote { node: A, location };
    let fetching = Fetching {
        object: object(1),
        remote,
        at: 0,
        block: BlockId(location.offset),
        attempt: FetchAttempt(1),
        generation: None,
        after: None,
    };
    b.data().fetch(&fetching, None);
    run(&mut [&mut b], |nodes| nodes[0].ends.contains_key(&1));
    assert_eq!(b.ends[&1], StreamEnd::NotThere);
    assert_eq!(b.asked_for[&A], 1);
}

#[test]
fn who_does_not_know_yet_is_asked_again() {
    let (mut a, mut b) = (Node::new(A, MIB), Node::new(B, MIB));
    let value = a.put(1, 1000);
    a.puts_off = 3;
    b.fetch(value, 1, 0, a.address());
    run(&mut [&mut a, &mut b], |nodes| nodes[1].bytes.contains_key(&1) && is_kept_nowhere(nodes));
    assert!(b.has(1, 1000) && a.puts_off == 0);
}

#[test]
fn a_value_is_sent_on_while_it_is_still_arriving() {
    let length = 40 * MIB + 3;
    let (mut a, mut b, mut c) = (Node::new(A, 48 * MIB), Node::new(B, 48 * MIB), Node::new(C, 48 * MIB));
    let value = a.put(1, length);
    // C asks before there is a byte at B.
    b.passes_on(value, 1);
    b.fetch(value, 1, 0, a.address());
    c.fetch_copy(value, 7, &b);
    run(&mut [&mut a, &mut b, &mut c], |nodes| {
        nodes[1].bytes.contains_key(&1) && nodes[2].bytes.contains_key(&7) && is_kept_nowhere(nodes)
    });
    assert!(b.has(1, length) && c.has(1, length));
    let moved = |node: &Node| node.data.as_ref().expect("it runs").moved();
    let sums = [moved(&a), moved(&b), moved(&c)].map(|moved| (moved.sent, moved.came));
    assert_eq!(sums, [(length, 0), (length, length), (0, length)]);
}

#[test]
fn a_node_that_is_near_is_asked_over_one_connection() {
    let length = 40 * MIB;
    for (far, expected) in [(u64::MAX, 1), (0, DATA_CONNECTIONS)] {
        let tuning = Tuning { far, ..SENT };
        let (mut a, mut b) = (Node::tuned(A, 48 * MIB, tuning), Node::tuned(B, 48 * MIB, tuning));
        let value = a.put(1, length);
        b.fetch(value, 1, 0, a.address());
        run(&mut [&mut a, &mut b], |nodes| nodes[1].bytes.contains_key(&1) && is_kept_nowhere(nodes));
        assert!(b.has(1, length));
        assert_eq!(a.guests_seen, expected);
    }
}

#[test]
fn what_came_before_its_turn_is_sent_on_before_its_turn() {
    let length = 40 * MIB;
    let (mut a, mut b, mut c) = (Node::new(A, 48 * MIB), Node::new(B, 48 * MIB), Node::new(C, 48 * MIB));
    let value = a.put(1, length);
    // The beginning of the value does not come to B, and its other connections bring what is behind it.
    a.holds_beginning = true;
    b.passes_on(value, 1);
    b.fetch(value, 1, 0, a.address());
    c.fetch_copy(value, 7, &b);
    let came = |node: &Node| node.data.as_ref().expect("it runs").moved().came;
    run(&mut [&mut a, &mut b, &mut c], |nodes| came(nodes[2]) >= 8 * MIB);
    assert!(!b.has(1, 1) && !c.has(1, 1));
    a.let_go();
    run(&mut [&mut a, &mut b, &mut c], |nodes| {
        nodes[1].bytes.contains_key(&1) && nodes[2].bytes.contains_key(&7) && is_kept_nowhere(nodes)
    });
    assert!(b.has(1, length) && c.has(1, length));
}

#[test]
fn values_that_wait_for_their_bytes_leave_room_for_others() {
    let length = 12 * MIB;
    let (mut a, mut b, mut c) = (Node::new(A, 40 * MIB), Node::new(B, 40 * MIB), Node::new(C, 40 * MIB));
    let (x, y, z) = (a.put(1, length), c.put(2, length), b.put(3, length));
    let first = Mapping::header_bytes() + length;
    let second = first + length;
    // Each asks another one for what that is to get from the third, before it does.
    b.fetch_copy_to(first, y, 1, &a);
    a.fetch_copy_to(first, z, 1, &c);
    c.fetch_copy_to(first, x, 1, &b);
    run(&mut [&mut a, &mut b, &mut c], |nodes| nodes.iter().all(|node| node.asked_copies >= 2));
    a.fetch_to(second, y, 2, c.address());
    c.fetch_to(second, z, 2, b.address());
    b.fetch_to(second, x, 2, a.address());
    let has_both = |node: &Node| [1, 2].iter().all(|attempt| node.bytes.get(attempt) == Some(&length));
    run(&mut [&mut a, &mut b, &mut c], |nodes| {
        let is_over = nodes.iter().all(|node| has_both(node) || !node.ends.is_empty());
        is_over && is_kept_nowhere(nodes)
    });
    assert!([&a, &b, &c].iter().all(|node| node.ends.is_empty()), "nobody waits for itself");
    assert!(a.has_in(first, 3, length) && b.has_in(first, 2, length) && c.has_in(first, 1, length));
}

#[test]
fn who_follows_a_stream_goes_on_with_the_one_that_follows_it() {
    let length = 40 * MIB;
    let (mut a, mut b, mut c) = (Node::new(A, 48 * MIB), Node::new(B, 48 * MIB), Node::new(C, 48 * MIB));
    let value = a.put(1, length);
    b.passes_on(value, 1);
    b.fetch(value, 1, 0, a.address());
    c.fetch_copy(value, 7, &b);
    let sent = |node: &Node| node.data.as_ref().expect("it runs").moved().sent;
    run(&mut [&mut a, &mut b, &mut c], |nodes| sent(nodes[1]) > 0 || nodes[1].bytes.contains_key(&1));
    b.passes_on(value, 2);
    b.fetch_after(value, 2, 0, Some(1), a.address());
    run(&mut [&mut a, &mut b, &mut c], |nodes| {
        nodes[1].bytes.contains_key(&2) && nodes[2].bytes.contains_key(&7) && is_kept_nowhere(nodes)
    });
    assert!(b.has(1, length) && c.has(1, length));
    assert!(!b.bytes.contains_key(&1) || sent(&a) >= length, "no byte is left out");
}
