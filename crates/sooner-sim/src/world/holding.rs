//! What a process holds of a dead one it says only when what it had said to others before has left it, and
//! has come where they are on other nodes (`docs/adr/0029-settling-over-nodes.md`): else an owner would hear
//! later of a borrower than that all is settled.

use sooner_protocol::probes::hit;
use sooner_wire::message::Message;

use super::{Item, World, node_of};

impl World {
    /// A process answers a death. What it had said to its node leaves first, as ever: with a value that
    /// overtakes the word of whose block it is in, the block would be free when the process is killed. On one
    /// node all buffers leave together.
    pub(super) fn answer_in_time(&mut self, number: u32, message: Box<Message>) {
        if self.head.is_some() {
            self.flush(number);
        }
        let owed = self.process(number).lines.iter().map(|other| (*other, None)).collect();
        self.process_mut(number).held_back.push(message, owed);
        self.answer_what_may_go(number);
    }

    /// Something that was said has come, or will not.
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
            // It may lie in a buffer, and nothing else may be left to do.
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
            // What was said leaves, or is in the session, as soon as there is a line.
            if !channel.is_connected && !channel.queue.is_empty() {
                return false;
            }
            if node_of(other) == node_of(number) {
                // It is read before anything that the node says later.
                return true;
            }
            *position = Some(self.position(number, other));
        }
        position.is_some_and(|position| self.has_come(number, other, position))
    }
}
