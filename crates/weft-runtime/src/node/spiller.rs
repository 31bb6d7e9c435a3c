//! The thread that writes values to disk for which there is no room, and reads them back.
//!
//! The node's loop and this thread tell each other what to do through two short lists, as with the thread for values of other nodes
//! ([`super::data`]). The node says what is written and when it is not needed any more, and keeps a block until it is written. What
//! is asked for is done in that order, so that a value is read behind its writing. What could not be written is read from
//! its block, which the node keeps then. Files that are mostly dead are rewritten when nothing else is to do.
//!
//! It never decides what is written, never writes to a block after [`Spiller::stop`], and holds up nobody: a disk that does not
//! answer holds up this thread alone, also at the end of the session.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use weft_protocol::objects::{Fetching, StreamEnd};
use weft_store::spill::{SpillError, SpillFiles, SpillFull, SpillLimits, SpillPlace, SpillSpace};
use weft_store::{Mapping, Progress};
use weft_wire::ObjectId;

/// Where values go for which there is no room.
#[derive(Debug, Clone)]
pub struct SpillOptions {
    /// The directories, which take turns.
    pub directories: Vec<PathBuf>,
    /// What may be on the disk (bytes).
    pub max_bytes: Option<u64>,
}

/// What the thread tells the node.
#[derive(Debug, PartialEq, Eq)]
pub enum SpillEvent {
    /// A value was written, or why not.
    Written {
        /// The value.
        spilled: u64,
        /// Why it was not.
        error: Option<String>,
    },
    /// A value is back.
    Read {
        /// Which.
        object: ObjectId,
        /// By which stream.
        attempt: u64,
        /// Its length.
        bytes: u64,
    },
    /// It cannot be read.
    Lost {
        /// Which.
        object: ObjectId,
        /// By which stream.
        attempt: u64,
        /// As the node sees it.
        end: StreamEnd,
        /// Why.
        error: String,
    },
}

#[derive(Debug)]
enum Command {
    Write { spilled: u64, block: u64, bytes: u64, others: u64 },
    Read { fetching: Fetching, progress: Arc<Progress> },
    Drop { spilled: u64 },
}

/// Bytes on disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OnDisk {
    /// Of values that are needed.
    pub live: u64,
    /// In files, with what is dead in them.
    pub used: u64,
    /// Written since the beginning.
    pub written: u64,
    /// Read since the beginning.
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
    is_ending: bool,
    has_ended: bool,
}

/// See the module.
pub struct Spiller {
    shared: Arc<Shared>,
    mapping: Arc<Mapping>,
    moving: HashMap<u64, Arc<Progress>>,
}

/// How long the end of the session waits for the disk.
const END_WAIT: Duration = Duration::from_secs(2);

impl Spiller {
    /// Looks at the directories and starts the thread.
    ///
    /// # Errors
    /// When one of the directories cannot be used, or there can be no thread.
    pub fn start(options: &SpillOptions, mapping: Arc<Mapping>, node_wake: Arc<OwnedFd>) -> io::Result<Self> {
        let files = SpillFiles::open(&options.directories).map_err(io::Error::other)?;
        let limits = SpillLimits {
            max_spill_bytes: options.max_bytes,
            directories: options.directories.len(),
            ..SpillLimits::default()
        };
        let shared = Arc::new(Shared {
            list: Mutex::default(),
            news: Condvar::new(),
            events: Mutex::default(),
            on_disk: Mutex::default(),
            node_wake,
        });
        let worker = Worker {
            shared: shared.clone(),
            mapping: mapping.clone(),
            files,
            space: SpillSpace::new(limits),
            values: HashMap::new(),
            by_place: BTreeMap::new(),
            directories: options.directories.len(),
        };
        std::thread::Builder::new().name("weft-spill".into()).spawn(move || worker.run())?;
        Ok(Self { shared, mapping, moving: HashMap::new() })
    }

    /// Has a block written. So many bytes beside the files count towards the most there may be.
    pub fn write(&self, spilled: u64, block: u64, bytes: u64, others: u64) {
        self.tell(Command::Write { spilled, block, bytes, others });
    }

    /// Has a value read into a block.
    pub fn read(&mut self, fetching: &Fetching) {
        let length = fetching.remote.location.length;
        let progress = Arc::new(Progress::new(self.mapping.clone(), fetching.block, length, 0));
        self.moving.insert(fetching.attempt, progress.clone());
        self.tell(Command::Read { fetching: *fetching, progress });
    }

    /// Ends a reading. When this returns, nothing is written to its block any more.
    pub fn stop(&mut self, attempt: u64) {
        if let Some(progress) = self.moving.remove(&attempt) {
            progress.close();
        }
    }

    /// A value is not needed any more.
    pub fn forget(&self, spilled: u64) {
        self.tell(Command::Drop { spilled });
    }

    /// What has happened.
    pub fn take_events(&mut self) -> Vec<SpillEvent> {
        let mut events = std::mem::take(&mut *self.shared.events.lock());
        events.retain(|event| match event {
            SpillEvent::Written { .. } => true,
            SpillEvent::Read { attempt, .. } | SpillEvent::Lost { attempt, .. } => {
                self.moving.remove(attempt).is_some()
            }
        });
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

impl Drop for Spiller {
    fn drop(&mut self) {
        self.moving.values().for_each(|progress| progress.close());
        let mut list = self.shared.list.lock();
        list.is_ending = true;
        list.commands.clear();
        self.shared.news.notify_all();
        // A disk that hangs keeps its thread, and the files go with the process.
        let _ = self.shared.news.wait_while_for(&mut list, |list| !list.has_ended, END_WAIT);
    }
}

/// Where a value is.
#[derive(Debug, Clone, Copy)]
enum Where {
    Disk(SpillPlace),
    /// It could not be written.
    Block {
        block: u64,
        bytes: u64,
    },
}

/// The thread.
struct Worker {
    shared: Arc<Shared>,
    mapping: Arc<Mapping>,
    files: SpillFiles,
    space: SpillSpace,
    values: HashMap<u64, Where>,
    by_place: BTreeMap<SpillPlace, u64>,
    directories: usize,
}

impl Worker {
    fn run(mut self) {
        while let Some(command) = self.next() {
            match command {
                Command::Write { spilled, block, bytes, others } => {
                    self.space.set_others(others);
                    self.write(spilled, block, bytes);
                }
                Command::Read { fetching, progress } => self.read(&fetching, &progress),
                Command::Drop { spilled } => self.forget(spilled),
            }
            self.report();
        }
        let shared = self.shared.clone();
        // The descriptors go before the session is over.
        drop(self);
        shared.list.lock().has_ended = true;
        shared.news.notify_all();
    }

    /// The next thing to do; rewrites files while there is none. `None` at the end.
    fn next(&mut self) -> Option<Command> {
        loop {
            let mut list = self.shared.list.lock();
            if list.is_ending {
                return None;
            }
            if let Some(command) = list.commands.pop_front() {
                return Some(command);
            }
            drop(list);
            if self.rewrite_one() {
                continue;
            }
            let mut list = self.shared.list.lock();
            if list.commands.is_empty() && !list.is_ending {
                self.shared.news.wait(&mut list);
            }
        }
    }

    fn write(&mut self, spilled: u64, block: u64, bytes: u64) {
        let written = self.place_and_write(spilled, block, bytes);
        let (value, error) = match written {
            Ok(place) => {
                self.by_place.insert(place, spilled);
                self.shared.on_disk.lock().written += bytes;
                (Where::Disk(place), None)
            }
            Err(error) => (Where::Block { block, bytes }, Some(error)),
        };
        self.values.insert(spilled, value);
        self.say(SpillEvent::Written { spilled, error });
    }

    fn place_and_write(&mut self, spilled: u64, block: u64, bytes: u64) -> Result<SpillPlace, String> {
        // Each failure makes the next attempt go to the next directory.
        let mut why = String::new();
        for _ in 0..self.directories {
            let place = match self.space.place(bytes) {
                Ok(place) => place,
                Err(full) => match self.make_room_on_disk(bytes, full) {
                    Ok(place) => place,
                    Err(full) => return Err(full.to_string()),
                },
            };
            match self.files.write(place, &id_of(spilled), self.mapping.bytes(block, bytes)) {
                Ok(()) => return Ok(place),
                Err(error) => {
                    why = error.to_string();
                    if let Some(file) = self.space.failed(place) {
                        self.files.delete(file);
                    }
                }
            }
        }
        Err(why)
    }

    /// Rewrites files until there is room, or nothing is to be had.
    fn make_room_on_disk(&mut self, bytes: u64, full: SpillFull) -> Result<SpillPlace, SpillFull> {
        let mut last = full;
        while self.rewrite_one() {
            match self.space.place(bytes) {
                Ok(place) => return Ok(place),
                Err(full) => last = full,
            }
        }
        Err(last)
    }

    fn read(&mut self, fetching: &Fetching, progress: &Progress) {
        let Fetching { object, attempt, remote, .. } = *fetching;
        let (spilled, length) = (remote.location.offset, remote.location.length);
        let result = match self.values.get(&spilled) {
            None => Err("it is not on disk any more".to_owned()),
            Some(Where::Block { block, bytes }) if length <= *bytes => {
                let from = self.mapping.bytes(*block, length);
                let _ = progress.write(0, from);
                Ok(())
            }
            Some(Where::Block { .. }) => Err("it is shorter than it should be".to_owned()),
            Some(Where::Disk(place)) => self.read_pieces(*place, spilled, length, progress),
        };
        self.say(match result {
            // A reading that was stopped ends in nothing that anybody hears.
            Ok(()) => SpillEvent::Read { object, attempt, bytes: length },
            Err(error) => SpillEvent::Lost { object, attempt, end: StreamEnd::NotThere, error },
        });
    }

    fn read_pieces(
        &self,
        place: SpillPlace,
        spilled: u64,
        length: u64,
        progress: &Progress,
    ) -> Result<(), String> {
        let mut at = 0;
        while at < length {
            let piece = READ_BYTES.min(length - at);
            let mut error: Option<SpillError> = None;
            let is_written = progress.write_with(at, piece, |into| {
                error = self.files.read(place, &id_of(spilled), at, into).err();
                error.is_none()
            });
            if let Some(error) = error {
                return Err(error.to_string());
            }
            if !is_written {
                return Ok(());
            }
            at += piece;
        }
        self.shared.on_disk.lock().read += length;
        Ok(())
    }

    fn forget(&mut self, spilled: u64) {
        if let Some(Where::Disk(place)) = self.values.remove(&spilled) {
            self.by_place.remove(&place);
            self.release(place);
        }
    }

    fn release(&mut self, place: SpillPlace) {
        if let Some(file) = self.space.release(place) {
            self.files.delete(file);
        }
    }

    /// Moves what is alive in a file that is mostly dead. False if there is none.
    fn rewrite_one(&mut self) -> bool {
        let Some(rewrite) = self.space.to_rewrite() else { return false };
        for old in rewrite.alive {
            let Some(spilled) = self.by_place.get(&old).copied() else { continue };
            let moved = self.space.place_moved(old).map_err(|_| None).and_then(|new| {
                match self.files.copy(old, new, &id_of(spilled)) {
                    Ok(()) => Ok(new),
                    Err(_) => Err(Some(new)),
                }
            });
            match moved {
                Ok(new) => {
                    self.by_place.remove(&old);
                    self.by_place.insert(new, spilled);
                    self.values.insert(spilled, Where::Disk(new));
                    self.release(old);
                }
                Err(failed) => {
                    if let Some(file) = failed.and_then(|new| self.space.failed(new)) {
                        self.files.delete(file);
                    }
                    self.space.give_up(rewrite.file);
                    return false;
                }
            }
        }
        true
    }

    fn report(&self) {
        let mut on_disk = self.shared.on_disk.lock();
        on_disk.live = self.space.live();
        on_disk.used = self.space.used();
    }

    fn say(&self, event: SpillEvent) {
        self.shared.events.lock().push(event);
        let _ = rustix::io::write(&*self.shared.node_wake, &1u64.to_ne_bytes());
    }
}

/// Read at a time (bytes): who stops a reading waits for so much.
const READ_BYTES: u64 = 8 << 20;

/// What stands in the file for a value.
fn id_of(spilled: u64) -> [u8; 20] {
    let mut id = [0; 20];
    id[..8].copy_from_slice(&spilled.to_le_bytes());
    id
}
