//! `ObjectRef`: a handle on an object, and how it travels inside pickles.
//!
//! While a value is serialised for sooner, a reference inside it is written as an index into the message's
//! list of references ([`serialising`]); when it is read, the index is looked up ([`deserialising`]).
//! Elsewhere a reference is pickled by its id, and its object is pinned for the rest of the session, because
//! sooner cannot know who holds the pickle.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use sooner_runtime::client::Client;
use sooner_runtime::protocol::worker::execution::Met;
use sooner_runtime::protocol::worker::ownership::Slot;
use sooner_runtime::wire::ObjectId;
use sooner_runtime::wire::message::{Failure, FailureCode, Outcome};

use crate::python_side::{self, PythonName};
use crate::session;

/// A reference to an object that exists or will exist. See `sooner.ObjectRef` for the documentation.
#[pyclass(frozen, weakref, module = "sooner", generic)]
pub struct ObjectRef {
    pub id: ObjectId,
    pub slot: Arc<Slot>,
    pub client: Arc<Client>,
}

impl ObjectRef {
    /// A new handle.
    pub fn new(id: ObjectId, slot: Arc<Slot>, client: Arc<Client>) -> Self {
        slot.acquire();
        Self { id, slot, client }
    }

    /// The Python object. It refers to no other, so it is hidden from the cycle collector, which a million
    /// references would slow down.
    pub fn into_bound(self, py: Python<'_>) -> PyResult<Bound<'_, Self>> {
        let reference = Bound::new(py, self)?;
        // SAFETY: a fresh object of a type with collector support; it is untracked once, under the GIL.
        unsafe { pyo3::ffi::PyObject_GC_UnTrack(reference.as_ptr().cast()) };
        Ok(reference)
    }

    /// A reference to no object: getting it says so.
    fn nameless(id: ObjectId, client: Arc<Client>) -> Self {
        let failure = Failure::new(
            FailureCode::ObjectLost,
            "this reference stands for no object: it is nil, or was made of an id that nobody has given",
        );
        let slot = Slot::with_outcome(Outcome::Failed(Box::new(failure)));
        slot.register();
        Self::new(id, Arc::new(slot), client)
    }

    /// Enters the object in the process-wide table: required before its id leaves this process.
    pub fn register(&self) {
        if !self.slot.is_registered() {
            self.client.step(|core, _| core.ownership_mut().own(self.id, self.slot.clone()));
        }
    }

    /// The id is shown as bytes or text, from which a reference can be made again.
    fn show(&self) {
        if !self.is_nil() && !self.client.is_closed() {
            self.register();
        }
    }

    /// As messages name it.
    pub fn repr(&self) -> String {
        format!("ObjectRef({})", self.text())
    }

    fn text(&self) -> String {
        self.id.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Records where the object is put, if call sites are recorded.
    pub fn record_site(&self, py: Python<'_>) {
        if let Some(site) = crate::submit::call_site(py) {
            self.register();
            self.client.step(|core, _| core.ownership_mut().set_site(self.id, site));
        }
    }

    /// The failure of an object that the user has freed.
    pub fn freed(&self) -> Failure {
        let text = format!("{} was freed with sooner.internal.free()", self.repr());
        Failure::new(FailureCode::ObjectFreed, text)
    }

    /// The error of a reference of an earlier session.
    fn has_ended(&self) -> PyErr {
        PyValueError::new_err(format!(
            "{} belongs to a session that has ended (sooner.shutdown(), a lost node, or the parent's before a fork): create the object again in this session",
            self.repr()
        ))
    }

    /// Like [`Self::check_session`], and refuses references of any session but this client's: when there are
    /// two, one is ending while another thread has begun the next.
    pub fn check_in(&self, client: &Arc<Client>) -> PyResult<()> {
        self.check_session()?;
        if Arc::ptr_eq(&self.client, client) { Ok(()) } else { Err(self.has_ended()) }
    }

    /// Refuses references of an earlier session, and those whose value was taken.
    pub fn check_session(&self) -> PyResult<()> {
        if self.client.is_closed() {
            // If there is no other session, the error that this one was lost says more.
            Python::attach(session::check_not_lost)?;
            return Err(self.has_ended());
        }
        if self.slot.is_freed() {
            return Err(Python::attach(|py| crate::verbs::failure_error(py, &self.freed())));
        }
        if self.slot.is_taken() {
            return Err(PyValueError::new_err(format!(
                "the value of {} was taken with sooner.take() and may have been changed since: use sooner.get(ref, copy=True) to keep the object",
                self.repr()
            )));
        }
        Ok(())
    }
}

/// An id as Python has it: an instance of this class of `sooner.ids`.
fn id_of<'py>(py: Python<'py>, class: &PythonName, text: &str) -> PyResult<Bound<'py, PyAny>> {
    class.get(py)?.call_method1("from_hex", (text,))
}

impl Drop for ObjectRef {
    fn drop(&mut self) {
        self.client.drop_handle(self.id, &self.slot);
        crate::collect::record_release();
    }
}

#[pymethods]
impl ObjectRef {
    fn hex(&self) -> String {
        self.show();
        self.text()
    }

    fn binary<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        self.show();
        PyBytes::new(py, &self.id.to_bytes())
    }

    #[staticmethod]
    fn size() -> usize {
        sooner_runtime::wire::id::OBJECT_ID_BYTES
    }

    fn is_nil(&self) -> bool {
        self.id == ObjectId::default()
    }

    /// A reference to the object with these bytes, registered with its owner by ourselves.
    #[staticmethod]
    fn from_binary(py: Python<'_>, data: &[u8]) -> PyResult<Self> {
        let id = ObjectId::from_bytes(data).ok_or_else(|| {
            PyValueError::new_err(format!("an object id has {} bytes, not {}", Self::size(), data.len()))
        })?;
        let client = session::client(py)?;
        if id == ObjectId::default() {
            return Ok(Self::nameless(id, client));
        }
        let slot = client.step(|core, out| {
            let me = core.me();
            let table = core.ownership_mut();
            table.hand_over(id, me, out);
            table.received(id)
        });
        Ok(Self::new(id, slot, client))
    }

    /// The same, as Ray has it.
    #[new]
    fn of_bytes(py: Python<'_>, data: &[u8]) -> PyResult<Self> {
        Self::from_binary(py, data)
    }

    /// A reference with an id that nothing has.
    #[staticmethod]
    fn from_random(py: Python<'_>) -> PyResult<Self> {
        let data = py.import("os")?.call_method1("urandom", (Self::size(),))?;
        let id = ObjectId::from_bytes(data.cast::<PyBytes>()?.as_bytes()).unwrap_or_default();
        Ok(Self::nameless(id, session::client(py)?))
    }

    /// Calls a function with the value, or with the error, when it is there; on a thread of sooner's.
    #[pyo3(name = "_on_completed")]
    fn on_completed<'py>(slf: &Bound<'py, Self>, callback: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        python_side::ON_COMPLETED.call(slf.py(), (slf, callback))
    }

    /// The same, of hexadecimal digits.
    #[staticmethod]
    fn from_hex(py: Python<'_>, text: &str) -> PyResult<Self> {
        let digit_pairs = text.as_bytes().chunks(2).map(|pair| {
            std::str::from_utf8(pair)
                .ok()
                .filter(|p| p.len() == 2)
                .and_then(|p| u8::from_str_radix(p, 16).ok())
        });
        let data: Option<Vec<u8>> = digit_pairs.collect();
        let data = data.filter(|data| data.len() == Self::size()).ok_or_else(|| {
            PyValueError::new_err(format!(
                "an object id is {} hexadecimal digits, not {text:?}",
                2 * Self::size()
            ))
        })?;
        Self::from_binary(py, &data)
    }

    /// The reference that stands for nothing.
    #[staticmethod]
    fn nil(py: Python<'_>) -> PyResult<Self> {
        Ok(Self::nameless(ObjectId::default(), session::client(py)?))
    }

    /// Where the object's task was submitted, or where it was put: empty unless that is recorded, and known
    /// to its owner.
    fn call_site(&self) -> String {
        let site = self.client.step(|core, _| core.ownership().site(self.id).cloned());
        site.map(|site| site.as_str().to_owned()).unwrap_or_default()
    }

    fn tensor_transport(&self) -> Option<String> {
        None
    }

    fn redis_shard_hash(&self) -> u64 {
        self.__hash__()
    }

    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        python_side::REF_HTML.call(slf.py(), (slf,))
    }

    fn task_id<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        id_of(py, &python_side::TASK_ID, &session::hex(self.id.task))
    }

    fn job_id<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        id_of(py, &python_side::JOB_ID, &format!("{:016x}", self.client.driver.0))
    }

    fn owner_address(&self) -> String {
        format!("{:016x}", self.id.owner().0)
    }

    fn __repr__(&self) -> String {
        self.repr()
    }

    fn __hash__(&self) -> u64 {
        let mixed =
            self.id.task.number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.id.task.owner.0.rotate_left(32);
        mixed ^ u64::from(self.id.index)
    }

    fn __richcmp__(&self, other: &Bound<'_, PyAny>, op: pyo3::basic::CompareOp) -> Py<PyAny> {
        let py = other.py();
        let Ok(other) = other.cast::<Self>() else { return py.NotImplemented() };
        match op {
            pyo3::basic::CompareOp::Eq => (self.id == other.get().id).into_py_any(py),
            pyo3::basic::CompareOp::Ne => (self.id != other.get().id).into_py_any(py),
            _ => Ok(py.NotImplemented()),
        }
        .unwrap_or_else(|_| py.NotImplemented())
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let this = slf.get();
        this.check_session()?;
        this.register();
        let module = py.import("sooner._sooner")?;
        let index = WRITING.with_borrow_mut(|stack| {
            let list = stack.last_mut()?;
            list.push(slf.clone().unbind());
            Some(list.len() - 1)
        });
        if let Some(index) = index {
            return Ok((module.getattr("_met")?, (index,)).into_pyobject(py)?.into_any());
        }
        if *OUT_OF_BAND_FORBIDDEN {
            return Err(forbidden(py));
        }
        this.client.step(|core, _| core.ownership_mut().pin(this.id));
        let bytes = this.binary(py);
        Ok((module.getattr("_out_of_band")?, (bytes,)).into_pyobject(py)?.into_any())
    }

    /// A copy within the process is the reference: `__reduce__` would have its object stay for the session.
    fn __copy__(slf: &Bound<'_, Self>) -> Py<Self> {
        slf.clone().unbind()
    }

    fn __deepcopy__(slf: &Bound<'_, Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf.clone().unbind()
    }

    fn seal(slf: &Bound<'_, Self>) -> PyResult<()> {
        crate::unsealed::seal(slf)
    }

    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        python_side::AWAIT_REF.call(slf.py(), (slf,))
    }

    #[pyo3(signature = (*, copy=false))]
    fn future<'py>(slf: &Bound<'py, Self>, copy: bool) -> PyResult<Bound<'py, PyAny>> {
        python_side::TO_CONCURRENT.call(slf.py(), (slf, copy))
    }

    fn as_future<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        python_side::TO_ASYNCIO.call(slf.py(), (slf,))
    }
}

use pyo3::IntoPyObjectExt;

/// Whether references may only be pickled inside sooner.
static OUT_OF_BAND_FORBIDDEN: LazyLock<bool> = LazyLock::new(|| {
    let names = ["SOONER_ALLOW_OUT_OF_BAND_REFS", "RAY_allow_out_of_band_object_ref_serialization"];
    names.iter().any(|name| std::env::var(name).is_ok_and(|value| value == "0"))
});

fn forbidden(py: Python<'_>) -> PyErr {
    let text = "a reference is being pickled outside of sooner, which SOONER_ALLOW_OUT_OF_BAND_REFS=0 forbids: its object would stay for the rest of the session. Pass it as an argument or inside a value";
    crate::verbs::exception(py, &python_side::OUT_OF_BAND_ERROR, text)
}

/// The value that is being read: the client its references belong to, and the references.
type Reading = (Arc<Client>, Rc<Vec<Met>>);

thread_local! {
    /// References met while a value is written, one list per nested value.
    static WRITING: RefCell<Vec<Vec<Py<ObjectRef>>>> = const { RefCell::new(Vec::new()) };
    /// References of the value that is read.
    static READING: RefCell<Vec<Reading>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work`, which appends the references that it writes to `found`.
pub fn serialising<R>(found: &mut Vec<Py<ObjectRef>>, work: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
    WRITING.with_borrow_mut(|stack| stack.push(std::mem::take(found)));
    let result = work();
    *found = WRITING.with_borrow_mut(Vec::pop).expect("pushed above");
    result
}

/// Forgets the references found beyond the first `length`: the value is written again in another way.
pub fn forget_found(length: usize) {
    let forgotten = WRITING.with_borrow_mut(|stack| {
        let list = stack.last_mut()?;
        (length < list.len()).then(|| list.split_off(length))
    });
    // Their end may run code that writes a value.
    drop(forgotten);
}

/// Runs `work`, which looks references up in `met`.
pub fn deserialising<R>(client: &Arc<Client>, met: Rc<Vec<Met>>, work: impl FnOnce() -> R) -> R {
    READING.with_borrow_mut(|stack| stack.push((client.clone(), met)));
    let result = work();
    READING.with_borrow_mut(Vec::pop);
    result
}

/// The reference with this number in the value that is being read.
#[pyfunction]
pub fn _met(py: Python<'_>, index: usize) -> PyResult<Bound<'_, ObjectRef>> {
    let reference = READING
        .with_borrow(|stack| {
            let (client, met) = stack.last()?;
            let (id, slot) = met.get(index)?;
            Some(ObjectRef::new(*id, slot.clone(), client.clone()))
        })
        .ok_or_else(|| {
            PyValueError::new_err("this pickle was made inside sooner and can only be read by sooner")
        })?;
    reference.into_bound(py)
}

/// The reference with this id, from a pickle that did not pass through sooner.
#[pyfunction]
pub fn _out_of_band(py: Python<'_>, id: &[u8]) -> PyResult<ObjectRef> {
    let id = ObjectId::from_bytes(id).ok_or_else(|| PyValueError::new_err("an object id has 20 bytes"))?;
    let client = session::client(py)?;
    let slot = client.step(|core, _| {
        core.ownership_mut().pin(id);
        core.ownership_mut().meet(id)
    });
    Ok(ObjectRef::new(id, slot, client))
}

/// The ids of references, in order.
pub fn ids(refs: &[Py<ObjectRef>]) -> Vec<ObjectId> {
    refs.iter().map(|reference| reference.get().id).collect()
}

/// References collected so far for the value that is written.
pub fn found_count() -> usize {
    WRITING.with_borrow(|stack| stack.last().map_or(0, Vec::len))
}
