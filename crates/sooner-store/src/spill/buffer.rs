//! Buffers between a file and bytes that do not fill pages of their own: headers, the last page of an object,
//! ranges that begin anywhere.
//!
//! Direct I/O takes whole pages only. Buffers are kept for reuse, because touching fresh memory costs more
//! than copying through it; not more than are useful at a time, however many threads there were.

use parking_lot::Mutex;

use super::format::BLOCK_BYTES;

/// How much one call writes or reads (bytes): enough to keep the disk busy with several requests, little
/// beside an object.
pub const PIECE_BYTES: usize = 4 << 20;

/// How many buffers are kept: one for each of as many threads as keep a disk busy.
const KEPT_MAX: usize = 4;

/// Bytes of a buffer: a piece and the header before it.
const BUFFER_BYTES: usize = PIECE_BYTES + BLOCK_BYTES as usize;

/// Memory that begins at a page boundary.
#[derive(Debug)]
pub struct Buffer {
    memory: Vec<u8>,
    start: usize,
}

impl Buffer {
    fn new() -> Self {
        let memory = vec![0; BUFFER_BYTES + BLOCK_BYTES as usize];
        // The memory of a vector stays where it is while its length does not change.
        let start = memory.as_ptr().align_offset(BLOCK_BYTES as usize);
        Self { memory, start }
    }

    /// The whole buffer.
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + BUFFER_BYTES]
    }
}

/// Whether direct I/O can take this memory as it is.
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
    /// Lends a buffer to `work`, with old content.
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
