//! A directory for spill files: makes files without a name.
//!
//! If the file system cannot do that (`O_TMPFILE`), a file has a name for a moment, between being made and
//! being unlinked. A process that is killed in that moment leaves an empty file, which the next process that
//! uses the directory removes.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::buffer::Buffers;
use super::error::{CREATE, SpillError};
use super::format::BLOCK_BYTES;

/// How much of a file system stays free for other programs: one part in `KEPT_PART` of it, at most
/// `KEPT_BYTES_MAX` bytes.
const KEPT_PART: u64 = 20;
const KEPT_BYTES_MAX: u64 = 1 << 30;

/// The prefix of the names that files have for a moment.
const PREFIX: &str = ".sooner-spill-";

/// See the module.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// Whether files are made without a name.
    is_nameless: bool,
    /// Whether bytes bypass the page cache.
    is_direct: bool,
}

impl Directory {
    /// Opens a directory, and finds out how files can be made and written in it.
    ///
    /// # Errors
    /// [`SpillError`] if not even one block can be written there.
    pub fn open(path: &Path) -> Result<Self, SpillError> {
        let buffers = &Buffers::default();
        let error = |source| SpillError::of(source, path, "look at what is", 0);
        // An absolute path, in case the process changes its directory later.
        let whole = std::path::absolute(path).map_err(|_| error(Errno::NOENT))?;
        let stat = rustix::fs::stat(&whole).map_err(error)?;
        if !rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir() {
            return Err(error(Errno::NOTDIR));
        }
        remove_left(&whole);
        let mut directory = Self { path: whole, is_nameless: true, is_direct: true };
        let (is_nameless, is_direct) = directory.try_ways(buffers)?;
        directory.is_nameless = is_nameless;
        directory.is_direct = is_direct;
        Ok(directory)
    }

    fn try_ways(&self, buffers: &Buffers) -> Result<(bool, bool), SpillError> {
        let mut last = Errno::OPNOTSUPP;
        for (is_nameless, is_direct) in [(true, true), (true, false), (false, true), (false, false)] {
            match self.try_way(is_nameless, is_direct, buffers) {
                Ok(()) => return Ok((is_nameless, is_direct)),
                // This way fails: EISDIR comes from kernels, EINVAL from file systems that do not know it.
                Err(source @ (Errno::INVAL | Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT)) => {
                    last = source
                }
                Err(source) => return Err(SpillError::of(source, &self.path, CREATE, BLOCK_BYTES)),
            }
        }
        Err(SpillError::of(last, &self.path, CREATE, BLOCK_BYTES))
    }

    fn try_way(&self, is_nameless: bool, is_direct: bool, buffers: &Buffers) -> Result<(), Errno> {
        let file = self.make(is_nameless, is_direct)?;
        buffers.with(|bytes| rustix::io::pwrite(&file, &bytes[..BLOCK_BYTES as usize], 0)).map(|_| ())
    }

    /// Makes a file that no other process can find.
    ///
    /// # Errors
    /// [`SpillError`].
    pub fn create(&self) -> Result<OwnedFd, SpillError> {
        let made = self.make(self.is_nameless, self.is_direct);
        made.map_err(|source| SpillError::of(source, &self.path, CREATE, 0))
    }

    /// Like [`Self::create`], for a file to be mapped: it goes through the page cache.
    ///
    /// # Errors
    /// [`SpillError`].
    pub fn create_cached(&self) -> Result<OwnedFd, SpillError> {
        let made = self.make(self.is_nameless, false);
        made.map_err(|source| SpillError::of(source, &self.path, CREATE, 0))
    }

    fn make(&self, is_nameless: bool, is_direct: bool) -> Result<OwnedFd, Errno> {
        let mode = Mode::RUSR | Mode::WUSR;
        let mut flags = OFlags::RDWR | OFlags::CLOEXEC;
        flags.set(OFlags::DIRECT, is_direct);
        if is_nameless {
            // Exclusive: it cannot be given a name later.
            return rustix::fs::open(&self.path, flags | OFlags::TMPFILE | OFlags::EXCL, mode);
        }
        let mut random = [0; 8];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        let name = self.path.join(format!("{PREFIX}{:016x}", u64::from_le_bytes(random)));
        let file = rustix::fs::open(&name, flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW, mode)?;
        match rustix::fs::unlink(&name) {
            // Another process took the file for one that was left behind.
            Ok(()) | Err(Errno::NOENT) => Ok(file),
            Err(source) => Err(source),
        }
    }

    /// Checks that `bytes` may be written to a file here: a full disk harms every program that uses it.
    /// Returns how many more may be written (bytes).
    ///
    /// # Errors
    /// [`SpillError::NearlyFull`].
    pub fn check_room(&self, file: &OwnedFd, bytes: u64) -> Result<u64, SpillError> {
        // A file system that does not report its size reports an error when it is full.
        let Some((free, kept)) = free_and_kept(file) else { return Ok(u64::MAX) };
        self.check_left(free, kept, bytes)
    }

    /// Like [`Self::check_room`], for the target of a rewrite. It may take half of what stays free while both
    /// files exist: otherwise a disk full of dead objects would stay full.
    ///
    /// # Errors
    /// [`SpillError::NearlyFull`].
    pub fn check_room_to_move(&self, file: &OwnedFd, bytes: u64) -> Result<(), SpillError> {
        let Some((free, kept)) = free_and_kept(file) else { return Ok(()) };
        self.check_left(free, kept / 2, bytes).map(drop)
    }

    fn check_left(&self, free: u64, kept: u64, bytes: u64) -> Result<u64, SpillError> {
        free.checked_sub(kept.saturating_add(bytes)).ok_or_else(|| SpillError::NearlyFull {
            directory: self.path.clone(),
            bytes,
            free,
            kept,
        })
    }

    /// How much may be written to a file here (bytes), if no other program writes.
    pub fn room(&self, file: &OwnedFd) -> u64 {
        free_and_kept(file).map_or(u64::MAX, |(free, kept)| free.saturating_sub(kept))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether bytes bypass the page cache: then only whole blocks of aligned memory are written and read.
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// Behaves like a file system that can neither make files without a name nor bypass the page cache.
    #[cfg(test)]
    pub fn make_plain(&mut self) {
        self.is_nameless = false;
        self.is_direct = false;
    }
}

/// How much is free on a file's file system (bytes), and how much of it must stay so. `None` if not reported.
fn free_and_kept(file: &OwnedFd) -> Option<(u64, u64)> {
    let stat = rustix::fs::fstatvfs(file).ok().filter(|stat| stat.f_blocks > 0)?;
    let all = stat.f_blocks.saturating_mul(stat.f_frsize);
    Some((stat.f_bavail.saturating_mul(stat.f_frsize), (all / KEPT_PART).min(KEPT_BYTES_MAX)))
}

/// Removes files that were left. A living process loses only a file that it is about to unlink itself.
fn remove_left(directory: &Path) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()) {
            // A file that cannot be removed is empty and does no harm.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}
