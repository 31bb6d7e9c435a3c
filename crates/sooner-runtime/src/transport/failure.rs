//! Why an encrypted connection ended: one sentence for the people on this side, with what to do if something
//! can be done.

use rustix::io::Errno;
use rustls::{AlertDescription, CertificateError, Error};
use sooner_wire::limits::HANDSHAKE_NANOS;

use super::foreign::Foreign;
use crate::identity::{Fingerprint, OtherCluster};

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsFailure {
    /// The peer does not speak TLS.
    #[error("{0}")]
    Foreign(Foreign),
    /// The peer showed no certificate.
    #[error("the peer showed no certificate: only processes of the cluster may connect")]
    NoCertificate,
    /// The peer belongs to another cluster, or has no token.
    #[error("{0}: start it with this cluster's token")]
    OtherCluster(OtherCluster),
    /// The peer did not accept this node's certificate.
    #[error("the peer did not accept this node's certificate: the tokens differ; this is cluster {0}")]
    NotAccepted(Fingerprint),
    /// Another node answered than the one that was dialled.
    #[error("the peer is {presented}, not {expected}: another node has taken this address")]
    OtherNode {
        /// Who was dialled.
        expected: String,
        /// Who answered.
        presented: String,
    },
    /// The peer dialled another node; [`Self::OtherNode`] is the same failure on its side.
    #[error("the peer dialled another node: that one had this address before")]
    NotExpected,
    /// The node that was dialled is no longer at this address, or is not what the dialler expects.
    #[error("the peer does not go by the name that was dialled: another node has taken this address")]
    NoSuchName,
    /// The node that was dialled has no room for another connection.
    #[error("the peer has too many connections that have not proved who they are: try again")]
    NoRoom,
    /// A certificate of the cluster that names no node.
    #[error("the peer's certificate does not name one node")]
    NotANode,
    /// The peer's certificate is not valid for this use, for the given reason.
    #[error("the peer's certificate cannot be used: {0}")]
    BadCertificate(String),
    /// The peer is too old, or is not sooner.
    #[error("the peer does not speak TLS 1.3 as sooner does: it is not sooner, or another version of it")]
    OldProtocol,
    /// What arrived is not what was sent.
    #[error("bytes were changed on the way: the connection ends")]
    Changed,
    /// An alert of the peer, in its words.
    #[error("the peer ended the connection: {0}")]
    Alert(String),
    /// The peer does not keep to the protocol.
    #[error("the peer broke the TLS protocol: {0}")]
    Broken(String),
    /// The connection ended too early to know anything.
    #[error(
        "the connection ended before both sides had proved who they are; the log of the peer's node says why"
    )]
    CutInHandshake,
    /// The connection ended without a closing message.
    #[error("the connection was cut")]
    Cut,
    /// The peer sent nothing.
    #[error("the peer did not prove who it is within {} s", HANDSHAKE_NANOS / 1_000_000_000)]
    Silent,
    /// The system's error.
    #[error("the connection failed: {0}")]
    Socket(Errno),
}

impl TlsFailure {
    /// The failure for an error of the library; `was_open` if both sides had proved who they are.
    pub(super) fn of(error: Error, first: &[u8], was_open: bool, cluster: &Fingerprint) -> Self {
        if let (false, Some(foreign)) = (was_open, Foreign::recognise(first)) {
            return TlsFailure::Foreign(foreign);
        }
        match error {
            Error::NoCertificatesPresented => TlsFailure::NoCertificate,
            Error::InvalidCertificate(error) => of_certificate(&error),
            Error::AlertReceived(alert) => of_alert(alert, cluster),
            Error::PeerIncompatible(_) => TlsFailure::OldProtocol,
            Error::DecryptError => TlsFailure::Changed,
            other => TlsFailure::Broken(other.to_string()),
        }
    }
}

fn of_certificate(error: &CertificateError) -> TlsFailure {
    match error {
        CertificateError::Other(other) => match other.0.downcast_ref::<OtherCluster>() {
            Some(cluster) => TlsFailure::OtherCluster(cluster.clone()),
            None => TlsFailure::BadCertificate(error.to_string()),
        },
        CertificateError::NotValidForNameContext { expected, presented } => TlsFailure::OtherNode {
            expected: expected.to_str().into_owned(),
            presented: presented.first().cloned().unwrap_or_else(|| "nobody".to_owned()),
        },
        other => TlsFailure::BadCertificate(other.to_string()),
    }
}

fn of_alert(alert: AlertDescription, cluster: &Fingerprint) -> TlsFailure {
    match alert {
        AlertDescription::CertificateUnknown
        | AlertDescription::UnknownCA
        | AlertDescription::DecryptError => TlsFailure::NotAccepted(cluster.clone()),
        AlertDescription::BadCertificate => TlsFailure::NotExpected,
        AlertDescription::UnrecognisedName => TlsFailure::NoSuchName,
        AlertDescription::InternalError => TlsFailure::NoRoom,
        AlertDescription::ProtocolVersion | AlertDescription::HandshakeFailure => TlsFailure::OldProtocol,
        AlertDescription::BadRecordMac => TlsFailure::Changed,
        other => TlsFailure::Alert(format!("{other:?}")),
    }
}
