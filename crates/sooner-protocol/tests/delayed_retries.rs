//! A task that kills its worker is tried again at once, then ever later, and only as long as somebody wants
//! it.

use std::sync::Arc;

use sooner_protocol::time::Instant;
use sooner_protocol::worker::WorkerCore;
use sooner_protocol::worker::action::{Action, Actions, Peer};
use sooner_protocol::worker::ownership::Slot;
use sooner_wire::limits::RETRY_PAUSE_NANOS;
use sooner_wire::message::{
    Define, Failure, FailureCode, LeaseGranted, Message, Outcome, TaskKind, TaskSpec, WorkerDead,
};
use sooner_wire::{Blob, FunctionId, LeaseId, Name, ResourceSet, ShapeId, TaskId, WorkerId};

const ME: WorkerId = WorkerId(1);
const TASK: TaskId = TaskId { owner: ME, number: 1 };

struct World {
    core: WorkerCore,
    slot: Arc<Slot>,
    now: Instant,
    workers: u64,
}

impl World {
    fn new(retries: i32) -> Self {
        let mut core = WorkerCore::new(ME);
        let (function, name, code) = (FunctionId(1), Name::from("f"), Blob::default());
        core.define(Define { function, name: name.clone(), code, references: vec![], place: None });
        let shape = core.shape(&ResourceSet::default());
        let spec = TaskSpec::new(TASK, TaskKind::Task(shape), function, name, Blob::default());
        let slot = Arc::new(Slot::default());
        slot.acquire();
        let spec = Arc::new(TaskSpec { retries, ..spec });
        core.submit(spec, [slot.clone()], None, &mut Actions::new());
        Self { core, slot, now: Instant(0), workers: 100 }
    }

    fn receive(&mut self, message: impl Into<Message>) -> Actions {
        let mut out = Actions::new();
        self.core.on_message(Peer::Node, message.into(), self.now, &mut out);
        out
    }

    /// Gives the core a worker, which ends while it runs the task.
    fn crash(&mut self) {
        self.workers += 1;
        let worker = WorkerId(self.workers);
        let grant =
            LeaseGranted { shape: ShapeId(0), lease: LeaseId(self.workers), worker, gpus: Vec::new() };
        let out = self.receive(grant);
        assert!(out.iter().any(|action| matches!(action, Action::Push { .. })), "{out:?}");
        let reason = "was killed by signal 9".to_owned();
        self.receive(WorkerDead {
            worker,
            reason,
            last_started: Some(TASK),
            what: None,
            all_begun: None,
            unreachable: None,
            memory: None,
        });
    }

    fn pause(&mut self) -> Option<u64> {
        let mut out = Actions::new();
        self.core.on_timer(self.now, &mut out);
        let next = self.core.next_deadline()?;
        Some(next.since(self.now))
    }

    fn failure(&self) -> Option<Failure> {
        match self.slot.outcome()?.into_owned() {
            Outcome::Failed(failure) => Some(*failure),
            other => panic!("it gave {other:?}"),
        }
    }
}

#[test]
fn pauses_grow_from_the_second_crash_on() {
    let mut world = World::new(-1);
    world.crash();
    assert_eq!(world.pause(), None, "the first retry is at once");
    for doubling in 0..4 {
        world.crash();
        let pause = world.pause().expect("a pause");
        assert_eq!(pause, RETRY_PAUSE_NANOS << doubling);
        world.now = world.now.plus(pause);
        assert_eq!(world.pause(), None, "queued again");
    }
    world.core.check();
    assert_eq!(world.failure(), None);
}

#[test]
fn retries_end_in_the_error() {
    let mut world = World::new(3);
    for _ in 0..4 {
        assert_eq!(world.failure(), None);
        if let Some(pause) = world.pause() {
            world.now = world.now.plus(pause);
            world.pause();
        }
        world.crash();
    }
    assert_eq!(world.failure().map(|failure| failure.code), Some(FailureCode::WorkerCrashed));
    assert_eq!(world.core.pending_tasks(), 0);
}

#[test]
fn a_waiting_task_is_cancelled_at_once() {
    let mut world = World::new(-1);
    world.crash();
    world.crash();
    world.core.cancel(TASK, false, true, &mut Actions::new());
    assert_eq!(world.failure().map(|failure| failure.code), Some(FailureCode::Cancelled));
    world.now = world.now.plus(RETRY_PAUSE_NANOS);
    assert_eq!(world.pause(), None);
    assert_eq!(world.core.pending_tasks(), 0);
}

#[test]
fn nobody_tries_for_ever_what_nobody_can_ask_for() {
    for (retries, ends) in [(-1, true), (9, false)] {
        let mut world = World::new(retries);
        world.crash();
        world.crash();
        assert!(world.slot.release());
        world.core.on_handles_dropped(&[TASK.object(0)], &mut Actions::new());
        assert_eq!(world.core.pending_tasks(), 1);
        world.now = world.now.plus(RETRY_PAUSE_NANOS);
        world.pause();
        assert_eq!(world.core.pending_tasks() == 0, ends, "{retries} retries");
        assert_eq!(world.core.ownership().is_empty(), ends);
    }
}
