//! The node of an explored world: the production core, and which blocks of shared memory are in use.

use weft_protocol::node::{NodeAction, NodeActions};
use weft_protocol::solo::Solo;
use weft_protocol::time::Instant;
use weft_wire::message::Message;
use weft_wire::{ResourceSet, TaskId};

use super::facts::{BLOCK_BYTES, Facts};
use super::process::{LATER, NOW};
use super::program::{FIRST, index_of, worker};

/// What the node asks of its surroundings, in order.
#[derive(Debug)]
pub enum NodeEffect {
    /// A message to a process.
    Send(u8, Box<Message>),
    /// A process is to be forked.
    Start(u8),
    /// A process is to end.
    Kill(u8),
}

/// See the module.
#[derive(Debug)]
pub struct Node {
    core: Solo,
    blocks: u64,
}

impl Node {
    /// A node with so many CPUs and idle workers kept; the driver is connected.
    #[must_use]
    pub fn new(cpus: u32, pool_size: usize) -> Self {
        let total = ResourceSet::from_amounts([("CPU".to_owned(), f64::from(cpus))]);
        let mut core = Solo::new(total, FIRST, pool_size);
        let driver = core.new_worker_id();
        core.on_connected(driver, 1, NOW);
        Self { core, blocks: 0 }
    }

    fn act(
        &mut self,
        now: Instant,
        effects: &mut Vec<NodeEffect>,
        work: impl FnOnce(&mut Solo, &mut NodeActions),
    ) {
        let mut out = NodeActions::new();
        work(&mut self.core, &mut out);
        self.core.settle(now, &mut out);
        self.core.check();
        for action in out {
            match action {
                NodeAction::Send(to, message) => effects.push(NodeEffect::Send(index_of(to), message)),
                NodeAction::StartWorker(worker) => effects.push(NodeEffect::Start(index_of(worker))),
                NodeAction::KillWorker(worker) => effects.push(NodeEffect::Kill(index_of(worker))),
                NodeAction::FreeBlock(offset) => {
                    let block = 1 << (offset / BLOCK_BYTES);
                    assert!(self.blocks & block != 0, "I5: block {} is freed twice", offset / BLOCK_BYTES);
                    self.blocks &= !block;
                }
                NodeAction::Introduce(_, _) | NodeAction::Warn(_) => {}
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
    }

    /// A message came.
    pub fn deliver(&mut self, from: u8, message: Message, effects: &mut Vec<NodeEffect>) {
        self.act(NOW, effects, |core, out| {
            core.on_message(worker(from), message, NOW, out);
        });
    }

    /// A process that was forked is there.
    pub fn connect(&mut self, index: u8, effects: &mut Vec<NodeEffect>) {
        self.act(NOW, effects, |core, _| core.on_connected(worker(index), 2, NOW));
    }

    /// The end of a process is noticed.
    pub fn gone(&mut self, index: u8, last_started: Option<TaskId>, effects: &mut Vec<NodeEffect>) {
        self.act(NOW, effects, |core, out| core.on_gone(worker(index), "was killed", last_started, out));
    }

    /// A block was allocated for a process.
    pub fn allocate(&mut self, block: u64, index: u8, effects: &mut Vec<NodeEffect>) {
        self.blocks |= 1 << block;
        self.act(NOW, effects, |core, _| core.on_allocated(block * BLOCK_BYTES, worker(index)));
    }

    /// What lies in a block is lost.
    pub fn lose(&mut self, block: u64, effects: &mut Vec<NodeEffect>) {
        self.act(NOW, effects, |core, out| core.lose_blocks(&[block * BLOCK_BYTES], out));
    }

    /// The time has come that the core waits for.
    pub fn fire_timer(&mut self, effects: &mut Vec<NodeEffect>) {
        self.act(LATER, effects, |_, _| ());
    }

    /// What the rest of the world needs to know.
    #[must_use]
    pub fn facts(&self) -> Facts {
        let leftover = [
            (!self.core.is_quiet(), "leases, placements or resources at the node"),
            (!self.core.holders().is_empty() || self.blocks != 0, "blocks with a holder at the node"),
        ];
        Facts {
            can_fire: self.core.next_deadline().is_some(),
            is_idle: true,
            leftover: leftover.iter().find(|(is_left, _)| *is_left).map(|(_, what)| *what),
            blocks: self.blocks,
            ..Facts::default()
        }
    }
}
