//! Draining: a node that is about to end finishes the tasks that run and begins nothing more.
//!
//! The node gives back what it was asked to begin. Values in its memory that belong to processes of other
//! nodes are handed over: their owners are told, have them brought to their own nodes, and report that.
//! Owners whose own nodes leave, too, are not asked. Actors that may move are ended by the control service,
//! which begins them elsewhere.

use sooner_wire::limits::HAND_OVER_MAX;
use sooner_wire::message::{HandOver, HandedOver, Place};
use sooner_wire::{NodeId, WorkerId};

use super::objects::Holders;
use super::values::transfers::address;
use super::{NodeAction, NodeActions, NodeCore};
use crate::table::{Map, Set};

/// Asks the owner of values in these places to have them brought to its own node.
pub(super) fn ask_to_bring(node: NodeId, owner: WorkerId, places: &[Place], out: &mut NodeActions) {
    for part in places.chunks(HAND_OVER_MAX) {
        let message = Box::new(HandOver { node, places: part.to_vec() }.into());
        out.push(NodeAction::Route { from: address(node), to: owner, message });
    }
}

/// Whether this node is about to end, and the values that their owners are to have brought elsewhere. A node
/// without room asks for that, too.
#[derive(Debug, Default)]
pub(super) struct Draining {
    has_begun: bool,
    /// Owners that were told to have a value brought elsewhere, with its place.
    handed_over: Set<(WorkerId, Place)>,
    /// Values whose owners have answered.
    brought: Set<(WorkerId, Place)>,
}

impl Draining {
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Whether an owner was told to have a value brought, and has not answered.
    pub(super) fn waits(&self) -> bool {
        !self.handed_over.is_empty()
    }

    /// Whether an owner has said that it has a value, or cannot have it.
    pub(super) fn is_brought(&self, value: &(WorkerId, Place)) -> bool {
        self.brought.contains(value)
    }

    /// An owner is to have a value brought, whatever it has said before. True if it must be told.
    pub(super) fn ask(&mut self, value: (WorkerId, Place)) -> bool {
        self.brought.swap_remove(&value);
        self.handed_over.insert(value)
    }

    /// These are all the values that are to be brought. Gives those whose owners must be told, by owner.
    fn ask_for_all(&mut self, left: Set<(WorkerId, Place)>) -> Map<WorkerId, Vec<Place>> {
        let mut by_owner: Map<WorkerId, Vec<Place>> = Map::default();
        for (owner, place) in left.iter().filter(|one| !self.handed_over.contains(*one)) {
            by_owner.entry(*owner).or_default().push(*place);
        }
        self.handed_over = left;
        by_owner
    }

    /// A block that was given back may hold another value by now.
    fn forget_given_back(&mut self, holders: &Holders) {
        self.brought.retain(|(owner, place)| holders.of(*place).contains(owner));
    }

    /// An owner has the values in these places, or cannot have them. It may hold some of them no longer.
    fn on_answer(&mut self, owner: WorkerId, places: impl Iterator<Item = Place>, holders: &Holders) {
        for place in places {
            if holders.of(place).contains(&owner) {
                self.brought.insert((owner, place));
            }
            self.handed_over.swap_remove(&(owner, place));
        }
    }

    /// An owner is dead, and has nothing brought to its node.
    pub(super) fn forget_owner(&mut self, gone: WorkerId) {
        self.handed_over.retain(|(owner, _)| *owner != gone);
        self.brought.retain(|(owner, _)| *owner != gone);
    }

    /// The session with a node has ended: requests to its processes, or their answers, may be lost. With the
    /// next need they are asked again.
    pub(super) fn ask_node_again(&mut self, node: NodeId) {
        self.handed_over.retain(|(owner, _)| owner.node() != node);
    }

    /// A process has given a block back, which may soon hold another of its values.
    #[inline]
    pub(super) fn on_given_back(&mut self, owner: WorkerId, place: Place) {
        if !(self.handed_over.is_empty() && self.brought.is_empty()) {
            self.handed_over.swap_remove(&(owner, place));
            self.brought.swap_remove(&(owner, place));
        }
    }
}

impl NodeCore {
    /// From now on no lease is granted and no actor is placed; leases come back as their tasks end.
    pub fn drain(&mut self) {
        self.draining.has_begun = true;
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
        if self.role.is_member() {
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
        self.values_to_move().filter(|one| !self.draining.is_brought(one))
    }

    /// Blocks that processes of nodes that stay hold here.
    pub(super) fn values_to_move(&self) -> impl Iterator<Item = (WorkerId, Place)> {
        let here = self.id();
        let stays = move |holder: &WorkerId| holder.node() != here && self.view.is_open(holder.node());
        let held = self.holders.all_held().filter(move |(holder, _)| stays(holder));
        held.filter(move |one| !self.lost.contains(one.1))
    }

    fn hand_over(&mut self, out: &mut NodeActions) {
        self.draining.forget_given_back(&self.holders);
        let left = self.values_to_leave().collect();
        let node = self.id();
        for (owner, places) in self.draining.ask_for_all(left) {
            ask_to_bring(node, owner, &places, out);
        }
    }

    /// A local process has the values of another node that leaves, or cannot have them.
    pub(super) fn on_handed_over_here(from: WorkerId, done: HandedOver, out: &mut NodeActions) {
        let to = address(done.node);
        out.push(NodeAction::Route { from, to, message: Box::new(done.into()) });
    }

    /// A process of another node has values of this node, or cannot have them.
    pub(super) fn on_handed_over(&mut self, from: WorkerId, done: &HandedOver) {
        self.draining.on_answer(from, done.places.iter().copied(), &self.holders);
    }
}

#[cfg(test)]
mod tests {
    use sooner_wire::BlockId;

    use super::*;

    const OWNER: WorkerId = WorkerId((2 << 24) + 1);
    const OTHER: WorkerId = WorkerId((3 << 24) + 1);

    fn values() -> [(WorkerId, Place); 2] {
        [(OWNER, BlockId(64).into()), (OTHER, BlockId(128).into())]
    }

    #[test]
    fn an_owner_is_asked_once_until_it_answers_or_its_session_ends() {
        let (mut draining, holders) = (Draining::default(), Holders::default());
        let all = || values().into_iter().collect::<Set<_>>();
        assert_eq!(draining.ask_for_all(all()).len(), 2);
        assert_eq!(draining.ask_for_all(all()).len(), 0);
        draining.ask_node_again(OTHER.node());
        assert!(draining.waits() && !draining.ask(values()[0]) && draining.ask(values()[1]));
        // It gave the block back before it answered: what lies there now is another value.
        draining.on_answer(OWNER, [BlockId(64).into()].into_iter(), &holders);
        assert!(!draining.is_brought(&values()[0]) && draining.ask(values()[0]));
        values().iter().for_each(|(owner, _)| draining.forget_owner(*owner));
        assert!(!draining.waits());
    }

    #[test]
    fn a_block_that_is_given_back_is_asked_for_again_when_it_holds_another_value() {
        let (mut draining, mut holders) = (Draining::default(), Holders::default());
        let (owner, place) = values()[0];
        holders.insert(place, owner);
        draining.ask((owner, place));
        draining.on_answer(owner, [place].into_iter(), &holders);
        assert!(draining.is_brought(&(owner, place)) && !draining.waits());
        draining.on_given_back(owner, place);
        assert!(!draining.is_brought(&(owner, place)) && draining.ask((owner, place)));
    }
}
