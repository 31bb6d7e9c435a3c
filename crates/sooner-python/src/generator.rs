//! Streaming generators: the reader that `.remote()` gives, and running a generator in a worker.
//!
//! An item is sent when it is yielded and is an object of its own. The reader always knows the object it
//! takes next, so waiting for an item is waiting for an object
//! ([`sooner_runtime::protocol::worker::tasks::Stream`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use pyo3::exceptions::{PyKeyboardInterrupt, PyStopIteration, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyList;
use sooner_runtime::client::Client;
use sooner_runtime::protocol::worker::execution::{Incoming, Taken};
use sooner_runtime::protocol::worker::ownership::Slot;
use sooner_runtime::wire::TaskId;
use sooner_runtime::wire::message::{FailureCode, Outcome, Streaming};

use crate::mode::Mode;
use crate::object_ref::ObjectRef;
use crate::packing::pack_one;
use crate::python_side;
use crate::session;
use crate::waiting::wait_for;

/// The items of a streaming task, as references. See `sooner.ObjectRefGenerator` for the documentation.
#[pyclass(frozen, weakref, module = "sooner", generic)]
pub struct ObjectRefGenerator {
    task: TaskId,
    client: Arc<Client>,
    /// The item that is taken next, and where its outcome appears.
    head: Mutex<(u32, Arc<Slot>)>,
    is_closed: AtomicBool,
}

/// Whether the next item of a generator is there.
enum Head {
    Open,
    Item(u32, Arc<Slot>),
    End,
}

impl ObjectRefGenerator {
    /// The reader of a task that was submitted just now.
    #[must_use]
    pub fn new(task: TaskId, client: Arc<Client>) -> Option<Self> {
        let head = client.step(|core, _| core.next_item(task))?;
        Some(Self { task, client, head: Mutex::new(head), is_closed: AtomicBool::new(false) })
    }

    /// Where the outcome of the next item appears.
    #[must_use]
    pub fn head_slot(&self) -> Arc<Slot> {
        self.head.lock().1.clone()
    }

    /// The task that yields the items.
    #[must_use]
    pub fn task(&self) -> TaskId {
        self.task
    }

    /// The session's client.
    #[must_use]
    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Refuses generators of an earlier session.
    pub fn check_session(&self) -> PyResult<()> {
        self.head_reference().check_session()
    }

    /// Refuses generators of any session but this client's.
    pub fn check_in(&self, client: &Arc<Client>) -> PyResult<()> {
        self.head_reference().check_in(client)
    }

    fn head_reference(&self) -> ObjectRef {
        let (index, slot) = self.head.lock().clone();
        ObjectRef::new(self.task.object(index), slot, self.client.clone())
    }

    fn look(&self) -> Head {
        if self.is_closed.load(Ordering::Acquire) {
            return Head::End;
        }
        let (index, slot) = self.head.lock().clone();
        match slot.outcome().as_deref() {
            None => Head::Open,
            Some(Outcome::Failed(failure)) if failure.code == FailureCode::EndOfStream => Head::End,
            Some(_) => Head::Item(index, slot),
        }
    }

    /// Takes an item that is there; `None` when another thread was faster.
    fn take(&self, index: u32, slot: Arc<Slot>) -> Option<ObjectRef> {
        let reference = ObjectRef::new(self.task.object(index), slot, self.client.clone());
        let (taken, next) = self.client.step(|core, out| {
            let taken = core.take_item(self.task, index, out);
            (taken, core.next_item(self.task))
        });
        if let Some(next) = next {
            let mut head = self.head.lock();
            if next.0 > head.0 {
                *head = next;
            }
        }
        taken.then_some(reference)
    }

    fn end(&self) {
        if !self.is_closed.swap(true, Ordering::AcqRel) {
            self.client.drop_reader(self.task);
        }
    }
}

impl Drop for ObjectRefGenerator {
    fn drop(&mut self) {
        self.end();
        crate::collect::record_release();
    }
}

#[pymethods]
impl ObjectRefGenerator {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, ObjectRef>>> {
        loop {
            match self.look() {
                Head::End => return Ok(None),
                Head::Item(index, slot) => {
                    if let Some(reference) = self.take(index, slot) {
                        return reference.into_bound(py).map(Some);
                    }
                }
                Head::Open => {
                    self.check_session()?;
                    if Mode::of(&self.client).advance(py, &self.client, self.task) {
                        py.check_signals()?;
                        continue;
                    }
                    let slot = self.head_slot();
                    wait_for(py, &self.client, move || slot.has_outcome(), None)?;
                }
            }
        }
    }

    fn __aiter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __anext__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        python_side::NEXT_ITEM.call(slf.py(), (slf,))
    }

    /// The next item if it is there: `(True, reference)`, `(True, None)` at the end, else `(False, None)`.
    fn _poll<'py>(&self, py: Python<'py>) -> PyResult<(bool, Option<Bound<'py, ObjectRef>>)> {
        loop {
            match self.look() {
                Head::End => return Ok((true, None)),
                Head::Open => return Ok((false, None)),
                Head::Item(index, slot) => {
                    if let Some(reference) = self.take(index, slot) {
                        return Ok((true, Some(reference.into_bound(py)?)));
                    }
                }
            }
        }
    }

    /// The reference of the next item, which may never come.
    fn _peek<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, ObjectRef>> {
        self.check_session()?;
        self.head_reference().into_bound(py)
    }

    /// Whether `next()` gives an item without waiting.
    fn next_ready(&self) -> bool {
        matches!(self.look(), Head::Item(..))
    }

    /// Whether all items are taken.
    fn is_finished(&self) -> bool {
        matches!(self.look(), Head::End)
    }

    /// A reference that is ready when the task has ended; getting it raises what the task raised.
    fn completed<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, ObjectRef>> {
        self.check_session()?;
        let object = self.task.object(0);
        let slot = self.client.step(|core, _| core.ownership_mut().meet(object));
        ObjectRef::new(object, slot, self.client.clone()).into_bound(py)
    }

    /// As Ray's libraries call it.
    #[getter]
    fn _generator_ref<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, ObjectRef>> {
        self.completed(py)
    }

    fn task_id(&self) -> String {
        session::hex(self.task)
    }

    fn send<'py>(&self, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, ObjectRef>> {
        if !value.is_none() {
            return Err(PyTypeError::new_err(
                "values cannot be sent into a generator that runs in another process: use next()",
            ));
        }
        self.__next__(value.py())?.ok_or_else(|| PyStopIteration::new_err(()))
    }

    /// Ends the task at its next item and lets go of the items that were not taken.
    fn close(&self) -> PyResult<()> {
        self.end();
        self.client.flush_now();
        Python::attach(|py| Mode::of(&self.client).run_ready(py, &self.client))
    }

    #[pyo3(signature = (kind, value=None, traceback=None))]
    fn throw(
        &self,
        kind: &Bound<'_, PyAny>,
        value: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let _ = traceback;
        self.close()?;
        Err(PyErr::from_value(value.unwrap_or(kind).clone()))
    }

    fn asend<'py>(slf: &Bound<'py, Self>, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        if !value.is_none() {
            return Err(PyTypeError::new_err(
                "values cannot be sent into a generator that runs in another process: use anext()",
            ));
        }
        Self::__anext__(slf)
    }

    fn aclose<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        python_side::CLOSE_GENERATOR.call(slf.py(), (slf,))
    }

    #[pyo3(signature = (kind, value=None, traceback=None))]
    fn athrow<'py>(
        slf: &Bound<'py, Self>,
        kind: &Bound<'py, PyAny>,
        value: Option<&Bound<'py, PyAny>>,
        traceback: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = traceback;
        let error = value.unwrap_or(kind);
        python_side::CLOSE_GENERATOR.call(slf.py(), (slf, error))
    }

    fn __repr__(&self) -> String {
        format!("ObjectRefGenerator({})", session::hex(self.task))
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a generator of references stays in the process that called .remote(): pass on the references it gives, or list(generator)",
        ))
    }
}

/// Whether a streaming task may go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MayYield {
    Now,
    Later,
    /// Its reader takes no more items.
    Never,
    /// It was cancelled, or its caller is dead.
    Cancelled,
}

/// Whether a streaming task may yield its item `index`.
#[must_use]
pub fn may_yield(client: &Client, task: TaskId, options: Streaming, index: u32) -> MayYield {
    let (Taken { items, stop }, is_cancelled) =
        client.step(|core, _| (core.execution().taken(task), core.execution().is_cancelled(task)));
    let limit = options.backpressure;
    if is_cancelled {
        MayYield::Cancelled
    } else if stop {
        MayYield::Never
    } else if limit > 0 && index > items.saturating_add(limit) {
        MayYield::Later
    } else {
        MayYield::Now
    }
}

/// Sends one item of a streaming task that runs here.
///
/// # Errors
/// A `TypeError` when it cannot be pickled.
pub fn send_item(
    py: Python<'_>,
    client: &Arc<Client>,
    task: TaskId,
    index: u32,
    value: Bound<'_, PyAny>,
) -> PyResult<()> {
    let mut handles = Vec::new();
    let packed = pack_one(py, client, value, &format!("item {index} of the generator"), &mut handles)?;
    client.step(|core, out| core.on_yielded(task, index, packed, out));
    Ok(())
}

/// Runs a generator to its end and sends its items. Gives what the task returns then.
///
/// # Errors
/// What the generator raised, or that there is none.
pub fn drain<'py>(
    py: Python<'py>,
    client: &Arc<Client>,
    incoming: &Incoming,
    value: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let spec = &incoming.push.spec;
    let (task, options) = (spec.task, spec.stream.unwrap_or_default());
    let mut items = value.try_iter().map_err(|_| not_a_generator(value))?;
    let mut count = 0;
    loop {
        let next = count + 1;
        if may_yield(client, task, options, next) == MayYield::Later {
            wait_for(py, client, || may_yield(client, task, options, next) != MayYield::Later, None)?;
        }
        match may_yield(client, task, options, next) {
            MayYield::Now | MayYield::Later => {}
            MayYield::Never => {
                close_items(&items)?;
                break;
            }
            MayYield::Cancelled => {
                close_items(&items)?;
                return Err(cancelled());
            }
        }
        let Some(item) = items.next() else { break };
        let item = item?;
        // A process that the generator has forked has no reader.
        crate::worker::end_if_child(py, Ok(()));
        send_item(py, client, task, next, item)?;
        count = next;
    }
    last_value(py, client, task, options, count)
}

/// Ends a generator where it stands; other iterables have nothing to end.
///
/// # Errors
/// What its `finally` blocks raised.
pub fn close_items(items: &Bound<'_, PyAny>) -> PyResult<()> {
    if items.hasattr("close")? {
        items.call_method0("close")?;
    }
    Ok(())
}

/// The error of a generator that was cancelled between two items, where no signal reaches it: in an actor, or
/// in local mode.
#[must_use]
pub fn cancelled() -> PyErr {
    PyKeyboardInterrupt::new_err("the task was cancelled")
}

/// What a streaming task returns when it has yielded `count` items.
///
/// # Errors
/// When there is no memory.
pub fn last_value<'py>(
    py: Python<'py>,
    client: &Arc<Client>,
    task: TaskId,
    options: Streaming,
    count: u32,
) -> PyResult<Bound<'py, PyAny>> {
    if !options.dynamic {
        return Ok(py.None().into_bound(py));
    }
    let refs = PyList::empty(py);
    for index in 1..=count {
        let object = task.object(index);
        let slot = client.step(|core, _| core.ownership_mut().meet(object));
        refs.append(ObjectRef::new(object, slot, client.clone()).into_bound(py)?)?;
    }
    python_side::DYNAMIC_GENERATOR.call(py, (refs,))
}

fn not_a_generator(value: &Bound<'_, PyAny>) -> PyErr {
    let kind = value.get_type();
    PyTypeError::new_err(format!(
        "a task with num_returns=\"streaming\" must return a generator or another iterable, not {kind}"
    ))
}
