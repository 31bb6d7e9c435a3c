//! Copies of values that take the place of what was lost.

use minicbor::{Decode, Encode};

use super::Location;
use crate::{NodeId, ObjectId};

/// The owner of an object to a node that has a copy: the value is lost where it was. The node is to hold the
/// copy for the owner from now on, as it holds what was made there. [`Promoted`] answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Promote {
    #[n(0)]
    pub object: ObjectId,
    /// The node that has the copy.
    #[n(1)]
    pub node: NodeId,
    /// Bytes of the value.
    #[n(2)]
    pub length: u64,
    /// Which execution the copy must be of.
    #[n(3)]
    pub generation: u64,
}

row! {
    182 Promote: [process -> node, process => node]; no values;
    only if |said, ends| ends.are_owner_and_copy(said.object, said.node),
        else "it is about another process's value, or about a copy of another node";
}

/// A node to the owner of an object, the answer to [`Promote`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Promoted {
    #[n(0)]
    pub object: ObjectId,
    /// The node that was asked.
    #[n(1)]
    pub node: NodeId,
    /// Where it holds the value for the owner. `None`: it has no such copy, or not all of it.
    #[n(2)]
    pub location: Option<Location>,
}

row! {
    183 Promoted: [node -> process, node => process]; no values;
    only if |said, ends| ends.are_copy_and_owner(said.object, said.node),
        else "it is about another process's value, or about a copy of another node";
}
