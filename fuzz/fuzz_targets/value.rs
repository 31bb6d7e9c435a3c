//! The head of a pickled value, as another process wrote it: reading it never panics, and every part lies
//! inside the value and behind the one before.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sooner_wire::value::{BUFFER_ALIGNMENT, PickleParts, pickle_head_bytes};

fuzz_target!(|bytes: &[u8]| {
    let Some(mut parts) = PickleParts::read(bytes) else { return };
    let buffers = parts.buffers();
    assert_eq!(parts.pickle.start, pickle_head_bytes(buffers));
    assert!(parts.pickle.start <= parts.pickle.end && parts.pickle.end <= bytes.len());
    let mut at = parts.pickle.end;
    let mut count = 0;
    for part in parts.by_ref() {
        count += 1;
        let Some(part) = part else { continue };
        assert!(at <= part.start && part.start <= part.end && part.end <= bytes.len());
        assert_eq!(part.start % BUFFER_ALIGNMENT, 0);
        at = part.end;
    }
    assert_eq!(count, buffers);
});
