//! Creations for which there is no room yet, while room is on its way: first come, first served.
//!
//! Whoever creates a value waits for the node's answer. It comes when something was freed and the value fits,
//! when nothing is on its way any more, or after [`CREATION_WAIT_NANOS`]: then it asks again, behind the
//! others, so that one that is too large for now holds up nobody for long, and it can look about in between.
//!
//! At most one for each thread that creates a value. It never keeps room for somebody who is gone.

use std::collections::VecDeque;

use sooner_protocol::node::NodeActions;
use sooner_protocol::time::Instant;
use sooner_wire::WorkerId;
use sooner_wire::limits::CREATION_WAIT_NANOS;
use sooner_wire::message::Allocate;

use super::Service;
use crate::clock::now;

struct Waiting {
    from: WorkerId,
    ask: Allocate,
    until: Instant,
}

/// See the module.
#[derive(Default)]
pub(super) struct Creations {
    waiting: VecDeque<Waiting>,
    /// Something was freed since they were last looked at.
    has_room: bool,
}

impl Creations {
    /// Whether a new one has to wait behind others.
    pub(super) fn is_busy(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether others than this one wait.
    pub(super) fn is_crowded(&self, from: WorkerId, request: u64) -> bool {
        self.waiting.iter().any(|waiting| (waiting.from, waiting.ask.request) != (from, request))
    }

    pub(super) fn push(&mut self, from: WorkerId, ask: Allocate, now: Instant) {
        self.waiting.push_back(Waiting { from, ask, until: now.plus(CREATION_WAIT_NANOS) });
    }

    pub(super) fn on_freed(&mut self) {
        self.has_room = true;
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.waiting.front().map(|first| first.until)
    }
}

impl Service {
    /// Answers those whose time has come. True if somebody was.
    pub(super) fn attend_creations(&mut self, out: &mut NodeActions) -> bool {
        let mut has_answered = false;
        let has_room = std::mem::take(&mut self.creations.has_room);
        while let Some(first) = self.creations.waiting.front() {
            let is_over = first.until <= now();
            if !has_room && !is_over {
                break;
            }
            let (from, ask) = (first.from, first.ask.clone());
            if self.tokens.contains_key(&from) && !self.try_to_allocate(from, &ask, is_over, out) {
                break;
            }
            self.creations.waiting.pop_front();
            has_answered = true;
        }
        has_answered
    }
}
