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
    let mut doorman = Doorman::new(HERE, true);
    let visitor = visitor(1, at(0));
    for destination in
        [Destination::Node, Destination::Control, Destination::Health, Destination::Data, Destination::Values]
    {
        let said = hello(destination, HERE);
        assert_eq!(doorman.on_bytes(&visitor, &said[..said.len() - 1], false, at(1)), Verdict::Wait);
        assert_eq!(doorman.on_bytes(&visitor, &said, false, at(1)), Verdict::Deliver(destination));
        // Who says all and then closes its half is handed on as well.
        assert_eq!(doorman.on_bytes(&visitor, &said, true, at(1)), Verdict::Deliver(destination));
    }
}

#[test]
fn whom_nobody_can_help_is_told_why() {
    let mut doorman = Doorman::new(HERE, false);
    let visitor = visitor(1, at(0));
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
        let verdict = doorman.on_bytes(&visitor, &bytes, has_ended, at(1));
        assert_eq!(verdict, Verdict::Refuse(expected));
    }
}

#[test]
fn a_visitor_has_a_second_however_much_it_says() {
    let mut doorman = Doorman::new(HERE, false);
    let slow = visitor(1, at(100));
    let said = hello(Destination::Node, HERE);
    for (byte, time) in (100..1100).step_by(10).enumerate() {
        assert_eq!(doorman.on_bytes(&slow, &said[..byte], false, at(time)), Verdict::Wait);
        assert_eq!(doorman.on_time(&slow, at(time)), None);
    }
    assert_eq!(doorman.on_time(&slow, at(1100)), Some(Why::Silent));
    assert_eq!(doorman.deadline(&slow), at(1100));
}

#[test]
fn the_oldest_makes_room_when_it_has_had_its_time() {
    let doorman = Doorman::new(HERE, false);
    let oldest = visitor(1, at(0));
    assert_eq!(doorman.make_room(PEEKS_MAX - 1, &oldest, at(0)), Ok(None));
    assert_eq!(doorman.make_room(PEEKS_MAX, &oldest, at(99)), Err(at(100)));
    assert_eq!(doorman.make_room(PEEKS_MAX, &oldest, at(100)), Ok(Some(Why::MadeRoom)));
}

#[test]
fn an_address_that_fails_is_not_looked_at_for_a_while_and_others_are() {
    let mut doorman = Doorman::new(HERE, false);
    let (bad, good) = (visitor(1, at(0)), visitor(2, at(0)));
    for time in 0..REFUSALS_MAX as u64 {
        assert_eq!(doorman.on_visitor(&bad, at(time)), Ok(()));
        assert!(matches!(doorman.on_bytes(&bad, b"garbage", false, at(time)), Verdict::Refuse(_)));
    }
    assert_eq!(doorman.on_visitor(&bad, at(10)), Err(Why::TooManyFailures));
    assert_eq!(doorman.on_visitor(&good, at(10)), Ok(()));
    // The first failure is forgotten a second after it.
    assert_eq!(doorman.on_visitor(&bad, at(999)), Err(Why::TooManyFailures));
    assert_eq!(doorman.on_visitor(&bad, at(1000)), Ok(()));
}

#[test]
fn strangers_that_are_found_out_later_count_and_old_addresses_do_not() {
    let mut doorman = Doorman::new(HERE, false);
    let stranger = visitor(1, at(0));
    for _ in 0..REFUSALS_MAX {
        doorman.remember(stranger.address.ip(), at(1));
    }
    assert_eq!(doorman.on_visitor(&stranger, at(2)), Err(Why::TooManyFailures));
    let late = visitor(2, at(0));
    for _ in 0..2 * REFUSALS_MAX {
        let verdict = doorman.on_bytes(&late, &hello(Destination::Node, NodeId(0x0c00_0000)), false, at(2));
        assert!(matches!(verdict, Verdict::Refuse(Why::Name(_))));
    }
    assert_eq!(doorman.on_visitor(&late, at(2)), Ok(()));
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut doorman = Doorman::new(HERE, false);
    for number in 0..2 * REFUSALS_KEPT_MAX as u64 {
        let [.., high, low] = number.to_be_bytes();
        doorman.remember(IpAddr::from([10, 1, high, low]), at(0));
    }
    assert_eq!(doorman.failures.len(), REFUSALS_KEPT_MAX);
}
