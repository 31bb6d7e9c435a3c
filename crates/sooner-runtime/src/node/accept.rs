//! The door of a node: accepts connections from other machines, finds the destination of each, and hands it
//! on untouched.
//!
//! The destination of a connection stands in the first message of TLS. The door looks at it without reading
//! it (`MSG_PEEK`), so that whoever gets the socket, in this process or another, does the whole handshake
//! itself. Nothing is believed here: a connection that is handed on is as untrusted as before. Nothing waits
//! here, either: this is a part of its owner's event loop, one descriptor ([`AsFd`]) that is readable when
//! [`Entrance::on_ready`] has something to do, and a deadline.

mod client_hello;
mod doorman;
mod shares;

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use sooner_protocol::time::Instant;
use sooner_wire::NodeId;
use sooner_wire::limits::{PEEK_BYTES, PEEKS_MAX};

use crate::identity::Destination;
use crate::poller::{Events, Interest, Poller};

pub use client_hello::{ClientHello, HelloFault, look};
pub use doorman::{Doorman, Verdict, Visitor, Why};
pub use shares::{Crowd, Shares};

const LISTENER: u64 = 0;
const FIRST_VISITOR: u64 = 1;
/// Turns of looking at all that wait, and connections accepted in each, before the owner's loop has its turn
/// again.
const TURNS: usize = 4;
const TAKEN_AT_A_TIME: usize = 16;
/// How long no connection is accepted when the system has no descriptor for it (nanoseconds).
const PAUSE_NANOS: u64 = 100_000_000;

/// An event at the door.
#[derive(Debug)]
pub enum Entered {
    /// A connection and its destination.
    Arrived {
        /// Nothing has been read from it. It does not block.
        socket: OwnedFd,
        /// The peer's address.
        address: SocketAddr,
        /// The destination that the peer names.
        destination: Destination,
    },
    /// A connection was refused: for the log.
    Refused {
        /// The peer's address.
        address: SocketAddr,
        /// The reason, in one sentence.
        why: Why,
    },
    /// No connection can be accepted for now: for the log.
    Paused(io::Error),
}

struct Waiting {
    socket: TcpStream,
    visitor: Visitor,
}

/// See the module.
pub struct Entrance {
    listener: TcpListener,
    poller: Poller,
    doorman: Doorman,
    shares: Shares,
    /// In the order in which they came.
    waiting: BTreeMap<u64, Waiting>,
    next_token: u64,
    /// Until when no connection is accepted.
    paused: Option<Instant>,
}

impl Entrance {
    /// Listens at `address` (port 0: any that is free) for the node, which `is_head` of its cluster or not.
    ///
    /// # Errors
    /// The system's error with the address: the port is taken, the address is not one of this machine.
    pub fn open(address: SocketAddr, node: NodeId, is_head: bool) -> io::Result<Self> {
        let listener = TcpListener::bind(address).map_err(|error| {
            let remedy = match error.kind() {
                io::ErrorKind::AddrInUse => ": choose another port, or end the program that uses it",
                io::ErrorKind::AddrNotAvailable => ": it is no address of this machine",
                io::ErrorKind::PermissionDenied => ": ports below 1024 need privileges",
                _ => "",
            };
            io::Error::new(error.kind(), format!("cannot listen at {address}: {error}{remedy}"))
        })?;
        listener.set_nonblocking(true)?;
        let poller = Poller::new()?;
        poller.add(&listener, LISTENER, Interest::Read)?;
        Ok(Self {
            listener,
            poller,
            doorman: Doorman::new(node, is_head),
            shares: Shares::default(),
            waiting: BTreeMap::new(),
            next_token: FIRST_VISITOR,
            paused: None,
        })
    }

    /// Where it listens, with the port that was free.
    ///
    /// # Errors
    /// The system's error.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// When [`Self::on_ready`] is to be called although nothing is ready.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let oldest = self.waiting.values().next().map(|waiting| self.doorman.deadline(&waiting.visitor));
        [oldest, self.paused].into_iter().flatten().min()
    }

    /// Accepts, looks, hands on and refuses, as far as possible without waiting.
    pub fn on_ready(&mut self, now: Instant, out: &mut Vec<Entered>) {
        self.expire(now, out);
        let mut events = Events::with_capacity(TAKEN_AT_A_TIME);
        for _ in 0..TURNS {
            if self.poller.wait(&mut events, Some(0)).is_err() || events.is_empty() {
                return;
            }
            for event in &events {
                match event.token {
                    LISTENER => self.take(now, out),
                    token => self.look(token, event.has_ended(), out),
                }
            }
        }
    }

    fn take(&mut self, now: Instant, out: &mut Vec<Entered>) {
        for _ in 0..TAKEN_AT_A_TIME {
            let (socket, address) = match self.listener.accept() {
                Ok(taken) => taken,
                Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
                    Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                        out.push(Entered::Paused(error));
                        return self.pause(now.plus(PAUSE_NANOS));
                    }
                    // No connection waits, or its peer has left.
                    _ => return,
                },
            };
            let visitor = Visitor { address, since: now };
            let waiting = self.waiting.iter().map(|(token, one)| (*token, one.visitor.address.ip()));
            if let Some((token, crowd)) = self.shares.leaving(waiting, address.ip(), PEEKS_MAX) {
                self.refuse(token, Why::MadeRoom(crowd), out);
            }
            // Most peers have sent all before they are accepted: those never wait.
            if let Some(token) = self.admit(socket, visitor) {
                self.look(token, false, out);
            }
        }
    }

    fn pause(&mut self, until: Instant) {
        self.paused = Some(until);
        let _ = self.poller.change(&self.listener, LISTENER, Interest::Nothing);
    }

    fn admit(&mut self, socket: TcpStream, visitor: Visitor) -> Option<u64> {
        let token = self.next_token;
        self.next_token += 1;
        // Bytes that are only looked at stay readable: each arrival is told once.
        let is_watched = self.poller.add(&socket, token, Interest::Arrivals).is_ok();
        if socket.set_nonblocking(true).is_err() || !is_watched {
            return None;
        }
        self.waiting.insert(token, Waiting { socket, visitor });
        Some(token)
    }

    fn look(&mut self, token: u64, has_ended: bool, out: &mut Vec<Entered>) {
        let Some(waiting) = self.waiting.get(&token) else { return };
        let mut bytes = [0; PEEK_BYTES];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let count = match rustix::net::recv(&waiting.socket, &mut bytes, flags) {
            Ok((count, _)) => count,
            // Nothing yet; or an end, which the flags show as well.
            Err(_) => 0,
        };
        match self.doorman.on_bytes(&bytes[..count], has_ended) {
            Verdict::Wait => {}
            Verdict::Deliver(destination) => {
                let waiting = self.waiting.remove(&token).expect("looked up above");
                let _ = self.poller.remove(&waiting.socket);
                let socket = waiting.socket.into();
                out.push(Entered::Arrived { socket, address: waiting.visitor.address, destination });
            }
            Verdict::Refuse(why) => self.refuse(token, why, out),
        }
    }

    fn expire(&mut self, now: Instant, out: &mut Vec<Entered>) {
        while let Some((token, waiting)) = self.waiting.first_key_value() {
            let Some(why) = self.doorman.on_time(&waiting.visitor, now) else { break };
            self.refuse(*token, why, out);
        }
        if self.paused.is_some_and(|until| until <= now) {
            self.paused = None;
            let _ = self.poller.change(&self.listener, LISTENER, Interest::Read);
        }
    }

    fn refuse(&mut self, token: u64, why: Why, out: &mut Vec<Entered>) {
        let Some(waiting) = self.waiting.remove(&token) else { return };
        let _ = self.poller.remove(&waiting.socket);
        if let Some(alert) = why.alert() {
            send(waiting.socket.as_fd(), alert);
        }
        out.push(Entered::Refused { address: waiting.visitor.address, why });
    }
}

/// Ends a connection that was handed on, but whose destination is not here, and tells the peer so.
pub fn turn_away(socket: OwnedFd) {
    send(socket.as_fd(), doorman::NOT_HERE);
}

/// Ends a connection that was handed on, for want of room, and tells the peer so.
pub fn turn_back(socket: OwnedFd) {
    send(socket.as_fd(), doorman::NO_ROOM);
}

fn send(socket: BorrowedFd<'_>, alert: doorman::Alert) {
    // Reads the bytes that were only looked at: closing a socket with unread bytes could drop the alert.
    let _ = rustix::net::recv(socket, &mut [0; PEEK_BYTES], RecvFlags::DONTWAIT);
    let _ = rustix::net::send(socket, &alert, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

impl AsFd for Entrance {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
