//! Values between nodes of one machine that read each other's memory.

use sooner_protocol::session::hello::{Party, welcome};
use sooner_wire::message::{Lent, MemoryHere, MemoryOpen, Message, Taken};
use sooner_wire::{DialAttempt, FetchAttempt};

use super::failures::Liar;
use super::*;

const SHARING: Tuning = Tuning { shares_memory: true, ..SENT };

fn neighbours(store: u64) -> (Node, Node) {
    (Node::tuned(A, store, SHARING), Node::tuned(B, store, SHARING))
}

fn moved(node: &Node) -> Moved {
    node.data.as_ref().expect("it runs").moved()
}

#[test]
fn values_of_all_sizes_are_copied() {
    let (mut a, mut b) = neighbours(80 * MIB);
    let (piece, lent) = (sooner_wire::limits::PIECE_BYTES, sooner_wire::limits::LENT_BYTES);
    for (number, length) in [1, 4097, piece + 1, lent, 2 * lent + 5, 70 * MIB + 3].into_iter().enumerate() {
        let number = number as u64 + 1;
        let value = a.put(number, length);
        b.fetch(value, number, 0, a.address());
        run(&mut [&mut a, &mut b], |nodes| nodes[1].bytes.contains_key(&number) && is_kept_nowhere(nodes));
        assert_eq!(b.bytes[&number], length);
        assert!(b.has(number, length), "{length}");
    }
    let (a, b) = (moved(&a), moved(&b));
    assert_eq!((a.sent, a.copied), (b.came, 0));
    // What was asked for before the memory was open may have been sent.
    assert!(b.copied >= b.came / 2, "{b:?}");
}

#[test]
fn a_value_is_sent_if_one_side_does_not_share() {
    for (of_a, of_b) in [(SHARING, SENT), (SENT, SHARING)] {
        let (mut a, mut b) = (Node::tuned(A, 9 * MIB, of_a), Node::tuned(B, 9 * MIB, of_b));
        let value = a.put(1, 9 * MIB);
        b.fetch(value, 1, 0, a.address());
        run(&mut [&mut a, &mut b], |nodes| nodes[1].bytes.contains_key(&1) && is_kept_nowhere(nodes));
        assert!(b.has(1, 9 * MIB));
        assert_eq!(moved(&b), Moved { sent: 0, came: 9 * MIB, copied: 0 });
    }
}

#[test]
fn what_is_still_arriving_is_copied_on() {
    let length = 40 * MIB;
    let (mut a, mut b) = neighbours(length);
    let mut c = Node::tuned(C, length, SHARING);
    let value = a.put(1, length);
    b.fetch(value, 1, 0, a.address());
    b.passes_on(value, 1);
    c.fetch_copy(value, 1, &b);
    let is_over = |nodes: &[&mut Node]| nodes[1].bytes.contains_key(&1) && nodes[2].bytes.contains_key(&1);
    run(&mut [&mut a, &mut b, &mut c], |nodes| is_over(nodes) && is_kept_nowhere(nodes));
    assert!(b.has(1, length) && c.has(1, length));
}

#[test]
fn nothing_is_copied_after_a_stop_and_nothing_is_kept() {
    let length = 64 * MIB;
    let (mut a, mut b) = neighbours(length);
    let value = a.put(1, length);
    b.fetch(value, 1, 0, a.address());
    run(&mut [&mut a, &mut b], |nodes| !nodes[0].kept.is_empty());
    b.data().stop(FetchAttempt(1));
    // SAFETY: the block is free again, since nothing writes to it any more.
    unsafe { b.mapping.bytes_mut(Mapping::header_bytes(), length) }.fill(0xee);
    run(&mut [&mut a, &mut b], |nodes| nodes[0].kept.is_empty());
    assert!(b.mapping.bytes(Mapping::header_bytes(), length).iter().all(|byte| *byte == 0xee));
    b.fetch(value, 2, 0, a.address());
    run(&mut [&mut a, &mut b], |nodes| nodes[1].bytes.contains_key(&2) && is_kept_nowhere(nodes));
    assert!(b.has(1, length));
}

#[test]
fn when_either_side_dies_nothing_stays_kept() {
    let length = 128 * MIB;
    let (mut a, mut b) = neighbours(length);
    let value = a.put(1, length);
    b.fetch(value, 1, 0, a.address());
    run(&mut [&mut a, &mut b], |nodes| !nodes[0].kept.is_empty());
    drop(b);
    run(&mut [&mut a], is_kept_nowhere);
    let mut b = Node::tuned(B, length, SHARING);
    b.fetch(value, 1, 0, a.address());
    run(&mut [&mut a, &mut b], |nodes| !nodes[0].kept.is_empty());
    drop(a);
    // It may have got all of it before.
    run(&mut [&mut b], |nodes| nodes[0].ends.contains_key(&1) || nodes[0].bytes.get(&1) == Some(&length));
}

/// Whoever asks `node` for a value, after it was told of its memory.
fn asker(node: &mut Node) -> (Liar, MemoryHere) {
    let mut liar = Liar::dial(node);
    let mut here = None;
    run(&mut [node], |_| {
        assert!(!liar.turn());
        here = liar.heard().into_iter().find_map(|message| match message {
            Message::MemoryHere(here) => Some(here),
            _ => None,
        });
        here.is_some()
    });
    (liar, here.expect("heard"))
}

#[test]
fn who_takes_what_was_not_lent_is_disconnected() {
    for lie in 0..3 {
        let mut a = Node::tuned(A, MIB, SHARING);
        a.put(1, 1000);
        let (mut liar, here) = asker(&mut a);
        let open = MemoryOpen { lender: here.lender };
        match lie {
            0 => liar.send(&MemoryOpen { lender: here.lender + 1 }.into()),
            1 => liar.send(&Taken { loan: 1 }.into()),
            _ => {
                liar.send(&open.into());
                liar.send(&super::failures::asks(Mapping::header_bytes(), 1000, 0, 1000));
                // The first one is right, if it comes late enough; the second one never is.
                liar.send(&Taken { loan: 1 }.into());
                liar.send(&Taken { loan: 1 }.into());
            }
        }
        run(&mut [&mut a], |_| liar.turn());
        run(&mut [&mut a], is_kept_nowhere);
        assert_eq!(a.mapping.begin_lending(u64::MAX), Some(0), "its cell is free");
    }
}

#[test]
fn an_asker_that_stands_still_loses_what_was_lent_and_can_know_it() {
    let tuning = Tuning { patience: SECOND / 5, ..SHARING };
    let mut a = Node::tuned(A, MIB, tuning);
    a.put(1, 1000);
    let (mut liar, here) = asker(&mut a);
    let at = sooner_store::Whereabouts {
        process: here.process,
        descriptor: here.descriptor,
        inode: here.inode,
        bytes: here.bytes,
    };
    let memory = sooner_store::ForeignMemory::open(&at).expect("the same user");
    liar.send(&MemoryOpen { lender: here.lender }.into());
    liar.send(&super::failures::asks(Mapping::header_bytes(), 1000, 0, 1000));
    let mut lent = None;
    run(&mut [&mut a], |_| {
        liar.turn();
        lent = liar.heard().into_iter().find_map(|message| match message {
            Message::Lent(lent) => Some(lent),
            _ => None,
        });
        lent.is_some()
    });
    let lent: Lent = lent.expect("heard");
    let mut bytes = [0; 1000];
    assert!(memory.read(lent.offset, &mut bytes, here.cell, here.lender));
    assert_eq!(bytes, a.mapping.bytes(Mapping::header_bytes(), 1000));
    // It says nothing, and the other side waits no longer.
    run(&mut [&mut a], is_kept_nowhere);
    assert!(!memory.read(lent.offset, &mut bytes, here.cell, here.lender));
}

#[test]
fn who_lends_what_nobody_asked_for_is_disconnected() {
    let foreign = Mapping::create(MIB).expect("memory");
    let cell = foreign.begin_lending(5).expect("free");
    let at = foreign.whereabouts().expect("open");
    let good = Lent {
        attempt: FetchAttempt(1),
        begin: 0,
        end: 1000,
        offset: Mapping::header_bytes(),
        number: 1,
        loan: 9,
    };
    for (lent, lender) in [
        (Lent { attempt: FetchAttempt(2), ..good }, 5),
        (Lent { number: 2, ..good }, 5),
        (Lent { begin: 1, ..good }, 5),
        (Lent { end: 1001, ..good }, 5),
        (Lent { end: 0, ..good }, 5),
        (Lent { offset: 0, ..good }, 5),
        (Lent { offset: foreign.total_bytes() - 999, ..good }, 5),
        (Lent { offset: u64::MAX, ..good }, 5),
        // What is not lent over this connection, and memory that is not there.
        (good, 6),
        (good, 0),
    ] {
        let mut b = Node::tuned(B, MIB, SHARING);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let location = Location { offset: Mapping::header_bytes(), length: 1000 };
        let from = listener.local_addr().expect("bound");
        b.fetch((object(1), Remote { node: C, location }), 1, 0, from);
        let (socket, _) = listener.accept().expect("it dials");
        let mut liar = Liar::accept(socket.into());
        let party = Party {
            id: WorkerId(B.0),
            minor: sooner_wire::version::PROTOCOL_MINOR,
            features: sooner_wire::version::FEATURES,
            session: 0,
            attempt: DialAttempt(0),
            received: None,
        };
        liar.send(&welcome(&party, 0).into());
        let (_, of_b) =
            super::super::neighbours::Neighbours::new(b.mapping.clone(), true).lend().expect("it shares");
        let inode = if lender == 0 { at.inode + 1 } else { at.inode };
        let (process, descriptor, bytes) = (at.process, at.descriptor, at.bytes);
        let here = MemoryHere { process, descriptor, inode, bytes, cell, lender, ..of_b };
        liar.send(&here.into());
        liar.send(&lent.into());
        run(&mut [&mut b], |nodes| liar.turn() || nodes[0].ends.contains_key(&1));
        run(&mut [&mut b], |nodes| nodes[0].ends.contains_key(&1));
        assert_eq!(b.ends[&1], StreamEnd::Cut, "{lent:?}");
        assert!(!b.bytes.contains_key(&1) || b.bytes[&1] == 0, "{lent:?}");
    }
}
