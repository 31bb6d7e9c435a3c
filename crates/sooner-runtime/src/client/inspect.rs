//! Answers questions about this process, on whichever thread reads the node's socket: the GIL is never
//! needed.

use std::path::PathBuf;

use rustix::process::{Signal, getpid, kill_process};
use sooner_protocol::worker::action::Peer;
use sooner_protocol::worker::tasks::Counts;
use sooner_wire::message::state::{Inspect, Inspected, Measured, MetricKind, Series, Stack, about};

use super::{Client, Shared};
use crate::metrics;

/// The stack file is truncated before the next dump when it is larger than this (bytes).
const STACK_FILE_BYTES_MAX: u64 = 1 << 20;

/// Where the Python stacks of this process go, and the signal whose handler writes them.
#[derive(Debug)]
pub struct StackFile {
    path: PathBuf,
    signal: i32,
}

impl Client {
    /// From now on the handler of `signal` writes this process's stacks to the end of the file.
    pub fn set_stack_file(&self, path: PathBuf, signal: i32) {
        let _ = self.stacks.set(StackFile { path, signal });
    }

    pub(super) fn inspect(&self, shared: &mut Shared, question: &Inspect) {
        if question.about & about::METRICS != 0 {
            self.notify_metrics(shared);
        }
        let mut report = shared.core.report(question);
        report.pid = std::process::id();
        if question.about & about::STACKS != 0 {
            report.stack = self.stacks.get().and_then(StackFile::dump);
        }
        let answer = Inspected { request: question.request, worker: self.me, report: Box::new(report) };
        shared.outbox.push(Peer::Node, &answer.into());
    }

    /// Sends the node what was measured since the last time.
    pub(super) fn notify_metrics(&self, shared: &mut Shared) {
        let mut series = metrics::take();
        let counts = shared.core.counts();
        series.extend(engine_series(counts, shared.told));
        shared.told = counts;
        if !series.is_empty() {
            shared.outbox.push(Peer::Node, &Measured { series }.into());
        }
    }

    /// Whether what happens to tasks is recorded.
    #[inline]
    #[must_use]
    pub fn records(&self) -> bool {
        self.records
    }

    /// Something was measured: a sleeping thread must learn that a report to the node is due before long.
    pub fn rouse_for_metrics(&self) {
        if metrics::is_first() {
            self.rouse();
        }
    }

    /// Sends the node what was measured, at once: this process is about to end.
    pub fn flush_metrics(&self) {
        let mut shared = self.shared.lock();
        self.notify_metrics(&mut shared);
        shared.outbox.flush();
    }
}

fn engine_series(counts: Counts, told: Counts) -> Vec<Series> {
    let rows = [
        ("sooner_tasks_submitted_total", "Tasks and actor calls submitted", counts.submitted, told.submitted),
        ("sooner_tasks_finished_total", "Executions of tasks that finished", counts.finished, told.finished),
        ("sooner_tasks_failed_total", "Tasks that failed", counts.failed, told.failed),
        (
            "sooner_tasks_retried_total",
            "Executions of tasks that were repeated",
            counts.retried,
            told.retried,
        ),
    ];
    let is_new = |(_, _, now, before): &(&str, &str, u64, u64)| now != before;
    let series = |(name, description, now, before): (&str, &str, u64, u64)| {
        Series::of_engine(MetricKind::Counter, name, description, now - before)
    };
    rows.into_iter().filter(is_new).map(series).collect()
}

impl StackFile {
    /// Has the stacks written. The signal goes to the process, so the kernel gives it to the main thread,
    /// which stands still while its frames are read; system calls that it interrupts are restarted.
    fn dump(&self) -> Option<Stack> {
        let file = std::fs::OpenOptions::new().append(true).open(&self.path).ok()?;
        let mut offset = file.metadata().ok()?.len();
        if offset > STACK_FILE_BYTES_MAX && file.set_len(0).is_ok() {
            offset = 0;
        }
        // SAFETY: the number is only handed to the kernel. It is that of a signal with a handler, which
        // Python chose among those that are not reserved.
        let signal = unsafe { Signal::from_raw_unchecked(self.signal) };
        kill_process(getpid(), signal).ok()?;
        Some(Stack { path: self.path.to_string_lossy().into_owned(), offset })
    }
}
