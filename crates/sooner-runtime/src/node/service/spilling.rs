//! Values on disk, for which memory had no room: passes the core's writes and reads to the thread that does
//! them.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use sooner_protocol::node::objects::{Fetching, Serves, Stuck};
use sooner_protocol::node::{NodeActions, Room, ServedSpill};
use sooner_protocol::time::Instant;
use sooner_store::spill::SpillFull;
use sooner_store::{FallbackFile, Mapping};
use sooner_wire::limits::LENT_BYTES;
use sooner_wire::message::SpillId;
use sooner_wire::{FetchAttempt, ObjectId};

use super::Service;
use crate::clock::now;
use crate::node::NodeOptions;
use crate::node::data::Ticket;
use crate::node::spiller::{OnDisk, SpillEvent, SpillOptions, Spiller, Wanted};

/// At least so many bytes are written at a time (one part in so many of the store, or a number if that is
/// less): writing few large pieces is faster than many small ones.
const BATCH_PART: u64 = 8;
const BATCH_BYTES: u64 = 64 << 20;

/// When the store has been full, values go to disk once it is full to the first share (percent), until it is
/// to the second. A program that goes on making values then seldom waits for the disk.
const HIGH_PERCENT: u64 = 80;
const LOW_PERCENT: u64 = 60;

/// How long a store that was full is expected to be full again (nanoseconds). A program that has ended its
/// work with many values does not write those that fit.
const PRESSURE_NANOS: u64 = 10_000_000_000;

/// Another node asks for a part of a value that is on disk, or on its way there.
pub(super) struct AskedOnDisk {
    /// The other node's request.
    pub ticket: Ticket,
    /// The object that it asks for.
    pub object: ObjectId,
    /// The value.
    pub spilled: SpillId,
    /// The length that the value should have.
    pub length: u64,
    /// The range of bytes that is wanted.
    pub part: Range<u64>,
}

/// See the module.
#[derive(Default)]
pub(super) struct Spilling {
    spiller: Option<Spiller>,
    /// Until when the store is expected to be full again.
    pressed_until: Option<Instant>,
    /// Why the last value could not be written.
    trouble: Option<String>,
    stuck: Stuck,
    /// The spiller, after its thread has ended by itself.
    former: Option<Spiller>,
    /// Where values are spilled, for people.
    place: String,
    /// Blocks to which the disk still writes although the read was stopped; and whether they are free after
    /// that.
    held: HashMap<u64, bool>,
}

impl Spilling {
    /// Spilling is off without options: nodes of clusters then bring values to other nodes.
    pub(super) fn open(
        options: &NodeOptions,
        mapping: &Arc<Mapping>,
        wake: &Arc<OwnedFd>,
    ) -> io::Result<Self> {
        let Some(spill) = &options.spill else { return Ok(Self::default()) };
        let spiller = Some(Spiller::start(spill, mapping.clone(), wake.clone())?);
        Ok(Self { spiller, place: spill.place(), ..Self::default() })
    }

    pub(super) fn is_on(&self) -> bool {
        self.spiller.is_some()
    }

    /// There was no room for something.
    pub(super) fn record_pressure(&mut self, now: Instant) {
        self.pressed_until = Some(now.plus(PRESSURE_NANOS));
    }

    fn is_pressed(&self, now: Instant) -> bool {
        self.is_on() && self.pressed_until.is_some_and(|until| now < until)
    }

    /// Why values cannot be written to disk at the moment.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Gives the files back. Returns a message about a disk that does not answer, or about what is left.
    pub(super) fn close(&mut self) -> Option<String> {
        let spiller = self.spiller.as_mut().or(self.former.as_mut())?;
        if spiller.end() {
            return spiller.left();
        }
        Some(format!(
            "{} does not answer, so that the session ends without it: what is there, and the thread that is at it, go when it answers, or \
             with this process",
            self.place
        ))
    }

    pub(super) fn on_disk(&self) -> Option<OnDisk> {
        self.spiller.as_ref().map(Spiller::on_disk)
    }
}

/// The file behind the memory, if values go to disk.
pub(super) fn open_fallback(options: &NodeOptions) -> io::Result<Option<FallbackFile>> {
    let Some(SpillOptions { directories, max_bytes, .. }) = &options.spill else { return Ok(None) };
    let Some(first) = directories.first() else { return Ok(None) };
    FallbackFile::create(first, *max_bytes).map_err(io::Error::other)
}

/// The memory of a node, with the file behind it if that can be mapped.
pub(super) fn open_memory(
    bytes: u64,
    fallback: Option<FallbackFile>,
) -> io::Result<(Mapping, Option<FallbackFile>)> {
    let Some(file) = fallback else { return Ok((Mapping::create(bytes).map_err(io::Error::other)?, None)) };
    // As much address space again, which takes no memory until values are read back from a full disk.
    let memory = Mapping::create(bytes.saturating_mul(2)).or_else(|_| Mapping::create(bytes));
    let memory = memory.map_err(io::Error::other)?;
    match memory.with_fallback(file.descriptor().try_clone()?, file.bytes()) {
        Ok(memory) => Ok((memory, Some(file))),
        // Address space is bounded here (ulimit -v, or a tool that simulates the machine): values go to disk
        // all the same.
        Err(_) => Ok((Mapping::create(bytes).map_err(io::Error::other)?, None)),
    }
}

/// How much room to make when `bytes` are missing in a store of this size.
pub(super) fn batch(bytes: u64, capacity: u64) -> Room {
    Room { least: bytes, most: bytes.max(BATCH_BYTES.min(capacity / BATCH_PART)) }
}

fn part(capacity: u64, percent: u64) -> u64 {
    capacity / 100 * percent
}

impl Service {
    /// A value was made: if the store is nearly full, and was full not long ago, others go to disk before
    /// there is no room for the next. As long as all values fit, nothing is written: copies go first.
    pub(super) fn spill_ahead(&mut self, out: &mut NodeActions) {
        let (used, capacity) = (self.arena.used(), self.arena.capacity());
        if used <= part(capacity, HIGH_PERCENT) || !self.spilling.is_pressed(now()) {
            return;
        }
        let arena = &self.arena;
        let [least, most] = [HIGH_PERCENT, LOW_PERCENT].map(|percent| used - part(capacity, percent));
        self.core.spill_ahead(Room { least, most }, |block| arena.length_in_memory(block.offset()), out);
    }

    pub(super) fn spill(&mut self, spilled: SpillId, block: u64, out: &mut NodeActions) {
        match &self.spilling.spiller {
            Some(spiller) => {
                spiller.write(spilled, block, self.arena.length(block), self.arena.used_in_file())
            }
            // The thread has ended since the value's process was asked.
            None => self.core.on_spilled(spilled, false, out),
        }
    }

    /// A block in the file behind the memory, where there is one: for a value larger than the store, for a
    /// process that asks the last time, and when nothing has become free for a while. `moves`: something is
    /// on its way out.
    pub(super) fn fall_back(&mut self, bytes: u64, moves: bool, is_last: bool) -> Option<u64> {
        let is_stuck = self.spilling.stuck.on_no_room(moves, now());
        if bytes <= self.arena.capacity() && !is_stuck && !is_last {
            return None;
        }
        let refused = match self.is_beyond_cap(bytes) {
            Some(full) => full.to_string(),
            None => match self.arena.allocate_in_file(bytes)? {
                Ok(block) => return Some(block),
                Err(error) => error.to_string(),
            },
        };
        self.record_trouble(Some(refused));
        None
    }

    /// A block for a value that is read back while nothing can be written to disk, so that nothing makes room
    /// for it.
    pub(super) fn spare_for_reading(&mut self, bytes: u64, moves: bool) -> Option<u64> {
        if self.spilling.trouble().is_none() || (moves && !self.spilling.stuck.on_no_room(moves, now())) {
            return None;
        }
        self.arena.allocate_spare(bytes)
    }

    /// Why the file may not take `bytes` more beside what is in spill files.
    fn is_beyond_cap(&self, bytes: u64) -> Option<SpillFull> {
        let max = self.options.spill.as_ref()?.max_bytes?;
        let used = self.spilling.on_disk().unwrap_or_default().used + self.arena.used_in_file();
        (used.saturating_add(bytes) > max).then_some(SpillFull { asked: bytes, used, kept: 0, max })
    }

    pub(super) fn drop_spilled(&self, spilled: SpillId) {
        if let Some(spiller) = &self.spilling.spiller {
            spiller.forget(spilled);
        }
    }

    /// Reads a value of this node back.
    pub(super) fn restore(&mut self, fetching: &Fetching) {
        if let Some(spiller) = &mut self.spilling.spiller {
            spiller.read(fetching);
        }
    }

    pub(super) fn stop_restoring(&mut self, attempt: FetchAttempt) {
        let spiller = self.spilling.spiller.as_mut();
        if let Some(block) = spiller.and_then(|spiller| spiller.stop(attempt)) {
            self.spilling.held.insert(block, false);
        }
    }

    /// A block is not needed any more; if the disk still writes to it, it is free when that is over.
    pub(super) fn free(&mut self, block: u64) {
        match self.spilling.held.get_mut(&block) {
            Some(is_free) => *is_free = true,
            None => self.free_now(block),
        }
    }

    fn free_now(&mut self, block: u64) {
        if self.arena.free(block) && !self.arena.is_in_file(block) {
            self.spilling.stuck.on_freed();
            self.creations.on_freed();
        }
    }

    /// Another node asks for a part of a value that is on disk, or on its way there.
    pub(super) fn serve_spilled(&mut self, asked: AskedOnDisk) {
        let AskedOnDisk { ticket, object, spilled, length, part } = asked;
        let Some(data) = &self.data else { return };
        match self.core.begin_serving_spilled(spilled, object) {
            // The block is shorter: bytes of another value may follow it.
            ServedSpill::Here(block) if !self.arena.holds(block.offset(), length) => {
                data.answer(ticket, spilled.offset(), Serves::No);
                let mut out = NodeActions::new();
                self.core.end_serving(block, &mut out);
                debug_assert!(out.is_empty(), "it is kept for its value");
            }
            ServedSpill::Here(block) => data.answer(ticket, block.offset(), Serves::Yes),
            // A node that keeps to the protocol never asks for more at a time.
            ServedSpill::Disk if part.end - part.start > LENT_BYTES => {
                data.answer(ticket, spilled.offset(), Serves::No);
            }
            ServedSpill::Disk => {
                if let Some(spiller) = &self.spilling.spiller {
                    spiller.read_for(Wanted { ticket, spilled, part });
                }
            }
            ServedSpill::NotYet => data.answer(ticket, spilled.offset(), Serves::NotYet),
            ServedSpill::No => data.answer(ticket, spilled.offset(), Serves::No),
        }
    }

    /// Handles the events of the thread.
    pub(super) fn attend_spills(&mut self, out: &mut NodeActions) {
        let Some(spiller) = &mut self.spilling.spiller else { return };
        for event in spiller.take_events() {
            match event {
                SpillEvent::Written { spilled, error } => {
                    self.core.on_spilled(spilled, error.is_none(), out);
                    self.record_trouble(error);
                }
                SpillEvent::Read { object, attempt, bytes } => {
                    self.core.on_bytes(object, attempt, bytes, out)
                }
                SpillEvent::Part { ticket, read: Ok(buffer), .. } => {
                    if let Some(data) = &self.data {
                        data.send(ticket, buffer);
                    }
                }
                SpillEvent::Part { ticket, spilled, read: Err(error) } => {
                    if let Some(error) = error {
                        self.warn(&format!(
                            "a value on disk is lost, and made again where its task is known: {error}"
                        ));
                    }
                    if let Some(data) = &self.data {
                        data.answer(ticket, spilled.offset(), Serves::No);
                    }
                }
                SpillEvent::Lost { object, attempt, end, error } => {
                    self.warn(&format!(
                        "a value on disk is lost, and made again where its task is known: {error}"
                    ));
                    self.core.on_stream_end(object, attempt, end, out);
                }
                SpillEvent::LetGo { block } => {
                    if self.spilling.held.remove(&block) == Some(true) {
                        self.free_now(block);
                        self.core.on_room(out);
                    }
                }
                SpillEvent::Ended { reason } => self.end_spilling(&reason, out),
            }
        }
    }

    /// The thread has panicked: values on disk are lost, and all others stay in memory.
    fn end_spilling(&mut self, reason: &str, out: &mut NodeActions) {
        self.warn(&format!(
            "the thread that writes values to disk has ended by a defect of sooner, and what was on disk is lost, and made again where \
             its task is known. From now on values stay in memory. Please report it with this reason: {reason}"
        ));
        self.spilling.former = self.spilling.spiller.take();
        let trouble = "the thread that writes values to disk has ended by a defect of sooner; end the session and begin a new one";
        self.spilling.trouble = Some(trouble.to_owned());
        self.core.on_spilling_ended(out);
    }

    /// Warns once that no value can be written, and why, until one is.
    fn record_trouble(&mut self, error: Option<String>) {
        if let Some(error) = error.as_ref().filter(|_| self.spilling.trouble.is_none()) {
            self.warn(&format!("values stay in memory because they cannot be written to disk: {error}"));
        }
        self.spilling.trouble = error;
    }
}
