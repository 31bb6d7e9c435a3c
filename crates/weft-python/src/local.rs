//! Local mode: tasks and actors run in the process that submits them, on the thread that submits them.
//!
//! A task runs inside `.remote()`. A generator is advanced when its reader wants an item, so that one without an end
//! works. Calls of asyncio actors run in an event loop on a thread of their own (`weft._local`), because they wait for
//! each other. Arguments and results are pickled as if they went to another process.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rustc_hash::FxHashMap;
use weft_runtime::client::{Client, time};
use weft_runtime::protocol::execution::Incoming;
use weft_runtime::wire::TaskId;
use weft_runtime::wire::message::{Failure, FailureCode, TaskKind};

use crate::args::decode_arguments;
use crate::execute::{Callee, Ended, end, failure, load, method, run};
use crate::generator::{MayYield, last_value, may_yield, send_item};
use crate::session::{self, Current};

/// An actor of this process.
struct LocalActor {
    instance: Py<PyAny>,
    options: Py<PyAny>,
    is_async: bool,
}

/// A generator that waits for its reader.
struct Suspended {
    incoming: Incoming,
    current: Current,
    items: Py<PyAny>,
    count: u32,
}

static ACTORS: Mutex<Option<FxHashMap<TaskId, LocalActor>>> = Mutex::new(None);
static STREAMS: Mutex<Vec<Suspended>> = Mutex::new(Vec::new());
/// Calls of asyncio actors on their way to the event loop.
static LOOP_QUEUE: Mutex<VecDeque<Incoming>> = Mutex::new(VecDeque::new());

/// Runs everything that can run now.
///
/// # Errors
/// What a signal handler raised.
pub fn run_queued(py: Python<'_>, client: &Arc<Client>) -> PyResult<()> {
    while let Some(incoming) = client.step(|core, _| core.next_execution()) {
        let before = session::task();
        run_one(py, client, incoming);
        session::set_task(before);
        client.notify();
        py.check_signals()?;
    }
    // Generators whose reader has left end here.
    while advance(py, client, |stream| is_stopped(client, stream)) {}
    Ok(())
}

fn run_one(py: Python<'_>, client: &Arc<Client>, incoming: Incoming) {
    let spec = &incoming.push.spec;
    let actor = match spec.kind {
        TaskKind::Creation => return construct(py, client, incoming),
        TaskKind::Task(_) => None,
        TaskKind::Method(actor) => Some(actor),
    };
    let found = actor.and_then(|id| {
        ACTORS.lock().as_ref()?.get(&id).map(|actor| (actor.instance.clone_ref(py), actor.is_async))
    });
    if let Some((_, true)) = &found {
        LOOP_QUEUE.lock().push_back(incoming);
        if let Err(error) = py.import("weft._local").and_then(|module| module.call_method0("wake")) {
            error.write_unraisable(py, None);
        }
        return;
    }
    let instance = found.map_or_else(|| py.None(), |(instance, _)| instance).into_bound(py);
    let callee = if actor.is_some() { Callee::Actor(&instance) } else { Callee::Function };
    if spec.stream.is_some() {
        return begin_stream(py, client, incoming, &callee);
    }
    finish(client, run(py, client, incoming, &callee));
}

fn finish(client: &Client, ended: Ended) {
    let Ended { task, returns, retry, ran, .. } = ended;
    client.step(|core, out| core.on_finished(task, returns, ran, retry, out));
}

fn current_of(incoming: &Incoming) -> Current {
    let spec = &incoming.push.spec;
    Current {
        task: spec.task,
        name: spec.title.as_ref().unwrap_or(&spec.name).clone(),
        function: spec.function,
        gpus: incoming.push.gpus.clone(),
        actor: match spec.kind {
            TaskKind::Method(actor) => Some(actor),
            TaskKind::Creation => Some(spec.task),
            TaskKind::Task(_) => None,
        },
    }
}

fn construct(py: Python<'_>, client: &Arc<Client>, incoming: Incoming) {
    let spec = &incoming.push.spec;
    session::set_task(Some(current_of(&incoming)));
    let made = (|| {
        let (class, options) = load(py, client, spec.function)?;
        let (args, kwargs) = decode_arguments(py, client, &incoming)?;
        let instance = class.call(args, kwargs.as_ref())?;
        let is_async: bool =
            py.import("weft.actor")?.call_method1("is_async", (instance.get_type(),))?.extract()?;
        Ok::<_, PyErr>(LocalActor { instance: instance.unbind(), options: options.unbind(), is_async })
    })();
    let failure = match made {
        Ok(actor) => {
            ACTORS.lock().get_or_insert_default().insert(spec.task, actor);
            None
        }
        Err(error) => {
            let Failure { payload, .. } = failure(py, &error, spec.name.as_str(), &incoming);
            let message = spec.name.as_str().to_owned();
            Some(Failure { code: FailureCode::ActorInit, message, payload })
        }
    };
    client.step(|core, out| core.on_constructed(spec.task, failure, out));
}

fn begin_stream<'py>(py: Python<'py>, client: &Arc<Client>, incoming: Incoming, callee: &Callee<'py>) {
    let current = current_of(&incoming);
    session::set_task(Some(current.clone()));
    let spec = &incoming.push.spec;
    let items = (|| {
        let target = match callee {
            Callee::Function => load(py, client, spec.function)?.0,
            Callee::Actor(actor) => method(py, actor, spec.name.as_str())?,
        };
        let (args, kwargs) = decode_arguments(py, client, &incoming)?;
        Ok::<_, PyErr>(target.call(args, kwargs.as_ref())?.try_iter()?.into_any().unbind())
    })();
    match items {
        Ok(items) => STREAMS.lock().push(Suspended { incoming, current, items, count: 0 }),
        Err(error) => finish(client, end(py, client, &incoming, Err(error), None, 0)),
    }
}

fn is_stopped(client: &Client, stream: &Suspended) -> bool {
    state_of(client, stream) == MayYield::Never
}

fn state_of(client: &Client, stream: &Suspended) -> MayYield {
    let spec = &stream.incoming.push.spec;
    may_yield(client, spec.task, spec.stream.unwrap_or_default(), stream.count + 1)
}

/// Advances a generator by one item: that of this task, or the first that may go on.
pub fn advance_stream(py: Python<'_>, client: &Arc<Client>, task: Option<TaskId>) -> bool {
    advance(py, client, |stream| match task {
        Some(task) => stream.incoming.push.spec.task == task,
        None => state_of(client, stream) != MayYield::Later,
    })
}

fn advance(py: Python<'_>, client: &Arc<Client>, which: impl Fn(&Suspended) -> bool) -> bool {
    // It is taken out while it runs: it may itself wait for others.
    let found = {
        let mut streams = STREAMS.lock();
        streams.iter().position(which).map(|at| streams.remove(at))
    };
    let Some(mut stream) = found else { return false };
    let before = session::task();
    session::set_task(Some(stream.current.clone()));
    let start = time();
    let is_stopped = is_stopped(client, &stream);
    let items = stream.items.bind(py);
    let spec = &stream.incoming.push.spec;
    let options = spec.stream.unwrap_or_default();
    let next = if is_stopped {
        let closed = if items.hasattr("close").unwrap_or(false) {
            items.call_method0("close")
        } else {
            Ok(items.clone())
        };
        closed.map(|_| None)
    } else {
        items.try_iter().and_then(|mut items| items.next().transpose())
    };
    let sent = next.and_then(|item| match item {
        Some(item) => send_item(py, client, spec.task, stream.count + 1, &item).map(|()| None),
        None => last_value(py, client, spec.task, options, stream.count).map(Some),
    });
    match sent {
        Ok(None) => {
            stream.count += 1;
            STREAMS.lock().push(stream);
        }
        Ok(Some(value)) => {
            finish(client, end(py, client, &stream.incoming, Ok(value), None, time().since(start).max(1)));
        }
        Err(error) => {
            finish(client, end(py, client, &stream.incoming, Err(error), None, time().since(start).max(1)));
        }
    }
    session::set_task(before);
    client.notify();
    true
}

/// Takes the calls that wait for the event loop.
pub fn take_loop_calls() -> Vec<Incoming> {
    LOOP_QUEUE.lock().drain(..).collect()
}

/// The instance of an actor of this process.
pub fn instance(py: Python<'_>, actor: TaskId) -> Option<Py<PyAny>> {
    ACTORS.lock().as_ref()?.get(&actor).map(|actor| actor.instance.clone_ref(py))
}

/// An actor ended: its clean-up hook runs if that was in order.
pub fn on_actor_end(py: Python<'_>, actor: TaskId, in_order: bool) {
    let Some(actor) = ACTORS.lock().as_mut().and_then(|actors| actors.remove(&actor)) else { return };
    if in_order {
        let cleaned = py
            .import("weft._worker")
            .and_then(|module| module.call_method1("clean_up", (actor.instance.bind(py),)));
        if let Err(error) = cleaned {
            error.write_unraisable(py, None);
        }
    }
}

/// The session is over: its actors end in order, its generators are closed.
pub fn end_all(py: Python<'_>) {
    let streams = std::mem::take(&mut *STREAMS.lock());
    drop(streams);
    LOOP_QUEUE.lock().clear();
    let actors: Vec<TaskId> =
        ACTORS.lock().as_ref().map(|actors| actors.keys().copied().collect()).unwrap_or_default();
    for actor in actors {
        on_actor_end(py, actor, true);
    }
}

/// Id, class and options of an actor.
type ActorFacts<'py> = (String, Bound<'py, PyAny>, Bound<'py, PyAny>);

/// In local mode: id, class and options of the actor whose code runs on this thread.
#[pyfunction]
pub fn local_actor(py: Python<'_>) -> PyResult<Option<ActorFacts<'_>>> {
    let Some(id) = session::task().and_then(|current| current.actor) else { return Ok(None) };
    let actors = ACTORS.lock();
    let Some(actor) = actors.as_ref().and_then(|actors| actors.get(&id)) else {
        return Ok(Some((session::hex(id), py.None().into_bound(py), PyDict::new(py).into_any())));
    };
    let class = actor.instance.bind(py).get_type().into_any();
    Ok(Some((session::hex(id), class, actor.options.bind(py).clone())))
}
