//! Recognises from its first bytes what a peer speaks instead of TLS, so that a log says "a browser", not "an
//! error".

use std::fmt;

/// First byte of the TLS record that begins a handshake, and of the one that ends a connection.
const HANDSHAKE: u8 = 0x16;
const ALERT: u8 = 0x15;
/// Second byte of every record of SSL 3 and of all versions of TLS.
const MAJOR: u8 = 3;

const HTTP: [&[u8]; 10] = [
    b"GET ",
    b"POST ",
    b"HEAD ",
    b"PUT ",
    b"DELETE ",
    b"OPTIONS ",
    b"PATCH ",
    b"CONNECT ",
    b"PRI * HTTP",
    b"HTTP/",
];

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Foreign {
    /// A browser, a proxy, a probe of a load balancer; or a web server.
    Http,
    /// A secure shell.
    Ssh,
    /// Something readable.
    Text,
    /// Something else.
    Bytes,
}

impl Foreign {
    /// What these first bytes are; `None` while they may be TLS.
    #[must_use]
    pub fn recognise(first: &[u8]) -> Option<Self> {
        let (kind, major) = (first.first()?, first.get(1).copied().unwrap_or(MAJOR));
        if matches!(*kind, HANDSHAKE | ALERT) && major == MAJOR {
            return None;
        }
        Some(if HTTP.iter().any(|word| first.starts_with(word)) {
            Foreign::Http
        } else if first.starts_with(b"SSH-") {
            Foreign::Ssh
        } else if first.iter().take(16).all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace()) {
            Foreign::Text
        } else {
            Foreign::Bytes
        })
    }
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Foreign::Http => {
                "the peer speaks HTTP: this is a port of sooner, which no browser and no proxy can use"
            }
            Foreign::Ssh => "the peer speaks SSH: this is a port of sooner",
            Foreign::Text => "the peer sent plain text: only encrypted connections of sooner are accepted",
            Foreign::Bytes => {
                "the peer sent something that is not TLS: only encrypted connections of sooner are accepted"
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_peers_speak_is_told_from_their_first_bytes() {
        for (bytes, expected) in [
            (&b"GET / HTTP/1.1\r\n"[..], Some(Foreign::Http)),
            (b"HTTP/1.1 400 Bad Request", Some(Foreign::Http)),
            (b"PRI * HTTP/2.0\r\n", Some(Foreign::Http)),
            (b"SSH-2.0-OpenSSH_9.2", Some(Foreign::Ssh)),
            (b"hello\n", Some(Foreign::Text)),
            (b"\x80\x2e\x01\x00\x02", Some(Foreign::Bytes)),
            (b"\x16\x02\x00", Some(Foreign::Bytes)),
            (b"\x00", Some(Foreign::Bytes)),
            (b"\x16\x03\x01", None),
            (b"\x16", None),
            (b"\x15\x03\x03", None),
            (b"", None),
        ] {
            assert_eq!(Foreign::recognise(bytes), expected, "{bytes:?}");
        }
    }
}
