//! The cluster's certificate authority: all who have the token derive the same key.

use std::fmt;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ED25519,
};
use ring::hkdf::{HKDF_SHA256, Salt};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};

use super::token::Token;

/// Bytes of an Ed25519 seed.
const SEED_BYTES: usize = 32;
/// The bytes before the seed in an Ed25519 key of PKCS#8 (RFC 8410, section 7).
const PKCS8_HEAD: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
/// Separates this derivation from others that may be made from a token one day.
const SALT: &[u8] = b"sooner cluster";
const AUTHORITY: &[u8] = b"certificate authority 1, Ed25519";
/// In the name of an authority, before the fingerprint.
pub(super) const CLUSTER: &str = "sooner cluster ";
/// Groups of four digits in a fingerprint.
const GROUPS: usize = 4;

/// A cluster's name for people: 64 bits of the hash of its authority's public key, as `1f0c-9a3e-77d2-b6e1`.
///
/// It tells clusters apart in messages. It is no secret, and no decision depends on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fingerprint(String);

impl Fingerprint {
    fn of(public_key: &[u8]) -> Self {
        let hash = ring::digest::digest(&ring::digest::SHA256, public_key);
        let groups: Vec<String> =
            hash.as_ref().chunks(2).take(GROUPS).map(|two| format!("{:02x}{:02x}", two[0], two[1])).collect();
        Self(groups.join("-"))
    }

    /// Parses a fingerprint; `None` if it has another form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let groups: Vec<&str> = text.split('-').collect();
        let is_group = |group: &&str| {
            group.len() == 4 && group.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        (groups.len() == GROUPS && groups.iter().all(is_group)).then(|| Self(text.to_owned()))
    }

    /// Bytes of its text.
    pub(super) const BYTES: usize = GROUPS * 5 - 1;
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// See the module. Its holder can make members of the cluster.
pub struct Authority {
    params: CertificateParams,
    key: KeyPair,
    certificate: CertificateDer<'static>,
    fingerprint: Fingerprint,
}

impl Authority {
    /// The authority of the cluster with this token.
    ///
    /// The key is HKDF-SHA256 of the token (RFC 5869) taken as an Ed25519 seed.
    #[must_use]
    pub fn new(token: &Token) -> Self {
        let mut der = PKCS8_HEAD.to_vec();
        der.extend_from_slice(&derive(token, AUTHORITY));
        let key = KeyPair::from_pkcs8_der_and_sign_algo(&PrivatePkcs8KeyDer::from(der), &PKCS_ED25519)
            .expect("any 32 bytes are an Ed25519 seed");
        let fingerprint = Fingerprint::of(key.public_key_raw());
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, format!("{CLUSTER}{fingerprint}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let certificate = params.self_signed(&key).expect("fixed parameters").der().clone();
        Self { params, key, certificate, fingerprint }
    }

    /// The cluster's fingerprint, for people.
    #[must_use]
    pub fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    pub(super) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// A new key and a certificate of it for these names.
    pub(super) fn sign(&self, names: Vec<String>) -> (CertificateDer<'static>, Vec<u8>) {
        let key = KeyPair::generate_for(&PKCS_ED25519).expect("the system has random numbers");
        let mut params = CertificateParams::new(names).expect("names of ASCII letters");
        params.distinguished_name = DistinguishedName::new();
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let issuer = Issuer::from_params(&self.params, &self.key);
        let certificate = params.signed_by(&key, &issuer).expect("fixed parameters");
        (certificate.der().clone(), key.serialize_der())
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Authority({})", self.fingerprint)
    }
}

fn derive(token: &Token, purpose: &[u8]) -> [u8; SEED_BYTES] {
    let mut seed = [0; SEED_BYTES];
    let secret = Salt::new(HKDF_SHA256, SALT).extract(token.bytes());
    secret
        .expand(&[purpose], HKDF_SHA256)
        .and_then(|expanded| expanded.fill(&mut seed))
        .expect("32 bytes are the hash's own length");
    seed
}
