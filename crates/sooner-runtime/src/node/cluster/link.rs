//! A node's link to the head: dialled, proved, greeted, registered; and dialled again for as long as the node
//! lives.
//!
//! Both sides keep one session for the life of both: when a connection is cut, no message is lost and none
//! arrives twice. A restarted head does not know the session; then a new one begins, and the node reports
//! what it has. A head in this process is at the other end of a socket pair, and needs none of that.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use sooner_protocol::session::Redial;
use sooner_protocol::session::hello::{HEAD, Me, Refusal};
use sooner_protocol::time::Instant;
use sooner_wire::NodeId;
use sooner_wire::limits::{CONTROL_BUFFER_BYTES_MAX, JOIN_NANOS};
use sooner_wire::message::Message;

use super::FIRST_OF_LINK;
use super::fate::{JoinFailure, Kind};
use crate::clock::now;
use crate::identity::{Destination, Identity};
use crate::poller::{Event, Interest, Poller};
use crate::transport::dial::{dial, outcome};
use crate::transport::{
    Conn, Ended, EpollSession, Failure, SessionNews, Stream, TlsFailure, TlsStream, Turn,
};

/// How long a connection may take to come about (nanoseconds).
const CONNECT_NANOS: u64 = 5_000_000_000;

/// An event of the link.
pub(super) enum News {
    /// The head is there and speaks our language, but does not know this session: register.
    Greeted,
    /// There is a connection again, and no message was lost.
    Resumed,
    /// The head sent a message.
    Said(Message),
    /// There is no connection now.
    Lost(JoinFailure),
}

#[derive(Debug)]
enum State {
    /// Do not dial before then.
    Down(Instant),
    Connecting(OwnedFd, Instant),
    /// Both sides prove who they are, and greet each other.
    Greeting,
    /// The node's registration was sent, and is not answered.
    Registering(Instant),
    Up,
}

/// Where the link leads.
enum Way {
    /// To this process.
    Own(Box<Conn>),
    /// To a head in another process.
    Session(Box<Session>),
}

struct Session {
    line: EpollSession,
    me: Arc<Me>,
    identity: Identity,
    /// Sessions so far.
    number: u64,
    /// The session wants a connection.
    wants_dial: bool,
    /// The node's registration was sent in this session.
    is_told: bool,
    /// The head has accepted it.
    is_registered: bool,
    token: u64,
}

/// See the module.
pub(super) struct Link {
    state: State,
    way: Way,
    addresses: Vec<SocketAddr>,
    /// Which address is dialled next, and when.
    redial: Redial,
    /// The head's node.
    peer: NodeId,
    why_down: Option<String>,
    /// When the head was last reached over a new connection.
    connected: Instant,
    /// The last connection ended without a reason: the head may accept no connections from here for a moment.
    may_pass: bool,
}

impl Session {
    fn begin_anew(&mut self, turn: Turn<'_>) {
        self.line.close(turn);
        self.number += 1;
        self.line = session(&self.me, self.number);
        (self.wants_dial, self.is_told, self.is_registered) = (true, false, false);
    }

    fn next_token(&mut self) -> u64 {
        self.token += 1;
        self.token
    }
}

/// An unused session with the head. The head never dials, and itself declares nodes dead.
fn session(me: &Arc<Me>, number: u64) -> EpollSession {
    EpollSession::new(me.clone(), HEAD, number, true).patient()
}

impl Link {
    /// To a head at one of these addresses.
    pub(super) fn to(addresses: Vec<SocketAddr>, me: Me, identity: Identity) -> Self {
        let me = Arc::new(me);
        let session = Session {
            line: session(&me, 1),
            me,
            identity,
            number: 1,
            wants_dial: true,
            is_told: false,
            is_registered: false,
            token: FIRST_OF_LINK,
        };
        Self {
            state: State::Down(Instant(0)),
            way: Way::Session(Box::new(session)),
            redial: Redial::among(addresses.len()),
            addresses,
            peer: NodeId::default(),
            why_down: Some("it was not reached yet".to_owned()),
            connected: Instant(0),
            may_pass: false,
        }
    }

    /// To the head in this process, which needs no proof.
    pub(super) fn own(socket: OwnedFd, address: SocketAddr, poller: &Poller) -> io::Result<Self> {
        let framed = Conn::add(Stream::Unix(socket), poller, FIRST_OF_LINK)?.within_process();
        Ok(Self {
            state: State::Registering(now().plus(JOIN_NANOS)),
            way: Way::Own(Box::new(framed)),
            addresses: vec![address],
            redial: Redial::default(),
            peer: NodeId::default(),
            why_down: None,
            connected: Instant(0),
            may_pass: false,
        })
    }

    /// The address that is dialled, or was last.
    pub(super) fn address(&self) -> SocketAddr {
        self.addresses[self.redial.address()]
    }

    pub(super) fn peer(&self) -> NodeId {
        self.peer
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.state, State::Up)
    }

    /// Why there is no connection, if there is none.
    pub(super) fn why_down(&self) -> Option<String> {
        if self.is_up() { None } else { self.why_down.clone() }
    }

    /// Whether a node that began then, and that no head has registered, gives up.
    pub(super) fn gives_up(&self, began: Instant) -> bool {
        self.redial.gives_up(began, self.may_pass, now())
    }

    /// The head has registered this node.
    pub(super) fn on_registered(&mut self) {
        if let Way::Session(session) = &mut self.way {
            session.is_registered = true;
        }
        self.up();
    }

    fn up(&mut self) {
        self.connected = now();
        self.redial.on_connected();
        self.why_down = None;
        self.state = State::Up;
    }

    /// The head has refused this node.
    pub(super) fn on_refused(&mut self, failure: &JoinFailure, poller: &Poller) {
        match &mut self.way {
            Way::Own(framed) => framed.end(),
            Way::Session(session) => {
                let turn = Turn { poller, time: now() };
                session.line.end("the head has said no", turn);
                session.begin_anew(turn);
            }
        }
        self.down(failure);
    }

    /// Sends a message, at the next [`Self::flush`]. Until the head has registered this node, all but the
    /// registration are dropped.
    pub(super) fn send(&mut self, message: &Message) {
        match &mut self.way {
            Way::Own(framed) => framed.push(message),
            Way::Session(session) => {
                if session.is_registered || matches!(message, Message::Register(_)) {
                    session.line.push(message);
                }
            }
        }
    }

    pub(super) fn flush(&mut self, poller: &Poller) {
        match &mut self.way {
            Way::Own(framed) => framed.flush(poller),
            Way::Session(session) => {
                let turn = Turn { poller, time: now() };
                if !session.line.is_open() && session.line.retained() > CONTROL_BUFFER_BYTES_MAX {
                    // The head is away for long. When it is back, all that it must know is sent again.
                    return session.begin_anew(turn);
                }
                session.line.flush(turn);
            }
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let until = match (&self.state, &self.way) {
            (State::Down(until), Way::Session(session)) => session.wants_dial.then_some(*until),
            (State::Connecting(_, until) | State::Registering(until), _) => Some(*until),
            (State::Down(_) | State::Greeting | State::Up, _) => None,
        };
        let of_way = match &self.way {
            Way::Own(framed) => framed.ended().filter(|_| self.is_up()).map(|_| Instant(0)),
            Way::Session(session) => session.line.next_deadline(),
        };
        [until, of_way].into_iter().flatten().min()
    }

    /// Time passes.
    pub(super) fn on_time(&mut self, now: Instant, poller: &Poller) -> Vec<News> {
        let mut news = Vec::new();
        if let Way::Session(session) = &mut self.way {
            session.line.on_timer(Turn { poller, time: now });
        }
        self.on_way(poller, &mut news);
        match &self.state {
            State::Down(until) if *until <= now => self.dial(now, poller, &mut news),
            State::Connecting(_, until) | State::Registering(until) if *until <= now => {
                self.lose(self.no_answer(), poller, &mut news);
            }
            _ => {}
        }
        news
    }

    /// Something has happened on a connection of this link.
    pub(super) fn on_ready(&mut self, event: Event, poller: &Poller) -> Vec<News> {
        let mut news = Vec::new();
        match &mut self.way {
            // An earlier connection may not be over yet.
            Way::Session(session)
                if matches!(self.state, State::Connecting(..)) && event.token == session.token =>
            {
                self.on_connected(poller, &mut news);
                return news;
            }
            Way::Own(framed) => {
                if event.is_writable() {
                    framed.flush(poller);
                }
                if event.is_readable() {
                    framed.read(poller);
                }
                news.extend(std::iter::from_fn(|| framed.next_message()).map(News::Said));
            }
            Way::Session(session) => {
                let mut said = Vec::new();
                session.line.on_ready(event, Turn { poller, time: now() }, &mut said);
                news.extend(said.into_iter().map(News::Said));
            }
        }
        self.on_way(poller, &mut news);
        news
    }

    /// Heartbeats have failed. An older connection may lead nowhere, too: while nothing is sent, nobody
    /// notices that the machine at its other end was restarted, and a head that began there meanwhile does
    /// not know this node. If the connection was well, cutting it loses nothing.
    pub(super) fn renew(&mut self, failed: Instant, poller: &Poller) -> Vec<News> {
        let mut news = Vec::new();
        if let (State::Up, Way::Session(session)) = (&self.state, &mut self.way)
            && self.connected <= failed
        {
            session.line.cut("heartbeats do not reach the head", Turn { poller, time: now() });
            self.on_way(poller, &mut news);
        }
        news
    }

    /// Looks at what has become of the connection.
    fn on_way(&mut self, poller: &Poller, news: &mut Vec<News>) {
        let turn = Turn { poller, time: now() };
        match &mut self.way {
            Way::Own(framed) => {
                let Some(ended) = framed.ended().cloned() else { return };
                if !matches!(self.state, State::Down(_)) {
                    let failure = self.of_end(&ended);
                    self.lose(failure, poller, news);
                }
            }
            Way::Session(session) => {
                for one in session.line.take_news() {
                    self.on_wire(one, turn, news);
                }
            }
        }
    }

    fn on_wire(&mut self, one: SessionNews, turn: Turn<'_>, news: &mut Vec<News>) {
        let Way::Session(session) = &mut self.way else { return };
        match one {
            SessionNews::Dial => session.wants_dial = true,
            SessionNews::Opened => {
                self.peer = session.line.peer().node();
                if session.is_registered {
                    self.up();
                    return news.push(News::Resumed);
                }
                self.state = State::Registering(turn.time.plus(JOIN_NANOS));
                if !std::mem::replace(&mut session.is_told, true) {
                    news.push(News::Greeted);
                }
            }
            SessionNews::Closed(_) if session.line.is_open() => {}
            SessionNews::Closed(_) => self.on_closed(news),
            SessionNews::Ended(reason) => {
                self.on_closed(news);
                self.why_down = Some(reason);
                if let Way::Session(session) = &mut self.way {
                    session.begin_anew(turn);
                }
            }
        }
    }

    fn on_closed(&mut self, news: &mut Vec<News>) {
        if matches!(self.state, State::Down(_) | State::Connecting(..)) {
            return;
        }
        let Way::Session(session) = &self.way else { return };
        let (failure, may_pass) = match session.line.failure() {
            Some(Failure::Refusal(refusal)) => (self.of_refusal(refusal), false),
            Some(Failure::Ended(ended)) => (self.of_end(ended), may_pass(ended)),
            Some(Failure::Silent) => (self.no_answer(), false),
            Some(Failure::Undialled(_) | Failure::GivenUp(_)) | None => (self.of_end(&Ended::Closed), true),
        };
        self.down(&failure);
        self.may_pass = may_pass;
        news.push(News::Lost(failure));
    }

    fn dial(&mut self, now: Instant, poller: &Poller, news: &mut Vec<News>) {
        let Way::Session(session) = &mut self.way else { return };
        if !std::mem::take(&mut session.wants_dial) {
            return;
        }
        session.line.connect(Turn { poller, time: now });
        // Drops its request for this dial.
        session.line.take_news();
        let token = session.next_token();
        self.redial.on_dialled();
        let socket = match dial(self.address()) {
            Ok(socket) => socket,
            Err(error) => return self.lose(self.of_error(&error), poller, news),
        };
        if let Err(error) = poller.add(&socket, token, Interest::Write) {
            return self.lose(self.of_error(&error.into()), poller, news);
        }
        self.state = State::Connecting(socket, now.plus(CONNECT_NANOS));
    }

    fn on_connected(&mut self, poller: &Poller, news: &mut Vec<News>) {
        let State::Connecting(socket, _) = std::mem::replace(&mut self.state, State::Down(Instant(0))) else {
            return;
        };
        let _ = poller.remove(&socket);
        if let Err(error) = outcome(&socket) {
            return self.lose(self.of_error(&error), poller, news);
        }
        let Way::Session(session) = &mut self.way else { return };
        let name = Destination::head_name();
        let stream = Stream::Tls(Box::new(TlsStream::dial(socket, &session.identity, name)));
        let token = session.next_token();
        self.state = State::Greeting;
        session.line.on_dialled(stream, token, Turn { poller, time: now() });
        self.on_way(poller, news);
    }

    /// There is no connection, or the one that there is leads nowhere.
    fn lose(&mut self, failure: JoinFailure, poller: &Poller, news: &mut Vec<News>) {
        if let State::Connecting(socket, _) = &self.state {
            let _ = poller.remove(socket);
        }
        let has_connection = matches!(self.state, State::Registering(_));
        self.down(&failure);
        if let Way::Session(session) = &mut self.way {
            let turn = Turn { poller, time: now() };
            if has_connection {
                session.line.cut(&failure.to_string(), turn);
            } else {
                session.line.on_dial_failed(&failure.to_string(), turn);
            }
            self.on_way(poller, news);
        }
        news.push(News::Lost(failure));
    }

    fn down(&mut self, failure: &JoinFailure) {
        self.may_pass = false;
        self.state = State::Down(self.redial.on_lost(now()));
        self.why_down = Some(failure.to_string());
    }

    fn no_answer(&self) -> JoinFailure {
        let text = format!(
            "the head at {} does not answer: is the address right, and does a firewall let this port through?",
            self.address()
        );
        JoinFailure::new(Kind::NoAnswer, text)
    }

    fn of_error(&self, error: &io::Error) -> JoinFailure {
        if error.kind() == io::ErrorKind::ConnectionRefused {
            let text = format!(
                "nobody listens at {}: is the head running there? `sooner status` on its machine says where it listens",
                self.address()
            );
            return JoinFailure::new(Kind::NobodyListens, text);
        }
        let text = format!("the head at {} cannot be reached: {error}", self.address());
        JoinFailure::new(Kind::NoAnswer, text)
    }

    fn of_refusal(&self, refusal: &Refusal) -> JoinFailure {
        let kind = match refusal {
            Refusal::Version(_) | Refusal::Python { .. } | Refusal::Refused(_) => Kind::OtherVersion,
            _ => Kind::SomethingElse,
        };
        JoinFailure::new(kind, format!("the head at {}: {refusal}", self.address()))
    }

    fn of_end(&self, ended: &Ended) -> JoinFailure {
        let kind = match ended {
            Ended::Tls(TlsFailure::OtherCluster(_) | TlsFailure::NotAccepted(_)) => Kind::Token,
            Ended::Tls(TlsFailure::Silent) => return self.no_answer(),
            _ => Kind::SomethingElse,
        };
        let text = match (kind, ended) {
            (Kind::Token, _) => format!(
                "the token is not that of the cluster at {}: {ended}. Copy the head's token file, or print it there with `sooner token`",
                self.address()
            ),
            (_, Ended::Tls(TlsFailure::NoSuchName)) => format!(
                "{} is a node, but not the head of its cluster: `sooner status` there says where the head is",
                self.address()
            ),
            _ if self.peer == NodeId::default() => {
                format!("what answers at {} is not the head of a cluster: {ended}", self.address())
            }
            _ => format!("the connection to the head at {} ended: {ended}", self.address()),
        };
        JoinFailure::new(kind, text)
    }
}

/// Whether a connection that ended so may go better the next time.
fn may_pass(ended: &Ended) -> bool {
    matches!(
        ended,
        Ended::Closed
            | Ended::Tls(
                TlsFailure::CutInHandshake | TlsFailure::Cut | TlsFailure::NoRoom | TlsFailure::Socket(_)
            )
    )
}

#[cfg(test)]
mod tests;
