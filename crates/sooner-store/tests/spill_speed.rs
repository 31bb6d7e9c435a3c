//! How fast objects are spilled and restored, beside `dd` on the same disk in the same run: printed, never
//! judged.
//!
//!     cargo test --release -p sooner-store --test spill_speed -- --ignored --nocapture
//!
//! The disk is that of the build directory, or of SPILL_DIRECTORY. Objects lie where the blocks of a node
//! lie, at the start of a page. Each round writes and reads 2 GB each way, one way after the other, so that
//! all ways meet the same neighbours; the best of each is compared.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use sooner_store::spill::{SpillFiles, SpillLimits, SpillObject, SpillPlace, SpillSpace};

const TOTAL: usize = 2 << 30;
const ROUNDS: usize = 3;
const MIB: usize = 1 << 20;

#[test]
#[ignore = "a measurement"]
fn speed_of_spilling() {
    let directory =
        std::env::var_os("SPILL_DIRECTORY").map_or(env!("CARGO_TARGET_TMPDIR").into(), PathBuf::from);
    let mut source = memory(100 * MIB);
    for (at, byte) in source.bytes().iter_mut().enumerate() {
        *byte = (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0];
    }
    let mut target = memory(100 * MIB);
    let mut others = [memory(100 * MIB), memory(100 * MIB)];
    let checksum = seconds(|| {
        for _ in 0..TOTAL / source.length {
            std::hint::black_box(crc32fast::hash(source.bytes()));
        }
    });
    println!("checksum: {:.2} GB/s", rate(checksum));

    let sizes = [100 * MIB, 8 * MIB, MIB, 100 << 10];
    let (mut dd, mut cached) = ([f64::MAX; 2], [f64::MAX; 2]);
    let mut ours = vec![[f64::MAX; 3]; sizes.len()];
    for _ in 0..ROUNDS {
        least(&mut dd, dd_direct(&directory));
        for (size, ours) in sizes.iter().zip(&mut ours) {
            least(ours, spill(&directory, source.part(*size), target.part(*size), &mut others));
        }
        least(&mut cached, dd_cached(&directory));
    }
    print("dd, direct", &dd, dd);
    print("dd, conv=fdatasync", &cached, dd);
    for (size, ours) in sizes.iter().zip(ours) {
        print(&format!("objects of {} KiB", size >> 10), &ours, dd);
    }
}

/// Seconds for writing in batches of 16 MiB, for reading one by one, and for reading with two threads.
fn spill(directory: &Path, object: &mut [u8], into: &mut [u8], others: &mut [Memory]) -> [f64; 3] {
    let files = SpillFiles::open(&[directory.to_owned()]).expect("a directory");
    let mut space = SpillSpace::new(SpillLimits::default());
    let id = &[7; 20];
    let count = TOTAL / object.len();
    let places: Vec<SpillPlace> =
        (0..count).map(|_| space.place(object.len() as u64).expect("no limit")).collect();
    let write = seconds(|| {
        let objects = places.iter().map(|place| SpillObject { place: *place, id, bytes: object });
        let objects: Vec<_> = objects.collect();
        for batch in objects.chunks((16 * MIB / object.len()).max(1)) {
            files.write_batch(batch).expect("room");
        }
    });
    let read = seconds(|| {
        for place in &places {
            files.read(*place, id, 0, into).expect("whole");
        }
    });
    assert!(object == into);
    // As when several tasks ask for what is on the disk.
    let both = seconds(|| {
        std::thread::scope(|scope| {
            for (part, into) in places.chunks(count.div_ceil(2)).zip(others) {
                let files = &files;
                scope.spawn(move || {
                    for place in part {
                        files.read(*place, id, 0, into.part(place.length as usize)).expect("whole");
                    }
                });
            }
        });
    });
    [write, read, both]
}

fn dd_direct(directory: &Path) -> [f64; 2] {
    let file = directory.join("spill-speed");
    let count = format!("count={}", TOTAL / (4 * MIB));
    let write = dd(&["if=/dev/zero", &of(&file), "bs=4M", &count, "oflag=direct"]);
    let read = dd(&[&from(&file), "of=/dev/null", "bs=4M", "iflag=direct"]);
    std::fs::remove_file(file).expect("written");
    [write, read]
}

/// What `dd` does by itself, with what it wrote on the disk at its end; what it reads is not in the page
/// cache.
fn dd_cached(directory: &Path) -> [f64; 2] {
    let file = directory.join("spill-speed");
    let count = format!("count={}", TOTAL / MIB);
    let write = dd(&["if=/dev/zero", &of(&file), "bs=1M", &count, "conv=fdatasync"]);
    dd(&[&from(&file), "iflag=nocache", "count=0"]);
    let read = dd(&[&from(&file), "of=/dev/null", "bs=1M"]);
    std::fs::remove_file(file).expect("written");
    [write, read]
}

fn of(file: &Path) -> String {
    format!("of={}", file.display())
}

fn from(file: &Path) -> String {
    format!("if={}", file.display())
}

fn dd(arguments: &[&str]) -> f64 {
    seconds(|| {
        let done = Command::new("dd").args(arguments).output().expect("dd");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    })
}

/// Memory that begins with a page.
struct Memory {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

fn memory(length: usize) -> Memory {
    let bytes = vec![1; length + 4096];
    let start = bytes.as_ptr().align_offset(4096);
    Memory { bytes, start, length }
}

impl Memory {
    fn bytes(&mut self) -> &mut [u8] {
        self.part(self.length)
    }

    fn part(&mut self, length: usize) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + length]
    }
}

fn least<const N: usize>(best: &mut [f64; N], new: [f64; N]) {
    for (best, new) in best.iter_mut().zip(new) {
        *best = best.min(new);
    }
}

fn seconds(work: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    work();
    begin.elapsed().as_secs_f64()
}

#[allow(clippy::cast_precision_loss)]
fn rate(seconds: f64) -> f64 {
    TOTAL as f64 / seconds / 1e9
}

fn print(what: &str, ours: &[f64], dd: [f64; 2]) {
    let ways = ["write", "read", "read with two threads"].iter().zip([dd[0], dd[1], dd[1]]);
    let said: Vec<_> = ways
        .zip(ours)
        .map(|((way, dd), ours)| format!("{way} {:.2} GB/s ({:.2} of dd)", rate(*ours), dd / ours))
        .collect();
    println!("{what}: {}", said.join(", "));
}
