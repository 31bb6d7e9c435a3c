//! Python's cycle collector, when the object store is short of room.
//!
//! A reference inside a cycle of Python objects keeps its value until the collector finds the cycle, and the collector
//! counts objects, not their bytes: a handful of references may hold the whole store. So when a value does not fit,
//! every process of the session collects once, on a thread of its own: finalizers are code of the user, which may wait
//! for the engine, and the thread that heard of the shortage reads for everyone who waits.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use pyo3::prelude::*;

use crate::session::Inside;

/// Time between two collections (milliseconds): a full one of a large program takes about as long.
const PAUSE_MS: u64 = 200;
/// While room is made otherwise: so many times what the last one took, beside that. Nobody but the collector runs while it does.
const PAUSE_TIMES: u64 = 20;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);
static IS_RUNNING: AtomicBool = AtomicBool::new(false);
/// When the next one may begin, in milliseconds since [`START`].
static NEXT: AtomicU64 = AtomicU64::new(0);
/// The same, while room is made otherwise.
static NEXT_RELIEVED: AtomicU64 = AtomicU64::new(0);

fn millis() -> u64 {
    u64::try_from(START.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// Collects before long, unless that has just been done.
///
/// `is_full`: no room is made otherwise.
pub fn collect_soon(is_full: bool) {
    let next = if is_full { &NEXT } else { &NEXT_RELIEVED };
    if millis() < next.load(Ordering::Acquire) || IS_RUNNING.swap(true, Ordering::AcqRel) {
        return;
    }
    let work = || {
        let begin = millis();
        Python::try_attach(collect);
        let end = millis();
        NEXT.store(end + PAUSE_MS, Ordering::Release);
        NEXT_RELIEVED.store(end + PAUSE_MS + PAUSE_TIMES * (end - begin), Ordering::Release);
        IS_RUNNING.store(false, Ordering::Release);
    };
    if std::thread::Builder::new().name("weft-gc".into()).spawn(work).is_err() {
        IS_RUNNING.store(false, Ordering::Release);
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
