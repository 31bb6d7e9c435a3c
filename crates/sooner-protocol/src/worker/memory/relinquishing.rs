//! Gives up blocks that a node, this process's or another, wants back and that no process reads at the moment
//! ([`Ownership::movable`] says what that means).
//!
//! [`Ownership::movable`]: crate::worker::ownership::Ownership::movable

use sooner_wire::message::{Recompute, Relinquish, Relinquished, Relinquishing, TaskKind};
use sooner_wire::{BlockId, ObjectId};

use crate::probes::{bug, mark};
use crate::table::{Map, Set};
use crate::worker::WorkerCore;
use crate::worker::action::{Actions, Peer, send};
use crate::worker::core::uses;
use crate::worker::ownership::Finished;
use crate::worker::tasks::{Pending, State};

/// A value is dropped only if at most this many tasks, one after the other, make it again.
const RECOMPUTED_TASKS_MAX: u32 = 16;

impl WorkerCore {
    /// A node is short of memory.
    pub(in crate::worker) fn on_relinquish(&mut self, wanted: &Relinquish, out: &mut Actions) {
        let gives_way = wanted.gives_way == Some(true);
        if gives_way {
            self.return_unbrought(out);
        }
        let elsewhere = wanted.node.filter(|node| *node != self.me.node());
        let (mut moved, movable) = match elsewhere {
            None => (Vec::new(), self.ownership.movable(&wanted.blocks)),
            Some(node) => self.ownership.movable_at(node, &wanted.blocks),
        };
        let waiting = self.uses_by_waiting(&movable);
        let queued = if gives_way { self.uses_by_queued(&movable) } else { Map::default() };
        for (block, object) in movable {
            let count = |uses: &Map<ObjectId, u32>| uses.get(&object).copied().unwrap_or(0);
            // Any other user may have been told the place of the value. Which users were told of a copy is
            // not recorded.
            let is_waited_for = self.ownership.uses(object) == count(&waiting) + count(&queued);
            let is_unused = is_waited_for || (block.spilled.is_some() && !self.ownership.is_told(object));
            if !is_unused && !bug!(SpilledWhilePushed) {
                continue;
            }
            let is_recomputable =
                wanted.recomputes.is_some() && block.spilled.is_some() && self.is_recomputable(object);
            if wanted.recomputes == Some(Recompute::OrKeep) && block.spilled.is_some() && !is_recomputable {
                continue;
            }
            let is_given_up = match elsewhere {
                None => self.ownership.give_up(object, block, out),
                Some(node) => self.ownership.give_up_at(node, object, block, out),
            };
            if is_given_up && is_recomputable {
                self.ownership.drop_value(object, elsewhere.unwrap_or(self.me.node()), block, out);
                continue;
            }
            if is_given_up && !is_waited_for {
                mark!("a value that lies inside another one, or that nobody has read, went to disk");
            }
            moved.extend(block.spilled.filter(|_| is_given_up).map(|_| block));
            if is_given_up && count(&queued) > 0 {
                self.bring_again(object, out);
            }
        }
        let has_moved: Set<BlockId> = moved.iter().map(|one| one.block).collect();
        let blocks = wanted.blocks.iter().map(|one| one.block);
        let others = blocks.filter(|block| !has_moved.contains(block)).collect();
        send(out, Peer::Node, Relinquished { moved, others, node: wanted.node });
    }

    /// Whether the value of an object is sure to be made again when it is wanted: by a task of this process,
    /// from values that stay in memory anyway or can be made again in the same way. Nothing waits for it.
    ///
    /// Other arguments do not do: a value that only the lineage of a task counts goes with its last
    /// reference. Nor do calls of actors, which might give another result.
    fn is_recomputable(&self, object: ObjectId) -> bool {
        if self.ownership.uses(object) > 0 || self.ownership.is_borrowed(object) {
            return false;
        }
        let (mut todo, mut left) = (vec![object], RECOMPUTED_TASKS_MAX);
        while let Some(object) = todo.pop() {
            if self.ownership.is_small(object) {
                continue;
            }
            let made = self.lineage.get(object.task.number).filter(|_| object.owner() == self.me);
            let Some(Finished { spec, retries, .. }) = made else { return false };
            // A generator would be executed from its beginning for each of its items.
            let is_plain = matches!(spec.kind(), TaskKind::Task(_)) && spec.stream.is_none();
            if *retries == 0 || left == 0 || !is_plain {
                return false;
            }
            left -= 1;
            todo.extend(uses(spec));
        }
        true
    }

    /// Sends tasks back whose arguments find no room here: callers need not keep their other arguments in
    /// memory meanwhile.
    fn return_unbrought(&mut self, out: &mut Actions) {
        let back = self.execution.return_unbrought();
        if !back.is_empty() {
            mark!("a task that waited for its arguments gave way to an older one");
            self.give_back_as(back, Some(true), &[], out);
        }
    }

    /// How often calls that have not begun use these copies. Such calls may wait for the copies once more;
    /// they cannot go back, because they keep their order.
    fn uses_by_queued(&self, movable: &[(Relinquishing, ObjectId)]) -> Map<ObjectId, u32> {
        let is_copy = |(block, object): &&(Relinquishing, ObjectId)| {
            block.spilled.is_none() && *object != object.task.state()
        };
        let copies: Set<ObjectId> = movable.iter().filter(is_copy).map(|(_, object)| *object).collect();
        if copies.is_empty() { Map::default() } else { self.execution.uses_by_queued(&copies) }
    }

    /// A copy that queued calls take was given up: has it brought again, after those that needed the room.
    fn bring_again(&mut self, object: ObjectId, out: &mut Actions) {
        let Some(from) = self.ownership.outcome(object) else { return };
        self.execution.on_copy_left(object, &from);
        self.bring_arguments(vec![object], out);
    }

    /// How often tasks that wait for their turn use these objects: they are sent the place with the push.
    fn uses_by_waiting(&mut self, movable: &[(Relinquishing, ObjectId)]) -> Map<ObjectId, u32> {
        let waits =
            |state: &State| matches!(state, State::Waiting { .. } | State::Queued | State::Delayed { .. });
        // The node gets the arguments of a constructor when the actor is created.
        let waits = |pending: &&Pending| waits(&pending.state) && pending.spec.kind() != TaskKind::Creation;
        let mut counts = Map::default();
        for (_, object) in movable.iter().filter(|(_, object)| self.ownership.uses(*object) > 0) {
            let waiting = self.pendings.users_of(*object).filter(waits);
            let times = |pending: &Pending| uses(&pending.spec).filter(|used| used == object).count();
            let count: usize = waiting.map(times).sum();
            counts.insert(*object, u32::try_from(count).unwrap_or(u32::MAX));
        }
        counts
    }
}
