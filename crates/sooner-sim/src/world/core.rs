//! The core of a node: with the control service in it where there is one node, as production has it, or without.

use sooner_protocol::member::Member;
use sooner_protocol::node::NodeActions;
use sooner_protocol::objects::{Holders, StreamEnd};
use sooner_protocol::solo::Solo;
use sooner_protocol::time::Instant;
use sooner_wire::message::Message;
use sooner_wire::message::state::NodeReport;
use sooner_wire::{ObjectId, ResourceSet, Started, WorkerId};

use super::Blocks;

/// See the module.
pub enum Core {
    /// All there is.
    Alone(Box<Solo>),
    /// One of several.
    Member(Box<Member>),
}

macro_rules! either {
    ($this:expr, $core:ident => $what:expr) => {
        match $this {
            Core::Alone($core) => $what,
            Core::Member($core) => $what,
        }
    };
}

impl Core {
    /// A node with these resources, alone or not, with a disk or not, which drops what tasks can make again or not.
    pub(super) fn new(
        total: ResourceSet,
        first_worker: u64,
        pool: usize,
        is_alone: bool,
        spills: bool,
        recomputes: bool,
    ) -> Self {
        let mut core = if is_alone {
            Self::Alone(Box::new(Solo::new(total, first_worker, pool)))
        } else {
            let mut member = Member::new(total, first_worker, pool);
            member.ask_owners();
            Self::Member(Box::new(member))
        };
        if spills {
            either!(&mut core, core => core.set_spills());
        }
        if recomputes {
            either!(&mut core, core => core.set_recomputes());
        }
        core
    }

    pub(super) fn on_block(&mut self, object: ObjectId, block: u64, out: &mut NodeActions) {
        either!(self, core => core.on_block(object, block, out));
    }

    pub(super) fn on_bytes(&mut self, object: ObjectId, attempt: u64, bytes: u64, out: &mut NodeActions) {
        either!(self, core => core.on_bytes(object, attempt, bytes, out));
    }

    pub(super) fn on_stream_end(
        &mut self,
        object: ObjectId,
        attempt: u64,
        end: StreamEnd,
        out: &mut NodeActions,
    ) {
        either!(self, core => core.on_stream_end(object, attempt, end, out));
    }

    pub(super) fn relieve(&mut self, blocks: u64, out: &mut NodeActions) -> bool {
        either!(self, core => core.relieve(blocks, Blocks::length_in_memory, out))
    }

    pub(super) fn spill_ahead(&mut self, bytes: u64, out: &mut NodeActions) {
        either!(self, core => core.spill_ahead(bytes, Blocks::length_in_memory, out));
    }

    pub(super) fn give_way(&mut self, object: ObjectId, out: &mut NodeActions) -> bool {
        either!(self, core => core.give_way(Some(object), Blocks::length_in_memory, out))
    }

    pub(super) fn on_no_block(&mut self, object: ObjectId, moves: bool, now: Instant, out: &mut NodeActions) {
        either!(self, core => core.on_no_block(object, u64::MAX, moves, now, out));
    }

    pub(super) fn on_spilled(&mut self, spilled: u64, is_written: bool, out: &mut NodeActions) {
        either!(self, core => core.on_spilled(spilled, is_written, out));
    }

    /// Values on disk, or on their way there.
    #[must_use]
    pub fn spilled(&self) -> usize {
        either!(self, core => core.spilled())
    }

    /// The core of one of several nodes.
    pub(super) fn member(&mut self) -> &mut Member {
        match self {
            Self::Alone(_) => unreachable!("there is one node"),
            Self::Member(member) => member,
        }
    }

    pub(super) fn new_worker_id(&mut self) -> WorkerId {
        either!(self, core => core.new_worker_id())
    }

    pub(super) fn on_connected(&mut self, client: WorkerId, pid: u32, now: Instant) {
        either!(self, core => core.on_connected(client, pid, now));
    }

    pub(super) fn on_start_failed(&mut self, worker: WorkerId, error: &str, out: &mut NodeActions) {
        either!(self, core => core.on_start_failed(worker, error, out));
    }

    pub(super) fn on_gone(
        &mut self,
        client: WorkerId,
        reason: &str,
        last: Option<Started>,
        out: &mut NodeActions,
    ) {
        either!(self, core => core.on_gone(client, reason, last, out));
    }

    pub(super) fn on_message(
        &mut self,
        from: WorkerId,
        message: Message,
        now: Instant,
        out: &mut NodeActions,
    ) {
        either!(self, core => core.on_message(from, message, now, out));
    }

    /// A block was allocated for a client.
    pub fn on_allocated(&mut self, block: u64, client: WorkerId) {
        either!(self, core => core.on_allocated(block, client));
    }

    pub(super) fn lose_blocks(&mut self, blocks: &[u64], out: &mut NodeActions) {
        either!(self, core => core.lose_blocks(blocks, out));
    }

    pub(super) fn settle(&mut self, now: Instant, out: &mut NodeActions) {
        either!(self, core => core.settle(now, out));
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        either!(self, core => core.next_deadline())
    }

    /// The holders of blocks.
    #[must_use]
    pub fn holders(&self) -> &Holders {
        either!(self, core => core.holders())
    }

    /// What it knows.
    #[must_use]
    pub fn report(&self) -> NodeReport {
        either!(self, core => core.report())
    }

    /// Asserts its invariants.
    pub fn check(&self) {
        either!(self, core => core.check());
    }

    /// Whether nothing is leased, placed or waiting.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        either!(self, core => core.is_quiet())
    }
}
