//! Leases of one process, by resource shape (Ownership, section 4.1; Oakes, chapter 4).
//!
//! The caller asks the node for as many workers of a shape as it has queued tasks, keeps a lease while it has
//! such tasks, and pushes several short tasks ahead. How far ahead depends on how long the function took
//! before: an unknown or long task is pushed only to an idle worker, so that nothing waits behind it.
//!
//! Invariants:
//! - L1: a task is in the queue of its shape or in flight on one lease, never both.
//! - L2: `backlog` of a lease is the sum of the estimates of its tasks in flight.
//! - L3: `demanded` is what the node was last told, less what it granted since.
//!
//! Tasks whose arguments are in the memory of another node wait in a lane of their shape: see
//! [`super::lanes`].
//!
//! It never sends a task itself: [`Leases::next_push`] names task and worker.

use std::collections::VecDeque;

use crate::probes::bug;
use sooner_wire::limits::{
    LEASE_ARGUMENT_BYTES, LEASE_ARGUMENT_SHARE, LEASE_BACKLOG_NANOS, LEASE_BACKLOG_TASKS, LEASE_DEMAND_MAX,
    LEASE_IDLE_NANOS, LEASE_SLICE_NANOS,
};
use sooner_wire::message::{Failure, LeaseGranted, ReclaimLease, RequestLease, ReturnLease};
use sooner_wire::{FunctionId, LeaseId, NodeId, ResourceSet, ShapeId, Strategy, WorkerId};

use super::lanes::Lane;
use super::queue::Queue;
use crate::table::Map;
use crate::time::Instant;
use crate::worker::action::{Actions, Peer, send};

/// A worker that is leased to this process.
#[derive(Debug, Clone)]
pub struct Lease {
    id: LeaseId,
    pub(super) worker: WorkerId,
    /// The shape or lane that it was asked for.
    pub(super) asked_by: ShapeId,
    gpus: Vec<u32>,
    /// Task numbers in the order they were pushed.
    in_flight: VecDeque<u64>,
    backlog: u64,
    /// Bytes in memory of the arguments of tasks pushed since it was last idle: they stay until the tasks
    /// have run.
    argument_bytes: u64,
    granted: Instant,
    idle_since: Instant,
    /// The worker sent tasks back: it is busy with a long task and gets no more until it replies.
    stalled: bool,
    /// The node wants the lease back, or the worker's node is dead: the worker gets no more tasks.
    draining: bool,
    /// The connection to the worker is full.
    held: bool,
}

/// A resource shape and its tasks.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    pub(super) resources: ResourceSet,
    pub(super) strategy: Option<Box<Strategy>>,
    /// Its tasks are executed again with a larger reservation if they end for want of memory.
    pub(super) raises_memory: bool,
    pub(super) queue: Queue,
    /// Of a shape and all its lanes: a lane's leases are with its shape.
    pub(super) leases: Vec<Lease>,
    /// Set if it is a lane of another shape.
    pub(super) lane: Option<Lane>,
    /// The lanes of this shape.
    pub(super) lanes: Vec<ShapeId>,
    /// How often the lanes were served.
    pub(super) turn: usize,
    demanded: u32,
    /// The priority that was sent to the node last.
    priority: i32,
    /// If no worker will ever be granted: the failure of its tasks.
    closed: Option<Box<Failure>>,
}

/// The parts of a reply that concern leases.
#[derive(Debug, Clone, Copy)]
pub struct Replied {
    /// Shape of the task.
    pub shape: ShapeId,
    /// The worker that ran the task.
    pub worker: WorkerId,
    /// The task.
    pub task: u64,
    /// Its expected run time when it was pushed (nanoseconds).
    pub estimate: u64,
    /// Its function.
    pub function: FunctionId,
    /// How long it ran (nanoseconds).
    pub nanos: u64,
}

/// A task and the worker it goes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushTo {
    /// The task.
    pub task: u64,
    /// The leased worker.
    pub worker: WorkerId,
    /// GPUs of the lease.
    pub gpus: Vec<u32>,
    /// Its expected run time (nanoseconds).
    pub estimate: u64,
}

/// What makes a shape: resources, where its tasks run, and whether they are executed again with a larger
/// reservation if they end for want of memory.
type Key = (ResourceSet, Option<Box<Strategy>>, bool);

/// All shapes and leases of a process.
#[derive(Debug, Default)]
pub struct Leases {
    pub(super) shapes: Vec<Shape>,
    numbers: Map<Key, ShapeId>,
    /// Shapes that have lanes.
    pub(super) laned: Vec<ShapeId>,
    /// Recent run time per function (nanoseconds).
    durations: Map<FunctionId, u64>,
    /// Leases that the node asked back and did not get yet.
    owed: u32,
    /// Bytes of arguments in memory of the tasks that wait at one worker; `None`: unlimited.
    argument_bytes_max: Option<u64>,
    /// When to look for leases to give back.
    look_at: Option<Instant>,
}

impl Leases {
    /// The number of a shape: the resources its tasks hold, and where they are to run.
    pub fn shape(&mut self, resources: &ResourceSet, strategy: Option<&Strategy>) -> ShapeId {
        self.numbered((resources.clone(), strategy.cloned().map(Box::new), false))
    }

    /// The same shape for tasks that are (or are not) executed again with a larger reservation if they end
    /// for want of memory. Tasks that reserve none have only one.
    pub fn raising_memory(&mut self, shape: ShapeId, raises: bool) -> ShapeId {
        let this = &self.shapes[shape.0 as usize];
        if this.raises_memory == raises || this.resources.amount("memory") == 0 {
            return shape;
        }
        let key = (this.resources.clone(), this.strategy.clone(), raises);
        self.numbered(key)
    }

    fn numbered(&mut self, key: Key) -> ShapeId {
        if let Some(id) = self.numbers.get(&key) {
            return *id;
        }
        let (resources, strategy, raises_memory) = key.clone();
        let id = self.add_shape(resources, strategy, None);
        self.shape_mut(id).raises_memory = raises_memory;
        self.numbers.insert(key, id);
        id
    }

    /// The resources of a shape's tasks, and where they run.
    #[must_use]
    pub fn described(&self, shape: ShapeId) -> Option<(&ResourceSet, Option<&Strategy>)> {
        let shape = self.shapes.get(shape.0 as usize)?;
        Some((&shape.resources, shape.strategy.as_deref()))
    }

    pub(super) fn add_shape(
        &mut self,
        resources: ResourceSet,
        strategy: Option<Box<Strategy>>,
        lane: Option<Lane>,
    ) -> ShapeId {
        let id = ShapeId(u32::try_from(self.shapes.len()).expect("few shapes"));
        self.shapes.push(Shape {
            resources,
            strategy,
            raises_memory: false,
            queue: Queue::default(),
            leases: Vec::new(),
            lane,
            lanes: Vec::new(),
            turn: 0,
            demanded: 0,
            priority: 0,
            closed: None,
        });
        id
    }

    pub(super) fn shape_mut(&mut self, shape: ShapeId) -> &mut Shape {
        &mut self.shapes[shape.0 as usize]
    }

    /// A task is ready to run.
    pub fn enqueue(&mut self, shape: ShapeId, task: u64, priority: Option<i32>) {
        self.shape_mut(shape).queue.push_back(priority.unwrap_or(0), task);
    }

    /// Queues a task that was pushed and did not run, in front.
    pub fn enqueue_front(&mut self, shape: ShapeId, task: u64, priority: Option<i32>) {
        self.shape_mut(shape).queue.push_front(priority.unwrap_or(0), task);
    }

    /// Takes out a queued task.
    pub fn remove_queued(&mut self, shape: ShapeId, task: u64) {
        self.shape_mut(shape).queue.remove(task);
    }

    /// No worker will ever be granted for this shape: waiting and later tasks fail.
    pub fn close(&mut self, shape: ShapeId, failure: Failure) {
        if let Some(shape) = self.shapes.get_mut(shape.0 as usize) {
            shape.closed = Some(Box::new(failure));
            shape.demanded = 0;
        }
    }

    /// The failure of the tasks of a closed shape.
    #[must_use]
    pub fn closed(&self, shape: ShapeId) -> Option<&Failure> {
        self.shapes.get(shape.0 as usize)?.closed.as_deref()
    }

    /// Takes out the tasks of a closed shape, with their failure.
    pub fn take_stranded(&mut self, shape: ShapeId) -> Option<(Vec<u64>, Failure)> {
        let shape = self.shapes.get_mut(shape.0 as usize)?;
        let failure = shape.closed.as_deref()?.clone();
        Some((shape.queue.drain(), failure))
    }

    /// The node could get no worker for the waiting tasks, for now. Takes them out, unless workers that are
    /// leased may run them; tasks that are left are asked for anew.
    pub fn give_up(&mut self, id: ShapeId, out: &mut Actions) -> Vec<u64> {
        if self.shapes.get(id.0 as usize).is_none() {
            return Vec::new();
        }
        let is_served = self.home_mut(id).leases.iter().any(|lease| !lease.draining);
        let shape = self.shape_mut(id);
        let tasks = if is_served { Vec::new() } else { shape.queue.drain() };
        shape.notify_demand(id, out);
        tasks
    }

    /// The next queued task of a shape, for the caller to name its function; `None` also when no lease has
    /// room for any task.
    #[must_use]
    pub fn front(&self, shape: ShapeId) -> Option<u64> {
        let shape = self.shapes.get(shape.0 as usize)?;
        let task = shape.queue.front()?;
        shape.leases.iter().any(|lease| lease.has_room(0)).then_some(task)
    }

    /// All shapes but lanes, which are served with their shapes.
    #[must_use]
    pub fn shape_ids(&self) -> Vec<ShapeId> {
        let all = (0..).map(ShapeId).zip(&self.shapes);
        all.filter(|(_, shape)| shape.lane.is_none()).map(|(id, _)| id).collect()
    }

    /// Assigns the front task of a shape to the least loaded lease that has room for it.
    ///
    /// `bytes`: those of its arguments in memory.
    pub fn next_push(&mut self, shape: ShapeId, function: FunctionId, bytes: u64) -> Option<PushTo> {
        let (estimate, bytes_max) = (self.estimate(function), self.argument_bytes_max);
        let shape = self.shape_mut(shape);
        let lease = shape
            .leases
            .iter_mut()
            .filter(|lease| lease.has_room(estimate) && lease.has_room_for(bytes, bytes_max))
            .min_by_key(|lease| lease.backlog)?;
        let task = shape.queue.pop_front()?;
        lease.record_arguments(bytes);
        Some(lease.push(task, estimate))
    }

    /// The node's memory has `bytes` bytes: arguments of waiting tasks may take a small part of it.
    pub fn set_store_bytes(&mut self, bytes: u64) {
        self.argument_bytes_max = Some(argument_bytes_max(bytes));
    }

    /// The expected run time of a function (nanoseconds).
    #[inline]
    pub(super) fn estimate(&self, function: FunctionId) -> u64 {
        self.durations.get(&function).copied().unwrap_or(LEASE_BACKLOG_NANOS)
    }

    /// Tells the node how many more leases the queue could use, and how urgent its first task is: once, then
    /// again when the demand was met or a more urgent task came. False if the shape is closed and tasks wait.
    #[inline]
    pub fn update_demand(&mut self, id: ShapeId, out: &mut Actions) -> bool {
        let shape = self.shape_mut(id);
        let waits = !shape.queue.is_empty();
        let changed = waits == (shape.demanded == 0) || (waits && shape.queue.priority() != shape.priority);
        !changed || shape.notify_demand(id, out)
    }

    /// The node granted a lease.
    pub fn on_granted(&mut self, grant: LeaseGranted, now: Instant) {
        let asked_by = grant.shape;
        let shape = self.shape_mut(asked_by);
        if !bug!(DemandForgotten) {
            shape.demanded = shape.demanded.saturating_sub(1);
        }
        self.home_mut(asked_by).leases.push(Lease {
            id: grant.lease,
            worker: grant.worker,
            asked_by,
            gpus: grant.gpus,
            in_flight: VecDeque::new(),
            backlog: 0,
            argument_bytes: 0,
            granted: now,
            idle_since: now,
            stalled: false,
            draining: false,
            held: false,
        });
    }

    /// A pushed task replied. True if the lease goes back, because the shape's tasks are to be spread: the
    /// next one is placed anew, among the nodes of that time. Short tasks in a row keep the lease for a
    /// slice.
    pub fn on_reply(&mut self, replied: &Replied, now: Instant) -> bool {
        let Replied { shape, worker, task, estimate, function, nanos } = *replied;
        let spreads = self.spreads(shape);
        // Half old, half new: follows a change within a few tasks, ignores a single odd one.
        let duration = self.durations.entry(function).or_insert(nanos);
        *duration = *duration / 2 + nanos / 2;
        let Some(lease) = self.lease_mut(shape, worker) else { return false };
        lease.take(task, estimate);
        lease.stalled = false;
        lease.idle_since = now;
        let goes = spreads && lease.in_flight.is_empty() && now.since(lease.granted) >= LEASE_SLICE_NANOS;
        lease.draining |= goes;
        goes
    }

    /// Whether tasks of a shape are to run on all nodes in turn.
    fn spreads(&self, shape: ShapeId) -> bool {
        match self.shapes[shape.0 as usize].strategy.as_deref() {
            Some(Strategy::Spread) => true,
            Some(Strategy::Labels(labels)) => labels.spread,
            Some(Strategy::Node(_) | Strategy::Group(_)) | None => false,
        }
    }

    /// The worker sent a task back unexecuted.
    pub fn on_returned(&mut self, shape: ShapeId, worker: WorkerId, task: u64, estimate: u64) {
        if let Some(lease) = self.lease_mut(shape, worker) {
            lease.take(task, estimate);
            lease.stalled = !lease.in_flight.is_empty();
        }
    }

    fn lease_mut(&mut self, shape: ShapeId, worker: WorkerId) -> Option<&mut Lease> {
        self.home_mut(shape).leases.iter_mut().find(|lease| lease.worker == worker)
    }

    /// The tasks that are in flight on workers.
    pub fn in_flight(&self) -> impl Iterator<Item = u64> {
        self.shapes.iter().flat_map(|shape| &shape.leases).flat_map(|lease| lease.in_flight.iter().copied())
    }

    /// The connection to a worker is full, or has room again.
    pub fn set_held(&mut self, worker: WorkerId, held: bool) {
        let leases = self.shapes.iter_mut().flat_map(|shape| &mut shape.leases);
        leases.filter(|lease| lease.worker == worker).for_each(|lease| lease.held = held);
    }

    /// A worker died. Returns the tasks it had, in the order they were pushed.
    pub fn on_worker_dead(&mut self, worker: WorkerId) -> Vec<u64> {
        let mut tasks = Vec::new();
        for shape in &mut self.shapes {
            for lease in shape.leases.extract_if(.., |lease| lease.worker == worker) {
                tasks.extend(lease.in_flight);
            }
        }
        tasks
    }

    /// A node is dead. Its processes' deaths are reported one by one: no worker of it, reported or not, gets
    /// another task, which would be lost.
    pub fn on_node_dead(&mut self, node: NodeId) {
        let leases = self.shapes.iter_mut().flat_map(|shape| &mut shape.leases);
        leases.filter(|lease| lease.node() == node).for_each(|lease| lease.draining = true);
    }

    /// A worker takes no more tasks, and gives back those that it has.
    pub fn on_worker_retired(&mut self, worker: WorkerId) {
        let leases = self.shapes.iter_mut().flat_map(|shape| &mut shape.leases);
        leases.filter(|lease| lease.worker == worker).for_each(|lease| lease.draining = true);
    }

    /// The node wants leases for others: a number of them, or a named one.
    pub fn on_reclaim(&mut self, reclaim: &ReclaimLease) {
        let Some(wanted) = reclaim.lease else {
            self.owed = self.owed.max(reclaim.count);
            return;
        };
        let leases = self.shapes.iter_mut().flat_map(|shape| &mut shape.leases);
        // A lease that is not found was given back meanwhile.
        if let Some(lease) = leases.into_iter().find(|lease| lease.id == wanted) {
            lease.draining = true;
        }
    }

    /// When leases may have to go back: see [`Leases::return_leases`].
    #[must_use]
    pub fn next_return(&self) -> Option<Instant> {
        self.look_at
    }

    /// Gives back leases that are idle for long, owed, or drained.
    pub fn return_leases(&mut self, now: Instant, out: &mut Actions) {
        let mut next: Option<Instant> = None;
        if self.owed > 0 {
            self.drain_owed(now);
        }
        let laned: Vec<ShapeId> =
            self.laned.iter().copied().filter(|shape| self.is_lane_busy(*shape)).collect();
        for (id, shape) in (0..).map(ShapeId).zip(&mut self.shapes) {
            let busy = !shape.queue.is_empty() || laned.contains(&id);
            shape.leases.retain(|lease| {
                let idle = lease.in_flight.is_empty();
                let expired = !busy && now.since(lease.idle_since) >= LEASE_IDLE_NANOS;
                if idle && (lease.draining || expired) {
                    if !bug!(LeaseNotReturned) {
                        send(out, Peer::Node, ReturnLease { lease: lease.id });
                    }
                    return false;
                }
                // A task held back beside an idle lease may be taken out of the queue without notice here.
                let since = if busy { now } else { lease.idle_since };
                let expires = idle.then(|| since.plus(LEASE_IDLE_NANOS));
                let is_wanted = self.owed > 0 && (busy || !idle) && !lease.draining;
                let goes = is_wanted.then(|| lease.granted.plus(LEASE_SLICE_NANOS));
                next = [next, expires, goes].into_iter().flatten().min();
                true
            });
        }
        self.look_at = next;
    }

    /// Chooses leases to give back, those with the least urgent work first.
    fn drain_owed(&mut self, now: Instant) {
        let mut order = self.shape_ids();
        order.sort_by_key(|id| self.priority(*id));
        for id in order {
            let busy_lane = self.is_lane_busy(id);
            let shape = &mut self.shapes[id.0 as usize];
            let busy = busy_lane || !shape.queue.is_empty();
            let may_go = |lease: &&mut Lease| {
                !lease.draining && (!busy || now.since(lease.granted) >= LEASE_SLICE_NANOS)
            };
            for lease in shape.leases.iter_mut().filter(may_go).take(self.owed as usize) {
                lease.draining = true;
                self.owed -= 1;
            }
        }
    }

    /// The resources of a shape's tasks.
    #[must_use]
    pub fn resources(&self, shape: ShapeId) -> Option<&ResourceSet> {
        self.shapes.get(shape.0 as usize).map(|shape| &shape.resources)
    }

    /// Every shape, with its lanes: resources, tasks queued, leases, tasks in flight.
    pub fn shapes(&self) -> impl Iterator<Item = (&ResourceSet, usize, usize, usize)> {
        self.shapes.iter().filter(|shape| shape.lane.is_none()).map(|shape| {
            let in_flight = shape.leases.iter().map(|lease| lease.in_flight.len()).sum();
            let in_lanes: usize = shape.lanes.iter().map(|id| self.shapes[id.0 as usize].queue.len()).sum();
            (&shape.resources, shape.queue.len() + in_lanes, shape.leases.len(), in_flight)
        })
    }

    /// Leases held now.
    #[must_use]
    pub fn held(&self) -> usize {
        self.shapes.iter().map(|shape| shape.leases.len()).sum()
    }

    /// Checks L2.
    pub fn check(&self, estimate_of: impl Fn(u64) -> u64) {
        for lease in self.shapes.iter().flat_map(|shape| &shape.leases) {
            let sum: u64 = lease.in_flight.iter().map(|task| estimate_of(*task)).sum();
            assert_eq!(lease.backlog, sum, "L2: backlog is the sum of the estimates");
        }
    }
}

impl Shape {
    /// Whether it has no tasks, the node was asked for nothing, and has not closed it.
    pub(super) fn is_unused(&self) -> bool {
        self.queue.is_empty() && self.demanded == 0 && self.closed.is_none()
    }

    /// The part of [`Leases::update_demand`] that sends.
    fn notify_demand(&mut self, id: ShapeId, out: &mut Actions) -> bool {
        let demand = u32::try_from(self.queue.len()).unwrap_or(u32::MAX).min(LEASE_DEMAND_MAX);
        if self.closed.is_some() {
            return demand == 0;
        }
        let priority = self.queue.priority();
        self.demanded = demand;
        self.priority = priority;
        let (resources, strategy) = (self.resources.clone(), self.strategy.clone());
        let prefer = self.lane.as_ref().map(|lane| lane.node);
        let priority = (priority != 0).then_some(priority);
        let raises_memory = self.raises_memory.then_some(true);
        let request =
            RequestLease { shape: id, resources, demand, strategy, prefer, priority, raises_memory };
        send(out, Peer::Node, request);
        true
    }
}

impl Lease {
    /// Assigns a task to the worker.
    pub(super) fn push(&mut self, task: u64, estimate: u64) -> PushTo {
        self.in_flight.push_back(task);
        self.backlog += estimate;
        PushTo { task, worker: self.worker, gpus: self.gpus.clone(), estimate }
    }

    /// Whether the worker has no task and may get one.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && !self.draining && !self.held
    }

    /// The node of its worker.
    pub(super) fn node(&self) -> NodeId {
        self.worker.node()
    }

    /// Estimated work that is in flight on it (nanoseconds).
    pub(super) fn backlog(&self) -> u64 {
        self.backlog
    }

    /// Whether a task with `bytes` bytes of arguments may wait there: a waiting task keeps them in memory.
    fn has_room_for(&self, bytes: u64, max: Option<u64>) -> bool {
        let fits = || max.is_none_or(|max| self.argument_bytes + bytes <= max);
        bytes == 0 || self.in_flight.is_empty() || fits()
    }

    fn record_arguments(&mut self, bytes: u64) {
        if self.in_flight.is_empty() {
            self.argument_bytes = 0;
        }
        self.argument_bytes += bytes;
    }

    pub(super) fn has_room(&self, estimate: u64) -> bool {
        if self.draining || self.stalled || self.held {
            return false;
        }
        self.in_flight.is_empty()
            || (self.backlog + estimate <= LEASE_BACKLOG_NANOS && self.in_flight.len() < LEASE_BACKLOG_TASKS)
    }

    fn take(&mut self, task: u64, estimate: u64) {
        // Replies come in the order of the pushes, so this is nearly always the first task.
        if let Some(at) = self.in_flight.iter().position(|in_flight| *in_flight == task) {
            self.in_flight.remove(at);
            self.backlog -= estimate;
        }
    }
}

/// How many bytes of arguments in memory may wait at one worker, where they have to stay.
#[must_use]
pub fn argument_bytes_max(store_bytes: u64) -> u64 {
    (store_bytes / LEASE_ARGUMENT_SHARE).min(LEASE_ARGUMENT_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::action::Action;
    use sooner_wire::Message;
    use sooner_wire::message::FailureCode;

    const ANY: ReclaimLease = ReclaimLease { count: 1, lease: None };

    fn grant(shape: ShapeId, lease: u64, worker: u64) -> LeaseGranted {
        LeaseGranted { shape, lease: LeaseId(lease), worker: WorkerId(worker), gpus: vec![] }
    }

    fn replied(shape: ShapeId, estimate: u64, nanos: u64) -> Replied {
        Replied { shape, worker: WorkerId(5), task: 1, estimate, function: FunctionId(1), nanos }
    }

    #[test]
    fn few_arguments_in_memory_are_sent_ahead() {
        let mut leases = Leases::default();
        leases.set_store_bytes(100 * LEASE_ARGUMENT_SHARE);
        let shape = leases.shape(&ResourceSet::default(), None);
        (1..=10).for_each(|task| leases.enqueue(shape, task, None));
        leases.on_granted(grant(shape, 1, 5), Instant(0));
        let function = FunctionId(1);
        let next = |leases: &mut Leases, bytes| leases.next_push(shape, function, bytes).map(|to| to.task);
        assert_eq!(next(&mut leases, 1000), Some(1), "whatever it has, when the worker is idle");
        leases.on_reply(&Replied { task: 1, ..replied(shape, LEASE_BACKLOG_NANOS, 10) }, Instant(1));
        // It is known to be short now.
        assert_eq!(next(&mut leases, 60), Some(2));
        assert_eq!(next(&mut leases, 60), None, "more than 100 bytes would wait there");
        assert_eq!(next(&mut leases, 40), Some(3));
        assert_eq!(next(&mut leases, 0), Some(4), "nothing in memory");
        leases.set_store_bytes(1000 * LEASE_ARGUMENT_SHARE);
        assert_eq!(next(&mut leases, 60), Some(5));
    }

    #[test]
    fn an_unknown_function_is_not_pushed_ahead_and_a_short_one_is() {
        let mut leases = Leases::default();
        let shape = leases.shape(&ResourceSet::default(), None);
        (1..=10).for_each(|task| leases.enqueue(shape, task, None));
        leases.on_granted(grant(shape, 1, 5), Instant(0));
        let function = FunctionId(1);
        let first = leases.next_push(shape, function, 0).expect("an idle lease");
        assert_eq!(leases.next_push(shape, function, 0), None);
        leases.on_reply(&replied(shape, first.estimate, 1000), Instant(9));
        let ahead = std::iter::from_fn(|| leases.next_push(shape, function, 0)).count();
        assert_eq!(ahead, 9);
    }

    #[test]
    fn demand_is_told_once_and_withdrawn_once() {
        let mut leases = Leases::default();
        let shape = leases.shape(&ResourceSet::default(), None);
        let mut out = Actions::new();
        leases.enqueue(shape, 1, None);
        leases.update_demand(shape, &mut out);
        leases.enqueue(shape, 2, None);
        leases.update_demand(shape, &mut out);
        assert_eq!(out.len(), 1);
        leases.remove_queued(shape, 1);
        leases.remove_queued(shape, 2);
        leases.update_demand(shape, &mut out);
        leases.update_demand(shape, &mut out);
        assert_eq!(out.len(), 2);
    }

    #[test]
    fn what_is_more_urgent_goes_first_and_the_node_hears_of_it() {
        let mut leases = Leases::default();
        let shape = leases.shape(&ResourceSet::default(), None);
        let mut out = Actions::new();
        leases.enqueue(shape, 1, None);
        leases.update_demand(shape, &mut out);
        leases.enqueue(shape, 2, Some(7));
        leases.update_demand(shape, &mut out);
        let told = |action: &Action| match action {
            Action::Send { message, .. } => match &**message {
                Message::RequestLease(request) => request.priority,
                _ => None,
            },
            _ => None,
        };
        assert_eq!(out.iter().map(told).collect::<Vec<_>>(), vec![None, Some(7)]);
        leases.on_granted(grant(shape, 1, 5), Instant(0));
        assert_eq!(leases.next_push(shape, FunctionId(1), 0).map(|push| push.task), Some(2));
    }

    #[test]
    fn leases_with_the_least_urgent_work_go_back_first() {
        let mut leases = Leases::default();
        let urgent = leases.shape(&ResourceSet::default(), Some(&Strategy::Spread));
        let other = leases.shape(&ResourceSet::default(), None);
        assert_ne!(urgent, other, "a strategy makes another shape");
        for (shape, worker, priority) in [(urgent, 5, Some(1)), (other, 6, None)] {
            leases.on_granted(grant(shape, worker, worker), Instant(0));
            (0..2).for_each(|task| leases.enqueue(shape, 10 * worker + task, priority));
            leases.next_push(shape, FunctionId(1), 0).expect("an idle lease");
        }
        leases.on_reclaim(&ANY);
        leases.return_leases(Instant(LEASE_SLICE_NANOS), &mut Actions::new());
        let draining = |shape: ShapeId| leases.shapes[shape.0 as usize].leases[0].draining;
        assert_eq!((draining(urgent), draining(other)), (false, true));
    }

    #[test]
    fn the_lease_that_is_wanted_goes_back_and_no_other() {
        let mut leases = Leases::default();
        let shape = leases.shape(&ResourceSet::default(), None);
        leases.on_granted(grant(shape, 1, 5), Instant(0));
        leases.on_granted(grant(shape, 2, 6), Instant(0));
        leases.enqueue(shape, 1, None);
        let pushed = leases.next_push(shape, FunctionId(1), 0).expect("an idle lease");
        let wanted = LeaseId(if pushed.worker == WorkerId(5) { 1 } else { 2 });
        let mut out = Actions::new();
        for lease in [wanted, LeaseId(77)] {
            leases.on_reclaim(&ReclaimLease { count: 1, lease: Some(lease) });
        }
        leases.return_leases(Instant(1), &mut out);
        assert!(out.is_empty(), "its task runs, and the idle one is not wanted: {out:?}");
        leases
            .on_reply(&Replied { worker: pushed.worker, ..replied(shape, pushed.estimate, 10) }, Instant(2));
        leases.return_leases(Instant(2), &mut out);
        let mut returned = Actions::new();
        send(&mut returned, Peer::Node, ReturnLease { lease: wanted });
        assert_eq!(out, returned);
    }

    #[test]
    fn a_closed_shape_strands_its_tasks_and_asks_for_nothing() {
        let mut leases = Leases::default();
        let shape = leases.shape(&ResourceSet::default(), None);
        let mut out = Actions::new();
        leases.enqueue(shape, 1, None);
        assert!(leases.update_demand(shape, &mut out));
        assert_eq!(leases.take_stranded(shape), None);
        leases.close(shape, Failure::new(FailureCode::TaskGroupRemoved, "removed"));
        assert_eq!(leases.take_stranded(shape).map(|(tasks, _)| tasks), Some(vec![1]));
        assert!(leases.update_demand(shape, &mut out), "nothing waits");
        leases.enqueue(shape, 2, None);
        assert!(!leases.update_demand(shape, &mut out), "a task waits in vain");
        assert_eq!(out.len(), 1);
    }

    #[test]
    fn a_stalled_worker_gets_nothing_until_it_replies() {
        let mut leases = Leases::default();
        let shape = leases.shape(&ResourceSet::default(), None);
        let function = FunctionId(1);
        leases.on_granted(grant(shape, 1, 5), Instant(0));
        leases.durations.insert(function, 10);
        (1..=2).for_each(|task| leases.enqueue(shape, task, None));
        let first = leases.next_push(shape, function, 0).expect("room");
        let second = leases.next_push(shape, function, 0).expect("room");
        leases.on_returned(shape, WorkerId(5), 2, second.estimate);
        leases.enqueue_front(shape, 2, None);
        assert_eq!(leases.next_push(shape, function, 0), None);
        leases.on_reply(&replied(shape, first.estimate, 10), Instant(1));
        assert!(leases.next_push(shape, function, 0).is_some());
    }

    #[test]
    fn a_lease_that_is_leaving_already_sets_no_timer() {
        // Its time has passed: who waits for that deadline would spin until the task ends.
        let mut leases = Leases::default();
        let shape = leases.shape(&ResourceSet::default(), None);
        leases.on_granted(grant(shape, 1, 5), Instant(0));
        leases.enqueue(shape, 1, None);
        leases.next_push(shape, FunctionId(1), 0).expect("an idle lease");
        let mut out = Actions::new();
        leases.on_reclaim(&ANY);
        leases.return_leases(Instant(LEASE_SLICE_NANOS), &mut out);
        assert_eq!(leases.next_return(), None);
        leases.on_reclaim(&ANY);
        leases.return_leases(Instant(2 * LEASE_SLICE_NANOS), &mut out);
        assert_eq!(leases.next_return(), None);
        assert!(out.is_empty());
    }

    #[test]
    fn an_idle_lease_goes_back_when_what_waited_beside_it_is_cancelled() {
        let mut leases = Leases::default();
        let shape = leases.shape(&ResourceSet::default(), None);
        leases.on_granted(grant(shape, 1, 5), Instant(0));
        leases.set_held(WorkerId(5), true);
        leases.enqueue(shape, 1, None);
        let mut out = Actions::new();
        leases.return_leases(Instant(LEASE_IDLE_NANOS), &mut out);
        assert!(out.is_empty(), "its task waits for the line to its worker");
        leases.remove_queued(shape, 1);
        let at = leases.next_return().expect("nothing comes that would have anybody look");
        assert!(at > Instant(LEASE_IDLE_NANOS), "who waits for that would spin");
        leases.return_leases(at, &mut out);
        assert_eq!((leases.held(), out.len()), (0, 1));
    }

    #[test]
    fn idle_leases_go_back_and_owed_ones_at_once() {
        let mut leases = Leases::default();
        let shape = leases.shape(&ResourceSet::default(), None);
        leases.on_granted(grant(shape, 1, 5), Instant(0));
        leases.on_granted(grant(shape, 2, 6), Instant(0));
        let mut out = Actions::new();
        leases.return_leases(Instant(1), &mut out);
        assert_eq!(leases.next_return(), Some(Instant(LEASE_IDLE_NANOS)));
        leases.on_reclaim(&ANY);
        leases.return_leases(Instant(2), &mut out);
        assert_eq!(leases.held(), 1);
        leases.return_leases(Instant(LEASE_IDLE_NANOS), &mut out);
        assert_eq!((leases.next_return(), leases.held(), out.len()), (None, 0, 2));
    }

    #[test]
    fn leases_of_what_is_to_be_spread_go_back_with_their_task() {
        for (strategy, goes_back) in [(Some(Strategy::Spread), true), (None, false)] {
            let mut leases = Leases::default();
            let shape = leases.shape(&ResourceSet::default(), strategy.as_ref());
            let mut out = Actions::new();
            leases.on_granted(grant(shape, 9, 5), Instant(0));
            let run = |leases: &mut Leases, task: u64, ends: u64| {
                leases.enqueue(shape, task, None);
                let to = leases.next_push(shape, FunctionId(1), 0).expect("it has room");
                let replied = Replied { task: to.task, ..replied(shape, to.estimate, 1_000) };
                leases.on_reply(&replied, Instant(ends))
            };
            assert!(!run(&mut leases, 1, 1_000), "a short task is followed by others");
            assert_eq!(run(&mut leases, 2, LEASE_SLICE_NANOS), goes_back);
            out.clear();
            leases.return_leases(Instant(LEASE_SLICE_NANOS), &mut out);
            let back: Message = ReturnLease { lease: LeaseId(9) }.into();
            let is_back = out.contains(&Action::Send { to: Peer::Node, message: Box::new(back) });
            assert_eq!((is_back, leases.held() == 0), (goes_back, goes_back));
        }
    }
}
