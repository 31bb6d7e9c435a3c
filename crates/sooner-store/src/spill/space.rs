//! Which spill files there are, and what is alive in them. No I/O, no clock: [`super::SpillFiles`] does what
//! is decided here.
//!
//! Each directory has one open file, to whose end objects are added in turn until it has its size; then it is
//! closed. A file in which everything is dead is deleted, one that is mostly dead is rewritten: what is alive
//! in it moves to an open file, one file at a time. Both give the disk back what dead objects took.
//!
//! Every file costs a descriptor, so their number is bounded twice: a file may have a fixed part of all that
//! is spilled ([`GROWN_PART`]), so that their number grows with the logarithm of it, and where the most there
//! may be are there, open files just grow.
//!
//! Invariants (checked by the property test):
//! - SP1: records of one file do not overlap, and what was placed is where it was placed until it is
//!   released.
//! - SP2: `used` is the sum of the files' lengths, `live` that of what was placed and not released; `used`
//!   never passes `max_spill_bytes`.
//! - SP3: every file has something alive in it, and there are no more than `files_max`.
//! - SP4: rewriting ends: each file rewritten gives back what was dead in it, and is offered again only when
//!   more has died.

use std::collections::BTreeMap;

use sooner_wire::limits::{SPILL_FILE_BYTES, SPILL_FILES_MAX, SPILL_OBJECT_BYTES_MAX};

use super::SpillPlace;

/// A file may take one part in so many of `files_max` of all that is spilled: with 512 files at most, a 64th.
const GROWN_PART: u64 = 8;

/// What may be dead on a busy disk (bytes), beside as much as is alive: moving values costs those who wait
/// for theirs.
const DEAD_BYTES: u64 = 1 << 30;

/// With `max_spill_bytes` a file takes at most one part in so many of it, that what is kept free for
/// rewriting is small.
const CAPPED_PART: u64 = 32;

/// What a user has set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpillLimits {
    /// Size (bytes) up to which objects are fused into one file.
    pub fuse_bytes: u64,
    /// What may be on the disk (bytes), dead or alive.
    pub max_spill_bytes: Option<u64>,
    /// How many directories there are.
    pub directories: usize,
    /// How many files there may be.
    pub files_max: usize,
}

impl Default for SpillLimits {
    fn default() -> Self {
        Self {
            fuse_bytes: SPILL_FILE_BYTES,
            max_spill_bytes: None,
            directories: 1,
            files_max: SPILL_FILES_MAX,
        }
    }
}

/// No room: `max_spill_bytes` would be passed, or no object is that large.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "no room to spill {asked} bytes: {used} bytes are spilled, {kept} more are kept free for rewriting files, and {max} may be. \
         Raise max_spill_bytes, or hold fewer objects"
)]
pub struct SpillFull {
    /// What the object would take (bytes), header included.
    pub asked: u64,
    /// What is on the disk (bytes).
    pub used: u64,
    /// What is kept free (bytes), so that files can be rewritten.
    pub kept: u64,
    /// What may be on the disk (bytes).
    pub max: u64,
}

/// A file to be rewritten: each of these objects gets another place ([`SpillSpace::place_moved`]), is written
/// there, and is then released here. With the last one the file goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpillRewrite {
    /// Its number.
    pub file: u64,
    /// What is alive in it, in the order of the disk.
    pub alive: Vec<SpillPlace>,
}

#[derive(Debug, Default)]
struct File {
    /// Where the next record begins.
    end: u64,
    /// What its objects take, headers included.
    live: u64,
    /// Length of each object that is alive, by the offset of its record.
    objects: BTreeMap<u64, u64>,
    /// What was alive in it when rewriting it was given up: it is not tried again before that has changed.
    given_up_at: Option<u64>,
}

/// See the module.
#[derive(Debug)]
pub struct SpillSpace {
    limits: SpillLimits,
    files: BTreeMap<u64, File>,
    /// The open file of each directory.
    open: Vec<Option<u64>>,
    /// How many files each directory has had.
    begun: Vec<u64>,
    /// The directory whose turn it is.
    turn: usize,
    used: u64,
    /// What else counts towards `max_spill_bytes`.
    others: u64,
    /// What the disks have room for (bytes).
    disk_room: u64,
    live: u64,
    /// The file that is being rewritten.
    rewriting: Option<u64>,
    /// Whether an object was refused, or could not be written, since one was last placed: then files are
    /// rewritten that are not mostly dead.
    is_short: bool,
}

impl SpillSpace {
    /// Nothing is spilled yet.
    ///
    /// # Panics
    /// Without a directory or a file for each.
    #[must_use]
    pub fn new(limits: SpillLimits) -> Self {
        assert!(
            limits.directories > 0 && limits.files_max >= limits.directories,
            "a file for each directory"
        );
        Self {
            limits,
            files: BTreeMap::new(),
            open: vec![None; limits.directories],
            begun: vec![0; limits.directories],
            turn: 0,
            used: 0,
            others: 0,
            disk_room: u64::MAX,
            live: 0,
            rewriting: None,
            is_short: false,
        }
    }

    /// So many bytes beside these files count towards `max_spill_bytes` from now on.
    pub fn set_others(&mut self, bytes: u64) {
        self.others = bytes;
    }

    /// So many bytes could be written when somebody last looked.
    pub fn set_disk_room(&mut self, bytes: u64) {
        self.disk_room = bytes;
    }

    /// A place for an object of so many bytes, in the directory whose turn it is. It counts as alive from now
    /// on: if it cannot be written, say so with [`Self::failed`].
    ///
    /// # Errors
    /// [`SpillFull`] beyond `max_spill_bytes`. Rewriting may make room: see [`Self::to_rewrite`].
    pub fn place(&mut self, bytes: u64) -> Result<SpillPlace, SpillFull> {
        let placed = self.place_below(bytes, self.kept());
        self.is_short = placed.is_err();
        placed
    }

    /// A further place for an object that is to leave `old`, which stays as it is until it is released. It
    /// may take what is kept free for that.
    ///
    /// # Errors
    /// [`SpillFull`]: give the rewriting up ([`Self::give_up`]).
    pub fn place_moved(&mut self, old: SpillPlace) -> Result<SpillPlace, SpillFull> {
        self.place_below(old.length, 0)
    }

    fn place_below(&mut self, length: u64, kept: u64) -> Result<SpillPlace, SpillFull> {
        if length > SPILL_OBJECT_BYTES_MAX {
            let max = SPILL_OBJECT_BYTES_MAX;
            return Err(SpillFull { asked: length, used: self.used, kept: 0, max });
        }
        let asked = super::record_bytes(length);
        if let Some(max) = self.limits.max_spill_bytes
            && self.used + self.others + asked > max.saturating_sub(kept)
        {
            return Err(SpillFull { asked, used: self.used + self.others, kept, max });
        }
        let directory = self.turn;
        self.turn = (directory + 1) % self.limits.directories;
        let number = self.file_for(directory, asked);
        let file = self.files.entry(number).or_default();
        let place = SpillPlace { file: number, offset: file.end, length };
        file.end += asked;
        file.live += asked;
        file.objects.insert(place.offset, length);
        self.used += asked;
        self.live += asked;
        Ok(place)
    }

    /// The open file of a directory, or a new one.
    fn file_for(&mut self, directory: usize, asked: u64) -> u64 {
        if let Some(number) = self.open[directory] {
            let end = self.files.get(&number).map_or(0, |file| file.end);
            if end + asked <= self.fused_bytes() || !self.has_spare_file() {
                return number;
            }
        }
        let number = self.begun[directory] * self.limits.directories as u64 + directory as u64;
        self.begun[directory] += 1;
        self.open[directory] = Some(number);
        number
    }

    /// Whether there may be one file more: each directory without an open file will want one.
    fn has_spare_file(&self) -> bool {
        let wanting = self.open.iter().filter(|open| open.is_none()).count();
        self.files.len() + wanting < self.limits.files_max
    }

    /// Size that a file is closed at.
    fn fused_bytes(&self) -> u64 {
        let grown = self.used / self.limits.files_max as u64 * GROWN_PART;
        self.fuse_bytes().max(grown)
    }

    fn fuse_bytes(&self) -> u64 {
        let capped = self.limits.max_spill_bytes.map_or(u64::MAX, |max| max / CAPPED_PART);
        // On a small disk there has to be room for what is alive in a file that is rewritten, too.
        let disk = self.disk_room.saturating_add(self.used) / CAPPED_PART;
        self.limits.fuse_bytes.min(capped).min(disk)
    }

    /// What is kept free of `max_spill_bytes`: what can be alive in a file that is rewritten.
    fn kept(&self) -> u64 {
        let Some(max) = self.limits.max_spill_bytes else { return 0 };
        self.fuse_bytes().max(max / self.limits.files_max as u64 * GROWN_PART)
    }

    /// The object there is gone, or has moved. Returns the file if nobody needs it any more: delete it.
    ///
    /// A place that is not in use is passed over.
    #[must_use = "a file that is not deleted takes disk and descriptor for ever"]
    pub fn release(&mut self, place: SpillPlace) -> Option<u64> {
        let file = self.files.get_mut(&place.file)?;
        if file.objects.get(&place.offset) != Some(&place.length) {
            return None;
        }
        file.objects.remove(&place.offset);
        file.live -= place.disk_bytes();
        self.live -= place.disk_bytes();
        if !file.objects.is_empty() {
            return None;
        }
        self.used -= file.end;
        self.files.remove(&place.file);
        if self.rewriting == Some(place.file) {
            self.rewriting = None;
        }
        self.close(place.file);
        Some(place.file)
    }

    /// The object could not be written there. As [`Self::release`]; the next one of this directory begins
    /// another file, and the one placed next lies in the next directory.
    #[must_use = "a file that is not deleted takes disk and descriptor for ever"]
    pub fn failed(&mut self, place: SpillPlace) -> Option<u64> {
        if self.has_spare_file() {
            self.close(place.file);
        }
        // Perhaps the disk is full.
        self.is_short = true;
        self.release(place)
    }

    /// What is placed next begins other files, for those who write files whole. They have no descriptors, so
    /// the bound on the number of files (SP3) does not hold for them.
    pub fn close_open(&mut self) {
        self.open.fill(None);
    }

    fn close(&mut self, file: u64) {
        let directory = self.directory(file);
        if self.open[directory] == Some(file) {
            self.open[directory] = None;
        }
    }

    /// The file from which most is to be had by rewriting it: closed, and half of it dead; less if there was
    /// no room for the object that was placed last. While there is other work (not `is_idle`), only if more
    /// is dead on the disk than alive, and than a GiB; or than there is room for, since what fills the disk
    /// is to make way before it is full. Nothing while another one is being rewritten, which is the case
    /// until all of it has been released or it is given up.
    #[must_use]
    pub fn to_rewrite(&mut self, is_idle: bool) -> Option<SpillRewrite> {
        let borne = self.live.max(DEAD_BYTES).min(self.disk_room).min(self.room());
        let is_due = is_idle || self.is_short || self.used - self.live > borne;
        if !is_due {
            return None;
        }
        let number = self.most_dead()?;
        self.rewriting = Some(number);
        let alive = self.files[&number].objects.iter();
        let alive = alive.map(|(&offset, &length)| SpillPlace { file: number, offset, length }).collect();
        Some(SpillRewrite { file: number, alive })
    }

    /// Whether there would be something to rewrite if there were no other work.
    #[must_use]
    pub fn has_to_rewrite(&self) -> bool {
        self.most_dead().is_some()
    }

    fn most_dead(&self) -> Option<u64> {
        if self.rewriting.is_some() {
            return None;
        }
        let part = if self.is_short { 8 } else { 2 };
        let room = self.room();
        let candidates = self.files.iter().filter(|(number, file)| {
            let dead = file.end - file.live;
            dead >= file.end.div_ceil(part)
                && file.live <= room
                && file.given_up_at != Some(file.live)
                && self.open[self.directory(**number)] != Some(**number)
        });
        candidates.max_by_key(|(_, file)| file.end - file.live).map(|(number, _)| *number)
    }

    /// What `max_spill_bytes` leaves (bytes).
    fn room(&self) -> u64 {
        self.limits.max_spill_bytes.map_or(u64::MAX, |max| max.saturating_sub(self.used + self.others))
    }

    /// The file is not rewritten after all: nothing could be written, or read. What has moved has moved. It
    /// is offered again when more of it is dead.
    pub fn give_up(&mut self, file: u64) {
        if self.rewriting == Some(file) {
            self.rewriting = None;
        }
        if let Some(file) = self.files.get_mut(&file) {
            file.given_up_at = Some(file.live);
        }
    }

    /// In which directory a file lies.
    #[must_use]
    pub fn directory(&self, file: u64) -> usize {
        (file % self.limits.directories as u64) as usize
    }

    /// Bytes on the disk, dead or alive.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Bytes on the disk of objects that are alive, headers included.
    #[must_use]
    pub fn live(&self) -> u64 {
        self.live
    }

    /// How many files there are.
    #[must_use]
    pub fn files(&self) -> usize {
        self.files.len()
    }
}

#[cfg(test)]
mod tests;
