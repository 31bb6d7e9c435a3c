//! What a node says of a head that it cannot join, by the head's answer.

use std::net::TcpListener;
use std::thread;

use sooner_wire::message::{PeerWelcome, Refused};
use sooner_wire::version::{FEATURES, PROTOCOL_MINOR};

use super::*;
use crate::identity::testing::{authority, identity, member};
use crate::identity::{Bearer, Credentials};
use crate::poller::Events;

const HERE: NodeId = NodeId(1 << 24);
const THERE: NodeId = NodeId(2 << 24);
const CLUSTER: u8 = 7;
const TURN_NANOS: u64 = 10_000_000;

fn poller() -> Poller {
    Poller::new().expect("a descriptor")
}

fn wait(poller: &Poller) -> Vec<Event> {
    let mut events = Events::with_capacity(8);
    let _ = poller.wait(&mut events, Some(TURN_NANOS));
    events.iter().collect()
}

/// A head that proves who it is, and answers the greeting so.
fn head(listener: &TcpListener, answer: &Message) {
    let authority = authority(CLUSTER);
    let credentials = Credentials::issue(THERE, Bearer::Head, &authority, &[&authority]);
    let (socket, _) = listener.accept().expect("somebody comes");
    let stream = Stream::Tls(Box::new(TlsStream::accept(socket.into(), &identity(&credentials))));
    let poller = poller();
    let mut framed = Conn::add(stream, &poller, 1).expect("a descriptor");
    while framed.ended().is_none() {
        wait(&poller);
        framed.read(&poller);
        if let Some(Message::PeerHello(_)) = framed.next_message() {
            framed.push(answer);
        }
        framed.flush(&poller);
    }
}

fn failure_after(answer: Message) -> (Kind, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let head = thread::spawn(move || head(&listener, &answer));
    let me = Me { id: sooner_wire::WorkerId(HERE.0), is_head: false, python: "3.11".into() };
    let poller = poller();
    let mut link = Link::to(vec![address], me, member(HERE, CLUSTER));
    let failure = loop {
        let mut news = link.on_time(now(), &poller);
        for event in wait(&poller) {
            news.extend(link.on_ready(event, &poller));
        }
        link.flush(&poller);
        let lost = |one| if let News::Lost(failure) = one { Some(failure) } else { None };
        if let Some(failure) = news.into_iter().find_map(lost) {
            break failure;
        }
    };
    drop(link);
    head.join().expect("it has answered");
    assert!(failure.to_string().contains(&address.to_string()), "{failure}");
    (failure.kind(), failure.to_string())
}

#[test]
fn a_head_of_another_version_is_named_with_both() {
    let minor = PROTOCOL_MINOR + 2;
    let (kind, text) =
        failure_after(PeerWelcome { minor, features: FEATURES, session: 1, received: 0 }.into());
    assert_eq!(kind, Kind::OtherVersion, "{text}");
    assert!(text.contains("protocol version 1.2 does not work with 1.0: install the same sooner"), "{text}");
}

#[test]
fn the_reason_of_a_head_that_refuses_is_passed_on() {
    let reason = "the cluster runs Python 3.12, the peer runs Python \"3.11\"".to_owned();
    let (kind, text) = failure_after(Refused { reason: reason.clone() }.into());
    assert_eq!(kind, Kind::OtherVersion, "{text}");
    assert!(text.contains(&reason), "{text}");
}

#[test]
fn a_head_that_says_something_else_first_is_none() {
    let (kind, text) = failure_after(sooner_wire::message::Blocked {}.into());
    assert_eq!(kind, Kind::SomethingElse, "{text}");
    assert!(text.contains("the first message must be a greeting"), "{text}");
}
