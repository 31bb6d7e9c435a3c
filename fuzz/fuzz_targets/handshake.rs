//! Both ends of an encrypted connection before the other one has proved who it is: whatever comes, nothing
//! panics, nobody is taken for a node of the cluster, and no byte is handed up. A certificate that was
//! changed anywhere proves nothing.
//!
//! The first byte chooses who is attacked with what; the rest are bytes of the connection, or changes of a
//! certificate.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use sooner_fuzz::{HERE, THERE, changed, client_hello, credentials, identity, sockets};
use sooner_runtime::identity::{Credentials, Destination, Identity};
use sooner_runtime::transport::TlsStream;

static CERTIFIED: LazyLock<Credentials> = LazyLock::new(|| credentials(THERE));
static OURS: LazyLock<Identity> = LazyLock::new(|| identity(HERE));
static HELLO: LazyLock<Vec<u8>> = LazyLock::new(|| client_hello(Destination::Node));

/// Turns that a whole handshake takes, and some more.
const TURNS: usize = 6;

/// Reads until nothing comes; nothing may come up.
fn receives_nothing(stream: &TlsStream) {
    let mut out = [0; 4096];
    assert!(stream.read(&mut out).unwrap_or(0) == 0);
    assert!(stream.peer().is_none());
    if let Some(failure) = stream.failure() {
        assert!(failure.to_string().len() < 4096);
    }
}

fn attack(is_dialled: bool, bytes: &[u8]) {
    let (ours, theirs) = sockets();
    let stream = if is_dialled {
        TlsStream::accept(ours, &OURS)
    } else {
        TlsStream::dial(ours, &OURS, Destination::Node.server_name(THERE))
    };
    let _ = stream.flush();
    let _ = rustix::io::write(&theirs, &bytes[..bytes.len().min(16 << 10)]);
    receives_nothing(&stream);
    let _ = stream.flush();
    drop(theirs);
    receives_nothing(&stream);
}

fn forge(dials: bool, changes: &[u8]) {
    let certificate = changed(&CERTIFIED.certificate, changes);
    let is_genuine = certificate == CERTIFIED.certificate;
    let forged = Credentials { certificate, ..CERTIFIED.clone() };
    let Ok(forger) = Identity::new(&forged) else { return };
    assert_eq!(forger.node(), THERE);
    let (ours, theirs) = sockets();
    let (there, here) = if dials {
        let there = TlsStream::dial(theirs, &forger, Destination::Node.server_name(HERE));
        (there, TlsStream::accept(ours, &OURS))
    } else {
        let here = TlsStream::dial(ours, &OURS, Destination::Node.server_name(THERE));
        (TlsStream::accept(theirs, &forger), here)
    };
    for _ in 0..TURNS {
        for stream in [&there, &here] {
            let _ = stream.flush();
            let _ = stream.read(&mut [0; 64]);
        }
    }
    assert_eq!(here.peer(), is_genuine.then_some(THERE));
}

fuzz_target!(|input: &[u8]| {
    let Some((which, bytes)) = input.split_first() else { return };
    match which % 5 {
        0 => attack(true, bytes),
        1 => attack(false, bytes),
        2 => attack(true, &changed(&HELLO, bytes)),
        3 => forge(true, bytes),
        _ => forge(false, bytes),
    }
});
