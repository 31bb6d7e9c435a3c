//! When Python's cycle collector may run while the object store is short of room.
//!
//! A collection stops all other Python threads of the process, and a full one of a program with large
//! libraries takes a fifth of a second. A collection that releases nothing must not be repeated soon: a
//! program that is larger than the store is always short of room, and would spend much of its time looking
//! for cycles that it does not have.

/// Time between two collections (milliseconds): a full one of a large program takes about as long.
const PAUSE_MS: u64 = 200;
/// While room is made otherwise: the pause is longer by so many times the duration of the last collection,
/// and by as much again for each useless one.
const TIMES_RELIEVED: u64 = 20;
/// While no room is made otherwise: the same, for each of the latest collections that released nothing.
const TIMES_USELESS: u64 = 5;
/// The longest pause while no room is made otherwise (milliseconds). The process that makes a value waits
/// longer than this before it is told that there is no room, so what has become garbage meanwhile is found.
const PAUSE_FULL_MAX_MS: u64 = 1000;
/// At most so many useless collections count.
const USELESS_MAX: u64 = 4;

/// See the module. Times are in milliseconds since any moment.
#[derive(Debug, Default)]
pub struct Collections {
    next: u64,
    next_relieved: u64,
    /// How many of the latest collections released no reference and no view.
    useless: u64,
}

impl Collections {
    /// Before the first collection.
    #[must_use]
    pub const fn new() -> Self {
        Self { next: 0, next_relieved: 0, useless: 0 }
    }

    /// Whether a collection may begin. `is_full`: no room is made otherwise.
    #[must_use]
    pub fn is_due(&self, now: u64, is_full: bool) -> bool {
        now >= if is_full { self.next } else { self.next_relieved }
    }

    /// A collection has ended. `has_let_go`: it released a reference or a view.
    pub fn on_end(&mut self, begin: u64, end: u64, has_let_go: bool) {
        self.useless = if has_let_go { 0 } else { USELESS_MAX.min(self.useless + 1) };
        let took = end.saturating_sub(begin);
        self.next = end + PAUSE_FULL_MAX_MS.min(PAUSE_MS + TIMES_USELESS * self.useless * took);
        self.next_relieved = end + PAUSE_MS + TIMES_RELIEVED * (1 + self.useless) * took;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long after the end of a collection the next one may begin.
    fn pause(collections: &mut Collections, took: u64, has_let_go: bool, is_full: bool) -> u64 {
        collections.on_end(1000, 1000 + took, has_let_go);
        let is_due = |after: &u64| collections.is_due(1000 + took + after, is_full);
        (0..100_000).find(is_due).expect("it is due some time")
    }

    #[test]
    fn the_first_is_due_at_once() {
        assert!([true, false].into_iter().all(|is_full| Collections::new().is_due(0, is_full)));
    }

    #[test]
    fn a_full_store_waits_for_cycles_as_long_as_there_are_some() {
        let mut collections = Collections::new();
        assert_eq!(pause(&mut collections, 150, true, true), PAUSE_MS);
        assert_eq!(pause(&mut collections, 150, true, true), PAUSE_MS);
        assert_eq!(pause(&mut collections, 150, true, false), PAUSE_MS + 20 * 150);
    }

    #[test]
    fn collections_that_let_go_of_nothing_become_rarer() {
        let mut collections = Collections::new();
        let pauses: Vec<u64> = (0..6).map(|_| pause(&mut collections, 30, false, true)).collect();
        assert_eq!(pauses, [350, 500, 650, 800, 800, 800]);
        assert_eq!(pause(&mut collections, 300, false, true), PAUSE_FULL_MAX_MS);
        assert_eq!(pause(&mut collections, 100, false, false), 10_200);
        assert_eq!(pause(&mut collections, 100, true, true), PAUSE_MS, "there were some");
    }
}
