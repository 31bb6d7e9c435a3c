//! A node whose control service is elsewhere: behind a connection, also where it is on the same machine.
//!
//! It has the calls of [`crate::solo::Solo`], so that whoever carries a node does not care which of the two it is. What the
//! node says to the control service comes out as [`NodeAction::Control`], in order; what that says goes to
//! [`Member::on_control`]. Nothing is answered from what was said before: questions to a control service that is away, or stands still,
//! wait, and end with an error when that lasts ([`requests`]).
//!
//! The control service may have started again and know nothing: the node tells it what is here
//! ([`Member::on_control_up`]), and says again what was not answered.
//!
//! Work of jobs whose driver is on another node waits until the control service has said what that job needs
//! ([`guests`]).

use sooner_wire::limits::CONTROL_AWAY_NANOS;
use sooner_wire::message::state::{MemoryRow, NodeReport};
use sooner_wire::message::{
    self, ActorsHere, AlsoHere, Candidates, Job, JobConfig, JobState, Message, ResourceView,
};
use sooner_wire::strategy::Labels;
use sooner_wire::{NodeId, ObjectId, ResourceSet, Started, WorkerId};

use crate::control::reporting::Spare;
use crate::control::wire::Misplaced;
use crate::control::{ToControl, ToNode};
use crate::node::memory::{Limited, Measured, Running, Stopped, Usage};
use crate::node::{NodeAction, NodeActions, NodeCore, ServedCopy, ServedSpill};
use crate::objects::{Holders, Serves, StreamEnd};
use crate::scheduling::policy::NodeRow;
use crate::table::{Map, Set};
use crate::time::Instant;
use cut_off::CutOff;
use guests::Guests;
use keepers::Keepers;
use requests::Requests;

mod cut_off;
mod guests;
mod keepers;
mod requests;

/// See the module. It asks for every [`NodeAction`].
#[derive(Debug)]
pub struct Member {
    node: NodeCore,
    /// The jobs of drivers here, until the control service says that they are over.
    jobs: Map<WorkerId, Box<JobConfig>>,
    guests: Guests,
    requests: Requests,
    keepers: Keepers,
    cut_off: CutOff,
}

impl Member {
    /// A node with these resources. Ids of its processes count up from `first_worker`, which must be unlike that of
    /// any other session; `pool_size` idle workers are kept.
    #[must_use]
    pub fn new(total: ResourceSet, first_worker: u64, pool_size: usize) -> Self {
        let mut node = NodeCore::new(total, first_worker, pool_size);
        node.join_cluster();
        node.keep_memos();
        let (jobs, guests, requests) = (Map::default(), Guests::default(), Requests::default());
        Self { node, jobs, guests, requests, keepers: Keepers::default(), cut_off: CutOff::default() }
    }

    /// The node is a part of a program, and runs no work.
    #[must_use]
    pub fn of_program(mut self) -> Self {
        self.node.run_nothing();
        self
    }

    /// This node.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.node.id()
    }

    /// The node has these labels, sorted by key.
    pub fn set_labels(&mut self, labels: Labels) {
        self.node.set_labels(labels);
    }

    /// This node as far as scheduling has to know it.
    #[must_use]
    pub fn row(&self) -> NodeRow {
        self.node.row()
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

    /// A driver was admitted, with what its workers need. Follows [`Self::on_connected`].
    pub fn on_job(&mut self, job: WorkerId, config: Box<JobConfig>, out: &mut NodeActions) {
        self.node.make_known(job);
        self.jobs.insert(job, config.clone());
        let started = begun(job, config);
        out.push(NodeAction::Control(ToControl::Job(Box::new(started))));
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

    /// No worker can be started here any more for the job of a driver of another node, and why.
    pub fn on_job_given_up(&mut self, job: WorkerId, why: &str, out: &mut NodeActions) {
        self.node.on_job_given_up(job, why, out);
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
        self.node.on_gone(client, reason, last_started, out);
        self.requests.on_said(&out[begin..]);
        self.requests.end(client);
        self.keepers.end(client);
    }

    /// A line to a process of another node is about to be handed to the one here that wants it.
    pub fn on_dialled_for(&mut self, local: WorkerId, remote: WorkerId) {
        self.node.on_dialled_for(local, remote);
    }

    /// A process of another node has come with a line to one here, to which it is about to be handed. False if that one is
    /// gone.
    pub fn on_arrived_for(&mut self, local: WorkerId, remote: WorkerId) -> bool {
        self.node.on_arrived_for(local, remote)
    }

    /// The driver whose job a process belongs to: itself, if it is one.
    #[must_use]
    pub fn job_of(&self, process: WorkerId) -> WorkerId {
        self.node.job_of(process)
    }

    /// Whether nothing is left of a job: no driver, no worker here, and no actor anywhere.
    #[must_use]
    pub fn is_over(&self, job: WorkerId) -> bool {
        self.node.is_over(job) && !self.jobs.contains_key(&job) && !self.guests.is_open(job)
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
        self.node.on_leaving(driver, out);
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
        if let Message::ActorReady(ready) = &message
            && ready.failure.is_none()
        {
            self.node.note_ready(ready.actor);
        }
        let begin = out.len();
        let left = self.node.on_message(from, message, now, out);
        self.requests.on_said(&out[begin..]);
        left
    }

    /// The control service says something.
    pub fn on_control(&mut self, word: ToNode, now: Instant, out: &mut NodeActions) {
        if let ToNode::Job(job) = word {
            return self.on_job_news(*job, now, out);
        }
        if let Some((process, checkpoint)) = self.requests.take_checkpoint(&word) {
            self.node.note_checkpoint(process, *checkpoint);
        }
        if let ToNode::LetGo { block } = word {
            self.requests.forget_checkpoint_in(block);
        }
        self.keepers.on_control(&self.node, &word);
        if self.requests.is_stale(&word) {
            return;
        }
        if let Some(word) = self.guests.admit(&self.node, word, now, out) {
            self.node.on_control(word, out);
        }
    }

    /// Something came over the link of node `link`, from it or a process there, for this node or a process here. What is
    /// the shell's comes back: lines that workers printed.
    ///
    /// # Errors
    /// [`Misplaced`]: nobody there says that. The link is to be cut.
    pub fn on_routed(
        &mut self,
        link: NodeId,
        from: WorkerId,
        to: WorkerId,
        message: Message,
        now: Instant,
        out: &mut NodeActions,
    ) -> Result<Option<Message>, Misplaced> {
        self.node.check_routed(link, from, to, &message)?;
        if self.is_given_up(link) {
            return Ok(None);
        }
        self.cut_off.on_heard(link);
        if let Message::Job(job) = message {
            self.on_job_of_node(link, job, now, out);
            return Ok(None);
        }
        match self.guests.admit_routed(&self.node, (from, to), message, now, out) {
            Some(message) => self.node.on_routed(from, to, message, now, out),
            None => Ok(None),
        }
    }

    /// The control service is connected. `is_new`: it knows nothing of this node, because the node has just joined or the
    /// control service has started again.
    pub fn on_control_up(&mut self, is_new: bool, _now: Instant, out: &mut NodeActions) {
        self.requests.on_up(is_new);
        if !is_new {
            return;
        }
        let (checkpoints, dead) = (self.requests.checkpoints(), self.node.dead_actors());
        let watched = self.node.watched_nodes();
        let has_more = !checkpoints.is_empty() || !dead.is_empty() || !watched.is_empty();
        let also = has_more.then(|| Box::new(AlsoHere { checkpoints, dead, watched: Some(watched) }));
        let here = ActorsHere {
            actors: self.node.actors_here(),
            jobs: self.jobs.iter().map(|(job, config)| begun(*job, config.clone())).collect(),
            subscribers: self.node.subscribers_here(true),
            keepers: Some(self.keepers.all()),
            kept: Some(self.node.kept_for_actors()),
            also,
        };
        // Also when there is nothing: what is not said is not here.
        out.push(NodeAction::Control(ToControl::Here(Box::new(here))));
        self.node.say_deaths_again(out);
        self.node.say_placed_again(out);
        self.requests.say_again(&self.node.subscribers_here(false), out);
        self.guests.ask_again(out);
        self.node.ask_for_groups_again();
        // Behind what removes groups: those are asked about once, and are no more.
        self.node.ask_about_all_bundles(out);
    }

    /// The connection to the control service is gone.
    pub fn on_control_down(&mut self, now: Instant) {
        self.requests.on_down(now);
    }

    /// A node takes part, or is otherwise than before: this one itself is passed over.
    pub fn on_node_known(&mut self, row: &message::NodeRow) {
        self.node.on_node_known(row);
    }

    /// What nodes have free.
    pub fn on_view(&mut self, view: &ResourceView) {
        self.node.on_view(view);
    }

    /// Nodes that could serve what the control service was asked for.
    pub fn on_candidates(&mut self, candidates: &Candidates) {
        self.node.on_candidates(candidates);
    }

    /// A node is gone for good. That its processes are is said by itself.
    pub fn on_node_gone(&mut self, node: NodeId, out: &mut NodeActions) {
        self.cut_off.on_node_gone(node);
        self.node.on_node_gone(node, out);
    }

    /// The session with another node is over, though that node may live.
    pub fn on_link_ended(&mut self, node: NodeId, out: &mut NodeActions) {
        self.on_unreached(node);
        self.node.on_link_ended(node, out);
    }

    /// A process here has not reached one of another node for as long as a link may be without a connection, and this node does
    /// not reach that node either.
    pub fn on_unreached(&mut self, node: NodeId) {
        if !self.is_given_up(node) {
            self.cut_off.on_link_ended(node);
        }
    }

    /// Whether a node is held for gone although the control service has not said that it is: nothing is said to it and nothing
    /// heard from it.
    #[must_use]
    pub fn is_given_up(&self, node: NodeId) -> bool {
        self.node.is_given_up(node)
    }

    fn give_up(&mut self, node: NodeId, out: &mut NodeActions) {
        let seconds = CONTROL_AWAY_NANOS / 1_000_000_000;
        let reason = format!(
            "its node {:016x} cannot be reached, and the head of the cluster, which could say whether it lives and start work again elsewhere, has been away for {seconds} s",
            node.0
        );
        self.node.give_up(node, &reason, out);
        out.push(NodeAction::GiveUp(node));
    }

    fn on_job_news(&mut self, news: Job, now: Instant, out: &mut NodeActions) {
        let job = news.job;
        match (news.state, news.config) {
            (JobState::Ended, _) if self.jobs.swap_remove(&job).is_some() => {}
            (JobState::Ended, _) => {
                self.guests.end(job, &mut self.node, out);
            }
            (JobState::Leaving, _) => {
                self.node.on_guest_leaves(job);
                out.push(NodeAction::JobLeaves(job));
            }
            (JobState::Started, Some(config)) => {
                let Some(held) = self.guests.begin(job) else { return };
                self.node.open_job(job);
                out.push(NodeAction::BeginJob(job, config));
                for order in held {
                    order.carry_out(&mut self.node, now, out);
                }
            }
            (JobState::Started | JobState::Asked, _) => {}
        }
    }

    /// A node asks what a job of a driver here needs, or says it of one there: the control service is away.
    fn on_job_of_node(&mut self, node: NodeId, news: Job, now: Instant, out: &mut NodeActions) {
        match (news.state, self.jobs.get(&news.job)) {
            (JobState::Asked, Some(config)) => {
                out.push(guests::to_node(self.id(), node, begun(news.job, config.clone())));
            }
            (JobState::Started, None) => self.on_job_news(news, now, out),
            _ => {}
        }
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
    /// `moves`: [`Self::relieve`] has values brought elsewhere to make some.
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

    /// There is no room for so many bytes: values go to disk, or, where there is none, those of others to where their owners are.
    /// `length_of` gives the bytes of a block. True if any are on their way.
    pub fn relieve(&mut self, bytes: u64, length_of: impl Fn(u64) -> u64, out: &mut NodeActions) -> bool {
        self.node.relieve(bytes, length_of, out)
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

    /// A value was written to disk, or could not be.
    pub fn on_spilled(&mut self, spilled: u64, is_written: bool, out: &mut NodeActions) {
        self.node.on_spilled(spilled, is_written, out);
    }

    /// There may soon be no room: values of so many bytes go to disk, but for those that turned out to be in use.
    pub fn spill_ahead(&mut self, bytes: u64, length_of: impl Fn(u64) -> u64, out: &mut NodeActions) {
        self.node.spill_ahead(bytes, length_of, out);
    }

    /// See [`NodeCore::on_spilling_ended`].
    pub fn on_spilling_ended(&mut self, out: &mut NodeActions) {
        self.node.on_spilling_ended(out);
    }

    /// See [`NodeCore::on_room`].
    pub fn on_room(&mut self, out: &mut NodeActions) {
        self.node.on_room(out);
    }

    /// A spilled value is about to be read for another node. [`Self::end_serving`], if it is read in a block.
    pub fn begin_serving_spilled(&mut self, spilled: u64, object: ObjectId) -> ServedSpill {
        self.node.begin_serving_spilled(spilled, object)
    }

    /// So many bytes of an object that is pulled are here.
    pub fn on_bytes(&mut self, object: ObjectId, attempt: u64, bytes: u64, out: &mut NodeActions) {
        self.node.on_bytes(object, attempt, bytes, out);
    }

    /// A stream of bytes ended before all were here.
    pub fn on_stream_end(&mut self, object: ObjectId, attempt: u64, end: StreamEnd, out: &mut NodeActions) {
        self.node.on_stream_end(object, attempt, end, out);
    }

    /// Another node asks for an object: whether its block may be read for it. From then on the block is kept, until
    /// [`Self::end_serving`], if it is [`Serves::Yes`].
    pub fn begin_serving(&mut self, block: u64, object: ObjectId) -> Serves {
        self.node.begin_serving(block, object)
    }

    /// Values are pulled from whom their owners name. The shell must be able to send copies that are still arriving.
    pub fn ask_owners(&mut self) {
        self.node.ask_owners();
    }

    /// The same for a copy of a generation, which has so many bytes, as far as it has come.
    pub fn begin_serving_copy(&mut self, object: ObjectId, generation: u64, length: u64) -> ServedCopy {
        self.node.begin_serving_copy(object, generation, length)
    }

    /// The block was read.
    pub fn end_serving(&mut self, block: u64, out: &mut NodeActions) {
        self.node.end_serving(block, out);
    }

    /// What lies in these blocks is lost; those that nobody holds, or the node itself, are passed over.
    pub fn lose_blocks(&mut self, offsets: &[u64], out: &mut NodeActions) {
        self.node.lose_blocks(offsets, out);
    }

    /// Places what can be placed. Called once after each batch of events.
    pub fn settle(&mut self, now: Instant, out: &mut NodeActions) {
        self.requests.give_up(now, out);
        self.guests.give_up(now, out);
        let away = self.requests.away_since();
        for node in self.cut_off.take(away, now) {
            self.give_up(node, out);
        }
        self.guests.ask_drivers(self.node.id(), away.is_some(), now, out);
        self.node.settle(now, out);
    }

    /// When [`Self::settle`] should be called again although nothing happened.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let cut_off = self.cut_off.next_deadline(self.requests.away_since());
        let own = [self.requests.next_deadline(), self.guests.next_deadline(), cut_off];
        own.into_iter().chain([self.node.next_deadline()]).flatten().min()
    }

    /// What is free now, and what waits, by shape: for the node's reports to its cluster.
    #[must_use]
    pub fn resources(&self) -> Spare {
        self.node.resources_now()
    }

    /// What the node knows: actors that have a process here, and no groups. Of the others the control service knows.
    #[must_use]
    pub fn spilled(&self) -> usize {
        self.node.spilled()
    }

    /// What the core knows, and the control service where it is here.
    #[must_use]
    pub fn report(&self) -> NodeReport {
        let mut actors = self.node.actor_rows();
        actors.iter_mut().for_each(|row| self.node.complete(row));
        NodeReport { actors, ..self.node.report() }
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
}

fn begun(job: WorkerId, config: Box<JobConfig>) -> Job {
    Job { job, state: JobState::Started, config: Some(config) }
}
