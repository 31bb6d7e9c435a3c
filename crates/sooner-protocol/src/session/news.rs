//! The end of a process of another node, whose last messages come by another way than the news of it.
//!
//! What a process said before its end counts: its replies, and whom it registered. So its line is read to its
//! end first; and all that the node says from there on waits for that, because much of it follows from the
//! death. Not for long: when the other machine is gone, nothing comes any more, not even an end.
//!
//! One line is read to its end at a time. What the node has said behind the news may have the next such news
//! in it: what is left then waits with that one, in order. It reads nothing itself.

use std::collections::VecDeque;

use sooner_wire::WorkerId;
use sooner_wire::limits::HOLD_NANOS;

use crate::time::Instant;

/// See the module. `T` is what the node says.
#[derive(Debug)]
pub struct HeldNews<T> {
    /// Whose line is read to its end.
    worker: WorkerId,
    until: Instant,
    /// What the node has said, the news of the end first.
    queue: VecDeque<T>,
}

impl<T> HeldNews<T> {
    /// The node says that a process is gone, whose line has not ended yet.
    #[must_use]
    pub fn new(worker: WorkerId, now: Instant) -> Self {
        Self { worker, until: now.plus(HOLD_NANOS), queue: VecDeque::new() }
    }

    /// Whose line is read to its end.
    #[must_use]
    pub fn worker(&self) -> WorkerId {
        self.worker
    }

    /// How long it is waited for.
    #[must_use]
    pub fn until(&self) -> Instant {
        self.until
    }

    /// The node says something more: it waits, too.
    pub fn hold_back(&mut self, said: T) {
        self.queue.push_back(said);
    }

    /// Whether the news is to be believed: the line was read to its end, or that takes too long.
    #[must_use]
    pub fn is_over(&self, is_line_open: bool, now: Instant) -> bool {
        !is_line_open || now >= self.until
    }

    /// What has waited, in order.
    pub fn into_said(self) -> impl Iterator<Item = T> {
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
        assert_eq!(held.into_said().collect::<Vec<_>>(), ["gone", "settled", "other"]);
    }

    #[test]
    fn a_line_that_does_not_end_is_not_waited_for_for_long() {
        let held: HeldNews<()> = HeldNews::new(WorkerId(3), NOW);
        assert_eq!(held.until(), NOW.plus(HOLD_NANOS));
        assert!(!held.is_over(true, Instant(held.until().0 - 1)));
        assert!(held.is_over(true, held.until()));
    }
}
