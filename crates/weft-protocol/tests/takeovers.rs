//! What a caller says to a process that takes over an actor with checkpoints.

use std::sync::Arc;

use weft_protocol::action::{Action, Actions, Peer};
use weft_protocol::ownership::Slot;
use weft_protocol::time::Instant;
use weft_protocol::worker::WorkerCore;
use weft_wire::message::{
    ActorRestarting, ActorStarted, Message, Outcome, Replayed, Reply, Return, TaskKind, TaskSpec,
};
use weft_wire::{Blob, FunctionId, Name, ObjectId, TaskId, WorkerId};

const ME: WorkerId = WorkerId(1);
const FIRST: WorkerId = WorkerId(9);
const SECOND: WorkerId = WorkerId(10);
const NOW: Instant = Instant(0);

fn actor() -> TaskId {
    TaskId { owner: WorkerId(5), number: 1 }
}

fn hear(core: &mut WorkerCore, from: Peer, message: impl Into<Message>) -> Actions {
    let mut out = Actions::new();
    assert_eq!(core.on_message(from, message.into(), NOW, &mut out), None);
    core.on_timer(NOW, &mut out);
    out
}

fn started(worker: WorkerId, replays: Option<bool>) -> ActorStarted {
    ActorStarted { actor: actor(), worker, concurrency: 1, replays }
}

fn restarting() -> ActorRestarting {
    ActorRestarting { actor: actor(), reason: "was killed".to_owned(), last_started: None }
}

/// A process that has called the actor once and has the answer.
fn caller(kept: bool) -> (WorkerCore, Arc<Slot>) {
    let mut core = WorkerCore::new(ME);
    let handle = core.ownership_mut().received(actor().object(0));
    handle.acquire();
    let task = TaskId { owner: ME, number: 2 };
    let spec = TaskSpec {
        kept: Some(kept),
        ..TaskSpec::new(task, TaskKind::Method(actor()), FunctionId(0), Name::from("m"), Blob::default())
    };
    core.submit(Arc::new(spec), [Arc::new(Slot::default())], None, &mut Actions::new());
    hear(&mut core, Peer::Node, started(FIRST, None));
    let returns = vec![Return { outcome: Outcome::Inline(Blob::default()), contained: vec![] }];
    let reply = Reply { task, returns, held: vec![], nanos: 5, retry: false, timing: None, not_run: None };
    hear(&mut core, Peer::Worker(FIRST), reply);
    (core, handle)
}

fn drop_handle(core: &mut WorkerCore, handle: &Slot) {
    assert!(handle.release());
    let object: ObjectId = actor().object(0);
    core.on_handles_dropped(&[object], &mut Actions::new());
}

fn pushes(out: &Actions) -> usize {
    out.iter().filter(|action| matches!(action, Action::Push { .. })).count()
}

fn says_replayed(out: &Actions) -> bool {
    let said =
        Action::Send { to: Peer::Worker(SECOND), message: Box::new(Replayed { actor: actor() }.into()) };
    out.contains(&said)
}

#[test]
fn a_process_that_forgot_the_actor_answers_all_the_same() {
    let (mut core, handle) = caller(false);
    drop_handle(&mut core, &handle);
    assert_eq!(core.actor_place(actor()), None);
    hear(&mut core, Peer::Node, restarting());
    let out = hear(&mut core, Peer::Node, started(SECOND, Some(true)));
    assert!(says_replayed(&out) && pushes(&out) == 0, "the new process waits for it: {out:?}");
    assert_eq!(core.actor_place(actor()), None);
}

#[test]
fn kept_calls_outlive_the_handle() {
    let (mut core, handle) = caller(true);
    drop_handle(&mut core, &handle);
    hear(&mut core, Peer::Node, restarting());
    let out = hear(&mut core, Peer::Node, started(SECOND, Some(true)));
    assert!(says_replayed(&out) && pushes(&out) == 1, "{out:?}");
}

#[test]
fn calls_are_made_again_once_however_often_the_node_says_where_the_actor_is() {
    let (mut core, _handle) = caller(true);
    hear(&mut core, Peer::Node, restarting());
    assert_eq!(pushes(&hear(&mut core, Peer::Node, started(SECOND, Some(true)))), 1);
    assert_eq!(pushes(&hear(&mut core, Peer::Node, started(SECOND, Some(true)))), 0);
}
