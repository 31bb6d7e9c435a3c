//! Probes: dials nodes that are in doubt, to see whether the port answers, and whether it is that node.
//!
//! Only a connection that the other machine refuses proves that the node is dead (`docs/adr/0022`). All else
//! may be due to the network, a device in between, or a busy node: silence for a second is no proof. A
//! connection that ends without an answer may be one that the system accepted while the daemon's sockets were
//! being closed, so it is dialled once more.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use sooner_protocol::control::Probed;
use sooner_protocol::time::Instant;
use sooner_wire::NodeId;
use sooner_wire::limits::PROBE_NANOS;

use crate::identity::{Destination, Identity};
use crate::poller::{Events, Interest, Poller};
use crate::transport::dial::{dial, outcome};
use crate::transport::{Conn, Stream, TlsStream};

enum Stage {
    Connecting(OwnedFd),
    Shaking(Box<Conn>),
}

struct Probe {
    node: NodeId,
    number: u32,
    until: Instant,
    address: SocketAddr,
    may_dial_again: bool,
    stage: Stage,
}

/// The result of a probe: the node, the number with which the probe was begun, and the finding.
pub(super) type Answer = (NodeId, u32, Probed);

/// See the module.
pub(super) struct Probes {
    identity: Identity,
    poller: Poller,
    probes: BTreeMap<u64, Probe>,
    next_token: u64,
}

impl Probes {
    pub(super) fn new(identity: Identity) -> io::Result<Self> {
        let poller = Poller::new()?;
        Ok(Self { identity, poller, probes: BTreeMap::new(), next_token: 0 })
    }

    /// Readable when [`Self::on_ready`] has something to do.
    pub(super) fn events(&self) -> &Poller {
        &self.poller
    }

    /// Begins a probe; returns its result if that is known at once.
    pub(super) fn begin(&mut self, node: NodeId, number: u32, address: &str, now: Instant) -> Option<Probed> {
        let Ok(address) = address.parse::<SocketAddr>() else { return Some(Probed::Silent) };
        let until = now.plus(PROBE_NANOS);
        self.dial(|stage| Probe { node, number, until, address, may_dial_again: true, stage }, address)
    }

    fn dial(&mut self, probe: impl FnOnce(Stage) -> Probe, address: SocketAddr) -> Option<Probed> {
        let socket = match dial(address) {
            Ok(socket) => socket,
            Err(error) => return Some(of_error(&error)),
        };
        let token = self.next_token;
        self.next_token += 1;
        if self.poller.add(&socket, token, Interest::Write).is_err() {
            return Some(Probed::Silent);
        }
        self.probes.insert(token, probe(Stage::Connecting(socket)));
        None
    }

    pub(super) fn on_ready(&mut self) -> Vec<Answer> {
        let mut events = Events::with_capacity(64);
        let _ = self.poller.wait(&mut events, Some(0));
        let mut answers = Vec::new();
        for event in &events {
            let token = event.token;
            let Some(probe) = self.probes.remove(&token) else { continue };
            let Probe { node, number, until, address, may_dial_again, .. } = probe;
            let probed = match self.advance(token, probe) {
                Ok(probe) => {
                    self.probes.insert(token, probe);
                    None
                }
                Err(Probed::Silent) if may_dial_again => self.dial(
                    |stage| Probe { node, number, until, address, may_dial_again: false, stage },
                    address,
                ),
                Err(probed) => Some(probed),
            };
            answers.extend(probed.map(|probed| (node, number, probed)));
        }
        answers
    }

    fn advance(&self, token: u64, mut probe: Probe) -> Result<Probe, Probed> {
        match probe.stage {
            Stage::Connecting(socket) => {
                outcome(&socket).map_err(|error| of_error(&error))?;
                let _ = self.poller.remove(&socket);
                let name = Destination::Node.server_name(probe.node);
                let stream = Stream::Tls(Box::new(TlsStream::dial(socket, &self.identity, name)));
                let framed = Conn::add(stream, &self.poller, token).map_err(|_| Probed::Silent)?;
                Ok(Probe { stage: Stage::Shaking(Box::new(framed)), ..probe })
            }
            Stage::Shaking(ref mut framed) => {
                framed.read(&self.poller);
                framed.flush(&self.poller);
                match (framed.peer(), framed.ended()) {
                    (Some(node), _) => {
                        framed.end();
                        Err(Probed::Answered(node))
                    }
                    (None, Some(_)) => Err(Probed::Silent),
                    (None, None) => Ok(probe),
                }
            }
        }
    }

    /// Ends the probes that were not answered in time.
    pub(super) fn expire(&mut self, now: Instant) -> Vec<Answer> {
        let mut answers = Vec::new();
        while let Some(entry) = self.probes.first_entry().filter(|entry| entry.get().until <= now) {
            let probe = entry.remove();
            answers.push((probe.node, probe.number, Probed::Silent));
        }
        answers
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.probes.values().next().map(|probe| probe.until)
    }
}

fn of_error(error: &io::Error) -> Probed {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::CONNREFUSED) => Probed::Refused,
        _ => Probed::Silent,
    }
}

#[cfg(test)]
mod tests;
