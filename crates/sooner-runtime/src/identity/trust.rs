//! Which certificates are accepted. The library decides; this module only words its refusals, and reads the
//! node from an accepted certificate.

use std::fmt;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
};
use sooner_wire::NodeId;

use super::authority::{CLUSTER, Fingerprint};
use super::name::node_of_name;

/// The node that a certificate names; `None` when it names none, or several.
#[must_use]
pub fn node_of(certificate: &CertificateDer<'_>) -> Option<NodeId> {
    let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
    let mut nodes = certificate.valid_dns_names().filter_map(node_of_name);
    let node = nodes.next()?;
    nodes.next().is_none().then_some(node)
}

/// The cluster that a certificate claims to be of; this is not proved.
pub(super) fn claimed_cluster(certificate: &CertificateDer<'_>) -> Option<Fingerprint> {
    let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
    let issuer = certificate.issuer();
    let at = issuer.windows(CLUSTER.len()).position(|window| window == CLUSTER.as_bytes())? + CLUSTER.len();
    let text = issuer.get(at..at + Fingerprint::BYTES)?;
    Fingerprint::parse(std::str::from_utf8(text).ok()?)
}

/// A peer's certificate is not one of this cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherCluster {
    /// This cluster.
    pub ours: Fingerprint,
    /// The cluster that the certificate claims; `None` if sooner cannot read it.
    pub theirs: Option<Fingerprint>,
}

impl fmt::Display for OtherCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.theirs {
            Some(theirs) if *theirs == self.ours => {
                write!(
                    f,
                    "the peer's certificate says it is of this cluster ({theirs}), but is not signed with its token"
                )
            }
            Some(theirs) => write!(
                f,
                "the peer has the token of another cluster: its certificate is of {theirs}, this is {}",
                self.ours
            ),
            None => write!(f, "the peer's certificate is not one of sooner's; this is cluster {}", self.ours),
        }
    }
}

impl std::error::Error for OtherCluster {}

fn explain(error: Error, certificate: &CertificateDer<'_>, ours: &Fingerprint) -> Error {
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            let theirs = claimed_cluster(certificate);
            let reason = OtherCluster { ours: ours.clone(), theirs };
            Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(reason))))
        }
        other => other,
    }
}

/// Checks of a process that dials.
#[derive(Debug)]
pub(super) struct Servers {
    verifier: Arc<WebPkiServerVerifier>,
    cluster: Fingerprint,
}

impl Servers {
    pub(super) fn new(verifier: Arc<WebPkiServerVerifier>, cluster: Fingerprint) -> Self {
        Self { verifier, cluster }
    }
}

impl ServerCertVerifier for Servers {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verifier
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            .map_err(|error| explain(error, end_entity, &self.cluster))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

/// Checks of a process that was dialled.
#[derive(Debug)]
pub(super) struct Clients {
    verifier: Arc<dyn ClientCertVerifier>,
    cluster: Fingerprint,
}

impl Clients {
    pub(super) fn new(verifier: Arc<dyn ClientCertVerifier>, cluster: Fingerprint) -> Self {
        Self { verifier, cluster }
    }
}

impl ClientCertVerifier for Clients {
    fn offer_client_auth(&self) -> bool {
        self.verifier.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.verifier.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.verifier.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.verifier
            .verify_client_cert(end_entity, intermediates, now)
            .map_err(|error| explain(error, end_entity, &self.cluster))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}
