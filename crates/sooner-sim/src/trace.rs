//! The trace of a run: a hash over all events, and on request the latest events in words.

use std::collections::VecDeque;

/// Events that are kept in words.
const KEPT: usize = 400;

/// See the module.
#[derive(Debug, Default)]
pub struct Trace {
    hash: u64,
    words: Option<VecDeque<String>>,
    echoes: bool,
}

impl Trace {
    /// A trace that keeps the latest events in words. `echoes`: it prints each event as it happens, too.
    #[must_use]
    pub fn in_words(echoes: bool) -> Self {
        Self { words: Some(VecDeque::new()), echoes, ..Self::default() }
    }

    /// Adds an event to the hash, as a number.
    #[inline]
    pub fn note(&mut self, number: u64) {
        self.hash = (self.hash.rotate_left(5) ^ number).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    /// Adds an event in words, if words are kept.
    #[inline]
    pub fn send(&mut self, words: impl FnOnce() -> String) {
        let Some(kept) = &mut self.words else { return };
        let line = words();
        if self.echoes {
            println!("{line}");
        }
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(line);
    }

    /// Whether words are kept.
    #[must_use]
    pub fn has_words(&self) -> bool {
        self.words.is_some()
    }

    /// The hash over all events.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The latest events in words.
    #[must_use]
    pub fn latest(&self, count: usize) -> Vec<String> {
        let kept = self.words.iter().flatten();
        let skipped = self.words.as_ref().map_or(0, |words| words.len().saturating_sub(count));
        kept.skip(skipped).cloned().collect()
    }
}
