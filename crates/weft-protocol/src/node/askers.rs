//! Who asks this node for leases, and how many it has: processes that are connected here, and processes of other nodes, whose
//! nodes ask for them.
//!
//! They are apart from the clients: who is told of deaths, losses and rounds is decided by who is connected, who is served by who
//! asks.
//!
//! Invariant P1: of a demand, no more is asked of other nodes than there is.
//!
//! It never decides who is served: [`super::leasing`] and [`super::spill`] do.

use weft_wire::limits::LENT_NANOS;
use weft_wire::{NodeId, ResourceSet, ShapeId, Strategy, WorkerId};

use crate::table::{Map, Set};
use crate::time::Instant;

/// How long what is to be spread waits where it was asked for (nanoseconds).
const SPREAD_NANOS: u64 = 2_000_000_000;

/// What somebody waits for.
#[derive(Debug)]
pub(super) struct Demand {
    pub(super) resources: ResourceSet,
    /// Where its workers must be, if not just anywhere.
    pub(super) strategy: Option<Box<Strategy>>,
    /// Of the most urgent of its tasks.
    pub(super) priority: i32,
    /// All that is wanted, wherever it was asked for.
    pub(super) count: u32,
    pub(super) reported: bool,
    /// What other nodes were asked for, and have not granted.
    pub(super) lent: Vec<Lent>,
}

/// A part of a demand that another node was asked to meet.
#[derive(Debug)]
pub(super) struct Lent {
    pub(super) node: NodeId,
    pub(super) count: u32,
    /// What that node takes the count to be, once it has heard all that was said and all that it granted is here.
    pub(super) said: u32,
    /// Since when it waits there.
    pub(super) since: Instant,
    /// Less was asked for than before: a grant that crossed that makes the other node count more than it should, until all
    /// is withdrawn.
    pub(super) was_withdrawn: bool,
    /// It is to be said again, for it is more or less urgent.
    pub(super) is_stale: bool,
}

impl Demand {
    pub(super) fn new(resources: ResourceSet, strategy: Option<Box<Strategy>>) -> Self {
        Self { resources, strategy, priority: 0, count: 0, reported: false, lent: Vec::new() }
    }

    /// How much no other node was asked for.
    pub(super) fn unlent(&self) -> u32 {
        self.count.saturating_sub(self.lent.iter().map(|lent| lent.count).sum())
    }

    /// How much a node was asked for.
    pub(super) fn lent_to(&self, node: NodeId) -> u32 {
        self.lent.iter().find(|lent| lent.node == node).map_or(0, |lent| lent.count)
    }

    /// It is as urgent as this from now on.
    pub(super) fn set_priority(&mut self, priority: i32) {
        if self.priority != priority {
            self.priority = priority;
            self.lent.iter_mut().for_each(|lent| lent.is_stale = true);
        }
    }

    /// So much more is asked of a node.
    pub(super) fn lend(&mut self, node: NodeId, count: u32, now: Instant) {
        let lent = match self.lent.iter().position(|lent| lent.node == node) {
            Some(at) => &mut self.lent[at],
            None => {
                self.lent.push(Lent {
                    node,
                    count: 0,
                    said: 0,
                    since: now,
                    was_withdrawn: false,
                    is_stale: false,
                });
                self.lent.last_mut().expect("just pushed")
            }
        };
        lent.count += count;
        lent.since = now;
    }

    /// How long what was asked for waits before it may go elsewhere. What is to be spread is to run on that very node, which
    /// may be starting the first worker of a job.
    fn patience(&self) -> u64 {
        let is_spread = match self.strategy.as_deref() {
            Some(Strategy::Spread) => true,
            Some(Strategy::Labels(labels)) => labels.spread,
            Some(Strategy::Node(_) | Strategy::Group(_)) | None => false,
        };
        if is_spread { SPREAD_NANOS } else { LENT_NANOS }
    }

    /// What was asked for longest, if it may go elsewhere by now.
    pub(super) fn oldest(&self, now: Instant) -> Option<NodeId> {
        let patience = self.patience();
        let waits = self.lent.iter().filter(|lent| lent.count > 0 && now.since(lent.since) >= patience);
        waits.min_by_key(|lent| lent.since).map(|lent| lent.node)
    }

    /// When something that was asked for may go elsewhere.
    pub(super) fn next_move(&self, now: Instant) -> Option<Instant> {
        let patience = self.patience();
        let waits = self.lent.iter().filter(|lent| lent.count > 0).map(|lent| lent.since.plus(patience));
        waits.filter(|at| *at > now).min()
    }

    /// One less is asked of a node.
    pub(super) fn take_back(&mut self, node: NodeId) {
        if let Some(lent) = self.lent.iter_mut().find(|lent| lent.node == node) {
            lent.count = lent.count.saturating_sub(1);
        }
    }

    /// A node granted one. False if nothing was asked of it any more.
    pub(super) fn on_granted(&mut self, node: NodeId) -> bool {
        let Some(lent) = self.lent.iter_mut().find(|lent| lent.node == node) else { return false };
        let was_asked = lent.count > 0;
        lent.count = lent.count.saturating_sub(1);
        lent.said = lent.said.saturating_sub(1);
        was_asked
    }

    /// A node grants nothing more.
    pub(super) fn forget_node(&mut self, node: NodeId) {
        self.lent.retain(|lent| lent.node != node);
    }

    /// Keeps P1 after the demand became smaller: what was asked for last is withdrawn first.
    pub(super) fn trim(&mut self) {
        let mut excess = self.lent.iter().map(|lent| lent.count).sum::<u32>().saturating_sub(self.count);
        for lent in self.lent.iter_mut().rev() {
            let less = lent.count.min(excess);
            lent.count -= less;
            excess -= less;
        }
    }
}

/// Somebody who may ask for leases.
#[derive(Debug)]
pub(super) struct Asker {
    /// The driver whose workers serve it.
    pub(super) job: WorkerId,
    pub(super) demands: Map<ShapeId, Demand>,
    pub(super) leases: u32,
    /// It was asked to give a lease back and has not done so.
    pub(super) reclaiming: bool,
}

impl Asker {
    pub(super) fn new(job: WorkerId) -> Self {
        Self { job, demands: Map::default(), leases: 0, reclaiming: false }
    }
}

/// See the module. In the order in which they came, which is the order in which they are served.
pub(super) type Askers = Map<WorkerId, Asker>;

/// Jobs whose driver is there.
pub(super) type OpenJobs = Set<WorkerId>;
