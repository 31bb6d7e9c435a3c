//! Which values go to disk: messages between a node without room and the processes whose values lie there.
//!
//! A spilled value has a place on its node like any other, with an offset that no block has ([`SpillId`]). So
//! a process pulls it, frees it and learns of its loss as with a value of another node. Only this module
//! knows which offsets those are: all other code asks for the [`Place`].

use std::fmt;
use std::hash::{Hash, Hasher};

use minicbor::encode::Write;
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};

use super::Location;

use crate::{BlockId, NodeId};

/// Offsets from here on are not in shared memory.
const SPILLED: u64 = 1 << 63;

/// A spilled value, by a number of its node that is never used again. On the wire it is an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct SpillId(pub u64);

impl SpillId {
    /// The offset that stands for the value.
    #[inline]
    #[must_use]
    pub const fn offset(self) -> u64 {
        SPILLED | self.0
    }

    /// The number after it.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for SpillId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.offset())
    }
}

impl<C> Encode<C> for SpillId {
    fn encode<W: Write>(&self, e: &mut Encoder<W>, _: &mut C) -> Result<(), encode::Error<W::Error>> {
        e.u64(self.offset())?.ok()
    }
}

impl<'b, C> Decode<'b, C> for SpillId {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        match Place::of(d.u64()?) {
            Place::Disk(spilled) => Ok(spilled),
            Place::Memory(_) => {
                Err(decode::Error::message("the offset of a spilled value is that of a block"))
            }
        }
    }
}

/// Where a value of a node is. On the wire it is an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// In this block of the shared memory.
    Memory(BlockId),
    /// On disk, or on its way there.
    Disk(SpillId),
}

impl Place {
    /// The place for which an offset stands.
    #[inline]
    #[must_use]
    pub const fn of(offset: u64) -> Self {
        if offset >= SPILLED { Self::Disk(SpillId(offset & !SPILLED)) } else { Self::Memory(BlockId(offset)) }
    }

    /// The places for which offsets stand, in their order.
    #[must_use]
    pub fn all(offsets: &[u64]) -> Vec<Self> {
        offsets.iter().map(|offset| Self::of(*offset)).collect()
    }

    /// The offset that stands for the place.
    #[inline]
    #[must_use]
    pub const fn offset(self) -> u64 {
        match self {
            Self::Memory(block) => block.offset(),
            Self::Disk(spilled) => spilled.offset(),
        }
    }

    /// The block, if it is in memory.
    #[inline]
    #[must_use]
    pub const fn block(self) -> Option<BlockId> {
        match self {
            Self::Memory(block) => Some(block),
            Self::Disk(_) => None,
        }
    }

    /// Whether the value is on disk.
    #[inline]
    #[must_use]
    pub const fn is_disk(self) -> bool {
        matches!(self, Self::Disk(_))
    }

    /// The value, if it is on disk.
    #[inline]
    #[must_use]
    pub const fn spilled(self) -> Option<SpillId> {
        match self {
            Self::Disk(spilled) => Some(spilled),
            Self::Memory(_) => None,
        }
    }
}

impl<'b, C> Decode<'b, C> for BlockId {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        let block = Place::of(d.u64()?).block();
        block.ok_or_else(|| decode::Error::message("the offset of a block is that of a spilled value"))
    }
}

impl<C> Encode<C> for Place {
    fn encode<W: Write>(&self, e: &mut Encoder<W>, _: &mut C) -> Result<(), encode::Error<W::Error>> {
        e.u64(self.offset())?.ok()
    }
}

impl<'b, C> Decode<'b, C> for Place {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        d.u64().map(Self::of)
    }
}

impl From<BlockId> for Place {
    fn from(block: BlockId) -> Self {
        Self::Memory(block)
    }
}

impl From<SpillId> for Place {
    fn from(spilled: SpillId) -> Self {
        Self::Disk(spilled)
    }
}

// By hand: the offset identifies the place, and tables of places are looked at for every block.
impl Hash for Place {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.offset().hash(state);
    }
}

impl Location {
    /// `length` bytes in a block.
    #[inline]
    #[must_use]
    pub const fn in_memory(block: BlockId, length: u64) -> Self {
        Self { offset: block.offset(), length }
    }

    /// Where the value is.
    #[inline]
    #[must_use]
    pub const fn place(self) -> Place {
        Place::of(self.offset)
    }

    /// The same value on disk.
    #[inline]
    #[must_use]
    pub const fn on_disk(self, spilled: SpillId) -> Self {
        Self { offset: spilled.offset(), length: self.length }
    }
}

/// A block that is to be given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Relinquishing {
    #[n(0)]
    pub block: BlockId,
    /// Where the value is to be from now on; `None`: the block is a copy, and the value stays where it is.
    #[n(1)]
    pub spilled: Option<SpillId>,
}

/// Node to a process that holds blocks: memory is short; give up those that nobody reads at the moment.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Relinquish {
    /// [`Relinquished`] answers for all of them at once.
    #[n(0)]
    pub blocks: Vec<Relinquishing>,
    /// Other work goes first: tasks and calls that wait in this process give up their arguments. Tasks go
    /// back to their callers ([`TasksReturned`](super::TasksReturned)); copies for waiting calls are dropped.
    #[n(1)]
    pub gives_way: Option<bool>,
    /// The node of the blocks; `None`: the process's own node.
    #[n(2)]
    pub node: Option<NodeId>,
    /// Values that tasks can make again may be dropped; `None`: every value has a place to go to.
    #[n(3)]
    pub recomputes: Option<Recompute>,
}

row! {
    180 Relinquish: [node -> process, node => process]; no values;
    only if |wanted, ends| wanted.node == Some(ends.from.node()), else "it asks for blocks of another node";
}

/// What happens to the other values when those that tasks can make again are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Recompute {
    /// The others go to disk.
    #[n(0)]
    OrSpill,
    /// The others stay: there is no disk.
    #[n(1)]
    OrKeep,
}

/// Answers [`Relinquish`].
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Relinquished {
    /// Values that are at their new places from now on: the node writes them to disk.
    #[n(0)]
    pub moved: Vec<Relinquishing>,
    /// The other blocks: they stay, because they may be read; or they have been freed, as copies, or because
    /// tasks can make their values again.
    #[n(1)]
    pub others: Vec<BlockId>,
    /// As in the question.
    #[n(2)]
    pub node: Option<NodeId>,
}

row! {
    181 Relinquished: [process -> node, process => node]; no values;
    only if |answer, ends| answer.node == Some(ends.to.node()), else "it gives up blocks of another node";
}
