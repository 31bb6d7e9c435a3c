//! The other nodes of a cluster, as a node that places work knows them.
//!
//! The control service sends which nodes exist ([`View::on_known`]), and what they had free by their last
//! reports ([`View::on_view`]). A caller subtracts what a node was asked for since then, before it chooses.
//!
//! In a large cluster no node is sent what all others have free: a node asks, and then knows a few nodes'
//! free resources for a moment ([`View::on_candidates`]).
//!
//! It is a view, not a ledger: a node that is asked because of it decides for itself.

use sooner_wire::limits::CANDIDATES_NANOS;
use sooner_wire::message::{self, ResourceView, ViewRow, kind, node_state};
use sooner_wire::{NodeId, ResourceSet};

use super::policy::NodeRow;
use crate::table::Map;
use crate::time::Instant;

/// How long (nanoseconds) a node that refused is not asked again, unless it reports free resources before.
const REFUSED_NANOS: u64 = 1_000_000_000;

#[derive(Debug)]
struct Row {
    /// `free` in it: what counts as free now.
    row: NodeRow,
    /// What was free by the node's last report; `version` is that of the report.
    reported: ResourceSet,
    version: u64,
    /// How many requests of the node's own processes wait there.
    waiting: u32,
    /// No work begins there: the node leaves, or is the node of a driver only.
    is_closed: bool,
    /// Until when the node is not asked.
    refused: Option<Instant>,
    /// Until when `reported` counts, where no later report corrects it.
    until: Option<Instant>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct View {
    rows: Map<NodeId, Row>,
    /// What nodes have free is sent only to nodes that ask.
    must_ask: bool,
}

impl View {
    /// A node takes part, or has changed. Its free resources are reported separately.
    pub fn on_known(&mut self, known: &message::NodeRow) {
        let (node, about) = (known.node, &known.about);
        let row = self.rows.entry(node).or_insert_with(|| Row {
            row: NodeRow {
                node,
                total: ResourceSet::default(),
                free: ResourceSet::default(),
                labels: Vec::new(),
            },
            reported: ResourceSet::default(),
            version: 0,
            waiting: 0,
            is_closed: false,
            refused: None,
            until: None,
        });
        row.row.total = about.resources.clone();
        row.row.labels.clone_from(&about.labels);
        row.row.labels.sort_unstable();
        row.is_closed = about.kind != kind::DAEMON || known.state != node_state::ALIVE;
    }

    /// What nodes have free, as sent.
    pub fn on_view(&mut self, view: &ResourceView) {
        if view.must_ask {
            // There are too many nodes to send each of them every change: the old reports would never be
            // corrected.
            self.rows.values_mut().for_each(|row| row.reported = ResourceSet::default());
        } else if self.must_ask {
            self.rows.values_mut().for_each(|row| row.until = None);
        }
        self.must_ask = view.must_ask;
        for said in &view.rows {
            // A restarted head counts reports from zero again, so any other version is new.
            if let Some(row) = self.rows.get_mut(&said.node)
                && row.version != said.version
            {
                row.version = said.version;
                row.reported.clone_from(&said.free);
                row.waiting = said.waiting;
                row.refused = None;
            }
        }
    }

    /// The answer to a question: what these nodes have free, which counts for [`CANDIDATES_NANOS`].
    pub fn on_candidates(&mut self, rows: &[ViewRow], now: Instant) {
        if !self.must_ask {
            return;
        }
        for said in rows {
            let Some(row) = self.rows.get_mut(&said.node) else { continue };
            if row.version != said.version {
                row.refused = None;
            }
            row.version = said.version;
            row.reported.clone_from(&said.free);
            row.waiting = said.waiting;
            row.until = Some(now.plus(CANDIDATES_NANOS));
        }
    }

    /// Whether a node must ask to learn what others have free.
    #[must_use]
    pub fn must_ask(&self) -> bool {
        self.must_ask
    }

    /// A node is dead.
    pub fn on_dead(&mut self, node: NodeId) {
        self.rows.shift_remove(&node);
    }

    /// A node refused a request that it should have room for.
    pub fn on_refused(&mut self, node: NodeId, now: Instant) {
        if let Some(row) = self.rows.get_mut(&node) {
            row.refused = Some(now.plus(REFUSED_NANOS));
        }
    }

    /// Whether there is no other node that could take work.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.values().all(|row| row.is_closed)
    }

    /// Whether a node takes part.
    #[must_use]
    pub fn has(&self, node: NodeId) -> bool {
        self.rows.contains_key(&node)
    }

    /// The version of a node's last report.
    #[must_use]
    pub fn version(&self, node: NodeId) -> Option<u64> {
        self.rows.get(&node).map(|row| row.version)
    }

    /// Starts a choice from the last reports: the caller subtracts what was asked since then with
    /// [`View::take`].
    pub fn begin(&mut self, now: Instant) {
        for row in self.rows.values_mut() {
            row.refused = row.refused.filter(|until| now < *until);
            if row.until.take_if(|until| *until <= now).is_some() {
                row.reported = ResourceSet::default();
            }
            if row.refused.is_some() {
                row.row.free = ResourceSet::default();
            } else {
                row.row.free.clone_from(&row.reported);
            }
        }
    }

    /// A node was asked for `resources`, this many `times`.
    pub fn take(&mut self, node: NodeId, resources: &ResourceSet, times: u32) {
        let Some(row) = self.rows.get_mut(&node) else { return };
        for _ in 0..times {
            if row.row.free.is_empty() {
                return;
            }
            let _ = row.row.free.subtract(resources);
        }
    }

    /// The nodes that work can go to.
    pub fn rows(&self) -> impl Iterator<Item = &NodeRow> + Clone {
        self.rows.values().filter(|row| !row.is_closed).map(|row| &row.row)
    }

    /// Whether a node takes work, and has not refused any lately.
    #[must_use]
    pub fn may_be_asked(&self, node: NodeId) -> bool {
        self.rows.get(&node).is_some_and(|row| !row.is_closed && row.refused.is_none())
    }

    /// The node with the fewest waiting requests, among those of `nodes` that may be asked and whose number
    /// is known.
    #[must_use]
    pub fn calmest(&self, nodes: impl Iterator<Item = NodeId>) -> Option<NodeId> {
        let is_known = |row: &Row| !self.must_ask || row.until.is_some();
        let nodes =
            nodes.filter(|node| self.may_be_asked(*node) && self.rows.get(node).is_some_and(is_known));
        nodes.filter_map(|node| Some((self.rows.get(&node)?.waiting, node))).min().map(|(_, node)| node)
    }

    /// Adds the total and the free resources of the other nodes. A node that has not reported yet counts as
    /// free, so that a node that has just joined shows the whole cluster.
    pub fn add_sums(&self, total: &mut ResourceSet, free: &mut ResourceSet) {
        for row in self.rows.values().filter(|row| !row.is_closed) {
            total.add(&row.row.total);
            let is_new = row.version == 0 && !self.must_ask;
            free.add(if is_new { &row.row.total } else { &row.reported });
        }
    }

    /// When a node that refused may be asked again.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.rows.values().filter_map(|row| row.refused).min()
    }
}

impl View {
    /// Whether work may be sent to a node: it takes part, and does not leave.
    #[must_use]
    pub fn is_open(&self, node: NodeId) -> bool {
        self.rows.get(&node).is_some_and(|row| !row.is_closed)
    }
}

#[cfg(test)]
mod tests {
    use sooner_wire::message::{AboutNode, ViewRow};

    use super::*;

    const NODE: NodeId = NodeId(2 << 24);

    fn cpus(count: f64) -> ResourceSet {
        ResourceSet::from_amounts([("CPU".to_owned(), count)])
    }

    fn known(state: u8) -> message::NodeRow {
        let about = AboutNode {
            kind: kind::DAEMON,
            name: "b".to_owned(),
            address: None,
            host: String::new(),
            boot_id: String::new(),
            resources: cpus(4.0),
            labels: vec![("zone".to_owned(), "z".to_owned()), ("disk".to_owned(), "ssd".to_owned())],
        };
        message::NodeRow { node: NODE, about, state, is_slow: false }
    }

    fn said(version: u64, free: f64) -> ResourceView {
        let row = ViewRow { node: NODE, version, free: cpus(free), waiting: 0 };
        ResourceView { rows: vec![row], must_ask: false }
    }

    fn free(view: &View) -> Vec<ResourceSet> {
        view.rows().map(|row| row.free.clone()).collect()
    }

    #[test]
    fn what_was_asked_for_counts_until_the_next_choice_begins() {
        let mut view = View::default();
        view.on_view(&said(1, 4.0));
        assert!(view.is_empty() && free(&view).is_empty(), "nobody knows that node");
        view.on_known(&known(node_state::ALIVE));
        view.on_view(&said(1, 3.0));
        view.begin(Instant(0));
        view.take(NODE, &cpus(1.0), 2);
        assert_eq!(free(&view), [cpus(1.0)]);
        view.take(NODE, &cpus(2.0), 1_000_000);
        assert_eq!(free(&view), [ResourceSet::default()]);
        view.on_view(&said(1, 4.0));
        view.begin(Instant(0));
        assert_eq!(free(&view), [cpus(3.0)], "that report is known");
    }

    #[test]
    fn a_node_that_refused_is_left_alone_for_a_while_or_until_it_says_more() {
        let mut view = View::default();
        view.on_known(&known(node_state::ALIVE));
        view.on_view(&said(1, 3.0));
        for news in [Instant(REFUSED_NANOS), Instant(1)] {
            view.on_refused(NODE, Instant(0));
            assert_eq!(view.next_deadline(), Some(Instant(REFUSED_NANOS)));
            view.begin(Instant(1));
            assert_eq!(free(&view), [ResourceSet::default()]);
            if news == Instant(1) {
                view.on_view(&said(2, 3.0));
            }
            view.begin(news);
            assert_eq!((free(&view), view.next_deadline()), (vec![cpus(3.0)], None));
        }
    }

    #[test]
    fn a_node_that_leaves_is_no_place_for_work() {
        let mut view = View::default();
        view.on_known(&known(node_state::DRAINING));
        assert!(view.is_empty() && view.rows().next().is_none());
        view.on_known(&known(node_state::ALIVE));
        assert_eq!(view.rows().next().expect("it is back").labels[0].0, "disk", "sorted");
        view.on_dead(NODE);
        assert!(view.is_empty() && !view.has(NODE));
    }
}
