//! The control service of a scenario, and what nodes and it say to each other.

use std::collections::BTreeSet;

use sooner_protocol::control::membership::NodesOptions;
use sooner_protocol::control::persist::Write;
use sooner_protocol::control::{Batch, Beginning, ControlAction, ControlActions, ControlCore, Found, Probed};
use sooner_protocol::time::Instant;
use sooner_protocol::uplink::{ToControl, ToNode};
use sooner_wire::NodeId;
use sooner_wire::limits::HEALTH_TIMEOUT_NANOS;
use sooner_wire::message::{AboutNode, Heartbeat, Message, Register, kind};
use sooner_wire::record::{NODES, NodeRecord};

use super::cluster::{Cluster, End, Item, first_id};

const CLUSTER: u64 = 7;
const PYTHON: &str = "3.11";

/// See the module.
pub struct Head {
    pub core: ControlCore,
    out: ControlActions,
    admitted: BTreeSet<NodeId>,
    /// What it has asked for and not heard of.
    writes: Vec<(Batch, Vec<Write>)>,
    probes: Vec<(NodeId, u32)>,
}

impl Cluster {
    /// A control service begins on what those before it have written, and the nodes find it.
    pub fn start_head(&mut self) {
        let rows = self.disk.iter().filter(|(key, _)| key.starts_with(NODES));
        let nodes: Vec<NodeRecord> =
            rows.map(|(_, bytes)| NodeRecord::from_bytes(bytes).expect("a head wrote it")).collect();
        let found = Found::read(self.disk.clone()).expect("a head wrote it");
        let known = nodes.iter().map(|record| record.node).collect();
        let found = Found { incarnation: self.heads, nodes: known, ..found };
        let options =
            NodesOptions { cluster: CLUSTER, python: PYTHON.into(), health_timeout: HEALTH_TIMEOUT_NANOS };
        let mut out = ControlActions::new();
        // It is a part of no node of the scenario: what becomes of those is no end of it.
        let begin = Beginning { me: NodeId(0xffff << 24), former: None, options, nodes, found };
        let core = ControlCore::new(begin, self.now, &mut out);
        let (admitted, writes, probes) = (BTreeSet::new(), Vec::new(), Vec::new());
        self.head = Some(Head { core, out, admitted, writes, probes });
        let rejoins = (self.heads > 0).then_some(CLUSTER);
        self.heads += 1;
        for at in 0..self.nodes.len() {
            if !self.nodes[at].is_dead {
                let register = self.registration(at, rejoins);
                self.send(End::Node(at), End::Head, Item::Message(Box::new(register.into())));
            }
        }
        self.settle_head();
    }

    /// The control service ends, and with it what was on its way from and to it.
    pub fn kill_head(&mut self) {
        self.tell(End::Head, "is killed");
        self.head = None;
        self.channels.retain(|(from, to), _| *from != End::Head && *to != End::Head);
        let now = self.now;
        for node in self.nodes.iter_mut().filter(|node| !node.is_dead) {
            node.is_linked = false;
            node.core.member().expect("there is a head").on_control_down(now);
        }
    }

    fn registration(&self, at: usize, rejoins: Option<u64>) -> Register {
        let about = AboutNode {
            kind: kind::DAEMON,
            name: super::describe::letter(at).to_string(),
            address: Some(format!("10.0.0.{}:6380", at + 1)),
            host: format!("host-{at}"),
            boot_id: format!("boot-{at}"),
            resources: self.nodes[at].core.row().total,
            labels: Vec::new(),
        };
        Register { about: Box::new(about), version: "0.1.0".into(), python: PYTHON.into(), rejoins }
    }

    pub fn head_receives(&mut self, from: End, message: Message) {
        let (End::Node(at), now) = (from, self.now) else { unreachable!("only nodes talk to it") };
        let node = NodeId(first_id(at));
        let Some(head) = &mut self.head else { return };
        match message {
            Message::Register(register) => head.core.on_register(node, register, now, &mut head.out),
            _ if !head.admitted.contains(&node) => return,
            message => head.core.on_message(node, message, now, &mut head.out),
        }
        self.settle_head();
    }

    /// What the control service wants is done until it wants nothing more. Its disk writes at once.
    pub fn settle_head(&mut self) {
        let now = self.now;
        loop {
            let Some(head) = &mut self.head else { return };
            let lives = |node: NodeId| !self.nodes[usize::try_from((node.0 >> 24) - 1).expect("few")].is_dead;
            for node in head.admitted.iter().filter(|node| lives(**node)) {
                let beat = Heartbeat { number: 1, node_lag: 0, data_lag: 0 };
                head.core.on_heartbeat(*node, beat, now, &mut head.out);
            }
            for (batch, writes) in std::mem::take(&mut head.writes) {
                for Write { key, value } in writes {
                    match value {
                        Some(value) => drop(self.disk.insert(key, value)),
                        None => drop(self.disk.remove(&key)),
                    }
                }
                head.core.on_persisted(batch, Ok(()), now, &mut head.out);
            }
            for (node, number) in std::mem::take(&mut head.probes) {
                let probed = if lives(node) { Probed::Answered(node) } else { Probed::Refused };
                head.core.on_probed(node, number, probed, now, &mut head.out);
            }
            head.core.after_events(now, &mut head.out);
            let actions = std::mem::take(&mut head.out);
            if actions.is_empty() {
                return;
            }
            for action in actions {
                self.perform_for_head(action);
            }
        }
    }

    fn perform_for_head(&mut self, action: ControlAction) {
        let Some(head) = &mut self.head else { return };
        match action {
            ControlAction::Send(node, message) => {
                if head.admitted.contains(&node) {
                    let at = self.node_at(node);
                    self.send(End::Head, End::Node(at), Item::Message(message));
                }
            }
            ControlAction::Admit(node) => drop(head.admitted.insert(node)),
            ControlAction::Persist(batch, writes) => head.writes.push((batch, writes)),
            ControlAction::Probe { node, number, .. } => head.probes.push((node, number)),
            ControlAction::EndNode(node) => drop(head.admitted.remove(&node)),
            ControlAction::Dismiss(node, message) => panic!("{node:?} is sent away: {message:?}"),
            ControlAction::EndSession(node, why) => panic!("{node:?} says nonsense: {why}"),
            ControlAction::Log(_) | ControlAction::LogRationed(_) => {}
        }
    }

    /// The connection of a node that is gone ends, which the control service notices.
    pub fn notice_death(&mut self, at: usize) {
        let (now, node) = (self.now, NodeId(first_id(at)));
        if let Some(head) = &mut self.head {
            head.core.on_disconnected(node, now, &mut head.out);
        }
        self.settle_head();
    }

    pub fn send_to_head(&mut self, at: usize, word: ToControl) {
        if self.nodes[at].is_linked {
            let message = word.into_message(NodeId(first_id(at)));
            self.send(End::Node(at), End::Head, Item::Message(Box::new(message)));
        }
    }

    pub fn report_to_head(&mut self, at: usize, now: Instant) {
        let node = &mut self.nodes[at];
        if !node.is_linked {
            return;
        }
        node.reporter.note();
        if let Some(report) = node.reporter.take(now, || node.core.resources_now()) {
            self.send(End::Node(at), End::Head, Item::Message(Box::new(report.into())));
        }
    }

    pub fn receive_from_head(&mut self, at: usize, message: Message) {
        let (now, id) = (self.now, NodeId(first_id(at)));
        match message {
            Message::Registered(registered) => {
                self.nodes[at].is_linked = true;
                self.nodes[at].reporter.begin_anew();
                self.with_node(at, |node, out| {
                    node.member().expect("one of several").on_control_up(true, now, out);
                    registered.nodes.iter().for_each(|row| node.on_node_known(row));
                });
            }
            Message::NodesChanged(changed) => {
                self.with_node(at, |node, _| changed.rows.iter().for_each(|row| node.on_node_known(row)));
            }
            Message::NodeDead(gone) => {
                self.with_node(at, |node, out| {
                    node.member().expect("one of several").on_node_dead(gone.node, out);
                });
            }
            Message::ResourceView(view) => {
                self.with_node(at, |node, _| node.on_view(&view));
            }
            Message::Candidates(some) => {
                self.with_node(at, |node, _| node.on_candidates(&some));
            }
            message => {
                let word = ToNode::parse(message, id).expect("the control service says that");
                self.with_node(at, |node, out| {
                    node.member().expect("one of several").on_control(word, now, out);
                });
            }
        }
    }
}
