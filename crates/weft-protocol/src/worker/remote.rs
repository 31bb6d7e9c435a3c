//! Values of other nodes in the core: tasks that were pushed here wait until their arguments have been brought, and what
//! becomes of those that cannot be (`docs/adr/0023-remote-values.md`).

use weft_wire::ObjectId;
use weft_wire::message::{
    Dependency, Failure, FailureCode, GivenBlocks, Location, LostAt, Outcome, Priority, Pulled, UnknownBlocks,
};

use super::{Actions, Peer, WorkerCore, send};
use crate::execution::MetDependency;
use crate::ownership::Brought;

impl WorkerCore {
    /// Enters an argument that is in the memory of another node, used by its task until that ends.
    pub(super) fn meet_remote(
        &mut self,
        dependency: &mut Dependency,
        met: &mut MetDependency,
        out: &mut Actions,
    ) {
        let object = dependency.object;
        self.ownership.add_use(object);
        let slot = self.ownership.meet(object);
        match slot.outcome() {
            None if object.owner() != self.me => {
                self.resolve(object, dependency.outcome.clone(), &[], out);
            }
            // It is ours, was lost, and is computed again.
            None => {}
            Some(latest) => {
                dependency.outcome = latest.clone();
                let contained = self.ownership.contained(object);
                if !contained.is_empty() {
                    dependency.contained = contained;
                }
            }
        }
        met.stored = Some(slot);
    }

    /// Whether a caller hears what is lost in the memory of this node: then tasks go back to it, and come again with the next
    /// value. Others would push them again as they are; so their tasks wait here for what the owner says.
    pub(super) fn hears_of_losses(&self, caller: Peer) -> bool {
        matches!(caller, Peer::Worker(caller) if caller.node() == self.me.node())
    }

    /// A task that waits here takes these, which are in the memory of another node: they are brought.
    pub(super) fn bring_arguments(&mut self, objects: Vec<ObjectId>, out: &mut Actions) {
        for object in objects {
            self.execution.miss(object);
            self.ownership.bring(object, Priority::Argument, out);
        }
    }

    /// The node has answered what it was asked for.
    pub(super) fn on_pulled(&mut self, pulled: Pulled, out: &mut Actions) {
        let Pulled { object, location, failure } = pulled;
        match (location, failure) {
            (Some(location), _) => {
                if self.ownership.on_copy(object, location, out) == Brought::Here {
                    self.deliver_copy(object, location);
                }
            }
            (None, Some(failure)) => {
                self.ownership.on_pull_failed(object, &failure, out);
                self.refuse_unbrought(object, &failure, out);
            }
            (None, None) => {
                let is_wanted = self.execution.is_missing(object);
                if self.ownership.on_not_there(object, is_wanted, out) == Brought::Lost {
                    self.after_loss(vec![object], false, out);
                    self.lose_state(object);
                }
            }
        }
    }

    /// A value that was elsewhere is here: tasks that wait for it go on.
    pub(super) fn deliver_copy(&mut self, object: ObjectId, location: Location) {
        if self.execution.is_missing(object) {
            self.execution.on_pulled(object, location);
            self.instance.set_state(object, Outcome::Stored(location));
        }
    }

    /// A value could not be brought here: what waits for it ends.
    fn refuse_unbrought(&mut self, object: ObjectId, failure: &Failure, out: &mut Actions) {
        if self.execution.is_missing(object) {
            for incoming in self.execution.take_unbrought(object) {
                self.refuse(incoming, failure, out);
            }
            self.instance.set_state(object, Outcome::Failed(Box::new(failure.clone())));
        }
    }

    /// The state that the actor here was to begin with is lost: its constructor says so.
    fn lose_state(&mut self, object: ObjectId) {
        if object == object.task.state() {
            let message = "the state in the last checkpoint of the actor is lost: it was in the memory of another node, and is not there any more";
            let failure = Failure::new(FailureCode::ObjectLost, message);
            self.instance.set_state(object, Outcome::Failed(Box::new(failure)));
            self.execution.forget_missing(object);
        }
    }

    /// Blocks of another node were given to this process by one that is gone. What that said to it has been read.
    pub(super) fn on_given_elsewhere(&mut self, question: GivenBlocks, out: &mut Actions) {
        let GivenBlocks { giver, mut offsets } = question;
        offsets.retain(|block| !self.ownership.knows_block_at(giver.node(), *block));
        if !offsets.is_empty() {
            send(out, Peer::Node, UnknownBlocks { giver, offsets });
        }
    }

    /// Blocks that this process holds at another node are lost.
    pub(super) fn on_lost_at(&mut self, lost: &LostAt, out: &mut Actions) {
        let lost = self.ownership.on_lost_at(lost.node, &lost.offsets, out);
        self.after_loss(lost, false, out);
    }
}
