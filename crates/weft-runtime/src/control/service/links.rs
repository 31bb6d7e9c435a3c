//! The connections of a control service: of whom each is, and that nobody speaks before he has proved that.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::event::epoll::EventFlags;
use weft_protocol::session::hello::{Me, on_hello, welcome};
use weft_protocol::time::Instant;
use weft_wire::NodeId;
use weft_wire::limits::{HANDSHAKE_NANOS, HANDSHAKES_MAX};
use weft_wire::message::{Message, Refused};

use super::Line;
use crate::clock::now;
use crate::identity::Identity;
use crate::node::accept::turn_away;
use crate::transport::{Ended, Framed, Stream, TlsFailure, TlsStream};

/// How long a peer that was sent away may take to read why (nanoseconds).
const LEAVE_NANOS: u64 = 1_000_000_000;

/// What happened on a connection.
pub(super) enum Event {
    /// A node said something.
    Said { token: u64, node: NodeId, line: Line, message: Message },
    /// A connection of a node ended.
    Ended { node: NodeId, reason: String },
    /// Somebody who wanted to be a node was not let in.
    Refused { address: SocketAddr, reason: String, is_stranger: bool },
}

enum Phase {
    /// It must prove until then who it is.
    Shaking(Instant),
    /// It is on that node, and must register it until then.
    Greeted(NodeId, Instant),
    /// It is that node.
    Known(NodeId),
    /// It is done, and gets the rest of what was said until then.
    Leaving(Instant),
}

struct Link {
    framed: Framed,
    /// Of a node elsewhere.
    address: Option<SocketAddr>,
    line: Line,
    phase: Phase,
}

/// See the module.
pub(super) struct Links {
    me: Me,
    identity: Identity,
    epoll: OwnedFd,
    links: HashMap<u64, Link>,
    /// The connections that stand for the nodes.
    control: HashMap<NodeId, u64>,
    health: HashMap<NodeId, u64>,
    next_token: u64,
    dirty: Vec<u64>,
    /// Ended while something was sent.
    over: Vec<u64>,
}

impl Links {
    pub(super) fn new(me: Me, identity: Identity, epoll: OwnedFd, first_token: u64) -> Self {
        Self {
            me,
            identity,
            epoll,
            links: HashMap::new(),
            control: HashMap::new(),
            health: HashMap::new(),
            next_token: first_token,
            dirty: Vec::new(),
            over: Vec::new(),
        }
    }

    pub(super) fn epoll(&self) -> &OwnedFd {
        &self.epoll
    }

    /// Somebody comes from the door.
    pub(super) fn admit(&mut self, socket: OwnedFd, address: SocketAddr, line: Line, now: Instant) {
        let shaking = self.links.values().filter(|link| matches!(link.phase, Phase::Shaking(_))).count();
        if shaking >= HANDSHAKES_MAX {
            return turn_away(socket);
        }
        let stream = Stream::Tls(Box::new(TlsStream::accept(socket, &self.identity)));
        self.add(stream, Some(address), line, Phase::Shaking(now.plus(HANDSHAKE_NANOS)));
    }

    /// This process's own node.
    pub(super) fn connect(&mut self, socket: OwnedFd, node: NodeId, line: Line) {
        let token = self.next_token;
        self.add(Stream::Unix(socket), None, line, Phase::Known(node));
        if line == Line::Health {
            self.health.insert(node, token);
        }
    }

    fn add(&mut self, stream: Stream, address: Option<SocketAddr>, line: Line, phase: Phase) {
        let token = self.next_token;
        self.next_token += 1;
        if let Ok(framed) = Framed::add(stream, &self.epoll, token) {
            self.links.insert(token, Link { framed, address, line, phase });
        }
    }

    pub(super) fn on_ready(&mut self, token: u64, flags: EventFlags) -> Vec<Event> {
        let mut events = Vec::new();
        let Some(link) = self.links.get_mut(&token) else { return events };
        if flags.contains(EventFlags::OUT) {
            link.framed.flush(&self.epoll);
        }
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            link.framed.read(&self.epoll);
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
            Phase::Known(node) | Phase::Greeted(node, _) => {
                events.push(Event::Said { token, node, line: link.line, message })
            }
            Phase::Shaking(_) => self.on_first(token, &message, events),
            Phase::Leaving(_) => {}
        }
    }

    fn on_first(&mut self, token: u64, message: &Message, events: &mut Vec<Event>) {
        let Some(link) = self.links.get_mut(&token) else { return };
        let (Some(certified), Some(address)) = (link.framed.peer(), link.address) else { return };
        match on_hello(message, &self.me, certified) {
            Ok(party) => {
                link.framed.push(&welcome(&party, 0).into());
                link.phase = Phase::Greeted(certified, now().plus(HANDSHAKE_NANOS));
                let line = link.line;
                self.dirty.push(token);
                if line == Line::Health {
                    self.stand_for(certified, line, token);
                }
            }
            Err(refusal) => {
                let reason = refusal.to_string();
                events.push(Event::Refused { address, reason: reason.clone(), is_stranger: false });
                self.dismiss(token, &Refused { reason }.into());
            }
        }
    }

    /// The node has registered over this connection.
    pub(super) fn register(&mut self, token: u64, node: NodeId) {
        self.stand_for(node, Line::Control, token);
    }

    /// Whether the node has registered over this connection, and not over another one since.
    pub(super) fn is_registered(&self, token: u64, node: NodeId) -> bool {
        self.control.get(&node) == Some(&token)
    }

    /// From now on this connection is the node's; one that it had before is not missed.
    fn stand_for(&mut self, node: NodeId, line: Line, token: u64) {
        if let Some(link) = self.links.get_mut(&token) {
            link.phase = Phase::Known(node);
        }
        let former = match line {
            Line::Control => self.control.insert(node, token),
            Line::Health => self.health.insert(node, token),
        };
        if let Some(former) = former.filter(|former| *former != token) {
            self.links.remove(&former);
        }
    }

    /// Says something to a node, if it has a connection.
    pub(super) fn send(&mut self, node: NodeId, message: &Message) {
        let Some(token) = self.control.get(&node) else { return };
        if let Some(link) = self.links.get_mut(token) {
            link.framed.push(message);
            self.dirty.push(*token);
        }
    }

    /// Says the last thing on a connection.
    pub(super) fn dismiss(&mut self, token: u64, message: &Message) {
        if let Some(link) = self.links.get_mut(&token) {
            link.framed.push(message);
        }
        self.leave(token);
    }

    /// Says the last thing to a node, on whatever connections it has.
    pub(super) fn dismiss_node(&mut self, node: NodeId, message: &Message) {
        for token in self.take_node(node) {
            self.dismiss(token, message);
        }
        // A node that is gone may still have a connection for heartbeats that came later.
        let known = |link: &Link| matches!(link.phase, Phase::Known(known) if known == node);
        let others: Vec<u64> = self.links.iter().filter(|(_, link)| known(link)).map(|(t, _)| *t).collect();
        others.into_iter().for_each(|token| self.dismiss(token, message));
    }

    /// A node is gone, and so are its connections.
    pub(super) fn end_node(&mut self, node: NodeId) {
        self.take_node(node).into_iter().for_each(|token| self.leave(token));
    }

    /// Ends a connection whose peer does not keep to the protocol.
    pub(super) fn cut(&mut self, token: u64) {
        self.over.push(token);
    }

    fn take_node(&mut self, node: NodeId) -> Vec<u64> {
        [self.control.remove(&node), self.health.remove(&node)].into_iter().flatten().collect()
    }

    fn leave(&mut self, token: u64) {
        if let Some(link) = self.links.get_mut(&token) {
            link.framed.end();
            link.phase = Phase::Leaving(now().plus(LEAVE_NANOS));
        }
    }

    /// Sends what was said since the last time.
    pub(super) fn flush(&mut self) {
        for token in std::mem::take(&mut self.dirty) {
            let Some(link) = self.links.get_mut(&token) else { continue };
            link.framed.flush(&self.epoll);
            if link.framed.ended().is_some() {
                self.over.push(token);
            }
        }
    }

    /// Everybody is told that nothing more comes.
    pub(super) fn end_all(&mut self) {
        self.links.values_mut().for_each(|link| link.framed.end());
    }

    /// What is over because of the time, or because it ended while something was sent.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<Event> {
        let mut events = Vec::new();
        let mut late = Vec::new();
        for (token, link) in &mut self.links {
            match link.phase {
                Phase::Shaking(until) if until <= now => {
                    link.framed.on_silence();
                    late.push(*token);
                }
                Phase::Greeted(_, until) | Phase::Leaving(until) if until <= now => late.push(*token),
                _ => {}
            }
        }
        late.append(&mut self.over);
        for token in late {
            self.end(token, &mut events);
        }
        events
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        if !self.over.is_empty() {
            return Some(Instant(0));
        }
        let until = |link: &Link| match link.phase {
            Phase::Shaking(until) | Phase::Greeted(_, until) | Phase::Leaving(until) => Some(until),
            Phase::Known(_) => None,
        };
        self.links.values().filter_map(until).min()
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
            Phase::Shaking(_) | Phase::Greeted(..) => {
                if let Some(address) = link.address {
                    let is_stranger = is_stranger(&ended);
                    events.push(Event::Refused { address, reason: ended.to_string(), is_stranger });
                }
            }
            Phase::Known(node) => {
                let place = match link.line {
                    Line::Control => &mut self.control,
                    Line::Health => &mut self.health,
                };
                // A connection that another one has replaced is not missed.
                if place.get(&node) == Some(&token) {
                    place.remove(&node);
                    events.push(Event::Ended { node, reason: ended.to_string() });
                }
            }
            Phase::Leaving(_) => {}
        }
    }
}

/// Whether this is how connections of people who have no business here end.
fn is_stranger(ended: &Ended) -> bool {
    match ended {
        Ended::Tls(failure) => !matches!(
            failure,
            TlsFailure::Cut | TlsFailure::Socket(_) | TlsFailure::CutInHandshake | TlsFailure::Changed
        ),
        Ended::Closed | Ended::Frame(_) | Ended::Full => false,
    }
}
