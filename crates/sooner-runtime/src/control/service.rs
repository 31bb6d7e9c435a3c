//! The control service of a cluster: a thread of the head that runs the state machines of
//! [`sooner_protocol::control`], keeps in the store what must survive, and speaks with every node.
//!
//! Each node has two connections to it: one for decisions, one for heartbeats alone. They come untouched from
//! the head's own door ([`crate::node::accept`]), so the handshakes are made here. The head's own node is at
//! the other end of a socket pair and sends the same messages. The service never waits for a node, and cuts
//! off a node that does not read.

mod links;
mod probes;
mod running;
mod tickets;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use sooner_protocol::control::Found;
use sooner_wire::NodeId;
use sooner_wire::record::{HEAD, HeadRecord, NodeRecord};

use super::commit::Done;
use super::embedded::Redb;
use super::memory::Local;
use super::records;
use super::store::{Store, StoreError};
use crate::clock::now;
use crate::identity::Identity;
use crate::node::notes::Notes;
use crate::poller::{Interest, Poller};
use probes::Probes;
use running::Service;

const WAKE: u64 = 0;
const PROBES: u64 = 1;
const FIRST_LINK: u64 = 2;

/// What a connection of a node is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// Decisions, in order.
    Control,
    /// Heartbeats.
    Health,
}

/// What the service needs to start.
pub struct ControlOptions {
    /// The node that runs it.
    pub node: NodeId,
    /// The proof of that node's identity to others.
    pub identity: Identity,
    /// The address at which other nodes find it.
    pub address: SocketAddr,
    /// The Python version that all nodes must have, as "3.11".
    pub python: String,
    /// Silence after which a node counts as dead (nanoseconds).
    pub health_timeout: u64,
    /// The directory of that node, which has the log.
    pub node_directory: PathBuf,
}

/// The state that earlier heads left, opened and locked for this one.
pub struct State {
    store: Local<Redb>,
    cluster: u64,
    nodes: Vec<NodeRecord>,
    head: Option<HeadRecord>,
    found: Found,
}

impl State {
    /// Opens the store in a cluster's directory; `drawn` becomes the id of a new cluster.
    ///
    /// # Errors
    /// [`StoreError`]: another head holds it, it is damaged, or the system refuses.
    pub fn open(directory: &Path, drawn: u64) -> Result<Self, StoreError> {
        let time = now();
        let mut store = Local::open(directory, time)?;
        let cluster = records::cluster(&mut store, drawn, time)?.cluster;
        let (nodes, head) = (records::nodes(&store)?, records::head(&store)?);
        let found = records::found(&store)?;
        Ok(Self { store, cluster, nodes, head, found })
    }

    /// The address of the last head: nodes look for the next one there.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.head.as_ref()?.address.parse().ok()
    }

    /// Whether nodes may be looking for a head.
    #[must_use]
    pub fn expects_nodes(&self) -> bool {
        self.nodes.iter().any(|node| self.head.as_ref().is_none_or(|head| head.node != node.node))
    }
}

/// What other threads have handed to this one.
#[derive(Default)]
struct Inbox {
    arrivals: VecDeque<Arrival>,
    written: Vec<Done>,
    is_ending: bool,
}

enum Arrival {
    /// From the door: not yet identified.
    Stranger(OwnedFd, SocketAddr, Line),
    /// This process's own node.
    Own(OwnedFd, Line),
}

struct Shared {
    inbox: Mutex<Inbox>,
    wake: OwnedFd,
}

impl Shared {
    fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

/// The running service. Dropping it ends the thread when everything is written.
pub struct Control {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Starts the thread. If it ends, its own node's connections to it end.
    ///
    /// # Errors
    /// The store's or the system's error.
    pub fn start(mut state: State, options: ControlOptions) -> io::Result<Self> {
        let incarnation = Some(state.found.incarnation);
        let head = HeadRecord { node: options.node, address: options.address.to_string(), incarnation };
        state.store.put(HEAD, &head.to_bytes(), now()).map_err(io::Error::other)?;
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        let wake = rustix::event::eventfd(0, flags)?;
        let shared = Arc::new(Shared { inbox: Mutex::default(), wake });
        let poller = Poller::new()?;
        let probes = Probes::new(options.identity.clone())?;
        poller.add(&shared.wake, WAKE, Interest::Read)?;
        poller.add(probes.events(), PROBES, Interest::Read)?;
        let of_thread = shared.clone();
        let run = move || {
            let notes = Notes::new(&options.node_directory);
            match Service::new(state, &options, of_thread, poller, probes, notes) {
                Ok(service) => service.run(),
                Err(error) => {
                    Notes::new(&options.node_directory).write(&format!("no control service: {error}"))
                }
            }
        };
        let thread = std::thread::Builder::new().name("sooner-control".into()).spawn(run)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Takes a connection to this service from the door.
    pub fn admit(&self, socket: OwnedFd, address: SocketAddr, line: Line) {
        self.hand_in(Arrival::Stranger(socket, address, line));
    }

    /// Takes a connection of this process's own node.
    pub fn connect(&self, socket: OwnedFd, line: Line) {
        self.hand_in(Arrival::Own(socket, line));
    }

    fn hand_in(&self, arrival: Arrival) {
        self.shared.inbox.lock().arrivals.push_back(arrival);
        self.shared.wake();
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.shared.inbox.lock().is_ending = true;
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
