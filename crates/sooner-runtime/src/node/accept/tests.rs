//! The door over loopback: what comes through is untouched, and nobody holds it open.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown};

use rustix::event::{PollFd, PollFlags};
use sooner_wire::WorkerId;
use sooner_wire::limits::{HANDSHAKES_OF_ADDRESS_MAX, PEEK_NANOS};

use super::testing::padded_hello;
use super::*;
use crate::identity::NameFault;
use crate::identity::testing::member;
use crate::transport::{Foreign, TlsFailure, TlsStream};

const HERE: NodeId = NodeId(0x0b00_0000);
const THERE: NodeId = NodeId(0x0a00_0000);
const START: Instant = Instant(1_000_000_000);

struct Door {
    entrance: Entrance,
    now: Instant,
    entered: Vec<Entered>,
}

impl Door {
    fn open() -> Self {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let entrance = Entrance::open(address, HERE, false).expect("a port");
        Self { entrance, now: START, entered: Vec::new() }
    }

    fn visit(&self) -> TcpStream {
        TcpStream::connect(self.entrance.address().expect("bound")).expect("it listens")
    }

    fn send(&self, bytes: &[u8]) -> TcpStream {
        let mut socket = self.visit();
        socket.write_all(bytes).expect("room");
        socket
    }

    /// As the owner's loop does, until so much has happened; time stands still.
    fn until(&mut self, count: usize) {
        while self.entered.len() < count {
            let mut polled = [PollFd::new(&self.entrance, PollFlags::IN)];
            let timeout = rustix::event::Timespec { tv_sec: 20, tv_nsec: 0 };
            let ready = rustix::event::poll(&mut polled, Some(&timeout)).expect("polled");
            assert!(ready > 0, "{count} were expected: {:?}", self.entered);
            self.entrance.on_ready(self.now, &mut self.entered);
        }
    }

    /// Until nothing is ready.
    fn settle(&mut self) {
        loop {
            let mut polled = [PollFd::new(&self.entrance, PollFlags::IN)];
            let timeout = rustix::event::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
            if rustix::event::poll(&mut polled, Some(&timeout)).expect("polled") == 0 {
                return;
            }
            self.entrance.on_ready(self.now, &mut self.entered);
        }
    }

    fn pass(&mut self, nanos: u64) {
        self.now = self.now.plus(nanos);
        self.entrance.on_ready(self.now, &mut self.entered);
    }

    fn why(&mut self) -> Why {
        match self.entered.remove(0) {
            Entered::Refused { why, .. } => why,
            other => panic!("{other:?}"),
        }
    }
}

fn greeting() -> Vec<u8> {
    padded_hello(Some(&Destination::Node.server_name(HERE).to_str()), 0)
}

#[test]
fn what_comes_through_is_untouched_so_that_its_receiver_does_the_handshake() {
    let mut door = Door::open();
    let (here, there) = (member(HERE, 1), member(THERE, 1));
    let wanted = Destination::Worker { to: WorkerId(HERE.0 + 4), from: WorkerId(THERE.0 + 5) };
    let dialled = TlsStream::dial(door.visit().into(), &there, wanted.server_name(HERE));
    dialled.flush().expect("open");
    door.until(1);
    let Entered::Arrived { socket, address, destination } = door.entered.remove(0) else { panic!("refused") };
    assert_eq!(destination, wanted);
    assert!(address.ip().is_loopback());
    let accepted = TlsStream::accept(socket, &here);
    for _ in 0..1000 {
        let _ = accepted.read(&mut [0; 10]);
        let _ = dialled.read(&mut [0; 10]);
        if accepted.peer().is_some() {
            break;
        }
        let mut polled = [PollFd::new(&accepted, PollFlags::IN), PollFd::new(&dialled, PollFlags::IN)];
        let timeout = rustix::event::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
        let _ = rustix::event::poll(&mut polled, Some(&timeout));
    }
    assert_eq!((accepted.peer(), dialled.peer()), (Some(THERE), Some(HERE)));
    assert_eq!(door.entrance.next_deadline(), None);
}

#[test]
fn a_hello_may_come_byte_by_byte() {
    let mut door = Door::open();
    let hello = greeting();
    let mut socket = door.visit();
    socket.set_nodelay(true).expect("tcp");
    for byte in &hello[..hello.len() - 1] {
        socket.write_all(&[*byte]).expect("room");
        door.pass(1000);
        assert!(door.entered.is_empty());
    }
    socket.write_all(&hello[hello.len() - 1..]).expect("room");
    door.until(1);
    let Entered::Arrived { socket, .. } = door.entered.remove(0) else { panic!("refused") };
    let mut untouched = vec![0; hello.len()];
    TcpStream::from(socket).read_exact(&mut untouched).expect("all of it");
    assert_eq!(untouched, hello);
}

#[test]
fn strangers_are_refused_with_a_reason_and_closed() {
    let mut door = Door::open();
    let visitors =
        [door.send(b"GET / HTTP/1.1\r\n\r\n"), door.send(b"SSH-2.0-x\r\n"), door.send(&[0xff; 100])];
    door.until(3);
    let mut said: Vec<Why> = (0..3).map(|_| door.why()).collect();
    for foreign in [Foreign::Http, Foreign::Ssh, Foreign::Bytes] {
        let at = said.iter().position(|why| *why == Why::Hello(HelloFault::Foreign(foreign)));
        said.remove(at.unwrap_or_else(|| panic!("{foreign:?} in {said:?}")));
    }
    for mut visitor in visitors {
        // Closed, without a byte for who has proved nothing.
        let mut answer = Vec::new();
        let _ = visitor.read_to_end(&mut answer);
        assert!(answer.is_empty(), "{answer:?}");
    }
}

#[test]
fn who_says_nothing_or_too_slowly_has_a_second() {
    let mut door = Door::open();
    let hello = greeting();
    let _silent = door.visit();
    let mut slow = door.send(&hello[..10]);
    door.settle();
    assert_eq!(door.entrance.next_deadline(), Some(START.plus(PEEK_NANOS)));
    for byte in &hello[10..30] {
        slow.write_all(&[*byte]).expect("room");
        door.pass(PEEK_NANOS / 21);
    }
    assert!(door.entered.is_empty());
    door.pass(PEEK_NANOS);
    assert_eq!([door.why(), door.why()], [Why::Silent, Why::Silent]);
    assert_eq!(door.entrance.next_deadline(), None);
}

#[test]
fn who_leaves_early_is_noticed() {
    let mut door = Door::open();
    let hello = greeting();
    for sent in [0, 1, hello.len() - 1] {
        let socket = door.send(&hello[..sent]);
        socket.shutdown(Shutdown::Write).expect("open");
        door.until(1);
        assert_eq!(door.why(), Why::Left);
    }
}

#[test]
fn no_more_than_four_kibibytes_are_looked_at() {
    let mut door = Door::open();
    let name = Destination::Node.server_name(HERE);
    let _socket = door.send(&padded_hello(Some(&name.to_str()), 2 * PEEK_BYTES));
    door.until(1);
    assert_eq!(door.why(), Why::Hello(HelloFault::TooLong));
}

#[test]
fn silent_visitors_cannot_fill_the_door() {
    let mut door = Door::open();
    let silent: Vec<TcpStream> = (0..HANDSHAKES_OF_ADDRESS_MAX + 3).map(|_| door.visit()).collect();
    door.until(3);
    assert_eq!(door.entrance.waiting.len(), HANDSHAKES_OF_ADDRESS_MAX);
    for _ in 0..3 {
        assert_eq!(door.why(), Why::MadeRoom(Crowd::Address(HANDSHAKES_OF_ADDRESS_MAX)));
    }
    // One that speaks is let in at once, although it comes from the same address.
    let _ours = door.send(&greeting());
    door.until(2);
    let is_in = |one: &Entered| matches!(one, Entered::Arrived { destination: Destination::Node, .. });
    assert!(door.entered.iter().any(is_in), "{:?}", door.entered);
    drop(silent);
}

#[test]
fn who_makes_room_is_told_so() {
    let mut door = Door::open();
    let mut silent: Vec<TcpStream> = (0..=HANDSHAKES_OF_ADDRESS_MAX).map(|_| door.visit()).collect();
    door.until(1);
    let mut answer = Vec::new();
    silent[0].read_to_end(&mut answer).expect("an end");
    // A fatal alert: an internal error (RFC 8446, section 6).
    assert_eq!(answer, [0x15, 3, 3, 0, 2, 2, 80]);
}

#[test]
fn an_address_that_fails_often_is_looked_at_as_before() {
    let mut door = Door::open();
    for _ in 0..100 {
        let _socket = door.send(b"garbage");
        door.until(1);
        assert!(matches!(door.why(), Why::Hello(_)));
    }
    let _socket = door.send(&greeting());
    door.until(1);
    assert!(matches!(door.entered[0], Entered::Arrived { .. }));
}

/// What a dialler with an old address hears.
fn answer(visitor: TlsStream) -> Option<TlsFailure> {
    for _ in 0..1000 {
        let _ = visitor.read(&mut [0; 10]);
        if visitor.failure().is_some() {
            break;
        }
        let mut polled = [PollFd::new(&visitor, PollFlags::IN)];
        let timeout = rustix::event::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
        let _ = rustix::event::poll(&mut polled, Some(&timeout));
    }
    visitor.failure()
}

#[test]
fn a_dialler_hears_that_the_node_is_another_by_now() {
    let mut door = Door::open();
    let there = member(THERE, 1);
    let old = NodeId(0x0c00_0000);
    let dialled = TlsStream::dial(door.visit().into(), &there, Destination::Node.server_name(old));
    dialled.flush().expect("open");
    door.until(1);
    assert_eq!(door.why(), Why::Name(NameFault::OtherNode { wanted: old.0, here: HERE.0 }));
    assert_eq!(answer(dialled), Some(TlsFailure::NoSuchName));
    // And of a process that is not there, from whoever was to get the connection.
    let dialled = TlsStream::dial(door.visit().into(), &there, Destination::Node.server_name(HERE));
    dialled.flush().expect("open");
    door.until(1);
    let Entered::Arrived { socket, .. } = door.entered.remove(0) else { panic!("refused") };
    turn_away(socket);
    assert_eq!(answer(dialled), Some(TlsFailure::NoSuchName));
}

#[test]
fn a_port_that_is_taken_is_named() {
    let door = Door::open();
    let address = door.entrance.address().expect("bound");
    let error = Entrance::open(address, HERE, false).err().expect("taken").to_string();
    assert!(error.contains(&address.to_string()) && error.contains("another port"), "{error}");
}
