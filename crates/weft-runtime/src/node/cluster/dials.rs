//! Connections that are being made to other nodes: for the links of this node, and for its processes, which get them before a
//! byte has gone over them.
//!
//! Nothing here waits, and nobody is believed: who answers is seen in the handshake, by whoever gets the socket.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::event::epoll::{self, EventData, EventFlags};
use weft_protocol::time::Instant;
use weft_wire::limits::{DIAL_NANOS, DIALS_MAX};
use weft_wire::{NodeId, WorkerId};

use super::FIRST_DIAL;
use crate::transport::dial::{dial, outcome};

/// For whom a connection is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Caller {
    /// For the link with this node.
    Link(NodeId),
    /// For a process here, which wants to speak with one there.
    Process { client: WorkerId, to: WorkerId },
}

/// How it went.
pub(super) type Dialled = (Caller, Result<OwnedFd, String>);

struct Dialling {
    caller: Caller,
    socket: OwnedFd,
    until: Instant,
}

/// See the module.
#[derive(Default)]
pub(super) struct Dials {
    open: BTreeMap<u64, Dialling>,
    made: u64,
}

impl Dials {
    /// Begins a connection. `Err` if it is known at once that there is none.
    pub(super) fn begin(
        &mut self,
        caller: Caller,
        address: SocketAddr,
        epoll: &OwnedFd,
        now: Instant,
    ) -> Result<(), String> {
        if self.open.len() >= DIALS_MAX {
            return Err(format!("{DIALS_MAX} connections are being made already"));
        }
        let socket = dial(address).map_err(|error| error.to_string())?;
        let token = FIRST_DIAL + self.made;
        self.made += 1;
        let data = EventData::new_u64(token);
        epoll::add(epoll, &socket, data, EventFlags::OUT).map_err(|error| error.to_string())?;
        self.open.insert(token, Dialling { caller, socket, until: now.plus(DIAL_NANOS) });
        Ok(())
    }

    pub(super) fn on_ready(&mut self, token: u64, epoll: &OwnedFd) -> Option<Dialled> {
        let Dialling { caller, socket, .. } = self.open.remove(&token)?;
        // Its next owner may be another process: it would be watched here for as long as that one has it.
        let _ = epoll::delete(epoll, &socket);
        let made = outcome(&socket).map_err(|error| error.to_string());
        Some((caller, made.map(|()| socket)))
    }

    /// What was not answered in time.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<Dialled> {
        let mut late = Vec::new();
        while let Some(entry) = self.open.first_entry().filter(|entry| entry.get().until <= now) {
            let reason = format!("no answer within {} s", DIAL_NANOS / 1_000_000_000);
            late.push((entry.remove().caller, Err(reason)));
        }
        late
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.open.values().next().map(|dialling| dialling.until)
    }
}
