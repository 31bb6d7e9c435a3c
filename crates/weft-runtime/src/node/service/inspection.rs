//! The service's half of questions about state: tools ask, every process is asked, answers are forwarded as they come.

use weft_wire::limits::ENDED_MAX;
use weft_wire::message::state::{EndedRow, Inspect, InspectEnd, Inspected, NodeReport, about};
use weft_wire::message::{Message, Welcome};
use weft_wire::{WorkerId, limits};

use super::{Cluster, NodeActions, Role, Service, now};

impl Service {
    /// A tool may ask; it is no worker and no driver, and gets no shared memory.
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
        };
        let Some(connection) = self.connections.get_mut(&token) else { return };
        connection.is_greeted = true;
        connection.role = Role::Tool;
        connection.outlet.push(&welcome.into());
        self.dirty.push(token);
    }

    /// Takes the messages that questions about state are made of; the others come back.
    pub(super) fn on_inspection(&mut self, token: u64, message: Message) -> Option<Message> {
        let from = self.connections.get(&token)?.worker;
        match (message, from) {
            (Message::Inspect(question), None) => self.begin_round(token, &question),
            (_, None) => self.refuse(token, "a tool only asks"),
            (Message::Inspected(answer), Some(worker)) => self.forward(worker, answer),
            (Message::Measured(measured), Some(worker)) => self.metrics.add(worker, measured.series),
            (other, Some(_)) => return Some(other),
        }
        None
    }

    fn begin_round(&mut self, tool: u64, question: &Inspect) {
        // Answers may be large: a tool that does not read them gets no more.
        let is_full = |c: &super::Connection| c.outlet.waiting() > limits::LINK_BUFFER_BYTES_MAX;
        if self.rounds.is_asking(tool) || self.connections.get(&tool).is_some_and(is_full) {
            return self.refuse(tool, "read the answer before you ask again");
        }
        // Processes know nothing of nodes and workers: such questions end at once.
        let asked = if question.about == 0 {
            Vec::new()
        } else {
            let greeted = |token: &u64| self.connections.get(token).is_some_and(|c| c.is_greeted);
            self.tokens.iter().filter(|(_, token)| greeted(token)).map(|(worker, _)| *worker).collect()
        };
        let open = asked.iter().copied().collect();
        let Some(number) = self.rounds.begin(tool, question.request, question.about, open, now()) else {
            let error = Some("too many questions at the same time: ask again later".to_owned());
            let node = Box::default();
            let end = InspectEnd { request: question.request, node, silent: Vec::new(), error };
            return self.tell_tool(tool, &end.into());
        };
        if self.cluster.as_mut().is_some_and(|cluster| cluster.ask_directory(number)) {
            self.rounds.await_directory(number);
        }
        let rows = question.rows.min(limits::REPORT_ROWS_MAX);
        let passed_on: Message = Inspect { request: number, rows, ..question.clone() }.into();
        for worker in asked {
            self.send(worker, &passed_on, Vec::new());
        }
    }

    fn forward(&mut self, worker: WorkerId, answer: Inspected) {
        let Some((tool, request)) = self.rounds.answered(answer.request, worker) else { return };
        self.tell_tool(tool, &Inspected { request, worker, report: answer.report }.into());
    }

    fn tell_tool(&mut self, tool: u64, message: &Message) {
        if let Some(connection) = self.connections.get_mut(&tool) {
            connection.outlet.push(message);
            self.dirty.push(tool);
        }
    }

    /// Closes the rounds that are over with the node's own answer.
    pub(super) fn end_rounds(&mut self) {
        for round in self.rounds.take_ended(now()) {
            let silent = round.silent();
            let mut node = Box::new(self.report(round.about));
            if let Some(directory) = round.directory {
                join(&mut node, *directory);
            }
            let end = InspectEnd { request: round.request, node, silent, error: None };
            self.tell_tool(round.tool, &end.into());
        }
    }

    fn report(&self, about: u32) -> NodeReport {
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
            ended: self.ended_rows.iter().cloned().collect(),
            metrics: if about & about::METRICS == 0 { Vec::new() } else { self.metrics.report() },
            events_bytes: host.map_or(0, |config| config.events_bytes),
            jobs: Some(self.job_rows()),
            name: self.options.name.clone(),
            pid: Some(std::process::id()),
            cluster: self.cluster.as_ref().map(Cluster::report),
            ..self.core.report()
        }
    }

    /// A process's connection ended; why, is learnt later.
    pub(super) fn note_end(&mut self, worker: WorkerId, pid: u32) {
        self.rounds.forget_process(worker);
        self.metrics.forget(worker);
        if self.ended_rows.len() == ENDED_MAX {
            self.ended_rows.pop_front();
        }
        self.ended_rows.push_back(EndedRow { worker, pid, reason: String::new(), at: now().0 });
    }

    /// A process is gone, and this is why.
    pub(super) fn gone(
        &mut self,
        worker: WorkerId,
        reason: &str,
        last_started: Option<weft_wire::TaskId>,
        out: &mut NodeActions,
    ) {
        if let Some(row) = self.ended_rows.iter_mut().rev().find(|row| row.worker == worker) {
            reason.clone_into(&mut row.reason);
        }
        self.core.on_gone(worker, reason, last_started, out);
    }
}

/// Puts what the directory of the cluster knows into the report of a node. What only the node of an actor knows stays.
fn join(node: &mut NodeReport, directory: NodeReport) {
    let own = std::mem::replace(&mut node.actors, directory.actors);
    node.groups = directory.groups;
    for row in &mut node.actors {
        if let Some(known) = own.iter().find(|known| known.actor == row.actor) {
            row.pid = known.pid;
            row.resources = known.resources.clone();
        }
    }
}
