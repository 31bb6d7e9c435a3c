//! Memory for bytes between a file and what has no page of its own: headers, the last page of an object,
//! ranges that begin anywhere.
//!
//! Direct I/O takes whole pages only. Buffers are kept, because touching fresh memory costs more than copying
//! through it; as many as are useful at a time, however many threads there have been.

use parking_lot::Mutex;

use super::format::BLOCK_BYTES;

/// What is written or read by one call (bytes): enough that the disk is busy with several requests, little
/// beside an object.
pub const PIECE_BYTES: usize = 4 << 20;

/// Buffers that are kept for the next one who needs one: those of as many threads as a disk is kept busy by.
const KEPT_MAX: usize = 4;

/// Bytes of a buffer: a piece and the header before it.
const BUFFER_BYTES: usize = PIECE_BYTES + BLOCK_BYTES as usize;

/// Memory that begins with a page.
#[derive(Debug)]
pub struct Buffer {
    memory: Vec<u8>,
    start: usize,
}

impl Buffer {
    fn new() -> Self {
        let memory = vec![0; BUFFER_BYTES + BLOCK_BYTES as usize];
        // The memory of a vector that is not changed in length stays where it is.
        let start = memory.as_ptr().align_offset(BLOCK_BYTES as usize);
        Self { memory, start }
    }

    /// All of it.
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + BUFFER_BYTES]
    }
}

/// Whether direct I/O takes this memory as it is.
pub fn is_aligned(bytes: &[u8]) -> bool {
    let block = BLOCK_BYTES as usize;
    bytes.as_ptr().align_offset(block) == 0 && bytes.len().is_multiple_of(block)
}

/// See the module.
#[derive(Debug, Default)]
pub struct Buffers {
    kept: Mutex<Vec<Buffer>>,
}

impl Buffers {
    /// Lends a buffer to `work`. What is in it is left from others.
    pub fn with<T>(&self, work: impl FnOnce(&mut [u8]) -> T) -> T {
        let kept = self.kept.lock().pop();
        let mut buffer = kept.unwrap_or_else(Buffer::new);
        let result = work(buffer.bytes());
        let mut kept = self.kept.lock();
        if kept.len() < KEPT_MAX {
            kept.push(buffer);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_begin_with_a_page_and_few_are_kept() {
        let buffers = Buffers::default();
        fn nested(buffers: &Buffers, depth: usize) {
            buffers.with(|bytes| {
                assert!(is_aligned(bytes));
                assert_eq!(bytes.len(), BUFFER_BYTES);
                if depth > 0 {
                    nested(buffers, depth - 1);
                }
            });
        }
        nested(&buffers, 2 * KEPT_MAX);
        assert_eq!(buffers.kept.lock().len(), KEPT_MAX);
    }
}
