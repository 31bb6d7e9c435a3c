//! Which node pulls an object from which: the directory of its copies, at its owner. Broadcast chains as in
//! Hoplite (sections 3.2 and 4.2), for every node that wants a copy of a value of this process.
//!
//! A receiver asks, and is assigned one sender: the copy nearest to a complete one that has no receiver yet.
//! From then on the receiver counts as a copy itself, though it has no byte, and the next one may pull from
//! it. So receivers that come together form a chain through which the bytes run; later ones find complete
//! copies. Small values are the exception: a complete copy takes several receivers, because a chain costs
//! more in latency than it saves in bandwidth.
//!
//! A copy is *fed* if it is complete or its sender is fed. A copy without a sender waits; receivers behind it
//! keep it as their sender, and no other node is sent to them.
//!
//! Invariants:
//! - B1: a node is in the table of an object once, with one sender at most.
//! - B2: a copy has one receiver at most; a complete copy of a small value a few.
//! - B3: no node pulls from itself, nor through others from itself.
//! - B4: nobody is sent to a copy that is not fed. Nobody waits while a complete copy is known, but for nodes
//!   that could not reach those that are free.
//! - B5: bytes of two executions of a task are never mixed: each execution is a generation, and whoever has
//!   bytes of an earlier one begins anew. Within a generation a transfer goes on where it broke off, whoever
//!   the next sender is.
//! - B6: attempts are numbered; a failure of any but the latest one changes nothing.
//!
//! The caller passes nothing about a node after [`Chains::on_node_dead`]. Messages of one node come in order.
//!
//! It never touches bytes, and never sends to a sender: receivers pull.

use std::hash::{Hash, Hasher};

use sooner_wire::limits::{BROADCAST_SMALL_BYTES, BROADCAST_SMALL_RECEIVERS, BROADCASTS_MAX, NODES_MAX};
use sooner_wire::{NodeId, ObjectId, TransferAttempt};

use crate::probes::{bug, mark};
use crate::table::Map;

/// Pairs of nodes that could not reach each other, per object.
const APART_MAX: usize = 256;

/// What the directory wants done, in order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ChainAction {
    /// Tell a receiver its sender.
    Pull(Assigned),
    /// Tell a node that its copy of an object is not needed. If it still wants the value it asks again.
    Drop {
        /// Of which object.
        object: ObjectId,
        /// Which node.
        node: NodeId,
    },
    /// The copy that was kept for the owner is gone, and another one is to be kept in its place.
    Keep {
        /// Of which object.
        object: ObjectId,
        /// Where the other copy is.
        node: NodeId,
    },
    /// No complete copy is known any more: the value has to be made again. [`Chains::on_made`] or
    /// [`Chains::on_dead`] follows, unless a copy that was complete after all is to be kept first.
    Lost {
        /// Which one.
        object: ObjectId,
    },
    /// The table has no room for another receiver. It pulls from the place that came with the reference.
    Refused {
        /// Of which object.
        object: ObjectId,
        /// The receiver.
        receiver: NodeId,
    },
}

/// A receiver and its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Assigned {
    /// Of which object.
    pub object: ObjectId,
    /// The node that pulls.
    pub receiver: NodeId,
    /// The node it pulls from.
    pub sender: NodeId,
    /// Bytes of the object.
    pub length: u64,
    /// Which execution the bytes are of: a receiver with bytes of another one begins anew.
    pub generation: u64,
    /// The number of this assignment: it grows, and the latest one holds.
    pub attempt: TransferAttempt,
}

/// How large the tables may be, and what a small value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChainLimits {
    /// Bytes of the largest small value.
    pub small_bytes: u64,
    /// Receivers of a complete copy of a small value.
    pub small_receivers: u32,
    /// Objects in the table.
    pub objects_max: usize,
    /// Nodes per object.
    pub nodes_max: usize,
}

impl Default for ChainLimits {
    fn default() -> Self {
        Self {
            small_bytes: BROADCAST_SMALL_BYTES,
            small_receivers: BROADCAST_SMALL_RECEIVERS,
            objects_max: BROADCASTS_MAX,
            nodes_max: NODES_MAX,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum State {
    /// All bytes are there. One complete copy is kept for the owner; the others may be evicted.
    Complete { kept: bool },
    /// The node pulls from that one.
    From(NodeId),
    /// The node has no sender.
    Waiting,
}

/// What a node has of an object.
#[derive(Debug, Clone, Hash)]
struct Holding {
    state: State,
    /// Its first and its latest attempt in this generation; `None`: it never had a sender.
    attempts: Option<(TransferAttempt, TransferAttempt)>,
    /// Number of nodes that pull from it.
    receivers: u32,
    /// Whether any has: later receivers are sent to a copy that has not served, so that all take turns.
    has_served: bool,
    /// Its node does not need it: it goes with its last receiver, and gets no new one.
    leaves: bool,
}

impl Holding {
    fn new(state: State) -> Self {
        Self { state, attempts: None, receivers: 0, has_served: false, leaves: false }
    }

    fn is_complete(&self) -> bool {
        matches!(self.state, State::Complete { .. })
    }
}

#[derive(Debug, Clone, Default)]
struct Broadcast {
    /// Known once the value was made.
    length: Option<u64>,
    generation: u64,
    /// In the order in which the nodes came.
    copies: Map<NodeId, Holding>,
    /// Pairs of nodes that could not reach each other, the lower one first: else two such nodes would be sent
    /// to each other in turn, and fail each time.
    apart: Vec<(NodeId, NodeId)>,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Chains {
    limits: ChainLimits,
    objects: Map<ObjectId, Broadcast>,
    /// Generations and attempts so far, of all objects: no number of a forgotten object is used again.
    numbers: u64,
}

impl Chains {
    /// With other limits than usual.
    #[must_use]
    pub fn new(limits: ChainLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// A value was made, or is known to be at a node where it is kept for its owner. Gives the generation
    /// under which that node serves it. `None`: not entered, because a complete copy of an earlier execution
    /// is known, or the table has no room.
    pub fn on_made(
        &mut self,
        object: ObjectId,
        node: NodeId,
        length: u64,
        out: &mut Vec<ChainAction>,
    ) -> Option<u64> {
        if !self.objects.contains_key(&object) && self.objects.len() >= self.limits.objects_max {
            return None;
        }
        let broadcast = self.objects.entry(object).or_default();
        if broadcast.copies.values().any(Holding::is_complete) {
            return None;
        }
        self.numbers += 1;
        let generation = self.numbers;
        broadcast.length = Some(length);
        broadcast.generation = generation;
        for copy in broadcast.copies.values_mut() {
            *copy = Holding { leaves: copy.leaves, ..Holding::new(State::Waiting) };
        }
        broadcast.copies.insert(node, Holding::new(State::Complete { kept: true }));
        self.serve(object, out);
        Some(generation)
    }

    /// A node wants a copy. One that asks again gets the same answer; one that had a complete copy has lost
    /// it.
    pub fn on_locate(&mut self, object: ObjectId, receiver: NodeId, out: &mut Vec<ChainAction>) {
        let known = self.copy(object, receiver).map(|copy| copy.state);
        match known {
            Some(State::From(sender)) => {
                self.stay(object, receiver);
                return self.tell(object, receiver, sender, out);
            }
            Some(State::Waiting) => return self.stay(object, receiver),
            Some(State::Complete { .. }) => self.remove(object, receiver, out),
            None => {}
        }
        if !self.make_room(object, out) {
            return out.push(ChainAction::Refused { object, receiver });
        }
        let broadcast = self.objects.entry(object).or_default();
        broadcast.copies.insert(receiver, Holding::new(State::Waiting));
        self.serve(object, out);
    }

    /// A node has all bytes, by any attempt since it asked, unless the value was made again meanwhile.
    pub fn on_complete(
        &mut self,
        object: ObjectId,
        node: NodeId,
        attempt: TransferAttempt,
        out: &mut Vec<ChainAction>,
    ) {
        let Some(broadcast) = self.objects.get_mut(&object) else { return };
        let Some(copy) = broadcast.copies.get_mut(&node) else { return };
        let is_of_this_generation =
            copy.attempts.is_some_and(|(first, latest)| (first..=latest).contains(&attempt));
        if copy.is_complete() || !is_of_this_generation {
            return;
        }
        let before = std::mem::replace(&mut copy.state, State::Complete { kept: false });
        if let State::From(sender) = before {
            broadcast.copies[&sender].receivers -= 1;
        }
        broadcast.keep_one(object, out);
        self.serve(object, out);
    }

    /// A receiver cannot get the rest from its sender. The sender's copy is not counted on any more.
    pub fn on_failed(
        &mut self,
        object: ObjectId,
        receiver: NodeId,
        attempt: TransferAttempt,
        out: &mut Vec<ChainAction>,
    ) {
        let Some(copy) = self.copy(object, receiver) else { return };
        let State::From(sender) = copy.state else { return };
        if copy.attempts.is_some_and(|(_, latest)| latest == attempt) {
            self.objects[&object].part(receiver, sender);
            out.push(ChainAction::Drop { object, node: sender });
            self.remove(object, sender, out);
        }
    }

    /// A node has dropped its copy, or does not want one any more.
    pub fn on_dropped(&mut self, object: ObjectId, node: NodeId, out: &mut Vec<ChainAction>) {
        self.remove(object, node, out);
    }

    /// A node does not need its copy any more. It gets [`ChainAction::Drop`] when no node pulls from it.
    pub fn on_leaving(&mut self, object: ObjectId, node: NodeId, out: &mut Vec<ChainAction>) {
        let broadcast = self.objects.get_mut(&object);
        match broadcast.and_then(|broadcast| broadcast.copies.get_mut(&node)) {
            Some(copy) => {
                copy.leaves = true;
                self.serve(object, out);
            }
            // Also for an unknown object: copies may outlive it.
            None if bug!(ForgottenCopyKept) => {}
            None => out.push(ChainAction::Drop { object, node }),
        }
    }

    /// A node is dead, with all its copies.
    pub fn on_node_dead(&mut self, node: NodeId, out: &mut Vec<ChainAction>) {
        let hit = self.objects.iter().filter(|(_, broadcast)| broadcast.copies.contains_key(&node));
        for object in hit.map(|(object, _)| *object).collect::<Vec<_>>() {
            self.objects[&object].apart.retain(|(one, other)| *one != node && *other != node);
            self.remove(object, node, out);
        }
    }

    /// The value is not needed any more, or cannot be made again. The owner frees the copy that is kept.
    pub fn on_dead(&mut self, object: ObjectId, out: &mut Vec<ChainAction>) {
        let Some(broadcast) = self.objects.swap_remove(&object) else { return };
        let others = broadcast.copies.iter().filter(|(_, copy)| copy.state != State::Complete { kept: true });
        out.extend(others.map(|(node, _)| ChainAction::Drop { object, node: *node }));
    }

    /// The value is out of reference, and its copies need not go with it (Oakes, table 5.1: pinning and
    /// unpinning). Only those nodes get a message that wait for one, because bytes of theirs are missing or
    /// because they asked whether their copy may go.
    pub fn on_unpinned(&mut self, object: ObjectId, out: &mut Vec<ChainAction>) {
        let Some(broadcast) = self.objects.swap_remove(&object) else { return };
        let waits = |copy: &Holding| !copy.is_complete() || copy.leaves;
        let (told, stay): (Vec<_>, Vec<_>) = broadcast.copies.iter().partition(|(_, copy)| waits(copy));
        if stay.iter().any(|(_, copy)| copy.state == State::Complete { kept: false }) {
            mark!("a copy of a value that was out of reference stayed");
        }
        out.extend(told.into_iter().map(|(node, _)| ChainAction::Drop { object, node: *node }));
    }

    /// The copy that is kept has become the value: it does not leave. False if another one is kept, or none.
    pub fn on_promoted(&mut self, object: ObjectId, node: NodeId) -> bool {
        let is_kept = self.kept_at(object) == Some(node);
        if is_kept {
            self.stay(object, node);
        }
        is_kept
    }

    /// Where a complete copy is kept for the owner, how many bytes it has, and which execution they are of.
    #[must_use]
    pub fn kept(&self, object: ObjectId) -> Option<(NodeId, u64, u64)> {
        let broadcast = self.objects.get(&object)?;
        let arriving = || broadcast.copies.keys().next().copied().filter(|_| bug!(PromotedWhileArriving));
        let node = self.kept_at(object).or_else(arriving)?;
        Some((node, broadcast.length.unwrap_or_default(), broadcast.generation))
    }

    /// Where a complete copy is kept for the owner.
    #[must_use]
    pub fn kept_at(&self, object: ObjectId) -> Option<NodeId> {
        let copies = &self.objects.get(&object)?.copies;
        let kept = copies.iter().find(|(_, copy)| copy.state == State::Complete { kept: true });
        kept.map(|(node, _)| *node)
    }

    /// The nodes that reported a complete copy.
    pub fn complete_at(&self, object: ObjectId) -> impl Iterator<Item = NodeId> {
        let copies = self.objects.get(&object).into_iter().flat_map(|broadcast| &broadcast.copies);
        copies.filter(|(_, copy)| copy.is_complete()).map(|(node, _)| *node)
    }

    /// The first node that waits for a sender.
    #[must_use]
    pub fn waiting_at(&self, object: ObjectId) -> Option<NodeId> {
        let mut copies = self.objects.get(&object)?.copies.iter();
        copies.find(|(_, copy)| copy.state == State::Waiting).map(|(node, _)| *node)
    }

    /// Whether the object is in the table.
    #[must_use]
    pub fn contains(&self, object: ObjectId) -> bool {
        self.objects.contains_key(&object)
    }

    /// Whether a node has a copy, or is to get one.
    #[must_use]
    pub fn contains_at(&self, object: ObjectId, node: NodeId) -> bool {
        self.copy(object, node).is_some()
    }

    /// Whether a complete copy of an object is known.
    #[must_use]
    pub fn has_complete(&self, object: ObjectId) -> bool {
        self.objects.get(&object).is_some_and(|broadcast| broadcast.copies.values().any(Holding::is_complete))
    }

    /// Whether a node pulls the object, or waits for a sender.
    #[must_use]
    pub fn is_pulled(&self, object: ObjectId) -> bool {
        let is_incomplete = |broadcast: &Broadcast| broadcast.copies.values().any(|copy| !copy.is_complete());
        self.objects.get(&object).is_some_and(is_incomplete)
    }

    /// The sender that a node was assigned.
    #[must_use]
    pub fn sender_of(&self, object: ObjectId, receiver: NodeId) -> Option<NodeId> {
        match self.copy(object, receiver)?.state {
            State::From(sender) => Some(sender),
            State::Complete { .. } | State::Waiting => None,
        }
    }

    /// Objects with copies or receivers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Asserts the invariants; for tests and the simulator.
    pub fn check(&self) {
        assert!(self.objects.len() <= self.limits.objects_max, "too many objects");
        for broadcast in self.objects.values() {
            broadcast.check(&self.limits);
        }
    }

    /// A node that was to leave wants the value after all.
    fn stay(&mut self, object: ObjectId, node: NodeId) {
        self.objects[&object].copies[&node].leaves = false;
    }

    fn copy(&self, object: ObjectId, node: NodeId) -> Option<&Holding> {
        self.objects.get(&object)?.copies.get(&node)
    }

    /// Whether another receiver of an object fits in. If need be, forgets a complete copy that serves no
    /// node.
    fn make_room(&mut self, object: ObjectId, out: &mut Vec<ChainAction>) -> bool {
        let Some(broadcast) = self.objects.get(&object) else {
            return self.objects.len() < self.limits.objects_max;
        };
        if broadcast.copies.len() < self.limits.nodes_max {
            return true;
        }
        let is_idle = |copy: &Holding| copy.state == State::Complete { kept: false } && copy.receivers == 0;
        let idle = broadcast.copies.iter().find(|(_, copy)| is_idle(copy)).map(|(node, _)| *node);
        if let Some(node) = idle {
            out.push(ChainAction::Drop { object, node });
            self.remove(object, node, out);
        }
        idle.is_some()
    }

    /// Removes a copy. Its first receiver goes on with its sender, which had at least as much; the others,
    /// and all if it had no sender, find new ones.
    fn remove(&mut self, object: ObjectId, node: NodeId, out: &mut Vec<ChainAction>) {
        let Some(broadcast) = self.objects.get_mut(&object) else { return };
        let Some(removed) = broadcast.copies.shift_remove(&node) else { return };
        let mut orphans = Vec::new();
        for (receiver, copy) in &mut broadcast.copies {
            if copy.state == State::From(node) {
                copy.state = State::Waiting;
                orphans.push(*receiver);
            }
        }
        if let State::From(sender) = removed.state {
            broadcast.copies[&sender].receivers -= 1;
            if let Some(first) = orphans.first().filter(|first| !broadcast.are_apart(**first, sender)) {
                self.assign(object, *first, sender, out);
            }
        } else if removed.is_complete() && !broadcast.keep_one(object, out) {
            out.push(ChainAction::Lost { object });
        }
        self.serve(object, out);
        if self.objects.get(&object).is_some_and(|broadcast| broadcast.copies.is_empty()) {
            self.objects.swap_remove(&object);
        }
    }

    /// Drops a copy that is not needed, then assigns senders to waiting nodes, in order, as far as there are
    /// any. A node that got a sender can be the next sender, so nodes that could not reach the others look
    /// again.
    fn serve(&mut self, object: ObjectId, out: &mut Vec<ChainAction>) {
        let copies = &self.objects[&object].copies;
        if let Some((node, _)) = copies.iter().find(|(_, copy)| copy.leaves && copy.receivers == 0) {
            let node = *node;
            out.push(ChainAction::Drop { object, node });
            return self.remove(object, node, out);
        }
        while let Some((receiver, sender)) = self.objects[&object].next_pair(&self.limits) {
            self.assign(object, receiver, sender, out);
        }
    }

    fn assign(&mut self, object: ObjectId, receiver: NodeId, sender: NodeId, out: &mut Vec<ChainAction>) {
        self.numbers += 1;
        let copies = &mut self.objects[&object].copies;
        copies[&sender].receivers += 1;
        copies[&sender].has_served = true;
        let copy = &mut copies[&receiver];
        copy.state = State::From(sender);
        let latest = TransferAttempt(self.numbers);
        copy.attempts = Some((copy.attempts.map_or(latest, |(first, _)| first), latest));
        self.tell(object, receiver, sender, out);
    }

    fn tell(&self, object: ObjectId, receiver: NodeId, sender: NodeId, out: &mut Vec<ChainAction>) {
        let broadcast = &self.objects[&object];
        let (_, attempt) = broadcast.copies[&receiver].attempts.expect("it has a sender");
        let (length, generation) = (broadcast.length.unwrap_or_default(), broadcast.generation);
        out.push(ChainAction::Pull(Assigned { object, receiver, sender, length, generation, attempt }));
    }
}

impl Broadcast {
    /// Marks a complete copy as the kept one, if there is one.
    fn keep_one(&mut self, object: ObjectId, out: &mut Vec<ChainAction>) -> bool {
        if self.copies.values().any(|copy| copy.state == State::Complete { kept: true }) {
            return true;
        }
        let Some((node, copy)) = self.copies.iter_mut().find(|(_, copy)| copy.is_complete()) else {
            return false;
        };
        copy.state = State::Complete { kept: true };
        out.push(ChainAction::Keep { object, node: *node });
        true
    }

    /// The copy nearest to a complete one that can take a receiver; among equals the one with the fewest
    /// receivers, then one that has served no node yet, then the oldest.
    ///
    /// A copy that the receiver could not reach is tried again only if it could reach no complete copy at
    /// all: whether it fails again or not, the wait ends.
    fn best_sender(&self, receiver: NodeId, limits: &ChainLimits) -> Option<NodeId> {
        let is_reached = |node: NodeId| !self.are_apart(receiver, node);
        let mut complete = self.copies.iter().filter(|(_, copy)| copy.is_complete());
        let reaches_none = !complete.any(|(node, _)| is_reached(*node));
        let free = self.copies.iter().filter(|(node, copy)| {
            let may_be_tried = is_reached(**node) || (reaches_none && copy.is_complete());
            may_be_tried && !copy.leaves && copy.receivers < self.receivers_max(copy, limits)
        });
        let rank = |node, copy: &Holding| Some((self.distance(node)?, copy.receivers, copy.has_served));
        let fed = free.filter_map(|(node, copy)| Some((rank(*node, copy)?, *node)));
        fed.min_by_key(|(rank, _)| *rank).map(|(_, node)| node)
    }

    /// The first waiting node for which there is a sender, and that sender.
    fn next_pair(&self, limits: &ChainLimits) -> Option<(NodeId, NodeId)> {
        if !self.copies.values().any(Holding::is_complete) {
            return None;
        }
        let waiting = self.copies.iter().filter(|(_, copy)| copy.state == State::Waiting);
        let mut pairs = waiting.map(|(receiver, _)| (*receiver, self.best_sender(*receiver, limits)));
        pairs.find_map(|(receiver, sender)| Some((receiver, sender?)))
    }

    fn are_apart(&self, one: NodeId, other: NodeId) -> bool {
        self.apart.contains(&(one.min(other), one.max(other)))
    }

    /// Records that two nodes cannot reach each other.
    fn part(&mut self, one: NodeId, other: NodeId) {
        if self.are_apart(one, other) {
            return;
        }
        if self.apart.len() == APART_MAX {
            self.apart.remove(0);
        }
        self.apart.push((one.min(other), one.max(other)));
    }

    fn receivers_max(&self, copy: &Holding, limits: &ChainLimits) -> u32 {
        let is_small = self.length.is_some_and(|length| length <= limits.small_bytes);
        if is_small && copy.is_complete() { limits.small_receivers } else { 1 }
    }

    /// Steps to the complete copy that feeds a node; `None`: none does.
    fn distance(&self, node: NodeId) -> Option<usize> {
        let mut at = node;
        for steps in 0..=self.copies.len() {
            match self.copies[&at].state {
                State::Complete { .. } => return Some(steps),
                State::From(sender) => at = sender,
                State::Waiting => return None,
            }
        }
        // Only a circle is longer than the table. B3 says that there is none.
        None
    }

    fn check(&self, limits: &ChainLimits) {
        // The node that made the value is let in even if the table is full.
        assert!(self.copies.len() <= limits.nodes_max + 1, "too many nodes");
        let mut receivers: Map<NodeId, u32> = Map::default();
        for (node, copy) in &self.copies {
            let State::From(sender) = copy.state else { continue };
            assert!(self.copies.contains_key(&sender), "B1: {node:?} has a sender that is not in the table");
            *receivers.entry(sender).or_default() += 1;
            let grow = copy.attempts.is_some_and(|(first, latest)| first <= latest);
            assert!(grow, "B6: the attempts of {node:?}");
        }
        let has_complete = self.copies.values().any(Holding::is_complete);
        for (node, copy) in &self.copies {
            assert!(!copy.leaves || copy.receivers > 0, "{node:?} leaves, and nobody pulls from it");
            let count = receivers.get(node).copied().unwrap_or(0);
            assert_eq!(copy.receivers, count, "B2: the receivers of {node:?} are counted");
            assert!(count <= self.receivers_max(copy, limits), "B2: {count} pull from {node:?}");
            self.check_ends(*node);
            if has_complete && copy.state == State::Waiting {
                assert!(self.best_sender(*node, limits).is_none(), "B4: {node:?} waits for nothing");
            }
        }
        let kept = self.copies.values().filter(|copy| copy.state == State::Complete { kept: true }).count();
        assert_eq!(kept, usize::from(has_complete), "one complete copy is kept");
    }

    fn check_ends(&self, node: NodeId) {
        let mut at = node;
        for _ in 0..=self.copies.len() {
            let State::From(sender) = self.copies[&at].state else { return };
            at = sender;
        }
        panic!("B3: {node:?} pulls from itself");
    }
}

// By hand, because maps do not implement `Hash`: their order is part of their value here.
impl Hash for Broadcast {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.length, self.generation, &self.apart, self.copies.len()).hash(state);
        self.copies.iter().for_each(|entry| entry.hash(state));
    }
}

impl Hash for Chains {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.limits, self.numbers, self.objects.len()).hash(state);
        self.objects.iter().for_each(|entry| entry.hash(state));
    }
}

#[cfg(test)]
mod tests;
