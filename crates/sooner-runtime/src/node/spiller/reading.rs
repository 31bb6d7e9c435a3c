//! One read from the disk straight into shared memory, which can be stopped at any time without waiting for
//! the disk.
//!
//! The kernel writes to the block during a read, and that cannot be taken back. So [`Reading::stop`] says
//! whether a piece is being read: if so, the block is not free until the piece is over. Between two pieces
//! the thread checks whether the read was stopped.
//!
//! Invariant: after [`Reading::stop`] has returned false, or the piece is over, not a byte is written to the
//! block any more.

use std::sync::Arc;

use parking_lot::Mutex;
use sooner_store::Mapping;
use sooner_wire::ObjectId;

/// See the module.
pub struct Reading {
    mapping: Arc<Mapping>,
    /// The value.
    pub object: ObjectId,
    /// The block to read into.
    pub block: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_stopped: bool,
    is_in_piece: bool,
}

impl Reading {
    /// Reads a value of `length` bytes into a block, to which no other thread writes.
    ///
    /// # Panics
    /// When the value is not within the memory.
    pub fn new(mapping: Arc<Mapping>, object: ObjectId, block: u64, length: u64) -> Self {
        let _ = mapping.bytes(block, length);
        Self { mapping, object, block, state: Mutex::default() }
    }

    /// Has a piece written. `None` if the read was stopped before.
    pub fn piece<T>(&self, at: u64, length: u64, fill: impl FnOnce(&mut [u8]) -> T) -> Option<T> {
        {
            let mut state = self.state.lock();
            assert!(!state.is_in_piece, "one thread reads");
            if state.is_stopped {
                return None;
            }
            state.is_in_piece = true;
        }
        // SAFETY: the block is this reading's alone while a piece is read: who stops it learns of the piece,
        // and leaves the block as it is until that is over.
        let result = fill(unsafe { self.mapping.bytes_mut(self.block + at, length) });
        self.state.lock().is_in_piece = false;
        Some(result)
    }

    /// Stops the read. True if a piece is being read at the moment.
    pub fn stop(&self) -> bool {
        let mut state = self.state.lock();
        state.is_stopped = true;
        state.is_in_piece
    }
}

#[cfg(test)]
mod tests {
    use sooner_wire::{TaskId, WorkerId};

    use super::*;

    fn reading() -> Reading {
        let mapping = Arc::new(Mapping::create(1 << 16).expect("memory"));
        let object = TaskId { owner: WorkerId(1), number: 1 }.object(0);
        Reading::new(mapping, object, Mapping::header_bytes(), 8)
    }

    #[test]
    fn pieces_are_read_until_it_is_stopped() {
        let reading = reading();
        assert_eq!(reading.piece(0, 4, |into| into.copy_from_slice(b"abcd")), Some(()));
        assert_eq!(reading.mapping.bytes(reading.block, 4), b"abcd");
        assert!(!reading.stop(), "nothing is being read");
        assert_eq!(reading.piece(4, 4, |into| into.copy_from_slice(b"efgh")), None);
        assert_eq!(reading.mapping.bytes(reading.block, 8), b"abcd\0\0\0\0");
    }

    #[test]
    fn who_stops_within_a_piece_is_told_so() {
        let reading = reading();
        assert_eq!(reading.piece(0, 4, |_| reading.stop()), Some(true));
        assert!(!reading.stop(), "it is over");
    }
}
