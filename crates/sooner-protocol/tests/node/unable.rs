//! Actors that a node gives back because it can start no workers for their job: where the directory has them
//! begin instead.

use std::collections::BTreeSet;

use sooner_protocol::control::{Directory, DirectoryAction, DirectoryActions};
use sooner_protocol::scheduling::policy::NodeRow;
use sooner_protocol::uplink::{ToControl, ToNode};
use sooner_wire::message::{CreateActor, FailureCode, Job, JobConfig, JobState};
use sooner_wire::strategy::NodeAffinity;
use sooner_wire::{ActorId, NodeId, Strategy, Takeover, TaskId, WorkerId};

use super::draining::{placed_on, send};
use super::{cpus, create, creation_of};

const HOME: NodeId = NodeId(1 << 24);
const SECOND: NodeId = NodeId(2 << 24);
const THIRD: NodeId = NodeId(3 << 24);
const PROGRAM: WorkerId = WorkerId(HOME.0 + 1);
const WHY: &str = "node b: there is no such program";

fn join(control: &mut Directory, node: NodeId, count: f64) {
    let (free, total) = (cpus(count), cpus(count));
    control.on_node_joined(NodeRow { node, free, total, labels: Vec::new() });
}

/// The directory with a small node, where a program is, and two larger ones.
fn directory() -> Directory {
    let mut control = Directory::default();
    for (node, count) in [(HOME, 1.0), (SECOND, 4.0), (THIRD, 4.0)] {
        join(&mut control, node, count);
    }
    start_job(&mut control, PROGRAM);
    control
}

fn start_job(control: &mut Directory, job: WorkerId) {
    let config = Some(Box::new(JobConfig::default()));
    send(control, job.node(), ToControl::Job(Box::new(Job { job, state: JobState::Started, config })));
}

/// Which the home is too small for.
fn large(actor: ActorId) -> CreateActor {
    CreateActor { placement: cpus(2.0), ..create(actor) }
}

fn bound(actor: ActorId, node: NodeId, soft: bool) -> CreateActor {
    let mut create = create(actor);
    let strategy = Strategy::Node(NodeAffinity { node, soft });
    creation_of(&mut create).scheduling.strategy = Some(Box::new(strategy));
    create
}

fn actor(number: u64) -> ActorId {
    TaskId { owner: PROGRAM, number }
}

fn ask(control: &mut Directory, create: &CreateActor) -> DirectoryActions {
    let from = create.actor.owner;
    let message = Box::new(create.clone().into());
    send(control, from.node(), ToControl::Routed { from, message })
}

fn refuse(control: &mut Directory, node: NodeId, create: &CreateActor) -> DirectoryActions {
    let (actor, reason, create) = (create.actor, WHY.to_owned(), Some(Box::new(create.clone())));
    send(
        control,
        node,
        ToControl::PlaceRefused {
            actor,
            takeover: Takeover(0),
            reason,
            create,
            no_workers: true,
            for_now: false,
        },
    )
}

/// Actors that are dead because no node has workers for them.
fn dead(out: &DirectoryActions) -> Vec<ActorId> {
    let dead = |action: &DirectoryAction| match action {
        DirectoryAction::Send(_, word) => match &**word {
            ToNode::Dead(dead) => {
                let failure = &dead.failure;
                let says_why = failure.code == FailureCode::ActorDied && failure.message.ends_with(WHY);
                assert!(says_why, "{failure:?}");
                Some(dead.actor)
            }
            _ => None,
        },
        DirectoryAction::Warn(_) | DirectoryAction::Persist(..) => None,
    };
    // Its caller's node hears of it, and the one that was asked.
    Vec::from_iter(out.iter().filter_map(dead).collect::<BTreeSet<_>>())
}

#[test]
fn an_actor_begins_on_another_node_and_is_dead_when_none_is_left() {
    let mut control = directory();
    let first = large(actor(1));
    assert_eq!(placed_on(&ask(&mut control, &first)), [(SECOND, 0)]);
    assert_eq!(placed_on(&refuse(&mut control, SECOND, &first)), [(THIRD, 0)]);
    assert_eq!(dead(&refuse(&mut control, THIRD, &first)), [actor(1)]);
    // What comes later is not asked of them at all.
    assert_eq!(dead(&ask(&mut control, &large(actor(2)))), [actor(2)]);
    assert_eq!(placed_on(&ask(&mut control, &create(actor(3)))), [(HOME, 0)]);
}

#[test]
fn a_strategy_is_kept() {
    let mut control = directory();
    let hard = bound(actor(1), SECOND, false);
    assert_eq!(placed_on(&ask(&mut control, &hard)), [(SECOND, 0)]);
    assert_eq!(dead(&refuse(&mut control, SECOND, &hard)), [actor(1)]);
    let out = ask(&mut control, &bound(actor(2), SECOND, true));
    assert!(matches!(placed_on(&out)[..], [(HOME | THIRD, 0)]), "{out:?}");
}

#[test]
fn it_is_known_of_one_job_and_forgotten_with_the_node() {
    let mut control = directory();
    let first = large(actor(1));
    ask(&mut control, &first);
    refuse(&mut control, SECOND, &first);
    let other = WorkerId(HOME.0 + 2);
    start_job(&mut control, other);
    let its = large(TaskId { owner: other, number: 1 });
    assert_eq!(placed_on(&ask(&mut control, &its)), [(SECOND, 0)]);
    let mut out = DirectoryActions::new();
    control.on_node_dead(SECOND, "it was silent", &mut out);
    control.on_node_dead(THIRD, "it was silent", &mut out);
    join(&mut control, SECOND, 4.0);
    assert_eq!(placed_on(&ask(&mut control, &large(actor(2)))), [(SECOND, 0)]);
}

#[test]
fn what_larger_nodes_that_join_could_run_waits() {
    let mut control = directory();
    let first = large(actor(1));
    ask(&mut control, &first);
    refuse(&mut control, SECOND, &first);
    let huge = CreateActor { placement: cpus(8.0), ..create(actor(2)) };
    let out = ask(&mut control, &huge);
    assert_eq!((placed_on(&out), dead(&out)), (vec![], vec![]));
    join(&mut control, NodeId(4 << 24), 8.0);
    let mut out = DirectoryActions::new();
    control.after_events(super::NOW, &mut out);
    assert_eq!(placed_on(&out), [(NodeId(4 << 24), 0)]);
}

#[test]
fn an_actor_of_a_job_that_is_not_known_is_dead() {
    let mut control = directory();
    let unknown = large(TaskId { owner: WorkerId(HOME.0 + 2), number: 1 });
    assert_eq!(placed_on(&ask(&mut control, &unknown)), [(SECOND, 0)]);
    // Asked for again, the node would refuse it for ever.
    assert_eq!(dead(&refuse(&mut control, SECOND, &unknown)), [unknown.actor]);
}

#[test]
fn a_refusal_that_comes_late_changes_nothing_but_where_others_begin() {
    let mut control = directory();
    let first = large(actor(1));
    ask(&mut control, &first);
    let process = WorkerId(SECOND.0 + 9);
    let placed = ToControl::ActorPlaced { actor: actor(1), takeover: Takeover(0), worker: process };
    send(&mut control, SECOND, placed);
    let out = refuse(&mut control, SECOND, &first);
    assert_eq!((placed_on(&out), dead(&out)), (vec![], vec![]));
    assert_eq!(placed_on(&ask(&mut control, &large(actor(2)))), [(THIRD, 0)]);
}
