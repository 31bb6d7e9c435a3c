//! Lends the CPU of a worker whose task waits in a way that no single thread can recognise.
//!
//! A task that waits in `get` lends its CPU at once ([`crate::waiting`]). But a task may also wait for a
//! future, in its own event loop, for a thread that is in `get`, or by polling. If everything that it waits
//! for needs its CPU, it waits for ever. So a thread of each such worker looks: while the process waits for
//! an object and none of its threads wants to run, its CPU is lent. The CPU is also lent, with a warning,
//! when nothing shows that the process waits, but it has not run for a second while tasks that it submitted
//! are queued.
//!
//! Polling may keep the process busy. If its own tasks are queued meanwhile, its CPU is lent all the same:
//! soon if it asks for objects that are not there, late if it only has futures of some.
//!
//! Only waits that began in the running task count, never a thread in `get` or a future that an earlier task
//! left.
//!
//! The thread runs while there is something to look at, and for a second after that. It never calls Python
//! except to warn.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::thread::Thread;
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use rustc_hash::FxHashSet;
use rustix::time::{ClockId, clock_gettime};
use sooner_runtime::client::{Client, time};
use sooner_runtime::protocol::time::Instant;

use crate::hooks;

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(10);
/// How many looks in a row must find the process idle: of a task, and of an actor that runs several calls at
/// once and so waits for something most of the time.
const IDLE_LOOKS: u32 = 2;
const IDLE_LOOKS_OF_MANY: u32 = 20;
/// The same, when nothing shows that the process waits for an object.
const IDLE_LOOKS_UNKNOWN: u32 = 100;
/// A task that asked for a missing object within this many looks is polling.
const ASKS_WITHIN: u32 = 20;
/// After this many looks in a row with its own tasks queued it need not be idle: if it polls, and if it only
/// has futures.
const VAIN_LOOKS: u32 = 10;
const VAIN_LOOKS_UNKNOWN: u32 = 300;
/// After this many looks that found nothing, the thread sleeps.
const LOOKS_BEFORE_SLEEP: u32 = 100;
/// A process that ran for less than this part of the time is idle; one that ran for more than half is not.
const IDLE_SHARE: u64 = 10;

static CLIENT: OnceLock<Arc<Client>> = OnceLock::new();
static THREAD: OnceLock<Thread> = OnceLock::new();
/// The thread does not exist yet, or sleeps: a waiter or submitter must wake it. The thread sets this and
/// then looks whether anything has begun; a waiter or submitter begins and then reads this. So one sees the
/// other: these are sequentially consistent, or the beginning is under a lock that the thread takes.
static SLEEPS: AtomicBool = AtomicBool::new(false);
/// Threads without a task of their own that wait for objects.
static WAITS: Here = Here::new();
/// Futures and event loops that wait for objects.
static WATCHES: Here = Here::new();
/// Python's idents of the threads that existed when the last task ended; and whether any but the main one
/// did.
static OTHERS: LazyLock<Mutex<FxHashSet<usize>>> = LazyLock::new(Mutex::default);
static HAS_OTHERS: AtomicBool = AtomicBool::new(false);
/// Whether the task has asked for a missing object since the last look.
static HAS_ASKED: AtomicBool = AtomicBool::new(false);
/// How many threads are in [`lend`] now.
static LENDERS: AtomicU32 = AtomicU32::new(0);
/// Whether the thread of this module has lent the CPU. Changes only under the lock.
static LENT: Mutex<bool> = Mutex::new(false);
static IS_LENT: AtomicBool = AtomicBool::new(false);

/// Counts waits that began in the running task: the upper half is that task's number, the lower half the
/// count.
struct Here(AtomicU64);

impl Here {
    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Counts one more. Returns the task's number, for [`Self::end`].
    fn begin(&self) -> u32 {
        (self.0.fetch_add(1, Ordering::SeqCst) >> 32) as u32
    }

    fn end(&self, task: u32) {
        let less = |now: u64| ((now >> 32) as u32 == task && now as u32 > 0).then(|| now - 1);
        let _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
    }

    fn any(&self) -> bool {
        self.0.load(Ordering::SeqCst) as u32 > 0
    }

    /// The next task begins: waits that the last one left no longer count.
    fn next_task(&self) {
        if self.any() {
            let next = |now: u64| Some(((now >> 32).wrapping_add(1)) << 32);
            let _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
        }
    }
}

/// A future or an event loop waits for an object. Returns the task's number, for [`watch_ends`].
pub fn watch_begins() -> u32 {
    let task = WATCHES.begin();
    note();
    task
}

/// The future or loop no longer waits.
pub fn watch_ends(task: u32) {
    WATCHES.end(task);
}

/// The task asked for an object that is not there, and goes on.
#[cold]
pub fn asked_in_vain() {
    HAS_ASKED.store(true, Ordering::SeqCst);
    note();
}

/// Begins to look at this process, which is a worker.
pub fn enable(client: &Arc<Client>) {
    if CLIENT.set(client.clone()).is_ok() {
        SLEEPS.store(true, Ordering::SeqCst);
    }
}

/// Something was submitted, or a wait began.
#[inline]
pub fn note() {
    if SLEEPS.load(Ordering::SeqCst) {
        wake();
    }
}

#[cold]
fn wake() {
    if !SLEEPS.swap(false, Ordering::SeqCst) {
        return;
    }
    if let Some(thread) = THREAD.get() {
        return thread.unpark();
    }
    let spawned = std::thread::Builder::new().name("sooner-lender".into()).stack_size(256 << 10).spawn(run);
    if spawned.is_err() {
        // No thread could be started: the next call tries again.
        SLEEPS.store(true, Ordering::SeqCst);
    }
}

/// Marks, while it lives, that a thread without a task waits for objects.
pub struct Waiting(Option<u32>);

impl Waiting {
    pub fn begin() -> Self {
        if hooks::runs_one_task() && is_left_behind() {
            return Self(None);
        }
        let task = WAITS.begin();
        note();
        Self(Some(task))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(task) = self.0 {
            WAITS.end(task);
        }
    }
}

/// Lends the CPU while `wait` waits.
pub fn lend<T>(client: &Client, wait: impl FnOnce() -> T) -> T {
    LENDERS.fetch_add(1, Ordering::AcqRel);
    set_lent(false);
    client.step(|core, out| core.set_blocked(true, out));
    let result = wait();
    client.step(|core, out| core.set_blocked(false, out));
    LENDERS.fetch_sub(1, Ordering::AcqRel);
    result
}

fn set_lent(lent: bool) {
    *LENT.lock() = lent;
    IS_LENT.store(lent, Ordering::Release);
}

/// A task has ended: takes back its CPU for the next one, and discounts the waits that it left.
pub fn on_task_end(py: Python<'_>, client: &Client) {
    if hooks::runs_one_task() {
        WAITS.next_task();
        WATCHES.next_task();
        HAS_ASKED.store(false, Ordering::SeqCst);
        record_threads(py);
    }
    if IS_LENT.load(Ordering::Acquire) {
        take_back(client);
    }
}

/// Records the threads that exist when a task ends: their later waits are not the next task's.
fn record_threads(py: Python<'_>) {
    static ACTIVE: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let read = || Ok::<_, PyErr>(py.import("threading")?.getattr("_active")?.cast_into::<PyDict>()?.unbind());
    let Ok(active) = ACTIVE.get_or_try_init(py, read) else { return };
    let active = active.bind(py);
    if active.len() > 1 || HAS_OTHERS.load(Ordering::Relaxed) {
        let others: FxHashSet<usize> =
            active.keys().iter().filter_map(|thread| thread.extract().ok()).collect();
        HAS_OTHERS.store(others.len() > 1, Ordering::Relaxed);
        *OTHERS.lock() = others;
    }
}

/// Whether a task that has ended has left this thread behind.
fn is_left_behind() -> bool {
    // SAFETY: it always succeeds.
    let thread = unsafe { libc::pthread_self() } as usize;
    HAS_OTHERS.load(Ordering::Relaxed) && OTHERS.lock().contains(&thread)
}

fn take_back(client: &Client) {
    let mut lent = LENT.lock();
    if std::mem::take(&mut *lent) {
        IS_LENT.store(false, Ordering::Release);
        client.step(|core, out| core.set_blocked(false, out));
    }
}

/// Findings of the looks so far.
#[derive(Default)]
struct Looks {
    at: Instant,
    ran: u64,
    idle: u32,
    /// Looks in a row in which the process waited for objects while its own tasks were queued.
    vain: u32,
    /// Looks since the task asked for a missing object, if it is polling.
    asked: Option<u32>,
    nothing: u32,
    has_warned: bool,
}

fn run() {
    let Some(client) = CLIENT.get() else { return };
    // Before it can sleep: `wake` must not start a second one.
    let _ = THREAD.set(std::thread::current());
    let mut looks = Looks { at: time(), ran: nanos_run(), ..Looks::default() };
    while !client.is_closed() {
        if looks.nothing >= LOOKS_BEFORE_SLEEP {
            SLEEPS.store(true, Ordering::SeqCst);
            if !has_something(client) {
                std::thread::park();
            }
            SLEEPS.store(false, Ordering::SeqCst);
            looks = Looks { at: time(), ran: nanos_run(), has_warned: looks.has_warned, ..Looks::default() };
        }
        std::thread::sleep(LOOK);
        looks.look(client);
    }
}

/// Whether a thread waits for an object: in `get`, for a future, or in an event loop.
fn waits_for_object() -> bool {
    WAITS.any() || WATCHES.any()
}

fn has_something(client: &Client) -> bool {
    IS_LENT.load(Ordering::Acquire)
        || waits_for_object()
        || HAS_ASKED.load(Ordering::SeqCst)
        || client.step(|core, _| core.queued_tasks()) > 0
}

impl Looks {
    fn look(&mut self, client: &Client) {
        let (at, ran) = (time(), nanos_run());
        let (passed, used) = (at.since(self.at).max(1), ran.saturating_sub(self.ran));
        (self.at, self.ran) = (at, ran);
        if LENDERS.load(Ordering::Acquire) > 0 {
            (self.idle, self.nothing) = (0, 0);
            return;
        }
        let asks = self.asks();
        let waits = waits_for_object() || asks;
        if !waits && !has_something(client) {
            (self.idle, self.vain, self.nothing) = (0, 0, self.nothing + 1);
            return;
        }
        self.nothing = 0;
        let has_queued = client.step(|core, _| core.queued_tasks()) > 0;
        self.vain = if waits && has_queued { self.vain + 1 } else { 0 };
        let is_vain = self.vain >= if asks { VAIN_LOOKS } else { VAIN_LOOKS_UNKNOWN };
        if IS_LENT.load(Ordering::Acquire) {
            let is_over = !waits && !has_queued;
            if is_over || (used * 2 > passed && !is_vain) {
                self.idle = 0;
                take_back(client);
            }
            return;
        }
        self.idle = if used * IDLE_SHARE < passed && !wants_to_run() { self.idle + 1 } else { 0 };
        let enough = match (waits, hooks::runs_one_task()) {
            (true, true) => IDLE_LOOKS,
            (true, false) => IDLE_LOOKS_OF_MANY,
            (false, _) => IDLE_LOOKS_UNKNOWN,
        };
        let is_known = waits && (asks || !is_vain);
        if (self.idle >= enough || is_vain) && lend_now(client) && !is_known {
            self.warn();
        }
    }

    /// Whether the task polls for objects that are not there.
    fn asks(&mut self) -> bool {
        self.asked = if HAS_ASKED.swap(false, Ordering::SeqCst) {
            Some(0)
        } else {
            self.asked.map(|looks| looks + 1).filter(|looks| *looks < ASKS_WITHIN)
        };
        self.asked.is_some()
    }

    fn warn(&mut self) {
        if !std::mem::replace(&mut self.has_warned, true) {
            hooks::warn(
                "nothing says that a task waits for tasks that it has submitted, and they wait for a CPU: its own is lent to them. \
                 Waiting with sooner.get(), sooner.wait() or await lends it at once",
            );
        }
    }
}

/// Lends the CPU of the running task. False if there is none, or it is lent.
fn lend_now(client: &Client) -> bool {
    let mut lent = LENT.lock();
    if *lent || LENDERS.load(Ordering::Acquire) > 0 {
        return false;
    }
    *lent = client.step(|core, out| {
        let can_lend = core.execution().running() > 0 && !core.execution().is_blocked();
        if can_lend {
            core.set_blocked(true, out);
        }
        can_lend
    });
    IS_LENT.store(*lent, Ordering::Release);
    if *lent {
        client.flush_now();
    }
    *lent
}

/// How much CPU time this process has used (nanoseconds).
fn nanos_run() -> u64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    u64::try_from(used.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(used.tv_nsec).unwrap_or(0)
}

/// Whether a thread of this process runs, waits for a processor of a busy machine, or for a disk.
fn wants_to_run() -> bool {
    let own = rustix::thread::gettid().as_raw_nonzero().to_string();
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return false };
    threads.flatten().filter(|thread| thread.file_name() != *own).any(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The name before the state may have spaces and brackets.
        let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
        matches!(state, Some('R' | 'D'))
    })
}
