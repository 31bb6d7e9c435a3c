//! How many messages go between nodes and their head, of which kind and how large.

use std::collections::BTreeMap;

use sooner_wire::message::Message;

/// One kind of message in one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// How many.
    pub messages: u64,
    /// All their frames together.
    pub bytes: u64,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    /// Whether sizes are wanted: to encode every message takes most of the time of a run.
    pub with_sizes: bool,
    /// By direction (true: to the head) and kind.
    pub kinds: BTreeMap<(bool, &'static str), Count>,
    buffer: Vec<u8>,
}

impl Counts {
    /// A message leaves.
    pub fn add(&mut self, is_to_head: bool, message: &Message) {
        let count = self.kinds.entry((is_to_head, name(message))).or_default();
        count.messages += 1;
        if self.with_sizes {
            self.buffer.clear();
            message.append(&mut self.buffer, 0);
            count.bytes += self.buffer.len() as u64;
        }
    }

    /// What came since `earlier`.
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

/// What a message is called.
#[must_use]
pub fn name(message: &Message) -> &'static str {
    match message {
        Message::Register(_) => "Register",
        Message::Registered(_) => "Registered",
        Message::NodesChanged(_) => "NodesChanged",
        Message::NodeGone(_) => "NodeGone",
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
