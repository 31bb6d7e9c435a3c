//! Running one task: arguments in, the call, returns out.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::{PyKeyboardInterrupt, PySystemExit, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple, PyType};
use rustc_hash::FxHashMap;
use sooner_runtime::client::{Client, time};
use sooner_runtime::protocol::time::Instant;
use sooner_runtime::protocol::worker::execution::{Incoming, Met};
use sooner_runtime::protocol::worker::tasks::RunTime;
use sooner_runtime::wire::message::{Failure, FailureCode, Outcome, Return, TaskKind, TaskSpec, Timing};
use sooner_runtime::wire::{Blob, FunctionId, TaskId};

use crate::args::decode_arguments;
use crate::following::{State, follow, is_followed, split};
use crate::generator::drain;
use crate::group::Membership;
use crate::mode::Mode;
use crate::object_ref::{ObjectRef, deserialising};
use crate::packing::pack;
use crate::python_side;
use crate::session::{self, Current};
use crate::values::Access;

/// A function or class, and the options that workers need.
pub struct Loaded {
    pub target: Py<PyAny>,
    pub extra: Py<PyAny>,
    /// Whose memory the arrays among its arguments are: this process's for calls that stand for those of the
    /// standard library.
    pub access: Access,
    /// The program's, when the code was submitted.
    state: State,
}

impl Loaded {
    fn clone_ref(&self, py: Python<'_>) -> Self {
        Self {
            target: self.target.clone_ref(py),
            extra: self.extra.clone_ref(py),
            access: self.access,
            state: self.state.clone(),
        }
    }
}

/// Whether the calls of the actor in this process may write to arrays among their arguments.
static ACTOR_TAKES_COPIES: AtomicBool = AtomicBool::new(false);

/// Whether arrays among what a call of the standard library's kind on this thread returns are its receiver's
/// own.
#[pyfunction]
pub fn gives_away() -> bool {
    GIVES_AWAY.get()
}

/// An actor whose class says so takes copies of arrays.
pub fn set_actor_takes_copies(class: &Bound<'_, PyAny>) {
    ACTOR_TAKES_COPIES.store(takes_copies(class), Ordering::Relaxed);
}

/// Whether the actor of this process takes copies.
#[inline]
pub fn process_takes_copies() -> bool {
    ACTOR_TAKES_COPIES.load(Ordering::Relaxed)
}

/// Whether a class, or an instance of it, says that it takes copies.
pub fn takes_copies(class: &Bound<'_, PyAny>) -> bool {
    class.hasattr(intern!(class.py(), "__sooner_takes_copies__")).unwrap_or(false)
}

/// Whose memory the arrays among the arguments of an actor's calls are.
pub fn actor_access(client: &Client, actor: &Bound<'_, PyAny>) -> Access {
    if Mode::of(client).takes_copies(actor) { Access::Private } else { Access::Shared }
}

/// A class, and its attributes under the names of methods called so far.
type MethodsOf = (Py<PyType>, FxHashMap<String, Py<PyAny>>);

thread_local! {
    static GIVES_AWAY: Cell<bool> = const { Cell::new(false) };
    static FUNCTIONS: RefCell<FxHashMap<FunctionId, Loaded>> = RefCell::default();
    /// The methods, by name, of the class of the actor on this thread.
    static METHODS: RefCell<Option<MethodsOf>> = RefCell::default();
}

/// A task that has ended.
pub struct Ended {
    pub task: TaskId,
    pub returns: Vec<Return>,
    pub retry: bool,
    pub ran: RunTime,
    /// In local mode: the `KeyboardInterrupt` that ended the task. It is the program's, since the task ran
    /// inside one of its calls.
    pub interrupt: Option<PyErr>,
    /// References inside the returns stay alive until the caller is registered for them.
    _handles: Vec<Py<ObjectRef>>,
}

/// Loads code that was defined in this process.
///
/// `follows`: the code is to run, so this worker first takes over the state of the program at its submission.
///
/// # Errors
/// What unpickling raised, for instance that a module is missing.
pub fn load(py: Python<'_>, client: &Arc<Client>, function: FunctionId, follows: bool) -> PyResult<Loaded> {
    let follows = follows && Mode::of(client).follows_program();
    if let Some(known) =
        FUNCTIONS.with_borrow(|functions| functions.get(&function).map(|known| known.clone_ref(py)))
    {
        if follows && !is_followed(&known.state) {
            follow(py, &known.state)?;
        }
        return Ok(known);
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
    let (state, code) = split(define.code.as_slice());
    if follows && !is_followed(&state) {
        follow(py, &state)?;
    }
    let (target, extra, copies) = unpickle(py, client, code, &met)?.extract()?;
    let access = if copies { Access::Private } else { Access::Shared };
    let loaded = Loaded { target, extra, access, state };
    FUNCTIONS.with_borrow_mut(|functions| functions.insert(function, loaded.clone_ref(py)));
    Ok(loaded)
}

/// The session has ended: functions and classes that were loaded on this thread go, and with them the
/// references in their closures, which would keep the memory of the session.
pub fn forget_functions() {
    // Their end may run code that looks here.
    drop((FUNCTIONS.take(), METHODS.take()));
}

/// The code that was loaded on this thread under an id.
pub fn loaded(py: Python<'_>, function: FunctionId) -> Option<Py<PyAny>> {
    FUNCTIONS.with_borrow(|functions| functions.get(&function).map(|known| known.target.clone_ref(py)))
}

fn unpickle<'py>(
    py: Python<'py>,
    client: &Arc<Client>,
    code: &[u8],
    met: &[Met],
) -> PyResult<Bound<'py, PyAny>> {
    let code = PyBytes::new(py, code);
    deserialising(client, Rc::new(met.to_vec()), || py.import("pickle")?.call_method1("loads", (code,)))
}

/// What is called for a task.
pub enum Callee<'py> {
    /// The function of the task.
    Function(FunctionId),
    /// A method of this actor.
    Actor(&'py Bound<'py, PyAny>),
}

/// Runs a task to its end. Never raises: what goes wrong becomes the task's outcome.
pub fn run<'py>(py: Python<'py>, client: &Arc<Client>, incoming: Incoming, callee: &Callee<'py>) -> Ended {
    let spec = &incoming.push.spec;
    let start = time();
    let _group = Membership::begin(spec);
    client.mapping().record_task(client.welcome.cell, spec);
    let mode = Mode::of(client);
    mode.before_task(py);
    session::set_task(Some(Current {
        task: spec.task,
        name: spec.shown_name().clone(),
        called: spec.name.clone(),
        function: spec.function(),
        gpus: incoming.push.gpus.clone(),
        actor: mode.actor_of(spec.kind()),
    }));
    crate::standing::show(&spec.name);
    let mut retry_on = None;
    let mut is_standard = false;
    let mut owns_arrays = false;
    let mut timing = timing_from(client, start);
    let is_long = takes_long(&incoming, callee);
    let result = (|| {
        mode.fit_process(py, &incoming.push)?;
        let (target, access) = match callee {
            Callee::Function(function) => {
                let function = load(py, client, *function, true)?;
                retry_on = Some(function.extra.into_bound(py));
                is_standard = function.access == Access::Private;
                (function.target.into_bound(py), function.access)
            }
            Callee::Actor(actor) => {
                retry_on = listed_exceptions(py, client, spec)?;
                (method(py, actor, spec.name.as_str())?, actor_access(client, actor))
            }
        };
        let (args, kwargs) = decode_arguments(py, client, &incoming, access)?;
        owns_arrays = access == Access::Private;
        if let (Some(timing), true) = (&mut timing, is_long) {
            timing.deserialise = time().since(start);
        }
        let value = target.call(args, kwargs.as_ref())?;
        if spec.stream.is_some() { drain(py, client, &incoming, &value) } else { Ok(value) }
    })();
    crate::worker::end_if_child(py, result.as_ref().map(|_| ()));
    let exit = result.as_ref().err().and_then(|error| leaving(py, client, error, spec.kind(), is_standard));
    let ran = RunTime { nanos: time().since(start), timing };
    GIVES_AWAY.set(owns_arrays);
    let ended = end(py, client, &incoming, result, retry_on.as_ref(), ran, is_standard);
    GIVES_AWAY.set(false);
    if let Some(why) = exit {
        crate::worker::leave_actor(py, client, spec.task, spec.kind(), &why);
        mode.after_leaving(py, client);
    }
    crate::worker::clear_interrupt(spec.task);
    crate::lending::on_task_end(py, client);
    crate::worker::end_line(py);
    crate::standing::mend_text_streams(py);
    session::set_task(None);
    ended
}

/// Up to this size (bytes), loading or storing takes about as long as reading the clock: not measured.
const SHORT_BYTES: usize = 512;

/// Timing of a task begun at `start`, if tasks are recorded.
pub fn timing_from(client: &Client, start: Instant) -> Option<Timing> {
    client.records().then_some(Timing { started: start.0, deserialise: 0, store: 0 })
}

fn takes_long(incoming: &Incoming, callee: &Callee<'_>) -> bool {
    let push = &incoming.push;
    let is_new = || match callee {
        Callee::Function(function) => FUNCTIONS.with_borrow(|known| !known.contains_key(function)),
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

/// The exceptions that a call of an actor wants retried, if it has a list of them.
///
/// # Errors
/// When the list cannot be read.
pub fn listed_exceptions<'py>(
    py: Python<'py>,
    client: &Arc<Client>,
    spec: &TaskSpec,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    match spec.method().and_then(|call| call.retry_on) {
        None => Ok(None),
        Some(list) => load(py, client, list, false).map(|list| Some(list.extra.into_bound(py))),
    }
}

/// Why the actor ends, if the exception ends it.
pub fn actor_exit(py: Python<'_>, error: &PyErr) -> Option<String> {
    let kind = python_side::ACTOR_EXIT.get(py).ok()?;
    error.is_instance(py, &kind).then(|| error.value(py).to_string())
}

/// Why the actor ends, if the exception ends it. A worker whose task calls `sys.exit()` ends at once; in a
/// call that stands for one of the standard library's executors, `SystemExit` is an exception like any other.
fn leaving(
    py: Python<'_>,
    client: &Arc<Client>,
    error: &PyErr,
    kind: TaskKind,
    is_standard: bool,
) -> Option<String> {
    if is_standard || !error.is_instance_of::<PySystemExit>(py) {
        return actor_exit(py, error);
    }
    Mode::of(client).on_exit(py, error, kind)
}

/// Ends the process of a worker whose code called `sys.exit()`, unless it is an actor that ends in order:
/// then returns the reason.
pub fn exit_process(py: Python<'_>, error: &PyErr) -> Option<String> {
    let why = python_side::EXIT_PROCESS.call(py, (error.value(py),)).and_then(|why| why.extract());
    why.unwrap_or_else(|error| {
        error.print(py);
        crate::worker::end_process();
        None
    })
}

/// A method of an actor, or a built-in one. It is always the class's, even if the instance has another
/// attribute of that name.
pub fn method<'py>(py: Python<'py>, actor: &Bound<'py, PyAny>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    if name.starts_with("__ray_") || name.starts_with("__sooner_") {
        return python_side::BUILTIN_METHOD.call(py, (actor, name));
    }
    let Ok(found) = actor.getattr(name) else {
        return python_side::CLASS_METHOD.call(py, (actor, name));
    };
    if is_of_class(py, actor, name, &found)? {
        return Ok(found);
    }
    python_side::CLASS_METHOD.call(py, (actor, name))
}

/// Whether an attribute of the actor is its class's method.
fn is_of_class(
    py: Python<'_>,
    actor: &Bound<'_, PyAny>,
    name: &str,
    found: &Bound<'_, PyAny>,
) -> PyResult<bool> {
    let class = actor.get_type();
    let is_it = |code: &Py<PyAny>| {
        found.is(code) || found.getattr(intern!(py, "__func__")).is_ok_and(|function| function.is(code))
    };
    // In local mode there are actors of several classes on one thread.
    let known = METHODS.with_borrow(|known| {
        let (of, codes) = known.as_ref()?;
        of.bind(py).is(&class).then(|| codes.get(name).map(|code| code.clone_ref(py))).flatten()
    });
    if let Some(code) = known {
        return Ok(is_it(&code));
    }
    let code = python_side::METHOD_CODE.call(py, (actor, name))?.unbind();
    let answer = is_it(&code);
    let before = METHODS.with_borrow_mut(|known| {
        let is_other = !known.as_ref().is_some_and(|(of, _)| of.bind(py).is(&class));
        let of_other = if is_other { known.replace((class.unbind(), FxHashMap::default())) } else { None };
        let of_name = known.as_mut().and_then(|(_, codes)| codes.insert(name.to_owned(), code));
        (of_other, of_name)
    });
    // Their end may run code that looks here.
    drop(before);
    Ok(answer)
}

/// Turns the result of a call into the task's end. `is_standard`: the call stands for one of the standard
/// library's executors, where each exception is one like any other.
pub fn end(
    py: Python<'_>,
    client: &Arc<Client>,
    incoming: &Incoming,
    result: PyResult<Bound<'_, PyAny>>,
    retry_on: Option<&Bound<'_, PyAny>>,
    ran: impl Into<RunTime>,
    is_standard: bool,
) -> Ended {
    let mut ran = ran.into();
    let spec = &incoming.push.spec;
    let mut handles = Vec::new();
    let mut retry = false;
    let mut interrupt = None;
    let packed = result.and_then(|value| pack(py, client, spec.returns, value, &mut handles));
    let returns = match packed {
        Ok(returns) => returns,
        Err(error) => {
            retry = spec.retry_exceptions && is_retried(&error, retry_on, py);
            let is_cancelled = client.step(|core, _| core.execution().is_cancelled(spec.task));
            let is_interrupted = !is_standard && error.is_instance_of::<PyKeyboardInterrupt>(py);
            let mode = Mode::of(client);
            if is_interrupted && !is_cancelled {
                interrupt = mode.program_interrupt(py, &error);
                retry &= interrupt.is_none();
            }
            let failure = if let Some(failure) = mode.exit_failure(py, &error, spec.name.as_str()) {
                failure
            } else if is_interrupted || (is_cancelled && is_interrupt(py, &error)) {
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
    Ended { task: spec.task, returns, retry, ran, interrupt, _handles: handles }
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
    let actor = match incoming.push.spec.kind() {
        TaskKind::Method(actor) => Some(session::hex(actor)),
        TaskKind::Creation => Some(session::hex(incoming.push.spec.task)),
        TaskKind::Task(_) => None,
    };
    let title = crate::worker::actor_title(py);
    if let Some(traceback) = error.traceback(py) {
        // Exceptions that were raised by Rust code or passed through it may not carry theirs yet.
        let _ = error.value(py).setattr("__traceback__", traceback);
    }
    let packed = (|| {
        let pid = std::process::id();
        let sizes = crate::args::argument_sizes(incoming).unwrap_or_default();
        let site = incoming.push.spec.site.as_ref().map(|site| site.as_str().to_owned());
        let notes = python_side::CALL_NOTES.call(py, (sizes, site))?;
        python_side::PACK_TASK_ERROR.call(py, (error.value(py), name, pid, title, actor, notes))
    })();
    let payload = packed.and_then(|packed| Ok(Blob::from(packed.cast::<PyBytes>()?.as_bytes())));
    Failure { code: FailureCode::Task, message: String::new(), payload: payload.ok() }
}
