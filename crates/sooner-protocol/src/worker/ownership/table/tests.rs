//! Exact actions of the ownership table, and that nothing is left over.

use sooner_wire::message::{Fetch, Held, Location, Message, Place, RemoveBorrow, Settled};
use sooner_wire::{Blob, BlockId, NodeId};

use super::*;

const ME: WorkerId = WorkerId(1);
const FRIEND: WorkerId = WorkerId(2);
const THIRD: WorkerId = WorkerId(3);

fn object(owner: WorkerId, number: u64) -> ObjectId {
    TaskId { owner, number }.object(0)
}

fn inline() -> Outcome {
    Outcome::Inline(Blob::from(&b"v"[..]))
}

fn owned(table: &mut Ownership, number: u64) -> (ObjectId, Arc<Slot>) {
    let slot = Arc::new(Slot::default());
    slot.acquire();
    let id = object(ME, number);
    table.own(id, slot.clone());
    (id, slot)
}

fn drop_handle(table: &mut Ownership, id: ObjectId, slot: &Slot, out: &mut Actions) {
    if slot.release() {
        table.on_handle_dropped(id, out);
    }
}

#[test]
fn a_stored_object_goes_with_its_last_handle() {
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    let (id, slot) = owned(&mut table, 1);
    let location = Location { offset: 64, length: 10 };
    table.resolve(id, Outcome::Stored(location), &[], &mut out);
    assert!(out.is_empty());
    drop_handle(&mut table, id, &slot, &mut out);
    assert_eq!(out, vec![Action::FreeBlock(location)]);
    assert!(table.is_empty());
}

#[test]
fn a_dropped_pending_object_goes_when_its_outcome_comes() {
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    let (id, slot) = owned(&mut table, 1);
    drop_handle(&mut table, id, &slot, &mut out);
    assert_eq!(table.len(), 1);
    table.resolve(id, inline(), &[], &mut out);
    assert!(out.is_empty());
    assert!(table.is_empty());
}

/// A task is executed again, whose caller had given back one of its arguments, which is gone. What its worker
/// says comes first.
#[test]
fn what_is_said_of_an_object_that_is_gone_counts_in_any_order() {
    for order in [[0, 1, 2, 3], [3, 0, 1, 2], [0, 3, 1, 2], [0, 1, 3, 2]] {
        let (mut table, mut out) = (Ownership::new(ME), Actions::new());
        let id = object(ME, 1);
        for said in order {
            match said {
                0 => table.on_add_borrow(id, FRIEND, FRIEND, &mut out),
                1 => table.on_add_borrow(id, THIRD, FRIEND, &mut out),
                2 => table.on_remove_borrow(FRIEND, &remove(id, 1, None), &mut out),
                _ => table.on_remove_borrow(THIRD, &remove(id, 1, Some(FRIEND)), &mut out),
            }
        }
        assert!(table.is_empty(), "{order:?}: {table:?}");
    }
    // Half of it died with who said it.
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    let id = object(ME, 1);
    table.on_remove_borrow(THIRD, &remove(id, 1, Some(FRIEND)), &mut out);
    table.on_worker_dead(FRIEND);
    table.on_settled(&Settled { gone: vec![FRIEND], held: Vec::new() }, &mut out);
    assert!(table.is_empty(), "{table:?}");
}

fn remove(object: ObjectId, count: u32, giver: Option<WorkerId>) -> RemoveBorrow {
    RemoveBorrow { object, count, giver, was_sent: None }
}

/// A return of what was said to be held of a dead process.
fn remove_sent(object: ObjectId, count: u32, giver: WorkerId) -> RemoveBorrow {
    RemoveBorrow { was_sent: Some(true), ..remove(object, count, Some(giver)) }
}

fn settled(gone: WorkerId, held: &[Held]) -> Settled {
    Settled { gone: vec![gone], held: held.to_vec() }
}

#[test]
fn a_borrower_keeps_an_object_until_it_returns_all_it_was_handed() {
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    let (id, slot) = owned(&mut table, 1);
    table.resolve(id, inline(), &[], &mut out);
    table.on_add_borrow(id, FRIEND, ME, &mut out);
    table.on_add_borrow(id, FRIEND, ME, &mut out);
    drop_handle(&mut table, id, &slot, &mut out);
    table.on_remove_borrow(FRIEND, &remove(id, 1, None), &mut out);
    assert_eq!(table.len(), 1);
    table.on_remove_borrow(FRIEND, &remove(id, 1, None), &mut out);
    assert!(table.is_empty());
}

#[test]
fn a_return_may_overtake_its_registration() {
    // THIRD handed the reference to FRIEND and registers it late; FRIEND is done before that.
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    let (id, slot) = owned(&mut table, 1);
    table.resolve(id, inline(), &[], &mut out);
    table.on_add_borrow(id, THIRD, ME, &mut out);
    drop_handle(&mut table, id, &slot, &mut out);
    table.on_remove_borrow(FRIEND, &remove(id, 1, Some(THIRD)), &mut out);
    assert_eq!(table.len(), 1, "THIRD still holds it");
    table.on_add_borrow(id, FRIEND, THIRD, &mut out);
    table.on_remove_borrow(THIRD, &remove(id, 1, None), &mut out);
    assert!(table.is_empty());
}

#[test]
fn a_dead_borrower_lets_go_when_its_death_is_settled() {
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    let (id, slot) = owned(&mut table, 1);
    table.resolve(id, inline(), &[], &mut out);
    table.on_add_borrow(id, FRIEND, ME, &mut out);
    drop_handle(&mut table, id, &slot, &mut out);
    table.on_worker_dead(FRIEND);
    assert_eq!(table.len(), 1, "it may have handed it on");
    table.on_settled(&settled(FRIEND, &[]), &mut out);
    assert!(table.is_empty());
}

#[test]
fn what_a_dead_process_handed_on_counts_although_its_word_is_lost() {
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    let (id, slot) = owned(&mut table, 1);
    table.resolve(id, inline(), &[], &mut out);
    table.on_add_borrow(id, FRIEND, ME, &mut out);
    drop_handle(&mut table, id, &slot, &mut out);
    table.on_worker_dead(FRIEND);
    // THIRD was handed it twice and says so; it returns both before that is heard.
    table.on_remove_borrow(THIRD, &remove_sent(id, 2, FRIEND), &mut out);
    table.on_settled(&settled(FRIEND, &[Held { object: id, borrower: THIRD, count: 2, of: None }]), &mut out);
    assert!(table.is_empty());
}

#[test]
fn what_is_held_of_a_dead_process_counts_once() {
    // The control service ended before it had told everybody that the death is settled, and the next one
    // settles it again.
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    let (id, slot) = owned(&mut table, 1);
    table.resolve(id, inline(), &[], &mut out);
    table.on_worker_dead(FRIEND);
    let held = Held { object: id, borrower: THIRD, count: 1, of: Some(FRIEND) };
    (0..2).for_each(|_| table.on_settled(&settled(FRIEND, &[held]), &mut out));
    drop_handle(&mut table, id, &slot, &mut out);
    table.on_remove_borrow(THIRD, &remove_sent(id, 1, FRIEND), &mut out);
    assert!(table.is_empty());
}

#[test]
fn what_is_returned_before_a_death_is_settled_is_not_set_off_against_what_is_handed_since() {
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    let (id, slot) = owned(&mut table, 1);
    table.resolve(id, inline(), &[], &mut out);
    // FRIEND handed it to THIRD and died; its word is lost. THIRD has said so and returned it.
    table.on_remove_borrow(THIRD, &remove_sent(id, 1, FRIEND), &mut out);
    table.on_add_borrow(id, THIRD, ME, &mut out);
    drop_handle(&mut table, id, &slot, &mut out);
    assert_eq!(table.record(id).expect("THIRD has it").borrowers(), [THIRD]);
    table.on_worker_dead(FRIEND);
    table.on_settled(&settled(FRIEND, &[Held { object: id, borrower: THIRD, count: 1, of: None }]), &mut out);
    assert_eq!(table.record(id).expect("THIRD has it").borrowers(), [THIRD]);
    table.on_remove_borrow(THIRD, &remove(id, 1, None), &mut out);
    assert!(table.is_empty() && table.borrowed_by.values().all(Set::is_empty));
}

#[test]
fn what_is_returned_before_a_death_is_settled_counts_although_the_object_is_gone_by_then() {
    let all_it_had = |table: &mut Ownership, id, out: &mut Actions| {
        table.on_remove_borrow(FRIEND, &remove(id, 1, None), out);
    };
    let said = |table: &mut Ownership, id, out: &mut Actions| {
        table.on_remove_borrow(FRIEND, &remove_sent(id, 1, THIRD), out);
    };
    for is_said_first in [true, false] {
        let (mut table, mut out) = (Ownership::new(ME), Actions::new());
        let (id, slot) = owned(&mut table, 1);
        let location = Location { offset: 64, length: 10 };
        table.resolve(id, Outcome::Stored(location), &[], &mut out);
        table.on_add_borrow(id, FRIEND, ME, &mut out);
        drop_handle(&mut table, id, &slot, &mut out);
        // THIRD handed it to FRIEND once more and died; its word is lost, and FRIEND says what it holds and
        // returns all.
        table.on_worker_dead(THIRD);
        if is_said_first {
            said(&mut table, id, &mut out);
            all_it_had(&mut table, id, &mut out);
        } else {
            all_it_had(&mut table, id, &mut out);
            said(&mut table, id, &mut out);
        }
        assert_eq!(out, vec![Action::FreeBlock(location)], "nobody has it");
        table.on_settled(
            &settled(THIRD, &[Held { object: id, borrower: FRIEND, count: 1, of: None }]),
            &mut out,
        );
        assert!(table.is_empty() && table.borrowed_by.values().all(Set::is_empty), "{table:?}");
        assert_eq!(out.len(), 1, "it went once");
    }
}

/// Nobody says any more what it held: its own death is settled with the other one.
#[test]
fn what_is_set_aside_goes_with_its_borrower() {
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    let (id, slot) = owned(&mut table, 1);
    table.resolve(id, inline(), &[], &mut out);
    table.on_worker_dead(THIRD);
    table.on_remove_borrow(FRIEND, &remove_sent(id, 1, THIRD), &mut out);
    drop_handle(&mut table, id, &slot, &mut out);
    table.on_worker_dead(FRIEND);
    table.on_settled(&Settled { gone: vec![FRIEND, THIRD], held: Vec::new() }, &mut out);
    assert!(table.is_empty() && table.borrowed_by.values().all(Set::is_empty), "{table:?}");
}

#[test]
fn what_was_said_and_is_returned_after_a_death_is_settled_counts_at_once() {
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    let (id, slot) = owned(&mut table, 1);
    table.resolve(id, inline(), &[], &mut out);
    table.on_worker_dead(FRIEND);
    table.on_settled(&settled(FRIEND, &[Held { object: id, borrower: THIRD, count: 1, of: None }]), &mut out);
    drop_handle(&mut table, id, &slot, &mut out);
    assert_eq!(table.len(), 1);
    table.on_remove_borrow(THIRD, &remove_sent(id, 1, FRIEND), &mut out);
    assert!(table.is_empty());
}

#[test]
fn a_borrower_that_dies_too_leaves_nothing_set_aside() {
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    let (id, slot) = owned(&mut table, 1);
    table.resolve(id, inline(), &[], &mut out);
    table.on_remove_borrow(THIRD, &remove_sent(id, 1, FRIEND), &mut out);
    table.on_worker_dead(FRIEND);
    table.on_worker_dead(THIRD);
    table.on_settled(&Settled { gone: vec![FRIEND, THIRD], held: Vec::new() }, &mut out);
    assert_eq!(table.record(id).expect("it has a handle").borrowers(), []);
    drop_handle(&mut table, id, &slot, &mut out);
    assert!(table.is_empty() && table.borrowed_by.values().all(Set::is_empty));
}

#[test]
fn a_registration_whose_reference_never_arrived_counts_for_nothing() {
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    let (id, slot) = owned(&mut table, 1);
    table.resolve(id, inline(), &[], &mut out);
    table.on_add_borrow(id, FRIEND, ME, &mut out);
    table.on_add_borrow(id, THIRD, FRIEND, &mut out);
    table.on_remove_borrow(FRIEND, &remove(id, 1, None), &mut out);
    drop_handle(&mut table, id, &slot, &mut out);
    table.on_worker_dead(FRIEND);
    assert_eq!(table.record(id).expect("THIRD may have it").borrowers(), [THIRD]);
    table.on_settled(&settled(FRIEND, &[]), &mut out);
    assert!(table.is_empty());
}

#[test]
fn a_return_that_was_on_its_way_while_a_death_was_settled_is_not_counted() {
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    let (id, slot) = owned(&mut table, 1);
    table.resolve(id, inline(), &[], &mut out);
    table.on_add_borrow(id, THIRD, FRIEND, &mut out);
    table.on_worker_dead(FRIEND);
    // THIRD had returned it, was handed it again by us, and had nothing of FRIEND's when it was asked.
    table.on_add_borrow(id, THIRD, ME, &mut out);
    table.on_settled(&settled(FRIEND, &[]), &mut out);
    table.on_remove_borrow(THIRD, &remove(id, 1, Some(FRIEND)), &mut out);
    drop_handle(&mut table, id, &slot, &mut out);
    assert_eq!(table.len(), 1);
    table.on_remove_borrow(THIRD, &remove(id, 1, None), &mut out);
    assert!(table.is_empty());
}

#[test]
fn a_borrower_returns_what_each_giver_handed_to_it() {
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    let id = object(FRIEND, 5);
    let slot = table.received(id);
    slot.acquire();
    let (given, late) = (WorkerId(4), WorkerId(5));
    for giver in [THIRD, given, given, late] {
        table.handed_by(id, giver);
    }
    table.on_worker_dead(THIRD);
    assert_eq!(table.held_from(THIRD, &[]), [Held { object: id, borrower: ME, count: 1, of: None }]);
    assert_eq!(table.held_from(THIRD, &[]), []);
    table.on_worker_dead(late);
    let held = [Held { object: id, borrower: ME, count: 1, of: None }];
    assert_eq!(table.held_from(late, &[id]), held, "what is lent and handed over counts once");
    drop_handle(&mut table, id, &slot, &mut out);
    let mut expected = Actions::new();
    send(&mut expected, Peer::Worker(FRIEND), remove(id, 1, None));
    send(&mut expected, Peer::Worker(FRIEND), remove_sent(id, 1, THIRD));
    send(&mut expected, Peer::Worker(FRIEND), remove_sent(id, 1, late));
    send(&mut expected, Peer::Worker(FRIEND), remove(id, 2, Some(given)));
    assert_eq!(out, expected);
    assert!(table.is_empty());
}

#[test]
fn a_registration_of_a_dead_borrower_comes_too_late() {
    // A third process had the borrower's reply before its end, and registers it here after that end was
    // settled.
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    let (id, slot) = owned(&mut table, 1);
    table.resolve(id, inline(), &[], &mut out);
    table.on_worker_dead(FRIEND);
    table.on_settled(&settled(FRIEND, &[]), &mut out);
    table.on_add_borrow(id, FRIEND, THIRD, &mut out);
    drop_handle(&mut table, id, &slot, &mut out);
    assert!(table.is_empty());
}

#[test]
fn a_borrowed_object_is_fetched_once_and_returned_once() {
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    let id = object(FRIEND, 5);
    let slot = table.received(id);
    slot.acquire();
    assert!(table.watch(id, &mut out));
    assert!(table.watch(id, &mut out));
    let fetch = Action::Send {
        to: Peer::Worker(FRIEND),
        message: Box::new(Message::Fetch(Fetch { object: id, missing_at: None })),
    };
    assert_eq!(out, vec![fetch]);
    out.clear();
    table.resolve(id, inline(), &[], &mut out);
    assert_eq!(out, vec![Action::Ready(id)]);
    out.clear();
    drop_handle(&mut table, id, &slot, &mut out);
    let done = Action::Send {
        to: Peer::Worker(FRIEND),
        message: Box::new(Message::RemoveBorrow(RemoveBorrow {
            object: id,
            count: 1,
            giver: None,
            was_sent: None,
        })),
    };
    assert_eq!(out, vec![done]);
    assert!(table.is_empty());
}

#[test]
fn contained_references_live_as_long_as_the_value() {
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    let (outer, slot) = owned(&mut table, 1);
    let inner = object(FRIEND, 9);
    table.receive(&[inner], FRIEND);
    table.resolve(outer, inline(), &[inner], &mut out);
    assert!(out.is_empty());
    drop_handle(&mut table, outer, &slot, &mut out);
    let done = Action::Send {
        to: Peer::Worker(FRIEND),
        message: Box::new(Message::RemoveBorrow(RemoveBorrow {
            object: inner,
            count: 1,
            giver: None,
            was_sent: None,
        })),
    };
    assert_eq!(out, vec![done]);
    assert!(table.is_empty());
}

#[test]
fn a_value_handed_on_registers_the_receiver_before_it_is_sent() {
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    let (outer, _slot) = owned(&mut table, 1);
    let (mine, _inner_slot) = owned(&mut table, 2);
    let theirs = object(FRIEND, 9);
    table.received(theirs);
    table.contain(outer, &[mine, theirs]);
    table.resolve(mine, inline(), &[], &mut out);
    table.records[&outer].slot.fill(inline());
    table.on_fetch(outer, THIRD, &mut out);
    let kinds: Vec<&str> = out
        .iter()
        .map(|action| match action {
            Action::Send { to: Peer::Worker(FRIEND), message } => {
                assert!(matches!(**message, Message::AddBorrow(_)));
                "register"
            }
            Action::Send { to: Peer::Worker(THIRD), message } => {
                assert!(matches!(**message, Message::Value(_)));
                "value"
            }
            other => panic!("unexpected {other:?}"),
        })
        .collect();
    assert_eq!(kinds, ["register", "value"]);
    assert_eq!(table.record(mine).expect("alive").borrowers(), [THIRD]);
}

#[test]
fn an_id_without_an_object_answers_freed() {
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    table.on_fetch(object(ME, 77), FRIEND, &mut out);
    let Action::Send { message, .. } = &out[0] else { panic!("a value is sent") };
    let Message::Value(value) = &**message else { panic!("a value is sent") };
    assert!(
        matches!(&value.outcome, Outcome::Failed(f) if f.code == sooner_wire::message::FailureCode::ObjectFreed)
    );
    assert!(table.is_empty());
}

#[test]
fn an_actor_goes_with_its_last_handle() {
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    let (id, slot) = owned(&mut table, 1);
    table.mark_actor(id);
    drop_handle(&mut table, id, &slot, &mut out);
    assert!(
        matches!(&out[0], Action::Send { to: Peer::Node, message } if matches!(**message, Message::ActorOutOfScope(_)))
    );
    assert!(table.is_empty());
}

#[test]
fn an_inherited_block_goes_back_to_the_node_and_is_not_reused() {
    // Others may have inherited it too: only the node knows when the last reader is done.
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    let id = object(FRIEND, 1);
    let slot = table.received(id);
    slot.acquire();
    table.resolve(id, Outcome::Stored(Location { offset: 64, length: 10 }), &[], &mut out);
    table.on_worker_dead(FRIEND);
    assert_eq!(table.inherit(&Place::all(&[64, 128])), [Place::of(64)]);
    assert!(table.is_orphan(Place::of(128)) && !table.is_orphan(Place::of(192)));
    drop_handle(&mut table, id, &slot, &mut out);
    let mut expected = Actions::new();
    send(&mut expected, Peer::Node, FreeBlocks { places: vec![BlockId(64).into()] });
    assert_eq!(out, expected);
    assert!(table.is_empty());
}

#[test]
fn a_copy_whose_holder_is_dead_is_held_and_stays_its_owners() {
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    let id = object(FRIEND, 1);
    let slot = table.received(id);
    slot.acquire();
    table.resolve(id, Outcome::Stored(Location { offset: 64, length: 10 }), &[], &mut out);
    let reading = slot.read();
    assert_eq!(table.inherit(&[Place::of(64)]), [Place::of(64)]);
    assert_eq!(table.inherit(&[Place::of(64)]), [Place::of(64)], "also when it is asked again");
    table.on_blocks_lost(&[BlockId(64)], &mut out);
    assert!(!table.is_absent(id), "its owner brings it back");
    drop(reading);
    out.clear();
    table.resolve(id, inline(), &[], &mut out);
    drop_handle(&mut table, id, &slot, &mut out);
    let mut expected = Actions::new();
    send(&mut expected, Peer::Node, FreeBlocks { places: vec![BlockId(64).into()] });
    send(
        &mut expected,
        Peer::Worker(FRIEND),
        RemoveBorrow { object: id, count: 1, giver: None, was_sent: None },
    );
    assert!(expected.iter().all(|action| out.contains(action)), "{out:?}");
    assert!(table.is_empty());
}

#[test]
fn a_block_that_a_value_left_long_ago_is_not_inherited() {
    // Another value may be there: what its owner dies with is not what this process has a reference to.
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    let id = object(FRIEND, 1);
    let slot = table.received(id);
    slot.acquire();
    table.resolve(id, Outcome::Stored(Location { offset: 64, length: 10 }), &[], &mut out);
    let there = Remote { node: NodeId(1 << 24), location: Location { offset: 4096, length: 10 } };
    let reading = slot.read();
    assert!(!slot.move_to(&Outcome::Remote(Box::new(there))), "it is read there");
    slot.lose();
    slot.fill(Outcome::Remote(Box::new(there)));
    table.on_worker_dead(FRIEND);
    assert_eq!(table.inherit(&[Place::of(64)]), [Place::of(64)], "somebody still reads it there");
    drop(reading);
    let id = object(THIRD, 2);
    let other = table.received(id);
    other.acquire();
    table.resolve(id, Outcome::Stored(Location { offset: 128, length: 10 }), &[], &mut out);
    assert!(other.move_to(&Outcome::Remote(Box::new(there))));
    table.on_worker_dead(THIRD);
    assert_eq!(table.inherit(&[Place::of(128)]), []);
}
