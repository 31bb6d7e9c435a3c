//! A connection of a session: what is sent on it outside the session, and what it is used for.

use std::sync::Arc;

use sooner_protocol::session::Connection;
use sooner_protocol::time::Instant;
use sooner_wire::frame::FrameError;
use sooner_wire::limits::HANDSHAKE_NANOS;
use sooner_wire::message::{Message, PeerHello};

use super::resend_buffer::ResendBuffer;
use super::{Inlet, ReadResult, Received, Stream};
use crate::poller::{Interest, Poller};

/// The reading half of a connection.
#[derive(Debug)]
pub struct Reader {
    token: u64,
    stream: Arc<Stream>,
    inlet: Inlet,
}

/// What a connection is for.
#[derive(Debug)]
pub(super) enum Purpose {
    /// This end has dialled, and sends this hello as soon as the other end has proved who it is.
    Asking(Box<PeerHello>),
    /// The other end has dialled and must send its hello.
    Asked,
    /// It carries the session.
    Session,
    /// What is queued still leaves, then the connection ends. Nothing is received.
    Leaving,
}

#[derive(Debug)]
pub(super) struct SessionConn {
    pub(super) token: u64,
    pub(super) number: Connection,
    pub(super) stream: Arc<Stream>,
    pub(super) interest: Interest,
    pub(super) purpose: Purpose,
    /// The other end has proved who it is. Before that only the reader's thread touches the stream, because a
    /// handshake takes time.
    pub(super) is_proven: bool,
    pub(super) since: Instant,
    /// Frames outside the session, which it does not count, and how much of them has left.
    pub(super) outside: Vec<u8>,
    pub(super) written: usize,
}

impl SessionConn {
    pub(super) fn send_outside(&mut self, message: &Message) {
        message.append(&mut self.outside, 0);
    }

    pub(super) fn leave(&mut self, now: Instant) {
        self.purpose = Purpose::Leaving;
        self.since = now;
    }

    pub(super) fn has_outside(&self) -> bool {
        self.written < self.outside.len()
    }

    pub(super) fn has_proof(&self) -> bool {
        match &*self.stream {
            Stream::Unix(_) => true,
            Stream::Tls(tls) => tls.peer().is_some(),
        }
    }

    /// When the peer has been silent, or has read nothing, for too long. (The session itself limits the wait
    /// for an answer.)
    pub(super) fn deadline(&self) -> Option<Instant> {
        let is_limited = matches!(self.purpose, Purpose::Asked | Purpose::Leaving);
        is_limited.then(|| self.since.plus(HANDSHAKE_NANOS))
    }

    pub(super) fn send(&mut self, retained: &mut ResendBuffer) -> bool {
        let result = if self.is_proven { self.send_frames(retained) } else { Ok(()) };
        // A dead peer is found by the reader, which can tell why.
        matches!(result.and_then(|()| self.stream.flush()), Ok(true)) && !self.has_outside()
    }

    fn send_frames(&mut self, retained: &mut ResendBuffer) -> rustix::io::Result<()> {
        while self.has_outside() {
            self.written += self.stream.write(&self.outside[self.written..])?;
        }
        self.outside.clear();
        self.written = 0;
        while matches!(self.purpose, Purpose::Session) && !retained.unsent().is_empty() {
            let bytes = self.stream.write(retained.unsent())?;
            retained.sent(bytes);
        }
        Ok(())
    }

    pub(super) fn watch(&mut self, retained: &ResendBuffer, poller: &Poller) {
        let has_more =
            self.has_outside() || (matches!(self.purpose, Purpose::Session) && !retained.unsent().is_empty());
        let interest = self.stream.interest(has_more);
        if interest != self.interest {
            self.interest = interest;
            let _ = poller.change(&*self.stream, self.token, interest);
        }
    }
}

impl Reader {
    pub(super) fn new(token: u64, stream: Arc<Stream>, inlet: Inlet) -> Self {
        Self { token, stream, inlet }
    }

    /// The token under which events come.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.token
    }

    /// Continues the handshake, then reads what is there. Next call [`super::Session::after_read`], then
    /// [`super::Session::receive`] with each frame.
    pub fn read(&mut self) -> ReadResult {
        self.inlet.read_stream(&self.stream)
    }

    /// The next whole frame that was read.
    ///
    /// # Errors
    /// What came was not a valid message: call [`super::Session::on_end`] with that.
    #[inline]
    pub fn next_message(&mut self) -> Result<Option<Received>, FrameError> {
        self.inlet.next_message()
    }
}
