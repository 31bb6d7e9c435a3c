//! What a process reports about itself when a tool asks: tasks, objects, actors, and events of tasks.

use sooner_wire::message::state::{
    Inspect, KnownActorRow, LabelRow, Report, RunningRow, ShapeRow, TaskRow, about,
};
use sooner_wire::message::{Target, TaskKind, TaskSpec};
use sooner_wire::{FunctionId, TaskId};

use super::WorkerCore;
use super::calls::ActorPlace;
use super::tasks::{Counts, Label, Pending, State, TaskEvents};
use crate::time::Instant;

/// Missing arguments that are named per task.
const MISSING_MAX: usize = 8;

impl WorkerCore {
    /// Sets how much memory (bytes) events of tasks may take; zero: nothing is recorded.
    pub fn record_events(&mut self, bytes: usize) {
        self.events = TaskEvents::new(bytes);
    }

    /// Sets when the tasks submitted next are submitted; zero: they are not recorded.
    #[inline]
    pub fn set_submitting(&mut self, at: Instant) {
        self.submitting = at;
        self.now = self.now.max(at);
    }

    /// How many executions of this process's tasks ended in which way.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.events.counts
    }

    /// Answers a question. The shell adds what the core lacks (process id, stacks).
    #[must_use]
    pub fn report(&self, question: &Inspect) -> Report {
        let asks = |what: u32| question.about & what != 0;
        let rows = question.rows as usize;
        let mut report = Report { leases: self.leases.held() as u64, ..Report::default() };
        if asks(about::TASKS) {
            report.tasks_total = self.pendings.len() as u64;
            report.tasks = self.pendings.iter().take(rows).map(|pending| self.task_row(pending)).collect();
            report.running = self.running_rows(rows);
            report.queued = self.execution.queued() as u64;
            report.shapes = self.leases.report();
        }
        if asks(about::OBJECTS) {
            report.objects_total = self.ownership.len() as u64;
            report.objects = self.object_rows(rows);
        }
        if asks(about::ACTORS) {
            report.actors = self.callers.report(rows);
        }
        if asks(about::EVENTS) {
            let describe = |label: &Label| self.describe(label);
            report.events = Some(self.events.report(question.events as usize, describe));
        }
        report
    }

    fn running_rows(&self, rows: usize) -> Vec<RunningRow> {
        let row = |(task, running): (TaskId, &super::execution::Running)| RunningRow {
            task,
            since: running.since.0,
            cancelled: running.cancelled,
        };
        self.execution.running_tasks().take(rows).map(row).collect()
    }

    fn task_row(&self, pending: &Pending) -> TaskRow {
        let (state, worker) = match pending.state {
            State::Waiting { .. } => (0, None),
            State::Queued | State::Delayed { .. } => (1, None),
            State::Pushed { worker, .. } => (2, Some(worker)),
        };
        let spec = &pending.spec;
        let is_missing = |object: &sooner_wire::ObjectId| {
            self.ownership.record(*object).is_some_and(|record| !record.slot.has_outcome())
        };
        let missing = match pending.state {
            State::Waiting { .. } => {
                let behind = pending.awaited.iter().flat_map(|awaited| awaited.objects());
                let all = spec.dependencies.iter().copied().chain(behind);
                all.filter(is_missing).take(MISSING_MAX).collect()
            }
            State::Queued | State::Delayed { .. } | State::Pushed { .. } => Vec::new(),
        };
        let resources = match spec.kind() {
            TaskKind::Task(shape) => self.leases.resources(shape).cloned(),
            TaskKind::Creation => self.creations.get(&spec.task).map(|demand| demand.placement.clone()),
            TaskKind::Method(_) => None,
        };
        TaskRow {
            task: spec.task,
            label: self.label_of(spec, pending.parent),
            state,
            worker,
            submitted: pending.passed.submitted.0,
            pushed: if state == 2 { pending.passed.pushed.0 } else { 0 },
            missing,
            resources,
            attempt: pending.passed.attempt,
            retries: pending.retries,
            cancelled: pending.cancelled,
        }
    }

    fn label_of(&self, spec: &TaskSpec, parent: Option<TaskId>) -> LabelRow {
        let title = spec.shown_name();
        let (kind, actor, function, code) = match &spec.target {
            Target::Function(call) => (0, None, self.name_of(call.function), Some(call.function)),
            Target::Class(creation) => (1, Some(spec.task), self.name_of(creation.class), None),
            Target::Method(call) => (2, Some(call.actor), Some(spec.name.as_str().to_owned()), None),
        };
        let name = title.as_str().to_owned();
        LabelRow { function: function.unwrap_or_else(|| name.clone()), name, kind, actor, parent, code }
    }

    fn describe(&self, label: &Label) -> LabelRow {
        let name = label.name.as_str().to_owned();
        let method = label.method.as_ref().map(|method| method.as_str().to_owned());
        let function = method.or_else(|| self.name_of(label.function?)).unwrap_or_else(|| name.clone());
        let kind = if label.actor.is_some() { 2 } else { 0 };
        LabelRow { name, function, kind, actor: label.actor, parent: label.parent, code: label.function }
    }

    fn name_of(&self, function: FunctionId) -> Option<String> {
        self.functions.get(function).map(|define| define.name.as_str().to_owned())
    }
}

impl super::calls::Callers {
    fn report(&self, rows: usize) -> Vec<KnownActorRow> {
        let row = |(actor, place, queued, in_flight): (TaskId, &ActorPlace, usize, usize)| KnownActorRow {
            actor,
            place: match place {
                ActorPlace::Pending | ActorPlace::OutOfReach(_) => 0,
                ActorPlace::At { .. } => 1,
                ActorPlace::Dead(_) => 2,
            },
            queued: queued as u64,
            in_flight: in_flight as u64,
            kept: Some(self.kept(actor) as u64).filter(|kept| *kept > 0),
        };
        self.known().take(rows).map(row).collect()
    }
}

impl super::tasks::Leases {
    fn report(&self) -> Vec<ShapeRow> {
        let row =
            |(resources, queued, leases, in_flight): (&sooner_wire::ResourceSet, usize, usize, usize)| {
                ShapeRow {
                    resources: resources.clone(),
                    queued: queued as u64,
                    leases: leases as u64,
                    in_flight: in_flight as u64,
                }
            };
        self.shapes().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sooner_wire::message::{Define, LeaseGranted, Message, Reply, TaskSpec, Timing};
    use sooner_wire::{Blob, LeaseId, Name, ResourceSet, WorkerId};

    use super::*;
    use crate::worker::action::{Actions, Peer};
    use crate::worker::ownership::Slot;

    const ME: WorkerId = WorkerId(1);
    const WORKER: WorkerId = WorkerId(5);

    fn core() -> WorkerCore {
        let mut core = WorkerCore::new(ME);
        core.record_events(1 << 16);
        let name = Name::from("f");
        core.define(Define {
            function: FunctionId(3),
            name,
            code: Blob::default(),
            references: vec![],
            place: Some(Name::from("x.py:3")),
        });
        core
    }

    fn submit(core: &mut WorkerCore, number: u64, dependencies: &[u64], at: u64) -> Arc<Slot> {
        let shape = core.shape(&ResourceSet::from_amounts([("CPU".to_owned(), 1.0)]));
        let of = |number: &u64| TaskId { owner: ME, number: *number }.object(0);
        let spec = TaskSpec {
            dependencies: dependencies.iter().map(of).collect(),
            ..TaskSpec::new(
                TaskId { owner: ME, number },
                TaskKind::Task(shape),
                FunctionId(3),
                Name::from("shown"),
                Blob::default(),
            )
        };
        let slot = Arc::new(Slot::default());
        slot.acquire();
        core.set_submitting(Instant(at));
        core.submit(Arc::new(spec), [slot.clone()], None, &mut Actions::new());
        slot
    }

    fn tell(core: &mut WorkerCore, from: Peer, message: impl Into<Message>, at: u64) {
        core.on_message(from, message.into(), Instant(at), &mut Actions::new());
    }

    fn ask(core: &WorkerCore, about: u32) -> Report {
        core.report(&Inspect { request: 1, about, rows: 10, events: 10, ..Inspect::default() })
    }

    #[test]
    fn a_task_is_told_from_the_tables_and_then_from_the_record() {
        let mut core = core();
        let slots = [submit(&mut core, 1, &[], 100), submit(&mut core, 2, &[1], 110)];
        let report = ask(&core, about::TASKS | about::EVENTS);
        let states: Vec<u8> = report.tasks.iter().map(|row| row.state).collect();
        assert_eq!((states, report.tasks_total), (vec![1, 0], 2));
        assert_eq!(report.tasks[1].missing, [TaskId { owner: ME, number: 1 }.object(0)]);
        assert_eq!(report.shapes[0].queued, 1);

        let shape = core.shape(&ResourceSet::from_amounts([("CPU".to_owned(), 1.0)]));
        tell(
            &mut core,
            Peer::Node,
            LeaseGranted { shape, lease: LeaseId(1), worker: WORKER, gpus: vec![] },
            150,
        );
        let row = &ask(&core, about::TASKS).tasks[0];
        assert_eq!((row.state, row.worker, row.submitted, row.pushed), (2, Some(WORKER), 100, 150));

        let task = TaskId { owner: ME, number: 1 };
        let timing = Some(Timing { started: 170, deserialise: 0, store: 0 });
        let returns = vec![sooner_wire::message::Return {
            outcome: sooner_wire::message::Outcome::Inline(Blob::default()),
            contained: vec![],
        }];
        tell(
            &mut core,
            Peer::Worker(WORKER),
            Reply { task, returns, held: vec![], nanos: 20, retry: false, timing, not_run: None },
            200,
        );
        let report = ask(&core, about::TASKS | about::EVENTS);
        assert_eq!((report.tasks.len(), report.tasks[0].state, report.tasks[0].pushed), (1, 2, 200));
        let events = report.events.expect("asked for");
        assert_eq!((events.records.len(), events.lost), (crate::worker::tasks::RECORD_BYTES, 0));
        let label = &events.labels[1];
        assert_eq!((label.name.as_str(), label.function.as_str(), label.kind), ("shown", "f", 0));
        assert_eq!(core.counts(), Counts { submitted: 2, finished: 1, failed: 0, retried: 0 });
        drop(slots);
    }

    #[test]
    fn rows_are_bounded_and_what_is_not_asked_for_is_not_told() {
        let mut core = core();
        let slots: Vec<_> = (1..=20).map(|number| submit(&mut core, number, &[], 100)).collect();
        let report = ask(&core, about::TASKS);
        assert_eq!((report.tasks.len(), report.tasks_total), (10, 20));
        assert_eq!((report.objects.len(), report.events), (0, None));
        let objects = ask(&core, about::OBJECTS);
        assert_eq!((objects.objects.len(), objects.objects_total), (10, 20));
        assert_eq!((objects.objects[0].handles, objects.objects[0].state), (1, 0));
        drop(slots);
    }
}
