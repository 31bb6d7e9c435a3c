//! Lines to other nodes without a connection. Time is made up.

use std::sync::Arc;

use sooner_protocol::time::Instant;
use sooner_wire::limits::{LINK_BUFFER_BYTES_MAX, LINK_PATIENCE_NANOS, REMOTE_LINES_MAX, SEVERED_NANOS};
use sooner_wire::message::{Blocked, Connect, FreeBlocks, HeldFrom, LinkRole, Message, PeerConnected};
use sooner_wire::{BlockId, WorkerId};

use crate::client::remote::Remotes;
use crate::poller::Poller;

const ME: WorkerId = WorkerId(0x0a00_0001);
const FAR: WorkerId = WorkerId(0x0b00_0001);
const BEGIN: Instant = Instant(1 << 40);

fn remotes() -> Remotes {
    let poller = Poller::new().expect("a descriptor");
    Remotes::new(Arc::new(poller), ME, "3.11")
}

fn send(remotes: &mut Remotes, to: WorkerId) {
    let (buffer, _) = remotes.buffer(to, BEGIN);
    Message::from(Blocked {}).append(buffer, 0);
    remotes.flush(to, BEGIN);
}

/// Passes the time until `end`; every wish for a connection is refused. What else the node was told.
fn pass(remotes: &mut Remotes, end: Instant) -> (Vec<Message>, Vec<sooner_wire::message::WorkerDead>) {
    let (mut told, mut gone) = (Vec::new(), Vec::new());
    loop {
        let time = remotes.due().filter(|due| *due < end).unwrap_or(end);
        gone.extend(remotes.on_timer(time));
        for message in remotes.take_wants() {
            let Message::Connect(connect) = &message else {
                told.push(message);
                continue;
            };
            let refused =
                PeerConnected { worker: connect.worker, link: Some(LinkRole::Dial), name: None, never: None };
            assert!(remotes.on_connected(&refused, Err("cannot be reached".to_owned()), time).is_none());
        }
        if time == end {
            return (told, gone);
        }
    }
}

#[test]
fn a_process_that_cannot_be_reached_is_told_of_and_then_given_up() {
    let mut remotes = remotes();
    send(&mut remotes, FAR);
    let cut = BEGIN.plus(LINK_PATIENCE_NANOS);
    assert_eq!(pass(&mut remotes, Instant(cut.0 - 1)), (vec![], vec![]));
    let (told, gone) = pass(&mut remotes, cut);
    assert!(matches!(&told[..], [Message::Sever(sever), Message::Suspect(suspect)]
        if sever.worker == FAR && suspect.node == FAR.node()));
    assert!(gone.is_empty());
    send(&mut remotes, FAR);
    assert_eq!(remotes.waiting(FAR), 0, "nobody hears it");
    let (told, gone) = pass(&mut remotes, cut.plus(SEVERED_NANOS));
    let [gone] = &gone[..] else { panic!("{gone:?}") };
    assert_eq!((gone.worker, gone.all_begun, told.len()), (FAR, Some(true), 0));
    assert!(gone.reason.contains("cannot be reached"), "{}", gone.reason);
    assert_eq!(pass(&mut remotes, cut.plus(10 * LINK_PATIENCE_NANOS)), (vec![], vec![]), "said once");
    assert_eq!(remotes.due(), None);
    remotes.forget(FAR, BEGIN);
    assert!(remotes.said().is_empty());
}

#[test]
fn the_news_of_an_end_ends_the_waiting() {
    let mut remotes = remotes();
    send(&mut remotes, FAR);
    pass(&mut remotes, BEGIN.plus(LINK_PATIENCE_NANOS));
    remotes.forget(FAR, BEGIN.plus(LINK_PATIENCE_NANOS));
    assert_eq!(pass(&mut remotes, BEGIN.plus(9 * LINK_PATIENCE_NANOS)), (vec![], vec![]));
    assert_eq!(remotes.due(), None);
}

#[test]
fn an_answer_about_a_death_waits_for_what_was_said_before() {
    let mut remotes = remotes();
    let answer = |number| Message::from(HeldFrom { gone: WorkerId(number), held: Vec::new() });
    remotes.send_after_flush(answer(1));
    assert_eq!(remotes.take_wants(), [answer(1)], "nothing was said");
    send(&mut remotes, FAR);
    remotes.take_wants();
    remotes.send_after_flush(answer(2));
    remotes.send_after_flush(answer(3));
    remotes.release();
    assert_eq!(remotes.take_wants(), []);
    remotes.forget(FAR, BEGIN);
    remotes.release();
    assert_eq!(remotes.take_wants(), [answer(2), answer(3)]);
}

#[test]
fn there_are_no_more_lines_than_a_process_can_have() {
    let mut remotes = remotes();
    for number in 0..=REMOTE_LINES_MAX as u64 {
        send(&mut remotes, WorkerId(FAR.0 + number));
    }
    assert_eq!(remotes.take_wants().len(), REMOTE_LINES_MAX);
    let gone = remotes.on_timer(BEGIN);
    let [gone] = &gone[..] else { panic!("{gone:?}") };
    assert_eq!(gone.worker, WorkerId(FAR.0 + REMOTE_LINES_MAX as u64));
    assert!(gone.reason.contains("2048"), "{}", gone.reason);
}

#[test]
fn a_line_that_retains_too_much_is_full_and_others_are_not() {
    let mut remotes = remotes();
    let large = Message::from(FreeBlocks { places: vec![BlockId(u64::MAX >> 1).into(); 20_000] });
    let mut said = 0;
    while !remotes.has_fullness() {
        let (buffer, _) = remotes.buffer(FAR, BEGIN);
        let before = buffer.len();
        large.append(buffer, 0);
        said += buffer.len() - before;
        assert!(said < 2 * LINK_BUFFER_BYTES_MAX);
        remotes.flush(FAR, BEGIN);
    }
    assert!(said >= LINK_BUFFER_BYTES_MAX);
    assert_eq!(remotes.take_fullness(), [(FAR, true)]);
    send(&mut remotes, FAR);
    send(&mut remotes, WorkerId(FAR.0 + 1));
    assert!(!remotes.has_fullness(), "it is said once, and of that one");
    remotes.forget(FAR, BEGIN);
    remotes.take_fullness();
    send(&mut remotes, FAR);
    assert!(!remotes.has_fullness(), "a line to the same process begins anew");
}

#[test]
fn to_whom_there_is_no_way_nobody_waits() {
    let mut remotes = remotes();
    send(&mut remotes, FAR);
    assert_eq!(remotes.take_wants(), [Message::from(Connect { worker: FAR })]);
    let never = Some("neither can be dialled".to_owned());
    let refused = PeerConnected { worker: FAR, link: Some(LinkRole::Dial), name: None, never };
    for _ in 0..2 {
        assert!(remotes.on_connected(&refused, Err("cannot be reached".to_owned()), BEGIN).is_none());
    }
    let gone = remotes.on_timer(BEGIN);
    let [gone] = &gone[..] else { panic!("{gone:?}") };
    assert_eq!((gone.worker, gone.all_begun, gone.unreachable), (FAR, Some(true), Some(true)));
    assert!(gone.reason.contains("neither can be dialled"), "{}", gone.reason);
    assert_eq!(remotes.take_wants(), [], "nobody is killed for it");
    send(&mut remotes, FAR);
    let (told, again) = pass(&mut remotes, BEGIN.plus(10 * LINK_PATIENCE_NANOS));
    assert!(told.is_empty() && again == std::slice::from_ref(gone), "who asks again hears it again, once");
    assert!(remotes.said().is_empty());
}
