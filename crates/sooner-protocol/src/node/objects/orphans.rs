//! Blocks whose owners are dead, and whether any process still reads them.
//!
//! Readers are not counted: a process that reads such a value may lend it on, and end before or after its
//! borrower. Instead every process is asked. A reader names the block and holds it until it frees it; when
//! the block has no known holder, all are asked again. A block is free after two rounds in which no process
//! read it and between whose answers no process was lent such a value: then there was a moment at which no
//! process had the value, and none could get it any more. (The argument is that of termination detection by
//! two counts.)
//!
//! It never touches memory: it says which blocks are free.

use sooner_wire::WorkerId;
use sooner_wire::message::{Place, ReadersOf, Round};

use crate::table::{Map, Set};

#[derive(Debug)]
struct OpenRound {
    number: Round,
    /// Processes that have not answered.
    open: Set<WorkerId>,
    /// Blocks in question.
    places: Vec<Place>,
    /// Since the round before, no process was lent a value in such a block, and none has died.
    is_quiet: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    places: Set<Place>,
    /// Blocks without a known holder, and whether a whole round has found no reader.
    unheld: Map<Place, bool>,
    round: Option<OpenRound>,
    asked: u64,
    /// Per process: how often it had been lent a value in a block of the question before, as of its last
    /// answer.
    lent: Map<WorkerId, u64>,
}

impl Orphans {
    /// The owner of a block is dead.
    pub(super) fn insert(&mut self, place: Place) {
        self.places.insert(place);
    }

    /// Whether the owner of a block is dead.
    pub(super) fn contains(&self, place: Place) -> bool {
        self.places.contains(&place)
    }

    /// A block whose owner is dead has no known holder.
    pub(super) fn unhold(&mut self, place: Place) {
        self.unheld.insert(place, false);
    }

    /// A block has a holder.
    pub(super) fn hold(&mut self, place: Place) {
        self.unheld.swap_remove(&place);
    }

    /// The question for all processes, if a round is due.
    pub(super) fn ask(&mut self, clients: impl Iterator<Item = WorkerId>) -> Option<ReadersOf> {
        if self.unheld.is_empty() || self.round.is_some() {
            return None;
        }
        let open: Set<WorkerId> = clients.collect();
        if open.is_empty() {
            return None;
        }
        self.asked += 1;
        let places: Vec<Place> = self.unheld.keys().copied().collect();
        let number = Round::of_readers(self.asked);
        self.round = Some(OpenRound { number, open, places: places.clone(), is_quiet: true });
        Some(ReadersOf { round: number, places })
    }

    /// There is no process that could read anything. Gives the blocks that are free.
    pub(super) fn take_unread(&mut self) -> Vec<Place> {
        let free: Vec<Place> = std::mem::take(&mut self.unheld).into_keys().collect();
        for place in &free {
            self.places.swap_remove(place);
        }
        free
    }

    /// Whether the open round waits for this answer.
    pub(super) fn expects(&self, round: Round, from: WorkerId) -> bool {
        self.round.as_ref().is_some_and(|open| open.number == round && open.open.contains(&from))
    }

    /// A process has answered, and holds the blocks it reads. Gives the blocks that are free.
    pub(super) fn on_answer(&mut self, from: WorkerId, lent: u64) -> Vec<Place> {
        let before = self.lent.insert(from, lent).unwrap_or_default();
        let Some(round) = &mut self.round else { return Vec::new() };
        round.open.swap_remove(&from);
        round.is_quiet &= before == lent;
        self.close()
    }

    /// A process is dead. Gives the blocks that are free.
    pub(super) fn on_dead(&mut self, gone: WorkerId) -> Vec<Place> {
        self.lent.swap_remove(&gone);
        if let Some(round) = &mut self.round {
            round.open.swap_remove(&gone);
            round.is_quiet = false;
        }
        self.close()
    }

    fn close(&mut self) -> Vec<Place> {
        let Some(round) = self.round.take_if(|round| round.open.is_empty()) else { return Vec::new() };
        let mut free = Vec::new();
        for place in round.places {
            match self.unheld.get_mut(&place) {
                Some(true) if round.is_quiet => {
                    self.unheld.swap_remove(&place);
                    self.places.swap_remove(&place);
                    free.push(place);
                }
                Some(is_asked) => *is_asked = true,
                // A reader holds it.
                None => {}
            }
        }
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: WorkerId = WorkerId(1);
    const B: WorkerId = WorkerId(2);

    fn at(offset: u64) -> Place {
        Place::of(offset)
    }

    fn orphan() -> Orphans {
        let mut orphans = Orphans::default();
        orphans.insert(at(64));
        orphans.unhold(at(64));
        orphans
    }

    fn round(orphans: &mut Orphans, lent: [u64; 2]) -> Vec<Place> {
        let number = orphans.ask([A, B].into_iter()).expect("a round is due").round;
        assert!(orphans.expects(number, A) && orphans.expects(number, B));
        assert!(orphans.on_answer(A, lent[0]).is_empty());
        orphans.on_answer(B, lent[1])
    }

    #[test]
    fn a_block_is_free_after_two_rounds_without_a_reader() {
        let mut orphans = orphan();
        assert!(round(&mut orphans, [0, 0]).is_empty());
        assert_eq!(round(&mut orphans, [0, 0]), [at(64)]);
        assert_eq!(orphans.ask([A].into_iter()), None);
    }

    #[test]
    fn a_block_is_free_when_there_is_nobody_to_ask() {
        let mut orphans = orphan();
        orphans.insert(at(128));
        assert_eq!(orphans.ask([].into_iter()), None);
        assert_eq!(orphans.take_unread(), [at(64)], "the other one is held by the node");
        assert!(orphans.take_unread().is_empty() && orphans.contains(at(128)));
    }

    #[test]
    fn a_value_that_moves_between_answers_is_not_missed() {
        // B answered before A lent the value to it, and A after it was done.
        let mut orphans = orphan();
        assert!(round(&mut orphans, [0, 0]).is_empty());
        assert!(round(&mut orphans, [0, 1]).is_empty());
        orphans.hold(at(64));
        assert_eq!(orphans.ask([A, B].into_iter()), None);
        orphans.unhold(at(64));
        assert!(round(&mut orphans, [0, 1]).is_empty());
        assert_eq!(round(&mut orphans, [0, 1]), [at(64)]);
    }

    #[test]
    fn a_death_between_answers_makes_another_round() {
        let mut orphans = orphan();
        assert!(round(&mut orphans, [0, 0]).is_empty());
        orphans.ask([A, B].into_iter()).expect("a round is due");
        assert!(orphans.on_dead(A).is_empty());
        assert!(orphans.on_answer(B, 0).is_empty());
        orphans.ask([B].into_iter()).expect("a round is due");
        assert_eq!(orphans.on_answer(B, 0), [at(64)]);
    }

    #[test]
    fn a_block_that_comes_during_a_round_is_not_part_of_it() {
        let mut orphans = orphan();
        assert!(round(&mut orphans, [0, 0]).is_empty());
        orphans.ask([A, B].into_iter()).expect("a round is due");
        orphans.insert(at(128));
        orphans.unhold(at(128));
        assert!(orphans.on_answer(A, 0).is_empty());
        assert_eq!(orphans.on_answer(B, 0), [at(64)]);
        assert!(round(&mut orphans, [0, 0]).is_empty());
        assert_eq!(round(&mut orphans, [0, 0]), [at(128)]);
    }
}
