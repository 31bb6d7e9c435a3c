//! Names, selectors, tokens and ids, as users, peers and files give them: reading one never panics, what is
//! read is written the same way, and what is refused is refused in a sentence.
//!
//! The first byte chooses what the text is read as.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sooner_fuzz::HERE;
use sooner_runtime::identity::{Destination, Fingerprint, Token};
use sooner_wire::names::{check_label_key, check_label_value, check_labels, check_node_name, check_resources};
use sooner_wire::strategy::LabelTerm;
use sooner_wire::{ObjectId, ResourceSet};

/// A sentence may repeat what was said once or twice.
const SENTENCE_BYTES: usize = 1024;

fn is_sentence(error: &impl std::fmt::Display, text: &str) {
    assert!(error.to_string().len() <= SENTENCE_BYTES + 8 * text.len());
}

fn server_name(text: &str, is_head: bool) {
    match Destination::parse(text, HERE, is_head) {
        Ok(to) => assert!(text == Destination::head_name().to_str() || text == to.server_name(HERE).to_str()),
        Err(fault) => is_sentence(&fault, text),
    }
}

fn token(text: &str) {
    match Token::parse(text) {
        Ok(token) => assert!(token.reveal().eq_ignore_ascii_case(text)),
        // A secret with a typing error is still half a secret: the error is the same whatever the text is.
        Err(error) => {
            let other = Token::parse("").expect_err("it is no token");
            assert_eq!(error.to_string(), other.to_string());
        }
    }
}

fn selector(text: &str) {
    let (key, expression) = text.split_once('\n').unwrap_or(("zone", text));
    match LabelTerm::parse(key, expression) {
        Ok(term) => {
            term.check().expect("what is read is allowed");
            let _ = term.is_met(&[(key.to_owned(), expression.to_owned())]);
            assert!(!term.describe().is_empty());
        }
        Err(error) => is_sentence(&error, text),
    }
}

fn names(text: &str) {
    let checks = [check_node_name(text), check_label_key(text), check_label_value("zone", text)];
    checks.iter().filter_map(|check| check.as_ref().err()).for_each(|error| is_sentence(error, text));
    let labels: Vec<_> = text.lines().filter_map(|line| line.split_once('=')).collect();
    let labels: Vec<_> = labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    let _ = check_labels(&labels);
    let amounts = labels.iter().map(|(key, value)| (key.clone(), value.parse().unwrap_or(1.0)));
    let _ = check_resources(&ResourceSet::from_amounts(amounts));
}

fuzz_target!(|input: &[u8]| {
    let Some((which, bytes)) = input.split_first() else { return };
    if let Some(id) = ObjectId::from_bytes(bytes) {
        assert_eq!(id.to_bytes(), bytes);
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match which % 6 {
        0 => server_name(text, true),
        1 => server_name(text, false),
        2 => token(text),
        3 => selector(text),
        4 => names(text),
        _ => assert!(Fingerprint::parse(text).is_none_or(|fingerprint| fingerprint.to_string() == text)),
    }
});
