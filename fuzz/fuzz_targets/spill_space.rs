//! Which spill files there are and what is alive in them, in any order of use, beside a model that knows each
//! object.
//!
//! The input is the limits, then steps of four bytes: what is done, and two bytes for a size or an object.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use sooner_store::spill::{BLOCK_BYTES, SpillLimits, SpillPlace, SpillSpace, record_bytes};

fuzz_target!(|bytes: &[u8]| {
    let Some(([directories, spare, room, disk], steps)) = bytes.split_first_chunk::<4>() else { return };
    let directories = 1 + usize::from(directories % 4);
    let limits = SpillLimits {
        fuse_bytes: 1 << 20,
        // In some runs there is no limit.
        max_spill_bytes: (room % 4 != 0).then(|| (1 << 18) * (1 + u64::from(*room))),
        directories,
        files_max: directories + usize::from(spare % 8),
    };
    let mut space = SpillSpace::new(limits);
    let mut model = Model { limits, others: 0, alive: Vec::new(), files: BTreeMap::new() };
    if disk % 2 != 0 {
        space.set_disk_room(u64::from(*disk) << 18);
    }
    for step in steps.chunks_exact(4) {
        let number = u64::from(u16::from_le_bytes([step[1], step[2]]));
        model.step(&mut space, step[0] % 8, number);
        model.check(&space);
    }
    for place in std::mem::take(&mut model.alive) {
        let _ = space.release(place);
    }
    assert_eq!((space.used(), space.live(), space.files()), (0, 0, 0), "nothing is left");
    assert_eq!(space.to_rewrite(true), None);
});

struct Model {
    limits: SpillLimits,
    others: u64,
    alive: Vec<SpillPlace>,
    /// Where each file ends.
    files: BTreeMap<u64, u64>,
}

impl Model {
    fn step(&mut self, space: &mut SpillSpace, what: u8, number: u64) {
        let some = self.alive.get(number as usize % self.alive.len().max(1)).copied();
        match (what, some) {
            (0..=2, _) => match space.place(number * 16) {
                Ok(place) => self.placed(place),
                Err(full) => {
                    let max = self.limits.max_spill_bytes.expect("there is no other reason");
                    assert!(full.asked + full.used + full.kept > max);
                }
            },
            (3, Some(place)) => {
                let deleted = space.release(place);
                self.removed(place, deleted);
                assert_eq!(space.release(place), None, "it is gone");
            }
            (4, Some(place)) => {
                let deleted = space.failed(place);
                self.removed(place, deleted);
            }
            (5, _) => self.rewrite(space, number as usize % 4),
            (6, _) => self.rewrite(space, usize::MAX),
            (7, _) => {
                self.others = number * 16;
                space.set_others(self.others);
            }
            _ => {}
        }
    }

    fn placed(&mut self, place: SpillPlace) {
        let end = self.files.entry(place.file).or_default();
        assert!(place.offset >= *end && place.offset.is_multiple_of(BLOCK_BYTES), "nothing is written over");
        *end = place.offset + record_bytes(place.length);
        self.alive.push(place);
        let used: u64 = self.files.values().sum();
        assert!(
            self.limits.max_spill_bytes.is_none_or(|max| used + self.others <= max),
            "no more than may be"
        );
    }

    fn removed(&mut self, place: SpillPlace, deleted: Option<u64>) {
        self.alive.retain(|other| *other != place);
        let is_last = !self.alive.iter().any(|other| other.file == place.file);
        assert_eq!(deleted, is_last.then_some(place.file), "a file goes with its last object");
        if is_last {
            self.files.remove(&place.file);
        }
    }

    /// Rewrites files until none is offered; gives each up after so many objects.
    fn rewrite(&mut self, space: &mut SpillSpace, until: usize) {
        let mut rounds = 0;
        while let Some(rewrite) = space.to_rewrite(true) {
            assert!(!rewrite.alive.is_empty());
            for (count, old) in rewrite.alive.into_iter().enumerate() {
                assert!(self.alive.contains(&old) && old.file == rewrite.file);
                let Some(new) = (count < until).then(|| space.place_moved(old).ok()).flatten() else {
                    space.give_up(rewrite.file);
                    break;
                };
                self.placed(new);
                assert_ne!(new.file, old.file);
                let deleted = space.release(old);
                self.removed(old, deleted);
            }
            rounds += 1;
            assert!(rounds < 10_000, "rewriting ends");
        }
    }

    fn check(&self, space: &SpillSpace) {
        assert_eq!(space.live(), self.alive.iter().map(|place| record_bytes(place.length)).sum::<u64>());
        assert_eq!(space.used(), self.files.values().sum::<u64>());
        assert_eq!(space.files(), self.files.len());
        assert!(space.files() <= self.limits.files_max);
    }
}
