//! Draining: a node that is about to end finishes the tasks that run and begins nothing more.
//!
//! What it was asked to begin it gives back. Values in its memory that belong to processes of other nodes are
//! handed over: their owners are told, have them brought to where they are, and say so. Owners whose own
//! nodes leave, too, are not asked. Actors that may move are ended by the control service, which begins them
//! elsewhere.

use sooner_wire::limits::HAND_OVER_MAX;
use sooner_wire::message::{HandOver, HandedOver, Place};
use sooner_wire::{NodeId, WorkerId};

use super::values::transfers::address;
use super::{NodeAction, NodeActions, NodeCore};
use crate::table::{Map, Set};

/// Asks the owner of values in these places to have them brought to where it is.
pub(super) fn ask_to_bring(node: NodeId, owner: WorkerId, places: &[Place], out: &mut NodeActions) {
    for part in places.chunks(HAND_OVER_MAX) {
        let offsets = part.iter().map(|place| place.offset()).collect();
        let message = Box::new(HandOver { node, offsets }.into());
        out.push(NodeAction::Route { from: address(node), to: owner, message });
    }
}

impl NodeCore {
    /// From now on no lease is granted and no actor is placed; leases come back as their tasks end.
    pub fn drain(&mut self) {
        self.is_draining = true;
    }

    /// Whether no task runs any more.
    #[must_use]
    pub fn has_ended_tasks(&self) -> bool {
        self.leases.is_empty()
    }

    /// Whether no task runs any more, no actor is on its way elsewhere, and no value is left that another
    /// node can have.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.has_ended_tasks()
            && !self.local_actors.is_one_ending()
            && self.values_to_leave().next().is_none()
    }

    pub(super) fn take_back_leases(&mut self, out: &mut NodeActions) {
        if self.is_member {
            self.refuse_all("its node is about to end", out);
            self.withdraw_all(out);
            self.give_waiting_actors_back(out);
            self.hand_over(out);
        }
        let holders = self.askers.iter().filter(|(_, asker)| asker.leases > 0).map(|(id, _)| *id);
        for holder in holders.collect::<Vec<WorkerId>>() {
            self.ask_back(holder, None, out);
        }
    }

    /// Blocks that processes of nodes that stay hold here, and have not said that they have them.
    fn values_to_leave(&self) -> impl Iterator<Item = (WorkerId, Place)> {
        self.values_to_move().filter(|one| !self.brought.contains(one))
    }

    /// Blocks that processes of nodes that stay hold here.
    pub(super) fn values_to_move(&self) -> impl Iterator<Item = (WorkerId, Place)> {
        let here = self.id();
        let stays = move |holder: &WorkerId| holder.node() != here && self.view.is_open(holder.node());
        let held = self.holders.all_held().filter(move |(holder, _)| stays(holder));
        held.filter(move |one| !self.lost.contains(one.1))
    }

    fn hand_over(&mut self, out: &mut NodeActions) {
        // A block that was given back may hold another value by now.
        let holders = &self.holders;
        self.brought.retain(|(owner, place)| holders.of(*place).contains(owner));
        let left: Set<(WorkerId, Place)> = self.values_to_leave().collect();
        let mut by_owner: Map<WorkerId, Vec<Place>> = Map::default();
        for (owner, place) in left.iter().filter(|one| !self.handed_over.contains(*one)) {
            by_owner.entry(*owner).or_default().push(*place);
        }
        let node = self.id();
        for (owner, places) in by_owner {
            ask_to_bring(node, owner, &places, out);
        }
        self.handed_over = left;
    }

    /// A process here has the values of another node that leaves, or cannot have them.
    pub(super) fn on_handed_over_here(from: WorkerId, done: HandedOver, out: &mut NodeActions) {
        let to = address(done.node);
        out.push(NodeAction::Route { from, to, message: Box::new(done.into()) });
    }

    /// A process of another node says that of values here.
    pub(super) fn on_handed_over(&mut self, from: WorkerId, done: &HandedOver) {
        let holders = &self.holders;
        let places = || done.offsets.iter().map(|offset| Place::of(*offset));
        let held = places().filter(|place| holders.of(*place).contains(&from));
        self.brought.extend(held.map(|place| (from, place)));
        for place in places() {
            self.handed_over.swap_remove(&(from, place));
        }
    }

    /// An owner is gone, and has nothing brought to where it was.
    pub(super) fn end_hand_overs_to(&mut self, gone: WorkerId) {
        self.handed_over.retain(|(owner, _)| *owner != gone);
        self.brought.retain(|(owner, _)| *owner != gone);
    }

    /// The session with a node has ended: what its processes were asked to have brought there, or have
    /// answered, may not have arrived. With the next need they are asked again.
    pub(super) fn hand_over_again(&mut self, node: NodeId) {
        self.handed_over.retain(|(owner, _)| owner.node() != node);
    }

    /// A process has given a block back, which may hold another value of its soon.
    #[inline]
    pub(super) fn note_left(&mut self, owner: WorkerId, place: Place) {
        if !(self.handed_over.is_empty() && self.brought.is_empty()) {
            self.handed_over.swap_remove(&(owner, place));
            self.brought.swap_remove(&(owner, place));
        }
    }
}
