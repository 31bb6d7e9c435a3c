//! What a process of another node says behind its greeting, over a session: it never panics, nothing is
//! retained beyond what was said, and nothing is handed up after the end.
//!
//! The first byte chooses who has dialled, and whether the greeting is left to the input; the rest are
//! frames.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use sooner_protocol::session::hello::{Me, hello};
use sooner_protocol::time::Instant;
use sooner_runtime::poller::{Event, Poller};
use sooner_runtime::transport::{EpollSession, Stream, Turn, pair};
use sooner_wire::message::{Connect, Message, PeerWelcome};
use sooner_wire::{DialAttempt, WorkerId};

const HERE: WorkerId = WorkerId(0x0b00_0001);
const THERE: WorkerId = WorkerId(0x0a00_0001);

fn me(id: WorkerId) -> Me {
    Me { id, is_head: false, python: "3.11".into() }
}

fn greeting(dials: bool) -> Message {
    if dials {
        return PeerWelcome { minor: 0, features: 0, session: 7, received: 0 }.into();
    }
    hello(&me(THERE), HERE, 9, DialAttempt(1), None).into()
}

fuzz_target!(|input: &[u8]| {
    let Some((choice, frames)) = input.split_first() else { return };
    let poller = Poller::new().expect("a descriptor");
    let turn = Turn { poller: &poller, time: Instant(1 << 40) };
    let (ours, theirs) = pair().expect("sockets");
    let mut line = EpollSession::new(Arc::new(me(HERE)), THERE, 7, false);
    let dials = choice & 1 == 1;
    if dials {
        line.push(&Connect { worker: THERE }.into());
        line.flush(turn);
        line.on_dialled(Stream::Unix(ours), 1, turn);
    } else {
        line.on_arrived(Stream::Unix(ours), 1, turn);
    }
    let mut said = Vec::new();
    if choice & 2 == 0 {
        greeting(dials).append(&mut said, 0);
    }
    said.extend_from_slice(&frames[..frames.len().min(64 << 10)]);
    let _ = rustix::io::write(&theirs, &said);
    let mut heard = Vec::new();
    line.on_ready(Event::readable(1), turn, &mut heard);
    line.flush(turn);
    let later = Turn { time: turn.time.plus(20_000_000), ..turn };
    line.on_timer(later);
    assert!(heard.len() <= said.len());
    assert!(line.retained() < 1024);
    if line.ended().is_some() {
        let before = heard.len();
        let _ = rustix::io::write(&theirs, &said);
        line.on_ready(Event::readable(1), later, &mut heard);
        assert_eq!(heard.len(), before);
    }
    line.close(later);
});
