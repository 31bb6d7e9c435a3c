//! Values on their way: every node has one uplink of an exact bandwidth, which its streams share in turn. A
//! node sends on the part that it has of a value that is still arriving.

use std::collections::VecDeque;

use sooner_protocol::node::ServedCopy;
use sooner_protocol::node::objects::{Fetching, Serves, StreamEnd};
use sooner_protocol::time::Instant;
use sooner_wire::{BlockId, FetchAttempt, ObjectId};

use super::plan::SECOND;
use super::world::{Event, World};

/// Bytes that are sent at a time; a node sends a part of a value on in chunks of this size.
pub const CHUNK_BYTES: u64 = 64 << 10;
/// Pause before a node asks again for bytes that are not there yet, and before a sender tries the network
/// again (nanoseconds).
const AGAIN_NANOS: u64 = SECOND / 1000;

/// A block of a node's memory, and how much of its value has arrived.
#[derive(Debug)]
pub struct Block {
    pub(super) object: ObjectId,
    pub(super) bytes: u64,
    /// Since when all of it is there.
    pub(super) whole: Option<Instant>,
}

/// A node's uplink.
#[derive(Debug, Default)]
pub struct Uplink {
    /// Transfers that wait for their turn.
    queue: VecDeque<u64>,
    is_busy: bool,
}

/// A stream from one node to another.
#[derive(Debug)]
pub struct Transfer {
    pub(super) fetching: Fetching,
    pub(super) receiver: usize,
    pub(super) sender: usize,
    /// Whether the receiver still waits for it.
    pub(super) is_open: bool,
    /// The sender's block, once it was found.
    served: Option<BlockId>,
    /// How many bytes were sent, and received.
    sent: u64,
    received: u64,
}

impl World {
    /// Allocates a block for a value that arrives.
    pub(super) fn allocate(&mut self, at: usize, object: ObjectId, _bytes: u64) {
        let node = &mut self.nodes[at];
        node.blocks_made += 1;
        let block = node.blocks_made;
        node.blocks.insert(block, Block { object, bytes: 0, whole: None });
        if let Some(core) = &mut node.core {
            core.on_block(object, BlockId(block), &mut node.out);
        }
    }

    pub(super) fn free_block(&mut self, at: usize, block: u64) {
        self.nodes[at].blocks.swap_remove(&block);
    }

    /// A node requests bytes from another node.
    pub(super) fn fetch(&mut self, at: usize, fetching: Fetching) {
        if let Some(before) = fetching.after {
            self.saw("a receiver went on with another sender");
            self.stop_fetching(at, fetching.object, before);
        }
        let Some(sender) = self.index_of(fetching.remote.node) else { return };
        self.transfers_made += 1;
        let number = self.transfers_made;
        let bytes = self.nodes[at].blocks.get(&fetching.block.offset()).map_or(0, |block| block.bytes);
        let from = fetching.at.max(if fetching.after.is_some() { bytes } else { 0 });
        let transfer = Transfer {
            fetching,
            receiver: at,
            sender,
            is_open: true,
            served: None,
            sent: from,
            received: from,
        };
        self.transfers.insert(number, transfer);
        let latency = self.latency();
        self.after(latency, Event::Ask(number));
    }

    pub(super) fn stop_fetching(&mut self, at: usize, object: ObjectId, attempt: FetchAttempt) {
        let is_it = |transfer: &Transfer| {
            transfer.receiver == at
                && (transfer.fetching.object, transfer.fetching.attempt) == (object, attempt)
        };
        let numbers: Vec<u64> =
            self.transfers.iter().filter(|(_, one)| is_it(one)).map(|(number, _)| *number).collect();
        numbers.into_iter().for_each(|number| self.close(number));
    }

    /// Ends a transfer.
    fn close(&mut self, number: u64) {
        let Some(transfer) = self.transfers.swap_remove(&number) else { return };
        let sender = &mut self.nodes[transfer.sender];
        if let (Some(block), Some(core)) = (transfer.served, &mut sender.core) {
            core.end_serving(block, &mut sender.out);
            self.list_node(transfer.sender);
        }
    }

    /// A request for bytes has arrived at their sender.
    pub(super) fn serve(&mut self, number: u64) {
        let Some(transfer) = self.transfers.get(&number) else { return };
        let (sender, fetching) = (transfer.sender, transfer.fetching);
        let Fetching { object, remote, generation, .. } = fetching;
        if !self.is_carried(self.nodes[transfer.receiver].place, self.nodes[sender].place) {
            return self.after(AGAIN_NANOS * 50, Event::Ask(number));
        }
        let node = &mut self.nodes[sender];
        let Some(core) = &mut node.core else {
            let latency = self.latency();
            return self.after(latency, Event::NoMore(number, true));
        };
        let found = match generation {
            None => {
                let block = BlockId(remote.location.offset);
                match core.begin_serving(block, object) {
                    Serves::Yes => Ok(block),
                    Serves::NotYet => Err(true),
                    Serves::No => Err(false),
                }
            }
            Some(generation) => match core.begin_serving_copy(object, generation, remote.location.length) {
                ServedCopy::Here(block) | ServedCopy::Moving { block, .. } => Ok(block),
                ServedCopy::NotYet => Err(true),
                ServedCopy::No => Err(false),
            },
        };
        match found {
            Ok(block) => {
                self.transfers[&number].served = Some(block);
                self.judge_chain(sender, object, remote.location.length);
                let is_whole = self.nodes[sender]
                    .blocks
                    .get(&block.offset())
                    .is_some_and(|b| b.bytes == remote.location.length);
                if !is_whole {
                    self.saw("a value was sent on while it was arriving");
                }
                self.nodes[sender].uplink.queue.push_back(number);
                self.send_next(sender);
            }
            Err(true) => self.after(AGAIN_NANOS, Event::Ask(number)),
            Err(false) => {
                let latency = self.latency();
                self.after(latency, Event::NoMore(number, false));
            }
        }
    }

    pub(super) fn uplink_is_free(&mut self, at: usize) {
        self.nodes[at].uplink.is_busy = false;
        self.send_next(at);
    }

    /// Sends a chunk of the first stream that can send one.
    fn send_next(&mut self, at: usize) {
        if self.nodes[at].uplink.is_busy || !self.nodes[at].runs() {
            return;
        }
        let mut queue = std::mem::take(&mut self.nodes[at].uplink.queue);
        queue.retain(|number| self.transfers.contains_key(number));
        let next = queue.iter().position(|number| self.can_send(*number));
        let chosen = next.and_then(|position| queue.remove(position));
        queue.extend(chosen);
        self.nodes[at].uplink.queue = queue;
        let Some(number) = chosen else { return };
        let transfer = &self.transfers[&number];
        let (sender, receiver) = (self.nodes[at].place, self.nodes[transfer.receiver].place);
        self.nodes[at].uplink.is_busy = true;
        if !self.is_carried(sender, receiver) {
            return self.after(AGAIN_NANOS, Event::Sent(at));
        }
        let transfer = &mut self.transfers[&number];
        let chunk = CHUNK_BYTES.min(transfer.fetching.remote.location.length - transfer.sent);
        transfer.sent += chunk;
        let takes = chunk * 8 * 1000 / (self.plan.bandwidth / 1_000_000);
        self.after(takes, Event::Sent(at));
        let latency = self.plan.latency;
        self.after(takes + latency, Event::Chunk(number, chunk));
    }

    /// Whether the sender has a whole chunk to send, or the rest.
    fn can_send(&self, number: u64) -> bool {
        let transfer = &self.transfers[&number];
        let length = transfer.fetching.remote.location.length;
        let block = transfer.served.and_then(|block| self.nodes[transfer.sender].blocks.get(&block.offset()));
        let here = block.map_or(0, |block| block.bytes);
        transfer.sent < length && here >= (transfer.sent + CHUNK_BYTES).min(length)
    }

    /// A chunk arrives at its receiver.
    pub(super) fn take_chunk(&mut self, number: u64, bytes: u64) {
        let Some(transfer) = self.transfers.get_mut(&number) else { return };
        transfer.received += bytes;
        let (received, at, fetching) = (transfer.received, transfer.receiver, transfer.fetching);
        let Fetching { object, attempt, block, remote, .. } = fetching;
        let node = &mut self.nodes[at];
        let Some(core) = &mut node.core else { return };
        let Some(of_block) = node.blocks.get_mut(&block.offset()) else { return };
        of_block.bytes = of_block.bytes.max(received);
        self.events += 1;
        let is_whole = received == remote.location.length;
        of_block.whole = is_whole.then_some(self.now);
        core.on_bytes(object, attempt, received, &mut node.out);
        if is_whole {
            self.close(number);
            self.list_node(at);
        }
        self.perform_all(at);
        self.send_next(at);
    }

    /// A receiver learns that no more bytes come.
    pub(super) fn no_more(&mut self, number: u64, is_cut: bool) {
        let Some(transfer) = self.transfers.get(&number) else { return };
        let (at, fetching) = (transfer.receiver, transfer.fetching);
        self.close(number);
        let node = &mut self.nodes[at];
        let Some(core) = &mut node.core else { return };
        let end = if is_cut { StreamEnd::Cut } else { StreamEnd::NotThere };
        core.on_stream_end(fetching.object, fetching.attempt, end, &mut node.out);
        self.list_node(at);
    }

    /// A node has ended: its received bytes are lost, and its streams break off if its machine can still
    /// report it.
    pub(super) fn end_transfers_of(&mut self, at: usize, is_told: bool) {
        self.nodes[at].blocks.clear();
        let of_it = |transfer: &Transfer| transfer.receiver == at || transfer.sender == at;
        let numbers: Vec<u64> =
            self.transfers.iter().filter(|(_, one)| of_it(one)).map(|(number, _)| *number).collect();
        for number in numbers {
            if self.transfers[&number].receiver == at {
                self.close(number);
            } else if is_told {
                self.saw("a sender died");
                let latency = self.latency();
                self.after(latency, Event::NoMore(number, true));
            }
        }
    }
}
