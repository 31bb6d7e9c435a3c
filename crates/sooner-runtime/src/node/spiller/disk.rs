//! Where the thread spills values: directories ([`SpillFiles`]), an object store ([`SpillObjects`]), or
//! whatever a test needs.

use std::sync::Arc;
use std::time::Duration;

use sooner_object_store::{SpillObjects, StoreError};
use sooner_store::spill::{SpillError, SpillFiles, SpillObject, SpillPlace, SpillPulse};

pub use sooner_object_store::SpillValue;

/// The id stored with a value.
pub type Id = [u8; 20];

/// A value that moves: from which place to which.
pub type Move = (SpillPlace, SpillPlace, Id);

/// Bytes read from a disk at a time. A read that is stopped wastes this many at most.
pub const READ_BYTES: u64 = 32 << 20;

/// Why something cannot be written, or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DiskError {
    /// An error of the directories.
    #[error(transparent)]
    Files(#[from] SpillError),
    /// An error of the object store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// See the module. Dropping it gives everything back.
pub trait Disk: Send {
    /// How many bytes of waiting values are written together, as a file that is never added to. 0: values are
    /// written one by one, and files are added to.
    fn batch_bytes(&self) -> u64 {
        0
    }

    /// Free room (bytes) at the last write.
    fn room(&self) -> u64 {
        u64::MAX
    }

    /// How much is read at a time (bytes).
    fn piece_bytes(&self) -> u64 {
        READ_BYTES
    }

    /// Writes values to their places, all in one file.
    ///
    /// # Errors
    /// Why it failed: nothing in these places can be relied on.
    fn write(&self, values: &[SpillValue]) -> Result<(), DiskError>;

    /// Reads bytes of a value from its byte `from` on.
    ///
    /// # Errors
    /// Why it failed: the contents of `into` mean nothing.
    fn read(&self, place: SpillPlace, id: &Id, from: u64, into: &mut [u8]) -> Result<(), DiskError>;

    /// Copies values to other places.
    ///
    /// # Errors
    /// Why it failed: nothing in the new places can be read.
    fn copy(&self, moves: &[Move]) -> Result<(), DiskError>;

    /// A file is not needed any more.
    fn delete(&self, file: u64);

    /// Does other work that is due. Returns when to call again at the latest; `None`: whenever. `is_idle`:
    /// the thread has nothing else to do.
    fn tend(&self, is_idle: bool) -> Option<Duration> {
        let _ = is_idle;
        None
    }

    /// The session is over. Returns a message about what is left.
    fn close(&self) -> Option<String> {
        None
    }

    /// Shows whether the disk answers, and tells it to stop.
    fn pulse(&self) -> Arc<SpillPulse>;
}

impl Disk for SpillFiles {
    fn room(&self) -> u64 {
        Self::room(self)
    }

    fn write(&self, values: &[SpillValue]) -> Result<(), DiskError> {
        let objects = values.iter().map(|value| {
            let SpillValue { place, id, mapping, block } = value;
            SpillObject { place: *place, id, bytes: mapping.bytes(*block, place.length) }
        });
        Ok(self.write_batch(&objects.collect::<Vec<_>>())?)
    }

    fn read(&self, place: SpillPlace, id: &Id, from: u64, into: &mut [u8]) -> Result<(), DiskError> {
        Ok(Self::read(self, place, id, from, into)?)
    }

    fn copy(&self, moves: &[Move]) -> Result<(), DiskError> {
        moves.iter().try_for_each(|(from, to, id)| Ok(Self::copy(self, *from, *to, id)?))
    }

    fn delete(&self, file: u64) {
        Self::delete(self, file);
    }

    fn pulse(&self) -> Arc<SpillPulse> {
        Self::pulse(self)
    }
}

impl Disk for SpillObjects {
    fn batch_bytes(&self) -> u64 {
        sooner_object_store::BATCH_BYTES
    }

    fn piece_bytes(&self) -> u64 {
        sooner_object_store::PIECE_BYTES
    }

    fn write(&self, values: &[SpillValue]) -> Result<(), DiskError> {
        Ok(Self::write(self, values)?)
    }

    fn read(&self, place: SpillPlace, _: &Id, from: u64, into: &mut [u8]) -> Result<(), DiskError> {
        Ok(Self::read(self, place, from, into)?)
    }

    fn copy(&self, moves: &[Move]) -> Result<(), DiskError> {
        Ok(Self::copy(self, moves)?)
    }

    fn delete(&self, file: u64) {
        Self::delete(self, file);
    }

    fn tend(&self, is_idle: bool) -> Option<Duration> {
        Some(Self::tend(self, is_idle))
    }

    fn close(&self) -> Option<String> {
        Self::close(self)
    }

    fn pulse(&self) -> Arc<SpillPulse> {
        Self::pulse(self)
    }
}
