//! Settling the deaths of processes that other nodes have to do with (`docs/adr/0029-settling-over-nodes.md`).
//!
//! Each node that is told of a death, and the node where it was, answers once for all its clients with what they hold of the
//! dead process. When nobody owes an answer any more all open deaths are settled together: one who died meanwhile may
//! have handed on what it had of an earlier one. Nodes settle by themselves what no other node can know of.

use weft_wire::message::{Held, Settled, WorkerGone};
use weft_wire::{NodeId, WorkerId};

use super::{ControlAction, ControlActions, ControlCore, ToNode};
use crate::table::{Map, Set};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Settling {
    /// The dead, and the nodes that have not answered.
    open: Map<WorkerId, Set<NodeId>>,
    /// Nodes that hear how it ends.
    concerned: Set<NodeId>,
    held: Vec<Held>,
}

impl ControlCore {
    /// A process is gone, as its node says: the nodes that have to do with it are told, and asked.
    pub(super) fn on_death(
        &mut self,
        process: WorkerId,
        watchers: &[NodeId],
        gone: Option<Box<WorkerGone>>,
        out: &mut ControlActions,
    ) {
        self.settling.held.retain(|held| held.borrower != process && held.object.owner() != process);
        let Some(gone) = gone.filter(|_| !watchers.is_empty()) else { return };
        let home = process.node();
        let known = watchers.iter().filter(|node| **node != home && self.nodes.contains_key(*node));
        let mut asked: Set<NodeId> = known.copied().collect();
        for node in &asked {
            out.push(ControlAction::Send(*node, Box::new(ToNode::Gone(gone.clone()))));
        }
        asked.insert(home);
        self.settling.concerned.extend(asked.iter().copied());
        self.settling.open.insert(process, asked);
    }

    /// A node has heard its clients.
    pub(super) fn on_collected(
        &mut self,
        node: NodeId,
        gone: WorkerId,
        held: Vec<Held>,
        out: &mut ControlActions,
    ) {
        let Some(asked) = self.settling.open.get_mut(&gone) else { return };
        if asked.swap_remove(&node) {
            self.settling.held.extend(held);
        }
        self.settle_deaths(out);
    }

    /// A node that is gone owes nothing.
    pub(super) fn settle_without(&mut self, node: NodeId, out: &mut ControlActions) {
        for asked in self.settling.open.values_mut() {
            asked.swap_remove(&node);
        }
        self.settling.concerned.swap_remove(&node);
        self.settling.held.retain(|held| held.borrower.node() != node);
        self.settle_deaths(out);
    }

    fn settle_deaths(&mut self, out: &mut ControlActions) {
        if self.settling.open.is_empty() || !self.settling.open.values().all(Set::is_empty) {
            return;
        }
        let Settling { open, mut concerned, held } = std::mem::take(&mut self.settling);
        concerned.extend(held.iter().map(|held| held.object.owner().node()));
        let settled = Settled { gone: open.into_keys().collect(), held };
        for node in concerned {
            out.push(ControlAction::Send(node, Box::new(ToNode::Settled(Box::new(settled.clone())))));
        }
    }
}
