//! Connections that are being made to other nodes: for this node's links, and for its processes, which get
//! them before a byte has been sent.
//!
//! Nothing here waits, and nothing is trusted: whoever gets the socket sees in the handshake which node
//! answers.
//!
//! A node that cannot be dialled is asked to dial ([`sooner_wire::message::DialMe`]). Its connection is then
//! expected here, for as long as dialling may take.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use sooner_protocol::time::Instant;
use sooner_wire::limits::{DIAL_NANOS, DIALS_MAX};
use sooner_wire::{NodeId, WorkerId};

use super::FIRST_DIAL;
use crate::poller::{Interest, Poller};
use crate::transport::dial::{dial, outcome};

/// For whom a connection is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Caller {
    /// For the link with this node.
    Link(NodeId),
    /// For a local process, to a process of another node.
    Process { client: WorkerId, to: WorkerId },
}

/// The outcome of a dial.
pub(super) type Dialled = (Caller, Result<OwnedFd, String>);

struct Dialling {
    caller: Caller,
    /// `None` when the other node was asked to dial.
    socket: Option<OwnedFd>,
    until: Instant,
}

/// See the module.
#[derive(Default)]
pub(super) struct Dials {
    open: BTreeMap<u64, Dialling>,
    made: u64,
}

impl Dials {
    /// Begins to dial. `Err` if that fails at once.
    pub(super) fn begin(
        &mut self,
        caller: Caller,
        address: SocketAddr,
        poller: &Poller,
        now: Instant,
    ) -> Result<(), String> {
        self.check_room()?;
        let socket = dial(address).map_err(|error| error.to_string())?;
        let token = FIRST_DIAL + self.made;
        poller.add(&socket, token, Interest::Write).map_err(|error| error.to_string())?;
        self.insert(caller, Some(socket), now);
        Ok(())
    }

    /// Expects a node that was asked to dial. If it does not come in time, [`Self::expire`] says so.
    pub(super) fn expect(&mut self, caller: Caller, now: Instant) -> Result<(), String> {
        self.check_room()?;
        self.insert(caller, None, now);
        Ok(())
    }

    /// A connection has come, perhaps expected.
    pub(super) fn has_come(&mut self, caller: Caller) {
        self.open.retain(|_, dialling| dialling.caller != caller || dialling.socket.is_some());
    }

    fn check_room(&self) -> Result<(), String> {
        if self.open.len() >= DIALS_MAX {
            return Err(format!("{DIALS_MAX} connections are being made already"));
        }
        Ok(())
    }

    fn insert(&mut self, caller: Caller, socket: Option<OwnedFd>, now: Instant) {
        let dialling = Dialling { caller, socket, until: now.plus(DIAL_NANOS) };
        self.open.insert(FIRST_DIAL + self.made, dialling);
        self.made += 1;
    }

    pub(super) fn on_ready(&mut self, token: u64, poller: &Poller) -> Option<Dialled> {
        let Dialling { caller, socket: Some(socket), .. } = self.open.remove(&token)? else { return None };
        // The socket's next owner may be another process: this poller would watch it for as long as that has
        // it.
        let _ = poller.remove(&socket);
        let made = outcome(&socket).map_err(|error| error.to_string());
        Some((caller, made.map(|()| socket)))
    }

    /// Takes the dials that had no answer in time.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<Dialled> {
        let mut late = Vec::new();
        while let Some(entry) = self.open.first_entry().filter(|entry| entry.get().until <= now) {
            let seconds = DIAL_NANOS / 1_000_000_000;
            let Dialling { caller, socket, .. } = entry.remove();
            let reason = match socket {
                Some(_) => format!("no answer within {seconds} s"),
                None => format!("it was asked to dial, and has not done so within {seconds} s"),
            };
            late.push((caller, Err(reason)));
        }
        late
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.open.values().next().map(|dialling| dialling.until)
    }
}
