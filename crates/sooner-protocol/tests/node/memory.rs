//! A node that is told how full its memory is: whom it has stopped, what it says, and what the owner hears.

use sooner_protocol::node::workers::memory::{Limited, Measured, Running, Stopped, Usage};
use sooner_wire::LeaseId;
use sooner_wire::message::{MemoryEnd, ReturnLease, WorkerDead};
use sooner_wire::resources::UNIT;

use super::*;

const GIB: u64 = 1 << 30;
const FIRST: WorkerId = WorkerId(101);
const SECOND: WorkerId = WorkerId(102);

/// A node whose workers run one task each, with 12 GiB that can be reserved.
fn busy() -> Solo {
    let total =
        ResourceSet::from_amounts([("CPU".to_owned(), 2.0), ("memory".to_owned(), 12.0 * GIB as f64)]);
    let mut node = Solo::new(total, 100, 2);
    node.on_connected(DRIVER, 1, NOW);
    assert!(!node.is_busy());
    send(&mut node, DRIVER, request(0, 2));
    connect(&mut node, FIRST);
    connect(&mut node, SECOND);
    assert!(node.is_busy());
    node
}

fn measured(worker: WorkerId, held: u64, name: &str, is_retriable: bool) -> Measured {
    let task = TaskId { owner: DRIVER, number: worker.0 };
    let running = Running { task, function: FunctionId(worker.0), name: name.to_owned(), is_retriable };
    Measured { worker, held: held * GIB, peak: held * GIB, running: Some(running) }
}

fn full() -> Usage {
    Usage { used: 15 * GIB, total: 16 * GIB, threshold: 14 * GIB, of: "this machine".to_owned() }
}

fn relieve(node: &mut Solo, measured: &[Measured]) -> (Option<Stopped>, NodeActions) {
    let mut out = NodeActions::new();
    node.on_measured(measured, NOW);
    let stopped = node.stop_for_memory(&full(), measured, &mut out);
    (stopped, out)
}

#[test]
fn a_worker_is_stopped_and_its_owner_hears_why() {
    let mut node = busy();
    let all = [measured(FIRST, 9, "firm", false), measured(SECOND, 5, "so\nft", true)];
    let (stopped, out) = relieve(&mut node, &all);
    let stopped = stopped.expect("one of them");
    assert_eq!((stopped.worker, out), (SECOND, vec![NodeAction::KillWorker(SECOND)]));
    assert_eq!(
        stopped.reason,
        "it was stopped because memory ran out: it held 5.00 GiB, and 15.00 GiB of 16.00 GiB of this machine were in use"
    );
    let lines: Vec<&str> = stopped.report.lines().collect();
    assert_eq!(lines.len(), 5, "{lines:?}");
    assert!(lines[2].starts_with("* 0000000000000066 ") && lines[2].ends_with("  task so ft"), "{lines:?}");
    assert!(lines[3].ends_with("  task firm, which is not retried"), "{lines:?}");
    let mut out = NodeActions::new();
    node.on_dead(SECOND, &stopped.reason, None, &mut out);
    let memory = MemoryEnd {
        report: stopped.report,
        held: 5 * GIB,
        reservable: 12 * GIB,
        by_kernel: None,
        limit: None,
    };
    let gone = WorkerDead {
        worker: SECOND,
        reason: stopped.reason,
        what: Some("worker (pid 9)".to_owned()),
        memory: Some(Box::new(memory)),
        ..WorkerDead::default()
    };
    assert_eq!(out[0], told(DRIVER, gone));
    assert_eq!(node.report().peaks.map(|peaks| peaks.len()), Some(2));
}

#[test]
fn drivers_and_those_it_does_not_know_are_never_chosen() {
    let mut node = busy();
    let strangers = [measured(DRIVER, 9, "program", true), measured(WorkerId(999), 9, "gone", true)];
    assert_eq!(relieve(&mut node, &strangers), (None, NodeActions::new()));
    assert_eq!(node.report().peaks, None);
}

#[test]
fn a_worker_that_the_kernel_ended_is_one_that_was_stopped() {
    let mut node = busy();
    let all = [measured(FIRST, 9, "large", true), measured(SECOND, 2, "small", true)];
    node.on_measured(&all, NOW);
    let left = Usage { used: 5 * GIB, ..full() };
    let running = all[0].running.clone();
    // It is as large as the hole it left, which is more than was seen of it.
    let stopped = node.on_ended_by_kernel(FIRST, running.clone(), &left, &all).expect("it is known");
    assert_eq!(
        stopped.reason,
        "the kernel ended it because memory ran out: it held about 11.00 GiB of 16.00 GiB of this machine"
    );
    let lines: Vec<&str> = stopped.report.lines().collect();
    assert!(lines[0].starts_with("16.00 GiB of 16.00 GiB of this machine were in use"), "{lines:?}");
    assert!(lines[0].ends_with("(memory_usage_threshold), but the kernel was faster."), "{lines:?}");
    assert!(lines[2].starts_with("* 0000000000000065 ") && lines[2].ends_with("  task large"), "{lines:?}");
    assert!(lines[3].ends_with("  task small") && lines.len() == 5, "each has one line: {lines:?}");
    assert_eq!(node.on_ended_by_kernel(FIRST, running, &left, &all), None, "that is known");
    let mut out = NodeActions::new();
    node.on_dead(FIRST, &stopped.reason, None, &mut out);
    let memory = MemoryEnd {
        report: stopped.report,
        held: 11 * GIB,
        reservable: 12 * GIB,
        by_kernel: Some(true),
        limit: None,
    };
    let gone = WorkerDead {
        worker: FIRST,
        reason: stopped.reason,
        what: Some("worker (pid 9)".to_owned()),
        memory: Some(Box::new(memory)),
        ..WorkerDead::default()
    };
    assert_eq!(out[0], told(DRIVER, gone));
}

#[test]
fn what_was_seen_of_a_task_is_the_least_that_it_held() {
    let all = [measured(FIRST, 9, "large", true)];
    // Others took what it had left before anybody looked.
    let left = Usage { used: 15 * GIB, ..full() };
    let other =
        Running { task: TaskId { owner: DRIVER, number: 7 }, ..all[0].running.clone().expect("it runs") };
    let about = |running| {
        let mut node = busy();
        node.on_measured(&all, NOW);
        node.on_ended_by_kernel(FIRST, running, &left, &[]).expect("it is known").reason
    };
    assert!(about(Some(other)).contains("it held about 1.00 GiB"), "that was seen of another task");
    assert!(about(all[0].running.clone()).contains("it held about 9.00 GiB"));
    assert_eq!(busy().on_ended_by_kernel(WorkerId(999), None, &left, &[]), None, "nobody knows it");
}

fn asking(shape: u32, memory: u64, raises: Option<bool>) -> RequestLease {
    let mut resources = cpus(1.0);
    resources.add_one("memory", memory * UNIT);
    RequestLease { resources, raises_memory: raises, ..request(shape, 1) }
}

/// What a node that limits these workers does to the memory of those that it leases, and when they come back.
fn limited(limited: Limited, asked: &[RequestLease]) -> Vec<NodeAction> {
    let total =
        ResourceSet::from_amounts([("CPU".to_owned(), 1.0), ("memory".to_owned(), 12.0 * GIB as f64 + 0.5)]);
    let mut node = Solo::new(total, 100, 1);
    node.set_memory_limits(limited);
    node.on_connected(DRIVER, 1, NOW);
    send(&mut node, DRIVER, request(9, 1));
    connect(&mut node, FIRST);
    send(&mut node, DRIVER, ReturnLease { lease: LeaseId(1) });
    let mut all = Vec::new();
    for (number, request) in (2..).zip(asked) {
        all.extend(send(&mut node, DRIVER, request.clone()));
        all.extend(send(&mut node, DRIVER, ReturnLease { lease: LeaseId(number) }));
    }
    node.check();
    all.into_iter().filter(|action| matches!(action, NodeAction::LimitMemory(..))).collect()
}

#[test]
fn a_limit_begins_and_ends_with_the_lease() {
    let set = |bytes| NodeAction::LimitMemory(FIRST, Some(bytes));
    let lifted = NodeAction::LimitMemory(FIRST, None);
    let asked = [
        asking(0, GIB, Some(true)),
        asking(1, 0, None),
        asking(2, 2 * GIB, Some(true)),
        asking(3, 3 * GIB, None),
        asking(4, 12 * GIB, Some(true)),
    ];
    let retried = [set(GIB), lifted.clone(), set(2 * GIB), lifted.clone()];
    assert_eq!(
        limited(Limited::Retried, &asked),
        retried,
        "nothing for who says nothing or has all there is"
    );
    let all = [&retried[..], &[set(3 * GIB), lifted]].concat();
    assert_eq!(limited(Limited::All, &asked), all);
    assert_eq!(limited(Limited::Nobody, &asked), []);
}

#[test]
fn a_limit_is_there_before_the_lease_is_used() {
    let mut node =
        Solo::new(ResourceSet::from_amounts([("CPU".to_owned(), 1.0), ("memory".to_owned(), 9e9)]), 100, 1);
    node.set_memory_limits(Limited::Retried);
    node.on_connected(DRIVER, 1, NOW);
    send(&mut node, DRIVER, asking(0, GIB, Some(true)));
    let out = connect(&mut node, FIRST);
    let limited = out.iter().position(|action| *action == NodeAction::LimitMemory(FIRST, Some(GIB)));
    let granted = |action: &NodeAction| matches!(action, NodeAction::Send(_, message) if matches!(**message, Message::LeaseGranted(_)));
    assert!(limited.expect("it has a limit") < out.iter().position(granted).expect("it is granted"));
}

#[test]
fn a_worker_that_the_kernel_ended_at_its_limit_says_which() {
    let mut node = busy();
    let all = [measured(FIRST, 9, "large", true), measured(SECOND, 2, "small", true)];
    let running = all[0].running.clone();
    let stopped =
        node.on_ended_at_limit(FIRST, running.clone(), 3 * GIB, &full(), &all).expect("it is known");
    assert_eq!(
        stopped.reason,
        "the kernel ended it because it took more memory than its limit of 3.00 GiB: it had reserved 0 B (memory=)"
    );
    let lines: Vec<&str> = stopped.report.lines().collect();
    assert_eq!(
        lines[0],
        "15.00 GiB of 16.00 GiB of this machine were in use; the worker had a limit of its own: 3.00 GiB for what it \
         reserved (worker_memory_limits)."
    );
    assert!(lines[2].starts_with("* 0000000000000065 ") && lines[2].ends_with("  task large"), "{lines:?}");
    assert_eq!(node.on_ended_at_limit(FIRST, running, 3 * GIB, &full(), &all), None, "that is known");
    let mut out = NodeActions::new();
    node.on_dead(FIRST, &stopped.reason, None, &mut out);
    let memory = MemoryEnd {
        report: stopped.report,
        held: 3 * GIB,
        reservable: 12 * GIB,
        by_kernel: None,
        limit: Some(3 * GIB),
    };
    let gone = WorkerDead {
        worker: FIRST,
        reason: stopped.reason,
        what: Some("worker (pid 9)".to_owned()),
        memory: Some(Box::new(memory)),
        ..WorkerDead::default()
    };
    assert_eq!(out[0], told(DRIVER, gone));
}

#[test]
fn who_was_ended_at_its_limit_hears_what_is_free_beside_others() {
    let total =
        ResourceSet::from_amounts([("CPU".to_owned(), 2.0), ("memory".to_owned(), 12.0 * GIB as f64)]);
    let reservable = |limited| {
        let mut node = Solo::new(total.clone(), 100, 2);
        node.set_memory_limits(limited);
        node.on_connected(DRIVER, 1, NOW);
        send(&mut node, DRIVER, asking(0, GIB, Some(true)));
        send(&mut node, DRIVER, asking(1, 7 * GIB, Some(true)));
        connect(&mut node, FIRST);
        connect(&mut node, SECOND);
        node.on_ended_at_limit(FIRST, None, 2 * GIB, &full(), &[]).expect("it is known");
        let mut out = NodeActions::new();
        node.on_dead(FIRST, "ended", None, &mut out);
        let gone = out.into_iter().find_map(|action| match action {
            NodeAction::Send(_, message) => match *message {
                Message::WorkerDead(gone) => gone.memory.map(|memory| memory.reservable / GIB),
                _ => None,
            },
            _ => None,
        });
        gone.expect("its owner hears of it")
    };
    assert_eq!(reservable(Limited::Retried), 5, "what it had, and four that nobody has");
    assert_eq!(reservable(Limited::All), 12);
}
