//! The copies of this process's values at other nodes, and which node pulls from which
//! (`docs/adr/0026-broadcast-chains-at-the-owner.md`).
//!
//! [`Chains`] decides; this module applies its decisions to the table. A value has an entry from when another
//! process's node asks for it until it goes. The value is where the table says, as long as the record stands.
//! Copies are additional: only nodes that pull from a copy keep it from going.
//!
//! Empty as long as there is one node.

use sooner_wire::message::{
    CopyLeaving, CopyMade, DropCopy, Locate, Located, Location, Remote, SenderFailed,
};
use sooner_wire::{NodeId, ObjectId};

use super::Ownership;
use crate::probes::mark;
use crate::table::Map;
use crate::worker::action::{Actions, Peer, send};
use crate::worker::ownership::{Assigned, ChainAction, Chains};

/// How often a place is named again after all its receivers reported that they cannot pull from it. Then the
/// value counts as lost.
const TRIES: u32 = 2;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Directory {
    chains: Chains,
    /// Where the values are that have an entry, and how often no receiver could pull from there.
    places: Map<ObjectId, (Remote, u32)>,
    /// Copies of values out of reference go when their nodes need the room, and not before.
    is_lazy: bool,
}

impl Ownership {
    /// From now on nodes are not told when values they have copies of go out of reference (Oakes, table 5.1:
    /// pinning and unpinning). They ask before such a copy goes for want of room, as for any other.
    pub fn unpin_lazily(&mut self) {
        self.directory.is_lazy = true;
    }

    /// A node wants a copy of an owned value. Gives the objects that turn out to be lost.
    pub fn on_locate(&mut self, locate: &Locate, out: &mut Actions) -> Vec<ObjectId> {
        let Locate { object, node } = *locate;
        let lost = self.lose_dropped(object, out);
        if !lost.is_empty() {
            // It pulls from a copy, or is told that the value is being made again.
            let mut said = Vec::new();
            self.directory.chains.on_locate(object, node, &mut said);
            self.send(said, out);
            return lost;
        }
        let place = self.place_of(object);
        let is_made_there = place.is_some_and(|place| place.node == node);
        let mut said = Vec::new();
        match place {
            Some(place) if !is_made_there && !self.directory.chains.contains(object) => {
                self.directory.made(object, place, 0, &mut said, out);
            }
            // Copies may be left of a value that is being made again.
            None if !self.directory.chains.has_complete(object) => {
                name_nobody(object, node, out);
                self.directory.chains.on_dropped(object, node, &mut said);
                return self.direct(said, out);
            }
            Some(_) if is_made_there => {
                name_nobody(object, node, out);
                return Vec::new();
            }
            Some(_) | None => {}
        }
        self.directory.chains.on_locate(object, node, &mut said);
        self.direct(said, out)
    }

    /// A node wants an owned value that was dropped for want of room, and would not find it: the value counts
    /// as lost, unless there is a copy of it here.
    fn lose_dropped(&mut self, object: ObjectId, out: &mut Actions) -> Vec<ObjectId> {
        if self.records.get(&object).is_none_or(|record| !record.is_dropped) {
            return Vec::new();
        }
        match self.place_of(object).filter(|place| place.location.place().is_disk()) {
            Some(place) => self.on_lost_at(place.node, &[place.location.place()], out),
            None => Vec::new(),
        }
    }

    /// A copy is complete.
    pub fn on_copy_made(&mut self, made: &CopyMade, out: &mut Actions) -> Vec<ObjectId> {
        let mut said = Vec::new();
        self.directory.chains.on_complete(made.object, made.node, made.attempt, &mut said);
        self.direct(said, out)
    }

    /// A node does not need its copy any more.
    pub fn on_copy_leaving(&mut self, gone: &CopyLeaving, out: &mut Actions) -> Vec<ObjectId> {
        if self.is_asked_for_copy(gone.object, gone.node) {
            // The node had not received the question; its answer comes next.
            return Vec::new();
        }
        let mut said = Vec::new();
        self.directory.chains.on_leaving(gone.object, gone.node, &mut said);
        self.direct(said, out)
    }

    /// A receiver cannot get the rest from its sender.
    pub fn on_sender_failed(&mut self, failed: &SenderFailed, out: &mut Actions) -> Vec<ObjectId> {
        let mut said = Vec::new();
        self.directory.chains.on_failed(failed.object, failed.node, failed.attempt, &mut said);
        self.direct(said, out)
    }

    /// A node is dead, with its copies; the values made there are lost already. Gives the objects that turn
    /// out to be lost besides.
    pub fn end_copies_at(&mut self, node: NodeId, out: &mut Actions) -> Vec<ObjectId> {
        if self.directory.chains.is_empty() {
            return Vec::new();
        }
        self.directory.places.retain(|_, (place, _)| place.node != node);
        let mut said = Vec::new();
        self.directory.chains.on_node_dead(node, &mut said);
        self.direct(said, out)
    }

    /// The value of an object is lost at its place: no other node is sent there.
    pub(super) fn forget_place(&mut self, object: ObjectId, out: &mut Actions) {
        if let Some((place, _)) = self.directory.places.swap_remove(&object) {
            self.forget_copy_at(object, place.node, out);
        }
    }

    /// A node does not have the copy that counted as kept for this process. The caller handles the value.
    pub(super) fn forget_copy_at(&mut self, object: ObjectId, node: NodeId, out: &mut Actions) {
        let mut said = Vec::new();
        if self.directory.chains.kept_at(object) == Some(node) {
            self.directory.chains.on_dropped(object, node, &mut said);
        }
        self.direct(said, out);
    }

    /// The nodes with complete copies of an owned value.
    pub(super) fn copies_at(&self, object: ObjectId) -> impl Iterator<Item = NodeId> {
        self.directory.chains.complete_at(object)
    }

    /// A node with a complete copy, how many bytes that has, and which execution they are of.
    pub(super) fn kept_copy(&self, object: ObjectId) -> Option<(NodeId, u64, u64)> {
        if self.directory.chains.is_empty() { None } else { self.directory.chains.kept(object) }
    }

    /// The copy that counted as kept is the value from now on, at `place`.
    pub(super) fn record_promoted(&mut self, object: ObjectId, place: Remote) {
        if self.directory.chains.on_promoted(object, place.node) {
            self.directory.places.insert(object, (place, 0));
        }
    }

    /// An owned value has its outcome: nodes that wait to pull it may.
    #[inline]
    pub(super) fn publish(&mut self, object: ObjectId, out: &mut Actions) {
        if !self.directory.chains.is_empty() {
            self.publish_again(object, out);
        }
    }

    fn publish_again(&mut self, object: ObjectId, out: &mut Actions) {
        if !self.directory.chains.contains(object) {
            return;
        }
        let Some(place) = self.place_of(object) else { return self.end_copies(object, out) };
        let mut said = Vec::new();
        self.directory.made(object, place, 0, &mut said, out);
        self.send(said, out);
    }

    /// An owned value goes, or is not in memory any more: its copies are dropped.
    #[inline]
    pub(super) fn end_copies(&mut self, object: ObjectId, out: &mut Actions) {
        if !self.directory.chains.is_empty() {
            self.forget_copies(object, out);
        }
    }

    /// An owned value is out of reference: no process will ask for copies of it.
    #[inline]
    pub(super) fn unpin_copies(&mut self, object: ObjectId, out: &mut Actions) {
        if !self.directory.is_lazy {
            return self.end_copies(object, out);
        }
        let mut said = Vec::new();
        self.directory.places.swap_remove(&object);
        self.directory.chains.on_unpinned(object, &mut said);
        self.send(said, out);
    }

    fn forget_copies(&mut self, object: ObjectId, out: &mut Actions) {
        let mut said = Vec::new();
        let place = self.directory.places.swap_remove(&object).map(|(place, _)| place.node);
        let kept = self.directory.chains.kept_at(object);
        self.directory.chains.on_dead(object, &mut said);
        // The block at the place that the table names is freed with the value.
        let copy = kept.filter(|node| Some(*node) != place);
        said.extend(copy.map(|node| ChainAction::Drop { object, node }));
        self.send(said, out);
    }

    /// Whether a node is in the middle of a pull of an owned value, as far as it was told a sender.
    pub(super) fn is_pulled(&self, object: ObjectId) -> bool {
        !self.directory.chains.is_empty() && self.directory.chains.is_pulled(object)
    }

    /// Sends what the chains decided, and handles values of which no complete copy can be reached. Gives
    /// those that are lost.
    fn direct(&mut self, said: Vec<ChainAction>, out: &mut Actions) -> Vec<ObjectId> {
        let mut lost = Vec::new();
        let mut without = self.send(said, out);
        while let Some(object) = without.pop() {
            if self.directory.chains.has_complete(object) {
                continue;
            }
            let before = self.directory.places.swap_remove(&object);
            let Some(place) = self.place_of(object) else {
                if !self.is_asked_for_a_copy(object) {
                    self.refuse_waiting(object, out);
                }
                continue;
            };
            let tries = before.filter(|(at, _)| *at == place).map_or(0, |(_, tries)| tries + 1);
            // This node itself reports the loss of a block here; a value said to be on its disk may be
            // missing.
            let may_be_lost = place.node != self.me.node() || place.location.place().is_disk();
            if tries >= TRIES && may_be_lost {
                lost.extend(self.on_lost_at(place.node, &[place.location.place()], out));
                continue;
            }
            let mut again = Vec::new();
            self.directory.made(object, place, tries, &mut again, out);
            without.extend(self.send(again, out));
        }
        lost
    }

    /// A value is being made again. Nodes that wait for a sender are told: what waits there for the value may
    /// hold the resources that making it takes. Those who want it ask its owner again.
    pub fn refuse_waiting(&mut self, object: ObjectId, out: &mut Actions) {
        if self.directory.chains.is_empty() {
            return;
        }
        // Whoever pulled from one of them waits, too, as that one is gone.
        while let Some(node) = self.directory.chains.waiting_at(object) {
            mark!("a node was told that the value that it pulls is being made again");
            let mut said = Vec::new();
            name_nobody(object, node, out);
            self.directory.chains.on_dropped(object, node, &mut said);
            self.send(said, out);
        }
    }

    /// Sends what the chains decided. Gives objects without a known complete copy.
    fn send(&self, said: Vec<ChainAction>, out: &mut Actions) -> Vec<ObjectId> {
        let mut without = Vec::new();
        for action in said {
            match action {
                ChainAction::Pull(assigned) => self.name_sender(&assigned, out),
                ChainAction::Drop { object, node } => send(out, Peer::Node, DropCopy { object, node }),
                // The value is where the table says. If it is not there, it is made again.
                ChainAction::Keep { .. } => {}
                ChainAction::Lost { object } => without.push(object),
                ChainAction::Refused { object, receiver } => self.name_place(object, receiver, out),
            }
        }
        without
    }

    fn name_sender(&self, assigned: &Assigned, out: &mut Actions) {
        let Assigned { object, receiver: node, sender, length, generation, attempt } = *assigned;
        let place = self.directory.places.get(&object).map(|(place, _)| *place);
        let made_there = place.filter(|place| place.node == sender);
        let (attempt, is_copy) = (Some(attempt), made_there.is_none());
        let copy = Remote { node: sender, location: Location { offset: 0, length } };
        let sender = Some(made_there.unwrap_or(copy));
        send(out, Peer::Node, Located { object, node, sender, generation, attempt, is_copy });
    }

    /// The table has no room for another copy: the node pulls from where the value was made.
    fn name_place(&self, object: ObjectId, node: NodeId, out: &mut Actions) {
        let (sender, generation, attempt, is_copy) = (self.place_of(object), 0, None, false);
        send(out, Peer::Node, Located { object, node, sender, generation, attempt, is_copy });
    }

    /// Asserts the invariants of the directory; for tests and the simulator.
    pub fn check_directory(&self) {
        self.directory.chains.check();
        for (object, (place, _)) in &self.directory.places {
            assert!(
                self.directory.chains.contains(*object),
                "a place of {object:?}, which nobody pulls: {place:?}"
            );
        }
    }
}

impl Directory {
    /// Enters the place of a value, unless a complete copy is known or there is no room.
    fn made(
        &mut self,
        object: ObjectId,
        place: Remote,
        tries: u32,
        said: &mut Vec<ChainAction>,
        out: &mut Actions,
    ) {
        let was_to_pull = self.chains.contains_at(object, place.node);
        if self.chains.on_made(object, place.node, place.location.length, said).is_none() {
            return;
        }
        self.places.insert(object, (place, tries));
        if was_to_pull {
            // The value was made at a node that was to pull it: those that wait there ask anew.
            name_nobody(object, place.node, out);
        }
    }
}

/// Tells a node that there is nothing to pull: its processes ask the owner for the value.
fn name_nobody(object: ObjectId, node: NodeId, out: &mut Actions) {
    let (sender, generation, attempt, is_copy) = (None, 0, None, false);
    send(out, Peer::Node, Located { object, node, sender, generation, attempt, is_copy });
}
