//! Local mode: tasks and actors run in the process that submits them, on the thread that submits them.
//!
//! A task runs inside `.remote()`. A generator is advanced when its reader wants an item, so that endless
//! ones work. Calls of asyncio actors run in an event loop on a thread of their own (`sooner._engine.local`),
//! because they wait for each other. Arguments and results are pickled as if they were sent to another
//! process.
//!
//! A waiting thread does pending work meanwhile: it runs tasks whose arguments have become ready, and
//! advances generators. An awaited reference, or a future of one, has no waiting thread: one more thread
//! works for all of them ([`serve_watchers`]).
//!
//! A `KeyboardInterrupt` belongs to the program, whose call runs the task: that call raises it.
//!
//! Several threads may use this module: an actor runs on one thread at a time, and calls that other threads
//! make meanwhile wait in [`BUSY`]. Any call into Python or the client may run code of the user, so no lock
//! of this file is ever held across one.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::thread::{JoinHandle, ThreadId};

use parking_lot::Mutex;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rustc_hash::FxHashMap;
use sooner_runtime::client::{Client, Waited, time};
use sooner_runtime::protocol::time::Instant;
use sooner_runtime::protocol::worker::execution::Incoming;
use sooner_runtime::protocol::worker::ownership::Slot;
use sooner_runtime::wire::TaskId;
use sooner_runtime::wire::message::{ActorCreation, Streaming, Target, TaskKind};

use crate::args::decode_arguments;
use crate::execute::{Callee, Ended, actor_access, actor_exit, end, listed_exceptions, load, method, run};
use crate::generator::{MayYield, cancelled, close_items, last_value, may_yield, send_item};
use crate::python_side;
use crate::session::{self, Current};
use crate::values::Access;
use crate::worker::constructor_failure;

/// An actor of this process.
struct LocalActor {
    instance: Py<PyAny>,
    options: Py<PyAny>,
    is_async: bool,
}

/// A generator that waits for its reader.
struct Suspended {
    client: Arc<Client>,
    incoming: Incoming,
    current: Current,
    items: Py<PyAny>,
    /// The exceptions that are retried, if there is a list of them.
    retry_on: Option<Py<PyAny>>,
    count: u32,
}

/// The facts that decide whether a generator goes on.
#[derive(Clone, Copy)]
struct Candidate {
    task: TaskId,
    options: Streaming,
    count: u32,
    actor: Option<TaskId>,
}

/// An actor whose code runs.
struct Busy {
    actor: TaskId,
    thread: ThreadId,
    /// Calls that other threads made meanwhile.
    waiting: VecDeque<Incoming>,
}

static ACTORS: Mutex<Option<FxHashMap<TaskId, LocalActor>>> = Mutex::new(None);
static BUSY: Mutex<Vec<Busy>> = Mutex::new(Vec::new());
static STREAMS: Mutex<Vec<Suspended>> = Mutex::new(Vec::new());
/// Calls of asyncio actors on their way to the event loop.
static LOOP_QUEUE: Mutex<VecDeque<Incoming>> = Mutex::new(VecDeque::new());
/// Threads on which actors end.
static ENDERS: Mutex<Vec<JoinHandle<()>>> = Mutex::new(Vec::new());
static SERVED: Mutex<Served> = Mutex::new(Served { client: Weak::new(), watched: Vec::new() });

/// The client whose watchers have a thread that waits for them, and the slots of the objects they watch.
struct Served {
    client: Weak<Client>,
    watched: Vec<Weak<Slot>>,
}

impl Served {
    fn is_anything_open(&mut self) -> bool {
        let is_open = |slot: &Weak<Slot>| slot.upgrade().is_some_and(|slot| !slot.is_readable());
        while self.watched.pop_if(|slot| !is_open(slot)).is_some() {}
        !self.watched.is_empty()
    }
}

/// How to treat a call of an actor that is inside another call on this thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Own {
    /// It runs: the outer call made it.
    Runs,
    /// It is queued until the outer call, which is waiting, ends: its caller was not checked.
    Waits,
}

/// Whether an actor's code may run on this thread now.
enum Entry {
    /// Yes; [`leave`] must follow.
    Entered,
    /// Yes: this thread is inside a call of the actor already.
    Inside,
    /// No: another thread runs a call of the actor.
    Taken,
}

fn enter(actor: TaskId) -> Entry {
    let thread = std::thread::current().id();
    let mut busy = BUSY.lock();
    match busy.iter().find(|busy| busy.actor == actor) {
        Some(found) if found.thread == thread => Entry::Inside,
        Some(_) => Entry::Taken,
        None => {
            busy.push(Busy { actor, thread, waiting: VecDeque::new() });
            Entry::Entered
        }
    }
}

/// Queues a call for the thread that runs the actor. Gives it back if no thread does any more.
fn hand_on(actor: TaskId, incoming: Incoming) -> Option<Incoming> {
    let mut busy = BUSY.lock();
    match busy.iter_mut().find(|busy| busy.actor == actor) {
        Some(found) => {
            found.waiting.push_back(incoming);
            None
        }
        None => Some(incoming),
    }
}

/// The next queued call of the actor; if there is none, the actor is free again.
fn leave(actor: TaskId) -> Option<Incoming> {
    let mut busy = BUSY.lock();
    let at = busy.iter().position(|busy| busy.actor == actor)?;
    let next = busy[at].waiting.pop_front();
    if next.is_none() {
        busy.swap_remove(at);
    }
    next
}

fn is_taken(actor: TaskId) -> bool {
    let thread = std::thread::current().id();
    BUSY.lock().iter().any(|busy| busy.actor == actor && busy.thread != thread)
}

/// Runs everything that can run now.
///
/// # Errors
/// What a signal handler raised.
pub fn run_queued(py: Python<'_>, client: &Arc<Client>) -> PyResult<()> {
    run_ready(py, client, Own::Runs)?;
    // Generators whose reader has left, and those that were cancelled, end here.
    while advance(py, client, |state| matches!(state, MayYield::Never | MayYield::Cancelled))? {}
    Ok(())
}

/// Runs the tasks and calls that can run now.
fn run_ready(py: Python<'_>, client: &Arc<Client>, own: Own) -> PyResult<()> {
    while run_next(py, client, own)? {}
    Ok(())
}

/// Runs one task or call, if one can run now. Nothing runs for a session that is over.
fn run_next(py: Python<'_>, client: &Arc<Client>, own: Own) -> PyResult<bool> {
    if client.is_closed() {
        return Ok(false);
    }
    let Some(incoming) = client.step(|core, _| core.next_execution()) else { return Ok(false) };
    let before = session::task();
    let ran = run_one(py, client, incoming, own);
    session::set_task(before);
    client.notify();
    ran?;
    py.check_signals()?;
    Ok(true)
}

fn run_one(py: Python<'_>, client: &Arc<Client>, incoming: Incoming, own: Own) -> PyResult<()> {
    match &incoming.push.spec.target {
        Target::Class(creation) => construct(py, client, &incoming, creation),
        Target::Function(call) => {
            let callee = Callee::Function(call.function);
            run_on(py, client, incoming, &callee)
        }
        Target::Method(call) => {
            let actor = call.actor;
            run_call(py, client, actor, incoming, own)
        }
    }
}

/// Runs a call of an actor, and then those that other threads made meanwhile.
fn run_call(
    py: Python<'_>,
    client: &Arc<Client>,
    actor: TaskId,
    incoming: Incoming,
    own: Own,
) -> PyResult<()> {
    if is_async(actor) {
        LOOP_QUEUE.lock().push_back(incoming);
        if let Err(error) = python_side::LOCAL_WAKE.call(py, ()) {
            error.write_unraisable(py, None);
        }
        return Ok(());
    }
    let mut next = Some(incoming);
    let mut ran = Ok(());
    while let Some(incoming) = next.take() {
        match enter(actor) {
            Entry::Inside if own == Own::Runs => ran = run_method(py, client, actor, incoming),
            Entry::Taken | Entry::Inside => next = hand_on(actor, incoming),
            Entry::Entered => {
                ran = run_method(py, client, actor, incoming);
                // Other threads wait for these calls, also if the program is interrupted.
                ran = ran.and(run_waiting(py, client, actor));
            }
        }
    }
    ran
}

/// Runs the calls that waited for an actor that this thread has entered, and leaves it.
fn run_waiting(py: Python<'_>, client: &Arc<Client>, actor: TaskId) -> PyResult<()> {
    let mut ran = Ok(());
    while let Some(incoming) = leave(actor) {
        ran = ran.and(run_method(py, client, actor, incoming));
        client.notify();
    }
    client.notify();
    ran
}

fn run_method(py: Python<'_>, client: &Arc<Client>, actor: TaskId, incoming: Incoming) -> PyResult<()> {
    let instance = instance(py, actor).unwrap_or_else(|| py.None()).into_bound(py);
    run_on(py, client, incoming, &Callee::Actor(&instance))
}

fn run_on(py: Python<'_>, client: &Arc<Client>, incoming: Incoming, callee: &Callee<'_>) -> PyResult<()> {
    if incoming.push.spec.stream.is_some() {
        begin_stream(py, client, incoming, callee)
    } else {
        finish(client, run(py, client, incoming, callee))
    }
}

/// Reports the end of a task.
///
/// # Errors
/// The interrupt that ended it.
fn finish(client: &Client, mut ended: Ended) -> PyResult<()> {
    let interrupt = ended.interrupt.take();
    crate::worker::finish(client, ended);
    interrupt.map_or(Ok(()), Err)
}

fn is_async(actor: TaskId) -> bool {
    ACTORS.lock().as_ref().and_then(|actors| actors.get(&actor)).is_some_and(|actor| actor.is_async)
}

fn current_of(incoming: &Incoming) -> Current {
    let spec = &incoming.push.spec;
    Current {
        task: spec.task,
        name: spec.shown_name().clone(),
        called: spec.name.clone(),
        function: spec.function(),
        gpus: incoming.push.gpus.clone(),
        actor: match spec.kind() {
            TaskKind::Method(actor) => Some(actor),
            TaskKind::Creation => Some(spec.task),
            TaskKind::Task(_) => None,
        },
    }
}

fn construct(
    py: Python<'_>,
    client: &Arc<Client>,
    incoming: &Incoming,
    creation: &ActorCreation,
) -> PyResult<()> {
    let spec = &incoming.push.spec;
    session::set_task(Some(current_of(incoming)));
    let made = (|| {
        let class = load(py, client, creation.class, false)?;
        let options = class.extra;
        let class = class.target.into_bound(py);
        let access = actor_access(client, &class);
        let (args, kwargs) = decode_arguments(py, client, incoming, access)?;
        let maker = python_side::MAKER.call(py, (&class,))?;
        let instance = maker.call(args, kwargs.as_ref())?;
        let is_async: bool = python_side::IS_ASYNC.call(py, (instance.get_type(),))?.extract()?;
        Ok::<_, PyErr>(LocalActor { instance: instance.unbind(), options, is_async })
    })();
    let interrupt = made.as_ref().err().filter(|error| error.is_instance_of::<PyKeyboardInterrupt>(py));
    let interrupt = interrupt.map_or(Ok(()), |error| Err(error.clone_ref(py)));
    let failure = match made {
        Ok(actor) => {
            let before = ACTORS.lock().get_or_insert_default().insert(spec.task, actor);
            // Not under the lock: its end may run code of the user.
            drop(before);
            None
        }
        Err(error) => Some(constructor_failure(py, &error, incoming)),
    };
    client.step(|core, out| core.on_constructed(spec.task, failure, out));
    interrupt
}

fn begin_stream<'py>(
    py: Python<'py>,
    client: &Arc<Client>,
    incoming: Incoming,
    callee: &Callee<'py>,
) -> PyResult<()> {
    let current = current_of(&incoming);
    session::set_task(Some(current.clone()));
    let spec = &incoming.push.spec;
    let mut retry_on = None;
    let items = (|| {
        let target = match callee {
            Callee::Function(function) => {
                let function = load(py, client, *function, false)?;
                retry_on = Some(function.extra);
                function.target.into_bound(py)
            }
            Callee::Actor(actor) => {
                retry_on = listed_exceptions(py, client, spec)?.map(Bound::unbind);
                method(py, actor, spec.name.as_str())?
            }
        };
        let (args, kwargs) = decode_arguments(py, client, &incoming, Access::Shared)?;
        Ok::<_, PyErr>(target.call(args, kwargs.as_ref())?.try_iter()?.into_any().unbind())
    })();
    match items {
        Ok(items) => {
            suspend(Suspended { client: client.clone(), incoming, current, items, retry_on, count: 0 });
            Ok(())
        }
        Err(error) => end_stream(py, client, &incoming, Err(error), retry_on.as_ref(), time()),
    }
}

/// Keeps a generator for its reader; in a session that is over it has none.
fn suspend(stream: Suspended) {
    if !stream.client.is_closed() {
        STREAMS.lock().push(stream);
    }
}

/// Reports the end of a generator.
fn end_stream(
    py: Python<'_>,
    client: &Arc<Client>,
    incoming: &Incoming,
    result: PyResult<Bound<'_, PyAny>>,
    retry_on: Option<&Py<PyAny>>,
    start: Instant,
) -> PyResult<()> {
    let spec = &incoming.push.spec;
    if let Some(why) = result.as_ref().err().and_then(|error| actor_exit(py, error)) {
        crate::worker::leave_actor(py, client, spec.task, spec.kind(), &why);
    }
    let (retry_on, nanos) = (retry_on.map(|classes| classes.bind(py)), time().since(start).max(1));
    finish(client, end(py, client, incoming, result, retry_on, nanos, false))
}

/// The generators of this session. Those that threads left in an earlier session do not go on.
fn candidates(client: &Arc<Client>) -> Vec<Candidate> {
    let candidate = |stream: &Suspended| {
        let spec = &stream.incoming.push.spec;
        let options = spec.stream.unwrap_or_default();
        Candidate { task: spec.task, options, count: stream.count, actor: stream.current.actor }
    };
    STREAMS.lock().iter().filter(|stream| Arc::ptr_eq(&stream.client, client)).map(candidate).collect()
}

fn state_of(client: &Client, stream: &Candidate) -> MayYield {
    may_yield(client, stream.task, stream.options, stream.count + 1)
}

/// Whether a task can run now, or a generator may go on, so that [`advance_stream`] has something to do.
pub fn can_advance(client: &Arc<Client>) -> bool {
    let may_go_on = |stream: &Candidate| {
        !stream.actor.is_some_and(is_taken) && state_of(client, stream) != MayYield::Later
    };
    client.step(|core, _| core.execution().can_take()) || candidates(client).iter().any(may_go_on)
}

/// With `task`: advances its generator by one item. Without: runs one task or call, or else advances the
/// first generator that may go on. False if there is nothing to do.
///
/// A signal that interrupts this is set again, for the next check of signals.
pub fn advance_stream(py: Python<'_>, client: &Arc<Client>, task: Option<TaskId>) -> bool {
    let advanced = match task {
        Some(task) => {
            let found = candidates(client).into_iter().find(|stream| stream.task == task);
            found.map_or(Ok(false), |stream| advance_one(py, client, &stream))
        }
        None => run_next(py, client, Own::Waits)
            .and_then(|has_run| Ok(has_run || advance(py, client, |state| state != MayYield::Later)?)),
    };
    advanced.unwrap_or_else(|_interrupt| {
        if rustix::thread::gettid() == rustix::process::getpid() {
            // SAFETY: it may be called at any time; the main thread, which alone has signals, is this one.
            unsafe { pyo3::ffi::PyErr_SetInterrupt() };
        }
        true
    })
}

fn advance(py: Python<'_>, client: &Arc<Client>, which: impl Fn(MayYield) -> bool) -> PyResult<bool> {
    for stream in candidates(client) {
        if which(state_of(client, &stream)) && advance_one(py, client, &stream)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Advances a generator by one item, then runs the tasks that have become ready. False if another thread runs
/// the generator or its actor.
fn advance_one(py: Python<'_>, client: &Arc<Client>, candidate: &Candidate) -> PyResult<bool> {
    let entry = candidate.actor.map(|actor| (actor, enter(actor)));
    if matches!(entry, Some((_, Entry::Taken))) {
        return Ok(false);
    }
    // Taken out while it runs, because it may itself wait for others.
    let found = {
        let mut streams = STREAMS.lock();
        let at = streams.iter().position(|stream| stream.incoming.push.spec.task == candidate.task);
        at.map(|at| streams.remove(at))
    };
    let is_found = found.is_some();
    let mut stepped = Ok(());
    if let Some(stream) = found {
        let before = session::task();
        session::set_task(Some(stream.current.clone()));
        stepped = step_stream(py, client, stream);
        session::set_task(before);
    }
    if let Some((actor, Entry::Entered)) = entry {
        stepped = stepped.and(run_waiting(py, client, actor));
    }
    client.notify();
    stepped?;
    run_ready(py, client, Own::Waits)?;
    Ok(is_found)
}

/// Runs a generator to its next item, or to its end.
fn step_stream(py: Python<'_>, client: &Arc<Client>, mut stream: Suspended) -> PyResult<()> {
    let start = time();
    let spec = &stream.incoming.push.spec;
    let (task, options) = (spec.task, spec.stream.unwrap_or_default());
    let items = stream.items.bind(py);
    let next = match may_yield(client, task, options, stream.count + 1) {
        MayYield::Now | MayYield::Later => items.try_iter().and_then(|mut items| items.next().transpose()),
        MayYield::Never => close_items(items).map(|()| None),
        MayYield::Cancelled => close_items(items).and_then(|()| Err(cancelled())),
    };
    let sent = next.and_then(|item| match item {
        Some(item) => send_item(py, client, task, stream.count + 1, item).map(|()| None),
        None => last_value(py, client, task, options, stream.count).map(Some),
    });
    match sent.transpose() {
        None => {
            stream.count += 1;
            suspend(stream);
            Ok(())
        }
        Some(result) => end_stream(py, client, &stream.incoming, result, stream.retry_on.as_ref(), start),
    }
}

/// A future or an awaited reference watches an object: makes sure that a thread waits for it.
///
/// # Errors
/// When there can be no more threads.
pub fn serve(py: Python<'_>, client: &Arc<Client>, slot: &Arc<Slot>) -> PyResult<()> {
    let is_served = {
        let mut served = SERVED.lock();
        let is_served = Weak::as_ptr(&served.client) == Arc::as_ptr(client);
        if !is_served {
            *served = Served { client: Arc::downgrade(client), watched: Vec::new() };
        }
        served.watched.push(Arc::downgrade(slot));
        is_served
    };
    if is_served {
        client.notify();
        return Ok(());
    }
    let started = python_side::LOCAL_SERVE.call(py, ());
    if started.is_err() {
        SERVED.lock().client = Weak::new();
    }
    started.map(|_| ())
}

/// Does what watchers wait for, until the session is over.
#[pyfunction]
pub fn serve_watchers(py: Python<'_>) {
    let _inside = session::Inside::enter(py);
    let Some(client) = session::current().map(|session| session.client.clone()) else { return };
    let has_work = || SERVED.lock().is_anything_open() && can_advance(&client);
    while session::detached(py, || client.wait_until(has_work, None, false)) == Waited::Done {
        advance_stream(py, &client, None);
    }
}

/// Takes the calls that wait for the event loop.
pub fn take_loop_calls() -> Vec<Incoming> {
    LOOP_QUEUE.lock().drain(..).collect()
}

/// The instance of an actor of this process.
pub fn instance(py: Python<'_>, actor: TaskId) -> Option<Py<PyAny>> {
    ACTORS.lock().as_ref()?.get(&actor).map(|actor| actor.instance.clone_ref(py))
}

/// Removes an actor; its clean-up hook runs if it ended in order.
pub fn on_actor_end(py: Python<'_>, actor: TaskId, in_order: bool) {
    let found = ACTORS.lock().as_mut().and_then(|actors| actors.remove(&actor));
    let Some(actor) = found else { return };
    if in_order {
        let cleaned = python_side::CLEAN_UP.call(py, (actor.instance.bind(py),));
        if let Err(error) = cleaned {
            error.write_unraisable(py, None);
        }
    }
}

/// [`on_actor_end`] on a new thread: this one is the engine's and reads for all waiting threads, and the
/// actor's code may itself wait.
pub fn end_actor_soon(actor: TaskId, in_order: bool) {
    let work = move || Python::attach(|py| on_actor_end(py, actor, in_order));
    // If no thread can be started, the actor stays until the session ends.
    if let Ok(thread) = std::thread::Builder::new().name("sooner-actor-end".into()).spawn(work) {
        let mut enders = ENDERS.lock();
        enders.retain(|thread| !thread.is_finished());
        enders.push(thread);
    }
}

/// Waits until the actors that are ending have ended.
pub fn finish_endings(py: Python<'_>) {
    py.detach(|| {
        loop {
            let threads = std::mem::take(&mut *ENDERS.lock());
            if threads.is_empty() {
                return;
            }
            // A hook may end the session: its thread does not wait for itself.
            let own = std::thread::current().id();
            for thread in threads.into_iter().filter(|thread| thread.thread().id() != own) {
                let _ = thread.join();
            }
        }
    });
}

/// The session ends: its actors end in order, its generators are closed.
pub fn end_all(py: Python<'_>) {
    let streams = std::mem::take(&mut *STREAMS.lock());
    drop(streams);
    drop(take_loop_calls());
    let actors: Vec<TaskId> =
        ACTORS.lock().as_ref().map(|actors| actors.keys().copied().collect()).unwrap_or_default();
    for actor in actors {
        on_actor_end(py, actor, true);
    }
    finish_endings(py);
}

/// In a forked child: leaks the parent's tasks and objects. Another thread may have held a lock.
pub fn forget() {
    if let Some(mut actors) = ACTORS.try_lock() {
        std::mem::forget(actors.take());
    }
    if let Some(mut streams) = STREAMS.try_lock() {
        std::mem::forget(std::mem::take(&mut *streams));
    }
    if let Some(mut queue) = LOOP_QUEUE.try_lock() {
        std::mem::forget(std::mem::take(&mut *queue));
    }
    if let Some(mut busy) = BUSY.try_lock() {
        std::mem::forget(std::mem::take(&mut *busy));
    }
    if let Some(mut enders) = ENDERS.try_lock() {
        std::mem::forget(std::mem::take(&mut *enders));
    }
}

/// Id, class and options of an actor.
type ActorFacts<'py> = (String, Bound<'py, PyAny>, Bound<'py, PyAny>);

/// In local mode: id, class and options of the actor whose code runs on this thread.
#[pyfunction]
pub fn local_actor(py: Python<'_>) -> PyResult<Option<ActorFacts<'_>>> {
    let Some(id) = session::task().and_then(|current| current.actor) else { return Ok(None) };
    let found = ACTORS
        .lock()
        .as_ref()
        .and_then(|actors| actors.get(&id))
        .map(|actor| (actor.instance.clone_ref(py), actor.options.clone_ref(py)));
    let Some((instance, options)) = found else {
        return Ok(Some((session::hex(id), py.None().into_bound(py), PyDict::new(py).into_any())));
    };
    let class = instance.bind(py).get_type().into_any();
    Ok(Some((session::hex(id), class, options.into_bound(py))))
}
