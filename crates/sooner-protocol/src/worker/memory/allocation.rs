//! A block that a process asks its node for, to store a value: when it asks again after a refusal, and when
//! it gives up.
//!
//! Blocks that others keep for reuse come back when the node asks for them; blocks held by cycles of Python
//! objects when the collectors of all processes have run. That takes a moment, so the process asks again
//! after growing pauses. While room is being made (values move to other nodes, or to disk) the node delays
//! its answer, and the process asks again at once, as long as others get what becomes free. Only in the last
//! attempt does the node find out who has the memory: that takes it longer than refusing.
//!
//! Each thread that creates a value has one of these. It never sleeps and never asks: it says what to ask for
//! and after which pause. It ends after a fixed number of refusals, whatever they say, unless the store
//! changes.

use sooner_wire::limits::STORE_RESERVE_BYTES;
use sooner_wire::message::{Allocate, Allocated};

use crate::time::Instant;

/// Pauses between refusals (nanoseconds).
const PAUSES_NANOS: [u64; 9] = [
    1_000_000,
    5_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    300_000_000,
    400_000_000,
    500_000_000,
];

/// How long `used` may stay the same while room is said to be under way (nanoseconds).
const MOVES_NANOS: u64 = 30_000_000_000;

/// Pause between two rounds of reserving pages, in which others have their turn in the node's loop (ns).
const RESERVING_PAUSE_NANOS: u64 = 1_000_000;

/// Rounds of reserving pages that even the smallest store may take.
const RESERVING_ROUNDS_MIN: u64 = 16;

/// What follows from a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterRefusal {
    /// Ask again after this pause (nanoseconds), when all values dropped meanwhile have been given back.
    AskAfter(u64),
    /// The node is reserving the pages: ask again after this pause (nanoseconds).
    GoOnAfter(u64),
    /// Ask for the last time, now.
    AskAtLast,
    /// There is no room, and the answer says why.
    GiveUp,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Allocation {
    bytes: u64,
    /// Pauses made so far.
    pauses: usize,
    /// Bytes in use by the last answer, and until when they may stay the same while room is under way.
    used: u64,
    patience: Instant,
    /// Answers since the first, or since the last attempt began.
    rounds: u64,
    is_last: bool,
}

impl Allocation {
    /// For a block of `bytes`.
    #[must_use]
    pub fn new(bytes: u64, now: Instant) -> Self {
        Self { bytes, pauses: 0, used: 0, patience: now.plus(MOVES_NANOS), rounds: 0, is_last: false }
    }

    /// The question to the node; except in the last attempt, it also asks for blocks of the sizes `ahead`.
    #[must_use]
    pub fn ask(&self, request: u64, ahead: &[u64]) -> Allocate {
        let ahead = Some(ahead).filter(|ahead| !self.is_last && !ahead.is_empty());
        let is_last = self.is_last.then_some(true);
        Allocate { request, bytes: self.bytes, is_last, ahead: ahead.map(<[u64]>::to_vec) }
    }

    /// The node has no block.
    pub fn on_refused(&mut self, answer: &Allocated, now: Instant) -> AfterRefusal {
        debug_assert!(answer.block.is_none(), "it has one");
        self.rounds += 1;
        if answer.is_reserving == Some(true) && self.rounds <= rounds_max(answer.capacity) {
            return AfterRefusal::GoOnAfter(RESERVING_PAUSE_NANOS);
        }
        if self.is_last {
            return AfterRefusal::GiveUp;
        }
        if answer.used != self.used {
            // Others got what became free, so room is still being made.
            self.used = answer.used;
            self.patience = now.plus(MOVES_NANOS);
        }
        let moves = answer.moves == Some(true) && now < self.patience;
        // While room is under way the node itself has waited for it.
        let pause = if moves { Some(0) } else { self.next_pause() };
        match pause.filter(|_| self.bytes <= answer.capacity) {
            Some(nanos) => AfterRefusal::AskAfter(nanos),
            None => {
                (self.is_last, self.rounds) = (true, 0);
                AfterRefusal::AskAtLast
            }
        }
    }

    fn next_pause(&mut self) -> Option<u64> {
        let pause = PAUSES_NANOS.get(self.pauses).copied();
        self.pauses += 1;
        pause
    }
}

/// Rounds are bounded, because others, or the machine, may take reserved pages; else each round brings the
/// block nearer.
fn rounds_max(capacity: u64) -> u64 {
    RESERVING_ROUNDS_MIN + 2 * capacity / STORE_RESERVE_BYTES
}

#[cfg(test)]
mod tests {
    use super::AfterRefusal::{AskAfter, AskAtLast, GiveUp, GoOnAfter};
    use super::*;

    const CAPACITY: u64 = 8 << 20;
    const NOW: Instant = Instant(5);

    fn refusal() -> Allocated {
        Allocated {
            request: 1,
            block: None,
            used: 6 << 20,
            capacity: CAPACITY,
            moves: None,
            holders: None,
            machine_left: None,
            is_reserving: None,
            trouble: None,
            ahead: None,
        }
    }

    fn moving(used: u64) -> Allocated {
        Allocated { moves: Some(true), used, ..refusal() }
    }

    fn reserving() -> Allocated {
        Allocated { is_reserving: Some(true), ..refusal() }
    }

    /// What follows from refusals that all say the same, in no time, and how often the node was asked.
    fn all(mut allocation: Allocation, answer: &Allocated) -> Vec<AfterRefusal> {
        let mut seen = Vec::new();
        while seen.last() != Some(&GiveUp) {
            assert!(seen.len() < 1_000, "it does not end");
            seen.push(allocation.on_refused(answer, NOW));
        }
        seen
    }

    #[test]
    fn a_refusal_is_followed_by_growing_pauses_and_one_last_attempt() {
        let seen = all(Allocation::new(1, NOW), &refusal());
        let (pauses, end) = seen.split_at(PAUSES_NANOS.len());
        assert_eq!(pauses, PAUSES_NANOS.map(AskAfter));
        assert!(PAUSES_NANOS.is_sorted());
        assert_eq!(end, [AskAtLast, GiveUp]);
    }

    #[test]
    fn what_is_larger_than_the_store_is_asked_for_twice() {
        let seen = all(Allocation::new(CAPACITY + 1, NOW), &refusal());
        assert_eq!(seen, [AskAtLast, GiveUp]);
        let seen = all(Allocation::new(CAPACITY + 1, NOW), &moving(1));
        assert_eq!(seen, [AskAtLast, GiveUp], "room for it is not on its way");
    }

    #[test]
    fn only_the_last_attempt_says_so_and_nothing_is_asked_ahead_in_it() {
        let mut allocation = Allocation::new(CAPACITY + 1, NOW);
        let ask = allocation.ask(3, &[4, 5]);
        assert_eq!(ask, Allocate { request: 3, bytes: CAPACITY + 1, is_last: None, ahead: Some(vec![4, 5]) });
        assert_eq!(allocation.ask(3, &[]).ahead, None);
        assert_eq!(allocation.on_refused(&refusal(), NOW), AskAtLast);
        let ask = allocation.ask(4, &[4, 5]);
        assert_eq!(ask, Allocate { request: 4, bytes: CAPACITY + 1, is_last: Some(true), ahead: None });
    }

    #[test]
    fn while_room_is_on_its_way_it_is_asked_again_at_once() {
        let mut allocation = Allocation::new(1, NOW);
        let late = NOW.plus(MOVES_NANOS);
        assert_eq!(allocation.on_refused(&moving(7), NOW), AskAfter(0));
        assert_eq!(allocation.on_refused(&moving(7), Instant(late.0 - 1)), AskAfter(0));
        // Nothing has changed for long: pauses begin.
        assert_eq!(allocation.on_refused(&moving(7), late), AskAfter(PAUSES_NANOS[0]));
        // Others got room: it goes on.
        assert_eq!(allocation.on_refused(&moving(8), late), AskAfter(0));
        assert_eq!(allocation.on_refused(&moving(8), late.plus(MOVES_NANOS)), AskAfter(PAUSES_NANOS[1]));
    }

    #[test]
    fn an_empty_store_without_room_has_the_same_patience() {
        let mut allocation = Allocation::new(1, NOW);
        assert_eq!(allocation.on_refused(&moving(0), Instant(NOW.0 + MOVES_NANOS - 1)), AskAfter(0));
        let pause = allocation.on_refused(&moving(0), NOW.plus(MOVES_NANOS));
        assert_eq!(pause, AskAfter(PAUSES_NANOS[0]));
    }

    #[test]
    fn rounds_of_reserving_end_in_both_attempts() {
        let seen = all(Allocation::new(1, NOW), &reserving());
        let of_one = usize::try_from(rounds_max(CAPACITY)).expect("few");
        let going_on = |seen: &[AfterRefusal]| {
            seen.iter().take_while(|one| **one == GoOnAfter(RESERVING_PAUSE_NANOS)).count()
        };
        assert_eq!((of_one, going_on(&seen)), (16, 16));
        let rest = &seen[of_one..];
        assert_eq!(rest[..PAUSES_NANOS.len()], PAUSES_NANOS.map(AskAfter));
        let rest = &rest[PAUSES_NANOS.len()..];
        assert_eq!(rest[0], AskAtLast);
        assert_eq!(going_on(&rest[1..]), of_one);
        assert_eq!(rest[1 + of_one..], [GiveUp]);
    }

    #[test]
    fn a_larger_store_may_take_more_rounds() {
        assert_eq!(rounds_max(8 * STORE_RESERVE_BYTES), 32);
    }

    /// Every way in which a node may refuse, in every order: it ends when the store stays the same.
    #[test]
    fn it_ends_whatever_the_node_says() {
        let answers = [refusal(), moving(6 << 20), reserving()];
        for order in 0..3_u64.pow(6) {
            let mut allocation = Allocation::new(1, NOW);
            let (mut now, mut asked, mut digits) = (NOW, 0, order);
            loop {
                let answer = &answers[usize::try_from(digits % 3).expect("small")];
                digits = digits / 3 + digits % 3 * 3_u64.pow(5);
                asked += 1;
                // The node keeps answers back while room is on its way.
                now = now.plus(if answer.moves == Some(true) { 1_000_000_000 } else { 1_000 });
                match allocation.on_refused(answer, now) {
                    AskAfter(nanos) | GoOnAfter(nanos) => now = now.plus(nanos),
                    AskAtLast => assert_eq!(allocation.ask(1, &[]).is_last, Some(true)),
                    GiveUp => break,
                }
                assert!(asked < 100, "{order} does not end");
            }
        }
    }
}
