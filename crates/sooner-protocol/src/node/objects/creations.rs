//! Creations for which there is no room yet, while room is on its way: first come, first served.
//!
//! A process that creates a value waits for the node's answer. That comes when memory was freed and the value
//! fits, when no more is on its way, or after [`CREATION_WAIT_NANOS`]: then the process asks again, behind
//! the others. So a creation that is too large for now holds up no other for long, and its process can look
//! about in between. The last attempt of a process waits behind no other: it is answered whatever room there
//! is.
//!
//! At most one for each thread that creates a value. This file never keeps room for a dead process, and never
//! looks for room itself: its caller tries the creation that is due.

use std::collections::VecDeque;

use sooner_wire::WorkerId;
use sooner_wire::limits::CREATION_WAIT_NANOS;
use sooner_wire::message::Allocate;

use crate::time::Instant;

#[derive(Debug)]
struct Waiting {
    from: WorkerId,
    ask: Allocate,
    until: Instant,
}

/// A creation to try now.
#[derive(Debug, Clone, PartialEq)]
pub struct Due {
    /// The process that asks.
    pub from: WorkerId,
    /// Its request.
    pub ask: Allocate,
    /// The creation has waited long enough, and is answered in any case.
    pub is_over: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Creations {
    waiting: VecDeque<Waiting>,
    /// Memory was freed since the creations were last tried.
    has_room: bool,
}

impl Creations {
    /// Whether a new creation has to wait behind others.
    #[must_use]
    pub fn must_wait(&self, ask: &Allocate) -> bool {
        !self.waiting.is_empty() && ask.is_last != Some(true)
    }

    /// Whether creations other than this one wait.
    #[must_use]
    pub fn is_crowded(&self, from: WorkerId, request: u64) -> bool {
        self.waiting.iter().any(|waiting| (waiting.from, waiting.ask.request) != (from, request))
    }

    /// A creation waits from now on.
    pub fn push(&mut self, from: WorkerId, ask: Allocate, now: Instant) {
        self.waiting.push_back(Waiting { from, ask, until: now.plus(CREATION_WAIT_NANOS) });
    }

    /// Memory was freed.
    pub fn on_freed(&mut self) {
        self.has_room = true;
    }

    /// Whether memory was freed since the last call: then all creations are worth a try, in their order.
    pub fn take_room(&mut self) -> bool {
        std::mem::take(&mut self.has_room)
    }

    /// The first creation, if it is to be tried now: there is room, or it has waited long enough.
    #[must_use]
    pub fn due(&self, has_room: bool, now: Instant) -> Option<Due> {
        let first = self.waiting.front()?;
        let is_over = first.until <= now;
        (has_room || is_over).then(|| Due { from: first.from, ask: first.ask.clone(), is_over })
    }

    /// The first creation was answered, or its process died.
    pub fn pop(&mut self) {
        self.waiting.pop_front();
    }

    /// When the first creation has waited long enough.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.waiting.front().map(|first| first.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant(9);

    fn ask(request: u64) -> Allocate {
        Allocate { request, bytes: 8, is_last: None, ahead: None }
    }

    fn due_requests(creations: &mut Creations, has_room: bool, now: Instant) -> Vec<(u64, bool)> {
        let mut seen = Vec::new();
        while let Some(due) = creations.due(has_room, now) {
            seen.push((due.ask.request, due.is_over));
            creations.pop();
        }
        seen
    }

    #[test]
    fn a_new_one_waits_behind_those_that_wait_unless_it_is_the_last_attempt() {
        let mut creations = Creations::default();
        assert!(!creations.must_wait(&ask(1)));
        creations.push(WorkerId(5), ask(1), NOW);
        assert!(creations.must_wait(&ask(2)));
        assert!(!creations.must_wait(&Allocate { is_last: Some(true), ..ask(2) }));
        assert!(!creations.is_crowded(WorkerId(5), 1), "it waits alone");
        assert!(creations.is_crowded(WorkerId(5), 2) && creations.is_crowded(WorkerId(6), 1));
    }

    #[test]
    fn what_was_freed_is_offered_to_all_in_their_order() {
        let mut creations = Creations::default();
        (1..=3).for_each(|request| creations.push(WorkerId(5), ask(request), NOW));
        assert_eq!(due_requests(&mut creations, false, NOW), []);
        creations.on_freed();
        assert!(creations.take_room() && !creations.take_room());
        assert_eq!(due_requests(&mut creations, true, NOW), [(1, false), (2, false), (3, false)]);
        assert_eq!(creations.next_deadline(), None);
    }

    #[test]
    fn nobody_waits_for_ever() {
        let mut creations = Creations::default();
        creations.push(WorkerId(5), ask(1), NOW);
        creations.push(WorkerId(6), ask(2), NOW.plus(1));
        let end = NOW.plus(CREATION_WAIT_NANOS);
        assert_eq!(creations.next_deadline(), Some(end));
        assert_eq!(creations.due(false, Instant(end.0 - 1)), None);
        assert_eq!(due_requests(&mut creations, false, end), [(1, true)]);
        assert_eq!(due_requests(&mut creations, false, end.plus(1)), [(2, true)]);
    }
}
