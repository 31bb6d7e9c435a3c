//! Where tasks execute: in workers, or, in local mode, in the process that submits them.
//!
//! All that the two modes do in different ways stands here, side by side. The rest of the crate asks a
//! [`Mode`] and never which one it is; [`crate::local`] has what local mode does.

use std::sync::Arc;

use pyo3::exceptions::{PyKeyboardInterrupt, PySystemExit};
use pyo3::prelude::*;
use sooner_runtime::client::Client;
use sooner_runtime::protocol::time::Instant;
use sooner_runtime::protocol::worker::ownership::Slot;
use sooner_runtime::wire::TaskId;
use sooner_runtime::wire::message::{Failure, FailureCode, Push, Target, TaskKind};

use crate::{execute, local, waiting, worker};

/// Where the tasks of a session execute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// In processes of their own.
    Workers,
    /// In the submitting process, on the submitting thread.
    Local,
}

/// The program's side: what a process does with what it has submitted.
impl Mode {
    /// The mode of a client's session.
    #[inline]
    pub fn of(client: &Client) -> Self {
        if client.is_local() { Self::Local } else { Self::Workers }
    }

    /// Tasks may have become ready: they were submitted, or others were cancelled. In local mode they execute
    /// before this returns.
    ///
    /// # Errors
    /// In local mode, the `KeyboardInterrupt` that ended a task.
    #[inline]
    pub fn run_ready(self, py: Python<'_>, client: &Arc<Client>) -> PyResult<()> {
        match self {
            Self::Workers => Ok(()),
            Self::Local => local::run_queued(py, client),
        }
    }

    /// Waits until `is_done`, with signals; see [`waiting::wait_for`].
    ///
    /// # Errors
    /// What a signal handler raised, or that the session ended.
    pub fn wait(
        self,
        py: Python<'_>,
        client: &Arc<Client>,
        is_done: impl FnMut() -> bool + Send,
        deadline: Option<Instant>,
    ) -> PyResult<bool> {
        match self {
            Self::Workers => waiting::wait_for_workers(py, client, is_done, deadline),
            Self::Local => waiting::wait_locally(py, client, is_done, deadline),
        }
    }

    /// A reference is awaited, and no thread waits for it. In local mode one thread does what is awaited.
    ///
    /// # Errors
    /// When there can be no more threads.
    pub fn serve(self, py: Python<'_>, client: &Arc<Client>, slot: &Arc<Slot>) -> PyResult<()> {
        match self {
            Self::Workers => Ok(()),
            Self::Local => local::serve(py, client, slot),
        }
    }

    /// Has a generator make its next item on this thread. False if it is not for this thread to make it.
    pub fn advance(self, py: Python<'_>, client: &Arc<Client>, task: TaskId) -> bool {
        match self {
            Self::Workers => false,
            Self::Local => local::advance_stream(py, client, Some(task)),
        }
    }

    /// Whether submitted tasks pile up, so that their number has a limit.
    #[inline]
    pub fn has_backlog(self) -> bool {
        self == Self::Workers
    }

    /// Whether processes fail, so that calls of actors with checkpoints are kept for their recovery.
    #[inline]
    pub fn processes_fail(self) -> bool {
        self == Self::Workers
    }

    /// The session is about to end; clean-up hooks may still use it.
    pub fn before_end(self, py: Python<'_>) {
        match self {
            Self::Workers => {}
            Self::Local => local::end_all(py),
        }
    }
}

/// The executing side: what a process does with a task that it executes.
impl Mode {
    /// Whether the process has a state to follow: a worker takes over modules and paths of the program.
    #[inline]
    pub fn follows_program(self) -> bool {
        self == Self::Workers
    }

    /// A task is about to begin. A signal that came before, for another task, must not end this one.
    #[inline]
    pub fn before_task(self, py: Python<'_>) {
        match self {
            Self::Workers => worker::handle_signals(py),
            // Signals are the program's, which handles them in the call that executes the task.
            Self::Local => {}
        }
    }

    /// Makes the process as the task wants it: GPUs that it sees, threads of numeric libraries.
    ///
    /// # Errors
    /// When a library cannot be told.
    #[inline]
    pub fn fit_process(self, py: Python<'_>, push: &Push) -> PyResult<()> {
        if self == Self::Local {
            return Ok(());
        }
        worker::set_visible_gpus(py, &push.gpus)?;
        match &push.spec.target {
            Target::Function(call) => worker::set_threads(py, call.scheduling.threads),
            Target::Class(_) | Target::Method(_) => Ok(()),
        }
    }

    /// The actor that a task on this thread belongs to, where one process has several.
    #[inline]
    pub fn actor_of(self, kind: TaskKind) -> Option<TaskId> {
        match (self, kind) {
            (Self::Local, TaskKind::Method(actor)) => Some(actor),
            _ => None,
        }
    }

    /// Whether calls of an actor take copies of arrays.
    #[inline]
    pub fn takes_copies(self, actor: &Bound<'_, PyAny>) -> bool {
        match self {
            Self::Workers => execute::process_takes_copies(),
            Self::Local => execute::takes_copies(actor),
        }
    }

    /// A task called `sys.exit()`. A worker ends at once, unless it is an actor that ends in order. In local
    /// mode only an actor ends. Gives why the actor ends.
    pub fn on_exit(self, py: Python<'_>, error: &PyErr, kind: TaskKind) -> Option<String> {
        match self {
            Self::Workers => execute::exit_process(py, error),
            Self::Local => matches!(kind, TaskKind::Method(_)).then(|| format!("it raised {error}")),
        }
    }

    /// The failure of a task that called `sys.exit()`, if its process goes on nevertheless.
    pub fn exit_failure(self, py: Python<'_>, error: &PyErr, name: &str) -> Option<Failure> {
        let left = self == Self::Local && error.is_instance_of::<PySystemExit>(py);
        left.then(|| Failure::new(FailureCode::WorkerCrashed, format!("{name}() left: {error}")))
    }

    /// The `KeyboardInterrupt` that ended a task, if it is the program's.
    pub fn program_interrupt(self, py: Python<'_>, error: &PyErr) -> Option<PyErr> {
        let is_ours = self == Self::Local && error.is_instance_of::<PyKeyboardInterrupt>(py);
        is_ours.then(|| error.clone_ref(py))
    }

    /// An actor ends at its own request, before any caller can see that.
    pub fn actor_leaves(self, py: Python<'_>, actor: TaskId) {
        match self {
            Self::Workers => {}
            Self::Local => local::on_actor_end(py, actor, true),
        }
    }

    /// The task that ended its actor has ended. A worker has nothing more to do, and waits for its end.
    pub fn after_leaving(self, py: Python<'_>, client: &Arc<Client>) {
        match self {
            Self::Workers => worker::wait_for_end(py, client),
            Self::Local => {}
        }
    }

    /// A call in the event loop has ended: who waits for it, or for its place, learns of that.
    pub fn loop_call_ended(self, client: &Client) {
        match self {
            Self::Workers => worker::wake_groups(client),
            Self::Local => client.notify(),
        }
    }
}
