//! A control service that writes down what outlives it: killed at any moment, over a disk that is slow or
//! full, beside nodes that end meanwhile. What nodes and processes were told must be true of the next one,
//! too.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;
use sooner_protocol::control::persist::{BatchId, Write};
use sooner_protocol::control::{Directory, DirectoryAction, DirectoryActions, Found};
use sooner_protocol::node::NodeCore;
use sooner_protocol::time::Instant;
use sooner_protocol::uplink::{ToControl, ToNode};
use sooner_wire::limits::{CONTROL_AWAY_NANOS, STORE_RETRY_NANOS};
use sooner_wire::message::{
    ActorHere, ActorReady, ActorsHere, Answer, Bundle, BundleStep, CreateGroup, FindName, GroupPhase,
    GroupStrategy, Job, JobConfig, JobState, KillActor, Message, PlaceActor, Prepared, ReserveName,
};
use sooner_wire::record::{ACTORS, ActorRecord};
use sooner_wire::{ActorId, Blob, NodeId, PlacementAttempt, Takeover, TaskId, WorkerId};

use super::{cpus, create, worker_dead};

const NODES: u64 = 3;
/// Where whoever asks for actors is. It never ends.
const HOME: NodeId = NodeId(9 << 24);
const DRIVER: WorkerId = WorkerId(HOME.0 + 1);

/// What a node has: of each actor its takeover, what it was told, and its process.
type Actors = BTreeMap<ActorId, (Box<PlaceActor>, WorkerId)>;

struct World {
    now: Instant,
    head: Option<Directory>,
    incarnation: u32,
    /// Generation and what is there, of each node that lives.
    nodes: BTreeMap<NodeId, Actors>,
    disk: BTreeMap<String, Vec<u8>>,
    queue: VecDeque<(BatchId, Vec<Write>)>,
    is_full: bool,
    /// Which nodes the records of nodes would name.
    known: BTreeSet<NodeId>,
    generation: u64,
    processes: u64,
    made: u64,
    requests: u64,
    /// Names that were given, and not ended since.
    given: BTreeMap<u64, ActorId>,
    asked: BTreeMap<u64, ActorId>,
    refused: BTreeSet<u64>,
    /// Actors of which the creator was told that they are gone.
    dead: BTreeSet<ActorId>,
    killed: Vec<ActorId>,
    creations: Vec<ActorId>,
    found: Option<(u64, Option<ActorId>)>,
    /// The node that was asked for each takeover.
    placed: BTreeMap<(ActorId, Takeover), NodeId>,
}

fn name_of(actor: ActorId) -> String {
    format!("n{}", actor.number)
}

impl World {
    fn new() -> Self {
        let mut this = Self {
            now: Instant(1),
            head: None,
            incarnation: 0,
            nodes: BTreeMap::new(),
            disk: BTreeMap::new(),
            queue: VecDeque::new(),
            is_full: false,
            known: BTreeSet::new(),
            generation: 10,
            processes: 1,
            made: 0,
            requests: 0,
            given: BTreeMap::new(),
            asked: BTreeMap::new(),
            refused: BTreeSet::new(),
            dead: BTreeSet::new(),
            killed: Vec::new(),
            creations: Vec::new(),
            found: None,
            placed: BTreeMap::new(),
        };
        this.nodes.insert(HOME, Actors::new());
        (0..NODES).for_each(|_| this.add_node());
        this.start_head();
        this
    }

    fn read<T>(&self, table: &str, read: impl Fn(&[u8]) -> T) -> Vec<T> {
        let rows = self.disk.iter().filter(|(key, _)| key.starts_with(table));
        rows.map(|(_, value)| read(value)).collect()
    }

    fn found_on_disk(&self) -> Found {
        let found = Found::read(self.disk.clone()).expect("records");
        assert!(found.actors.iter().all(|(_, create)| create.is_some()), "all of it was written");
        Found { incarnation: self.incarnation, nodes: self.known.iter().copied().collect(), ..found }
    }

    fn start_head(&mut self) {
        if self.head.is_some() {
            return;
        }
        let mut core = Directory::default();
        core.keep_records(self.found_on_disk());
        core.expect_nodes(self.now.plus(10_000_000_000));
        self.incarnation += 1;
        self.head = Some(core);
        for node in self.known.clone() {
            if !self.nodes.contains_key(&node) {
                self.known.remove(&node);
                self.with_head(|head, _, out| head.on_node_dead(node, "it did not come back", out));
            }
        }
        let nodes: Vec<NodeId> = self.nodes.keys().copied().collect();
        nodes.into_iter().for_each(|node| self.join(node));
        assert!(self.head.as_ref().is_some_and(Directory::has_received_all));
        self.with_head(|head, now, out| head.on_all_here(now, out));
    }

    /// A node says what it has, and its processes what they say again.
    fn join(&mut self, node: NodeId) {
        self.known.insert(node);
        // So that actors are where nodes end.
        let count = if node == HOME { 0.0 } else { 100.0 };
        let row = NodeCore::new(cpus(count), node.0, 0).row();
        self.with_head(|head, _, _| head.on_node_joined(row));
        let mut here = ActorsHere::default();
        for (id, (place, worker)) in &self.nodes[&node] {
            here.actors.push(ActorHere {
                actor: *id,
                takeover: place.takeover,
                worker: Some(*worker),
                is_ready: true,
                job: DRIVER,
                name: place.name.clone(),
                description: place.description.clone(),
                class: "Counter".to_owned(),
                detached: true,
                concurrency: 1,
                restarts: place.restarts.unwrap_or(0),
                create: Some(place.create.clone()),
                checkpoint: None,
                gone: None,
                group: None,
                covered: None,
            });
        }
        if node == HOME {
            let config = Some(Box::new(JobConfig { namespace: "space".into(), ..JobConfig::default() }));
            here.jobs.push(Job { job: DRIVER, state: JobState::Started, config });
        }
        self.send(node, ToControl::Here(Box::new(here)));
        if node == HOME {
            for (request, actor) in self.asked.clone() {
                self.reserve(request, actor);
            }
            for actor in std::mem::take(&mut self.creations) {
                self.create(actor);
            }
            for actor in self.killed.clone() {
                self.tell(KillActor { actor, may_restart: None });
            }
        }
    }

    fn add_node(&mut self) {
        self.generation += 1;
        let node = NodeId(self.generation << 24);
        self.nodes.insert(node, Actors::new());
        if self.head.is_some() {
            self.join(node);
        }
    }

    fn kill_node(&mut self, at: usize) {
        let Some(node) = self.nodes.keys().copied().filter(|node| *node != HOME).nth(at) else { return };
        self.nodes.remove(&node);
        if self.head.is_some() {
            self.known.remove(&node);
            self.with_head(|head, _, out| head.on_node_dead(node, "it was killed", out));
        }
        self.add_node();
    }

    fn kill_process(&mut self, at: usize) {
        let all: Vec<(NodeId, ActorId)> =
            self.nodes.iter().flat_map(|(node, actors)| actors.keys().map(move |id| (*node, *id))).collect();
        // While there is no head its node would tell of it later: that is for the tests of nodes.
        let Some((node, id)) = all.get(at % all.len().max(1)).copied().filter(|_| self.head.is_some()) else {
            return;
        };
        let (place, worker) =
            self.nodes.get_mut(&node).and_then(|actors| actors.remove(&id)).expect("listed");
        let gone = Box::new(worker_dead(worker, "was killed"));
        self.send(node, ToControl::ActorProcessDead { actor: id, takeover: place.takeover, gone });
    }

    fn reserve(&mut self, request: u64, actor: ActorId) {
        self.asked.insert(request, actor);
        let (namespace, name) = ("space".to_owned(), name_of(actor));
        self.tell(ReserveName { request, namespace, name, actor, description: Blob::from(&b"how"[..]) });
    }

    fn create(&mut self, actor: ActorId) {
        self.creations.push(actor);
        let made = super::CreateActor {
            restarts: Some(-1),
            detached: Some(true),
            job: Some(DRIVER),
            ..create(actor)
        };
        self.tell(made);
    }

    fn new_actor(&mut self) {
        self.made += 1;
        let actor = TaskId { owner: DRIVER, number: self.made };
        self.requests += 1;
        self.reserve(self.requests, actor);
    }

    fn kill_actor(&mut self, at: usize) {
        let Some((number, actor)) = self.given.iter().nth(at).map(|(number, actor)| (*number, *actor)) else {
            return;
        };
        self.given.remove(&number);
        self.killed.push(actor);
        self.tell(KillActor { actor, may_restart: None });
    }

    fn tell(&mut self, message: impl Into<Message>) {
        let message = Box::new(message.into());
        self.send(HOME, ToControl::Routed { from: DRIVER, message });
    }

    fn send(&mut self, node: NodeId, word: ToControl) {
        self.with_head(|head, now, out| head.on_node(node, word, now, out));
    }

    fn with_head(&mut self, work: impl FnOnce(&mut Directory, Instant, &mut DirectoryActions)) {
        let now = self.now;
        let Some(head) = &mut self.head else { return };
        let mut out = DirectoryActions::new();
        work(head, now, &mut out);
        head.after_events(now, &mut out);
        out.into_iter().for_each(|action| self.carry_out(action));
    }

    fn carry_out(&mut self, action: DirectoryAction) {
        match action {
            DirectoryAction::Persist(batch, writes) => self.queue.push_back((batch, writes)),
            DirectoryAction::Send(node, word) if self.nodes.contains_key(&node) => self.receive(node, *word),
            DirectoryAction::Send(..) | DirectoryAction::Warn(_) => {}
        }
    }

    fn receive(&mut self, node: NodeId, word: ToNode) {
        match word {
            ToNode::PlaceActor(place) => self.place(node, place),
            ToNode::EndActor { actor, takeover, .. } => {
                let actors = self.nodes.get_mut(&node).expect("it is there");
                if actors.get(&actor).is_none_or(|(place, _)| place.takeover != takeover) {
                    return;
                }
                let (_, worker) = actors.remove(&actor).expect("looked at above");
                let gone = Box::new(worker_dead(worker, ""));
                self.send(node, ToControl::ActorProcessDead { actor, takeover, gone });
            }
            ToNode::Started(started) => self.creations.retain(|actor| *actor != started.actor),
            ToNode::Dead(dead) if node == HOME => {
                self.creations.retain(|actor| *actor != dead.actor);
                self.dead.insert(dead.actor);
            }
            ToNode::Routed { to: DRIVER, message } => {
                if let Message::Answer(answer) = *message {
                    self.on_answer(answer);
                }
            }
            _ => {}
        }
    }

    fn place(&mut self, node: NodeId, place: Box<PlaceActor>) {
        let (actor, takeover) = (place.create.actor, place.takeover);
        let before = self.placed.insert((actor, takeover), node);
        assert!(before.is_none_or(|before| before == node), "CT1: {actor:?} {takeover} at two nodes");
        let record =
            ActorRecord::from_bytes(&self.disk[&sooner_wire::record::actor_key(actor)]).expect("a record");
        assert!(record.takeover >= takeover, "written before it is told");
        let known = self.nodes[&node].get(&actor).filter(|(known, _)| known.takeover == takeover);
        let worker = known.map(|(_, worker)| *worker);
        self.processes += 1;
        let worker = worker.unwrap_or(WorkerId(node.0 + self.processes));
        self.nodes.get_mut(&node).expect("it is there").insert(actor, (place, worker));
        self.send(node, ToControl::ActorPlaced { actor, takeover, worker });
        let ready = Box::new(ActorReady { actor, failure: None }.into());
        self.send(node, ToControl::Routed { from: worker, message: ready });
    }

    fn on_answer(&mut self, answer: Answer) {
        let Some(actor) = self.asked.remove(&answer.request) else {
            self.found = Some((answer.request, answer.actor.filter(|_| answer.error.is_none())));
            return;
        };
        if let Some(error) = answer.error {
            assert!(error.contains("no room") && answer.unavailable == Some(true), "{error}");
            self.refused.insert(actor.number);
            return;
        }
        self.given.insert(actor.number, actor);
        self.create(actor);
    }

    /// The disk does the next thing that it was asked for.
    fn write(&mut self) {
        let Some((batch, writes)) = self.queue.pop_front() else { return };
        let outcome = if self.is_full { Err("no room".to_owned()) } else { Ok(()) };
        for Write { key, value } in writes.into_iter().filter(|_| outcome.is_ok()) {
            match value {
                Some(value) => drop(self.disk.insert(key, value)),
                None => drop(self.disk.remove(&key)),
            }
        }
        self.with_head(|head, now, out| head.on_persisted(batch, outcome, now, out));
    }

    /// The head is killed. The disk may have done some of what it was asked for and did not answer.
    fn kill_head(&mut self, written: usize) {
        self.head = None;
        for _ in 0..written {
            self.write();
        }
        self.queue.clear();
    }

    fn pass(&mut self, nanos: u64) {
        self.now = self.now.plus(nanos);
        self.with_head(|_, _, _| ());
    }

    fn come_to_rest(&mut self) {
        self.is_full = false;
        self.start_head();
        for _ in 0..20 {
            while !self.queue.is_empty() {
                self.write();
            }
            self.pass(STORE_RETRY_NANOS);
        }
    }

    fn check(&mut self) {
        for (number, actor) in self.given.clone() {
            assert!(
                !self.dead.contains(&actor) || self.refused_later(actor),
                "{actor:?} was given and is gone"
            );
            if self.dead.contains(&actor) {
                continue;
            }
            let at: Vec<NodeId> = self
                .nodes
                .iter()
                .filter(|(_, actors)| actors.contains_key(&actor))
                .map(|(n, _)| *n)
                .collect();
            assert_eq!(at.len(), 1, "CT1: {actor:?} has one process: {at:?}");
            self.requests += 1;
            let (request, namespace, name) = (self.requests, "space".to_owned(), name_of(actor));
            self.tell(FindName { request, namespace, name });
            assert_eq!(self.found, Some((request, Some(actor))), "{number} has its name");
        }
        let killed: BTreeSet<ActorId> = self.killed.iter().copied().collect();
        for actors in self.nodes.values() {
            assert!(actors.keys().all(|actor| !killed.contains(actor)), "who was ended stays so");
        }
        let records = self.read(ACTORS, |bytes| ActorRecord::from_bytes(bytes).expect("a record").actor);
        assert!(records.iter().all(|actor| !killed.contains(actor)), "nothing is left of who was ended");
        let pieces = self.disk.keys().filter(|key| key.starts_with("creations/")).count();
        assert_eq!(pieces, records.len(), "nothing is left behind");
    }

    /// It had its name; then the disk was full when the actor itself was to be written.
    fn refused_later(&self, actor: ActorId) -> bool {
        !self.placed.contains_key(&(actor, Takeover(0)))
    }
}

#[derive(Debug, Clone)]
enum Step {
    New,
    Write,
    Full(bool),
    KillActor(usize),
    KillProcess(usize),
    KillNode(usize),
    KillHead(usize),
    StartHead,
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::New),
        8 => Just(Step::Write),
        1 => any::<bool>().prop_map(Step::Full),
        1 => (0..4usize).prop_map(Step::KillActor),
        2 => (0..8usize).prop_map(Step::KillProcess),
        1 => (0..3usize).prop_map(Step::KillNode),
        2 => (0..4usize).prop_map(Step::KillHead),
        2 => Just(Step::StartHead),
        2 => (1..STORE_RETRY_NANOS).prop_map(Step::Pass),
    ]
}

proptest! {
    #[test]
    fn what_was_said_is_true_of_the_next_head(steps in proptest::collection::vec(step(), 0..80)) {
        let mut world = World::new();
        for step in steps {
            match step {
                Step::New if world.head.is_some() => world.new_actor(),
                Step::KillActor(at) if world.head.is_some() => world.kill_actor(at),
                Step::New | Step::KillActor(_) => {}
                Step::Write => world.write(),
                Step::Full(is_full) => world.is_full = is_full,
                Step::KillProcess(at) => world.kill_process(at),
                Step::KillNode(at) => world.kill_node(at),
                Step::KillHead(written) => world.kill_head(written),
                Step::StartHead => world.start_head(),
                Step::Pass(nanos) => world.pass(nanos),
            }
        }
        world.come_to_rest();
        world.check();
    }
}

/// A named actor is there, with its process.
fn with_an_actor() -> (World, ActorId) {
    let mut world = World::new();
    world.new_actor();
    while !world.queue.is_empty() {
        world.write();
    }
    let actor = *world.given.values().next().expect("its name was given");
    assert!(world.placed.contains_key(&(actor, Takeover(0))));
    (world, actor)
}

#[test]
fn a_name_is_given_when_the_disk_has_it() {
    let mut world = World::new();
    world.new_actor();
    assert!(world.given.is_empty());
    world.write();
    assert_eq!((world.given.len(), world.placed.len()), (1, 0), "the actor itself is being written");
    world.write();
    assert_eq!(world.placed.len(), 1);
    assert!(world.queue.is_empty(), "that it has a process is not worth a write");
}

#[test]
fn a_full_disk_refuses_what_is_new_and_nothing_else() {
    let (mut world, actor) = with_an_actor();
    world.is_full = true;
    world.new_actor();
    world.write();
    assert_eq!(world.refused, BTreeSet::from([2]));
    // The process of one that is there ends: its next one has to be written.
    world.kill_process(0);
    for _ in 0..5 {
        world.pass(STORE_RETRY_NANOS);
        world.write();
    }
    assert!(!world.placed.contains_key(&(actor, Takeover(1))) && world.dead.is_empty());
    world.is_full = false;
    world.pass(STORE_RETRY_NANOS);
    world.write();
    assert!(world.placed.contains_key(&(actor, Takeover(1))), "tried again");
    world.check();
}

#[test]
fn a_disk_that_never_answers_refuses_what_is_new_after_a_while() {
    let mut world = World::new();
    world.new_actor();
    let (batch, _) = world.queue[0].clone();
    world.now = world.now.plus(CONTROL_AWAY_NANOS);
    let mut out = DirectoryActions::new();
    world.head.as_mut().expect("it lives").after_events(world.now, &mut out);
    let said: Vec<String> = out.iter().map(|action| format!("{action:?}")).collect();
    assert!(said.iter().any(|said| said.contains("has not answered for 30 s")), "{said:?}");
    // It answers after all: what follows takes that back.
    world.head.as_mut().expect("it lives").on_persisted(batch, Ok(()), world.now, &mut out);
    out.clear();
    world.head.as_mut().expect("it lives").after_events(world.now.plus(STORE_RETRY_NANOS), &mut out);
    let is_deletion = |action: &DirectoryAction| matches!(action, DirectoryAction::Persist(_, writes) if writes.iter().all(|write| write.value.is_none()));
    assert!(out.iter().any(is_deletion), "{out:?}");
}

#[test]
fn an_actor_whose_node_ended_with_the_head_starts_elsewhere() {
    let (mut world, actor) = with_an_actor();
    let node = world.placed[&(actor, Takeover(0))];
    world.kill_head(0);
    world.nodes.remove(&node);
    world.come_to_rest();
    assert!(world.placed.contains_key(&(actor, Takeover(1))), "{:?}", world.placed);
    world.check();
}

#[test]
fn a_word_that_never_left_is_said_by_the_next_head() {
    let mut world = World::new();
    world.new_actor();
    world.write();
    // The disk has the actor's record, and the head is killed before it tells the node.
    world.kill_head(1);
    world.start_head();
    assert!(world.placed.is_empty() || world.queue.is_empty());
    world.come_to_rest();
    assert_eq!(world.placed.len(), 1);
    world.check();
}

#[test]
fn groups_and_where_they_are_outlive_the_head() {
    let mut world = World::new();
    let group = TaskId { owner: DRIVER, number: 77 };
    let bundles = vec![Bundle { resources: cpus(1.0), labels: vec![] }];
    let title = Some(("space".to_owned(), "g".to_owned()));
    let strategy = GroupStrategy::Pack;
    world.tell(CreateGroup { request: 0, group, title, strategy, bundles, driver: None });
    let is_waiting = |world: &World| world.head.as_ref().expect("it lives").groups()[0].phase;
    assert_eq!(is_waiting(&world), GroupPhase::Pending);
    world.write();
    // Its node prepares: what it is asked for is not seen by this harness, so it is said for whichever it is.
    let attempt = (u64::from(world.incarnation - 1) << 32) + 1;
    for node in world.nodes.keys().copied().collect::<Vec<_>>() {
        let prepared = Prepared { group, attempt: PlacementAttempt(attempt), step: BundleStep::Prepared };
        let answer = sooner_protocol::uplink::BundleAnswer::Prepared(prepared);
        world.send(node, ToControl::Bundles(Box::new(answer)));
    }
    world.write();
    let rows = world.head.as_ref().expect("it lives").groups();
    let place = rows[0].bundles[0].node;
    assert!(place.is_some(), "{rows:?}");
    world.kill_head(0);
    world.start_head();
    let rows = world.head.as_ref().expect("it lives").groups();
    assert_eq!((rows[0].group, rows[0].bundles[0].node), (group, place), "the same place");
    // And when its node has ended meanwhile, it is placed anew.
    world.kill_head(0);
    world.nodes.remove(&place.expect("looked at above"));
    world.start_head();
    let rows = world.head.as_ref().expect("it lives").groups();
    assert_eq!((rows[0].phase, rows[0].bundles[0].node), (GroupPhase::Rescheduling, None));
}

#[test]
fn without_records_nothing_is_written() {
    let mut core = Directory::default();
    core.on_node_joined(NodeCore::new(cpus(100.0), HOME.0, 0).row());
    let (namespace, name) = ("space".to_owned(), "it".to_owned());
    let actor = TaskId { owner: DRIVER, number: 1 };
    let reserve = ReserveName { request: 1, namespace, name, actor, description: Blob::default() };
    let mut out = DirectoryActions::new();
    let routed = |message: Message| ToControl::Routed { from: DRIVER, message: Box::new(message) };
    core.on_node(HOME, routed(reserve.into()), Instant(1), &mut out);
    core.on_node(HOME, routed(create(actor).into()), Instant(1), &mut out);
    core.after_events(Instant(1), &mut out);
    assert!(out.iter().all(|action| matches!(action, DirectoryAction::Send(..))), "{out:?}");
    assert!(out.iter().any(
        |action| matches!(action, DirectoryAction::Send(_, word) if matches!(**word, ToNode::PlaceActor(_)))
    ));
    assert_eq!(core.next_deadline(), None);
}
