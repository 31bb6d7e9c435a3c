//! Workers that cannot be started, because something of the machine is used up.

use sooner_protocol::engine::Solo;
use sooner_protocol::node::{NodeAction, NodeActions};
use sooner_protocol::time::Instant;
use sooner_wire::limits::START_PATIENCE_NANOS;
use sooner_wire::message::{Blocked, Closed, FailureCode, Message, ReclaimLease, ReturnLease};
use sooner_wire::{LeaseId, WorkerId};

use super::jobs::started;
use super::{ACTOR, DRIVER, NOW, after_events, connect, create, node, request, send, told};

const WHY: &str = "no descriptors";
const SECOND: u64 = 1_000_000_000;

/// Fails all starts that are asked for, and those that follow at the times that the node names, until `end`.
/// Gives all that was done.
fn fail_starts(node: &mut Solo, first: NodeActions, from: Instant, end: Instant) -> NodeActions {
    let (mut all, mut out, mut now) = (NodeActions::new(), first, from);
    loop {
        for worker in started(&out) {
            node.on_start_failed(worker, WHY, &mut all);
        }
        all.extend(out);
        let next = node.next_deadline().filter(|at| *at <= end);
        let Some(next) = next else { return all };
        now = now.max(next);
        out = after_events(node, now);
        node.check();
    }
}

fn closed(out: &[NodeAction]) -> Vec<Closed> {
    let closed = |action: &NodeAction| match action {
        NodeAction::Send(DRIVER, message) => match &**message {
            Message::Infeasible(told) => told.closed.as_deref().cloned(),
            _ => None,
        },
        _ => None,
    };
    out.iter().filter_map(closed).collect()
}

fn deaths(out: &[NodeAction]) -> Vec<String> {
    let dead = |action: &NodeAction| match action {
        NodeAction::Send(DRIVER, message) => match &**message {
            Message::ActorDead(dead) => Some(dead.failure.message.clone()),
            _ => None,
        },
        _ => None,
    };
    out.iter().filter_map(dead).collect()
}

fn warnings(out: &[NodeAction]) -> usize {
    out.iter().filter(|action| matches!(action, NodeAction::Warn(_))).count()
}

#[test]
fn what_waits_in_vain_fails_with_the_cause_and_what_comes_later_is_tried() {
    let mut node = node(2.0);
    let first = send(&mut node, DRIVER, request(0, 5));
    let early = Instant(NOW.0 + START_PATIENCE_NANOS - 1);
    let out = fail_starts(&mut node, first, NOW, early);
    assert!(closed(&out).is_empty(), "not yet");
    assert_eq!(warnings(&out), 1, "it is said once");
    assert!(started(&out).len() > 10, "it is tried again and again");
    let first = after_events(&mut node, early);
    let out = fail_starts(&mut node, first, early, Instant(early.0 + 3 * SECOND));
    let [told] = &closed(&out)[..] else { panic!("one answer for all five: {out:?}") };
    assert_eq!((told.failure.code, told.for_now), (FailureCode::TaskUnschedulable, Some(true)));
    assert!(told.failure.message.ends_with(WHY), "{}", told.failure.message);
    assert!(node.is_quiet());
    // Later there is room.
    let late = Instant(early.0 + 100 * SECOND);
    let mut out = NodeActions::new();
    assert_eq!(node.on_message(DRIVER, request(0, 1).into(), late, &mut out), None);
    node.after_events(late, &mut out);
    let [worker] = started(&out)[..] else { panic!("it is tried: {out:?}") };
    let out = connect(&mut node, worker);
    let granted = |action: &NodeAction| matches!(action, NodeAction::Send(DRIVER, message) if matches!(**message, Message::LeaseGranted(_)));
    assert!(out.iter().any(granted), "{out:?}");
}

#[test]
fn what_comes_soon_after_fails_after_one_attempt_and_what_comes_late_waits_again() {
    let mut node = node(2.0);
    let first = send(&mut node, DRIVER, request(0, 1));
    let end = Instant(NOW.0 + START_PATIENCE_NANOS + 2 * SECOND);
    assert_eq!(closed(&fail_starts(&mut node, first, NOW, end)).len(), 1);
    for (pause, wait, fails) in [(5, 2, 1), (100, START_PATIENCE_NANOS / SECOND - 1, 0)] {
        let from = Instant(end.0 + pause * SECOND);
        let mut out = NodeActions::new();
        assert_eq!(node.on_message(DRIVER, request(0, 1).into(), from, &mut out), None);
        node.after_events(from, &mut out);
        let out = fail_starts(&mut node, out, from, Instant(from.0 + wait * SECOND));
        assert!(!started(&out).is_empty());
        assert_eq!(closed(&out).len(), fails, "after {pause} s");
    }
}

#[test]
fn an_actor_that_waits_in_vain_is_dead_and_says_why() {
    let mut node = node(2.0);
    let first = send(&mut node, DRIVER, create(ACTOR));
    let out = fail_starts(&mut node, first, NOW, Instant(NOW.0 + START_PATIENCE_NANOS + 2 * SECOND));
    let [death] = &deaths(&out)[..] else { panic!("{out:?}") };
    assert!(death.contains("could not begin") && death.ends_with(WHY), "{death}");
    assert!(node.is_quiet());
}

#[test]
fn a_worker_that_ends_before_it_is_ready_counts_like_one_that_cannot_be_started() {
    let mut node = node(1.0);
    let mut out = send(&mut node, DRIVER, request(0, 1));
    let mut now = NOW;
    let mut all = NodeActions::new();
    while closed(&all).is_empty() {
        assert!(now.0 < NOW.0 + 2 * START_PATIENCE_NANOS, "it waits for ever");
        for worker in started(&out) {
            node.on_dead(worker, "exited with status 1", None, &mut all);
        }
        all.extend(out);
        now = node.next_deadline().map_or(now, |at| at.max(now));
        out = after_events(&mut node, now);
        all.extend(out.iter().filter(|action| !matches!(action, NodeAction::StartWorker(_))).cloned());
    }
    let why = &closed(&all)[0].failure.message;
    assert!(why.ends_with("a worker process exited with status 1 before it was ready"), "{why}");
}

#[test]
fn what_waits_goes_on_waiting_while_a_task_runs_and_not_when_that_waits_itself() {
    let mut node = node(2.0);
    send(&mut node, DRIVER, request(0, 1));
    connect(&mut node, WorkerId(101));
    let first = send(&mut node, DRIVER, request(1, 1));
    let long = Instant(NOW.0 + 4 * START_PATIENCE_NANOS);
    let out = fail_starts(&mut node, first, NOW, long);
    assert!(closed(&out).is_empty(), "its worker may serve this, too");
    assert!(out.contains(&told(DRIVER, ReclaimLease { count: 1, lease: None })), "and is asked for");
    // It waits for what it has submitted.
    let mut out = NodeActions::new();
    node.on_message(WorkerId(101), Blocked {}.into(), long, &mut out);
    node.after_events(long, &mut out);
    let end = Instant(long.0 + START_PATIENCE_NANOS + 2 * SECOND);
    assert_eq!(closed(&fail_starts(&mut node, out, long, end)).len(), 1);
    send(&mut node, DRIVER, ReturnLease { lease: LeaseId(1) });
    assert!(node.is_quiet());
}

#[test]
fn the_end_of_a_worker_gives_what_waits_more_time() {
    let mut node = node(2.0);
    send(&mut node, DRIVER, create(ACTOR));
    connect(&mut node, WorkerId(101));
    let first = send(&mut node, DRIVER, request(0, 1));
    let half = Instant(NOW.0 + START_PATIENCE_NANOS / 2);
    assert!(closed(&fail_starts(&mut node, first, NOW, half)).is_empty());
    let mut out = NodeActions::new();
    node.on_dead(WorkerId(101), "was killed", None, &mut out);
    node.after_events(half, &mut out);
    let early = Instant(half.0 + START_PATIENCE_NANOS - 1);
    assert!(closed(&fail_starts(&mut node, out, half, early)).is_empty());
    let out = after_events(&mut node, early);
    assert_eq!(closed(&fail_starts(&mut node, out, early, Instant(early.0 + 2 * SECOND))).len(), 1);
}
