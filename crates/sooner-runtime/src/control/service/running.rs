//! The thread of the control service: its loop, and the paths between sockets, disk and the core.
//!
//! It decides nothing: [`ControlCore`] does. Actions of the core are carried out before the next event is
//! handled, so messages to a node leave in the order in which they were decided.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use sooner_protocol::control::membership::NodesOptions;
use sooner_protocol::control::persist::Write;
use sooner_protocol::control::{Batch, Beginning, ControlAction, ControlActions, ControlCore};
use sooner_protocol::session::hello::Me;
use sooner_protocol::time::Instant;
use sooner_wire::message::Message;
use sooner_wire::{NodeId, WorkerId};

use super::links::{self, Links};
use super::probes::Probes;
use super::tickets::Tickets;
use super::{Arrival, ControlOptions, FIRST_LINK, Line, PROBES, Shared, State, WAKE};
use crate::clock::now;
use crate::control::commit::{Committer, Done};
use crate::control::records;
use crate::control::store::Outcome;
use crate::node::notes::Notes;
use crate::poller::{Event, Events, Poller};

pub(super) struct Service {
    me: NodeId,
    core: ControlCore,
    /// The core's first actions.
    first: ControlActions,
    committer: Committer,
    tickets: Tickets,
    links: Links,
    probes: Probes,
    shared: Arc<Shared>,
    notes: Notes,
}

impl Service {
    pub(super) fn new(
        state: State,
        options: &ControlOptions,
        shared: Arc<Shared>,
        poller: Poller,
        probes: Probes,
        notes: Notes,
    ) -> io::Result<Self> {
        let of_committer = shared.clone();
        let on_done = move |done: Vec<Done>| {
            of_committer.inbox.lock().written.extend(done);
            of_committer.wake();
        };
        let begin = Beginning {
            me: options.node,
            former: state.head.map(|head| head.node),
            options: NodesOptions {
                cluster: state.cluster,
                python: options.python.clone(),
                health_timeout: options.health_timeout,
            },
            nodes: state.nodes,
            found: state.found,
        };
        let mut first = ControlActions::new();
        let core = ControlCore::new(begin, now(), &mut first);
        let me = Me { id: WorkerId(options.node.0), is_head: true, python: options.python.clone() };
        Ok(Self {
            me: options.node,
            core,
            first,
            committer: Committer::start(Box::new(state.store), Box::new(on_done))?,
            tickets: Tickets::default(),
            links: Links::new(me, options.identity.clone(), poller, FIRST_LINK),
            probes,
            shared,
            notes,
        })
    }

    pub(super) fn run(mut self) {
        let first = std::mem::take(&mut self.first);
        self.perform(first);
        let mut events = Events::with_capacity(64);
        loop {
            let deadlines =
                [self.core.next_deadline(), self.links.next_deadline(), self.probes.next_deadline()];
            let next = deadlines.into_iter().flatten().min();
            let timeout = next.map(|deadline| deadline.since(now()));
            let _ = self.links.poller().wait(&mut events, timeout);
            for event in &events {
                self.on_event(event);
            }
            if self.take_inbox() {
                return self.close();
            }
            self.on_time();
            self.links.flush();
        }
    }

    fn on_event(&mut self, event: Event) {
        match event.token {
            WAKE => {
                let _ = rustix::io::read(&self.shared.wake, &mut [0; 8]);
            }
            PROBES => {
                for (node, number, probed) in self.probes.on_ready() {
                    self.act(|core, time, out| core.on_probed(node, number, probed, time, out));
                }
            }
            _ => {
                for event in self.links.on_ready(event) {
                    self.on_link(event);
                }
            }
        }
    }

    /// True if the thread must end.
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
                self.act(|core, time, out| core.on_persisted(batch, outcome, time, out));
            }
        }
        inbox.is_ending
    }

    /// Submits writes to the writing thread. Their outcome comes back, unless an error is returned here.
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
        for (node, number, probed) in self.probes.expire(time) {
            self.act(|core, time, out| core.on_probed(node, number, probed, time, out));
        }
        self.act(|core, time, out| core.after_events(time, out));
    }

    fn on_link(&mut self, event: links::Event) {
        match event {
            links::Event::Said { node, line, message } => self.on_message(node, line, message),
            links::Event::Resumed { node } => self.core.on_connected(node, now()),
            links::Event::Ended { node, reason } => {
                self.notes.write_rationed(&format!("a connection of node {:016x} ended: {reason}", node.0));
                self.act(|core, time, out| core.on_disconnected(node, time, out));
            }
            links::Event::Refused { address, reason } => {
                self.notes.write_rationed(&format!("refused a connection from {address}: {reason}"));
            }
        }
    }

    fn on_message(&mut self, node: NodeId, line: Line, message: Message) {
        match (line, message) {
            (Line::Control, Message::Register(register)) => {
                self.act(|core, time, out| core.on_register(node, register, time, out));
            }
            (Line::Control, message) if self.links.is_registered(node) => {
                self.act(|core, time, out| core.on_message(node, message, time, out));
            }
            (Line::Health, Message::Heartbeat(beat)) => {
                self.act(|core, time, out| core.on_heartbeat(node, beat, time, out));
            }
            // A node that has not registered is ignored, as is a message of a later minor version.
            (Line::Control | Line::Health, _) => {}
        }
    }

    /// Runs a step of the core, and carries out its actions.
    fn act(&mut self, work: impl FnOnce(&mut ControlCore, Instant, &mut ControlActions)) {
        let mut out = ControlActions::new();
        work(&mut self.core, now(), &mut out);
        self.perform(out);
    }

    fn perform(&mut self, actions: ControlActions) {
        let mut todo = VecDeque::from(actions);
        while let Some(action) = todo.pop_front() {
            let mut more = ControlActions::new();
            match action {
                ControlAction::Send(node, message) => self.links.send(node, &message),
                ControlAction::Admit(node) => self.links.register(node),
                ControlAction::Dismiss(node, message) => self.links.dismiss(node, &message),
                ControlAction::EndNode(node) => self.links.end_node(node),
                ControlAction::EndSession(node, why) => self.links.end_session(node, &why),
                ControlAction::Persist(batch, writes) => {
                    if let Err(reason) = self.write(batch, writes) {
                        self.core.on_persisted(batch, Err(reason), now(), &mut more);
                    }
                }
                ControlAction::Probe { node, number, address } => {
                    let time = now();
                    if let Some(probed) = self.probes.begin(node, number, &address, time) {
                        self.core.on_probed(node, number, probed, time, &mut more);
                    }
                }
                ControlAction::Log(text) => self.notes.write(&text),
                ControlAction::LogRationed(text) => self.notes.write_rationed(&text),
            }
            todo.extend(more);
        }
    }

    fn close(mut self) {
        self.links.flush();
        self.links.end_all();
    }
}
