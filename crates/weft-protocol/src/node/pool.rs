//! The pool of workers: which one a placement gets, when more are started, and when idle ones end.

use weft_wire::WorkerId;
use weft_wire::limits::{WORKER_IDLE_NANOS, WORKERS_MAX, WORKERS_STARTING_MAX};
use weft_wire::message::Shutdown;

use super::{LeaseId, NodeAction, NodeActions, NodeCore, Placement, Worker, WorkerState, send};
use crate::probes::bug;
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
        self.workers.swap_remove(&worker);
        self.pace.ended(false);
        out.push(NodeAction::Warn(format!("a worker process could not be started: {error}")));
    }

    /// Gives workers to placements until an actor has got one: true then. Its callers hear of that before anybody hears of
    /// what is assigned next.
    pub(crate) fn assign_workers(&mut self, out: &mut NodeActions) -> bool {
        while let Some(placement) = self.placements.pop_front() {
            // A process never works for itself: its task may wait for the very lease it would be.
            let caller = match &placement {
                Placement::Lease { client, .. } => *client,
                Placement::Actor { actor, .. } => actor.owner,
            };
            let idle = self
                .workers
                .iter()
                .rev()
                .find(|(id, worker)| **id != caller && matches!(worker.state, WorkerState::Idle { .. }))
                .map(|(id, _)| *id);
            let Some(worker) = idle else {
                self.placements.push_front(placement);
                break;
            };
            match placement {
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
        let mut starting = self.workers.values().filter(|w| w.state == WorkerState::Starting).count();
        let wanted = self.placements.len().min(WORKERS_STARTING_MAX);
        if wanted == 0 || !self.pace.may_begin(now) {
            return;
        }
        while starting < wanted && self.workers.len() < WORKERS_MAX {
            let id = self.new_worker_id();
            let worker = Worker { state: WorkerState::Starting, blocked: false, pid: 0 };
            self.workers.insert(id, worker);
            out.push(NodeAction::StartWorker(id));
            starting += 1;
        }
    }

    /// Ends idle workers beyond the pool's size. Their oldest go first.
    pub(super) fn trim_pool(&mut self, now: Instant, out: &mut NodeActions) {
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
            // Not idle any more: it may not be granted between this message and its end.
            self.workers[&worker].state = WorkerState::Leased(LeaseId(0));
            out.push(send(worker, Shutdown { reason: "idle".to_owned() }));
        }
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
