//! Makes hashes of strings the same in a program and all its workers. An interpreter gets the secret behind
//! them from the C library when it starts, before any code of ours runs.
//!
//! So a template is started with this library loaded before the C library (`LD_PRELOAD`), and [`getrandom`]
//! answers that one request with the secret of the driver. It leaves every other request, in any process, to
//! the C library. `docs/adr/0100-hashes-of-the-program.md`.

use std::ffi::{CStr, OsStr, c_char, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use pyo3::ffi::Py_IsInitialized;
use sooner_runtime::node::hashes::{SECRET_BYTES, SECRET_VARIABLE};
use sooner_runtime::wire::Blob;
use sooner_runtime::wire::message::HashSecret;

/// The secret of this interpreter's hashes, and the library that passes it to a template on this machine.
pub fn of_this_program() -> Option<Box<HashSecret>> {
    let secret = Blob::from(&secret()?[..]);
    Some(Box::new(HashSecret { secret, library: library().unwrap_or_default() }))
}

/// The secret of this interpreter.
fn secret() -> Option<[u8; SECRET_BYTES]> {
    // SAFETY: a question about a name. What has it is `_Py_HashSecret_t` of CPython, 24 bytes that do not
    // change any more.
    unsafe {
        let at = libc::dlsym(libc::RTLD_DEFAULT, c"_Py_HashSecret".as_ptr());
        (!at.is_null()).then(|| at.cast::<[u8; SECRET_BYTES]>().read_unaligned())
    }
}

/// The file of this library, if the interpreter that `sys.executable` names can be started with it. It must
/// be the program that this process runs, which has all that the library needs; a script around it has not.
pub fn library() -> Option<String> {
    let executable = pyo3::Python::attach(|py| {
        use pyo3::prelude::*;
        py.import("sys").ok()?.getattr("executable").ok()?.extract::<PathBuf>().ok()
    })?;
    let is_this = |path: &Path| std::fs::canonicalize(path).ok() == std::fs::read_link("/proc/self/exe").ok();
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::uninit();
    // Not `getrandom`, which is the C library's unless this library was loaded first.
    let own: *const c_void = digit as *const c_void;
    // SAFETY: the address is that of a function here, and the answer is written before it is read.
    let path = unsafe {
        if libc::dladdr(own, found.as_mut_ptr()) == 0 {
            return None;
        }
        let name = found.assume_init().dli_fname;
        if name.is_null() {
            return None;
        }
        Path::new(OsStr::from_bytes(CStr::from_ptr(name).to_bytes())).to_owned()
    };
    let path = std::fs::canonicalize(path).ok()?.into_os_string().into_string().ok()?;
    // The loader takes names apart at these.
    (is_this(&executable) && !path.contains([' ', ':', '\t', '\n'])).then_some(path)
}

/// Replaces the C library's function if this library is loaded before that one.
///
/// # Safety
/// `buffer` has room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(buffer: *mut c_void, length: usize, flags: c_uint) -> isize {
    // SAFETY: as above.
    unsafe {
        if length == SECRET_BYTES && answer(buffer.cast()) {
            return SECRET_BYTES as isize;
        }
        ask_library(buffer, length, flags)
    }
}

/// Answers the request of a starting interpreter with the secret in the environment, once. False if the
/// request is another one.
///
/// # Safety
/// `buffer` has room for a secret, and there is no other thread yet.
unsafe fn answer(buffer: *mut u8) -> bool {
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    if IS_DONE.swap(true, Ordering::Relaxed) {
        return false;
    }
    // SAFETY: the interpreter has not begun, so there is one thread, and nobody else reads or changes the
    // environment. The digits are overwritten where they are: they are not to be seen in the process's files.
    unsafe {
        if Py_IsInitialized() != 0 {
            return false;
        }
        let text: *mut c_char = libc::getenv(SECRET_VARIABLE.as_ptr());
        if text.is_null() || libc::strlen(text) != 2 * SECRET_BYTES {
            return false;
        }
        let digits = std::slice::from_raw_parts_mut(text.cast::<u8>(), 2 * SECRET_BYTES);
        for (place, pair) in digits.chunks_exact(2).enumerate() {
            let (Some(high), Some(low)) = (digit(pair[0]), digit(pair[1])) else { return false };
            buffer.add(place).write(16 * high + low);
        }
        digits.fill(b'0');
    }
    true
}

fn digit(text: u8) -> Option<u8> {
    match text {
        b'0'..=b'9' => Some(text - b'0'),
        b'a'..=b'f' => Some(text - b'a' + 10),
        _ => None,
    }
}

/// # Safety
/// As for [`getrandom`].
unsafe fn ask_library(buffer: *mut c_void, length: usize, flags: c_uint) -> isize {
    type GetRandom = unsafe extern "C" fn(*mut c_void, usize, c_uint) -> isize;
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let mut next = NEXT.load(Ordering::Relaxed);
    // SAFETY: a question about a name; what has it in the C library is this function. Without one the kernel
    // is asked.
    unsafe {
        if next.is_null() {
            next = libc::dlsym(libc::RTLD_NEXT, c"getrandom".as_ptr());
            NEXT.store(next, Ordering::Relaxed);
        }
        if next.is_null() {
            return libc::syscall(libc::SYS_getrandom, buffer, length, flags) as isize;
        }
        std::mem::transmute::<*mut c_void, GetRandom>(next)(buffer, length, flags)
    }
}
