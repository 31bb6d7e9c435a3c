//! A slot: the place where an object's outcome appears, shared between the ownership table and every handle that user
//! code holds.
//!
//! It exists so that `get` on an object that is there takes no lock: a handle reads its slot. It is passive: it
//! never waits and never wakes anyone. The core writes the outcome; handles count themselves in and out.
//!
//! An outcome is written once. When the value is lost, a place for the next outcome stands behind it: who holds the
//! earlier one may go on reading it, who looks again finds the latest.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering, fence};

use weft_wire::message::{Outcome, is_spilled};

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

/// Where a value is, for who wants to read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// There is none yet, or it was lost.
    Nowhere,
    /// In the memory of another node; nobody has asked for it.
    Elsewhere,
    /// There, and it is being brought.
    OnItsWay,
    /// There, and it could not be brought: the table knows why.
    OutOfReach,
    /// It can be read, or has failed.
    Here,
}

/// An outcome, and what came after it was lost.
#[derive(Debug, Default)]
struct Version {
    outcome: OnceLock<Outcome>,
    next: OnceLock<Box<Version>>,
}

impl Drop for Version {
    /// A value that went to disk and back many times has as many versions: not one stack frame for each.
    fn drop(&mut self) {
        let mut next = self.next.take();
        while let Some(mut version) = next {
            next = version.next.take();
        }
    }
}

/// Somebody looks where the value is, or reads it there.
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
    /// A slot that already has its outcome and is known to no table yet.
    #[must_use]
    pub fn with_outcome(outcome: Outcome) -> Self {
        let slot = Self::default();
        slot.fill(outcome);
        slot
    }

    /// The outcome, if there is one.
    #[inline]
    #[must_use]
    pub fn outcome(&self) -> Option<&Outcome> {
        self.latest().outcome.get()
    }

    /// Outcomes that were lost: somebody may still be reading there.
    pub fn lost_outcomes(&self) -> impl Iterator<Item = &Outcome> {
        let mut version = &self.first;
        std::iter::from_fn(move || {
            let lost = version;
            version = lost.next.get()?;
            lost.outcome.get()
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
            let _ = latest.next.set(Box::default());
        }
    }

    /// Whether a value was there and is lost: who waits for the next one has to say so.
    #[must_use]
    pub fn was_lost(&self) -> bool {
        self.first.next.get().is_some()
    }

    /// The value can be read in another place from now on, which is its next version. Who holds the version before may go
    /// on with it; there is a version all the time.
    pub fn supersede(&self, outcome: Outcome) {
        let latest = self.latest();
        if latest.outcome.get().is_some() {
            let next = Version { outcome: OnceLock::from(outcome), next: OnceLock::new() };
            let _ = latest.next.set(Box::new(next));
        }
    }

    /// The value goes to another place, which is its next version, unless a view of it is left or somebody is about to make one:
    /// who wants to read in place counts as a view before it looks where that is ([`Self::read`]).
    #[must_use]
    pub fn move_to(&self, outcome: Outcome) -> bool {
        if self.views() > 0 {
            return false;
        }
        let Some(before) = self.outcome().cloned() else { return false };
        self.supersede(outcome);
        fence(Ordering::SeqCst);
        if self.views() == 0 {
            return true;
        }
        // Somebody came in between, and may have seen either.
        self.supersede(before);
        false
    }

    /// Where to read the value is looked up now: it stays there until the guard goes.
    #[must_use]
    pub fn read(&self) -> Reading<'_> {
        self.add_view();
        fence(Ordering::SeqCst);
        Reading { slot: self }
    }

    /// Whether there is an outcome, and this process can read it: a value in the memory of another node must be brought
    /// first.
    #[inline]
    #[must_use]
    pub fn is_readable(&self) -> bool {
        !matches!(self.outcome(), None | Some(Outcome::Remote(_)))
    }

    /// Where the value is.
    #[inline]
    #[must_use]
    pub fn place(&self) -> Place {
        match self.outcome() {
            None => Place::Nowhere,
            Some(Outcome::Remote(_)) => match self.bringing.load(Ordering::Acquire) {
                ASKED => Place::OnItsWay,
                FAILED => Place::OutOfReach,
                _ => Place::Elsewhere,
            },
            Some(Outcome::Inline(_) | Outcome::Stored(_) | Outcome::Failed(_)) => Place::Here,
        }
    }

    /// Whether the value is on the disk of its node.
    #[must_use]
    pub fn is_on_disk(&self) -> bool {
        matches!(self.outcome(), Some(Outcome::Remote(remote)) if is_spilled(remote.location.offset))
    }

    /// The value is elsewhere, and nobody has asked for it (again).
    pub(crate) fn set_elsewhere(&self) {
        self.bringing.store(0, Ordering::Release);
    }

    /// It was asked for.
    pub(crate) fn set_on_its_way(&self) {
        self.bringing.store(ASKED, Ordering::Release);
    }

    /// It could not be brought here.
    pub(crate) fn set_out_of_reach(&self) {
        self.bringing.store(FAILED, Ordering::Release);
    }

    #[inline]
    fn latest(&self) -> &Version {
        let mut version = &self.first;
        while let Some(next) = version.next.get() {
            version = next;
        }
        version
    }

    /// Counts a handle in. The caller holds a handle, the table's lock, or is the only one who knows the slot.
    #[inline]
    pub fn acquire(&self) {
        self.handles.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a handle out; true if it was the last one of an object in the table, which must now hear of it.
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

    /// Marks the slot with the number of a pass over many; false if this pass marked it before. Passes come one after
    /// the other, so two plain accesses do; an atomic exchange costs more than all else here.
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

    pub(crate) fn register(&self) {
        self.registered.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_wire::message::{Location, Remote};
    use weft_wire::{Blob, NodeId};

    #[test]
    fn the_first_outcome_stays() {
        let slot = Slot::default();
        assert!(slot.fill(Outcome::Inline(Blob::from(&b"1"[..]))));
        assert!(!slot.fill(Outcome::Inline(Blob::from(&b"2"[..]))));
        assert_eq!(slot.outcome(), Some(&Outcome::Inline(Blob::from(&b"1"[..]))));
    }

    #[test]
    fn a_value_that_is_read_stays_where_it_is() {
        let here = || Outcome::Stored(Location { offset: 64, length: 8 });
        let there = || {
            let location = Location { offset: 128, length: 8 };
            Outcome::Remote(Box::new(Remote { node: NodeId(1 << 24), location }))
        };
        let slot = Slot::with_outcome(here());
        let reading = slot.read();
        assert!(!slot.move_to(there()));
        assert_eq!(slot.outcome(), Some(&here()));
        drop(reading);
        assert!(slot.move_to(there()));
        assert_eq!(slot.outcome(), Some(&there()));
        assert!(!Slot::default().move_to(there()), "there is nothing to move");
    }

    #[test]
    fn a_value_may_move_any_number_of_times() {
        let here = || Outcome::Stored(Location { offset: 64, length: 8 });
        let slot = Slot::with_outcome(here());
        // Each version is found from the one before it; looking that often takes long.
        let mut last = &slot.first;
        for _ in 0..1_000_000 {
            let next = Version { outcome: OnceLock::from(here()), next: OnceLock::new() };
            last = last.next.get_or_init(|| Box::new(next));
        }
        drop(slot);
    }

    #[test]
    fn after_a_loss_the_next_outcome_counts_and_the_earlier_one_can_still_be_read() {
        let slot = Slot::with_outcome(Outcome::Inline(Blob::from(&b"1"[..])));
        let before = slot.outcome().expect("filled");
        slot.lose();
        slot.lose();
        assert!(slot.was_lost() && !Slot::default().was_lost());
        assert_eq!(slot.outcome(), None);
        assert!(slot.fill(Outcome::Inline(Blob::from(&b"2"[..]))));
        assert_eq!(before, &Outcome::Inline(Blob::from(&b"1"[..])));
        assert_eq!(slot.outcome(), Some(&Outcome::Inline(Blob::from(&b"2"[..]))));
    }

    #[test]
    fn a_copy_that_was_brought_here_is_the_next_version() {
        let remote = Remote { node: NodeId(1 << 24), location: Location { offset: 64, length: 5 } };
        let slot = Slot::with_outcome(Outcome::Remote(Box::new(remote)));
        let before = slot.outcome().expect("filled");
        assert_eq!(slot.place(), Place::Elsewhere);
        slot.supersede(Outcome::Stored(Location { offset: 128, length: 5 }));
        assert_eq!(slot.place(), Place::Here);
        assert_eq!(before, &Outcome::Remote(Box::new(remote)));
        assert_eq!(slot.lost_outcomes().count(), 1);
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
