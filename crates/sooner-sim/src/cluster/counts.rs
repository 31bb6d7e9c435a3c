//! Counts of the messages between nodes and their head, by kind, with their sizes.

use std::collections::BTreeMap;

use sooner_wire::message::Message;

/// One kind of message in one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of messages.
    pub messages: u64,
    /// Bytes of their frames.
    pub bytes: u64,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    /// Whether to measure sizes: encoding every message takes most of the time of a run.
    pub with_sizes: bool,
    /// By direction (true: to the head) and kind.
    pub kinds: BTreeMap<(bool, &'static str), Count>,
    buffer: Vec<u8>,
}

impl Counts {
    /// Counts a message that leaves.
    pub fn add(&mut self, is_to_head: bool, message: &Message) {
        let count = self.kinds.entry((is_to_head, name(message))).or_default();
        count.messages += 1;
        if self.with_sizes {
            self.buffer.clear();
            message.append(&mut self.buffer, 0);
            count.bytes += self.buffer.len() as u64;
        }
    }

    /// The counts since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> BTreeMap<(bool, &'static str), Count> {
        let of = |(key, now): (&(bool, &'static str), &Count)| {
            let before = earlier.kinds.get(key).copied().unwrap_or_default();
            let (messages, bytes) = (now.messages - before.messages, now.bytes - before.bytes);
            (messages > 0).then_some((*key, Count { messages, bytes }))
        };
        self.kinds.iter().filter_map(of).collect()
    }
}

/// A message's name.
#[must_use]
pub fn name(message: &Message) -> &'static str {
    match message {
        Message::Register(_) => "Register",
        Message::Registered(_) => "Registered",
        Message::NodesChanged(_) => "NodesChanged",
        Message::NodeDead(_) => "NodeDead",
        Message::Heartbeat(_) => "Heartbeat",
        Message::Fenced(_) => "Fenced",
        Message::Refused(_) => "Refused",
        Message::ResourceReport(_) => "ResourceReport",
        Message::ResourceView(_) => "ResourceView",
        Message::Suspect(_) => "Suspect",
        Message::Drain(_) => "Drain",
        Message::Drained(_) => "Drained",
        _ => "another",
    }
}
