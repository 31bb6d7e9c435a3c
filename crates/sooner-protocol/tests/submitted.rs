//! What becomes of tasks and calls that a process submits: retries, cancellation, streams, and the words they
//! end with.

use std::sync::Arc;

use sooner_protocol::time::Instant;
use sooner_protocol::worker::action::{Action, Actions, Peer};
use sooner_protocol::worker::calls::ActorPlace;
use sooner_protocol::worker::ownership::Slot;
use sooner_protocol::worker::{ActorDemand, WorkerCore};
use sooner_wire::limits::RETRY_PAUSE_NANOS;
use sooner_wire::message::state::{Inspect, KnownActorRow, Report, about, hold};
use sooner_wire::message::{
    ActorDead, ActorRestarting, ActorStarted, AddBorrow, BlocksLost, CancelTask, Define, Failure,
    FailureCode, Item, ItemsTaken, KillActor, LeaseGranted, Location, Message, MethodCall, Outcome, Reply,
    Streaming, SubscribeActor, Target, TaskKind, TaskSpec, TasksReturned, WorkerDead,
};
use sooner_wire::{
    Blob, BlockId, FunctionId, LeaseId, Name, ObjectId, ResourceSet, ShapeId, TaskId, WorkerId,
};

mod kit;

use kit::{plain, reply_of};

const ME: WorkerId = WorkerId(1);
const WORKER: WorkerId = WorkerId(5);
const THIRD: WorkerId = WorkerId(9);
const FUNCTION: FunctionId = FunctionId(3);
/// Of another process, so that nothing ends it here.
const ACTOR: TaskId = TaskId { owner: THIRD, number: 1 };

fn id(number: u64) -> TaskId {
    TaskId { owner: ME, number }
}

fn cpu() -> ResourceSet {
    ResourceSet::from_amounts([("CPU".to_owned(), 1.0)])
}

fn value() -> Outcome {
    Outcome::Inline(Blob::from(&b"1"[..]))
}

fn failed(code: FailureCode) -> Outcome {
    Outcome::Failed(Box::new(Failure::new(code, "raised")))
}

/// A core with what it wants done, and the slots of what it submitted.
struct Process {
    core: WorkerCore,
    out: Actions,
    slots: Vec<(u64, Arc<Slot>)>,
}

impl Process {
    fn new() -> Self {
        let mut core = WorkerCore::new(ME);
        core.record_events(1 << 16);
        let name = Name::from("f");
        let (code, references) = (Blob::default(), Vec::new());
        core.define(Define { function: FUNCTION, name, code, references, place: None });
        assert_eq!(core.shape(&cpu()), ShapeId(0));
        Self { core, out: Actions::new(), slots: Vec::new() }
    }

    fn submit(&mut self, spec: TaskSpec) {
        self.submit_of(spec, None);
    }

    fn submit_of(&mut self, spec: TaskSpec, parent: Option<TaskId>) {
        let slot = Arc::new(Slot::default());
        slot.acquire();
        self.slots.push((spec.task.number, slot.clone()));
        self.core.submit(Arc::new(spec), [slot], parent, &mut self.out);
        self.core.check();
    }

    fn receive(&mut self, from: Peer, message: impl Into<Message>) {
        assert_eq!(self.core.on_message(from, message.into(), Instant(10), &mut self.out), None);
        self.core.check();
    }

    fn lease(&mut self) {
        let (shape, lease) = (ShapeId(0), LeaseId(1));
        self.receive(Peer::Node, LeaseGranted { shape, lease, worker: WORKER, gpus: Vec::new() });
    }

    fn reply(&mut self, number: u64, outcome: Outcome, retry: bool) {
        self.receive(Peer::Worker(WORKER), reply(number, outcome, retry));
    }

    fn worker_dead(&mut self, last_started: Option<u64>) {
        let (reason, last_started) = ("was killed by signal 9".to_owned(), last_started.map(id));
        self.receive(
            Peer::Node,
            WorkerDead {
                worker: WORKER,
                reason,
                last_started,
                what: None,
                all_begun: None,
                unreachable: None,
                memory: None,
            },
        );
    }

    fn place_actor(&mut self) {
        let (actor, worker, concurrency) = (ACTOR, WORKER, 1);
        self.receive(Peer::Node, ActorStarted { actor, worker, concurrency, replays: None, restarts: None });
    }

    fn restart_actor(&mut self) {
        self.restart_actor_that(None);
    }

    fn restart_actor_that(&mut self, unbegun: Option<bool>) {
        let reason = "was killed by signal 9".to_owned();
        self.receive(
            Peer::Node,
            ActorRestarting { actor: ACTOR, reason, last_started: None, nobody_starts_it: None, unbegun },
        );
    }

    /// Numbers of the tasks that were pushed, since the last time.
    fn pushed(&mut self) -> Vec<u64> {
        let number = |action| match action {
            Action::Push { spec, .. } => Some(spec.task.number),
            _ => None,
        };
        self.out.drain(..).filter_map(number).collect()
    }

    /// Messages sent, since the last time.
    fn said(&mut self) -> Vec<(Peer, Message)> {
        let sent = |action| match action {
            Action::Send { to, message } => Some((to, *message)),
            _ => None,
        };
        self.out.drain(..).filter_map(sent).collect()
    }

    /// How a task ended, if it did.
    fn code(&self, number: u64) -> Option<FailureCode> {
        self.failure(number).map(|failure| failure.code)
    }

    fn failure(&self, number: u64) -> Option<Failure> {
        match &*self.slot(number).outcome()? {
            Outcome::Failed(failure) => Some((**failure).clone()),
            other => panic!("task {number} has a value: {other:?}"),
        }
    }

    fn slot(&self, number: u64) -> &Slot {
        &self.slots.iter().find(|(of, _)| *of == number).expect("it was submitted").1
    }

    fn drop_handle(&mut self, object: ObjectId, slot: &Slot) {
        if slot.release() {
            self.core.on_handles_dropped(&[object], &mut self.out);
        }
    }

    fn report(&self) -> Report {
        let about = about::TASKS | about::OBJECTS | about::ACTORS;
        self.core.report(&Inspect { request: 1, about, rows: 10, events: 10, ..Inspect::default() })
    }

    /// Retries that are left, by task.
    fn retries(&self) -> Vec<i32> {
        let mut tasks = self.report().tasks;
        tasks.sort_by_key(|row| row.task);
        tasks.iter().map(|row| row.retries).collect()
    }
}

fn task(number: u64) -> TaskSpec {
    TaskSpec::new(id(number), TaskKind::Task(ShapeId(0)), FUNCTION, Name::from("f"), Blob::default())
}

fn call(number: u64) -> TaskSpec {
    TaskSpec::new(id(number), TaskKind::Method(ACTOR), FunctionId(0), Name::from("m"), Blob::default())
}

fn streaming(number: u64, dynamic: bool) -> TaskSpec {
    TaskSpec { stream: Some(Streaming { backpressure: 2, dynamic }), ..task(number) }
}

fn reply(number: u64, outcome: Outcome, retry: bool) -> Reply {
    let returns = vec![plain(outcome)];
    Reply { retry, ..reply_of(id(number), returns, 1) }
}

fn item(number: u64, index: u32) -> Item {
    Item { task: id(number), index, value: plain(value()) }
}

#[test]
fn a_task_is_known_until_it_ends() {
    let mut process = Process::new();
    assert_eq!(process.core.me(), ME);
    process.submit(task(1));
    assert_eq!((process.core.pending_tasks(), process.core.leases_held()), (1, 0));
    assert_eq!(process.core.pushed_to(id(1)), None);
    process.lease();
    assert_eq!(process.pushed(), [1]);
    assert_eq!((process.core.pushed_to(id(1)), process.core.leases_held()), (Some(WORKER), 1));
    assert_eq!(process.core.pushed_to(TaskId { owner: THIRD, number: 1 }), None);
    assert!(!process.core.is_actor_call(id(1)));
    process.reply(1, value(), false);
    assert_eq!((process.core.pending_tasks(), process.core.pushed_to(id(1))), (0, None));
}

#[test]
fn a_task_that_raised_is_made_again_within_its_retries() {
    let mut process = Process::new();
    process.submit(TaskSpec { retries: 2, retry_exceptions: true, ..task(1) });
    process.lease();
    for left in [1, 0] {
        process.reply(1, failed(FailureCode::Task), true);
        assert_eq!(process.retries(), [left]);
    }
    process.reply(1, failed(FailureCode::Task), true);
    assert_eq!((process.pushed(), process.code(1)), (vec![1, 1, 1], Some(FailureCode::Task)));
}

#[test]
fn a_task_may_be_made_again_without_end() {
    let mut process = Process::new();
    process.submit(TaskSpec { retries: -1, retry_exceptions: true, ..task(1) });
    process.lease();
    (0..3).for_each(|_| process.reply(1, failed(FailureCode::Task), true));
    assert_eq!((process.retries(), process.pushed()), (vec![-1], vec![1, 1, 1, 1]));
}

#[test]
fn tasks_that_had_not_begun_cost_no_retry_when_their_worker_dies() {
    let mut process = Process::new();
    process.submit(task(1));
    process.lease();
    process.reply(1, value(), false);
    (2..=4).for_each(|number| process.submit(task(number)));
    assert_eq!(process.pushed(), [1, 2, 3, 4], "the function is known to be short");
    process.worker_dead(Some(2));
    assert_eq!(process.code(2), Some(FailureCode::WorkerCrashed));
    let message = process.failure(2).expect("it failed").message;
    assert!(message.contains("ran f()") && message.contains("signal 9"), "{message}");
    process.lease();
    assert_eq!(process.pushed(), [3, 4], "in their order");
}

#[test]
fn where_nobody_saw_which_task_began_each_may_have_run() {
    let mut process = Process::new();
    process.submit(task(1));
    process.lease();
    process.reply(1, value(), false);
    (2..=3).for_each(|number| process.submit(task(number)));
    let reason = "cannot be reached".to_owned();
    let gone = WorkerDead { worker: WORKER, reason, all_begun: Some(true), ..WorkerDead::default() };
    process.receive(Peer::Node, gone);
    let codes = [2, 3].map(|number| process.code(number));
    assert_eq!(codes, [Some(FailureCode::WorkerCrashed); 2]);
}

#[test]
fn a_task_that_may_have_run_costs_a_retry_when_its_worker_dies() {
    let mut process = Process::new();
    process.submit(TaskSpec { retries: 1, ..task(1) });
    process.submit(TaskSpec { retries: -1, ..task(2) });
    process.lease();
    process.worker_dead(Some(1));
    assert_eq!(
        process.report().tasks.iter().map(|row| (row.retries, row.attempt.0)).collect::<Vec<_>>(),
        [(0, 1), (-1, 0)]
    );
    process.pushed();
    process.lease();
    assert_eq!(process.pushed(), [1]);
    process.worker_dead(Some(1));
    assert_eq!(process.code(1), Some(FailureCode::WorkerCrashed));
}

#[test]
fn what_a_worker_gives_back_is_pushed_again_in_order() {
    let mut process = Process::new();
    process.submit(task(1));
    process.lease();
    process.reply(1, value(), false);
    (2..=5).for_each(|number| process.submit(task(number)));
    process.pushed();
    process.core.cancel(id(4), false, false, &mut process.out);
    process.receive(
        Peer::Worker(WORKER),
        TasksReturned { tasks: vec![id(3), id(4), id(5)], lacks_room: None, missing: None },
    );
    assert_eq!(process.code(4), Some(FailureCode::Cancelled));
    assert_eq!(process.pushed(), [0; 0], "the worker is busy");
    process.reply(2, value(), false);
    assert_eq!(process.pushed(), [3, 5]);
}

#[test]
fn a_task_that_came_back_for_want_of_room_waits_and_others_go_on() {
    let mut process = Process::new();
    (1..=2).for_each(|number| process.submit(task(number)));
    process.lease();
    assert_eq!(process.pushed(), [1]);
    process.receive(
        Peer::Worker(WORKER),
        TasksReturned { tasks: vec![id(1)], lacks_room: Some(true), missing: None },
    );
    assert_eq!(process.pushed(), [2], "the worker is free");
    process.reply(2, value(), false);
    assert_eq!(process.pushed(), [0; 0], "it waits");
    let due = Instant(10).plus(RETRY_PAUSE_NANOS);
    process.core.on_timer(Instant(due.0 - 1), &mut process.out);
    assert_eq!(process.pushed(), [0; 0]);
    process.core.on_timer(due, &mut process.out);
    assert_eq!(process.pushed(), [1]);
    process.reply(1, value(), false);
    assert!(process.report().tasks.is_empty(), "it has ended");
}

#[test]
fn a_task_whose_message_nobody_could_read_is_refused() {
    let mut process = Process::new();
    // As many small values as have 100 MiB would take long to make.
    let bytes = Blob::from(&vec![0; 100 << 20][..]);
    let arguments: Vec<ObjectId> = (11..14).map(|number| id(number).object(0)).collect();
    for argument in &arguments {
        let slot = Arc::new(Slot::with_outcome(Outcome::Inline(bytes.clone())));
        slot.acquire();
        process.core.ownership_mut().own(*argument, slot);
    }
    process.submit(TaskSpec { dependencies: arguments.clone().into(), ..task(1) });
    let failure = process.failure(1).expect("it has failed");
    assert_eq!(failure.code, FailureCode::TaskUnschedulable);
    assert!(failure.message.contains("300") && failure.message.contains("256"), "{}", failure.message);
    process.submit(TaskSpec { dependencies: arguments[1..].into(), ..task(2) });
    process.lease();
    assert_eq!(process.pushed(), [2]);
}

#[test]
fn as_many_bytes_of_arguments_are_out_as_there_was_room_for() {
    let mut process = Process::new();
    let slot = |length| {
        let stored = Outcome::Stored(Location { offset: length, length });
        let slot = Arc::new(Slot::with_outcome(stored));
        slot.acquire();
        slot
    };
    for number in 1..=4 {
        // The third has the argument of the first.
        let argument = id(if number == 3 { 11 } else { 10 + number }).object(0);
        if number != 3 {
            process.core.ownership_mut().own(argument, slot((1 << 20) + number * 4096));
        }
        process.submit(TaskSpec { dependencies: vec![argument].into(), ..task(number) });
    }
    process.lease();
    process.receive(
        Peer::Node,
        LeaseGranted { shape: ShapeId(0), lease: LeaseId(2), worker: THIRD, gpus: Vec::new() },
    );
    assert_eq!(process.pushed(), [1, 2]);
    process.receive(
        Peer::Worker(THIRD),
        TasksReturned { tasks: vec![id(2)], lacks_room: Some(true), missing: None },
    );
    assert_eq!(process.pushed(), [3], "its argument is out already");
    process.reply(1, value(), false);
    assert_eq!(process.pushed(), [0; 0], "there is no room for the fourth beside that");
    process.receive(Peer::Worker(THIRD), reply(3, value(), false));
    assert_eq!(process.pushed(), [4], "the only one always goes");
}

#[test]
fn a_cancelled_task_ends_where_it_is() {
    let mut process = Process::new();
    (1..=2).for_each(|number| process.submit(task(number)));
    process.lease();
    process.out.clear();
    process.core.cancel(id(2), false, true, &mut process.out);
    assert_eq!(process.code(2), Some(FailureCode::Cancelled));
    let message = process.failure(2).expect("it failed").message;
    assert!(message.contains("00000000000000010000000000000002"), "{message}");
    process.out.clear();
    process.core.cancel(id(1), true, false, &mut process.out);
    let cancel = CancelTask { task: id(1), force: true, recursive: false };
    assert_eq!(process.said(), [(Peer::Worker(WORKER), cancel.clone().into())]);
    process.core.cancel(TaskId { owner: THIRD, ..id(1) }, true, false, &mut process.out);
    let theirs = CancelTask { task: TaskId { owner: THIRD, number: 1 }, ..cancel };
    assert_eq!(process.said(), [(Peer::Worker(THIRD), theirs.into())], "its owner cancels it");
    process.worker_dead(Some(1));
    assert_eq!(process.code(1), Some(FailureCode::Cancelled), "whatever ended it");
}

#[test]
fn a_call_of_an_actor_is_cancelled_without_force() {
    let mut process = Process::new();
    process.submit(call(1));
    process.place_actor();
    assert_eq!(process.pushed(), [1]);
    // Also for somebody who has only the reference, or for the task that made the call.
    process.receive(Peer::Worker(THIRD), CancelTask { task: id(1), force: true, recursive: true });
    let cancel = CancelTask { task: id(1), force: false, recursive: true };
    assert_eq!(process.said(), [(Peer::Worker(WORKER), cancel.into())]);
}

#[test]
fn who_executes_its_own_task_passes_its_cancellation_on_once() {
    let mut process = Process::new();
    process.submit(task(1));
    process.lease();
    process.out.clear();
    let cancel = CancelTask { task: id(1), force: false, recursive: false };
    process.receive(Peer::Worker(THIRD), cancel.clone());
    assert_eq!(process.said(), [(Peer::Worker(WORKER), cancel.clone().into())], "a borrower asks for it");
    process.out.clear();
    process.receive(Peer::Worker(ME), cancel);
    assert_eq!(process.said(), [], "it has ended here, or has not come yet");
}

#[test]
fn references_that_a_worker_goes_on_holding_are_registered_with_their_owners() {
    let mut process = Process::new();
    let mine = id(7).object(0);
    let slot = Arc::new(Slot::with_outcome(value()));
    slot.acquire();
    process.core.ownership_mut().own(mine, slot);
    process.submit(task(1));
    process.lease();
    process.out.clear();
    let (theirs, its) = (ACTOR.object(3), TaskId { owner: WORKER, number: 1 }.object(0));
    let held = vec![mine, theirs, its];
    process.receive(Peer::Worker(WORKER), Reply { held, ..reply(1, value(), false) });
    assert_eq!(process.core.ownership().record(mine).expect("it has a handle").borrowers(), [WORKER]);
    let register = AddBorrow { object: theirs, borrower: WORKER };
    assert_eq!(process.said(), [(Peer::Worker(THIRD), register.into())]);
}

#[test]
fn calls_in_flight_are_made_again_within_their_retries_and_in_order() {
    let mut process = Process::new();
    for (number, retries) in [(1, 0), (2, 1), (3, -1), (4, 5)] {
        process.submit(TaskSpec { retries, ..call(number) });
    }
    assert!(process.core.is_actor_call(id(1)) && !process.core.is_actor_call(id(99)));
    assert!(!process.core.is_actor_call(TaskId { owner: THIRD, number: 1 }));
    assert_eq!(process.core.pending_calls(ACTOR), 4);
    process.place_actor();
    assert_eq!(
        process.core.actor_place(ACTOR),
        Some(&ActorPlace::At { worker: WORKER, window: window(), concurrency: 1 })
    );
    assert_eq!(process.pushed(), [1, 2, 3, 4]);
    assert_eq!(process.core.pending_calls(ACTOR), 4);
    process.core.cancel(id(4), false, false, &mut process.out);
    process.restart_actor();
    assert_eq!(
        (process.code(1), process.code(4)),
        (Some(FailureCode::ActorUnavailable), Some(FailureCode::Cancelled))
    );
    let message = process.failure(1).expect("it failed").message;
    assert!(message.contains("while m()"), "{message}");
    process.submit(call(5));
    assert_eq!((process.retries(), process.core.pending_calls(ACTOR)), (vec![0, -1, 0], 3));
    process.pushed();
    let (actor, concurrency) = (ACTOR, 1);
    process.receive(
        Peer::Node,
        ActorStarted { actor, worker: WorkerId(6), concurrency, replays: None, restarts: None },
    );
    assert_eq!(process.pushed(), [2, 3, 5]);
    process.restart_actor();
    assert_eq!(process.code(2), Some(FailureCode::ActorUnavailable));
    assert_eq!(process.code(3), None);
}

#[test]
fn calls_of_an_actor_that_had_not_begun_are_made_of_the_next_process_in_their_order() {
    let mut process = Process::new();
    (1..=3).for_each(|number| process.submit(call(number)));
    process.place_actor();
    assert_eq!(process.pushed(), [1, 2, 3]);
    process.core.cancel(id(2), false, false, &mut process.out);
    process.restart_actor_that(Some(true));
    assert_eq!([1, 2, 3].map(|number| process.code(number)), [None, Some(FailureCode::Cancelled), None]);
    let (actor, concurrency) = (ACTOR, 1);
    process.receive(
        Peer::Node,
        ActorStarted { actor, worker: WorkerId(6), concurrency, replays: None, restarts: None },
    );
    assert_eq!(process.pushed(), [1, 3], "none of them was executed");
}

#[test]
fn calls_do_not_wait_for_an_actor_that_nobody_can_start_again() {
    let mut process = Process::new();
    for (number, retries) in [(1, 0), (2, -1), (3, 5)] {
        process.submit(TaskSpec { retries, ..call(number) });
    }
    process.place_actor();
    process.pushed();
    process.core.cancel(id(3), false, false, &mut process.out);
    process.receive(
        Peer::Node,
        ActorRestarting {
            actor: ACTOR,
            reason: "its node cannot be reached".to_owned(),
            last_started: None,
            nobody_starts_it: Some(true),
            unbegun: None,
        },
    );
    let unavailable = Some(FailureCode::ActorUnavailable);
    let codes = [1, 2, 3].map(|number| process.code(number));
    assert_eq!(codes, [unavailable, unavailable, Some(FailureCode::Cancelled)]);
    process.submit(TaskSpec { retries: -1, ..call(4) });
    assert_eq!((process.code(4), process.core.pending_calls(ACTOR)), (unavailable, 0), "nor do new ones");
    let message = process.failure(4).expect("it failed").message;
    assert!(message.contains("cannot be reached") && message.contains("head is back"), "{message}");
    // The head is back, and says what became of the actor.
    process.restart_actor();
    process.submit(call(5));
    assert_eq!((process.code(5), process.core.pending_calls(ACTOR)), (None, 1));
    process.place_actor();
    assert_eq!(process.pushed(), [5]);
}

fn window() -> usize {
    sooner_wire::limits::ACTOR_CALLS_IN_FLIGHT
}

#[test]
fn an_actor_with_many_threads_takes_twice_as_many_calls_ahead() {
    let mut process = Process::new();
    process.submit(call(1));
    let concurrency = u32::try_from(window()).expect("small");
    process.receive(
        Peer::Node,
        ActorStarted { actor: ACTOR, worker: WORKER, concurrency, replays: None, restarts: None },
    );
    let place = ActorPlace::At { worker: WORKER, window: 2 * window(), concurrency: window() };
    assert_eq!(process.core.actor_place(ACTOR), Some(&place));
}

#[test]
fn known_actors_are_told_with_their_calls() {
    let mut process = Process::new();
    process.core.ownership_mut().received(ACTOR.object(0)).acquire();
    (1..=2).for_each(|number| process.submit(call(number)));
    let row = |place, queued, in_flight| KnownActorRow { actor: ACTOR, place, queued, in_flight, kept: None };
    assert_eq!(process.report().actors, [row(0, 2, 0)]);
    let label = process.report().tasks[0].label.clone();
    assert_eq!(
        (label.kind, label.actor, label.function.as_str(), label.name.as_str()),
        (2, Some(ACTOR), "m", "m")
    );
    process.place_actor();
    assert_eq!(process.report().actors, [row(1, 0, 2)]);
    process.reply(1, value(), false);
    assert_eq!(process.report().actors, [row(1, 0, 1)]);
    process.receive(
        Peer::Node,
        ActorDead { actor: ACTOR, failure: Failure::new(FailureCode::ActorDied, "gone") },
    );
    assert_eq!(process.report().actors, [row(2, 0, 0)]);
    assert_eq!(process.code(2), Some(FailureCode::ActorDied));
}

#[test]
fn a_kept_call_is_told_and_keeps_its_arguments() {
    let mut process = Process::new();
    let object = TaskId { owner: THIRD, number: 44 }.object(0);
    process.core.ownership_mut().received(object);
    let kept = Target::Method(MethodCall { kept: Some(true), ..MethodCall::new(ACTOR) });
    process.submit(TaskSpec { target: kept, references: [object].into(), ..call(1) });
    process.place_actor();
    process.reply(1, value(), false);
    assert_eq!(process.report().actors[0].kept, Some(1));
    let rows = process.report().objects;
    let row = rows.iter().find(|row| row.object == object).expect("the call may be made again");
    let [held] = &row.detail.as_ref().expect("always told").holds[..] else { panic!("{row:?}") };
    assert_eq!((held.kind, held.task, held.name.as_deref()), (hold::KEPT_CALL, Some(id(1)), Some("m")));
}

#[test]
fn each_hold_sends_who_has_it() {
    let mut process = Process::new();
    let object = TaskId { owner: THIRD, number: 44 }.object(0);
    process.core.ownership_mut().received(object);
    let outer = id(50).object(0);
    let slot = Arc::new(Slot::with_outcome(value()));
    slot.acquire();
    process.core.ownership_mut().own(outer, slot);
    process.core.ownership_mut().contain(outer, &[object]);
    process.submit(TaskSpec { references: [object].into(), name: Name::from("shown"), ..task(1) });
    process.submit(streaming(2, false));
    let actor = TaskSpec {
        references: [object].into(),
        ..TaskSpec::new(id(3), TaskKind::Creation, FUNCTION, Name::from("Class"), Blob::default())
    };
    let (placement, lifetime) = (cpu(), ResourceSet::default());
    let demand = ActorDemand { placement, lifetime, restarts: 0, detached: true };
    process.core.create_actor(Arc::new(actor), Arc::new(Slot::default()), demand, &mut process.out);
    let report = process.report();
    let holds = |object: ObjectId| {
        let row = report.objects.iter().find(|row| row.object == object).expect("it is kept");
        let detail = row.detail.as_ref().expect("always told");
        let holds: Vec<_> =
            detail.holds.iter().map(|h| (h.kind, h.task, h.object, h.name.as_deref())).collect();
        (holds, detail.maker.as_deref())
    };
    let of_argument = vec![
        (hold::TASK, Some(id(1)), None, Some("shown")),
        (hold::CONSTRUCTOR, Some(id(3)), None, Some("Class")),
        (hold::CONTAINED, None, Some(outer), None),
    ];
    assert_eq!(holds(object), (of_argument, None));
    let generator = (hold::GENERATOR, Some(id(2)), None, None);
    assert_eq!(holds(id(2).object(0)), (vec![generator], Some("f")));
    assert_eq!(holds(id(2).object(1)), (vec![generator], Some("f")));
    assert_eq!(holds(id(3).object(0)), (vec![(hold::DETACHED, Some(id(3)), None, None)], Some("Class")));
    let creation = report.tasks.iter().find(|row| row.task == id(3)).expect("it is pending");
    assert_eq!(
        (creation.label.kind, creation.label.actor, creation.resources.clone()),
        (1, Some(id(3)), Some(cpu()))
    );
    let first = report.tasks.iter().find(|row| row.task == id(1)).expect("it is pending");
    assert_eq!((first.label.name.as_str(), first.label.function.as_str()), ("shown", "f"));
    assert_eq!((first.label.kind, first.resources.clone()), (0, Some(cpu())));
}

#[test]
fn an_actor_that_is_ended_here_takes_no_further_calls() {
    let mut process = Process::new();
    process.submit(call(1));
    assert_eq!(process.said(), [(Peer::Node, SubscribeActor { actor: ACTOR }.into())]);
    process.core.kill_actor(ACTOR, "actor Counter", true, &mut process.out);
    process.submit(call(2));
    process.core.kill_actor(ACTOR, "actor Counter", false, &mut process.out);
    process.submit(call(3));
    let kill = |may_restart| (Peer::Node, KillActor { actor: ACTOR, may_restart: Some(may_restart) }.into());
    assert_eq!(process.said(), [kill(true), kill(false)]);
    assert_eq!(
        (process.code(1), process.code(2), process.code(3)),
        (None, None, Some(FailureCode::ActorDied))
    );
    assert!(
        process.failure(3).expect("it failed").message.contains("actor Counter was ended by sooner.kill()")
    );
}

#[test]
fn an_actor_of_ours_that_waits_for_arguments_is_announced() {
    let create = |process: &mut Process, number, dependency| {
        let slot = Arc::new(Slot::default());
        slot.acquire();
        let spec = TaskSpec {
            dependencies: [dependency].into(),
            ..TaskSpec::new(id(number), TaskKind::Creation, FUNCTION, Name::from("Class"), Blob::default())
        };
        let (placement, lifetime) = (cpu(), ResourceSet::default());
        let demand = ActorDemand { placement, lifetime, restarts: 0, detached: false };
        process.core.create_actor(Arc::new(spec), slot, demand, &mut process.out);
    };
    let mut process = Process::new();
    let (waits, there) = (id(7).object(0), id(8).object(0));
    for (object, slot) in [(waits, Slot::default()), (there, Slot::with_outcome(value()))] {
        slot.acquire();
        process.core.ownership_mut().own(object, Arc::new(slot));
    }
    create(&mut process, 1, waits);
    assert_eq!(process.said(), [(Peer::Node, SubscribeActor { actor: id(1) }.into())]);
    create(&mut process, 2, there);
    let said = process.said();
    assert!(
        matches!(&said[..], [(Peer::Node, Message::CreateActor(create))] if create.actor == id(2)),
        "{said:?}"
    );
}

#[test]
fn items_are_taken_in_order_and_the_worker_is_told() {
    let mut process = Process::new();
    process.submit(streaming(1, false));
    process.lease();
    process.out.clear();
    assert_eq!(process.core.open_streams(), 1);
    (1..=2).for_each(|index| process.receive(Peer::Worker(WORKER), item(1, index)));
    let (index, slot) = process.core.next_item(id(1)).expect("it streams");
    assert_eq!((index, slot.outcome().as_deref()), (1, Some(&value())));
    assert!(!process.core.take_item(id(1), 2, &mut process.out), "not the next one");
    assert!(process.core.take_item(id(1), 1, &mut process.out));
    assert!(!process.core.take_item(id(1), 1, &mut process.out), "taken");
    let taken = |taken| (Peer::Worker(WORKER), ItemsTaken { task: id(1), taken, stop: false }.into());
    assert_eq!(process.said(), [taken(1)]);
    assert!(process.core.take_item(id(1), 2, &mut process.out));
    assert_eq!(process.said(), [taken(2)]);
    process.reply(1, value(), false);
    let (index, slot) = process.core.next_item(id(1)).expect("not read to its end");
    assert_eq!(index, 3);
    assert!(
        matches!(slot.outcome().as_deref(), Some(Outcome::Failed(f)) if f.code == FailureCode::EndOfStream)
    );
    assert_eq!(process.core.open_streams(), 1);
    process.core.drop_stream(id(1), &mut process.out);
    assert_eq!(process.core.open_streams(), 0);
}

#[test]
fn behind_the_last_item_comes_the_error_and_then_the_end() {
    let mut process = Process::new();
    process.submit(streaming(1, false));
    process.lease();
    process.receive(Peer::Worker(WORKER), item(1, 1));
    process.reply(1, failed(FailureCode::Task), false);
    let mut codes = Vec::new();
    while let Some((index, slot)) = process.core.next_item(id(1)) {
        codes.push(match slot.outcome().as_deref() {
            Some(Outcome::Failed(failure)) => Some(failure.code),
            Some(Outcome::Inline(_)) => None,
            other => panic!("{other:?}"),
        });
        if codes.len() == 3 {
            break;
        }
        slot.acquire();
        assert!(process.core.take_item(id(1), index, &mut process.out));
        process.drop_handle(id(1).object(index), &slot);
    }
    assert_eq!(codes, [None, Some(FailureCode::Task), Some(FailureCode::EndOfStream)]);
}

#[test]
fn a_stream_without_reader_stops_unless_somebody_waits_for_its_end() {
    for waits in [true, false] {
        let mut process = Process::new();
        process.submit(streaming(1, false));
        process.lease();
        process.receive(Peer::Worker(WORKER), item(1, 1));
        process.out.clear();
        let slot = process.slots[0].1.clone();
        if !waits {
            process.drop_handle(id(1).object(0), &slot);
        }
        process.core.on_handles_dropped(&[id(1).reader()], &mut process.out);
        let told = ItemsTaken { task: id(1), taken: u32::MAX, stop: !waits };
        assert_eq!(process.said(), [(Peer::Worker(WORKER), told.into())]);
        process.receive(Peer::Worker(WORKER), item(1, 2));
        assert!(!process.core.take_item(id(1), 1, &mut process.out));
        process.reply(1, value(), false);
        assert_eq!((process.core.open_streams(), process.core.pending_tasks()), (0, 0));
        if waits {
            process.drop_handle(id(1).object(0), &slot);
        }
        assert!(process.core.ownership().is_empty(), "{:?}", process.core.ownership());
    }
}

#[test]
fn a_stream_that_was_not_pushed_is_cancelled_with_its_reader() {
    let mut process = Process::new();
    process.submit(streaming(1, false));
    let slot = process.slots[0].1.clone();
    process.drop_handle(id(1).object(0), &slot);
    process.core.drop_stream(id(1), &mut process.out);
    assert_eq!((process.core.open_streams(), process.core.pending_tasks()), (0, 0));
    assert!(process.core.ownership().is_empty());
}

#[test]
fn a_dynamic_stream_keeps_no_item_of_its_own() {
    let mut process = Process::new();
    process.submit(streaming(1, true));
    process.lease();
    (1..=2).for_each(|index| process.receive(Peer::Worker(WORKER), item(1, index)));
    process.reply(1, value(), false);
    assert_eq!(process.core.open_streams(), 0);
    assert_eq!(process.core.ownership().len(), 1, "what the task returned");
}

#[test]
fn what_a_cancelled_task_submitted_is_cancelled_with_it() {
    let mut process = Process::new();
    let parent = TaskId { owner: THIRD, number: 1 };
    let spec = TaskSpec::new(parent, TaskKind::Task(ShapeId(0)), FUNCTION, Name::from("p"), Blob::default());
    let push =
        sooner_wire::message::Push { spec: Box::new(spec), dependencies: Vec::new(), gpus: Vec::new() };
    process.receive(Peer::Worker(THIRD), push);
    process.core.next_execution().expect("it was pushed");
    process.submit_of(task(1), Some(parent));
    process.submit(task(2));
    process.out.clear();
    let cancel = |recursive| CancelTask { task: parent, force: false, recursive };
    process.receive(Peer::Worker(THIRD), cancel(false));
    assert_eq!(process.code(1), None);
    process.receive(Peer::Worker(THIRD), cancel(true));
    assert_eq!((process.code(1), process.code(2)), (Some(FailureCode::Cancelled), None));
    let interrupt = Action::Interrupt { task: parent, force: false };
    assert_eq!(process.out.iter().filter(|action| **action == interrupt).count(), 2);
}

#[test]
fn a_value_that_comes_again_when_only_lineage_counts_it_can_come_once_more() {
    let mut process = Process::new();
    let stored = |offset| Outcome::Stored(Location { offset, length: 8 });
    process.submit(TaskSpec { retries: -1, ..task(1) });
    process.lease();
    process.reply(1, stored(0), false);
    let (argument, retries) = (id(1).object(0), -1);
    process.submit(TaskSpec { retries, dependencies: [argument].into(), ..task(2) });
    process.reply(2, stored(4096), false);
    assert_eq!(process.pushed(), [1, 2]);
    process.receive(Peer::Node, BlocksLost { blocks: vec![BlockId(0)] });
    assert_eq!(process.pushed(), [1], "it has a handle");
    let slot = process.slots.remove(0).1;
    process.drop_handle(argument, &slot);
    process.reply(1, stored(8192), false);
    process.receive(Peer::Node, BlocksLost { blocks: vec![BlockId(4096)] });
    assert_eq!(process.pushed(), [1], "the value of 2 needs it once more");
    process.reply(1, stored(12288), false);
    assert_eq!(process.pushed(), [2]);
    process.reply(2, stored(16384), false);
    assert_eq!(process.slot(2).outcome().as_deref(), Some(&stored(16384)));
}
