//! Traffic between nodes: messages that they route for processes, dialled lines, and fetched bytes.

use sooner_protocol::node::objects::{Fetching, Serves, StreamEnd};
use sooner_protocol::node::{Room, ServedCopy, ServedSpill};
use sooner_protocol::probes::hit;
use sooner_wire::message::{Message, PeerConnected, Place, Routed, SpillId};
use sooner_wire::{BlockId, FetchAttempt, ObjectId, WorkerId};

use super::node::SEVERAL;
use super::processes::{id_of, node_at, number_of, number_of_node};
use super::spilling::Found;
use super::{Blocks, Item, SimNode, Wake, World};
use crate::plan::Fault;
use crate::violation::fail;

/// How long a dial takes at most (nanoseconds).
const DIAL_NANOS: usize = 2_000_000;
/// How long bytes of a value are on their way at most (nanoseconds).
const FETCH_NANOS: usize = 5_000_000;

/// Of eight allocations, how many find no room while [`Fault::Full`] strikes.
const FULL_OF_EIGHT: u64 = 5;

/// Bytes on their way from another node.
pub(super) struct Fetch {
    number: u64,
    fetching: Fetching,
    /// The value's content, once the serving node has sent it.
    bytes: Option<u64>,
    /// The block at the serving node, which keeps it meanwhile; `None` if the value is read from disk.
    served: Option<BlockId>,
    is_stopped: bool,
}

impl World {
    /// A node routes a message to another node, or to a process on it.
    pub(super) fn route(&mut self, at: usize, from: WorkerId, to: WorkerId, mut message: Box<Message>) {
        message.globalise(self.nodes[at].id());
        let (here, there) = (self.nodes[at].number, number_of_node(to.node()));
        self.send(here, there, Item::Message(Box::new(Routed { from, to, message }.into())));
    }

    /// A node receives a message from another node.
    pub(super) fn receive_from_node(&mut self, from: u32, at: usize, mut message: Message) {
        let link = self.node(from).id();
        message.localise_from(id_of(from), self.nodes[at].id());
        let Message::Routed(routed) = message else { fail("I14", format!("{link:?} says {message:?}")) };
        let Routed { from, to, message } = routed;
        let now = self.now();
        let SimNode { core, out, .. } = &mut self.nodes[at];
        if let Err(wrong) = core.member().expect(SEVERAL).on_routed(link, from, to, *message, now, out) {
            fail("I14", format!("{link:?} says to {to:?} what it may not: {wrong:?}"));
        }
    }

    /// A process on this node wants a line to a process on another one.
    pub(super) fn dial_for(&mut self, at: usize, client: WorkerId, to: WorkerId) {
        self.nodes[at].core.on_dialled_for(client, to);
        let connected = PeerConnected::pair(to);
        self.send_from_node(number_of(client), Item::Message(Box::new(connected.into())));
        self.arrive_in_time(client, to);
    }

    fn arrive_in_time(&mut self, from: WorkerId, to: WorkerId) {
        let nanos = 1 + self.random.below(DIAL_NANOS) as u64;
        self.wake_in(nanos, Wake::Arrive(number_of(from), number_of(to)));
    }

    /// The connection of a remote process arrives at the node of the local process.
    pub(super) fn arrive(&mut self, from: u32, to: u32) {
        let (worker, local) = (self.process(from).id, self.process(to).id);
        if !self.process(from).is_running() {
            return;
        }
        if self.node_mut(to).core.on_arrived_for(local, worker) {
            let connected = PeerConnected::pair(worker);
            self.send_from_node(to, Item::Message(Box::new(connected.into())));
        }
        // The node may have to report to the other node that the process is dead.
        self.list_node(to);
    }

    /// Allocates a block for a value that comes from another node. An allocation may find no room, and the
    /// next one succeeds all the same.
    pub(super) fn allocate_for(&mut self, at: usize, object: ObjectId) {
        let is_full =
            self.has_faults() && self.plan.breaks(Fault::Full) && self.random.chance(FULL_OF_EIGHT, 8);
        let now = self.now();
        let SimNode { core, blocks, has_file, stuck, out, .. } = &mut self.nodes[at];
        if is_full {
            hit("there was no room for a value that was to be brought");
            let moves = core.relieve(Room::of(1), Blocks::length_in_memory, out)
                || core.give_way(Some(object), Blocks::length_in_memory, out);
            if stuck.on_no_room(moves, now) && *has_file {
                hit("a value was brought to the file behind the memory");
                core.on_block(object, BlockId(blocks.allocate_in_file()), out);
            } else {
                core.on_no_block(object, u64::MAX, moves, now, out);
            }
        } else {
            core.on_block(object, BlockId(blocks.allocate()), out);
        }
        self.list_node_at(at);
    }

    /// Requests a value's bytes from another node.
    pub(super) fn fetch(&mut self, at: usize, fetching: Fetching) {
        if let Some(before) = fetching.after {
            hit("a node goes on pulling from another one");
            self.stop_fetching(at, fetching.object, before);
        }
        let node = &mut self.nodes[at];
        node.fetches_made += 1;
        let number = node.fetches_made;
        node.fetches.push(Fetch { number, fetching, bytes: None, served: None, is_stopped: false });
        self.go_on_fetching(at, number);
    }

    fn go_on_fetching(&mut self, at: usize, number: u64) {
        let nanos = 1 + self.random.below(FETCH_NANOS) as u64;
        self.wake_in(nanos, Wake::Fetching(at, number));
    }

    /// From now on, this attempt's bytes are not written.
    pub(super) fn stop_fetching(&mut self, at: usize, object: ObjectId, attempt: FetchAttempt) {
        for fetch in &mut self.nodes[at].fetches {
            fetch.is_stopped |= (fetch.fetching.object, fetch.fetching.attempt) == (object, attempt);
        }
    }

    /// The request has arrived at the serving node, or the bytes have come back.
    pub(super) fn on_fetching(&mut self, at: usize, number: u64) {
        let Some(place) = self.nodes[at].fetches.iter().position(|fetch| fetch.number == number) else {
            return;
        };
        let fetch = self.nodes[at].fetches.swap_remove(place);
        match fetch.bytes {
            None => self.serve(at, fetch),
            Some(bytes) => self.take_bytes(at, &fetch, bytes),
        }
    }

    fn serve(&mut self, at: usize, fetch: Fetch) {
        if fetch.is_stopped {
            return;
        }
        let Fetching { object, attempt, remote, .. } = fetch.fetching;
        let there = node_at(number_of_node(remote.node));
        if there == at {
            return self.read_from_disk(at, fetch);
        }
        if let (Place::Disk(spilled), None) = (remote.location.place(), fetch.fetching.generation) {
            return self.serve_spilled(at, there, fetch, spilled);
        }
        let SimNode { core, blocks, out, .. } = &mut self.nodes[there];
        let (block, serves) = match fetch.fetching.generation {
            None => {
                let block = remote.location.place().block().expect("it is not on disk");
                (block, core.begin_serving(block, object))
            }
            Some(generation) => {
                let length = remote.location.length;
                match core.begin_serving_copy(object, generation, length) {
                    ServedCopy::Here(block) => {
                        hit("a value was pulled from a copy");
                        (block, Serves::Yes)
                    }
                    // While a value is still arriving, this model has none of its bytes.
                    ServedCopy::Moving { block, .. } => {
                        hit("a value was asked for where it was still arriving");
                        core.end_serving(block, out);
                        (block, Serves::NotYet)
                    }
                    ServedCopy::NotYet => (BlockId::default(), Serves::NotYet),
                    ServedCopy::No => (BlockId::default(), Serves::No),
                }
            }
        };
        let bytes = match serves {
            Serves::Yes => match blocks.read(block.offset()) {
                Some(bytes) => Some(bytes),
                None => fail("I5", format!("{block} of {object:?} is served, and is free")),
            },
            Serves::NotYet => {
                hit("a value was asked for before its block was given away");
                None
            }
            Serves::No => return self.find_nothing(at, object, attempt),
        };
        self.send_back(at, fetch, bytes, Some(block));
    }

    /// The serving node has the value on disk, or is writing it.
    fn serve_spilled(&mut self, at: usize, there: usize, fetch: Fetch, spilled: SpillId) {
        let Fetching { object, attempt, .. } = fetch.fetching;
        let node = &mut self.nodes[there];
        match node.core.begin_serving_spilled(spilled, object) {
            ServedSpill::Here(block) => match node.blocks.read(block.offset()) {
                Some(bytes) => self.send_back(at, fetch, Some(bytes), Some(block)),
                None => fail("I5", format!("{block} of {object:?} is served, and is free")),
            },
            ServedSpill::Disk => match node.value_on_disk(spilled) {
                Found::Value(bytes) => self.send_back(at, fetch, Some(bytes), None),
                Found::NotYet | Found::Nothing => {
                    fail("I5", format!("{object:?} is said to be on disk as {spilled}, and is not"))
                }
            },
            ServedSpill::NotYet => self.send_back(at, fetch, None, None),
            ServedSpill::No => self.find_nothing(at, object, attempt),
        }
    }

    fn send_back(&mut self, at: usize, fetch: Fetch, bytes: Option<u64>, served: Option<BlockId>) {
        let number = fetch.number;
        self.nodes[at].fetches.push(Fetch { bytes, served, ..fetch });
        self.go_on_fetching(at, number);
    }

    fn find_nothing(&mut self, at: usize, object: ObjectId, attempt: FetchAttempt) {
        let SimNode { core, out, .. } = &mut self.nodes[at];
        core.on_stream_end(object, attempt, StreamEnd::NotThere, out);
        self.list_node_at(at);
    }

    /// A value comes back from disk to the memory of its own node.
    fn read_from_disk(&mut self, at: usize, fetch: Fetch) {
        let Fetching { object, attempt, remote, .. } = fetch.fetching;
        let number = fetch.number;
        let found = |spilled| self.nodes[at].value_on_disk(spilled);
        match remote.location.place().spilled().map_or(Found::Nothing, found) {
            Found::Value(bytes) => self.nodes[at].fetches.push(Fetch { bytes: Some(bytes), ..fetch }),
            // The read waits until the write is done.
            Found::NotYet => self.nodes[at].fetches.push(fetch),
            Found::Nothing => return self.find_nothing(at, object, attempt),
        }
        self.go_on_fetching(at, number);
    }

    fn take_bytes(&mut self, at: usize, fetch: &Fetch, bytes: u64) {
        let Fetching { object, attempt, remote, block, .. } = fetch.fetching;
        let there = node_at(number_of_node(remote.node));
        if let Some(block) = fetch.served.filter(|_| there != at) {
            let SimNode { core, out, .. } = &mut self.nodes[there];
            core.end_serving(block, out);
            self.list_node_at(there);
        }
        if fetch.is_stopped {
            return;
        }
        let is_cut = self.has_faults() && self.plan.breaks(Fault::Cuts) && self.random.chance(1, 8);
        let SimNode { core, blocks, out, .. } = &mut self.nodes[at];
        if is_cut {
            core.on_stream_end(object, attempt, StreamEnd::Cut, out);
        } else {
            blocks.write(block.offset(), bytes);
            core.on_bytes(object, attempt, remote.location.length, out);
        }
        self.list_node_at(at);
    }
}
