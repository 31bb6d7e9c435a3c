//! The nodes: a `Member` each, and around it the runtime's dealings with the head, with the node's processes
//! and with other nodes.

use std::collections::BTreeSet;

use sooner_protocol::node::uplink::Member;
use sooner_protocol::node::uplink::reporter::Reporter;
use sooner_protocol::node::{NodeAction, NodeActions};
use sooner_protocol::table::Map;
use sooner_protocol::time::Instant;
use sooner_protocol::uplink::ToNode;
use sooner_protocol::uplink::wire::is_for_directory;
use sooner_wire::limits::REDIAL_NANOS_MAX;
use sooner_wire::message::{
    AboutNode, Heartbeat, Message, PeerConnected, Register, Registered, Routed, Settings, Suspect, kind,
};
use sooner_wire::{NodeId, ResourceSet, WorkerId};

use super::net::HEAD;
use super::plan::SECOND;
use super::uplinks::{Block, Uplink};
use super::world::{Event, World};
use crate::cluster::head::PYTHON;
use crate::violation::fail;

/// Latency between a node and its own processes (nanoseconds).
const LOCAL_NANOS: u64 = 10_000;
/// A node handles in one turn the messages of this time (nanoseconds).
const TURN_NANOS: u64 = 5_000;

/// The state of a node's link with its head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// There is no connection.
    Down,
    /// The node has asked to be taken in.
    Greeting,
    /// The node has been taken in.
    Up,
}

/// One life of a node, from its start to its end.
pub struct Node {
    pub(super) id: NodeId,
    pub(super) place: usize,
    pub(super) cpus: u64,
    pub(super) address: String,
    /// The production core; `None` after the node's end.
    pub(super) core: Option<Box<Member>>,
    pub(super) out: NodeActions,
    is_listed: bool,
    wakes_at: u64,
    pub(super) link: Link,
    rejoins: Option<u64>,
    reporter: Reporter,
    pub(super) known: BTreeSet<NodeId>,
    gone: BTreeSet<NodeId>,
    settings: Option<Settings>,
    beats: u64,
    pub(super) blocks_made: u64,
    pub(super) blocks: Map<u64, Block>,
    pub(super) uplink: Uplink,
}

/// `count` processors.
#[must_use]
pub fn cpus(count: u64) -> ResourceSet {
    let mut set = ResourceSet::default();
    set.add_one("CPU", count * 10_000);
    set
}

impl Node {
    /// Whether the node lives.
    #[must_use]
    pub fn runs(&self) -> bool {
        self.core.is_some()
    }

    /// Whether this node knows that `node` takes part.
    #[must_use]
    pub fn knows(&self, node: NodeId) -> bool {
        self.known.contains(&node)
    }

    /// Whether this node has learned that `node` is dead, so that nothing more comes from it.
    #[must_use]
    pub fn has_buried(&self, node: NodeId) -> bool {
        self.gone.contains(&node)
    }

    fn register(&self) -> Register {
        let about = AboutNode {
            kind: kind::DAEMON,
            name: format!("node-{:x}", self.id.0 >> 24),
            address: Some(self.address.clone()),
            host: format!("host-{}", self.place),
            boot_id: format!("boot-{}", self.place),
            resources: cpus(self.cpus),
            labels: Vec::new(),
        };
        let (version, python) = ("0.1.0".into(), PYTHON.into());
        Register { about: Box::new(about), version, python, rejoins: self.rejoins }
    }
}

impl World {
    /// A node starts on a machine, and dials the head.
    pub(super) fn start_node(&mut self, place: usize) {
        self.places[place].will_start = false;
        if self.places[place].node.is_some_and(|node| self.nodes[node].runs()) {
            return;
        }
        let at = self.nodes.len();
        let id = NodeId((at as u64 + 1) << 24);
        let cpus_here = if self.plan.load.is_even { 4 } else { 4 + self.random.below(5) as u64 };
        let mut core = Member::new(cpus(cpus_here), id.0, 0);
        core.ask_owners();
        core.set_store_bytes(64 << 30);
        self.nodes.push(Node {
            id,
            place,
            cpus: cpus_here,
            address: format!(
                "10.{}.{}.{}:{}",
                place >> 16,
                (place >> 8) & 255,
                place & 255,
                7000 + at % 50_000
            ),
            core: Some(Box::new(core)),
            out: NodeActions::new(),
            is_listed: false,
            wakes_at: 0,
            link: Link::Down,
            rejoins: None,
            reporter: Reporter::default(),
            known: BTreeSet::new(),
            gone: BTreeSet::new(),
            settings: None,
            beats: 0,
            blocks_made: 0,
            blocks: Map::default(),
            uplink: Uplink::default(),
        });
        self.places[place].node = Some(at);
        self.trace.send(|| format!("{:?}: {id:?} starts at {place}", self.now));
        self.dial(at);
    }

    /// A node dials its head.
    pub(super) fn dial(&mut self, at: usize) {
        let node = &self.nodes[at];
        if !node.runs() || node.link != Link::Down {
            return;
        }
        if self.head.is_none() || !self.is_carried(node.place, 0) {
            let pause = self.about(REDIAL_NANOS_MAX / 2);
            return self.after(pause, Event::Dial(at));
        }
        self.nodes[at].link = Link::Greeting;
        let register = self.nodes[at].register();
        self.send(at, HEAD, register.into());
    }

    /// The connection to the head has ended.
    pub(super) fn lose_head(&mut self, at: usize) {
        let now = self.now;
        let node = &mut self.nodes[at];
        if node.link == Link::Down {
            return;
        }
        node.link = Link::Down;
        if let Some(core) = &mut node.core {
            core.on_control_down(now);
        }
        let pause = self.about(REDIAL_NANOS_MAX / 4);
        self.after(pause, Event::Dial(at));
    }

    pub(super) fn beat(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let Some(settings) = node.settings.filter(|_| node.core.is_some()) else { return };
        node.beats += 1;
        let beat = Heartbeat { number: node.beats, node_lag: 0, data_lag: 0 };
        let place = node.place;
        if node.link == Link::Up && self.is_carried(place, 0) {
            // Heartbeats go over a line of their own, which is renewed when it fails.
            self.send(at, HEAD, beat.into());
        }
        self.after(settings.heartbeat, Event::Beat(at));
    }

    /// A node notices that the connection of another one has ended.
    pub(super) fn suspect(&mut self, by: usize, node: NodeId) {
        let one = &self.nodes[by];
        if one.runs() && one.link == Link::Up && one.knows(node) {
            self.send(by, HEAD, Suspect { node, is_given_up: None }.into());
        }
    }

    /// Schedules a turn of a node that has something to do.
    pub(super) fn list_node(&mut self, at: usize) {
        if self.nodes[at].runs() && !std::mem::replace(&mut self.nodes[at].is_listed, true) {
            self.after(TURN_NANOS, Event::Turn(at));
        }
    }

    pub(super) fn take_turn(&mut self, at: usize) {
        self.nodes[at].is_listed = false;
        let now = self.now;
        let node = &mut self.nodes[at];
        let Some(core) = &mut node.core else { return };
        self.events += 1;
        core.after_events(now, &mut node.out);
        node.reporter.note();
        self.perform_all(at);
        self.report(at);
        self.set_timer_of(at);
    }

    pub(super) fn wake_node(&mut self, at: usize, due: u64) {
        if self.nodes[at].wakes_at == due {
            self.nodes[at].wakes_at = 0;
            self.take_turn(at);
        }
    }

    fn set_timer_of(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let Some(core) = &node.core else { return };
        let report = if node.link == Link::Up { node.reporter.next_deadline() } else { None };
        let Some(due) = [core.next_deadline(), report].into_iter().flatten().min() else { return };
        let due = due.max(self.now.plus(1)).0;
        if node.wakes_at == 0 || due < node.wakes_at {
            node.wakes_at = due;
            self.at(Instant(due), Event::Wake(at, due));
        }
    }

    fn report(&mut self, at: usize) {
        let now = self.now;
        let node = &mut self.nodes[at];
        let (Link::Up, Some(core)) = (node.link, &node.core) else { return };
        if let Some(report) = node.reporter.take(now, || core.resources_now()) {
            self.send(at, HEAD, report.into());
        }
    }

    /// Performs all actions of a node's core, and those that follow from them.
    pub(super) fn perform_all(&mut self, at: usize) {
        loop {
            let out = std::mem::take(&mut self.nodes[at].out);
            if out.is_empty() {
                return;
            }
            for action in out {
                self.perform(at, action);
            }
        }
    }

    fn perform(&mut self, at: usize, action: NodeAction) {
        let now = self.now;
        match action {
            NodeAction::Send(to, message) => self.notify_client(to, *message),
            NodeAction::Introduce(one, other) => {
                self.notify_client(one, PeerConnected::pair(other).into());
                self.notify_client(other, PeerConnected::pair(one).into());
            }
            NodeAction::Dial { client, to } => {
                if let Some(core) = &mut self.nodes[at].core {
                    core.on_dialled_for(client, to);
                }
                self.notify_client(client, PeerConnected::pair(to).into());
                if let Some(there) = self.index_of(to.node())
                    && let Some(core) = &mut self.nodes[there].core
                {
                    core.on_arrived_for(to, client);
                    self.list_node(there);
                }
            }
            NodeAction::StartWorker(worker) => {
                let takes = SECOND / 500 + self.about(SECOND / 200);
                self.after(takes, Event::Fork(at, worker));
            }
            NodeAction::KillWorker(worker) => self.after(LOCAL_NANOS, Event::End(worker)),
            NodeAction::LimitMemory(..) => unreachable!("nodes limit nobody here"),
            NodeAction::FreeBlock(block) => self.free_block(at, block.offset()),
            NodeAction::AllocateFor { object, bytes } => self.allocate(at, object, bytes),
            NodeAction::Fetch(fetching) => self.fetch(at, fetching),
            NodeAction::Spill { .. } | NodeAction::DropSpilled(_) => {
                unreachable!("nodes of clusters do not spill")
            }
            NodeAction::StopFetching { object, attempt } => self.stop_fetching(at, object, attempt),
            NodeAction::Route { from, to, mut message } => {
                message.globalise(self.nodes[at].id);
                if let Some(there) = self.index_of(to.node()) {
                    self.send(at, there, Routed { from, to, message }.into());
                }
            }
            NodeAction::Control(word) => {
                if self.nodes[at].link == Link::Up {
                    let message = word.into_message(self.nodes[at].id);
                    self.send(at, HEAD, message);
                }
            }
            NodeAction::FindNodes(find) => {
                if self.nodes[at].link == Link::Up {
                    self.saw("a node asked the head who could run something");
                    self.send(at, HEAD, Message::FindNodes(*find));
                }
            }
            NodeAction::BeginJob(..) | NodeAction::Warn(_) => {}
            NodeAction::GiveUp(_) => unreachable!("links of this world do not end"),
            NodeAction::JobLeaves(job) => {
                let Some(core) = &self.nodes[at].core else { return };
                let outliving = core.outliving(job);
                let its = |worker: &&WorkerId| worker.node() == self.nodes[at].id && **worker != job;
                let mine: Vec<WorkerId> = self.processes.keys().filter(its).copied().collect();
                for worker in mine {
                    let is_its = self.nodes[at].core.as_ref().is_some_and(|core| core.job_of(worker) == job);
                    if is_its && !outliving.contains(&worker) {
                        self.at(now, Event::End(worker));
                    }
                }
            }
        }
    }

    fn notify_client(&mut self, to: WorkerId, message: Message) {
        self.after(LOCAL_NANOS, Event::ToClient(to, Box::new(message)));
    }

    /// A process sends a message to its node.
    pub(super) fn send_to_node(&mut self, from: WorkerId, message: Message) {
        self.after(LOCAL_NANOS, Event::FromClient(from, Box::new(message)));
    }

    pub(super) fn node_receives_client(&mut self, client: WorkerId, message: Message) {
        let now = self.now;
        let (Some(at), true) = (self.index_of(client.node()), self.processes.contains_key(&client)) else {
            return;
        };
        let node = &mut self.nodes[at];
        let Some(core) = &mut node.core else { return };
        self.events += 1;
        core.on_message(client, message, now, &mut node.out);
        self.list_node(at);
    }

    /// A node receives a message from another node.
    pub(super) fn node_receives_node(&mut self, at: usize, from: usize, mut message: Message) {
        let now = self.now;
        let (link, me) = (self.nodes[from].id, self.nodes[at].id);
        message.localise_from(WorkerId(link.0), me);
        let Message::Routed(Routed { from, to, message }) = message else { return };
        let node = &mut self.nodes[at];
        let Some(core) = &mut node.core else { return };
        self.events += 1;
        if let Err(wrong) = core.on_routed(link, from, to, *message, now, &mut node.out) {
            fail("I14", format!("{link:?} says to {to:?} what it may not: {wrong:?}"));
        }
        self.list_node(at);
    }

    /// A node receives a message from the head.
    pub(super) fn node_receives_head(&mut self, at: usize, message: Message) {
        let now = self.now;
        let node = &mut self.nodes[at];
        let Some(core) = &mut node.core else { return };
        self.events += 1;
        match message {
            Message::Registered(registered) => return self.on_registered(at, registered),
            Message::NodesChanged(changed) => {
                for row in &changed.rows {
                    core.on_node_known(row);
                    node.known.insert(row.node);
                }
            }
            Message::NodeDead(gone) => {
                node.known.remove(&gone.node);
                node.gone.insert(gone.node);
                core.on_node_dead(gone.node, &mut node.out);
                if let Some(other) = self.index_of(gone.node) {
                    self.end_session(at, other);
                }
            }
            Message::ResourceView(view) => core.on_view(&view),
            Message::Candidates(candidates) => core.on_candidates(&candidates),
            Message::Fenced(_) => {
                self.saw("a node was told that it is gone");
                return self.end_node(at, true);
            }
            Message::Refused(_) => return self.end_node(at, true),
            message if is_for_directory(message.kind()) => {
                let id = node.id;
                let word = ToNode::parse(message, id).unwrap_or_else(|wrong| {
                    fail("I14", format!("the head says nonsense to {id:?}: {wrong:?}"))
                });
                core.on_control(word, now, &mut node.out);
            }
            _ => {}
        }
        self.list_node(at);
    }

    fn on_registered(&mut self, at: usize, registered: Registered) {
        let now = self.now;
        let node = &mut self.nodes[at];
        let Some(core) = &mut node.core else { return };
        node.link = Link::Up;
        let is_first = node.rejoins.replace(registered.cluster).is_none();
        node.settings = Some(registered.settings);
        node.reporter.begin_anew();
        // The head did not know this node when these were sent; those that still matter are sent again now.
        node.out.retain(|action| !matches!(action, NodeAction::Control(_)));
        core.on_control_up(true, now, &mut node.out);
        registered.nodes.iter().for_each(|row| core.on_node_known(row));
        let before = std::mem::take(&mut node.known);
        node.known = registered.nodes.iter().map(|row| row.node).collect();
        let missing: Vec<NodeId> = before.difference(&node.known).copied().collect();
        node.known.extend(&missing);
        for node in missing {
            self.send(at, HEAD, Suspect { node, is_given_up: None }.into());
        }
        if is_first {
            self.after(0, Event::Beat(at));
            self.start_driver(at);
        }
        self.list_node(at);
    }

    /// A node ends. `is_told`: its machine is still there, and closes its connections.
    pub(super) fn end_node(&mut self, at: usize, is_told: bool) {
        if !self.nodes[at].runs() {
            return;
        }
        let (id, place) = (self.nodes[at].id, self.nodes[at].place);
        self.trace.send(|| format!("{:?}: {id:?} at {place} ends", self.now));
        let peers = self.peers_of(at);
        self.end_sessions_of(at);
        self.nodes[at].core = None;
        self.nodes[at].out.clear();
        self.nodes[at].known.clear();
        let its: Vec<WorkerId> =
            self.processes.keys().copied().filter(|worker| worker.node() == id).collect();
        for worker in its {
            self.processes.swap_remove(&worker);
            self.truth.forget(worker);
        }
        self.end_transfers_of(at, is_told);
        if is_told {
            let life = self.head_life;
            let latency = self.latency();
            self.after(latency, Event::HeadLoses(life, at));
            for peer in peers {
                let latency = self.latency();
                self.after(latency, Event::Suspect(peer, id));
            }
        }
        if place != 0 && !self.places[place].will_start {
            self.places[place].will_start = true;
            let pause = SECOND / 10 + self.about(2 * SECOND);
            self.after(pause, Event::Start(place));
        }
    }
}
