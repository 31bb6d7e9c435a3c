//! What nodes have free by their last reports, for those that place actors and groups: in the order in which they first spoke.
//!
//! Every node reports up to twenty times a second, so a report must not cost more with more nodes.

use sooner_wire::NodeId;

use crate::scheduling::policy::NodeRow;
use crate::table::Map;

/// See the module. Each row is that of another node, and `places` says which.
#[derive(Debug, Default)]
pub(super) struct Rows {
    rows: Vec<NodeRow>,
    places: Map<NodeId, usize>,
}

impl Rows {
    /// A node says what it has.
    pub(super) fn put(&mut self, row: NodeRow) {
        match self.places.get(&row.node) {
            Some(at) => self.rows[*at] = row,
            None => {
                self.places.insert(row.node, self.rows.len());
                self.rows.push(row);
            }
        }
    }

    /// Nothing begins there any more. This one costs as much as there are nodes: they do not go as often as they report.
    pub(super) fn remove(&mut self, node: NodeId) {
        if self.places.contains_key(&node) {
            self.rows.retain(|row| row.node != node);
            self.places = self.rows.iter().enumerate().map(|(at, row)| (row.node, at)).collect();
        }
    }

    /// All of them.
    pub(super) fn all(&self) -> &[NodeRow] {
        &self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sooner_wire::ResourceSet;

    fn row(node: u64, cpus: f64) -> NodeRow {
        let total = ResourceSet::from_amounts([("CPU".to_owned(), cpus)]);
        NodeRow { node: NodeId(node), free: total.clone(), total, labels: Vec::new() }
    }

    #[test]
    fn the_last_report_of_each_counts_and_the_order_stays() {
        let mut rows = Rows::default();
        [row(1, 1.0), row(2, 1.0), row(3, 1.0), row(2, 4.0)].into_iter().for_each(|row| rows.put(row));
        assert_eq!(rows.all(), [row(1, 1.0), row(2, 4.0), row(3, 1.0)]);
        rows.remove(NodeId(1));
        rows.remove(NodeId(1));
        rows.put(row(3, 2.0));
        rows.put(row(1, 3.0));
        assert_eq!(rows.all(), [row(2, 4.0), row(3, 2.0), row(1, 3.0)]);
    }
}
