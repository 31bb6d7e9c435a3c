//! The spill files of one node: writes, reads and moves objects at places that [`super::SpillSpace`] gives
//! out.
//!
//! Any number of threads may use it at once. The caller makes sure that no object is written over a live one,
//! and that an object is read only after `write` has returned. A lock is held while a file is looked up and,
//! per file, while it is made; never while bytes are written or read.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use sooner_wire::id::OBJECT_ID_BYTES;

use super::buffer::{Buffers, PIECE_BYTES};
use super::directory::Directory;
use super::file::File;
use super::format::{BLOCK_BYTES, CHUNK_BYTES, SpillHeader, checksums, header_bytes};
use super::{SpillError, SpillPlace, SpillPulse};

const CHUNK: usize = CHUNK_BYTES as usize;
const BLOCK: usize = BLOCK_BYTES as usize;
const _: () = assert!(PIECE_BYTES.is_multiple_of(CHUNK) && CHUNK.is_multiple_of(BLOCK));

/// With the page cache, bytes are written to the disk after so many, so that few pages wait for it.
const CACHED_BYTES: usize = 32 << 20;

/// Objects are written together up to this size (bytes): one call keeps the disk busy without a gap.
const TOGETHER_BYTES: usize = 16 << 20;

/// Most pieces of memory in one call (`IOV_MAX` of the kernel is 1024); an object has three at most.
const PIECES_MAX: usize = 1000;
const _: () =
    assert!(PIECES_MAX / 3 * 2 * BLOCK <= PIECE_BYTES, "headers and last blocks have room in a buffer");

/// An object to be written.
#[derive(Debug, Clone, Copy)]
pub struct SpillObject<'a> {
    /// Where to write it.
    pub place: SpillPlace,
    /// Its id.
    pub id: &'a [u8; OBJECT_ID_BYTES],
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// A file that a thread has begun to make; its descriptor once it is made.
type Slot = Arc<Mutex<Option<Arc<OwnedFd>>>>;

/// See the module. Dropping it ends all its files.
#[derive(Debug)]
pub struct SpillFiles {
    directories: Vec<Directory>,
    files: Mutex<BTreeMap<u64, Slot>>,
    buffers: Buffers,
    pulse: Arc<SpillPulse>,
    /// How much could still be written at the last check (bytes).
    room: AtomicU64,
}

impl SpillFiles {
    /// Checks whether and how files can be made in these directories, which must exist.
    ///
    /// # Errors
    /// [`SpillError`] with the first directory that cannot be used.
    pub fn open(directories: &[PathBuf]) -> Result<Self, SpillError> {
        if directories.is_empty() {
            return Err(SpillError::NoDirectory);
        }
        let buffers = Buffers::default();
        let directories = directories.iter().map(|path| Directory::open(path));
        let directories = directories.collect::<Result<_, _>>()?;
        Ok(Self {
            directories,
            files: Mutex::default(),
            buffers,
            pulse: Arc::default(),
            room: AtomicU64::new(u64::MAX),
        })
    }

    /// For threads that wait for one that uses these files: it shows whether the disk answers, and lets them
    /// end its work.
    #[must_use]
    pub fn pulse(&self) -> Arc<SpillPulse> {
        self.pulse.clone()
    }

    /// How much more could be written (bytes) to the last directory that was checked, at that time.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.room.load(Ordering::Relaxed)
    }

    fn check_room(&self, file: &File<'_>, bytes: u64) -> Result<(), SpillError> {
        let room = file.check_room(bytes);
        self.room.store(*room.as_ref().unwrap_or(&0), Ordering::Relaxed);
        room.map(drop)
    }

    /// Writes an object to its place.
    ///
    /// # Errors
    /// [`SpillError`]: the content of the place is undefined then.
    pub fn write(
        &self,
        place: SpillPlace,
        id: &[u8; OBJECT_ID_BYTES],
        bytes: &[u8],
    ) -> Result<(), SpillError> {
        self.write_batch(&[SpillObject { place, id, bytes }])
    }

    /// Writes several objects. Those at adjoining places, in this order, are written together: small objects
    /// take a fraction of the time that they take one by one.
    ///
    /// # Errors
    /// [`SpillError`]: none of them counts as written then.
    pub fn write_batch(&self, objects: &[SpillObject<'_>]) -> Result<(), SpillError> {
        for SpillObject { place, bytes, .. } in objects {
            check_range(*place, 0, bytes.len(), bytes.len() as u64 == place.length)?;
        }
        let mut rest = objects;
        while let Some(first) = rest.first() {
            let file = self.file_to_write(first.place)?;
            let (together, others) = rest.split_at(count_together(&file, rest));
            let bytes = rest[..together.len().max(1)].iter().map(|object| object.place.disk_bytes()).sum();
            self.check_room(&file, bytes)?;
            if together.is_empty() {
                self.write_alone(&file, first)?;
                rest = &rest[1..];
            } else {
                self.write_together(&file, together)?;
                rest = others;
            }
        }
        Ok(())
    }

    /// Writes adjoining objects with one call, without copying them.
    fn write_together(&self, file: &File<'_>, objects: &[SpillObject<'_>]) -> Result<(), SpillError> {
        self.buffers.with(|buffer| {
            let mut pieces = Vec::with_capacity(objects.len() * 3);
            // Headers and last blocks.
            let mut rest = buffer;
            for SpillObject { place, id, bytes } in objects {
                let (header, more) = rest.split_at_mut(BLOCK);
                SpillHeader::new(checksums(bytes).collect()).encode(*place, id, header);
                let (whole, tail) = bytes.split_at(bytes.len() - bytes.len() % BLOCK);
                let (padded, more) = more.split_at_mut(tail.len().next_multiple_of(BLOCK));
                fill(padded, tail);
                rest = more;
                let of_object: [&[u8]; 3] = [header, whole, padded];
                pieces.extend(of_object.into_iter().filter(|piece| !piece.is_empty()).map(IoSlice::new));
            }
            let (begin, bytes) =
                (objects[0].place.offset, objects.iter().map(|object| object.place.disk_bytes()));
            file.write_pieces(&mut pieces, begin)?;
            file.let_go(begin, bytes.sum(), true)
        })
    }

    /// Writes an object that is large, or that direct I/O cannot take as it lies.
    fn write_alone(&self, file: &File<'_>, object: &SpillObject<'_>) -> Result<(), SpillError> {
        let SpillObject { place, id, bytes } = *object;
        let body = place.offset + header_bytes(place.length);
        let mut sums = Vec::with_capacity(bytes.len().div_ceil(CHUNK));
        let mut at = body;
        for (number, piece) in bytes.chunks(PIECE_BYTES).enumerate() {
            sums.extend(checksums(piece));
            self.write_piece(file, piece, at)?;
            at += piece.len() as u64;
            if (number + 1).is_multiple_of(CACHED_BYTES / PIECE_BYTES) {
                file.let_go(body, at - body, true)?;
            }
        }
        self.write_header(file, place, id, sums)?;
        file.let_go(place.offset, place.disk_bytes(), true)
    }

    /// Reads `into.len()` bytes of the object from its byte `from` on. Each chunk that contains some of them
    /// is verified as a whole.
    ///
    /// # Errors
    /// [`SpillError`]: what is in `into` then means nothing.
    pub fn read(
        &self,
        place: SpillPlace,
        id: &[u8; OBJECT_ID_BYTES],
        from: u64,
        into: &mut [u8],
    ) -> Result<(), SpillError> {
        let end = from.checked_add(into.len() as u64);
        check_range(place, from, into.len(), end.is_some_and(|end| end <= place.length))?;
        let file = self.file_to_read(place)?;
        if place.length <= CHUNK_BYTES {
            self.read_small(&file, place, id, from, into)?;
        } else {
            self.read_large(&file, place, id, from, into)?;
        }
        file.let_go(place.offset, place.disk_bytes(), false)
    }

    /// Copies an object to another place, verified on the way. Both places are valid afterwards.
    ///
    /// # Errors
    /// [`SpillError`]: the new place has no readable object then.
    pub fn copy(
        &self,
        from: SpillPlace,
        to: SpillPlace,
        id: &[u8; OBJECT_ID_BYTES],
    ) -> Result<(), SpillError> {
        for place in [from, to] {
            check_range(place, 0, place.length as usize, from.length == to.length)?;
        }
        let source = self.file_to_read(from)?;
        let target = self.file_to_write(to)?;
        target.check_room_to_move(to.disk_bytes())?;
        let header = self.read_header(&source, from, id)?;
        let header_length = header_bytes(from.length);
        self.buffers.with(|buffer| {
            let mut done = 0;
            while done < from.length {
                let length = (from.length - done).min(PIECE_BYTES as u64) as usize;
                let at = header_length + done;
                let object = self.read_piece(&source, from, &header, done, length, buffer)?;
                assert_eq!(object.len(), length);
                buffer[length..length.next_multiple_of(BLOCK)].fill(0);
                target.write(&buffer[..length.next_multiple_of(BLOCK)], to.offset + at)?;
                done += length as u64;
                if done.is_multiple_of(CACHED_BYTES as u64) {
                    target.let_go(to.offset, at, true)?;
                }
            }
            Ok(())
        })?;
        self.write_header(&target, to, id, header.sums().to_vec())?;
        source.let_go(from.offset, from.disk_bytes(), false)?;
        target.let_go(to.offset, to.disk_bytes(), true)
    }

    /// Deletes a file. The file system gets its bytes back when the last reader is done. A file that was
    /// never written to is ignored.
    pub fn delete(&self, file: u64) {
        // The last thread to close the file does the file system's work, so this is not done under the lock.
        let slot = self.files.lock().remove(&file);
        drop(slot);
    }

    /// The directory of a file, for reports.
    #[must_use]
    pub fn directory(&self, file: u64) -> &std::path::Path {
        self.directory_of(file).path()
    }

    fn directory_of(&self, file: u64) -> &Directory {
        &self.directories[(file % self.directories.len() as u64) as usize]
    }

    fn file_to_write(&self, place: SpillPlace) -> Result<File<'_>, SpillError> {
        let directory = self.directory_of(place.file);
        let slot = self.files.lock().entry(place.file).or_default().clone();
        // Two threads that write the first objects of a file must make it once.
        let mut slot = slot.lock();
        if let Some(descriptor) = &*slot {
            return Ok(File { descriptor: descriptor.clone(), directory, pulse: &self.pulse });
        }
        let descriptor = Arc::new(directory.create()?);
        *slot = Some(descriptor.clone());
        Ok(File { descriptor, directory, pulse: &self.pulse })
    }

    fn file_to_read(&self, place: SpillPlace) -> Result<File<'_>, SpillError> {
        let slot = self.files.lock().get(&place.file).cloned();
        let descriptor = slot.and_then(|slot| slot.lock().clone()).ok_or(SpillError::NoFile { place })?;
        Ok(File { descriptor, directory: self.directory_of(place.file), pulse: &self.pulse })
    }

    /// Writes bytes of an object, without a buffer where possible.
    fn write_piece(&self, file: &File<'_>, piece: &[u8], at: u64) -> Result<(), SpillError> {
        let (whole, tail) = piece.split_at(piece.len() - piece.len() % BLOCK);
        if file.takes(whole) {
            file.write(whole, at)?;
            if tail.is_empty() {
                return Ok(());
            }
            return self.buffers.with(|buffer| {
                fill(&mut buffer[..BLOCK], tail);
                file.write(&buffer[..BLOCK], at + whole.len() as u64)
            });
        }
        self.buffers.with(|buffer| {
            let padded = &mut buffer[..piece.len().next_multiple_of(BLOCK)];
            fill(padded, piece);
            file.write(padded, at)
        })
    }

    /// The header is written last: an incomplete object has none.
    fn write_header(
        &self,
        file: &File<'_>,
        place: SpillPlace,
        id: &[u8; OBJECT_ID_BYTES],
        sums: Vec<u32>,
    ) -> Result<(), SpillError> {
        self.buffers.with(|buffer| {
            let header = &mut buffer[..header_bytes(place.length) as usize];
            SpillHeader::new(sums).encode(place, id, header);
            file.write(header, place.offset)
        })
    }

    fn read_header(
        &self,
        file: &File<'_>,
        place: SpillPlace,
        id: &[u8; OBJECT_ID_BYTES],
    ) -> Result<SpillHeader, SpillError> {
        self.buffers.with(|buffer| {
            let header = &mut buffer[..header_bytes(place.length) as usize];
            let found = file.read(header, place.offset)?;
            SpillHeader::parse(&header[..found], place, id).map_err(|damage| file.damaged(place, damage))
        })
    }

    /// Reads header and object with one call.
    fn read_small(
        &self,
        file: &File<'_>,
        place: SpillPlace,
        id: &[u8; OBJECT_ID_BYTES],
        from: u64,
        into: &mut [u8],
    ) -> Result<(), SpillError> {
        self.buffers.with(|buffer| {
            let record = &mut buffer[..place.disk_bytes() as usize];
            let found = file.read(record, place.offset)?;
            let damaged = |damage| file.damaged(place, damage);
            let header = SpillHeader::parse(&record[..found], place, id).map_err(damaged)?;
            let expected = BLOCK + place.length as usize;
            let cut = super::Damage::Cut { found: found as u64, expected: expected as u64 };
            let object = record[..found].get(BLOCK..expected).ok_or_else(|| damaged(cut))?;
            header.verify(0, object).map_err(damaged)?;
            into.copy_from_slice(&object[from as usize..][..into.len()]);
            Ok(())
        })
    }

    fn read_large(
        &self,
        file: &File<'_>,
        place: SpillPlace,
        id: &[u8; OBJECT_ID_BYTES],
        from: u64,
        into: &mut [u8],
    ) -> Result<(), SpillError> {
        let header = self.read_header(file, place, id)?;
        let mut done = 0;
        while done < into.len() {
            let at = from + done as u64;
            let skip = (at % CHUNK_BYTES) as usize;
            let rest = into.len() - done;
            let whole = rest / CHUNK * CHUNK;
            if skip == 0 && whole > 0 && file.takes(&into[done..done + whole]) {
                read_straight(file, place, &header, at, &mut into[done..done + whole])?;
                done += whole;
                continue;
            }
            // One chunk if the range begins inside it: the chunks after it may be read without a buffer.
            let begin = at - skip as u64;
            let wanted = if skip > 0 || whole == 0 { CHUNK } else { whole.min(PIECE_BYTES) };
            let length = (place.length - begin).min(wanted as u64) as usize;
            let count = (length - skip).min(rest);
            self.buffers.with(|buffer| {
                let object = self.read_piece(file, place, &header, begin, length, buffer)?;
                into[done..done + count].copy_from_slice(&object[skip..skip + count]);
                Ok(())
            })?;
            done += count;
        }
        Ok(())
    }

    /// Reads whole chunks from the object's byte `begin` on, to the start of a buffer.
    fn read_piece<'a>(
        &self,
        file: &File<'_>,
        place: SpillPlace,
        header: &SpillHeader,
        begin: u64,
        length: usize,
        buffer: &'a mut [u8],
    ) -> Result<&'a [u8], SpillError> {
        let padded = &mut buffer[..length.next_multiple_of(BLOCK)];
        let found = file.read(padded, place.offset + header_bytes(place.length) + begin)?;
        let cut = super::Damage::Cut { found: found as u64, expected: length as u64 };
        let object = padded[..found].get(..length).ok_or_else(|| file.damaged(place, cut))?;
        let first = (begin / CHUNK_BYTES) as usize;
        header.verify(first, object).map_err(|damage| file.damaged(place, damage))?;
        Ok(object)
    }
}

impl Drop for SpillFiles {
    /// Freeing many large files takes time, so each one counts as an answer of the disk.
    fn drop(&mut self) {
        while let Some((_, slot)) = self.files.get_mut().pop_first() {
            drop(slot);
            self.pulse.beat();
        }
    }
}

/// Reads whole chunks from the object's byte `begin` on, directly into `into`: piece by piece, two at a time,
/// because disks are faster with more than one request.
fn read_straight(
    file: &File<'_>,
    place: SpillPlace,
    header: &SpillHeader,
    begin: u64,
    into: &mut [u8],
) -> Result<(), SpillError> {
    let body = place.offset + header_bytes(place.length);
    let is_one = into.len() <= PIECE_BYTES;
    let pieces = Mutex::new(into.chunks_mut(PIECE_BYTES).enumerate());
    let work = || {
        loop {
            // The lock is not held while a piece is read.
            let Some((number, piece)) = pieces.lock().next() else { return Ok(()) };
            let at = begin + (number * PIECE_BYTES) as u64;
            file.read_all(piece, body + at, place)?;
            let verified = header.verify((at / CHUNK_BYTES) as usize, piece);
            verified.map_err(|damage| file.damaged(place, damage))?;
        }
    };
    if is_one {
        return work();
    }
    std::thread::scope(|scope| {
        // If no thread can be started, this one reads all pieces.
        let other = std::thread::Builder::new().name("sooner-spill-2".into()).spawn_scoped(scope, work);
        let mine = work();
        let others = other.map_or(Ok(()), |other| other.join().expect("reading does not panic"));
        mine.and(others)
    })
}

/// How many objects, from the first on, adjoin and are written together; 0 if the first one is too large, or
/// direct I/O cannot take it as it lies.
fn count_together(file: &File<'_>, objects: &[SpillObject<'_>]) -> usize {
    let (mut bytes, mut next) = (0, objects[0].place);
    let count = objects.iter().take(PIECES_MAX / 3).take_while(|object| {
        let place = object.place;
        let is_next = (place.file, place.offset) == (next.file, next.offset);
        next.offset = place.offset + place.disk_bytes();
        bytes += object.bytes.len();
        let whole = &object.bytes[..object.bytes.len() - object.bytes.len() % BLOCK];
        is_next && bytes <= TOGETHER_BYTES && file.takes(whole)
    });
    count.count()
}

fn check_range(place: SpillPlace, from: u64, bytes: usize, is_within: bool) -> Result<(), SpillError> {
    let is_placed = place.offset.is_multiple_of(BLOCK_BYTES)
        && place.length <= sooner_wire::limits::SPILL_OBJECT_BYTES_MAX
        && place.offset <= i64::MAX as u64 - 2 * sooner_wire::limits::SPILL_OBJECT_BYTES_MAX;
    if is_within && is_placed {
        return Ok(());
    }
    Err(SpillError::OutOfRange { place, from, bytes: bytes as u64 })
}

/// Copies, and fills up with zeros, so that no other content of the buffer reaches the disk.
fn fill(into: &mut [u8], from: &[u8]) {
    into[..from.len()].copy_from_slice(from);
    into[from.len()..].fill(0);
}

#[cfg(test)]
mod tests;
