//! Values that are lost where they were, and copies that take their place
//! (`docs/adr/0052-copies-become-values.md`).

use sooner_wire::NodeId;
use sooner_wire::message::Promoted;

use super::Promotion;
use crate::worker::WorkerCore;
use crate::worker::action::Actions;

impl WorkerCore {
    /// A node was asked for its copy of a value of ours, and has answered.
    pub(in crate::worker) fn on_promoted(&mut self, answer: &Promoted, out: &mut Actions) {
        match self.ownership.on_promoted(answer, out) {
            Promotion::Taken(outcome, contained) => self.resolve(answer.object, outcome, &contained, out),
            // The next node is asked, or the value is made again, unless it is there or is being made.
            Promotion::Refused | Promotion::Unwanted => self.recover(answer.object, out),
        }
    }

    /// A node is gone that may have been asked for copies.
    pub(in crate::worker) fn end_promotions_at(&mut self, node: NodeId, out: &mut Actions) {
        for object in self.ownership.end_promotions_at(node) {
            self.recover(object, out);
        }
    }
}
