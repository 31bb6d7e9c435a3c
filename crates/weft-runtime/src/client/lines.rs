//! What the workers of a driver print, when the node is another process: a connection and a thread of their own, so that
//! a terminal that takes its time holds up nothing but the workers that print.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weft_wire::WorkerId;
use weft_wire::message::{Message, role};

use super::hello;
use crate::logs::Sink;
use crate::transport::{Inlet, Outlet, ReadResult};

/// How often a thread that should end is looked at.
const LOOK: Duration = Duration::from_millis(1);

/// See the module.
#[derive(Debug)]
pub struct LineReader {
    socket: Arc<OwnedFd>,
    thread: JoinHandle<()>,
}

impl LineReader {
    /// Begins to read the lines of a driver's job. Without a sink they are read and dropped; the end is seen all the same.
    ///
    /// # Errors
    /// When the node cannot be reached.
    pub fn start(
        path: &Path,
        python: &str,
        driver: WorkerId,
        sink: Option<Box<dyn Sink>>,
    ) -> io::Result<Self> {
        let stream = std::os::unix::net::UnixStream::connect(path)?;
        let socket: Arc<OwnedFd> = Arc::new(stream.into());
        let mut outlet = Outlet::default();
        outlet.push(&hello(role::LOGS, driver, python, None).into());
        outlet.flush(&*socket);
        let theirs = socket.clone();
        let thread = std::thread::Builder::new()
            .name("weft-logs".into())
            .spawn(move || read(&theirs, sink.as_deref()))?;
        Ok(Self { socket, thread })
    }

    /// Waits until the node has ended the connection: then the workers are gone, and all that they printed was shown. Gives
    /// up after `patience`.
    pub fn join(self, patience: Duration) {
        let start = Instant::now();
        while !self.thread.is_finished() && start.elapsed() < patience {
            std::thread::sleep(LOOK);
        }
        let _ = rustix::net::shutdown(&*self.socket, rustix::net::Shutdown::Both);
        let _ = self.thread.join();
    }
}

fn read(socket: &OwnedFd, sink: Option<&dyn Sink>) {
    let mut inlet = Inlet::default();
    loop {
        let mut poll = [rustix::event::PollFd::new(socket, rustix::event::PollFlags::IN)];
        let _ = rustix::event::poll(&mut poll, None);
        let has_ended = inlet.read_plain(socket) == ReadResult::End;
        while let Ok(Some(received)) = inlet.next_message() {
            if let (Message::LogLines(lines), Some(sink)) = (received.message, sink) {
                sink.show(lines.is_stderr, &lines.text);
            }
        }
        if has_ended {
            return;
        }
    }
}
