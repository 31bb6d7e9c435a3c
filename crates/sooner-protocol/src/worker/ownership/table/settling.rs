//! What the death of a process means for counts, and which process takes over its blocks
//! (`docs/adr/0015-settling-a-death.md`).

use sooner_wire::limits::WORKERS_MAX;
use sooner_wire::message::{Held, Place, Settled};
use sooner_wire::{ObjectId, WorkerId};

use super::{Origin, Ownership, Record};
use crate::probes::{bug, mark};
use crate::worker::action::Actions;
use crate::worker::ownership::Borrowers;

impl Ownership {
    /// Whether this process knows that a process is dead.
    #[must_use]
    pub fn is_dead(&self, process: WorkerId) -> bool {
        self.gone.contains(&process)
    }

    /// Records that a process is dead. False if that was known.
    pub(super) fn record_death_of(&mut self, process: WorkerId) -> bool {
        let is_news = self.gone.insert(process);
        self.watched.swap_remove(&process);
        if self.gone.len() > WORKERS_MAX
            && let Some(forgotten) = self.gone.shift_remove_index(0)
        {
            // Owners have forgotten this death, too, and would wait for it to be settled.
            self.sent_of.retain(|_, givers| {
                givers.retain(|(giver, _)| *giver != forgotten);
                !givers.is_empty()
            });
        }
        is_news
    }

    /// What this process holds from the dead `giver`: references that `giver` handed to it, and those in
    /// `lent`, which a task of `giver` uses here. From now on they count as this process's own.
    pub fn held_from(&mut self, giver: WorkerId, lent: &[ObjectId]) -> Vec<Held> {
        let mut held: Vec<Held> = Vec::new();
        let me = self.me;
        self.handed.retain(|object, givers| {
            if let Some(at) = givers.iter().position(|(who, _)| *who == giver) {
                let (_, count) = givers.swap_remove(at);
                held.push(Held { object: *object, borrower: me, count, of: None });
            }
            !givers.is_empty()
        });
        let earlier = self.said.get(&giver);
        for object in lent {
            let is_sent = |list: &[Held]| list.iter().any(|held| held.object == *object);
            if !is_sent(&held) && !earlier.is_some_and(|earlier| is_sent(earlier)) {
                held.push(Held { object: *object, borrower: me, count: 1, of: None });
            }
        }
        held.retain(|held| {
            let Some(Record { origin: Origin::Borrowed { received, .. }, .. }) =
                self.records.get_mut(&held.object)
            else {
                return false;
            };
            *received += held.count;
            !self.gone.contains(&held.object.owner())
        });
        for held in &held {
            self.sent_of.entry(held.object).or_default().push((giver, held.count));
        }
        if !held.is_empty() {
            mark!("a process held references of a dead one");
        }
        if giver.node() != self.me.node() {
            held = self.repeat_held(giver, held);
        }
        held
    }

    /// A process of another node may be taken for dead because it could not be reached, and end later. What
    /// was reported the first time reached no owner, and is reported again.
    fn repeat_held(&mut self, giver: WorkerId, mut held: Vec<Held>) -> Vec<Held> {
        if let Some(earlier) = self.said.swap_remove(&giver) {
            held.extend(earlier);
        }
        if !held.is_empty() {
            self.said.insert(giver, held.clone());
        }
        held
    }

    /// All processes have reported what they hold from dead ones: these deaths are settled.
    pub fn on_settled(&mut self, settled: &Settled, out: &mut Actions) {
        for held in &settled.held {
            if held.of.is_some_and(|of| self.is_settled(of)) {
                continue;
            }
            let count = i32::try_from(held.count).unwrap_or(i32::MAX);
            self.change_borrow(held.object, held.borrower, None, count, out);
        }
        for gone in &settled.gone {
            // News for a process that came after the death, of which it may have been told by name.
            self.record_death_of(*gone);
            self.unsettled.swap_remove(gone);
            self.said.swap_remove(gone);
            for object in self.borrowed_by.swap_remove(gone).unwrap_or_default() {
                if let Some(Record { origin: Origin::Owned(borrowers), .. }) = self.records.get_mut(&object)
                    && !bug!(DeadBorrowerKept)
                {
                    for borrower in borrowers.end(*gone) {
                        if !borrowers.names(borrower)
                            && let Some(objects) = self.borrowed_by.get_mut(&borrower)
                        {
                            objects.swap_remove(&object);
                        }
                    }
                }
                self.drop_if_unkept(object, out);
            }
        }
    }

    /// Which of these blocks of dead holders this process reads (a view of the value is a handle). It holds
    /// them from now on, and gives them up with their records. A value whose owner is dead is its own then.
    pub fn inherit(&mut self, places: &[Place]) -> Vec<Place> {
        self.orphans = places.iter().copied().collect();
        let mut read: Vec<Place> =
            self.orphans.iter().copied().filter(|place| self.given_blocks.contains_key(place)).collect();
        self.borrowed_from.retain(|_, objects| {
            objects.retain(|object| {
                let Some(record) = self.records.get_mut(object) else { return false };
                // A reader of the place where the value was before its loss has a view of it, or is a task
                // about to read. Otherwise the value may have left that block long ago, and another one be
                // there.
                let is_read = record.slot.views() > 0 || record.uses() > 0;
                for location in
                    record.slot.lost_outcomes().filter_map(|lost| lost.place_here()).filter(|_| is_read)
                {
                    if self.orphans.contains(&location.place())
                        && self.given_blocks.insert(location.place(), *object).is_none()
                    {
                        read.push(location.place());
                        self.stale.entry(*object).or_default().blocks.push(location);
                        record.is_shared = true;
                    }
                }
                let Some(location) = record.slot.outcome().and_then(|outcome| outcome.place_here()) else {
                    return true;
                };
                if !self.orphans.contains(&location.place()) {
                    return true;
                }
                read.push(location.place());
                if !self.gone.contains(&object.owner()) {
                    // A copy is there whose holder is dead. Its owner, which lives, may have made it
                    // the value since the question was asked.
                    self.remotes.hold_copy(*object, location);
                    return true;
                }
                self.given_blocks.insert(location.place(), *object);
                record.origin = Origin::Owned(Borrowers::default());
                record.is_shared = true;
                self.handed.swap_remove(object);
                self.sent_of.swap_remove(object);
                false
            });
            !objects.is_empty()
        });
        read
    }

    /// Counts a value lent to this process if its block is one of a dead owner.
    #[inline]
    pub fn meet_block(&mut self, place: Place) {
        self.orphans_met += u64::from(self.is_orphan(place));
    }

    /// How often this process was lent a value in a block of a dead owner.
    #[must_use]
    pub fn orphans_met(&self) -> u64 {
        self.orphans_met
    }

    /// Whether the node asked which processes read a block, because its owner is dead.
    #[inline]
    #[must_use]
    pub fn is_orphan(&self, place: Place) -> bool {
        !self.orphans.is_empty() && self.orphans.contains(&place)
    }
}
