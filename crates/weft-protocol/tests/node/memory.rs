//! A node that is told how full its memory is: whom it has stopped, what it says, and what the owner hears.

use weft_protocol::node::memory::{Measured, Running, Stopped, Usage};
use weft_wire::message::{MemoryEnd, WorkerGone};

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
    say(&mut node, DRIVER, request(0, 2));
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
    node.on_gone(SECOND, &stopped.reason, None, &mut out);
    let memory = MemoryEnd { report: stopped.report, held: 5 * GIB, reservable: 12 * GIB };
    let gone = WorkerGone {
        worker: SECOND,
        reason: stopped.reason,
        what: Some("worker (pid 9)".to_owned()),
        memory: Some(Box::new(memory)),
        ..WorkerGone::default()
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
