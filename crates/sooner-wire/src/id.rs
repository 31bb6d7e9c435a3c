//! Ids. Each is a newtype, so that a task cannot be passed where an object is meant.
//!
//! A task id is the id of the process that submitted it (its owner) and a counter of that process; an object
//! id adds the index of the return value. The owner of any object is therefore read from its id and never
//! looked up (`docs/adr/0004`). So is its node: the upper 40 bits of a process's id are those of its node,
//! the lower 24 count the node's processes. Ids are minted by the owner alone; nothing here draws random
//! numbers.

use std::fmt;

use minicbor::{Decode, Encode};

macro_rules! number_id {
    ($(#[$doc:meta])* $name:ident, $inner:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Encode, Decode)]
        #[cbor(transparent)]
        pub struct $name(#[n(0)] pub $inner);
    };
}

number_id!(
    /// A process that takes part: a driver or a worker. Unique over all sessions of a machine.
    WorkerId, u64
);
number_id!(
    /// A node: one machine's scheduler, store and worker pool, from its start to its end. The lower 24 bits
    /// are zero.
    NodeId, u64
);
number_id!(
    /// A lease of one worker, granted by a node.
    LeaseId, u64
);
number_id!(
    /// A resource shape, numbered by the process that asks for leases of it.
    ShapeId, u32
);
number_id!(
    /// Which process of an actor this is: the number of takeovers before it, zero for the first process.
    Takeover, u32
);
number_id!(
    /// An attempt to bring a value to a node, numbered by the value's owner. Each names a sender.
    TransferAttempt, u64
);
number_id!(
    /// An attempt to fetch a value's bytes from one sender, numbered by the node that fetches.
    /// Chunks repeat it.
    FetchAttempt, u64
);
number_id!(
    /// An attempt to reserve the bundles of a placement group, numbered by the control service.
    PlacementAttempt, u64
);
number_id!(
    /// An attempt to execute a task: how many executions of the task came before it.
    ExecutionAttempt, u16
);
number_id!(
    /// An attempt to connect a session between two processes: which of the session's hellos it is.
    DialAttempt, u32
);
number_id!(
    /// A function or class: a hash of its pickled form.
    FunctionId, u64
);

/// A block of a node's shared memory: the offset at which it begins. It is decoded where places are
/// ([`Place`](crate::message::Place)).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Encode)]
#[cbor(transparent)]
pub struct BlockId(#[n(0)] pub u64);

impl BlockId {
    /// Where the block begins in the shared memory (bytes).
    #[inline]
    #[must_use]
    pub const fn offset(self) -> u64 {
        self.0
    }
}

impl Takeover {
    /// The first process took over from none.
    pub const FIRST: Self = Self(0);

    /// The process after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl FetchAttempt {
    /// The attempt after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl PlacementAttempt {
    /// The attempt after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl ExecutionAttempt {
    /// The attempt after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl DialAttempt {
    /// The attempt after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Takeover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The bits of a process's id that count the processes of its node.
const PROCESS_BITS: u64 = 0xff_ffff;

impl WorkerId {
    /// The node that this process is on.
    #[must_use]
    pub fn node(self) -> NodeId {
        NodeId(self.0 & !PROCESS_BITS)
    }
}

/// A task: its owner, and its number among the owner's tasks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Encode, Decode)]
#[cbor(array)]
pub struct TaskId {
    /// The process that submitted the task and owns what it returns.
    #[n(0)]
    pub owner: WorkerId,
    /// Counter of the owner, from 1.
    #[n(1)]
    pub number: u64,
}

/// The task that a process began last, as far as others can see.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Started {
    /// The task.
    pub task: TaskId,
    /// The task is an actor's constructor, or an actor call.
    pub in_actor: bool,
}

impl TaskId {
    /// The id of return value `index`.
    #[must_use]
    pub fn object(self, index: u32) -> ObjectId {
        ObjectId { task: self, index }
    }

    /// Stands for the reader of a streaming task's items; no object has this id.
    #[must_use]
    pub fn reader(self) -> ObjectId {
        self.object(u32::MAX)
    }

    /// Stands for an actor's checkpointed state, on its node and in the process that takes the actor over.
    #[must_use]
    pub fn state(self) -> ObjectId {
        self.object(u32::MAX - 1)
    }
}

/// An actor is named by the task that creates it.
pub type ActorId = TaskId;

/// A placement group is named by a number of the process that creates it.
pub type GroupId = TaskId;

/// An object: a return value of a task, or a value that was put (index 0 of a number without a task).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Encode, Decode)]
#[cbor(array)]
pub struct ObjectId {
    /// The task that makes the object.
    #[n(0)]
    pub task: TaskId,
    /// Which of its return values.
    #[n(1)]
    pub index: u32,
}

/// Bytes of an object id in its binary form.
pub const OBJECT_ID_BYTES: usize = 20;

impl ObjectId {
    /// The process that owns the object.
    #[must_use]
    pub fn owner(self) -> WorkerId {
        self.task.owner
    }

    /// The binary form: owner, number and index, big endian.
    #[must_use]
    pub fn to_bytes(self) -> [u8; OBJECT_ID_BYTES] {
        let mut bytes = [0; OBJECT_ID_BYTES];
        bytes[..8].copy_from_slice(&self.task.owner.0.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.task.number.to_be_bytes());
        bytes[16..].copy_from_slice(&self.index.to_be_bytes());
        bytes
    }

    /// Reads the binary form; `None` if the length is wrong.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != OBJECT_ID_BYTES {
            return None;
        }
        Some(Self {
            task: TaskId {
                owner: WorkerId(u64::from_be_bytes(bytes[..8].try_into().ok()?)),
                number: u64::from_be_bytes(bytes[8..16].try_into().ok()?),
            },
            index: u32::from_be_bytes(bytes[16..].try_into().ok()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_of_a_process_is_read_from_its_id() {
        let node = NodeId(0x0123_4567_8900_0000);
        assert_eq!(WorkerId(0x0123_4567_8900_0001).node(), node);
        assert_eq!(WorkerId(0x0123_4567_89ff_ffff).node(), node);
        assert_ne!(WorkerId(0x0123_4567_8a00_0000).node(), node);
    }

    #[test]
    fn binary_form_round_trips() {
        let id = TaskId { owner: WorkerId(0x0102_0304_0506_0708), number: 99 }.object(3);
        assert_eq!(ObjectId::from_bytes(&id.to_bytes()), Some(id));
        assert_eq!(ObjectId::from_bytes(&[0; 19]), None);
    }
}
