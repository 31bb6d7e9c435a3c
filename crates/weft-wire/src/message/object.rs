//! Objects: fetching values from owners, borrowing, and blocks of shared memory.

use minicbor::{Decode, Encode};

use super::Outcome;
use crate::{ObjectId, WorkerId};

/// Borrower to owner: tell me the value when there is one.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Fetch {
    #[n(0)]
    pub object: ObjectId,
}

/// Owner to borrower.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Value {
    #[n(0)]
    pub object: ObjectId,
    #[n(1)]
    pub outcome: Outcome,
    /// References inside the value; the receiver borrows them from now on.
    #[n(2)]
    pub contained: Vec<ObjectId>,
}

/// Whoever hands a reference on registers the receiver with the owner, on its own connection, before it gives
/// up its own reference (Ownership, appendix A).
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct AddBorrow {
    #[n(0)]
    pub object: ObjectId,
    #[n(1)]
    pub borrower: WorkerId,
}

/// The sender has no reference any more; `count` is how often it had been handed one.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct RemoveBorrow {
    #[n(0)]
    pub object: ObjectId,
    #[n(1)]
    pub count: u32,
}

/// Asks the node for a block of shared memory.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Allocate {
    #[n(0)]
    pub request: u64,
    #[n(1)]
    pub bytes: u64,
}

/// The node's answer.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Allocated {
    #[n(0)]
    pub request: u64,
    /// `None`: there is no room now.
    #[n(1)]
    pub offset: Option<u64>,
    /// Bytes in use and bytes in all, for the error text.
    #[n(2)]
    pub used: u64,
    #[n(3)]
    pub capacity: u64,
}

/// Blocks that nobody reads any more.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct FreeBlocks {
    #[n(0)]
    pub offsets: Vec<u64>,
}

/// The block belongs to another process from now on: it owns the object inside.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct GiveBlock {
    #[n(0)]
    pub offset: u64,
    #[n(1)]
    pub owner: WorkerId,
}

/// Node to clients: memory is short, give back blocks you keep for reuse.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct TrimBlocks {}

/// Node to clients: the owner of these blocks died; which of them do you still read?
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct ReadersOf {
    #[n(0)]
    pub round: u64,
    #[n(1)]
    pub owner: WorkerId,
}

/// A client's answer: these blocks are its own until it frees them.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct StillRead {
    #[n(0)]
    pub round: u64,
    #[n(1)]
    pub offsets: Vec<u64>,
}

/// Client to node: treat these blocks as lost. For tests of recovery.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct LoseBlocks {
    #[n(0)]
    pub offsets: Vec<u64>,
}

/// Node to clients: what lay in these blocks is lost; nothing that says it lies there is to be believed until
/// [`ForgetLost`].
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct BlocksLost {
    #[n(0)]
    pub offsets: Vec<u64>,
}

/// Node to clients: the owners have given these lost blocks up; they will be used again when all have answered with an
/// empty [`StillRead`].
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct ForgetLost {
    #[n(0)]
    pub round: u64,
    #[n(1)]
    pub offsets: Vec<u64>,
}

/// Node to a client: these blocks were given to you by a process that is gone since. Which of them do you not know?
/// It may have ended between its words to the node and those to you.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct GivenBlocks {
    #[n(0)]
    pub giver: WorkerId,
    #[n(1)]
    pub offsets: Vec<u64>,
}

/// The client's answer: nobody here has heard of these.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct UnknownBlocks {
    #[n(0)]
    pub giver: WorkerId,
    #[n(1)]
    pub offsets: Vec<u64>,
}
