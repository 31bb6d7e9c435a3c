//! What others see of a worker's process, and what must be the same for each task: its title in `ps` and
//! `top`, its standard streams, `sys.flags`.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use parking_lot::Mutex;
use pyo3::exceptions::PyOSError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use sooner_runtime::wire::Name;

use crate::python_side;

/// The memory of this process's command line, over which its title is written, as `ps` reads it.
static AREA: OnceLock<&'static [AtomicU8]> = OnceLock::new();
/// The task in the title, and the title's length (bytes).
static SHOWN: Mutex<(Option<Name>, usize)> = Mutex::new((None, 0));
/// The title is that of an actor, and does not change with its calls.
static IS_FIXED: AtomicBool = AtomicBool::new(false);

const IDLE: &str = "sooner worker";
const PREFIX: &str = "sooner::";
/// The longest name of a thread that the kernel keeps (bytes).
const THREAD_NAME_BYTES: usize = 15;

/// In the template: where its workers, which are forked from it, show their titles.
///
/// # Errors
/// When the kernel does not say where the command line is.
#[pyfunction]
pub fn title_begins() -> PyResult<()> {
    let unknown = || PyOSError::new_err("/proc/self/stat does not say where the command line is");
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let (_, rest) = stat.rsplit_once(')').ok_or_else(unknown)?;
    // Fields 48 and 49 of all, of which two stand before the bracket.
    let mut fields = rest.split_ascii_whitespace().skip(45).map(str::parse::<usize>);
    let (Some(Ok(start)), Some(Ok(end))) = (fields.next(), fields.next()) else { return Err(unknown()) };
    let command = std::fs::read("/proc/self/cmdline")?;
    if start == 0 || end.saturating_sub(start) != command.len() {
        return Err(unknown());
    }
    // SAFETY: the kernel has put the command line there, in memory of this process that can be written to and
    // is never given back. The interpreter has copied what it needs of it, and nobody writes there but this
    // module, one byte at a time.
    let area = unsafe { std::slice::from_raw_parts(start as *const AtomicU8, end - start) };
    if let Some((last, rest)) = area.split_last()
        && area.iter().map(|byte| byte.load(Ordering::Relaxed)).eq(command)
        && AREA.set(rest).is_ok()
    {
        // A last byte that is not zero tells the kernel that the area is one text, up to the first zero.
        last.store(b' ', Ordering::Relaxed);
        SHOWN.lock().1 = rest.len();
    }
    Ok(())
}

/// Sets the title of this process, and the name of its main thread, which calls this. `is_fixed`: what runs
/// does not change it.
#[pyfunction]
pub fn set_title(title: &str, is_fixed: bool) {
    IS_FIXED.store(is_fixed, Ordering::Relaxed);
    write(&mut SHOWN.lock(), &[title]);
    let end = (0..=THREAD_NAME_BYTES).rev().find(|end| title.is_char_boundary(*end)).unwrap_or(0);
    if let Ok(name) = std::ffi::CString::new(&title[..end]) {
        let _ = rustix::thread::set_name(&name);
    }
}

/// Shows the running task.
pub fn show(name: &Name) {
    if IS_FIXED.load(Ordering::Relaxed) || AREA.get().is_none() {
        return;
    }
    let mut shown = SHOWN.lock();
    if shown.0.as_ref() != Some(name) {
        shown.0 = Some(name.clone());
        write(&mut shown, &[PREFIX, name.as_str()]);
    }
}

/// Shows that this worker is idle.
pub fn show_idle() {
    if IS_FIXED.load(Ordering::Relaxed) || AREA.get().is_none() {
        return;
    }
    let mut shown = SHOWN.lock();
    if shown.0.take().is_some() {
        write(&mut shown, &[IDLE]);
    }
}

fn write(shown: &mut (Option<Name>, usize), parts: &[&str]) {
    let Some(area) = AREA.get() else { return };
    // The last byte stays zero: it ends the text.
    let mut bytes = parts.iter().flat_map(|part| part.bytes()).take(area.len().saturating_sub(1));
    let mut length = 0;
    for (at, place) in area.iter().enumerate() {
        let byte = bytes.next();
        if byte.is_none() && at >= shown.1 {
            break;
        }
        length += usize::from(byte.is_some());
        place.store(byte.unwrap_or(0), Ordering::Relaxed);
    }
    shown.1 = length;
}

/// A standard stream as each task finds it.
struct Stream {
    copy: OwnedFd,
    device: u64,
    inode: u64,
}

static STREAMS: Mutex<Option<[Stream; 3]>> = Mutex::new(None);

/// The dictionary of `sys`, and its streams as each task finds them.
struct Text {
    sys: Py<PyDict>,
    streams: [Py<PyAny>; 3],
}

static TEXT: Mutex<Option<Text>> = Mutex::new(None);

/// Puts `sys.stdin`, `sys.stdout` and `sys.stderr` back after a task that has replaced them.
pub fn mend_text_streams(py: Python<'_>) {
    if IS_FIXED.load(Ordering::Relaxed) {
        return;
    }
    let names = [intern!(py, "stdin"), intern!(py, "stdout"), intern!(py, "stderr")];
    let replaced = {
        let text = TEXT.lock();
        let Some(Text { sys, streams }) = &*text else { return };
        let is_replaced = |(name, kept): (&Bound<'_, _>, &Py<PyAny>)| {
            sys.bind(py).get_item(name).ok().flatten().is_none_or(|there| !there.is(kept))
        };
        names
            .into_iter()
            .zip(streams)
            .any(is_replaced)
            .then(|| (sys.clone_ref(py), streams.each_ref().map(|stream| stream.clone_ref(py))))
    };
    // Not under the lock: dropping what was there may run code of the user.
    if let Some((sys, streams)) = replaced
        && !are_kept(py)
    {
        for (name, kept) in names.into_iter().zip(streams) {
            let _ = sys.bind(py).set_item(name, kept);
        }
    }
}

/// Whether changed streams are to be kept; if so, keeps them.
fn are_kept(py: Python<'_>) -> bool {
    let asked = python_side::KEEPS_STREAMS.call(py, ());
    asked.and_then(|keeps| keeps.extract()).unwrap_or(false) && keep_streams(py).is_ok()
}

/// In a worker: the standard streams, and what `sys` calls so, are what they will be before each task.
///
/// # Errors
/// When there is no room for copies of the descriptors, or `sys` has no such stream.
#[pyfunction]
pub fn keep_streams(py: Python<'_>) -> PyResult<()> {
    let keep = |number| {
        let stream = borrow(number);
        let copy = rustix::io::fcntl_dupfd_cloexec(stream, 3)?;
        let found = rustix::fs::fstat(&copy)?;
        Ok::<_, rustix::io::Errno>(Stream { copy, device: found.st_dev, inode: found.st_ino })
    };
    let (Ok(input), Ok(output), Ok(error)) = (keep(0), keep(1), keep(2)) else {
        return Err(PyOSError::new_err("a worker has no room for copies of its standard streams"));
    };
    let sys = py.import("sys")?;
    let streams =
        [sys.getattr("stdin")?.unbind(), sys.getattr("stdout")?.unbind(), sys.getattr("stderr")?.unbind()];
    *STREAMS.lock() = Some([input, output, error]);
    let before = TEXT.lock().replace(Text { sys: sys.dict().unbind(), streams });
    drop(before);
    Ok(())
}

/// Puts the standard streams back, where a task has closed them or has put something else there.
#[pyfunction]
pub fn mend_streams() {
    if IS_FIXED.load(Ordering::Relaxed) {
        return;
    }
    let is_there = |(number, kept): (i32, &Stream)| {
        rustix::fs::fstat(borrow(number))
            .is_ok_and(|found| (found.st_dev, found.st_ino) == (kept.device, kept.inode))
    };
    let are_there = STREAMS.lock().as_ref().is_none_or(|streams| (0..).zip(streams).all(is_there));
    if are_there || Python::attach(are_kept) {
        return;
    }
    for (number, kept) in (0..).zip(STREAMS.lock().iter().flatten()) {
        // SAFETY: the number is that of a standard stream, which this process has and does not give away: it
        // is not closed here.
        let mut place = std::mem::ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
        let _ = rustix::io::dup2(kept.copy.as_fd(), &mut place);
        debug_assert_eq!(place.as_raw_fd(), number);
    }
}

fn borrow(number: i32) -> BorrowedFd<'static> {
    // SAFETY: only looked at by its number, also where it is closed.
    unsafe { BorrowedFd::borrow_raw(number) }
}

/// Makes `sys.flags` what it is in the program. What the flags do was said when this interpreter was started.
///
/// # Errors
/// When this interpreter has other flags.
#[pyfunction]
pub fn set_flags(py: Python<'_>, flags: &Bound<'_, PyTuple>) -> PyResult<()> {
    let own = py.import("sys")?.getattr("flags")?;
    if own.len()? != flags.len() {
        return Ok(());
    }
    // SAFETY: the type is that of a structure sequence; a new one gets all of its visible values, each with a
    // reference of its own, and those that only have names are copied from the one that was there.
    unsafe {
        let kind = ffi::Py_TYPE(own.as_ptr());
        let made = Bound::from_owned_ptr_or_err(py, ffi::PyStructSequence_New(kind))?;
        let all: ffi::Py_ssize_t = own.get_type().getattr("n_fields")?.extract()?;
        for at in 0..all {
            let value = match flags.get_item(usize::try_from(at).unwrap_or(0)) {
                Ok(value) => value.into_ptr(),
                Err(_) => ffi::Py_NewRef(ffi::PyStructSequence_GetItem(own.as_ptr(), at)),
            };
            ffi::PyStructSequence_SetItem(made.as_ptr(), at, value);
        }
        py.import("sys")?.setattr("flags", made)
    }
}
