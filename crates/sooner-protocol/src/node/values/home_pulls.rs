//! Pulls of values that lie in this node's own memory: the block itself is shared, nothing is copied.
//!
//! A process that learns from anybody but the owner that a value is here asks its node, because the block may
//! be free by now and hold another value (`sooner-wire/src/place.rs`). The node answers at once when it knows
//! what is in the block. While the process that made the value may be about to report it, the question waits
//! until the node learns more of the block, but not for long.
//!
//! A process that is told "not there" asks the owner: an answer that comes too early loses nothing.

use sooner_wire::message::{Location, Pull};
use sooner_wire::{ObjectId, WorkerId};

use crate::time::Instant;

/// How long a question waits for the message of the process that made the value (nanoseconds).
const WAIT_NANOS: u64 = 1_000_000_000;

/// Questions that wait.
#[derive(Debug, Default)]
pub(in crate::node) struct HomePulls {
    waiting: Vec<HomePull>,
}

/// A question, and until when it waits.
#[derive(Debug, Clone, Copy)]
pub(in crate::node) struct HomePull {
    pub(in crate::node) from: WorkerId,
    pub(in crate::node) object: ObjectId,
    pub(in crate::node) location: Location,
    until: Instant,
}

impl HomePull {
    /// A client asks for a value in the memory of this node.
    pub(in crate::node) fn new(from: WorkerId, pull: &Pull, now: Instant) -> Self {
        let (object, location) = (pull.object, pull.remote.location);
        Self { from, object, location, until: now.plus(WAIT_NANOS) }
    }
}

impl HomePulls {
    /// The answer is not known yet.
    pub(in crate::node) fn wait(&mut self, pull: HomePull) {
        self.waiting.push(pull);
    }

    /// Takes all questions, to be tried again in this order.
    pub(in crate::node) fn take(&mut self) -> Vec<HomePull> {
        std::mem::take(&mut self.waiting)
    }

    /// Takes the questions that have waited for long enough.
    pub(in crate::node) fn take_late(&mut self, now: Instant) -> Vec<HomePull> {
        self.waiting.extract_if(.., |pull| pull.until <= now).collect()
    }

    /// A client is dead: it needs no answer.
    pub(in crate::node) fn forget_client(&mut self, client: WorkerId) {
        self.waiting.retain(|pull| pull.from != client);
    }

    pub(in crate::node) fn next_deadline(&self) -> Option<Instant> {
        self.waiting.iter().map(|pull| pull.until).min()
    }
}

#[cfg(test)]
mod tests {
    use sooner_wire::message::{Priority, Remote};
    use sooner_wire::{NodeId, TaskId};

    use super::*;

    #[test]
    fn a_question_waits_until_it_is_answered_or_late_or_its_client_is_gone() {
        let [one, other] = [WorkerId(1), WorkerId(2)];
        let remote = Remote { node: NodeId(0), location: Location { offset: 64, length: 64 } };
        let object = TaskId { owner: one, number: 1 }.object(0);
        let pull = Pull { object, remote, priority: Priority::Get };
        let mut pulls = HomePulls::default();
        pulls.wait(HomePull::new(one, &pull, Instant(0)));
        pulls.wait(HomePull::new(other, &pull, Instant(1)));
        let again = pulls.take();
        assert_eq!((again.len(), pulls.next_deadline()), (2, None));
        again.into_iter().for_each(|pull| pulls.wait(pull));
        assert_eq!(pulls.take_late(Instant(WAIT_NANOS)).len(), 1);
        assert_eq!(pulls.next_deadline(), Some(Instant(WAIT_NANOS + 1)));
        pulls.forget_client(other);
        assert_eq!(pulls.next_deadline(), None);
    }
}
