//! The session this process takes part in, and which task runs on which thread.

use std::cell::RefCell;
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;

use parking_lot::{Mutex, RwLock};
use pyo3::prelude::*;
use weft_runtime::client::Client;
use weft_runtime::node::NodeHandle;
use weft_runtime::wire::{FunctionId, Name, TaskId};

/// A connected client, and the node when this process hosts it.
pub struct Session {
    /// The client.
    pub client: Arc<Client>,
    /// The node, in a driver that started it.
    pub node: Mutex<Option<NodeHandle>>,
    /// Whether this process executes tasks.
    pub is_worker: bool,
}

/// The thread that ends the interpreter.
static EXITING: OnceLock<ThreadId> = OnceLock::new();

/// The interpreter begins to end, on this thread.
#[pyfunction]
pub fn interpreter_ends(py: Python<'_>) {
    // Code of actors that end in local mode would stay on its threads from now on.
    crate::local::finish_endings(py);
    let _ = EXITING.set(std::thread::current().id());
}

/// Runs `work` without the GIL.
///
/// A daemon thread that takes the GIL again while the interpreter ends is unwound by it through our frames, which
/// aborts the process. Such a thread stays here instead, until the process is gone.
pub fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    py.detach(|| {
        let result = work();
        while EXITING.get().is_some_and(|thread| *thread != std::thread::current().id()) {
            std::thread::park();
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
        return Ok(session.client.clone());
    }
    py.import("weft._context")?.call_method0("auto_init")?;
    match &*SESSION.read() {
        Some(session) => Ok(session.client.clone()),
        None => Err(not_started()),
    }
}

/// The error of a call outside a session.
pub fn not_started() -> PyErr {
    pyo3::exceptions::PyRuntimeError::new_err("weft is not started: call weft.init() first")
}

/// The task on this thread.
pub fn task() -> Option<Current> {
    CURRENT.with_borrow(Clone::clone)
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
