//! A message on its way between two processes of different nodes, by way of their nodes or of the control service.
//!
//! Nodes pass it on: what is inside is meant for its receiver. Only kinds that are passed on can be inside, and never
//! another [`Routed`], so that reading one ends.

use minicbor::decode::{Decoder, Error as DecodeError};
use minicbor::encode::{Encoder, Error as EncodeError, Write};
use minicbor::{Decode, Encode};

use super::Message;
use crate::WorkerId;

/// Words of one process or node for another. A node stands as the process number 0 of its ids, the control service as
/// process zero.
#[derive(Debug, Clone, PartialEq)]
pub struct Routed {
    /// Who says it.
    pub from: WorkerId,
    /// Who is to hear it.
    pub to: WorkerId,
    /// What is said; its kind is one of [`Routed::KINDS`].
    pub message: Box<Message>,
}

impl Routed {
    /// The kinds of message that can be inside, by who says them.
    #[rustfmt::skip]
    pub const KINDS: [u16; 54] = [
        // A process, to the control service.
        39, 40, 50, 53, 54, 55, 56, 60, 61, 62, 63, 80, 118, 160, 162, 167,
        // The control service, to a process.
        16, 32, 43, 52, 64, 81, 84, 161,
        // A node, or one of its processes, to another node.
        6, 36, 41, 45, 46, 111, 116, 122, 123, 124, 125, 126, 128, 132, 133, 134, 140, 141, 142, 143, 144, 170, 173,
        180, 181, 182, 183,
        // Both ways: questions about state.
        70, 71, 72,
    ];

    /// Whether messages of a kind can be inside.
    #[must_use]
    pub fn takes(kind: u16) -> bool {
        Self::KINDS.contains(&kind)
    }
}

/// The encoded form: what is inside is a byte string, so that whoever passes it on need not understand it.
#[derive(Encode, Decode)]
#[cbor(array)]
struct Parts<'b> {
    #[n(0)]
    from: WorkerId,
    #[n(1)]
    to: WorkerId,
    #[n(2)]
    kind: u16,
    #[b(3)]
    #[cbor(with = "minicbor::bytes")]
    body: &'b [u8],
}

impl<C> Encode<C> for Routed {
    fn encode<W: Write>(&self, e: &mut Encoder<W>, context: &mut C) -> Result<(), EncodeError<W::Error>> {
        let kind = self.message.kind();
        debug_assert!(Self::takes(kind), "messages of kind {kind} are not passed on");
        let mut body = Vec::new();
        self.message.encode_body(&mut body);
        Parts { from: self.from, to: self.to, kind, body: &body }.encode(e, context)
    }
}

impl<'b, C> Decode<'b, C> for Routed {
    fn decode(d: &mut Decoder<'b>, context: &mut C) -> Result<Self, DecodeError> {
        let Parts { from, to, kind, body } = Parts::decode(d, context)?;
        if !Self::takes(kind) {
            return Err(DecodeError::message(format!("messages of kind {kind} are not passed on")));
        }
        let message = Message::decode(kind, body).map_err(|error| DecodeError::message(error.to_string()))?;
        Ok(Self { from, to, message: Box::new(message) })
    }
}
