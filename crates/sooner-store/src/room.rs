//! The memory of a node's store: which blocks are in use, and which of their pages are there.
//!
//! Only this module counts the store's limit: a block takes whole pages of it when allocated, and returns
//! them when freed. Its pages are reserved from the machine when it is allocated, after a look at how much
//! the machine has left: when memory runs out the kernel kills processes, also for `fallocate`, so its answer
//! would come too late. Without enough memory the allocation fails; the holder of a block never meets SIGBUS.
//! The kernel takes 0.1 to 0.4 s for a GiB, so the pages of a large block are reserved in several rounds
//! ([`STORE_RESERVE_BYTES`]), and the caller asks again for each.
//!
//! Large blocks have huge pages if the kernel gives them ([`crate::huge`]), which takes a third of that time;
//! so the rest of a block's last huge page is reserved with it.
//!
//! Pages of freed blocks stay, because warm ones are several times as fast as fresh ones. Pages that were not
//! in use for [`STORE_IDLE_NANOS`] go back to the machine, except [`STORE_WARM_BYTES`], and all of them at
//! once when the machine is short of memory: part by part ([`STORE_RELEASE_BYTES`]), so that the node's loop
//! is not held up.
//!
//! Behind the memory there may be a file ([`FallbackFile`]), for values for which the memory has no room;
//! blocks in the file do not count here.
//!
//! Between the two there may be spare memory, which takes pages only while it holds a value: for values that
//! are read back while the disk is full and nothing can make room for them. It takes one value of any size,
//! or several that together have at most a quarter of the capacity.
//!
//! Invariant RM1: every page of every block is there. It never looks into a block.

use std::sync::Arc;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use sooner_wire::limits::{
    STORE_EXTENT_BYTES, STORE_IDLE_NANOS, STORE_RELEASE_BYTES, STORE_RESERVE_BYTES, STORE_SPARE_BYTES,
    STORE_WARM_BYTES,
};

use crate::fallback::Fallback;
use crate::huge::{HUGE_BYTES, Willing};
use crate::pages::Pages;
use crate::spill::SpillError;
use crate::{Arena, FallbackFile, Mapping};

/// The unit of reservation (bytes).
const PAGE_BYTES: u64 = 4096;
/// Several values in spare memory may together have one part in so many of the capacity.
const SPARE_PART: u64 = 4;

/// Returns how many bytes the machine, or the control group, could still give.
pub type Available = Box<dyn Fn() -> u64 + Send>;

/// Why no block was allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoBlock {
    /// No gap is large enough.
    NoGap,
    /// The machine has no memory for the pages. It had so much left (bytes).
    Shortage(u64),
    /// Some of the pages are there now: the next [`Room::allocate`] of the same size continues from there.
    Reserving,
}

/// How many pages of a range are there after one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Populated {
    All,
    /// As many as one round may add, but not all.
    Part,
    /// The machine refused.
    Refused,
}

/// See the module.
pub struct Room {
    arena: Arena,
    pages: Pages,
    mapping: Arc<Mapping>,
    available: Available,
    /// The most bytes that were in use in this period and in the one before it.
    peaks: [u64; 2],
    /// When this period ends (nanoseconds); `None` if no end is set.
    ends: Option<u64>,
    huge: Willing,
    fallback: Option<Fallback>,
    spare: Option<Arena>,
}

impl std::fmt::Debug for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Room({} of {} bytes, {} there)", self.used(), self.capacity(), self.resident())
    }
}

impl Room {
    /// Room for `capacity` bytes of blocks in this memory.
    #[must_use]
    pub fn new(mapping: Arc<Mapping>, capacity: u64, available: Available) -> Self {
        let arena = Arena::new(Mapping::header_bytes(), capacity);
        Self {
            arena,
            pages: Pages::default(),
            mapping,
            available,
            peaks: [0; 2],
            ends: None,
            huge: Willing::default(),
            fallback: None,
            spare: None,
        }
    }

    /// Adds a file behind the memory, which the mapping must have, too.
    #[must_use]
    pub fn with_fallback(self, file: Option<FallbackFile>) -> Self {
        let start = self.mapping.total_bytes();
        Self { fallback: file.map(|file| Fallback::new(file, start)), ..self }
    }

    /// Adds spare memory: the part of the mapping beyond the capacity.
    #[must_use]
    pub fn with_spare(self) -> Self {
        let start = (Mapping::header_bytes() + self.capacity()).next_multiple_of(PAGE_BYTES);
        let bytes = self.mapping.total_bytes().saturating_sub(start);
        Self { spare: (bytes > 0).then(|| Arena::new(start, bytes)), ..self }
    }

    /// Takes a block of the spare memory. `None` if there is no spare memory, too much of it is in use, or
    /// the machine has no memory.
    pub fn allocate_spare(&mut self, bytes: u64) -> Option<u64> {
        let capacity = self.capacity();
        let rounded = Arena::rounded(bytes);
        let available = (self.available)();
        let spare = self.spare.as_mut()?;
        if spare.used() > 0 && spare.used() + rounded > capacity / SPARE_PART {
            return None;
        }
        if rounded.saturating_add(STORE_SPARE_BYTES) > available {
            return None;
        }
        let offset = spare.allocate(bytes)?;
        if self.fallocate(FallocateFlags::empty(), offset, rounded).is_err() {
            self.free_spare(offset);
            return None;
        }
        Some(offset)
    }

    fn free_spare(&mut self, offset: u64) -> bool {
        let Some(spare) = &mut self.spare else { return false };
        let length = spare.length(offset);
        if !spare.free(offset) {
            return false;
        }
        self.punch(offset, length);
        true
    }

    fn is_spare(&self, offset: u64) -> bool {
        let start = (Mapping::header_bytes() + self.capacity()).next_multiple_of(PAGE_BYTES);
        self.spare.is_some() && offset >= start && offset < self.mapping.total_bytes()
    }

    /// Takes a block and makes all its pages resident.
    ///
    /// # Errors
    /// Why no block was allocated.
    pub fn allocate(&mut self, bytes: u64) -> Result<u64, NoBlock> {
        let offset = self.arena.allocate(bytes).ok_or(NoBlock::NoGap)?;
        let reserved = self.reserve(offset, offset + Arena::rounded(bytes));
        self.peaks[0] = self.peaks[0].max(self.arena.used());
        if let Err(why) = reserved {
            self.arena.free(offset);
            if matches!(why, NoBlock::Shortage(_)) {
                self.release(STORE_RESERVE_BYTES);
            }
            return Err(why);
        }
        Ok(offset)
    }

    /// Takes a block in the file. `None` if there is no file.
    ///
    /// # Errors
    /// Why the disk cannot reserve the block.
    pub fn allocate_in_file(&mut self, bytes: u64) -> Option<Result<u64, SpillError>> {
        Some(self.fallback.as_mut()?.allocate(bytes))
    }

    /// Whether a block is in the file: then freeing it makes no room in memory.
    #[must_use]
    pub fn is_in_file(&self, offset: u64) -> bool {
        self.fallback.as_ref().is_some_and(|fallback| fallback.has(offset))
    }

    /// How many bytes of a block are in memory: 0 if it is in the file.
    #[must_use]
    pub fn length_in_memory(&self, offset: u64) -> u64 {
        if self.is_in_file(offset) { 0 } else { self.length(offset) }
    }

    /// Bytes of blocks in the file.
    #[must_use]
    pub fn used_in_file(&self) -> u64 {
        self.fallback.as_ref().map_or(0, |fallback| fallback.arena().used())
    }

    /// Gives a block back. False if no block begins at this offset.
    pub fn free(&mut self, offset: u64) -> bool {
        if self.is_spare(offset) {
            return self.free_spare(offset);
        }
        match &mut self.fallback {
            Some(fallback) if fallback.has(offset) => fallback.free(offset),
            _ => self.arena.free(offset),
        }
    }

    /// The arena to which an offset belongs.
    fn arena_of(&self, offset: u64) -> &Arena {
        match (&self.fallback, &self.spare) {
            (Some(fallback), _) if fallback.has(offset) => fallback.arena(),
            (_, Some(spare)) if self.is_spare(offset) => spare,
            _ => &self.arena,
        }
    }

    /// See [`Arena::holds`].
    #[must_use]
    pub fn holds(&self, offset: u64, bytes: u64) -> bool {
        self.arena_of(offset).holds(offset, bytes)
    }

    /// See [`Arena::length`].
    #[must_use]
    pub fn length(&self, offset: u64) -> u64 {
        self.arena_of(offset).length(offset)
    }

    /// See [`Arena::used`].
    #[must_use]
    pub fn used(&self) -> u64 {
        self.arena.used()
    }

    /// See [`Arena::capacity`].
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.arena.capacity()
    }

    /// Bytes whose pages are resident.
    #[must_use]
    pub fn resident(&self) -> u64 {
        self.pages.bytes()
    }

    /// When [`Self::attend`] has something to do, given that it is `now` (nanoseconds).
    #[must_use]
    pub fn deadline(&mut self, now: u64) -> Option<u64> {
        if self.pages.bytes() <= self.arena.used().saturating_add(STORE_WARM_BYTES) {
            self.ends = None;
            return None;
        }
        Some(*self.ends.get_or_insert(now.saturating_add(STORE_IDLE_NANOS)))
    }

    /// Returns idle pages to the machine if this period has ended.
    pub fn attend(&mut self, now: u64) {
        if self.ends.is_none_or(|ends| now < ends) {
            return;
        }
        let is_short = (self.available)() < 2 * STORE_SPARE_BYTES;
        let kept = if is_short { self.used() } else { self.peaks[0].max(self.peaks[1]) + STORE_WARM_BYTES };
        let too_much = self.pages.bytes().saturating_sub(kept);
        self.release(too_much.min(STORE_RELEASE_BYTES));
        if too_much > STORE_RELEASE_BYTES {
            // The rest follows in the next rounds of the loop, between which other work has its turn.
            self.ends = Some(now);
        } else {
            self.peaks = [self.arena.used(), self.peaks[0]];
            self.ends = None;
        }
    }

    /// Makes all pages of a range resident, or returns why they are not.
    fn reserve(&mut self, start: u64, end: u64) -> Result<(), NoBlock> {
        if self.pages.missing(start, end).is_empty() {
            return Ok(());
        }
        let ahead = self.ahead(start, end);
        let available = (self.available)();
        let mut populated = Populated::Refused;
        if self.fits(start, end + ahead, available) {
            populated = self.populate(start, end + ahead);
        }
        if populated == Populated::All {
            return Ok(());
        }
        if !self.fits(start, end, available) {
            // Pages that are returned now are available to the machine for the next attempt.
            let gives_back = self.release(STORE_RESERVE_BYTES) > 0;
            return Err(if gives_back { NoBlock::Reserving } else { NoBlock::Shortage(available) });
        }
        if populated == Populated::Refused {
            populated = self.populate(start, end);
        }
        match populated {
            Populated::All => Ok(()),
            Populated::Part => Err(NoBlock::Reserving),
            Populated::Refused => Err(NoBlock::Shortage(available)),
        }
    }

    fn fits(&self, start: u64, end: u64, available: u64) -> bool {
        let missing: u64 = self.pages.missing(start, end).iter().map(|(from, until)| until - from).sum();
        missing.saturating_add(STORE_SPARE_BYTES) <= available
    }

    /// How much to reserve behind a range, if that is free. For small values: more, because they are many and
    /// each look at the machine reads several files. For a large one: the rest of its last huge page.
    fn ahead(&self, start: u64, end: u64) -> u64 {
        let for_others = (start + STORE_EXTENT_BYTES).saturating_sub(end);
        let whole = if end - start < HUGE_BYTES { 0 } else { end.next_multiple_of(HUGE_BYTES) - end };
        for_others.max(whole).min(self.arena.gap_at(end))
    }

    /// Makes pages of a range resident, as many as one round may.
    fn populate(&mut self, start: u64, end: u64) -> Populated {
        let mut left = STORE_RESERVE_BYTES;
        for (from, until) in self.pages.missing(start, end) {
            let mut at = from;
            while at < until {
                if left == 0 {
                    return Populated::Part;
                }
                // In parts: after a signal the kernel begins the call anew.
                let length = up_to_huge_pages(at, STORE_RELEASE_BYTES.min(until - at).min(left));
                if !self.make_huge(at, length) && self.fallocate(FallocateFlags::empty(), at, length).is_err()
                {
                    self.punch(at, length);
                    return Populated::Refused;
                }
                self.pages.add(at, at + length);
                at += length;
                left -= length;
            }
        }
        Populated::All
    }

    /// Makes huge pages for a range of which no page is resident. False if there are none.
    fn make_huge(&mut self, start: u64, length: u64) -> bool {
        if !is_of_huge_pages(start, length) || !self.huge.wants(length) {
            return false;
        }
        for page in (start..start + length).step_by(HUGE_BYTES as usize) {
            // Reserved, not just touched: without memory this returns an error instead of raising a signal.
            if self.fallocate(FallocateFlags::empty(), page, PAGE_BYTES).is_err() {
                return false;
            }
        }
        let answer = self.mapping.collapse(start, length);
        answer.inspect_err(|error| self.huge.refused(*error)).is_ok()
    }

    /// Returns at most `bytes` of the pages of gaps, the last ones first, because blocks are taken from the
    /// front. Returns how many bytes that was.
    fn release(&mut self, bytes: u64) -> u64 {
        let mut left = bytes;
        let gaps: Vec<(u64, u64)> = self.arena.gaps().rev().collect();
        for (offset, length) in gaps {
            for (from, until) in self.pages.present(offset, offset + length).into_iter().rev() {
                if left == 0 {
                    return bytes;
                }
                let from = from.max(until.saturating_sub(left));
                if !self.punch(from, until - from) {
                    return bytes - left;
                }
                self.pages.remove(from, until);
                left -= until - from;
            }
        }
        bytes - left
    }

    fn punch(&self, offset: u64, length: u64) -> bool {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        self.fallocate(flags, offset, length).is_ok()
    }

    fn fallocate(&self, flags: FallocateFlags, offset: u64, length: u64) -> Result<(), Errno> {
        let descriptor = self.mapping.descriptor().ok_or(Errno::BADF)?;
        loop {
            match rustix::fs::fallocate(&*descriptor, flags, offset, length) {
                Err(Errno::INTR) => {}
                done => return done,
            }
        }
    }
}

/// The first part of a range: the part before its first whole huge page, or all its whole huge pages; or the
/// whole range, if it has none.
fn up_to_huge_pages(start: u64, length: u64) -> u64 {
    let first = start.next_multiple_of(HUGE_BYTES);
    let last = (start + length) / HUGE_BYTES * HUGE_BYTES;
    match first {
        _ if last <= first => length,
        _ if first == start => last - first,
        _ => first - start,
    }
}

fn is_of_huge_pages(start: u64, length: u64) -> bool {
    length > 0 && start.is_multiple_of(HUGE_BYTES) && length.is_multiple_of(HUGE_BYTES)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    const MIB: u64 = 1 << 20;

    fn blocks_of(mapping: &Mapping) -> u64 {
        let descriptor = mapping.descriptor().expect("open");
        rustix::fs::fstat(&*descriptor).expect("a memfd").st_blocks.cast_unsigned() * 512
    }

    fn room(capacity: u64) -> (Room, Arc<Mapping>, Arc<AtomicU64>) {
        let mapping = Arc::new(Mapping::create(capacity).expect("memory"));
        let left = Arc::new(AtomicU64::new(1 << 40));
        let told = left.clone();
        let room = Room::new(mapping.clone(), capacity, Box::new(move || told.load(Ordering::Relaxed)));
        (room, mapping, left)
    }

    /// What is reserved for so many bytes at the beginning.
    fn with_last_huge_page(bytes: u64) -> u64 {
        let start = Mapping::header_bytes();
        (start + bytes).next_multiple_of(HUGE_BYTES) - start
    }

    #[test]
    fn spare_memory_takes_pages_only_while_a_value_is_in_it() {
        let mapping = Arc::new(Mapping::create(2 * 16 * MIB).expect("memory"));
        let left = Arc::new(AtomicU64::new(1 << 40));
        let told = left.clone();
        let available = Box::new(move || told.load(Ordering::Relaxed));
        let mut room = Room::new(mapping.clone(), 16 * MIB, available).with_spare();
        let large = room.allocate_spare(12 * MIB).expect("one of any size");
        assert!(!room.is_in_file(large) && large >= Mapping::header_bytes() + 16 * MIB);
        assert_eq!((room.used(), room.length(large), room.length_in_memory(large)), (0, 12 * MIB, 12 * MIB));
        assert!(room.holds(large, 12 * MIB) && blocks_of(&mapping) >= 12 * MIB);
        assert_eq!(room.allocate_spare(MIB), None, "a large one is alone");
        assert!(room.free(large) && !room.free(large));
        assert_eq!(blocks_of(&mapping), 0);
        let small = [(); 4].map(|()| room.allocate_spare(MIB).expect("a quarter together"));
        assert_eq!(room.allocate_spare(MIB), None);
        assert!(room.allocate(16 * MIB).is_ok_and(|block| block < small[0]), "it takes nothing of the rest");
        assert!(small.into_iter().all(|block| room.free(block)));
        left.store(0, Ordering::Relaxed);
        assert_eq!(room.allocate_spare(MIB), None, "the machine has none");
    }

    #[test]
    fn there_need_be_no_spare_memory() {
        let (room, ..) = room(4 * MIB);
        assert_eq!(room.with_spare().allocate_spare(1), None);
    }

    #[test]
    fn pages_are_there_before_they_are_touched_and_stay() {
        let (mut room, mapping, _) = room(64 * MIB);
        assert_eq!(blocks_of(&mapping), 0);
        let large = room.allocate(20 * MIB).expect("room");
        let there = with_last_huge_page(20 * MIB);
        assert_eq!((room.used(), room.resident(), blocks_of(&mapping)), (20 * MIB, there, there));
        let small = room.allocate(there - 20 * MIB + 1).expect("room");
        assert_eq!(room.used(), there + 4096, "whole pages");
        let there = 20 * MIB + STORE_EXTENT_BYTES;
        assert_eq!(room.resident(), there, "the next ones are reserved with it");
        assert!(room.free(large) && room.free(small));
        assert_eq!((room.used(), blocks_of(&mapping)), (0, there));
        assert_eq!(room.allocate(20 * MIB), Ok(large), "warm");
        assert_eq!(blocks_of(&mapping), there);
    }

    #[test]
    fn large_blocks_have_huge_pages_where_the_kernel_gives_them() {
        let (mut room, mapping, _) = room(64 * MIB);
        let block = room.allocate(20 * MIB).expect("room");
        if room.huge != Willing::Yes {
            println!("no huge pages to be had here: {:?}", room.huge);
            return;
        }
        let first = block.next_multiple_of(HUGE_BYTES);
        // What is huge can be asked for once more at no cost; and it is as the kernel shows it.
        mapping.collapse(first, 16 * MIB).expect("they are there");
        let start = mapping.pointer(first, 16 * MIB);
        // SAFETY: the block is ours.
        unsafe { start.write(1) };
        let line =
            format!("{:x}-", mapping.pointer(Mapping::header_bytes(), 1) as u64 / HUGE_BYTES * HUGE_BYTES);
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("procfs");
        let ours = maps.split_once(&line).expect("it is mapped").1;
        let huge =
            ours.lines().find(|line| line.starts_with("ShmemPmdMapped")).expect("a kernel with huge pages");
        assert!(!huge.ends_with(" 0 kB"), "{huge}");
    }

    #[test]
    fn ranges_are_cut_where_huge_pages_begin_and_end() {
        let huge = HUGE_BYTES;
        assert_eq!(up_to_huge_pages(4096, huge), huge, "no whole one in it");
        assert_eq!(up_to_huge_pages(4096, 3 * huge), huge - 4096);
        assert_eq!(up_to_huge_pages(huge, 3 * huge - 4096), 2 * huge);
        assert_eq!(up_to_huge_pages(huge, huge), huge);
        assert_eq!(up_to_huge_pages(2 * huge, 4096), 4096);
        assert_eq!(up_to_huge_pages(2 * huge - 4096, huge + 4096), 4096);
        assert!(is_of_huge_pages(huge, 2 * huge));
        assert!(!is_of_huge_pages(huge, 4096) && !is_of_huge_pages(4096, huge) && !is_of_huge_pages(huge, 0));
    }

    #[test]
    fn the_limit_is_met_to_the_byte() {
        let (mut room, _, _) = room(MIB);
        let first = room.allocate(MIB - 4096).expect("room");
        assert!(room.allocate(4096).is_ok());
        assert_eq!(room.allocate(1), Err(NoBlock::NoGap));
        assert_eq!(room.used(), MIB);
        assert!(room.free(first));
        assert_eq!(room.allocate(MIB - 4095), Err(NoBlock::NoGap));
        assert!(room.allocate(MIB - 4096).is_ok());
    }

    #[test]
    fn a_machine_without_memory_is_an_answer() {
        let (mut room, mapping, left) = room(64 * MIB);
        let first = room.allocate(8 * MIB).expect("room");
        left.store(STORE_SPARE_BYTES + MIB, Ordering::Relaxed);
        assert_eq!(room.allocate(8 * MIB), Err(NoBlock::Shortage(STORE_SPARE_BYTES + MIB)));
        assert_eq!((room.used(), blocks_of(&mapping)), (8 * MIB, 8 * MIB), "nothing is left of the attempt");
        assert!(room.allocate(MIB).is_ok(), "what there is memory for");
        assert!(room.free(first));
        assert_eq!(room.allocate(8 * MIB), Ok(first), "warm pages cost the machine nothing");
        assert!(room.free(first));
        assert!(room.allocate(9 * MIB).is_err());
        assert_eq!(blocks_of(&mapping), MIB, "the machine was given what nobody uses");
    }

    #[test]
    fn what_is_idle_goes_back_but_for_some() {
        let (mut room, mapping, left) = room(1024 * MIB);
        assert_eq!(room.allocate(600 * MIB), Err(NoBlock::Reserving));
        assert_eq!((room.used(), blocks_of(&mapping)), (0, STORE_RESERVE_BYTES), "a part in each round");
        assert_eq!(room.allocate(600 * MIB), Err(NoBlock::Reserving));
        let block = room.allocate(600 * MIB).expect("room");
        assert_eq!(room.deadline(5), None, "all of it is in use");
        assert!(room.free(block));
        let mut now = room.deadline(5).expect("too much");
        assert_eq!(now, 5 + STORE_IDLE_NANOS);
        room.attend(now - 1);
        room.attend(now);
        assert_eq!(room.resident(), with_last_huge_page(600 * MIB), "it was in use in the period before");
        let mut rounds = 0;
        while let Some(next) = room.deadline(now) {
            now = next;
            room.attend(now);
            rounds += 1;
        }
        assert_eq!((room.resident(), blocks_of(&mapping)), (STORE_WARM_BYTES, STORE_WARM_BYTES));
        assert!(rounds >= (600 * MIB - STORE_WARM_BYTES) / STORE_RELEASE_BYTES, "a part at a time");
        assert_eq!(room.allocate(100 * MIB), Ok(block), "the front is kept");

        left.store(STORE_SPARE_BYTES, Ordering::Relaxed);
        assert!(room.free(block));
        assert!(room.allocate(1).is_ok());
        assert!(room.allocate(900 * MIB).is_err());
        assert_eq!(blocks_of(&mapping), 4096, "a machine that is short gets all of it");
    }
}
