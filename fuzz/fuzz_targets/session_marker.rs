//! What an object store gives in place of the marker of a session: a process, or nothing that is known.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use sooner_object_store::Identity;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let own = Identity::own();
    check(text);
    // A marker of this process, with some of its lines as the input has them.
    let (mine, theirs) = (own.encode(), text.lines().map(Some).chain(std::iter::repeat(None)));
    let lines =
        mine.lines().zip(theirs).map(|(line, other)| other.filter(|other| !other.is_empty()).unwrap_or(line));
    check(&lines.collect::<Vec<_>>().join("\n"));
});

fn check(text: &str) {
    let found = Identity::decode(text);
    if let Some(found) = &found {
        assert_eq!(Identity::decode(&found.encode()).as_ref(), Some(found));
    }
    // Nobody who cannot tell calls a session dead that may be alive.
    let nobody = Identity::decode("a session of sooner, version 1\nboot \nnamespace 0\npid 0\nstarted 0\n")
        .expect("a marker");
    assert!(!nobody.finds_dead(found.as_ref(), Duration::from_secs(3600)));
    assert!(nobody.finds_dead(found.as_ref(), Duration::from_secs(48 * 3600)));
}
