//! Spilling: values that nobody reads go to disk when there is no room, and come back when they are wanted
//! (`docs/adr/0040-values-on-disk.md`).
//!
//! [`Residency`](crate::node::objects::Residency) says where each value is; this file joins that with the
//! blocks and their holders. A spilled value has a holder like a block, so the death of its owner ends it in
//! the same way. The oldest go first; a block that turns out to be in use is asked for again last.
//!
//! Owners at other nodes are asked like local ones (`docs/adr/0042-spilling-in-clusters.md`): a value that
//! was made here for them goes to the disk of this node. Other nodes read it there, and it need not come back
//! into memory for that.
//!
//! This file never asks for blocks that the node keeps for others, or that dead processes left.

use sooner_wire::message::{Location, Pull, Recompute, Relinquish, Relinquished, Relinquishing, SpillId};
use sooner_wire::{BlockId, NodeId, ObjectId, WorkerId};

use super::transfers::address;
use super::yielding::Turn;
use crate::node::objects::{AfterAnswer, AfterWrite, Fetching, PullAction, Serves, SpillSource, StreamEnd};
use crate::node::{NodeAction, NodeActions, NodeCore};
use crate::probes::mark;
use crate::table::Map;

/// How many blocks are asked for at a time.
const ASK_MAX: usize = 4096;

/// Where a spilled value is read for another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServedSpill {
    /// In this block, which stays as it is until [`NodeCore::end_serving`].
    Here(BlockId),
    /// On disk: the wanted bytes are read from there.
    Disk,
    /// Ask again.
    NotYet,
    /// The value is not there.
    No,
}

/// How much room is to be made in memory (bytes).
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// So much is missing. If copies that no process needs have as much, no value is written.
    pub least: u64,
    /// So much is made at once when values have to be written, since large pieces are written faster.
    pub most: u64,
}

impl Room {
    /// So much room, and no more.
    #[must_use]
    pub fn of(bytes: u64) -> Self {
        Self { least: bytes, most: bytes }
    }
}

/// How values that are not in use may leave the memory of this node.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::node) struct Leaving {
    /// Spilling is on: there is somewhere to put values without room.
    spills: bool,
    /// Values that tasks can make again go without being written.
    recomputes: bool,
}

impl Leaving {
    /// Whether values may leave at all.
    pub(in crate::node) fn is_possible(self) -> bool {
        self.spills || self.recomputes
    }

    /// Whether values may be written.
    pub(in crate::node) fn spills(self) -> bool {
        self.spills
    }

    /// What a holder is to do with values that tasks can make again.
    fn recompute(self) -> Option<Recompute> {
        match (self.recomputes, self.spills) {
            (false, _) => None,
            (true, true) => Some(Recompute::OrSpill),
            (true, false) => Some(Recompute::OrKeep),
        }
    }
}

impl NodeCore {
    /// Turns spilling on.
    pub fn set_spills(&mut self) {
        self.leaving.spills = true;
    }

    /// Values that tasks can make again are dropped rather than written (Oakes, table 5.1: explicit free
    /// only).
    pub fn set_recomputes(&mut self) {
        self.leaving.recomputes = true;
    }

    /// There may soon be no room: asks for blocks. This is not urgent: blocks that were in use are not asked
    /// for again, and values that could not be written are not tried again.
    pub fn spill_ahead(&mut self, room: Room, length_of: impl Fn(BlockId) -> u64, out: &mut NodeActions) {
        let free = self.evict_copies(room.most, out);
        let bytes = self.beside_copies(room, free);
        // Values are brought to other nodes only when that has to be.
        if self.leaving.is_possible() {
            let to_come = self.residency.bytes_to_come() + self.pulls.leaving_bytes();
            self.ask_for_blocks(bytes.saturating_sub(to_come), true, &length_of, out);
        }
    }

    /// How many bytes of values have to leave memory when copies have made `free` bytes free and others are
    /// leaving: none if the copies are enough.
    pub(in crate::node) fn beside_copies(&self, room: Room, free: u64) -> u64 {
        if room.least <= free.saturating_add(self.pulls.leaving_bytes()) {
            return 0;
        }
        room.most.saturating_sub(free)
    }

    /// There is no room for `bytes` bytes: copies that no process needs go. Gives how many bytes are free at
    /// once.
    pub(in crate::node) fn evict_copies(&mut self, bytes: u64, out: &mut NodeActions) -> u64 {
        let mut wanted = Vec::new();
        let more = bytes.saturating_sub(self.pulls.leaving_bytes());
        let free = self.pulls.evict(more, &mut wanted);
        self.perform(wanted, out);
        free
    }

    /// There is no room for `bytes` bytes: asks for blocks of as many, beside those that are on their way
    /// out. Blocks without a length are not in memory.
    pub(in crate::node) fn spill_values(
        &mut self,
        bytes: u64,
        length_of: &impl Fn(BlockId) -> u64,
        out: &mut NodeActions,
    ) {
        let mut left = bytes.saturating_sub(self.residency.bytes_to_come() + self.pulls.leaving_bytes());
        left = left.saturating_sub(self.write_again(left, length_of, out));
        self.ask_for_blocks(left, false, length_of, out);
    }

    fn ask_for_blocks(
        &mut self,
        bytes: u64,
        is_ahead: bool,
        length_of: &impl Fn(BlockId) -> u64,
        out: &mut NodeActions,
    ) {
        let (mut left, mut passed_over) = (bytes, 0);
        let mut wanted: Map<WorkerId, Vec<Relinquishing>> = Map::default();
        let mut asked = Vec::new();
        // A value that could not be written is read in its block, which the node keeps. When no process reads
        // it, the write is tried again.
        for block in self.holders.oldest(|block| self.residency.is_unwritten(block)) {
            if left == 0 || asked.len() == ASK_MAX {
                break;
            }
            if is_ahead && self.residency.is_refused(block) {
                passed_over += 1;
                if passed_over == ASK_MAX {
                    break;
                }
                continue;
            }
            let length = length_of(block);
            if length > 0 && self.may_be_asked_for(block) {
                left = left.saturating_sub(length);
                asked.push(block);
            }
        }
        for block in asked {
            // If the block is in use, others go before it the next time.
            self.holders.renew(block);
            let is_copy = self.is_copy(block);
            let holders = self.holders.of(block.into()).to_vec();
            let spilled = self.residency.ask(block, &holders, length_of(block), is_copy);
            for holder in holders {
                wanted.entry(holder).or_default().push(Relinquishing { block, spilled });
            }
        }
        for (holder, blocks) in wanted {
            mark!("a node without room asked for blocks");
            self.ask_holder(holder, blocks, out);
        }
    }

    fn ask_holder(&self, holder: WorkerId, blocks: Vec<Relinquishing>, out: &mut NodeActions) {
        let recomputes = self.leaving.recompute();
        if !self.is_elsewhere(holder) {
            let question = Relinquish { blocks, gives_way: None, node: None, recomputes };
            return out.push(NodeAction::Send(holder, Box::new(question.into())));
        }
        mark!("a node without room asked owners at other nodes for blocks");
        let question = Relinquish { blocks, gives_way: None, node: Some(self.id()), recomputes };
        let message = Box::new(question.into());
        out.push(NodeAction::Route { from: address(self.id()), to: holder, message });
    }

    /// The session with a node has ended: questions to its processes, or their answers, may be lost. The
    /// processes are asked again, and repeat what they have given up.
    pub(in crate::node) fn ask_for_blocks_again(&self, node: NodeId, out: &mut NodeActions) {
        let mut wanted: Map<WorkerId, Vec<Relinquishing>> = Map::default();
        for (holder, block) in self.residency.open_questions(node) {
            wanted.entry(holder).or_default().push(block);
        }
        for (holder, blocks) in wanted {
            self.ask_holder(holder, blocks, out);
        }
    }

    /// Tries again to write values that could not be written before, if it is time. Gives how many bytes they
    /// have.
    fn write_again(&mut self, bytes: u64, length_of: &impl Fn(BlockId) -> u64, out: &mut NodeActions) -> u64 {
        let is_read = |block: BlockId| !self.holders.of(block.into()).is_empty();
        let again = self.residency.retry(bytes, self.now, is_read);
        if !again.is_empty() {
            mark!("a value that could not be written was tried again");
        }
        let sum = again.iter().map(|(_, block)| length_of(*block)).sum();
        out.extend(again.into_iter().map(|(spilled, block)| NodeAction::Spill { spilled, block }));
        sum
    }

    fn may_be_asked_for(&self, block: BlockId) -> bool {
        let holders = self.holders.of(block.into());
        let may_answer = |holder: &WorkerId| {
            let is_process = *holder != address(holder.node());
            self.clients.contains_key(holder) || (self.is_elsewhere(*holder) && is_process)
        };
        let may_be_asked = !holders.is_empty() && holders.iter().all(may_answer);
        let is_one = holders.len() == 1 || self.is_copy(block);
        let is_ordinary = !self.lost.contains(block.into()) && !self.residency.is_busy(block);
        may_be_asked && is_one && is_ordinary && !self.residency.is_stuck(block, self.now)
    }

    /// Whether the holders of a block have only a copy there: the value is elsewhere, or the node itself
    /// holds it there because it could not be written.
    fn is_copy(&self, block: BlockId) -> bool {
        (self.pulls.object_in(block).is_some() && !self.is_promoted(block))
            || self.residency.is_unwritten(block)
    }

    /// Whether room may come: a block is being written, one was asked for that was not in use the last time,
    /// or a copy goes as soon as no other node pulls it from here.
    pub(in crate::node) fn is_spilling(&self) -> bool {
        self.residency.has_hope() || self.pulls.leaving_bytes() > 0
    }

    pub(in crate::node) fn on_relinquished(
        &mut self,
        from: WorkerId,
        answer: &Relinquished,
        out: &mut NodeActions,
    ) {
        for &Relinquishing { block, spilled } in &answer.moved {
            let Some(value) = spilled else { continue };
            // Processes that asked this node for the value meanwhile may hold the block, too: it is free when
            // they are done.
            let is_its = self.holders.of(block.into()).contains(&from);
            // The process gave the block up before it learned of the loss, and takes the value to be on disk:
            // a reader that looks there learns that it is not.
            let is_lost = is_its && self.lost.contains(block.into());
            if !is_its || is_lost || !self.residency.on_moved(from, block, spilled) {
                let after = self.residency.on_answered(from, block);
                self.after_answer(after, out);
                if is_lost && self.holders.release(block.into(), from) {
                    self.free_place(block.into(), out);
                }
                continue;
            }
            if let Some(object) = self.holders.object_in(block.into()) {
                self.residency.record_moved(object, block, value);
            }
            // The node holds the block until it is written.
            self.holders.keep(block.into());
            let is_free = self.holders.release(block.into(), from);
            debug_assert!(!is_free, "the node keeps it");
            self.holders.insert(value.into(), from);
            out.push(NodeAction::Spill { spilled: value, block });
            for (from, pull) in self.residency.take_waiting(value) {
                self.on_pull(from, &pull, self.now, out);
            }
        }
        for block in &answer.others {
            let after = self.residency.on_answered(from, *block);
            self.after_answer(after, out);
        }
        self.end_yielding(from);
    }

    /// All of memory is in use. Has a process that waits for arguments give way: to one that waits for
    /// `object`, or to one that makes a value (`None`). `length_of` gives the bytes of a block. True if that
    /// may bring room.
    pub fn give_way(
        &mut self,
        object: Option<ObjectId>,
        length_of: impl Fn(BlockId) -> u64,
        out: &mut NodeActions,
    ) -> bool {
        let (pulls, clients) = (&self.pulls, &self.clients);
        let turn = self.yielding.next(|is_spared| {
            pulls.youngest_behind(object, |process| is_spared(process) || !clients.contains_key(&process))
        });
        let worker = match turn {
            Turn::Waits => return true,
            Turn::Nobody => return false,
            Turn::Ask(worker) => worker,
        };
        let is_its =
            |block: &BlockId| self.holders.of((*block).into()) == [worker] && !self.residency.is_busy(*block);
        let copies: Vec<BlockId> = self.pulls.copied_blocks().filter(is_its).collect();
        for block in &copies {
            self.residency.ask(*block, &[worker], length_of(*block), true);
        }
        let blocks = copies.into_iter().map(|block| Relinquishing { block, spilled: None }).collect();
        let ask = Relinquish { blocks, gives_way: Some(true), node: None, recomputes: None };
        out.push(NodeAction::Send(worker, Box::new(ask.into())));
        true
    }

    /// A process has answered a question for blocks, or is dead.
    fn end_yielding(&mut self, process: WorkerId) {
        if self.yielding.end(process) {
            // A block that was in use may not be now.
            self.residency.on_room();
        }
    }

    /// A local process has answered the question of another node.
    pub(in crate::node) fn on_relinquished_here(
        &self,
        from: WorkerId,
        answer: Relinquished,
        out: &mut NodeActions,
    ) {
        let Some(node) = answer.node.filter(|node| *node != self.id()) else { return };
        out.push(NodeAction::Route { from, to: address(node), message: Box::new(answer.into()) });
    }

    /// A process that may have been asked for blocks is dead.
    pub(in crate::node) fn end_questions_to(&mut self, process: WorkerId, out: &mut NodeActions) {
        self.end_yielding(process);
        for after in self.residency.on_dead(process) {
            self.after_answer(after, out);
        }
    }

    /// Frees the block if it was freed meanwhile. A value that stays in its block is not on disk: a process
    /// that asked for it early asks its owner.
    fn after_answer(&mut self, after: AfterAnswer, out: &mut NodeActions) {
        if let Some(block) = after.free {
            mark!("a block was freed while the node waited to hear whether it could have it");
            self.free_place(block.into(), out);
        }
        let Some(nowhere) = after.nowhere else { return };
        let waiting = self.residency.take_waiting(nowhere);
        let answer =
            |(to, pull): (WorkerId, Pull)| PullAction::NotThere { to, object: pull.object, tried: None };
        self.perform(waiting.into_iter().map(answer).collect(), out);
    }

    /// A client asks for a value that is on disk, or is to be.
    pub(in crate::node) fn on_pull_of_spilled(
        &mut self,
        from: WorkerId,
        pull: &Pull,
        spilled: SpillId,
        out: &mut NodeActions,
    ) {
        let (object, location) = (pull.object, pull.remote.location);
        if let Some(block) = self.residency.block_of(spilled) {
            mark!("a value that could not be written was read in its block");
            let location = Location::in_memory(block, location.length);
            return self.perform(vec![PullAction::Here { to: from, object, location }], out);
        }
        match self.residency.has(spilled) {
            Some(true) => {
                let mut wanted = Vec::new();
                self.pulls.on_pull_from_disk(from, pull, &mut wanted);
                self.perform(wanted, out);
            }
            Some(false) => {
                let tried = Some(pull.remote);
                self.perform(vec![PullAction::NotThere { to: from, object, tried }], out);
            }
            None => self.residency.wait(from, pull.clone()),
        }
    }

    /// A value that is on disk, or on its way there, is about to be read for another node.
    pub fn begin_serving_spilled(&mut self, spilled: SpillId, object: ObjectId) -> ServedSpill {
        match (self.residency.source_of(spilled), self.residency.has(spilled)) {
            (None, None) => ServedSpill::NotYet,
            (Some(_), _) if self.holders.serves(spilled.into(), object) != Serves::Yes => ServedSpill::No,
            (Some(SpillSource::Disk), _) => {
                mark!("a value was read from disk for another node");
                ServedSpill::Disk
            }
            (Some(SpillSource::Block(block)), _) => {
                mark!("a value on its way to disk was read in its block for another node");
                self.holders.keep(block.into());
                ServedSpill::Here(block)
            }
            (None, Some(_)) => ServedSpill::No,
        }
    }

    /// There is a block for a value that was on disk: it is read, if it is still there.
    pub(in crate::node) fn restore(&mut self, fetching: Fetching, out: &mut NodeActions) {
        let spilled = fetching.remote.location.place().spilled();
        if spilled.is_some_and(|spilled| self.residency.has(spilled) == Some(true)) {
            mark!("a value was brought back from disk");
            return out.push(NodeAction::Fetch(fetching));
        }
        let mut wanted = Vec::new();
        self.pulls.on_stream_end(fetching.object, fetching.attempt, StreamEnd::NotThere, &mut wanted);
        self.perform(wanted, out);
    }

    /// A value was written, or could not be.
    pub fn on_spilled(&mut self, spilled: SpillId, is_written: bool, out: &mut NodeActions) {
        let after = self.residency.on_written(spilled, is_written, self.now);
        if !is_written {
            mark!("a value could not be written");
        }
        self.after_write(spilled, after, out);
    }

    /// No value can be written or read back any more: values on disk are lost, and values that were to be
    /// written stay where they are.
    pub fn on_spilling_ended(&mut self, out: &mut NodeActions) {
        self.leaving.spills = false;
        for (spilled, after) in self.residency.on_ended(self.now) {
            self.after_write(spilled, after, out);
        }
    }

    /// No process needs a spilled value any more.
    pub(in crate::node) fn free_spilled(&mut self, spilled: SpillId, out: &mut NodeActions) {
        let mut wanted = Vec::new();
        self.pulls.on_unspilled(spilled, &mut wanted);
        self.perform(wanted, out);
        let is_known = self.residency.has(spilled) == Some(true);
        let after = self.residency.on_freed(spilled);
        if is_known && after == (AfterWrite { frees: None, is_dropped: false }) {
            mark!("a value was freed while it was written");
        }
        self.after_write(spilled, after, out);
    }

    fn after_write(&mut self, spilled: SpillId, after: AfterWrite, out: &mut NodeActions) {
        if after.is_dropped {
            out.push(NodeAction::DropSpilled(spilled));
        }
        if let Some(block) = after.frees {
            self.let_go(block.into(), out);
        }
    }

    /// Values on disk, or on their way there.
    #[must_use]
    pub fn spilled(&self) -> usize {
        self.residency.len()
    }
}
