//! Arrays in shared memory that this process writes in place, until they are sealed: `sooner.empty`.
//!
//! Which object may be sealed when is decided in `sooner_protocol::worker::memory`. This module makes the
//! memory, finds it again in what a task returns, and never copies what need not be copied.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use sooner_runtime::client::Client;
use sooner_runtime::protocol::worker::ownership::Slot;
use sooner_runtime::wire::ObjectId;
use sooner_runtime::wire::message::{Location, Outcome};
use sooner_runtime::wire::value::{BUFFER_ALIGNMENT, FORMAT_PICKLE5, pickle_head_bytes};

use crate::object_ref::ObjectRef;
use crate::python_side;
use crate::session;
use crate::values::{Encoded, View, allocated};

/// Bytes for the pickle in front of an array, at least: what a task returns may be the array in another
/// shape, or with something beside it.
const PICKLE_ROOM: usize = 1024;

/// Arrays that are written, by their address. Nothing runs Python under the lock.
static ARRAYS: Mutex<BTreeMap<usize, Array>> = Mutex::new(BTreeMap::new());
/// How many they are: nearly always none.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// An array that is written. It is no handle of its object: its memory is.
#[derive(Clone)]
struct Array {
    client: Arc<Client>,
    object: ObjectId,
    slot: Arc<Slot>,
    block: Location,
    /// Bytes of the array, at the end of the block.
    length: usize,
}

impl Array {
    fn address(&self) -> usize {
        self.client.mapping().pointer(self.block.offset, self.block.length) as usize + self.start()
    }

    fn start(&self) -> usize {
        usize::try_from(self.block.length).expect("it is in memory") - self.length
    }
}

/// Memory for an array of `size` bytes, whose pickle without its elements is `pickle`: a buffer, and the
/// reference of the object.
///
/// # Errors
/// `ObjectStoreFullError` when it does not fit, `LocalNodeDiedError` when the session has ended.
#[pyfunction]
pub fn create<'py>(
    py: Python<'py>,
    pickle: &[u8],
    size: u64,
) -> PyResult<(Bound<'py, View>, Bound<'py, ObjectRef>)> {
    let _inside = session::Inside::enter(py);
    let client = session::client(py)?;
    let start = (pickle_head_bytes(1) + pickle.len().max(PICKLE_ROOM)).next_multiple_of(BUFFER_ALIGNMENT);
    let block = allocated(py, &client, (start as u64).saturating_add(size), &[])?;
    // SAFETY: the block was just allocated for us and nobody else knows it.
    let head = unsafe { client.mapping().bytes_mut(block.offset, start as u64) };
    head.fill(0);
    head[0] = FORMAT_PICKLE5;
    head[4..8].copy_from_slice(&1_u32.to_le_bytes());
    // What follows a pickle is not read.
    head[8..16].copy_from_slice(&((start - pickle_head_bytes(1)) as u64).to_le_bytes());
    head[16..24].copy_from_slice(&size.to_le_bytes());
    write_pickle(head, pickle);
    let object = client.next_task().object(0);
    let slot = Arc::new(Slot::default());
    let reference = ObjectRef::new(object, slot.clone(), client.clone());
    client.step(|core, _| core.create(object, slot.clone(), block));
    reference.record_site(py);
    let length = usize::try_from(size).expect("it is in memory");
    let view = View::written(client.clone(), object, slot.clone(), block, start..start + length);
    let array = Array { client, object, slot, block, length };
    if length > 0 {
        ARRAYS.lock().insert(array.address(), array);
        COUNT.fetch_add(1, Ordering::Relaxed);
    }
    Ok((Bound::new(py, view)?, reference.into_bound(py)?))
}

/// The memory of an array is not held any more.
pub fn forget(object: ObjectId, address: usize) {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return;
    }
    let mut arrays = ARRAYS.lock();
    if arrays.get(&address).is_some_and(|array| array.object == object) {
        let array = arrays.remove(&address);
        COUNT.fetch_sub(1, Ordering::Relaxed);
        drop(arrays);
        drop(array);
    }
}

/// Declares the value of a reference complete. See `sooner.ObjectRef.seal`.
///
/// # Errors
/// A `ValueError` when this process does not write it.
pub fn seal(reference: &Bound<'_, ObjectRef>) -> PyResult<()> {
    let this = reference.get();
    this.check_session()?;
    if !this.client.step(|core, out| core.seal(this.id, out)) {
        return Err(PyValueError::new_err(format!(
            "{} is not an array that is being written here: it is sealed already, was not made by sooner.empty(), or was \
             made by another process. Only the process that made the array can seal it, once",
            this.repr()
        )));
    }
    python_side::SEALED.call(reference.py(), (reference,))?;
    Ok(())
}

/// Seals those of the references inside a returned value whose arrays this process writes: the task that
/// wrote them has ended.
///
/// # Errors
/// What [`seal`] raises.
pub fn seal_returned(py: Python<'_>, references: &[Py<ObjectRef>]) -> PyResult<()> {
    for reference in references {
        let this = reference.get();
        if this.client.step(|core, _| core.unsealed().contains(this.id)) {
            seal(reference.bind(py))?;
        }
    }
    Ok(())
}

/// Refuses to wait for ever for `wanted` values, if one must be an array that this process writes, and it has
/// no other thread to seal it.
///
/// # Errors
/// A `ValueError`.
pub fn refuse_own(py: Python<'_>, references: &[Bound<'_, ObjectRef>], wanted: usize) -> PyResult<()> {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return Ok(());
    }
    let is_unsealed = |this: &ObjectRef| this.client.step(|core, _| core.unsealed().contains(this.id));
    let unsealed: Vec<_> = references.iter().filter(|reference| is_unsealed(reference.get())).collect();
    let Some(first) = unsealed.first().filter(|_| references.len() - unsealed.len() < wanted) else {
        return Ok(());
    };
    if py.import("threading")?.call_method0("active_count")?.extract::<usize>()? > 1 {
        return Ok(());
    }
    Err(PyValueError::new_err(format!(
        "{} would never be ready: this thread writes the array and waits for it. Call seal() on the reference when the array \
         is written, or use the array itself",
        first.get().repr()
    )))
}

/// What a task returns, if its one buffer is a whole array that is written here.
pub struct Returned {
    array: Array,
    pickle: Py<PyBytes>,
    /// Keeps the block until it is clear whose it is.
    _handle: ObjectRef,
}

impl Returned {
    /// Takes apart an encoded value, or gives it back.
    pub fn of(py: Python<'_>, client: &Arc<Client>, encoded: Encoded) -> Result<Self, Encoded> {
        let found = match &encoded {
            Encoded::Pickled { pickle, buffers, .. } if COUNT.load(Ordering::Relaxed) > 0 => {
                match &buffers[..] {
                    [buffer] => {
                        found(client, buffer.buf_ptr() as usize, buffer.len_bytes(), pickle.as_bytes(py))
                    }
                    _ => None,
                }
            }
            _ => None,
        };
        match (found, encoded) {
            (Some(array), Encoded::Pickled { pickle, .. }) => {
                let handle = ObjectRef::new(array.object, array.slot.clone(), array.client.clone());
                Ok(Self { array, pickle, _handle: handle })
            }
            (_, encoded) => Err(encoded),
        }
    }

    /// The value as an outcome: its block, if nobody else has the array or its reference, else a copy. It
    /// stays in shared memory even if it is small: the program has put it there. Call it when the value that
    /// was encoded is dropped.
    ///
    /// # Errors
    /// As [`create`].
    pub fn store(self, py: Python<'_>) -> PyResult<Outcome> {
        let Array { client, object, block, .. } = &self.array;
        let taken = client.step(|core, out| core.on_written_returned(*object, out));
        let place = match taken {
            Some(taken) => taken,
            None => allocated(py, client, block.length, &[])?,
        };
        // SAFETY: the block is this value's alone, and nobody knows it yet.
        let to = unsafe { client.mapping().bytes_mut(place.offset, place.length) };
        if taken.is_none() {
            let from = client.mapping().bytes(block.offset, block.length);
            session::detached(py, || sooner_runtime::store::copy::copy(to, from));
        }
        write_pickle(to, self.pickle.as_bytes(py));
        Ok(Outcome::Stored(place))
    }
}

/// The array at an address, if it is written here, whole, and has room for this pickle.
fn found(client: &Arc<Client>, address: usize, length: usize, pickle: &[u8]) -> Option<Array> {
    let array = ARRAYS.lock().get(&address).cloned()?;
    let room = array.start() - pickle_head_bytes(1);
    (Arc::ptr_eq(&array.client, client) && array.length == length && pickle.len() <= room).then_some(array)
}

/// Writes the pickle of a value with one buffer. What follows it is not read.
fn write_pickle(value: &mut [u8], pickle: &[u8]) {
    value[pickle_head_bytes(1)..][..pickle.len()].copy_from_slice(pickle);
}
