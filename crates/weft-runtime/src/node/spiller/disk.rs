//! What the thread needs of the place where values go: as [`SpillFiles`] does it, or as a test wants it.

use std::sync::Arc;

use weft_store::spill::{SpillError, SpillFiles, SpillPlace, SpillPulse};

/// What stands with a value.
pub type Id = [u8; 20];

/// See the module. Dropping it gives everything back.
pub trait Disk: Send {
    /// Writes a value to its place.
    ///
    /// # Errors
    /// Why nothing is there that can be relied on.
    fn write(&self, place: SpillPlace, id: &Id, bytes: &[u8]) -> Result<(), SpillError>;

    /// Reads bytes of a value from its byte `from` on.
    ///
    /// # Errors
    /// Why what is in `into` means nothing.
    fn read(&self, place: SpillPlace, id: &Id, from: u64, into: &mut [u8]) -> Result<(), SpillError>;

    /// Copies a value to another place.
    ///
    /// # Errors
    /// Why nothing is there that could be read.
    fn copy(&self, from: SpillPlace, to: SpillPlace, id: &Id) -> Result<(), SpillError>;

    /// A file is not needed any more.
    fn delete(&self, file: u64);

    /// Whether it answers, and the word that it need not do more.
    fn pulse(&self) -> Arc<SpillPulse>;
}

impl Disk for SpillFiles {
    fn write(&self, place: SpillPlace, id: &Id, bytes: &[u8]) -> Result<(), SpillError> {
        Self::write(self, place, id, bytes)
    }

    fn read(&self, place: SpillPlace, id: &Id, from: u64, into: &mut [u8]) -> Result<(), SpillError> {
        Self::read(self, place, id, from, into)
    }

    fn copy(&self, from: SpillPlace, to: SpillPlace, id: &Id) -> Result<(), SpillError> {
        Self::copy(self, from, to, id)
    }

    fn delete(&self, file: u64) {
        Self::delete(self, file);
    }

    fn pulse(&self) -> Arc<SpillPulse> {
        Self::pulse(self)
    }
}
