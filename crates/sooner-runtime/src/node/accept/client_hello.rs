//! Reads the first message of TLS from bytes that are only looked at: which destination does the peer want?
//!
//! The bytes are a stranger's. The library's own parser reads them, from the start each time, and nothing is
//! kept.

use rustls::server::Acceptor;
use sooner_wire::limits::PEEK_BYTES;

use crate::transport::Foreign;

/// The content of a hello.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientHello {
    /// The destination that the peer names.
    pub server_name: String,
}

/// Bytes that are no hello of sooner.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HelloFault {
    /// No TLS at all.
    #[error("{0}")]
    Foreign(Foreign),
    /// A hello longer than any of ours.
    #[error("the first message of the peer is longer than {PEEK_BYTES} bytes: it is not sooner")]
    TooLong,
    /// TLS that we do not speak.
    #[error("the peer does not speak TLS 1.3: it is not sooner, or too old")]
    Old,
    /// A hello without a destination.
    #[error("the peer does not say whom it wants: it is not sooner")]
    NoName,
    /// The library's error.
    #[error("the first message of the peer cannot be read: {0}")]
    Garbled(String),
}

/// Looks at the first bytes of a connection. `None` while more are needed.
///
/// # Errors
/// [`HelloFault`] as soon as no further byte could make it a hello of sooner.
pub fn look(bytes: &[u8]) -> Result<Option<ClientHello>, HelloFault> {
    if let Some(foreign) = Foreign::recognise(bytes) {
        return Err(HelloFault::Foreign(foreign));
    }
    let mut acceptor = Acceptor::default();
    let mut rest = &bytes[..bytes.len().min(PEEK_BYTES)];
    while !rest.is_empty() {
        match acceptor.read_tls(&mut rest) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) => return Err(HelloFault::Garbled(error.to_string())),
        }
        match acceptor.accept() {
            Ok(None) => {}
            Ok(Some(accepted)) => {
                let hello = accepted.client_hello();
                // All suites of TLS 1.3, and no others, have numbers that begin with 0x13 (RFC 8446, appendix
                // B.4).
                if !hello.cipher_suites().iter().any(|suite| u16::from(*suite) >> 8 == 0x13) {
                    return Err(HelloFault::Old);
                }
                let server_name = hello.server_name().ok_or(HelloFault::NoName)?.to_owned();
                return Ok(Some(ClientHello { server_name }));
            }
            Err((rustls::Error::PeerIncompatible(_), _)) => return Err(HelloFault::Old),
            Err((error, _)) => return Err(HelloFault::Garbled(error.to_string())),
        }
    }
    if bytes.len() >= PEEK_BYTES {
        return Err(HelloFault::TooLong);
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
