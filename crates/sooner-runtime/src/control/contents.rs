//! The contents of a store that lives in this process, and how a group of batches changes them.
//!
//! A group is computed beside the contents ([`Group`]), made durable, and then absorbed: so reads only see
//! what is on disk. There is no disk here, and no clock.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use sooner_protocol::time::Instant;
use sooner_wire::limits::STORE_HISTORY_MAX;

use super::store::{
    Batch, BatchError, Change, Entry, LeaseNumber, Operation, Outcome, Revision, StoreError, Watch,
};

/// What one group of batches changes: the last state of each key and lease that was touched.
#[derive(Debug, Default)]
pub struct Staged {
    /// The revision after the group.
    pub revision: Revision,
    /// The entry of each changed key; `None` deletes it.
    pub entries: BTreeMap<String, Option<Entry>>,
    /// The time to live of each changed lease (nanoseconds); `None` ends it.
    pub leases: BTreeMap<LeaseNumber, Option<u64>>,
    changes: Vec<Change>,
}

impl Staged {
    /// Whether there is anything to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.leases.is_empty()
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Contents {
    revision: Revision,
    entries: BTreeMap<String, Entry>,
    /// Leases: the time to live (nanoseconds), and when it is over.
    leases: BTreeMap<LeaseNumber, (u64, Instant)>,
    history: VecDeque<Change>,
    /// All changes after this one are in the history.
    compacted: Revision,
}

impl Contents {
    /// Contents read from a disk. Leases begin anew: for how long they could not be renewed is unknown.
    #[must_use]
    pub fn new(
        revision: Revision,
        entries: BTreeMap<String, Entry>,
        leases: BTreeMap<LeaseNumber, u64>,
        now: Instant,
    ) -> Self {
        let leases = leases.into_iter().map(|(lease, ttl)| (lease, (ttl, now.plus(ttl)))).collect();
        Self { revision, entries, leases, history: VecDeque::new(), compacted: revision }
    }

    /// The revision of the last change.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The entry of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// All entries whose keys have this prefix, in order.
    pub fn range<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a String, &'a Entry)> {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        self.entries.range::<str, _>(from).take_while(move |(key, _)| key.starts_with(prefix))
    }

    /// Leases, and their time to live (nanoseconds).
    pub fn leases(&self) -> impl Iterator<Item = (LeaseNumber, u64)> {
        self.leases.iter().map(|(lease, (ttl, _))| (*lease, *ttl))
    }

    /// The changes below the watch's prefix since the watch was last asked.
    ///
    /// # Errors
    /// [`StoreError::Compacted`].
    pub fn changes(&self, watch: &mut Watch) -> Result<Vec<Change>, StoreError> {
        if watch.seen < self.compacted {
            return Err(StoreError::Compacted { oldest: self.compacted });
        }
        let from = self.history.partition_point(|change| change.revision <= watch.seen);
        let news = self.history.range(from..).filter(|change| change.key.starts_with(&watch.prefix));
        let news = news.cloned().collect();
        watch.seen = self.revision;
        Ok(news)
    }

    /// Renews a lease.
    ///
    /// # Errors
    /// [`StoreError::NoLease`].
    pub fn renew(&mut self, lease: LeaseNumber, now: Instant) -> Result<(), StoreError> {
        let (ttl, until) = self.leases.get_mut(&lease).ok_or(StoreError::NoLease(lease.0))?;
        *until = now.plus(*ttl);
        Ok(())
    }

    /// The leases whose time is over.
    #[must_use]
    pub fn expired(&self, now: Instant) -> Vec<LeaseNumber> {
        self.leases.iter().filter(|(_, (_, until))| *until <= now).map(|(lease, _)| *lease).collect()
    }

    /// When the next lease ends.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.leases.values().map(|(_, until)| *until).min()
    }

    /// Takes over the changes of a group, which are on disk.
    pub fn absorb(&mut self, staged: Staged, now: Instant) {
        self.revision = staged.revision;
        for (key, entry) in staged.entries {
            match entry {
                Some(entry) => drop(self.entries.insert(key, entry)),
                None => drop(self.entries.remove(&key)),
            }
        }
        for (lease, ttl) in staged.leases {
            match ttl {
                Some(ttl) => drop(self.leases.insert(lease, (ttl, now.plus(ttl)))),
                None => drop(self.leases.remove(&lease)),
            }
        }
        self.history.extend(staged.changes);
        // The changes of a revision are remembered together or not at all.
        while self.history.len() > STORE_HISTORY_MAX {
            let oldest = self.history[0].revision;
            self.compacted = oldest;
            while self.history.front().is_some_and(|change| change.revision == oldest) {
                self.history.pop_front();
            }
        }
    }
}

/// Batches whose changes are computed together.
#[derive(Debug)]
pub struct Group<'a> {
    contents: &'a Contents,
    staged: Staged,
}

impl<'a> Group<'a> {
    /// A group without batches.
    #[must_use]
    pub fn new(contents: &'a Contents) -> Self {
        Self { contents, staged: Staged { revision: contents.revision, ..Staged::default() } }
    }

    /// All changes of the group.
    #[must_use]
    pub fn finish(self) -> Staged {
        self.staged
    }

    fn get(&self, key: &str) -> Option<&Entry> {
        match self.staged.entries.get(key) {
            Some(entry) => entry.as_ref(),
            None => self.contents.get(key),
        }
    }

    fn has_lease(&self, lease: LeaseNumber) -> bool {
        match self.staged.leases.get(&lease) {
            Some(ttl) => ttl.is_some(),
            None => self.contents.leases.contains_key(&lease),
        }
    }

    /// Adds a batch.
    pub fn apply(&mut self, batch: &Batch) -> Outcome {
        if let Err(error) = batch.check() {
            return Outcome::Invalid(error);
        }
        for operation in &batch.operations {
            if let Operation::Put { lease: Some(lease), .. } = operation
                && !self.has_lease(*lease)
            {
                return Outcome::Invalid(BatchError::NoLease(lease.0));
            }
        }
        if let Some(failed) =
            batch.conditions.iter().find(|condition| !condition.holds(self.get(condition.key())))
        {
            return Outcome::Refused(failed.key().to_owned());
        }
        let revision = Revision(self.staged.revision.0 + 1);
        for operation in &batch.operations {
            match operation {
                Operation::Put { key, value, lease } => self.put(key, value, *lease, revision),
                Operation::Delete { key } => self.delete(key, revision),
            }
        }
        Outcome::Applied(self.staged.revision)
    }

    fn put(&mut self, key: &str, value: &[u8], lease: Option<LeaseNumber>, revision: Revision) {
        let created = self.get(key).map_or(revision, |entry| entry.created);
        let entry = Entry { value: value.to_owned(), created, changed: revision, lease };
        self.staged.entries.insert(key.to_owned(), Some(entry));
        self.note(key, Some(value.to_owned()), revision);
    }

    fn delete(&mut self, key: &str, revision: Revision) {
        if self.get(key).is_some() {
            self.staged.entries.insert(key.to_owned(), None);
            self.note(key, None, revision);
        }
    }

    fn note(&mut self, key: &str, value: Option<Vec<u8>>, revision: Revision) {
        self.staged.revision = revision;
        self.staged.changes.push(Change { revision, key: key.to_owned(), value });
    }

    /// Adds a lease.
    pub fn grant(&mut self, ttl: u64) -> LeaseNumber {
        // No revision is used twice, so no lease number is.
        let revision = Revision(self.staged.revision.0 + 1);
        self.staged.revision = revision;
        let lease = LeaseNumber(revision.0);
        self.staged.leases.insert(lease, Some(ttl));
        lease
    }

    /// Ends a lease and deletes the entries bound to it.
    ///
    /// # Errors
    /// [`StoreError::NoLease`].
    pub fn revoke(&mut self, lease: LeaseNumber) -> Result<(), StoreError> {
        if !self.has_lease(lease) {
            return Err(StoreError::NoLease(lease.0));
        }
        self.staged.leases.insert(lease, None);
        let is_held = |(key, entry): (&String, &Entry)| (entry.lease == Some(lease)).then(|| key.clone());
        let keys: Vec<String> = self.contents.entries.iter().filter_map(is_held).collect();
        let revision = Revision(self.staged.revision.0 + 1);
        for key in keys {
            self.delete(&key, revision);
        }
        Ok(())
    }
}
