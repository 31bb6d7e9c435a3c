//! Nodes: their memory, when they place, and what they want.

use weft_protocol::node::{NodeAction, NodeActions};
use weft_protocol::solo::Solo;
use weft_wire::ResourceSet;
use weft_wire::message::{Message, PeerConnected};

use super::processes::{id_of, node_at, number_of};
use super::{Blocks, Item, Next, Wake, World};
use crate::plan::Fault;

/// The core of a node, whatever it is made of.
pub type Core = Solo;

/// A node of the world.
pub struct SimNode {
    /// The production core.
    pub core: Core,
    /// Its shared memory.
    pub blocks: Blocks,
    /// What it wants done at its next turn.
    pub(super) out: NodeActions,
    is_listed: bool,
    wakes_at: u64,
}

impl SimNode {
    /// The node that a number stands for.
    pub(super) fn new(number: u32, cpus: u32, pool: usize) -> Self {
        let cpus = ResourceSet::from_amounts([("CPU".to_owned(), f64::from(cpus))]);
        let core = Core::new(cpus, id_of(number).0, pool);
        Self { core, blocks: Blocks::default(), out: NodeActions::new(), is_listed: false, wakes_at: 0 }
    }
}

impl World {
    /// The node of a process, or the node that a number stands for.
    #[must_use]
    pub fn node(&self, number: u32) -> &SimNode {
        &self.nodes[node_at(number)]
    }

    /// ... to change it.
    pub fn node_mut(&mut self, number: u32) -> &mut SimNode {
        &mut self.nodes[node_at(number)]
    }

    /// The node of this process has something to place.
    pub(super) fn list_node(&mut self, number: u32) {
        let node = self.node_mut(number);
        if !node.is_listed {
            node.is_listed = true;
            self.next.push(Next::Node(node_at(number)));
        }
    }

    /// A node takes its turn.
    pub(super) fn take_turn_of_node(&mut self, at: usize) {
        self.nodes[at].is_listed = false;
        self.settle_node(at);
    }

    /// The time has come that a node waited for.
    pub(super) fn wake_node(&mut self, at: usize) {
        self.nodes[at].wakes_at = 0;
        self.settle_node(at);
    }

    pub(super) fn settle_node(&mut self, at: usize) {
        let now = self.now();
        self.events += 1;
        let mut out = std::mem::take(&mut self.nodes[at].out);
        self.nodes[at].core.settle(now, &mut out);
        for action in out.drain(..) {
            self.perform_for_node(at, action);
        }
        let node = &mut self.nodes[at];
        node.out = out;
        if node.wakes_at == 0
            && let Some(due) = node.core.next_deadline()
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
                    self.note_placed(to, constructor.spec.task);
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
                let number = self.processes.add(worker);
                let slow = self.has_faults() && self.plan.breaks(Fault::SlowStart);
                let nanos = if slow { 200_000_000 } else { 3_000_000 };
                let nanos = 1 + self.random.below(nanos) as u64;
                self.wake_in(nanos, Wake::Start(number));
            }
            NodeAction::KillWorker(worker) => {
                let number = number_of(worker);
                if self.process(number).is_running() {
                    let nanos = self.random.below(100_000) as u64;
                    self.wake_in(nanos, Wake::Kill(number));
                }
            }
            NodeAction::FreeBlock(block) => self.free_block(at, block),
            NodeAction::Warn(_) => {}
            NodeAction::Control(_) | NodeAction::BeginJob(..) | NodeAction::JobLeaves(_) => {
                unreachable!("both cores are in this node")
            }
            NodeAction::AllocateFor { .. }
            | NodeAction::Fetch(_)
            | NodeAction::StopFetching { .. }
            | NodeAction::Route { .. }
            | NodeAction::Dial { .. } => unreachable!("there is one node"),
        }
    }

    /// The node of a process says something to it, if it is there to hear it.
    pub(super) fn send_from_node(&mut self, to: u32, item: Item) {
        if self.process(to).is_running() {
            self.send(super::processes::node_of(to), to, item);
        }
    }

    /// The contents of blocks of a node are lost.
    pub fn lose(&mut self, number: u32, blocks: &[u64]) {
        self.events += 1;
        let SimNode { core, out, .. } = self.node_mut(number);
        core.lose_blocks(blocks, out);
        self.list_node(number);
    }
}
