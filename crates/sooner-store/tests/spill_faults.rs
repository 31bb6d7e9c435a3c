//! Spill directories as they should not be: each fault gives an error that names the directory and says what
//! to do, and what was spilled before is still there.

use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sooner_store::spill::{SpillError, SpillFiles, SpillLimits, SpillPlace, SpillSpace};

const ID: [u8; 20] = [1; 20];
/// Tells a copy of this program that it is to spill until it is killed.
const SPILL_AND_WAIT: &str = "SPILL_AND_WAIT";

/// A directory of this test alone, gone with it.
struct Here(PathBuf);

impl Here {
    fn new(name: &str) -> Self {
        let path =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("spill-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).expect("a directory");
        Self(path)
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).expect("it is there");
        entries.map(|entry| entry.expect("read").file_name().to_string_lossy().into_owned()).collect()
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn open(path: &Path) -> Result<SpillFiles, SpillError> {
    SpillFiles::open(&[path.to_owned()])
}

fn refused(path: &Path) -> SpillError {
    let error = open(path).expect_err("it cannot be used");
    let said = error.to_string();
    assert!(said.contains(&path.display().to_string()), "it names the directory: {said}");
    assert!(said.contains("spill_directories"), "it says what to do: {said}");
    error
}

fn place(file: u64, length: u64) -> SpillPlace {
    SpillPlace { file, offset: 0, length }
}

#[test]
fn a_directory_that_is_missing() {
    let here = Here::new("missing");
    assert!(matches!(refused(&here.0.join("nothing")), SpillError::Gone { .. }));
    assert!(matches!(SpillFiles::open(&[]), Err(SpillError::NoDirectory)));
    let both = [here.0.clone(), here.0.join("nothing")];
    assert!(matches!(SpillFiles::open(&both), Err(SpillError::Gone { .. })), "all of them are looked at");
}

#[test]
fn a_file_in_place_of_a_directory() {
    let here = Here::new("file");
    let file = here.0.join("file");
    std::fs::write(&file, "").expect("room");
    assert!(matches!(refused(&file), SpillError::Refused { .. }));
    assert!(matches!(refused(&file.join("below")), SpillError::Refused { .. }));
}

#[test]
fn a_file_system_that_takes_no_files() {
    assert!(matches!(refused(Path::new("/proc")), SpillError::Refused { .. }));
}

#[test]
fn a_file_system_that_is_read_only() {
    let here = Here::new("read-only");
    let Some(_mount) = Mount::new(&here.0, "size=1m,ro") else { return };
    assert!(
        matches!(refused(&here.0), SpillError::Refused { source, .. } if source == rustix::io::Errno::ROFS)
    );
}

#[test]
fn a_directory_that_becomes_full() {
    let here = Here::new("full");
    let Some(_mount) = Mount::new(&here.0, "size=4m") else { return };
    let files = open(&here.0).expect("it is empty");
    let mut space = SpillSpace::new(SpillLimits::default());
    let object = vec![3; 1 << 20];
    let mut written = Vec::new();
    let error = loop {
        let place = space.place(object.len() as u64).expect("no limit");
        match files.write(place, &ID, &object) {
            Ok(()) => written.push(place),
            Err(error) => {
                assert_eq!(space.failed(place), None);
                break error;
            }
        }
    };
    // It is never filled to the brim: a twentieth stays free for others.
    let SpillError::NearlyFull { free, kept, .. } = error else { panic!("{error}") };
    assert!(
        kept == (4 << 20) / 20 && free < kept + sooner_store::spill::record_bytes(object.len() as u64),
        "{error}"
    );
    assert!(error.to_string().contains(&here.0.display().to_string()), "{error}");
    assert_eq!(written.len(), 3);
    let mut back = vec![0; object.len()];
    for place in &written {
        files.read(*place, &ID, 0, &mut back).expect("it was written");
        assert!(back == object);
    }
    // Room comes back with the file, and is used.
    let deleted: Vec<_> = written.into_iter().filter_map(|place| space.release(place)).collect();
    assert_eq!(deleted, [0]);
    files.delete(0);
    let place = space.place(object.len() as u64).expect("no limit");
    when_there_is_room(|| files.write(place, &ID, &object));
    assert_eq!(place.file, 1);
}

#[test]
fn a_directory_that_is_full_from_the_beginning() {
    let here = Here::new("full-at-once");
    let Some(_mount) = Mount::new(&here.0, "size=1m") else { return };
    let rest = std::fs::write(here.0.join("others"), vec![0; 2 << 20]).expect_err("it is too much");
    assert_eq!(rest.kind(), std::io::ErrorKind::StorageFull);
    assert!(matches!(refused(&here.0), SpillError::Full { .. }));
}

#[test]
fn a_directory_that_is_removed_while_it_is_used() {
    let here = Here::new("removed");
    let files = open(&here.0).expect("it is there");
    files.write(place(0, 5), &ID, b"value").expect("room");
    std::fs::remove_dir(&here.0).expect("nothing is in it");
    let mut back = [0; 5];
    files.read(place(0, 5), &ID, 0, &mut back).expect("the file stays");
    assert_eq!(&back, b"value");
    let more = SpillPlace { offset: 8192, ..place(0, 5) };
    files.write(more, &ID, b"value").expect("also for writing");
    let error = files.write(place(1, 5), &ID, b"value").expect_err("there is no directory for another file");
    assert!(matches!(error, SpillError::Gone { .. }), "{error}");
    std::fs::create_dir(&here.0).expect("a directory");
    files.write(place(1, 5), &ID, b"value").expect("it is there again");
}

#[test]
fn a_file_ends_with_its_descriptor_and_gives_its_room_back() {
    let here = Here::new("deleted");
    let Some(_mount) = Mount::new(&here.0, "size=4m") else { return };
    let object = vec![1; 2 << 20];
    for file in 0..10 {
        let files = when_there_is_room(|| open(&here.0));
        let write = |file| when_there_is_room(|| files.write(place(file, object.len() as u64), &ID, &object));
        write(file);
        assert_eq!(here.names(), [""; 0], "it has no name");
        if file % 2 == 0 {
            files.delete(file);
            write(file + 1);
        }
    }
}

/// Other tests of this process start programs: until such a child has become its program, it has all
/// descriptors of this one.
fn when_there_is_room<T>(mut attempt: impl FnMut() -> Result<T, SpillError>) -> T {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
    loop {
        match attempt() {
            Err(SpillError::Full { .. } | SpillError::NearlyFull { .. })
                if std::time::Instant::now() < end =>
            {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            done => return done.expect("room"),
        }
    }
}

#[test]
fn nothing_is_left_by_a_process_that_is_killed() {
    if let Some(directory) = std::env::var_os(SPILL_AND_WAIT) {
        let files = open(Path::new(&directory)).expect("it is there");
        files.write(place(0, 2 << 20), &ID, &vec![1; 2 << 20]).expect("room");
        println!("spilled");
        std::io::stdin().lines().for_each(drop);
        return;
    }
    let here = Here::new("killed");
    // As left by one that was killed between making a file and unlinking it, where files cannot be made
    // without a name.
    std::fs::write(here.0.join(".sooner-spill-0123456789abcdef"), "").expect("room");
    std::fs::write(here.0.join("of somebody else"), "").expect("room");
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "nothing_is_left_by_a_process_that_is_killed", "--nocapture"])
        .env(SPILL_AND_WAIT, &here.0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let lines = std::io::BufReader::new(child.stdout.take().expect("piped")).lines();
    let spilled = lines.map_while(Result::ok).any(|line| line.ends_with("spilled"));
    child.kill().expect("it waits");
    child.wait().expect("it ends");
    assert!(spilled);
    assert_eq!(here.names(), ["of somebody else"]);
}

/// A small file system, gone with the test. Only root can make one.
struct Mount(PathBuf);

impl Mount {
    fn new(at: &Path, options: &str) -> Option<Self> {
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", options, "sooner-spill"]).arg(at).output();
        let said = match mount {
            Ok(mount) if mount.status.success() => return Some(Self(at.to_owned())),
            Ok(mount) => String::from_utf8_lossy(&mount.stderr).into_owned(),
            Err(error) => error.to_string(),
        };
        println!("skipped: no tmpfs can be mounted here: {said}");
        None
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}
