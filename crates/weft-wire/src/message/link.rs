//! Between two processes that are connected over TCP: see `weft_protocol::session`.

use minicbor::{Decode, Encode};

/// Everything before this position of the session has been handed up by the sender of this message.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Ack {
    /// Bytes of whole frames since the session began.
    #[n(0)]
    pub received: u64,
}
