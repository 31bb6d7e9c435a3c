//! Nodes that this one cannot reach while the control service is away, which alone could say what became of
//! them.
//!
//! With the control service, the end of a link says nothing of the node behind it: the control service is
//! asked. Without it nobody answers, and if both are dead for good, a process that waits for something there
//! would wait for ever. So a node whose link has ended is given up when the control service has been away for
//! [`CONTROL_AWAY_NANOS`]. The node may live: then the control service, when it is back, has it end
//! (`docs/adr/0095-two-deaths-at-once.md`).

use sooner_wire::NodeId;
use sooner_wire::limits::CONTROL_AWAY_NANOS;

use crate::table::Set;
use crate::time::Instant;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct CutOff {
    /// Nodes whose links have ended, and from which nothing has come since.
    nodes: Set<NodeId>,
}

impl CutOff {
    pub(super) fn on_link_ended(&mut self, node: NodeId) {
        self.nodes.insert(node);
    }

    /// A message came from a node.
    #[inline]
    pub(super) fn on_received(&mut self, node: NodeId) {
        if !self.nodes.is_empty() {
            self.nodes.swap_remove(&node);
        }
    }

    /// The control service reports that a node is dead.
    pub(super) fn on_node_dead(&mut self, node: NodeId) {
        self.nodes.swap_remove(&node);
    }

    /// When [`Self::take`] should be called. `away`: since when the control service is away.
    pub(super) fn next_deadline(&self, away: Option<Instant>) -> Option<Instant> {
        let since = away.filter(|_| !self.nodes.is_empty())?;
        Some(since.plus(CONTROL_AWAY_NANOS))
    }

    /// The nodes that are given up now.
    pub(super) fn take(&mut self, away: Option<Instant>, now: Instant) -> Vec<NodeId> {
        if self.next_deadline(away).is_none_or(|deadline| now < deadline) {
            return Vec::new();
        }
        std::mem::take(&mut self.nodes).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: NodeId = NodeId(1 << 24);
    const OTHER: NodeId = NodeId(2 << 24);

    fn at(seconds: u64) -> Instant {
        Instant(seconds * 1_000_000_000)
    }

    #[test]
    fn a_node_is_given_up_when_both_it_and_the_control_service_have_been_away_for_long() {
        let mut cut_off = CutOff::default();
        cut_off.on_link_ended(ONE);
        let asked = (cut_off.next_deadline(None), cut_off.take(None, at(1000)));
        assert_eq!(asked, (None, vec![]), "the control service is asked");
        let away = Some(at(10));
        cut_off.on_link_ended(OTHER);
        cut_off.on_received(OTHER);
        assert_eq!((cut_off.next_deadline(away), cut_off.take(away, at(39))), (Some(at(40)), vec![]));
        assert_eq!(cut_off.take(away, at(40)), [ONE]);
        assert_eq!(cut_off.take(away, at(50)), [], "once");
        cut_off.on_link_ended(OTHER);
        assert_eq!(cut_off.take(away, at(50)), [OTHER], "later, at once");
        cut_off.on_link_ended(ONE);
        cut_off.on_node_dead(ONE);
        assert_eq!(cut_off.take(away, at(60)), [], "it is gone");
    }
}
