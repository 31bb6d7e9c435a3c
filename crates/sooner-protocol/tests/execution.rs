//! The executing side: which of the tasks that were pushed runs next, and which leave again.

use std::sync::Arc;

use sooner_protocol::time::Instant;
use sooner_protocol::worker::action::Peer;
use sooner_protocol::worker::execution::{Cancelled, Execution, Incoming, MetDependency, Taken};
use sooner_protocol::worker::ownership::Slot;
use sooner_wire::message::{
    ActorCreation, Dependency, Failure, FailureCode, Location, MethodCall, Outcome, Push, Remote, Streaming,
    Target, TaskKind, TaskSpec,
};
use sooner_wire::{Blob, FunctionId, Name, NodeId, ObjectId, ShapeId, TaskId, WorkerId};

const CALLER: WorkerId = WorkerId(2);
const OTHER: WorkerId = WorkerId(3);
const ACTOR: TaskId = TaskId { owner: CALLER, number: 1000 };
const STORED: Outcome = Outcome::Stored(Location { offset: 64, length: 8 });

fn spec(kind: TaskKind, caller: WorkerId, number: u64) -> TaskSpec {
    let task = TaskId { owner: caller, number };
    TaskSpec::new(task, kind, FunctionId(1), Name::from("f"), Blob::default())
}

fn incoming(spec: TaskSpec) -> Incoming {
    let from = Peer::Worker(spec.task.owner);
    let push = Push { spec: Box::new(spec), dependencies: Vec::new(), gpus: Vec::new() };
    Incoming {
        from,
        push,
        references: Vec::new(),
        dependencies: Vec::new(),
        is_again: false,
        is_early: false,
    }
}

fn task(caller: WorkerId, number: u64) -> Incoming {
    incoming(spec(TaskKind::Task(ShapeId(0)), caller, number))
}

fn call_with(call: MethodCall, number: u64) -> TaskSpec {
    TaskSpec { target: Target::Method(call), ..spec(TaskKind::Method(ACTOR), CALLER, number) }
}

fn call(number: u64, group: Option<u32>) -> Incoming {
    incoming(call_with(MethodCall { group, ..MethodCall::new(ACTOR) }, number))
}

/// Takes an object in shared memory as an argument; its slot has a value or has lost it.
fn with_argument(mut incoming: Incoming, object: ObjectId, has_value: bool) -> Incoming {
    let slot = if has_value { Slot::with_outcome(STORED) } else { Slot::default() };
    incoming.push.dependencies.push(Dependency { object, outcome: STORED, contained: Vec::new() });
    incoming.dependencies.push(MetDependency { stored: Some(Arc::new(slot)), contained: Vec::new() });
    incoming
}

fn object(number: u64) -> ObjectId {
    TaskId { owner: CALLER, number }.object(0)
}

fn met(number: u64) -> (ObjectId, Arc<Slot>) {
    (object(number), Arc::new(Slot::default()))
}

fn push(execution: &mut Execution, tasks: impl IntoIterator<Item = Incoming>) {
    tasks.into_iter().for_each(|task| execution.on_push(task).expect("it is not blocked"));
}

/// Takes all that may run now.
fn take_all(execution: &mut Execution) -> Vec<u64> {
    std::iter::from_fn(|| execution.take_next(Instant(7))).map(|taken| taken.push.spec.task.number).collect()
}

fn numbers(tasks: &[Incoming]) -> Vec<u64> {
    tasks.iter().map(|task| task.push.spec.task.number).collect()
}

/// An actor whose constructor has run, with these concurrency groups beside the default one.
fn actor(concurrency: u32, groups: &[u32]) -> Execution {
    let mut execution = Execution::default();
    let groups = (!groups.is_empty()).then(|| groups.into());
    let target = Target::Class(ActorCreation { concurrency, groups, ..ActorCreation::new(FunctionId(1)) });
    let mut constructor = incoming(TaskSpec { target, ..spec(TaskKind::Creation, CALLER, ACTOR.number) });
    constructor.references.push(met(900));
    push(&mut execution, [constructor]);
    assert_eq!(take_all(&mut execution), [ACTOR.number]);
    execution.on_constructed(ACTOR);
    execution
}

#[test]
fn tasks_run_in_order_and_are_told_while_they_do() {
    let mut execution = Execution::default();
    assert!(!execution.can_take());
    let mut first = task(CALLER, 1);
    first.references.push(met(900));
    push(&mut execution, [first, task(OTHER, 2)]);
    assert!(execution.can_take());
    assert_eq!((execution.queued(), execution.running()), (2, 0));
    assert_eq!(numbers(&[execution.take_next(Instant(7)).expect("two wait")]), [1]);
    assert_eq!((execution.queued(), execution.running()), (1, 1));
    let (id, running) = execution.running_tasks().next().expect("one runs");
    assert_eq!((id.number, running.since, &running.uses[..]), (1, Instant(7), &[object(900)][..]));
    assert_eq!((running.kept, running.cancelled, running.not_run), (false, false, false));
    assert_eq!(execution.caller(id), Some(Peer::Worker(CALLER)));
    assert_eq!(execution.queued_tasks().map(|i| i.push.spec.task.number).collect::<Vec<_>>(), [2]);
    assert_eq!(execution.on_finished(id).map(|running| running.from), Some(Peer::Worker(CALLER)));
    assert_eq!((execution.on_finished(id), execution.caller(id)), (None, None));
}

#[test]
fn a_blocked_worker_takes_calls_of_its_actor_and_no_tasks() {
    let mut execution = Execution::default();
    assert!(!execution.is_blocked());
    execution.set_blocked(true);
    assert!(execution.is_blocked());
    assert_eq!(execution.on_push(task(CALLER, 1)).map_err(|back| numbers(&[*back])), Err(vec![1]));
    push(&mut execution, [call(2, None)]);
    execution.set_blocked(false);
    push(&mut execution, [task(CALLER, 3)]);
    assert_eq!(execution.queued(), 2);
}

#[test]
fn calls_wait_for_the_constructor_and_for_no_other_call() {
    let mut execution = Execution::default();
    push(&mut execution, [call(1, None), call(2, None)]);
    assert!(!execution.can_take());
    push(&mut execution, [incoming(spec(TaskKind::Creation, CALLER, ACTOR.number))]);
    assert_eq!(take_all(&mut execution), [ACTOR.number, 1, 2]);
    assert!(!execution.has_groups());
    push(&mut execution, [call(3, None)]);
    execution.on_constructor_refused();
    assert!(!execution.can_take());
}

#[test]
fn what_the_constructor_was_given_is_used_as_long_as_the_actor_lives() {
    let mut execution = Execution::default();
    assert_eq!(execution.constructed(), None);
    execution.on_constructed(ACTOR);
    assert_eq!(execution.constructed(), None, "no constructor ran");
    let execution = actor(1, &[]);
    assert_eq!(execution.constructed(), Some((ACTOR, &[object(900)][..])));
    assert_eq!(execution.running(), 0);
}

#[test]
fn each_group_has_its_own_places() {
    // Two places in the first group, one in the second, and what is left of four: one in the default group.
    let mut execution = actor(4, &[2, 1]);
    assert!(execution.has_groups());
    let groups = [None, None, Some(0), Some(0), Some(0), Some(1), Some(1)];
    push(&mut execution, (1..).zip(groups).map(|(number, group)| call(number, group)));
    assert_eq!(take_all(&mut execution), [1, 3, 4, 6]);
    assert!(!execution.can_take());
    execution.on_finished(TaskId { owner: CALLER, number: 4 });
    assert_eq!(take_all(&mut execution), [5]);
    execution.on_finished(TaskId { owner: CALLER, number: 6 });
    assert_eq!(take_all(&mut execution), [7]);
    execution.on_finished(TaskId { owner: CALLER, number: 1 });
    assert_eq!(take_all(&mut execution), [2]);
}

#[test]
fn the_default_group_has_a_place_even_if_the_others_take_all() {
    let mut execution = actor(2, &[2]);
    push(&mut execution, [call(1, None), call(2, None), call(3, Some(9))]);
    assert_eq!(take_all(&mut execution), [1, 3], "a group that does not exist has no limit");
}

#[test]
fn a_call_waits_for_a_lost_value_and_those_behind_it_wait_too() {
    let mut execution = actor(1, &[]);
    let lost = object(900);
    execution.miss(lost);
    assert!(execution.is_missing(lost) && !execution.is_missing(object(901)));
    let unordered = call_with(MethodCall { unordered: true, ..MethodCall::new(ACTOR) }, 4);
    let waits = with_argument(call(2, None), lost, false);
    assert_eq!(waits.missing(), [lost]);
    push(&mut execution, [call(1, None), waits, call(3, None), incoming(unordered)]);
    assert_eq!(take_all(&mut execution), [1, 4]);
    let inner = met(902);
    let (places, before) = execution.on_value(lost, &STORED, std::slice::from_ref(&inner));
    assert_eq!((places, before), (1, vec![]));
    assert!(!execution.is_missing(lost));
    let next = execution.take_next(Instant(8)).expect("it has its value");
    assert_eq!((next.push.spec.task.number, next.uses()), (2, vec![lost, inner.0]));
    assert_eq!(next.push.dependencies[0].contained, [inner.0]);
    assert_eq!(take_all(&mut execution), [3]);
}

/// A call that another process makes, which recovers a lost value or does not.
fn call_of(caller: WorkerId, number: u64, recovers: bool) -> Incoming {
    let recovers = recovers.then_some(true);
    incoming(TaskSpec { recovers, ..spec(TaskKind::Method(ACTOR), caller, number) })
}

#[test]
fn a_call_that_waits_holds_up_its_caller_alone() {
    let mut execution = actor(1, &[]);
    let lost = object(900);
    execution.miss(lost);
    let waits = with_argument(call(1, None), lost, false);
    push(&mut execution, [waits, call(2, None), call_of(OTHER, 1, false)]);
    assert_eq!(take_all(&mut execution), [1], "the value may be made by a call of the other");
}

#[test]
fn a_call_that_waits_does_not_hold_up_what_its_caller_called_before_it() {
    let mut execution = actor(1, &[]);
    let waiting = with_argument(call(3, None), object(900), false);
    execution.miss(object(900));
    // Call 2 has raised, and is executed once more: what makes the lost value again may wait for it.
    push(&mut execution, [waiting, call(4, None), call(2, None), call(5, None)]);
    assert_eq!(take_all(&mut execution), [2]);
    execution.on_value(object(900), &STORED, &[]);
    execution.on_finished(TaskId { owner: CALLER, number: 2 });
    assert_eq!(take_all(&mut execution), [3, 4, 5]);
}

#[test]
fn nothing_overtakes_a_call_that_is_made_again_but_what_recovers_its_argument() {
    let lost = object(900);
    for recovers in [false, true] {
        let mut execution = actor(1, &[]);
        execution.on_restore(&[CALLER]);
        execution.miss(lost);
        let again = Incoming { is_again: true, ..with_argument(call(1, None), lost, false) };
        push(&mut execution, [again]);
        execution.on_replayed(CALLER);
        let theirs = [call_of(OTHER, 2, false), call_of(OTHER, 3, recovers), call_of(OTHER, 4, false)];
        push(&mut execution, theirs);
        let expected: &[u64] = if recovers { &[2, 3] } else { &[] };
        assert_eq!(take_all(&mut execution), expected, "calls of one caller stay in order");
    }
}

/// A call that reads an actor's state, made again for its lost result: it has no place in the order.
fn read_again(number: u64) -> Incoming {
    let spec = call_with(MethodCall { unordered: true, kept: Some(false), ..MethodCall::new(ACTOR) }, number);
    incoming(TaskSpec { recovers: Some(true), ..spec })
}

/// A call that is made again after a takeover, and waits for a value of another node.
fn waiting_again(caller: WorkerId, number: u64, object: ObjectId) -> Incoming {
    let mut call = call_of(caller, number, false);
    let location = Location { offset: 0, length: 8 };
    let outcome = Outcome::Remote(Box::new(Remote { node: NodeId(1 << 24), location }));
    call.push.dependencies.push(Dependency { object, outcome, contained: Vec::new() });
    call.dependencies.push(MetDependency::default());
    Incoming { is_again: true, ..call }
}

#[test]
fn what_is_read_again_contains_the_earlier_calls_of_its_caller() {
    let mut execution = actor(1, &[]);
    execution.on_restore(&[CALLER, OTHER]);
    // Call 6 reads what calls 1 and 8 wait for.
    let (before, read) = (object(900), object(901));
    execution.miss(before);
    execution.miss(read);
    let again = [(OTHER, 1, read), (CALLER, 3, before), (CALLER, 8, read)];
    push(&mut execution, again.map(|(caller, number, argument)| waiting_again(caller, number, argument)));
    push(&mut execution, [read_again(2), read_again(6), read_again(9)]);
    assert_eq!(take_all(&mut execution), [2], "call 3 is to be part of what call 6 reads");
    execution.on_pulled(before, Location { offset: 64, length: 8 });
    assert_eq!(take_all(&mut execution), [3, 6], "neither the other caller's call nor call 8 holds them up");
    execution.on_pulled(read, Location { offset: 128, length: 8 });
    assert_eq!(take_all(&mut execution), [1, 8, 9]);
}

#[test]
fn new_calls_wait_for_calls_made_again_also_if_their_caller_reads_something_again() {
    let mut execution = actor(1, &[]);
    execution.on_restore(&[CALLER, OTHER]);
    execution.on_replayed(CALLER);
    push(&mut execution, [call(7, None), read_again(5)]);
    assert_eq!(take_all(&mut execution), [5]);
    push(&mut execution, [Incoming { is_again: true, ..call_of(OTHER, 1, false) }]);
    execution.on_replayed(OTHER);
    assert_eq!(take_all(&mut execution), [1, 7]);
}

#[test]
fn what_recovers_a_value_does_not_wait_until_all_calls_are_made_again() {
    for recovers in [false, true] {
        let mut execution = actor(1, &[]);
        execution.on_restore(&[CALLER]);
        push(&mut execution, [call_of(OTHER, 2, false), call_of(OTHER, 3, recovers)]);
        let early: &[u64] = if recovers { &[2, 3] } else { &[] };
        assert_eq!(take_all(&mut execution), early);
        assert!(!execution.is_recovering(None));
        push(&mut execution, [call(1, None)]);
        execution.on_replayed(CALLER);
        let late: &[u64] = if recovers { &[1] } else { &[1, 2, 3] };
        assert_eq!(take_all(&mut execution), late);
    }
}

#[test]
fn a_process_that_lacks_a_call_has_nothing_to_take() {
    let mut execution = actor(1, &[]);
    execution.on_restore(&[CALLER]);
    push(&mut execution, [call_of(OTHER, 2, true)]);
    assert!(execution.can_take());
    execution.refuse_again();
    assert!(!execution.can_take() && execution.take_next(Instant(8)).is_none());
}

#[test]
fn calls_that_wait_for_those_made_again_are_listed_with_the_queued_ones() {
    let mut execution = actor(1, &[]);
    execution.on_restore(&[CALLER]);
    push(&mut execution, [call_of(OTHER, 2, true), call_of(OTHER, 3, false), call_of(OTHER, 4, false)]);
    assert_eq!(execution.queued_tasks().count(), execution.queued());
    assert_eq!(execution.queued(), 3);
}

#[test]
fn what_runs_to_recover_a_value_is_known_until_it_ends() {
    let mut execution = actor(1, &[]);
    push(&mut execution, [call_of(OTHER, 3, true)]);
    let task = TaskId { owner: OTHER, number: 3 };
    assert!(!execution.is_recovering(Some(task)));
    assert!(execution.take_next(Instant(8)).is_some());
    assert!(execution.is_recovering(Some(task)) && !execution.is_recovering(Some(ACTOR)));
    execution.on_finished(task);
    assert!(!execution.is_recovering(Some(task)));
}

#[test]
fn a_value_that_comes_again_names_the_references_it_had() {
    let mut execution = actor(1, &[]);
    push(&mut execution, [with_argument(call(1, None), object(900), true), call(2, None)]);
    assert_eq!(execution.on_value(object(900), &STORED, &[met(901)]), (1, vec![]));
    assert_eq!(execution.on_value(object(900), &STORED, &[met(902)]), (1, vec![object(901)]));
    assert_eq!(execution.on_value(object(999), &STORED, &[met(903)]), (0, vec![]));
}

#[test]
fn a_call_that_waits_holds_up_its_group_alone() {
    let mut execution = actor(3, &[1, 1]);
    let lost = object(900);
    execution.miss(lost);
    let waits = with_argument(call(1, Some(0)), lost, false);
    push(&mut execution, [waits, call(2, Some(0)), call(3, Some(1)), call(4, None), call(5, None)]);
    assert_eq!(take_all(&mut execution), [3, 4], "the default group has one place");
}

#[test]
fn nothing_runs_before_a_constructor_that_waits() {
    let mut execution = Execution::default();
    let lost = object(900);
    execution.miss(lost);
    push(&mut execution, [call(1, None)]);
    assert!(!execution.can_take(), "it has not come");
    let constructor = incoming(spec(TaskKind::Creation, CALLER, ACTOR.number));
    push(&mut execution, [with_argument(constructor, lost, false)]);
    assert!(!execution.can_take(), "it waits");
    assert_eq!(numbers(&execution.take_missing(lost)), [ACTOR.number]);
    assert!(!execution.is_missing(lost));
}

#[test]
fn lost_values_take_tasks_away_and_let_calls_wait() {
    let mut execution = actor(1, &[]);
    let lost = object(900);
    push(&mut execution, [with_argument(task(CALLER, 1), lost, false), task(CALLER, 2)]);
    push(&mut execution, [with_argument(call(3, None), lost, false), call(4, None)]);
    assert_eq!(numbers(&execution.on_lost(&[object(901)], |_| true)), [0; 0]);
    assert!(!execution.is_missing(lost));
    assert_eq!(numbers(&execution.on_lost(&[lost], |_| true)), [1]);
    assert!(execution.is_missing(lost));
    assert_eq!(take_all(&mut execution), [2]);
    assert_eq!(numbers(&execution.take_missing(lost)), [3]);
    assert_eq!(take_all(&mut execution), [4]);
}

#[test]
fn an_argument_whose_value_came_in_a_message_is_not_missing() {
    let mut execution = actor(1, &[]);
    let mut inline = with_argument(call(1, None), object(900), true);
    inline.dependencies[0].stored = None;
    push(&mut execution, [inline]);
    assert_eq!(execution.on_value(object(900), &STORED, &[]), (0, vec![]));
    assert_eq!(numbers(&execution.take_missing(object(900))), [0; 0]);
    assert_eq!(execution.queued(), 1);
}

#[test]
fn the_first_argument_that_failed_is_why_a_task_does_not_run() {
    let mut failing = with_argument(call(1, None), object(900), true);
    assert_eq!(failing.failed_dependency(), None);
    let failure = Failure::new(FailureCode::ObjectLost, "gone");
    failing.push.dependencies[0].outcome = Outcome::Failed(Box::new(failure.clone()));
    assert_eq!(failing.failed_dependency(), Some(failure.of_argument("f")));
}

#[test]
fn tasks_go_back_and_calls_stay() {
    let mut execution = actor(1, &[]);
    push(&mut execution, [task(CALLER, 1), call(2, None), task(OTHER, 3)]);
    assert_eq!(numbers(&execution.return_queued()), [1, 3]);
    assert_eq!(take_all(&mut execution), [2]);
}

#[test]
fn a_cancellation_meets_a_queued_a_running_or_no_task() {
    let mut execution = Execution::default();
    push(&mut execution, [task(CALLER, 1), task(CALLER, 2)]);
    execution.take_next(Instant(7)).expect("two wait");
    let id = |number| TaskId { owner: CALLER, number };
    assert!(
        matches!(execution.cancel(id(2)), (Cancelled::Queued, Some(taken)) if taken.push.spec.task == id(2))
    );
    assert!(!execution.is_cancelled(id(1)));
    assert!(matches!(execution.cancel(id(1)), (Cancelled::Running, None)));
    assert!(execution.is_cancelled(id(1)));
    assert!(matches!(execution.cancel(id(3)), (Cancelled::Unknown, None)));
    assert!(!execution.is_cancelled(id(3)));
}

#[test]
fn the_tasks_of_a_dead_caller_go_and_its_running_ones_are_cancelled() {
    let mut execution = Execution::default();
    push(&mut execution, [task(CALLER, 1), task(OTHER, 2), task(CALLER, 3), task(OTHER, 4)]);
    execution.take_next(Instant(7)).expect("four wait");
    execution.take_next(Instant(7)).expect("three wait");
    let (gone, interrupted) = execution.on_caller_dead(CALLER);
    assert_eq!((numbers(&gone), interrupted), (vec![3], vec![TaskId { owner: CALLER, number: 1 }]));
    assert!(execution.is_cancelled(TaskId { owner: CALLER, number: 1 }));
    assert!(!execution.is_cancelled(TaskId { owner: OTHER, number: 2 }));
    assert_eq!(take_all(&mut execution), [4]);
}

#[test]
fn how_far_a_stream_is_read_is_known_while_its_task_is_here() {
    let stream = |number| {
        let stream = Some(Streaming { backpressure: 2, dynamic: false });
        incoming(TaskSpec { stream, ..spec(TaskKind::Task(ShapeId(0)), CALLER, number) })
    };
    let id = |number| TaskId { owner: CALLER, number };
    let read = Taken { items: 3, stop: true };
    let mut execution = Execution::default();
    push(&mut execution, (1..=4).map(stream));
    execution.take_next(Instant(7)).expect("four wait");
    (1..=5).for_each(|number| execution.on_items_taken(id(number), 3, true));
    let known: Vec<Taken> = (1..=5).map(|number| execution.taken(id(number))).collect();
    assert_eq!(known, [read, read, read, read, Taken::default()], "the fifth is not here");
    execution.on_finished(id(1));
    execution.cancel(id(2));
    execution.return_queued();
    assert!((1..=5).all(|number| execution.taken(id(number)) == Taken::default()));
}

#[test]
fn the_threads_of_a_group_take_its_calls_alone() {
    let mut execution = actor(4, &[2, 1]);
    assert_eq!(execution.free_places(), [1, 2, 1], "of the default group first");
    let groups = [Some(0), None, Some(1), Some(0), Some(9), Some(0)];
    push(&mut execution, (1..).zip(groups).map(|(number, group)| call(number, group)));
    let take = |execution: &mut Execution, group| {
        execution.take_next_of(Some(group), Instant(5)).map(|taken| taken.push.spec.task.number)
    };
    assert_eq!(take(&mut execution, 2), Some(3));
    assert_eq!(take(&mut execution, 2), None);
    let own = std::iter::from_fn(|| take(&mut execution, 1)).collect::<Vec<_>>();
    assert_eq!(own, [1, 4], "as many as it has places");
    let default = std::iter::from_fn(|| take(&mut execution, 0)).collect::<Vec<_>>();
    assert_eq!(default, [2, 5], "also what names a group that the actor does not have");
    assert!(!execution.can_take());
    execution.on_finished(TaskId { owner: CALLER, number: 1 });
    assert_eq!((take(&mut execution, 0), take(&mut execution, 1)), (None, Some(6)));
}

#[test]
fn a_group_whose_call_waits_for_a_value_leaves_the_others_alone() {
    let mut execution = actor(2, &[1]);
    let lost = object(900);
    execution.miss(lost);
    push(&mut execution, [with_argument(call(1, Some(0)), lost, false), call(2, Some(0)), call(3, None)]);
    assert!(execution.take_next_of(Some(1), Instant(5)).is_none());
    let taken = execution.take_next_of(Some(0), Instant(5)).expect("it waits for nothing");
    assert_eq!(taken.push.spec.task.number, 3);
}
