//! A value that is written part by part, by a writer who may have to stop at any time, and read meanwhile.
//!
//! All bytes below the mark are written and never change; the mark never goes back. Parts may come in any
//! order: the mark is the end of the gapless run from the beginning. After [`Progress::close`] no byte is
//! written any more, so the block can be freed at once. `close` waits for at most one copy of one part, never
//! for a socket.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::Mapping;

/// See the module.
#[derive(Debug)]
pub struct Progress {
    mapping: Arc<Mapping>,
    block: u64,
    length: u64,
    mark: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    is_closed: bool,
    /// Parts beyond the mark: where each begins and ends. They neither overlap nor touch.
    ahead: BTreeMap<u64, u64>,
}

impl Progress {
    /// A value of `length` bytes in a block, the first `mark` of which are written.
    ///
    /// No one else may write to the block until [`Self::close`], nor read it beyond what is written.
    ///
    /// # Panics
    /// When the value is not within the memory, or the mark not within the value.
    #[must_use]
    pub fn new(mapping: Arc<Mapping>, block: u64, length: u64, mark: u64) -> Self {
        let _ = mapping.bytes(block, length);
        assert!(mark <= length, "the mark lies within the value");
        Self { mapping, block, length, mark: mark.into(), state: Mutex::default() }
    }

    /// How many bytes from the beginning on are written.
    #[must_use]
    pub fn mark(&self) -> u64 {
        self.mark.load(Ordering::Acquire)
    }

    /// The end of the gapless run of written bytes from `at` on, also beyond the mark; `at` if there is none.
    /// Like bytes below the mark they never change, but only until [`Self::close`]: after that another writer
    /// may write those beyond the mark again.
    #[must_use]
    pub fn reached_from(&self, at: u64) -> u64 {
        let mark = self.mark();
        if at < mark {
            return mark;
        }
        let state = self.state.lock();
        let part = state.ahead.range(..=at).next_back().map(|(_, end)| *end);
        part.filter(|end| *end > at).unwrap_or(at)
    }

    /// Whether the whole value is written.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.mark() == self.length
    }

    /// Whether writing has ended. If so, [`Self::mark`] no longer changes.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    /// Writes a part. False if writing has ended, or the part is not within the value or is written already.
    #[must_use]
    pub fn write(&self, at: u64, bytes: &[u8]) -> bool {
        self.write_with(at, bytes.len() as u64, |to| {
            to.copy_from_slice(bytes);
            true
        })
    }

    /// Writes a part through `fill`. The part does not count if `fill` returns false, because the bytes are
    /// not what they should be; otherwise as [`Self::write`].
    #[must_use]
    pub fn write_with(&self, at: u64, length: u64, fill: impl FnOnce(&mut [u8]) -> bool) -> bool {
        let Some(end) = at.checked_add(length).filter(|end| *end <= self.length) else { return false };
        let mut state = self.state.lock();
        let before = state.ahead.range(..end).next_back().map_or(0, |(_, end)| *end);
        let is_there = at < self.mark.load(Ordering::Relaxed) || before > at;
        if state.is_closed || is_there {
            return false;
        }
        // SAFETY: the block is this value's alone until it is closed, the lock lets one write at a time, and
        // readers stay within what was written.
        if !fill(unsafe { self.mapping.bytes_mut(self.block + at, length) }) {
            return false;
        }
        state.join(at, end);
        let mark = self.mark.load(Ordering::Relaxed);
        if let Some(reached) = state.ahead.remove(&mark) {
            self.mark.store(reached, Ordering::Release);
        }
        true
    }

    /// Ends the writing. When this returns, nothing is written to the block any more.
    pub fn close(&self) {
        self.state.lock().is_closed = true;
    }
}

impl State {
    /// Records a part, joined with the parts that it touches.
    fn join(&mut self, begin: u64, mut end: u64) {
        if let Some(next) = self.ahead.remove(&end) {
            end = next;
        }
        match self.ahead.range_mut(..begin).next_back() {
            Some((_, before)) if *before == begin => *before = end,
            _ => drop(self.ahead.insert(begin, end)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn progress(length: u64, mark: u64) -> Progress {
        let mapping = Arc::new(Mapping::create(1 << 16).expect("memory"));
        Progress::new(mapping, Mapping::header_bytes(), length, mark)
    }

    #[test]
    fn the_mark_counts_what_follows_from_the_beginning() {
        let value = progress(10, 0);
        assert!(value.write(4, b"efgh"));
        assert_eq!(value.mark(), 0);
        assert!(value.write(0, b"abcd"));
        assert_eq!(value.mark(), 8);
        assert_eq!(value.mapping.bytes(value.block, 8), b"abcdefgh");
        assert!(value.write(8, b"ij") && value.is_whole());
    }

    #[test]
    fn what_is_there_never_changes_and_nothing_lies_outside() {
        let value = progress(10, 3);
        for (at, bytes) in [(0, &b"x"[..]), (2, b"xy"), (8, b"xyz"), (u64::MAX, b"x")] {
            assert!(!value.write(at, bytes), "{at}");
        }
        assert!(value.write(5, b"fg"));
        for (at, bytes) in [(4, &b"xy"[..]), (6, b"x"), (6, b"xy"), (3, b"xxxxx")] {
            assert!(!value.write(at, bytes), "{at}");
        }
        assert_eq!(value.mark(), 3);
    }

    #[test]
    fn parts_behind_the_mark_can_be_read_as_far_as_they_go() {
        let value = progress(10, 2);
        assert!(value.write(4, b"ef") && value.write(8, b"i"));
        let reached = |at| value.reached_from(at);
        assert_eq!((0..=10).map(reached).collect::<Vec<_>>(), [2, 2, 2, 3, 6, 6, 6, 7, 9, 9, 10]);
        assert!(value.write(2, b"cd"));
        assert_eq!((reached(2), reached(5), reached(6), reached(8)), (6, 6, 6, 9));
        value.close();
        assert_eq!(reached(8), 9);
    }

    #[test]
    fn nothing_is_written_to_a_closed_value() {
        let value = progress(10, 0);
        assert!(value.write(0, b"ab"));
        assert!(!value.is_closed());
        value.close();
        assert!(value.is_closed() && !value.write(2, b"c"));
        assert_eq!(value.mark(), 2);
    }

    #[test]
    fn what_turned_out_wrong_does_not_count() {
        let value = progress(4, 0);
        assert!(!value.write_with(0, 4, |to| {
            to.fill(b'x');
            false
        }));
        assert_eq!(value.mark(), 0);
        assert!(value.write(0, b"abcd") && value.is_whole());
        assert_eq!(value.mapping.bytes(value.block, 4), b"abcd");
    }

    proptest! {
        #[test]
        fn parts_in_any_order_make_the_whole(mut order in Just((0u64..16).collect::<Vec<_>>()).prop_shuffle()) {
            let value = progress(16 * 7 + 3, 0);
            order.push(16);
            let mut last = 0;
            for part in order {
                let bytes: Vec<u8> = (part * 7..(part * 7 + 7).min(115)).map(|i| i as u8).collect();
                prop_assert!(value.write(part * 7, &bytes));
                prop_assert!(value.mark() >= last);
                last = value.mark();
            }
            prop_assert!(value.is_whole());
            let whole: Vec<u8> = (0..115).collect();
            prop_assert_eq!(value.mapping.bytes(value.block, 115), &whole[..]);
            prop_assert!(value.state.lock().ahead.is_empty());
        }
    }
}
