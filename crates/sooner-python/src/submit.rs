//! Submitting: the callables behind `.remote(...)` of functions, classes and actor methods.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::pyclass::{PyTraverseError, PyVisit};
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use sooner_runtime::client::Client;
use sooner_runtime::protocol::worker::ActorDemand;
use sooner_runtime::protocol::worker::ownership::Slot;
use sooner_runtime::protocol::worker::tasks::Awaited;
use sooner_runtime::wire::message::{
    ActorCreation, Define, FailureCode, FunctionCall, MethodCall, Scheduling, Streaming, Target, TaskSpec,
};
use sooner_runtime::wire::{Blob, FunctionId, Name, ObjectId, ResourceSet, ShapeId, Strategy, TaskId};

use crate::args::{Arguments, encode_arguments, explain};
use crate::backlog;
use crate::following;
use crate::generator::ObjectRefGenerator;
use crate::group::{self, Placing};
use crate::mode::Mode;
use crate::object_ref::{ObjectRef, ids, serialising};
use crate::python_side;
use crate::session;

/// How many positional arguments a callable takes, for a check without `inspect`.
#[derive(Clone, Copy, FromPyObject)]
pub struct Arity {
    #[pyo3(item(0))]
    least: usize,
    #[pyo3(item(1))]
    most: usize,
    /// Whether these numbers alone decide (calls with keywords: never).
    #[pyo3(item(2))]
    is_simple: bool,
}

/// A function or class with what its workers must know, pickled once per session.
#[pyclass(frozen, module = "sooner._sooner")]
pub struct Exported {
    target: Py<PyAny>,
    name: Name,
    /// Of a function: the exception classes its options want retried. Of a class: the options its handles
    /// know.
    extra: Py<PyAny>,
    /// Whether a call has its own copies of arrays among its arguments, to be changed.
    copies: bool,
    sent: Mutex<Option<Sent>>,
}

/// The client at which the code was defined, its id there, and the version of the program's state.
type Sent = (Weak<Client>, FunctionId, u64);

#[pymethods]
impl Exported {
    #[new]
    #[pyo3(signature = (target, name, extra, copies=false))]
    fn new(target: Py<PyAny>, name: &str, extra: Py<PyAny>, copies: bool) -> Self {
        Self { target, name: Name::from(name), extra, copies, sent: Mutex::new(None) }
    }

    /// Cycles through the user's module are collected: otherwise its files would never be flushed.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.target)?;
        visit.call(&self.extra)?;
        Ok(())
    }
}

impl Exported {
    /// Makes the code known to the session: once, and again after the state of the program has changed.
    fn define(&self, py: Python<'_>, client: &Arc<Client>) -> PyResult<FunctionId> {
        let version = following::version(py);
        let mut before = None;
        if let Some((weak, function, then)) = &*self.sent.lock()
            && std::ptr::eq(weak.as_ptr(), Arc::as_ptr(client))
        {
            if *then == version {
                return Ok(*function);
            }
            before = Some(*function);
        }
        let is_worker = session::current().is_some_and(|session| session.is_worker);
        let state = following::state(py, is_worker, before.is_none())?;
        let known = before.and_then(|function| client.step(|core, _| core.function(function)));
        let (pickled, references) = match &known {
            Some(known) => (Blob::from(following::split(known.code.as_slice()).1), known.references.clone()),
            None => self.pickle(py)?,
        };
        let code = state.before(pickled.as_slice());
        let mut hasher = DefaultHasher::new();
        code.as_slice().hash(&mut hasher);
        references.hash(&mut hasher);
        let function = FunctionId(hasher.finish());
        if before != Some(function) {
            let place = self.target.bind(py).getattr("place").and_then(|place| place.extract::<String>());
            let place = place.ok().map(|place| Name::from(place.as_str()));
            let define = Define { function, name: self.name.clone(), code, references, place };
            let known = client.step(|core, _| {
                core.define(define);
                core.functions()
            });
            backlog::record_functions(py, known, self.name.as_str());
        }
        *self.sent.lock() = Some((Arc::downgrade(client), function, version));
        Ok(function)
    }

    fn pickle(&self, py: Python<'_>) -> PyResult<(Blob, Vec<ObjectId>)> {
        let mut found = Vec::new();
        let options = PyDict::new(py);
        options.set_item("protocol", 5)?;
        let code = (self.target.bind(py), self.extra.bind(py), self.copies);
        let pickled = serialising(&mut found, || python_side::DUMPS.get(py)?.call((code,), Some(&options)))
            .map_err(|error| {
            explain(py, self.target.bind(py), &error, &format!("the code of {}", self.name.as_str()))
        })?;
        Ok((Blob::from(pickled.cast::<PyBytes>()?.as_bytes()), ids(&found)))
    }
}

/// Where a task or actor runs, and how soon.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Placed {
    /// `None`: anywhere.
    placing: Option<Py<Placing>>,
    /// Runs in the placement group of its submitter, if that group wants it.
    inherits: bool,
    /// `None`: zero.
    priority: Option<i32>,
}

impl Placed {
    fn strategy(&self) -> Option<Box<Strategy>> {
        self.placing.as_ref().map(|placing| Box::new(placing.get().0.clone()))
    }
}

/// Properties of all tasks of a remote function with fixed options. `TaskTraits` of
/// `sooner._options.traits` has the same names.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct TaskTraits {
    name: String,
    resources: Vec<(String, f64)>,
    returns: u32,
    /// See [`streaming`].
    stream: Option<(u32, bool)>,
    retries: i32,
    retry_exceptions: bool,
    /// Executions of the function after which a worker ends; zero for no limit.
    max_calls: u32,
    arity: Arity,
    /// Raises `TypeError` for arguments that do not fit the signature.
    check: Py<PyAny>,
    /// Events of its tasks are recorded.
    is_recorded: bool,
    placed: Placed,
}

/// `.remote` of a remote function with fixed options.
#[pyclass(frozen, module = "sooner._sooner")]
pub struct TaskSubmitter {
    exported: Py<Exported>,
    traits: TaskTraits,
    name: Name,
    resources: ResourceSet,
    /// CPUs of a task, if it has several.
    threads: Option<u32>,
    /// Where its tasks run; `None`: anywhere.
    strategy: Option<Box<Strategy>>,
    shape: Mutex<Option<(Weak<Client>, ShapeId)>>,
}

#[pymethods]
impl TaskSubmitter {
    #[new]
    fn new(exported: Py<Exported>, mut traits: TaskTraits) -> Self {
        let resources = ResourceSet::from_amounts(std::mem::take(&mut traits.resources));
        Self {
            exported,
            name: Name::from(std::mem::take(&mut traits.name).as_str()),
            threads: resources.several_cpus(),
            resources,
            strategy: traits.placed.strategy(),
            traits,
            shape: Mutex::new(None),
        }
    }

    /// Cycles through the user's module are collected: otherwise its files would never be flushed.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.exported)?;
        visit.call(&self.traits.check)?;
        Ok(())
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.submit_after(py, Awaited::default(), args, kwargs)
    }

    /// Submits a task that waits, without a worker, until so many references have values, or too many of them
    /// have failed for that. They are among its arguments, and a repeated one counts each time.
    fn after<'py>(
        &self,
        py: Python<'py>,
        values: usize,
        refs: Vec<Py<ObjectRef>>,
        args: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.submit_after(py, Awaited::new(values, ids(&refs)), args, None)
    }
}

impl TaskSubmitter {
    fn submit_after<'py>(
        &self,
        py: Python<'py>,
        awaited: Awaited,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _inside = session::Inside::enter(py);
        check_arguments(py, self.traits.arity, &self.traits.check, args, kwargs)?;
        let client = session::client(py)?;
        let function = self.exported.get().define(py, &client)?;
        let inherited = if self.traits.placed.inherits { group::inherited().map(Box::new) } else { None };
        let shape = match &inherited {
            Some(strategy) => client.step(|core, out| core.shape_at(&self.resources, strategy, out)),
            None => self.shape(&client),
        };
        let arguments = encode_arguments(&client, args, kwargs)?;
        let target = Target::Function(FunctionCall {
            shape,
            function,
            max_calls: NonZeroU32::new(self.traits.max_calls),
            scheduling: Scheduling {
                strategy: inherited.or_else(|| self.strategy.clone()),
                priority: self.traits.placed.priority,
                threads: self.threads,
            },
        });
        let Arguments { block, dependencies, references, .. } = &arguments;
        let spec = TaskSpec {
            returns: self.traits.returns,
            dependencies: dependencies.clone(),
            references: references.clone(),
            retries: self.traits.retries,
            retry_exceptions: self.traits.retry_exceptions,
            stream: streaming(self.traits.stream),
            site: call_site(py),
            ..TaskSpec::of(client.next_task(), target, self.name.clone(), block.clone())
        };
        submit(py, &client, spec, awaited, self.traits.is_recorded)
    }

    fn shape(&self, client: &Arc<Client>) -> ShapeId {
        let mut known = self.shape.lock();
        if let Some((weak, shape)) = &*known
            && std::ptr::eq(weak.as_ptr(), Arc::as_ptr(client))
        {
            return *shape;
        }
        let shape = client.step(|core, out| match &self.strategy {
            None => core.shape(&self.resources),
            Some(strategy) => core.shape_at(&self.resources, strategy, out),
        });
        *known = Some((Arc::downgrade(client), shape));
        shape
    }
}

fn check_arguments(
    py: Python<'_>,
    arity: Arity,
    check: &Py<PyAny>,
    args: &Bound<'_, PyTuple>,
    kwargs: Option<&Bound<'_, PyDict>>,
) -> PyResult<()> {
    let count = args.len();
    if arity.is_simple && kwargs.is_none() && arity.least <= count && count <= arity.most {
        return Ok(());
    }
    check.bind(py).call(args, kwargs)?;
    Ok(())
}

/// Whether calls record their call sites.
static RECORDS_SITES: AtomicBool = AtomicBool::new(false);

/// Sets whether calls note where they are made, for errors.
#[pyfunction]
pub fn record_call_sites(records: bool) {
    RECORDS_SITES.store(records, Ordering::Relaxed);
}

/// The line that is being executed in Python.
pub fn call_site(py: Python<'_>) -> Option<Name> {
    if !RECORDS_SITES.load(Ordering::Relaxed) {
        return None;
    }
    let text: String = python_side::CALL_SITE.call(py, ()).ok()?.extract().ok()?;
    Some(Name::from(text.as_str()))
}

/// `(items that may be unread, whether all are read at the end)`
fn streaming(options: Option<(u32, bool)>) -> Option<Streaming> {
    options.map(|(backpressure, dynamic)| Streaming { backpressure, dynamic })
}

fn submit<'py>(
    py: Python<'py>,
    client: &Arc<Client>,
    spec: TaskSpec,
    awaited: Awaited,
    is_recorded: bool,
) -> PyResult<Bound<'py, PyAny>> {
    backlog::wait_for_room(py, client)?;
    let (task, returns) = (spec.task, spec.returns);
    let parent = session::task_id();
    let spec = Arc::new(spec);
    if spec.stream.is_some_and(|options| !options.dynamic) {
        let pending = client.step_submit(is_recorded, |core, out| {
            core.submit_after(awaited, spec, [Arc::new(Slot::default())], parent, out);
            core.pending_submissions()
        });
        backlog::note(py, pending);
        let reader = ObjectRefGenerator::new(task, client.clone()).ok_or_else(session::not_started)?;
        Mode::of(client).run_ready(py, client)?;
        return Ok(Bound::new(py, reader)?.into_any());
    }
    if returns == 1 {
        let slot = Arc::new(Slot::default());
        let reference = ObjectRef::new(task.object(0), slot.clone(), client.clone());
        let pending = client.step_submit(is_recorded, |core, out| {
            core.submit_after(awaited, spec, [slot], parent, out);
            core.pending_submissions()
        });
        backlog::note(py, pending);
        Mode::of(client).run_ready(py, client)?;
        return Ok(reference.into_bound(py)?.into_any());
    }
    let slots: Vec<Arc<Slot>> = (0..returns).map(|_| Arc::new(Slot::default())).collect();
    let refs = (0..)
        .zip(&slots)
        .map(|(index, slot)| ObjectRef::new(task.object(index), slot.clone(), client.clone()).into_bound(py))
        .collect::<PyResult<Vec<_>>>()?;
    let pending = client.step_submit(is_recorded, |core, out| {
        core.submit_after(awaited, spec, slots, parent, out);
        core.pending_submissions()
    });
    backlog::note(py, pending);
    Mode::of(client).run_ready(py, client)?;
    if returns == 0 {
        return Ok(py.None().into_bound(py));
    }
    Ok(PyList::new(py, refs)?.into_any())
}

/// Properties of all calls of a method with fixed options. `CallTraits` of `sooner._options.traits`
/// has the same names.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct CallTraits {
    name: String,
    title: Option<String>,
    returns: u32,
    /// See [`streaming`].
    stream: Option<(u32, bool)>,
    retries: i32,
    retry_exceptions: bool,
    /// Exception classes that are retried; `None` for all.
    retry_on: Option<Py<Exported>>,
    /// Concurrency group, by its place among the actor's; `None` for the default one.
    group: Option<u32>,
    /// The call does not wait for earlier ones.
    is_unordered: bool,
    /// Calls of this process to the actor that may be pending; negative for no limit.
    pending_max: i64,
    /// Of an actor with checkpoints: whether the effects of the call are part of its state.
    is_kept: Option<bool>,
    arity: Arity,
    /// Raises `TypeError` for arguments that do not fit the signature.
    check: Py<PyAny>,
    /// Events of its calls are recorded.
    is_recorded: bool,
}

/// `.remote` of one method of one actor.
#[pyclass(frozen, module = "sooner._sooner")]
pub struct MethodSubmitter {
    actor: Py<ObjectRef>,
    traits: CallTraits,
    name: Name,
    title: Option<Name>,
}

#[pymethods]
impl MethodSubmitter {
    #[new]
    fn new(actor: Py<ObjectRef>, mut traits: CallTraits) -> Self {
        Self {
            actor,
            name: Name::from(std::mem::take(&mut traits.name).as_str()),
            title: traits.title.take().as_deref().map(Name::from),
            traits,
        }
    }

    /// Cycles through the user's module are collected: otherwise its files would never be flushed.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.actor)?;
        visit.call(&self.traits.check)?;
        Ok(())
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _inside = session::Inside::enter(py);
        check_arguments(py, self.traits.arity, &self.traits.check, args, kwargs)?;
        let actor = self.actor.get();
        actor.check_session()?;
        let client = &actor.client;
        self.check_room(py, client, actor.id.task)?;
        let list = self.traits.retry_on.as_ref();
        let retry_on = list.map(|exported| exported.get().define(py, client)).transpose()?;
        let arguments = encode_arguments(client, args, kwargs)?;
        let target = Target::Method(MethodCall {
            actor: actor.id.task,
            retry_on,
            title: self.title.clone(),
            group: self.traits.group,
            unordered: self.traits.is_unordered,
            kept: self.traits.is_kept.filter(|_| Mode::of(client).processes_fail()),
        });
        let Arguments { block, dependencies, references, .. } = &arguments;
        let spec = TaskSpec {
            returns: self.traits.returns,
            dependencies: dependencies.clone(),
            references: references.clone(),
            retries: self.traits.retries,
            retry_exceptions: self.traits.retry_exceptions,
            stream: streaming(self.traits.stream),
            site: call_site(py),
            ..TaskSpec::of(client.next_task(), target, self.name.clone(), block.clone())
        };
        submit(py, client, spec, Awaited::default(), self.traits.is_recorded)
    }
}

impl MethodSubmitter {
    /// Refuses a call when too many are pending.
    fn check_room(&self, py: Python<'_>, client: &Client, actor: TaskId) -> PyResult<()> {
        let Ok(most) = usize::try_from(self.traits.pending_max) else { return Ok(()) };
        let pending = client.step(|core, _| core.pending_calls(actor));
        if pending < most {
            return Ok(());
        }
        let code = FailureCode::PendingCallsLimit;
        let text = format!(
            "{pending} calls to the actor are pending and max_pending_calls is {most}: get some results first, or raise the limit"
        );
        Err(crate::verbs::system_error(py, code, &text))
    }
}

/// Properties of an actor besides its class and arguments. `ActorTraits` of `sooner._options.traits` has the
/// same names.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct ActorTraits {
    title: String,
    /// Resources that must be free when it is placed.
    placement: Vec<(String, f64)>,
    /// Resources that it holds while it lives.
    lifetime: Vec<(String, f64)>,
    /// Calls at a time.
    concurrency: u32,
    /// Places per concurrency group.
    groups: Option<Vec<u32>>,
    restarts: i32,
    /// It outlives its owner.
    is_detached: bool,
    /// Calls between two checkpoints.
    checkpoint_every: Option<u32>,
    /// Namespace, name, and the description for others' handles.
    name: Option<(String, String, Vec<u8>)>,
    placed: Placed,
}

/// Creates an actor and returns the reference behind its handle.
#[pyfunction]
pub fn create_actor(
    py: Python<'_>,
    exported: &Bound<'_, Exported>,
    args: &Bound<'_, PyTuple>,
    kwargs: Option<&Bound<'_, PyDict>>,
    traits: ActorTraits,
) -> PyResult<ObjectRef> {
    let _inside = session::Inside::enter(py);
    let client = session::client(py)?;
    let class = exported.get().define(py, &client)?;
    let arguments = encode_arguments(&client, args, kwargs)?;
    let task = client.next_task();
    let slot = Arc::new(Slot::default());
    let reference = ObjectRef::new(task.object(0), slot.clone(), client.clone());
    if let Some((namespace, name, description)) = traits.name {
        // Before the name is reserved: from then on others find it, and ask this process for its handle.
        client.step(|core, _| core.announce_actor(task, slot.clone()));
        crate::control::reserve(py, &client, namespace, name, task, description)?;
    }
    let inherited = if traits.placed.inherits { group::inherited().map(Box::new) } else { None };
    let Arguments { block, dependencies, references, .. } = &arguments;
    let lifetime = ResourceSet::from_amounts(traits.lifetime);
    let target = Target::Class(ActorCreation {
        class,
        concurrency: traits.concurrency,
        groups: traits.groups.map(Vec::into_boxed_slice),
        checkpoint_every: traits.checkpoint_every,
        scheduling: Scheduling {
            strategy: inherited.or_else(|| traits.placed.strategy()),
            priority: traits.placed.priority,
            threads: lifetime.several_cpus(),
        },
    });
    let spec = TaskSpec {
        dependencies: dependencies.clone(),
        references: references.clone(),
        site: call_site(py),
        ..TaskSpec::of(task, target, Name::from(traits.title.as_str()), block.clone())
    };
    let demand = ActorDemand {
        placement: ResourceSet::from_amounts(traits.placement),
        lifetime,
        restarts: traits.restarts,
        detached: traits.is_detached,
    };
    client.step_submit(true, |core, out| core.create_actor(Arc::new(spec), slot, demand, out));
    client.flush_now();
    Mode::of(&client).run_ready(py, &client)?;
    Ok(reference)
}
