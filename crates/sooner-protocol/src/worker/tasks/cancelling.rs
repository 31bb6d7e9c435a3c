//! Cancels tasks of this process, and asks other processes to cancel theirs. How a worker handles the request
//! is in `worker/execution/executing.rs`.

use sooner_wire::TaskId;
use sooner_wire::message::{CancelTask, Failure, FailureCode, MethodCall, Target, TaskKind, TaskSpec};

use super::State;
use crate::worker::WorkerCore;
use crate::worker::action::{Actions, Peer, send};
use crate::worker::core::hex;

impl WorkerCore {
    /// Cancels the task that makes an object.
    pub fn cancel(&mut self, task: TaskId, force: bool, recursive: bool, out: &mut Actions) {
        if task.owner == self.me {
            self.cancel_own(task.number, force, recursive, out);
        } else {
            send(out, Peer::Worker(task.owner), CancelTask { task, force, recursive });
        }
        self.run_unblocked(out);
    }

    pub(in crate::worker) fn cancel_own(
        &mut self,
        number: u64,
        force: bool,
        recursive: bool,
        out: &mut Actions,
    ) {
        let Some(pending) = self.pendings.get_mut(number) else { return };
        pending.cancelled = true;
        let spec = pending.spec.clone();
        // The process of an actor has other callers' calls and a state: it is not ended for one call.
        let force = force && !matches!(spec.kind(), TaskKind::Method(_));
        if let State::Pushed { worker, .. } = pending.state {
            send(out, Peer::Worker(worker), CancelTask { task: spec.task, force, recursive });
            return;
        }
        if spec.kind() == TaskKind::Creation {
            return;
        }
        self.remove_from_queue(&spec);
        if let Target::Method(MethodCall { actor, kept: Some(_), .. }) = &spec.target {
            // The call may wait to be pushed again. It was never answered, so no caller has built on it.
            self.forget_call(*actor, number, out);
        }
        self.fail(number, &cancelled_failure(spec.task), out);
        match spec.kind() {
            TaskKind::Task(shape) => self.dispatch(shape, out),
            TaskKind::Method(actor) => self.dispatch_actor(actor, out),
            TaskKind::Creation => {}
        }
    }

    pub(in crate::worker) fn remove_from_queue(&mut self, spec: &TaskSpec) {
        match spec.kind() {
            TaskKind::Task(shape) => self.leases.remove_queued(shape, spec.task.number),
            TaskKind::Method(actor) => self.callers.remove_queued(actor, spec.task.number),
            TaskKind::Creation => {}
        }
    }
}

pub(in crate::worker) fn cancelled_failure(task: TaskId) -> Failure {
    Failure::new(FailureCode::Cancelled, format!("task {} was cancelled", hex(task)))
}
