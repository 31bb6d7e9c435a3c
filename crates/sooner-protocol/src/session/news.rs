//! The death of a process of another node, whose last messages take another way than the message of its
//! death.
//!
//! What a process sent before its death counts: its replies, and the borrowers that it registered. So its
//! connection is read to its end first. All that the node sends from the death message on waits for that,
//! since much of it follows from the death. Not for long: from a dead machine nothing arrives, not even the
//! end of a connection.
//!
//! One connection is read to its end at a time. The messages that waited may contain the next death of this
//! kind: the rest of them then waits with that one, in order. It never reads a connection itself.

use std::collections::VecDeque;

use sooner_wire::WorkerId;
use sooner_wire::limits::HOLD_NANOS;

use crate::time::Instant;

/// See the module. `T` is a message of the node.
#[derive(Debug)]
pub struct HeldNews<T> {
    /// The dead process, whose connection is read to its end.
    worker: WorkerId,
    until: Instant,
    /// The messages of the node, that of the death first.
    queue: VecDeque<T>,
}

impl<T> HeldNews<T> {
    /// The node reports the death of a process whose connection has not ended yet.
    #[must_use]
    pub fn new(worker: WorkerId, now: Instant) -> Self {
        Self { worker, until: now.plus(HOLD_NANOS), queue: VecDeque::new() }
    }

    /// The dead process, whose connection is read to its end.
    #[must_use]
    pub fn worker(&self) -> WorkerId {
        self.worker
    }

    /// When the wait for its end is over.
    #[must_use]
    pub fn until(&self) -> Instant {
        self.until
    }

    /// The node sends another message: it waits, too.
    pub fn hold_back(&mut self, said: T) {
        self.queue.push_back(said);
    }

    /// Whether the death can be handled: the connection was read to its end, or that takes too long.
    #[must_use]
    pub fn is_over(&self, is_line_open: bool, now: Instant) -> bool {
        !is_line_open || now >= self.until
    }

    /// The messages that waited, in order.
    pub fn into_sent(self) -> impl Iterator<Item = T> {
        self.queue.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant(7);

    #[test]
    fn what_the_node_says_waits_in_order_for_the_end_of_the_line() {
        let mut held = HeldNews::new(WorkerId(3), NOW);
        ["gone", "settled", "other"].into_iter().for_each(|said| held.hold_back(said));
        assert_eq!(held.worker(), WorkerId(3));
        assert!(!held.is_over(true, NOW));
        assert!(held.is_over(false, NOW));
        assert_eq!(held.into_sent().collect::<Vec<_>>(), ["gone", "settled", "other"]);
    }

    #[test]
    fn a_line_that_does_not_end_is_not_waited_for_for_long() {
        let held: HeldNews<()> = HeldNews::new(WorkerId(3), NOW);
        assert_eq!(held.until(), NOW.plus(HOLD_NANOS));
        assert!(!held.is_over(true, Instant(held.until().0 - 1)));
        assert!(held.is_over(true, held.until()));
    }
}
