//! Which spill files there are, and which objects in them are alive. No I/O, no clock: [`super::SpillFiles`]
//! carries out what is decided here.
//!
//! Each directory has one open file. Objects are appended to the open files in turn; a file that has reached
//! its size is closed. A file without live objects is deleted. A file that is mostly dead is rewritten: its
//! live objects move to an open file, one file at a time. Both return the room of dead objects to the disk.
//!
//! Every file takes a descriptor, so their number is bounded twice. A file may take a fixed part of all that
//! is spilled ([`GROWN_PART`]), so the number of files grows with the logarithm of that. And when `files_max`
//! files exist, open files grow beyond that.
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

/// A file may take this many parts in `files_max` of all that is spilled: with 512 files at most, a 64th.
const GROWN_PART: u64 = 8;

/// How many bytes may be dead while there is other work, if fewer are alive: rewriting delays those who wait
/// for their values.
const DEAD_BYTES: u64 = 1 << 30;

/// With `max_spill_bytes`, a file takes at most one part in so many of it, so that little must be kept free
/// for rewriting.
const CAPPED_PART: u64 = 32;

/// What a user has set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpillLimits {
    /// Size (bytes) up to which objects are fused into one file.
    pub fuse_bytes: u64,
    /// The most bytes on the disk, dead or alive.
    pub max_spill_bytes: Option<u64>,
    /// How many directories there are.
    pub directories: usize,
    /// The most files.
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

/// No room: `max_spill_bytes` would be exceeded, or the object is larger than objects may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "no room to spill {asked} bytes: {used} bytes are spilled, {kept} more are kept free for rewriting files, and {max} may be. \
         Raise max_spill_bytes, or hold fewer objects"
)]
pub struct SpillFull {
    /// Bytes that the object would take, header included.
    pub asked: u64,
    /// Bytes on the disk.
    pub used: u64,
    /// Bytes that are kept free so that files can be rewritten.
    pub kept: u64,
    /// The most bytes on the disk.
    pub max: u64,
}

/// A file to be rewritten: each of these objects gets another place ([`SpillSpace::place_moved`]), is written
/// there, and is then released here. The file is deleted after the last one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpillRewrite {
    /// The number of the file.
    pub file: u64,
    /// Its live objects, in the order of the disk.
    pub alive: Vec<SpillPlace>,
}

#[derive(Debug, Default)]
struct File {
    /// Where the next record begins.
    end: u64,
    /// Bytes of its live objects, headers included.
    live: u64,
    /// The length of each live object, by the offset of its record.
    objects: BTreeMap<u64, u64>,
    /// `live` when rewriting the file was given up: it is not tried again before that has changed.
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
    /// Other bytes that count towards `max_spill_bytes`.
    others: u64,
    /// How much room the disks have (bytes).
    disk_room: u64,
    live: u64,
    /// The file that is being rewritten.
    rewriting: Option<u64>,
    /// Whether an object was refused, or could not be written, since the last one was placed: then also files
    /// are rewritten that are not mostly dead.
    is_short: bool,
}

impl SpillSpace {
    /// A space in which nothing is spilled yet.
    ///
    /// # Panics
    /// Without a directory, or with fewer files than directories.
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

    /// Sets how many bytes beside these files count towards `max_spill_bytes`.
    pub fn set_others(&mut self, bytes: u64) {
        self.others = bytes;
    }

    /// Sets how many bytes could be written at the last check of the disk.
    pub fn set_disk_room(&mut self, bytes: u64) {
        self.disk_room = bytes;
    }

    /// A place for an object of `bytes` bytes, in the directory whose turn it is. The object counts as alive
    /// from now on; if it cannot be written, report that with [`Self::failed`].
    ///
    /// # Errors
    /// [`SpillFull`] beyond `max_spill_bytes`. Rewriting may make room: see [`Self::to_rewrite`].
    pub fn place(&mut self, bytes: u64) -> Result<SpillPlace, SpillFull> {
        let placed = self.place_below(bytes, self.kept());
        self.is_short = placed.is_err();
        placed
    }

    /// A second place for an object that leaves `old`, which stays valid until it is released. It may use
    /// what is kept free for rewriting.
    ///
    /// # Errors
    /// [`SpillFull`]: give up the rewriting ([`Self::give_up`]).
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

    /// Whether one more file may be made: each directory without an open file will need one.
    fn has_spare_file(&self) -> bool {
        let wanting = self.open.iter().filter(|open| open.is_none()).count();
        self.files.len() + wanting < self.limits.files_max
    }

    /// The size at which a file is closed.
    fn fused_bytes(&self) -> u64 {
        let grown = self.used / self.limits.files_max as u64 * GROWN_PART;
        self.fuse_bytes().max(grown)
    }

    fn fuse_bytes(&self) -> u64 {
        let capped = self.limits.max_spill_bytes.map_or(u64::MAX, |max| max / CAPPED_PART);
        // Also a small disk must have room for the live objects of a file that is rewritten.
        let disk = self.disk_room.saturating_add(self.used) / CAPPED_PART;
        self.limits.fuse_bytes.min(capped).min(disk)
    }

    /// How much of `max_spill_bytes` is kept free: as much as can be alive in a file that is rewritten.
    fn kept(&self) -> u64 {
        let Some(max) = self.limits.max_spill_bytes else { return 0 };
        self.fuse_bytes().max(max / self.limits.files_max as u64 * GROWN_PART)
    }

    /// The object there is dead, or has moved. Returns its file if no live object is left: delete it.
    ///
    /// A place that is not in use is ignored.
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

    /// The object could not be written. Like [`Self::release`]; besides, the directory's next object begins
    /// another file, and the object placed next goes to the next directory.
    #[must_use = "a file that is not deleted takes disk and descriptor for ever"]
    pub fn failed(&mut self, place: SpillPlace) -> Option<u64> {
        if self.has_spare_file() {
            self.close(place.file);
        }
        // The disk may be full.
        self.is_short = true;
        self.release(place)
    }

    /// Makes the next objects begin new files, for callers that write whole files. Such files take no
    /// descriptors, so the bound on the number of files (SP3) does not hold for them.
    pub fn close_open(&mut self) {
        self.open.fill(None);
    }

    fn close(&mut self, file: u64) {
        let directory = self.directory(file);
        if self.open[directory] == Some(file) {
            self.open[directory] = None;
        }
    }

    /// The closed file with the most dead bytes, if at least half of it is dead; less is enough if there was
    /// no room for the last object. While there is other work (not `is_idle`), a file is returned only if
    /// more bytes are dead on the disk than are alive and than a GiB, or more than there is room for: dead
    /// bytes must go before the disk is full. `None` while another file is being rewritten, that is, until
    /// all its objects were released or it was given up.
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

    /// Whether a file could be rewritten if there were no other work.
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

    /// How many bytes `max_spill_bytes` still allows.
    fn room(&self) -> u64 {
        self.limits.max_spill_bytes.map_or(u64::MAX, |max| max.saturating_sub(self.used + self.others))
    }

    /// Gives up rewriting a file, because objects could not be written or read. Objects that have moved stay
    /// moved. The file is offered again when more of it is dead.
    pub fn give_up(&mut self, file: u64) {
        if self.rewriting == Some(file) {
            self.rewriting = None;
        }
        if let Some(file) = self.files.get_mut(&file) {
            file.given_up_at = Some(file.live);
        }
    }

    /// The directory of a file.
    #[must_use]
    pub fn directory(&self, file: u64) -> usize {
        (file % self.limits.directories as u64) as usize
    }

    /// Bytes on the disk, dead or alive.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Bytes of live objects on the disk, headers included.
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
