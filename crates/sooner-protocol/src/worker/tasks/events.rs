//! What happened to the tasks of this process that have ended: one record per execution, in a ring of fixed
//! size.
//!
//! A record is written once, when the reply is read (or when the task fails without one). Writing it
//! allocates nothing: names, actors and parents are in a table that records refer to by number ([`Labels`]).
//! Tasks that have not ended are among the pending tasks.
//!
//! Invariants:
//! - EV1: the ring never holds more records than its bound allows; the oldest make room.
//! - EV2: a label stays as long as a record refers to it.
//!
//! It never reads a clock: times come in, as nanoseconds of one monotonic clock.

use std::mem::size_of;

use sooner_wire::message::state::{Events, LabelRow};
use sooner_wire::message::{Failure, Outcome, Reply, Return, Timing};
use sooner_wire::{Blob, ExecutionAttempt, WorkerId};

use super::labels::Labels;
use super::{Pending, State};
use crate::time::Instant;

/// When a pending task passed which step. A task that is not recorded was submitted at zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timestamps {
    /// It was submitted.
    pub submitted: Instant,
    /// Its arguments were there.
    pub ready: Instant,
    /// It was sent to a worker.
    pub pushed: Instant,
    /// Executions before this one.
    pub attempt: ExecutionAttempt,
}

/// One execution of a task. Durations are in nanoseconds, with the 24 significant bits of a float.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Record {
    /// Number of the task; its owner is this process.
    pub number: u64,
    /// When it was submitted.
    pub submitted: u64,
    /// When the worker began; zero if it never did or the time is unknown.
    pub started: u64,
    /// The worker it was sent to; zero if none.
    pub worker: u64,
    /// From the submission to the last argument.
    pub ready: f32,
    /// From the submission to the push.
    pub pushed: f32,
    /// Loading code and arguments.
    pub deserialise: f32,
    /// From the start to the end of the call, loading included.
    pub run: f32,
    /// Encoding and storing the returns.
    pub store: f32,
    /// From the submission to the end as the owner saw it.
    pub ended: f32,
    /// Number of its label.
    pub label: u32,
    /// 0: finished; otherwise one more than the [`sooner_wire::message::FailureCode`].
    pub outcome: u8,
    /// 1: the task is executed again.
    pub again: u8,
    /// Executions before this one.
    pub attempt: ExecutionAttempt,
}

/// The factor by which the ring shrinks when there is no memory for it.
const SHRINKS_BY: usize = 16;

/// Bytes of a record as it is sent to others.
pub const RECORD_BYTES: usize = 64;

const _: () = assert!(size_of::<Record>() == RECORD_BYTES);

/// How many executions ended in which way, since the process began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Tasks and calls submitted.
    pub submitted: u64,
    /// Executions that finished.
    pub finished: u64,
    /// Executions that failed and are not repeated.
    pub failed: u64,
    /// Executions that are repeated.
    pub retried: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct TaskEvents {
    capacity: usize,
    ring: Vec<Record>,
    /// Where the next record goes once the ring is full.
    next: usize,
    lost: u64,
    labels: Labels,
    /// See [`Counts`].
    pub counts: Counts,
}

impl TaskEvents {
    /// A ring that takes at most `bytes` bytes, names included; zero records nothing.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let names = bytes / sooner_wire::limits::EVENT_NAMES_SHARE;
        let capacity = (bytes - names) / RECORD_BYTES;
        Self { capacity, labels: Labels::new(names), ..Self::default() }
    }

    /// A reply came; `again` says that the task will be executed once more.
    #[inline]
    pub fn on_reply(
        &mut self,
        pending: &Pending,
        worker: WorkerId,
        reply: &Reply,
        again: bool,
        now: Instant,
    ) {
        let outcome = match &reply.returns[..] {
            [Return { outcome: Outcome::Failed(failure), .. }] => code_of(failure),
            _ => 0,
        };
        self.count(outcome, again);
        if self.is_recorded(pending) {
            self.write(pending, worker, outcome, again, reply.nanos, reply.timing, now);
        }
    }

    /// The task failed without a reply.
    pub fn on_failed(&mut self, pending: &Pending, failure: u8, again: bool, now: Instant) {
        self.count(failure, again);
        if self.is_recorded(pending) {
            let worker = match pending.state {
                State::Pushed { worker, .. } => worker,
                State::Waiting { .. } | State::Queued | State::Delayed { .. } => WorkerId::default(),
            };
            self.write(pending, worker, failure, again, 0, None, now);
        }
    }

    fn is_recorded(&self, pending: &Pending) -> bool {
        pending.passed.submitted.0 != 0 && self.capacity > 0
    }

    fn count(&mut self, outcome: u8, again: bool) {
        self.counts.finished += u64::from(outcome == 0);
        self.counts.failed += u64::from(outcome != 0 && !again);
        self.counts.retried += u64::from(again);
    }

    #[allow(clippy::too_many_arguments)]
    fn write(
        &mut self,
        pending: &Pending,
        worker: WorkerId,
        outcome: u8,
        again: bool,
        nanos: u64,
        timing: Option<Timing>,
        now: Instant,
    ) {
        if self.ring.capacity() == 0 && !self.make_room() {
            return;
        }
        let passed = &pending.passed;
        let since = |at: Instant| float(at.since(passed.submitted));
        let timing = timing.unwrap_or_default();
        let record = Record {
            number: pending.spec.task.number,
            submitted: passed.submitted.0,
            started: timing.started,
            worker: worker.0,
            ready: since(passed.ready),
            pushed: since(passed.pushed),
            deserialise: float(timing.deserialise),
            run: float(nanos),
            store: float(timing.store),
            ended: since(now),
            label: self.labels.take(&pending.spec, pending.parent),
            outcome,
            again: u8::from(again),
            attempt: passed.attempt,
        };
        if self.ring.len() < self.capacity {
            self.ring.push(record);
            return;
        }
        let place = &mut self.ring[self.next];
        self.labels.release(place.label);
        *place = record;
        self.lost += 1;
        self.next = if self.next + 1 == self.capacity { 0 } else { self.next + 1 };
    }

    /// Allocates the ring. All of it at once: the kernel gives pages as they are written, and nothing is ever
    /// moved.
    ///
    /// A process whose memory is limited (`ulimit -v`) and used up keeps fewer records, and ends its tasks
    /// like any other. False: it keeps none.
    fn make_room(&mut self) -> bool {
        while self.capacity > 0 && self.ring.try_reserve_exact(self.capacity).is_err() {
            // Not the largest size that fits: the program needs memory, too.
            self.capacity /= SHRINKS_BY;
        }
        self.capacity > 0
    }

    /// Records kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// Whether there is no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Records, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Record> {
        self.ring[self.next..].iter().chain(&self.ring[..self.next])
    }

    /// Numbers and labels of the tasks of all records.
    pub fn labelled(&self) -> impl Iterator<Item = (u64, &super::Label)> {
        self.iter().map(|record| (record.number, self.labels.get(record.label)))
    }

    /// The latest records, at most `most`, with `describe` for their labels.
    #[must_use]
    pub fn report(&self, most: usize, mut describe: impl FnMut(&super::Label) -> LabelRow) -> Events {
        let skipped = self.ring.len().saturating_sub(most);
        let mut records = Vec::with_capacity((self.ring.len() - skipped) * RECORD_BYTES);
        self.iter().skip(skipped).for_each(|record| record.append(&mut records));
        Events {
            records: Blob::from(records),
            labels: self.labels.iter().map(&mut describe).collect(),
            lost: self.lost + skipped as u64,
        }
    }
}

/// Nanoseconds as a float. By way of a signed number, for which processors have an instruction; it holds 292
/// years.
#[inline]
fn float(nanos: u64) -> f32 {
    nanos.cast_signed() as f32
}

/// The code of a failure in a record.
#[must_use]
pub fn code_of(failure: &Failure) -> u8 {
    failure.code as u8 + 1
}

impl Record {
    /// The fields in their order, little endian.
    fn append(&self, out: &mut Vec<u8>) {
        for number in [self.number, self.submitted, self.started, self.worker] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for nanos in [self.ready, self.pushed, self.deserialise, self.run, self.store, self.ended] {
            out.extend_from_slice(&nanos.to_le_bytes());
        }
        out.extend_from_slice(&self.label.to_le_bytes());
        out.extend_from_slice(&[self.outcome, self.again]);
        out.extend_from_slice(&self.attempt.0.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sooner_wire::message::{FailureCode, TaskKind, TaskSpec};
    use sooner_wire::{FunctionId, Name, ShapeId, TaskId};

    use super::*;

    fn pending(number: u64, name: &str) -> Pending {
        let spec = TaskSpec {
            retries: 3,
            ..TaskSpec::new(
                TaskId { owner: WorkerId(1), number },
                TaskKind::Task(ShapeId(0)),
                FunctionId(3),
                Name::from(name),
                Blob::default(),
            )
        };
        let passed = Timestamps {
            submitted: Instant(100),
            ready: Instant(110),
            pushed: Instant(130),
            attempt: ExecutionAttempt(0),
        };
        let state = State::Pushed { worker: WorkerId(5), estimate: 0, may_wait: false };
        Pending {
            spec: Arc::new(spec),
            state,
            retries: 3,
            cancelled: false,
            recovers: false,
            crashes: 0,
            memory_ends: 0,
            gave_way: 0,
            awaited: None,
            parent: None,
            passed,
        }
    }

    fn reply(number: u64) -> Reply {
        Reply {
            task: TaskId { owner: WorkerId(1), number },
            returns: vec![],
            held: vec![],
            nanos: 40,
            retry: false,
            timing: Some(Timing { started: 150, deserialise: 8, store: 4 }),
            not_run: None,
        }
    }

    fn describe(label: &crate::worker::tasks::Label) -> LabelRow {
        LabelRow { name: label.name.as_str().to_owned(), ..LabelRow::default() }
    }

    #[test]
    fn a_reply_is_one_record_with_its_phases() {
        let mut events = TaskEvents::new(1 << 14);
        events.on_reply(&pending(7, "f"), WorkerId(5), &reply(7), false, Instant(300));
        let record = *events.iter().next().expect("one record");
        assert_eq!((record.number, record.submitted, record.started, record.worker), (7, 100, 150, 5));
        assert_eq!((record.ready, record.pushed, record.ended), (10.0, 30.0, 200.0));
        assert_eq!((record.deserialise, record.run, record.store), (8.0, 40.0, 4.0));
        let told = events.report(9, describe);
        assert_eq!((told.records.len(), told.lost), (RECORD_BYTES, 0));
        assert_eq!(told.labels[record.label as usize].name, "f");
    }

    #[test]
    fn the_oldest_make_room_and_their_names_go() {
        let mut events = TaskEvents::new(4 * RECORD_BYTES * 8 / 7 + 8);
        assert_eq!(events.capacity, 4);
        for number in 1..=10 {
            let name = format!("f{number}");
            events.on_reply(&pending(number, &name), WorkerId(5), &reply(number), false, Instant(300));
        }
        let numbers: Vec<u64> = events.iter().map(|record| record.number).collect();
        assert_eq!(numbers, [7, 8, 9, 10]);
        assert_eq!(events.report(2, describe).lost, 8);
        assert_eq!(events.len(), 4);
        assert!(events.labels.iter().count() <= 6);
    }

    #[test]
    fn outcomes_are_counted_and_a_task_without_a_time_is_not_recorded() {
        let mut events = TaskEvents::new(1 << 14);
        let mut silent = pending(1, "f");
        silent.passed.submitted = Instant(0);
        events.on_reply(&silent, WorkerId(5), &reply(1), false, Instant(300));
        assert!(events.is_empty());
        let died = Failure::new(FailureCode::WorkerCrashed, "gone");
        events.on_failed(&pending(2, "f"), code_of(&died), true, Instant(300));
        events.on_failed(&pending(2, "f"), code_of(&died), false, Instant(300));
        assert_eq!(events.iter().map(|record| record.outcome).collect::<Vec<_>>(), [2, 2]);
        assert_eq!(events.counts, Counts { submitted: 0, finished: 1, failed: 1, retried: 1 });
    }

    #[test]
    fn the_ring_is_smaller_where_there_is_no_memory_for_it() {
        // More than any machine has.
        let mut events = TaskEvents::new(isize::MAX.cast_unsigned());
        let asked = events.capacity;
        events.on_reply(&pending(1, "f"), WorkerId(5), &reply(1), false, Instant(300));
        assert_eq!(events.len(), 1);
        assert!(0 < events.capacity && events.capacity < asked, "{}", events.capacity);
    }

    #[test]
    fn without_memory_nothing_is_recorded() {
        let mut events = TaskEvents::new(0);
        events.on_reply(&pending(1, "f"), WorkerId(5), &reply(1), false, Instant(300));
        assert!(events.is_empty());
    }
}
