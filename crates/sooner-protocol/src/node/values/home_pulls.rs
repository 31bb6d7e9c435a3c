//! Pulls of values that lie in this node's own memory: the block itself is shared, nothing is copied.
//!
//! Who learns from anybody but the owner that a value is here asks its node, because the block may be free by
//! now and hold another value (`sooner-wire/src/place.rs`). The node answers at once when it knows what is in
//! the block. While the process that made the value may be about to say so, the question waits: until
//! something is said of the block, but not for long.
//!
//! Whoever is told "not there" asks the owner: nothing is lost by an answer that comes too early.

use sooner_wire::message::{Location, Pull, Remote};
use sooner_wire::{ObjectId, WorkerId};

use crate::node::objects::{PullAction, Serves};
use crate::node::{NodeActions, NodeCore};
use crate::probes::mark;
use crate::time::Instant;

/// How long a question waits for the word of the process that made the value (nanoseconds).
const WAIT_NANOS: u64 = 1_000_000_000;

/// Questions that wait.
#[derive(Debug, Default)]
pub(in crate::node) struct HomePulls {
    waiting: Vec<Waiting>,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    from: WorkerId,
    object: ObjectId,
    location: Location,
    until: Instant,
}

impl HomePulls {
    pub(in crate::node) fn next_deadline(&self) -> Option<Instant> {
        self.waiting.iter().map(|waiting| waiting.until).min()
    }
}

impl NodeCore {
    /// A client asks for a value in the memory of this node.
    pub(in crate::node) fn on_home_pull(
        &mut self,
        from: WorkerId,
        pull: &Pull,
        now: Instant,
        out: &mut NodeActions,
    ) {
        mark!("a process asked its own node for a value that lies there");
        let until = now.plus(WAIT_NANOS);
        let waiting = Waiting { from, object: pull.object, location: pull.remote.location, until };
        if !self.answer_home_pull(&waiting, out) {
            self.home_pulls.waiting.push(waiting);
        }
    }

    /// Something is known of a block that was not known before.
    pub(in crate::node) fn retry_home_pulls(&mut self, out: &mut NodeActions) {
        if self.home_pulls.waiting.is_empty() {
            return;
        }
        for waiting in std::mem::take(&mut self.home_pulls.waiting) {
            if !self.answer_home_pull(&waiting, out) {
                self.home_pulls.waiting.push(waiting);
            }
        }
    }

    /// Those that have waited long enough are told that the value is not there.
    pub(in crate::node) fn end_home_pulls(&mut self, now: Instant, out: &mut NodeActions) {
        let late = |waiting: &mut Waiting| waiting.until <= now;
        let late: Vec<Waiting> = self.home_pulls.waiting.extract_if(.., late).collect();
        let not_there = |waiting: Waiting| {
            let Waiting { from: to, object, .. } = waiting;
            PullAction::NotThere { to, object, tried: None }
        };
        self.perform(late.into_iter().map(not_there).collect(), out);
    }

    /// A client is gone: it needs no answer.
    pub(in crate::node) fn forget_home_pulls_of(&mut self, client: WorkerId) {
        self.home_pulls.waiting.retain(|waiting| waiting.from != client);
    }

    /// False if the answer is not known yet.
    fn answer_home_pull(&mut self, waiting: &Waiting, out: &mut NodeActions) -> bool {
        let Waiting { from: to, object, location, .. } = *waiting;
        let answer = match self.serves(location.place(), object) {
            Serves::Yes => PullAction::Here { to, object, location },
            Serves::No => {
                let tried = Some(Remote { node: self.id(), location });
                PullAction::NotThere { to, object, tried }
            }
            Serves::NotYet => return false,
        };
        self.perform(vec![answer], out);
        true
    }
}
