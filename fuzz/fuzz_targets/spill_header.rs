//! What a disk gives back in place of the header of a spilled object: it is that header, to the bit, or
//! refused.
//!
//! The input is the place and the id that are expected, then what is there. Its checksum is put right, so
//! that more than the checksum is met.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sooner_store::spill::{CHUNK_BYTES, SpillHeader, SpillPlace, record_bytes};

/// An object of so many bytes has a header of three blocks.
const LENGTH_MAX: u64 = 2048 * CHUNK_BYTES;

fuzz_target!(|bytes: &[u8]| {
    let Some((numbers, rest)) = bytes.split_first_chunk::<24>() else { return };
    let Some((id, found)) = rest.split_first_chunk::<20>() else { return };
    let number = |at: usize| u64::from_le_bytes(numbers[at..at + 8].try_into().expect("eight bytes"));
    let place = SpillPlace { file: number(0), offset: number(8), length: number(16) % LENGTH_MAX };
    check(found, place, id);

    let header_bytes = (place.disk_bytes() - place.length.next_multiple_of(4096)) as usize;
    assert_eq!(record_bytes(place.length), place.disk_bytes());
    // A header of this object, with some of its bytes as the input has them.
    let sums = (0..place.length.div_ceil(CHUNK_BYTES)).map(|chunk| chunk as u32).collect();
    let (header, mut image) = (SpillHeader::new(sums), vec![0; header_bytes]);
    header.encode(place, id, &mut image);
    assert_eq!(SpillHeader::parse(&image, place, id).as_ref(), Ok(&header));
    for change in found.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % header_bytes;
        image[at] = change[2];
    }
    check(&image, place, id);
    let end = header_bytes - 4;
    let sum = crc32fast::hash(&image[..end]);
    image[end..].copy_from_slice(&sum.to_le_bytes());
    check(&image, place, id);
});

/// What is taken for a header is what would be written for it.
fn check(found: &[u8], place: SpillPlace, id: &[u8; 20]) {
    match SpillHeader::parse(found, place, id) {
        Ok(header) => {
            assert_eq!(header.sums().len() as u64, place.length.div_ceil(CHUNK_BYTES));
            let mut again = vec![1; (place.disk_bytes() - place.length.next_multiple_of(4096)) as usize];
            header.encode(place, id, &mut again);
            assert_eq!(again, found[..again.len()]);
        }
        Err(damage) => assert!(!damage.to_string().is_empty()),
    }
}
