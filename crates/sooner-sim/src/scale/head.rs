//! The head: its machines, and around them what `sooner-runtime/src/control/service/running.rs` does with sessions, probes and the
//! disk.

use std::collections::BTreeSet;

use sooner_protocol::control::nodes::{Nodes, NodesAction, NodesOptions};
use sooner_protocol::control::persist::{BatchId, Write};
use sooner_protocol::control::view::View;
use sooner_protocol::control::wire::is_word;
use sooner_protocol::control::{Directory, DirectoryAction, DirectoryActions, Found, Probed, ToControl};
use sooner_protocol::scheduling::policy;
use sooner_protocol::time::Instant;
use sooner_wire::NodeId;
use sooner_wire::limits::PROBE_NANOS;
use sooner_wire::message::{FindNodes, Message, NodeRow, Register, ResourceReport};

use super::net::HEAD;
use super::node::Link;
use super::plan::SECOND;
use super::world::{Event, World};
use crate::violation::fail;

/// The cluster's number.
pub const CLUSTER: u64 = 7;
/// What all nodes have.
pub const PYTHON: &str = "3.11";
/// How long a head lets questions wait for the nodes that an earlier head knew (nanoseconds).
const RELEARN_NANOS: u64 = 10 * SECOND;
/// What the head does in one turn is what came within that time (nanoseconds).
const TURN_NANOS: u64 = 5_000;

/// Whose records a disk keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    /// The directory of nodes.
    Nodes,
    /// That of actors, jobs, names and groups.
    Directory,
}

/// See the module.
pub struct Head {
    pub(super) nodes: Nodes,
    pub(super) view: View,
    pub(super) core: Directory,
    questions: u64,
    is_complete: bool,
    /// Nodes that it has taken in and speaks with.
    links: BTreeSet<NodeId>,
    /// The node of the head before. It is gone, whatever answers at its address.
    former: Option<NodeId>,
    is_listed: bool,
    wakes_at: u64,
}

impl World {
    /// A head starts on its disk.
    pub(super) fn start_head(&mut self) {
        if self.head.is_some() {
            return;
        }
        let found = self.disks[Store::Directory as usize].entries().clone();
        let found = Found::read(found)
            .unwrap_or_else(|(key, error)| fail("I11", format!("the record {key:?}: {error}")));
        let records = self.disks[Store::Nodes as usize].records();
        let nodes = records.iter().map(|record| record.node).collect();
        let found = Found { incarnation: self.head_life, nodes, ..found };
        self.head_life += 1;
        let health_timeout = self.plan.health_timeout;
        let options = NodesOptions { cluster: CLUSTER, python: PYTHON.into(), health_timeout };
        let mut core = Directory::default();
        core.keep_records(found);
        core.expect_nodes(self.now.plus(RELEARN_NANOS));
        self.head = Some(Head {
            nodes: Nodes::new(options, records, self.now),
            view: View::default(),
            core,
            questions: 0,
            is_complete: false,
            links: BTreeSet::new(),
            former: self.places[0].node.map(|node| self.nodes[node].id),
            is_listed: false,
            wakes_at: 0,
        });
        self.trace.say(|| format!("{:?}: head {} starts", self.now, self.head_life));
        self.start_node(0);
        self.with_nodes(|nodes, now, out| nodes.on_start(now, out));
        self.list_head();
    }

    /// The head ends, with its own node. Its machine goes on.
    pub(super) fn end_head(&mut self) {
        if self.head.take().is_none() {
            return;
        }
        self.saw("the head was started again");
        if let Some(own) = self.places[0].node {
            self.end_node(own, true);
        }
        self.end_sessions_of(HEAD);
        for disk in 0..self.disks.len() {
            let is_there = self.random.chance(1, 2);
            self.disks[disk].crash(is_there);
        }
        for at in 0..self.nodes.len() {
            if self.nodes[at].runs() {
                self.lose_head(at);
            }
        }
    }

    fn with_nodes(&mut self, act: impl FnOnce(&mut Nodes, Instant, &mut Vec<NodesAction>)) {
        let now = self.now;
        let Some(head) = &mut self.head else { return };
        let mut out = Vec::new();
        act(&mut head.nodes, now, &mut out);
        self.events += 1;
        self.perform_for_head(out);
        self.list_head();
    }

    fn perform_for_head(&mut self, actions: Vec<NodesAction>) {
        for action in actions {
            let Some(head) = &mut self.head else { return };
            match action {
                NodesAction::Send(node, message) => self.head_says(node, *message),
                NodesAction::Persist(batch, writes) => self.write(Store::Nodes, batch, writes),
                NodesAction::Probe { node, number, address } => self.probe(node, number, &address),
                NodesAction::Joined(node) => {
                    if let Some(row) = head.nodes.row(node) {
                        head.view.on_joined(row);
                        head.core.on_node_joined(placing_row(row));
                    }
                }
                NodesAction::Gone(node, reason) => {
                    self.trace.say(|| format!("{:?}: {node:?} is gone: {reason}", self.now));
                    head.view.on_gone(node);
                    head.links.remove(&node);
                    let mut decided = DirectoryActions::new();
                    head.core.on_node_gone(node, &reason, &mut decided);
                    self.follow(decided);
                    self.judge_burial(node);
                }
                NodesAction::AskedAfter { from, node } => {
                    let mut decided = DirectoryActions::new();
                    head.core.on_asked_after(from, node, &mut decided);
                    self.follow(decided);
                }
                NodesAction::Warn(_) => {}
            }
        }
    }

    fn judge_burial(&mut self, node: NodeId) {
        if self.index_of(node).is_some_and(|at| self.nodes[at].runs()) {
            self.saw("a node that lives was declared gone");
        }
    }

    fn follow(&mut self, decided: DirectoryActions) {
        for action in decided {
            match action {
                DirectoryAction::Send(node, word) => self.head_says(node, word.into_message()),
                DirectoryAction::Persist(batch, writes) => self.write(Store::Directory, batch, writes),
                DirectoryAction::Warn(_) => {}
            }
        }
    }

    fn head_says(&mut self, node: NodeId, message: Message) {
        let Some(at) = self.index_of(node) else { return };
        let Some(head) = self.head.as_mut().filter(|_| self.nodes[at].runs()) else { return };
        let is_last = matches!(message, Message::Fenced(_) | Message::Refused(_));
        if is_last {
            head.links.remove(&node);
        }
        if is_last || head.links.contains(&node) {
            self.say(HEAD, at, message);
        }
    }

    /// Something came from a node.
    pub(super) fn head_hears(&mut self, from: usize, message: Message) {
        let id = self.nodes[from].id;
        let now = self.now;
        let Some(head) = &mut self.head else { return };
        self.events += 1;
        let is_registered = head.links.contains(&id);
        match message {
            Message::Register(register) => self.on_register(from, register),
            Message::Heartbeat(beat) => {
                self.with_nodes(|nodes, now, out| nodes.on_heartbeat(id, beat, now, out));
            }
            _ if !is_registered => {}
            Message::ResourceReport(report) => self.on_report(id, report),
            Message::FindNodes(find) => self.on_find_nodes(id, &find),
            Message::Suspect(suspect) => {
                self.with_nodes(|nodes, now, out| nodes.on_suspect(id, suspect, now, out));
            }
            Message::Drained(_) => self.with_nodes(|nodes, now, out| nodes.on_drained(id, now, out)),
            message if is_word(message.kind()) => {
                let word = ToControl::parse(message, id)
                    .unwrap_or_else(|wrong| fail("I14", format!("{id:?} says nonsense: {wrong:?}")));
                let mut decided = DirectoryActions::new();
                head.core.on_node(id, word, now, &mut decided);
                self.follow(decided);
            }
            _ => {}
        }
        self.list_head();
    }

    fn on_register(&mut self, from: usize, register: Register) {
        let now = self.now;
        let id = self.nodes[from].id;
        let Some(head) = &mut self.head else { return };
        let mut out = Vec::new();
        match head.nodes.on_register(id, register, now, &mut out) {
            Ok(()) => drop(head.links.insert(id)),
            Err(refusal) => self.say(HEAD, from, refusal.into_message()),
        }
        self.perform_for_head(out);
    }

    fn on_report(&mut self, node: NodeId, report: ResourceReport) {
        let Some(head) = &mut self.head else { return };
        if let Some(row) = head.nodes.row(node) {
            let mut row = placing_row(row);
            row.free = report.free.clone();
            head.core.on_report(row);
            head.core.on_bundles_free(node, report.bundles.clone().unwrap_or_default());
        }
        head.view.on_report(node, report).expect("a node says what is right");
    }

    fn on_find_nodes(&mut self, node: NodeId, find: &FindNodes) {
        let Some(head) = &mut self.head else { return };
        head.questions = head.questions.wrapping_add(1);
        let seed = head.questions.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let candidates = head.view.find(find, node, seed).expect("a node asks what is right");
        self.head_says(node, candidates.into());
    }

    /// The connection of a node has ended.
    pub(super) fn head_loses(&mut self, life: u32, node: usize) {
        let id = self.nodes[node].id;
        if life == self.head_life && self.head.as_mut().is_some_and(|head| head.links.contains(&id)) {
            self.with_nodes(|nodes, now, out| nodes.on_disconnected(id, now, out));
        }
    }

    fn probe(&mut self, node: NodeId, number: u32, address: &str) {
        let Some(head) = &self.head else { return };
        let (is_former, life) = (head.former == Some(node), self.head_life);
        let Some(at) = self.index_of(node) else { return };
        let place = self.nodes[at].place;
        let listener = self.places[place].node.map(|at| &self.nodes[at]);
        let listener = listener.filter(|node| node.runs() && node.address == address);
        let (probed, takes) = match listener {
            _ if is_former => (Probed::Refused, 0),
            _ if !self.is_carried(0, place) => (Probed::Silent, PROBE_NANOS),
            None => (Probed::Refused, 2 * self.plan.latency),
            Some(node) => (Probed::Answered(node.id), 3 * self.plan.latency),
        };
        self.after(takes, Event::Probed(life, node, number, probed));
    }

    pub(super) fn probed(&mut self, life: u32, node: NodeId, number: u32, probed: Probed) {
        if life == self.head_life {
            self.with_nodes(|nodes, now, out| nodes.on_probed(node, number, probed, now, out));
        }
    }

    fn write(&mut self, store: Store, batch: BatchId, writes: Vec<Write>) {
        if !self.disks[store as usize].submit(batch, writes) {
            fail("S6", "the queue of the disk is full");
        }
        self.begin_writing(store);
    }

    fn begin_writing(&mut self, store: Store) {
        if self.disks[store as usize].begin() {
            let takes = SECOND / 1000 + self.about(2 * SECOND / 1000);
            self.after(takes, Event::Written(self.head_life, store));
        }
    }

    pub(super) fn written(&mut self, life: u32, store: Store) {
        if life != self.head_life || self.head.is_none() {
            return;
        }
        let batches: Vec<BatchId> = self.disks[store as usize].finish(true);
        let now = self.now;
        for batch in batches {
            match store {
                Store::Nodes => self.with_nodes(|nodes, _, out| nodes.on_persisted(batch, Ok(()), out)),
                Store::Directory => {
                    let Some(head) = &mut self.head else { return };
                    let mut decided = DirectoryActions::new();
                    head.core.on_persisted(batch, Ok(()), now, &mut decided);
                    self.follow(decided);
                }
            }
        }
        self.begin_writing(store);
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
        let mut out = Vec::new();
        head.nodes.on_timer(now, &mut out);
        self.perform_for_head(out);
        let Some(head) = &mut self.head else { return };
        let mut decided = DirectoryActions::new();
        if !head.is_complete && head.nodes.is_complete() && head.core.has_heard_all() {
            head.is_complete = true;
            head.core.on_all_here(now, &mut decided);
        }
        head.core.settle(now, &mut decided);
        let mut views = Vec::new();
        head.view.settle(now, &mut views);
        self.follow(decided);
        for (node, view) in views {
            self.head_says(node, view);
        }
        let Some(head) = &mut self.head else { return };
        let dues = [head.nodes.next_deadline(), head.view.next_deadline(), head.core.next_deadline()];
        let Some(due) = dues.into_iter().flatten().min() else { return };
        let due = due.max(now.plus(1)).0;
        if head.wakes_at == 0 || due < head.wakes_at {
            head.wakes_at = due;
            self.at(Instant(due), Event::HeadWake(life, due));
        }
    }

    /// Whether all nodes that run are taken in.
    #[must_use]
    pub fn has_joined_all(&self) -> bool {
        let up = self.nodes.iter().filter(|node| node.runs() && node.link == Link::Up).count();
        up == self.plan.nodes
    }
}

/// A node as the directory chooses among them: what it has is free until it says more.
fn placing_row(row: &NodeRow) -> policy::NodeRow {
    let (total, labels) = (row.about.resources.clone(), row.about.labels.clone());
    policy::NodeRow { node: row.node, free: total.clone(), total, labels }
}
