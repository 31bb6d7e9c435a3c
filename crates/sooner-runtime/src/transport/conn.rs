//! A connection that carries messages, in its owner's event loop: to a process of this machine or another.
//!
//! The owner holds the deadlines. Nothing here waits, and only the owner's thread reads or writes.

use std::io;

use sooner_wire::NodeId;
use sooner_wire::limits::LINK_BUFFER_BYTES_MAX;
use sooner_wire::message::Message;

use super::{Flush, Inlet, Outlet, ReadResult, Stream, TlsFailure};
use crate::poller::{Interest, Poller};

/// See the module.
#[derive(Debug)]
pub struct Conn {
    stream: Stream,
    inlet: Inlet,
    outlet: Outlet,
    token: u64,
    interest: Interest,
    /// The most bytes that may wait for the peer.
    waiting_max: usize,
    /// Why the connection ended, if it did.
    ended: Option<Ended>,
}

/// How a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The peer ended the connection, or its process has ended.
    Closed,
    /// A failure of TLS, before or after both sides had proved who they are.
    Tls(TlsFailure),
    /// What came was not a valid message.
    Frame(String),
    /// The peer does not read what it is sent.
    Full,
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ended::Closed => f.write_str("the peer ended the connection"),
            Ended::Tls(failure) => failure.fmt(f),
            Ended::Frame(error) => f.write_str(error),
            Ended::Full => write!(f, "the peer left {LINK_BUFFER_BYTES_MAX} bytes unread"),
        }
    }
}

impl Conn {
    /// A connection whose events come with this token.
    ///
    /// # Errors
    /// The system's error.
    pub fn add(stream: Stream, poller: &Poller, token: u64) -> io::Result<Self> {
        let interest = stream.interest(false);
        poller.add(&stream, token, interest)?;
        let (inlet, outlet) = Default::default();
        let mut framed =
            Self { stream, inlet, outlet, token, interest, waiting_max: LINK_BUFFER_BYTES_MAX, ended: None };
        // The side that dialled begins the handshake with this flush.
        framed.flush(poller);
        Ok(framed)
    }

    /// For two threads of this process: there is no bound on what waits, since the peer reads for as long as
    /// this process needs it.
    #[must_use]
    pub fn within_process(self) -> Self {
        Self { waiting_max: usize::MAX, ..self }
    }

    /// The node that the peer has proved to be on.
    #[must_use]
    pub fn peer(&self) -> Option<NodeId> {
        match &self.stream {
            Stream::Unix(_) => None,
            Stream::Tls(tls) => tls.peer(),
        }
    }

    /// Queues a message for the next [`Self::flush`].
    pub fn push(&mut self, message: &Message) {
        self.outlet.push(message);
    }

    /// Reads what is there. Messages come from [`Self::next_message`], also after the end.
    pub fn read(&mut self, poller: &Poller) {
        if self.inlet.read_stream(&self.stream) == ReadResult::End {
            let failure = match &self.stream {
                Stream::Unix(_) => None,
                Stream::Tls(tls) => tls.failure(),
            };
            self.ended.get_or_insert(failure.map_or(Ended::Closed, Ended::Tls));
        }
        self.watch(poller);
    }

    /// The next whole message that was read.
    pub fn next_message(&mut self) -> Option<Message> {
        match self.inlet.next_message() {
            Ok(received) => received.map(|received| received.message),
            Err(error) => {
                self.ended.get_or_insert(Ended::Frame(error.to_string()));
                None
            }
        }
    }

    /// Sends what the connection takes.
    pub fn flush(&mut self, poller: &Poller) {
        if self.outlet.flush_stream(&self.stream) == Flush::Gone {
            // What can still be read tells why.
            return self.read(poller);
        }
        if self.outlet.waiting() > self.waiting_max {
            self.ended.get_or_insert(Ended::Full);
        }
        self.watch(poller);
    }

    /// Ends the connection because the peer has not proved in time who it is.
    pub fn on_silence(&mut self) {
        if let Stream::Tls(tls) = &self.stream {
            tls.fail(TlsFailure::Silent);
        }
        self.ended.get_or_insert(Ended::Tls(TlsFailure::Silent));
    }

    /// Announces the end of the connection, as far as that is possible without waiting.
    pub fn end(&mut self) {
        let _ = self.outlet.flush_stream(&self.stream);
        if let Stream::Tls(tls) = &self.stream {
            tls.end();
        }
    }

    /// Hands on the connection, with what was read and not yet parsed. Nothing may be queued.
    #[must_use]
    pub fn into_parts(self, poller: &Poller) -> (Stream, Inlet) {
        debug_assert!(self.outlet.waiting() == 0, "what was said has left");
        let _ = poller.remove(&self.stream);
        (self.stream, self.inlet)
    }

    /// Why the connection has ended, if it has.
    #[must_use]
    pub fn ended(&self) -> Option<&Ended> {
        self.ended.as_ref()
    }

    /// Updates the events to wait for: TLS may have to write in order to read, and vice versa.
    fn watch(&mut self, poller: &Poller) {
        let interest = self.stream.interest(self.outlet.waiting() > 0);
        if interest != self.interest {
            self.interest = interest;
            let _ = poller.change(&self.stream, self.token, interest);
        }
    }
}
