//! Values that do not arrive, and those that arrive in spite of something.

use std::io::IoSlice;

use rustix::io::Errno;
use sooner_protocol::session::hello::{Me, hello};
use sooner_wire::limits::PIECES_MAX;
use sooner_wire::message::{ChunkHead, Message};
use sooner_wire::{DialAttempt, FetchAttempt};

use super::*;
use crate::identity::Destination;
use crate::transport::TlsStream;

const SHORT: Tuning =
    Tuning { connections: 4, far: 0, idle: SECOND / 20, patience: 3 * SECOND, shares_memory: false };

#[test]
fn what_is_not_there_is_refused_and_not_sent() {
    let (mut a, mut b) = (Node::new(A, MIB), Node::new(B, MIB));
    let (_, remote) = a.put(1, 1000);
    // Another object lies there by now.
    b.fetch((object(2), remote), 1, 0, a.address());
    run(&mut [&mut a, &mut b], |nodes| nodes[1].ends.contains_key(&1));
    assert_eq!(b.ends[&1], StreamEnd::NotThere);
    assert_eq!(b.mapping.bytes(Mapping::header_bytes(), 1000), [0; 1000]);
    // The connection is as good as before.
    b.fetch((object(1), remote), 2, 0, a.address());
    run(&mut [&mut a, &mut b], |nodes| nodes[1].bytes.get(&2) == Some(&1000) && is_kept_nowhere(nodes));
}

#[test]
fn nothing_is_written_after_a_stop_and_nothing_is_kept() {
    let length = 64 * MIB;
    let (mut a, mut b) = (Node::new(A, length), Node::new(B, length));
    let value = a.put(1, length);
    b.fetch(value, 1, 0, a.address());
    run(&mut [&mut a, &mut b], |nodes| !nodes[0].kept.is_empty());
    b.data().stop(FetchAttempt(1));
    // SAFETY: the block is free again, since nothing writes to it any more.
    unsafe { b.mapping.bytes_mut(Mapping::header_bytes(), length) }.fill(0xee);
    run(&mut [&mut a, &mut b], |nodes| nodes[0].kept.is_empty());
    assert!(b.mapping.bytes(Mapping::header_bytes(), length).iter().all(|byte| *byte == 0xee));
    assert!(b.ends.is_empty() && b.bytes.is_empty(), "nobody hears of it");
    // Another value over the same connections.
    b.fetch(value, 2, 0, a.address());
    run(&mut [&mut a, &mut b], |nodes| nodes[1].bytes.contains_key(&2) && is_kept_nowhere(nodes));
    assert!(b.has(1, length));
}

#[test]
fn when_the_sender_dies_the_stream_is_cut_and_then_given_up() {
    let length = 128 * MIB;
    let (mut a, mut b) = (Node::new(A, length), Node::tuned(B, length, SHORT));
    let value = a.put(1, length);
    let from = a.address();
    b.fetch(value, 1, 0, from);
    run(&mut [&mut a, &mut b], |nodes| !nodes[0].kept.is_empty());
    drop(a);
    run(&mut [&mut b], |nodes| nodes[0].ends.contains_key(&1));
    assert_eq!(b.ends[&1], StreamEnd::Cut);
    let there = b.bytes[&1];
    assert!(there < length);
    // As the node does then; nobody listens there.
    b.fetch(value, 2, there, from);
    run(&mut [&mut b], |nodes| nodes[0].ends.contains_key(&2));
    assert_eq!(b.ends[&2], StreamEnd::NotThere);
    assert_eq!(b.bytes[&2], there, "what was there still is");
}

#[test]
fn when_the_receiver_dies_nothing_stays_kept() {
    let length = 128 * MIB;
    let (mut a, mut b) = (Node::new(A, length), Node::new(B, length));
    let value = a.put(1, length);
    b.fetch(value, 1, 0, a.address());
    run(&mut [&mut a, &mut b], |nodes| !nodes[0].kept.is_empty());
    drop(b);
    run(&mut [&mut a], is_kept_nowhere);
}

#[test]
fn a_cut_stream_goes_on_from_its_mark() {
    let length = 128 * MIB + 3;
    let (mut a, mut b) = (Node::new(A, length), Node::new(B, length));
    let value = a.put(1, length);
    b.fetch(value, 1, 0, a.address());
    run(&mut [&mut a, &mut b], |nodes| !nodes[0].kept.is_empty());
    // The sender's thread ends, and with it every connection; another one takes its place.
    a.data = None;
    a.kept.clear();
    run(&mut [&mut b], |nodes| nodes[0].ends.contains_key(&1));
    assert_eq!(b.ends[&1], StreamEnd::Cut);
    let options = DataOptions {
        identity: member(A, CLUSTER),
        python: "3.11".to_owned(),
        mapping: a.mapping.clone(),
        wake: a.wake.clone(),
        directory: a.directory.clone(),
        tuning: SENT,
    };
    a.data = Some(Data::start(options).expect("a thread"));
    let there = b.bytes[&1];
    b.fetch(value, 2, there, a.address());
    run(&mut [&mut a, &mut b], |nodes| nodes[1].bytes.get(&2) == Some(&length) && is_kept_nowhere(nodes));
    assert!(b.has(1, length));
}

#[test]
fn an_idle_connection_ends_and_the_next_value_makes_another() {
    let (mut a, mut b) = (Node::new(A, MIB), Node::tuned(B, MIB, SHORT));
    for attempt in 1..=3 {
        let value = a.put(attempt, 5000);
        b.fetch(value, attempt, 0, a.address());
        run(&mut [&mut a, &mut b], |nodes| nodes[1].bytes.contains_key(&attempt) && is_kept_nowhere(nodes));
        assert!(b.has(attempt, 5000));
        std::thread::sleep(std::time::Duration::from_nanos(3 * SHORT.idle));
    }
    assert!(b.ends.is_empty(), "an end in order cuts nothing");
}

/// A node that says what it likes.
pub(super) struct Liar {
    stream: TlsStream,
    /// What is said before the handshake is over waits.
    queue: Vec<u8>,
    reader: Reader,
    heard: Vec<Message>,
}

impl Liar {
    fn me() -> Me {
        Me { id: WorkerId(C.0), is_head: false, python: "3.11".to_owned() }
    }

    /// Dials a node and greets it.
    pub(super) fn dial(node: &Node) -> Self {
        let socket = std::net::TcpStream::connect(node.address()).expect("it listens");
        let name = Destination::Data.server_name(node.id);
        let stream = TlsStream::dial(socket.into(), &member(C, CLUSTER), name);
        let mut liar = Self::over(stream);
        liar.send(&hello(&Self::me(), WorkerId(node.id.0), 0, DialAttempt(0), None).into());
        liar
    }

    /// Waits for a greeting.
    pub(super) fn accept(socket: OwnedFd) -> Self {
        Self::over(TlsStream::accept(socket, &member(C, CLUSTER)))
    }

    fn over(stream: TlsStream) -> Self {
        Self { stream, queue: Vec::new(), reader: Reader::default(), heard: Vec::new() }
    }

    /// What was said to it since the last call.
    pub(super) fn heard(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.heard)
    }

    pub(super) fn send(&mut self, message: &Message) {
        message.append(&mut self.queue, 0);
    }

    /// Goes on; whether the other side has ended the connection.
    pub(super) fn turn(&mut self) -> bool {
        if !self.queue.is_empty()
            && let Ok(bytes) = self.stream.write(&[IoSlice::new(&self.queue)])
        {
            self.queue.drain(..bytes);
        }
        let _ = self.stream.flush();
        let mut out = vec![0; 1 << 16];
        let read = self.stream.read(&mut out);
        if let Ok(bytes) = read {
            let heard = &mut self.heard;
            let fed = self.reader.feed(&out[..bytes], |part| {
                heard.extend(match part {
                    Part::Message(message) => Some(message),
                    Part::Chunk(_) | Part::Bytes(_) => None,
                });
                Ok(())
            });
            fed.expect("the other side does not lie");
        }
        !matches!(read, Ok(1..) | Err(Errno::AGAIN))
    }
}

pub(super) fn asks(offset: u64, length: u64, begin: u64, end: u64) -> Message {
    let (object, location) = (object(1), Location { offset, length });
    sooner_wire::message::Fetching {
        object,
        location,
        begin,
        end,
        attempt: FetchAttempt(1),
        generation: None,
    }
    .into()
}

#[test]
fn who_asks_for_what_cannot_be_is_disconnected() {
    let offset = Mapping::header_bytes();
    let many: Vec<Message> = (0..=PIECES_MAX).map(|_| asks(offset + 1, 100, 0, 100)).collect();
    for lies in [
        vec![asks(offset, 100, 0, 101)],
        vec![asks(offset, 100, 50, 50)],
        vec![asks(offset, 100, 60, 50)],
        vec![asks(u64::MAX, 100, 0, 100)],
        vec![sooner_wire::message::Heartbeat { number: 1, node_lag: 0, data_lag: 0 }.into()],
        many,
    ] {
        let mut a = Node::new(A, MIB);
        a.put(1, 1000);
        let mut liar = Liar::dial(&a);
        lies.iter().for_each(|lie| liar.send(lie));
        run(&mut [&mut a], |_| liar.turn());
        run(&mut [&mut a], is_kept_nowhere);
    }
}

#[test]
fn who_sends_what_nobody_asked_for_is_disconnected() {
    let good = ChunkHead { attempt: FetchAttempt(1), at: 0, number: 1, length: 100 };
    for (head, flags) in [
        (ChunkHead { attempt: FetchAttempt(2), ..good }, 0),
        (ChunkHead { at: 1, ..good }, 0),
        (ChunkHead { number: 2, ..good }, 0),
        (ChunkHead { length: 1001, ..good }, 0),
        (ChunkHead { length: 1 << 30, ..good }, 0),
        (ChunkHead { at: u64::MAX - 5, ..good }, 0),
        (good, 1),
    ] {
        let mut b = Node::new(B, MIB);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let location = Location { offset: Mapping::header_bytes(), length: 1000 };
        let from = listener.local_addr().expect("bound");
        b.fetch((object(1), Remote { node: C, location }), 1, 0, from);
        let (socket, _) = listener.accept().expect("it dials");
        let mut liar = Liar::accept(socket.into());
        let party = sooner_protocol::session::hello::Party {
            id: WorkerId(B.0),
            minor: sooner_wire::version::PROTOCOL_MINOR,
            features: 0,
            session: 0,
            attempt: DialAttempt(0),
            received: None,
        };
        liar.send(&sooner_protocol::session::hello::welcome(&party, 0).into());
        let mut bytes = head.to_bytes();
        bytes[6] = flags;
        liar.queue.extend_from_slice(&bytes);
        liar.queue.extend_from_slice(&[0xee; 100]);
        run(&mut [&mut b], |nodes| liar.turn() || nodes[0].ends.contains_key(&1));
        run(&mut [&mut b], |nodes| nodes[0].ends.contains_key(&1));
        assert_eq!(b.ends[&1], StreamEnd::Cut, "{head:?}");
        assert!(b.mapping.bytes(Mapping::header_bytes(), 1000).iter().all(|byte| *byte == 0), "{head:?}");
    }
}
