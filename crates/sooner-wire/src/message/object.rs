//! Objects: fetching values from owners, borrowing, and blocks of shared memory.

use minicbor::{Decode, Encode};

use super::{Outcome, Place, Remote};
use crate::{BlockId, ObjectId, WorkerId, size};

/// Borrower to owner: tell me the value when there is one.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Fetch {
    #[n(0)]
    pub object: ObjectId,
    /// The place that the sender was given for the value, which is not there.
    #[n(1)]
    pub missing_at: Option<Remote>,
}

row! { 30 Fetch: [process -> process]; no values; }

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

row! { 31 Value: [process -> process]; values; }

/// The process that hands a reference on registers the receiver with the owner, on its own connection, before
/// it gives up its own reference (Ownership, appendix A).
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct AddBorrow {
    #[n(0)]
    pub object: ObjectId,
    #[n(1)]
    pub borrower: WorkerId,
}

row! { 32 AddBorrow: [process -> process, node -> process, directory => process]; no values; }

/// The sender has no reference any more; `giver` had handed it one `count` times.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct RemoveBorrow {
    #[n(0)]
    pub object: ObjectId,
    #[n(1)]
    pub count: u32,
    /// The process that registered the sender; `None`: the owner or the sender itself.
    #[n(2)]
    pub giver: Option<WorkerId>,
    /// The giver is dead, and the sender has reported that it holds these ([`HeldFrom`]). This return counts
    /// once the death is settled, whether or not the giver had registered the sender.
    #[n(3)]
    pub was_sent: Option<bool>,
}

row! { 33 RemoveBorrow: [process -> process]; no values; }

/// Client to node: what the sender still holds of all that a dead process handed or lent it. Whether the
/// owners learnt of it is not known.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct HeldFrom {
    #[n(0)]
    pub gone: WorkerId,
    #[n(1)]
    pub held: Vec<Held>,
}

row! { 47 HeldFrom: [process -> node]; no values; }

/// How many references to an object a process holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Held {
    #[n(0)]
    pub object: ObjectId,
    #[n(1)]
    pub borrower: WorkerId,
    #[n(2)]
    pub count: u32,
    /// The dead process that gave them. Set by the borrower's node; an owner counts such references once.
    #[n(3)]
    pub of: Option<WorkerId>,
}

/// Node to clients: all processes have answered about these dead ones. What the dead ones borrowed, lent and
/// registered is over; `held` lists what others have from them of the receiver's objects.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Settled {
    #[n(0)]
    pub gone: Vec<WorkerId>,
    #[n(1)]
    pub held: Vec<Held>,
}

row! { 48 Settled: [node -> process, directory -> node]; no values; }

/// Asks the node for a block of shared memory.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Allocate {
    #[n(0)]
    pub request: u64,
    #[n(1)]
    pub bytes: u64,
    /// This is the last attempt: a refusal must name the memory's holders.
    #[n(2)]
    pub is_last: Option<bool>,
    /// Bytes of blocks that the client will need next. The node grants them if there is room without moving
    /// anything.
    #[n(3)]
    pub ahead: Option<Vec<u64>>,
}

row! { 34 Allocate: [process -> node]; no values; }

/// The node's answer.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Allocated {
    #[n(0)]
    pub request: u64,
    /// `None`: there is no room now.
    #[n(1)]
    pub block: Option<BlockId>,
    /// Bytes in use and bytes in all, for the error text.
    #[n(2)]
    pub used: u64,
    #[n(3)]
    pub capacity: u64,
    /// Values are on their way to other nodes or to disk, which will make room: wait.
    #[n(4)]
    pub moves: Option<bool>,
    /// Processes that hold most, if that was asked for.
    #[n(5)]
    pub holders: Option<Vec<BlockHolder>>,
    /// Bytes that the machine has left, if it is the machine that has no room.
    #[n(6)]
    pub machine_left: Option<u64>,
    /// There is room, and the node is reserving its pages: ask again at once.
    #[n(7)]
    pub is_reserving: Option<bool>,
    /// Why values cannot be written to disk.
    #[n(8)]
    pub trouble: Option<String>,
    /// Blocks for the first sizes in the request's `ahead`.
    #[n(9)]
    pub ahead: Option<Vec<BlockId>>,
}

row! { 35 Allocated: [node -> process]; no values; }

/// What one process holds of a node's shared memory.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct BlockHolder {
    #[n(0)]
    pub process: WorkerId,
    /// Zero if it is at another node.
    #[n(1)]
    pub pid: u32,
    /// The process's name for people.
    #[n(2)]
    pub title: String,
    #[n(3)]
    pub bytes: u64,
    #[n(4)]
    pub objects: u64,
}

impl BlockHolder {
    /// The largest holders as text; empty if there are none.
    #[must_use]
    pub fn list(holders: &[Self]) -> String {
        let text = |one: &Self| {
            let pid = if one.pid == 0 { String::new() } else { format!(" (process {})", one.pid) };
            let objects = if one.objects == 1 { "object" } else { "objects" };
            format!("{}{pid}: {} in {} {objects}", one.title, size(one.bytes), one.objects)
        };
        if holders.is_empty() {
            return String::new();
        }
        format!(". Largest holders: {}", holders.iter().map(text).collect::<Vec<_>>().join("; "))
    }
}

/// Blocks and spilled values that nobody reads any more.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct FreeBlocks {
    #[n(0)]
    pub places: Vec<Place>,
}

row! { 36 FreeBlocks: [process -> node, process => node]; no values; }

/// The block belongs to `owner` from now on, which owns the object inside.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct GiveBlock {
    #[n(0)]
    pub block: BlockId,
    #[n(1)]
    pub owner: WorkerId,
    /// The object, if its owner is on another node: other nodes ask for the block by the object, so that a
    /// block that was used again is never taken for it.
    #[n(2)]
    pub object: Option<ObjectId>,
}

row! { 37 GiveBlock: [process -> node]; no values; }

/// Node to clients: memory is short, give back blocks you keep for reuse.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct TrimBlocks {
    /// Room will come in any case.
    #[n(0)]
    pub moves: Option<bool>,
}

row! { 38 TrimBlocks: [node -> process]; no values; }

/// Node to clients: the owner of these blocks is dead; which of them do you read?
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct ReadersOf {
    #[n(0)]
    pub round: Round,
    #[n(1)]
    pub places: Vec<Place>,
}

row! { 39 ReadersOf: [node -> process]; no values; }

/// The number of a question that processes answer with [`StillRead`]. Each of the three kinds has numbers of
/// its own, so that no answer is taken for one to another question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(transparent)]
#[repr(transparent)]
pub struct Round(#[n(0)] u64);

impl Round {
    /// Nodes' numbers from here on ask processes to forget lost blocks.
    const LOST: u64 = 1 << 62;
    /// Numbers from here on are given by the control service, those below by nodes.
    const CONTROL: u64 = 1 << 63;

    /// The node's question number `time` for readers of blocks ([`ReadersOf`]).
    #[must_use]
    pub const fn of_readers(time: u64) -> Self {
        Self(time)
    }

    /// The node's question number `time` to forget lost blocks ([`ForgetLost`]).
    #[must_use]
    pub const fn of_lost(time: u64) -> Self {
        Self(Self::LOST + time)
    }

    /// The control service's question number `time`: whether all messages of a process have arrived.
    #[must_use]
    pub const fn of_control(time: u64) -> Self {
        Self(Self::CONTROL + time)
    }

    /// Whether the control service asked.
    #[must_use]
    pub const fn is_of_control(self) -> bool {
        self.0 >= Self::CONTROL
    }
}

/// A client's answer: it holds these blocks until it frees them.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct StillRead {
    #[n(0)]
    pub round: Round,
    #[n(1)]
    pub places: Vec<Place>,
    /// How often the client was lent a value in a block that it had been asked about.
    #[n(2)]
    pub lent: Option<u64>,
}

row! {
    40 StillRead: [process -> node, process => directory]; no values;
    only if |answer, _| answer.round.is_of_control(),
        else "it answers what the control service has not asked";
}

/// Client to node: treat these blocks as lost. For tests of recovery.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct LoseBlocks {
    #[n(0)]
    pub blocks: Vec<BlockId>,
}

row! { 41 LoseBlocks: [process -> node, node => node]; no values; }

/// Node to clients: the values in these blocks are lost. Until [`ForgetLost`], no message that places a value
/// there is to be believed.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct BlocksLost {
    #[n(0)]
    pub blocks: Vec<BlockId>,
}

row! { 42 BlocksLost: [node -> process]; no values; }

/// Node to clients: the owners have given these lost blocks up; the node reuses them when all clients have
/// answered with an empty [`StillRead`].
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct ForgetLost {
    #[n(0)]
    pub round: Round,
    #[n(1)]
    pub blocks: Vec<BlockId>,
}

row! {
    43 ForgetLost: [node -> process, directory => process]; no values;
    only if |question, _| question.round.is_of_control(), else "it asks what only a node asks";
}

/// Node to a client: a process that is dead since gave you these blocks. Which of them do you not know? It
/// may have died between its message to the node and the one to you.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct GivenBlocks {
    #[n(0)]
    pub giver: WorkerId,
    #[n(1)]
    pub places: Vec<Place>,
}

row! { 45 GivenBlocks: [node -> process, node => process]; no values; }

/// The client's answer: the blocks that it does not know.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct UnknownBlocks {
    #[n(0)]
    pub giver: WorkerId,
    #[n(1)]
    pub places: Vec<Place>,
}

row! { 46 UnknownBlocks: [process -> node, process => node]; no values; }
