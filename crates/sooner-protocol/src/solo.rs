//! A node that carries the control service, too: all there is where everything runs on one machine.
//!
//! What the two cores say to each other is passed on as values, before the node does anything else: each hears the other's
//! words in the order in which they were said, and what follows from them comes before what the node does next. There is
//! no second implementation for one machine: a node elsewhere and the control service of a cluster are the same cores
//! with a connection in between.

use std::collections::VecDeque;

use sooner_wire::message::Message;
use sooner_wire::message::state::{MemoryRow, NodeReport};
use sooner_wire::strategy::Labels;
use sooner_wire::{NodeId, ObjectId, ResourceSet, Started, WorkerId};

use crate::control::reporting::Spare;
use crate::control::{Directory, DirectoryAction, DirectoryActions};
use crate::node::memory::{Limited, Measured, Running, Stopped, Usage};
use crate::node::{NodeAction, NodeActions, NodeCore};
use crate::objects::{Holders, Serves, StreamEnd};
use crate::table::Set;
use crate::time::Instant;

/// See the module. It asks for every [`NodeAction`] but [`NodeAction::Control`].
#[derive(Debug)]
pub struct Solo {
    id: NodeId,
    node: NodeCore,
    control: Directory,
    /// The latest time that was told.
    now: Instant,
}

impl Solo {
    /// A node with these resources. Ids of its processes count up from `first_worker`, which must be unlike that of
    /// any other session; `pool_size` idle workers are kept.
    #[must_use]
    pub fn new(total: ResourceSet, first_worker: u64, pool_size: usize) -> Self {
        let id = WorkerId(first_worker).node();
        let mut control = Directory::default();
        control.on_registered(id, total.clone());
        let mut this = Self {
            id,
            node: NodeCore::new(total, first_worker, pool_size),
            control,
            now: Instant::default(),
        };
        this.set_labels(Labels::new());
        this
    }

    /// The node has these labels, sorted by key.
    pub fn set_labels(&mut self, labels: Labels) {
        self.node.set_labels(labels);
        self.control.on_report(self.node.row());
    }

    /// An id for a new process.
    pub fn new_worker_id(&mut self) -> WorkerId {
        self.node.new_worker_id()
    }

    /// The holders of blocks.
    #[must_use]
    pub fn holders(&self) -> &Holders {
        self.node.holders()
    }

    /// A block was allocated for a client.
    pub fn on_allocated(&mut self, block: u64, client: WorkerId) {
        self.node.on_allocated(block, client);
    }

    /// Who holds most of the node's memory: see [`crate::objects::Holders::largest`].
    #[must_use]
    pub fn largest_holders(&self, most: usize, length: impl Fn(u64) -> u64) -> Vec<(WorkerId, u64, u64)> {
        self.node.largest_holders(most, length)
    }

    /// See [`NodeCore::memory_use`].
    #[must_use]
    pub fn memory_use(&self, length_of: impl Fn(u64) -> u64) -> MemoryRow {
        self.node.memory_use(length_of)
    }

    /// A client is connected. A worker is idle from now on.
    pub fn on_connected(&mut self, client: WorkerId, pid: u32, now: Instant) {
        self.node.on_connected(client, pid, now);
    }

    /// Whether this id is that of a worker that is being started.
    #[must_use]
    pub fn expects(&self, worker: WorkerId) -> bool {
        self.node.expects(worker)
    }

    /// A worker could not be forked.
    pub fn on_start_failed(&mut self, worker: WorkerId, error: &str, out: &mut NodeActions) {
        self.node.on_start_failed(worker, error, out);
    }

    /// See [`NodeCore::is_busy`].
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.node.is_busy()
    }

    /// See [`NodeCore::on_measured`].
    pub fn on_measured(&mut self, measured: &[Measured], now: Instant) {
        self.node.on_measured(measured, now);
    }

    /// See [`NodeCore::stop_for_memory`].
    pub fn stop_for_memory(
        &mut self,
        usage: &Usage,
        measured: &[Measured],
        out: &mut NodeActions,
    ) -> Option<Stopped> {
        self.node.stop_for_memory(usage, measured, out)
    }

    /// See [`NodeCore::on_ended_by_kernel`].
    pub fn on_ended_by_kernel(
        &mut self,
        worker: WorkerId,
        running: Option<Running>,
        left: &Usage,
        others: &[Measured],
    ) -> Option<Stopped> {
        self.node.on_ended_by_kernel(worker, running, left, others)
    }

    /// See [`NodeCore::on_ended_at_limit`].
    pub fn on_ended_at_limit(
        &mut self,
        worker: WorkerId,
        running: Option<Running>,
        limit: u64,
        usage: &Usage,
        others: &[Measured],
    ) -> Option<Stopped> {
        self.node.on_ended_at_limit(worker, running, limit, usage, others)
    }

    /// A client's connection ended. `reason` is for people; `last_started` its last task.
    pub fn on_gone(
        &mut self,
        client: WorkerId,
        reason: &str,
        last_started: Option<Started>,
        out: &mut NodeActions,
    ) {
        let begin = out.len();
        if self.node.end_process(client, reason, last_started, out) {
            self.pass_on(begin, out);
            self.node.settle_end(client, out);
        }
    }

    /// The driver whose job a process belongs to: itself, if it is one.
    #[must_use]
    pub fn job_of(&self, process: WorkerId) -> WorkerId {
        self.node.job_of(process)
    }

    /// Whether nothing is left of a job: no driver, no worker, no actor.
    #[must_use]
    pub fn is_over(&self, job: WorkerId) -> bool {
        self.node.is_over(job) && !self.control.has_actors(job)
    }

    /// Nothing of a job is left, and nothing will come.
    pub fn forget_job(&mut self, job: WorkerId) {
        self.node.forget_job(job);
    }

    /// The processes of a job that live on although its driver is gone: detached actors, and who works for those.
    #[must_use]
    pub fn outliving(&self, job: WorkerId) -> Set<WorkerId> {
        self.node.outliving(job)
    }

    /// A driver leaves in order: nothing more begins for it.
    pub fn on_leaving(&mut self, driver: WorkerId, out: &mut NodeActions) {
        let begin = out.len();
        self.node.on_leaving(driver, out);
        self.pass_on(begin, out);
    }

    /// From now on no lease is granted and no actor is placed; leases come back as their tasks end.
    pub fn drain(&mut self) {
        self.node.drain();
    }

    /// Whether no task runs any more.
    #[must_use]
    pub fn has_ended_tasks(&self) -> bool {
        self.node.has_ended_tasks()
    }

    /// Whether nothing is left that a node which drains waits for.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.node.is_drained()
    }

    /// A message came from a client. What the core does not handle (allocation) comes back.
    pub fn on_message(
        &mut self,
        from: WorkerId,
        message: Message,
        now: Instant,
        out: &mut NodeActions,
    ) -> Option<Message> {
        self.now = now;
        let begin = out.len();
        let left = self.node.on_message(from, message, now, out);
        self.pass_on(begin, out);
        left
    }

    /// Bytes of the store: they bound what is on its way into it at a time.
    pub fn set_store_bytes(&mut self, bytes: u64) {
        self.node.set_store_bytes(bytes);
    }

    /// There is a block for an object that is pulled.
    pub fn on_block(&mut self, object: ObjectId, block: u64, out: &mut NodeActions) {
        self.node.on_block(object, block, out);
    }

    /// There is no room for one now, in a store of so many bytes.
    /// `moves`: never true here, where there is no other node.
    pub fn on_no_block(
        &mut self,
        object: ObjectId,
        capacity: u64,
        moves: bool,
        now: Instant,
        out: &mut NodeActions,
    ) {
        self.node.on_no_block(object, capacity, moves, now, out);
    }

    /// There is somewhere to put values for which there is no room.
    pub fn set_spills(&mut self) {
        self.node.set_spills();
    }

    /// See [`NodeCore::set_memory_limits`].
    pub fn set_memory_limits(&mut self, limited: Limited) {
        self.node.set_memory_limits(limited);
    }

    /// See [`NodeCore::set_recomputes`].
    pub fn set_recomputes(&mut self) {
        self.node.set_recomputes();
    }

    /// There is no room for so many bytes: values that nobody reads go to disk. `length_of` gives the bytes of a block. True if
    /// any are on their way.
    pub fn relieve(&mut self, bytes: u64, length_of: impl Fn(u64) -> u64, out: &mut NodeActions) -> bool {
        self.node.relieve(bytes, length_of, out)
    }

    /// There may soon be no room: values of so many bytes go to disk, but for those that turned out to be in use.
    pub fn spill_ahead(&mut self, bytes: u64, length_of: impl Fn(u64) -> u64, out: &mut NodeActions) {
        self.node.spill_ahead(bytes, length_of, out);
    }

    /// See [`NodeCore::give_way`].
    pub fn give_way(
        &mut self,
        object: Option<ObjectId>,
        length_of: impl Fn(u64) -> u64,
        out: &mut NodeActions,
    ) -> bool {
        self.node.give_way(object, length_of, out)
    }

    /// A value was written to disk, or could not be.
    pub fn on_spilled(&mut self, spilled: u64, is_written: bool, out: &mut NodeActions) {
        self.node.on_spilled(spilled, is_written, out);
    }

    /// See [`NodeCore::on_spilling_ended`].
    pub fn on_spilling_ended(&mut self, out: &mut NodeActions) {
        self.node.on_spilling_ended(out);
    }

    /// See [`NodeCore::on_room`].
    pub fn on_room(&mut self, out: &mut NodeActions) {
        self.node.on_room(out);
    }

    /// A stream of bytes ended before all were here.
    pub fn on_stream_end(&mut self, object: ObjectId, attempt: u64, end: StreamEnd, out: &mut NodeActions) {
        self.node.on_stream_end(object, attempt, end, out);
    }

    /// So many bytes of an object that is pulled are here.
    pub fn on_bytes(&mut self, object: ObjectId, attempt: u64, bytes: u64, out: &mut NodeActions) {
        self.node.on_bytes(object, attempt, bytes, out);
    }

    /// A block is about to be read for another node: if it may be, it stays as it is until [`Self::end_serving`].
    pub fn begin_serving(&mut self, block: u64, object: ObjectId) -> Serves {
        self.node.begin_serving(block, object)
    }

    /// That is over.
    pub fn end_serving(&mut self, block: u64, out: &mut NodeActions) {
        self.node.end_serving(block, out);
    }

    /// What lies in these blocks is lost; those that nobody holds, or the node itself, are passed over.
    pub fn lose_blocks(&mut self, offsets: &[u64], out: &mut NodeActions) {
        self.node.lose_blocks(offsets, out);
    }

    /// Places what can be placed. Called once after each batch of events.
    pub fn settle(&mut self, now: Instant, out: &mut NodeActions) {
        self.now = now;
        let begin = out.len();
        self.node.say_refused(out);
        self.pass_on(begin, out);
        let places_groups = self.control.wants_reports();
        self.consult(begin, out);
        if places_groups {
            // Actors that wait for a group have a place now.
            self.consult(begin, out);
            self.node.ask_about_bundles(now, out);
            self.pass_on(begin, out);
        }
        self.node.place(out);
        while self.node.assign_workers(out) {
            self.pass_on(begin, out);
        }
        self.node.adjust_pool(now, out);
    }

    /// Has the control service decide what it can, and the node carry that out: bundles of groups are committed after it.
    fn consult(&mut self, begin: usize, out: &mut NodeActions) {
        if self.control.wants_reports() {
            self.control.on_report(self.node.row());
        }
        let mut decided = DirectoryActions::new();
        self.control.settle(self.now, &mut decided);
        let answers = self.follow(decided, out);
        out.extend(answers);
        self.pass_on(begin, out);
    }

    /// When [`Self::settle`] should be called again although nothing happened.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        [self.node.next_deadline(), self.control.next_deadline()].into_iter().flatten().min()
    }

    /// What is free now, and what waits, by shape: for the node's reports to its cluster.
    #[must_use]
    pub fn resources(&self) -> Spare {
        self.node.resources_now()
    }

    /// What the cores know; the shell adds the store, processes and metrics.
    #[must_use]
    pub fn spilled(&self) -> usize {
        self.node.spilled()
    }

    /// What the core knows, and the control service where it is here.
    #[must_use]
    pub fn report(&self) -> NodeReport {
        let mut actors = self.control.report();
        actors.iter_mut().for_each(|row| self.node.complete(row));
        let groups = Some(self.control.groups()).filter(|groups| !groups.is_empty());
        NodeReport { actors, groups, ..self.node.report() }
    }

    /// Asserts the invariants of the node as far as they show; for tests and the simulator.
    pub fn check(&self) {
        self.node.check();
    }

    /// Whether nothing is leased, placed or waiting and all resources are free.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.node.is_quiet()
    }

    /// Passes on what the node says at the end of these actions, and what is said in answer, until neither has more.
    fn pass_on(&mut self, begin: usize, out: &mut NodeActions) {
        let is_said = |action: &NodeAction| matches!(action, NodeAction::Control(_));
        let Some(first) = out[begin..].iter().position(is_said) else { return };
        debug_assert!(out[begin + first..].iter().all(is_said), "the rest was decided before the answer");
        let mut said: VecDeque<NodeAction> = out.drain(begin + first..).collect();
        while let Some(NodeAction::Control(message)) = said.pop_front() {
            let mut decided = DirectoryActions::new();
            self.control.on_node(self.id, message, self.now, &mut decided);
            // What the node says to that comes behind what it said before.
            said.extend(self.follow(decided, out));
        }
    }

    /// Has the node carry out what was decided. Gives what it says to that.
    #[must_use]
    fn follow(&mut self, decided: DirectoryActions, out: &mut NodeActions) -> NodeActions {
        let mut followed = NodeActions::new();
        self.tell_node(decided, &mut followed);
        let is_said = |action: &NodeAction| matches!(action, NodeAction::Control(_));
        let (answers, done): (NodeActions, NodeActions) = followed.into_iter().partition(is_said);
        out.extend(done);
        answers
    }

    fn tell_node(&mut self, decided: DirectoryActions, out: &mut NodeActions) {
        for action in decided {
            match action {
                DirectoryAction::Send(_, message) => self.node.on_control(*message, out),
                DirectoryAction::Warn(text) => out.push(NodeAction::Warn(text)),
                DirectoryAction::Persist(..) => {
                    unreachable!("it keeps no records: nothing outlives the session")
                }
            }
        }
    }
}
