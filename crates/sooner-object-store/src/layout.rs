//! How a file is divided into objects. No I/O.
//!
//! A file is a sequence of bytes as on a disk, written once and as a whole. Its object number `n` has the
//! bytes from `n` times [`OBJECT_BYTES`] on; the last one is shorter. So no object needs an upload in parts,
//! of which a store might keep some, unlisted, if the process dies in between.

use std::ops::Range;

use bytes::Bytes;
use object_store::PutPayload;

/// Bytes of an object: long enough that the overhead of a request is small, short enough that several are
/// transferred at a time.
pub const OBJECT_BYTES: u64 = 8 << 20;

/// How many objects a file of this length has.
pub fn objects_of(length: u64) -> u64 {
    length.div_ceil(OBJECT_BYTES)
}

/// The bytes of each object that a range of a file covers, in order.
pub fn parts(range: Range<u64>) -> impl Iterator<Item = (u64, Range<u64>)> {
    let numbers = range.start / OBJECT_BYTES..range.end.div_ceil(OBJECT_BYTES);
    numbers.map(move |number| {
        let begin = number * OBJECT_BYTES;
        (number, range.start.max(begin) - begin..(range.end - begin).min(OBJECT_BYTES))
    })
}

/// Cuts a file into its objects, without copying a byte.
pub fn cut(pieces: impl IntoIterator<Item = Bytes>) -> Vec<PutPayload> {
    let mut objects = Vec::new();
    let (mut object, mut room): (Vec<Bytes>, usize) = (Vec::new(), OBJECT_BYTES as usize);
    for mut piece in pieces {
        while !piece.is_empty() {
            let part = piece.split_to(piece.len().min(room));
            room -= part.len();
            object.push(part);
            if room == 0 {
                objects.push(std::mem::take(&mut object).into_iter().collect());
                room = OBJECT_BYTES as usize;
            }
        }
    }
    if !object.is_empty() {
        objects.push(object.into_iter().collect());
    }
    objects
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_found_in_their_objects() {
        let found: Vec<_> = parts(OBJECT_BYTES - 1..2 * OBJECT_BYTES + 3).collect();
        assert_eq!(found, [(0, OBJECT_BYTES - 1..OBJECT_BYTES), (1, 0..OBJECT_BYTES), (2, 0..3)]);
        assert_eq!(parts(OBJECT_BYTES..OBJECT_BYTES + 1).collect::<Vec<_>>(), [(1, 0..1)]);
        assert_eq!(parts(7..7).count(), 1, "an empty range is in the object where it begins");
        assert_eq!(parts(OBJECT_BYTES..OBJECT_BYTES).count(), 0);
    }

    #[test]
    fn a_file_is_cut_where_objects_end() {
        let lengths = [1, OBJECT_BYTES as usize, 3, 2 * OBJECT_BYTES as usize - 4];
        let whole: Vec<u8> = (0..lengths.iter().sum::<usize>()).map(|at| (at % 251) as u8).collect();
        let mut rest = Bytes::from(whole.clone());
        let objects = cut(lengths.map(|length| rest.split_to(length)));
        assert_eq!(objects.len() as u64, objects_of(whole.len() as u64));
        let sizes: Vec<_> = objects.iter().map(PutPayload::content_length).collect();
        assert_eq!(sizes, [OBJECT_BYTES as usize; 3], "{}", whole.len());
        let joined: Vec<u8> = objects.into_iter().flat_map(Bytes::from).collect();
        assert!(joined == whole);
        assert_eq!(cut([]).len(), 0);
    }
}
