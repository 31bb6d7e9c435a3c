//! The memory monitor: measures while tasks run, and has a worker stopped when memory is short.
//!
//! One worker at a time: the next is chosen when the memory of the last one is free. Nothing is measured
//! while no worker is busy, so that an idle node sleeps. The less memory is left, the sooner the monitor
//! looks again. If the kernel was faster, its victim's end is what it would have been by the node.

use std::io;

use rustix::io::Errno;
use sooner_protocol::node::NodeActions;
use sooner_protocol::node::workers::memory::{Limited, Measured, Running, Stopped, Usage};
use sooner_protocol::time::Instant;
use sooner_wire::WorkerId;
use sooner_wire::resources::size;

use super::{Role, Service, now};
use crate::groups::End;
use crate::machine::{Level, Machine};
use crate::node::memory::{Kills, MemoryOptions, holding};

/// Time between two looks (nanoseconds), at most.
const LOOK_NANOS: u64 = 250_000_000;
/// Time between two looks (nanoseconds), at least: memory may be nearly full for long.
const LOOK_OFTEN_NANOS: u64 = 4_000_000;
/// How fast memory may fill meanwhile (bytes per nanosecond): twice as fast as a few processors can, so that
/// there is a look while half of what is left is left.
const FILLED_PER_NANO: u64 = 16;
/// Looking takes at most one part in so many of the time.
const LOOK_SHARE: u64 = 20;
/// Workers that are measured at each look while memory is not short, in turn.
const MEASURED_AT_ONCE: usize = 64;
/// How long the end of a worker that was stopped is waited for (nanoseconds).
const DYING_NANOS: u64 = 5_000_000_000;

/// See the module.
pub(super) struct Monitor {
    options: MemoryOptions,
    machine: Machine,
    kills: Kills,
    next: Instant,
    /// The worker stopped last, until when it may be there, and why.
    dying: Option<(WorkerId, Instant, String)>,
    /// Memory was short at the last look, and no worker's end would have helped.
    is_unclear: bool,
    /// The user was told that no end would help.
    has_warned: bool,
    turn: usize,
}

impl Monitor {
    pub(super) fn new(options: MemoryOptions, machine: Machine) -> Self {
        let (next, turn) = (Instant::default(), 0);
        let kills = Kills::new(machine.kills());
        Self { options, machine, kills, next, dying: None, is_unclear: false, has_warned: false, turn }
    }

    /// Why a worker ended, if it was stopped.
    pub(super) fn reason(&mut self, worker: WorkerId) -> Option<String> {
        let (_, _, reason) = self.dying.take_if(|(dying, ..)| *dying == worker)?;
        Some(reason)
    }

    fn is_dying(&self, worker: WorkerId) -> bool {
        self.dying.as_ref().is_some_and(|(dying, ..)| *dying == worker)
    }

    /// Whether a worker's memory is about to come free.
    fn is_waiting(&self, time: Instant) -> bool {
        let is_stopping = self.dying.as_ref().is_some_and(|(_, until, _)| time < *until);
        is_stopping || self.kills.is_one_dying(time)
    }
}

impl Service {
    /// When to look at memory next.
    pub(super) fn memory_deadline(&self) -> Option<Instant> {
        (self.memory.options.is_on() && self.core.is_busy()).then_some(self.memory.next)
    }

    /// Looks, if it is time.
    pub(super) fn watch_memory(&mut self, out: &mut NodeActions) {
        let begun = now();
        if !self.memory.options.is_on() || begun < self.memory.next || !self.core.is_busy() {
            return;
        }
        let Some((usage, measured)) = self.look(begun) else { return };
        self.core.on_measured(&measured, begun);
        self.memory.kills.see(self.memory.machine.kills(), begun);
        let is_short = usage.used >= usage.threshold;
        if is_short && !self.memory.is_waiting(begun) {
            self.free_memory(&usage, begun, out);
        }
        self.memory.has_warned &= is_short;
        self.memory.is_unclear &= is_short;
        let left = usage.total.saturating_sub(usage.used);
        let pause = (left / FILLED_PER_NANO).clamp(LOOK_OFTEN_NANOS, LOOK_NANOS);
        let time = now();
        self.memory.next = time.plus(pause.max(time.since(begun).saturating_mul(LOOK_SHARE)));
    }

    /// How full the memory is, and what workers hold: all if their sum is needed, else some.
    fn look(&mut self, time: Instant) -> Option<(Usage, Vec<Measured>)> {
        let options = self.memory.options;
        if let Some(total) = options.stated {
            let measured = self.measure_all();
            let used = measured.iter().fold(0u64, |sum, one| sum.saturating_add(one.held));
            return Some((options.usage(Level { used, total }, "what was stated for workers"), measured));
        }
        let Some((level, of)) = self.memory.machine.fullest() else {
            self.memory.next = time.plus(LOOK_NANOS);
            return None;
        };
        let measured = self.measure_some();
        Some((options.usage(level, &of), measured))
    }

    fn measure_all(&self) -> Vec<Measured> {
        self.tokens.keys().filter_map(|worker| self.measure(*worker)).collect()
    }

    fn measure_some(&mut self) -> Vec<Measured> {
        let mut workers: Vec<WorkerId> = self.tokens.keys().copied().collect();
        workers.sort_unstable();
        let count = workers.len().min(MEASURED_AT_ONCE);
        let first = if workers.is_empty() { 0 } else { self.memory.turn % workers.len() };
        self.memory.turn = first + count;
        workers.iter().cycle().skip(first).take(count).filter_map(|worker| self.measure(*worker)).collect()
    }

    /// `None` also for drivers: the node may not stop them.
    fn measure(&self, worker: WorkerId) -> Option<Measured> {
        let connection = self.connections.get(self.tokens.get(&worker)?)?;
        if connection.role != Role::Worker || !connection.is_greeted || connection.pid == 0 {
            return None;
        }
        let holding = holding(connection.pid)?;
        let running = self.running(connection.cell);
        Some(Measured { worker, held: holding.now, peak: holding.peak, running })
    }

    /// What the process of a cell runs, or ran last.
    pub(super) fn running(&self, cell: u32) -> Option<Running> {
        let begun = self.mapping.begun(cell)?;
        let (task, function, is_retriable) = (begun.task, begun.function, begun.is_retriable);
        Some(Running { task, function, name: begun.name, is_retriable })
    }

    /// A worker that ran this was killed, and not by the node. Returns why, if the kernel killed it for want
    /// of memory: its end then looks to all as if the node had stopped it.
    pub(super) fn ended_by_kernel(&mut self, worker: WorkerId, running: Option<Running>) -> Option<String> {
        let time = now();
        if self.memory.is_dying(worker) {
            return None;
        }
        let end = self.groups.end_of(worker);
        if let Some(End::AtLimit(limit)) = end {
            if self.memory.options.is_on() && self.groups.are_counted_at_home() {
                // This kill is accounted for, and no other process was killed with it.
                self.memory.kills.see(self.memory.machine.kills(), time);
                self.memory.kills.claim();
            }
            return self.ended_at_limit(worker, running, limit);
        }
        // The kernel counts before it kills: a worker whose group has no such count was killed otherwise.
        if !self.memory.options.is_on() || end == Some(End::Other) {
            return None;
        }
        self.memory.kills.see(self.memory.machine.kills(), time);
        let is_counted_elsewhere = end == Some(End::Elsewhere) && !self.groups.are_counted_at_home();
        if !is_counted_elsewhere && !self.memory.kills.claim() {
            return None;
        }
        let (level, of) = self.memory.machine.tightest()?;
        let left = self.memory.options.usage(level, &of);
        let measured = self.measure_all();
        let stopped = self.core.on_ended_by_kernel(worker, running, &left, &measured)?;
        self.record_stopped(&stopped);
        Some(stopped.reason)
    }

    fn ended_at_limit(&mut self, worker: WorkerId, running: Option<Running>, limit: u64) -> Option<String> {
        let options = self.memory.options;
        let usage = self.memory.machine.fullest().map(|(level, of)| options.usage(level, &of));
        let (usage, others) = (usage.unwrap_or_default(), self.measure_all());
        let stopped = self.core.on_ended_at_limit(worker, running, limit, &usage, &others)?;
        self.record_stopped(&stopped);
        Some(stopped.reason)
    }

    /// Limits a worker to the memory that it reserved, or lifts its limit.
    pub(super) fn limit_memory(&mut self, worker: WorkerId, reserved: Option<u64>) {
        let token = self.tokens.get(&worker).filter(|_| !self.ends.reasons.contains_key(&worker));
        let Some(pid) = token.and_then(|token| self.connections.get(token)).map(|one| one.pid) else {
            return;
        };
        let shared = self.options.store_bytes;
        let done = match reserved {
            Some(reserved) => {
                let machine = &self.memory.machine;
                self.groups.limit(machine, worker, pid, reserved, shared).map(|_| ())
            }
            None => self.groups.lift(worker),
        };
        match done {
            // The worker has ended, which is handled elsewhere.
            Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {}
            Err(error) => self.limits_failed(&error),
            Ok(()) => {}
        }
    }

    /// Workers cannot be limited: only the monitor is left.
    fn limits_failed(&mut self, error: &io::Error) {
        self.core.set_memory_limits(Limited::Nobody);
        let text = format!("the memory of single workers is not limited (worker_memory_limits): {error}");
        if self.options.memory.limited == Limited::All { self.warn(&text) } else { self.note(&text) }
    }

    fn free_memory(&mut self, usage: &Usage, time: Instant, out: &mut NodeActions) {
        let measured = self.measure_all();
        // One that began since the last look is the newest, not an unknown one.
        self.core.on_measured(&measured, time);
        match self.core.stop_for_memory(usage, &measured, out) {
            Some(stopped) => {
                self.record_stopped(&stopped);
                self.memory.dying = Some((stopped.worker, time.plus(DYING_NANOS), stopped.reason));
            }
            // The process that held it may have ended since the memory was looked at.
            None if !self.memory.is_unclear => self.memory.is_unclear = true,
            None if !self.memory.has_warned => {
                self.memory.has_warned = true;
                self.warn(&format!(
                    "memory is short: {} of {} of {} are in use, and workers hold next to nothing of it. Others do: the \
                     driver, the object store or other programs. Let them hold less before the kernel ends one of them",
                    size(usage.used),
                    size(usage.total),
                    usage.of
                ));
            }
            None => {}
        }
    }

    fn record_stopped(&self, stopped: &Stopped) {
        self.note(&format!("worker {:016x}: {}", stopped.worker.0, stopped.reason));
        stopped.report.lines().for_each(|line| self.note(line));
    }
}
