//! Python's cycle collector, when the object store is short of room.
//!
//! A reference inside a cycle of Python objects keeps its value until the collector finds the cycle, and the
//! collector counts objects, not their bytes: a handful of references may hold the whole store. So when a
//! value does not fit, every process of the session collects once, on a new thread: finalizers are code of
//! the user, which may wait for the engine, and the thread that learned of the shortage reads for all waiting
//! threads.

use std::cell::Cell;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use pyo3::prelude::*;
use sooner_runtime::client::Collections;

use crate::session::Inside;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);
static IS_RUNNING: AtomicBool = AtomicBool::new(false);
/// When the next one is due, in milliseconds since [`START`].
static COLLECTIONS: Mutex<Collections> = Mutex::new(Collections::new());

thread_local! {
    /// On the thread that collects: whether a reference or a view was dropped.
    static HAS_LET_GO: Cell<bool> = const { Cell::new(false) };
}

fn millis() -> u64 {
    u64::try_from(START.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// Collects before long, unless that has just been done.
///
/// `is_full`: no room is made otherwise.
pub fn collect_soon(is_full: bool) {
    if !COLLECTIONS.lock().is_due(millis(), is_full) || IS_RUNNING.swap(true, Ordering::AcqRel) {
        return;
    }
    let work = || {
        let begin = millis();
        Python::try_attach(collect);
        COLLECTIONS.lock().on_end(begin, millis(), HAS_LET_GO.get());
        IS_RUNNING.store(false, Ordering::Release);
    };
    if std::thread::Builder::new().name("sooner-gc".into()).spawn(work).is_err() {
        IS_RUNNING.store(false, Ordering::Release);
    }
}

/// A reference or a view is dropped: in a cycle, if this is the thread that collects.
#[inline]
pub fn record_release() {
    if IS_RUNNING.load(Ordering::Relaxed) {
        HAS_LET_GO.set(true);
    }
}

fn collect(py: Python<'_>) {
    let _inside = Inside::enter(py);
    if let Err(error) = py.import("gc").and_then(|module| module.call_method0("collect")) {
        error.write_unraisable(py, None);
    }
}

/// In a forked child: the thread that may have been collecting is the parent's.
pub fn forget() {
    IS_RUNNING.store(false, Ordering::Release);
}
