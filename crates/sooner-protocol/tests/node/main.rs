//! A node and the control service in it, seen from outside: what goes in, and which actions come out.

mod actors;
mod blocks;
mod cluster_spilling;
mod draining;
mod giving_way;
mod groups;
mod jobs;
mod learning;
mod memory;
mod pool;
mod promotion;
mod recalls;
mod records;
mod spill;
mod spilling;
mod starving;
mod state;
mod successions;
mod transfers;
mod two_deaths;
mod two_nodes;
mod unable;
mod unbegun;
mod values_on_disk;
mod watches;

use sooner_protocol::engine::Solo;
use sooner_protocol::node::{NodeAction, NodeActions, NodeCore};
use sooner_protocol::time::Instant;
use sooner_wire::message::{
    ActorCreation, CreateActor, Define, Message, Push, RequestLease, Target, TaskSpec,
};
use sooner_wire::{ActorId, Blob, FunctionId, Name, ResourceSet, ShapeId, Started, TaskId, WorkerId};

#[path = "../kit/mod.rs"]
mod kit;

use kit::{cpus, plain, worker_dead};

const DRIVER: WorkerId = WorkerId(1);
const OTHER: WorkerId = WorkerId(2);
const NOW: Instant = Instant(5);
const ACTOR: ActorId = TaskId { owner: DRIVER, number: 7 };

/// The driver is connected; two idle workers are kept. Ids of workers begin with 101.
fn node(count: f64) -> Solo {
    let mut node = Solo::new(cpus(count), 100, 2);
    node.on_connected(DRIVER, 1, NOW);
    node
}

fn send(node: &mut Solo, from: WorkerId, message: impl Into<Message>) -> NodeActions {
    let mut out = NodeActions::new();
    assert_eq!(node.on_message(from, message.into(), NOW, &mut out), None);
    node.after_events(NOW, &mut out);
    node.check();
    out
}

/// Something happens to a node among several.
fn on(node: &mut NodeCore, event: impl FnOnce(&mut NodeCore, &mut NodeActions)) -> NodeActions {
    let mut out = NodeActions::new();
    event(node, &mut out);
    node.after_events(NOW, &mut out);
    node.check();
    out
}

fn after_events(node: &mut Solo, now: Instant) -> NodeActions {
    let mut out = NodeActions::new();
    node.after_events(now, &mut out);
    out
}

fn connect(node: &mut Solo, process: WorkerId) -> NodeActions {
    node.on_connected(process, 9, NOW);
    after_events(node, NOW)
}

/// What a process began last that ends in these tests: the constructor, if it was that of an actor.
const BEGUN: Option<Started> = Some(Started { task: ACTOR, in_actor: true });

fn end(node: &mut Solo, process: WorkerId) -> NodeActions {
    let mut out = NodeActions::new();
    node.on_dead(process, "was killed by signal 9", BEGUN, &mut out);
    node.after_events(NOW, &mut out);
    node.check();
    out
}

fn told(to: WorkerId, message: impl Into<Message>) -> NodeAction {
    NodeAction::Send(to, Box::new(message.into()))
}

fn request(shape: u32, demand: u32) -> RequestLease {
    RequestLease {
        shape: ShapeId(shape),
        resources: cpus(1.0),
        demand,
        strategy: None,
        prefer: None,
        priority: None,
        raises_memory: None,
    }
}

/// What an actor's creation says about it.
fn creation_of(create: &mut CreateActor) -> &mut ActorCreation {
    let Target::Class(creation) = &mut create.constructor.spec.target else {
        panic!("{} is constructed otherwise", create.actor.number)
    };
    creation
}

/// An actor that needs a CPU to be placed, and half a one after that.
fn create(actor: ActorId) -> CreateActor {
    let name = Name::from("Counter");
    let (code, references) = (Blob::default(), Vec::new());
    let target = ActorCreation { concurrency: 1, ..ActorCreation::new(FunctionId(1)) };
    let spec = TaskSpec::of(actor, Target::Class(target), name.clone(), Blob::default());
    CreateActor {
        actor,
        placement: cpus(1.0),
        lifetime: cpus(0.5),
        class: Box::new(Define { function: FunctionId(1), name, code, references, place: None }),
        constructor: Box::new(Push { spec: Box::new(spec), dependencies: Vec::new(), gpus: Vec::new() }),
        restarts: None,
        detached: None,
        job: None,
    }
}
