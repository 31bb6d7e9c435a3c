//! `get`, `put`, `wait`, `cancel`: the verbs on references.

use std::borrow::Cow;
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use sooner_runtime::client::{Client, time};
use sooner_runtime::protocol::worker::WorkerCore;
use sooner_runtime::protocol::worker::ownership::Place;
use sooner_runtime::wire::message::{Failure, FailureCode, Outcome, Priority};

use crate::advice;
use crate::args::{explain, put_encoded};
use crate::generator::ObjectRefGenerator;
use crate::hooks;
use crate::mode::Mode;
use crate::object_ref::ObjectRef;
use crate::python_side::{self, PythonName};
use crate::session;
use crate::unsealed;
use crate::values::{Access, Source, encode, encode_plain};
use crate::waiting::{Near, Wanted, deadline, need, wait_for, wait_for_some};

/// An exception of the system, by its code.
pub fn system_error(py: Python<'_>, code: FailureCode, message: &str) -> PyErr {
    let made = python_side::SYSTEM_ERROR.call(py, (code as u8, message));
    match made {
        Ok(error) => PyErr::from_value(error),
        Err(failure) => failure,
    }
}

/// An exception of this class of `sooner.exceptions`.
pub fn exception(py: Python<'_>, class: &PythonName, text: &str) -> PyErr {
    let made = class.call(py, (text,));
    made.map_or_else(|failure| failure, PyErr::from_value)
}

/// The error of a directory or socket that is not this user's alone, if it is one.
pub fn untrusted(py: Python<'_>, error: &std::io::Error) -> Option<PyErr> {
    let is_untrusted = error.get_ref().is_some_and(|inner| inner.is::<sooner_runtime::private::Untrusted>());
    is_untrusted.then(|| exception(py, &python_side::UNTRUSTED_PATH_ERROR, &error.to_string()))
}

/// The exception that a failure raises.
pub fn failure_error(py: Python<'_>, failure: &Failure) -> PyErr {
    let payload = failure.payload.as_ref().map(sooner_runtime::wire::Blob::as_slice);
    let made = match (failure.code, payload) {
        (FailureCode::Task, Some(payload)) => python_side::UNPACK_TASK_ERROR.call(py, (payload,)),
        (FailureCode::ActorInit, Some(payload)) => {
            python_side::ACTOR_INIT_ERROR.call(py, (payload, &failure.message))
        }
        (code, Some(task)) => python_side::ARGUMENT_ERROR.call(py, (code as u8, &failure.message, task)),
        (code, None) => python_side::SYSTEM_ERROR.call(py, (code as u8, &failure.message)),
    };
    match made {
        Ok(error) => PyErr::from_value(error),
        Err(failure) => failure,
    }
}

/// The value of a reference whose outcome is there.
///
/// # Errors
/// The task's exception.
pub fn value_of<'py>(py: Python<'py>, reference: &ObjectRef, access: Access) -> PyResult<Bound<'py, PyAny>> {
    if let Some(outcome @ (Outcome::Inline(_) | Outcome::Failed(_))) = reference.slot.first_outcome() {
        // Not in shared memory: nothing moves it.
        return value_in(py, reference, outcome, access);
    }
    // Keeps the value in its place until the views of it are made.
    let _reading = reference.slot.read();
    value_in(py, reference, &*local_outcome(py, reference)?, access)
}

/// Like [`value_of`], with an outcome that was found and can be read on this node.
fn value_in<'py>(
    py: Python<'py>,
    reference: &ObjectRef,
    outcome: &Outcome,
    access: Access,
) -> PyResult<Bound<'py, PyAny>> {
    if access != Access::Sole && reference.slot.is_taken() {
        // Another thread took it while this one waited.
        reference.check_session()?;
    }
    if let Outcome::Failed(failure) = outcome {
        return Err(failure_error(py, failure));
    }
    let client = &reference.client;
    let met = if needs_references(client, outcome) && reference.slot.is_registered() {
        let met = client.step(|core, _| {
            let table = core.ownership_mut();
            let contained = table.contained(reference.id);
            let is_latest = reference.slot.is_latest(outcome);
            is_latest.then(|| contained.into_iter().map(|id| (id, table.meet(id))).collect())
        });
        match met {
            Some(met) => met,
            // The value was lost meanwhile.
            None => return value_of(py, reference, access),
        }
    } else {
        Vec::new()
    };
    let slot = Some(&reference.slot);
    Source { client, object: reference.id, slot, outcome, met: Rc::new(met), access }.decode(py)
}

/// The outcome of an object. A value that was lost or is at another node is brought to this node, or this
/// raises why not.
fn local_outcome<'a>(py: Python<'_>, reference: &'a ObjectRef) -> PyResult<Cow<'a, Outcome>> {
    let slot = &reference.slot;
    loop {
        let is_here = |outcome: &Cow<'_, Outcome>| !matches!(**outcome, Outcome::Remote(_));
        if let Some(outcome) = slot.outcome().filter(is_here) {
            return Ok(outcome);
        }
        if slot.place() == Place::OutOfReach {
            let why = |core: &mut WorkerCore| core.ownership().pull_failure(reference.id).cloned();
            if let Some(failure) = reference.client.step(|core, _| why(core)) {
                return Err(failure_error(py, &failure));
            }
        }
        need(&reference.client, &[Wanted::here(reference)], Priority::Get);
        let has_news = || matches!(slot.place(), Place::Here | Place::OutOfReach | Place::Elsewhere);
        wait_for(py, &reference.client, has_news, None)?;
    }
}

/// Plain values hold no references; looking is cheaper than asking the table.
fn needs_references(client: &Client, outcome: &Outcome) -> bool {
    let first = match outcome {
        Outcome::Inline(blob) => blob.as_slice().first(),
        Outcome::Stored(at) => client.mapping().bytes(at.offset, at.length).first(),
        Outcome::Failed(_) | Outcome::Remote(_) => None,
    };
    first == Some(&sooner_runtime::wire::value::FORMAT_PICKLE5)
}

/// get(refs, *, timeout=None, copy=False)
/// --
///
/// Waits for one reference or a list of them and returns the value or the list of values. See `sooner.get`.
#[pyfunction]
#[pyo3(signature = (refs, *, timeout=None, copy=false, _use_object_store=false))]
pub fn get<'py>(
    py: Python<'py>,
    refs: &Bound<'py, PyAny>,
    timeout: Option<f64>,
    copy: bool,
    _use_object_store: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let _inside = session::Inside::enter(py);
    let access = if copy { Access::Private } else { Access::Shared };
    if let Ok(reference) = refs.cast_exact::<ObjectRef>() {
        let this = reference.get();
        if !this.slot.is_readable() {
            this.check_session()?;
            let start = time();
            let is_call = this.client.step(|core, _| core.is_actor_call(this.id.task));
            wait_all(py, &this.client, std::slice::from_ref(reference), timeout)?;
            advice::on_waited(py, &this.client, this.id.task, is_call, time().since(start));
        } else {
            this.check_session()?;
        }
        return value_of(py, this, access);
    }
    if refs.cast_exact::<ObjectRefGenerator>().is_ok() {
        // A generator is its own value, as in Ray: get its items.
        return Ok(refs.clone());
    }
    let list = references(refs, "get")?;
    // The references' own session, even if it is over or ends just now: they must not begin a new one.
    let client = match list.first() {
        Some(first) => first.get().client.clone(),
        None => session::client(py)?,
    };
    for reference in &list {
        reference.get().check_in(&client)?;
    }
    wait_all(py, &client, &list, timeout)?;
    let values = list.iter().map(|r| value_of(py, r.get(), access)).collect::<PyResult<Vec<_>>>()?;
    Ok(PyList::new(py, values)?.into_any())
}

/// take(ref, *, timeout=None)
/// --
///
/// Waits for a reference and gives its value to change: in place when nobody else knows the object. See
/// `sooner.take`.
#[pyfunction]
#[pyo3(signature = (r#ref, *, timeout=None))]
pub fn take<'py>(
    py: Python<'py>,
    r#ref: &Bound<'py, PyAny>,
    timeout: Option<f64>,
) -> PyResult<Bound<'py, PyAny>> {
    let _inside = session::Inside::enter(py);
    let Ok(reference) = r#ref.cast_exact::<ObjectRef>() else {
        let kind = r#ref.get_type().name()?;
        return Err(PyTypeError::new_err(format!("sooner.take() takes an ObjectRef, not {kind}")));
    };
    let this = reference.get();
    this.check_session()?;
    wait_all(py, &this.client, std::slice::from_ref(reference), timeout)?;
    let is_sole = this.slot.handles() == 1 && this.client.step(|core, _| core.ownership().is_sole(this.id));
    if !is_sole {
        return value_of(py, this, Access::Private);
    }
    // Views of the value are writable from now on: no other reader may get them through the reference, not
    // even while they are made.
    this.slot.set_taken(true);
    let value = value_of(py, this, Access::Sole);
    if this.slot.handles() == 1 {
        // No views were made: the value was built anew.
        this.slot.set_taken(false);
    }
    value
}

fn references<'py>(refs: &Bound<'py, PyAny>, verb: &str) -> PyResult<Vec<Bound<'py, ObjectRef>>> {
    let wrong = |item: &Bound<'_, PyAny>| {
        let kind = item.get_type().name().map_or_else(|_| "?".to_owned(), |n| n.to_string());
        PyValueError::new_err(format!(
            "sooner.{verb}() takes an ObjectRef or a list of ObjectRefs, not {kind}"
        ))
    };
    let items: Vec<Bound<'py, PyAny>> = if let Ok(list) = refs.cast::<PyList>() {
        list.iter().collect()
    } else if let Ok(tuple) = refs.cast::<PyTuple>() {
        tuple.iter().collect()
    } else {
        return Err(wrong(refs));
    };
    items
        .into_iter()
        .map(|item| item.cast_into_exact::<ObjectRef>().map_err(|e| wrong(&e.into_inner())))
        .collect()
}

/// How long values that are on disk may take when the timeout of a `get` is over (nanoseconds).
const FROM_DISK_NANOS: u64 = 10_000_000_000;

fn wait_all(
    py: Python<'_>,
    client: &Arc<Client>,
    refs: &[Bound<'_, ObjectRef>],
    timeout: Option<f64>,
) -> PyResult<()> {
    let wanted: Vec<Wanted> = refs.iter().map(|reference| Wanted::here(reference.get())).collect();
    if timeout.is_none() {
        unsealed::refuse_own(py, refs, refs.len())?;
    }
    let mut end = deadline(timeout)?;
    let mut is_late = false;
    let mut next = 0;
    // A single object that has failed is ready, and the caller raises its failure. Several are checked
    // whenever any object has failed.
    let is_many = wanted.len() > 1;
    let mut failures = client.failures();
    let mut has_failed = is_many && wanted.iter().any(|one| one.slot.has_failed());
    loop {
        if std::mem::take(&mut has_failed) {
            raise_first_failure(py, refs, &wanted)?;
        }
        need(client, &wanted, Priority::Get);
        let mut has_news = || {
            while next < wanted.len() && wanted[next].is_ready() {
                next += 1;
            }
            let latest = client.failures();
            if is_many && latest != failures {
                failures = latest;
                has_failed = wanted.iter().any(|one| one.slot.has_failed());
            }
            // A value that has become ready at another node during the wait must be asked for.
            has_failed || next == wanted.len() || wanted[next].slot.place() == Place::Elsewhere
        };
        let has_come = has_news() || wait_for(py, client, &mut has_news, end)?;
        if has_failed {
            continue;
        }
        if next == wanted.len() {
            return Ok(());
        }
        if has_come {
            continue;
        }
        // A value on disk is ready, as in `wait`: it only has to be read.
        if is_late || !wanted.iter().all(|one| Near::Node.is_ready(&one.slot)) {
            break;
        }
        is_late = true;
        end = Some(time().plus(FROM_DISK_NANOS));
    }
    let open = wanted.iter().filter(|one| !one.is_ready()).count();
    Err(system_error(
        py,
        FailureCode::GetTimeout,
        &format!("{open} of {} objects were not ready within {} s", refs.len(), timeout.unwrap_or(0.0)),
    ))
}

/// Raises the error of the first failed reference in the list: a caller that waits for all need not wait for
/// the rest.
fn raise_first_failure(py: Python<'_>, refs: &[Bound<'_, ObjectRef>], wanted: &[Wanted]) -> PyResult<()> {
    for (reference, _) in refs.iter().zip(wanted).filter(|(_, one)| one.slot.has_failed()) {
        value_of(py, reference.get(), Access::Shared)?;
    }
    Ok(())
}

/// put(value)
/// --
///
/// Stores a value and returns a reference to it. See `sooner.put`.
#[pyfunction]
#[pyo3(signature = (value, *, _owner=None, _tensor_transport=None))]
pub fn put<'py>(
    py: Python<'py>,
    value: &Bound<'py, PyAny>,
    _owner: Option<&Bound<'py, PyAny>>,
    _tensor_transport: Option<&Bound<'_, PyAny>>,
) -> PyResult<Bound<'py, ObjectRef>> {
    let _inside = session::Inside::enter(py);
    let client = session::client(py)?;
    if let Some(owner) = _owner.filter(|owner| !owner.is_none()) {
        let made = python_side::PUT_OWNED.call(py, (value, owner))?;
        return Ok(made.cast_into_exact::<ObjectRef>()?);
    }
    let mut bytes = Vec::with_capacity(24);
    if encode_plain(value, &mut bytes) {
        let blob = sooner_runtime::wire::Blob::from(bytes.as_slice());
        let (id, slot) = client.put_inline(Outcome::Inline(blob));
        let reference = ObjectRef::new(id, slot, client);
        reference.record_site(py);
        return reference.into_bound(py);
    }
    if value.is_exact_instance_of::<ObjectRef>() {
        return Err(PyTypeError::new_err(
            "sooner.put() takes a value, not an ObjectRef: pass the reference on as it is",
        ));
    }
    let mut inner = Vec::new();
    let encoded = encode(value, &mut inner)
        .map_err(|error| explain(py, value, &error, "the value passed to sooner.put()"))?;
    let reference = put_encoded(py, &client, encoded, inner, u64::MAX)?;
    reference.record_site(py);
    reference.into_bound(py)
}

/// wait(refs, *, num_returns=1, timeout=None, fetch_local=True)
/// --
///
/// Waits until `num_returns` of the references are ready. See `sooner.wait`.
#[pyfunction]
#[pyo3(signature = (refs, *, num_returns=1, timeout=None, fetch_local=true))]
pub fn wait<'py>(
    py: Python<'py>,
    refs: &Bound<'py, PyAny>,
    num_returns: i64,
    timeout: Option<f64>,
    fetch_local: bool,
) -> PyResult<(Bound<'py, PyList>, Bound<'py, PyList>)> {
    let _inside = session::Inside::enter(py);
    let kind = refs.get_type();
    let list = refs
        .cast::<PyList>()
        .map_err(|_| PyTypeError::new_err(format!("sooner.wait() takes a list of ObjectRefs, not {kind}")))?;
    if list.is_empty() {
        // As in Ray: a loop over what is left may ask once more.
        return Ok((PyList::empty(py), PyList::empty(py)));
    }
    let wanted = usize::try_from(num_returns)
        .ok()
        .filter(|n| *n > 0)
        .ok_or_else(|| PyValueError::new_err(format!("num_returns must be at least 1, not {num_returns}")))?;
    if wanted > list.len() {
        return Err(PyValueError::new_err(format!(
            "num_returns is {wanted}, but there are only {} references",
            list.len()
        )));
    }
    let near = Near::of_wait(fetch_local);
    let first = list.get_item(0)?;
    let Ok(first) = first.cast_exact::<ObjectRef>() else {
        return wait_mixed(py, list, wanted, timeout, near);
    };
    // The references' own session, even if it is over: they must not begin a new one.
    let client = first.get().client.clone();
    if client.is_closed() {
        first.get().check_session()?;
    }
    let Some((mut ready_at, has_foreign)) = pass_over(list, &client, wanted, near)? else {
        return wait_mixed(py, list, wanted, timeout, near);
    };
    if ready_at.len() < wanted {
        let items: Vec<_> =
            list.iter().map(|i| i.cast_into_exact::<ObjectRef>()).collect::<Result<_, _>>()?;
        let open: Vec<Wanted> =
            items.iter().map(|item| Wanted { near, ..Wanted::here(item.get()) }).collect();
        if timeout.is_none() {
            unsealed::refuse_own(py, &items, wanted)?;
        }
        wait_for_some(py, &client, &open, wanted, deadline(timeout)?, has_foreign)?;
        let is_ready = |(at, one): (usize, &Wanted)| one.is_ready().then_some(at);
        ready_at = open.iter().enumerate().filter_map(is_ready).take(wanted).collect();
    }
    parted(py, list, &ready_at)
}

/// Indices of the first `wanted` ready references in a list, and whether one of the others may have to be
/// asked for. `None`: the list has something else than references.
fn pass_over(
    list: &Bound<'_, PyList>,
    client: &Arc<Client>,
    wanted: usize,
    near: Near,
) -> PyResult<Option<(Vec<usize>, bool)>> {
    // The GIL is held during a pass, so passes do not mix.
    let pass = PASS.fetch_add(1, Ordering::Relaxed);
    let me = client.me();
    let mut has_foreign = false;
    let mut ready_at = Vec::new();
    for (at, item) in list.iter().enumerate() {
        let Ok(item) = item.cast_exact::<ObjectRef>() else { return Ok(None) };
        let this = item.get();
        if !this.slot.mark(pass) {
            return Err(PyValueError::new_err(format!(
                "sooner.wait() takes each reference once; {} is there twice",
                item.repr()?
            )));
        }
        if !Arc::ptr_eq(&this.client, client) {
            this.check_in(client)?;
        }
        if !near.is_ready(&this.slot) {
            has_foreign |= this.id.owner() != me || this.slot.place() != Place::Nowhere;
        } else if ready_at.len() < wanted {
            ready_at.push(at);
        }
    }
    Ok(Some((ready_at, has_foreign)))
}

/// Splits a list into the items at `ready_at` and the rest.
fn parted<'py>(
    py: Python<'py>,
    list: &Bound<'py, PyList>,
    ready_at: &[usize],
) -> PyResult<(Bound<'py, PyList>, Bound<'py, PyList>)> {
    let (ready, rest) = (PyList::empty(py), PyList::empty(py));
    let mut from = 0;
    for at in ready_at {
        ready.append(list.get_item(*at)?)?;
        append_part(&rest, list, from, *at)?;
        from = at + 1;
    }
    if rest.is_empty() {
        // Usually the ready ones come first: the rest is copied in one piece.
        return Ok((ready, list.get_slice(from, list.len())));
    }
    append_part(&rest, list, from, list.len())?;
    Ok((ready, rest))
}

/// `wait` on a list with generators: a generator is ready when its next item or its end is.
fn wait_mixed<'py>(
    py: Python<'py>,
    list: &Bound<'py, PyList>,
    wanted: usize,
    timeout: Option<f64>,
    near: Near,
) -> PyResult<(Bound<'py, PyList>, Bound<'py, PyList>)> {
    let mut open = Vec::with_capacity(list.len());
    let mut seen = HashSet::new();
    let mut common: Option<Arc<Client>> = None;
    for item in list {
        let (id, one) = if let Ok(reader) = item.cast_exact::<ObjectRefGenerator>() {
            reader.get().check_in(common.get_or_insert_with(|| reader.get().client().clone()))?;
            // The item is enough; its value is not brought.
            let id = reader.get().task().reader();
            (id, Wanted { object: id, slot: reader.get().head_slot(), near: Near::Anywhere })
        } else {
            let reference = checked(&item)?;
            reference.get().check_in(common.get_or_insert_with(|| reference.get().client.clone()))?;
            (reference.get().id, Wanted { near, ..Wanted::here(reference.get()) })
        };
        if !seen.insert(id) {
            let twice = item.repr()?;
            return Err(PyValueError::new_err(format!(
                "sooner.wait() takes each reference once; {twice} is there twice"
            )));
        }
        open.push(one);
    }
    if let Some(client) = common
        && open.iter().filter(|one| one.is_ready()).take(wanted).count() < wanted
    {
        wait_for_some(py, &client, &open, wanted, deadline(timeout)?, true)?;
    }
    let (ready, rest) = (PyList::empty(py), PyList::empty(py));
    for (item, one) in list.iter().zip(&open) {
        let is_ready = ready.len() < wanted && one.is_ready();
        (if is_ready { &ready } else { &rest }).append(item)?;
    }
    Ok((ready, rest))
}

/// Numbers the passes of [`wait`] over its references.
static PASS: AtomicU32 = AtomicU32::new(1);

fn checked<'a, 'py>(item: &'a Bound<'py, PyAny>) -> PyResult<&'a Bound<'py, ObjectRef>> {
    item.cast_exact::<ObjectRef>().map_err(|_| {
        let kind = item.get_type();
        PyTypeError::new_err(format!("sooner.wait() takes a list of ObjectRefs; it contains {kind}"))
    })
}

fn append_part(rest: &Bound<'_, PyList>, list: &Bound<'_, PyList>, from: usize, to: usize) -> PyResult<()> {
    for at in from..to {
        rest.append(list.get_item(at)?)?;
    }
    Ok(())
}

/// Gives objects up although references to them are left.
#[pyfunction]
pub fn free_objects(refs: Vec<Bound<'_, ObjectRef>>) -> PyResult<()> {
    for reference in &refs {
        let this = reference.get();
        if !this.slot.is_freed() {
            this.check_session()?;
        }
        this.register();
        this.client.step(|core, out| core.ownership_mut().free(this.id, out));
    }
    Ok(())
}

/// Has the node treat the memory of objects as lost, and waits until this process has heard of it. Gives how
/// many of them lay in shared memory.
#[pyfunction]
pub fn lose_objects(py: Python<'_>, refs: Vec<Bound<'_, ObjectRef>>) -> PyResult<usize> {
    let mut waiting = Vec::new();
    let mut blocks = Vec::new();
    for reference in &refs {
        let this = reference.get();
        this.check_session()?;
        if let Some(at) = this.slot.outcome().and_then(|outcome| outcome.place_here()) {
            this.register();
            blocks.extend(at.place().block());
            waiting.push((this.slot.clone(), Outcome::Stored(at)));
        }
    }
    let count = blocks.len();
    let Some(client) = refs.first().map(|first| first.get().client.clone()) else { return Ok(0) };
    client.step(|_, out| {
        let message = sooner_runtime::wire::message::LoseBlocks { blocks };
        sooner_runtime::protocol::worker::action::send(
            out,
            sooner_runtime::protocol::worker::action::Peer::Node,
            message,
        );
    });
    let has_heard = move || waiting.iter().all(|(slot, before)| slot.outcome().as_deref() != Some(before));
    wait_for(py, &client, has_heard, None)?;
    Ok(count)
}

/// The size of an object (bytes), the nodes whose object stores have it, and whether it is on the disk of its
/// node, as far as this process knows; `None` when it is not there or has failed.
#[pyfunction]
pub fn object_places(reference: &Bound<'_, ObjectRef>) -> Option<(u64, Vec<String>, bool)> {
    let this = reference.get();
    let outcome = this.slot.outcome()?;
    let place = match &*outcome {
        Outcome::Inline(blob) => return Some((blob.as_slice().len() as u64, Vec::new(), false)),
        Outcome::Failed(_) => return None,
        Outcome::Stored(at) => (at.length, this.client.welcome.node),
        Outcome::Remote(remote) => (remote.location.length, remote.node),
    };
    let (mut nodes, has_spilled) = this.client.step(|core, _| {
        let table = core.ownership();
        (table.nodes_with(this.id), table.has_spilled(this.id))
    });
    if !nodes.contains(&place.1) {
        // The table need not know an object that never left this process.
        nodes.push(place.1);
    }
    Some((place.0, nodes.iter().map(|node| format!("{:016x}", node.0)).collect(), has_spilled))
}

/// Whether another process owns an object, and this one has not heard of an outcome.
#[pyfunction]
pub fn is_unheard_of(reference: &Bound<'_, ObjectRef>) -> bool {
    let this = reference.get();
    this.id.task.owner != this.client.welcome.worker && this.slot.outcome().is_none()
}

/// Whether the outcome of a reference is there, and can be read without waiting.
#[pyfunction]
pub fn is_ready(reference: &Bound<'_, ObjectRef>) -> bool {
    matches!(reference.get().slot.place(), Place::Here | Place::OutOfReach)
}

/// Whether reading a reference raises an error now.
#[pyfunction]
pub fn has_failed(reference: &Bound<'_, ObjectRef>) -> bool {
    reference.get().slot.has_failed()
}

/// Whether the outcome of a reference is there, or on the disk of this node, from where it comes when it is
/// wanted.
#[pyfunction]
pub fn is_at_node(reference: &Bound<'_, ObjectRef>) -> bool {
    Near::Node.is_ready(&reference.get().slot)
}

/// Calls `sooner._engine.aio.deliver([token, ...])` once the outcome is there and can be read; false if it
/// can already.
#[pyfunction]
pub fn watch(reference: &Bound<'_, ObjectRef>, token: Bound<'_, PyAny>) -> PyResult<bool> {
    let this = reference.get();
    this.check_session()?;
    if this.slot.is_readable() {
        return Ok(false);
    }
    let token = token.unbind();
    hooks::add_watcher(this.id, token.clone_ref(reference.py()));
    // Added before the core is asked, so that an outcome in between finds the watcher.
    let watches = this.client.step(|core, out| core.watch(this.id, out));
    if !watches {
        hooks::remove_watcher(this.id, &token);
    } else if let Err(error) = Mode::of(&this.client).serve(reference.py(), &this.client, &this.slot) {
        hooks::remove_watcher(this.id, &token);
        return Err(error);
    }
    Ok(watches)
}

/// Cancels the task that makes an object.
#[pyfunction]
pub fn cancel_task(reference: &Bound<'_, PyAny>, force: bool, recursive: bool) -> PyResult<()> {
    let (client, task) = if let Ok(reader) = reference.cast_exact::<ObjectRefGenerator>() {
        reader.get().check_session()?;
        (reader.get().client(), reader.get().task())
    } else {
        let this = reference.cast_exact::<ObjectRef>()?.get();
        this.check_session()?;
        (&this.client, this.id.task)
    };
    if force && client.step(|core, _| core.is_actor_call(task)) {
        return Err(PyValueError::new_err(
            "force=True is not for actor calls: it would end the actor. Use sooner.kill(actor) for that",
        ));
    }
    client.step(|core, out| core.cancel(task, force, recursive, out));
    Mode::of(client).run_ready(reference.py(), client)
}
