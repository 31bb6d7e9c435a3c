//! The core of a node: its resources, leases, worker pool, block holders, and the actors that have a process
//! here.
//!
//! It grants a lease when the resources are free and a worker is idle, queues the demand otherwise, and has
//! more workers forked when resources are free and workers are not. Placement decisions are made once per
//! batch of events, in [`NodeCore::after_events`].
//!
//! State that concerns more than one node (which actors and names exist) belongs to the control service
//! ([`crate::control::Directory`]): the node forwards its processes' messages there and carries out its
//! decisions. The node never waits for an answer from there, and nothing between two processes (tasks, calls,
//! values) depends on one.
//!
//! Invariants:
//! - N1: a worker is starting, idle, leased or an actor's; it is in exactly one of these states. It works for
//!   one job.
//! - N2: resources are held by waiting placements, leases and actors, and by nobody else.
//! - N3: every demand is granted, withdrawn, or waits; one that can never be met is reported once.
//! - N4: processes hear of a peer before they hear of a lease or an actor there, and of its end after its
//!   last message.
//!
//! It never looks into a value: code, arguments and names of actors are bytes to it.

use std::collections::VecDeque;

use crate::probes::bug;
use sooner_wire::message::{DropCopy, FindNodes, JobConfig, Located, Message, SpillId, WorkerDead};
use sooner_wire::strategy::Labels;
use sooner_wire::{
    ActorId, BlockId, FetchAttempt, NodeId, ObjectId, ResourceSet, ShapeId, Started, WorkerId,
};

use super::objects::{Fetching, Holders, Lost, Pulls, Residency};
use super::peers::departed::Departed;
use super::workers::pool::{WorkerPool, WorkerState};
use super::workers::requesters::{OpenJobs, Requester, Requesters};
use crate::scheduling::policy::NodeRow;
use crate::scheduling::view::View;
use crate::scheduling::{Grant, Pools};
use crate::table::{Map, Set};
use crate::time::Instant;
use crate::uplink::{ToControl, ToNode};

/// An effect the node asks for. Messages to one client stay in order.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeAction {
    /// Send a message to a client.
    Send(WorkerId, Box<Message>),
    /// Connect two clients with a socket pair and tell both.
    Introduce(WorkerId, WorkerId),
    /// Dial the node of a process of another node for a client, and hand it the connection.
    Dial {
        /// The process that wants the connection.
        client: WorkerId,
        /// The other process.
        to: WorkerId,
    },
    /// Have the template fork a worker under this id.
    StartWorker(WorkerId),
    /// Kill a worker's process.
    KillWorker(WorkerId),
    /// Limit a worker to the memory that it holds now, what it reserved (bytes) and an allowance
    /// ([`super::workers::memory::limit`]); `None`: lift the limit.
    LimitMemory(WorkerId, Option<u64>),
    /// A block of shared memory is free.
    FreeBlock(BlockId),
    /// Tell the user.
    Warn(String),
    /// A node is presumed dead: exchange no messages with it, and tell the control service as soon as there
    /// is one.
    GiveUp(NodeId),
    /// Find a block for a value of another node: [`NodeCore::on_block`] or [`NodeCore::on_no_block`] follows.
    AllocateFor {
        /// The object.
        object: ObjectId,
        /// Its length.
        bytes: u64,
    },
    /// Open a stream of a value's bytes: [`NodeCore::on_bytes`] and [`NodeCore::on_stream_end`] follow.
    Fetch(Fetching),
    /// Write the contents of a block to disk, as this value: [`NodeCore::on_spilled`] follows. A
    /// [`Self::Fetch`] from this node itself reads such a value: it is read behind the write.
    Spill {
        /// The value.
        spilled: SpillId,
        /// The block.
        block: BlockId,
    },
    /// Drop what was written of a value: no process needs it.
    DropSpilled(SpillId),
    /// Close a stream. Nothing may be written to its block from now on.
    StopFetching {
        /// The object.
        object: ObjectId,
        /// The number of the stream.
        attempt: FetchAttempt,
    },
    /// Send a message to a process of another node, or to that node, whose id is the one before those of its
    /// processes. It goes to [`NodeCore::on_routed`] there.
    Route {
        /// The sender: a local process, or this node.
        from: WorkerId,
        /// The receiver.
        to: WorkerId,
        /// The message.
        message: Box<Message>,
    },
    /// Send a message to the control service. Its answers to the node go to [`NodeCore::on_control`].
    Control(ToControl),
    /// Ask the control service which nodes could serve something: [`NodeCore::on_candidates`] follows, or
    /// nothing does while there is none.
    FindNodes(Box<FindNodes>),
    /// Prepare for workers of a job whose driver is on another node. The configuration is what they need.
    BeginJob(WorkerId, Box<JobConfig>),
    /// The driver of such a job is about to end in order: end its workers, except those that outlive it.
    JobLeaves(WorkerId),
}

/// Actions in order.
pub type NodeActions = Vec<NodeAction>;

pub(super) fn send(to: WorkerId, message: impl Into<Message>) -> NodeAction {
    NodeAction::Send(to, Box::new(message.into()))
}

/// A process that is connected to this node.
#[derive(Debug, Default)]
pub(super) struct Client {
    pub(super) introduced: Set<WorkerId>,
    /// Processes of other nodes that it has lines with.
    pub(super) lines: Set<WorkerId>,
    /// The control service knows of the process, and must learn of its end.
    pub(super) is_known_to_control: bool,
}

/// A placement that has its resources and waits for a worker.
#[derive(Debug)]
pub(super) enum Placement {
    Lease { client: WorkerId, shape: ShapeId, grant: Grant },
    Actor { actor: ActorId, grant: Grant },
}

/// See the module.
#[derive(Debug)]
pub struct NodeCore {
    pub(super) pool: WorkerPool,
    pub(super) resources: Pools,
    pub(super) labels: Labels,
    /// Some client has said that some of its tasks are more urgent than others.
    pub(super) has_priorities: bool,
    pub(super) clients: Map<WorkerId, Client>,
    pub(super) askers: Requesters,
    /// The other nodes.
    pub(super) view: View,
    pub(super) spillback: super::workers::spillback::Spillback,
    pub(super) group_places: super::workers::group_places::GroupPlaces,
    pub(super) unable: super::workers::unable::Unable,
    pub(super) starving: super::workers::starving::Starving,
    pub(super) open_jobs: OpenJobs,
    pub(super) leases: super::workers::leases::Leases,
    pub(super) local_actors: super::actors::local_actors::LocalActors,
    pub(super) places: super::actors::places::Places,
    pub(super) placements: VecDeque<Placement>,
    pub(super) departed: Departed,
    pub(super) memory: super::workers::memory::Watch,
    pub(super) settling: super::peers::deaths::Settling,
    pub(super) announced: super::peers::deaths::Announced,
    pub(super) watches: super::peers::watches::Watches,
    pub(super) holders: Holders,
    pub(super) lost: Lost,
    pub(super) pulls: Pulls,
    pub(super) home_pulls: super::values::home_pulls::HomePulls,
    pub(super) residency: Residency,
    pub(super) promoting: super::values::promotion::Promoting,
    pub(super) yielding: super::values::yielding::Yielding,
    pub(super) leaving: super::values::spilling::Leaving,
    /// Who is served next when several wait.
    pub(super) turn: usize,
    pub(super) draining: super::draining::Draining,
    pub(super) role: super::peers::connections::Role,
    /// When placing began last.
    pub(super) now: Instant,
}

impl NodeCore {
    /// A node with these resources. Ids of its processes count up from `first_worker`, which must be unlike
    /// that of any other session; `pool_size` idle workers are kept.
    #[must_use]
    pub fn new(total: ResourceSet, first_worker: u64, pool_size: usize) -> Self {
        Self {
            pool: WorkerPool::new(first_worker, pool_size),
            resources: Pools::new(total),
            labels: Labels::new(),
            has_priorities: false,
            clients: Map::default(),
            askers: Requesters::default(),
            view: View::default(),
            spillback: super::workers::spillback::Spillback::default(),
            group_places: super::workers::group_places::GroupPlaces::default(),
            unable: super::workers::unable::Unable::default(),
            starving: super::workers::starving::Starving::default(),
            open_jobs: OpenJobs::default(),
            leases: super::workers::leases::Leases::default(),
            local_actors: super::actors::local_actors::LocalActors::default(),
            places: super::actors::places::Places::default(),
            placements: VecDeque::new(),
            departed: Departed::default(),
            memory: super::workers::memory::Watch::default(),
            settling: super::peers::deaths::Settling::default(),
            announced: super::peers::deaths::Announced::default(),
            watches: super::peers::watches::Watches::default(),
            holders: Holders::default(),
            lost: Lost::default(),
            pulls: Pulls::default(),
            home_pulls: super::values::home_pulls::HomePulls::default(),
            residency: Residency::default(),
            promoting: super::values::promotion::Promoting::default(),
            yielding: super::values::yielding::Yielding::default(),
            leaving: super::values::spilling::Leaving::default(),
            turn: 0,
            draining: super::draining::Draining::default(),
            role: super::peers::connections::Role::default(),
            now: Instant::default(),
        }
    }

    /// The node has these labels, sorted by key.
    pub fn set_labels(&mut self, labels: Labels) {
        self.labels = labels;
    }

    /// This node as far as scheduling has to know it.
    #[must_use]
    pub fn row(&self) -> NodeRow {
        let (total, free) = (self.resources.total().clone(), self.resources.free().clone());
        NodeRow { node: self.id(), total, free, labels: self.labels.clone() }
    }

    /// An id for a new process.
    pub fn new_worker_id(&mut self) -> WorkerId {
        self.pool.new_id()
    }

    /// The holders of blocks.
    #[must_use]
    pub fn holders(&self) -> &Holders {
        &self.holders
    }

    /// A block was allocated for a client.
    pub fn on_allocated(&mut self, block: BlockId, client: WorkerId) {
        self.holders.insert(block.into(), client);
    }

    /// See [`Holders::largest`].
    #[must_use]
    pub fn largest_holders(&self, most: usize, length: impl Fn(BlockId) -> u64) -> Vec<(WorkerId, u64, u64)> {
        self.holders.largest(most, length)
    }

    /// A client is connected. A worker is idle from now on.
    pub fn on_connected(&mut self, client: WorkerId, pid: u32, now: Instant) {
        self.clients.insert(client, Client::default());
        self.lost.on_connected(client);
        let of_worker = self.pool.started(client, pid, now);
        match of_worker {
            Some(job) => self.starving.on_started(job),
            None => _ = self.open_jobs.insert(client),
        }
        self.askers.insert(client, Requester::new(of_worker.unwrap_or(client)));
    }

    /// A client's connection ended. `reason` is for people; `last_started` its last task.
    pub fn on_dead(
        &mut self,
        client: WorkerId,
        reason: &str,
        last_started: Option<Started>,
        out: &mut NodeActions,
    ) {
        if self.end_process(client, reason, last_started, out) {
            self.settle_end(client, out);
        }
    }

    /// The first half of [`Self::on_dead`]: all processes learn of the end, the control service last. False
    /// if the client is unknown.
    pub(crate) fn end_process(
        &mut self,
        client: WorkerId,
        reason: &str,
        last_started: Option<Started>,
        out: &mut NodeActions,
    ) -> bool {
        let what = self.describe_process(client);
        let job = self.job_of(client);
        let left = self.clients.swap_remove(&client);
        self.askers.swap_remove(&client);
        self.open_jobs.swap_remove(&client);
        let state = self.pool.remove(client).map(|worker| (worker.state, worker.blocked));
        if left.is_none() && state.is_none() {
            return false;
        }
        match state {
            Some((WorkerState::Leased(_), _)) if bug!(LeaseNotEnded) => {}
            Some((WorkerState::Leased(lease), blocked)) => {
                self.end_lease(lease, blocked);
            }
            Some((WorkerState::Starting, _)) => {
                let why = format!("a worker process {reason} before it was ready");
                self.starving.note(job, &why, self.now);
            }
            Some((WorkerState::Idle { .. } | WorkerState::Actor(_) | WorkerState::Retired, _)) | None => {}
        }
        if state.is_some_and(|(state, _)| state != WorkerState::Starting) {
            self.starving.on_ended();
        }
        self.end_leases_of(client, out);
        self.end_aliases_of(client);
        self.drop_placements_of(client);
        self.forget_client(client);
        // For an actor's process, earlier tasks do not matter.
        let is_actor = matches!(state, Some((WorkerState::Actor(_), _)));
        let last_started = last_started.filter(|last| last.in_actor || !is_actor).map(|last| last.task);
        let gone = WorkerDead {
            worker: client,
            reason: reason.to_owned(),
            last_started,
            what,
            all_begun: None,
            unreachable: None,
            memory: self.memory.forget(client),
        };
        self.departed.note(&gone);
        let is_known_to_control = left.is_some_and(|client| client.is_known_to_control);
        let is_announced = self.announce_death(&gone, is_known_to_control, out);
        self.tell_all(&gone.clone().into(), out);
        if let Some((WorkerState::Actor(actor), blocked)) = state {
            self.end_local_actor(actor, blocked, &gone, out);
        }
        if is_known_to_control && !is_announced {
            out.push(NodeAction::Control(ToControl::process_dead(client)));
        }
        true
    }

    /// The second half of [`Self::on_dead`]: settles the death, and what the client had.
    pub(crate) fn settle_end(&mut self, client: WorkerId, out: &mut NodeActions) {
        self.settle_death(client, out);
        self.end_questions_to(client, out);
        self.promoting.forget_owner(client);
        self.end_pulls_of(client, out);
        self.orphan_blocks_of(client, out);
        self.lost_blocks_gone(client, out);
        self.ask_receivers(client, out);
    }

    /// Sends the same message to every client.
    pub(super) fn tell_all(&self, message: &Message, out: &mut NodeActions) {
        out.extend(self.clients.keys().map(|client| NodeAction::Send(*client, Box::new(message.clone()))));
    }

    /// Forgets a dead process, as a subscriber of actors and as a peer.
    pub(super) fn forget_client(&mut self, gone: WorkerId) {
        self.places.forget(gone);
        for client in self.clients.values_mut() {
            client.introduced.swap_remove(&gone);
        }
    }

    /// A client sent a message. Messages that the core does not handle (allocation) are returned.
    pub fn on_message(
        &mut self,
        from: WorkerId,
        message: Message,
        now: Instant,
        out: &mut NodeActions,
    ) -> Option<Message> {
        match message {
            Message::RequestLease(request) => self.on_request(from, request),
            Message::ReturnLease(returned) => self.on_return(from, returned.lease, now, out),
            Message::Blocked(_) => self.on_blocked(from, true),
            Message::Unblocked(_) => self.on_blocked(from, false),
            Message::Needed(needed) => self.on_needed(from, needed.is_needed, now, out),
            Message::Retired(_) => self.on_retired(from, out),
            Message::Suspended(said) => {
                let resources = &mut self.resources;
                self.local_actors.on_suspended(from, said.actor, said.is_ready, resources);
            }
            Message::Connect(connect) => self.on_connect(from, connect.worker, out),
            Message::CreateActor(create) => self.on_create_actor(from, create, out),
            Message::Checkpoint(checkpoint) => self.on_checkpoint(from, checkpoint, out),
            Message::SubscribeActor(_)
            | Message::KillActor(_)
            | Message::ActorOutOfScope(_)
            | Message::ActorReady(_)
            | Message::ReserveName(_)
            | Message::FindName(_)
            | Message::ListNames(_)
            | Message::CreateGroup(_)
            | Message::RemoveGroup(_)
            | Message::FindGroup(_) => self.route(from, message, out),
            Message::Query(query) => self.on_query(from, query, out),
            Message::FreeBlocks(free) => self.on_free_blocks(from, &free, out),
            Message::Pull(pull) => self.on_pull(from, &pull, now, out),
            Message::Relinquished(answer) if answer.node.is_some() => {
                self.on_relinquished_here(from, answer, out);
            }
            Message::Relinquished(answer) => self.on_relinquished(from, &answer, out),
            Message::FreeAt(free) => self.on_free_at(from, free, out),
            Message::Located(Located { object, node, .. }) | Message::DropCopy(DropCopy { object, node })
                if object.owner() == from =>
            {
                self.on_direction(from, node, message, out);
            }
            Message::Promote(promote) if promote.object.owner() == from => {
                self.on_promote_from(from, promote, out);
            }
            Message::HandedOver(done) => Self::on_handed_over_here(from, done, out),
            Message::LoseBlocks(lose) => self.lose_blocks(&lose.blocks, out),
            Message::GiveBlock(give) => self.on_give_block(from, &give, out),
            Message::HeldFrom(answer) => self.on_held_from(from, answer, out),
            Message::Watch(watch) => self.on_client_watch(from, watch.worker, out),
            Message::Sever(sever) => self.on_sever(from, sever, out),
            Message::UnknownBlocks(answer) => self.on_unknown_blocks(from, answer, out),
            Message::StillRead(answer) if answer.round.is_of_control() => self.route(from, answer, out),
            Message::StillRead(answer) => {
                self.on_forgotten(answer.round, from, out);
                let free = self.holders.on_answer(from, &answer);
                free.into_iter().for_each(|place| self.free_place(place, out));
            }
            other => return Some(other),
        }
        None
    }

    /// Forwards a process's message to the control service.
    pub(super) fn route(&mut self, from: WorkerId, message: impl Into<Message>, out: &mut NodeActions) {
        if let Some(client) = self.clients.get_mut(&from) {
            client.is_known_to_control = true;
        }
        let message = Box::new(message.into());
        out.push(NodeAction::Control(ToControl::Routed { from, message }));
    }

    /// The control service sent a message.
    pub fn on_control(&mut self, message: ToNode, out: &mut NodeActions) {
        match message {
            ToNode::Routed { to, message } if to == super::values::transfers::address(self.id()) => {
                self.on_told(*message, out)
            }
            ToNode::Routed { to, message } => match self.clients.get_mut(&to) {
                Some(client) => {
                    client.is_known_to_control = true;
                    match *message {
                        Message::Sever(sever) => self.on_severed(to, &sever, out),
                        _ => out.push(NodeAction::Send(to, message)),
                    }
                }
                None => out.push(NodeAction::Control(ToControl::process_dead(to))),
            },
            ToNode::PlaceActor(place) => self.on_place_actor(*place, out),
            ToNode::Restore { takeover, restore } => self.on_restore(takeover, *restore, out),
            ToNode::EndActor { actor, takeover, end } => self.on_end_actor(actor, takeover, end, out),
            ToNode::Subscribed { actor, process, started } => {
                self.on_subscribed(actor, process, started.as_deref(), out);
            }
            ToNode::Started(started) => self.on_actor_started(&started, out),
            ToNode::Restarting(news) => self.on_actor_restarting(*news, out),
            ToNode::Dead(news) => self.on_actor_dead(*news, out),
            ToNode::LetGo(place) => {
                self.local_actors.forget_state(place);
                self.let_go(place, out);
            }
            ToNode::Bundles(order) => self.on_bundles(*order, out),
            ToNode::WorkerDead(gone) => self.on_dead_elsewhere(*gone, out),
            ToNode::Settled(settled) => self.on_settled(*settled, out),
            // Work for jobs of other nodes waits outside: see [`super::uplink`].
            ToNode::Job(_) => {}
        }
    }

    /// Places what can be placed. Called once after each batch of events.
    pub fn after_events(&mut self, now: Instant, out: &mut NodeActions) {
        self.now = now;
        self.send_refused(out);
        self.ask_about_bundles(now, out);
        self.place(out);
        while self.assign_workers(out) {}
        self.adjust_pool(now, out);
    }

    /// The first part of [`Self::after_events`]: sets resources aside for actors and leases.
    pub(crate) fn place(&mut self, out: &mut NodeActions) {
        self.unable.is_unsettled = false;
        self.notify_newcomers(out);
        self.answer_late_watches(out);
        self.ask_readers(out);
        if !self.draining.has_begun() {
            self.local_actors.resume(&mut self.resources, out);
            self.place_actors();
            self.place_leases(out);
        }
        self.send_lent(out);
    }

    /// The last part of [`Self::after_events`], after [`Self::assign_workers`]: starts workers and ends them.
    pub(crate) fn adjust_pool(&mut self, now: Instant, out: &mut NodeActions) {
        self.now = now;
        self.give_pulls_up(now, out);
        self.attend_starving(now, out);
        if self.draining.has_begun() {
            self.take_back_leases(out);
        } else {
            self.start_workers(now, out);
            self.reclaim(out);
        }
        self.trim_pool(now, out);
    }

    /// When [`Self::after_events`] should be called again although nothing happened.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let next_start = |placement| self.pool.next_start(self.job_of_placement(placement));
        let starts = self.placements.iter().filter_map(next_start).min();
        let pulls = [self.pulls.next_deadline(), self.home_pulls.next_deadline()];
        let rest = [starts, self.resources.next_deadline()].into_iter().chain(pulls);
        let at_once = (self.unable.is_unsettled || self.starving.has_news()).then_some(self.now);
        rest.chain([self.pool.next_trim(), self.next_move(), at_once]).flatten().min()
    }

    /// Asserts N1 and N2 as far as they show; for tests and the simulator.
    pub fn check(&self) {
        for (id, lease) in self.leases.iter() {
            let state = self.pool.state(lease.worker);
            assert_eq!(state, Some(WorkerState::Leased(id)), "N1: a lease has its worker");
        }
        for (id, asker) in &self.askers {
            let held = self.leases.of(*id).count();
            assert_eq!(held, asker.leases as usize, "N2: leases are counted per asker");
        }
    }

    /// Whether nothing is leased, placed or waiting and all resources are free.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.leases.is_empty()
            && self.placements.is_empty()
            && self.resources.free() == self.resources.total()
    }
}

#[cfg(test)]
mod tests;
