//! Who a process is to processes of other machines, and how it proves that.
//!
//! A cluster has one secret, its [`Token`]. From it every node derives the key of the cluster's certificate
//! authority and signs a certificate for itself ([`Credentials::issue`]); no request goes over the network,
//! and the token is never sent. A process with credentials can prove on which node it is and check whether
//! its peer belongs to the same cluster ([`Identity`]). It cannot make credentials for others, so workers get
//! credentials and not the token.
//!
//! Nothing here reads a clock: certificates do not expire; only the next token ends the trust in them.
//! Nothing here opens a connection.

mod authority;
mod name;
mod token;
mod trust;

use std::fmt;
use std::sync::{Arc, LazyLock};

use parking_lot::RwLock;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::time_provider::TimeProvider;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig, SignatureScheme};
use sooner_wire::NodeId;

pub use authority::{Authority, Fingerprint};
pub use name::{Destination, NameFault};
pub use token::{Token, TokenError};
pub use trust::{OtherCluster, node_of};

/// What a process needs to prove on which node it is: plain bytes, so that a node can hand them to its
/// workers.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The node that the certificate names.
    pub node: NodeId,
    /// The certificate (DER).
    pub certificate: Vec<u8>,
    /// Its key (PKCS#8, DER): a secret of the node.
    pub key: Vec<u8>,
    /// The authorities whose certificates are accepted (DER): the cluster's; two while the token is changed.
    pub roots: Vec<Vec<u8>>,
}

/// Which processes a certificate is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bearer {
    /// A node or one of its processes.
    Node,
    /// The head node: its certificate proves also that it is the head, to peers that know only its address.
    /// Its workers get credentials of a [`Bearer::Node`].
    Head,
}

impl Credentials {
    /// Makes credentials for `node`, signed by `authority`. Their bearer accepts certificates of all
    /// `trusted`.
    ///
    /// To change the token of a running cluster, all nodes first trust both authorities and present a
    /// certificate of the old one; then they present one of the new; then they trust the new one alone. Nodes
    /// that are one step apart accept each other.
    #[must_use]
    pub fn issue(node: NodeId, bearer: Bearer, authority: &Authority, trusted: &[&Authority]) -> Self {
        let mut names = vec![name::node_name(node), format!("*.{}", name::node_name(node))];
        if bearer == Bearer::Head {
            names.push(name::HEAD_NAME.to_owned());
        }
        let (certificate, key) = authority.sign(names);
        let roots = trusted.iter().map(|root| root.certificate().to_vec()).collect();
        Self { node, certificate: certificate.to_vec(), key, roots }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({:016x})", self.node.0)
    }
}

/// Credentials, ready for connections in both directions. A renewal reaches all copies at once.
#[derive(Clone, Debug)]
pub struct Identity {
    node: NodeId,
    ready: Arc<RwLock<Ready>>,
}

#[derive(Clone, Debug)]
struct Ready {
    cluster: Fingerprint,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

/// Credentials that cannot be used. Their maker is at fault, not the peer.
#[derive(Debug, thiserror::Error)]
#[error("the credentials of node {node:016x} cannot be used: {reason}")]
pub struct BadCredentials {
    node: u64,
    reason: String,
}

impl Identity {
    /// Reads credentials.
    ///
    /// # Errors
    /// [`BadCredentials`] when the certificate, the key and the authorities do not fit together.
    pub fn new(credentials: &Credentials) -> Result<Self, BadCredentials> {
        let ready = Arc::new(RwLock::new(Self::prepare(credentials)?));
        Ok(Self { node: credentials.node, ready })
    }

    /// Replaces the credentials by others of the same node. New connections of all copies present and accept
    /// what these contain; existing connections go on.
    ///
    /// # Errors
    /// [`BadCredentials`] as for [`Identity::new`]; nothing has changed then.
    pub fn renew(&self, credentials: &Credentials) -> Result<(), BadCredentials> {
        if credentials.node != self.node {
            let reason = format!("they are to take the place of those of node {:016x}", self.node.0);
            return Err(BadCredentials { node: credentials.node.0, reason });
        }
        *self.ready.write() = Self::prepare(credentials)?;
        Ok(())
    }

    fn prepare(credentials: &Credentials) -> Result<Ready, BadCredentials> {
        let fault = |reason: String| BadCredentials { node: credentials.node.0, reason };
        let certificate = CertificateDer::from(credentials.certificate.clone());
        if node_of(&certificate) != Some(credentials.node) {
            return Err(fault("the certificate names another node".to_owned()));
        }
        let cluster = trust::claimed_cluster(&certificate)
            .ok_or_else(|| fault("the certificate does not say of which cluster it is".to_owned()))?;
        let (client, server) = configure(credentials, &cluster).map_err(|error| fault(error.to_string()))?;
        Ok(Ready { cluster, client: Arc::new(client), server: Arc::new(server) })
    }

    /// The node of these credentials.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// The cluster's fingerprint, for people.
    #[must_use]
    pub fn cluster(&self) -> Fingerprint {
        self.ready.read().cluster.clone()
    }

    pub(crate) fn client(&self) -> Arc<ClientConfig> {
        self.ready.read().client.clone()
    }

    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        self.ready.read().server.clone()
    }
}

static SIGNATURES: WebPkiSupportedAlgorithms = WebPkiSupportedAlgorithms {
    all: &[webpki::ring::ED25519],
    mapping: &[(SignatureScheme::ED25519, &[webpki::ring::ED25519])],
};

/// TLS 1.3 only, with Ed25519 for identities and X25519 for keys: the same on every node, so there is nothing
/// to negotiate but the cipher, which depends on the processor.
static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
    Arc::new(CryptoProvider {
        cipher_suites: vec![
            ring::cipher_suite::TLS13_AES_128_GCM_SHA256,
            ring::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        ],
        kx_groups: vec![ring::kx_group::X25519],
        signature_verification_algorithms: SIGNATURES,
        ..ring::default_provider()
    })
});

/// Replaces the clock where the library asks for one: certificates do not expire, so a machine with a wrong
/// clock takes part like any other.
#[derive(Debug)]
struct NoClock;

impl TimeProvider for NoClock {
    fn current_time(&self) -> Option<UnixTime> {
        // The first second of 2026.
        Some(UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_767_225_600)))
    }
}

fn configure(
    credentials: &Credentials,
    cluster: &Fingerprint,
) -> Result<(ClientConfig, ServerConfig), Box<dyn std::error::Error>> {
    let mut roots = RootCertStore::empty();
    for root in &credentials.roots {
        roots.add(CertificateDer::from(root.as_slice()))?;
    }
    let roots = Arc::new(roots);
    let chain = || vec![CertificateDer::from(credentials.certificate.clone())];
    let key = || PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(credentials.key.clone()));
    let versions = &[&TLS13];

    let verifier = WebPkiServerVerifier::builder_with_provider(roots.clone(), PROVIDER.clone()).build()?;
    let mut client = ClientConfig::builder_with_details(PROVIDER.clone(), Arc::new(NoClock))
        .with_protocol_versions(versions)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(trust::Servers::new(verifier, cluster.clone())))
        .with_client_auth_cert(chain(), key())?;
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, PROVIDER.clone())
        .clear_root_hint_subjects()
        .build()?;
    let mut server = ServerConfig::builder_with_details(PROVIDER.clone(), Arc::new(NoClock))
        .with_protocol_versions(versions)?
        .with_client_cert_verifier(Arc::new(trust::Clients::new(verifier, cluster.clone())))
        .with_single_cert(chain(), key())?;
    // Every connection proves everything again: a session of an earlier token must not be resumed under the
    // next.
    client.resumption = Resumption::disabled();
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;
    Ok((client, server))
}

#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) mod testing {
    //! Clusters for tests.

    use super::*;

    /// The authority of a cluster whose token is this byte, repeated.
    pub(crate) fn authority(byte: u8) -> Authority {
        let digits = format!("{byte:02x}").repeat(32);
        Authority::new(&Token::parse(&format!("sooner-token-1-{digits}")).expect("a token"))
    }

    /// A node of that cluster.
    pub(crate) fn member(node: NodeId, byte: u8) -> Identity {
        let authority = authority(byte);
        identity(&Credentials::issue(node, Bearer::Node, &authority, &[&authority]))
    }

    pub(crate) fn identity(credentials: &Credentials) -> Identity {
        Identity::new(credentials).expect("made to fit")
    }
}
