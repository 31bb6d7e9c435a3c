//! Lines to processes of other nodes that take nothing more for now: what can wait does.
//!
//! What was said over such a line is kept until the other process has it, and that is bounded. So tasks stay in their queue
//! and calls in theirs, until the line has room; what is needed for what was pushed already is said at once, and is bounded by
//! that.
//!
//! It never drops anything, and waits for a line that lives only: the end of the other process ends this, too.

use weft_wire::WorkerId;

use super::{Actions, WorkerCore};
use crate::time::Instant;

impl WorkerCore {
    /// No task and no call is pushed there from now on.
    pub fn on_line_full(&mut self, worker: WorkerId) {
        if !self.ownership.is_gone(worker) && self.full_lines.insert(worker) {
            self.leases.set_held(worker, true);
        }
    }

    /// There is room again.
    pub fn on_line_free(&mut self, worker: WorkerId, now: Instant, out: &mut Actions) {
        self.now = now;
        if !self.full_lines.swap_remove(&worker) {
            return;
        }
        self.leases.set_held(worker, false);
        for shape in self.leases.shape_ids() {
            self.dispatch(shape, out);
        }
        for actor in self.callers.at(worker) {
            self.dispatch_actor(actor, out);
        }
        self.run_unblocked(out);
    }

    /// Whether calls to a process must wait.
    #[inline]
    pub(super) fn is_line_full(&self, worker: WorkerId) -> bool {
        !self.full_lines.is_empty() && self.full_lines.contains(&worker)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weft_wire::message::{ActorStarted, Define, LeaseGranted, TaskKind, TaskSpec, WorkerGone};
    use weft_wire::{Blob, FunctionId, LeaseId, Name, ResourceSet, ShapeId, TaskId};

    use super::*;
    use crate::action::{Action, Peer};
    use crate::ownership::Slot;

    const ME: WorkerId = WorkerId((1 << 24) + 1);
    const HERE: WorkerId = WorkerId((1 << 24) + 2);
    const THERE: WorkerId = WorkerId((2 << 24) + 1);
    const FUNCTION: FunctionId = FunctionId(3);

    fn core() -> (WorkerCore, ShapeId) {
        let mut core = WorkerCore::new(ME);
        let (function, name) = (FUNCTION, Name::from("f"));
        core.define(Define { function, name, code: Blob::default(), references: vec![], place: None });
        let shape = core.shape(&ResourceSet::default());
        (core, shape)
    }

    /// Workers and tasks of what is pushed.
    fn pushed(out: &Actions) -> Vec<(WorkerId, u64)> {
        let push = |action: &Action| match action {
            Action::Push { worker, spec, .. } => Some((*worker, spec.task.number)),
            _ => None,
        };
        out.iter().filter_map(push).collect()
    }

    fn grant(core: &mut WorkerCore, shape: ShapeId, worker: WorkerId, now: u64, out: &mut Actions) {
        let granted = LeaseGranted { shape, lease: LeaseId(worker.0), worker, gpus: vec![] };
        core.on_message(Peer::Node, granted.into(), Instant(now), out);
    }

    fn submit(core: &mut WorkerCore, kind: TaskKind, number: u64, out: &mut Actions) {
        let task = TaskId { owner: ME, number };
        let spec = TaskSpec::new(task, kind, FUNCTION, Name::from("f"), Blob::default());
        core.submit(Arc::new(spec), [Arc::new(Slot::default())], None, out);
    }

    #[test]
    fn tasks_wait_for_a_line_that_is_full_and_go_elsewhere_meanwhile() {
        let (mut core, shape) = core();
        let mut out = Actions::new();
        grant(&mut core, shape, THERE, 1, &mut out);
        core.on_line_full(THERE);
        core.on_line_full(THERE);
        submit(&mut core, TaskKind::Task(shape), 1, &mut out);
        assert_eq!(pushed(&out), []);
        grant(&mut core, shape, HERE, 2, &mut out);
        assert_eq!(pushed(&out), [(HERE, 1)]);
        submit(&mut core, TaskKind::Task(shape), 2, &mut out);
        let mut out = Actions::new();
        core.on_line_free(THERE, Instant(3), &mut out);
        core.on_line_free(THERE, Instant(3), &mut out);
        assert_eq!(pushed(&out), [(THERE, 2)]);
    }

    #[test]
    fn calls_wait_too_and_the_end_of_their_actor_ends_that() {
        let (mut core, _) = core();
        let mut out = Actions::new();
        let actor = TaskId { owner: HERE, number: 9 };
        core.on_line_full(THERE);
        submit(&mut core, TaskKind::Method(actor), 1, &mut out);
        let started = ActorStarted { actor, worker: THERE, concurrency: 1, replays: None };
        core.on_message(Peer::Node, started.into(), Instant(1), &mut out);
        submit(&mut core, TaskKind::Method(actor), 2, &mut out);
        assert_eq!(pushed(&out), []);
        core.on_line_free(THERE, Instant(2), &mut out);
        assert_eq!(pushed(&out), [(THERE, 1), (THERE, 2)], "in their order");
        core.on_line_full(THERE);
        let gone = WorkerGone { worker: THERE, ..WorkerGone::default() };
        core.on_message(Peer::Node, gone.into(), Instant(3), &mut out);
        assert!(!core.is_line_full(THERE));
        core.on_line_full(THERE);
        assert!(!core.is_line_full(THERE), "a word that comes late");
    }
}
