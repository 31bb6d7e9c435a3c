//! The control service as one core: the nodes of the cluster, their free resources, and the directory of
//! actors, names and groups.
//!
//! The shell hands it the messages of nodes, the results of its probes and writes, and the time. The shell
//! carries out its actions in order and decides nothing. Only this file knows what an event in one part means
//! for the others: a node that joins is added to the view and the directory, a dead node is removed from all
//! parts, and questions wait until the nodes known to an earlier control service have come back.
//!
//! Invariants:
//! - H1: what is sent to one node is sent in the order in which it was decided.
//! - H2: a node is in the directory only after it has joined, and is in it no longer when all others have
//!   been told that it is gone.
//!
//! It never looks at a connection: the registration of a node is an event, the end of a node's session an
//! event or an action.

use sooner_wire::message::state::{Inspect, InspectEnd, NodeReport};
use sooner_wire::message::{
    DialMe, Drain, Drained, FindNodes, Heartbeat, Message, NodeRow, Register, ResourceReport, Routed,
    Suspect, kind,
};
use sooner_wire::record::NodeRecord;
use sooner_wire::{NodeId, WorkerId};

use super::membership::{Nodes, NodesAction, NodesOptions, Refusal};
use super::persist::{BatchId, Write};
use super::view::View;
use super::{Directory, DirectoryAction, DirectoryActions, Found, Probed};
use crate::probes::bug;
use crate::scheduling::policy;
use crate::time::Instant;
use crate::uplink::ToControl;
use crate::uplink::wire::{CONTROL, is_for_directory};

/// How long (nanoseconds) a restarted control service lets questions wait for the nodes that an earlier one
/// knew.
const RELEARN_NANOS: u64 = 10_000_000_000;
/// The golden ratio, used to scatter a counter (Knuth, volume 3, section 6.4).
const SCATTER: u64 = 0x9e37_79b9_7f4a_7c15;

/// A batch of writes, by the part that waits for it: each part numbers its own batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Batch {
    /// Of [`Nodes`].
    OfNodes(BatchId),
    /// Of [`Directory`].
    OfDirectory(BatchId),
}

/// An effect the control service asks for, to be carried out in order.
#[derive(Debug, Clone, PartialEq)]
pub enum ControlAction {
    /// Send a message to a node over the node's session, if it has one.
    Send(NodeId, Box<Message>),
    /// The node has registered: from now on its session carries other messages.
    Admit(NodeId),
    /// Send a node its last message, on whatever connections it has, and close them after the message.
    Dismiss(NodeId, Box<Message>),
    /// A node is dead: close its connections.
    EndNode(NodeId),
    /// End the session of a node that violates the protocol; the text says how.
    EndSession(NodeId, String),
    /// Write, and report the result with [`ControlCore::on_persisted`].
    Persist(Batch, Vec<Write>),
    /// Dial that address and see which node answers: [`ControlCore::on_probed`] follows.
    Probe {
        /// The node that should answer.
        node: NodeId,
        /// Comes back with the result.
        number: u32,
        /// Where to dial.
        address: String,
    },
    /// Log a text for the operator of the cluster.
    Log(String),
    /// Like `Log`, for texts that others can cause as often as they like.
    LogRationed(String),
}

/// Actions in order.
pub type ControlActions = Vec<ControlAction>;

/// What a control service starts with.
#[derive(Debug)]
pub struct Beginning {
    /// The node that it is part of.
    pub me: NodeId,
    /// The node of the control service before this one. It is dead, whatever answers at its address: it was
    /// part of the process that held the lock of the cluster's directory.
    pub former: Option<NodeId>,
    /// What the cluster is and how its nodes are watched.
    pub options: NodesOptions,
    /// The nodes that an earlier control service knew.
    pub nodes: Vec<NodeRecord>,
    /// What it wrote about actors, jobs, names and groups.
    pub found: Found,
}

/// See the module.
#[derive(Debug)]
pub struct ControlCore {
    me: NodeId,
    former: Option<NodeId>,
    nodes: Nodes,
    view: View,
    directory: Directory,
    /// How often nodes have asked where something could run.
    questions: u64,
    /// All nodes that an earlier control service knew have come back or are dead, and the directory knows
    /// that.
    is_complete: bool,
}

impl ControlCore {
    /// A control service, and what it does first.
    #[must_use]
    pub fn new(begin: Beginning, now: Instant, out: &mut ControlActions) -> Self {
        let Beginning { me, former, options, nodes, found } = begin;
        let mut directory = Directory::default();
        directory.keep_records(found);
        directory.expect_nodes(now.plus(RELEARN_NANOS));
        let nodes = Nodes::new(options, nodes, now);
        let (view, questions, is_complete) = (View::default(), 0, false);
        let mut this = Self { me, former, nodes, view, directory, questions, is_complete };
        this.with_nodes(now, out, |nodes, acts| nodes.on_start(now, acts));
        this
    }

    /// The nodes of the cluster.
    #[must_use]
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// The free resources of the nodes.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The actors, names and groups.
    #[must_use]
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// A node that has not registered wants to.
    pub fn on_register(&mut self, node: NodeId, register: Register, now: Instant, out: &mut ControlActions) {
        let name = register.about.name.clone();
        let mut acts = Vec::new();
        match self.nodes.on_register(node, register, now, &mut acts) {
            Ok(()) => out.push(ControlAction::Admit(node)),
            Err(refusal) => {
                let (Refusal::Fenced(reason) | Refusal::Refused(reason)) = &refusal;
                out.push(ControlAction::LogRationed(format!("node {name:?} may not join: {reason}")));
                out.push(ControlAction::Dismiss(node, Box::new(refusal.into_message())));
            }
        }
        self.carry_out(acts, now, out);
    }

    /// A node that has registered sent a message over its session.
    pub fn on_message(&mut self, node: NodeId, message: Message, now: Instant, out: &mut ControlActions) {
        match message {
            Message::ResourceReport(report) => self.on_report(node, report, out),
            Message::FindNodes(find) => self.on_find_nodes(node, &find, out),
            Message::Suspect(suspect) => self.on_suspect(node, suspect, now, out),
            Message::Drain(drain) => self.on_drain(drain, now, out),
            Message::Drained(Drained { node: drained }) if drained == node => {
                self.with_nodes(now, out, |nodes, acts| nodes.on_drained(node, now, acts));
            }
            Message::Routed(Routed { from, ref message, .. })
                if from == WorkerId(node.0) && matches!(**message, Message::Inspect(_)) =>
            {
                self.on_inspect(node, message, out);
            }
            Message::DialMe(asked) => self.on_dial_me(node, asked, out),
            message if is_for_directory(message.kind()) => match ToControl::parse(message, node) {
                Ok(word) => {
                    self.with_directory(out, |directory, acts| directory.on_node(node, word, now, acts))
                }
                Err(error) => end_session(node, &error.to_string(), out),
            },
            // Something of a later minor version.
            _ => {}
        }
    }

    /// A heartbeat came over the node's heartbeat connection.
    pub fn on_heartbeat(&mut self, node: NodeId, beat: Heartbeat, now: Instant, out: &mut ControlActions) {
        self.with_nodes(now, out, |nodes, acts| nodes.on_heartbeat(node, beat, now, acts));
    }

    /// The session of a node goes on over another connection.
    pub fn on_connected(&mut self, node: NodeId, now: Instant) {
        self.nodes.on_connected(node, now);
    }

    /// A connection of a node ended.
    pub fn on_disconnected(&mut self, node: NodeId, now: Instant, out: &mut ControlActions) {
        self.with_nodes(now, out, |nodes, acts| nodes.on_disconnected(node, now, acts));
    }

    /// A probe ended.
    pub fn on_probed(
        &mut self,
        node: NodeId,
        number: u32,
        probed: Probed,
        now: Instant,
        out: &mut ControlActions,
    ) {
        self.with_nodes(now, out, |nodes, acts| nodes.on_probed(node, number, probed, now, acts));
    }

    /// A batch was written, or failed for this reason.
    pub fn on_persisted(
        &mut self,
        batch: Batch,
        outcome: Result<(), String>,
        now: Instant,
        out: &mut ControlActions,
    ) {
        match batch {
            Batch::OfNodes(batch) => {
                self.with_nodes(now, out, |nodes, acts| nodes.on_persisted(batch, outcome, acts));
            }
            Batch::OfDirectory(batch) => {
                self.with_directory(out, |directory, acts| directory.on_persisted(batch, outcome, now, acts));
            }
        }
    }

    /// Decides what follows from past events and from the time. Called once after each batch of events.
    pub fn after_events(&mut self, now: Instant, out: &mut ControlActions) {
        self.with_nodes(now, out, |nodes, acts| nodes.on_timer(now, acts));
        let is_there = self.nodes.is_complete() || bug!(CompleteTooEarly);
        if !self.is_complete && is_there && self.directory.has_received_all() {
            self.is_complete = true;
            self.with_directory(out, |directory, acts| directory.on_all_here(now, acts));
        }
        self.with_directory(out, |directory, acts| directory.after_events(now, acts));
        let mut news = Vec::new();
        self.view.after_events(now, &mut news);
        out.extend(news.into_iter().map(|(node, message)| ControlAction::Send(node, Box::new(message))));
    }

    /// When [`Self::after_events`] must be called again, even if nothing happens.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let parts = [self.nodes.next_deadline(), self.view.next_deadline(), self.directory.next_deadline()];
        parts.into_iter().flatten().min()
    }

    /// Asserts the invariants of its parts, as far as they are visible; for tests and the simulator.
    ///
    /// # Panics
    /// When one does not hold.
    pub fn check(&self) {
        self.nodes.check();
    }

    /// A node has lost its connection to another node. The service's own node always stays: a node that gives
    /// up on it becomes the suspect.
    fn on_suspect(&mut self, node: NodeId, suspect: Suspect, now: Instant, out: &mut ControlActions) {
        let (from, suspect) = match suspect.is_given_up == Some(true) && suspect.node == self.me {
            true => (suspect.node, Suspect { node, ..suspect }),
            false => (node, suspect),
        };
        self.with_nodes(now, out, |nodes, acts| nodes.on_suspect(from, suspect, now, acts));
    }

    /// A node is asked to leave, by itself or by an operator.
    fn on_drain(&mut self, drain: Drain, now: Instant, out: &mut ControlActions) {
        let node = drain.node;
        self.with_directory(out, |directory, acts| directory.on_node_drains(node, acts));
        let mut acts = Vec::new();
        match self.nodes.on_drain(drain, now, &mut acts) {
            Ok(()) => {
                out.push(ControlAction::Log(format!("node {:016x} is to leave", node.0)));
                if let Some(row) = self.nodes.row(node) {
                    self.view.on_node(row);
                }
            }
            Err(reason) => out.push(ControlAction::LogRationed(reason)),
        }
        self.carry_out(acts, now, out);
    }

    fn on_report(&mut self, node: NodeId, report: ResourceReport, out: &mut ControlActions) {
        if let Some(row) = self.nodes.row(node) {
            let row = policy::NodeRow { free: report.free.clone(), ..placing_row(row) };
            self.directory.on_report(row);
            self.directory.on_bundles_free(node, report.bundles.clone().unwrap_or_default());
        }
        if let Err(error) = self.view.on_report(node, report) {
            end_session(node, &error.to_string(), out);
        }
    }

    /// A node has no room for something, in a cluster where nodes are not sent what others have free. Nodes
    /// that ask at the same time are sent to different nodes.
    fn on_find_nodes(&mut self, node: NodeId, find: &FindNodes, out: &mut ControlActions) {
        self.questions = self.questions.wrapping_add(1);
        let seed = self.questions.wrapping_mul(SCATTER);
        match self.view.find(find, node, seed) {
            Ok(candidates) => out.push(ControlAction::Send(node, Box::new(candidates.into()))),
            Err(error) => end_session(node, &error.to_string(), out),
        }
    }

    /// A node cannot dial another node, and asks that one to dial. Every node may ask every other: the
    /// dialling node sees in the handshake which node it has reached.
    fn on_dial_me(&mut self, node: NodeId, asked: DialMe, out: &mut ControlActions) {
        if asked.from.node() != node {
            return end_session(node, "it asks for connections to another node", out);
        }
        if self.nodes.row(asked.to.node()).is_some() {
            out.push(ControlAction::Send(asked.to.node(), Box::new(asked.into())));
        }
    }

    /// A tool asks for the state of a node: the directory's part of it is added here.
    fn on_inspect(&mut self, node: NodeId, message: &Message, out: &mut ControlActions) {
        let Message::Inspect(Inspect { request, .. }) = *message else { return };
        let groups = Some(self.directory.groups()).filter(|groups| !groups.is_empty());
        let report = Box::new(NodeReport {
            actors: self.directory.report(),
            groups,
            demands: self.view.demand_but_of(node),
            ..NodeReport::default()
        });
        let end = InspectEnd { request, node: report, ..InspectEnd::default() };
        let (from, to) = (CONTROL, WorkerId(node.0));
        let answer = Routed { from, to, message: Box::new(end.into()) };
        out.push(ControlAction::Send(node, Box::new(answer.into())));
    }

    fn with_directory(
        &mut self,
        out: &mut ControlActions,
        work: impl FnOnce(&mut Directory, &mut DirectoryActions),
    ) {
        let mut decided = DirectoryActions::new();
        work(&mut self.directory, &mut decided);
        out.extend(decided.into_iter().map(|action| match action {
            DirectoryAction::Send(node, word) => ControlAction::Send(node, Box::new(word.into_message())),
            DirectoryAction::Persist(batch, writes) => {
                ControlAction::Persist(Batch::OfDirectory(batch), writes)
            }
            DirectoryAction::Warn(text) => ControlAction::Log(text),
        }));
    }

    fn with_nodes(
        &mut self,
        now: Instant,
        out: &mut ControlActions,
        work: impl FnOnce(&mut Nodes, &mut Vec<NodesAction>),
    ) {
        let mut acts = Vec::new();
        work(&mut self.nodes, &mut acts);
        self.carry_out(acts, now, out);
    }

    fn carry_out(&mut self, actions: Vec<NodesAction>, now: Instant, out: &mut ControlActions) {
        for action in actions {
            match action {
                // A fenced node does not ask again.
                NodesAction::Send(node, message) if matches!(*message, Message::Fenced(_)) => {
                    out.push(ControlAction::Dismiss(node, message));
                }
                NodesAction::Send(node, message) => out.push(ControlAction::Send(node, message)),
                NodesAction::Persist(batch, writes) => {
                    out.push(ControlAction::Persist(Batch::OfNodes(batch), writes));
                }
                NodesAction::Probe { node, number, .. } if self.former == Some(node) => {
                    self.on_probed(node, number, Probed::Refused, now, out);
                }
                NodesAction::Probe { node, number, address } => {
                    out.push(ControlAction::Probe { node, number, address });
                }
                NodesAction::Joined(node) => self.on_joined(node, out),
                NodesAction::Dead(node, reason) => self.on_dead(node, &reason, out),
                NodesAction::AskedAfter { from, node } => {
                    self.with_directory(out, |directory, acts| directory.on_asked_after(from, node, acts));
                }
                NodesAction::Warn(text) => out.push(ControlAction::Log(text)),
            }
        }
    }

    fn on_joined(&mut self, node: NodeId, out: &mut ControlActions) {
        let Some(row) = self.nodes.row(node) else { return };
        out.push(ControlAction::Log(joined(row)));
        self.view.on_joined(row);
        if bug!(JoinedUntold) {
            return;
        }
        match row.about.kind {
            kind::DRIVER => self.directory.on_program_joined(row.node),
            _ => self.directory.on_node_joined(placing_row(row)),
        }
    }

    fn on_dead(&mut self, node: NodeId, reason: &str, out: &mut ControlActions) {
        out.push(ControlAction::Log(format!("node {:016x} is gone: {reason}", node.0)));
        self.view.on_dead(node);
        out.push(ControlAction::EndNode(node));
        if !bug!(DeathUntold) {
            self.with_directory(out, |directory, acts| directory.on_node_dead(node, reason, acts));
        }
    }
}

fn end_session(node: NodeId, why: &str, out: &mut ControlActions) {
    out.push(ControlAction::LogRationed(format!("node {:016x} says nonsense: {why}", node.0)));
    out.push(ControlAction::EndSession(node, why.to_owned()));
}

/// A node as the directory places actors on it: all its resources count as free until it reports.
fn placing_row(row: &NodeRow) -> policy::NodeRow {
    let (total, labels) = (row.about.resources.clone(), row.about.labels.clone());
    policy::NodeRow { node: row.node, free: total.clone(), total, labels }
}

fn joined(row: &NodeRow) -> String {
    let address = row.about.address.as_deref().unwrap_or("no address");
    format!("node {:?} ({:016x}, {address}) is part of the cluster", row.about.name, row.node.0)
}
