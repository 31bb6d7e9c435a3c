//! A node's link to the head: dialled, proved, greeted, registered; and dialled again for as long as the node lives.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::event::epoll::{self, EventData, EventFlags};
use weft_protocol::session::hello::{HEAD, Me, Refusal, hello, on_answer};
use weft_protocol::time::Instant;
use weft_wire::NodeId;
use weft_wire::limits::{HANDSHAKE_NANOS, JOIN_NANOS, REDIAL_NANOS, REDIAL_NANOS_MAX};
use weft_wire::message::{Message, PeerHello};

use super::fate::{JoinFailure, Kind};
use super::{LINK, is_readable};
use crate::clock::now;
use crate::identity::{Destination, Identity};
use crate::transport::dial::{dial, outcome};
use crate::transport::{Ended, Framed, Stream, TlsFailure, TlsStream};

/// How long a connection may take to come about (nanoseconds).
const CONNECT_NANOS: u64 = 5_000_000_000;

/// What happened.
pub(super) enum News {
    /// The head is there and speaks our language: register.
    Greeted,
    /// It said something.
    Said(Message),
    /// There is no connection now.
    Lost(JoinFailure),
}

enum State {
    /// Nobody is dialled before then.
    Down(Instant),
    Connecting(OwnedFd, Instant),
    /// Both prove who they are, and greet each other.
    Greeting(Box<Framed>, Box<PeerHello>, Instant),
    /// The head knows what this node says of itself, and has not answered.
    Registering(Box<Framed>, Instant),
    Up(Box<Framed>),
}

/// See the module.
pub(super) struct Link {
    state: State,
    /// Who dials, if the head is elsewhere.
    dialler: Option<(Me, Identity)>,
    addresses: Vec<SocketAddr>,
    /// Connections that were tried since the last one that worked.
    tries: usize,
    /// The head's node.
    peer: NodeId,
    why_down: Option<String>,
    /// The last connection ended without a word: the head may just not take connections from here for a moment.
    may_pass: bool,
}

impl Link {
    /// To a head at one of these addresses.
    pub(super) fn to(addresses: Vec<SocketAddr>, me: Me, identity: Identity) -> Self {
        Self {
            state: State::Down(Instant(0)),
            dialler: Some((me, identity)),
            addresses,
            tries: 0,
            peer: NodeId::default(),
            why_down: Some("it was not reached yet".to_owned()),
            may_pass: false,
        }
    }

    /// To the head in this process, which needs no proof.
    pub(super) fn own(socket: OwnedFd, address: SocketAddr, epoll: &OwnedFd) -> io::Result<Self> {
        let framed = Framed::add(Stream::Unix(socket), epoll, LINK)?;
        Ok(Self {
            state: State::Registering(Box::new(framed), now().plus(JOIN_NANOS)),
            dialler: None,
            addresses: vec![address],
            tries: 0,
            peer: NodeId::default(),
            why_down: None,
            may_pass: false,
        })
    }

    /// The address that is dialled, or was last.
    pub(super) fn address(&self) -> SocketAddr {
        self.addresses[self.tries.saturating_sub(1) % self.addresses.len()]
    }

    pub(super) fn peer(&self) -> NodeId {
        self.peer
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.state, State::Up(_))
    }

    /// Why there is no connection, if there is none.
    pub(super) fn why_down(&self) -> Option<String> {
        if self.is_up() { None } else { self.why_down.clone() }
    }

    /// Whether every address was tried in vain.
    pub(super) fn has_tried_all(&self) -> bool {
        self.tries >= self.addresses.len()
    }

    /// Whether the next try may go better than the last.
    pub(super) fn may_pass(&self) -> bool {
        self.may_pass
    }

    /// The head has taken this node in.
    pub(super) fn on_registered(&mut self) {
        self.tries = 0;
        self.why_down = None;
        if let State::Registering(framed, _) = std::mem::replace(&mut self.state, State::Down(Instant(0))) {
            self.state = State::Up(framed);
        }
    }

    /// The head has said no.
    pub(super) fn on_refused(&mut self, failure: &JoinFailure, epoll: &OwnedFd) {
        if let Some(framed) = self.framed() {
            framed.flush(epoll);
            framed.end();
        }
        self.down(failure);
    }

    /// Says something, at the next [`Self::flush`].
    pub(super) fn send(&mut self, message: &Message) {
        if let Some(framed) = self.framed() {
            framed.push(message);
        }
    }

    pub(super) fn flush(&mut self, epoll: &OwnedFd) {
        if let Some(framed) = self.framed() {
            framed.flush(epoll);
        }
    }

    fn framed(&mut self) -> Option<&mut Framed> {
        match &mut self.state {
            State::Greeting(framed, ..) | State::Registering(framed, _) | State::Up(framed) => Some(framed),
            State::Down(_) | State::Connecting(..) => None,
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Down(until)
            | State::Connecting(_, until)
            | State::Greeting(_, _, until)
            | State::Registering(_, until) => Some(*until),
            State::Up(framed) => framed.ended().map(|_| Instant(0)),
        }
    }

    /// Time passes.
    pub(super) fn on_time(&mut self, now: Instant, epoll: &OwnedFd) -> Vec<News> {
        let mut news = Vec::new();
        self.on_ended(&mut news);
        if self.next_deadline().is_none_or(|deadline| now < deadline) {
            return news;
        }
        match &mut self.state {
            State::Down(_) => self.dial(now, epoll, &mut news),
            State::Connecting(..) => self.lose(self.no_answer(), &mut news),
            State::Greeting(framed, ..) => {
                framed.on_silence();
                self.on_ended(&mut news);
            }
            State::Registering(..) => self.lose(self.no_answer(), &mut news),
            State::Up(_) => {}
        }
        news
    }

    pub(super) fn on_ready(&mut self, flags: EventFlags, epoll: &OwnedFd) -> Vec<News> {
        let mut news = Vec::new();
        if let State::Connecting(..) = self.state {
            self.on_connected(epoll, &mut news);
            return news;
        }
        let Some(framed) = self.framed() else { return news };
        if flags.contains(EventFlags::OUT) {
            framed.flush(epoll);
        }
        if is_readable(flags) {
            framed.read(epoll);
        }
        while let Some(message) = self.framed().and_then(Framed::next_message) {
            match &self.state {
                State::Greeting(framed, said, _) => {
                    match on_answer(&message, said, framed.peer().unwrap_or_default()) {
                        Ok(party) => {
                            self.peer = party.id.node();
                            self.greeted();
                            news.push(News::Greeted);
                        }
                        Err(refusal) => {
                            let failure = self.of_refusal(&refusal);
                            self.lose(failure, &mut news);
                            return news;
                        }
                    }
                }
                _ => news.push(News::Said(message)),
            }
        }
        self.on_ended(&mut news);
        news
    }

    fn greeted(&mut self) {
        if let State::Greeting(framed, ..) = std::mem::replace(&mut self.state, State::Down(Instant(0))) {
            self.state = State::Registering(framed, now().plus(JOIN_NANOS));
        }
    }

    fn dial(&mut self, now: Instant, epoll: &OwnedFd, news: &mut Vec<News>) {
        self.tries += 1;
        let socket = match dial(self.address()) {
            Ok(socket) => socket,
            Err(error) => return self.lose(self.of_error(&error), news),
        };
        if let Err(error) = epoll::add(epoll, &socket, EventData::new_u64(LINK), EventFlags::OUT) {
            return self.lose(self.of_error(&error.into()), news);
        }
        self.state = State::Connecting(socket, now.plus(CONNECT_NANOS));
    }

    fn on_connected(&mut self, epoll: &OwnedFd, news: &mut Vec<News>) {
        let State::Connecting(socket, _) = std::mem::replace(&mut self.state, State::Down(Instant(0))) else {
            return;
        };
        let Some((me, identity)) = &self.dialler else { return };
        if let Err(error) = outcome(&socket) {
            return self.lose(self.of_error(&error), news);
        }
        let _ = epoll::delete(epoll, &socket);
        let stream = Stream::Tls(Box::new(TlsStream::dial(socket, identity, Destination::head_name())));
        let said = hello(me, HEAD, 0, 0, None);
        match Framed::add(stream, epoll, LINK) {
            Ok(mut framed) => {
                framed.push(&said.clone().into());
                framed.flush(epoll);
                let until = now().plus(HANDSHAKE_NANOS);
                self.state = State::Greeting(Box::new(framed), Box::new(said), until);
            }
            Err(error) => self.lose(self.of_error(&error), news),
        }
    }

    fn on_ended(&mut self, news: &mut Vec<News>) {
        let Some(ended) = self.framed().and_then(|framed| framed.ended().cloned()) else { return };
        let failure = self.of_end(&ended);
        self.lose(failure, news);
        self.may_pass = matches!(
            ended,
            Ended::Closed | Ended::Tls(TlsFailure::CutInHandshake | TlsFailure::Cut | TlsFailure::Socket(_))
        );
    }

    fn lose(&mut self, failure: JoinFailure, news: &mut Vec<News>) {
        self.down(&failure);
        news.push(News::Lost(failure));
    }

    fn down(&mut self, failure: &JoinFailure) {
        self.may_pass = false;
        let doubled = u32::try_from(self.tries / self.addresses.len()).unwrap_or(u32::MAX).min(16);
        let pause = (REDIAL_NANOS << doubled).min(REDIAL_NANOS_MAX);
        self.state = State::Down(now().plus(pause));
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
                "nobody listens at {}: is the head running there? `weft status` on its machine says where it listens",
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
                "the token is not that of the cluster at {}: {ended}. Copy the head's token file, or print it there with `weft token`",
                self.address()
            ),
            (_, Ended::Tls(TlsFailure::NoSuchName)) => format!(
                "{} is a node, but not the head of its cluster: `weft status` there says where the head is",
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
