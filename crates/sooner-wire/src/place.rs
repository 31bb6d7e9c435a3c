//! Where the values in a message are, from the point of view of the node that reads the message.
//!
//! `Stored` means the memory of the local node. A message to another node is globalised: `Stored` becomes
//! `Remote` with this node. A message from another node is localised: values in local memory become `Stored`
//! again, if the sender is entitled to say so. Messages inside a node are neither.
//!
//! An owner knows where its values are. Another process may name the place after the owner's death, when the
//! memory is free and may hold another value. Such a value stays `Remote`, even on the local node, and its
//! readers ask the node, which knows what is where (`docs/adr/0023-remote-values.md`).

use crate::message::{
    ActorsHere, Change, Checkpoint, CreateActor, Item, Message, Outcome, PlaceActor, PlaceRefused, Push,
    Remote, Reply, Restore, Routed, Value,
};
use crate::{NodeId, WorkerId};

impl Outcome {
    /// For another node: `Stored` becomes `Remote` with node `me`.
    pub fn globalise(&mut self, me: NodeId) {
        if let Self::Stored(location) = self {
            *self = Self::Remote(Box::new(Remote { node: me, location: *location }));
        }
    }

    /// From another node: a value in the memory of node `me` becomes `Stored`. A value that `me` has spilled
    /// must be brought from disk, and stays `Remote`.
    pub fn localise(&mut self, me: NodeId) {
        if let Self::Remote(remote) = self
            && remote.node == me
            && !remote.location.place().is_disk()
        {
            *self = Self::Stored(remote.location);
        }
    }
}

impl Message {
    /// Makes the message mean the same at another node. `me` is the node that it leaves.
    pub fn globalise(&mut self, me: NodeId) {
        self.for_each_outcome(&mut |_, outcome| outcome.globalise(me));
    }

    /// The reverse, for a message to node `me` from a process on another node: values that the sender owns
    /// and that lie in this node's memory become `Stored`. For [`Message::CreateActor`], which others pass
    /// on, the sender is the actor's creator. The state in [`Message::Restore`] is localised whoever owns it:
    /// it lies in a block that its node keeps.
    pub fn localise_from(&mut self, sender: WorkerId, me: NodeId) {
        if let Self::Routed(routed) = self {
            return routed.message.localise_from(routed.from, me);
        }
        let is_kept = matches!(self, Self::Restore(_));
        self.for_each_outcome(&mut |object, outcome| {
            if is_kept || object.owner() == sender {
                outcome.localise(me);
            }
        });
    }
}

/// A message that says where values are: its row has `values`.
pub(crate) trait Values {
    /// Hands every outcome in it to `change`, with its object.
    fn each(&mut self, change: Change<'_>);
}

impl Values for Push {
    fn each(&mut self, change: Change<'_>) {
        self.dependencies.iter_mut().for_each(|one| change(one.object, &mut one.outcome));
    }
}

impl Values for CreateActor {
    fn each(&mut self, change: Change<'_>) {
        self.constructor.each(change);
    }
}

impl Values for PlaceActor {
    fn each(&mut self, change: Change<'_>) {
        self.create.each(change);
    }
}

impl Values for PlaceRefused {
    fn each(&mut self, change: Change<'_>) {
        self.create.iter_mut().for_each(|create| create.each(change));
    }
}

impl Values for Reply {
    fn each(&mut self, change: Change<'_>) {
        let task = self.task;
        let returns = (0..).zip(&mut self.returns);
        returns.for_each(|(index, one)| change(task.object(index), &mut one.outcome));
    }
}

impl Values for Item {
    fn each(&mut self, change: Change<'_>) {
        change(self.task.object(self.index), &mut self.value.outcome);
    }
}

impl Values for Value {
    fn each(&mut self, change: Change<'_>) {
        change(self.object, &mut self.outcome);
    }
}

impl Values for Checkpoint {
    fn each(&mut self, change: Change<'_>) {
        change(self.actor.state(), &mut self.state.outcome);
    }
}

impl Values for Restore {
    fn each(&mut self, change: Change<'_>) {
        let object = self.actor.state();
        self.state.iter_mut().for_each(|one| change(object, &mut one.outcome));
    }
}

impl Values for ActorsHere {
    fn each(&mut self, change: Change<'_>) {
        for row in &mut self.actors {
            row.create.iter_mut().for_each(|create| create.each(change));
            if let Some(state) = &mut row.checkpoint {
                change(row.actor.state(), &mut state.outcome);
            }
        }
        let checkpoints = self.also.iter_mut().flat_map(|also| &mut also.checkpoints);
        checkpoints.for_each(|(_, checkpoint)| checkpoint.each(change));
    }
}

impl Values for Routed {
    fn each(&mut self, change: Change<'_>) {
        self.message.for_each_outcome(change);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Location, Return};
    use crate::{Blob, TaskId};

    const HERE: NodeId = NodeId(1 << 24);
    const THERE: NodeId = NodeId(2 << 24);
    const OWNER: WorkerId = WorkerId(7);
    const AT: Location = Location { offset: 4096, length: 7 };

    fn value(outcome: Outcome) -> Message {
        let object = TaskId { owner: OWNER, number: 9 }.object(0);
        Value { object, outcome, contained: Vec::new() }.into()
    }

    #[test]
    fn a_value_is_here_where_it_lies_and_elsewhere_for_all_others() {
        let mut message = value(Outcome::Stored(AT));
        message.globalise(HERE);
        let remote = value(Outcome::Remote(Box::new(Remote { node: HERE, location: AT })));
        assert_eq!(message, remote);
        message.localise_from(OWNER, THERE);
        assert_eq!(message, remote);
        // A third process passes it on.
        message.globalise(THERE);
        assert_eq!(message, remote);
        message.localise_from(OWNER, HERE);
        assert_eq!(message, value(Outcome::Stored(AT)));
    }

    #[test]
    fn what_travels_inside_stays_as_it_is() {
        let small = value(Outcome::Inline(Blob::from(&b"small"[..])));
        let mut message = small.clone();
        message.globalise(HERE);
        message.localise_from(OWNER, HERE);
        assert_eq!(message, small);
    }
    #[test]
    fn only_the_owner_says_that_a_value_is_here() {
        // The owner may be gone since, and another value where this one was.
        let remote = value(Outcome::Remote(Box::new(Remote { node: HERE, location: AT })));
        let mut message = remote.clone();
        message.localise_from(WorkerId(THERE.0 + 1), HERE);
        assert_eq!(message, remote);
    }

    #[test]
    fn a_state_is_kept_by_the_node_where_it_lies() {
        let actor = TaskId { owner: OWNER, number: 9 };
        let restore = |outcome| {
            let state = Some(Return { outcome, contained: Vec::new() });
            Message::Restore(crate::message::Restore { actor, state, callers: Vec::new(), takeover: None })
        };
        let mut message = restore(Outcome::Remote(Box::new(Remote { node: HERE, location: AT })));
        message.localise_from(WorkerId(THERE.0), HERE);
        assert_eq!(message, restore(Outcome::Stored(AT)));
    }

    #[test]
    fn what_is_passed_on_means_the_same_too() {
        let routed = |message| Message::from(Routed { from: WorkerId(1), to: WorkerId(2), message });
        let mut message = routed(Box::new(value(Outcome::Stored(AT))));
        message.globalise(HERE);
        let remote = Outcome::Remote(Box::new(Remote { node: HERE, location: AT }));
        assert_eq!(message, routed(Box::new(value(remote))));
    }
}
