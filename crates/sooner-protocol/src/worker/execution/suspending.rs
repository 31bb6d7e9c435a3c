//! Processes in which nothing runs and something waits for a lost argument: computing the value again may
//! take the very resources that they hold.
//!
//! An actor whose constructor waits gives its resources back until the argument is there. A worker of tasks
//! lends its CPU, as it does while a task waits in `get`. Tasks whose callers certainly learn of the loss go
//! back instead, with their lease (`docs/adr/0023-remote-values.md`).

use sooner_wire::ActorId;
use sooner_wire::message::{Blocked, Resumed, Suspended, Unblocked};

use crate::probes::mark;
use crate::worker::WorkerCore;
use crate::worker::action::{Actions, Peer, send};

/// The last report to the node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::worker) enum Suspension {
    #[default]
    None,
    /// All tasks here wait, and the node lends the CPU.
    Lends,
    /// An argument of the constructor is lost.
    Waits,
    /// The argument is there, and the node is asked for the resources.
    Ready,
}

impl WorkerCore {
    /// A value was lost: if the constructor waits for it, the actor gives its resources back.
    pub(in crate::worker) fn suspend_if_lost(&mut self, out: &mut Actions) {
        if self.suspension != Suspension::None {
            return;
        }
        let waits = self.execution.constructor().filter(|incoming| !incoming.lost().is_empty());
        if let Some(actor) = waits.map(|incoming| incoming.push.spec.task) {
            mark!("an actor gave its resources back until an argument of its constructor was made again");
            self.suspension = Suspension::Waits;
            self.execution.suspend();
            tell(actor, false, out);
        }
    }

    /// A value has come: if it was the last one that the constructor waited for, asks the node for the
    /// actor's resources.
    pub(in crate::worker) fn ask_to_resume(&mut self, out: &mut Actions) {
        if self.suspension != Suspension::Waits {
            return;
        }
        let ready = self.execution.constructor().filter(|incoming| incoming.missing().is_empty());
        if let Some(actor) = ready.map(|incoming| incoming.push.spec.task) {
            self.suspension = Suspension::Ready;
            tell(actor, true, out);
        }
    }

    /// Lends the CPU while every task here waits and an argument of one is lost; takes it back when one may
    /// begin, or all have left.
    #[inline]
    pub(in crate::worker) fn lend_if_starved(&mut self, out: &mut Actions) {
        if self.execution.waits_for_values() || self.suspension == Suspension::Lends {
            self.lend(self.execution.is_starved(), out);
        }
    }

    fn lend(&mut self, is_starved: bool, out: &mut Actions) {
        match (self.suspension, is_starved) {
            (Suspension::None, true) => {
                mark!("a worker lent its CPU because its tasks wait for lost arguments");
                self.suspension = Suspension::Lends;
                send(out, Peer::Node, Blocked {});
            }
            (Suspension::Lends, false) => {
                self.suspension = Suspension::None;
                send(out, Peer::Node, Unblocked {});
            }
            _ => {}
        }
    }

    /// The actor holds its resources again.
    pub(in crate::worker) fn on_resumed(&mut self, resumed: Resumed, out: &mut Actions) {
        self.suspension = Suspension::None;
        self.execution.resume(resumed.gpus);
        // The argument may have been lost once more meanwhile.
        self.suspend_if_lost(out);
    }
}

fn tell(actor: ActorId, is_ready: bool, out: &mut Actions) {
    send(out, Peer::Node, Suspended { actor, is_ready });
}

#[cfg(test)]
mod tests {
    use sooner_wire::message::{
        CancelTask, Dependency, Location, Message, NodeDead, Outcome, Pulled, Push, Remote, TaskKind,
        TaskSpec, Value,
    };
    use sooner_wire::{Blob, BlockId, Name, ObjectId, ShapeId, TaskId};

    use super::*;
    use crate::time::Instant;
    use crate::worker::testing::{FUNCTION, HERE, THERE, core};

    const ACTOR: ActorId = TaskId { owner: HERE, number: 7 };
    const ARGUMENT: ObjectId = ObjectId { task: TaskId { owner: HERE, number: 5 }, index: 0 };

    fn receive(core: &mut WorkerCore, from: Peer, message: impl Into<Message>) -> Actions {
        let mut out = Actions::new();
        assert_eq!(core.on_message(from, message.into(), Instant(1), &mut out), None);
        core.check();
        out
    }

    fn says(out: &Actions, is_ready: bool) -> bool {
        let mut said = Actions::new();
        tell(ACTOR, is_ready, &mut said);
        out.contains(&said[0])
    }

    fn remote() -> Outcome {
        let location = Location { offset: 4096, length: 4096 };
        Outcome::Remote(Box::new(Remote { node: THERE.node(), location }))
    }

    /// Pushes a task of a caller on another node. It takes a value that the caller believes to be on this
    /// one.
    fn push(core: &mut WorkerCore, number: u64, takes: &[ObjectId]) -> Actions {
        let task = TaskId { owner: THERE, number };
        let spec =
            TaskSpec::new(task, TaskKind::Task(ShapeId(0)), FUNCTION, Name::from("f"), Blob::default());
        let spec = TaskSpec { dependencies: takes.into(), ..spec };
        let outcome = Outcome::Stored(Location { offset: 4096, length: 4096 });
        let dependency =
            |object: &ObjectId| Dependency { object: *object, outcome: outcome.clone(), contained: vec![] };
        let dependencies = takes.iter().map(dependency).collect();
        receive(core, Peer::Worker(THERE), Push { spec: Box::new(spec), dependencies, gpus: vec![] })
    }

    fn lends(out: &Actions) -> Option<bool> {
        let is = |message: Message| {
            let mut said = Actions::new();
            send(&mut said, Peer::Node, message);
            out.contains(&said[0])
        };
        match (is(Blocked {}.into()), is(Unblocked {}.into())) {
            (false, false) => None,
            (lends, goes_on) => {
                assert_ne!(lends, goes_on);
                Some(lends)
            }
        }
    }

    fn lose_block(core: &mut WorkerCore) -> Actions {
        receive(core, Peer::Node, sooner_wire::message::BlocksLost { blocks: vec![BlockId(4096)] })
    }

    /// Found by the simulator (seed 494623213165, two nodes): no CPU was left for the task that makes the
    /// argument.
    #[test]
    fn a_task_waits_for_a_lost_argument_without_its_cpu() {
        let taken = ObjectId { task: TaskId { owner: THERE, number: 1 }, index: 0 };
        let mut core = core().0;
        lose_block(&mut core);
        assert_eq!(lends(&push(&mut core, 2, &[taken])), Some(true), "the caller does not know of the loss");
        assert_eq!(lends(&push(&mut core, 3, &[taken])), None, "once");
        assert!(core.next_execution().is_none());
        let arrived = Value { object: taken, outcome: Outcome::Inline(Blob::default()), contained: vec![] };
        assert_eq!(lends(&receive(&mut core, Peer::Worker(THERE), arrived)), Some(false));
        assert!(core.next_execution().is_some());
    }

    #[test]
    fn a_worker_that_has_another_task_to_run_keeps_its_cpu_until_that_ends() {
        let taken = ObjectId { task: TaskId { owner: THERE, number: 1 }, index: 0 };
        let mut core = core().0;
        push(&mut core, 2, &[taken]);
        push(&mut core, 3, &[]);
        assert_eq!(lends(&lose_block(&mut core)), None);
        let other = core.next_execution().expect("it takes nothing").push.spec.task;
        let mut out = Actions::new();
        core.on_finished(other, vec![], 1, false, &mut out);
        assert_eq!(lends(&out), Some(true));
        assert_eq!(lends(&push(&mut core, 4, &[])), Some(false), "it can run this one");
        let other = core.next_execution().expect("it takes nothing").push.spec.task;
        let mut out = Actions::new();
        core.on_finished(other, vec![], 1, false, &mut out);
        assert_eq!(lends(&out), Some(true));
        let cancel = CancelTask { task: TaskId { owner: THERE, number: 2 }, force: false, recursive: false };
        assert_eq!(lends(&receive(&mut core, Peer::Worker(THERE), cancel)), Some(false), "nothing waits");
    }

    /// A process whose constructor takes a value of another node.
    fn constructing() -> WorkerCore {
        let mut core = core().0;
        let spec = TaskSpec::new(ACTOR, TaskKind::Creation, FUNCTION, Name::from("Actor"), Blob::default());
        let spec = TaskSpec { dependencies: Box::new([ARGUMENT]), ..spec };
        let dependency = Dependency { object: ARGUMENT, outcome: remote(), contained: vec![] };
        let push = Push { spec: Box::new(spec), dependencies: vec![dependency], gpus: vec![] };
        let out = receive(&mut core, Peer::Node, push);
        assert!(!says(&out, false), "it is on its way");
        assert!(core.next_execution().is_none());
        core
    }

    fn lost() -> Pulled {
        Pulled { object: ARGUMENT, location: None, failure: None, tried: None }
    }

    fn value() -> Value {
        Value { object: ARGUMENT, outcome: Outcome::Inline(Blob::default()), contained: vec![] }
    }

    #[test]
    fn a_constructor_waits_for_a_lost_argument_without_resources() {
        let mut core = constructing();
        assert!(says(&receive(&mut core, Peer::Node, lost()), false));
        assert!(says(&receive(&mut core, Peer::Worker(HERE), value()), true));
        assert!(core.next_execution().is_none(), "it has nothing to run with");
        receive(&mut core, Peer::Node, Resumed { actor: ACTOR, gpus: vec![3] });
        let begun = core.next_execution().expect("all is there");
        assert_eq!((begun.push.spec.task, begun.push.gpus), (ACTOR, vec![3]));
    }

    #[test]
    fn the_argument_may_be_lost_while_it_is_on_its_way_and_again() {
        let mut core = constructing();
        let gone = || NodeDead { node: THERE.node(), reason: String::new() };
        assert!(says(&receive(&mut core, Peer::Node, gone()), false));
        let again = Value { outcome: Outcome::Stored(Location { offset: 8192, length: 4096 }), ..value() };
        assert!(says(&receive(&mut core, Peer::Worker(HERE), again), true));
        let out =
            receive(&mut core, Peer::Node, sooner_wire::message::BlocksLost { blocks: vec![BlockId(8192)] });
        assert!(!says(&out, false), "the node was asked for resources already");
        assert!(says(&receive(&mut core, Peer::Node, Resumed { actor: ACTOR, gpus: vec![] }), false));
        assert!(core.next_execution().is_none());
        assert!(says(&receive(&mut core, Peer::Worker(HERE), value()), true));
        receive(&mut core, Peer::Node, Resumed { actor: ACTOR, gpus: vec![] });
        assert!(core.next_execution().is_some());
    }
}
