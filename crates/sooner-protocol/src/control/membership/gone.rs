//! Dead nodes: their ids never come back, and a node that asks is told why.

use std::collections::VecDeque;

use sooner_wire::NodeId;
use sooner_wire::limits::NODES_DEAD_MAX;

use crate::table::Map;

/// The latest dead nodes. An older id is simply not known, which means the same: see
/// [`crate::control::membership`].
#[derive(Debug, Default)]
pub(in crate::control) struct DeadNodes {
    reasons: Map<NodeId, String>,
    order: VecDeque<NodeId>,
}

impl DeadNodes {
    /// A node is dead.
    pub(in crate::control) fn insert(&mut self, node: NodeId, reason: String) {
        if self.order.len() == NODES_DEAD_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.reasons.swap_remove(&oldest);
        }
        if self.reasons.insert(node, reason).is_none() {
            self.order.push_back(node);
        }
    }

    /// Why a node is dead, if it is.
    pub(in crate::control) fn reason(&self, node: NodeId) -> Option<&str> {
        self.reasons.get(&node).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_remembered() {
        let mut gone = DeadNodes::default();
        for number in 0..=NODES_DEAD_MAX as u64 {
            gone.insert(NodeId(number), format!("reason {number}"));
        }
        assert_eq!(gone.reason(NodeId(0)), None);
        assert_eq!(gone.reason(NodeId(1)), Some("reason 1"));
        assert_eq!((gone.order.len(), gone.reasons.len()), (NODES_DEAD_MAX, NODES_DEAD_MAX));
    }
}
