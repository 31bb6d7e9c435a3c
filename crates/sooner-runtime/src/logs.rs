//! The output of workers: from their pipes to files in the session's directory and to their job's driver.
//!
//! A thread of its own reads the pipes, because writing to the driver's terminal may take long and must never
//! hold up scheduling. The pipes are the bound: a worker that prints faster than the driver shows waits in
//! its `write`. Lines of different workers are never mixed; no lines are dropped or merged.
//!
//! Before output, a worker announces the function that prints by a line of its own: [`MARK`] and the name.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use sooner_wire::WorkerId;

use crate::poller::{Events, Interest, Poller};

/// Begins an announcement.
pub const MARK: &[u8] = b"\x1esooner:";
/// A worker's log file is renamed to `.1` when it is this large (bytes), replacing the one before.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// A line longer than this (bytes) is shown in parts.
const LINE_BYTES_MAX: usize = 1 << 20;
/// Bytes read from a pipe at a time.
const READ_BYTES: usize = 256 << 10;

/// Where lines go.
pub trait Sink: Send + Sync {
    /// Shows text that consists of whole lines.
    fn show(&self, is_stderr: bool, text: &str);

    /// Whether the sink can take no more for now: its workers' pipes are not read until [`Logs::kick`].
    fn is_full(&self) -> bool {
        false
    }

    /// One of the pipes to this sink has ended.
    fn on_end(&self, _worker: WorkerId) {}
}

struct Pipe {
    worker: WorkerId,
    is_stderr: bool,
    descriptor: OwnedFd,
    partial: Vec<u8>,
    title: String,
    file: Option<LogFile>,
    sink: Option<Arc<dyn Sink>>,
    /// The address of the worker's node, if lines are to show it.
    place: Option<std::net::IpAddr>,
}

struct LogFile {
    path: PathBuf,
    file: File,
    bytes: u64,
}

#[derive(Default)]
struct Shared {
    new_pipes: Vec<Pipe>,
    pids: HashMap<WorkerId, u32>,
    closing: bool,
}

/// The thread and its inbox.
pub struct Logs {
    shared: Arc<Mutex<Shared>>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Logs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Logs")
    }
}

impl Logs {
    /// Starts the thread. Files go to `directory`.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn start(directory: &Path) -> std::io::Result<Self> {
        let shared = Arc::new(Mutex::new(Shared::default()));
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        let wake = Arc::new(rustix::event::eventfd(0, flags)?);
        let reader = Reader {
            shared: shared.clone(),
            wake: wake.clone(),
            poller: Poller::new()?,
            pipes: HashMap::new(),
            paused: HashMap::new(),
            next_token: 1,
            directory: directory.to_owned(),
        };
        let thread = std::thread::Builder::new().name("sooner-logs".into()).spawn(move || reader.run())?;
        Ok(Self { shared, wake, thread: Some(thread) })
    }

    /// Reads from a worker's pipes from now on. Lines go to `sink`, if there is one, and show `place`, if
    /// that is not the driver's node.
    pub fn add(
        &self,
        worker: WorkerId,
        [stdout, stderr]: [OwnedFd; 2],
        sink: Option<&Arc<dyn Sink>>,
        place: Option<std::net::IpAddr>,
    ) {
        let mut shared = self.shared.lock();
        for (descriptor, is_stderr) in [(stdout, false), (stderr, true)] {
            shared.new_pipes.push(Pipe {
                worker,
                is_stderr,
                descriptor,
                partial: Vec::new(),
                title: "worker".to_owned(),
                file: None,
                sink: sink.cloned(),
                place,
            });
        }
        drop(shared);
        self.kick();
    }

    /// The worker's process id.
    pub fn set_pid(&self, worker: WorkerId, pid: u32) {
        self.shared.lock().pids.insert(worker, pid);
    }

    /// Looks again at the pipes of workers whose sink was full.
    pub fn kick(&self) {
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }

    /// Shows what is left, then ends the thread. The workers are dead, so every pipe ends.
    pub fn close(&mut self) {
        self.shared.lock().closing = true;
        self.kick();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Logs {
    /// A node that failed to start has no workers, and no other code that ends the thread.
    fn drop(&mut self) {
        self.close();
    }
}

struct Reader {
    shared: Arc<Mutex<Shared>>,
    wake: Arc<OwnedFd>,
    poller: Poller,
    pipes: HashMap<u64, Pipe>,
    /// Pipes whose sink is full, not watched: an ended pipe would wake the thread for ever.
    paused: HashMap<u64, Pipe>,
    next_token: u64,
    directory: PathBuf,
}

impl Reader {
    fn run(mut self) {
        let _ = self.poller.add(&*self.wake, 0, Interest::Read);
        let mut buffer = vec![0; READ_BYTES];
        // After closing, a grandchild that keeps a pipe open must not hold up the driver: the thread ends
        // after half a second of silence.
        let silence = 500_000_000;
        let mut events = Events::with_capacity(64);
        loop {
            let closing = self.take_new();
            self.resume();
            if closing && self.pipes.is_empty() {
                return;
            }
            let timeout = closing.then_some(silence);
            let result = self.poller.wait(&mut events, timeout);
            if closing && result.is_ok() && events.is_empty() {
                return;
            }
            for event in &events {
                let token = event.token;
                if token == 0 {
                    let mut count = [0; 8];
                    let _ = rustix::io::read(&*self.wake, &mut count);
                } else {
                    self.read(token, &mut buffer);
                }
            }
        }
    }

    fn take_new(&mut self) -> bool {
        let mut shared = self.shared.lock();
        for pipe in shared.new_pipes.drain(..) {
            let token = self.next_token;
            self.next_token += 1;
            let _ = self.poller.add(&pipe.descriptor, token, Interest::Read);
            self.pipes.insert(token, pipe);
        }
        shared.closing
    }

    /// Watches paused pipes again whose sinks have room.
    fn resume(&mut self) {
        let has_room = |pipe: &mut Pipe| pipe.sink.as_ref().is_none_or(|sink| !sink.is_full());
        for (token, pipe) in self.paused.extract_if(|_, pipe| has_room(pipe)) {
            let _ = self.poller.add(&pipe.descriptor, token, Interest::Read);
            self.pipes.insert(token, pipe);
        }
    }

    fn read(&mut self, token: u64, buffer: &mut [u8]) {
        let Some(pipe) = self.pipes.get_mut(&token) else { return };
        if pipe.sink.as_ref().is_some_and(|sink| sink.is_full()) {
            let _ = self.poller.remove(&pipe.descriptor);
            self.paused.extend(self.pipes.remove_entry(&token));
            return;
        }
        let bytes = match rustix::io::read(&pipe.descriptor, &mut *buffer) {
            Ok(bytes) => bytes,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return,
            Err(_) => 0,
        };
        let pid = self.shared.lock().pids.get(&pipe.worker).copied().unwrap_or(0);
        let text = if bytes == 0 { pipe.finish(pid) } else { pipe.take(&buffer[..bytes], pid) };
        pipe.save(&self.directory, pid, &text);
        if let (Some(sink), false) = (&pipe.sink, text.is_empty()) {
            sink.show(pipe.is_stderr, &text);
        }
        if bytes == 0
            && let Some(pipe) = self.pipes.remove(&token)
        {
            let _ = self.poller.remove(&pipe.descriptor);
            if let Some(sink) = &pipe.sink {
                sink.on_end(pipe.worker);
            }
        }
    }
}

impl Pipe {
    fn take(&mut self, bytes: &[u8], pid: u32) -> String {
        self.partial.extend_from_slice(bytes);
        let mut text = String::new();
        let data = std::mem::take(&mut self.partial);
        let mut rest = &data[..];
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.line(&rest[..end], pid, &mut text);
            rest = &rest[end + 1..];
        }
        if rest.len() > LINE_BYTES_MAX {
            self.line(rest, pid, &mut text);
        } else {
            self.partial = rest.to_vec();
        }
        text
    }

    fn finish(&mut self, pid: u32) -> String {
        let mut text = String::new();
        let rest = std::mem::take(&mut self.partial);
        if !rest.is_empty() {
            self.line(&rest, pid, &mut text);
        }
        text
    }

    fn line(&mut self, line: &[u8], pid: u32, text: &mut String) {
        // The announcement may follow a partial line that C code wrote without an end of line.
        if let Some(at) = line.windows(MARK.len()).position(|window| window == MARK) {
            let title = String::from_utf8_lossy(&line[at + MARK.len()..]).into_owned();
            if at > 0 {
                self.line(&line[..at], pid, text);
            }
            self.title = title;
            return;
        }
        use std::fmt::Write;
        let shown = String::from_utf8_lossy(line);
        let _ = match self.place {
            None => writeln!(text, "({} pid={pid}) {shown}", self.title),
            Some(place) => writeln!(text, "({} pid={pid}, ip={place}) {shown}", self.title),
        };
    }

    fn save(&mut self, directory: &Path, pid: u32, text: &str) {
        if text.is_empty() {
            return;
        }
        let stream = if self.is_stderr { "err" } else { "out" };
        if self.file.is_none() {
            let path = directory.join(format!("worker-{pid}-{:x}.{stream}", self.worker.0));
            let mut options = OpenOptions::new();
            // Readable by the user alone, whatever the umask is.
            let opened = options.write(true).create(true).truncate(true).mode(0o600).open(&path);
            self.file = opened.ok().map(|file| LogFile { path, file, bytes: 0 });
        }
        let Some(log) = &mut self.file else { return };
        // A full disk must not end the program: the lines still reach the driver.
        if log.file.write_all(text.as_bytes()).is_ok() {
            log.bytes += text.len() as u64;
        }
        if log.bytes > FILE_BYTES_MAX {
            let _ = fs::rename(&log.path, log.path.with_extension(format!("{stream}.1")));
            self.file = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipe() -> Pipe {
        let (descriptor, _) = rustix::pipe::pipe().expect("pipe");
        Pipe {
            worker: WorkerId(1),
            is_stderr: false,
            descriptor,
            partial: Vec::new(),
            title: "worker".to_owned(),
            file: None,
            sink: None,
            place: None,
        }
    }

    #[test]
    fn lines_are_whole_and_named() {
        let mut pipe = pipe();
        assert_eq!(pipe.take(b"\x1esooner:f\nhel", 7), "");
        assert_eq!(pipe.take(b"lo\nworld", 7), "(f pid=7) hello\n");
        assert_eq!(pipe.take(b"\x1esooner:g\nx\n", 7), "(f pid=7) world\n(g pid=7) x\n");
        assert_eq!(pipe.finish(7), "");
    }

    #[test]
    fn lines_for_drivers_elsewhere_say_where_they_are_from() {
        let mut pipe = Pipe { place: Some([10, 0, 0, 2].into()), ..pipe() };
        assert_eq!(pipe.take(b"x\n", 7), "(worker pid=7, ip=10.0.0.2) x\n");
    }

    #[test]
    fn an_endless_line_is_shown_in_parts() {
        let mut pipe = pipe();
        let long = vec![b'a'; LINE_BYTES_MAX + 1];
        assert_eq!(pipe.take(&long, 7).len(), "(worker pid=7) \n".len() + long.len());
    }
}
