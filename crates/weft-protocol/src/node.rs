//! The core of a node: its resources, leases, worker pool, actors, names and block holders.
//!
//! It grants a lease when the resources are free and a worker is idle, queues the demand otherwise, and has more
//! workers forked when resources are free and workers are not. Placement decisions are made once per batch of
//! events, in [`NodeCore::settle`].
//!
//! Invariants:
//! - N1: a worker is starting, idle, leased or an actor's; it is in exactly one of these states.
//! - N2: resources are held by waiting placements, leases and actors, and by nobody else.
//! - N3: every demand is granted, withdrawn, or waits; one that can never be met is reported once.
//! - N4: processes hear of a peer before they hear of a lease or an actor there, and of its end after its last
//!   message.
//!
//! It never looks into a value: code, arguments and names of actors are bytes to it.

use std::collections::VecDeque;

use crate::probes::{bug, mark};
use weft_wire::limits::{WORKER_IDLE_NANOS, WORKERS_MAX, WORKERS_STARTING_MAX};
use weft_wire::message::{
    ActorReady, CreateActor, Failure, FailureCode, GivenBlocks, Infeasible, LeaseGranted, Message,
    ReclaimLease, RequestLease, Shutdown, UnknownBlocks, WorkerGone,
};
use weft_wire::{ActorId, LeaseId, ResourceSet, ShapeId, TaskId, WorkerId};

use crate::objects::{Holders, Lost};
use crate::scheduling::{Grant, NodeResources};
use crate::table::{Map, Set};
use crate::time::Instant;
use checkpoints::Checkpoints;
use departed::Departed;
use pace::Pace;

mod actors;
mod blocks;
mod checkpoints;
mod departed;
mod lookups;
mod pace;
mod questions;
mod report;
mod settling;

/// An effect the node asks for. Messages to one client stay in order.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeAction {
    /// Send a message to a client.
    Send(WorkerId, Box<Message>),
    /// Connect two clients with a socket pair and tell both.
    Introduce(WorkerId, WorkerId),
    /// Have the template fork a worker under this id.
    StartWorker(WorkerId),
    /// Kill a worker's process.
    KillWorker(WorkerId),
    /// A block of shared memory is free.
    FreeBlock(u64),
    /// Tell the user.
    Warn(String),
}

/// Actions in order.
pub type NodeActions = Vec<NodeAction>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WorkerState {
    Starting,
    Idle { since: Instant },
    Leased(LeaseId),
    Actor(ActorId),
}

#[derive(Debug)]
struct Worker {
    state: WorkerState,
    blocked: bool,
    /// The number of times it could not be started is bounded by this worker's end.
    pid: u32,
}

#[derive(Debug)]
struct Demand {
    resources: ResourceSet,
    count: u32,
    reported: bool,
}

#[derive(Debug, Default)]
struct Client {
    demands: Map<ShapeId, Demand>,
    leases: u32,
    /// It was asked to give a lease back and has not done so.
    reclaiming: bool,
    introduced: Set<WorkerId>,
}

#[derive(Debug)]
struct LeaseState {
    client: WorkerId,
    worker: WorkerId,
    grant: Grant,
}

/// A placement that has its resources and waits for a worker.
#[derive(Debug)]
enum Placement {
    Lease { client: WorkerId, shape: ShapeId, grant: Grant },
    Actor { actor: ActorId, grant: Grant },
}

#[derive(Debug)]
struct Actor {
    owner: WorkerId,
    concurrency: u32,
    phase: ActorPhase,
    subscribers: Set<WorkerId>,
    name: Option<(String, String)>,
    class: String,
    /// Its constructor has returned.
    is_ready: bool,
    /// How many processes took over so far.
    takeovers: u32,
    /// Why it is being ended, for the message its callers get.
    ending: Option<Failure>,
    /// How often a new process may still take over; -1 for ever.
    restarts: i32,
    /// What a new process is told: kept while there are restarts.
    creation: Option<Box<CreateActor>>,
    /// Blocks with arguments of its constructor that the node keeps for it.
    kept: Vec<u64>,
    detached: bool,
    /// Its owner has no reference to it any more, or never told of one.
    is_dropped: bool,
    /// How soon its next process may begin.
    pace: Pace,
    /// Of an actor that takes checkpoints.
    checkpoints: Option<Checkpoints>,
}

#[derive(Debug)]
enum ActorPhase {
    /// A name was reserved; the creation has not come.
    Reserved,
    /// Waits for resources or a worker.
    Waiting(Box<CreateActor>),
    /// Has a process.
    Placed { worker: WorkerId, grant: Grant },
    /// Gone, and why.
    Dead(Failure),
}

/// See the module.
#[derive(Debug)]
pub struct NodeCore {
    first_worker: u64,
    workers_made: u64,
    next_lease: u64,
    pool_size: usize,
    resources: NodeResources,
    clients: Map<WorkerId, Client>,
    workers: Map<WorkerId, Worker>,
    leases: Map<LeaseId, LeaseState>,
    actors: Map<ActorId, Actor>,
    names: Map<(String, String), (ActorId, weft_wire::Blob)>,
    waiting_actors: VecDeque<ActorId>,
    /// Actors that ended and that nobody refers to, the latest last: for those who look at the state.
    ended_actors: VecDeque<ActorId>,
    placements: VecDeque<Placement>,
    /// How soon the next worker may be started after one that ended before it was there.
    pace: Pace,
    departed: Departed,
    settling: settling::Settling,
    holders: Holders,
    lost: Lost,
    /// Clients that must be told what is lost.
    newcomers: Vec<WorkerId>,
    lookups: lookups::Lookups,
    /// Who is served next when several wait.
    turn: usize,
}

impl NodeCore {
    /// A node with these resources. Ids of its processes count up from `first_worker`, which must be unlike that of
    /// any other session; `pool_size` idle workers are kept.
    #[must_use]
    pub fn new(total: ResourceSet, first_worker: u64, pool_size: usize) -> Self {
        Self {
            first_worker,
            workers_made: 0,
            next_lease: 0,
            pool_size,
            resources: NodeResources::new(total),
            clients: Map::default(),
            workers: Map::default(),
            leases: Map::default(),
            actors: Map::default(),
            names: Map::default(),
            waiting_actors: VecDeque::new(),
            ended_actors: VecDeque::new(),
            placements: VecDeque::new(),
            pace: Pace::default(),
            departed: Departed::default(),
            settling: settling::Settling::default(),
            holders: Holders::default(),
            lost: Lost::default(),
            newcomers: Vec::new(),
            lookups: lookups::Lookups::default(),
            turn: 0,
        }
    }

    /// An id for a new process.
    pub fn new_worker_id(&mut self) -> WorkerId {
        self.workers_made += 1;
        WorkerId(self.first_worker + self.workers_made)
    }

    /// The holders of blocks.
    #[must_use]
    pub fn holders(&self) -> &Holders {
        &self.holders
    }

    /// A block was allocated for a client.
    pub fn on_allocated(&mut self, block: u64, client: WorkerId) {
        self.holders.insert(block, client);
    }

    /// A client is connected. A worker is idle from now on.
    pub fn on_connected(&mut self, client: WorkerId, pid: u32, now: Instant) {
        self.clients.insert(client, Client::default());
        self.newcomers.extend((!self.lost.is_empty()).then_some(client));
        if let Some(worker) = self.workers.get_mut(&client) {
            worker.pid = pid;
            worker.state = WorkerState::Idle { since: now };
            self.pace.is_well();
        }
    }

    /// Whether this id is that of a worker that is being started.
    #[must_use]
    pub fn expects(&self, worker: WorkerId) -> bool {
        self.workers.get(&worker).is_some_and(|w| w.state == WorkerState::Starting)
    }

    /// A worker could not be forked.
    pub fn on_start_failed(&mut self, worker: WorkerId, error: &str, out: &mut NodeActions) {
        if bug!(StartFailureForgotten) {
            return;
        }
        self.workers.swap_remove(&worker);
        self.pace.ended(false);
        out.push(NodeAction::Warn(format!("a worker process could not be started: {error}")));
    }

    /// A client's connection ended. `reason` is for people; `last_started` its last task.
    pub fn on_gone(
        &mut self,
        client: WorkerId,
        reason: &str,
        last_started: Option<TaskId>,
        out: &mut NodeActions,
    ) {
        let what = self.describe_process(client);
        let was_client = self.clients.swap_remove(&client).is_some();
        let state = self.workers.swap_remove(&client).map(|worker| (worker.state, worker.blocked));
        if !was_client && state.is_none() {
            return;
        }
        match state {
            Some((WorkerState::Leased(_), _)) if bug!(LeaseNotEnded) => {}
            Some((WorkerState::Leased(lease), blocked)) => {
                self.end_lease(lease, blocked);
            }
            Some((WorkerState::Starting, _)) => self.pace.ended(false),
            Some((WorkerState::Idle { .. } | WorkerState::Actor(_), _)) | None => {}
        }
        let held: Vec<LeaseId> =
            self.leases.iter().filter(|(_, l)| l.client == client).map(|(id, _)| *id).collect();
        for lease in held {
            // Its caller is gone: the task in it is nobody's. The process is not trusted to be idle.
            let state = self.leases.get(&lease).expect("listed above");
            out.push(NodeAction::KillWorker(state.worker));
        }
        self.drop_placements_of(client);
        self.forget_client(client);
        let gone = WorkerGone { worker: client, reason: reason.to_owned(), last_started, what };
        self.departed.note(&gone);
        self.tell_all(&gone.clone().into(), out);
        if let Some((WorkerState::Actor(actor), blocked)) = state {
            self.on_actor_process_gone(actor, blocked, &gone, out);
        }
        self.end_actors_of(client, out);
        self.end_lookups_of(client, out);
        self.settle_death(client, out);
        self.orphan_blocks_of(client, out);
        self.lost_blocks_gone(client, out);
        for (receiver, offsets) in self.holders.given_by(client) {
            let question = GivenBlocks { giver: client, offsets };
            out.push(NodeAction::Send(receiver, Box::new(question.into())));
        }
    }

    /// Says the same to every client.
    fn tell_all(&self, message: &Message, out: &mut NodeActions) {
        out.extend(self.clients.keys().map(|client| NodeAction::Send(*client, Box::new(message.clone()))));
    }

    fn end_lease(&mut self, lease: LeaseId, blocked: bool) -> Option<WorkerId> {
        let state = self.leases.swap_remove(&lease)?;
        if blocked {
            mark!("a lease ended while its worker was blocked");
        }
        if bug!(OwnerDeathHandledTwice) && !self.clients.contains_key(&state.client) {
            self.resources.release(&state.grant);
        }
        if blocked {
            self.resources.reclaim_cpu(&state.grant);
        }
        self.resources.release(&state.grant);
        if let Some(client) = self.clients.get_mut(&state.client) {
            client.leases -= 1;
            client.reclaiming = false;
        }
        Some(state.worker)
    }

    /// Nobody is to be told of anything by, or connected to, a process that is gone.
    fn forget_client(&mut self, gone: WorkerId) {
        for actor in self.actors.values_mut() {
            actor.subscribers.swap_remove(&gone);
        }
        for client in self.clients.values_mut() {
            client.introduced.swap_remove(&gone);
        }
    }

    fn drop_placements_of(&mut self, gone: WorkerId) {
        self.drop_placements(|client, _| client == gone);
    }

    fn drop_placements(&mut self, which: impl Fn(WorkerId, ShapeId) -> bool) {
        let mut kept = VecDeque::new();
        for placement in std::mem::take(&mut self.placements) {
            match &placement {
                Placement::Lease { client, shape, grant } if which(*client, *shape) => {
                    self.resources.release(grant);
                }
                Placement::Lease { .. } | Placement::Actor { .. } => kept.push_back(placement),
            }
        }
        self.placements = kept;
    }

    /// A message came from a client. What the core does not handle (allocation) comes back.
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
            Message::Connect(connect) => self.on_connect(from, connect.worker, out),
            Message::CreateActor(create) => self.on_create_actor(from, create, out),
            Message::SubscribeActor(subscribe) => self.on_subscribe(from, subscribe.actor, out),
            Message::KillActor(kill) => self.on_kill_actor(kill.actor, kill.may_restart == Some(true), out),
            Message::ActorOutOfScope(gone) => self.on_out_of_scope(gone.actor, out),
            Message::ActorReady(ActorReady { actor, failure }) => {
                self.on_actor_ready(actor, failure, out);
            }
            Message::Checkpoint(checkpoint) => self.on_checkpoint(from, checkpoint, out),
            Message::ReserveName(reserve) => self.on_reserve_name(from, reserve, out),
            Message::FindName(find) => self.on_find_name(from, &find, out),
            Message::ListNames(list) => self.on_list_names(from, &list, out),
            Message::Query(query) => self.on_query(from, &query, out),
            Message::FreeBlocks(free) => {
                for block in free.offsets {
                    if self.holders.release(block, from) {
                        self.free_block(block, out);
                    }
                }
            }
            Message::LoseBlocks(lose) => self.lose_blocks(&lose.offsets, out),
            Message::GiveBlock(give) => {
                let is_gone = |process| !self.clients.contains_key(&process);
                if self.holders.give(give.offset, from, give.owner, &is_gone) {
                    self.free_block(give.offset, out);
                } else if is_gone(give.owner)
                    && let Some(receiver) = self.holders.given_on_by(give.offset, give.owner)
                {
                    let question = GivenBlocks { giver: give.owner, offsets: vec![give.offset] };
                    out.push(NodeAction::Send(receiver, Box::new(question.into())));
                }
            }
            Message::HeldFrom(answer) => self.on_held_from(from, answer, out),
            Message::UnknownBlocks(UnknownBlocks { giver, offsets }) => {
                for block in offsets {
                    if self.holders.disown(block, giver, from) {
                        self.free_block(block, out);
                    }
                }
            }
            Message::StillRead(answer) => {
                self.on_looked_up(answer.round, out);
                self.on_forgotten(answer.round, from, out);
                let free = self.holders.on_answer(from, &answer);
                free.into_iter().for_each(|block| self.free_block(block, out));
            }
            other => return Some(other),
        }
        None
    }

    fn on_request(&mut self, from: WorkerId, request: RequestLease) {
        if request.demand == 0 {
            self.drop_placements(|client, shape| client == from && shape == request.shape);
        }
        let Some(client) = self.clients.get_mut(&from) else { return };
        let demand = client.demands.entry(request.shape).or_insert(Demand {
            resources: request.resources,
            count: 0,
            reported: false,
        });
        demand.count = request.demand;
    }

    fn on_return(&mut self, from: WorkerId, lease: LeaseId, now: Instant, out: &mut NodeActions) {
        if self.leases.get(&lease).is_none_or(|state| state.client != from) {
            return;
        }
        let state = self.leases.get(&lease).expect("checked above");
        let worker = state.worker;
        let uses_gpu = !state.grant.gpu_indices().is_empty();
        let blocked = self.workers.get(&worker).is_some_and(|w| w.blocked);
        self.end_lease(lease, blocked);
        if uses_gpu {
            // A process keeps what a GPU library set up in it; the next user must not find it.
            out.push(NodeAction::KillWorker(worker));
            return;
        }
        if let Some(worker) = self.workers.get_mut(&worker) {
            worker.state = WorkerState::Idle { since: now };
            worker.blocked = false;
        }
    }

    fn on_blocked(&mut self, from: WorkerId, blocked: bool) {
        let Some(worker) = self.workers.get_mut(&from) else { return };
        if worker.blocked == blocked {
            return;
        }
        let grant = match worker.state {
            WorkerState::Leased(lease) => self.leases.get(&lease).map(|state| &state.grant),
            WorkerState::Actor(actor) => match self.actors.get(&actor).map(|a| &a.phase) {
                Some(ActorPhase::Placed { grant, .. }) => Some(grant),
                _ => None,
            },
            WorkerState::Starting | WorkerState::Idle { .. } => None,
        };
        let Some(grant) = grant else { return };
        worker.blocked = blocked;
        if blocked {
            self.resources.lend_cpu(grant);
        } else if !bug!(CpuNotReclaimed) {
            self.resources.reclaim_cpu(grant);
        }
    }

    fn on_connect(&mut self, from: WorkerId, to: WorkerId, out: &mut NodeActions) {
        if self.clients.contains_key(&to) {
            self.introduce(from, to, out);
        } else {
            out.push(NodeAction::Send(from, Box::new(self.departed.of(to).into())));
            self.tell_if_settled(from, to, out);
        }
    }

    /// Connects two clients, once.
    fn introduce(&mut self, a: WorkerId, b: WorkerId, out: &mut NodeActions) {
        if a == b {
            return;
        }
        if let Some(client) = self.clients.get_mut(&a)
            && client.introduced.insert(b)
        {
            if let Some(other) = self.clients.get_mut(&b) {
                other.introduced.insert(a);
            }
            out.push(NodeAction::Introduce(a, b));
        }
    }

    /// Places what can be placed. Called once after each batch of events.
    pub fn settle(&mut self, now: Instant, out: &mut NodeActions) {
        self.tell_newcomers(out);
        self.ask_readers(out);
        self.place_actors(now);
        self.place_leases(out);
        self.assign_workers(now, out);
        self.reclaim(out);
        self.trim_pool(now, out);
    }

    fn place_leases(&mut self, out: &mut NodeActions) {
        let count = self.clients.len();
        if count == 0 {
            return;
        }
        // One lease per client and pass, beginning behind the client that was served last: nobody starves.
        let mut placed = true;
        while placed {
            placed = false;
            let first = self.turn;
            for step in 0..count {
                let at = (first + step) % count;
                if self.place_one(at, out) {
                    placed = true;
                    self.turn = at + 1;
                }
            }
        }
    }

    fn place_one(&mut self, at: usize, out: &mut NodeActions) -> bool {
        let (id, client) = self.clients.get_index_mut(at).expect("below the count");
        for (shape, demand) in &mut client.demands {
            if demand.count == 0 {
                continue;
            }
            if !self.resources.is_feasible(&demand.resources) {
                if !demand.reported {
                    demand.reported = true;
                    let report =
                        Infeasible { asked: demand.resources.clone(), total: self.resources.total().clone() };
                    out.push(NodeAction::Send(*id, Box::new(report.into())));
                }
                continue;
            }
            if let Some(grant) = self.resources.acquire(&demand.resources) {
                demand.count -= 1;
                self.placements.push_back(Placement::Lease { client: *id, shape: *shape, grant });
                return true;
            }
        }
        false
    }

    fn assign_workers(&mut self, now: Instant, out: &mut NodeActions) {
        while let Some(placement) = self.placements.pop_front() {
            // A process never works for itself: its task may wait for the very lease it would be.
            let caller = match &placement {
                Placement::Lease { client, .. } => *client,
                Placement::Actor { actor, .. } => actor.owner,
            };
            let idle = self
                .workers
                .iter()
                .rev()
                .find(|(id, worker)| **id != caller && matches!(worker.state, WorkerState::Idle { .. }))
                .map(|(id, _)| *id);
            let Some(worker) = idle else {
                self.placements.push_front(placement);
                break;
            };
            match placement {
                Placement::Lease { client, shape, grant } => {
                    self.grant_lease(client, shape, grant, worker, out);
                }
                Placement::Actor { actor, grant } => self.start_actor(actor, grant, worker, out),
            }
        }
        self.start_workers(now, out);
    }

    fn grant_lease(
        &mut self,
        client: WorkerId,
        shape: ShapeId,
        grant: Grant,
        worker: WorkerId,
        out: &mut NodeActions,
    ) {
        self.next_lease += 1;
        let lease = LeaseId(self.next_lease);
        self.workers[&worker].state = WorkerState::Leased(lease);
        self.introduce(client, worker, out);
        let gpus = grant.gpu_indices();
        self.leases.insert(lease, LeaseState { client, worker, grant });
        if let Some(client) = self.clients.get_mut(&client) {
            client.leases += 1;
        }
        let granted = LeaseGranted { shape, lease, worker, gpus };
        out.push(NodeAction::Send(client, Box::new(granted.into())));
    }

    fn start_workers(&mut self, now: Instant, out: &mut NodeActions) {
        let mut starting = self.workers.values().filter(|w| w.state == WorkerState::Starting).count();
        let wanted = self.placements.len().min(WORKERS_STARTING_MAX);
        if wanted == 0 || !self.pace.may_begin(now) {
            return;
        }
        while starting < wanted && self.workers.len() < WORKERS_MAX {
            let id = self.new_worker_id();
            let worker = Worker { state: WorkerState::Starting, blocked: false, pid: 0 };
            self.workers.insert(id, worker);
            out.push(NodeAction::StartWorker(id));
            starting += 1;
        }
    }

    /// Asks the client with most leases to give one to a client that waits and has fewer.
    fn reclaim(&mut self, out: &mut NodeActions) {
        let waits = |client: &Client| {
            client.demands.values().any(|d| d.count > 0 && self.resources.is_feasible(&d.resources))
        };
        let Some(fewest) = self.clients.values().filter(|c| waits(c)).map(|c| c.leases).min() else {
            return;
        };
        let most = self.clients.iter_mut().max_by_key(|(_, client)| client.leases);
        if let Some((id, client)) = most
            && client.leases > fewest
            && !client.reclaiming
        {
            client.reclaiming = true;
            out.push(NodeAction::Send(*id, Box::new(ReclaimLease { count: 1 }.into())));
        }
    }

    /// Ends idle workers beyond the pool's size. Their oldest go first.
    fn trim_pool(&mut self, now: Instant, out: &mut NodeActions) {
        let idle: Vec<(WorkerId, Instant)> = self
            .workers
            .iter()
            .filter_map(|(id, worker)| match worker.state {
                WorkerState::Idle { since } => Some((*id, since)),
                _ => None,
            })
            .collect();
        let excess = idle.len().saturating_sub(self.pool_size);
        for (worker, _) in
            idle.into_iter().filter(|(_, since)| now.since(*since) >= WORKER_IDLE_NANOS).take(excess)
        {
            // Not idle any more: it may not be granted between this message and its end.
            self.workers[&worker].state = WorkerState::Leased(LeaseId(0));
            let end = Shutdown { reason: "idle".to_owned() };
            out.push(NodeAction::Send(worker, Box::new(end.into())));
        }
    }

    /// When [`Self::settle`] should be called again although nothing happened.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let starts = (!self.placements.is_empty()).then(|| self.pace.next()).flatten();
        let restarts = self.waiting_actors.iter().filter_map(|id| self.actors.get(id)?.pace.next()).min();
        [self.next_trim(), starts, restarts].into_iter().flatten().min()
    }

    fn next_trim(&self) -> Option<Instant> {
        let idle: Vec<Instant> = self
            .workers
            .values()
            .filter_map(|worker| match worker.state {
                WorkerState::Idle { since } => Some(since),
                _ => None,
            })
            .collect();
        if idle.len() <= self.pool_size {
            return None;
        }
        idle.iter().min().map(|since| since.plus(WORKER_IDLE_NANOS))
    }

    /// Asserts N1 and N2 as far as they show; for tests and the simulator.
    pub fn check(&self) {
        for (id, lease) in &self.leases {
            let state = self.workers.get(&lease.worker).map(|w| w.state);
            assert_eq!(state, Some(WorkerState::Leased(*id)), "N1: a lease has its worker");
        }
        for (id, client) in &self.clients {
            let held = self.leases.values().filter(|lease| lease.client == *id).count();
            assert_eq!(held, client.leases as usize, "N2: leases are counted per client");
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

fn actor_died(message: impl Into<String>) -> Failure {
    Failure::new(FailureCode::ActorDied, message)
}

#[cfg(test)]
mod tests;
