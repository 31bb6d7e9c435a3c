//! A slot: the place where an object's outcome appears, shared between the ownership table and every handle
//! that user code holds.
//!
//! Thanks to it, `get` on an object that is there takes no lock: a handle reads its slot. A slot is passive:
//! it never waits and never wakes anyone. The core writes the outcome; handles count themselves in and out.
//!
//! An outcome is written once. When the value is lost, the slot gets a place for the next outcome behind it:
//! holders of the earlier outcome may read on, later readers find the latest. A value in shared memory may
//! move any number of times: its new place is written over the old one ([`Moved`]), of which earlier readers
//! have a copy.

use std::borrow::Cow;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering, fence};

use sooner_wire::message::Outcome;

use moved::Moved;

mod moved;

/// See the module.
#[derive(Debug, Default)]
pub struct Slot {
    first: Version,
    handles: AtomicU32,
    registered: AtomicBool,
    taken: AtomicBool,
    freed: AtomicBool,
    bringing: AtomicU8,
    views: AtomicU32,
    mark: AtomicU32,
}

const ASKED: u8 = 1;
const FAILED: u8 = 2;

/// Where a value is, for its readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// There is no value yet, or it was lost.
    Nowhere,
    /// At another node, and not asked for.
    Elsewhere,
    /// At another node, and being brought here.
    OnItsWay,
    /// At another node, and could not be brought here: the table knows why.
    OutOfReach,
    /// It can be read, or has failed.
    Here,
}

/// An outcome, and what followed it.
#[derive(Debug, Default)]
struct Version {
    outcome: OnceLock<Outcome>,
    later: OnceLock<Box<Later>>,
}

/// What followed an outcome: the value's latest place, and the next outcome if the value was lost.
#[derive(Debug, Default)]
struct Later {
    moved: Moved,
    next: OnceLock<Version>,
}

impl Version {
    fn outcome(&self) -> Option<Cow<'_, Outcome>> {
        let moved = self.later.get().and_then(|later| later.moved.read());
        moved.map(Cow::Owned).or_else(|| self.outcome.get().map(Cow::Borrowed))
    }

    #[inline]
    fn next(&self) -> Option<&Self> {
        self.later.get()?.next.get()
    }

    fn later(&self) -> &Later {
        self.later.get_or_init(Box::default)
    }
}

impl Drop for Version {
    /// A value that was lost many times has as many versions: not one stack frame for each.
    fn drop(&mut self) {
        let mut later = self.later.take();
        while let Some(mut version) = later.and_then(|later| later.next.into_inner()) {
            later = version.later.take();
        }
    }
}

/// A reader that looks up where the value is, or reads it there.
#[derive(Debug)]
pub struct Reading<'a> {
    slot: &'a Slot,
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.slot.drop_view();
    }
}

impl Slot {
    /// A slot that already has its outcome and is in no table yet.
    #[must_use]
    pub fn with_outcome(outcome: Outcome) -> Self {
        let slot = Self::default();
        slot.fill(outcome);
        slot
    }

    /// The outcome, if there is one: borrowed, or a copy where it may be written over.
    #[inline]
    #[must_use]
    pub fn outcome(&self) -> Option<Cow<'_, Outcome>> {
        match self.first.later.get() {
            None => self.first.outcome.get().map(Cow::Borrowed),
            Some(_) => self.later_outcome(),
        }
    }

    /// The outcome, if nothing followed it: nothing needs to be copied.
    #[inline]
    #[must_use]
    pub fn first_outcome(&self) -> Option<&Outcome> {
        if self.first.later.get().is_none() { self.first.outcome.get() } else { None }
    }

    #[cold]
    fn later_outcome(&self) -> Option<Cow<'_, Outcome>> {
        self.latest().outcome()
    }

    /// Looks at the outcome, usually without a copy: most values never move and are not lost, and `get` looks
    /// several times.
    #[inline]
    fn look<R>(&self, look: impl FnOnce(Option<&Outcome>) -> R) -> R {
        match self.first.later.get() {
            None => look(self.first.outcome.get()),
            Some(_) => look(self.later_outcome().as_deref()),
        }
    }

    /// Whether there is an outcome.
    #[inline]
    #[must_use]
    pub fn has_outcome(&self) -> bool {
        self.look(|outcome| outcome.is_some())
    }

    /// Whether this outcome, which was seen here ([`Self::outcome`]), is still the latest.
    #[must_use]
    pub fn is_latest(&self, seen: &Outcome) -> bool {
        match self.outcome() {
            Some(Cow::Borrowed(latest)) => std::ptr::eq(latest, seen),
            Some(Cow::Owned(latest)) => latest == *seen,
            None => false,
        }
    }

    /// Outcomes that were lost: a reader may still be reading there.
    pub fn lost_outcomes(&self) -> impl Iterator<Item = Cow<'_, Outcome>> {
        let mut version = &self.first;
        std::iter::from_fn(move || {
            let lost = version;
            version = lost.next()?;
            lost.outcome()
        })
    }

    /// Writes the outcome. A second outcome is dropped: the first one may have been read.
    pub fn fill(&self, outcome: Outcome) -> bool {
        self.latest().outcome.set(outcome).is_ok()
    }

    /// The value is lost: there is no outcome until the next [`Self::fill`].
    pub fn lose(&self) {
        let latest = self.latest();
        if latest.outcome.get().is_some() {
            let _ = latest.later().next.set(Version::default());
        }
    }

    /// Whether a value was there and is lost: a reader has to ask for the next one.
    #[must_use]
    pub fn was_lost(&self) -> bool {
        self.first.next().is_some()
    }

    /// From now on the value, in shared memory or on a disk, can be read at another such place. Readers that
    /// saw the old place may go on with it; there is an outcome all the time.
    pub fn supersede(&self, outcome: &Outcome) {
        let latest = self.latest();
        if latest.outcome.get().is_some_and(Outcome::is_in_memory) {
            latest.later().moved.write(outcome);
        }
    }

    /// Moves the value to another place ([`Self::supersede`]), unless a view of it is left or about to be
    /// made: a reader in place counts as a view before it looks up the place ([`Self::read`]).
    #[must_use]
    pub fn move_to(&self, outcome: &Outcome) -> bool {
        if self.views() > 0 {
            return false;
        }
        let Some(before) = self.outcome().map(Cow::into_owned) else { return false };
        self.supersede(outcome);
        fence(Ordering::SeqCst);
        if self.views() == 0 {
            return true;
        }
        // A reader came in between, and may have seen either place.
        self.supersede(&before);
        false
    }

    /// Announces a reader that looks up the place now: the value stays there until the guard is dropped.
    #[must_use]
    pub fn read(&self) -> Reading<'_> {
        self.add_view();
        fence(Ordering::SeqCst);
        Reading { slot: self }
    }

    /// Whether there is an outcome and this process can read it: a value in the memory of another node must
    /// be brought here first.
    #[inline]
    #[must_use]
    pub fn is_readable(&self) -> bool {
        self.look(|outcome| !matches!(outcome, None | Some(Outcome::Remote(_))))
    }

    /// Whether reading raises an error: there is no value, or it cannot be brought here.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        let failed = self.look(|outcome| matches!(outcome, Some(Outcome::Failed(_))));
        failed || self.place() == Place::OutOfReach
    }

    /// Where the value is.
    #[inline]
    #[must_use]
    pub fn place(&self) -> Place {
        self.look(|outcome| match outcome {
            None => Place::Nowhere,
            Some(Outcome::Remote(_)) => match self.bringing.load(Ordering::Acquire) {
                ASKED => Place::OnItsWay,
                FAILED => Place::OutOfReach,
                _ => Place::Elsewhere,
            },
            Some(Outcome::Inline(_) | Outcome::Stored(_) | Outcome::Failed(_)) => Place::Here,
        })
    }

    /// Whether the value is on the disk of its node.
    #[must_use]
    pub fn is_on_disk(&self) -> bool {
        matches!(self.outcome().as_deref(), Some(Outcome::Remote(remote)) if remote.location.place().is_disk())
    }

    /// The value is elsewhere, and not asked for (again).
    pub(crate) fn set_elsewhere(&self) {
        self.bringing.store(0, Ordering::Release);
    }

    /// The value was asked for.
    pub(crate) fn set_on_its_way(&self) {
        self.bringing.store(ASKED, Ordering::Release);
    }

    /// The value could not be brought here.
    pub(crate) fn set_out_of_reach(&self) {
        self.bringing.store(FAILED, Ordering::Release);
    }

    #[inline]
    fn latest(&self) -> &Version {
        let mut version = &self.first;
        while let Some(next) = version.next() {
            version = next;
        }
        version
    }

    /// Counts a handle in. The caller holds a handle or the table's lock, or alone knows the slot.
    #[inline]
    pub fn acquire(&self) {
        self.handles.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a handle out. True if it was the last handle of an object in the table, which must now be told.
    #[inline]
    pub fn release(&self) -> bool {
        self.handles.fetch_sub(1, Ordering::AcqRel) == 1 && self.registered.load(Ordering::Acquire)
    }

    /// Whether the value belongs to user code that may change it: the object must not be read any more then.
    pub fn set_taken(&self, taken: bool) {
        self.taken.store(taken, Ordering::Release);
    }

    /// Whether the value was taken.
    #[inline]
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.taken.load(Ordering::Acquire)
    }

    /// The user gave the object up before its references were gone.
    pub fn mark_freed(&self) {
        self.freed.store(true, Ordering::Release);
    }

    /// Whether the user gave the object up.
    #[inline]
    #[must_use]
    pub fn is_freed(&self) -> bool {
        self.freed.load(Ordering::Acquire)
    }

    /// Counts a view of the value in; it also holds a handle.
    pub fn add_view(&self) {
        self.views.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a view out.
    pub fn drop_view(&self) {
        self.views.fetch_sub(1, Ordering::Release);
    }

    /// Views of the value at the moment.
    #[must_use]
    pub fn views(&self) -> u32 {
        self.views.load(Ordering::Acquire)
    }

    /// Marks the slot with the number of a pass over many; false if this pass marked it before. Passes follow
    /// one another, so two plain accesses do; an atomic exchange costs more than all else here.
    #[inline]
    pub fn mark(&self, pass: u32) -> bool {
        let is_new = self.mark.load(Ordering::Relaxed) != pass;
        self.mark.store(pass, Ordering::Relaxed);
        is_new
    }

    /// Handles at the moment.
    #[must_use]
    pub fn handles(&self) -> u32 {
        self.handles.load(Ordering::Acquire)
    }

    /// Whether a table knows the slot.
    #[inline]
    #[must_use]
    pub fn is_registered(&self) -> bool {
        self.registered.load(Ordering::Acquire)
    }

    /// A table knows the slot, or never shall.
    pub fn register(&self) {
        self.registered.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sooner_wire::message::{Location, Remote};
    use sooner_wire::{Blob, NodeId};

    #[test]
    fn the_first_outcome_stays() {
        let slot = Slot::default();
        assert!(slot.fill(Outcome::Inline(Blob::from(&b"1"[..]))));
        assert!(!slot.fill(Outcome::Inline(Blob::from(&b"2"[..]))));
        assert_eq!(slot.outcome().as_deref(), Some(&Outcome::Inline(Blob::from(&b"1"[..]))));
    }

    fn here(offset: u64) -> Outcome {
        Outcome::Stored(Location { offset, length: 8 })
    }

    fn there(offset: u64) -> Outcome {
        let location = Location { offset, length: 8 };
        Outcome::Remote(Box::new(Remote { node: NodeId(1 << 24), location }))
    }

    #[test]
    fn a_value_that_is_read_stays_where_it_is() {
        let slot = Slot::with_outcome(here(64));
        let reading = slot.read();
        assert!(!slot.move_to(&there(128)));
        assert_eq!(slot.outcome().as_deref(), Some(&here(64)));
        drop(reading);
        assert!(slot.move_to(&there(128)));
        assert_eq!(slot.outcome().as_deref(), Some(&there(128)));
        assert!(!Slot::default().move_to(&there(128)), "there is nothing to move");
    }

    #[test]
    fn a_value_that_moves_any_number_of_times_takes_no_more_memory_for_it() {
        let slot = Slot::with_outcome(here(0));
        for number in 1..100_000 {
            let place = if number % 2 == 0 { here(number) } else { there(number) };
            slot.supersede(&place);
            assert_eq!(slot.outcome().as_deref(), Some(&place));
        }
        assert!(slot.first.next().is_none() && slot.lost_outcomes().next().is_none() && !slot.was_lost());
        assert_eq!(size_of::<Later>(), 88, "all of it");
    }

    #[test]
    fn a_small_value_has_no_place_that_it_could_leave() {
        let slot = Slot::with_outcome(Outcome::Inline(Blob::from(&b"1"[..])));
        slot.supersede(&here(64));
        assert_eq!(slot.outcome().as_deref(), Some(&Outcome::Inline(Blob::from(&b"1"[..]))));
    }

    #[test]
    fn a_value_may_be_lost_any_number_of_times() {
        let slot = Slot::with_outcome(here(64));
        // Each version is found from the one before it; looking that often takes long.
        let mut last = &slot.first;
        for _ in 0..1_000_000 {
            last = last
                .later()
                .next
                .get_or_init(|| Version { outcome: OnceLock::from(here(64)), later: OnceLock::new() });
        }
        drop(slot);
    }

    #[test]
    fn after_a_loss_the_next_outcome_counts_and_the_earlier_one_can_still_be_read() {
        let slot = Slot::with_outcome(Outcome::Inline(Blob::from(&b"1"[..])));
        let before = slot.outcome().expect("filled");
        assert!(slot.is_latest(&before));
        slot.lose();
        slot.lose();
        assert!(slot.was_lost() && !Slot::default().was_lost());
        assert!(!slot.has_outcome() && slot.outcome().is_none() && !slot.is_latest(&before));
        assert!(slot.fill(Outcome::Inline(Blob::from(&b"1"[..]))));
        assert!(!slot.is_latest(&before), "it is another one that is equal");
        assert_eq!(*before, Outcome::Inline(Blob::from(&b"1"[..])));
        assert_eq!(slot.lost_outcomes().count(), 1);
    }

    #[test]
    fn a_value_that_was_lost_was_where_it_had_moved() {
        let slot = Slot::with_outcome(here(64));
        slot.supersede(&here(128));
        let seen = slot.outcome().expect("there");
        assert!(slot.is_latest(&seen));
        slot.lose();
        assert!(slot.fill(there(256)) && !slot.is_latest(&seen));
        let lost: Vec<Outcome> = slot.lost_outcomes().map(Cow::into_owned).collect();
        assert_eq!(lost, [here(128)], "nobody reads where it was before");
        slot.supersede(&here(512));
        assert_eq!(slot.outcome().as_deref(), Some(&here(512)));
    }

    #[test]
    fn a_copy_that_was_brought_here_takes_the_place_of_the_other() {
        let slot = Slot::with_outcome(there(64));
        let before = slot.outcome().expect("filled");
        assert_eq!(slot.place(), Place::Elsewhere);
        slot.supersede(&here(128));
        assert_eq!(slot.place(), Place::Here);
        assert_eq!(*before, there(64));
        assert_eq!(size_of::<Slot>(), 64, "one per object");
    }

    #[test]
    fn only_the_last_handle_of_a_registered_slot_reports() {
        let slot = Slot::default();
        slot.acquire();
        assert!(!slot.release());
        slot.register();
        slot.acquire();
        slot.acquire();
        assert!(!slot.release());
        assert!(slot.release());
    }
}
