//! The part of the thread that writes values, and moves them out of files that are mostly dead.
//!
//! On a disk, values are added to files one by one. For an object store, values that wait at the same time
//! are written together, as one complete file: so a request carries many small values, and a value that comes
//! alone waits for no others. A value counts as written when its whole file is there.

use sooner_store::spill::{SpillFull, SpillPlace, record_bytes};
use sooner_wire::message::SpillId;

use super::disk::{Move, SpillValue};
use super::{Command, SpillEvent, Where, Worker, id_of};

/// A value to be written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Writing {
    pub spilled: SpillId,
    pub block: u64,
    pub bytes: u64,
}

impl Worker {
    /// `first`, and the writes directly behind it, as many as are written together.
    pub(super) fn gather(&mut self, first: Writing) -> Vec<Writing> {
        let most = self.disk.batch_bytes();
        let mut bytes = record_bytes(first.bytes);
        let mut batch = vec![first];
        let mut list = self.shared.list.lock();
        while let Some(Command::Write { spilled, block, bytes: length, others }) = list.commands.front() {
            bytes += record_bytes(*length);
            if bytes > most {
                break;
            }
            batch.push(Writing { spilled: *spilled, block: *block, bytes: *length });
            self.space.set_others(*others);
            list.commands.pop_front();
        }
        batch
    }

    pub(super) fn write(&mut self, mut batch: Vec<Writing>) {
        let mut why = String::new();
        loop {
            // Each failure makes the next attempt go to the next directory.
            for _ in 0..self.directories {
                batch = self.try_to_write(batch, &mut why);
                if batch.is_empty() {
                    return;
                }
            }
            let bytes = batch.iter().map(|value| record_bytes(value.bytes)).sum();
            // A full disk may hold dead values, whose room can be had.
            if self.disk.room() >= bytes || !self.rewrite_a_file() {
                break;
            }
        }
        for value in batch {
            self.record_unwritten(value, why.clone());
        }
    }

    /// Returns the values that could not be written. Those without a place are reported at once.
    fn try_to_write(&mut self, batch: Vec<Writing>, why: &mut String) -> Vec<Writing> {
        let mut placed = Vec::with_capacity(batch.len());
        for value in batch {
            match self.space.place(value.bytes).or_else(|full| self.make_room_on_disk(value.bytes, full)) {
                Ok(place) => placed.push((value, place)),
                Err(full) => self.record_unwritten(value, full.to_string()),
            }
        }
        let mut unwritten = Vec::new();
        for together in placed.chunk_by(|(_, one), (_, next)| one.file == next.file) {
            let values = together.iter().map(|(value, place)| {
                let (mapping, id) = (self.mapping.clone(), id_of(value.spilled));
                SpillValue { place: *place, id, mapping, block: value.block }
            });
            let written = self.disk.write(&values.collect::<Vec<_>>());
            self.space.set_disk_room(self.disk.room());
            match written {
                Ok(()) => together.iter().for_each(|(value, place)| self.record_written(*value, *place)),
                Err(error) => {
                    *why = error.to_string();
                    together.iter().for_each(|(_, place)| self.give_place_back(*place));
                    unwritten.extend(together.iter().map(|(value, _)| *value));
                }
            }
        }
        self.end_file();
        unwritten
    }

    fn record_written(&mut self, value: Writing, place: SpillPlace) {
        self.by_place.insert(place, value.spilled);
        self.values.insert(value.spilled, Where::Disk(place));
        self.shared.on_disk.lock().written += value.bytes;
        self.send(SpillEvent::Written { spilled: value.spilled, error: None });
    }

    fn record_unwritten(&mut self, value: Writing, why: String) {
        let Writing { spilled, block, bytes } = value;
        self.values.insert(spilled, Where::Block { block, bytes });
        self.send(SpillEvent::Written { spilled, error: Some(why) });
    }

    fn give_place_back(&mut self, place: SpillPlace) {
        if let Some(file) = self.space.failed(place) {
            self.disk.delete(file);
        }
    }

    /// Where files are written whole, the next value goes to another file.
    fn end_file(&mut self) {
        if self.disk.batch_bytes() > 0 {
            self.space.close_open();
        }
    }

    /// Rewrites files until there is room, or no file is left to rewrite.
    fn make_room_on_disk(&mut self, bytes: u64, full: SpillFull) -> Result<SpillPlace, SpillFull> {
        let mut last = full;
        while self.rewrite_one(false) {
            match self.space.place(bytes) {
                Ok(place) => return Ok(place),
                Err(full) => last = full,
            }
        }
        Err(last)
    }

    /// Moves one value out of a file that is mostly dead, so that no command waits for the whole file; all
    /// values where files are written whole. False if nothing was moved.
    pub(super) fn rewrite_one(&mut self, is_idle: bool) -> bool {
        if self.to_move.is_empty() {
            let Some(rewrite) = self.space.to_rewrite(is_idle) else { return false };
            self.to_move = rewrite.alive.into();
        }
        // Where files are written whole, new values and moved ones go to different files.
        self.end_file();
        let count = if self.disk.batch_bytes() > 0 { self.to_move.len() } else { self.to_move.len().min(1) };
        let values: Vec<_> = self.to_move.drain(..count).collect();
        let has_moved = self.move_values(&values);
        if let Some(first) = values.first().filter(|_| !has_moved) {
            self.to_move.clear();
            self.space.give_up(first.file);
        }
        self.end_file();
        has_moved
    }

    /// Like [`Self::rewrite_one`], for a whole file, which is deleted.
    fn rewrite_a_file(&mut self) -> bool {
        while self.rewrite_one(false) {
            if self.to_move.is_empty() {
                return true;
            }
        }
        false
    }

    fn move_values(&mut self, values: &[SpillPlace]) -> bool {
        let mut moves: Vec<Move> = Vec::with_capacity(values.len());
        let mut has_places = true;
        for old in values {
            let Some(spilled) = self.by_place.get(old) else { continue };
            match self.space.place_moved(*old) {
                Ok(new) => moves.push((*old, new, id_of(*spilled))),
                Err(_) => has_places = false,
            }
        }
        if !has_places || self.disk.copy(&moves).is_err() {
            moves.iter().for_each(|(_, new, _)| self.give_place_back(*new));
            return false;
        }
        for (old, new, _) in moves {
            if let Some(spilled) = self.by_place.remove(&old) {
                self.by_place.insert(new, spilled);
                self.values.insert(spilled, Where::Disk(new));
            }
            self.release(old);
        }
        true
    }
}

#[cfg(test)]
mod tests;
