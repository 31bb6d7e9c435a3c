//! Who is let in: what to do with a visitor, by its bytes and the time. It knows no socket and no clock.

use std::net::SocketAddr;

use sooner_protocol::time::Instant;
use sooner_wire::NodeId;
use sooner_wire::limits::PEEK_NANOS;

use super::client_hello::{HelloFault, look};
use super::shares::Crowd;
use crate::identity::{Destination, NameFault};

/// A connection at the door.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Visitor {
    /// The peer's address.
    pub address: SocketAddr,
    /// When it came.
    pub since: Instant,
}

/// What to do with a visitor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Its hello is not complete.
    Wait,
    /// Hand it on.
    Deliver(Destination),
    /// Send it away.
    Refuse(Why),
}

/// Why a visitor is sent away.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// Its bytes are no hello.
    #[error("{0}")]
    Hello(HelloFault),
    /// Its destination is not here.
    #[error("{0}")]
    Name(NameFault),
    /// The peer left in the middle of its first message.
    #[error("the peer left before it had said whom it wants")]
    Left,
    /// The peer sends nothing, or too slowly.
    #[error("the peer did not say within {} s whom it wants", PEEK_NANOS / 1_000_000_000)]
    Silent,
    /// It made room for others.
    #[error("the peer did not say whom it wants before others came: {0}")]
    MadeRoom(Crowd),
}

/// A fatal alert of TLS as a whole record (RFC 8446, section 6).
pub(super) type Alert = [u8; 7];
/// `unrecognized_name`: no such destination here.
pub(super) const NOT_HERE: Alert = alert(112);
/// `internal_error`: the reason has nothing to do with the peer.
pub(super) const NO_ROOM: Alert = alert(80);
/// `protocol_version`.
const TOO_OLD: Alert = alert(70);

const fn alert(description: u8) -> Alert {
    [0x15, 3, 3, 0, 2, 2, description]
}

impl Why {
    /// The alert for the peer; `None` if the peer would not understand it.
    pub(super) fn alert(&self) -> Option<Alert> {
        match self {
            Why::Name(_) => Some(NOT_HERE),
            Why::MadeRoom(_) => Some(NO_ROOM),
            Why::Hello(HelloFault::Old) => Some(TOO_OLD),
            _ => None,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Doorman {
    here: NodeId,
    is_head: bool,
}

impl Doorman {
    /// At the door of node `here`.
    #[must_use]
    pub fn new(here: NodeId, is_head: bool) -> Self {
        Self { here, is_head }
    }

    /// Judges a visitor by all bytes it has sent so far; it `has_ended` if there will be no more.
    #[must_use]
    pub fn on_bytes(&self, bytes: &[u8], has_ended: bool) -> Verdict {
        let destination = look(bytes).map_err(Why::Hello).and_then(|hello| match hello {
            Some(hello) => {
                Destination::parse(&hello.server_name, self.here, self.is_head).map(Some).map_err(Why::Name)
            }
            None if has_ended => Err(Why::Left),
            None => Ok(None),
        });
        match destination {
            Ok(Some(destination)) => Verdict::Deliver(destination),
            Ok(None) => Verdict::Wait,
            Err(why) => Verdict::Refuse(why),
        }
    }

    /// Why the visitor must go, if its time is over.
    #[must_use]
    pub fn on_time(&self, visitor: &Visitor, now: Instant) -> Option<Why> {
        (now >= self.deadline(visitor)).then_some(Why::Silent)
    }

    /// When the visitor's time is over.
    #[must_use]
    pub fn deadline(&self, visitor: &Visitor) -> Instant {
        visitor.since.plus(PEEK_NANOS)
    }
}

#[cfg(test)]
mod tests;
