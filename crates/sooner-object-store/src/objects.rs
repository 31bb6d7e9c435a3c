//! The spill files of one session in an object store: writes, reads, copies and deletes them, and removes
//! those that dead sessions left.
//!
//! A file is written as a whole, by one call, and never changed: either all its values are there, or none.
//! Bytes of values go from shared memory to the socket without a copy of ours. On reading, they go from the
//! socket's buffers directly to their destination, several ranges at a time, and every chunk is checked
//! against the checksum that it had when it was written. The checksums are kept here (4 bytes per MiB), so
//! that they need no request.
//!
//! Objects of deleted files are deleted when there is time ([`SpillObjects::tend`]), many by one request.
//! Failed deletions are retried. At the end all objects of the session are listed and deleted
//! ([`SpillObjects::close`]).
//!
//! It touches only what lies below its own prefix, and sessions that are dead by the rules of
//! [`crate::session`].

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutPayload};
use sooner_store::Mapping;
use sooner_store::spill::{BLOCK_BYTES, CHUNK_BYTES, SpillHeader, SpillPlace, SpillPulse};
use sooner_wire::id::OBJECT_ID_BYTES;

use crate::checked::Arriving;
use crate::requests::Requests;
use crate::session::{self, Identity, RENEW};
use crate::{StoreError, StoreUrl, layout};

/// Values that wait at the same time are fused into files of at most so many bytes.
pub const BATCH_BYTES: u64 = 32 << 20;

/// How much is read at a time (bytes): enough for several requests.
pub const PIECE_BYTES: u64 = 32 << 20;

/// The most files of a session: so many that files need not grow, since each costs only a line in a table.
pub const FILES_MAX: usize = 1 << 20;

/// Objects that are uploaded at a time.
const PUTS: usize = 4;

/// Ranges that are downloaded at a time, and the length of each (bytes).
const GETS: usize = 8;
const GET_BYTES: u64 = 4 << 20;
const _: () = assert!(GET_BYTES.is_multiple_of(CHUNK_BYTES) && GETS as u64 * GET_BYTES == PIECE_BYTES);

/// Objects that are listed or deleted at a time: as many as S3 takes in one request.
const DELETES: usize = 1000;

/// If so many objects wait to be deleted, they are deleted even if there is other work.
const DELETES_OVERDUE: u64 = 256;

/// Limit for the first requests to the store together. The session begins only after them.
const START_LIMIT: Duration = Duration::from_secs(8);
/// Limit for a few small requests, during which the thread does nothing else.
const SMALL_LIMIT: Duration = Duration::from_secs(10);
/// Limit for a request at the end: shorter than the time after which a store counts as hanging.
const LAST_LIMIT: Duration = Duration::from_secs(4);
/// Limit for deleting at the end. The next session deletes what is left then.
const END_LIMIT: Duration = Duration::from_secs(50);
/// How long to wait before a failed deletion is retried.
const AGAIN: Duration = Duration::from_secs(5);

/// The most other sessions that are listed at a start.
const SESSIONS_MAX: usize = 1000;

static ZEROS: [u8; BLOCK_BYTES as usize] = [0; BLOCK_BYTES as usize];

/// A value to be written, and where it lies in shared memory.
pub struct SpillValue {
    /// Where to write it.
    pub place: SpillPlace,
    /// Its id.
    pub id: [u8; OBJECT_ID_BYTES],
    /// The memory.
    pub mapping: Arc<Mapping>,
    /// Its offset in the memory. It must not change before it is written.
    pub block: u64,
}

/// Bytes of a value where they lie.
struct Shared {
    mapping: Arc<Mapping>,
    block: u64,
    length: u64,
}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        self.mapping.bytes(self.block, self.length)
    }
}

struct File {
    length: u64,
    /// The header of each record, by the record's offset.
    headers: BTreeMap<u64, SpillHeader>,
}

struct State {
    files: BTreeMap<u64, File>,
    /// Deleted files, and which of their objects are still to be deleted.
    doomed: VecDeque<(u64, Range<u64>)>,
    /// The earliest time of the next deletion.
    deletes_at: Instant,
    /// When the marker is to be written again.
    renews_at: Instant,
    /// Sessions that were not yet looked at.
    others: VecDeque<Path>,
}

/// See the module. One thread uses it at a time.
pub struct SpillObjects {
    store: Arc<dyn ObjectStore>,
    requests: Requests,
    url: String,
    session: Path,
    identity: Identity,
    /// The store's clock when the session began (seconds).
    began: i64,
    state: RefCell<State>,
}

impl SpillObjects {
    /// Checks that objects can be written, read, listed and deleted there, and begins a session.
    ///
    /// # Errors
    /// [`StoreError`], within seconds.
    pub fn open(url: &StoreUrl) -> Result<Self, StoreError> {
        let begun = Self::begin(url.connect()?, url.as_str(), url.prefix(), Identity::own());
        begun.map_err(|error| match (error, url.note()) {
            (StoreError::Unreachable { url, reason }, Some(note)) => {
                StoreError::Unreachable { url, reason: format!("{reason} ({note})") }
            }
            (error, _) => error,
        })
    }

    fn begin(
        store: Arc<dyn ObjectStore>,
        url: &str,
        prefix: &Path,
        identity: Identity,
    ) -> Result<Self, StoreError> {
        let requests = Requests::new(url)?;
        let name = session::new_name()
            .map_err(|error| StoreError::NoExecutor { url: url.to_owned(), reason: error.to_string() })?;
        let all = session::sessions(prefix);
        let session = all.clone().join(name);
        let now = Instant::now();
        let state = State {
            files: BTreeMap::new(),
            doomed: VecDeque::new(),
            deletes_at: now,
            renews_at: now + RENEW,
            others: VecDeque::new(),
        };
        let url = url.to_owned();
        let mut this = Self { store, requests, url, session, identity, began: 0, state: RefCell::new(state) };
        match this.requests.run(START_LIMIT, this.look_around(&all)) {
            Ok((began, others)) => {
                this.began = began;
                this.state.get_mut().others = others;
                Ok(this)
            }
            Err(error) => {
                // Deletes what may have been written; if nothing could be, this fails, too.
                let keys = vec![session::probe(&this.session), session::marker(&this.session)];
                let _ = this.requests.run(LAST_LIMIT, this.delete_all(keys));
                Err(error)
            }
        }
    }

    /// Tries all operations that will be needed. Returns the store's clock and the other sessions.
    async fn look_around(&self, all: &Path) -> Result<(i64, VecDeque<Path>), StoreError> {
        let marker = session::marker(&self.session);
        self.write_marker().await?;
        let probe = session::probe(&self.session);
        let expected = self.session.as_ref().as_bytes();
        let written = self.store.put(&probe, PutPayload::from(expected.to_vec())).await;
        written.map_err(|error| self.error(WRITE, &error))?;
        let options = GetOptions::new().with_range(Some(GetRange::Bounded(1..expected.len() as u64)));
        let read = async { self.store.get_opts(&probe, options).await?.bytes().await }.await;
        let read = read.map_err(|error| self.error(READ, &error))?;
        if read != expected[1..] {
            let reason = "what was read is not what had just been written".to_owned();
            return Err(StoreError::Failed { url: self.url.clone(), doing: READ, reason });
        }
        self.delete_all(vec![probe]).await?;
        let found = self.store.head(&marker).await.map_err(|error| self.error(READ, &error))?;
        let listed =
            self.store.list_with_delimiter(Some(all)).await.map_err(|error| self.error(LIST, &error))?;
        let others = listed.common_prefixes.into_iter().filter(|other| *other != self.session);
        Ok((found.last_modified.timestamp(), others.take(SESSIONS_MAX).collect()))
    }

    /// The pulse, for threads that wait for one that uses this.
    #[must_use]
    pub fn pulse(&self) -> Arc<SpillPulse> {
        self.requests.pulse().clone()
    }

    /// Writes a file with these values, whose places adjoin from its beginning on.
    ///
    /// # Errors
    /// [`StoreError`]: none of the values is there then. The file must be deleted nevertheless.
    pub fn write(&self, values: &[SpillValue]) -> Result<(), StoreError> {
        let values = values.iter().map(|value| {
            let SpillValue { place, id, mapping, block } = value;
            let shared = Shared { mapping: mapping.clone(), block: *block, length: place.length };
            (*place, *id, Bytes::from_owner(shared))
        });
        self.write_file(values.collect())
    }

    fn write_file(&self, values: Vec<(SpillPlace, [u8; OBJECT_ID_BYTES], Bytes)>) -> Result<(), StoreError> {
        let Some((first, _, _)) = values.first() else { return Ok(()) };
        let number = first.file;
        let mut file = File { length: 0, headers: BTreeMap::new() };
        let mut pieces = Vec::with_capacity(values.len() * 3);
        for (place, id, bytes) in values {
            if (place.file, place.offset, place.length) != (number, file.length, bytes.len() as u64) {
                return Err(StoreError::OutOfRange { place, from: 0, bytes: bytes.len() as u64 });
            }
            let header = SpillHeader::new(self.sums_of(&bytes)?);
            let mut encoded = vec![0; place.header_bytes() as usize];
            header.encode(place, &id, &mut encoded);
            let padding = place.disk_bytes() as usize - encoded.len() - bytes.len();
            pieces.extend([Bytes::from(encoded), bytes, Bytes::from_static(&ZEROS[..padding])]);
            file.headers.insert(place.offset, header);
            file.length += place.disk_bytes();
        }
        // Parts of the file may be there even if this fails.
        self.state.borrow_mut().files.insert(number, file);
        let puts = layout::cut(pieces).into_iter().enumerate().map(|(object, payload)| async move {
            let key = session::key(&self.session, number, object as u64);
            self.store.put(&key, payload).await.map_err(|error| self.error(WRITE, &error))
        });
        let puts = stream::iter(puts).buffer_unordered(PUTS).try_for_each(|_| {
            self.requests.pulse().beat();
            std::future::ready(Ok(()))
        });
        self.requests.run_all(puts)
    }

    fn sums_of(&self, bytes: &[u8]) -> Result<Vec<u32>, StoreError> {
        let mut sums = Vec::with_capacity(bytes.len().div_ceil(CHUNK_BYTES as usize));
        for chunk in bytes.chunks(CHUNK_BYTES as usize) {
            self.requests.pulse().check().map_err(|_| StoreError::Ending)?;
            sums.push(crc32fast::hash(chunk));
        }
        Ok(sums)
    }

    /// Reads `into.len()` bytes of a value from its byte `from` on. Each chunk that contains some of them is
    /// checked as a whole.
    ///
    /// # Errors
    /// [`StoreError`]: the content of `into` is meaningless then.
    pub fn read(&self, place: SpillPlace, from: u64, into: &mut [u8]) -> Result<(), StoreError> {
        let wanted = from..from.saturating_add(into.len() as u64);
        let state = self.state.borrow();
        let header = state.files.get(&place.file).and_then(|file| file.headers.get(&place.offset));
        let Some(header) = header.filter(|_| wanted.end <= place.length) else {
            return Err(StoreError::OutOfRange { place, from, bytes: into.len() as u64 });
        };
        let mut rest = into;
        let mut gets = Vec::new();
        let mut at = wanted.start;
        while at < wanted.end {
            // Whole chunks; the unneeded bytes at both ends are few beside a request.
            let begin = at / CHUNK_BYTES * CHUNK_BYTES;
            let end = (begin + GET_BYTES).min(wanted.end.next_multiple_of(CHUNK_BYTES)).min(place.length);
            let (part, more) = rest.split_at_mut((end.min(wanted.end) - at) as usize);
            rest = more;
            gets.push(self.get(place, begin..end, Arriving::new(header, begin, end, at, part)));
            at = end;
        }
        let gets = stream::iter(gets).buffer_unordered(GETS).try_for_each(|()| std::future::ready(Ok(())));
        self.requests.run_all(gets)
    }

    /// Gets bytes of a value, which may lie in two objects.
    async fn get(
        &self,
        place: SpillPlace,
        range: Range<u64>,
        mut arriving: Arriving<'_>,
    ) -> Result<(), StoreError> {
        let damaged = |damage| StoreError::Corrupt { url: self.url.clone(), place, damage };
        let body = place.offset + place.header_bytes();
        for (object, bytes) in layout::parts(body + range.start..body + range.end) {
            let key = session::key(&self.session, place.file, object);
            let options = GetOptions::new().with_range(Some(GetRange::Bounded(bytes)));
            let found = self.store.get_opts(&key, options).await.map_err(|error| self.error(READ, &error))?;
            let mut found = found.into_stream();
            while let Some(bytes) = found.try_next().await.map_err(|error| self.error(READ, &error))? {
                self.requests.pulse().beat();
                arriving.take(&bytes).map_err(damaged)?;
            }
        }
        arriving.end().map_err(damaged)
    }

    /// Writes files of values that are in others, each checked on the way. Both places are valid then.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn copy(&self, values: &[(SpillPlace, SpillPlace, [u8; OBJECT_ID_BYTES])]) -> Result<(), StoreError> {
        for file in values.chunk_by(|(_, one, _), (_, next, _)| one.file == next.file) {
            let read = file.iter().map(|(from, to, id)| {
                let mut bytes = vec![0; from.length as usize];
                self.read(*from, 0, &mut bytes)?;
                Ok((*to, *id, Bytes::from(bytes)))
            });
            self.write_file(read.collect::<Result<_, _>>()?)?;
        }
        Ok(())
    }

    /// Deletes a file. Its objects are deleted when there is time. A file that was never written to is
    /// ignored.
    pub fn delete(&self, file: u64) {
        let mut state = self.state.borrow_mut();
        if let Some(found) = state.files.remove(&file) {
            state.doomed.push_back((file, 0..layout::objects_of(found.length)));
        }
    }

    /// Does the work that is due beside writing and reading, and returns the time until there is more.
    /// `is_idle`: there is no other work.
    pub fn tend(&self, is_idle: bool) -> Duration {
        let now = Instant::now();
        if now >= self.state.borrow().renews_at {
            // For a while, the store may not answer.
            let next = match self.requests.run(SMALL_LIMIT, self.write_marker()) {
                Ok(()) => RENEW,
                Err(_) => AGAIN,
            };
            self.state.borrow_mut().renews_at = Instant::now() + next;
        }
        let count: u64 =
            self.state.borrow().doomed.iter().map(|(_, objects)| objects.end - objects.start).sum();
        let is_due = now >= self.state.borrow().deletes_at && count > 0;
        if is_due && (is_idle || count >= DELETES_OVERDUE) {
            self.delete_doomed();
        } else if is_idle {
            self.look_at_another();
        }
        let state = self.state.borrow();
        let next = match (state.doomed.is_empty(), state.others.is_empty()) {
            (_, false) => now,
            (false, true) => state.deletes_at,
            (true, true) => state.renews_at,
        };
        next.min(state.renews_at).saturating_duration_since(Instant::now())
    }

    fn delete_doomed(&self) {
        let mut left = DELETES as u64;
        let mut keys = Vec::new();
        let mut taken = Vec::new();
        {
            let mut state = self.state.borrow_mut();
            while let Some((file, objects)) = state.doomed.pop_front() {
                let end = objects.end.min(objects.start + left);
                keys.extend((objects.start..end).map(|object| session::key(&self.session, file, object)));
                taken.push((file, objects.start..end));
                left -= end - objects.start;
                if end < objects.end {
                    state.doomed.push_front((file, end..objects.end));
                }
                if left == 0 {
                    break;
                }
            }
        }
        if self.requests.run(SMALL_LIMIT, self.delete_all(keys)).is_err() {
            let mut state = self.state.borrow_mut();
            state.deletes_at = Instant::now() + AGAIN;
            state.doomed.extend(taken);
        }
    }

    /// Looks at one other session, and deletes some of its objects if it is dead.
    fn look_at_another(&self) {
        let Some(other) = self.state.borrow_mut().others.pop_front() else { return };
        // If that fails, the next session does it.
        if self.requests.run(SMALL_LIMIT, self.reap(&other)) == Ok(true) {
            self.state.borrow_mut().others.push_front(other);
        }
    }

    /// Deletes objects of a session if it is dead, the marker last. True if more objects are left.
    async fn reap(&self, other: &Path) -> Result<bool, StoreError> {
        let marker = session::marker(other);
        let (identity, renewed) = match self.store.get(&marker).await {
            // Too large for a marker, so it is none.
            Ok(found) if found.meta.size > session::MARKER_BYTES_MAX => {
                (None, Some(found.meta.last_modified.timestamp()))
            }
            Ok(found) => {
                let renewed = found.meta.last_modified.timestamp();
                let text = found.bytes().await.map_err(|error| self.error(READ, &error))?;
                (Identity::decode(&String::from_utf8_lossy(&text)), Some(renewed))
            }
            Err(object_store::Error::NotFound { .. }) => (None, None),
            Err(error) => return Err(self.error(READ, &error)),
        };
        let found: Vec<_> = self
            .store
            .list(Some(other))
            .take(DELETES)
            .try_collect()
            .await
            .map_err(|error| self.error(LIST, &error))?;
        let newest = found.iter().map(|object| object.last_modified.timestamp()).max();
        let Some(renewed) = renewed.or(newest) else { return Ok(false) };
        let age = Duration::from_secs(u64::try_from(self.began - renewed).unwrap_or(0));
        if !self.identity.finds_dead(identity.as_ref(), age) {
            return Ok(false);
        }
        let has_more = found.len() == DELETES;
        let keys = found.into_iter().map(|object| object.location).filter(|key| *key != marker);
        self.delete_all(keys.collect()).await?;
        if !has_more {
            self.delete_all(vec![marker]).await?;
        }
        Ok(has_more)
    }

    /// Deletes all objects of the session, the marker last. Returns a message if some are left.
    pub fn close(&self) -> Option<String> {
        let begin = Instant::now();
        let marker = session::marker(&self.session);
        loop {
            let step = async {
                let found = self.store.list(Some(&self.session)).take(DELETES).try_collect::<Vec<_>>().await;
                let found = found.map_err(|error| self.error(LIST, &error))?;
                let keys: Vec<_> =
                    found.into_iter().map(|object| object.location).filter(|key| *key != marker).collect();
                let is_last = keys.is_empty();
                self.delete_all(if is_last { vec![marker.clone()] } else { keys }).await?;
                Ok(is_last)
            };
            let reason = match self.requests.run_last(LAST_LIMIT, step) {
                Ok(true) => return None,
                Ok(false) if begin.elapsed() < END_LIMIT => continue,
                Ok(false) => format!("there are more than can be deleted in {} s", END_LIMIT.as_secs()),
                Err(error) => error.to_string(),
            };
            return Some(format!(
                "objects of this session are left in the object store below {}/{}, because they could not be deleted: {reason}. The \
                 next session on this machine that spills there deletes them, or one elsewhere after a day",
                self.url.trim_end_matches('/'),
                self.session
                    .parts()
                    .skip(self.prefix_parts())
                    .map(|part| part.as_ref().to_owned())
                    .collect::<Vec<_>>()
                    .join("/"),
            ));
        }
    }

    fn prefix_parts(&self) -> usize {
        // The common part and the session's come behind the prefix that the user has named.
        self.session.parts().count() - 2
    }

    async fn write_marker(&self) -> Result<(), StoreError> {
        let text = self.identity.encode();
        let written = self.store.put(&session::marker(&self.session), PutPayload::from(text)).await;
        written.map_err(|error| self.error(WRITE, &error))?;
        self.requests.pulse().beat();
        Ok(())
    }

    /// Deletes objects, many by one request if the store can. Missing objects are no error.
    async fn delete_all(&self, keys: Vec<Path>) -> Result<(), StoreError> {
        let mut deleted = self.store.delete_stream(stream::iter(keys.into_iter().map(Ok)).boxed());
        while let Some(result) = deleted.next().await {
            match result {
                Ok(_) | Err(object_store::Error::NotFound { .. }) => self.requests.pulse().beat(),
                Err(error) => return Err(self.error(DELETE, &error)),
            }
        }
        Ok(())
    }

    fn error(&self, doing: &'static str, error: &object_store::Error) -> StoreError {
        StoreError::of(&self.url, doing, error)
    }
}

/// Operations, as errors name them.
pub(crate) const WRITE: &str = "write an object";
const READ: &str = "read an object";
pub(crate) const LIST: &str = "list objects";
const DELETE: &str = "delete objects";

#[cfg(test)]
mod tests;
