//! The fork server's loop: takes fork requests from the node, reports process ids and ends of workers.
//!
//! It runs in the template process, which has one thread. The fork itself is Python's (`os.fork`), between two calls
//! of [`Template::next_request`]. When the node is gone the template removes the session's directory and ends: it is the
//! one that is left when the process of the node is killed.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use rustix::event::epoll;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};
use sooner_wire::WorkerId;
use sooner_wire::message::{Exited, Forked, Message};

use crate::transport::{Inlet, Outlet, ReadResult};

/// A worker to fork.
#[derive(Debug)]
pub struct ForkRequest {
    /// Its id.
    pub worker: WorkerId,
    /// Its socket to the node.
    pub node: OwnedFd,
    /// Its standard output.
    pub stdout: OwnedFd,
    /// Its standard error.
    pub stderr: OwnedFd,
}

/// Token of the node's process: a driver, or a daemon.
const NODE: u64 = u64::MAX;

#[derive(Debug)]
struct Child {
    worker: WorkerId,
    pid: Pid,
    pidfd: OwnedFd,
}

/// See the module.
#[derive(Debug)]
pub struct Template {
    socket: OwnedFd,
    epoll: OwnedFd,
    _node: Option<OwnedFd>,
    inlet: Inlet,
    outlet: Outlet,
    children: HashMap<u64, Child>,
    next_token: u64,
    is_dismissed: bool,
}

impl Template {
    /// A template that talks to its node over `socket`.
    ///
    /// # Errors
    /// The kernel's word.
    pub fn new(socket: OwnedFd) -> rustix::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        // The socket alone does not tell: a process that a driver forked may hold copies of its other end.
        let node = rustix::process::getppid()
            .and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok());
        if let Some(node) = &node {
            epoll::add(&epoll, node, epoll::EventData::new_u64(NODE), epoll::EventFlags::IN)?;
        }
        Ok(Self {
            socket,
            epoll,
            _node: node,
            inlet: Inlet::default(),
            outlet: Outlet::default(),
            children: HashMap::new(),
            next_token: 1,
            is_dismissed: false,
        })
    }

    /// Waits for the next fork request; `None` when the node is gone.
    ///
    /// # Errors
    /// [`rustix::io::Errno::INTR`] when a signal came: call again.
    pub fn next_request(&mut self) -> rustix::io::Result<Option<ForkRequest>> {
        loop {
            if let Ok(Some(mut received)) = self.inlet.next_message() {
                match received.message {
                    Message::Fork(fork) if received.descriptors.len() == 3 => {
                        let mut descriptors = received.descriptors.drain(..);
                        let mut take = || descriptors.next().expect("three were counted");
                        let (node, stdout, stderr) = (take(), take(), take());
                        return Ok(Some(ForkRequest { worker: fork.worker, node, stdout, stderr }));
                    }
                    Message::Shutdown(_) => {
                        self.is_dismissed = true;
                        return Ok(None);
                    }
                    _ => return Ok(None),
                }
            }
            let mut events = Vec::with_capacity(16);
            epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), None)?;
            for event in events {
                let token = event.data.u64();
                if token == 0 {
                    if self.inlet.read(&self.socket) == ReadResult::End {
                        self.wake_children();
                        return Ok(None);
                    }
                } else if token == NODE {
                    self.end_children();
                    return Ok(None);
                } else {
                    self.reap(token);
                }
            }
        }
    }

    /// Whether the node lives and wants no more workers, so that its directory is its own business.
    #[must_use]
    pub fn is_dismissed(&self) -> bool {
        self.is_dismissed
    }

    fn reap(&mut self, token: u64) {
        let Some(Child { worker, pid, pidfd }) = self.children.remove(&token) else { return };
        let _ = epoll::delete(&self.epoll, &pidfd);
        // Whatever the worker started and left running goes with it. Until it is reaped its id is nobody else's.
        let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        use std::os::fd::AsFd;
        let status = rustix::process::waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED);
        let signal = status.as_ref().ok().and_then(|status| status.as_ref()?.terminating_signal());
        let killed = (signal == Some(Signal::KILL.as_raw())).then_some(true);
        let reason = match status {
            Ok(Some(status)) => match (status.exit_status(), signal) {
                (Some(code), _) => format!("exited with status {code}"),
                (None, Some(signal)) => format!("was killed by signal {signal}"),
                (None, None) => "ended".to_owned(),
            },
            Ok(None) | Err(_) => "ended".to_owned(),
        };
        self.send(&Exited { worker, reason, killed }.into());
    }

    /// The node is gone, and workers end by themselves when they see that: also one that is stopped. Its process may have
    /// been killed; that its sockets are closed can be seen before its end.
    fn wake_children(&mut self) {
        for child in self.children.values() {
            let _ = rustix::process::kill_process_group(child.pid, Signal::CONT);
        }
    }

    /// The node's process is dead, so nobody else ends them. Each leads its own process group.
    fn end_children(&mut self) {
        for child in self.children.values() {
            let _ = rustix::process::kill_process_group(child.pid, Signal::KILL);
            let _ = rustix::process::pidfd_send_signal(&child.pidfd, Signal::KILL);
        }
    }

    /// The worker was forked under this process id.
    pub fn forked(&mut self, worker: WorkerId, pid: i32) {
        let opened = Pid::from_raw(pid)
            .and_then(|pid| Some((pid, rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()?)));
        if let Some((pid, pidfd)) = opened {
            let token = self.next_token;
            self.next_token += 1;
            let data = epoll::EventData::new_u64(token);
            let _ = epoll::add(&self.epoll, &pidfd, data, epoll::EventFlags::IN);
            self.children.insert(token, Child { worker, pid, pidfd });
        }
        let pid = u32::try_from(pid).unwrap_or(0);
        self.send(&Forked { worker, pid, error: None }.into());
    }

    /// The worker could not be forked.
    pub fn fork_failed(&mut self, worker: WorkerId, error: String) {
        self.send(&Forked { worker, pid: 0, error: Some(error) }.into());
    }

    fn send(&mut self, message: &Message) {
        self.outlet.push(message);
        // The node always reads; a full socket is emptied with the next message.
        let _ = self.outlet.flush(&self.socket);
    }
}
