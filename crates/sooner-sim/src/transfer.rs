//! Broadcasts in virtual time: the directory of copies that runs in production ([`Chains`]), over a network
//! with an exact bandwidth and latency. Every node has one uplink, which its streams share in turn. Nothing
//! else takes time.
//!
//! Bytes go in chunks. A node forwards only whole chunks.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use sooner_protocol::worker::ownership::{Assigned, ChainAction, ChainLimits, Chains};
use sooner_wire::{NodeId, ObjectId, TaskId, TransferAttempt, WorkerId};

/// Bytes that are sent at a time.
pub const CHUNK_BYTES: u64 = 64 << 10;

/// A broadcast: the nodes, the value, and the network.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// Nodes that want the value. One more node has the value, and directs them.
    pub receivers: usize,
    /// Bytes of the value.
    pub bytes: u64,
    /// Bandwidth of each uplink (bits per second).
    pub bandwidth: u64,
    /// Latency, one way (nanoseconds).
    pub latency: u64,
    /// Time between the requests of two receivers (nanoseconds).
    pub gap: u64,
    /// A receiver that dies, and when (nanoseconds).
    pub kill: Option<(usize, u64)>,
    /// The size below which values are small, and how many receivers of a small value are served at once.
    pub limits: ChainLimits,
}

impl Setup {
    /// Time to send `bytes` bytes (nanoseconds).
    #[must_use]
    pub fn send_time(&self, bytes: u64) -> u64 {
        bytes * 8 * 1000 / (self.bandwidth / 1_000_000)
    }

    /// A lower bound for the end, counted from the first request: the last receiver asks, and then the value
    /// is sent to it.
    #[must_use]
    pub fn optimum(&self) -> u64 {
        self.gap * (self.receivers as u64 - 1) + self.send_time(self.bytes)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The owner reads that a node wants the value, has it, or has failed in an attempt.
    Wants(usize),
    Complete(usize, TransferAttempt),
    Failed(usize, TransferAttempt),
    /// A node learns from the owner from which sender to pull.
    Told(usize, usize, TransferAttempt),
    /// A sender reads that a node wants the chunks from this one on.
    Fetch {
        sender: usize,
        receiver: usize,
        attempt: TransferAttempt,
        from: u64,
    },
    /// A sender's uplink is free again.
    Free(usize),
    /// A chunk is at its receiver.
    Chunk {
        receiver: usize,
        attempt: TransferAttempt,
    },
    Kill(usize),
}

/// A sender's stream to one receiver.
struct Stream {
    receiver: usize,
    attempt: TransferAttempt,
    /// Chunks that the receiver has, or that are on their way.
    sent: u64,
}

#[derive(Default)]
struct Node {
    is_dead: bool,
    chunks: u64,
    attempt: TransferAttempt,
    sender: usize,
    streams: Vec<Stream>,
    is_busy: bool,
    turn: usize,
    ended: Option<u64>,
}

struct Run {
    setup: Setup,
    chains: Chains,
    nodes: Vec<Node>,
    chunks: u64,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    made: u64,
}

fn object() -> ObjectId {
    TaskId { owner: WorkerId(1), number: 1 }.object(0)
}

fn id(node: usize) -> NodeId {
    NodeId((node as u64 + 1) << 24)
}

fn index(node: NodeId) -> usize {
    usize::try_from((node.0 >> 24) - 1).expect("made by id")
}

/// When the last living receiver has all bytes (nanoseconds from the first request).
///
/// # Panics
/// If a living receiver never gets all bytes.
#[must_use]
pub fn broadcast(setup: &Setup) -> u64 {
    let mut run = Run {
        setup: *setup,
        chains: Chains::new(setup.limits),
        nodes: (0..=setup.receivers).map(|_| Node::default()).collect(),
        chunks: setup.bytes.div_ceil(CHUNK_BYTES),
        now: 0,
        events: BinaryHeap::new(),
        made: 0,
    };
    run.nodes[0].chunks = run.chunks;
    let mut out = Vec::new();
    run.chains.on_made(object(), id(0), setup.bytes, &mut out);
    for receiver in 1..=setup.receivers {
        run.after(setup.gap * (receiver as u64 - 1) + setup.latency, Event::Wants(receiver));
    }
    if let Some((node, at)) = setup.kill {
        run.after(at, Event::Kill(node));
    }
    while let Some(Reverse((now, _, event))) = run.events.pop() {
        run.now = now;
        run.happen(event);
    }
    run.chains.check();
    let living = run.nodes.iter().skip(1).filter(|node| !node.is_dead);
    living.map(|node| node.ended.expect("whoever lives gets the value")).max().unwrap_or(0)
}

impl Run {
    fn after(&mut self, nanos: u64, event: Event) {
        self.made += 1;
        self.events.push(Reverse((self.now + nanos, self.made, event)));
    }

    fn happen(&mut self, event: Event) {
        let mut out = Vec::new();
        match event {
            Event::Wants(node) => self.chains.on_locate(object(), id(node), &mut out),
            Event::Complete(node, attempt) => {
                self.chains.on_complete(object(), id(node), attempt, &mut out);
            }
            Event::Failed(node, attempt) => self.chains.on_failed(object(), id(node), attempt, &mut out),
            Event::Told(node, sender, attempt) => self.on_told(node, sender, attempt),
            Event::Fetch { sender, receiver, attempt, from } => {
                self.on_fetch(sender, Stream { receiver, attempt, sent: from });
            }
            Event::Free(sender) => {
                self.nodes[sender].is_busy = false;
                self.send_next(sender);
            }
            Event::Chunk { receiver, attempt } => self.on_chunk(receiver, attempt),
            Event::Kill(node) => self.on_kill(node),
        }
        for action in out {
            if let ChainAction::Pull(Assigned { receiver, sender, attempt, .. }) = action {
                self.after(self.setup.latency, Event::Told(index(receiver), index(sender), attempt));
            }
        }
    }

    fn on_told(&mut self, node: usize, sender: usize, attempt: TransferAttempt) {
        let receiver = &mut self.nodes[node];
        if receiver.is_dead || receiver.ended.is_some() {
            return;
        }
        (receiver.sender, receiver.attempt) = (sender, attempt);
        let from = receiver.chunks;
        self.after(self.setup.latency, Event::Fetch { sender, receiver: node, attempt, from });
    }

    fn on_fetch(&mut self, sender: usize, stream: Stream) {
        if self.nodes[sender].is_dead {
            return self.after(2 * self.setup.latency, Event::Failed(stream.receiver, stream.attempt));
        }
        self.nodes[sender].streams.push(stream);
        self.send_next(sender);
    }

    /// Sends a chunk of the next stream in turn that has one to send.
    fn send_next(&mut self, sender: usize) {
        let node = &mut self.nodes[sender];
        let count = node.streams.len();
        if node.is_busy || node.is_dead {
            return;
        }
        let mut turns = (0..count).map(|step| (node.turn + step) % count);
        let Some(at) = turns.find(|at| node.streams[*at].sent < node.chunks) else { return };
        node.is_busy = true;
        node.turn = at + 1;
        let stream = &mut node.streams[at];
        stream.sent += 1;
        let (receiver, attempt) = (stream.receiver, stream.attempt);
        let last = self.setup.bytes - (self.chunks - 1) * CHUNK_BYTES;
        let bytes = if stream.sent == self.chunks { last } else { CHUNK_BYTES };
        if stream.sent == self.chunks {
            node.streams.remove(at);
            node.turn = at;
        }
        let time = self.setup.send_time(bytes);
        self.after(time, Event::Free(sender));
        self.after(time + self.setup.latency, Event::Chunk { receiver, attempt });
    }

    fn on_chunk(&mut self, receiver: usize, attempt: TransferAttempt) {
        let node = &mut self.nodes[receiver];
        if node.is_dead || node.attempt != attempt {
            return;
        }
        node.chunks += 1;
        if node.chunks == self.chunks {
            node.ended = Some(self.now);
            self.after(self.setup.latency, Event::Complete(receiver, attempt));
        }
        self.send_next(receiver);
    }

    /// A node is killed: its receivers and its senders see the end of their connections.
    fn on_kill(&mut self, killed: usize) {
        self.nodes[killed].is_dead = true;
        let streams = std::mem::take(&mut self.nodes[killed].streams);
        for Stream { receiver, attempt, .. } in streams {
            self.after(2 * self.setup.latency, Event::Failed(receiver, attempt));
        }
        for node in &mut self.nodes {
            node.streams.retain(|stream| stream.receiver != killed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network() -> Setup {
        let limits = ChainLimits::default();
        Setup {
            receivers: 0,
            bytes: 64 << 20,
            bandwidth: 250_000_000,
            latency: 50_000,
            gap: 0,
            kill: None,
            limits,
        }
    }

    /// A chunk and a latency for each hop after the first, and the question.
    fn chain(setup: &Setup) -> u64 {
        let hops = setup.receivers as u64;
        setup.optimum() + hops * (setup.send_time(CHUNK_BYTES) + setup.latency) + 3 * setup.latency
    }

    #[test]
    fn a_large_value_takes_the_time_of_one_transfer_and_a_chunk_per_hop() {
        for receivers in [1, 2, 7, 15, 63] {
            let setup = Setup { receivers, ..network() };
            let took = broadcast(&setup);
            assert!(took <= chain(&setup), "{receivers} receivers: {took} ns, {} expected", chain(&setup));
        }
    }

    #[test]
    fn receivers_that_come_one_after_the_other_end_soon_after_the_last_came() {
        let gap = network().optimum_of_one() / 9;
        let setup = Setup { receivers: 15, gap, ..network() };
        assert!(broadcast(&setup) <= setup.optimum() + setup.send_time(setup.bytes) * 15 / 100);
    }

    #[test]
    fn a_receiver_that_dies_costs_next_to_nothing() {
        let half = network().optimum_of_one() / 2;
        for killed in 1..8 {
            let setup = Setup { receivers: 8, kill: Some((killed, half)), ..network() };
            let without = broadcast(&Setup { kill: None, ..setup });
            let lost = broadcast(&setup).saturating_sub(without);
            assert!(lost <= network().optimum_of_one() * 5 / 100, "node {killed}: {lost} ns");
        }
    }

    impl Setup {
        fn optimum_of_one(&self) -> u64 {
            self.send_time(self.bytes)
        }
    }
}
