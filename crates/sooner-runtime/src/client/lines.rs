//! The output of a driver's workers, when the node is another process. It has a connection and a thread of
//! its own, so that a slow terminal holds up only the workers that print.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sooner_wire::WorkerId;
use sooner_wire::message::{Message, role};

use super::hello;
use crate::logs::Sink;
use crate::transport::{Inlet, Outlet, ReadResult};

/// Time between two checks whether the thread has ended.
const LOOK: Duration = Duration::from_millis(1);

/// See the module.
#[derive(Debug)]
pub struct LineReader {
    socket: Arc<OwnedFd>,
    thread: JoinHandle<()>,
    /// How often something was read.
    reads: Arc<AtomicU64>,
}

impl LineReader {
    /// Begins to read the lines of a driver's job. Without a sink they are read and dropped, so that the end
    /// is seen all the same.
    ///
    /// # Errors
    /// When the node cannot be reached.
    pub fn start(
        path: &Path,
        python: &str,
        driver: WorkerId,
        sink: Option<Box<dyn Sink>>,
    ) -> io::Result<Self> {
        let stream = crate::private::connect(path)?;
        let socket: Arc<OwnedFd> = Arc::new(stream.into());
        let mut outlet = Outlet::default();
        outlet.push(&hello(role::LOGS, driver, python, None).into());
        outlet.flush(&*socket);
        let reads: Arc<AtomicU64> = Arc::default();
        let (theirs, count) = (socket.clone(), reads.clone());
        let thread = std::thread::Builder::new()
            .name("sooner-logs".into())
            .spawn(move || read(&theirs, sink.as_deref(), &count))?;
        Ok(Self { socket, thread, reads })
    }

    /// Waits until the node has ended the connection: then the workers are dead, and all their output was
    /// shown. Gives up when nothing has come for `patience`, and after `longest` in any case.
    pub fn join(self, patience: Duration, longest: Duration) {
        let start = Instant::now();
        let mut last = (self.reads.load(Ordering::Relaxed), start);
        while !self.thread.is_finished() && last.1.elapsed() < patience && start.elapsed() < longest {
            std::thread::sleep(LOOK);
            let reads = self.reads.load(Ordering::Relaxed);
            if reads != last.0 {
                last = (reads, Instant::now());
            }
        }
        let _ = rustix::net::shutdown(&*self.socket, rustix::net::Shutdown::Both);
        let _ = self.thread.join();
    }
}

fn read(socket: &OwnedFd, sink: Option<&dyn Sink>, reads: &AtomicU64) {
    let mut inlet = Inlet::default();
    loop {
        let mut poll = [rustix::event::PollFd::new(socket, rustix::event::PollFlags::IN)];
        let _ = rustix::event::poll(&mut poll, None);
        let has_ended = inlet.read_plain(socket) == ReadResult::End;
        reads.fetch_add(1, Ordering::Relaxed);
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
