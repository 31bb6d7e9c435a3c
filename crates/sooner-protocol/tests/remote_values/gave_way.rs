//! Tasks and calls that wait for arguments give up those that they have, because the node has no room for
//! those of older ones.

use sooner_wire::BlockId;
use sooner_wire::message::{Relinquish, Relinquished, Relinquishing, TasksReturned};

use super::*;

const ACTOR: TaskId = TaskId { owner: NEIGHBOUR, number: 7 };
const BESIDE: Remote = Remote { node: THERE, location: Location { offset: 8192, length: 1 << 20 } };

fn object(number: u64) -> ObjectId {
    task(NEIGHBOUR, number).object(0)
}

/// Of two values of this process's neighbour, which are elsewhere.
fn push_two(number: u64, kind: TaskKind) -> Push {
    let objects = [object(50), object(51)];
    let dependency = |(object, remote)| Dependency {
        object,
        outcome: Outcome::Remote(Box::new(remote)),
        contained: Vec::new(),
    };
    let dependencies = objects.into_iter().zip([THE_REMOTE, BESIDE]).map(dependency).collect();
    Push { spec: Box::new(spec(task(NEIGHBOUR, number), kind, &objects)), dependencies, gpus: Vec::new() }
}

fn give_way(core: &mut WorkerCore, blocks: &[u64]) -> Actions {
    let blocks =
        blocks.iter().map(|offset| Relinquishing { block: BlockId(*offset), spilled: None }).collect();
    on(core, Peer::Node, Relinquish { blocks, gives_way: Some(true), node: None, recomputes: None })
}

fn kept(blocks: &[u64]) -> Action {
    to_node(Relinquished {
        moved: Vec::new(),
        others: blocks.iter().copied().map(BlockId).collect(),
        node: None,
    })
}

#[test]
fn a_task_that_waits_for_an_argument_goes_back_and_its_copies_go() {
    let mut core = WorkerCore::new(ME);
    let shape = core.shape(&ResourceSet::default());
    on(&mut core, Peer::Worker(NEIGHBOUR), push_two(1, TaskKind::Task(shape)));
    pulled(&mut core, object(50));
    assert!(core.next_execution().is_none(), "it waits for the other one");
    let out = give_way(&mut core, &[THE_COPY.offset]);
    let back = TasksReturned { tasks: vec![task(NEIGHBOUR, 1)], lacks_room: Some(true), missing: None };
    let freed = to_node(FreeBlocks { places: vec![THE_COPY.place()] });
    assert_eq!(out, [freed, to(NEIGHBOUR, back), kept(&[THE_COPY.offset])]);
    // What comes nevertheless is not wanted.
    let out = pulled(&mut core, object(51));
    assert_eq!(out, [to_node(FreeBlocks { places: vec![THE_COPY.place()] })]);
    assert!(core.ownership().is_empty());
}

#[test]
fn a_task_that_has_all_its_arguments_stays() {
    let mut core = WorkerCore::new(ME);
    let shape = core.shape(&ResourceSet::default());
    let whole = push(1, TaskKind::Task(shape), object(50), remote());
    on(&mut core, Peer::Worker(NEIGHBOUR), whole);
    pulled(&mut core, object(50));
    assert!(core.next_execution().is_some(), "it runs");
    assert_eq!(give_way(&mut core, &[THE_COPY.offset]), [kept(&[THE_COPY.offset])]);
}

#[test]
fn a_call_stays_and_its_copies_come_again() {
    let mut core = WorkerCore::new(ME);
    on(&mut core, Peer::Node, push(7, TaskKind::Creation, object(49), Outcome::Inline(Blob::default())));
    assert!(core.next_execution().is_some());
    core.on_constructed(ACTOR, None, &mut Actions::new());
    on(&mut core, Peer::Worker(NEIGHBOUR), push_two(1, TaskKind::Method(ACTOR)));
    pulled(&mut core, object(50));
    let out = give_way(&mut core, &[THE_COPY.offset]);
    let freed = to_node(FreeBlocks { places: vec![THE_COPY.place()] });
    let again = Pull { object: object(50), remote: THE_REMOTE, priority: Priority::Argument };
    assert_eq!(out, [freed, to_node(again), kept(&[THE_COPY.offset])]);
    pulled(&mut core, object(51));
    assert!(core.next_execution().is_none(), "it waits for the first one again");
    pulled(&mut core, object(50));
    let call = core.next_execution().expect("it has both");
    assert!(call.elsewhere().is_empty());
}
