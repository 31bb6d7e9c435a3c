//! Tasks that wait because their workers crashed again and again.

use sooner_wire::message::FailureCode;

use super::State;
use crate::pace::pause_after;
use crate::worker::WorkerCore;
use crate::worker::action::Actions;
use sooner_wire::message::{Failure, TaskKind, TaskSpec};

impl WorkerCore {
    /// Makes a task wait whose worker has crashed, if it is not the first one; false if it may go at once.
    pub(in crate::worker) fn delay(&mut self, number: u64) -> bool {
        let Some(pending) = self.pendings.get_mut(number) else { return false };
        let pause = pause_after(u32::from(pending.crashes));
        if pause > 0 {
            let until = self.now.plus(pause);
            pending.state = State::Delayed { until };
            self.delays.insert(until, number);
        }
        pause > 0
    }

    /// Queues the tasks whose pause is over. One that would be retried for ever although nobody can ask for
    /// its result any more ends here.
    pub(in crate::worker) fn retry_delayed(&mut self, out: &mut Actions) {
        while let Some(number) = self.delays.take_due(self.now) {
            let Some(pending) = self.pendings.get_mut(number) else { continue };
            let (State::Delayed { until }, TaskKind::Task(shape)) = (&pending.state, pending.spec.kind)
            else {
                continue;
            };
            if *until > self.now {
                continue;
            }
            let spec = pending.spec.clone();
            let is_wanted =
                (0..spec.returns).any(|index| !self.ownership.is_unwanted(spec.task.object(index)));
            if pending.retries < 0 && !is_wanted {
                let failure = crashed_failure(&spec, "again and again, and nobody waits for its result");
                self.fail(number, &failure, out);
            } else {
                pending.state = State::Queued;
                if !self.must_wait_again(number, out) {
                    self.leases.enqueue(shape, number, spec.priority);
                    self.dispatch(shape, out);
                }
            }
        }
        self.run_unblocked(out);
    }
}

pub(in crate::worker) fn crashed_failure(spec: &TaskSpec, reason: &str) -> Failure {
    Failure::new(
        FailureCode::WorkerCrashed,
        format!(
            "the worker that ran {}() ended unexpectedly: {reason}. The task may have been executed in part; no retry is left (max_retries={})",
            spec.name.as_str(),
            spec.retries
        ),
    )
}
