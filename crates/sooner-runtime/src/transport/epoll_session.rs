//! A session in its owner's event loop: [`Session`] with its readers.
//!
//! Sessions between nodes and with the head use this. The owner makes connections when asked to, gives each a
//! token of its own, passes on the events under that token, and looks at [`EpollSession::take_news`] after
//! every call.

use std::sync::Arc;

use sooner_protocol::session::hello::Me;
use sooner_protocol::time::Instant;
use sooner_wire::WorkerId;
use sooner_wire::message::Message;

use super::session::{Failure, Session, SessionNews, Turn};
use super::{Ended, Inlet, ReadResult, Reader, Stream};
use crate::poller::Event;

/// See the module.
#[derive(Debug)]
pub struct EpollSession {
    wire: Session,
    /// Usually one; more while one connection replaces another.
    readers: Vec<Reader>,
}

impl EpollSession {
    /// See [`Session::new`].
    #[must_use]
    pub fn new(me: Arc<Me>, peer: WorkerId, session: u64, wins: bool) -> Self {
        Self { wire: Session::new(me, peer, session, wins), readers: Vec::new() }
    }

    /// The process at the other end, see [`Session::peer`].
    #[must_use]
    pub fn peer(&self) -> WorkerId {
        self.wire.peer()
    }

    /// Whether there is a connection.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.wire.is_open()
    }

    /// Why the session has ended, if it has.
    #[must_use]
    pub fn ended(&self) -> Option<&str> {
        self.wire.ended()
    }

    /// Why the last connection ended or could not be used, as far as it is known.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure> {
        self.wire.failure()
    }

    /// Bytes that are retained.
    #[must_use]
    pub fn retained(&self) -> usize {
        self.wire.retained()
    }

    /// See [`sooner_protocol::session::Link::is_full`].
    #[must_use]
    pub fn is_full(&self, of_all_lines: u64) -> bool {
        self.wire.is_full(of_all_lines)
    }

    /// See [`Session::is_acknowledged`].
    #[must_use]
    pub fn is_acknowledged(&self) -> bool {
        self.wire.is_acknowledged()
    }

    /// The buffer to append whole frames to.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        self.wire.buffer()
    }

    /// Queues a message for the next [`Self::flush`].
    pub fn push(&mut self, message: &Message) {
        self.wire.push(message);
    }

    /// Takes what the owner must learn, in order.
    pub fn take_news(&mut self) -> Vec<SessionNews> {
        let news = self.wire.take_news();
        for one in &news {
            if let SessionNews::Closed(token) = one {
                self.readers.retain(|reader| reader.token() != *token);
            }
        }
        news
    }

    /// A message will be sent soon: makes a connection if there is none.
    pub fn connect(&mut self, turn: Turn<'_>) {
        self.wire.connect(turn);
    }

    /// The connection that [`SessionNews::Dial`] asked for.
    pub fn on_dialled(&mut self, stream: Stream, token: u64, turn: Turn<'_>) {
        let reader = self.wire.on_dialled(stream, token, turn);
        self.readers.extend(reader);
    }

    /// No connection could be made.
    pub fn on_dial_failed(&mut self, reason: &str, turn: Turn<'_>) {
        self.wire.on_dial_failed(reason, turn);
    }

    /// A connection that the other end has dialled. The session reads the hello from it.
    pub fn on_arrived(&mut self, stream: Stream, token: u64, turn: Turn<'_>) {
        let reader = self.wire.on_arrived(stream, token, turn);
        self.readers.extend(reader);
    }

    /// A connection that the other end has dialled, and on which it has sent `hello`. `inlet` has what was
    /// read behind that.
    pub fn accept(&mut self, stream: Stream, inlet: Inlet, hello: Message, token: u64, turn: Turn<'_>) {
        if let Some(reader) = self.wire.accept(stream, inlet, hello, token, turn) {
            self.readers.push(reader);
        }
    }

    /// A connection is ready. Messages that count are appended to `out`.
    pub fn on_ready(&mut self, event: Event, turn: Turn<'_>, out: &mut Vec<Message>) {
        let token = event.token;
        let Some(reader) = self.readers.iter_mut().find(|reader| reader.token() == token) else { return };
        let mut result = ReadResult::Nothing;
        if event.is_readable() {
            result = reader.read();
        }
        self.wire.after_read(token, turn);
        let mut failure = None;
        loop {
            match reader.next_message() {
                Ok(Some(received)) => out.extend(self.wire.receive(token, received, turn)),
                Ok(None) => break,
                Err(error) => {
                    failure = Some(Failure::Ended(Ended::Frame(error.to_string())));
                    break;
                }
            }
        }
        if failure.is_some() || result == ReadResult::End {
            self.wire.on_end(token, failure, turn);
        }
    }

    /// Sends what the connection takes; asks for a connection if something is queued and there is none.
    pub fn flush(&mut self, turn: Turn<'_>) {
        self.wire.flush(turn);
    }

    /// Ends the session: the other end learns it, now or when it comes back.
    pub fn end(&mut self, reason: &str, turn: Turn<'_>) {
        self.wire.end(reason, turn);
    }

    /// When [`Self::on_timer`] has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.wire.next_deadline()
    }

    /// Time has passed.
    pub fn on_timer(&mut self, turn: Turn<'_>) {
        self.wire.on_timer(turn);
        self.wire.flush(turn);
    }

    /// See [`Session::patient`].
    #[must_use]
    pub fn patient(self) -> Self {
        Self { wire: self.wire.patient(), ..self }
    }

    /// Drops the connection; the side that dials makes another one.
    pub fn cut(&mut self, reason: &str, turn: Turn<'_>) {
        self.wire.cut(reason, turn);
    }

    /// Drops all connections without a message, because this process ends or its peer is dead.
    pub fn close(&mut self, turn: Turn<'_>) {
        self.wire.close(turn);
    }
}
