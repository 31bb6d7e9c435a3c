//! The thread that moves values between nodes: in those that this node pulls, out those that others pull.
//!
//! Values go between sockets and shared memory; beside the encryption they are copied once, on arrival. The
//! receiver asks for pieces, so a sender keeps only what was asked for, and a receiver stops by asking for no
//! more. Large values come over several connections at once. Connections are made when they are needed and
//! end when they are not. The receiver dials; a sender that cannot be dialled is asked to come, and then
//! asked for values.
//!
//! A value may be sent on while it is still arriving, up to its mark. Values on disk are sent from buffers
//! that another thread fills ([`super::send_buffers`]).
//!
//! The node's loop and this thread exchange commands and events through two short lists. Neither waits for
//! the other, and no lock is held while a socket is used. The node admits each stream
//! (`sooner_protocol::node::objects::Pulls`) and is asked about each piece to send: it keeps the block
//! meanwhile. That bounds both lists: each stream and each piece is in each list once.
//!
//! `docs/adr/0027-data-plane.md` gives the reasons.

mod carrier;
mod line;
mod neighbours;
mod peers;
mod reader;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use sooner_protocol::node::objects::{Fetching, Serves, StreamEnd};
use sooner_protocol::session::hello::Me;
use sooner_store::{Mapping, Progress};
use sooner_wire::limits::{DATA_CONNECTIONS, DATA_IDLE_NANOS, DATA_PATIENCE_NANOS, FAR_NANOS};
use sooner_wire::message::Location;
use sooner_wire::{FetchAttempt, NodeId, ObjectId, WorkerId};

use super::notes::Notes;
use super::send_buffers::SendBuffer;
use crate::identity::Identity;

pub use reader::{Fault, Part, Reader};

/// What the thread needs.
pub struct DataOptions {
    /// The identity that the node proves.
    pub identity: Identity,
    /// "3.11", as in all greetings.
    pub python: String,
    /// The node's memory.
    pub mapping: Arc<Mapping>,
    /// Wakes the node's loop.
    pub wake: Arc<OwnedFd>,
    /// Where the node's log is.
    pub directory: PathBuf,
    /// See [`Tuning`].
    pub tuning: Tuning,
}

/// Numbers that tests and measurements change.
#[derive(Debug, Clone, Copy)]
pub struct Tuning {
    /// Connections for large values from one node that is far.
    pub connections: usize,
    /// A node with a round trip of this or more is far (nanoseconds).
    pub far: u64,
    /// When a connection without values ends (nanoseconds).
    pub idle: u64,
    /// Nodes of this machine read values in its memory, and it in theirs.
    pub shares_memory: bool,
    /// When values wanted from a node that cannot be reached count as not there (nanoseconds).
    pub patience: u64,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            connections: DATA_CONNECTIONS,
            far: FAR_NANOS,
            idle: DATA_IDLE_NANOS,
            patience: DATA_PATIENCE_NANOS,
            shares_memory: true,
        }
    }
}

/// A piece that another node asks for, until it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket {
    line: u64,
    number: u64,
}

/// An event from the thread to the node.
#[derive(Debug, PartialEq, Eq)]
pub enum DataEvent {
    /// More bytes of a value have arrived.
    Bytes {
        /// Which value.
        object: ObjectId,
        /// Which stream.
        attempt: FetchAttempt,
        /// Bytes from its beginning.
        bytes: u64,
    },
    /// A stream ended before all bytes had come.
    End {
        /// Of which value.
        object: ObjectId,
        /// Which stream.
        attempt: FetchAttempt,
        /// Why.
        end: StreamEnd,
    },
    /// Another node asks for a value: [`Data::answer`].
    Asked {
        /// To be repeated in the answer.
        ticket: Ticket,
        /// Which value.
        object: ObjectId,
        /// Where it is believed to be.
        location: Location,
        /// A copy of this generation is meant, wherever it is: [`Data::answer_copy`].
        generation: Option<u64>,
        /// The part of it that is still to be sent.
        part: Range<u64>,
    },
    /// A piece that was permitted is done: its block need not be kept for it any more.
    Served {
        /// Which block.
        block: u64,
    },
    /// That node has no address: ask it to come with its values.
    AskFor(NodeId),
}

/// What a connection for values is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForData {
    /// The peer asks for values of this node.
    Asks,
    /// The peer serves values that this node asked for: it cannot be dialled.
    Serves,
}

/// A command from the node to the thread.
enum Command {
    Fetch { fetching: Fetching, progress: Arc<Progress>, address: Option<SocketAddr> },
    Stop { attempt: FetchAttempt },
    Answer { ticket: Ticket, block: u64, serves: Serves, progress: Option<Arc<Progress>> },
    Send { ticket: Ticket, buffer: SendBuffer },
    Admit { socket: OwnedFd, address: SocketAddr, what: ForData },
    Offer { node: NodeId, address: SocketAddr },
}

/// Bytes of values between this node and others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moved {
    /// Sent to other nodes.
    pub sent: u64,
    /// Received from other nodes.
    pub came: u64,
    /// Bytes of `came` that were copied from memory of this machine.
    pub copied: u64,
}

struct Shared {
    commands: Mutex<Vec<Command>>,
    events: Mutex<Vec<DataEvent>>,
    /// Wakes the thread.
    wake: OwnedFd,
    is_ending: AtomicBool,
    moved: Mutex<Moved>,
}

/// The running thread; dropping it ends it and every connection.
pub struct Data {
    shared: Arc<Shared>,
    mapping: Arc<Mapping>,
    /// Streams being written, by attempt.
    moving: HashMap<FetchAttempt, Arc<Progress>>,
    thread: Option<JoinHandle<()>>,
}

impl Data {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system's error.
    pub fn start(options: DataOptions) -> io::Result<Self> {
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        let wake = rustix::event::eventfd(0, flags)?;
        let shared = Arc::new(Shared {
            commands: Mutex::default(),
            events: Mutex::default(),
            wake,
            is_ending: AtomicBool::new(false),
            moved: Mutex::default(),
        });
        let node = options.identity.node();
        let me = Me { id: WorkerId(node.0), is_head: false, python: options.python };
        let mapping = options.mapping.clone();
        let parts = carrier::Parts {
            shared: shared.clone(),
            node_wake: options.wake,
            me,
            identity: options.identity,
            mapping: options.mapping,
            notes: Notes::new(&options.directory),
            tuning: options.tuning,
        };
        let carrier = carrier::Carrier::new(parts)?;
        let thread = std::thread::Builder::new().name("sooner-data".into()).spawn(move || carrier.run())?;
        Ok(Self { shared, mapping, moving: HashMap::new(), thread: Some(thread) })
    }

    /// Fetches a value from the node that listens at `address`. A node without one is to be asked to come
    /// ([`DataEvent::AskFor`]).
    pub fn fetch(&mut self, fetching: &Fetching, address: Option<SocketAddr>) {
        let mut fetching = *fetching;
        let reached = fetching.after.and_then(|before| self.stop(before));
        fetching.at = fetching.at.max(reached.unwrap_or(0));
        let length = fetching.remote.location.length;
        let progress = Progress::new(self.mapping.clone(), fetching.block.offset(), length, fetching.at);
        let progress = Arc::new(progress);
        self.moving.insert(fetching.attempt, progress.clone());
        self.tell(Command::Fetch { fetching, progress, address });
    }

    /// Ends a stream. When this returns, nothing is written to its block any more. Returns how many bytes are
    /// there.
    pub fn stop(&mut self, attempt: FetchAttempt) -> Option<u64> {
        let progress = self.moving.remove(&attempt)?;
        progress.close();
        self.tell(Command::Stop { attempt });
        Some(progress.mark())
    }

    /// Says whether a piece may be sent. If so, its block must stay as it is until [`DataEvent::Served`].
    pub fn answer(&self, ticket: Ticket, block: u64, serves: Serves) {
        self.tell(Command::Answer { ticket, block, serves, progress: None });
    }

    /// Like [`Self::answer`], for a copy in a block: all of it, or as far as a stream has brought it. False
    /// if that stream has ended: ask the node again, the block is not read.
    #[must_use]
    pub fn answer_copy(&self, ticket: Ticket, block: u64, stream: Option<FetchAttempt>) -> bool {
        let progress = stream.and_then(|attempt| self.moving.get(&attempt)).cloned();
        if stream.is_some() && progress.is_none() {
            return false;
        }
        let serves = Serves::Yes;
        self.tell(Command::Answer { ticket, block, serves, progress });
        true
    }

    /// Sends a piece that another node asked for, from this buffer.
    pub fn send(&self, ticket: Ticket, buffer: SendBuffer) {
        self.tell(Command::Send { ticket, buffer });
    }

    /// Takes in a connection to ask for values, or to serve them. Nothing has been read from the socket.
    pub fn admit(&self, socket: OwnedFd, address: SocketAddr, what: ForData) {
        self.tell(Command::Admit { socket, address, what });
    }

    /// Dials a node that wants values from this one, and cannot dial it. That node then asks.
    pub fn offer(&self, node: NodeId, address: SocketAddr) {
        self.tell(Command::Offer { node, address });
    }

    /// Takes the events since the last call.
    pub fn take_events(&mut self) -> Vec<DataEvent> {
        let mut events = std::mem::take(&mut *self.shared.events.lock());
        // A stream that was stopped may have ended before the thread learned of that.
        events.retain(|event| match event {
            DataEvent::Bytes { attempt, .. } => self.moving.contains_key(attempt),
            DataEvent::End { attempt, .. } => self.moving.remove(attempt).is_some(),
            _ => true,
        });
        for event in &events {
            if let DataEvent::Bytes { attempt, .. } = event
                && self.moving.get(attempt).is_some_and(|progress| progress.is_whole())
            {
                self.moving.remove(attempt);
            }
        }
        events
    }

    /// Bytes that this node has sent to others and received from them so far.
    #[must_use]
    pub fn moved(&self) -> Moved {
        *self.shared.moved.lock()
    }

    fn tell(&self, command: Command) {
        self.shared.commands.lock().push(command);
        let _ = rustix::io::write(&self.shared.wake, &1u64.to_ne_bytes());
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        self.moving.values().for_each(|progress| progress.close());
        self.shared.is_ending.store(true, Ordering::Release);
        let _ = rustix::io::write(&self.shared.wake, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A node's id as a sender of greetings.
fn address_of(node: NodeId) -> WorkerId {
    WorkerId(node.0)
}

#[cfg(test)]
mod tests;
