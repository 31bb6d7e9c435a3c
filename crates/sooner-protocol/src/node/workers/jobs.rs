//! Jobs: a driver and the processes that work for it. Tasks of one job never run in a process of another job,
//! which has that job's modules, its paths and what its code left behind.
//!
//! A job ends with its driver, by the rule that what has an owner shares its fate. Detached actors outlive
//! the driver, and so does whatever they own in turn.
//!
//! As long as a job of a driver on another node is open, its workers are kept like those of a driver here.

use sooner_wire::WorkerId;

use crate::node::core::Placement;
use crate::node::workers::pool::{Worker, WorkerState};
use crate::node::{NodeAction, NodeActions, NodeCore};
use crate::table::Set;
use crate::uplink::ToControl;

impl NodeCore {
    /// The driver whose job a process belongs to: itself, if it is one.
    #[must_use]
    pub fn job_of(&self, process: WorkerId) -> WorkerId {
        let asker = self.askers.get(&process).map(|asker| asker.job);
        asker.or_else(|| Some(self.pool.get(process)?.job)).unwrap_or(process)
    }

    pub(in crate::node) fn job_of_placement(&self, placement: &Placement) -> WorkerId {
        match placement {
            Placement::Lease { client, .. } => self.job_of(*client),
            // An actor that was ended meanwhile is taken for its owner's, which may be a worker.
            Placement::Actor { actor, .. } => self.job_of(self.local_actors.job(*actor)),
        }
    }

    /// Whether nothing is left of a job here: no driver and no worker. The control service knows of its
    /// actors.
    #[must_use]
    pub fn is_over(&self, job: WorkerId) -> bool {
        !self.open_jobs.contains(&job) && self.pool.of_job(job).next().is_none()
    }

    /// Nothing of a job is left, and nothing will come.
    pub fn forget_job(&mut self, job: WorkerId) {
        self.pool.forget_job(job);
        self.starving.forget_job(job);
        self.unable.forget_job(job);
    }

    /// A driver leaves in order: nothing more begins for it, and its actors end as actors do that no process
    /// needs.
    pub fn on_leaving(&mut self, driver: WorkerId, out: &mut NodeActions) {
        let Some(client) = self.clients.get(&driver) else { return };
        if client.is_known_to_control {
            out.push(NodeAction::Control(ToControl::ProcessLeaves { process: driver }));
        }
        self.withdraw(driver, |_| true, out);
        self.drop_placements_of(driver);
    }

    /// The processes of a job that outlive its driver: detached actors, and the processes that work for
    /// those.
    #[must_use]
    pub fn outliving(&self, job: WorkerId) -> Set<WorkerId> {
        let mut found: Set<WorkerId> = Set::default();
        let lives_on = |worker: &Worker, found: &Set<WorkerId>| match worker.state {
            WorkerState::Actor(actor) => self.local_actors.is_detached(actor) || found.contains(&actor.owner),
            WorkerState::Leased(lease) => self.leases.get(lease).is_some_and(|l| found.contains(&l.client)),
            WorkerState::Starting | WorkerState::Idle { .. } | WorkerState::Retired => false,
        };
        loop {
            let of_job = self.pool.of_job(job).filter(|(id, _)| !found.contains(id));
            let more: Vec<WorkerId> =
                of_job.filter(|(_, worker)| lives_on(worker, &found)).map(|(id, _)| id).collect();
            if more.is_empty() {
                return found;
            }
            found.extend(more);
        }
    }

    /// Ends idle and retired workers of jobs without a driver, unless an actor of the job is here that may
    /// have work for them.
    pub(in crate::node) fn end_idle_of_ended_jobs(&mut self, out: &mut NodeActions) {
        let is_idle = |state| matches!(state, WorkerState::Idle { .. } | WorkerState::Retired);
        let idle = self.pool.iter().filter(|(_, worker)| is_idle(worker.state));
        let has_actor = |job: WorkerId| {
            self.pool.of_job(job).any(|(_, worker)| matches!(worker.state, WorkerState::Actor(_)))
        };
        let ended: Vec<WorkerId> = idle
            .filter(|(_, worker)| !self.open_jobs.contains(&worker.job) && !has_actor(worker.job))
            .map(|(id, _)| id)
            .collect();
        for worker in ended {
            self.end_idle(worker, "its job has ended", out);
        }
    }

    /// There may be work for the job of a driver elsewhere.
    pub(crate) fn open_job(&mut self, job: WorkerId) {
        self.open_jobs.insert(job);
    }

    /// There is no work for that job any more.
    pub(crate) fn close_job(&mut self, job: WorkerId) {
        self.open_jobs.swap_remove(&job);
        self.unable.forget_job(job);
    }

    /// The driver of such a job leaves: nothing more begins for it.
    pub(crate) fn on_remote_job_leaves(&mut self, driver: WorkerId) {
        if let Some(asker) = self.askers.get_mut(&driver) {
            asker.demands.clear();
        }
        self.drop_placements_of(driver);
    }

    /// The control service must learn of the end of this process.
    pub(crate) fn make_known(&mut self, process: WorkerId) {
        if let Some(client) = self.clients.get_mut(&process) {
            client.is_known_to_control = true;
        }
    }
}
