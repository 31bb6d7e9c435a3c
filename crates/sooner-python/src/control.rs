//! Starting and ending sessions, and questions to the node.

use std::os::fd::{FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::exceptions::{PyConnectionError, PyInterruptedError, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use sooner_runtime::client::{Client, LineReader, Waited};
use sooner_runtime::logs::Sink;
use sooner_runtime::node::memory::{Limited, MemoryOptions};
use sooner_runtime::node::{HostJob, NodeHandle, NodeOptions};
use sooner_runtime::protocol::worker::ownership::Slot;
use sooner_runtime::wire::message::{
    FailureCode, FindName, JobConfig, ListNames, Message, Priority, Query, QueryKind, ReserveName,
    TemplateSetup,
};
use sooner_runtime::wire::resources::UNIT;
use sooner_runtime::wire::{Blob, NodeId, ResourceSet, TaskId, WorkerId};

use crate::hooks::{PythonHooks, Terminal};
use crate::mode::Mode;
use crate::object_ref::ObjectRef;
use crate::python_side;
use crate::session::{self, Session};
use crate::spilling;
use crate::verbs::untrusted;
use crate::waiting::{Wanted, interruption, need, wait_for};

/// How long the end of a driver waits for the next lines of its workers, and for all of them: the node gives
/// up earlier.
const NEXT_LINES: Duration = Duration::from_secs(3);
const LAST_LINES: Duration = Duration::from_secs(32);

/// Properties of this program's job. `JobTraits` of `sooner._options.traits` has the same names.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct JobTraits {
    /// The command of its templates; empty if there are none here.
    template: Vec<String>,
    /// How to start its templates on other nodes; `None` if there are no other nodes.
    setup: Option<Setup>,
    working_directory: String,
    namespace: String,
    inline_bytes: u64,
    events_bytes: u64,
    lineage_bytes: u64,
    pub log_to_driver: bool,
}

impl JobTraits {
    pub fn config(self) -> JobConfig {
        JobConfig {
            template: self.template,
            working_directory: self.working_directory,
            namespace: self.namespace,
            inline_bytes: self.inline_bytes,
            events_bytes: self.events_bytes,
            lineage_bytes: self.lineage_bytes,
            setup: self.setup.map(template_setup).map(Box::new),
            hashes: crate::hashes::of_this_program(),
        }
    }
}

/// Properties of a node to start. `NodeTraits` of `sooner._options.traits` has the same names.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct NodeTraits {
    resources: Vec<(String, f64)>,
    pool_size: usize,
    store_bytes: u64,
    /// Directories for values, and how much may be in them (bytes): see [`spilling::options`].
    spill: (Vec<String>, Option<u64>),
    eviction: String,
    pub base_directory: String,
    name: Option<String>,
    labels: Vec<(String, String)>,
    /// `None`: nothing is done about the memory of workers.
    memory: Option<MemoryWords>,
    /// The node's id is made of it.
    random: u64,
}

impl NodeTraits {
    pub fn node(&self) -> NodeId {
        WorkerId(self.random).node()
    }

    /// The options of the node. They have no job, cluster or interpreter yet, and the labels are not checked.
    pub fn options(self, python: &str) -> PyResult<NodeOptions> {
        Ok(NodeOptions {
            node: self.node(),
            resources: ResourceSet::from_amounts(self.resources),
            pool_size: self.pool_size,
            store_bytes: self.store_bytes,
            spill: spilling::options(self.spill),
            eviction: spilling::eviction(&self.eviction)?,
            base_directory: self.base_directory.into(),
            host: None,
            name: self.name,
            cluster: None,
            python: python.to_owned(),
            labels: self.labels,
            interpreter: None,
            memory: self.memory.map_or(MemoryOptions::OFF, memory_options),
        })
    }
}

/// Starts a node in this process and connects to it.
#[pyfunction]
pub fn start(py: Python<'_>, job: JobTraits, node: NodeTraits, local_mode: bool) -> PyResult<String> {
    if session::current().is_some() {
        return Err(PyRuntimeError::new_err("sooner is started already"));
    }
    let python = python_version(py);
    let place = node.base_directory.clone();
    let sink = terminal(job.log_to_driver);
    let mut options = node.options(&python)?;
    options.labels = crate::group::node_labels(options.labels)?;
    options.host = Some(HostJob { config: job.config(), sink });
    let total = options.resources.clone();
    let (node, client) = py
        .detach(|| {
            let node = NodeHandle::start(options)?;
            let client = Client::connect(&node.socket_path(), &python, None)?;
            client.start(Box::new(PythonHooks { is_worker: false }))?;
            Ok::<_, std::io::Error>((node, client))
        })
        .map_err(|error| {
            spilling::store_error(&error).or_else(|| untrusted(py, &error)).unwrap_or_else(|| {
                PyOSError::new_err(match sooner_runtime::ulimits::explain(&error) {
                    Some(limit) => format!("sooner cannot start: {error}. {limit}"),
                    // The error itself names the limit.
                    None if ["(ulimit ", "/pids.max)"]
                        .iter()
                        .any(|limit| error.to_string().contains(limit)) =>
                    {
                        format!("sooner cannot start: {error}")
                    }
                    None => format!(
                        "sooner cannot start in {place} (set SOONER_TMPDIR to another directory): {error}"
                    ),
                })
            })
        })?;
    if local_mode {
        client.enter_local_mode(total);
    }
    let directory = node.directory().to_string_lossy().into_owned();
    let session = Session {
        client,
        node: Mutex::new(Some(node)),
        lines: Mutex::new(None),
        is_worker: false,
        leaves: false,
    };
    session::replace(Some(Arc::new(session)));
    Ok(directory)
}

/// Fields of [`TemplateSetup`], for a job's templates on other nodes.
type Setup = (Vec<String>, Vec<String>, bool, bool, Vec<String>, Vec<(String, i64)>);

/// Names the fields.
fn template_setup((path, preload, call_sites, needs_site, options, flags): Setup) -> TemplateSetup {
    TemplateSetup { path, preload, call_sites, needs_site, options, flags }
}

/// How the memory of workers is guarded: the share of the memory from which on workers are stopped, a stated
/// amount in place of the machine's, and whose memory is limited ("off", "auto" or "all").
type MemoryWords = (f64, Option<u64>, String);

fn memory_options((threshold, stated, limited): MemoryWords) -> MemoryOptions {
    let limited = match limited.as_str() {
        "off" => Limited::Nobody,
        "all" => Limited::All,
        _ => Limited::Retried,
    };
    MemoryOptions { threshold, stated, limited }
}

pub fn terminal(log_to_driver: bool) -> Option<Box<dyn Sink>> {
    log_to_driver.then(|| Box::new(Terminal) as Box<dyn Sink>)
}

/// Connects to a node that is another process, as the driver of a job of its own.
#[pyfunction]
pub fn connect(py: Python<'_>, directory: PathBuf, job: JobTraits) -> PyResult<()> {
    if session::current().is_some() {
        return Err(PyRuntimeError::new_err("sooner is started already"));
    }
    let python = python_version(py);
    let sink = terminal(job.log_to_driver);
    let job = job.config();
    let socket = directory.join("node.sock");
    let (client, lines) = py
        .detach(|| {
            let client = Client::connect(&socket, &python, Some(job))?;
            let lines = LineReader::start(&socket, &python, client.me(), sink)?;
            client.start(Box::new(PythonHooks { is_worker: false }))?;
            Ok::<_, std::io::Error>((client, lines))
        })
        .map_err(|error| {
            let place = directory.display();
            untrusted(py, &error).unwrap_or_else(|| {
                let why = sooner_runtime::ulimits::told(&error);
                PyConnectionError::new_err(format!("cannot connect to the node in {place}: {why}"))
            })
        })?;
    let session = Session {
        client,
        node: Mutex::new(None),
        lines: Mutex::new(Some(lines)),
        is_worker: false,
        leaves: true,
    };
    session::replace(Some(Arc::new(session)));
    Ok(())
}

pub fn python_version(py: Python<'_>) -> String {
    let version = py.version_info();
    format!("{}.{}", version.major, version.minor)
}

/// Ends the session of this process.
#[pyfunction]
pub fn stop(py: Python<'_>) {
    if let Some(session) = session::current() {
        Mode::of(&session.client).before_end(py);
    }
    let Some(session) = session::replace(None) else { return };
    py.detach(|| {
        if session.leaves {
            session.client.leave();
        }
        session.client.close();
        if let Some(mut node) = session.node.lock().take() {
            node.stop();
        }
        session.client.release();
        if let Some(lines) = session.lines.lock().take() {
            lines.join(NEXT_LINES, LAST_LINES);
        }
    });
    crate::hooks::end_watchers(py);
    crate::execute::forget_functions();
}

/// Whether this process takes part in a session.
#[pyfunction]
pub fn is_running() -> bool {
    session::current().is_some_and(|session| !session.client.is_closed())
}

/// In a process that user code forked: the session belongs to the parent; nothing of it is touched here, and
/// nothing that code of a task does here is an answer of its worker.
#[pyfunction]
pub fn forget_after_fork() {
    if let Some(session) = session::replace(None) {
        if session.is_worker {
            crate::worker::record_fork();
        }
        // Its threads do not exist here and its sockets are the parent's: neither may be closed down.
        session.client.abandon();
        if let Some(node) = session.node.try_lock().and_then(|mut node| node.take()) {
            node.abandon();
        }
        std::mem::forget(session);
    }
    crate::local::forget();
    crate::collect::forget();
}

/// The error of a question that got no answer.
fn unavailable(py: Python<'_>, text: &str) -> PyErr {
    crate::verbs::exception(py, &python_side::RPC_ERROR, text)
}

/// Asks the node and waits for the answer.
fn ask(
    py: Python<'_>,
    client: &Arc<Client>,
    question: impl FnOnce(u64) -> Message + Send,
) -> PyResult<sooner_runtime::wire::message::Answer> {
    match session::detached(py, || client.ask_with(question, true)) {
        Err(Waited::Interrupted) => Err(interruption()),
        Ok(Message::Answer(answer)) if answer.unavailable == Some(true) => {
            Err(unavailable(py, &answer.error.unwrap_or_default()))
        }
        Ok(Message::Answer(answer)) => Ok(answer),
        Ok(_) | Err(_) => Err(crate::verbs::system_error(py, FailureCode::System, "the session ended")),
    }
}

/// The node hears so many times of each stored value that a task of this process returns: measures what once
/// costs.
#[pyfunction]
pub fn repeat_pins(py: Python<'_>, times: u32) -> PyResult<()> {
    session::client(py)?.step(|core, _| core.repeat_pins(times));
    Ok(())
}

/// Ends an actor now; `title` names it in the errors of later calls.
#[pyfunction]
pub fn kill_actor(actor: &Bound<'_, ObjectRef>, title: &str, may_restart: bool) -> PyResult<()> {
    let this = actor.get();
    this.check_session()?;
    this.client.step(|core, out| core.kill_actor(this.id.task, title, may_restart, out));
    this.client.flush_now();
    Ok(())
}

/// The reference that fails when an actor is dead for good: there is one in each process.
#[pyfunction]
pub fn end_of_actor(py: Python<'_>, actor: &Bound<'_, ObjectRef>) -> PyResult<ObjectRef> {
    let this = actor.get();
    this.check_session()?;
    let fresh = this.client.next_task();
    let (id, slot) = this.client.step(|core, out| core.end_of_actor(this.id.task, fresh, out));
    this.client.flush_now();
    let reference = ObjectRef { id, slot, client: this.client.clone() };
    reference.record_site(py);
    Ok(reference)
}

/// How often another process has taken an actor over, if this process knows.
#[pyfunction]
pub fn actor_restarts(actor: &Bound<'_, ObjectRef>) -> PyResult<Option<u32>> {
    let this = actor.get();
    this.check_session()?;
    Ok(this.client.step(|core, _| core.actor_restarts(this.id.task)))
}

/// Takes a name for an actor.
pub fn reserve(
    py: Python<'_>,
    client: &Arc<Client>,
    namespace: String,
    name: String,
    actor: TaskId,
    description: Vec<u8>,
) -> PyResult<()> {
    let description = Blob::from(description);
    let question = move |request| ReserveName { request, namespace, name, actor, description }.into();
    match ask(py, client, question)?.error {
        Some(error) => Err(crate::verbs::system_error(py, FailureCode::ActorNameTaken, &error)),
        None => Ok(()),
    }
}

/// The reference and description of a named actor.
#[pyfunction]
pub fn find_name<'py>(
    py: Python<'py>,
    namespace: String,
    name: String,
    is_weak: bool,
) -> PyResult<(ObjectRef, Bound<'py, PyBytes>)> {
    let client = session::client(py)?;
    let answer = ask(py, &client, move |request| FindName { request, namespace, name }.into())?;
    let (Some(actor), Some(description)) = (answer.actor, answer.description) else {
        let text = answer.error.unwrap_or_else(|| "there is no such actor".to_owned());
        return Err(PyValueError::new_err(text));
    };
    let handle = if is_weak { weak_handle(client, actor, true) } else { borrow_handle(client, actor) };
    Ok((handle, PyBytes::new(py, description.as_slice())))
}

/// A reference to an actor's handle for which the owner does not count this process: it keeps no actor alive.
/// A process that receives it is counted.
///
/// `is_called_often`: calls find the actor known, because this process remembers it as long as the reference
/// exists. Beside a reference that counts, it then keeps the latter's place with the owner, too.
fn weak_handle(client: Arc<Client>, actor: TaskId, is_called_often: bool) -> ObjectRef {
    let id = actor.object(0);
    if is_called_often && id.owner() != client.me() {
        let slot = client.step(|core, _| core.ownership_mut().meet(id));
        return ObjectRef::new(id, slot, client);
    }
    let slot = Arc::new(Slot::default());
    slot.register();
    ObjectRef::new(id, slot, client)
}

/// A reference to an actor's handle that no process handed over: this process registers with the owner
/// itself.
fn borrow_handle(client: Arc<Client>, actor: TaskId) -> ObjectRef {
    let id = actor.object(0);
    let slot = client.step(|core, out| {
        let me = core.me();
        let table = core.ownership_mut();
        table.hand_over(id, me, out);
        table.received(id)
    });
    ObjectRef::new(id, slot, client)
}

/// Whether the owner of an actor counts this handle, which was found by the actor's name: it has dropped all
/// of its own otherwise, and the actor ends.
#[pyfunction]
pub fn is_counted(py: Python<'_>, handle: &Bound<'_, ObjectRef>) -> PyResult<bool> {
    let this = handle.get();
    this.check_session()?;
    let owner = this.id.owner();
    if owner == this.client.me() {
        return Ok(!this.slot.has_failed());
    }
    // The owner reports about an actor only that it is dead. About an object that it never had it reports the
    // same at once, and its answers are in order.
    let nothing = borrow_handle(this.client.clone(), TaskId { owner, number: 0 });
    need(&this.client, &[Wanted::here(this), Wanted::here(&nothing)], Priority::Wait);
    wait_for(py, &this.client, || nothing.slot.has_outcome(), None)?;
    Ok(!this.slot.has_failed())
}

/// A reference as behind the handle of an actor, by the actor's id, that does not keep it alive.
#[pyfunction]
pub fn actor_ref(py: Python<'_>, actor: &str) -> PyResult<ObjectRef> {
    let number = |part: Option<&str>| part.and_then(|text| u64::from_str_radix(text, 16).ok());
    let (Some(owner), Some(number)) = (number(actor.get(..16)), number(actor.get(16..))) else {
        return Err(PyValueError::new_err("an actor id has 32 hexadecimal digits"));
    };
    Ok(weak_handle(session::client(py)?, TaskId { owner: WorkerId(owner), number }, false))
}

/// What this worker holds: resources, and the name of its actor.
#[pyfunction]
pub fn own(py: Python<'_>) -> PyResult<(Bound<'_, PyDict>, Option<String>)> {
    let client = session::client(py)?;
    let what = QueryKind::Own;
    let answer = ask(py, &client, move |request| Query { request, what }.into())?;
    let name = answer.names.and_then(|names| names.into_iter().next()).map(|(_, name)| name);
    Ok((amounts(py, &answer.resources.unwrap_or_default())?, name))
}

fn amounts<'py>(py: Python<'py>, set: &ResourceSet) -> PyResult<Bound<'py, PyDict>> {
    let amounts = PyDict::new(py);
    for (name, amount) in set.iter() {
        amounts.set_item(name, amount as f64 / UNIT as f64)?;
    }
    Ok(amounts)
}

/// Namespaces and names of living named actors.
#[pyfunction]
pub fn list_names(py: Python<'_>, namespace: Option<String>) -> PyResult<Vec<(String, String)>> {
    let client = session::client(py)?;
    let answer = ask(py, &client, move |request| ListNames { request, namespace }.into())?;
    Ok(answer.names.unwrap_or_default())
}

/// Resources of the node: all, or what is free.
#[pyfunction]
pub fn resources<'py>(py: Python<'py>, free: bool) -> PyResult<Bound<'py, PyDict>> {
    let client = session::client(py)?;
    let what = if free { QueryKind::AvailableResources } else { QueryKind::TotalResources };
    let answer = ask(py, &client, move |request| Query { request, what }.into())?;
    amounts(py, &answer.resources.unwrap_or_default())
}

/// Labels of the node: keys and values.
#[pyfunction]
pub fn node_labels(py: Python<'_>) -> PyResult<Vec<(String, String)>> {
    let client = session::client(py)?;
    let what = QueryKind::Labels;
    let answer = ask(py, &client, move |request| Query { request, what }.into())?;
    Ok(answer.names.unwrap_or_default())
}

/// Process ids of the workers.
#[pyfunction]
pub fn worker_pids(py: Python<'_>) -> PyResult<Vec<u64>> {
    let client = session::client(py)?;
    let what = QueryKind::Workers;
    let answer = ask(py, &client, move |request| Query { request, what }.into())?;
    Ok(answer.numbers.unwrap_or_default().into_vec())
}

/// Ids of this process: worker, node, driver, and the namespace of the session.
#[pyfunction]
pub fn identity() -> PyResult<(String, String, String, String, bool)> {
    let session = session::current().ok_or_else(session::not_started)?;
    let welcome = &session.client.welcome;
    let hex = |number: u64| format!("{number:016x}");
    Ok((
        hex(welcome.worker.0),
        hex(welcome.node.0),
        hex(welcome.driver.0),
        welcome.namespace.clone(),
        session.is_worker,
    ))
}

/// Removes what a node that is gone has left behind: the control groups of its workers, and its directory.
#[pyfunction]
pub fn remove_session(py: Python<'_>, directory: PathBuf) {
    py.detach(|| sooner_runtime::session::remove(&directory));
}

/// The fork server's loop, driven by `sooner._engine.template`.
#[pyclass(module = "sooner._sooner")]
pub struct Template {
    inner: sooner_runtime::template::Template,
}

#[pymethods]
impl Template {
    #[new]
    fn new(descriptor: i32) -> PyResult<Self> {
        // SAFETY: the template's main passes the descriptor it was started with, once.
        let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let inner = sooner_runtime::template::Template::new(socket).map_err(os_error)?;
        Ok(Self { inner })
    }

    /// Waits for a fork request: worker id and descriptors of node socket, stdout and stderr; `None` at the
    /// end.
    fn next(&mut self, py: Python<'_>) -> PyResult<Option<(u64, i32, i32, i32)>> {
        use std::os::fd::IntoRawFd;
        loop {
            match self.inner.next_request() {
                Ok(None) => return Ok(None),
                Ok(Some(request)) => {
                    return Ok(Some((
                        request.worker.0,
                        request.node.into_raw_fd(),
                        request.stdout.into_raw_fd(),
                        request.stderr.into_raw_fd(),
                    )));
                }
                Err(error) if error == rustix::io::Errno::INTR => py.check_signals()?,
                Err(error) => return Err(os_error(error)),
            }
        }
    }

    /// Whether the end came from the node, which goes on.
    fn is_dismissed(&self) -> bool {
        self.inner.is_dismissed()
    }

    fn forked(&mut self, worker: u64, pid: i32) {
        self.inner.forked(WorkerId(worker), pid);
    }

    fn failed(&mut self, worker: u64, errno: i32) {
        self.inner.fork_failed(WorkerId(worker), &std::io::Error::from_raw_os_error(errno));
    }
}

fn os_error(error: rustix::io::Errno) -> PyErr {
    PyInterruptedError::new_err(error.to_string())
}
