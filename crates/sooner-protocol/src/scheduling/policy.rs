//! Which node work goes to: pure functions of what is known of the nodes.
//!
//! Work without a strategy is packed until nodes are half in use and spread from there on (Ray's "hybrid"
//! policy), on its caller's node first; the node that holds most bytes of its arguments goes before that
//! (Ray, section 4.2.2; figure 8a). Actors that hold no CPU while they live are counted instead: each goes
//! where fewest are, and not to nodes without CPUs. It never waits for a node that others could stand in for,
//! and never chooses another node than a hard condition names.
//!
//! Tasks and actors use the same functions. A node places tasks ([`crate::node`]), the control service places
//! actors ([`crate::control`]). Both choose with [`choose`], and queue work without room where [`queue`]
//! says.

use sooner_wire::resources::UNIT;
use sooner_wire::strategy::{LabelTerm, Labels, NodeAffinity, NodeLabels, describe_terms};
use sooner_wire::{NodeId, ResourceSet, Strategy};

use crate::table::Map;

/// Share of a node's most used resource (in thousandths) from which on work is spread.
const PACKED_SHARE: u64 = 500;

/// A node as far as scheduling knows it. For work in a placement group: the resources are those of its
/// bundles there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRow {
    /// Which node.
    pub node: NodeId,
    /// All it has.
    pub total: ResourceSet,
    /// What is free.
    pub free: ResourceSet,
    /// Its labels, sorted by key.
    pub labels: Labels,
}

/// What is to be placed, and for whom.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// What it needs.
    pub request: &'a ResourceSet,
    /// Where it must be, if not just anywhere.
    pub strategy: Option<&'a Strategy>,
    /// The node of the process that asks.
    pub local: NodeId,
    /// The node that holds most bytes of its arguments.
    pub prefer: Option<NodeId>,
    /// Which node's turn it is, for work that is spread.
    pub turns: Option<&'a Turns>,
    /// For an actor that will hold no CPU: how many such actors each node has. The free resources would stay
    /// the same however many are placed.
    pub resting: Option<&'a Map<NodeId, u32>>,
}

/// When each node had its last turn: spread work goes to the node whose turn is longest ago. A count of
/// earlier placements would not do: which nodes have room, and what else is placed meanwhile, changes from
/// one placement to the next.
#[derive(Debug, Default)]
pub struct Turns {
    count: u64,
    last: Map<NodeId, u64>,
}

impl Turns {
    /// Something with this strategy was placed on a node.
    pub fn note(&mut self, strategy: Option<&Strategy>, node: NodeId) {
        let is_spread = match strategy {
            Some(Strategy::Spread) => true,
            Some(Strategy::Labels(labels)) => labels.spread,
            Some(Strategy::Node(_) | Strategy::Group(_)) | None => false,
        };
        if is_spread {
            self.count += 1;
            self.last.insert(node, self.count);
        }
    }

    /// A node is dead.
    pub fn forget(&mut self, node: NodeId) {
        self.last.swap_remove(&node);
    }

    /// The node's last turn; zero if it had none.
    fn last(&self, node: NodeId) -> u64 {
        self.last.get(&node).copied().unwrap_or(0)
    }
}

/// Where the work goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// To this node, now.
    On(NodeId),
    /// Some node could take it, but none has room now.
    Wait,
    /// No node is large enough, or has the labels: the work waits for a node that joins. The text says what
    /// is missing.
    Lacking(String),
    /// The node that it is bound to does not exist or is too small: it will never run.
    Never(String),
}

/// Chooses a node.
#[must_use]
pub fn choose<'a>(rows: impl IntoIterator<Item = &'a NodeRow>, asked: &Asked<'_>) -> Choice {
    let rows: Vec<&NodeRow> = rows.into_iter().collect();
    match asked.strategy {
        Some(Strategy::Node(affinity)) => on_node(&rows, asked, *affinity),
        Some(Strategy::Labels(labels)) => with_labels(&rows, asked, labels),
        Some(Strategy::Spread) => among(rows, asked, true),
        Some(Strategy::Group(_)) | None => among(rows, asked, false),
    }
}

/// The nodes that could take the work after [`Choice::Wait`].
#[must_use]
pub fn awaited<'a>(rows: impl IntoIterator<Item = &'a NodeRow>, asked: &Asked<'_>) -> Vec<&'a NodeRow> {
    let covers = |row: &&NodeRow| row.total.covers(asked.request);
    let mut rows: Vec<&NodeRow> = rows.into_iter().filter(covers).collect();
    match asked.strategy {
        Some(Strategy::Node(affinity)) if !affinity.soft => rows.retain(|row| row.node == affinity.node),
        Some(Strategy::Labels(labels)) => rows.retain(|row| meets(row, &labels.hard)),
        Some(Strategy::Node(_) | Strategy::Spread | Strategy::Group(_)) | None => {}
    }
    rows
}

/// The node in whose queue work waits after [`Choice::Wait`]: the one that its strategy names, then its
/// caller's, unless the work will hold no CPU and leave that queue at once; else the one that `calmest` finds
/// among those that could run it. If another node has room first, the work goes there.
#[must_use]
pub fn queue<'a>(
    rows: impl IntoIterator<Item = &'a NodeRow>,
    asked: &Asked<'_>,
    calmest: impl FnOnce(&mut dyn Iterator<Item = NodeId>) -> Option<NodeId>,
) -> Option<NodeId> {
    let nodes = awaited(rows, asked);
    let named = match asked.strategy {
        Some(Strategy::Node(affinity)) => Some(affinity.node),
        _ => None,
    };
    let local = asked.resting.is_none().then_some(asked.local);
    let liked = named.into_iter().chain(local).find(|node| nodes.iter().any(|row| row.node == *node));
    liked.or_else(|| calmest(&mut nodes.iter().map(|row| row.node)))
}

fn meets(row: &NodeRow, terms: &[LabelTerm]) -> bool {
    terms.iter().all(|term| term.is_met(&row.labels))
}

fn on_node(rows: &[&NodeRow], asked: &Asked<'_>, affinity: NodeAffinity) -> Choice {
    let row = rows.iter().find(|row| row.node == affinity.node);
    let why = match row {
        Some(row) if row.free.covers(asked.request) => return Choice::On(row.node),
        Some(row) if row.total.covers(asked.request) => {
            return match among(rows.to_vec(), asked, false) {
                Choice::On(node) if affinity.soft => Choice::On(node),
                _ => Choice::Wait,
            };
        }
        Some(row) => format!(
            "node {:016x} has only {} and can never give {}",
            row.node.0,
            row.total.describe(),
            asked.request.describe()
        ),
        None => format!("there is no node {:016x} in this cluster", affinity.node.0),
    };
    if affinity.soft { among(rows.to_vec(), asked, false) } else { Choice::Never(why) }
}

fn with_labels(rows: &[&NodeRow], asked: &Asked<'_>, labels: &NodeLabels) -> Choice {
    let hard: Vec<&NodeRow> = rows.iter().copied().filter(|row| meets(row, &labels.hard)).collect();
    if hard.is_empty() {
        return Choice::Lacking(format!("no node meets the labels {}", describe_terms(&labels.hard)));
    }
    let soft = hard.iter().copied().filter(|row| meets(row, &labels.soft)).collect();
    match among(soft, asked, labels.spread) {
        Choice::On(node) => Choice::On(node),
        _ => among(hard, asked, labels.spread),
    }
}

fn among(rows: Vec<&NodeRow>, asked: &Asked<'_>, spread: bool) -> Choice {
    let fitting: Vec<&NodeRow> = rows.iter().copied().filter(|row| row.free.covers(asked.request)).collect();
    if fitting.is_empty() {
        let is_feasible = rows.iter().any(|row| row.total.covers(asked.request));
        let lacking = || format!("no node has {}", asked.request.describe());
        return if is_feasible { Choice::Wait } else { Choice::Lacking(lacking()) };
    }
    if let Some(prefer) = asked.prefer.filter(|prefer| fitting.iter().any(|row| row.node == *prefer)) {
        return Choice::On(prefer);
    }
    if spread {
        let last = |row: &NodeRow| asked.turns.map_or(0, |turns| turns.last(row.node));
        let first = fitting.iter().map(|row| last(row)).min();
        // Several only if none of them had a turn: then the one that is used least.
        let next = fitting.iter().filter(|row| Some(last(row)) == first);
        let next = next.min_by_key(|row| used_share(row, asked.request)).expect("not empty");
        return Choice::On(next.node);
    }
    let needs_gpu = asked.request.amount("GPU") > 0;
    let key = |row: &&&NodeRow| {
        // Work without a GPU stays away from nodes that have one.
        let wastes_gpu = !needs_gpu && row.total.amount("GPU") > 0;
        let used = used_share(row, asked.request);
        let packed = match asked.resting {
            Some(resting) => used.saturating_add(resting_share(row, resting)),
            None if used < PACKED_SHARE => 0,
            None => used,
        };
        // A node that was started without CPUs, such as a head, is not meant to run what can run elsewhere.
        let is_without_cpus = asked.resting.is_some() && row.total.amount("CPU") == 0;
        (wastes_gpu, is_without_cpus, packed, row.node != asked.local, row.node)
    };
    let best = fitting.iter().min_by_key(key).expect("not empty");
    Choice::On(best.node)
}

/// How much of its most used resource a node uses, in thousandths: of CPUs, memory, and the requested
/// resources.
#[must_use]
pub fn used_share(row: &NodeRow, request: &ResourceSet) -> u64 {
    let names = ["CPU", "memory"].into_iter().chain(request.iter().map(|(name, _)| name));
    let share = |name: &str| {
        let (total, free) = (u128::from(row.total.amount(name)), u128::from(row.free.amount(name)));
        let used = total.saturating_sub(free) * 1000;
        used.checked_div(total).map_or(0, |share| u64::try_from(share).unwrap_or(u64::MAX))
    };
    names.map(share).max().unwrap_or(0)
}

/// What a node's actors without a CPU would use, in thousandths of its CPUs, if each of them held one.
fn resting_share(row: &NodeRow, resting: &Map<NodeId, u32>) -> u64 {
    let count = u64::from(resting.get(&row.node).copied().unwrap_or(0));
    count.saturating_mul(1000 * UNIT) / row.total.amount("CPU").max(UNIT)
}

/// The node that holds most bytes of these values; among equals, the one that was named first.
#[must_use]
pub fn holder_of_most(values: impl IntoIterator<Item = (NodeId, u64)>) -> Option<NodeId> {
    let mut bytes: Map<NodeId, u64> = Map::default();
    for (node, length) in values {
        *bytes.entry(node).or_default() += length;
    }
    let most = bytes.values().copied().max()?;
    bytes.into_iter().find(|(_, length)| *length == most).map(|(node, _)| node)
}

/// The text for work that will never run.
pub(crate) fn unschedulable(why: &str) -> String {
    format!("{why}, and soft=False allows no other node. Give soft=True, or another node")
}

/// The text for work for which no node can start workers.
pub(crate) fn unstartable(why: &str) -> String {
    format!("no node that could run it can start workers for this program: {why}")
}
