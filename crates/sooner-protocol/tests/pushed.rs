//! A worker's half: tasks of others that wait and run here, and what their callers are told.

use sooner_protocol::time::Instant;
use sooner_protocol::worker::WorkerCore;
use sooner_protocol::worker::action::{Action, Actions, Peer};
use sooner_protocol::worker::execution::Incoming;
use sooner_wire::message::state::{Inspect, RunningRow, about, hold};
use sooner_wire::message::{
    ActorReady, AddBorrow, Blocked, BlocksLost, CancelTask, Dependency, Failure, FailureCode, GiveBlock,
    Held, HeldFrom, Item, ItemsTaken, Location, Message, Outcome, Push, Remote, RemoveBorrow, Reply, Return,
    TaskKind, TaskSpec, TasksReturned, Timing, Unblocked, WorkerDead,
};
use sooner_wire::{Blob, BlockId, FunctionId, Name, NodeId, ObjectId, ShapeId, TaskId, WorkerId};

mod kit;

use kit::{plain, reply_of, worker_dead};

const ME: WorkerId = WorkerId(1);
const CALLER: WorkerId = WorkerId(2);
const OTHER: WorkerId = WorkerId(3);
const THIRD: WorkerId = WorkerId(4);
const ACTOR: TaskId = TaskId { owner: CALLER, number: 1000 };

struct Worker {
    core: WorkerCore,
    out: Actions,
}

impl Worker {
    fn new() -> Self {
        Self { core: WorkerCore::new(ME), out: Actions::new() }
    }

    fn receive(&mut self, from: Peer, message: impl Into<Message>, at: u64) {
        assert_eq!(self.core.on_message(from, message.into(), Instant(at), &mut self.out), None);
    }

    fn push(&mut self, kind: TaskKind, caller: WorkerId, number: u64, references: &[ObjectId]) {
        let task = TaskId { owner: caller, number };
        let spec = TaskSpec {
            references: references.into(),
            ..TaskSpec::new(task, kind, FunctionId(1), Name::from("f"), Blob::default())
        };
        let from = if kind == TaskKind::Creation { Peer::Node } else { Peer::Worker(caller) };
        self.receive(from, Push { spec: Box::new(spec), dependencies: Vec::new(), gpus: Vec::new() }, 10);
    }

    fn push_task(&mut self, caller: WorkerId, number: u64, references: &[ObjectId]) {
        self.push(TaskKind::Task(ShapeId(0)), caller, number, references);
    }

    fn take(&mut self) -> Incoming {
        self.core.next_execution().expect("one waits")
    }

    fn said(&mut self) -> Vec<(Peer, Message)> {
        let sent = |action| match action {
            Action::Send { to, message } => (to, *message),
            other => panic!("unexpected {other:?}"),
        };
        self.out.drain(..).map(sent).collect()
    }
}

fn id(number: u64) -> TaskId {
    TaskId { owner: CALLER, number }
}

fn value(contained: &[ObjectId]) -> Return {
    Return { outcome: Outcome::Inline(Blob::from(&b"1"[..])), contained: contained.to_vec() }
}

fn died() -> Failure {
    Failure::new(FailureCode::ActorDied, "it left")
}

fn reply(number: u64, returns: Vec<Return>) -> Reply {
    reply_of(id(number), returns, 0)
}

fn failed(failure: Failure) -> Vec<Return> {
    vec![Return { outcome: Outcome::Failed(Box::new(failure)), contained: Vec::new() }]
}

#[test]
fn what_is_inside_a_result_is_registered_before_the_reply() {
    let mut worker = Worker::new();
    let theirs = TaskId { owner: OTHER, number: 4 }.object(0);
    worker.push_task(CALLER, 1, &[theirs]);
    worker.take();
    let stored = Outcome::Stored(Location { offset: 64, length: 8 });
    let returns = vec![value(&[theirs]), plain(stored)];
    worker.core.on_finished(id(1), returns.clone(), 30, true, &mut worker.out);
    let give = GiveBlock { block: BlockId(64), owner: CALLER, object: None };
    let register = AddBorrow { object: theirs, borrower: CALLER };
    let said = worker.said();
    assert_eq!(said[0], (Peer::Worker(OTHER), register.into()));
    assert_eq!(said[1], (Peer::Node, give.into()));
    let answer = Reply { nanos: 30, retry: true, ..reply(1, returns) };
    assert_eq!(said[2..], [(Peer::Worker(CALLER), answer.into())]);
    worker.core.on_finished(id(1), Vec::new(), 30, true, &mut worker.out);
    assert_eq!(worker.said(), [], "it has ended");
}

#[test]
fn an_argument_that_is_held_on_is_named_once_and_returned_when_it_goes() {
    let mut worker = Worker::new();
    let (kept, let_go) = (id(50).object(0), id(51).object(0));
    worker.push_task(CALLER, 1, &[kept, let_go, kept]);
    let taken = worker.take();
    let slot = taken.references[0].1.clone();
    slot.acquire();
    worker.core.on_finished(id(1), vec![value(&[])], 0, false, &mut worker.out);
    let answer = Reply { held: vec![kept], ..reply(1, vec![value(&[])]) };
    assert_eq!(worker.said(), [(Peer::Worker(CALLER), answer.into())]);
    assert_eq!(worker.core.ownership().len(), 1);
    assert!(slot.release());
    worker.core.on_handles_dropped(&[kept], &mut worker.out);
    let done = RemoveBorrow { object: kept, count: 1, giver: None, was_sent: None };
    assert_eq!(worker.said(), [(Peer::Worker(CALLER), done.into())]);
    assert!(worker.core.ownership().is_empty());
}

/// Tasks of two callers on one object of a third process: it is named in no reply while each caller keeps it
/// for its own.
#[test]
fn what_only_queued_tasks_were_lent_is_not_held_on() {
    let mut worker = Worker::new();
    let theirs = TaskId { owner: OTHER, number: 50 }.object(0);
    for (caller, number) in [(CALLER, 1), (THIRD, 2), (CALLER, 3)] {
        worker.push_task(caller, number, &[theirs, theirs]);
    }
    for (caller, number) in [(CALLER, 1), (THIRD, 2), (CALLER, 3)] {
        worker.take();
        let task = TaskId { owner: caller, number };
        worker.core.on_finished(task, vec![value(&[])], 0, false, &mut worker.out);
        let answer = Reply { task, ..reply(number, vec![value(&[])]) };
        assert_eq!(worker.said(), [(Peer::Worker(caller), answer.into())]);
    }
    assert!(worker.core.ownership().is_empty());
}

#[test]
fn what_a_task_keeps_is_held_on_although_others_were_lent_the_same() {
    let mut worker = Worker::new();
    let theirs = TaskId { owner: OTHER, number: 50 }.object(0);
    (1..=4).for_each(|number| worker.push_task(CALLER, number, &[theirs]));
    let slot = worker.take().references[0].1.clone();
    slot.acquire();
    let mut finish = |number| {
        worker.core.on_finished(id(number), vec![value(&[])], 0, false, &mut worker.out);
        let said = worker.said();
        worker.core.next_execution();
        said
    };
    let answer = Reply { held: vec![theirs], ..reply(1, vec![value(&[])]) };
    assert_eq!(finish(1), [(Peer::Worker(CALLER), answer.into())]);
    let answer = reply(2, vec![value(&[])]);
    assert_eq!(finish(2), [(Peer::Worker(CALLER), answer.into())], "the caller was told");
    // The caller ends: its queued task goes, its running one is interrupted, and what it registered counts as
    // this process's own.
    worker.receive(Peer::Node, worker_dead(CALLER, ""), 20);
    worker.out.retain(|action| !matches!(action, Action::Interrupt { .. }));
    let held = vec![Held { object: theirs, borrower: ME, count: 1, of: None }];
    assert_eq!(worker.said(), [(Peer::Node, HeldFrom { gone: CALLER, held }.into())]);
    worker.core.on_finished(id(3), vec![value(&[])], 0, false, &mut worker.out);
    worker.said();
    slot.release();
    worker.core.on_handles_dropped(&[theirs], &mut worker.out);
    let done = RemoveBorrow { object: theirs, count: 1, giver: Some(CALLER), was_sent: Some(true) };
    assert_eq!(worker.said(), [(Peer::Worker(OTHER), done.into())]);
    assert!(worker.core.ownership().is_empty());
}

#[test]
fn a_worker_that_waits_gives_its_queue_back_and_says_so_once() {
    let mut worker = Worker::new();
    let argument = id(50).object(0);
    worker.push_task(CALLER, 1, &[]);
    worker.push_task(CALLER, 2, &[argument]);
    worker.push_task(OTHER, 3, &[]);
    worker.push_task(CALLER, 4, &[]);
    worker.take();
    worker.core.set_blocked(false, &mut worker.out);
    assert_eq!(worker.said(), [], "it does not wait");
    (0..2).for_each(|_| worker.core.set_blocked(true, &mut worker.out));
    let back = |from, numbers: &[u64]| {
        let tasks = numbers.iter().map(|number| TaskId { owner: from, number: *number }).collect();
        (Peer::Worker(from), Message::from(TasksReturned { tasks, lacks_room: None, missing: None }))
    };
    let blocked = (Peer::Node, Message::from(Blocked {}));
    assert_eq!(worker.said(), [blocked, back(CALLER, &[2, 4]), back(OTHER, &[3])]);
    assert!(worker.core.ownership().is_empty(), "nothing uses the argument");
    worker.push_task(CALLER, 5, &[argument]);
    assert_eq!(worker.said(), [back(CALLER, &[5])]);
    worker.core.set_blocked(false, &mut worker.out);
    assert_eq!(worker.said(), [(Peer::Node, Unblocked {}.into())]);
    worker.core.return_queued(&mut worker.out);
    assert_eq!(worker.said(), [], "nothing waits");
}

#[test]
fn a_queued_task_that_is_cancelled_is_answered_and_did_not_run() {
    let mut worker = Worker::new();
    worker.push_task(CALLER, 1, &[id(50).object(0)]);
    let cancel = |number| CancelTask { task: id(number), force: true, recursive: false };
    worker.receive(Peer::Worker(CALLER), cancel(2), 20);
    assert_eq!(worker.said(), [], "it is not here");
    worker.receive(Peer::Worker(CALLER), cancel(1), 20);
    let said = worker.said();
    let [(Peer::Worker(CALLER), Message::Reply(answer))] = &said[..] else { panic!("{said:?}") };
    assert_eq!((answer.task, answer.not_run), (id(1), Some(true)));
    assert!(matches!(&answer.returns[0].outcome, Outcome::Failed(f) if f.code == FailureCode::Cancelled));
    assert!(worker.core.ownership().is_empty());
    assert!(worker.core.next_execution().is_none());
}

#[test]
fn a_running_task_that_is_cancelled_is_interrupted() {
    let mut worker = Worker::new();
    worker.push_task(CALLER, 1, &[]);
    worker.take();
    let cancel = CancelTask { task: id(1), force: true, recursive: false };
    worker.receive(Peer::Worker(CALLER), cancel, 20);
    assert_eq!(worker.out, [Action::Interrupt { task: id(1), force: true }]);
    assert!(worker.core.execution().is_cancelled(id(1)));
}

/// An actor stands in this process, and a call of it runs.
fn calling(number: u64) -> Worker {
    let mut worker = Worker::new();
    worker.push(TaskKind::Creation, CALLER, ACTOR.number, &[]);
    worker.take();
    worker.core.on_constructed(ACTOR, None, &mut worker.out);
    worker.push(TaskKind::Method(ACTOR), CALLER, number, &[]);
    worker.take();
    worker.out.clear();
    worker
}

#[test]
fn a_call_of_an_actor_is_never_ended_by_force() {
    let mut worker = calling(1);
    let cancel = CancelTask { task: id(1), force: true, recursive: true };
    worker.receive(Peer::Worker(OTHER), cancel, 20);
    assert_eq!(worker.out, [Action::Interrupt { task: id(1), force: false }]);
}

#[test]
fn a_call_that_returns_after_it_was_cancelled_was_cancelled() {
    let mut worker = calling(1);
    let cancel = CancelTask { task: id(1), force: false, recursive: false };
    worker.receive(Peer::Worker(CALLER), cancel, 20);
    worker.out.clear();
    let location = Location { offset: 64, length: 200_000 };
    let value = plain(Outcome::Stored(location));
    worker.core.on_finished(id(1), vec![value], 5, false, &mut worker.out);
    let [Action::FreeBlock(freed), Action::Send { to: Peer::Worker(CALLER), message }] = &worker.out[..]
    else {
        panic!("{:?}", worker.out)
    };
    assert_eq!(*freed, location, "nobody sees the value");
    let Message::Reply(answer) = &**message else { panic!("{message:?}") };
    assert!(matches!(&answer.returns[0].outcome, Outcome::Failed(f) if f.code == FailureCode::Cancelled));
    assert!(answer.not_run.is_none() && !answer.retry);
}

#[test]
fn the_tasks_of_a_dead_caller_end_here() {
    let mut worker = Worker::new();
    worker.push_task(CALLER, 1, &[]);
    worker.push_task(CALLER, 2, &[TaskId { owner: OTHER, number: 4 }.object(0)]);
    worker.push_task(OTHER, 3, &[]);
    worker.take();
    let reason = "exited".to_owned();
    worker.receive(
        Peer::Node,
        WorkerDead {
            worker: CALLER,
            reason,
            last_started: None,
            what: None,
            all_begun: None,
            unreachable: None,
            memory: None,
        },
        20,
    );
    assert!(worker.out.contains(&Action::Interrupt { task: id(1), force: false }), "{:?}", worker.out);
    assert!(worker.core.ownership().is_empty());
    assert_eq!(worker.take().push.spec.task.owner, OTHER);
}

#[test]
fn an_actor_that_leaves_ends_the_calls_that_wait() {
    let mut worker = Worker::new();
    worker.push(TaskKind::Creation, CALLER, ACTOR.number, &[]);
    worker.take();
    worker.core.on_constructed(ACTOR, None, &mut worker.out);
    assert_eq!(worker.said(), [(Peer::Node, ActorReady { actor: ACTOR, failure: None }.into())]);
    (1..=2).for_each(|number| worker.push(TaskKind::Method(ACTOR), CALLER, number, &[]));
    worker.take();
    worker.core.on_actor_exits(ACTOR, id(1), died(), &mut worker.out);
    let ready = ActorReady { actor: ACTOR, failure: Some(died()) };
    assert_eq!(worker.said(), [(Peer::Node, ready.into())]);
    assert_eq!(worker.core.execution().running(), 0);
    worker.core.refuse_queued_calls(&died(), &mut worker.out);
    assert_eq!(worker.said(), [(Peer::Worker(CALLER), reply(2, failed(died())).into())]);
}

#[test]
fn items_go_to_the_caller_while_the_task_runs() {
    let mut worker = Worker::new();
    let theirs = TaskId { owner: OTHER, number: 4 }.object(0);
    worker.push_task(CALLER, 1, &[theirs]);
    worker.core.on_yielded(id(1), 1, value(&[]), &mut worker.out);
    assert_eq!(worker.said(), [], "it has not begun");
    worker.take();
    worker.core.on_yielded(id(1), 1, value(&[theirs]), &mut worker.out);
    let register = AddBorrow { object: theirs, borrower: CALLER };
    let item = Item { task: id(1), index: 1, value: value(&[theirs]) };
    assert_eq!(worker.said(), [(Peer::Worker(OTHER), register.into()), (Peer::Worker(CALLER), item.into())]);
    worker.receive(Peer::Worker(CALLER), ItemsTaken { task: id(1), taken: 1, stop: true }, 20);
    let taken = worker.core.execution().taken(id(1));
    assert_eq!((taken.items, taken.stop), (1, true));
}

#[test]
fn what_runs_and_waits_here_is_told() {
    let mut worker = Worker::new();
    let argument = id(50).object(0);
    worker.push_task(CALLER, 1, &[argument]);
    worker.push_task(CALLER, 2, &[argument]);
    worker.take();
    let question = Inspect {
        request: 1,
        about: about::TASKS | about::OBJECTS,
        rows: 10,
        events: 0,
        ..Inspect::default()
    };
    let report = worker.core.report(&question);
    assert_eq!(report.running, [RunningRow { task: id(1), since: 10, cancelled: false }]);
    assert_eq!(report.queued, 1);
    let detail = report.objects[0].detail.clone().expect("always told");
    let holds: Vec<_> = detail.holds.iter().map(|h| (h.kind, h.task, h.name.as_deref(), h.count)).collect();
    let queued = (hold::QUEUED, Some(id(2)), Some("f"), 1);
    assert_eq!(holds, [(hold::RUNNING, Some(id(1)), None, 1), queued]);
    let few = worker.core.report(&Inspect { rows: 0, ..question });
    assert_eq!((few.running.len(), few.objects.len(), few.objects_total), (0, 0, 1));
}

#[test]
fn the_next_task_begins_when_the_one_before_it_ended() {
    let mut worker = Worker::new();
    (1..=2).for_each(|number| worker.push_task(CALLER, number, &[]));
    worker.take();
    let timing = Some(Timing { started: 100, deserialise: 7, store: 30 });
    let ran = sooner_protocol::worker::tasks::RunTime { nanos: 20, timing };
    worker.core.on_finished(id(1), vec![value(&[])], ran, false, &mut worker.out);
    worker.take();
    let (_, running) = worker.core.execution().running_tasks().next().expect("it runs");
    assert_eq!(running.since, Instant(150));
}

#[test]
fn a_task_goes_back_for_an_argument_that_is_lost_here_while_another_one_is_on_its_way() {
    let (lost, elsewhere) = (id(50).object(0), id(51).object(0));
    let push = |outcomes: [Outcome; 2]| {
        let dependency = |(object, outcome)| Dependency { object, outcome, contained: Vec::new() };
        let dependencies: Vec<Dependency> =
            [lost, elsewhere].into_iter().zip(outcomes).map(dependency).collect();
        let kind = TaskKind::Task(ShapeId(0));
        let spec = TaskSpec {
            dependencies: [lost, elsewhere].into(),
            ..TaskSpec::new(id(1), kind, FunctionId(1), Name::from("f"), Blob::default())
        };
        Push { spec: Box::new(spec), dependencies, gpus: Vec::new() }
    };
    let stored = Outcome::Stored(Location { offset: 64, length: 8 });
    let remote = |offset| {
        let location = Location { offset, length: 8 };
        Outcome::Remote(Box::new(Remote { node: NodeId(9 << 24), location }))
    };
    let mut worker = Worker::new();
    worker.receive(Peer::Node, BlocksLost { blocks: vec![BlockId(64)] }, 5);
    worker.said();
    worker.receive(Peer::Worker(CALLER), push([stored.clone(), remote(128)]), 10);
    let back = TasksReturned { tasks: vec![id(1)], lacks_room: None, missing: None };
    assert_eq!(
        worker.said(),
        [(Peer::Worker(CALLER), back.into())],
        "its caller has what computing it takes"
    );

    // What is on its way is waited for.
    let mut worker = Worker::new();
    worker.receive(Peer::Worker(CALLER), push([stored, remote(128)]), 10);
    assert!(matches!(worker.said()[..], [(Peer::Node, Message::Pull(_))]));
}
