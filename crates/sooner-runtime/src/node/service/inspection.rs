//! The service's half of questions about state: a tool asks, every process is asked, answers are forwarded as
//! they come. If the tool wants that, the other nodes of the cluster are asked in the same way, and ask their
//! processes. The tool learns which did not answer.

use sooner_protocol::time::Instant;
use sooner_wire::message::state::{Inspect, InspectEnd, Inspected, NodeInspected, NodeReport, Series, about};
use sooner_wire::message::{Message, Welcome};
use sooner_wire::{NodeId, WorkerId, limits};

use super::node_metrics::Figures;
use super::{Cluster, NodeActions, Role, Service, files, now};
use crate::node::data::Data;
use crate::node::rounds::{Requester, Round};

impl Service {
    /// Greets a tool: it may ask, is no worker and no driver, and gets no shared memory.
    pub(super) fn greet_tool(&mut self, token: u64) {
        let welcome = Welcome {
            worker: WorkerId::default(),
            node: self.options.node,
            arena_bytes: 0,
            inline_bytes: 0,
            cell: 0,
            driver: self.driver,
            namespace: String::new(),
            events_bytes: None,
            lineage_bytes: None,
            fallback_bytes: None,
            unpins_lazily: None,
        };
        let Some(connection) = self.connections.get_mut(&token) else { return };
        connection.is_greeted = true;
        connection.role = Role::Tool;
        connection.outlet.push(&welcome.into());
        self.dirty.push(token);
    }

    /// Handles the messages that questions about state are made of; returns all others.
    pub(super) fn on_inspection(&mut self, token: u64, message: Message) -> Option<Message> {
        let from = self.connections.get(&token)?.worker;
        match (message, from) {
            (Message::Inspect(question), None) => self.begin_round(token, &question),
            (Message::Drain(drain), None) => self.on_drain_asked(token, drain),
            (_, None) => self.refuse(token, "a tool only asks, or has a node leave"),
            (Message::Inspected(answer), Some(worker)) => self.forward(worker, answer),
            // A process has long not reached one of another node. This node may never have had to do with
            // that node.
            (Message::Suspect(suspect), Some(_)) => self.suspect(suspect.node),
            (Message::Measured(measured), Some(worker)) => self.metrics.add(worker, measured.series),
            // A process answers about a connection that it was handed.
            (Message::PeerConnected(answer), Some(worker)) => self.on_handed(worker, answer),
            (other, Some(_)) => return Some(other),
        }
        None
    }

    fn suspect(&mut self, node: NodeId) {
        let Some(cluster) = &mut self.cluster else { return };
        if !cluster.suspect(node)
            && let Some(core) = self.core.member()
        {
            core.on_unreached(node);
        }
    }

    fn begin_round(&mut self, tool: u64, question: &Inspect) {
        // Answers may be large: a tool that does not read them gets no more.
        let is_full = |c: &super::Connection| c.outlet.waiting() > limits::LINK_BUFFER_BYTES_MAX;
        if self.rounds.is_asking(tool) || self.connections.get(&tool).is_some_and(is_full) {
            return self.refuse(tool, "read the answer before you ask again");
        }
        let is_everywhere = question.everywhere == Some(true);
        let others = self.cluster.as_ref().filter(|_| is_everywhere).map(Cluster::others);
        let mut others = others.unwrap_or_default();
        if let Some(parts) = &question.parts
            && question.about == about::FILES
        {
            others.retain(|node| parts.iter().any(|part| part.node == *node));
        }
        let passed_over = others.split_off(others.len().min(limits::INSPECTED_NODES_MAX));
        let Some(number) = self.ask_processes(Requester::Tool(tool), question, &others) else {
            return self.notify_tool(tool, &too_many(question.request).into());
        };
        self.rounds.pass_over(number, passed_over);
        let Some(cluster) = &mut self.cluster else { return };
        if cluster.ask_directory(number) {
            self.rounds.await_directory(number);
        }
        let passed_on = Inspect { request: number, everywhere: None, ..question.clone() };
        for node in others {
            let message = Box::new(passed_on.clone().into());
            cluster.route(WorkerId(self.options.node.0), WorkerId(node.0), message);
        }
    }

    /// Another node asks, for one of its tools.
    pub(super) fn begin_round_for(&mut self, node: NodeId, question: &Inspect) {
        let bounded = Inspect {
            rows: question.rows.min(limits::REPORT_ROWS_AWAY_MAX),
            events: question.events.min(limits::REPORT_EVENTS_AWAY_MAX),
            ..question.clone()
        };
        if self.ask_processes(Requester::Node(node), &bounded, &[]).is_none() {
            self.notify_node(node, WorkerId(self.options.node.0), too_many(question.request).into());
        }
    }

    /// Asks all processes of this node. Returns the number of the round, if there are not too many.
    fn ask_processes(&mut self, asker: Requester, question: &Inspect, others: &[NodeId]) -> Option<u64> {
        // Processes know nothing of nodes, workers and files: such questions end at once.
        let asked: Vec<WorkerId> = if question.about & !about::FILES == 0 {
            Vec::new()
        } else {
            let greeted = |token: &u64| self.connections.get(token).is_some_and(|c| c.is_greeted);
            self.tokens.iter().filter(|(_, token)| greeted(token)).map(|(worker, _)| *worker).collect()
        };
        let (open, nodes) = (asked.iter().copied().collect(), others.iter().copied().collect());
        let request = self.rounds.begin(asker, question, open, nodes, now())?;
        let rows = question.rows.min(limits::REPORT_ROWS_MAX);
        let (about, events) = (question.about, question.events);
        let passed_on: Message = Inspect { request, about, rows, events, ..Inspect::default() }.into();
        for worker in asked {
            self.send(worker, &passed_on, Vec::new());
        }
        Some(request)
    }

    fn forward(&mut self, worker: WorkerId, answer: Inspected) {
        let Some((asker, request)) = self.rounds.answered(answer.request, worker) else { return };
        let told = Inspected { request, worker, report: answer.report };
        match asker {
            Requester::Tool(tool) => self.notify_tool(tool, &told.into()),
            Requester::Node(node) => {
                let waiting = self.cluster.as_ref().map_or(0, |cluster| cluster.waiting(node));
                if waiting > limits::REPORT_AWAY_BYTES_MAX {
                    return self.rounds.leave_out(answer.request, worker);
                }
                self.notify_node(node, worker, told.into());
            }
        }
    }

    /// A process of another node has answered a question of a local tool.
    pub(super) fn forward_from(&mut self, node: NodeId, answer: Inspected) {
        if let Some((tool, request)) = self.rounds.answered_away(answer.request, node) {
            self.notify_tool(tool, &Inspected { request, ..answer }.into());
        }
    }

    /// Another node and all its processes have answered such a question.
    pub(super) fn on_node_inspected(&mut self, node: NodeId, end: InspectEnd) {
        if end.error.is_some() {
            return self.rounds.refused(end.request, node);
        }
        let Some((tool, request, begun)) = self.rounds.node_answered(end.request, node) else { return };
        let shares_clock = self.cluster.as_ref().is_some_and(|cluster| cluster.shares_clock(node));
        let ahead = if shares_clock { 0 } else { ahead(begun, &end, now()) };
        let told = NodeInspected { request, node, ahead, end: Box::new(end) };
        self.notify_tool(tool, &told.into());
    }

    pub(super) fn notify_tool(&mut self, tool: u64, message: &Message) {
        if let Some(connection) = self.connections.get_mut(&tool) {
            connection.outlet.push(message);
            self.dirty.push(tool);
        }
    }

    fn notify_node(&mut self, node: NodeId, from: WorkerId, message: Message) {
        if let Some(cluster) = &mut self.cluster {
            cluster.route(from, WorkerId(node.0), Box::new(message));
        }
    }

    /// Ends the rounds that are over, with the node's own answer.
    pub(super) fn end_rounds(&mut self) {
        for mut round in self.rounds.take_ended(now()) {
            let (silent, nodes) = (round.silent(), round.silent_nodes());
            let mut node = Box::new(self.report(&round));
            if let Some(directory) = round.directory.take() {
                join(&mut node, *directory);
            }
            let end = InspectEnd { request: round.request, node, silent, ..InspectEnd::default() };
            match round.asker {
                Requester::Tool(tool) => {
                    let silent_nodes = Some(nodes).filter(|nodes| !nodes.is_empty());
                    self.notify_tool(tool, &InspectEnd { silent_nodes, ..end }.into());
                }
                Requester::Node(asker) => {
                    let (asked, answered) = (Some(round.begun.0), Some(now().0));
                    let end = InspectEnd { asked, answered, ..end };
                    self.notify_node(asker, WorkerId(self.options.node.0), end.into());
                }
            }
        }
    }

    fn report(&self, round: &Round) -> NodeReport {
        let files = || files::tell(self.directory.path(), self.options.node, &round.parts);
        let driver_pid = self.tokens.get(&self.driver).and_then(|token| self.connections.get(token));
        let host = self.config_of(self.driver);
        NodeReport {
            node: self.options.node,
            driver: self.driver,
            driver_pid: driver_pid.map_or(0, |connection| connection.pid),
            started: self.started.0,
            namespace: host.map(|config| config.namespace.clone()).unwrap_or_default(),
            store_used: self.arena.used(),
            store_capacity: self.arena.capacity(),
            ended: self.ends.rows(),
            metrics: if round.about & about::METRICS == 0 { Vec::new() } else { self.all_metrics() },
            events_bytes: host.map_or(0, |config| config.events_bytes),
            jobs: Some(self.job_rows()),
            name: self.options.name.clone(),
            pid: Some(std::process::id()),
            cluster: self.cluster.as_ref().map(Cluster::report),
            files: (round.about & about::FILES != 0).then(files),
            memory: Some(self.memory_row()),
            ..self.core.report()
        }
    }

    /// The metrics of the session, and those of the node.
    fn all_metrics(&self) -> Vec<Series> {
        let moved = self.data.as_ref().map(Data::moved);
        let figures = Figures { moved, on_disk: self.spilling.on_disk(), memory: self.memory_row() };
        let mut all = self.metrics.report();
        all.extend(figures.series());
        all
    }

    /// A process's connection has ended; the reason is learnt later.
    pub(super) fn record_end(&mut self, worker: WorkerId, pid: u32) {
        self.rounds.forget_process(worker);
        self.metrics.forget(worker);
        self.ends.add_row(worker, pid, now());
    }

    /// A process has ended, for this reason.
    pub(super) fn gone(
        &mut self,
        worker: WorkerId,
        reason: &str,
        last_started: Option<sooner_wire::Started>,
        out: &mut NodeActions,
    ) {
        let stopped = self.memory.reason(worker);
        let reason = stopped.as_deref().unwrap_or(reason);
        self.ends.explain_row(worker, reason);
        self.core.on_dead(worker, reason, last_started, out);
        self.groups.forget(worker);
    }
}

/// How far the clock of a node is ahead of this one's, if its question and its answer took equally long on
/// their ways.
fn ahead(begun: Instant, end: &InspectEnd, time: Instant) -> i64 {
    let (Some(asked), Some(answered)) = (end.asked, end.answered) else { return 0 };
    let difference = |there: u64, here: Instant| i128::from(there) - i128::from(here.0);
    i64::try_from(i128::midpoint(difference(asked, begun), difference(answered, time))).unwrap_or_default()
}

fn too_many(request: u64) -> InspectEnd {
    let error = Some("too many questions at the same time: ask again later".to_owned());
    InspectEnd { request, error, ..InspectEnd::default() }
}

/// Adds what the directory of the cluster knows to a node's report. What only an actor's node knows stays.
fn join(node: &mut NodeReport, directory: NodeReport) {
    let own = std::mem::replace(&mut node.actors, directory.actors);
    node.groups = directory.groups;
    // Demands of other nodes.
    node.demands.extend(directory.demands);
    for row in &mut node.actors {
        if let Some(known) = own.iter().find(|known| known.actor == row.actor) {
            row.pid = known.pid;
            row.resources = known.resources.clone();
        }
    }
}
