//! Why each object is kept: the uses in the ownership table by kind, looked up in the tables of the core when
//! a report is asked for. Nothing is recorded for this while tasks run.

use sooner_wire::message::state::{HoldRow, ObjectRow, hold};
use sooner_wire::message::{TaskKind, TaskSpec};
use sooner_wire::{ObjectId, TaskId};

use crate::table::{Map, Set};
use crate::worker::WorkerCore;
use crate::worker::calls::replaying::arguments;
use crate::worker::core::uses;

/// Holds that are named per object; the others are counted by kind.
const HOLDS_MAX: usize = 16;
/// [`ObjectRow::state`] of an object that this process writes.
const UNSEALED: u8 = 6;

/// The holds on the objects that are asked about.
struct Holds(Map<ObjectId, Vec<HoldRow>>);

impl Holds {
    /// One more use of an object, as `like` says.
    fn add(&mut self, object: ObjectId, like: &Hold<'_>) {
        let Some(rows) = self.0.get_mut(&object) else { return };
        let is_full = rows.len() >= HOLDS_MAX;
        let same = rows.iter_mut().find(|row| {
            let row = (row.kind, row.task, row.object, row.name.as_deref());
            row == (like.kind, like.task, like.object, like.name) || row == (like.kind, None, None, None)
        });
        match same {
            Some(row) => row.count += 1,
            None if is_full => rows.push(HoldRow { kind: like.kind, count: 1, ..HoldRow::default() }),
            None => rows.push(HoldRow {
                kind: like.kind,
                count: 1,
                task: like.task,
                object: like.object,
                name: like.name.map(str::to_owned),
            }),
        }
    }
}

/// One use of an object; copied only if the report is about that object.
#[derive(Default)]
struct Hold<'a> {
    kind: u8,
    task: Option<TaskId>,
    object: Option<ObjectId>,
    name: Option<&'a str>,
}

impl WorkerCore {
    /// Records for the results of a task where it was submitted.
    #[inline]
    pub(in crate::worker) fn record_site(&mut self, spec: &TaskSpec) {
        let Some(site) = &spec.site else { return };
        for index in 0..spec.returns.max(1) {
            self.ownership.set_site(spec.task.object(index), site.clone());
        }
    }

    /// Rows of the ownership table, with what keeps each object.
    pub(in crate::worker) fn object_rows(&self, most: usize) -> Vec<ObjectRow> {
        let mut rows = self.ownership.report(most);
        let mut holds = Holds(rows.iter().map(|row| (row.object, Vec::new())).collect());
        self.add_submitted(&mut holds);
        self.add_executing(&mut holds);
        self.add_lasting(&mut holds);
        let makers = self.makers(rows.iter().filter(|row| row.owned).map(|row| row.object.task.number));
        for row in &mut rows {
            let mut kept = holds.0.swap_remove(&row.object).unwrap_or_default();
            let mut left = row.uses.saturating_sub(kept.iter().map(|hold| hold.count).sum());
            // The objects in the last checkpoint of the local actor are the one kind of use that is in no
            // table.
            let pins = self.ownership.pins(row.object).min(left);
            left -= pins;
            for (kind, count) in [(hold::PINNED, pins), (hold::CHECKPOINT, left)] {
                if count > 0 {
                    kept.push(HoldRow { kind, count, ..HoldRow::default() });
                }
            }
            if let Some(block) = self.unsealed.block(row.object) {
                (row.state, row.size) = (UNSEALED, block.length);
            }
            let detail = row.detail.get_or_insert_default();
            detail.holds = kept;
            if row.object.owner() == self.me {
                detail.maker = makers.get(&row.object.task.number).cloned();
            }
        }
        rows
    }

    fn add_submitted(&self, holds: &mut Holds) {
        for pending in self.pendings.iter() {
            let spec = &*pending.spec;
            let kind = if spec.kind() == TaskKind::Creation { hold::CONSTRUCTOR } else { hold::TASK };
            let name = spec.shown_name().as_str();
            let like = Hold { kind, task: Some(spec.task), name: Some(name), ..Hold::default() };
            uses(spec).for_each(|object| holds.add(object, &like));
        }
        for spec in self.callers.kept_calls() {
            let (kind, task, name) = (hold::KEPT_CALL, Some(spec.task), Some(spec.name.as_str()));
            let like = Hold { kind, task, name, ..Hold::default() };
            arguments(spec).for_each(|object| holds.add(object, &like));
        }
    }

    fn add_executing(&self, holds: &mut Holds) {
        for (task, running) in self.execution.running_tasks() {
            let like = Hold { kind: hold::RUNNING, task: Some(task), ..Hold::default() };
            running.uses.iter().for_each(|object| holds.add(*object, &like));
        }
        for incoming in self.execution.queued_tasks() {
            let task = Some(incoming.push.spec.task);
            let name = Some(incoming.push.spec.name.as_str());
            let like = Hold { kind: hold::QUEUED, task, name, ..Hold::default() };
            incoming.uses().iter().for_each(|object| holds.add(*object, &like));
        }
        if let Some((actor, given)) = self.execution.constructed() {
            let like = Hold { kind: hold::CONSTRUCTOR, task: Some(actor), ..Hold::default() };
            given.iter().for_each(|object| holds.add(*object, &like));
        }
    }

    fn add_lasting(&self, holds: &mut Holds) {
        for (object, inner) in self.ownership.containing() {
            let like = Hold { kind: hold::CONTAINED, object: Some(object), ..Hold::default() };
            inner.iter().for_each(|inner| holds.add(*inner, &like));
        }
        for define in self.functions.all().filter(|define| !define.references.is_empty()) {
            let like = Hold { kind: hold::FUNCTION, name: Some(define.name.as_str()), ..Hold::default() };
            define.references.iter().for_each(|object| holds.add(*object, &like));
        }
        let like = Hold { kind: hold::CHECKPOINT, ..Hold::default() };
        self.kept_objects.all().for_each(|object| holds.add(object, &like));
        for (gone, lent) in self.lent.iter() {
            let task = Some(TaskId { owner: gone, number: 0 });
            let like = Hold { kind: hold::LENT, task, ..Hold::default() };
            lent.iter().for_each(|object| holds.add(*object, &like));
        }
        for (actor, _) in self.creations.iter().filter(|(_, demand)| demand.detached) {
            let like = Hold { kind: hold::DETACHED, task: Some(*actor), ..Hold::default() };
            holds.add(actor.object(0), &like);
        }
        for (number, stream) in self.streams.iter().filter(|(_, stream)| !stream.is_dropped) {
            let task = TaskId { owner: self.me, number };
            let like = Hold { kind: hold::GENERATOR, task: Some(task), ..Hold::default() };
            std::iter::once(0)
                .chain(stream.next..=stream.known)
                .for_each(|index| holds.add(task.object(index), &like));
        }
    }

    /// The functions of these tasks of this process, as far as they are known.
    fn makers(&self, numbers: impl Iterator<Item = u64>) -> Map<u64, String> {
        let wanted: Set<u64> = numbers.collect();
        let mut makers = Map::default();
        for (number, label) in self.events.labelled().filter(|(number, _)| wanted.contains(number)) {
            makers.insert(number, label.name.as_str().to_owned());
        }
        for finished in wanted.iter().filter_map(|number| self.lineage.get(*number)) {
            makers.insert(finished.spec.task.number, finished.spec.name.as_str().to_owned());
        }
        for pending in self.pendings.iter().filter(|p| wanted.contains(&p.spec.task.number)) {
            let name = pending.spec.shown_name();
            makers.insert(pending.spec.task.number, name.as_str().to_owned());
        }
        makers
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sooner_wire::message::state::{Inspect, about};
    use sooner_wire::message::{Define, KeepObjects, LeaseGranted, Outcome, Push, Settled, WorkerDead};
    use sooner_wire::{Blob, FunctionId, LeaseId, Name, ShapeId, WorkerId};

    use super::*;
    use crate::time::Instant;
    use crate::worker::action::{Actions, Peer};
    use crate::worker::ownership::Slot;

    const ME: WorkerId = WorkerId(1);
    const CALLER: WorkerId = WorkerId(2);
    const FUNCTION: FunctionId = FunctionId(3);

    /// A core with one object of its own that has a handle and a value.
    fn core() -> (WorkerCore, ObjectId, Arc<Slot>) {
        let mut core = WorkerCore::new(ME);
        let object = TaskId { owner: ME, number: 1 }.object(0);
        let slot = Arc::new(Slot::with_outcome(Outcome::Inline(Blob::default())));
        slot.acquire();
        core.ownership_mut().own(object, slot.clone());
        (core, object, slot)
    }

    fn holds(core: &WorkerCore, object: ObjectId) -> Vec<(u8, u32)> {
        let report = core.report(&Inspect {
            request: 1,
            about: about::OBJECTS,
            rows: 10,
            events: 0,
            ..Inspect::default()
        });
        let row = report.objects.into_iter().find(|row| row.object == object).expect("it is in the table");
        let holds = row.detail.expect("always told").holds;
        assert_eq!(holds.iter().map(|hold| hold.count).sum::<u32>(), row.uses, "every use is explained");
        holds.into_iter().map(|hold| (hold.kind, hold.count)).collect()
    }

    fn spec(owner: WorkerId, number: u64, references: Vec<ObjectId>) -> TaskSpec {
        let task = TaskId { owner, number };
        let kind = TaskKind::Task(sooner_wire::ShapeId(0));
        let site = Some(Name::from("x.py:7"));
        let references = references.into();
        TaskSpec { references, site, ..TaskSpec::new(task, kind, FUNCTION, Name::from("f"), Blob::default()) }
    }

    fn define(core: &mut WorkerCore, references: Vec<ObjectId>) {
        let name = Name::from("f");
        core.define(Define { function: FUNCTION, name, code: Blob::default(), references, place: None });
        core.shape(&sooner_wire::ResourceSet::default());
    }

    #[test]
    fn each_use_is_told_by_what_it_is() {
        let (mut core, object, _slot) = core();
        assert_eq!(holds(&core, object), []);
        define(&mut core, vec![object]);
        core.ownership_mut().pin(object);
        let outer = TaskId { owner: ME, number: 2 }.object(0);
        core.ownership_mut().own(outer, Arc::new(Slot::default()));
        core.ownership_mut().contain(outer, &[object]);
        let actor = TaskId { owner: CALLER, number: 3 };
        for more in [None, Some(true), None] {
            // A control service that starts again says it once more.
            let keep = KeepObjects { actor, objects: vec![object], more };
            core.on_message(Peer::Node, keep.into(), Instant(1), &mut Actions::new());
        }
        let kinds = [hold::CONTAINED, hold::FUNCTION, hold::CHECKPOINT, hold::PINNED];
        assert_eq!(holds(&core, object), kinds.map(|kind| (kind, 1)));
    }

    #[test]
    fn what_work_of_a_dead_process_was_given_is_told_until_its_death_is_settled() {
        let (mut core, object, _slot) = core();
        define(&mut core, vec![]);
        let mut out = Actions::new();
        core.submit(Arc::new(spec(ME, 10, vec![object])), [Arc::new(Slot::default())], None, &mut out);
        let worker = WorkerId(9);
        let granted = LeaseGranted { shape: ShapeId(0), lease: LeaseId(1), worker, gpus: Vec::new() };
        core.on_message(Peer::Node, granted.into(), Instant(1), &mut out);
        assert_eq!(holds(&core, object), [(hold::TASK, 1)]);
        let gone = WorkerDead { worker, ..WorkerDead::default() };
        core.on_message(Peer::Node, gone.into(), Instant(1), &mut out);
        let told = holds(&core, object);
        assert!(told.contains(&(hold::LENT, 1)), "{told:?}");
        let settled = Settled { gone: vec![worker], held: Vec::new() };
        core.on_message(Peer::Node, settled.into(), Instant(1), &mut out);
        assert!(!holds(&core, object).iter().any(|(kind, _)| *kind == hold::LENT));
    }

    #[test]
    fn a_task_is_named_until_there_are_too_many() {
        let (mut core, object, _slot) = core();
        define(&mut core, vec![]);
        let mut out = Actions::new();
        for number in 10..40 {
            let spec = Arc::new(spec(ME, number, vec![object, object]));
            core.submit(spec, [Arc::new(Slot::default())], None, &mut out);
        }
        let told = holds(&core, object);
        assert_eq!(told.len(), HOLDS_MAX + 1);
        assert_eq!(told.last(), Some(&(hold::TASK, 2 * (30 - HOLDS_MAX as u32))));
    }

    #[test]
    fn arguments_of_tasks_that_run_and_wait_here_are_told() {
        let mut core = WorkerCore::new(ME);
        let object = TaskId { owner: CALLER, number: 1 }.object(0);
        for number in [5, 6] {
            let spec = spec(CALLER, number, vec![object]);
            let push = Push { spec: Box::new(spec), dependencies: vec![], gpus: vec![] };
            let (from, out) = (Peer::Worker(CALLER), &mut Actions::new());
            core.on_message(from, push.into(), Instant(1), out);
        }
        core.next_execution().expect("two were pushed");
        assert_eq!(holds(&core, object), [(hold::RUNNING, 1), (hold::QUEUED, 1)]);
    }

    #[test]
    fn the_site_of_an_object_goes_with_it() {
        let (mut core, _, _slot) = core();
        define(&mut core, vec![]);
        let slot = Arc::new(Slot::default());
        slot.acquire();
        let mut out = Actions::new();
        core.submit(Arc::new(spec(ME, 2, vec![])), [slot.clone()], None, &mut out);
        let object = TaskId { owner: ME, number: 2 }.object(0);
        assert_eq!(core.ownership().site(object).map(Name::as_str), Some("x.py:7"));
        core.cancel(object.task, false, true, &mut out);
        assert!(slot.release());
        core.on_handles_dropped(&[object], &mut out);
        assert_eq!(core.ownership().site(object), None);
    }
}
