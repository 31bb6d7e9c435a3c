//! The control service as one core: what a message to one of its parts means for the others.

use sooner_protocol::control::membership::NodesOptions;
use sooner_protocol::control::{Batch, Beginning, ControlAction, ControlActions, ControlCore, Found, Probed};
use sooner_protocol::time::Instant;
use sooner_wire::limits::HEALTH_TIMEOUT_NANOS;
use sooner_wire::message::state::{Inspect, InspectEnd};
use sooner_wire::message::{
    AboutNode, DialMe, Drain, Drained, FindNodes, Message, Register, ResourceReport, Routed, Suspect, kind,
};
use sooner_wire::{NodeId, ResourceSet, WorkerId};

mod kit;

use kit::cpus;

const ME: NodeId = NodeId(1 << 24);
const OTHER: NodeId = NodeId(2 << 24);
const PROGRAM: NodeId = NodeId(3 << 24);
const NOW: Instant = Instant(5);

struct Head {
    core: ControlCore,
    now: Instant,
}

impl Head {
    /// A new cluster, or one whose nodes an earlier control service knew.
    fn with(nodes: Vec<sooner_wire::record::NodeRecord>, former: Option<NodeId>) -> (Self, ControlActions) {
        let options =
            NodesOptions { cluster: 7, python: "3.11".into(), health_timeout: HEALTH_TIMEOUT_NANOS };
        let mut out = ControlActions::new();
        let begin = Beginning { me: ME, former, options, nodes, found: Found::default() };
        let core = ControlCore::new(begin, NOW, &mut out);
        (Self { core, now: NOW }, out)
    }

    fn new() -> Self {
        let (mut head, out) = Self::with(Vec::new(), None);
        assert_eq!(out, []);
        for node in [ME, OTHER] {
            head.join(node, kind::DAEMON);
        }
        head.after_events();
        head
    }

    fn act(&mut self, work: impl FnOnce(&mut ControlCore, Instant, &mut ControlActions)) -> ControlActions {
        let mut out = ControlActions::new();
        work(&mut self.core, self.now, &mut out);
        self.core.check();
        out
    }

    fn register(&mut self, node: NodeId, kind: u8) -> ControlActions {
        let address = (kind == kind::DAEMON).then(|| "127.0.0.1:7001".to_owned());
        let about = AboutNode {
            kind,
            name: format!("n{}", node.0),
            address,
            host: String::new(),
            boot_id: String::new(),
            resources: cpus(4.0),
            labels: Vec::new(),
        };
        let python = "3.11".to_owned();
        let register = Register { about: Box::new(about), version: String::new(), python, rejoins: None };
        self.act(|core, now, out| core.on_register(node, register, now, out))
    }

    /// It registers, and its record is written.
    fn join(&mut self, node: NodeId, kind: u8) -> ControlActions {
        let out = self.register(node, kind);
        assert_eq!(out[0], ControlAction::Admit(node), "its session carries the answer: {out:?}");
        self.written(&out)
    }

    /// The disk does what it is asked for.
    fn written(&mut self, out: &ControlActions) -> ControlActions {
        let batch = |action: &ControlAction| match action {
            ControlAction::Persist(batch, _) => Some(*batch),
            _ => None,
        };
        let mut all = ControlActions::new();
        for batch in out.iter().filter_map(batch) {
            all.extend(self.act(|core, now, out| core.on_persisted(batch, Ok(()), now, out)));
        }
        all
    }

    fn send(&mut self, node: NodeId, message: impl Into<Message>) -> ControlActions {
        self.act(|core, now, out| core.on_message(node, message.into(), now, out))
    }

    fn after_events(&mut self) -> ControlActions {
        self.act(|core, now, out| core.after_events(now, out))
    }

    fn report(&mut self, node: NodeId, free: f64) -> ControlActions {
        let report = ResourceReport { version: 1, free: cpus(free), demand: Vec::new(), bundles: None };
        self.send(node, report)
    }
}

fn find(count: f64) -> FindNodes {
    FindNodes { request: 9, resources: cpus(count), count: 4, strategy: None, prefer: None }
}

/// What is sent to a node.
fn sent(out: &ControlActions, to: NodeId) -> Vec<&Message> {
    let sends = out.iter().filter_map(|action| match action {
        ControlAction::Send(node, message) => Some((*node, &**message)),
        _ => None,
    });
    sends.filter(|(node, _)| *node == to).map(|(_, message)| message).collect()
}

#[test]
fn a_node_is_taken_in_when_its_record_is_written() {
    let (mut head, _) = Head::with(Vec::new(), None);
    let out = head.register(OTHER, kind::DAEMON);
    assert!(matches!(out[..], [ControlAction::Admit(OTHER), ControlAction::Persist(Batch::OfNodes(_), _)]));
    assert_eq!(head.core.nodes().rows().count(), 0);
    let out = head.written(&out);
    assert!(matches!(sent(&out, OTHER)[..], [Message::Registered(_)]), "{out:?}");
    assert!(matches!(&out[1], ControlAction::Log(text) if text.contains("is part of the cluster")));
    // Its resources count, and questions find it.
    let find = find(2.0);
    let out = head.send(OTHER, find);
    assert!(matches!(sent(&out, OTHER)[..], [Message::Candidates(_)]), "{out:?}");
}

#[test]
fn who_may_not_join_is_told_so_and_nothing_more() {
    let mut head = Head::new();
    let out = head.act(|core, now, out| {
        let about = AboutNode {
            kind: kind::DAEMON,
            name: "n".into(),
            address: Some("127.0.0.1:7001".into()),
            host: String::new(),
            boot_id: String::new(),
            resources: ResourceSet::default(),
            labels: Vec::new(),
        };
        let (version, python) = (String::new(), "3.10".to_owned());
        core.on_register(
            PROGRAM,
            Register { about: Box::new(about), version, python, rejoins: None },
            now,
            out,
        );
    });
    let [ControlAction::LogRationed(text), ControlAction::Dismiss(PROGRAM, last)] = &out[..] else {
        panic!("{out:?}")
    };
    assert!(text.contains("may not join") && text.contains("3.10"), "{text}");
    assert!(matches!(**last, Message::Refused(_)));
}

#[test]
fn the_node_of_a_program_runs_nothing() {
    let mut head = Head::new();
    head.join(PROGRAM, kind::DRIVER);
    let out = head.report(PROGRAM, 0.0);
    assert!(!out.iter().any(|action| matches!(action, ControlAction::EndSession(..))), "{out:?}");
    let nodes = head.core.nodes().rows().count();
    assert_eq!(nodes, 3);
    let find = find(1.0);
    let out = head.send(OTHER, find);
    let [Message::Candidates(found)] = sent(&out, OTHER)[..] else { panic!("{out:?}") };
    assert!(found.nodes.iter().all(|candidate| candidate.node != PROGRAM), "{found:?}");
}

#[test]
fn a_node_that_left_is_gone_for_all_parts_in_this_order() {
    let mut head = Head::new();
    let out = head.send(OTHER, Drained { node: ME });
    assert_eq!(out, [], "it speaks for itself alone");
    let out = head.send(OTHER, Drained { node: OTHER });
    let out = head.written(&out);
    let news = sent(&out, ME);
    assert!(matches!(news[0], Message::NodeDead(gone) if gone.node == OTHER), "first the node: {out:?}");
    let ends =
        out.iter().position(|action| *action == ControlAction::EndNode(OTHER)).expect("its session ends");
    assert!(matches!(&out[ends - 1], ControlAction::Log(text) if text.contains("is gone: it left")));
    assert!(head.core.nodes().row(OTHER).is_none());
    assert!(head.core.directory().report().is_empty());
}

#[test]
fn a_node_that_is_to_leave_is_no_place_for_anything_before_it_hears_so() {
    let mut head = Head::new();
    let out = head.send(ME, Drain { node: OTHER, nanos: 1_000_000_000 });
    assert!(matches!(sent(&out, OTHER)[..], [Message::Drain(_)]), "{out:?}");
    let find = find(1.0);
    let out = head.send(ME, find);
    let [Message::Candidates(found)] = sent(&out, ME)[..] else { panic!("{out:?}") };
    assert!(found.nodes.iter().all(|candidate| candidate.node != OTHER), "{found:?}");
    let out = head.send(ME, Drain { node: PROGRAM, nanos: 1 });
    assert!(matches!(&out[..], [ControlAction::LogRationed(text)] if text.contains("no node")), "{out:?}");
}

#[test]
fn who_holds_the_own_node_of_the_control_service_for_gone_is_gone_itself() {
    let mut head = Head::new();
    let out = head.send(OTHER, Suspect { node: ME, is_given_up: Some(true) });
    let out = head.written(&out);
    assert!(head.core.nodes().row(ME).is_some() && head.core.nodes().row(OTHER).is_none(), "{out:?}");
}

#[test]
fn nobody_dials_the_node_of_the_control_service_before() {
    let (mut head, _) = Head::with(Vec::new(), None);
    let out = head.register(OTHER, kind::DAEMON);
    let [_, ControlAction::Persist(_, writes)] = &out[..] else { panic!("{out:?}") };
    let bytes = writes[0].value.as_deref().expect("a record");
    let record = sooner_wire::record::NodeRecord::from_bytes(bytes).expect("a record");
    let (head, out) = Head::with(vec![record.clone()], None);
    assert!(matches!(out[..], [ControlAction::Probe { node: OTHER, .. }]), "{out:?}");
    assert!(!head.core.nodes().is_complete());
    let (head, out) = Head::with(vec![record], Some(OTHER));
    assert!(!out.iter().any(|action| matches!(action, ControlAction::Probe { .. })), "{out:?}");
    assert!(out.contains(&ControlAction::EndNode(OTHER)), "it ended with the process before: {out:?}");
    assert!(head.core.nodes().is_complete());
}

#[test]
fn a_node_that_lives_may_be_asked_about() {
    let mut head = Head::new();
    let out = head.send(ME, Suspect { node: OTHER, is_given_up: None });
    let [ControlAction::Probe { node: OTHER, number, .. }] = out[..] else { panic!("{out:?}") };
    let answered = Probed::Answered(OTHER);
    let out = head.act(|core, now, out| core.on_probed(OTHER, number, answered, now, out));
    assert_eq!(out, []);
    assert!(head.core.nodes().row(OTHER).is_some());
}

#[test]
fn nodes_speak_for_themselves() {
    let mut head = Head::new();
    let (mine, others) = (WorkerId(OTHER.0 + 1), WorkerId(ME.0 + 1));
    let out = head.send(OTHER, DialMe { from: mine, to: others, values: None });
    assert!(matches!(sent(&out, ME)[..], [Message::DialMe(_)]), "{out:?}");
    let out = head.send(OTHER, DialMe { from: others, to: mine, values: None });
    assert!(
        matches!(&out[..], [ControlAction::LogRationed(_), ControlAction::EndSession(OTHER, _)]),
        "{out:?}"
    );
}

#[test]
fn what_the_directory_has_is_a_part_of_the_state_of_a_node() {
    let mut head = Head::new();
    let question = Inspect { request: 4, ..Inspect::default() };
    let (from, to) = (WorkerId(OTHER.0), WorkerId(0));
    let out = head.send(OTHER, Routed { from, to, message: Box::new(question.clone().into()) });
    let [Message::Routed(answer)] = sent(&out, OTHER)[..] else { panic!("{out:?}") };
    assert!(matches!(&*answer.message, Message::InspectEnd(InspectEnd { request: 4, .. })), "{answer:?}");
    // Nobody asks for another node.
    let out = head.send(OTHER, Routed { from: WorkerId(ME.0), to, message: Box::new(question.into()) });
    assert!(sent(&out, OTHER).is_empty() && sent(&out, ME).is_empty(), "{out:?}");
}
