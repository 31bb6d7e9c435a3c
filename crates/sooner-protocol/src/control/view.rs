//! What the nodes of a cluster have free by their last reports, and which nodes could serve a request.
//!
//! In a small cluster every node is sent every change. In a larger one a node asks and gets a few candidates:
//! sending every node every change would cost the square of the number of nodes.
//!
//! It is a view, not a ledger: a node that is asked because of it decides for itself. It never promises
//! anything to anyone. The choice between equal nodes comes in as a number, so that not every asking node is
//! sent to the same one.
//!
//! Invariants:
//! - VW1: a row is that of the report with the highest version.
//! - VW2: a node that does not have so much in total is no candidate; one that leaves is none either.

use sooner_wire::limits::{
    CANDIDATES_MAX, CANDIDATES_SCANNED_MAX, DEMAND_SHAPES_MAX, VIEW_NANOS, VIEW_NODES_MAX,
};
use sooner_wire::message::state::DemandRow;
use sooner_wire::message::{
    Candidate, Candidates, FindNodes, Message, NodeRow, ResourceReport, ResourceView, ShapeDemand, ViewRow,
    kind, node_state,
};
use sooner_wire::names::{NameError, check_resources};
use sooner_wire::strategy::{LabelTerm, Labels};
use sooner_wire::{NodeId, ResourceSet, Strategy, WorkerId};

use crate::table::{Map, Set};
use crate::time::Instant;

/// A completely full node: fullness is in thousandths of the node's scarcest resource.
const FULL: u64 = 1000;

#[derive(Debug)]
struct Row {
    labels: Labels,
    total: ResourceSet,
    free: ResourceSet,
    version: u64,
    demand: Vec<ShapeDemand>,
    /// Nothing runs there, or it leaves.
    is_closed: bool,
    /// It refused what its last report has room for: full until the next one.
    is_full: bool,
}

impl Row {
    fn can_now(&self, resources: &ResourceSet) -> bool {
        !self.is_full && self.free.covers(resources)
    }

    fn waiting(&self) -> u32 {
        self.demand.iter().fold(0, |sum, shape| sum.saturating_add(shape.count))
    }

    /// How full the node would be.
    fn fullness(&self, with: &ResourceSet) -> u64 {
        let share = |(name, total): (&str, u64)| {
            let used = (total - self.free.amount(name).min(total)).saturating_add(with.amount(name));
            let full = u128::from(used) * u128::from(FULL) / u128::from(total.max(1));
            u64::try_from(full).unwrap_or(u64::MAX)
        };
        self.total.iter().map(share).max().unwrap_or_default()
    }
}

/// What is looked for.
struct Question<'a> {
    resources: &'a ResourceSet,
    count: usize,
    asking: Option<NodeId>,
    strategy: Option<&'a Strategy>,
    prefer: Option<NodeId>,
}

impl Question<'_> {
    /// The node that goes before all others, if it is allowed.
    fn liked(&self) -> Option<NodeId> {
        match self.strategy {
            Some(Strategy::Node(affinity)) => Some(affinity.node),
            _ => self.prefer,
        }
    }

    fn allows(&self, node: NodeId, row: &Row) -> bool {
        match self.strategy {
            Some(Strategy::Node(affinity)) => affinity.soft || affinity.node == node,
            Some(Strategy::Labels(labels)) => meets(&labels.hard, row),
            Some(Strategy::Spread) | None => true,
            // A node learns with the group where its bundles are.
            Some(Strategy::Group(_)) => false,
        }
    }

    /// Lower for a node that goes before equally free ones.
    fn dislike(&self, node: NodeId, row: &Row) -> u8 {
        if self.liked() == Some(node) {
            return 0;
        }
        match self.strategy {
            Some(Strategy::Labels(labels)) if meets(&labels.soft, row) => 1,
            _ => 2,
        }
    }

    fn is_spread(&self) -> bool {
        match self.strategy {
            Some(Strategy::Spread) => true,
            Some(Strategy::Labels(labels)) => labels.spread,
            Some(Strategy::Node(_) | Strategy::Group(_)) | None => false,
        }
    }
}

fn meets(terms: &[LabelTerm], row: &Row) -> bool {
    terms.iter().all(|term| term.is_met(&row.labels))
}

/// See the module.
#[derive(Debug, Default)]
pub struct View {
    rows: Map<NodeId, Row>,
    changed: Set<NodeId>,
    /// Nodes that have been sent all rows.
    told: Set<NodeId>,
    told_at: Option<Instant>,
    /// There are too many nodes to send each every change.
    must_ask: bool,
}

impl View {
    /// A node takes part, or has changed.
    pub fn on_node(&mut self, node: &NodeRow) {
        let row = self.rows.entry(node.node).or_insert_with(|| Row {
            labels: Labels::new(),
            total: ResourceSet::default(),
            free: ResourceSet::default(),
            version: 0,
            demand: Vec::new(),
            is_closed: false,
            is_full: false,
        });
        row.total = node.about.resources.clone();
        row.labels.clone_from(&node.about.labels);
        row.labels.sort_unstable();
        row.is_closed = node.about.kind != kind::DAEMON || node.state != node_state::ALIVE;
        self.changed.insert(node.node);
    }

    /// A node came back, to a restarted head or over a new session: it has forgotten all rows that it was
    /// sent.
    pub fn on_joined(&mut self, node: &NodeRow) {
        self.on_node(node);
        self.told.swap_remove(&node.node);
    }

    /// A node is dead.
    pub fn on_dead(&mut self, node: NodeId) {
        // Other nodes drop its row when they learn of the death.
        self.rows.shift_remove(&node);
        self.changed.swap_remove(&node);
        self.told.swap_remove(&node);
    }

    /// A node reports what it has. A report older than the last one is ignored.
    ///
    /// # Errors
    /// [`NameError`] when the resources are invalid: the node is not one of ours, or has another version.
    pub fn on_report(&mut self, node: NodeId, report: ResourceReport) -> Result<(), NameError> {
        check_resources(&report.free)?;
        report.demand.iter().try_for_each(|shape| check_resources(&shape.resources))?;
        report.bundles.iter().flatten().try_for_each(|bundle| check_resources(&bundle.free))?;
        let Some(row) = self.rows.get_mut(&node) else { return Ok(()) };
        if report.version <= row.version {
            return Ok(());
        }
        row.version = report.version;
        row.free = report.free;
        row.demand = report.demand;
        row.demand.truncate(DEMAND_SHAPES_MAX);
        row.is_full = false;
        self.changed.insert(node);
        Ok(())
    }

    /// A node refused a request that it should have room for.
    pub fn on_refused(&mut self, node: NodeId) {
        if let Some(row) = self.rows.get_mut(&node) {
            row.is_full = true;
        }
    }

    /// Requests that wait in the nodes other than `asking`, by their last reports, for tools that show the
    /// state.
    #[must_use]
    pub fn demand_but_of(&self, asking: NodeId) -> Vec<DemandRow> {
        let is_feasible = |shape: &ShapeDemand| {
            self.rows.values().any(|row| !row.is_closed && row.total.covers(&shape.resources))
        };
        let row = |node: NodeId, shape: &ShapeDemand| DemandRow {
            client: WorkerId(node.0),
            resources: shape.resources.clone(),
            count: shape.count,
            feasible: is_feasible(shape),
        };
        let others = self.rows.iter().filter(|(node, _)| **node != asking);
        others.flat_map(|(node, told)| told.demand.iter().map(|shape| row(*node, shape))).collect()
    }

    /// Up to `count` nodes that could serve a request, the best first: those that can now, the fullest first;
    /// then those that could, those with the fewest requests first. `seed` decides between equals.
    #[must_use]
    pub fn candidates(
        &self,
        resources: &ResourceSet,
        count: usize,
        asking: Option<NodeId>,
        seed: u64,
    ) -> Vec<Candidate> {
        self.rank(&Question { resources, count, asking, strategy: None, prefer: None }, seed)
    }

    /// Answers a node that asks where something could run.
    ///
    /// # Errors
    /// [`NameError`] when the resources are invalid: the node is not one of ours, or has another version.
    pub fn find(&self, find: &FindNodes, asking: NodeId, seed: u64) -> Result<Candidates, NameError> {
        check_resources(&find.resources)?;
        let question = Question {
            resources: &find.resources,
            count: usize::try_from(find.count).unwrap_or(CANDIDATES_MAX),
            asking: Some(asking),
            strategy: find.strategy.as_deref(),
            prefer: find.prefer,
        };
        let nodes = self.rank(&question, seed);
        let rows = nodes.iter().filter_map(|candidate| self.row_of(candidate.node)).collect();
        Ok(Candidates { request: find.request, nodes, rows: Some(rows) })
    }

    fn row_of(&self, node: NodeId) -> Option<ViewRow> {
        let row = self.rows.get(&node)?;
        let free = if row.is_full { ResourceSet::default() } else { row.free.clone() };
        Some(ViewRow { node, version: row.version, free, waiting: row.waiting() })
    }

    fn rank(&self, question: &Question<'_>, seed: u64) -> Vec<Candidate> {
        let resources = question.resources;
        let count = question.count.min(CANDIDATES_MAX);
        let rows = self.rows.len();
        if rows == 0 || count == 0 {
            return Vec::new();
        }
        let start = usize::try_from(seed % rows as u64).unwrap_or_default();
        // Whether the node is busy, how much it is disliked, its rank, and its distance from a place that
        // differs from question to question.
        let mut found: Vec<(bool, u8, u64, usize)> = Vec::new();
        let mut free = 0;
        let named = question.liked().and_then(|node| self.rows.get_index_of(&node));
        let named = named.map(|at| (at + rows - start) % rows);
        for step in named.into_iter().chain((0..rows).filter(|step| Some(*step) != named)) {
            if step >= CANDIDATES_SCANNED_MAX && free >= count {
                break;
            }
            let at = (start + step) % rows;
            let Some((id, row)) = self.rows.get_index(at) else { break };
            let is_candidate = !row.is_closed && Some(*id) != question.asking && question.allows(*id, row);
            if !is_candidate || !row.total.covers(resources) {
                continue;
            }
            let can_now = row.can_now(resources);
            free += usize::from(can_now);
            let fullness = row.fullness(resources);
            let rank = match (can_now, question.is_spread()) {
                (true, true) => fullness,
                (true, false) => u64::MAX - fullness,
                (false, _) => u64::from(row.waiting()),
            };
            found.push((!can_now, question.dislike(*id, row), rank, step));
        }
        found.sort_unstable();
        found.truncate(count);
        found
            .into_iter()
            .filter_map(|(is_busy, _, _, step)| {
                let (node, _) = self.rows.get_index((start + step) % rows)?;
                Some(Candidate { node: *node, is_free: !is_busy })
            })
            .collect()
    }

    /// Whether some node of the cluster has this much in total.
    #[must_use]
    pub fn is_feasible(&self, resources: &ResourceSet) -> bool {
        self.rows.values().any(|row| !row.is_closed && row.total.covers(resources))
    }

    /// The resources of all nodes together: in total, and free.
    #[must_use]
    pub fn sums(&self) -> (ResourceSet, ResourceSet) {
        let mut sums = (ResourceSet::default(), ResourceSet::default());
        for row in self.rows.values() {
            sums.0.add(&row.total);
            sums.1.add(&row.free);
        }
        sums
    }

    /// The requests that wait in the whole cluster, by shape.
    #[must_use]
    pub fn demand(&self) -> Vec<ShapeDemand> {
        let mut shapes: Map<&ResourceSet, u32> = Map::default();
        for shape in self.rows.values().flat_map(|row| &row.demand) {
            let sum = shapes.entry(&shape.resources).or_default();
            *sum = sum.saturating_add(shape.count);
        }
        shapes
            .into_iter()
            .map(|(resources, count)| ShapeDemand { resources: resources.clone(), count })
            .collect()
    }

    /// After a batch of events: sends the changed rows to the nodes, at most every [`VIEW_NANOS`].
    pub fn after_events(&mut self, now: Instant, out: &mut Vec<(NodeId, Message)>) {
        if self.next_deadline().is_none_or(|due| now < due) {
            return;
        }
        self.told_at = Some(now);
        let changed = std::mem::take(&mut self.changed);
        if self.rows.len() > VIEW_NODES_MAX {
            if !self.must_ask {
                self.must_ask = true;
                self.told.clear();
            }
            for node in self.rows.keys() {
                if self.told.insert(*node) {
                    out.push((*node, ResourceView { rows: Vec::new(), must_ask: true }.into()));
                }
            }
            return;
        }
        if self.must_ask {
            self.must_ask = false;
            self.told.clear();
        }
        let all = self.view_of(|_| true);
        let news = self.view_of(|node| changed.contains(&node));
        for node in self.rows.keys() {
            let rows = if self.told.insert(*node) { &all } else { &news };
            if !rows.is_empty() {
                out.push((*node, ResourceView { rows: rows.clone(), must_ask: false }.into()));
            }
        }
    }

    /// When [`View::after_events`] has something to send.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let is_due = !self.changed.is_empty() || self.told.len() < self.rows.len();
        is_due.then(|| self.told_at.map_or(Instant(0), |told| told.plus(VIEW_NANOS)))
    }

    fn view_of(&self, wanted: impl Fn(NodeId) -> bool) -> Vec<ViewRow> {
        let of = |(id, row): (&NodeId, &Row)| ViewRow {
            node: *id,
            version: row.version,
            free: row.free.clone(),
            waiting: row.waiting(),
        };
        self.rows.iter().filter(|(id, row)| wanted(**id) && !row.is_closed).map(of).collect()
    }
}

#[cfg(test)]
mod tests;
