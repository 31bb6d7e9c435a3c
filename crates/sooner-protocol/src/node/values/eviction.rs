//! Relief of a store that is full: values go to disk, or, where there is none or it takes nothing, those that
//! were made here for owners at other nodes go to where those are.
//!
//! So tasks that run here may return more than this node has room for (Oakes' last chapter asks for that).
//! The way is that of a node that leaves ([`crate::node::draining`]); the owner gives a block back as soon as
//! nobody but itself can have the value. What the owner could not have, or what is still read, it is asked
//! for again with the next attempt to find room.
//!
//! Without a disk it never moves what a process here holds, and decides nothing about values whose owners are
//! here: they are not told to others.

use sooner_wire::message::Place;
use sooner_wire::{BlockId, WorkerId};

use crate::node::draining::ask_to_bring;
use crate::node::{NodeActions, NodeCore};
use crate::probes::mark;
use crate::table::Map;

impl NodeCore {
    /// There is no room for so many bytes. `length_of` gives the bytes of a block in memory. True if values
    /// are on their way elsewhere, or to disk.
    pub fn relieve(&mut self, bytes: u64, length_of: impl Fn(BlockId) -> u64, out: &mut NodeActions) -> bool {
        let free = self.evict_copies(bytes, out);
        self.relieve_more(bytes.saturating_sub(free), &length_of, out) || free > 0
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
        // First those of which the owner has not said yet that it has them, or cannot have them.
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

    /// The block that is free when an owner has brought home what it holds here. With a disk that is only
    /// what could not be written: anything else is in use, or may be written yet.
    fn block_to_gain(&self, held: Place) -> Option<BlockId> {
        match held {
            Place::Disk(spilled) => self.residency.block_of(spilled),
            Place::Memory(block) => Some(block).filter(|_| !self.leaving.spills()),
        }
    }

    /// What nobody holds but a process of a node that stays.
    fn movable(&self) -> impl Iterator<Item = (WorkerId, Place)> {
        self.values_to_move().filter(|(_, place)| self.holders.of(*place).len() == 1)
    }
}
