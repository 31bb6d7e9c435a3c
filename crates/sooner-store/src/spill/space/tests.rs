//! The bookkeeping, by hand and against a model that remembers everything.

use proptest::prelude::*;

use super::*;
use crate::spill::{BLOCK_BYTES, record_bytes};

const MIB: u64 = 1 << 20;

fn space(fuse_bytes: u64, max_spill_bytes: Option<u64>, directories: usize, files_max: usize) -> SpillSpace {
    SpillSpace::new(SpillLimits { fuse_bytes, max_spill_bytes, directories, files_max })
}

#[test]
fn objects_are_fused_until_the_file_has_its_size() {
    let mut space = space(MIB, None, 1, 512);
    let places: Vec<_> = (0..4).map(|_| space.place(400 << 10).expect("no limit")).collect();
    let record = (400 << 10) + BLOCK_BYTES;
    let expected = [(0, 0), (0, record), (1, 0), (1, record)];
    assert_eq!(places.iter().map(|place| (place.file, place.offset)).collect::<Vec<_>>(), expected);
    assert_eq!((space.used(), space.live(), space.files()), (4 * record, 4 * record, 2));
    let large = space.place(5 * MIB).expect("no limit");
    assert_eq!((large.file, large.offset), (2, 0), "one that is larger than a file has one of its own");
    assert_eq!(space.place(1).expect("no limit").file, 3);
}

#[test]
fn directories_take_turns() {
    let mut space = space(MIB, None, 3, 512);
    let files: Vec<_> = (0..7).map(|_| space.place(600 << 10).expect("no limit").file).collect();
    assert_eq!(files, [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(files.iter().map(|file| space.directory(*file)).collect::<Vec<_>>(), [0, 1, 2, 0, 1, 2, 0]);
}

#[test]
fn a_file_goes_with_its_last_object() {
    let mut space = space(MIB, None, 1, 512);
    let [a, b] = [space.place(1).expect("no limit"), space.place(0).expect("no limit")];
    assert_eq!(space.release(a), None);
    assert_eq!(space.release(a), None, "a second time nothing happens");
    assert_eq!((space.used(), space.live()), (8192 + 4096, 4096));
    assert_eq!(space.release(b), Some(0));
    assert_eq!((space.used(), space.live(), space.files()), (0, 0, 0));
    assert_eq!(space.place(1).expect("no limit").file, 1, "numbers do not come again");
}

#[test]
fn what_is_mostly_dead_is_rewritten() {
    let mut space = space(MIB, None, 1, 512);
    let places: Vec<_> = (0..7).map(|_| space.place(250 << 10).expect("no limit")).collect();
    assert_eq!(places[4].file, 1);
    assert_eq!(space.release(places[0]), None);
    assert_eq!(space.to_rewrite(true), None, "a quarter is dead");
    assert_eq!(space.release(places[2]), None);
    let rewrite = space.to_rewrite(true).expect("half of it is dead");
    assert_eq!(rewrite, SpillRewrite { file: 0, alive: vec![places[1], places[3]] });
    assert_eq!(space.to_rewrite(true), None, "one at a time");
    let moved = space.place_moved(places[1]).expect("no limit");
    assert_eq!((moved.file, moved.length), (1, places[1].length));
    assert_eq!(space.release(places[1]), None);
    space.give_up(0);
    assert_eq!(
        space.to_rewrite(true).map(|rewrite| rewrite.file),
        None,
        "given up, and nothing has died since"
    );
    assert_eq!(space.release(places[3]), Some(0));
}

#[test]
fn one_that_was_given_up_is_offered_again_when_more_is_dead() {
    let mut space = space(MIB, None, 1, 512);
    let places: Vec<_> = (0..5).map(|_| space.place(250 << 10).expect("no limit")).collect();
    for place in &places[..2] {
        assert_eq!(space.release(*place), None);
    }
    assert!(space.to_rewrite(true).is_some());
    space.give_up(0);
    assert_eq!(space.to_rewrite(true), None);
    assert_eq!(space.release(places[2]), None);
    assert_eq!(space.to_rewrite(true).expect("less is alive").alive, [places[3]]);
}

#[test]
fn a_busy_disk_keeps_what_is_dead_until_it_is_more_than_what_lives() {
    let mut space = space(256 * MIB, None, 1, 512);
    // Eight files of four.
    let places: Vec<_> = (0..32).map(|_| space.place(60 * MIB).expect("no limit")).collect();
    let mut release = |number: usize| {
        for four in places.chunks(4) {
            assert_eq!(space.release(four[number]), None);
        }
        (space.to_rewrite(false).is_some(), space.has_to_rewrite())
    };
    assert_eq!(release(0), (false, false), "a quarter is dead");
    assert_eq!(release(1), (false, true), "as much is alive");
    assert_eq!(release(2), (true, false), "more than a GiB is dead, and less is alive");
}

#[test]
fn a_disk_with_less_room_than_is_dead_has_files_rewritten() {
    for max_spill_bytes in [None, Some(8 * MIB)] {
        let mut space = space(MIB, max_spill_bytes, 1, 512);
        let places: Vec<_> = (0..80).map(|_| space.place(50 << 10).expect("there is room")).collect();
        for (_, place) in places.iter().enumerate().filter(|(number, _)| number % 2 == 0) {
            let _ = space.release(*place);
        }
        assert!(space.has_to_rewrite());
        let dead = space.used() - space.live();
        if max_spill_bytes.is_none() {
            space.set_disk_room(dead);
        }
        assert_eq!(space.to_rewrite(false), None, "{dead} bytes are dead, there is room for more");
        if max_spill_bytes.is_none() {
            space.set_disk_room(dead - 1);
        } else {
            space.set_others(8 * MIB - space.used() - dead + 1);
        }
        assert!(space.to_rewrite(false).is_some());
    }
}

#[test]
fn what_could_not_be_written_has_files_rewritten_at_once() {
    let mut space = space(MIB, None, 1, 512);
    let places: Vec<_> = (0..6).map(|_| space.place(250 << 10).expect("no limit")).collect();
    assert_eq!((space.release(places[0]), space.release(places[1])), (None, None));
    assert_eq!(space.to_rewrite(false), None);
    let failed = space.place(MIB).expect("no limit");
    let _ = space.failed(failed);
    assert_eq!(space.to_rewrite(false).expect("the disk may be full").file, 0);
}

#[test]
fn the_open_file_is_not_rewritten() {
    let mut space = space(MIB, None, 1, 512);
    let places: Vec<_> = (0..4).map(|_| space.place(200 << 10).expect("no limit")).collect();
    for place in &places[..3] {
        assert_eq!(space.release(*place), None);
    }
    assert_eq!(space.to_rewrite(true), None);
}

#[test]
fn files_that_are_closed_are_not_added_to_and_can_be_rewritten() {
    let mut space = space(MIB, None, 1, 512);
    let [a, b] = [0; 2].map(|_| space.place(100).expect("no limit"));
    space.close_open();
    let c = space.place(100).expect("no limit");
    assert_eq!([(a.file, a.offset), (b.file, b.offset), (c.file, c.offset)], [(0, 0), (0, 8192), (1, 0)]);
    assert_eq!(space.release(a), None);
    assert_eq!(space.to_rewrite(true), Some(SpillRewrite { file: 0, alive: vec![b] }));
    assert_eq!(space.release(b), Some(0));
}

#[test]
fn the_cap_is_kept_and_sent() {
    let mut space = space(MIB, Some(16 * MIB), 1, 512);
    let mut count = 0u64;
    let full = loop {
        match space.place(MIB) {
            Ok(_) => count += 1,
            Err(full) => break full,
        }
    };
    let record = MIB + BLOCK_BYTES;
    assert_eq!(count, 15);
    assert_eq!(full, SpillFull { asked: record, used: 15 * record, kept: MIB / 2, max: 16 * MIB });
    assert_eq!(space.used(), 15 * record);
    assert!(full.to_string().contains("max_spill_bytes"), "{full}");
    assert!(space.place(SPILL_OBJECT_BYTES_MAX + 1).is_err(), "no buffer for its header");
    assert!(space.place(u64::MAX).is_err());
}

#[test]
fn short_of_room_a_file_is_rewritten_that_is_less_than_half_dead() {
    let mut space = space(MIB, Some(32 * MIB), 1, 512);
    let mut places = Vec::new();
    while let Ok(place) = space.place(196 << 10) {
        places.push(place);
    }
    assert_eq!(space.release(places[0]), None);
    // One in five is dead.
    let rewrite = space.to_rewrite(true).expect("the last object had no room");
    for old in rewrite.alive {
        space.place_moved(old).expect("that is what is kept free");
        let _ = space.release(old);
    }
    assert_eq!(space.live(), space.used());
    space.place(100).expect("room was made");
    assert_eq!(space.release(places[5]), None);
    assert_eq!(space.to_rewrite(true), None, "nobody is short of room now");
}

#[test]
fn what_failed_is_begun_elsewhere() {
    let mut space = space(MIB, None, 2, 512);
    let [a, b, c] = [0; 3].map(|_| space.place(100).expect("no limit"));
    assert_eq!([a.file, b.file, c.file], [0, 1, 0]);
    assert_eq!(space.failed(c), None);
    assert_eq!(space.place(100).expect("no limit").file, 1, "the next directory's turn");
    assert_eq!(space.place(100).expect("no limit").file, 2, "another file, where the old one failed");
    assert_eq!(space.failed(a), Some(0));
    assert_eq!(space.used(), 3 * record_bytes(100));
}

#[test]
fn files_grow_with_what_is_spilled() {
    let mut space = space(100 * MIB, None, 2, 512);
    let mut files = Vec::new();
    for limit in [MIB << 10, MIB << 20, MIB << 24] {
        while space.used() < limit {
            space.place(40 * MIB).expect("no limit");
        }
        files.push(space.files());
    }
    assert_eq!(
        files,
        [14, 418, 512],
        "files of 100 MiB for 1 GiB; larger ones for 1 TiB; no more after that"
    );
}

/// What a caller does in any order.
#[derive(Debug, Clone)]
enum Step {
    Place(u64),
    Release(usize),
    Fail(usize),
    Rewrite { until: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => prop_oneof![0u64..20_000, 0u64..400_000].prop_map(Step::Place),
        4 => any::<usize>().prop_map(Step::Release),
        1 => any::<usize>().prop_map(Step::Fail),
        1 => prop_oneof![0usize..3, Just(usize::MAX)].prop_map(|until| Step::Rewrite { until }),
    ]
}

/// Everything that is alive, and every file that was not deleted with its length.
#[derive(Default)]
struct Model {
    alive: Vec<SpillPlace>,
    files: BTreeMap<u64, u64>,
}

impl Model {
    fn placed(&mut self, place: SpillPlace) {
        let end = self.files.entry(place.file).or_default();
        assert!(place.offset >= *end, "SP1: nothing is written over, dead or alive");
        assert!(place.offset.is_multiple_of(BLOCK_BYTES));
        *end = place.offset + record_bytes(place.length);
        self.alive.push(place);
    }

    fn removed(&mut self, place: SpillPlace, deleted: Option<u64>) {
        self.alive.retain(|other| *other != place);
        let is_last = !self.alive.iter().any(|other| other.file == place.file);
        assert_eq!(deleted, is_last.then_some(place.file), "SP3: a file goes with its last object");
        if is_last {
            self.files.remove(&place.file);
        }
    }

    fn check(&self, space: &SpillSpace) {
        let limits = &space.limits;
        assert_eq!(space.live(), self.alive.iter().map(|place| record_bytes(place.length)).sum::<u64>());
        assert_eq!(space.used(), self.files.values().sum::<u64>());
        assert_eq!(space.files(), self.files.len());
        assert!(space.files() <= limits.files_max, "SP3");
        assert!(limits.max_spill_bytes.is_none_or(|max| space.used() <= max), "SP2");
    }
}

proptest! {
    #[test]
    fn any_order_of_use_agrees_with_the_model(
        steps in proptest::collection::vec(step(), 0..300),
        directories in 1usize..4,
        spare in 0usize..6,
        max_spill_bytes in prop_oneof![Just(None), (1_000_000u64..20_000_000).prop_map(Some)],
    ) {
        let mut space = space(1_000_000, max_spill_bytes, directories, directories + spare);
        let mut model = Model::default();
        for step in steps {
            match step {
                Step::Place(bytes) => match space.place(bytes) {
                    Ok(place) => model.placed(place),
                    Err(full) => {
                        let max = max_spill_bytes.expect("no other reason");
                        prop_assert!(full.asked + full.used + full.kept > max);
                    }
                },
                Step::Release(which) | Step::Fail(which) if model.alive.is_empty() => { let _ = which; }
                Step::Release(which) => {
                    let place = model.alive[which % model.alive.len()];
                    let deleted = space.release(place);
                    model.removed(place, deleted);
                }
                Step::Fail(which) => {
                    let place = model.alive[which % model.alive.len()];
                    let deleted = space.failed(place);
                    model.removed(place, deleted);
                }
                Step::Rewrite { until } => rewrite_all(&mut space, &mut model, until),
            }
            model.check(&space);
        }
        // SP4, with nobody who gives up: afterwards no closed file is half dead.
        rewrite_all(&mut space, &mut model, usize::MAX);
        for place in std::mem::take(&mut model.alive) {
            let _ = space.release(place);
        }
        prop_assert_eq!((space.used(), space.live(), space.files()), (0, 0, 0));
    }
}

/// Rewrites files until none is offered; gives each up after so many objects.
fn rewrite_all(space: &mut SpillSpace, model: &mut Model, until: usize) {
    let mut rounds = 0;
    while let Some(rewrite) = space.to_rewrite(true) {
        let dead = space.used() - space.live();
        assert!(!rewrite.alive.is_empty());
        let mut is_done = true;
        for (count, old) in rewrite.alive.into_iter().enumerate() {
            assert!(model.alive.contains(&old) && old.file == rewrite.file);
            let Some(new) = (count < until).then(|| space.place_moved(old).ok()).flatten() else {
                space.give_up(rewrite.file);
                is_done = false;
                break;
            };
            model.placed(new);
            assert_ne!(new.file, old.file);
            let deleted = space.release(old);
            model.removed(old, deleted);
            model.check(space);
        }
        if is_done {
            assert!(space.used() - space.live() < dead, "SP4: what was dead is given back");
        }
        rounds += 1;
        assert!(rounds < 1000, "SP4: rewriting ends");
    }
}
