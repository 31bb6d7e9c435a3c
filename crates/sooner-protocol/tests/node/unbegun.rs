//! Actors that are ended while a node may be giving them a process: nobody hears of the end before that node
//! has said that nothing of them is there. Whoever owns the arguments of the constructor gives them back
//! then, and they may lie there.

use sooner_protocol::control::{Directory, DirectoryAction, DirectoryActions};
use sooner_protocol::node::{NodeAction, NodeActions, NodeCore};
use sooner_protocol::scheduling::policy::NodeRow;
use sooner_protocol::uplink::{End, PlaceActor, ToControl, ToNode};
use sooner_wire::message::{ActorOutOfScope, CreateActor, KillActor, Message};
use sooner_wire::{ActorId, NodeId, Takeover, TaskId, WorkerId};

use super::draining::{placed_on, send};
use super::{NOW, cpus, create, worker_dead};

const HOME: NodeId = NodeId(1 << 24);
const THERE: NodeId = NodeId(2 << 24);
const CREATOR: WorkerId = WorkerId(HOME.0 + 1);
const PROCESS: WorkerId = WorkerId(THERE.0 + 9);
const ACTOR: ActorId = TaskId { owner: CREATOR, number: 7 };

fn restartable() -> CreateActor {
    CreateActor { restarts: Some(2), ..create(ACTOR) }
}

/// The directory, and an actor that `THERE` was asked for: its creator's node has no CPU.
fn directory() -> Directory {
    let mut control = Directory::default();
    for (node, count) in [(HOME, 0.0), (THERE, 1.0)] {
        let (free, total) = (cpus(count), cpus(count));
        control.on_node_joined(NodeRow { node, free, total, labels: Vec::new() });
    }
    assert_eq!(placed_on(&asks(&mut control, restartable())), [(THERE, 0)]);
    control
}

fn asks(control: &mut Directory, message: impl Into<Message>) -> DirectoryActions {
    send(control, HOME, ToControl::Routed { from: CREATOR, message: Box::new(message.into()) })
}

/// The words by which an actor ends before it has a process.
fn ends() -> [Message; 2] {
    [KillActor { actor: ACTOR, may_restart: None }.into(), ActorOutOfScope { actor: ACTOR }.into()]
}

fn told_dead(out: &DirectoryActions) -> Vec<NodeId> {
    let dead = |action: &DirectoryAction| match action {
        DirectoryAction::Send(node, word) => matches!(**word, ToNode::Dead(_)).then_some(*node),
        DirectoryAction::Warn(_) | DirectoryAction::Persist(..) => None,
    };
    out.iter().filter_map(dead).collect()
}

fn is_ended(out: &DirectoryActions) -> bool {
    let end = ToNode::EndActor { actor: ACTOR, takeover: Takeover(0), end: End::Killed };
    out.contains(&DirectoryAction::Send(THERE, Box::new(end)))
}

fn refused(for_now: bool) -> ToControl {
    let (reason, create) = ("it was ended there".to_owned(), Some(Box::new(restartable())));
    ToControl::PlaceRefused {
        actor: ACTOR,
        takeover: Takeover(0),
        reason,
        create,
        no_workers: false,
        for_now,
    }
}

#[test]
fn its_creator_hears_of_its_end_when_its_node_has_nothing_of_it() {
    for end in ends() {
        // Also if the node had refused it, or is about to leave, before it heard.
        for for_now in [true, false] {
            let mut control = directory();
            let out = asks(&mut control, end.clone());
            assert_eq!((is_ended(&out), told_dead(&out)), (true, vec![]), "{end:?}");
            let out = send(&mut control, THERE, refused(for_now));
            assert!(told_dead(&out).contains(&HOME), "{out:?}");
            assert_eq!(placed_on(&out), [], "it does not begin elsewhere");
        }
    }
}

#[test]
fn a_process_that_it_has_got_meanwhile_ends_first() {
    for end in ends() {
        let mut control = directory();
        asks(&mut control, end);
        let placed = ToControl::ActorPlaced { actor: ACTOR, takeover: Takeover(0), worker: PROCESS };
        let out = send(&mut control, THERE, placed);
        assert_eq!((is_ended(&out), told_dead(&out)), (true, vec![]));
        let is_news = |action: &DirectoryAction| matches!(action, DirectoryAction::Send(_, word) if matches!(**word, ToNode::Started(_)));
        assert!(!out.iter().any(is_news), "nobody calls it: {out:?}");
        let gone = Box::new(worker_dead(PROCESS, ""));
        let out = send(
            &mut control,
            THERE,
            ToControl::ActorProcessDead { actor: ACTOR, takeover: Takeover(0), gone },
        );
        assert!(told_dead(&out).contains(&HOME), "{out:?}");
        assert_eq!(placed_on(&out), [], "it does not start again");
    }
}

#[test]
fn a_node_that_is_gone_is_not_waited_for() {
    for end in ends() {
        let mut control = directory();
        asks(&mut control, end);
        let mut out = DirectoryActions::new();
        control.on_node_dead(THERE, "it is silent", &mut out);
        assert_eq!(told_dead(&out), [HOME]);
    }
}

#[test]
fn a_node_says_that_what_was_ended_there_is_not_there() {
    let mut node = NodeCore::new(cpus(0.0), THERE.0, 2);
    node.join_cluster();
    let place = PlaceActor {
        takeover: Takeover(0),
        turn: 1,
        name: None,
        restores: false,
        create: Box::new(restartable()),
        restarts: Some(2),
        description: None,
    };
    let end = |node: &mut NodeCore| {
        let mut out = NodeActions::new();
        node.on_control(ToNode::EndActor { actor: ACTOR, takeover: Takeover(0), end: End::Killed }, &mut out);
        out
    };
    node.on_control(ToNode::PlaceActor(Box::new(place)), &mut NodeActions::new());
    node.after_events(NOW, &mut NodeActions::new());
    assert_eq!(end(&mut node), [NodeAction::Control(refused(true))]);
    assert_eq!(end(&mut node), [], "once");
    assert!(node.is_quiet());
}
