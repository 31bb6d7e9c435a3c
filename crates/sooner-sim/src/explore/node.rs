//! The node of an explored world: the production core, and the blocks of shared memory in use. The control
//! service is part of it, or linked with it by two queues, whose messages may have any delay.

use std::collections::VecDeque;

use sooner_protocol::control::{Directory, DirectoryAction, DirectoryActions};
use sooner_protocol::engine::Solo;
use sooner_protocol::node::uplink::Member;
use sooner_protocol::node::{NodeAction, NodeActions};
use sooner_protocol::scheduling::policy::NodeRow;
use sooner_protocol::time::Instant;
use sooner_protocol::uplink::{ToControl, ToNode};
use sooner_wire::message::Message;
use sooner_wire::strategy::Labels;
use sooner_wire::{BlockId, ResourceSet, Started};

use super::facts::{BLOCK_BYTES, Facts};
use super::machines::Setup;
use super::process::{LATER, NOW};
use super::program::{FIRST, index_of, worker};

/// The effects of a node's actions, in order.
#[derive(Debug)]
pub enum NodeEffect {
    /// A message to a process.
    Send(u8, Box<Message>),
    /// A process is to be forked.
    Start(u8),
    /// A process is to end.
    Kill(u8),
}

/// The core of a node, alone or with the control service behind a link.
#[derive(Debug)]
enum Core {
    Alone(Box<Solo>),
    Linked(Box<Linked>),
}

/// A node, the control service, and the messages between them.
#[derive(Debug)]
struct Linked {
    node: Member,
    head: Directory,
    to_head: VecDeque<ToControl>,
    to_node: VecDeque<ToNode>,
}

macro_rules! either {
    ($this:expr, $core:ident => $what:expr) => {
        match $this {
            Core::Alone($core) => $what,
            Core::Linked(linked) => {
                let $core = &mut linked.node;
                $what
            }
        }
    };
}

/// See the module.
#[derive(Debug)]
pub struct Node {
    core: Core,
    blocks: u64,
}

impl Node {
    /// The node of a setup; the driver is already connected.
    #[must_use]
    pub fn new(setup: &Setup) -> Self {
        let total = ResourceSet::from_amounts([("CPU".to_owned(), f64::from(setup.cpus))]);
        let mut core = if setup.is_linked {
            Core::Linked(Box::new(Linked::new(total, setup.pool_size)))
        } else {
            Core::Alone(Box::new(Solo::new(total, FIRST, setup.pool_size)))
        };
        let driver = either!(&mut core, core => core.new_worker_id());
        either!(&mut core, core => core.on_connected(driver, 1, NOW));
        let mut this = Self { core, blocks: 0 };
        if setup.is_linked {
            let mut effects = Vec::new();
            this.with(&mut effects, |core, out| {
                let Core::Linked(linked) = core else { return };
                linked.node.on_control_up(true, NOW, out);
                linked.node.on_job(driver, Box::default(), out);
            });
        }
        this
    }

    fn act(
        &mut self,
        now: Instant,
        effects: &mut Vec<NodeEffect>,
        work: impl FnOnce(&mut Core, &mut NodeActions),
    ) {
        self.with(effects, |core, out| {
            work(core, out);
            either!(core, core => core.after_events(now, out));
            either!(core, core => core.check());
        });
    }

    fn with(&mut self, effects: &mut Vec<NodeEffect>, work: impl FnOnce(&mut Core, &mut NodeActions)) {
        let mut out = NodeActions::new();
        work(&mut self.core, &mut out);
        for action in out {
            match action {
                NodeAction::Send(to, message) => effects.push(NodeEffect::Send(index_of(to), message)),
                NodeAction::StartWorker(worker) => effects.push(NodeEffect::Start(index_of(worker))),
                NodeAction::KillWorker(worker) => effects.push(NodeEffect::Kill(index_of(worker))),
                NodeAction::FreeBlock(block) => {
                    let offset = block.offset();
                    let block = 1 << (offset / BLOCK_BYTES);
                    assert!(self.blocks & block != 0, "I5: block {} is freed twice", offset / BLOCK_BYTES);
                    self.blocks &= !block;
                }
                NodeAction::Introduce(_, _) | NodeAction::Warn(_) | NodeAction::LimitMemory(..) => {}
                NodeAction::Control(word) => match &mut self.core {
                    Core::Alone(_) => unreachable!("both cores are in this node"),
                    Core::Linked(linked) => linked.to_head.push_back(word),
                },
                NodeAction::AllocateFor { .. }
                | NodeAction::Fetch(_)
                | NodeAction::StopFetching { .. }
                | NodeAction::Spill { .. }
                | NodeAction::DropSpilled(_)
                | NodeAction::BeginJob(..)
                | NodeAction::FindNodes(_)
                | NodeAction::JobLeaves(_)
                | NodeAction::Dial { .. }
                | NodeAction::GiveUp(_)
                | NodeAction::Route { .. } => unreachable!("there is one node"),
            }
        }
    }

    /// The control service receives the first message on its way there.
    pub fn head_receives(&mut self) {
        if let Core::Linked(linked) = &mut self.core {
            linked.head_receives();
        }
    }

    /// The node receives the first message of the control service.
    pub fn receives_head(&mut self, effects: &mut Vec<NodeEffect>) {
        self.act(NOW, effects, |core, out| {
            let Core::Linked(linked) = core else { return };
            if let Some(word) = linked.to_node.pop_front() {
                linked.node.on_control(word, NOW, out);
            }
        });
    }

    /// The node receives a message.
    pub fn deliver(&mut self, from: u8, message: Message, effects: &mut Vec<NodeEffect>) {
        self.act(NOW, effects, |core, out| {
            either!(core, core => core.on_message(worker(from), message, NOW, out));
        });
    }

    /// A forked process connects.
    pub fn connect(&mut self, index: u8, effects: &mut Vec<NodeEffect>) {
        self.act(NOW, effects, |core, _| {
            either!(core, core => core.on_connected(worker(index), 2, NOW));
        });
    }

    /// The node notices the end of a process.
    pub fn gone(&mut self, index: u8, last_started: Option<Started>, effects: &mut Vec<NodeEffect>) {
        self.act(NOW, effects, |core, out| {
            either!(core, core => core.on_dead(worker(index), "was killed", last_started, out));
        });
    }

    /// A block was allocated for a process.
    pub fn allocate(&mut self, block: u64, index: u8, effects: &mut Vec<NodeEffect>) {
        self.blocks |= 1 << block;
        self.act(NOW, effects, |core, _| {
            either!(core, core => core.on_allocated(BlockId(block * BLOCK_BYTES), worker(index)));
        });
    }

    /// A block loses its content.
    pub fn lose(&mut self, block: u64, effects: &mut Vec<NodeEffect>) {
        self.act(NOW, effects, |core, out| {
            either!(core, core => core.lose_blocks(&[BlockId(block * BLOCK_BYTES)], out));
        });
    }

    /// The deadline comes for which the core waits.
    pub fn fire_timer(&mut self, effects: &mut Vec<NodeEffect>) {
        self.act(LATER, effects, |core, _| {
            if let Core::Linked(linked) = core {
                linked.after_events_of_head(LATER);
            }
        });
    }

    /// The facts that the rest of the world needs.
    #[must_use]
    pub fn facts(&self) -> Facts {
        let (is_quiet, holders, deadline, words) = match &self.core {
            Core::Alone(core) => (core.is_quiet(), core.holders(), core.next_deadline(), [false; 2]),
            Core::Linked(linked) => {
                let Linked { node, head, to_head, to_node } = &**linked;
                let deadline = node.next_deadline().or_else(|| head.next_deadline());
                (node.is_quiet(), node.holders(), deadline, [!to_head.is_empty(), !to_node.is_empty()])
            }
        };
        let leftover = [
            (!is_quiet, "leases, placements or resources at the node"),
            (!holders.is_empty() || self.blocks != 0, "blocks with a holder at the node"),
        ];
        Facts {
            can_fire: deadline.is_some(),
            is_idle: true,
            leftover: leftover.iter().find(|(is_left, _)| *is_left).map(|(_, what)| *what),
            blocks: self.blocks,
            words,
            ..Facts::default()
        }
    }
}

impl Linked {
    fn new(total: ResourceSet, pool_size: usize) -> Self {
        let mut head = Directory::default();
        let node = Member::new(total.clone(), FIRST, pool_size);
        head.on_node_joined(NodeRow { node: node.id(), free: total.clone(), total, labels: Labels::new() });
        Self { node, head, to_head: VecDeque::new(), to_node: VecDeque::new() }
    }

    fn head_receives(&mut self) {
        let Some(word) = self.to_head.pop_front() else { return };
        let mut out = DirectoryActions::new();
        self.head.on_node(self.node.id(), word, NOW, &mut out);
        self.take(out);
        self.after_events_of_head(NOW);
    }

    fn after_events_of_head(&mut self, now: Instant) {
        let mut out = DirectoryActions::new();
        self.head.after_events(now, &mut out);
        self.take(out);
    }

    fn take(&mut self, out: DirectoryActions) {
        for action in out {
            match action {
                DirectoryAction::Send(_, word) => self.to_node.push_back(*word),
                DirectoryAction::Warn(_) => {}
                DirectoryAction::Persist(..) => unreachable!("it keeps no records"),
            }
        }
    }
}
