//! What is read from the first bytes of a connection.

use super::*;
use crate::node::accept::testing::{old_hello, padded_hello};

const NAME: &str = "node.n-000000000b000000.sooner";

#[test]
fn the_name_is_read_when_the_hello_is_whole_and_not_before() {
    let hello = padded_hello(Some(NAME), 300);
    for cut in 0..hello.len() {
        assert_eq!(look(&hello[..cut]), Ok(None), "{cut}");
    }
    let expected = Ok(Some(ClientHello { server_name: NAME.to_owned() }));
    assert_eq!(look(&hello), expected);
    // What follows it is not looked at.
    assert_eq!(look(&[hello, vec![9; 100]].concat()), expected);
}

#[test]
fn a_hello_of_just_the_limit_is_read_and_a_longer_one_refused() {
    let overhead = padded_hello(Some(NAME), 0).len();
    let largest = padded_hello(Some(NAME), PEEK_BYTES - overhead);
    assert_eq!(largest.len(), PEEK_BYTES);
    assert!(matches!(look(&largest), Ok(Some(_))));
    let longer = padded_hello(Some(NAME), PEEK_BYTES - overhead + 1);
    assert_eq!(look(&longer[..PEEK_BYTES - 1]), Ok(None));
    assert_eq!(look(&longer[..PEEK_BYTES]), Err(HelloFault::TooLong));
    assert_eq!(look(&longer), Err(HelloFault::TooLong));
}

#[test]
fn what_is_no_hello_of_sooner_is_named() {
    assert_eq!(look(&old_hello()), Err(HelloFault::Old));
    assert_eq!(look(&padded_hello(None, 0)), Err(HelloFault::NoName));
    assert_eq!(look(b"GET / HTTP/1.1\r\n"), Err(HelloFault::Foreign(Foreign::Http)));
    assert_eq!(look(b"SSH-2.0-x"), Err(HelloFault::Foreign(Foreign::Ssh)));
    // A handshake record with something else in it.
    assert!(matches!(look(b"\x16\x03\x01\x00\x04\x02\x00\x00\x00"), Err(HelloFault::Garbled(_))));
    assert!(matches!(look(b"\x15\x03\x03\x00\x02\x02\x28"), Err(HelloFault::Garbled(_))));
    assert_eq!(look(b""), Ok(None));
}

/// As the fuzz target does, without a fuzzer: no byte changed, dropped or doubled makes it panic.
#[test]
fn damaged_hellos_are_refused_or_read_and_do_no_harm() {
    let hello = padded_hello(Some(NAME), 40);
    for position in 0..hello.len() {
        for value in [0, 1, 0x7f, 0xff, hello[position] ^ 1] {
            let mut damaged = hello.clone();
            damaged[position] = value;
            let _ = look(&damaged);
        }
        let _ = look(&[&hello[..position], &hello[position + 1..]].concat());
        let _ = look(&[&hello[..position], &hello[position..=position], &hello[position..]].concat());
    }
}
