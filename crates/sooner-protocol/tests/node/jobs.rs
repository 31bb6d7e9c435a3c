//! Several drivers on one node: workers, pauses and ends of one job are no other's.

use sooner_wire::message::{
    ExitActor, FreeBlocks, KillActor, LeaseGranted, Place, ReclaimLease, ReturnLease, Shutdown,
};
use sooner_wire::{BlockId, LeaseId, TaskId};

use super::*;

const THIRD: WorkerId = WorkerId(3);

/// Two drivers are connected.
fn two(count: f64) -> Solo {
    let mut node = node(count);
    connect(&mut node, OTHER);
    node
}

fn granted(to: WorkerId, lease: u64, worker: u64) -> NodeAction {
    let lease = LeaseId(lease);
    told(to, LeaseGranted { shape: ShapeId(1), lease, worker: WorkerId(worker), gpus: Vec::new() })
}

pub(super) fn started(out: &[NodeAction]) -> Vec<WorkerId> {
    let workers = out.iter().filter_map(|action| match action {
        NodeAction::StartWorker(worker) => Some(*worker),
        _ => None,
    });
    workers.collect()
}

fn killed(out: &[NodeAction]) -> Vec<WorkerId> {
    let workers = out.iter().filter_map(|action| match action {
        NodeAction::KillWorker(worker) => Some(*worker),
        _ => None,
    });
    workers.collect()
}

#[test]
fn a_worker_of_one_job_serves_no_other() {
    let mut node = two(2.0);
    assert_eq!(started(&send(&mut node, DRIVER, request(1, 1))), [WorkerId(101)]);
    let out = connect(&mut node, WorkerId(101));
    assert!(out.contains(&granted(DRIVER, 1, 101)), "{out:?}");
    send(&mut node, DRIVER, ReturnLease { lease: LeaseId(1) });
    // It is idle, and its job's.
    assert_eq!(started(&send(&mut node, OTHER, request(1, 1))), [WorkerId(102)]);
    assert_eq!(node.job_of(WorkerId(102)), OTHER);
    let out = connect(&mut node, WorkerId(102));
    assert!(out.contains(&granted(OTHER, 2, 102)), "{out:?}");
    let out = send(&mut node, DRIVER, request(1, 1));
    assert!(out.contains(&granted(DRIVER, 3, 101)), "{out:?}");
}

#[test]
fn one_job_that_waits_for_its_workers_holds_up_no_other() {
    let mut node = two(4.0);
    send(&mut node, DRIVER, request(1, 1));
    connect(&mut node, WorkerId(101));
    send(&mut node, DRIVER, ReturnLease { lease: LeaseId(1) });
    // The other job's worker never comes.
    assert_eq!(started(&send(&mut node, OTHER, request(1, 2))), [WorkerId(102), WorkerId(103)]);
    let out = send(&mut node, DRIVER, request(1, 1));
    assert!(out.contains(&granted(DRIVER, 2, 101)), "{out:?}");
}

#[test]
fn starts_that_fail_are_paused_for_their_job_only() {
    let mut node = two(8.0);
    send(&mut node, OTHER, request(1, 1));
    let mut worker = 101;
    let mut out = NodeActions::new();
    // Until it is made to wait.
    loop {
        node.on_start_failed(WorkerId(worker), "no template", &mut out);
        if started(&after_events(&mut node, NOW)).is_empty() {
            break;
        }
        worker += 1;
    }
    assert!(node.next_deadline().is_some_and(|at| at > NOW), "it is tried again");
    assert_eq!(started(&send(&mut node, DRIVER, request(1, 1))).len(), 1);
}

#[test]
fn the_end_of_a_driver_is_the_end_of_its_job_only() {
    let mut node = two(8.0);
    for driver in [DRIVER, OTHER] {
        send(&mut node, driver, request(1, 2));
    }
    for worker in 101..105 {
        connect(&mut node, WorkerId(worker));
    }
    send(&mut node, OTHER, ReturnLease { lease: LeaseId(3) });
    node.on_allocated(BlockId(64), OTHER);
    node.on_allocated(BlockId(128), DRIVER);
    let out = end(&mut node, OTHER);
    assert_eq!(killed(&out), [WorkerId(104)], "what it had leased");
    assert!(!node.is_over(OTHER));
    end(&mut node, WorkerId(103));
    end(&mut node, WorkerId(104));
    assert!(node.holders().is_held(Place::of(128)), "a value of the other driver");
    assert!(node.is_over(OTHER) && !node.is_over(DRIVER));
    let out = send(&mut node, DRIVER, FreeBlocks { places: vec![BlockId(128).into()] });
    assert_eq!(out, [NodeAction::FreeBlock(BlockId(128))]);
}

#[test]
fn a_worker_that_comes_after_the_end_of_its_job_ends() {
    let mut node = two(8.0);
    send(&mut node, OTHER, request(1, 1));
    end(&mut node, OTHER);
    let out = connect(&mut node, WorkerId(101));
    assert_eq!(out, [told(WorkerId(101), Shutdown { reason: "its job has ended".to_owned() })]);
}

/// An actor of the other driver, with a task of its own and an actor of its own that run.
fn detached(node: &mut Solo) -> ActorId {
    let actor = TaskId { owner: OTHER, number: 7 };
    send(node, OTHER, CreateActor { detached: Some(true), restarts: Some(1), ..create(actor) });
    connect(node, WorkerId(101));
    send(node, WorkerId(101), request(1, 1));
    connect(node, WorkerId(102));
    send(node, WorkerId(101), create(TaskId { owner: WorkerId(101), number: 1 }));
    connect(node, WorkerId(103));
    actor
}

#[test]
fn a_detached_actor_and_what_it_needs_outlive_their_job() {
    let mut node = two(8.0);
    detached(&mut node);
    send(&mut node, OTHER, create(TaskId { owner: OTHER, number: 8 }));
    connect(&mut node, WorkerId(104));
    let outliving: Vec<WorkerId> = node.outliving(OTHER).into_iter().collect();
    assert_eq!(outliving, [101, 102, 103].map(WorkerId));
    let out = end(&mut node, OTHER);
    assert_eq!(killed(&out), [WorkerId(104)], "the other actor of the driver");
    end(&mut node, WorkerId(104));
    assert!(!node.is_over(OTHER));
    // Its next process, and tasks of that one, come from the same job.
    let out = end(&mut node, WorkerId(101));
    assert_eq!(killed(&out), [102, 103].map(WorkerId));
    let next = started(&out);
    assert_eq!(next.len(), 1);
    assert_eq!(node.job_of(next[0]), OTHER);
    for worker in [102, 103] {
        end(&mut node, WorkerId(worker));
    }
    assert!(!node.is_over(OTHER));
    connect(&mut node, next[0]);
    end(&mut node, next[0]);
    assert!(node.is_over(OTHER), "there were no restarts left");
}

#[test]
fn idle_workers_stay_for_a_detached_actor() {
    let mut node = two(8.0);
    detached(&mut node);
    end(&mut node, OTHER);
    let out = send(&mut node, WorkerId(101), ReturnLease { lease: LeaseId(1) });
    assert_eq!(out, []);
    let out = send(&mut node, WorkerId(101), request(1, 1));
    assert!(out.contains(&granted(WorkerId(101), 2, 102)), "{out:?}");
}

#[test]
fn a_driver_that_leaves_lets_its_actors_end_in_order() {
    let mut node = two(8.0);
    let actor = TaskId { owner: OTHER, number: 7 };
    send(&mut node, OTHER, CreateActor { restarts: Some(-1), ..create(actor) });
    connect(&mut node, WorkerId(101));
    send(&mut node, OTHER, request(1, 1));
    let mut out = NodeActions::new();
    node.on_leaving(OTHER, &mut out);
    node.after_events(NOW, &mut out);
    assert_eq!(out, [told(WorkerId(101), ExitActor { actor })]);
    // Its worker was being started; no other one is, and the actor does not come back.
    assert_eq!(started(&connect(&mut node, WorkerId(102))), []);
    assert_eq!(started(&end(&mut node, WorkerId(101))), []);
    end(&mut node, OTHER);
    end(&mut node, WorkerId(102));
    assert!(node.is_over(OTHER));
}

#[test]
fn a_node_that_drains_begins_nothing_and_takes_leases_back() {
    let mut node = two(2.0);
    send(&mut node, DRIVER, request(1, 2));
    connect(&mut node, WorkerId(101));
    assert!(!node.is_drained());
    node.drain();
    let mut out = connect(&mut node, WorkerId(102));
    assert_eq!(
        out,
        [told(DRIVER, ReclaimLease { count: 1, lease: None })],
        "and the second lease is not granted"
    );
    out = send(&mut node, OTHER, request(1, 1));
    out.extend(send(&mut node, OTHER, create(TaskId { owner: OTHER, number: 1 })));
    assert_eq!(out, []);
    send(&mut node, DRIVER, ReturnLease { lease: LeaseId(1) });
    assert!(node.is_drained());
}

#[test]
fn a_third_driver_changes_nothing_for_the_first() {
    let mut node = two(2.0);
    send(&mut node, DRIVER, request(1, 1));
    connect(&mut node, WorkerId(101));
    connect(&mut node, THIRD);
    let out = end(&mut node, THIRD);
    assert_eq!(killed(&out), []);
    assert!(node.is_over(THIRD));
}

#[test]
fn what_the_last_process_leaves_is_free() {
    let mut node = node(2.0);
    send(&mut node, DRIVER, request(1, 1));
    connect(&mut node, WorkerId(101));
    node.on_allocated(BlockId(64), DRIVER);
    end(&mut node, DRIVER);
    assert!(node.holders().is_held(Place::of(64)), "the worker is asked");
    assert!(end(&mut node, WorkerId(101)).contains(&NodeAction::FreeBlock(BlockId(64))));
    assert!(node.holders().is_empty());
}

#[test]
fn an_actor_that_ends_before_it_has_a_process_makes_no_job_of_its_owner() {
    let mut node = node(3.0);
    send(&mut node, DRIVER, request(1, 1));
    let owner = WorkerId(101);
    connect(&mut node, owner);
    let actor = TaskId { owner, number: 1 };
    assert_eq!(started(&send(&mut node, owner, create(actor))), [WorkerId(102)]);
    let out = send(&mut node, owner, KillActor { actor, may_restart: None });
    assert_eq!(started(&out), [], "the one that comes is its job's");
    assert_eq!(node.job_of(WorkerId(102)), DRIVER);
}
