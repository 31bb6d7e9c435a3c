//! Encodes values as bytes, and decodes them.
//!
//! Scalars and small tuples of them have a compact form. Other values are pickled with protocol 5 and
//! out-of-band buffers: plain data by the C pickler alone; values whose pickling may run code of the program
//! are pickled only once, by `sooner._values.pickling`. Buffers lie 64-byte aligned behind the pickle and are
//! read in place.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyMemoryView, PyString, PyTuple, PyType,
};
use sooner_runtime::client::{Client, NoRoom};
use sooner_runtime::protocol::worker::execution::Met;
use sooner_runtime::protocol::worker::ownership::Slot;
use sooner_runtime::store::PrivateCopy;
use sooner_runtime::wire::message::{FailureCode, Location, Outcome};
use sooner_runtime::wire::value::{
    BUFFER_ALIGNMENT, BYTES_HEAD, FORMAT_BYTES, FORMAT_PICKLE5, FORMAT_PLAIN, PickleParts, pickle_head_bytes,
};
use sooner_runtime::wire::{Blob, ObjectId};

use crate::object_ref::{ObjectRef, deserialising, forget_found, serialising};
use crate::python_side;
use crate::session::detached;

/// Items and depth of a tuple that the compact form takes.
const TUPLE_ITEMS_MAX: usize = 32;
const TUPLE_DEPTH_MAX: usize = 4;
/// Items and depth of plain data that are looked at.
const DATA_ITEMS_MAX: usize = 256;
const DATA_DEPTH_MAX: usize = 8;
/// Strings and bytes up to this size take the compact form.
const PLAIN_BYTES_MAX: usize = 64 << 10;

const NONE: u8 = 0;
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const INT: u8 = 3;
const FLOAT: u8 = 4;
const STR: u8 = 5;
const BYTES: u8 = 6;
const TUPLE: u8 = 7;

/// A value that is ready to be written somewhere.
pub enum Encoded {
    /// Complete.
    Small(Vec<u8>),
    /// A bytes object.
    Raw(Py<PyBytes>, usize),
    /// A pickle and its buffers.
    Pickled { pickle: Py<PyBytes>, buffers: Vec<PyBuffer<u8>>, size: usize },
}

/// Appends the compact form of a value; false (with nothing appended) when it has none.
pub fn encode_plain(value: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    out.push(FORMAT_PLAIN);
    if plain(value, out, 0) {
        return true;
    }
    out.truncate(start);
    false
}

fn plain(value: &Bound<'_, PyAny>, out: &mut Vec<u8>, depth: usize) -> bool {
    if value.is_none() {
        out.push(NONE);
    } else if let Ok(int) = value.cast_exact::<PyInt>() {
        let Ok(number) = int.extract::<i64>() else { return false };
        out.push(INT);
        out.extend_from_slice(&number.to_le_bytes());
    } else if let Ok(text) = value.cast_exact::<PyString>() {
        let Ok(text) = text.to_str() else { return false };
        return sized(STR, text.as_bytes(), out);
    } else if let Ok(bytes) = value.cast_exact::<PyBytes>() {
        return sized(BYTES, bytes.as_bytes(), out);
    } else if let Ok(float) = value.cast_exact::<PyFloat>() {
        out.push(FLOAT);
        out.extend_from_slice(&float.value().to_le_bytes());
    } else if let Ok(truth) = value.cast_exact::<PyBool>() {
        out.push(if truth.is_true() { TRUE } else { FALSE });
    } else if let Ok(tuple) = value.cast_exact::<PyTuple>() {
        if tuple.len() > TUPLE_ITEMS_MAX || depth >= TUPLE_DEPTH_MAX {
            return false;
        }
        out.push(TUPLE);
        out.push(u8::try_from(tuple.len()).expect("few items"));
        return tuple.iter_borrowed().all(|item| plain(&item, out, depth + 1));
    } else {
        return false;
    }
    true
}

fn sized(tag: u8, bytes: &[u8], out: &mut Vec<u8>) -> bool {
    if bytes.len() > PLAIN_BYTES_MAX {
        return false;
    }
    out.push(tag);
    out.extend_from_slice(&u32::try_from(bytes.len()).expect("bounded").to_le_bytes());
    out.extend_from_slice(bytes);
    true
}

struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> PyResult<&'a [u8]> {
        if self.bytes.len() < count {
            return Err(garbled());
        }
        let (head, rest) = self.bytes.split_at(count);
        self.bytes = rest;
        Ok(head)
    }

    fn number<const N: usize>(&mut self) -> PyResult<[u8; N]> {
        Ok(self.take(N)?.try_into().expect("took N bytes"))
    }

    fn value<'py>(&mut self, py: Python<'py>, depth: usize) -> PyResult<Bound<'py, PyAny>> {
        Ok(match self.take(1)?[0] {
            NONE => py.None().into_bound(py),
            TRUE => PyBool::new(py, true).to_owned().into_any(),
            FALSE => PyBool::new(py, false).to_owned().into_any(),
            INT => i64::from_le_bytes(self.number()?).into_pyobject(py)?.into_any(),
            FLOAT => f64::from_le_bytes(self.number()?).into_pyobject(py)?.into_any(),
            STR => {
                let length = u32::from_le_bytes(self.number()?) as usize;
                let text = std::str::from_utf8(self.take(length)?).map_err(|_| garbled())?;
                PyString::new(py, text).into_any()
            }
            BYTES => {
                let length = u32::from_le_bytes(self.number()?) as usize;
                PyBytes::new(py, self.take(length)?).into_any()
            }
            // Deeper tuples are never written, and could take the stack.
            TUPLE if depth < TUPLE_DEPTH_MAX => {
                let count = usize::from(self.take(1)?[0]);
                let items: Vec<_> = (0..count).map(|_| self.value(py, depth + 1)).collect::<PyResult<_>>()?;
                PyTuple::new(py, items)?.into_any()
            }
            _ => return Err(garbled()),
        })
    }
}

fn garbled() -> PyErr {
    pyo3::exceptions::PyValueError::new_err("the stored value is garbled: this is a defect of sooner")
}

static PICKLE_DUMPS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static PICKLE_LOADS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static VALUE_DUMPS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

fn imported<'py>(
    py: Python<'py>,
    cell: &'static PyOnceLock<Py<PyAny>>,
    module: &str,
    name: &str,
) -> PyResult<&'py Bound<'py, PyAny>> {
    let function = cell.get_or_try_init(py, || Ok::<_, PyErr>(py.import(module)?.getattr(name)?.unbind()))?;
    Ok(function.bind(py))
}

/// Encodes a value. References inside it are appended to `found`.
///
/// # Errors
/// What the pickler raised.
pub fn encode(value: &Bound<'_, PyAny>, found: &mut Vec<Py<ObjectRef>>) -> PyResult<Encoded> {
    let py = value.py();
    let mut small = Vec::with_capacity(24);
    if encode_plain(value, &mut small) {
        return Ok(Encoded::Small(small));
    }
    if let Ok(bytes) = value.cast_exact::<PyBytes>() {
        let size = BYTES_HEAD + bytes.as_bytes().len();
        return Ok(Encoded::Raw(bytes.clone().unbind(), size));
    }
    let buffers = PyList::empty(py);
    let pickle = serialising(found, || pickled(py, value, &buffers))?;
    let buffers: Vec<PyBuffer<u8>> = buffers
        .iter()
        .map(|buffer| PyBuffer::get(&buffer.call_method0(intern!(py, "raw"))?))
        .collect::<PyResult<_>>()?;
    let mut size = pickle_head_bytes(buffers.len()) + pickle.as_bytes().len();
    for buffer in &buffers {
        size = size.next_multiple_of(BUFFER_ALIGNMENT) + buffer.len_bytes();
    }
    Ok(Encoded::Pickled { pickle: pickle.unbind(), buffers, size })
}

fn pickled<'py>(
    py: Python<'py>,
    value: &Bound<'py, PyAny>,
    buffers: &Bound<'py, PyList>,
) -> PyResult<Bound<'py, PyBytes>> {
    let options = PyDict::new(py);
    options.set_item(intern!(py, "protocol"), 5)?;
    options.set_item(intern!(py, "buffer_callback"), buffers.getattr(intern!(py, "append"))?)?;
    let mut left = DATA_ITEMS_MAX;
    if is_data(value, &mut left, 0) {
        let before = crate::object_ref::found_count();
        if let Ok(pickle) = imported(py, &PICKLE_DUMPS, "pickle", "dumps")?.call((value,), Some(&options)) {
            return Ok(pickle.cast_into::<PyBytes>()?);
        }
        forget_found(before);
        buffers.del_slice(0, buffers.len())?;
    }
    let dumps = VALUE_DUMPS.get_or_try_init(py, || python_side::DUMPS.get(py).map(Bound::unbind))?;
    Ok(dumps.bind(py).call((value,), Some(&options))?.cast_into::<PyBytes>()?)
}

/// Whether a value is plain data of limited size: pickling it runs no code of the program and refers to none
/// of its names. So it may be pickled twice.
fn is_data(value: &Bound<'_, PyAny>, left: &mut usize, depth: usize) -> bool {
    if *left == 0 || depth > DATA_DEPTH_MAX {
        return false;
    }
    *left -= 1;
    if let Ok(list) = value.cast_exact::<PyList>() {
        return list.len() <= *left && list.iter().all(|item| is_data(&item, left, depth + 1));
    }
    if let Ok(tuple) = value.cast_exact::<PyTuple>() {
        return tuple.len() <= *left && tuple.iter_borrowed().all(|item| is_data(&item, left, depth + 1));
    }
    if let Ok(dict) = value.cast_exact::<PyDict>() {
        let mut is_data_too = |item: &Bound<'_, PyAny>| is_data(item, left, depth + 1);
        return dict.iter().all(|(key, value)| is_data_too(&key) && is_data_too(&value));
    }
    is_alone(value) || value.is_exact_instance_of::<PyByteArray>() || numpy_data(value)
}

/// Whether a value is a scalar or a reference: it shares nothing with other values, and contains none.
pub fn is_alone(value: &Bound<'_, PyAny>) -> bool {
    value.is_none()
        || value.is_exact_instance_of::<PyString>()
        || value.is_exact_instance_of::<PyInt>()
        || value.is_exact_instance_of::<PyFloat>()
        || value.is_exact_instance_of::<PyBool>()
        || value.is_exact_instance_of::<PyBytes>()
        || value.is_exact_instance_of::<ObjectRef>()
}

/// NumPy's types that may be plain data: its arrays and scalars.
struct NumpyTypes {
    array: Py<PyAny>,
    scalar: Py<PyAny>,
    /// May hold objects.
    record: Py<PyAny>,
}

static NUMPY: PyOnceLock<NumpyTypes> = PyOnceLock::new();

fn numpy_types(py: Python<'_>) -> Option<&'static NumpyTypes> {
    if let Some(types) = NUMPY.get(py) {
        return Some(types);
    }
    // SAFETY: the interpreter's dictionary of modules, borrowed from it; null when there is none any more.
    let modules = unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PyImport_GetModuleDict()) }?;
    let numpy = modules.cast::<PyDict>().ok()?.get_item(intern!(py, "numpy")).ok()??;
    // Another thread may be importing NumPy.
    let one = |name| numpy.getattr(name).ok().map(Bound::unbind);
    let types = NumpyTypes { array: one("ndarray")?, scalar: one("generic")?, record: one("void")? };
    let _ = NUMPY.set(py, types);
    NUMPY.get(py)
}

fn numpy_data(value: &Bound<'_, PyAny>) -> bool {
    let py = value.py();
    let kind = value.get_type();
    if !kind.is_instance_of::<PyType>() {
        return false;
    }
    let Some(types) = numpy_types(py) else { return false };
    if kind.is(&types.array) {
        // One that is read-only may have to arrive otherwise: see `sooner._values.pickling`.
        let flag = |of: &str, name: &str| value.getattr(of)?.getattr(name)?.is_truthy();
        return matches!((flag("dtype", "hasobject"), flag("flags", "writeable")), (Ok(false), Ok(true)));
    }
    // SAFETY: a type object; those that C code makes are not on the heap, those of programs are.
    let is_static = unsafe { ffi::PyType_GetFlags(kind.as_type_ptr()) } & ffi::Py_TPFLAGS_HEAPTYPE == 0;
    is_static && !kind.is(&types.record) && value.is_instance(types.scalar.bind(py)).unwrap_or(false)
}

impl Encoded {
    /// Bytes of the value.
    pub fn size(&self) -> usize {
        match self {
            Self::Small(bytes) => bytes.len(),
            Self::Raw(_, size) | Self::Pickled { size, .. } => *size,
        }
    }

    /// Writes the value to memory of its size. The GIL may be released; the buffers stay alive meanwhile.
    pub fn write(&self, py: Python<'_>, to: &mut [u8]) {
        match self {
            Self::Small(bytes) => to[..bytes.len()].copy_from_slice(bytes),
            Self::Raw(bytes, _) => {
                to[..BYTES_HEAD].fill(0);
                to[0] = FORMAT_BYTES;
                let from = bytes.as_bytes(py);
                detached(py, || sooner_runtime::store::copy::copy(&mut to[BYTES_HEAD..], from));
            }
            Self::Pickled { pickle, buffers, .. } => {
                let pickle = pickle.as_bytes(py);
                let mut at = pickle_head_bytes(buffers.len());
                to[..at].fill(0);
                to[0] = FORMAT_PICKLE5;
                to[4..8].copy_from_slice(&u32::try_from(buffers.len()).expect("few").to_le_bytes());
                to[8..16].copy_from_slice(&(pickle.len() as u64).to_le_bytes());
                for (index, buffer) in buffers.iter().enumerate() {
                    let slot = 16 + 8 * index;
                    to[slot..slot + 8].copy_from_slice(&(buffer.len_bytes() as u64).to_le_bytes());
                }
                to[at..at + pickle.len()].copy_from_slice(pickle);
                at += pickle.len();
                for buffer in buffers {
                    let start = at.next_multiple_of(BUFFER_ALIGNMENT);
                    to[at..start].fill(0);
                    at = start + buffer.len_bytes();
                    // SAFETY: `raw()` gave a contiguous buffer, which is held for as long as `self`. Another
                    // thread may write to it while it is copied, as with any memoryview; the bytes are then
                    // those of some moment.
                    let from = unsafe {
                        std::slice::from_raw_parts(buffer.buf_ptr().cast::<u8>(), buffer.len_bytes())
                    };
                    let to = &mut to[start..at];
                    if from.len() > 1 << 20 {
                        detached(py, || sooner_runtime::store::copy::copy(to, from));
                    } else {
                        to.copy_from_slice(from);
                    }
                }
            }
        }
    }

    /// The value as inline bytes.
    pub fn into_bytes(self, py: Python<'_>) -> Vec<u8> {
        match self {
            Self::Small(bytes) => bytes,
            other => {
                let mut bytes = vec![0; other.size()];
                other.write(py, &mut bytes);
                bytes
            }
        }
    }

    /// Stores the value by its size: inline, or in shared memory.
    ///
    /// # Errors
    /// `ObjectStoreFullError` when it does not fit, `LocalNodeDiedError` when the session has ended.
    pub fn store(self, py: Python<'_>, client: &Arc<Client>) -> PyResult<Outcome> {
        self.store_above(py, client, u64::MAX)
    }

    /// Like [`Encoded::store`]; more than `most` bytes go to shared memory, too.
    ///
    /// # Errors
    /// As [`Encoded::store`].
    pub fn store_above(self, py: Python<'_>, client: &Arc<Client>, most: u64) -> PyResult<Outcome> {
        if self.size() as u64 <= client.welcome.inline_bytes.min(most) {
            return Ok(Outcome::Inline(Blob::from(self.into_bytes(py))));
        }
        self.place(py, client, &[])
    }

    /// Stores the value in shared memory. `ahead`: sizes of the values that are stored next (bytes).
    ///
    /// # Errors
    /// As [`Encoded::store`].
    pub fn place(self, py: Python<'_>, client: &Arc<Client>, ahead: &[u64]) -> PyResult<Outcome> {
        let location = allocated(py, client, self.size() as u64, ahead)?;
        // SAFETY: the block was just allocated for us and nobody else knows it.
        let to = unsafe { client.mapping().bytes_mut(location.offset, location.length) };
        self.write(py, to);
        Ok(Outcome::Stored(location))
    }
}

/// A block of shared memory for a value of `size` bytes. `ahead`: as in [`Encoded::place`].
///
/// # Errors
/// As [`Encoded::store`].
pub fn allocated(py: Python<'_>, client: &Arc<Client>, size: u64, ahead: &[u64]) -> PyResult<Location> {
    detached(py, || client.allocate_with(size, ahead)).map_err(|why| not_stored(py, client, &why))
}

fn not_stored(py: Python<'_>, client: &Client, why: &NoRoom) -> PyErr {
    match client.end_reason() {
        Some(reason) => crate::session::lost(py, reason),
        None => {
            let code = if why.is_for_disk { FailureCode::OutOfDisk } else { FailureCode::StoreFull };
            crate::verbs::system_error(py, code, &why.text)
        }
    }
}

/// Whose memory the arrays of a value are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// All readers': read-only, in place.
    Shared,
    /// This process's: writable; pages are copied when they are written to.
    Private,
    /// The value itself, which no other reader knows: writable, in place.
    Sole,
    /// A value that this process makes: writable, in place, until it is sealed.
    Written,
}

/// Memory of a value, for `pickle` to build arrays on. Keeps the value alive.
#[pyclass(frozen, weakref, module = "sooner._sooner")]
pub struct View {
    keep: Keep,
    start: usize,
    length: usize,
}

enum Keep {
    Inline(Blob),
    Stored {
        client: Arc<Client>,
        object: ObjectId,
        slot: Arc<Slot>,
        location: Location,
        access: Access,
        /// One copy for all views of one read of a value; made when the first of them must be writable.
        private: Arc<OnceLock<PrivateCopy>>,
    },
}

impl Drop for View {
    fn drop(&mut self) {
        if let Keep::Stored { client, object, slot, location, access, .. } = &self.keep {
            if *access == Access::Written {
                let begin = client.mapping().pointer(location.offset, location.length) as usize;
                crate::unsealed::forget(*object, begin + self.start);
            }
            slot.drop_view();
            client.drop_handle(*object, slot);
            crate::collect::record_release();
        }
    }
}

#[pymethods]
impl View {
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let (pointer, is_read_only) = slf.get().memory();
        // SAFETY: the memory lives as long as `slf`, and is so long; what is shared is declared read-only.
        unsafe { fill(slf.as_any(), view, pointer.cast(), slf.get().length, is_read_only, flags) }
    }

    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {}
}

impl View {
    /// Memory of a value that this process writes.
    pub fn written(
        client: Arc<Client>,
        object: ObjectId,
        slot: Arc<Slot>,
        location: Location,
        part: Range<usize>,
    ) -> Self {
        slot.acquire();
        slot.add_view();
        let private = Arc::default();
        let keep = Keep::Stored { client, object, slot, location, access: Access::Written, private };
        Self { keep, start: part.start, length: part.len() }
    }

    /// Where the view begins, and whether it is read-only.
    fn memory(&self) -> (*mut u8, bool) {
        let (pointer, is_read_only) = match &self.keep {
            Keep::Inline(blob) => (blob.as_slice().as_ptr().cast_mut(), true),
            Keep::Stored { client, location, access: Access::Sole, .. } => {
                (client.mapping().pointer(location.offset, location.length), false)
            }
            Keep::Stored { client, slot, location, access: Access::Written, .. } => {
                (client.mapping().pointer(location.offset, location.length), slot.has_outcome())
            }
            Keep::Stored { client, location, access: Access::Shared, .. } => {
                (client.mapping().bytes(location.offset, location.length).as_ptr().cast_mut(), true)
            }
            Keep::Stored { private, .. } => {
                (private.get().expect("it was made before the view was").pointer(), false)
            }
        };
        // SAFETY: a view lies inside its value; `view` checks that.
        (unsafe { pointer.add(self.start) }, is_read_only)
    }
}

/// Makes sure that `private` holds a copy of a value that this process may write to.
fn make_private(client: &Client, at: Location, private: &OnceLock<PrivateCopy>) -> PyResult<()> {
    if private.get().is_none() {
        let copy = client.mapping().private_copy(at.offset, at.length);
        let copy = copy.map_err(|error| pyo3::exceptions::PyMemoryError::new_err(error.to_string()))?;
        // Another thread may have been faster.
        let _ = private.set(copy);
    }
    Ok(())
}

/// Memory with the contents of a buffer that the caller may write to: the buffer itself if it may be written
/// to, else a copy, of which pages take memory when they are written to if it is one of a stored value.
///
/// # Errors
/// A `MemoryError`, and a `TypeError` for what is no buffer.
#[pyfunction]
pub fn writable<'py>(py: Python<'py>, buffer: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    // Values hand out their memory as memoryviews of a whole `View`.
    let within =
        buffer.cast_exact::<PyMemoryView>().ok().and_then(|view| view.getattr(intern!(py, "obj")).ok());
    let buffer = within.as_ref().filter(|within| within.is_exact_instance_of::<View>()).unwrap_or(buffer);
    if let Ok(view) = buffer.cast_exact::<View>()
        && let View { keep: Keep::Stored { client, object, slot, location, access, private }, start, length } =
            view.get()
    {
        if *access != Access::Shared {
            return Ok(buffer.clone());
        }
        make_private(client, *location, private)?;
        slot.acquire();
        slot.add_view();
        let keep = Keep::Stored {
            client: client.clone(),
            object: *object,
            slot: slot.clone(),
            location: *location,
            access: Access::Private,
            private: private.clone(),
        };
        return Ok(Bound::new(py, View { keep, start: *start, length: *length })?.into_any());
    }
    let bytes = PyBuffer::<u8>::get(buffer)?;
    if bytes.readonly() { Ok(PyByteArray::from(buffer)?.into_any()) } else { Ok(buffer.clone()) }
}

/// Fills a buffer with memory of `owner`, and has it keep `owner` alive.
///
/// # Safety
/// The memory must be so long and live as long as `owner`. `view` is the interpreter's, or null.
unsafe fn fill(
    owner: &Bound<'_, PyAny>,
    view: *mut ffi::Py_buffer,
    pointer: *mut c_void,
    length: usize,
    is_read_only: bool,
    flags: c_int,
) -> PyResult<()> {
    if view.is_null() {
        return Err(PyBufferError::new_err("no buffer to fill"));
    }
    let length = ffi::Py_ssize_t::try_from(length).expect("it is in memory");
    // SAFETY: as the caller promises.
    let result = unsafe {
        ffi::PyBuffer_FillInfo(view, owner.as_ptr(), pointer, length, c_int::from(is_read_only), flags)
    };
    if result < 0 { Err(PyErr::fetch(owner.py())) } else { Ok(()) }
}

/// Memory that may only be read, passed on as memory that may be written to: it arrives as a copy of the
/// receiver's own.
#[pyclass(frozen, module = "sooner._sooner")]
pub struct Copied(PyBuffer<u8>);

#[pymethods]
impl Copied {
    #[new]
    fn new(buffer: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self(PyBuffer::get(buffer)?))
    }

    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let buffer = &slf.get().0;
        // SAFETY: the memory lives as long as `slf`. Picklers, for which this is made, only read it.
        unsafe { fill(slf.as_any(), view, buffer.buf_ptr(), buffer.len_bytes(), false, flags) }
    }

    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {}
}

/// Where a value's bytes are, for views of them.
pub struct Source<'a> {
    pub client: &'a Arc<Client>,
    pub object: ObjectId,
    pub slot: Option<&'a Arc<Slot>>,
    pub outcome: &'a Outcome,
    /// References inside the value.
    pub met: Rc<Vec<Met>>,
    pub access: Access,
}

impl Source<'_> {
    /// A part of the value for an array.
    fn part<'py>(
        &self,
        py: Python<'py>,
        part: Range<usize>,
        private: &Arc<OnceLock<PrivateCopy>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (start, length) = (part.start, part.len());
        let bytes = self.bytes()?.get(part).ok_or_else(garbled)?;
        if self.access != Access::Shared && matches!(self.outcome, Outcome::Inline(_)) {
            return Ok(PyByteArray::new(py, bytes).into_any());
        }
        // Programs may keep this object, so it is of a type that they know.
        let view = Bound::new(py, self.view(start, length, private))?;
        Ok(PyMemoryView::from(view.as_any())?.into_any())
    }

    fn bytes(&self) -> PyResult<&[u8]> {
        match self.outcome {
            Outcome::Inline(blob) => Ok(blob.as_slice()),
            Outcome::Stored(at) => Ok(self.client.mapping().bytes(at.offset, at.length)),
            // The caller has remote values brought first.
            Outcome::Failed(_) | Outcome::Remote(_) => Err(garbled()),
        }
    }

    fn view(&self, start: usize, length: usize, private: &Arc<OnceLock<PrivateCopy>>) -> View {
        let keep = match (self.outcome, self.slot) {
            (Outcome::Stored(location), Some(slot)) => {
                slot.acquire();
                slot.add_view();
                Keep::Stored {
                    client: self.client.clone(),
                    object: self.object,
                    slot: slot.clone(),
                    location: *location,
                    access: self.access,
                    private: private.clone(),
                }
            }
            (Outcome::Inline(blob), _) => Keep::Inline(blob.clone()),
            _ => unreachable!("values are inline or stored"),
        };
        View { keep, start, length }
    }

    /// The Python value.
    ///
    /// # Errors
    /// What unpickling raised.
    pub fn decode<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let bytes = self.bytes()?;
        match bytes.first() {
            Some(&FORMAT_PLAIN) => Reader { bytes: &bytes[1..] }.value(py, 0),
            Some(&FORMAT_BYTES) => {
                Ok(PyBytes::new(py, bytes.get(BYTES_HEAD..).ok_or_else(garbled)?).into_any())
            }
            Some(&FORMAT_PICKLE5) => self.unpickle(py, bytes),
            _ => Err(garbled()),
        }
    }

    fn unpickle<'py>(&self, py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        let parts = PickleParts::read(bytes).ok_or_else(garbled)?;
        let count = parts.buffers();
        let pickle = PyBytes::new(py, &bytes[parts.pickle.clone()]);
        let views = PyList::empty(py);
        let private = Arc::new(OnceLock::new());
        if let (Access::Private, Outcome::Stored(at), 1..) = (self.access, self.outcome, count) {
            make_private(self.client, *at, &private)?;
        }
        for part in parts {
            views.append(self.part(py, part.ok_or_else(garbled)?, &private)?)?;
        }
        let loads = imported(py, &PICKLE_LOADS, "pickle", "loads")?;
        let read = || {
            if count == 0 {
                return loads.call1((pickle,));
            }
            let options = PyDict::new(py);
            options.set_item(intern!(py, "buffers"), views)?;
            loads.call((pickle,), Some(&options))
        };
        if self.met.is_empty() { read() } else { deserialising(self.client, self.met.clone(), read) }
    }
}

/// Reads a value that stands inside encoded arguments: small, or a pickle with its own buffers.
pub fn decode_inline<'py>(
    py: Python<'py>,
    client: &Arc<Client>,
    bytes: &[u8],
    met: &[Met],
    access: Access,
) -> PyResult<Bound<'py, PyAny>> {
    if bytes.first() == Some(&FORMAT_PLAIN) {
        return Reader { bytes: &bytes[1..] }.value(py, 0);
    }
    let outcome = Outcome::Inline(Blob::from(bytes));
    let met = Rc::new(met.to_vec());
    let object = ObjectId::default();
    Source { client, object, slot: None, outcome: &outcome, met, access }.decode(py)
}
