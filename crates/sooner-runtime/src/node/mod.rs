//! The node service: one thread that runs the node's core and serves every process of the session.
//!
//! It is a component behind a socket: the driver that hosts it is a client like any worker. It never
//! unpickles and never runs user code. A client that breaks the protocol is disconnected; no other client
//! notices.

pub mod accept;
pub mod cluster;
pub mod data;
pub mod hashes;
mod health;
pub mod interpreter;
pub mod memory;
mod metrics;
pub mod notes;
mod orphan;
mod rounds;
mod send_buffers;
mod service;
mod spiller;
mod template;

use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rustix::net::{SocketAddrAny, SocketAddrUnix, getpeername, getsockname};
use sooner_wire::message::JobConfig;
use sooner_wire::strategy::Labels;
use sooner_wire::{NodeId, ResourceSet};

pub use sooner_object_store::{StoreError, StoreUrl};

pub use self::spiller::SpillOptions;
use crate::identity::Credentials;
use crate::logs::Sink;
use crate::session::{Kind, SessionDirectory};

/// What a node needs to start.
pub struct NodeOptions {
    /// Logical resources.
    pub resources: ResourceSet,
    /// Idle workers to keep.
    pub pool_size: usize,
    /// Shared memory for objects (bytes).
    pub store_bytes: u64,
    /// Where values are spilled. `None`: spilling is off.
    pub spill: Option<SpillOptions>,
    /// How the node frees shared memory.
    pub eviction: Eviction,
    /// Parent of the session's directory.
    pub base_directory: PathBuf,
    /// The job of the driver in whose process the node runs. `None` on a standalone node.
    pub host: Option<HostJob>,
    /// The name of a standalone node.
    pub name: Option<String>,
    /// How the node joins a cluster. `None`: it does not.
    pub cluster: Option<cluster::ClusterOptions>,
    /// "3.11": clients of another minor version are refused.
    pub python: String,
    /// Unique among nodes: begins the ids of its processes and is part of its directory's name.
    pub node: NodeId,
    /// Labels of the node, sorted by key.
    pub labels: Labels,
    /// How a standalone node starts workers for drivers of other nodes.
    pub interpreter: Option<interpreter::Interpreter>,
    /// When workers are stopped to free memory.
    pub memory: memory::MemoryOptions,
}

/// How the node frees shared memory (Oakes, table 5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eviction {
    /// Referenced values are written to disk when there is no room. A value out of reference goes at once,
    /// with its copies (pinning and explicit free).
    Spill,
    /// As [`Self::Spill`], but values that tasks can make again are dropped, not written (explicit free
    /// only).
    Recompute,
    /// As [`Self::Spill`], but copies of a value out of reference stay at other nodes until those need the
    /// room (pinning and unpinning).
    Unpin,
}

/// The job of a driver that hosts its node.
pub struct HostJob {
    /// What the job's workers need. Without a template the job has no workers.
    pub config: JobConfig,
    /// Where the lines of workers go; `None` keeps them in files only.
    pub sink: Option<Box<dyn Sink>>,
}

/// A running node.
#[derive(Debug)]
pub struct NodeHandle {
    directory: PathBuf,
    wake: Arc<OwnedFd>,
    stopping: Arc<AtomicBool>,
    draining: Arc<AtomicBool>,
    credentials: Arc<Mutex<Option<Credentials>>>,
    thread: Option<JoinHandle<()>>,
}

impl NodeHandle {
    /// Starts a node in a thread of this process.
    ///
    /// # Errors
    /// When the directory, the socket, the shared memory or the template cannot be made.
    pub fn start(options: NodeOptions) -> io::Result<Self> {
        Self::start_then(options, Box::new(|| ()))
    }

    /// Starts a node in a thread of this process. Calls `at_end` when the thread ends, or drops it if the
    /// node fails.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_then(options: NodeOptions, at_end: Box<dyn FnOnce() + Send>) -> io::Result<Self> {
        let kind = if options.host.is_some() { Kind::Session } else { Kind::Node };
        let directory = SessionDirectory::create(&options.base_directory, kind, options.node)?;
        let path = directory.path().to_owned();
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        let wake = Arc::new(rustix::event::eventfd(0, flags)?);
        let stopping = Arc::new(AtomicBool::new(false));
        let draining = Arc::new(AtomicBool::new(false));
        let credentials = Arc::<Mutex<Option<Credentials>>>::default();
        let signals = service::Signals {
            stopping: stopping.clone(),
            draining: draining.clone(),
            credentials: credentials.clone(),
        };
        let service = service::Service::new(options, directory, wake.clone(), signals)?;
        let run = move || {
            service.run();
            at_end();
        };
        let thread = std::thread::Builder::new().name("sooner-node".into()).spawn(run)?;
        Ok(Self { directory: path, wake, stopping, draining, credentials, thread: Some(thread) })
    }

    /// The session's directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The socket that clients connect to.
    #[must_use]
    pub fn socket_path(&self) -> PathBuf {
        self.directory.join("node.sock")
    }

    /// In a forked child, where the node's thread does not exist: closes every descriptor of the session's
    /// socket. Otherwise the child would keep it open after the end of its parent.
    pub fn abandon(self) {
        let path = self.socket_path();
        let is_ours = |name: Option<SocketAddrAny>| {
            let name = name.and_then(|name| SocketAddrUnix::try_from(name).ok());
            name.is_some_and(|name| name.path_bytes() == Some(path.as_os_str().as_bytes()))
        };
        let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        let numbers: Vec<RawFd> =
            open.filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok())).collect();
        for number in numbers {
            // SAFETY: a number that has just been listed. The one of the listing itself is closed by now, and
            // then the questions fail.
            let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
            let local = getsockname(descriptor).ok();
            if is_ours(local) || is_ours(getpeername(descriptor).ok().flatten()) {
                // SAFETY: the threads that own it do not exist in this process, and its owners are never
                // dropped.
                drop(unsafe { OwnedFd::from_raw_fd(number) });
            }
        }
        std::mem::forget(self);
    }

    /// Begins no more tasks, and gives running tasks limited time to end. Then the node ends by itself.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }

    /// Replaces the credentials that the node's processes prove, and those that they trust.
    pub fn renew(&self, credentials: Credentials) {
        *self.credentials.lock() = Some(credentials);
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }

    /// Ends every process of the session and then the node. Returns when nothing is left; false if the node
    /// had failed.
    pub fn stop(&mut self) -> bool {
        self.stopping.store(true, Ordering::Release);
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
        self.thread.take().is_none_or(|thread| thread.join().is_ok())
    }
}

impl Drop for NodeHandle {
    fn drop(&mut self) {
        self.stop();
    }
}
