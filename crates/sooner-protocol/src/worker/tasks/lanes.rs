//! Lanes: tasks of one shape whose arguments are in the memory of another node wait apart, for that node.
//!
//! The node is asked for each lane separately, and told the preferred node: the one that holds most bytes of
//! the arguments (Ray, section 4.2.2; Ownership, section 5.3). Granted leases belong to the shape, with all
//! its lanes, and a lease serves
//!
//! - the lane that it was asked for, and the lanes of its own node,
//! - the tasks of the shape that prefer no node,
//! - and, when one of them has waited for [`STEAL_NANOS`] without a push, any other lane: no worker is idle
//!   for long beside waiting tasks, and bytes are moved rather than processors left idle.
//!
//! Invariants:
//! - A lane has no leases; its shape has them. Tasks of a lane carry the number of the lane.
//! - A shape without lanes, as all are where every value is on one machine, is served as if there were none.
//!
//! It never waits for a preferred node that is busy or dead: the node grants the leases that there are.

use sooner_wire::{FunctionId, NodeId, ShapeId};

use super::leases::{Lease, Leases, PushTo, Shape};
use super::queue::Queue;
use crate::time::Instant;

/// How long the tasks of a lane wait for a lease of their own (nanoseconds): about as long as it takes to
/// pull 5 MB over a fast network.
const STEAL_NANOS: u64 = 5_000_000;

/// At most this many lanes per shape. If tasks wait in all of them, tasks that prefer yet another node wait
/// with those that prefer none.
const LANES_MAX: usize = 256;

/// Marks a shape as a lane of another one.
#[derive(Debug, Clone)]
pub(super) struct Lane {
    /// The other shape.
    pub(super) base: ShapeId,
    /// The node where its tasks should run.
    pub(super) node: NodeId,
    /// Since when its first task waits.
    since: Option<Instant>,
}

impl Leases {
    /// The shape or lane of a task that prefers a node, or none. `shape` may be the lane that it was in
    /// before.
    pub fn near(&mut self, shape: ShapeId, prefer: Option<NodeId>) -> ShapeId {
        let base = self.base(shape);
        let Some(node) = prefer else { return base };
        let home = &self.shapes[base.0 as usize];
        if home.strategy.is_some() {
            // The strategy says where its tasks run.
            return base;
        }
        let is_it = |id: &&ShapeId| self.shapes[id.0 as usize].lane.as_ref().is_some_and(|l| l.node == node);
        if let Some(lane) = home.lanes.iter().find(is_it) {
            // A closed lane does not close the shape: nodes may have joined since.
            return if self.closed(*lane).is_some() { base } else { *lane };
        }
        if home.lanes.len() >= LANES_MAX {
            return self.renamed(base, node).unwrap_or(base);
        }
        let (resources, raises_memory) = (home.resources.clone(), home.raises_memory);
        let lane = self.add_shape(resources, None, Some(Lane { base, node, since: None }));
        self.shape_mut(lane).raises_memory = raises_memory;
        let home = self.shape_mut(base);
        home.lanes.push(lane);
        if home.lanes.len() == 1 {
            self.laned.push(base);
        }
        lane
    }

    /// Gives an empty lane to another node: the lane's node may be dead, of which this module is not told.
    fn renamed(&mut self, base: ShapeId, node: NodeId) -> Option<ShapeId> {
        let is_unused = |id: &ShapeId| self.shapes[id.0 as usize].is_unused();
        let id = self.shapes[base.0 as usize].lanes.iter().copied().find(is_unused)?;
        self.shape_mut(id).lane = Some(Lane { base, node, since: None });
        Some(id)
    }

    /// The shape that has the leases of a shape or lane.
    pub fn base(&self, shape: ShapeId) -> ShapeId {
        self.shapes
            .get(shape.0 as usize)
            .and_then(|shape| shape.lane.as_ref())
            .map_or(shape, |lane| lane.base)
    }

    pub(super) fn home_mut(&mut self, shape: ShapeId) -> &mut Shape {
        let base = self.base(shape);
        self.shape_mut(base)
    }

    /// Whether any shape has lanes.
    #[must_use]
    pub fn has_lanes(&self) -> bool {
        !self.laned.is_empty()
    }

    /// The lanes of a shape, and the shape itself, in the order in which they are served: by priority; equals
    /// take turns, so that none comes last for ever. Empty if there are no lanes.
    pub fn lanes_of(&mut self, shape: ShapeId) -> Vec<ShapeId> {
        let Some(base) = self.shapes.get(shape.0 as usize).map(|_| self.base(shape)) else {
            return Vec::new();
        };
        let home = self.shape_mut(base);
        if home.lanes.is_empty() {
            return Vec::new();
        }
        home.lanes.rotate_left(1);
        home.turn = home.turn.wrapping_add(1);
        let (lanes, turn) = (home.lanes.clone(), home.turn);
        let mut all: Vec<ShapeId> = lanes.into_iter().chain([base]).collect();
        if turn % all.len() == 0 {
            all.rotate_right(1);
        }
        all.sort_by_key(|id| std::cmp::Reverse(self.shapes[id.0 as usize].queue.priority()));
        all
    }

    /// The priority of the most urgent task of a shape and its lanes; zero without one.
    pub(super) fn priority(&self, shape: ShapeId) -> i32 {
        let home = &self.shapes[shape.0 as usize];
        let queues = home.lanes.iter().map(|id| &self.shapes[id.0 as usize].queue).chain([&home.queue]);
        queues.filter(|queue| !queue.is_empty()).map(Queue::priority).max().unwrap_or(0)
    }

    /// The next task of a lane, or of a shape that has lanes, if any lease may take it.
    #[must_use]
    pub fn front_in(&self, id: ShapeId, now: Instant) -> Option<u64> {
        let task = self.shapes.get(id.0 as usize)?.queue.front()?;
        let is_late = self.is_late(id, now);
        let home = &self.shapes[self.base(id).0 as usize];
        home.leases.iter().any(|lease| lease.has_room(0) && self.serves(lease, id, is_late)).then_some(task)
    }

    /// [`Leases::next_push`] for a lane, or a shape that has lanes.
    pub fn next_push_in(&mut self, id: ShapeId, function: FunctionId, now: Instant) -> Option<PushTo> {
        let estimate = self.estimate(function);
        let is_late = self.is_late(id, now);
        let base = self.base(id);
        let node = self.shapes[id.0 as usize].lane.as_ref().map(|lane| lane.node);
        let leases = (0..).zip(&self.shapes[base.0 as usize].leases);
        let fitting = leases.filter(|(_, lease)| lease.has_room(estimate) && self.serves(lease, id, is_late));
        // A lease on the node of the arguments first; and tasks without a lane leave others to the lanes that
        // asked for them.
        let is_off = |lease: &Lease| node.map_or(lease.asked_by != id, |node| lease.node() != node);
        let (at, lease): (usize, _) = fitting.min_by_key(|(_, lease)| (is_off(lease), lease.backlog()))?;
        let is_stolen = node.is_some_and(|node| lease.node() != node) && lease.asked_by != id;
        let task = self.shape_mut(id).queue.pop_front()?;
        if let Some(lane) = &mut self.shape_mut(id).lane
            && !is_stolen
        {
            lane.since = Some(now);
        }
        Some(self.shape_mut(base).leases[at].push(task, estimate))
    }

    fn serves(&self, lease: &Lease, id: ShapeId, is_late: bool) -> bool {
        match &self.shapes[id.0 as usize].lane {
            None => true,
            Some(lane) => lease.node() == lane.node || lease.asked_by == id || is_late,
        }
    }

    /// Whether a lane has waited so long that any lease takes its tasks.
    fn is_late(&self, id: ShapeId, now: Instant) -> bool {
        let since = self.shapes[id.0 as usize].lane.as_ref().and_then(|lane| lane.since);
        since.is_some_and(|since| now.since(since) >= STEAL_NANOS)
    }

    /// Records since when a lane waits. Called whenever it was served as far as possible.
    pub fn record_waiting(&mut self, id: ShapeId, now: Instant) {
        let shape = self.shape_mut(id);
        let waits = !shape.queue.is_empty();
        if let Some(lane) = &mut shape.lane {
            lane.since = if waits { lane.since.or(Some(now)) } else { None };
        }
    }

    /// Whether any lane of a shape has tasks.
    pub(super) fn is_lane_busy(&self, shape: ShapeId) -> bool {
        let lanes = &self.shapes[shape.0 as usize].lanes;
        lanes.iter().any(|lane| !self.shapes[lane.0 as usize].queue.is_empty())
    }

    /// Shapes with lanes that have waited too long, while a lease of the shape is idle.
    #[must_use]
    pub fn late(&self, now: Instant) -> Vec<ShapeId> {
        let is_late = |base: &&ShapeId| self.next_steal_of(**base).is_some_and(|at| at <= now);
        self.laned.iter().filter(is_late).copied().collect()
    }

    /// When [`Leases::late`] may give a shape.
    #[must_use]
    pub fn next_steal(&self) -> Option<Instant> {
        self.laned.iter().filter_map(|base| self.next_steal_of(*base)).min()
    }

    fn next_steal_of(&self, base: ShapeId) -> Option<Instant> {
        let home = &self.shapes[base.0 as usize];
        if !home.leases.iter().any(Lease::is_idle) {
            // Whatever makes a lease idle has the lanes served.
            return None;
        }
        let lanes = home.lanes.iter().filter_map(|id| self.shapes[id.0 as usize].lane.as_ref());
        lanes.filter_map(|lane| Some(lane.since?.plus(STEAL_NANOS))).min()
    }
}

#[cfg(test)]
mod tests;
