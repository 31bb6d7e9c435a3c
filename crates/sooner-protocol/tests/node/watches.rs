//! Ends of processes that other nodes have to do with: who is told, who is asked, and what is said to the
//! control service.

use sooner_protocol::node::{NodeAction, NodeActions, NodeCore};
use sooner_protocol::uplink::{ToControl, ToNode};
use sooner_wire::limits::ENDED_MAX;
use sooner_wire::message::{Connect, Held, HeldFrom, Message, Settled, Sever, Watch, WorkerDead};
use sooner_wire::{NodeId, ObjectId, TaskId, WorkerId};

use super::{NOW, cpus, told, worker_dead};

const HERE: NodeId = NodeId(1 << 24);
const THERE: NodeId = NodeId(2 << 24);
const FAR: WorkerId = WorkerId((2 << 24) + 1);

/// A node of a cluster with two clients.
fn node() -> (NodeCore, WorkerId, WorkerId) {
    let mut node = NodeCore::new(cpus(1.0), HERE.0, 2);
    node.join_cluster();
    let clients = [node.new_worker_id(), node.new_worker_id()];
    clients.iter().for_each(|client| node.on_connected(*client, 1, NOW));
    (node, clients[0], clients[1])
}

fn on(node: &mut NodeCore, event: impl FnOnce(&mut NodeCore, &mut NodeActions)) -> NodeActions {
    let mut out = NodeActions::new();
    event(node, &mut out);
    node.after_events(NOW, &mut out);
    node.check();
    out.retain(|action| !matches!(action, NodeAction::StartWorker(_)));
    out
}

/// Something comes over the link of another node.
fn routed(node: &mut NodeCore, from: WorkerId, message: impl Into<Message>) -> NodeActions {
    let here = WorkerId(HERE.0);
    on(node, |node, out| assert_eq!(node.on_routed(from, here, message.into(), NOW, out), Ok(None)))
}

fn send(node: &mut NodeCore, from: WorkerId, message: impl Into<Message>) -> NodeActions {
    on(node, |node, out| assert_eq!(node.on_message(from, message.into(), NOW, out), None))
}

fn receive(node: &mut NodeCore, word: ToNode) -> NodeActions {
    on(node, |node, out| node.on_control(word, out))
}

fn end(node: &mut NodeCore, process: WorkerId) -> NodeActions {
    on(node, |node, out| node.on_dead(process, "was killed", None, out))
}

fn gone(worker: WorkerId) -> WorkerDead {
    worker_dead(worker, "was killed")
}

fn process_dead(worker: WorkerId, watchers: &[NodeId]) -> NodeAction {
    let (watchers, gone) = (watchers.to_vec(), Some(Box::new(gone(worker))));
    NodeAction::Control(ToControl::ProcessDead { process: worker, watchers, gone })
}

fn collected(gone: WorkerId, held: &[Held]) -> NodeAction {
    NodeAction::Control(ToControl::Collected { gone, held: held.to_vec() })
}

fn settled(gone: &[WorkerId]) -> Settled {
    Settled { gone: gone.to_vec(), held: Vec::new() }
}

fn nothing_of(gone: WorkerId) -> HeldFrom {
    HeldFrom { gone, held: Vec::new() }
}

fn object(owner: WorkerId) -> ObjectId {
    TaskId { owner, number: 1 }.object(0)
}

fn watch(worker: WorkerId) -> NodeAction {
    let message = Box::new(Watch { worker }.into());
    NodeAction::Route { from: WorkerId(HERE.0), to: WorkerId(worker.node().0), message }
}

#[test]
fn a_process_that_no_other_node_knows_is_settled_here() {
    let (mut node, first, second) = node();
    assert_eq!(end(&mut node, second), [told(first, gone(second))]);
    assert_eq!(send(&mut node, first, nothing_of(second)), [told(first, settled(&[second]))]);
}

#[test]
fn the_control_service_hears_first_of_an_end_that_matters_elsewhere() {
    let (mut node, first, second) = node();
    node.on_dialled_for(second, FAR);
    assert_eq!(end(&mut node, second), [process_dead(second, &[THERE]), told(first, gone(second))]);
    let held = Held { object: object(FAR), borrower: first, count: 1, of: None };
    let answer = HeldFrom { gone: second, held: vec![held] };
    let held = Held { of: Some(second), ..held };
    assert_eq!(send(&mut node, first, answer), [collected(second, &[held])]);
    let word = Box::new(settled(&[second]));
    assert_eq!(receive(&mut node, ToNode::Settled(word)), [told(first, settled(&[second]))]);
}

#[test]
fn the_processes_here_are_asked_about_one_of_another_node() {
    let (mut node, first, second) = node();
    assert!(node.on_arrived_for(first, FAR));
    let news = ToNode::WorkerDead(Box::new(gone(FAR)));
    assert_eq!(receive(&mut node, news.clone()), [told(first, gone(FAR)), told(second, gone(FAR))]);
    assert_eq!(receive(&mut node, news.clone()), [], "they are being asked");
    assert_eq!(send(&mut node, first, nothing_of(FAR)), []);
    assert_eq!(
        end(&mut node, second),
        [process_dead(second, &[]), told(first, gone(second)), collected(FAR, &[])],
        "what is open is settled together"
    );
    assert_eq!(receive(&mut node, news), [collected(FAR, &[])], "they have been asked");
    assert_eq!(send(&mut node, first, nothing_of(second)), [collected(second, &[])]);
    let word = Box::new(settled(&[FAR, second]));
    assert_eq!(receive(&mut node, ToNode::Settled(word)), [told(first, settled(&[FAR, second]))]);
}

#[test]
fn who_asks_late_is_told_by_the_next_control_service_if_the_one_before_did_not() {
    let (mut node, first, second) = node();
    end(&mut node, second);
    send(&mut node, first, nothing_of(second));
    let told = routed(&mut node, WorkerId(THERE.0), Watch { worker: second });
    assert_eq!(told[told.len() - 1], collected(second, &[]));
    let again = on(&mut node, |node, out| node.send_deaths_again(out));
    assert_eq!(again, [process_dead(second, &[THERE]), collected(second, &[])]);
    receive(&mut node, ToNode::Settled(Box::new(settled(&[second]))));
    // The one that asked may not have heard it when another control service begins.
    assert_eq!(on(&mut node, |node, out| node.send_deaths_again(out)), again);
}

#[test]
fn a_process_of_which_only_the_settling_was_heard_is_news_to_who_asks_for_it() {
    let (mut node, first, second) = node();
    // Another death was settled with it, in which this node had a part.
    let word = Box::new(settled(&[FAR]));
    receive(&mut node, ToNode::Settled(word.clone()));
    let news = ToNode::WorkerDead(Box::new(gone(FAR)));
    assert_eq!(receive(&mut node, news.clone()), [told(first, gone(FAR)), told(second, gone(FAR))]);
    let both = [told(first, settled(&[FAR])), told(second, settled(&[FAR]))];
    assert_eq!(receive(&mut node, ToNode::Settled(word)), both);
    assert_eq!(receive(&mut node, news), [collected(FAR, &[])], "now it is known");
}

#[test]
fn a_node_is_asked_once_to_tell_of_an_end() {
    let (mut node, first, second) = node();
    assert_eq!(send(&mut node, first, Watch { worker: FAR }), [watch(FAR)]);
    assert_eq!(send(&mut node, second, Watch { worker: FAR }), []);
    assert_eq!(on(&mut node, |node, out| node.watch_again(THERE, out)), [watch(FAR)], "it may be lost");
    receive(&mut node, ToNode::WorkerDead(Box::new(gone(FAR))));
    assert_eq!(on(&mut node, |node, out| node.watch_again(THERE, out)), []);
}

#[test]
fn who_asks_for_a_process_that_is_gone_is_told_by_control() {
    let (mut node, first, second) = node();
    let asked = |node: &mut NodeCore, worker| {
        let from = WorkerId(THERE.0);
        routed(node, from, Watch { worker })
    };
    assert_eq!(asked(&mut node, first), []);
    assert_eq!(end(&mut node, first), [process_dead(first, &[THERE]), told(second, gone(first))]);
    assert_eq!(asked(&mut node, first), [process_dead(first, &[THERE])], "it is being settled");
    assert_eq!(send(&mut node, second, nothing_of(first)), [collected(first, &[])]);
    receive(&mut node, ToNode::Settled(Box::new(settled(&[first]))));
    let late = [process_dead(first, &[THERE]), collected(first, &[])];
    assert_eq!(asked(&mut node, first), late, "all here have answered");
    assert!(!node.on_arrived_for(first, FAR));
    assert_eq!(on(&mut node, |_, _| {}), late, "so is who comes with a line");
}

#[test]
fn the_end_of_a_node_is_that_of_all_its_processes() {
    let (mut node, first, _) = node();
    let second = WorkerId(FAR.0 + 1);
    [FAR, second].into_iter().for_each(|far| node.record_line(first, far));
    let address = WorkerId(THERE.0);
    let told_all = receive(&mut node, ToNode::WorkerDead(Box::new(gone(address))));
    assert_eq!(told_all.len(), 4, "both processes are told of both: {told_all:?}");
    let clients = [first, WorkerId(first.0 + 1)];
    let mut said = Vec::new();
    for (client, far) in clients.iter().flat_map(|client| [(client, FAR), (client, second)]) {
        said.extend(send(&mut node, *client, nothing_of(far)));
    }
    assert_eq!(said, [collected(address, &[])]);
    let settled_all = receive(&mut node, ToNode::Settled(Box::new(settled(&[address]))));
    assert_eq!(settled_all[0], told(first, settled(&[FAR, second])));
    // One of whom an owner hears only now.
    let third = WorkerId(FAR.0 + 2);
    let reason = "its node is gone".to_owned();
    let news = WorkerDead { reason, all_begun: Some(true), ..gone(third) };
    let known = [told(first, news), told(first, settled(&[third]))];
    assert_eq!(send(&mut node, first, Watch { worker: third }), known);
}

#[test]
fn a_new_control_service_hears_what_is_open() {
    let (mut node, first, second) = node();
    node.record_line(second, FAR);
    end(&mut node, second);
    send(&mut node, first, nothing_of(second));
    let again = on(&mut node, NodeCore::send_deaths_again);
    assert_eq!(again, [process_dead(second, &[THERE]), collected(second, &[])]);
}

#[test]
fn both_nodes_end_the_same_one_of_two_that_cannot_reach_each_other() {
    let (mut node, first, _) = node();
    let asked = |class| {
        // Another one with a driver of the same name.
        let out = severed(&mut self::node().0, first, FAR, class);
        out.contains(&NodeAction::KillWorker(first))
    };
    assert!(!asked(Some(0)) && !asked(Some(2)), "a driver is not ended");
    let said = send(&mut node, first, Sever { worker: FAR, class: None });
    let message = Box::new(Sever { worker: FAR, class: Some(0) }.into());
    let by_control = NodeAction::Control(ToControl::Routed { from: first, message });
    assert_eq!(said, [by_control], "where two processes do not reach each other, their nodes may not either");
    // A worker, which the other one is, too: the greater id.
    let worker = started(&mut node, first);
    let mut asked = |from: WorkerId, class| {
        let out = severed(&mut node, worker, from, Some(class));
        out.contains(&NodeAction::KillWorker(worker))
    };
    assert!(asked(FAR, 0) && asked(FAR, 1), "it is more easily done without");
    assert!(!asked(FAR, 2), "the other node ends that one");
    assert!(asked(WorkerId(2), 2));
}

/// The control service says that process `from` of another node cannot reach this one.
fn severed(node: &mut NodeCore, worker: WorkerId, from: WorkerId, class: Option<u8>) -> NodeActions {
    let message = Box::new(Sever { worker: from, class }.into());
    on(node, |node, out| node.on_control(ToNode::Routed { to: worker, message }, out))
}

/// A worker that was started for a client and is idle.
fn started(node: &mut NodeCore, driver: WorkerId) -> WorkerId {
    let mut out = NodeActions::new();
    let request = super::request(0, 1);
    assert_eq!(node.on_message(driver, request.into(), NOW, &mut out), None);
    node.after_events(NOW, &mut out);
    let starting = |action: &NodeAction| match action {
        NodeAction::StartWorker(worker) => Some(*worker),
        _ => None,
    };
    let worker = out.iter().find_map(starting).expect("one is started");
    node.on_connected(worker, 9, NOW);
    worker
}

/// Found by the simulator (seed 494623227746, two nodes): a task waited for ever for a value of that process.
#[test]
fn who_comes_late_and_asks_for_a_process_that_was_dead_for_long_is_told() {
    for with_its_node in [false, true] {
        let (mut node, first, second) = node();
        assert!(node.on_arrived_for(first, FAR));
        let news = ToNode::WorkerDead(Box::new(gone(FAR)));
        receive(&mut node, news.clone());
        [first, second].iter().for_each(|client| _ = send(&mut node, *client, nothing_of(FAR)));
        receive(&mut node, ToNode::Settled(Box::new(settled(&[FAR]))));
        for number in 1..=ENDED_MAX as u64 {
            let other = WorkerId(FAR.0 + number);
            receive(&mut node, ToNode::WorkerDead(Box::new(gone(other))));
            [first, second].iter().for_each(|client| _ = send(&mut node, *client, nothing_of(other)));
            receive(&mut node, ToNode::Settled(Box::new(settled(&[other]))));
        }
        let late = node.new_worker_id();
        node.on_connected(late, 1, NOW);
        let dialled = send(&mut node, late, Connect { worker: FAR });
        assert_eq!(dialled, [NodeAction::Dial { client: late, to: FAR }], "its end is not remembered");
        node.on_dialled_for(late, FAR);
        let heard = if with_its_node {
            receive(&mut node, ToNode::WorkerDead(Box::new(gone(WorkerId(THERE.0)))))
        } else {
            receive(&mut node, news)
        };
        assert!(heard.contains(&told(late, gone(FAR))), "{heard:?}");
        let is_answered = heard.contains(&collected(FAR, &[]));
        assert!(is_answered != with_its_node, "{heard:?}");
    }
}
