//! What comes over a connection for values, from a node that may send anything: reading it never panics, a
//! head that is read is written the same way, and however the bytes are cut the same parts come.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sooner_runtime::node::data::{Fault, Part, Reader};
use sooner_wire::limits::CHUNK_BYTES_MAX;
use sooner_wire::message::ChunkHead;

/// The parts of what came in pieces of so many bytes, as text, with the bytes of values apart.
fn read(bytes: &[u8], step: usize) -> (String, Vec<u8>, Option<Fault>) {
    let (mut reader, mut said, mut values) = (Reader::default(), String::new(), Vec::new());
    for piece in bytes.chunks(step) {
        let fed = reader.feed(piece, |part| {
            match part {
                Part::Bytes(bytes) => values.extend_from_slice(bytes),
                Part::Message(message) => said.push_str(&format!("{message:?}")),
                Part::Chunk(head) => said.push_str(&format!("{head:?}")),
            }
            Ok(())
        });
        if let Err(fault) = fed {
            return (said, values, Some(fault));
        }
    }
    (said, values, None)
}

fuzz_target!(|bytes: &[u8]| {
    if let Some(first) = bytes.first_chunk()
        && let Ok(head) = ChunkHead::from_bytes(first)
    {
        assert!((1..=CHUNK_BYTES_MAX).contains(&head.length));
        assert_eq!(&head.to_bytes(), first);
    }
    if bytes.is_empty() {
        return;
    }
    let whole = read(bytes, bytes.len());
    for step in [1, 7, 32] {
        assert_eq!(read(bytes, step), whole);
    }
});
