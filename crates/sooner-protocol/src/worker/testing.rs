//! What unit tests of a process's core have in common: a process with one function, its leases, and what it pushes.

use sooner_wire::message::{Define, LeaseGranted};
use sooner_wire::{Blob, FunctionId, LeaseId, Name, ResourceSet, ShapeId, WorkerId};

use super::{Actions, WorkerCore};
use crate::action::{Action, Peer};
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
