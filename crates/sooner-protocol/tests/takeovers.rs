//! What a caller says to a process that takes over an actor with checkpoints, and what that process executes.

use std::sync::Arc;

use sooner_protocol::time::Instant;
use sooner_protocol::worker::WorkerCore;
use sooner_protocol::worker::action::{Action, Actions, Peer};
use sooner_protocol::worker::ownership::Slot;
use sooner_wire::message::{
    ActorCreation, ActorReady, ActorRestarting, ActorStarted, BlocksLost, Dependency, Failure, FailureCode,
    Location, Message, MethodCall, Outcome, Push, Replayed, Restore, Target, TaskSpec,
};
use sooner_wire::{Blob, BlockId, FunctionId, Name, ObjectId, TaskId, WorkerId};

mod kit;

use kit::{plain, reply_of};

const ME: WorkerId = WorkerId(1);
const FIRST: WorkerId = WorkerId(9);
const SECOND: WorkerId = WorkerId(10);
/// Another caller.
const OTHER: WorkerId = WorkerId(11);
const NOW: Instant = Instant(0);

fn actor() -> TaskId {
    TaskId { owner: WorkerId(5), number: 1 }
}

fn receive(core: &mut WorkerCore, from: Peer, message: impl Into<Message>) -> Actions {
    let mut out = Actions::new();
    assert_eq!(core.on_message(from, message.into(), NOW, &mut out), None);
    core.on_timer(NOW, &mut out);
    out
}

fn started(worker: WorkerId, replays: Option<bool>) -> ActorStarted {
    ActorStarted { actor: actor(), worker, concurrency: 1, replays, restarts: None }
}

fn restarting() -> ActorRestarting {
    ActorRestarting {
        actor: actor(),
        reason: "was killed".to_owned(),
        last_started: None,
        nobody_starts_it: None,
        unbegun: None,
    }
}

/// A call to the actor that changes its state, or does not.
fn kept_or_not(task: TaskId, kept: bool) -> TaskSpec {
    let call = MethodCall { kept: Some(kept), ..MethodCall::new(actor()) };
    TaskSpec::of(task, Target::Method(call), Name::from("m"), Blob::default())
}

/// A process that has called the actor once and has the answer.
fn caller(kept: bool) -> (WorkerCore, Arc<Slot>) {
    let mut core = WorkerCore::new(ME);
    let handle = core.ownership_mut().received(actor().object(0));
    handle.acquire();
    let task = TaskId { owner: ME, number: 2 };
    let spec = kept_or_not(task, kept);
    core.submit(Arc::new(spec), [Arc::new(Slot::default())], None, &mut Actions::new());
    receive(&mut core, Peer::Node, started(FIRST, None));
    answer(&mut core, FIRST, task, Outcome::Inline(Blob::default()));
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

fn sends_replayed(out: &Actions) -> bool {
    let said =
        Action::Send { to: Peer::Worker(SECOND), message: Box::new(Replayed { actor: actor() }.into()) };
    out.contains(&said)
}

#[test]
fn a_process_that_forgot_the_actor_answers_all_the_same() {
    let (mut core, handle) = caller(false);
    drop_handle(&mut core, &handle);
    assert_eq!(core.actor_place(actor()), None);
    receive(&mut core, Peer::Node, restarting());
    let out = receive(&mut core, Peer::Node, started(SECOND, Some(true)));
    assert!(sends_replayed(&out) && pushes(&out) == 0, "the new process waits for it: {out:?}");
    assert_eq!(core.actor_place(actor()), None);
}

#[test]
fn kept_calls_outlive_the_handle() {
    let (mut core, handle) = caller(true);
    drop_handle(&mut core, &handle);
    receive(&mut core, Peer::Node, restarting());
    let out = receive(&mut core, Peer::Node, started(SECOND, Some(true)));
    assert!(sends_replayed(&out) && pushes(&out) == 1, "{out:?}");
}

#[test]
fn calls_are_made_again_once_however_often_the_node_says_where_the_actor_is() {
    let (mut core, _handle) = caller(true);
    receive(&mut core, Peer::Node, restarting());
    assert_eq!(pushes(&receive(&mut core, Peer::Node, started(SECOND, Some(true)))), 1);
    assert_eq!(pushes(&receive(&mut core, Peer::Node, started(SECOND, Some(true)))), 0);
}

#[test]
fn the_word_does_not_wait_for_the_argument_of_a_call_without_an_answer() {
    let (mut core, _handle) = caller(true);
    let argument = TaskId { owner: ME, number: 3 }.object(0);
    core.ownership_mut().own(argument, Arc::new(Slot::default()));
    let task = TaskId { owner: ME, number: 4 };
    let spec = TaskSpec { dependencies: [argument].into(), ..kept_or_not(task, true) };
    core.submit(Arc::new(spec), [Arc::new(Slot::default())], None, &mut Actions::new());
    receive(&mut core, Peer::Node, restarting());
    let out = receive(&mut core, Peer::Node, started(SECOND, Some(true)));
    assert!(sends_replayed(&out) && pushes(&out) == 1, "calls of others may make the argument: {out:?}");
}

/// Tells the caller that a call ended.
fn answer(core: &mut WorkerCore, from: WorkerId, task: TaskId, outcome: Outcome) -> Actions {
    let returns = vec![plain(outcome)];
    let reply = reply_of(task, returns, 5);
    receive(core, Peer::Worker(from), reply)
}

/// The numbers of the calls that are pushed.
fn pushed(out: &Actions) -> Vec<u64> {
    let number = |action: &Action| match action {
        Action::Push { spec, .. } => Some(spec.task.number),
        _ => None,
    };
    out.iter().filter_map(number).collect()
}

#[test]
fn a_call_that_reads_and_recovers_a_value_does_not_wait_for_the_one_that_needs_it() {
    for is_lost_first in [false, true] {
        let (mut core, _handle) = caller(true);
        let stored = |offset| Outcome::Stored(Location { offset, length: 8 });
        let call = |number, kept, dependencies: Box<[ObjectId]>| {
            let task = TaskId { owner: ME, number };
            Arc::new(TaskSpec { retries: 5, dependencies, ..kept_or_not(task, kept) })
        };
        let slots: [Arc<Slot>; 2] = std::array::from_fn(|_| Arc::default());
        slots.iter().for_each(|slot| slot.acquire());
        let [read, change] = [3, 4].map(|number| TaskId { owner: ME, number });
        core.submit(call(3, false, Box::default()), [slots[0].clone()], None, &mut Actions::new());
        answer(&mut core, FIRST, read, stored(0));
        let argument = [read.object(0)];
        core.submit(call(4, true, argument.into()), [slots[1].clone()], None, &mut Actions::new());
        let lost = BlocksLost { blocks: vec![BlockId(0)] };
        if is_lost_first {
            assert_eq!(pushed(&receive(&mut core, Peer::Node, lost.clone())), [read.number]);
        }
        receive(&mut core, Peer::Node, restarting());
        if !is_lost_first {
            receive(&mut core, Peer::Node, lost);
        }
        let out = receive(&mut core, Peer::Node, started(SECOND, Some(true)));
        assert_eq!(
            pushed(&out),
            [2, read.number],
            "the answered one, and the one that makes the argument again"
        );
        assert_eq!(pushed(&answer(&mut core, SECOND, read, stored(64))), [change.number]);
    }
}

/// A call of a caller, kept until a checkpoint covers it, with an argument that has failed or is there.
fn call(number: u64, argument_failed: bool) -> Push {
    let task = TaskId { owner: ME, number };
    let outcome = if argument_failed {
        Outcome::Failed(Box::new(Failure::new(FailureCode::ObjectLost, "lost for good")))
    } else {
        Outcome::Inline(Blob::default())
    };
    let spec = kept_or_not(task, true);
    let argument = TaskId { owner: ME, number: number + 100 }.object(0);
    let dependencies = vec![Dependency { object: argument, outcome, contained: Vec::new() }];
    Push { spec: Box::new(spec), dependencies, gpus: Vec::new() }
}

fn constructor() -> Push {
    let creation = ActorCreation { checkpoint_every: Some(5), ..ActorCreation::new(FunctionId(0)) };
    let spec = TaskSpec::of(actor(), Target::Class(creation), Name::from("C"), Blob::default());
    Push { spec: Box::new(spec), dependencies: Vec::new(), gpus: Vec::new() }
}

fn restore() -> Restore {
    Restore { actor: actor(), state: None, callers: vec![ME], takeover: None }
}

fn gives_up(out: &Actions) -> bool {
    let is_end = |action: &Action| match action {
        Action::Send { to: Peer::Node, message } => {
            matches!(&**message, Message::ActorReady(ActorReady { failure: Some(_), .. }))
        }
        _ => false,
    };
    out.iter().any(is_end)
}

/// Everything that runs without further word, by task number.
fn executed(core: &mut WorkerCore) -> Vec<u64> {
    std::iter::from_fn(|| core.next_execution()).map(|taken| taken.push.spec.task.number).collect()
}

#[test]
fn a_state_that_lacks_an_answered_call_is_shown_to_nobody() {
    for restore_first in [true, false] {
        let mut core = WorkerCore::new(SECOND);
        let from = Peer::Worker(ME);
        let mut out = Actions::new();
        if restore_first {
            out.extend(receive(&mut core, Peer::Node, restore()));
        }
        out.extend(receive(&mut core, from, call(2, true)));
        out.extend(receive(&mut core, from, call(3, false)));
        assert_eq!(gives_up(&out), restore_first, "it cannot know yet");
        if !restore_first {
            assert!(gives_up(&receive(&mut core, Peer::Node, restore())));
        }
        receive(&mut core, Peer::Node, constructor());
        receive(&mut core, from, Replayed { actor: actor() });
        assert_eq!(executed(&mut core), []);
    }
}

#[test]
fn a_call_without_an_answer_may_lack_its_argument() {
    let mut core = WorkerCore::new(SECOND);
    let from = Peer::Worker(ME);
    receive(&mut core, Peer::Node, restore());
    receive(&mut core, Peer::Node, constructor());
    receive(&mut core, from, Replayed { actor: actor() });
    assert!(!gives_up(&receive(&mut core, from, call(2, true))));
    receive(&mut core, from, call(3, false));
    assert_eq!(executed(&mut core), [actor().number, 3]);
}

#[test]
fn the_first_process_of_an_actor_lacks_nothing() {
    let mut core = WorkerCore::new(FIRST);
    receive(&mut core, Peer::Node, constructor());
    assert!(!gives_up(&receive(&mut core, Peer::Worker(ME), call(2, true))));
    receive(&mut core, Peer::Worker(ME), call(3, false));
    assert_eq!(executed(&mut core), [actor().number, 3]);
}

/// The value may only come again when the other's call was executed: the task that makes it has submitted
/// that.
#[test]
fn calls_to_the_first_process_of_an_actor_do_not_wait_for_one_whose_argument_was_lost() {
    let location = Location { offset: 64, length: 4096 };
    let mut lacks = call(2, false);
    lacks.dependencies[0].outcome = Outcome::Stored(location);
    for constructor_first in [true, false] {
        let mut core = WorkerCore::new(FIRST);
        let calls = [(ME, lacks.clone()), (OTHER, call(3, false))];
        if constructor_first {
            receive(&mut core, Peer::Node, constructor());
        }
        for (caller, call) in calls {
            receive(&mut core, Peer::Worker(caller), call);
        }
        receive(&mut core, Peer::Node, BlocksLost { blocks: vec![BlockId(location.offset)] });
        if !constructor_first {
            receive(&mut core, Peer::Node, constructor());
        }
        assert_eq!(executed(&mut core), [actor().number, 3]);
    }
}

#[test]
fn the_first_process_of_an_actor_goes_on_after_a_call_without_its_argument_that_was_faster() {
    let mut core = WorkerCore::new(FIRST);
    receive(&mut core, Peer::Worker(ME), call(2, true));
    receive(&mut core, Peer::Node, constructor());
    receive(&mut core, Peer::Worker(ME), call(3, false));
    assert_eq!(executed(&mut core), [actor().number, 3]);
}
