//! The order in which a process sends its queued messages to several peers: those for its node first.
//!
//! The node must learn that a block is another process's before that process learns of the value in it. If
//! this process died in between, the node would reuse the block while it is read. So nothing is sent to
//! another process while something is queued for the node, nor while the node's socket is full; the node
//! always reads, so that does not last.
//!
//! It never touches bytes or sockets: the caller marks peers with queued messages, and is told which is next.

use std::collections::VecDeque;

/// The peer that is sent to next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn<P> {
    /// The node; [`FlushOrder::on_node_flushed`] follows.
    Node,
    /// Another process.
    Other(P),
}

/// See the module. `P` is another process.
#[derive(Debug)]
pub struct FlushOrder<P> {
    /// Something is queued for the node, not tried yet.
    waits_for_node: bool,
    /// The node's socket could not take everything.
    is_node_full: bool,
    /// Processes with queued messages, in order of marking.
    others: VecDeque<P>,
    /// How many of `others` have a turn in this flush: one that is marked meanwhile waits for the next.
    turns: usize,
}

impl<P> Default for FlushOrder<P> {
    fn default() -> Self {
        Self { waits_for_node: false, is_node_full: false, others: VecDeque::new(), turns: 0 }
    }
}

impl<P: Copy> FlushOrder<P> {
    /// Something is queued for the node.
    #[inline]
    pub fn mark_node(&mut self) {
        self.waits_for_node = true;
    }

    /// Something is queued for another process, which is not marked yet.
    #[inline]
    pub fn mark(&mut self, other: P) {
        self.others.push_back(other);
    }

    /// Whether nothing is queued for any peer.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.waits_for_node && !self.is_node_full && self.others.is_empty()
    }

    /// Other processes with queued messages.
    pub fn others(&self) -> impl Iterator<Item = P> {
        self.others.iter().copied()
    }

    /// A flush begins: every peer with queued messages has a turn.
    pub fn begin(&mut self) {
        self.retry_node();
        self.turns = self.others.len();
    }

    /// The node's socket may have room again.
    pub fn retry_node(&mut self) {
        self.waits_for_node |= self.is_node_full;
        self.is_node_full = false;
    }

    /// Takes out the next turn: the node's whenever something is queued for it, none while the node's socket
    /// is full, otherwise the next process's.
    pub fn take_turn(&mut self) -> Option<Turn<P>> {
        if self.take_node() {
            return Some(Turn::Node);
        }
        if self.is_node_full || self.turns == 0 {
            return None;
        }
        self.turns -= 1;
        self.others.pop_front().map(Turn::Other)
    }

    /// Takes out the node's turn, if it has one. For callers that send to one other process between flushes.
    pub fn take_node(&mut self) -> bool {
        !self.is_node_full && std::mem::take(&mut self.waits_for_node)
    }

    /// The node's turn is over. If its socket `is_full`, no peer has a turn before [`Self::retry_node`].
    pub fn on_node_flushed(&mut self, is_full: bool) {
        self.is_node_full = is_full;
    }

    /// Whether other processes must wait for the node.
    #[must_use]
    pub fn is_held_up(&self) -> bool {
        self.is_node_full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One flush, with a node that takes all.
    fn flush(order: &mut FlushOrder<u32>) -> Vec<Turn<u32>> {
        order.begin();
        std::iter::from_fn(|| order.take_turn()).collect()
    }

    #[test]
    fn the_node_is_first_and_the_others_keep_their_order() {
        let mut order = FlushOrder::default();
        order.mark(3);
        order.mark(1);
        order.mark_node();
        order.mark_node();
        order.mark(2);
        assert_eq!(order.others().collect::<Vec<_>>(), [3, 1, 2]);
        assert_eq!(flush(&mut order), [Turn::Node, Turn::Other(3), Turn::Other(1), Turn::Other(2)]);
        assert!(order.is_empty());
        assert_eq!(flush(&mut order), []);
    }

    #[test]
    fn nobody_has_a_turn_while_the_node_is_full() {
        let mut order = FlushOrder::default();
        order.mark(1);
        order.mark_node();
        order.begin();
        assert_eq!(order.take_turn(), Some(Turn::Node));
        order.on_node_flushed(true);
        assert_eq!(order.take_turn(), None);
        order.mark_node();
        assert_eq!(order.take_turn(), None);
        assert!(order.is_held_up() && !order.is_empty());
        // With the next flush it is tried again, and it is full still.
        order.begin();
        assert_eq!(order.take_turn(), Some(Turn::Node));
        order.on_node_flushed(true);
        assert_eq!(order.take_turn(), None);
        order.begin();
        assert_eq!(order.take_turn(), Some(Turn::Node));
        order.on_node_flushed(false);
        assert_eq!(order.take_turn(), Some(Turn::Other(1)));
        assert_eq!(order.take_turn(), None);
        assert!(order.is_empty());
    }

    #[test]
    fn what_is_said_to_the_node_meanwhile_is_before_the_next_one() {
        let mut order = FlushOrder::default();
        order.mark(1);
        order.mark(2);
        order.begin();
        assert_eq!(order.take_turn(), Some(Turn::Other(1)));
        order.mark_node();
        assert_eq!(order.take_turn(), Some(Turn::Node));
        order.on_node_flushed(false);
        assert_eq!(order.take_turn(), Some(Turn::Other(2)));
    }

    /// A line that has something to say with each flush would keep the process at it.
    #[test]
    fn who_is_marked_during_a_flush_comes_with_the_next() {
        let mut order = FlushOrder::default();
        order.mark(1);
        order.begin();
        assert_eq!(order.take_turn(), Some(Turn::Other(1)));
        order.mark(1);
        assert_eq!(order.take_turn(), None);
        assert_eq!(flush(&mut order), [Turn::Other(1)]);
    }

    #[test]
    fn one_that_comes_between_flushes_waits_for_the_node_too() {
        let mut order: FlushOrder<u32> = FlushOrder::default();
        order.retry_node();
        assert!(!order.take_node(), "nothing waits for it");
        order.mark_node();
        assert!(order.take_node());
        order.on_node_flushed(true);
        assert!(!order.take_node() && order.is_held_up());
        order.retry_node();
        assert!(order.take_node() && !order.is_held_up());
    }
}
