//! Where the values in a message are: as the node sees it that reads the message.
//!
//! `Stored` means the memory of the node at hand. A message that leaves for another node is globalised: it names the node.
//! One that came from another node is localised: what lies here is `Stored` again. Messages inside a node are neither.

use crate::NodeId;
use crate::message::{Dependency, Message, Outcome, Remote, Return};

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
        self.for_each_outcome(|outcome| outcome.globalise(me));
    }

    /// The reverse, when the message has come to node `me`.
    pub fn localise(&mut self, me: NodeId) {
        self.for_each_outcome(|outcome| outcome.localise(me));
    }

    fn for_each_outcome(&mut self, mut change: impl FnMut(&mut Outcome)) {
        let dependencies = |list: &mut [Dependency], change: &mut dyn FnMut(&mut Outcome)| {
            list.iter_mut().for_each(|dependency| change(&mut dependency.outcome));
        };
        let value = |value: &mut Return, change: &mut dyn FnMut(&mut Outcome)| change(&mut value.outcome);
        match self {
            Message::Push(push) => dependencies(&mut push.dependencies, &mut change),
            Message::CreateActor(create) => dependencies(&mut create.constructor.dependencies, &mut change),
            Message::Reply(reply) => reply.returns.iter_mut().for_each(|one| value(one, &mut change)),
            Message::Item(item) => value(&mut item.value, &mut change),
            Message::Value(message) => change(&mut message.outcome),
            Message::Checkpoint(checkpoint) => value(&mut checkpoint.state, &mut change),
            Message::Restore(restore) => restore.state.iter_mut().for_each(|one| value(one, &mut change)),
            // The others say nothing about values.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Location, Value};
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
}
