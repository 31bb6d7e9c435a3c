//! A disk that is full of what is dead.

use std::sync::mpsc::{Receiver, Sender, channel};

use sooner_store::spill::{SpillError, SpillPulse};

use super::*;

const VALUE: u64 = 100_000;

/// Has room for so many values, and for one more while a file is rewritten. The first write waits for a word.
struct Small {
    count: u64,
    places: Mutex<Vec<SpillPlace>>,
    room: Mutex<u64>,
    begins: Mutex<Option<Receiver<()>>>,
    pulse: Arc<SpillPulse>,
}

impl Small {
    /// As long as a file is there, what is dead in it takes room.
    fn used(&self) -> u64 {
        let places = self.places.lock();
        places.iter().map(|place| record_bytes(place.length)).sum()
    }

    fn take(&self, places: &[SpillPlace], kept: u64) -> Result<(), DiskError> {
        let all = self.count * record_bytes(VALUE) + kept;
        let bytes = places.iter().map(|place| record_bytes(place.length)).sum::<u64>();
        let left = all.saturating_sub(self.used());
        *self.room.lock() = left.saturating_sub(bytes);
        if bytes > left {
            return Err(
                SpillError::NearlyFull { directory: "/small".into(), bytes, free: left, kept: 0 }.into()
            );
        }
        self.places.lock().extend(places);
        Ok(())
    }
}

impl Disk for Small {
    fn room(&self) -> u64 {
        *self.room.lock()
    }

    fn write(&self, values: &[SpillValue]) -> Result<(), DiskError> {
        if let Some(begins) = self.begins.lock().take() {
            begins.recv_timeout(WATCHDOG).expect("it is told to begin");
        }
        self.take(&values.iter().map(|value| value.place).collect::<Vec<_>>(), 0)
    }

    fn read(&self, _: SpillPlace, _: &Id, _: u64, _: &mut [u8]) -> Result<(), DiskError> {
        unreachable!("nothing is read")
    }

    fn copy(&self, moves: &[Move]) -> Result<(), DiskError> {
        self.take(&moves.iter().map(|(_, new, _)| *new).collect::<Vec<_>>(), record_bytes(VALUE))
    }

    fn delete(&self, file: u64) {
        self.places.lock().retain(|place| place.file != file);
    }

    fn pulse(&self) -> Arc<SpillPulse> {
        self.pulse.clone()
    }
}

fn stage(count: u64, per_file: u64) -> (Stage, Sender<()>) {
    let ((begin, begins), (_, asked), (turns, _)) = (channel(), channel(), channel());
    let begins = Mutex::new(Some(begins));
    let (places, room) = (Mutex::default(), Mutex::new(u64::MAX));
    let disk = Small { count, places, room, begins, pulse: Arc::default() };
    (Stage::of(Box::new(disk), per_file * record_bytes(VALUE), asked, turns), begin)
}

#[test]
fn what_is_dead_makes_way_for_what_is_to_be_written() {
    let (mut stage, begin) = stage(8, 4);
    // All of it waits at the same time, so that there is no moment for rewriting.
    stage.write(0..8, VALUE);
    [0, 1, 2, 4, 5, 6].into_iter().for_each(|number| stage.spiller.forget(SpillId(number)));
    stage.write(8..14, VALUE);
    begin.send(()).expect("it waits");
    assert_eq!(stage.written(14), (0..14).map(|number| (number, true)).collect::<Vec<_>>());
    assert!(stage.spiller.end());
}

#[test]
fn a_disk_that_is_full_of_what_is_alive_is_full() {
    let (mut stage, begin) = stage(8, 4);
    stage.write(0..9, VALUE);
    begin.send(()).expect("it waits");
    assert_eq!(stage.written(9), (0..9).map(|number| (number, number < 8)).collect::<Vec<_>>());
    // No more when most of a file is dead.
    (0..3).for_each(|number| stage.spiller.forget(SpillId(number)));
    stage.write(9..10, VALUE);
    assert_eq!(stage.written(1), [(9, true)]);
    assert!(stage.spiller.end());
}

#[test]
fn files_are_small_enough_to_be_rewritten_on_a_small_disk() {
    const COUNT: u64 = 400;
    /// In values, of which every fourth one stays: three eighths of the disk.
    const ALIVE_FOR: u64 = 96;
    let (mut stage, begin) = stage(64, 16);
    for number in 0..COUNT {
        stage.write(number..number + 1, VALUE);
        if number % 4 != 0 {
            stage.spiller.forget(SpillId(number));
        } else if number >= ALIVE_FOR {
            stage.spiller.forget(SpillId(number - ALIVE_FOR));
        }
    }
    begin.send(()).expect("it waits");
    let unwritten: Vec<_> = stage.written(COUNT as usize).into_iter().filter(|(_, is)| !is).collect();
    assert_eq!(unwritten, []);
    assert!(stage.spiller.end());
}
