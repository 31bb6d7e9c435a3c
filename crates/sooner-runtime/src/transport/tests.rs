//! Encrypted connections over real sockets: who gets in, what is said to who does not, and that every byte
//! arrives.

mod cost;
mod lines;
mod refusals;
mod transfers;

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use sooner_wire::NodeId;

use super::*;
use crate::identity::testing::{authority, identity, member};
use crate::identity::{Bearer, Credentials, Destination, Identity};

const A: NodeId = NodeId(0x0a00_0000);
const B: NodeId = NodeId(0x0b00_0000);
const C: NodeId = NodeId(0x0c00_0000);
const CLUSTER: u8 = 1;
const OTHER: u8 = 2;

/// Two ends of a connection over loopback.
fn tcp() -> (OwnedFd, OwnedFd) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let dialled = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
    let (accepted, _) = listener.accept().expect("somebody dialled");
    (dialled.into(), accepted.into())
}

/// One end, and what it has read.
struct End {
    stream: TlsStream,
    got: Vec<u8>,
    has_ended: bool,
}

impl End {
    fn new(stream: TlsStream) -> Self {
        Self { stream, got: Vec::new(), has_ended: false }
    }

    fn dial(socket: OwnedFd, identity: &Identity, node: NodeId) -> Self {
        Self::new(TlsStream::dial(socket, identity, Destination::Node.server_name(node)))
    }

    fn accept(socket: OwnedFd, identity: &Identity) -> Self {
        Self::new(TlsStream::accept(socket, identity))
    }

    /// Goes on as far as that is possible without waiting.
    fn turn(&mut self) {
        let _ = self.stream.flush();
        let mut out = [0; 1000];
        while !self.has_ended {
            match self.stream.read(&mut out) {
                Ok(0) => self.has_ended = true,
                Ok(bytes) => self.got.extend_from_slice(&out[..bytes]),
                Err(Errno::AGAIN) => return,
                Err(_) => self.has_ended = true,
            }
        }
    }

    fn has_decided(&self) -> bool {
        self.has_ended || self.stream.peer().is_some()
    }

    fn why(&self) -> String {
        self.stream.failure().expect("failed").to_string()
    }
}

/// Lets both ends go on until `done`.
fn run(a: &mut End, b: &mut End, mut done: impl FnMut(&End, &End) -> bool) {
    for _ in 0..2000 {
        a.turn();
        b.turn();
        if done(a, b) {
            return;
        }
        // What has ended is readable for ever.
        let open = [&*a, &*b].into_iter().filter(|end| !end.has_ended);
        let mut polled: Vec<_> = open.map(|end| PollFd::new(&end.stream, PollFlags::IN)).collect();
        let timeout = rustix::event::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
        let _ = rustix::event::poll(&mut polled, Some(&timeout));
    }
    panic!("neither came to an end: {:?}, {:?}", a.stream.failure(), b.stream.failure());
}

/// The handshake, until each end has a peer or an end; the dialled end last, since it decides last.
fn shake(a: &Identity, dialled: NodeId, b: &Identity) -> (End, End) {
    let (to_b, from_a) = tcp();
    let (mut at_a, mut at_b) = (End::dial(to_b, a, dialled), End::accept(from_a, b));
    run(&mut at_a, &mut at_b, |a, b| a.has_decided() && b.has_decided());
    (at_a, at_b)
}

#[test]
fn both_sides_learn_the_node_of_the_other() {
    let (mut at_a, mut at_b) = shake(&member(A, CLUSTER), B, &member(B, CLUSTER));
    assert_eq!((at_a.stream.peer(), at_b.stream.peer()), (Some(B), Some(A)));
    assert_eq!(at_a.stream.write(&[std::io::IoSlice::new(b"there")]), Ok(5));
    assert_eq!(at_b.stream.write(&[std::io::IoSlice::new(b"and back")]), Ok(8));
    run(&mut at_a, &mut at_b, |a, b| a.got == b"and back" && b.got == b"there");
    // An end that is announced is no failure.
    at_a.stream.end();
    run(&mut at_a, &mut at_b, |_, b| b.has_ended);
    assert_eq!(at_b.stream.failure(), None);
}

#[test]
fn an_end_without_a_word_is_a_cut() {
    let (mut at_a, at_b) = shake(&member(A, CLUSTER), B, &member(B, CLUSTER));
    let (_, mut nobody) = (at_b, End::new(TlsStream::accept(tcp().0, &member(B, CLUSTER))));
    run(&mut at_a, &mut nobody, |a, _| a.has_ended);
    assert_eq!(at_a.stream.failure(), Some(TlsFailure::Cut));
    assert_eq!(at_a.stream.write(&[std::io::IoSlice::new(b"more")]), Err(Errno::PIPE));
    assert!(!at_a.stream.wants_write(true));
}

#[test]
fn the_head_is_reached_by_its_address_and_nobody_else_can_pretend_to_be_it() {
    let authority = authority(CLUSTER);
    let of = |bearer| identity(&Credentials::issue(B, bearer, &authority, &[&authority]));
    for (bearer, is_head) in [(Bearer::Head, true), (Bearer::Node, false)] {
        let (to_b, from_a) = tcp();
        let mut at_a = End::new(TlsStream::dial(to_b, &member(A, CLUSTER), Destination::head_name()));
        let mut at_b = End::accept(from_a, &of(bearer));
        run(&mut at_a, &mut at_b, |a, b| a.has_decided() && b.has_decided());
        assert_eq!(at_a.stream.peer(), is_head.then_some(B));
        assert_eq!(matches!(at_a.stream.failure(), Some(TlsFailure::OtherNode { .. })), !is_head);
    }
}

/// The steps of [`Credentials::issue`] for a change of the token; nodes of two neighbouring steps meet.
#[test]
fn a_token_is_changed_without_refusing_anybody_in_between() {
    let (old, new) = (authority(OTHER), authority(CLUSTER));
    let steps = [(&old, vec![&old]), (&old, vec![&old, &new]), (&new, vec![&new, &old]), (&new, vec![&new])];
    let at =
        |node, step: usize| identity(&Credentials::issue(node, Bearer::Node, steps[step].0, &steps[step].1));
    for (a, b) in [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (3, 2), (3, 3)] {
        let (at_a, at_b) = shake(&at(A, a), B, &at(B, b));
        assert_eq!((at_a.stream.peer(), at_b.stream.peer()), (Some(B), Some(A)), "steps {a} and {b}");
    }
    let (mut at_a, mut at_b) = shake(&at(A, 0), B, &at(B, 3));
    run(&mut at_a, &mut at_b, |a, b| a.has_ended && b.has_ended);
}
