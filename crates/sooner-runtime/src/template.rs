//! The fork server's loop: takes fork requests from the node, reports process ids and deaths of workers.
//!
//! It runs in the template process, which has one thread. The fork itself is Python's (`os.fork`), between
//! two calls of [`Template::next_request`]. When the node is dead the template removes the session's
//! directory and ends: it is what is left when the process of the node is killed.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions};
use sooner_wire::WorkerId;
use sooner_wire::message::{Exited, Forked, Message};

use crate::poller::{Events, Interest, Poller};
use crate::transport::{Inlet, Outlet, ReadResult};
use crate::ulimits::told;

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

/// How long workers may take to end when the node is dead: a little longer than an actor's clean-up hook.
const SEEN_OFF: Duration = Duration::from_millis(600);

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
    poller: Poller,
    node: Option<OwnedFd>,
    inlet: Inlet,
    outlet: Outlet,
    children: HashMap<u64, Child>,
    next_token: u64,
    is_dismissed: bool,
    /// When the node was last heard, and how long it may be silent. `None` if no other node declares it dead.
    heard: Option<(Instant, Duration)>,
    /// The workers are stopped, because the node makes no progress.
    is_fenced: bool,
}

impl Template {
    /// A template that talks to its node over `socket`.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn new(socket: OwnedFd) -> rustix::io::Result<Self> {
        let poller = Poller::new()?;
        poller.add(&socket, 0, Interest::Read)?;
        // The socket's end is not enough: processes that a driver forked may hold copies of it.
        let node = rustix::net::sockopt::socket_peercred(&socket)
            .and_then(|peer| rustix::process::pidfd_open(peer.pid, PidfdFlags::empty()))
            .ok();
        if let Some(node) = &node {
            poller.add(node, NODE, Interest::Read)?;
        }
        Ok(Self {
            socket,
            poller,
            node,
            inlet: Inlet::default(),
            outlet: Outlet::default(),
            children: HashMap::new(),
            next_token: 1,
            is_dismissed: false,
            heard: None,
            is_fenced: false,
        })
    }

    /// Waits for the next fork request; `None` when the node is dead.
    ///
    /// # Errors
    /// [`rustix::io::Errno::INTR`] when a signal came: call again.
    pub fn next_request(&mut self) -> rustix::io::Result<Option<ForkRequest>> {
        let mut events = Events::with_capacity(16);
        loop {
            if let Ok(Some(mut received)) = self.inlet.next_message() {
                match received.message {
                    Message::Fork(fork) if received.descriptors.len() != 3 => {
                        // The kernel leaves out descriptors for which this process has no room.
                        self.fork_failed(fork.worker, &rustix::io::Errno::MFILE.into());
                        continue;
                    }
                    Message::Fork(fork) => {
                        let mut descriptors = received.descriptors.drain(..);
                        let mut take = || descriptors.next().expect("three were counted");
                        let (node, stdout, stderr) = (take(), take(), take());
                        return Ok(Some(ForkRequest { worker: fork.worker, node, stdout, stderr }));
                    }
                    Message::NodeLives(lives) => {
                        self.heard = Some((Instant::now(), Duration::from_nanos(lives.patience)));
                        self.fence(false);
                        continue;
                    }
                    Message::Shutdown(_) => {
                        self.is_dismissed = true;
                        // The node has killed those that it had, and waits for this process.
                        self.reap_all();
                        return Ok(None);
                    }
                    _ => return Ok(None),
                }
            }
            let left = self.patience_left();
            let timeout = left.and_then(|left| u64::try_from(left.as_nanos()).ok());
            self.poller.wait(&mut events, timeout)?;
            if events.is_empty() && left.is_some_and(|left| left.is_zero()) {
                self.fence(true);
            }
            for event in &events {
                let token = event.token;
                if token == 0 {
                    if self.inlet.read(&self.socket) == ReadResult::End {
                        self.see_children_off();
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

    /// How much longer the node may stay silent before its workers are stopped.
    fn patience_left(&self) -> Option<Duration> {
        let (since, patience) = self.heard.filter(|_| !self.is_fenced && !self.children.is_empty())?;
        Some((since + patience).saturating_duration_since(Instant::now()))
    }

    /// Stops all workers and the processes they have started, or lets them go on.
    fn fence(&mut self, stops: bool) {
        if std::mem::replace(&mut self.is_fenced, stops) == stops {
            return;
        }
        let signal = if stops { Signal::STOP } else { Signal::CONT };
        for child in self.children.values() {
            let _ = rustix::process::kill_process_group(child.pid, signal);
        }
    }

    fn reap(&mut self, token: u64) {
        let Some(Child { worker, pid, pidfd }) = self.children.remove(&token) else { return };
        let _ = self.poller.remove(&pidfd);
        // Processes that the worker started and left running are killed with it. The worker's id is not
        // reused before it is reaped.
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

    /// The node is dead. Workers end by themselves when they see that, so stopped ones are continued. The
    /// processes they started are killed with each, and after [`SEEN_OFF`] also workers that have not ended.
    /// If the node's process was killed, the end of its sockets can be seen before its own.
    fn see_children_off(&mut self) {
        for child in self.children.values() {
            let _ = rustix::process::kill_process_group(child.pid, Signal::CONT);
        }
        self.reap_all();
        self.end_children();
    }

    /// Reaps the workers as they end, for [`SEEN_OFF`] at most. In a container nobody else may do that after
    /// this process.
    fn reap_all(&mut self) {
        let _ = self.poller.remove(&self.socket);
        if let Some(node) = &self.node {
            let _ = self.poller.remove(node);
        }
        let deadline = Instant::now() + SEEN_OFF;
        let mut events = Events::with_capacity(16);
        while !self.children.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let _ = self.poller.wait(&mut events, Some(u64::from(left.subsec_nanos())));
            for event in &events {
                self.reap(event.token);
            }
        }
    }

    /// Kills the workers: the node's process, which would do it, is dead. Each leads a process group.
    fn end_children(&mut self) {
        for child in self.children.values() {
            let _ = rustix::process::kill_process_group(child.pid, Signal::KILL);
            let _ = rustix::process::pidfd_send_signal(&child.pidfd, Signal::KILL);
        }
    }

    /// The worker was forked under this process id.
    pub fn forked(&mut self, worker: WorkerId, pid: i32) {
        let Some(process) = Pid::from_raw(pid) else { return };
        let token = self.next_token;
        self.next_token += 1;
        let watched = rustix::process::pidfd_open(process, PidfdFlags::empty()).and_then(|pidfd| {
            self.poller.add(&pidfd, token, Interest::Read)?;
            Ok(pidfd)
        });
        match watched {
            Ok(pidfd) => {
                self.children.insert(token, Child { worker, pid: process, pidfd });
                let pid = u32::try_from(pid).unwrap_or(0);
                self.send(&Forked { worker, pid, error: None }.into());
            }
            Err(error) => {
                // No process would see the worker's end, or kill what it leaves running.
                let _ = rustix::process::kill_process(process, Signal::KILL);
                let _ = rustix::process::waitpid(Some(process), WaitOptions::empty());
                self.fork_failed(worker, &error.into());
            }
        }
    }

    /// The worker could not be forked.
    pub fn fork_failed(&mut self, worker: WorkerId, error: &io::Error) {
        self.send(&Forked { worker, pid: 0, error: Some(told(error)) }.into());
    }

    fn send(&mut self, message: &Message) {
        self.outlet.push(message);
        // The node always reads; a full socket is emptied with the next message.
        let _ = self.outlet.flush(&self.socket);
    }
}
