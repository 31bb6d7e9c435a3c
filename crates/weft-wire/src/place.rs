//! Where the values in a message are: as the node sees it that reads the message.
//!
//! `Stored` means the memory of the node at hand. A message that leaves for another node is globalised: it names the node.
//! One that came from another node is localised: what lies here is `Stored` again. Messages inside a node are neither.

use crate::NodeId;
use crate::message::{ActorsHere, Dependency, Message, Outcome, Remote};

impl Outcome {
    /// For another node: a value in the memory of node `me` says so.
    pub fn globalise(&mut self, me: NodeId) {
        if let Self::Stored(location) = self {
            *self = Self::Remote(Box::new(Remote { node: me, location: *location }));
        }
    }

    /// From another node: a value in the memory of node `me` is here.
    pub fn localise(&mut self, me: NodeId) {
        if let Self::Remote(remote) = self
            && remote.node == me
        {
            *self = Self::Stored(remote.location);
        }
    }
}

impl Message {
    /// Makes the message mean the same at another node. `me` is the node that it leaves.
    pub fn globalise(&mut self, me: NodeId) {
        self.for_each_outcome(&mut |outcome| outcome.globalise(me));
    }

    /// The reverse, when the message has come to node `me`.
    pub fn localise(&mut self, me: NodeId) {
        self.for_each_outcome(&mut |outcome| outcome.localise(me));
    }

    fn for_each_outcome(&mut self, change: &mut dyn FnMut(&mut Outcome)) {
        match self {
            Self::Push(push) => of_dependencies(&mut push.dependencies, change),
            Self::CreateActor(create) => of_dependencies(&mut create.constructor.dependencies, change),
            Self::PlaceActor(place) => of_dependencies(&mut place.create.constructor.dependencies, change),
            Self::Reply(reply) => reply.returns.iter_mut().for_each(|one| change(&mut one.outcome)),
            Self::Item(item) => change(&mut item.value.outcome),
            Self::Value(message) => change(&mut message.outcome),
            Self::Checkpoint(checkpoint) => change(&mut checkpoint.state.outcome),
            Self::Restore(restore) => restore.state.iter_mut().for_each(|one| change(&mut one.outcome)),
            Self::ActorsHere(here) => of_actors(here, change),
            Self::Routed(routed) => routed.message.for_each_outcome(change),
            // The others say nothing about values.
            _ => {}
        }
    }
}

fn of_dependencies(list: &mut [Dependency], change: &mut dyn FnMut(&mut Outcome)) {
    list.iter_mut().for_each(|dependency| change(&mut dependency.outcome));
}

fn of_actors(here: &mut ActorsHere, change: &mut dyn FnMut(&mut Outcome)) {
    for actor in &mut here.actors {
        if let Some(create) = &mut actor.create {
            of_dependencies(&mut create.constructor.dependencies, change);
        }
        if let Some(state) = &mut actor.checkpoint {
            change(&mut state.outcome);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Location, Routed, Value};
    use crate::{Blob, TaskId, WorkerId};

    const HERE: NodeId = NodeId(1 << 24);
    const THERE: NodeId = NodeId(2 << 24);
    const AT: Location = Location { offset: 4096, length: 7 };

    fn value(outcome: Outcome) -> Message {
        let object = TaskId { owner: WorkerId(7), number: 9 }.object(0);
        Value { object, outcome, contained: Vec::new() }.into()
    }

    #[test]
    fn a_value_is_here_where_it_lies_and_elsewhere_for_all_others() {
        let mut message = value(Outcome::Stored(AT));
        message.globalise(HERE);
        let remote = value(Outcome::Remote(Box::new(Remote { node: HERE, location: AT })));
        assert_eq!(message, remote);
        message.localise(THERE);
        assert_eq!(message, remote);
        // A third process passes it on.
        message.globalise(THERE);
        assert_eq!(message, remote);
        message.localise(HERE);
        assert_eq!(message, value(Outcome::Stored(AT)));
    }

    #[test]
    fn what_travels_inside_stays_as_it_is() {
        let small = value(Outcome::Inline(Blob::from(&b"small"[..])));
        let mut message = small.clone();
        message.globalise(HERE);
        message.localise(HERE);
        assert_eq!(message, small);
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
