//! A limit on the pending tasks and calls of one process, beyond which its submissions wait.
//!
//! Descriptions of pending tasks are in their submitter's memory. A program that submits faster than its
//! tasks end would fill that memory; the limit slows it down to the speed of its tasks.
//!
//! Why this cannot deadlock: a pending task may wait for something that the submitting thread does only after
//! its next submission, as the parent of the task, the sender of a message, or the holder of a lock. So a
//! wait also ends when no task has ended for [`PENDING_PATIENCE_NANOS`]: the submission goes through, and the
//! limit grows by one part in [`PENDING_STEP`], until half of the original limit is free again. A submission
//! waits at most that long after the last end of a task. A waiting task lends its CPU, as in `get`. On the
//! thread of an event loop, where a wait would block everything else, the submission is refused instead.
//!
//! It only counts tasks; it never looks at one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use pyo3::prelude::*;
use sooner_runtime::client::{Client, time};
use sooner_runtime::wire::limits::{
    FUNCTIONS_TOLD, PENDING_PATIENCE_NANOS, PENDING_STEP, PENDING_TASKS_DEFAULT,
};
use sooner_runtime::wire::message::FailureCode;

use crate::mode::Mode;
use crate::python_side;
use crate::verbs::system_error;
use crate::waiting::wait_for;

/// The limit of this process.
static LIMIT: AtomicUsize = AtomicUsize::new(PENDING_TASKS_DEFAULT);

/// How many may be pending now: the limit, or more while no task ends.
static ALLOWED: AtomicUsize = AtomicUsize::new(PENDING_TASKS_DEFAULT);

/// The last submission reached [`ALLOWED`]: the next one must check.
static IS_FULL: AtomicBool = AtomicBool::new(false);

/// Whether the user was warned that half of the limit is pending, that the limit was passed, and that there
/// are many functions.
static TOLD: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];

/// Sets how many tasks and calls of this process may be pending before its submissions wait; `None`: as many
/// as by default. Begins anew with its warnings.
#[pyfunction]
pub fn limit_pending(most: Option<usize>) {
    let most = most.unwrap_or(PENDING_TASKS_DEFAULT);
    LIMIT.store(most, Ordering::Relaxed);
    ALLOWED.store(most, Ordering::Relaxed);
    IS_FULL.store(false, Ordering::Relaxed);
    TOLD.iter().for_each(|told| told.store(false, Ordering::Relaxed));
}

/// After a submission: `pending` tasks are pending.
pub fn note(py: Python<'_>, pending: usize) {
    crate::lending::note();
    let limit = LIMIT.load(Ordering::Relaxed);
    if pending <= limit / 2 {
        if ALLOWED.load(Ordering::Relaxed) != limit {
            ALLOWED.store(limit, Ordering::Relaxed);
        }
        return;
    }
    if pending >= ALLOWED.load(Ordering::Relaxed) {
        IS_FULL.store(true, Ordering::Relaxed);
    }
    warn_once(py, &TOLD[0], || {
        format!(
            "{pending} tasks and calls of this process are pending. Beyond max_pending_tasks={limit}, submissions wait until some have ended"
        )
    });
}

/// After a function was defined: `known` are known. Their code must stay while the session lasts, because a
/// task may have to be executed again at any time.
pub fn record_functions(py: Python<'_>, known: usize, latest: &str) {
    if known > FUNCTIONS_TOLD {
        warn_once(py, &TOLD[2], || {
            format!(
                "this process has defined {known} remote functions and classes, the latest is {latest}. Each keeps its code for as long as the session lasts: use sooner.remote outside of loops, and pass as arguments what differs"
            )
        });
    }
}

/// Before a submission: waits until there is room.
///
/// # Errors
/// `PendingCallsLimitExceeded` on the thread of an event loop; what a signal handler raised; the end of the
/// session.
pub fn wait_for_room(py: Python<'_>, client: &Arc<Client>) -> PyResult<()> {
    if !IS_FULL.load(Ordering::Relaxed) || !Mode::of(client).has_backlog() {
        return Ok(());
    }
    let pending = || client.step(|core, _| core.pending_submissions());
    let (limit, allowed) = (LIMIT.load(Ordering::Relaxed), ALLOWED.load(Ordering::Relaxed));
    let before = pending();
    if before < allowed {
        IS_FULL.store(false, Ordering::Relaxed);
        return Ok(());
    }
    if runs_loop(py)? {
        let code = FailureCode::PendingCallsLimit;
        let text = format!(
            "{before} tasks and calls of this process are pending and max_pending_tasks is {limit}: wait for some of them before this one is submitted, or raise the limit with sooner.init(max_pending_tasks=...). A thread without an event loop would have waited"
        );
        return Err(system_error(py, code, &text));
    }
    // Waits for several ends at once: a wait for each task would cost more than the task.
    let goal = allowed - allowed / PENDING_STEP;
    let mut last = before;
    loop {
        let deadline = Some(time().plus(PENDING_PATIENCE_NANOS));
        if wait_for(py, client, || pending() < goal, deadline)? {
            IS_FULL.store(false, Ordering::Relaxed);
            return Ok(());
        }
        let now = pending();
        if now >= last {
            pass(py, now, limit);
            return Ok(());
        }
        last = now;
    }
}

/// Nothing has ended: lets some through.
fn pass(py: Python<'_>, pending: usize, limit: usize) {
    ALLOWED.store(pending + 1 + (limit / PENDING_STEP).max(PENDING_STEP), Ordering::Relaxed);
    IS_FULL.store(false, Ordering::Relaxed);
    warn_once(py, &TOLD[1], || {
        format!(
            "{pending} tasks and calls of this process are pending, max_pending_tasks is {limit}, and none of them has ended for {} s. They may wait for what this process does next, so that more are submitted beyond the limit",
            PENDING_PATIENCE_NANOS / 1_000_000_000
        )
    });
}

fn warn_once(py: Python<'_>, told: &AtomicBool, text: impl FnOnce() -> String) {
    if !told.swap(true, Ordering::Relaxed)
        && let Err(error) = python_side::WARN.call(py, (text(),))
    {
        error.write_unraisable(py, None);
    }
}

/// Whether this thread runs an event loop that other code depends on. A notebook's runs cell after cell: a
/// cell may wait.
fn runs_loop(py: Python<'_>) -> PyResult<bool> {
    python_side::RUNS_EVENT_LOOP.call(py, ())?.extract()
}
