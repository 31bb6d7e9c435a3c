//! A message on its way between two processes of different nodes, by way of their nodes or of the control
//! service.
//!
//! Nodes pass it on: the inner message is meant for its receiver. Only kinds that are passed on can be
//! inside, and never another [`Routed`], so that decoding ends.

use minicbor::decode::{Decoder, Error as DecodeError};
use minicbor::encode::{Encoder, Error as EncodeError, Write};
use minicbor::{Decode, Encode};

use super::Message;
use crate::WorkerId;

/// A message of one process or node to another. A node is the process number 0 of its ids, the control
/// service process zero.
#[derive(Debug, Clone, PartialEq)]
pub struct Routed {
    /// The sender.
    pub from: WorkerId,
    /// The receiver.
    pub to: WorkerId,
    /// The inner message; see [`Routed::takes`].
    pub message: Box<Message>,
}

row! {
    110 Routed: [node -> node, node -> directory, directory -> node, node -> control, control -> node]; values;
}

impl Routed {
    /// Whether messages of a kind can be inside: their rows have a route that says so.
    #[must_use]
    pub const fn takes(kind: u16) -> bool {
        Message::routes_of(kind).is_passed_on()
    }
}

/// The encoded form: the inner message is a byte string, which can be passed on without being understood.
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
