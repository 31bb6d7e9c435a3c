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
    /// What brings the lines of workers, in a driver whose node is another process.
    pub lines: Mutex<Option<LineReader>>,
    /// Whether this process executes tasks.
    pub is_worker: bool,
    /// Whether processes that do not end with this one's node are told that it leaves.
    pub leaves: bool,
}

/// The thread that ends the interpreter.
static EXITING: OnceLock<ThreadId> = OnceLock::new();
/// There is one. Sequentially consistent, as [`INSIDE`] is: a thread that comes back counts itself and looks
/// at this, the end sets this and looks at the count, and one of the two sees the other.
static EXITS: AtomicBool = AtomicBool::new(false);

/// How many threads are inside a call of ours and may execute Python in it.
static INSIDE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// How deep this thread is inside calls of ours: one may execute Python that makes the next.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// Long enough for every call that is not waiting for something.
const LEAVE_WITHIN: Duration = Duration::from_millis(500);

/// The interpreter begins to end, on this thread.
#[pyfunction]
pub fn interpreter_ends(py: Python<'_>) {
    // Code of actors that end in local mode would stay on its threads from now on.
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

/// A call of ours that may execute Python, for as long as this lives.
///
/// The interpreter ends daemon threads when they take the GIL again, by unwinding them. In a call of ours
/// that would go through our frames, which aborts the process. So no daemon thread begins a call once the
/// interpreter begins to end, and the end waits for the calls that had begun.
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
/// A daemon thread stays here once the interpreter ends, until the process is gone: see [`Inside`].
pub fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    let was_inside = usize::from(DEPTH.get() > 0);
    INSIDE.fetch_sub(was_inside, Ordering::Relaxed);
    py.detach(|| {
        let result = work();
        // Counted before the look, so that the end either sees this thread or is seen by it.
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

/// What runs on this thread.
#[derive(Clone)]
pub struct Current {
    /// The task.
    pub task: TaskId,
    /// Its display name.
    pub name: Name,
    /// The name of its function or method.
    pub called: Name,
    /// Its function; zero for calls of an actor.
    pub function: FunctionId,
    /// GPUs of its lease.
    pub gpus: Vec<u32>,
    /// The actor it is a call of; only known in local mode, where one process has many.
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
    if let Some(session) = &*SESSION.read() {
        if session.client.is_closed() {
            check_open(py, session)?;
        }
        return Ok(session.client.clone());
    }
    python_side::AUTO_INIT.call(py, ())?;
    match &*SESSION.read() {
        Some(session) => Ok(session.client.clone()),
        None => Err(not_started()),
    }
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
