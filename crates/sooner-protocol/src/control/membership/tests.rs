//! Stories of nodes that join, fall silent, leave and come back: the exact actions of each step.

use sooner_wire::ResourceSet;
use sooner_wire::limits::HEALTH_TIMEOUT_NANOS;
use sooner_wire::message::AboutNode;

use super::*;

const A: NodeId = NodeId(1 << 24);
const B: NodeId = NodeId(2 << 24);
const C: NodeId = NodeId(3 << 24);
const CLUSTER: u64 = 77;

fn at(millis: u64) -> Instant {
    Instant(millis * 1_000_000)
}

fn options() -> NodesOptions {
    NodesOptions { cluster: CLUSTER, python: "3.11".into(), health_timeout: HEALTH_TIMEOUT_NANOS }
}

fn name(id: NodeId) -> String {
    format!("node-{}", id.0 >> 24)
}

fn register(id: NodeId) -> Register {
    let about = AboutNode {
        kind: kind::DAEMON,
        name: name(id),
        address: Some(format!("10.0.0.{}:6380", id.0 >> 24)),
        host: "host".into(),
        boot_id: "boot".into(),
        resources: ResourceSet::from_amounts([("CPU".to_owned(), 2.0)]),
        labels: vec![],
    };
    Register { about: Box::new(about), version: "0.1.0".into(), python: "3.11".into(), rejoins: None }
}

fn driver(id: NodeId) -> Register {
    let mut register = register(id);
    (register.about.kind, register.about.address) = (kind::DRIVER, None);
    register
}

/// A head whose disk takes everything at once.
struct Head {
    nodes: Nodes,
}

impl Head {
    fn new() -> Self {
        Self { nodes: Nodes::new(options(), Vec::new(), at(1)) }
    }

    /// What an event does, writes included.
    fn run(&mut self, event: impl FnOnce(&mut Nodes, &mut Vec<NodesAction>)) -> Vec<NodesAction> {
        let mut out = Vec::new();
        event(&mut self.nodes, &mut out);
        let mut seen = Vec::new();
        while !out.is_empty() {
            let mut more = Vec::new();
            for action in out {
                match action {
                    NodesAction::Persist(batch, _) => {
                        self.nodes.on_persisted(batch, Ok(()), &mut more);
                    }
                    other => seen.push(other),
                }
            }
            out = more;
        }
        self.nodes.check();
        seen
    }

    fn join(&mut self, millis: u64, id: NodeId) {
        let register = register(id);
        self.run(|nodes, out| nodes.on_register(id, register, at(millis), out).expect("may join"));
        self.run(|nodes, out| nodes.after_events(at(millis), out));
    }

    fn tick(&mut self, millis: u64) -> Vec<NodesAction> {
        self.run(|nodes, out| nodes.on_timer(at(millis), out))
    }

    fn beat(&mut self, millis: u64, id: NodeId) -> Vec<NodesAction> {
        let beat = Heartbeat { number: 1, node_lag: 0, data_lag: 0 };
        self.run(|nodes, out| nodes.on_heartbeat(id, beat, at(millis), out))
    }

    fn refusal(&mut self, id: NodeId, register: Register) -> Refusal {
        let mut out = Vec::new();
        self.nodes.on_register(id, register, at(9), &mut out).expect_err("refused")
    }
}

fn gone(to: NodeId, node: NodeId, reason: &str) -> NodesAction {
    NodesAction::Send(to, Box::new(NodeDead { node, reason: reason.into() }.into()))
}

fn reason(refusal: Refusal) -> String {
    match refusal {
        Refusal::Fenced(reason) | Refusal::Refused(reason) => reason,
    }
}

#[test]
fn a_node_joins_when_its_record_is_on_disk() {
    let mut nodes = Nodes::new(options(), Vec::new(), at(1));
    let mut out = Vec::new();
    nodes.on_register(A, register(A), at(1), &mut out).expect("may join");
    let [NodesAction::Persist(batch, writes)] = out.as_slice() else { panic!("{out:?}") };
    let record =
        NodeRecord { node: A, kind: kind::DAEMON, name: name(A), address: Some("10.0.0.1:6380".into()) };
    assert_eq!(writes, &[Write::put(node_key(A), record.to_bytes())]);
    assert_eq!(nodes.rows().count(), 0, "nobody hears of it before");
    let batch = *batch;
    let mut out = Vec::new();
    nodes.on_persisted(batch, Ok(()), &mut out);
    let row = nodes.row(A).expect("joined").clone();
    let settings = Settings { heartbeat: HEARTBEAT_NANOS, health_timeout: HEALTH_TIMEOUT_NANOS };
    let registered = Registered { cluster: CLUSTER, nodes: vec![row], settings };
    assert_eq!(out, [NodesAction::Send(A, Box::new(registered.into())), NodesAction::Joined(A)]);
    nodes.check();
}

#[test]
fn a_disk_that_is_full_turns_nodes_away_and_they_may_come_again() {
    let mut nodes = Nodes::new(options(), Vec::new(), at(1));
    let mut out = Vec::new();
    nodes.on_register(A, register(A), at(1), &mut out).expect("may join");
    out.clear();
    nodes.on_persisted(BatchId(1), Err("/x/control.redb: no space".into()), &mut out);
    let reason = "the head cannot take in nodes now: /x/control.redb: no space".to_owned();
    assert_eq!(out, [NodesAction::Send(A, Box::new(Refused { reason }.into()))]);
    nodes.check();
    let mut head = Head { nodes };
    head.join(3, A);
    assert!(head.nodes.row(A).is_some());
}

#[test]
fn who_is_lost_before_it_has_joined_is_not_told_of_and_may_come_again() {
    let mut head = Head::new();
    head.join(0, A);
    let (nodes, mut out) = (&mut head.nodes, Vec::new());
    nodes.on_register(B, driver(B), at(100), &mut out).expect("may join");
    let [NodesAction::Persist(first, _)] = out[..] else { panic!("{out:?}") };
    nodes.on_disconnected(B, at(200), &mut out);
    for step in [1_000, 2_000, 3_000] {
        nodes.on_heartbeat(A, Heartbeat { number: 1, node_lag: 0, data_lag: 0 }, at(step), &mut out);
        nodes.on_timer(at(step), &mut out);
    }
    let deletes = |action: &NodesAction| matches!(action, NodesAction::Persist(_, writes) if writes == &[Write::delete(node_key(B))]);
    assert!(deletes(out.last().expect("it is dropped")), "{out:?}");
    assert!(
        !out.iter().any(|action| matches!(action, NodesAction::Dead(..) | NodesAction::Send(..))),
        "{out:?}"
    );
    out.clear();
    nodes.on_register(B, driver(B), at(3_100), &mut out).expect("nobody was told that it is gone");
    let [NodesAction::Persist(second, _)] = out[..] else { panic!("{out:?}") };
    nodes.on_persisted(first, Ok(()), &mut out);
    assert!(nodes.row(B).is_none(), "that record is deleted again");
    nodes.on_persisted(second, Ok(()), &mut out);
    assert!(nodes.row(B).is_some());
    nodes.check();
}

#[test]
fn others_hear_of_newcomers_together() {
    let mut head = Head::new();
    head.join(1, A);
    for id in [B, C] {
        let register = register(id);
        head.run(|nodes, out| nodes.on_register(id, register, at(10), out).expect("may join"));
    }
    assert_eq!(head.tick(20), [], "told 19 ms ago");
    assert_eq!(head.nodes.next_deadline(), Some(at(51)));
    let news = head.tick(51);
    let NodesAction::Send(to, message) = &news[0] else { panic!("{news:?}") };
    let Message::NodesChanged(changed) = &**message else { panic!("{message:?}") };
    assert_eq!((*to, changed.rows.iter().map(|row| row.node).collect::<Vec<_>>()), (A, vec![B, C]));
    assert_eq!(news.len(), 3);
}

fn suspects(node: NodeId) -> Suspect {
    Suspect { node, is_given_up: None }
}

#[test]
fn who_was_held_for_gone_while_there_was_no_head_must_not_go_on() {
    let mut head = Head::new();
    for node in [A, B, C] {
        head.join(1, node);
    }
    let given_up = |node| Suspect { node, is_given_up: Some(true) };
    let why = format!("node {:016x} could not reach it while the head was away, and held it for gone", A.0);
    let told = head.run(|nodes, out| nodes.on_suspect(A, given_up(B), at(2), out));
    assert_eq!(told, [gone(A, B, &why), gone(C, B, &why), NodesAction::Dead(B, why.clone())]);
    let fenced = Fenced { reason: format!("this node was declared gone: {why}") };
    assert_eq!(head.beat(3, B), [NodesAction::Send(B, Box::new(fenced.into()))]);
    let told = head.run(|nodes, out| nodes.on_suspect(B, given_up(A), at(3), out));
    assert!(head.nodes.row(A).is_some(), "of two that hold each other for gone one is left: {told:?}");
    let asked = NodesAction::AskedAfter { from: C, node: B };
    assert_eq!(
        head.run(|nodes, out| nodes.on_suspect(C, given_up(B), at(3), out)),
        [gone(C, B, &why), asked]
    );
}

#[test]
fn a_closed_port_is_a_death_that_is_told_once() {
    let mut head = Head::new();
    head.join(1, A);
    head.join(1, B);
    head.join(1, C);
    let asked = head.run(|nodes, out| nodes.on_disconnected(A, at(100), out));
    let probe = NodesAction::Probe { node: A, number: 1, address: "10.0.0.1:6380".into() };
    assert_eq!(asked, [probe]);
    let again = head.run(|nodes, out| nodes.on_suspect(B, suspects(A), at(100), out));
    assert_eq!(again, [], "one probe at a time");
    assert!(head.nodes.is_doubted(A));
    let told = head.run(|nodes, out| nodes.on_probed(A, 1, Probed::Refused, at(102), out));
    let why = "its port is closed: the daemon has ended";
    assert_eq!(told, [gone(B, A, why), gone(C, A, why), NodesAction::Dead(A, why.into())]);
    let asked = NodesAction::AskedAfter { from: B, node: A };
    assert_eq!(
        head.run(|nodes, out| nodes.on_suspect(B, suspects(A), at(100), out)),
        [gone(B, A, why), asked]
    );
    assert_eq!(reason(head.refusal(A, register(A))), format!("this node was declared gone: {why}"));
    let fenced = Fenced { reason: format!("this node was declared gone: {why}") };
    assert_eq!(head.beat(104, A), [NodesAction::Send(A, Box::new(fenced.into()))]);
    head.join(105, NodeId(9 << 24));
}

#[test]
fn the_death_of_a_daemon_is_told_before_the_disk_has_forgotten_it() {
    let mut head = Head::new();
    head.join(1, A);
    head.join(1, B);
    head.run(|nodes, out| nodes.on_disconnected(A, at(100), out));
    let mut out = Vec::new();
    head.nodes.on_probed(A, 1, Probed::Refused, at(102), &mut out);
    let why = "its port is closed: the daemon has ended";
    let [NodesAction::Persist(deletion, writes), told @ ..] = &out[..] else { panic!("{out:?}") };
    assert_eq!(writes[..], [Write::delete(node_key(A))]);
    assert_eq!(told, [gone(B, A, why), NodesAction::Dead(A, why.into())]);
    let mut later = Vec::new();
    head.nodes.on_persisted(*deletion, Err("the disk is full".into()), &mut later);
    head.nodes.on_timer(at(5_000), &mut later);
    let tried_again =
        |action: &NodesAction| matches!(action, NodesAction::Persist(_, again) if again == writes);
    assert!(later.iter().any(tried_again), "{later:?}");
    assert!(!later.iter().any(|action| matches!(action, NodesAction::Dead(A, _))), "it is told once");
}

#[test]
fn silence_is_a_death_within_a_tick() {
    let mut head = Head::new();
    head.join(0, A);
    head.join(0, B);
    let mut died = None;
    for step in 1..=12 {
        head.beat(step * 500, B);
        let actions = head.tick(step * 500);
        if actions.iter().any(|action| matches!(action, NodesAction::Dead(..))) {
            assert_eq!(
                actions,
                [gone(B, A, "no heartbeat for 5.0 s"), NodesAction::Dead(A, "no heartbeat for 5.0 s".into())]
            );
            died = Some(step * 500);
        }
    }
    assert_eq!(died, Some(5_000));
    assert!(head.nodes.row(B).is_some());
}

#[test]
fn a_head_that_stood_still_declares_nobody_gone() {
    let mut head = Head::new();
    head.join(0, A);
    head.tick(500);
    let actions = head.tick(60_000);
    let [NodesAction::Warn(text)] = actions.as_slice() else { panic!("{actions:?}") };
    assert!(text.contains("stood still"));
    for step in 1..10 {
        assert_eq!(head.tick(60_000 + step * 500), [], "the silence began anew");
    }
    assert_eq!(head.tick(65_000), [NodesAction::Dead(A, "no heartbeat for 5.0 s".into())]);
}

#[test]
fn an_unanswered_probe_is_made_again_with_each_tick() {
    let mut head = Head::new();
    head.join(0, A);
    head.run(|nodes, out| nodes.on_disconnected(A, at(10), out));
    head.run(|nodes, out| nodes.on_probed(A, 1, Probed::Silent, at(400), out));
    let probe = NodesAction::Probe { node: A, number: 2, address: "10.0.0.1:6380".into() };
    assert_eq!(head.tick(500), [probe]);
    assert_eq!(head.tick(1_000), []);
    head.run(|nodes, out| nodes.on_probed(A, 2, Probed::Answered(A), at(1_001), out));
    assert!(!head.nodes.is_doubted(A));
}

#[test]
fn a_driver_that_nobody_can_dial_has_two_seconds() {
    let mut head = Head::new();
    head.join(0, A);
    let of_driver = driver(B);
    head.run(|nodes, out| nodes.on_register(B, of_driver, at(0), out).expect("may join"));
    head.run(|nodes, out| nodes.after_events(at(60), out));
    assert_eq!(
        head.run(|nodes, out| nodes.on_suspect(A, suspects(B), at(100), out)),
        [],
        "its own connection tells"
    );
    assert_eq!(head.run(|nodes, out| nodes.on_disconnected(B, at(600), out)), []);
    for step in [1_000, 1_500, 2_000, 2_500] {
        head.beat(step, A);
        assert_eq!(head.tick(step), []);
    }
    let why = "its connection ended 2.4 s ago and it did not come back";
    assert_eq!(head.tick(3_000), [gone(A, B, why), NodesAction::Dead(B, why.into())]);
    let of_driver = driver(C);
    head.run(|nodes, out| nodes.on_register(C, of_driver, at(3_000), out).expect("may join"));
    head.run(|nodes, out| nodes.on_disconnected(C, at(3_100), out));
    head.nodes.on_connected(C, at(3_200));
    head.beat(5_000, A);
    head.beat(5_000, C);
    for step in [3_500, 4_000, 4_500, 5_000, 5_500] {
        assert!(
            !head.tick(step).iter().any(|action| matches!(action, NodesAction::Dead(..))),
            "it came back"
        );
    }
}

#[test]
fn names_and_ids_are_taken_once() {
    let mut head = Head::new();
    head.join(1, A);
    let mut out = Vec::new();
    let mut same_name = register(B);
    same_name.about.name = name(A);
    let refusal = head.nodes.on_register(B, same_name.clone(), at(2), &mut out).expect_err("taken");
    assert!(
        reason(refusal)
            .contains("the name \"node-1\" is that of a living node (10.0.0.1:6380): choose another")
    );
    assert_eq!(
        out,
        [NodesAction::Probe { node: A, number: 1, address: "10.0.0.1:6380".into() }],
        "does it live?"
    );
    assert_eq!(
        head.refusal(A, register(B)),
        Refusal::Refused("another node has drawn the same id: start again".into())
    );
    let had_joined = Register { rejoins: Some(CLUSTER), ..register(B) };
    assert!(matches!(head.refusal(A, had_joined), Refusal::Fenced(reason) if reason.contains("same id")));
    head.run(|nodes, out| nodes.on_probed(A, 1, Probed::Refused, at(3), out));
    head.run(|nodes, out| nodes.on_register(B, same_name, at(4), out).expect("the name is free"));
}

#[test]
fn who_comes_back_is_known_or_fenced() {
    let mut head = Head::new();
    head.join(1, A);
    let again = |cluster| Register { rejoins: Some(cluster), ..register(A) };
    let actions = head.run(|nodes, out| nodes.on_register(A, again(CLUSTER), at(2), out).expect("is known"));
    let [NodesAction::Send(A, message), NodesAction::Joined(A)] = &actions[..] else { panic!("{actions:?}") };
    assert!(matches!(**message, Message::Registered(_)));
    assert!(
        matches!(head.refusal(A, again(1)), Refusal::Fenced(reason) if reason.contains("belongs to the cluster"))
    );
    let unknown = Register { rejoins: Some(CLUSTER), ..register(B) };
    assert!(matches!(head.refusal(B, unknown), Refusal::Fenced(reason) if reason.contains("long ago")));
}

#[test]
fn a_head_that_starts_again_looks_for_its_nodes() {
    let mut head = Head::new();
    head.join(1, A);
    head.join(1, B);
    let records = [A, B].map(|id| record(head.nodes.row(id).expect("there"))).to_vec();
    let mut head = Head { nodes: Nodes::new(options(), records, at(100)) };
    let probes = head.run(|nodes, out| nodes.on_start(at(100), out));
    assert_eq!(probes.len(), 2);
    assert!(!head.nodes.is_complete() && head.nodes.rows().count() == 0);
    let again = Register { rejoins: Some(CLUSTER), ..register(A) };
    let actions = head.run(|nodes, out| nodes.on_register(A, again, at(101), out).expect("is known"));
    assert_eq!(actions[1], NodesAction::Joined(A));
    let told = head.run(|nodes, out| nodes.on_probed(B, 1, Probed::Refused, at(102), out));
    let why = "its port is closed: the daemon has ended";
    assert_eq!(told, [gone(A, B, why), NodesAction::Dead(B, why.into())]);
    assert!(head.nodes.is_complete());
    let unknown = head.run(|nodes, out| nodes.on_suspect(A, suspects(C), at(100), out));
    let asked = NodesAction::AskedAfter { from: A, node: C };
    assert_eq!(unknown, [gone(A, C, "it is not part of the cluster any more"), asked]);
}

#[test]
fn whoever_takes_the_name_of_a_node_takes_its_record_from_the_disk() {
    let mut head = Head::new();
    head.join(1, A);
    let mut out = Vec::new();
    head.nodes.on_drained(A, at(2), &mut out);
    let [NodesAction::Persist(deletion, _)] = out[..] else { panic!("{out:?}") };
    head.nodes.on_persisted(deletion, Err("the disk is full".into()), &mut Vec::new());
    let mut same_name = register(B);
    same_name.about.name = name(A);
    let mut out = Vec::new();
    head.nodes.on_register(B, same_name, at(3), &mut out).expect("the name is free");
    let [NodesAction::Persist(join, writes)] = &out[..] else { panic!("{out:?}") };
    let keys: Vec<_> = writes.iter().map(|write| (write.key.clone(), write.value.is_some())).collect();
    assert_eq!(keys, [(node_key(A), false), (node_key(B), true)], "one without the other would be wrong");
    head.nodes.on_persisted(*join, Ok(()), &mut Vec::new());
    // The next attempt to delete the first record succeeds, and others need not care any more.
    head.run(|nodes, out| nodes.on_timer(at(4_000), out));
    head.join(4_001, C);
    assert!(head.nodes.former.is_empty());
}

#[test]
fn the_next_head_takes_the_name_of_the_one_that_died() {
    let row = joining::read(A, register(A), "3.11").expect("right");
    let mut head = Head { nodes: Nodes::new(options(), vec![record(&row)], at(1)) };
    let probes = head.run(|nodes, out| nodes.on_start(at(1), out));
    let [NodesAction::Probe { node: A, number, .. }] = probes[..] else { panic!("{probes:?}") };
    // Its process held the lock that this one has now: nobody needs to be dialled.
    head.run(|nodes, out| nodes.on_probed(A, number, Probed::Refused, at(1), out));
    let mut next = register(B);
    next.about.name = name(A);
    head.run(|nodes, out| nodes.on_register(B, next, at(1), out).expect("the name is free"));
    assert_eq!(head.nodes.row(B).map(|row| row.about.name.clone()), Some(name(A)));
    assert!(!head.nodes.is_known(A));
}

#[test]
fn a_node_drains_in_its_time_or_is_ended() {
    let mut head = Head::new();
    head.join(0, A);
    head.join(0, B);
    let unknown = head.nodes.on_drain(Drain { node: C, nanos: 1 }, at(0), &mut Vec::new());
    assert!(unknown.expect_err("no such node").contains("there is no node 3000000"));
    let second = 1_000_000_000;
    let drain = |head: &mut Head, millis, id, nanos| {
        head.run(|nodes, out| nodes.on_drain(Drain { node: id, nanos }, at(millis), out).expect("is there"))
    };
    let told = drain(&mut head, 100, A, 2 * second);
    assert_eq!(told, [NodesAction::Send(A, Box::new(Drain { node: A, nanos: 2 * second }.into()))]);
    let told = drain(&mut head, 1_100, A, 60 * second);
    assert_eq!(
        told,
        [NodesAction::Send(A, Box::new(Drain { node: A, nanos: second }.into()))],
        "the earlier end stays"
    );
    assert_eq!(head.nodes.row(A).expect("there").state, node_state::DRAINING);
    drain(&mut head, 1_100, B, 60 * second);
    let left = head.run(|nodes, out| nodes.on_drained(B, at(1_200), out));
    assert_eq!(left, [gone(A, B, "it left"), NodesAction::Dead(B, "it left".into())]);
    for step in [1_500, 2_000] {
        head.beat(step, A);
        head.tick(step);
    }
    let why = "it did not leave within the time it had to drain";
    let fenced = NodesAction::Send(A, Box::new(Fenced { reason: why.into() }.into()));
    assert_eq!(head.tick(2_500), [fenced, NodesAction::Dead(A, why.into())]);
}

#[test]
fn a_disk_that_hangs_delays_the_news_by_a_second() {
    let mut head = Head::new();
    head.join(0, A);
    head.join(0, B);
    let mut out = Vec::new();
    head.nodes.on_drained(B, at(100), &mut out);
    let [NodesAction::Persist(batch, _)] = out.as_slice() else { panic!("{out:?}") };
    let batch = *batch;
    assert_eq!(
        head.run(|nodes, out| nodes.on_suspect(A, suspects(B), at(100), out)),
        [],
        "it is told with the others"
    );
    assert_eq!(head.tick(500), []);
    assert_eq!(head.tick(1_000), []);
    assert_eq!(head.tick(1_500), [gone(A, B, "it left"), NodesAction::Dead(B, "it left".into())]);
    let mut out = Vec::new();
    head.nodes.on_persisted(batch, Err("no space".into()), &mut out);
    assert_eq!(out, [], "it was told");
    head.nodes.on_timer(at(2_000), &mut out);
    let [NodesAction::Persist(_, writes)] = out.as_slice() else { panic!("{out:?}") };
    assert_eq!(writes, &[Write::delete(node_key(B))], "tried again");
}

#[test]
fn a_slow_node_is_told_of_and_lives() {
    let mut head = Head::new();
    head.join(0, A);
    let late = Heartbeat { number: 1, node_lag: 2_000_000_000, data_lag: 0 };
    for step in 1..=3 {
        head.run(|nodes, out| nodes.on_heartbeat(A, late, at(step * 500), out));
    }
    let news = head.tick(1_500);
    assert!(matches!(&news[..], [NodesAction::Send(A, message)]
        if matches!(&**message, Message::NodesChanged(changed) if changed.rows[0].is_slow)));
}
