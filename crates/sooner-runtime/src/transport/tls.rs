//! An encrypted connection over a socket that does not block.
//!
//! The library only transforms bytes; the socket is read and written here. No byte is handed up before the
//! peer has proved who it is, and none is taken from the owner before that: it waits with the owner.
//!
//! One thread may read while another writes: each takes the lock for one turn, never for a wait.

use std::fmt;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use sooner_wire::NodeId;

use super::failure::TlsFailure;
use crate::identity::{Fingerprint, Identity, node_of};

/// The most encrypted bytes read at a time. A reader with this much room never leaves anything behind.
pub const READ_BYTES_MAX: usize = 64 << 10;
/// Encrypted bytes read at a time at first, since most lines are quiet.
const READ_BYTES_MIN: usize = 4 << 10;
/// Bytes encrypted at a time: four records.
const WRITE_BYTES: usize = 64 << 10;
/// How many of a peer's first bytes are kept, to recognise what it speaks if it is not TLS.
const FIRST_BYTES: usize = 16;

/// See the module.
pub struct TlsStream {
    socket: OwnedFd,
    state: Mutex<State>,
}

enum Machine {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

struct State {
    machine: Machine,
    cluster: Fingerprint,
    first: Vec<u8>,
    incoming: Incoming,
    outgoing: Outgoing,
    /// Decrypted bytes for which the last reader had no room, and how many of them were read since.
    spilled: Vec<u8>,
    taken: usize,
    /// The node that the peer has proved to be on.
    peer: Option<NodeId>,
    /// The peer will send nothing more.
    has_ended: bool,
    failure: Option<TlsFailure>,
}

/// Encrypted bytes that are not yet decrypted, in `start..end`.
#[derive(Debug, Default)]
struct Incoming {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

/// Encrypted bytes that the socket has not taken yet, in `start..end`.
#[derive(Debug, Default)]
struct Outgoing {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

/// Where decrypted bytes go.
struct Sink<'a> {
    out: &'a mut [u8],
    filled: usize,
    spilled: &'a mut Vec<u8>,
}

/// Receives decrypted bytes, piece by piece.
trait Take {
    fn put(&mut self, bytes: &[u8]);
}

/// The bytes to encrypt, and how many of them have been.
struct Source<'a> {
    parts: &'a [IoSlice<'a>],
    written: usize,
    ends: bool,
}

/// What to do after one step of the library.
enum Step {
    /// Call the library again.
    Again,
    /// The library needs more bytes from outside.
    Idle,
    /// The peer has announced its end.
    Ended,
}

const NOTHING: Source<'static> = Source { parts: &[], written: 0, ends: false };

impl TlsStream {
    /// The side that dialled; `name` is the peer it expects ([`crate::identity::Destination::server_name`]).
    #[must_use]
    pub fn dial(socket: OwnedFd, identity: &Identity, name: ServerName<'static>) -> Self {
        let machine =
            UnbufferedClientConnection::new(identity.client(), name).expect("a fixed configuration");
        Self::new(socket, Machine::Client(machine), identity)
    }

    /// The side that was dialled, with a socket from which nothing has been read.
    #[must_use]
    pub fn accept(socket: OwnedFd, identity: &Identity) -> Self {
        let machine = UnbufferedServerConnection::new(identity.server()).expect("a fixed configuration");
        Self::new(socket, Machine::Server(machine), identity)
    }

    fn new(socket: OwnedFd, machine: Machine, identity: &Identity) -> Self {
        // A short message must not wait for the acknowledgement of the one before. Fails if not on TCP.
        let _ = rustix::net::sockopt::set_tcp_nodelay(&socket, true);
        super::dial::notice_silence(&socket);
        let _ = rustix::io::ioctl_fionbio(&socket, true);
        let state = State {
            machine,
            cluster: identity.cluster(),
            first: Vec::new(),
            incoming: Incoming::default(),
            outgoing: Outgoing::default(),
            spilled: Vec::new(),
            taken: 0,
            peer: None,
            has_ended: false,
            failure: None,
        };
        Self { socket, state: Mutex::new(state) }
    }

    /// The node that the peer is on; `None` until it has proved that.
    #[must_use]
    pub fn peer(&self) -> Option<NodeId> {
        self.state.lock().peer
    }

    /// Why the connection ended, or why it cannot go on. An end that the peer announced is no failure.
    #[must_use]
    pub fn failure(&self) -> Option<TlsFailure> {
        self.state.lock().failure.clone()
    }

    /// Ends the connection from this side, for the given reason, such as a deadline that the owner holds.
    pub fn fail(&self, failure: TlsFailure) {
        self.state.lock().failure.get_or_insert(failure);
    }

    /// Reads decrypted bytes into `out`.
    ///
    /// Reads the socket until bytes can be handed up or the socket has none. If fewer bytes are returned than
    /// `out` has room for, no complete record is left behind; with [`READ_BYTES_MAX`] of room none ever is.
    ///
    /// # Errors
    /// `AGAIN` when nothing is there now; any other means that [`Self::failure`] has the reason. `Ok(0)` is
    /// an end that the peer announced.
    pub fn read(&self, out: &mut [u8]) -> rustix::io::Result<usize> {
        self.state.lock().read(&self.socket, out)
    }

    /// Reads the socket until it has no more or at least `enough` decrypted bytes came. Passes them to `take`
    /// where they lie, so that moving them to their destination takes one copy. Returns how many came.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_each(&self, enough: usize, take: impl FnMut(&[u8])) -> rustix::io::Result<usize> {
        self.state.lock().read_each(&self.socket, enough, take)
    }

    /// Encrypts and sends what the socket takes of `parts`, in order. Returns how many of their bytes were
    /// taken; some of these may still wait here, see [`Self::flush`].
    ///
    /// # Errors
    /// `AGAIN` when nothing can be taken now, also because the peer has not proved yet who it is; `PIPE` when
    /// the connection has ended.
    pub fn write(&self, parts: &[IoSlice<'_>]) -> rustix::io::Result<usize> {
        self.state.lock().write(&self.socket, parts)
    }

    /// Sends what waits here; for the side that dialled this begins the handshake. True when nothing waits
    /// any more.
    ///
    /// # Errors
    /// Any means that the connection has ended.
    pub fn flush(&self) -> rustix::io::Result<bool> {
        let mut state = self.state.lock();
        if state.failure.is_some() {
            return Err(Errno::PIPE);
        }
        state.advance(&self.socket)?;
        Ok(state.outgoing.is_empty())
    }

    /// Whether to watch for the socket to become writable: bytes wait here, or (`has_more`) with the owner
    /// and could be taken.
    #[must_use]
    pub fn wants_write(&self, has_more: bool) -> bool {
        let state = self.state.lock();
        state.failure.is_none() && (!state.outgoing.is_empty() || (has_more && state.peer.is_some()))
    }

    /// Announces to the peer that nothing more comes, as far as the socket takes it.
    pub fn end(&self) {
        let mut state = self.state.lock();
        let mut source = Source { ends: true, ..NOTHING };
        if state.failure.is_none() {
            state.turn(&mut [], &mut source);
            let _ = state.send(&self.socket);
        }
    }
}

#[cfg(test)]
impl TlsStream {
    /// Whether bytes that could be handed up are left here.
    pub(super) fn leaves_something(&self) -> bool {
        let state = self.state.lock();
        // An incomplete record is shorter than the longest record (RFC 8446, section 5.2).
        !state.spilled.is_empty() || state.incoming.waiting().len() >= 5 + (1 << 14) + 256
    }
}

impl fmt::Debug for TlsStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        write!(f, "TlsStream(peer {:?}, failure {:?})", state.peer, state.failure)
    }
}

impl AsFd for TlsStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl State {
    fn read(&mut self, socket: &OwnedFd, out: &mut [u8]) -> rustix::io::Result<usize> {
        let mut filled = self.take_spilled(out);
        while filled == 0 && !out.is_empty() && self.failure.is_none() && !self.has_ended {
            match self.incoming.receive(socket) {
                Ok(0) => self.on_end_of_stream(),
                Ok(_) => filled = self.turn(out, &mut { NOTHING }),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => self.failure = Some(TlsFailure::Socket(error)),
            }
        }
        // Sends answers of the handshake, or the alert after a failure: the peer may receive it, or not.
        let _ = self.send(socket);
        self.outcome(filled)
    }

    /// The result of a read that got `filled` bytes.
    fn outcome(&self, filled: usize) -> rustix::io::Result<usize> {
        match (filled, &self.failure) {
            (1.., _) => Ok(filled),
            (0, Some(_)) => Err(Errno::PROTO),
            (0, None) if self.has_ended => Ok(0),
            (0, None) => Err(Errno::AGAIN),
        }
    }

    fn read_each(
        &mut self,
        socket: &OwnedFd,
        enough: usize,
        take: impl FnMut(&[u8]),
    ) -> rustix::io::Result<usize> {
        let mut sink = Each { take, count: 0 };
        if !self.spilled.is_empty() {
            let spilled = std::mem::take(&mut self.spilled);
            sink.put(&spilled[std::mem::take(&mut self.taken)..]);
        }
        while sink.count < enough && self.failure.is_none() && !self.has_ended {
            match self.incoming.receive(socket) {
                Ok(0) => self.on_end_of_stream(),
                Ok(_) => self.work(&mut sink, &mut { NOTHING }),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => self.failure = Some(TlsFailure::Socket(error)),
            }
        }
        let _ = self.send(socket);
        self.outcome(sink.count)
    }

    fn write(&mut self, socket: &OwnedFd, parts: &[IoSlice<'_>]) -> rustix::io::Result<usize> {
        if self.failure.is_some() {
            return Err(Errno::PIPE);
        }
        self.advance(socket)?;
        if self.peer.is_none() || !self.outgoing.is_empty() {
            return Err(Errno::AGAIN);
        }
        let mut source = Source { parts, ..NOTHING };
        self.turn(&mut [], &mut source);
        if self.failure.is_some() {
            return Err(Errno::PIPE);
        }
        self.send(socket)?;
        Ok(source.written)
    }

    /// Continues the handshake, if there is one, and sends what waits.
    fn advance(&mut self, socket: &OwnedFd) -> rustix::io::Result<()> {
        if self.peer.is_none() {
            self.turn(&mut [], &mut { NOTHING });
        }
        self.send(socket)
    }

    fn take_spilled(&mut self, out: &mut [u8]) -> usize {
        let count = out.len().min(self.spilled.len() - self.taken);
        out[..count].copy_from_slice(&self.spilled[self.taken..self.taken + count]);
        self.taken += count;
        if self.taken == self.spilled.len() {
            self.spilled = Vec::new();
            self.taken = 0;
        }
        count
    }

    fn on_end_of_stream(&mut self) {
        self.has_ended = true;
        // Without an announcement by the peer, this may not be all.
        self.failure = Some(if self.peer.is_some() { TlsFailure::Cut } else { TlsFailure::CutInHandshake });
    }

    /// Lets the library work until it needs more from outside, or has failed. Returns how many decrypted
    /// bytes lie in `out`.
    fn turn(&mut self, out: &mut [u8], source: &mut Source<'_>) -> usize {
        let mut spilled = std::mem::take(&mut self.spilled);
        let mut sink = Sink { out, filled: 0, spilled: &mut spilled };
        self.work(&mut sink, source);
        let filled = sink.filled;
        self.spilled = spilled;
        filled
    }

    /// Like [`Self::turn`], with all decrypted bytes going to `sink`.
    fn work(&mut self, sink: &mut dyn Take, source: &mut Source<'_>) {
        if self.first.len() < FIRST_BYTES {
            let more = self.incoming.waiting().iter().take(FIRST_BYTES - self.first.len());
            self.first.extend(more);
        }
        loop {
            let records = &mut self.incoming.buffer[self.incoming.start..self.incoming.end];
            let (discard, step) = match &mut self.machine {
                Machine::Client(client) => {
                    step(client.process_tls_records(records), sink, source, &mut self.outgoing)
                }
                Machine::Server(server) => {
                    step(server.process_tls_records(records), sink, source, &mut self.outgoing)
                }
            };
            self.incoming.start += discard;
            match step {
                Ok(Step::Again) => {}
                Ok(Step::Ended) => self.has_ended = true,
                Ok(Step::Idle) => break,
                Err(error) => return self.on_error(error),
            }
        }
        if self.peer.is_none() {
            self.learn_peer();
        }
        if self.has_ended && self.peer.is_none() {
            self.failure.get_or_insert(TlsFailure::CutInHandshake);
        }
    }

    fn on_error(&mut self, error: rustls::Error) {
        self.failure = Some(TlsFailure::of(error, &self.first, self.peer.is_some(), &self.cluster));
        // The library has one more thing to say, to the peer. What the peer said is not looked at any more:
        // the library must not be asked for more than it has to say, its notes are about bytes that it does
        // not get.
        let mut sink = Sink { out: &mut [], filled: 0, spilled: &mut Vec::new() };
        let source = &mut { NOTHING };
        loop {
            let (_, step) = match &mut self.machine {
                Machine::Client(client) if client.wants_write() => {
                    step(client.process_tls_records(&mut []), &mut sink, source, &mut self.outgoing)
                }
                Machine::Server(server) if server.wants_write() => {
                    step(server.process_tls_records(&mut []), &mut sink, source, &mut self.outgoing)
                }
                _ => return,
            };
            if !matches!(step, Ok(Step::Again)) {
                return;
            }
        }
    }

    fn learn_peer(&mut self) {
        let certificates = match &self.machine {
            Machine::Client(client) if !client.is_handshaking() => client.peer_certificates(),
            Machine::Server(server) if !server.is_handshaking() => server.peer_certificates(),
            _ => return,
        };
        self.peer = certificates.and_then(|chain| chain.first()).and_then(node_of);
        if self.peer.is_none() {
            self.failure = Some(TlsFailure::NotANode);
        }
    }

    fn send(&mut self, socket: &OwnedFd) -> rustix::io::Result<()> {
        let result = self.outgoing.send(socket);
        if let Err(error) = result
            && self.failure.is_none()
        {
            // The peer's last message may still be there to read, and tells more than this error.
            self.read_reason(socket);
            self.failure.get_or_insert(TlsFailure::Socket(error));
        }
        result
    }

    fn read_reason(&mut self, socket: &OwnedFd) {
        if matches!(self.incoming.receive(socket), Ok(1..)) {
            self.turn(&mut [], &mut { NOTHING });
        }
    }
}

fn step<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    sink: &mut dyn Take,
    source: &mut Source<'_>,
    outgoing: &mut Outgoing,
) -> (usize, Result<Step, rustls::Error>) {
    let UnbufferedStatus { mut discard, state } = status;
    let state = match state {
        Ok(state) => state,
        Err(error) => return (discard, Err(error)),
    };
    let step = match state {
        ConnectionState::ReadTraffic(mut traffic) => {
            while let Some(record) = traffic.next_record() {
                match record {
                    Ok(record) => {
                        discard += record.discard;
                        sink.put(record.payload);
                    }
                    Err(error) => return (discard, Err(error)),
                }
            }
            Step::Again
        }
        ConnectionState::EncodeTlsData(mut data) => {
            outgoing.append(|space| match data.encode(space) {
                Ok(bytes) => Ok(bytes),
                Err(EncodeError::InsufficientSize(wanted)) => Err(wanted.required_size),
                Err(EncodeError::AlreadyEncoded) => Ok(0),
            });
            Step::Again
        }
        // What is encoded stays in `outgoing` until the socket has taken it, in order with all that follows.
        ConnectionState::TransmitTlsData(data) => {
            data.done();
            Step::Again
        }
        ConnectionState::PeerClosed => Step::Ended,
        ConnectionState::WriteTraffic(mut traffic) => {
            let mut encrypted = Ok(());
            while let Some(part) = source.next() {
                outgoing.append(|space| match traffic.encrypt(part, space) {
                    Ok(bytes) => Ok(bytes),
                    Err(EncryptError::InsufficientSize(wanted)) => Err(wanted.required_size),
                    Err(EncryptError::EncryptExhausted) => {
                        encrypted = Err(rustls::Error::EncryptError);
                        Ok(0)
                    }
                });
                if encrypted.is_err() {
                    break;
                }
                source.written += part.len();
            }
            if std::mem::take(&mut source.ends) {
                outgoing.append(|space| match traffic.queue_close_notify(space) {
                    Err(EncryptError::InsufficientSize(wanted)) => Err(wanted.required_size),
                    Ok(bytes) => Ok(bytes),
                    Err(EncryptError::EncryptExhausted) => Ok(0),
                });
            }
            return (discard, encrypted.map(|()| Step::Idle));
        }
        // Closed, or waiting for the peer; data before the handshake is neither requested nor accepted.
        _ => Step::Idle,
    };
    (discard, Ok(step))
}

impl Incoming {
    fn waiting(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Reads the socket once. Never called while a complete record waits, so there is always room for the
    /// rest of one.
    fn receive(&mut self, socket: &OwnedFd) -> rustix::io::Result<usize> {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        } else if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.buffer.is_empty() {
            self.buffer.resize(READ_BYTES_MIN, 0);
        } else if self.end == self.buffer.len() {
            // No TLS record is that long.
            return Err(Errno::NOBUFS);
        }
        let (bytes, _) = rustix::net::recv(socket, &mut self.buffer[self.end..], RecvFlags::DONTWAIT)?;
        self.end += bytes;
        if self.end == self.buffer.len() && self.end < READ_BYTES_MAX {
            // More bytes wait, or the rest of a record.
            self.buffer.resize(2 * self.end, 0);
        }
        Ok(bytes)
    }
}

impl Outgoing {
    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Lets `write` fill the space at the end; it returns how many bytes it wrote, or how many it needs.
    fn append(&mut self, mut write: impl FnMut(&mut [u8]) -> Result<usize, usize>) {
        loop {
            match write(&mut self.buffer[self.end..]) {
                Ok(bytes) => {
                    self.end += bytes;
                    return;
                }
                Err(needed) => self.buffer.resize(self.end + needed, 0),
            }
        }
    }

    fn send(&mut self, socket: &OwnedFd) -> rustix::io::Result<()> {
        while self.start < self.end {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match rustix::net::send(socket, &self.buffer[self.start..self.end], flags) {
                Ok(bytes) => self.start += bytes,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.start = 0;
        self.end = 0;
        Ok(())
    }
}

/// Passes all bytes on and keeps none.
struct Each<F> {
    take: F,
    count: usize,
}

impl<F: FnMut(&[u8])> Take for Each<F> {
    fn put(&mut self, bytes: &[u8]) {
        (self.take)(bytes);
        self.count += bytes.len();
    }
}

impl Take for Sink<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let count = if self.spilled.is_empty() { bytes.len().min(self.out.len() - self.filled) } else { 0 };
        self.out[self.filled..self.filled + count].copy_from_slice(&bytes[..count]);
        self.filled += count;
        self.spilled.extend_from_slice(&bytes[count..]);
    }
}

impl<'a> Source<'a> {
    /// The next bytes to encrypt; `None` if none are left, or enough were encrypted for one turn.
    fn next(&self) -> Option<&'a [u8]> {
        let mut at = self.written;
        for part in self.parts {
            if at < part.len() {
                let room = WRITE_BYTES.checked_sub(self.written).filter(|room| *room > 0)?;
                return Some(&part[at..part.len().min(at + room)]);
            }
            at -= part.len();
        }
        None
    }
}
