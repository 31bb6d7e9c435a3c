//! The head: the production core, and around it the handling of sessions, probes and the disk that
//! `sooner-runtime/src/control/service/running.rs` does in production.

use std::collections::BTreeSet;

use sooner_protocol::control::persist::Write;
use sooner_protocol::control::{Batch, ControlAction, ControlActions, ControlCore, Probed};
use sooner_protocol::time::Instant;
use sooner_wire::NodeId;
use sooner_wire::limits::PROBE_NANOS;
use sooner_wire::message::Message;

use super::net::HEAD;
use super::node::Link;
use super::plan::SECOND;
use super::world::{Event, World};
use crate::violation::fail;

/// The head handles in one turn the messages of this time (nanoseconds).
const TURN_NANOS: u64 = 5_000;

/// See the module.
pub struct Head {
    pub(super) core: ControlCore,
    /// Nodes that the head has taken in and still speaks with.
    links: BTreeSet<NodeId>,
    is_listed: bool,
    wakes_at: u64,
}

impl World {
    /// A head starts from its disk.
    pub(super) fn start_head(&mut self) {
        if self.head.is_some() {
            return;
        }
        let incarnation = self.head_life;
        self.head_life += 1;
        let former = self.places[0].node.map(|node| self.nodes[node].id);
        self.trace.send(|| format!("{:?}: head {} starts", self.now, self.head_life));
        self.start_node(0);
        let me = self.places[0].node.map(|node| self.nodes[node].id).expect("it was started");
        let begin = self.disk.beginning(me, former, incarnation, self.plan.health_timeout);
        let mut out = ControlActions::new();
        let core = ControlCore::new(begin, self.now, &mut out);
        self.head = Some(Head { core, links: BTreeSet::new(), is_listed: false, wakes_at: 0 });
        self.perform_for_head(out);
        self.list_head();
    }

    /// The head ends with its own node. Its machine is still there.
    pub(super) fn end_head(&mut self) {
        if self.head.take().is_none() {
            return;
        }
        self.saw("the head was started again");
        if let Some(own) = self.places[0].node {
            self.end_node(own, true);
        }
        self.end_sessions_of(HEAD);
        let is_there = self.random.chance(1, 2);
        self.disk.crash(is_there);
        for at in 0..self.nodes.len() {
            if self.nodes[at].runs() {
                self.lose_head(at);
            }
        }
    }

    /// Runs `work` on the core and performs its actions.
    fn act(&mut self, work: impl FnOnce(&mut ControlCore, Instant, &mut ControlActions)) {
        let now = self.now;
        let Some(head) = &mut self.head else { return };
        let mut out = ControlActions::new();
        work(&mut head.core, now, &mut out);
        self.events += 1;
        self.perform_for_head(out);
        self.list_head();
    }

    fn perform_for_head(&mut self, actions: ControlActions) {
        for action in actions {
            let Some(head) = &mut self.head else { return };
            match action {
                ControlAction::Send(node, message) => self.head_sends(node, *message),
                ControlAction::Admit(node) => drop(head.links.insert(node)),
                ControlAction::Dismiss(node, message) => self.head_dismisses(node, *message),
                ControlAction::EndNode(node) => {
                    head.links.remove(&node);
                    self.judge_burial(node);
                }
                ControlAction::EndSession(node, why) => fail("I14", format!("{node:?} says nonsense: {why}")),
                ControlAction::Persist(batch, writes) => self.write(batch, writes),
                ControlAction::Probe { node, number, address } => self.probe(node, number, &address),
                ControlAction::Log(text) | ControlAction::LogRationed(text) => {
                    self.trace.send(|| format!("{:?}: {text}", self.now));
                }
            }
        }
    }

    fn judge_burial(&mut self, node: NodeId) {
        if self.index_of(node).is_some_and(|at| self.nodes[at].runs()) {
            self.saw("a node that lives was declared gone");
        }
    }

    fn head_sends(&mut self, node: NodeId, message: Message) {
        let Some(at) = self.index_of(node) else { return };
        let Some(head) = self.head.as_mut().filter(|_| self.nodes[at].runs()) else { return };
        // A node that is not taken in after all gets this refusal as its last message.
        let is_last = matches!(message, Message::Refused(_));
        let is_there = if is_last { head.links.remove(&node) } else { head.links.contains(&node) };
        if is_there {
            self.send(HEAD, at, message);
        }
    }

    fn head_dismisses(&mut self, node: NodeId, message: Message) {
        let Some(at) = self.index_of(node) else { return };
        let Some(head) = self.head.as_mut().filter(|_| self.nodes[at].runs()) else { return };
        head.links.remove(&node);
        self.send(HEAD, at, message);
    }

    /// The head receives a message from a node.
    pub(super) fn head_receives(&mut self, from: usize, message: Message) {
        let id = self.nodes[from].id;
        let Some(head) = &mut self.head else { return };
        let is_registered = head.links.contains(&id);
        match message {
            Message::Register(register) => {
                self.act(|core, now, out| core.on_register(id, register, now, out))
            }
            Message::Heartbeat(beat) => self.act(|core, now, out| core.on_heartbeat(id, beat, now, out)),
            _ if !is_registered => {}
            message => self.act(|core, now, out| core.on_message(id, message, now, out)),
        }
    }

    /// The connection of a node has ended.
    pub(super) fn head_loses(&mut self, life: u32, node: usize) {
        let id = self.nodes[node].id;
        if life == self.head_life && self.head.as_mut().is_some_and(|head| head.links.contains(&id)) {
            self.act(|core, now, out| core.on_disconnected(id, now, out));
        }
    }

    fn probe(&mut self, node: NodeId, number: u32, address: &str) {
        let life = self.head_life;
        let Some(at) = self.index_of(node) else { return };
        let place = self.nodes[at].place;
        let listener = self.places[place].node.map(|at| &self.nodes[at]);
        let listener = listener.filter(|node| node.runs() && node.address == address);
        let (probed, takes) = match listener {
            _ if !self.is_carried(0, place) => (Probed::Silent, PROBE_NANOS),
            None => (Probed::Refused, 2 * self.plan.latency),
            Some(node) => (Probed::Answered(node.id), 3 * self.plan.latency),
        };
        self.after(takes, Event::Probed(life, node, number, probed));
    }

    pub(super) fn probed(&mut self, life: u32, node: NodeId, number: u32, probed: Probed) {
        if life == self.head_life {
            self.act(|core, now, out| core.on_probed(node, number, probed, now, out));
        }
    }

    fn write(&mut self, batch: Batch, writes: Vec<Write>) {
        if !self.disk.submit(batch, writes) {
            fail("FL6", "the queue of the disk is full");
        }
        self.begin_writing();
    }

    fn begin_writing(&mut self) {
        if self.disk.begin() {
            let takes = SECOND / 1000 + self.about(2 * SECOND / 1000);
            self.after(takes, Event::Written(self.head_life));
        }
    }

    pub(super) fn written(&mut self, life: u32) {
        if life != self.head_life || self.head.is_none() {
            return;
        }
        for batch in self.disk.finish(true) {
            self.act(|core, now, out| core.on_persisted(batch, Ok(()), now, out));
        }
        self.begin_writing();
        self.list_head();
    }

    fn list_head(&mut self) {
        let life = self.head_life;
        if let Some(head) = &mut self.head
            && !std::mem::replace(&mut head.is_listed, true)
        {
            self.after(TURN_NANOS, Event::HeadTurn(life));
        }
    }

    pub(super) fn wake_head(&mut self, life: u32, due: u64) {
        if life == self.head_life
            && let Some(head) = self.head.as_mut().filter(|head| head.wakes_at == due)
        {
            head.wakes_at = 0;
            self.take_turn_of_head(life);
        }
    }

    pub(super) fn take_turn_of_head(&mut self, life: u32) {
        let now = self.now;
        if life != self.head_life {
            return;
        }
        let Some(head) = &mut self.head else { return };
        head.is_listed = false;
        self.events += 1;
        let mut out = ControlActions::new();
        head.core.after_events(now, &mut out);
        self.perform_for_head(out);
        let Some(head) = &mut self.head else { return };
        let Some(due) = head.core.next_deadline() else { return };
        let due = due.max(now.plus(1)).0;
        if head.wakes_at == 0 || due < head.wakes_at {
            head.wakes_at = due;
            self.at(Instant(due), Event::HeadWake(life, due));
        }
    }

    /// Whether all nodes that run have been taken in.
    #[must_use]
    pub fn has_joined_all(&self) -> bool {
        let up = self.nodes.iter().filter(|node| node.runs() && node.link == Link::Up).count();
        up == self.plan.nodes
    }
}
