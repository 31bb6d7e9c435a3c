//! One end of a session over TCP: each frame reaches the other end once and in order, however often the
//! connection is cut.
//!
//! Positions count the bytes of whole frames, and both ends count alike, so no frame carries a number. Sent
//! frames are retained until the other end acknowledges them ([`LinkAction::Ack`]). After a cut both ends
//! state how far they have received, and continue from there. The state machine only counts: the shell has
//! the bytes.
//!
//! Every frame after the greeting counts, even acknowledgements: a stream without exceptions can be retained
//! and repeated as it is. An acknowledgement asks for none in return, except by its bytes, so an idle
//! connection is silent.
//!
//! This state machine never decides that a process is dead. It ends its session, for good, when there was no
//! connection for [`LINK_PATIENCE_NANOS`], when the other end has ended it, or when the other end states an
//! impossible position.
//!
//! - SE1: `acked <= sent`, and both are ends of frames.
//! - SE2: what the shell retains is exactly `acked..sent`; when [`Link::is_full`], nothing more is taken that
//!   can wait.
//! - SE3: each frame is handed up once and in order ([`Link::on_frame`] says whether it counts).
//! - SE4: after [`LinkAction::End`] nothing is handed up, and every resume is refused.
//!
//! Who dials: the end that has something to send first, and the same end again after a cut. If both ends
//! dial, the connection of the end that `wins` is used (the shell decides that: the smaller id). A winning
//! end that has sent a hello never accepts the other end's connection, because that hello may have arrived;
//! an end that has sent none yet accepts any.

use sooner_wire::DialAttempt;
use sooner_wire::limits::{
    ACK_BYTES, ACK_NANOS, HANDSHAKE_NANOS, LINK_BUFFER_BYTES_MAX, LINK_PATIENCE_NANOS, LINK_SHARE_BYTES,
    LINKS_BUFFER_BYTES_MAX, REDIAL_PAUSE_NANOS, REDIAL_PAUSE_NANOS_MAX,
};

use crate::probes::bug;
use crate::time::Instant;

/// A connection, numbered by the shell; a session never sees a number twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Connection(pub u32);

/// The first message of the dialling end on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Resume {
    /// The session, by a number that the dialling end drew.
    pub session: u64,
    /// Counts the hellos of a session: a hello that arrives after a later one is too late.
    pub attempt: DialAttempt,
    /// Position up to which the dialling end has received; `None` if it never got an answer.
    pub received: Option<u64>,
}

/// The answer of the other end. If it names another session than the one asked for, it means: wait, I am
/// dialling for this session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Resumed {
    /// The session.
    pub session: u64,
    /// Position up to which the answering end has received.
    pub received: u64,
}

/// What a link asks the shell to do, in this order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LinkAction {
    /// Make a connection, then call [`Link::on_dialled`] or [`Link::on_dial_failed`].
    Dial,
    /// Send a hello, and nothing else before the answer.
    Hello(Connection, Resume),
    /// Answer a hello.
    Welcome(Connection, Resumed),
    /// Send that the session has ended, then close.
    SendEnded(Connection, String),
    /// Read and write nothing more on it. None of its events counts any more.
    Close(Connection),
    /// Send everything that is retained from this position on, and new frames behind it.
    SendFrom(Connection, u64),
    /// Bytes before this position are not needed any more.
    Release(u64),
    /// Append an acknowledgement of everything before this position, then call [`Link::took_ack`].
    Ack(u64),
    /// The session has ended, for this reason: no message reaches the other process any more.
    End(String),
}

/// Actions in their order.
pub type LinkActions = Vec<LinkAction>;

/// Which end dials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Role {
    /// Neither end has said hello, as far as this end knows.
    Open,
    /// This end: it has said hello under its own session number.
    Dials,
    /// The other end: its session number counts.
    Waits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Dialling {
    No,
    Paused(Instant),
    Asked,
    Greeting(Connection, Instant),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum State {
    Open(Connection, Instant),
    Cut(Instant),
    Ended(String),
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Link {
    /// If both ends dial, this end's connection is used.
    wins: bool,
    /// How long there may be no connection (nanoseconds).
    patience_nanos: u64,
    session: u64,
    role: Role,
    dialling: Dialling,
    /// Hellos sent, or the number of the last one received.
    attempt: DialAttempt,
    /// There was a connection before.
    was_open: bool,
    state: State,
    /// Pause before the next dial.
    pause_nanos: u64,
    acked: u64,
    sent: u64,
    /// End of the last frame that is not an acknowledgement.
    asked_to_send: u64,
    received: u64,
    /// The position of `received` that was last sent to the other end.
    told: u64,
    ack_at: Option<Instant>,
}

impl Link {
    /// A new session. `session` is a number that this end drew; `wins`: if both ends dial at the same time,
    /// this end's connection is used. Exactly one end wins.
    #[must_use]
    pub fn new(session: u64, wins: bool) -> Self {
        Self {
            wins,
            patience_nanos: LINK_PATIENCE_NANOS,
            session,
            role: Role::Open,
            dialling: Dialling::No,
            attempt: DialAttempt::default(),
            was_open: false,
            state: State::Cut(Instant(0)),
            pause_nanos: 0,
            acked: 0,
            sent: 0,
            asked_to_send: 0,
            received: 0,
            told: 0,
            ack_at: None,
        }
    }

    /// This end never ends the session for lack of a connection: the decision that the other process is dead
    /// is made elsewhere.
    #[must_use]
    pub fn patient(self) -> Self {
        Self { patience_nanos: u64::MAX, ..self }
    }

    /// The session's number: this end's, until the other end turns out to be the one that dials.
    #[must_use]
    pub fn session(&self) -> u64 {
        self.session
    }

    /// The connection in use.
    #[must_use]
    pub fn connection(&self) -> Option<Connection> {
        match self.state {
            State::Open(connection, _) => Some(connection),
            State::Cut(_) | State::Ended(_) => None,
        }
    }

    /// Why the session has ended, if it has.
    #[must_use]
    pub fn ended(&self) -> Option<&str> {
        match &self.state {
            State::Ended(reason) => Some(reason),
            State::Open(..) | State::Cut(_) => None,
        }
    }

    /// Bytes that the shell retains.
    #[must_use]
    pub fn retained(&self) -> u64 {
        self.sent - self.acked
    }

    /// Whether a message that can wait must wait: this link retains the maximum for one, or all links of the
    /// process together (`of_all_lines`, bytes) retain theirs, and this one has its share. What cannot wait
    /// is bounded by what the protocol has in flight.
    #[must_use]
    pub fn is_full(&self, of_all_lines: u64) -> bool {
        let retained = self.retained();
        retained >= LINK_BUFFER_BYTES_MAX as u64
            || (of_all_lines >= LINKS_BUFFER_BYTES_MAX && retained >= LINK_SHARE_BYTES)
    }

    /// Position behind everything that was sent, without acknowledgements at the end, since those are not
    /// acknowledged.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.asked_to_send
    }

    /// Whether the other end has handed up everything before a position. That bytes have left means less: if
    /// the connection is cut and this process dies before it resumes, they are lost.
    #[must_use]
    pub fn is_acknowledged(&self, position: u64) -> bool {
        let reached = if bug!(FlushedIsAcknowledged) { self.sent } else { self.acked };
        position <= reached
    }

    /// There is something to send: dials, unless there is a connection or one is on its way.
    pub fn connect(&mut self, now: Instant, out: &mut LinkActions) {
        if self.is_unused() && matches!(self.state, State::Cut(_)) {
            self.state = State::Cut(now);
            self.dial(out);
        }
    }

    /// The shell has appended a frame of this many bytes. Returns the position behind it.
    pub fn took(&mut self, bytes: u64) -> u64 {
        self.sent += bytes;
        self.asked_to_send = self.sent;
        self.sent
    }

    /// The shell has appended an acknowledgement of this many bytes.
    pub fn took_ack(&mut self, bytes: u64) {
        self.sent += bytes;
    }

    /// A connection that [`LinkAction::Dial`] asked for is established.
    pub fn on_dialled(&mut self, connection: Connection, now: Instant, out: &mut LinkActions) {
        let is_wanted = matches!(self.state, State::Cut(_)) && self.dialling == Dialling::Asked;
        if !is_wanted {
            return out.push(LinkAction::Close(connection));
        }
        self.role = Role::Dials;
        self.attempt = self.attempt.next();
        self.dialling = Dialling::Greeting(connection, now);
        let received = self.was_open.then_some(self.received);
        let hello = Resume { session: self.session, attempt: self.attempt, received };
        out.push(LinkAction::Hello(connection, hello));
    }

    /// No connection could be made.
    pub fn on_dial_failed(&mut self, now: Instant) {
        if self.dialling == Dialling::Asked {
            self.pause(now);
        }
    }

    /// The other end sends a hello on a connection that it has dialled.
    pub fn on_hello(&mut self, connection: Connection, hello: Resume, now: Instant, out: &mut LinkActions) {
        if let State::Ended(reason) = &self.state {
            return out.push(LinkAction::SendEnded(connection, reason.clone()));
        }
        if self.role == Role::Dials && (self.wins || self.was_open) {
            // This end's hello may have arrived, so there is no way back: the other end must wait.
            let received = self.received;
            out.push(LinkAction::Welcome(connection, Resumed { session: self.session, received }));
            return out.push(LinkAction::Close(connection));
        }
        if self.role != Role::Waits {
            if hello.received.is_some() {
                let reason = "this process does not know the session".to_owned();
                return out.push(LinkAction::SendEnded(connection, reason));
            }
            self.wait_for(hello.session, out);
        }
        if hello.session != self.session {
            let reason = "another session of these processes is in use".to_owned();
            return out.push(LinkAction::SendEnded(connection, reason));
        }
        if hello.attempt <= self.attempt && !bug!(StaleRedialTaken) {
            return out.push(LinkAction::Close(connection));
        }
        self.attempt = hello.attempt;
        if let State::Open(older, _) = self.state {
            out.push(LinkAction::Close(older));
        }
        out.push(LinkAction::Welcome(connection, Resumed { session: self.session, received: self.received }));
        self.open(connection, hello.received.unwrap_or(0), now, out);
    }

    /// The other end answers the hello on a connection.
    pub fn on_welcome(
        &mut self,
        connection: Connection,
        welcome: Resumed,
        now: Instant,
        out: &mut LinkActions,
    ) {
        if !matches!(self.dialling, Dialling::Greeting(greeted, _) if greeted == connection) {
            return;
        }
        if welcome.session == self.session {
            self.dialling = Dialling::No;
            return self.open(connection, welcome.received, now, out);
        }
        if self.wins || self.was_open {
            return self.end("the other process answers for another session", out);
        }
        self.wait_for(welcome.session, out);
    }

    /// A frame of this many bytes has arrived and is handed up now, even an acknowledgement (`is_ack`).
    /// False: its connection is not in use any more; it will arrive again, and must not be handed up.
    pub fn on_frame(
        &mut self,
        connection: Connection,
        bytes: u64,
        is_ack: bool,
        now: Instant,
        out: &mut LinkActions,
    ) -> bool {
        if self.connection() != Some(connection) {
            return false;
        }
        self.received += bytes;
        if !is_ack {
            self.ack_at.get_or_insert(now.plus(ACK_NANOS));
        }
        if self.received - self.told >= ACK_BYTES {
            self.acknowledge(out);
        }
        true
    }

    /// The other end has handed up everything before a position. Called after [`Link::on_frame`] of this very
    /// frame.
    pub fn on_ack(&mut self, position: u64, out: &mut LinkActions) {
        if matches!(self.state, State::Ended(_)) || position <= self.acked {
            // It was repeated after a cut, or a resume has acknowledged more.
            return;
        }
        if position > self.sent {
            return self.end("the other process acknowledges what was never sent", out);
        }
        self.release(position, out);
    }

    /// A connection has ended, or cannot be used.
    pub fn on_cut(&mut self, connection: Connection, now: Instant, out: &mut LinkActions) {
        match (&self.state, self.dialling) {
            (State::Open(used, since), _) if *used == connection => {
                if now.since(*since) >= REDIAL_PAUSE_NANOS_MAX {
                    self.pause_nanos = 0;
                }
                self.state = State::Cut(now);
                self.ack_at = None;
                if bug!(RetainedReleasedOnFlush) {
                    self.release(self.sent, out);
                }
                if self.role == Role::Dials {
                    self.redial(now, out);
                }
            }
            (_, Dialling::Greeting(greeted, _)) if greeted == connection => self.pause(now),
            _ => {}
        }
    }

    /// The other end reports that the session has ended.
    pub fn on_ended(&mut self, connection: Connection, reason: &str, out: &mut LinkActions) {
        let is_greeted = matches!(self.dialling, Dialling::Greeting(greeted, _) if greeted == connection);
        if self.connection() != Some(connection) && !is_greeted {
            return;
        }
        out.push(LinkAction::Close(connection));
        self.conclude(reason, out);
    }

    /// Ends the session: the other end learns of it now, or when it comes back.
    pub fn end(&mut self, reason: &str, out: &mut LinkActions) {
        match (&self.state, self.dialling) {
            (State::Open(connection, _), _) => {
                out.push(LinkAction::SendEnded(*connection, reason.to_owned()));
            }
            (State::Cut(_), Dialling::Greeting(connection, _)) => out.push(LinkAction::Close(connection)),
            _ => {}
        }
        self.conclude(reason, out);
    }

    /// When [`Link::on_timer`] has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let State::Cut(since) = self.state else { return self.ack_at };
        if self.is_unused() {
            return None;
        }
        let patience = since.plus(self.patience_nanos);
        let next = match self.dialling {
            Dialling::Paused(until) => patience.min(until),
            Dialling::Greeting(_, since) => patience.min(since.plus(HANDSHAKE_NANOS)),
            Dialling::No | Dialling::Asked => patience,
        };
        (next.0 < u64::MAX).then_some(next)
    }

    /// Time has passed.
    pub fn on_timer(&mut self, now: Instant, out: &mut LinkActions) {
        match self.state {
            State::Ended(_) => {}
            State::Cut(_) if self.is_unused() => {}
            State::Open(..) => {
                if self.ack_at.is_some_and(|at| at <= now) {
                    self.acknowledge(out);
                }
            }
            State::Cut(since) if now.since(since) >= self.patience_nanos => {
                let seconds = self.patience_nanos / 1_000_000_000;
                self.end(&format!("there was no connection to it for {seconds} s"), out);
            }
            State::Cut(_) => self.dial_if_due(now, out),
        }
    }

    /// Neither end has asked for a connection, so none is missing.
    fn is_unused(&self) -> bool {
        self.role == Role::Open && self.dialling == Dialling::No
    }

    fn dial_if_due(&mut self, now: Instant, out: &mut LinkActions) {
        match self.dialling {
            Dialling::Paused(until) if until <= now => self.dial(out),
            Dialling::Greeting(connection, since) if now.since(since) >= HANDSHAKE_NANOS => {
                out.push(LinkAction::Close(connection));
                self.dial(out);
            }
            _ => {}
        }
    }

    fn dial(&mut self, out: &mut LinkActions) {
        self.dialling = Dialling::Asked;
        out.push(LinkAction::Dial);
    }

    /// Dials at once if the last connection lasted; otherwise after ever longer pauses.
    fn redial(&mut self, now: Instant, out: &mut LinkActions) {
        if self.pause_nanos > 0 {
            return self.pause(now);
        }
        self.pause_nanos = REDIAL_PAUSE_NANOS;
        self.dial(out);
    }

    fn pause(&mut self, now: Instant) {
        let pause = self.pause_nanos.max(REDIAL_PAUSE_NANOS);
        self.pause_nanos = (pause * 2).min(REDIAL_PAUSE_NANOS_MAX);
        self.dialling = Dialling::Paused(now.plus(pause));
    }

    /// The other end dials, for the session with this number.
    fn wait_for(&mut self, session: u64, out: &mut LinkActions) {
        if let Dialling::Greeting(connection, _) = self.dialling {
            out.push(LinkAction::Close(connection));
        }
        self.dialling = Dialling::No;
        self.role = Role::Waits;
        self.session = session;
        self.attempt = DialAttempt::default();
    }

    fn open(&mut self, connection: Connection, peer_received: u64, now: Instant, out: &mut LinkActions) {
        self.state = State::Open(connection, now);
        self.was_open = true;
        self.told = self.received;
        self.ack_at = None;
        if peer_received < self.acked || peer_received > self.sent {
            return self.end("the other process has lost count of what it received", out);
        }
        let from = if bug!(ResumeFromSent) { self.sent } else { peer_received };
        let from = if bug!(ResumeFromAcknowledged) { self.acked } else { from };
        out.push(LinkAction::SendFrom(connection, from));
        if peer_received > self.acked {
            self.release(peer_received, out);
        }
    }

    fn acknowledge(&mut self, out: &mut LinkActions) {
        self.told = self.received;
        self.ack_at = None;
        out.push(LinkAction::Ack(self.received));
    }

    fn release(&mut self, position: u64, out: &mut LinkActions) {
        assert!(position <= self.sent, "SE1: {position} was never sent");
        self.acked = position;
        out.push(LinkAction::Release(position));
    }

    fn conclude(&mut self, reason: &str, out: &mut LinkActions) {
        if matches!(self.state, State::Ended(_)) {
            return;
        }
        self.state = State::Ended(reason.to_owned());
        self.dialling = Dialling::No;
        self.ack_at = None;
        out.push(LinkAction::End(reason.to_owned()));
    }
}
