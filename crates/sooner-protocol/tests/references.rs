//! The ownership table as its users see it: what may be freed, who is told, and what is said about each
//! object.

use std::sync::Arc;

use sooner_protocol::worker::action::{Action, Actions, Peer};
use sooner_protocol::worker::ownership::{Finished, Lineage, Ownership, Slot};
use sooner_wire::message::state::ObjectRow;
use sooner_wire::message::{
    AddBorrow, Failure, FailureCode, Fetch, FreeBlocks, Location, Message, Outcome, Place, RemoveBorrow,
    Settled, TaskKind, TaskSpec, Watch,
};
use sooner_wire::{Blob, FunctionId, Name, ObjectId, ShapeId, TaskId, WorkerId};

const ME: WorkerId = WorkerId(1);
const FRIEND: WorkerId = WorkerId(2);
const THIRD: WorkerId = WorkerId(3);
const BLOCK: Location = Location { offset: 64, length: 10 };

fn object(owner: WorkerId, number: u64) -> ObjectId {
    TaskId { owner, number }.object(0)
}

fn inline() -> Outcome {
    Outcome::Inline(Blob::from(&b"value"[..]))
}

fn send(to: WorkerId, message: impl Into<Message>) -> Action {
    Action::Send { to: Peer::Worker(to), message: Box::new(message.into()) }
}

/// An object of ours with one handle.
fn owned(table: &mut Ownership, number: u64) -> (ObjectId, Arc<Slot>) {
    let slot = Arc::new(Slot::default());
    slot.acquire();
    table.own(object(ME, number), slot.clone());
    (object(ME, number), slot)
}

/// An object of another process, handed to us once, with one handle.
fn borrowed(table: &mut Ownership, owner: WorkerId, number: u64) -> (ObjectId, Arc<Slot>) {
    let slot = table.received(object(owner, number));
    slot.acquire();
    (object(owner, number), slot)
}

fn stored(table: &mut Ownership, number: u64) -> (ObjectId, Arc<Slot>) {
    let (id, slot) = owned(table, number);
    table.resolve(id, Outcome::Stored(BLOCK), &[], &mut Actions::new());
    (id, slot)
}

fn remove(object: ObjectId) -> RemoveBorrow {
    RemoveBorrow { object, count: 1, giver: None, was_sent: None }
}

fn row(table: &Ownership, object: ObjectId) -> ObjectRow {
    table.report(100).into_iter().find(|row| row.object == object).expect("it is in the table")
}

#[test]
fn a_slot_tells_what_was_noted_in_it() {
    let slot = Slot::default();
    assert!(!slot.is_taken() && !slot.is_freed() && !slot.is_registered());
    slot.set_taken(true);
    assert!(slot.is_taken());
    slot.set_taken(false);
    assert!(!slot.is_taken());
    slot.mark_freed();
    assert!(slot.is_freed());
    slot.add_view();
    slot.add_view();
    slot.drop_view();
    assert_eq!(slot.views(), 1);
    assert!(slot.mark(5), "first seen in this pass");
    assert!(!slot.mark(5));
    assert!(slot.mark(6));
    let mut table = Ownership::new(ME);
    assert!(owned(&mut table, 1).1.is_registered());
}

#[test]
fn memory_is_free_at_once_if_nobody_else_can_read_it() {
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    let (id, slot) = stored(&mut table, 1);
    table.free(id, &mut out);
    assert_eq!(out, [Action::FreeBlock(BLOCK)]);
    assert!(slot.is_freed());
    table.free(id, &mut out);
    assert!(slot.release());
    table.on_handle_dropped(id, &mut out);
    assert_eq!(out.len(), 1, "once");
    assert!(table.is_empty());
}

#[test]
fn memory_that_others_may_read_is_free_when_they_are_done() {
    type Keep = fn(&mut Ownership, ObjectId, &Slot);
    let keeps: [Keep; 3] = [
        |table, id, _| table.on_add_borrow(id, FRIEND, ME, &mut Actions::new()),
        |table, id, _| table.add_use(id),
        |_, _, slot| slot.add_view(),
    ];
    for keep in keeps {
        let (mut table, mut out) = (Ownership::new(ME), Actions::new());
        let (id, slot) = stored(&mut table, 1);
        keep(&mut table, id, &slot);
        table.free(id, &mut out);
        assert_eq!(out, []);
        assert!(slot.is_freed());
    }
}

#[test]
fn only_a_value_of_ours_is_given_up() {
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    let (pending, slot) = owned(&mut table, 1);
    table.free(pending, &mut out);
    let (theirs, their_slot) = borrowed(&mut table, FRIEND, 2);
    table.resolve(theirs, Outcome::Stored(BLOCK), &[], &mut out);
    table.free(theirs, &mut out);
    table.free(object(ME, 99), &mut out);
    assert_eq!(out, []);
    assert!(!slot.is_freed() && !their_slot.is_freed());
}

#[test]
fn an_object_is_sole_while_one_handle_is_all_that_keeps_it() {
    let mut table = Ownership::new(ME);
    let (id, slot) = stored(&mut table, 1);
    assert!(table.is_sole(id) && table.is_sole(object(ME, 99)));
    slot.acquire();
    assert!(!table.is_sole(id), "two handles");
    slot.release();
    table.add_use(id);
    assert!(!table.is_sole(id), "a task uses it");
    table.end_use(id, &mut Actions::new());
    table.on_add_borrow(id, FRIEND, ME, &mut Actions::new());
    assert!(!table.is_sole(id), "it is borrowed");
    let (theirs, _) = borrowed(&mut table, FRIEND, 2);
    assert!(!table.is_sole(theirs));
}

#[test]
fn an_object_is_unwanted_when_nothing_keeps_it_and_nobody_waits() {
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    assert!(table.is_unwanted(object(ME, 99)));
    let (id, slot) = owned(&mut table, 1);
    assert!(!table.is_unwanted(id), "it has a handle");
    slot.release();
    assert!(table.is_unwanted(id));
    table.add_use(id);
    assert!(!table.is_unwanted(id), "a task uses it");
    table.end_use(id, &mut out);
    table.on_add_borrow(id, FRIEND, ME, &mut out);
    assert!(!table.is_unwanted(id), "it is borrowed");
    table.on_remove_borrow(FRIEND, &remove(id), &mut out);
    assert!(table.is_unwanted(id));
    table.add_lineage(id);
    assert!(!table.is_unwanted(id), "a finished task that may run again reads it");
    table.end_lineage(id, &mut out);
    assert!(table.is_unwanted(id));
    assert!(table.watch(id, &mut out));
    assert!(!table.is_unwanted(id), "a thread waits");
}

#[test]
fn an_argument_is_kept_beyond_its_task_by_handles_and_other_uses() {
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    let (id, mine) = (object(FRIEND, 1), object(ME, 2));
    assert!(!table.is_kept_untold(id, THIRD), "it is not known here");
    let slot = table.begin_loan(id);
    table.begin_loan(id);
    assert!(!table.is_kept_untold(id, THIRD), "the callers keep it for two tasks");
    table.add_use(id);
    assert!(table.is_kept_untold(id, THIRD), "for a task of this process");
    table.end_use(id, &mut out);
    slot.acquire();
    assert!(table.is_kept_untold(id, THIRD), "by a handle");
    table.hold_on(&[id], ME);
    assert!(table.is_kept_untold(id, THIRD), "word of this process may come late");
    table.hold_on(&[id], THIRD);
    assert!(!table.is_kept_untold(id, THIRD), "a caller keeps it until its word has come");
    table.end_loan(id, &mut out);
    table.end_loan(id, &mut out);
    assert_eq!(out, [], "the handle is left");
    slot.release();
    table.on_handle_dropped(id, &mut out);
    let remove = |giver| send(FRIEND, RemoveBorrow { object: id, count: 1, giver, was_sent: None });
    assert_eq!(out, [remove(None), remove(Some(THIRD))]);
    table.begin_loan(id);
    table.add_use(id);
    assert!(table.is_kept_untold(id, THIRD), "what was given back must be said again");
    let owned = table.begin_loan(mine);
    owned.acquire();
    assert!(!table.is_kept_untold(mine, THIRD), "nobody registers an owner");
}

#[test]
fn who_handed_on_what_it_was_lent_is_registered_although_somebody_gave_it_back() {
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    let id = object(FRIEND, 1);
    table.begin_loan(id);
    assert!(!table.must_be_registered(id));
    table.hand_over(id, THIRD, &mut out);
    assert!(table.must_be_registered(id), "the loan may end at the owner before it hears of the receiver");
    table.receive(&[id], THIRD);
    assert!(table.must_be_registered(id), "the receiver's word may come late, too");
    table.hold_on(&[id], WorkerId(9));
    assert!(!table.must_be_registered(id), "it was said once");
}

#[test]
fn borrowers_are_listed_until_they_have_returned_all() {
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    let (id, _slot) = stored(&mut table, 1);
    for borrower in [FRIEND, THIRD, FRIEND] {
        table.on_add_borrow(id, borrower, ME, &mut out);
    }
    let borrowers = |table: &Ownership| table.record(id).expect("it has a handle").borrowers();
    assert_eq!(borrowers(&table), [FRIEND, THIRD]);
    table.on_remove_borrow(FRIEND, &remove(id), &mut out);
    assert_eq!(borrowers(&table), [FRIEND, THIRD]);
    table.on_remove_borrow(FRIEND, &remove(id), &mut out);
    assert_eq!(borrowers(&table), [THIRD]);
    table.on_worker_dead(THIRD);
    assert_eq!(borrowers(&table), [THIRD], "it may have handed it on");
    table.on_settled(&Settled { gone: vec![THIRD], held: Vec::new() }, &mut out);
    assert_eq!(borrowers(&table), []);
    assert_eq!(out, []);
}

#[test]
fn the_node_is_asked_once_to_tell_of_the_end_of_a_borrower_at_another_node() {
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    let far = WorkerId((1 << 24) + 1);
    let (first, _slot) = owned(&mut table, 1);
    let (second, _other) = owned(&mut table, 2);
    table.on_add_borrow(first, FRIEND, THIRD, &mut out);
    assert_eq!(out, [], "it is on this node");
    table.on_add_borrow(first, far, THIRD, &mut out);
    table.on_add_borrow(second, far, ME, &mut out);
    let watch = Message::from(Watch { worker: far });
    assert_eq!(out, [Action::Send { to: Peer::Node, message: Box::new(watch) }]);
    table.on_worker_dead(far);
    table.on_add_borrow(first, far, FRIEND, &mut out);
    assert_eq!(out.len(), 1, "its end is known");
}

#[test]
fn a_reference_is_registered_with_its_owner_unless_that_is_the_receiver() {
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    let (mine, _slot) = owned(&mut table, 1);
    let (theirs, _their_slot) = borrowed(&mut table, FRIEND, 2);
    table.hand_over(mine, ME, &mut out);
    table.hand_over(theirs, FRIEND, &mut out);
    assert_eq!(table.record(mine).expect("it has a handle").borrowers(), []);
    table.hand_over(mine, FRIEND, &mut out);
    assert_eq!(table.record(mine).expect("it has a handle").borrowers(), [FRIEND]);
    assert_eq!(out, []);
    table.hand_over(theirs, THIRD, &mut out);
    assert_eq!(out, [send(FRIEND, AddBorrow { object: theirs, borrower: THIRD })]);
    table.on_worker_dead(THIRD);
    table.hand_over(theirs, THIRD, &mut out);
    assert_eq!(out.len(), 1, "it is gone");
}

#[test]
fn what_a_dead_owner_has_not_told_is_named() {
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    let (waits, _waiting) = borrowed(&mut table, FRIEND, 1);
    let (has_value, _slot) = borrowed(&mut table, FRIEND, 2);
    let (inline_value, _inline) = borrowed(&mut table, FRIEND, 3);
    let (elsewhere, _other) = borrowed(&mut table, THIRD, 4);
    table.resolve(has_value, Outcome::Stored(BLOCK), &[], &mut out);
    table.resolve(inline_value, inline(), &[], &mut out);
    assert_eq!(table.on_worker_dead(FRIEND), [waits]);
    assert_eq!(table.on_worker_dead(THIRD), [elsewhere]);
}

#[test]
fn a_value_that_nobody_wants_gives_back_its_block_and_what_is_inside() {
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    let inner = object(FRIEND, 9);
    table.receive(&[inner], FRIEND);
    table.discard(object(ME, 1), &Outcome::Stored(BLOCK), &[inner], &mut out);
    let returned = send(FRIEND, remove(inner));
    assert_eq!(out, [returned, Action::FreeBlock(BLOCK)]);
    assert!(table.is_empty());
    out.clear();
    table.discard(object(FRIEND, 1), &Outcome::Stored(BLOCK), &[], &mut out);
    assert_eq!(out, [], "that block is its owner's");
}

#[test]
fn a_second_outcome_is_let_go_of() {
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    let (id, slot) = owned(&mut table, 1);
    table.resolve(id, inline(), &[], &mut out);
    table.receive(&[object(FRIEND, 9)], FRIEND);
    table.resolve(id, Outcome::Stored(BLOCK), &[object(FRIEND, 9)], &mut out);
    let returned = send(FRIEND, remove(object(FRIEND, 9)));
    assert_eq!(out, [returned, Action::FreeBlock(BLOCK)]);
    assert_eq!(slot.outcome().as_deref(), Some(&inline()));
}

#[test]
fn blocks_that_were_given_to_us_are_known_until_they_are_freed() {
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    let (id, slot) = stored(&mut table, 1);
    assert!(table.knows_block(BLOCK.place()) && !table.knows_block(Place::of(128)));
    assert!(slot.release());
    table.on_handle_dropped(id, &mut out);
    assert!(!table.knows_block(BLOCK.place()));
    let (theirs, _slot) = borrowed(&mut table, FRIEND, 2);
    table.resolve(theirs, Outcome::Stored(BLOCK), &[], &mut out);
    assert!(!table.knows_block(BLOCK.place()), "it is its owner's");
    table.on_worker_dead(FRIEND);
    assert_eq!(table.inherit(&[Place::of(128)]), []);
    assert_eq!(table.inherit(&[BLOCK.place()]), [BLOCK.place()]);
    assert!(table.knows_block(BLOCK.place()));
}

#[test]
fn a_block_that_others_hold_too_goes_back_to_the_node() {
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    let id = object(ME, 1);
    table.adopt(id, Outcome::Stored(BLOCK));
    table.add_use(id);
    table.end_use(id, &mut out);
    let free = Message::from(FreeBlocks { places: vec![BLOCK.place()] });
    assert_eq!(out, [Action::Send { to: Peer::Node, message: Box::new(free) }]);
    assert!(table.is_empty());
}

#[test]
fn a_dropped_actor_is_named_once() {
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    let (id, slot) = owned(&mut table, 1);
    table.mark_actor(id);
    assert!(row(&table, id).is_actor);
    assert!(slot.release());
    table.on_handle_dropped(id, &mut out);
    assert_eq!(table.take_dropped_actors(), [id.task]);
    assert_eq!(table.take_dropped_actors(), []);
}

#[test]
fn each_object_is_told_with_its_value_and_who_keeps_it() {
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    let (id, slot) = owned(&mut table, 1);
    assert!(table.depend(id, 77, &mut out));
    table.on_fetch(id, FRIEND, &mut out);
    table.on_add_borrow(id, FRIEND, ME, &mut out);
    table.set_site(id, Name::from("x.py:7"));
    table.set_site(object(ME, 99), Name::from("x.py:8"));
    let told = row(&table, id);
    assert_eq!((told.state, told.size, told.owned, told.dependents), (0, 0, true, 1));
    assert_eq!((told.handles, told.uses, told.contained, told.is_actor), (1, 0, 0, false));
    assert_eq!(told.borrowers, [FRIEND]);
    let detail = told.detail.expect("always told");
    assert_eq!((&detail.waiting[..], detail.fetching, detail.lineage), (&[FRIEND][..], false, Some(0)));
    assert_eq!((detail.site.as_deref(), table.site(object(ME, 99))), (Some("x.py:7"), None));

    let inner: Vec<ObjectId> = (1..=2).map(|number| object(THIRD, number)).collect();
    assert_eq!(table.resolve(id, Outcome::Stored(BLOCK), &inner, &mut out).dependents, [77]);
    slot.add_view();
    assert_eq!(table.contained(id), inner);
    let told = row(&table, id);
    assert_eq!((told.state, told.size, told.contained, told.dependents), (2, 10, 2, 0));
    let detail = told.detail.expect("always told");
    assert_eq!((detail.views, detail.inner), (1, inner.clone()));
    assert_eq!(row(&table, inner[0]).uses, 1);
    assert_eq!(table.report(2).len(), 2);
}

#[test]
fn a_borrowed_object_is_told_as_being_fetched() {
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    let (id, _slot) = borrowed(&mut table, FRIEND, 1);
    let fetching = |table: &Ownership| row(table, id).detail.expect("always told").fetching;
    assert!(!fetching(&table) && !row(&table, id).owned);
    table.need(id, &mut out);
    assert_eq!(out, [send(FRIEND, Fetch { object: id, missing_at: None })]);
    assert!(fetching(&table));
    table.resolve(id, inline(), &[], &mut out);
    let told = row(&table, id);
    assert_eq!((told.state, told.size, fetching(&table)), (1, 5, false));
    let (other, _slot) = borrowed(&mut table, FRIEND, 2);
    let failure = Failure::new(FailureCode::System, "no");
    table.resolve(other, Outcome::Failed(Box::new(failure)), &[], &mut out);
    assert_eq!(row(&table, other).state, 3);
}

#[test]
fn pins_are_counted() {
    let mut table = Ownership::new(ME);
    let (id, _slot) = owned(&mut table, 1);
    assert_eq!(table.pins(id), 0);
    table.pin(id);
    table.pin(id);
    assert_eq!((table.pins(id), row(&table, id).uses), (2, 2));
}

#[test]
fn an_error_names_the_object_that_was_freed() {
    let mut table = Ownership::new(ME);
    let slot = table.meet(TaskId { owner: ME, number: 77 }.object(3));
    let outcome = slot.outcome();
    let Some(Outcome::Failed(failure)) = outcome.as_deref() else { panic!("it was freed") };
    assert_eq!(failure.code, FailureCode::ObjectFreed);
    assert!(failure.message.starts_with("object 77/3 of process 1 was freed"), "{}", failure.message);
}

#[test]
fn what_lineage_counts_stays_without_its_value() {
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    let (id, slot) = stored(&mut table, 1);
    assert_eq!(table.lineage_count(id), 0);
    assert!(table.add_lineage(id) && table.add_lineage(id));
    assert!(!table.add_lineage(object(ME, 99)));
    assert_eq!((table.lineage_count(id), row(&table, id).detail.expect("told").lineage), (2, Some(2)));
    assert!(slot.release());
    table.on_handle_dropped(id, &mut out);
    assert_eq!(out, [Action::FreeBlock(BLOCK)]);
    assert_eq!(table.len(), 1);
    table.end_lineage(id, &mut out);
    assert_eq!(table.lineage_count(id), 1);
    table.end_lineage(id, &mut out);
    assert!(table.is_empty());
    assert_eq!(out.len(), 1);
}

#[test]
fn lineage_counts_what_small_and_large_descriptions_take() {
    let keep = |arguments: usize, dependencies: usize, references: usize| {
        let task = TaskId { owner: ME, number: 1 };
        let arguments = Blob::from(&vec![0; arguments][..]);
        let spec = TaskSpec {
            dependencies: vec![object(ME, 2); dependencies].into(),
            references: vec![object(ME, 3); references].into(),
            ..TaskSpec::new(task, TaskKind::Task(ShapeId(0)), FunctionId(1), Name::from("f"), arguments)
        };
        let mut lineage = Lineage::default();
        let arguments = Box::default();
        lineage.keep(Finished {
            spec: Arc::new(spec),
            retries: 0,
            parent: None,
            arguments,
            records: 1,
            items: 0,
        });
        lineage.bytes()
    };
    let empty = keep(0, 0, 0);
    assert!(empty > size_of::<TaskSpec>());
    assert_eq!(keep(1000, 0, 0) - empty, 1000);
    let reference = keep(0, 1, 0) - empty;
    assert!(reference > size_of::<ObjectId>());
    assert_eq!((keep(0, 2, 3) - empty, keep(0, 0, 1) - empty), (5 * reference, reference));
}

#[test]
fn what_is_gone_counts_whoever_borrows_it_once_more() {
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    let id = object(ME, 5);
    table.on_add_borrow(id, FRIEND, FRIEND, &mut out);
    assert_eq!(table.record(id).map(|record| record.borrowers()), Some(vec![FRIEND]), "it will give it back");
    table.on_remove_borrow(FRIEND, &remove(id), &mut out);
    assert!(table.record(id).is_none());
    table.on_add_borrow(id, FRIEND, THIRD, &mut out);
    assert_eq!(table.record(id).map(|record| record.borrowers()), Some(vec![FRIEND]), "whoever says so");
    table.on_remove_borrow(FRIEND, &RemoveBorrow { giver: Some(THIRD), ..remove(id) }, &mut out);
    assert!(table.record(id).is_none());
}

#[test]
fn a_value_that_nobody_has_any_more_does_not_come_again_for_a_question_that_came_late() {
    let (mut table, mut out) = (Ownership::new(ME), Actions::new());
    let (id, slot) = owned(&mut table, 1);
    table.add_lineage(id);
    assert!(table.mark_kept(id));
    table.on_add_borrow(id, FRIEND, ME, &mut out);
    slot.release();
    table.resolve(id, Outcome::Stored(BLOCK), &[], &mut out);
    table.lose(id, &mut out);
    assert!(table.is_absent(id) && table.on_fetch(id, FRIEND, &mut out), "it has it");
    table.on_remove_borrow(FRIEND, &remove(id), &mut out);
    out.clear();
    assert!(!table.on_fetch(id, THIRD, &mut out));
    assert!(matches!(&out[..], [Action::Send { to: Peer::Worker(THIRD), .. }]), "{out:?}");
}
