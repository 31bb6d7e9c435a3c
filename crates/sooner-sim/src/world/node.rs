//! Nodes: their memory, when they place tasks, and how their cores' actions are performed.

use sooner_protocol::engine::{Engine, Part};
use sooner_protocol::node::objects::Stuck;
use sooner_protocol::node::uplink::reporter::Reporter;
use sooner_protocol::node::{NodeAction, NodeActions, Room};
use sooner_protocol::time::Instant;
use sooner_protocol::uplink::ToControl;
use sooner_wire::message::{Message, PeerConnected};
use sooner_wire::{BlockId, NodeId, ResourceSet};

use super::between::Fetch;
use super::processes::{id_of, node_at, node_number, number_of};
use super::spilling::Disk;
use super::{Blocks, Item, Next, Wake, World};
use crate::plan::{Fault, Plan};
use crate::random::Random;

/// A node of the world.
pub struct SimNode {
    /// The number that stands for the node among process numbers.
    pub number: u32,
    /// The production core.
    pub core: Engine,
    /// Its shared memory.
    pub blocks: Blocks,
    /// Its disk.
    pub disk: Disk,
    /// Whether values may be written to a file behind the node's memory.
    pub(super) has_file: bool,
    /// Decides when values go to that file.
    pub stuck: Stuck,
    /// Actions of the core, performed at the node's next turn.
    pub(super) out: NodeActions,
    /// Bytes on their way to this node.
    pub(super) fetches: Vec<Fetch>,
    pub(super) fetches_made: u64,
    /// The node is connected with the control service.
    pub(super) is_linked: bool,
    /// Decides when the node reports its free resources.
    pub(super) reporter: Reporter,
    /// Until this time no process can be started on the node.
    pub(super) lacks_until: Option<Instant>,
    is_listed: bool,
    wakes_at: u64,
}

/// Whether a node has a disk: a single node always, one of several in three of four cases. A generator of its
/// own decides it, so that the rest of the run stays the same.
fn spills(at: usize, plan: &Plan) -> bool {
    let mut random = Random::new(plan.seed ^ 0x5eed_0000_0000_0004 ^ at as u64);
    plan.nodes == 1 || random.chance(3, 4)
}

/// Whether a node without room drops values that tasks can make again: one node in three, with a disk or
/// without. A generator of its own decides it, too.
pub(super) fn recomputes(at: usize, plan: &Plan) -> bool {
    plan.breaks(Fault::Full) && Random::new(plan.seed ^ 0x5eed_0000_0000_0005 ^ at as u64).chance(1, 3)
}

/// Why a node's core must be a `Member`.
pub(super) const SEVERAL: &str = "there are several nodes";

impl SimNode {
    /// One of the nodes.
    pub(super) fn new(at: usize, plan: &Plan) -> Self {
        let number = node_number(at);
        let cpus = ResourceSet::from_amounts([("CPU".to_owned(), f64::from(plan.cpus))]);
        let part = if plan.nodes == 1 { Part::Alone } else { Part::Member };
        let mut core = Engine::new(cpus, id_of(number).0, plan.pool, part);
        if spills(at, plan) {
            core.set_spills();
        }
        if recomputes(at, plan) {
            core.set_recomputes();
        }
        Self {
            number,
            core,
            blocks: Blocks::default(),
            disk: Disk::default(),
            has_file: spills(at, plan),
            stuck: Stuck::default(),
            out: NodeActions::new(),
            fetches: Vec::new(),
            fetches_made: 0,
            is_linked: false,
            reporter: Reporter::default(),
            lacks_until: None,
            is_listed: false,
            wakes_at: 0,
        }
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> NodeId {
        id_of(self.number).node()
    }
}

impl World {
    /// The node of a process, or the node that a number stands for.
    #[must_use]
    pub fn node(&self, number: u32) -> &SimNode {
        &self.nodes[node_at(number)]
    }

    /// The same, to change it.
    pub fn node_mut(&mut self, number: u32) -> &mut SimNode {
        &mut self.nodes[node_at(number)]
    }

    /// Lists the node of this process for a turn: it may have something to place.
    pub(super) fn list_node(&mut self, number: u32) {
        self.list_node_at(node_at(number));
    }

    pub(super) fn list_node_at(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if !node.is_listed {
            node.is_listed = true;
            self.next.push(Next::Node(at));
        }
    }

    /// A node takes its turn.
    pub(super) fn take_turn_of_node(&mut self, at: usize) {
        self.nodes[at].is_listed = false;
        self.after_events_of_node(at);
    }

    /// The time that the node waited for has come.
    pub(super) fn wake_node(&mut self, at: usize) {
        self.nodes[at].wakes_at = 0;
        self.after_events_of_node(at);
    }

    pub(super) fn after_events_of_node(&mut self, at: usize) {
        let now = self.now();
        self.events += 1;
        let mut out = std::mem::take(&mut self.nodes[at].out);
        self.nodes[at].core.after_events(now, &mut out);
        for action in out.drain(..) {
            self.perform_for_node(at, action);
        }
        if self.nodes[at].is_linked {
            self.report_to_head(at);
        }
        let node = &mut self.nodes[at];
        // Performing the actions may have led to more.
        out.append(&mut node.out);
        node.out = out;
        // An earlier deadline does not wait for the wake-up that is set. The later one then wakes the node
        // once too often.
        let reports_at = node.reporter.next_deadline().filter(|_| node.is_linked);
        if let Some(due) = node.core.next_deadline().into_iter().chain(reports_at).min()
            && (node.wakes_at == 0 || due.0 < node.wakes_at)
        {
            node.wakes_at = due.0;
            self.wake_in(due.since(now) + 1, Wake::Node(at));
        }
    }

    fn perform_for_node(&mut self, at: usize, action: NodeAction) {
        match action {
            NodeAction::Send(to, message) => {
                let to = number_of(to);
                if let Message::Push(constructor) = &*message {
                    self.record_placed(to, constructor.spec.task);
                }
                self.send_from_node(to, Item::Message(message));
            }
            NodeAction::Introduce(one, other) => {
                for (to, worker) in [(one, other), (other, one)] {
                    let message = PeerConnected::pair(worker).into();
                    self.send_from_node(number_of(to), Item::Message(Box::new(message)));
                }
            }
            NodeAction::StartWorker(worker) => {
                let number = self.processes.add(worker, false);
                let slow = self.has_faults() && self.plan.breaks(Fault::SlowStart);
                let nanos = if slow { 200_000_000 } else { 3_000_000 };
                let nanos = 1 + self.random.below(nanos) as u64;
                self.wake_in(nanos, Wake::Start(number));
            }
            NodeAction::KillWorker(worker) => {
                let number = number_of(worker);
                if self.process(number).is_running() {
                    self.process_mut(number).is_doomed = true;
                    let nanos = self.random.below(100_000) as u64;
                    self.wake_in(nanos, Wake::Kill(number));
                }
            }
            NodeAction::LimitMemory(..) => {}
            NodeAction::FreeBlock(block) => self.free_block(at, block.offset()),
            NodeAction::Warn(_) => {}
            NodeAction::GiveUp(_) => unreachable!("links of this world do not end"),
            NodeAction::Control(word) => {
                if let ToControl::ActorPlaced { actor, worker, .. } = &word {
                    self.record_placed(number_of(*worker), *actor);
                }
                self.send_to_head(at, word);
            }
            NodeAction::AllocateFor { object, .. } => self.allocate_for(at, object),
            NodeAction::Fetch(fetching) => self.fetch(at, fetching),
            NodeAction::Spill { spilled, block } => self.spill(at, spilled, block.offset()),
            NodeAction::DropSpilled(spilled) => self.drop_spilled(at, spilled),
            NodeAction::StopFetching { object, attempt } => self.stop_fetching(at, object, attempt),
            NodeAction::Route { from, to, message } => self.route(at, from, to, message),
            // Workers of this world need nothing from their driver's job.
            NodeAction::BeginJob(..) | NodeAction::FindNodes(_) | NodeAction::JobLeaves(_) => {}
            NodeAction::Dial { client, to } => self.dial_for(at, client, to),
        }
    }

    /// Sends a message from a process's node to the process, if the process is running.
    pub(super) fn send_from_node(&mut self, to: u32, item: Item) {
        if self.process(to).is_running() {
            self.send(super::processes::node_of(to), to, item);
        }
    }

    /// A node without room asks the processes on it to give up `blocks` blocks.
    pub fn relieve(&mut self, at: usize, blocks: u64) {
        self.events += 1;
        let SimNode { core, out, .. } = &mut self.nodes[at];
        core.relieve(Room::of(blocks), Blocks::length_in_memory, out);
        self.list_node_at(at);
    }

    /// The contents of blocks of a node are lost.
    pub fn lose(&mut self, at: usize, blocks: &[u64]) {
        self.events += 1;
        let SimNode { core, out, .. } = &mut self.nodes[at];
        let blocks: Vec<BlockId> = blocks.iter().copied().map(BlockId).collect();
        core.lose_blocks(&blocks, out);
        self.list_node_at(at);
    }
}
