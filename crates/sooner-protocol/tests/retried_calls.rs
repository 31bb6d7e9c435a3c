//! Calls of an actor that raise and are made again.

use std::sync::Arc;

use sooner_protocol::time::Instant;
use sooner_protocol::worker::WorkerCore;
use sooner_protocol::worker::action::{Action, Actions, Peer};
use sooner_protocol::worker::ownership::Slot;
use sooner_wire::message::{ActorStarted, Failure, FailureCode, Outcome, Reply, TaskKind, TaskSpec};
use sooner_wire::{Blob, FunctionId, Name, TaskId, WorkerId};

mod kit;

use kit::{plain, reply_of};

const ME: WorkerId = WorkerId(1);
const ACTOR: TaskId = TaskId { owner: WorkerId(2), number: 1 };
const PROCESS: WorkerId = WorkerId(3);

fn call(number: u64) -> TaskSpec {
    let task = TaskId { owner: ME, number };
    TaskSpec::new(task, TaskKind::Method(ACTOR), FunctionId(0), Name::from("m"), Blob::default())
}

fn reply(number: u64, outcome: Outcome, retry: bool) -> Reply {
    let returns = vec![plain(outcome)];
    let task = TaskId { owner: ME, number };
    Reply { retry, ..reply_of(task, returns, 1) }
}

fn pushed(out: &mut Actions) -> Vec<u64> {
    let number = |action| match action {
        Action::Push { spec, .. } => Some(spec.task.number),
        _ => None,
    };
    out.drain(..).filter_map(number).collect()
}

#[test]
fn a_call_that_is_made_again_does_not_wait_behind_one_that_waits_for_it() {
    let mut core = WorkerCore::new(ME);
    let mut out = Actions::new();
    let first = TaskSpec { retries: 1, retry_exceptions: true, ..call(1) };
    let result = first.task.object(0);
    let kept = Arc::new(Slot::default());
    kept.acquire();
    core.submit(Arc::new(first), [kept], None, &mut out);
    let second = TaskSpec { dependencies: [result].into(), ..call(2) };
    core.submit(Arc::new(second), [Arc::new(Slot::default())], None, &mut out);
    let started =
        ActorStarted { actor: ACTOR, worker: PROCESS, concurrency: 1, replays: None, restarts: None };
    core.on_message(Peer::Node, started.into(), Instant(1), &mut out);
    assert_eq!(pushed(&mut out), [1]);
    let raised = Outcome::Failed(Box::new(Failure::new(FailureCode::Task, "raised")));
    core.on_message(Peer::Worker(PROCESS), reply(1, raised, true).into(), Instant(2), &mut out);
    assert_eq!(pushed(&mut out), [1]);
    let value = Outcome::Inline(Blob::from(&b"1"[..]));
    core.on_message(Peer::Worker(PROCESS), reply(1, value, false).into(), Instant(3), &mut out);
    assert_eq!(pushed(&mut out), [2]);
}
