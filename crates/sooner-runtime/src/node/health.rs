//! The thread that proves that the node is alive: heartbeats over a connection of its own, which nothing else
//! can delay.
//!
//! It does nothing else. It measures how late the node's loop is: it wakes the loop and sees when that has
//! turned. If the head reports that this node was declared dead, the node must end: others have given up its
//! tasks and values. The thread tells the node's loop; if that does not end the process soon, the thread
//! kills it.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use sooner_protocol::session::Redial;
use sooner_protocol::session::hello::{Me, hello, on_answer};
use sooner_protocol::time::Instant;
use sooner_wire::limits::HANDSHAKE_NANOS;
use sooner_wire::message::{Heartbeat, Message, PeerHello, Settings};
use sooner_wire::{DialAttempt, NodeId, WorkerId};

use super::cluster::Itself;
use super::cluster::fate::Fate;
use super::notes::Notes;
use crate::clock::now;
use crate::identity::{Destination, Identity};
use crate::poller::{Events, Interest, Poller};
use crate::transport::dial::{dial, outcome};
use crate::transport::{Conn, Stream, TlsStream};

const WAKE: u64 = 0;
const LINE: u64 = 1;
/// How long a node that must end may take to do so (nanoseconds).
const END_NANOS: u64 = 3_000_000_000;

/// How the head is reached.
#[derive(Debug)]
pub(super) enum Way {
    /// The head is in this process.
    Own(OwnedFd),
    /// The head is that node, at this address.
    Dial { address: SocketAddr, head: NodeId },
    /// There is no way.
    Nowhere,
}

struct Shared {
    target: Mutex<Option<(Way, Settings)>>,
    wake: OwnedFd,
    /// When the node's loop was asked to turn; zero when it was not.
    asked: AtomicU64,
    /// When heartbeats failed last, if the node's loop is to check its own connection; zero otherwise.
    failed: AtomicU64,
    is_ending: AtomicBool,
}

impl Shared {
    fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

/// The running thread; dropping it ends it.
pub(super) struct Health {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Health {
    pub(super) fn start(itself: &Itself<'_>, identity: Identity, fate: Arc<Fate>) -> std::io::Result<Self> {
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        let wake = rustix::event::eventfd(0, flags)?;
        let shared = Arc::new(Shared {
            target: Mutex::default(),
            wake,
            asked: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            is_ending: false.into(),
        });
        let poller = Poller::new()?;
        poller.add(&shared.wake, WAKE, Interest::Read)?;
        let me = Me { id: WorkerId(itself.node.0), is_head: false, python: itself.python.to_owned() };
        let pulse = Pulse {
            shared: shared.clone(),
            node_wake: itself.wake.clone(),
            me,
            identity,
            fate,
            notes: Notes::new(itself.directory),
            poller,
            way: Way::Nowhere,
            settings: Settings { heartbeat: u64::MAX, health_timeout: u64::MAX },
            state: State::Down(None),
            beats: 0,
            next_beat: Instant(0),
            redial: Redial::default(),
            lost: String::new(),
        };
        let thread = std::thread::Builder::new().name("sooner-health".into()).spawn(move || pulse.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// The head has registered this node, and is reached this way.
    pub(super) fn on_registered(&self, way: Way, settings: Settings) {
        *self.shared.target.lock() = Some((way, settings));
        self.shared.wake();
    }

    /// The node's loop turns.
    pub(super) fn on_turn(&self) {
        self.shared.asked.store(0, Ordering::Relaxed);
    }

    /// When heartbeats last failed several times in a row, if since the last call. A connection of the node's
    /// loop that is older may lead nowhere.
    pub(super) fn take_failure(&self) -> Option<Instant> {
        if self.shared.failed.load(Ordering::Relaxed) == 0 {
            return None;
        }
        Some(Instant(self.shared.failed.swap(0, Ordering::Relaxed)))
    }
}

impl Drop for Health {
    fn drop(&mut self) {
        self.shared.is_ending.store(true, Ordering::Release);
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

enum State {
    /// When to dial again; `None`: never.
    Down(Option<Instant>),
    Connecting(OwnedFd, Instant),
    Greeting(Box<Conn>, Box<PeerHello>, Instant),
    Up(Box<Conn>),
}

struct Pulse {
    shared: Arc<Shared>,
    node_wake: Arc<OwnedFd>,
    me: Me,
    identity: Identity,
    fate: Arc<Fate>,
    notes: Notes,
    poller: Poller,
    way: Way,
    settings: Settings,
    state: State,
    beats: u64,
    next_beat: Instant,
    redial: Redial,
    /// Why the last connection was lost, as it was logged.
    lost: String,
}

impl Pulse {
    fn run(mut self) {
        let mut events = Events::with_capacity(4);
        while !self.shared.is_ending.load(Ordering::Acquire) {
            if self.fate.must_end() {
                return self.see_to_the_end();
            }
            let timeout = self.next_deadline().map(|deadline| deadline.since(now()));
            let _ = self.poller.wait(&mut events, timeout);
            for event in &events {
                match event.token {
                    WAKE => drop(rustix::io::read(&self.shared.wake, &mut [0; 8])),
                    _ => self.on_ready(),
                }
            }
            let target = self.shared.target.lock().take();
            if let Some((way, settings)) = target {
                self.begin(way, settings);
            }
            self.on_time(now());
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Down(until) => *until,
            State::Connecting(_, until) | State::Greeting(_, _, until) => Some(*until),
            State::Up(_) => Some(self.next_beat),
        }
    }

    fn begin(&mut self, way: Way, settings: Settings) {
        self.settings = settings;
        self.redial.on_connected();
        self.state = match way {
            Way::Own(socket) => match Conn::add(Stream::Unix(socket), &self.poller, LINE) {
                Ok(framed) => State::Up(Box::new(framed)),
                Err(_) => State::Down(None),
            },
            Way::Dial { .. } => {
                self.way = way;
                State::Down(Some(Instant(0)))
            }
            Way::Nowhere => State::Down(None),
        };
        self.next_beat = now();
    }

    fn on_ready(&mut self) {
        match &mut self.state {
            State::Connecting(..) => self.on_connected(),
            State::Greeting(framed, ..) | State::Up(framed) => {
                framed.read(&self.poller);
                framed.flush(&self.poller);
                self.listen();
            }
            State::Down(_) => {}
        }
    }

    fn listen(&mut self) {
        while let State::Greeting(framed, ..) | State::Up(framed) = &mut self.state
            && let Some(message) = framed.next_message()
        {
            if let Message::Fenced(fenced) = &message {
                self.notes.write(&format!("must end: {}", fenced.reason));
                self.fate.end(&fenced.reason);
                self.wake_node();
                return;
            }
            if let State::Greeting(framed, said, _) = &self.state {
                match on_answer(&message, said, framed.peer().unwrap_or_default()) {
                    Ok(_) => self.greeted(),
                    Err(refusal) => return self.lose(&refusal.to_string()),
                }
            }
        }
        let (State::Greeting(framed, ..) | State::Up(framed)) = &self.state else { return };
        if let Some(ended) = framed.ended().cloned() {
            self.lose(&ended.to_string());
        }
    }

    fn greeted(&mut self) {
        if let State::Greeting(framed, ..) = std::mem::replace(&mut self.state, State::Down(None)) {
            self.state = State::Up(framed);
            self.next_beat = now();
            self.redial.on_connected();
            self.lost.clear();
        }
    }

    fn on_time(&mut self, now: Instant) {
        if self.next_deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        match &self.state {
            State::Down(_) => self.dial(now),
            State::Connecting(..) | State::Greeting(..) => self.lose("the head does not answer"),
            State::Up(_) => self.beat(now),
        }
    }

    fn beat(&mut self, now: Instant) {
        let State::Up(framed) = &mut self.state else { return };
        let asked = Instant(self.shared.asked.load(Ordering::Relaxed));
        let node_lag = if asked == Instant(0) { 0 } else { now.since(asked) };
        self.beats += 1;
        framed.push(&Heartbeat { number: self.beats, node_lag, data_lag: 0 }.into());
        framed.flush(&self.poller);
        self.next_beat = now.plus(self.settings.heartbeat);
        if asked == Instant(0) {
            self.shared.asked.store(now.0, Ordering::Relaxed);
            self.wake_node();
        }
        self.listen();
    }

    fn dial(&mut self, now: Instant) {
        let Way::Dial { address, .. } = self.way else { return self.state = State::Down(None) };
        let begun = dial(address).and_then(|socket| {
            self.poller.add(&socket, LINE, Interest::Write)?;
            Ok(socket)
        });
        match begun {
            Ok(socket) => self.state = State::Connecting(socket, now.plus(HANDSHAKE_NANOS)),
            Err(error) => self.lose(&error.to_string()),
        }
    }

    fn on_connected(&mut self) {
        let State::Connecting(socket, _) = std::mem::replace(&mut self.state, State::Down(None)) else {
            return;
        };
        let Way::Dial { head, .. } = self.way else { return };
        if let Err(error) = outcome(&socket) {
            return self.lose(&error.to_string());
        }
        let _ = self.poller.remove(&socket);
        let name = Destination::Health.server_name(head);
        let stream = Stream::Tls(Box::new(TlsStream::dial(socket, &self.identity, name)));
        let said = hello(&self.me, WorkerId(head.0), 0, DialAttempt::default(), None);
        match Conn::add(stream, &self.poller, LINE) {
            Ok(mut framed) => {
                framed.push(&said.clone().into());
                framed.flush(&self.poller);
                let until = now().plus(HANDSHAKE_NANOS);
                self.state = State::Greeting(Box::new(framed), Box::new(said), until);
            }
            Err(error) => self.lose(&error.to_string()),
        }
    }

    /// The head or the network is away. If there is another head, the node's loop learns of it.
    fn lose(&mut self, reason: &str) {
        if self.lost != reason {
            self.notes.write_rationed(&format!("no connection for heartbeats: {reason}"));
            reason.clone_into(&mut self.lost);
        }
        let failed = now();
        self.state = State::Down(Some(self.redial.on_failed(failed)));
        // A restarted head is another node: it never proves to be the one that is dialled here.
        if self.redial.is_to_be_told() {
            self.shared.failed.store(failed.0, Ordering::Relaxed);
            self.wake_node();
        }
    }

    fn wake_node(&self) {
        let _ = rustix::io::write(&*self.node_wake, &1u64.to_ne_bytes());
    }

    fn see_to_the_end(&self) {
        self.wake_node();
        let deadline = now().plus(END_NANOS);
        let mut events = Events::with_capacity(1);
        while !self.shared.is_ending.load(Ordering::Acquire) {
            let time = now();
            if time >= deadline {
                // The loop hangs. Tasks that others have given up must not go on here.
                let _ =
                    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
                return;
            }
            let _ = self.poller.wait(&mut events, Some(deadline.since(time)));
            let _ = rustix::io::read(&self.shared.wake, &mut [0; 8]);
        }
    }
}
