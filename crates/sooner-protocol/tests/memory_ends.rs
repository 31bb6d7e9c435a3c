//! A task whose worker its node stopped because memory ran out is tried again later, with a larger
//! reservation and a budget of its own, as long as that can help.

use std::sync::Arc;

use sooner_protocol::time::Instant;
use sooner_protocol::worker::WorkerCore;
use sooner_protocol::worker::action::{Action, Actions, Peer};
use sooner_protocol::worker::ownership::Slot;
use sooner_wire::limits::{MEMORY_RETRIES_MAX, RETRY_PAUSE_NANOS};
use sooner_wire::message::{
    Define, Failure, FailureCode, LeaseGranted, MemoryEnd, Message, Outcome, RequestLease, TaskKind,
    TaskSpec, WorkerDead,
};
use sooner_wire::resources::UNIT;
use sooner_wire::{Blob, FunctionId, LeaseId, Name, ObjectId, ResourceSet, TaskId, WorkerId};

const ME: WorkerId = WorkerId(1);
const TASK: TaskId = TaskId { owner: ME, number: 1 };
const GIB: u64 = 1 << 30;

struct World {
    core: WorkerCore,
    slot: Arc<Slot>,
    now: Instant,
    workers: u64,
    /// What the core asked for last.
    asked: Option<RequestLease>,
    /// Whether what was pushed last says that it has no retry left.
    spared: Option<bool>,
}

impl World {
    fn new(retries: i32) -> Self {
        Self::of(None, &[], retries)
    }

    fn of(parent: Option<TaskId>, references: &[ObjectId], retries: i32) -> Self {
        Self::that_reserves(0, parent, references, retries)
    }

    fn that_reserves(memory: u64, parent: Option<TaskId>, references: &[ObjectId], retries: i32) -> Self {
        let mut core = WorkerCore::new(ME);
        let (function, name, code) = (FunctionId(1), Name::from("f"), Blob::default());
        core.define(Define { function, name: name.clone(), code, references: vec![], place: None });
        let mut resources = ResourceSet::from_amounts([("CPU".to_owned(), 1.0)]);
        resources.add_one("memory", memory * UNIT);
        let shape = core.shape(&resources);
        let spec = TaskSpec::new(TASK, TaskKind::Task(shape), function, name, Blob::default());
        let slot = Arc::new(Slot::default());
        slot.acquire();
        let spec = Arc::new(TaskSpec { retries, references: references.into(), ..spec });
        let mut out = Actions::new();
        core.submit(spec, [slot.clone()], parent, &mut out);
        let mut world = Self { core, slot, now: Instant(0), workers: 100, asked: None, spared: None };
        world.read(&out);
        world
    }

    fn read(&mut self, out: &Actions) {
        for action in out {
            match action {
                Action::Send { to: Peer::Node, message } => {
                    if let Message::RequestLease(request) = &**message {
                        self.asked =
                            Some(request.clone()).filter(|request| request.demand > 0).or(self.asked.take());
                    }
                }
                Action::Push { spec, .. } => self.spared = spec.spared,
                _ => {}
            }
        }
    }

    fn receive(&mut self, message: impl Into<Message>) {
        let mut out = Actions::new();
        self.core.on_message(Peer::Node, message.into(), self.now, &mut out);
        self.read(&out);
    }

    fn reserved(&self) -> u64 {
        self.asked.as_ref().expect("it asked").resources.amount("memory") / UNIT
    }

    /// Whether its node hears that a limit would cost it nothing but time.
    fn raises_memory(&self) -> Option<bool> {
        self.asked.as_ref().expect("it asked").raises_memory
    }

    /// Gives the core the worker it asked for, which is stopped while it runs the task.
    fn stop(&mut self, held: u64, reservable: u64, has_begun: bool) {
        let end =
            MemoryEnd { report: "the table".to_owned(), held, reservable, by_kernel: None, limit: None };
        self.end(end, has_begun);
    }

    /// The same by the kernel, where 16 GiB can be reserved.
    fn end_by_kernel(&mut self, held: u64) {
        self.end(
            MemoryEnd { held, reservable: 16 * GIB, by_kernel: Some(true), ..MemoryEnd::default() },
            true,
        );
    }

    fn end(&mut self, end: MemoryEnd, has_begun: bool) {
        self.workers += 1;
        let worker = WorkerId(self.workers);
        let shape = self.asked.as_ref().expect("it asked").shape;
        self.receive(LeaseGranted { shape, lease: LeaseId(self.workers), worker, gpus: Vec::new() });
        let memory = Some(Box::new(end));
        let last_started = has_begun.then_some(TASK);
        self.receive(WorkerDead { worker, last_started, memory, ..WorkerDead::default() });
    }

    /// Lets the pause pass, and says how long it was.
    fn pause(&mut self) -> Option<u64> {
        self.core.on_timer(self.now, &mut Actions::new());
        let next = self.core.next_deadline()?;
        let pause = next.since(self.now);
        self.now = next;
        let mut out = Actions::new();
        self.core.on_timer(self.now, &mut out);
        self.read(&out);
        Some(pause)
    }

    fn failure(&self) -> Option<Failure> {
        match self.slot.outcome()?.into_owned() {
            Outcome::Failed(failure) => Some(*failure),
            other => panic!("it gave {other:?}"),
        }
    }
}

#[test]
fn a_task_that_may_not_be_retried_fails_with_the_table() {
    let mut world = World::new(0);
    world.stop(3 * GIB, 16 * GIB, true);
    let failure = world.failure().expect("it failed");
    assert_eq!(failure.code, FailureCode::OutOfMemory);
    for part in ["f()", "3.00 GiB", "max_retries=0", "the table"] {
        assert!(failure.message.contains(part), "{part}: {}", failure.message);
    }
    assert_eq!(world.core.pending_tasks(), 0);
}

#[test]
fn each_retry_waits_longer_and_reserves_half_as_much_again() {
    let mut world = World::new(3);
    assert_eq!(world.reserved(), 0);
    for (round, (held, reserved)) in [(2, 3), (4, 6), (6, 9), (1, 9)].into_iter().enumerate() {
        world.stop(held * GIB, 16 * GIB, true);
        assert_eq!(world.pause(), Some(RETRY_PAUSE_NANOS << round));
        assert_eq!(world.reserved(), reserved * GIB, "round {round}");
    }
    assert_eq!(world.failure(), None, "more often than max_retries: the budget is another");
    world.core.check();
}

#[test]
fn who_had_reserved_everything_and_is_stopped_nevertheless_fails() {
    let mut world = World::new(-1);
    world.stop(12 * GIB, 16 * GIB, true);
    world.pause();
    assert_eq!(world.reserved(), 16 * GIB);
    world.stop(17 * GIB, 16 * GIB, true);
    let failure = world.failure().expect("it failed");
    assert_eq!(failure.code, FailureCode::OutOfMemory);
    assert!(failure.message.contains("all the memory that can be reserved there (16.00 GiB)"), "{failure:?}");
}

#[test]
fn whom_the_kernel_took_although_it_kept_to_its_reservation_is_tried_again() {
    let mut world = World::new(-1);
    for held in [12, 10, 10, 10, 10] {
        world.end_by_kernel(held * GIB);
        assert_eq!((world.failure(), world.pause().is_some()), (None, true));
        assert_eq!(world.reserved(), 16 * GIB);
    }
    world.end_by_kernel(17 * GIB);
    assert_eq!(world.failure().map(|failure| failure.code), Some(FailureCode::OutOfMemory));
}

#[test]
fn whom_the_kernel_took_with_more_than_can_be_reserved_is_too_large_when_that_has_happened_often() {
    let mut world = World::new(-1);
    for _ in 0..3 {
        // Another one may have gone at the same time, whose memory is counted, too.
        world.end_by_kernel(17 * GIB);
        assert_eq!((world.failure(), world.pause().is_some()), (None, true));
    }
    world.end_by_kernel(17 * GIB);
    assert_eq!(world.failure().map(|failure| failure.code), Some(FailureCode::OutOfMemory));
}

#[test]
fn the_budget_ends_and_the_node_is_told_before() {
    let mut world = World::new(-1);
    for _ in 0..MEMORY_RETRIES_MAX {
        world.stop(GIB, 0, true);
        assert_eq!((world.spared, world.failure()), (None, None));
        world.pause();
        assert_eq!(world.reserved(), 0, "memory is no resource there");
    }
    world.stop(GIB, 0, true);
    assert_eq!(world.spared, Some(true), "the last one was pushed so");
    assert_eq!(world.failure().map(|failure| failure.code), Some(FailureCode::OutOfMemory));
    assert_eq!(world.core.pending_tasks(), 0);
}

#[test]
fn a_task_that_had_not_begun_is_pushed_again_at_once_and_unchanged() {
    let mut world = World::new(0);
    world.stop(2 * GIB, 16 * GIB, false);
    assert_eq!(world.pause(), None);
    assert_eq!((world.failure(), world.reserved()), (None, 0));
    world.stop(2 * GIB, 16 * GIB, true);
    assert!(world.failure().is_some());
}

#[test]
fn what_others_may_wait_for_while_it_waits_reserves_no_more() {
    let parent = TaskId { owner: WorkerId(9), number: 1 };
    for mut world in [World::of(Some(parent), &[], 3), World::of(None, &[parent.object(0)], 3)] {
        world.stop(2 * GIB, 16 * GIB, true);
        assert!(world.pause().is_some());
        assert_eq!((world.reserved(), world.failure()), (0, None));
    }
}

#[test]
fn a_cancelled_task_is_not_retried() {
    let mut world = World::new(-1);
    world.workers += 1;
    world.core.cancel(TASK, false, true, &mut Actions::new());
    assert_eq!(world.failure().map(|failure| failure.code), Some(FailureCode::Cancelled));
    assert_eq!(world.pause(), None);
}

#[test]
fn a_node_may_limit_the_memory_of_what_is_executed_again_with_more() {
    let parent = TaskId { owner: WorkerId(9), number: 1 };
    let raises = |memory, parent, references: &[ObjectId], retries| {
        World::that_reserves(memory, parent, references, retries).raises_memory()
    };
    assert_eq!(raises(GIB, None, &[], 3), Some(true));
    assert_eq!(raises(GIB, None, &[], -1), Some(true));
    assert_eq!(raises(GIB, None, &[], 0), None, "it is not executed again");
    assert_eq!(raises(GIB, Some(parent), &[], 3), None, "it would reserve no more");
    assert_eq!(raises(GIB, None, &[parent.object(0)], 3), None, "nor would that");
    assert_eq!(raises(0, None, &[], 3), None, "it said nothing");
}

#[test]
fn who_is_ended_at_its_limit_has_a_larger_one_next_until_the_last_time() {
    let mut world = World::that_reserves(GIB, None, &[], -1);
    for ends in 1..=MEMORY_RETRIES_MAX {
        let limit = world.reserved() + GIB / 8;
        world.end(
            MemoryEnd { held: limit, reservable: 160 * GIB, limit: Some(limit), ..MemoryEnd::default() },
            true,
        );
        let before = limit - GIB / 8;
        world.pause();
        assert!(world.reserved() > before || before == 160 * GIB, "{} after {before}", world.reserved());
        // Who reserves all there is has no limit any more; nor would the last execution.
        let is_over = world.reserved() == 160 * GIB;
        assert_eq!(world.raises_memory(), (!is_over && ends < MEMORY_RETRIES_MAX).then_some(true));
        if is_over {
            return;
        }
    }
    panic!("it never reserves all there is");
}

#[test]
fn who_is_not_executed_again_hears_which_limit_it_was() {
    let mut world = World::that_reserves(GIB, None, &[], 0);
    let end = MemoryEnd {
        report: "the table".to_owned(),
        held: 2 * GIB,
        limit: Some(2 * GIB),
        ..MemoryEnd::default()
    };
    world.end(end, true);
    let failure = world.failure().expect("it failed");
    assert_eq!(failure.code, FailureCode::OutOfMemory);
    for part in
        ["f() was ended because it took more memory than its limit of 2.00 GiB", "max_retries=0", "the table"]
    {
        assert!(failure.message.contains(part), "{part}: {}", failure.message);
    }
}

#[test]
fn who_is_ended_at_its_limit_waits_for_nobody_to_have_a_larger_one() {
    // Others have the rest, and may never end.
    for (reservable, reserved) in [(4, 4), (5, 5), (64, 8)] {
        let mut world = World::that_reserves(4 * GIB, None, &[], -1);
        let end = MemoryEnd {
            held: 4 * GIB + GIB / 2,
            reservable: reservable * GIB,
            limit: Some(4 * GIB + GIB / 2),
            ..MemoryEnd::default()
        };
        world.end(end, true);
        assert!(world.pause().is_some());
        let is_limited = reserved < reservable;
        assert_eq!(world.reserved() / GIB, reserved, "{reservable}");
        assert_eq!(world.raises_memory(), is_limited.then_some(true));
        assert_eq!(world.failure(), None);
    }
}
