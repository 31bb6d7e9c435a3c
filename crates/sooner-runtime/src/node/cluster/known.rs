//! What a node knows of the other nodes, from the head's latest messages.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use sooner_wire::NodeId;
use sooner_wire::limits::NODES_DEAD_LISTED_MAX;
use sooner_wire::message::state::DeadRow;
use sooner_wire::message::{NodeRow, Registered, ResourceView, ViewRow};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Known {
    nodes: BTreeMap<NodeId, NodeRow>,
    view: BTreeMap<NodeId, ViewRow>,
    /// The latest nodes that died or left, the last one last.
    gone: VecDeque<DeadRow>,
    /// Nodes that this node holds for dead until the head declares it.
    given_up: BTreeSet<NodeId>,
}

impl Known {
    /// The head lists the nodes. Returns those that were known and are not listed: a restarted head may still
    /// wait for them, so they stay until it reports more.
    pub(super) fn on_registered(&mut self, registered: Registered) -> Vec<NodeId> {
        let before = std::mem::take(&mut self.nodes);
        self.nodes = registered.nodes.into_iter().map(|row| (row.node, row)).collect();
        self.view.clear();
        let mut missing = Vec::new();
        for (node, row) in before {
            self.nodes.entry(node).or_insert_with(|| {
                missing.push(node);
                row
            });
        }
        missing
    }

    pub(super) fn on_changed(&mut self, rows: Vec<NodeRow>) {
        self.nodes.extend(rows.into_iter().map(|row| (row.node, row)));
    }

    pub(super) fn on_dead(&mut self, node: NodeId, reason: &str) {
        self.view.remove(&node);
        self.given_up.remove(&node);
        let Some(row) = self.nodes.remove(&node) else { return };
        if self.gone.len() == NODES_DEAD_LISTED_MAX {
            self.gone.pop_front();
        }
        self.gone.push_back(DeadRow { row, reason: reason.to_owned() });
    }

    /// The latest nodes that died or left.
    pub(super) fn gone(&self) -> Vec<DeadRow> {
        self.gone.iter().cloned().collect()
    }

    pub(super) fn on_view(&mut self, view: ResourceView) {
        if view.must_ask {
            self.view.clear();
        }
        self.view.extend(view.rows.into_iter().map(|row| (row.node, row)));
    }

    /// Whether a node is a part of the cluster, as far as this node knows.
    pub(super) fn has(&self, node: NodeId) -> bool {
        self.nodes.contains_key(&node) && !self.given_up.contains(&node)
    }

    /// Holds a node for dead from now on.
    pub(super) fn give_up(&mut self, node: NodeId) {
        self.given_up.insert(node);
    }

    /// Nodes that are held for dead.
    pub(super) fn given_up(&self) -> impl Iterator<Item = NodeId> {
        self.given_up.iter().copied()
    }

    /// Where a node listens, unless it is held for dead.
    pub(super) fn address_of(&self, node: NodeId) -> Option<SocketAddr> {
        let row = self.nodes.get(&node).filter(|_| !self.given_up.contains(&node));
        row?.about.address.as_ref()?.parse().ok()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = NodeId> {
        self.nodes.keys().copied()
    }

    /// Nodes with the same boot id share a kernel.
    pub(super) fn boot_id_of(&self, node: NodeId) -> Option<&str> {
        self.nodes.get(&node).map(|row| row.about.boot_id.as_str()).filter(|boot| !boot.is_empty())
    }

    pub(super) fn nodes(&self) -> Vec<NodeRow> {
        self.nodes.values().cloned().collect()
    }

    pub(super) fn view(&self) -> Vec<ViewRow> {
        self.view.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use sooner_wire::ResourceSet;
    use sooner_wire::message::{AboutNode, Settings, kind, node_state};

    use super::*;

    fn registered(nodes: &[u64], host: &str) -> Registered {
        let about = |node: &u64| AboutNode {
            kind: kind::DAEMON,
            name: format!("node-{node}"),
            address: Some("127.0.0.1:1".to_owned()),
            host: host.to_owned(),
            boot_id: String::new(),
            resources: ResourceSet::default(),
            labels: Vec::new(),
        };
        let row = |node: &u64| NodeRow {
            node: NodeId(*node << 24),
            about: about(node),
            state: node_state::ALIVE,
            is_slow: false,
        };
        let settings = Settings { heartbeat: 500, health_timeout: 5_000 };
        Registered { cluster: 7, nodes: nodes.iter().map(row).collect(), settings }
    }

    #[test]
    fn the_latest_that_are_gone_are_told_of() {
        let mut known = Known::default();
        let all: Vec<u64> = (1..=NODES_DEAD_LISTED_MAX as u64 + 1).collect();
        known.on_registered(registered(&all, "h"));
        all.iter().for_each(|node| known.on_dead(NodeId(*node << 24), "it left"));
        assert_eq!((known.gone().len(), known.gone()[0].row.node), (NODES_DEAD_LISTED_MAX, NodeId(2 << 24)));
    }

    #[test]
    fn who_has_not_come_back_to_a_new_head_stays_until_that_says_more() {
        let mut known = Known::default();
        assert_eq!(known.on_registered(registered(&[1, 2, 3], "before")), []);
        assert_eq!(known.on_registered(registered(&[2, 4], "after")), [NodeId(1 << 24), NodeId(3 << 24)]);
        let hosts: Vec<String> = known.nodes().into_iter().map(|row| row.about.host).collect();
        assert_eq!(hosts, ["before", "after", "before", "after"]);
        known.on_dead(NodeId(1 << 24), "it was silent");
        known.on_dead(NodeId(1 << 24), "that was said already");
        let gone: Vec<_> = known.gone().into_iter().map(|gone| (gone.row.node, gone.reason)).collect();
        assert_eq!(gone, [(NodeId(1 << 24), "it was silent".to_owned())]);
        assert!(!known.has(NodeId(1 << 24)) && known.address_of(NodeId(3 << 24)).is_some());
    }
}
