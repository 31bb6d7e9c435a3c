//! Ends: of one process, of a job whose driver leaves in order, of the node.
//!
//! A driver that leaves in order reports that. Its workers are told, as all are when a node ends: actors run
//! their clean-up hooks, for half a second at most. Only then has the driver ended for all others.

use std::collections::{BTreeMap, HashMap, VecDeque};

use rustix::process::{Pid, Signal};
use sooner_protocol::node::workers::memory::Running;
use sooner_protocol::time::Instant;
use sooner_wire::limits::ENDED_MAX;
use sooner_wire::message::state::EndedRow;
use sooner_wire::message::{Exited, Message, Shutdown};
use sooner_wire::{Started, WorkerId};

use crate::node::cluster::Cluster;
use crate::poller::Events;

use super::{Connection, LISTENER, NodeActions, Role, Service, now};

/// How long the end of a worker waits for the template to say why (nanoseconds).
const REASON_NANOS: u64 = 200_000_000;
/// How long workers get to leave at the end (nanoseconds), from the moment at which the last one did.
const LEAVE_NANOS: u64 = 500_000_000;
/// How long all of them get (nanoseconds). Hundreds leave one after the other on a busy machine.
const LEAVE_ALL_NANOS: u64 = 5_000_000_000;

/// Workers that were told to leave, and leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Leave {
    begun: Instant,
    /// When the last of them left.
    last: Instant,
}

impl Leave {
    fn begin(now: Instant) -> Self {
        Self { begun: now, last: now }
    }

    fn one_left(&mut self, now: Instant) {
        self.last = now;
    }

    /// When those that are left are not waited for any more.
    fn deadline(self) -> Instant {
        self.last.plus(LEAVE_NANOS).min(self.begun.plus(LEAVE_ALL_NANOS))
    }
}

/// What is known of the ends of processes.
#[derive(Default)]
pub(super) struct Ends {
    /// Why workers ended, as reported by the template or by themselves.
    pub(super) reasons: HashMap<WorkerId, String>,
    /// Ends that were noticed, and are not announced yet.
    pub(super) unannounced: BTreeMap<WorkerId, Ended>,
    /// The latest ends, for inspection.
    rows: VecDeque<EndedRow>,
}

impl Ends {
    /// A process's connection has ended.
    pub(super) fn add_row(&mut self, worker: WorkerId, pid: u32, now: Instant) {
        if self.rows.len() == ENDED_MAX {
            self.rows.pop_front();
        }
        self.rows.push_back(EndedRow { worker, pid, reason: String::new(), at: now.0 });
    }

    /// Records why the process ended.
    pub(super) fn explain_row(&mut self, worker: WorkerId, reason: &str) {
        if let Some(row) = self.rows.iter_mut().rev().find(|row| row.worker == worker) {
            reason.clone_into(&mut row.reason);
        }
    }

    /// A worker has ended, perhaps one of those that a driver's end waits for.
    fn worker_left(&mut self, now: Instant) {
        for ended in self.unannounced.values_mut() {
            if let Awaits::Workers(leave) = &mut ended.awaits {
                leave.one_left(now);
            }
        }
    }

    /// The latest ends, the oldest of them first.
    pub(super) fn rows(&self) -> Vec<EndedRow> {
        self.rows.iter().cloned().collect()
    }
}

/// The end of a process that was noticed, and is not announced yet.
pub(super) struct Ended {
    at: Instant,
    last_started: Option<Started>,
    /// What the process ran.
    running: Option<Running>,
    awaits: Awaits,
}

/// What announcing an end waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Awaits {
    Nothing,
    /// The template may still say why.
    Reason,
    /// The workers of a driver that left in order are leaving, too.
    Workers(Leave),
}

impl Ended {
    /// When the end is announced at the latest.
    pub(super) fn deadline(&self) -> Instant {
        match self.awaits {
            Awaits::Nothing => self.at,
            Awaits::Reason => self.at.plus(REASON_NANOS),
            Awaits::Workers(leave) => leave.deadline(),
        }
    }
}

impl Service {
    pub(super) fn end_connection(&mut self, token: u64, out: &mut NodeActions) {
        let Some(connection) = self.connections.remove(&token) else { return };
        self.unwatch_process(connection.process);
        let Some(worker) = connection.worker else {
            self.forget_reader(token);
            return self.rounds.forget_tool(token);
        };
        self.tokens.remove(&worker);
        self.forget_handed(worker);
        if connection.is_greeted {
            self.record_end(worker, connection.pid);
        }
        let cell = connection.is_greeted.then_some(connection.cell);
        if let Some(cell) = cell {
            self.cells.give_back(cell);
        }
        let last_started = cell.and_then(|cell| self.mapping.last_started(cell));
        let is_worker = connection.role == Role::Worker;
        if is_worker {
            self.ends.worker_left(now());
        }
        if is_worker && connection.pid != 0 && !self.ends.reasons.contains_key(&worker) {
            // What the worker started and left running is killed with it; the template does that where it was
            // faster.
            signal_group(connection.pid);
        }
        match self.ends.reasons.remove(&worker) {
            Some(reason) => self.gone(worker, &reason, last_started, out),
            None => {
                let awaits = if is_worker { Awaits::Reason } else { self.awaits_workers(worker) };
                let running = cell.and_then(|cell| self.running(cell));
                self.ends.unannounced.insert(worker, Ended { at: now(), last_started, running, awaits });
            }
        }
    }

    /// The template says how a worker ended: before its connection is seen to end, or after.
    pub(super) fn on_exited(&mut self, exited: Exited) {
        let worker = exited.worker;
        let connection = self.tokens.get(&worker).and_then(|token| self.connections.get(token));
        let running = match (connection, self.ends.unannounced.get(&worker)) {
            (Some(connection), _) => self.running(connection.cell),
            (None, Some(ended)) => ended.running.clone(),
            (None, None) => return,
        };
        let by_kernel = exited.killed.and_then(|_| self.ended_by_kernel(worker, running));
        // The worker's own reason, or the one for which it was ended, says more.
        self.ends.reasons.entry(worker).or_insert_with(|| by_kernel.unwrap_or(exited.reason));
    }

    pub(super) fn end_silent_processes(&mut self, out: &mut NodeActions) {
        if self.ends.unannounced.is_empty() {
            return;
        }
        let time = now();
        let ended = std::mem::take(&mut self.ends.unannounced);
        for (worker, ended) in ended {
            let reason = self.ends.reasons.remove(&worker);
            let is_awaited = match ended.awaits {
                Awaits::Nothing => false,
                Awaits::Reason => reason.is_none(),
                Awaits::Workers(_) => self.has_leaving(worker),
            };
            if is_awaited && time < ended.deadline() {
                self.ends.unannounced.insert(worker, ended);
                continue;
            }
            self.kill_leaving(worker);
            let reason = reason.unwrap_or_else(|| "ended".to_owned());
            self.gone(worker, &reason, ended.last_started, out);
        }
    }

    /// A driver leaves in order: its workers may, too.
    pub(super) fn on_leaving(&mut self, token: u64, driver: WorkerId, out: &mut NodeActions) {
        let connection = &self.connections[&token];
        // A node that ends with its host has nobody to tell; unless other nodes work for it.
        let is_alone = connection.is_host && !self.cluster.as_ref().is_some_and(Cluster::is_of_program);
        if connection.role != Role::Driver || is_alone {
            return;
        }
        self.core.on_leaving(driver, out);
        self.notify_workers_to_leave(driver);
    }

    /// Tells the workers of a job to end, but for those that outlive its driver.
    pub(super) fn notify_workers_to_leave(&mut self, driver: WorkerId) {
        let living = self.core.outliving(driver);
        let is_told = |worker: &WorkerId| *worker != driver && !living.contains(worker);
        let workers: Vec<WorkerId> =
            self.tokens.keys().copied().filter(|w| self.core.job_of(*w) == driver).filter(is_told).collect();
        let end: Message = Shutdown { reason: "its program ends".to_owned() }.into();
        for worker in &workers {
            self.send(*worker, &end, Vec::new());
        }
        if let Some(job) = self.jobs.get_mut(&driver) {
            job.leaving = workers;
        }
    }

    fn awaits_workers(&self, driver: WorkerId) -> Awaits {
        if self.has_leaving(driver) { Awaits::Workers(Leave::begin(now())) } else { Awaits::Nothing }
    }

    fn has_leaving(&self, driver: WorkerId) -> bool {
        let job = self.jobs.get(&driver);
        job.is_some_and(|job| job.leaving.iter().any(|worker| self.tokens.contains_key(worker)))
    }

    fn is_leaving(&self, worker: WorkerId) -> bool {
        let job = self.jobs.get(&self.core.job_of(worker));
        job.is_some_and(|job| job.leaving.contains(&worker))
    }

    /// Kills workers that have not left in time.
    fn kill_leaving(&mut self, driver: WorkerId) {
        let leaving = self.jobs.get_mut(&driver).map(|job| std::mem::take(&mut job.leaving));
        for worker in leaving.unwrap_or_default() {
            self.kill_worker(worker);
        }
    }

    pub(super) fn kill_worker(&mut self, worker: WorkerId) {
        let connection = self.tokens.get(&worker).and_then(|token| self.connections.get(token));
        let Some(Connection { role: Role::Worker, pid, .. }) = connection else { return };
        if self.is_leaving(worker) {
            // It runs its clean-up hooks, and is killed with the rest of its job.
            return;
        }
        // A reported end means the id may be another process's by now.
        if *pid != 0 && !self.ends.reasons.contains_key(&worker) {
            signal_group(*pid);
        }
    }

    pub(super) fn close(mut self) {
        if let Some(reason) = self.cluster.as_ref().and_then(Cluster::why_end) {
            self.warn(&format!("this node is not part of its cluster any more: {reason}"));
        }
        if let Some(cluster) = &mut self.cluster {
            cluster.leave(self.options.node);
        }
        let end: Message = Shutdown { reason: "the node is stopped".to_owned() }.into();
        let is_told = |c: &&mut Connection| c.role == Role::Worker || (c.role == Role::Driver && !c.is_host);
        let mut told = Vec::new();
        for (token, connection) in self.connections.iter_mut().filter(|(_, c)| is_told(c)) {
            connection.outlet.push(&end);
            told.push((*token, connection.role));
        }
        told.iter().for_each(|(token, _)| self.flush(*token));
        let mut leave = Leave::begin(now());
        let mut out = NodeActions::new();
        let is_worker_left = |this: &Self, (token, role): &(u64, Role)| {
            *role == Role::Worker && this.connections.contains_key(token)
        };
        let count_left = |this: &Self| told.iter().filter(|one| is_worker_left(this, one)).count();
        let mut left = count_left(&self);
        let mut events = Events::with_capacity(64);
        while now() < leave.deadline() && left > 0 {
            let _ = self.poller.wait(&mut events, Some(leave.deadline().since(now())));
            for event in &events {
                if event.token != LISTENER {
                    self.on_event(event, &mut out);
                }
            }
            self.pass_lines();
            self.flush_dirty();
            out.clear();
            let before = std::mem::replace(&mut left, count_left(&self));
            if left < before {
                leave.one_left(now());
            }
        }
        for connection in self.connections.values() {
            if connection.pid != 0 && connection.role == Role::Worker {
                signal_group(connection.pid);
            }
        }
        self.connections.retain(|_, connection| connection.role == Role::Reader);
        self.stop_templates();
        self.groups.close();
        if let Some(text) = self.spilling.close() {
            self.warn(&text);
        }
        self.logs.close();
        self.pass_lines();
        self.flush_dirty();
        if let Some(cluster) = self.cluster.take() {
            cluster.close();
        }
    }
}

/// Kills a worker and what it started: each worker leads its own process group.
fn signal_group(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_waited_for_as_long_as_they_leave_and_not_for_ever() {
        let begin = Instant(1_000);
        let mut leave = Leave::begin(begin);
        assert_eq!(leave.deadline(), begin.plus(LEAVE_NANOS), "none leaves");
        let mut time = begin;
        while time < leave.deadline() {
            assert!(time < begin.plus(LEAVE_ALL_NANOS));
            time = time.plus(LEAVE_NANOS / 2);
            leave.one_left(time);
        }
        assert_eq!(leave.deadline(), begin.plus(LEAVE_ALL_NANOS), "they leave one after the other");
    }
}
