//! The core that a node's loop carries: of a session on one machine, or of a node in a cluster.
//!
//! The loop asks both for the same and does what they want; it does not ask which of the two it has. Nothing is decided here.

use sooner_protocol::control::reporting::Spare;
use sooner_protocol::member::Member;
use sooner_protocol::node::memory::{Limited, Measured, Running, Stopped, Usage};
use sooner_protocol::node::{NodeActions, ServedCopy, ServedSpill};
use sooner_protocol::objects::{Serves, StreamEnd};
use sooner_protocol::solo::Solo;
use sooner_protocol::table::Set;
use sooner_protocol::time::Instant;
use sooner_wire::message::Message;
use sooner_wire::message::state::{MemoryRow, NodeReport};
use sooner_wire::strategy::Labels;
use sooner_wire::{ObjectId, ResourceSet, Started, WorkerId};

/// See the module.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one to a node, and each message of a session goes through it"
)]
pub(super) enum Engine {
    /// There is no other node, and no control service but the one in it.
    Alone(Solo),
    /// The control service is that of a cluster.
    Member(Box<Member>),
}

/// Asks the core that is there.
macro_rules! ask {
    ($engine:expr, $core:ident => $question:expr) => {
        match $engine {
            Engine::Alone($core) => $question,
            Engine::Member($core) => $question,
        }
    };
}

/// What a node is to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// It is the only one.
    Alone,
    /// One of a cluster.
    Member,
    /// One of a cluster, on which nothing runs: that of a program.
    Program,
}

impl Engine {
    /// A core with these resources and labels. Ids of its processes count up from `first_worker`; `pool_size` idle workers
    /// are kept, and what is on its way into a store of so many bytes is bounded by that.
    pub(super) fn new(
        total: ResourceSet,
        first_worker: u64,
        pool_size: usize,
        store_bytes: u64,
        labels: Labels,
        part: Part,
    ) -> Self {
        let member = |total| {
            let mut member = Member::new(total, first_worker, pool_size);
            member.ask_owners();
            member
        };
        let mut engine = match part {
            Part::Alone => Engine::Alone(Solo::new(total, first_worker, pool_size)),
            Part::Member => Engine::Member(Box::new(member(total))),
            Part::Program => Engine::Member(Box::new(member(total).of_program())),
        };
        ask!(&mut engine, core => {
            core.set_store_bytes(store_bytes);
            core.set_labels(labels);
        });
        engine
    }

    /// The core of a node in a cluster.
    pub(super) fn member(&mut self) -> Option<&mut Member> {
        match self {
            Engine::Alone(_) => None,
            Engine::Member(member) => Some(member),
        }
    }

    pub(super) fn new_worker_id(&mut self) -> WorkerId {
        ask!(self, core => core.new_worker_id())
    }

    pub(super) fn on_allocated(&mut self, block: u64, client: WorkerId) {
        ask!(self, core => core.on_allocated(block, client));
    }

    pub(super) fn largest_holders(
        &self,
        most: usize,
        length: impl Fn(u64) -> u64,
    ) -> Vec<(WorkerId, u64, u64)> {
        ask!(self, core => core.largest_holders(most, length))
    }

    pub(super) fn memory_use(&self, length_of: impl Fn(u64) -> u64) -> MemoryRow {
        ask!(self, core => core.memory_use(length_of))
    }

    pub(super) fn on_connected(&mut self, client: WorkerId, pid: u32, now: Instant) {
        ask!(self, core => core.on_connected(client, pid, now));
    }

    pub(super) fn on_start_failed(&mut self, worker: WorkerId, error: &str, out: &mut NodeActions) {
        ask!(self, core => core.on_start_failed(worker, error, out));
    }

    pub(super) fn on_gone(
        &mut self,
        client: WorkerId,
        reason: &str,
        last_started: Option<Started>,
        out: &mut NodeActions,
    ) {
        ask!(self, core => core.on_gone(client, reason, last_started, out));
    }

    pub(super) fn is_busy(&self) -> bool {
        ask!(self, core => core.is_busy())
    }

    pub(super) fn on_measured(&mut self, measured: &[Measured], now: Instant) {
        ask!(self, core => core.on_measured(measured, now));
    }

    pub(super) fn stop_for_memory(
        &mut self,
        usage: &Usage,
        measured: &[Measured],
        out: &mut NodeActions,
    ) -> Option<Stopped> {
        ask!(self, core => core.stop_for_memory(usage, measured, out))
    }

    pub(super) fn on_ended_by_kernel(
        &mut self,
        worker: WorkerId,
        running: Option<Running>,
        left: &Usage,
        others: &[Measured],
    ) -> Option<Stopped> {
        ask!(self, core => core.on_ended_by_kernel(worker, running, left, others))
    }

    pub(super) fn on_ended_at_limit(
        &mut self,
        worker: WorkerId,
        running: Option<Running>,
        limit: u64,
        usage: &Usage,
        others: &[Measured],
    ) -> Option<Stopped> {
        ask!(self, core => core.on_ended_at_limit(worker, running, limit, usage, others))
    }

    pub(super) fn job_of(&self, process: WorkerId) -> WorkerId {
        ask!(self, core => core.job_of(process))
    }

    pub(super) fn is_over(&self, job: WorkerId) -> bool {
        ask!(self, core => core.is_over(job))
    }

    pub(super) fn forget_job(&mut self, job: WorkerId) {
        ask!(self, core => core.forget_job(job));
    }

    pub(super) fn outliving(&self, job: WorkerId) -> Set<WorkerId> {
        ask!(self, core => core.outliving(job))
    }

    pub(super) fn on_leaving(&mut self, driver: WorkerId, out: &mut NodeActions) {
        ask!(self, core => core.on_leaving(driver, out));
    }

    pub(super) fn drain(&mut self) {
        ask!(self, core => core.drain());
    }

    pub(super) fn has_ended_tasks(&self) -> bool {
        ask!(self, core => core.has_ended_tasks())
    }

    pub(super) fn is_drained(&self) -> bool {
        ask!(self, core => core.is_drained())
    }

    /// What the core does not handle comes back: a block is to be allocated.
    pub(super) fn on_message(
        &mut self,
        from: WorkerId,
        message: Message,
        now: Instant,
        out: &mut NodeActions,
    ) -> Option<Message> {
        ask!(self, core => core.on_message(from, message, now, out))
    }

    pub(super) fn on_block(&mut self, object: ObjectId, block: u64, out: &mut NodeActions) {
        ask!(self, core => core.on_block(object, block, out));
    }

    pub(super) fn on_no_block(
        &mut self,
        object: ObjectId,
        capacity: u64,
        moves: bool,
        now: Instant,
        out: &mut NodeActions,
    ) {
        ask!(self, core => core.on_no_block(object, capacity, moves, now, out));
    }

    /// There is somewhere to put values for which there is no room.
    pub(super) fn set_spills(&mut self) {
        ask!(self, core => core.set_spills());
    }

    /// The memory of single workers can be limited.
    pub(super) fn set_memory_limits(&mut self, limited: Limited) {
        ask!(self, core => core.set_memory_limits(limited));
    }

    /// Values that tasks can make again are dropped rather than written.
    pub(super) fn set_recomputes(&mut self) {
        ask!(self, core => core.set_recomputes());
    }

    pub(super) fn on_spilled(&mut self, spilled: u64, is_written: bool, out: &mut NodeActions) {
        ask!(self, core => core.on_spilled(spilled, is_written, out));
    }

    /// Only nodes of a cluster are asked for values on disk.
    pub(super) fn begin_serving_spilled(&mut self, spilled: u64, object: ObjectId) -> ServedSpill {
        match self {
            Engine::Alone(_) => ServedSpill::No,
            Engine::Member(core) => core.begin_serving_spilled(spilled, object),
        }
    }

    /// Nothing can be written or read back any more.
    pub(super) fn on_spilling_ended(&mut self, out: &mut NodeActions) {
        ask!(self, core => core.on_spilling_ended(out));
    }

    /// A block is free that the disk was still at when the core had it freed.
    pub(super) fn on_room(&mut self, out: &mut NodeActions) {
        ask!(self, core => core.on_room(out));
    }

    /// See [`Member::relieve`] and [`Solo::relieve`].
    pub(super) fn relieve(
        &mut self,
        bytes: u64,
        length_of: impl Fn(u64) -> u64,
        out: &mut NodeActions,
    ) -> bool {
        match self {
            Self::Alone(solo) => solo.relieve(bytes, length_of, out),
            Self::Member(member) => member.relieve(bytes, length_of, out),
        }
    }

    pub(super) fn spill_ahead(&mut self, bytes: u64, length_of: impl Fn(u64) -> u64, out: &mut NodeActions) {
        ask!(self, core => core.spill_ahead(bytes, length_of, out));
    }

    pub(super) fn give_way(
        &mut self,
        object: Option<ObjectId>,
        length_of: impl Fn(u64) -> u64,
        out: &mut NodeActions,
    ) -> bool {
        ask!(self, core => core.give_way(object, length_of, out))
    }

    pub(super) fn on_bytes(&mut self, object: ObjectId, attempt: u64, bytes: u64, out: &mut NodeActions) {
        ask!(self, core => core.on_bytes(object, attempt, bytes, out));
    }

    pub(super) fn on_stream_end(
        &mut self,
        object: ObjectId,
        attempt: u64,
        end: StreamEnd,
        out: &mut NodeActions,
    ) {
        ask!(self, core => core.on_stream_end(object, attempt, end, out));
    }

    pub(super) fn begin_serving(&mut self, block: u64, object: ObjectId) -> Serves {
        ask!(self, core => core.begin_serving(block, object))
    }

    /// Only nodes of a cluster are asked for copies.
    pub(super) fn begin_serving_copy(
        &mut self,
        object: ObjectId,
        generation: u64,
        length: u64,
    ) -> ServedCopy {
        match self {
            Engine::Alone(_) => ServedCopy::No,
            Engine::Member(core) => core.begin_serving_copy(object, generation, length),
        }
    }

    pub(super) fn end_serving(&mut self, block: u64, out: &mut NodeActions) {
        ask!(self, core => core.end_serving(block, out));
    }

    pub(super) fn settle(&mut self, now: Instant, out: &mut NodeActions) {
        ask!(self, core => core.settle(now, out));
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        ask!(self, core => core.next_deadline())
    }

    pub(super) fn resources(&self) -> Spare {
        ask!(self, core => core.resources())
    }

    pub(super) fn report(&self) -> NodeReport {
        ask!(self, core => core.report())
    }
}
