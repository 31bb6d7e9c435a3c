//! The store on disk: [`Local`] on redb, an embedded database whose commits are atomic (`docs/adr/0021`).
//!
//! Its directory holds `control.redb`, and `lock`, which the kernel releases with the process that holds it.
//! What is read there decides what code runs as this user, so both count only if they belong to this user
//! alone ([`crate::owned`]). The file begins with the version of its format. A newer version is refused; an
//! older one is brought up to date or refused.
//!
//! If the disk does not take a commit, the contents, and so all reads, stay as they were. The database cannot
//! be used after that: with the first write a second later it is opened again, and reset to the contents,
//! because the failed commit may have reached the disk.
//!
//! This store never holds more in memory than is on disk, and reads from disk only when it is opened.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io::{self, Seek, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::backends::FileBackend;
use redb::{
    Database, DatabaseError, ReadTransaction, ReadableDatabase, ReadableTable, StorageError, TableDefinition,
    TableError, WriteTransaction,
};
use rustix::fs::{FileType, OFlags};
use sooner_protocol::time::Instant;
use sooner_wire::limits::STORE_RETRY_NANOS;
use sooner_wire::record::{FORMAT, FORMAT_OLDEST};

use super::contents::{Contents, Staged};
use super::memory::{Keeper, Local};
use super::store::{Entry, LeaseNumber, Revision, StoreError};
use crate::held;
use crate::owned::{Directory, Fault};

/// The table of the format: `format`, and `revision` of the last commit.
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
/// Keys and their entries.
const ENTRIES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("entries");
/// Leases and their time to live (nanoseconds).
const LEASES: TableDefinition<'_, u64, u64> = TableDefinition::new("leases");

/// Pages that the database keeps in memory (bytes). Contents are read from memory anyway.
const CACHE_BYTES: usize = 4 << 20;

/// Names in the directory: of the database, of a database that is being made, and of the lock.
const FILE: &str = "control.redb";
const UNFINISHED: &str = "control.redb.new";
const LOCK: &str = "lock";

/// Bytes before the value of an entry: created, changed, lease (zero for none), as little-endian numbers.
const ENTRY_HEAD_BYTES: usize = 24;

/// Opens the database, also again after a commit that failed.
pub type Opener = Box<dyn FnMut() -> Result<Database, DatabaseError> + Send>;

/// See the module.
pub struct Redb {
    /// The path, for messages.
    path: PathBuf,
    opener: Opener,
    state: State,
    /// Held as long as the store is open.
    _lock: Option<File>,
}

enum State {
    Open(Database),
    /// A commit failed, for this reason; the database is not opened again before this time.
    Failed(String, Instant),
}

impl Local<Redb> {
    /// Opens the store in a directory, which is made if it is missing.
    ///
    /// # Errors
    /// [`StoreError`]: another head holds it, its format is unknown, it is damaged, or the system refuses.
    pub fn open(directory: &Path, now: Instant) -> Result<Self, StoreError> {
        let directory = Arc::new(open_directory(directory)?);
        let lock = lock(&directory)?;
        let path = directory.path().join(FILE);
        make_if_missing(&directory)?;
        let mut opener: Opener = Box::new(move || open_file(&directory, FILE));
        let database = opener().map_err(|error| opening(&path, error))?;
        if !has_format(&database) {
            let cause = "nothing of a head is in it".to_owned();
            return Err(StoreError::Damaged { path, cause });
        }
        Self::of_database(database, path, opener, Some(lock), now)
    }

    /// Opens the store through `opener`; `path` is its name in errors.
    ///
    /// # Errors
    /// As [`Local::open`].
    pub fn open_with(
        path: PathBuf,
        mut opener: Opener,
        lock: Option<File>,
        now: Instant,
    ) -> Result<Self, StoreError> {
        let database = opener().map_err(|error| opening(&path, error))?;
        Self::of_database(database, path, opener, lock, now)
    }

    fn of_database(
        database: Database,
        path: PathBuf,
        opener: Opener,
        lock: Option<File>,
        now: Instant,
    ) -> Result<Self, StoreError> {
        let contents = load(&path, &database, now)?;
        Ok(Self::new(contents, Redb { path, opener, state: State::Open(database), _lock: lock }))
    }
}

impl Keeper for Redb {
    fn write(&mut self, contents: &Contents, staged: &Staged, now: Instant) -> Result<(), StoreError> {
        let result = match &self.state {
            State::Open(database) => commit(database, staged),
            State::Failed(cause, until) if now < *until => return Err(self.read_only(cause.clone())),
            State::Failed(..) => self.reopen(contents).and_then(|database| {
                commit(&database, staged)?;
                self.state = State::Open(database);
                Ok(())
            }),
        };
        result.map_err(|error| {
            let cause = error.to_string();
            self.state = State::Failed(cause.clone(), now.plus(STORE_RETRY_NANOS));
            self.read_only(cause)
        })
    }
}

impl Redb {
    fn read_only(&self, cause: String) -> StoreError {
        StoreError::ReadOnly { path: self.path.clone(), cause }
    }

    /// Opens the database again and resets it to the contents: this undoes commits that were answered with an
    /// error.
    fn reopen(&mut self, contents: &Contents) -> Result<Database, redb::Error> {
        let database = (self.opener)()?;
        let transaction = database.begin_write()?;
        write_meta(&transaction, contents.revision())?;
        {
            let mut entries = transaction.open_table(ENTRIES)?;
            entries.retain(|key, _| contents.get(key).is_some())?;
            for (key, entry) in contents.range("") {
                let bytes = encode(entry);
                let is_there = entries.get(key.as_str())?.is_some_and(|found| found.value() == bytes);
                if !is_there {
                    entries.insert(key.as_str(), bytes.as_slice())?;
                }
            }
            let mut leases = transaction.open_table(LEASES)?;
            leases.retain(|_, _| false)?;
            for (lease, ttl) in contents.leases() {
                leases.insert(lease.0, ttl)?;
            }
        }
        transaction.commit()?;
        Ok(database)
    }
}

fn open_directory(path: &Path) -> Result<Directory, StoreError> {
    let opening = |error: io::Error| StoreError::Open { path: path.to_owned(), cause: error.to_string() };
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(opening(error)),
        Ok(()) | Err(_) => Directory::open(path).map_err(opening),
    }
}

fn lock(directory: &Directory) -> Result<File, StoreError> {
    let path = directory.path().join(LOCK);
    let opening = |error: io::Error| StoreError::Open { path: path.clone(), cause: cause(&error) };
    let mut lock = directory.open_file(LOCK, OFlags::CREATE).map_err(opening)?;
    if let Some(owner) = held::take(&mut lock).map_err(|error| opening(error.into()))? {
        // The owner empties the file and writes its number right after taking the lock: it may be empty.
        let is_known = !owner.trim().is_empty();
        let owner = if is_known { format!(" (process {})", owner.trim()) } else { String::new() };
        return Err(StoreError::InUse { path: directory.path().to_owned(), owner });
    }
    // The number is only for people, so a full disk is no reason not to start.
    let _ =
        lock.set_len(0).and_then(|()| lock.rewind()).and_then(|()| writeln!(lock, "{}", std::process::id()));
    Ok(lock)
}

fn has_format(database: &Database) -> bool {
    let table = database.begin_read().map(|transaction| transaction.open_table(META).map(drop));
    !matches!(table, Ok(Err(TableError::TableDoesNotExist(_))))
}

/// Makes the database if there is none, and refuses one that holds nothing.
///
/// The file gets its name only when it has a format. So a file of that name without one is not the first
/// start of a head, interrupted, but the rest of a database: to treat it as new would forget the cluster.
fn make_if_missing(directory: &Directory) -> Result<(), StoreError> {
    let (path, unfinished) = (directory.path().join(FILE), directory.path().join(UNFINISHED));
    let opening = |cause: String| StoreError::Open { path: path.clone(), cause };
    match directory.look(FILE).map_err(|error| opening(error.to_string()))? {
        Some(about) if about.st_size == 0 && FileType::from_raw_mode(about.st_mode).is_file() => {
            let cause = "it is empty, and a database of a head never is".to_owned();
            return Err(StoreError::Damaged { path, cause });
        }
        Some(_) => return Ok(()),
        None => {}
    }
    // The rest of a start that was interrupted.
    let _ = directory.remove(UNFINISHED);
    let database = open_file(directory, UNFINISHED).map_err(|error| self::opening(&unfinished, error))?;
    commit(&database, &Staged::default()).map_err(|error| opening(error.to_string()))?;
    drop(database);
    directory.rename(UNFINISHED, FILE).map_err(|error| opening(error.to_string()))
}

fn open_file(directory: &Directory, name: &str) -> Result<Database, DatabaseError> {
    open_on(FileBackend::new(directory.open_file(name, OFlags::CREATE)?)?)
}

/// A database on a backend, with everything that [`Redb`] relies on.
///
/// # Errors
/// As redb says.
pub fn open_on(backend: impl redb::StorageBackend) -> Result<Database, DatabaseError> {
    // Without the check, damage done to the file while it was closed may end the process later.
    Database::builder()
        .set_cache_size(CACHE_BYTES)
        .set_check_integrity_on_open(true)
        .create_with_backend(backend)
}

/// Errors when reading a database that is damaged or was cut short.
const DAMAGE: [io::ErrorKind; 2] = [io::ErrorKind::InvalidData, io::ErrorKind::UnexpectedEof];

/// Why a file cannot be opened, and what to do if it does not belong to this user alone.
fn cause(error: &io::Error) -> String {
    if !Fault::is_in(error) {
        return error.to_string();
    }
    format!("{error}; move it away, or name another directory with --cluster-dir")
}

fn opening(path: &Path, error: DatabaseError) -> StoreError {
    let path = path.to_owned();
    let damaged = |cause: String| StoreError::Damaged { path: path.clone(), cause };
    match error {
        DatabaseError::DatabaseAlreadyOpen => StoreError::InUse { path, owner: String::new() },
        DatabaseError::Storage(StorageError::Corrupted(cause)) => damaged(cause),
        DatabaseError::Storage(StorageError::Io(error)) if DAMAGE.contains(&error.kind()) => {
            damaged(error.to_string())
        }
        DatabaseError::Storage(StorageError::Io(error)) if Fault::is_in(&error) => {
            StoreError::Open { path, cause: cause(&error) }
        }
        DatabaseError::UpgradeRequired(version) => {
            damaged(format!("a database of an old version ({version})"))
        }
        other => StoreError::Open { path, cause: other.to_string() },
    }
}

/// Checks the format and reads everything; a new database gets a format.
fn load(path: &Path, database: &Database, now: Instant) -> Result<Contents, StoreError> {
    let damaged = |cause: String| StoreError::Damaged { path: path.to_owned(), cause };
    let transaction = database.begin_read().map_err(|error| damaged(error.to_string()))?;
    let meta = match transaction.open_table(META) {
        Ok(meta) => meta,
        Err(TableError::TableDoesNotExist(_)) => {
            drop(transaction);
            let staged = Staged::default();
            let made = commit(database, &staged);
            made.map_err(|error| StoreError::Open { path: path.to_owned(), cause: error.to_string() })?;
            return Ok(Contents::default());
        }
        Err(error) => return Err(damaged(error.to_string())),
    };
    let number = |key: &str| -> Result<u64, StoreError> {
        let found = meta.get(key).map_err(|error| damaged(error.to_string()))?;
        found.map(|number| number.value()).ok_or_else(|| damaged(format!("it has no {key}")))
    };
    check_format(path, number("format")?)?;
    let revision = Revision(number("revision")?);
    read(&transaction, revision, now).map_err(|error| damaged(error.to_string()))
}

fn read(transaction: &ReadTransaction, revision: Revision, now: Instant) -> Result<Contents, redb::Error> {
    let mut entries = BTreeMap::new();
    for item in transaction.open_table(ENTRIES)?.range::<&str>(..)? {
        let (key, bytes) = item?;
        let entry = decode(bytes.value())
            .ok_or_else(|| redb::Error::Corrupted(format!("the entry of {:?} is cut short", key.value())))?;
        entries.insert(key.value().to_owned(), entry);
    }
    let mut leases = BTreeMap::new();
    for item in transaction.open_table(LEASES)?.range::<u64>(..)? {
        let (lease, ttl) = item?;
        leases.insert(LeaseNumber(lease.value()), ttl.value());
    }
    Ok(Contents::new(revision, entries, leases, now))
}

fn check_format(path: &Path, found: u64) -> Result<(), StoreError> {
    let path = path.to_owned();
    let found = u32::try_from(found).unwrap_or(u32::MAX);
    if found > FORMAT {
        return Err(StoreError::NewerFormat { path, found, known: FORMAT });
    }
    if found < FORMAT_OLDEST {
        return Err(StoreError::OlderFormat { path, found, oldest: FORMAT_OLDEST });
    }
    Ok(())
}

fn commit(database: &Database, staged: &Staged) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    write_meta(&transaction, staged.revision)?;
    {
        let mut entries = transaction.open_table(ENTRIES)?;
        for (key, entry) in &staged.entries {
            match entry {
                Some(entry) => drop(entries.insert(key.as_str(), encode(entry).as_slice())?),
                None => drop(entries.remove(key.as_str())?),
            }
        }
        let mut leases = transaction.open_table(LEASES)?;
        for (lease, ttl) in &staged.leases {
            match ttl {
                Some(ttl) => drop(leases.insert(lease.0, *ttl)?),
                None => drop(leases.remove(lease.0)?),
            }
        }
    }
    transaction.commit()?;
    Ok(())
}

fn write_meta(transaction: &WriteTransaction, revision: Revision) -> Result<(), redb::Error> {
    let mut meta = transaction.open_table(META)?;
    meta.insert("format", u64::from(FORMAT))?;
    meta.insert("revision", revision.0)?;
    Ok(())
}

fn encode(entry: &Entry) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(ENTRY_HEAD_BYTES + entry.value.len());
    bytes.extend_from_slice(&entry.created.0.to_le_bytes());
    bytes.extend_from_slice(&entry.changed.0.to_le_bytes());
    bytes.extend_from_slice(&entry.lease.map_or(0, |lease| lease.0).to_le_bytes());
    bytes.extend_from_slice(&entry.value);
    bytes
}

fn decode(bytes: &[u8]) -> Option<Entry> {
    let (head, value) = bytes.split_first_chunk::<ENTRY_HEAD_BYTES>()?;
    let number = |at: usize| {
        let mut part = [0; 8];
        part.copy_from_slice(&head[at..at + 8]);
        u64::from_le_bytes(part)
    };
    let lease = number(16);
    Some(Entry {
        value: value.to_vec(),
        created: Revision(number(0)),
        changed: Revision(number(8)),
        lease: (lease != 0).then_some(LeaseNumber(lease)),
    })
}
