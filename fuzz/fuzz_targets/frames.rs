//! Frames from a stranger: reading them never panics, and what was read writes and reads back as the same
//! message.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sooner_wire::frame::{HEAD_BYTES, whole_frame};
use sooner_wire::message::Message;

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    while let Ok(Some(head)) = whole_frame(rest) {
        let body = &rest[HEAD_BYTES..HEAD_BYTES + head.length];
        rest = &rest[HEAD_BYTES + head.length..];
        let Ok(message) = Message::decode(head.kind, body) else { return };
        let mut written = Vec::new();
        message.append(&mut written, 0);
        let again = whole_frame(&written).expect("within the bound").expect("whole");
        let read = Message::decode(again.kind, &written[HEAD_BYTES..]).expect("our own writing");
        // Numbers that are not equal to themselves may occur, so the text is compared.
        assert_eq!(format!("{read:?}"), format!("{message:?}"));
    }
});
