//! When a process reports the references that it got from a dead one
//! (`docs/adr/0029-settling-over-nodes.md`): only after its earlier messages have left it and, at other
//! nodes, arrived. Otherwise an owner could learn of a borrower after the death is settled.

use sooner_protocol::probes::hit;
use sooner_wire::message::Message;

use super::{Item, World, node_of};

impl World {
    /// A process answers a death. Its earlier messages to its node leave first, as ever: if a value overtook
    /// the message that gives its block to the node, the block would be freed when the process is killed. On
    /// a single node, all buffers leave together.
    pub(super) fn answer_in_time(&mut self, number: u32, message: Box<Message>) {
        if self.head.is_some() {
            self.flush(number);
        }
        let owed = self.process(number).lines.iter().map(|other| (*other, None)).collect();
        self.process_mut(number).held_back.push(message, owed);
        self.answer_what_may_go(number);
    }

    /// An earlier message was received, or never will be.
    pub(super) fn answer_what_may_go(&mut self, number: u32) {
        if self.process(number).held_back.is_empty() {
            return;
        }
        let mut held_back = std::mem::take(&mut self.process_mut(number).held_back);
        let released = held_back.release(|(other, position)| self.is_paid(number, *other, position));
        for (_, owed) in held_back.iter().filter(|(_, owed)| !owed.is_empty()) {
            if owed.iter().any(|(other, _)| node_of(*other) != node_of(number)) {
                hit("what is held of a dead process was said later, for a line to another node");
            } else {
                hit("what is held of a dead process was said later, for a line that was not there yet");
            }
        }
        self.process_mut(number).held_back = held_back;
        for message in released {
            self.send(number, node_of(number), Item::Message(message));
            // The message may lie in a buffer, and the process may have nothing else to do.
            self.touch(number);
        }
    }

    fn is_paid(&mut self, number: u32, other: u32, position: &mut Option<u64>) -> bool {
        if !self.process(number).lines.contains(&other) {
            return true;
        }
        if position.is_none() {
            let channel = self.channels.number(number, other);
            let channel = self.channels.get(channel);
            // Without a line, messages wait in the channel; with one, they leave or enter the session.
            if !channel.is_connected && !channel.queue.is_empty() {
                return false;
            }
            if node_of(other) == node_of(number) {
                // The receiver reads them before anything that the node sends later.
                return true;
            }
            *position = Some(self.position(number, other));
        }
        position.is_some_and(|position| self.has_come(number, other, position))
    }
}
