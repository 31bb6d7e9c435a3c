//! First messages between two processes of different nodes, inside the encrypted connection.

use minicbor::{Decode, Encode};

use crate::{DialAttempt, WorkerId};

/// First message of the dialler.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct PeerHello {
    #[n(0)]
    pub major: u16,
    #[n(1)]
    pub minor: u16,
    /// See [`crate::version::FEATURES`]; unknown bits are ignored.
    #[n(2)]
    pub features: u64,
    /// "3.11": pickled code only works between equal minor versions.
    #[n(3)]
    pub python: String,
    /// The dialler. A node is the process number 0 of its ids.
    #[n(4)]
    pub from: WorkerId,
    /// The process that the dialler wants to reach.
    #[n(5)]
    pub to: WorkerId,
    /// The session that this connection carries, numbered by the dialler.
    #[n(6)]
    pub session: u64,
    /// Bytes of whole frames of that session that the dialler has received; absent at its first connection.
    #[n(7)]
    pub received: Option<u64>,
    /// Counts the hellos of a session: a hello that arrives after a later one is too late. Zero if absent.
    #[n(8)]
    pub attempt: Option<DialAttempt>,
}

row! { 90 PeerHello: [process -> process, node -> node, node -> control]; no values; }

/// The answer of the dialled process; a [`super::Refused`] otherwise.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct PeerWelcome {
    #[n(0)]
    pub minor: u16,
    /// See [`crate::version::FEATURES`]; unknown bits are ignored.
    #[n(1)]
    pub features: u64,
    /// The session of the hello.
    #[n(2)]
    pub session: u64,
    /// Bytes of whole frames of that session that this side has received.
    #[n(3)]
    pub received: u64,
}

row! { 91 PeerWelcome: [process -> process, node -> node, control -> node]; no values; }
