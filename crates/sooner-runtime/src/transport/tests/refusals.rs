//! Who does not get in, and the sentence for it.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use sooner_protocol::session::hello::{Me, Refusal, hello, on_hello};
use sooner_wire::message::Message;
use sooner_wire::{DialAttempt, WorkerId};

use super::*;
use crate::transport::pair;

/// What the dialled side says of a peer that sends these bytes and leaves.
fn refused_for(bytes: &[u8]) -> TlsFailure {
    let (peer, socket) = tcp();
    let mut peer = TcpStream::from(peer);
    peer.write_all(bytes).expect("room");
    peer.shutdown(std::net::Shutdown::Write).expect("open");
    let mut end = End::accept(socket, &member(B, CLUSTER));
    let (_, unused) = tcp();
    run(&mut end, &mut End::accept(unused, &member(B, CLUSTER)), |end, _| end.has_ended);
    end.stream.failure().expect("refused")
}

#[test]
fn a_node_with_another_token_is_refused_by_both_sides() {
    let (mut at_a, mut at_b) = shake(&member(A, OTHER), B, &member(B, CLUSTER));
    run(&mut at_a, &mut at_b, |a, b| a.has_ended && b.has_ended);
    let (ours, theirs) =
        (authority(CLUSTER).fingerprint().to_string(), authority(OTHER).fingerprint().to_string());
    let (why_a, why_b) = (at_a.why(), at_b.why());
    assert!(why_a.contains("another cluster") && why_a.contains(&ours) && why_a.contains(&theirs), "{why_a}");
    assert!(matches!(at_b.stream.failure(), Some(TlsFailure::NotAccepted(_))), "{why_b}");
}

#[test]
fn a_dialler_that_believes_everybody_is_refused_for_its_own_certificate() {
    let (right, wrong) = (authority(CLUSTER), authority(OTHER));
    let intruder = identity(&Credentials::issue(A, Bearer::Node, &wrong, &[&right, &wrong]));
    let (mut at_a, mut at_b) = shake(&intruder, B, &member(B, CLUSTER));
    run(&mut at_a, &mut at_b, |a, b| a.has_ended && b.has_ended);
    assert!(matches!(at_b.stream.failure(), Some(TlsFailure::OtherCluster(_))), "{}", at_b.why());
    assert_eq!(at_b.stream.peer(), None);
    assert!(matches!(at_a.stream.failure(), Some(TlsFailure::NotAccepted(_))), "{}", at_a.why());
}

#[test]
fn a_stranger_without_a_certificate_is_refused() {
    let credentials = Credentials::issue(B, Bearer::Node, &authority(CLUSTER), &[&authority(CLUSTER)]);
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(credentials.roots[0].clone())).expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("a version")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let (socket, accepted) = tcp();
    let name = Destination::Node.server_name(B);
    let mut stranger = ClientConnection::new(Arc::new(config), name).expect("a configuration");
    let served = std::thread::spawn(move || {
        let (mut end, mut unused) =
            (End::accept(accepted, &identity(&credentials)), End::accept(tcp().1, &member(B, CLUSTER)));
        run(&mut end, &mut unused, |end, _| end.has_ended);
        end.stream.failure()
    });
    let mut socket = TcpStream::from(socket);
    // Until it is refused: by then it believes that it is in.
    while matches!(stranger.complete_io(&mut socket), Ok((read, written)) if read + written > 0) {}
    assert_eq!(served.join().expect("no panic"), Some(TlsFailure::NoCertificate));
}

#[test]
fn what_is_not_tls_is_named() {
    assert_eq!(refused_for(b"GET / HTTP/1.1\r\nHost: sooner\r\n\r\n"), TlsFailure::Foreign(Foreign::Http));
    assert_eq!(refused_for(b"SSH-2.0-OpenSSH_9.2\r\n"), TlsFailure::Foreign(Foreign::Ssh));
    assert_eq!(refused_for(b"hello there\n"), TlsFailure::Foreign(Foreign::Text));
    assert_eq!(refused_for(&[0; 500]), TlsFailure::Foreign(Foreign::Bytes));
    assert_eq!(refused_for(b""), TlsFailure::CutInHandshake);
    assert!(matches!(refused_for(b"\x16\x03\x01\x00\x04abcd"), TlsFailure::Broken(_)));
}

#[test]
fn what_answers_and_is_not_tls_is_named_too() {
    for (answer, foreign) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], Foreign::Http),
        (b"SSH-2.0-OpenSSH_9.2\r\n", Foreign::Ssh),
    ] {
        let (socket, peer) = tcp();
        TcpStream::from(peer).write_all(answer).expect("room");
        let mut end = End::dial(socket, &member(A, CLUSTER), B);
        let (_, unused) = tcp();
        run(&mut end, &mut End::accept(unused, &member(B, CLUSTER)), |end, _| end.has_ended);
        assert_eq!(end.stream.failure(), Some(TlsFailure::Foreign(foreign)));
    }
}

#[test]
fn an_older_tls_is_refused() {
    assert_eq!(refused_for(&crate::node::accept::testing::old_hello()), TlsFailure::OldProtocol);
}

#[test]
fn another_node_at_the_address_is_named() {
    let (mut at_a, mut at_c) = shake(&member(A, CLUSTER), B, &member(C, CLUSTER));
    run(&mut at_a, &mut at_c, |a, c| a.has_ended && c.has_ended);
    let why = at_a.why();
    assert!(why.contains("n-000000000c000000") && why.contains("n-000000000b000000"), "{why}");
    assert_eq!(at_c.stream.failure(), Some(TlsFailure::NotExpected));
}

#[test]
fn a_process_that_claims_to_be_of_another_node_is_refused() {
    let (mut at_a, mut at_b) = shake(&member(A, CLUSTER), B, &member(B, CLUSTER));
    let me = Me { id: WorkerId(B.0 + 1), is_head: false, python: "3.11".into() };
    let liar = Me { id: WorkerId(C.0 + 1), ..me.clone() };
    let mut bytes = Vec::new();
    Message::from(hello(&liar, me.id, 1, DialAttempt(1), None)).append(&mut bytes, 0);
    assert_eq!(at_a.stream.write(&[std::io::IoSlice::new(&bytes)]), Ok(bytes.len()));
    run(&mut at_a, &mut at_b, |_, b| b.got.len() == bytes.len());
    let said = Message::decode(90, &at_b.got[sooner_wire::frame::HEAD_BYTES..]).expect("a hello");
    let refused = on_hello(&said, &me, at_b.stream.peer().expect("proved"));
    assert_eq!(refused, Err(Refusal::NotOfItsNode { id: liar.id.0, certified: A.0 }));
}

#[test]
fn a_silent_peer_is_given_up_by_its_owner() {
    let (_peer, socket) = tcp();
    let mut end = End::accept(socket, &member(B, CLUSTER));
    end.turn();
    assert!(!end.has_decided());
    end.stream.fail(TlsFailure::Silent);
    assert_eq!(end.stream.read(&mut [0; 10]), Err(Errno::PROTO));
    assert!(end.why().contains("within 10 s"));
}

/// Two ends with somebody in between who passes on bytes, and counts them.
struct Between {
    ends: [End; 2],
    middle: [OwnedFd; 2],
    passed: [usize; 2],
}

impl Between {
    fn new(a: &Identity, b: &Identity) -> Self {
        let ((for_a, from_a), (for_b, from_b)) = (pair().expect("sockets"), pair().expect("sockets"));
        let ends = [End::dial(for_a, a, B), End::accept(for_b, b)];
        Self { ends, middle: [from_a, from_b], passed: [0, 0] }
    }

    /// Passes on what end `from` has sent, changed by `change`, which is told where in the stream the bytes
    /// are; `false` when there was nothing.
    fn pass(&mut self, from: usize, change: &mut impl FnMut(usize, &mut Vec<u8>)) -> bool {
        let mut bytes = vec![0; 1 << 16];
        let count = match rustix::io::read(&self.middle[from], &mut bytes) {
            Ok(count) => count,
            Err(_) => return false,
        };
        bytes.truncate(count);
        change(self.passed[from], &mut bytes);
        self.passed[from] += bytes.len();
        let _ = rustix::io::write(&self.middle[1 - from], &bytes);
        count > 0
    }

    /// Goes on until nothing moves any more; sockets of one machine deliver at once.
    fn settle(&mut self, mut change: impl FnMut(usize, usize, &mut Vec<u8>)) {
        loop {
            let mut moved = false;
            for from in 0..2 {
                self.ends[from].turn();
                moved |= self.pass(from, &mut |at, bytes| change(from, at, bytes));
            }
            if !moved {
                return;
            }
        }
    }

    fn cut(&mut self) {
        for socket in &self.middle {
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
        }
        for end in &mut self.ends {
            end.turn();
        }
    }
}

#[test]
fn a_connection_cut_at_any_byte_of_the_handshake_ends_on_both_sides() {
    let (a, b) = (member(A, CLUSTER), member(B, CLUSTER));
    let mut whole = Between::new(&a, &b);
    whole.settle(|_, _, _| {});
    assert!(whole.ends.iter().all(|end| end.stream.peer().is_some()));
    for from in 0..2 {
        for cut in 0..whole.passed[from] {
            let mut between = Between::new(&a, &b);
            // From there on nothing of this side gets through.
            between.settle(|who, at, bytes| {
                if who == from {
                    bytes.truncate(cut.saturating_sub(at));
                }
            });
            between.cut();
            let [a, b] = &between.ends;
            assert!(a.has_ended && b.has_ended, "cut at {cut} from end {from}");
            for end in [a, b] {
                let expected =
                    if end.stream.peer().is_some() { TlsFailure::Cut } else { TlsFailure::CutInHandshake };
                assert_eq!(end.stream.failure(), Some(expected), "cut at {cut} from end {from}");
            }
            let last = &between.ends[1 - from];
            assert!(last.stream.peer().is_none(), "it proved who it is without byte {cut}");
        }
    }
}

#[test]
fn a_byte_changed_anywhere_never_makes_another_peer() {
    let (a, b) = (member(A, CLUSTER), member(B, CLUSTER));
    let mut whole = Between::new(&a, &b);
    whole.settle(|_, _, _| {});
    for from in 0..2 {
        for position in (0..whole.passed[from]).step_by(3) {
            let mut between = Between::new(&a, &b);
            between.settle(|who, at, bytes| {
                if who == from && (at..at + bytes.len()).contains(&position) {
                    bytes[position - at] ^= 0x41;
                }
            });
            between.cut();
            for (end, node) in between.ends.iter().zip([B, A]) {
                let peer = end.stream.peer();
                assert!(peer.is_none() || peer == Some(node), "byte {position} from end {from}");
                assert!(end.has_ended && end.stream.failure().is_some(), "byte {position} from end {from}");
            }
        }
    }
}

#[test]
fn a_byte_changed_later_ends_the_connection_and_nothing_wrong_is_handed_up() {
    let (a, b) = (member(A, CLUSTER), member(B, CLUSTER));
    let mut between = Between::new(&a, &b);
    between.settle(|_, _, _| {});
    let before = between.passed[0];
    assert_eq!(between.ends[0].stream.write(&[std::io::IoSlice::new(b"first")]), Ok(5));
    between.settle(|_, _, _| {});
    assert_eq!(between.ends[0].stream.write(&[std::io::IoSlice::new(&[7; 40_000])]), Ok(40_000));
    let position = before + 30_000;
    between.settle(|who, at, bytes| {
        if who == 0 && (at..at + bytes.len()).contains(&position) {
            bytes[position - at] ^= 1;
        }
    });
    let end = &between.ends[1];
    assert_eq!(end.stream.failure(), Some(TlsFailure::Changed));
    assert!(end.got.starts_with(b"first") && end.got[5..].iter().all(|byte| *byte == 7));
    assert_eq!(end.got.len(), 5 + (16 << 10), "the record before the changed one");
}
