//! Records on real files: whole, in ranges, moved, from any memory; cut and changed at every place that
//! matters.
//!
//! Each test runs on a file system as it is and once more through the page cache, as where direct I/O is not
//! to be had.

use std::num::NonZeroU64;
use std::os::fd::AsFd;

use rustix::fs::OFlags;

use super::*;
use crate::spill::{Damage, SpillLimits, SpillSpace};

const ID: [u8; OBJECT_ID_BYTES] = *b"an object of a test.";

/// A directory of the build's own disk, gone with the test.
struct Here {
    path: PathBuf,
}

impl Here {
    fn new(name: &str) -> Self {
        let parent = std::env::current_exe().expect("a test").parent().expect("a directory").to_owned();
        let path = parent.join(format!("spill-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).expect("a directory");
        Self { path }
    }

    fn files(&self, is_plain: bool) -> SpillFiles {
        let mut files = SpillFiles::open(std::slice::from_ref(&self.path)).expect("a directory");
        if is_plain {
            files.directories[0].make_plain();
        }
        files
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        std::fs::remove_dir(&self.path).expect("nothing is left in it");
    }
}

/// Both ways of writing.
fn both_ways(name: &str, test: impl Fn(&SpillFiles)) {
    let here = Here::new(name);
    for is_plain in [false, true] {
        test(&here.files(is_plain));
    }
}

fn bytes(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|at| ((at ^ (at >> 11)).wrapping_mul(31) + seed) as u8).collect()
}

fn place(offset: u64, length: usize) -> SpillPlace {
    SpillPlace { file: 0, offset, length: length as u64 }
}

/// The descriptor of a file, without direct I/O: to damage it.
fn reopened(files: &SpillFiles, file: u64) -> OwnedFd {
    use std::os::fd::AsRawFd;
    let slot = files.files.lock().get(&file).cloned().expect("begun");
    let descriptor = slot.lock().clone().expect("made");
    let path = format!("/proc/self/fd/{}", descriptor.as_fd().as_raw_fd());
    rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, rustix::fs::Mode::empty()).expect("our own")
}

fn flip(file: &OwnedFd, at: u64, bit: u8) {
    let mut byte = [0];
    assert_eq!(rustix::io::pread(file, &mut byte, at), Ok(1));
    assert_eq!(rustix::io::pwrite(file, &[byte[0] ^ (1 << bit)], at), Ok(1));
    settle(file);
}

/// What goes past the page cache is not to meet older pages.
fn settle(file: &OwnedFd) {
    rustix::fs::fdatasync(file).expect("room");
    rustix::fs::fadvise(file, 0, None::<NonZeroU64>, rustix::fs::Advice::DontNeed).expect("advice");
}

fn damage(result: Result<(), SpillError>) -> Damage {
    match result {
        Err(SpillError::Corrupt { damage, .. }) => damage,
        other => panic!("expected damage, found {other:?}"),
    }
}

#[test]
fn what_is_written_comes_back_whole_and_in_ranges() {
    both_ways("ranges", |files| {
        let mut space = SpillSpace::new(SpillLimits::default());
        let lengths =
            [0, 1, 4096, CHUNK - 1, CHUNK, CHUNK + 1, PIECE_BYTES, PIECE_BYTES + 4097, 9 * CHUNK + 5];
        let objects: Vec<_> = lengths.iter().map(|&length| bytes(length, length)).collect();
        let places: Vec<_> =
            objects.iter().map(|object| space.place(object.len() as u64).expect("room")).collect();
        for (object, place) in objects.iter().zip(&places) {
            files.write(*place, &ID, object).expect("room");
        }
        for (object, place) in objects.iter().zip(&places) {
            let length = object.len();
            let edges = [0, 1, 4096, CHUNK - 1, CHUNK, CHUNK + 4096, PIECE_BYTES, length / 2, length];
            for from in edges.into_iter().filter(|from| *from <= length) {
                for to in edges.into_iter().chain([length]).filter(|to| (from..=length).contains(to)) {
                    // Once where memory is as direct I/O wants it, once where it is not.
                    for shift in [0, 1] {
                        let mut memory = vec![9; to - from + 2 * BLOCK];
                        let start = memory.as_ptr().align_offset(BLOCK) + from % BLOCK + shift;
                        let into = &mut memory[start..][..to - from];
                        files.read(*place, &ID, from as u64, into).expect("whole");
                        assert!(into == &object[from..to], "{from}..{to} of {length}");
                    }
                }
            }
        }
    });
}

#[test]
fn objects_are_written_from_any_memory() {
    both_ways("memory", |files| {
        let object = bytes(33 * CHUNK + 77, 5);
        for shift in [0, 1, 64] {
            let mut memory = vec![0; object.len() + 2 * BLOCK];
            let start = memory.as_ptr().align_offset(BLOCK) + shift;
            memory[start..][..object.len()].copy_from_slice(&object);
            let place = place(0, object.len());
            files.write(place, &ID, &memory[start..][..object.len()]).expect("room");
            let mut back = vec![0; object.len()];
            files.read(place, &ID, 0, &mut back).expect("whole");
            assert!(back == object);
        }
    });
}

#[test]
fn a_batch_is_written_whatever_is_in_it() {
    both_ways("batch", |files| {
        let mut space = SpillSpace::new(SpillLimits { directories: 1, ..SpillLimits::default() });
        // From memory that is aligned and memory that is not, some together and some alone, with a hole
        // between.
        let lengths = [0, 5000, 4096, CHUNK, 100_000, 17 << 20, 300, 8192, 6 << 20, 1, 10 << 20, 4095];
        let mut memory: Vec<_> = lengths.iter().map(|length| vec![0; length + 2 * BLOCK]).collect();
        let mut objects = Vec::new();
        for (number, (memory, length)) in memory.iter_mut().zip(lengths).enumerate() {
            let start = memory.as_ptr().align_offset(BLOCK) + usize::from(number % 5 == 4);
            let object = &mut memory[start..][..length];
            object.copy_from_slice(&bytes(length, number));
            if number == 7 {
                let _ = space.place(100).expect("no limit");
            }
            let place = space.place(length as u64).expect("no limit");
            objects.push(SpillObject { place, id: &ID, bytes: object });
        }
        files.write_batch(&objects).expect("room");
        for object in &objects {
            let mut back = vec![0; object.bytes.len()];
            files.read(object.place, &ID, 0, &mut back).expect("whole");
            assert!(back == object.bytes);
        }
        let many = bytes(PIECES_MAX * 3 * 100, 1);
        let many: Vec<_> = many.chunks(100).collect();
        let many: Vec<_> = many
            .iter()
            .map(|bytes| SpillObject { place: space.place(100).expect("no limit"), id: &ID, bytes })
            .collect();
        files.write_batch(&many).expect("room");
        for object in &many {
            let mut back = [0; 100];
            files.read(object.place, &ID, 0, &mut back).expect("whole");
            assert_eq!(back, object.bytes);
        }
    });
}

#[test]
fn what_is_moved_is_the_same() {
    both_ways("moved", |files| {
        for length in [0, 100, CHUNK + 3, PIECE_BYTES, 33 * CHUNK + 4095] {
            let object = bytes(length, 3);
            let (old, new) =
                (place(8192, length), SpillPlace { file: 7, offset: 4096, length: length as u64 });
            files.write(old, &ID, &object).expect("room");
            files.copy(old, new, &ID).expect("room");
            files.delete(old.file);
            let mut back = vec![0; length];
            files.read(new, &ID, 0, &mut back).expect("whole");
            assert!(back == object, "{length}");
            assert_eq!(files.read(old, &ID, 0, &mut back), Err(SpillError::NoFile { place: old }));
            files.delete(new.file);
        }
    });
}

#[test]
fn what_is_damaged_is_not_moved() {
    both_ways("not-moved", |files| {
        let object = bytes(2 * CHUNK, 3);
        let (old, new) = (place(0, object.len()), SpillPlace { file: 1, ..place(0, object.len()) });
        files.write(old, &ID, &object).expect("room");
        flip(&reopened(files, 0), 4096 + CHUNK_BYTES + 5, 0);
        assert_eq!(damage(files.copy(old, new, &ID)), Damage::Chunk { number: 1 });
        assert!(matches!(damage(files.read(new, &ID, 0, &mut [0])), Damage::NoHeader | Damage::Cut { .. }));
    });
}

#[test]
fn a_file_cut_anywhere_gives_the_object_or_says_so() {
    both_ways("cut", |files| {
        for length in [5000, 2 * CHUNK + 5000] {
            let object = bytes(length, 1);
            let place = place(4096, length);
            let begin = place.offset + 4096;
            let end = begin + length as u64;
            let edges = [0, 4096, 4097, 4096 + 64, begin - 1, begin, begin + 1, begin + 4096, end - 1];
            let edges = edges.into_iter().chain([begin + CHUNK_BYTES, begin + 2 * CHUNK_BYTES - 1]);
            for cut in edges.chain([end, end + 1]) {
                files.write(place, &ID, &object).expect("room");
                if cut < end {
                    let file = reopened(files, 0);
                    rustix::fs::ftruncate(&file, cut).expect("our own");
                    settle(&file);
                } else {
                    // What is cut off then is padding.
                    rustix::fs::ftruncate(reopened(files, 0), cut).expect("our own");
                }
                let mut back = vec![0; length];
                match files.read(place, &ID, 0, &mut back) {
                    Ok(()) => assert!(cut >= end && back == object, "cut at {cut}"),
                    Err(SpillError::Corrupt { damage: Damage::Cut { found, expected }, .. }) => {
                        assert!(cut < end && found < expected, "cut at {cut}");
                    }
                    Err(other) => panic!("cut at {cut}: {other}"),
                }
                // What lies before the cut is still good: here the first byte, in the first chunk.
                let first = files.read(place, &ID, 0, &mut back[..1]);
                let needed = begin + (length as u64).min(CHUNK_BYTES);
                assert_eq!(first.is_ok(), cut >= needed, "cut at {cut}");
                files.delete(0);
            }
        }
    });
}

#[test]
fn every_flipped_bit_is_found_by_those_who_read_it_and_by_nobody_else() {
    both_ways("flipped", |files| {
        let length = 2 * CHUNK + 5000;
        let (object, place) = (bytes(length, 2), place(4096, length));
        files.write(place, &ID, &object).expect("room");
        let file = reopened(files, 0);
        let begin = place.offset + 4096;
        let chunks: [std::ops::Range<usize>; 3] = [0..CHUNK, CHUNK..2 * CHUNK, 2 * CHUNK..length];
        for (number, range) in chunks.iter().enumerate() {
            for at in [range.start, range.start + 1234, range.end - 1] {
                let bit = (at % 8) as u8;
                flip(&file, begin + at as u64, bit);
                let mut back = vec![0; length];
                assert_eq!(
                    damage(files.read(place, &ID, 0, &mut back)),
                    Damage::Chunk { number: number as u64 }
                );
                for (other, range) in chunks.iter().enumerate() {
                    let read = files.read(place, &ID, range.start as u64, &mut back[range.clone()]);
                    assert_eq!(read.is_ok(), other != number);
                    assert!(read.is_err() || back[range.clone()] == object[range.clone()]);
                }
                flip(&file, begin + at as u64, bit);
            }
        }
        // All of the header, padding included.
        for at in (0..4096).step_by(7).chain([0, 8, 12, 4095]) {
            flip(&file, place.offset + at, (at % 8) as u8);
            damage(files.read(place, &ID, 0, &mut [0]));
            flip(&file, place.offset + at, (at % 8) as u8);
        }
        // The padding behind it is nobody's.
        flip(&file, begin + length as u64, 0);
        let mut back = vec![0; length];
        files.read(place, &ID, 0, &mut back).expect("whole");
        assert!(back == object);
    });
}

#[test]
fn one_object_is_not_taken_for_another() {
    both_ways("another", |files| {
        let object = bytes(10_000, 1);
        files.write(place(0, 10_000), &ID, &object).expect("room");
        let mut back = vec![0; 10_000];
        let other = [1; OBJECT_ID_BYTES];
        assert_eq!(damage(files.read(place(0, 10_000), &other, 0, &mut back)), Damage::OtherObject);
        assert_eq!(damage(files.read(place(0, 9_999), &ID, 0, &mut back[1..])), Damage::OtherObject);
        assert_eq!(damage(files.read(place(4096, 10_000), &ID, 0, &mut back)), Damage::NoHeader);
        // One that was written to the wrong place.
        let file = reopened(files, 0);
        let mut record = vec![0; 4 * BLOCK];
        assert_eq!(rustix::io::pread(&file, &mut record, 0), Ok(record.len()));
        assert_eq!(rustix::io::pwrite(&file, &record, 16_384), Ok(record.len()));
        settle(&file);
        assert_eq!(damage(files.read(place(16_384, 10_000), &ID, 0, &mut back)), Damage::OtherObject);
    });
}

#[test]
fn a_write_that_ended_early_leaves_nothing_to_be_read() {
    both_ways("early", |files| {
        let length = 9 * CHUNK;
        let place = place(0, length);
        // As if the process had been stopped before the header: all else is there.
        files.write(place, &ID, &bytes(length, 1)).expect("room");
        let file = reopened(files, 0);
        assert_eq!(rustix::io::pwrite(&file, &[0; BLOCK], 0), Ok(BLOCK));
        settle(&file);
        assert_eq!(damage(files.read(place, &ID, 0, &mut [0])), Damage::NoHeader);
    });
}

#[test]
fn what_is_not_of_the_object_is_refused() {
    both_ways("refused", |files| {
        let at = place(0, 10);
        files.write(at, &ID, &[1; 10]).expect("room");
        assert!(matches!(files.write(at, &ID, &[1; 9]), Err(SpillError::OutOfRange { bytes: 9, .. })));
        for (from, length) in [(0, 11), (10, 1), (11, 0), (u64::MAX, 1)] {
            let read = files.read(at, &ID, from, &mut vec![0; length]);
            assert!(matches!(read, Err(SpillError::OutOfRange { .. })), "{from} {length}");
        }
        for wrong in [
            SpillPlace { offset: 1, ..at },
            SpillPlace { offset: !4095, ..at },
            SpillPlace { length: u64::MAX, ..at },
        ] {
            assert!(matches!(files.read(wrong, &ID, 0, &mut []), Err(SpillError::OutOfRange { .. })));
            assert!(matches!(files.copy(at, wrong, &ID), Err(SpillError::OutOfRange { .. })));
            assert!(matches!(files.copy(wrong, at, &ID), Err(SpillError::OutOfRange { .. })));
        }
        let nowhere = SpillPlace { file: 5, ..at };
        assert_eq!(files.read(nowhere, &ID, 0, &mut [0]), Err(SpillError::NoFile { place: nowhere }));
        files.delete(5);
    });
}

/// Who waits for it sees that the disk answers, also while files are given back; and a large object is not
/// written to its end.
#[test]
fn after_the_end_of_the_session_no_more_is_written_or_read() {
    both_ways("ending", |files| {
        let object = bytes(17 * CHUNK, 1);
        let at = place(0, object.len());
        files.write(at, &ID, &object).expect("room");
        let pulse = files.pulse();
        assert!(pulse.beats() >= 5, "a piece of 4 MiB at a time");
        pulse.end();
        let beats = pulse.beats();
        let next = SpillPlace { file: 1, ..at };
        assert_eq!(files.write(next, &ID, &object), Err(SpillError::Ending));
        assert_eq!(files.read(at, &ID, 0, &mut [0; 10]), Err(SpillError::Ending));
        assert_eq!(files.copy(at, next, &ID), Err(SpillError::Ending));
        assert_eq!(pulse.beats(), beats, "the disk was not asked");
    });
    let here = Here::new("beats");
    let files = here.files(false);
    for file in 0..5 {
        files.write(SpillPlace { file, ..place(0, 10) }, &ID, &[1; 10]).expect("room");
    }
    let pulse = files.pulse();
    let beats = pulse.beats();
    drop(files);
    assert_eq!(pulse.beats(), beats + 5);
}

#[test]
fn threads_write_and_read_one_file_at_once() {
    both_ways("threads", |files| {
        let mut space = SpillSpace::new(SpillLimits::default());
        let places: Vec<_> = (0..40)
            .map(|number| (number, space.place(100_000 + 50_000 * number).expect("no limit")))
            .collect();
        std::thread::scope(|scope| {
            for part in places.chunks(10) {
                scope.spawn(move || {
                    for (number, place) in part {
                        let object = bytes(place.length as usize, *number as usize);
                        let id = [*number as u8; OBJECT_ID_BYTES];
                        files.write(*place, &id, &object).expect("room");
                        let mut back = vec![0; object.len()];
                        files.read(*place, &id, 0, &mut back).expect("whole");
                        assert!(back == object);
                    }
                });
            }
        });
        assert_eq!(files.files.lock().len(), 1, "made once");
    });
}
