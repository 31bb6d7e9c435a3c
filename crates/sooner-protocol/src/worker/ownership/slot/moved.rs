//! The place that a value has moved to: overwritten by each move, and read without a lock.
//!
//! A value may go to disk and back as long as a process holds it, so a list of its places would grow for
//! ever. One thread at a time writes the place, under the lock of the ownership table. A reader that comes in
//! between sees that by the sequence number and looks again (a sequence lock; each word is an atomic of its
//! own, so that no read is undefined).

use std::sync::atomic::{AtomicU64, Ordering, fence};

use sooner_wire::NodeId;
use sooner_wire::message::{Location, Outcome, Remote};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Moved {
    /// Zero: the value never moved. Odd: a write is under way.
    sequence: AtomicU64,
    /// One more than the number of the node that has the value (this one: on its disk). Zero: this node's
    /// memory.
    node: AtomicU64,
    offset: AtomicU64,
    length: AtomicU64,
}

impl Moved {
    /// The latest place, if there is one.
    pub(super) fn read(&self) -> Option<Outcome> {
        loop {
            let before = self.sequence.load(Ordering::Acquire);
            if before == 0 {
                return None;
            }
            let node = self.node.load(Ordering::Relaxed);
            let location = Location {
                offset: self.offset.load(Ordering::Relaxed),
                length: self.length.load(Ordering::Relaxed),
            };
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == before {
                let remote = |node| Outcome::Remote(Box::new(Remote { node: NodeId(node), location }));
                return Some(node.checked_sub(1).map_or(Outcome::Stored(location), remote));
            }
            // The writing thread may have been taken off its processor.
            std::thread::yield_now();
        }
    }

    /// Writes the place. Only a value in shared memory or on disk has one. One thread at a time.
    pub(super) fn write(&self, place: &Outcome) {
        let (node, location) = match place {
            Outcome::Stored(location) => (0, *location),
            Outcome::Remote(remote) => (remote.node.0 + 1, remote.location),
            Outcome::Inline(_) | Outcome::Failed(_) => return,
        };
        let before = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(before + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.node.store(node, Ordering::Relaxed);
        self.offset.store(location.offset, Ordering::Relaxed);
        self.length.store(location.length, Ordering::Relaxed);
        self.sequence.store(before + 2, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(number: u64) -> Outcome {
        let location = Location { offset: number, length: !number };
        match number % 3 {
            0 => Outcome::Stored(location),
            node => Outcome::Remote(Box::new(Remote { node: NodeId(node * number), location })),
        }
    }

    #[test]
    fn readers_see_whole_places_and_never_an_earlier_one_again() {
        const LAST: u64 = 200_000;
        let moved = Moved::default();
        assert_eq!(moved.read(), None);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut latest = 0;
                    while latest < LAST {
                        let Some(seen) = moved.read() else { continue };
                        let offset = match &seen {
                            Outcome::Stored(at) => at.offset,
                            Outcome::Remote(remote) => remote.location.offset,
                            Outcome::Inline(_) | Outcome::Failed(_) => {
                                unreachable!("only places are written")
                            }
                        };
                        assert_eq!(seen, place(offset));
                        assert!(offset >= latest);
                        latest = offset;
                    }
                });
            }
            (1..=LAST).for_each(|number| moved.write(&place(number)));
        });
    }

    #[test]
    fn what_has_no_place_is_not_written() {
        let moved = Moved::default();
        moved.write(&Outcome::Inline(sooner_wire::Blob::from(&b"1"[..])));
        assert_eq!(moved.read(), None);
    }
}
