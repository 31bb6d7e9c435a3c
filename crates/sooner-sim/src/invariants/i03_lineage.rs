//! I3: lineage stays while an object in scope may need it. A lost value comes back if its task may still be
//! executed again, and so do the values from which it is made. So a reader learns that a value is lost for
//! good only if the run explains that.

use sooner_wire::ObjectId;
use sooner_wire::message::FailureCode;

use crate::oracle::Kind;
use crate::world::World;

impl World {
    /// Whether a lost object may end in this failure by itself; its arguments are checked in turn.
    pub fn may_be_lost_for_good(&self, object: ObjectId, code: FailureCode) -> bool {
        if self.oracle.losses == 0 && !self.oracle.recomputes {
            return false;
        }
        let Some(fact) = self.oracle.facts.get(&object.task) else { return false };
        // Put values, and calls that may have changed their actor, are not computed again.
        let is_plain = fact.kind == Kind::Task;
        let used = fact.begun + fact.crashed;
        let is_spent = u32::try_from(fact.retries).is_ok_and(|retries| used > retries);
        // An execution for another of the task's results may have been cancelled, or have raised: then none
        // makes this one.
        let is_given_up = fact.has_raised || self.oracle.is_cancelled(object.task);
        if !is_plain || is_spent || is_given_up {
            return true;
        }
        // An argument was gone when the task was executed again: the program freed it, its owner died, or it
        // was large and had another owner, which lineage does not keep (docs/adr/0014).
        let is_others = |argument: &ObjectId| argument.owner() != object.owner();
        code == FailureCode::ReconstructionFailed
            && (self.oracle.freed.contains(&object.task)
                || self.is_dead(object.owner())
                || fact.dependencies.iter().any(is_others))
    }
}
