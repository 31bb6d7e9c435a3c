//! The pool of workers: which one a placement gets, when more are started, and when idle ones end.

use sooner_wire::limits::{WORKER_IDLE_NANOS, WORKERS_MAX, WORKERS_STARTING_MAX};
use sooner_wire::message::{EndIdle, Shutdown};
use sooner_wire::{ActorId, LeaseId, NodeId, WorkerId};

use crate::node::core::{Placement, send};
use crate::node::{NodeAction, NodeActions, NodeCore};
use crate::pace::Pace;
use crate::probes::{bug, mark};
use crate::table::Map;
use crate::time::Instant;

/// What a worker is for at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::node) enum WorkerState {
    Starting,
    Idle {
        since: Instant,
    },
    /// Executes tasks of a lease. The lease zero: the worker was asked to end.
    Leased(LeaseId),
    Actor(ActorId),
    /// The worker takes no more tasks, and ends when no process needs what it owns.
    Retired,
}

#[derive(Debug)]
pub(in crate::node) struct Worker {
    pub(in crate::node) state: WorkerState,
    /// The task waits for others, and has lent its CPUs.
    pub(in crate::node) blocked: bool,
    /// The worker owns values that others refer to, or has submitted work that has not ended: it does not end
    /// because it is idle.
    is_needed: bool,
    /// Whether its tasks have GPUs, as soon as it got one.
    pub(in crate::node) had_gpus: Option<bool>,
    /// The worker takes no more tasks: it ends with its lease, or later if it is needed.
    pub(in crate::node) retires: bool,
    /// Its process id; zero until it is connected.
    pub(in crate::node) pid: u32,
    /// The driver that the worker was forked for, for life.
    pub(in crate::node) job: WorkerId,
}

impl Worker {
    /// The worker runs a task that does not wait for others.
    pub(in crate::node) fn is_running(&self) -> bool {
        !self.blocked && matches!(self.state, WorkerState::Leased(lease) if lease != LeaseId(0))
    }
}

/// The workers of a node.
#[derive(Debug)]
pub(in crate::node) struct WorkerPool {
    /// Ids of the node's processes count up from this one.
    first: WorkerId,
    workers_made: u64,
    /// So many idle workers are kept.
    size: usize,
    workers: Map<WorkerId, Worker>,
    /// Per job: how soon the next worker may be started after one that ended before it was ready.
    paces: Map<WorkerId, Pace>,
}

impl WorkerPool {
    pub(in crate::node) fn new(first: u64, size: usize) -> Self {
        Self { first: WorkerId(first), workers_made: 0, size, workers: Map::default(), paces: Map::default() }
    }

    pub(in crate::node) fn node(&self) -> NodeId {
        self.first.node()
    }

    /// An id for a new process.
    pub(in crate::node) fn new_id(&mut self) -> WorkerId {
        self.workers_made += 1;
        WorkerId(self.first.0 + self.workers_made)
    }

    pub(in crate::node) fn get(&self, id: WorkerId) -> Option<&Worker> {
        self.workers.get(&id)
    }

    pub(in crate::node) fn state(&self, id: WorkerId) -> Option<WorkerState> {
        self.workers.get(&id).map(|worker| worker.state)
    }

    pub(in crate::node) fn iter(&self) -> impl DoubleEndedIterator<Item = (WorkerId, &Worker)> {
        self.workers.iter().map(|(id, worker)| (*id, worker))
    }

    /// The workers of a job.
    pub(in crate::node) fn of_job(&self, job: WorkerId) -> impl Iterator<Item = (WorkerId, &Worker)> {
        self.iter().filter(move |(_, worker)| worker.job == job)
    }

    /// Idle workers, the oldest first: since when, and whether others need what they own.
    pub(in crate::node) fn idle(&self) -> impl Iterator<Item = (WorkerId, Instant, bool)> {
        self.iter().filter_map(|(id, worker)| match worker.state {
            WorkerState::Idle { since } => Some((id, since, worker.is_needed)),
            _ => None,
        })
    }

    /// A worker of a job is started, under the id that this returns.
    fn start(&mut self, job: WorkerId) -> WorkerId {
        let id = self.new_id();
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
        id
    }

    /// When a worker of a job may be started again, if only later.
    pub(in crate::node) fn next_start(&self, job: WorkerId) -> Option<Instant> {
        self.paces.get(&job)?.next()
    }

    /// A process is connected. If it is a worker, that is idle from now on: its job.
    pub(in crate::node) fn started(&mut self, id: WorkerId, pid: u32, now: Instant) -> Option<WorkerId> {
        let worker = self.workers.get_mut(&id)?;
        worker.pid = pid;
        worker.state = WorkerState::Idle { since: now };
        if let Some(pace) = self.paces.get_mut(&worker.job) {
            pace.is_well();
        }
        Some(worker.job)
    }

    /// A worker has ended. One that was not ready delays the next start for its job.
    pub(in crate::node) fn remove(&mut self, id: WorkerId) -> Option<Worker> {
        let worker = self.workers.swap_remove(&id)?;
        if worker.state == WorkerState::Starting {
            self.paces.entry(worker.job).or_default().ended(false);
        }
        Some(worker)
    }

    /// A worker could not be forked: its job.
    fn start_failed(&mut self, id: WorkerId) -> Option<WorkerId> {
        let worker = self.workers.swap_remove(&id)?;
        self.paces.entry(worker.job).or_default().failed();
        Some(worker.job)
    }

    /// Nothing of a job is left.
    pub(in crate::node) fn forget_job(&mut self, job: WorkerId) {
        self.paces.swap_remove(&job);
    }

    /// A worker gets a lease or an actor.
    pub(in crate::node) fn give(&mut self, id: WorkerId, what: WorkerState) {
        self.workers[&id].state = what;
    }

    /// A worker is idle again.
    pub(in crate::node) fn take_back(&mut self, id: WorkerId, now: Instant) {
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.state = WorkerState::Idle { since: now };
            worker.blocked = false;
        }
    }

    pub(in crate::node) fn set_blocked(&mut self, id: WorkerId, blocked: bool) {
        self.workers[&id].blocked = blocked;
    }

    /// The idle worker that serves a placement of a job: the one that has become idle last.
    ///
    /// A process never works for itself: its task may wait for the very lease it would be. A process that has
    /// seen the GPUs of one task, or none, cannot be shown others: libraries look once.
    fn find_idle(&self, caller: WorkerId, job: WorkerId, has_gpus: bool) -> Option<WorkerId> {
        let serves = |id: WorkerId, worker: &Worker| {
            id != caller
                && worker.job == job
                && worker.had_gpus.is_none_or(|had| had == has_gpus)
                && matches!(worker.state, WorkerState::Idle { .. })
        };
        self.iter().rev().find(|(id, worker)| serves(*id, worker)).map(|(id, _)| id)
    }

    /// A worker is not idle any more: it may not be granted between the message that it is to end and its
    /// end.
    fn reserve_idle(&mut self, id: WorkerId) {
        self.workers[&id].state = WorkerState::Leased(LeaseId(0));
    }

    /// A worker reports whether others need what it owns. True if it is to be asked to end.
    fn needed(&mut self, id: WorkerId, is_needed: bool, now: Instant) -> bool {
        let Some(worker) = self.workers.get_mut(&id) else { return false };
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
            WorkerState::Retired => return !is_needed,
            _ => {}
        }
        false
    }

    /// The workers that are started for each job, and how many more may be started now.
    fn starting(&self) -> (Map<WorkerId, usize>, usize) {
        let mut starting: Map<WorkerId, usize> = Map::default();
        for worker in self.workers.values().filter(|worker| worker.state == WorkerState::Starting) {
            *starting.entry(worker.job).or_default() += 1;
        }
        let most = WORKERS_STARTING_MAX.saturating_sub(starting.values().sum());
        (starting, most)
    }

    /// Idle workers beyond the size of the pool that have been idle for long, the oldest first. A worker ends
    /// only if no process needs what it owns: values that others refer to go with their owner, and so do
    /// tasks that it has submitted.
    fn superfluous(&self, now: Instant) -> Vec<WorkerId> {
        let excess = self.idle().count().saturating_sub(self.size);
        let is_due = |(_, since, is_needed): &(WorkerId, Instant, bool)| {
            !is_needed && now.since(*since) >= WORKER_IDLE_NANOS
        };
        self.idle().filter(is_due).take(excess).map(|(worker, ..)| worker).collect()
    }

    /// When the next idle worker may end.
    pub(in crate::node) fn next_trim(&self) -> Option<Instant> {
        if self.idle().count() <= self.size {
            return None;
        }
        let may_end = self.idle().filter(|(.., is_needed)| !is_needed);
        may_end.map(|(_, since, _)| since.plus(WORKER_IDLE_NANOS)).min()
    }
}

impl NodeCore {
    /// Whether this id is that of a worker that is being started.
    #[must_use]
    pub fn expects(&self, worker: WorkerId) -> bool {
        self.pool.state(worker) == Some(WorkerState::Starting)
    }

    /// What a process is, for people.
    pub(in crate::node) fn describe_process(&self, id: WorkerId) -> Option<String> {
        let worker = self.pool.get(id)?;
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
        let Some(job) = self.pool.start_failed(worker) else { return };
        // The start is tried again and again: one warning is enough.
        if self.starving.note(job, error, self.now) {
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
            let caller = match placement {
                Placement::Lease { client, .. } => *client,
                Placement::Actor { actor, .. } => actor.owner,
            };
            let (Placement::Lease { grant, .. } | Placement::Actor { grant, .. }) = placement;
            let has_gpus = grant.has_gpus();
            let found = if stuck.contains(&job) { None } else { self.pool.find_idle(caller, job, has_gpus) };
            let Some(worker) = found else {
                // Other placements of the job may be served by workers of the other kind.
                if !has_gpus {
                    stuck.push(job);
                }
                at += 1;
                continue;
            };
            self.pool.workers[&worker].had_gpus = Some(has_gpus);
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
        // The workers wanted for each job.
        let mut wanted: Map<WorkerId, usize> = Map::default();
        for placement in &self.placements {
            *wanted.entry(self.job_of_placement(placement)).or_default() += 1;
        }
        let (starting, mut most) = self.pool.starting();
        for (job, wanted) in wanted {
            if !self.pool.paces.entry(job).or_default().may_begin(now) {
                continue;
            }
            let missing = wanted.saturating_sub(starting.get(&job).copied().unwrap_or(0)).min(most);
            for _ in 0..missing.min(WORKERS_MAX.saturating_sub(self.pool.workers.len())) {
                out.push(NodeAction::StartWorker(self.pool.start(job)));
            }
            most -= missing;
        }
    }

    /// Ends idle workers beyond the pool's size, and those of jobs that have ended.
    pub(in crate::node) fn trim_pool(&mut self, now: Instant, out: &mut NodeActions) {
        self.end_idle_of_ended_jobs(out);
        for worker in self.pool.superfluous(now) {
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
        if self.pool.needed(id, is_needed, now) {
            self.ask_to_end(id, out);
        }
    }

    /// A worker takes no more tasks. It tells the holder of its lease, which gives the lease back.
    pub(in crate::node) fn on_retired(&mut self, id: WorkerId, out: &mut NodeActions) {
        let Some(worker) = self.pool.workers.get_mut(&id) else { return };
        worker.retires = true;
        if matches!(worker.state, WorkerState::Idle { .. }) {
            // The lease was given back before this message came.
            self.ask_to_end(id, out);
        }
    }

    /// A worker whose lease is back serves no other process. It ends, at once unless a process needs what it
    /// owns.
    pub(in crate::node) fn retire(&mut self, id: WorkerId, out: &mut NodeActions) {
        if let Some(worker) = self.pool.workers.get_mut(&id) {
            worker.retires = true;
            worker.blocked = false;
            self.ask_to_end(id, out);
        }
    }

    pub(in crate::node) fn ask_to_end(&mut self, worker: WorkerId, out: &mut NodeActions) {
        self.pool.reserve_idle(worker);
        out.push(send(worker, EndIdle {}));
    }

    pub(in crate::node) fn end_idle(&mut self, worker: WorkerId, reason: &str, out: &mut NodeActions) {
        self.pool.reserve_idle(worker);
        out.push(send(worker, Shutdown { reason: reason.to_owned() }));
    }
}
