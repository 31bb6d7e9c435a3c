//! First messages of TLS, made by hand.

/// A hello: a record around a handshake message (RFC 8446, sections 4.1.2 and 5.1).
fn hello(suites: &[u16], extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.push(0);
    body.extend(with_length(&suites.iter().flat_map(|suite| suite.to_be_bytes()).collect::<Vec<_>>()));
    body.extend([1, 0]);
    let extensions: Vec<u8> = extensions
        .iter()
        .flat_map(|(kind, data)| [kind.to_be_bytes().to_vec(), with_length(data)].concat())
        .collect();
    body.extend(with_length(&extensions));
    let mut message = vec![1, 0];
    message.extend(with_length(&body));
    [vec![0x16, 3, 1], with_length(&message)].concat()
}

fn with_length(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).expect("short");
    [&length.to_be_bytes()[..], bytes].concat()
}

fn server_name(name: &str) -> (u16, Vec<u8>) {
    (0, with_length(&[vec![0], with_length(name.as_bytes())].concat()))
}

/// ECDSA with P-256, and Ed25519.
fn signatures() -> (u16, Vec<u8>) {
    (13, with_length(&[4, 3, 8, 7]))
}

/// Of a peer that speaks TLS 1.2 at best.
pub(crate) fn old_hello() -> Vec<u8> {
    hello(&[0xc02b, 0xc02f], &[server_name("node.n-000000000b000000.sooner"), signatures()])
}

/// With TLS 1.3 and as many further bytes as are wanted.
pub(crate) fn padded_hello(name: Option<&str>, padding: usize) -> Vec<u8> {
    let mut extensions = vec![signatures(), (43, vec![2, 3, 4]), (21, vec![0; padding])];
    extensions.extend(name.map(server_name));
    hello(&[0x1301], &extensions)
}
