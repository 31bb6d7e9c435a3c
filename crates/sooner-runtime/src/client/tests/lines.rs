//! Two processes of two nodes. One node plays both, makes their connections, and sits in the middle of them.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use sooner_protocol::worker::ownership::Slot;
use sooner_store::Mapping;
use sooner_wire::message::{
    Credentials, Define, FailureCode, LeaseGranted, LinkRole, Message, Outcome, PeerConnected, Return,
    TaskKind, TaskSpec, Welcome, WorkerDead,
};
use sooner_wire::{
    Blob, FunctionId, LeaseId, Name, NodeId, ObjectId, ResourceSet, ShapeId, TaskId, WorkerId,
};

use crate::client::{Client, Hooks, Waited};
use crate::clock::now;
use crate::identity::testing::authority;
use crate::identity::{self, Bearer, Destination};
use crate::transport::{Inlet, Outlet, ReadResult, pair};

const NODES: [NodeId; 2] = [NodeId(0x0a00_0000), NodeId(0x0b00_0000)];
/// The one that submits, and the one that executes.
const IDS: [WorkerId; 2] = [WorkerId(0x0a00_0001), WorkerId(0x0b00_0001)];
const MILLI: u64 = 1_000_000;
/// How long anything may take.
const PATIENCE_NANOS: u64 = 20_000 * MILLI;

struct Quiet;

impl Hooks for Quiet {
    fn on_ready(&self, _: Vec<ObjectId>) {}
    fn on_interrupt(&self, _: TaskId, _: bool) {}
    fn on_warning(&self, _: String) {}
    fn on_signal(&self) -> bool {
        false
    }
    fn on_end(&self, _: &str) {}
    fn on_actor_end(&self, _: TaskId, _: bool) {}
    fn on_memory_pressure(&self, _is_full: bool) {}
}

/// What a test tells the node, and what the node tells it.
#[derive(Default)]
struct Wishes {
    /// Connections are cut after so many bytes, in turn; zero: at once.
    cuts: Mutex<VecDeque<usize>>,
    cut_now: AtomicBool,
    /// Connections cannot be made.
    parted: AtomicBool,
    /// Nothing passes, also no end.
    stopped: AtomicBool,
    /// The node of the other process has ended.
    killed: AtomicBool,
    dials: AtomicUsize,
    says: Mutex<Vec<(usize, Message)>>,
    heard: Mutex<Vec<(usize, Message)>>,
    arrived: Mutex<Vec<(usize, OwnedFd)>>,
    over: AtomicBool,
}

struct Passage {
    middle: [OwnedFd; 2],
    waiting: [VecDeque<u8>; 2],
    left: usize,
    ended: [bool; 2],
}

impl Passage {
    /// Passes on what comes; false when both have ended.
    fn pass(&mut self) -> bool {
        for from in 0..2 {
            let mut bytes = [0; 16 << 10];
            let room = bytes.len().min(self.left);
            match rustix::io::read(&self.middle[from], &mut bytes[..room]) {
                Ok(0) if room > 0 => self.ended[from] = true,
                Ok(count) => {
                    self.left -= count;
                    self.waiting[from].extend(&bytes[..count]);
                }
                Err(_) => {}
            }
            while !self.waiting[from].is_empty() {
                let (front, _) = self.waiting[from].as_slices();
                let Ok(written) = rustix::io::write(&self.middle[1 - from], front) else { break };
                self.waiting[from].drain(..written);
            }
        }
        // An end is heard behind everything that came before it.
        let is_over = |from: usize| self.ended[from] && self.waiting[from].is_empty();
        self.left > 0 && !is_over(0) && !is_over(1)
    }
}

/// The node's thread.
struct Node {
    wishes: Arc<Wishes>,
    memory: Mapping,
    ends: [Option<(OwnedFd, Inlet, Outlet)>; 2],
    passages: Vec<Passage>,
}

impl Node {
    fn run(mut self) {
        while !self.wishes.over.load(Ordering::Acquire) {
            let arrived = std::mem::take(&mut *self.wishes.arrived.lock());
            for (at, socket) in arrived {
                self.ends[at] = Some((socket, Inlet::default(), Outlet::default()));
            }
            for at in 0..2 {
                self.receive(at);
            }
            let says = std::mem::take(&mut *self.wishes.says.lock());
            for (at, message) in says {
                self.send(at, &message, Vec::new());
            }
            if self.wishes.killed.load(Ordering::Acquire) {
                self.ends[1] = None;
            }
            if self.wishes.cut_now.swap(false, Ordering::AcqRel) {
                self.passages.clear();
            }
            if !self.wishes.stopped.load(Ordering::Acquire) {
                self.passages.retain_mut(Passage::pass);
            }
            for (socket, _, outlet) in self.ends.iter_mut().flatten() {
                outlet.flush(&*socket);
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    fn send(&mut self, at: usize, message: &Message, sockets: Vec<OwnedFd>) {
        let Some((_, _, outlet)) = &mut self.ends[at] else { return };
        if sockets.is_empty() { outlet.push(message) } else { outlet.push_with(message, sockets) }
    }

    fn receive(&mut self, at: usize) {
        let Some((socket, inlet, _)) = &mut self.ends[at] else { return };
        let has_ended = inlet.read(&*socket) == ReadResult::End;
        let mut messages = Vec::new();
        while let Some(received) = inlet.next_message().expect("frames") {
            messages.push(received.message);
        }
        for message in messages {
            match message {
                Message::Hello(_) => self.welcome(at),
                Message::Connect(connect) if connect.worker == IDS[1 - at] => self.connect(at),
                other => self.wishes.heard.lock().push((at, other)),
            }
        }
        if has_ended {
            self.ends[at] = None;
        }
    }

    fn welcome(&mut self, at: usize) {
        let welcome = Welcome {
            worker: IDS[at],
            node: NODES[at],
            arena_bytes: self.memory.total_bytes(),
            inline_bytes: 1 << 16,
            cell: u32::try_from(at).expect("two"),
            driver: IDS[0],
            namespace: String::new(),
            events_bytes: None,
            lineage_bytes: None,
            fallback_bytes: None,
            unpins_lazily: None,
        };
        let memory = self.memory.descriptor().expect("open").try_clone().expect("a descriptor");
        self.send(at, &welcome.into(), vec![memory]);
        let authority = authority(1);
        let made = identity::Credentials::issue(NODES[at], Bearer::Node, &authority, &[&authority]);
        let credentials = Credentials {
            node: made.node,
            certificate: made.certificate.into(),
            key: made.key.into(),
            roots: made.roots.into_iter().map(Blob::from).collect(),
        };
        self.send(at, &credentials.into(), Vec::new());
    }

    fn connect(&mut self, from: usize) {
        let (to, worker) = (1 - from, IDS[1 - from]);
        let name = Destination::Worker { to: worker, from: IDS[from] }.server_name(NODES[to]);
        let name = Some(name.to_str().into_owned());
        let dial = PeerConnected { worker, link: Some(LinkRole::Dial), name, never: None };
        if self.wishes.parted.load(Ordering::Acquire) {
            return self.send(from, &dial.into(), Vec::new());
        }
        self.wishes.dials.fetch_add(1, Ordering::AcqRel);
        let ((dialled, first), (second, accepted)) = (pair().expect("sockets"), pair().expect("sockets"));
        let middle = if from == 0 { [first, second] } else { [second, first] };
        let left = self.wishes.cuts.lock().pop_front().unwrap_or(usize::MAX);
        self.passages.push(Passage { middle, waiting: Default::default(), left, ended: [false; 2] });
        self.send(from, &dial.into(), vec![dialled]);
        let accept =
            PeerConnected { worker: IDS[from], link: Some(LinkRole::Accept), name: None, never: None };
        self.send(to, &accept.into(), vec![accepted]);
    }
}

struct World {
    wishes: Arc<Wishes>,
    clients: Vec<Arc<Client>>,
    node: Option<JoinHandle<()>>,
    tasks: Vec<(u64, Arc<Slot>)>,
}

impl World {
    fn new() -> Self {
        let wishes = Arc::new(Wishes::default());
        let memory = Mapping::create(1 << 20).expect("memory");
        let node = Node { wishes: wishes.clone(), memory, ends: [None, None], passages: Vec::new() };
        let node = std::thread::spawn(move || node.run());
        let mut world = Self { wishes, clients: Vec::new(), node: Some(node), tasks: Vec::new() };
        for at in 0..2 {
            let client = world.greet(at);
            world.clients.push(client);
        }
        world.clients[0].step(|core, _| {
            let (name, code) = (Name::from("f"), Blob::default());
            core.define(Define { function: FunctionId(1), name, code, references: Vec::new(), place: None });
            assert_eq!(core.shape(&ResourceSet::from_amounts([("CPU".to_owned(), 1.0)])), ShapeId(0));
        });
        world
    }

    fn greet(&self, at: usize) -> Arc<Client> {
        let (socket, theirs) = pair().expect("sockets");
        self.wishes.arrived.lock().push((at, theirs));
        let client = Client::adopt(socket, IDS[at], "3.11").expect("welcomed");
        client.start(Box::new(Quiet)).expect("a thread");
        client
    }

    fn submit(&mut self, count: u64) {
        for _ in 0..count {
            let task = self.clients[0].next_task();
            let slot = Arc::new(Slot::default());
            slot.acquire();
            self.tasks.push((task.number, slot.clone()));
            let kind = TaskKind::Task(ShapeId(0));
            let spec = TaskSpec::new(task, kind, FunctionId(1), Name::from("f"), Blob::default());
            self.clients[0].step(|core, out| core.submit(Arc::new(spec), [slot], None, out));
        }
    }

    fn grant(&self) {
        self.wait_received(0, |message| matches!(message, Message::RequestLease(_)));
        let grant = LeaseGranted { shape: ShapeId(0), lease: LeaseId(1), worker: IDS[1], gpus: Vec::new() };
        self.send(0, grant);
    }

    fn send(&self, at: usize, message: impl Into<Message>) {
        self.wishes.says.lock().push((at, message.into()));
    }

    fn wait_received(&self, at: usize, is_it: impl Fn(&Message) -> bool) {
        self.wait(|| self.wishes.heard.lock().iter().any(|(who, message)| *who == at && is_it(message)));
    }

    /// Waits like a program does, but for things of which no socket tells.
    fn wait(&self, mut is_done: impl FnMut() -> bool) {
        let deadline = now().plus(PATIENCE_NANOS);
        while self.clients[0].wait_until(&mut is_done, Some(now().plus(MILLI)), false) != Waited::Done {
            assert!(now() < deadline, "{:?}", self.wishes.heard.lock());
        }
    }

    /// The other process executes until `is_done`; what came, by number, as often as it came.
    fn execute_until(&self, mut is_done: impl FnMut(&[u64]) -> bool) -> Vec<u64> {
        let client = &self.clients[1];
        let (mut done, deadline) = (Vec::new(), now().plus(PATIENCE_NANOS));
        while !is_done(&done) {
            assert!(now() < deadline, "executed {} tasks", done.len());
            let wait = Some(now().plus(MILLI));
            client.wait_until(|| client.step(|core, _| core.execution().can_take()), wait, false);
            while let Some(incoming) = client.step(|core, _| core.next_execution()) {
                let task = incoming.push.spec.task;
                done.push(task.number);
                self.finish(task);
            }
        }
        done
    }

    /// The other process begins a task.
    fn take(&self) {
        let (client, deadline) = (&self.clients[1], now().plus(PATIENCE_NANOS));
        while client.step(|core, _| core.next_execution()).is_none() {
            assert!(now() < deadline, "no task came");
            let wait = Some(now().plus(MILLI));
            client.wait_until(|| client.step(|core, _| core.execution().can_take()), wait, false);
        }
    }

    fn finish(&self, task: TaskId) {
        let value = Outcome::Inline(Blob::from(task.number.to_le_bytes().to_vec()));
        let returns = vec![Return { outcome: value, contained: Vec::new() }];
        self.clients[1].step(|core, out| core.on_finished(task, returns, 10, false, out));
    }

    fn check_results(&self) {
        for (number, slot) in &self.tasks {
            let outcome = slot.outcome();
            let Some(Outcome::Inline(value)) = outcome.as_deref() else { panic!("{outcome:?}") };
            assert_eq!(value.as_slice(), number.to_le_bytes());
        }
    }

    fn have_all(&self) -> bool {
        self.tasks.iter().all(|(_, slot)| slot.has_outcome())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for client in &self.clients {
            client.close();
            client.release();
        }
        self.wishes.over.store(true, Ordering::Release);
        if let Some(node) = self.node.take() {
            let _ = node.join();
        }
    }
}

#[test]
fn tasks_run_at_another_node_over_one_connection() {
    let mut world = World::new();
    world.submit(200);
    world.grant();
    let done = world.execute_until(|done| done.len() == 200);
    world.wait(|| world.have_all());
    world.check_results();
    assert!(done.is_sorted());
    assert_eq!(world.wishes.dials.load(Ordering::Acquire), 1);
}

#[test]
fn each_task_runs_once_however_often_the_connection_is_cut() {
    let mut world = World::new();
    // In the first handshake, behind it, and then again and again.
    *world.wishes.cuts.lock() = (0..7).map(|turn| 300 + 1733 * turn).collect();
    world.submit(100);
    world.grant();
    let mut done = world.execute_until(|done| done.len() >= 100);
    world.wait(|| world.have_all());
    world.submit(300);
    let wishes = world.wishes.clone();
    let mut next_cut = 50;
    done.extend(world.execute_until(|done| {
        if done.len() >= next_cut {
            wishes.cut_now.store(true, Ordering::Release);
            next_cut += 100;
        }
        done.len() >= 300
    }));
    world.wait(|| world.have_all());
    world.check_results();
    done.sort_unstable();
    done.dedup();
    assert_eq!(done.len(), 400, "each ran once");
    assert!(world.wishes.dials.load(Ordering::Acquire) > 5);
}

#[test]
fn all_has_left_when_it_was_heard_and_not_before() {
    let mut world = World::new();
    world.wishes.parted.store(true, Ordering::Release);
    world.submit(1);
    world.grant();
    world.wait_received(0, |message| matches!(message, Message::RequestLease(_)));
    // As soon as the push is in the line, it is waited for.
    world.wait(|| !world.clients[0].flush_all(0));
    assert!(!world.clients[0].flush_all(50 * MILLI));
    world.wishes.parted.store(false, Ordering::Release);
    assert!(world.clients[0].flush_all(PATIENCE_NANOS));
    assert_eq!(world.execute_until(|done| done.len() == 1).len(), 1);
}

fn gone(last_started: Option<TaskId>) -> WorkerDead {
    let reason = "was killed by signal 9".to_owned();
    WorkerDead { worker: IDS[1], reason, last_started, ..WorkerDead::default() }
}

/// The reply is on its way when the node says that the process is gone.
#[test]
fn what_a_process_said_before_its_end_counts() {
    let mut world = World::new();
    world.submit(1);
    world.grant();
    world.execute_until(|done| done.len() == 1);
    world.wait(|| world.have_all());
    world.submit(1);
    let task = TaskId { owner: IDS[0], number: world.tasks[1].0 };
    world.take();
    world.wishes.stopped.store(true, Ordering::Release);
    // The node has seen that.
    std::thread::sleep(Duration::from_millis(50));
    world.finish(task);
    world.clients[1].flush_now();
    world.clients[1].close();
    world.clients[1].release();
    world.send(0, gone(Some(task)));
    // The news has come, and is held.
    let begin = now();
    world.wait(|| now().since(begin) > 50 * MILLI);
    assert!(world.tasks[1].1.outcome().is_none());
    world.wishes.stopped.store(false, Ordering::Release);
    world.wait(|| world.have_all());
    world.check_results();
}

/// What it cannot do without its node is not a result: the task is to be executed elsewhere.
#[test]
fn a_process_whose_node_is_gone_says_nothing_more() {
    let mut world = World::new();
    world.submit(2);
    world.grant();
    world.execute_until(|done| done.len() == 1);
    world.wait(|| world.tasks[0].1.outcome().is_some());
    world.take();
    world.wishes.killed.store(true, Ordering::Release);
    world.wait(|| world.clients[1].is_closed());
    let task = TaskId { owner: IDS[0], number: world.tasks[1].0 };
    world.finish(task);
    world.clients[1].flush_now();
    let begin = now();
    world.wait(|| now().since(begin) > 50 * MILLI);
    assert!(world.tasks[1].1.outcome().is_none());
    world.send(0, gone(Some(task)));
    world.wait(|| world.have_all());
    let outcome = world.tasks[1].1.outcome();
    let Some(Outcome::Failed(failure)) = outcome.as_deref() else { panic!("it did not fail") };
    assert_eq!(failure.code, FailureCode::WorkerCrashed);
}

#[test]
fn news_of_an_end_waits_for_a_moment_only() {
    let mut world = World::new();
    world.submit(1);
    world.grant();
    world.execute_until(|done| done.len() == 1);
    world.wait(|| world.have_all());
    world.submit(1);
    let task = TaskId { owner: IDS[0], number: world.tasks[1].0 };
    world.wishes.stopped.store(true, Ordering::Release);
    world.send(0, gone(Some(task)));
    world.wait(|| world.have_all());
    let outcome = world.tasks[1].1.outcome();
    let Some(Outcome::Failed(failure)) = outcome.as_deref() else { panic!("it did not fail") };
    assert_eq!(failure.code, FailureCode::WorkerCrashed);
    world.wait_received(0, |message| matches!(message, Message::HeldFrom(held) if held.gone == IDS[1]));
    world.wishes.stopped.store(false, Ordering::Release);
}

/// The other end does not know the session: both processes live, and one of them has to go.
#[test]
fn a_session_that_ends_is_told_to_the_node() {
    let mut world = World::new();
    world.submit(1);
    world.grant();
    world.execute_until(|done| done.len() == 1);
    world.wait(|| world.have_all());
    world.clients[1].close();
    world.clients[1].release();
    let other = world.greet(1);
    world.clients[1] = other;
    world.submit(1);
    world.wait_received(0, |message| matches!(message, Message::Sever(sever) if sever.worker == IDS[1]));
    world
        .wait_received(0, |message| matches!(message, Message::Suspect(suspect) if suspect.node == NODES[1]));
    assert!(!world.have_all());
    let task = TaskId { owner: IDS[0], number: world.tasks[1].0 };
    world.send(0, gone(Some(task)));
    world.wait(|| world.have_all());
}
