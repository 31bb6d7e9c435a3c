//! A property that did not hold: which, and what was found.

use std::fmt;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Number of the invariant, or what a core asserted.
    pub invariant: String,
    /// What was found.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.text)
    }
}

impl Violation {
    /// I1, found by the clock: such a run cannot be repeated to make it smaller.
    pub const STUCK: &str = "I1 (stuck)";

    /// From what a thread panicked with: ours, or an assertion of a core.
    #[must_use]
    pub fn from_panic(payload: &(dyn std::any::Any + Send)) -> Self {
        if let Some(violation) = payload.downcast_ref::<Self>() {
            return violation.clone();
        }
        let text = payload
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_else(|| "a panic without words".to_owned());
        // Numbers differ from run to run; the kind of failure is what is left.
        let kind: String = text.chars().filter(|c| !c.is_ascii_digit()).take(60).collect();
        Self { invariant: format!("I14 (a core panicked: {kind})"), text }
    }
}

/// Ends the run.
///
/// # Panics
/// Always: the runner catches it.
pub fn fail(invariant: &str, text: impl Into<String>) -> ! {
    std::panic::panic_any(Violation { invariant: invariant.to_owned(), text: text.into() })
}
