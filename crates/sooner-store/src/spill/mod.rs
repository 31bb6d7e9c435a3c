//! Spill files: they hold objects for which there is no room in shared memory.
//!
//! [`SpillSpace`] keeps the tables (which files there are, which objects in them are alive, which files to
//! delete or rewrite) and touches no file. [`SpillFiles`] writes, reads, moves and deletes, and decides
//! nothing. The two share only [`SpillPlace`]. [`SpillHeader`] is read and checked before the bytes of a
//! record are used.
//!
//! **A file.** Objects are fused: a file is a sequence of records, each at a multiple of [`BLOCK_BYTES`], so
//! that they bypass the page cache in both directions, which would take the memory that spilling has just
//! freed. A record is written once and never changed; its checksums show whether it is complete.
//!
//! | at (bytes) | length | what |
//! |---|---|---|
//! | 0 | 8 | `soonSPIL` |
//! | 8 | 4 | version of this format, 1 |
//! | 12 | 4 | length of the header, a multiple of 4096 |
//! | 16 | 4 | length of a chunk, 1 MiB; the last one is shorter |
//! | 20 | 20 | id of the object |
//! | 40 | 8 | number of the file |
//! | 48 | 8 | where in the file the record begins |
//! | 56 | 8 | length of the object |
//! | 64 | 4 each | CRC-32 of each chunk, then zeros |
//! | end of header - 4 | 4 | CRC-32 of the header before it |
//! | end of header | | the object, then zeros up to a multiple of 4096 |
//!
//! Numbers are little endian. The header names the object and the place it belongs to, so that a record
//! written to a wrong place, or left of an older object, is not taken for the object. Each chunk has a
//! checksum of its own: a range is verified without reading the rest.
//!
//! **A file has no name.** It is unlinked before anything is written to it (`O_TMPFILE`), and lives as long
//! as its descriptor. So nothing is left when the process ends, in whatever way; no other process finds or
//! changes it; and removing the directory does not harm it. Each file takes a descriptor, so [`SpillSpace`]
//! bounds their number: files grow with the amount that is spilled.
//!
//! This room never decides which object is spilled, and returns no byte that did not pass its checksum. See
//! ADR 0039.

mod buffer;
mod directory;
mod error;
mod file;
mod files;
mod format;
mod pulse;
mod space;

pub(crate) use directory::Directory;
pub use error::{Damage, SpillError};
pub use files::{SpillFiles, SpillObject};
pub use format::{BLOCK_BYTES, CHUNK_BYTES, SpillHeader, record_bytes};
pub use pulse::SpillPulse;
pub use space::{SpillFull, SpillLimits, SpillRewrite, SpillSpace};

/// The place of a spilled object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpillPlace {
    /// Number of the file. It lies in the directory with this number modulo the number of directories.
    pub file: u64,
    /// Where its record begins in the file (bytes), a multiple of [`BLOCK_BYTES`].
    pub offset: u64,
    /// Length of the object (bytes), without its header.
    pub length: u64,
}

impl SpillPlace {
    /// Bytes that its record takes on the disk, header included.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        record_bytes(self.length)
    }

    /// Bytes of its header.
    #[must_use]
    pub fn header_bytes(&self) -> u64 {
        format::header_bytes(self.length)
    }
}
