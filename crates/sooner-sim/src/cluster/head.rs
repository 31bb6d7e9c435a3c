//! The head: the production core, and around it the handling of connections, probes and the disk that
//! `sooner-runtime/src/control/service/running.rs` does in production.

use std::collections::BTreeMap;

use sooner_protocol::control::membership::STOOD_STILL;
use sooner_protocol::control::{Batch, ControlAction, ControlActions, ControlCore, Probed};
use sooner_protocol::time::Instant;
use sooner_wire::NodeId;
use sooner_wire::limits::PROBE_NANOS;
use sooner_wire::message::{Drain, Message, Register};

use super::conns::Side;
use super::daemons::Line;
use super::plan::SECOND;
use super::world::{Event, World};
use crate::violation::fail;

/// The number of the cluster.
pub const CLUSTER: u64 = 7;
/// The Python version of all nodes.
pub const PYTHON: &str = "3.11";

/// See the module.
#[derive(Debug)]
pub struct Head {
    pub(super) core: ControlCore,
    control: BTreeMap<NodeId, u64>,
    health: BTreeMap<NodeId, u64>,
    /// Probes that are running.
    pub(super) probes: usize,
}

impl World {
    /// A head starts from its disk.
    pub(super) fn start_head(&mut self) {
        if self.head.is_some() {
            return;
        }
        self.head_life += 1;
        let former = self.hosts[0].daemon.map(|daemon| self.daemons[daemon].id);
        self.trace.send(|| format!("{:?}: head {} starts", self.now, self.head_life));
        self.all_are_heard();
        self.start_daemon(0);
        let me = self.hosts[0].daemon.map(|daemon| self.daemons[daemon].id).expect("it was started");
        let begin = self.disk.beginning(me, former, self.head_life, self.plan.health_timeout);
        let mut out = ControlActions::new();
        let core = ControlCore::new(begin, self.now, &mut out);
        self.head = Some(Head { core, control: BTreeMap::new(), health: BTreeMap::new(), probes: 0 });
        self.perform(out, None);
        self.set_timer();
    }

    /// The head ends with its own node. `is_told`: its machine is still there, and refuses connections.
    pub(super) fn end_head(&mut self, is_told: bool) {
        if self.head.take().is_none() {
            return;
        }
        self.trace.send(|| format!("{:?}: the head ends", self.now));
        let own = self.hosts[0].daemon.expect("a head has a node");
        self.end_daemon(own, is_told);
        let all: Vec<u64> = self.conns.keys().copied().collect();
        all.into_iter().for_each(|conn| self.leave(conn, Side::Head, is_told));
        let is_there = self.random.chance(1, 2);
        self.disk.crash(is_there);
        self.head_stands = self.now;
        (self.timer, self.timer_due) = (self.timer + 1, None);
    }

    /// Runs `work` on the core and performs its actions. `conn`: the connection that asked for `work`.
    fn act_for(
        &mut self,
        conn: Option<u64>,
        work: impl FnOnce(&mut ControlCore, Instant, &mut ControlActions),
    ) {
        let now = self.now;
        let Some(head) = &mut self.head else { return };
        let mut out = ControlActions::new();
        work(&mut head.core, now, &mut out);
        self.events += 1;
        self.perform(out, conn);
        self.set_timer();
    }

    pub(super) fn act(&mut self, work: impl FnOnce(&mut ControlCore, Instant, &mut ControlActions)) {
        self.act_for(None, work);
    }

    fn perform(&mut self, actions: ControlActions, conn: Option<u64>) {
        for action in actions {
            match action {
                ControlAction::Send(node, message) => self.head_sends(node, *message),
                ControlAction::Admit(node) => {
                    let conn = conn.expect("it has asked for that");
                    self.admit(node, conn);
                }
                ControlAction::Dismiss(node, message) => self.dismiss(node, &message, conn),
                ControlAction::EndNode(node) => {
                    let Some(head) = &mut self.head else { return };
                    let over = [head.control.remove(&node), head.health.remove(&node)];
                    over.into_iter().flatten().for_each(|conn| self.leave(conn, Side::Head, true));
                    self.tell(node);
                }
                ControlAction::EndSession(node, why) => fail("I14", format!("{node:?} says nonsense: {why}")),
                ControlAction::Persist(batch, writes) => {
                    if matches!(batch, Batch::OfNodes(_)) {
                        self.judge_writes(&writes);
                    }
                    if !self.disk.submit(batch, writes) {
                        fail("K5", "the queue of the disk is full");
                    }
                    self.write();
                }
                ControlAction::Probe { node, number, address } => self.probe(node, number, &address),
                ControlAction::Log(text) | ControlAction::LogRationed(text) => {
                    if text == STOOD_STILL {
                        self.all_are_heard();
                    }
                    self.trace.send(|| format!("{:?}: {text}", self.now));
                }
            }
        }
    }

    fn head_sends(&mut self, node: NodeId, message: Message) {
        self.judge_words(node, &message);
        let Some(head) = &mut self.head else { return };
        if let Some(conn) = head.control.get(&node).copied() {
            self.send(conn, Side::Node, message);
        }
    }

    fn admit(&mut self, node: NodeId, conn: u64) {
        let daemon = self.conns[&conn].daemon;
        let Some(head) = &mut self.head else { return };
        if let Some(former) = head.control.insert(node, conn).filter(|former| *former != conn) {
            self.leave(former, Side::Head, true);
        }
        self.members.insert(node, daemon);
        self.is_received(node);
    }

    /// Sends the node its dismissal as the last message: on the connection that asked, if one did, because
    /// another node may have the same id; otherwise on all connections of the node.
    fn dismiss(&mut self, node: NodeId, message: &Message, asked: Option<u64>) {
        let over: Vec<u64> = if let Some(conn) = asked {
            vec![conn]
        } else {
            let Some(head) = &mut self.head else { return };
            head.control.remove(&node);
            head.health.remove(&node);
            let daemons = &self.daemons;
            let held =
                |conn: &super::conns::Conn| conn.is_held(Side::Head) && daemons[conn.daemon].id == node;
            self.conns.iter().filter(|(_, conn)| held(conn)).map(|(number, _)| *number).collect()
        };
        for conn in over {
            self.send(conn, Side::Node, message.clone());
            self.leave(conn, Side::Head, true);
        }
    }

    /// A connection for heartbeats has been made.
    pub(super) fn head_greets(&mut self, conn: u64) {
        let id = self.daemons[self.conns[&conn].daemon].id;
        let Some(head) = &mut self.head else { return };
        if let Some(former) = head.health.insert(id, conn) {
            self.leave(former, Side::Head, true);
        }
    }

    /// The head receives a message.
    pub(super) fn head_receives(&mut self, conn: u64, message: Message) {
        let connection = &self.conns[&conn];
        let (daemon, line) = (connection.daemon, connection.line);
        let id = self.daemons[daemon].id;
        let Some(head) = &self.head else { return };
        let is_registered = head.control.get(&id) == Some(&conn);
        match (line, message) {
            (Line::Control, Message::Register(register)) => self.on_register(conn, register),
            (Line::Control, message) if is_registered => {
                self.act(|core, now, out| core.on_message(id, message, now, out));
            }
            (Line::Health, Message::Heartbeat(beat)) => {
                self.is_received(id);
                self.act(|core, now, out| core.on_heartbeat(id, beat, now, out));
            }
            _ => {}
        }
    }

    fn on_register(&mut self, conn: u64, register: Register) {
        let id = self.daemons[self.conns[&conn].daemon].id;
        self.act_for(Some(conn), |core, now, out| core.on_register(id, register, now, out));
    }

    /// A connection of the head has ended.
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
            self.act(|core, now, out| core.on_disconnected(id, now, out));
        }
    }

    fn probe(&mut self, node: NodeId, number: u32, address: &str) {
        let Some(head) = &mut self.head else { return };
        head.probes += 1;
        let life = self.head_life;
        let host = self.host_of(address);
        let reaches = self.is_carried(0, host) && self.is_carried(host, 0);
        let listens = |daemon: &&super::daemons::Daemon| {
            daemon.runs && daemon.host == host && daemon.address.as_deref() == Some(address)
        };
        let listener = self.hosts[host].daemon.map(|daemon| &self.daemons[daemon]).filter(listens);
        let (probed, takes) = match listener {
            _ if !reaches => (Probed::Silent, PROBE_NANOS),
            None => (Probed::Refused, 2 * self.latency()),
            Some(daemon) if daemon.stands > self.now => (Probed::Silent, PROBE_NANOS),
            Some(daemon) => (Probed::Answered(daemon.id), 3 * self.latency()),
        };
        // An answer that is too late counts as none.
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
            self.is_received(node);
        }
        self.act(|core, now, out| core.on_probed(node, number, probed, now, out));
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
        let batches: Vec<Batch> = self.disk.finish(works);
        for batch in batches {
            let outcome = if works { Ok(()) } else { Err("no space left on device".to_owned()) };
            self.act(|core, now, out| core.on_persisted(batch, outcome, now, out));
        }
        self.write();
    }

    /// A node is asked to leave.
    pub(super) fn drain(&mut self, node: NodeId) {
        let nanos = self.random.below(6 * SECOND as usize) as u64;
        self.drained.insert(node);
        // Any node may send that request; a node that is not there need not leave.
        let Some(own) = self.hosts[0].daemon.map(|daemon| self.daemons[daemon].id) else { return };
        self.act(|core, now, out| core.on_message(own, Drain { node, nanos }.into(), now, out));
    }

    /// The head's timer fires.
    pub(super) fn tick_head(&mut self, number: u64) {
        if number != self.timer || self.head.is_none() {
            return;
        }
        let now = self.now;
        self.timer_due = None;
        self.act(|core, now, out| core.after_events(now, out));
        let Some(head) = &self.head else { return };
        head.core.check();
        if head.core.next_deadline().is_some_and(|due| due <= now) {
            fail("K6", format!("the head's loop would spin: {:?} at {now:?}", head.core.next_deadline()));
        }
        self.judge_candidates();
        self.set_timer();
    }
}
