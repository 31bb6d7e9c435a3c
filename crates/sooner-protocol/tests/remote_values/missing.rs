//! Values that are not where somebody believes them to be: nodes that are gone, and borrowers who say so to
//! the owner.

use sooner_wire::BlockId;
use sooner_wire::message::{
    AddBorrow, Fetch, Locate, Recompute, Relinquish, Relinquishing, SenderFailed, SpillId,
};

use super::*;

const ELSEWHERE: Remote =
    Remote { node: NodeId(3 << 24), location: Location { offset: 64, length: 1 << 20 } };

fn elsewhere() -> Outcome {
    Outcome::Remote(Box::new(ELSEWHERE))
}

fn is_pushed(out: &Actions) -> bool {
    out.iter().any(|action| matches!(action, Action::Push { .. }))
}

/// Submits task 2, which takes this.
fn submit_second(core: &mut WorkerCore, object: ObjectId) -> Actions {
    let shape = core.shape(&ResourceSet::default());
    let second = Arc::new(Slot::default());
    second.acquire();
    let mut out = Actions::new();
    let takes = spec(task(ME, 2), TaskKind::Task(shape), &[object]);
    core.submit(Arc::new(takes), [second], None, &mut out);
    out
}

/// The numbers of the tasks that are pushed.
fn pushed(out: &Actions) -> Vec<u64> {
    let numbers = out.iter().filter_map(|action| match action {
        Action::Push { spec, .. } => Some(spec.task.number),
        _ => None,
    });
    numbers.collect()
}

fn fetch(object: ObjectId, missing_at: Option<Remote>) -> Fetch {
    Fetch { object, missing_at }
}

fn value(object: ObjectId, outcome: Outcome) -> Value {
    Value { object, outcome, contained: Vec::new() }
}

#[test]
fn an_owner_computes_again_what_was_at_a_node_that_is_gone() {
    let (mut core, object, slot) = owner();
    assert_eq!(on(&mut core, Peer::Node, node_dead(NodeId(4 << 24))), [], "nothing was there");
    assert!(!is_pushed(&on(&mut core, Peer::Node, node_dead(THERE))), "its worker is gone with the node");
    assert!(is_pushed(&lease_elsewhere(&mut core)));
    assert_eq!(slot.outcome().as_deref(), None);
    on(&mut core, Peer::Worker(SPARE), reply(1, elsewhere()));
    assert_eq!(slot.outcome().as_deref(), Some(&elsewhere()));
    let freed = drop_last(&mut core, object, &slot);
    assert_eq!(
        freed,
        [to_node(FreeAt { node: ELSEWHERE.node, places: vec![BlockId(64).into()] })],
        "nobody is left there"
    );
    assert!(core.ownership().is_empty());
}

#[test]
fn what_comes_late_from_a_node_that_is_gone_is_lost() {
    let (mut core, _, slot) = owner();
    on(&mut core, Peer::Node, node_dead(THERE));
    lease_elsewhere(&mut core);
    let out = on(&mut core, Peer::Worker(SPARE), reply(1, remote()));
    assert!(is_pushed(&out), "it is computed once more: {out:?}");
    assert_eq!(slot.outcome().as_deref(), None);
}

#[test]
fn a_task_that_ran_at_a_node_that_is_gone_waits_for_its_arguments() {
    let (mut core, object, slot) = owner();
    let shape = core.shape(&ResourceSet::default());
    submit_second(&mut core, object);
    drop_last(&mut core, object, &slot);
    on(&mut core, Peer::Node, node_dead(THERE));
    let ended = WorkerDead { worker: FAR, all_begun: Some(true), ..WorkerDead::default() };
    on(&mut core, Peer::Node, ended);
    let grant = LeaseGranted { shape, lease: LeaseId(2), worker: NEIGHBOUR, gpus: Vec::new() };
    assert_eq!(pushed(&on(&mut core, Peer::Node, grant)), [1], "what it takes is computed first");
    let inline = Outcome::Inline(Blob::default());
    assert_eq!(pushed(&on(&mut core, Peer::Worker(NEIGHBOUR), reply(1, inline))), [2]);
}

/// It was never at the place that it has moved to (`docs/adr/0049-dropped-rather-than-written.md`).
#[test]
fn what_other_nodes_do_not_find_on_the_disk_of_this_one_is_made_again() {
    let (mut core, object, slot) = owner_of(NEIGHBOUR, Outcome::Stored(THE_COPY));
    let block = Relinquishing { block: BlockId(THE_COPY.offset), spilled: Some(SpillId(1)) };
    let recomputes = Some(Recompute::OrKeep);
    on(&mut core, Peer::Node, Relinquish { blocks: vec![block], gives_way: None, node: None, recomputes });

    let out = on(&mut core, Peer::Node, Locate { object, node: THERE });
    assert_eq!(pushed(&out), [1], "the owner knows that it dropped it");
    assert_eq!(slot.outcome().as_deref(), None);
    let located = |out: &Actions| {
        let mut words = out.iter().filter_map(|action| match action {
            Action::Send { message, .. } => match &**message {
                Message::Located(located) => Some((located.node, located.sender)),
                _ => None,
            },
            _ => None,
        });
        words.next()
    };
    assert_eq!(located(&out), Some((THERE, None)), "and sends nobody where it is not: {out:?}");
    // Who asked asks again, and is sent to what the task has made.
    on(&mut core, Peer::Worker(NEIGHBOUR), reply(1, elsewhere()));
    let out = on(&mut core, Peer::Node, Locate { object, node: THERE });
    assert_eq!(located(&out), Some((THERE, Some(ELSEWHERE))));
}

/// A value that was dropped at another node, of which the owner has a copy.
#[test]
fn what_was_dropped_and_is_here_all_the_same_is_not_made_again() {
    let (mut core, object, slot) = owner();
    bring(&mut core, object);
    pulled(&mut core, object);
    let block = Relinquishing { block: BlockId(THE_REMOTE.location.offset), spilled: Some(SpillId(1)) };
    let recomputes = Some(Recompute::OrKeep);
    let question = Relinquish { blocks: vec![block], gives_way: None, node: Some(THERE), recomputes };
    on(&mut core, Peer::Node, question);
    let out = on(&mut core, Peer::Node, Locate { object, node: ELSEWHERE.node });
    assert!(!is_pushed(&out), "{out:?}");
    let here = Remote { node: HERE, location: THE_COPY };
    let named = out.iter().any(|action| {
        matches!(action, Action::Send { message, .. }
            if matches!(&**message, Message::Located(located) if located.sender == Some(here)))
    });
    assert!(named, "it is sent here: {out:?}");
    assert_eq!(slot.outcome().as_deref(), Some(&Outcome::Stored(THE_COPY)));
}

#[test]
fn a_copy_is_the_value_when_the_node_that_made_it_is_gone() {
    let (mut core, object, slot) = owner();
    bring(&mut core, object);
    pulled(&mut core, object);
    assert_eq!(on(&mut core, Peer::Node, node_dead(THERE)), []);
    assert_eq!(core.ownership().outcome_for(object, Some(FAR)), Some(Outcome::Stored(THE_COPY)));
    let freed = drop_last(&mut core, object, &slot);
    assert_eq!(freed, [to_node(FreeBlocks { places: vec![THE_COPY.place()] })]);
}

/// Found by the simulator (seed 6200001785): an item of a generator was declared lost.
#[test]
fn what_is_not_where_it_was_borrowed_takes_nothing_else_along_that_is_there_now() {
    let (mut core, _, slot) = owner();
    // Told before its block was used again for the value above.
    let borrowed = task(FAR, 7).object(0);
    let old = core.ownership_mut().received(borrowed);
    old.acquire();
    core.ownership_mut().need(borrowed, &mut Actions::new());
    on(&mut core, Peer::Worker(FAR), value(borrowed, remote()));
    // A worker whose task took it did not find it there.
    let missing = Some(vec![Missing { object: borrowed, place: THE_REMOTE }]);
    let out =
        on(&mut core, Peer::Worker(FAR), TasksReturned { tasks: Vec::new(), lacks_room: None, missing });
    assert!(!is_pushed(&out), "nothing is made again: {out:?}");
    assert_eq!(slot.outcome().as_deref(), Some(&remote()), "it is there");
    assert_eq!(old.outcome().as_deref(), None, "its owner says where that one is");
}

#[test]
fn an_owner_believes_a_borrower_that_did_not_find_the_value() {
    let (mut core, object, slot) = owner();
    on(&mut core, Peer::Worker(NEIGHBOUR), AddBorrow { object, borrower: NEIGHBOUR });
    let asked = on(&mut core, Peer::Worker(NEIGHBOUR), fetch(object, Some(ELSEWHERE)));
    assert_eq!(asked, [to(NEIGHBOUR, value(object, remote()))], "that is not where it is");
    let asked = on(&mut core, Peer::Worker(NEIGHBOUR), fetch(object, Some(THE_REMOTE)));
    assert!(is_pushed(&asked), "{asked:?}");
    assert_eq!(slot.outcome().as_deref(), None);
    // The word of a second one is old by now.
    assert_eq!(on(&mut core, Peer::Worker(FAR), fetch(object, Some(THE_REMOTE))), []);
    let out = on(&mut core, Peer::Worker(FAR), reply(1, elsewhere()));
    for borrower in [NEIGHBOUR, FAR] {
        assert!(out.contains(&to(borrower, value(object, elsewhere()))), "{out:?}");
    }
}

#[test]
fn an_owner_with_a_copy_names_it_to_a_borrower_that_did_not_find_the_value() {
    let (mut core, object, _slot) = owner();
    bring(&mut core, object);
    pulled(&mut core, object);
    let asked = on(&mut core, Peer::Worker(FAR), fetch(object, Some(THE_REMOTE)));
    assert_eq!(asked, [to(FAR, value(object, Outcome::Stored(THE_COPY)))]);
}

#[test]
fn a_borrower_says_where_the_value_is_not_until_it_is_named_another_place() {
    let (mut core, object, slot) = borrower();
    bring(&mut core, object);
    assert_eq!(not_there(&mut core, object), [to(FAR, fetch(object, Some(THE_REMOTE)))]);
    let same = on(&mut core, Peer::Worker(FAR), value(object, remote()));
    assert_eq!(same, [to(FAR, fetch(object, Some(THE_REMOTE)))], "it is believed the second time");
    on(&mut core, Peer::Worker(FAR), value(object, elsewhere()));
    assert_eq!(slot.outcome().as_deref(), Some(&elsewhere()));
}

#[test]
fn a_borrower_looks_again_where_a_value_may_be_after_all() {
    let (mut core, object, slot) = borrower();
    bring(&mut core, object);
    let unsure = Pulled { object, location: None, failure: None, tried: None };
    assert_eq!(on(&mut core, Peer::Node, unsure), [to(FAR, fetch(object, None))]);
    on(&mut core, Peer::Worker(FAR), value(object, remote()));
    assert_eq!(slot.outcome().as_deref(), Some(&remote()));
    assert_eq!(bring(&mut core, object), [pull(object, Priority::Get)]);
}

#[test]
fn where_another_process_did_not_find_a_value_says_nothing_of_its_own_place() {
    let (mut core, object, slot) = borrower();
    bring(&mut core, object);
    let answer = Pulled { object, location: None, failure: None, tried: Some(ELSEWHERE) };
    assert_eq!(on(&mut core, Peer::Node, answer), [pull(object, Priority::Get)], "its own is tried");
    assert_eq!(slot.outcome().as_deref(), Some(&remote()));
}

#[test]
fn tasks_go_back_to_their_callers_when_arguments_are_lost_with_a_node() {
    let mut core = WorkerCore::new(ME);
    let object = task(FAR, 1).object(0);
    let kind = TaskKind::Task(sooner_wire::ShapeId(0));
    let push = |caller: WorkerId, number| Push {
        spec: Box::new(spec(task(caller, number), kind, &[object])),
        dependencies: vec![Dependency { object, outcome: elsewhere(), contained: Vec::new() }],
        gpus: Vec::new(),
    };
    on(&mut core, Peer::Worker(FAR), push(FAR, 2));
    let back = to(FAR, TasksReturned { tasks: vec![task(FAR, 2)], lacks_room: None, missing: None });
    assert!(on(&mut core, Peer::Node, node_dead(ELSEWHERE.node)).contains(&back), "everybody hears of that");
    // Who has not heard of it hears it with its task, and does not push that again as it is.
    for caller in [FAR, NEIGHBOUR] {
        let again = on(&mut core, Peer::Worker(caller), push(caller, 3));
        let missing = Some(vec![Missing { object, place: ELSEWHERE }]);
        let back = TasksReturned { tasks: vec![task(caller, 3)], lacks_room: None, missing };
        assert_eq!(again, [to(FAR, fetch(object, Some(ELSEWHERE))), to(caller, back)]);
    }
    assert!(core.next_execution().is_none());
}

/// A task of ours comes back unexecuted: its argument is not there. Gives what is said then.
fn came_back(core: &mut WorkerCore, object: ObjectId, place: Remote) -> Actions {
    core.define(define());
    let shape = core.shape(&ResourceSet::default());
    let mut out = submit_second(core, object);
    if !is_pushed(&out) {
        out = on(core, Peer::Node, LeaseGranted { shape, lease: LeaseId(1), worker: FAR, gpus: Vec::new() });
    }
    assert_eq!(pushed(&out), [2]);
    let missing = Some(vec![Missing { object, place }]);
    on(core, Peer::Worker(FAR), TasksReturned { tasks: vec![task(ME, 2)], lacks_room: None, missing })
}

#[test]
fn a_task_that_did_not_find_a_borrowed_argument_waits_for_its_owner() {
    let (mut core, object, slot) = borrower();
    let out = came_back(&mut core, object, THE_REMOTE);
    assert!(out.contains(&to(FAR, fetch(object, Some(THE_REMOTE)))) && !is_pushed(&out), "{out:?}");
    assert_eq!(slot.outcome().as_deref(), None);
    let inline = value(object, Outcome::Inline(Blob::default()));
    assert_eq!(pushed(&on(&mut core, Peer::Worker(FAR), inline)), [2]);
}

#[test]
fn a_task_that_did_not_find_an_argument_of_ours_waits_until_it_is_made_again() {
    let (mut core, object, _slot) = owner();
    let out = came_back(&mut core, object, THE_REMOTE);
    assert_eq!(pushed(&out), [1], "what it takes is computed first");
    let inline = Outcome::Inline(Blob::default());
    assert_eq!(pushed(&on(&mut core, Peer::Worker(FAR), reply(1, inline))), [2]);
}

#[test]
fn a_task_whose_argument_has_moved_meanwhile_is_pushed_again() {
    let (mut core, object, slot) = borrower();
    assert!(is_pushed(&came_back(&mut core, object, ELSEWHERE)));
    assert_eq!(slot.outcome().as_deref(), Some(&remote()));
}

#[test]
fn a_constructor_whose_state_went_with_a_node_learns_why() {
    let mut core = WorkerCore::new(ME);
    let actor = task(NEIGHBOUR, 9);
    let state = Some(plain(remote()));
    on(&mut core, Peer::Node, Restore { actor, state, callers: Vec::new(), takeover: None });
    let spec = Box::new(spec(actor, TaskKind::Creation, &[]));
    on(&mut core, Peer::Node, Push { spec, dependencies: Vec::new(), gpus: Vec::new() });
    on(&mut core, Peer::Node, node_dead(THERE));
    not_there(&mut core, actor.state());
    learns_that_its_state_is_lost(&mut core);
}

#[test]
fn where_one_value_is_missing_another_one_may_be() {
    let (mut core, object, _slot) = borrower();
    bring(&mut core, object);
    not_there(&mut core, object);
    let second = task(FAR, 2).object(0);
    let slot = core.ownership_mut().received(second);
    slot.acquire();
    core.ownership_mut().need(second, &mut Actions::new());
    on(&mut core, Peer::Worker(FAR), value(second, remote()));
    assert_eq!(slot.outcome().as_deref(), Some(&remote()), "the block was used again");
}

/// A value on the disk of this node, of an owner that ends while it is being read.
fn on_disk_without_owner() -> (WorkerCore, ObjectId, Arc<Slot>, Remote) {
    let place = Remote { node: HERE, location: THE_COPY.on_disk(SpillId(1)) };
    let mut core = WorkerCore::new(ME);
    let object = task(NEIGHBOUR, 1).object(0);
    let slot = core.ownership_mut().received(object);
    slot.acquire();
    core.ownership_mut().need(object, &mut Actions::new());
    on(&mut core, Peer::Worker(NEIGHBOUR), value(object, Outcome::Remote(Box::new(place))));
    bring(&mut core, object);
    on(&mut core, Peer::Node, worker_dead(NEIGHBOUR, ""));
    (core, object, slot, place)
}

/// A detached actor that began anew heard of the end of its creator before its argument was read from disk,
/// and did not begin.
#[test]
fn what_the_node_keeps_on_its_disk_outlives_its_owner() {
    let (mut core, object, slot, _) = on_disk_without_owner();
    pulled(&mut core, object);
    assert_eq!(slot.outcome().as_deref(), Some(&Outcome::Stored(THE_COPY)));
}

#[test]
fn what_is_on_disk_no_more_is_gone_with_its_owner() {
    let (mut core, object, slot, place) = on_disk_without_owner();
    let not_there = Pulled { object, location: None, failure: None, tried: Some(place) };
    assert_eq!(on(&mut core, Peer::Node, not_there), [to(NEIGHBOUR, fetch(object, Some(place)))]);
    // Who asks one that is gone hears that again.
    on(&mut core, Peer::Node, worker_dead(NEIGHBOUR, ""));
    let outcome = slot.outcome();
    let Some(Outcome::Failed(failure)) = outcome.as_deref() else { panic!("it failed: {outcome:?}") };
    assert_eq!(failure.code, FailureCode::OwnerDied);
}

/// Its reader's worker may have the only resources that making it takes.
#[test]
fn who_pulls_a_value_that_turns_out_to_be_lost_is_told() {
    let (mut core, object, _slot) = owner();
    let located = |out: &Actions, to: NodeId| {
        let mut words = out.iter().filter_map(|action| match action {
            Action::Send { message, .. } => match &**message {
                Message::Located(located) if located.node == to => Some((located.sender, located.attempt)),
                _ => None,
            },
            _ => None,
        });
        words.next()
    };
    let (third, fourth) = (NodeId(3 << 24), NodeId(4 << 24));
    let (_, first) =
        located(&on(&mut core, Peer::Node, Locate { object, node: third }), third).expect("it asked");
    // It pulls from the third one while that receives.
    located(&on(&mut core, Peer::Node, Locate { object, node: fourth }), fourth).expect("it asked");
    let lost = LostAt { node: THERE, blocks: vec![BlockId(THE_REMOTE.location.offset)] };
    let mut out = on(&mut core, Peer::Node, lost);
    let attempt = first.expect("the owner counts on a copy");
    out.extend(on(&mut core, Peer::Node, SenderFailed { object, node: third, attempt }));
    assert_eq!(located(&out, third), Some((None, None)), "{out:?}");
    assert_eq!(located(&out, fourth), Some((None, None)), "{out:?}");
    core.ownership().check_directory();
}
