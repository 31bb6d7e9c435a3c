//! Relief of a store that is full: values go to disk. Where there is no disk, or it takes nothing, values
//! that were made here for owners at other nodes go to those nodes.
//!
//! So tasks that run here may return more than this node has room for (Oakes' last chapter asks for that).
//! The values move as they do from a node that leaves ([`crate::node::draining`]). An owner gives a block
//! back as soon as no other process can have the value. For values that it could not have, or that are still
//! read, it is asked again with the next attempt to find room.
//!
//! Without a disk this file never moves what a local process holds, and decides nothing about values of local
//! owners: they are not told to others.

use sooner_wire::message::Place;
use sooner_wire::{BlockId, WorkerId};

use crate::node::draining::ask_to_bring;
use crate::node::{NodeActions, NodeCore, Room};
use crate::probes::mark;
use crate::table::Map;

impl NodeCore {
    /// There is no room. `length_of` gives the bytes of a block in memory. True if there will be some: copies
    /// have gone or go, or values are on their way elsewhere, or to disk.
    pub fn relieve(&mut self, room: Room, length_of: impl Fn(BlockId) -> u64, out: &mut NodeActions) -> bool {
        let free = self.evict_copies(room.most, out);
        let bytes = self.beside_copies(room, free);
        self.relieve_more(bytes, &length_of, out) || free > 0
    }

    fn relieve_more(
        &mut self,
        bytes: u64,
        length_of: &impl Fn(BlockId) -> u64,
        out: &mut NodeActions,
    ) -> bool {
        if self.leaving.is_possible() {
            self.spill_values(bytes, length_of, out);
            if self.is_spilling() || (self.leaving.spills() && !self.residency.has_unwritten()) {
                return self.is_spilling() || self.draining.waits();
            }
        }
        let is_leaving = self.pulls.leaving_bytes() > 0;
        if !self.role.is_member() || self.draining.has_begun() {
            return is_leaving || self.draining.waits();
        }
        // First the values of which the owner has not said yet that it has them, or cannot have them.
        let (again, new): (Vec<_>, Vec<_>) =
            self.movable().partition(|value| self.draining.is_brought(value));
        let mut left = bytes.saturating_sub(self.pulls.leaving_bytes());
        let mut by_owner: Map<WorkerId, Vec<Place>> = Map::default();
        for (owner, place) in new.into_iter().chain(again) {
            let length = self.block_to_gain(place).map_or(0, length_of);
            if left == 0 {
                break;
            }
            if length == 0 {
                continue;
            }
            left = left.saturating_sub(length);
            if self.draining.ask((owner, place)) {
                by_owner.entry(owner).or_default().push(place);
            }
        }
        let node = self.id();
        for (owner, places) in by_owner {
            mark!("a node without room had values brought elsewhere");
            ask_to_bring(node, owner, &places, out);
        }
        is_leaving || self.draining.waits()
    }

    /// The block that is free when an owner has brought home the value it holds here. With a disk, only
    /// values that could not be written are brought home: any other is in use, or may be written yet.
    fn block_to_gain(&self, held: Place) -> Option<BlockId> {
        match held {
            Place::Disk(spilled) => self.residency.block_of(spilled),
            Place::Memory(block) => Some(block).filter(|_| !self.leaving.spills()),
        }
    }

    /// Values that one process alone holds, of a node that stays.
    fn movable(&self) -> impl Iterator<Item = (WorkerId, Place)> {
        self.values_to_move().filter(|(_, place)| self.holders.of(*place).len() == 1)
    }
}
