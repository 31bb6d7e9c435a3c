//! Nodes that lend to each other, joined by queues: what is said over their links arrives in order, and the
//! news of deaths comes another way.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use proptest::strategy::Strategy as _;
use sooner_wire::limits::LENT_NANOS;
use sooner_wire::message::{
    AboutNode, BundleRow, GroupPhase, GroupRow, GroupState, GroupStrategy, Infeasible, NodeRow as Known,
    Release, RequestLease, ReturnLease, ViewRow, WorkerDead, kind, node_state,
};
use sooner_wire::strategy::{InGroup, LabelTerm, LabelTest, NodeAffinity, NodeLabels};
use sooner_wire::{GroupId, PlacementAttempt, Strategy, TaskId};

use super::*;
use crate::uplink::{BundleOrder, ToControl, ToNode};

mod choices;
mod unable;

const MILLI: u64 = 1_000_000;

fn cpus(count: f64) -> ResourceSet {
    ResourceSet::from_amounts([("CPU".to_owned(), count)])
}

fn id(number: usize) -> NodeId {
    NodeId((number as u64 + 1) << 24)
}

/// A client, and what it has.
#[derive(Default)]
struct Client {
    leases: Vec<(LeaseId, WorkerId)>,
    infeasible: Vec<Infeasible>,
}

struct World {
    nodes: Vec<NodeCore>,
    /// What is on its way from one node to another.
    wires: BTreeMap<(usize, usize), VecDeque<Message>>,
    /// Deaths that a node has not heard of.
    news: Vec<VecDeque<WorkerDead>>,
    clients: BTreeMap<WorkerId, Client>,
    /// Processes that are to connect, or to be killed.
    starting: Vec<VecDeque<WorkerId>>,
    /// What control was told.
    control: Vec<ToControl>,
    /// What control was asked for.
    questions: Vec<FindNodes>,
    versions: u64,
    /// Clients give leases back when they are asked to.
    shares: bool,
    now: Instant,
    labels: Vec<Vec<(String, String)>>,
}

impl World {
    /// Nodes with so many CPUs each, that know of each other.
    fn new(counts: &[f64]) -> Self {
        let zone = |at: usize| vec![("zone".to_owned(), at.to_string())];
        let mut world = Self {
            nodes: Vec::new(),
            wires: BTreeMap::new(),
            news: vec![VecDeque::new(); counts.len()],
            clients: BTreeMap::new(),
            starting: vec![VecDeque::new(); counts.len()],
            control: Vec::new(),
            questions: Vec::new(),
            versions: 0,
            shares: true,
            now: Instant(0),
            labels: (0..counts.len()).map(zone).collect(),
        };
        for (at, count) in counts.iter().enumerate() {
            let mut node = NodeCore::new(cpus(*count), id(at).0, 64);
            node.set_labels(zone(at));
            node.join_cluster();
            world.nodes.push(node);
        }
        world.notify_views();
        world
    }

    fn client(&mut self, at: usize) -> WorkerId {
        let client = self.nodes[at].new_worker_id();
        self.nodes[at].on_connected(client, 1, self.now);
        self.clients.insert(client, Client::default());
        // Its job is known everywhere.
        for node in &mut self.nodes {
            node.open_jobs.insert(client);
        }
        client
    }

    fn at(process: WorkerId) -> usize {
        usize::try_from(process.node().0 >> 24).expect("few nodes") - 1
    }

    fn know(&mut self, at: usize, other: usize, state: u8) {
        let about = AboutNode {
            kind: kind::DAEMON,
            name: String::new(),
            address: None,
            host: String::new(),
            boot_id: String::new(),
            resources: self.nodes[other].resources.total().clone(),
            labels: self.labels[other].clone(),
        };
        self.nodes[at].on_node_known(&Known { node: id(other), about, state, is_slow: false });
    }

    /// Every node hears what the others have free.
    fn notify_views(&mut self) {
        self.versions += 1;
        for at in 0..self.nodes.len() {
            for other in (0..self.nodes.len()).filter(|other| *other != at) {
                self.know(at, other, node_state::ALIVE);
            }
            let row = |other: usize| ViewRow {
                node: id(other),
                version: self.versions,
                free: self.nodes[other].resources_now().0,
                waiting: 0,
            };
            let rows = (0..self.nodes.len()).map(row).collect();
            self.nodes[at].on_view(&ResourceView { rows, must_ask: false });
        }
    }

    fn with(&mut self, at: usize, work: impl FnOnce(&mut NodeCore, &mut NodeActions)) {
        let mut out = NodeActions::new();
        work(&mut self.nodes[at], &mut out);
        self.nodes[at].after_events(self.now, &mut out);
        self.nodes[at].check();
        // What a client answers at once goes behind all of this.
        let mut last = Vec::new();
        for action in out {
            match action {
                NodeAction::Route { from, to, message } => {
                    assert_eq!((from, to), (address(id(at)), address(to.node())));
                    self.wires.entry((at, Self::at(to))).or_default().push_back(*message);
                }
                NodeAction::StartWorker(worker) => self.starting[at].push_back(worker),
                NodeAction::Control(message) => self.control.push(message),
                NodeAction::FindNodes(find) => self.questions.push(*find),
                action => last.push(action),
            }
        }
        for action in last {
            match action {
                NodeAction::Send(to, message) => self.receive(to, *message),
                NodeAction::KillWorker(worker) => self.end(worker),
                _ => {}
            }
        }
    }

    fn receive(&mut self, to: WorkerId, message: Message) {
        let Some(client) = self.clients.get_mut(&to) else { return };
        match message {
            Message::LeaseGranted(granted) => client.leases.push((granted.lease, granted.worker)),
            Message::Infeasible(infeasible) => client.infeasible.push(infeasible),
            Message::WorkerDead(gone) => client.leases.retain(|(_, worker)| *worker != gone.worker),
            Message::ReclaimLease(reclaim) if self.shares => {
                let wanted = reclaim.lease.or_else(|| client.leases.first().map(|(lease, _)| *lease));
                if let Some(lease) = wanted.filter(|wanted| client.leases.iter().any(|(l, _)| l == wanted)) {
                    self.give_back(to, lease);
                }
            }
            _ => {}
        }
    }

    fn send(&mut self, from: WorkerId, message: impl Into<Message>) {
        let (now, message) = (self.now, message.into());
        self.with(Self::at(from), |node, out| {
            assert_eq!(node.on_message(from, message, now, out), None);
        });
    }

    fn give_back(&mut self, client: WorkerId, lease: LeaseId) {
        let leases = &mut self.clients.get_mut(&client).expect("it has a lease").leases;
        leases.retain(|(held, _)| *held != lease);
        self.send(client, ReturnLease { lease });
    }

    /// A process ends; everybody hears of it, some later than others.
    fn end(&mut self, process: WorkerId) {
        let at = Self::at(process);
        let gone = WorkerDead { worker: process, ..WorkerDead::default() };
        self.clients.remove(&process);
        self.starting[at].retain(|starting| *starting != process);
        for (other, news) in self.news.iter_mut().enumerate() {
            if other != at {
                news.push_back(gone.clone());
            }
        }
        self.with(at, |node, out| node.on_dead(process, "was killed", None, out));
    }

    /// The session of two nodes is over: what was on its way does not arrive.
    fn end_link(&mut self, a: usize, b: usize) {
        for (at, other) in [(a, b), (b, a)] {
            self.wires.remove(&(at, other));
        }
        for (at, other) in [(a, b), (b, a)] {
            if a != b {
                self.with(at, |node, out| node.on_link_ended(id(other), out));
            }
        }
    }

    /// Delivers one thing that is on its way between nodes.
    fn deliver(&mut self, from: usize, to: usize) -> bool {
        let Some(message) = self.wires.get_mut(&(from, to)).and_then(VecDeque::pop_front) else {
            return false;
        };
        let now = self.now;
        self.with(to, |node, out| match message {
            Message::LeaseAt(ask) => node.on_lease_at(ask, out),
            Message::LeaseGrantedAt(granted) => node.on_lease_granted_at(granted, out),
            Message::LeaseRefused(refused) => node.on_lease_refused(id(from), &refused),
            Message::ReturnLeaseAt(returned) => node.on_return_at(id(from), returned, now, out),
            Message::ReclaimLeaseAt(reclaim) => node.on_reclaim_at(id(from), reclaim, out),
            Message::Watch(_) => {}
            other => panic!("{other:?}"),
        });
        true
    }

    fn deliver_news(&mut self, at: usize) -> bool {
        let Some(gone) = self.news[at].pop_front() else { return false };
        for client in self.clients.values_mut() {
            client.leases.retain(|(_, worker)| *worker != gone.worker);
        }
        self.with(at, |node, out| {
            node.departed.note(&gone);
            node.end_remote(gone.worker, out);
        });
        true
    }

    fn start(&mut self, at: usize) -> bool {
        let Some(worker) = self.starting[at].pop_front() else { return false };
        let now = self.now;
        self.with(at, |node, _| node.on_connected(worker, 9, now));
        true
    }

    /// Until nothing is on its way.
    fn run(&mut self) {
        let count = self.nodes.len();
        loop {
            let mut is_any = false;
            for at in 0..count {
                is_any |= self.deliver_news(at) || self.start(at);
                is_any |= (0..count).any(|to| self.deliver(at, to));
            }
            if !is_any {
                return;
            }
        }
    }

    fn wait(&mut self, millis: u64) {
        self.now = self.now.plus(millis * MILLI);
        (0..self.nodes.len()).for_each(|at| self.with(at, |_, _| {}));
    }

    /// Where a client has leases.
    fn nodes_of(&self, client: WorkerId) -> Vec<usize> {
        let mut nodes: Vec<usize> =
            self.clients[&client].leases.iter().map(|(_, worker)| Self::at(*worker)).collect();
        nodes.sort_unstable();
        nodes
    }

    fn lent(&self) -> usize {
        let demands =
            self.nodes.iter().flat_map(|node| node.askers.values()).flat_map(|a| a.demands.values());
        demands.map(|demand| demand.lent.len()).sum()
    }

    fn assert_quiet(&self) {
        for (at, node) in self.nodes.iter().enumerate() {
            assert!(node.is_quiet(), "node {at}: {:?} {:?}", node.leases, node.placements);
            assert_eq!(node.leases_elsewhere(), 0, "node {at}");
            for (asker, state) in &node.askers {
                assert!(
                    state.demands.values().all(|demand| demand.count == 0),
                    "{asker:?} at {at}: {state:?}"
                );
            }
        }
        assert_eq!(self.lent(), 0);
    }

    /// Everybody gives up what it has and wants.
    fn finish(&mut self) {
        for client in self.clients.keys().copied().collect::<Vec<_>>() {
            let demands = &self.nodes[Self::at(client)].askers[&client].demands;
            for shape in demands.keys().copied().collect::<Vec<_>>() {
                self.send(client, RequestLease { shape, ..request(0, 0) });
            }
        }
        self.run();
        while let Some((client, lease)) = self.held() {
            self.give_back(client, lease);
            self.run();
        }
        self.assert_quiet();
    }

    fn held(&self) -> Option<(WorkerId, LeaseId)> {
        self.clients.iter().find_map(|(id, client)| Some((*id, client.leases.first()?.0)))
    }
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

fn at(shape: u32, demand: u32, strategy: Strategy) -> RequestLease {
    RequestLease { strategy: Some(Box::new(strategy)), ..request(shape, demand) }
}

#[test]
fn work_is_packed_to_half_of_its_own_node_then_spread_and_comes_back() {
    let mut world = World::new(&[2.0, 2.0]);
    let client = world.client(0);
    world.send(client, request(0, 4));
    world.run();
    assert_eq!(world.nodes_of(client), [0, 0, 1, 1]);
    assert_eq!((world.nodes[0].leases_elsewhere(), world.lent()), (2, 0));
    assert_eq!(world.nodes[1].resources_now().1, [], "what waits is counted at home");
    world.finish();
}

#[test]
fn one_message_asks_for_all_that_a_node_may_give() {
    let mut world = World::new(&[1.0, 8.0]);
    let client = world.client(0);
    world.send(client, request(0, 20));
    let [Message::LeaseAt(ask)] = &world.wires[&(0, 1)].iter().cloned().collect::<Vec<_>>()[..] else {
        panic!("{:?}", world.wires)
    };
    assert_eq!((ask.client, ask.job, ask.demand), (client, client, 8), "what it has free");
    world.run();
    assert_eq!(world.nodes_of(client).len(), 9);
    // As one ends, the next one takes its place.
    world.send(client, request(0, 1));
    let (lease, worker) = world.clients[&client].leases[3];
    world.give_back(client, lease);
    world.notify_views();
    world.run();
    world.wait(1);
    world.run();
    assert_eq!(world.nodes_of(client).len(), 9, "{worker:?} serves again");
    world.finish();
}

#[test]
fn what_waits_elsewhere_runs_here_when_there_is_room_here_first() {
    let mut world = World::new(&[1.0, 1.0]);
    world.shares = false;
    let (client, other) = (world.client(0), world.client(1));
    world.send(client, request(0, 1));
    world.run();
    world.send(client, request(0, 1));
    // The other node has given away what it had, and has not said so yet.
    world.nodes[1].view = View::default();
    world.send(other, request(0, 1));
    world.run();
    assert_eq!((world.lent(), world.nodes_of(other)), (1, vec![1]));
    let (lease, _) = world.clients[&client].leases[0];
    world.give_back(client, lease);
    assert_eq!(world.nodes_of(client), [], "it has waited there for a moment only");
    world.wait(LENT_NANOS / MILLI);
    world.run();
    assert_eq!((world.lent(), world.nodes_of(client)), (0, vec![0]));
    world.finish();
}

#[test]
fn a_grant_that_crosses_its_withdrawal_is_given_back() {
    let mut world = World::new(&[0.0, 1.0]);
    let client = world.client(0);
    world.send(client, request(0, 1));
    assert!(world.deliver(0, 1) && world.start(1));
    world.send(client, request(0, 0));
    world.run();
    assert_eq!(world.nodes_of(client), []);
    world.assert_quiet();
    world.finish();
}

#[test]
fn a_lease_that_is_wanted_again_when_it_comes_is_kept() {
    let mut world = World::new(&[0.0, 1.0]);
    let client = world.client(0);
    world.send(client, request(0, 1));
    assert!(world.deliver(0, 1) && world.start(1));
    world.send(client, request(0, 0));
    world.send(client, request(0, 1));
    world.run();
    assert_eq!(world.nodes_of(client), [1]);
    world.finish();
}

#[test]
fn the_death_of_a_client_ends_what_serves_it_on_other_nodes() {
    let mut world = World::new(&[1.0, 2.0]);
    let client = world.client(0);
    world.send(client, request(0, 5));
    world.run();
    assert_eq!(world.nodes_of(client), [0, 1, 1]);
    world.send(client, request(1, 3));
    world.end(client);
    world.run();
    world.assert_quiet();
    assert!(world.nodes[1].pool.iter().next().is_none(), "nobody knows what they were at");
    // News came before what the client's node had asked for it.
    let late = world.client(0);
    world.send(late, request(0, 3));
    world.end(late);
    assert!(world.deliver_news(1));
    world.run();
    world.assert_quiet();
    assert!(!world.nodes[1].askers.contains_key(&late));
}

#[test]
fn a_worker_that_is_known_to_be_gone_is_not_granted() {
    let mut world = World::new(&[0.0, 1.0]);
    let client = world.client(0);
    world.send(client, request(0, 1));
    assert!(world.deliver(0, 1) && world.start(1));
    let worker = world.nodes[1].pool.iter().next().expect("it serves").0;
    world.end(worker);
    assert!(world.deliver_news(0));
    assert!(world.deliver(1, 0), "the grant");
    assert_eq!(world.nodes_of(client), []);
    world.run();
    assert_eq!(world.nodes_of(client), [1], "another one");
    assert_ne!(world.clients[&client].leases[0].1, worker);
    world.finish();
}

#[test]
fn a_node_that_needs_its_worker_asks_for_that_very_lease() {
    let mut world = World::new(&[0.0, 2.0]);
    let client = world.client(0);
    world.send(client, request(0, 2));
    world.run();
    assert_eq!(world.nodes_of(client), [1, 1]);
    let own = world.client(1);
    world.send(own, request(0, 1));
    world.run();
    assert_eq!((world.nodes_of(client), world.nodes_of(own)), (vec![1], vec![1]));
    world.finish();
}

#[test]
fn what_a_node_refuses_is_asked_elsewhere() {
    let mut world = World::new(&[0.0, 1.0, 1.0]);
    let client = world.client(0);
    world.nodes[1].drain();
    world.send(client, request(0, 1));
    world.run();
    assert_eq!(world.nodes_of(client), [2]);
    world.send(client, request(0, 1));
    world.run();
    assert_eq!(world.nodes_of(client), [2], "the one that refused is left alone");
    let again = world.nodes[0].next_deadline().expect("it is asked again");
    world.now = again;
    world.with(0, |_, _| {});
    assert!(world.nodes[0].next_deadline().is_none_or(|at| at > again), "time goes on");
    world.finish();
}

#[test]
fn a_node_that_drains_gives_up_what_others_asked_and_takes_its_leases_back() {
    let mut world = World::new(&[0.0, 1.0]);
    let client = world.client(0);
    world.send(client, request(0, 2));
    world.run();
    assert_eq!((world.nodes_of(client), world.lent()), (vec![1], 1), "it can never run at home");
    world.nodes[1].drain();
    world.with(1, |_, _| {});
    world.know(0, 1, node_state::DRAINING);
    world.run();
    assert_eq!((world.nodes_of(client), world.lent()), (vec![], 0));
    assert!(world.nodes[1].is_drained());
}

#[test]
fn a_node_that_drains_wants_nothing_more_of_others() {
    let mut world = World::new(&[0.0, 1.0]);
    let client = world.client(0);
    world.send(client, request(0, 3));
    world.run();
    assert_eq!((world.nodes_of(client), world.lent()), (vec![1], 1));
    world.nodes[0].drain();
    world.with(0, |_, _| {});
    world.run();
    assert_eq!(world.lent(), 0);
    assert!(world.nodes[1].report().demands.is_empty());
    world.with(0, |_, out| assert_eq!(*out, [], "it is said once"));
    let lease = world.clients[&client].leases[0].0;
    world.give_back(client, lease);
    world.run();
    assert!(world.nodes[1].is_quiet());
}

#[test]
fn only_what_no_node_has_is_infeasible() {
    let mut world = World::new(&[1.0, 4.0]);
    let client = world.client(0);
    let large = |shape, count| RequestLease { resources: cpus(count), ..request(shape, 1) };
    world.send(client, large(0, 4.0));
    world.send(client, large(1, 5.0));
    world.run();
    assert_eq!(world.nodes_of(client), [1]);
    let infeasible = Infeasible { asked: cpus(5.0), total: cpus(5.0), closed: None, reason: None };
    assert_eq!(world.clients[&client].infeasible, [infeasible], "five, but not in one place");
    assert_eq!(world.nodes[0].report().demands.iter().map(|row| row.feasible).collect::<Vec<_>>(), [false]);
    world.finish();
}

#[test]
fn what_can_only_run_elsewhere_waits_there_in_turn() {
    let mut world = World::new(&[1.0, 4.0]);
    world.shares = false;
    let (client, own) = (world.client(0), world.client(1));
    let large = |demand| RequestLease { resources: cpus(4.0), ..request(1, demand) };
    world.send(own, large(2));
    world.run();
    world.notify_views();
    world.send(client, large(1));
    world.run();
    assert_eq!((world.nodes_of(client), world.lent()), (vec![], 1));
    for turn in [1, 0] {
        let (lease, _) = world.clients[&own].leases[0];
        world.give_back(own, lease);
        world.run();
        if turn == 0 || !world.nodes_of(client).is_empty() {
            break;
        }
    }
    assert_eq!(world.nodes_of(client), [1]);
    world.finish();
}

#[test]
fn strategies_choose_among_all_nodes() {
    let mut world = World::new(&[4.0, 4.0, 4.0]);
    let client = world.client(0);
    let zone = |zone: &str| LabelTerm { key: "zone".to_owned(), test: LabelTest::In(vec![zone.to_owned()]) };
    let labels = NodeLabels { hard: vec![zone("2")], ..NodeLabels::default() };
    let nowhere = NodeLabels { hard: vec![zone("7")], ..NodeLabels::default() };
    let gone = NodeAffinity { node: NodeId(9 << 24), soft: false };
    for (shape, strategy, expected) in [
        (1, Strategy::Spread, vec![0, 1, 2]),
        (2, Strategy::Node(NodeAffinity { node: id(1), soft: false }), vec![1; 3]),
        (3, Strategy::Labels(labels), vec![2; 3]),
        (4, Strategy::Labels(nowhere), vec![]),
        (5, Strategy::Node(gone), vec![]),
        (6, Strategy::Node(NodeAffinity { soft: true, ..gone }), vec![0, 0, 1]),
    ] {
        world.send(client, at(shape, 3, strategy));
        world.run();
        assert_eq!(world.nodes_of(client), expected, "shape {shape}");
        world.finish();
    }
    let told = &world.clients[&client].infeasible;
    assert!(told[0].reason.as_deref().is_some_and(|why| why.contains("no node meets")), "{told:?}");
    assert_eq!(told[1].closed.as_ref().map(|closed| closed.shape), Some(ShapeId(5)));
}

#[test]
fn what_is_bound_to_a_busy_node_waits_there() {
    let mut world = World::new(&[4.0, 1.0]);
    world.shares = false;
    let (client, own) = (world.client(0), world.client(1));
    let there = Strategy::Node(NodeAffinity { node: id(1), soft: false });
    world.nodes[1].view = View::default();
    world.send(own, request(0, 1));
    world.run();
    world.notify_views();
    world.send(client, at(1, 2, there));
    world.run();
    assert_eq!((world.nodes_of(client), world.lent()), (vec![], 1));
    let lease = world.clients[&own].leases[0].0;
    world.give_back(own, lease);
    world.run();
    assert_eq!(world.nodes_of(client), [1]);
    world.finish();
}

const GROUP: GroupId = TaskId { owner: WorkerId((1 << 24) + 1), number: 1 };

fn group_row(phase: GroupPhase, nodes: &[NodeId]) -> GroupState {
    let bundles = nodes.iter().map(|node| BundleRow { resources: cpus(1.0), node: Some(*node) }).collect();
    let row = GroupRow {
        group: GROUP,
        title: None,
        strategy: GroupStrategy::Spread,
        phase,
        bundles,
        reason: None,
        detached: false,
        attempts: 1,
    };
    GroupState { request: u64::from(!nodes.is_empty()), groups: vec![row], error: None }
}

#[test]
fn work_in_a_group_goes_to_the_nodes_of_its_bundles() {
    let mut world = World::new(&[4.0, 4.0, 4.0]);
    let client = world.client(0);
    assert!(world.nodes[2].resources.prepare(GROUP, PlacementAttempt(1), &[(1, cpus(1.0))]));
    assert!(world.nodes[2].resources.commit(GROUP, PlacementAttempt(1)));
    world.send(client, at(1, 2, Strategy::Group(InGroup { group: GROUP, bundle: None, captures: false })));
    world.run();
    let asked = |action: &ToControl| matches!(action, ToControl::Routed { message, .. } if matches!(**message, Message::FindGroup(_)));
    assert_eq!(world.control.iter().filter(|said| asked(said)).count(), 1, "once");
    assert_eq!(world.nodes_of(client), []);
    let tell = |world: &mut World, state: GroupState| {
        let message = Box::new(state.into());
        world.with(0, |node, out| node.on_control(ToNode::Routed { to: address(id(0)), message }, out));
        world.run();
    };
    tell(&mut world, group_row(GroupPhase::Created, &[id(2), id(2)]));
    assert_eq!(world.nodes_of(client), [2]);
    tell(&mut world, group_row(GroupPhase::Removed, &[]));
    let release = BundleOrder::Release(Release { group: GROUP, attempt: None });
    world.with(2, |node, out| node.on_control(ToNode::Bundles(Box::new(release)), out));
    world.run();
    world.assert_quiet();
}

#[test]
fn both_ends_of_a_link_that_is_over_give_up_what_went_over_it() {
    let mut world = World::new(&[1.0, 2.0]);
    let client = world.client(0);
    world.send(client, request(0, 4));
    world.run();
    assert_eq!(world.nodes_of(client), [0, 1, 1]);
    world.with(1, |node, out| node.on_link_ended(id(0), out));
    world.with(0, |node, out| node.on_link_ended(id(1), out));
    world.wires.clear();
    world.run();
    assert_eq!(world.nodes[0].leases_elsewhere(), 0);
    world.notify_views();
    world.send(client, request(0, 4));
    world.run();
    assert_eq!(world.nodes_of(client), [0, 1, 1], "over a new one");
    world.finish();
}

#[derive(Debug, Clone)]
enum Op {
    Want { client: usize, shape: u32, demand: u32 },
    GiveBack { client: usize, lease: usize },
    Deliver { from: usize, to: usize },
    News(usize),
    Start(usize),
    Views,
    Wait(u64),
    EndWorker(usize),
    EndClient(usize),
    EndLink(usize, usize),
    GiveUp { node: usize, client: usize },
}

fn ops() -> impl proptest::strategy::Strategy<Value = Op> {
    let (node, client) = (0usize..3, 0usize..6);
    prop_oneof![
        4 => (client.clone(), 0u32..3, 0u32..5).prop_map(|(client, shape, demand)| Op::Want { client, shape, demand }),
        4 => (client.clone(), 0usize..4).prop_map(|(client, lease)| Op::GiveBack { client, lease }),
        12 => (node.clone(), node.clone()).prop_map(|(from, to)| Op::Deliver { from, to }),
        3 => node.clone().prop_map(Op::News),
        6 => node.prop_map(Op::Start),
        2 => Just(Op::Views),
        2 => (1u64..150).prop_map(Op::Wait),
        1 => (0usize..9).prop_map(Op::EndWorker),
        1 => client.prop_map(Op::EndClient),
        1 => (0usize..3, 0usize..3).prop_map(|(a, b)| Op::EndLink(a, b)),
        1 => (0usize..3, 0usize..6).prop_map(|(node, client)| Op::GiveUp { node, client }),
    ]
}

/// Shape 0 runs anywhere, shape 1 is spread, shape 2 is large: only the last node has room for it.
fn shaped(shape: u32, demand: u32) -> RequestLease {
    match shape {
        1 => at(1, demand, Strategy::Spread),
        2 => RequestLease { resources: cpus(2.5), ..request(2, demand) },
        0 => RequestLease { prefer: Some(id(demand as usize % 3)), ..request(shape, demand) },
        _ => request(shape, demand),
    }
}

impl World {
    fn apply(&mut self, op: &Op) {
        let clients: Vec<WorkerId> = self.clients.keys().copied().collect();
        let client = |at: usize| clients.get(at % clients.len().max(1)).copied();
        match *op {
            Op::Want { client: at, shape, demand } => {
                if let Some(client) = client(at) {
                    self.send(client, shaped(shape, demand));
                }
            }
            Op::GiveBack { client: at, lease } => {
                let Some(client) = client(at) else { return };
                if let Some((lease, _)) = self.clients[&client].leases.get(lease).copied() {
                    self.give_back(client, lease);
                }
            }
            Op::Deliver { from, to } => {
                self.deliver(from, to);
            }
            Op::News(at) => {
                self.deliver_news(at);
            }
            Op::Start(at) => {
                self.start(at);
            }
            Op::Views => self.notify_views(),
            Op::Wait(millis) => self.wait(millis),
            Op::EndWorker(number) => {
                let workers: Vec<WorkerId> =
                    self.nodes.iter().flat_map(|node| node.pool.iter().map(|(id, _)| id)).collect();
                if let Some(worker) = workers.get(number) {
                    self.end(*worker);
                }
            }
            Op::EndLink(a, b) => self.end_link(a, b),
            Op::GiveUp { node, client: at } => {
                if let Some(client) = client(at) {
                    self.with(node, |core, out| {
                        core.on_job_given_up(client, "there is no such program", out)
                    });
                }
            }
            Op::EndClient(at) => {
                if let Some(client) = client(at).filter(|_| clients.len() > 3) {
                    self.end(client);
                }
            }
        }
        for node in &self.nodes {
            for demand in node.askers.values().flat_map(|asker| asker.demands.values()) {
                let lent: u32 = demand.lent.iter().map(|lent| lent.count).sum();
                assert!(lent <= demand.count, "SB1: {demand:?}");
            }
        }
    }

    /// What is wanted at home.
    fn wanted(&self) -> u32 {
        let rows = self
            .nodes
            .iter()
            .enumerate()
            .flat_map(|(at, node)| node.askers.iter().filter(move |(asker, _)| Self::at(**asker) == at));
        rows.flat_map(|(_, asker)| asker.demands.values()).map(|demand| demand.count).sum()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn every_lease_comes_back_and_every_demand_is_met(ops in prop::collection::vec(ops(), 1..150)) {
        let mut world = World::new(&[1.0, 2.0, 3.0]);
        for at in [0, 0, 1, 1, 2, 2] {
            world.client(at);
        }
        ops.iter().for_each(|op| world.apply(op));
        // As long as leases come back, everybody is served in the end.
        for _ in 0..400 {
            world.run();
            world.wait(LENT_NANOS / MILLI);
            world.notify_views();
            world.run();
            let Some((client, lease)) = world.held() else { break };
            world.give_back(client, lease);
        }
        prop_assert_eq!(world.wanted(), 0, "all was met");
        world.finish();
    }
}
