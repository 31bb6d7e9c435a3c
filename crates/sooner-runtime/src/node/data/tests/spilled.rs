//! Values that are on the disk of the sender: what is asked for comes in buffers.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use sooner_protocol::node::objects::Serves;
use sooner_wire::message::{Location, Remote, SpillId};
use sooner_wire::{FetchAttempt, ObjectId};

use super::super::{Data, Ticket};
use super::{A, B, MIB, Node, SENT, Tuning, fill, object, run};
use crate::node::send_buffers::{SEND_BUFFERS_BYTES, SendBuffers};

/// What stands for a disk, and who waits for it.
pub(super) struct Disk {
    values: HashMap<SpillId, Vec<u8>>,
    wanted: VecDeque<(Ticket, SpillId, Range<u64>)>,
    buffers: Arc<SendBuffers>,
    /// How often something was read.
    reads: usize,
}

impl Default for Disk {
    fn default() -> Self {
        let buffers = SendBuffers::new(|| ());
        Self { values: HashMap::new(), wanted: VecDeque::new(), buffers, reads: 0 }
    }
}

impl Disk {
    pub(super) fn want(&mut self, ticket: Ticket, spilled: SpillId, part: Range<u64>) {
        self.wanted.push_back((ticket, spilled, part));
    }

    pub(super) fn serve(&mut self, data: &Data) {
        while let Some((ticket, spilled, part)) = self.wanted.front().cloned() {
            let Some(value) = self.values.get(&spilled) else {
                self.wanted.pop_front();
                data.answer(ticket, spilled.offset(), Serves::No);
                continue;
            };
            let Some(mut buffer) = self.buffers.take(part.start, part.end - part.start) else { return };
            self.wanted.pop_front();
            self.reads += 1;
            let index = |at| usize::try_from(at).expect("fits");
            buffer.bytes_mut().copy_from_slice(&value[index(part.start)..index(part.end)]);
            data.send(ticket, buffer);
        }
    }

    fn has_all_buffers(&self) -> bool {
        self.buffers.take(0, SEND_BUFFERS_BYTES).is_some()
    }
}

impl Node {
    fn put_on_disk(&mut self, number: u64, length: u64) -> (ObjectId, Remote) {
        let spilled = SpillId(number);
        let mut bytes = vec![0; usize::try_from(length).expect("fits")];
        fill(&mut bytes, number);
        self.disk.values.insert(spilled, bytes);
        (object(number), Remote { node: self.id, location: Location { offset: spilled.offset(), length } })
    }
}

/// `shares`: on one machine, where other values are read in the sender's memory.
fn sends(shares: bool) {
    let tuning = Tuning { shares_memory: shares, ..SENT };
    let (mut a, mut b) = (Node::tuned(A, MIB, tuning), Node::tuned(B, 96 * MIB, tuning));
    let piece = sooner_wire::limits::PIECE_BYTES;
    let sizes = [1, 4095, piece - 1, piece, piece + 1, 70 * MIB + 7];
    for (length, number) in sizes.into_iter().zip(1..) {
        let value = a.put_on_disk(number, length);
        b.fetch(value, number, 0, a.address());
        run(&mut [&mut a, &mut b], |nodes| nodes[1].bytes.contains_key(&number));
        assert_eq!(b.bytes[&number], length);
        assert!(b.has(number, length), "{length} bytes");
        run(&mut [&mut a, &mut b], |nodes| nodes[0].disk.has_all_buffers());
    }
    assert!(b.ends.is_empty());
    assert!(a.disk.reads > sizes.len(), "large values come in parts");
    assert_eq!(a.data().moved().copied, 0);
}

#[test]
fn what_is_on_disk_is_sent() {
    sends(false);
}

#[test]
fn what_is_on_disk_is_sent_to_neighbours_too() {
    sends(true);
}

#[test]
fn many_at_a_time_wait_for_buffers_and_all_come() {
    let tuning = Tuning { shares_memory: true, ..SENT };
    let (mut a, mut b) = (Node::tuned(A, MIB, tuning), Node::tuned(B, 128 * MIB, tuning));
    // Before the first one the two do not know that they are neighbours, and ask for little at a time.
    let first = a.put_on_disk(100, 1);
    b.fetch(first, 100, 0, a.address());
    run(&mut [&mut a, &mut b], |nodes| nodes[1].bytes.contains_key(&100));
    let length = 20 * MIB;
    let block = |number: u64| sooner_store::Mapping::header_bytes() + (number - 1) * length;
    for number in 1..=5 {
        let value = a.put_on_disk(number, length);
        b.fetch_to(block(number), value, number, a.address());
    }
    run(&mut [&mut a, &mut b], |nodes| (1..=5).all(|number| nodes[1].bytes.get(&number) == Some(&length)));
    assert!((1..=5).all(|number| b.has_in(block(number), number, length)));
    run(&mut [&mut a, &mut b], |nodes| nodes[0].disk.has_all_buffers());
}

#[test]
fn a_stream_that_is_stopped_or_lost_gives_its_buffers_back() {
    let (mut a, mut b) = (Node::new(A, MIB), Node::new(B, 96 * MIB));
    let value = a.put_on_disk(1, 64 * MIB);
    b.fetch(value, 1, 0, a.address());
    run(&mut [&mut a, &mut b], |nodes| nodes[0].disk.reads > 0);
    assert!(b.data().stop(FetchAttempt(1)).is_some());
    run(&mut [&mut a, &mut b], |nodes| nodes[0].disk.has_all_buffers());
    b.fetch(value, 2, 0, a.address());
    let reads = a.disk.reads;
    run(&mut [&mut a, &mut b], |nodes| nodes[0].disk.reads > reads);
    b.data = None;
    run(&mut [&mut a], |nodes| nodes[0].disk.has_all_buffers());
}

#[test]
fn what_is_not_on_disk_any_more_ends_its_stream() {
    let (mut a, mut b) = (Node::new(A, MIB), Node::new(B, 8 * MIB));
    let value = a.put_on_disk(1, MIB);
    a.disk.values.clear();
    b.fetch(value, 1, 0, a.address());
    run(&mut [&mut a, &mut b], |nodes| nodes[1].ends.contains_key(&1));
    assert_eq!(b.ends[&1], sooner_protocol::node::objects::StreamEnd::NotThere);
}
