//! Messages between a node and the owners of values about which node pulls a value from which
//! (`docs/adr/0026-broadcast-chains-at-the-owner.md`).
//!
//! An owner is a process, on this node or another; its node forwards the messages. Before an owner is asked,
//! this node makes sure to learn of its death: so no question stays open.

use sooner_wire::message::{CopyLeaving, CopyMade, DropCopy, Locate, Message, SenderFailed};
use sooner_wire::{BlockId, FetchAttempt, NodeId, ObjectId, TransferAttempt, WorkerId};

use super::transfers::address;
use crate::node::objects::{CopyAt, Serves};
use crate::node::{NodeAction, NodeActions, NodeCore};

/// A message to the owner of an object.
#[derive(Debug, Clone, Copy)]
pub(in crate::node) enum Direction {
    Locate,
    /// With the owner's message that named the sender.
    Made(TransferAttempt),
    Failed(TransferAttempt),
    Leave,
}

/// A copy that is read for another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServedCopy {
    /// It is in this block, which stays as it is until [`NodeCore::end_serving`].
    Here(BlockId),
    /// Like `Here`, as far as this stream has filled the block.
    Moving {
        /// The block.
        block: BlockId,
        /// The stream.
        attempt: FetchAttempt,
    },
    /// Ask again.
    NotYet,
    /// There is no such copy.
    No,
}

impl NodeCore {
    /// Values are pulled from the senders that owners name. The shell must be able to send copies that are
    /// still arriving.
    pub fn ask_owners(&mut self) {
        self.pulls.ask_owners();
    }

    /// An owner is about to be asked: this node watches it. True if the owner is dead.
    pub(in crate::node) fn meet_owner(&mut self, owner: WorkerId, out: &mut NodeActions) -> bool {
        if !self.is_elsewhere(owner) {
            return !self.clients.contains_key(&owner);
        }
        let is_dead = self.settling.knows(owner) || self.watches.is_with_node(owner);
        if !is_dead {
            self.on_watch(owner, out);
        }
        is_dead
    }

    pub(in crate::node) fn ask_owner(&self, object: ObjectId, direction: Direction, out: &mut NodeActions) {
        let node = self.id();
        let message: Message = match direction {
            Direction::Locate => Locate { object, node }.into(),
            Direction::Made(attempt) => CopyMade { object, node, attempt }.into(),
            Direction::Failed(attempt) => SenderFailed { object, node, attempt }.into(),
            Direction::Leave => CopyLeaving { object, node }.into(),
        };
        let to = object.owner();
        let message = Box::new(message);
        if self.is_elsewhere(to) {
            out.push(NodeAction::Route { from: address(node), to, message });
        } else if self.clients.contains_key(&to) {
            out.push(NodeAction::Send(to, message));
        }
    }

    /// A local owner says what a node is to do with a copy.
    pub(in crate::node) fn on_direction(
        &mut self,
        from: WorkerId,
        node: NodeId,
        message: Message,
        out: &mut NodeActions,
    ) {
        if node == self.id() {
            return self.on_directed(message, out);
        }
        out.push(NodeAction::Route { from, to: address(node), message: Box::new(message) });
    }

    /// The owner of a value says what this node is to do with its copy.
    pub(in crate::node) fn on_directed(&mut self, message: Message, out: &mut NodeActions) {
        let mut wanted = Vec::new();
        match message {
            Message::Located(located) => self.pulls.on_located(&located, &mut wanted),
            Message::DropCopy(DropCopy { object, .. }) => self.pulls.on_drop(object, &mut wanted),
            _ => return,
        }
        self.perform(wanted, out);
    }

    /// The session with a node has ended: this node's messages and questions to its processes are sent again.
    pub(in crate::node) fn ask_owners_again(&mut self, node: NodeId, out: &mut NodeActions) {
        let mut wanted = Vec::new();
        self.pulls.on_messages_lost(node, &mut wanted);
        self.perform(wanted, out);
    }

    /// The owner of a value that was pulled is dead.
    pub(in crate::node) fn end_directions_of(&mut self, owner: WorkerId, out: &mut NodeActions) {
        let mut wanted = Vec::new();
        self.pulls.on_owner_dead(owner, &mut wanted);
        self.perform(wanted, out);
    }

    /// A block for an arriving value is not needed, unless it is being read for another node.
    pub(in crate::node) fn drop_pulled(&mut self, block: BlockId, out: &mut NodeActions) {
        if self.holders.of(block.into()).contains(&address(self.id())) {
            return self.release_own(block, out);
        }
        out.push(NodeAction::FreeBlock(block));
    }

    /// This node does not hold a block any more.
    pub(in crate::node) fn release_own(&mut self, block: BlockId, out: &mut NodeActions) {
        if self.holders.release(block.into(), address(self.id())) {
            self.free_place(block.into(), out);
        }
    }

    /// Whether a block that no local process holds stays, because other nodes may be pulling the copy in it,
    /// or because it may be needed again. The latter does not keep a block that this node has just asked for.
    pub(in crate::node) fn keeps_for_others(&mut self, block: BlockId, out: &mut NodeActions) -> bool {
        if self.pulls.is_empty() {
            return false;
        }
        let mut wanted = Vec::new();
        let may_cache = !self.draining.has_begun() && !self.residency.is_busy(block);
        let keeps = !self.lost.contains(block.into()) && self.pulls.keeps(block, may_cache, &mut wanted);
        self.perform(wanted, out);
        keeps
    }

    /// A copy of a generation, which has `length` bytes, is about to be read for another node, which the
    /// owner has sent here.
    pub fn begin_serving_copy(&mut self, object: ObjectId, generation: u64, length: u64) -> ServedCopy {
        let served = match self.pulls.copy_at(object, generation, length) {
            CopyAt::Here(block) if self.serves(block.into(), object) == Serves::No => return ServedCopy::No,
            CopyAt::Here(block) => ServedCopy::Here(block),
            CopyAt::Moving { block, attempt } => ServedCopy::Moving { block, attempt },
            CopyAt::NotYet => return ServedCopy::NotYet,
            CopyAt::No => return ServedCopy::No,
        };
        if let ServedCopy::Here(block) | ServedCopy::Moving { block, .. } = served {
            self.holders.keep(block.into());
        }
        served
    }
}
