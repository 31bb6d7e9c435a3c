//! Authorities, credentials and what is made of them. Connections are tested in `transport`.

use super::testing::authority;
use super::*;

const NODE: NodeId = NodeId(0x0a00_0000);

#[test]
fn everybody_with_the_token_derives_the_same_authority() {
    let (a, b) = (authority(1), authority(1));
    assert_eq!(a.fingerprint(), b.fingerprint());
    assert_eq!(a.certificate(), b.certificate());
    assert_ne!(a.fingerprint(), authority(2).fingerprint());
    // What is derived must not change from one version to the next: nodes of both meet while a cluster is
    // updated.
    assert_eq!(a.fingerprint().to_string(), "fc74-823f-201a-6f0c");
}

#[test]
fn fingerprints_are_read_back() {
    let fingerprint = authority(1).fingerprint().clone();
    assert_eq!(Fingerprint::parse(&fingerprint.to_string()), Some(fingerprint));
    for text in
        ["", "0000-0000-0000", "0000-0000-0000-000g", "0000-0000-0000-0000-0000", "00000000-0000-0000"]
    {
        assert_eq!(Fingerprint::parse(text), None, "{text}");
    }
}

#[test]
fn a_certificate_names_its_node_and_its_cluster() {
    let authority = authority(1);
    for bearer in [Bearer::Node, Bearer::Head] {
        let credentials = Credentials::issue(NODE, bearer, &authority, &[&authority]);
        let identity = Identity::new(&credentials).expect("fits");
        assert_eq!(identity.node(), NODE);
        assert_eq!(identity.cluster(), *authority.fingerprint());
    }
}

#[test]
fn all_copies_of_an_identity_are_renewed_and_only_for_the_same_node() {
    let (old, new) = (authority(1), authority(2));
    let identity = Identity::new(&Credentials::issue(NODE, Bearer::Node, &old, &[&old])).expect("fits");
    let copy = identity.clone();
    identity.renew(&Credentials::issue(NODE, Bearer::Node, &new, &[&new, &old])).expect("fits");
    assert_eq!(copy.cluster(), *new.fingerprint());
    let other = Credentials::issue(NodeId(0x0b00_0000), Bearer::Node, &old, &[&old]);
    assert!(identity.renew(&other).is_err());
    let nobody = Credentials { roots: vec![], ..Credentials::issue(NODE, Bearer::Node, &old, &[&old]) };
    assert!(identity.renew(&nobody).is_err());
    assert_eq!(identity.cluster(), *new.fingerprint());
}

#[test]
fn credentials_that_do_not_fit_are_refused_with_a_reason() {
    let authority = authority(1);
    let good = Credentials::issue(NODE, Bearer::Node, &authority, &[&authority]);
    let other = Credentials::issue(NodeId(0x0b00_0000), Bearer::Node, &authority, &[&authority]);
    let cases = [
        (Credentials { certificate: other.certificate.clone(), ..good.clone() }, "another node"),
        (Credentials { certificate: vec![1, 2, 3], ..good.clone() }, "another node"),
        (Credentials { key: other.key, ..good.clone() }, "key"),
        (Credentials { key: vec![1, 2, 3], ..good.clone() }, ""),
        (Credentials { roots: vec![vec![1, 2, 3]], ..good.clone() }, ""),
        (Credentials { roots: vec![], ..good }, ""),
    ];
    for (credentials, word) in cases {
        let error = Identity::new(&credentials).expect_err("does not fit").to_string();
        assert!(error.contains("000000000a000000") && error.to_lowercase().contains(word), "{error}");
    }
}

#[test]
fn credentials_do_not_show_the_key() {
    let authority = authority(1);
    let credentials = Credentials::issue(NODE, Bearer::Node, &authority, &[&authority]);
    assert_eq!(format!("{credentials:?}"), "Credentials(000000000a000000)");
    assert!(!format!("{authority:?}").contains("key"));
}

#[test]
fn a_certificate_that_names_no_node_or_several_is_of_none() {
    let authority = authority(1);
    let node = |names: &[&str]| node_of(&authority.sign(names.iter().map(ToString::to_string).collect()).0);
    assert_eq!(
        node(&["n-000000000a000000.sooner", "*.n-000000000a000000.sooner", "control.sooner"]),
        Some(NODE)
    );
    assert_eq!(node(&["example.com"]), None);
    assert_eq!(node(&["*.n-000000000a000000.sooner"]), None);
    assert_eq!(node(&["n-000000000a000000.sooner", "n-000000000b000000.sooner"]), None);
    assert_eq!(node_of(&CertificateDer::from(vec![0x30, 0])), None);
}
