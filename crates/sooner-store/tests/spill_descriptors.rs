//! A process without file descriptors: a program of its own, because the limit is the whole process's.

use std::path::Path;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sooner_store::spill::{SpillError, SpillFiles, SpillLimits, SpillPlace, SpillSpace};

const ID: [u8; 20] = [1; 20];

#[test]
fn files_are_bounded_and_a_lack_of_descriptors_is_said() {
    let here =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("spill-descriptors-{}", std::process::id()));
    std::fs::create_dir(&here).expect("a directory");
    let files = SpillFiles::open(std::slice::from_ref(&here)).expect("a directory");

    // A file for each object at first; then no more than there may be.
    let limits = SpillLimits { fuse_bytes: 1, files_max: 20, ..SpillLimits::default() };
    let mut space = SpillSpace::new(limits);
    let before = descriptors();
    let places: Vec<_> = (0..200).map(|_| space.place(1000).expect("no limit")).collect();
    for place in &places {
        files.write(*place, &ID, &[7; 1000]).expect("room");
    }
    assert_eq!(descriptors(), before + space.files());
    assert!((10..=20).contains(&space.files()), "{}", space.files());

    // None is left: what is open is still read and written, and later goes on.
    let old = getrlimit(Resource::Nofile);
    let highest = std::fs::read_dir("/proc/self/fd").expect("proc").flatten();
    let highest = highest.filter_map(|entry| entry.file_name().to_str()?.parse::<u64>().ok()).max();
    let fill: Vec<_> = {
        let limit = highest.expect("one is open") + 2;
        setrlimit(Resource::Nofile, Rlimit { current: Some(limit), maximum: old.maximum }).expect("lower");
        std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect()
    };
    let other = SpillPlace { file: 1_000_000, offset: 0, length: 1000 };
    let error = files.write(other, &ID, &[7; 1000]).expect_err("no descriptor");
    assert!(matches!(error, SpillError::Descriptors { .. }), "{error}");
    assert!(error.to_string().contains("ulimit -n"), "{error}");
    let mut back = [0; 1000];
    files.read(places[100], &ID, 0, &mut back).expect("it is open");
    assert_eq!(back, [7; 1000]);
    let more = space.place(1000).expect("no limit");
    files.write(more, &ID, &back).expect("it is open");
    drop(fill);
    setrlimit(Resource::Nofile, old).expect("as it was");
    files.write(other, &ID, &back).expect("there are descriptors again");

    for place in places.into_iter().chain([more]) {
        if let Some(file) = space.release(place) {
            files.delete(file);
        }
    }
    files.delete(other.file);
    assert_eq!(descriptors(), before);
    std::fs::remove_dir(here).expect("it is empty");
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("proc").count()
}
