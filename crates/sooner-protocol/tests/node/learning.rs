//! A control service that has started again, and what several nodes tell it.

use sooner_protocol::control::{Directory, DirectoryAction, DirectoryActions, Found};
use sooner_protocol::node::uplink::Member;
use sooner_protocol::node::{NodeAction, NodeActions, NodeCore};
use sooner_protocol::time::Instant;
use sooner_protocol::uplink::{End, ToControl, ToNode};
use sooner_wire::message::{
    ActorHere, ActorReady, ActorStarted, ActorsHere, AlsoHere, FindName, KeepObjects, Location, Message,
    Outcome, Place, PlaceActor, Restore, Return, SubscribeActor, Watch, WorkerDead,
};
use sooner_wire::{ActorId, Blob, NodeId, Takeover, TaskId, WorkerId};

use super::{NOW, cpus, create, creation_of, told, worker_dead};

const HERE: NodeId = NodeId(1 << 24);
const THERE: NodeId = NodeId(2 << 24);
const LOST: NodeId = NodeId(3 << 24);
const DRIVER: WorkerId = WorkerId(HERE.0 + 1);
const ACTOR: ActorId = TaskId { owner: DRIVER, number: 7 };
const UNTIL: Instant = Instant(10_000_000_000);

fn name() -> (String, String) {
    ("space".to_owned(), "it".to_owned())
}

fn row(takeover: u32, worker: WorkerId) -> ActorHere {
    ActorHere {
        actor: ACTOR,
        takeover: Takeover(takeover),
        worker: Some(worker),
        is_ready: true,
        job: DRIVER,
        name: Some(name()),
        description: Some(Blob::from(&b"how to call it"[..])),
        class: "Counter".to_owned(),
        detached: false,
        concurrency: 1,
        restarts: 2,
        create: Some(Box::new(create(ACTOR))),
        checkpoint: None,
        gone: None,
        group: None,
        covered: None,
    }
}

fn ended(takeover: u32, worker: WorkerId) -> ActorHere {
    let (reason, last_started) = ("was killed".to_owned(), Some(ACTOR));
    let gone = WorkerDead { worker, reason, last_started, ..WorkerDead::default() };
    ActorHere { worker: None, gone: Some(Box::new(gone)), ..row(takeover, worker) }
}

fn here(rows: Vec<ActorHere>) -> ToControl {
    ToControl::Here(Box::new(ActorsHere { actors: rows, ..ActorsHere::default() }))
}

fn process(node: NodeId, number: u64) -> WorkerId {
    WorkerId(node.0 + number)
}

/// It expects the two nodes.
fn control() -> Directory {
    let mut control = Directory::default();
    control.expect_nodes(UNTIL);
    for node in [HERE, THERE] {
        control.on_node_joined(NodeCore::new(cpus(1.0), node.0, 0).row());
    }
    control
}

fn send(control: &mut Directory, from: NodeId, word: ToControl) -> Vec<(NodeId, ToNode)> {
    receive(control, |control, out| control.on_node(from, word, NOW, out))
}

fn receive(
    control: &mut Directory,
    work: impl FnOnce(&mut Directory, &mut DirectoryActions),
) -> Vec<(NodeId, ToNode)> {
    let mut out = DirectoryActions::new();
    work(control, &mut out);
    control.after_events(NOW, &mut out);
    let sent = |action| match action {
        DirectoryAction::Send(to, word) => Some((to, *word)),
        DirectoryAction::Warn(_) | DirectoryAction::Persist(..) => None,
    };
    out.into_iter().filter_map(sent).collect()
}

fn place(control: &Directory) -> (u8, Option<WorkerId>) {
    let [row] = &control.report()[..] else { panic!("one actor") };
    (row.phase, row.worker)
}

fn kill(node: NodeId, takeover: u32) -> (NodeId, ToNode) {
    (node, ToNode::EndActor { actor: ACTOR, takeover: Takeover(takeover), end: End::Killed })
}

#[test]
fn of_two_processes_of_one_actor_the_later_lives() {
    let (first, second) = (process(HERE, 5), process(THERE, 5));
    let mut control = control();
    assert_eq!(send(&mut control, HERE, here(vec![row(1, first)])), []);
    assert_eq!(send(&mut control, THERE, here(vec![row(2, second)])), [kill(HERE, 1)]);
    assert_eq!(send(&mut control, HERE, here(vec![row(1, first)])), [kill(HERE, 1)]);
    assert_eq!(send(&mut control, HERE, here(vec![row(2, first)])), [kill(HERE, 2)], "of equals the first");
    assert_eq!(send(&mut control, THERE, here(vec![row(2, second)])), [], "said twice");
    receive(&mut control, |control, out| control.on_all_here(NOW, out));
    assert_eq!(place(&control), (3, Some(second)));
    // A node that was asked before the restart, and has just found room.
    let late = ToControl::ActorPlaced { actor: ACTOR, takeover: Takeover(2), worker: first };
    assert_eq!(send(&mut control, HERE, late), [kill(HERE, 2)]);
}

#[test]
fn a_node_that_is_gone_before_the_others_are_back_is_gone_for_them_too() {
    let mut control = Directory::default();
    control.keep_records(Found { incarnation: 1, nodes: vec![HERE, LOST], ..Found::default() });
    control.expect_nodes(UNTIL);
    assert_eq!(
        receive(&mut control, |control, out| control.on_node_dead(LOST, "its port is closed", out)),
        []
    );
    control.on_node_joined(NodeCore::new(cpus(1.0), HERE.0, 0).row());
    assert_eq!(send(&mut control, HERE, here(Vec::new())), []);
    let said = receive(&mut control, |control, out| control.on_all_here(NOW, out));
    let [(HERE, ToNode::WorkerDead(gone))] = &said[..] else { panic!("{said:?}") };
    assert_eq!(gone.worker, WorkerId(LOST.0), "all processes of that node");
}

#[test]
fn words_wait_until_all_are_there_or_for_ten_seconds() {
    let ask = || {
        let (namespace, name) = name();
        let find = FindName { request: 3, namespace, name };
        ToControl::Routed { from: DRIVER, message: Box::new(find.into()) }
    };
    let answers = |words: Vec<(NodeId, ToNode)>| {
        let found = |word: (NodeId, ToNode)| match word {
            (HERE, ToNode::Routed { message, .. }) => match *message {
                Message::Answer(answer) => answer.actor,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        };
        words.into_iter().map(found).collect::<Vec<_>>()
    };
    let mut control = self::control();
    assert_eq!(send(&mut control, HERE, ask()), []);
    assert_eq!(send(&mut control, THERE, here(vec![row(0, process(THERE, 5))])), []);
    assert_eq!(control.next_deadline(), Some(UNTIL));
    let heard = receive(&mut control, |control, out| control.on_all_here(NOW, out));
    assert_eq!(answers(heard), [Some(ACTOR)], "the name is another node's");
    // Somebody does not come.
    let mut control = self::control();
    assert_eq!(send(&mut control, HERE, ask()), []);
    let mut out = DirectoryActions::new();
    control.after_events(UNTIL, &mut out);
    assert_eq!(out.len(), 1, "{out:?}");
    assert_eq!(control.next_deadline(), None);
}

#[test]
fn an_end_that_was_not_heard_of_has_its_consequences() {
    let mut control = control();
    send(&mut control, THERE, here(vec![ended(0, process(THERE, 5))]));
    send(&mut control, HERE, here(Vec::new()));
    let heard = receive(&mut control, |control, out| control.on_all_here(NOW, out));
    let places = |(to, word): &(NodeId, ToNode)| match word {
        ToNode::PlaceActor(place) => Some((*to, place.takeover.0, place.restarts, place.name.clone())),
        _ => None,
    };
    let placed: Vec<_> = heard.iter().filter_map(places).collect();
    assert_eq!(placed, [(HERE, 1, Some(1), Some(name()))], "{heard:?}");
    // One that was replaced since has none.
    let mut control = self::control();
    let second = process(HERE, 6);
    send(&mut control, THERE, here(vec![ended(0, process(THERE, 5))]));
    send(&mut control, HERE, here(vec![row(1, second)]));
    receive(&mut control, |control, out| control.on_all_here(NOW, out));
    assert_eq!(place(&control), (3, Some(second)));
}

#[test]
fn what_is_owned_by_a_node_that_does_not_come_back_ends() {
    let mut control = control();
    let owner = process(LOST, 1);
    let actor = TaskId { owner, number: 1 };
    let orphan = ActorHere { actor, create: None, name: None, ..row(0, process(THERE, 5)) };
    send(&mut control, THERE, here(vec![orphan]));
    let heard = receive(&mut control, |control, out| control.on_all_here(NOW, out));
    assert_eq!(heard, [(THERE, ToNode::EndActor { actor, takeover: Takeover(0), end: End::Killed })]);
}

#[test]
fn whoever_had_heard_of_an_actor_that_nobody_has_is_told_that_it_is_gone() {
    let mut control = control();
    let subscribers = vec![(ACTOR, DRIVER)];
    let word = ToControl::Here(Box::new(ActorsHere { subscribers, ..ActorsHere::default() }));
    assert_eq!(send(&mut control, HERE, word), []);
    let heard = receive(&mut control, |control, out| control.on_all_here(NOW, out));
    let [(HERE, ToNode::Routed { to: DRIVER, message })] = &heard[..] else { panic!("{heard:?}") };
    assert!(matches!(&**message, Message::ActorDead(dead) if dead.actor == ACTOR), "{message:?}");
}

#[test]
fn callers_that_missed_a_restart_hear_of_it_first() {
    let mut node = NodeCore::new(cpus(1.0), HERE.0, 0);
    node.on_connected(DRIVER, 1, NOW);
    let mut out = NodeActions::new();
    let subscribe = SubscribeActor { actor: TaskId { owner: process(THERE, 1), number: 7 } };
    let actor = subscribe.actor;
    assert_eq!(node.on_message(DRIVER, subscribe.into(), NOW, &mut out), None);
    out.clear();
    let at = |number| ActorStarted {
        actor,
        worker: process(THERE, number),
        concurrency: 1,
        replays: None,
        restarts: None,
    };
    let subscribed = |started| ToNode::Subscribed { actor, process: DRIVER, started };
    node.on_control(subscribed(Some(Box::new(at(5)))), &mut out);
    assert_eq!(std::mem::take(&mut out), [told(DRIVER, at(5))]);
    node.on_control(subscribed(Some(Box::new(at(6)))), &mut out);
    let heard: Vec<Message> = out
        .into_iter()
        .map(|action| match action {
            sooner_protocol::node::NodeAction::Send(DRIVER, message) => *message,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(
        matches!(&heard[..], [Message::ActorRestarting(_), Message::ActorStarted(now)] if *now == at(6)),
        "{heard:?}"
    );
}

#[test]
fn a_process_that_waits_for_its_state_gets_that_of_the_one_before() {
    let (first, second) = (process(THERE, 5), process(HERE, 6));
    let mut creation = create(ACTOR);
    creation_of(&mut creation).checkpoint_every = Some(1);
    let creation = Some(Box::new(creation));
    let state = Return { outcome: Outcome::Inline(Blob::from(&b"state"[..])), contained: Vec::new() };
    let before = ActorHere { create: creation.clone(), checkpoint: Some(state.clone()), ..ended(0, first) };
    let waiting = ActorHere { create: creation, worker: None, restarts: 0, ..row(1, second) };
    for is_first in [true, false] {
        let mut control = control();
        let words = [(THERE, before.clone()), (HERE, waiting.clone())];
        let order = if is_first { [0, 1] } else { [1, 0] };
        for (node, row) in order.map(|at: usize| words[at].clone()) {
            send(&mut control, node, here(vec![row]));
        }
        let placed = ToControl::ActorPlaced { actor: ACTOR, takeover: Takeover(1), worker: second };
        assert_eq!(send(&mut control, HERE, placed), []);
        let heard = receive(&mut control, |control, out| control.on_all_here(NOW, out));
        let restored = heard.iter().find_map(|(to, word)| match word {
            ToNode::Restore { takeover, restore } => Some((*to, takeover.0, restore.state.clone())),
            _ => None,
        });
        assert_eq!(restored, Some((HERE, 1, Some(state.clone()))), "{heard:?}");
    }
}

#[test]
fn callers_are_told_again_which_calls_the_last_checkpoints_cover() {
    let (taker, caller) = (process(HERE, 5), process(THERE, 8));
    let call = |owner, number| TaskId { owner, number };
    let covered = Some(vec![call(caller, 1), call(taker, 4), call(caller, 2)]);
    let mut control = control();
    send(&mut control, HERE, here(vec![ActorHere { covered, ..row(0, taker) }]));
    send(&mut control, THERE, here(Vec::new()));
    let told = receive(&mut control, |control, out| control.on_all_here(NOW, out));
    let done = sooner_wire::message::Checkpointed { actor: ACTOR, calls: vec![1, 2] };
    let word = ToNode::Routed { to: caller, message: Box::new(done.into()) };
    assert_eq!(told, [(THERE, word)], "the process has heard");
}

#[test]
fn owners_keep_what_the_last_checkpoint_refers_to_and_nothing_else() {
    let (taker, owner, other) = (process(HERE, 5), process(THERE, 8), process(THERE, 9));
    let object = |owner, number| TaskId { owner, number }.object(0);
    let lost = TaskId { owner: DRIVER, number: 8 };
    let inside = vec![object(owner, 1), object(taker, 1), object(owner, 2)];
    let stored = Outcome::Stored(Location { offset: 32, length: 8 });
    let state = Return { outcome: stored, contained: inside.clone() };
    let mut create = create(ACTOR);
    creation_of(&mut create).checkpoint_every = Some(1);
    let create = Some(Box::new(create));
    let actors = vec![ActorHere { checkpoint: Some(state), create, ..row(0, taker) }];
    let mut control = control();
    let kept = Some(vec![(ACTOR, Some(Place::of(32)))]);
    let word = ToControl::Here(Box::new(ActorsHere { actors, kept, ..ActorsHere::default() }));
    send(&mut control, HERE, word);
    // One was told of an earlier checkpoint, or of one of an actor that is gone; one has not heard of the
    // last.
    let keepers = Some(vec![(ACTOR, other), (lost, other)]);
    // And the node keeps states of both, and arguments.
    let kept =
        Some(vec![(lost, Some(Place::of(64))), (ACTOR, Some(Place::of(128))), (lost, None), (ACTOR, None)]);
    let word = ToControl::Here(Box::new(ActorsHere { keepers, kept, ..ActorsHere::default() }));
    send(&mut control, THERE, word);
    let kept = |words: &[(NodeId, ToNode)]| -> Vec<(WorkerId, ActorId, usize)> {
        let kept = |word: &(NodeId, ToNode)| match &word.1 {
            ToNode::Routed { to, message } => match &**message {
                Message::KeepObjects(keep) => Some((*to, keep.actor, keep.objects.len())),
                _ => None,
            },
            _ => None,
        };
        words.iter().filter_map(kept).collect()
    };
    let told = receive(&mut control, |control, out| control.on_all_here(NOW, out));
    assert!(told.contains(&(THERE, ToNode::LetGo(Place::of(64)))), "{told:?}");
    let is_dead = |word: &(NodeId, ToNode)| matches!(&word.1, ToNode::Dead(dead) if dead.actor == lost);
    assert!(told.iter().any(is_dead), "{told:?}");
    assert_eq!(
        kept(&told),
        [(other, lost, 0), (owner, ACTOR, 2)],
        "there may be another checkpoint on its way"
    );
    let state = Return { outcome: Outcome::Inline(Blob::default()), contained: inside };
    let next = sooner_wire::message::Checkpoint { actor: ACTOR, state, calls: Vec::new() };
    let word = ToControl::Routed { from: taker, message: Box::new(next.into()) };
    let told = send(&mut control, HERE, word);
    assert!(told.contains(&(HERE, ToNode::LetGo(Place::of(32)))), "{told:?}");
    let kill = sooner_wire::message::KillActor { actor: ACTOR, may_restart: None };
    let from = DRIVER;
    send(&mut control, HERE, ToControl::Routed { from, message: Box::new(kill.into()) });
    let gone = Box::new(worker_dead(taker, ""));
    let ended = ToControl::ActorProcessDead { actor: ACTOR, takeover: Takeover(0), gone };
    let told = send(&mut control, HERE, ended);
    assert_eq!(kept(&told), [(owner, ACTOR, 0)]);
    assert!(!told.contains(&(HERE, ToNode::LetGo(Place::of(32)))), "it may be in use again");
    assert!(told.contains(&(THERE, ToNode::LetGo(Place::of(128)))), "{told:?}");
}

#[test]
fn a_node_tells_who_keeps_objects_for_checkpoints() {
    let mut node = Member::new(cpus(1.0), HERE.0, 0);
    let keeper = node.new_worker_id();
    node.on_connected(keeper, 1, NOW);
    let keepers = |node: &mut sooner_protocol::node::uplink::Member| {
        let mut out = NodeActions::new();
        node.on_control_up(true, NOW, &mut out);
        let told = out.into_iter().find_map(|action| match action {
            sooner_protocol::node::NodeAction::Control(ToControl::Here(here)) => Some(here.keepers),
            _ => None,
        });
        told.flatten().expect("it says what is here")
    };
    let keep = |to, objects| {
        let message = Box::new(KeepObjects { actor: ACTOR, objects, more: None }.into());
        ToNode::Routed { to, message }
    };
    let object = TaskId { owner: keeper, number: 1 }.object(0);
    for to in [keeper, process(HERE, 70)] {
        node.on_control(keep(to, vec![object]), NOW, &mut NodeActions::new());
    }
    assert_eq!(keepers(&mut node), [(ACTOR, keeper)], "the other one is gone");
    node.on_control(keep(keeper, Vec::new()), NOW, &mut NodeActions::new());
    assert_eq!(keepers(&mut node), []);
    node.on_control(keep(keeper, vec![object]), NOW, &mut NodeActions::new());
    node.on_dead(keeper, "was killed", None, &mut NodeActions::new());
    assert_eq!(keepers(&mut node), []);
}

/// An actor that takes over is placed at a node, which has a driver; and its worker.
fn taking_over() -> (Member, WorkerId, ActorId, WorkerId) {
    placed(|place| {
        place.restores = true;
        place.restarts = Some(1);
        creation_of(&mut place.create).checkpoint_every = Some(1);
    })
}

/// An actor without restarts, but for the change, is placed at a node, which has a driver; and its worker.
fn placed(change: impl FnOnce(&mut PlaceActor)) -> (Member, WorkerId, ActorId, WorkerId) {
    let mut node = Member::new(cpus(1.0), HERE.0, 0);
    let driver = node.new_worker_id();
    node.on_connected(driver, 1, NOW);
    node.on_job(driver, Box::default(), &mut NodeActions::new());
    let actor = TaskId { owner: driver, number: 7 };
    let mut place = PlaceActor {
        takeover: Takeover(1),
        turn: 0,
        name: None,
        restores: false,
        create: Box::new(create(actor)),
        restarts: None,
        description: None,
    };
    change(&mut place);
    let begun = order(&mut node, ToNode::PlaceActor(Box::new(place)));
    let starts = |action: &NodeAction| match action {
        NodeAction::StartWorker(worker) => Some(*worker),
        _ => None,
    };
    let worker = begun.iter().find_map(starts).expect("it has room");
    node.on_connected(worker, 1, NOW);
    node.after_events(NOW, &mut NodeActions::new());
    (node, driver, actor, worker)
}

fn order(node: &mut Member, word: ToNode) -> NodeActions {
    let mut out = NodeActions::new();
    node.on_control(word, NOW, &mut out);
    node.after_events(NOW, &mut out);
    out
}

/// The control service hears of ends later than the nodes: the new process would wait for ever for a caller
/// whose end it was told of before it knew that it waits.
#[test]
fn an_actor_that_takes_over_waits_for_callers_of_whose_end_it_will_hear() {
    let (mut node, driver, actor, worker) = taking_over();
    let here = node.new_worker_id();
    node.on_connected(here, 1, NOW);
    node.on_dead(here, "was killed", None, &mut NodeActions::new());
    let there = process(THERE, 5);
    let (dead, lost) = (process(THERE, 6), process(LOST, 7));
    // The second is the address of a node: all its processes.
    for worker in [dead, WorkerId(LOST.0)] {
        let (reason, last_started) = ("was killed".to_owned(), Some(ACTOR));
        let gone = WorkerDead { worker, reason, last_started, ..WorkerDead::default() };
        order(&mut node, ToNode::WorkerDead(Box::new(gone)));
    }
    let callers = vec![driver, here, there, dead, lost];
    let restore = Restore { actor, state: None, callers, takeover: Some(Takeover(1)) };
    let out = order(&mut node, ToNode::Restore { takeover: Takeover(1), restore: Box::new(restore) });
    let told = out.iter().find_map(|action| match action {
        NodeAction::Send(to, message) if *to == worker => match &**message {
            Message::Restore(restore) => Some(restore.callers.clone()),
            _ => None,
        },
        _ => None,
    });
    assert_eq!(told, Some(vec![driver, there]));
    let watch = Box::new(Watch { worker: there }.into());
    let watch = NodeAction::Route { from: WorkerId(HERE.0), to: WorkerId(THERE.0), message: watch };
    assert!(out.contains(&watch), "{out:?}");
}

#[test]
fn a_state_that_came_after_the_end_of_its_process_is_for_the_next_one() {
    let (mut node, _, actor, worker) = taking_over();
    node.on_dead(worker, "was killed", None, &mut NodeActions::new());
    let state = Return { outcome: Outcome::Inline(Blob::from(&b"state"[..])), contained: Vec::new() };
    let restore =
        Restore { actor, state: Some(state.clone()), callers: Vec::new(), takeover: Some(Takeover(1)) };
    order(&mut node, ToNode::Restore { takeover: Takeover(1), restore: Box::new(restore) });
    let here = told_of_actor(&mut node);
    assert_eq!((here.takeover.0, &here.checkpoint), (1, &Some(state)));
}

fn nodes_asked(told: &[(NodeId, ToNode)], about: WorkerId) -> Vec<NodeId> {
    let is_asked = |word: &ToNode| matches!(word, ToNode::WorkerDead(gone) if gone.worker == about);
    told.iter().filter(|(_, word)| is_asked(word)).map(|(node, _)| *node).collect()
}

fn collected(gone: WorkerId) -> ToControl {
    ToControl::Collected { gone, held: Vec::new() }
}

fn settles(told: &[(NodeId, ToNode)], gone: WorkerId) -> bool {
    told.iter().any(|(_, word)| matches!(word, ToNode::Settled(settled) if settled.gone.contains(&gone)))
}

#[test]
fn what_a_node_said_before_its_end_comes_before_its_end() {
    // It came back, said that a process there had died, and died itself, while others were still to come.
    let mut control = control();
    control.on_node_joined(NodeCore::new(cpus(1.0), LOST.0, 0).row());
    let dead = process(LOST, 4);
    let gone = Some(Box::new(worker_dead(dead, "")));
    send(&mut control, LOST, here(Vec::new()));
    send(&mut control, LOST, ToControl::ProcessDead { process: dead, watchers: vec![HERE], gone });
    send(&mut control, LOST, collected(dead));
    receive(&mut control, |control, out| control.on_node_dead(LOST, "it was killed", out));
    [HERE, THERE].into_iter().for_each(|node| drop(send(&mut control, node, here(Vec::new()))));
    let told = receive(&mut control, |control, out| control.on_all_here(NOW, out));
    let asked: Vec<WorkerId> = told
        .iter()
        .filter_map(|(node, word)| match word {
            ToNode::WorkerDead(gone) if *node == HERE => Some(gone.worker),
            _ => None,
        })
        .collect();
    assert_eq!(asked, [dead, process(LOST, 0)], "it counts what is held of the one by itself");
    for (node, about) in [(HERE, dead), (HERE, process(LOST, 0))] {
        assert!(!settles(&send(&mut control, node, collected(about)), dead));
    }
    assert!(settles(&send(&mut control, THERE, collected(process(LOST, 0))), dead));
}

#[test]
fn a_node_whose_record_is_gone_and_that_matters_to_others_is_settled() {
    // The control service before had deleted it, and had not told everybody what follows.
    let mut control = control();
    let also = Some(Box::new(AlsoHere { watched: Some(vec![LOST, THERE]), ..AlsoHere::default() }));
    send(&mut control, HERE, ToControl::Here(Box::new(ActorsHere { also, ..ActorsHere::default() })));
    send(&mut control, THERE, here(Vec::new()));
    let told = receive(&mut control, |control, out| control.on_all_here(NOW, out));
    assert_eq!(nodes_asked(&told, process(LOST, 0)), [HERE, THERE]);
    assert_eq!(nodes_asked(&told, process(THERE, 0)), []);
    let again = receive(&mut control, |control, out| control.settle_forgotten([LOST], out));
    assert_eq!(again, [], "it is open");
    send(&mut control, HERE, collected(process(LOST, 0)));
    assert!(settles(&send(&mut control, THERE, collected(process(LOST, 0))), process(LOST, 0)));
    let again = receive(&mut control, |control, out| control.settle_forgotten([LOST], out));
    assert_eq!(again, [], "it is settled");
    // One that turns out to matter later, when a node cannot reach it.
    let other = NodeId(4 << 24);
    let told = receive(&mut control, |control, out| control.settle_forgotten([other], out));
    assert_eq!(nodes_asked(&told, process(other, 0)), [HERE, THERE]);
}

#[test]
fn who_comes_too_late_to_be_waited_for_owes_its_answer_until_it_is_there_or_gone() {
    for comes in [true, false] {
        let mut control = Directory::default();
        control.keep_records(Found { incarnation: 1, nodes: vec![HERE, THERE], ..Found::default() });
        control.expect_nodes(UNTIL);
        control.on_node_joined(NodeCore::new(cpus(1.0), HERE.0, 0).row());
        send(&mut control, HERE, here(Vec::new()));
        let dead = process(HERE, 4);
        let gone = Some(Box::new(worker_dead(dead, "")));
        send(&mut control, HERE, ToControl::ProcessDead { process: dead, watchers: vec![THERE], gone });
        send(&mut control, HERE, collected(dead));
        let told = receive(&mut control, |control, out| control.on_all_here(UNTIL, out));
        assert!(!settles(&told, dead), "the other node may have to do with it");
        let told = if comes {
            control.on_node_joined(NodeCore::new(cpus(1.0), THERE.0, 0).row());
            let told = send(&mut control, THERE, here(Vec::new()));
            assert_eq!(nodes_asked(&told, dead), [THERE]);
            send(&mut control, THERE, collected(dead))
        } else {
            let mut told =
                receive(&mut control, |control, out| control.on_node_dead(THERE, "it was silent", out));
            told.extend(send(&mut control, HERE, collected(process(THERE, 0))));
            told
        };
        assert!(settles(&told, dead));
    }
}

/// An actor that may not start again any more, as its node tells of it: nothing of it has begun, or it has.
fn last_life(is_ready: bool) -> ActorHere {
    let create = (!is_ready).then(|| Box::new(create(ACTOR)));
    ActorHere { restarts: 0, is_ready, create, ..row(1, process(THERE, 5)) }
}

#[test]
fn an_end_before_the_beginning_is_none_of_its_lives_after_a_restart_of_the_control_service_either() {
    let gone = WorkerDead { worker: process(THERE, 5), reason: "was killed".into(), ..WorkerDead::default() };
    let (unheard, heard) = (Some(Box::new(gone.clone())), None);
    for (is_ready, in_row) in
        [(false, unheard.clone()), (false, heard.clone()), (true, unheard), (true, heard)]
    {
        let mut control = control();
        send(&mut control, HERE, here(vec![]));
        let is_told_later = in_row.is_none();
        send(&mut control, THERE, here(vec![ActorHere { gone: in_row, ..last_life(is_ready) }]));
        let mut out = receive(&mut control, |control, out| control.on_all_here(NOW, out));
        if is_told_later {
            let ends = ToControl::ActorProcessDead {
                actor: ACTOR,
                takeover: Takeover(1),
                gone: Box::new(gone.clone()),
            };
            out.extend(send(&mut control, THERE, ends));
        }
        let placed = out
            .iter()
            .any(|(_, to)| matches!(to, ToNode::PlaceActor(place) if place.takeover == Takeover(2)));
        assert_eq!(placed, !is_ready, "ready: {is_ready}, told later: {is_told_later}: {out:?}");
    }
}

#[test]
fn a_node_tells_how_an_actor_began_until_its_constructor_has_returned() {
    let (mut node, _, actor, worker) = placed(|_| ());
    assert!(told_of_actor(&mut node).create.is_some(), "its process may end before it has begun");
    node.on_message(worker, ActorReady { actor, failure: None }.into(), NOW, &mut NodeActions::new());
    assert!(told_of_actor(&mut node).create.is_none(), "no other process takes over");
}

/// What a node tells of its one actor to a control service that has started again.
fn told_of_actor(node: &mut Member) -> ActorHere {
    let mut out = NodeActions::new();
    node.on_control_up(true, NOW, &mut out);
    let here = out.into_iter().find_map(|action| match action {
        NodeAction::Control(ToControl::Here(here)) => Some(here.actors),
        _ => None,
    });
    let [actor] = <[ActorHere; 1]>::try_from(here.expect("it says what is here")).expect("one actor");
    actor
}
