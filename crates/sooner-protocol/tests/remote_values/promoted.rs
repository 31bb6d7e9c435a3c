//! Values that are lost where they were made, and copies that take their place
//! (`docs/adr/0052-copies-become-values.md`).

use sooner_wire::message::{
    AddBorrow, BlocksLost, CopyLeaving, CopyMade, DropCopy, Fetch, Locate, Located, Promote, Promoted,
    SenderFailed,
};
use sooner_wire::{BlockId, TransferAttempt};

use super::*;

const LENGTH: u64 = 1 << 20;
const THIRD: NodeId = NodeId(3 << 24);
const FOURTH: NodeId = NodeId(4 << 24);

fn at(node: NodeId, offset: u64) -> Remote {
    Remote { node, location: Location { offset, length: LENGTH } }
}

fn elsewhere(node: NodeId, offset: u64) -> Outcome {
    Outcome::Remote(Box::new(at(node, offset)))
}

/// A node is named a sender. By which word, and of which execution.
fn located(out: &Actions, to: NodeId) -> (TransferAttempt, u64) {
    let word = out.iter().find_map(|action| match action {
        Action::Send { message, .. } => match &**message {
            Message::Located(Located { node, attempt, generation, .. }) if *node == to => {
                Some(((*attempt)?, *generation))
            }
            _ => None,
        },
        _ => None,
    });
    word.expect("it is named a sender")
}

/// Has a node pull a copy, all of it. Gives the generation.
fn copy(core: &mut WorkerCore, object: ObjectId, node: NodeId) -> u64 {
    let (attempt, generation) = located(&on(core, Peer::Node, Locate { object, node }), node);
    assert_eq!(on(core, Peer::Node, CopyMade { object, node, attempt }), []);
    generation
}

/// A driver whose value is at the second node, with complete copies at the third and the fourth. The
/// generation of these.
fn with_copies() -> (WorkerCore, ObjectId, Arc<Slot>, u64) {
    let (mut core, object, slot) = owner();
    let generation = copy(&mut core, object, THIRD);
    assert_eq!(copy(&mut core, object, FOURTH), generation);
    (core, object, slot, generation)
}

fn promote(object: ObjectId, node: NodeId, generation: u64) -> Action {
    to_node(Promote { object, node, length: LENGTH, generation })
}

fn yes(object: ObjectId, node: NodeId, offset: u64) -> Promoted {
    Promoted { object, node, location: Some(at(node, offset).location) }
}

fn no(object: ObjectId, node: NodeId) -> Promoted {
    Promoted { object, node, location: None }
}

fn drop_at(object: ObjectId, node: NodeId) -> Action {
    to_node(DropCopy { object, node })
}

fn free_at(node: NodeId, offset: u64) -> Action {
    to_node(FreeAt { node, places: vec![BlockId(offset).into()] })
}

fn pushed(out: &Actions) -> Vec<u64> {
    let numbers = out.iter().filter_map(|action| match action {
        Action::Push { spec, .. } => Some(spec.task.number),
        _ => None,
    });
    numbers.collect()
}

#[test]
fn a_copy_becomes_the_value_when_the_node_that_made_it_is_gone() {
    let (mut core, object, slot, generation) = with_copies();
    on(&mut core, Peer::Worker(NEIGHBOUR), AddBorrow { object, borrower: NEIGHBOUR });
    assert_eq!(on(&mut core, Peer::Node, node_dead(THERE)), [promote(object, THIRD, generation)]);
    assert_eq!(slot.outcome().as_deref(), None, "nothing is known before the node has answered");
    // Who asks meanwhile waits, and nothing is made again for it.
    let fetch = Fetch { object, missing_at: Some(THE_REMOTE) };
    assert_eq!(on(&mut core, Peer::Worker(NEIGHBOUR), fetch), []);
    let told = Value { object, outcome: elsewhere(THIRD, 64), contained: Vec::new() };
    assert_eq!(on(&mut core, Peer::Node, yes(object, THIRD, 64)), [to(NEIGHBOUR, told)]);
    assert_eq!(slot.outcome().as_deref(), Some(&elsewhere(THIRD, 64)));
    core.ownership().check_directory();
    let returned = RemoveBorrow { object, count: 1, giver: None, was_sent: None };
    on(&mut core, Peer::Worker(NEIGHBOUR), returned);
    let freed = drop_last(&mut core, object, &slot);
    assert_eq!(freed, [free_at(THIRD, 64), drop_at(object, FOURTH)], "its place is given back, not dropped");
    assert!(core.ownership().is_empty());
}

#[test]
fn a_copy_becomes_the_value_when_its_block_is_lost_or_nobody_finds_it_there() {
    let (mut core, object, slot, generation) = with_copies();
    let lost = LostAt { node: THERE, blocks: vec![BlockId(THE_REMOTE.location.offset)] };
    assert_eq!(on(&mut core, Peer::Node, lost), [promote(object, THIRD, generation)]);
    on(&mut core, Peer::Node, yes(object, THIRD, 64));
    bring(&mut core, object);
    let not_there = Pulled { object, location: None, failure: None, tried: Some(at(THIRD, 64)) };
    assert_eq!(on(&mut core, Peer::Node, not_there), [promote(object, FOURTH, generation)]);
    on(&mut core, Peer::Node, yes(object, FOURTH, 192));
    assert_eq!(slot.outcome().as_deref(), Some(&elsewhere(FOURTH, 192)));
    let freed = drop_last(&mut core, object, &slot);
    assert_eq!(freed, [(FOURTH, 192), (THERE, 4096), (THIRD, 64)].map(|(node, at)| free_at(node, at)));
}

#[test]
fn who_pulls_goes_on_from_the_copy_that_has_become_the_value() {
    let (mut core, object, _slot, generation) = with_copies();
    let (fifth, sixth) = (NodeId(5 << 24), NodeId(6 << 24));
    on(&mut core, Peer::Node, node_dead(THERE));
    let before = on(&mut core, Peer::Node, Locate { object, node: fifth });
    assert_eq!(located(&before, fifth).1, generation, "copies can be pulled while one is asked for");
    on(&mut core, Peer::Node, yes(object, THIRD, 64));
    let named = on(&mut core, Peer::Node, Locate { object, node: sixth });
    let (attempt, same) = located(&named, sixth);
    assert_eq!(same, generation, "the bytes are the same");
    on(&mut core, Peer::Node, CopyMade { object, node: sixth, attempt });
    core.ownership().check_directory();
}

#[test]
fn one_node_after_the_other_is_asked_and_then_the_value_is_made_again() {
    let (mut core, object, slot, generation) = with_copies();
    on(&mut core, Peer::Node, node_dead(THERE));
    let second = on(&mut core, Peer::Node, no(object, THIRD));
    assert_eq!(second, [promote(object, FOURTH, generation)]);
    on(&mut core, Peer::Node, no(object, FOURTH));
    assert_eq!(pushed(&lease_elsewhere(&mut core)), [1]);
    on(&mut core, Peer::Worker(SPARE), reply(1, elsewhere(FOURTH, 8)));
    assert_eq!(slot.outcome().as_deref(), Some(&elsewhere(FOURTH, 8)));
    assert_eq!(drop_last(&mut core, object, &slot), [free_at(FOURTH, 8)]);
}

#[test]
fn a_node_that_dies_while_it_is_asked_does_not_have_the_copy() {
    let (mut core, object, _slot, generation) = with_copies();
    on(&mut core, Peer::Node, node_dead(THERE));
    assert_eq!(on(&mut core, Peer::Node, node_dead(THIRD)), [promote(object, FOURTH, generation)]);
    on(&mut core, Peer::Node, node_dead(FOURTH));
    assert_eq!(pushed(&lease_elsewhere(&mut core)), [1]);
    assert_eq!(core.ownership().promotions(), 0);
}

#[test]
fn a_copy_that_is_still_arriving_is_not_asked_for() {
    let (mut core, object, slot) = owner();
    let (attempt, _) = located(&on(&mut core, Peer::Node, Locate { object, node: THIRD }), THIRD);
    on(&mut core, Peer::Node, node_dead(THERE));
    assert_eq!(pushed(&lease_elsewhere(&mut core)), [1]);
    // All of it was there after all, and nothing is asked twice.
    on(&mut core, Peer::Node, CopyMade { object, node: THIRD, attempt });
    assert_eq!(slot.outcome().as_deref(), None);
    assert_eq!(core.ownership().promotions(), 0);
}

#[test]
fn a_copy_that_was_asked_for_is_given_back_when_the_reference_has_gone() {
    let (mut core, object, slot, _) = with_copies();
    on(&mut core, Peer::Node, node_dead(THERE));
    let dropped = drop_last(&mut core, object, &slot);
    assert_eq!(dropped, [drop_at(object, FOURTH), drop_at(object, THIRD)]);
    assert!(core.ownership().is_empty());
    assert_eq!(on(&mut core, Peer::Node, yes(object, THIRD, 64)), [free_at(THIRD, 64)]);
    assert_eq!(core.ownership().promotions(), 0);
}

#[test]
fn a_copy_that_is_about_to_leave_when_it_is_asked_for_stays() {
    let (mut core, object, slot, _) = with_copies();
    on(&mut core, Peer::Node, node_dead(THERE));
    assert_eq!(on(&mut core, Peer::Node, CopyLeaving { object, node: THIRD }), [], "its answer says more");
    on(&mut core, Peer::Node, yes(object, THIRD, 64));
    assert_eq!(slot.outcome().as_deref(), Some(&elsewhere(THIRD, 64)));
}

#[test]
fn a_copy_whose_node_could_not_be_reached_by_another_one_is_the_value_all_the_same() {
    let (mut core, object, slot, _) = with_copies();
    let fifth = NodeId(5 << 24);
    on(&mut core, Peer::Node, node_dead(THERE));
    let named = on(&mut core, Peer::Node, Locate { object, node: fifth });
    let (attempt, generation) = located(&named, fifth);
    let named = on(&mut core, Peer::Node, SenderFailed { object, node: fifth, attempt });
    let (attempt, _) = located(&named, fifth);
    on(&mut core, Peer::Node, SenderFailed { object, node: fifth, attempt });
    let named = on(&mut core, Peer::Node, yes(object, THIRD, 64));
    assert_eq!(slot.outcome().as_deref(), Some(&elsewhere(THIRD, 64)));
    assert!(located(&named, fifth).1 > generation, "nothing was counted on any more");
    core.ownership().check_directory();
}

/// Two results of one task: one has a copy, and the other one is made again, and the first with it.
#[test]
fn a_copy_is_given_back_when_the_value_has_come_again_before_it() {
    let (mut core, slots) = (WorkerCore::new(ME), [(); 2].map(|()| Arc::new(Slot::default())));
    core.define(define());
    let shape = core.shape(&ResourceSet::default());
    slots.iter().for_each(|slot| slot.acquire());
    let made = TaskSpec { returns: 2, ..spec(task(ME, 1), TaskKind::Task(shape), &[]) };
    core.submit(Arc::new(made), slots.clone(), None, &mut Actions::new());
    on(&mut core, Peer::Node, LeaseGranted { shape, lease: LeaseId(1), worker: NEIGHBOUR, gpus: Vec::new() });
    let both = |places: [(NodeId, u64); 2]| Reply {
        returns: places.map(|(node, offset)| plain(elsewhere(node, offset))).to_vec(),
        ..reply(1, remote())
    };
    on(&mut core, Peer::Worker(NEIGHBOUR), both([(THERE, 4096), (THERE, 8192)]));
    let object = task(ME, 1).object(0);
    let generation = copy(&mut core, object, THIRD);
    let out = on(&mut core, Peer::Node, node_dead(THERE));
    assert!(out.contains(&promote(object, THIRD, generation)) && pushed(&out) == [1], "{out:?}");
    let out = on(&mut core, Peer::Worker(NEIGHBOUR), both([(FOURTH, 64), (FOURTH, 128)]));
    assert!(!out.iter().any(|action| *action == free_at(FOURTH, 64)), "{out:?}");
    let out = on(&mut core, Peer::Node, yes(object, THIRD, 256));
    assert_eq!(out, [free_at(THIRD, 256)]);
    assert_eq!(slots[0].outcome().as_deref(), Some(&elsewhere(FOURTH, 64)));
    core.ownership().check_directory();

    // The other way round: what the task makes is given back.
    let generation = copy(&mut core, object, THIRD);
    let out = on(&mut core, Peer::Node, node_dead(FOURTH));
    assert!(out.contains(&promote(object, THIRD, generation)) && pushed(&out) == [1], "{out:?}");
    on(&mut core, Peer::Node, yes(object, THIRD, 256));
    let out = on(&mut core, Peer::Worker(NEIGHBOUR), both([(THIRD, 512), (THIRD, 768)]));
    assert!(out.contains(&free_at(THIRD, 512)), "{out:?}");
    assert_eq!(slots[0].outcome().as_deref(), Some(&elsewhere(THIRD, 256)));
}

#[test]
fn what_no_task_makes_again_is_there_if_a_copy_is() {
    let mut core = WorkerCore::new(ME);
    let (object, slot) = (task(ME, 1).object(0), Arc::new(Slot::with_outcome(Outcome::Stored(THE_COPY))));
    slot.acquire();
    core.ownership_mut().own(object, slot.clone());
    let generation = copy(&mut core, object, THIRD);
    let lost = BlocksLost { blocks: vec![BlockId(THE_COPY.offset)] };
    assert_eq!(on(&mut core, Peer::Node, lost), [promote(object, THIRD, generation)]);
    on(&mut core, Peer::Node, yes(object, THIRD, 64));
    assert_eq!(slot.outcome().as_deref(), Some(&elsewhere(THIRD, 64)));
    let out = on(&mut core, Peer::Node, node_dead(THIRD));
    assert_eq!(out, []);
    let outcome = slot.outcome();
    let Some(Outcome::Failed(failure)) = outcome.as_deref() else { panic!("it is lost: {outcome:?}") };
    assert_eq!(failure.code, FailureCode::ObjectLost);
}

#[test]
fn a_copy_that_others_of_this_node_have_becomes_the_value_here() {
    let (mut core, object, slot) = owner();
    let generation = copy(&mut core, object, HERE);
    assert_eq!(on(&mut core, Peer::Node, node_dead(THERE)), [promote(object, HERE, generation)]);
    on(&mut core, Peer::Node, yes(object, HERE, THE_COPY.offset));
    assert_eq!(slot.outcome().as_deref(), Some(&Outcome::Stored(THE_COPY)));
    let freed = drop_last(&mut core, object, &slot);
    assert_eq!(freed, [to_node(FreeBlocks { places: vec![THE_COPY.place()] })], "it is not reused here");
    assert!(core.ownership().is_empty());
}

#[test]
fn references_inside_a_value_stay_with_the_copy() {
    let mut core = WorkerCore::new(ME);
    let inner = task(ME, 2).object(0);
    let kept = Arc::new(Slot::with_outcome(Outcome::Inline(Blob::default())));
    core.ownership_mut().own(inner, kept);
    let (object, slot) = (task(ME, 1).object(0), Arc::new(Slot::default()));
    slot.acquire();
    core.ownership_mut().own(object, slot.clone());
    core.ownership_mut().resolve(object, remote(), &[inner], &mut Actions::new());
    copy(&mut core, object, THIRD);
    copy(&mut core, object, FOURTH);
    on(&mut core, Peer::Node, node_dead(THERE));
    on(&mut core, Peer::Node, yes(object, THIRD, 64));
    on(&mut core, Peer::Node, node_dead(THIRD));
    on(&mut core, Peer::Node, yes(object, FOURTH, 64));
    assert_eq!(core.ownership().contained(object), [inner]);
    drop_last(&mut core, object, &slot);
    assert!(core.ownership().is_empty(), "and go with it");
}

/// Found by the simulator (9200003295 and others): the node counts a process once, however often that holds a
/// block.
#[test]
fn a_copy_that_comes_by_an_earlier_question_is_given_back_once() {
    let free = || to_node(FreeBlocks { places: vec![THE_COPY.place()] });
    let asked = || {
        let (mut core, object, slot) = owner();
        copy(&mut core, object, HERE);
        bring(&mut core, object);
        let lost = LostAt { node: THERE, blocks: vec![BlockId(THE_REMOTE.location.offset)] };
        on(&mut core, Peer::Node, lost);
        assert_eq!(core.ownership().promotions(), 1);
        assert_eq!(pulled(&mut core, object), [], "the answer to the later question says whether it stays");
        (core, object, slot)
    };
    let (mut core, object, slot) = asked();
    assert_eq!(on(&mut core, Peer::Node, yes(object, HERE, THE_COPY.offset)), []);
    assert_eq!(slot.outcome().as_deref(), Some(&Outcome::Stored(THE_COPY)));
    assert!(drop_last(&mut core, object, &slot).contains(&free()));

    let (mut core, object, _slot) = asked();
    assert!(on(&mut core, Peer::Node, no(object, HERE)).contains(&free()));

    let (mut core, object, slot) = asked();
    drop_last(&mut core, object, &slot);
    assert_eq!(on(&mut core, Peer::Node, yes(object, HERE, THE_COPY.offset)), [free()]);
}
