//! Bytes of a value as they arrive, in pieces of any length: they are checked against the checksums of the
//! value's chunks, and copied to their destination.
//!
//! Whole chunks arrive. The chunks at both ends may contain bytes that were not asked for: they are checked,
//! too, and dropped. The destination is meaningless before [`Arriving::end`] has succeeded.

use sooner_store::spill::{CHUNK_BYTES, Damage, SpillHeader};

/// See the module.
pub struct Arriving<'a> {
    header: &'a SpillHeader,
    /// The offset in the value of the next byte.
    at: u64,
    /// The offset in the value at which the expected bytes end: the end of a chunk or of the value.
    end: u64,
    /// The first byte of the value that was asked for.
    first: u64,
    into: &'a mut [u8],
    hasher: crc32fast::Hasher,
}

impl<'a> Arriving<'a> {
    /// Expects the bytes of the value from `begin`, where a chunk begins, to `end`. Those from its byte
    /// `first` on go to `into`.
    pub fn new(header: &'a SpillHeader, begin: u64, end: u64, first: u64, into: &'a mut [u8]) -> Self {
        debug_assert!(begin.is_multiple_of(CHUNK_BYTES) && begin <= first, "chunks are read whole");
        Self { header, at: begin, end, first, into, hasher: crc32fast::Hasher::new() }
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// [`Damage`]: a chunk is not as it was written, or more bytes came than expected.
    pub fn take(&mut self, mut bytes: &[u8]) -> Result<(), Damage> {
        if bytes.len() as u64 > self.end - self.at {
            return Err(Damage::Cut { found: self.at + bytes.len() as u64, expected: self.end });
        }
        while !bytes.is_empty() {
            let chunk_end = (self.at / CHUNK_BYTES + 1) * CHUNK_BYTES;
            let count = (bytes.len() as u64).min(chunk_end - self.at) as usize;
            let (now, rest) = bytes.split_at(count);
            self.hasher.update(now);
            self.put(now);
            self.at += count as u64;
            bytes = rest;
            if self.at == chunk_end || self.at == self.end {
                self.check_chunk()?;
            }
        }
        Ok(())
    }

    /// All bytes have come.
    ///
    /// # Errors
    /// [`Damage`] if bytes are missing.
    pub fn end(self) -> Result<(), Damage> {
        if self.at == self.end { Ok(()) } else { Err(Damage::Cut { found: self.at, expected: self.end }) }
    }

    fn put(&mut self, bytes: &[u8]) {
        let wanted = self.first..self.first + self.into.len() as u64;
        let (begin, end) = (self.at.max(wanted.start), (self.at + bytes.len() as u64).min(wanted.end));
        if begin < end {
            let from = &bytes[(begin - self.at) as usize..(end - self.at) as usize];
            self.into[(begin - wanted.start) as usize..(end - wanted.start) as usize].copy_from_slice(from);
        }
    }

    fn check_chunk(&mut self) -> Result<(), Damage> {
        let number = (self.at - 1) / CHUNK_BYTES;
        let found = std::mem::take(&mut self.hasher).finalize();
        if self.header.sums().get(number as usize) != Some(&found) {
            return Err(Damage::Chunk { number });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: usize = CHUNK_BYTES as usize;

    fn value() -> (Vec<u8>, SpillHeader) {
        let value: Vec<u8> = (0..3 * CHUNK + 5).map(|at| (at / 7 % 256) as u8).collect();
        let header = SpillHeader::new(value.chunks(CHUNK).map(crc32fast::hash).collect());
        (value, header)
    }

    #[test]
    fn pieces_of_any_length_are_checked_and_put() {
        let (value, header) = value();
        for piece in [1000, CHUNK - 1, CHUNK, value.len()] {
            let mut into = vec![0; CHUNK + 8];
            let first = 2 * CHUNK - 3;
            let mut arriving =
                Arriving::new(&header, CHUNK_BYTES, value.len() as u64, first as u64, &mut into);
            for bytes in value[CHUNK..].chunks(piece) {
                arriving.take(bytes).expect("as written");
            }
            arriving.end().expect("all of it");
            assert!(into == value[first..first + CHUNK + 8], "{piece}");
        }
    }

    #[test]
    fn what_is_not_as_written_is_found() {
        let (mut value, header) = value();
        let (length, mut into) = (value.len() as u64, vec![0; value.len()]);
        let mut short = Arriving::new(&header, 0, length, 0, &mut into);
        short.take(&value[..CHUNK]).expect("as written");
        assert_eq!(short.end(), Err(Damage::Cut { found: CHUNK_BYTES, expected: length }));
        value[CHUNK + 1] ^= 1;
        let mut into = vec![0; value.len()];
        let mut arriving = Arriving::new(&header, 0, length, 0, &mut into);
        assert_eq!(arriving.take(&value), Err(Damage::Chunk { number: 1 }));
        let mut into = vec![0; 1];
        let mut longer = Arriving::new(&header, 0, CHUNK_BYTES, 0, &mut into);
        assert!(matches!(longer.take(&value), Err(Damage::Cut { .. })));
    }
}
