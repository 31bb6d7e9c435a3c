//! Where work may run: scheduling strategies, label expressions, and names that were checked.
//!
//! Work without a strategy runs wherever its resources are free; its messages omit the field. Nothing here
//! decides: `scheduling::policy` in `sooner-protocol` says what a strategy means for a set of nodes.

use minicbor::{Decode, Encode};

use crate::limits::{LABEL_TERMS_MAX, LABEL_VALUES_MAX};
use crate::names::{NameError, check_label_key, check_label_value};
use crate::{GroupId, NodeId};

/// Where a task or actor is to run, if not just anywhere.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Encode, Decode)]
pub enum Strategy {
    /// On all nodes in turn.
    #[n(0)]
    Spread,
    /// On one node.
    #[n(1)]
    Node(#[n(0)] NodeAffinity),
    /// On nodes with certain labels.
    #[n(2)]
    Labels(#[n(0)] NodeLabels),
    /// In a placement group.
    #[n(3)]
    Group(#[n(0)] InGroup),
}

impl Strategy {
    /// The placement group, if it is one.
    #[must_use]
    pub fn group(&self) -> Option<InGroup> {
        match self {
            Self::Group(group) => Some(*group),
            Self::Spread | Self::Node(_) | Self::Labels(_) => None,
        }
    }
}

/// On `node`; with `soft`, on another node if `node` is dead or could never run the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(array)]
pub struct NodeAffinity {
    #[n(0)]
    pub node: NodeId,
    #[n(1)]
    pub soft: bool,
}

/// On nodes that meet all terms of `hard`, if possible on one that also meets all of `soft`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Encode, Decode)]
#[cbor(array)]
pub struct NodeLabels {
    #[n(0)]
    pub hard: Vec<LabelTerm>,
    #[n(1)]
    pub soft: Vec<LabelTerm>,
    /// On the matching nodes in turn.
    #[n(2)]
    pub spread: bool,
}

/// In a bundle of a placement group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(array)]
pub struct InGroup {
    #[n(0)]
    pub group: GroupId,
    /// Which bundle; `None` for any.
    #[n(1)]
    pub bundle: Option<u32>,
    /// Tasks and actors that this one submits run in the group, too, unless they say where.
    #[n(2)]
    pub captures: bool,
}

/// One condition on the labels of a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Encode, Decode)]
#[cbor(array)]
pub struct LabelTerm {
    #[n(0)]
    pub key: String,
    #[n(1)]
    pub test: LabelTest,
}

/// What a [`LabelTerm`] asks of the label's value.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Encode, Decode)]
pub enum LabelTest {
    /// It is one of these.
    #[n(0)]
    In(#[n(0)] Vec<String>),
    /// It is none of these, or there is no such label.
    #[n(1)]
    NotIn(#[n(0)] Vec<String>),
    /// There is such a label.
    #[n(2)]
    Exists,
    /// There is no such label.
    #[n(3)]
    DoesNotExist,
}

/// The label that every node has, with its id: as in Ray.
pub const NODE_LABEL: &str = "ray.io/node-id";

/// Labels of a node: keys and values, sorted by key.
pub type Labels = Vec<(String, String)>;

/// What is wrong with a condition on labels.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TermError {
    /// A key or a value that no label may have.
    #[error(transparent)]
    Label(#[from] NameError),
    /// An expression that ends too early or too late.
    #[error("{0:?} cannot be read: give 'value', '!value', 'in(a, b)' or '!in(a, b)'")]
    Expression(String),
    /// Too many terms or values.
    #[error("{0} {1} are too many: at most {2} are allowed")]
    TooMany(usize, &'static str, usize),
}

impl LabelTerm {
    /// Reads an expression of a label selector: `value`, `!value`, `in(a, b)` or `!in(a, b)`.
    ///
    /// # Errors
    /// [`TermError`] when the key, a value or the expression is not allowed.
    pub fn parse(key: &str, expression: &str) -> Result<Self, TermError> {
        let text = expression.trim();
        let (is_negated, text) = text.strip_prefix('!').map_or((false, text), |rest| (true, rest.trim()));
        let list = text
            .strip_prefix("in(")
            .map(|rest| rest.strip_suffix(')').ok_or_else(|| TermError::Expression(expression.to_owned())));
        let values: Vec<String> = match list.transpose()? {
            Some(list) => list.split(',').map(|value| value.trim().to_owned()).collect(),
            None => vec![text.to_owned()],
        };
        let term = Self {
            key: key.to_owned(),
            test: if is_negated { LabelTest::NotIn(values) } else { LabelTest::In(values) },
        };
        term.check()?;
        Ok(term)
    }

    /// Checks key and values, which others may have sent.
    ///
    /// # Errors
    /// [`TermError`] when the key or a value is not allowed, or there are too many.
    pub fn check(&self) -> Result<(), TermError> {
        check_label_key(&self.key)?;
        let (LabelTest::In(values) | LabelTest::NotIn(values)) = &self.test else { return Ok(()) };
        if values.len() > LABEL_VALUES_MAX {
            return Err(TermError::TooMany(values.len(), "values of one label", LABEL_VALUES_MAX));
        }
        Ok(values.iter().try_for_each(|value| check_label_value(&self.key, value))?)
    }

    /// Whether a node with these labels meets the term.
    #[must_use]
    pub fn is_met(&self, labels: &[(String, String)]) -> bool {
        let value = labels.iter().find(|(key, _)| *key == self.key).map(|(_, value)| value);
        match &self.test {
            LabelTest::In(values) => value.is_some_and(|value| values.contains(value)),
            LabelTest::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            LabelTest::Exists => value.is_some(),
            LabelTest::DoesNotExist => value.is_none(),
        }
    }

    /// "zone in (a, b)" for people.
    #[must_use]
    pub fn describe(&self) -> String {
        let key = &self.key;
        match &self.test {
            LabelTest::In(values) => format!("{key} in ({})", values.join(", ")),
            LabelTest::NotIn(values) => format!("{key} not in ({})", values.join(", ")),
            LabelTest::Exists => format!("{key} exists"),
            LabelTest::DoesNotExist => format!("{key} does not exist"),
        }
    }
}

/// Checks all terms of a selector.
///
/// # Errors
/// [`TermError`] for the first that is not allowed.
pub fn check_terms(terms: &[LabelTerm]) -> Result<(), TermError> {
    if terms.len() > LABEL_TERMS_MAX {
        return Err(TermError::TooMany(terms.len(), "labels", LABEL_TERMS_MAX));
    }
    terms.iter().try_for_each(LabelTerm::check)
}

/// "a and b" for people.
#[must_use]
pub fn describe_terms(terms: &[LabelTerm]) -> String {
    terms.iter().map(LabelTerm::describe).collect::<Vec<_>>().join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels() -> Labels {
        vec![("example.com/gpu".into(), "a100".into()), ("zone".into(), "b".into())]
    }

    #[test]
    fn expressions_are_read_and_met() {
        for (key, expression, is_met) in [
            ("zone", "b", true),
            ("zone", "!b", false),
            ("zone", "in(a, b)", true),
            ("zone", "!in(a,c)", true),
            ("zone", "! in(b)", false),
            ("rack", "1", false),
            ("rack", "!1", true),
            ("example.com/gpu", "in(a100)", true),
        ] {
            let term = LabelTerm::parse(key, expression).expect("can be read");
            assert_eq!(term.is_met(&labels()), is_met, "{key}: {expression}");
        }
        let exists = |key: &str, test| LabelTerm { key: key.to_owned(), test }.is_met(&labels());
        assert!(exists("zone", LabelTest::Exists) && !exists("rack", LabelTest::Exists));
        assert!(exists("rack", LabelTest::DoesNotExist) && !exists("zone", LabelTest::DoesNotExist));
    }

    #[test]
    fn bad_names_and_expressions_are_refused_with_what_is_allowed() {
        let long = "x".repeat(64);
        let keys = ["", "-a", "a b", "/a", "a/", "A.com/zone", "a..b/zone", long.as_str(), "é"];
        for key in keys {
            assert!(
                matches!(LabelTerm::parse(key, "v"), Err(TermError::Label(NameError::LabelKey(_)))),
                "{key}"
            );
        }
        for expression in ["a b", "_", long.as_str(), "!!a", "in(a b)"] {
            let wrong = LabelTerm::parse("k", expression);
            assert!(matches!(wrong, Err(TermError::Label(NameError::LabelValue { .. }))), "{expression}");
        }
        assert!(matches!(LabelTerm::parse("k", "in(a, b"), Err(TermError::Expression(_))));
        let many = (0..=LABEL_VALUES_MAX).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
        assert!(matches!(LabelTerm::parse("k", &format!("in({many})")), Err(TermError::TooMany(..))));
        let error = LabelTerm::parse("a b", "v").expect_err("a space");
        assert!(error.to_string().contains("'example.com/zone'"), "{error}");
    }

    proptest! {
        #[test]
        fn no_text_does_harm(key in ".{0,70}", expression in ".{0,70}") {
            if let Ok(term) = LabelTerm::parse(&key, &expression) {
                prop_assert!(term.check().is_ok());
            }
        }
    }
}
