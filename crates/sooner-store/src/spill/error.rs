//! Errors of spill files, worded for the person whose disk it is.

use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::SpillPlace;

/// Why bytes could not be spilled or read back. No error is fatal: an object that was not written is still in
/// memory, and one that cannot be read is made again if its lineage is known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpillError {
    /// The file system has no room (`ENOSPC`), or the user has used up a quota (`EDQUOT`).
    #[error(
        "the spill directory {directory} has no room for {bytes} bytes: {source}. The object was not spilled. \
             Free some space there, or name directories on larger disks with spill_directories"
    )]
    Full {
        /// The directory.
        directory: PathBuf,
        /// How many bytes were to be written there.
        bytes: u64,
        /// The kernel's error.
        source: Errno,
    },
    /// The bytes left on the file system must stay free for other programs.
    #[error(
        "the spill directory {directory} has no room for {bytes} bytes: of the {free} bytes left there {kept} stay free for other \
             programs. The object was not spilled. Free some space there, or name directories on larger disks with \
             spill_directories"
    )]
    NearlyFull {
        /// The directory.
        directory: PathBuf,
        /// How many bytes were to be written there.
        bytes: u64,
        /// Bytes that are free.
        free: u64,
        /// Bytes that must stay free.
        kept: u64,
    },
    /// The bytes on the disk are not those that were written.
    #[error("a spilled object of {} bytes, at byte {} of file {} in the spill directory {directory}, is damaged: {damage}. \
             Expected the bytes that were written. The disk or its driver loses data: look at the kernel's log, or name another disk \
             with spill_directories", .place.length, .place.offset, .place.file)]
    Corrupt {
        /// The directory.
        directory: PathBuf,
        /// The place of the object.
        place: SpillPlace,
        /// What is wrong there.
        damage: Damage,
    },
    /// The directory, or the disk below it, was removed.
    #[error(
        "the spill directory {directory} is gone: {source}. Expected a directory that stays while sooner runs. \
             Create it (it is used again as soon as it is there), or name another one with spill_directories"
    )]
    Gone {
        /// The directory.
        directory: PathBuf,
        /// The kernel's error.
        source: Errno,
    },
    /// It is not a directory, or no file may be made there.
    #[error(
        "no files can be made in the spill directory {directory}: {source}. Expected a directory that this user may write to, \
             on a file system that is not read-only. Change its permissions, or name another one with spill_directories"
    )]
    Refused {
        /// The directory.
        directory: PathBuf,
        /// The kernel's error.
        source: Errno,
    },
    /// The process (`EMFILE`) or the machine (`ENFILE`) has no file descriptors left.
    #[error(
        "no file descriptor is left for a file in the spill directory {directory}: {source}. Expected one for each spill file, \
             at most {} of them. Raise the limit (ulimit -n)",
        sooner_wire::limits::SPILL_FILES_MAX
    )]
    Descriptors {
        /// The directory.
        directory: PathBuf,
        /// The kernel's error.
        source: Errno,
    },
    /// The file was deleted, or never written.
    #[error("spill file {} is not there, in which an object of {} bytes was expected: it was deleted, or nothing was ever \
             written to it. This is a defect of sooner", .place.file, .place.length)]
    NoFile {
        /// The place of the object.
        place: SpillPlace,
    },
    /// Bytes were asked for, or given, that the object does not have.
    #[error("{bytes} bytes from byte {from} on are not those of a spilled object of {} bytes. This is a defect of sooner", .place.length)]
    OutOfRange {
        /// The object.
        place: SpillPlace,
        /// The first byte.
        from: u64,
        /// How many.
        bytes: u64,
    },
    /// Another error of the kernel, such as that of a failing disk.
    #[error(
        "cannot {doing} in the spill directory {directory}: {source}. Look at the kernel's log for the disk's state, or name another \
             one with spill_directories"
    )]
    Other {
        /// The directory.
        directory: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// The kernel's error.
        source: Errno,
    },
    /// The session ends, so the result is no longer wanted.
    #[error("nothing is spilled or read back any more: the session ends")]
    Ending,
    /// No directory was named; at least one is needed.
    #[error("no spill directory was named. Expected one at least in spill_directories")]
    NoDirectory,
}

/// What is wrong with a spilled object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The file ends before the object.
    #[error("{found} bytes are there of {expected}")]
    Cut {
        /// Bytes found.
        found: u64,
        /// Bytes expected.
        expected: u64,
    },
    /// No record begins there.
    #[error("no record begins there")]
    NoHeader,
    /// The record is of another version of the format.
    #[error("the record has version {found} of the format, not {expected}")]
    Version {
        /// The version of the record.
        found: u32,
        /// What this sooner writes.
        expected: u32,
    },
    /// The header's checksum is wrong.
    #[error("the checksum of its header is wrong")]
    Header,
    /// The header is intact, but that of another object or place.
    #[error("the record there is that of another object or place")]
    OtherObject,
    /// A chunk's checksum is wrong.
    #[error("the checksum of chunk {number} is wrong")]
    Chunk {
        /// The number of the chunk, from 0.
        number: u64,
    },
}

impl SpillError {
    /// The error for that of a system call in this directory.
    pub(crate) fn of(source: Errno, directory: &Path, doing: &'static str, bytes: u64) -> Self {
        let directory = directory.to_owned();
        match source {
            Errno::NOSPC | Errno::DQUOT => Self::Full { directory, bytes, source },
            Errno::MFILE | Errno::NFILE => Self::Descriptors { directory, source },
            Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::NOTDIR | Errno::LOOP => {
                Self::Refused { directory, source }
            }
            // File systems on which no files can be made (/proc) give the same error as a missing directory.
            Errno::NOENT if directory.is_dir() => Self::Refused { directory, source: Errno::OPNOTSUPP },
            Errno::OPNOTSUPP if doing == CREATE => Self::Refused { directory, source },
            Errno::NOENT | Errno::STALE | Errno::NODEV | Errno::NXIO => Self::Gone { directory, source },
            source => Self::Other { directory, doing, source },
        }
    }
}

/// The word for making a file in errors.
pub(super) const CREATE: &str = "create a file";
