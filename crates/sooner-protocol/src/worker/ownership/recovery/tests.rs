//! Exact actions of an owner, a borrower and a worker when memory is lost.

use sooner_wire::message::{
    AddBorrow, BlocksLost, CancelTask, Define, Dependency, Fetch, ForgetLost, FreeBlocks, Location, Message,
    Pulled, Push, Recompute, Relinquish, Relinquishing, Reply, Return, Round, SpillId, StillRead,
    TasksReturned, Value,
};
use sooner_wire::{Blob, FunctionId, LeaseId, Name, ResourceSet, WorkerId};

use super::*;
use crate::time::Instant;
use crate::worker::action::{Action, Peer};
use crate::worker::ownership::Slot;

mod items;

const ME: WorkerId = WorkerId(1);
const WORKER: WorkerId = WorkerId(2);
const OTHER: WorkerId = WorkerId(3);
const NOW: Instant = Instant(0);

/// A core that holds one lease.
struct Owner {
    core: WorkerCore,
    out: Actions,
}

impl Owner {
    fn new() -> Self {
        let mut core = WorkerCore::new(ME);
        core.define(Define {
            function: FunctionId(1),
            name: Name::from("f"),
            code: Blob::default(),
            references: Vec::new(),
            place: None,
        });
        core.shape(&ResourceSet::default());
        Self { core, out: Actions::new() }
    }

    fn send(&mut self, from: Peer, message: impl Into<Message>) -> Actions {
        assert_eq!(self.core.on_message(from, message.into(), NOW, &mut self.out), None);
        self.core.check();
        std::mem::take(&mut self.out)
    }

    fn grant(&mut self, lease: u64) -> Actions {
        let shape = sooner_wire::ShapeId(0);
        let (lease, gpus) = (LeaseId(lease), Vec::new());
        self.send(Peer::Node, sooner_wire::message::LeaseGranted { shape, lease, worker: WORKER, gpus })
    }

    fn submit(&mut self, number: u64, dependencies: &[ObjectId], retries: i32) -> Arc<Slot> {
        let task = task(number);
        let kind = TaskKind::Task(sooner_wire::ShapeId(0));
        let spec = TaskSpec {
            dependencies: dependencies.into(),
            retries,
            ..TaskSpec::new(task, kind, FunctionId(1), Name::from("f"), Blob::default())
        };
        let slot = Arc::new(Slot::default());
        slot.acquire();
        self.core.submit(Arc::new(spec), [slot.clone()], None, &mut self.out);
        slot
    }

    /// The worker's reply: a value at this place.
    fn finish(&mut self, number: u64, offset: u64) -> Actions {
        let returns = vec![Return { outcome: stored(offset), contained: Vec::new() }];
        let (held, task) = (Vec::new(), task(number));
        let reply =
            Reply { task, returns, held, nanos: 5_000_000, retry: false, timing: None, not_run: None };
        self.send(Peer::Worker(WORKER), reply)
    }

    fn lose(&mut self, offsets: &[u64]) -> Actions {
        self.send(Peer::Node, BlocksLost { blocks: offsets.iter().copied().map(BlockId).collect() })
    }

    fn drop_handle(&mut self, number: u64, slot: &Slot) -> Actions {
        assert!(slot.release());
        self.core.on_handles_dropped(&[task(number).object(0)], &mut self.out);
        std::mem::take(&mut self.out)
    }
}

fn task(number: u64) -> TaskId {
    TaskId { owner: ME, number }
}

fn stored(offset: u64) -> Outcome {
    Outcome::Stored(Location { offset, length: 4096 })
}

fn pushes(out: &Actions) -> Vec<u64> {
    let number = |action: &Action| match action {
        Action::Push { spec, .. } => Some(spec.task.number),
        _ => None,
    };
    out.iter().filter_map(number).collect()
}

fn code_in(slot: &Slot) -> Option<FailureCode> {
    match &*slot.outcome()? {
        Outcome::Failed(failure) => Some(failure.code),
        Outcome::Inline(_) | Outcome::Stored(_) | Outcome::Remote(_) => None,
    }
}

fn sends(out: &Actions, to: Peer, message: impl Into<Message>) -> bool {
    out.contains(&Action::Send { to, message: Box::new(message.into()) })
}

#[test]
fn the_owner_executes_the_creating_task_again() {
    let mut owner = Owner::new();
    let slot = owner.submit(1, &[], 3);
    owner.grant(1);
    owner.finish(1, 64);
    assert_eq!(owner.core.lineage().0, 1);
    assert_eq!(pushes(&owner.lose(&[64])), [1]);
    assert_eq!(slot.outcome().as_deref(), None);
    assert_eq!(owner.core.lineage().0, 0, "RC2: a pending task is not kept");
    owner.finish(1, 128);
    assert_eq!(slot.outcome().as_deref(), Some(&stored(128)));
    // The lost block goes back with the record, not for reuse here; the other one may be kept.
    let out = owner.drop_handle(1, &slot);
    assert!(sends(&out, Peer::Node, FreeBlocks { places: vec![BlockId(64).into()] }));
    assert!(out.contains(&Action::FreeBlock(Location { offset: 128, length: 4096 })));
    assert!(owner.core.ownership().is_empty());
    assert_eq!(owner.core.lineage(), (0, 0));
}

#[test]
fn a_loss_that_does_not_concern_us_changes_nothing() {
    let mut owner = Owner::new();
    let slot = owner.submit(1, &[], 3);
    owner.grant(1);
    owner.finish(1, 64);
    assert_eq!(owner.lose(&[128]), []);
    assert_eq!(slot.outcome().as_deref(), Some(&stored(64)));
}

/// Found by the simulator (seed 800000001118, three nodes): a value had been dropped because it could be made
/// again, and making another one again had used up the retry of what both are made of.
#[test]
fn what_a_dropped_value_is_made_of_uses_up_no_retry() {
    let mut owner = Owner::new();
    let first = owner.submit(1, &[], 1);
    let second = owner.submit(2, &[task(1).object(0)], 1);
    owner.grant(1);
    owner.finish(1, 64);
    owner.finish(2, 128);
    // Only the lineage of the second one keeps the first one, without its value.
    owner.drop_handle(1, &first);
    let block = Relinquishing { block: BlockId(128), spilled: Some(SpillId(1)) };
    let recomputes = Some(Recompute::OrKeep);
    owner.send(Peer::Node, Relinquish { blocks: vec![block], gives_way: None, node: None, recomputes });
    let Some(Outcome::Remote(place)) = second.outcome().as_deref().cloned() else { panic!("it was dropped") };
    owner.core.watch(task(2).object(0), &mut owner.out);
    let tried = Some(*place);
    let not_there = Pulled { object: task(2).object(0), location: None, failure: None, tried };
    assert_eq!(pushes(&owner.send(Peer::Node, not_there)), [1]);
    let retries = |number| owner.core.pendings.get(number).expect("it is made again").retries;
    assert_eq!([retries(1), retries(2)], [1, 1], "nothing has failed");
}

#[test]
fn retries_are_used_up_by_recovery() {
    let mut owner = Owner::new();
    let slot = owner.submit(1, &[], 1);
    owner.grant(1);
    owner.finish(1, 64);
    owner.lose(&[64]);
    owner.finish(1, 128);
    assert_eq!(pushes(&owner.lose(&[128])), [0u64; 0]);
    assert_eq!(code_in(&slot), Some(FailureCode::ReconstructionFailed));
}

/// A task with two results in blocks 64 and 128.
fn finish_two(owner: &mut Owner, outcomes: [Outcome; 2]) {
    let returns = outcomes.map(|outcome| Return { outcome, contained: Vec::new() }).to_vec();
    let (held, task) = (Vec::new(), task(1));
    let reply = Reply { task, returns, held, nanos: 5_000_000, retry: false, timing: None, not_run: None };
    owner.send(Peer::Worker(WORKER), reply);
}

fn submit_two(owner: &mut Owner) -> [Arc<Slot>; 2] {
    let kind = TaskKind::Task(sooner_wire::ShapeId(0));
    let spec = TaskSpec {
        returns: 2,
        retries: 3,
        ..TaskSpec::new(task(1), kind, FunctionId(1), Name::from("f"), Blob::default())
    };
    let slots = [(); 2].map(|()| Arc::new(Slot::default()));
    slots.iter().for_each(|slot| slot.acquire());
    owner.core.submit(Arc::new(spec), slots.clone(), None, &mut owner.out);
    owner.grant(1);
    finish_two(owner, [stored(64), stored(128)]);
    slots
}

#[test]
fn a_result_that_is_lost_while_its_task_runs_again_for_another_one_comes_with_it() {
    let mut owner = Owner::new();
    let slots = submit_two(&mut owner);
    assert_eq!(pushes(&owner.lose(&[128])), [1]);
    assert_eq!(pushes(&owner.lose(&[64])), []);
    finish_two(&mut owner, [stored(192), stored(256)]);
    assert_eq!(
        slots.map(|slot| slot.outcome().map(std::borrow::Cow::into_owned)),
        [Some(stored(192)), Some(stored(256))]
    );
}

#[test]
fn lineage_stays_for_a_result_that_was_not_lost() {
    // The second execution puts neither of its results into shared memory; the one that was there lies there
    // still.
    let mut owner = Owner::new();
    let [first, second] = submit_two(&mut owner);
    owner.lose(&[128]);
    let small = || Outcome::Inline(Blob::from(&b"v"[..]));
    finish_two(&mut owner, [small(), small()]);
    assert_eq!(
        (first.outcome().as_deref(), second.outcome().as_deref()),
        (Some(&stored(64)), Some(&small()))
    );
    assert_eq!(owner.core.lineage().0, 1);
    assert_eq!(pushes(&owner.lose(&[64])), [1]);
}

/// Task 1 runs again for its second result, while only the lineage of task 2 keeps the first one, which was
/// not lost. Block 256 has the value of task 2.
fn owner_of_released_while_repeated() -> (Owner, [Arc<Slot>; 2], Arc<Slot>) {
    let mut owner = Owner::new();
    let slots = submit_two(&mut owner);
    let user = owner.submit(2, &[task(1).object(0)], 3);
    owner.grant(2);
    owner.finish(2, 256);
    owner.grant(3);
    assert_eq!(pushes(&owner.lose(&[128])), [1]);
    let out = owner.drop_handle(1, &slots[0]);
    assert_eq!(out, [Action::FreeBlock(Location { offset: 64, length: 4096 })], "O4");
    owner.core.check();
    (owner, slots, user)
}

#[test]
fn a_result_whose_last_reference_goes_while_its_task_runs_again_can_return() {
    let small = || Outcome::Inline(Blob::from(&b"v"[..]));
    for outcomes in [[stored(192), small()], [small(), stored(192)], [small(), small()]] {
        let (mut owner, [first, second], user) = owner_of_released_while_repeated();
        assert_eq!(first.outcome().as_deref(), None, "its task makes it again");
        finish_two(&mut owner, outcomes.clone());
        assert!(second.has_outcome());
        let is_small = outcomes[0] == small();
        let again = pushes(&owner.lose(&[256]));
        assert_eq!(again, [if is_small { 2 } else { 1 }], "a small one stayed");
        if !is_small {
            finish_two(&mut owner, [stored(320), small()]);
        }
        owner.finish(2, 384);
        assert_eq!(user.outcome().as_deref(), Some(&stored(384)));
    }
}

#[test]
fn a_result_that_nothing_keeps_any_more_goes_when_its_task_has_run_again() {
    let (mut owner, [first, second], user) = owner_of_released_while_repeated();
    owner.drop_handle(2, &user);
    assert!(second.release());
    owner.core.on_handles_dropped(&[task(1).object(1)], &mut owner.out);
    assert_eq!(first.outcome().as_deref(), None);
    finish_two(&mut owner, [stored(192), stored(320)]);
    assert!(owner.core.ownership().is_empty(), "{:?}", owner.core.ownership());
    assert_eq!(owner.core.lineage(), (0, 0));
}

#[test]
fn a_result_that_its_task_fails_to_make_again_says_why() {
    // Its last reference goes before the failure, and after it.
    let failure = Failure::new(FailureCode::Task, String::from("raised"));
    let failed =
        || vec![Return { outcome: Outcome::Failed(Box::new(failure.clone())), contained: Vec::new() }];
    let reply = || Reply {
        task: task(1),
        returns: failed(),
        held: Vec::new(),
        nanos: 5_000_000,
        retry: false,
        timing: None,
        not_run: None,
    };
    let (mut owner, [_, second], user) = owner_of_released_while_repeated();
    owner.send(Peer::Worker(WORKER), reply());
    assert_eq!(code_in(&second), Some(FailureCode::Task));
    assert_eq!(pushes(&owner.lose(&[256])), [0u64; 0]);
    assert_eq!(code_in(&user), Some(FailureCode::Task));

    let mut owner = Owner::new();
    let [first, _second] = submit_two(&mut owner);
    let user = owner.submit(2, &[task(1).object(0)], 3);
    owner.grant(2);
    owner.finish(2, 256);
    owner.grant(3);
    assert_eq!(pushes(&owner.lose(&[128])), [1]);
    owner.send(Peer::Worker(WORKER), reply());
    owner.drop_handle(1, &first);
    assert_eq!(code_in(&first), Some(FailureCode::ObjectFreed), "nothing makes it any more");
    assert_eq!(pushes(&owner.lose(&[256])), [0u64; 0]);
    assert_eq!(code_in(&user), Some(FailureCode::ReconstructionFailed));
}

#[test]
fn what_put_made_has_no_way_back() {
    let mut owner = Owner::new();
    let slot = Arc::new(Slot::with_outcome(stored(64)));
    slot.acquire();
    owner.core.ownership_mut().own(task(1).object(0), slot.clone());
    owner.lose(&[64]);
    assert_eq!(code_in(&slot), Some(FailureCode::ObjectLost));
}

#[test]
fn lost_arguments_come_first_and_their_memory_goes_when_only_lineage_keeps_them() {
    let mut owner = Owner::new();
    let first = owner.submit(1, &[], 3);
    let second = owner.submit(2, &[task(1).object(0)], 3);
    owner.grant(1);
    assert_eq!(pushes(&owner.finish(1, 64)), [2]);
    owner.finish(2, 128);
    // O4: the record stays for lineage, its memory goes.
    let out = owner.drop_handle(1, &first);
    assert_eq!(out, [Action::FreeBlock(Location { offset: 64, length: 4096 })]);
    assert_eq!(owner.core.ownership().lineage_count(task(1).object(0)), 1);
    owner.grant(2);
    assert_eq!(pushes(&owner.lose(&[128])), [1]);
    assert_eq!(pushes(&owner.finish(1, 192)), [2]);
    let out = owner.finish(2, 256);
    assert_eq!(second.outcome().as_deref(), Some(&stored(256)));
    assert!(
        out.contains(&Action::FreeBlock(Location { offset: 192, length: 4096 })),
        "the argument goes again"
    );
    owner.drop_handle(2, &second);
    assert!(owner.core.ownership().is_empty(), "{:?}", owner.core.ownership());
    assert_eq!(owner.core.lineage(), (0, 0));
}

#[test]
fn a_reply_that_brings_a_lost_value_counts_as_a_loss() {
    let mut owner = Owner::new();
    let slot = owner.submit(1, &[], 3);
    owner.grant(1);
    owner.lose(&[64]);
    assert_eq!(pushes(&owner.finish(1, 64)), [1]);
    assert_eq!(slot.outcome().as_deref(), None);
    owner.finish(1, 128);
    assert_eq!(slot.outcome().as_deref(), Some(&stored(128)));
}

#[test]
fn a_task_that_waits_for_its_lease_waits_for_its_argument_again() {
    let mut owner = Owner::new();
    owner.submit(1, &[], 3);
    owner.grant(1);
    owner.finish(1, 64);
    owner.core.on_timer(Instant(u64::MAX / 2), &mut owner.out);
    owner.submit(2, &[task(1).object(0)], 3);
    owner.lose(&[64]);
    let granted = owner.grant(2);
    assert_eq!(pushes(&granted), [1], "the argument is made first");
    let out = owner.finish(1, 128);
    let dependency = out.iter().find_map(|action| match action {
        Action::Push { dependencies, .. } => Some(dependencies[0].outcome.clone()),
        _ => None,
    });
    assert_eq!(dependency, Some(stored(128)));
}

#[test]
fn a_call_of_an_actor_of_ours_that_is_gone_is_not_repeated() {
    let mut owner = Owner::new();
    let call = TaskSpec {
        retries: 3,
        ..TaskSpec::new(
            task(2),
            TaskKind::Method(task(1)),
            FunctionId(1),
            Name::from("call"),
            Blob::default(),
        )
    };
    let slot = Arc::new(Slot::default());
    slot.acquire();
    owner.core.callers.meet(task(1));
    owner.core.submit(Arc::new(call), [slot.clone()], None, &mut owner.out);
    let started = sooner_wire::message::ActorStarted {
        actor: task(1),
        worker: WORKER,
        concurrency: 1,
        replays: None,
        restarts: None,
    };
    owner.send(Peer::Node, started);
    owner.finish(2, 64);
    let failure = Failure::new(FailureCode::ActorDied, "its last handle was dropped");
    owner.send(Peer::Node, sooner_wire::message::ActorDead { actor: task(1), failure });
    assert_eq!(owner.core.actor_place(task(1)), None);
    owner.lose(&[64]);
    assert_eq!(code_in(&slot), Some(FailureCode::ReconstructionFailed));
    assert_eq!(owner.core.pending_tasks(), 0);
}

#[test]
fn a_cancelled_recovery_ends_in_a_cancellation() {
    let mut owner = Owner::new();
    let slot = owner.submit(1, &[], 3);
    owner.grant(1);
    owner.finish(1, 64);
    owner.lose(&[64]);
    owner.core.cancel(task(1), false, true, &mut owner.out);
    let cancel = CancelTask { task: task(1), force: false, recursive: true };
    assert!(sends(&std::mem::take(&mut owner.out), Peer::Worker(WORKER), cancel));
    let failure = Failure::new(FailureCode::Cancelled, "cancelled");
    let returns = vec![Return { outcome: Outcome::Failed(Box::new(failure)), contained: Vec::new() }];
    let (held, task) = (Vec::new(), task(1));
    owner.send(
        Peer::Worker(WORKER),
        Reply { task, returns, held, nanos: 1, retry: false, timing: None, not_run: None },
    );
    assert_eq!(code_in(&slot), Some(FailureCode::Cancelled));
    assert_eq!(owner.core.pending_tasks(), 0);
}

#[test]
fn a_borrower_forgets_the_place_and_asks_again_until_the_owner_has_heard() {
    let mut borrower = Owner::new();
    let object = TaskId { owner: OTHER, number: 7 }.object(0);
    let slot = borrower.core.ownership_mut().received(object);
    slot.acquire();
    borrower.core.ownership_mut().need(object, &mut borrower.out);
    assert!(sends(
        &std::mem::take(&mut borrower.out),
        Peer::Worker(OTHER),
        Fetch { object, missing_at: None }
    ));
    let value = |offset| Value { object, outcome: stored(offset), contained: Vec::new() };
    borrower.send(Peer::Worker(OTHER), value(64));
    // Somebody holds it, and may be about to look.
    assert!(sends(&borrower.lose(&[64]), Peer::Worker(OTHER), Fetch { object, missing_at: None }));
    assert_eq!(slot.outcome().as_deref(), None);
    // The owner has not heard of the loss and says what it knew.
    let out = borrower.send(Peer::Worker(OTHER), value(64));
    assert!(sends(&out, Peer::Worker(OTHER), Fetch { object, missing_at: None }));
    borrower.send(Peer::Worker(OTHER), value(128));
    assert_eq!(slot.outcome().as_deref(), Some(&stored(128)));
}

#[test]
fn an_owner_brings_a_value_back_when_a_borrower_asks() {
    let mut owner = Owner::new();
    let first = owner.submit(1, &[], 3);
    owner.submit(2, &[task(1).object(0)], 3);
    owner.grant(1);
    owner.finish(1, 64);
    owner.finish(2, 128);
    owner.drop_handle(1, &first);
    owner.grant(2);
    // The value went. Nobody has it, and whoever asks is told so; a borrower has it made again.
    let object = task(1).object(0);
    assert_eq!(pushes(&owner.send(Peer::Worker(OTHER), Fetch { object, missing_at: None })), []);
    owner.send(Peer::Worker(OTHER), AddBorrow { object, borrower: OTHER });
    assert_eq!(pushes(&owner.send(Peer::Worker(OTHER), Fetch { object, missing_at: None })), [1]);
    let out = owner.finish(1, 192);
    assert!(sends(&out, Peer::Worker(OTHER), Value { object, outcome: stored(192), contained: Vec::new() }));
}

/// The value of task 1 went with its last use; only the lineage of task 2, which takes it, keeps its record.
fn owner_of_released() -> (Owner, Arc<Slot>) {
    let mut owner = Owner::new();
    let first = owner.submit(1, &[], 3);
    owner.grant(1);
    owner.finish(1, 64);
    owner.submit(2, &[task(1).object(0)], 3);
    owner.finish(2, 128);
    owner.drop_handle(1, &first);
    assert_eq!((first.outcome(), first.was_lost()), (None, true));
    // Its reference came back, inside a value.
    let again = owner.core.ownership_mut().meet(task(1).object(0));
    again.acquire();
    owner.out.clear();
    (owner, again)
}

#[test]
fn an_owner_computes_a_value_again_whose_reference_came_back() {
    let (mut owner, slot) = owner_of_released();
    let mut out = Actions::new();
    owner.core.need(task(1).object(0), &mut out);
    assert_eq!(pushes(&out), [1]);
    owner.core.need(task(1).object(0), &mut out);
    assert_eq!(pushes(&out), [1], "once");
    owner.finish(1, 192);
    assert_eq!(slot.outcome().as_deref(), Some(&stored(192)));
    assert!(!owner.core.watch(task(1).object(0), &mut out));

    let (mut owner, _slot) = owner_of_released();
    let mut out = Actions::new();
    assert!(owner.core.watch(task(1).object(0), &mut out));
    assert_eq!(pushes(&out), [1]);

    let (mut owner, _slot) = owner_of_released();
    let _third = owner.submit(3, &[task(1).object(0)], 3);
    assert_eq!(pushes(&owner.out), [1], "the task waits for it");
}

fn push_to_me(kind: TaskKind, dependency: ObjectId, offset: u64) -> Push {
    let task = TaskId { owner: OTHER, number: 9 };
    let spec = TaskSpec {
        dependencies: Box::new([dependency]),
        ..TaskSpec::new(task, kind, FunctionId(1), Name::from("f"), Blob::default())
    };
    let dependencies =
        vec![Dependency { object: dependency, outcome: stored(offset), contained: Vec::new() }];
    Push { spec: Box::new(spec), dependencies, gpus: Vec::new() }
}

#[test]
fn a_pushed_task_goes_back_when_its_argument_is_lost() {
    let dependency = TaskId { owner: OTHER, number: 7 }.object(0);
    let task = TaskId { owner: OTHER, number: 9 };
    let push = push_to_me(TaskKind::Task(sooner_wire::ShapeId(0)), dependency, 64);
    let returned = TasksReturned { tasks: vec![task], lacks_room: None, missing: None };
    // The loss comes after the task ...
    let mut worker = Owner::new();
    worker.send(Peer::Worker(OTHER), push.clone());
    assert!(sends(&worker.lose(&[64]), Peer::Worker(OTHER), returned.clone()));
    assert!(worker.core.next_execution().is_none());
    // ... or before it.
    assert!(sends(&worker.send(Peer::Worker(OTHER), push), Peer::Worker(OTHER), returned));
    assert!(worker.core.ownership().is_empty());
}

#[test]
fn calls_of_an_actor_wait_where_they_are_and_stay_in_order() {
    let actor = TaskId { owner: OTHER, number: 1 };
    let dependency = TaskId { owner: OTHER, number: 7 }.object(0);
    let mut worker = Owner::new();
    let spec = TaskSpec::new(actor, TaskKind::Creation, FunctionId(1), Name::from("A"), Blob::default());
    let constructor = Push { spec: Box::new(spec), dependencies: Vec::new(), gpus: Vec::new() };
    worker.send(Peer::Node, constructor);
    worker.core.next_execution().expect("the constructor");
    worker.core.on_constructed(actor, None, &mut worker.out);
    worker.send(Peer::Worker(OTHER), push_to_me(TaskKind::Method(actor), dependency, 64));
    let mut later = push_to_me(TaskKind::Method(actor), dependency, 64);
    later.spec.task.number = 10;
    later.spec.dependencies = Box::default();
    later.dependencies.clear();
    worker.send(Peer::Worker(OTHER), later);
    assert!(sends(&worker.lose(&[64]), Peer::Worker(OTHER), Fetch { object: dependency, missing_at: None }));
    assert!(worker.core.next_execution().is_none(), "E2: the later call waits, too");
    let value = Value { object: dependency, outcome: stored(128), contained: Vec::new() };
    worker.send(Peer::Worker(OTHER), value);
    let first = worker.core.next_execution().expect("complete");
    assert_eq!(first.push.dependencies[0].outcome, stored(128));
    assert_eq!(worker.core.next_execution().map(|call| call.push.spec.task.number), Some(10));
}

#[test]
fn a_call_whose_argument_stays_lost_fails_with_its_reason() {
    let actor = TaskId { owner: OTHER, number: 1 };
    let dependency = TaskId { owner: OTHER, number: 7 }.object(0);
    let mut worker = Owner::new();
    worker.send(Peer::Worker(OTHER), push_to_me(TaskKind::Method(actor), dependency, 64));
    worker.lose(&[64]);
    let failure = Failure::new(FailureCode::ObjectLost, "lost");
    let outcome = Outcome::Failed(Box::new(failure));
    let out = worker.send(
        Peer::Worker(OTHER),
        Value { object: dependency, outcome: outcome.clone(), contained: Vec::new() },
    );
    let reply = out.iter().find_map(|action| match action {
        Action::Send { message, .. } => match &**message {
            Message::Reply(reply) => Some(reply.returns[0].outcome.clone()),
            _ => None,
        },
        _ => None,
    });
    assert_eq!(reply, Some(outcome));
    assert!(worker.core.next_execution().is_none());
}

#[test]
fn references_that_were_given_back_are_borrowed_again() {
    let mut owner = Owner::new();
    let foreign = TaskId { owner: OTHER, number: 7 }.object(0);
    owner.core.ownership_mut().received(foreign).acquire();
    let slot = owner.submit(1, &[foreign], 3);
    let value = Value { object: foreign, outcome: stored(32), contained: Vec::new() };
    owner.send(Peer::Worker(OTHER), value);
    owner.grant(1);
    owner.finish(1, 64);
    let borrowed = owner.core.ownership().record(foreign).expect("held").slot.clone();
    assert!(borrowed.release());
    owner.core.on_handles_dropped(&[foreign], &mut owner.out);
    assert!(owner.core.ownership().record(foreign).is_none(), "large values of others are not kept");
    owner.out.clear();
    let out = owner.lose(&[64]);
    assert!(sends(&out, Peer::Worker(OTHER), AddBorrow { object: foreign, borrower: ME }));
    assert!(sends(&out, Peer::Worker(OTHER), Fetch { object: foreign, missing_at: None }));
    let gone = Failure::new(FailureCode::ObjectFreed, "gone");
    let outcome = Outcome::Failed(Box::new(gone));
    owner.send(Peer::Worker(OTHER), Value { object: foreign, outcome, contained: Vec::new() });
    assert_eq!(code_in(&slot), Some(FailureCode::ReconstructionFailed));
}

#[test]
fn lost_blocks_are_forgotten_on_request() {
    let mut owner = Owner::new();
    owner.lose(&[64]);
    let out = owner.send(Peer::Node, ForgetLost { round: Round::of_lost(9), blocks: vec![BlockId(64)] });
    assert!(sends(&out, Peer::Node, StillRead { round: Round::of_lost(9), places: Vec::new(), lent: None }));
    let slot = owner.submit(1, &[], 3);
    owner.grant(1);
    owner.finish(1, 64);
    assert_eq!(slot.outcome().as_deref(), Some(&stored(64)));
}

#[test]
fn the_oldest_lineage_goes_first_and_says_so() {
    let mut owner = Owner::new();
    owner.core.limit_lineage(0);
    let slot = owner.submit(1, &[], 3);
    owner.grant(1);
    owner.finish(1, 64);
    assert_eq!(owner.core.lineage(), (0, 0));
    owner.lose(&[64]);
    assert_eq!(code_in(&slot), Some(FailureCode::LineageEvicted));
}
