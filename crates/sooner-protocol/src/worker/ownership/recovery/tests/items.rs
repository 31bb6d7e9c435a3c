//! Items of generators that are lost, and what was made of them.

use sooner_wire::message::{Item, ItemsTaken, Streaming, WorkerDead};

use super::*;

const LARGE: u64 = 4096;

impl Owner {
    fn stream(&mut self, number: u64, backpressure: u32, retries: i32) -> Arc<Slot> {
        let kind = TaskKind::Task(sooner_wire::ShapeId(0));
        let spec = TaskSpec {
            retries,
            stream: Some(Streaming { backpressure, dynamic: false }),
            ..TaskSpec::new(task(number), kind, FunctionId(1), Name::from("f"), Blob::default())
        };
        let slot = Arc::new(Slot::default());
        self.core.submit(Arc::new(spec), [slot.clone()], None, &mut self.out);
        slot
    }

    fn yields(&mut self, index: u32, offset: u64) -> Actions {
        let value = Return { outcome: stored(offset), contained: Vec::new() };
        self.send(Peer::Worker(WORKER), Item { task: task(1), index, value })
    }

    /// The execution ends well.
    fn end(&mut self) -> Actions {
        let returns = vec![Return { outcome: Outcome::Inline(Blob::from(&b"n"[..])), contained: Vec::new() }];
        let (held, task) = (Vec::new(), task(1));
        self.send(
            Peer::Worker(WORKER),
            Reply { task, returns, held, nanos: 5_000_000, retry: false, timing: None, not_run: None },
        )
    }

    /// Another worker has executed the second task.
    fn reply_of_other(&mut self, offset: u64) {
        let returns = vec![Return { outcome: stored(offset), contained: Vec::new() }];
        let (held, task) = (Vec::new(), task(2));
        let reply =
            Reply { task, returns, held, nanos: 5_000_000, retry: false, timing: None, not_run: None };
        self.send(Peer::Worker(OTHER), reply);
    }

    fn take(&mut self) -> Arc<Slot> {
        let (index, slot) = self.core.next_item(task(1)).expect("it streams");
        slot.acquire();
        assert!(self.core.take_item(task(1), index, &mut self.out));
        slot
    }

    fn leave(&mut self) -> Actions {
        self.core.on_handles_dropped(&[task(1).reader()], &mut self.out);
        std::mem::take(&mut self.out)
    }

    fn drop_item(&mut self, index: u32, slot: &Slot) {
        assert!(slot.release());
        self.core.on_handles_dropped(&[task(1).object(index)], &mut self.out);
    }

    fn assert_empty(&self) {
        assert!(self.core.ownership().is_empty(), "{:?}", self.core.ownership());
        assert_eq!(
            (self.core.lineage(), self.core.open_streams(), self.core.pending_tasks()),
            ((0, 0), 0, 0)
        );
    }
}

fn stops(out: &Actions) -> bool {
    let stops = |action: &Action| matches!(action, Action::Send { message, .. } if matches!(**message, Message::ItemsTaken(ItemsTaken { stop: true, .. })));
    out.iter().any(stops)
}

/// A generator that yielded three items, in blocks 1 to 3 times [`LARGE`], which were taken; its reader is
/// gone.
fn finished() -> (Owner, Vec<Arc<Slot>>) {
    let mut owner = Owner::new();
    owner.stream(1, 1, 1);
    owner.grant(1);
    let items = (1..=3)
        .map(|index| {
            owner.yields(index, u64::from(index) * LARGE);
            owner.take()
        })
        .collect();
    owner.end();
    owner.leave();
    assert_eq!(owner.core.lineage().0, 1);
    (owner, items)
}

#[test]
fn a_generator_is_executed_again_for_the_items_that_are_lost_and_no_further() {
    let (mut owner, items) = finished();
    assert_eq!(pushes(&owner.lose(&[LARGE, 2 * LARGE])), [1]);
    assert_eq!(owner.core.lineage().0, 0, "RC2: a pending task is not kept");
    assert!(!stops(&owner.yields(1, 11 * LARGE)));
    assert!(stops(&owner.yields(2, 12 * LARGE)), "nothing else is missing");
    // What is there stays; the other value goes.
    let out = owner.yields(3, 13 * LARGE);
    assert!(out.contains(&Action::FreeBlock(Location { offset: 13 * LARGE, length: LARGE })));
    owner.end();
    let places: Vec<_> = items.iter().map(|slot| slot.outcome().map(std::borrow::Cow::into_owned)).collect();
    assert_eq!(places, [11, 12, 3].map(|at| Some(stored(at * LARGE))));
    // Its retry is used up.
    assert_eq!(pushes(&owner.lose(&[11 * LARGE])), [0u64; 0]);
    assert_eq!(code_in(&items[0]), Some(FailureCode::ReconstructionFailed));
    (1..).zip(&items).for_each(|(index, slot)| owner.drop_item(index, slot));
    owner.assert_empty();
}

#[test]
fn back_pressure_does_not_hold_up_the_items_that_nobody_reads_any_more() {
    let (mut owner, _items) = finished();
    let out = owner.lose(&[3 * LARGE]);
    let (taken, stop) = (u32::MAX, false);
    assert!(sends(&out, Peer::Worker(WORKER), ItemsTaken { task: task(1), taken, stop }));
}

#[test]
fn a_generator_that_yields_fewer_items_says_so() {
    let (mut owner, items) = finished();
    owner.lose(&[LARGE, 3 * LARGE]);
    owner.yields(1, 11 * LARGE);
    owner.end();
    assert_eq!(items[0].outcome().as_deref(), Some(&stored(11 * LARGE)));
    let Some(Outcome::Failed(failure)) = items[2].outcome().map(std::borrow::Cow::into_owned) else {
        panic!()
    };
    assert_eq!(failure.code, FailureCode::ReconstructionFailed);
    assert!(failure.message.contains("ended after item 1"), "{}", failure.message);
    (1..).zip(&items).for_each(|(index, slot)| owner.drop_item(index, slot));
    owner.assert_empty();
}

#[test]
fn what_was_made_of_an_item_brings_it_back() {
    let (mut owner, items) = finished();
    let made = owner.submit(2, &[task(1).object(2)], 3);
    owner.finish(2, 64);
    (1..).zip(&items).for_each(|(index, slot)| owner.drop_item(index, slot));
    std::mem::take(&mut owner.out);
    assert_eq!(
        owner.core.lineage().0,
        2,
        "the generator is kept for the item, which is kept for what was made of it"
    );
    assert_eq!(pushes(&owner.lose(&[64])), [1]);
    owner.yields(1, 11 * LARGE);
    assert_eq!(pushes(&owner.yields(2, 12 * LARGE)), [0u64; 0], "the lease is in use");
    assert_eq!(pushes(&owner.end()), [2]);
    owner.finish(2, 128);
    assert_eq!(made.outcome().as_deref(), Some(&stored(128)));
    owner.drop_handle(2, &made);
    owner.assert_empty();
}

#[test]
fn an_item_that_goes_while_its_generator_runs_can_return() {
    let mut owner = Owner::new();
    owner.stream(1, 0, 3);
    owner.grant(1);
    owner.yields(1, LARGE);
    let item = owner.take();
    let made = owner.submit(2, &[task(1).object(1)], 3);
    owner.drop_item(1, &item);
    let shape = sooner_wire::ShapeId(0);
    let other =
        sooner_wire::message::LeaseGranted { shape, lease: LeaseId(2), worker: OTHER, gpus: Vec::new() };
    assert_eq!(pushes(&owner.send(Peer::Node, other)), [2]);
    owner.reply_of_other(64);
    owner.end();
    assert_eq!(owner.core.lineage().0, 2);
    assert_eq!(pushes(&owner.lose(&[64])), [1]);
    assert_eq!(pushes(&owner.yields(1, 11 * LARGE)), [2]);
    owner.reply_of_other(128);
    assert_eq!(made.outcome().as_deref(), Some(&stored(128)));
    owner.leave();
    owner.end();
    owner.drop_handle(2, &made);
    owner.assert_empty();
}

#[test]
fn an_item_that_is_lost_while_its_generator_runs_has_it_begin_again() {
    // It waits for its reader, who waits for the item that is lost.
    let mut owner = Owner::new();
    owner.stream(1, 1, 2);
    owner.grant(1);
    owner.yields(1, LARGE);
    let first = owner.take();
    owner.yields(2, 2 * LARGE);
    assert!(stops(&owner.lose(&[LARGE])));
    assert_eq!(pushes(&owner.end()), [1], "and ends, but not for its reader");
    owner.yields(1, 11 * LARGE);
    assert_eq!(first.outcome().as_deref(), Some(&stored(11 * LARGE)));
    assert!(!stops(&owner.yields(2, 12 * LARGE)), "it goes on with what is new");
    let second = owner.take();
    assert_eq!(second.outcome().as_deref(), Some(&stored(2 * LARGE)));
    owner.yields(3, 3 * LARGE);
    owner.end();
    let third = owner.take();
    // One retry is left.
    assert_eq!(pushes(&owner.lose(&[11 * LARGE, 2 * LARGE])), [1]);
    owner.yields(1, 21 * LARGE);
    owner.yields(2, 22 * LARGE);
    owner.end();
    assert_eq!(second.outcome().as_deref(), Some(&stored(22 * LARGE)));
    (1..).zip([&first, &second, &third]).for_each(|(index, slot)| owner.drop_item(index, slot));
    owner.leave();
    owner.assert_empty();
}

#[test]
fn items_that_go_with_the_worker_that_makes_them_cost_one_retry() {
    let mut owner = Owner::new();
    owner.stream(1, 0, 1);
    owner.grant(1);
    owner.yields(1, LARGE);
    let first = owner.take();
    owner.lose(&[LARGE]);
    let gone = WorkerDead { worker: WORKER, last_started: Some(task(1)), ..WorkerDead::default() };
    owner.send(Peer::Node, gone);
    assert_eq!(pushes(&owner.grant(2)), [1]);
    owner.yields(1, 11 * LARGE);
    assert_eq!(first.outcome().as_deref(), Some(&stored(11 * LARGE)));
    owner.leave();
    owner.end();
    owner.drop_item(1, &first);
    owner.assert_empty();
}

#[test]
fn items_of_what_may_not_be_repeated_stay_lost() {
    let mut owner = Owner::new();
    owner.stream(1, 0, 0);
    owner.grant(1);
    owner.yields(1, LARGE);
    let first = owner.take();
    assert!(!stops(&owner.lose(&[LARGE])), "nothing is gained by its end");
    assert_eq!(code_in(&first), Some(FailureCode::ReconstructionFailed));
    owner.yields(2, 2 * LARGE);
    let second = owner.take();
    owner.end();
    owner.lose(&[2 * LARGE]);
    assert_eq!(code_in(&second), Some(FailureCode::ReconstructionFailed));
    owner.leave();
    (1..).zip([&first, &second]).for_each(|(index, slot)| owner.drop_item(index, slot));
    owner.assert_empty();
}

#[test]
fn items_of_a_cancelled_generator_stay_lost() {
    let mut owner = Owner::new();
    owner.stream(1, 0, 3);
    owner.grant(1);
    owner.yields(1, LARGE);
    let first = owner.take();
    owner.core.cancel(task(1), false, false, &mut owner.out);
    let failure = Failure::new(FailureCode::Cancelled, "cancelled");
    let returns = vec![Return { outcome: Outcome::Failed(Box::new(failure)), contained: Vec::new() }];
    let reply = Reply {
        task: task(1),
        returns,
        held: Vec::new(),
        nanos: 5_000_000,
        retry: false,
        timing: None,
        not_run: None,
    };
    owner.send(Peer::Worker(WORKER), reply);
    assert_eq!(pushes(&owner.lose(&[LARGE])), [0u64; 0]);
    assert_eq!(code_in(&first), Some(FailureCode::ReconstructionFailed));
}

#[test]
fn a_generator_that_raised_is_repeated_up_to_there() {
    let raise = |owner: &mut Owner| {
        let failure = Failure::new(FailureCode::Task, "no more");
        let returns = vec![Return { outcome: Outcome::Failed(Box::new(failure)), contained: Vec::new() }];
        let (held, task) = (Vec::new(), task(1));
        owner.send(
            Peer::Worker(WORKER),
            Reply { task, returns, held, nanos: 5_000_000, retry: false, timing: None, not_run: None },
        );
    };
    let mut owner = Owner::new();
    owner.stream(1, 0, 3);
    owner.grant(1);
    owner.yields(1, LARGE);
    let first = owner.take();
    raise(&mut owner);
    let error = owner.take();
    assert_eq!(code_in(&error), Some(FailureCode::Task));
    assert_eq!(pushes(&owner.lose(&[LARGE])), [1]);
    owner.yields(1, 11 * LARGE);
    raise(&mut owner);
    assert_eq!(first.outcome().as_deref(), Some(&stored(11 * LARGE)));
    owner.leave();
    (1..).zip([&first, &error]).for_each(|(index, slot)| owner.drop_item(index, slot));
    owner.assert_empty();
}

#[test]
fn a_reader_that_leaves_while_an_item_comes_again_leaves_nothing() {
    let mut owner = Owner::new();
    owner.stream(1, 0, 3);
    owner.grant(1);
    owner.yields(1, LARGE);
    owner.yields(2, 2 * LARGE);
    let first = owner.take();
    owner.end();
    // One was read and one was not.
    assert_eq!(pushes(&owner.lose(&[LARGE, 2 * LARGE])), [1]);
    owner.leave();
    assert!(stops(&owner.yields(1, 11 * LARGE)), "the second is missed by nobody");
    owner.end();
    owner.drop_item(1, &first);
    owner.assert_empty();
}
