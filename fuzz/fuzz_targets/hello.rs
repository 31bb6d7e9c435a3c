//! The first message inside an encrypted connection, read by both sides: it never panics, and whoever is
//! admitted is of the node that its certificate names.
//!
//! The input is a frame.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sooner_protocol::session::hello::{HEAD, Me, hello, on_answer, on_hello, welcome};
use sooner_wire::frame::{HEAD_BYTES, whole_frame};
use sooner_wire::message::Message;
use sooner_wire::{DialAttempt, NodeId, WorkerId};

const HERE: NodeId = NodeId(0x0b00_0000);
const THERE: NodeId = NodeId(0x0a00_0000);

fuzz_target!(|bytes: &[u8]| {
    let Ok(Some(head)) = whole_frame(bytes) else { return };
    let Ok(message) = Message::decode(head.kind, &bytes[HEAD_BYTES..HEAD_BYTES + head.length]) else {
        return;
    };
    let me = Me { id: WorkerId(HERE.0 + 1), is_head: true, python: "3.11".into() };
    match on_hello(&message, &me, THERE) {
        Ok(party) => {
            assert_eq!(party.id.node(), THERE);
            assert_eq!(welcome(&party, 0).session, party.session);
        }
        Err(refusal) => assert!(refusal.to_string().len() < 4096),
    }
    for to in [HEAD, WorkerId(THERE.0 + 2)] {
        match on_answer(&message, &hello(&me, to, 7, DialAttempt(1), None), THERE) {
            Ok(party) => assert_eq!(party.id.node(), THERE),
            Err(refusal) => assert!(refusal.to_string().len() < 4096),
        }
    }
});
