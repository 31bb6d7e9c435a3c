//! The head: its machines, and around them what `sooner-runtime/src/control/service.rs` does with connections, probes and the disk.

use std::collections::BTreeMap;

use sooner_protocol::control::Probed;
use sooner_protocol::control::nodes::{Nodes, NodesAction, NodesOptions};
use sooner_protocol::control::persist::BatchId;
use sooner_protocol::control::view::View;
use sooner_wire::NodeId;
use sooner_wire::limits::PROBE_NANOS;
use sooner_wire::message::{Drain, Message, Register};

use super::conns::Side;
use super::daemons::Line;
use super::plan::SECOND;
use super::world::{Event, World};
use crate::violation::fail;

/// The cluster's number.
pub const CLUSTER: u64 = 7;
/// What all nodes have.
pub const PYTHON: &str = "3.11";

/// See the module.
#[derive(Debug)]
pub struct Head {
    pub(super) nodes: Nodes,
    pub(super) view: View,
    control: BTreeMap<NodeId, u64>,
    health: BTreeMap<NodeId, u64>,
    /// The node of the head before. It is gone, whatever answers at its address.
    former: Option<NodeId>,
    /// Probes that have not ended.
    pub(super) probes: usize,
}

impl World {
    /// A head starts on its disk.
    pub(super) fn start_head(&mut self) {
        if self.head.is_some() {
            return;
        }
        self.head_life += 1;
        let options = NodesOptions {
            cluster: CLUSTER,
            python: PYTHON.into(),
            health_timeout: self.plan.health_timeout,
        };
        self.head = Some(Head {
            nodes: Nodes::new(options, self.disk.records(), self.now),
            view: View::default(),
            control: BTreeMap::new(),
            health: BTreeMap::new(),
            former: self.hosts[0].daemon.map(|daemon| self.daemons[daemon].id),
            probes: 0,
        });
        self.trace.say(|| format!("{:?}: head {} starts", self.now, self.head_life));
        self.all_are_heard();
        self.start_daemon(0);
        self.with_nodes(|nodes, now, out| nodes.on_start(now, out));
    }

    /// The head ends, with its own node. `is_told`: its machine goes on, and refuses connections.
    pub(super) fn end_head(&mut self, is_told: bool) {
        if self.head.take().is_none() {
            return;
        }
        self.trace.say(|| format!("{:?}: the head ends", self.now));
        let own = self.hosts[0].daemon.expect("a head has a node");
        self.end_daemon(own, is_told);
        let all: Vec<u64> = self.conns.keys().copied().collect();
        all.into_iter().for_each(|conn| self.leave(conn, Side::Head, is_told));
        let is_there = self.random.chance(1, 2);
        self.disk.crash(is_there);
        self.head_stands = self.now;
        (self.timer, self.timer_due) = (self.timer + 1, None);
    }

    /// Has the machine do something, and does what it asks for.
    pub(super) fn with_nodes(
        &mut self,
        act: impl FnOnce(&mut Nodes, sooner_protocol::time::Instant, &mut Vec<NodesAction>),
    ) {
        let now = self.now;
        let Some(head) = &mut self.head else { return };
        let mut out = Vec::new();
        act(&mut head.nodes, now, &mut out);
        self.events += 1;
        self.perform(out);
        self.set_timer();
    }

    fn perform(&mut self, actions: Vec<NodesAction>) {
        for action in actions {
            match action {
                NodesAction::Send(node, message) => self.head_says(node, *message),
                NodesAction::Persist(batch, writes) => {
                    self.judge_writes(&writes);
                    if !self.disk.submit(batch, writes) {
                        fail("K5", "the queue of the disk is full");
                    }
                    self.write();
                }
                NodesAction::Probe { node, number, address } => self.probe(node, number, &address),
                NodesAction::Joined(node) => {
                    let Some(head) = &mut self.head else { return };
                    if let Some(row) = head.nodes.row(node) {
                        head.view.on_joined(row);
                    }
                }
                NodesAction::Gone(node, reason) => {
                    self.trace.say(|| format!("{:?}: {node:?} is gone: {reason}", self.now));
                    let Some(head) = &mut self.head else { return };
                    head.view.on_gone(node);
                    let over = [head.control.remove(&node), head.health.remove(&node)];
                    over.into_iter().flatten().for_each(|conn| self.leave(conn, Side::Head, true));
                    self.tell(node);
                }
                NodesAction::AskedAfter { .. } => {}
                NodesAction::Warn(_) => self.all_are_heard(),
            }
        }
    }

    fn head_says(&mut self, node: NodeId, message: Message) {
        self.judge_words(node, &message);
        let Some(head) = &mut self.head else { return };
        if !matches!(message, Message::Fenced(_)) {
            if let Some(conn) = head.control.get(&node).copied() {
                self.say(conn, Side::Node, message);
            }
            return;
        }
        // Whoever is told that is told nothing more, on whatever connections it has.
        head.control.remove(&node);
        head.health.remove(&node);
        let daemons = &self.daemons;
        let held = |conn: &super::conns::Conn| conn.is_held(Side::Head) && daemons[conn.daemon].id == node;
        let all: Vec<u64> =
            self.conns.iter().filter(|(_, conn)| held(conn)).map(|(number, _)| *number).collect();
        for conn in all {
            self.say(conn, Side::Node, message.clone());
            self.leave(conn, Side::Head, true);
        }
    }

    /// A connection for heartbeats is there.
    pub(super) fn head_greets(&mut self, conn: u64) {
        let id = self.daemons[self.conns[&conn].daemon].id;
        let Some(head) = &mut self.head else { return };
        if let Some(former) = head.health.insert(id, conn) {
            self.leave(former, Side::Head, true);
        }
    }

    /// Something came over a connection.
    pub(super) fn head_hears(&mut self, conn: u64, message: Message) {
        let connection = &self.conns[&conn];
        let (daemon, line) = (connection.daemon, connection.line);
        let id = self.daemons[daemon].id;
        let Some(head) = &mut self.head else { return };
        match (line, message) {
            (Line::Control, Message::Register(register)) => self.on_register(conn, daemon, register),
            (Line::Control, _) if head.control.get(&id) != Some(&conn) => {}
            (Line::Control, Message::ResourceReport(report)) => {
                head.view.on_report(id, report).expect("a node says what is right");
                self.set_timer();
            }
            (Line::Control, Message::Suspect(suspect)) => {
                self.with_nodes(|nodes, now, out| nodes.on_suspect(id, suspect, now, out));
            }
            (Line::Control, Message::Drained(_)) => {
                self.with_nodes(|nodes, now, out| nodes.on_drained(id, now, out));
            }
            (Line::Health, Message::Heartbeat(beat)) => {
                self.is_heard(id);
                self.with_nodes(|nodes, now, out| nodes.on_heartbeat(id, beat, now, out));
            }
            _ => {}
        }
    }

    fn on_register(&mut self, conn: u64, daemon: usize, register: Register) {
        let now = self.now;
        let id = self.daemons[daemon].id;
        let Some(head) = &mut self.head else { return };
        let mut out = Vec::new();
        self.events += 1;
        match head.nodes.on_register(id, register, now, &mut out) {
            Ok(()) => {
                if let Some(former) = head.control.insert(id, conn).filter(|former| *former != conn) {
                    self.leave(former, Side::Head, true);
                }
                self.members.insert(id, daemon);
                self.is_heard(id);
            }
            Err(refusal) => {
                self.say(conn, Side::Node, refusal.into_message());
                self.leave(conn, Side::Head, true);
            }
        }
        self.perform(out);
        self.set_timer();
    }

    /// A connection ended.
    pub(super) fn head_loses(&mut self, conn: u64) {
        let connection = &self.conns[&conn];
        let id = self.daemons[connection.daemon].id;
        let line = connection.line;
        let Some(head) = &mut self.head else { return };
        let place = match line {
            Line::Control => &mut head.control,
            Line::Health => &mut head.health,
        };
        if place.get(&id) == Some(&conn) {
            place.remove(&id);
            self.with_nodes(|nodes, now, out| nodes.on_disconnected(id, now, out));
        }
    }

    fn probe(&mut self, node: NodeId, number: u32, address: &str) {
        let Some(head) = &mut self.head else { return };
        head.probes += 1;
        let is_former = head.former == Some(node);
        let life = self.head_life;
        let host = self.host_of(address);
        let reaches = self.is_carried(0, host) && self.is_carried(host, 0);
        let listens = |daemon: &&super::daemons::Daemon| {
            daemon.runs && daemon.host == host && daemon.address.as_deref() == Some(address)
        };
        let listener = self.hosts[host].daemon.map(|daemon| &self.daemons[daemon]).filter(listens);
        let (probed, takes) = match listener {
            _ if is_former => (Probed::Refused, 0),
            _ if !reaches => (Probed::Silent, PROBE_NANOS),
            None => (Probed::Refused, 2 * self.latency()),
            Some(daemon) if daemon.stands > self.now => (Probed::Silent, PROBE_NANOS),
            Some(daemon) => (Probed::Answered(daemon.id), 3 * self.latency()),
        };
        // A late answer is none.
        let (probed, takes) =
            if takes > PROBE_NANOS { (Probed::Silent, PROBE_NANOS) } else { (probed, takes) };
        self.at(self.now.plus(takes), Event::Probed(life, node, number, probed));
    }

    pub(super) fn probed(&mut self, life: u32, node: NodeId, number: u32, probed: Probed) {
        if life != self.head_life {
            return;
        }
        if let Some(head) = &mut self.head {
            head.probes -= 1;
        }
        if probed == Probed::Answered(node) {
            self.is_heard(node);
        }
        self.with_nodes(|nodes, now, out| nodes.on_probed(node, number, probed, now, out));
    }

    fn write(&mut self) {
        if !self.disk.begin() {
            return;
        }
        let mut takes = SECOND / 1000 + self.random.below(10 * SECOND as usize / 1000) as u64;
        if self.has_faults() && self.plan.has("disk-slow") && self.random.chance(1, 10) {
            takes += self.random.below(4 * SECOND as usize) as u64;
        }
        self.at(self.now.plus(takes), Event::Written(self.head_life));
    }

    pub(super) fn written(&mut self, life: u32) {
        if life != self.head_life || self.head.is_none() {
            return;
        }
        let works = !(self.has_faults() && self.plan.has("disk-full") && self.random.chance(1, 6));
        let batches: Vec<BatchId> = self.disk.finish(works);
        for batch in batches {
            let outcome = if works { Ok(()) } else { Err("no space left on device".to_owned()) };
            self.with_nodes(|nodes, _, out| nodes.on_persisted(batch, outcome, out));
        }
        self.write();
    }

    /// Somebody wants a node to leave.
    pub(super) fn drain(&mut self, node: NodeId) {
        let nanos = self.random.below(6 * SECOND as usize) as u64;
        self.drained.insert(node);
        self.with_nodes(|nodes, now, out| {
            // Whoever is not there need not leave.
            let _ = nodes.on_drain(Drain { node, nanos }, now, out);
        });
        let Some(head) = &mut self.head else { return };
        if let Some(row) = head.nodes.row(node) {
            head.view.on_node(row);
        }
    }

    /// Time passes for the head.
    pub(super) fn tick_head(&mut self, number: u64) {
        if number != self.timer || self.head.is_none() {
            return;
        }
        let now = self.now;
        self.timer_due = None;
        self.with_nodes(|nodes, now, out| nodes.on_timer(now, out));
        let Some(head) = &mut self.head else { return };
        head.nodes.check();
        let mut news = Vec::new();
        head.view.settle(now, &mut news);
        for (node, message) in news {
            self.head_says(node, message);
        }
        let Some(head) = &self.head else { return };
        let deadlines = [head.nodes.next_deadline(), head.view.next_deadline()];
        if deadlines.into_iter().flatten().any(|due| due <= now) {
            fail("K6", format!("the head's loop would spin: {deadlines:?} at {now:?}"));
        }
        self.judge_candidates();
        self.set_timer();
    }
}
