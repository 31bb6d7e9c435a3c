//! Which processes ask this node for leases, and how many each has: local ones, and those of other nodes,
//! whose nodes ask for them.
//!
//! They are apart from the clients: a connected process is told of deaths, losses and rounds, a process that
//! asks is served.
//!
//! It keeps SB1 ([`super::spillback`]): of a demand, no more is asked of other nodes than there is.
//!
//! It never decides who is served: [`super::leases`] and [`super::spillback`] do.

use sooner_wire::limits::{FIND_NODES_NANOS, FIND_NODES_NANOS_MAX, LENT_NANOS, REFUSAL_NANOS};
use sooner_wire::{NodeId, ResourceSet, ShapeId, Strategy, WorkerId};

use super::bundles::Objection;
use crate::node::NodeAction;
use crate::scheduling::{Grant, Pools};
use crate::table::{Map, Set};
use crate::time::Instant;

/// How long a demand that is to be spread waits where it was asked for (nanoseconds).
const SPREAD_NANOS: u64 = 2_000_000_000;

/// Leases of one shape that a process waits for.
#[derive(Debug)]
pub(in crate::node) struct Demand {
    pub(in crate::node) resources: ResourceSet,
    /// Where its workers must be, if not just anywhere.
    pub(in crate::node) strategy: Option<Box<Strategy>>,
    /// Its tasks are executed again with a larger reservation if they end for want of memory.
    pub(in crate::node) raises_memory: bool,
    /// The node that holds most bytes of the arguments of the waiting tasks.
    pub(in crate::node) prefer: Option<NodeId>,
    /// The priority of its most urgent task.
    pub(in crate::node) priority: i32,
    /// All leases wanted, wherever they were asked for.
    pub(in crate::node) count: u32,
    told: Told,
    /// Nodes that could start no workers for long when it was their turn, and why. They are left out until
    /// the demand is met or fails, or none has refused for long, so that it does not wait for other nodes for
    /// ever.
    refused: Vec<(NodeId, String)>,
    refused_at: Instant,
    /// The parts that other nodes were asked for, and have not granted.
    pub(in crate::node) lent: Vec<Lent>,
    /// When the control service may be asked again which nodes could serve the demand, and the pause after
    /// that (nanoseconds).
    find: Option<(Instant, u64)>,
}

/// What a client was told of a demand that is not met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    Nothing,
    /// The demand waits for a node that joins.
    ItWaits,
    /// The demand fails.
    ItFails,
}

/// A part of a demand that another node was asked to meet.
#[derive(Debug)]
pub(in crate::node) struct Lent {
    pub(in crate::node) node: NodeId,
    pub(in crate::node) count: u32,
    /// What that node takes the count to be, once it has received all messages to it and all its grants are
    /// here.
    pub(in crate::node) said: u32,
    /// Since when the part waits there.
    pub(in crate::node) since: Instant,
    /// Less was asked for than before: a grant that crossed that message makes the other node count more than
    /// it should, until all is withdrawn.
    pub(in crate::node) was_withdrawn: bool,
    /// The part is to be sent again, because its priority has changed.
    pub(in crate::node) is_stale: bool,
}

impl Demand {
    pub(in crate::node) fn new(
        resources: ResourceSet,
        strategy: Option<Box<Strategy>>,
        raises_memory: Option<bool>,
    ) -> Self {
        Self {
            resources,
            strategy,
            raises_memory: raises_memory == Some(true),
            prefer: None,
            priority: 0,
            count: 0,
            told: Told::Nothing,
            refused: Vec::new(),
            refused_at: Instant(0),
            lent: Vec::new(),
            find: None,
        }
    }

    /// Takes the resources of one of the demand's leases, if they are free.
    pub(in crate::node) fn acquire(&self, resources: &mut Pools) -> Option<Grant> {
        let mut grant = resources.acquire(&self.resources, self.strategy.as_deref())?;
        grant.raises_memory = self.raises_memory;
        Some(grant)
    }

    /// The demand cannot be met now, or ever. True if the client was not told that.
    fn on_objection(&mut self, is_final: bool) -> bool {
        let told = if is_final { Told::ItFails } else { Told::ItWaits };
        if is_final {
            // The waiting tasks fail, and no more will come.
            self.count = 0;
        }
        let is_news = self.told < told;
        self.told = self.told.max(told);
        is_news
    }

    /// A node could start no workers for long.
    pub(in crate::node) fn refused(&mut self, node: NodeId, why: &str, now: Instant) {
        self.refused_at = now;
        if self.refusal(node).is_none() {
            self.refused.push((node, why.to_owned()));
        }
    }

    /// When nodes that are left out may be asked again.
    pub(in crate::node) fn refusals_lapse_at(&self) -> Option<Instant> {
        (!self.refused.is_empty()).then(|| self.refused_at.plus(REFUSAL_NANOS))
    }

    /// Asks nodes again that were left out for long.
    pub(in crate::node) fn lapse_refusals(&mut self, now: Instant) {
        if self.refusals_lapse_at().is_some_and(|at| at <= now) {
            self.refused.clear();
        }
    }

    /// Why a node is left out.
    pub(in crate::node) fn refusal(&self, node: NodeId) -> Option<&str> {
        self.refused.iter().find(|(refused, _)| *refused == node).map(|(_, why)| why.as_str())
    }

    /// The demand was met, or what waited has failed for now: the next may go anywhere.
    pub(in crate::node) fn begin_anew(&mut self) {
        self.refused.clear();
        if self.told == Told::ItFails && self.count == 0 {
            self.told = Told::Nothing;
        }
    }

    /// The demand cannot be met now, or ever: the message for its client, if that is new.
    pub(in crate::node) fn object(
        &mut self,
        objection: Objection,
        (client, shape): (WorkerId, ShapeId),
        total: impl FnOnce() -> ResourceSet,
    ) -> Option<NodeAction> {
        let is_news = self.on_objection(objection.is_final());
        if objection.is_for_now() {
            self.begin_anew();
        }
        is_news.then(|| objection.tell(client, shape, &self.resources, &total()))
    }

    /// How many leases no other node was asked for.
    pub(in crate::node) fn unlent(&self) -> u32 {
        self.count.saturating_sub(self.lent.iter().map(|lent| lent.count).sum())
    }

    /// How many leases a node was asked for.
    pub(in crate::node) fn lent_to(&self, node: NodeId) -> u32 {
        self.lent.iter().find(|lent| lent.node == node).map_or(0, |lent| lent.count)
    }

    /// The demand has this priority from now on.
    pub(in crate::node) fn set_priority(&mut self, priority: i32) {
        if self.priority != priority {
            self.priority = priority;
            self.lent.iter_mut().for_each(|lent| lent.is_stale = true);
        }
    }

    /// A node is asked for `count` more leases.
    pub(in crate::node) fn lend(&mut self, node: NodeId, count: u32, now: Instant) {
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
        // There is room again: the node that is asked next may have some, too.
        self.find = None;
    }

    /// How long a part waits at a node before it may go elsewhere. A demand that is to be spread is to run on
    /// that very node, which may be starting the first worker of a job.
    fn patience(&self) -> u64 {
        let is_spread = match self.strategy.as_deref() {
            Some(Strategy::Spread) => true,
            Some(Strategy::Labels(labels)) => labels.spread,
            Some(Strategy::Node(_) | Strategy::Group(_)) | None => false,
        };
        if is_spread { SPREAD_NANOS } else { LENT_NANOS }
    }

    /// The node whose part has waited longest, if that may move by now.
    pub(in crate::node) fn oldest(&self, now: Instant) -> Option<NodeId> {
        let patience = self.patience();
        let waits = self.lent.iter().filter(|lent| lent.count > 0 && now.since(lent.since) >= patience);
        waits.min_by_key(|lent| lent.since).map(|lent| lent.node)
    }

    /// When a part that waits at a node may go elsewhere.
    pub(in crate::node) fn next_move(&self, now: Instant) -> Option<Instant> {
        let patience = self.patience();
        let waits = self.lent.iter().filter(|lent| lent.count > 0).map(|lent| lent.since.plus(patience));
        waits.filter(|at| *at > now).min()
    }

    /// Whether a lease is wanted for which no place is known.
    fn has_no_place(&self, now: Instant) -> bool {
        self.count > 0 && (self.unlent() > 0 || self.oldest(now).is_some())
    }

    /// Whether to ask the control service which nodes could serve the demand: not all the time.
    pub(in crate::node) fn must_find(&mut self, now: Instant) -> bool {
        if !self.has_no_place(now) || self.find.is_some_and(|(at, _)| now < at) {
            return false;
        }
        let pause = self.find.map_or(FIND_NODES_NANOS, |(_, pause)| pause);
        self.find = Some((now.plus(pause), (2 * pause).min(FIND_NODES_NANOS_MAX)));
        true
    }

    /// When [`Self::must_find`] may be true again.
    pub(in crate::node) fn next_find(&self, now: Instant) -> Option<Instant> {
        self.find.map(|(at, _)| at).filter(|at| *at > now && self.has_no_place(*at))
    }

    /// A node is asked for one lease less.
    pub(in crate::node) fn take_back(&mut self, node: NodeId) {
        if let Some(lent) = self.lent.iter_mut().find(|lent| lent.node == node) {
            lent.count = lent.count.saturating_sub(1);
        }
    }

    /// A node granted a lease. False if nothing was asked of it any more.
    pub(in crate::node) fn on_granted(&mut self, node: NodeId) -> bool {
        let Some(lent) = self.lent.iter_mut().find(|lent| lent.node == node) else { return false };
        let was_asked = lent.count > 0;
        lent.count = lent.count.saturating_sub(1);
        lent.said = lent.said.saturating_sub(1);
        was_asked
    }

    /// A node grants nothing more.
    pub(in crate::node) fn forget_node(&mut self, node: NodeId) {
        self.lent.retain(|lent| lent.node != node);
    }

    /// Keeps SB1 after the demand became smaller: what was asked for last is withdrawn first.
    pub(in crate::node) fn trim(&mut self) {
        let mut excess = self.lent.iter().map(|lent| lent.count).sum::<u32>().saturating_sub(self.count);
        for lent in self.lent.iter_mut().rev() {
            let less = lent.count.min(excess);
            lent.count -= less;
            excess -= less;
        }
    }
}

/// A process that may ask for leases.
#[derive(Debug)]
pub(in crate::node) struct Requester {
    /// The driver whose workers serve the process.
    pub(in crate::node) job: WorkerId,
    pub(in crate::node) demands: Map<ShapeId, Demand>,
    pub(in crate::node) leases: u32,
    /// The process was asked to give a lease back and has not done so.
    pub(in crate::node) reclaiming: bool,
}

impl Requester {
    pub(in crate::node) fn new(job: WorkerId) -> Self {
        Self { job, demands: Map::default(), leases: 0, reclaiming: false }
    }
}

/// See the module. In the order in which the processes came, which is the order in which they are served.
pub(in crate::node) type Requesters = Map<WorkerId, Requester>;

/// Jobs whose driver is there.
pub(in crate::node) type OpenJobs = Set<WorkerId>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_could_start_no_worker_may_be_asked_again_when_none_has_refused_for_long() {
        let (one, other) = (NodeId(1 << 24), NodeId(2 << 24));
        let mut demand = Demand::new(ResourceSet::default(), None, None);
        assert_eq!(demand.refusals_lapse_at(), None);
        demand.refused(one, "why", Instant(0));
        demand.refused(other, "why", Instant(REFUSAL_NANOS - 1));
        demand.lapse_refusals(Instant(REFUSAL_NANOS));
        assert!(demand.refusal(one).is_some(), "what no node can begin fails before");
        let at = Instant(2 * REFUSAL_NANOS - 1);
        assert_eq!(demand.refusals_lapse_at(), Some(at));
        demand.lapse_refusals(at);
        assert!(demand.refusal(one).is_none() && demand.refusal(other).is_none());
        assert_eq!(demand.refusals_lapse_at(), None);
    }
}
