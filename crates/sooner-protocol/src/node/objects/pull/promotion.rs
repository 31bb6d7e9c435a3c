//! Copies that become the value, because the value is lost where it was made
//! (`docs/adr/0052-copies-become-values.md`).
//!
//! The block of such a copy belongs to the value's owner from then on. Nodes that were sent here for a copy
//! still find it, by its generation.

use sooner_wire::message::Location;
use sooner_wire::{BlockId, ObjectId};

use super::{PullAction, Pulls, State};
use crate::probes::bug;

impl Pulls {
    /// The owner of an object wants a copy of this generation to be the value. Gives the copy's location, if
    /// all of it is local: the caller has the owner hold that block before it does what is in `out`. A
    /// repeated request gets the same answer.
    pub fn promote(
        &mut self,
        object: ObjectId,
        generation: u64,
        length: u64,
        out: &mut Vec<PullAction>,
    ) -> Option<Location> {
        if bug!(PromotedWhileArriving)
            && let Some(open) = self.open.get(&object)
            && let State::Moving { block, .. } = open.state
        {
            return Some(Location::in_memory(block, length));
        }
        let copy = self.here.get(&object).filter(|copy| copy.length == length)?;
        copy.directed.as_ref().filter(|directed| directed.is_of(generation))?;
        let was_cached = self.uncache(object);
        let copy = self.here.get_mut(&object).expect("looked up above");
        copy.is_primary = true;
        let directed = copy.directed.as_mut().expect("looked up above");
        let was_leaving = directed.take_for_owner();
        out.extend((was_leaving || was_cached).then_some(PullAction::Release(copy.block)));
        Some(copy.location())
    }

    /// The object whose copy in a block has become the value.
    #[must_use]
    pub fn primary_in(&self, block: BlockId) -> Option<ObjectId> {
        let object = self.object_in(block)?;
        self.here.get(&object).filter(|copy| copy.is_primary).map(|_| object)
    }
}
