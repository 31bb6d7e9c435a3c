//! The node's pool of workers: who is served, who waits, and which workers end.

use sooner_protocol::engine::Solo;
use sooner_protocol::node::{NodeAction, NodeActions};
use sooner_protocol::time::Instant;
use sooner_wire::limits::{RETRY_PAUSE_NANOS, WORKER_IDLE_NANOS};
use sooner_wire::message::{
    Blocked, Connect, CreateActor, Infeasible, LeaseGranted, Message, Needed, ReclaimLease, RequestLease,
    Retired, ReturnLease, Unblocked, WorkerDead,
};
use sooner_wire::{LeaseId, ShapeId, WorkerId};

use super::{ACTOR, DRIVER, NOW, OTHER, after_events, connect, cpus, create, end, node, request, send, told};

/// Two clients are connected.
fn two_clients(count: f64) -> Solo {
    let mut node = node(count);
    node.on_connected(OTHER, 2, NOW);
    node
}

fn starts(out: &[NodeAction]) -> usize {
    out.iter().filter(|action| matches!(action, NodeAction::StartWorker(_))).count()
}

/// Who was granted a lease.
fn granted(out: &[NodeAction]) -> Vec<WorkerId> {
    let to = |action: &NodeAction| match action {
        NodeAction::Send(to, message) if matches!(**message, Message::LeaseGranted(_)) => Some(*to),
        _ => None,
    };
    out.iter().filter_map(to).collect()
}

fn ends(out: &[NodeAction]) -> Vec<WorkerId> {
    let to = |action: &NodeAction| match action {
        NodeAction::Send(to, message) if matches!(**message, Message::EndIdle(_)) => Some(*to),
        _ => None,
    };
    out.iter().filter_map(to).collect()
}

#[test]
fn a_lease_that_comes_back_goes_to_another_client() {
    let mut node = two_clients(1.0);
    // With the worker, an even number of clients: each settling makes two passes over them.
    let third = WorkerId(8);
    node.on_connected(third, 4, NOW);
    let clients = [DRIVER, OTHER, third];
    for client in clients {
        send(&mut node, client, request(0, 9));
    }
    let mut served = granted(&connect(&mut node, WorkerId(101)));
    for lease in 1..=5 {
        let holder = served[served.len() - 1];
        let mut out = send(&mut node, holder, ReturnLease { lease: LeaseId(lease) });
        // Each is a driver: their workers serve nobody else.
        for worker in super::jobs::started(&out) {
            out.extend(connect(&mut node, worker));
        }
        served.extend(granted(&out));
    }
    assert!(clients.iter().all(|client| served[..3].contains(client)), "{served:?}");
}

#[test]
fn a_lease_for_each_of_two_clients_that_ask_at_once() {
    let mut node = two_clients(2.0);
    for client in [DRIVER, OTHER] {
        let mut out = NodeActions::new();
        node.on_message(client, request(0, 5).into(), NOW, &mut out);
    }
    assert_eq!(starts(&after_events(&mut node, NOW)), 2);
    let mut order = [101, 102].map(|worker| granted(&connect(&mut node, WorkerId(worker)))).concat();
    order.sort_unstable();
    assert_eq!(order, [DRIVER, OTHER]);
}

#[test]
fn only_the_holder_returns_a_lease() {
    let mut node = two_clients(1.0);
    send(&mut node, DRIVER, request(0, 1));
    connect(&mut node, WorkerId(101));
    send(&mut node, OTHER, ReturnLease { lease: LeaseId(1) });
    assert!(!node.is_quiet());
    assert_eq!(node.report().workers[0].state, 2);
    send(&mut node, DRIVER, ReturnLease { lease: LeaseId(1) });
    assert!(node.is_quiet());
    assert_eq!(node.report().workers[0].state, 1);
}

#[test]
fn what_is_not_wanted_any_more_is_not_placed() {
    let mut node = two_clients(3.0);
    send(&mut node, DRIVER, request(0, 1));
    send(&mut node, DRIVER, request(1, 1));
    send(&mut node, OTHER, request(0, 1));
    assert_eq!(node.report().free, cpus(0.0), "three wait for workers");
    send(&mut node, DRIVER, request(0, 0));
    assert_eq!(node.report().free, cpus(1.0));
    assert!(!node.is_quiet());
    end(&mut node, OTHER);
    assert_eq!(node.report().free, cpus(2.0));
    let out = connect(&mut node, WorkerId(101));
    let lease = LeaseGranted { shape: ShapeId(1), lease: LeaseId(1), worker: WorkerId(101), gpus: vec![] };
    assert!(out.contains(&NodeAction::Send(DRIVER, Box::new(lease.into()))), "{out:?}");
    assert_eq!(granted(&out), [DRIVER]);
}

#[test]
fn a_node_that_waits_for_a_worker_is_not_quiet() {
    let mut node = two_clients(1.0);
    assert!(node.is_quiet());
    send(&mut node, DRIVER, RequestLease { resources: cpus(0.0), ..request(0, 1) });
    assert!(!node.is_quiet(), "a placement that takes nothing");
    connect(&mut node, WorkerId(101));
    assert!(!node.is_quiet(), "a lease that takes nothing");
    send(&mut node, DRIVER, ReturnLease { lease: LeaseId(1) });
    assert!(node.is_quiet());
}

#[test]
fn a_worker_that_cannot_be_started_is_tried_again() {
    let mut node = two_clients(1.0);
    let out = send(&mut node, DRIVER, request(0, 1));
    assert_eq!(out, [NodeAction::StartWorker(WorkerId(101))]);
    assert!(node.expects(WorkerId(101)) && !node.expects(WorkerId(102)));
    let mut out = NodeActions::new();
    node.on_start_failed(WorkerId(101), "no memory", &mut out);
    let text = "a worker process could not be started: no memory".to_owned();
    assert_eq!(out, [NodeAction::Warn(text)]);
    assert!(!node.expects(WorkerId(101)));
    assert_eq!(after_events(&mut node, NOW), [NodeAction::StartWorker(WorkerId(102))]);
}

#[test]
fn idle_workers_beyond_the_pool_end_after_a_while() {
    let mut node = two_clients(4.0);
    send(&mut node, DRIVER, request(0, 4));
    (101..=104).for_each(|worker| drop(connect(&mut node, WorkerId(worker))));
    assert_eq!(node.next_deadline(), None, "all are leased");
    (1..=2).for_each(|lease| drop(send(&mut node, DRIVER, ReturnLease { lease: LeaseId(lease) })));
    assert_eq!(node.next_deadline(), None, "the pool may keep them");
    send(&mut node, DRIVER, ReturnLease { lease: LeaseId(3) });
    let at = NOW.plus(WORKER_IDLE_NANOS);
    assert_eq!(node.next_deadline(), Some(at));
    assert_eq!(ends(&after_events(&mut node, Instant(at.0 - 1))), []);
    let ended = ends(&after_events(&mut node, at));
    assert_eq!(ended.len(), 1);
    assert_eq!((ends(&after_events(&mut node, at)), node.next_deadline()), (vec![], None));
    assert_eq!(granted(&send(&mut node, DRIVER, request(0, 2))), [DRIVER; 2], "the others may be leased");
}

#[test]
fn an_idle_worker_that_others_need_goes_on() {
    let mut node = two_clients(1.0);
    send(&mut node, DRIVER, request(0, 3));
    connect(&mut node, WorkerId(101));
    send(&mut node, WorkerId(101), Blocked {});
    connect(&mut node, WorkerId(102));
    send(&mut node, WorkerId(102), Blocked {});
    connect(&mut node, WorkerId(103));
    (1..=3).for_each(|lease| drop(send(&mut node, DRIVER, ReturnLease { lease: LeaseId(lease) })));
    let at = NOW.plus(WORKER_IDLE_NANOS);
    let mut asked = ends(&after_events(&mut node, at));
    let needed = |node: &mut Solo, worker, is_needed, at| {
        let mut out = NodeActions::new();
        node.on_message(worker, Needed { is_needed }.into(), at, &mut out);
        node.after_events(at, &mut out);
        node.check();
        ends(&out)
    };
    for _ in 0..2 {
        // One of three is too many. Another one may be needed less.
        let last = *asked.last().expect("one is asked");
        asked.extend(needed(&mut node, last, true, at));
    }
    let mut each = asked.clone();
    each.sort_unstable();
    assert_eq!(each, (101..=103).map(WorkerId).collect::<Vec<_>>());
    assert_eq!(needed(&mut node, asked[2], true, at), []);
    assert_eq!(node.next_deadline(), None, "nobody is asked in turns");
    assert_eq!(needed(&mut node, asked[1], false, at), [], "not before it has been idle for as long again");
    let later = at.plus(WORKER_IDLE_NANOS);
    assert_eq!(node.next_deadline(), Some(later));
    assert_eq!(ends(&after_events(&mut node, later)), [asked[1]]);
    // What is said out of turn changes nothing.
    send(&mut node, DRIVER, Needed { is_needed: true });
    node.check();
}

#[test]
fn a_retired_worker_serves_nobody_and_ends_when_nobody_needs_it() {
    let mut node = two_clients(1.0);
    send(&mut node, DRIVER, request(0, 2));
    connect(&mut node, WorkerId(101));
    assert!(ends(&send(&mut node, WorkerId(101), Retired {})).is_empty(), "its lease is not back");
    let out = send(&mut node, DRIVER, ReturnLease { lease: LeaseId(1) });
    assert_eq!((ends(&out), granted(&out)), (vec![WorkerId(101)], vec![]));
    assert_eq!(starts(&out), 1, "another worker serves the next lease");
    assert_eq!(ends(&send(&mut node, WorkerId(101), Needed { is_needed: true })), []);
    connect(&mut node, WorkerId(102));
    send(&mut node, DRIVER, ReturnLease { lease: LeaseId(2) });
    assert_eq!(
        ends(&after_events(&mut node, NOW.plus(3 * WORKER_IDLE_NANOS))),
        [],
        "it is not asked in turns"
    );
    assert_eq!(granted(&send(&mut node, DRIVER, request(0, 1))), [DRIVER]);
    assert_eq!(ends(&send(&mut node, WorkerId(101), Needed { is_needed: false })), [WorkerId(101)]);
    end(&mut node, WorkerId(101));

    // The word of the holder is faster than the worker's.
    send(&mut node, DRIVER, ReturnLease { lease: LeaseId(3) });
    assert_eq!(ends(&send(&mut node, WorkerId(102), Retired {})), [WorkerId(102)]);
}

#[test]
fn a_retired_worker_ends_with_its_job() {
    let mut node = two_clients(2.0);
    send(&mut node, DRIVER, request(0, 1));
    connect(&mut node, WorkerId(101));
    send(&mut node, WorkerId(101), Retired {});
    send(&mut node, DRIVER, ReturnLease { lease: LeaseId(1) });
    send(&mut node, WorkerId(101), Needed { is_needed: true });
    let shutdown = |action: &NodeAction| matches!(action, NodeAction::Send(WorkerId(101), message) if matches!(**message, Message::Shutdown(_)));
    assert!(end(&mut node, DRIVER).iter().any(shutdown));
}

#[test]
fn a_blocked_actor_lends_its_cpu() {
    let mut node = two_clients(1.0);
    send(&mut node, DRIVER, CreateActor { lifetime: cpus(1.0), ..create(ACTOR) });
    connect(&mut node, WorkerId(101));
    assert_eq!(node.report().free, cpus(0.0));
    for _ in 0..2 {
        send(&mut node, WorkerId(101), Blocked {});
        assert_eq!(node.report().free, cpus(1.0), "lent once");
    }
    send(&mut node, WorkerId(101), Unblocked {});
    assert_eq!(node.report().free, cpus(0.0));
    send(&mut node, WorkerId(101), Blocked {});
    end(&mut node, WorkerId(101));
    assert!(node.is_quiet());
}

#[test]
fn the_leases_of_a_dead_client_end_with_their_workers() {
    let mut node = two_clients(2.0);
    send(&mut node, DRIVER, request(0, 1));
    connect(&mut node, WorkerId(101));
    send(&mut node, OTHER, request(0, 1));
    connect(&mut node, WorkerId(102));
    let out = end(&mut node, OTHER);
    let kills: Vec<_> = out.iter().filter(|action| matches!(action, NodeAction::KillWorker(_))).collect();
    assert_eq!(kills, [&NodeAction::KillWorker(WorkerId(102))]);
    assert_eq!(end(&mut node, WorkerId(77)), [], "nobody knew it");
}

#[test]
fn a_client_with_as_many_leases_as_the_one_that_waits_keeps_them() {
    let mut node = two_clients(2.0);
    for (client, worker) in [(DRIVER, 101), (OTHER, 102)] {
        send(&mut node, client, request(0, 1));
        connect(&mut node, WorkerId(worker));
    }
    assert_eq!(send(&mut node, OTHER, request(0, 1)), []);
    let third = WorkerId(3);
    node.on_connected(third, 3, NOW);
    let out = send(&mut node, third, request(0, 1));
    assert!(
        matches!(&out[..], [NodeAction::Send(_, m)] if **m == Message::from(ReclaimLease { count: 1, lease: None })),
        "{out:?}"
    );
}

#[test]
fn a_lease_needs_a_worker_and_an_introduction() {
    let mut node = node(1.0);
    let worker = WorkerId(101);
    assert_eq!(send(&mut node, DRIVER, request(0, 5)), [NodeAction::StartWorker(worker)]);
    let granted = LeaseGranted { shape: ShapeId(0), lease: LeaseId(1), worker, gpus: Vec::new() };
    assert_eq!(connect(&mut node, worker), [NodeAction::Introduce(DRIVER, worker), told(DRIVER, granted)]);
}

#[test]
fn a_blocked_worker_lends_its_cpu() {
    let mut node = node(1.0);
    send(&mut node, DRIVER, request(0, 2));
    connect(&mut node, WorkerId(101));
    let out = send(&mut node, WorkerId(101), Blocked {});
    assert_eq!(out, [NodeAction::StartWorker(WorkerId(102))]);
    connect(&mut node, WorkerId(102));
    send(&mut node, WorkerId(101), Unblocked {});
    for lease in [1, 2] {
        send(&mut node, DRIVER, ReturnLease { lease: LeaseId(lease) });
    }
    assert!(node.is_quiet());
}

#[test]
fn an_impossible_demand_is_reported_once_and_stays() {
    let mut node = node(1.0);
    let report = Infeasible { asked: cpus(9.0), total: cpus(1.0), closed: None, reason: None };
    let impossible = RequestLease { resources: cpus(9.0), ..request(0, 1) };
    assert_eq!(send(&mut node, DRIVER, impossible.clone()), [told(DRIVER, report)]);
    assert_eq!(send(&mut node, DRIVER, impossible), []);
}

#[test]
fn a_client_with_more_leases_is_asked_to_share() {
    let mut node = node(2.0);
    send(&mut node, DRIVER, request(0, 10));
    connect(&mut node, WorkerId(101));
    connect(&mut node, WorkerId(102));
    let other = WorkerId(103);
    connect(&mut node, other);
    assert_eq!(send(&mut node, other, request(0, 1)), [told(DRIVER, ReclaimLease { count: 1, lease: None })]);
    assert_eq!(send(&mut node, other, request(0, 1)), [], "asked once until it is given");
}

#[test]
fn a_dead_worker_gives_everything_back_and_everyone_hears() {
    let mut node = node(1.0);
    let worker = WorkerId(101);
    send(&mut node, DRIVER, request(0, 1));
    connect(&mut node, worker);
    let mut out = NodeActions::new();
    node.on_dead(worker, "was killed by signal 9", None, &mut out);
    let (reason, what) = ("was killed by signal 9".to_owned(), Some("worker (pid 9)".to_owned()));
    let gone = WorkerDead {
        worker,
        reason,
        last_started: None,
        what,
        all_begun: None,
        unreachable: None,
        memory: None,
    };
    assert_eq!(out, [told(DRIVER, gone.clone())]);
    assert!(node.is_quiet());
    assert_eq!(send(&mut node, DRIVER, Connect { worker }), [told(DRIVER, gone)], "also whoever asks later");
}

#[test]
fn workers_that_end_before_they_are_there_are_replaced_ever_later() {
    let mut node = node(1.0);
    let mut now = NOW;
    let mut started = send(&mut node, DRIVER, request(0, 1));
    for end in 0..5 {
        let [NodeAction::StartWorker(worker)] = started[..] else { panic!("{end}: {started:?}") };
        node.on_dead(worker, "exited with status 1", None, &mut NodeActions::new());
        let mut out = after_events(&mut node, now);
        if end > 0 {
            assert_eq!(out, [], "after {end}");
            let next = node.next_deadline().expect("a pause");
            assert_eq!(next.since(now), RETRY_PAUSE_NANOS << (end - 1));
            now = next;
            out = after_events(&mut node, now);
        }
        started = out;
        assert_eq!(node.next_deadline(), None);
    }
    let [NodeAction::StartWorker(worker)] = started[..] else { panic!("{started:?}") };
    node.on_connected(worker, 2, now);
    let out = after_events(&mut node, now);
    assert!(matches!(out[..], [NodeAction::Introduce(..), NodeAction::Send(DRIVER, _)]), "{out:?}");
}
