//! Copies that take the place of lost values.

use minicbor::{Decode, Encode};

use super::Location;
use crate::{NodeId, ObjectId};

/// The owner of an object to a node that has a copy: the primary copy is lost. From now on the node must hold
/// the copy for the owner, like a value that was made there. [`Promoted`] answers.
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
    /// The execution that must have made the copy.
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
