//! I2: a process reads either a value that a legal execution gives, or a failure that this run justifies.
//! I16: every failure has a name.

use sooner_protocol::probes::hit;
use sooner_wire::message::{Failure, FailureCode, Outcome};
use sooner_wire::{ActorId, ObjectId, WorkerId};

use crate::oracle::{Fact, Kind, Oracle, Raises};
use crate::violation::fail;
use crate::world::{World, number_of};

/// How many objects a failure is traced through at most.
const TRACED_MAX: usize = 4096;

impl World {
    /// A process reads the outcome of an object.
    pub fn check_outcome(&mut self, number: u32, object: ObjectId, outcome: &Outcome) {
        match outcome {
            Outcome::Inline(_) | Outcome::Stored(_) => {
                self.check_value(number, object, outcome);
            }
            // The value is not read before it is brought to this node.
            Outcome::Remote(_) => {}
            Outcome::Failed(failure) => self.check_failure(number, object, failure),
        }
    }

    /// Checks a value that a process reads. Returns its content.
    pub fn check_value(&mut self, number: u32, object: ObjectId, outcome: &Outcome) -> u64 {
        let in_memory = matches!(outcome, Outcome::Stored(_));
        let found = self.read(number, outcome);
        if in_memory && self.process(number).is_doomed {
            // The signal that ends the process is on its way. The block may be used for another value by now,
            // and nobody will learn of the result.
            return found.unwrap_or(0);
        }
        let Some(found) = found else {
            fail("I5", format!("{number} reads {object:?} in a block that is free: {outcome:?}"));
        };
        let Some(fact) = self.oracle.facts.get(&object.task) else {
            fail("I2", format!("{number} reads {object:?}, which nobody made"));
        };
        if fact.raises == Raises::Always && object.index == 0 {
            fail("I2", format!("{number} reads a value of {object:?}, which raises"));
        }
        let is_legal = match fact.payload {
            Some(base) => found == Oracle::value(base, object.index),
            None => fact.seen.iter().any(|base| found == Oracle::value(*base, object.index)),
        };
        if !is_legal {
            let place = if in_memory { "I5" } else { "I2" };
            fail(place, format!("{number} reads a value of {object:?} that no execution gave: {outcome:?}"));
        }
        found
    }

    fn check_failure(&mut self, number: u32, object: ObjectId, failure: &Failure) {
        if failure.code == FailureCode::System || failure.message.is_empty() {
            fail("I16", format!("{number} reads a failure of {object:?} without a name: {failure:?}"));
        }
        if failure.code == FailureCode::ActorUnavailable
            && let Some(fact) = self.oracle.facts.get_mut(&object.task).filter(|fact| fact.kept == Some(true))
        {
            hit("a call that may have ended its actor's process was given up");
            fact.is_given_up = true;
        }
        // The failure may come from an argument, or from an argument's argument.
        let mut open = vec![object];
        for at in 0..TRACED_MAX {
            let Some(object) = open.get(at).copied() else { break };
            if self.justifies(object, failure.code) {
                if at > 0 {
                    hit("a failure came from an argument");
                }
                return;
            }
            let Some(fact) = self.oracle.facts.get(&object.task) else { continue };
            // A call that could not be made fails with its actor's constructor.
            let made_by = match fact.kind {
                Kind::Call(actor, _) => Some(actor.object(0)),
                Kind::Task | Kind::Creation | Kind::Put => None,
            };
            for dependency in fact.dependencies.iter().copied().chain(made_by) {
                let dependency = dependency.task.object(0);
                if !open.contains(&dependency) {
                    open.push(dependency);
                }
            }
        }
        let fact = self.oracle.facts.get(&object.task);
        let is_loss = matches!(failure.code, FailureCode::ObjectLost | FailureCode::ReconstructionFailed);
        let place = if is_loss { "I3" } else { "I2" };
        let text =
            format!("{number} reads a failure of {object:?} that nothing justifies: {failure:?}\n{fact:?}");
        fail(place, text);
    }

    pub(crate) fn is_dead(&self, worker: WorkerId) -> bool {
        !self.process(number_of(worker)).is_running()
    }

    fn justifies(&self, object: ObjectId, code: FailureCode) -> bool {
        let Some(fact) = self.oracle.facts.get(&object.task) else { return false };
        match code {
            FailureCode::Task => fact.has_raised,
            FailureCode::WorkerCrashed => {
                // A task that raised and is on its way to the same worker again counts as begun there.
                let used = fact.begun + fact.crashed;
                fact.crashed > 0 && u32::try_from(fact.retries).is_ok_and(|retries| used > retries)
            }
            FailureCode::Cancelled => self.oracle.is_cancelled(object.task),
            // An owner that ended because it was idle has nothing that others need, with two exceptions. A
            // process died that had handed on the owner's objects; or a task is executed again for a lost
            // result: kept tasks do not count their borrowed references (ADR 0014).
            FailureCode::OwnerDied => {
                let owner = self.process(number_of(object.owner()));
                !owner.is_running() && (!owner.has_retired || self.kills > 0 || self.oracle.losses > 0)
            }
            FailureCode::ObjectLost | FailureCode::ReconstructionFailed => {
                // The task that makes the value again may find no worker.
                self.oracle.lacks > 0 || self.may_be_lost_for_good(object, code)
            }
            // A lost value's arguments may be lost for good: tasks without retries left are not repeated.
            FailureCode::ObjectFreed => self.oracle.losses > 0,
            FailureCode::TaskUnschedulable => self.oracle.lacks > 0,
            FailureCode::ActorUnavailable => match fact.kind {
                Kind::Call(actor, _) => self.oracle.actors[&actor].deaths > 0,
                _ => false,
            },
            FailureCode::ActorDied | FailureCode::ActorInit => match fact.kind {
                // A task that is executed again for a lost result may outlive actors whose handles it got,
                // and hand the handles on.
                Kind::Call(actor, _) => {
                    self.may_be_dead(actor) || self.oracle.losses > 0 || self.cannot_be_repeated(actor)
                }
                _ => false,
            },
            _ => false,
        }
    }

    /// Whether some call of the actor cannot be repeated, as restoring the actor's state may require: the
    /// owner of an argument is dead.
    fn cannot_be_repeated(&self, actor: ActorId) -> bool {
        let is_its = |fact: &&Fact| matches!(fact.kind, Kind::Call(of, _) if of == actor);
        let lost = |fact: &Fact| fact.dependencies.iter().any(|object| self.is_dead(object.owner()));
        self.oracle.facts.values().filter(is_its).any(lost)
    }

    /// Whether an actor may be dead for good.
    fn may_be_dead(&self, actor: ActorId) -> bool {
        let Some(facts) = self.oracle.actors.get(&actor) else { return false };
        let is_used_up = facts.restarts >= 0 && facts.deaths > u32::try_from(facts.restarts).unwrap_or(0);
        // A constructor whose arguments failed never ran.
        let has_no_constructor = facts.incarnations == 0
            && self.oracle.facts.get(&actor).is_some_and(|fact| !fact.dependencies.is_empty());
        let is_orphan = self.is_dead(actor.owner) && !facts.is_detached;
        let was_dropped = self.is_dead(actor.owner);
        facts.is_ended
            || self.oracle.lacks > 0
            || facts.is_restarted
            || facts.raises
            || is_used_up
            || is_orphan
            || was_dropped
            || has_no_constructor
    }
}
