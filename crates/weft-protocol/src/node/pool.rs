//! The pool of workers: which one a placement gets, when more are started, and when idle ones end.

use weft_wire::WorkerId;
use weft_wire::limits::{WORKER_IDLE_NANOS, WORKERS_MAX, WORKERS_STARTING_MAX};
use weft_wire::message::Shutdown;

use super::{LeaseId, NodeAction, NodeActions, NodeCore, Placement, Worker, WorkerState, send};
use crate::probes::bug;
use crate::table::Map;
use crate::time::Instant;

impl NodeCore {
    /// Whether this id is that of a worker that is being started.
    #[must_use]
    pub fn expects(&self, worker: WorkerId) -> bool {
        self.workers.get(&worker).is_some_and(|w| w.state == WorkerState::Starting)
    }

    /// A worker could not be forked.
    pub fn on_start_failed(&mut self, worker: WorkerId, error: &str, out: &mut NodeActions) {
        if bug!(StartFailureForgotten) {
            return;
        }
        if let Some(worker) = self.workers.swap_remove(&worker) {
            self.paces.entry(worker.job).or_default().ended(false);
        }
        out.push(NodeAction::Warn(format!("a worker process could not be started: {error}")));
    }

    /// Gives workers to placements until an actor has got one: true then. Its callers hear of that before anybody hears of
    /// what is assigned next.
    pub(crate) fn assign_workers(&mut self, out: &mut NodeActions) -> bool {
        if self.is_draining {
            return false;
        }
        // Only a job's own workers serve it, and one job that waits for them holds up no other.
        let mut stuck: Vec<WorkerId> = Vec::new();
        let mut at = 0;
        while let Some(placement) = self.placements.get(at) {
            let job = self.job_of_placement(placement);
            // A process never works for itself: its task may wait for the very lease it would be.
            let caller = match placement {
                Placement::Lease { client, .. } => *client,
                Placement::Actor { actor, .. } => actor.owner,
            };
            let serves = |id: WorkerId, worker: &Worker| {
                id != caller && worker.job == job && matches!(worker.state, WorkerState::Idle { .. })
            };
            let mut idle = self.workers.iter().rev().filter(|(id, worker)| serves(**id, worker));
            let found = if stuck.contains(&job) { None } else { idle.next().map(|(id, _)| *id) };
            let Some(worker) = found else {
                stuck.push(job);
                at += 1;
                continue;
            };
            match self.placements.remove(at).expect("looked at above") {
                Placement::Lease { client, shape, grant } => {
                    self.grant_lease(client, shape, grant, worker, out);
                }
                Placement::Actor { actor, grant } => {
                    self.start_actor(actor, grant, worker, out);
                    return true;
                }
            }
        }
        false
    }

    pub(super) fn start_workers(&mut self, now: Instant, out: &mut NodeActions) {
        if self.placements.is_empty() {
            return;
        }
        // What is wanted of each job, and what is being started for it.
        let mut wanted: Map<WorkerId, usize> = Map::default();
        for placement in &self.placements {
            *wanted.entry(self.job_of_placement(placement)).or_default() += 1;
        }
        let mut starting: Map<WorkerId, usize> = Map::default();
        for worker in self.workers.values().filter(|w| w.state == WorkerState::Starting) {
            *starting.entry(worker.job).or_default() += 1;
        }
        let mut most = WORKERS_STARTING_MAX.saturating_sub(starting.values().sum());
        for (job, wanted) in wanted {
            if !self.paces.entry(job).or_default().may_begin(now) {
                continue;
            }
            let missing = wanted.saturating_sub(starting.get(&job).copied().unwrap_or(0)).min(most);
            for _ in 0..missing.min(WORKERS_MAX.saturating_sub(self.workers.len())) {
                let id = self.new_worker_id();
                let worker = Worker { state: WorkerState::Starting, blocked: false, pid: 0, job };
                self.workers.insert(id, worker);
                out.push(NodeAction::StartWorker(id));
            }
            most -= missing;
        }
    }

    /// Ends idle workers beyond the pool's size, their oldest first, and those of jobs that have ended.
    pub(super) fn trim_pool(&mut self, now: Instant, out: &mut NodeActions) {
        self.end_idle_of_ended_jobs(out);
        let idle: Vec<(WorkerId, Instant)> = self
            .workers
            .iter()
            .filter_map(|(id, worker)| match worker.state {
                WorkerState::Idle { since } => Some((*id, since)),
                _ => None,
            })
            .collect();
        let excess = idle.len().saturating_sub(self.pool_size);
        for (worker, _) in
            idle.into_iter().filter(|(_, since)| now.since(*since) >= WORKER_IDLE_NANOS).take(excess)
        {
            self.end_idle(worker, "idle", out);
        }
    }

    pub(super) fn end_idle(&mut self, worker: WorkerId, reason: &str, out: &mut NodeActions) {
        // Not idle any more: it may not be granted between this message and its end.
        self.workers[&worker].state = WorkerState::Leased(LeaseId(0));
        out.push(send(worker, Shutdown { reason: reason.to_owned() }));
    }

    pub(super) fn next_trim(&self) -> Option<Instant> {
        let idle: Vec<Instant> = self
            .workers
            .values()
            .filter_map(|worker| match worker.state {
                WorkerState::Idle { since } => Some(since),
                _ => None,
            })
            .collect();
        if idle.len() <= self.pool_size {
            return None;
        }
        idle.iter().min().map(|since| since.plus(WORKER_IDLE_NANOS))
    }
}
