//! Connections from the network: which ones a node hands on, and the guests at its door.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use sooner_protocol::time::Instant;
use sooner_wire::NodeId;
use sooner_wire::limits::{HANDSHAKES_MAX, PROBE_NANOS};
use sooner_wire::message::Message;

use super::{DOOR, FIRST_GUEST};
use crate::clock::now;
use crate::identity::{Destination, Identity};
use crate::node::accept::{Crowd, Entered, Entrance, Shares};
use crate::node::notes::Notes;
use crate::poller::{Event, Interest, Poller};
use crate::transport::{Conn, Stream, TlsStream};

/// Another node that will greet, or a peer that only checks whether this node is alive: the handshake shows
/// it.
struct Guest {
    framed: Conn,
    address: SocketAddr,
    until: Instant,
}

/// A connection that is let in.
pub(super) enum Knock {
    /// For another destination on this node. Nothing has been read from the socket.
    Other(OwnedFd, SocketAddr, Destination),
    /// For the link with another node, which has proved its identity; with its first message.
    Node(NodeId, Box<Conn>, Message),
}

/// See the module.
pub(super) struct Door {
    entrance: Entrance,
    identity: Identity,
    shares: Shares,
    guests: HashMap<u64, Guest>,
    next_token: u64,
}

impl Door {
    pub(super) fn open(
        listen: SocketAddr,
        node: NodeId,
        is_head: bool,
        identity: Identity,
        poller: &Poller,
    ) -> io::Result<Self> {
        let entrance = Entrance::open(listen, node, is_head)?;
        poller.add(&entrance, DOOR, Interest::Read)?;
        let (shares, guests) = (Shares::default(), HashMap::new());
        Ok(Self { entrance, identity, shares, guests, next_token: FIRST_GUEST })
    }

    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.entrance.address()
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let guests = self.guests.values().map(|guest| guest.until);
        self.entrance.next_deadline().into_iter().chain(guests).min()
    }

    /// Accepts what waits. Keeps guests, and returns the others.
    pub(super) fn on_knock(&mut self, poller: &Poller, notes: &mut Notes) -> Vec<Knock> {
        let time = now();
        self.guests.retain(|_, guest| guest.until > time);
        let (mut entered, mut others) = (Vec::new(), Vec::new());
        self.entrance.on_ready(time, &mut entered);
        for one in entered {
            match one {
                Entered::Arrived { socket, address, destination: Destination::Node } => {
                    if let Some((address, crowd)) = self.receive(socket, address, poller, time) {
                        notes.write_rationed(&format!("ended a connection from {address}: {crowd}"));
                    }
                }
                Entered::Arrived { socket, address, destination } => {
                    others.push(Knock::Other(socket, address, destination));
                }
                Entered::Refused { address, why } => {
                    notes.write_rationed(&format!("refused a connection from {address}: {why}"));
                }
                Entered::Paused(error) => {
                    notes.write_rationed(&format!("no connection can be taken now: {error}"));
                }
            }
        }
        others
    }

    /// Adds a guest. Returns the guest that made room for it, if any.
    fn receive(
        &mut self,
        socket: OwnedFd,
        address: SocketAddr,
        poller: &Poller,
        now: Instant,
    ) -> Option<(SocketAddr, Crowd)> {
        let guests = self.guests.iter().map(|(token, guest)| (*token, guest.address.ip()));
        let leaving = self.shares.leaving(guests, address.ip(), HANDSHAKES_MAX);
        let left = leaving.and_then(|(token, crowd)| Some((self.guests.remove(&token)?.address, crowd)));
        let token = self.next_token;
        self.next_token += 1;
        let stream = Stream::Tls(Box::new(TlsStream::accept(socket, &self.identity)));
        if let Ok(framed) = Conn::add(stream, poller, token) {
            self.guests.insert(token, Guest { framed, address, until: now.plus(PROBE_NANOS) });
        }
        left
    }

    pub(super) fn on_remote_job(&mut self, event: Event, poller: &Poller) -> Option<Knock> {
        let token = event.token;
        let guest = self.guests.get_mut(&token)?;
        if event.is_writable() {
            guest.framed.flush(poller);
        }
        if event.is_readable() {
            guest.framed.read(poller);
        }
        // A peer that only checks whether this node is alive sends nothing.
        match (guest.framed.next_message(), guest.framed.peer()) {
            (Some(hello @ Message::PeerHello(_)), Some(node)) => {
                let guest = self.guests.remove(&token)?;
                self.shares.on_proven(guest.address.ip());
                return Some(Knock::Node(node, Box::new(guest.framed), hello));
            }
            (None, _) if guest.framed.ended().is_none() => {}
            _ => drop(self.guests.remove(&token)),
        }
        None
    }
}
