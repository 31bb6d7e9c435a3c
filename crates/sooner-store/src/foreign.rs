//! Read-only access to the memory of another node on this machine.
//!
//! A value goes from one node to another with one copy and without a socket. The other node, the lender,
//! keeps the bytes until it learns that they were copied. A lender that gives up waiting, because this
//! process stood still for too long, clears a cell of its memory before it changes the bytes. So the copy
//! counts only if the cell has the same content after it as before; and a dead lender changes nothing any
//! more.
//!
//! Nothing of the lender's memory is ever written, and it is only read as plain bytes.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rustix::fs::{Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::ProtFlags;
use sooner_wire::limits::LENDING_CELLS;

use crate::mapping::LENDING_AT;
use crate::{Mapping, copy, huge};

/// How other nodes of the machine find the memory of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Whereabouts {
    /// A process that has the memory open.
    pub process: u32,
    /// The number of the descriptor in that process.
    pub descriptor: u32,
    /// The inode, by which the memory is recognised.
    pub inode: u64,
    /// The size of the memory (bytes).
    pub bytes: u64,
}

/// See the module.
#[derive(Debug)]
pub struct ForeignMemory {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping is plain memory that stays mapped until drop, and nothing is written to it.
unsafe impl Send for ForeignMemory {}
// SAFETY: as above.
unsafe impl Sync for ForeignMemory {}

impl Mapping {
    /// How other nodes find this memory, for as long as its descriptor is open.
    #[must_use]
    pub fn whereabouts(&self) -> Option<Whereabouts> {
        use std::os::fd::AsRawFd;
        let descriptor = self.descriptor()?;
        let inode = rustix::fs::fstat(&descriptor).ok()?.st_ino;
        let number = u32::try_from(descriptor.as_raw_fd()).ok()?;
        Some(Whereabouts {
            process: std::process::id(),
            descriptor: number,
            inode,
            bytes: self.total_bytes(),
        })
    }
}

impl ForeignMemory {
    /// Maps the memory.
    ///
    /// # Errors
    /// The kernel's error; [`Errno::STALE`] if something else is there than `at` describes. The kernel opens
    /// it only for the same user.
    pub fn open(at: &Whereabouts) -> Result<Self, Errno> {
        let path = format!("/proc/{}/fd/{}", at.process, at.descriptor);
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let descriptor: OwnedFd = rustix::fs::open(path, flags, Mode::empty())?;
        let found = rustix::fs::fstat(&descriptor)?;
        // Memory that cannot shrink can be read without further checks.
        let is_sealed =
            rustix::fs::fcntl_get_seals(&descriptor).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        let is_it = found.st_ino == at.inode && u64::try_from(found.st_size) == Ok(at.bytes);
        if !is_sealed || !is_it || at.bytes < Mapping::header_bytes() {
            return Err(Errno::STALE);
        }
        let length = usize::try_from(at.bytes).map_err(|_| Errno::NOMEM)?;
        let start = huge::map(&descriptor, length, ProtFlags::READ)?;
        Ok(Self { start, length })
    }

    /// Copies bytes to the whole of `to`. False if they are not within the memory, or were no longer lent
    /// when the copy was made: then the content of `to` is meaningless.
    #[must_use]
    pub fn read(&self, offset: u64, to: &mut [u8], cell: u32, lender: u64) -> bool {
        let end = offset.checked_add(to.len() as u64);
        let is_within = offset >= Mapping::header_bytes() && end.is_some_and(|end| end <= self.length as u64);
        if !is_within || !self.is_lent(cell, lender) {
            return false;
        }
        // SAFETY: the range is inside the mapping. If its owner writes to it meanwhile, what was copied is
        // not used.
        let from = unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(offset as usize), to.len()) };
        copy::copy(to, from);
        fence(Ordering::SeqCst);
        self.is_lent(cell, lender)
    }

    fn is_lent(&self, cell: u32, lender: u64) -> bool {
        let at = LENDING_AT + (cell as usize % LENDING_CELLS) * 8;
        // SAFETY: cells lie inside the header, are aligned to 8 bytes, and are only accessed as atomics.
        let cell = unsafe { &*self.start.as_ptr().add(at).cast::<AtomicU64>() };
        cell.load(Ordering::SeqCst) == lender
    }
}

impl Drop for ForeignMemory {
    fn drop(&mut self) {
        // SAFETY: mapped in `open`, and no slice outlives the call that made it.
        unsafe {
            let _ = rustix::mm::munmap(self.start.as_ptr().cast(), self.length);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENDER: u64 = 7;

    fn memory() -> (Mapping, ForeignMemory, u64) {
        let mapping = Mapping::create(1 << 20).expect("memory");
        let block = Mapping::header_bytes() + 64;
        // SAFETY: nobody else knows the block.
        unsafe { mapping.bytes_mut(block, 5) }.copy_from_slice(b"value");
        let foreign = ForeignMemory::open(&mapping.whereabouts().expect("open")).expect("the same user");
        (mapping, foreign, block)
    }

    #[test]
    fn what_is_lent_is_read_and_what_is_not_is_not() {
        let (mapping, foreign, block) = memory();
        let mut bytes = [0; 5];
        assert!(!foreign.read(block, &mut bytes, 0, LENDER));
        let cell = mapping.begin_lending(LENDER).expect("free");
        assert!(foreign.read(block, &mut bytes, cell, LENDER));
        assert_eq!(&bytes, b"value");
        assert!(!foreign.read(block, &mut bytes, cell, LENDER + 1), "another connection's");
        assert_ne!(mapping.begin_lending(LENDER + 1), Some(cell));
        mapping.end_lending(cell);
        assert!(!foreign.read(block, &mut bytes, cell, LENDER));
        assert_eq!(mapping.begin_lending(LENDER + 2), Some(cell), "it is free again");
    }

    #[test]
    fn nothing_outside_is_read() {
        let (mapping, foreign, _) = memory();
        let cell = mapping.begin_lending(LENDER).expect("free");
        for offset in
            [0, Mapping::header_bytes() - 1, mapping.total_bytes() - 4, mapping.total_bytes(), u64::MAX]
        {
            assert!(!foreign.read(offset, &mut [0; 5], cell, LENDER), "{offset}");
        }
    }

    #[test]
    fn something_else_than_was_told_is_not_opened() {
        let (mapping, ..) = memory();
        let at = mapping.whereabouts().expect("open");
        for wrong in [
            Whereabouts { inode: at.inode + 1, ..at },
            Whereabouts { bytes: at.bytes + 4096, ..at },
            Whereabouts { descriptor: u32::MAX, ..at },
            Whereabouts { process: 0, ..at },
            Whereabouts { descriptor: 0, ..at },
        ] {
            assert!(ForeignMemory::open(&wrong).is_err(), "{wrong:?}");
        }
        mapping.close_descriptor();
        assert_eq!(mapping.whereabouts(), None);
        assert!(ForeignMemory::open(&at).is_err());
    }

    #[test]
    fn there_are_so_many_cells_and_no_more() {
        let (mapping, ..) = memory();
        let cells: Vec<_> = (1..=LENDING_CELLS as u64).map(|lender| mapping.begin_lending(lender)).collect();
        assert!(cells.iter().all(Option::is_some));
        assert_eq!(mapping.begin_lending(u64::MAX), None);
    }
}
