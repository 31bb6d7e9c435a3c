//! What a control store can do: get, put, compare and swap, range, watch, lease. Nothing that etcd cannot, so
//! that a replicated store can take the place of the embedded one.
//!
//! Writes come in batches, which are applied whole or not at all, and in the order of their revisions. What a
//! call returned as applied survives any end of the process. What was answered with an error may be found
//! after the next start, and not before: [`StoreError`] never means "perhaps, as of now".
//!
//! No clock is read here, and none is stored: time comes in, and a lease begins anew when a store is opened.

use std::path::PathBuf;

use sooner_protocol::time::Instant;
use sooner_wire::limits::{STORE_BATCH_MAX, STORE_KEY_BYTES_MAX, STORE_VALUE_BYTES_MAX};
use sooner_wire::record::RecordError;

/// The state after so many batches that changed something. It only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Revision(pub u64);

/// A lease: what hangs on it goes when it is not renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseNumber(pub u64);

/// What is at a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Bytes to the store.
    pub value: Vec<u8>,
    /// Since when there is something at this key.
    pub created: Revision,
    /// Since when it is this.
    pub changed: Revision,
    /// It goes with this lease.
    pub lease: Option<LeaseNumber>,
}

/// What must be so for a batch to be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// There is nothing at this key.
    Missing(String),
    /// What is at this key was written at this revision.
    ChangedAt(String, Revision),
    /// This is at this key.
    Equals(String, Vec<u8>),
}

impl Condition {
    /// What it is about.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::Missing(key) | Self::ChangedAt(key, _) | Self::Equals(key, _) => key,
        }
    }

    /// Whether it is so.
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
    /// Something takes the place of what is there.
    Put {
        /// Where.
        key: String,
        /// What.
        value: Vec<u8>,
        /// Until when, if not for ever.
        lease: Option<LeaseNumber>,
    },
    /// What is there goes, if there is something.
    Delete {
        /// Where.
        key: String,
    },
}

impl Operation {
    /// Where it is.
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
    /// What is done then.
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

    /// This batch, if that is so.
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
        /// Where it should go.
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

/// What became of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is done, as of this revision.
    Applied(Revision),
    /// Nothing was done: the condition about this key does not hold.
    Refused(String),
    /// Nothing was done: the batch is not valid.
    Invalid(BatchError),
}

/// Something happened at a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// As of when.
    pub revision: Revision,
    /// Where.
    pub key: String,
    /// What is there now; `None` when it was deleted.
    pub value: Option<Vec<u8>>,
}

/// Someone who wants to know of changes below a prefix, from a revision on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watch {
    /// What its keys begin with.
    pub prefix: String,
    /// What was seen.
    pub seen: Revision,
}

/// Why a store does not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The disk does not take anything. Reads go on, and writing is tried again by itself.
    #[error(
        "the control store cannot write to {}: {cause}; nothing is lost and reads go on, but nothing new is accepted until there is room or the disk is mended (tried again each second)",
        path.display()
    )]
    ReadOnly {
        /// The file.
        path: PathBuf,
        /// What the system says.
        cause: String,
    },
    /// Someone else has it.
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
        /// What it says.
        found: u32,
        /// What this program knows.
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
        /// What it says.
        found: u32,
        /// What this program can still read.
        oldest: u32,
    },
    /// It is not what it should be.
    #[error(
        "{} is damaged or no control store: {cause}; bring back a copy of it, or move it away to begin with an empty cluster",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was met.
        cause: String,
    },
    /// It cannot be opened.
    #[error("the control store cannot be opened at {}: {cause}", path.display())]
    Open {
        /// The file or directory.
        path: PathBuf,
        /// What the system says.
        cause: String,
    },
    /// A record is something else.
    #[error("the control store has something else at {key:?}: {error}; was it written by another program?")]
    Record {
        /// Where.
        key: String,
        /// What was met.
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

/// A store. See the module for what it promises.
pub trait Store: Send {
    /// What is at a key.
    ///
    /// # Errors
    /// [`StoreError`] of stores that are somewhere else.
    fn get(&self, key: &str) -> Result<Option<Entry>, StoreError>;

    /// Everything below a prefix, in the order of keys.
    ///
    /// # Errors
    /// [`StoreError`] of stores that are somewhere else.
    fn range(&self, prefix: &str) -> Result<Vec<(String, Entry)>, StoreError>;

    /// Of the last change.
    fn revision(&self) -> Revision;

    /// Applies batches in order, each by itself; each sees what those before it did. Returns when all are
    /// durable.
    ///
    /// # Errors
    /// [`StoreError::ReadOnly`]: none of them was applied.
    fn commit(&mut self, batches: &[Batch], now: Instant) -> Result<Vec<Outcome>, StoreError>;

    /// What happened below the prefix since the watch was last asked.
    ///
    /// # Errors
    /// [`StoreError::Compacted`] when that is too long ago.
    fn changes(&self, watch: &mut Watch) -> Result<Vec<Change>, StoreError>;

    /// A lease that ends `ttl` nanoseconds after it was last renewed.
    ///
    /// # Errors
    /// [`StoreError::ReadOnly`].
    fn grant(&mut self, ttl: u64, now: Instant) -> Result<LeaseNumber, StoreError>;

    /// Lets a lease begin anew.
    ///
    /// # Errors
    /// [`StoreError::NoLease`] when it has ended.
    fn renew(&mut self, lease: LeaseNumber, now: Instant) -> Result<(), StoreError>;

    /// Ends a lease, with all that hangs on it.
    ///
    /// # Errors
    /// [`StoreError::NoLease`] when it has ended, [`StoreError::ReadOnly`].
    fn revoke(&mut self, lease: LeaseNumber, now: Instant) -> Result<(), StoreError>;

    /// Ends the leases whose time is over. Returns which.
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

    /// Writes one value if what is there was written at `expected`, or if nothing is there and nothing is
    /// expected.
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
