//! The messages between a node and its processes, and between those: what is written is read. They are also what the fuzz targets
//! begin with.

use super::*;
use crate::LeaseId;

const WORKER: WorkerId = WorkerId(5);
const TASK: TaskId = TaskId { owner: WorkerId(1), number: 1 };

#[test]
fn processes_come_and_go() {
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
    round_trip(welcome.into());
    round_trip(Refused { reason: "r".into() }.into());
    round_trip(Fork { worker: WORKER }.into());
    round_trip(NodeLives { patience: 5 }.into());
    for error in [None, Some("e".to_owned())] {
        round_trip(Forked { worker: WORKER, pid: 7, error }.into());
    }
    round_trip(Exited { worker: WORKER, reason: "r".into(), killed: Some(true) }.into());
    round_trip(Shutdown { reason: "r".into() }.into());
    let held = vec![Held { object: TASK.object(0), borrower: WORKER, count: 2, of: None }];
    round_trip(HeldFrom { gone: WORKER, held: held.clone() }.into());
    round_trip(Settled { gone: vec![WORKER], held }.into());
}

#[test]
fn leases_and_tasks() {
    let (shape, lease) = (ShapeId(0), LeaseId(3));
    round_trip(LeaseGranted { shape, lease, worker: WORKER, gpus: vec![0] }.into());
    round_trip(ReturnLease { lease }.into());
    round_trip(Unblocked {}.into());
    let place = Remote { node: WORKER.node(), location: Location { offset: SPILLED, length: 8 } };
    let missing = Missing { object: TASK.object(1), place };
    for (lacks_room, missing) in [(None, None), (Some(true), None), (None, Some(vec![missing]))] {
        round_trip(Returned { tasks: vec![TASK], lacks_room, missing }.into());
    }
    round_trip(CancelTask { task: TASK, force: true, recursive: false }.into());
}

#[test]
fn references() {
    let object = TASK.object(0);
    round_trip(AddBorrow { object, borrower: WORKER }.into());
    round_trip(RemoveBorrow { object, count: 1, giver: None, was_said: None }.into());
    round_trip(RemoveBorrow { object, count: 2, giver: Some(WORKER), was_said: Some(true) }.into());
    round_trip(KeepObjects { actor: TASK, objects: vec![object], more: None }.into());
}

#[test]
fn blocks() {
    let offsets = vec![0, 4096];
    round_trip(FreeBlocks { offsets: offsets.clone() }.into());
    round_trip(LoseBlocks { offsets: offsets.clone() }.into());
    round_trip(BlocksLost { offsets: offsets.clone() }.into());
    round_trip(ForgetLost { round: 1, offsets: offsets.clone() }.into());
    round_trip(ReadersOf { round: 1, offsets: offsets.clone() }.into());
    round_trip(StillRead { round: 1, offsets: offsets.clone(), lent: Some(2) }.into());
    round_trip(GivenBlocks { giver: WORKER, offsets: offsets.clone() }.into());
    round_trip(UnknownBlocks { giver: WORKER, offsets }.into());
    round_trip(TrimBlocks { moves: Some(true) }.into());
}

#[test]
fn values_that_leave_the_memory() {
    let block = |spilled| Relinquishing { offset: 4096, spilled };
    let blocks = vec![block(None), block(Some(SPILLED + 1))];
    for recomputes in [None, Some(Recompute::OrSpill), Some(Recompute::OrKeep)] {
        round_trip(Relinquish { blocks: blocks.clone(), gives_way: None, node: None, recomputes }.into());
    }
    let node = Some(NodeId(1 << 24));
    round_trip(Relinquish { blocks: blocks.clone(), gives_way: Some(true), node, recomputes: None }.into());
    round_trip(Relinquished { moved: blocks, others: vec![64], node }.into());
}

#[test]
fn actors() {
    let failure = Failure::new(FailureCode::ActorDied, "gone");
    round_trip(ActorDead { actor: TASK, failure: failure.clone() }.into());
    round_trip(ActorOutOfScope { actor: TASK }.into());
    for failure in [None, Some(failure)] {
        round_trip(ActorReady { actor: TASK, failure }.into());
    }
    let last_started = Some(TASK);
    round_trip(
        ActorRestarting {
            actor: TASK,
            reason: "r".into(),
            last_started,
            nobody_starts_it: None,
            unbegun: None,
        }
        .into(),
    );
    round_trip(Checkpointed { actor: TASK, calls: vec![3, 4] }.into());
    round_trip(Replayed { actor: TASK }.into());
    round_trip(ExitActor { actor: TASK }.into());
    round_trip(KillActor { actor: TASK, may_restart: Some(true) }.into());
    round_trip(SubscribeActor { actor: TASK }.into());
}

#[test]
fn names_and_questions() {
    let (request, name) = (1, "n".to_owned());
    let namespace = || "s".to_owned();
    let description = Blob::from(&b"class"[..]);
    round_trip(
        ReserveName { request, namespace: namespace(), name: name.clone(), actor: TASK, description }.into(),
    );
    round_trip(FindName { request, namespace: namespace(), name }.into());
    for namespace in [None, Some(namespace())] {
        round_trip(ListNames { request, namespace }.into());
    }
    for what in [QueryKind::TotalResources, QueryKind::AvailableResources, QueryKind::Workers] {
        round_trip(Query { request, what }.into());
    }
    round_trip(state::Inspect { request, about: u32::MAX, rows: 4, ..state::Inspect::default() }.into());
}
