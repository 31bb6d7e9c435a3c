//! Memory and disks of nodes, and bytes on their way between them.
//!
//! What lies in a block is the name of its object, so that a value that is read where another one lies is
//! noticed.

use sooner_protocol::node::objects::{Fetching, Serves, StreamEnd};
use sooner_protocol::node::{Room, ServedCopy, ServedSpill};
use sooner_wire::message::{Location, Outcome, Place, SpillId};
use sooner_wire::{BlockId, FetchAttempt, ObjectId, WorkerId};

use super::cluster::{Cluster, End, Item, node_of};

/// Bytes of a value in shared memory.
pub const LENGTH: u64 = 1 << 20;

/// Bytes that a node sends another one, as far as it has them itself.
pub struct Stream {
    to: usize,
    fetching: Fetching,
    block: u64,
    /// How far it is.
    sent: u64,
}

impl Cluster {
    pub fn allocate(&mut self, at: usize, object: Option<ObjectId>) -> u64 {
        let node = &mut self.nodes[at];
        node.blocks_made += 1;
        let block = node.blocks_made << 24;
        node.blocks.insert(block, object);
        block
    }

    /// A process puts a value into the memory of its node.
    pub fn store(&mut self, id: WorkerId, object: ObjectId) -> Outcome {
        let at = node_of(id);
        let offset = self.allocate(at, Some(object));
        self.nodes[at].core.on_allocated(BlockId(offset), id);
        self.tell(End::Process(id), &format!("writes {} to shared memory", self.names.object(object)));
        Outcome::Stored(Location { offset, length: LENGTH })
    }

    pub fn free_block(&mut self, at: usize, block: u64) {
        let object = self.nodes[at].blocks.remove(&block).expect("a block is freed once");
        if let Some(object) = object {
            self.tell(End::Node(at), &format!("frees the memory of {}", self.names.object(object)));
        }
    }

    /// Asserts that a value can be read where it is said to be.
    pub fn assert_readable(&self, id: WorkerId, object: ObjectId, outcome: &Outcome) {
        if let Outcome::Stored(location) = outcome {
            let inside = self.nodes[node_of(id)].blocks.get(&location.offset);
            let name = self.names.object(object);
            assert_eq!(inside, Some(&Some(object)), "{name} is read where it does not lie");
        }
    }

    pub fn spill(&mut self, at: usize, spilled: SpillId, block: u64) {
        let object = self.nodes[at].blocks[&block].expect("a value lies there");
        self.tell(End::Node(at), &format!("writes {} to disk", self.names.object(object)));
        self.nodes[at].disk.insert(spilled, object);
        self.with_node(at, |node, out| node.on_spilled(spilled, true, out));
    }

    pub fn drop_spilled(&mut self, at: usize, spilled: SpillId) {
        let object = self.nodes[at].disk.remove(&spilled).expect("it was written");
        self.tell(End::Node(at), &format!("deletes {} on disk", self.names.object(object)));
    }

    /// There is no room for one more value: values go to disk.
    pub fn relieve(&mut self, at: usize) {
        self.tell(End::Node(at), "needs room for one value");
        self.with_node(at, |node, out| node.relieve(Room::of(LENGTH), |_| LENGTH, out));
    }

    pub fn lose(&mut self, at: usize, object: ObjectId) {
        self.tell(End::Node(at), &format!("loses the memory of {}", self.names.object(object)));
        let blocks = self.nodes[at].blocks.iter().filter(|(_, inside)| **inside == Some(object));
        let blocks: Vec<BlockId> = blocks.map(|(block, _)| BlockId(*block)).collect();
        self.with_node(at, |node, out| node.lose_blocks(&blocks, out));
    }

    // --- streams ---

    pub fn fetch(&mut self, at: usize, fetching: Fetching) {
        if let Some(before) = fetching.after {
            self.stop_fetching(at, fetching.object, before);
        }
        let there = self.node_at(fetching.remote.node);
        if there == at {
            return self.restore(at, &fetching);
        }
        self.nodes[at].arrived.insert((fetching.object, fetching.block.offset()), fetching.at);
        self.send(End::Node(at), End::Node(there), Item::Fetch(fetching));
    }

    fn restore(&mut self, at: usize, fetching: &Fetching) {
        let Place::Disk(spilled) = fetching.remote.location.place() else { unreachable!("it is on disk") };
        let object = self.nodes[at].disk[&spilled];
        assert_eq!(object, fetching.object, "what is read from disk is what was written");
        self.tell(End::Node(at), &format!("reads {} from disk", self.names.object(object)));
        let (attempt, length) = (fetching.attempt, fetching.remote.location.length);
        self.with_node(at, |node, out| node.on_bytes(object, attempt, length, out));
    }

    pub fn stop_fetching(&mut self, at: usize, object: ObjectId, attempt: FetchAttempt) {
        for node in &mut self.nodes {
            node.fetches.retain(|stream| {
                stream.to != at || stream.fetching.object != object || stream.fetching.attempt != attempt
            });
        }
    }

    pub fn on_transfer(&mut self, other: usize, at: usize, item: Item) {
        let way = self.names.way(End::Node(other), End::Node(at));
        match item {
            Item::Fetch(fetching) => {
                let name = self.names.object(fetching.object);
                let behind = if fetching.at > 0 { " from where it stopped" } else { "" };
                self.lines.push(format!("{way:<24} (data) wants {name}{behind}"));
                self.serve(other, at, fetching);
            }
            Item::Bytes(fetching, inside, upto) => {
                let all = match (self.halves, upto == LENGTH) {
                    (false, _) => "all",
                    (true, false) => "the first half",
                    (true, true) => "the second half",
                };
                let name = self.names.object(inside);
                self.lines.push(format!("{way:<24} (data) {all} of {name}"));
                assert_eq!(inside, fetching.object, "the bytes are those of the value");
                let (object, attempt) = (fetching.object, fetching.attempt);
                self.nodes[at].arrived.insert((object, fetching.block.offset()), upto);
                self.with_node(at, |node, out| node.on_bytes(object, attempt, upto, out));
            }
            Item::NoBytes(fetching) => {
                let name = self.names.object(fetching.object);
                self.lines.push(format!("{way:<24} (data) {name} is not there"));
                let (object, attempt) = (fetching.object, fetching.attempt);
                self.with_node(at, |node, out| node.on_stream_end(object, attempt, StreamEnd::NotThere, out));
            }
            item => unreachable!("{item:?} is no transfer"),
        }
    }

    fn serve(&mut self, other: usize, at: usize, fetching: Fetching) {
        let (object, location) = (fetching.object, fetching.remote.location);
        let core = &mut self.nodes[at].core;
        let block = match (fetching.generation, location.place()) {
            (None, Place::Disk(spilled)) => match core.begin_serving_spilled(spilled, object) {
                ServedSpill::Here(block) => Some(block),
                ServedSpill::Disk => {
                    self.tell(End::Node(at), &format!("reads {} from disk", self.names.object(object)));
                    return self.send(End::Node(at), End::Node(other), Item::Bytes(fetching, object, LENGTH));
                }
                ServedSpill::NotYet | ServedSpill::No => None,
            },
            (None, Place::Memory(block)) => match core.begin_serving(block, object) {
                Serves::Yes => Some(block),
                Serves::NotYet => return self.nodes[at].asked_early.push((other, fetching)),
                Serves::No => None,
            },
            (Some(generation), _) => match core.begin_serving_copy(object, generation, location.length) {
                ServedCopy::Here(block) | ServedCopy::Moving { block, .. } => Some(block),
                ServedCopy::NotYet => return self.nodes[at].asked_early.push((other, fetching)),
                ServedCopy::No => None,
            },
        };
        match block {
            Some(block) => {
                let sent = fetching.at;
                self.nodes[at].fetches.push(Stream { to: other, fetching, block: block.offset(), sent });
            }
            None => self.send(End::Node(at), End::Node(other), Item::NoBytes(fetching)),
        }
    }

    /// How much of a value a block has.
    fn bytes_in(&self, at: usize, object: ObjectId, block: u64) -> u64 {
        let copy = self.nodes[at].arrived.get(&(object, block));
        copy.copied().unwrap_or(LENGTH)
    }

    /// Whoever was asked too early looks again, and whoever has more of a value than it has sent sends it on:
    /// a node passes on what is still arriving (Hoplite).
    pub fn go_on_streaming(&mut self) {
        for at in 0..self.nodes.len() {
            for (other, fetching) in std::mem::take(&mut self.nodes[at].asked_early) {
                self.serve(other, at, fetching);
            }
            for mut stream in std::mem::take(&mut self.nodes[at].fetches) {
                let has = self.bytes_in(at, stream.fetching.object, stream.block);
                let inside = self.nodes[at].blocks[&stream.block].expect("a value lies there");
                while stream.sent < has {
                    stream.sent += if self.halves { LENGTH / 2 } else { LENGTH };
                    let item = Item::Bytes(stream.fetching, inside, stream.sent);
                    self.send(End::Node(at), End::Node(stream.to), item);
                }
                if stream.sent == LENGTH {
                    self.with_node(at, |node, out| node.end_serving(BlockId(stream.block), out));
                } else {
                    self.nodes[at].fetches.push(stream);
                }
            }
        }
    }
}
