//! Nodes and their head under everything that can happen: random runs of three nodes, and every short run of
//! two.
//!
//! The world knows what is true (which daemon runs, when it was last heard) and compares what the head says
//! with it: nobody who lives and is heard of is called gone, who is gone stays gone, also for a head that
//! starts again, and who ended is found out when the faults stop.

use proptest::prelude::*;
use sooner_protocol::control::Probed;
use sooner_protocol::control::membership::{Nodes, NodesAction, NodesOptions, Refusal};
use sooner_protocol::control::persist::{BatchId, Write};
use sooner_protocol::table::{Map, Set};
use sooner_protocol::time::Instant;
use sooner_wire::limits::{HEALTH_TIMEOUT_NANOS, HEARTBEAT_NANOS};
use sooner_wire::message::{AboutNode, Heartbeat, Message, Register, Suspect, kind};
use sooner_wire::record::{NodeRecord, node_key};
use sooner_wire::{NodeId, ResourceSet};

const CLUSTER: u64 = 7;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// A daemon says that it is there, for the first time or again.
    Register(usize),
    Beat(usize),
    /// A connection of it ends, or is there again.
    Cut(usize),
    Back(usize),
    Kill(usize),
    Suspect(usize, usize),
    /// The oldest probe ends: with the truth, or with nothing.
    Probe {
        is_answered: bool,
    },
    /// The oldest write is done, or fails.
    Disk {
        works: bool,
    },
    Tick,
    /// The head stands still for a minute.
    Stand,
    /// The head ends, and another one starts on its disk.
    Restart,
}

#[derive(Debug, Clone, Default)]
struct Daemon {
    runs: bool,
    /// It got [`Message::Registered`].
    joined: bool,
    /// It was told to end, and ended.
    fenced: bool,
    /// How long the head has listened since it was last heard of (nanoseconds).
    unheard: u64,
}

struct World {
    head: Nodes,
    now: Instant,
    daemons: Vec<Daemon>,
    /// The last of them are drivers, which nobody can dial.
    drivers: usize,
    probes: Vec<(NodeId, u32)>,
    writes: Vec<(BatchId, Vec<Write>)>,
    disk: Map<String, Vec<u8>>,
    /// Who all have been told is gone.
    told: Set<NodeId>,
    /// The disk has failed to forget somebody: a head that starts again may take him back.
    forgot_nothing: bool,
}

fn options() -> NodesOptions {
    NodesOptions { cluster: CLUSTER, python: "3.11".into(), health_timeout: HEALTH_TIMEOUT_NANOS }
}

fn id(daemon: usize) -> NodeId {
    NodeId((daemon as u64 + 1) << 24)
}

fn daemon_of(node: NodeId) -> usize {
    usize::try_from((node.0 >> 24) - 1).expect("small")
}

impl World {
    fn new(daemons: usize, drivers: usize) -> Self {
        let daemon = Daemon { runs: true, ..Daemon::default() };
        Self {
            head: Nodes::new(options(), Vec::new(), Instant(0)),
            now: Instant(0),
            daemons: vec![daemon; daemons],
            drivers,
            probes: Vec::new(),
            writes: Vec::new(),
            disk: Map::default(),
            told: Set::default(),
            forgot_nothing: false,
        }
    }

    fn register(&self, daemon: usize) -> Register {
        let is_driver = daemon + self.drivers >= self.daemons.len();
        let about = AboutNode {
            kind: if is_driver { kind::DRIVER } else { kind::DAEMON },
            name: format!("n{daemon}"),
            address: (!is_driver).then(|| format!("10.0.0.{}:1", daemon + 1)),
            host: String::new(),
            boot_id: String::new(),
            resources: ResourceSet::default(),
            labels: vec![],
        };
        let rejoins = self.daemons[daemon].joined.then_some(CLUSTER);
        Register { about: Box::new(about), version: String::new(), python: "3.11".into(), rejoins }
    }

    fn run(&mut self, event: Event) {
        let known: Vec<usize> =
            (0..self.daemons.len()).filter(|number| self.head.is_known(id(*number))).collect();
        self.happen(event);
        for number in known {
            if let Some(reason) = self.head.why_dead(id(number)) {
                self.judge(number, reason);
            }
        }
        self.head.check();
    }

    fn happen(&mut self, event: Event) {
        let mut out = Vec::new();
        match event {
            Event::Register(daemon) => self.on_register(daemon, &mut out),
            Event::Beat(daemon) if self.daemons[daemon].runs => {
                self.receive(daemon);
                let beat = Heartbeat { number: 1, node_lag: 0, data_lag: 0 };
                self.head.on_heartbeat(id(daemon), beat, self.now, &mut out);
            }
            Event::Back(daemon) if self.daemons[daemon].runs => {
                self.receive(daemon);
                self.head.on_connected(id(daemon), self.now);
            }
            Event::Cut(daemon) => self.head.on_disconnected(id(daemon), self.now, &mut out),
            Event::Kill(daemon) => self.daemons[daemon].runs = false,
            Event::Suspect(by, of) if self.daemons[by].runs && self.daemons[by].joined => {
                let suspect = Suspect { node: id(of), is_given_up: None };
                self.head.on_suspect(id(by), suspect, self.now, &mut out);
            }
            Event::Probe { is_answered } if !self.probes.is_empty() => {
                let (node, number) = self.probes.remove(0);
                let probed = match (is_answered, self.daemons[daemon_of(node)].runs) {
                    (false, _) => Probed::Silent,
                    (true, false) => Probed::Refused,
                    (true, true) => Probed::Answered(node),
                };
                if let Probed::Answered(_) = probed {
                    self.receive(daemon_of(node));
                }
                self.head.on_probed(node, number, probed, self.now, &mut out);
            }
            Event::Disk { works } if !self.writes.is_empty() => self.on_disk(works, &mut out),
            Event::Tick => self.pass(HEARTBEAT_NANOS, &mut out),
            Event::Stand => {
                self.now = self.now.plus(60_000_000_000);
                self.daemons.iter_mut().for_each(|daemon| daemon.unheard = 0);
                self.head.on_timer(self.now, &mut out);
            }
            Event::Restart => self.restart(&mut out),
            Event::Beat(_)
            | Event::Back(_)
            | Event::Suspect(..)
            | Event::Probe { .. }
            | Event::Disk { .. } => {}
        }
        self.carry(out);
    }

    fn receive(&mut self, daemon: usize) {
        self.daemons[daemon].unheard = 0;
    }

    fn pass(&mut self, nanos: u64, out: &mut Vec<NodesAction>) {
        self.now = self.now.plus(nanos);
        self.daemons.iter_mut().for_each(|daemon| daemon.unheard += nanos);
        self.head.on_timer(self.now, out);
    }

    fn on_register(&mut self, daemon: usize, out: &mut Vec<NodesAction>) {
        if !self.daemons[daemon].runs {
            return;
        }
        self.receive(daemon);
        match self.head.on_register(id(daemon), self.register(daemon), self.now, out) {
            Ok(()) => {}
            Err(Refusal::Fenced(_)) => {
                assert!(!self.head.is_known(id(daemon)), "only who is gone is fenced");
                (self.daemons[daemon].fenced, self.daemons[daemon].runs) = (true, false);
            }
            Err(Refusal::Refused(reason)) => panic!("{reason}"),
        }
    }

    fn on_disk(&mut self, works: bool, out: &mut Vec<NodesAction>) {
        let (batch, writes) = self.writes.remove(0);
        for Write { key, value } in writes {
            match value {
                Some(value) if works => drop(self.disk.insert(key, value)),
                None if works => drop(self.disk.swap_remove(&key)),
                Some(_) => {}
                None => self.forgot_nothing = true,
            }
        }
        let outcome = if works { Ok(()) } else { Err("no space".to_owned()) };
        self.head.on_persisted(batch, outcome, out);
    }

    fn restart(&mut self, out: &mut Vec<NodesAction>) {
        let records = self.disk.values().map(|bytes| NodeRecord::from_bytes(bytes).expect("ours")).collect();
        // Who was told of before a disk that hangs had forgotten him is known to the next head.
        let told: Vec<String> = self.told.iter().map(|node| node_key(*node)).collect();
        let undone = self.writes.iter().flat_map(|(_, writes)| writes);
        self.forgot_nothing |=
            undone.into_iter().any(|write| write.value.is_none() && told.contains(&write.key));
        (self.probes, self.writes) = (Vec::new(), Vec::new());
        self.head = Nodes::new(options(), records, self.now);
        self.daemons.iter_mut().for_each(|daemon| daemon.unheard = 0);
        self.head.on_start(self.now, out);
    }

    fn carry(&mut self, actions: Vec<NodesAction>) {
        for action in actions {
            match action {
                NodesAction::Send(to, message) => self.deliver(to, &message),
                NodesAction::Persist(batch, writes) => self.writes.push((batch, writes)),
                NodesAction::Probe { node, number, .. } => self.probes.push((node, number)),
                NodesAction::Joined(node) => assert!(self.head.row(node).is_some()),
                NodesAction::Dead(node, _) => drop(self.told.insert(node)),
                NodesAction::AskedAfter { node, .. } => assert!(!self.head.is_known(node)),
                NodesAction::Warn(_) => {}
            }
        }
    }

    fn deliver(&mut self, to: NodeId, message: &Message) {
        let daemon = daemon_of(to);
        match message {
            Message::Registered(registered) => {
                assert!(registered.nodes.iter().any(|row| row.node == to));
                let may_come_back = self.forgot_nothing || !self.told.contains(&to);
                assert!(may_come_back, "ND1: {to:?} was gone and joins");
                self.daemons[daemon].joined = self.daemons[daemon].runs;
            }
            Message::Fenced(_) if self.daemons[daemon].runs => {
                assert!(!self.head.is_known(to));
                (self.daemons[daemon].fenced, self.daemons[daemon].runs) = (true, false);
            }
            Message::NodesChanged(changed) => {
                assert!(
                    changed.rows.iter().all(|row| self.head.row(row.node).is_some()),
                    "news of who is gone"
                );
            }
            Message::NodeDead(gone) => assert!(!self.head.is_known(gone.node), "{gone:?}"),
            _ => {}
        }
    }

    /// The head has just decided that a daemon is gone.
    fn judge(&self, number: usize, reason: &str) {
        let daemon = &self.daemons[number];
        let is_silent = daemon.unheard >= HEALTH_TIMEOUT_NANOS;
        let is_lost = reason.contains("did not come back");
        assert!(!daemon.runs || is_silent || is_lost, "{number} lives and is called gone: {reason}");
    }

    /// The faults stop: whoever runs is heard of, and everything is answered.
    fn end(mut self) {
        for _ in 0..(HEALTH_TIMEOUT_NANOS / HEARTBEAT_NANOS + 3) {
            for daemon in 0..self.daemons.len() {
                if self.daemons[daemon].runs {
                    self.run(Event::Register(daemon));
                    self.run(Event::Beat(daemon));
                }
            }
            while !self.probes.is_empty() || !self.writes.is_empty() {
                self.run(Event::Probe { is_answered: true });
                self.run(Event::Disk { works: true });
            }
            self.run(Event::Tick);
        }
        for (number, daemon) in self.daemons.iter().enumerate() {
            assert_eq!(self.head.row(id(number)).is_some(), daemon.runs, "{number}: {daemon:?}");
            assert_eq!(self.disk.contains_key(&node_key(id(number))), daemon.runs);
        }
        assert!(self.head.is_complete());
    }
}

fn events(daemons: usize) -> impl Strategy<Value = Event> {
    let one = 0..daemons;
    prop_oneof![
        4 => one.clone().prop_map(Event::Register),
        6 => one.clone().prop_map(Event::Beat),
        2 => one.clone().prop_map(Event::Cut),
        1 => one.clone().prop_map(Event::Back),
        1 => one.clone().prop_map(Event::Kill),
        2 => (one.clone(), one).prop_map(|(by, of)| Event::Suspect(by, of)),
        4 => any::<bool>().prop_map(|is_answered| Event::Probe { is_answered }),
        6 => (0..8).prop_map(|number| Event::Disk { works: number > 0 }),
        6 => Just(Event::Tick),
        1 => Just(Event::Stand),
        1 => Just(Event::Restart),
    ]
}

/// `PROPTEST_CASES` asks for more runs.
fn config() -> ProptestConfig {
    let config = ProptestConfig::default();
    ProptestConfig { cases: config.cases.max(1_000), failure_persistence: None, ..config }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn whatever_happens_the_head_is_right(run in proptest::collection::vec(events(3), 0..150)) {
        let mut world = World::new(3, 1);
        run.into_iter().for_each(|event| world.run(event));
        world.end();
    }
}

/// What could make a difference now: events that do nothing are left out.
fn choices(world: &World) -> Vec<Event> {
    let mut all = Vec::new();
    for (number, daemon) in world.daemons.iter().enumerate() {
        if daemon.runs {
            all.extend([Event::Register(number), Event::Kill(number)]);
        }
        if world.head.is_known(id(number)) {
            all.push(Event::Cut(number));
        }
        if daemon.runs && (world.head.is_known(id(number)) || world.told.contains(&id(number))) {
            all.push(Event::Beat(number));
        }
    }
    if world.daemons[0].runs && world.daemons[0].joined {
        all.push(Event::Suspect(0, 1));
    }
    if !world.probes.is_empty() {
        all.extend([true, false].map(|is_answered| Event::Probe { is_answered }));
    }
    if !world.writes.is_empty() {
        all.extend([true, false].map(|works| Event::Disk { works }));
    }
    all.extend([Event::Tick, Event::Restart]);
    all
}

/// Every run of so many events: each is run from the start, and ends as above.
fn explore(path: &mut Vec<Event>, depth: usize, runs: &mut usize) {
    let mut world = World::new(2, 0);
    // Both have joined; what is explored is what comes then.
    for event in
        [Event::Register(0), Event::Disk { works: true }, Event::Register(1), Event::Disk { works: true }]
    {
        world.run(event);
    }
    path.iter().for_each(|event| world.run(*event));
    *runs += 1;
    if path.len() == depth {
        world.end();
        return;
    }
    for event in choices(&world) {
        path.push(event);
        explore(path, depth, runs);
        path.pop();
    }
}

#[test]
fn every_short_run_of_two_nodes_is_right() {
    let mut runs = 0;
    explore(&mut Vec::new(), 4, &mut runs);
    assert!(runs > 5_000, "{runs}");
}
