//! Counts of messages by direction and kind, with their sizes.

use std::collections::BTreeMap;

use sooner_wire::message::Message;

/// A direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// From a node to the head.
    ToHead,
    /// From the head to a node.
    FromHead,
    /// From node to node.
    Between,
}

/// Messages and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of messages.
    pub messages: u64,
    /// Bytes of their frames, if sizes are measured.
    pub bytes: u64,
}

impl Count {
    /// Counts one more message.
    pub fn add(&mut self, bytes: u64) {
        self.messages += 1;
        self.bytes += bytes;
    }

    /// The counts since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self { messages: self.messages - earlier.messages, bytes: self.bytes - earlier.bytes }
    }
}

/// The kind of a message and, for a routed message, the kind of the message inside.
type Kind = (u16, u16);

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    /// Whether to measure sizes: encoding every message takes most of the time of a run.
    pub with_sizes: bool,
    /// By way and kind.
    pub kinds: BTreeMap<(Way, Kind), Count>,
    /// The names of the kinds.
    pub names: BTreeMap<Kind, String>,
    /// For each node, the messages from and to other nodes.
    pub nodes: Vec<Count>,
    buffer: Vec<u8>,
}

impl Counts {
    /// Counts a message that leaves. Returns its frame, if sizes are measured.
    pub fn add(&mut self, way: Way, message: &Message, ends: [usize; 2]) -> &[u8] {
        let kind = kind_of(message);
        let mut bytes = 0;
        if self.with_sizes {
            self.buffer.clear();
            message.append(&mut self.buffer, 0);
            bytes = self.buffer.len() as u64;
        }
        self.kinds.entry((way, kind)).or_default().add(bytes);
        self.names.entry(kind).or_insert_with(|| name_of(message));
        if way == Way::Between {
            for node in ends {
                if self.nodes.len() <= node {
                    self.nodes.resize(node + 1, Count::default());
                }
                self.nodes[node].add(bytes);
            }
        }
        if self.with_sizes { &self.buffer } else { &[] }
    }

    /// The counts since `earlier`, by direction and name of the kind.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> BTreeMap<(Way, String), Count> {
        let of = |((way, kind), count): (&(Way, Kind), &Count)| {
            let now = count.since(earlier.kinds.get(&(*way, *kind)).copied().unwrap_or_default());
            (now.messages > 0).then(|| ((*way, self.names[kind].clone()), now))
        };
        self.kinds.iter().filter_map(of).collect()
    }

    /// The sum over all kinds of one direction since `earlier`.
    #[must_use]
    pub fn sum_since(&self, earlier: &Self, way: Way) -> Count {
        let mut sum = Count::default();
        for ((_, _), count) in self.since(earlier).iter().filter(|((its, _), _)| *its == way) {
            sum.messages += count.messages;
            sum.bytes += count.bytes;
        }
        sum
    }
}

fn kind_of(message: &Message) -> Kind {
    match message {
        Message::Routed(routed) => (message.kind(), routed.message.kind()),
        _ => (message.kind(), 0),
    }
}

/// The name of a message in the sources.
fn name_of(message: &Message) -> String {
    let inner = match message {
        Message::Routed(routed) => &*routed.message,
        _ => message,
    };
    inner.row().name.to_owned()
}
