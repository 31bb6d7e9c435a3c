//! Values of other nodes in the core: tasks that were pushed to this process wait until their arguments have
//! been brought, and end or go back if they cannot be (`docs/adr/0023-remote-values.md`).

use sooner_wire::message::{
    Dependency, Failure, FailureCode, Fetch, GivenBlocks, Location, LostAt, Message, Missing, Outcome, Place,
    Priority, Pulled, Push, UnknownBlocks,
};
use sooner_wire::{NodeId, ObjectId, WorkerId};

use super::Brought;
use super::recovery::Told;
use crate::worker::WorkerCore;
use crate::worker::action::{Actions, Peer, send};
use crate::worker::execution::{Incoming, MetDependency};

impl WorkerCore {
    /// Enters an argument in the memory of another node; its task uses it until that task ends.
    pub(in crate::worker) fn meet_remote(
        &mut self,
        dependency: &mut Dependency,
        met: &mut MetDependency,
        out: &mut Actions,
    ) {
        let object = dependency.object;
        let slot = self.ownership.begin_loan(object);
        match slot.outcome().as_deref() {
            None if object.owner() != self.me => {
                self.resolve(object, dependency.outcome.clone(), &[], out);
            }
            // A value owned here that was lost and is computed again.
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

    /// Whether the caller of a task has learned that its arguments are lost. Then the task goes back, and
    /// comes again with the next values. Other callers would push it again unchanged.
    pub(in crate::worker) fn learns_of_losses(&self, caller: Peer, push: &Push) -> bool {
        let Peer::Worker(caller) = caller else { return false };
        let is_here = caller.node() == self.me.node();
        push.dependencies.iter().all(|dependency| match &dependency.outcome {
            Outcome::Remote(_) => false,
            Outcome::Stored(_) | Outcome::Failed(_) => is_here,
            Outcome::Inline(_) => true,
        })
    }

    /// What the caller must learn about lost arguments so that the task can go back: nothing about those on
    /// this node if the caller is local. `None`: it would push the task again unchanged. Other arguments may
    /// be under way. A task that waited here for a lost one would keep the resources that computing it takes.
    pub(in crate::worker) fn missing_arguments(&self, incoming: &Incoming) -> Option<Vec<Missing>> {
        let is_neighbour = matches!(incoming.from, Peer::Worker(caller) if caller.node() == self.me.node());
        let mut missing = Vec::new();
        for (object, outcome) in incoming.lost_places() {
            match outcome.place_elsewhere() {
                Some(place) if self.ownership.is_dead_from(object, outcome) => {
                    missing.push(Missing { object, place });
                }
                None if is_neighbour => {}
                Some(_) | None => return None,
            }
        }
        Some(missing)
    }

    /// A task that waits here takes these objects, which are in the memory of another node: has them brought.
    pub(in crate::worker) fn bring_arguments(&mut self, objects: Vec<ObjectId>, out: &mut Actions) {
        for object in objects {
            self.execution.miss(object);
            self.ownership.bring(object, Priority::Argument, out);
        }
    }

    /// The node has answered a pull.
    pub(in crate::worker) fn on_pulled(&mut self, pulled: Pulled, out: &mut Actions) {
        let Pulled { object, location, failure, tried } = pulled;
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
                if self.ownership.on_not_there(object, tried, is_wanted, out) == Brought::Lost {
                    // Where nothing is certain its owner may name the same place again.
                    let told = if tried.is_some() { Told::Callers } else { Told::Nobody };
                    self.after_loss_elsewhere(vec![object], told, out);
                }
            }
        }
    }

    /// A value that was elsewhere is here: tasks that wait for it go on.
    pub(in crate::worker) fn deliver_copy(&mut self, object: ObjectId, location: Location) {
        if self.execution.is_missing(object) {
            self.execution.on_pulled(object, location);
            self.instance.set_state(object, Outcome::Stored(location));
        }
    }

    /// A value could not be brought here: the tasks that wait for it end.
    fn refuse_unbrought(&mut self, object: ObjectId, failure: &Failure, out: &mut Actions) {
        if self.execution.is_missing(object) {
            for incoming in self.execution.take_unbrought(object) {
                self.refuse(incoming, failure, out);
            }
            self.instance.set_state(object, Outcome::Failed(Box::new(failure.clone())));
        }
    }

    /// The state that the local actor was to begin with is lost: its constructor reports that.
    fn lose_state(&mut self, state: ObjectId) {
        let message = "the state in the last checkpoint of the actor is lost: it was in the memory of another node, and is not there any more";
        let failure = Failure::new(FailureCode::ObjectLost, message);
        self.instance.set_state(state, Outcome::Failed(Box::new(failure)));
        self.execution.forget_missing(state);
    }

    /// Messages of nodes about copies of values of this process.
    pub(in crate::worker) fn on_copies(&mut self, word: &Message, out: &mut Actions) {
        let lost = match word {
            Message::Locate(locate) => self.ownership.on_locate(locate, out),
            Message::CopyMade(made) => self.ownership.on_copy_made(made, out),
            Message::CopyLeaving(gone) => self.ownership.on_copy_leaving(gone, out),
            Message::SenderFailed(failed) => self.ownership.on_sender_failed(failed, out),
            _ => return,
        };
        self.after_loss_elsewhere(lost, Told::Callers, out);
    }

    /// A dead process had given blocks of another node to this one. Its messages to this process have been
    /// read.
    pub(in crate::worker) fn on_given_elsewhere(&mut self, question: GivenBlocks, out: &mut Actions) {
        let GivenBlocks { giver, mut places } = question;
        places.retain(|place| !self.ownership.knows_block_at(giver.node(), *place));
        if !places.is_empty() {
            self.ownership.forget_lost_at(giver.node(), &places);
            send(out, Peer::Node, UnknownBlocks { giver, places });
        }
    }

    /// Blocks that this process holds at another node lost their contents.
    pub(in crate::worker) fn on_lost_at(&mut self, lost: &LostAt, out: &mut Actions) {
        let places: Vec<Place> = lost.blocks.iter().copied().map(Place::from).collect();
        let lost = self.ownership.on_lost_at(lost.node, &places, out);
        self.after_loss_elsewhere(lost, Told::Callers, out);
    }

    /// A node is dead, and with it all values that were only there.
    pub(in crate::worker) fn on_node_dead(&mut self, node: NodeId, out: &mut Actions) {
        // First of all: lost values are made again at once, and not by workers that died with the node.
        self.leases.on_node_dead(node);
        let mut lost = self.ownership.on_node_dead(node, out);
        lost.extend(self.ownership.end_copies_at(node, out));
        self.after_loss_elsewhere(lost, Told::All, out);
        self.end_promotions_at(node, out);
    }

    /// A borrower asks for a value, perhaps because it is not where this process said it was.
    pub(in crate::worker) fn on_fetch(&mut self, fetch: &Fetch, from: WorkerId, out: &mut Actions) {
        let Fetch { object, missing_at } = *fetch;
        if let Some(place) = missing_at {
            self.on_missing(&Missing { object, place }, out);
        }
        if self.ownership.on_fetch(object, from, out) {
            self.revive(object, out);
        }
    }

    /// Another process knows for certain that a value is not there.
    pub(in crate::worker) fn on_missing(&mut self, missing: &Missing, out: &mut Actions) {
        let lost = self.ownership.on_missing(missing.object, &missing.place, out);
        self.after_loss_elsewhere(lost, Told::Callers, out);
    }

    fn after_loss_elsewhere(&mut self, lost: Vec<ObjectId>, told: Told, out: &mut Actions) {
        let states = lost.iter().copied().filter(|object| *object == object.task.state());
        let states: Vec<ObjectId> = states.collect();
        self.after_loss(lost, told, out);
        states.into_iter().for_each(|state| self.lose_state(state));
    }
}
