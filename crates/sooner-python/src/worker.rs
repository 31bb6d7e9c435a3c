//! A worker's life: connecting after the fork, running tasks, being an actor, and its end.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::exceptions::PySystemExit;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use rustc_hash::FxHashMap;
use sooner_runtime::client::{Client, Waited, time};
use sooner_runtime::protocol::time::Instant;
use sooner_runtime::protocol::worker::WorkerCore;
use sooner_runtime::protocol::worker::action::Peer;
use sooner_runtime::protocol::worker::execution::Incoming;
use sooner_runtime::protocol::worker::tasks::RunTime;
use sooner_runtime::wire::message::{
    ActorCreation, Failure, FailureCode, FunctionCall, MethodCall, Streaming, Target, TaskKind,
};
use sooner_runtime::wire::{FunctionId, TaskId, WorkerId};

use crate::args::decode_arguments;
use crate::checkpoint;
use crate::execute::{
    Callee, Ended, actor_access, end, failure, listed_exceptions, load, method, run, set_actor_takes_copies,
    timing_from,
};
use crate::generator::{MayYield, last_value, may_yield, send_item};
use crate::hooks::{self, PythonHooks};
use crate::lending;
use crate::mode::Mode;
use crate::python_side;
use crate::session::{self, Current, Session};
use crate::values::Access;

/// How long a worker that ends after its last task tries to send the reply (nanoseconds).
const RETIRING_NANOS: u64 = 10_000_000_000;

/// How long an actor whose session is over may take for its clean-up hook when its threads are in use.
const ACTOR_GRACE: Duration = Duration::from_millis(300);

/// Whether the main thread runs an event loop.
static IN_LOOP: AtomicBool = AtomicBool::new(false);

/// The actor in this process.
static ACTOR: Mutex<Option<Py<PyAny>>> = Mutex::new(None);
/// The task to interrupt on the main thread: owner and number.
static INTERRUPT: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
/// How many interrupts the handler has not seen yet. Their tasks may have ended when they come.
static INTERRUPTS_SENT: AtomicU32 = AtomicU32::new(0);
thread_local! {
    /// Whether this thread has left a line of output unfinished.
    static LINE_BEGUN: Cell<bool> = const { Cell::new(false) };
}
/// Whether the main thread runs user code.
static IS_BUSY: AtomicBool = AtomicBool::new(false);

/// Whether code of a task forked this process: it must never answer in the worker's place.
static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// Records that code of a task forked this process from a worker.
pub fn record_fork() {
    IS_CHILD.store(true, Ordering::Relaxed);
}

/// Whether an interrupt may have left something half done: the process takes no more tasks.
static IS_BROKEN: AtomicBool = AtomicBool::new(false);

/// This process takes no more tasks after the one that runs.
#[pyfunction]
pub fn retire_worker() {
    IS_BROKEN.store(true, Ordering::Relaxed);
}

/// The actor of this process is over: nothing of the engine refers to it any more.
#[pyfunction]
pub fn forget_actor() {
    let actor = ACTOR.lock().take();
    // Not under the lock: it may run code of the user.
    drop(actor);
}

/// Where a task's code returns to its worker: a process that the task forked ends here, as a program would.
pub fn end_if_child(py: Python<'_>, result: Result<(), &PyErr>) {
    if IS_CHILD.load(Ordering::Relaxed) {
        end_child(py, result.err());
    }
}

#[cold]
fn end_child(py: Python<'_>, error: Option<&PyErr>) -> ! {
    let error = error.map(|error| error.value(py));
    let _ = python_side::END_CHILD.call(py, (error,));
    // Reached only if the interpreter is too broken to exit.
    std::process::abort()
}

fn client() -> PyResult<Arc<Client>> {
    session::current().map(|session| session.client.clone()).ok_or_else(session::not_started)
}

/// Greets the node over the socket the worker was forked with.
#[pyfunction]
pub fn worker_connect(py: Python<'_>, descriptor: i32, worker: u64) -> PyResult<()> {
    // SAFETY: the template passes the descriptor it received for this worker, once.
    let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let version = py.version_info();
    let python = format!("{}.{}", version.major, version.minor);
    let client = Client::adopt(socket, WorkerId(worker), &python)
        .and_then(|client| {
            client.start(Box::new(PythonHooks { is_worker: true }))?;
            Ok(client)
        })
        .map_err(PyErr::from)?;
    hooks::set_lends_cpu(true);
    hooks::set_worker();
    lending::enable(&client);
    let session =
        Session { client, node: Mutex::new(None), lines: Mutex::new(None), is_worker: true, leaves: false };
    session::replace(Some(Arc::new(session)));
    Ok(())
}

/// The node learns why this worker ends. `lacks_threads`: it could not start one.
#[pyfunction]
pub fn worker_fails(py: Python<'_>, reason: &str, lacks_threads: bool) {
    let Some(session) = session::current() else { return };
    let limit =
        if lacks_threads { sooner_runtime::ulimits::explain(&rustix::io::Errno::AGAIN.into()) } else { None };
    let reason = limit.map_or(reason.to_owned(), |limit| format!("{reason}. {limit}"));
    py.detach(|| session.client.complain(&reason));
}

/// Reports `ended`. Returns the main thread's next task; `None` at the session's end.
fn next(py: Python<'_>, client: &Arc<Client>, ended: Option<Ended>) -> PyResult<Option<Incoming>> {
    let incoming = match ended {
        Some(ended) => finish_and_next(client, ended),
        None => client.step(|core, _| core.next_execution()),
    };
    if client.is_closed() {
        return Ok(None);
    }
    if let Some(incoming) = incoming {
        return Ok(Some(incoming));
    }
    let mut is_answered = false;
    loop {
        IS_BUSY.store(false, Ordering::Release);
        let mut found = None;
        let waited = py.detach(|| {
            let is_there = || {
                if !is_answered {
                    // The reply has left, so no caller waits for this.
                    is_answered = true;
                    crate::standing::mend_streams();
                }
                found = client.step(|core, _| core.next_execution());
                found.is_some()
            };
            client.wait_until(is_there, None, false)
        });
        IS_BUSY.store(true, Ordering::Release);
        match (found, waited) {
            (Some(incoming), _) => return Ok(Some(incoming)),
            (None, Waited::Closed) => return Ok(None),
            (None, _) => py.check_signals()?,
        }
    }
}

fn finish_and_next(client: &Arc<Client>, ended: Ended) -> Option<Incoming> {
    finish_and(client, ended, WorkerCore::next_execution)
}

fn finish_and(
    client: &Arc<Client>,
    ended: Ended,
    next: impl FnOnce(&mut WorkerCore) -> Option<Incoming>,
) -> Option<Incoming> {
    let Ended { task, returns, retry, ran, .. } = ended;
    client.step(|core, out| {
        core.on_finished(task, returns, ran, retry, out);
        next(core)
    })
}

/// Runs tasks until the session ends or an actor is constructed that needs more than this thread: then gives
/// `("threads", n)` or `("loop", n)`. `None` at the end.
#[pyfunction]
pub fn worker_run(py: Python<'_>) -> PyResult<Option<(String, u32)>> {
    let client = client()?;
    IS_BUSY.store(true, Ordering::Release);
    let mut ended = None;
    let mut executions: FxHashMap<FunctionId, u32> = FxHashMap::default();
    loop {
        let Some(incoming) = next(py, &client, ended.take())? else { return Ok(None) };
        match &incoming.push.spec.target {
            Target::Function(FunctionCall { function, max_calls, .. }) => {
                let (function, max_calls, caller) = (*function, *max_calls, incoming.from);
                let done = run(py, &client, incoming, &Callee::Function(function));
                let is_used_up = max_calls.is_some_and(|most| {
                    let count = executions.entry(function).or_default();
                    *count += 1;
                    *count >= most.get()
                });
                if is_used_up || IS_BROKEN.load(Ordering::Relaxed) {
                    if !retire(py, &client, done, caller) {
                        return Ok(None);
                    }
                    continue;
                }
                ended = Some(done);
            }
            Target::Class(creation) => {
                if let Some(mode) = construct(py, &client, &incoming, creation)? {
                    return Ok(Some(mode));
                }
            }
            Target::Method(MethodCall { actor: id, .. }) => {
                let id = *id;
                let actor = ACTOR.lock().as_ref().map(|actor| actor.clone_ref(py));
                let actor = actor.unwrap_or_else(|| py.None()).into_bound(py);
                let done = run(py, &client, incoming, &Callee::Actor(&actor));
                ended = checkpoint::after_call(py, &client, &actor, id, done);
            }
        }
    }
}

/// Sends what waits: this process is about to end by itself. Calls of others that it was given go back.
#[pyfunction]
pub fn worker_flush(py: Python<'_>) -> PyResult<()> {
    let client = client()?;
    client.step(|core, out| core.return_queued(out));
    py.detach(|| client.flush_all(RETIRING_NANOS));
    Ok(())
}

/// Reports the last task of this process, returns queued ones, and flushes. True if other processes need
/// objects of this one: it goes on until its node ends it.
fn retire(py: Python<'_>, client: &Arc<Client>, ended: Ended, caller: Peer) -> bool {
    let Ended { task, returns, retry, ran, .. } = ended;
    let is_needed = client.step(|core, out| {
        core.on_finished(task, returns, ran, retry, out);
        core.retire(caller, out)
    });
    py.detach(|| client.flush_all(RETIRING_NANOS));
    is_needed
}

/// Ends the actor at its own request: reports it to the node, which ends the process. All open calls fail
/// with the actor, including the one that asked.
pub fn leave_actor(py: Python<'_>, client: &Client, task: TaskId, kind: TaskKind, why: &str) {
    let TaskKind::Method(actor) = kind else { return };
    Mode::of(client).actor_leaves(py, actor);
    let failure = Failure::new(FailureCode::ActorDied, format!("the actor ended: {why}"));
    client.step(|core, out| core.on_actor_exits(actor, task, failure, out));
    client.flush_now();
}

/// Waits until the session of this process is over. No user code runs meanwhile on this thread.
pub fn wait_for_end(py: Python<'_>, client: &Arc<Client>) {
    IS_BUSY.store(false, Ordering::Release);
    py.detach(|| client.wait_until(|| false, None, false));
}

/// Runs calls of the actor on a further thread until the session ends; with `group` those of one concurrency
/// group only.
#[pyfunction]
#[pyo3(signature = (group=None))]
pub fn worker_thread(py: Python<'_>, group: Option<usize>) -> PyResult<()> {
    let client = client()?;
    let next = |core: &mut WorkerCore| match group {
        Some(group) => core.next_execution_of(group),
        None => core.next_execution(),
    };
    let actor = ACTOR.lock().as_ref().map(|actor| actor.clone_ref(py));
    let actor = actor.unwrap_or_else(|| py.None()).into_bound(py);
    let mut ended = None;
    loop {
        let mut found = match ended.take() {
            Some(ended) => finish_and(&client, ended, next),
            None => None,
        };
        if found.is_none() {
            let waited = py.detach(|| {
                let is_there = || {
                    found = client.step(|core, _| next(core));
                    found.is_some()
                };
                client.wait_until(is_there, None, false)
            });
            if found.is_none() && waited == Waited::Closed {
                return Ok(());
            }
        }
        if client.is_closed() {
            return Ok(());
        }
        if let Some(incoming) = found {
            client.rouse_followers();
            ended = Some(run(py, &client, incoming, &Callee::Actor(&actor)));
        }
    }
}

/// Constructs the actor of this process. Returns how its calls are run; `None`: by this thread alone.
fn construct(
    py: Python<'_>,
    client: &Arc<Client>,
    incoming: &Incoming,
    creation: &ActorCreation,
) -> PyResult<Option<(String, u32)>> {
    let spec = &incoming.push.spec;
    client.mapping().record_task(client.welcome.cell, spec);
    let current = Current {
        task: spec.task,
        name: spec.name.clone(),
        called: spec.name.clone(),
        function: Some(creation.class),
        gpus: incoming.push.gpus.clone(),
        actor: None,
    };
    handle_signals(py);
    session::set_task(Some(current));
    checkpoint::begin(creation);
    crate::group::stay(creation);
    let made = (|| {
        set_visible_gpus(py, &incoming.push.gpus)?;
        set_threads(py, creation.scheduling.threads)?;
        let class = load(py, client, creation.class, true)?;
        let (class, options) = (class.target.into_bound(py), class.extra);
        set_actor_takes_copies(&class);
        python_side::ACTOR_BEGINS.call(py, (&class, options, session::hex(spec.task), spec.retries))?;
        let maker = python_side::MAKER.call(py, (&class,))?;
        let (args, kwargs) = decode_arguments(py, client, incoming, actor_access(client, &class))?;
        let actor = checkpoint::construct(py, client, (&class, &maker), (args, kwargs))?;
        let is_async: bool = python_side::ACTOR_STANDS.call(py, (&actor,))?.extract()?;
        Ok::<_, PyErr>((actor, is_async))
    })();
    end_if_child(py, made.as_ref().map(|_| ()));
    session::set_task(None);
    let task = spec.task;
    match made {
        Ok((actor, is_async)) => {
            let before = ACTOR.lock().replace(actor.unbind());
            drop(before);
            client.step(|core, out| core.on_constructed(task, None, out));
            let mode = match (is_async, creation.concurrency) {
                (true, 0) => Some(("loop".to_owned(), 1000)),
                (true, n) => Some(("loop".to_owned(), n)),
                (false, 0 | 1) => None,
                (false, n) => {
                    hooks::set_lends_cpu(false);
                    Some(("threads".to_owned(), n))
                }
            };
            Ok(mode)
        }
        Err(error) => {
            if error.is_instance_of::<PySystemExit>(py) {
                crate::execute::exit_process(py, &error);
            }
            let failure = constructor_failure(py, &error, incoming);
            client.step(|core, out| core.on_constructed(task, Some(failure), out));
            client.flush_now();
            // The node publishes the reason and ends this process. No call that arrives meanwhile is taken.
            wait_for_end(py, client);
            Ok(None)
        }
    }
}

/// Name of the actor's class, for messages; `None` outside of an actor.
pub fn actor_title(py: Python<'_>) -> Option<String> {
    let actor = ACTOR.lock().as_ref().map(|actor| actor.clone_ref(py))?;
    actor.bind(py).get_type().name().ok().map(|name| name.to_string())
}

/// Calls that run in the event loop.
struct LoopCall {
    incoming: Incoming,
    start: Instant,
}

thread_local! {
    static LOOP_CALLS: RefCell<FxHashMap<u64, LoopCall>> = RefCell::default();
}

/// The main thread runs an event loop from now on. Gives the descriptor to watch.
#[pyfunction]
pub fn loop_enter(py: Python<'_>) -> PyResult<i32> {
    let client = client()?;
    hooks::set_lends_cpu(false);
    IN_LOOP.store(true, Ordering::Relaxed);
    // Without the GIL: the background thread may be reading, and need the GIL to deliver an outcome before it
    // leaves the reading to the loop.
    let descriptor = py.detach(|| {
        client.enter_loop();
        client.loop_descriptor()
    });
    descriptor.ok_or_else(session::not_started)
}

/// The event loop begins (after sending what waits, and looking for a moment) or ends a wait.
#[pyfunction]
pub fn loop_waits(py: Python<'_>, waits: bool, takes_calls: bool) -> PyResult<bool> {
    let client = client()?;
    Ok(py.detach(|| client.loop_waits(waits, takes_calls)))
}

/// A call for the event loop: token, method, arguments, keywords, name, whether it streams.
type LoopItem<'py> = (u64, Bound<'py, PyAny>, Bound<'py, PyTuple>, Option<Bound<'py, PyDict>>, String, bool);

/// Takes up to `count` calls for the event loop; `None` when the session is over.
#[pyfunction]
pub fn loop_calls(py: Python<'_>, count: usize) -> PyResult<Option<Vec<LoopItem<'_>>>> {
    let client = client()?;
    client.poll();
    if client.is_closed() {
        return Ok(None);
    }
    let actor = ACTOR.lock().as_ref().map(|actor| actor.clone_ref(py));
    let actor = actor.unwrap_or_else(|| py.None()).into_bound(py);
    let mut items = Vec::new();
    while items.len() < count {
        let Some(incoming) = client.step(|core, _| core.next_execution()) else { break };
        items.extend(prepare(py, &client, &actor, incoming));
    }
    Ok(Some(items))
}

/// Calls that were taken for each concurrency group, and that its event loop has not picked up yet.
static GROUP_CALLS: Mutex<Vec<VecDeque<Incoming>>> = Mutex::new(Vec::new());

/// The event loops of an asyncio actor with concurrency groups run in threads from now on, and another one
/// feeds them. Gives the places of each group, the default one first; nothing without groups.
#[pyfunction]
pub fn group_places() -> PyResult<Vec<u32>> {
    let places = client()?.step(|core, _| core.execution().free_places().to_vec());
    GROUP_CALLS.lock().resize_with(places.len(), VecDeque::new);
    Ok(places)
}

/// Waits for calls to an asyncio actor with concurrency groups, and takes those for which their groups have
/// room. Gives the groups that have such now; `None` when the session is over.
#[pyfunction]
pub fn feed_groups(py: Python<'_>) -> PyResult<Option<Vec<usize>>> {
    let client = client()?;
    hooks::set_lends_cpu(false);
    IN_LOOP.store(true, Ordering::Relaxed);
    let count = GROUP_CALLS.lock().len();
    let mut fed = Vec::new();
    let waited = py.detach(|| {
        let is_there = || {
            for group in 0..count {
                let taken: Vec<Incoming> =
                    client.step(|core, _| std::iter::from_fn(|| core.next_execution_of(group)).collect());
                if !taken.is_empty() {
                    GROUP_CALLS.lock()[group].extend(taken);
                    fed.push(group);
                }
            }
            !fed.is_empty()
        };
        client.wait_until(is_there, None, false)
    });
    Ok((waited != Waited::Closed && !client.is_closed()).then_some(fed))
}

/// The calls that were taken for the event loop of a concurrency group, which runs on this thread.
#[pyfunction]
pub fn group_calls(py: Python<'_>, group: usize) -> PyResult<Vec<LoopItem<'_>>> {
    let client = client()?;
    let actor = ACTOR.lock().as_ref().map(|actor| actor.clone_ref(py));
    let actor = actor.unwrap_or_else(|| py.None()).into_bound(py);
    let taken = std::mem::take(&mut GROUP_CALLS.lock()[group]);
    let items = taken.into_iter().filter_map(|incoming| prepare(py, &client, &actor, incoming)).collect();
    group_call_ended(&client);
    Ok(items)
}

/// A call in the event loop has ended: wakes the thread that feeds the groups, if there are any.
pub fn wake_groups(client: &Client) {
    if !GROUP_CALLS.lock().is_empty() {
        group_call_ended(client);
    }
}

/// After a call of a concurrency group: sends its reply, and wakes the thread that feeds the groups.
fn group_call_ended(client: &Client) {
    client.flush_now();
    client.notify();
}

/// In local mode: the calls of asyncio actors that wait for the event loop.
#[pyfunction]
pub fn local_calls(py: Python<'_>) -> PyResult<Vec<LoopItem<'_>>> {
    let client = client()?;
    let mut items = Vec::new();
    for incoming in crate::local::take_loop_calls() {
        let TaskKind::Method(actor) = incoming.push.spec.kind() else { continue };
        let actor = crate::local::instance(py, actor).unwrap_or_else(|| py.None()).into_bound(py);
        items.extend(prepare(py, &client, &actor, incoming));
    }
    Ok(items)
}

/// Prepares a call for the event loop. If its arguments cannot be read, reports its failure instead.
fn prepare<'py>(
    py: Python<'py>,
    client: &Arc<Client>,
    actor: &Bound<'py, PyAny>,
    incoming: Incoming,
) -> Option<LoopItem<'py>> {
    let spec = &incoming.push.spec;
    client.mapping().record_task(client.welcome.cell, spec);
    let name = spec.shown_name().as_str().to_owned();
    let prepared = method(py, actor, spec.name.as_str())
        .and_then(|method| Ok((method, decode_arguments(py, client, &incoming, Access::Shared)?)));
    match prepared {
        Ok((method, (args, kwargs))) => {
            let token = spec.task.number ^ spec.task.owner.0.rotate_left(32);
            let start = time();
            let streams = spec.stream.is_some();
            LOOP_CALLS.with_borrow_mut(|calls| {
                calls.insert(token, LoopCall { incoming, start });
            });
            Some((token, method, args, kwargs, name, streams))
        }
        Err(error) => {
            finish(client, end(py, client, &incoming, Err(error), None, 0, false));
            None
        }
    }
}

/// The failure of an actor whose constructor raised.
pub fn constructor_failure(py: Python<'_>, error: &PyErr, incoming: &Incoming) -> Failure {
    let name = incoming.push.spec.name.as_str();
    let Failure { payload, .. } = failure(py, error, name, incoming);
    Failure { code: FailureCode::ActorInit, message: name.to_owned(), payload }
}

/// Reports the end of a task that ran here.
pub fn finish(client: &Client, ended: Ended) {
    let Ended { task, returns, retry, ran, .. } = ended;
    client.step(|core, out| core.on_finished(task, returns, ran, retry, out));
}

fn loop_call_ended(py: Python<'_>, token: u64, result: PyResult<Bound<'_, PyAny>>) -> PyResult<()> {
    end_if_child(py, result.as_ref().map(|_| ()));
    let client = client()?;
    let Some(call) = LOOP_CALLS.with_borrow_mut(|calls| calls.remove(&token)) else { return Ok(()) };
    let ran = RunTime { nanos: time().since(call.start), timing: timing_from(&client, call.start) };
    let retry_on = match &result {
        Ok(_) => None,
        Err(_) => listed_exceptions(py, &client, &call.incoming.push.spec).unwrap_or(None),
    };
    finish(&client, end(py, &client, &call.incoming, result, retry_on.as_ref(), ran, false));
    Mode::of(&client).loop_call_ended(&client);
    end_line(py);
    Ok(())
}

/// A call in the event loop returned.
#[pyfunction]
pub fn call_returned(py: Python<'_>, token: u64, value: Bound<'_, PyAny>) -> PyResult<()> {
    loop_call_ended(py, token, Ok(value))
}

/// The task of a call in the event loop that streams.
fn loop_stream(token: u64) -> PyResult<(TaskId, Streaming)> {
    let found = LOOP_CALLS.with_borrow(|calls| {
        let spec = &calls.get(&token)?.incoming.push.spec;
        Some((spec.task, spec.stream?))
    });
    found.ok_or_else(session::not_started)
}

/// Whether a call in the event loop may yield its item `index`: 0 now, 1 later, 2 never.
#[pyfunction]
pub fn call_may_yield(token: u64, index: u32) -> PyResult<u8> {
    let (task, options) = loop_stream(token)?;
    Ok(match may_yield(&*client()?, task, options, index) {
        MayYield::Now => 0,
        MayYield::Later => 1,
        // The event loop cancels the coroutine.
        MayYield::Never | MayYield::Cancelled => 2,
    })
}

/// A call in the event loop yielded its item `index`.
#[pyfunction]
pub fn call_yielded(py: Python<'_>, token: u64, index: u32, value: &Bound<'_, PyAny>) -> PyResult<()> {
    end_if_child(py, Ok(()));
    send_item(py, &client()?, loop_stream(token)?.0, index, value.clone())
}

/// A call in the event loop has yielded its last item. Gives what it returns.
#[pyfunction]
pub fn call_streamed(py: Python<'_>, token: u64, count: u32) -> PyResult<Bound<'_, PyAny>> {
    let (task, options) = loop_stream(token)?;
    last_value(py, &client()?, task, options, count)
}

/// A call in the event loop raised.
#[pyfunction]
pub fn call_raised(py: Python<'_>, token: u64, error: Bound<'_, PyAny>) -> PyResult<()> {
    loop_call_ended(py, token, Err(PyErr::from_value(error)))
}

/// A call in the event loop ended the actor.
#[pyfunction]
pub fn call_exits(py: Python<'_>, token: u64, why: &str) -> PyResult<()> {
    end_if_child(py, Ok(()));
    let Some(call) = LOOP_CALLS.with_borrow_mut(|calls| calls.remove(&token)) else { return Ok(()) };
    let spec = &call.incoming.push.spec;
    leave_actor(py, &*client()?, spec.task, spec.kind(), why);
    Ok(())
}

/// In local mode: cancels a coroutine.
pub fn cancel_in_loop(py: Python<'_>, task: TaskId) {
    let token = task.number ^ task.owner.0.rotate_left(32);
    if let Err(error) = python_side::CANCEL_CALL.call(py, (token,)) {
        error.write_unraisable(py, None);
    }
}

/// Asks the main thread, or the event loop, to stop a task.
pub fn request_interrupt(py: Python<'_>, task: TaskId) -> PyResult<()> {
    INTERRUPT[0].store(task.owner.0, Ordering::Release);
    INTERRUPT[1].store(task.number, Ordering::Release);
    let token = task.number ^ task.owner.0.rotate_left(32);
    // Not in the call, which would run under the lock.
    let is_actor = ACTOR.lock().is_some();
    python_side::INTERRUPT.call(py, (token, is_actor))?;
    Ok(())
}

/// Sends the signal that is to interrupt a task to the main thread, which may be this one.
///
/// The handler of signals needs the GIL, which is held from the count to the signal: it never meets one
/// without the other.
#[pyfunction]
pub fn send_interrupt(py: Python<'_>, main_thread: libc::pthread_t) -> PyResult<()> {
    INTERRUPTS_SENT.fetch_add(1, Ordering::AcqRel);
    // SAFETY: the main thread lives as long as the process.
    unsafe { libc::pthread_kill(main_thread, libc::SIGINT) };
    py.check_signals()
}

/// Handles the signals that came while this thread ran no task: they are not for the task that begins.
///
/// Signals that are pending together merge into one. All that were sent have been handled here, so the rest
/// of the count is void.
pub fn handle_signals(py: Python<'_>) {
    if let Err(error) = py.check_signals() {
        error.write_unraisable(py, None);
    }
    INTERRUPTS_SENT.store(0, Ordering::Release);
}

/// What the signal that came is for: to stop the task that runs on this thread (true), or one that has ended
/// (false). `None`: something else has sent it, the task itself for one.
#[pyfunction]
pub fn should_interrupt() -> Option<bool> {
    let one_less = |sent: u32| sent.checked_sub(1);
    let was_sent = INTERRUPTS_SENT.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less).is_ok();
    let wanted = TaskId {
        owner: WorkerId(INTERRUPT[0].load(Ordering::Acquire)),
        number: INTERRUPT[1].load(Ordering::Acquire),
    };
    let running = session::task_id();
    if wanted.number != 0 && running == Some(wanted) {
        return Some(true);
    }
    // Between tasks there is nothing to interrupt.
    (was_sent || running.is_none()).then_some(false)
}

/// A task left a line of its output unfinished.
#[pyfunction]
pub fn line_begun() {
    LINE_BEGUN.set(true);
}

/// Ends an unfinished line of output of the task that has ended on this thread.
pub fn end_line(py: Python<'_>) {
    if !LINE_BEGUN.replace(false) {
        return;
    }
    if let Err(error) = python_side::END_LINE.call(py, ()) {
        error.write_unraisable(py, None);
    }
}

/// Cancels an interrupt that was meant for this task, which has ended.
pub fn clear_interrupt(task: TaskId) {
    if INTERRUPT[1].load(Ordering::Acquire) == task.number {
        INTERRUPT[1].store(0, Ordering::Release);
    }
}

/// A thread of this process begins to sleep. If the main thread runs no user code, this worker is idle.
pub fn on_sleep() {
    if !IS_BUSY.load(Ordering::Acquire) {
        crate::standing::show_idle();
    }
}

/// Id of the task on this thread.
#[pyfunction]
pub fn current_task() -> Option<(String, Vec<u32>)> {
    session::task().map(|current| (session::hex(current.task), current.gpus))
}

/// Display name of the task on this thread.
#[pyfunction]
pub fn current_name() -> Option<String> {
    session::task().map(|current| current.name.as_str().to_owned())
}

/// What the task on this thread calls, unless that is a method, and what that is called, whatever the call is
/// called.
#[pyfunction]
pub fn current_function(py: Python<'_>) -> Option<(Option<Py<PyAny>>, String)> {
    let current = session::task()?;
    let function = current.function.and_then(|function| crate::execute::loaded(py, function));
    Some((function, current.called.as_str().to_owned()))
}

/// Sets what runs on this thread: the event loop begins a call.
#[pyfunction]
pub fn set_current(token: Option<u64>) {
    let current = token.and_then(|token| {
        LOOP_CALLS.with_borrow(|calls| {
            let spec = &calls.get(&token)?.incoming.push.spec;
            let name = spec.shown_name().clone();
            let actor = match spec.kind() {
                TaskKind::Method(actor) => Some(actor),
                TaskKind::Task(_) | TaskKind::Creation => None,
            };
            let called = spec.name.clone();
            let (task, function) = (spec.task, spec.function());
            Some(Current { task, name, called, function, gpus: Vec::new(), actor })
        })
    });
    session::set_task(current);
}

/// Whether tasks run in this process, on the thread that submits them.
#[pyfunction]
pub fn is_local() -> bool {
    client().is_ok_and(|client| Mode::of(&client) == Mode::Local)
}

/// Whether the task on this thread was cancelled.
#[pyfunction]
pub fn is_cancelled() -> bool {
    let (Some(task), Ok(client)) = (session::task_id(), client()) else { return false };
    client.step(|core, _| core.execution().is_cancelled(task))
}

/// Shows a task its GPUs.
pub fn set_visible_gpus(py: Python<'_>, gpus: &[u32]) -> PyResult<()> {
    if gpus.is_empty() {
        return Ok(());
    }
    python_side::SHOW_GPUS.call(py, (gpus.to_vec(),))?;
    Ok(())
}

/// Threads that numeric libraries were told to use last.
static THREADS: AtomicU32 = AtomicU32::new(1);

/// Tells numeric libraries how many CPUs a task or an actor has, if the number has changed.
pub fn set_threads(py: Python<'_>, threads: Option<u32>) -> PyResult<()> {
    let threads = threads.unwrap_or(1);
    if THREADS.swap(threads, Ordering::Relaxed) != threads {
        python_side::USE_THREADS.call(py, (threads,))?;
    }
    Ok(())
}

/// The node is dead, or ends this worker.
pub fn on_session_end() {
    // An idle main thread leaves by itself; one that runs user code is not waited for.
    if !IS_BUSY.load(Ordering::Acquire) {
        return;
    }
    let is_in_call = session::task_id().is_some() && !IN_LOOP.load(Ordering::Relaxed);
    if ACTOR.lock().is_none() || is_in_call {
        end_process();
    }
    // The threads or the event loop of an actor may be idle: they leave by themselves, and the clean-up hook
    // runs.
    let later = || {
        std::thread::sleep(ACTOR_GRACE);
        end_process();
    };
    if std::thread::Builder::new().spawn(later).is_err() {
        // No more threads can be started, so only this one can end the process.
        end_process();
    }
}

/// Ends this process and what it started, at once.
pub fn end_process() {
    use rustix::process::{Signal, getpgrp, getpid, kill_process, kill_process_group};
    if getpgrp() == getpid() {
        let _ = kill_process_group(getpid(), Signal::KILL);
    }
    let _ = kill_process(getpid(), Signal::KILL);
}
