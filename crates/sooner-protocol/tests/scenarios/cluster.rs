//! A cluster of production cores: nodes, processes, the control service, the channels between them and a
//! virtual clock.
//!
//! The loop is that of the contract in the crate's `lib.rs`, once for each core. What is sent first arrives
//! first, unless a channel is held; nothing is drawn at random. Everything that happens is a line of
//! [`Cluster::lines`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use sooner_protocol::engine::{Engine, Part};
use sooner_protocol::node::objects::Fetching;
use sooner_protocol::node::uplink::reporter::Reporter;
use sooner_protocol::time::Instant;
use sooner_wire::message::Message;
use sooner_wire::message::SpillId;
use sooner_wire::{NodeId, ObjectId, Started, WorkerId};

use super::describe::Names;
use super::head::Head;
use super::process::Process;
use crate::kit::cpus;

/// Deliveries and timers of one command, after which it counts as one that never ends.
const STEPS_MAX: usize = 20_000;
/// How long a cluster has been up when a scenario begins (nanoseconds).
const BEGIN_NANOS: u64 = 200_000_000;
/// How long a message takes (nanoseconds).
const MESSAGE_NANOS: u64 = 1_000;
/// Kinds that are left out of a scenario unless it asks for them: how two processes come to their connection,
/// how code travels, and what nodes have free.
const HIDDEN: [&str; 8] = [
    "Connect",
    "PeerConnected",
    "Define",
    "ResourceReport",
    "ResourceView",
    "NodesChanged",
    "Register",
    "Registered",
];

/// Where a channel begins or ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    Process(WorkerId),
    Node(usize),
    Head,
}

/// What goes through a channel.
#[derive(Debug)]
pub enum Item {
    Message(Box<Message>),
    /// The process at its beginning is gone.
    End(&'static str, Option<Started>),
    /// A worker that was started says hello.
    Hello,
    /// The first process has dialled the second one, which is at this node.
    Dialled(WorkerId, WorkerId),
    /// A node wants bytes of a value.
    Fetch(Fetching),
    /// Bytes of a value: the whole, or its first half.
    Bytes(Fetching, ObjectId, u64),
    /// There is no such value.
    NoBytes(Fetching),
}

#[derive(Debug, Default)]
pub struct Channel {
    pub queue: VecDeque<(u64, Item)>,
    /// What is sent leaves, and what has come can be read: always, but between two processes.
    pub is_connected: bool,
    pub is_open: bool,
    pub is_held: bool,
}

/// A node: the production core, with its memory and its disk.
pub struct Node {
    pub core: Engine,
    /// What lies in each block that is not free.
    pub blocks: BTreeMap<u64, Option<ObjectId>>,
    pub blocks_made: u64,
    /// What was written to disk.
    pub disk: BTreeMap<SpillId, ObjectId>,
    pub reporter: Reporter,
    /// The control service knows it.
    pub is_linked: bool,
    pub fetches: Vec<super::values::Stream>,
    /// Who asked for bytes before they were there.
    pub asked_early: Vec<(usize, Fetching)>,
    /// How much of a value from elsewhere has come to its block.
    pub arrived: BTreeMap<(ObjectId, u64), u64>,
    /// Messages to it are not looked at any more.
    pub is_dead: bool,
}

/// See the module.
pub struct Cluster {
    pub now: Instant,
    pub nodes: Vec<Node>,
    pub processes: BTreeMap<WorkerId, Process>,
    pub starting: BTreeSet<WorkerId>,
    pub gone: BTreeSet<WorkerId>,
    pub head: Option<Head>,
    /// What a head writes outlives it.
    pub disk: BTreeMap<String, Vec<u8>>,
    pub heads: u32,
    pub channels: BTreeMap<(End, End), Channel>,
    pub names: Names,
    pub lines: Vec<String>,
    /// Values that lie in several blocks come in two pieces.
    pub halves: bool,
    pub hidden: BTreeSet<String>,
    sent: u64,
    /// Tasks that do not end by themselves, and those whose results are large.
    pub waits: BTreeSet<ObjectId>,
    pub large: BTreeSet<ObjectId>,
}

pub fn first_id(node: usize) -> u64 {
    (node as u64 + 1) << 24
}

impl Cluster {
    /// So many nodes with so many CPUs each, a driver at the first one, and a control service if there are
    /// several.
    pub fn new(cpus_of: &[u32], spills: bool) -> Self {
        let part = if cpus_of.len() == 1 { Part::Alone } else { Part::Member };
        let node = |at: usize| {
            let mut core = Engine::new(cpus(f64::from(cpus_of[at])), first_id(at), 0, part);
            if spills {
                core.set_spills();
            }
            Node {
                core,
                blocks: BTreeMap::new(),
                blocks_made: 0,
                disk: BTreeMap::new(),
                reporter: Reporter::default(),
                is_linked: false,
                fetches: Vec::new(),
                asked_early: Vec::new(),
                arrived: BTreeMap::new(),
                is_dead: false,
            }
        };
        let mut this = Self {
            now: Instant(1_000_000_000),
            nodes: (0..cpus_of.len()).map(node).collect(),
            processes: BTreeMap::new(),
            starting: BTreeSet::new(),
            gone: BTreeSet::new(),
            head: None,
            disk: BTreeMap::new(),
            heads: 0,
            channels: BTreeMap::new(),
            names: Names::default(),
            lines: Vec::new(),
            halves: false,
            hidden: HIDDEN.iter().map(|name| (*name).to_owned()).collect(),
            sent: 0,
            waits: BTreeSet::new(),
            large: BTreeSet::new(),
        };
        if cpus_of.len() > 1 {
            this.start_head();
        }
        this.add_driver("driver", 0);
        // All nodes know of each other.
        this.wait(BEGIN_NANOS);
        this.lines.clear();
        this
    }

    /// A driver comes to a node.
    pub fn add_driver(&mut self, name: &str, at: usize) {
        let id = self.nodes[at].core.new_worker_id();
        self.names.processes.insert(id, name.to_owned());
        self.connect(id, true);
    }

    /// A process says hello to its node.
    pub fn connect(&mut self, id: WorkerId, is_driver: bool) {
        let (now, at) = (self.now, node_of(id));
        self.processes.insert(id, Process::new(id, is_driver));
        self.starting.remove(&id);
        let pid = u32::try_from(id.0 & 0xff_ffff).expect("few");
        self.with_node(at, |node, out| {
            node.on_connected(id, pid, now);
            if is_driver && let Some(member) = node.member() {
                member.on_job(id, Box::default(), out);
            }
        });
    }

    pub fn tell(&mut self, who: End, what: &str) {
        let line = format!("{:<24} {what}", self.names.end(who));
        self.lines.push(line.trim_end().to_owned());
    }

    // --- channels ---

    pub fn channel(&mut self, from: End, to: End) -> &mut Channel {
        let between = matches!((from, to), (End::Process(_), End::Process(_)));
        self.channels.entry((from, to)).or_insert_with(|| Channel {
            is_connected: !between,
            is_open: !between,
            ..Channel::default()
        })
    }

    pub fn send(&mut self, from: End, to: End, item: Item) {
        if let End::Process(to) = to
            && self.gone.contains(&to)
        {
            return self.record_lost(from, End::Process(to), &item);
        }
        if let End::Node(at) = to
            && self.nodes[at].is_dead
        {
            return;
        }
        if self.head.is_none() && (from == End::Head || to == End::Head) {
            return;
        }
        self.sent += 1;
        let number = self.sent;
        self.channel(from, to).queue.push_back((number, item));
    }

    pub fn record_lost(&mut self, from: End, to: End, item: &Item) {
        if let Item::Message(message) = item
            && !self.hidden.contains(message.row().name)
        {
            let text = self.names.describe(from, message);
            let line = format!("{:<24} {text}   (nobody is there)", self.names.way(from, to));
            self.lines.push(line);
        }
    }

    fn may_deliver(&self, (from, to): (End, End), channel: &Channel) -> bool {
        let is_here = match to {
            End::Process(id) => self.processes.contains_key(&id),
            End::Node(at) => !self.nodes[at].is_dead,
            End::Head => self.head.is_some(),
        };
        let _ = from;
        is_here && channel.is_connected && channel.is_open && !channel.queue.is_empty()
    }

    fn next_channel(&self) -> Option<(End, End)> {
        let ready = self
            .channels
            .iter()
            .filter(|(key, channel)| !channel.is_held && self.may_deliver(**key, channel));
        ready.min_by_key(|(_, channel)| channel.queue[0].0).map(|(key, _)| *key)
    }

    /// Delivers what is due first. False if nothing is.
    pub fn step(&mut self) -> bool {
        let Some((from, to)) = self.next_channel() else { return false };
        self.deliver(from, to)
    }

    /// Delivers the next item of one channel, also of one that is held.
    pub fn deliver(&mut self, from: End, to: End) -> bool {
        let key = (from, to);
        if !self.channels.get(&key).is_some_and(|channel| self.may_deliver(key, channel)) {
            return false;
        }
        self.now.0 += MESSAGE_NANOS;
        let (_, item) = self.channel(from, to).queue.pop_front().expect("checked");
        match item {
            Item::Message(message) => self.deliver_message(from, to, *message),
            item => self.deliver_item(from, to, item),
        }
        self.go_on();
        true
    }

    fn deliver_message(&mut self, from: End, to: End, message: Message) {
        if !self.hidden.contains(message.row().name) {
            let text = self.names.describe(from, &message);
            self.lines.push(format!("{:<24} {text}", self.names.way(from, to)).trim_end().to_owned());
        }
        match to {
            End::Process(id) => self.process_hears(from, id, message),
            End::Node(at) => self.node_hears(from, at, message),
            End::Head => self.head_receives(from, message),
        }
    }

    fn deliver_item(&mut self, from: End, to: End, item: Item) {
        let (End::Node(at), now) = (to, self.now) else { unreachable!("only nodes get those") };
        match (item, from) {
            (Item::Hello, End::Process(id)) => {
                self.tell(End::Process(id), "has started");
                self.connect(id, false);
            }
            (Item::End(how, last), End::Process(id)) => {
                let _ = now;
                self.with_node(at, |node, out| node.on_dead(id, how, last, out));
            }
            (Item::Dialled(from, local), _) => self.arrive(at, from, local),
            (item, End::Node(other)) => self.on_transfer(other, at, item),
            (item, _) => unreachable!("{item:?} from {from:?}"),
        }
    }

    /// What follows from what was delivered, but takes no message.
    pub fn go_on(&mut self) {
        for id in self.processes.keys().copied().collect::<Vec<_>>() {
            self.process_goes_on(id);
        }
        self.go_on_streaming();
    }

    // --- time ---

    /// Delivers until nothing is on its way. Time stands still, but for what messages take.
    pub fn run(&mut self) {
        self.run_until(|_| false);
    }

    /// The same, until a line says so. False if none did.
    pub fn run_until(&mut self, is_reached: impl Fn(&str) -> bool) -> bool {
        for _ in 0..STEPS_MAX {
            let before = self.lines.len();
            if !self.step() && !self.fire_due() {
                return false;
            }
            if self.lines[before..].iter().any(|line| is_reached(line)) {
                return true;
            }
        }
        panic!("it does not end: {:?}", &self.lines[self.lines.len().saturating_sub(30)..]);
    }

    /// Time passes.
    pub fn wait(&mut self, nanos: u64) {
        let end = self.now.plus(nanos);
        for _ in 0..STEPS_MAX {
            self.run();
            let Some(due) = self.next_deadline().filter(|due| *due <= end) else {
                self.now = self.now.max(end);
                return self.run();
            };
            self.now = self.now.max(due);
        }
        panic!("time stands still at {:?}", self.now);
    }

    fn next_deadline(&self) -> Option<Instant> {
        let processes = self.processes.values().filter_map(|process| process.core.next_deadline());
        let nodes = self.nodes.iter().filter(|node| !node.is_dead);
        let nodes = nodes.filter_map(|node| {
            let report = node.reporter.next_deadline().filter(|_| node.is_linked);
            node.core.next_deadline().into_iter().chain(report).min()
        });
        let head = self.head.iter().filter_map(|head| head.core.next_deadline());
        processes.chain(nodes).chain(head).min()
    }

    /// Wakes those whose deadline has come. False if there is none.
    fn fire_due(&mut self) -> bool {
        let now = self.now;
        if self.next_deadline().is_none_or(|due| due > now) {
            return false;
        }
        for id in self.processes.keys().copied().collect::<Vec<_>>() {
            if self.processes[&id].core.next_deadline().is_some_and(|due| due <= now) {
                self.with_process(id, |core, out| core.on_timer(now, out));
            }
        }
        for at in 0..self.nodes.len() {
            self.with_node(at, |_, _| ());
        }
        self.settle_head();
        self.now.0 += MESSAGE_NANOS;
        self.go_on();
        true
    }

    /// Asserts what every core says of itself.
    pub fn check(&self) {
        for process in self.processes.values() {
            process.core.check();
        }
        for node in self.nodes.iter().filter(|node| !node.is_dead) {
            node.core.check();
        }
        if let Some(head) = &self.head {
            head.core.check();
        }
    }

    pub fn node_at(&self, id: NodeId) -> usize {
        usize::try_from((id.0 >> 24) - 1).expect("few")
    }
}

pub fn node_of(id: WorkerId) -> usize {
    usize::try_from((id.0 >> 24) - 1).expect("few")
}
