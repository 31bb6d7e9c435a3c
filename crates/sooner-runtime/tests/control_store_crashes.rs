//! The control store when things break: processes killed at any write, writes that are torn or lost, full and
//! broken disks, files of another format, a directory that somebody else has.

mod disk;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use disk::{Disk, IO_ERROR, NO_SPACE, PATH, Step, apply};
use redb::{ReadableDatabase, TableDefinition};
use sooner_protocol::time::Instant;
use sooner_runtime::control::commit::Committer;
use sooner_runtime::control::embedded::{Redb, open_on};
use sooner_runtime::control::memory::Local;
use sooner_runtime::control::store::{Batch, Outcome, Revision, Store, StoreError};
use sooner_wire::limits::STORE_RETRY_NANOS;
use sooner_wire::record::{FORMAT, FORMAT_OLDEST};

const NOW: Instant = Instant(1_000);

type Contents = BTreeMap<String, Vec<u8>>;

fn contents(store: &dyn Store) -> Contents {
    store.range("").expect("readable").into_iter().map(|(key, entry)| (key, entry.value)).collect()
}

/// Numbers for choices: the same in every run.
struct Choices(u64);

impl Choices {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

/// What was written, how far the disk was when each commit returned, and what was there then.
struct Recording {
    steps: Vec<Step>,
    commits: Vec<(usize, Contents)>,
}

fn record() -> Recording {
    let disk = Disk::default();
    let mut store = disk.open(NOW).expect("a new store");
    let mut commits = vec![(disk.step_count(), contents(&store))];
    let mut choices = Choices(7);
    for number in 0..14u64 {
        let key = |number: u64| format!("names/{number}");
        let value =
            vec![u8::try_from(number).expect("small"); usize::try_from(choices.next(9_000)).expect("small")];
        let old = choices.next(number + 1);
        let batches =
            [Batch::put(&key(number), &value), Batch::delete(&key(old)), Batch::put("last", &value)];
        store.commit(&batches, NOW).expect("writable");
        commits.push((disk.step_count(), contents(&store)));
    }
    Recording { steps: disk.steps(), commits }
}

impl Recording {
    /// A disk as a crash left it must hold what was acknowledged, or that and the commit that was under way.
    fn check(&self, image: Vec<u8>, steps: usize, what: &str) {
        let acknowledged = self.commits.iter().rposition(|(at, _)| *at <= steps);
        let mut store = match Disk::with(image).open(NOW) {
            Ok(store) => store,
            // Not even the first start had come to its end.
            Err(StoreError::Damaged { .. } | StoreError::Open { .. }) if acknowledged.is_none() => return,
            Err(error) => panic!("{what} after {steps} steps: {error}"),
        };
        let found = contents(&store);
        let oldest = acknowledged.unwrap_or(0);
        let is_right = self.commits[oldest..].iter().take(2).any(|(_, expected)| *expected == found);
        assert!(is_right, "{what} after {steps} steps: {:?}", found.keys());
        assert!(store.put("next", b"1", NOW).is_ok(), "{what} after {steps} steps: it takes writes again");
    }
}

#[test]
fn a_crash_between_any_two_writes_loses_nothing_that_was_acknowledged() {
    let recording = record();
    let mut image = Vec::new();
    recording.check(image.clone(), 0, "an empty file");
    for (number, step) in recording.steps.iter().enumerate() {
        if let Step::Write(offset, data) = step
            && data.len() > 1
        {
            let mut torn = image.clone();
            apply(&mut torn, &Step::Write(*offset, data[..data.len() / 2].to_vec()));
            recording.check(torn, number, "a torn write");
        }
        apply(&mut image, step);
        recording.check(image.clone(), number + 1, "a crash");
    }
    assert!(recording.steps.len() > 50, "{}", recording.steps.len());
}

#[test]
fn writes_that_never_reached_the_disk_lose_nothing_that_was_acknowledged() {
    let recording = record();
    let mut choices = Choices(3);
    let mut synced = Vec::new();
    let mut since: Vec<&Step> = Vec::new();
    for (number, step) in recording.steps.iter().enumerate() {
        if *step == Step::Sync {
            since.drain(..).for_each(|step| apply(&mut synced, step));
            continue;
        }
        since.push(step);
        for _ in 0..3 {
            // The disk has done some of what it was told since the last sync, in any order.
            let mut image = synced.clone();
            let mut done: Vec<&Step> = since.iter().copied().filter(|_| choices.next(2) == 0).collect();
            if choices.next(2) == 0 {
                done.reverse();
            }
            done.into_iter().for_each(|step| apply(&mut image, step));
            recording.check(image, number + 1, "lost writes");
        }
    }
}

fn is_read_only(result: Result<Outcome, StoreError>, cause: &str) -> bool {
    matches!(result, Err(StoreError::ReadOnly { path, cause: found })
        if path == Path::new(PATH) && found.contains(cause))
}

#[test]
fn a_full_or_broken_disk_is_said_and_reads_go_on_until_it_is_mended() {
    for (error, cause) in [(NO_SPACE, "No space left"), (IO_ERROR, "Input/output error")] {
        // The disk may fail at any step of a commit, also at the last one.
        for steps in 0..40 {
            let disk = Disk::default();
            let mut store = disk.open(NOW).expect("a new store");
            store.put("a", b"1", NOW).expect("writable");
            let before = (contents(&store), store.revision());
            disk.fail_after(steps, error);
            let large = vec![1; 20_000];
            if store.put("b", &large, NOW).is_ok() {
                assert!(steps > 3, "a commit has more than {steps} steps");
                continue;
            }
            assert_eq!((contents(&store), store.revision()), before, "reads go on");
            let count = disk.step_count();
            assert!(is_read_only(store.put("c", b"1", NOW.plus(STORE_RETRY_NANOS - 1)), cause));
            assert_eq!(disk.step_count(), count, "the disk is left alone for a second");
            let later = NOW.plus(STORE_RETRY_NANOS);
            assert!(is_read_only(store.put("c", b"1", later), cause), "tried again");
            disk.mend();
            assert!(is_read_only(store.put("c", b"1", later.plus(1)), cause), "not before the next second");
            let last = later.plus(2 * STORE_RETRY_NANOS);
            assert_eq!(store.put("d", b"2", last), Ok(Outcome::Applied(Revision(2))));
            let after = contents(&store);
            let keys: Vec<&String> = after.keys().collect();
            assert_eq!(keys, ["a", "d"], "what was answered with an error is not there");
            drop(store);
            assert_eq!(contents(&disk.open(NOW).expect("it is whole")), after);
        }
    }
}

#[test]
fn the_error_of_a_full_disk_says_what_to_do() {
    let disk = Disk::default();
    let mut store = disk.open(NOW).expect("a new store");
    disk.fail_after(0, NO_SPACE);
    let error = store.put("a", b"1", NOW).expect_err("full").to_string();
    assert!(error.starts_with("the control store cannot write to /cluster/control.redb: "), "{error}");
    assert!(error.contains("until there is room or the disk is mended (tried again each second)"), "{error}");
}

/// A disk with a store that says that it has this format.
fn of_format(format: u32) -> Disk {
    let disk = Disk::default();
    let mut store = disk.open(NOW).expect("a new store");
    store.put("a", b"1", NOW).expect("writable");
    drop(store);
    let database = open_on(disk.clone()).expect("ours");
    let transaction = database.begin_write().expect("writable");
    {
        let mut meta = transaction.open_table(TableDefinition::<&str, u64>::new("meta")).expect("there");
        meta.insert("format", u64::from(format)).expect("writable");
    }
    transaction.commit().expect("writable");
    disk
}

#[test]
fn other_formats_are_refused_by_name() {
    for format in [0, FORMAT + 1, u32::MAX] {
        let error = of_format(format).open(NOW).map(|_| ()).expect_err("another format");
        let path = PathBuf::from(PATH);
        if format == 0 {
            assert_eq!(error, StoreError::OlderFormat { path, found: 0, oldest: FORMAT_OLDEST });
        } else {
            assert_eq!(error, StoreError::NewerFormat { path, found: format, known: FORMAT });
            assert!(error.to_string().contains("was written by a newer sooner"));
        }
    }
}

#[test]
fn an_older_format_is_read_and_is_the_newest_after_the_next_write() {
    for format in FORMAT_OLDEST..FORMAT {
        let disk = of_format(format);
        let mut store = disk.open(NOW).expect("it can be read");
        assert_eq!(contents(&store).len(), 1);
        store.put("b", b"1", NOW).expect("writable");
        drop(store);
        let database = open_on(disk.clone()).expect("ours");
        let transaction = database.begin_read().expect("readable");
        let meta = transaction.open_table(TableDefinition::<&str, u64>::new("meta")).expect("there");
        let found = meta.get("format").expect("readable").expect("there").value();
        assert_eq!(found, u64::from(FORMAT), "an older sooner is to refuse it now");
    }
}

#[test]
fn what_is_no_store_or_was_damaged_is_said() {
    let open = |bytes: Vec<u8>| Disk::with(bytes).open(NOW).map(|_| ());
    assert!(matches!(open(b"something else ".repeat(1_000)), Err(StoreError::Damaged { .. })));
    let disk = Disk::default();
    let mut store = disk.open(NOW).expect("a new store");
    store.put("a", b"a value that can be found", NOW).expect("writable");
    drop(store);
    let mut bytes = disk.bytes();
    let at = bytes.windows(7).rposition(|found| found == b"a value").expect("it is there");
    bytes[at] ^= 1;
    assert!(matches!(open(bytes), Err(StoreError::Damaged { .. })), "a bit has changed");
}

/// A directory that goes with the test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sooner-store-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_directory_has_one_head() {
    use std::os::unix::fs::MetadataExt;
    let directory = Directory::new("lock");
    let mut store = Local::open(&directory.0, NOW).expect("a new store");
    store.put("a", b"1", NOW).expect("writable");
    let error = Local::open(&directory.0, NOW).map(|_: Local<Redb>| ()).expect_err("taken");
    let text = error.to_string();
    let process = std::process::id();
    assert!(
        text.contains(&format!("is the directory of a head that is running (process {process}): stop it")),
        "{text}"
    );
    for (name, mode) in [("", 0o700), ("lock", 0o600), ("control.redb", 0o600)] {
        let path = if name.is_empty() { directory.0.clone() } else { directory.0.join(name) };
        assert_eq!(std::fs::metadata(path).expect("there").mode() & 0o777, mode, "{name}");
    }
    drop(store);
    let store = Local::open(&directory.0, NOW).expect("it is free");
    assert_eq!(contents(&store).len(), 1);
    let missing = directory.0.join("no/such");
    let error = Local::open(&missing, NOW).map(|_: Local<Redb>| ()).expect_err("no such directory");
    assert!(matches!(error, StoreError::Open { path, .. } if path == missing));
}

/// What a child process does: see [`child_process`].
fn spawn(role: &str, directory: &Path) -> Child {
    Command::new(std::env::current_exe().expect("a test runs"))
        .args(["child_process", "--exact", "--nocapture", "--test-threads=1"])
        .env("SOONER_STORE_CHILD", role)
        .env("SOONER_STORE_DIRECTORY", directory)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child process")
}

/// Not a test of its own: what [`spawn`] starts, if the environment says so.
#[test]
fn child_process() {
    let Ok(role) = std::env::var("SOONER_STORE_CHILD") else { return };
    let directory = PathBuf::from(std::env::var("SOONER_STORE_DIRECTORY").expect("set with it"));
    match role.as_str() {
        "writes" => write_for_ever(&directory),
        "fills" => fill(&directory),
        other => panic!("{other}"),
    }
}

fn write_for_ever(directory: &Path) {
    let store = Local::open(directory, sooner_runtime::clock::now()).expect("the last owner was killed");
    let (done, outcomes) = mpsc::channel();
    let on_done = move |group: Vec<_>| group.into_iter().for_each(|one| done.send(one).expect("it is read"));
    let committer = Committer::start(Box::new(store), Box::new(on_done)).expect("a thread");
    let mut next = 0u64;
    loop {
        // Several on their way at a time, so that there are groups.
        for _ in 0..5 {
            let number = next.to_le_bytes();
            let mut batch = Batch::put("number", &number);
            batch.operations.extend(Batch::put(&format!("all/{}", next % 50), &number).operations);
            committer.submit(next, batch).expect("room");
            next += 1;
        }
        for _ in 0..5 {
            let done: sooner_runtime::control::commit::Done = outcomes.recv().expect("each has an outcome");
            assert!(matches!(done.outcome, Ok(Outcome::Applied(_))), "{done:?}");
            println!("acknowledged {}", done.ticket);
        }
    }
}

#[test]
fn what_was_acknowledged_survives_kill_9() {
    let directory = Directory::new("kill");
    let mut choices = Choices(u64::from(std::process::id()));
    for _ in 0..6 {
        let mut child = spawn("writes", &directory.0);
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let acknowledged = lines.map_while(Result::ok).filter_map(|line| {
            line.rsplit_once("acknowledged ").map(|(_, number)| number.parse::<u64>().expect("a number"))
        });
        let enough = choices.next(60);
        let mut last = None;
        let mut is_killed = false;
        for number in acknowledged {
            last = Some(number);
            if number >= enough && !is_killed {
                child.kill().expect("it runs");
                is_killed = true;
            }
        }
        child.wait().expect("it was killed");
        let last = last.expect("something was acknowledged");
        let store = Local::open(&directory.0, NOW).expect("nobody has it");
        let entry = store.get("number").expect("readable").expect("it was written");
        let found = u64::from_le_bytes(entry.value.try_into().expect("eight bytes"));
        assert!((last..=last + 5).contains(&found), "{last} was acknowledged, and {found} is there");
        let of_it = store.get(&format!("all/{}", found % 50)).expect("readable").expect("of the same batch");
        assert_eq!(of_it.value, found.to_le_bytes(), "batches are whole");
    }
}

/// Fills a small disk, makes room, and goes on.
fn fill(directory: &Path) {
    let mut now = NOW;
    let mut store = Local::open(&directory.join("head"), now).expect("there is room at first");
    let value = vec![7; 100_000];
    let mut count = 0;
    let error = loop {
        match store.put(&format!("all/{count}"), &value, now) {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
        assert!(count < 1_000, "the disk is not small");
    };
    assert!(matches!(error, StoreError::ReadOnly { .. }), "{error}");
    assert_eq!(store.range("all/").expect("readable").len(), count, "reads go on");
    now = now.plus(STORE_RETRY_NANOS);
    assert!(store.put("one more", &value, now).is_err(), "it is still full");
    std::fs::remove_file(directory.join("ballast")).expect("it lies there");
    now = now.plus(STORE_RETRY_NANOS);
    store.put("one more", &value, now).expect("there is room again");
    drop(store);
    let store = Local::open(&directory.join("head"), now).expect("it is whole");
    assert_eq!(store.range("").expect("readable").len(), count + 1);
    println!("recovered with {count} values");
}

#[test]
fn a_small_disk_fills_and_recovers() {
    let directory = Directory::new("full");
    std::fs::create_dir_all(&directory.0).expect("temporary directories can be made");
    // A mount of its own in a namespace of its own: it goes with the process, however that ends.
    let script = format!(
        "mount -t tmpfs -o size=16m tmpfs {0} && head -c 8000000 /dev/zero > {0}/ballast && exec \"$@\"",
        directory.0.display()
    );
    let exe = std::env::current_exe().expect("a test runs");
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script, "sh"])
        .arg(exe)
        .args(["child_process", "--exact", "--nocapture", "--test-threads=1"])
        .env("SOONER_STORE_CHILD", "fills")
        .env("SOONER_STORE_DIRECTORY", &directory.0)
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => return eprintln!("skipped: this machine has no `unshare`: {error}"),
    };
    let (said, complaint) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if complaint.contains("unshare:") || complaint.contains("mount:") {
        return eprintln!("skipped: this machine allows no mounts in namespaces: {complaint}");
    }
    assert!(output.status.success() && said.contains("recovered with"), "{said}{complaint}");
}

#[test]
fn every_batch_that_is_handed_in_has_an_outcome_in_order() {
    let disk = Disk::default();
    let store = disk.open(NOW).expect("a new store");
    let (done, outcomes) = mpsc::channel();
    let on_done = move |group: Vec<_>| group.into_iter().for_each(|one| done.send(one).expect("it is read"));
    let committer = Committer::start(Box::new(store), Box::new(on_done)).expect("a thread");
    for ticket in 0..300u64 {
        committer.submit(ticket, Batch::put("a", &ticket.to_le_bytes())).expect("room");
    }
    let store = committer.stop();
    let tickets: Vec<u64> = outcomes
        .iter()
        .map(|done: sooner_runtime::control::commit::Done| {
            assert!(done.outcome.is_ok());
            done.ticket
        })
        .collect();
    assert_eq!(tickets, (0..300).collect::<Vec<u64>>());
    assert_eq!(store.revision(), Revision(300));
    let syncs = disk.steps().iter().filter(|step| **step == Step::Sync).count();
    assert!(syncs < 300, "many batches share a commit: {syncs}");
}

#[test]
fn a_committer_on_a_full_disk_answers_and_goes_on() {
    let disk = Disk::default();
    let store = disk.open(NOW).expect("a new store");
    let (done, outcomes) = mpsc::channel();
    let on_done = move |group: Vec<_>| group.into_iter().for_each(|one| done.send(one).expect("it is read"));
    let committer = Committer::start(Box::new(store), Box::new(on_done)).expect("a thread");
    disk.fail_after(0, NO_SPACE);
    committer.submit(1, Batch::put("a", b"1")).expect("room");
    let first: sooner_runtime::control::commit::Done = outcomes.recv().expect("an outcome");
    assert!(matches!(first.outcome, Err(StoreError::ReadOnly { .. })));
    disk.mend();
    std::thread::sleep(Duration::from_nanos(STORE_RETRY_NANOS));
    committer.submit(2, Batch::put("a", b"2")).expect("room");
    assert_eq!(outcomes.recv().expect("an outcome").outcome, Ok(Outcome::Applied(Revision(1))));
}
