//! What several targets share: real bytes, changed as the fuzzer says. It would hardly find a certificate or
//! the first message of TLS by itself.

use rustix::fd::OwnedFd;
use sooner_runtime::identity::{Authority, Bearer, Credentials, Destination, Identity, Token};
use sooner_runtime::transport::{TlsStream, pair};
use sooner_wire::NodeId;

/// The node that is attacked, and the one that is or seems to be at the other end.
pub const HERE: NodeId = NodeId(0x0b00_0000);
/// See [`HERE`].
pub const THERE: NodeId = NodeId(0x0a00_0000);

/// Bytes of one change: where (16 bits, little endian), and what stands there then.
const CHANGE_BYTES: usize = 3;

/// `golden` with the changes that `changes` lists; a place behind its end cuts it there.
#[must_use]
pub fn changed(golden: &[u8], changes: &[u8]) -> Vec<u8> {
    let mut bytes = golden.to_vec();
    for change in changes.chunks_exact(CHANGE_BYTES) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]]));
        if let Some(byte) = bytes.get_mut(at) {
            *byte = change[2];
        } else {
            bytes.truncate(usize::from(change[2]).min(bytes.len()));
        }
    }
    bytes
}

/// Credentials of a node of the cluster that all targets are about.
///
/// # Panics
/// Never: the token is one.
#[must_use]
pub fn credentials(node: NodeId) -> Credentials {
    let token = Token::parse(&format!("sooner-token-1-{}", "07".repeat(32))).expect("a token");
    let authority = Authority::new(&token);
    Credentials::issue(node, Bearer::Head, &authority, &[&authority])
}

/// What that node proves itself with.
///
/// # Panics
/// Never: the credentials were made to fit.
#[must_use]
pub fn identity(node: NodeId) -> Identity {
    Identity::new(&credentials(node)).expect("made to fit")
}

/// A connected pair of sockets.
///
/// # Panics
/// Without descriptors.
#[must_use]
pub fn sockets() -> (OwnedFd, OwnedFd) {
    pair().expect("descriptors")
}

/// The first message of a node that dials another process of `HERE`.
///
/// # Panics
/// Without descriptors.
#[must_use]
pub fn client_hello(to: Destination) -> Vec<u8> {
    let (ours, theirs) = sockets();
    let dialled = TlsStream::dial(ours, &identity(THERE), to.server_name(HERE));
    dialled.flush().expect("room for one message");
    let mut bytes = vec![0; 4096];
    let count = rustix::io::read(&theirs, &mut bytes).expect("it is there");
    bytes.truncate(count);
    bytes
}
