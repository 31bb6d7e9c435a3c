//! Values that go from node to node.

use minicbor::{Decode, Encode};

use super::{Failure, Location, Remote};
use crate::{NodeId, ObjectId};

/// How soon a value is pulled: before others that wait for room or bandwidth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum Priority {
    /// Somebody reads it now.
    #[n(0)]
    Get,
    /// Somebody waits for it to be here.
    #[n(1)]
    Wait,
    /// A task that has not begun takes it.
    #[n(2)]
    Argument,
}

/// Client to node: bring this value into the memory of this node. At most one of a client for an object is open;
/// [`Pulled`] answers it.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Pull {
    #[n(0)]
    pub object: ObjectId,
    /// Where the sender believes it to be.
    #[n(1)]
    pub remote: Remote,
    #[n(2)]
    pub priority: Priority,
}

/// Node to client: what became of a [`Pull`]. Without location and failure: the value was not where the client believed
/// it to be.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Pulled {
    #[n(0)]
    pub object: ObjectId,
    /// A copy in the memory of this node, of which the receiver is a holder from now on.
    #[n(1)]
    pub location: Option<Location>,
    #[n(2)]
    pub failure: Option<Box<Failure>>,
}

/// Client to node: blocks of another node that the sender holds there and needs no more.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct FreeAt {
    #[n(0)]
    pub node: NodeId,
    #[n(1)]
    pub offsets: Vec<u64>,
}

/// To a process that holds blocks of another node: what lay in these is lost.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct LostAt {
    #[n(0)]
    pub node: NodeId,
    #[n(1)]
    pub offsets: Vec<u64>,
}
