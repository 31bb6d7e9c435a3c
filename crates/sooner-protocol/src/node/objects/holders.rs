//! Who holds each block of a node's shared memory.
//!
//! A block is held by the process that owns the object in it. When an owner dies, its blocks must not be
//! reused while another process still has views of them: the node asks every process which ones it reads
//! ([`Orphans`]), and the readers become holders. The node itself keeps blocks that it will show to processes
//! to come: the arguments of a detached actor, the states in checkpoints. A block is free when nobody holds
//! it.
//!
//! A worker that dies may have told the node of a block it gave away and not the receiver of the value in it.
//! So the node asks the receivers which blocks of a dead giver they do not know; those are free. The question
//! comes after the message about the death, before which a receiver reads all that the giver sent it (N4).
//!
//! A value on disk has holders like a block: both are a [`Place`] here.
//!
//! It never touches memory: it says which places are free.

use std::collections::BTreeMap;

use sooner_wire::message::{Place, ReadersOf, StillRead};
use sooner_wire::{BlockId, ObjectId, TaskId, WorkerId};

use super::orphans::Orphans;
use crate::table::{Map, Set};

/// See the module.
#[derive(Debug, Default)]
pub struct Holders {
    places: Map<Place, Vec<WorkerId>>,
    /// Per block: its last giver and its receiver. Goes with the block.
    given: Map<Place, (WorkerId, WorkerId)>,
    by_holder: Map<WorkerId, Set<Place>>,
    /// Blocks the node keeps, and how often.
    kept: Map<Place, u32>,
    orphans: Orphans,
    /// Blocks that a process freed before the node received the message that gives it the block: giver and
    /// receiver use different connections. At most one entry per block on its way.
    early: Set<(Place, WorkerId)>,
    /// Blocks that a process gave on before the node received the message that gives them to it, and the next
    /// receiver: the process may have used the block again for a value that it returned.
    given_on: Map<(Place, WorkerId), WorkerId>,
    /// Objects in blocks whose holders are not their owners, or are at other nodes.
    objects: Map<Place, ObjectId>,
    /// Per block that others may read: its dead holders. No other process knows which object is in a block
    /// that the object's owner held.
    left_by: Map<Place, Vec<WorkerId>>,
    /// Objects in blocks that the node keeps, with or without other holders.
    kept_objects: Map<Place, ObjectId>,
    ages: Ages,
}

/// Blocks by time of creation or last failed eviction.
#[derive(Debug, Default)]
struct Ages {
    made: u64,
    by_age: BTreeMap<u64, BlockId>,
    of: Map<BlockId, u64>,
}

impl Ages {
    /// The block becomes the youngest.
    fn renew(&mut self, block: BlockId) {
        self.made += 1;
        if let Some(before) = self.of.insert(block, self.made) {
            self.by_age.remove(&before);
        }
        self.by_age.insert(self.made, block);
    }

    fn forget(&mut self, block: BlockId) {
        if let Some(age) = self.of.swap_remove(&block) {
            self.by_age.remove(&age);
        }
    }
}

/// Whether a block may be read for another node that asks for an object in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Serves {
    /// The object is there.
    Yes,
    /// The process may be about to report that: ask again when the node learns more of the block.
    NotYet,
    /// The block is free, or holds something else.
    No,
}

impl Holders {
    /// A block was allocated for `holder`.
    pub fn insert(&mut self, place: Place, holder: WorkerId) {
        self.places.insert(place, vec![holder]);
        if let Place::Memory(block) = place {
            self.ages.renew(block);
        }
        self.given.swap_remove(&place);
        self.objects.swap_remove(&place);
        self.by_holder.entry(holder).or_default().insert(place);
    }

    /// Moves the block to another process, the owner of its object. True if the block is free, because the
    /// receiver has freed it already. A dead receiver's block is not: other processes may have learned of the
    /// value from it.
    #[must_use]
    pub fn give(
        &mut self,
        place: Place,
        from: WorkerId,
        to: WorkerId,
        is_dead: &impl Fn(WorkerId) -> bool,
    ) -> bool {
        if !self.replace(place, from, to) {
            if self.places.contains_key(&place) {
                self.given_on.insert((place, from), to);
            }
            return false;
        }
        if let Some(next) = self.given_on.swap_remove(&(place, to)) {
            return self.give(place, to, next, is_dead);
        }
        if is_dead(to) {
            self.orphan(place, to);
            return false;
        }
        self.by_holder.entry(to).or_default().insert(place);
        self.given.insert(place, (from, to));
        self.early.swap_remove(&(place, to)) && self.release(place, to)
    }

    /// A process that holds a block is dead.
    fn orphan(&mut self, place: Place, gone: WorkerId) {
        let Some(holders) = self.places.get_mut(&place) else { return };
        holders.retain(|holder| *holder != gone);
        self.left_by.entry(place).or_default().push(gone);
        self.orphans.insert(place);
        let is_free = self.is_free_now(place);
        debug_assert!(!is_free, "somebody may read it");
    }

    /// Makes `to` the holder instead of `from`; false if `from` does not hold the block.
    fn replace(&mut self, place: Place, from: WorkerId, to: WorkerId) -> bool {
        let Some(holders) = self.places.get_mut(&place) else { return false };
        let Some(at) = holders.iter().position(|holder| *holder == from) else { return false };
        holders[at] = to;
        self.given.swap_remove(&place);
        if let Some(places) = self.by_holder.get_mut(&from) {
            places.swap_remove(&place);
        }
        true
    }

    /// All holders, each with each block that it holds.
    pub fn all_held(&self) -> impl Iterator<Item = (WorkerId, Place)> {
        self.by_holder.iter().flat_map(|(holder, places)| places.iter().map(|place| (*holder, *place)))
    }

    /// The `most` processes that hold most bytes: the bytes and the number of their blocks. `length` gives a
    /// block's bytes. A block with several holders counts for each.
    #[must_use]
    pub fn largest(&self, most: usize, length: impl Fn(BlockId) -> u64) -> Vec<(WorkerId, u64, u64)> {
        let sum = |(holder, places): (&WorkerId, &Set<Place>)| {
            let here = || places.iter().filter_map(|place| place.block());
            (*holder, here().map(&length).sum::<u64>(), here().count() as u64)
        };
        let mut all: Vec<_> = self.by_holder.iter().map(sum).filter(|(_, _, blocks)| *blocks > 0).collect();
        all.sort_by_key(|(holder, bytes, _)| (std::cmp::Reverse(*bytes), *holder));
        all.truncate(most);
        all
    }

    /// The node keeps a block with an object in it until [`Self::let_go`], to show it to processes to come.
    pub fn keep_object(&mut self, place: Place, object: ObjectId) {
        if self.places.contains_key(&place) {
            self.kept_objects.insert(place, object);
            self.keep(place);
        }
    }

    /// The node keeps a block until [`Self::let_go`].
    pub fn keep(&mut self, place: Place) {
        if self.places.contains_key(&place) {
            *self.kept.entry(place).or_default() += 1;
            self.orphans.hold(place);
        }
    }

    /// Adds a holder to a block: the process frees the block when it has no view of it any more.
    pub fn share(&mut self, place: Place, with: WorkerId) {
        if let Some(holders) = self.places.get_mut(&place).filter(|holders| !holders.contains(&with)) {
            holders.push(with);
            self.by_holder.entry(with).or_default().insert(place);
            self.orphans.hold(place);
        }
    }

    /// Ends one [`Self::keep`]. True if nobody holds the block now.
    #[must_use]
    pub fn let_go(&mut self, place: Place) -> bool {
        let Some(count) = self.kept.get_mut(&place) else { return false };
        *count -= 1;
        if *count == 0 {
            self.kept.swap_remove(&place);
            self.kept_objects.swap_remove(&place);
        }
        self.is_free_now(place)
    }

    /// Forgets a block without holders: true then. If its owner is dead, [`Orphans`] decides.
    fn is_free_now(&mut self, place: Place) -> bool {
        let is_unheld = !self.kept.contains_key(&place) && self.places.get(&place).is_some_and(Vec::is_empty);
        if is_unheld && self.orphans.contains(place) {
            self.orphans.unhold(place);
            return false;
        }
        if is_unheld {
            self.forget(place);
        }
        is_unheld
    }

    fn forget(&mut self, place: Place) {
        self.places.swap_remove(&place);
        if let Place::Memory(block) = place {
            self.ages.forget(block);
        }
        self.given.swap_remove(&place);
        self.objects.swap_remove(&place);
        if !self.left_by.is_empty() {
            self.left_by.swap_remove(&place);
        }
        if !self.given_on.is_empty() {
            self.given_on.retain(|(given, _), _| *given != place);
        }
        if !self.early.is_empty() {
            // Its giver is dead: the message that gives it does not come any more.
            self.early.retain(|(freed, _)| *freed != place);
        }
    }

    /// A holder frees a block. True if nobody holds it now.
    #[must_use]
    pub fn release(&mut self, place: Place, holder: WorkerId) -> bool {
        if let Some(places) = self.by_holder.get_mut(&holder) {
            places.swap_remove(&place);
        }
        let Some(holders) = self.places.get_mut(&place) else { return false };
        if !holders.contains(&holder) {
            self.early.insert((place, holder));
            return false;
        }
        holders.retain(|other| *other != holder);
        if self.given.get(&place).is_some_and(|(_, to)| *to == holder) {
            // The receiver knew the block, and is done with it: also if the node keeps it.
            self.given.swap_remove(&place);
        }
        self.is_free_now(place)
    }

    /// The blocks that a process gave away last, for each receiver that holds them.
    #[must_use]
    pub fn given_by(&self, giver: WorkerId) -> Map<WorkerId, Vec<Place>> {
        let mut receivers: Map<WorkerId, Vec<Place>> = Map::default();
        for (place, (from, to)) in &self.given {
            if *from == giver && self.by_holder.get(to).is_some_and(|held| held.contains(place)) {
                receivers.entry(*to).or_default().push(*place);
            }
        }
        receivers
    }

    /// Who gave a block last, and to whom. After [`Self::give`] that may be another process than the one that
    /// gave it: processes gave it on before the node learned that they got it, and may be dead since. When
    /// that giver died, the receiver was not asked whether it knows the block.
    #[must_use]
    pub fn last_given(&self, place: Place) -> Option<(WorkerId, WorkerId)> {
        self.given.get(&place).copied()
    }

    /// The receiver does not know a block that a dead process gave it. True if nobody holds the block now. An
    /// answer that was overtaken (the block was freed since, or given by another process) changes nothing.
    #[must_use]
    pub fn disown(&mut self, place: Place, giver: WorkerId, receiver: WorkerId) -> bool {
        self.given.get(&place) == Some(&(giver, receiver)) && self.release(place, receiver)
    }

    /// A process is dead. Gives the blocks that are free.
    #[must_use]
    pub fn on_dead(&mut self, worker: WorkerId) -> Vec<Place> {
        self.early.retain(|(_, holder)| *holder != worker);
        for place in self.by_holder.swap_remove(&worker).unwrap_or_default() {
            self.orphan(place, worker);
        }
        let free = self.orphans.on_dead(worker);
        self.forget_all(free)
    }

    /// The question for all processes, if one of them may read blocks of dead owners.
    pub fn ask(&mut self, clients: impl Iterator<Item = WorkerId>) -> Option<ReadersOf> {
        self.orphans.ask(clients)
    }

    /// A process names the blocks it reads. Gives those that are free now. Among the named may be a block
    /// that the dead owner was to get, before its giver's message about that came.
    #[must_use]
    pub fn on_answer(&mut self, from: WorkerId, answer: &StillRead) -> Vec<Place> {
        if !self.orphans.expects(answer.round, from) {
            return Vec::new();
        }
        for &place in &answer.places {
            self.orphans.insert(place);
            // The process knows the block by reading it, whoever gave it before.
            self.given.swap_remove(&place);
            self.share(place, from);
        }
        let free = self.orphans.on_answer(from, answer.lent.unwrap_or_default());
        self.forget_all(free)
    }

    fn forget_all(&mut self, places: Vec<Place>) -> Vec<Place> {
        places.iter().for_each(|place| self.forget(*place));
        places
    }

    /// What is in a block: a value whose owner is at another node.
    pub fn set_object(&mut self, place: Place, object: ObjectId) {
        if self.places.contains_key(&place) {
            self.objects.insert(place, object);
        }
    }

    /// The object in a block, if its owner is elsewhere and its giver has reported it.
    #[must_use]
    pub fn object_in(&self, place: Place) -> Option<ObjectId> {
        self.objects.get(&place).copied()
    }

    /// Whether an object is in a block, as far as the node knows. An owner never reports which object is in a
    /// block that it holds itself. It keeps the block for as long as any process asks for the object, and
    /// after its death the readers keep the block.
    #[must_use]
    pub fn serves(&self, place: Place, object: ObjectId) -> Serves {
        let Some(holders) = self.places.get(&place) else { return Serves::No };
        if self.kept_objects.get(&place) == Some(&object) {
            return Serves::Yes;
        }
        match self.objects.get(&place) {
            Some(inside) if *inside == object => Serves::Yes,
            Some(_) => Serves::No,
            None if holders.contains(&object.owner()) => Serves::Yes,
            None if holders.is_empty() => Serves::No,
            None if self.left_by.get(&place).is_some_and(|gone| gone.contains(&object.owner())) => {
                Serves::Yes
            }
            None => Serves::NotYet,
        }
    }

    /// States of actors in blocks that the node keeps.
    pub fn kept_states(&self) -> impl Iterator<Item = (TaskId, Place)> {
        let states = self.kept_objects.iter().filter(|(_, object)| **object == object.task.state());
        states.map(|(place, object)| (object.task, *place))
    }

    /// The processes that hold a block.
    #[must_use]
    pub fn of(&self, place: Place) -> &[WorkerId] {
        self.places.get(&place).map_or(&[], Vec::as_slice)
    }

    /// No client is left. Gives the blocks that are free.
    pub fn on_nobody_left(&mut self) -> Vec<Place> {
        let free = self.orphans.take_unread();
        self.forget_all(free)
    }

    /// Whether a process, and not the node, holds this block.
    #[must_use]
    pub fn is_held(&self, place: Place) -> bool {
        self.places.contains_key(&place) && !self.kept.contains_key(&place)
    }

    /// The blocks that processes hold, the oldest first. Blocks that the node keeps too are included only if
    /// `is_wanted`.
    pub fn oldest(&self, is_wanted: impl Fn(BlockId) -> bool) -> impl Iterator<Item = BlockId> {
        let blocks = self.ages.by_age.values().copied();
        blocks.filter(move |block| !self.kept.contains_key(&Place::Memory(*block)) || is_wanted(*block))
    }

    /// A block is in use: it becomes the youngest.
    pub fn renew(&mut self, block: BlockId) {
        if self.places.contains_key(&Place::Memory(block)) {
            self.ages.renew(block);
        }
    }

    /// Blocks that processes hold, or the node keeps, and numbers of values on disk.
    pub fn all(&self) -> impl Iterator<Item = Place> {
        self.places.keys().copied()
    }

    /// Blocks held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether no block is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use sooner_wire::message::Round;

    use super::*;

    const OWNER: WorkerId = WorkerId(1);
    const READER: WorkerId = WorkerId(2);
    const OTHER: WorkerId = WorkerId(3);

    fn at(offset: u64) -> Place {
        Place::of(offset)
    }

    fn alive(_: WorkerId) -> bool {
        false
    }

    fn answer(round: Round, offsets: &[u64]) -> StillRead {
        StillRead { round, places: Place::all(offsets), lent: Some(0) }
    }

    /// Asks these processes, none of which reads anything, until there is nothing to ask. Gives the blocks
    /// that are free.
    fn ask(holders: &mut Holders, processes: &[WorkerId]) -> Vec<Place> {
        let mut free = Vec::new();
        while let Some(question) = holders.ask(processes.iter().copied()) {
            for process in processes {
                free.extend(holders.on_answer(*process, &answer(question.round, &[])));
            }
        }
        free
    }

    /// Found by the simulator: the next value in that block was free while its owner held it.
    #[test]
    fn what_was_freed_before_it_was_given_is_forgotten_with_the_block() {
        let mut holders = Holders::default();
        holders.insert(at(0), OWNER);
        assert!(holders.on_dead(OWNER).is_empty(), "somebody may read it");
        assert!(!holders.release(at(0), OTHER), "it was told of the value, and its giver is gone");
        assert_eq!(ask(&mut holders, &[OTHER]), [at(0)]);
        holders.insert(at(0), READER);
        assert!(!holders.give(at(0), READER, OTHER, &alive), "another value");
        assert_eq!(holders.of(at(0)), [OTHER]);
    }

    #[test]
    fn a_block_is_free_when_its_holder_frees_it() {
        let mut holders = Holders::default();
        holders.insert(at(0), OWNER);
        assert!(!holders.give(at(0), OWNER, READER, &alive));
        assert!(holders.release(at(0), READER));
        assert!(holders.is_empty());
    }

    #[test]
    fn the_largest_holders_come_first() {
        let mut holders = Holders::default();
        for block in 0..3 {
            holders.insert(at(block), OWNER);
        }
        holders.insert(at(10), READER);
        holders.share(at(10), OTHER);
        let length = |block: BlockId| if block == BlockId(10) { 5000 } else { 1000 };
        let (first, second) = ((READER, 5000, 1), (OTHER, 5000, 1));
        assert_eq!(holders.largest(5, length), [first, second, (OWNER, 3000, 3)]);
        assert_eq!(holders.largest(2, length), [first, second]);
        assert!(!holders.release(at(10), READER));
        assert_eq!(holders.largest(1, length), [second], "who holds nothing is not named");
    }

    #[test]
    fn a_block_may_be_given_on_before_it_is_given() {
        // The receiver read the value, freed its block, used it again, and returned that: before the node
        // heard of it.
        let mut holders = Holders::default();
        holders.insert(at(0), OWNER);
        assert!(!holders.give(at(0), READER, OTHER, &alive));
        assert!(!holders.give(at(0), OWNER, READER, &alive));
        assert!(holders.release(at(0), OTHER));
        holders.insert(at(64), OWNER);
        assert!(!holders.give(at(64), READER, OTHER, &alive));
        assert!(!holders.give(at(64), OWNER, READER, &|process| process == READER));
        assert!(holders.release(at(64), OTHER));
        assert!(holders.is_empty());
    }

    #[test]
    fn a_block_may_be_freed_before_it_is_given() {
        // The reply reached the owner, and its release the node, before the worker's own message did.
        let mut holders = Holders::default();
        holders.insert(at(0), OWNER);
        assert!(!holders.release(at(0), READER));
        assert!(holders.give(at(0), OWNER, READER, &alive));
        assert!(holders.is_empty());
    }

    #[test]
    fn readers_inherit_the_blocks_of_a_dead_owner() {
        let mut holders = Holders::default();
        holders.insert(at(0), OWNER);
        holders.insert(at(64), OWNER);
        assert!(holders.on_dead(OWNER).is_empty());
        let round = holders.ask([READER, OTHER].into_iter()).expect("it held blocks").round;
        assert!(holders.on_answer(READER, &answer(round, &[64])).is_empty());
        assert!(holders.on_answer(OTHER, &answer(round, &[])).is_empty());
        assert_eq!(ask(&mut holders, &[READER, OTHER]), [at(0)]);
        assert!(!holders.release(at(64), READER));
        assert_eq!(ask(&mut holders, &[READER, OTHER]), [at(64)]);
        assert!(holders.is_empty());
    }

    #[test]
    fn what_a_dead_owner_held_is_shown_to_other_nodes_while_somebody_reads_it() {
        let object = |owner| TaskId { owner, number: 9 }.object(0);
        let mut holders = Holders::default();
        holders.insert(at(0), OWNER);
        assert!(holders.on_dead(OWNER).is_empty());
        let round = holders.ask([READER].into_iter()).expect("it held a block").round;
        assert!(holders.on_answer(READER, &answer(round, &[0])).is_empty());
        assert_eq!(holders.serves(at(0), object(OWNER)), Serves::Yes, "nobody will say more of it");
        assert_eq!(holders.serves(at(0), object(OTHER)), Serves::NotYet, "it may be about to be given");
        assert!(!holders.release(at(0), READER));
        assert_eq!(ask(&mut holders, &[READER]), [at(0)]);
        holders.insert(at(0), READER);
        assert_eq!(holders.serves(at(0), object(OWNER)), Serves::NotYet, "that was another value");
    }

    #[test]
    fn a_process_that_dies_during_a_round_has_answered() {
        let mut holders = Holders::default();
        holders.insert(at(0), OWNER);
        assert!(holders.on_dead(OWNER).is_empty());
        let round = holders.ask([READER, OTHER].into_iter()).expect("it held a block").round;
        assert!(holders.on_answer(OTHER, &answer(round, &[])).is_empty());
        assert!(holders.on_dead(READER).is_empty());
        assert_eq!(ask(&mut holders, &[OTHER]), [at(0)]);
        assert!(holders.is_empty());
    }

    #[test]
    fn a_block_that_the_node_keeps_outlives_its_holders() {
        let mut holders = Holders::default();
        holders.insert(at(0), OWNER);
        holders.keep(at(0));
        holders.keep(at(0));
        assert!(holders.on_dead(OWNER).is_empty());
        assert!(!holders.let_go(at(0)));
        assert_eq!(holders.ask([READER].into_iter()), None);
        assert!(!holders.let_go(at(0)));
        assert_eq!(ask(&mut holders, &[READER]), [at(0)]);
        holders.insert(at(64), OWNER);
        holders.keep(at(64));
        assert!(!holders.let_go(at(64)));
        assert!(holders.release(at(64), OWNER));
        assert!(holders.is_empty());
    }

    #[test]
    fn a_block_of_a_checkpoint_outlives_the_process_that_made_it() {
        let mut holders = Holders::default();
        holders.insert(at(0), OWNER);
        holders.keep(at(0));
        assert!(!holders.release(at(0), OWNER));
        assert!(holders.on_dead(OWNER).is_empty());
        holders.share(at(0), READER);
        assert!(!holders.let_go(at(0)));
        assert!(holders.release(at(0), READER));
        assert!(holders.is_empty());
    }

    #[test]
    fn a_block_whose_value_never_came_is_disowned() {
        let mut holders = Holders::default();
        for block in [0, 64] {
            holders.insert(at(block), OTHER);
            assert!(!holders.give(at(block), OTHER, READER, &alive));
        }
        assert!(holders.on_dead(OTHER).is_empty());
        assert_eq!(holders.given_by(OTHER), Map::from_iter([(READER, vec![at(0), at(64)])]));
        assert!(holders.disown(at(64), OTHER, READER));
        assert!(holders.release(at(0), READER));
        assert!(holders.is_empty() && holders.given.is_empty());
    }

    #[test]
    fn the_receiver_of_a_block_that_a_dead_process_gave_on_is_asked() {
        // OTHER had the value and used the block for one of its own, and died before it was said that it got
        // the block.
        let mut holders = Holders::default();
        let is_dead = |process| process == OTHER;
        holders.insert(at(0), OWNER);
        assert!(!holders.give(at(0), OTHER, READER, &alive));
        assert!(holders.on_dead(OTHER).is_empty());
        assert!(holders.given_by(OTHER).is_empty());
        assert!(!holders.give(at(0), OWNER, OTHER, &is_dead));
        assert_eq!(holders.last_given(at(0)), Some((OTHER, READER)));
        assert!(holders.disown(at(0), OTHER, READER));
        assert!(holders.is_empty());
    }

    #[test]
    fn an_answer_about_a_block_that_was_given_back_changes_nothing() {
        // READER returned a value in a block of OTHER, which died meanwhile, and is asked about what OTHER
        // gave it.
        let mut holders = Holders::default();
        let is_dead = |process| process == OTHER;
        holders.insert(at(0), OTHER);
        assert!(!holders.give(at(0), OTHER, READER, &alive));
        assert!(holders.on_dead(OTHER).is_empty());
        assert!(!holders.give(at(0), READER, OTHER, &is_dead));
        assert!(!holders.disown(at(0), OTHER, READER));
        assert_eq!(ask(&mut holders, &[READER]), [at(0)]);
        holders.insert(at(0), OWNER);
        assert!(!holders.give(at(0), OWNER, READER, &alive));
        assert_eq!(holders.len(), 1);
    }

    #[test]
    fn a_block_that_its_receiver_used_for_a_checkpoint_is_not_disowned() {
        // The receiver was asked about it after it had handed the block to the node with a state of its own.
        let mut holders = Holders::default();
        holders.insert(at(0), OTHER);
        assert!(!holders.give(at(0), OTHER, READER, &alive));
        holders.keep(at(0));
        assert!(!holders.release(at(0), READER));
        assert!(!holders.disown(at(0), OTHER, READER));
        assert!(holders.let_go(at(0)));
        // It comes back as the block of another value.
        holders.insert(at(0), OTHER);
        assert!(!holders.give(at(0), OTHER, READER, &alive));
        assert!(holders.release(at(0), READER));
        assert!(holders.is_empty());
    }

    #[test]
    fn an_answer_about_a_block_that_was_used_again_changes_nothing() {
        let mut holders = Holders::default();
        holders.insert(at(0), OTHER);
        assert!(!holders.give(at(0), OTHER, READER, &alive));
        assert_eq!(holders.given_by(OTHER).len(), 1);
        // The reader knew it and freed it, and got it again for a value of its own.
        assert!(holders.release(at(0), READER));
        holders.insert(at(0), READER);
        assert!(!holders.disown(at(0), OTHER, READER));
        // The reader freed that too, and the owner gave it the block with a value.
        assert!(holders.release(at(0), READER));
        holders.insert(at(0), OWNER);
        assert!(!holders.give(at(0), OWNER, READER, &alive));
        assert!(!holders.disown(at(0), OTHER, READER));
        assert_eq!(holders.len(), 1);
    }

    #[test]
    fn other_nodes_get_a_block_for_the_object_in_it_only() {
        let task = |owner, number| TaskId { owner, number };
        let (first, second) = (task(OWNER, 1).object(0), task(OWNER, 2).object(0));
        let mut holders = Holders::default();
        assert_eq!(holders.serves(at(0), first), Serves::No);
        // Made by a worker for an owner at another node, whose question may overtake the word of the worker.
        holders.insert(at(0), READER);
        assert_eq!(holders.serves(at(0), first), Serves::NotYet);
        assert!(!holders.give(at(0), READER, OWNER, &alive));
        holders.set_object(at(0), first);
        assert_eq!(holders.serves(at(0), first), Serves::Yes);
        assert_eq!(holders.serves(at(0), second), Serves::No);
        assert!(holders.release(at(0), OWNER));
        assert_eq!(holders.serves(at(0), first), Serves::No);
        // Its owner's own.
        holders.insert(at(0), OWNER);
        assert_eq!(holders.serves(at(0), second), Serves::Yes);
        assert_eq!(holders.serves(at(0), task(READER, 1).object(0)), Serves::NotYet);
    }

    #[test]
    fn a_block_given_to_a_dead_process_is_free_when_nobody_reads_it() {
        // The dead process got the value and told a reader of it; the word of the giver comes last.
        let mut holders = Holders::default();
        let is_dead = |process| process == OTHER;
        holders.insert(at(0), OWNER);
        assert!(!holders.give(at(0), OWNER, OTHER, &is_dead));
        let round = holders.ask([OWNER, READER].into_iter()).expect("the others are asked").round;
        assert!(holders.on_answer(READER, &answer(round, &[0])).is_empty());
        assert!(holders.on_answer(OWNER, &answer(round, &[])).is_empty());
        assert!(!holders.release(at(0), READER));
        assert_eq!(ask(&mut holders, &[OWNER, READER]), [at(0)]);
        // It was given on before it was given.
        holders.insert(at(64), OWNER);
        assert!(!holders.give(at(64), READER, OTHER, &is_dead));
        assert!(!holders.give(at(64), OWNER, READER, &is_dead));
        assert_eq!(ask(&mut holders, &[OWNER]), [at(64)]);
        assert!(holders.is_empty());
    }

    #[test]
    fn a_reader_may_name_a_block_that_its_dead_owner_has_not_been_given_yet() {
        let mut holders = Holders::default();
        let is_dead = |process| process == OWNER;
        holders.insert(at(0), OTHER);
        holders.insert(at(64), OWNER);
        assert!(holders.on_dead(OWNER).is_empty());
        let round = holders.ask([READER].into_iter()).expect("it held a block").round;
        assert!(holders.on_answer(READER, &answer(round, &[0])).is_empty());
        assert_eq!(ask(&mut holders, &[READER]), [at(64)]);
        assert!(!holders.give(at(0), OTHER, OWNER, &is_dead));
        assert!(!holders.release(at(0), READER));
        assert_eq!(ask(&mut holders, &[READER]), [at(0)]);
        assert!(holders.is_empty());
    }
}
