//! The node's event loop: sockets and the shared memory around an [`Engine`].

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use sooner_protocol::engine::{Engine, Part};
use sooner_protocol::node::NodeActions;
use sooner_protocol::node::objects::Creations;
use sooner_protocol::time::Instant;
use sooner_store::{Mapping, Room};
use sooner_wire::message::{Hello, Message, Refused, Welcome, role};
use sooner_wire::strategy::NODE_LABEL;
use sooner_wire::{WorkerId, version};

use self::cells::Cells;
use self::spilling::{Spilling, open_fallback, open_memory};
use super::cluster::{Cluster, Itself};
use super::data::{Data, DataOptions, Tuning};
use super::metrics::Metrics;
use super::notes::{Notes, tell};
use super::rounds::Rounds;
use super::{Eviction, HostJob, NodeOptions};
use crate::clock::now;
use crate::groups::Groups;
use crate::identity::Credentials;
use crate::logs::Logs;
use crate::machine::Machine;
use crate::poller::{Event, Events, Interest, Poller};
use crate::session::SessionDirectory;
use crate::transport::{Inlet, Outlet, ReadResult};

mod cells;
mod cluster_events;
mod creations;
mod draining;
mod effects;
mod ending;
mod fencing;
mod files;
mod holding;
mod inspection;
mod jobs;
mod lines;
mod listener;
mod memory;
mod node_metrics;
mod peers;
mod remote_lines;
mod spilling;
mod transfers;

use ending::Ended;
use jobs::Job;
use listener::Listener;
use memory::Monitor;

const WAKE: u64 = 0;
const LISTENER: u64 = 1;
const CLUSTER: u64 = 2;
const FIRST_CLIENT: u64 = 16;

/// Time between two checks of dismissed templates (nanoseconds).
const REAP_NANOS: u64 = 20_000_000;

/// What is at the other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// A process that has not sent its greeting.
    Stranger,
    /// A program that uses this node.
    Driver,
    /// A process that the template forked for this node.
    Worker,
    /// A tool: it only queries state.
    Tool,
    /// A driver's second connection: it only reads lines.
    Reader,
}

struct Connection {
    socket: OwnedFd,
    inlet: Inlet,
    outlet: Outlet,
    /// The worker for which the socket was made, or the process that greeted over it.
    worker: Option<WorkerId>,
    role: Role,
    is_greeted: bool,
    is_full: bool,
    pid: u32,
    cell: u32,
    /// Whether this node is a thread of the peer's process.
    is_host: bool,
    /// A descriptor that signals the end of a driver's process, and its token.
    process: Option<(OwnedFd, u64)>,
}

/// What other threads ask of the service, besides waking it.
pub(super) struct Signals {
    pub(super) stopping: Arc<AtomicBool>,
    pub(super) draining: Arc<AtomicBool>,
    /// New credentials for the node's processes.
    pub(super) credentials: Arc<Mutex<Option<Credentials>>>,
}

/// See the module.
pub struct Service {
    core: Engine,
    /// The driver that hosts this node; zero if none does.
    driver: WorkerId,
    jobs: HashMap<WorkerId, Job>,
    /// Jobs by the tokens of their templates.
    templates: HashMap<u64, WorkerId>,
    pulse: fencing::Pulse,
    /// Templates that were dismissed.
    leaving: Vec<jobs::Leaving>,
    /// Connections by the tokens that signal the ends of their processes.
    processes: HashMap<u64, u64>,
    options: NodeOptions,
    directory: SessionDirectory,
    mapping: Arc<Mapping>,
    arena: Room,
    listener: Listener,
    poller: Poller,
    wake: Arc<OwnedFd>,
    signals: Signals,
    draining: Option<draining::Draining>,
    connections: HashMap<u64, Connection>,
    tokens: HashMap<WorkerId, u64>,
    next_token: u64,
    cells: Cells,
    ends: ending::Ends,
    introductions: Vec<peers::Introduction>,
    handed: peers::HandedEnds,
    logs: Logs,
    dirty: Vec<u64>,
    notes: Notes,
    cluster: Option<Cluster>,
    /// Moves values between nodes. `None` outside a cluster.
    data: Option<Data>,
    /// Writes values to disk when memory is full.
    spilling: Spilling,
    /// Allocations that wait for room.
    creations: Creations,
    started: Instant,
    rounds: Rounds,
    metrics: Metrics,
    memory: Monitor,
    /// Control groups of workers whose memory is limited.
    groups: Groups,
}

/// The core of a node with these options.
fn core_for(options: &NodeOptions, store_bytes: u64, spills: bool) -> Engine {
    let part = match &options.cluster {
        None => Part::Alone,
        Some(cluster) if cluster.listen.is_none() => Part::Program,
        Some(_) => Part::Member,
    };
    let mut labels = options.labels.clone();
    labels.push((NODE_LABEL.to_owned(), format!("{:016x}", options.node.0)));
    labels.sort();
    let mut core = Engine::new(options.resources.clone(), options.node.0, options.pool_size, part);
    core.set_store_bytes(store_bytes);
    core.set_labels(labels);
    if spills {
        core.set_spills();
    }
    if options.eviction == Eviction::Recompute {
        core.set_recomputes();
    }
    core.set_memory_limits(options.memory.limited);
    core
}

impl Service {
    pub(super) fn new(
        mut options: NodeOptions,
        directory: SessionDirectory,
        wake: Arc<OwnedFd>,
        signals: Signals,
    ) -> io::Result<Self> {
        let (mapping, fallback) = open_memory(options.store_bytes, open_fallback(&options)?)?;
        let mapping = Arc::new(mapping);
        let machine = Machine::default();
        let memory = Monitor::new(options.memory, machine.clone());
        let available = Box::new(move || machine.available());
        let arena =
            Room::new(mapping.clone(), options.store_bytes, available).with_fallback(fallback).with_spare();
        let logs = Logs::start(&directory.path().join("logs"))?;
        let poller = Poller::new()?;
        poller.add(&*wake, WAKE, Interest::Read)?;
        let listener = Listener::bind(&directory.path().join("node.sock"), &poller, LISTENER)?;
        let data = open_data(&options, &directory, &mapping, &wake)?;
        let spilling = Spilling::open(&options, &mapping, &wake)?;
        let core = core_for(&options, arena.capacity(), spilling.is_on());
        let cluster = open_cluster(&mut options, &directory, &wake)?;
        if let Some(cluster) = &cluster {
            poller.add(cluster.events(), CLUSTER, Interest::Read)?;
        }
        let host = options.host.take();
        let mut service = Self {
            core,
            groups: Groups::new(options.node, directory.path()),
            driver: WorkerId::default(),
            jobs: HashMap::new(),
            templates: HashMap::new(),
            pulse: fencing::Pulse::default(),
            leaving: Vec::new(),
            processes: HashMap::new(),
            options,
            notes: Notes::new(directory.path()),
            cluster,
            data,
            spilling,
            directory,
            mapping,
            arena,
            listener,
            poller,
            wake,
            signals,
            draining: None,
            connections: HashMap::new(),
            tokens: HashMap::new(),
            next_token: FIRST_CLIENT,
            cells: Cells::default(),
            ends: ending::Ends::default(),
            introductions: Vec::new(),
            handed: peers::HandedEnds::default(),
            logs,
            dirty: Vec::new(),
            creations: Creations::default(),
            started: now(),
            rounds: Rounds::default(),
            metrics: Metrics::default(),
            memory,
        };
        if let Some(HostJob { config, sink }) = host {
            service.add_host(config, sink)?;
        }
        Ok(service)
    }

    pub(super) fn run(mut self) {
        let mut out = NodeActions::new();
        let mut events = Events::with_capacity(64);
        while !self.is_to_end() {
            let timeout = self.timeout();
            let _ = self.poller.wait(&mut events, timeout);
            let has_acted = !events.is_empty();
            for event in &events {
                self.on_event(event, &mut out);
            }
            self.receive(&mut out);
            self.attend_data(&mut out);
            self.attend_spills(&mut out);
            self.end_silent_processes(&mut out);
            self.watch_memory(&mut out);
            self.end_rounds();
            self.listener.attend(&self.poller, now);
            self.end_jobs();
            self.reap_templates();
            self.beat();
            self.attend_introductions();
            self.groups.attend();
            self.core.after_events(now(), &mut out);
            self.perform(&mut out);
            if self.attend_creations(&mut out) {
                self.perform(&mut out);
            }
            self.pass_lines();
            self.pass_remote_lines();
            self.arena.attend(now().0);
            self.flush_dirty();
            if let Some(cluster) = &mut self.cluster {
                cluster.attend(has_acted, || self.core.resources_now());
            }
        }
        self.close();
    }

    fn is_to_end(&mut self) -> bool {
        let renewed = self.signals.credentials.lock().take();
        if let Some(credentials) = renewed {
            self.renew(credentials);
        }
        if self.signals.draining.load(Ordering::Acquire) {
            self.begin_to_stop();
        }
        let is_drained = self.has_drained();
        let is_outcast = self.cluster.as_ref().is_some_and(Cluster::must_end);
        is_drained || is_outcast || self.signals.stopping.load(Ordering::Acquire)
    }

    fn timeout(&mut self) -> Option<u64> {
        let silent = self.ends.unannounced.values().map(Ended::deadline).min();
        let is_leaving = !self.leaving.is_empty() || self.groups.is_one_leaving();
        let leaving = is_leaving.then(|| now().plus(REAP_NANOS));
        let core = self.core.next_deadline();
        let cluster = self.cluster.as_ref().and_then(Cluster::next_deadline);
        let drained = self.draining.map(|draining| draining.deadline());
        let listener = self.listener.next_deadline();
        let pages = self.arena.deadline(now().0).map(Instant);
        let rounds = [self.rounds.deadline(), self.lines_deadline(), self.memory_deadline(), pages];
        let creations = self.creations.next_deadline();
        let introductions = self.introductions_deadline();
        let own =
            [silent, cluster, leaving, drained, listener, creations, introductions, self.beat_deadline()];
        let own = own.into_iter().chain(rounds);
        let next = own.flatten().chain(core).min()?;
        Some(next.since(now()))
    }

    fn on_event(&mut self, event: Event, out: &mut NodeActions) {
        let token = event.token;
        match token {
            WAKE => {
                let mut count = [0; 8];
                let _ = rustix::io::read(&*self.wake, &mut count);
            }
            LISTENER => self.accept(),
            CLUSTER => {
                if let Some(cluster) = &mut self.cluster {
                    cluster.on_ready();
                }
            }
            _ if self.templates.contains_key(&token) => self.on_template(self.templates[&token], out),
            _ if self.processes.contains_key(&token) => self.on_process_end(self.processes[&token], out),
            _ => {
                if event.is_writable() {
                    self.flush(token);
                }
                if event.is_readable() {
                    self.read(token, out);
                }
            }
        }
    }

    fn accept(&mut self) {
        let Some((stream, said)) = self.listener.accept(&self.poller, now()) else { return };
        said.into_iter().for_each(|said| self.note(&said));
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
        if self.poller.add(&socket, token, Interest::Read).is_err() {
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
            is_host: false,
            process: None,
        };
        self.connections.insert(token, connection);
    }

    /// Reads once from a connection, and passes each message to the core.
    fn read(&mut self, token: u64, out: &mut NodeActions) -> ReadResult {
        let Some(connection) = self.connections.get_mut(&token) else { return ReadResult::End };
        let result = connection.inlet.read(&connection.socket);
        loop {
            let Some(connection) = self.connections.get_mut(&token) else { return ReadResult::End };
            match connection.inlet.next_message() {
                Ok(Some(received)) => self.on_message(token, received.message, out),
                Ok(None) => break,
                Err(error) => {
                    self.note(&format!("ended a connection: {error}"));
                    self.end_connection(token, out);
                    return ReadResult::End;
                }
            }
        }
        if result == ReadResult::End {
            self.end_connection(token, out);
        }
        result
    }

    fn on_message(&mut self, token: u64, message: Message, out: &mut NodeActions) {
        let Some(connection) = self.connections.get(&token) else { return };
        if !connection.is_greeted {
            return match message {
                Message::Hello(hello) => self.greet(token, &hello, out),
                Message::Refused(refused) => self.on_unable(token, &refused.reason, out),
                _ => self.refuse(token, "the first message must be a greeting"),
            };
        }
        let Some(message) = self.on_inspection(token, message) else { return };
        let from = self.connections[&token].worker.expect("only tools have no id");
        let message = match message {
            Message::Shutdown(_) => return self.on_leaving(token, from, out),
            Message::Refused(refused) => {
                // The process ends, for this reason.
                self.ends.reasons.entry(from).or_insert_with(|| format!("ended: {}", refused.reason));
                return;
            }
            other => other,
        };
        if let Some(Message::Allocate(ask)) = self.core.on_message(from, message, now(), out) {
            self.allocate(from, &ask, out);
        }
    }

    fn greet(&mut self, token: u64, hello: &Hello, out: &mut NodeActions) {
        if let Err(reason) = version::check(hello.major, hello.minor) {
            return self.refuse(token, &reason);
        }
        if hello.role == role::TOOL && self.connections[&token].worker.is_none() {
            return self.greet_tool(token);
        }
        if hello.python != self.options.python {
            let reason = format!(
                "this node runs Python {}, you run Python {}: pickled code only works between equal versions",
                self.options.python, hello.python
            );
            return self.refuse(token, &reason);
        }
        let made_for = self.connections[&token].worker;
        let worker = match (hello.role, made_for) {
            (role::WORKER, Some(worker)) if worker == hello.worker => worker,
            (role::LOGS, None) => return self.greet_reader(token, hello.worker),
            (role::DRIVER, None) => match self.admit(token, hello) {
                Ok(driver) => driver,
                Err(reason) => return self.refuse(token, reason),
            },
            _ => return self.refuse(token, "workers are started by their node only"),
        };
        let Some(config) = self.config_of(worker) else {
            return self.refuse(token, "the job has ended");
        };
        let (namespace, inline_bytes) = (config.namespace.clone(), config.inline_bytes);
        let (events_bytes, lineage_bytes) = (Some(config.events_bytes), Some(config.lineage_bytes));
        let Some(cell) = self.cells.take() else {
            return self.refuse(token, "this node has too many processes");
        };
        self.mapping.clear_cell(cell);
        let welcome = Welcome {
            worker,
            node: self.options.node,
            arena_bytes: self.mapping.total_bytes(),
            inline_bytes,
            cell,
            driver: self.core.job_of(worker),
            namespace,
            events_bytes,
            lineage_bytes,
            fallback_bytes: Some(self.mapping.fallback_bytes()).filter(|bytes| *bytes > 0),
            unpins_lazily: Some(true).filter(|_| self.options.eviction == Eviction::Unpin),
        };
        let memory = self.mapping.descriptor().expect("open as long as the node");
        let all = std::iter::once(memory).chain(self.mapping.fallback_descriptor());
        let Ok(descriptors) = all.map(|one| one.try_clone()).collect::<io::Result<Vec<_>>>() else {
            return self.refuse(token, "this process has too many open descriptors");
        };
        let credentials = self.credentials();
        let connection = self.connections.get_mut(&token).expect("looked up above");
        connection.worker = Some(worker);
        connection.role = if made_for.is_some() { Role::Worker } else { Role::Driver };
        connection.is_greeted = true;
        connection.is_host = worker == self.driver;
        connection.pid = hello.pid;
        connection.cell = cell;
        connection.outlet.push_with(&welcome.into(), descriptors);
        if let Some(credentials) = &credentials {
            connection.outlet.push(credentials);
        }
        self.dirty.push(token);
        self.tokens.insert(worker, token);
        self.logs.set_pid(worker, hello.pid);
        self.core.on_connected(worker, hello.pid, now());
        self.announce_job(worker, out);
    }

    /// A worker reports that it cannot start, and why.
    fn on_unable(&mut self, token: u64, reason: &str, out: &mut NodeActions) {
        let Some(worker) = self.connections.remove(&token).and_then(|connection| connection.worker) else {
            return;
        };
        self.tokens.remove(&worker);
        self.core.on_start_failed(worker, reason, out);
    }

    fn refuse(&mut self, token: u64, reason: &str) {
        self.note(&format!("refused a client: {reason}"));
        if let Some(mut connection) = self.connections.remove(&token) {
            connection.outlet.push(&Refused { reason: reason.to_owned() }.into());
            let _ = connection.outlet.flush(&connection.socket);
        }
    }

    /// Writes a line to the node's log, and to standard error if the node runs in the user's program.
    fn warn(&self, text: &str) {
        self.note(text);
        if self.driver != WorkerId::default() {
            tell(text);
        }
    }

    /// Writes a line to the node's log.
    fn note(&self, text: &str) {
        self.notes.write(text);
    }
}

fn open_data(
    options: &NodeOptions,
    directory: &SessionDirectory,
    mapping: &Arc<Mapping>,
    wake: &Arc<OwnedFd>,
) -> io::Result<Option<Data>> {
    let Some(cluster) = &options.cluster else { return Ok(None) };
    let options = DataOptions {
        identity: cluster.identity.clone(),
        python: options.python.clone(),
        mapping: mapping.clone(),
        wake: wake.clone(),
        directory: directory.path().to_owned(),
        tuning: Tuning { shares_memory: cluster.shares_memory, ..Tuning::default() },
    };
    Data::start(options).map(Some)
}

fn open_cluster(
    options: &mut NodeOptions,
    directory: &SessionDirectory,
    wake: &Arc<OwnedFd>,
) -> io::Result<Option<Cluster>> {
    let Some(cluster) = options.cluster.take() else { return Ok(None) };
    let itself = Itself {
        node: options.node,
        name: options.name.as_deref().unwrap_or_default(),
        resources: &options.resources,
        labels: &options.labels,
        python: &options.python,
        directory: directory.path(),
        wake,
    };
    Cluster::open(cluster, &itself).map(Some)
}
