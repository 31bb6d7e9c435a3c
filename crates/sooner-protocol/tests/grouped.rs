//! A process that has to do with a placement group: who hears what, and what fails with which words.

use std::sync::Arc;

use sooner_protocol::time::Instant;
use sooner_protocol::worker::WorkerCore;
use sooner_protocol::worker::action::{Action, Actions, Peer};
use sooner_protocol::worker::ownership::Slot;
use sooner_wire::message::{
    Closed, CreateGroup, Define, Failure, FailureCode, FindGroup, GroupPhase, GroupRow, GroupState,
    GroupStrategy, Infeasible, LeaseGranted, Message, Outcome, RequestLease, TaskKind, TaskSpec,
};
use sooner_wire::strategy::InGroup;
use sooner_wire::{
    Blob, FunctionId, GroupId, LeaseId, Name, ResourceSet, ShapeId, Strategy, TaskId, WorkerId,
};

mod kit;

use kit::worker_dead;

const ME: WorkerId = WorkerId(1);
const WORKER: WorkerId = WorkerId(5);
const FUNCTION: FunctionId = FunctionId(3);
const GROUP: GroupId = TaskId { owner: ME, number: 50 };
const FOREIGN: GroupId = TaskId { owner: WORKER, number: 50 };

fn value() -> Outcome {
    Outcome::Inline(Blob::from(&b"ready"[..]))
}

fn news(group: GroupId, phase: GroupPhase) -> GroupState {
    let strategy = GroupStrategy::Pack;
    let row = GroupRow {
        group,
        title: None,
        strategy,
        phase,
        bundles: vec![],
        reason: None,
        detached: false,
        attempts: 0,
    };
    GroupState { request: 0, groups: vec![row], error: None }
}

struct Process {
    core: WorkerCore,
    out: Actions,
}

impl Process {
    fn new() -> Self {
        let mut core = WorkerCore::new(ME);
        let (code, references) = (Blob::default(), Vec::new());
        core.define(Define { function: FUNCTION, name: Name::from("f"), code, references, place: None });
        Self { core, out: Actions::new() }
    }

    fn shape(&mut self, group: GroupId) -> ShapeId {
        let place = Strategy::Group(InGroup { group, bundle: None, captures: false });
        self.core.shape_at(&ResourceSet::default(), &place, &mut self.out)
    }

    fn submit(&mut self, number: u64, shape: ShapeId, retries: i32) -> Arc<Slot> {
        let slot = Arc::new(Slot::default());
        slot.acquire();
        let task = TaskId { owner: ME, number };
        let spec = TaskSpec::new(task, TaskKind::Task(shape), FUNCTION, Name::from("f"), Blob::default());
        let spec = Arc::new(TaskSpec { retries, ..spec });
        self.core.submit(spec, [slot.clone()], None, &mut self.out);
        slot
    }

    fn awaits(&mut self, number: u64, group: GroupId) -> Arc<Slot> {
        let slot = Arc::new(Slot::default());
        slot.acquire();
        let object = TaskId { owner: ME, number }.object(0);
        self.core.await_group(group, object, slot.clone(), value(), &mut self.out);
        slot
    }

    fn receive(&mut self, message: impl Into<Message>) {
        assert_eq!(self.core.on_message(Peer::Node, message.into(), Instant(10), &mut self.out), None);
        self.core.check();
    }

    fn said(&mut self) -> Vec<Message> {
        let message = |action| match action {
            Action::Send { message, .. } => Some(*message),
            _ => None,
        };
        self.out.drain(..).filter_map(message).collect()
    }
}

fn code(slot: &Slot) -> Option<FailureCode> {
    match slot.outcome().as_deref() {
        Some(Outcome::Failed(failure)) => Some(failure.code),
        _ => None,
    }
}

#[test]
fn who_waits_for_a_group_gets_the_value_when_it_is_created() {
    let mut process = Process::new();
    let bundles = Vec::new();
    let strategy = GroupStrategy::Pack;
    let create = CreateGroup { request: 0, group: GROUP, title: None, strategy, bundles, driver: None };
    process.core.create_group(create.clone(), &mut process.out);
    assert_eq!(process.said(), [create.into()]);
    assert!(!process.core.is_group_known(GROUP), "others may not be told yet");
    let early = process.awaits(60, GROUP);
    process.receive(news(GROUP, GroupPhase::Pending));
    assert!(process.core.is_group_known(GROUP) && !early.has_outcome());
    process.receive(news(GROUP, GroupPhase::Created));
    assert_eq!(early.outcome().as_deref(), Some(&value()));
    assert_eq!(process.awaits(61, GROUP).outcome().as_deref(), Some(&value()), "at once");
    process.receive(news(GROUP, GroupPhase::Rescheduling));
    assert_eq!(process.awaits(62, GROUP).outcome(), None, "its bundles are gone");
    process.receive(news(GROUP, GroupPhase::Created));
    assert_eq!(process.said(), []);
    process.core.remove_group(GROUP, &mut process.out);
    assert_eq!(process.awaits(63, GROUP).outcome(), None, "it is on its way out");
}

#[test]
fn a_group_of_another_process_is_asked_about_once() {
    let mut process = Process::new();
    let first = process.awaits(60, FOREIGN);
    process.shape(FOREIGN);
    let find = FindGroup { request: 0, group: Some(FOREIGN), title: None, attempt: None };
    assert_eq!(process.said(), [find.clone().into()]);
    process.receive(news(FOREIGN, GroupPhase::Removed));
    assert_eq!(code(&first), Some(FailureCode::TaskGroupRemoved));
    process.awaits(61, FOREIGN);
    assert_eq!(process.said(), [find.into()], "what is removed is forgotten");
}

#[test]
fn removal_fails_what_waits_what_runs_and_what_comes() {
    let mut process = Process::new();
    let shape = process.shape(FOREIGN);
    let tasks: Vec<Arc<Slot>> = (1..=3).map(|number| process.submit(number, shape, -1)).collect();
    process.receive(LeaseGranted { shape, lease: LeaseId(1), worker: WORKER, gpus: vec![] });
    process.receive(news(FOREIGN, GroupPhase::Removed));
    let codes = |slots: &[Arc<Slot>]| slots.iter().map(|slot| code(slot)).collect::<Vec<_>>();
    let removed = Some(FailureCode::TaskGroupRemoved);
    assert_eq!(codes(&tasks), [None, removed, removed], "the first one runs");
    let gone = worker_dead(WORKER, "was killed");
    process.receive(gone);
    assert_eq!(codes(&tasks), [removed; 3], "and is not tried again");
    process.said();
    assert_eq!(code(&process.submit(4, shape, 3)), removed);
    assert_eq!(process.said(), [], "nothing is asked for");
    assert_eq!(process.core.pending_tasks(), 0);
}

#[test]
fn a_shape_that_will_never_be_granted_fails_its_tasks_and_no_others() {
    let mut process = Process::new();
    let place = Strategy::Spread;
    let bound = process.core.shape_at(&ResourceSet::default(), &place, &mut process.out);
    let other = process.core.shape(&ResourceSet::default());
    let (task, free) = (process.submit(1, bound, 0), process.submit(2, other, 0));
    let asked = |message: &Message| match message {
        Message::RequestLease(RequestLease { strategy, .. }) => strategy.as_deref().cloned(),
        other => panic!("{other:?}"),
    };
    assert_eq!(process.said().iter().map(asked).collect::<Vec<_>>(), [Some(place), None]);
    let failure = Failure::new(FailureCode::TaskUnschedulable, "there is no such node");
    let closed = Some(Box::new(Closed { shape: bound, failure, for_now: None }));
    process.receive(Infeasible {
        asked: ResourceSet::default(),
        total: ResourceSet::default(),
        closed,
        reason: None,
    });
    assert_eq!((code(&task), code(&free)), (Some(FailureCode::TaskUnschedulable), None));
    assert_eq!(code(&process.submit(3, bound, 5)), Some(FailureCode::TaskUnschedulable));
}

#[test]
fn an_answer_is_news_too_and_goes_to_who_asked() {
    let mut process = Process::new();
    let slot = process.awaits(60, FOREIGN);
    let answer = GroupState { request: 7, ..news(FOREIGN, GroupPhase::Created) };
    let left = process.core.on_message(Peer::Node, answer.clone().into(), Instant(10), &mut process.out);
    assert_eq!(left, Some(answer.into()));
    assert_eq!(slot.outcome().as_deref(), Some(&value()));
}
