//! The node service: one thread that carries a [`Solo`](weft_protocol::solo::Solo) and speaks with every process of the
//! session.
//!
//! It is a component behind a socket: the driver that hosts it is a client like any worker. It never unpickles and
//! never runs user code; a client that breaks the protocol is disconnected, and nobody else notices.

pub mod accept;
mod metrics;
mod rounds;
mod service;
mod template;

use std::ffi::OsString;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::net::{SocketAddrAny, SocketAddrUnix, getpeername, getsockname};
use weft_wire::strategy::Labels;
use weft_wire::{NodeId, ResourceSet};

use crate::logs::Sink;
use crate::session::SessionDirectory;

/// What a node needs to start.
pub struct NodeOptions {
    /// Logical resources.
    pub resources: ResourceSet,
    /// Idle workers to keep.
    pub pool_size: usize,
    /// Shared memory for objects (bytes).
    pub store_bytes: u64,
    /// Largest value that travels in messages (bytes).
    pub inline_bytes: u64,
    /// Below which directory the session's is made.
    pub base_directory: PathBuf,
    /// Program and arguments of the template process; the session's directory is appended. Empty: there are no workers.
    pub template: Vec<OsString>,
    /// Default namespace of actor names.
    pub namespace: String,
    /// "3.11": clients of another minor version are refused.
    pub python: String,
    /// Where the lines of workers go; `None` keeps them in files only.
    pub sink: Option<Box<dyn Sink>>,
    /// Memory for what happens to tasks, per process (bytes); zero records nothing.
    pub events_bytes: u64,
    /// Memory for descriptions of tasks whose results may have to be computed again, per process (bytes).
    pub lineage_bytes: u64,
    /// Unlike any other node's: begins the ids of its processes and is part of its directory's name.
    pub node: NodeId,
    /// Labels of the node, sorted by key.
    pub labels: Labels,
}

/// A running node.
#[derive(Debug)]
pub struct NodeHandle {
    directory: PathBuf,
    wake: Arc<OwnedFd>,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl NodeHandle {
    /// Starts a node in a thread of this process.
    ///
    /// # Errors
    /// When the directory, the socket, the shared memory or the template cannot be made.
    pub fn start(options: NodeOptions) -> io::Result<Self> {
        let directory = SessionDirectory::create(&options.base_directory, options.node.0)?;
        let path = directory.path().to_owned();
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        let wake = Arc::new(rustix::event::eventfd(0, flags)?);
        let stopping = Arc::new(AtomicBool::new(false));
        let service = service::Service::new(options, directory, wake.clone(), stopping.clone())?;
        let thread = std::thread::Builder::new().name("weft-node".into()).spawn(move || service.run())?;
        Ok(Self { directory: path, wake, stopping, thread: Some(thread) })
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

    /// In a forked child, where the node's thread does not exist: closes every descriptor of the session's socket.
    /// Otherwise the child would keep it open after the end of its parent.
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
            // SAFETY: a number that has just been listed. The one of the listing itself is closed by now, and then
            // the questions fail.
            let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
            let local = getsockname(descriptor).ok();
            if is_ours(local) || is_ours(getpeername(descriptor).ok().flatten()) {
                // SAFETY: the threads that own it do not exist in this process, and its owners are never dropped.
                drop(unsafe { OwnedFd::from_raw_fd(number) });
            }
        }
        std::mem::forget(self);
    }

    /// Ends every process of the session and then the node. Returns when nothing is left.
    pub fn stop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for NodeHandle {
    fn drop(&mut self) {
        self.stop();
    }
}
