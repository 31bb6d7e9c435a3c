//! Values that move between nodes: room for them, fetching and serving.

use sooner_protocol::node::objects::{Fetching, Serves, StreamEnd};
use sooner_protocol::node::{NodeAction, NodeActions, ServedCopy};
use sooner_store::NoBlock;
use sooner_wire::message::Place;
use sooner_wire::message::state::MemoryRow;
use sooner_wire::{BlockId, FetchAttempt, ObjectId};

use super::Service;
use super::spilling::{AskedOnDisk, batch};
use crate::clock::now;
use crate::node::data::DataEvent;

impl Service {
    /// Finds a block for a value of another node.
    pub(super) fn allocate_for(&mut self, object: ObjectId, bytes: u64, out: &mut NodeActions) {
        match self.arena.allocate(bytes) {
            Ok(block) => self.core.on_block(object, BlockId(block), out),
            Err(why) => {
                let moves = why == NoBlock::Reserving || self.make_room(bytes, Some(object), out);
                let block = self.fall_back(bytes, moves, false);
                if let Some(block) = block.or_else(|| self.spare_for_reading(bytes, moves)) {
                    return self.core.on_block(object, BlockId(block), out);
                }
                self.core.on_no_block(object, self.arena.capacity(), moves, now(), out);
            }
        }
    }

    /// Fetches the bytes of a value.
    pub(super) fn fetch(&mut self, fetching: &Fetching, out: &mut NodeActions) {
        let node = fetching.remote.node;
        if node == self.options.node {
            return self.restore(fetching);
        }
        let end = match (&self.cluster, &mut self.data) {
            (Some(cluster), _) if cluster.is_out_of_reach(node) => StreamEnd::Unreachable,
            (Some(cluster), Some(data)) if cluster.knows(node) => {
                return data.fetch(fetching, cluster.address_of(node));
            }
            // The cluster has no such node.
            _ => StreamEnd::NoSuchNode,
        };
        self.core.on_stream_end(fetching.object, fetching.attempt, end, out);
    }

    pub(super) fn stop_fetching(&mut self, attempt: FetchAttempt) {
        self.stop_restoring(attempt);
        if let Some(data) = &mut self.data {
            let _ = data.stop(attempt);
        }
    }

    /// Handles the events of the thread for values, and answers its questions.
    pub(super) fn attend_data(&mut self, out: &mut NodeActions) {
        let (Some(data), Some(cluster)) = (&mut self.data, &mut self.cluster) else { return };
        let mut on_disk = Vec::new();
        for event in data.take_events() {
            match event {
                DataEvent::Bytes { object, attempt, bytes } => {
                    self.core.on_bytes(object, attempt, bytes, out);
                }
                DataEvent::End { object, attempt, end } => self.core.on_stream_end(object, attempt, end, out),
                DataEvent::Asked { ticket, object, location, generation: Some(generation), .. } => {
                    let served = self.core.begin_serving_copy(object, generation, location.length);
                    let (block, stream) = match served {
                        ServedCopy::Here(block) => (block, None),
                        ServedCopy::Moving { block, attempt } => (block, Some(attempt)),
                        ServedCopy::NotYet => {
                            data.answer(ticket, location.offset, Serves::NotYet);
                            continue;
                        }
                        ServedCopy::No => {
                            data.answer(ticket, location.offset, Serves::No);
                            continue;
                        }
                    };
                    if !data.answer_copy(ticket, block.offset(), stream) {
                        self.core.end_serving(block, out);
                        data.answer(ticket, location.offset, Serves::NotYet);
                    }
                }
                DataEvent::Asked { ticket, object, location, generation: None, part } => {
                    let length = location.length;
                    match location.place() {
                        Place::Disk(spilled) => {
                            on_disk.push(AskedOnDisk { ticket, object, spilled, length, part });
                        }
                        Place::Memory(block) if self.arena.holds(block.offset(), length) => {
                            data.answer(ticket, block.offset(), self.core.begin_serving(block, object));
                        }
                        Place::Memory(block) => data.answer(ticket, block.offset(), Serves::No),
                    }
                }
                DataEvent::Served { block } => self.core.end_serving(BlockId(block), out),
                DataEvent::AskFor(node) => cluster.ask_for_values(node),
            }
        }
        for asked in on_disk {
            self.serve_spilled(asked);
        }
    }

    /// What the object store and the disk are used for.
    pub(super) fn memory_row(&self) -> MemoryRow {
        let on_disk = self.spilling.on_disk().unwrap_or_default();
        MemoryRow {
            spilled: on_disk.live,
            spilled_values: on_disk.values,
            spill_files: on_disk.used,
            fallback: self.arena.used_in_file(),
            ..self.core.memory_use(|block| self.arena.length_in_memory(block.offset()))
        }
    }

    /// Has processes give back blocks that they keep for reuse, and values brought to disk, or elsewhere if
    /// others own them. When all memory is in use, tasks that wait for arguments give way: to the one that
    /// waits for `object`, or to one that makes a value (`None`). True if room is on its way.
    pub(super) fn make_room(&mut self, bytes: u64, object: Option<ObjectId>, out: &mut NodeActions) -> bool {
        if bytes > self.arena.capacity() {
            self.trim_caches(false, out);
            return false;
        }
        self.spilling.record_pressure(now());
        let arena = &self.arena;
        let length_of = |block: BlockId| arena.length_in_memory(block.offset());
        let moves = self.core.relieve(batch(bytes, arena.capacity()), length_of, out)
            || self.core.give_way(object, length_of, out);
        self.trim_caches(moves, out);
        moves
    }

    fn trim_caches(&self, moves: bool, out: &mut NodeActions) {
        for (worker, token) in &self.tokens {
            if self.connections.get(token).is_some_and(|c| c.is_greeted) {
                let trim = sooner_wire::message::TrimBlocks { moves: Some(moves) };
                out.push(NodeAction::Send(*worker, Box::new(trim.into())));
            }
        }
    }
}
