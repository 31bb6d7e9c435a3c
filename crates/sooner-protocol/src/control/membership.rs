//! The nodes of a cluster: which have joined, live, leave, or are dead.
//!
//! A node joins when its record is on disk. The death of a node that may still live is announced once its
//! record is deleted; the death of a node whose daemon has ended is announced at once, since no restarted
//! head will find it. So a restarted head knows every node that others may know, and an id that it does not
//! know belongs to a dead node.
//!
//! Invariants:
//! - ND1: a node is known or gone, never both; an id that is gone never comes back.
//! - ND2: the name of a known node is that of no other.
//! - ND3: a node of which nothing is heard is gone after the timeout and one tick, unless the head itself
//!   stood still: then all silences begin anew. Standing still makes nobody gone.
//! - ND4: a node that is heard of, and whose port does not refuse, is never gone.
//!
//! It never looks at a connection: the sender of a message and the end of a connection come in from outside.

use sooner_wire::NodeId;
use sooner_wire::limits::{
    DRAIN_NANOS_MAX, HEALTH_TIMEOUT_NANOS_MAX, HEALTH_TIMEOUT_NANOS_MIN, HEARTBEAT_NANOS, NODES_MAX,
    VIEW_NANOS,
};
use sooner_wire::message::{
    Drain, Fenced, Heartbeat, Message, NodeDead, NodeRow, NodesChanged, Refused, Register, Registered,
    Settings, Suspect, kind, node_state,
};
use sooner_wire::record::{NodeRecord, node_key};

use super::persist::{BatchId, Write};
use crate::table::{Map, Set};
use crate::time::Instant;
use gone::DeadNodes;
use health::Health;
use joining::{from_record, record};

mod gone;
mod health;
mod joining;

pub use health::Probed;
pub use joining::Refusal;

/// How long (nanoseconds) the message that a node is dead waits for the disk: a hanging disk must not keep
/// others waiting for a dead node.
const DISK_PATIENCE_NANOS: u64 = 1_000_000_000;

/// The warning when the control service itself stood still.
pub const STOOD_STILL: &str = "the head stood still: all health timeouts begin anew";

/// Ticks in a health timeout: a node is declared dead at most one tick late.
const TICKS: u64 = 10;

/// An effect. Messages to one node stay in order.
#[derive(Debug, Clone, PartialEq)]
pub enum NodesAction {
    /// Send a message to a node.
    Send(NodeId, Box<Message>),
    /// Write, and report the result with [`Nodes::on_persisted`].
    Persist(BatchId, Vec<Write>),
    /// Dial that address and find out which node answers.
    Probe {
        /// The node that should answer.
        node: NodeId,
        /// Comes back with [`Nodes::on_probed`].
        number: u32,
        /// Where to dial.
        address: String,
    },
    /// A node has joined, or come back: to a restarted head, or over another connection. It has forgotten
    /// everything that it was sent before.
    Joined(NodeId),
    /// A node is dead with all that was on it. The actions before this one tell all nodes.
    Dead(NodeId, String),
    /// A node asks about a dead node that died perhaps before the asking node joined, or before this head
    /// started: it may not have been told of the processes there.
    AskedAfter {
        /// The asking node.
        from: NodeId,
        /// The dead node.
        node: NodeId,
    },
    /// Log a warning for the operator of the cluster.
    Warn(String),
}

/// What a cluster is and how its nodes are watched.
#[derive(Debug, Clone)]
pub struct NodesOptions {
    /// Its id.
    pub cluster: u64,
    /// "3.11": what all nodes must run.
    pub python: String,
    /// The silence (nanoseconds) after which a node is declared dead.
    pub health_timeout: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It had joined an earlier head, and has not come back yet.
    Expected,
    /// Its record is being written.
    Joining,
    /// It takes part.
    Alive,
    /// It leaves, and must be gone by this time.
    Draining(Instant),
}

#[derive(Debug)]
struct Node {
    row: NodeRow,
    phase: Phase,
    health: Health,
}

impl Node {
    fn is_told(&self) -> bool {
        matches!(self.phase, Phase::Alive | Phase::Draining(_))
    }
}

/// A change that waits for the disk.
#[derive(Debug)]
enum Pending {
    Join(NodeId),
    /// The message that a node is dead, which is sent at this time at the latest.
    Leave(NodeId, Instant),
    /// The message was sent; the record still exists.
    Forget(NodeId),
}

/// See the module.
#[derive(Debug)]
pub struct Nodes {
    options: NodesOptions,
    nodes: Map<NodeId, Node>,
    names: Map<String, NodeId>,
    gone: DeadNodes,
    pending: Map<BatchId, Pending>,
    batches: u64,
    /// Dead nodes whose records could not be deleted: tried again at each tick.
    undeleted: Set<NodeId>,
    /// Nodes that are not known any more but may still have a record, with the names that they had.
    former: Map<NodeId, String>,
    changed: Set<NodeId>,
    told: Option<Instant>,
    ticked: Instant,
}

impl Nodes {
    /// The nodes that an earlier head knew, from its records; none in a new cluster.
    #[must_use]
    pub fn new(options: NodesOptions, records: Vec<NodeRecord>, now: Instant) -> Self {
        let timeouts = HEALTH_TIMEOUT_NANOS_MIN..=HEALTH_TIMEOUT_NANOS_MAX;
        assert!(timeouts.contains(&options.health_timeout), "checked where it was given");
        let mut nodes = Self {
            options,
            nodes: Map::default(),
            names: Map::default(),
            gone: DeadNodes::default(),
            pending: Map::default(),
            batches: 0,
            undeleted: Set::default(),
            former: Map::default(),
            changed: Set::default(),
            told: None,
            ticked: now,
        };
        for record in records {
            nodes.names.insert(record.name.clone(), record.node);
            let node = Node { row: from_record(record), phase: Phase::Expected, health: Health::new(now) };
            nodes.nodes.insert(node.row.node, node);
        }
        nodes
    }

    /// After a start with records: probes which of the nodes still live.
    pub fn on_start(&mut self, now: Instant, out: &mut Vec<NodesAction>) {
        let all: Vec<NodeId> = self.nodes.keys().copied().collect();
        for node in all {
            self.on_disconnected(node, now, out);
        }
    }

    /// A node wants to join, or comes back to a restarted head. Returns why it may not.
    ///
    /// # Errors
    /// [`Refusal`], to be sent on the asking connection: another node may have the same id.
    pub fn on_register(
        &mut self,
        node: NodeId,
        register: Register,
        now: Instant,
        out: &mut Vec<NodesAction>,
    ) -> Result<(), Refusal> {
        self.check_membership(node, register.rejoins)?;
        let had_joined = register.rejoins.is_some();
        let row = joining::read(node, register, &self.options.python)?;
        if let Some(known) = self.nodes.get_mut(&node) {
            // The node's connection or the head ended before the answer arrived; or two nodes have the same
            // id.
            if record(&known.row) != record(&row) {
                let reason = "another node has drawn the same id: start again".to_owned();
                // A node that had joined would ask for ever.
                return Err(if had_joined { Refusal::Fenced(reason) } else { Refusal::Refused(reason) });
            }
            known.row = NodeRow { state: known.row.state, is_slow: known.row.is_slow, ..row };
            known.health.on_received(now);
            if known.phase != Phase::Joining {
                self.welcome(node, out);
            }
            return Ok(());
        }
        self.check_room(&row, out)?;
        if self.nodes.is_empty() {
            self.ticked = now;
        }
        self.former.swap_remove(&node);
        // This write is queued behind all that were to delete the node's record.
        self.undeleted.swap_remove(&node);
        // In one write: a restarted head must not find two nodes with one name.
        let same = self.former.iter().filter(|(_, name)| **name == row.about.name);
        let mut writes: Vec<Write> = same.map(|(former, _)| Write::delete(node_key(*former))).collect();
        writes.push(Write::put(node_key(node), record(&row).to_bytes()));
        let namesake = self.names.insert(row.about.name.clone(), node);
        assert!(namesake.is_none(), "ND2: {node:?} has the name of {namesake:?}");
        assert!(self.gone.reason(node).is_none(), "ND1: {node:?} is gone, and joins");
        self.nodes.insert(node, Node { row, phase: Phase::Joining, health: Health::new(now) });
        self.persist(Pending::Join(node), writes, out);
        Ok(())
    }

    fn check_membership(&self, node: NodeId, rejoins: Option<u64>) -> Result<(), Refusal> {
        if let Some(reason) = self.gone.reason(node) {
            return Err(Refusal::Fenced(format!("this node was declared gone: {reason}")));
        }
        match rejoins {
            Some(cluster) if cluster != self.options.cluster => Err(Refusal::Fenced(format!(
                "this node belongs to the cluster {cluster:016x}, and this is the head of {:016x}",
                self.options.cluster
            ))),
            // A node that had joined is known, even to a restarted head.
            Some(_) if !self.nodes.contains_key(&node) => {
                Err(Refusal::Fenced("this node was declared gone long ago".to_owned()))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn check_room(&mut self, row: &NodeRow, out: &mut Vec<NodesAction>) -> Result<(), Refusal> {
        if let Some(other) = self.names.get(&row.about.name).copied() {
            // That node may have died unnoticed: then the next try succeeds.
            self.probe(other, out);
            let address = self.nodes[&other].row.about.address.as_deref().unwrap_or("a driver");
            return Err(Refusal::Refused(format!(
                "the name {:?} is that of a living node ({address}): choose another one with --node-name, or stop that node",
                row.about.name
            )));
        }
        if self.nodes.len() >= NODES_MAX {
            return Err(Refusal::Refused(format!("the cluster has {NODES_MAX} nodes, which is the limit")));
        }
        Ok(())
    }

    fn welcome(&mut self, id: NodeId, out: &mut Vec<NodesAction>) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if !node.is_told() {
            node.phase = Phase::Alive;
        }
        self.changed.insert(id);
        let registered = Registered {
            cluster: self.options.cluster,
            nodes: self.rows().cloned().collect(),
            settings: self.settings(),
        };
        out.push(NodesAction::Send(id, Box::new(registered.into())));
        out.push(NodesAction::Joined(id));
    }

    /// A heartbeat came over the node's heartbeat connection.
    pub fn on_heartbeat(&mut self, id: NodeId, beat: Heartbeat, now: Instant, out: &mut Vec<NodesAction>) {
        if let Some(reason) = self.gone.reason(id) {
            let reason = format!("this node was declared gone: {reason}");
            out.push(NodesAction::Send(id, Box::new(Fenced { reason }.into())));
            return;
        }
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if node.health.on_heartbeat(beat, now) {
            node.row.is_slow = node.health.is_slow();
            self.changed.insert(id);
        }
    }

    /// A node is connected again: its session was resumed.
    pub fn on_connected(&mut self, id: NodeId, now: Instant) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.health.on_received(now);
        }
    }

    /// A connection to a node ended.
    pub fn on_disconnected(&mut self, id: NodeId, now: Instant, out: &mut Vec<NodesAction>) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if node.row.about.address.is_none() {
            node.health.wait(now);
        }
        self.probe(id, out);
    }

    /// Node `from` lost its connection to another node, and is told if that one is dead.
    pub fn on_suspect(&mut self, from: NodeId, suspect: Suspect, now: Instant, out: &mut Vec<NodesAction>) {
        let id = suspect.node;
        let may_send = self.nodes.contains_key(&from);
        if suspect.is_given_up == Some(true) && may_send && self.nodes.contains_key(&id) {
            let reason = format!(
                "node {:016x} could not reach it while the head was away, and held it for gone",
                from.0
            );
            return self.bury(id, reason, now, out);
        }
        if self.nodes.contains_key(&id) {
            self.probe(id, out);
            return;
        }
        // A death that waits for the disk is told to all later; a node that is not known is dead.
        if !self.pending.values().any(|pending| matches!(pending, Pending::Leave(gone, _) if *gone == id)) {
            let reason = self.gone.reason(id).unwrap_or("it is not part of the cluster any more").to_owned();
            out.push(NodesAction::Send(from, Box::new(NodeDead { node: id, reason }.into())));
            out.push(NodesAction::AskedAfter { from, node: id });
        }
    }

    /// Has a node's port dialled. A node without an address is left to its own connection.
    fn probe(&mut self, id: NodeId, out: &mut Vec<NodesAction>) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let Some(address) = node.row.about.address.clone() else { return };
        if let Some(number) = node.health.doubt() {
            out.push(NodesAction::Probe { node: id, number, address });
        }
    }

    /// A probe ended.
    pub fn on_probed(
        &mut self,
        id: NodeId,
        number: u32,
        probed: Probed,
        now: Instant,
        out: &mut Vec<NodesAction>,
    ) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if let Some(reason) = node.health.on_probed(id, number, probed, now) {
            self.forget(id, reason, out);
        }
    }

    /// A node must leave within `nanos`, or earlier if it was told so before.
    ///
    /// # Errors
    /// A sentence for the asking client when there is no such node.
    pub fn on_drain(&mut self, drain: Drain, now: Instant, out: &mut Vec<NodesAction>) -> Result<(), String> {
        let id = drain.node;
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.is_told()) else {
            return Err(format!("there is no node {:x} that could leave: see `sooner list nodes`", id.0));
        };
        let mut until = now.plus(drain.nanos.min(DRAIN_NANOS_MAX));
        if let Phase::Draining(earlier) = node.phase {
            until = until.min(earlier);
        }
        node.phase = Phase::Draining(until);
        node.row.state = node_state::DRAINING;
        self.changed.insert(id);
        let nanos = until.since(now);
        out.push(NodesAction::Send(id, Box::new(Drain { node: id, nanos }.into())));
        Ok(())
    }

    /// A node reports that it leaves now.
    pub fn on_drained(&mut self, id: NodeId, now: Instant, out: &mut Vec<NodesAction>) {
        if self.nodes.contains_key(&id) {
            self.bury(id, "it left".to_owned(), now, out);
        }
    }

    /// A batch was written, or failed for this reason.
    pub fn on_persisted(&mut self, batch: BatchId, outcome: Result<(), String>, out: &mut Vec<NodesAction>) {
        match (self.pending.shift_remove(&batch), outcome) {
            (Some(Pending::Join(id)), Ok(())) => self.welcome(id, out),
            (Some(Pending::Join(id)), Err(reason)) => self.turn_away(id, &reason, out),
            (Some(Pending::Leave(id, _)), Ok(())) => {
                self.former.swap_remove(&id);
                self.notify_death(id, out);
            }
            (Some(Pending::Leave(id, _)), Err(_)) => {
                self.undeleted.insert(id);
                self.notify_death(id, out);
            }
            (Some(Pending::Forget(id)), Err(_)) => {
                if !self.nodes.contains_key(&id) {
                    self.undeleted.insert(id);
                }
            }
            (Some(Pending::Forget(id)), Ok(())) => {
                self.former.swap_remove(&id);
            }
            (None, _) => {}
        }
    }

    fn turn_away(&mut self, id: NodeId, reason: &str, out: &mut Vec<NodesAction>) {
        let Some(node) = self.nodes.shift_remove(&id) else { return };
        self.names.swap_remove(&node.row.about.name);
        // A write that failed may have reached the disk nevertheless.
        self.former.insert(id, node.row.about.name);
        let reason = format!("the head cannot take in nodes now: {reason}");
        out.push(NodesAction::Send(id, Box::new(Refused { reason }.into())));
    }

    /// Declares a node dead that may still live. Others are told when its record is deleted: otherwise a
    /// restarted head would take the node back.
    fn bury(&mut self, id: NodeId, reason: String, now: Instant, out: &mut Vec<NodesAction>) {
        self.strike(id, reason, Pending::Leave(id, now.plus(DISK_PATIENCE_NANOS)), out);
    }

    /// Declares a node dead whose daemon has ended. Others are told without waiting for the disk: a restarted
    /// head would find the port closed, too.
    fn forget(&mut self, id: NodeId, reason: String, out: &mut Vec<NodesAction>) {
        self.strike(id, reason, Pending::Forget(id), out);
        if self.gone.reason(id).is_some() {
            self.notify_death(id, out);
        }
    }

    fn strike(&mut self, id: NodeId, reason: String, pending: Pending, out: &mut Vec<NodesAction>) {
        let Some(node) = self.nodes.shift_remove(&id) else { return };
        self.names.swap_remove(&node.row.about.name);
        self.former.insert(id, node.row.about.name);
        self.changed.swap_remove(&id);
        let pending = if node.phase == Phase::Joining {
            // No node knows it, and it has no answer yet: it may register again, even with another head, and
            // is not dead.
            self.pending.retain(|_, pending| !matches!(pending, Pending::Join(joining) if *joining == id));
            Pending::Forget(id)
        } else {
            self.gone.insert(id, reason);
            pending
        };
        self.persist(pending, vec![Write::delete(node_key(id))], out);
    }

    fn notify_death(&self, id: NodeId, out: &mut Vec<NodesAction>) {
        let reason = self.gone.reason(id).unwrap_or("it is not part of the cluster any more").to_owned();
        for other in self.listeners() {
            let news = NodeDead { node: id, reason: reason.clone() };
            out.push(NodesAction::Send(other, Box::new(news.into())));
        }
        out.push(NodesAction::Dead(id, reason));
    }

    fn persist(&mut self, pending: Pending, writes: Vec<Write>, out: &mut Vec<NodesAction>) {
        self.batches += 1;
        let batch = BatchId(self.batches);
        self.pending.insert(batch, pending);
        out.push(NodesAction::Persist(batch, writes));
    }

    /// After a batch of events: tells all nodes what changed, at most every [`VIEW_NANOS`].
    pub fn after_events(&mut self, now: Instant, out: &mut Vec<NodesAction>) {
        if self.changed.is_empty() || self.told.is_some_and(|told| now.since(told) < VIEW_NANOS) {
            return;
        }
        self.told = Some(now);
        let changed = std::mem::take(&mut self.changed);
        let rows: Vec<NodeRow> = self.rows().filter(|row| changed.contains(&row.node)).cloned().collect();
        if rows.is_empty() {
            return;
        }
        for other in self.listeners() {
            out.push(NodesAction::Send(other, Box::new(NodesChanged { rows: rows.clone() }.into())));
        }
    }

    /// Time passes: a node that was silent for too long is declared dead.
    pub fn on_timer(&mut self, now: Instant, out: &mut Vec<NodesAction>) {
        if now.since(self.ticked) >= self.tick() {
            self.on_tick(now, out);
        }
        self.after_events(now, out);
    }

    fn on_tick(&mut self, now: Instant, out: &mut Vec<NodesAction>) {
        // A head that stood still has received nothing, and must declare nobody dead.
        let stood_still = now.since(self.ticked) > self.options.health_timeout / 2;
        self.ticked = now;
        if stood_still {
            out.push(NodesAction::Warn(STOOD_STILL.to_owned()));
            self.nodes.values_mut().for_each(|node| node.health.forgive(now));
        }
        let timeout = self.options.health_timeout;
        let silent: Vec<(NodeId, String)> = self
            .nodes
            .iter()
            .filter_map(|(id, node)| Some((*id, node.health.silence(timeout, now)?)))
            .collect();
        for (id, reason) in silent {
            self.bury(id, reason, now, out);
        }
        self.end_drained(now, out);
        let unanswered: Vec<NodeId> =
            self.nodes.iter().filter(|(_, node)| node.health.is_unanswered()).map(|(id, _)| *id).collect();
        for id in unanswered {
            self.probe(id, out);
        }
        self.wait_for_the_disk_no_longer(now, out);
    }

    fn end_drained(&mut self, now: Instant, out: &mut Vec<NodesAction>) {
        let is_late = |node: &Node| matches!(node.phase, Phase::Draining(until) if until <= now);
        let late: Vec<NodeId> =
            self.nodes.iter().filter(|(_, node)| is_late(node)).map(|(id, _)| *id).collect();
        for id in late {
            let reason = "it did not leave within the time it had to drain".to_owned();
            out.push(NodesAction::Send(id, Box::new(Fenced { reason: reason.clone() }.into())));
            self.bury(id, reason, now, out);
        }
    }

    fn wait_for_the_disk_no_longer(&mut self, now: Instant, out: &mut Vec<NodesAction>) {
        let mut overdue = Vec::new();
        for pending in self.pending.values_mut() {
            if let Pending::Leave(id, until) = *pending
                && until <= now
            {
                overdue.push(id);
                *pending = Pending::Forget(id);
            }
        }
        for id in overdue {
            self.notify_death(id, out);
        }
        for id in std::mem::take(&mut self.undeleted) {
            self.persist(Pending::Forget(id), vec![Write::delete(node_key(id))], out);
        }
    }

    /// When [`Nodes::on_timer`] must be called, at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let is_watching = !self.nodes.is_empty() || !self.pending.is_empty() || !self.undeleted.is_empty();
        let tick = is_watching.then(|| self.ticked.plus(self.tick()));
        let news =
            (!self.changed.is_empty()).then(|| self.told.map_or(Instant(0), |told| told.plus(VIEW_NANOS)));
        tick.into_iter().chain(news).min()
    }

    fn tick(&self) -> u64 {
        HEARTBEAT_NANOS.min(self.options.health_timeout / TICKS)
    }

    fn settings(&self) -> Settings {
        Settings { heartbeat: self.tick(), health_timeout: self.options.health_timeout }
    }

    /// The nodes that take part.
    pub fn rows(&self) -> impl Iterator<Item = &NodeRow> {
        self.nodes.values().filter(|node| node.is_told()).map(|node| &node.row)
    }

    /// A node that takes part.
    #[must_use]
    pub fn row(&self, id: NodeId) -> Option<&NodeRow> {
        self.nodes.get(&id).filter(|node| node.is_told()).map(|node| &node.row)
    }

    /// Whether a node is not dead: others may know it.
    #[must_use]
    pub fn is_known(&self, id: NodeId) -> bool {
        self.nodes.contains_key(&id)
    }

    /// Why a node is dead, if it is one of the latest dead ones.
    #[must_use]
    pub fn why_dead(&self, id: NodeId) -> Option<&str> {
        self.gone.reason(id)
    }

    /// Whether there is a doubt that a node lives.
    #[must_use]
    pub fn is_doubted(&self, id: NodeId) -> bool {
        self.nodes.get(&id).is_some_and(|node| node.health.is_doubted())
    }

    /// Whether every node that an earlier head knew has come back or is dead.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.nodes.values().all(|node| node.phase != Phase::Expected)
    }

    /// The nodes that are sent changes.
    fn listeners(&self) -> impl Iterator<Item = NodeId> {
        self.nodes.iter().filter(|(_, node)| node.is_told()).map(|(id, _)| *id)
    }

    /// Asserts the invariants.
    ///
    /// # Panics
    /// When one does not hold.
    pub fn check(&self) {
        for (id, node) in &self.nodes {
            assert!(self.gone.reason(*id).is_none(), "ND1: {id:?} is known and gone");
            assert_eq!(self.names.get(&node.row.about.name), Some(id), "ND2: {:?}", node.row.about.name);
            assert_eq!(node.row.about.address.is_none(), node.row.about.kind == kind::DRIVER, "{id:?}");
        }
        assert_eq!(self.names.len(), self.nodes.len(), "ND2");
        assert!(self.changed.iter().all(|id| self.nodes.contains_key(id)), "news of a node that is gone");
    }
}

#[cfg(test)]
mod tests;
