//! One open spill file: complete writes and reads, and the meaning of the kernel's answers.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::Advice;
use rustix::io::Errno;

use super::buffer::is_aligned;
use super::directory::Directory;
use super::format::BLOCK_BYTES;
use super::{Damage, SpillError, SpillPlace, SpillPulse};

/// A file and its directory.
#[derive(Debug)]
pub struct File<'a> {
    pub descriptor: Arc<OwnedFd>,
    pub directory: &'a Directory,
    pub pulse: &'a SpillPulse,
}

impl File<'_> {
    /// Whether this memory can be written or read into as it is, without a buffer.
    pub fn takes(&self, memory: &[u8]) -> bool {
        !self.directory.is_direct() || memory.is_empty() || is_aligned(memory)
    }

    /// Checks that `bytes` may be added to the file.
    ///
    /// # Errors
    /// [`SpillError::NearlyFull`].
    pub fn check_room(&self, bytes: u64) -> Result<u64, SpillError> {
        self.directory.check_room(&self.descriptor, bytes)
    }

    /// Like [`Self::check_room`], for the target of a rewrite, which frees more than it takes.
    ///
    /// # Errors
    /// [`SpillError::NearlyFull`].
    pub fn check_room_to_move(&self, bytes: u64) -> Result<(), SpillError> {
        self.directory.check_room_to_move(&self.descriptor, bytes)
    }

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// [`SpillError`]; some of it may have been written.
    pub fn write(&self, bytes: &[u8], offset: u64) -> Result<(), SpillError> {
        self.write_pieces(&mut [IoSlice::new(bytes)], offset)
    }

    /// Writes all of several pieces, one behind the other.
    ///
    /// # Errors
    /// [`SpillError`]; some of it may have been written.
    pub fn write_pieces(&self, mut pieces: &mut [IoSlice<'_>], mut offset: u64) -> Result<(), SpillError> {
        let bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
        let end = offset + bytes;
        while offset < end {
            self.pulse.check()?;
            let answer = rustix::io::pwritev(&self.descriptor, pieces, offset);
            self.pulse.beat();
            match answer {
                // Without this, a kernel that writes nothing and reports no error would be asked for ever.
                Ok(0) => return Err(self.error(Errno::IO, "write a file", bytes)),
                Ok(count) => {
                    offset += count as u64;
                    IoSlice::advance_slices(&mut pieces, count);
                }
                Err(Errno::INTR) => {}
                Err(source) => return Err(self.error(source, "write a file", bytes)),
            }
        }
        Ok(())
    }

    /// Reads until `into` is full or the file ends. Returns how many bytes came.
    ///
    /// # Errors
    /// [`SpillError`].
    pub fn read(&self, into: &mut [u8], offset: u64) -> Result<usize, SpillError> {
        let mut read = 0;
        while read < into.len() {
            self.pulse.check()?;
            let answer = rustix::io::pread(&self.descriptor, &mut into[read..], offset + read as u64);
            self.pulse.beat();
            match answer {
                Ok(0) => break,
                Ok(count) => read += count,
                Err(Errno::INTR) => continue,
                Err(source) => return Err(self.error(source, "read a file", 0)),
            }
            // Only the end of the file ends a read within a block; direct I/O could not go on from there.
            if !read.is_multiple_of(BLOCK_BYTES as usize) {
                break;
            }
        }
        Ok(read)
    }

    /// Reads the whole of `into`, for the object at `place`.
    ///
    /// # Errors
    /// [`SpillError::Corrupt`] if the file ends before that.
    pub fn read_all(&self, into: &mut [u8], offset: u64, place: SpillPlace) -> Result<(), SpillError> {
        let found = self.read(into, offset)?;
        if found == into.len() {
            return Ok(());
        }
        let damage = Damage::Cut { found: found as u64, expected: into.len() as u64 };
        Err(self.damaged(place, damage))
    }

    /// If bytes go through the page cache: writes them to the disk, and gives their pages back.
    ///
    /// # Errors
    /// [`SpillError`]: some file systems notice here that they have no room.
    pub fn let_go(&self, offset: u64, bytes: u64, is_written: bool) -> Result<(), SpillError> {
        if self.directory.is_direct() {
            return Ok(());
        }
        if is_written {
            // The kernel does not give back pages that are not on the disk yet.
            let answer = rustix::fs::fdatasync(&self.descriptor);
            self.pulse.beat();
            answer.map_err(|source| self.error(source, "write a file", bytes))?;
        }
        // Only advice: a file system that ignores it keeps its pages.
        let _ =
            rustix::fs::fadvise(&self.descriptor, offset, std::num::NonZeroU64::new(bytes), Advice::DontNeed);
        Ok(())
    }

    /// The error that the object at `place` is damaged.
    pub fn damaged(&self, place: SpillPlace, damage: Damage) -> SpillError {
        SpillError::Corrupt { directory: self.directory.path().to_owned(), place, damage }
    }

    fn error(&self, source: Errno, doing: &'static str, bytes: u64) -> SpillError {
        SpillError::of(source, self.directory.path(), doing, bytes)
    }
}
