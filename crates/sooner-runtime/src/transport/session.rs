//! One end of a session between processes of different nodes: `sooner_protocol::session::Link` with bytes and
//! sockets.
//!
//! Frames are appended to the retained bytes and leave over the session's current connection; the layers
//! above do not see how often it was cut. The reading half is a value of its own ([`Reader`]), because in a
//! client another thread may hold it; it does the handshake, without the owner's locks. Nothing here waits,
//! connects or decides that a process is dead: [`Session::take_news`] lists what the owner has to do.
//!
//! A connection is identified by the token that its owner gave it, under which its events come.

use std::fmt;
use std::sync::Arc;

use sooner_protocol::session::hello::{self, HEAD, Me, Refusal};
use sooner_protocol::session::{Connection, Link, LinkAction, LinkActions, Resume, Resumed};
use sooner_protocol::time::Instant;
use sooner_wire::message::{Ack, Message, PeerWelcome, Refused, SessionEnded};
use sooner_wire::version::{FEATURES, PROTOCOL_MINOR};
use sooner_wire::{NodeId, WorkerId};

use super::resend_buffer::ResendBuffer;
use super::session_conn::{Purpose, Reader, SessionConn};
use super::{Ended, Inlet, Received, Stream};
use crate::poller::Poller;

/// The time of an event, and the poller that watches the connections.
#[derive(Debug, Clone, Copy)]
pub struct Turn<'a> {
    /// The owner's poller.
    pub poller: &'a Poller,
    /// The current time.
    pub time: Instant,
}

/// What the owner must learn or do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionNews {
    /// Make a connection, then call [`Session::on_dialled`] or [`Session::on_dial_failed`].
    Dial,
    /// There is a connection: the first one, or one after a cut.
    Opened,
    /// Events under this token are over; its [`Reader`] is of no use.
    Closed(u64),
    /// The session has ended, for good and for this reason.
    Ended(String),
}

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// It could not be made; the reason is for people.
    Undialled(String),
    /// The connection ended.
    Ended(Ended),
    /// The other end did not send in time who it is.
    Silent,
    /// One of the two ends refuses the other.
    Refusal(Refusal),
    /// The owner dropped it; the reason is for people.
    GivenUp(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Undialled(reason) | Failure::GivenUp(reason) => f.write_str(reason),
            Failure::Ended(ended) => ended.fmt(f),
            Failure::Silent => f.write_str("the other end said nothing for 10 s"),
            Failure::Refusal(refusal) => refusal.fmt(f),
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Session {
    me: Arc<Me>,
    peer: WorkerId,
    link: Link,
    retained: ResendBuffer,
    ways: Vec<SessionConn>,
    connections: u32,
    news: Vec<SessionNews>,
    /// Why the last connection ended or could not be used.
    failure: Option<Failure>,
}

impl Session {
    /// A new session with `peer`. `session` is a number that this end drew. `wins`: if both ends dial at the
    /// same time, this end's connection is used (the smaller id wins, unless only one end dials).
    #[must_use]
    pub fn new(me: Arc<Me>, peer: WorkerId, session: u64, wins: bool) -> Self {
        Self {
            me,
            peer,
            link: Link::new(session, wins),
            retained: ResendBuffer::default(),
            ways: Vec::new(),
            connections: 0,
            news: Vec::new(),
            failure: None,
        }
    }

    /// The process at the other end. [`HEAD`] becomes the head's node when the head has answered.
    #[must_use]
    pub fn peer(&self) -> WorkerId {
        self.peer
    }

    /// Whether there is a connection.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.link.connection().is_some()
    }

    /// Why the session has ended, if it has.
    #[must_use]
    pub fn ended(&self) -> Option<&str> {
        self.link.ended()
    }

    /// Why the last connection ended or could not be used, as far as it is known.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// Bytes that are retained.
    #[must_use]
    pub fn retained(&self) -> usize {
        self.retained.len()
    }

    /// Bytes that have not been written to a connection.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.retained.waiting()
    }

    /// Whether something waits for [`Self::flush`].
    #[must_use]
    pub fn wants_flush(&self) -> bool {
        self.retained.wants_leave()
    }

    /// The token of the connection that carries the session.
    #[must_use]
    pub fn token(&self) -> Option<u64> {
        self.ways.iter().find(|way| matches!(way.purpose, Purpose::Session)).map(|way| way.token)
    }

    /// See [`Link::is_full`].
    #[must_use]
    pub fn is_full(&self, of_all_lines: u64) -> bool {
        self.link.is_full(of_all_lines)
    }

    /// Whether the other end has handed up everything that was sent. Bytes that have only left may be lost
    /// with this process.
    #[must_use]
    pub fn is_acknowledged(&self) -> bool {
        !self.retained.has_appended() && self.link.is_acknowledged(self.link.position())
    }

    /// The position behind everything that was sent so far.
    pub fn position(&mut self) -> u64 {
        self.count_appended();
        self.link.position()
    }

    /// Whether the other end has handed up everything before a position.
    #[must_use]
    pub fn has_reached(&self, position: u64) -> bool {
        self.link.is_acknowledged(position)
    }

    /// The buffer to append whole frames to; they leave with the next [`Self::flush`].
    #[inline]
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        self.retained.buffer()
    }

    /// Queues a message for the next [`Self::flush`].
    pub fn push(&mut self, message: &Message) {
        message.append(self.retained.buffer(), 0);
    }

    /// Takes what the owner must learn, in order.
    pub fn take_news(&mut self) -> Vec<SessionNews> {
        std::mem::take(&mut self.news)
    }

    /// Whether [`Self::take_news`] has something.
    #[must_use]
    pub fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    /// A message will be sent soon: makes a connection if there is none.
    pub fn connect(&mut self, turn: Turn<'_>) {
        let mut out = LinkActions::new();
        self.link.connect(turn.time, &mut out);
        self.perform(out, turn);
    }

    /// The connection that [`SessionNews::Dial`] asked for. Its events come under `token`, which was never
    /// used before.
    pub fn on_dialled(&mut self, stream: Stream, token: u64, turn: Turn<'_>) -> Option<Reader> {
        let reader = self.add(stream, Inlet::default(), token, turn)?;
        let number = self.way(token)?.number;
        let mut out = LinkActions::new();
        self.link.on_dialled(number, turn.time, &mut out);
        self.perform(out, turn);
        // The side that dialled begins the handshake.
        self.go_on(token, turn);
        Some(reader)
    }

    /// The connection that [`SessionNews::Dial`] asked for could not be made.
    pub fn on_dial_failed(&mut self, reason: &str, turn: Turn<'_>) {
        self.failure = Some(Failure::Undialled(reason.to_owned()));
        self.link.on_dial_failed(turn.time);
    }

    /// A connection that the other end has dialled; its hello comes next. Its events come under `token`.
    pub fn on_arrived(&mut self, stream: Stream, token: u64, turn: Turn<'_>) -> Option<Reader> {
        let reader = self.add(stream, Inlet::default(), token, turn)?;
        self.go_on(token, turn);
        Some(reader)
    }

    /// Like [`Self::on_arrived`], when the hello has been read already, and `inlet` has what came behind it.
    pub fn accept(
        &mut self,
        stream: Stream,
        inlet: Inlet,
        hello: Message,
        token: u64,
        turn: Turn<'_>,
    ) -> Option<Reader> {
        let reader = self.add(stream, inlet, token, turn)?;
        let hello = Received { message: hello, descriptors: Vec::new(), lacks_descriptors: false, bytes: 0 };
        self.receive(token, hello, turn);
        self.go_on(token, turn);
        Some(reader)
    }

    /// The reader of this connection has read: continues work that may have waited for that.
    pub fn after_read(&mut self, token: u64, turn: Turn<'_>) {
        self.go_on(token, turn);
    }

    /// A frame has come over a connection. A returned message counts and is handed up now; of a frame that
    /// will come again, nothing is returned.
    pub fn receive(&mut self, token: u64, received: Received, turn: Turn<'_>) -> Option<Message> {
        let way = self.way(token)?;
        let number = way.number;
        let mut out = LinkActions::new();
        let mut handed_up = None;
        match (&way.purpose, received.message) {
            (Purpose::Leaving, _) => return None,
            (Purpose::Session | Purpose::Asking(_), Message::SessionEnded(ended)) => {
                self.link.on_ended(number, &ended.reason, &mut out);
            }
            (Purpose::Session, Message::Ack(ack)) => {
                if self.link.on_frame(number, u64::from(received.bytes), true, turn.time, &mut out) {
                    self.link.on_ack(ack.received, &mut out);
                }
            }
            (Purpose::Session, message) => {
                if self.link.on_frame(number, u64::from(received.bytes), false, turn.time, &mut out) {
                    handed_up = Some(message);
                }
            }
            (Purpose::Asking(_), message) => self.on_answer(token, &message, turn, &mut out),
            (Purpose::Asked, message) => self.on_hello(token, &message, turn, &mut out),
        }
        self.perform(out, turn);
        handed_up
    }

    /// A connection has ended, or what came over it was not a valid message.
    pub fn on_end(&mut self, token: u64, reason: Option<Failure>, turn: Turn<'_>) {
        let Some(at) = self.ways.iter().position(|way| way.token == token) else { return };
        let way = &self.ways[at];
        let number = way.number;
        let failure = match &*way.stream {
            Stream::Tls(tls) => tls.failure(),
            Stream::Unix(_) => None,
        };
        if !matches!(way.purpose, Purpose::Leaving) {
            let ended = || Failure::Ended(failure.map_or(Ended::Closed, Ended::Tls));
            self.failure = Some(reason.unwrap_or_else(ended));
        }
        self.remove(at, turn);
        let mut out = LinkActions::new();
        self.link.on_cut(number, turn.time, &mut out);
        self.perform(out, turn);
    }

    /// Allows what was appended to leave: sends what the connection takes of it, and dials if there is none.
    /// Appended frames leave only after this call.
    pub fn flush(&mut self, turn: Turn<'_>) {
        if self.link.ended().is_some() {
            // No one receives it any more.
            self.retained = ResendBuffer::default();
        }
        self.count_appended();
        if self.retained.waiting() > 0 {
            self.connect(turn);
        }
        self.retained.allow();
        if let Some(token) = self.token() {
            self.go_on(token, turn);
        }
    }

    /// Ends the session: the other end learns it, now or when it comes back.
    pub fn end(&mut self, reason: &str, turn: Turn<'_>) {
        self.count_appended();
        let mut out = LinkActions::new();
        self.link.end(reason, &mut out);
        self.perform(out, turn);
    }

    /// When [`Self::on_timer`] has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let silent = self.ways.iter().filter_map(SessionConn::deadline).min();
        [self.link.next_deadline(), silent].into_iter().flatten().min()
    }

    /// Time has passed. Messages that follow from it leave with the next [`Self::flush`].
    pub fn on_timer(&mut self, turn: Turn<'_>) {
        let is_due = |way: &SessionConn| way.deadline().is_some_and(|at| at <= turn.time);
        while let Some(way) = self.ways.iter().find(|way| is_due(way)) {
            let token = way.token;
            self.on_end(token, Some(Failure::Silent), turn);
        }
        let mut out = LinkActions::new();
        self.link.on_timer(turn.time, &mut out);
        if out.iter().any(|action| matches!(action, LinkAction::Close(_))) {
            // A dialled connection was not answered in time.
            self.failure = Some(Failure::Silent);
        }
        if let (Some(LinkAction::End(reason)), Some(failure)) = (out.last_mut(), &self.failure) {
            // The session was given up; the failure of the last attempt tells more than that.
            *reason = format!("{reason} (the last one: {failure})");
        }
        self.perform(out, turn);
    }

    /// From now on the lack of a connection does not end the session.
    #[must_use]
    pub fn patient(mut self) -> Self {
        self.link = self.link.patient();
        self
    }

    /// Drops the connection; the side that dials makes another one.
    pub fn cut(&mut self, reason: &str, turn: Turn<'_>) {
        while let Some(way) = self.ways.first() {
            self.on_end(way.token, Some(Failure::GivenUp(reason.to_owned())), turn);
        }
    }

    /// Drops all connections. That does not end the session.
    pub fn close(&mut self, turn: Turn<'_>) {
        while !self.ways.is_empty() {
            self.remove(0, turn);
        }
    }

    fn count_appended(&mut self) -> u64 {
        let bytes = self.retained.take_appended();
        if bytes > 0 {
            self.link.took(bytes);
        }
        bytes
    }

    fn way(&mut self, token: u64) -> Option<&mut SessionConn> {
        self.ways.iter_mut().find(|way| way.token == token)
    }

    fn numbered(&mut self, number: Connection) -> Option<&mut SessionConn> {
        self.ways.iter_mut().find(|way| way.number == number)
    }

    /// Adds a connection. The other end sends the hello, unless this end does.
    fn add(&mut self, stream: Stream, inlet: Inlet, token: u64, turn: Turn<'_>) -> Option<Reader> {
        let stream = Arc::new(stream);
        let interest = stream.interest(false);
        if let Err(error) = turn.poller.add(&*stream, token, interest) {
            self.on_dial_failed(&format!("its connection cannot be watched: {error}"), turn);
            return None;
        }
        self.connections += 1;
        let reader = Reader::new(token, stream.clone(), inlet);
        self.ways.push(SessionConn {
            token,
            number: Connection(self.connections),
            stream,
            interest,
            purpose: Purpose::Asked,
            is_proven: false,
            since: turn.time,
            outside: Vec::new(),
            written: 0,
        });
        Some(reader)
    }

    /// The node that the other end of a connection has proved to be on. The owner itself chose the peer of a
    /// local socket, which needs no proof.
    fn certified(&mut self, token: u64) -> NodeId {
        let peer = self.peer;
        match self.way(token).map(|way| &*way.stream) {
            Some(Stream::Tls(tls)) => tls.peer().unwrap_or_default(),
            Some(Stream::Unix(_)) | None => peer.node(),
        }
    }

    fn on_answer(&mut self, token: u64, message: &Message, turn: Turn<'_>, out: &mut LinkActions) {
        let certified = self.certified(token);
        let Some(way) = self.way(token) else { return };
        let Purpose::Asking(said) = &way.purpose else { return };
        let number = way.number;
        match hello::on_answer(message, said, certified) {
            Ok(party) => {
                if self.peer == HEAD {
                    self.peer = party.id;
                }
                let received = party.received.unwrap_or(0);
                self.link.on_welcome(number, Resumed { session: party.session, received }, turn.time, out);
            }
            // The other end would refuse again the next time.
            Err(refusal) => {
                self.link.end(&refusal.to_string(), out);
                self.failure = Some(Failure::Refusal(refusal));
            }
        }
    }

    fn on_hello(&mut self, token: u64, message: &Message, turn: Turn<'_>, out: &mut LinkActions) {
        let certified = self.certified(token);
        let (me, peer) = (self.me.clone(), self.peer);
        let Some(way) = self.way(token) else { return };
        let refusal = match hello::on_hello(message, &me, certified) {
            Ok(party) if party.id == peer => {
                let number = way.number;
                let resume =
                    Resume { session: party.session, attempt: party.attempt, received: party.received };
                return self.link.on_hello(number, resume, turn.time, out);
            }
            Ok(party) => Refusal::NotExpected { expected: peer.0, id: party.id.0 },
            Err(refusal) => refusal,
        };
        way.send_outside(&Refused { reason: refusal.to_string() }.into());
        way.leave(turn.time);
        self.failure = Some(Failure::Refusal(refusal));
        self.go_on(token, turn);
    }

    fn perform(&mut self, out: LinkActions, turn: Turn<'_>) {
        for action in out {
            match action {
                LinkAction::Dial => self.news.push(SessionNews::Dial),
                LinkAction::Hello(number, resume) => self.send_hello(number, resume),
                LinkAction::Welcome(number, resumed) => {
                    let Resumed { session, received } = resumed;
                    let welcome =
                        PeerWelcome { minor: PROTOCOL_MINOR, features: FEATURES, session, received };
                    self.send_outside(number, &welcome.into());
                }
                LinkAction::SendEnded(number, reason) => self.send_ended(number, reason, turn),
                LinkAction::Close(number) => self.end_way(number, turn),
                LinkAction::SendFrom(number, position) => {
                    self.retained.send_from(position);
                    if let Some(way) = self.numbered(number) {
                        way.purpose = Purpose::Session;
                        let token = way.token;
                        self.news.push(SessionNews::Opened);
                        self.go_on(token, turn);
                    }
                }
                LinkAction::Release(position) => self.retained.release(position),
                LinkAction::Ack(received) => {
                    self.count_appended();
                    Message::from(Ack { received }).append(self.retained.buffer(), 0);
                    self.link.took_ack(self.retained.take_appended());
                }
                LinkAction::End(reason) => {
                    self.retained = ResendBuffer::default();
                    self.news.push(SessionNews::Ended(reason));
                }
            }
        }
    }

    fn send_hello(&mut self, number: Connection, resume: Resume) {
        let said = hello::hello(&self.me, self.peer, resume.session, resume.attempt, resume.received);
        if let Some(way) = self.numbered(number) {
            way.send_outside(&said.clone().into());
            way.purpose = Purpose::Asking(Box::new(said));
        }
    }

    fn send_outside(&mut self, number: Connection, message: &Message) {
        if let Some(way) = self.numbered(number) {
            way.send_outside(message);
        }
    }

    fn send_ended(&mut self, number: Connection, reason: String, turn: Turn<'_>) {
        let rest = self.retained.rest_of_frame().to_vec();
        let Some(way) = self.numbered(number) else { return };
        if matches!(way.purpose, Purpose::Session) {
            way.outside.extend_from_slice(&rest);
        }
        way.send_outside(&SessionEnded { reason }.into());
        way.leave(turn.time);
        let token = way.token;
        self.go_on(token, turn);
    }

    /// Ends a connection as soon as what was sent on it outside the session has left.
    fn end_way(&mut self, number: Connection, turn: Turn<'_>) {
        let Some(at) = self.ways.iter().position(|way| way.number == number) else { return };
        let way = &mut self.ways[at];
        if way.is_proven && way.has_outside() {
            way.leave(turn.time);
            let token = way.token;
            return self.go_on(token, turn);
        }
        self.remove(at, turn);
    }

    fn remove(&mut self, at: usize, turn: Turn<'_>) {
        let way = self.ways.swap_remove(at);
        if let Stream::Tls(tls) = &*way.stream {
            tls.end();
        }
        let _ = turn.poller.remove(&*way.stream);
        self.news.push(SessionNews::Closed(way.token));
    }

    /// Sends what a connection takes, or continues its handshake.
    fn go_on(&mut self, token: u64, turn: Turn<'_>) {
        let Some(at) = self.ways.iter().position(|way| way.token == token) else { return };
        let way = &mut self.ways[at];
        way.is_proven = way.is_proven || way.has_proof();
        let has_left = way.send(&mut self.retained);
        way.watch(&self.retained, turn.poller);
        if has_left && matches!(way.purpose, Purpose::Leaving) {
            self.remove(at, turn);
        }
    }
}
