//! The format of a record: making and parsing its header. No I/O. The table is in the module above.
//!
//! Invariant: a header is read only for one object at one place, of which the reader knows the length.
//! Whatever the bytes are, reading them takes no more memory than that length accounts for.

use sooner_wire::id::OBJECT_ID_BYTES;

use super::{Damage, SpillPlace};

/// Records, and the ranges read of them, are aligned to this (bytes), as direct I/O requires.
pub const BLOCK_BYTES: u64 = 4096;

/// How much one checksum covers (bytes): reading a range costs at most two chunks more than its length.
pub const CHUNK_BYTES: u64 = 1 << 20;

const MAGIC: &[u8; 8] = b"soonSPIL";
const VERSION: u32 = 1;
/// Bytes of the header before the checksums of chunks.
const FIXED: usize = 64;
/// Bytes of one checksum.
const SUM: usize = 4;

/// The checksums of an object's chunks, as in its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpillHeader {
    sums: Vec<u32>,
}

/// Bytes of the header of an object of this length.
#[must_use]
pub fn header_bytes(length: u64) -> u64 {
    (FIXED as u64 + length.div_ceil(CHUNK_BYTES) * SUM as u64 + SUM as u64).next_multiple_of(BLOCK_BYTES)
}

/// Bytes that an object of so many takes in a file: header, object and padding. The length is at most
/// [`sooner_wire::limits::SPILL_OBJECT_BYTES_MAX`].
#[must_use]
pub fn record_bytes(length: u64) -> u64 {
    header_bytes(length) + length.next_multiple_of(BLOCK_BYTES)
}

/// The checksum of a chunk, or of a header.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// Checksums of the chunks in `bytes`, which begin with a chunk.
pub fn checksums(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.chunks(CHUNK_BYTES as usize).map(checksum)
}

impl SpillHeader {
    /// The header of an object whose chunks have these checksums.
    #[must_use]
    pub fn new(sums: Vec<u32>) -> Self {
        Self { sums }
    }

    /// Writes the header to the whole of `into`.
    ///
    /// # Panics
    /// When `into` is not as long as the header of such an object, or there is not one checksum for each
    /// chunk.
    pub fn encode(&self, place: SpillPlace, id: &[u8; OBJECT_ID_BYTES], into: &mut [u8]) {
        assert_eq!(into.len() as u64, header_bytes(place.length), "room for the header");
        assert_eq!(self.sums.len() as u64, place.length.div_ceil(CHUNK_BYTES), "a checksum for each chunk");
        into.fill(0);
        into[..8].copy_from_slice(MAGIC);
        into[8..12].copy_from_slice(&VERSION.to_le_bytes());
        let length = into.len() as u32;
        into[12..16].copy_from_slice(&length.to_le_bytes());
        into[16..20].copy_from_slice(&(CHUNK_BYTES as u32).to_le_bytes());
        into[20..40].copy_from_slice(id);
        into[40..48].copy_from_slice(&place.file.to_le_bytes());
        into[48..56].copy_from_slice(&place.offset.to_le_bytes());
        into[56..64].copy_from_slice(&place.length.to_le_bytes());
        for (at, sum) in into[FIXED..].chunks_exact_mut(SUM).zip(&self.sums) {
            at.copy_from_slice(&sum.to_le_bytes());
        }
        let end = into.len() - SUM;
        let own = checksum(&into[..end]);
        into[end..].copy_from_slice(&own.to_le_bytes());
    }

    /// Parses the header at the start of `bytes`, which must be that of this object at this place.
    ///
    /// # Errors
    /// [`Damage`]: what is there instead.
    pub fn parse(bytes: &[u8], place: SpillPlace, id: &[u8; OBJECT_ID_BYTES]) -> Result<Self, Damage> {
        let cut = Damage::Cut { found: bytes.len() as u64, expected: header_bytes(place.length) };
        let bytes = bytes.get(..header_bytes(place.length) as usize).ok_or(cut)?;
        if &bytes[..8] != MAGIC {
            return Err(Damage::NoHeader);
        }
        match number(bytes, 8) {
            VERSION => {}
            found => return Err(Damage::Version { found, expected: VERSION }),
        }
        let end = bytes.len() - SUM;
        if number(bytes, end) != checksum(&bytes[..end]) {
            return Err(Damage::Header);
        }
        // A header with a good checksum may still be that of another object, or of another place.
        let mut expected = vec![0; bytes.len()];
        let sums = bytes[FIXED..end].chunks_exact(SUM).take(place.length.div_ceil(CHUNK_BYTES) as usize);
        let header = Self { sums: sums.map(|sum| number(sum, 0)).collect() };
        header.encode(place, id, &mut expected);
        if bytes != expected { Err(Damage::OtherObject) } else { Ok(header) }
    }

    /// Checks bytes that begin with the chunk numbered `first`, and end with a chunk or with the object.
    ///
    /// # Errors
    /// [`Damage::Chunk`] with the first chunk that is not as it was written.
    pub fn verify(&self, first: usize, bytes: &[u8]) -> Result<(), Damage> {
        for (chunk, sum) in (first..).zip(checksums(bytes)) {
            if self.sums.get(chunk) != Some(&sum) {
                return Err(Damage::Chunk { number: chunk as u64 });
            }
        }
        Ok(())
    }

    /// The checksums.
    #[must_use]
    pub fn sums(&self) -> &[u32] {
        &self.sums
    }
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + SUM].try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: [u8; OBJECT_ID_BYTES] = [7; OBJECT_ID_BYTES];

    fn encoded(length: u64) -> (SpillPlace, SpillHeader, Vec<u8>) {
        let place = SpillPlace { file: 3, offset: 8192, length };
        let header = SpillHeader::new((0..length.div_ceil(CHUNK_BYTES)).map(|i| i as u32 * 77).collect());
        let mut bytes = vec![1; header_bytes(length) as usize];
        header.encode(place, &ID, &mut bytes);
        (place, header, bytes)
    }

    #[test]
    fn what_is_written_is_read() {
        for length in
            [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, 1007 * CHUNK_BYTES, 1008 * CHUNK_BYTES, 5000 * CHUNK_BYTES]
        {
            let (place, header, bytes) = encoded(length);
            assert_eq!(SpillHeader::parse(&bytes, place, &ID), Ok(header), "{length}");
        }
        assert_eq!(
            header_bytes(1007 * CHUNK_BYTES),
            4096,
            "the most chunks that fit beside one block's own checksum"
        );
        assert_eq!(header_bytes(1008 * CHUNK_BYTES), 8192);
    }

    #[test]
    fn the_bytes_are_those_of_version_1() {
        let (_, _, bytes) = encoded(CHUNK_BYTES + 1);
        let mut expected = vec![0; 4096];
        expected[..20].copy_from_slice(b"soonSPIL\x01\0\0\0\0\x10\0\0\0\0\x10\0");
        expected[20..40].fill(7);
        expected[40] = 3;
        expected[49] = 0x20;
        expected[56] = 1;
        expected[58] = 0x10;
        expected[68] = 77;
        let sum = crc32fast::hash(&expected[..4092]);
        expected[4092..].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(bytes, expected);
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_seen() {
        let (place, _, bytes) = encoded(3 * CHUNK_BYTES);
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(SpillHeader::parse(&changed, place, &ID).is_err(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            let cut = Damage::Cut { found: length as u64, expected: 4096 };
            assert_eq!(SpillHeader::parse(&bytes[..length], place, &ID), Err(cut));
        }
    }

    #[test]
    fn another_object_or_place_is_not_taken_for_this_one() {
        let (place, _, bytes) = encoded(100);
        let mut other = ID;
        other[19] = 8;
        assert_eq!(SpillHeader::parse(&bytes, place, &other), Err(Damage::OtherObject));
        for place in [
            SpillPlace { file: 4, ..place },
            SpillPlace { offset: 4096, ..place },
            SpillPlace { length: 101, ..place },
        ] {
            assert_eq!(SpillHeader::parse(&bytes, place, &ID), Err(Damage::OtherObject));
        }
        let mut later = bytes;
        later[8] = 2;
        assert_eq!(SpillHeader::parse(&later, place, &ID), Err(Damage::Version { found: 2, expected: 1 }));
        assert_eq!(SpillHeader::parse(&[0; 4096], place, &ID), Err(Damage::NoHeader));
    }
}
