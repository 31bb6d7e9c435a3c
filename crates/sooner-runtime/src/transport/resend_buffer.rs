//! What a session may have to send again: the bytes of its frames, from the first unacknowledged one on.
//!
//! The buffer is the stream as it was written, so nothing is copied to be kept. Positions count bytes since
//! the session began (`sooner_protocol::session::link`). No frame here owns descriptors: they do not travel
//! between machines.

use sooner_wire::frame::{HEAD_BYTES, whole_frame};

/// Released bytes are dropped from the front when there are at least so many, and at least half of all: so
/// each byte is moved at most once.
const DROP_BYTES: usize = 64 << 10;
/// A buffer that grew beyond this is freed when it is empty (bytes).
const KEPT_BYTES: usize = 1 << 20;

/// See the module.
#[derive(Debug, Default)]
pub struct ResendBuffer {
    bytes: Vec<u8>,
    /// Position of the first byte in the buffer.
    base: u64,
    /// Bytes at the front that are not needed any more.
    released: usize,
    /// Bytes from the front that were written to the connection in use.
    cursor: usize,
    /// Bytes from the front that the session has counted.
    counted: usize,
    /// Bytes from the front that may be written now: what must leave before them on other lines has left.
    allowed: usize,
}

impl ResendBuffer {
    /// The buffer, to append whole frames to.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Bytes that were appended since the last call; they are whole frames.
    pub fn take_appended(&mut self) -> u64 {
        let appended = self.bytes.len() - self.counted;
        self.counted = self.bytes.len();
        appended as u64
    }

    /// Whether something was appended since [`Self::take_appended`].
    #[must_use]
    pub fn has_appended(&self) -> bool {
        self.counted < self.bytes.len()
    }

    /// Allows all that was appended to leave.
    pub fn allow(&mut self) {
        self.allowed = self.bytes.len();
    }

    /// Whether appended bytes wait for [`Self::allow`].
    #[must_use]
    pub fn wants_leave(&self) -> bool {
        self.allowed < self.bytes.len()
    }

    /// Bytes that have not been written to the connection in use, allowed or not.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.bytes.len() - self.cursor
    }

    /// Bytes that are retained.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() - self.released
    }

    /// Bytes that may leave and have not been written to the connection in use.
    #[must_use]
    pub fn unsent(&self) -> &[u8] {
        &self.bytes[self.cursor..self.allowed.max(self.cursor)]
    }

    /// The connection took `bytes` of [`Self::unsent`].
    pub fn sent(&mut self, bytes: usize) {
        self.cursor += bytes;
    }

    /// The rest of a frame of which the connection has a part: it must follow before anything else is sent
    /// there.
    #[must_use]
    pub fn rest_of_frame(&self) -> &[u8] {
        let mut end = self.released;
        while end < self.cursor {
            match whole_frame(&self.bytes[end..]) {
                Ok(Some(head)) => end += HEAD_BYTES + head.length,
                Ok(None) | Err(_) => return &[],
            }
        }
        &self.bytes[self.cursor..end]
    }

    /// Another connection continues from this position, which is retained.
    pub fn send_from(&mut self, position: u64) {
        self.cursor = self.offset(position).max(self.released);
    }

    /// Bytes before this position are acknowledged and no longer needed.
    pub fn release(&mut self, position: u64) {
        self.released = self.offset(position).max(self.released);
        // Bytes acknowledged before they were sent on this connection need not be sent there any more.
        self.cursor = self.cursor.max(self.released);
        if self.released == self.bytes.len() {
            self.base += self.released as u64;
            self.bytes.clear();
            if self.bytes.capacity() > KEPT_BYTES {
                self.bytes = Vec::new();
            }
            (self.released, self.cursor, self.counted, self.allowed) = (0, 0, 0, 0);
        } else if self.released >= DROP_BYTES.max(self.bytes.len() / 2) {
            self.bytes.drain(..self.released);
            self.base += self.released as u64;
            self.cursor -= self.released;
            self.counted -= self.released.min(self.counted);
            self.allowed -= self.released.min(self.allowed);
            self.released = 0;
        }
    }

    /// Where a position lies in the buffer, at most at its end.
    fn offset(&self, position: u64) -> usize {
        let offset = usize::try_from(position.saturating_sub(self.base)).unwrap_or(usize::MAX);
        offset.min(self.bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sooner_wire::frame;

    fn append(retained: &mut ResendBuffer, body: &[u8]) -> u64 {
        frame::append(retained.buffer(), 7, 0, |out| out.extend_from_slice(body));
        assert!(retained.wants_leave());
        retained.allow();
        retained.take_appended()
    }

    #[test]
    fn what_is_not_released_can_be_sent_again_from_any_frame() {
        let mut retained = ResendBuffer::default();
        let ends: Vec<u64> = (0..100u8)
            .scan(0, |end, byte| {
                *end += append(&mut retained, &vec![byte; 3000]);
                Some(*end)
            })
            .collect();
        let all = retained.unsent().to_vec();
        retained.sent(all.len());
        assert!(retained.unsent().is_empty());
        for (released, from) in [(0, 0), (0, 50), (10, 10), (60, 99), (98, 98), (99, 99)] {
            retained.release(ends[released]);
            retained.send_from(ends[from]);
            assert_eq!(retained.unsent(), &all[usize::try_from(ends[from]).expect("small")..]);
            assert_eq!(retained.len(), all.len() - usize::try_from(ends[released]).expect("small"));
        }
        assert_eq!(append(&mut retained, b"more"), 12);
        assert_eq!(retained.unsent().len(), 12);
    }

    #[test]
    fn a_frame_that_was_begun_is_ended_before_anything_else() {
        let mut retained = ResendBuffer::default();
        append(&mut retained, b"first");
        append(&mut retained, b"second");
        for sent in 0..=27 {
            let rest = if sent == 0 || sent == 13 {
                0
            } else if sent < 13 {
                13 - sent
            } else {
                27 - sent
            };
            retained.send_from(0);
            retained.sent(sent);
            assert_eq!(retained.rest_of_frame().len(), rest, "{sent}");
        }
        // Whatever a peer acknowledges, this ends.
        for position in 0..40 {
            retained.release(position);
            assert!(retained.rest_of_frame().len() <= 27);
        }
    }

    #[test]
    fn memory_is_bounded_by_what_is_retained() {
        let mut retained = ResendBuffer::default();
        let (mut said, mut released) = (0, 0);
        for _ in 0..10_000 {
            said += append(&mut retained, &[1; 10_000]);
            let unsent = retained.unsent().len();
            retained.sent(unsent);
            if said - released > 1 << 20 {
                released += 10_008 * 20;
                retained.release(released);
            }
            assert_eq!(retained.len() as u64, said - released);
            assert!(retained.bytes.len() <= (3 << 20), "{}", retained.bytes.len());
        }
        retained.release(said);
        assert_eq!((retained.len(), retained.bytes.capacity()), (0, 0));
    }
}
