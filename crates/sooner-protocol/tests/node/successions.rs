//! Which node tells a control service that has started again of an actor's earlier processes, until when, and
//! what it makes of that: the last checkpoint is not lost between two of them.

use sooner_protocol::control::{Directory, DirectoryAction, DirectoryActions, Found};
use sooner_protocol::node::uplink::Member;
use sooner_protocol::node::{NodeAction, NodeActions, NodeCore};
use sooner_protocol::time::Instant;
use sooner_protocol::uplink::{End, ToControl, ToNode};
use sooner_wire::message::{
    ActorDead, ActorHere, ActorOutOfScope, ActorReady, ActorStarted, ActorsHere, AlsoHere, Checkpoint,
    CreateActor, Failure, FailureCode, Job, JobState, Location, Message, Outcome, Place, PlaceActor, Return,
};
use sooner_wire::record::ActorRecord;
use sooner_wire::{ActorId, Blob, NodeId, Takeover, TaskId, WorkerId};

use super::{NOW, cpus, create, creation_of, plain, worker_dead};

const HERE: NodeId = NodeId(1 << 24);
const THERE: NodeId = NodeId(2 << 24);
const DRIVER: WorkerId = WorkerId(HERE.0 + 1);
const FIRST: WorkerId = WorkerId(THERE.0 + 5);
const SECOND: WorkerId = WorkerId(HERE.0 + 6);
const ACTOR: ActorId = TaskId { owner: DRIVER, number: 7 };
const UNTIL: Instant = Instant(10_000_000_000);

fn creation() -> Box<CreateActor> {
    let mut creation = Box::new(create(ACTOR));
    creation_of(&mut creation).checkpoint_every = Some(1);
    creation.restarts = Some(3);
    creation
}

fn state(what: &'static [u8]) -> Return {
    Return { outcome: Outcome::Inline(Blob::from(what)), contained: Vec::new() }
}

/// The first process of the actor, which has ended at the other node.
fn first_ended(checkpoint: Option<Return>) -> ActorHere {
    let gone = worker_dead(FIRST, "was killed");
    ActorHere {
        actor: ACTOR,
        takeover: Takeover(0),
        worker: Some(FIRST),
        is_ready: true,
        job: DRIVER,
        name: None,
        description: None,
        class: "Counter".to_owned(),
        detached: true,
        concurrency: 1,
        restarts: 3,
        create: Some(creation()),
        checkpoint,
        gone: Some(Box::new(gone)),
        group: None,
        covered: None,
    }
}

/// Its second process here, which waits for its state.
fn second_waits() -> ActorHere {
    ActorHere {
        takeover: Takeover(1),
        worker: None,
        gone: None,
        is_ready: false,
        restarts: 2,
        ..first_ended(None)
    }
}

fn here(actors: Vec<ActorHere>) -> ActorsHere {
    ActorsHere { actors, ..ActorsHere::default() }
}

/// A control service that has started again. Its record of the actor is as the last one left it.
fn control(record: Option<ActorRecord>) -> Directory {
    let mut control = Directory::default();
    let actors = record.map(|record| (record, Some(creation()))).into_iter().collect();
    control.keep_records(Found { incarnation: 1, nodes: vec![HERE, THERE], actors, ..Found::default() });
    control.expect_nodes(UNTIL);
    for node in [HERE, THERE] {
        control.on_node_joined(NodeCore::new(cpus(1.0), node.0, 0).row());
    }
    control
}

fn record(takeover: u32, node: Option<NodeId>) -> ActorRecord {
    ActorRecord {
        actor: ACTOR,
        takeover: Takeover(takeover),
        node,
        detached: true,
        restarts: 2,
        job: DRIVER,
        pieces: 1,
        name: None,
    }
}

fn receive(
    control: &mut Directory,
    work: impl FnOnce(&mut Directory, &mut DirectoryActions),
) -> Vec<(NodeId, ToNode)> {
    let mut out = DirectoryActions::new();
    work(control, &mut out);
    control.after_events(NOW, &mut out);
    let mut said = Vec::new();
    let mut numbers = Vec::new();
    for action in out {
        match action {
            DirectoryAction::Send(to, word) => said.push((to, *word)),
            DirectoryAction::Persist(number, _) => numbers.push(number),
            DirectoryAction::Warn(_) => {}
        }
    }
    // What waits until it is written.
    for number in numbers {
        let mut out = DirectoryActions::new();
        control.on_persisted(number, Ok(()), NOW, &mut out);
        said.extend(out.into_iter().filter_map(|action| match action {
            DirectoryAction::Send(to, word) => Some((to, *word)),
            DirectoryAction::Persist(..) | DirectoryAction::Warn(_) => None,
        }));
    }
    said
}

fn send(control: &mut Directory, from: NodeId, word: ToControl) -> Vec<(NodeId, ToNode)> {
    receive(control, |control, out| control.on_node(from, word, NOW, out))
}

fn all_here(control: &mut Directory) -> Vec<(NodeId, ToNode)> {
    receive(control, |control, out| control.on_all_here(NOW, out))
}

fn placed() -> ToControl {
    ToControl::ActorPlaced { actor: ACTOR, takeover: Takeover(1), worker: SECOND }
}

fn routed(from: WorkerId, message: impl Into<Message>) -> ToControl {
    ToControl::Routed { from, message: Box::new(message.into()) }
}

fn restored(words: &[(NodeId, ToNode)]) -> Option<Option<Return>> {
    words.iter().find_map(|(_, word)| match word {
        ToNode::Restore { restore, .. } => Some(restore.state.clone()),
        _ => None,
    })
}

fn is_over(takeover: u32) -> ToNode {
    ToNode::EndActor { actor: ACTOR, takeover: Takeover(takeover), end: End::Succeeded }
}

fn is_placed(words: &[(NodeId, ToNode)], takeover: u32) -> bool {
    let is_it = |place: &PlaceActor| place.takeover == Takeover(takeover) && place.restores == (takeover > 0);
    words.iter().any(|(_, word)| matches!(word, ToNode::PlaceActor(place) if is_it(place)))
}

#[test]
fn a_node_tells_of_a_checkpoint_until_a_later_process_has_it() {
    let mut node = Member::new(cpus(1.0), THERE.0, 0);
    let driver = node.new_worker_id();
    node.on_connected(driver, 1, NOW);
    node.on_job(driver, Box::default(), &mut NodeActions::new());
    let order = |node: &mut Member, word: ToNode| {
        let mut out = NodeActions::new();
        node.on_control(word, NOW, &mut out);
        node.after_events(NOW, &mut out);
        out
    };
    let create = Box::new(CreateActor { job: Some(driver), ..*creation() });
    let (restarts, restores) = (Some(3), false);
    let place = PlaceActor {
        takeover: Takeover(0),
        turn: 0,
        name: None,
        restores,
        create,
        restarts,
        description: None,
    };
    let begun = order(&mut node, ToNode::PlaceActor(Box::new(place)));
    let starts = |action: &NodeAction| match action {
        NodeAction::StartWorker(worker) => Some(*worker),
        _ => None,
    };
    let worker = begun.iter().find_map(starts).expect("it has room");
    node.on_connected(worker, 1, NOW);
    node.after_events(NOW, &mut NodeActions::new());
    node.on_dead(worker, "was killed", None, &mut NodeActions::new());
    let ends = |node: &mut Member| {
        let mut out = NodeActions::new();
        node.on_control_up(true, NOW, &mut out);
        let here = out.into_iter().find_map(|action| match action {
            NodeAction::Control(ToControl::Here(here)) => Some(here.actors),
            _ => None,
        });
        here.expect("it says what is here").iter().map(|row| (row.takeover.0, row.worker)).collect::<Vec<_>>()
    };
    assert_eq!(ends(&mut node), [(0, Some(worker))]);
    // A later process is there, and does not have the state yet.
    let started =
        ActorStarted { actor: ACTOR, worker: SECOND, concurrency: 1, replays: Some(true), restarts: None };
    order(&mut node, ToNode::Started(Box::new(started)));
    assert_eq!(ends(&mut node), [(0, Some(worker))]);
    // It was told to end, and had ended.
    order(&mut node, ToNode::EndActor { actor: ACTOR, takeover: Takeover(0), end: End::Killed });
    assert_eq!(ends(&mut node), [(0, Some(worker))]);
    order(&mut node, is_over(0));
    assert_eq!(ends(&mut node), []);
}

#[test]
fn the_node_of_an_earlier_process_is_told_when_a_later_one_has_its_state() {
    let mut control = control(None);
    send(&mut control, THERE, ToControl::Here(Box::new(here(vec![first_ended(Some(state(b"one")))]))));
    send(&mut control, HERE, ToControl::Here(Box::new(here(vec![second_waits()]))));
    send(&mut control, HERE, placed());
    let heard = all_here(&mut control);
    assert_eq!(restored(&heard), Some(Some(state(b"one"))), "{heard:?}");
    assert!(!heard.contains(&(THERE, is_over(0))), "it may not have come: {heard:?}");
    let heard = send(&mut control, HERE, routed(SECOND, ActorReady { actor: ACTOR, failure: None }));
    assert_eq!(heard, [(THERE, is_over(0))]);
    // A control service that hears that it has begun knows as much.
    let mut control = self::control(None);
    send(&mut control, THERE, ToControl::Here(Box::new(here(vec![first_ended(Some(state(b"one")))]))));
    let begun = ActorHere { worker: Some(SECOND), ..second_waits() };
    send(&mut control, HERE, ToControl::Here(Box::new(here(vec![begun]))));
    let heard = all_here(&mut control);
    assert!(heard.contains(&(THERE, is_over(0))), "{heard:?}");
}

/// Found by the simulator (seed 494623212306, three nodes): the node that was asked for the next process gave
/// the order back, and the next control service knew of no process, and began to count anew.
#[test]
fn the_node_of_an_earlier_process_tells_of_it_until_there_is_a_later_one() {
    for has_process in [false, true] {
        let creation = CreateActor { restarts: Some(1), ..create(ACTOR) };
        let plain = |row: ActorHere, restarts: i32| ActorHere {
            detached: false,
            create: Some(Box::new(creation.clone())),
            restarts,
            ..row
        };
        let ended = plain(first_ended(None), 1);
        let next = ActorHere {
            worker: has_process.then_some(SECOND),
            is_ready: has_process,
            ..plain(second_waits(), 0)
        };
        let mut control = control(None);
        let mut heard = send(&mut control, HERE, ToControl::Here(Box::new(here(vec![next]))));
        heard.extend(send(&mut control, THERE, ToControl::Here(Box::new(here(vec![ended])))));
        heard.extend(all_here(&mut control));
        assert_eq!(heard.contains(&(THERE, is_over(0))), has_process, "{heard:?}");
    }
}

#[test]
fn a_checkpoint_of_which_only_callers_were_told_stands() {
    let outcome = Outcome::Stored(Location { offset: 64, length: 8 });
    let taken = plain(outcome);
    let taken = Checkpoint { actor: ACTOR, state: taken, calls: Vec::new() };
    let first = ActorsHere {
        also: Some(Box::new(AlsoHere { checkpoints: vec![(FIRST, taken.clone())], ..AlsoHere::default() })),
        ..here(vec![first_ended(Some(state(b"before")))])
    };
    let mut control = control(None);
    // The process that takes over asks first.
    send(&mut control, HERE, ToControl::Here(Box::new(here(vec![second_waits()]))));
    send(&mut control, HERE, placed());
    send(&mut control, THERE, ToControl::Here(Box::new(first.clone())));
    let heard = all_here(&mut control);
    assert_eq!(restored(&heard), Some(Some(taken.state.clone())), "{heard:?}");
    assert!(!heard.contains(&(THERE, ToNode::LetGo(Place::of(64)))), "{heard:?}");
    // Where that has begun already it is too late, and its block goes.
    let begun = ActorHere { worker: Some(SECOND), checkpoint: Some(state(b"later")), ..second_waits() };
    let mut control = self::control(None);
    send(&mut control, HERE, ToControl::Here(Box::new(here(vec![begun]))));
    send(&mut control, THERE, ToControl::Here(Box::new(first)));
    let heard = all_here(&mut control);
    assert!(heard.contains(&(THERE, ToNode::LetGo(Place::of(64)))), "{heard:?}");
}

#[test]
fn an_actor_whose_next_process_no_node_was_asked_for_begins_with_the_state_that_a_node_tells() {
    for (node, first, begins) in [
        (Some(HERE), Some(first_ended(Some(state(b"one")))), true),
        (None, Some(first_ended(Some(state(b"one")))), true),
        (Some(HERE), Some(first_ended(None)), true),
        // Its state is known to nobody.
        (Some(HERE), None, false),
        (None, None, false),
    ] {
        let mut control = control(Some(record(1, node)));
        send(&mut control, THERE, ToControl::Here(Box::new(here(first.into_iter().collect()))));
        send(&mut control, HERE, ToControl::Here(Box::new(here(Vec::new()))));
        let heard = all_here(&mut control);
        assert_eq!(is_placed(&heard, 1), begins, "{node:?}: {heard:?}");
        let is_dead = heard.iter().any(|(_, word)| matches!(word, ToNode::Dead(_)));
        assert_eq!(is_dead, !begins, "{node:?}: {heard:?}");
    }
}

#[test]
fn the_node_of_an_earlier_process_hears_that_an_actor_is_dead_which_waits_elsewhere() {
    let mut control = control(None);
    let ended = ActorHere { detached: false, ..first_ended(None) };
    send(&mut control, THERE, ToControl::Here(Box::new(here(vec![ended]))));
    send(&mut control, HERE, ToControl::Here(Box::new(here(Vec::new()))));
    let heard = all_here(&mut control);
    assert!(is_placed(&heard, 1), "{heard:?}");
    let asked = heard.iter().find(|(_, word)| matches!(word, ToNode::PlaceActor(_))).expect("it is placed").0;
    send(&mut control, HERE, routed(DRIVER, ActorOutOfScope { actor: ACTOR }));
    // The node that was to begin it has nothing of it.
    let (reason, create) = (String::new(), Some(creation()));
    let refused = ToControl::PlaceRefused {
        actor: ACTOR,
        takeover: Takeover(1),
        reason,
        create,
        no_workers: false,
        for_now: true,
    };
    let heard = send(&mut control, asked, refused);
    let is_told = |node| heard.iter().any(|(to, word)| *to == node && matches!(word, ToNode::Dead(_)));
    assert!(is_told(THERE) && is_told(HERE), "{heard:?}");
}

#[test]
fn an_actor_that_waits_for_its_job_is_the_next_control_services_to_place() {
    let mut node = Member::new(cpus(1.0), THERE.0, 0);
    let (create, restarts, restores) = (creation(), Some(3), false);
    let place = PlaceActor {
        takeover: Takeover(0),
        turn: 0,
        name: None,
        restores,
        create,
        restarts,
        description: None,
    };
    for is_new in [false, true] {
        let mut out = NodeActions::new();
        node.on_control(ToNode::PlaceActor(Box::new(place.clone())), NOW, &mut out);
        node.on_control_up(is_new, NOW, &mut out);
        out.clear();
        let config = Some(Box::default());
        let job = Job { job: DRIVER, state: JobState::Started, config };
        node.on_control(ToNode::Job(Box::new(job)), NOW, &mut out);
        node.after_events(NOW, &mut out);
        let starts = out.iter().any(|action| matches!(action, NodeAction::StartWorker(_)));
        assert_eq!(starts, !is_new, "{out:?}");
        node = Member::new(cpus(1.0), THERE.0, 0);
    }
}

#[test]
fn an_actor_that_any_node_knows_to_be_dead_is_not_created_again() {
    let failure = Failure::new(FailureCode::ActorDied, "why");
    let mut node = Member::new(cpus(1.0), THERE.0, 0);
    let dead = ActorDead { actor: ACTOR, failure };
    node.on_control(ToNode::Dead(Box::new(dead)), NOW, &mut NodeActions::new());
    let mut out = NodeActions::new();
    node.on_control_up(true, NOW, &mut out);
    let told = out.into_iter().find_map(|action| match action {
        NodeAction::Control(word @ ToControl::Here(_)) => Some(word),
        _ => None,
    });
    let mut control = control(None);
    send(&mut control, THERE, told.expect("it says what is here"));
    send(&mut control, HERE, ToControl::Here(Box::new(here(vec![first_ended(None)]))));
    send(&mut control, HERE, routed(DRIVER, *creation()));
    let heard = all_here(&mut control);
    let is_told = |(to, word): &(NodeId, ToNode)| *to == HERE && matches!(word, ToNode::Dead(_));
    assert!(heard.iter().any(is_told), "{heard:?}");
    assert!(!is_placed(&heard, 0) && !is_placed(&heard, 1), "{heard:?}");
}
