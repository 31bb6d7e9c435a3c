//! The jobs of a cluster: which nodes know of each, and when it is over.
//!
//! A job begins with its driver, whose node reports what the job's workers need. Another node asks for that
//! when it first has work for the job. All nodes that know the job learn when its driver leaves in order, and
//! when it is over: when the driver is dead and no actor that outlives it is left
//! (`docs/adr/0030-jobs-over-nodes.md`).
//!
//! A node may ask before the driver's node has reported the job: they use different connections. It is
//! answered then, or when that node is dead: it never waits for ever.

use std::collections::VecDeque;

use sooner_wire::limits::{ENDED_MAX, REFUSAL_NANOS};
use sooner_wire::message::{CreateActor, Job, JobConfig, JobState};
use sooner_wire::record::JobRecord;
use sooner_wire::{ActorId, NodeId, Takeover, WorkerId};

use super::actors::Phase;
use super::durable::Subject;
use crate::control::{Directory, DirectoryAction, DirectoryActions};
use crate::table::{Map, Set};
use crate::time::Instant;
use crate::uplink::ToNode;

/// See the module. Empty where there is only one node.
#[derive(Debug, Default)]
pub(in crate::control) struct Jobs {
    open: Map<WorkerId, Known>,
    /// Nodes that asked for a job before its driver's node reported it.
    asked: Map<WorkerId, Set<NodeId>>,
    /// The latest jobs that ended.
    ended: VecDeque<WorkerId>,
    /// A driver or an actor has ended: some job may be over.
    has_ends: bool,
}

#[derive(Debug)]
struct Known {
    config: Box<JobConfig>,
    /// Nodes that know of the job.
    nodes: Set<NodeId>,
    is_leaving: bool,
    /// The driver is dead.
    is_dead: bool,
    /// Nodes that can start no workers for the job, and why.
    unable: Map<NodeId, String>,
}

impl Known {
    fn new(config: Box<JobConfig>, nodes: Set<NodeId>) -> Self {
        Self { config, nodes, is_leaving: false, is_dead: false, unable: Map::default() }
    }
}

impl Jobs {
    /// Nodes that can start no workers for a job, and why.
    pub(in crate::control) fn unable(&self, job: WorkerId) -> Option<&Map<NodeId, String>> {
        self.open.get(&job).map(|known| &known.unable).filter(|unable| !unable.is_empty())
    }

    /// A driver or an actor has ended that may have been the last of a job.
    pub(in crate::control) fn record_end(&mut self) {
        self.has_ends = !self.open.is_empty();
    }

    /// The record of a job that is not over: what its workers need, and whether its driver is dead.
    pub(in crate::control) fn known(&self, job: WorkerId) -> Option<(&JobConfig, bool)> {
        self.open.get(&job).map(|known| (&*known.config, known.is_dead))
    }

    /// A job of which a record was found.
    pub(in crate::control) fn restore(&mut self, record: JobRecord) {
        let JobRecord { job, config, is_dead } = record;
        let nodes = Set::from_iter([job.node()]);
        self.open.insert(job, Known { is_dead, ..Known::new(config, nodes) });
        self.has_ends = true;
    }

    /// Drivers of jobs that are not over.
    pub(in crate::control) fn drivers(&self) -> impl Iterator<Item = WorkerId> {
        self.open.keys().copied()
    }

    fn end(&mut self, job: WorkerId) {
        if self.ended.len() == ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(job);
    }
}

fn tell(node: NodeId, job: WorkerId, state: JobState, config: Option<Box<JobConfig>>) -> DirectoryAction {
    DirectoryAction::Send(node, Box::new(ToNode::Job(Box::new(Job { job, state, config }))))
}

impl Directory {
    pub(in crate::control) fn on_job(&mut self, node: NodeId, job: Job, out: &mut DirectoryActions) {
        let Job { job, state, config } = job;
        match (state, config) {
            (JobState::Started, Some(config)) => self.on_job_started(job, config, out),
            (JobState::Asked, _) => self.on_job_asked(node, job, out),
            // All other states of jobs are decided here.
            _ => {}
        }
    }

    fn on_job_started(&mut self, job: WorkerId, config: Box<JobConfig>, out: &mut DirectoryActions) {
        let new = || Known::new(config, Set::from_iter([job.node()]));
        self.jobs.open.entry(job).or_insert_with(new);
        if self.durable.is_some() && self.has_actors(job) {
            self.note(|| Subject::Job(job));
        }
        for node in self.jobs.asked.swap_remove(&job).into_iter().flatten() {
            self.on_job_asked(node, job, out);
        }
    }

    fn on_job_asked(&mut self, node: NodeId, job: WorkerId, out: &mut DirectoryActions) {
        if let Some(known) = self.jobs.open.get_mut(&job) {
            known.nodes.insert(node);
            out.push(tell(node, job, JobState::Started, Some(known.config.clone())));
            if known.is_leaving {
                out.push(tell(node, job, JobState::Leaving, None));
            }
        } else if self.jobs.ended.contains(&job) || self.is_lost(job.node()) {
            out.push(tell(node, job, JobState::Ended, None));
        } else {
            self.jobs.asked.entry(job).or_default().insert(node);
        }
    }

    /// A driver is about to end in order: other nodes end the workers of its job.
    pub(in crate::control) fn on_job_leaves(&mut self, driver: WorkerId, out: &mut DirectoryActions) {
        let Some(known) = self.jobs.open.get_mut(&driver) else { return };
        known.is_leaving = true;
        let others = known.nodes.iter().filter(|node| **node != driver.node());
        out.extend(others.map(|node| tell(*node, driver, JobState::Leaving, None)));
    }

    /// A process is dead: its job, if it was a driver, lasts only as long as its actors.
    pub(in crate::control) fn on_driver_dead(&mut self, process: WorkerId, out: &mut DirectoryActions) {
        if let Some(known) = self.jobs.open.get_mut(&process) {
            known.is_dead = true;
            self.jobs.has_ends = true;
            self.record_job(process);
        }
        for node in self.jobs.asked.swap_remove(&process).into_iter().flatten() {
            self.jobs.end(process);
            out.push(tell(node, process, JobState::Ended, None));
        }
    }

    /// A node can start no workers for the job of an actor. Returns whether the job is known: otherwise the
    /// node would be asked again.
    pub(in crate::control) fn record_unable(&mut self, node: NodeId, id: ActorId, why: &str) -> bool {
        let job = self.actors.get(&id).map(|actor| actor.job);
        let Some(known) = job.and_then(|job| self.jobs.open.get_mut(&job)) else { return false };
        known.unable.insert(node, why.to_owned());
        true
    }

    /// A node could start no worker for an actor for long: another node is asked, as long as there is one.
    pub(in crate::control) fn on_place_refused_for_now(
        &mut self,
        node: NodeId,
        (id, takeover): (ActorId, Takeover),
        why: String,
        create: Box<CreateActor>,
        now: Instant,
    ) {
        self.place_elsewhere(node, id, takeover, create);
        if let Some(actor) = self.actors.get_mut(&id).filter(|actor| matches!(actor.phase, Phase::Pending(_)))
        {
            actor.refusals.retain(|(refused, _)| *refused != node);
            actor.refusals.push((node, why));
            actor.refused_at = now;
            self.refused.insert(id);
        }
    }

    /// Nodes that could start no workers for an actor may be asked again once none has refused it for a
    /// while.
    pub(in crate::control) fn lapse_refusals(&mut self, now: Instant) {
        if self.refusals_lapse_at().is_none_or(|at| now < at) {
            return;
        }
        let actors = &mut self.actors;
        self.refused.retain(|id| {
            let Some(actor) = actors.get_mut(id).filter(|actor| !actor.refusals.is_empty()) else {
                return false;
            };
            if now < actor.refused_at.plus(REFUSAL_NANOS) {
                return true;
            }
            actor.refusals.clear();
            false
        });
        self.recall_at(now);
    }

    /// When [`Self::lapse_refusals`] has something to do.
    pub(in crate::control) fn refusals_lapse_at(&self) -> Option<Instant> {
        let actors = self.refused.iter().filter_map(|id| self.actors.get(id));
        actors.map(|actor| actor.refused_at.plus(REFUSAL_NANOS)).min()
    }

    fn record_job(&mut self, job: WorkerId) {
        let subject = Subject::Job(job);
        if self.durable.as_ref().is_some_and(|durable| durable.recorded.contains_key(&subject)) {
            self.note(|| subject);
        }
    }

    /// A node is dead, and with it its drivers.
    pub(in crate::control) fn end_jobs_on(&mut self, node: NodeId, out: &mut DirectoryActions) {
        for (job, known) in &mut self.jobs.open {
            known.nodes.swap_remove(&node);
            known.unable.swap_remove(&node);
            known.is_dead |= job.node() == node;
        }
        for nodes in self.jobs.asked.values_mut() {
            nodes.swap_remove(&node);
        }
        let unheard: Vec<WorkerId> =
            self.jobs.asked.keys().filter(|job| job.node() == node).copied().collect();
        unheard.into_iter().for_each(|job| self.on_driver_dead(job, out));
        self.jobs.record_end();
    }

    /// Tells nodes which jobs are over.
    pub(in crate::control) fn end_jobs(&mut self, out: &mut DirectoryActions) {
        if !std::mem::take(&mut self.jobs.has_ends) {
            return;
        }
        let gone = self.jobs.open.iter().filter(|(_, known)| known.is_dead).map(|(job, _)| *job);
        for job in gone.collect::<Vec<_>>() {
            if self.has_actors(job) {
                continue;
            }
            let known = self.jobs.open.swap_remove(&job).expect("listed above");
            self.jobs.end(job);
            self.record_job(job);
            out.extend(known.nodes.into_iter().map(|node| tell(node, job, JobState::Ended, None)));
        }
    }
}
