//! Workers that cannot be started because something of the machine is used up: descriptors, processes,
//! memory, disk.
//!
//! Others may give it back, so work that waits for a worker goes on waiting, and the start is tried again. In
//! the meantime idle workers that cannot serve the waiting work end, and leases of other shapes are asked
//! back. When nothing has been given back for long, the waiting work fails with the last error, or goes to
//! another node, instead of waiting for ever.
//!
//! Invariants:
//! - Nothing fails while a task of its job runs here, or within [`START_PATIENCE_NANOS`] after a worker came
//!   or went.
//! - Nothing fails without a start that failed just before: what comes later is tried first.

use std::collections::VecDeque;

use sooner_wire::limits::START_PATIENCE_NANOS;
use sooner_wire::{LeaseId, NodeId, ShapeId, WorkerId};

use super::remote_leases::refuse_for_now;
use crate::node::core::Placement;
use crate::node::workers::pool::WorkerState;
use crate::node::{NodeAction, NodeActions, NodeCore};
use crate::probes::mark;
use crate::table::{Map, Set};
use crate::time::Instant;
use crate::uplink::ToControl;

/// Work that begins to wait this soon after the last that waited meets the same lack (nanoseconds).
const SPELL_GAP_NANOS: u64 = 10_000_000_000;

/// A time in which no worker of a job could be started.
#[derive(Debug, Default)]
struct Spell {
    /// When something was last given back; dated when the spell is looked at.
    since: Option<Instant>,
    /// Since when no work of the job waits for a worker.
    idle_since: Option<Instant>,
    /// A start has failed since the spell was looked at.
    has_news: bool,
    why: String,
}

impl Spell {
    fn is_over(&self, now: Instant) -> bool {
        self.idle_since.is_some_and(|since| now.since(since) >= SPELL_GAP_NANOS)
    }

    /// Whether the work has waited long enough. `has_progressed`: something is being given back.
    fn is_due(&mut self, now: Instant, has_progressed: bool) -> bool {
        let since = self.since.filter(|_| !has_progressed).unwrap_or(now);
        self.since = Some(since);
        now.since(since) >= START_PATIENCE_NANOS
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(in crate::node) struct Starving {
    spells: Map<WorkerId, Spell>,
    /// A worker came or went.
    has_progressed: bool,
    /// Actors that are to be given back to the control service.
    refused: Vec<ToControl>,
    /// When the user was last told.
    said: Option<Instant>,
}

impl Starving {
    /// Whether a start has failed that was not looked at.
    pub(in crate::node) fn has_news(&self) -> bool {
        self.spells.values().any(|spell| spell.has_news)
    }

    /// A worker of a job could not be started. True if the user is to be told: not again and again.
    pub(in crate::node) fn note(&mut self, job: WorkerId, why: &str, now: Instant) -> bool {
        let is_old = self.said.is_some_and(|said| now.since(said) < SPELL_GAP_NANOS);
        let is_new = !is_old && self.spells.get(&job).is_none_or(|spell| spell.idle_since.is_some());
        if is_new {
            self.said = Some(now);
        }
        let spell = self.spells.entry(job).or_default();
        spell.has_news = true;
        why.clone_into(&mut spell.why);
        is_new
    }

    /// A worker of a job is there.
    pub(in crate::node) fn on_started(&mut self, job: WorkerId) {
        self.spells.swap_remove(&job);
        self.has_progressed = true;
    }

    /// A worker has ended: its resources are free.
    pub(in crate::node) fn on_ended(&mut self) {
        self.has_progressed = true;
    }

    pub(in crate::node) fn forget_job(&mut self, job: WorkerId) {
        self.spells.swap_remove(&job);
    }
}

impl NodeCore {
    /// Makes room for workers that could not be started, and refuses work that has waited for them in vain.
    pub(in crate::node) fn attend_starving(&mut self, now: Instant, out: &mut NodeActions) {
        let has_progressed = std::mem::take(&mut self.starving.has_progressed);
        if self.starving.spells.is_empty() {
            return;
        }
        let waiting: Set<WorkerId> = self.placements.iter().map(|one| self.job_of_placement(one)).collect();
        let mut due = Vec::new();
        let pool = &self.pool;
        self.starving.spells.retain(|job, spell| {
            if spell.is_over(now) {
                // A start that failed just now begins another spell.
                *spell = Spell {
                    has_news: spell.has_news,
                    why: std::mem::take(&mut spell.why),
                    ..Spell::default()
                };
            }
            let has_news = std::mem::take(&mut spell.has_news);
            if !waiting.contains(job) {
                spell.idle_since.get_or_insert(now);
                return !spell.is_over(now);
            }
            spell.idle_since = None;
            let of_job = || pool.of_job(*job).map(|(_, worker)| worker);
            let runs = of_job().any(|worker| worker.is_running());
            let is_starting = of_job().any(|worker| worker.state == WorkerState::Starting);
            if spell.is_due(now, has_progressed || runs) && has_news && !is_starting {
                due.push((*job, spell.why.clone()));
            }
            true
        });
        for (job, why) in due {
            let seconds = START_PATIENCE_NANOS / 1_000_000_000;
            let why = format!("no worker process could be started for {seconds} s: {why}");
            self.refuse_placements(job, &why, out);
        }
        self.end_superfluous(&waiting, now, out);
        self.reclaim_workers(out);
    }

    /// Work that waits for a worker of a job is met elsewhere, or fails.
    fn refuse_placements(&mut self, job: WorkerId, why: &str, out: &mut NodeActions) {
        mark!("what waited for workers that could not be started was refused");
        let here = self.id();
        let mut kept = VecDeque::new();
        for placement in std::mem::take(&mut self.placements) {
            if self.job_of_placement(&placement) != job {
                kept.push_back(placement);
                continue;
            }
            match placement {
                Placement::Lease { client, shape, grant } => {
                    self.resources.release(&grant);
                    self.refuse_lease(here, (client, shape), why, out);
                }
                Placement::Actor { actor, grant } => {
                    self.resources.release(&grant);
                    let create = self.local_actors.take_unbegun(actor);
                    let refused = create.map(|(takeover, create)| ToControl::PlaceRefused {
                        actor,
                        takeover,
                        reason: why.to_owned(),
                        create: Some(create),
                        no_workers: false,
                        for_now: true,
                    });
                    self.starving.refused.extend(refused);
                }
            }
        }
        self.placements = kept;
        self.unable.is_unsettled = true;
    }

    /// The control service learns of the refused actors before anything else is decided.
    pub(crate) fn send_refused(&mut self, out: &mut NodeActions) {
        out.extend(self.starving.refused.drain(..).map(NodeAction::Control));
    }

    fn refuse_lease(
        &mut self,
        here: NodeId,
        (client, shape): (WorkerId, ShapeId),
        why: &str,
        out: &mut NodeActions,
    ) {
        let is_remote_job = self.is_elsewhere(client);
        let Some(asker) = self.askers.get_mut(&client) else { return };
        if is_remote_job {
            if asker.demands.swap_remove(&shape).is_some() {
                refuse_for_now(here, (client, shape), why, out);
            }
        } else if let Some(demand) = asker.demands.get_mut(&shape) {
            demand.count += 1;
            demand.refused(here, why, self.now);
        }
    }

    /// Workers that are idle although work waits for a worker are of another job or another kind: one more of
    /// them ends.
    fn end_superfluous(&mut self, waiting: &Set<WorkerId>, now: Instant, out: &mut NodeActions) {
        if !self.starving.spells.keys().any(|job| waiting.contains(job)) {
            return;
        }
        if self.pool.iter().any(|(_, worker)| worker.state == WorkerState::Leased(LeaseId(0))) {
            return;
        }
        // Work that waits for this very worker was served before. A worker that came just now may be awaited
        // elsewhere.
        let idle = self.pool.idle().find(|(_, since, is_needed)| !is_needed && *since < now);
        if let Some((worker, ..)) = idle {
            self.ask_to_end(worker, out);
        }
    }

    /// No worker can be started for the waiting work: a process that has one for other work gives it back as
    /// soon as its task ends.
    fn reclaim_workers(&mut self, out: &mut NodeActions) {
        let is_starved =
            |placement: &&Placement| self.starving.spells.contains_key(&self.job_of_placement(placement));
        let Some(first) = self.placements.iter().find(is_starved) else { return };
        let job = self.job_of_placement(first);
        let (wanted_by, grant) = match first {
            Placement::Lease { client, shape, grant } => (Some((*client, *shape)), grant),
            Placement::Actor { grant, .. } => (None, grant),
        };
        let has_gpus = grant.has_gpus();
        let could_serve = |lease: &super::leases::LeaseState| {
            let worker = self.pool.get(lease.worker);
            Some((lease.client, lease.shape)) != wanted_by
                && worker.is_some_and(|worker| worker.job == job && worker.had_gpus == Some(has_gpus))
        };
        let found = self.leases.iter().find(|(_, lease)| could_serve(lease));
        if let Some((holder, lease)) = found.map(|(id, lease)| (lease.client, id)) {
            self.ask_back(holder, Some(lease), out);
        }
    }
}
