//! What the thread needs of the place where values go: as [`SpillFiles`] does it for directories,
//! [`SpillObjects`] for an object store, or as a test wants it.

use std::sync::Arc;
use std::time::Duration;

use sooner_object_store::{SpillObjects, StoreError};
use sooner_store::spill::{SpillError, SpillFiles, SpillObject, SpillPlace, SpillPulse};

pub use sooner_object_store::SpillValue;

/// What stands with a value.
pub type Id = [u8; 20];

/// A value that moves: from where to where.
pub type Move = (SpillPlace, SpillPlace, Id);

/// Read from a disk at a time (bytes): who stops a reading has so much read in vain.
pub const READ_BYTES: u64 = 32 << 20;

/// Why something cannot be written, or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DiskError {
    /// What directories are to it.
    #[error(transparent)]
    Files(#[from] SpillError),
    /// What an object store is to it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// See the module. Dropping it gives everything back.
pub trait Disk: Send {
    /// How many bytes of values that wait at the same time are written together, as a file that is not added
    /// to. 0: one by one, and files are added to.
    fn batch_bytes(&self) -> u64 {
        0
    }

    /// How much more could be written (bytes) when something last was.
    fn room(&self) -> u64 {
        u64::MAX
    }

    /// How much is read at a time (bytes).
    fn piece_bytes(&self) -> u64 {
        READ_BYTES
    }

    /// Writes values to their places, which are in one file.
    ///
    /// # Errors
    /// Why nothing is there that can be relied on.
    fn write(&self, values: &[SpillValue]) -> Result<(), DiskError>;

    /// Reads bytes of a value from its byte `from` on.
    ///
    /// # Errors
    /// Why what is in `into` means nothing.
    fn read(&self, place: SpillPlace, id: &Id, from: u64, into: &mut [u8]) -> Result<(), DiskError>;

    /// Copies values to other places.
    ///
    /// # Errors
    /// Why nothing is there that could be read.
    fn copy(&self, moves: &[Move]) -> Result<(), DiskError>;

    /// A file is not needed any more.
    fn delete(&self, file: u64);

    /// Does what is due beside that. After how long it is to be called again at the latest; `None`: whenever.
    /// `is_idle`: nothing else is to be done.
    fn tend(&self, is_idle: bool) -> Option<Duration> {
        let _ = is_idle;
        None
    }

    /// The session is over. What to say of what is left.
    fn close(&self) -> Option<String> {
        None
    }

    /// Whether it answers, and the word that it need not do more.
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
