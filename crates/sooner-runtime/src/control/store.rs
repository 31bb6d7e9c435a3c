//! What a control store can do: get, put, compare and swap, range, watch, lease. It requires nothing that
//! etcd cannot do, so that a replicated store can replace the embedded one.
//!
//! Writes come in batches, which are applied whole or not at all, in the order of their revisions. What a
//! call returned as applied survives any end of the process. A batch that was answered with an error may be
//! found after the next start, and not before: [`StoreError`] never means "perhaps applied already".
//!
//! No clock is read or stored here: the time is an argument, and leases begin anew when a store is opened.

use std::path::PathBuf;

use sooner_protocol::time::Instant;
use sooner_wire::limits::{STORE_BATCH_MAX, STORE_KEY_BYTES_MAX, STORE_VALUE_BYTES_MAX};
use sooner_wire::record::RecordError;

/// The number of a store's state, which grows with each change and never falls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Revision(pub u64);

/// A lease: entries bound to it are deleted when it is not renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseNumber(pub u64);

/// The entry of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The value: bytes that the store does not interpret.
    pub value: Vec<u8>,
    /// The revision at which the key came into being.
    pub created: Revision,
    /// The revision at which the value was written.
    pub changed: Revision,
    /// The lease that the entry is bound to.
    pub lease: Option<LeaseNumber>,
}

/// What must hold for a batch to be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// The key has no entry.
    Missing(String),
    /// The entry of the key was written at this revision.
    ChangedAt(String, Revision),
    /// The key has this value.
    Equals(String, Vec<u8>),
}

impl Condition {
    /// The key.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::Missing(key) | Self::ChangedAt(key, _) | Self::Equals(key, _) => key,
        }
    }

    /// Whether it holds for this entry.
    #[must_use]
    pub fn holds(&self, entry: Option<&Entry>) -> bool {
        match self {
            Self::Missing(_) => entry.is_none(),
            Self::ChangedAt(_, revision) => entry.is_some_and(|entry| entry.changed == *revision),
            Self::Equals(_, value) => entry.is_some_and(|entry| entry.value == *value),
        }
    }
}

/// One change of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Writes an entry, replacing any other.
    Put {
        /// The key.
        key: String,
        /// The value.
        value: Vec<u8>,
        /// The lease that the entry is bound to, if any.
        lease: Option<LeaseNumber>,
    },
    /// Deletes an entry, if there is one.
    Delete {
        /// The key.
        key: String,
    },
}

impl Operation {
    /// The key.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }
}

/// Writes that are applied together, if all conditions hold before the first of them. A key is written at
/// most once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Batch {
    /// All must hold.
    pub conditions: Vec<Condition>,
    /// Applied if all conditions hold.
    pub operations: Vec<Operation>,
}

impl Batch {
    /// One unconditional write.
    #[must_use]
    pub fn put(key: &str, value: &[u8]) -> Self {
        let put = Operation::Put { key: key.to_owned(), value: value.to_owned(), lease: None };
        Self { conditions: Vec::new(), operations: vec![put] }
    }

    /// One unconditional deletion.
    #[must_use]
    pub fn delete(key: &str) -> Self {
        Self { conditions: Vec::new(), operations: vec![Operation::Delete { key: key.to_owned() }] }
    }

    /// The same batch with one more condition.
    #[must_use]
    pub fn when(mut self, condition: Condition) -> Self {
        self.conditions.push(condition);
        self
    }

    /// Checks what does not depend on the store.
    ///
    /// # Errors
    /// [`BatchError`] for what no store takes.
    pub fn check(&self) -> Result<(), BatchError> {
        let parts = self.conditions.len() + self.operations.len();
        if parts > STORE_BATCH_MAX {
            return Err(BatchError::TooMany(parts));
        }
        let keys =
            self.conditions.iter().map(Condition::key).chain(self.operations.iter().map(Operation::key));
        for key in keys {
            if key.is_empty() || key.len() > STORE_KEY_BYTES_MAX {
                return Err(BatchError::Key(key.len()));
            }
        }
        for (at, operation) in self.operations.iter().enumerate() {
            if let Operation::Put { key, value, .. } = operation
                && value.len() > STORE_VALUE_BYTES_MAX
            {
                return Err(BatchError::Value { key: key.clone(), bytes: value.len() });
            }
            if self.operations[..at].iter().any(|earlier| earlier.key() == operation.key()) {
                return Err(BatchError::Twice(operation.key().to_owned()));
            }
        }
        Ok(())
    }
}

/// A batch that no store takes. It was not executed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// Too many parts.
    #[error("a batch of {0} conditions and writes is too large: at most {STORE_BATCH_MAX} are allowed")]
    TooMany(usize),
    /// An empty or long key.
    #[error("a key of {0} bytes is not valid: 1 to {STORE_KEY_BYTES_MAX} are allowed")]
    Key(usize),
    /// A long value.
    #[error(
        "the value of {bytes} bytes for {key:?} is too large: at most {STORE_VALUE_BYTES_MAX} are allowed"
    )]
    Value {
        /// The key.
        key: String,
        /// Its size.
        bytes: usize,
    },
    /// Two writes to one key.
    #[error("{0:?} is written twice in one batch")]
    Twice(String),
    /// The lease has ended.
    #[error("the lease {0} is not there (any more)")]
    NoLease(u64),
}

/// The result of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Applied, with this revision.
    Applied(Revision),
    /// Not applied: the condition on this key does not hold.
    Refused(String),
    /// Not applied: the batch is not valid.
    Invalid(BatchError),
}

/// A change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The revision of the change.
    pub revision: Revision,
    /// The key.
    pub key: String,
    /// The new value; `None` if it was deleted.
    pub value: Option<Vec<u8>>,
}

/// The position of a reader of changes below a prefix, from a revision on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watch {
    /// The prefix of its keys.
    pub prefix: String,
    /// The last revision that was seen.
    pub seen: Revision,
}

/// Why a store cannot do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The disk takes no writes. Reads go on, and writing is retried.
    #[error(
        "the control store cannot write to {}: {cause}; nothing is lost and reads go on, but nothing new is accepted until there is room or the disk is mended (tried again each second)",
        path.display()
    )]
    ReadOnly {
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: String,
    },
    /// Another process holds it.
    #[error(
        "{} is the directory of a head that is running{owner}: stop it with `sooner stop`, or give this one a directory of its own",
        path.display()
    )]
    InUse {
        /// The directory.
        path: PathBuf,
        /// " (process 123)", if that is known.
        owner: String,
    },
    /// Written by a later sooner.
    #[error(
        "{} was written by a newer sooner (format {found}; this one reads up to {known}): install that version, or give the head an empty directory",
        path.display()
    )]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// The format of the file.
        found: u32,
        /// The newest format that this program knows.
        known: u32,
    },
    /// Written by a sooner that is too old.
    #[error(
        "{} was written by a sooner that is too old (format {found}; this one reads from {oldest} on): start a version in between on it first, or give the head an empty directory",
        path.display()
    )]
    OlderFormat {
        /// The file.
        path: PathBuf,
        /// The format of the file.
        found: u32,
        /// The oldest format that this program can read.
        oldest: u32,
    },
    /// The file is damaged, or not a control store.
    #[error(
        "{} is damaged or no control store: {cause}; bring back a copy of it, or move it away to begin with an empty cluster",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The damage.
        cause: String,
    },
    /// It cannot be opened.
    #[error("the control store cannot be opened at {}: {cause}", path.display())]
    Open {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        cause: String,
    },
    /// A record cannot be read.
    #[error("the control store has something else at {key:?}: {error}; was it written by another program?")]
    Record {
        /// The key.
        key: String,
        /// What is wrong with it.
        error: RecordError,
    },
    /// A watch is too far behind.
    #[error("the changes before revision {} are not remembered: read everything, and watch from there", oldest.0)]
    Compacted {
        /// The first revision after which all changes are known.
        oldest: Revision,
    },
    /// A lease that has ended.
    #[error("the lease {0} is not there (any more)")]
    NoLease(u64),
}

/// A store. The module documents its guarantees.
pub trait Store: Send {
    /// The entry of a key.
    ///
    /// # Errors
    /// [`StoreError`] of stores on other machines.
    fn get(&self, key: &str) -> Result<Option<Entry>, StoreError>;

    /// All entries whose keys have this prefix, in the order of keys.
    ///
    /// # Errors
    /// [`StoreError`] of stores on other machines.
    fn range(&self, prefix: &str) -> Result<Vec<(String, Entry)>, StoreError>;

    /// The revision of the last change.
    fn revision(&self) -> Revision;

    /// Applies batches in order, each for itself; each sees the effects of those before it. Returns when all
    /// are durable.
    ///
    /// # Errors
    /// [`StoreError::ReadOnly`]: none of them was applied.
    fn commit(&mut self, batches: &[Batch], now: Instant) -> Result<Vec<Outcome>, StoreError>;

    /// The changes below the watch's prefix since the watch was last asked.
    ///
    /// # Errors
    /// [`StoreError::Compacted`] when that is too long ago.
    fn changes(&self, watch: &mut Watch) -> Result<Vec<Change>, StoreError>;

    /// Makes a lease that ends `ttl` nanoseconds after it was last renewed.
    ///
    /// # Errors
    /// [`StoreError::ReadOnly`].
    fn grant(&mut self, ttl: u64, now: Instant) -> Result<LeaseNumber, StoreError>;

    /// Renews a lease.
    ///
    /// # Errors
    /// [`StoreError::NoLease`] when it has ended.
    fn renew(&mut self, lease: LeaseNumber, now: Instant) -> Result<(), StoreError>;

    /// Ends a lease and deletes the entries bound to it.
    ///
    /// # Errors
    /// [`StoreError::NoLease`] when it has ended, [`StoreError::ReadOnly`].
    fn revoke(&mut self, lease: LeaseNumber, now: Instant) -> Result<(), StoreError>;

    /// Ends the leases whose time is over, and returns them.
    ///
    /// # Errors
    /// [`StoreError::ReadOnly`]: they are still there, and end when the disk is mended.
    fn expire(&mut self, now: Instant) -> Result<Vec<LeaseNumber>, StoreError>;

    /// When the next lease ends, if it is not renewed.
    fn next_deadline(&self) -> Option<Instant>;

    /// Writes one value, whatever is there.
    ///
    /// # Errors
    /// [`StoreError::ReadOnly`].
    fn put(&mut self, key: &str, value: &[u8], now: Instant) -> Result<Outcome, StoreError> {
        self.commit_one(Batch::put(key, value), now)
    }

    /// Writes one value if the entry was written at `expected`, or if there is none and `expected` is `None`.
    ///
    /// # Errors
    /// [`StoreError::ReadOnly`].
    fn compare_and_swap(
        &mut self,
        key: &str,
        expected: Option<Revision>,
        value: &[u8],
        now: Instant,
    ) -> Result<Outcome, StoreError> {
        let key_owned = key.to_owned();
        let condition = match expected {
            Some(revision) => Condition::ChangedAt(key_owned, revision),
            None => Condition::Missing(key_owned),
        };
        self.commit_one(Batch::put(key, value).when(condition), now)
    }

    /// Applies one batch.
    ///
    /// # Errors
    /// [`StoreError::ReadOnly`].
    fn commit_one(&mut self, batch: Batch, now: Instant) -> Result<Outcome, StoreError> {
        let mut outcomes = self.commit(&[batch], now)?;
        Ok(outcomes.pop().expect("one outcome for one batch"))
    }
}
