//! State of the program that its workers follow: environment, working directory, the mask for new files,
//! `sys.path`, `sys.argv`, the key of `multiprocessing` (`docs/adr/0075-workers-follow-the-program.md`).
//!
//! The state is sent in front of the code of functions and classes, and only if it differs from what workers
//! begin with. After a change, code is defined again under a new id when it is submitted: nothing is sent
//! with a call. A worker compares one number before it runs a task. `sooner._engine.program` defines the
//! state and how a worker takes it over.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};
use sooner_runtime::wire::Blob;

use crate::python_side;

/// Begins code with a state in front of it: no pickle begins with this byte.
const MARK: u8 = b'S';
const PREFIX_BYTES: usize = 5;

/// Grows whenever the state may have changed.
static VERSION: AtomicU64 = AtomicU64::new(1);
/// `sys.path` and `sys.argv` as last seen.
static LISTS: Mutex<Option<Lists>> = Mutex::new(None);
/// Length of `sys.modules` when last seen: a new module may be the one with the key.
static MODULES_LENGTH: AtomicUsize = AtomicUsize::new(0);
static HAS_KEY: AtomicBool = AtomicBool::new(false);
/// The state, and the version at which it was read.
static STATE: Mutex<Option<(u64, State)>> = Mutex::new(None);
/// In a worker: the hash of the state that it has taken over.
static FOLLOWED: AtomicU64 = AtomicU64::new(0);

/// A state as bytes; empty: the one that workers begin with.
#[derive(Debug, Clone)]
pub struct State {
    bytes: Arc<[u8]>,
    hash: u64,
}

impl State {
    fn new(bytes: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        let hash = if bytes.is_empty() { 0 } else { hasher.finish() | 1 };
        Self { bytes: bytes.into(), hash }
    }

    /// The code with this state in front of it.
    pub fn before(&self, code: &[u8]) -> Blob {
        if self.bytes.is_empty() {
            return Blob::from(code);
        }
        let length = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        let mut all = Vec::with_capacity(PREFIX_BYTES + self.bytes.len() + code.len());
        all.push(MARK);
        all.extend(length.to_le_bytes());
        all.extend(&*self.bytes);
        all.extend(code);
        Blob::from(all.as_slice())
    }
}

/// Takes code apart: the state it was submitted with, and the pickle.
pub fn split(code: &[u8]) -> (State, &[u8]) {
    let found = (|| {
        let (mark, rest) = code.split_first()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        (*mark == MARK).then(|| rest.split_at_checked(u32::from_le_bytes(*length) as usize))?
    })();
    match found {
        Some((state, code)) => (State::new(state), code),
        None => (State::new(&[]), code),
    }
}

/// The state may have changed: the environment or the working directory was set.
#[pyfunction]
pub fn program_changed() {
    VERSION.fetch_add(1, Ordering::Relaxed);
}

/// Why somebody else than this user and the administrator decides what is at a place, if so: the place or a
/// directory on the way to it is another's, or others may write there.
///
/// # Errors
/// The system's word: nothing is there, for one.
#[pyfunction]
pub fn strangers_at(place: std::path::PathBuf) -> PyResult<Option<String>> {
    Ok(sooner_runtime::private::strangers_at(&place)?)
}

/// A list of `sys` and its items as last seen. They are kept alive, so that no other object can get the
/// address of one of them.
struct Seen {
    list: Py<PyList>,
    items: Vec<Py<PyAny>>,
}

impl Seen {
    fn now(sys: &Bound<'_, PyDict>, name: &Bound<'_, PyString>) -> Option<Self> {
        // If the program puts something else there, workers keep what they have.
        let list = sys.get_item(name).ok()??.cast_into::<PyList>().ok()?;
        let items = list.iter().map(Bound::unbind).collect();
        Some(Self { list: list.unbind(), items })
    }

    fn is_same(&self, py: Python<'_>) -> bool {
        let list = self.list.bind(py);
        list.len() == self.items.len()
            && self.items.iter().enumerate().all(|(at, item)| {
                // SAFETY: the list is that long, and nothing runs in between that could change it; the item
                // is only compared.
                unsafe { ffi::PyList_GET_ITEM(list.as_ptr(), at.cast_signed()) == item.as_ptr() }
            })
    }
}

/// The names of the lists in `sys`. They exist before [`LISTS`] is locked: interning them lets other threads
/// run.
type Names<'py> = [&'py Bound<'py, PyString>; 2];

/// The lists of `sys` that workers follow. Every call looks whether they are the same.
struct Lists {
    sys: Py<PyDict>,
    /// Of `sys`, when last seen.
    tag: Option<u64>,
    seen: [Option<Seen>; 2],
}

impl Lists {
    fn names(py: Python<'_>) -> Names<'_> {
        [intern!(py, "path"), intern!(py, "argv")]
    }

    fn now(py: Python<'_>, names: Names<'_>) -> PyResult<Self> {
        let sys = py.import("sys")?.dict();
        let seen = names.map(|name| Seen::now(&sys, name));
        let tag = tag(&sys);
        Ok(Self { sys: sys.unbind(), tag, seen })
    }

    fn are_same(&self, py: Python<'_>, names: Names<'_>) -> bool {
        self.are_in_place(py, names) && self.seen.iter().flatten().all(|seen| seen.is_same(py))
    }

    /// Whether `sys` still has the same list objects.
    fn are_in_place(&self, py: Python<'_>, names: Names<'_>) -> bool {
        let sys = self.sys.bind(py);
        if self.tag.is_some() {
            return tag(sys) == self.tag;
        }
        names.into_iter().zip(&self.seen).all(|(name, seen)| {
            let list = sys.get_item(name).ok().flatten();
            list.is_some_and(|list| seen.as_ref().is_none_or(|seen| list.is(&seen.list)))
        })
    }
}

/// A number that changes with the dictionary, in versions of Python that have one: faster than looking up a
/// name.
#[cfg(not(Py_3_12))]
fn tag(dict: &Bound<'_, PyDict>) -> Option<u64> {
    // SAFETY: a dictionary, of which a field is read.
    Some(unsafe { (*dict.as_ptr().cast::<ffi::PyDictObject>()).ma_version_tag })
}

#[cfg(Py_3_12)]
fn tag(_: &Bound<'_, PyDict>) -> Option<u64> {
    None
}

/// The version of the state, to be compared with an earlier one.
pub fn version(py: Python<'_>) -> u64 {
    static MODULES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let names = Lists::names(py);
    let are_same = LISTS.lock().as_ref().is_some_and(|lists| lists.are_same(py, names));
    if !are_same {
        let lists = Lists::now(py, names).ok();
        let before = std::mem::replace(&mut *LISTS.lock(), lists);
        // Not under the lock: the end of an item may run code of the user.
        drop(before);
        program_changed();
    }
    let sys = |name| py.import("sys").and_then(|sys| sys.getattr(name));
    if !HAS_KEY.load(Ordering::Relaxed)
        && let Ok(modules) = MODULES.get_or_try_init(py, || sys("modules")?.extract().map_err(PyErr::from))
    {
        let modules = modules.bind(py);
        if MODULES_LENGTH.load(Ordering::Relaxed) != modules.len() {
            MODULES_LENGTH.store(modules.len(), Ordering::Relaxed);
            if modules.contains(intern!(py, "multiprocessing.process")).unwrap_or(false) {
                HAS_KEY.store(true, Ordering::Relaxed);
                program_changed();
            }
        }
    }
    VERSION.load(Ordering::Relaxed)
}

/// The state of this program; in a worker, the state that it has taken over.
///
/// # Errors
/// What Python raised.
pub fn state(py: Python<'_>, is_worker: bool, looks_again: bool) -> PyResult<State> {
    let now = version(py);
    let known = STATE.lock().clone();
    match known {
        Some((_, state)) if is_worker => return Ok(state),
        None if is_worker => return Ok(State::new(&[])),
        Some((then, state)) if then == now && !looks_again => return Ok(state),
        Some(_) | None => {}
    }
    let found = python_side::PROGRAM_STATE.call(py, ())?;
    let state = State::new(found.cast::<PyBytes>()?.as_bytes());
    *STATE.lock() = Some((now, state.clone()));
    Ok(state)
}

/// Whether this worker has taken over the state.
pub fn is_followed(state: &State) -> bool {
    FOLLOWED.load(Ordering::Relaxed) == state.hash
}

/// Before a task runs, or its code is read, or an actor is constructed: the worker takes over the state.
///
/// # Errors
/// What Python raised.
pub fn follow(py: Python<'_>, state: &State) -> PyResult<()> {
    python_side::PROGRAM_FOLLOW.call(py, (PyBytes::new(py, &state.bytes),))?;
    FOLLOWED.store(state.hash, Ordering::Relaxed);
    *STATE.lock() = Some((0, state.clone()));
    program_changed();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_without_a_state_stays_as_it_is() {
        let pickled = b"\x80\x05code";
        assert_eq!(State::new(&[]).before(pickled).as_slice(), pickled);
        let (state, code) = split(pickled);
        assert_eq!((state.hash, code), (0, &pickled[..]));
    }

    #[test]
    fn a_state_is_found_again_before_its_code() {
        let state = State::new(b"state");
        let all = state.before(b"\x80\x05code");
        let (found, code) = split(all.as_slice());
        assert_eq!((&*found.bytes, found.hash, code), (&b"state"[..], state.hash, &b"\x80\x05code"[..]));
    }
}
