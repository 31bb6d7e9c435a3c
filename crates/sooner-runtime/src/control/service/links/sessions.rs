//! The sessions of a control service with the nodes of its cluster: one for each node, for the life of both.
//!
//! A session that the head does not know is ended in answer: the node has spoken with an earlier head, begins
//! another session and sends again what it has. No session ends for want of a connection: only the state
//! machine that watches nodes ([`sooner_protocol::control::membership`]) declares a node dead.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use sooner_protocol::session::hello::Me;
use sooner_protocol::time::Instant;
use sooner_wire::limits::HANDSHAKE_NANOS;
use sooner_wire::message::Message;
use sooner_wire::{NodeId, WorkerId};

use super::{Event, LEAVE_NANOS, Line};
use crate::poller;
use crate::transport::{EpollSession, Inlet, SessionNews, Stream, Turn};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The node must register until then.
    Greeted(Instant),
    /// The node takes part.
    Registered,
    /// The session is dismissed. Until then, what is queued may still leave.
    Leaving(Instant),
}

struct Session {
    wire: EpollSession,
    phase: Phase,
    address: SocketAddr,
    was_open: bool,
}

impl Session {
    fn deadline(&self) -> Option<Instant> {
        let until = match self.phase {
            Phase::Greeted(until) | Phase::Leaving(until) => Some(until),
            Phase::Registered => None,
        };
        [until, self.wire.next_deadline()].into_iter().flatten().min()
    }
}

/// A node that has dialled and said hello.
pub(super) struct Arrival {
    pub(super) address: SocketAddr,
    pub(super) stream: Stream,
    pub(super) inlet: Inlet,
    pub(super) hello: Message,
    pub(super) token: u64,
}

/// See the module.
pub(super) struct Sessions {
    me: Arc<Me>,
    sessions: HashMap<NodeId, Session>,
    /// The node of each connection.
    tokens: HashMap<u64, NodeId>,
    dirty: Vec<NodeId>,
}

impl Sessions {
    pub(super) fn new(me: Arc<Me>) -> Self {
        Self { me, sessions: HashMap::new(), tokens: HashMap::new(), dirty: Vec::new() }
    }

    pub(super) fn has(&self, token: u64) -> bool {
        self.tokens.contains_key(&token)
    }

    /// A node has connected, for the first time or again.
    pub(super) fn on_arrival(
        &mut self,
        node: NodeId,
        arrival: Arrival,
        turn: Turn<'_>,
        events: &mut Vec<Event>,
    ) {
        let Arrival { address, stream, inlet, hello, token } = arrival;
        let is_over = |s: &Session| matches!(s.phase, Phase::Leaving(_)) || s.wire.ended().is_some();
        if self.sessions.get(&node).is_some_and(is_over) {
            self.forget(node, turn);
        }
        let session = self.sessions.entry(node).or_insert_with(|| Session {
            // The node dials; nothing is sent before it has.
            wire: EpollSession::new(self.me.clone(), WorkerId(node.0), 0, false).patient(),
            phase: Phase::Greeted(turn.time.plus(HANDSHAKE_NANOS)),
            address,
            was_open: false,
        });
        session.address = address;
        session.wire.accept(stream, inlet, hello, token, turn);
        self.tokens.insert(token, node);
        self.after(node, events);
    }

    pub(super) fn on_ready(&mut self, event: poller::Event, turn: Turn<'_>, events: &mut Vec<Event>) {
        let Some(node) = self.tokens.get(&event.token).copied() else { return };
        let Some(session) = self.sessions.get_mut(&node) else { return };
        let mut said = Vec::new();
        session.wire.on_ready(event, turn, &mut said);
        if !matches!(session.phase, Phase::Leaving(_)) {
            let line = Line::Control;
            events.extend(said.into_iter().map(|message| Event::Said { node, line, message }));
        }
        self.dirty.push(node);
        self.after(node, events);
    }

    /// Handles what has changed in the session.
    fn after(&mut self, node: NodeId, events: &mut Vec<Event>) {
        let Some(session) = self.sessions.get_mut(&node) else { return };
        for news in session.wire.take_news() {
            match news {
                SessionNews::Opened => {
                    if session.was_open && session.phase == Phase::Registered {
                        events.push(Event::Resumed { node });
                    }
                    session.was_open = true;
                }
                SessionNews::Closed(token) => {
                    self.tokens.remove(&token);
                    let reason = session.wire.failure().map(ToString::to_string).unwrap_or_default();
                    match session.phase {
                        _ if session.wire.is_open() => {}
                        Phase::Registered => events.push(Event::Ended { node, reason }),
                        Phase::Greeted(_) if !reason.is_empty() => {
                            let address = session.address;
                            events.push(Event::Refused { address, reason });
                        }
                        Phase::Greeted(_) | Phase::Leaving(_) => {}
                    }
                }
                // The node dials, and begins another session.
                SessionNews::Dial | SessionNews::Ended(_) => {}
            }
        }
    }

    pub(super) fn register(&mut self, node: NodeId) {
        if let Some(session) = self.sessions.get_mut(&node) {
            session.phase = Phase::Registered;
        }
    }

    pub(super) fn is_registered(&self, node: NodeId) -> bool {
        self.sessions.get(&node).is_some_and(|session| session.phase == Phase::Registered)
    }

    pub(super) fn send(&mut self, node: NodeId, message: &Message) {
        if let Some(session) = self.sessions.get_mut(&node).filter(|s| s.phase == Phase::Registered) {
            session.wire.push(message);
            self.dirty.push(node);
        }
    }

    /// Sends the last message to a node.
    pub(super) fn dismiss(&mut self, node: NodeId, message: &Message, turn: Turn<'_>) {
        if let Some(session) = self.sessions.get_mut(&node) {
            session.wire.push(message);
        }
        self.leave(node, turn);
    }

    /// Ends a node's session: nothing more is sent to the node, and nothing received.
    pub(super) fn leave(&mut self, node: NodeId, turn: Turn<'_>) {
        if let Some(session) = self.sessions.get_mut(&node) {
            session.wire.flush(turn);
            session.wire.end("it is not part of the cluster any more", turn);
            session.phase = Phase::Leaving(turn.time.plus(LEAVE_NANOS));
        }
    }

    /// Ends the session of a node that broke the protocol. The node begins another one, and sends again what
    /// it has.
    pub(super) fn end(&mut self, node: NodeId, reason: &str, turn: Turn<'_>) {
        if let Some(session) = self.sessions.get_mut(&node) {
            session.wire.end(reason, turn);
        }
    }

    pub(super) fn flush(&mut self, turn: Turn<'_>) {
        for node in std::mem::take(&mut self.dirty) {
            if let Some(session) = self.sessions.get_mut(&node) {
                session.wire.flush(turn);
            }
        }
    }

    pub(super) fn on_timer(&mut self, turn: Turn<'_>, events: &mut Vec<Event>) {
        let mut over = Vec::new();
        let is_due = |session: &Session| session.deadline().is_some_and(|at| at <= turn.time);
        let due = self.sessions.iter().filter(|(_, session)| is_due(session)).map(|(node, _)| *node);
        for node in due.collect::<Vec<_>>() {
            let Some(session) = self.sessions.get_mut(&node) else { continue };
            session.wire.on_timer(turn);
            match session.phase {
                Phase::Greeted(until) | Phase::Leaving(until) if until <= turn.time => over.push(node),
                _ => {}
            }
            self.after(node, events);
        }
        over.into_iter().for_each(|node| self.forget(node, turn));
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.sessions.values().filter_map(Session::deadline).min()
    }

    /// Ends all connections; the nodes look for the next head.
    pub(super) fn close(&mut self, turn: Turn<'_>) {
        for session in self.sessions.values_mut() {
            session.wire.flush(turn);
            session.wire.close(turn);
        }
    }

    fn forget(&mut self, node: NodeId, turn: Turn<'_>) {
        if let Some(mut session) = self.sessions.remove(&node) {
            session.wire.close(turn);
            self.tokens.retain(|_, of| *of != node);
        }
    }
}
