//! The pool of workers: which one a placement gets, when more are started, and when idle ones end.

use sooner_wire::WorkerId;
use sooner_wire::limits::{WORKER_IDLE_NANOS, WORKERS_MAX, WORKERS_STARTING_MAX};
use sooner_wire::message::{EndIdle, Shutdown};

use crate::node::core::{Placement, Worker, WorkerState, send};
use crate::node::{NodeAction, NodeActions, NodeCore};
use crate::probes::{bug, mark};
use crate::table::Map;
use crate::time::Instant;
use sooner_wire::LeaseId;

impl NodeCore {
    /// Whether this id is that of a worker that is being started.
    #[must_use]
    pub fn expects(&self, worker: WorkerId) -> bool {
        self.workers.get(&worker).is_some_and(|w| w.state == WorkerState::Starting)
    }

    /// What a process is, for people.
    pub(in crate::node) fn describe_process(&self, id: WorkerId) -> Option<String> {
        let worker = self.workers.get(&id)?;
        let title = match worker.state {
            WorkerState::Actor(actor) => self.local_actors.title(actor)?,
            _ => "worker".to_owned(),
        };
        Some(format!("{title} (pid {})", worker.pid))
    }

    /// A worker could not be forked.
    pub fn on_start_failed(&mut self, worker: WorkerId, error: &str, out: &mut NodeActions) {
        if bug!(StartFailureForgotten) {
            return;
        }
        let Some(worker) = self.workers.swap_remove(&worker) else { return };
        self.paces.entry(worker.job).or_default().failed();
        // The start is tried again and again: one warning is enough.
        if self.starving.note(worker.job, error, self.now) {
            out.push(NodeAction::Warn(format!("a worker process could not be started: {error}")));
        }
    }

    /// Gives workers to placements until an actor has got one: true then. The actor's callers learn of that
    /// before any process learns of what is assigned next.
    pub(crate) fn assign_workers(&mut self, out: &mut NodeActions) -> bool {
        if self.draining.has_begun() {
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
            // A process that has seen the GPUs of one task, or none, cannot be shown others: libraries look
            // once.
            let (Placement::Lease { grant, .. } | Placement::Actor { grant, .. }) = placement;
            let has_gpus = grant.has_gpus();
            let serves = |id: WorkerId, worker: &Worker| {
                id != caller
                    && worker.job == job
                    && worker.had_gpus.is_none_or(|had| had == has_gpus)
                    && matches!(worker.state, WorkerState::Idle { .. })
            };
            let mut idle = self.workers.iter().rev().filter(|(id, worker)| serves(**id, worker));
            let found = if stuck.contains(&job) { None } else { idle.next().map(|(id, _)| *id) };
            let Some(worker) = found else {
                // Other placements of the job may be served by workers of the other kind.
                if !has_gpus {
                    stuck.push(job);
                }
                at += 1;
                continue;
            };
            self.workers[&worker].had_gpus = Some(has_gpus);
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

    pub(in crate::node) fn start_workers(&mut self, now: Instant, out: &mut NodeActions) {
        if self.placements.is_empty() {
            return;
        }
        // The workers wanted for each job, and those being started for it.
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
                let worker = Worker {
                    state: WorkerState::Starting,
                    blocked: false,
                    is_needed: false,
                    had_gpus: None,
                    retires: false,
                    pid: 0,
                    job,
                };
                self.workers.insert(id, worker);
                out.push(NodeAction::StartWorker(id));
            }
            most -= missing;
        }
    }

    /// Ends idle workers beyond the pool's size, the oldest first, and those of jobs that have ended. The
    /// former end only if no process needs what they own: values that others refer to go with their owner,
    /// and so do tasks that it has submitted.
    pub(in crate::node) fn trim_pool(&mut self, now: Instant, out: &mut NodeActions) {
        self.end_idle_of_ended_jobs(out);
        let excess = self.idle().count().saturating_sub(self.pool_size);
        let is_due = |(_, since, is_needed): &(WorkerId, Instant, bool)| {
            !is_needed && now.since(*since) >= WORKER_IDLE_NANOS
        };
        let due: Vec<WorkerId> = self.idle().filter(is_due).take(excess).map(|(worker, ..)| worker).collect();
        for worker in due {
            self.ask_to_end(worker, out);
        }
    }

    /// A worker that was to end owns what others need: it is idle as before, and asked again only when it has
    /// reported that they need nothing of it any more.
    pub(in crate::node) fn on_needed(
        &mut self,
        id: WorkerId,
        is_needed: bool,
        now: Instant,
        out: &mut NodeActions,
    ) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        worker.is_needed = is_needed;
        match worker.state {
            WorkerState::Leased(LeaseId(0)) if is_needed && worker.retires => {
                mark!("a retired worker did not end because others need what it owns");
                worker.state = WorkerState::Retired;
            }
            WorkerState::Leased(LeaseId(0)) if is_needed => {
                mark!("an idle worker did not end because others need what it owns");
                worker.state = WorkerState::Idle { since: now };
            }
            WorkerState::Retired if !is_needed => self.ask_to_end(id, out),
            _ => {}
        }
    }

    /// A worker takes no more tasks. It tells the holder of its lease, which gives the lease back.
    pub(in crate::node) fn on_retired(&mut self, id: WorkerId, out: &mut NodeActions) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        worker.retires = true;
        if matches!(worker.state, WorkerState::Idle { .. }) {
            // The lease was given back before this message came.
            self.ask_to_end(id, out);
        }
    }

    /// A worker whose lease is back serves no other process. It ends, at once unless a process needs what it
    /// owns.
    pub(in crate::node) fn retire(&mut self, id: WorkerId, out: &mut NodeActions) {
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.retires = true;
            worker.blocked = false;
            self.ask_to_end(id, out);
        }
    }

    pub(in crate::node) fn ask_to_end(&mut self, worker: WorkerId, out: &mut NodeActions) {
        self.reserve_idle(worker);
        out.push(send(worker, EndIdle {}));
    }

    /// A worker is not idle any more: it may not be granted between the message that it is to end and its
    /// end.
    fn reserve_idle(&mut self, worker: WorkerId) {
        self.workers[&worker].state = WorkerState::Leased(LeaseId(0));
    }

    pub(in crate::node) fn end_idle(&mut self, worker: WorkerId, reason: &str, out: &mut NodeActions) {
        self.reserve_idle(worker);
        out.push(send(worker, Shutdown { reason: reason.to_owned() }));
    }

    pub(in crate::node) fn next_trim(&self) -> Option<Instant> {
        if self.idle().count() <= self.pool_size {
            return None;
        }
        let may_end = self.idle().filter(|(.., is_needed)| !is_needed);
        may_end.map(|(_, since, _)| since.plus(WORKER_IDLE_NANOS)).min()
    }

    /// Idle workers, the oldest first: since when, and whether others need what they own.
    pub(in crate::node) fn idle(&self) -> impl Iterator<Item = (WorkerId, Instant, bool)> {
        self.workers.iter().filter_map(|(id, worker)| match worker.state {
            WorkerState::Idle { since } => Some((*id, since, worker.is_needed)),
            _ => None,
        })
    }
}
