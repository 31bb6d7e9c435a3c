//! Performs the actions of the node's core.

use sooner_protocol::node::{NodeAction, NodeActions};
use sooner_store::NoBlock;
use sooner_wire::limits::{ALLOCATE_AHEAD_BYTES, ALLOCATE_AHEAD_MAX};
use sooner_wire::message::{Allocate, Allocated};
use sooner_wire::{BlockId, WorkerId};

use super::Service;
use crate::clock::now;
use crate::node::cluster::Cluster;

impl Service {
    /// A process creates a value.
    pub(super) fn allocate(&mut self, from: WorkerId, ask: &Allocate, out: &mut NodeActions) {
        let is_last = ask.is_last == Some(true);
        if self.creations.must_wait(ask) || !self.try_to_allocate(from, ask, is_last, out) {
            self.creations.push(from, ask.clone(), now());
        }
    }

    /// Answers with a block, or that there is none. False, without an answer, if room is on its way and the
    /// answer can wait.
    pub(super) fn try_to_allocate(
        &mut self,
        from: WorkerId,
        ask: &Allocate,
        is_over: bool,
        out: &mut NodeActions,
    ) -> bool {
        let Allocate { request, bytes, .. } = *ask;
        let allocated = self.arena.allocate(bytes);
        let is_reserving = allocated == Err(NoBlock::Reserving);
        let machine_left = match allocated {
            Err(NoBlock::Shortage(left)) => Some(left),
            Ok(_) | Err(NoBlock::NoGap | NoBlock::Reserving) => None,
        };
        let mut offset = allocated.ok();
        let mut moves = false;
        if offset.is_none() && !is_reserving {
            moves = self.make_room(bytes, None, out);
            offset = self.fall_back(bytes, moves, ask.is_last == Some(true));
        }
        if offset.is_none() && moves && !is_over {
            return false;
        }
        let block = offset.map(BlockId);
        let mut ahead = Vec::new();
        if let Some(block) = block {
            self.core.on_allocated(block, from);
            ahead = self.allocate_ahead(from, ask);
            self.spill_ahead(out);
        }
        let (used, capacity) = (self.arena.used(), self.arena.capacity());
        let holders = (ask.is_last == Some(true) && block.is_none()).then(|| self.largest_holders());
        let moves = moves.then_some(true);
        let is_reserving = is_reserving.then_some(true);
        let trouble = self.spilling.trouble().filter(|_| block.is_none()).map(str::to_owned);
        let answer = Allocated {
            request,
            block,
            used,
            capacity,
            moves,
            holders,
            machine_left,
            is_reserving,
            trouble,
            ahead: Some(ahead).filter(|ahead| !ahead.is_empty()),
        };
        out.push(NodeAction::Send(from, Box::new(answer.into())));
        true
    }

    /// Blocks that a process is about to need, as far as there is room. Requests that wait come first.
    fn allocate_ahead(&mut self, from: WorkerId, ask: &Allocate) -> Vec<BlockId> {
        let mut found = Vec::new();
        if self.creations.is_crowded(from, ask.request) {
            return found;
        }
        let mut left = ALLOCATE_AHEAD_BYTES;
        for bytes in ask.ahead.iter().flatten().take(ALLOCATE_AHEAD_MAX) {
            let Some(rest) = left.checked_sub(*bytes) else { break };
            let Ok(offset) = self.arena.allocate(*bytes) else { break };
            let block = BlockId(offset);
            left = rest;
            self.core.on_allocated(block, from);
            found.push(block);
        }
        found
    }

    pub(super) fn perform(&mut self, out: &mut NodeActions) {
        // Performing may fail a start, which may ask for another: until nothing is left to do.
        while !out.is_empty() {
            let mut more = NodeActions::new();
            for action in std::mem::take(out) {
                match action {
                    NodeAction::Send(to, mut message) => {
                        self.name_holders(&mut message);
                        self.send(to, &message, Vec::new());
                    }
                    NodeAction::Introduce(a, b) => self.introduce(a, b),
                    NodeAction::StartWorker(worker) => self.start_worker(worker, &mut more),
                    NodeAction::KillWorker(worker) => self.kill_worker(worker),
                    NodeAction::LimitMemory(worker, reserved) => self.limit_memory(worker, reserved),
                    NodeAction::FreeBlock(block) => self.free(block.offset()),
                    NodeAction::Warn(text) => self.warn(&text),
                    NodeAction::Control(word) => self.with_cluster(|cluster| cluster.tell(word)),
                    NodeAction::AllocateFor { object, bytes } => {
                        self.allocate_for(object, bytes, &mut more);
                    }
                    NodeAction::Fetch(fetching) => self.fetch(&fetching, &mut more),
                    NodeAction::Spill { spilled, block } => self.spill(spilled, block.offset(), &mut more),
                    NodeAction::DropSpilled(spilled) => self.drop_spilled(spilled),
                    NodeAction::StopFetching { attempt, .. } => self.stop_fetching(attempt),
                    NodeAction::Route { from, to, message } => {
                        self.with_cluster(|cluster| cluster.route(from, to, message));
                    }
                    NodeAction::FindNodes(find) => self.with_cluster(|cluster| cluster.find_nodes(*find)),
                    NodeAction::BeginJob(job, config) => self.begin_remote_job(job, *config),
                    NodeAction::JobLeaves(job) => self.on_remote_job_leaves(job),
                    NodeAction::GiveUp(node) => self.with_cluster(|cluster| cluster.give_up(node)),
                    NodeAction::Dial { client, to } => self.with_cluster(|cluster| cluster.dial(client, to)),
                }
            }
            *out = more;
        }
    }

    fn with_cluster(&mut self, act: impl FnOnce(&mut Cluster)) {
        if let Some(cluster) = &mut self.cluster {
            act(cluster);
        }
    }
}
