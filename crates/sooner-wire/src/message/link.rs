//! Messages between two processes that are connected over TCP: see `sooner_protocol::session`.

use minicbor::{Decode, Encode};

use crate::{Blob, NodeId};

/// The sender of this message has handed up everything before this position of the session.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Ack {
    /// Bytes of whole frames since the session began.
    #[n(0)]
    pub received: u64,
}

row! { 92 Ack: [process -> process, node -> node, node -> control, control -> node]; no values; }

/// The sender has ended the session of this connection for good. The connection ends after this message.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct SessionEnded {
    /// For people.
    #[n(0)]
    pub reason: String,
}

row! {
    93 SessionEnded: [process -> process, node -> node, node -> control, control -> node]; no values;
}

/// Node to its clients, behind the welcome: credentials that prove to processes of other nodes which node
/// they are on. Replaces earlier ones.
#[derive(Clone, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Credentials {
    /// The node that the certificate names.
    #[n(0)]
    pub node: NodeId,
    /// The certificate (DER).
    #[n(1)]
    pub certificate: Blob,
    /// Its key (PKCS#8, DER): a secret of the node.
    #[n(2)]
    pub key: Blob,
    /// The authorities whose certificates are believed (DER).
    #[n(3)]
    pub roots: Vec<Blob>,
}

row! { 94 Credentials: [node -> process]; no values; }

impl std::fmt::Debug for Credentials {
    // The key is a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credentials({:016x})", self.node.0)
    }
}
