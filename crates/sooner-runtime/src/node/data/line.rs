//! One connection for values. One side asks for pieces, the other sends them: those of one value in the order
//! in which they were asked for. A value that is still arriving is sent as far as it has come, and does not
//! hold up others. The side that dialled asks, unless the asker could not dial and had the sender dial.
//!
//! No bytes of a value are held here: they go from the encryption to their block, and from a block to the
//! encryption. An asker on the same machine is lent the bytes instead, and reports when it has copied them.
//! Bytes on disk come in buffers, which are dropped when they are sent.

use std::collections::{BTreeMap, VecDeque};
use std::io::IoSlice;
use std::sync::Arc;

use rustix::io::Errno;
use sooner_protocol::node::objects::{self, Permit};
use sooner_protocol::session::hello::{Me, Refusal, on_answer, on_hello, welcome};
use sooner_protocol::time::Instant;
use sooner_store::{Mapping, Progress};
use sooner_wire::limits::{CHUNK_BYTES_MAX, LENT_BYTES, PIECE_BYTES, PIECES_ASKED, PIECES_MAX};
use sooner_wire::message::{
    CHUNK_HEAD_BYTES, ChunkHead, FetchEnd, FetchEnded, Fetching, Lent, Location, MemoryHere, MemoryOpen,
    Message, PeerHello, Refused, Taken,
};
use sooner_wire::version::READS_MEMORY;
use sooner_wire::{FetchAttempt, NodeId, ObjectId};

use super::Moved;
use super::neighbours::{Lending, Neighbours, Reading};
use super::reader::{Fault, Part, Reader};
use crate::node::send_buffers::SendBuffer;
use crate::transport::TlsStream;

/// Bytes read or written before other connections have their turn.
const TURN_BYTES: usize = 1 << 20;
/// Less than this of a value that is still arriving is not sent on by itself.
const FORWARD_BYTES_MIN: u64 = 64 << 10;

/// A part of a value that was asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    pub(super) object: ObjectId,
    pub(super) location: Location,
    /// A copy of this generation is meant, wherever it lies.
    pub(super) generation: Option<u64>,
    pub(super) attempt: FetchAttempt,
    /// Bytes before this one are there.
    pub(super) at: u64,
    pub(super) end: u64,
}

#[derive(Debug)]
pub(super) struct Served {
    pub(super) number: u64,
    pub(super) piece: Piece,
    pub(super) permit: Permit,
    /// When the peer asked for it, or the node was to be asked anew.
    pub(super) since: Instant,
    is_unwanted: bool,
    /// Bytes up to here are lent, and not taken yet.
    lent: Option<u64>,
    /// How far its value has come, if that is not whole.
    source: Option<Arc<Progress>>,
    /// The bytes to send, if they are not in a block.
    buffer: Option<SendBuffer>,
}

impl Served {
    /// The node lets the piece be sent, from this block.
    pub(super) fn begin(&mut self, block: u64, source: Option<Arc<Progress>>) {
        self.piece.location.offset = block;
        self.source = source;
    }

    /// The piece is sent from a buffer: the node keeps no block for it.
    pub(super) fn begin_from(&mut self, buffer: SendBuffer) {
        self.buffer = Some(buffer);
        self.permit = Permit::Given;
    }

    /// The block that the node keeps for the piece.
    pub(super) fn block(&self) -> Option<u64> {
        let is_kept = self.permit == Permit::Given && self.buffer.is_none();
        is_kept.then_some(self.piece.location.offset)
    }

    /// How far the piece may be sent, and whether that is final. Its bytes may come before earlier ones of
    /// the value, which comes over several connections.
    fn reached(&self) -> (u64, bool) {
        let Some(source) = &self.source else { return (self.piece.end, true) };
        let is_closed = source.is_closed();
        (source.reached_from(self.piece.at).min(self.piece.end), is_closed)
    }

    /// Whether the piece can be worked on: small chunks wait for more.
    fn is_ready(&self) -> bool {
        match self.permit {
            _ if self.lent.is_some() => false,
            Permit::Asked | Permit::Later(_) => false,
            Permit::Refused(_) => true,
            Permit::Given => {
                let (reached, is_last) = self.reached();
                let is_enough = reached == self.piece.end || reached >= self.piece.at + FORWARD_BYTES_MIN;
                is_enough || is_last || self.is_unwanted
            }
        }
    }
}

/// An event of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) enum News {
    /// A piece has arrived.
    Here { attempt: FetchAttempt },
    /// A piece will not come.
    Refused { attempt: FetchAttempt, reason: FetchEnd },
    /// The other side wants a piece.
    Wanted { number: u64, piece: Piece },
    /// A block need not be kept any more.
    Served { block: u64 },
}

/// Streams being written, by attempt.
pub(super) type Targets = BTreeMap<FetchAttempt, Arc<Progress>>;

/// See the module.
pub(super) struct Line {
    pub(super) stream: TlsStream,
    reader: Reader,
    talk: Talk,
    /// When bytes last came or went.
    pub(super) active: Instant,
    /// The chunk that is being sent.
    chunk: Option<Sending>,
}

/// A chunk that is being sent.
struct Sending {
    head: ChunkHead,
    /// How many bytes of head and value are sent.
    until: usize,
    /// The number of its piece.
    number: u64,
}

/// The messages of a connection, apart from how they travel.
struct Talk {
    /// The greeting of this side, if it dialled.
    hello: Option<PeerHello>,
    /// This side asks; otherwise it serves.
    asks: bool,
    is_greeted: bool,
    asked: VecDeque<Piece>,
    /// The stream of the bytes that come next.
    coming: FetchAttempt,
    /// Since the last `take_moved`.
    moved: Moved,
    served: VecDeque<Served>,
    made: u64,
    neighbours: Arc<Neighbours>,
    /// The other side may read this node's memory, and whether it does.
    lending: Option<Lending>,
    is_read: bool,
    /// Reads the other side's memory.
    reading: Option<Reading>,
    /// Messages to send, and how much of them is sent.
    said: Vec<u8>,
    sent_until: usize,
}

impl Line {
    /// `hello` is the greeting of this side, if it has dialled; `asks`: whether this side asks for pieces.
    pub(super) fn new(
        stream: TlsStream,
        hello: Option<PeerHello>,
        asks: bool,
        neighbours: Arc<Neighbours>,
        now: Instant,
    ) -> Self {
        let mut said = Vec::new();
        if let Some(hello) = &hello {
            Message::from(hello.clone()).append(&mut said, 0);
        }
        let talk = Talk {
            hello,
            asks,
            is_greeted: false,
            asked: VecDeque::new(),
            coming: FetchAttempt::default(),
            moved: Moved::default(),
            served: VecDeque::new(),
            made: 0,
            neighbours,
            lending: None,
            is_read: false,
            reading: None,
            said,
            sent_until: 0,
        };
        Self { stream, reader: Reader::default(), talk, active: now, chunk: None }
    }

    pub(super) fn is_greeted(&self) -> bool {
        self.talk.is_greeted
    }

    /// Whether this side asks.
    pub(super) fn asks(&self) -> bool {
        self.talk.asks
    }

    pub(super) fn is_idle(&self) -> bool {
        self.talk.asked.is_empty() && self.talk.served.is_empty()
    }

    /// Pieces asked for over it that have not come.
    pub(super) fn asked(&self) -> &VecDeque<Piece> {
        &self.talk.asked
    }

    pub(super) fn served(&self) -> impl Iterator<Item = &Served> {
        self.talk.served.iter()
    }

    pub(super) fn served_mut(&mut self, number: u64) -> Option<&mut Served> {
        self.talk.served.iter_mut().find(|served| served.number == number)
    }

    /// How much to ask for at a time (bytes).
    pub(super) fn piece_bytes(&self) -> u64 {
        if self.talk.reading.is_some() { LENT_BYTES } else { PIECE_BYTES }
    }

    /// Bytes that were lent may change from now on.
    pub(super) fn end_lending(&mut self) {
        self.talk.lending = None;
    }

    /// Whether another piece of a value may be asked for, where `depth` may be open at a time.
    ///
    /// Pieces of copies may have to wait for their bytes to come to the sender: they are counted per stream,
    /// and leave room for all others. Else nodes could wait for each other in a circle, each with the others'
    /// pieces ahead of those that can be sent.
    pub(super) fn has_room_for(&self, fetching: &objects::Fetching, depth: usize) -> bool {
        let asked = self.talk.asked.iter();
        if fetching.generation.is_none() {
            return asked.filter(|piece| piece.generation.is_none()).count() < depth;
        }
        let has_place = self.talk.asked.len() < PIECES_MAX - PIECES_ASKED;
        has_place && asked.filter(|piece| piece.attempt == fetching.attempt).count() < depth
    }

    /// Asks for a piece.
    pub(super) fn ask(&mut self, piece: Piece) {
        let Piece { object, location, generation, attempt, at, end } = piece;
        self.talk.send(&Fetching { object, location, begin: at, end, attempt, generation }.into());
        self.talk.asked.push_back(piece);
    }

    /// A stream is not wanted any more.
    pub(super) fn cancel(&mut self, attempt: FetchAttempt) {
        if let Some(piece) = self.talk.asked.iter().find(|piece| piece.attempt == attempt) {
            let ended = FetchEnded { object: piece.object, attempt, reason: FetchEnd::Unwanted };
            self.talk.send(&ended.into());
        }
    }

    /// Whether there is something to send.
    pub(super) fn has_more(&self) -> bool {
        !self.talk.said.is_empty() || self.chunk.is_some() || self.talk.next_served().is_some()
    }

    /// Bytes of values since the last call.
    pub(super) fn take_moved(&mut self) -> Moved {
        std::mem::take(&mut self.talk.moved)
    }

    /// Whether it sends on a value that is still arriving.
    pub(super) fn follows(&self) -> bool {
        self.talk.served.iter().any(|served| served.source.is_some())
    }

    /// Reads what is there.
    ///
    /// # Errors
    /// Why the connection has ended.
    pub(super) fn read(
        &mut self,
        me: &Me,
        targets: &Targets,
        now: Instant,
        news: &mut Vec<News>,
    ) -> Result<(), String> {
        let Self { stream, reader, talk, .. } = self;
        let mut fault = None;
        // The peer's identity is known before its bytes are handed up, but cannot be asked for meanwhile.
        let mut early = Vec::new();
        let is_greeted = talk.is_greeted;
        let result = stream.read_each(TURN_BYTES, |bytes| {
            if !is_greeted {
                return early.extend_from_slice(bytes);
            }
            if fault.is_none() {
                fault = reader.feed(bytes, |part| talk.on_part(part, targets, now, news)).err();
            }
        });
        if let (false, Some(certified)) = (early.is_empty(), stream.peer()) {
            let fed = reader.feed(&early, |part| match part {
                Part::Message(message) if !talk.is_greeted => talk.greet(&message, me, certified),
                part => talk.on_part(part, targets, now, news),
            });
            fault = fed.err();
        }
        if let Some(fault) = fault {
            return Err(fault.to_string());
        }
        match result {
            Ok(0) => Err("the peer ended the connection".to_owned()),
            Ok(_) => {
                self.active = now;
                Ok(())
            }
            Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(self.why(error)),
        }
    }

    /// Sends as much as the connection takes.
    ///
    /// # Errors
    /// Why the connection has ended.
    pub(super) fn flush(
        &mut self,
        mapping: &Mapping,
        now: Instant,
        news: &mut Vec<News>,
    ) -> Result<(), String> {
        let mut sent = 0;
        while sent < TURN_BYTES {
            match self.flush_once(mapping, now, news) {
                Ok(0) => break,
                Ok(bytes) => {
                    sent += bytes;
                    self.active = now;
                }
                Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
                Err(error) => return Err(self.why(error)),
            }
        }
        match self.stream.flush() {
            Ok(_) => Ok(()),
            Err(error) => Err(self.why(error)),
        }
    }

    /// Sends a part of what is next; nothing if nothing can be sent.
    fn flush_once(
        &mut self,
        mapping: &Mapping,
        now: Instant,
        news: &mut Vec<News>,
    ) -> rustix::io::Result<usize> {
        // A chunk that has begun comes before any message.
        if self.chunk.is_some() {
            return self.flush_chunk(mapping);
        }
        let talk = &mut self.talk;
        if !talk.said.is_empty() {
            let bytes = self.stream.write(&[IoSlice::new(&talk.said[talk.sent_until..])])?;
            talk.sent_until += bytes;
            if talk.sent_until == talk.said.len() {
                talk.said.clear();
                talk.sent_until = 0;
            }
            return Ok(bytes);
        }
        let Some(at) = talk.next_served() else { return Ok(0) };
        match talk.step(at, now, news) {
            Some(chunk) => self.chunk = Some(chunk),
            // Not a byte, but something was done.
            None => return Ok(1),
        }
        self.flush_chunk(mapping)
    }

    fn flush_chunk(&mut self, mapping: &Mapping) -> rustix::io::Result<usize> {
        let Some(Sending { head, until, number }) = &mut self.chunk else { return Ok(0) };
        let number = *number;
        let Some(served) = self.talk.served.iter_mut().find(|served| served.number == number) else {
            unreachable!("a piece stays until its chunk is sent");
        };
        let piece = &mut served.piece;
        let length = u64::from(head.length);
        let bytes = match &served.buffer {
            Some(buffer) => buffer.part(head.at, length),
            None => mapping.bytes(piece.location.offset + head.at, length),
        };
        let head_bytes = head.to_bytes();
        let parts = [
            IoSlice::new(&head_bytes[(*until).min(CHUNK_HEAD_BYTES)..]),
            IoSlice::new(&bytes[until.saturating_sub(CHUNK_HEAD_BYTES)..]),
        ];
        let sent = self.stream.write(&parts)?;
        *until += sent;
        if *until == CHUNK_HEAD_BYTES + bytes.len() {
            piece.at += length;
            self.talk.moved.sent += length;
            self.chunk = None;
        }
        Ok(sent)
    }

    fn why(&self, error: Errno) -> String {
        self.stream.failure().map_or_else(|| error.to_string(), |failure| failure.to_string())
    }
}

fn next_chunk(piece: &Piece, reached: u64) -> ChunkHead {
    let length = (reached - piece.at).min(u64::from(CHUNK_BYTES_MAX));
    ChunkHead {
        attempt: piece.attempt,
        at: piece.at,
        number: piece.object.task.number,
        length: u32::try_from(length).expect("at most a chunk"),
    }
}

impl Talk {
    /// The next piece that can be worked on. Pieces of a stream stay in order; a stream whose bytes have not
    /// arrived on this node does not hold up others.
    fn next_served(&self) -> Option<usize> {
        let mut late: Vec<FetchAttempt> = Vec::new();
        self.served.iter().position(|served| {
            let attempt = served.piece.attempt;
            let is_next = !late.contains(&attempt);
            // The peer was told of a piece that is lent to its end: the one behind it may go.
            if is_next && !served.is_ready() && served.lent != Some(served.piece.end) {
                late.push(attempt);
            }
            is_next && served.is_ready()
        })
    }

    /// Works on a piece. Returns the chunk to send, if any.
    fn step(&mut self, at: usize, now: Instant, news: &mut Vec<News>) -> Option<Sending> {
        let served = &mut self.served[at];
        let (reached, _) = served.reached();
        let block = served.block();
        let Served { number, piece, permit, is_unwanted, buffer, .. } = served;
        if let Permit::Refused(reason) = *permit {
            let ended = FetchEnded { object: piece.object, attempt: piece.attempt, reason };
            self.served.remove(at);
            self.send(&ended.into());
            return None;
        }
        // The other side reads shared memory: neither buffers nor the file behind the memory.
        let is_in_memory = buffer.is_none() && piece.location.offset < self.neighbours.memory_bytes();
        if piece.at < reached && !*is_unwanted && self.is_read && is_in_memory {
            let number = *number;
            return self.lend(at, number, reached);
        }
        if piece.at < reached && !*is_unwanted {
            return Some(Sending { head: next_chunk(piece, reached), until: 0, number: *number });
        }
        // All that may be sent from this block is sent.
        news.extend(block.map(|block| News::Served { block }));
        if piece.at == piece.end {
            self.served.remove(at);
        } else if *is_unwanted {
            *buffer = None;
            *permit = Permit::Refused(FetchEnd::Unwanted);
        } else {
            // The stream to the block has ended; another one may go on with the value.
            *permit = Permit::Asked;
            news.push(News::Wanted { number: *number, piece: *piece });
            served.since = now;
            served.source = None;
        }
        None
    }

    fn lend(&mut self, at: usize, loan: u64, end: u64) -> Option<Sending> {
        let Served { piece, lent, .. } = &mut self.served[at];
        *lent = Some(end);
        let message = Lent {
            attempt: piece.attempt,
            begin: piece.at,
            end,
            offset: piece.location.offset + piece.at,
            number: piece.object.task.number,
            loan,
        };
        self.send(&message.into());
        None
    }

    fn send(&mut self, message: &Message) {
        message.append(&mut self.said, 0);
    }

    fn greet(&mut self, message: &Message, me: &Me, certified: NodeId) -> Result<(), Fault> {
        let fault = |refusal: Refusal| Fault::Frame(refusal.to_string());
        let party = match &self.hello {
            Some(hello) => on_answer(message, hello, certified).map_err(fault)?,
            None => match on_hello(message, me, certified) {
                Ok(party) => {
                    self.send(&welcome(&party, 0).into());
                    party
                }
                Err(refusal) => {
                    self.send(&Refused { reason: refusal.to_string() }.into());
                    return Err(fault(refusal));
                }
            },
        };
        self.is_greeted = true;
        if !self.asks
            && party.features & READS_MEMORY != 0
            && let Some((lending, here)) = self.neighbours.lend()
        {
            self.lending = Some(lending);
            self.send(&here.into());
        }
        Ok(())
    }

    fn on_part(
        &mut self,
        part: Part<'_>,
        targets: &Targets,
        now: Instant,
        news: &mut Vec<News>,
    ) -> Result<(), Fault> {
        if !self.is_greeted {
            return Err(Fault::Order("the first message must be a greeting"));
        }
        match part {
            Part::Chunk(head) => self.on_chunk(&head),
            Part::Bytes(bytes) => {
                self.on_bytes(bytes, targets, news);
                Ok(())
            }
            Part::Message(Message::Fetching(fetching)) if !self.asks => {
                self.on_fetching(&fetching, now, news)
            }
            Part::Message(Message::FetchEnded(ended)) => self.on_ended(&ended, news),
            Part::Message(Message::MemoryHere(here)) if self.asks => {
                self.on_memory(&here);
                Ok(())
            }
            Part::Message(Message::MemoryOpen(open)) if !self.asks => self.on_memory_open(&open),
            Part::Message(Message::Lent(lent)) if self.asks => self.on_lent(&lent, targets, news),
            Part::Message(Message::Taken(taken)) if !self.asks => self.on_taken(taken),
            Part::Message(_) => Err(Fault::Order("the peer said what is not said over this connection")),
        }
    }

    /// If the memory cannot be read, the other side sends bytes.
    fn on_memory(&mut self, here: &MemoryHere) {
        self.reading = self.neighbours.read(here);
        if let Some(reading) = &self.reading {
            let open = MemoryOpen { lender: reading.lender };
            self.send(&open.into());
        }
    }

    fn on_memory_open(&mut self, open: &MemoryOpen) -> Result<(), Fault> {
        self.is_read = self.lending.as_ref().is_some_and(|lending| lending.lender == open.lender);
        if self.is_read { Ok(()) } else { Err(Fault::Order("the peer reads memory that is not lent to it")) }
    }

    fn on_lent(&mut self, lent: &Lent, targets: &Targets, news: &mut Vec<News>) -> Result<(), Fault> {
        let Some(reading) = &self.reading else {
            return Err(Fault::Order("the peer lends memory that was not opened"));
        };
        let Some(at) = self.asked.iter().position(|piece| piece.attempt == lent.attempt) else {
            return Err(Fault::Order("bytes were lent that nobody asked for"));
        };
        let piece = &mut self.asked[at];
        let is_next = lent.begin == piece.at && lent.number == piece.object.task.number;
        if !is_next || lent.begin >= lent.end || lent.end > piece.end {
            return Err(Fault::Order("bytes were lent that are not the next ones"));
        }
        let (length, mut is_lent) = (lent.end - lent.begin, true);
        if let Some(target) = targets.get(&piece.attempt) {
            // If the target is closed, nothing is copied, and this thread will learn of it.
            let _ = target.write_with(lent.begin, length, |to| {
                is_lent = reading.copy(lent, to);
                is_lent
            });
        }
        if !is_lent {
            return Err(Fault::Order("the peer did not wait until what it lent was copied"));
        }
        piece.at = lent.end;
        self.moved.came += length;
        self.moved.copied += length;
        if piece.at == piece.end {
            news.push(News::Here { attempt: piece.attempt });
            self.asked.remove(at);
        }
        self.send(&Taken { loan: lent.loan }.into());
        Ok(())
    }

    fn on_taken(&mut self, taken: Taken) -> Result<(), Fault> {
        let served = self.served.iter_mut().find(|served| served.number == taken.loan);
        let Some((served, end)) = served.and_then(|served| served.lent.take().map(|end| (served, end)))
        else {
            return Err(Fault::Order("the peer took what was not lent"));
        };
        self.moved.sent += end - served.piece.at;
        served.piece.at = end;
        Ok(())
    }

    /// Chunks must be of pieces that were asked for, and in order within each stream.
    fn on_chunk(&mut self, head: &ChunkHead) -> Result<(), Fault> {
        let Some(first) = self.asked.iter().find(|piece| piece.attempt == head.attempt) else {
            return Err(Fault::Order("a chunk came that nobody asked for"));
        };
        self.coming = head.attempt;
        let is_next = head.at == first.at
            && head.number == first.object.task.number
            && head.at + u64::from(head.length) <= first.end;
        if is_next { Ok(()) } else { Err(Fault::Order("a chunk came that is not the next one")) }
    }

    fn on_bytes(&mut self, bytes: &[u8], targets: &Targets, news: &mut Vec<News>) {
        let Some(at) = self.asked.iter().position(|piece| piece.attempt == self.coming) else { return };
        let piece = &mut self.asked[at];
        if let Some(target) = targets.get(&piece.attempt) {
            // If the target is closed, the bytes go nowhere, and this thread will learn of it.
            let _ = target.write(piece.at, bytes);
        }
        piece.at += bytes.len() as u64;
        self.moved.came += bytes.len() as u64;
        if piece.at == piece.end {
            news.push(News::Here { attempt: piece.attempt });
            self.asked.remove(at);
        }
    }

    fn on_fetching(&mut self, fetching: &Fetching, now: Instant, news: &mut Vec<News>) -> Result<(), Fault> {
        let Fetching { object, location, begin, end, attempt, generation } = *fetching;
        if self.served.len() >= PIECES_MAX {
            return Err(Fault::Order("the peer asks for more pieces than it may at a time"));
        }
        let is_within = begin < end && end <= location.length;
        if !is_within || location.offset.checked_add(location.length).is_none() {
            return Err(Fault::Order("the peer asks for bytes that are not of the value"));
        }
        self.made += 1;
        let piece = Piece { object, location, generation, attempt, at: begin, end };
        let (number, permit, source) = (self.made, Permit::Asked, None);
        self.served.push_back(Served {
            number,
            piece,
            permit,
            since: now,
            is_unwanted: false,
            lent: None,
            source,
            buffer: None,
        });
        news.push(News::Wanted { number, piece });
        Ok(())
    }

    fn on_ended(&mut self, ended: &FetchEnded, news: &mut Vec<News>) -> Result<(), Fault> {
        if !self.asks {
            let of_it = |served: &&mut Served| served.piece.attempt == ended.attempt;
            self.served.iter_mut().filter(of_it).for_each(|served| served.is_unwanted = true);
            return Ok(());
        }
        let Some(at) = self.asked.iter().position(|piece| piece.attempt == ended.attempt) else {
            return Err(Fault::Order("the peer ended what nobody asked for"));
        };
        self.asked.remove(at);
        news.push(News::Refused { attempt: ended.attempt, reason: ended.reason });
        Ok(())
    }
}
