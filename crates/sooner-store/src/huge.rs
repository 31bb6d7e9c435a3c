//! Huge pages for a node's shared memory.
//!
//! With a page of 2 MiB instead of 512 of 4 KiB, reserving, touching and giving back a large value take a
//! fraction of the time, and random access in it misses fewer address translations. Kernels give shared
//! memory no huge pages by default (`/sys/kernel/mm/transparent_hugepage/shmem_enabled`), but make them of
//! pages that are there when a process asks for it (`MADV_COLLAPSE`, Linux 6.1). So one small page of each
//! huge page is reserved first, and the kernel adds the rest.
//!
//! It never waits for huge pages: if the kernel has none, pages stay small, and the kernel is not asked again
//! for a while.

use std::os::fd::AsFd;
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

/// Bytes of a huge page. On machines with larger ones the kernel refuses, and pages stay small.
pub const HUGE_BYTES: u64 = 2 << 20;

/// How many bytes are reserved in small pages after a refusal: the kernel takes time to look for huge pages.
const PAUSE_BYTES: u64 = 1 << 30;

/// Maps all of a file so that its huge pages are aligned in memory: both begin at multiples of their size.
///
/// # Errors
/// The kernel's error.
pub fn map(descriptor: impl AsFd, length: usize, protection: ProtFlags) -> Result<NonNull<u8>, Errno> {
    let huge = HUGE_BYTES as usize;
    let whole = length.checked_next_multiple_of(rustix::param::page_size());
    let reserved = whole.and_then(|whole| whole.checked_add(huge)).ok_or(Errno::NOMEM)?;
    let nothing = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a fresh mapping at an address the kernel chooses touches no memory of ours.
    let start =
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), reserved, ProtFlags::empty(), nothing) }?
            .cast::<u8>();
    let before = start.align_offset(huge);
    let after = huge - before;
    let flags = MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED;
    // SAFETY: within what was reserved above, which nobody else knows.
    let mapped = unsafe {
        let first = start.add(before);
        if before > 0 {
            let _ = rustix::mm::munmap(start.cast(), before);
        }
        let _ = rustix::mm::munmap(start.add(reserved - after).cast(), after);
        rustix::mm::mmap(first.cast(), length, protection, flags, descriptor, 0).inspect_err(|_| {
            let _ = rustix::mm::munmap(first.cast(), reserved - before - after);
        })
    }?;
    NonNull::new(mapped.cast()).ok_or(Errno::FAULT)
}

/// Asks the kernel to make huge pages of a range of shared memory. Each must have at least one page there.
///
/// # Errors
/// The kernel's error; some of the pages may be huge then.
///
/// # Safety
/// The range is mapped.
pub unsafe fn collapse(start: *mut u8, length: usize) -> Result<(), Errno> {
    // SAFETY: by the caller's promise; what can be read there stays the same.
    match unsafe { libc::madvise(start.cast(), length, libc::MADV_COLLAPSE) } {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)),
    }
}

/// Whether to ask the kernel for huge pages.
#[derive(Debug, Default, PartialEq, Eq)]
pub enum Willing {
    /// Nothing speaks against asking.
    #[default]
    Yes,
    /// There were none: ask again after so many bytes were reserved.
    After(u64),
    /// The kernel does not support them, or may not give them to this process.
    Never,
}

impl Willing {
    /// Whether to ask for huge pages, when `bytes` are to be reserved.
    pub fn wants(&mut self, bytes: u64) -> bool {
        *self = match *self {
            Self::After(left) if left > bytes => Self::After(left - bytes),
            Self::After(_) => Self::Yes,
            Self::Yes => return true,
            Self::Never => Self::Never,
        };
        false
    }

    /// The kernel has refused.
    pub fn refused(&mut self, error: Errno) {
        *self = match error {
            Errno::INVAL | Errno::NOSYS | Errno::PERM | Errno::ACCESS => Self::Never,
            _ => Self::After(PAUSE_BYTES),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_begins_where_a_huge_page_can() {
        let file = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).expect("a memfd");
        for length in [1, 4096, 4097, HUGE_BYTES as usize, 3 * HUGE_BYTES as usize + 5] {
            rustix::fs::ftruncate(&file, length as u64).expect("its length");
            let start = map(&file, length, ProtFlags::READ | ProtFlags::WRITE).expect("a mapping");
            assert!((start.as_ptr() as u64).is_multiple_of(HUGE_BYTES));
            // SAFETY: mapped above.
            unsafe {
                start.as_ptr().add(length - 1).write(7);
                assert_eq!(start.as_ptr().add(length - 1).read(), 7);
                rustix::mm::munmap(start.as_ptr().cast(), length).expect("mapped");
            }
        }
    }

    #[test]
    fn a_kernel_without_them_is_asked_again_later_or_never() {
        let mut willing = Willing::default();
        assert!(willing.wants(5));
        willing.refused(Errno::NOMEM);
        assert!(!willing.wants(PAUSE_BYTES - 1) && !willing.wants(1));
        assert!(willing.wants(1));
        willing.refused(Errno::INVAL);
        assert!(!willing.wants(2 * PAUSE_BYTES) && !willing.wants(1));
    }
}
