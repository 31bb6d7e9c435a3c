//! The thread of the control service: its loop, and what goes between sockets, disk and machines.
//!
//! It decides nothing. Whatever comes in goes to the machine that it is for, and what that wants is done before the next thing
//! comes in, so all that is said to one node is said in the order in which it was decided.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::epoll;
use sooner_protocol::control::nodes::{Nodes, NodesAction, NodesOptions};
use sooner_protocol::control::persist::Write;
use sooner_protocol::control::view::View;
use sooner_protocol::control::wire::{CONTROL, Misplaced, is_word};
use sooner_protocol::control::{Directory, DirectoryAction, DirectoryActions, ToControl};
use sooner_protocol::scheduling::policy;
use sooner_protocol::session::hello::Me;
use sooner_protocol::time::Instant;
use sooner_wire::message::state::{Inspect, InspectEnd, NodeReport};
use sooner_wire::message::{
    DialMe, Drain, FindNodes, Message, NodeRow, Register, ResourceReport, Routed, Suspect, kind,
};
use sooner_wire::{NodeId, WorkerId};

use super::links::{self, Links};
use super::probes::Probes;
use super::tickets::{Batch, Tickets};
use super::{Arrival, ControlOptions, FIRST_LINK, Line, PROBES, Shared, State, WAKE};
use crate::clock::{now, timespec};
use crate::control::commit::{Committer, Done};
use crate::control::records;
use crate::control::store::Outcome;
use crate::node::notes::Notes;

/// How long a head that started again lets questions wait for the nodes that an earlier head knew (nanoseconds).
const RELEARN_NANOS: u64 = 10_000_000_000;

pub(super) struct Service {
    me: NodeId,
    nodes: Nodes,
    view: View,
    /// How often nodes have asked where something could run.
    questions: u64,
    /// The directory: actors, names, groups, jobs.
    core: Directory,
    /// Nodes that an earlier head knew have come back, or are gone.
    is_complete: bool,
    committer: Committer,
    tickets: Tickets,
    links: Links,
    probes: Probes,
    shared: Arc<Shared>,
    notes: Notes,
    /// The node of the head before this one. It is gone, whatever answers at its address.
    former: Option<NodeId>,
}

impl Service {
    pub(super) fn new(
        state: State,
        options: &ControlOptions,
        shared: Arc<Shared>,
        epoll: OwnedFd,
        probes: Probes,
        notes: Notes,
    ) -> io::Result<Self> {
        let machine = NodesOptions {
            cluster: state.cluster,
            python: options.python.clone(),
            health_timeout: options.health_timeout,
        };
        let of_committer = shared.clone();
        let on_done = move |done: Vec<Done>| {
            of_committer.inbox.lock().written.extend(done);
            of_committer.wake();
        };
        let mut core = Directory::default();
        core.keep_records(state.found);
        core.expect_nodes(now().plus(RELEARN_NANOS));
        let me = Me { id: WorkerId(options.node.0), is_head: true, python: options.python.clone() };
        Ok(Self {
            me: options.node,
            nodes: Nodes::new(machine, state.nodes, now()),
            view: View::default(),
            questions: 0,
            core,
            is_complete: false,
            committer: Committer::start(Box::new(state.store), Box::new(on_done))?,
            tickets: Tickets::default(),
            links: Links::new(me, options.identity.clone(), epoll, FIRST_LINK),
            probes,
            shared,
            notes,
            former: state.head.map(|head| head.node),
        })
    }

    pub(super) fn run(mut self) {
        let mut out = Vec::new();
        self.nodes.on_start(now(), &mut out);
        self.perform(out);
        loop {
            let deadlines = [
                self.nodes.next_deadline(),
                self.view.next_deadline(),
                self.core.next_deadline(),
                self.links.next_deadline(),
                self.probes.next_deadline(),
            ];
            let next = deadlines.into_iter().flatten().min();
            let timeout = next.map(|deadline| timespec(deadline.since(now())));
            let mut events = Vec::with_capacity(64);
            let space = rustix::buffer::spare_capacity(&mut events);
            let _ = epoll::wait(self.links.epoll(), space, timeout.as_ref());
            for event in events {
                self.on_event(event.data.u64(), event.flags);
            }
            if self.take_inbox() {
                return self.close();
            }
            self.on_time();
            self.links.flush();
        }
    }

    fn on_event(&mut self, token: u64, flags: epoll::EventFlags) {
        match token {
            WAKE => {
                let _ = rustix::io::read(&self.shared.wake, &mut [0; 8]);
            }
            PROBES => {
                for (node, number, probed) in self.probes.on_ready() {
                    let mut out = Vec::new();
                    self.nodes.on_probed(node, number, probed, now(), &mut out);
                    self.perform(out);
                }
            }
            _ => {
                for event in self.links.on_ready(token, flags) {
                    self.on_link(event);
                }
            }
        }
    }

    /// True when the thread is to end.
    fn take_inbox(&mut self) -> bool {
        let inbox = std::mem::take(&mut *self.shared.inbox.lock());
        for arrival in inbox.arrivals {
            match arrival {
                Arrival::Stranger(socket, address, line) => {
                    if let Some(event) = self.links.admit(socket, address, line, now()) {
                        self.on_link(event);
                    }
                }
                Arrival::Own(socket, line) => self.links.connect(socket, self.me, line),
            }
        }
        for done in inbox.written {
            let outcome = match done.outcome {
                Ok(Outcome::Applied(_)) => Ok(()),
                Ok(other) => Err(format!("the store answered {other:?}")),
                Err(error) => Err(error.to_string()),
            };
            if let Err(reason) = &outcome {
                self.notes.write_rationed(&format!("the control store: {reason}"));
            }
            if let Some(batch) = self.tickets.take(done.ticket) {
                self.on_written(batch, outcome);
            }
        }
        inbox.is_ending
    }

    fn on_written(&mut self, batch: Batch, outcome: Result<(), String>) {
        match batch {
            Batch::OfNodes(batch) => {
                let mut out = Vec::new();
                self.nodes.on_persisted(batch, outcome, &mut out);
                self.perform(out);
            }
            Batch::OfDirectory(batch) => {
                let mut decided = DirectoryActions::new();
                self.core.on_persisted(batch, outcome, now(), &mut decided);
                self.follow(decided);
            }
        }
    }

    /// Hands writes to the thread that writes. Their outcome comes back, unless it is the error here.
    fn write(&mut self, batch: Batch, writes: Vec<Write>) -> Result<(), String> {
        let ticket = self.tickets.draw(batch);
        self.committer.submit(ticket, records::batch(writes)).map_err(|_| {
            self.tickets.take(ticket);
            "the disk of the head does not follow: too many writes wait for it".to_owned()
        })
    }

    fn on_time(&mut self) {
        let time = now();
        for event in self.links.expire(time) {
            self.on_link(event);
        }
        let mut out = Vec::new();
        for (node, number, probed) in self.probes.expire(time) {
            self.nodes.on_probed(node, number, probed, time, &mut out);
        }
        self.nodes.on_timer(time, &mut out);
        self.perform(out);
        self.settle(time);
    }

    /// What follows from all that has happened in this turn.
    fn settle(&mut self, time: Instant) {
        let mut decided = DirectoryActions::new();
        if !self.is_complete && self.nodes.is_complete() && self.core.has_heard_all() {
            self.is_complete = true;
            self.core.on_all_here(time, &mut decided);
        }
        self.core.settle(time, &mut decided);
        self.follow(decided);
        let mut news = Vec::new();
        self.view.settle(time, &mut news);
        for (node, message) in news {
            self.links.send(node, &message);
        }
    }

    fn on_link(&mut self, event: links::Event) {
        let mut out = Vec::new();
        match event {
            links::Event::Said { node, line, message } => self.on_message(node, line, message, &mut out),
            links::Event::Resumed { node } => self.nodes.on_connected(node, now()),
            links::Event::Ended { node, reason } => {
                self.notes.write_rationed(&format!("a connection of node {:016x} ended: {reason}", node.0));
                self.nodes.on_disconnected(node, now(), &mut out);
            }
            links::Event::Refused { address, reason } => {
                self.notes.write_rationed(&format!("refused a connection from {address}: {reason}"));
            }
        }
        self.perform(out);
    }

    fn on_message(&mut self, node: NodeId, line: Line, message: Message, out: &mut Vec<NodesAction>) {
        match (line, message) {
            (Line::Control, Message::Register(register)) => self.on_register(node, register, out),
            (Line::Control, _) if !self.links.is_registered(node) => {}
            (Line::Control, Message::ResourceReport(report)) => self.on_report(node, report),
            (Line::Control, Message::FindNodes(find)) => self.on_find_nodes(node, &find),
            (Line::Control, Message::Suspect(suspect)) => self.on_suspect(node, suspect, out),
            (Line::Control, Message::Drain(drain)) => self.on_drain(drain, out),
            (Line::Control, Message::Drained(drained)) if drained.node == node => {
                self.nodes.on_drained(node, now(), out);
            }
            (Line::Control, Message::Routed(Routed { from, message, .. }))
                if from == WorkerId(node.0) && matches!(*message, Message::Inspect(_)) =>
            {
                self.on_question(node, &message);
            }
            (Line::Control, Message::DialMe(asked)) => self.on_dial_me(node, asked),
            (Line::Control, message) if is_word(message.kind()) => self.on_word(node, message),
            (Line::Health, Message::Heartbeat(beat)) => {
                self.nodes.on_heartbeat(node, beat, now(), out);
            }
            // Something of a later minor version.
            _ => {}
        }
    }

    fn on_register(&mut self, node: NodeId, register: Register, out: &mut Vec<NodesAction>) {
        let name = register.about.name.clone();
        match self.nodes.on_register(node, register, now(), out) {
            Ok(()) => self.links.register(node),
            Err(refusal) => {
                let message = refusal.into_message();
                let reason = match &message {
                    Message::Fenced(fenced) => fenced.reason.clone(),
                    Message::Refused(refused) => refused.reason.clone(),
                    _ => String::new(),
                };
                self.notes.write_rationed(&format!("node {name:?} may not join: {reason}"));
                self.links.dismiss(node, &message);
            }
        }
    }

    /// A node has lost its connection to another one. The head's own node goes on in any case: who holds that for gone cannot.
    fn on_suspect(&mut self, node: NodeId, suspect: Suspect, out: &mut Vec<NodesAction>) {
        let (from, suspect) = match suspect.is_given_up == Some(true) && suspect.node == self.me {
            true => (suspect.node, Suspect { node, ..suspect }),
            false => (node, suspect),
        };
        self.nodes.on_suspect(from, suspect, now(), out);
    }

    /// A node is asked to leave, by itself or by somebody who looks after the cluster.
    fn on_drain(&mut self, drain: Drain, out: &mut Vec<NodesAction>) {
        let node = drain.node;
        let mut decided = DirectoryActions::new();
        self.core.on_node_drains(node, &mut decided);
        self.follow(decided);
        match self.nodes.on_drain(drain, now(), out) {
            Ok(()) => {
                self.notes.write(&format!("node {:016x} is to leave", node.0));
                if let Some(row) = self.nodes.row(node) {
                    self.view.on_node(row);
                }
            }
            Err(reason) => self.notes.write_rationed(&reason),
        }
    }

    fn on_report(&mut self, node: NodeId, report: ResourceReport) {
        if let Some(row) = self.nodes.row(node) {
            let mut row = placing_row(row);
            row.free = report.free.clone();
            self.core.on_report(row);
            self.core.on_bundles_free(node, report.bundles.clone().unwrap_or_default());
        }
        if let Err(error) = self.view.on_report(node, report) {
            self.end_session(node, &error.to_string());
        }
    }

    /// A node has no room for something, in a cluster where nodes are not told what the others have free.
    fn on_find_nodes(&mut self, node: NodeId, find: &FindNodes) {
        // Who asks at the same time is sent to different nodes: the golden ratio scatters the count (Knuth, volume 3, 6.4).
        self.questions = self.questions.wrapping_add(1);
        let seed = self.questions.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        match self.view.find(find, node, seed) {
            Ok(candidates) => self.links.send(node, &candidates.into()),
            Err(error) => self.end_session(node, &error.to_string()),
        }
    }

    /// A node cannot dial another one, and has it asked to dial. Every node may ask every other: whoever dials sees in the
    /// handshake whom it has reached.
    fn on_dial_me(&mut self, node: NodeId, asked: DialMe) {
        if asked.from.node() != node {
            return self.end_session(node, "it asks for connections to another node");
        }
        if self.nodes.row(asked.to.node()).is_some() {
            self.links.send(asked.to.node(), &asked.into());
        }
    }

    /// A node, or a process of it, has something to say to the directory.
    fn on_word(&mut self, node: NodeId, message: Message) {
        match ToControl::parse(message, node) {
            Ok(word) => {
                let mut decided = DirectoryActions::new();
                self.core.on_node(node, word, now(), &mut decided);
                self.follow(decided);
            }
            Err(Misplaced(why)) => self.end_session(node, why),
        }
    }

    /// Somebody looks at the state of a node: what the directory has is a part of it.
    fn on_question(&mut self, node: NodeId, message: &Message) {
        let Message::Inspect(Inspect { request, .. }) = *message else { return };
        let groups = Some(self.core.groups()).filter(|groups| !groups.is_empty());
        let report = Box::new(NodeReport {
            actors: self.core.report(),
            groups,
            demands: self.view.demand_but_of(node),
            ..NodeReport::default()
        });
        let end = InspectEnd { request, node: report, ..InspectEnd::default() };
        let (from, to) = (CONTROL, WorkerId(node.0));
        self.links.send(node, &Routed { from, to, message: Box::new(end.into()) }.into());
    }

    fn end_session(&mut self, node: NodeId, why: &str) {
        self.notes.write_rationed(&format!("node {:016x} says nonsense: {why}", node.0));
        self.links.end_session(node, why);
    }

    /// Tells nodes what the directory has decided.
    fn follow(&mut self, decided: DirectoryActions) {
        for action in decided {
            match action {
                DirectoryAction::Send(node, word) => self.links.send(node, &word.into_message()),
                DirectoryAction::Persist(batch, writes) => {
                    let batch = Batch::OfDirectory(batch);
                    if let Err(reason) = self.write(batch, writes) {
                        self.on_written(batch, Err(reason));
                    }
                }
                DirectoryAction::Warn(text) => self.notes.write(&text),
            }
        }
    }

    fn perform(&mut self, actions: Vec<NodesAction>) {
        let mut todo = VecDeque::from(actions);
        while let Some(action) = todo.pop_front() {
            let mut out = Vec::new();
            match action {
                NodesAction::Send(node, message) => self.send(node, &message),
                NodesAction::Persist(batch, writes) => {
                    if let Err(reason) = self.write(Batch::OfNodes(batch), writes) {
                        self.nodes.on_persisted(batch, Err(reason), &mut out);
                    }
                }
                NodesAction::Probe { node, number, address } => self.probe(node, number, &address, &mut out),
                NodesAction::Joined(node) => {
                    if let Some(row) = self.nodes.row(node) {
                        self.notes.write(&joined(row));
                        self.view.on_joined(row);
                        match row.about.kind {
                            kind::DRIVER => self.core.on_program_joined(row.node),
                            _ => self.core.on_node_joined(placing_row(row)),
                        }
                    }
                }
                NodesAction::Gone(node, reason) => {
                    self.notes.write(&format!("node {:016x} is gone: {reason}", node.0));
                    self.view.on_gone(node);
                    self.links.end_node(node);
                    let mut decided = DirectoryActions::new();
                    self.core.on_node_gone(node, &reason, &mut decided);
                    self.follow(decided);
                }
                NodesAction::AskedAfter { from, node } => {
                    let mut decided = DirectoryActions::new();
                    self.core.on_asked_after(from, node, &mut decided);
                    self.follow(decided);
                }
                NodesAction::Warn(text) => self.notes.write(&text),
            }
            todo.extend(out);
        }
    }

    fn send(&mut self, node: NodeId, message: &Message) {
        match message {
            // Whoever is told that does not ask again.
            Message::Fenced(_) => self.links.dismiss(node, message),
            _ => self.links.send(node, message),
        }
    }

    fn probe(&mut self, node: NodeId, number: u32, address: &str, out: &mut Vec<NodesAction>) {
        use sooner_protocol::control::Probed;
        let time = now();
        if self.former == Some(node) {
            // It was a part of the process that held the lock of the cluster's directory.
            return self.nodes.on_probed(node, number, Probed::Refused, time, out);
        }
        if let Some(probed) = self.probes.begin(node, number, address, time) {
            self.nodes.on_probed(node, number, probed, time, out);
        }
    }

    fn close(mut self) {
        self.links.flush();
        self.links.end_all();
    }
}

/// A node as the directory chooses among them: what it has is free until it says more.
fn placing_row(row: &NodeRow) -> policy::NodeRow {
    let (total, labels) = (row.about.resources.clone(), row.about.labels.clone());
    policy::NodeRow { node: row.node, free: total.clone(), total, labels }
}

fn joined(row: &NodeRow) -> String {
    let address = row.about.address.as_deref().unwrap_or("no address");
    format!("node {:?} ({:016x}, {address}) is part of the cluster", row.about.name, row.node.0)
}
