//! Values that wait at the same time share a file where files are written whole.

mod full;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags};
use sooner_object_store::StoreError;
use sooner_store::Mapping;
use sooner_store::spill::{SpillLimits, SpillPulse};
use sooner_wire::message::SpillId;

use super::super::Spiller;
use super::super::disk::{Disk, DiskError, Id};
use super::*;

const MIB: u64 = 1 << 20;
const BATCH: u64 = 4 * MIB;
/// Nothing in these tests takes so long: it ends what hangs.
const WATCHDOG: Duration = Duration::from_secs(60);

/// A store in memory that says what it is asked for, and does it when it is told to.
struct Store {
    asked: Sender<String>,
    /// Whether it does what it is asked for.
    turns: Receiver<bool>,
    values: Mutex<BTreeMap<SpillPlace, Vec<u8>>>,
    pulse: Arc<SpillPulse>,
}

impl Store {
    fn step(&self, what: String) -> Result<(), DiskError> {
        let _ = self.asked.send(what);
        match self.turns.recv_timeout(WATCHDOG) {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(StoreError::Ending.into()),
        }
    }
}

fn check_is_whole_file(places: impl Iterator<Item = SpillPlace>) {
    let mut end = None;
    for place in places {
        let (file, offset) = end.unwrap_or((place.file, 0));
        assert_eq!((place.file, place.offset), (file, offset), "values of a file adjoin");
        end = Some((file, offset + place.disk_bytes()));
    }
}

impl Disk for Store {
    fn batch_bytes(&self) -> u64 {
        BATCH
    }

    fn write(&self, values: &[SpillValue]) -> Result<(), DiskError> {
        check_is_whole_file(values.iter().map(|value| value.place));
        self.step(format!("write {}", values.len()))?;
        let bytes = |value: &SpillValue| value.mapping.bytes(value.block, value.place.length).to_vec();
        self.values.lock().extend(values.iter().map(|value| (value.place, bytes(value))));
        Ok(())
    }

    fn read(&self, place: SpillPlace, _: &Id, from: u64, into: &mut [u8]) -> Result<(), DiskError> {
        into.copy_from_slice(&self.values.lock()[&place][from as usize..][..into.len()]);
        Ok(())
    }

    fn copy(&self, moves: &[Move]) -> Result<(), DiskError> {
        check_is_whole_file(moves.iter().map(|(_, new, _)| *new));
        self.step(format!("copy {}", moves.len()))?;
        let mut values = self.values.lock();
        for (old, new, _) in moves {
            let bytes = values[old].clone();
            values.insert(*new, bytes);
        }
        Ok(())
    }

    fn delete(&self, file: u64) {
        self.values.lock().retain(|place, _| place.file != file);
        let _ = self.step(format!("delete {file}"));
    }

    fn close(&self) -> Option<String> {
        Some(format!("{} values are left", self.values.lock().len()))
    }

    fn pulse(&self) -> Arc<SpillPulse> {
        self.pulse.clone()
    }
}

struct Stage {
    spiller: Spiller,
    wake: Arc<OwnedFd>,
    asked: Receiver<String>,
    turns: Sender<bool>,
}

impl Stage {
    fn new() -> Self {
        let (asked, is_asked) = channel();
        let (turns, turn) = channel();
        let store = Store { asked, turns: turn, values: Mutex::default(), pulse: Arc::default() };
        Self::of(Box::new(store), BATCH, is_asked, turns)
    }

    fn of(disk: Box<dyn Disk>, fuse_bytes: u64, asked: Receiver<String>, turns: Sender<bool>) -> Self {
        let mapping = Arc::new(Mapping::create(16 * MIB).expect("memory"));
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake = Arc::new(wake.expect("a descriptor"));
        let limits = SpillLimits { fuse_bytes, ..SpillLimits::default() };
        let spiller = Spiller::start_with(disk, limits, mapping, wake.clone()).expect("a thread");
        Self { spiller, wake, asked, turns }
    }

    fn write(&self, numbers: std::ops::Range<u64>, bytes: u64) {
        for number in numbers {
            self.spiller.write(SpillId(number), Mapping::header_bytes() + number * 4096, bytes, 0);
        }
    }

    fn expect(&self, what: &str, is_done: bool) {
        assert_eq!(self.asked.recv_timeout(WATCHDOG).as_deref(), Ok(what));
        self.turns.send(is_done).expect("the store is there");
    }

    /// The next values of which it is said whether they are written.
    fn written(&mut self, count: usize) -> Vec<(u64, bool)> {
        let mut found = Vec::new();
        while found.len() < count {
            for event in self.spiller.take_events() {
                let SpillEvent::Written { spilled, error } = event else { panic!("{event:?}") };
                found.push((spilled.0, error.is_none()));
            }
            if found.len() < count {
                let timeout = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
                let mut ready = [PollFd::new(&*self.wake, PollFlags::IN)];
                assert_eq!(rustix::event::poll(&mut ready, Some(&timeout)), Ok(1), "nothing happens");
                let mut number = [0; 8];
                let _ = rustix::io::read(&*self.wake, &mut number);
            }
        }
        found
    }

    /// The first value is being written, so others wait behind it.
    fn busy() -> Self {
        let stage = Self::new();
        stage.write(0..1, 1000);
        assert_eq!(stage.asked.recv_timeout(WATCHDOG).as_deref(), Ok("write 1"));
        stage
    }
}

#[test]
fn values_that_wait_are_written_together_up_to_a_size() {
    let mut stage = Stage::busy();
    stage.write(1..8, MIB - 4096);
    stage.turns.send(true).expect("the store is there");
    stage.expect("write 4", true);
    stage.expect("write 3", true);
    assert_eq!(stage.written(8), (0..8).map(|number| (number, true)).collect::<Vec<_>>());
    assert!(stage.spiller.end());
    assert_eq!(stage.spiller.left().as_deref(), Some("8 values are left"));
}

#[test]
fn a_value_larger_than_that_is_written_alone() {
    let mut stage = Stage::busy();
    stage.write(1..3, BATCH + 1);
    stage.turns.send(true).expect("the store is there");
    stage.expect("write 1", true);
    stage.expect("write 1", true);
    assert_eq!(stage.written(3).len(), 3);
    assert!(stage.spiller.end());
}

#[test]
fn values_of_a_file_that_cannot_be_written_are_all_in_their_blocks() {
    let mut stage = Stage::busy();
    stage.write(1..4, 1000);
    stage.turns.send(true).expect("the store is there");
    stage.expect("write 3", false);
    // Some of it may be there.
    stage.expect("delete 1", true);
    assert_eq!(stage.written(4), [(0, true), (1, false), (2, false), (3, false)]);
    assert_eq!(stage.spiller.on_disk().values, 1);
    stage.write(4..5, 1000);
    stage.expect("write 1", true);
    assert_eq!(stage.written(1), [(4, true)], "the next one is tried");
    assert!(stage.spiller.end());
}

#[test]
fn what_is_alive_in_a_file_that_is_mostly_dead_moves_together() {
    let mut stage = Stage::busy();
    stage.write(1..7, 100_000);
    stage.turns.send(true).expect("the store is there");
    stage.expect("write 6", true);
    assert_eq!(stage.written(7).len(), 7);
    for number in [1, 3, 4, 6] {
        stage.spiller.forget(SpillId(number));
    }
    // A third of it is needed: whenever the thread looks, half of it is dead at least.
    let asked = stage.asked.recv_timeout(WATCHDOG).expect("it is rewritten");
    assert!(["copy 3", "copy 2"].contains(&asked.as_str()), "{asked}");
    stage.turns.send(true).expect("the store is there");
    stage.expect("delete 1", true);
    stage.spiller.forget(SpillId(0));
    stage.expect("delete 0", true);
    assert!(stage.spiller.end());
}
