//! Draining: a node that is about to end finishes the tasks that run and begins nothing more.

use weft_wire::message::ReclaimLease;

use super::{NodeAction, NodeActions, NodeCore};

impl NodeCore {
    /// From now on no lease is granted and no actor is placed; leases come back as their tasks end.
    pub fn drain(&mut self) {
        self.is_draining = true;
    }

    /// Whether no task runs any more.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.leases.is_empty()
    }

    pub(super) fn take_back_leases(&mut self, out: &mut NodeActions) {
        for (id, asker) in &mut self.askers {
            if asker.leases > 0 && !asker.reclaiming {
                asker.reclaiming = true;
                out.push(NodeAction::Send(*id, Box::new(ReclaimLease { count: 1, lease: None }.into())));
            }
        }
    }
}
