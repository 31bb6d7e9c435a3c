//! Values that lie at another node: two nodes with their processes, messages that cross nodes in any order,
//! lost blocks.

use std::sync::Arc;

use sooner_protocol::time::Instant;
use sooner_protocol::worker::action::{Action, Actions, Peer};
use sooner_protocol::worker::ownership::{Place, Slot};
use sooner_protocol::worker::{ActorDemand, WorkerCore};
use sooner_wire::message::{
    AddBorrow, Define, Dependency, Failure, FailureCode, FreeAt, FreeBlocks, GiveBlock, HandOver, HandedOver,
    Held, HeldFrom, LeaseGranted, Location, LostAt, Message, Missing, Outcome, Priority, Pull, Pulled, Push,
    Remote, RemoveBorrow, Reply, Restore, Return, Settled, TaskKind, TaskSpec, TasksReturned, Value,
    WorkerDead,
};
use sooner_wire::{
    Blob, BlockId, FunctionId, LeaseId, Name, NodeId, ObjectId, ResourceSet, TaskId, WorkerId,
};

mod kit;

use kit::{node_dead, plain, reply_of, worker_dead};

#[path = "remote_values/gave_way.rs"]
mod gave_way;
#[path = "remote_values/lost_copies.rs"]
mod lost_copies;
#[path = "remote_values/missing.rs"]
mod missing;
#[path = "remote_values/passed.rs"]
mod passed;
#[path = "remote_values/promoted.rs"]
mod promoted;
#[path = "two_nodes/mod.rs"]
mod two_nodes;

const HERE: NodeId = NodeId(1 << 24);
const THERE: NodeId = NodeId(2 << 24);
const ME: WorkerId = WorkerId((1 << 24) + 1);
const NEIGHBOUR: WorkerId = WorkerId((1 << 24) + 2);
const FAR: WorkerId = WorkerId((2 << 24) + 1);
/// At a node that has nothing to do with the values.
const SPARE: WorkerId = WorkerId((5 << 24) + 1);
const NOW: Instant = Instant(5);
const THE_REMOTE: Remote = Remote { node: THERE, location: Location { offset: 4096, length: 1 << 20 } };
const THE_COPY: Location = Location { offset: 64, length: 1 << 20 };

fn task(owner: WorkerId, number: u64) -> TaskId {
    TaskId { owner, number }
}

fn remote() -> Outcome {
    Outcome::Remote(Box::new(THE_REMOTE))
}

fn pull(object: ObjectId, priority: Priority) -> Action {
    to_node(Pull { object, remote: THE_REMOTE, priority })
}

fn to_node(message: impl Into<Message>) -> Action {
    Action::Send { to: Peer::Node, message: Box::new(message.into()) }
}

fn to(worker: WorkerId, message: impl Into<Message>) -> Action {
    Action::Send { to: Peer::Worker(worker), message: Box::new(message.into()) }
}

fn on(core: &mut WorkerCore, from: Peer, message: impl Into<Message>) -> Actions {
    let mut out = Actions::new();
    assert_eq!(core.on_message(from, message.into(), NOW, &mut out), None);
    core.check();
    out
}

fn pulled(core: &mut WorkerCore, object: ObjectId) -> Actions {
    on(core, Peer::Node, Pulled { object, location: Some(THE_COPY), failure: None, tried: None })
}

fn not_there(core: &mut WorkerCore, object: ObjectId) -> Actions {
    on(core, Peer::Node, Pulled { object, location: None, failure: None, tried: Some(THE_REMOTE) })
}

fn define() -> Define {
    Define {
        function: FunctionId(1),
        name: Name::from("f"),
        code: Blob::default(),
        references: Vec::new(),
        place: None,
    }
}

fn spec(task: TaskId, kind: TaskKind, dependencies: &[ObjectId]) -> TaskSpec {
    let dependencies = dependencies.into();
    TaskSpec {
        dependencies,
        retries: 3,
        ..TaskSpec::new(task, kind, FunctionId(1), Name::from("f"), Blob::default())
    }
}

/// A driver whose task 1 was executed at the other node; somebody holds the result.
fn owner() -> (WorkerCore, ObjectId, Arc<Slot>) {
    let (core, object, slot) = owner_of(FAR, remote());
    assert!(!slot.is_readable());
    (core, object, slot)
}

/// A driver whose task 1 was executed by this worker; somebody holds the result.
fn owner_of(worker: WorkerId, outcome: Outcome) -> (WorkerCore, ObjectId, Arc<Slot>) {
    let mut core = WorkerCore::new(ME);
    core.define(define());
    let shape = core.shape(&ResourceSet::default());
    let slot = Arc::new(Slot::default());
    slot.acquire();
    let made = spec(task(ME, 1), TaskKind::Task(shape), &[]);
    core.submit(Arc::new(made), [slot.clone()], None, &mut Actions::new());
    on(&mut core, Peer::Node, LeaseGranted { shape, lease: LeaseId(1), worker, gpus: Vec::new() });
    on(&mut core, Peer::Worker(worker), reply(1, outcome.clone()));
    assert_eq!(slot.outcome().as_deref(), Some(&outcome), "there is an outcome");
    (core, task(ME, 1).object(0), slot)
}

/// The node gives another worker for what cannot run where it ran.
fn lease_elsewhere(core: &mut WorkerCore) -> Actions {
    let shape = core.shape(&ResourceSet::default());
    on(core, Peer::Node, LeaseGranted { shape, lease: LeaseId(2), worker: SPARE, gpus: Vec::new() })
}

fn reply(number: u64, outcome: Outcome) -> Reply {
    reply_of(task(ME, number), vec![plain(outcome)], 5)
}

fn bring(core: &mut WorkerCore, object: ObjectId) -> Actions {
    let mut out = Actions::new();
    assert!(core.ownership_mut().bring(object, Priority::Get, &mut out));
    out
}

fn drop_last(core: &mut WorkerCore, object: ObjectId, slot: &Slot) -> Actions {
    let mut out = Actions::new();
    assert!(slot.release(), "it was the last handle");
    core.on_handles_dropped(&[object], &mut out);
    out
}

fn push(number: u64, kind: TaskKind, object: ObjectId, outcome: Outcome) -> Push {
    Push {
        spec: Box::new(spec(task(NEIGHBOUR, number), kind, &[object])),
        dependencies: vec![Dependency { object, outcome, contained: Vec::new() }],
        gpus: Vec::new(),
    }
}

#[test]
fn an_owner_reads_a_copy_and_gives_both_places_back() {
    let (mut core, object, slot) = owner();
    assert_eq!(bring(&mut core, object), [pull(object, Priority::Get)]);
    assert_eq!(bring(&mut core, object), [], "it is on its way");
    assert_eq!(pulled(&mut core, object), []);
    assert_eq!(slot.outcome().as_deref(), Some(&Outcome::Stored(THE_COPY)));
    assert!(!core.ownership_mut().bring(object, Priority::Get, &mut Actions::new()));
    assert_eq!(
        drop_last(&mut core, object, &slot),
        [
            to_node(FreeBlocks { places: vec![THE_COPY.place()] }),
            to_node(FreeAt { node: THERE, places: vec![BlockId(4096).into()] }),
        ],
        "the copy may have other holders here: it is not reused"
    );
    assert!(core.ownership().is_empty());
    assert_eq!(core.ownership().copies(), (0, 0));
}

#[test]
fn what_was_never_read_here_is_only_given_back_there() {
    let (mut core, object, slot) = owner();
    assert_eq!(
        drop_last(&mut core, object, &slot),
        [to_node(FreeAt { node: THERE, places: vec![BlockId(4096).into()] })]
    );
}

fn hand_over() -> HandOver {
    HandOver { node: THERE, places: vec![THE_REMOTE.location.place()] }
}

fn left_there() -> Action {
    to_node(FreeAt { node: THERE, places: vec![THE_REMOTE.location.place()] })
}

fn handed_over() -> Action {
    to_node(HandedOver { node: THERE, places: vec![THE_REMOTE.location.place()] })
}

#[test]
fn a_value_of_a_node_that_leaves_is_brought_here() {
    let (mut core, object, slot) = owner();
    assert_eq!(on(&mut core, Peer::Node, hand_over()), [pull(object, Priority::Argument)]);
    assert_eq!(pulled(&mut core, object), [handed_over(), left_there()], "nobody reads it there");
    assert!(slot.is_readable());
    let for_far = core.ownership().outcome_for(object, Some(FAR));
    assert_eq!(for_far, Some(Outcome::Stored(THE_COPY)), "others are sent here from now on");
    assert_eq!(on(&mut core, Peer::Node, hand_over()), [handed_over()]);
    let lost = LostAt { node: THERE, blocks: vec![BlockId(THE_REMOTE.location.offset)] };
    assert_eq!(on(&mut core, Peer::Node, lost), [], "nothing is made again");
    let here = to_node(FreeBlocks { places: vec![THE_COPY.place()] });
    assert_eq!(drop_last(&mut core, object, &slot), [here], "it was given back there");
}

/// A task that was pushed with the old place reads it there, and so may a borrower.
#[test]
fn a_value_that_is_read_where_it_was_made_stays_there_until_that_ends() {
    let (mut core, object, _slot) = owner();
    core.ownership_mut().add_use(object);
    on(&mut core, Peer::Worker(FAR), AddBorrow { object, borrower: FAR });
    on(&mut core, Peer::Node, hand_over());
    assert_eq!(pulled(&mut core, object), [handed_over()]);
    core.ownership_mut().end_use(object, &mut Actions::new());
    assert_eq!(on(&mut core, Peer::Node, hand_over()), [handed_over()]);
    assert_eq!(
        on(&mut core, Peer::Worker(FAR), RemoveBorrow { object, count: 1, giver: None, was_sent: None }),
        []
    );
    assert_eq!(on(&mut core, Peer::Node, hand_over()), [left_there(), handed_over()]);
    assert_eq!(on(&mut core, Peer::Node, hand_over()), [handed_over()], "once");
}

/// A node without room would wait for itself if those there had to have a second copy.
#[test]
fn while_a_value_stays_where_it_was_made_those_who_are_there_read_it_there() {
    let (mut core, object, _slot) = owner();
    core.ownership_mut().add_use(object);
    on(&mut core, Peer::Node, hand_over());
    pulled(&mut core, object);
    let for_worker = |worker| core.ownership().outcome_for(object, Some(worker));
    assert_eq!(for_worker(FAR), Some(remote()));
    let elsewhere = WorkerId((3 << 24) + 1);
    assert_eq!(for_worker(elsewhere), Some(Outcome::Stored(THE_COPY)));
    // That place is lost: everybody reads the copy.
    assert_eq!(on(&mut core, Peer::Node, LostAt { node: THERE, blocks: vec![BlockId(4096)] }), []);
    assert_eq!(core.ownership().outcome_for(object, Some(FAR)), Some(Outcome::Stored(THE_COPY)));
}

#[test]
fn a_copy_here_is_the_value_when_the_node_that_made_it_leaves() {
    let (mut core, object, _slot) = owner();
    bring(&mut core, object);
    pulled(&mut core, object);
    assert_eq!(on(&mut core, Peer::Node, hand_over()), [left_there(), handed_over()]);
}

#[test]
fn a_node_that_leaves_does_not_wait_for_what_finds_no_room_here() {
    let (mut core, object, slot) = owner();
    on(&mut core, Peer::Node, hand_over());
    let failure = Some(Box::new(Failure::new(FailureCode::StoreFull, "no room")));
    assert_eq!(
        on(&mut core, Peer::Node, Pulled { object, location: None, failure, tried: None }),
        [handed_over()]
    );
    let there = to_node(FreeAt { node: THERE, places: vec![THE_REMOTE.location.place()] });
    assert_eq!(drop_last(&mut core, object, &slot), [there]);
}

#[test]
fn a_copy_that_comes_too_late_goes_back() {
    let (mut core, object, slot) = owner();
    bring(&mut core, object);
    drop_last(&mut core, object, &slot);
    assert_eq!(pulled(&mut core, object), [to_node(FreeBlocks { places: vec![THE_COPY.place()] })]);
    assert_eq!(core.ownership().copies(), (0, 0));
}

#[test]
fn a_value_that_nobody_wants_is_given_back() {
    let (mut core, object, slot) = owner();
    let second = Remote { location: Location { offset: 8192, length: 7 }, ..THE_REMOTE };
    let value = Return { outcome: Outcome::Remote(Box::new(second)), contained: Vec::new() };
    let mut out = Actions::new();
    core.ownership_mut().discard(object, &value.outcome, &value.contained, &mut out);
    assert_eq!(out, [to_node(FreeAt { node: THERE, places: vec![BlockId(8192).into()] })]);
    drop_last(&mut core, object, &slot);
}

#[test]
fn a_freed_value_goes_from_both_places() {
    let (mut core, object, slot) = owner();
    bring(&mut core, object);
    pulled(&mut core, object);
    let mut out = Actions::new();
    core.ownership_mut().free(object, &mut out);
    assert_eq!(out.len(), 2, "{out:?}");
    assert_eq!(drop_last(&mut core, object, &slot), [], "once");
}

#[test]
fn dependents_run_and_say_where_it_is() {
    let (mut core, object, slot) = owner();
    let shape = core.shape(&ResourceSet::default());
    let mut out = Actions::new();
    let result = Arc::new(Slot::default());
    let dependent = spec(task(ME, 2), TaskKind::Task(shape), &[object]);
    core.submit(Arc::new(dependent), [result], None, &mut out);
    let Some(Action::Push { worker: FAR, dependencies, .. }) = out.pop() else {
        panic!("it is pushed although nothing was brought: {out:?}");
    };
    assert_eq!(dependencies[0].outcome, remote());
    // With a copy here, others here read that one; those elsewhere are sent to the first place.
    bring(&mut core, object);
    pulled(&mut core, object);
    let for_worker = |worker| core.ownership().outcome_for(object, Some(worker));
    assert_eq!(for_worker(NEIGHBOUR), Some(Outcome::Stored(THE_COPY)));
    assert_eq!(for_worker(FAR), Some(remote()));
    assert!(slot.is_readable());
}

#[test]
fn lineage_is_kept_for_a_value_at_another_node() {
    let (mut core, object, slot) = owner();
    assert_eq!(core.lineage().0, 1);
    // The node says that it is lost: the task is executed again.
    let out = on(&mut core, Peer::Node, LostAt { node: THERE, blocks: vec![BlockId(4096)] });
    assert!(matches!(&out[..], [.., Action::Push { worker: FAR, .. }]), "{out:?}");
    assert_eq!(slot.outcome().as_deref(), None);
    let second = Remote { location: Location { offset: 8192, length: 7 }, ..THE_REMOTE };
    on(&mut core, Peer::Worker(FAR), reply(1, Outcome::Remote(Box::new(second))));
    assert_eq!(slot.outcome().as_deref(), Some(&Outcome::Remote(Box::new(second))));
    let freed = drop_last(&mut core, object, &slot);
    let free = |offset| to_node(FreeAt { node: THERE, places: vec![BlockId(offset).into()] });
    assert_eq!(freed, [free(8192), free(4096)], "somebody may have read there until now");
}

#[test]
fn a_loss_that_is_heard_before_the_value_counts() {
    let (mut core, _, slot) = owner();
    let shape = core.shape(&ResourceSet::default());
    let second = Arc::new(Slot::default());
    second.acquire();
    let mut out = Actions::new();
    let made = spec(task(ME, 2), TaskKind::Task(shape), &[]);
    core.submit(Arc::new(made), [second.clone()], None, &mut out);
    on(&mut core, Peer::Node, LostAt { node: THERE, blocks: vec![BlockId(8192)] });
    let lost = Remote { location: Location { offset: 8192, length: 7 }, ..THE_REMOTE };
    let out = on(&mut core, Peer::Worker(FAR), reply(2, Outcome::Remote(Box::new(lost))));
    assert!(matches!(&out[..], [.., Action::Push { worker: FAR, .. }]), "it is computed again: {out:?}");
    assert_eq!(second.outcome(), None);
    assert!(slot.has_outcome());
}

#[test]
fn a_copy_outlives_the_place_it_came_from() {
    let (mut core, object, slot) = owner();
    bring(&mut core, object);
    pulled(&mut core, object);
    assert_eq!(on(&mut core, Peer::Node, LostAt { node: THERE, blocks: vec![BlockId(4096)] }), []);
    assert_eq!(slot.outcome().as_deref(), Some(&Outcome::Stored(THE_COPY)));
    // The others get it here now.
    assert_eq!(core.ownership().outcome_for(object, Some(FAR)), Some(Outcome::Stored(THE_COPY)));
    let freed = drop_last(&mut core, object, &slot);
    let back = [
        to_node(FreeBlocks { places: vec![THE_COPY.place()] }),
        to_node(FreeAt { node: THERE, places: vec![BlockId(4096).into()] }),
    ];
    assert_eq!(freed, back);
}

#[test]
fn a_lost_copy_is_not_a_lost_value() {
    let (mut core, object, slot) = owner();
    bring(&mut core, object);
    pulled(&mut core, object);
    let lost = sooner_wire::message::BlocksLost { blocks: vec![BlockId(THE_COPY.offset)] };
    assert_eq!(on(&mut core, Peer::Node, lost), []);
    assert_eq!(slot.outcome().as_deref(), Some(&remote()));
    assert_eq!(bring(&mut core, object), [pull(object, Priority::Get)]);
    let again = Location { offset: 128, ..THE_COPY };
    on(&mut core, Peer::Node, Pulled { object, location: Some(again), failure: None, tried: None });
    assert_eq!(slot.outcome().as_deref(), Some(&Outcome::Stored(again)));
    let freed = drop_last(&mut core, object, &slot);
    let back = [
        to_node(FreeBlocks { places: vec![BlockId(128).into()] }),
        to_node(FreeAt { node: THERE, places: vec![BlockId(4096).into()] }),
        to_node(FreeBlocks { places: vec![THE_COPY.place()] }),
    ];
    assert_eq!(freed, back, "each once");
    assert!(core.ownership().is_empty());
}

#[test]
fn an_owner_that_learns_of_a_loss_by_pulling_computes_the_value_again() {
    let (mut core, object, slot) = owner();
    bring(&mut core, object);
    let out = not_there(&mut core, object);
    assert!(matches!(&out[..], [.., Action::Push { worker: FAR, .. }]), "{out:?}");
    assert_eq!(slot.outcome().as_deref(), None);
}

#[test]
fn a_value_without_room_stays_where_it_is() {
    let (mut core, object, slot) = owner();
    bring(&mut core, object);
    let failure = Failure::new(FailureCode::StoreFull, "too large");
    let failed = Pulled { object, location: None, failure: Some(Box::new(failure.clone())), tried: None };
    assert_eq!(on(&mut core, Peer::Node, failed), []);
    assert_eq!((slot.place(), slot.outcome().as_deref()), (Place::OutOfReach, Some(&remote())));
    assert_eq!(core.ownership().pull_failure(object), Some(&failure));
    // Who asks again tries again.
    assert_eq!(bring(&mut core, object), [pull(object, Priority::Get)]);
    assert_eq!(slot.place(), Place::OnItsWay);
    assert_eq!(core.ownership().pull_failure(object), None);
}

#[test]
fn who_watches_an_object_hears_of_it_when_it_can_be_read() {
    let mut core = WorkerCore::new(ME);
    let object = task(FAR, 1).object(0);
    core.ownership_mut().received(object).acquire();
    let mut out = Actions::new();
    assert!(core.ownership_mut().watch(object, &mut out));
    let value = Value { object, outcome: remote(), contained: Vec::new() };
    assert_eq!(on(&mut core, Peer::Worker(FAR), value), [pull(object, Priority::Get)]);
    assert_eq!(pulled(&mut core, object), [Action::Ready(object)]);
    assert!(!core.ownership_mut().watch(object, &mut Actions::new()));
}

/// A borrower at this node that has heard where the value is.
fn borrower() -> (WorkerCore, ObjectId, Arc<Slot>) {
    borrower_of(Vec::new())
}

/// The same, with these references inside the value.
fn borrower_of(contained: Vec<ObjectId>) -> (WorkerCore, ObjectId, Arc<Slot>) {
    let mut core = WorkerCore::new(ME);
    let object = task(FAR, 1).object(0);
    let slot = core.ownership_mut().received(object);
    slot.acquire();
    core.ownership_mut().need(object, &mut Actions::new());
    on(&mut core, Peer::Worker(FAR), Value { object, outcome: remote(), contained });
    (core, object, slot)
}

#[test]
fn a_borrower_holds_its_copy_itself_and_never_lends_it() {
    let (mut core, object, slot) = borrower();
    bring(&mut core, object);
    pulled(&mut core, object);
    assert_eq!(core.ownership().outcome_for(object, Some(NEIGHBOUR)), Some(remote()));
    let mut freed = drop_last(&mut core, object, &slot);
    assert_eq!(freed.remove(0), to_node(FreeBlocks { places: vec![THE_COPY.place()] }));
    let returned = sooner_wire::message::RemoveBorrow { object, count: 1, giver: None, was_sent: None };
    assert_eq!(freed, [to(FAR, returned)], "the other place is its owner's");
}

#[test]
fn a_borrower_asks_again_for_what_is_not_there() {
    let (mut core, object, slot) = borrower();
    bring(&mut core, object);
    let out = not_there(&mut core, object);
    assert_eq!(out, [to(FAR, sooner_wire::message::Fetch { object, missing_at: Some(THE_REMOTE) })]);
    assert_eq!(slot.outcome().as_deref(), None);
    let small = Outcome::Inline(Blob::from(&b"small this time"[..]));
    on(&mut core, Peer::Worker(FAR), Value { object, outcome: small.clone(), contained: Vec::new() });
    assert_eq!(slot.outcome().as_deref(), Some(&small));
}

#[test]
fn a_value_that_was_not_brought_goes_with_its_owner() {
    let (mut core, object, slot) = borrower();
    bring(&mut core, object);
    let gone = worker_dead(FAR, "ended");
    on(&mut core, Peer::Node, gone);
    let outcome = slot.outcome();
    let Some(Outcome::Failed(failure)) = outcome.as_deref() else { panic!("it failed: {outcome:?}") };
    assert_eq!(failure.code, FailureCode::OwnerDied);
    assert_eq!(pulled(&mut core, object), [to_node(FreeBlocks { places: vec![THE_COPY.place()] })]);
}

#[test]
fn what_came_inside_a_value_goes_with_it_when_its_owner_ends() {
    let inner = task(NEIGHBOUR, 3).object(0);
    let (mut core, object, slot) = borrower_of(vec![inner]);
    assert!(core.ownership().record(inner).is_some(), "it came with the value");
    on(&mut core, Peer::Node, worker_dead(FAR, ""));
    drop_last(&mut core, object, &slot);
    assert_eq!(core.ownership().len(), 0, "nothing is left of either");
}

#[test]
fn a_process_of_another_node_that_was_heard_of_only_when_all_was_settled_is_answered_for() {
    let (mut core, ..) = borrower();
    on(&mut core, Peer::Node, Settled { gone: vec![FAR], held: Vec::new() });
    let said = on(&mut core, Peer::Node, worker_dead(FAR, ""));
    assert!(said.contains(&to_node(HeldFrom { gone: FAR, held: Vec::new() })), "{said:?}");
}

#[test]
fn what_is_held_of_a_process_is_said_again_when_it_ends_after_it_could_not_be_reached() {
    let mut core = WorkerCore::new(ME);
    let object = task(NEIGHBOUR, 4).object(0);
    core.ownership_mut().handed_by(object, FAR);
    core.ownership_mut().meet(object).acquire();
    let held = vec![Held { object, borrower: ME, count: 1, of: None }];
    let answer = to_node(HeldFrom { gone: FAR, held });
    for _ in 0..2 {
        let gone = WorkerDead { worker: FAR, all_begun: Some(true), ..WorkerDead::default() };
        assert!(on(&mut core, Peer::Node, gone).contains(&answer), "nobody settled the first");
    }
    on(&mut core, Peer::Node, Settled { gone: vec![FAR], held: Vec::new() });
    let late = on(&mut core, Peer::Node, worker_dead(FAR, ""));
    assert!(late.contains(&to_node(HeldFrom { gone: FAR, held: Vec::new() })), "it is counted: {late:?}");
}

#[test]
fn a_copy_stays_when_the_owner_ends() {
    let (mut core, object, slot) = borrower();
    bring(&mut core, object);
    pulled(&mut core, object);
    let gone = worker_dead(FAR, "ended");
    on(&mut core, Peer::Node, gone);
    assert_eq!(slot.outcome().as_deref(), Some(&Outcome::Stored(THE_COPY)));
    let freed = drop_last(&mut core, object, &slot);
    assert_eq!(freed[0], to_node(FreeBlocks { places: vec![THE_COPY.place()] }));
}

#[test]
fn a_task_waits_here_for_its_argument_and_lets_others_pass() {
    let mut core = WorkerCore::new(ME);
    let object = task(NEIGHBOUR, 1).object(0);
    let kind = TaskKind::Task(sooner_wire::ShapeId(0));
    let from = Peer::Worker(NEIGHBOUR);
    let waits = push(2, kind, object, remote());
    assert_eq!(on(&mut core, from, waits), [pull(object, Priority::Argument)], "it is not given back");
    assert!(core.next_execution().is_none());
    let free =
        Push { spec: Box::new(spec(task(NEIGHBOUR, 3), kind, &[])), dependencies: vec![], gpus: vec![] };
    on(&mut core, from, free);
    assert_eq!(core.next_execution().map(|next| next.push.spec.task.number), Some(3));
    pulled(&mut core, object);
    let next = core.next_execution().expect("its argument is here");
    assert_eq!(next.push.dependencies[0].outcome, Outcome::Stored(THE_COPY));
    let mut out = Actions::new();
    core.on_finished(task(NEIGHBOUR, 2), Vec::new(), 5, false, &mut out);
    assert!(out.contains(&to_node(FreeBlocks { places: vec![THE_COPY.place()] })), "{out:?}");
    assert!(core.ownership().record(object).is_none());
}

#[test]
fn a_copy_that_is_here_serves_the_next_task() {
    let mut core = WorkerCore::new(ME);
    let object = task(NEIGHBOUR, 1).object(0);
    let kind = TaskKind::Task(sooner_wire::ShapeId(0));
    on(&mut core, Peer::Worker(NEIGHBOUR), push(2, kind, object, remote()));
    on(&mut core, Peer::Worker(NEIGHBOUR), push(3, kind, object, remote()));
    pulled(&mut core, object);
    assert_eq!(on(&mut core, Peer::Worker(NEIGHBOUR), push(4, kind, object, remote())), []);
    for _ in 0..3 {
        let next = core.next_execution().expect("the value is here");
        assert_eq!(next.push.dependencies[0].outcome, Outcome::Stored(THE_COPY));
    }
}

#[test]
fn a_task_whose_argument_was_lost_elsewhere_goes_back_with_the_word_where_it_is_not() {
    for owner in [NEIGHBOUR, FAR] {
        let mut core = WorkerCore::new(ME);
        let object = task(owner, 1).object(0);
        let kind = TaskKind::Task(sooner_wire::ShapeId(0));
        on(&mut core, Peer::Worker(NEIGHBOUR), push(2, kind, object, remote()));
        // Here the task would keep a worker from making the value again. Its caller would push it again as it
        // is, were it not told.
        let missing = Some(vec![Missing { object, place: THE_REMOTE }]);
        let returned = TasksReturned { tasks: vec![task(NEIGHBOUR, 2)], lacks_room: None, missing };
        assert_eq!(not_there(&mut core, object)[0], to(NEIGHBOUR, returned));
        assert!(core.next_execution().is_none() && core.ownership().record(object).is_none());
    }
}

#[test]
fn a_task_whose_argument_may_be_where_its_caller_said_waits_for_the_owner() {
    let mut core = WorkerCore::new(ME);
    let object = task(FAR, 1).object(0);
    let kind = TaskKind::Task(sooner_wire::ShapeId(0));
    on(&mut core, Peer::Worker(NEIGHBOUR), push(2, kind, object, remote()));
    let unsure = Pulled { object, location: None, failure: None, tried: None };
    let asked = sooner_wire::message::Fetch { object, missing_at: None };
    let lends = to_node(sooner_wire::message::Blocked {});
    assert_eq!(on(&mut core, Peer::Node, unsure), [to(FAR, asked), lends]);
    let small = Outcome::Inline(Blob::from(&b"small this time"[..]));
    let value = Value { object, outcome: small.clone(), contained: Vec::new() };
    let goes_on = to_node(sooner_wire::message::Unblocked {});
    assert_eq!(on(&mut core, Peer::Worker(FAR), value), [goes_on]);
    assert_eq!(core.next_execution().map(|next| next.push.dependencies[0].outcome.clone()), Some(small));
}

#[test]
fn a_task_of_another_node_waits_here_for_what_is_lost_here() {
    let mut core = WorkerCore::new(ME);
    let kind = TaskKind::Task(sooner_wire::ShapeId(0));
    let lost = sooner_wire::message::BlocksLost { blocks: vec![BlockId(THE_COPY.offset)] };
    on(&mut core, Peer::Node, lost);
    let object = task(FAR, 1).object(0);
    let far = Push {
        spec: Box::new(spec(task(FAR, 2), kind, &[object])),
        dependencies: vec![Dependency { object, outcome: Outcome::Stored(THE_COPY), contained: Vec::new() }],
        gpus: Vec::new(),
    };
    let lends = to_node(sooner_wire::message::Blocked {});
    let asked = [to(FAR, sooner_wire::message::Fetch { object, missing_at: None }), lends];
    assert_eq!(on(&mut core, Peer::Worker(FAR), far.clone()), asked);
    assert!(core.next_execution().is_none());
    let failure = Failure::new(FailureCode::ObjectLost, "for good");
    let outcome = Outcome::Failed(Box::new(failure));
    let out =
        on(&mut core, Peer::Worker(FAR), Value { object, outcome: outcome.clone(), contained: Vec::new() });
    let [Action::Send { message, .. }, ..] = &out[..] else { panic!("{out:?}") };
    let Message::Reply(reply) = &**message else { panic!("it ends with that: {out:?}") };
    assert_eq!((reply.not_run, &reply.returns[0].outcome), (Some(true), &outcome));
}

#[test]
fn a_task_whose_argument_finds_no_room_fails_and_says_so() {
    let mut core = WorkerCore::new(ME);
    let object = task(NEIGHBOUR, 1).object(0);
    let kind = TaskKind::Task(sooner_wire::ShapeId(0));
    on(&mut core, Peer::Worker(NEIGHBOUR), push(2, kind, object, remote()));
    let failure = Failure::new(FailureCode::StoreFull, "too large");
    let failed = Pulled { object, location: None, failure: Some(Box::new(failure.clone())), tried: None };
    let out = on(&mut core, Peer::Node, failed);
    let [Action::Send { message, .. }] = &out[..] else { panic!("{out:?}") };
    let Message::Reply(reply) = &**message else { panic!("{out:?}") };
    assert_eq!(reply.returns[0].outcome, Outcome::Failed(Box::new(failure)));
    assert!(core.ownership().is_empty());
}

#[test]
fn calls_stay_in_order_behind_one_that_waits() {
    let mut core = WorkerCore::new(ME);
    let (object, actor) = (task(NEIGHBOUR, 1).object(0), task(NEIGHBOUR, 9));
    let constructor = Push {
        spec: Box::new(spec(actor, TaskKind::Creation, &[])),
        dependencies: Vec::new(),
        gpus: Vec::new(),
    };
    on(&mut core, Peer::Node, constructor);
    core.next_execution().expect("it is constructed");
    let kind = TaskKind::Method(actor);
    on(&mut core, Peer::Worker(NEIGHBOUR), push(2, kind, object, remote()));
    let small = Outcome::Inline(Blob::default());
    on(&mut core, Peer::Worker(NEIGHBOUR), push(3, kind, object, small));
    assert!(core.next_execution().is_none());
    pulled(&mut core, object);
    let order: Vec<u64> =
        std::iter::from_fn(|| core.next_execution()).map(|i| i.push.spec.task.number).collect();
    assert_eq!(order, [2, 3]);
}

#[test]
fn a_constructor_waits_for_its_arguments_and_for_the_state_it_begins_with() {
    let mut core = WorkerCore::new(ME);
    let (object, actor) = (task(NEIGHBOUR, 1).object(0), task(NEIGHBOUR, 9));
    let state = Some(plain(remote()));
    let restore = Restore { actor, state, callers: Vec::new(), takeover: None };
    assert_eq!(on(&mut core, Peer::Node, restore), [pull(actor.state(), Priority::Get)]);
    let constructor = Push {
        spec: Box::new(spec(actor, TaskKind::Creation, &[object])),
        dependencies: vec![Dependency { object, outcome: remote(), contained: Vec::new() }],
        gpus: Vec::new(),
    };
    assert_eq!(on(&mut core, Peer::Node, constructor), [pull(object, Priority::Argument)]);
    pulled(&mut core, object);
    assert!(core.next_execution().is_none(), "its state is not here");
    let second = Location { offset: 128, length: 1 << 20 };
    on(
        &mut core,
        Peer::Node,
        Pulled { object: actor.state(), location: Some(second), failure: None, tried: None },
    );
    core.next_execution().expect("all is here");
    let restored = core.take_restored().expect("there is a state");
    assert_eq!(restored.outcome, Outcome::Stored(second));
    let mut out = Actions::new();
    core.on_restored(&restored, &mut out);
    assert_eq!(
        out,
        [to_node(FreeBlocks { places: vec![BlockId(128).into()] })],
        "the other place is the node's"
    );
}

/// The constructor begins, and is told why there is no state to go on from.
fn learns_that_its_state_is_lost(core: &mut WorkerCore) {
    core.next_execution().expect("it begins, and fails");
    let restored = core.take_restored().expect("there was a state");
    let Outcome::Failed(failure) = restored.outcome else { panic!("it is lost") };
    assert_eq!(failure.code, FailureCode::ObjectLost);
}

#[test]
fn a_constructor_whose_state_is_lost_learns_why() {
    let mut core = WorkerCore::new(ME);
    let actor = task(NEIGHBOUR, 9);
    let state = Some(plain(remote()));
    on(&mut core, Peer::Node, Restore { actor, state, callers: Vec::new(), takeover: None });
    let constructor = Push {
        spec: Box::new(spec(actor, TaskKind::Creation, &[])),
        dependencies: Vec::new(),
        gpus: Vec::new(),
    };
    on(&mut core, Peer::Node, constructor);
    assert!(core.next_execution().is_none());
    not_there(&mut core, actor.state());
    learns_that_its_state_is_lost(&mut core);
}

#[test]
fn a_value_for_another_node_is_given_under_its_name() {
    let mut core = WorkerCore::new(ME);
    let kind = TaskKind::Task(sooner_wire::ShapeId(0));
    for owner in [FAR, NEIGHBOUR] {
        let push =
            Push { spec: Box::new(spec(task(owner, 1), kind, &[])), dependencies: vec![], gpus: vec![] };
        on(&mut core, Peer::Worker(owner), push);
        core.next_execution().expect("nothing is missing");
        let value = plain(Outcome::Stored(THE_COPY));
        let mut out = Actions::new();
        core.on_finished(task(owner, 1), vec![value], 5, false, &mut out);
        let object = (owner == FAR).then_some(task(FAR, 1).object(0));
        assert_eq!(out[0], to_node(GiveBlock { block: BlockId(THE_COPY.offset), owner, object }));
    }
    assert_eq!(ME.node(), HERE);
}

#[test]
fn the_owners_copy_is_read_by_a_task_of_a_process_that_only_knew_the_other_place() {
    // The owner is a neighbour, and has a copy. This process had heard of the first place before.
    let mut core = WorkerCore::new(ME);
    let object = task(NEIGHBOUR, 1).object(0);
    let slot = core.ownership_mut().received(object);
    slot.acquire();
    core.ownership_mut().need(object, &mut Actions::new());
    on(&mut core, Peer::Worker(NEIGHBOUR), Value { object, outcome: remote(), contained: Vec::new() });
    bring(&mut core, object);
    let kind = TaskKind::Task(sooner_wire::ShapeId(0));
    on(&mut core, Peer::Worker(NEIGHBOUR), push(2, kind, object, Outcome::Stored(THE_COPY)));
    assert_eq!(
        slot.outcome().as_deref(),
        Some(&Outcome::Stored(THE_COPY)),
        "so that its block is known to be read here"
    );
    let second = Pulled { object, location: Some(THE_COPY), failure: None, tried: None };
    let back = to_node(FreeBlocks { places: vec![THE_COPY.place()] });
    assert_eq!(on(&mut core, Peer::Node, second), [back], "the owner's is enough");
}

#[test]
fn an_actor_whose_constructor_takes_a_remote_value_is_asked_for() {
    let (mut core, object, _slot) = owner();
    let actor = task(ME, 5);
    let demand = ActorDemand {
        placement: ResourceSet::default(),
        lifetime: ResourceSet::default(),
        restarts: 0,
        detached: false,
    };
    let mut out = Actions::new();
    let constructor = spec(actor, TaskKind::Creation, &[object]);
    core.create_actor(Arc::new(constructor), Arc::new(Slot::default()), demand, &mut out);
    let create = out.iter().find_map(|action| match action {
        Action::Send { message, .. } => match &**message {
            Message::CreateActor(create) => Some(create),
            _ => None,
        },
        _ => None,
    });
    let create = create.expect("it need not be brought here first");
    assert_eq!(create.constructor.dependencies[0].outcome, remote());
}

#[test]
fn two_nodes_with_messages_in_any_order() {
    let mut seen = two_nodes::Seen::default();
    for seed in 1..=400 {
        seen.add(&two_nodes::World::new(seed, 0).run());
    }
    seen.check_without_losses();
}

#[test]
fn two_nodes_that_lose_values() {
    let mut seen = two_nodes::Seen::default();
    for seed in 1..=400 {
        seen.add(&two_nodes::World::new(seed, 30).run());
    }
    seen.check_with_losses();
}
