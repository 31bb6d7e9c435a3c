//! Which pieces are asked for next, and over how many connections.
//!
//! Streams of one node take turns, piece by piece, so that a large value does not hold up small ones. Which
//! streams there are at all, and so how much is in flight, was decided by the node.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use sooner_protocol::node::objects::Fetching;
use sooner_protocol::session::Redial;
use sooner_protocol::time::Instant;
use sooner_store::Progress;
use sooner_wire::FetchAttempt;
use sooner_wire::limits::WIDE_BYTES;

use super::Tuning;
use super::line::Piece;

/// A value on its way here.
pub(super) struct Stream {
    pub(super) fetching: Fetching,
    pub(super) progress: Arc<Progress>,
    /// Bytes before this are here or asked for.
    next: u64,
}

impl Stream {
    pub(super) fn new(fetching: Fetching, progress: Arc<Progress>) -> Self {
        Self { fetching, progress, next: fetching.at }
    }

    fn length(&self) -> u64 {
        self.fetching.remote.location.length
    }

    fn next_piece(&mut self, bytes: u64) -> Option<Piece> {
        let at = self.next;
        let end = self.length().min(at + bytes);
        self.next = end;
        let Fetching { object, remote, attempt, generation, .. } = self.fetching;
        (at < end).then_some(Piece { object, location: remote.location, generation, attempt, at, end })
    }
}

/// A node from which values come.
pub(super) struct Peer {
    /// `None` for the node of a program: it comes when it is asked to.
    pub(super) address: Option<SocketAddr>,
    /// Connections to the node, also those being made.
    pub(super) lines: Vec<u64>,
    /// In the order of their turns.
    pub(super) streams: VecDeque<Stream>,
    /// When it may be dialled, or asked to come.
    redial: Redial,
    /// Since when nothing came although something was wanted.
    pub(super) down: Option<Instant>,
    /// Upper bound of the round trip (nanoseconds).
    way: Option<u64>,
    /// When the last stream was removed.
    left: Instant,
}

/// A stream that comes so soon after the last one (nanoseconds) counts as the same: it has no patience of its
/// own.
const SAME_NANOS: u64 = 1_000_000_000;

impl Peer {
    pub(super) fn new(address: Option<SocketAddr>) -> Self {
        Self {
            address,
            lines: Vec::new(),
            streams: VecDeque::new(),
            redial: Redial::default(),
            down: None,
            way: None,
            left: Instant(0),
        }
    }

    /// The next piece to ask for, at most `bytes` long, of one of the streams that may.
    pub(super) fn next_piece(&mut self, bytes: u64, may: impl Fn(&Fetching) -> bool) -> Option<Piece> {
        for _ in 0..self.streams.len() {
            let mut stream = self.streams.pop_front()?;
            let piece = may(&stream.fetching).then(|| stream.next_piece(bytes)).flatten();
            self.streams.push_back(stream);
            if piece.is_some() {
                return piece;
            }
        }
        None
    }

    /// How many connections would help. For a near node it is one: it carries what the network carries, and a
    /// value arrives in order, so that it can be passed on as it comes.
    pub(super) fn wanted_lines(&self, tuning: &Tuning) -> usize {
        let waiting = || self.streams.iter().filter(|stream| stream.next < stream.length());
        match waiting().map(Stream::length).max() {
            None => 0,
            Some(longest) if longest >= WIDE_BYTES && self.is_far(tuning) => tuning.connections,
            Some(_) => 1,
        }
    }

    /// Whether one connection may be too slow: unknown of a node that comes when it is asked to.
    fn is_far(&self, tuning: &Tuning) -> bool {
        self.address.is_none() || self.way.is_some_and(|nanos| nanos >= tuning.far)
    }

    /// When it may be dialled, or asked to come.
    pub(super) fn dial_at(&self) -> Instant {
        self.redial.dial_at()
    }

    /// A connection was made, in so long (nanoseconds). The shortest time counts: this machine may have been
    /// busy, or packets had to wait behind others.
    pub(super) fn on_connected(&mut self, nanos: u64) {
        self.way = Some(self.way.map_or(nanos, |way| way.min(nanos)));
    }

    pub(super) fn add(&mut self, stream: Stream, now: Instant) {
        if self.streams.is_empty() && self.left.plus(SAME_NANOS) < now {
            self.down = None;
        }
        self.streams.push_back(stream);
    }

    pub(super) fn take(&mut self, attempt: FetchAttempt, now: Instant) -> Option<Stream> {
        self.left = now;
        let at = self.streams.iter().position(|stream| stream.fetching.attempt == attempt)?;
        self.streams.remove(at)
    }

    /// A connection was lost or could not be made.
    pub(super) fn on_failure(&mut self, now: Instant) {
        self.redial.on_failed(now);
        self.down.get_or_insert(now);
    }

    /// Whether to ask a node to come that cannot be dialled: not again while it may be on its way.
    pub(super) fn begin_to_ask(&mut self, now: Instant) -> bool {
        let may_ask = self.redial.may_ask(now);
        if may_ask {
            self.down.get_or_insert(now);
        }
        may_ask
    }

    /// The node has come, over this connection.
    pub(super) fn on_coming(&mut self, line: u64) {
        self.lines.push(line);
        self.down = None;
    }

    /// A piece came.
    pub(super) fn on_success(&mut self) {
        self.redial.on_connected();
        self.down = None;
    }
}
