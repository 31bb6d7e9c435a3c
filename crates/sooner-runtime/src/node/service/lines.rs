//! Lines that workers print, on their way from the logs' thread to a driver in another process.
//!
//! The driver has a second connection for them. Lines that it does not read fill that connection, then the
//! [`Lines`] of its job; then the pipes of the job's workers are not read, and a worker that prints more
//! waits in `write`. No line is dropped, and no other job notices. Without a driver the lines are in files
//! only. Lines for drivers on other nodes wait in the same way until those nodes take them
//! ([`super::remote_lines`]).

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use sooner_protocol::table::Set;
use sooner_protocol::time::Instant;
use sooner_wire::message::LogLines;
use sooner_wire::{WorkerId, limits};

use super::{Role, Service, now};
use crate::logs::Sink;

/// Bytes of lines that wait for one driver.
const WAITING_BYTES_MAX: usize = 1 << 20;

/// How long no line may move after the end of a driver before the rest is given up (nanoseconds).
const STILL_NANOS: u64 = 2_000_000_000;
/// How long the lines of the last workers may take after the end of their driver (nanoseconds).
const LAST_LINES_NANOS: u64 = 30_000_000_000;

/// The remaining lines of a job whose driver has left.
#[derive(Debug, Clone, Copy)]
pub(super) struct LastLines {
    since: Instant,
    moved: Instant,
}

impl LastLines {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, moved: now }
    }

    /// Some lines were passed on.
    pub(super) fn on_moved(&mut self, now: Instant) {
        self.moved = now;
    }

    /// When the rest is given up.
    pub(super) fn deadline(&self) -> Instant {
        self.moved.plus(STILL_NANOS).min(self.since.plus(LAST_LINES_NANOS))
    }
}

/// Lines that wait for the driver of one job.
pub(super) struct Lines {
    job: WorkerId,
    state: Mutex<State>,
    wake: Arc<OwnedFd>,
}

#[derive(Default)]
struct State {
    waiting: Vec<LogLines>,
    bytes: usize,
    is_closed: bool,
    /// Open pipes of each worker.
    open: BTreeMap<WorkerId, u32>,
}

impl Lines {
    pub(super) fn new(job: WorkerId, wake: Arc<OwnedFd>) -> Self {
        Self { job, state: Mutex::default(), wake }
    }

    /// Counts the two pipes of a new worker.
    pub(super) fn expect(&self, worker: WorkerId) {
        *self.state.lock().open.entry(worker).or_default() += 2;
    }

    /// Takes the waiting lines. True if the pipes may have been left unread.
    pub(super) fn take(&self) -> (Vec<LogLines>, bool) {
        let mut state = self.state.lock();
        let was_full = state.bytes > WAITING_BYTES_MAX;
        state.bytes = 0;
        (std::mem::take(&mut state.waiting), was_full)
    }

    /// No driver reads any more: lines are dropped from now on.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        *state = State { is_closed: true, ..State::default() };
    }

    /// Whether every line of all but these workers is here, or was taken. To be asked before the waiting
    /// lines are taken: a worker that lives on may print without end.
    pub(super) fn has_all_but(&self, living: &Set<WorkerId>) -> bool {
        self.state.lock().open.keys().all(|worker| living.contains(worker))
    }
}

impl Sink for Lines {
    fn show(&self, is_stderr: bool, text: &str) {
        let mut state = self.state.lock();
        if state.is_closed {
            return;
        }
        let was_empty = state.waiting.is_empty();
        state.bytes += text.len();
        state.waiting.push(LogLines { job: self.job, is_stderr, text: text.to_owned(), more: None });
        drop(state);
        if was_empty {
            self.kick();
        }
    }

    fn is_full(&self) -> bool {
        self.state.lock().bytes > WAITING_BYTES_MAX
    }

    fn on_end(&self, worker: WorkerId) {
        let mut state = self.state.lock();
        if let Some(pipes) = state.open.get_mut(&worker) {
            *pipes -= 1;
            if *pipes == 0 {
                state.open.remove(&worker);
                drop(state);
                self.kick();
            }
        }
    }
}

impl Lines {
    fn kick(&self) {
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }
}

impl Service {
    /// Greets a driver's second connection.
    pub(super) fn greet_reader(&mut self, token: u64, job: WorkerId) {
        let Some(job) = self.jobs.get_mut(&job).filter(|job| job.lines.is_some()) else {
            return self.refuse(token, "there is no such job");
        };
        if job.reader.is_some() {
            return self.refuse(token, "the job's lines are being read already");
        }
        job.reader = Some(token);
        let connection = self.connections.get_mut(&token).expect("it greets");
        connection.is_greeted = true;
        connection.role = Role::Reader;
    }

    /// A driver reads no lines any more.
    pub(super) fn forget_reader(&mut self, token: u64) {
        if let Some(job) = self.jobs.values_mut().find(|job| job.reader == Some(token)) {
            job.reader = None;
            job.lines.iter().for_each(|lines| lines.close());
            self.logs.kick();
        }
    }

    /// Sends waiting lines to the drivers that read, and ends the connections of drivers that have read all.
    pub(super) fn pass_lines(&mut self) {
        let mut finished = Vec::new();
        let mut owed = Vec::new();
        for (id, job) in &mut self.jobs {
            let (Some(lines), Some(token)) = (&job.lines, job.reader) else { continue };
            let Some(connection) = self.connections.get_mut(&token) else { continue };
            let has_all =
                job.left.is_some() && job.printing.is_empty() && job.has_all_but(&self.core.outliving(*id));
            let has_room = connection.outlet.waiting() <= limits::LINK_BUFFER_BYTES_MAX;
            if has_room {
                let (waiting, was_full) = lines.take();
                if !waiting.is_empty() {
                    self.dirty.push(token);
                }
                waiting.into_iter().for_each(|line| connection.outlet.push(&line.into()));
                if was_full {
                    self.logs.kick();
                }
                owed.extend(
                    std::mem::take(&mut job.owed).into_iter().map(|(node, bytes)| (node, *id, bytes)),
                );
            }
            let Some(left) = &mut job.left else { continue };
            let unread = connection.outlet.waiting();
            if std::mem::replace(&mut job.unread, unread) != unread {
                left.on_moved(now());
            }
            let is_late = now() >= left.deadline();
            if is_late || (has_all && has_room) {
                finished.push((token, is_late));
            }
        }
        for (node, job, bytes) in owed {
            self.send_taken(node, job, bytes);
        }
        for (token, is_late) in finished {
            self.flush(token);
            if is_late || self.connections.get(&token).is_some_and(|c| c.outlet.waiting() == 0) {
                // What is in the socket can still be read at the other end.
                self.forget_reader(token);
                self.connections.remove(&token);
            }
        }
    }

    /// When the lines of ended jobs are given up.
    pub(super) fn lines_deadline(&self) -> Option<Instant> {
        let waited = self.jobs.values().filter(|job| job.reader.is_some() || job.is_remote_job());
        waited.filter_map(|job| Some(job.left?.deadline())).min()
    }
}
