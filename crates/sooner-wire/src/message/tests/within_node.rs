//! Samples of the messages between a node and its processes, and between those.

use super::*;
use crate::LeaseId;

const WORKER: WorkerId = WorkerId(5);
const TASK: TaskId = TaskId { owner: WorkerId(1), number: 1 };

/// One of each, and more of those with parts that may be absent.
pub(super) fn samples(add: &mut impl FnMut(Message)) {
    processes_come_and_go(add);
    leases_and_tasks(add);
    references(add);
    blocks(add);
    values_that_leave_the_memory(add);
    actors(add);
    names_and_questions(add);
    state(add);
}

fn processes_come_and_go(add: &mut impl FnMut(Message)) {
    let welcome = Welcome {
        worker: WORKER,
        node: NodeId(1 << 24),
        arena_bytes: 1 << 30,
        inline_bytes: 1 << 16,
        cell: 2,
        driver: WorkerId(1),
        namespace: "n".into(),
        events_bytes: Some(1),
        lineage_bytes: Some(2),
        fallback_bytes: Some(3),
        unpins_lazily: Some(true),
    };
    add(welcome.into());
    add(Refused { reason: "r".into() }.into());
    add(Connect { worker: WORKER }.into());
    add(EndIdle {}.into());
    add(Needed { is_needed: true }.into());
    add(Fork { worker: WORKER }.into());
    add(NodeLives { patience: 5 }.into());
    for error in [None, Some("e".to_owned())] {
        add(Forked { worker: WORKER, pid: 7, error }.into());
    }
    add(Exited { worker: WORKER, reason: "r".into(), killed: Some(true) }.into());
    add(Shutdown { reason: "r".into() }.into());
    let held = vec![Held { object: TASK.object(0), borrower: WORKER, count: 2, of: None }];
    add(HeldFrom { gone: WORKER, held: held.clone() }.into());
    add(Settled { gone: vec![WORKER], held }.into());
}

fn leases_and_tasks(add: &mut impl FnMut(Message)) {
    let (shape, lease) = (ShapeId(0), LeaseId(3));
    add(LeaseGranted { shape, lease, worker: WORKER, gpus: vec![0] }.into());
    add(ReturnLease { lease }.into());
    add(Unblocked {}.into());
    let place = Remote { node: WORKER.node(), location: Location { offset: SpillId(0).offset(), length: 8 } };
    let missing = Missing { object: TASK.object(1), place };
    for (lacks_room, missing) in [(None, None), (Some(true), None), (None, Some(vec![missing]))] {
        add(TasksReturned { tasks: vec![TASK], lacks_room, missing }.into());
    }
    let place = Some(Name::from("f.py:7"));
    for (references, place) in [(vec![], None), (vec![TASK.object(0)], place)] {
        let (name, code) = (Name::from("f"), Blob::from(&b"code"[..]));
        add(Define { function: FunctionId(3), name, code, references, place }.into());
    }
    add(CancelTask { task: TASK, force: true, recursive: false }.into());
}

fn references(add: &mut impl FnMut(Message)) {
    let object = TASK.object(0);
    add(AddBorrow { object, borrower: WORKER }.into());
    add(RemoveBorrow { object, count: 1, giver: None, was_sent: None }.into());
    add(RemoveBorrow { object, count: 2, giver: Some(WORKER), was_sent: Some(true) }.into());
    add(KeepObjects { actor: TASK, objects: vec![object], more: None }.into());
}

fn blocks(add: &mut impl FnMut(Message)) {
    let blocks = vec![BlockId(0), BlockId(4096)];
    let places = vec![Place::of(0), Place::of(4096)];
    add(FreeBlocks { places: places.clone() }.into());
    add(LoseBlocks { blocks: blocks.clone() }.into());
    add(BlocksLost { blocks: blocks.clone() }.into());
    add(ForgetLost { round: Round::of_readers(1), blocks }.into());
    add(ReadersOf { round: Round::of_readers(1), places: places.clone() }.into());
    add(StillRead { round: Round::of_readers(1), places: places.clone(), lent: Some(2) }.into());
    add(GivenBlocks { giver: WORKER, places: places.clone() }.into());
    add(UnknownBlocks { giver: WORKER, places }.into());
    add(Allocate { request: 4, bytes: 5, is_last: Some(true), ahead: Some(vec![6, 7]) }.into());
    let refused = allocated();
    add(Allocated { block: Some(BlockId(64)), ..refused.clone() }.into());
    let holder = BlockHolder { process: WORKER, pid: 2, title: "w".into(), bytes: 1 << 20, objects: 3 };
    let trouble = Some("the disk is full".to_owned());
    let (holders, ahead) = (Some(vec![holder]), Some(vec![BlockId(4096), BlockId(8192)]));
    let told = Allocated { holders, machine_left: Some(5), trouble, ahead, ..refused };
    add(Allocated { is_reserving: Some(true), ..told }.into());
    add(TrimBlocks { moves: Some(true) }.into());
}

fn values_that_leave_the_memory(add: &mut impl FnMut(Message)) {
    let block = |spilled| Relinquishing { block: BlockId(4096), spilled };
    let blocks = vec![block(None), block(Some(SpillId(1)))];
    for recomputes in [None, Some(Recompute::OrSpill), Some(Recompute::OrKeep)] {
        add(Relinquish { blocks: blocks.clone(), gives_way: None, node: None, recomputes }.into());
    }
    let node = Some(NodeId(1 << 24));
    add(Relinquish { blocks: blocks.clone(), gives_way: Some(true), node, recomputes: None }.into());
    add(Relinquished { moved: blocks, others: vec![BlockId(64)], node }.into());
}

fn actors(add: &mut impl FnMut(Message)) {
    let failure = Failure::new(FailureCode::ActorDied, "gone");
    add(ActorDead { actor: TASK, failure: failure.clone() }.into());
    add(ActorOutOfScope { actor: TASK }.into());
    for failure in [None, Some(failure)] {
        add(ActorReady { actor: TASK, failure }.into());
    }
    let last_started = Some(TASK);
    add(ActorRestarting {
        actor: TASK,
        reason: "r".into(),
        last_started,
        nobody_starts_it: None,
        unbegun: None,
    }
    .into());
    add(Checkpointed { actor: TASK, calls: vec![3, 4] }.into());
    add(Replayed { actor: TASK }.into());
    add(ExitActor { actor: TASK }.into());
    add(KillActor { actor: TASK, may_restart: Some(true) }.into());
    add(SubscribeActor { actor: TASK }.into());
}

fn names_and_questions(add: &mut impl FnMut(Message)) {
    let (request, name) = (1, "n".to_owned());
    let namespace = || "s".to_owned();
    let description = Blob::from(&b"class"[..]);
    add(ReserveName { request, namespace: namespace(), name: name.clone(), actor: TASK, description }.into());
    add(FindName { request, namespace: namespace(), name }.into());
    for namespace in [None, Some(namespace())] {
        add(ListNames { request, namespace }.into());
    }
    for what in [QueryKind::TotalResources, QueryKind::AvailableResources, QueryKind::Workers] {
        add(Query { request, what }.into());
    }
    add(state::Inspect { request, about: u32::MAX, rows: 4, ..state::Inspect::default() }.into());
}

/// A refusal that says nothing more.
pub(super) fn allocated() -> Allocated {
    Allocated {
        request: 4,
        block: None,
        used: 1,
        capacity: 2,
        moves: None,
        holders: None,
        machine_left: None,
        is_reserving: None,
        trouble: None,
        ahead: None,
    }
}

fn state(add: &mut impl FnMut(Message)) {
    let report = state::Report { pid: 7, ..state::Report::default() };
    add(Inspected { request: 1, worker: WORKER, report: Box::new(report) }.into());
    let silent_nodes = Some(vec![WORKER.node()]);
    let error = Some("e".to_owned());
    add(InspectEnd { request: 1, silent: vec![WORKER], error, silent_nodes, ..InspectEnd::default() }.into());
    let series = state::Series {
        name: "m".into(),
        kind: state::MetricKind::Histogram,
        description: "d".into(),
        tags: vec![("k".into(), "v".into())],
        boundaries: vec![0.5],
        values: vec![1.0, 0.0, 0.25],
    };
    add(Measured { series: vec![series] }.into());
}
