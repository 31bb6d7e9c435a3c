//! The death of another process: tasks it executed for this one, objects it owned, tasks it pushed here.
//! References between the two count until the death is settled (`docs/adr/0015-settling-a-death.md`).

use sooner_wire::message::{
    Failure, FailureCode, HeldFrom, Outcome, Settled, TaskKind, TaskSpec, WorkerDead,
};
use sooner_wire::{ObjectId, TaskId, WorkerId};

use super::WorkerCore;
use super::action::{Actions, Peer, send};
use super::calls::{ActorPlace, replaying};
use super::core::{hex, uses};
use super::tasks::cancelling::cancelled_failure;
use super::tasks::{State, replies};
use crate::probes::{bug, mark};

impl WorkerCore {
    pub(super) fn on_worker_dead(&mut self, gone: &WorkerDead, out: &mut Actions) {
        let worker = gone.worker;
        self.functions.forget_process(worker);
        self.full_lines.swap_remove(&worker);
        let tasks = self.leases.on_worker_dead(worker);
        let is_news = !self.ownership.is_dead(worker);
        if is_news {
            self.keep_lent(worker, &tasks);
        }
        if tasks.len() > 1 {
            mark!("a worker died with several tasks in flight");
        }
        let begun = self.begun_of(&tasks, gone);
        for (at, number) in tasks.iter().enumerate().rev() {
            self.interrupt(*number, at < begun, gone, out);
        }
        for object in self.ownership.on_worker_dead(worker) {
            let failure = owner_died_failure(object, gone);
            self.resolve(object, Outcome::Failed(Box::new(failure)), &[], out);
        }
        self.on_caller_dead(worker, out);
        // Of a process at another node, this one may have learned only that its death is settled.
        if is_news || worker.node() != self.me.node() {
            self.report_held(worker, out);
        }
        for shape in self.leases.shape_ids() {
            self.dispatch(shape, out);
        }
    }

    /// A process died with tasks, calls or an actor of this one. It may have lent their arguments on, so they
    /// stay used.
    fn keep_lent(&mut self, gone: WorkerId, tasks: &[u64]) {
        let calls = self.callers.in_flight();
        let pushed = tasks.iter().copied().chain(calls).filter_map(|number| self.pendings.get(number));
        let mut lent: Vec<ObjectId> = pushed
            .filter(|pending| matches!(pending.state, State::Pushed { worker, .. } if worker == gone))
            .flat_map(|pending| uses(&pending.spec))
            .collect();
        // The place of an actor that this process has ended is not known any more.
        let may_be_there = |place: Option<&ActorPlace>| match place {
            Some(ActorPlace::At { worker, .. }) => *worker == gone,
            Some(ActorPlace::Dead(_) | ActorPlace::OutOfReach(_)) => true,
            Some(ActorPlace::Pending) | None => false,
        };
        let actors = self.creations.keys().filter(|actor| may_be_there(self.callers.place(**actor)));
        let constructors = actors.filter_map(|actor| self.pendings.get(actor.number));
        lent.extend(constructors.flat_map(|pending| uses(&pending.spec)));
        let ghosts = self.callers.ghosts(|place| may_be_there(Some(place)));
        lent.extend(ghosts.flat_map(replaying::arguments));
        if !lent.is_empty() {
            lent.iter().for_each(|object| self.ownership.add_use(*object));
            self.lent.insert(gone, lent);
        }
    }

    /// Reports what this process holds from a dead one.
    fn report_held(&mut self, gone: WorkerId, out: &mut Actions) {
        let lent = self.execution.lent_by(gone);
        let held = self.ownership.held_from(gone, &lent);
        send(out, Peer::Node, HeldFrom { gone, held });
    }

    /// All processes have reported: deaths are settled.
    pub(super) fn on_settled(&mut self, settled: &Settled, out: &mut Actions) {
        self.ownership.on_settled(settled, out);
        self.lent.on_settled(&settled.gone).for_each(|object| self.ownership.end_use(object, out));
        self.forget_dropped_actors();
    }

    /// How many of the tasks pushed to the dead worker may have begun. They run in push order: those after
    /// the last one that began were not executed. But later tasks may pass one that waits for an argument;
    /// and if no process could see which began last, each may have begun.
    fn begun_of(&self, tasks: &[u64], gone: &WorkerDead) -> usize {
        if gone.all_begun == Some(true) {
            return tasks.len();
        }
        let is_last = |last: TaskId, task: u64| last.owner == self.me && task == last.number;
        let Some(at) = gone.last_started.and_then(|last| tasks.iter().position(|task| is_last(last, *task)))
        else {
            return 0;
        };
        let last = self.pendings.get(tasks[at]).map(|pending| &pending.state);
        if matches!(last, Some(State::Pushed { may_wait: true, .. })) {
            return tasks.len();
        }
        at + 1
    }

    /// Whether a task with this argument waits at the worker until the value is brought there. At another
    /// node the value may be lost by then, and the task is not sent back as a local worker's is.
    pub(super) fn may_be_awaited(&self, outcome: &Outcome, worker: WorkerId) -> bool {
        match outcome {
            Outcome::Remote(_) => true,
            Outcome::Stored(_) => worker.node() != self.me.node(),
            Outcome::Inline(_) | Outcome::Failed(_) => false,
        }
    }

    /// Records that a pushed task may be passed by later ones.
    pub(super) fn record_waits(&mut self, spec: &TaskSpec) {
        let pending = self.pendings.get_mut(spec.task.number);
        if let Some(State::Pushed { may_wait, .. }) = pending.map(|pending| &mut pending.state) {
            *may_wait = true;
        }
    }

    pub(super) fn after_crash(&mut self, number: u64, maybe_executed: bool, reason: &str, out: &mut Actions) {
        let Some(pending) = self.pendings.get_mut(number) else { return };
        let TaskKind::Task(shape) = pending.spec.kind() else { return };
        let task = pending.spec.task;
        let maybe_executed = maybe_executed || bug!(RetriesForTheUnbegun);
        if !maybe_executed {
            mark!("a worker died before it began a task that was pushed to it");
        }
        if pending.cancelled {
            mark!("a worker died with a cancelled task");
        }
        if pending.recovers {
            mark!("a worker died while it computed a lost value again");
        }
        if pending.cancelled && !bug!(RetryAfterCancel) {
            return self.fail(number, &cancelled_failure(task), out);
        }
        if maybe_executed && pending.retries == 0 {
            let failure = replies::crashed_failure(&pending.spec, reason);
            return self.fail(number, &failure, out);
        }
        if maybe_executed {
            self.events.on_failed(pending, FailureCode::WorkerCrashed as u8 + 1, true, self.now);
            pending.repeat(self.now);
        }
        if !bug!(RetriesNeverEnd) {
            pending.retries -= i32::from(maybe_executed && pending.retries > 0);
        }
        pending.crashes = pending.crashes.saturating_add(u8::from(maybe_executed));
        if maybe_executed && self.delay(number) {
            return;
        }
        self.pendings.get_mut(number).expect("looked up above").state = State::Queued;
        if !self.must_wait_again(number, out) {
            self.requeue(shape, number);
        }
    }
}

pub(super) fn owner_died_failure(object: ObjectId, gone: &WorkerDead) -> Failure {
    let owner = gone.what.clone().unwrap_or_else(|| format!("process {:016x}", gone.worker.0));
    if gone.unreachable == Some(true) {
        let text = format!(
            "object {} cannot be read here: no connection can be made to its owner, {owner} ({}). Let an actor or a task make the object, or run one of the two programs on a machine with a node",
            hex(object.task),
            gone.reason
        );
        return Failure::new(FailureCode::PeerUnreachable, text);
    }
    Failure::new(
        FailureCode::OwnerDied,
        format!(
            "the owner of object {}, {owner}, is gone ({}), and the value with it. Let a longer-lived process create the object, or create it again",
            hex(object.task),
            gone.reason
        ),
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sooner_wire::message::{Location, NodeDead, Outcome, Remote, Reply, Return};
    use sooner_wire::{Blob, Name};

    use super::*;
    use crate::time::Instant;
    use crate::worker::action::Peer;
    use crate::worker::ownership::Slot;
    use crate::worker::testing::{FUNCTION, HERE, ME, THERE, core, grant, pushed};

    const NEXT: WorkerId = WorkerId(THERE.0 + 1);

    fn receive(
        core: &mut WorkerCore,
        from: Peer,
        message: impl Into<sooner_wire::message::Message>,
    ) -> Actions {
        let mut out = Actions::new();
        assert_eq!(core.on_message(from, message.into(), Instant(9), &mut out), None);
        core.check();
        out
    }

    fn gone(worker: WorkerId) -> WorkerDead {
        WorkerDead { worker, all_begun: Some(true), ..WorkerDead::default() }
    }

    #[test]
    fn no_retry_is_spent_on_workers_of_a_node_that_is_gone() {
        let (mut core, shape) = core();
        let mut out = Actions::new();
        let slots = [1, 2].map(|number| {
            let task = TaskId { owner: ME, number };
            let spec = TaskSpec {
                retries: 1,
                ..TaskSpec::new(task, TaskKind::Task(shape), FUNCTION, Name::from("f"), Blob::default())
            };
            let slot = Arc::new(Slot::default());
            slot.acquire();
            core.submit(Arc::new(spec), [slot.clone()], None, &mut out);
            slot
        });
        grant(&mut core, shape, THERE, 1, &mut out);
        grant(&mut core, shape, NEXT, 2, &mut out);
        assert_eq!(pushed(&out), [(THERE, 1), (NEXT, 2)]);
        let location = Location { offset: 4096, length: 4096 };
        let outcome = Outcome::Remote(Box::new(Remote { node: THERE.node(), location }));
        let returns = vec![Return { outcome, contained: vec![] }];
        let task = TaskId { owner: ME, number: 1 };
        let reply =
            Reply { task, returns, held: vec![], nanos: 1, retry: false, timing: None, not_run: None };
        receive(&mut core, Peer::Worker(THERE), reply);

        // The value of the first is lost, and the second runs no more: both of their workers are still ours
        // as far as is known.
        let out = receive(&mut core, Peer::Node, NodeDead { node: THERE.node(), reason: String::new() });
        assert_eq!(pushed(&out), []);
        for worker in [NEXT, THERE] {
            assert_eq!(pushed(&receive(&mut core, Peer::Node, gone(worker))), []);
        }
        let mut out = Actions::new();
        grant(&mut core, shape, HERE, 3, &mut out);
        let again = pushed(&out);
        assert!(again.len() == 2 && again.iter().all(|(worker, _)| *worker == HERE), "{again:?}");
        assert!(slots.iter().all(|slot| !slot.has_outcome()), "each has its retry");
        assert_eq!(core.pending_tasks(), 2);
    }
}
