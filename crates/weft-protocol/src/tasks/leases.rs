//! Leases of one process, by resource shape (Ownership, section 4.1; Oakes, chapter 4).
//!
//! The caller asks the node for as many workers of a shape as it has queued tasks, keeps a lease while it has such
//! tasks, and pushes several tasks ahead when they are short. How far ahead follows from how long the function
//! took before: an unknown or long task is pushed only to an idle worker, so that nothing waits behind it.
//!
//! Invariants:
//! - L1: a task is in the queue of its shape or in flight on one lease, never both.
//! - L2: `backlog` of a lease is the sum of the estimates of its tasks in flight.
//! - L3: `demanded` is what the node was last told, less what it granted since.
//!
//! It never sends a task itself: [`Leases::next_push`] says what goes where.

use std::collections::VecDeque;

use crate::probes::bug;
use weft_wire::limits::{
    LEASE_BACKLOG_NANOS, LEASE_BACKLOG_TASKS, LEASE_DEMAND_MAX, LEASE_IDLE_NANOS, LEASE_SLICE_NANOS,
};
use weft_wire::message::{LeaseGranted, RequestLease, ReturnLease};
use weft_wire::{FunctionId, LeaseId, ResourceSet, ShapeId, WorkerId};

use crate::action::{Actions, Peer, send};
use crate::table::Map;
use crate::time::Instant;

/// A worker that is ours for a while.
#[derive(Debug, Clone)]
pub struct Lease {
    id: LeaseId,
    worker: WorkerId,
    gpus: Vec<u32>,
    /// Task numbers in the order they were pushed.
    in_flight: VecDeque<u64>,
    backlog: u64,
    granted: Instant,
    idle_since: Instant,
    /// The worker sent tasks back: it is busy with a long one and gets no more until it replies.
    stalled: bool,
    /// The node wants it back: it gets no more tasks.
    draining: bool,
}

/// A resource shape and its tasks.
#[derive(Debug, Clone)]
struct Shape {
    resources: ResourceSet,
    queue: VecDeque<u64>,
    leases: Vec<Lease>,
    demanded: u32,
}

/// A reply, as far as leases care.
#[derive(Debug, Clone, Copy)]
pub struct Replied {
    /// Shape of the task.
    pub shape: ShapeId,
    /// Who ran it.
    pub worker: WorkerId,
    /// The task.
    pub task: u64,
    /// How long it was taken to run when it was pushed (nanoseconds).
    pub estimate: u64,
    /// Its function.
    pub function: FunctionId,
    /// How long it ran (nanoseconds).
    pub nanos: u64,
}

/// Where a task goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushTo {
    /// The task.
    pub task: u64,
    /// The leased worker.
    pub worker: WorkerId,
    /// GPUs of the lease.
    pub gpus: Vec<u32>,
    /// How long it is taken to run (nanoseconds).
    pub estimate: u64,
}

/// All shapes and leases of a process.
#[derive(Debug, Default)]
pub struct Leases {
    shapes: Vec<Shape>,
    numbers: Map<ResourceSet, ShapeId>,
    /// Recent run time per function (nanoseconds).
    durations: Map<FunctionId, u64>,
    /// Leases the node asked for and did not get yet.
    owed: u32,
}

impl Leases {
    /// The number of a shape.
    pub fn shape(&mut self, resources: &ResourceSet) -> ShapeId {
        if let Some(id) = self.numbers.get(resources) {
            return *id;
        }
        let id = ShapeId(u32::try_from(self.shapes.len()).expect("few shapes"));
        self.numbers.insert(resources.clone(), id);
        self.shapes.push(Shape {
            resources: resources.clone(),
            queue: VecDeque::new(),
            leases: Vec::new(),
            demanded: 0,
        });
        id
    }

    fn shape_mut(&mut self, shape: ShapeId) -> &mut Shape {
        &mut self.shapes[shape.0 as usize]
    }

    /// A task is ready to run.
    pub fn enqueue(&mut self, shape: ShapeId, task: u64) {
        self.shape_mut(shape).queue.push_back(task);
    }

    /// A task that was pushed and did not run goes first.
    pub fn enqueue_front(&mut self, shape: ShapeId, task: u64) {
        self.shape_mut(shape).queue.push_front(task);
    }

    /// Takes a queued task out.
    pub fn remove_queued(&mut self, shape: ShapeId, task: u64) {
        self.shape_mut(shape).queue.retain(|queued| *queued != task);
    }

    /// The next queued task of a shape, for the caller to say its function; `None` also when no lease has room for any.
    #[must_use]
    pub fn front(&self, shape: ShapeId) -> Option<u64> {
        let shape = self.shapes.get(shape.0 as usize)?;
        let task = shape.queue.front()?;
        shape.leases.iter().any(|lease| lease.has_room(0)).then_some(*task)
    }

    /// Shapes that have tasks queued or demand outstanding.
    #[must_use]
    pub fn shape_ids(&self) -> Vec<ShapeId> {
        (0..self.shapes.len()).map(|n| ShapeId(u32::try_from(n).expect("few shapes"))).collect()
    }

    /// Assigns the front task of a shape to the least loaded lease that has room for it.
    pub fn next_push(&mut self, shape: ShapeId, function: FunctionId) -> Option<PushTo> {
        let estimate = self.durations.get(&function).copied().unwrap_or(LEASE_BACKLOG_NANOS);
        let shape = self.shape_mut(shape);
        let lease = shape
            .leases
            .iter_mut()
            .filter(|lease| lease.has_room(estimate))
            .min_by_key(|lease| lease.backlog)?;
        let task = shape.queue.pop_front()?;
        lease.in_flight.push_back(task);
        lease.backlog += estimate;
        Some(PushTo { task, worker: lease.worker, gpus: lease.gpus.clone(), estimate })
    }

    /// Tells the node how many more leases the queue could use. Asked once, then again when it was met.
    pub fn update_demand(&mut self, id: ShapeId, out: &mut Actions) {
        let shape = self.shape_mut(id);
        let wanted = u32::try_from(shape.queue.len()).unwrap_or(u32::MAX).min(LEASE_DEMAND_MAX);
        let changed = (wanted == 0) != (shape.demanded == 0);
        if changed {
            shape.demanded = wanted;
            let resources = shape.resources.clone();
            send(out, Peer::Node, RequestLease { shape: id, resources, demand: wanted });
        }
    }

    /// The node granted a lease.
    pub fn on_granted(&mut self, grant: LeaseGranted, now: Instant) {
        let shape = self.shape_mut(grant.shape);
        if !bug!(DemandForgotten) {
            shape.demanded = shape.demanded.saturating_sub(1);
        }
        shape.leases.push(Lease {
            id: grant.lease,
            worker: grant.worker,
            gpus: grant.gpus,
            in_flight: VecDeque::new(),
            backlog: 0,
            granted: now,
            idle_since: now,
            stalled: false,
            draining: false,
        });
    }

    /// A pushed task replied.
    pub fn on_reply(&mut self, replied: &Replied, now: Instant) {
        let Replied { shape, worker, task, estimate, function, nanos } = *replied;
        // Half old, half new: follows a change within a few tasks, ignores a single odd one.
        let duration = self.durations.entry(function).or_insert(nanos);
        *duration = *duration / 2 + nanos / 2;
        if let Some(lease) = self.lease_mut(shape, worker) {
            lease.take(task, estimate);
            lease.stalled = false;
            lease.idle_since = now;
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
        self.shape_mut(shape).leases.iter_mut().find(|lease| lease.worker == worker)
    }

    /// A worker died. Returns the tasks it had, in the order they were pushed.
    pub fn on_worker_gone(&mut self, worker: WorkerId) -> Vec<u64> {
        let mut tasks = Vec::new();
        for shape in &mut self.shapes {
            for lease in shape.leases.extract_if(.., |lease| lease.worker == worker) {
                tasks.extend(lease.in_flight);
            }
        }
        tasks
    }

    /// The node wants leases for others.
    pub fn on_reclaim(&mut self, count: u32) {
        self.owed = self.owed.max(count);
    }

    /// Gives back leases that are idle for long, owed, or drained. Returns when to look again.
    pub fn return_leases(&mut self, now: Instant, out: &mut Actions) -> Option<Instant> {
        let mut next: Option<Instant> = None;
        for shape in &mut self.shapes {
            let busy = !shape.queue.is_empty();
            for lease in &mut shape.leases {
                if self.owed > 0
                    && !lease.draining
                    && (!busy || now.since(lease.granted) >= LEASE_SLICE_NANOS)
                {
                    lease.draining = true;
                    self.owed -= 1;
                }
            }
            shape.leases.retain(|lease| {
                let idle = lease.in_flight.is_empty();
                let expired = !busy && now.since(lease.idle_since) >= LEASE_IDLE_NANOS;
                if idle && (lease.draining || expired) {
                    if !bug!(LeaseNotReturned) {
                        send(out, Peer::Node, ReturnLease { lease: lease.id });
                    }
                    return false;
                }
                if idle && !busy {
                    let at = lease.idle_since.plus(LEASE_IDLE_NANOS);
                    next = Some(next.map_or(at, |other| other.min(at)));
                } else if self.owed > 0 && !lease.draining {
                    let at = lease.granted.plus(LEASE_SLICE_NANOS);
                    next = Some(next.map_or(at, |other| other.min(at)));
                }
                true
            });
        }
        next
    }

    /// What a task of a shape holds.
    #[must_use]
    pub fn resources(&self, shape: ShapeId) -> Option<&ResourceSet> {
        self.shapes.get(shape.0 as usize).map(|shape| &shape.resources)
    }

    /// Every shape: resources, tasks queued, leases, tasks in flight.
    pub fn shapes(&self) -> impl Iterator<Item = (&ResourceSet, usize, usize, usize)> {
        self.shapes.iter().map(|shape| {
            let in_flight = shape.leases.iter().map(|lease| lease.in_flight.len()).sum();
            (&shape.resources, shape.queue.len(), shape.leases.len(), in_flight)
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

impl Lease {
    fn has_room(&self, estimate: u64) -> bool {
        if self.draining || self.stalled {
            return false;
        }
        self.in_flight.is_empty()
            || (self.backlog + estimate <= LEASE_BACKLOG_NANOS && self.in_flight.len() < LEASE_BACKLOG_TASKS)
    }

    fn take(&mut self, task: u64, estimate: u64) {
        // Replies come in the order of the pushes, so this is nearly always the first one.
        if let Some(at) = self.in_flight.iter().position(|in_flight| *in_flight == task) {
            self.in_flight.remove(at);
            self.backlog -= estimate;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(shape: ShapeId, lease: u64, worker: u64) -> LeaseGranted {
        LeaseGranted { shape, lease: LeaseId(lease), worker: WorkerId(worker), gpus: vec![] }
    }

    fn replied(shape: ShapeId, estimate: u64, nanos: u64) -> Replied {
        Replied { shape, worker: WorkerId(5), task: 1, estimate, function: FunctionId(1), nanos }
    }

    #[test]
    fn an_unknown_function_is_not_pushed_ahead_and_a_short_one_is() {
        let mut leases = Leases::default();
        let shape = leases.shape(&ResourceSet::default());
        (1..=10).for_each(|task| leases.enqueue(shape, task));
        leases.on_granted(grant(shape, 1, 5), Instant(0));
        let function = FunctionId(1);
        let first = leases.next_push(shape, function).expect("an idle lease");
        assert_eq!(leases.next_push(shape, function), None);
        leases.on_reply(&replied(shape, first.estimate, 1000), Instant(9));
        let ahead = std::iter::from_fn(|| leases.next_push(shape, function)).count();
        assert_eq!(ahead, 9);
    }

    #[test]
    fn demand_is_told_once_and_withdrawn_once() {
        let mut leases = Leases::default();
        let shape = leases.shape(&ResourceSet::default());
        let mut out = Actions::new();
        leases.enqueue(shape, 1);
        leases.update_demand(shape, &mut out);
        leases.enqueue(shape, 2);
        leases.update_demand(shape, &mut out);
        assert_eq!(out.len(), 1);
        leases.remove_queued(shape, 1);
        leases.remove_queued(shape, 2);
        leases.update_demand(shape, &mut out);
        leases.update_demand(shape, &mut out);
        assert_eq!(out.len(), 2);
    }

    #[test]
    fn a_stalled_worker_gets_nothing_until_it_replies() {
        let mut leases = Leases::default();
        let shape = leases.shape(&ResourceSet::default());
        let function = FunctionId(1);
        leases.on_granted(grant(shape, 1, 5), Instant(0));
        leases.durations.insert(function, 10);
        (1..=2).for_each(|task| leases.enqueue(shape, task));
        let first = leases.next_push(shape, function).expect("room");
        let second = leases.next_push(shape, function).expect("room");
        leases.on_returned(shape, WorkerId(5), 2, second.estimate);
        leases.enqueue_front(shape, 2);
        assert_eq!(leases.next_push(shape, function), None);
        leases.on_reply(&replied(shape, first.estimate, 10), Instant(1));
        assert!(leases.next_push(shape, function).is_some());
    }

    #[test]
    fn a_lease_that_is_leaving_already_sets_no_timer() {
        // Its time has passed: who waits for that deadline would spin until the task ends.
        let mut leases = Leases::default();
        let shape = leases.shape(&ResourceSet::default());
        leases.on_granted(grant(shape, 1, 5), Instant(0));
        leases.enqueue(shape, 1);
        leases.next_push(shape, FunctionId(1)).expect("an idle lease");
        let mut out = Actions::new();
        leases.on_reclaim(1);
        assert_eq!(leases.return_leases(Instant(LEASE_SLICE_NANOS), &mut out), None);
        leases.on_reclaim(1);
        assert_eq!(leases.return_leases(Instant(2 * LEASE_SLICE_NANOS), &mut out), None);
        assert!(out.is_empty());
    }

    #[test]
    fn idle_leases_go_back_and_owed_ones_at_once() {
        let mut leases = Leases::default();
        let shape = leases.shape(&ResourceSet::default());
        leases.on_granted(grant(shape, 1, 5), Instant(0));
        leases.on_granted(grant(shape, 2, 6), Instant(0));
        let mut out = Actions::new();
        assert_eq!(leases.return_leases(Instant(1), &mut out), Some(Instant(LEASE_IDLE_NANOS)));
        leases.on_reclaim(1);
        leases.return_leases(Instant(2), &mut out);
        assert_eq!(leases.held(), 1);
        assert_eq!(leases.return_leases(Instant(LEASE_IDLE_NANOS), &mut out), None);
        assert_eq!((leases.held(), out.len()), (0, 2));
    }
}
