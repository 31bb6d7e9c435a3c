//! The node's event loop: sockets and the shared memory around a [`Solo`].

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::epoll;
use rustix::process::{Pid, Signal};
use weft_protocol::node::{NodeAction, NodeActions};
use weft_protocol::solo::Solo;
use weft_protocol::time::Instant;
use weft_store::{Arena, Mapping};
use weft_wire::message::{Allocated, Hello, Message, PeerConnected, Refused, Shutdown, Welcome, role};
use weft_wire::strategy::NODE_LABEL;
use weft_wire::{TaskId, WorkerId, version};

use super::NodeOptions;
use super::metrics::Metrics;
use super::rounds::Rounds;
use super::template::TemplateProcess;
use crate::clock::now;
use crate::logs::Logs;
use crate::session::SessionDirectory;
use crate::transport::{Flush, Inlet, Outlet, ReadResult, pair};

mod inspection;
mod transfers;

const WAKE: u64 = 0;
const LISTENER: u64 = 1;
const TEMPLATE: u64 = 2;
const FIRST_CLIENT: u64 = 16;

/// How long the end of a worker waits for the template to say why (nanoseconds).
const REASON_NANOS: u64 = 200_000_000;
/// How long workers get to leave at the end (nanoseconds).
const LEAVE_NANOS: u64 = 500_000_000;

/// What is at the other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// It has not said hello.
    Stranger,
    /// A program that uses this node.
    Driver,
    /// A process that the template forked for this node.
    Worker,
    /// Something that only asks.
    Tool,
}

struct Connection {
    socket: OwnedFd,
    inlet: Inlet,
    outlet: Outlet,
    /// The worker this socket was made for, or who said hello over it.
    worker: Option<WorkerId>,
    role: Role,
    is_greeted: bool,
    is_full: bool,
    pid: u32,
    cell: u32,
}

/// The end of a process that was noticed.
struct Ended {
    at: Instant,
    last_started: Option<TaskId>,
    /// The template may still say why.
    awaits_reason: bool,
}

/// See the module.
pub struct Service {
    core: Solo,
    driver: WorkerId,
    options: NodeOptions,
    directory: SessionDirectory,
    mapping: Mapping,
    arena: Arena,
    listener: UnixListener,
    epoll: OwnedFd,
    wake: Arc<OwnedFd>,
    stopping: Arc<AtomicBool>,
    connections: HashMap<u64, Connection>,
    tokens: HashMap<WorkerId, u64>,
    next_token: u64,
    free_cells: Vec<u32>,
    next_cell: u32,
    template: Option<TemplateProcess>,
    /// Why workers ended, as the template says; and when each silent end was noticed.
    reasons: HashMap<WorkerId, String>,
    ended: BTreeMap<WorkerId, Ended>,
    logs: Logs,
    dirty: Vec<u64>,
    started: Instant,
    rounds: Rounds,
    metrics: Metrics,
    /// Processes that ended: the latest.
    ended_rows: VecDeque<weft_wire::message::state::EndedRow>,
}

impl Service {
    pub(super) fn new(
        mut options: NodeOptions,
        directory: SessionDirectory,
        wake: Arc<OwnedFd>,
        stopping: Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let mapping = Mapping::create(options.store_bytes).map_err(io::Error::other)?;
        let arena = Arena::new(Mapping::header_bytes(), options.store_bytes);
        let path = directory.path().join("node.sock");
        let listener = UnixListener::bind(&path)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        let template = if options.template.is_empty() {
            None
        } else {
            Some(TemplateProcess::start(options.template.clone(), directory.path())?)
        };
        let logs = Logs::start(&directory.path().join("logs"), options.sink.take())?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let add = |fd: &dyn AsFd, token| {
            epoll::add(&epoll, fd.as_fd(), epoll::EventData::new_u64(token), epoll::EventFlags::IN)
        };
        add(&*wake, WAKE)?;
        add(&listener, LISTENER)?;
        if let Some(template) = &template {
            add(template.socket(), TEMPLATE)?;
        }
        let mut core = Solo::new(options.resources.clone(), options.node.0, options.pool_size);
        core.set_store_bytes(arena.capacity());
        let mut labels = options.labels.clone();
        labels.push((NODE_LABEL.to_owned(), format!("{:016x}", options.node.0)));
        labels.sort();
        core.set_labels(labels);
        Ok(Self {
            core,
            driver: WorkerId::default(),
            options,
            directory,
            mapping,
            arena,
            listener,
            epoll,
            wake,
            stopping,
            connections: HashMap::new(),
            tokens: HashMap::new(),
            next_token: FIRST_CLIENT,
            free_cells: Vec::new(),
            next_cell: 0,
            template,
            reasons: HashMap::new(),
            ended: BTreeMap::new(),
            logs,
            dirty: Vec::new(),
            started: now(),
            rounds: Rounds::default(),
            metrics: Metrics::default(),
            ended_rows: VecDeque::new(),
        })
    }

    pub(super) fn run(mut self) {
        let mut out = NodeActions::new();
        while !self.stopping.load(Ordering::Acquire) {
            let timeout = self.timeout().map(timespec);
            let mut events = Vec::with_capacity(64);
            let space = rustix::buffer::spare_capacity(&mut events);
            let _ = epoll::wait(&self.epoll, space, timeout.as_ref());
            for event in events {
                self.on_event(event.data.u64(), event.flags, &mut out);
            }
            self.end_silent_workers(&mut out);
            self.end_rounds();
            self.core.settle(now(), &mut out);
            self.perform(&mut out);
            self.flush_dirty();
        }
        self.close();
    }

    fn timeout(&self) -> Option<u64> {
        let silent = self.ended.values().map(|ended| ended.at.plus(REASON_NANOS)).min();
        let next = [self.core.next_deadline(), silent, self.rounds.deadline()].into_iter().flatten().min()?;
        Some(next.since(now()))
    }

    fn on_event(&mut self, token: u64, flags: epoll::EventFlags, out: &mut NodeActions) {
        match token {
            WAKE => {
                let mut count = [0; 8];
                let _ = rustix::io::read(&*self.wake, &mut count);
            }
            LISTENER => self.accept(),
            TEMPLATE => self.on_template(out),
            _ => {
                if flags.contains(epoll::EventFlags::OUT) {
                    self.flush(token);
                }
                if flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
                    self.read(token, out);
                }
            }
        }
    }

    fn accept(&mut self) {
        let Ok((stream, _)) = self.listener.accept() else { return };
        let own = rustix::process::getuid();
        match rustix::net::sockopt::socket_peercred(&stream) {
            Ok(peer) if peer.uid == own => {}
            Ok(peer) => {
                return self.note(&format!("refused a connection of user {}", peer.uid.as_raw()));
            }
            Err(_) => return,
        }
        if stream.set_nonblocking(true).is_ok() {
            self.add_connection(stream.into(), None);
        }
    }

    fn add_connection(&mut self, socket: OwnedFd, worker: Option<WorkerId>) {
        let token = self.next_token;
        self.next_token += 1;
        let data = epoll::EventData::new_u64(token);
        if epoll::add(&self.epoll, &socket, data, epoll::EventFlags::IN).is_err() {
            return;
        }
        if let Some(worker) = worker {
            self.tokens.insert(worker, token);
        }
        let connection = Connection {
            socket,
            inlet: Inlet::default(),
            outlet: Outlet::default(),
            role: if worker.is_some() { Role::Worker } else { Role::Stranger },
            worker,
            is_greeted: false,
            is_full: false,
            pid: 0,
            cell: 0,
        };
        self.connections.insert(token, connection);
    }

    fn read(&mut self, token: u64, out: &mut NodeActions) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let result = connection.inlet.read(&connection.socket);
        loop {
            let Some(connection) = self.connections.get_mut(&token) else { return };
            match connection.inlet.next_message() {
                Ok(Some(received)) => self.on_message(token, received.message, out),
                Ok(None) => break,
                Err(error) => {
                    self.note(&format!("ended a connection: {error}"));
                    return self.end_connection(token, out);
                }
            }
        }
        if result == ReadResult::End {
            self.end_connection(token, out);
        }
    }

    fn on_message(&mut self, token: u64, message: Message, out: &mut NodeActions) {
        let Some(connection) = self.connections.get(&token) else { return };
        if !connection.is_greeted {
            return match message {
                Message::Hello(hello) => self.greet(token, &hello),
                _ => self.refuse(token, "the first message must be a greeting"),
            };
        }
        let Some(message) = self.on_inspection(token, message) else { return };
        let from = self.connections[&token].worker.expect("only tools have no id");
        if let Some(Message::Allocate(ask)) = self.core.on_message(from, message, now(), out) {
            self.allocate(from, ask.request, ask.bytes, out);
        }
    }

    fn greet(&mut self, token: u64, hello: &Hello) {
        if let Err(reason) = version::check(hello.major, hello.minor) {
            return self.refuse(token, &reason);
        }
        if hello.role == role::TOOL && self.connections[&token].worker.is_none() {
            return self.greet_tool(token);
        }
        if hello.python != self.options.python {
            let reason = format!(
                "this session runs Python {}, you run Python {}: pickled code only works between equal versions",
                self.options.python, hello.python
            );
            return self.refuse(token, &reason);
        }
        let made_for = self.connections[&token].worker;
        let worker = match (hello.role, made_for) {
            (role::WORKER, Some(worker)) if worker == hello.worker => worker,
            (role::DRIVER, None) => self.core.new_worker_id(),
            _ => return self.refuse(token, "workers are started by their node only"),
        };
        if self.driver == WorkerId::default() && hello.role == role::DRIVER {
            self.driver = worker;
        }
        let cell = self.free_cells.pop().unwrap_or_else(|| {
            self.next_cell += 1;
            self.next_cell - 1
        });
        self.mapping.clear_cell(cell);
        let welcome = Welcome {
            worker,
            node: self.options.node,
            arena_bytes: self.mapping.total_bytes(),
            inline_bytes: self.options.inline_bytes,
            cell,
            driver: self.driver,
            namespace: self.options.namespace.clone(),
            events_bytes: Some(self.options.events_bytes),
            lineage_bytes: Some(self.options.lineage_bytes),
        };
        let memory = self.mapping.descriptor().expect("open as long as the node");
        let Ok(descriptor) = memory.try_clone() else {
            return self.refuse(token, "this process has too many open descriptors");
        };
        let connection = self.connections.get_mut(&token).expect("looked up above");
        connection.worker = Some(worker);
        connection.role = if made_for.is_some() { Role::Worker } else { Role::Driver };
        connection.is_greeted = true;
        connection.pid = hello.pid;
        connection.cell = cell;
        connection.outlet.push_with(&welcome.into(), vec![descriptor]);
        self.dirty.push(token);
        self.tokens.insert(worker, token);
        self.logs.set_pid(worker, hello.pid);
        self.core.on_connected(worker, hello.pid, now());
    }

    fn refuse(&mut self, token: u64, reason: &str) {
        self.note(&format!("refused a client: {reason}"));
        if let Some(mut connection) = self.connections.remove(&token) {
            connection.outlet.push(&Refused { reason: reason.to_owned() }.into());
            let _ = connection.outlet.flush(&connection.socket);
        }
    }

    fn allocate(&mut self, from: WorkerId, request: u64, bytes: u64, out: &mut NodeActions) {
        let offset = self.arena.allocate(bytes);
        match offset {
            Some(offset) => self.core.on_allocated(offset, from),
            // Whoever asked asks again.
            None => self.trim_caches(out),
        }
        let (used, capacity) = (self.arena.used(), self.arena.capacity());
        let answer = Allocated { request, offset, used, capacity };
        out.push(NodeAction::Send(from, Box::new(answer.into())));
    }

    fn end_connection(&mut self, token: u64, out: &mut NodeActions) {
        let Some(connection) = self.connections.remove(&token) else { return };
        let Some(worker) = connection.worker else { return self.rounds.forget_tool(token) };
        self.tokens.remove(&worker);
        if connection.is_greeted {
            self.note_end(worker, connection.pid);
        }
        let last_started = if connection.is_greeted {
            self.free_cells.push(connection.cell);
            self.mapping.last_started(connection.cell)
        } else {
            None
        };
        let is_worker = connection.role == Role::Worker;
        if is_worker && connection.pid != 0 && !self.reasons.contains_key(&worker) {
            // Whatever the worker started and left running goes with it; the template sees to that where it was faster.
            signal_group(connection.pid);
        }
        match self.reasons.remove(&worker) {
            Some(reason) => self.gone(worker, &reason, last_started, out),
            None => {
                let ended = Ended { at: now(), last_started, awaits_reason: is_worker };
                self.ended.insert(worker, ended);
            }
        }
    }

    fn end_silent_workers(&mut self, out: &mut NodeActions) {
        if self.ended.is_empty() {
            return;
        }
        let time = now();
        let ended = std::mem::take(&mut self.ended);
        for (worker, ended) in ended {
            let reason = self.reasons.remove(&worker);
            if reason.is_none() && ended.awaits_reason && time.since(ended.at) < REASON_NANOS {
                self.ended.insert(worker, ended);
                continue;
            }
            let reason = reason.unwrap_or_else(|| "ended".to_owned());
            self.gone(worker, &reason, ended.last_started, out);
        }
    }

    fn on_template(&mut self, out: &mut NodeActions) {
        let Some(template) = &mut self.template else { return };
        let Some(messages) = template.read() else { return self.restart_template(out) };
        for message in messages {
            match message {
                Message::Forked(forked) => match forked.error {
                    Some(error) => {
                        if let Some(token) = self.tokens.remove(&forked.worker) {
                            self.connections.remove(&token);
                        }
                        self.core.on_start_failed(forked.worker, &error, out);
                    }
                    None => self.logs.set_pid(forked.worker, forked.pid),
                },
                Message::Exited(exited) => {
                    if self.tokens.contains_key(&exited.worker) || self.ended.contains_key(&exited.worker) {
                        self.reasons.insert(exited.worker, exited.reason);
                    }
                }
                other => self.note(&format!("the template said {}", other.kind())),
            }
        }
    }

    fn restart_template(&mut self, out: &mut NodeActions) {
        let Some(template) = &mut self.template else { return };
        let _ = epoll::delete(&self.epoll, template.socket());
        match template.restart() {
            Ok(lost) => {
                let data = epoll::EventData::new_u64(TEMPLATE);
                let _ = epoll::add(&self.epoll, template.socket(), data, epoll::EventFlags::IN);
                for worker in lost {
                    if let Some(token) = self.tokens.remove(&worker) {
                        self.connections.remove(&token);
                    }
                    self.core.on_start_failed(worker, "the template process ended", out);
                }
            }
            Err(error) => {
                self.template = None;
                self.note(&format!("no more workers can be started: {error}"));
                eprintln!("weft: no more workers can be started: {error}");
            }
        }
    }

    fn perform(&mut self, out: &mut NodeActions) {
        // Performing may fail a start, which may ask for another: until nothing is left to do.
        while !out.is_empty() {
            let mut more = NodeActions::new();
            for action in std::mem::take(out) {
                match action {
                    NodeAction::Send(to, message) => self.send(to, &message, Vec::new()),
                    NodeAction::Introduce(a, b) => self.introduce(a, b),
                    NodeAction::StartWorker(worker) => self.start_worker(worker, &mut more),
                    NodeAction::KillWorker(worker) => self.kill_worker(worker),
                    NodeAction::FreeBlock(offset) => {
                        self.arena.free(offset);
                    }
                    NodeAction::Warn(text) => {
                        self.note(&text);
                        eprintln!("weft: {text}");
                    }
                    NodeAction::Control(_) => unreachable!("both cores are in this node"),
                    NodeAction::AllocateFor { object, bytes } => {
                        self.allocate_for(object, bytes, &mut more);
                    }
                    NodeAction::Fetch(fetching) => self.fetch(&fetching, &mut more),
                    NodeAction::StopFetching { .. } | NodeAction::Route { .. } => {}
                }
            }
            *out = more;
        }
    }

    fn send(&mut self, to: WorkerId, message: &Message, descriptors: Vec<OwnedFd>) {
        let Some(token) = self.tokens.get(&to) else { return };
        let Some(connection) = self.connections.get_mut(token) else { return };
        if descriptors.is_empty() {
            connection.outlet.push(message);
        } else {
            connection.outlet.push_with(message, descriptors);
        }
        self.dirty.push(*token);
    }

    fn introduce(&mut self, a: WorkerId, b: WorkerId) {
        match pair() {
            Ok((for_a, for_b)) => {
                self.send(a, &PeerConnected { worker: b }.into(), vec![for_a]);
                self.send(b, &PeerConnected { worker: a }.into(), vec![for_b]);
            }
            Err(error) => {
                let text = format!(
                    "cannot connect two processes: {error}. Raise the limit of open files (ulimit -n)"
                );
                self.note(&text);
                eprintln!("weft: {text}");
            }
        }
    }

    fn start_worker(&mut self, worker: WorkerId, out: &mut NodeActions) {
        let made = (|| {
            let (ours, theirs) = pair()?;
            let flags = rustix::pipe::PipeFlags::CLOEXEC;
            let (stdout, stdout_end) = rustix::pipe::pipe_with(flags)?;
            let (stderr, stderr_end) = rustix::pipe::pipe_with(flags)?;
            Ok::<_, rustix::io::Errno>((ours, stdout, stderr, vec![theirs, stdout_end, stderr_end]))
        })();
        match (made, &mut self.template) {
            (Ok((ours, stdout, stderr, theirs)), Some(template)) => {
                template.fork(worker, theirs);
                self.logs.add(worker, stdout, stderr);
                self.add_connection(ours, Some(worker));
            }
            (Err(error), _) => {
                self.core.on_start_failed(worker, &error.to_string(), out);
            }
            (Ok(_), None) => {
                self.core.on_start_failed(worker, "there is no template process", out);
            }
        }
    }

    fn kill_worker(&mut self, worker: WorkerId) {
        let connection = self.tokens.get(&worker).and_then(|token| self.connections.get(token));
        let Some(Connection { role: Role::Worker, pid, .. }) = connection else { return };
        // A reported end means the id may be another process's by now.
        if *pid != 0 && !self.reasons.contains_key(&worker) {
            signal_group(*pid);
        }
    }

    fn flush_dirty(&mut self) {
        let mut dirty = std::mem::take(&mut self.dirty);
        dirty.sort_unstable();
        dirty.dedup();
        for token in dirty {
            self.flush(token);
        }
    }

    fn flush(&mut self, token: u64) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let is_full = connection.outlet.flush(&connection.socket) == Flush::Full;
        if is_full != connection.is_full {
            connection.is_full = is_full;
            let mut flags = epoll::EventFlags::IN;
            flags.set(epoll::EventFlags::OUT, is_full);
            let data = epoll::EventData::new_u64(token);
            let _ = epoll::modify(&self.epoll, &connection.socket, data, flags);
        }
    }

    /// A line in the node's log.
    fn note(&self, text: &str) {
        let path = self.directory.path().join("logs").join("node.log");
        if let Ok(mut file) = std::fs::OpenOptions::new().append(true).create(true).open(path) {
            let _ = writeln!(file, "{} {text}", now().0 / 1_000_000);
        }
    }

    fn close(mut self) {
        let end: Message = Shutdown { reason: "the session ends".to_owned() }.into();
        let workers: Vec<u64> = self
            .connections
            .iter()
            .filter(|(_, c)| c.role == Role::Worker)
            .map(|(token, _)| *token)
            .collect();
        for token in &workers {
            if let Some(connection) = self.connections.get_mut(token) {
                connection.outlet.push(&end);
            }
            self.flush(*token);
        }
        let deadline = now().plus(LEAVE_NANOS);
        let mut out = NodeActions::new();
        while now() < deadline && workers.iter().any(|token| self.connections.contains_key(token)) {
            let mut events = Vec::with_capacity(64);
            let timeout = timespec(deadline.since(now()));
            let space = rustix::buffer::spare_capacity(&mut events);
            let _ = epoll::wait(&self.epoll, space, Some(&timeout));
            for event in events {
                if event.data.u64() >= FIRST_CLIENT {
                    self.read(event.data.u64(), &mut out);
                } else if event.data.u64() == TEMPLATE {
                    self.on_template(&mut out);
                }
            }
            out.clear();
        }
        for connection in self.connections.values() {
            if connection.pid != 0 && connection.role == Role::Worker {
                signal_group(connection.pid);
            }
        }
        self.connections.clear();
        if let Some(template) = self.template.take() {
            template.stop();
        }
        self.logs.close();
    }
}

/// Kills a worker and what it started: each worker leads its own process group.
fn signal_group(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
}

fn timespec(nanos: u64) -> rustix::event::Timespec {
    rustix::event::Timespec {
        tv_sec: i64::try_from(nanos / 1_000_000_000).expect("within an age"),
        tv_nsec: i64::try_from(nanos % 1_000_000_000).expect("below a second"),
    }
}
