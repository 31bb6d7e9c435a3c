//! How a value's bytes begin: one format byte that says how to read the rest.
//!
//! The byte is language-neutral, so that a later front end can read what Python wrote where the format
//! allows. This module holds the numbers of the formats and the layout of a value's parts; the bindings read
//! and write them. A value came from another process, so no length in it is trusted.

use std::ops::Range;

/// A scalar or small container in sooner's own compact form (None, bool, int, float, str, bytes, tuple,
/// list).
pub const FORMAT_PLAIN: u8 = 1;
/// Pickle protocol 5 with out-of-band buffers.
pub const FORMAT_PICKLE5: u8 = 2;
/// Raw bytes of a Python `bytes` object, without a copy when shared.
pub const FORMAT_BYTES: u8 = 3;

/// Alignment of out-of-band buffers inside a value (bytes).
pub const BUFFER_ALIGNMENT: usize = 64;

/// Bytes before the data of a value of [`FORMAT_BYTES`].
pub const BYTES_HEAD: usize = 8;

/// Bytes before the pickle of a [`FORMAT_PICKLE5`] value: the format, the number of buffers at 4 (4 bytes),
/// the length of the pickle at 8, and the length of each buffer (8 bytes each), all little endian.
#[must_use]
pub const fn pickle_head_bytes(buffers: usize) -> usize {
    16 + 8 * buffers
}

/// Byte ranges of the pickle and the buffers of a [`FORMAT_PICKLE5`] value; iterates over the buffers.
#[derive(Debug, Clone)]
pub struct PickleParts<'a> {
    /// The pickle.
    pub pickle: Range<usize>,
    /// Lengths of the remaining buffers, encoded.
    lengths: &'a [u8],
    /// End of the previous part.
    at: usize,
    size: usize,
}

impl<'a> PickleParts<'a> {
    /// Reads the head of a value; `None` if it is garbled.
    #[must_use]
    pub fn read(value: &'a [u8]) -> Option<Self> {
        let buffers = u32::from_le_bytes(*value.get(4..)?.first_chunk()?) as usize;
        let length = usize::try_from(u64::from_le_bytes(*value.get(8..)?.first_chunk()?)).ok()?;
        let lengths = value.get(16..)?.get(..buffers.checked_mul(8)?)?;
        let start = pickle_head_bytes(buffers);
        let at = start.checked_add(length).filter(|end| *end <= value.len())?;
        Some(Self { pickle: start..at, lengths, at, size: value.len() })
    }

    /// How many buffers are left.
    #[must_use]
    pub fn buffers(&self) -> usize {
        self.lengths.len() / 8
    }
}

impl Iterator for PickleParts<'_> {
    /// `None` for a buffer that is not within the value.
    type Item = Option<Range<usize>>;

    fn next(&mut self) -> Option<Self::Item> {
        let (length, rest) = self.lengths.split_first_chunk()?;
        self.lengths = rest;
        let buffer = || {
            let start = self.at.checked_next_multiple_of(BUFFER_ALIGNMENT)?;
            let end = start.checked_add(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
            (end <= self.size).then_some(start..end)
        };
        let found = buffer();
        // After an invalid buffer, all later ones are invalid, too.
        self.at = found.as_ref().map_or(usize::MAX, |range| range.end);
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(pickle: u64, buffers: &[u64], size: usize) -> Vec<u8> {
        let mut bytes = vec![FORMAT_PICKLE5, 0, 0, 0];
        bytes.extend_from_slice(&u32::try_from(buffers.len()).expect("few").to_le_bytes());
        bytes.extend_from_slice(&pickle.to_le_bytes());
        buffers.iter().for_each(|length| bytes.extend_from_slice(&length.to_le_bytes()));
        bytes.resize(size, 0);
        bytes
    }

    #[test]
    fn parts_lie_behind_each_other_and_are_aligned() {
        let bytes = value(5, &[3, 0, 64], 256);
        let mut parts = PickleParts::read(&bytes).expect("whole");
        assert_eq!((parts.pickle.clone(), parts.buffers()), (40..45, 3));
        assert_eq!(parts.next(), Some(Some(64..67)));
        assert_eq!(parts.next(), Some(Some(128..128)));
        assert_eq!(parts.next(), Some(Some(128..192)));
        assert_eq!(parts.next(), None);
    }

    #[test]
    fn no_length_is_believed() {
        for bytes in
            [vec![], vec![FORMAT_PICKLE5], value(5, &[], 15), value(5, &[], 20), value(u64::MAX, &[], 99)]
        {
            assert!(PickleParts::read(&bytes).is_none(), "{bytes:?}");
        }
        let mut many = value(1, &[], 64);
        many[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(PickleParts::read(&many).is_none());
        for length in [193, 1 << 40, u64::MAX] {
            let bytes = value(5, &[length, 1], 256);
            let found: Vec<_> = PickleParts::read(&bytes).expect("its pickle is there").collect();
            assert_eq!(found, [None, None], "{length}");
        }
    }
}
