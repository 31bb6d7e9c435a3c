//! A property that did not hold: which, and what was found.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// Whether a panic of this thread is a finding of a run, and is said by who asked for it.
    static IS_RUN: Cell<bool> = const { Cell::new(false) };
}

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
    pub fn from_panic(payload: &(dyn Any + Send)) -> Self {
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

/// Does `work`, and hands a panic in it out as a result without printing it. Panics of everything else, a
/// test's own assertions above all, are printed as ever.
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
