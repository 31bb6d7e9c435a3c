//! Values between the threads of two and more nodes in one process, over loopback.

mod failures;
mod speed;

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags};
use weft_protocol::objects::{Fetching, Serves, StreamEnd};
use weft_store::Mapping;
use weft_wire::message::{Location, Remote};
use weft_wire::{NodeId, ObjectId, TaskId, WorkerId};

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
    /// How often somebody is told to come again first.
    puts_off: u32,
    bytes: HashMap<u64, u64>,
    ends: HashMap<u64, StreamEnd>,
    /// What those who come want.
    guests: ForData,
    /// How often a node was to be asked to come.
    asked_for: HashMap<NodeId, usize>,
}

impl Node {
    fn new(id: NodeId, store: u64) -> Self {
        Self::tuned(id, store, Tuning::default())
    }

    fn tuned(id: NodeId, store: u64, tuning: Tuning) -> Self {
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        let wake = Arc::new(rustix::event::eventfd(0, flags).expect("a descriptor"));
        let mapping = Arc::new(Mapping::create(store).expect("memory"));
        // The log is of no interest, and there is no such directory.
        let directory = std::env::temp_dir().join(format!("weft-test-no-such-{}", std::process::id()));
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
            puts_off: 0,
            bytes: HashMap::new(),
            ends: HashMap::new(),
            guests: ForData::Asks,
            asked_for: HashMap::new(),
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

    fn fetch(&mut self, (object, remote): (ObjectId, Remote), attempt: u64, at: u64, from: SocketAddr) {
        let fetching = Fetching { object, remote, at, block: Mapping::header_bytes(), attempt };
        self.data().fetch(&fetching, Some(from));
    }

    /// Does what is to be done without waiting.
    fn turn(&mut self) {
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        let Some(data) = &mut self.data else { return };
        while let Ok((socket, address)) = self.listener.accept() {
            data.admit(socket.into(), address, self.guests);
        }
        for event in data.take_events() {
            match event {
                DataEvent::Bytes { attempt, bytes, .. } => {
                    self.bytes.insert(attempt, bytes);
                }
                DataEvent::AskFor(node) => *self.asked_for.entry(node).or_default() += 1,
                DataEvent::End { attempt, end, .. } => {
                    self.ends.insert(attempt, end);
                }
                DataEvent::Asked { ticket, object, location } => {
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
                DataEvent::Stranger(_) => {}
            }
        }
    }

    fn has(&self, number: u64, length: u64) -> bool {
        let mut expected = vec![0; usize::try_from(length).expect("fits")];
        fill(&mut expected, number);
        self.mapping.bytes(Mapping::header_bytes(), length) == expected
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
    let chunk = u64::from(weft_wire::limits::CHUNK_BYTES_MAX);
    let piece = weft_wire::limits::PIECE_BYTES;
    let wide = weft_wire::limits::WIDE_BYTES;
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
    let fetching = Fetching { object, remote, at: 0, block: Mapping::header_bytes(), attempt: 1 };
    b.data().fetch(&fetching, None);
    run(&mut [&mut a, &mut b], |nodes| nodes[1].asked_for.contains_key(&A));
    let asked = b.asked_for[&A];
    assert_eq!(asked, Tuning::default().connections, "a large value comes over several");
    (0..asked).for_each(|_| a.data().offer(B, b.address()));
    run(&mut [&mut a, &mut b], |nodes| nodes[1].bytes.contains_key(&1) && is_kept_nowhere(nodes));
    assert!(b.has(1, length) && b.ends.is_empty());
    // The next one goes over what is there.
    b.data().fetch(&Fetching { attempt: 2, ..fetching }, None);
    run(&mut [&mut a, &mut b], |nodes| nodes[1].bytes.contains_key(&2) && is_kept_nowhere(nodes));
    assert!(b.has(1, length));
    assert_eq!(b.asked_for[&A], asked);
}

#[test]
fn who_was_asked_to_come_in_vain_does_not_have_it() {
    let tuning = Tuning { patience: 50_000_000, ..Tuning::default() };
    let mut b = Node::tuned(B, MIB, tuning);
    let location = Location { offset: Mapping::header_bytes(), length: 1000 };
    let remote = Remote { node: A, location };
    let fetching = Fetching { object: object(1), remote, at: 0, block: location.offset, attempt: 1 };
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
