//! The node's end of the fork server: starting the template process and asking it for workers.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use weft_wire::WorkerId;
use weft_wire::message::{Fork, Message};

use crate::transport::{Inlet, Outlet, ReadResult, pair};

/// The template is started again when it ends, but not for ever.
const STARTS_MAX: u32 = 5;

/// See the module.
#[derive(Debug)]
pub struct TemplateProcess {
    command: Vec<OsString>,
    child: Child,
    socket: OwnedFd,
    inlet: Inlet,
    outlet: Outlet,
    starts: u32,
    asked: HashSet<WorkerId>,
}

impl TemplateProcess {
    /// Starts the template.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn start(mut command: Vec<OsString>, directory: &Path) -> io::Result<Self> {
        command.push(directory.into());
        let (child, socket) = spawn(&command)?;
        Ok(Self {
            command,
            child,
            socket,
            inlet: Inlet::default(),
            outlet: Outlet::default(),
            starts: 1,
            asked: HashSet::new(),
        })
    }

    /// The socket to watch.
    pub fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Asks for a worker. It gets the three descriptors.
    pub fn fork(&mut self, worker: WorkerId, descriptors: Vec<OwnedFd>) {
        self.asked.insert(worker);
        self.outlet.push_with(&Fork { worker }.into(), descriptors);
        let _ = self.outlet.flush(&self.socket);
    }

    /// What the template says; `None` when it is gone.
    pub fn read(&mut self) -> Option<Vec<Message>> {
        let end = self.inlet.read(&self.socket) == ReadResult::End;
        let mut messages = Vec::new();
        while let Ok(Some(received)) = self.inlet.next_message() {
            if let Message::Forked(forked) = &received.message {
                self.asked.remove(&forked.worker);
            }
            messages.push(received.message);
        }
        (!end || !messages.is_empty()).then_some(messages)
    }

    /// Starts the template again after its end. Gives the workers that were asked for in vain.
    ///
    /// # Errors
    /// When it cannot be started, or has ended too often.
    pub fn restart(&mut self) -> io::Result<Vec<WorkerId>> {
        let status = self.child.wait()?;
        self.starts += 1;
        if self.starts > STARTS_MAX {
            return Err(io::Error::other(format!(
                "the template process ended {STARTS_MAX} times, last with {status}"
            )));
        }
        (self.child, self.socket) = spawn(&self.command)?;
        self.inlet = Inlet::default();
        self.outlet = Outlet::default();
        Ok(self.asked.drain().collect())
    }

    /// Ends the template: it ends when its socket does.
    pub fn stop(self) {
        let Self { mut child, socket, .. } = self;
        drop(socket);
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(2);
        while std::time::Instant::now() < deadline {
            if matches!(child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn spawn(command: &[OsString]) -> io::Result<(Child, OwnedFd)> {
    let (ours, theirs) = pair()?;
    let child = Command::new(&command[0])
        .args(&command[1..])
        .stdin(Stdio::from(theirs))
        // Its own group: Ctrl-C in the terminal is for the driver, which decides what it means for tasks.
        .process_group(0)
        .spawn()?;
    Ok((child, ours))
}
