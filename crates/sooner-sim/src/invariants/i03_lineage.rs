//! I3: lineage stays while an object that is in scope may need it: the value of a task that may still be
//! executed again comes back when it is lost, and so do those that it is made of. So a reader is told that a
//! value is lost for good only if the run explains it.

use sooner_wire::ObjectId;
use sooner_wire::message::FailureCode;

use crate::oracle::Kind;
use crate::world::World;

impl World {
    /// Whether a lost object may end in this failure, with itself as the cause. What it is made of is asked
    /// for in turn.
    pub fn may_be_lost_for_good(&self, object: ObjectId, code: FailureCode) -> bool {
        if self.oracle.losses == 0 && !self.oracle.recomputes {
            return false;
        }
        let Some(fact) = self.oracle.facts.get(&object.task) else { return false };
        // A value that was put, and a call that may have changed its actor, are not computed again.
        let is_plain = fact.kind == Kind::Task;
        let used = fact.begun + fact.crashed;
        let is_spent = u32::try_from(fact.retries).is_ok_and(|retries| used > retries);
        // An execution for another one of its results may have been cancelled, or raised: then nothing makes
        // this one.
        let is_given_up = fact.has_raised || self.oracle.is_cancelled(object.task);
        if !is_plain || is_spent || is_given_up {
            return true;
        }
        // It was executed again, and one of its arguments was gone: given up by the program, or with its
        // owner, or large and somebody else's, which lineage does not keep (docs/adr/0014).
        let is_others = |argument: &ObjectId| argument.owner() != object.owner();
        code == FailureCode::ReconstructionFailed
            && (self.oracle.freed.contains(&object.task)
                || self.is_gone(object.owner())
                || fact.dependencies.iter().any(is_others))
    }
}
