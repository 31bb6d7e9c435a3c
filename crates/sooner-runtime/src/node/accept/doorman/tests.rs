//! Decisions at the door, without sockets and clocks.

use super::*;
use crate::node::accept::testing::{old_hello, padded_hello};
use crate::transport::Foreign;

const HERE: NodeId = NodeId(0x0b00_0000);
const MILLISECOND: u64 = 1_000_000;

fn at(milliseconds: u64) -> Instant {
    Instant(milliseconds * MILLISECOND)
}

fn visitor(last: u8, since: Instant) -> Visitor {
    Visitor { address: SocketAddr::from(([10, 0, 0, last], 4000)), since }
}

fn hello(destination: Destination, node: NodeId) -> Vec<u8> {
    padded_hello(Some(&destination.server_name(node).to_str()), 0)
}

#[test]
fn a_visitor_is_handed_on_when_it_has_said_whom_it_wants() {
    let doorman = Doorman::new(HERE, true);
    for destination in
        [Destination::Node, Destination::Control, Destination::Health, Destination::Data, Destination::Values]
    {
        let said = hello(destination, HERE);
        assert_eq!(doorman.on_bytes(&said[..said.len() - 1], false), Verdict::Wait);
        assert_eq!(doorman.on_bytes(&said, false), Verdict::Deliver(destination));
        // Who says all and then closes its half is handed on as well.
        assert_eq!(doorman.on_bytes(&said, true), Verdict::Deliver(destination));
    }
}

#[test]
fn whom_nobody_can_help_is_told_why() {
    let doorman = Doorman::new(HERE, false);
    let other = NodeId(0x0c00_0000);
    for (bytes, has_ended, expected) in [
        (old_hello(), false, Why::Hello(HelloFault::Old)),
        (b"GET / ".to_vec(), false, Why::Hello(HelloFault::Foreign(Foreign::Http))),
        (vec![], true, Why::Left),
        (vec![0x16, 3], true, Why::Left),
        (
            hello(Destination::Node, other),
            false,
            Why::Name(NameFault::OtherNode { wanted: other.0, here: HERE.0 }),
        ),
        (hello(Destination::Control, HERE), false, Why::Name(NameFault::NotTheHead(HERE.0))),
    ] {
        let verdict = doorman.on_bytes(&bytes, has_ended);
        assert_eq!(verdict, Verdict::Refuse(expected));
    }
}

#[test]
fn a_visitor_has_a_second_however_much_it_says() {
    let doorman = Doorman::new(HERE, false);
    let slow = visitor(1, at(100));
    let said = hello(Destination::Node, HERE);
    for (byte, time) in (100..1100).step_by(10).enumerate() {
        assert_eq!(doorman.on_bytes(&said[..byte], false), Verdict::Wait);
        assert_eq!(doorman.on_time(&slow, at(time)), None);
    }
    assert_eq!(doorman.on_time(&slow, at(1100)), Some(Why::Silent));
    assert_eq!(doorman.deadline(&slow), at(1100));
}
