//! Every order of events of a small world with placement groups: a control service that may be restarted, two
//! nodes of which one may die, one group, other work that takes what the control service counts on, and
//! messages in flight.
//!
//! Invariant I10: what bundles hold is never counted twice, and nothing stays prepared for ever.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};

use sooner_protocol::control::groups::{GroupAction, Groups, Record};
use sooner_protocol::scheduling::policy::NodeRow;
use sooner_protocol::scheduling::{Grant, Pools};
use sooner_protocol::table::Set;
use sooner_protocol::time::Instant;
use sooner_protocol::uplink::{BundleAnswer, BundleOrder};
use sooner_wire::limits::PREPARED_NANOS;
use sooner_wire::message::{
    Bundle, BundleStep, CreateGroup, FindGroup, GroupPhase, GroupStrategy, Message, Prepared,
};
use sooner_wire::{GroupId, NodeId, PlacementAttempt, TaskId, WorkerId};

mod kit;

use kit::cpus;

const CLIENT: WorkerId = WorkerId(9);
const GROUP: GroupId = TaskId { owner: CLIENT, number: 1 };
const NODES: usize = 2;

#[derive(Debug, Clone)]
struct Node {
    pools: Pools,
    load: Option<Grant>,
    is_alive: bool,
    /// From and to the control service.
    up: VecDeque<BundleAnswer>,
    down: VecDeque<BundleOrder>,
}

/// How often what does not follow from anything else may still happen.
#[derive(Debug, Clone, Copy)]
struct Left {
    deaths: u8,
    loads: u8,
    restarts: u8,
    removals: u8,
    waits: u8,
}

#[derive(Debug, Clone)]
struct World {
    groups: Groups,
    nodes: Vec<Node>,
    left: Left,
    now: Instant,
    incarnation: u32,
    /// What the client heard last.
    heard: Option<GroupPhase>,
    is_removed: bool,
    /// The control service knows of other work, too.
    is_exact: bool,
}

/// What may happen next.
#[derive(Debug, Clone, Copy)]
enum Event {
    ToNode(usize),
    ToControl(usize),
    Die(usize),
    Load(usize),
    Unload(usize),
    Restart,
    Remove,
    Wait,
}

impl World {
    fn new(strategy: GroupStrategy, left: Left) -> Self {
        let node = || Node {
            pools: Pools::new(cpus(2.0)),
            load: None,
            is_alive: true,
            up: VecDeque::new(),
            down: VecDeque::new(),
        };
        let mut world = Self {
            groups: Groups::default(),
            nodes: (0..NODES).map(|_| node()).collect(),
            left,
            now: Instant(1),
            incarnation: 0,
            heard: None,
            is_removed: false,
            is_exact: false,
        };
        let bundles = (0..2).map(|_| Bundle { resources: cpus(1.0), labels: vec![] }).collect();
        let driver = Some(CLIENT);
        let create = CreateGroup { request: 0, group: GROUP, title: None, strategy, bundles, driver };
        world.control(|groups, _, out| groups.on_create(CLIENT, create, out));
        world
    }

    /// What the control service knows: nothing of other work at first, so that nodes refuse.
    fn rows(&self) -> Vec<NodeRow> {
        let alive = (0..).zip(&self.nodes).filter(|(_, node)| node.is_alive);
        let row = |(at, node): (u64, &Node)| {
            let mut free = node.pools.free().clone();
            if let Some(load) = node.load.as_ref().filter(|_| !self.is_exact) {
                free.add(&load.resources);
            }
            NodeRow { node: NodeId(at), total: node.pools.total().clone(), free, labels: vec![] }
        };
        alive.map(row).collect()
    }

    fn control(&mut self, work: impl FnOnce(&mut Groups, Instant, &mut Vec<GroupAction>)) {
        let mut out = Vec::new();
        work(&mut self.groups, self.now, &mut out);
        self.groups.after_events(&self.rows(), self.now, &mut out);
        self.groups.check();
        for action in out {
            match action {
                GroupAction::Node(node, order) => {
                    let node = &mut self.nodes[usize::try_from(node.0).expect("two nodes")];
                    if node.is_alive {
                        node.down.push_back(order);
                    }
                }
                GroupAction::Client(_, Message::GroupState(state)) => {
                    self.heard = state.groups.first().map(|row| row.phase);
                }
                GroupAction::Client(..) | GroupAction::Warn(_) => {}
            }
        }
    }

    fn node(&mut self, at: usize, order: BundleOrder) {
        let Node { pools, up, .. } = &mut self.nodes[at];
        let mut answer =
            |group, attempt, step| up.push_back(BundleAnswer::Prepared(Prepared { group, attempt, step }));
        match order {
            BundleOrder::Prepare(prepare) => {
                let is_room = pools.prepare(prepare.group, prepare.attempt, &prepare.bundles);
                let step = if is_room { BundleStep::Prepared } else { BundleStep::Refused };
                answer(prepare.group, prepare.attempt, step);
            }
            BundleOrder::Commit(commit) => {
                let is_here = pools.commit(commit.group, commit.attempt);
                let step = if is_here { BundleStep::Committed } else { BundleStep::Refused };
                answer(commit.group, commit.attempt, step);
            }
            BundleOrder::Release(release) => pools.give_back(release.group, release.attempt),
        }
    }

    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for (at, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.is_alive) {
            events.extend((!node.down.is_empty()).then_some(Event::ToNode(at)));
            events.extend((!node.up.is_empty()).then_some(Event::ToControl(at)));
            events.extend((self.left.deaths > 0).then_some(Event::Die(at)));
            events.extend((self.left.loads > 0 && node.load.is_none()).then_some(Event::Load(at)));
            events.extend(node.load.is_some().then_some(Event::Unload(at)));
        }
        events.extend((self.left.restarts > 0).then_some(Event::Restart));
        events.extend((self.left.removals > 0).then_some(Event::Remove));
        events.extend((self.left.waits > 0).then_some(Event::Wait));
        events
    }

    fn is_silent(&self) -> bool {
        self.nodes.iter().all(|node| node.up.is_empty() && node.down.is_empty())
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::ToNode(at) => {
                let message = self.nodes[at].down.pop_front().expect("something is on its way");
                self.node(at, message);
            }
            Event::ToControl(at) => {
                let message = self.nodes[at].up.pop_front().expect("something is on its way");
                let node = NodeId(at as u64);
                self.control(|groups, now, out| match message {
                    BundleAnswer::Prepared(answer) => groups.on_prepared(node, &answer, now, out),
                    BundleAnswer::Asks(find) => groups.on_node_asks(node, &find, out),
                });
            }
            Event::Die(at) => {
                self.left.deaths -= 1;
                let node = &mut self.nodes[at];
                node.is_alive = false;
                node.up.clear();
                node.down.clear();
                self.control(|groups, _, out| groups.on_node_dead(NodeId(at as u64), out));
            }
            Event::Load(at) => {
                self.left.loads -= 1;
                self.nodes[at].load = self.nodes[at].pools.acquire(&cpus(2.0), None);
            }
            Event::Unload(at) => {
                let load = self.nodes[at].load.take().expect("it has some");
                self.nodes[at].pools.release(&load);
            }
            Event::Restart => self.restart(),
            Event::Remove => {
                self.left.removals -= 1;
                self.is_removed = true;
                self.control(|groups, _, out| groups.on_remove(GROUP, out));
            }
            Event::Wait => {
                self.left.waits -= 1;
                self.wait();
            }
        }
    }

    /// The control service is killed and starts again: what was on its way is lost, what it wrote is not.
    fn restart(&mut self) {
        self.left.restarts -= 1;
        self.incarnation += 1;
        let records: Vec<Record> = self.groups.record(GROUP).cloned().into_iter().collect();
        self.nodes.iter_mut().for_each(|node| (node.up.clear(), node.down.clear()).0);
        let incarnation = self.incarnation;
        let gone: Vec<NodeId> =
            (0..).zip(&self.nodes).filter(|(_, node)| !node.is_alive).map(|(at, _)| NodeId(at)).collect();
        self.control(|groups, _, out| {
            *groups = Groups::restored(records, incarnation, out);
            gone.into_iter().for_each(|node| groups.on_node_dead(node, out));
            // Its node says for the client what it wants to hear.
            let find = FindGroup { request: 0, group: Some(GROUP), title: None, attempt: None };
            groups.on_find(CLIENT, &find, out);
        });
        for node in self.nodes.iter_mut().filter(|node| node.is_alive) {
            // Nodes say what they have when they register again.
            let attempts: Set<PlacementAttempt> =
                node.pools.reserved(GROUP).map(|(_, attempt)| attempt).collect();
            for attempt in attempts {
                let find = FindGroup { request: 0, group: Some(GROUP), title: None, attempt: Some(attempt) };
                node.up.push_back(BundleAnswer::Asks(find));
            }
        }
    }

    /// Time passes until the longest patience ends.
    fn wait(&mut self) {
        for node in &mut self.nodes {
            // What it knows of now is what time passes for.
            node.pools.unheard(self.now);
        }
        self.now = self.now.plus(PREPARED_NANOS);
        for at in 0..NODES {
            if !self.nodes[at].is_alive {
                continue;
            }
            for (group, attempt) in self.nodes[at].pools.unheard(self.now) {
                let find = FindGroup { request: 0, group: Some(group), title: None, attempt: Some(attempt) };
                self.nodes[at].up.push_back(BundleAnswer::Asks(find));
            }
        }
        self.control(|_, _, _| ());
    }

    /// Nothing is counted twice, at any time.
    fn check(&self) {
        for node in self.nodes.iter().filter(|node| node.is_alive) {
            let mut used = cpus(node.pools.reserved(GROUP).count() as f64);
            if let Some(load) = &node.load {
                used.add(&load.resources);
            }
            used.add(node.pools.free());
            assert_eq!(used, *node.pools.total(), "I10: resources are counted once: {node:?}");
        }
    }

    /// When everything has been said and time has passed, what is left is what the control service knows.
    fn check_end(mut self) {
        self.is_exact = true;
        for _ in 0..12 {
            while let Some(event) = self
                .events()
                .into_iter()
                .find(|event| matches!(event, Event::ToNode(_) | Event::ToControl(_)))
            {
                self.take(event);
                self.check();
            }
            self.wait();
        }
        assert!(self.is_silent(), "it never ends: {self:#?}");
        let record = self.groups.record(GROUP);
        for (at, node) in (0..).zip(&self.nodes).filter(|(_, node)| node.is_alive) {
            assert_eq!(node.pools.next_deadline(), None, "something stays prepared: {self:#?}");
            let known = (0..).zip(record.iter().flat_map(|record| &record.bundles));
            let is_here = |place: &Option<(NodeId, PlacementAttempt)>| {
                place.is_some_and(|(node, _)| node == NodeId(at))
            };
            let mut expected: Vec<u32> =
                known.filter(|(_, (_, place))| is_here(place)).map(|(index, _)| index).collect();
            let mut reserved: Vec<u32> = node.pools.reserved(GROUP).map(|(index, _)| index).collect();
            expected.sort_unstable();
            reserved.sort_unstable();
            assert_eq!(reserved, expected, "node {at} has what control knows: {self:#?}");
        }
        if self.is_removed {
            assert_eq!((record, self.heard), (None, Some(GroupPhase::Removed)));
            return;
        }
        let record = record.expect("it was not removed");
        let is_placed = record.bundles.iter().all(|(_, place)| place.is_some());
        let is_room = |count: usize| {
            let free = |node: &&Node| node.is_alive && node.load.is_none();
            self.nodes.iter().filter(free).count() >= count
        };
        let needed = if record.strategy == GroupStrategy::StrictSpread { 2 } else { 1 };
        assert!(is_placed || !is_room(needed), "there is room and it waits: {self:#?}");
    }
}

fn fingerprint(value: &impl Debug) -> u64 {
    let mut hasher = DefaultHasher::new();
    format!("{value:?}").hash(&mut hasher);
    hasher.finish()
}

/// Visits every state.
fn explore(strategy: GroupStrategy, left: Left) -> usize {
    let mut seen: Set<u64> = Set::default();
    let mut open = vec![World::new(strategy, left)];
    while let Some(world) = open.pop() {
        for event in world.events() {
            let mut next = world.clone();
            next.take(event);
            next.check();
            if seen.insert(fingerprint(&next)) {
                if next.is_silent() {
                    next.clone().check_end();
                }
                open.push(next);
            }
        }
    }
    seen.len()
}

#[test]
fn a_node_that_dies_leaves_nothing_reserved_twice_or_for_ever() {
    for strategy in [GroupStrategy::StrictSpread, GroupStrategy::StrictPack, GroupStrategy::Spread] {
        let left = Left { deaths: 1, loads: 1, restarts: 0, removals: 0, waits: 1 };
        let states = explore(strategy, left);
        assert!(states > 300, "{states}");
    }
}

#[test]
fn a_restarted_control_service_finds_what_was_prepared() {
    for strategy in [GroupStrategy::StrictSpread, GroupStrategy::Pack] {
        let left = Left { deaths: 1, loads: 0, restarts: 2, removals: 0, waits: 1 };
        let states = explore(strategy, left);
        assert!(states > 300, "{states}");
    }
}

#[test]
fn a_group_that_is_removed_leaves_nothing_behind() {
    let left = Left { deaths: 1, loads: 1, restarts: 1, removals: 1, waits: 0 };
    let states = explore(GroupStrategy::StrictSpread, left);
    assert!(states > 300, "{states}");
}

#[test]
fn groups_keep_their_turns_when_one_is_removed() {
    let (mut groups, mut out) = (Groups::default(), Vec::new());
    let group = |number| TaskId { owner: CLIENT, number };
    for number in 1..=4 {
        let bundles = vec![Bundle { resources: cpus(1.0), labels: vec![] }];
        let (group, strategy) = (group(number), GroupStrategy::Pack);
        let create = CreateGroup { request: 0, group, title: None, strategy, bundles, driver: Some(CLIENT) };
        groups.on_create(CLIENT, create, &mut out);
    }
    groups.on_remove(group(1), &mut out);
    let row = NodeRow { node: NodeId(0), total: cpus(2.0), free: cpus(2.0), labels: vec![] };
    out.clear();
    groups.after_events(&[row], Instant(1), &mut out);
    let prepared = out.iter().filter_map(|action| match action {
        GroupAction::Node(_, BundleOrder::Prepare(prepare)) => Some(prepare.group),
        _ => None,
    });
    assert_eq!(prepared.collect::<Vec<_>>(), [group(2), group(3)]);
}
