//! Nodes that can start no workers for a job.

use sooner_wire::message::{CreateActor, Define, Push, TaskKind, TaskSpec};
use sooner_wire::{Blob, FunctionId, Name, Takeover};

use super::*;
use crate::node::workers::pool::WorkerState;
use crate::uplink::PlaceActor;

const WHY: &str = "node b: there is no such program";

impl World {
    /// A node finds out that it can start no workers for a job.
    fn give_up(&mut self, at: usize, job: WorkerId) {
        self.starting[at].clear();
        self.with(at, |node, out| {
            let of_job = node.pool.of_job(job).filter(|(_, worker)| worker.state == WorkerState::Starting);
            for worker in of_job.map(|(id, _)| id).collect::<Vec<_>>() {
                node.on_start_failed(worker, "the template process ended", out);
            }
            node.on_job_given_up(job, WHY, out);
        });
    }

    fn closed(&self, client: WorkerId) -> Vec<(ShapeId, String)> {
        let closed = self.clients[&client].infeasible.iter().filter_map(|told| told.closed.as_deref());
        closed.map(|closed| (closed.shape, closed.failure.message.clone())).collect()
    }
}

#[test]
fn what_waits_for_workers_that_cannot_be_started_goes_to_other_nodes() {
    let mut world = World::new(&[0.0, 1.0, 1.0]);
    let client = world.client(0);
    world.send(client, request(0, 2));
    assert!(world.deliver(0, 1) && world.deliver(0, 2));
    world.give_up(1, client);
    world.run();
    assert_eq!(world.nodes_of(client), [2]);
    assert!(world.nodes[1].is_quiet() && world.closed(client).is_empty());
    // It is not asked again, whatever it has free.
    world.send(client, request(1, 1));
    world.notify_views();
    world.wait(2_000);
    world.run();
    assert_eq!(world.nodes[1].askers[&client].demands.len(), 0);
    // Another job has nothing to do with it.
    let other = world.client(0);
    world.send(other, request(0, 1));
    world.run();
    assert_eq!(world.nodes_of(other), [1]);
    world.finish();
}

#[test]
fn what_no_other_node_can_run_fails_with_the_reason() {
    let mut world = World::new(&[1.0, 4.0]);
    let client = world.client(0);
    let large = RequestLease { resources: cpus(4.0), ..request(1, 1) };
    let bound = at(2, 1, Strategy::Node(NodeAffinity { node: id(1), soft: false }));
    let soft = at(3, 1, Strategy::Node(NodeAffinity { node: id(1), soft: true }));
    for wanted in [large, bound, soft] {
        world.send(client, wanted);
    }
    assert!(world.deliver(0, 1));
    world.give_up(1, client);
    world.run();
    let closed = world.closed(client);
    assert_eq!(closed.iter().map(|(shape, _)| shape.0).collect::<Vec<_>>(), [1, 2]);
    assert!(closed.iter().all(|(_, text)| text.ends_with(WHY)), "{closed:?}");
    assert_eq!(world.nodes_of(client), [0], "what may run anywhere does");
    assert_eq!(world.wanted(), 0);
    // Asked for later, it fails at once.
    world.send(client, RequestLease { resources: cpus(3.0), ..request(4, 1) });
    assert_eq!(world.closed(client).last().map(|(shape, _)| shape.0), Some(4));
    world.finish();
    // A node that is gone may come back as one that can.
    world.with(0, |node, out| node.on_node_dead(id(1), out));
    world.notify_views();
    world.send(client, RequestLease { resources: cpus(2.0), ..request(5, 1) });
    assert!(world.deliver(0, 1), "it is asked again");
    world.run();
    assert_eq!(world.closed(client).last().map(|(shape, _)| shape.0), Some(5));
}

#[test]
fn what_was_said_to_wait_for_a_node_fails_if_the_node_that_comes_cannot_begin_it() {
    let mut world = World::new(&[1.0, 4.0]);
    let client = world.client(0);
    world.with(0, |node, out| node.on_node_dead(id(1), out));
    world.send(client, RequestLease { resources: cpus(4.0), ..request(1, 1) });
    assert_eq!((world.clients[&client].infeasible.len(), world.closed(client)), (1, vec![]));
    world.notify_views();
    world.with(0, |_, _| {});
    assert!(world.deliver(0, 1), "the node that joined is asked");
    world.give_up(1, client);
    world.run();
    assert_eq!(world.closed(client).len(), 1);
    world.send(client, RequestLease { resources: cpus(4.0), ..request(1, 1) });
    assert_eq!(world.clients[&client].infeasible.len(), 2, "each is said once");
}

#[test]
fn a_worker_of_such_a_job_finds_others_elsewhere() {
    let mut world = World::new(&[2.0, 2.0]);
    let driver = world.client(0);
    let worker = world.client(1);
    world.nodes[1].askers[&worker].job = driver;
    world.send(worker, request(0, 1));
    assert!(!world.starting[1].is_empty(), "its own node has room");
    world.give_up(1, driver);
    world.run();
    assert_eq!(world.nodes_of(worker), [0]);
    // Without any other node there is no place for it.
    world.know(1, 0, node_state::DRAINING);
    world.send(worker, request(1, 1));
    assert_eq!(world.closed(worker).len(), 1);
    // When the job is over its number is forgotten.
    world.nodes[1].close_job(driver);
    assert!(world.nodes[1].cannot_start(driver).is_none());
}

#[test]
fn work_in_a_group_fails_if_the_nodes_of_its_bundles_cannot_begin_it() {
    let mut world = World::new(&[4.0, 4.0, 4.0]);
    let client = world.client(0);
    let place = InGroup { group: GROUP, bundle: None, captures: false };
    world.send(client, at(1, 1, Strategy::Group(place)));
    world.give_up(2, client);
    world.nodes[0].unable.note(client, id(2), WHY);
    let message = Box::new(group_row(GroupPhase::Created, &[id(2), id(2)]).into());
    world.with(0, |node, out| node.on_control(ToNode::Routed { to: address(id(0)), message }, out));
    world.run();
    let closed = world.closed(client);
    assert!(matches!(&closed[..], [(ShapeId(1), text)] if text.ends_with(WHY)), "{closed:?}");
}

fn create(actor: TaskId, job: WorkerId) -> Box<CreateActor> {
    let (function, name) = (FunctionId(7), Name::from("A"));
    let spec = TaskSpec::new(actor, TaskKind::Creation, function, name.clone(), Blob::default());
    let push = Push { spec: Box::new(spec), dependencies: vec![], gpus: vec![] };
    let define = Define { function, name, code: Blob::default(), references: vec![], place: None };
    Box::new(CreateActor {
        actor,
        class: Box::new(define),
        constructor: Box::new(push),
        placement: cpus(1.0),
        lifetime: cpus(1.0),
        restarts: None,
        detached: None,
        job: Some(job),
    })
}

#[test]
fn actors_without_a_process_come_back() {
    let mut world = World::new(&[0.0, 1.0]);
    let client = world.client(0);
    let place = |number| PlaceActor {
        takeover: Takeover(0),
        turn: number,
        name: None,
        restores: false,
        create: create(TaskId { owner: client, number }, client),
        restarts: None,
        description: None,
    };
    // One has its resources and waits for a worker, the other waits for resources.
    for number in 0..2 {
        let order = ToNode::PlaceActor(Box::new(place(number)));
        world.with(1, |node, out| node.on_control(order, out));
    }
    assert!(world.control.is_empty());
    world.give_up(1, client);
    let order = ToNode::PlaceActor(Box::new(place(2)));
    world.with(1, |node, out| node.on_control(order, out));
    let mut refused: Vec<u64> = world
        .control
        .iter()
        .filter_map(|said| match said {
            ToControl::PlaceRefused {
                actor,
                takeover: Takeover(0),
                reason,
                create: Some(create),
                no_workers: true,
                ..
            } if reason == WHY && create.actor == *actor => Some(actor.number),
            _ => None,
        })
        .collect();
    refused.sort_unstable();
    assert_eq!(refused, [0, 1, 2]);
    assert!(world.nodes[1].is_quiet() && world.nodes[1].local_actors.rows().next().is_none());
}

impl World {
    /// Time passes, in which all starts of these nodes fail.
    fn starve(&mut self, nodes: &[usize], seconds: u64) {
        let end = self.now.plus(seconds * 1_000 * MILLI);
        while self.now < end {
            self.wait(100);
            for at in nodes {
                let starting = std::mem::take(&mut self.starting[*at]);
                self.with(*at, |node, out| {
                    starting.into_iter().for_each(|worker| node.on_start_failed(worker, WHY, out));
                });
            }
            let all = 0..self.nodes.len();
            while all.clone().any(|from| all.clone().any(|to| self.deliver(from, to))) {}
            while all.clone().filter(|at| !nodes.contains(at)).any(|at| self.start(at)) {}
        }
    }
}

#[test]
fn what_a_node_could_start_no_worker_for_goes_to_another() {
    let mut world = World::new(&[0.0, 1.0, 1.0]);
    let client = world.client(0);
    world.send(client, request(0, 1));
    assert!(world.deliver(0, 1) || world.deliver(0, 2));
    let first = (1..=2).find(|at| !world.nodes[*at].is_quiet()).expect("one was asked");
    world.starve(&[first], 20);
    assert!(world.nodes[first].is_quiet());
    assert_eq!(world.nodes_of(client), [3 - first], "it went to the other");
    assert!(world.closed(client).is_empty());
    world.finish();
}

#[test]
fn what_no_node_could_start_a_worker_for_fails_once_and_is_tried_again_later() {
    let mut world = World::new(&[0.0, 1.0, 1.0]);
    let client = world.client(0);
    world.send(client, request(0, 3));
    assert!(world.deliver(0, 1) && world.deliver(0, 2));
    world.starve(&[1, 2], 60);
    let closed = world.closed(client);
    assert_eq!(closed.len(), 1, "{closed:?}");
    assert!(closed[0].1.ends_with(WHY), "{closed:?}");
    world.assert_quiet();
    // There is room again, and nobody has to say so.
    world.wait(60_000);
    world.notify_views();
    world.send(client, request(0, 1));
    world.run();
    assert_eq!(world.nodes_of(client).len(), 1);
    world.finish();
}
