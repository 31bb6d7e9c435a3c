//! When a full store is stuck: nothing in it can go anywhere, and nothing has become free for a while. Then
//! what is wanted goes to the file behind the memory (`docs/adr/0044-memory-in-a-file.md`).
//!
//! A process that creates values in a stuck store waits once, not for each value: the store stays stuck until
//! something becomes free.
//!
//! It never looks at the clock, and decides nothing about values that can go to disk: those go first.

use sooner_wire::limits::{STUCK_MOVING_NANOS, STUCK_NANOS};

use crate::time::Instant;

/// See the module.
#[derive(Debug, Default)]
pub struct Stuck {
    /// When room was refused first since something became free.
    since: Option<Instant>,
}

impl Stuck {
    /// There was no room for a value. True if the store is stuck. `moves`: values are on their way out; these
    /// are waited for longer, but not for ever.
    pub fn on_no_room(&mut self, moves: bool, now: Instant) -> bool {
        let limit = if moves { STUCK_MOVING_NANOS } else { STUCK_NANOS };
        now.since(*self.since.get_or_insert(now)) >= limit
    }

    /// Some memory is free again.
    pub fn on_freed(&mut self) {
        self.since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_a_while_and_stays_until_something_is_free() {
        let mut stuck = Stuck::default();
        let at = |nanos| Instant(7).plus(nanos);
        assert!(!stuck.on_no_room(false, at(0)));
        assert!(!stuck.on_no_room(false, at(STUCK_NANOS - 1)));
        assert!(stuck.on_no_room(false, at(STUCK_NANOS)));
        assert!(stuck.on_no_room(false, at(STUCK_NANOS + 1)), "the next one does not wait");
        stuck.on_freed();
        assert!(!stuck.on_no_room(false, at(2 * STUCK_NANOS)));
    }

    #[test]
    fn what_moves_is_waited_for_and_not_for_ever() {
        let mut stuck = Stuck::default();
        let at = |nanos| Instant(7).plus(nanos);
        assert!(!stuck.on_no_room(true, at(0)));
        assert!(!stuck.on_no_room(true, at(STUCK_MOVING_NANOS - 1)));
        assert!(stuck.on_no_room(false, at(STUCK_NANOS)), "it does not move any more");
        assert!(stuck.on_no_room(true, at(STUCK_MOVING_NANOS)));
    }
}
