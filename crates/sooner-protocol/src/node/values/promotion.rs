//! Copies on this node that become the values of owners whose values are lost where they were, and requests
//! of local processes for copies at other nodes (`docs/adr/0052-copies-become-values.md`).
//!
//! A question is sent again when the session that it went over has ended, until there is an answer: the other
//! node's answer may be lost, and a repeated question gets the same answer.

use sooner_wire::message::{Promote, Promoted};
use sooner_wire::{BlockId, NodeId, ObjectId, WorkerId};

use super::transfers::address;
use crate::node::core::send;
use crate::node::{NodeAction, NodeActions, NodeCore};
use crate::table::Map;

/// Requests of local processes that other nodes have not answered.
#[derive(Debug, Default)]
pub(in crate::node) struct Promoting {
    asked: Map<ObjectId, Promote>,
}

impl Promoting {
    fn insert(&mut self, promote: Promote) {
        self.asked.insert(promote.object, promote);
    }

    /// A node has answered: the question to it is over. Another node may have been asked since.
    fn on_answer(&mut self, answer: &Promoted) {
        if self.asked.get(&answer.object).is_some_and(|promote| promote.node == answer.node) {
            self.asked.swap_remove(&answer.object);
        }
    }

    fn at(&self, node: NodeId) -> impl Iterator<Item = Promote> {
        self.asked.values().copied().filter(move |promote| promote.node == node)
    }

    /// A node is dead: its answer does not come.
    pub(in crate::node) fn forget_node(&mut self, node: NodeId) {
        self.asked.retain(|_, promote| promote.node != node);
    }

    /// A local process is dead: it needs no answer.
    pub(in crate::node) fn forget_owner(&mut self, owner: WorkerId) {
        self.asked.retain(|object, _| object.owner() != owner);
    }
}

impl NodeCore {
    /// A local process asks for a copy of a value of its own.
    pub(in crate::node) fn on_promote_from(
        &mut self,
        from: WorkerId,
        promote: Promote,
        out: &mut NodeActions,
    ) {
        if promote.node == self.id() {
            let answer = self.promote(from, promote, out);
            return out.push(send(from, answer));
        }
        self.promoting.insert(promote);
        self.ask_to_promote(promote, out);
    }

    fn ask_to_promote(&self, promote: Promote, out: &mut NodeActions) {
        let (from, to) = (promote.object.owner(), address(promote.node));
        out.push(NodeAction::Route { from, to, message: Box::new(promote.into()) });
    }

    /// The owner of a value, at another node, asks for the copy here.
    pub(in crate::node) fn on_promote(&mut self, from: WorkerId, promote: Promote, out: &mut NodeActions) {
        if self.meet_owner(from, out) {
            // The owner is dead: the answer has no receiver.
            return;
        }
        let answer = self.promote(from, promote, out);
        let message = Box::new(answer.into());
        out.push(NodeAction::Route { from: address(self.id()), to: from, message });
    }

    /// The owner holds the copy from now on, as if it had been made here.
    fn promote(&mut self, owner: WorkerId, promote: Promote, out: &mut NodeActions) -> Promoted {
        let Promote { object, length, generation, .. } = promote;
        let mut wanted = Vec::new();
        let location = self.pulls.promote(object, generation, length, &mut wanted);
        if let Some(location) = location {
            self.holders.share(location.place(), owner);
            self.holders.set_object(location.place(), object);
        }
        self.perform(wanted, out);
        Promoted { object, node: self.id(), location }
    }

    /// Another node has answered a local process.
    pub(in crate::node) fn on_promoted(&mut self, to: WorkerId, answer: Promoted, out: &mut NodeActions) {
        self.promoting.on_answer(&answer);
        if self.clients.contains_key(&to) {
            out.push(send(to, answer));
        }
    }

    /// The session with a node has ended: questions to it, or its answers, may be lost.
    pub(in crate::node) fn ask_to_promote_again(&self, node: NodeId, out: &mut NodeActions) {
        for promote in self.promoting.at(node) {
            self.ask_to_promote(promote, out);
        }
    }

    /// Whether the copy in a block is the value, and its owner has not given it back.
    pub(in crate::node) fn is_promoted(&self, block: BlockId) -> bool {
        let object = self.pulls.primary_in(block);
        object.is_some_and(|object| self.holders.of(block.into()).contains(&object.owner()))
    }
}

#[cfg(test)]
mod tests {
    use sooner_wire::TaskId;

    use super::*;

    #[test]
    fn only_the_node_that_was_asked_last_ends_the_question() {
        let object = TaskId { owner: WorkerId(1), number: 1 }.object(0);
        let [first, last] = [NodeId(1 << 24), NodeId(2 << 24)];
        let mut promoting = Promoting::default();
        for node in [first, last] {
            promoting.insert(Promote { object, node, length: 64, generation: 1 });
        }
        promoting.on_answer(&Promoted { object, node: first, location: None });
        assert_eq!((promoting.at(first).count(), promoting.at(last).count()), (0, 1));
        promoting.on_answer(&Promoted { object, node: last, location: None });
        assert_eq!(promoting.at(last).count(), 0);
    }
}
