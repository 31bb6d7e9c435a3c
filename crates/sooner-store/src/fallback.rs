//! Memory in a file: for a value that is larger than the store, and for values that come while all of the
//! store is in use and none of it can go to disk.
//!
//! The file has no name. It lies behind the memory of a node ([`crate::Mapping`]), in the first of the spill
//! directories. The kernel moves its pages to the disk and back as it sees fit. So it is slower than the
//! store and takes no memory that the machine cannot reclaim; it is the last resort before an error.
//!
//! The disk's bytes of a block are reserved when it is allocated and given back when it is freed. Invariant
//! F1: every byte of every block is reserved, so that no process meets SIGBUS for want of a disk. It never
//! looks into a block.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::Arena;
use crate::spill::{Directory, SpillError};

/// The longest file (bytes): a process can map only so much.
const FILE_BYTES_MAX: u64 = 1 << 42;
const PAGE_BYTES: u64 = 4096;

/// See the module.
#[derive(Debug)]
pub struct FallbackFile {
    directory: Directory,
    file: Arc<OwnedFd>,
    bytes: u64,
}

impl FallbackFile {
    /// Makes the file, as long as the room on its disk, or `max_bytes`. `None` if the file system cannot
    /// reserve bytes and give them back, or has no room.
    ///
    /// # Errors
    /// [`SpillError`] when no file can be made there.
    pub fn create(directory: &Path, max_bytes: Option<u64>) -> Result<Option<Self>, SpillError> {
        let directory = Directory::open(directory)?;
        let file = directory.create_cached()?;
        let room = directory.room(&file).min(max_bytes.unwrap_or(u64::MAX)).min(FILE_BYTES_MAX);
        let bytes = room / PAGE_BYTES * PAGE_BYTES;
        let can_all = bytes > 0
            && rustix::fs::ftruncate(&file, bytes).is_ok()
            && fallocate(&file, FallocateFlags::KEEP_SIZE, 0, PAGE_BYTES).is_ok()
            && fallocate(&file, PUNCH, 0, PAGE_BYTES).is_ok();
        Ok(can_all.then(|| Self { directory, file: Arc::new(file), bytes }))
    }

    /// Its descriptor, for processes that map it.
    #[must_use]
    pub fn descriptor(&self) -> &Arc<OwnedFd> {
        &self.file
    }

    /// Its length.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

/// Which parts of the file are in use, at offsets behind the memory.
#[derive(Debug)]
pub struct Fallback {
    file: FallbackFile,
    arena: Arena,
    start: u64,
}

impl Fallback {
    /// The file begins behind `start` bytes of memory.
    #[must_use]
    pub fn new(file: FallbackFile, start: u64) -> Self {
        let arena = Arena::new(start, file.bytes);
        Self { file, arena, start }
    }

    /// Takes a block and reserves all its bytes on the disk.
    ///
    /// # Errors
    /// [`SpillError`] when they cannot be reserved.
    pub fn allocate(&mut self, bytes: u64) -> Result<u64, SpillError> {
        let rounded = Arena::rounded(bytes);
        let path = self.file.directory.path();
        let full = |source| SpillError::of(source, path, "reserve a part of a file", rounded);
        self.file.directory.check_room(&self.file.file, rounded)?;
        let offset = self.arena.allocate(bytes).ok_or_else(|| full(Errno::NOSPC))?;
        let reserved = fallocate(&self.file.file, FallocateFlags::KEEP_SIZE, offset - self.start, rounded);
        if let Err(source) = reserved {
            let error = full(source);
            self.free(offset);
            return Err(error);
        }
        Ok(offset)
    }

    /// Gives a block back. False if no block begins at this offset.
    pub fn free(&mut self, offset: u64) -> bool {
        let length = self.arena.length(offset);
        if !self.arena.free(offset) {
            return false;
        }
        // Bytes that cannot be given back now stay reserved for the next block there.
        let _ = fallocate(&self.file.file, PUNCH, offset - self.start, length);
        true
    }

    /// The blocks.
    #[must_use]
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Whether an offset is in the file.
    #[must_use]
    pub fn has(&self, offset: u64) -> bool {
        offset >= self.start
    }
}

fn fallocate(file: &OwnedFd, flags: FallocateFlags, offset: u64, length: u64) -> Result<(), Errno> {
    loop {
        match rustix::fs::fallocate(file, flags, offset, length) {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks_of(fallback: &Fallback) -> u64 {
        rustix::fs::fstat(&*fallback.file.file).expect("a file").st_blocks.cast_unsigned() * 512
    }

    fn fallback(max_bytes: u64) -> Fallback {
        let file = FallbackFile::create(&std::env::temp_dir(), Some(max_bytes)).expect("a directory");
        Fallback::new(file.expect("a file system that reserves bytes"), 4096)
    }

    #[test]
    fn the_disk_has_what_a_block_takes_and_nothing_else() {
        let mut fallback = fallback(1 << 20);
        assert_eq!((fallback.file.bytes(), blocks_of(&fallback)), (1 << 20, 0));
        let first = fallback.allocate(300_000).expect("room");
        assert_eq!((first, fallback.arena().used()), (4096, 303_104));
        assert!(blocks_of(&fallback) >= 303_104);
        let second = fallback.allocate(1).expect("room");
        assert!(fallback.has(second) && !fallback.has(4095));
        assert!(fallback.free(first) && !fallback.free(first));
        assert!(blocks_of(&fallback) < 303_104, "it was given back");
        assert!(fallback.free(second));
        assert_eq!(fallback.arena().used(), 0);
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let mut fallback = fallback(1 << 20);
        let error = fallback.allocate((1 << 20) + 1).expect_err("the file is as long as was said");
        assert!(matches!(error, SpillError::Full { .. }), "{error}");
        assert_eq!(fallback.arena().used(), 0);
        assert!(fallback.allocate(1 << 20).is_ok());
    }
}
