//! Whether an idle worker may end: not while others refer to objects that it owns, tasks that it submitted
//! run, or it keeps calls for an actor with checkpoints. All of that would be lost, as in a crash.
//!
//! The node asks once. A needed worker says so, and reports once more when it is not needed any more; then
//! the node asks again. Neither side polls.

use sooner_wire::message::{Needed, Retired};
use sooner_wire::{ActorId, ObjectId};

use super::WorkerCore;
use super::action::{Actions, Peer, send};
use super::calls::ActorPlace;
use super::calls::actors::ActorDemand;
use crate::probes::bug;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Need {
    /// The node wants this process to end, and waits for the report that it is not needed any more.
    is_awaited: bool,
    /// This process takes no more tasks.
    is_retired: bool,
    /// An object that others borrow, as of the last look.
    object: Option<ObjectId>,
}

impl Need {
    /// Whether this process takes no more tasks.
    pub(super) fn is_retired(&self) -> bool {
        self.is_retired
    }
}

impl WorkerCore {
    /// Whether other processes would miss this one while it executes nothing.
    #[must_use]
    pub fn is_needed(&self) -> bool {
        if bug!(OwnerEndedWhileIdle) {
            return false;
        }
        self.has_submitted() || self.ownership.borrowed_one(self.need.object).is_some()
    }

    fn has_submitted(&self) -> bool {
        let pending = self.pending_tasks();
        let is_pending = pending > 0 && pending > self.outliving();
        is_pending || self.open_streams() > 0 || self.callers.kept_calls().next().is_some()
    }

    /// Detached actors that have begun: they outlive this process.
    fn outliving(&self) -> usize {
        let has_begun = |actor| matches!(self.actor_place(actor), Some(ActorPlace::At { .. }));
        let outlives = |actor: &ActorId, demand: &ActorDemand| {
            demand.detached && has_begun(*actor) && self.pendings.get(actor.number).is_some()
        };
        self.creations.iter().filter(|(actor, demand)| outlives(actor, demand)).count()
    }

    /// The last task of this process has ended: queued and later tasks go back to their callers. False if
    /// this process is not needed: it may end at once. Otherwise its lease goes back, and it ends when the
    /// node asks and it is not needed any more.
    pub fn retire(&mut self, caller: Peer, out: &mut Actions) -> bool {
        self.return_queued(out);
        if !self.is_needed() {
            return false;
        }
        self.need.is_retired = true;
        send(out, Peer::Node, Retired {});
        send(out, caller, Retired {});
        true
    }

    /// The node wants this process to end, but it is needed.
    pub(super) fn refuse_to_end(&mut self, out: &mut Actions) {
        self.need.is_awaited = true;
        send(out, Peer::Node, Needed { is_needed: true });
    }

    /// Something has changed: reports to the node if this process is not needed any more.
    #[inline]
    pub(super) fn end_need(&mut self, out: &mut Actions) {
        if !self.need.is_awaited || self.has_submitted() {
            return;
        }
        // Most often the object that was found last time is still borrowed.
        self.need.object = self.ownership.borrowed_one(self.need.object);
        if self.need.object.is_none() {
            self.need.is_awaited = false;
            send(out, Peer::Node, Needed { is_needed: false });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sooner_wire::message::{
        ActorStarted, AddBorrow, Checkpointed, EndIdle, Message, MethodCall, Outcome, Push, RemoveBorrow,
        Reply, Return, ReturnLease, Target, TaskKind, TaskSpec, TasksReturned,
    };
    use sooner_wire::{Blob, LeaseId, Name, TaskId};

    use super::*;
    use crate::time::Instant;
    use crate::worker::ownership::Slot;
    use crate::worker::testing::{FUNCTION, HERE, core, grant};

    fn receive(core: &mut WorkerCore, from: Peer, message: impl Into<Message>) -> (Actions, Option<Message>) {
        let mut out = Actions::new();
        let left = core.on_message(from, message.into(), Instant(1), &mut out);
        core.check();
        (out, left)
    }

    fn told(is_needed: bool) -> Actions {
        let mut out = Actions::new();
        send(&mut out, Peer::Node, Needed { is_needed });
        out
    }

    #[test]
    fn a_worker_says_when_it_is_needed_and_when_not_any_more() {
        let mut core = core().0;
        let (out, left) = receive(&mut core, Peer::Node, EndIdle {});
        assert_eq!((out, left), (Actions::new(), Some(EndIdle {}.into())), "the shell ends");

        let objects = [1, 2].map(|number| TaskId { owner: core.me(), number }.object(0));
        let borrow = |object| AddBorrow { object, borrower: HERE };
        let slots = objects.map(|object| {
            let slot = Arc::new(Slot::default());
            slot.acquire();
            core.ownership_mut().own(object, slot.clone());
            slot
        });
        assert!(!core.is_needed(), "its own references are nobody else's");
        for object in objects {
            receive(&mut core, Peer::Worker(HERE), borrow(object));
        }
        assert_eq!(receive(&mut core, Peer::Node, EndIdle {}), (told(true), None));
        let back = |object| RemoveBorrow { object, count: 1, giver: None, was_sent: None };
        assert_eq!(
            receive(&mut core, Peer::Worker(HERE), back(objects[0])).0,
            Actions::new(),
            "there is another one"
        );
        assert_eq!(receive(&mut core, Peer::Worker(HERE), back(objects[1])).0, told(false));
        receive(&mut core, Peer::Worker(HERE), borrow(objects[0]));
        assert_eq!(
            receive(&mut core, Peer::Worker(HERE), back(objects[0])).0,
            Actions::new(),
            "nobody asked again"
        );
        drop(slots);
    }

    #[test]
    fn a_worker_that_keeps_calls_for_a_checkpoint_is_needed() {
        let mut core = core().0;
        let actor = TaskId { owner: HERE, number: 1 };
        let handle = core.ownership_mut().received(actor.object(0));
        handle.acquire();
        let task = TaskId { owner: core.me(), number: 2 };
        let call = MethodCall { kept: Some(true), ..MethodCall::new(actor) };
        let spec = TaskSpec::of(task, Target::Method(call), Name::from("m"), Blob::default());
        core.submit(Arc::new(spec), [Arc::new(Slot::default())], None, &mut Actions::new());
        let started = ActorStarted { actor, worker: HERE, concurrency: 1, replays: None, restarts: None };
        receive(&mut core, Peer::Node, started);
        let returns = vec![Return { outcome: Outcome::Inline(Blob::default()), contained: Vec::new() }];
        let (held, nanos, retry, timing, not_run) = (Vec::new(), 1, false, None, None);
        receive(&mut core, Peer::Worker(HERE), Reply { task, returns, held, nanos, retry, timing, not_run });
        assert_eq!(receive(&mut core, Peer::Node, EndIdle {}), (told(true), None), "its answer is here");
        let covered = Checkpointed { actor, calls: vec![task.number] };
        assert_eq!(receive(&mut core, Peer::Node, covered).0, told(false));
        assert!(!core.is_needed());
    }

    #[test]
    fn a_retired_worker_that_is_needed_takes_no_more_tasks() {
        let (mut core, shape) = core();
        let caller = Peer::Worker(HERE);
        let mut out = Actions::new();
        assert!(!core.retire(caller, &mut out), "it may end at once");
        assert_eq!(out, Actions::new());

        let object = TaskId { owner: core.me(), number: 1 }.object(0);
        let slot = Arc::new(Slot::default());
        slot.acquire();
        core.ownership_mut().own(object, slot);
        receive(&mut core, caller, AddBorrow { object, borrower: HERE });
        assert!(core.retire(caller, &mut out));
        let mut expected = Actions::new();
        send(&mut expected, Peer::Node, Retired {});
        send(&mut expected, caller, Retired {});
        assert_eq!(out, expected);

        let task = TaskId { owner: HERE, number: 4 };
        let spec = TaskSpec::new(task, TaskKind::Task(shape), FUNCTION, Name::from("f"), Blob::default());
        let push = Push { spec: Box::new(spec), dependencies: vec![], gpus: vec![] };
        let mut expected = Actions::new();
        send(&mut expected, caller, TasksReturned { tasks: vec![task], lacks_room: None, missing: None });
        send(&mut expected, caller, Retired {});
        assert_eq!(receive(&mut core, caller, push).0, expected);
        assert_eq!(core.next_execution().map(|incoming| incoming.push.spec.task), None);

        assert_eq!(receive(&mut core, Peer::Node, EndIdle {}), (told(true), None));
        let back = RemoveBorrow { object, count: 1, giver: None, was_sent: None };
        assert_eq!(receive(&mut core, caller, back).0, told(false));
        assert_eq!(receive(&mut core, Peer::Node, EndIdle {}).1, Some(EndIdle {}.into()));
    }

    #[test]
    fn the_lease_of_a_retired_worker_goes_back() {
        let (mut core, shape) = core();
        let mut out = Actions::new();
        grant(&mut core, shape, HERE, 1, &mut out);
        let (out, left) = receive(&mut core, Peer::Worker(HERE), Retired {});
        let mut expected = Actions::new();
        send(&mut expected, Peer::Node, ReturnLease { lease: LeaseId(HERE.0) });
        assert_eq!((out, left), (expected, None));
    }
}
