//! Lending the CPU of a worker that waits in a way that no thread can tell by itself.
//!
//! A task that waits in `get` lends its CPU at once ([`crate::waiting`]). But it may also wait for a future, in an event
//! loop of its own, for a thread that is in `get`, or look again and again whether something is there. If everything that it
//! waits for needs its CPU, it waits for ever. So a thread of each such worker looks: while the process waits for an object
//! and none of its threads wants to run, its CPU is lent. So it is, with a warning, when nothing says that it waits, but
//! it has not run for a second, and tasks that it has submitted are queued all the while.
//!
//! The thread runs while there is something to look at, and for a second after that. It never calls Python but to warn.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use sooner_runtime::client::{Client, time};
use sooner_runtime::protocol::time::Instant;

use crate::hooks;

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(10);
/// So many looks in a row must have found the process idle: of a task, and of an actor that runs several calls at once and so waits
/// for something most of the time.
const IDLE_LOOKS: u32 = 2;
const IDLE_LOOKS_OF_MANY: u32 = 20;
/// The same where nothing says that the process waits for an object.
const IDLE_LOOKS_UNKNOWN: u32 = 100;
/// Looks without anything to look at before the thread sleeps.
const LOOKS_BEFORE_SLEEP: u32 = 100;
/// A process that ran for less than one in so many nanoseconds is idle; one that ran for more than every second is not.
const IDLE_SHARE: u64 = 10;

static CLIENT: OnceLock<Arc<Client>> = OnceLock::new();
static THREAD: OnceLock<Thread> = OnceLock::new();
/// The thread is not there yet, or sleeps: who begins something must wake it. It says so, and looks then whether something
/// has begun; whoever begins something does that, and looks then at this. So one of the two sees the other, because these
/// are sequentially consistent, or what begins does so under a lock under which the thread looks.
static SLEEPS: AtomicBool = AtomicBool::new(false);
/// Threads without a task of their own that wait for objects.
static WAITS: AtomicU32 = AtomicU32::new(0);
/// Threads that lend by themselves at the moment.
static LENDERS: AtomicU32 = AtomicU32::new(0);
/// The CPU is lent by the thread of this module. The lock is held where that changes.
static LENT: Mutex<bool> = Mutex::new(false);
static IS_LENT: AtomicBool = AtomicBool::new(false);

/// This process is a worker: from now on it is looked at.
pub fn enable(client: &Arc<Client>) {
    if CLIENT.set(client.clone()).is_ok() {
        SLEEPS.store(true, Ordering::SeqCst);
    }
}

/// Something was submitted, or is waited for.
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
        // Without room for a thread this is tried again.
        SLEEPS.store(true, Ordering::SeqCst);
    }
}

/// A thread without a task waits for objects as long as this lives.
pub struct Waiting;

impl Waiting {
    pub fn begin() -> Self {
        WAITS.fetch_add(1, Ordering::SeqCst);
        note();
        Self
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        WAITS.fetch_sub(1, Ordering::SeqCst);
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

/// A task has ended: the next one begins with its CPU.
pub fn on_task_end(client: &Client) {
    if IS_LENT.load(Ordering::Acquire) {
        take_back(client);
    }
}

fn take_back(client: &Client) {
    let mut lent = LENT.lock();
    if std::mem::take(&mut *lent) {
        IS_LENT.store(false, Ordering::Release);
        client.step(|core, out| core.set_blocked(false, out));
    }
}

/// What the looks so far have found.
#[derive(Default)]
struct Looks {
    at: Instant,
    ran: u64,
    idle: u32,
    nothing: u32,
    has_warned: bool,
}

fn run() {
    let Some(client) = CLIENT.get() else { return };
    // Before it can sleep: nobody starts a second one.
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
    WAITS.load(Ordering::SeqCst) > 0 || hooks::has_watchers()
}

fn has_something(client: &Client) -> bool {
    IS_LENT.load(Ordering::Acquire) || waits_for_object() || client.step(|core, _| core.queued_tasks()) > 0
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
        let waits = waits_for_object();
        if !waits && !has_something(client) {
            (self.idle, self.nothing) = (0, self.nothing + 1);
            return;
        }
        self.nothing = 0;
        if IS_LENT.load(Ordering::Acquire) {
            let is_over = !waits && client.step(|core, _| core.queued_tasks()) == 0;
            if is_over || used * 2 > passed {
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
        if self.idle >= enough && lend_now(client) && !waits {
            self.warn();
        }
    }

    fn warn(&mut self) {
        if !std::mem::replace(&mut self.has_warned, true) {
            hooks::warn(
                "a task does nothing while tasks that it has submitted wait for a CPU: its own is lent to them. Waiting with \
                 sooner.get(), sooner.wait() or await lends it at once",
            );
        }
    }
}

/// Lends the CPU of what runs here. False if nothing runs, or it is lent.
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

/// For how long threads of this process have run (nanoseconds).
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
        // The name before it may have spaces and brackets.
        let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
        matches!(state, Some('R' | 'D'))
    })
}
