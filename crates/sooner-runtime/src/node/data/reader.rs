//! What comes over a connection for values: messages, and chunks whose bytes are handed on where they lie.
//!
//! It never holds more than one short message, however long a chunk is.

use sooner_wire::frame::{FrameError, HEAD_BYTES};
use sooner_wire::limits::DATA_MESSAGE_BYTES_MAX;
use sooner_wire::message::{CHUNK_HEAD_BYTES, CHUNK_KIND, ChunkFault, ChunkHead, Message};

/// A part of what came.
#[derive(Debug, PartialEq)]
pub enum Part<'a> {
    /// A message.
    Message(Message),
    /// A chunk of a value begins.
    Chunk(ChunkHead),
    /// Some of the bytes of the chunk that began last.
    Bytes(&'a [u8]),
}

/// Bytes that cannot be read. The connection ends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// An invalid chunk.
    #[error("{0}")]
    Chunk(#[from] ChunkFault),
    /// An invalid message.
    #[error("{0}")]
    Frame(String),
    /// A message longer than any here.
    #[error(
        "a message of {0} bytes on a connection for values; at most {DATA_MESSAGE_BYTES_MAX} are allowed"
    )]
    TooLong(usize),
    /// A message that does not fit what was asked.
    #[error("{0}")]
    Order(&'static str),
}

impl From<FrameError> for Fault {
    fn from(error: FrameError) -> Self {
        Fault::Frame(error.to_string())
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Reader {
    /// An incomplete frame: its head, or a message with its head.
    held: Vec<u8>,
    /// Bytes of the chunk that have not come.
    left: usize,
}

impl Reader {
    /// Takes what came; `each` gets every part in order.
    ///
    /// # Errors
    /// [`Fault`], also of `each`. Nothing can be read after it.
    pub fn feed<'a>(
        &mut self,
        mut bytes: &'a [u8],
        mut each: impl FnMut(Part<'a>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        while !bytes.is_empty() {
            if self.left > 0 {
                let (part, rest) = bytes.split_at(self.left.min(bytes.len()));
                self.left -= part.len();
                bytes = rest;
                each(Part::Bytes(part))?;
                continue;
            }
            let wanted = self.wanted()? - self.held.len();
            let (part, rest) = bytes.split_at(wanted.min(bytes.len()));
            self.held.extend_from_slice(part);
            bytes = rest;
            if let Some(part) = self.whole()? {
                each(part)?;
            }
        }
        Ok(())
    }

    /// How many bytes must be held before they can be used.
    fn wanted(&self) -> Result<usize, Fault> {
        let Some((head, _)) = self.held.split_first_chunk::<HEAD_BYTES>() else { return Ok(HEAD_BYTES) };
        if u16::from_le_bytes([head[4], head[5]]) == CHUNK_KIND {
            return Ok(CHUNK_HEAD_BYTES);
        }
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        if length > DATA_MESSAGE_BYTES_MAX {
            return Err(Fault::TooLong(length));
        }
        Ok(HEAD_BYTES + length)
    }

    fn whole<'a>(&mut self) -> Result<Option<Part<'a>>, Fault> {
        if self.held.len() < HEAD_BYTES || self.held.len() < self.wanted()? {
            return Ok(None);
        }
        let kind = u16::from_le_bytes([self.held[4], self.held[5]]);
        let part = if kind == CHUNK_KIND {
            let bytes = self.held.first_chunk::<CHUNK_HEAD_BYTES>().expect("so many were wanted");
            let head = ChunkHead::from_bytes(bytes)?;
            self.left = head.length as usize;
            Part::Chunk(head)
        } else {
            Part::Message(Message::decode(kind, &self.held[HEAD_BYTES..])?)
        };
        self.held.clear();
        Ok(Some(part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sooner_wire::limits::CHUNK_BYTES_MAX;
    use sooner_wire::message::{FetchEnd, FetchEnded};
    use sooner_wire::{FetchAttempt, TaskId, WorkerId};

    const HEAD: ChunkHead = ChunkHead { attempt: FetchAttempt(1), at: 2, number: 3, length: 5 };

    fn ended() -> Message {
        let object = TaskId { owner: WorkerId(7), number: 9 }.object(0);
        FetchEnded { object, attempt: FetchAttempt(4), reason: FetchEnd::NotThere }.into()
    }

    #[test]
    fn however_the_bytes_are_cut_the_same_parts_come() {
        let mut all = Vec::new();
        ended().append(&mut all, 0);
        all.extend_from_slice(&HEAD.to_bytes());
        all.extend_from_slice(b"value");
        ended().append(&mut all, 0);
        for step in 1..=all.len() {
            let (mut reader, mut value, mut others) = (Reader::default(), Vec::new(), Vec::new());
            for bytes in all.chunks(step) {
                let fed = reader.feed(bytes, |part| {
                    match part {
                        Part::Bytes(bytes) => value.extend_from_slice(bytes),
                        Part::Message(message) => others.push(Ok(message)),
                        Part::Chunk(head) => others.push(Err(head)),
                    }
                    Ok(())
                });
                assert_eq!(fed, Ok(()));
            }
            assert_eq!(value, b"value");
            assert_eq!(others, [Ok(ended()), Err(HEAD), Ok(ended())]);
        }
    }

    #[test]
    fn a_garbled_head_ends_it_before_anything_is_held() {
        let feed = |bytes: &[u8]| Reader::default().feed(bytes, |_| Ok(()));
        assert_eq!(feed(&[0xff; 8]), Err(Fault::TooLong(u32::MAX as usize)));
        let long = ChunkHead { length: CHUNK_BYTES_MAX + 1, ..HEAD };
        assert!(matches!(feed(&long.to_bytes()), Err(Fault::Chunk(ChunkFault::Length(_)))));
        let mut unknown = vec![0; 8];
        unknown[4] = 0xfe;
        assert!(matches!(feed(&unknown), Err(Fault::Frame(_))));
    }
}
