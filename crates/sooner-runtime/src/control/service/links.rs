//! The connections of a control service: which node each belongs to, proved before the peer may speak.
//!
//! Decisions travel in sessions. Each node has one, which outlives its connections, so no message is lost or
//! received twice while both ends live. Heartbeats have connections of their own, and none need to be kept.
//! The head's own node is at the other end of a socket pair, which ends with the process and not before.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use sooner_protocol::session::hello::{Me, on_hello, welcome};
use sooner_protocol::time::Instant;
use sooner_wire::limits::{HANDSHAKE_NANOS, HANDSHAKES_MAX};
use sooner_wire::message::{Message, Refused};
use sooner_wire::{NodeId, WorkerId};

use super::Line;
use crate::clock::now;
use crate::identity::Identity;
use crate::node::accept::Shares;
use crate::poller::{self, Poller};
use crate::transport::{Conn, Ended, Stream, TlsStream, Turn};
use sessions::Sessions;

mod sessions;

/// How long a dismissed peer may take to read why (nanoseconds).
const LEAVE_NANOS: u64 = 1_000_000_000;

/// What happened on a connection.
pub(super) enum Event {
    /// A node has sent a message.
    Said { node: NodeId, line: Line, message: Message },
    /// The session of a node continues over another connection.
    Resumed { node: NodeId },
    /// A connection of a node ended.
    Ended { node: NodeId, reason: String },
    /// A peer that wanted to be a node was not let in.
    Refused { address: SocketAddr, reason: String },
}

enum Phase {
    /// The peer must prove who it is until then.
    Shaking(Instant),
    /// The peer is this node.
    Known(NodeId),
    /// The connection is dismissed. Until then, what is queued may still leave.
    Leaving(Instant),
}

struct Link {
    framed: Conn,
    /// The address of a node in another process; `None` for the head's own node.
    address: Option<SocketAddr>,
    line: Line,
    phase: Phase,
}

/// See the module.
pub(super) struct Links {
    me: Arc<Me>,
    identity: Identity,
    poller: Poller,
    shares: Shares,
    links: HashMap<u64, Link>,
    sessions: Sessions,
    /// The connection of this process's own node.
    own: Option<u64>,
    /// The current heartbeat connection of each node.
    health: HashMap<NodeId, u64>,
    next_token: u64,
    dirty: Vec<u64>,
    /// Connections that ended while something was sent.
    over: Vec<u64>,
}

impl Links {
    pub(super) fn new(me: Me, identity: Identity, poller: Poller, first_token: u64) -> Self {
        let me = Arc::new(me);
        Self {
            sessions: Sessions::new(me.clone()),
            me,
            identity,
            poller,
            shares: Shares::default(),
            links: HashMap::new(),
            own: None,
            health: HashMap::new(),
            next_token: first_token,
            dirty: Vec::new(),
            over: Vec::new(),
        }
    }

    pub(super) fn poller(&self) -> &Poller {
        &self.poller
    }

    /// Takes a connection from the door. Returns which one had to make room for it, if any.
    pub(super) fn admit(
        &mut self,
        socket: OwnedFd,
        address: SocketAddr,
        line: Line,
        now: Instant,
    ) -> Option<Event> {
        let unfinished = self.links.iter().filter_map(|(token, link)| match (&link.phase, link.address) {
            (Phase::Shaking(_), Some(address)) => Some((*token, address.ip())),
            _ => None,
        });
        let leaving = self.shares.leaving(unfinished, address.ip(), HANDSHAKES_MAX);
        let refused = leaving.and_then(|(token, crowd)| {
            let mut link = self.links.remove(&token)?;
            link.framed.end();
            Some(Event::Refused { address: link.address?, reason: crowd.to_string() })
        });
        let stream = Stream::Tls(Box::new(TlsStream::accept(socket, &self.identity)));
        self.add(stream, Some(address), line, Phase::Shaking(now.plus(HANDSHAKE_NANOS)));
        refused
    }

    /// Connects this process's own node.
    pub(super) fn connect(&mut self, socket: OwnedFd, node: NodeId, line: Line) {
        let token = self.next_token;
        self.add(Stream::Unix(socket), None, line, Phase::Known(node));
        match line {
            Line::Control => self.own = Some(token),
            Line::Health => drop(self.health.insert(node, token)),
        }
    }

    fn add(&mut self, stream: Stream, address: Option<SocketAddr>, line: Line, phase: Phase) {
        let token = self.next_token;
        self.next_token += 1;
        if let Ok(framed) = Conn::add(stream, &self.poller, token) {
            let framed = if address.is_none() { framed.within_process() } else { framed };
            self.links.insert(token, Link { framed, address, line, phase });
        }
    }

    pub(super) fn on_ready(&mut self, event: poller::Event) -> Vec<Event> {
        let token = event.token;
        let mut events = Vec::new();
        if self.sessions.has(token) {
            let turn = Turn { poller: &self.poller, time: now() };
            self.sessions.on_ready(event, turn, &mut events);
            return events;
        }
        let Some(link) = self.links.get_mut(&token) else { return events };
        if event.is_writable() {
            link.framed.flush(&self.poller);
        }
        if event.is_readable() {
            link.framed.read(&self.poller);
        }
        while let Some(message) = self.links.get_mut(&token).and_then(|link| link.framed.next_message()) {
            self.on_message(token, message, &mut events);
        }
        self.end_if_over(token, &mut events);
        events
    }

    fn on_message(&mut self, token: u64, message: Message, events: &mut Vec<Event>) {
        let Some(link) = self.links.get_mut(&token) else { return };
        match link.phase {
            Phase::Known(node) => events.push(Event::Said { node, line: link.line, message }),
            Phase::Shaking(_) => self.on_first(token, message, events),
            Phase::Leaving(_) => {}
        }
    }

    fn on_first(&mut self, token: u64, message: Message, events: &mut Vec<Event>) {
        let Some(link) = self.links.get_mut(&token) else { return };
        let (Some(certified), Some(address)) = (link.framed.peer(), link.address) else { return };
        let answer = on_hello(&message, &self.me, certified);
        if answer.is_ok() {
            self.shares.on_proven(address.ip());
        }
        match (answer, link.line) {
            (Ok(party), Line::Health) => {
                link.framed.push(&welcome(&party, 0).into());
                link.phase = Phase::Known(certified);
                self.dirty.push(token);
                if let Some(former) = self.health.insert(certified, token) {
                    self.links.remove(&former);
                }
            }
            (Ok(party), Line::Control) => {
                let Some(link) = self.links.remove(&token) else { return };
                let (stream, inlet) = link.framed.into_parts(&self.poller);
                let token = self.next_token;
                self.next_token += 1;
                let turn = Turn { poller: &self.poller, time: now() };
                let arrival = sessions::Arrival { address, stream, inlet, hello: message, token };
                self.sessions.on_arrival(party.id.node(), arrival, turn, events);
            }
            (Err(refusal), _) => {
                let reason = refusal.to_string();
                events.push(Event::Refused { address, reason: reason.clone() });
                self.dismiss_link(token, &Refused { reason }.into());
            }
        }
    }

    /// The node has registered.
    pub(super) fn register(&mut self, node: NodeId) {
        self.sessions.register(node);
    }

    /// Whether the node has registered and may speak.
    pub(super) fn is_registered(&self, node: NodeId) -> bool {
        self.me.id == WorkerId(node.0) || self.sessions.is_registered(node)
    }

    /// Sends a message to a node, if it has a connection or session.
    pub(super) fn send(&mut self, node: NodeId, message: &Message) {
        if self.me.id != WorkerId(node.0) {
            return self.sessions.send(node, message);
        }
        let Some(token) = self.own else { return };
        if let Some(link) = self.links.get_mut(&token) {
            link.framed.push(message);
            self.dirty.push(token);
        }
    }

    fn dismiss_link(&mut self, token: u64, message: &Message) {
        if let Some(link) = self.links.get_mut(&token) {
            link.framed.push(message);
        }
        self.leave(token);
    }

    /// Sends the last message to a node, on all connections that it has.
    pub(super) fn dismiss(&mut self, node: NodeId, message: &Message) {
        self.sessions.dismiss(node, message, Turn { poller: &self.poller, time: now() });
        self.health.remove(&node);
        // A dead node may have opened another heartbeat connection later.
        let known = |link: &Link| matches!(link.phase, Phase::Known(known) if known == node);
        let others: Vec<u64> = self.links.iter().filter(|(_, link)| known(link)).map(|(t, _)| *t).collect();
        others.into_iter().for_each(|token| self.dismiss_link(token, message));
    }

    /// A node is dead: ends its connections.
    pub(super) fn end_node(&mut self, node: NodeId) {
        self.sessions.leave(node, Turn { poller: &self.poller, time: now() });
        let own = self.own.take_if(|_| self.me.id == WorkerId(node.0));
        for token in own.into_iter().chain(self.health.remove(&node)) {
            self.leave(token);
        }
    }

    /// Ends the session of a node that broke the protocol.
    pub(super) fn end_session(&mut self, node: NodeId, reason: &str) {
        self.sessions.end(node, reason, Turn { poller: &self.poller, time: now() });
    }

    fn leave(&mut self, token: u64) {
        if let Some(link) = self.links.get_mut(&token) {
            link.framed.end();
            link.phase = Phase::Leaving(now().plus(LEAVE_NANOS));
        }
    }

    /// Sends what was queued since the last time.
    pub(super) fn flush(&mut self) {
        for token in std::mem::take(&mut self.dirty) {
            let Some(link) = self.links.get_mut(&token) else { continue };
            link.framed.flush(&self.poller);
            if link.framed.ended().is_some() {
                self.over.push(token);
            }
        }
        self.sessions.flush(Turn { poller: &self.poller, time: now() });
    }

    /// Announces to all peers that nothing more comes.
    pub(super) fn end_all(&mut self) {
        self.links.values_mut().for_each(|link| link.framed.end());
        self.sessions.close(Turn { poller: &self.poller, time: now() });
    }

    /// Ends connections whose time is over, or that ended while something was sent.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<Event> {
        let mut events = Vec::new();
        let mut late = Vec::new();
        for (token, link) in &mut self.links {
            match link.phase {
                Phase::Shaking(until) if until <= now => {
                    link.framed.on_silence();
                    late.push(*token);
                }
                Phase::Leaving(until) if until <= now => late.push(*token),
                _ => {}
            }
        }
        late.append(&mut self.over);
        for token in late {
            self.end(token, &mut events);
        }
        self.sessions.on_timer(Turn { poller: &self.poller, time: now }, &mut events);
        events
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        if !self.over.is_empty() {
            return Some(Instant(0));
        }
        let until = |link: &Link| match link.phase {
            Phase::Shaking(until) | Phase::Leaving(until) => Some(until),
            Phase::Known(_) => None,
        };
        self.links.values().filter_map(until).chain(self.sessions.next_deadline()).min()
    }

    fn end_if_over(&mut self, token: u64, events: &mut Vec<Event>) {
        if self.links.get(&token).is_some_and(|link| link.framed.ended().is_some()) {
            self.end(token, events);
        }
    }

    fn end(&mut self, token: u64, events: &mut Vec<Event>) {
        let Some(link) = self.links.remove(&token) else { return };
        let ended = link.framed.ended().cloned().unwrap_or(Ended::Frame("it broke the protocol".to_owned()));
        match link.phase {
            Phase::Shaking(_) => {
                if let Some(address) = link.address {
                    events.push(Event::Refused { address, reason: ended.to_string() });
                }
            }
            // A connection that was replaced by another is not reported.
            Phase::Known(node) if self.health.get(&node) == Some(&token) => {
                self.health.remove(&node);
                events.push(Event::Ended { node, reason: ended.to_string() });
            }
            Phase::Known(_) | Phase::Leaving(_) => {}
        }
    }
}
