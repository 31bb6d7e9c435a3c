//! The monitor of memory: measures while something runs, and has a worker stopped when memory is short.
//!
//! One worker at a time: the next is chosen when the memory of the last one is free. Nothing is measured while no worker is
//! busy, so that an idle node sleeps.

use weft_protocol::node::NodeActions;
use weft_protocol::node::memory::{Measured, Running, Usage};
use weft_protocol::time::Instant;
use weft_wire::WorkerId;
use weft_wire::resources::size;

use super::{Role, Service, now};
use crate::node::memory::{Level, MemoryOptions, Places, holding};

/// Time between two looks (nanoseconds).
const LOOK_NANOS: u64 = 250_000_000;
/// The same when memory is nearly short: it can be filled at gigabytes per second.
const LOOK_OFTEN_NANOS: u64 = 50_000_000;
/// Nearly: within one part in so many of all memory.
const NEAR: u64 = 8;
/// Looking takes at most one part in so many of the time.
const LOOK_SHARE: u64 = 20;
/// Workers that are measured at each look while memory is not short, in turn.
const MEASURED_AT_ONCE: usize = 64;
/// How long the end of a worker that was stopped is waited for (nanoseconds).
const DYING_NANOS: u64 = 5_000_000_000;

/// See the module.
pub(super) struct Monitor {
    options: MemoryOptions,
    places: Places,
    next: Instant,
    /// Who was stopped last, as long as it may be there, and why.
    dying: Option<(WorkerId, Instant, String)>,
    /// The user was told that no end would help.
    has_warned: bool,
    turn: usize,
}

impl Monitor {
    pub(super) fn new(options: MemoryOptions) -> Self {
        let (next, turn) = (Instant::default(), 0);
        Self { options, places: Places::find(), next, dying: None, has_warned: false, turn }
    }

    /// Why a worker ended, if it was stopped.
    pub(super) fn reason(&mut self, worker: WorkerId) -> Option<String> {
        let (_, _, reason) = self.dying.take_if(|(dying, ..)| *dying == worker)?;
        Some(reason)
    }

    fn is_waiting(&self, time: Instant) -> bool {
        self.dying.as_ref().is_some_and(|(_, until, _)| time < *until)
    }
}

impl Service {
    /// When memory is to be looked at next.
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
        let is_short = usage.used >= usage.threshold;
        if is_short && !self.memory.is_waiting(begun) {
            self.free_memory(&usage, begun, out);
        }
        self.memory.has_warned &= is_short;
        let is_near = usage.used.saturating_add(usage.total / NEAR) >= usage.threshold;
        let pause = if is_near { LOOK_OFTEN_NANOS } else { LOOK_NANOS };
        let time = now();
        self.memory.next = time.plus(pause.max(time.since(begun).saturating_mul(LOOK_SHARE)));
    }

    /// How full the memory is, and what some of the workers hold: all, if it must be known.
    fn look(&mut self, time: Instant) -> Option<(Usage, Vec<Measured>)> {
        let options = self.memory.options;
        if let Some(total) = options.stated {
            let measured = self.measure_all();
            let used = measured.iter().fold(0u64, |sum, one| sum.saturating_add(one.held));
            return Some((options.usage(Level { used, total }, "what was stated for workers"), measured));
        }
        let Some((level, of)) = self.memory.places.fullest() else {
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

    /// `None` also for drivers: they are not the node's to stop.
    fn measure(&self, worker: WorkerId) -> Option<Measured> {
        let connection = self.connections.get(self.tokens.get(&worker)?)?;
        if connection.role != Role::Worker || !connection.is_greeted || connection.pid == 0 {
            return None;
        }
        let holding = holding(connection.pid)?;
        let running = self.mapping.begun(connection.cell).map(|begun| Running {
            task: begun.task,
            function: begun.function,
            name: begun.name,
            is_retriable: begun.is_retriable,
        });
        Some(Measured { worker, held: holding.now, peak: holding.peak, running })
    }

    fn free_memory(&mut self, usage: &Usage, time: Instant, out: &mut NodeActions) {
        let measured = self.measure_all();
        // One that began since the last look is the newest, not one that nobody knows.
        self.core.on_measured(&measured, time);
        match self.core.stop_for_memory(usage, &measured, out) {
            Some(stopped) => {
                self.note(&format!("worker {:016x}: {}", stopped.worker.0, stopped.reason));
                stopped.report.lines().for_each(|line| self.note(line));
                self.memory.dying = Some((stopped.worker, time.plus(DYING_NANOS), stopped.reason));
            }
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
}
