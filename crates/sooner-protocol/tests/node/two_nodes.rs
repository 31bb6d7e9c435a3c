//! Nodes that share one control service, with the connections between them as queues.

use std::collections::{BTreeMap, VecDeque};

use sooner_protocol::control::{Directory, DirectoryAction};
use sooner_protocol::node::{NodeAction, NodeActions, NodeCore};
use sooner_protocol::uplink::{ToControl, ToNode};
use sooner_wire::message::{
    ActorStarted, Answer, Checkpoint, CreateActor, Dependency, ExitActor, Infeasible, Job, JobConfig,
    JobState, Location, Message, Outcome, ReserveName, SubscribeActor,
};
use sooner_wire::{ActorId, Blob, BlockId, NodeId, Takeover, TaskId, WorkerId};

use super::{BEGUN, NOW, cpus, create, creation_of, plain, told, worker_dead};

const HERE: NodeId = NodeId(1 << 24);
const THERE: NodeId = NodeId(2 << 24);

struct Cluster {
    control: Directory,
    nodes: BTreeMap<NodeId, NodeCore>,
    up: VecDeque<(NodeId, ToControl)>,
    down: VecDeque<(NodeId, ToNode)>,
    /// What each node wanted done, without what it said to the control service.
    did: Vec<(NodeId, NodeAction)>,
}

impl Cluster {
    /// One CPU here, four there.
    fn new() -> Self {
        let mut control = Directory::default();
        let mut nodes = BTreeMap::new();
        for (id, count) in [(HERE, 1.0), (THERE, 4.0)] {
            let node = NodeCore::new(cpus(count), id.0, 2);
            control.on_node_joined(node.row());
            nodes.insert(id, node);
        }
        Self { control, nodes, up: VecDeque::new(), down: VecDeque::new(), did: Vec::new() }
    }

    fn process(&mut self, at: NodeId) -> WorkerId {
        let node = self.nodes.get_mut(&at).expect("a node");
        let process = node.new_worker_id();
        node.on_connected(process, 1, NOW);
        process
    }

    fn with(&mut self, at: NodeId, work: impl FnOnce(&mut NodeCore, &mut NodeActions)) {
        let node = self.nodes.get_mut(&at).expect("a node");
        let mut out = NodeActions::new();
        work(node, &mut out);
        loop {
            node.after_events(NOW, &mut out);
            node.check();
            if out.is_empty() {
                return;
            }
            for action in std::mem::take(&mut out) {
                match action {
                    NodeAction::Control(message) => self.up.push_back((at, message)),
                    NodeAction::StartWorker(worker) => node.on_connected(worker, 1, NOW),
                    other => self.did.push((at, other)),
                }
            }
        }
    }

    fn notify_control(&mut self, from: NodeId, message: ToControl) {
        let mut out = Vec::new();
        self.control.on_node(from, message, NOW, &mut out);
        self.control.after_events(NOW, &mut out);
        self.pass(out);
    }

    fn pass(&mut self, out: Vec<DirectoryAction>) {
        let told = |action| match action {
            DirectoryAction::Send(to, message) => Some((to, *message)),
            DirectoryAction::Warn(_) | DirectoryAction::Persist(..) => None,
        };
        self.down.extend(out.into_iter().filter_map(told));
    }

    /// Until nothing is on its way. What the nodes did since the last time.
    fn run(&mut self) -> Vec<(NodeId, NodeAction)> {
        loop {
            if let Some((from, message)) = self.up.pop_front() {
                self.notify_control(from, message);
            } else if let Some((to, message)) = self.down.pop_front() {
                if !self.nodes.contains_key(&to) {
                    continue;
                }
                self.with(to, |node, out| node.on_control(message, out));
            } else {
                return std::mem::take(&mut self.did);
            }
        }
    }

    fn send(&mut self, from: WorkerId, message: impl Into<Message>) -> Vec<(NodeId, NodeAction)> {
        self.with(from.node(), |node, out| {
            assert_eq!(node.on_message(from, message.into(), NOW, out), None);
        });
        self.run()
    }

    fn end(&mut self, process: WorkerId) -> Vec<(NodeId, NodeAction)> {
        self.with(process.node(), |node, out| node.on_dead(process, "was killed", BEGUN, out));
        self.run()
    }

    fn home(&self, actor: ActorId) -> Option<WorkerId> {
        self.control.report().into_iter().find(|row| row.actor == actor)?.worker
    }
}

fn large(actor: ActorId) -> CreateActor {
    CreateActor { placement: cpus(2.0), lifetime: cpus(2.0), ..create(actor) }
}

fn says(did: &[(NodeId, NodeAction)], to: WorkerId, is_it: impl Fn(&Message) -> bool) -> usize {
    let to_it = |(at, action): &&(NodeId, NodeAction)| match action {
        NodeAction::Send(receiver, message) => *at == to.node() && *receiver == to && is_it(message),
        _ => false,
    };
    did.iter().filter(to_it).count()
}

#[test]
fn an_actor_lives_where_it_can_and_is_known_on_both_nodes() {
    let mut cluster = Cluster::new();
    let (driver, neighbour) = (cluster.process(HERE), cluster.process(THERE));
    let actor = TaskId { owner: driver, number: 1 };
    let did = cluster.send(driver, large(actor));
    let worker = cluster.home(actor).expect("it has a process");
    assert_eq!(worker.node(), THERE);
    let started = ActorStarted { actor, worker, concurrency: 1, replays: None, restarts: None };
    assert_eq!(did.last(), Some(&(HERE, told(driver, started.clone()))));
    assert!(!did.iter().any(|(_, action)| matches!(action, NodeAction::Introduce(..))), "{did:?}");
    let did = cluster.send(neighbour, SubscribeActor { actor });
    assert_eq!(did, [(THERE, NodeAction::Introduce(neighbour, worker)), (THERE, told(neighbour, started))]);
    let did = cluster.end(worker);
    for process in [driver, neighbour] {
        assert_eq!(says(&did, process, |message| matches!(message, Message::ActorDead(_))), 1, "{did:?}");
    }
    assert!(cluster.nodes.values().all(NodeCore::is_quiet));
}

#[test]
fn what_an_earlier_process_did_changes_nothing() {
    let mut cluster = Cluster::new();
    let driver = cluster.process(HERE);
    let actor = TaskId { owner: driver, number: 1 };
    cluster.send(driver, CreateActor { restarts: Some(5), ..large(actor) });
    let first = cluster.home(actor).expect("a process");
    cluster.end(first);
    let second = cluster.home(actor).expect("another process");
    assert_ne!(first, second);
    let gone = Box::new(worker_dead(first, ""));
    cluster.notify_control(THERE, ToControl::ActorProcessDead { actor, takeover: Takeover(0), gone });
    cluster.notify_control(THERE, ToControl::ActorPlaced { actor, takeover: Takeover(0), worker: first });
    assert_eq!((cluster.run(), cluster.home(actor)), (vec![], Some(second)));
    let end = |takeover| ToNode::EndActor {
        actor,
        takeover: Takeover(takeover),
        end: sooner_protocol::uplink::End::Finished,
    };
    cluster.with(THERE, |node, out| node.on_control(end(0), out));
    assert_eq!(cluster.run(), []);
    cluster.with(THERE, |node, out| node.on_control(end(1), out));
    assert_eq!(cluster.run(), [(THERE, told(second, ExitActor { actor }))]);
}

#[test]
fn the_owner_of_an_actor_on_another_node_takes_it_along() {
    let mut cluster = Cluster::new();
    let driver = cluster.process(HERE);
    let actor = TaskId { owner: driver, number: 1 };
    cluster.send(driver, large(actor));
    let worker = cluster.home(actor).expect("a process");
    assert_eq!(cluster.end(driver), [(THERE, NodeAction::KillWorker(worker))]);
}

#[test]
fn a_name_is_given_once_for_all_nodes() {
    let mut cluster = Cluster::new();
    let mut errors = Vec::new();
    for at in [HERE, THERE] {
        let process = cluster.process(at);
        let (namespace, name) = ("space".to_owned(), "it".to_owned());
        let actor = TaskId { owner: process, number: 1 };
        let did = cluster
            .send(process, ReserveName { request: 3, namespace, name, actor, description: Blob::default() });
        let [(_, NodeAction::Send(to, message))] = &did[..] else { panic!("{did:?}") };
        let Message::Answer(answer) = &**message else { panic!("{message:?}") };
        assert_eq!((*to, answer.request), (process, 3));
        errors.push(answer.error.is_some());
    }
    assert_eq!(errors, [false, true]);
}

#[test]
fn only_what_no_node_has_is_infeasible() {
    let mut cluster = Cluster::new();
    let driver = cluster.process(HERE);
    let actor = TaskId { owner: driver, number: 1 };
    let did = cluster.send(driver, CreateActor { placement: cpus(4.5), ..create(actor) });
    let report = Infeasible { asked: cpus(4.5), total: cpus(5.0), closed: None, reason: None };
    assert_eq!(did, [(HERE, told(driver, report))]);
    let query =
        sooner_wire::message::Query { request: 9, what: sooner_wire::message::QueryKind::TotalResources };
    let answer = Answer { request: 9, resources: Some(cpus(5.0)), ..Answer::default() };
    assert_eq!(cluster.send(driver, query), [(HERE, told(driver, answer))]);
}

#[test]
fn blocks_are_kept_where_they_are_until_the_actor_is_gone() {
    let mut cluster = Cluster::new();
    let driver = cluster.process(HERE);
    let actor = TaskId { owner: driver, number: 1 };
    let mut detached = CreateActor { detached: Some(true), ..large(actor) };
    let argument = TaskId { owner: driver, number: 2 }.object(0);
    let stored = |offset| Outcome::Stored(Location { offset, length: 1 << 20 });
    detached.constructor.dependencies.push(Dependency {
        object: argument,
        outcome: stored(64),
        contained: Vec::new(),
    });
    creation_of(&mut detached).checkpoint_every = Some(1);
    cluster.with(HERE, |node, _| node.on_allocated(BlockId(64), driver));
    cluster.send(driver, detached);
    let worker = cluster.home(actor).expect("a process");
    for block in [128, 256] {
        cluster.with(THERE, |node, _| node.on_allocated(BlockId(block), worker));
        let state = plain(stored(block));
        let did = cluster.send(worker, Checkpoint { actor, state, calls: Vec::new() });
        let is_free = did.contains(&(THERE, NodeAction::FreeBlock(BlockId(128))));
        assert_eq!(is_free, block == 256, "the earlier state goes with the next one: {did:?}");
    }
    cluster.send(driver, sooner_wire::message::FreeBlocks { places: vec![BlockId(64).into()] });
    cluster.end(driver);
    assert_eq!(cluster.nodes[&HERE].holders().len(), 1);
    let did = cluster.end(worker);
    assert!(did.contains(&(THERE, NodeAction::FreeBlock(BlockId(256)))), "{did:?}");
    assert!(did.contains(&(HERE, NodeAction::FreeBlock(BlockId(64)))), "{did:?}");
}

#[test]
fn what_was_on_a_node_that_is_gone_begins_elsewhere_or_is_told_to_be_gone() {
    let mut cluster = Cluster::new();
    let (driver, neighbour) = (cluster.process(HERE), cluster.process(THERE));
    let [restartable, mortal, orphan] =
        [(driver, 1), (driver, 2), (neighbour, 1)].map(|(owner, number)| TaskId { owner, number });
    cluster.send(driver, CreateActor { restarts: Some(1), ..large(restartable) });
    cluster.send(driver, large(mortal));
    cluster.send(neighbour, create(orphan));
    cluster.send(driver, SubscribeActor { actor: orphan });
    let first = cluster.home(restartable).expect("a process");
    assert_eq!(first.node(), THERE);
    cluster.nodes.remove(&THERE);
    cluster.control.on_node_joined(NodeCore::new(cpus(2.0), 3 << 24, 2).row());
    cluster.nodes.insert(NodeId(3 << 24), NodeCore::new(cpus(2.0), 3 << 24, 2));
    let mut out = Vec::new();
    cluster.control.on_node_dead(THERE, "it did not answer for 5 s", &mut out);
    cluster.control.after_events(NOW, &mut out);
    cluster.pass(out);
    let did = cluster.run();
    let is_dead = |actor| {
        move |message: &Message| {
            matches!(message, Message::ActorDead(dead)
            if dead.actor == actor && (dead.failure.message.contains("did not answer") || actor.owner != driver))
        }
    };
    assert_eq!(says(&did, driver, is_dead(mortal)), 1, "{did:?}");
    assert_eq!(says(&did, driver, |message| matches!(message, Message::ActorRestarting(_))), 1, "{did:?}");
    let killed = did.iter().find_map(|(_, action)| match action {
        NodeAction::KillWorker(worker) => Some(*worker),
        _ => None,
    });
    let ended = cluster.end(killed.expect("its process is where there was room, and ends with its owner"));
    assert_eq!(says(&ended, driver, is_dead(orphan)), 1, "{ended:?}");
    assert_eq!(cluster.home(restartable).map(WorkerId::node), Some(NodeId(3 << 24)));
}

#[test]
fn all_nodes_with_work_for_a_job_hear_of_it_and_of_its_end() {
    let mut cluster = Cluster::new();
    let driver = cluster.process(HERE);
    let news = |state, config| Job { job: driver, state, config };
    let config = Some(Box::new(JobConfig::default()));
    let told = |cluster: &mut Cluster, from, word| {
        cluster.notify_control(from, word);
        let jobs = |(to, word)| match word {
            ToNode::Job(job) => Some((to, *job)),
            _ => None,
        };
        cluster.down.drain(..).filter_map(jobs).collect::<Vec<_>>()
    };
    let ask = || ToControl::Job(Box::new(news(JobState::Asked, None)));
    assert_eq!(told(&mut cluster, THERE, ask()), [], "the driver's node speaks of it first");
    let begins = ToControl::Job(Box::new(news(JobState::Started, config.clone())));
    assert_eq!(told(&mut cluster, HERE, begins), [(THERE, news(JobState::Started, config))]);
    let leaves = ToControl::ProcessLeaves { process: driver };
    assert_eq!(told(&mut cluster, HERE, leaves), [(THERE, news(JobState::Leaving, None))]);
    let gone = ToControl::ProcessDead { process: driver, watchers: Vec::new(), gone: None };
    let ended = |node| (node, news(JobState::Ended, None));
    assert_eq!(told(&mut cluster, HERE, gone), [ended(HERE), ended(THERE)]);
    assert_eq!(told(&mut cluster, THERE, ask()), [ended(THERE)]);
}

#[test]
fn an_actor_that_no_node_can_have_waits_for_one_that_joins() {
    let mut cluster = Cluster::new();
    let driver = cluster.process(HERE);
    let actor = TaskId { owner: driver, number: 1 };
    cluster.send(driver, CreateActor { restarts: Some(1), ..large(actor) });
    assert_eq!(cluster.home(actor).map(WorkerId::node), Some(THERE));
    let third = NodeId(3 << 24);
    let change = |cluster: &mut Cluster, work: &mut dyn FnMut(&mut Directory, &mut Vec<DirectoryAction>)| {
        let mut out = Vec::new();
        work(&mut cluster.control, &mut out);
        cluster.control.after_events(NOW, &mut out);
        cluster.pass(out);
        cluster.run();
    };
    cluster.nodes.remove(&THERE);
    change(&mut cluster, &mut |control, out| control.on_node_dead(THERE, "it was killed", out));
    assert_eq!(cluster.home(actor), None, "the node that is left has too little");
    let node = NodeCore::new(cpus(2.0), third.0, 2);
    let row = node.row();
    cluster.nodes.insert(third, node);
    change(&mut cluster, &mut |control, _| control.on_node_joined(row.clone()));
    assert_eq!(cluster.home(actor).map(WorkerId::node), Some(third));
}
