//! Files in a store in memory: written, read, copied, deleted, and what dead sessions left.

use object_store::memory::InMemory;
use sooner_store::spill::{Damage, SpillLimits, SpillSpace};

use super::*;

const MIB: u64 = 1 << 20;
const URL: &str = "s3://bucket/base";

struct Stage {
    store: Arc<InMemory>,
    mapping: Arc<Mapping>,
    space: SpillSpace,
}

impl Stage {
    fn new() -> Self {
        let mapping = Arc::new(Mapping::create(64 * MIB).expect("memory"));
        let limits = SpillLimits { fuse_bytes: BATCH_BYTES, files_max: FILES_MAX, ..SpillLimits::default() };
        let begin = Mapping::header_bytes();
        let length = mapping.total_bytes() - begin;
        // SAFETY: nobody else uses this memory.
        let bytes = unsafe { mapping.bytes_mut(begin, length) };
        bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at / 3 % 251) as u8);
        Self { store: Arc::new(InMemory::new()), mapping, space: SpillSpace::new(limits) }
    }

    fn session(&self) -> SpillObjects {
        self.session_of(Identity::own())
    }

    fn session_of(&self, identity: Identity) -> SpillObjects {
        SpillObjects::begin(self.store.clone(), URL, &Path::from("base"), identity).expect("a store")
    }

    fn value(&mut self, at: u64, length: u64) -> SpillValue {
        let place = self.space.place(length).expect("room");
        let block = Mapping::header_bytes() + at;
        SpillValue { place, id: [length as u8; OBJECT_ID_BYTES], mapping: self.mapping.clone(), block }
    }

    fn bytes(&self, value: &SpillValue) -> &[u8] {
        self.mapping.bytes(value.block, value.place.length)
    }

    fn keys(&self) -> Vec<String> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("an executor");
        let found =
            runtime.block_on(self.store.list(None).map_ok(|object| object.location).try_collect::<Vec<_>>());
        found.expect("it is in memory").into_iter().map(|key| key.to_string()).collect()
    }

    fn put(&self, key: &Path, bytes: &'static [u8]) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("an executor");
        runtime.block_on(self.store.put(key, PutPayload::from_static(bytes))).expect("it is in memory");
    }
}

fn tend_until_idle(objects: &SpillObjects) {
    while objects.tend(true) < Duration::from_secs(60) {}
}

#[test]
fn values_and_their_ranges_come_back() {
    let mut stage = Stage::new();
    let objects = stage.session();
    let lengths = [0, 1, 100 << 10, MIB, MIB + 1, 9 * MIB + 17, 5];
    let values: Vec<_> =
        lengths.iter().enumerate().map(|(at, length)| stage.value(at as u64 * 4096, *length)).collect();
    objects.write(&values).expect("room");
    assert_eq!(stage.keys().len(), 3, "the marker and two objects of up to 8 MiB: {:?}", stage.keys());
    for value in &values {
        let length = value.place.length;
        let ends = [0, 1, MIB - 1, MIB, MIB + 1, 5 * MIB, 8 * MIB + 3, length];
        for from in ends.into_iter().filter(|end| *end <= length) {
            for end in ends.into_iter().filter(|end| (from..=length).contains(end)) {
                let mut into = vec![0; (end - from) as usize];
                objects.read(value.place, from, &mut into).expect("it is there");
                assert!(into == stage.bytes(value)[from as usize..end as usize], "{length}: {from} to {end}");
            }
        }
        let past = objects.read(value.place, length, &mut [0]).expect_err("it is not that long");
        assert!(matches!(past, StoreError::OutOfRange { .. }), "{past}");
    }
}

#[test]
fn a_large_value_is_many_objects_and_is_deleted_whole() {
    let mut stage = Stage::new();
    let objects = stage.session();
    let value = stage.value(0, 40 * MIB);
    objects.write(std::slice::from_ref(&value)).expect("room");
    assert_eq!(stage.keys().len(), 1 + 6);
    let mut into = vec![0; 40 << 20];
    objects.read(value.place, 0, &mut into).expect("it is there");
    assert!(into == stage.bytes(&value));
    assert_eq!(stage.space.release(value.place), Some(value.place.file));
    objects.delete(value.place.file);
    objects.delete(value.place.file + 1);
    tend_until_idle(&objects);
    assert_eq!(stage.keys().len(), 1, "the marker: {:?}", stage.keys());
    assert_eq!(objects.close(), None);
    assert_eq!(stage.keys(), [""; 0]);
}

#[test]
fn few_objects_are_deleted_when_there_is_time_and_many_at_once() {
    let mut stage = Stage::new();
    let objects = stage.session();
    for count in [1, DELETES_OVERDUE + 1] {
        for _ in 0..count {
            let value = stage.value(0, 10);
            stage.space.close_open();
            objects.write(std::slice::from_ref(&value)).expect("room");
            objects.delete(value.place.file);
        }
        let before = stage.keys().len() as u64;
        let _ = objects.tend(false);
        let after = stage.keys().len() as u64;
        assert_eq!(before - after, if count > DELETES_OVERDUE { before - 1 } else { 0 });
    }
}

#[test]
fn what_moves_is_checked_and_both_places_are_good() {
    let mut stage = Stage::new();
    let objects = stage.session();
    let values = [stage.value(0, 3 * MIB), stage.value(7, 100), stage.value(4096, MIB)];
    objects.write(&values).expect("room");
    stage.space.close_open();
    let moves = [&values[0], &values[2]].map(|value| {
        let to = stage.space.place_moved(value.place).expect("room");
        (value.place, to, value.id)
    });
    objects.copy(&moves).expect("room");
    for (from, to, _) in moves {
        let [mut old, mut new] = [from, to].map(|place| vec![0; place.length as usize]);
        objects.read(from, 0, &mut old).expect("it is there");
        objects.read(to, 0, &mut new).expect("it is there, too");
        assert!(old == new);
    }
}

#[test]
fn what_was_changed_or_deleted_is_noticed() {
    let mut stage = Stage::new();
    let objects = stage.session();
    let value = stage.value(0, MIB);
    objects.write(std::slice::from_ref(&value)).expect("room");
    let key = session::key(&objects.session, value.place.file, 0);
    let mut into = vec![0; 1 << 20];
    let changed = vec![9; value.place.disk_bytes() as usize];
    stage.put(&key, changed.leak());
    let error = objects.read(value.place, 0, &mut into).expect_err("it was changed");
    assert!(matches!(error, StoreError::Corrupt { damage: Damage::Chunk { number: 0 }, .. }), "{error}");
    stage.put(&key, b"short");
    let error = objects.read(value.place, 0, &mut into).expect_err("it was cut");
    assert!(matches!(error, StoreError::Failed { .. } | StoreError::Corrupt { .. }), "{error}");
    objects.requests.run(SMALL_LIMIT, objects.delete_all(vec![key])).expect("it is in memory");
    let error = objects.read(value.place, 0, &mut into).expect_err("it is gone");
    assert!(matches!(error, StoreError::Gone { .. }), "{error}");
}

#[test]
fn what_a_dead_session_left_is_deleted_and_what_a_living_one_has_is_not() {
    let mut stage = Stage::new();
    let mut gone = Identity::own();
    let mut child = std::process::Command::new("true").spawn().expect("a process");
    gone.become_process(child.id());
    child.wait().expect("it ends");
    let mut elsewhere = Identity::own();
    elsewhere.become_elsewhere();
    let sessions = [Identity::own(), gone, elsewhere].map(|identity| stage.session_of(identity));
    for session in &sessions {
        let value = stage.value(0, 10);
        stage.space.close_open();
        session.write(&[value]).expect("room");
    }
    // Not of a session.
    stage.put(&Path::from("base/other"), b"mine");
    stage.put(&Path::from("sooner-spill/other"), b"mine");
    let [living, dead, elsewhere] = sessions.map(|session| session.session.to_string());
    let next = stage.session();
    tend_until_idle(&next);
    let left = stage.keys();
    let count = |session: &str| left.iter().filter(|key| key.starts_with(session)).count();
    assert_eq!([count(&living), count(&dead), count(&elsewhere)], [2, 0, 2], "{left:?}");
    assert_eq!(left.len(), 2 + 2 + 1 + 2, "{left:?}");
}

#[test]
fn of_a_session_without_a_process_here_the_age_decides() {
    let mut stage = Stage::new();
    let mut elsewhere = Identity::own();
    elsewhere.become_elsewhere();
    let session = stage.session_of(elsewhere);
    let value = stage.value(0, 10);
    session.write(&[value]).expect("room");
    let mut next = stage.session();
    let other = session.session.clone();
    next.began += session::STALE.as_secs() as i64 - 5;
    assert_eq!(next.requests.run(SMALL_LIMIT, next.reap(&other)), Ok(false));
    assert_eq!(stage.keys().len(), 3);
    // What is there in place of the marker says nothing.
    stage.put(&session::marker(&other), vec![b'x'; 1 << 16].leak());
    assert_eq!(next.requests.run(SMALL_LIMIT, next.reap(&other)), Ok(false));
    assert_eq!(stage.keys().len(), 3);
    next.began += 10;
    assert_eq!(next.requests.run(SMALL_LIMIT, next.reap(&other)), Ok(false));
    assert_eq!(stage.keys().len(), 1, "the marker of the one that looks");
}

#[test]
fn after_the_end_nothing_is_written_or_read_and_all_is_deleted() {
    let mut stage = Stage::new();
    let objects = stage.session();
    let value = stage.value(0, 10);
    objects.write(std::slice::from_ref(&value)).expect("room");
    objects.pulse().end();
    assert_eq!(objects.read(value.place, 0, &mut [0; 10]), Err(StoreError::Ending));
    stage.space.close_open();
    let next = stage.value(0, 10);
    assert_eq!(objects.write(&[next]), Err(StoreError::Ending));
    assert_eq!(objects.close(), None);
    assert_eq!(stage.keys(), [""; 0]);
}
