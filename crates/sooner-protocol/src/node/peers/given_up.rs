//! Nodes that are held for gone although nobody has said that they are: they cannot be reached, and the control service, which could
//! say it, is away (`docs/adr/0095-two-deaths-at-once.md`). It settles nothing: that is done when the control service is back.

use sooner_wire::NodeId;
use sooner_wire::message::WorkerGone;

use crate::node::{NodeActions, NodeCore};

impl NodeCore {
    /// Whether a node is held for gone, and the control service has not said that it is.
    #[must_use]
    pub fn is_given_up(&self, node: NodeId) -> bool {
        self.watches.is_given_up(node)
    }

    /// Another node cannot be reached, and there is no control service that could say what became of it: what here waits for it
    /// waits no longer. Its processes are held for gone, and their deaths are settled when the control service says that they are.
    pub fn give_up(&mut self, node: NodeId, reason: &str, out: &mut NodeActions) {
        let processes = self.watches.give_up(node);
        self.on_node_gone(node, out);
        for worker in processes {
            let (reason, all_begun) = (reason.to_owned(), Some(true));
            self.tell_all(&WorkerGone { worker, reason, all_begun, ..WorkerGone::default() }.into(), out);
            self.end_directions_of(worker, out);
            self.end_questions_to(worker, out);
            self.end_hand_overs_to(worker);
        }
        self.give_up_places_at(node, reason, out);
    }
}
