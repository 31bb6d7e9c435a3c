//! The first bytes of a connection from anywhere: looking at them never panics, what is refused stays refused
//! when more bytes come, and whoever is handed on has said a name of this node.
//!
//! The first byte chooses whether the rest is what comes, or what is changed in a real first message.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use sooner_fuzz::{HERE, changed, client_hello};
use sooner_runtime::identity::Destination;
use sooner_runtime::node::accept::{Doorman, Verdict, look};
use sooner_wire::limits::PEEK_BYTES;

static HELLOS: LazyLock<[Vec<u8>; 2]> =
    LazyLock::new(|| [Destination::Node, Destination::Control].map(client_hello));

fuzz_target!(|input: &[u8]| {
    let Some((which, bytes)) = input.split_first() else { return };
    let real;
    let bytes = match HELLOS.get(usize::from(which % 3)) {
        Some(hello) => {
            real = changed(hello, bytes);
            &real
        }
        None => bytes,
    };
    let bytes = &bytes[..bytes.len().min(PEEK_BYTES)];
    let half = &bytes[..bytes.len() / 2];
    let doorman = Doorman::new(HERE, true);
    let early = doorman.on_bytes(half, false);
    let verdict = doorman.on_bytes(bytes, false);
    match early {
        Verdict::Wait => {}
        Verdict::Deliver(_) => assert_eq!(early, verdict),
        Verdict::Refuse(_) => assert!(matches!(verdict, Verdict::Refuse(_))),
    }
    if let Verdict::Deliver(destination) = verdict {
        let said = look(bytes).expect("was read").expect("is whole").server_name;
        assert!(said == "control.sooner" || said == destination.server_name(HERE).to_str());
    }
});
