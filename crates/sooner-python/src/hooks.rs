//! Where the engine calls Python. Every place that takes the GIL on the engine's behalf is in this file.
//!
//! - GIL-1 `on_ready`: awaited references have an outcome; futures are resolved.
//! - GIL-2 `on_interrupt`: a running task is cancelled.
//! - GIL-3 `on_warning`, `on_mistrust`: a warning for the user; also on the thread that lends CPUs
//!   ([`crate::lending`]).
//! - GIL-4 `on_signal`: signal handlers run in a thread that waits.
//! - GIL-5 [`Terminal::show`]: lines of workers appear in the driver.
//! - GIL-6 `on_actor_end`: in local mode an actor ends, on a thread of its own (`local::end_actor_soon`).
//! - GIL-7 `on_memory_pressure`: cycles are collected, on a thread of its own (`collect::collect_soon`).
//!
//! All but the last two run on the thread that reads for all others, so they must never run code of the user
//! that may itself wait for the engine.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ThreadId;

use parking_lot::Mutex;
use pyo3::exceptions::{PyException, PyKeyboardInterrupt};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyList;
use rustc_hash::FxHashMap;
use sooner_runtime::client::Hooks;
use sooner_runtime::logs::Sink;
use sooner_runtime::transport::TlsFailure;
use sooner_runtime::wire::{ObjectId, TaskId};

use crate::lending;
use crate::python_side;
use crate::session;

/// A token, and what [`lending::watch_begins`] returned.
type Watcher = (Py<PyAny>, u32);

static WATCHERS: LazyLock<Mutex<FxHashMap<ObjectId, Vec<Watcher>>>> = LazyLock::new(Mutex::default);
/// Whether a wait in this process lends its CPU: a worker that runs one task at a time.
static LENDS_CPU: AtomicBool = AtomicBool::new(false);

/// Whether this process is a worker.
static IS_WORKER: AtomicBool = AtomicBool::new(false);

/// How often delivery is tried while signal handlers raise.
const DELIVERIES_MAX: usize = 1000;

/// What a signal handler raised where it could end no call, and on which thread: the main one.
static RAISED: Mutex<Option<(ThreadId, PyErr)>> = Mutex::new(None);

thread_local! {
    static INTERRUPT: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Has a token delivered when the object's outcome comes.
pub fn add_watcher(object: ObjectId, token: Py<PyAny>) {
    let mut watchers = WATCHERS.lock();
    watchers.entry(object).or_default().push((token, lending::watch_begins()));
}

/// Removes one watcher. The object's others are notified, since the outcome came after they were added.
pub fn remove_watcher(object: ObjectId, token: &Py<PyAny>) {
    let mut removed = None;
    {
        let mut watchers = WATCHERS.lock();
        if let Some(tokens) = watchers.get_mut(&object) {
            removed = tokens.iter().position(|(other, _)| other.is(token)).map(|at| tokens.swap_remove(at));
            if tokens.is_empty() {
                watchers.remove(&object);
            }
        }
    }
    // Not under the lock: it may run code of the user.
    if let Some((_, task)) = removed {
        lending::watch_ends(task);
    }
}

/// The session is over: notifies all watchers that are left.
pub fn end_watchers(py: Python<'_>) {
    let watchers = std::mem::take(&mut *WATCHERS.lock());
    let tokens = over(watchers.into_values().flatten());
    if !tokens.is_empty() {
        deliver(py, tokens);
    }
}

fn over(watchers: impl Iterator<Item = Watcher>) -> Vec<Py<PyAny>> {
    let token = |(token, task)| {
        lending::watch_ends(task);
        token
    };
    watchers.map(token).collect()
}

fn deliver(py: Python<'_>, tokens: Vec<Py<PyAny>>) {
    let Ok(tokens) = PyList::new(py, tokens) else { return };
    let mut raised = None;
    for _ in 0..DELIVERIES_MAX {
        match python_side::DELIVER.call(py, (&tokens,)) {
            Ok(_) => break,
            // Watchers that were notified already ignore the second time.
            Err(error) => raised = Some(error),
        }
    }
    // After the loop: a later exception is raised in the next step of Python.
    if let Some(error) = raised {
        raise_later(py, error);
    }
}

/// Passes on what a signal handler raised while the engine called Python on this thread: mostly Ctrl-C. It
/// ends a wait on this thread, or else what the thread runs next. Other exceptions are only shown.
fn raise_later(py: Python<'_>, error: PyErr) {
    let is_from_handler = !error.is_instance_of::<PyException>(py)
        || python_side::WAS_RAISED_BY_HANDLER
            .call(py, (error.value(py),))
            .and_then(|was| was.is_truthy())
            .unwrap_or(false);
    if !is_from_handler {
        return error.write_unraisable(py, None);
    }
    let before = RAISED.lock().replace((std::thread::current().id(), error));
    // Not under the lock: the end of an exception may run code of the user.
    drop(before);
    // SAFETY: the GIL is held, and the function takes no argument. If too much is waiting, the next wait has
    // it.
    unsafe { ffi::Py_AddPendingCall(Some(raise_now), std::ptr::null_mut()) };
}

/// Runs on the main thread, between two steps of Python.
extern "C" fn raise_now(_: *mut c_void) -> c_int {
    let Some((_, error)) = RAISED.lock().take() else { return 0 };
    Python::attach(|py| error.restore(py));
    -1
}

/// Sets whether waits lend the CPU.
pub fn set_lends_cpu(lends: bool) {
    LENDS_CPU.store(lends, Ordering::Relaxed);
}

/// Records that this is a worker.
pub fn set_worker() {
    IS_WORKER.store(true, Ordering::Relaxed);
}

/// Whether this process is a worker.
pub fn is_worker() -> bool {
    IS_WORKER.load(Ordering::Relaxed)
}

/// Whether this is a worker that runs one task at a time.
pub fn runs_one_task() -> bool {
    LENDS_CPU.load(Ordering::Relaxed)
}

/// Whether a wait on this thread lends its CPU to others.
pub fn lends_cpu() -> bool {
    LENDS_CPU.load(Ordering::Relaxed) && session::task_id().is_some()
}

/// The exception of the signal handler that ended a wait on this thread.
pub fn take_interrupt() -> Option<PyErr> {
    INTERRUPT.take()
}

/// Shows the user a warning.
pub fn warn(text: &str) {
    Python::attach(|py| {
        let called = python_side::WARN.call(py, (text,));
        if let Err(error) = called {
            raise_later(py, error);
        }
    });
}

/// The engine's way into Python for one client.
pub struct PythonHooks {
    pub is_worker: bool,
}

impl Hooks for PythonHooks {
    fn on_ready(&self, objects: Vec<ObjectId>) {
        let tokens: Vec<Py<PyAny>> = {
            let mut watchers = WATCHERS.lock();
            over(objects.iter().filter_map(|object| watchers.remove(object)).flatten())
        };
        if !tokens.is_empty() {
            Python::attach(|py| deliver(py, tokens));
        }
    }

    fn on_interrupt(&self, task: TaskId, force: bool) {
        if !self.is_worker {
            // In local mode: the code that runs asks `is_canceled()`, or is a coroutine.
            return Python::attach(|py| crate::worker::cancel_in_loop(py, task));
        }
        if force {
            crate::worker::end_process();
        }
        Python::attach(|py| {
            let called = crate::worker::request_interrupt(py, task);
            match called {
                // The task waits in `get` on this very thread: the handler has run already, and its exception
                // ends the wait.
                Err(error) if error.is_instance_of::<PyKeyboardInterrupt>(py) => {
                    INTERRUPT.set(Some(error));
                }
                Err(error) => error.write_unraisable(py, None),
                Ok(()) => {}
            }
        });
    }

    fn on_warning(&self, text: String) {
        warn(&text);
    }

    fn on_signal(&self) -> bool {
        if INTERRUPT.with_borrow(Option::is_some) {
            return true;
        }
        let mut raised = RAISED.lock();
        if raised.as_ref().is_some_and(|(thread, _)| *thread == std::thread::current().id())
            && let Some((_, error)) = raised.take()
        {
            INTERRUPT.set(Some(error));
            return true;
        }
        drop(raised);
        Python::attach(|py| match py.check_signals() {
            Ok(()) => false,
            Err(error) => {
                INTERRUPT.set(Some(error));
                true
            }
        })
    }

    fn on_actor_end(&self, actor: TaskId, in_order: bool) {
        crate::local::end_actor_soon(actor, in_order);
    }

    fn on_memory_pressure(&self, is_full: bool) {
        crate::collect::collect_soon(is_full);
    }

    fn on_sleep(&self) {
        if self.is_worker {
            crate::worker::on_sleep();
        }
    }

    fn on_mistrust(&self, failure: &TlsFailure) {
        if let Some(text) = crate::joining::follow(failure) {
            warn(&text);
        }
    }

    fn on_end(&self, _reason: &str) {
        if self.is_worker {
            crate::worker::on_session_end();
        } else {
            Python::attach(end_watchers);
        }
    }
}

/// The driver's terminal: `sys.stdout` and `sys.stderr`, so that notebooks and test runners see the lines.
pub struct Terminal;

impl Sink for Terminal {
    fn show(&self, is_stderr: bool, text: &str) {
        Python::attach(|py| {
            let shown = python_side::SHOW.call(py, (is_stderr, text));
            if let Err(error) = shown {
                raise_later(py, error);
            }
        });
    }
}
