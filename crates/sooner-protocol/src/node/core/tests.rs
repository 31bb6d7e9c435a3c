//! What a node remembers, seen from inside.

use sooner_wire::TaskId;
use sooner_wire::message::ActorStarted;

use super::*;

const DRIVER: WorkerId = WorkerId(1);
const NOW: Instant = Instant(0);

#[test]
fn what_is_known_of_a_process_goes_with_it() {
    let mut node = NodeCore::new(ResourceSet::default(), 100, 2);
    let (actor, worker) = (TaskId { owner: DRIVER, number: 7 }, WorkerId(101));
    let started = ActorStarted { actor, worker, concurrency: 1, replays: None, restarts: None };
    let mut out = NodeActions::new();
    for process in [DRIVER, worker] {
        node.on_connected(process, 1, NOW);
    }
    let subscribe = |process| ToNode::Subscribed { actor, process, started: Some(Box::new(started.clone())) };
    node.on_control(subscribe(DRIVER), &mut out);
    for number in 0..10 {
        let caller = WorkerId(2000 + number);
        node.on_connected(caller, 2, NOW);
        node.on_control(subscribe(caller), &mut out);
        assert_eq!(node.places.subscribers(actor), [DRIVER, caller]);
        node.on_dead(caller, "was killed", None, &mut out);
    }
    node.on_control(subscribe(WorkerId(2000)), &mut out);
    assert_eq!(node.places.subscribers(actor), [DRIVER], "nobody who is gone");
    assert_eq!(node.clients[&worker].introduced, Set::from_iter([DRIVER]));
    node.on_dead(DRIVER, "ended", None, &mut out);
    assert_eq!(node.places.subscribers(actor), []);
}

#[test]
fn the_control_service_hears_of_the_end_of_those_it_knows() {
    let mut node = NodeCore::new(ResourceSet::default(), 100, 2);
    let (known, unknown) = (DRIVER, WorkerId(2));
    for process in [known, unknown] {
        node.on_connected(process, 1, NOW);
    }
    let mut out = NodeActions::new();
    let list = sooner_wire::message::ListNames { request: 1, namespace: None };
    assert_eq!(node.on_message(known, list.into(), NOW, &mut out), None);
    out.clear();
    for process in [known, unknown] {
        node.on_dead(process, "ended", None, &mut out);
    }
    let late = sooner_wire::message::AddBorrow { object: TaskId::default().object(0), borrower: known };
    node.on_control(ToNode::Routed { to: unknown, message: Box::new(late.into()) }, &mut out);
    let heard: Vec<_> = out.into_iter().filter(|action| matches!(action, NodeAction::Control(_))).collect();
    let gone = |process| NodeAction::Control(ToControl::process_dead(process));
    assert_eq!(heard, [gone(known), gone(unknown)], "and of those it speaks to in vain");
}
