//! What a node knows of the others: what the head told it last.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use weft_wire::NodeId;
use weft_wire::message::{NodeRow, Registered, ResourceView, ViewRow};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Known {
    nodes: BTreeMap<NodeId, NodeRow>,
    view: BTreeMap<NodeId, ViewRow>,
}

impl Known {
    /// The head says who there is; what was known before is not valid any more.
    pub(super) fn on_registered(&mut self, registered: Registered) {
        self.nodes = registered.nodes.into_iter().map(|row| (row.node, row)).collect();
        self.view.clear();
    }

    pub(super) fn on_changed(&mut self, rows: Vec<NodeRow>) {
        self.nodes.extend(rows.into_iter().map(|row| (row.node, row)));
    }

    pub(super) fn on_gone(&mut self, node: NodeId) {
        self.nodes.remove(&node);
        self.view.remove(&node);
    }

    pub(super) fn on_view(&mut self, view: ResourceView) {
        if view.must_ask {
            self.view.clear();
        }
        self.view.extend(view.rows.into_iter().map(|row| (row.node, row)));
    }

    /// Whether a node is a part of the cluster, as far as is known here.
    pub(super) fn has(&self, node: NodeId) -> bool {
        self.nodes.contains_key(&node)
    }

    /// Where a node listens.
    pub(super) fn address_of(&self, node: NodeId) -> Option<SocketAddr> {
        self.nodes.get(&node)?.about.address.as_ref()?.parse().ok()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = NodeId> {
        self.nodes.keys().copied()
    }

    /// Nodes with the same one share a kernel.
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
