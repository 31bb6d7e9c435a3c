//! Strategies and bundles of placement groups on this node: which demands may run here, and what the control
//! service has set apart.

use sooner_wire::message::{BundleStep, Closed, Failure, FailureCode, FindGroup, Infeasible, Prepared};
use sooner_wire::{GroupId, NodeId, PlacementAttempt, ResourceSet, ShapeId, Strategy, WorkerId};

use crate::node::core::{Placement, send};
use crate::node::{NodeAction, NodeActions, NodeCore};
use crate::scheduling::Pools;
use crate::scheduling::policy::{Asked, Choice, NodeRow, choose, unschedulable, unstartable};
use crate::time::Instant;
use crate::uplink::{BundleAnswer, BundleOrder, ToControl};

/// What decides whether a demand may run on this node.
pub(in crate::node) struct Place<'a> {
    pub(in crate::node) resources: &'a Pools,
    pub(in crate::node) node: NodeId,
    pub(in crate::node) labels: &'a [(String, String)],
}

/// Why a demand is not met here, however long it waits.
pub(in crate::node) enum Objection {
    /// The node has too little of a resource, or lacks labels, which the text says: the demand waits for a
    /// node that has them.
    Lacking(Option<String>),
    /// The demand is bound to a node that is not there or too small.
    Never(String),
    /// No node that could run it can start workers for its job: the text says why not.
    NoWorkers(String),
    /// Like `NoWorkers`, because something is used up there. Later demands are tried again.
    NoWorkersNow(String),
}

impl Place<'_> {
    /// Why a demand can never run here; `None` if it can.
    pub(in crate::node) fn objection(
        &self,
        request: &ResourceSet,
        strategy: Option<&Strategy>,
    ) -> Option<Objection> {
        match strategy {
            None | Some(Strategy::Group(_) | Strategy::Spread) => {
                (!self.resources.is_feasible(request, strategy)).then_some(Objection::Lacking(None))
            }
            Some(Strategy::Node(_) | Strategy::Labels(_)) => {
                let total = self.resources.total().clone();
                let row =
                    NodeRow { node: self.node, free: total.clone(), total, labels: self.labels.to_vec() };
                let asked =
                    Asked { request, strategy, local: self.node, prefer: None, turns: None, resting: None };
                match choose(&[row], &asked) {
                    Choice::On(_) | Choice::Wait => None,
                    Choice::Lacking(why) => {
                        let is_amount = !self.resources.is_feasible(request, None);
                        Some(Objection::Lacking((!is_amount).then_some(why)))
                    }
                    Choice::Never(why) => Some(Objection::Never(why)),
                }
            }
        }
    }
}

impl Objection {
    /// Whether the demand fails, instead of waiting for a node that joins.
    pub(in crate::node) fn is_final(&self) -> bool {
        matches!(self, Self::Never(_) | Self::NoWorkers(_) | Self::NoWorkersNow(_))
    }

    /// Whether later demands do not fail with this one.
    pub(in crate::node) fn is_for_now(&self) -> bool {
        matches!(self, Self::NoWorkersNow(_))
    }

    /// The message for a client.
    pub(in crate::node) fn tell(
        self,
        client: WorkerId,
        shape: ShapeId,
        asked: &ResourceSet,
        total: &ResourceSet,
    ) -> NodeAction {
        let (asked, total) = (asked.clone(), total.clone());
        let for_now = self.is_for_now().then_some(true);
        let text = match self {
            Self::Lacking(reason) => return send(client, Infeasible { asked, total, closed: None, reason }),
            Self::Never(why) => unschedulable(&why),
            Self::NoWorkers(why) => unstartable(&why),
            Self::NoWorkersNow(why) => why,
        };
        let failure = Failure::new(FailureCode::TaskUnschedulable, text);
        let closed = Some(Box::new(Closed { shape, failure, for_now }));
        send(client, Infeasible { asked, total, closed, reason: None })
    }
}

impl NodeCore {
    /// The control service reserves resources, or gives them back.
    pub(in crate::node) fn on_bundles(&mut self, order: BundleOrder, out: &mut NodeActions) {
        let (group, attempt, step) = match order {
            BundleOrder::Prepare(prepare) => {
                let is_room = self.resources.prepare(prepare.group, prepare.attempt, &prepare.bundles);
                let step = if is_room { BundleStep::Prepared } else { BundleStep::Refused };
                (prepare.group, prepare.attempt, step)
            }
            BundleOrder::Commit(commit) => {
                let is_here = self.resources.commit(commit.group, commit.attempt);
                let step = if is_here { BundleStep::Committed } else { BundleStep::Refused };
                (commit.group, commit.attempt, step)
            }
            BundleOrder::Release(release) => {
                self.resources.give_back(release.group, release.attempt);
                if release.attempt.is_none() {
                    self.end_all_in(release.group, out);
                }
                return;
            }
        };
        let answer = BundleAnswer::Prepared(Prepared { group, attempt, step });
        out.push(NodeAction::Control(ToControl::Bundles(Box::new(answer))));
    }

    /// Ends leases and placements in a removed group. Their callers have been told.
    fn end_all_in(&mut self, group: GroupId, out: &mut NodeActions) {
        let held = self.leases.iter().filter(|(_, lease)| lease.grant.group() == Some(group));
        out.extend(held.map(|(_, lease)| NodeAction::KillWorker(lease.worker)));
        for placement in std::mem::take(&mut self.placements) {
            let (Placement::Lease { grant, .. } | Placement::Actor { grant, .. }) = &placement;
            if grant.group() == Some(group) {
                self.resources.release(grant);
            } else {
                self.placements.push_back(placement);
            }
        }
        self.forget_group(group, out);
    }

    /// Asks what becomes of bundles that were prepared long ago.
    pub(crate) fn ask_about_bundles(&mut self, now: Instant, out: &mut NodeActions) {
        for (group, attempt) in self.resources.unheard(now) {
            out.push(question(group, attempt));
        }
    }

    /// Asks what becomes of all bundles here: the control service has started again, and the last message of
    /// the one before it may be lost.
    pub(crate) fn ask_about_all_bundles(&mut self, out: &mut NodeActions) {
        out.extend(self.resources.attempts().into_iter().map(|(group, attempt)| question(group, attempt)));
    }
}

fn question(group: GroupId, attempt: PlacementAttempt) -> NodeAction {
    let find = FindGroup { request: 0, group: Some(group), title: None, attempt: Some(attempt) };
    NodeAction::Control(ToControl::Bundles(Box::new(BundleAnswer::Asks(find))))
}
