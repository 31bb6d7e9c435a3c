//! A node's shared memory, mapped into this process. The only place of the engine that hands out raw memory.
//!
//! The memory is a memfd: it has no name that could leak or be guessed, and is freed with its last holder. It
//! is sealed against shrinking, so that no reader can meet SIGBUS by truncation. Every process of the node
//! maps all of it. The protocol determines which process may read or write which part: a block is written by
//! its creator before any other process learns of it, and never after.
//!
//! The first bytes are progress cells, one per process, in which it records the task it began last. From
//! these the node reads after a crash which tasks were not begun, and before that what each process runs
//! ([`Begun`]). Behind them are lending cells, in which other nodes of this machine see whether the bytes
//! lent to them are still unchanged ([`crate::ForeignMemory`]).
//!
//! Behind the memory there may be a file without a name ([`crate::FallbackFile`]). Its offsets follow those
//! of the memory, so that readers need not distinguish its values. No block lies in both.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use sooner_wire::limits::{LENDING_CELLS, PROGRESS_CELLS};
use sooner_wire::message::TaskSpec;
use sooner_wire::{FunctionId, Started, TaskId, WorkerId};

use crate::huge;

/// Bytes of a task's name in a progress cell; longer names are cut.
const CELL_NAME_BYTES: usize = 96;
/// Bits below the length of the name: whether the task is retried, and whether it belongs to an actor.
const ABOUT_BITS: u32 = 2;
/// Words of one progress cell: owner and number of a task, its function, its flags and the length of its
/// name, and the name.
const CELL_WORDS: usize = 4 + CELL_NAME_BYTES / 8;
/// Bytes of one progress cell.
const CELL_BYTES: usize = CELL_WORDS * 8;
/// The offset of the lending cells, of eight bytes each.
pub(crate) const LENDING_AT: usize = PROGRESS_CELLS * CELL_BYTES;

/// What the progress cell of a process tells of the task that it began last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begun {
    /// The task.
    pub task: TaskId,
    /// The function it calls; zero for calls of actors.
    pub function: FunctionId,
    /// The task is retried if its node stops it because memory ran out.
    pub is_retriable: bool,
    /// The beginning of its name.
    pub name: String,
}

/// What can go wrong with the shared memory.
#[derive(Debug, thiserror::Error)]
pub enum MappingError {
    /// The kernel refused the memory.
    #[error("cannot create {bytes} bytes of shared memory: {source}. Ask for less with object_store_memory")]
    Create {
        /// Size asked for.
        bytes: u64,
        /// The kernel's error.
        source: rustix::io::Errno,
    },
    /// The kernel refused the mapping.
    #[error("cannot map {bytes} bytes of shared memory: {source}")]
    Map {
        /// Size asked for.
        bytes: u64,
        /// The kernel's error.
        source: rustix::io::Errno,
    },
}

/// See the module.
#[derive(Debug)]
pub struct Mapping {
    memory: Region,
    /// The file behind the memory.
    fallback: Option<Region>,
}

/// Memory behind one descriptor, mapped twice.
#[derive(Debug)]
struct Region {
    /// For creating values, and for the cells.
    start: NonNull<u8>,
    /// For reading values: write-protected, so that no reader can change a value for other processes.
    readable: NonNull<u8>,
    length: usize,
    /// For passing on and for private copies; `None` when the session is over.
    descriptor: Mutex<Option<Arc<OwnedFd>>>,
}

/// A value's bytes as memory of this process alone: pages are copied when they are first written to. The
/// block must not be freed meanwhile, because pages not yet written to are still those of the block.
#[derive(Debug)]
pub struct PrivateCopy {
    start: NonNull<u8>,
    mapped: usize,
    skip: usize,
}

// SAFETY: plain memory that stays mapped until drop; whoever writes to it is the user's code, as for any
// array.
unsafe impl Send for PrivateCopy {}
// SAFETY: as above.
unsafe impl Sync for PrivateCopy {}

impl PrivateCopy {
    /// The first byte of the value.
    #[must_use]
    pub fn pointer(&self) -> *mut u8 {
        // SAFETY: `skip` is less than a page, and the mapping is at least that long.
        unsafe { self.start.as_ptr().add(self.skip) }
    }
}

impl Drop for PrivateCopy {
    fn drop(&mut self) {
        // SAFETY: mapped in `private_copy`; nobody uses it beyond its holder.
        unsafe {
            let _ = rustix::mm::munmap(self.start.as_ptr().cast(), self.mapped);
        }
    }
}

// SAFETY: the mapping is plain memory that stays mapped until drop; access rules are those of the module.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    fn map(descriptor: OwnedFd, total: u64) -> Result<Self, MappingError> {
        let map = |source| MappingError::Map { bytes: total, source };
        let length = usize::try_from(total).map_err(|_| map(Errno::NOMEM))?;
        let start = huge::map(&descriptor, length, ProtFlags::READ | ProtFlags::WRITE).map_err(map)?;
        let readable = huge::map(&descriptor, length, ProtFlags::READ).map_err(map).inspect_err(|_| {
            // SAFETY: mapped above, and nobody has seen it.
            let _ = unsafe { rustix::mm::munmap(start.as_ptr().cast(), length) };
        })?;
        Ok(Self { start, readable, length, descriptor: Mutex::new(Some(Arc::new(descriptor))) })
    }

    /// The address of an offset, which must be inside.
    fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset <= self.length);
        // SAFETY: inside the mapping.
        unsafe { self.start.as_ptr().add(offset) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped in `map`, and no slice outlives the `Mapping` that this belongs to.
        unsafe {
            let _ = rustix::mm::munmap(self.start.as_ptr().cast(), self.length);
            let _ = rustix::mm::munmap(self.readable.as_ptr().cast(), self.length);
        }
    }
}

impl Mapping {
    /// Bytes at the start that hold no objects.
    #[must_use]
    pub fn header_bytes() -> u64 {
        (LENDING_AT + LENDING_CELLS * 8).next_multiple_of(4096) as u64
    }

    /// Creates the memory of a node, with room for `bytes` of objects.
    ///
    /// # Errors
    /// [`MappingError`] when the kernel refuses.
    pub fn create(bytes: u64) -> Result<Self, MappingError> {
        let total = bytes + Self::header_bytes();
        let create = |source| MappingError::Create { bytes, source };
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let descriptor = rustix::fs::memfd_create("sooner-objects", flags).map_err(create)?;
        rustix::fs::ftruncate(&descriptor, total).map_err(create)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&descriptor, seals).map_err(create)?;
        Self::open(descriptor, total)
    }

    /// Maps the memory behind a descriptor that the node passed.
    ///
    /// # Errors
    /// [`MappingError`] when the kernel refuses.
    pub fn open(descriptor: OwnedFd, total: u64) -> Result<Self, MappingError> {
        Ok(Self { memory: Region::map(descriptor, total)?, fallback: None })
    }

    /// Adds `bytes` bytes of this file behind the memory.
    ///
    /// # Errors
    /// [`MappingError`] when the kernel refuses.
    pub fn with_fallback(self, file: OwnedFd, bytes: u64) -> Result<Self, MappingError> {
        Ok(Self { fallback: Some(Region::map(file, bytes)?), ..self })
    }

    /// The descriptor to pass to other processes, until it is closed.
    #[must_use]
    pub fn descriptor(&self) -> Option<Arc<OwnedFd>> {
        self.memory.descriptor.lock().clone()
    }

    /// The descriptor of the file behind the memory, if there is one, until it is closed.
    #[must_use]
    pub fn fallback_descriptor(&self) -> Option<Arc<OwnedFd>> {
        self.fallback.as_ref()?.descriptor.lock().clone()
    }

    /// Closes the descriptors; the memory stays mapped.
    pub fn close_descriptor(&self) {
        self.memory.descriptor.lock().take();
        if let Some(fallback) = &self.fallback {
            fallback.descriptor.lock().take();
        }
    }

    /// The bytes of a sealed value, for this process to change. Pages are copied when written to.
    ///
    /// # Errors
    /// [`MappingError`] when the kernel refuses.
    ///
    /// # Panics
    /// When the range is outside the memory.
    pub fn private_copy(&self, offset: u64, length: u64) -> Result<PrivateCopy, MappingError> {
        let (region, offset, length) = self.range(offset, length);
        let page = rustix::param::page_size();
        let skip = offset % page;
        let mapped = length + skip;
        let map = |source| MappingError::Map { bytes: mapped as u64, source };
        let descriptor = region.descriptor.lock().clone().ok_or_else(|| map(Errno::BADF))?;
        // SAFETY: a fresh mapping at an address the kernel chooses touches no memory of ours.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                mapped,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
                &*descriptor,
                (offset - skip) as u64,
            )
        }
        .map_err(map)?;
        let start = NonNull::new(start.cast()).ok_or_else(|| map(Errno::FAULT))?;
        Ok(PrivateCopy { start, mapped, skip })
    }

    /// The bytes of a sealed value, to be changed by the only process that knows it.
    ///
    /// # Panics
    /// When the range is outside the memory.
    #[must_use]
    pub fn pointer(&self, offset: u64, length: u64) -> *mut u8 {
        let (region, offset, _) = self.range(offset, length);
        region.at(offset)
    }

    /// Asks for huge pages for a range. Each must have at least one page there.
    ///
    /// # Errors
    /// The kernel's error: it has no huge pages, or gives none to shared memory.
    ///
    /// # Panics
    /// When the range is outside the memory.
    pub fn collapse(&self, offset: u64, length: u64) -> Result<(), Errno> {
        let (region, offset, length) = self.range(offset, length);
        // SAFETY: the range is inside the mapping.
        unsafe { huge::collapse(region.at(offset), length) }
    }

    /// Bytes of memory, without the file behind it.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.memory.length as u64
    }

    /// Bytes of the file behind the memory.
    #[must_use]
    pub fn fallback_bytes(&self) -> u64 {
        self.fallback.as_ref().map_or(0, |fallback| fallback.length as u64)
    }

    /// The bytes of a sealed value.
    ///
    /// # Panics
    /// When the range is outside the memory: offsets come from the node, so that would be a defect.
    #[must_use]
    pub fn bytes(&self, offset: u64, length: u64) -> &[u8] {
        let (region, offset, length) = self.range(offset, length);
        // SAFETY: the range is inside the mapping, and sealed values are not written any more.
        unsafe { std::slice::from_raw_parts(region.readable.as_ptr().add(offset), length) }
    }

    /// Memory of a block that this process is creating.
    ///
    /// # Safety
    /// The caller holds the block, has not told anyone of it, and takes no second slice of it meanwhile.
    ///
    /// # Panics
    /// When the range is outside the memory.
    #[must_use]
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn bytes_mut(&self, offset: u64, length: u64) -> &mut [u8] {
        let (region, offset, length) = self.range(offset, length);
        // SAFETY: inside the mapping; exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(region.at(offset), length) }
    }

    /// The location of a range: the region, the offset in it, and the length.
    fn range(&self, offset: u64, length: u64) -> (&Region, usize, usize) {
        let end = offset.checked_add(length).expect("block range fits u64");
        let memory = self.total_bytes();
        let (region, first) = match &self.fallback {
            Some(fallback) if offset >= memory => (fallback, memory),
            _ => (&self.memory, 0),
        };
        assert!(
            offset >= Self::header_bytes() && end - first <= region.length as u64,
            "block {offset}+{length} lies outside the shared memory"
        );
        let as_size = |bytes| usize::try_from(bytes).expect("64-bit");
        (region, as_size(offset - first), as_size(length))
    }

    fn cell(&self, cell: u32) -> &[AtomicU64; CELL_WORDS] {
        let at = (cell as usize % PROGRESS_CELLS) * CELL_BYTES;
        // SAFETY: cells lie inside the header, are aligned to their size, and are only accessed as atomics.
        unsafe { &*self.memory.at(at).cast() }
    }

    /// Records that a task begins: a few stores to this process's own cache lines, and no system call.
    #[inline]
    pub fn record_task(&self, cell: u32, spec: &TaskSpec) {
        let [_, _, function, about, name @ ..] = self.cell(cell);
        let title = spec.shown_name().as_str();
        let title = &title.as_bytes()[..title.len().min(CELL_NAME_BYTES)];
        for (word, part) in name.iter().zip(title.chunks(8)) {
            let mut bytes = [0; 8];
            bytes[..part.len()].copy_from_slice(part);
            word.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
        }
        let is_retriable = spec.retries != 0 && spec.spared != Some(true);
        let bits = u64::from(is_retriable) | u64::from(spec.kind().in_actor()) << 1;
        about.store((title.len() as u64) << ABOUT_BITS | bits, Ordering::Relaxed);
        function.store(spec.function().map_or(0, |function| function.0), Ordering::Relaxed);
        self.record_started(cell, spec.task);
    }

    /// The task that a cell's process runs, or ran last; `None` also if another begins right now.
    #[must_use]
    pub fn begun(&self, cell: u32) -> Option<Begun> {
        let task = self.last_task(cell)?;
        let [_, _, function, about, name @ ..] = self.cell(cell);
        let (function, about) = (function.load(Ordering::Relaxed), about.load(Ordering::Relaxed));
        let mut bytes: Vec<u8> =
            name.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
        std::sync::atomic::fence(Ordering::Acquire);
        if self.last_task(cell) != Some(task) {
            return None;
        }
        bytes.truncate(usize::try_from(about >> ABOUT_BITS).unwrap_or(0));
        let name = String::from_utf8_lossy(&bytes).into_owned();
        Some(Begun { task, function: FunctionId(function), is_retriable: about & 1 == 1, name })
    }

    fn record_started(&self, cell: u32, task: TaskId) {
        let [owner, number, ..] = self.cell(cell);
        owner.store(task.owner.0, Ordering::Relaxed);
        number.store(task.number, Ordering::Release);
    }

    /// The task that a dead process began last, if any.
    #[must_use]
    pub fn last_started(&self, cell: u32) -> Option<Started> {
        let task = self.last_task(cell)?;
        let [_, _, _, about, ..] = self.cell(cell);
        Some(Started { task, in_actor: about.load(Ordering::Relaxed) & 2 != 0 })
    }

    fn last_task(&self, cell: u32) -> Option<TaskId> {
        let [owner, number, ..] = self.cell(cell);
        let number = number.load(Ordering::Acquire);
        (number != 0).then(|| TaskId { owner: WorkerId(owner.load(Ordering::Relaxed)), number })
    }

    fn lending_cell(&self, cell: u32) -> &AtomicU64 {
        let at = LENDING_AT + (cell as usize % LENDING_CELLS) * 8;
        // SAFETY: cells lie inside the header, are aligned to 8 bytes, and are only accessed as atomics.
        unsafe { &*self.memory.at(at).cast::<AtomicU64>() }
    }

    /// Begins to lend under `lender`, a number that was never used before and is not zero. Returns the cell
    /// that records this, if one is free.
    #[must_use]
    pub fn begin_lending(&self, lender: u64) -> Option<u32> {
        (0..LENDING_CELLS as u32).find(|cell| {
            let (free, order) = (0, Ordering::AcqRel);
            self.lending_cell(*cell).compare_exchange(free, lender, order, Ordering::Relaxed).is_ok()
        })
    }

    /// Ends lending: what was lent under the number of this cell may change from now on.
    pub fn end_lending(&self, cell: u32) {
        // A reader that sees a later byte must also see this store: no later write may become visible before
        // it.
        self.lending_cell(cell).store(0, Ordering::SeqCst);
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    /// Empties a cell for its next process.
    pub fn clear_cell(&self, cell: u32) {
        self.record_started(cell, TaskId::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sooner_wire::message::{FunctionCall, Target, TaskKind};
    use sooner_wire::{Blob, Name, ShapeId};

    #[test]
    fn two_mappings_see_the_same_bytes_and_cells() {
        let first = Mapping::create(1 << 20).expect("memory");
        let descriptor = first.descriptor().expect("open").try_clone().expect("descriptor");
        let second = Mapping::open(descriptor, first.total_bytes()).expect("mapping");
        let offset = Mapping::header_bytes();
        // SAFETY: nobody else knows the block.
        unsafe { first.bytes_mut(offset, 4) }.copy_from_slice(b"soon");
        assert_eq!(second.bytes(offset, 4), b"soon");
        assert_eq!(second.last_started(3), None);
        let task = TaskId { owner: WorkerId(5), number: 6 };
        first.record_started(3, task);
        assert_eq!(second.last_started(3), Some(Started { task, in_actor: false }));
        first.clear_cell(3);
        assert_eq!(second.last_started(3), None);
        assert_eq!(second.begun(3), None);
    }

    #[test]
    fn a_cell_says_what_a_process_runs() {
        let memory = Mapping::create(1 << 20).expect("memory");
        let task = |number| TaskId { owner: WorkerId(5), number };
        let spec = |number, name: &str, retries, spared| {
            let (function, kind) = (FunctionId(9), TaskKind::Creation);
            let spec = TaskSpec::new(task(number), kind, function, Name::from(name), Blob::default());
            TaskSpec { retries, spared, ..spec }
        };
        let begun = |number, name: &str, is_retriable| {
            Some(Begun { task: task(number), function: FunctionId(9), is_retriable, name: name.to_owned() })
        };
        memory.record_task(3, &spec(6, "a_longer_name", -1, None));
        assert_eq!(memory.begun(3), begun(6, "a_longer_name", true));
        assert_eq!(memory.last_started(3), Some(Started { task: task(6), in_actor: true }));
        let target = Target::Function(FunctionCall::new(ShapeId(0), FunctionId(9)));
        memory.record_task(3, &TaskSpec { target, ..spec(5, "a_task", -1, None) });
        assert_eq!(memory.last_started(3), Some(Started { task: task(5), in_actor: false }));
        memory.record_task(3, &spec(7, "short", 3, Some(true)));
        assert_eq!(memory.begun(3), begun(7, "short", false));
        memory.record_task(3, &spec(8, &"n".repeat(200), 0, None));
        assert_eq!(memory.begun(3), begun(8, &"n".repeat(CELL_NAME_BYTES), false));
        assert_eq!((memory.begun(2), memory.begun(4)), (None, None), "cells do not overlap");
    }

    #[test]
    fn a_private_copy_changes_nothing_for_others() {
        let memory = Mapping::create(1 << 20).expect("memory");
        let offset = Mapping::header_bytes() + 64;
        // SAFETY: nobody else knows the block.
        unsafe { memory.bytes_mut(offset, 5000) }.fill(7);
        let copy = memory.private_copy(offset, 5000).expect("mapping");
        // SAFETY: the copy is 5000 bytes long and ours.
        let mine = unsafe { std::slice::from_raw_parts_mut(copy.pointer(), 5000) };
        assert!(mine.iter().all(|byte| *byte == 7));
        mine[4999] = 1;
        assert!(memory.bytes(offset, 5000).iter().all(|byte| *byte == 7));
        assert_eq!((mine[0], mine[4999]), (7, 1));
    }

    #[test]
    fn offsets_go_on_in_the_file_behind_the_memory() {
        let file = || rustix::fs::memfd_create("file", MemfdFlags::CLOEXEC).expect("memory");
        let with_file = |memory: Mapping| {
            let file = file();
            rustix::fs::ftruncate(&file, 8192).expect("room");
            memory.with_fallback(file, 8192).expect("mapping")
        };
        let memory = with_file(Mapping::create(4096).expect("memory"));
        assert_eq!((memory.fallback_bytes(), memory.total_bytes()), (8192, Mapping::header_bytes() + 4096));
        let passed = |descriptor: Option<Arc<OwnedFd>>| descriptor.expect("open").try_clone().expect("one");
        let other = Mapping::open(passed(memory.descriptor()), memory.total_bytes()).expect("mapping");
        let other = other.with_fallback(passed(memory.fallback_descriptor()), 8192).expect("mapping");
        let offset = memory.total_bytes() + 4096;
        // SAFETY: nobody else knows the blocks.
        unsafe {
            memory.bytes_mut(offset, 4096).fill(7);
            memory.bytes_mut(offset - 8192, 4096).fill(3);
        }
        assert!(other.bytes(offset, 4096).iter().all(|byte| *byte == 7));
        assert!(other.bytes(offset - 8192, 4096).iter().all(|byte| *byte == 3));
        let copy = other.private_copy(offset, 4096).expect("mapping");
        // SAFETY: the copy is 4096 bytes long and ours.
        let mine = unsafe { std::slice::from_raw_parts_mut(copy.pointer(), 4096) };
        assert_eq!(mine, memory.bytes(offset, 4096));
        mine.fill(1);
        assert_eq!(memory.bytes(offset, 1), [7]);
        memory.close_descriptor();
        assert!(memory.descriptor().is_none() && memory.fallback_descriptor().is_none());
    }

    #[test]
    #[should_panic(expected = "outside the shared memory")]
    fn a_block_does_not_reach_into_the_file_behind() {
        let memory = Mapping::create(4096).expect("memory");
        let file = rustix::fs::memfd_create("file", MemfdFlags::CLOEXEC).expect("memory");
        rustix::fs::ftruncate(&file, 8192).expect("room");
        let memory = memory.with_fallback(file, 8192).expect("mapping");
        let _ = memory.bytes(Mapping::header_bytes(), 4097);
    }

    #[test]
    #[should_panic(expected = "outside the shared memory")]
    fn a_range_outside_is_refused() {
        let memory = Mapping::create(4096).expect("memory");
        let _ = memory.bytes(Mapping::header_bytes(), 5000);
    }
}
