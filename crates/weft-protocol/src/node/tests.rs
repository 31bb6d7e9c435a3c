//! Exact actions of the node core.

use weft_wire::message::{Define, Push, TaskKind, TaskSpec};
use weft_wire::{Blob, FunctionId, Name};

use super::*;

const DRIVER: WorkerId = WorkerId(1);
const NOW: Instant = Instant(0);

fn cpus(count: f64) -> ResourceSet {
    ResourceSet::from_amounts([("CPU".to_owned(), count)])
}

fn node(count: f64) -> NodeCore {
    let mut node = NodeCore::new(cpus(count), 100, 2);
    node.on_connected(DRIVER, 1, NOW);
    node
}

fn say(node: &mut NodeCore, from: WorkerId, message: impl Into<Message>) -> NodeActions {
    let mut out = NodeActions::new();
    assert_eq!(node.on_message(from, message.into(), NOW, &mut out), None);
    node.settle(NOW, &mut out);
    node.check();
    out
}

fn request(count: f64, demand: u32) -> RequestLease {
    RequestLease { shape: ShapeId(0), resources: cpus(count), demand }
}

fn connect(node: &mut NodeCore, worker: WorkerId) -> NodeActions {
    let mut out = NodeActions::new();
    node.on_connected(worker, 2, NOW);
    node.settle(NOW, &mut out);
    out
}

#[test]
fn a_lease_needs_a_worker_and_an_introduction() {
    let mut node = node(1.0);
    let worker = WorkerId(101);
    assert_eq!(say(&mut node, DRIVER, request(1.0, 5)), [NodeAction::StartWorker(worker)]);
    let granted = LeaseGranted { shape: ShapeId(0), lease: LeaseId(1), worker, gpus: Vec::new() };
    assert_eq!(
        connect(&mut node, worker),
        [NodeAction::Introduce(DRIVER, worker), NodeAction::Send(DRIVER, Box::new(granted.into())),]
    );
}

#[test]
fn a_blocked_worker_lends_its_cpu() {
    let mut node = node(1.0);
    say(&mut node, DRIVER, request(1.0, 2));
    connect(&mut node, WorkerId(101));
    let out = say(&mut node, WorkerId(101), weft_wire::message::Blocked {});
    assert_eq!(out, [NodeAction::StartWorker(WorkerId(102))]);
    connect(&mut node, WorkerId(102));
    say(&mut node, WorkerId(101), weft_wire::message::Unblocked {});
    for lease in [1, 2] {
        say(&mut node, DRIVER, weft_wire::message::ReturnLease { lease: LeaseId(lease) });
    }
    assert!(node.is_quiet());
}

#[test]
fn an_impossible_demand_is_reported_once_and_stays() {
    let mut node = node(1.0);
    let report = Infeasible { asked: cpus(9.0), total: cpus(1.0) };
    let out = say(&mut node, DRIVER, request(9.0, 1));
    assert_eq!(out, [NodeAction::Send(DRIVER, Box::new(report.into()))]);
    assert_eq!(say(&mut node, DRIVER, request(9.0, 1)), []);
}

#[test]
fn a_client_with_more_leases_is_asked_to_share() {
    let mut node = node(2.0);
    say(&mut node, DRIVER, request(1.0, 10));
    connect(&mut node, WorkerId(101));
    connect(&mut node, WorkerId(102));
    let other = WorkerId(103);
    connect(&mut node, other);
    let out = say(&mut node, other, request(1.0, 1));
    assert_eq!(out, [NodeAction::Send(DRIVER, Box::new(ReclaimLease { count: 1 }.into()))]);
    assert_eq!(say(&mut node, other, request(1.0, 1)), [], "asked once until it is given");
}

#[test]
fn a_dead_worker_gives_everything_back_and_everyone_hears() {
    let mut node = node(1.0);
    say(&mut node, DRIVER, request(1.0, 1));
    connect(&mut node, WorkerId(101));
    let mut out = NodeActions::new();
    node.on_gone(WorkerId(101), "was killed by signal 9", None, &mut out);
    let reason = "was killed by signal 9".to_owned();
    let what = Some("worker (pid 2)".to_owned());
    let gone = WorkerGone { worker: WorkerId(101), reason, last_started: None, what };
    assert_eq!(out, [NodeAction::Send(DRIVER, Box::new(gone.clone().into()))]);
    assert!(node.is_quiet());
    let late = say(&mut node, DRIVER, weft_wire::message::Connect { worker: WorkerId(101) });
    assert_eq!(late, [NodeAction::Send(DRIVER, Box::new(gone.into()))], "also whoever asks later");
}

fn create(actor: ActorId) -> CreateActor {
    let spec = TaskSpec {
        concurrency: 1,
        ..TaskSpec::new(actor, TaskKind::Creation, FunctionId(1), Name::from("Counter"), Blob::default())
    };
    CreateActor {
        actor,
        placement: cpus(1.0),
        lifetime: ResourceSet::default(),
        class: Box::new(Define {
            function: FunctionId(1),
            name: Name::from("Counter"),
            code: Blob::default(),
            references: Vec::new(),
            place: None,
        }),
        constructor: Box::new(Push { spec: Box::new(spec), dependencies: Vec::new(), gpus: Vec::new() }),
        restarts: None,
        detached: None,
    }
}

#[test]
fn an_actor_is_placed_announced_and_buried() {
    let mut node = node(1.0);
    let actor = TaskId { owner: DRIVER, number: 7 };
    let worker = WorkerId(101);
    assert_eq!(say(&mut node, DRIVER, create(actor)), [NodeAction::StartWorker(worker)]);
    let out = connect(&mut node, worker);
    assert_eq!(out.len(), 4, "class, constructor, introduction, announcement: {out:?}");
    assert_eq!(out[2], NodeAction::Introduce(DRIVER, worker));
    let out = say(&mut node, DRIVER, weft_wire::message::KillActor { actor, may_restart: None });
    assert_eq!(out, [NodeAction::KillWorker(worker)]);
    let mut out = NodeActions::new();
    node.on_gone(worker, "was killed by signal 9", None, &mut out);
    let NodeAction::Send(DRIVER, dead) = &out[1] else { panic!("the caller hears: {out:?}") };
    let Message::ActorDead(dead) = &**dead else { panic!("of its end: {dead:?}") };
    assert!(dead.failure.message.contains("weft.kill()"), "{}", dead.failure.message);
    assert!(node.is_quiet());
}

#[test]
fn a_lost_block_is_used_again_when_every_process_has_forgotten_it() {
    use weft_wire::message::{BlocksLost, ForgetLost, FreeBlocks, LoseBlocks, StillRead};
    let mut node = node(1.0);
    say(&mut node, DRIVER, request(1.0, 1));
    connect(&mut node, WorkerId(101));
    node.on_allocated(64, DRIVER);
    let told = |who, offsets: &[u64]| {
        NodeAction::Send(who, Box::new(BlocksLost { offsets: offsets.to_vec() }.into()))
    };
    let out = say(&mut node, DRIVER, LoseBlocks { offsets: vec![64, 128] });
    assert_eq!(out, [told(DRIVER, &[64]), told(WorkerId(101), &[64])], "nobody holds block 128");
    assert_eq!(say(&mut node, DRIVER, LoseBlocks { offsets: vec![64] }), [], "that is known");
    say(&mut node, DRIVER, request(1.0, 2));
    let late = node.new_worker_id();
    node.on_connected(late, 3, NOW);
    let mut out = NodeActions::new();
    node.settle(NOW, &mut out);
    assert!(out.contains(&told(late, &[64])));
    let out = say(&mut node, DRIVER, FreeBlocks { offsets: vec![64] });
    let Some(NodeAction::Send(_, message)) = out.first() else { panic!("{out:?}") };
    let Message::ForgetLost(ForgetLost { round, .. }) = **message else { panic!("{message:?}") };
    let answer = StillRead { round, offsets: Vec::new(), lent: None };
    assert_eq!(say(&mut node, DRIVER, answer.clone()), []);
    assert_eq!(say(&mut node, late, answer.clone()), []);
    assert_eq!(say(&mut node, WorkerId(101), answer), [NodeAction::FreeBlock(64)]);
}

fn kill(node: &mut NodeCore, worker: WorkerId) {
    let mut out = NodeActions::new();
    node.on_gone(worker, "was killed by signal 9", None, &mut out);
    node.settle(NOW, &mut out);
}

#[test]
fn what_is_known_of_a_process_goes_with_it() {
    let mut node = node(1.0);
    let actor = TaskId { owner: DRIVER, number: 7 };
    say(&mut node, DRIVER, create(actor));
    connect(&mut node, WorkerId(101));
    for number in 0..10 {
        let caller = WorkerId(2000 + number);
        connect(&mut node, caller);
        say(&mut node, caller, weft_wire::message::SubscribeActor { actor });
        assert_eq!(node.actors[&actor].subscribers.len(), 2);
        kill(&mut node, caller);
    }
    assert_eq!(node.actors[&actor].subscribers.len(), 1, "the driver");
    assert_eq!(node.clients[&WorkerId(101)].introduced, Set::from_iter([DRIVER]));
}

#[test]
fn only_the_latest_ended_actors_are_remembered() {
    let mut node = node(1.0);
    let ended = weft_wire::limits::ENDED_MAX as u64 + 20;
    for number in 0..ended {
        let actor = TaskId { owner: DRIVER, number };
        let out = say(&mut node, DRIVER, create(actor));
        let [NodeAction::StartWorker(worker)] = out[..] else { panic!("{out:?}") };
        connect(&mut node, worker);
        say(&mut node, DRIVER, weft_wire::message::ActorOutOfScope { actor });
        kill(&mut node, worker);
        // Somebody who knows it from elsewhere ends it, too.
        let unknown = TaskId { owner: WorkerId(9999), number };
        say(&mut node, DRIVER, weft_wire::message::KillActor { actor: unknown, may_restart: None });
    }
    assert_eq!(node.actors.len(), weft_wire::limits::ENDED_MAX);
    assert_eq!(node.ended_actors.len(), weft_wire::limits::ENDED_MAX);
    let kept = node.actors.values().all(|actor| matches!(actor.phase, ActorPhase::Dead(_)));
    assert!(kept && node.is_quiet());
}

#[test]
fn workers_that_end_before_they_are_there_are_replaced_ever_later() {
    let mut node = node(1.0);
    let mut now = NOW;
    let mut started = say(&mut node, DRIVER, request(1.0, 1));
    for end in 0..5 {
        let [NodeAction::StartWorker(worker)] = started[..] else { panic!("{end}: {started:?}") };
        let mut out = NodeActions::new();
        node.on_gone(worker, "exited with status 1", None, &mut out);
        out.clear();
        node.settle(now, &mut out);
        if end > 0 {
            assert_eq!(out, [], "after {end}");
            let next = node.next_deadline().expect("a pause");
            assert_eq!(next.since(now), weft_wire::limits::RETRY_PAUSE_NANOS << (end - 1));
            now = next;
            node.settle(now, &mut out);
        }
        started = out;
        assert_eq!(node.next_deadline(), None);
    }
    let [NodeAction::StartWorker(worker)] = started[..] else { panic!("{started:?}") };
    let mut out = NodeActions::new();
    node.on_connected(worker, 2, now);
    node.settle(now, &mut out);
    assert!(matches!(out[..], [NodeAction::Introduce(..), NodeAction::Send(DRIVER, _)]), "{out:?}");
}

#[test]
fn an_actor_whose_constructor_kills_it_is_restarted_ever_later() {
    let mut node = node(1.0);
    let actor = TaskId { owner: DRIVER, number: 7 };
    let mut now = NOW;
    let mut started = say(&mut node, DRIVER, CreateActor { restarts: Some(-1), ..create(actor) });
    for end in 0..4 {
        let [NodeAction::StartWorker(worker)] = started[..] else { panic!("{end}: {started:?}") };
        connect(&mut node, worker);
        let mut out = NodeActions::new();
        node.on_gone(worker, "was killed by signal 9", None, &mut out);
        out.clear();
        node.settle(now, &mut out);
        if end > 0 {
            assert_eq!(out, [], "after {end}");
            let next = node.next_deadline().expect("a pause");
            assert_eq!(next.since(now), weft_wire::limits::RETRY_PAUSE_NANOS << (end - 1));
            now = next;
            node.settle(now, &mut out);
        }
        started = out;
    }
}

#[test]
fn an_actor_that_waits_for_arguments_is_known_to_others() {
    use weft_wire::message::{ActorDead, SubscribeActor};
    let mut node = node(1.0);
    let other = WorkerId(7);
    node.on_connected(other, 3, NOW);
    let actor = TaskId { owner: DRIVER, number: 1 };
    assert_eq!(say(&mut node, DRIVER, SubscribeActor { actor }), []);
    assert_eq!(say(&mut node, other, SubscribeActor { actor }), []);
    // An argument of its constructor fails.
    let failure = Failure::new(FailureCode::WorkerCrashed, "gone");
    let out = say(&mut node, DRIVER, ActorReady { actor, failure: Some(failure.clone()) });
    let dead =
        |to: WorkerId| NodeAction::Send(to, Box::new(ActorDead { actor, failure: failure.clone() }.into()));
    assert_eq!(out, [dead(DRIVER), dead(other)]);
}

#[test]
fn an_actor_is_looked_up_behind_what_its_owner_said() {
    use weft_wire::message::{ActorDead, ForgetLost, StillRead, SubscribeActor};
    let mut node = node(1.0);
    let other = WorkerId(7);
    node.on_connected(other, 3, NOW);
    let actor = TaskId { owner: DRIVER, number: 1 };
    let question = |round| ForgetLost { round, offsets: Vec::new() };
    let asked = |round| vec![NodeAction::Send(DRIVER, Box::new(question(round).into()))];
    let (first, second) = (1 << 63, (1 << 63) + 1);
    // The owner's word comes over another connection, after the question of a process that has the handle.
    assert_eq!(say(&mut node, other, SubscribeActor { actor }), asked(first));
    assert_eq!(say(&mut node, DRIVER, SubscribeActor { actor }), []);
    assert_eq!(say(&mut node, DRIVER, StillRead { round: first, offsets: Vec::new(), lent: None }), []);
    // One that is gone stays gone.
    let gone = TaskId { owner: DRIVER, number: 2 };
    assert_eq!(say(&mut node, other, SubscribeActor { actor: gone }), asked(second));
    let out = say(&mut node, DRIVER, StillRead { round: second, offsets: Vec::new(), lent: None });
    let [NodeAction::Send(to, message)] = &out[..] else { panic!("one answer: {out:?}") };
    assert_eq!(*to, other);
    assert!(matches!(&**message, Message::ActorDead(ActorDead { actor, .. }) if *actor == gone));
}
