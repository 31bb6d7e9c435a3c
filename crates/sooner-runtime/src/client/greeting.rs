//! How a client is made: it connects to its node and is welcomed.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustc_hash::{FxHashMap, FxHashSet};
use sooner_protocol::time::Instant;
use sooner_protocol::worker::WorkerCore;
use sooner_protocol::worker::action::{Actions, Peer};
use sooner_protocol::worker::tasks::Counts;
use sooner_store::{BlockCache, Mapping};
use sooner_wire::message::{Hello, JobConfig, Message, Refused, Welcome, role};
use sooner_wire::{WorkerId, version};

use super::receiving::{Batch, Inbound, Lead};
use super::shared::{Aftermath, Shared};
use super::{Client, NODE_TOKEN, Outbox, WAKE_TOKEN, background};
use crate::clock::now;
use crate::poller::{Events, Interest, Poller};
use crate::transport::{Inlet, Outlet, ReadResult};
use crate::ulimits::told;
use crate::wait::Spinner;

impl Client {
    /// Connects to a node by its socket, as a driver. A driver that hosts the node passes no job.
    ///
    /// # Errors
    /// When the node cannot be reached or refuses.
    pub fn connect(path: &Path, python: &str, job: Option<JobConfig>) -> io::Result<Arc<Self>> {
        let stream = crate::private::connect(path)?;
        stream.set_nonblocking(true)?;
        let hello = hello(role::DRIVER, WorkerId::default(), python, job.map(Box::new));
        Self::greet(stream.into(), hello)
    }

    /// Greets the node over a socket that it made for this worker.
    ///
    /// # Errors
    /// When the node refuses.
    pub fn adopt(socket: OwnedFd, worker: WorkerId, python: &str) -> io::Result<Arc<Self>> {
        Self::greet(socket, hello(role::WORKER, worker, python, None))
    }

    fn greet(socket: OwnedFd, hello: Hello) -> io::Result<Arc<Self>> {
        let (role, python) = (hello.role, hello.python.clone());
        let mut outlet = Outlet::default();
        let own = match Own::take() {
            Ok(own) => own,
            Err(error) if role == role::WORKER => return Err(complain(&socket, &error)),
            Err(error) => return Err(error),
        };
        outlet.push(&hello.into());
        outlet.flush(&socket);
        let mut inlet = Inlet::default();
        let (welcome, memory, file) = read_welcome(&socket, &mut inlet)?;
        let mut mapping = Mapping::open(memory, welcome.arena_bytes).map_err(io::Error::other)?;
        if let (Some(file), Some(bytes)) = (file, welcome.fallback_bytes) {
            mapping = mapping.with_fallback(file, bytes).map_err(io::Error::other)?;
        }
        let Own { poller, wake, thread } = own;
        let socket = Arc::new(socket);
        poller.add(&*socket, NODE_TOKEN, Interest::Read)?;
        poller.add(&wake, WAKE_TOKEN, Interest::Read)?;
        let outbox = Outbox::new(poller.clone(), socket.clone(), welcome.worker, &python);
        let shared = shared_for(&welcome, outbox);
        let inbound = Inbound::local(Peer::Node, socket, inlet);
        let records = events_bytes(&welcome) > 0;
        let lead = Lead {
            poller: Some(poller),
            events: Events::with_capacity(64),
            inbound: FxHashMap::from_iter([(NODE_TOKEN, inbound)]),
            spinner: Spinner::default(),
            last: NODE_TOKEN,
            batch: Batch::new(),
            read_at: now(),
            held: None,
            lacking: rustc_hash::FxHashSet::default(),
        };
        let client = Arc::new(Self {
            me: welcome.worker,
            driver: welcome.driver,
            is_driver: role == role::DRIVER,
            welcome,
            mapping,
            shared: Mutex::new(shared),
            lead: Mutex::new(lead),
            wake: Mutex::new(Some(wake)),
            numbers: AtomicU64::new(1),
            requests: AtomicU64::new(1),
            dropped: Mutex::new(Vec::new()),
            has_dropped: AtomicBool::new(false),
            hooks: OnceLock::new(),
            attention: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            wanted: AtomicU32::new(0),
            background: background::Background::new(thread),
            progress: (Mutex::new(()), Condvar::new()),
            followers: AtomicU32::new(0),
            closed: AtomicBool::new(false),
            end_reason: OnceLock::new(),
            in_loop: AtomicBool::new(false),
            loop_waits: AtomicBool::new(false),
            records,
            stacks: OnceLock::new(),
            is_local: AtomicBool::new(false),
        });
        Ok(client)
    }
}

/// The state that the threads of the welcomed process share.
fn shared_for(welcome: &Welcome, outbox: Outbox) -> Shared {
    Shared {
        core: core_for(welcome),
        outbox,
        actions: Actions::new(),
        answers: FxHashMap::default(),
        cache: BlockCache::new(welcome.arena_bytes),
        memory_bytes: welcome.arena_bytes,
        written: FxHashSet::default(),
        aftermath: Aftermath::default(),
        looks_at: None,
        next_look: Instant(0),
        loopback: VecDeque::new(),
        told: Counts::default(),
        local: None,
    }
}

/// The core of the process that was welcomed, set up as its node wants it.
fn core_for(welcome: &Welcome) -> WorkerCore {
    let mut core = WorkerCore::new(welcome.worker);
    // With a file behind the memory there is spare memory, too: as much again (`open_memory` of the node).
    let parts = if welcome.fallback_bytes.is_some() { 2 } else { 1 };
    core.set_store_bytes(welcome.arena_bytes / parts);
    core.record_events(events_bytes(welcome));
    if let Some(bytes) = welcome.lineage_bytes {
        core.limit_lineage(usize::try_from(bytes).unwrap_or(usize::MAX));
    }
    if welcome.unpins_lazily == Some(true) {
        core.ownership_mut().unpin_lazily();
    }
    core
}

/// How much room there is for records of tasks.
fn events_bytes(welcome: &Welcome) -> usize {
    usize::try_from(welcome.events_bytes.unwrap_or(0)).unwrap_or(usize::MAX)
}

/// What a process needs for a client. Taken before the greeting: a greeted node gives it work.
struct Own {
    poller: Arc<Poller>,
    wake: OwnedFd,
    thread: background::Reserved,
}

impl Own {
    fn take() -> io::Result<Self> {
        let poller = Arc::new(Poller::new()?);
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        let wake = rustix::event::eventfd(0, flags)?;
        Ok(Self { poller, wake, thread: background::reserve()? })
    }
}

/// Reports to the node why its worker does not come up. The node shows it; this process need not.
fn complain(socket: &OwnedFd, error: &io::Error) -> io::Error {
    let reason = told(error);
    let mut outlet = Outlet::default();
    outlet.push(&Refused { reason: reason.clone() }.into());
    outlet.flush(socket);
    io::Error::new(io::ErrorKind::ConnectionAborted, reason)
}

/// The first message of this process.
pub(crate) fn hello(role: u8, worker: WorkerId, python: &str, job: Option<Box<JobConfig>>) -> Hello {
    Hello {
        major: version::PROTOCOL_MAJOR,
        minor: version::PROTOCOL_MINOR,
        features: 0,
        role,
        pid: std::process::id(),
        python: python.to_owned(),
        worker,
        job,
    }
}

fn read_welcome(socket: &OwnedFd, inlet: &mut Inlet) -> io::Result<(Welcome, OwnedFd, Option<OwnedFd>)> {
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    let mut end = false;
    loop {
        if let Some(mut received) = inlet.next_message().map_err(io::Error::other)? {
            return match received.message {
                Message::Welcome(welcome) => match (received.descriptors.pop(), received.descriptors.pop()) {
                    (Some(file), Some(memory)) => Ok((welcome, memory, Some(file))),
                    (Some(memory), None) if welcome.fallback_bytes.is_none() => Ok((welcome, memory, None)),
                    _ => {
                        let why = told(&rustix::io::Errno::MFILE.into());
                        Err(io::Error::other(format!("there is no descriptor for shared memory: {why}")))
                    }
                },
                Message::Refused(refused) => Err(io::Error::other(refused.reason)),
                Message::Shutdown(shutdown) => {
                    Err(io::Error::new(io::ErrorKind::ConnectionAborted, shutdown.reason))
                }
                other => Err(io::Error::other(format!("the node answered {}", other.kind()))),
            };
        }
        if end {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the node ended the connection"));
        }
        if std::time::Instant::now() > deadline {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the node does not answer"));
        }
        let mut poll = [rustix::event::PollFd::new(socket, rustix::event::PollFlags::IN)];
        let second = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };
        let _ = rustix::event::poll(&mut poll, Some(&second));
        end = inlet.read(socket) == ReadResult::End;
    }
}
