//! What unit tests of a process's core have in common: a process with one function, its leases, and what it
//! pushes.

use std::sync::Arc;

use sooner_wire::message::{Define, LeaseGranted, Location, Outcome, Remote, TaskKind, TaskSpec};
use sooner_wire::{
    Blob, FunctionId, LeaseId, Name, NodeId, ObjectId, ResourceSet, ShapeId, TaskId, WorkerId,
};

use super::WorkerCore;
use super::action::{Action, Actions, Peer};
use super::ownership::Slot;
use crate::time::Instant;

pub(super) const ME: WorkerId = WorkerId((1 << 24) + 1);
pub(super) const HERE: WorkerId = WorkerId((1 << 24) + 2);
pub(super) const THERE: WorkerId = WorkerId((2 << 24) + 1);
pub(super) const FUNCTION: FunctionId = FunctionId(3);

pub(super) fn core() -> (WorkerCore, ShapeId) {
    let mut core = WorkerCore::new(ME);
    let (function, name) = (FUNCTION, Name::from("f"));
    core.define(Define { function, name, code: Blob::default(), references: vec![], place: None });
    let shape = core.shape(&ResourceSet::default());
    (core, shape)
}

/// Workers and tasks of what is pushed.
pub(super) fn pushed(out: &Actions) -> Vec<(WorkerId, u64)> {
    let push = |action: &Action| match action {
        Action::Push { worker, spec, .. } => Some((*worker, spec.task.number)),
        _ => None,
    };
    out.iter().filter_map(push).collect()
}

pub(super) fn grant(core: &mut WorkerCore, shape: ShapeId, worker: WorkerId, now: u64, out: &mut Actions) {
    let granted = LeaseGranted { shape, lease: LeaseId(worker.0), worker, gpus: vec![] };
    core.on_message(Peer::Node, granted.into(), Instant(now), out);
}

/// A value of so many bytes on a node.
pub(super) fn value(core: &mut WorkerCore, number: u64, node: NodeId, length: u64) -> ObjectId {
    let location = Location { offset: number << 20, length };
    let outcome = if node == ME.node() {
        Outcome::Stored(location)
    } else {
        Outcome::Remote(Box::new(Remote { node, location }))
    };
    let object = TaskId { owner: ME, number }.object(0);
    core.ownership_mut().own(object, Arc::new(Slot::with_outcome(outcome)));
    object
}

pub(super) fn submit(
    core: &mut WorkerCore,
    shape: ShapeId,
    number: u64,
    dependencies: Vec<ObjectId>,
) -> Actions {
    let mut out = Actions::new();
    let task = TaskId { owner: ME, number };
    let spec = TaskSpec {
        dependencies: dependencies.into(),
        ..TaskSpec::new(task, TaskKind::Task(shape), FUNCTION, Name::from("f"), Blob::default())
    };
    core.submit(Arc::new(spec), [Arc::new(Slot::default())], None, &mut out);
    out
}
