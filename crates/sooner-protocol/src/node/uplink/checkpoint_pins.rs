//! Which processes pin objects for which actor's checkpoint. Sent again to a restarted control service, so
//! that it can unpin what no checkpoint needs.

use sooner_wire::message::Message;
use sooner_wire::{ActorId, WorkerId};

use crate::node::NodeCore;
use crate::table::Set;
use crate::uplink::ToNode;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct CheckpointPins(Set<(ActorId, WorkerId)>);

impl CheckpointPins {
    /// The control service sent a message.
    pub(super) fn on_control(&mut self, node: &NodeCore, word: &ToNode) {
        let ToNode::Routed { to, message } = word else { return };
        let Message::KeepObjects(keep) = &**message else { return };
        if keep.objects.is_empty() {
            self.0.swap_remove(&(keep.actor, *to));
        } else if node.has_client(*to) {
            self.0.insert((keep.actor, *to));
        }
    }

    /// A process is dead, and so is what it owned.
    pub(super) fn end(&mut self, process: WorkerId) {
        if !self.0.is_empty() {
            self.0.retain(|(_, keeper)| *keeper != process);
        }
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<(ActorId, WorkerId)> {
        self.0.iter().copied().collect()
    }
}
