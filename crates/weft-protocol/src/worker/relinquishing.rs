//! Blocks that the node wants back: which values nobody reads at the moment ([`Ownership::movable`] says what that means).
//!
//! [`Ownership::movable`]: crate::ownership::Ownership::movable

use weft_wire::ObjectId;
use weft_wire::message::{Relinquish, Relinquished, Relinquishing};

use super::{Actions, Peer, WorkerCore, send, uses};
use crate::probes::bug;
use crate::table::{Map, Set};
use crate::tasks::State;

impl WorkerCore {
    /// The node is short of memory.
    pub(super) fn on_relinquish(&mut self, wanted: &Relinquish, out: &mut Actions) {
        let mut moved: Vec<Relinquishing> = Vec::new();
        let movable = self.ownership.movable(&wanted.blocks);
        let waiting = self.uses_by_waiting(&movable);
        for (block, object) in movable {
            // Whatever else uses it may have been told where it is.
            let is_unused = self.ownership.uses(object) == waiting.get(&object).copied().unwrap_or(0);
            if (is_unused || bug!(SpilledWhilePushed)) && self.ownership.give_up(object, block, out) {
                moved.extend(block.spilled.map(|_| block));
            }
        }
        let has_moved: Set<u64> = moved.iter().map(|block| block.offset).collect();
        let offsets = wanted.blocks.iter().map(|block| block.offset);
        let others = offsets.filter(|offset| !has_moved.contains(offset)).collect();
        send(out, Peer::Node, Relinquished { moved, others });
    }

    /// How often tasks that wait for their turn use these objects: they are told where the values are when they are sent.
    fn uses_by_waiting(&self, movable: &[(Relinquishing, ObjectId)]) -> Map<ObjectId, u32> {
        let is_used = |(_, object): &&(Relinquishing, ObjectId)| self.ownership.uses(*object) > 0;
        let mut counts: Map<ObjectId, u32> =
            movable.iter().filter(is_used).map(|(_, object)| (*object, 0)).collect();
        if counts.is_empty() {
            return counts;
        }
        let waits =
            |state: &State| matches!(state, State::Waiting { .. } | State::Queued | State::Delayed { .. });
        let waiting = self.pendings.iter().filter(|pending| waits(&pending.state));
        // The node is told of the arguments of a constructor when it is submitted.
        let waiting = waiting.filter(|pending| pending.spec.kind != weft_wire::message::TaskKind::Creation);
        for object in waiting.flat_map(|pending| uses(&pending.spec)) {
            if let Some(count) = counts.get_mut(&object) {
                *count += 1;
            }
        }
        counts
    }
}
