//! Nodes that can start no workers for a job: its program is not there, or ends before it has begun.
//!
//! A node that finds that out for the job of a remote driver refuses all work that waits there for the job,
//! and says why. The nodes that asked it choose among the others from then on, as long as the job lasts. Work
//! that no other node could run fails. Actors are given back to the control service, which does the same
//! (`crate::control`).
//!
//! Invariants:
//! - Nothing of such a job waits here for a worker: no placement, no demand of another node, no actor without
//!   a process.
//! - What is known of a job is forgotten with it, and what is known of a node is forgotten with that.
//!
//! This file never concerns a job with a local driver: that driver is ended, and all it waits for with it.

use std::collections::VecDeque;

use sooner_wire::message::CreateActor;
use sooner_wire::{NodeId, Takeover, WorkerId};

use super::bundles::Objection;
use super::remote_leases::refuse_for_good;
use super::requesters::Demand;
use crate::node::core::Placement;
use crate::node::{NodeAction, NodeActions, NodeCore};
use crate::table::Map;
use crate::uplink::ToControl;

/// See the module.
#[derive(Debug, Default)]
pub(in crate::node) struct Unable {
    /// By job and node, why the node can start no workers.
    why: Map<(WorkerId, NodeId), String>,
    /// Work that waits here for a job is to be looked at again, although nothing else may come.
    pub(in crate::node) is_unsettled: bool,
}

impl Unable {
    /// Why a node can start no worker for a job.
    pub(in crate::node) fn why(&self, job: WorkerId, node: NodeId) -> Option<&str> {
        if self.why.is_empty() {
            return None;
        }
        self.why.get(&(job, node)).map(String::as_str)
    }

    /// Whether a node may be able to start workers for a job.
    pub(in crate::node) fn may_run(&self, job: WorkerId, node: NodeId) -> bool {
        self.why(job, node).is_none()
    }

    /// Why a demand of a job does not go to a node.
    pub(in crate::node) fn objection(
        &self,
        job: WorkerId,
        demand: &Demand,
        node: NodeId,
    ) -> Option<Objection> {
        let for_good = self.why(job, node).map(|why| Objection::NoWorkers(why.to_owned()));
        for_good.or_else(|| Some(Objection::NoWorkersNow(demand.refusal(node)?.to_owned())))
    }

    /// Whether a demand may go to a node.
    pub(in crate::node) fn may_serve(&self, job: WorkerId, demand: &Demand, node: NodeId) -> bool {
        self.may_run(job, node) && demand.refusal(node).is_none()
    }

    pub(in crate::node) fn note(&mut self, job: WorkerId, node: NodeId, why: &str) {
        self.why.insert((job, node), why.to_owned());
    }

    pub(in crate::node) fn forget_job(&mut self, job: WorkerId) {
        self.why.retain(|(of, _), _| *of != job);
    }

    pub(in crate::node) fn forget_node(&mut self, node: NodeId) {
        self.why.retain(|(_, at), _| *at != node);
    }
}

impl NodeCore {
    /// No worker can be started here any more for the job of a remote driver. All work that waits for one is
    /// refused: other nodes may have what this one lacks.
    pub fn on_job_given_up(&mut self, job: WorkerId, why: &str, out: &mut NodeActions) {
        let here = self.id();
        if job.node() == here {
            return;
        }
        self.unable.note(job, here, why);
        self.unable.is_unsettled = true;
        self.end_placements_of_job(job);
        for (id, asker) in &mut self.askers {
            if asker.job != job || id.node() == here {
                continue;
            }
            for shape in std::mem::take(&mut asker.demands).into_keys() {
                refuse_for_good(here, (*id, shape), why, out);
            }
        }
        for (takeover, create) in self.local_actors.take_waiting(job) {
            out.push(refused_place(takeover, create, why));
        }
    }

    /// Gives back what was set aside for a job. Demands of local processes are asked of other nodes.
    fn end_placements_of_job(&mut self, job: WorkerId) {
        let mut kept = VecDeque::new();
        for placement in std::mem::take(&mut self.placements) {
            if self.job_of_placement(&placement) != job {
                kept.push_back(placement);
                continue;
            }
            if let Placement::Lease { client, shape, .. } = &placement {
                let asker = self.askers.get_mut(client);
                if let Some(demand) = asker.and_then(|asker| asker.demands.get_mut(shape)) {
                    demand.count += 1;
                }
            }
            let (Placement::Lease { grant, .. } | Placement::Actor { grant, .. }) = &placement;
            self.resources.release(grant);
        }
        self.placements = kept;
    }

    /// Why no worker can be started here for a job.
    pub(in crate::node) fn cannot_start(&self, job: WorkerId) -> Option<&str> {
        self.unable.why(job, self.id())
    }
}

/// An actor gets no process here, and is given back: the control service chooses among the other nodes.
pub(in crate::node) fn refused_place(takeover: Takeover, create: Box<CreateActor>, why: &str) -> NodeAction {
    let (actor, reason, create) = (create.actor, why.to_owned(), Some(create));
    let (no_workers, for_now) = (true, false);
    NodeAction::Control(ToControl::PlaceRefused { actor, takeover, reason, create, no_workers, for_now })
}
