//! How many messages go which way, of which kind and how large.

use std::collections::BTreeMap;

use sooner_wire::message::Message;

/// From whom to whom.
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
    /// How many.
    pub messages: u64,
    /// All their frames together, if they were measured.
    pub bytes: u64,
}

impl Count {
    /// One more.
    pub fn add(&mut self, bytes: u64) {
        self.messages += 1;
        self.bytes += bytes;
    }

    /// What came since an earlier count.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self { messages: self.messages - earlier.messages, bytes: self.bytes - earlier.bytes }
    }
}

/// A kind of message, and of what it carries for somebody.
type Kind = (u16, u16);

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    /// Whether sizes are wanted: to encode every message takes most of the time of a run.
    pub with_sizes: bool,
    /// By way and kind.
    pub kinds: BTreeMap<(Way, Kind), Count>,
    /// What the kinds are called.
    pub names: BTreeMap<Kind, String>,
    /// Of each node, from and to other nodes.
    pub nodes: Vec<Count>,
    buffer: Vec<u8>,
}

impl Counts {
    /// A message leaves. Gives the frame, if sizes are wanted.
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

    /// What came since `earlier`: by way, and by the names of kinds.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> BTreeMap<(Way, String), Count> {
        let of = |((way, kind), count): (&(Way, Kind), &Count)| {
            let now = count.since(earlier.kinds.get(&(*way, *kind)).copied().unwrap_or_default());
            (now.messages > 0).then(|| ((*way, self.names[kind].clone()), now))
        };
        self.kinds.iter().filter_map(of).collect()
    }

    /// All of one way since `earlier`.
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

/// What a message is called in the sources.
fn name_of(message: &Message) -> String {
    let inner = match message {
        Message::Routed(routed) => &*routed.message,
        _ => message,
    };
    inner.row().name.to_owned()
}
