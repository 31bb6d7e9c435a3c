//! A store without a disk, for clusters that need not survive their head, and for tests: [`Local`] on
//! [`Ram`]. [`Local`] itself is a store in this process, on any [`Keeper`].

use sooner_protocol::time::Instant;

use super::contents::{Contents, Group, Staged};
use super::store::{Batch, Change, Entry, LeaseNumber, Outcome, Revision, Store, StoreError, Watch};

/// What keeps the contents of a [`Local`] store.
pub trait Keeper: Send {
    /// Makes changes durable. `contents` is the state without them.
    ///
    /// # Errors
    /// [`StoreError::ReadOnly`]: the changes count as not made.
    fn write(&mut self, contents: &Contents, staged: &Staged, now: Instant) -> Result<(), StoreError>;
}

/// Keeps nothing.
#[derive(Debug, Default)]
pub struct Ram;

impl Keeper for Ram {
    fn write(&mut self, _: &Contents, _: &Staged, _: Instant) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A store in this process. Everything is read from memory, so reads never fail and never wait.
#[derive(Debug, Default)]
pub struct Local<K> {
    contents: Contents,
    keeper: K,
}

impl Local<Ram> {
    /// An empty store without a disk.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::default()
    }
}

impl<K: Keeper> Local<K> {
    /// A store with these contents, which the keeper already holds.
    pub fn new(contents: Contents, keeper: K) -> Self {
        Self { contents, keeper }
    }

    fn change<T>(
        &mut self,
        now: Instant,
        change: impl FnOnce(&mut Group<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut group = Group::new(&self.contents);
        let result = change(&mut group)?;
        let staged = group.finish();
        if !staged.is_empty() {
            self.keeper.write(&self.contents, &staged, now)?;
            self.contents.absorb(staged, now);
        }
        Ok(result)
    }
}

impl<K: Keeper> Store for Local<K> {
    fn get(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        Ok(self.contents.get(key).cloned())
    }

    fn range(&self, prefix: &str) -> Result<Vec<(String, Entry)>, StoreError> {
        Ok(self.contents.range(prefix).map(|(key, entry)| (key.clone(), entry.clone())).collect())
    }

    fn revision(&self) -> Revision {
        self.contents.revision()
    }

    fn commit(&mut self, batches: &[Batch], now: Instant) -> Result<Vec<Outcome>, StoreError> {
        self.change(now, |group| Ok(batches.iter().map(|batch| group.apply(batch)).collect()))
    }

    fn changes(&self, watch: &mut Watch) -> Result<Vec<Change>, StoreError> {
        self.contents.changes(watch)
    }

    fn grant(&mut self, ttl: u64, now: Instant) -> Result<LeaseNumber, StoreError> {
        self.change(now, |group| Ok(group.grant(ttl)))
    }

    fn renew(&mut self, lease: LeaseNumber, now: Instant) -> Result<(), StoreError> {
        self.contents.renew(lease, now)
    }

    fn revoke(&mut self, lease: LeaseNumber, now: Instant) -> Result<(), StoreError> {
        self.change(now, |group| group.revoke(lease))
    }

    fn expire(&mut self, now: Instant) -> Result<Vec<LeaseNumber>, StoreError> {
        let expired = self.contents.expired(now);
        self.change(now, |group| {
            expired.iter().try_for_each(|lease| group.revoke(*lease))?;
            Ok(expired)
        })
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.contents.next_deadline()
    }
}
