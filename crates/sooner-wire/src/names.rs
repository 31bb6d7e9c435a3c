//! Names that people choose: of nodes, labels and resources. Errors are typed reasons.
//!
//! The rules are those of host names and of labels as cluster managers know them, so that a name can stand in
//! a certificate, a command line and a table. Nothing is changed or trimmed here: a name is right or refused.

use crate::ResourceSet;
use crate::limits::{
    LABEL_BYTES_MAX, LABEL_PREFIX_BYTES_MAX, LABELS_MAX, NODE_NAME_BYTES_MAX, RESOURCE_AMOUNT_MAX,
    RESOURCE_NAME_BYTES_MAX, RESOURCES_MAX,
};
use crate::strategy::NODE_LABEL;

/// Labels below this prefix are set by sooner itself.
pub const RESERVED_PREFIX: &str = "sooner.io/";

/// What is wrong with a name, a label or a set of resources.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// A node's name.
    #[error(
        "the node name {0:?} is not valid: use 1 to {NODE_NAME_BYTES_MAX} letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"
    )]
    Node(String),
    /// A label's key.
    #[error(
        "the label key {0:?} is not valid: use 1 to {LABEL_BYTES_MAX} letters, digits, '-', '_' and '.', beginning and ending with a letter or digit; a domain and a '/' may stand before it ('example.com/zone')"
    )]
    LabelKey(String),
    /// A label's value.
    #[error(
        "the value {value:?} of the label {key:?} is not valid: use at most {LABEL_BYTES_MAX} letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"
    )]
    LabelValue {
        /// Of which label.
        key: String,
        /// What was given.
        value: String,
    },
    /// A key that only sooner sets.
    #[error(
        "the label key {0:?} is reserved: keys below {RESERVED_PREFIX} and {NODE_LABEL:?} are set by sooner itself"
    )]
    Reserved(String),
    /// The same key twice.
    #[error("the label key {0:?} is given twice: give it one value")]
    LabelTwice(String),
    /// More labels than are kept.
    #[error("{0} labels are too many: a node has at most {LABELS_MAX}")]
    Labels(usize),
    /// A resource's name.
    #[error(
        "the resource name {0:?} is not valid: use 1 to {RESOURCE_NAME_BYTES_MAX} bytes without control characters"
    )]
    Resource(String),
    /// A resource's amount.
    #[error(
        "the amount of the resource {0:?} is not valid: give a number above 0 and at most {max}",
        max = RESOURCE_AMOUNT_MAX / crate::resources::UNIT
    )]
    Amount(String),
    /// Names that are not in order, or twice: sooner never writes this.
    #[error("the resources are not sorted by name: {0:?} is out of place")]
    Order(String),
    /// More resources than are kept.
    #[error("{0} resources are too many: a node has at most {RESOURCES_MAX}")]
    Resources(usize),
}

/// Letters, digits, `-`, `_` and `.`; a letter or digit at both ends.
fn is_label_text(text: &str, bytes_max: usize) -> bool {
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return false };
    bytes.len() <= bytes_max
        && first.is_ascii_alphanumeric()
        && last.is_ascii_alphanumeric()
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

/// A DNS name: parts of lower-case letters, digits and `-`, as long as DNS allows, separated by dots.
fn is_domain(text: &str) -> bool {
    let is_part = |part: &str| {
        (1..=LABEL_BYTES_MAX).contains(&part.len())
            && !part.starts_with('-')
            && !part.ends_with('-')
            && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    text.len() <= LABEL_PREFIX_BYTES_MAX && text.split('.').all(is_part)
}

/// Checks the name of a node.
///
/// # Errors
/// [`NameError::Node`].
pub fn check_node_name(name: &str) -> Result<(), NameError> {
    let is_valid = is_label_text(name, NODE_NAME_BYTES_MAX);
    is_valid.then_some(()).ok_or_else(|| NameError::Node(shown(name)))
}

/// Checks a label's key, which sooner itself may have set.
///
/// # Errors
/// [`NameError::LabelKey`].
pub fn check_label_key(key: &str) -> Result<(), NameError> {
    let (is_prefix_valid, name) = match key.split_once('/') {
        Some((prefix, name)) => (is_domain(prefix), name),
        None => (true, key),
    };
    let is_valid = is_prefix_valid && is_label_text(name, LABEL_BYTES_MAX);
    is_valid.then_some(()).ok_or_else(|| NameError::LabelKey(shown(key)))
}

/// The beginning of a text that may be of any length.
fn shown(text: &str) -> String {
    text.chars().take(2 * LABEL_BYTES_MAX).collect()
}

/// Checks a label's value. It may be empty.
///
/// # Errors
/// [`NameError::LabelValue`].
pub fn check_label_value(key: &str, value: &str) -> Result<(), NameError> {
    let is_valid = value.is_empty() || is_label_text(value, LABEL_BYTES_MAX);
    is_valid.then_some(()).ok_or_else(|| NameError::LabelValue { key: shown(key), value: shown(value) })
}

/// Checks the labels that a user gave a node.
///
/// # Errors
/// [`NameError`] of the first label that is wrong, reserved or repeated, or when there are too many.
pub fn check_labels(labels: &[(String, String)]) -> Result<(), NameError> {
    if labels.len() > LABELS_MAX {
        return Err(NameError::Labels(labels.len()));
    }
    for (at, (key, value)) in labels.iter().enumerate() {
        check_label_key(key)?;
        check_label_value(key, value)?;
        if key.starts_with(RESERVED_PREFIX) || key == NODE_LABEL {
            return Err(NameError::Reserved(shown(key)));
        }
        if labels[..at].iter().any(|(earlier, _)| earlier == key) {
            return Err(NameError::LabelTwice(shown(key)));
        }
    }
    Ok(())
}

/// Checks resources that another process wrote: names, amounts, and the order that [`ResourceSet`] relies on.
///
/// # Errors
/// [`NameError`] of the first resource that is wrong, or when there are too many.
pub fn check_resources(resources: &ResourceSet) -> Result<(), NameError> {
    let count = resources.iter().count();
    if count > RESOURCES_MAX {
        return Err(NameError::Resources(count));
    }
    let mut before: Option<&str> = None;
    for (name, amount) in resources.iter() {
        if name.is_empty() || name.len() > RESOURCE_NAME_BYTES_MAX || name.chars().any(char::is_control) {
            return Err(NameError::Resource(shown(name)));
        }
        if amount == 0 || amount > RESOURCE_AMOUNT_MAX {
            return Err(NameError::Amount(shown(name)));
        }
        if before.is_some_and(|before| before >= name) {
            return Err(NameError::Order(shown(name)));
        }
        before = Some(name);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn node_names_are_like_host_names() {
        let longest = "n".repeat(NODE_NAME_BYTES_MAX);
        for name in ["a", "gpu-7", "rack_1.host-2", "7", longest.as_str()] {
            assert_eq!(check_node_name(name), Ok(()), "{name}");
        }
        let too_long = "n".repeat(NODE_NAME_BYTES_MAX + 1);
        for name in ["", "-a", "a-", ".", "a b", "a/b", "Knoten-ä", "a\n", too_long.as_str()] {
            assert_eq!(check_node_name(name), Err(NameError::Node(name.to_owned())));
        }
    }

    #[test]
    fn label_keys_may_have_a_domain() {
        let longest = format!("{0}.{0}.{0}/x", "p".repeat(LABEL_BYTES_MAX));
        for key in ["zone", "example.com/zone", "a-b.c/x_y.z", longest.as_str()] {
            assert_eq!(check_label_key(key), Ok(()), "{key}");
        }
        let prefix = format!("{}/x", "p.".repeat(LABEL_PREFIX_BYTES_MAX / 2 + 1) + "p");
        let part = format!("{}.b/x", "p".repeat(LABEL_BYTES_MAX + 1));
        for key in [
            "",
            "/",
            "a/",
            "/a",
            "A.com/x",
            "a..b/x",
            "-a.b/x",
            "a/b/c",
            "zo ne",
            prefix.as_str(),
            part.as_str(),
        ] {
            assert_eq!(check_label_key(key), Err(NameError::LabelKey(shown(key))));
        }
    }

    #[test]
    fn label_values_may_be_empty() {
        assert_eq!(check_labels(&labels(&[("a", ""), ("b", "x-1")])), Ok(()));
        let wrong = NameError::LabelValue { key: "a".into(), value: "x y".into() };
        assert_eq!(check_labels(&labels(&[("a", "x y")])), Err(wrong));
    }

    #[test]
    fn labels_are_given_once_and_not_in_sooners_name() {
        let twice = NameError::LabelTwice("a".into());
        assert_eq!(check_labels(&labels(&[("a", "1"), ("b", "1"), ("a", "2")])), Err(twice));
        let reserved = NameError::Reserved("sooner.io/node-id".into());
        assert_eq!(check_labels(&labels(&[("sooner.io/node-id", "1")])), Err(reserved));
        let many: Vec<(String, String)> =
            (0..=LABELS_MAX).map(|number| (format!("k{number}"), String::new())).collect();
        assert_eq!(check_labels(&many), Err(NameError::Labels(LABELS_MAX + 1)));
        assert_eq!(check_labels(&many[1..]), Ok(()));
    }

    /// A set as a stranger may write it: [`ResourceSet`] itself always sorts and leaves zeros out.
    fn written(pairs: &[(&str, u64)]) -> ResourceSet {
        let mut bytes = Vec::new();
        let pairs: Vec<(String, u64)> = pairs.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
        minicbor::encode(&pairs, &mut bytes).expect("memory");
        minicbor::decode(&bytes).expect("a list of pairs")
    }

    #[test]
    fn resources_are_sorted_bounded_and_named() {
        assert_eq!(check_resources(&written(&[("CPU", 10_000), ("node:10.0.0.1", 1)])), Ok(()));
        let cases = [
            (written(&[("b", 1), ("a", 1)]), NameError::Order("a".into())),
            (written(&[("a", 1), ("a", 1)]), NameError::Order("a".into())),
            (written(&[("a", 0)]), NameError::Amount("a".into())),
            (written(&[("a", u64::MAX)]), NameError::Amount("a".into())),
            (written(&[("", 1)]), NameError::Resource(String::new())),
            (written(&[("a\u{7}", 1)]), NameError::Resource("a\u{7}".into())),
        ];
        for (set, expected) in cases {
            assert_eq!(check_resources(&set), Err(expected));
        }
    }

    #[test]
    fn a_name_without_end_is_shown_in_part() {
        let long = "x".repeat(RESOURCE_NAME_BYTES_MAX + 1);
        let wrong = [
            check_node_name(&long),
            check_label_key(&long),
            check_label_value("zone", &long),
            check_resources(&ResourceSet::from_amounts([(long.clone(), 1.0)])),
        ];
        for error in wrong {
            let text = error.expect_err("too long").to_string();
            assert!(text.contains("xxx") && text.len() < 512, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_right_or_refused_with_a_short_reason(text in ".{0,300}") {
            for outcome in [check_node_name(&text), check_label_key(&text), check_label_value("k", &text)] {
                if let Err(error) = outcome {
                    prop_assert!(!error.to_string().contains('\n'));
                }
            }
        }
    }
}
