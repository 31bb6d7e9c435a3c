//! Which worker is stopped when memory runs out, and how much memory the tasks of a function take.
//!
//! When the kernel has no memory left, it kills the largest process: that may be the driver, or the node with
//! all the others. The node acts before that. It gets the measurements ([`Usage`], [`Measured`]) and chooses
//! one worker at a time ([`choose`]): first those that run nothing, then tasks that are retried, then tasks
//! that are not, actors last. Within a class the worker furthest over its share goes, and of those about as
//! far over it the newest: it loses least.
//!
//! A worker's share is what its task or actor has reserved with `memory=`; those without a reservation share
//! the rest equally.
//!
//! Where the kernel was faster, its victim ended as if the node had stopped it
//! ([`NodeCore::on_ended_by_kernel`]). The same goes for a worker that reached its own limit ([`limits`],
//! [`NodeCore::on_ended_at_limit`]).
//!
//! Invariants:
//! - M1: only a worker is chosen, never a driver or the node.
//! - M2: nobody is chosen while one of an earlier class could be whose end frees anything worth having.
//! - M3: one whose end would free next to nothing is not chosen: then others than workers hold the memory,
//!   and no end helps.
//!
//! This file never measures, and never kills: it asks for that.

use std::cmp::Reverse;
use std::fmt::Write as _;

use sooner_wire::limits::MEMORY_PEAKS_MAX;
use sooner_wire::message::MemoryEnd;
use sooner_wire::message::state::PeakRow;
use sooner_wire::resources::{UNIT, size};
use sooner_wire::{FunctionId, TaskId, WorkerId};

use crate::node::workers::pool::WorkerState;
use crate::node::{NodeAction, NodeActions, NodeCore};
use crate::table::Map;
use crate::time::Instant;

mod limits;

pub use limits::{Limited, limit};

/// Workers in the table of a report: the largest.
const REPORTED_MAX: usize = 10;
/// One part in this many of all memory is next to nothing.
const WORTH: u64 = 64;
/// Two workers no further apart than one part in this many of all memory are about as far over their shares.
const ALIKE: u64 = 20;

/// How full the memory is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    /// Memory in use (bytes).
    pub used: u64,
    /// Memory there is (bytes).
    pub total: u64,
    /// Memory in use from which on workers are stopped (bytes).
    pub threshold: u64,
    /// Whose memory it is, for people: "this machine".
    pub of: String,
}

/// What a worker reports of the task it began last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// The task.
    pub task: TaskId,
    /// Its function.
    pub function: FunctionId,
    /// Its name.
    pub name: String,
    /// The task is executed again if it is stopped.
    pub is_retriable: bool,
}

/// What was measured of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measured {
    /// The worker.
    pub worker: WorkerId,
    /// Its own memory, without what it shares with others (bytes).
    pub held: u64,
    /// The most it held since it was forked (bytes).
    pub peak: u64,
    /// The task it began last.
    pub running: Option<Running>,
}

/// Classes of workers in the order in which they go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// It runs nothing.
    Idle,
    /// Its task is executed again.
    Retriable,
    /// Its task fails.
    Task,
    /// An actor, whose state is lost.
    Actor,
}

/// A worker that could be stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// What would be lost with it.
    pub class: Class,
    /// Memory that it holds (bytes).
    pub held: u64,
    /// Memory that it has reserved (bytes); zero for none.
    pub reserved: u64,
    /// Since when it runs its task, and a number that orders tasks that began at the same time.
    pub since: (Instant, u64),
}

/// The candidate that goes, with `total` bytes of memory on the node; `None` if no end would help.
#[must_use]
pub fn choose(candidates: &[Candidate], total: u64) -> Option<usize> {
    let reserved: u64 = candidates.iter().fold(0, |sum, one| sum.saturating_add(one.reserved));
    let others = candidates.iter().filter(|one| one.reserved == 0).count() as u64;
    let equal = total.saturating_sub(reserved) / others.max(1);
    let worth = (total / WORTH).min(total / 2 / (candidates.len() as u64).max(1));
    let of_use = || candidates.iter().enumerate().filter(|(_, one)| one.held > worth);
    let class = of_use().map(|(_, one)| one.class).min()?;
    let over = |one: &Candidate| {
        let share = if one.reserved == 0 { equal } else { one.reserved };
        i128::from(one.held) - i128::from(share)
    };
    let of_class = || of_use().filter(|(_, one)| one.class == class);
    let furthest = of_class().map(|(_, one)| over(one)).max()?;
    let is_alike = |one: &Candidate| over(one) >= furthest - i128::from(total / ALIKE);
    of_class().filter(|(_, one)| is_alike(one)).max_by_key(|(_, one)| one.since).map(|(at, _)| at)
}

/// Who ended a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Node,
    Kernel,
    /// The kernel, because the worker took all that its own limit (bytes) allows.
    Limit(u64),
}

/// What was seen of a worker last.
#[derive(Debug, Clone, Copy)]
struct Seen {
    task: TaskId,
    since: Instant,
    held: u64,
    peak: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Watch {
    seen: Map<WorkerId, Seen>,
    peaks: Map<FunctionId, u64>,
    /// Workers that are being stopped, and why.
    ends: Map<WorkerId, Box<MemoryEnd>>,
    pub(in crate::node) limits: limits::Limits,
}

impl Watch {
    /// A worker was measured.
    fn see(&mut self, measured: &Measured, now: Instant) {
        let Some(running) = &measured.running else { return };
        let before = self.seen.get(&measured.worker).filter(|seen| seen.task == running.task).copied();
        let since = before.map_or(now, |seen| seen.since);
        // The peak of the process belongs to this task if it has risen since this task was measured before.
        let has_risen = before.is_some_and(|seen| measured.peak > seen.peak);
        let most = if has_risen { measured.peak.max(measured.held) } else { measured.held };
        let (held, peak) = (measured.held, measured.peak);
        self.seen.insert(measured.worker, Seen { task: running.task, since, held, peak });
        if running.function == FunctionId::default() {
            return;
        }
        if let Some(peak) = self.peaks.get_mut(&running.function) {
            *peak = most.max(*peak);
        } else if self.peaks.len() < MEMORY_PEAKS_MAX {
            self.peaks.insert(running.function, most);
        }
    }

    /// A process is dead. Gives why, if it was stopped.
    pub(in crate::node) fn forget(&mut self, worker: WorkerId) -> Option<Box<MemoryEnd>> {
        self.seen.swap_remove(&worker);
        self.limits.forget(worker);
        self.ends.swap_remove(&worker)
    }

    /// The most memory that workers were seen to hold, by function.
    pub(in crate::node) fn peaks(&self) -> Vec<PeakRow> {
        self.peaks.iter().map(|(function, bytes)| PeakRow { function: *function, bytes: *bytes }).collect()
    }
}

/// A worker that is stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stopped {
    /// The worker.
    pub worker: WorkerId,
    /// Why, in one line for people.
    pub reason: String,
    /// The state of memory, with a table.
    pub report: String,
}

impl NodeCore {
    /// Whether a worker runs a task or is an actor: only then memory is of interest.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        let is_busy = |state| matches!(state, WorkerState::Leased(_) | WorkerState::Actor(_));
        self.pool.iter().any(|(_, worker)| is_busy(worker.state))
    }

    /// Workers were measured.
    pub fn on_measured(&mut self, measured: &[Measured], now: Instant) {
        for one in measured {
            if self.pool.get(one.worker).is_some() {
                self.memory.see(one, now);
            }
        }
    }

    /// Memory is short: stops a worker, or none if that would not help. All workers have just been measured.
    pub fn stop_for_memory(
        &mut self,
        usage: &Usage,
        measured: &[Measured],
        out: &mut NodeActions,
    ) -> Option<Stopped> {
        let known: Vec<(&Measured, Candidate)> =
            measured.iter().filter_map(|one| Some((one, self.candidate(one)?))).collect();
        let candidates: Vec<Candidate> = known.iter().map(|(_, candidate)| *candidate).collect();
        let chosen = choose(&candidates, usage.total)?;
        let (worker, held) = (known[chosen].0.worker, known[chosen].0.held);
        let reason = format!(
            "it was stopped because memory ran out: it held {}, and {} of {} of {} were in use",
            size(held),
            size(usage.used),
            size(usage.total),
            usage.of
        );
        let report = self.report_memory(usage, &known, chosen, By::Node);
        out.push(NodeAction::KillWorker(worker));
        Some(self.record_memory_end(Stopped { worker, reason, report }, held, usage.total, By::Node))
    }

    /// The kernel ended a worker that ran `running`, before the node stopped one. `left`: how full the memory
    /// is now; `others`: what other workers hold. `None`: the node had stopped it, too, or does not know it.
    pub fn on_ended_by_kernel(
        &mut self,
        worker: WorkerId,
        running: Option<Running>,
        left: &Usage,
        others: &[Measured],
    ) -> Option<Stopped> {
        if self.memory.ends.contains_key(&worker) {
            return None;
        }
        // No memory was left before: so the worker held what is free now, unless another process was faster,
        // and no less than was seen.
        let task = running.as_ref().map(|running| running.task);
        let seen = self.memory.seen.get(&worker).filter(|seen| Some(seen.task) == task);
        let held = left.total.saturating_sub(left.used).max(seen.map_or(0, |seen| seen.held));
        let reason = format!(
            "the kernel ended it because memory ran out: it held about {} of {} of {}",
            size(held),
            size(left.total),
            left.of
        );
        let victim = Measured { worker, held, peak: held, running };
        let mut known = vec![(&victim, self.candidate(&victim)?)];
        let others = others.iter().filter(|other| other.worker != worker);
        known.extend(others.filter_map(|one| Some((one, self.candidate(one)?))));
        let full = Usage { used: left.total, ..left.clone() };
        let report = self.report_memory(&full, &known, 0, By::Kernel);
        Some(self.record_memory_end(Stopped { worker, reason, report }, held, left.total, By::Kernel))
    }

    /// The kernel ended a worker that ran `running`, because it took more than its limit (bytes).
    pub fn on_ended_at_limit(
        &mut self,
        worker: WorkerId,
        running: Option<Running>,
        limit: u64,
        usage: &Usage,
        others: &[Measured],
    ) -> Option<Stopped> {
        if self.memory.ends.contains_key(&worker) {
            return None;
        }
        let victim = Measured { worker, held: limit, peak: limit, running };
        let candidate = self.candidate(&victim)?;
        let reason = format!(
            "the kernel ended it because it took more memory than its limit of {}: it had reserved {} (memory=)",
            size(limit),
            size(candidate.reserved)
        );
        let mut known = vec![(&victim, candidate)];
        let others = others.iter().filter(|other| other.worker != worker);
        known.extend(others.filter_map(|one| Some((one, self.candidate(one)?))));
        let report = self.report_memory(usage, &known, 0, By::Limit(limit));
        Some(self.record_memory_end(Stopped { worker, reason, report }, limit, u64::MAX, By::Limit(limit)))
    }

    fn record_memory_end(&mut self, stopped: Stopped, held: u64, total: u64, by: By) -> Stopped {
        let reservable = match by {
            By::Limit(_) => self.reservable_beside(stopped.worker),
            By::Node | By::Kernel => self.resources.total().amount("memory") / UNIT,
        };
        let reservable = reservable.min(total);
        let by_kernel = (by == By::Kernel).then_some(true);
        let limit = if let By::Limit(limit) = by { Some(limit) } else { None };
        let end = MemoryEnd { report: stopped.report.clone(), held, reservable, by_kernel, limit };
        self.memory.ends.insert(stopped.worker, Box::new(end));
        stopped
    }

    fn candidate(&self, measured: &Measured) -> Option<Candidate> {
        let worker = self.pool.get(measured.worker)?;
        let is_retriable = measured.running.as_ref().is_none_or(|running| running.is_retriable);
        let (class, grant) = match worker.state {
            WorkerState::Starting => return None,
            WorkerState::Idle { .. } | WorkerState::Retired => (Class::Idle, None),
            WorkerState::Leased(lease) => {
                let class = if is_retriable { Class::Retriable } else { Class::Task };
                (class, self.leases.get(lease).map(|lease| &lease.grant))
            }
            WorkerState::Actor(actor) => (Class::Actor, self.local_actors.grant(actor)),
        };
        let since = match self.memory.seen.get(&measured.worker) {
            // An actor's calls come and go: an actor is as old as its process.
            Some(seen) if class != Class::Actor => (seen.since, seen.task.number),
            _ => (Instant(0), measured.worker.0),
        };
        let reserved = grant.map_or(0, |grant| grant.resources.amount("memory") / UNIT);
        Some(Candidate { class, held: measured.held, reserved, since })
    }

    fn report_memory(
        &self,
        usage: &Usage,
        known: &[(&Measured, Candidate)],
        chosen: usize,
        by: By,
    ) -> String {
        let (used, total, threshold) = (size(usage.used), size(usage.total), size(usage.threshold));
        let mut text = format!("{used} of {total} of {} were in use; ", usage.of);
        let _ = match by {
            By::Node => writeln!(text, "workers are stopped from {threshold} on (memory_usage_threshold)."),
            By::Kernel => {
                let rest = "on (memory_usage_threshold), but the kernel was faster.";
                writeln!(text, "workers are stopped from {threshold} {rest}")
            }
            By::Limit(limit) => {
                let limit = size(limit);
                writeln!(
                    text,
                    "the worker had a limit of its own: {limit} for what it reserved (worker_memory_limits)."
                )
            }
        };
        let _ = write!(text, "  {:>16} {:>9} {:>12} {:>12}  runs", "worker", "pid", "holds", "memory=");
        let mut order: Vec<usize> = (0..known.len()).collect();
        order.sort_by_key(|at| (*at != chosen, Reverse(known[*at].1.held)));
        for at in order.iter().take(REPORTED_MAX) {
            let (measured, candidate) = &known[*at];
            let reserved = if candidate.reserved == 0 { "-".to_owned() } else { size(candidate.reserved) };
            let _ = write!(
                text,
                "\n{} {:016x} {:>9} {:>12} {reserved:>12}  {}",
                if *at == chosen { "*" } else { " " },
                measured.worker.0,
                self.pool.get(measured.worker).map_or(0, |worker| worker.pid),
                size(measured.held),
                self.what_runs(measured, candidate.class)
            );
        }
        let rest = order.iter().skip(REPORTED_MAX);
        let (count, held) = rest.fold((0, 0u64), |(n, sum), at| (n + 1, sum + known[*at].1.held));
        if count > 0 {
            let _ = write!(text, "\n  and {count} more that hold {} together", size(held));
        }
        text + "\n* was stopped"
    }

    fn what_runs(&self, measured: &Measured, class: Class) -> String {
        let worker = self.pool.get(measured.worker);
        // A name is whatever its task was called: the table stays a table.
        let plain = |running: &Running| running.name.replace(char::is_control, " ");
        let name = measured.running.as_ref().map(plain);
        match (class, name, worker.map(|worker| worker.state)) {
            (Class::Actor, _, Some(WorkerState::Actor(actor))) => {
                self.local_actors.title(actor).unwrap_or_else(|| "an actor".to_owned())
            }
            (Class::Idle, _, _) | (_, None, _) => "nothing".to_owned(),
            (Class::Task, Some(name), _) => format!("task {name}, which is not retried"),
            (_, Some(name), _) => format!("task {name}"),
        }
    }
}

#[cfg(test)]
mod tests;
