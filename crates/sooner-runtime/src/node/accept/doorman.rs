//! Who is let in: what to do with these bytes of this visitor at this time. No socket and no clock is known here.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use sooner_protocol::time::Instant;
use sooner_wire::NodeId;
use sooner_wire::limits::{PEEK_NANOS, PEEKS_MAX, REFUSALS_KEPT_MAX, REFUSALS_MAX, REFUSALS_NANOS};

use super::client_hello::{HelloFault, look};
use crate::identity::{Destination, NameFault};

/// How long a visitor may wait to speak before it makes room for others, when there is none (nanoseconds).
const PATIENCE_NANOS: u64 = 100_000_000;

/// Somebody at the door.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Visitor {
    /// Where it comes from.
    pub address: SocketAddr,
    /// Since when it is there.
    pub since: Instant,
}

/// What to do with a visitor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It has not said all yet.
    Wait,
    /// It is to be handed on.
    Deliver(Destination),
    /// It is to be sent away.
    Refuse(Why),
}

/// Why a visitor is sent away.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// What it said is no hello.
    #[error("{0}")]
    Hello(HelloFault),
    /// Whom it wants is not here.
    #[error("{0}")]
    Name(NameFault),
    /// It left in the middle of its first message.
    #[error("the peer left before it had said whom it wants")]
    Left,
    /// It says nothing, or too slowly.
    #[error("the peer did not say within {} s whom it wants", PEEK_NANOS / 1_000_000_000)]
    Silent,
    /// Others wait, and it has had its time.
    #[error("the peer did not say whom it wants, and made room for others: {PEEKS_MAX} were waiting")]
    MadeRoom,
    /// Its address has failed too often just now.
    #[error(
        "{REFUSALS_MAX} connections from this address have failed within a second: this one was not looked at"
    )]
    TooManyFailures,
}

/// A fatal alert of TLS as a whole record (RFC 8446, section 6).
pub(super) type Alert = [u8; 7];
/// `unrecognized_name`: nobody here goes by that name.
pub(super) const NOT_HERE: Alert = alert(112);
/// `protocol_version`.
const TOO_OLD: Alert = alert(70);

const fn alert(description: u8) -> Alert {
    [0x15, 3, 3, 0, 2, 2, description]
}

impl Why {
    /// What to tell the peer; `None` where there is nobody who would understand.
    pub(super) fn alert(&self) -> Option<Alert> {
        match self {
            Why::Name(_) => Some(NOT_HERE),
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
    /// The failures of the last second, oldest first.
    failures: VecDeque<(Instant, IpAddr)>,
}

impl Doorman {
    /// At the door of node `here`.
    #[must_use]
    pub fn new(here: NodeId, is_head: bool) -> Self {
        Self { here, is_head, failures: VecDeque::new() }
    }

    /// Somebody comes. To be asked before anything of it is looked at.
    ///
    /// # Errors
    /// Why it is sent away at once.
    pub fn on_visitor(&mut self, visitor: &Visitor, now: Instant) -> Result<(), Why> {
        self.forget(now);
        let address = visitor.address.ip();
        let failures = self.failures.iter().filter(|(_, failed)| *failed == address).count();
        if failures >= REFUSALS_MAX { Err(Why::TooManyFailures) } else { Ok(()) }
    }

    /// `count` wait, `oldest` for the longest. May one more be taken? `Some` when the oldest must leave for it.
    ///
    /// # Errors
    /// When to ask again.
    pub fn make_room(&self, count: usize, oldest: &Visitor, now: Instant) -> Result<Option<Why>, Instant> {
        if count < PEEKS_MAX {
            return Ok(None);
        }
        let until = oldest.since.plus(PATIENCE_NANOS);
        if now >= until { Ok(Some(Why::MadeRoom)) } else { Err(until) }
    }

    /// These are all bytes that the visitor has said so far; it `has_ended` if there will be no more.
    pub fn on_bytes(&mut self, visitor: &Visitor, bytes: &[u8], has_ended: bool, now: Instant) -> Verdict {
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
            Err(why) => {
                // Whoever asks for a node that was here before is one of ours, as a rule.
                if !matches!(why, Why::Name(NameFault::OtherNode { .. } | NameFault::NotTheHead(_))) {
                    self.remember(visitor.address.ip(), now);
                }
                Verdict::Refuse(why)
            }
        }
    }

    /// Whether the visitor's time is over.
    pub fn on_time(&mut self, visitor: &Visitor, now: Instant) -> Option<Why> {
        if now < self.deadline(visitor) {
            return None;
        }
        self.remember(visitor.address.ip(), now);
        Some(Why::Silent)
    }

    /// When the visitor's time is over.
    #[must_use]
    pub fn deadline(&self, visitor: &Visitor) -> Instant {
        visitor.since.plus(PEEK_NANOS)
    }

    /// Somebody from this address failed.
    pub fn remember(&mut self, address: IpAddr, now: Instant) {
        self.forget(now);
        if self.failures.len() == REFUSALS_KEPT_MAX {
            self.failures.pop_front();
        }
        self.failures.push_back((now, address));
    }

    fn forget(&mut self, now: Instant) {
        while self.failures.front().is_some_and(|(at, _)| now.since(*at) >= REFUSALS_NANOS) {
            self.failures.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
