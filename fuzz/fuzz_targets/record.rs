//! What a head finds in its store: whatever it is, it is read or refused with the key at which it is, and a
//! control service begins with it without a panic.
//!
//! The input is rows: a byte for the table, one for the length of the value, the value.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sooner_protocol::control::{DirectoryActions, Directory, Found};
use sooner_protocol::time::Instant;
use sooner_wire::record::{ACTORS, CREATIONS, GROUPS, HEAD, JOBS, NAMES, NODES, creation_key};
use sooner_wire::{ActorId, WorkerId};

const TABLES: [&str; 7] = [HEAD, NODES, JOBS, NAMES, ACTORS, CREATIONS, GROUPS];

fuzz_target!(|bytes: &[u8]| {
    let mut rows = Vec::new();
    let mut rest = bytes;
    while let [table, length, more @ ..] = rest {
        let (value, behind) = more.split_at(usize::from(*length).min(more.len()));
        let key = match TABLES[usize::from(*table) % TABLES.len()] {
            HEAD => HEAD.to_owned(),
            CREATIONS => creation_key(ActorId { owner: WorkerId(0), number: 0 }, u32::from(*table) / 7),
            table => format!("{table}{}", rows.len()),
        };
        rows.push((key, value.to_vec()));
        rest = behind;
    }
    match Found::read(rows) {
        Ok(found) => {
            let mut core = Directory::default();
            core.keep_records(found);
            core.expect_nodes(Instant(1));
            let mut out = DirectoryActions::new();
            core.on_all_here(Instant(1), &mut out);
            core.after_events(Instant(1), &mut out);
        }
        Err((key, error)) => assert!(!key.is_empty() && error.to_string().len() < 4096),
    }
});
