//! What a node tells about itself: to tools, and to clients that ask for names and resources.

use sooner_protocol::engine::Solo;
use sooner_protocol::node::{NodeAction, NodeActions};
use sooner_wire::message::state::{ActorRow, DemandRow, NodeReport, WorkerRow};
use sooner_wire::message::{
    ActorReady, Answer, Blocked, CreateActor, FindName, KillActor, ListNames, Message, Query, QueryKind,
    RequestLease, ReserveName,
};
use sooner_wire::{ActorId, Blob, BlockId, ResourceSet, ShapeId, TaskId, WorkerId};

use super::{ACTOR, DRIVER, NOW, after_events, cpus, create, creation_of, end, node, request, send, told};

fn connect(node: &mut Solo, worker: u64, pid: u32) -> WorkerId {
    let worker = WorkerId(worker);
    assert!(node.expects(worker));
    node.on_connected(worker, pid, NOW);
    assert!(!node.expects(worker));
    after_events(node, NOW);
    worker
}

fn with_checkpoints(actor: ActorId) -> CreateActor {
    let mut create = create(actor);
    creation_of(&mut create).checkpoint_every = Some(5);
    create
}

fn answer(to: WorkerId, answer: Answer) -> NodeActions {
    vec![told(to, answer)]
}

fn reserve(actor: ActorId, name: &str) -> ReserveName {
    let (namespace, name) = ("space".to_owned(), name.to_owned());
    ReserveName { request: 3, namespace, name, actor, description: Blob::from(&b"how to call it"[..]) }
}

fn find(name: &str) -> FindName {
    FindName { request: 4, namespace: "space".to_owned(), name: name.to_owned() }
}

fn actor_row(node: &Solo) -> ActorRow {
    let [row] = &node.report().actors[..] else { panic!("one actor") };
    row.clone()
}

/// Phase, process, resources.
fn stage(node: &Solo) -> (u8, Option<WorkerId>, ResourceSet) {
    let row = actor_row(node);
    (row.phase, row.worker, row.resources)
}

#[test]
fn a_report_has_workers_leases_demands_and_blocks() {
    let mut node = node(2.0);
    assert_eq!(node.report(), NodeReport { total: cpus(2.0), free: cpus(2.0), ..NodeReport::default() });
    send(&mut node, DRIVER, request(0, 3));
    let worker = connect(&mut node, 101, 55);
    node.on_allocated(BlockId(64), DRIVER);
    send(
        &mut node,
        DRIVER,
        RequestLease {
            shape: ShapeId(1),
            resources: cpus(9.0),
            demand: 1,
            strategy: None,
            prefer: None,
            priority: None,
            raises_memory: None,
        },
    );
    let report = node.report();
    let leased = WorkerRow {
        worker,
        pid: 55,
        state: 2,
        client: Some(DRIVER),
        actor: None,
        blocked: false,
        resources: cpus(1.0),
        job: Some(DRIVER),
    };
    let starting = WorkerRow {
        worker: WorkerId(102),
        pid: 0,
        state: 0,
        client: None,
        actor: None,
        blocked: false,
        resources: ResourceSet::default(),
        job: Some(DRIVER),
    };
    assert_eq!(report.workers, [leased, starting]);
    let demand = |count, resources: f64, feasible| DemandRow {
        client: DRIVER,
        resources: cpus(resources),
        count,
        feasible,
    };
    assert_eq!(report.demands[1], demand(1, 9.0, false));
    assert!(report.demands[0].feasible);
    assert_eq!((report.leases, report.blocks, report.total), (1, 1, cpus(2.0)));
    assert_eq!(node.holders().len(), 1);
    assert!(!node.is_quiet());
    send(&mut node, worker, Blocked {});
    assert!(node.report().workers[0].blocked);
    send(&mut node, DRIVER, request(0, 0));
    let asked: Vec<u32> = node.report().demands.iter().map(|row| row.count).collect();
    assert_eq!(asked, [1], "what nobody asks for is not told");
}

#[test]
fn an_idle_worker_is_told_as_one() {
    let mut node = node(1.0);
    send(&mut node, DRIVER, request(0, 1));
    send(&mut node, DRIVER, request(0, 0));
    connect(&mut node, 101, 55);
    let states: Vec<u8> = node.report().workers.iter().map(|row| row.state).collect();
    assert_eq!(states, [1]);
}

#[test]
fn an_actor_is_told_in_each_of_its_stages() {
    let mut node = node(1.0);
    let nothing = ResourceSet::default();
    send(&mut node, DRIVER, reserve(ACTOR, "it"));
    assert_eq!(stage(&node), (0, None, nothing.clone()));
    send(&mut node, DRIVER, CreateActor { restarts: Some(1), ..with_checkpoints(ACTOR) });
    assert_eq!(stage(&node), (1, None, cpus(1.0)));
    let worker = connect(&mut node, 101, 55);
    assert_eq!(stage(&node), (2, Some(worker), cpus(0.5)));
    assert_eq!(node.report().workers[0].actor, Some(ACTOR));
    assert_eq!(node.report().workers[0].resources, cpus(0.5));
    send(&mut node, worker, ActorReady { actor: ACTOR, failure: None });
    let row = ActorRow {
        actor: ACTOR,
        owner: DRIVER,
        class: "Counter".to_owned(),
        name: Some(("space".to_owned(), "it".to_owned())),
        phase: 3,
        worker: Some(worker),
        pid: 55,
        death: None,
        resources: cpus(0.5),
        detached: Some(false),
        restarts: Some(0),
        checkpoints: Some(0),
        job: Some(DRIVER),
    };
    assert_eq!(actor_row(&node), row);
    end(&mut node, worker);
    assert_eq!(stage(&node), (5, None, cpus(1.0)));
    let second = connect(&mut node, 102, 56);
    assert_eq!(stage(&node), (5, Some(second), cpus(0.5)));
    assert_eq!(actor_row(&node).restarts, Some(1));
    send(&mut node, second, ActorReady { actor: ACTOR, failure: None });
    assert_eq!(stage(&node).0, 3);
    end(&mut node, second);
    assert_eq!(stage(&node), (4, None, nothing));
    assert!(actor_row(&node).death.is_some_and(|why| why.contains("signal 9")));
}

#[test]
fn an_actor_without_checkpoints_tells_of_none() {
    let mut node = node(1.0);
    send(&mut node, DRIVER, create(ACTOR));
    assert_eq!(actor_row(&node).checkpoints, None);
}

#[test]
fn a_name_is_found_until_its_actor_ends() {
    let mut node = node(1.0);
    let description = Some(Blob::from(&b"how to call it"[..]));
    let out = send(&mut node, DRIVER, reserve(ACTOR, "it"));
    assert_eq!(out, answer(DRIVER, Answer { request: 3, ..Answer::default() }));
    let found = Answer { request: 4, actor: Some(ACTOR), description, ..Answer::default() };
    assert_eq!(send(&mut node, DRIVER, find("it")), answer(DRIVER, found.clone()));

    let second = TaskId { owner: DRIVER, number: 8 };
    let out = send(&mut node, DRIVER, reserve(second, "it"));
    let [NodeAction::Send(DRIVER, taken)] = &out[..] else { panic!("{out:?}") };
    let Message::Answer(taken) = &**taken else { panic!("{taken:?}") };
    assert_eq!((taken.actor, &taken.description), (found.actor, &found.description));
    assert!(taken.error.as_ref().is_some_and(|error| error.contains("\"it\" exists")), "{:?}", taken.error);

    send(&mut node, DRIVER, reserve(second, "other"));
    send(&mut node, DRIVER, KillActor { actor: ACTOR, may_restart: None });
    let out = send(&mut node, DRIVER, find("it"));
    let [NodeAction::Send(DRIVER, missing)] = &out[..] else { panic!("{out:?}") };
    let Message::Answer(missing) = &**missing else { panic!("{missing:?}") };
    assert_eq!((missing.request, missing.actor), (4, None));
    assert!(missing.error.as_ref().is_some_and(|error| error.contains("no actor named \"it\"")));
    let out = send(&mut node, DRIVER, find("other"));
    assert!(
        matches!(&out[..], [NodeAction::Send(_, m)] if matches!(&**m, Message::Answer(a) if a.actor == Some(second)))
    );
}

#[test]
fn names_are_listed_by_namespace() {
    let mut node = node(1.0);
    send(&mut node, DRIVER, reserve(ACTOR, "it"));
    let pair = || ("space".to_owned(), "it".to_owned());
    let mut listed = |namespace: Option<&str>| {
        let list = ListNames { request: 9, namespace: namespace.map(str::to_owned) };
        send(&mut node, DRIVER, list)
    };
    let names = |names| answer(DRIVER, Answer { request: 9, names: Some(names), ..Answer::default() });
    assert_eq!(listed(None), names(vec![pair()]));
    assert_eq!(listed(Some("space")), names(vec![pair()]));
    assert_eq!(listed(Some("elsewhere")), names(vec![]));
}

#[test]
fn resources_and_workers_are_told_to_whoever_asks() {
    let mut node = node(2.0);
    send(&mut node, DRIVER, RequestLease { resources: cpus(0.5), ..request(0, 1) });
    let worker = connect(&mut node, 101, 55);
    let mut ask = |from, what| {
        let out = send(&mut node, from, Query { request: 5, what });
        let [NodeAction::Send(to, message)] = &out[..] else { panic!("{out:?}") };
        let Message::Answer(reply) = &**message else { panic!("{message:?}") };
        assert_eq!((*to, reply.request), (from, 5));
        reply.clone()
    };
    assert_eq!(ask(DRIVER, QueryKind::TotalResources).resources, Some(cpus(2.0)));
    assert_eq!(ask(DRIVER, QueryKind::AvailableResources).resources, Some(cpus(1.5)));
    assert_eq!(ask(DRIVER, QueryKind::Workers).numbers, Some(vec![55].into()));
    assert_eq!(ask(worker, QueryKind::Own).resources, Some(cpus(0.5)));
    assert_eq!(ask(DRIVER, QueryKind::Own), Answer { request: 5, ..Answer::default() });
}

#[test]
fn the_process_of_an_actor_knows_its_name_and_what_it_holds() {
    let mut node = node(1.0);
    send(&mut node, DRIVER, reserve(ACTOR, "it"));
    send(&mut node, DRIVER, create(ACTOR));
    let worker = connect(&mut node, 101, 55);
    let names = Some(vec![("space".to_owned(), "it".to_owned())]);
    let own = Answer { request: 5, names, resources: Some(cpus(0.5)), ..Answer::default() };
    assert_eq!(send(&mut node, worker, Query { request: 5, what: QueryKind::Own }), answer(worker, own));
}

#[test]
fn a_kill_that_allows_a_restart_leaves_an_actor_alone_that_is_starting_again() {
    let mut node = node(1.0);
    let kill = |may_restart| KillActor { actor: ACTOR, may_restart };
    send(&mut node, DRIVER, CreateActor { restarts: Some(2), ..create(ACTOR) });
    let worker = connect(&mut node, 101, 55);
    send(&mut node, worker, ActorReady { actor: ACTOR, failure: None });
    assert_eq!(send(&mut node, DRIVER, kill(Some(true))), [NodeAction::KillWorker(worker)]);
    end(&mut node, worker);
    assert_eq!(send(&mut node, DRIVER, kill(Some(true))), []);
    assert_eq!(stage(&node).0, 5, "its second process is coming");
    send(&mut node, DRIVER, kill(None));
    assert_eq!(stage(&node).0, 4);
}

#[test]
fn a_kill_that_allows_a_restart_ends_an_actor_that_has_none_left() {
    let kill = KillActor { actor: ACTOR, may_restart: Some(true) };
    let mut waiting = node(1.0);
    send(&mut waiting, DRIVER, create(ACTOR));
    send(&mut waiting, DRIVER, kill.clone());
    assert_eq!(stage(&waiting).0, 4, "it never ran");
    let mut running = node(1.0);
    send(&mut running, DRIVER, create(ACTOR));
    let worker = connect(&mut running, 101, 55);
    send(&mut running, DRIVER, kill);
    end(&mut running, worker);
    assert!(actor_row(&running).death.is_some_and(|why| why.contains("sooner.kill()")));
}

#[test]
fn actors_end_with_their_owner_unless_they_are_detached() {
    let mut node = node(4.0);
    let owner = WorkerId(50);
    node.on_connected(owner, 9, NOW);
    let ids: Vec<ActorId> = (1..=4).map(|number| TaskId { owner, number }).collect();
    send(&mut node, owner, create(ids[0]));
    send(&mut node, owner, CreateActor { detached: Some(true), ..create(ids[1]) });
    let workers = [connect(&mut node, 101, 55), connect(&mut node, 102, 56)];
    send(&mut node, owner, reserve(ids[2], "early"));
    let others = TaskId { owner: DRIVER, number: 1 };
    send(&mut node, DRIVER, reserve(others, "stays"));
    let out = end(&mut node, owner);
    assert!(out.contains(&NodeAction::KillWorker(workers[0])), "{out:?}");
    assert!(!out.contains(&NodeAction::KillWorker(workers[1])), "{out:?}");
    let phases: Vec<(ActorId, u8)> = node.report().actors.iter().map(|row| (row.actor, row.phase)).collect();
    assert_eq!(phases, [(ids[0], 2), (ids[1], 2), (ids[2], 4), (others, 0)]);
    end(&mut node, workers[0]);
    let why = node.report().actors[0].death.clone().unwrap_or_default();
    assert!(why.contains("ended with the process that owned it"), "{why}");
    let out = send(&mut node, DRIVER, ListNames { request: 1, namespace: None });
    let names = Some(vec![("space".to_owned(), "stays".to_owned())]);
    assert_eq!(out, answer(DRIVER, Answer { request: 1, names, ..Answer::default() }));
}
