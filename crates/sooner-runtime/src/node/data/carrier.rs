//! The loop of the thread: connections and their ends, deadlines, and the two lists it shares with the node.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sooner_protocol::node::objects::{Fetching, Permit, Serves, StreamEnd};
use sooner_protocol::session::hello::{Me, hello};
use sooner_protocol::time::Instant;
use sooner_store::{Mapping, Progress};
use sooner_wire::limits::{DATA_CONNECTIONS_MAX, HANDSHAKE_NANOS, HANDSHAKES_MAX, PIECES_ASKED};
use sooner_wire::message::FetchEnd;
use sooner_wire::{DialAttempt, FetchAttempt, NodeId};

use super::line::{Line, News, Piece, Targets};
use super::neighbours::Neighbours;
use super::peers::{Peer, Stream};
use super::{Command, DataEvent, ForData, Moved, Shared, Ticket, Tuning, address_of};
use crate::clock::now;
use crate::identity::{Destination, Identity};
use crate::node::accept::{Shares, turn_back};
use crate::node::notes::Notes;
use crate::node::send_buffers::SendBuffer;
use crate::poller::{Events, Interest, Poller};
use crate::transport::TlsStream;
use crate::transport::dial::{dial, outcome};

const WAKE: u64 = 0;
const FIRST_LINE: u64 = 1;
/// A connection dialled by the other side may be idle this many times longer: that side is to end it.
const OTHERS_IDLE: u64 = 3;

/// What a carrier is made of.
pub(super) struct Parts {
    pub(super) shared: Arc<Shared>,
    pub(super) node_wake: Arc<OwnedFd>,
    pub(super) me: Me,
    pub(super) identity: Identity,
    pub(super) mapping: Arc<Mapping>,
    pub(super) notes: Notes,
    pub(super) tuning: Tuning,
}

enum State {
    /// Since when.
    Connecting(OwnedFd, Instant),
    Open(Box<Line>),
}

struct Connection {
    state: State,
    /// The node that is asked for values over it.
    node: Option<NodeId>,
    /// The node that asks over it, if that could not dial.
    asker: Option<NodeId>,
    address: SocketAddr,
    interest: Interest,
}

/// See the module.
pub(super) struct Carrier {
    parts: Parts,
    shares: Shares,
    poller: Poller,
    connections: HashMap<u64, Connection>,
    next_token: u64,
    peers: BTreeMap<NodeId, Peer>,
    targets: Targets,
    neighbours: Arc<Neighbours>,
    /// Where each stream comes from.
    senders: HashMap<FetchAttempt, NodeId>,
    events: Vec<DataEvent>,
}

impl Carrier {
    pub(super) fn new(parts: Parts) -> io::Result<Self> {
        let poller = Poller::new()?;
        poller.add(&parts.shared.wake, WAKE, Interest::Read)?;
        let neighbours = Arc::new(Neighbours::new(parts.mapping.clone(), parts.tuning.shares_memory));
        Ok(Self {
            parts,
            shares: Shares::default(),
            neighbours,
            poller,
            connections: HashMap::new(),
            next_token: FIRST_LINE,
            peers: BTreeMap::new(),
            targets: Targets::new(),
            senders: HashMap::new(),
            events: Vec::new(),
        })
    }

    pub(super) fn run(mut self) {
        let mut events = Events::with_capacity(64);
        while !self.parts.shared.is_ending.load(Ordering::Acquire) {
            let timeout = self.next_deadline().map(|deadline| deadline.since(now()));
            let _ = self.poller.wait(&mut events, timeout);
            for event in &events {
                match event.token {
                    WAKE => drop(rustix::io::read(&self.parts.shared.wake, &mut [0; 8])),
                    token => self.on_ready(token),
                }
            }
            let commands = std::mem::take(&mut *self.parts.shared.commands.lock());
            for command in commands {
                self.on_command(command);
            }
            self.on_time(now());
            self.send_what_came();
            self.tell();
        }
        for connection in self.connections.values() {
            if let State::Open(line) = &connection.state {
                line.stream.end();
            }
        }
    }

    /// Hands the events to the node, once for each turn.
    fn tell(&mut self) {
        if !self.events.is_empty() {
            self.parts.shared.events.lock().append(&mut self.events);
            let _ = rustix::io::write(&*self.parts.node_wake, &1u64.to_ne_bytes());
        }
    }

    fn on_command(&mut self, command: Command) {
        match command {
            Command::Fetch { fetching, progress, address } => self.fetch(fetching, progress, address),
            Command::Stop { attempt } => self.stop(attempt),
            Command::Answer { ticket, block, serves, progress } => {
                self.on_answer(ticket, block, serves, progress);
            }
            Command::Send { ticket, buffer } => self.on_buffer(ticket, buffer),
            Command::Admit { socket, address, what } => self.admit(socket, address, what),
            Command::Offer { node, address } => self.offer(node, address),
        }
    }

    fn fetch(&mut self, fetching: Fetching, progress: Arc<Progress>, address: Option<SocketAddr>) {
        let Fetching { object, remote, attempt, .. } = fetching;
        if progress.is_whole() {
            return self.events.push(DataEvent::Bytes { object, attempt, bytes: progress.mark() });
        }
        self.targets.insert(attempt, progress.clone());
        self.senders.insert(attempt, remote.node);
        let peer = self.peers.entry(remote.node).or_insert_with(|| Peer::new(address));
        peer.address = address;
        peer.add(Stream::new(fetching, progress), now());
        self.ask_more(remote.node);
    }

    fn stop(&mut self, attempt: FetchAttempt) {
        if self.forget(attempt).is_some() {
            self.cancel(attempt);
        }
    }

    /// Removes a stream.
    fn forget(&mut self, attempt: FetchAttempt) -> Option<Stream> {
        self.targets.remove(&attempt);
        let node = self.senders.remove(&attempt)?;
        self.peers.get_mut(&node)?.take(attempt, now())
    }

    /// Pieces asked for of this stream are not wanted any more.
    fn cancel(&mut self, attempt: FetchAttempt) {
        let is_asked = |connection: &Connection| match &connection.state {
            State::Open(line) => line.asked().iter().any(|piece| piece.attempt == attempt),
            State::Connecting(..) => false,
        };
        let asked = self.connections.iter().filter(|(_, connection)| is_asked(connection));
        for token in asked.map(|(token, _)| *token).collect::<Vec<_>>() {
            if let Some(line) = self.line(token) {
                line.cancel(attempt);
            }
            self.flush(token);
        }
    }

    /// A stream ends without all its bytes.
    fn end_stream(&mut self, attempt: FetchAttempt, end: StreamEnd) {
        let Some(stream) = self.forget(attempt) else { return };
        // Its pieces may still come over other connections; the next stream writes to the same block.
        stream.progress.close();
        let object = stream.fetching.object;
        self.events.push(DataEvent::Bytes { object, attempt, bytes: stream.progress.mark() });
        self.events.push(DataEvent::End { object, attempt, end });
        self.cancel(attempt);
    }

    /// Sends on what has arrived of copies that others are waiting for.
    fn send_what_came(&mut self) {
        let has_more = |connection: &Connection| match &connection.state {
            State::Open(line) => line.follows() && line.has_more(),
            State::Connecting(..) => false,
        };
        let ready = self.connections.iter().filter(|(_, connection)| has_more(connection));
        for token in ready.map(|(token, _)| *token).collect::<Vec<_>>() {
            self.flush(token);
        }
    }

    fn line(&mut self, token: u64) -> Option<&mut Line> {
        match &mut self.connections.get_mut(&token)?.state {
            State::Open(line) => Some(line),
            State::Connecting(..) => None,
        }
    }

    /// Asks a node for as much as its connections may be asked for, and dials it if more of them would help.
    fn ask_more(&mut self, node: NodeId) {
        let Some(peer) = self.peers.get_mut(&node) else { return };
        let (mut touched, lines) = (Vec::new(), peer.lines.clone());
        // One piece each before any has two.
        for depth in 1..=PIECES_ASKED {
            for token in &lines {
                let Some(Connection { state: State::Open(line), .. }) = self.connections.get_mut(token)
                else {
                    continue;
                };
                while let Some(piece) =
                    peer.next_piece(line.piece_bytes(), |stream| line.has_room_for(stream, depth))
                {
                    // The connection's patience begins now.
                    line.active = now();
                    line.ask(piece);
                    touched.push(*token);
                }
            }
        }
        let wanted = peer.wanted_lines(&self.parts.tuning);
        if peer.lines.len() < wanted && peer.dial_at() <= now() {
            self.dial(node);
        }
        touched.sort_unstable();
        touched.dedup();
        for token in touched {
            self.flush(token);
        }
    }

    fn dial(&mut self, node: NodeId) {
        let time = now();
        let Some(peer) = self.peers.get_mut(&node) else { return };
        let wanted = peer.wanted_lines(&self.parts.tuning);
        let Some(address) = peer.address else {
            if peer.begin_to_ask(time) {
                let missing = wanted.saturating_sub(peer.lines.len());
                self.events.extend(std::iter::repeat_with(|| DataEvent::AskFor(node)).take(missing));
            }
            return;
        };
        for _ in peer.lines.len()..wanted {
            let begun = self.begin(address, Some(node), None);
            let Some(peer) = self.peers.get_mut(&node) else { return };
            match begun {
                Ok(token) => peer.lines.push(token),
                Err(error) => {
                    peer.on_failure(time);
                    let text = format!("node {:016x} cannot be dialled for values: {error}", node.0);
                    return self.parts.notes.write_rationed(&text);
                }
            }
        }
    }

    /// Begins to dial, to ask `node` for values or to offer them to `asker`. Gives the token of the
    /// connection.
    fn begin(&mut self, address: SocketAddr, node: Option<NodeId>, asker: Option<NodeId>) -> io::Result<u64> {
        let (token, interest) = (self.next_token, Interest::Write);
        let socket = dial(address)?;
        self.poller.add(&socket, token, interest)?;
        self.next_token += 1;
        let state = State::Connecting(socket, now());
        self.connections.insert(token, Connection { state, node, asker, address, interest });
        Ok(token)
    }

    /// Dials a node that wants values from this one, and cannot dial it.
    fn offer(&mut self, node: NodeId, address: SocketAddr) {
        if self.connections.len() >= DATA_CONNECTIONS_MAX {
            return;
        }
        if let Err(error) = self.begin(address, None, Some(node)) {
            // That node asks again.
            let text = format!("node {:016x} cannot be dialled with values: {error}", node.0);
            self.parts.notes.write_rationed(&text);
        }
    }

    fn admit(&mut self, socket: OwnedFd, address: SocketAddr, what: ForData) {
        let is_new = |connection: &Connection| match &connection.state {
            State::Open(line) => {
                connection.node.is_none() && connection.asker.is_none() && !line.is_greeted()
            }
            State::Connecting(..) => false,
        };
        if self.connections.len() >= DATA_CONNECTIONS_MAX {
            return turn_back(socket);
        }
        let new = self.connections.iter().filter(|(_, connection)| is_new(connection));
        let new = new.map(|(token, connection)| (*token, connection.address.ip()));
        if let Some((leaving, crowd)) = self.shares.leaving(new, address.ip(), HANDSHAKES_MAX) {
            self.lose(leaving, &crowd.to_string());
        }
        let stream = TlsStream::accept(socket, &self.parts.identity);
        let token = self.next_token;
        let interest = Interest::Read;
        if self.poller.add(&stream, token, interest).is_ok() {
            self.next_token += 1;
            let line = Line::new(stream, None, what == ForData::Serves, self.neighbours.clone(), now());
            let state = State::Open(Box::new(line));
            self.connections.insert(token, Connection { state, node: None, asker: None, address, interest });
        }
    }

    fn on_ready(&mut self, token: u64) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        match &mut connection.state {
            State::Connecting(..) => self.on_connected(token),
            State::Open(line) => {
                let mut news = Vec::new();
                let result = line.read(&self.parts.me, &self.targets, now(), &mut news);
                if line.is_greeted() && connection.node.is_none() && connection.asker.is_none() {
                    self.shares.on_proven(connection.address.ip());
                }
                self.record_coming(token);
                self.on_news(token, news);
                match result {
                    Ok(()) => self.flush(token),
                    Err(why) => self.lose(token, &why),
                }
            }
        }
    }

    /// A node that was asked to come with values has proved its identity: it is asked for them.
    fn record_coming(&mut self, token: u64) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let State::Open(line) = &connection.state else { return };
        if !(line.is_greeted() && line.asks() && connection.node.is_none()) {
            return;
        }
        let Some(node) = line.stream.peer() else { return };
        connection.node = Some(node);
        self.peers.entry(node).or_insert_with(|| Peer::new(None)).on_coming(token);
    }

    fn on_connected(&mut self, token: u64) {
        let Some(Connection { state: State::Connecting(socket, since), node, asker, address, .. }) =
            self.connections.remove(&token)
        else {
            return;
        };
        let Some(other) = node.or(asker) else { return };
        if let Err(error) = outcome(&socket) {
            // The asker asks again.
            if let Some(node) = node {
                self.on_lost_line(token, node, &error.to_string());
            }
            return;
        }
        let whom = if asker.is_some() { Destination::Values } else { Destination::Data };
        let name = whom.server_name(other);
        let stream = TlsStream::dial(socket, &self.parts.identity, name);
        let said = hello(&self.parts.me, address_of(other), 0, DialAttempt::default(), None);
        let line = Line::new(stream, Some(said), node.is_some(), self.neighbours.clone(), now());
        let interest = Interest::Write;
        let state = State::Open(Box::new(line));
        self.connections.insert(token, Connection { state, node, asker, address, interest });
        self.flush(token);
        if let Some(node) = node {
            if let Some(peer) = self.peers.get_mut(&node) {
                peer.on_connected(now().since(since));
            }
            self.ask_more(node);
        }
    }

    fn on_news(&mut self, token: u64, news: Vec<News>) {
        let node = self.connections.get(&token).and_then(|connection| connection.node);
        for one in news {
            match one {
                News::Here { attempt } => {
                    if let Some(peer) = node.and_then(|node| self.peers.get_mut(&node)) {
                        peer.on_success();
                    }
                    if self.targets.get(&attempt).is_some_and(|target| target.is_whole())
                        && let Some(stream) = self.forget(attempt)
                    {
                        let (object, bytes) = (stream.fetching.object, stream.progress.mark());
                        self.events.push(DataEvent::Bytes { object, attempt, bytes });
                    }
                }
                News::Refused { attempt, reason: FetchEnd::NotThere } => {
                    self.end_stream(attempt, StreamEnd::NotThere);
                }
                News::Refused { reason: FetchEnd::Unwanted, .. } => {}
                News::Wanted { number, piece } => self.events.push(asked(token, number, &piece)),
                News::Served { block } => self.events.push(DataEvent::Served { block }),
            }
        }
        if let Some(node) = node {
            self.ask_more(node);
        }
    }

    fn on_answer(&mut self, ticket: Ticket, block: u64, serves: Serves, progress: Option<Arc<Progress>>) {
        let time = now();
        let Some(served) = self.line(ticket.line).and_then(|line| line.served_mut(ticket.number)) else {
            if serves == Serves::Yes {
                self.events.push(DataEvent::Served { block });
            }
            return;
        };
        served.permit = Permit::after(serves, served.since, time);
        if served.permit == Permit::Given {
            served.begin(block, progress);
        }
        self.flush(ticket.line);
    }

    /// Sends a buffer that the node has read from disk; drops it if the connection is gone.
    fn on_buffer(&mut self, ticket: Ticket, buffer: SendBuffer) {
        if let Some(served) = self.line(ticket.line).and_then(|line| line.served_mut(ticket.number)) {
            served.begin_from(buffer);
            self.flush(ticket.line);
        }
    }

    fn flush(&mut self, token: u64) {
        let mut news = Vec::new();
        let mapping = self.parts.mapping.clone();
        let Some(line) = self.line(token) else { return };
        let result = line.flush(&mapping, now(), &mut news);
        let Moved { sent, came, copied } = line.take_moved();
        let mut moved = self.parts.shared.moved.lock();
        (moved.sent, moved.came, moved.copied) =
            (moved.sent + sent, moved.came + came, moved.copied + copied);
        drop(moved);
        self.record_sent(token, news);
        match result {
            Ok(()) => self.watch(token),
            Err(why) => self.lose(token, &why),
        }
    }

    /// Events of sending: pieces that are sent, and those about which to ask the node anew.
    fn record_sent(&mut self, token: u64, news: Vec<News>) {
        let events = news.into_iter().filter_map(|one| match one {
            News::Served { block } => Some(DataEvent::Served { block }),
            News::Wanted { number, piece } => Some(asked(token, number, &piece)),
            News::Here { .. } | News::Refused { .. } => None,
        });
        self.events.extend(events);
    }

    fn watch(&mut self, token: u64) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let State::Open(line) = &connection.state else { return };
        let interest = Interest::read_and(line.stream.wants_write(line.has_more()));
        if interest != connection.interest {
            connection.interest = interest;
            let _ = self.poller.change(&line.stream, token, interest);
        }
    }

    /// A connection has ended.
    fn lose(&mut self, token: u64, why: &str) {
        let Some(Connection { state, node, address, .. }) = self.connections.remove(&token) else {
            return;
        };
        if let State::Open(mut line) = state {
            line.end_lending();
            // Sends its last messages, as far as possible.
            let mut news = Vec::new();
            let _ = line.flush(&self.parts.mapping, now(), &mut news);
            line.stream.end();
            self.record_sent(token, news);
            let blocks = line.served().filter_map(|served| served.block());
            self.events.extend(blocks.map(|block| DataEvent::Served { block }));
            let attempts: Vec<FetchAttempt> = line.asked().iter().map(|piece| piece.attempt).collect();
            for attempt in attempts {
                self.end_stream(attempt, StreamEnd::Cut);
            }
        }
        match node {
            Some(node) => self.on_lost_line(token, node, why),
            None => {
                let text = format!("a connection for values from {address} has ended: {why}");
                self.parts.notes.write_rationed(&text);
            }
        }
    }

    fn on_lost_line(&mut self, token: u64, node: NodeId, why: &str) {
        let Some(peer) = self.peers.get_mut(&node) else { return };
        peer.lines.retain(|line| *line != token);
        peer.on_failure(now());
        let text = format!("a connection for values to node {:016x} has ended: {why}", node.0);
        self.parts.notes.write_rationed(&text);
    }

    fn deadline_of(&self, connection: &Connection) -> Instant {
        let Tuning { idle, patience, .. } = self.parts.tuning;
        match &connection.state {
            State::Connecting(_, since) => since.plus(HANDSHAKE_NANOS),
            State::Open(line) if !line.is_greeted() => line.active.plus(HANDSHAKE_NANOS.min(patience)),
            State::Open(line) if !line.is_idle() => line.active.plus(patience),
            State::Open(line) if line.asks() => line.active.plus(idle),
            State::Open(line) => line.active.plus(idle.saturating_mul(OTHERS_IDLE)),
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let lines = self.connections.values().map(|connection| self.deadline_of(connection));
        let again = self.later().map(|(.., at)| at);
        let patience = self.parts.tuning.patience;
        let peers = self.peers.values().filter(|peer| !peer.streams.is_empty());
        let peers = peers.flat_map(|peer| {
            let dial = peer.lines.is_empty().then_some(peer.dial_at());
            let give_up = peer.down.filter(|_| peer.lines.is_empty()).map(|since| since.plus(patience));
            dial.into_iter().chain(give_up)
        });
        lines.chain(again).chain(peers).min()
    }

    /// Pieces of which the node does not know yet whether they may be sent: connection, number, and when it
    /// is asked again.
    fn later(&self) -> impl Iterator<Item = (u64, u64, Instant)> {
        self.connections.iter().flat_map(|(token, connection)| {
            let line = match &connection.state {
                State::Open(line) => Some(line),
                State::Connecting(..) => None,
            };
            let served = line.into_iter().flat_map(|line| line.served());
            served.filter_map(|served| Some((*token, served.number, served.permit.asks_at()?)))
        })
    }

    fn on_time(&mut self, time: Instant) {
        let due: Vec<_> = self.later().filter(|(.., at)| *at <= time).collect();
        for (token, number, _) in due {
            if let Some(served) = self.line(token).and_then(|line| line.served_mut(number)) {
                served.permit = Permit::Asked;
                let event = asked(token, number, &served.piece);
                self.events.push(event);
            }
        }
        let late = self.connections.iter().filter(|(_, connection)| self.deadline_of(connection) <= time);
        for token in late.map(|(token, _)| *token).collect::<Vec<_>>() {
            self.on_late(token);
        }
        for node in self.peers.keys().copied().collect::<Vec<_>>() {
            self.see_to(node, time);
        }
    }

    fn on_late(&mut self, token: u64) {
        match self.line(token) {
            Some(line) if line.is_greeted() && line.is_idle() => self.close_idle(token),
            _ => self.lose(token, "the peer does not answer"),
        }
    }

    fn close_idle(&mut self, token: u64) {
        let Some(Connection { state: State::Open(line), node, .. }) = self.connections.remove(&token) else {
            return;
        };
        line.stream.end();
        if let Some(peer) = node.and_then(|node| self.peers.get_mut(&node)) {
            peer.lines.retain(|other| *other != token);
        }
    }

    /// Dials a node again, or gives it up.
    fn see_to(&mut self, node: NodeId, time: Instant) {
        let Some(peer) = self.peers.get_mut(&node) else { return };
        if peer.streams.is_empty() {
            if peer.lines.is_empty() && peer.dial_at() <= time {
                self.peers.remove(&node);
            }
            return;
        }
        let is_late = peer.down.is_some_and(|since| since.plus(self.parts.tuning.patience) <= time);
        if is_late && peer.lines.is_empty() {
            peer.down = None;
            let attempts: Vec<FetchAttempt> =
                peer.streams.iter().map(|stream| stream.fetching.attempt).collect();
            for attempt in attempts {
                self.end_stream(attempt, StreamEnd::NotThere);
            }
        } else if peer.dial_at() <= time {
            self.ask_more(node);
        }
    }
}

/// Asks the node about a piece.
fn asked(token: u64, number: u64, piece: &Piece) -> DataEvent {
    let Piece { object, location, generation, at, end, .. } = *piece;
    DataEvent::Asked { ticket: Ticket { line: token, number }, object, location, generation, part: at..end }
}
