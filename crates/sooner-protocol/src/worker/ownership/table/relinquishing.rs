//! Giving up blocks when the node is short of memory: owned values go to disk, copies are dropped (Oakes,
//! table 5.1: what is in use is pinned; a secondary copy may go at any time).
//!
//! A block may go when no process can be reading it and every later reader will ask for its place first.
//! Threads of this process count as views while they look at the slot. Other processes learn the place with a
//! task that they execute, or as borrowers that asked for the value. So a value stays while such a process or
//! a view may be left. A reference alone, whose holder never asked, keeps nothing in memory: values inside
//! others, lists that tasks and actors hold, unread items. Nor do tasks that wait for their turn: they are
//! sent the place with the push.
//!
//! The same holds for values made at other nodes, which ask this process, too. No thread of this process can
//! be reading there. A node in the middle of a pull from there learns that the value is not there any more,
//! and asks for its new place.

use sooner_wire::message::{FreeAt, FreeBlocks, Location, Outcome, Place, Relinquishing, Remote};
use sooner_wire::{NodeId, ObjectId};

use super::{Origin, Ownership, Record, ValueState};
use crate::probes::{bug, mark};
use crate::table::Map;
use crate::worker::action::{Actions, Peer, send};

impl Ownership {
    /// The objects in those of `blocks` that may be given up, as far as this table knows; the others are in
    /// use.
    #[must_use]
    pub fn movable(&self, blocks: &[Relinquishing]) -> Vec<(Relinquishing, ObjectId)> {
        let mut copies: Map<Place, ObjectId> = Map::default();
        if blocks.iter().any(|block| block.spilled.is_none()) {
            copies = self.remotes.copies().map(|(object, at)| (at.place(), object)).collect();
        }
        let object = |block: &Relinquishing| match block.spilled {
            None => copies.get(&Place::from(block.block)).copied(),
            Some(_) => self.given_blocks.get(&Place::from(block.block)).copied(),
        };
        let found = blocks.iter().filter_map(|block| Some((*block, object(block)?)));
        found.filter(|(block, object)| self.is_movable(*object, block)).collect()
    }

    fn is_movable(&self, object: ObjectId, block: &Relinquishing) -> bool {
        let Some(record) = self.records.get(&object) else { return false };
        let is_there = matches!(record.slot.outcome().as_deref(), Some(Outcome::Stored(at)) if at.place() == block.block.into());
        let is_primary = !self.remotes.has_copy(object);
        let is_lent =
            matches!(&record.origin, Origin::Owned(_)) && record.is_lent() && !bug!(SpilledWhileBorrowed);
        is_there
            && is_primary == block.spilled.is_some()
            && !is_lent
            && record.value == ValueState::Regular
            && !record.is_shared
            && record.waiting.is_none()
            && !record.slot.is_taken()
            && !self.lost.contains(&Place::from(block.block))
            && !self.is_pulled(object)
    }

    /// [`Self::movable`] for blocks of another node. First: blocks given up before, of which that node has
    /// not learned.
    #[must_use]
    pub fn movable_at(
        &self,
        node: NodeId,
        blocks: &[Relinquishing],
    ) -> (Vec<Relinquishing>, Vec<(Relinquishing, ObjectId)>) {
        let wanted: Map<Place, Relinquishing> =
            blocks.iter().map(|block| (block.block.into(), *block)).collect();
        let numbered = blocks.iter().filter_map(|block| Some((Place::Disk(block.spilled?), *block)));
        let numbered: Map<Place, Relinquishing> = numbered.collect();
        let (mut moved, mut movable) = (Vec::new(), Vec::new());
        for (object, record) in self.records.iter().filter(|(object, _)| object.owner() == self.me) {
            let place = match record.slot.outcome().as_deref() {
                Some(Outcome::Remote(at)) => Some(**at),
                Some(Outcome::Stored(_)) => self.remotes.source_of(*object),
                Some(Outcome::Inline(_) | Outcome::Failed(_)) | None => None,
            };
            let Some(place) = place.filter(|place| place.node == node) else { continue };
            if let Some(block) = numbered.get(&place.location.place()) {
                moved.push(*block);
            } else if let Some(block) = wanted.get(&place.location.place())
                && self.is_movable_at(*object, record, &place)
            {
                movable.push((*block, *object));
            }
        }
        (moved, movable)
    }

    fn is_movable_at(&self, object: ObjectId, record: &Record, place: &Remote) -> bool {
        let is_lent = record.is_lent() && !bug!(SpilledWhileBorrowed);
        !is_lent
            && record.value == ValueState::Regular
            && !self.remotes.is_leaving(object)
            && !self.is_lost_at(object, place)
            && !self.is_pulled(object)
    }

    /// Gives up the block of a [`Self::movable_at`] object at another node. A copy here stays.
    pub fn give_up_at(
        &mut self,
        node: NodeId,
        object: ObjectId,
        block: Relinquishing,
        out: &mut Actions,
    ) -> bool {
        let Some(record) = self.records.get(&object) else { return false };
        let Some(spilled) = block.spilled else { return false };
        let to = |at: Location| Remote { node, location: at.on_disk(spilled) };
        match record.slot.outcome().as_deref() {
            Some(Outcome::Remote(at)) => {
                let place = to(at.location);
                record.slot.supersede(&Outcome::Remote(Box::new(place)));
                record_moved(self.records.get_mut(&object));
            }
            Some(Outcome::Stored(at)) => {
                let place = to(*at);
                self.remotes.move_source(object, place);
            }
            Some(Outcome::Inline(_) | Outcome::Failed(_)) | None => return false,
        }
        mark!("a value went to the disk of another node");
        self.end_copies(object, out);
        true
    }

    /// Frees the given-up block of an object at once, without writing the value. The value is never at its
    /// new place: a reader that finds that out has the task make it again.
    pub fn drop_value(&mut self, object: ObjectId, node: NodeId, block: Relinquishing, out: &mut Actions) {
        mark!("a value went because its task can make it again");
        if let Some(record) = self.records.get_mut(&object) {
            record.is_dropped = true;
        }
        send(out, Peer::Node, FreeAt { node, places: vec![block.block.into()] });
    }

    /// Whether a process that may have been told the place of an owned value may still use the object.
    #[must_use]
    pub fn is_told(&self, object: ObjectId) -> bool {
        self.records.get(&object).is_some_and(|record| record.is_told)
    }

    /// Whether other processes have references to an owned object.
    #[must_use]
    pub fn is_borrowed(&self, object: ObjectId) -> bool {
        self.records.get(&object).is_some_and(Record::is_borrowed)
    }

    /// An owned object that other processes borrow: `known`, if it still is one.
    #[must_use]
    pub fn borrowed_one(&self, known: Option<ObjectId>) -> Option<ObjectId> {
        let is_ours = |record: &Record| matches!(&record.origin, Origin::Owned(by) if !by.is_empty());
        let known = known.filter(|object| self.records.get(object).is_some_and(is_ours));
        known.or_else(|| self.records.iter().find(|(_, record)| is_ours(record)).map(|(object, _)| *object))
    }

    /// How many tasks, containers and pins use an object.
    #[must_use]
    pub fn uses(&self, object: ObjectId) -> u32 {
        self.records.get(&object).map_or(0, Record::uses)
    }

    /// The latest outcome known of an object.
    #[must_use]
    pub fn outcome(&self, object: ObjectId) -> Option<Outcome> {
        self.records.get(&object)?.slot.outcome().map(std::borrow::Cow::into_owned)
    }

    /// Whether the value of an object lies in this table.
    #[must_use]
    pub fn is_small(&self, object: ObjectId) -> bool {
        let outcome = self.records.get(&object).and_then(|record| record.slot.outcome());
        matches!(outcome.as_deref(), Some(Outcome::Inline(_)))
    }

    /// Bytes of those of `objects` whose values are in memory, here or at another node.
    #[must_use]
    pub fn bytes_in_memory(&self, objects: &[ObjectId]) -> u64 {
        let outcomes = objects.iter().filter_map(|object| self.records.get(object)?.slot.outcome());
        let bytes = outcomes.map(|outcome| match &*outcome {
            Outcome::Stored(at) => at.length,
            Outcome::Remote(remote) => remote.location.length,
            Outcome::Inline(_) | Outcome::Failed(_) => 0,
        });
        bytes.sum()
    }

    /// Gives the block of a [`Self::movable`] object up, unless a thread reads it now. `node`: this one.
    pub fn give_up(&mut self, object: ObjectId, block: Relinquishing, out: &mut Actions) -> bool {
        let node = self.me.node();
        let Some(record) = self.records.get(&object) else { return false };
        let Some(at) = record.slot.outcome().and_then(|outcome| outcome.place_here()) else { return false };
        let place = match block.spilled {
            Some(spilled) => Remote { node, location: at.on_disk(spilled) },
            None => match self.remotes.source_of(object) {
                Some(from) => from,
                // The value was lost at its source: this copy is all there is.
                None => return false,
            },
        };
        if !record.slot.move_to(&Outcome::Remote(Box::new(place))) {
            return false;
        }
        record.slot.set_elsewhere();
        if block.spilled.is_some() {
            mark!("a value went to disk");
            record_moved(self.records.get_mut(&object));
            self.given_blocks.swap_remove(&at.place());
            self.end_copies(object, out);
        } else {
            mark!("a copy went, and its value stayed");
            self.remotes.forget_copy(object);
            send(out, Peer::Node, FreeBlocks { places: vec![at.place()] });
        }
        true
    }
}

impl Record {
    fn is_borrowed(&self) -> bool {
        !matches!(&self.origin, Origin::Owned(borrowers) if borrowers.is_empty())
    }

    /// Whether a borrower may know where the value is.
    fn is_lent(&self) -> bool {
        self.is_borrowed() && self.is_told
    }
}

/// Records that the value is at a new place, which no process has been told.
fn record_moved(record: Option<&mut Record>) {
    let Some(record) = record else { return };
    if !record.is_told && record.is_borrowed() {
        mark!("a value that others borrow went to disk");
    }
    record.is_told = false;
}
