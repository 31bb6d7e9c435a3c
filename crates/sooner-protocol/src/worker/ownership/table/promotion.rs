//! Copies that become the value when it is lost: copies of this process's values at other nodes, or at this
//! node for other processes (`docs/adr/0052-copies-become-values.md`).
//!
//! The directory knows of complete copies. Nodes are asked one by one, the next when one refuses or dies. A
//! node that agrees already holds the copy for this process, which takes it, or gives it back if the value is
//! unwanted by then.
//!
//! It never takes a copy without asking: the node may have dropped it, and no process would know its block.

use sooner_wire::message::{FreeAt, FreeBlocks, Outcome, Place, Promote, Promoted, Remote};
use sooner_wire::{NodeId, ObjectId};

use super::{Origin, Ownership};
use crate::probes::{bug, mark};
use crate::table::{Map, Set};
use crate::worker::action::{Actions, Peer, send};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Promotions {
    /// The node asked for each object: one at a time, even if the record goes meanwhile or the value comes
    /// again.
    asked: Map<ObjectId, NodeId>,
    /// Blocks of this node that other local processes may hold, too: this process does not reuse them.
    here: Set<Place>,
    /// Blocks of this node that were pulled while it is asked for the same copy. It counts a process once per
    /// block, so its answer decides whether the block is given back.
    pulled: Map<ObjectId, Place>,
}

impl Promotions {
    /// A block is given back. Whether other processes may hold it, too.
    pub(super) fn forget_here(&mut self, place: Place) -> bool {
        !self.here.is_empty() && self.here.swap_remove(&place)
    }
}

/// What became of asking for a copy.
#[derive(Debug, PartialEq, Eq)]
pub enum Promotion {
    /// The value is there, with these references inside.
    Taken(Outcome, Vec<ObjectId>),
    /// The node does not have the copy.
    Refused,
    /// This process does not want the value any more.
    Unwanted,
}

impl Ownership {
    /// Asks for a complete copy of an owned value that is lost and is not being made. False if no copy is
    /// known. True if one was asked for already.
    pub fn ask_for_copy(&mut self, object: ObjectId, out: &mut Actions) -> bool {
        if object.owner() != self.me {
            return false;
        }
        if self.is_asked_for_a_copy(object) {
            return true;
        }
        self.forget_place(object, out);
        let Some((node, length, generation)) = self.kept_copy(object) else { return false };
        self.promotions.asked.insert(object, node);
        send(out, Peer::Node, Promote { object, node, length, generation });
        true
    }

    /// Whether a node was asked for its copy, and has not answered.
    pub(super) fn is_asked_for_copy(&self, object: ObjectId, node: NodeId) -> bool {
        self.promotions.asked.get(&object) == Some(&node)
    }

    /// Whether some node was asked for its copy, and has not answered.
    pub(super) fn is_asked_for_a_copy(&self, object: ObjectId) -> bool {
        self.promotions.asked.contains_key(&object)
    }

    /// A pulled copy arrived. True if this node is still asked for that same copy.
    pub(super) fn holds_asked_copy(&mut self, object: ObjectId, place: Place) -> bool {
        let is_asked = self.is_asked_for_copy(object, self.me.node());
        if is_asked {
            mark!("a copy came that was to become the value");
            self.promotions.pulled.insert(object, place);
        }
        is_asked
    }

    /// A node has answered a [`Promote`].
    pub fn on_promoted(&mut self, answer: &Promoted, out: &mut Actions) -> Promotion {
        let Promoted { object, node, location } = *answer;
        let is_expected = self.is_asked_for_copy(object, node);
        if is_expected {
            self.promotions.asked.swap_remove(&object);
        }
        let pulled = if is_expected { self.promotions.pulled.swap_remove(&object) } else { None };
        let record = self.records.get_mut(&object).filter(|_| is_expected);
        let record =
            record.filter(|record| matches!(record.origin, Origin::Owned(_)) && !record.slot.has_outcome());
        match (location, record) {
            (Some(location), Some(record)) => {
                mark!("a copy became the value");
                record.end_absence();
                record.is_dropped = false;
                let mut contained: Vec<ObjectId> = Vec::new();
                for inner in self.stale.get(&object).map_or(&[][..], |stale| &stale.contained) {
                    if !contained.contains(inner) {
                        contained.push(*inner);
                    }
                }
                let place = Remote { node, location };
                self.record_promoted(object, place);
                if node != self.me.node() {
                    return Promotion::Taken(Outcome::Remote(Box::new(place)), contained);
                }
                self.promotions.here.insert(location.place());
                Promotion::Taken(Outcome::Stored(location), contained)
            }
            (Some(location), None) => {
                mark!("a copy was held for an owner that did not want it any more");
                if !bug!(PromotedForNobody) {
                    self.give_copy_back(object, &Remote { node, location }, out);
                }
                self.forget_copy_at(object, node, out);
                Promotion::Unwanted
            }
            (None, _) => {
                mark!("a copy that was to become the value was not there");
                if let Some(place) = pulled {
                    send(out, Peer::Node, FreeBlocks { places: vec![place] });
                }
                self.forget_copy_at(object, node, out);
                Promotion::Refused
            }
        }
    }

    /// A node is dead: gives the objects whose copies it was asked for, as if it had refused.
    pub fn end_promotions_at(&mut self, node: NodeId) -> Vec<ObjectId> {
        let at = self.promotions.asked.iter().filter(|(_, asked)| **asked == node);
        let ended: Vec<ObjectId> = at.map(|(object, _)| *object).collect();
        for object in &ended {
            self.promotions.asked.swap_remove(object);
        }
        ended
    }

    /// Copies that were asked for; for tests.
    #[must_use]
    pub fn promotions(&self) -> usize {
        self.promotions.asked.len()
    }

    fn give_copy_back(&self, object: ObjectId, place: &Remote, out: &mut Actions) {
        let Remote { node, location } = *place;
        let places = vec![location.place()];
        if node != self.me.node() {
            return send(out, Peer::Node, FreeAt { node, places });
        }
        // The copy of a value that came again is held as that.
        if self.remotes.copies().all(|copy| copy != (object, location)) {
            send(out, Peer::Node, FreeBlocks { places });
        }
    }
}
