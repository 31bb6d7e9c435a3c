//! Probes of what is there, of what is not, and of somebody else.

use std::net::TcpListener;

use super::*;
use crate::clock::now;
use crate::identity::testing::member;

const ME: NodeId = NodeId(1 << 24);
const OTHER: NodeId = NodeId(2 << 24);

/// Probes `expected` at an address where `answers` is, if anybody.
fn probe(expected: NodeId, answers: Option<Identity>) -> Probed {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let mut probes = Probes::new(member(OTHER, 1)).expect("descriptors");
    let begin = now();
    assert_eq!(probes.begin(expected, 5, &address, begin), None);
    let poller = Poller::new().expect("descriptors");
    let mut server = answers.map(|identity| {
        let (socket, _) = listener.accept().expect("dialled");
        let stream = Stream::Tls(Box::new(TlsStream::accept(socket.into(), &identity)));
        Conn::add(stream, &poller, 0).expect("added")
    });
    loop {
        let mut answers = probes.on_ready();
        if server.as_ref().is_some_and(|server| server.ended().is_some()) {
            // Whoever cannot prove to be the node is dialled a second time, and nobody answers then.
            server = None;
        }
        if server.is_none() {
            answers.extend(probes.expire(begin.plus(PROBE_NANOS)));
        }
        if let Some((node, number, probed)) = answers.pop() {
            assert_eq!((node, number, probes.next_deadline()), (expected, 5, None));
            return probed;
        }
        if let Some(server) = &mut server {
            server.read(&poller);
            server.flush(&poller);
        }
    }
}

#[test]
fn the_node_that_is_there_answers() {
    assert_eq!(probe(ME, Some(member(ME, 1))), Probed::Answered(ME));
}

#[test]
fn whoever_else_is_there_is_no_answer_and_no_death() {
    assert_eq!(probe(ME, Some(member(OTHER, 1))), Probed::Silent, "another node took the port");
    assert_eq!(probe(ME, Some(member(ME, 2))), Probed::Silent, "of another cluster");
    assert_eq!(probe(ME, None), Probed::Silent, "accepted by the system, and nobody speaks");
}

#[test]
fn a_port_that_is_closed_refuses() {
    let address = {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        listener.local_addr().expect("bound").to_string()
    };
    let mut probes = Probes::new(member(OTHER, 1)).expect("descriptors");
    let mut probed = probes.begin(ME, 1, &address, now());
    while probed.is_none() {
        probed = probes.on_ready().pop().map(|(_, _, probed)| probed);
    }
    assert_eq!(probed, Some(Probed::Refused));
    assert_eq!(probes.begin(ME, 2, "no address", now()), Some(Probed::Silent));
}

#[test]
fn a_port_that_closes_after_the_system_took_the_connection_refuses() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let mut probes = Probes::new(member(OTHER, 1)).expect("descriptors");
    assert_eq!(probes.begin(ME, 1, &address, now()), None);
    // On loopback the connection is there when `connect` returns; nobody has accepted it, so its end is a
    // reset.
    drop(listener);
    let answer = loop {
        if let Some(answer) = probes.on_ready().pop() {
            break answer;
        }
    };
    assert_eq!(answer, (ME, 1, Probed::Refused));
    assert_eq!(probes.next_deadline(), None);
}
