//! The thread that spills values: it writes them to disk when memory is full, and reads them back, into
//! shared memory or for other nodes.
//!
//! The node's loop and this thread exchange commands and events through two short lists, as with the thread
//! for values of other nodes ([`super::data`]). The node commands what is written and what is dropped, and
//! keeps each block until it is written. Commands are done in order, so a read comes after the write of its
//! value. A value that could not be written is read from its block, which the node keeps then. Files that are
//! mostly dead are rewritten when the thread is idle.
//!
//! Bytes for other nodes are read into buffers, of which there are few ([`super::send_buffers`]). Without a
//! free buffer such a read waits, and nothing else does: writing never waits for other nodes. With a free
//! buffer these reads alternate with the commands: other nodes are served even while the node writes all the
//! time.
//!
//! This thread never decides what is written, and never writes to a block that it does not know to be its
//! own. A disk that does not answer holds up this thread alone. Stopping a read does not wait: if the disk is
//! still at it, the block is given back later ([`SpillEvent::LetGo`]). The end of the session waits for a
//! disk that makes progress, not for one that hangs. If the thread panics, the node learns of it
//! ([`SpillEvent::Ended`]).

mod disk;
mod reading;
mod writing;

use std::any::Any;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use sooner_object_store::{SpillObjects, StoreUrl};
use sooner_protocol::node::objects::{Fetching, StreamEnd};
use sooner_store::Mapping;
use sooner_store::spill::{SpillFiles, SpillLimits, SpillPlace, SpillPulse, SpillSpace};
use sooner_wire::message::{Place, SpillId};
use sooner_wire::{FetchAttempt, ObjectId};

use self::disk::Disk;
use self::reading::Reading;
use self::writing::Writing;
use super::data::Ticket;
use super::send_buffers::{SendBuffer, SendBuffers};

/// Where values are spilled.
#[derive(Debug, Clone)]
pub struct SpillOptions {
    /// The directories, used in turn.
    pub directories: Vec<PathBuf>,
    /// The URL of an object store for the values. Then the directories hold only the file behind the memory,
    /// in the first of them if there is one.
    pub store: Option<String>,
    /// The most that may be on the disk (bytes).
    pub max_bytes: Option<u64>,
}

impl SpillOptions {
    /// Where values are spilled, for messages to people.
    #[must_use]
    pub fn place(&self) -> String {
        match &self.store {
            Some(url) => format!("the object store {url}"),
            None => format!("the disk with the spill directories {:?}", self.directories),
        }
    }
}

/// An event from the thread to the node.
#[derive(Debug)]
#[cfg_attr(test, derive(PartialEq))]
pub enum SpillEvent {
    /// A value was written, or could not be.
    Written {
        /// The value.
        spilled: SpillId,
        /// Why it could not be written.
        error: Option<String>,
    },
    /// A value is back in memory.
    Read {
        /// The value.
        object: ObjectId,
        /// The stream.
        attempt: FetchAttempt,
        /// Its length.
        bytes: u64,
    },
    /// A value cannot be read.
    Lost {
        /// The value.
        object: ObjectId,
        /// The stream.
        attempt: FetchAttempt,
        /// How the stream ended.
        end: StreamEnd,
        /// Why.
        error: String,
    },
    /// A read that [`Spiller::stop`] found in progress is over: nothing writes to its block any more.
    LetGo {
        /// The block.
        block: u64,
    },
    /// The thread has panicked, and no value on disk can be read: the last event.
    Ended {
        /// The panic's message.
        reason: String,
    },
    /// A part of a value, for another node.
    Part {
        /// The other node's request.
        ticket: Ticket,
        /// The value.
        spilled: SpillId,
        /// The bytes, or why they cannot be read; `Err(None)` if they are not needed any more.
        read: Result<SendBuffer, Option<String>>,
    },
}

/// A part of a value that another node wants.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The other node's request.
    pub ticket: Ticket,
    /// The value.
    pub spilled: SpillId,
    /// The range of its bytes.
    pub part: Range<u64>,
}

enum Command {
    Write { spilled: SpillId, block: u64, bytes: u64, others: u64 },
    Read { fetching: Fetching, reading: Arc<Reading> },
    Send { wanted: Wanted, buffer: SendBuffer },
    Drop { spilled: SpillId },
}

/// Bytes on disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OnDisk {
    /// Live: of values that are needed, with their headers.
    pub live: u64,
    /// In files, dead values included.
    pub used: u64,
    /// How many values are on disk.
    pub values: u64,
    /// Written so far.
    pub written: u64,
    /// Read so far.
    pub read: u64,
}

struct Shared {
    list: Mutex<List>,
    news: Condvar,
    events: Mutex<Vec<SpillEvent>>,
    on_disk: Mutex<OnDisk>,
    node_wake: Arc<OwnedFd>,
}

#[derive(Default)]
struct List {
    commands: VecDeque<Command>,
    /// Parts for other nodes, in order: at most what they may ask for at a time over their connections.
    wanted: VecDeque<Wanted>,
    /// `wanted` is served before `commands` next time.
    is_turn_of_wanted: bool,
    is_ending: bool,
    has_ended: bool,
    /// A message about what could not be removed.
    left: Option<String>,
}

/// See the module.
pub struct Spiller {
    shared: Arc<Shared>,
    mapping: Arc<Mapping>,
    pulse: Arc<SpillPulse>,
    /// Reads in progress, by attempt.
    moving: HashMap<FetchAttempt, Arc<Reading>>,
    /// Reads that were stopped within a piece.
    stopped: HashMap<FetchAttempt, Arc<Reading>>,
}

/// A disk without progress for this long hangs: the end of the session does not wait for it.
const STALL: Duration = Duration::from_secs(5);
/// How long the end of the session waits for a disk that makes progress. Giving many large files back takes
/// time, and the end of the process would wait for that as well.
const END_WAIT: Duration = Duration::from_secs(60);

impl Spiller {
    /// Opens the directories or the object store, and starts the thread.
    ///
    /// # Errors
    /// When one of the directories or the store cannot be used, or there can be no thread.
    pub fn start(options: &SpillOptions, mapping: Arc<Mapping>, node_wake: Arc<OwnedFd>) -> io::Result<Self> {
        let mut limits = SpillLimits { max_spill_bytes: options.max_bytes, ..SpillLimits::default() };
        let disk: Box<dyn Disk> = match &options.store {
            Some(url) => {
                limits.fuse_bytes = sooner_object_store::BATCH_BYTES;
                limits.files_max = sooner_object_store::FILES_MAX;
                let url = StoreUrl::parse(url).map_err(io::Error::other)?;
                Box::new(SpillObjects::open(&url).map_err(io::Error::other)?)
            }
            None => {
                limits.directories = options.directories.len();
                Box::new(SpillFiles::open(&options.directories).map_err(io::Error::other)?)
            }
        };
        Self::start_with(disk, limits, mapping, node_wake)
    }

    fn start_with(
        disk: Box<dyn Disk>,
        limits: SpillLimits,
        mapping: Arc<Mapping>,
        node_wake: Arc<OwnedFd>,
    ) -> io::Result<Self> {
        let pulse = disk.pulse();
        let shared = Arc::new(Shared {
            list: Mutex::default(),
            news: Condvar::new(),
            events: Mutex::default(),
            on_disk: Mutex::default(),
            node_wake,
        });
        let waits_for_room = Arc::downgrade(&shared);
        let buffers = SendBuffers::new(move || {
            if let Some(shared) = waits_for_room.upgrade() {
                // Notifies under the lock, or the thread could miss it on its way to sleep.
                let _list = shared.list.lock();
                shared.news.notify_all();
            }
        });
        let worker = Worker {
            shared: shared.clone(),
            mapping: mapping.clone(),
            disk,
            space: SpillSpace::new(limits),
            values: HashMap::new(),
            by_place: BTreeMap::new(),
            directories: limits.directories,
            buffers,
            to_move: VecDeque::new(),
        };
        std::thread::Builder::new().name("sooner-spill".into()).spawn(move || worker.run())?;
        Ok(Self { shared, mapping, pulse, moving: HashMap::new(), stopped: HashMap::new() })
    }

    /// Has a block written. `others` bytes beside the files count towards the limit.
    pub fn write(&self, spilled: SpillId, block: u64, bytes: u64, others: u64) {
        self.tell(Command::Write { spilled, block, bytes, others });
    }

    /// Has a value read into a block.
    pub fn read(&mut self, fetching: &Fetching) {
        let length = fetching.remote.location.length;
        let reading = Reading::new(self.mapping.clone(), fetching.object, fetching.block.offset(), length);
        let reading = Arc::new(reading);
        self.moving.insert(fetching.attempt, reading.clone());
        self.tell(Command::Read { fetching: *fetching, reading });
    }

    /// Has a part of a value read for another node.
    pub fn read_for(&self, wanted: Wanted) {
        self.shared.list.lock().wanted.push_back(wanted);
        self.shared.news.notify_all();
    }

    /// Stops a read. Returns its block if the disk is still writing to it: the block must stay as it is until
    /// [`SpillEvent::LetGo`].
    pub fn stop(&mut self, attempt: FetchAttempt) -> Option<u64> {
        let reading = self.moving.remove(&attempt)?;
        if !reading.stop() {
            return None;
        }
        let block = reading.block;
        self.stopped.insert(attempt, reading);
        Some(block)
    }

    /// A value is not needed any more.
    pub fn forget(&self, spilled: SpillId) {
        self.tell(Command::Drop { spilled });
    }

    /// Takes the events since the last call.
    pub fn take_events(&mut self) -> Vec<SpillEvent> {
        let mut events = Vec::new();
        for event in std::mem::take(&mut *self.shared.events.lock()) {
            match event {
                SpillEvent::Read { attempt, .. } | SpillEvent::Lost { attempt, .. } => {
                    if self.moving.remove(&attempt).is_some() {
                        events.push(event);
                    } else if let Some(reading) = self.stopped.remove(&attempt) {
                        events.push(SpillEvent::LetGo { block: reading.block });
                    }
                }
                SpillEvent::Ended { reason } => {
                    for (attempt, reading) in self.moving.drain() {
                        let (object, end) = (reading.object, StreamEnd::NotThere);
                        events.push(SpillEvent::Lost { object, attempt, end, error: reason.clone() });
                    }
                    let stopped = self.stopped.drain();
                    events.extend(stopped.map(|(_, reading)| SpillEvent::LetGo { block: reading.block }));
                    events.push(SpillEvent::Ended { reason });
                }
                SpillEvent::Written { .. } | SpillEvent::LetGo { .. } | SpillEvent::Part { .. } => {
                    events.push(event)
                }
            }
        }
        events
    }

    /// What is on disk.
    #[must_use]
    pub fn on_disk(&self) -> OnDisk {
        *self.shared.on_disk.lock()
    }

    fn tell(&self, command: Command) {
        self.shared.list.lock().commands.push_back(command);
        self.shared.news.notify_all();
    }
}

impl Spiller {
    /// Ends the thread, and waits for that while the disk makes progress. False if the disk hangs: the thread
    /// then ends when the disk answers, or with the process, and keeps its files until then.
    pub fn end(&mut self) -> bool {
        self.end_within(STALL, END_WAIT)
    }

    /// After the end: a message about what could not be removed.
    #[must_use]
    pub fn left(&self) -> Option<String> {
        self.shared.list.lock().left.clone()
    }

    fn end_within(&mut self, stall: Duration, longest: Duration) -> bool {
        for reading in self.moving.values() {
            reading.stop();
        }
        self.pulse.end();
        let mut list = self.shared.list.lock();
        list.is_ending = true;
        list.commands.clear();
        list.wanted.clear();
        self.shared.news.notify_all();
        let begin = Instant::now();
        while !list.has_ended && begin.elapsed() < longest {
            let beats = self.pulse.beats();
            let waited = self.shared.news.wait_while_for(&mut list, |list| !list.has_ended, stall);
            if waited.timed_out() && self.pulse.beats() == beats {
                break;
            }
        }
        list.has_ended
    }
}

impl Drop for Spiller {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// Where a value is.
#[derive(Debug, Clone, Copy)]
enum Where {
    Disk(SpillPlace),
    /// The value could not be written.
    Block {
        block: u64,
        bytes: u64,
    },
}

/// The thread.
struct Worker {
    shared: Arc<Shared>,
    mapping: Arc<Mapping>,
    disk: Box<dyn Disk>,
    space: SpillSpace,
    values: HashMap<SpillId, Where>,
    by_place: BTreeMap<SpillPlace, SpillId>,
    directories: usize,
    buffers: Arc<SendBuffers>,
    /// Values still to move out of the file that is being rewritten.
    to_move: VecDeque<SpillPlace>,
}

impl Worker {
    fn run(mut self) {
        let served = catch_unwind(AssertUnwindSafe(|| self.serve()));
        let Self { shared, disk, mapping, .. } = self;
        // The session's memory can be released without waiting for the disk.
        drop(mapping);
        if let Err(panic) = served {
            let reason = words_of(&*panic);
            for Wanted { ticket, spilled, .. } in std::mem::take(&mut shared.list.lock().wanted) {
                send(&shared, SpillEvent::Part { ticket, spilled, read: Err(Some(reason.clone())) });
            }
            send(&shared, SpillEvent::Ended { reason });
        }
        // The disk's descriptors are closed before the session is over.
        let left = catch_unwind(AssertUnwindSafe(move || disk.close()));
        let mut list = shared.list.lock();
        list.left = left.unwrap_or_default();
        list.has_ended = true;
        drop(list);
        shared.news.notify_all();
    }

    fn serve(&mut self) {
        while let Some(command) = self.next() {
            match command {
                Command::Write { spilled, block, bytes, others } => {
                    self.space.set_others(others);
                    let batch = self.gather(Writing { spilled, block, bytes });
                    self.write(batch);
                }
                Command::Read { fetching, reading } => self.read(&fetching, &reading),
                Command::Send { wanted, buffer } => self.read_part(wanted, buffer),
                Command::Drop { spilled } => self.forget(spilled),
            }
            let _ = self.disk.tend(false);
            self.report();
        }
    }

    /// Waits for the next command; rewrites files meanwhile. `None` at the end.
    fn next(&mut self) -> Option<Command> {
        let mut is_idle = false;
        loop {
            let mut list = self.shared.list.lock();
            if list.is_ending {
                return None;
            }
            if list.is_turn_of_wanted
                && let Some(command) = self.next_wanted(&mut list)
            {
                return Some(command);
            }
            if let Some(command) = list.commands.pop_front() {
                list.is_turn_of_wanted = true;
                return Some(command);
            }
            if let Some(command) = self.next_wanted(&mut list) {
                return Some(command);
            }
            drop(list);
            if self.rewrite_one(is_idle) {
                continue;
            }
            let again = self.disk.tend(true);
            self.report();
            let mut list = self.shared.list.lock();
            if let Some(command) = self.next_wanted(&mut list) {
                return Some(command);
            }
            if !list.commands.is_empty() || list.is_ending {
                continue;
            }
            if self.space.has_to_rewrite() && !is_idle {
                is_idle = self.shared.news.wait_for(&mut list, IDLE).timed_out();
                continue;
            }
            is_idle = false;
            match again {
                Some(pause) => drop(self.shared.news.wait_for(&mut list, pause)),
                None => self.shared.news.wait(&mut list),
            }
        }
    }

    /// The next read for another node, if there is a buffer for it. It may overtake commands: the value was
    /// written before any node was sent here for it.
    fn next_wanted(&self, list: &mut List) -> Option<Command> {
        let part = &list.wanted.front()?.part;
        let buffer = self.buffers.take(part.start, part.end - part.start)?;
        let wanted = list.wanted.pop_front()?;
        list.is_turn_of_wanted = false;
        Some(Command::Send { wanted, buffer })
    }

    fn read(&mut self, fetching: &Fetching, reading: &Reading) {
        let Fetching { object, attempt, remote, .. } = *fetching;
        let length = remote.location.length;
        let known = match remote.location.place() {
            Place::Disk(spilled) => self.values.get(&spilled).map(|at| (spilled, at)),
            Place::Memory(_) => None,
        };
        let result = match known {
            None => Err("it is not on disk any more".to_owned()),
            Some((_, Where::Block { block, bytes })) if length <= *bytes => {
                let from = self.mapping.bytes(*block, length);
                let _ = reading.piece(0, length, |into| into.copy_from_slice(from));
                Ok(())
            }
            Some((_, Where::Block { .. })) => Err("it is shorter than it should be".to_owned()),
            Some((spilled, Where::Disk(place))) => self.read_pieces(*place, spilled, length, reading),
        };
        // Of a read that was stopped, the node learns only that it is over.
        self.send(match result {
            Ok(()) => SpillEvent::Read { object, attempt, bytes: length },
            Err(error) => SpillEvent::Lost { object, attempt, end: StreamEnd::NotThere, error },
        });
    }

    fn read_pieces(
        &self,
        place: SpillPlace,
        spilled: SpillId,
        length: u64,
        reading: &Reading,
    ) -> Result<(), String> {
        let mut at = 0;
        while at < length {
            let piece = self.disk.piece_bytes().min(length - at);
            let read = reading.piece(at, piece, |into| self.disk.read(place, &id_of(spilled), at, into));
            match read {
                Some(Ok(())) => at += piece,
                Some(Err(error)) => return Err(error.to_string()),
                None => return Ok(()),
            }
        }
        self.shared.on_disk.lock().read += length;
        Ok(())
    }

    fn read_part(&self, wanted: Wanted, mut buffer: SendBuffer) {
        let Wanted { ticket, spilled, part } = wanted;
        let read = match self.values.get(&spilled) {
            Some(Where::Disk(place)) => {
                let read = self.disk.read(*place, &id_of(spilled), part.start, buffer.bytes_mut());
                read.map_err(|error| Some(error.to_string()))
            }
            // The value is not needed any more.
            Some(Where::Block { .. }) | None => Err(None),
        };
        if read.is_ok() {
            self.shared.on_disk.lock().read += part.end - part.start;
        }
        self.send(SpillEvent::Part { ticket, spilled, read: read.map(|()| buffer) });
    }

    fn forget(&mut self, spilled: SpillId) {
        if let Some(Where::Disk(place)) = self.values.remove(&spilled) {
            self.by_place.remove(&place);
            self.release(place);
        }
    }

    fn release(&mut self, place: SpillPlace) {
        if let Some(file) = self.space.release(place) {
            self.disk.delete(file);
        }
    }

    fn report(&self) {
        let mut on_disk = self.shared.on_disk.lock();
        on_disk.live = self.space.live();
        on_disk.values = self.by_place.len() as u64;
        on_disk.used = self.space.used();
    }

    fn send(&self, event: SpillEvent) {
        send(&self.shared, event);
    }
}

fn send(shared: &Shared, event: SpillEvent) {
    shared.events.lock().push(event);
    let _ = rustix::io::write(&*shared.node_wake, &1u64.to_ne_bytes());
}

/// The message of a panic.
fn words_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "it gives no reason".to_owned())
}

/// After so long without commands the thread does work that can wait.
const IDLE: Duration = Duration::from_secs(1);

/// The id of a value in its file.
fn id_of(spilled: SpillId) -> [u8; 20] {
    let mut id = [0; 20];
    id[..8].copy_from_slice(&spilled.offset().to_le_bytes());
    id
}

#[cfg(test)]
mod tests;
