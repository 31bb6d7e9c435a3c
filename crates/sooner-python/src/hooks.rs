//! Where the engine calls Python. Every place that takes the GIL on the engine's behalf is in this file.
//!
//! - GIL-1 `on_ready`: awaited references have an outcome; futures are resolved.
//! - GIL-2 `on_interrupt`: a running task is cancelled.
//! - GIL-3 `on_warning`: a warning for the user; also on the thread that lends CPUs ([`crate::lending`]).
//! - GIL-4 `on_signal`: signal handlers run in a thread that waits.
//! - GIL-5 [`Terminal::show`]: lines of workers appear in the driver.
//! - GIL-6 `on_actor_end`: in local mode an actor ends, on a thread of its own (`local::end_actor_soon`).
//! - GIL-7 `on_memory_pressure`: cycles are collected, on a thread of its own (`collect::collect_soon`).
//!
//! All but the last two run on the thread that reads for all others: code of the user that may itself wait for the engine
//! does not belong there.

use std::cell::RefCell;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::PyList;
use rustc_hash::FxHashMap;
use sooner_runtime::client::Hooks;
use sooner_runtime::logs::Sink;
use sooner_runtime::wire::{ObjectId, TaskId};

use crate::session;

static WATCHERS: LazyLock<Mutex<FxHashMap<ObjectId, Vec<Py<PyAny>>>>> = LazyLock::new(Mutex::default);
/// Whether a wait in this process lends its CPU: a worker that runs one task at a time.
static LENDS_CPU: AtomicBool = AtomicBool::new(false);

/// Whether this process is a worker.
static IS_WORKER: AtomicBool = AtomicBool::new(false);

thread_local! {
    static INTERRUPT: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Who is told when an object's outcome comes.
pub fn add_watcher(object: ObjectId, token: Py<PyAny>) {
    WATCHERS.lock().entry(object).or_default().push(token);
    crate::lending::note();
}

/// Forgets one of them; the others are told, since the outcome came after they were added.
pub fn remove_watcher(object: ObjectId, token: &Py<PyAny>) {
    let mut removed = None;
    {
        let mut watchers = WATCHERS.lock();
        if let Some(tokens) = watchers.get_mut(&object) {
            removed = tokens.iter().position(|other| other.is(token)).map(|at| tokens.swap_remove(at));
            if tokens.is_empty() {
                watchers.remove(&object);
            }
        }
    }
    // Not under the lock: it may run code of the user.
    drop(removed);
}

/// The session is over: whoever still waits for an outcome learns it.
pub fn end_watchers(py: Python<'_>) {
    let tokens: Vec<Py<PyAny>> = WATCHERS.lock().drain().flat_map(|(_, tokens)| tokens).collect();
    if !tokens.is_empty() {
        deliver(py, tokens);
    }
}

fn deliver(py: Python<'_>, tokens: Vec<Py<PyAny>>) {
    let delivered = PyList::new(py, tokens)
        .and_then(|tokens| py.import("sooner._aio")?.call_method1("deliver", (tokens,)));
    if let Err(error) = delivered {
        error.write_unraisable(py, None);
    }
}

/// Sets whether waits lend the CPU.
pub fn set_lends_cpu(lends: bool) {
    LENDS_CPU.store(lends, Ordering::Relaxed);
}

/// Whether anybody is to be told when an object's outcome comes.
pub fn has_watchers() -> bool {
    !WATCHERS.lock().is_empty()
}

/// This process is a worker.
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

/// Tells the user.
pub fn warn(text: &str) {
    Python::attach(|py| {
        let called = py.import("sooner._context").and_then(|m| m.call_method1("warn", (text,)));
        if let Err(error) = called {
            error.write_unraisable(py, None);
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
            objects.iter().filter_map(|object| watchers.remove(object)).flatten().collect()
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
                // The task waits in `get` on this very thread: the handler has run already, and its exception ends
                // the wait.
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
            let shown = py.import("sooner._context").and_then(|m| m.call_method1("show", (is_stderr, text)));
            if let Err(error) = shown {
                error.write_unraisable(py, None);
            }
        });
    }
}
