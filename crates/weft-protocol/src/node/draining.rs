//! Draining: a node that is about to end finishes the tasks that run and begins nothing more.

use weft_wire::WorkerId;

use super::{NodeActions, NodeCore};

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
        if self.is_member {
            self.refuse_all("its node is about to end", out);
            self.withdraw_all(out);
        }
        let holders = self.askers.iter().filter(|(_, asker)| asker.leases > 0).map(|(id, _)| *id);
        for holder in holders.collect::<Vec<WorkerId>>() {
            self.ask_back(holder, None, out);
        }
    }
}
