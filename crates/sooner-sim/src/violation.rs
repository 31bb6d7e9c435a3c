//! A property that did not hold: its name, and the finding.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// Whether a panic of this thread is a finding, which the caller of [`caught`] reports.
    static IS_RUN: Cell<bool> = const { Cell::new(false) };
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The number of the invariant, or the text of a core's assertion.
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
    /// I1, detected by a timeout: such a run cannot be repeated to make it smaller.
    pub const STUCK: &str = "I1 (stuck)";

    /// From the payload of a panic: a [`Violation`], or an assertion of a core.
    #[must_use]
    pub fn from_panic(payload: &(dyn Any + Send)) -> Self {
        if let Some(violation) = payload.downcast_ref::<Self>() {
            return violation.clone();
        }
        let text = payload
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_else(|| "a panic without words".to_owned());
        // Without numbers, which differ from run to run, the text is the kind of the failure.
        let kind: String = text.chars().filter(|c| !c.is_ascii_digit()).take(60).collect();
        Self { invariant: format!("I14 (a core panicked: {kind})"), text }
    }
}

/// Ends the run with a violation.
///
/// # Panics
/// Always: the runner catches it.
pub fn fail(invariant: &str, text: impl Into<String>) -> ! {
    std::panic::panic_any(Violation { invariant: invariant.to_owned(), text: text.into() })
}

/// Runs `work`, and returns a panic in it as a result without printing it. Other panics, above all a test's
/// own assertions, are printed as ever.
///
/// # Errors
/// What `work` panicked with.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, Box<dyn Any + Send>> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = take_hook();
        set_hook(Box::new(move |info| {
            if !IS_RUN.get() {
                others(info);
            }
        }));
    });
    IS_RUN.set(true);
    let ended = catch_unwind(AssertUnwindSafe(work));
    IS_RUN.set(false);
    ended
}
