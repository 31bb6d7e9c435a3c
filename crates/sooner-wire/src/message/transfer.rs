//! Values that go from node to node.

use minicbor::{Decode, Encode};

use super::{Failure, Location, Place, Remote};
use crate::limits::CHUNK_BYTES_MAX;
use crate::{BlockId, FetchAttempt, NodeId, ObjectId, TransferAttempt};

/// How soon a value is pulled, among those that wait for room or bandwidth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(index_only)]
pub enum Priority {
    /// A process reads the value now.
    #[n(0)]
    Get,
    /// A process waits for the value to be local.
    #[n(1)]
    Wait,
    /// A task that has not begun takes the value.
    #[n(2)]
    Argument,
}

/// Client to node: bring this value into the memory of this node. A client has at most one open per object;
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

row! { 120 Pull: [process -> node]; no values; }

/// Node to client: what became of a [`Pull`]. Without location and failure: the value was not where the
/// client believed it to be.
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
    /// The place where the value certainly is not. It may be one that another client named.
    #[n(3)]
    pub tried: Option<Remote>,
}

row! { 121 Pulled: [node -> process]; no values; }

/// Client to node: blocks of another node that the sender holds there and needs no more.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct FreeAt {
    #[n(0)]
    pub node: NodeId,
    #[n(1)]
    pub places: Vec<Place>,
}

row! { 127 FreeAt: [process -> node]; no values; }

/// A node to the owner of an object: the node wants a copy. From which node does it pull?
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Locate {
    #[n(0)]
    pub object: ObjectId,
    /// The node that asks.
    #[n(1)]
    pub node: NodeId,
}

row! {
    122 Locate: [node -> process, node => process]; no values;
    only if |said, ends| ends.are_copy_and_owner(said.object, said.node),
        else "it is about another process's value, or about a copy of another node";
}

/// The owner of an object to a node: the answer to [`Locate`], or, unasked, another node to pull from.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Located {
    #[n(0)]
    pub object: ObjectId,
    /// The node that pulls.
    #[n(1)]
    pub node: NodeId,
    /// The place to pull from. `None`: there is no value in memory that could be pulled.
    #[n(2)]
    pub sender: Option<Remote>,
    /// The execution that made the bytes; bytes of another one are worth nothing.
    #[n(3)]
    pub generation: u64,
    /// The number of this message: the latest holds. `None`, a zero on the wire: the owner does not count on
    /// a copy there, and wants no messages about it.
    #[n(4)]
    #[cbor(with = "zero", has_nil)]
    pub attempt: Option<TransferAttempt>,
    /// The sender has a copy, perhaps only a part of one, and finds its block by itself.
    #[n(5)]
    pub is_copy: bool,
}

row! {
    123 Located: [process -> node, process => node]; no values;
    only if |said, ends| ends.are_owner_and_copy(said.object, said.node),
        else "it is about another process's value, or about a copy of another node";
}

/// The encoding of an optional attempt: zero for `None`. It is never left out.
mod zero {
    use minicbor::decode::Error as DecodeError;
    use minicbor::encode::{Error as EncodeError, Write};
    use minicbor::{Decoder, Encoder};

    use crate::TransferAttempt;

    pub(super) fn encode<C, W: Write>(
        attempt: &Option<TransferAttempt>,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), EncodeError<W::Error>> {
        e.u64(attempt.map_or(0, |attempt| attempt.0))?.ok()
    }

    pub(super) fn decode<C>(d: &mut Decoder<'_>, _: &mut C) -> Result<Option<TransferAttempt>, DecodeError> {
        let number = d.u64()?;
        Ok((number > 0).then_some(TransferAttempt(number)))
    }

    pub(super) const fn is_nil(_: &Option<TransferAttempt>) -> bool {
        false
    }

    pub(super) const fn nil() -> Option<Option<TransferAttempt>> {
        None
    }
}

/// A node to the owner of an object: a copy is complete.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct CopyMade {
    #[n(0)]
    pub object: ObjectId,
    #[n(1)]
    pub node: NodeId,
    /// Of the last [`Located`] that the node followed.
    #[n(2)]
    pub attempt: TransferAttempt,
}

row! {
    124 CopyMade: [node -> process, node => process]; no values;
    only if |said, ends| ends.are_copy_and_owner(said.object, said.node),
        else "it is about another process's value, or about a copy of another node";
}

/// A node to the owner of an object: no process there needs the copy any more. The copy stays, or goes on
/// being made, until [`DropCopy`] comes: other nodes may be pulling from it.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct CopyLeaving {
    #[n(0)]
    pub object: ObjectId,
    #[n(1)]
    pub node: NodeId,
}

row! {
    125 CopyLeaving: [node -> process, node => process]; no values;
    only if |said, ends| ends.are_copy_and_owner(said.object, said.node),
        else "it is about another process's value, or about a copy of another node";
}

/// A node to the owner of an object: the rest does not come from the sender that the owner named.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct SenderFailed {
    #[n(0)]
    pub object: ObjectId,
    /// The node that pulls.
    #[n(1)]
    pub node: NodeId,
    /// Of the [`Located`] that named the sender.
    #[n(2)]
    pub attempt: TransferAttempt,
}

row! {
    126 SenderFailed: [node -> process, node => process]; no values;
    only if |said, ends| ends.are_copy_and_owner(said.object, said.node),
        else "it is about another process's value, or about a copy of another node";
}

/// The owner of an object to a node: the owner does not count on the copy there. If the node still wants it,
/// it asks again.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct DropCopy {
    #[n(0)]
    pub object: ObjectId,
    #[n(1)]
    pub node: NodeId,
}

row! {
    128 DropCopy: [process -> node, process => node]; no values;
    only if |said, ends| ends.are_owner_and_copy(said.object, said.node),
        else "it is about another process's value, or about a copy of another node";
}

/// To a process that holds blocks of another node: the values in these are lost.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct LostAt {
    #[n(0)]
    pub node: NodeId,
    #[n(1)]
    pub blocks: Vec<BlockId>,
}

row! {
    134 LostAt: [node -> process, node => process]; no values;
    only if |lost, ends| lost.node == ends.from.node(),
        else "it says of another node's blocks that they are lost";
}

/// To a process that holds blocks of another node: that node leaves. Values that the process has brought
/// elsewhere need not be made again. [`HandedOver`] answers for each block, or [`FreeAt`].
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct HandOver {
    #[n(0)]
    pub node: NodeId,
    #[n(1)]
    pub places: Vec<Place>,
}

row! {
    132 HandOver: [node -> process, node => process]; no values;
    only if |hand, ends| hand.node == ends.from.node(), else "it hands over blocks of another node";
}

/// The answer, by way of the process's own node: the leaving node may end as far as these blocks are
/// concerned. Their values are elsewhere, or cannot be. The blocks stay held: tasks on the leaving node may
/// read them.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct HandedOver {
    #[n(0)]
    pub node: NodeId,
    #[n(1)]
    pub places: Vec<Place>,
}

row! {
    133 HandedOver: [process -> node, process => node]; no values;
    only if |done, ends| done.node == ends.to.node(), else "it answers for blocks of another node";
}

/// Over a data connection, to the node in whose memory the value lies: send these bytes of it. They come as
/// chunks, in order and after those that were asked for before over this connection, or [`FetchEnded`] comes
/// instead of the rest.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct Fetching {
    #[n(0)]
    pub object: ObjectId,
    /// Where the whole value lies at the receiver of this message.
    #[n(1)]
    pub location: Location,
    /// Bytes of the value before the first that is wanted.
    #[n(2)]
    pub begin: u64,
    /// Bytes of the value up to the last that is wanted.
    #[n(3)]
    pub end: u64,
    /// A number of the asker, which the chunks repeat.
    #[n(4)]
    pub attempt: FetchAttempt,
    /// A copy of this generation is wanted: the receiver finds its block by itself, and the offset says
    /// nothing.
    #[n(5)]
    pub generation: Option<u64>,
}

row! { 129 Fetching: [node -> node]; no values; }

/// Why the rest of a requested value does not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum FetchEnd {
    /// The value does not lie there, or not any more.
    #[n(0)]
    NotThere,
    /// The asker does not want it any more.
    #[n(1)]
    Unwanted,
}

/// Over a data connection. From the asker: it wants nothing more under this number. From the value's sender:
/// the rest of one [`Fetching`] does not come.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct FetchEnded {
    #[n(0)]
    pub object: ObjectId,
    #[n(1)]
    pub attempt: FetchAttempt,
    #[n(2)]
    pub reason: FetchEnd,
}

row! { 131 FetchEnded: [node -> node]; no values; }

/// Over a data connection, from the side that serves values: where its memory is, for an asker on the same
/// machine. If the asker can read it, it answers [`MemoryOpen`] and is lent values from then on; otherwise it
/// sends nothing.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct MemoryHere {
    /// The boot id and the pid and network namespaces of the sender.
    #[n(0)]
    pub machine: String,
    /// A process that has the memory open, and its descriptor of it.
    #[n(1)]
    pub process: u32,
    #[n(2)]
    pub descriptor: u32,
    /// The inode that identifies the memory.
    #[n(3)]
    pub inode: u64,
    #[n(4)]
    pub bytes: u64,
    /// This cell of the memory holds the number `lender` as long as the values lent over this connection do
    /// not change.
    #[n(5)]
    pub cell: u32,
    #[n(6)]
    pub lender: u64,
}

row! { 135 MemoryHere: [node -> node]; no values; }

/// Over a data connection, the answer to [`MemoryHere`]: the asker reads values there by itself.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
#[cbor(array)]
pub struct MemoryOpen {
    /// The number in [`MemoryHere`].
    #[n(0)]
    pub lender: u64,
}

row! { 136 MemoryOpen: [node -> node]; no values; }

/// Over a data connection, in place of chunks: these bytes of what was asked for lie in the sender's memory,
/// and stay there until [`Taken`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Lent {
    /// Of the [`Fetching`] that it answers.
    #[n(0)]
    pub attempt: FetchAttempt,
    /// Bytes of the value before the first and up to the last lent one.
    #[n(1)]
    pub begin: u64,
    #[n(2)]
    pub end: u64,
    /// Where the first lent byte lies.
    #[n(3)]
    pub offset: u64,
    /// The number of the value's task, so that two sides that disagree notice.
    #[n(4)]
    pub number: u64,
    /// A number of the sender, which the answer repeats.
    #[n(5)]
    pub loan: u64,
}

row! { 137 Lent: [node -> node]; no values; }

/// Over a data connection, the answer to [`Lent`]: the bytes are read, or not wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[cbor(array)]
pub struct Taken {
    /// Of [`Lent`].
    #[n(0)]
    pub loan: u64,
}

row! { 138 Taken: [node -> node]; no values; }

/// Kind of the frames that carry bytes of values. They are no CBOR: their bytes go between sockets and shared
/// memory.
pub const CHUNK_KIND: u16 = 130;
/// Bytes before the value's: the frame's head, and what the chunk says of itself.
pub const CHUNK_HEAD_BYTES: usize = 32;

/// The head of a chunk: little-endian `length: u32` (of all that follows the first eight bytes), `kind: u16`,
/// `flags: u16`, `attempt: u64`, `at: u64`, `number: u64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkHead {
    /// Of the [`Fetching`] that it answers.
    pub attempt: FetchAttempt,
    /// Bytes of the value before these.
    pub at: u64,
    /// The number of the value's task, so that two sides that disagree notice.
    pub number: u64,
    /// Bytes of the value in this chunk: 1 to [`CHUNK_BYTES_MAX`].
    pub length: u32,
}

/// A chunk that cannot be one. The connection that it came over ends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChunkFault {
    /// Something else than a chunk.
    #[error("a frame of kind {0} with flags {1} is no chunk of a value")]
    NotAChunk(u16, u16),
    /// Nothing, or more than is ever sent at once.
    #[error("a chunk announces {0} bytes with its head; at least 25 and at most {max} are allowed", max = CHUNK_BYTES_MAX + 24)]
    Length(u32),
    /// It would lie behind the end of all values.
    #[error("a chunk begins at byte {0}: no value is so long")]
    Position(u64),
}

impl ChunkHead {
    /// What the frame's head counts beside the bytes of the value.
    const COUNTED: u32 = 24;

    /// The head as it travels.
    #[must_use]
    pub fn to_bytes(self) -> [u8; CHUNK_HEAD_BYTES] {
        let mut bytes = [0; CHUNK_HEAD_BYTES];
        bytes[..4].copy_from_slice(&(self.length + Self::COUNTED).to_le_bytes());
        bytes[4..6].copy_from_slice(&CHUNK_KIND.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.attempt.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.at.to_le_bytes());
        bytes[24..].copy_from_slice(&self.number.to_le_bytes());
        bytes
    }

    /// Reads a head.
    ///
    /// # Errors
    /// [`ChunkFault`] when no chunk begins so.
    pub fn from_bytes(bytes: &[u8; CHUNK_HEAD_BYTES]) -> Result<Self, ChunkFault> {
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let (kind, flags) = (short(4), short(6));
        if kind != CHUNK_KIND || flags != 0 {
            return Err(ChunkFault::NotAChunk(kind, flags));
        }
        let announced = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let length =
            announced.checked_sub(Self::COUNTED).filter(|length| (1..=CHUNK_BYTES_MAX).contains(length));
        let length = length.ok_or(ChunkFault::Length(announced))?;
        let at = number(16);
        if at.checked_add(u64::from(length)).is_none() {
            return Err(ChunkFault::Position(at));
        }
        Ok(Self { attempt: FetchAttempt(number(8)), at, number: number(24), length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: ChunkHead =
        ChunkHead { attempt: FetchAttempt(7), at: 1 << 40, number: 3, length: CHUNK_BYTES_MAX };

    #[test]
    fn a_head_is_read_as_it_was_written() {
        for head in [HEAD, ChunkHead { length: 1, at: u64::MAX - 1, ..HEAD }] {
            assert_eq!(ChunkHead::from_bytes(&head.to_bytes()), Ok(head));
        }
        // Nodes of another version read it.
        let written: String = HEAD.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        let expected =
            "1800040082000000".to_owned() + "0700000000000000" + "0000000000010000" + "0300000000000000";
        assert_eq!(written, expected);
    }

    #[test]
    fn an_owner_that_counts_on_no_copy_says_zero() {
        let (object, node) = (ObjectId::default(), NodeId(1));
        let attempt = None;
        let none = Located { object, node, sender: None, generation: 0, attempt, is_copy: false };
        let attempt = Some(TransferAttempt(7));
        let one = Located { attempt, ..none.clone() };
        for (said, number) in [(none, 0), (one, 7)] {
            let bytes = minicbor::to_vec(&said).expect("memory");
            // A number, and whether the sender has a copy, end it.
            assert_eq!(bytes[bytes.len() - 2..], [number, 0xf4]);
            assert_eq!(minicbor::decode::<Located>(&bytes).expect("as it was written"), said);
        }
    }

    #[test]
    fn what_cannot_be_a_chunk_is_refused() {
        let read = |head: ChunkHead| ChunkHead::from_bytes(&head.to_bytes());
        assert_eq!(read(ChunkHead { length: 0, ..HEAD }), Err(ChunkFault::Length(24)));
        assert_eq!(
            read(ChunkHead { length: CHUNK_BYTES_MAX + 1, ..HEAD }),
            Err(ChunkFault::Length(CHUNK_BYTES_MAX + 25))
        );
        assert_eq!(read(ChunkHead { at: u64::MAX, ..HEAD }), Err(ChunkFault::Position(u64::MAX)));
        let mut bytes = HEAD.to_bytes();
        bytes[..4].copy_from_slice(&23u32.to_le_bytes());
        assert_eq!(ChunkHead::from_bytes(&bytes), Err(ChunkFault::Length(23)));
        bytes[4] = 1;
        assert_eq!(ChunkHead::from_bytes(&bytes), Err(ChunkFault::NotAChunk(1, 0)));
        let mut bytes = HEAD.to_bytes();
        bytes[6] = 1;
        assert_eq!(ChunkHead::from_bytes(&bytes), Err(ChunkFault::NotAChunk(CHUNK_KIND, 1)));
    }
}
