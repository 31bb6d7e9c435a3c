//! Running one task: arguments in, the call, returns out.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use pyo3::exceptions::{PyKeyboardInterrupt, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use rustc_hash::FxHashMap;
use sooner_runtime::client::{Client, time};
use sooner_runtime::protocol::execution::{Incoming, Met};
use sooner_runtime::protocol::tasks::Ran;
use sooner_runtime::protocol::time::Instant;
use sooner_runtime::wire::message::{
    Define, Failure, FailureCode, Outcome, Return, TaskKind, TaskSpec, Timing,
};
use sooner_runtime::wire::{Blob, FunctionId, TaskId};

use crate::args::decode_arguments;
use crate::generator::drain;
use crate::group::Membership;
use crate::object_ref::{ObjectRef, deserialising};
use crate::packing::pack;
use crate::session::{self, Current};

/// A function or class, and what its options say beside.
struct Loaded {
    target: Py<PyAny>,
    extra: Py<PyAny>,
}

thread_local! {
    static FUNCTIONS: RefCell<FxHashMap<FunctionId, Loaded>> = RefCell::default();
}

/// A task that has ended.
pub struct Ended {
    pub task: TaskId,
    pub returns: Vec<Return>,
    pub retry: bool,
    pub ran: Ran,
    /// References inside the returns stay alive until the caller is registered for them.
    _handles: Vec<Py<ObjectRef>>,
}

/// Loads code that was defined here.
///
/// # Errors
/// What unpickling raised, for instance that a module is missing.
pub fn load<'py>(
    py: Python<'py>,
    client: &Arc<Client>,
    function: FunctionId,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let known = FUNCTIONS.with_borrow(|functions| {
        let loaded = functions.get(&function)?;
        Some((loaded.target.clone_ref(py), loaded.extra.clone_ref(py)))
    });
    if let Some((target, extra)) = known {
        return Ok((target.into_bound(py), extra.into_bound(py)));
    }
    let (define, met) = client
        .step(|core, _| {
            let define = core.function(function)?;
            let table = core.ownership_mut();
            let met: Vec<Met> = define.references.iter().map(|id| (*id, table.meet(*id))).collect();
            Some((define, met))
        })
        .ok_or_else(|| {
            PyValueError::new_err("the code of this task never came: this is a defect of sooner")
        })?;
    let pair = unpickle(py, client, &define, &met)?;
    let (target, extra): (Bound<'py, PyAny>, Bound<'py, PyAny>) = pair.extract()?;
    let loaded = Loaded { target: target.clone().unbind(), extra: extra.clone().unbind() };
    FUNCTIONS.with_borrow_mut(|functions| functions.insert(function, loaded));
    Ok((target, extra))
}

fn unpickle<'py>(
    py: Python<'py>,
    client: &Arc<Client>,
    define: &Define,
    met: &[Met],
) -> PyResult<Bound<'py, PyAny>> {
    let code = PyBytes::new(py, define.code.as_slice());
    deserialising(client, Rc::new(met.to_vec()), || py.import("pickle")?.call_method1("loads", (code,)))
}

/// What is called for a task.
pub enum Callee<'py> {
    /// The function of the task.
    Function,
    /// A method of this actor.
    Actor(&'py Bound<'py, PyAny>),
}

/// Runs a task to its end. Never raises: what goes wrong becomes the task's outcome.
pub fn run<'py>(py: Python<'py>, client: &Arc<Client>, incoming: Incoming, callee: &Callee<'py>) -> Ended {
    let spec = &incoming.push.spec;
    let start = time();
    let _group = Membership::begin(spec);
    client.mapping().note_task(client.welcome.cell, spec);
    session::set_task(Some(Current {
        task: spec.task,
        name: spec.title.as_ref().unwrap_or(&spec.name).clone(),
        function: spec.function,
        gpus: incoming.push.gpus.clone(),
        actor: local_actor_of(client, spec.kind),
    }));
    let mut retry_on = None;
    let mut timing = timing_from(client, start);
    let is_long = takes_long(&incoming, callee);
    let result = (|| {
        if !client.is_local() {
            crate::worker::set_visible_gpus(py, &incoming.push.gpus)?;
        }
        let target = match callee {
            Callee::Function => {
                let (function, retried) = load(py, client, spec.function)?;
                retry_on = Some(retried);
                function
            }
            Callee::Actor(actor) => {
                retry_on = listed_exceptions(py, client, spec)?;
                method(py, actor, spec.name.as_str())?
            }
        };
        let (args, kwargs) = decode_arguments(py, client, &incoming)?;
        if let (Some(timing), true) = (&mut timing, is_long) {
            timing.deserialise = time().since(start);
        }
        let value = target.call(args, kwargs.as_ref())?;
        if spec.stream.is_some() { drain(py, client, &incoming, &value) } else { Ok(value) }
    })();
    let exit = result.as_ref().err().and_then(|error| actor_exit(py, error));
    let ran = Ran { nanos: time().since(start), timing };
    let ended = end(py, client, &incoming, result, retry_on.as_ref(), ran);
    if let Some(why) = exit {
        crate::worker::leave_actor(py, client, spec.task, spec.kind, &why);
        if !client.is_local() {
            crate::worker::wait_for_end(py, client);
        }
    }
    crate::worker::clear_interrupt(spec.task);
    crate::worker::end_line(py);
    session::set_task(None);
    ended
}

/// Bytes up to which loading or storing takes about as long as a look at the clock: not measured.
const SHORT_BYTES: usize = 512;

/// When a task began, if anybody wants to know.
pub fn timing_from(client: &Client, start: Instant) -> Option<Timing> {
    client.records().then_some(Timing { started: start.0, deserialise: 0, store: 0 })
}

fn takes_long(incoming: &Incoming, callee: &Callee<'_>) -> bool {
    let push = &incoming.push;
    let is_new = || match callee {
        Callee::Function => FUNCTIONS.with_borrow(|known| !known.contains_key(&push.spec.function)),
        Callee::Actor(_) => false,
    };
    push.spec.arguments.len() > SHORT_BYTES || !push.dependencies.is_empty() || is_new()
}

fn took_long(value: &Return) -> bool {
    match &value.outcome {
        Outcome::Inline(bytes) => bytes.len() > SHORT_BYTES,
        Outcome::Stored(_) | Outcome::Remote(_) | Outcome::Failed(_) => true,
    }
}

fn local_actor_of(client: &Client, kind: TaskKind) -> Option<TaskId> {
    match kind {
        TaskKind::Method(actor) if client.is_local() => Some(actor),
        _ => None,
    }
}

/// The exceptions that a call of an actor wants retried, if it has a list of them.
///
/// # Errors
/// When the list cannot be read.
pub fn listed_exceptions<'py>(
    py: Python<'py>,
    client: &Arc<Client>,
    spec: &TaskSpec,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    if spec.function == FunctionId(0) {
        Ok(None)
    } else {
        load(py, client, spec.function).map(|(_, list)| Some(list))
    }
}

/// Why the actor ends, if that is what the exception means.
pub fn actor_exit(py: Python<'_>, error: &PyErr) -> Option<String> {
    let kind = py.import("sooner._worker").and_then(|module| module.getattr("ActorExit")).ok()?;
    error.is_instance(py, &kind).then(|| error.value(py).to_string())
}

/// A method of an actor, or one of the built-in ones.
pub fn method<'py>(py: Python<'py>, actor: &Bound<'py, PyAny>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    if name.starts_with("__ray_") || name.starts_with("__sooner_") {
        return py.import("sooner._worker")?.call_method1("builtin_method", (actor, name));
    }
    actor.getattr(name)
}

/// Turns the result of a call into the task's end.
pub fn end(
    py: Python<'_>,
    client: &Arc<Client>,
    incoming: &Incoming,
    result: PyResult<Bound<'_, PyAny>>,
    retry_on: Option<&Bound<'_, PyAny>>,
    ran: impl Into<Ran>,
) -> Ended {
    let mut ran = ran.into();
    let spec = &incoming.push.spec;
    let mut handles = Vec::new();
    let mut retry = false;
    let packed = result.and_then(|value| pack(py, client, spec.returns, &value, &mut handles));
    let returns = match packed {
        Ok(returns) => returns,
        Err(error) => {
            retry = spec.retry_exceptions && is_retried(&error, retry_on, py);
            let is_cancelled = client.step(|core, _| core.execution().is_cancelled(spec.task));
            let failure = if is_cancelled && is_interrupt(py, &error) {
                Failure::new(
                    FailureCode::Cancelled,
                    format!("{}() was cancelled while it ran", spec.name.as_str()),
                )
            } else {
                failure(py, &error, spec.name.as_str(), incoming)
            };
            vec![Return { outcome: Outcome::Failed(Box::new(failure)), contained: Vec::new() }]
        }
    };
    if let Some(timing) = &mut ran.timing
        && returns.iter().any(took_long)
    {
        timing.store = time().0.saturating_sub(timing.started + ran.nanos);
    }
    Ended { task: spec.task, returns, retry, ran, _handles: handles }
}

fn is_interrupt(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyKeyboardInterrupt>(py)
        || error
            .get_type(py)
            .name()
            .is_ok_and(|name| name == "CancelledError" || name.to_string().contains("TaskCancelledError"))
}

fn is_retried(error: &PyErr, retry_on: Option<&Bound<'_, PyAny>>, py: Python<'_>) -> bool {
    match retry_on {
        Some(classes) if !classes.is_none() => {
            classes.cast::<PyTuple>().is_ok_and(|classes| error.matches(py, classes).unwrap_or(false))
        }
        Some(_) | None => true,
    }
}

/// The failure of a task whose code raised.
pub fn failure(py: Python<'_>, error: &PyErr, name: &str, incoming: &Incoming) -> Failure {
    let actor = match incoming.push.spec.kind {
        TaskKind::Method(actor) => Some(session::hex(actor)),
        TaskKind::Creation => Some(session::hex(incoming.push.spec.task)),
        TaskKind::Task(_) => None,
    };
    let title = crate::worker::actor_title(py);
    if let Some(traceback) = error.traceback(py) {
        // Exceptions that were raised by Rust code or passed through it may not carry theirs yet.
        let _ = error.value(py).setattr("__traceback__", traceback);
    }
    let packed = py.import("sooner._errors").and_then(|errors| {
        let pid = std::process::id();
        let sizes = crate::args::argument_sizes(incoming).unwrap_or_default();
        let site = incoming.push.spec.site.as_ref().map(|site| site.as_str().to_owned());
        let notes = errors.call_method1("call_notes", (sizes, site))?;
        errors.call_method1("pack_task_error", (error.value(py), name, pid, title, actor, notes))
    });
    let payload = packed.and_then(|packed| Ok(Blob::from(packed.cast::<PyBytes>()?.as_bytes())));
    Failure { code: FailureCode::Task, message: String::new(), payload: payload.ok() }
}
