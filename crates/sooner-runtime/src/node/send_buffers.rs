//! Buffers with bytes read from disk, on their way to other nodes.
//!
//! These bytes bypass shared memory, which is full when values are on disk. All buffers of a node take
//! [`SEND_BUFFERS_BYTES`] together, or there is a single larger one. The next read waits until a buffer is
//! sent.
//!
//! This module never reads a disk or a socket. A buffer that is dropped, sent or not, gives its room back.

use std::sync::Arc;

use parking_lot::Mutex;

/// Bytes in all buffers of a node together, unless a single one is larger.
pub const SEND_BUFFERS_BYTES: u64 = 32 << 20;

/// The room for buffers of one node.
pub struct SendBuffers {
    taken: Mutex<u64>,
    /// A buffer gave its room back.
    on_room: Box<dyn Fn() + Send + Sync>,
}

/// A part of a value.
pub struct SendBuffer {
    bytes: Vec<u8>,
    /// Offset of the buffer's first byte in the value.
    begin: u64,
    of: Arc<SendBuffers>,
}

impl SendBuffers {
    /// `on_room` is called whenever there is more room.
    pub fn new(on_room: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { taken: Mutex::new(0), on_room: Box::new(on_room) })
    }

    /// A buffer for `bytes` bytes of a value from offset `begin`. `None`: wait until another buffer is
    /// dropped.
    pub fn take(self: &Arc<Self>, begin: u64, bytes: u64) -> Option<SendBuffer> {
        let mut taken = self.taken.lock();
        if *taken > 0 && *taken + bytes > SEND_BUFFERS_BYTES {
            return None;
        }
        *taken += bytes;
        drop(taken);
        let length = usize::try_from(bytes).expect("a piece fits into memory");
        Some(SendBuffer { bytes: vec![0; length], begin, of: self.clone() })
    }
}

#[cfg(test)]
impl PartialEq for SendBuffer {
    fn eq(&self, other: &Self) -> bool {
        (self.begin, &self.bytes) == (other.begin, &other.bytes)
    }
}

impl SendBuffer {
    /// The bytes, to read into.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// `length` bytes of the value from offset `at`.
    ///
    /// # Panics
    /// If the buffer does not hold them.
    #[must_use]
    pub fn part(&self, at: u64, length: u64) -> &[u8] {
        let begin = usize::try_from(at - self.begin).expect("it is in the buffer");
        let length = usize::try_from(length).expect("it is in the buffer");
        &self.bytes[begin..begin + length]
    }
}

impl Drop for SendBuffer {
    fn drop(&mut self) {
        *self.of.taken.lock() -= self.bytes.len() as u64;
        (self.of.on_room)();
    }
}

impl std::fmt::Debug for SendBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes from {} on", self.bytes.len(), self.begin)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn buffers_have_a_bound_and_give_their_room_back() {
        let freed = Arc::new(AtomicUsize::new(0));
        let counter = freed.clone();
        let all = SendBuffers::new(move || _ = counter.fetch_add(1, Ordering::Relaxed));
        let first = all.take(0, SEND_BUFFERS_BYTES - 10).expect("there is room");
        assert!(all.take(0, 11).is_none());
        let second = all.take(7, 10).expect("exactly");
        assert!(all.take(0, 1).is_none());
        drop(first);
        assert_eq!(freed.load(Ordering::Relaxed), 1);
        assert!(all.take(0, SEND_BUFFERS_BYTES).is_none(), "one is left");
        drop(second);
        let large = all.take(0, SEND_BUFFERS_BYTES + 1).expect("one is allowed, however large");
        assert!(all.take(0, 1).is_none());
        drop(large);
    }

    #[test]
    fn a_part_is_found_by_its_place_in_the_value() {
        let all = SendBuffers::new(|| ());
        let mut buffer = all.take(100, 4).expect("there is room");
        buffer.bytes_mut().copy_from_slice(b"abcd");
        assert_eq!(buffer.part(101, 2), b"bc");
        assert_eq!(buffer.part(104, 0), b"");
    }
}
