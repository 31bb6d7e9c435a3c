//! The directory of actors and their processes.

use sooner_protocol::node::{NodeAction, NodeActions};
use sooner_protocol::time::Instant;
use sooner_wire::limits::{ENDED_MAX, RETRY_PAUSE_NANOS};
use sooner_wire::message::{
    ActorDead, ActorOutOfScope, ActorReady, ActorStarted, CreateActor, Failure, FailureCode, ForgetLost,
    KillActor, Message, Resumed, ReturnLease, Round, StillRead, SubscribeActor, Suspended,
};
use sooner_wire::{LeaseId, Started, TaskId, WorkerId};

use super::{
    ACTOR, BEGUN, DRIVER, NOW, OTHER, after_events, connect, cpus, create, end, node, request, send, told,
};
use sooner_protocol::engine::Solo;

#[test]
fn an_actor_is_placed_announced_and_buried() {
    let mut node = node(1.0);
    let worker = WorkerId(101);
    assert_eq!(send(&mut node, DRIVER, create(ACTOR)), [NodeAction::StartWorker(worker)]);
    let out = connect(&mut node, worker);
    assert_eq!(out.len(), 4, "class, constructor, introduction, announcement: {out:?}");
    assert_eq!(out[2], NodeAction::Introduce(DRIVER, worker));
    let out = send(&mut node, DRIVER, KillActor { actor: ACTOR, may_restart: None });
    assert_eq!(out, [NodeAction::KillWorker(worker)]);
    let mut out = NodeActions::new();
    node.on_dead(worker, "was killed by signal 9", BEGUN, &mut out);
    let NodeAction::Send(DRIVER, dead) = &out[1] else { panic!("the caller hears: {out:?}") };
    let Message::ActorDead(dead) = &**dead else { panic!("of its end: {dead:?}") };
    assert!(dead.failure.message.contains("sooner.kill()"), "{}", dead.failure.message);
    assert!(node.is_quiet());
}

#[test]
fn what_was_set_aside_for_an_actor_that_is_ended_before_it_has_a_process_is_for_the_next() {
    for ends_by_kill in [true, false] {
        let mut node = node(1.0);
        let (first, second) = (ACTOR, TaskId { owner: DRIVER, number: 8 });
        let worker = WorkerId(101);
        assert_eq!(send(&mut node, DRIVER, whole(first)), [NodeAction::StartWorker(worker)]);
        let end: Message = if ends_by_kill {
            KillActor { actor: first, may_restart: None }.into()
        } else {
            ActorOutOfScope { actor: first }.into()
        };
        send(&mut node, DRIVER, end);
        // It needs the only CPU, and is the one whose constructor the worker gets.
        assert_eq!(send(&mut node, DRIVER, whole(second)), []);
        let out = connect(&mut node, worker);
        let begins = |action: &NodeAction| match action {
            NodeAction::Send(to, message) => {
                *to == worker && matches!(&**message, Message::Push(push) if push.spec.task == second)
            }
            _ => false,
        };
        assert!(out.iter().any(begins), "the next actor begins: {out:?}");
        end_and_settle(&mut node, worker);
    }
}

/// An actor that keeps the CPU which it needs to be placed.
fn whole(actor: TaskId) -> CreateActor {
    CreateActor { lifetime: cpus(1.0), ..create(actor) }
}

fn end_and_settle(node: &mut Solo, worker: WorkerId) {
    end(node, worker);
    assert!(node.is_quiet(), "nothing is left over");
}

#[test]
fn a_kill_that_lets_an_actor_restart_leaves_one_that_is_being_created_alone() {
    for restarts in [Some(1), Some(-1)] {
        let mut node = node(1.0);
        let kill = KillActor { actor: ACTOR, may_restart: Some(true) };
        let worker = WorkerId(101);
        // Before its creation has come, and while it waits for a process.
        send(&mut node, DRIVER, SubscribeActor { actor: ACTOR });
        assert_eq!(send(&mut node, DRIVER, kill.clone()), []);
        let create = CreateActor { restarts, ..create(ACTOR) };
        assert_eq!(send(&mut node, DRIVER, create), [NodeAction::StartWorker(worker)]);
        assert_eq!(send(&mut node, DRIVER, kill.clone()), []);
        assert_eq!(connect(&mut node, worker).len(), 4, "it begins");
        // From then on there is a process.
        assert_eq!(send(&mut node, DRIVER, kill), [NodeAction::KillWorker(worker)]);
    }
}

#[test]
fn a_kill_ends_an_actor_for_good_that_is_being_created_and_may_not_restart() {
    let mut node = node(1.0);
    send(&mut node, DRIVER, create(ACTOR));
    let out = send(&mut node, DRIVER, KillActor { actor: ACTOR, may_restart: Some(true) });
    let [NodeAction::Send(DRIVER, dead)] = &out[..] else { panic!("its creator hears: {out:?}") };
    assert!(matches!(&**dead, Message::ActorDead(_)));
}

#[test]
fn an_actor_whose_argument_is_made_again_holds_nothing_until_it_is_there() {
    let mut node = node(1.0);
    let (actor, other) = (WorkerId(101), WorkerId(102));
    send(&mut node, DRIVER, CreateActor { lifetime: cpus(1.0), ..create(ACTOR) });
    connect(&mut node, actor);
    assert_eq!(node.report().free, cpus(0.0));
    let suspended = |is_ready| Suspended { actor: ACTOR, is_ready };
    send(&mut node, other, suspended(false));
    assert_eq!(node.report().free, cpus(0.0), "that is not its process");
    send(&mut node, actor, suspended(false));
    assert_eq!(node.report().free, cpus(1.0));

    // The task that makes the argument.
    send(&mut node, DRIVER, request(0, 1));
    connect(&mut node, other);
    let resumed = Resumed { actor: ACTOR, gpus: Vec::new() };
    let resumes =
        |out: &[NodeAction]| out.contains(&NodeAction::Send(actor, Box::new(resumed.clone().into())));
    let out = send(&mut node, actor, suspended(true));
    assert!(!resumes(&out), "its resources are in use: {out:?}");
    let out = send(&mut node, DRIVER, ReturnLease { lease: LeaseId(1) });
    assert!(resumes(&out), "{out:?}");
    assert_eq!(node.report().free, cpus(0.0));

    send(&mut node, actor, suspended(false));
    end(&mut node, actor);
    assert_eq!(node.report().free, cpus(1.0), "it had nothing");
    assert!(node.is_quiet());
}

#[test]
fn an_actor_is_created_once_however_often_that_is_asked() {
    let mut node = node(2.0);
    for _ in 0..2 {
        send(&mut node, DRIVER, create(ACTOR));
    }
    connect(&mut node, WorkerId(101));
    assert_eq!(send(&mut node, DRIVER, create(ACTOR)), []);
    end(&mut node, WorkerId(101));
    assert!(node.is_quiet());
}

#[test]
fn only_the_latest_ended_actors_are_remembered() {
    let mut node = node(1.0);
    for number in 0..ENDED_MAX as u64 + 20 {
        let actor = TaskId { owner: DRIVER, number };
        let out = send(&mut node, DRIVER, create(actor));
        let [NodeAction::StartWorker(worker)] = out[..] else { panic!("{out:?}") };
        connect(&mut node, worker);
        send(&mut node, DRIVER, ActorOutOfScope { actor });
        end(&mut node, worker);
        // Somebody who knows it from elsewhere ends it, too.
        let unknown = TaskId { owner: WorkerId(9999), number };
        send(&mut node, DRIVER, KillActor { actor: unknown, may_restart: None });
    }
    let rows = node.report().actors;
    assert_eq!(rows.len(), ENDED_MAX);
    assert!(rows.iter().all(|row| row.phase == 4) && node.is_quiet());
}

/// The next worker of an actor, as soon as its pause is over.
fn started(node: &mut Solo, now: &mut Instant, mut out: NodeActions) -> WorkerId {
    while out.is_empty() {
        *now = node.next_deadline().expect("it is tried again");
        out = after_events(node, *now);
    }
    let [NodeAction::StartWorker(worker)] = out[..] else { panic!("{out:?}") };
    connect(node, worker);
    worker
}

/// A worker may end at the moment at which it becomes an actor: an earlier task ended it, or the kernel did.
#[test]
fn a_process_that_ends_before_anything_of_the_actor_has_begun_is_none_of_its_lives() {
    for restarts in [None, Some(1)] {
        let mut node = node(1.0);
        let mut now = NOW;
        let mut out = send(&mut node, DRIVER, CreateActor { restarts, ..whole(ACTOR) });
        let earlier = Some(Started { task: TaskId { owner: DRIVER, number: 1 }, in_actor: false });
        for ended in [None, earlier, None] {
            let worker = started(&mut node, &mut now, out);
            let mut gone = NodeActions::new();
            node.on_dead(worker, "was killed by signal 9", ended, &mut gone);
            let restarting = |action: &NodeAction| match action {
                NodeAction::Send(DRIVER, message) => match &**message {
                    Message::ActorRestarting(restarting) => Some(restarting.unbegun == Some(true)),
                    Message::ActorDead(dead) => panic!("it has never lived: {dead:?}"),
                    _ => None,
                },
                _ => None,
            };
            assert_eq!(gone.iter().filter_map(restarting).collect::<Vec<_>>(), [true]);
            out = after_events(&mut node, now);
        }
        // From here on it has begun: it has the lives that it was given.
        for _ in 0..=restarts.unwrap_or(0) {
            let worker = started(&mut node, &mut now, out);
            node.on_dead(worker, "was killed by signal 9", BEGUN, &mut NodeActions::new());
            out = after_events(&mut node, now);
        }
        assert!(node.report().actors[0].phase == 4 && node.is_quiet(), "{restarts:?}: it is dead");
    }
}

#[test]
fn an_actor_that_never_began_is_shown_and_ended_as_one_that_is_being_created() {
    let mut node = node(1.0);
    let out = send(&mut node, DRIVER, whole(ACTOR));
    let [NodeAction::StartWorker(worker)] = out[..] else { panic!("{out:?}") };
    connect(&mut node, worker);
    node.on_dead(worker, "was killed by signal 9", None, &mut NodeActions::new());
    let row = node.report().actors.remove(0);
    assert_eq!((row.phase, row.restarts), (1, Some(0)), "it waits for its first process");
    send(&mut node, DRIVER, KillActor { actor: ACTOR, may_restart: Some(true) });
    assert_eq!(node.report().actors[0].phase, 4, "it has no restarts");
}

#[test]
fn an_actor_whose_processes_never_come_to_begin_it_dies_in_the_end() {
    let mut node = node(1.0);
    let (mut now, mut ends) = (NOW, 0);
    let mut out = send(&mut node, DRIVER, create(ACTOR));
    while node.report().actors[0].phase != 4 {
        let worker = started(&mut node, &mut now, out);
        node.on_dead(worker, "was killed by signal 9", None, &mut NodeActions::new());
        out = after_events(&mut node, now);
        ends += 1;
        assert!(ends < 20, "what it is told may be what ends them");
    }
    assert!(ends > 3 && node.is_quiet(), "{ends}");
}

#[test]
fn an_actor_whose_constructor_kills_it_is_restarted_ever_later() {
    let mut node = node(1.0);
    let mut now = NOW;
    let mut started = send(&mut node, DRIVER, CreateActor { restarts: Some(-1), ..create(ACTOR) });
    for end in 0..4 {
        let [NodeAction::StartWorker(worker)] = started[..] else { panic!("{end}: {started:?}") };
        connect(&mut node, worker);
        node.on_dead(worker, "was killed by signal 9", BEGUN, &mut NodeActions::new());
        let mut out = after_events(&mut node, now);
        if end > 0 {
            assert_eq!(out, [], "after {end}");
            let next = node.next_deadline().expect("a pause");
            assert_eq!(next.since(now), RETRY_PAUSE_NANOS << (end - 1));
            now = next;
            out = after_events(&mut node, now);
        }
        started = out;
    }
}

#[test]
fn an_actor_that_waits_for_arguments_is_known_to_others() {
    let mut node = node(1.0);
    node.on_connected(OTHER, 3, NOW);
    let actor = TaskId { owner: DRIVER, number: 1 };
    assert_eq!(send(&mut node, DRIVER, SubscribeActor { actor }), []);
    assert_eq!(send(&mut node, OTHER, SubscribeActor { actor }), []);
    // An argument of its constructor fails.
    let failure = Failure::new(FailureCode::WorkerCrashed, "gone");
    let out = send(&mut node, DRIVER, ActorReady { actor, failure: Some(failure.clone()) });
    let dead = ActorDead { actor, failure };
    assert_eq!(out, [told(DRIVER, dead.clone()), told(OTHER, dead)]);
}

#[test]
fn an_actor_is_looked_up_behind_what_its_owner_said() {
    let mut node = node(1.0);
    node.on_connected(OTHER, 3, NOW);
    let actor = TaskId { owner: DRIVER, number: 1 };
    let asked = |round| vec![told(DRIVER, ForgetLost { round, blocks: Vec::new() })];
    let (first, second) = (Round::of_control(0), Round::of_control(1));
    // The owner's word comes over another connection, after the question of a process that has the handle.
    assert_eq!(send(&mut node, OTHER, SubscribeActor { actor }), asked(first));
    assert_eq!(send(&mut node, DRIVER, SubscribeActor { actor }), []);
    assert_eq!(send(&mut node, DRIVER, StillRead { round: first, places: Vec::new(), lent: None }), []);
    // One that is gone stays gone.
    let gone = TaskId { owner: DRIVER, number: 2 };
    assert_eq!(send(&mut node, OTHER, SubscribeActor { actor: gone }), asked(second));
    let out = send(&mut node, DRIVER, StillRead { round: second, places: Vec::new(), lent: None });
    let [NodeAction::Send(to, message)] = &out[..] else { panic!("one answer: {out:?}") };
    assert_eq!(*to, OTHER);
    assert!(matches!(&**message, Message::ActorDead(ActorDead { actor, .. }) if *actor == gone));
}

#[test]
fn whoever_asks_for_an_actor_of_a_dead_owner_hears_that_it_is_gone() {
    let mut node = node(1.0);
    node.on_connected(OTHER, 3, NOW);
    end(&mut node, DRIVER);
    let out = send(&mut node, OTHER, SubscribeActor { actor: ACTOR });
    let [NodeAction::Send(OTHER, message)] = &out[..] else { panic!("one answer: {out:?}") };
    assert!(matches!(&**message, Message::ActorDead(ActorDead { actor: ACTOR, .. })));
}

#[test]
fn processes_are_connected_before_they_hear_of_an_actor_also_when_they_lease_each_other() {
    let mut node = node(2.0);
    let (owner, home) = (WorkerId(101), WorkerId(102));
    send(&mut node, DRIVER, request(0, 2));
    for (number, worker) in [(1, owner), (2, home)] {
        connect(&mut node, worker);
        send(&mut node, DRIVER, ReturnLease { lease: LeaseId(number) });
    }
    send(&mut node, DRIVER, request(0, 0));
    // In one settling the actor goes to the other worker, and that one gets a lease of its owner.
    let actor = TaskId { owner, number: 1 };
    node.on_message(owner, create(actor).into(), NOW, &mut NodeActions::new());
    node.on_message(home, request(0, 1).into(), NOW, &mut NodeActions::new());
    let out = after_events(&mut node, NOW);
    let at = |wanted: &NodeAction| out.iter().position(|action| action == wanted);
    let started =
        told(owner, ActorStarted { actor, worker: home, concurrency: 1, replays: None, restarts: None });
    let connected = at(&NodeAction::Introduce(owner, home));
    assert!(connected.is_some() && connected < at(&started), "{out:?}");
    assert!(node.report().leases == 1, "{out:?}");
}

#[test]
fn an_actor_that_restarts_is_served_before_those_that_began_to_wait_later() {
    let mut node = node(1.0);
    let first = CreateActor { restarts: Some(-1), ..create(ACTOR) };
    let worker = WorkerId(101);
    send(&mut node, DRIVER, first);
    connect(&mut node, worker);
    // Its constructor ends the process twice. In the pause that follows a lease takes the CPU, and another
    // actor comes.
    end(&mut node, worker);
    connect(&mut node, WorkerId(102));
    end(&mut node, WorkerId(102));
    let later = node.next_deadline().expect("a pause");
    send(&mut node, DRIVER, request(0, 1));
    connect(&mut node, WorkerId(103));
    let second = TaskId { owner: DRIVER, number: 8 };
    send(&mut node, DRIVER, create(second));
    after_events(&mut node, later);
    node.on_message(DRIVER, ReturnLease { lease: LeaseId(1) }.into(), later, &mut NodeActions::new());
    after_events(&mut node, later);
    let places: Vec<_> = node.report().actors.iter().map(|row| (row.actor, row.worker)).collect();
    assert_eq!(places, [(ACTOR, Some(WorkerId(103))), (second, None)]);
}
