//! Values at other nodes that are lost while something is left of them: a copy, the place of another copy, a
//! word of the place.

use sooner_wire::BlockId;
use sooner_wire::message::{BlocksLost, GivenBlocks, UnknownBlocks};

use super::*;

const OTHER: Remote = Remote { node: THERE, location: Location { offset: 8192, length: 1 << 20 } };

fn copy_lost() -> BlocksLost {
    BlocksLost { blocks: vec![BlockId(THE_COPY.offset)] }
}

/// A driver with two results of one task at the other node, and the second one also here.
fn owner_of_two() -> (WorkerCore, [ObjectId; 2], [Arc<Slot>; 2]) {
    let mut core = WorkerCore::new(ME);
    core.define(define());
    let shape = core.shape(&ResourceSet::default());
    let slots = [(); 2].map(|()| Arc::new(Slot::default()));
    slots.iter().for_each(|slot| slot.acquire());
    let made = TaskSpec { returns: 2, ..spec(task(ME, 1), TaskKind::Task(shape), &[]) };
    core.submit(Arc::new(made), slots.clone(), None, &mut Actions::new());
    on(&mut core, Peer::Node, LeaseGranted { shape, lease: LeaseId(1), worker: FAR, gpus: Vec::new() });
    on(&mut core, Peer::Worker(FAR), both());
    let objects = [0, 1].map(|index| task(ME, 1).object(index));
    bring(&mut core, objects[1]);
    pulled(&mut core, objects[1]);
    (core, objects, slots)
}

fn both() -> Reply {
    let value = |place: Remote| Return { outcome: Outcome::Remote(Box::new(place)), contained: Vec::new() };
    Reply { returns: vec![value(OTHER), value(THE_REMOTE)], ..reply(1, remote()) }
}

#[test]
fn a_value_whose_copy_is_lost_is_there_while_its_task_is_executed_again_for_another_one() {
    let (mut core, objects, slots) = owner_of_two();
    on(&mut core, Peer::Node, LostAt { node: THERE, blocks: vec![BlockId(OTHER.location.offset)] });
    assert!(core.recovers(objects[0].task));
    on(&mut core, Peer::Node, copy_lost());
    assert_eq!(slots[1].outcome().as_deref(), Some(&remote()), "it is where it was made");
    // The second execution puts it elsewhere, and nobody needs that.
    let again = Outcome::Remote(Box::new(Remote { location: Location { offset: 0, length: 7 }, ..OTHER }));
    let mut again = Reply { ..reply(1, again) };
    again.returns.insert(0, Return { outcome: Outcome::Inline(Blob::default()), contained: Vec::new() });
    let given_back = |out: &Actions, offset| {
        out.contains(&to_node(FreeAt { node: THERE, places: vec![BlockId(offset).into()] }))
    };
    assert!(given_back(&on(&mut core, Peer::Worker(FAR), again), 0));
    assert!(given_back(&drop_last(&mut core, objects[1], &slots[1]), THE_REMOTE.location.offset));
}

#[test]
fn a_value_is_given_back_that_goes_before_its_lost_copy_is_made_good() {
    let (mut core, object, slot) = owner();
    bring(&mut core, object);
    pulled(&mut core, object);
    let mut out = Actions::new();
    assert_eq!(core.ownership_mut().on_blocks_lost(&copy_lost().blocks, &mut out), [object]);
    let there = to_node(FreeAt { node: THERE, places: vec![THE_REMOTE.location.place()] });
    assert!(drop_last(&mut core, object, &slot).contains(&there));
    assert!(core.ownership().is_empty());
}

/// A process that borrows a value at the other node from one there, and has looked for it.
fn borrower() -> (WorkerCore, ObjectId, Arc<Slot>) {
    let mut core = WorkerCore::new(ME);
    let object = task(WorkerId(FAR.0 + 1), 1).object(0);
    let slot = core.ownership_mut().received(object);
    slot.acquire();
    core.ownership_mut().watch(object, &mut Actions::new());
    let value = Value { object, outcome: remote(), contained: Vec::new() };
    on(&mut core, Peer::Worker(object.owner()), value);
    (core, object, slot)
}

#[test]
fn a_block_is_not_known_from_a_borrowed_value_that_was_there() {
    let (mut core, object, _slot) = borrower();
    // The value was freed there, and the block is in use for one of ours that never came.
    let question = GivenBlocks { giver: FAR, places: vec![THE_REMOTE.location.place()] };
    let unknown = [to_node(UnknownBlocks { giver: FAR, places: question.places.clone() })];
    assert_eq!(on(&mut core, Peer::Node, question.clone()), unknown);
    pulled(&mut core, object);
    assert_eq!(on(&mut core, Peer::Node, question), unknown, "nor from where its copy was made");
}

/// Found by the simulator (8900002183, 9100001162): neighbours read such a copy without holding it, and only
/// owners see to their readers.
#[test]
fn a_borrower_lends_a_copy_that_is_all_there_is_as_one_to_ask_the_node_for() {
    let (mut core, object, slot) = borrower();
    bring(&mut core, object);
    pulled(&mut core, object);
    let everyone = [Some(NEIGHBOUR), Some(FAR), None];
    let told = |core: &WorkerCore| everyone.map(|to| core.ownership().outcome_for(object, to));
    assert_eq!(told(&core), [(); 3].map(|()| Some(remote())), "where it was made");
    assert_eq!(core.ownership_mut().on_missing(object, &THE_REMOTE, &mut Actions::new()), []);
    let copy = Outcome::Remote(Box::new(Remote { node: HERE, location: THE_COPY }));
    assert_eq!(told(&core), [(); 3].map(|()| Some(copy.clone())));
    assert_eq!(slot.outcome().as_deref(), Some(&Outcome::Stored(THE_COPY)), "it can be read here");
}

/// A driver with a task that is executed at the other node, which hears that a block of its own there is
/// lost.
fn owner_of_a_lost_block() -> (WorkerCore, Arc<Slot>, Remote) {
    let (mut core, _, _) = owner();
    let shape = core.shape(&ResourceSet::default());
    let slot = Arc::new(Slot::default());
    slot.acquire();
    let made = spec(task(ME, 2), TaskKind::Task(shape), &[]);
    core.submit(Arc::new(made), [slot.clone()], None, &mut Actions::new());
    assert_eq!(
        on(&mut core, Peer::Node, LostAt { node: THERE, blocks: vec![BlockId(OTHER.location.offset)] }),
        []
    );
    (core, slot, OTHER)
}

/// Found by the simulator (83000001425): the worker that had put a value there ended before it said so, and
/// the block was used again.
#[test]
fn a_lost_block_that_never_came_says_nothing_of_what_comes_later() {
    let (mut core, slot, place) = owner_of_a_lost_block();
    let question = GivenBlocks { giver: WorkerId(FAR.0 + 1), places: vec![place.location.place()] };
    let unknown = UnknownBlocks { giver: question.giver, places: question.places.clone() };
    assert_eq!(on(&mut core, Peer::Node, question), [to_node(unknown)]);
    let outcome = Outcome::Remote(Box::new(place));
    let out = on(&mut core, Peer::Worker(FAR), reply(2, outcome.clone()));
    assert!(!out.iter().any(|action| matches!(action, Action::Push { .. })), "it is not lost: {out:?}");
    assert_eq!(slot.outcome().as_deref(), Some(&outcome));
}

/// The same seed: a value of somebody else was there by then. Its owner, which is at that node, named the
/// place again and again.
#[test]
fn a_lost_block_says_nothing_of_borrowed_values() {
    let (mut core, _slot, place) = owner_of_a_lost_block();
    let outcome = Outcome::Remote(Box::new(place));
    let borrowed = task(FAR, 7).object(0);
    let slot = core.ownership_mut().received(borrowed);
    slot.acquire();
    core.ownership_mut().need(borrowed, &mut Actions::new());
    let value = Value { object: borrowed, outcome: outcome.clone(), contained: Vec::new() };
    assert_eq!(on(&mut core, Peer::Worker(FAR), value), [], "its owner is not asked again");
    assert_eq!(slot.outcome().as_deref(), Some(&outcome));
    // The word of a loss may come after this process has given the block back.
    let late = LostAt { node: THERE, blocks: vec![BlockId(place.location.offset)] };
    assert_eq!(on(&mut core, Peer::Node, late), []);
    assert_eq!(slot.outcome().as_deref(), Some(&outcome));
}
