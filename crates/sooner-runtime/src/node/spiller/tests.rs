//! The thread at a disk that does what a test wants: answers late or never, and panics.

use std::sync::mpsc::{Receiver, Sender, channel};

use rustix::event::{EventfdFlags, PollFd, PollFlags};
use sooner_protocol::node::objects::Fetching;
use sooner_store::spill::SpillPulse;
use sooner_wire::message::{Location, Remote, SpillId};
use sooner_wire::{BlockId, FetchAttempt, NodeId, TaskId, WorkerId};

use super::disk::{DiskError, Id, Move, READ_BYTES, SpillValue};
use super::*;

const MIB: u64 = 1 << 20;
/// Nothing in these tests takes so long: it ends what hangs.
const WATCHDOG: Duration = Duration::from_secs(60);
/// A disk that has not answered for so long is taken for one that hangs.
const BRIEF: Duration = Duration::from_millis(50);

/// What a disk is told to do at each step.
enum Turn {
    Answers,
    Panics,
}

/// A disk in memory of one value, that says when it is asked for something and waits for its turn.
struct Puppet {
    asked: Sender<&'static str>,
    turns: Receiver<Turn>,
    pulse: Arc<SpillPulse>,
    value: Mutex<Vec<u8>>,
}

impl Puppet {
    fn step(&self, what: &'static str) {
        // Whether or not the test still looks.
        let _ = self.asked.send(what);
        match self.turns.recv_timeout(WATCHDOG) {
            Ok(Turn::Answers) => self.pulse.beat(),
            Ok(Turn::Panics) => panic!("the disk is a puppet"),
            Err(_) => {}
        }
    }
}

impl Disk for Puppet {
    fn write(&self, values: &[SpillValue]) -> Result<(), DiskError> {
        self.step("write");
        let [SpillValue { place, mapping, block, .. }] = values else { panic!("files are added to") };
        *self.value.lock() = mapping.bytes(*block, place.length).to_vec();
        Ok(())
    }

    fn read(&self, _: SpillPlace, _: &Id, from: u64, into: &mut [u8]) -> Result<(), DiskError> {
        self.step("read");
        into.copy_from_slice(&self.value.lock()[from as usize..][..into.len()]);
        Ok(())
    }

    fn copy(&self, _: &[Move]) -> Result<(), DiskError> {
        unreachable!("nothing is rewritten");
    }

    fn delete(&self, _: u64) {}

    fn pulse(&self) -> Arc<SpillPulse> {
        self.pulse.clone()
    }
}

impl Drop for Puppet {
    fn drop(&mut self) {
        // As if there were three files.
        (0..3).for_each(|_| self.step("close"));
    }
}

/// The node's side, and the strings of the puppet.
struct Stage {
    spiller: Spiller,
    mapping: Arc<Mapping>,
    wake: Arc<OwnedFd>,
    asked: Receiver<&'static str>,
    turns: Sender<Turn>,
}

const VALUE: SpillId = SpillId(1);
const LENGTH: u64 = 20 * MIB;

impl Stage {
    fn new() -> Self {
        let mapping = Arc::new(Mapping::create(64 * MIB).expect("memory"));
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake = Arc::new(wake.expect("a descriptor"));
        let (asked, is_asked) = channel();
        let (turns, turn) = channel();
        let puppet = Puppet { asked, turns: turn, pulse: Arc::default(), value: Mutex::default() };
        let limits = SpillLimits::default();
        let spiller = Spiller::start_with(Box::new(puppet), limits, mapping.clone(), wake.clone());
        let stage = Self { spiller: spiller.expect("a thread"), mapping, wake, asked: is_asked, turns };
        // SAFETY: nobody else uses this memory.
        unsafe { stage.mapping.bytes_mut(Self::source(), LENGTH) }.fill(7);
        stage
    }

    fn source() -> u64 {
        Mapping::header_bytes()
    }

    fn target() -> u64 {
        Self::source() + LENGTH
    }

    fn expect(&self, what: &str) {
        assert_eq!(self.asked.recv_timeout(WATCHDOG), Ok(what));
    }

    fn answer(&self) {
        self.turns.send(Turn::Answers).expect("the disk is there");
    }

    fn events(&mut self) -> Vec<SpillEvent> {
        loop {
            let events = self.spiller.take_events();
            if !events.is_empty() {
                return events;
            }
            let timeout = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
            let mut ready = [PollFd::new(&*self.wake, PollFlags::IN)];
            assert_eq!(rustix::event::poll(&mut ready, Some(&timeout)), Ok(1), "nothing happens");
            let mut count = [0; 8];
            let _ = rustix::io::read(&*self.wake, &mut count);
        }
    }

    fn fetching() -> Fetching {
        let object = TaskId { owner: WorkerId((1 << 24) + 1), number: 1 }.object(0);
        let location = Location { offset: VALUE.offset(), length: LENGTH };
        let remote = Remote { node: NodeId(1 << 24), location };
        Fetching {
            object,
            attempt: FetchAttempt(5),
            remote,
            block: BlockId(Self::target()),
            at: 0,
            generation: None,
            after: None,
        }
    }

    /// With a value on the disk.
    fn with_value() -> Self {
        let mut stage = Self::new();
        stage.spiller.write(VALUE, Self::source(), LENGTH, 0);
        stage.expect("write");
        stage.answer();
        assert_eq!(stage.events(), [SpillEvent::Written { spilled: VALUE, error: None }]);
        stage
    }

    /// Lets the end of the thread go on.
    fn close(mut self) {
        // It may need fewer answers than that.
        (0..3).for_each(|_| drop(self.turns.send(Turn::Answers)));
        assert!(self.spiller.end_within(WATCHDOG, WATCHDOG));
    }
}

#[test]
fn a_value_goes_to_disk_and_comes_back_piece_by_piece() {
    let mut stage = Stage::with_value();
    stage.spiller.read(&Stage::fetching());
    for _ in 0..LENGTH.div_ceil(READ_BYTES) {
        stage.expect("read");
        stage.answer();
    }
    let Fetching { object, attempt, .. } = Stage::fetching();
    assert_eq!(stage.events(), [SpillEvent::Read { object, attempt, bytes: LENGTH }]);
    assert!(stage.mapping.bytes(Stage::target(), LENGTH).iter().all(|byte| *byte == 7));
    stage.close();
}

#[test]
fn who_stops_a_reading_does_not_wait_for_the_disk() {
    let mut stage = Stage::with_value();
    stage.spiller.read(&Stage::fetching());
    stage.expect("read");
    // The disk does not answer, and this returns.
    assert_eq!(stage.spiller.stop(FetchAttempt(5)), Some(Stage::target()));
    assert_eq!(stage.spiller.stop(FetchAttempt(5)), None, "it is stopped");
    assert_eq!(stage.spiller.take_events(), []);
    stage.answer();
    assert_eq!(stage.events(), [SpillEvent::LetGo { block: Stage::target() }]);
    assert!(stage.asked.try_recv().is_err(), "the rest is not read");
    stage.close();
}

#[test]
fn a_reading_that_has_not_begun_ends_at_once() {
    let mut stage = Stage::with_value();
    stage.spiller.write(VALUE.next(), Stage::source(), LENGTH, 0);
    stage.expect("write");
    stage.spiller.read(&Stage::fetching());
    assert_eq!(stage.spiller.stop(FetchAttempt(5)), None, "nothing is written to its block");
    stage.answer();
    assert_eq!(stage.events(), [SpillEvent::Written { spilled: VALUE.next(), error: None }]);
    // What comes next is the end: the value was not read.
    stage.answer();
    assert!(!stage.spiller.end_within(BRIEF, WATCHDOG), "two closes wait");
    stage.expect("close");
    stage.close();
}

#[test]
fn the_end_waits_for_a_disk_that_answers_and_not_for_one_that_hangs() {
    let mut stage = Stage::with_value();
    stage.spiller.read(&Stage::fetching());
    stage.expect("read");
    assert!(!stage.spiller.end_within(BRIEF, WATCHDOG), "it hangs in a reading");
    // It answers: the rest is not read, and the files are closed, at whatever pace.
    stage.answer();
    stage.expect("close");
    // This test has it, the spiller, and the reading that it knows of.
    assert_eq!(Arc::strong_count(&stage.mapping), 3, "the thread has let the memory go");
    assert!(!stage.spiller.end_within(BRIEF, WATCHDOG), "it hangs again");
    let Stage { mut spiller, turns, asked, .. } = stage;
    let closing = std::thread::spawn(move || {
        turns.send(Turn::Answers).expect("it is there");
        for _ in 0..2 {
            assert_eq!(asked.recv_timeout(WATCHDOG), Ok("close"));
            turns.send(Turn::Answers).expect("it is there");
        }
    });
    assert!(spiller.end_within(WATCHDOG, WATCHDOG), "it answers");
    closing.join().expect("it does");
}

#[test]
fn a_thread_that_panics_is_noticed_and_what_it_had_is_lost() {
    let mut stage = Stage::with_value();
    stage.spiller.read(&Stage::fetching());
    stage.spiller.read(&Fetching {
        attempt: FetchAttempt(6),
        block: BlockId(Stage::target()),
        ..Stage::fetching()
    });
    stage.expect("read");
    assert_eq!(stage.spiller.stop(FetchAttempt(5)), Some(Stage::target()));
    stage.turns.send(Turn::Panics).expect("the disk is there");
    let Fetching { object, .. } = Stage::fetching();
    let (reason, end) = ("the disk is a puppet".to_owned(), StreamEnd::NotThere);
    assert_eq!(
        stage.events(),
        [
            SpillEvent::Lost { object, attempt: FetchAttempt(6), end, error: reason.clone() },
            SpillEvent::LetGo { block: Stage::target() },
            SpillEvent::Ended { reason },
        ]
    );
    stage.close();
}
