//! The session this process takes part in, and which task runs on which thread.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use pyo3::prelude::*;
use sooner_runtime::client::{Client, LineReader};
use sooner_runtime::node::NodeHandle;
use sooner_runtime::wire::{FunctionId, Name, TaskId};

use crate::python_side;

/// A connected client, and the node when this process hosts it.
pub struct Session {
    /// The client.
    pub client: Arc<Client>,
    /// The node, in a driver that started it.
    pub node: Mutex<Option<NodeHandle>>,
    /// Receives the lines of workers, in a driver whose node is another process.
    pub lines: Mutex<Option<LineReader>>,
    /// Whether this process executes tasks.
    pub is_worker: bool,
    /// Whether this process reports its end to its node: other processes of the session go on without it.
    pub leaves: bool,
}

/// The thread that ends the interpreter.
static EXITING: OnceLock<ThreadId> = OnceLock::new();
/// Whether [`EXITING`] is set. Sequentially consistent, as [`INSIDE`] is: a returning thread counts itself
/// and then reads this; the ending one sets this and then reads the count. So one sees the other.
static EXITS: AtomicBool = AtomicBool::new(false);

/// How many threads are in a function of ours that may execute Python.
static INSIDE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// How deeply our functions are nested on this thread: one may execute Python that calls the next.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// The end waits so long for threads inside: enough for calls that do not block.
const LEAVE_WITHIN: Duration = Duration::from_millis(500);

/// The interpreter begins to end, on this thread.
#[pyfunction]
pub fn interpreter_ends(py: Python<'_>) {
    // First: from now on, clean-up code of local-mode actors would be parked on its threads.
    crate::local::finish_endings(py);
    let _ = EXITING.set(std::thread::current().id());
    EXITS.store(true, Ordering::SeqCst);
    py.detach(|| {
        let start = Instant::now();
        while INSIDE.load(Ordering::SeqCst) > 0 && start.elapsed() < LEAVE_WITHIN {
            std::thread::sleep(Duration::from_micros(200));
        }
    });
}

fn stays_here() -> bool {
    EXITS.load(Ordering::SeqCst) && EXITING.get().is_some_and(|thread| *thread != std::thread::current().id())
}

/// Marks this thread, while it lives, as inside a function of ours that may execute Python.
///
/// The ending interpreter unwinds a daemon thread that takes the GIL again. Unwinding through our frames
/// would abort the process. So no daemon thread enters once the interpreter begins to end, and the end waits
/// for those inside.
pub struct Inside(());

impl Inside {
    /// Call it first.
    pub fn enter(py: Python<'_>) -> Self {
        if stays_here() {
            detached(py, || ());
        }
        if DEPTH.replace(DEPTH.get() + 1) == 0 {
            INSIDE.fetch_add(1, Ordering::Relaxed);
        }
        Self(())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
        if DEPTH.get() == 0 {
            INSIDE.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Runs `work` without the GIL.
///
/// Once the interpreter ends, a daemon thread is parked here until the process exits: see [`Inside`].
pub fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    let was_inside = usize::from(DEPTH.get() > 0);
    INSIDE.fetch_sub(was_inside, Ordering::Relaxed);
    py.detach(|| {
        let result = work();
        // Counted before the check, so that the ending thread sees this one or this one sees the end.
        INSIDE.fetch_add(was_inside, Ordering::SeqCst);
        if stays_here() {
            INSIDE.fetch_sub(was_inside, Ordering::SeqCst);
            loop {
                std::thread::park();
            }
        }
        result
    })
}

static SESSION: RwLock<Option<Arc<Session>>> = RwLock::new(None);

/// The task that runs on a thread.
#[derive(Clone)]
pub struct Current {
    /// The task.
    pub task: TaskId,
    /// Its display name.
    pub name: Name,
    /// The name of its function or method.
    pub called: Name,
    /// What was loaded for it: its function or class, or the exceptions with which its call is retried.
    pub function: Option<FunctionId>,
    /// GPUs of its lease.
    pub gpus: Vec<u32>,
    /// The actor, if the task is a call of one; only read in local mode, where one process has many.
    pub actor: Option<TaskId>,
}

thread_local! {
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

/// The session, if there is one.
pub fn current() -> Option<Arc<Session>> {
    SESSION.read().clone()
}

/// Sets or ends the session; gives the one before.
pub fn replace(session: Option<Arc<Session>>) -> Option<Arc<Session>> {
    std::mem::replace(&mut *SESSION.write(), session)
}

/// The client; starts a session first when there is none and the user has not forbidden that.
pub fn client(py: Python<'_>) -> PyResult<Arc<Client>> {
    if let Some(session) = &*SESSION.read()
        && !session.client.is_closed()
    {
        return Ok(session.client.clone());
    }
    // Not under the lock: an error is made by code of Python.
    if let Some(session) = current() {
        check_open(py, &session)?;
        return Ok(session.client.clone());
    }
    python_side::AUTO_INIT.call(py, ())?;
    current().map(|session| session.client.clone()).ok_or_else(not_started)
}

/// The error of a call outside a session.
pub fn not_started() -> PyErr {
    pyo3::exceptions::PyRuntimeError::new_err("sooner is not started: call sooner.init() first")
}

/// The task on this thread.
pub fn task() -> Option<Current> {
    CURRENT.with_borrow(Clone::clone)
}

/// The error of calls in a session that ended by itself.
pub fn lost(py: Python<'_>, reason: &str) -> PyErr {
    let text = format!("the session has ended: {reason}. sooner.init() begins a new one");
    crate::verbs::exception(py, &python_side::LOCAL_NODE_DIED_ERROR, &text)
}

/// Raises when there was a session that ended by itself: a program must not go on in another one without
/// knowing it.
#[pyfunction]
pub fn check_not_lost(py: Python<'_>) -> PyResult<()> {
    match current() {
        Some(session) => check_open(py, &session),
        None => Ok(()),
    }
}

fn check_open(py: Python<'_>, session: &Session) -> PyResult<()> {
    match session.client.end_reason() {
        Some(reason) if !session.is_worker => Err(lost(py, reason)),
        _ => Ok(()),
    }
}

/// The id of the task on this thread.
pub fn task_id() -> Option<TaskId> {
    CURRENT.with_borrow(|current| current.as_ref().map(|c| c.task))
}

/// Sets the task on this thread.
pub fn set_task(current: Option<Current>) {
    CURRENT.set(current);
}

/// An id as people see it.
pub fn hex(task: TaskId) -> String {
    format!("{:016x}{:016x}", task.owner.0, task.number)
}
