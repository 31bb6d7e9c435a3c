//! A driver's or worker's shell around its [`WorkerCore`].
//!
//! Who does the I/O: the thread that waits. A thread in `get` (or a worker that waits for a task) takes the lead,
//! reads the sockets itself and so sees its reply without a hand-over. A background thread leads only when nobody
//! has done I/O for about a millisecond ([`background`]). [`lead`] has the details.
//!
//! Locks: `shared` holds the core and what is to be sent, for as long as one step takes; `lead` holds the receiving
//! halves and belongs to the leader. `lead` is taken before `shared`. Neither is held while Python runs, and the GIL
//! is never taken under them; `shared` may be taken with the GIL held.
//!
//! Dropped handles go to a queue that the next step empties: nothing takes a lock in a destructor but that queue's.

mod background;
mod inspect;
mod lead;
mod lines;
mod local;
mod outbox;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustc_hash::{FxHashMap, FxHashSet};
use rustix::event::epoll;
use weft_protocol::action::{Action, Actions, Peer};
use weft_protocol::ownership::Slot;
use weft_protocol::tasks::Counts;
use weft_protocol::time::Instant;
use weft_protocol::worker::WorkerCore;
use weft_store::{BlockCache, Mapping};
use weft_wire::message::{
    Allocate, Checkpoint, GivenBlocks, Hello, JobConfig, Location, Message, Outcome, Push, Return, Shutdown,
    UnknownBlocks, Welcome, role,
};
use weft_wire::{ObjectId, ResourceSet, TaskId, WorkerId, version};

use self::lead::FlushedSoon;
use self::local::{Answer, LocalNode};
use crate::clock::now;
use crate::transport::{Inlet, ReadResult, Received};
use crate::wait::Spinner;

pub use lead::Waited;
pub use lines::LineReader;
pub(crate) use outbox::Outbox;

/// What the bindings do for the shell. Called without a lock held and without the GIL.
pub trait Hooks: Send + Sync {
    /// Watched objects have their outcome.
    fn on_ready(&self, objects: Vec<ObjectId>);
    /// A task that runs here was cancelled.
    fn on_interrupt(&self, task: TaskId, force: bool);
    /// Tell the user.
    fn on_warning(&self, text: String);
    /// A signal may have come while a thread waited: true when the wait must end.
    fn on_signal(&self) -> bool;
    /// The session is over for this process (the node is gone or ends it).
    fn on_end(&self, reason: &str);
    /// In local mode: an actor of this process has ended, in order or not.
    fn on_actor_end(&self, actor: TaskId, in_order: bool);
    /// The object store is short of room: let go of what is held without need.
    fn on_memory_pressure(&self);
}

/// What a step leaves to be done without the locks.
#[derive(Debug, Default)]
pub(crate) struct Aftermath {
    ready: Vec<ObjectId>,
    interrupts: Vec<(TaskId, bool)>,
    warnings: Vec<String>,
    ended_actors: Vec<(TaskId, bool)>,
    memory_pressure: bool,
    end: Option<String>,
}

impl Aftermath {
    fn is_empty(&self) -> bool {
        self.ready.is_empty()
            && self.interrupts.is_empty()
            && self.warnings.is_empty()
            && self.ended_actors.is_empty()
            && !self.memory_pressure
            && self.end.is_none()
    }
}

/// Everything behind the core's lock.
pub(crate) struct Shared {
    pub(crate) core: WorkerCore,
    pub(crate) outbox: Outbox,
    actions: Actions,
    answers: FxHashMap<u64, Option<Message>>,
    cache: BlockCache,
    /// Blocks with values that this process writes or has written and still has.
    written: FxHashSet<u64>,
    aftermath: Aftermath,
    deadline: Option<Instant>,
    /// When a busy sender reads replies again.
    next_look: Instant,
    /// What the node has been told of the core's counts.
    told: Counts,
    /// Messages to ourselves: an actor that calls itself through its own handle, and everything in local mode.
    loopback: VecDeque<(Peer, Message)>,
    local: Option<LocalNode>,
}

impl Shared {
    /// A block that was kept, for a value of `bytes`.
    fn take_kept_block(&mut self, bytes: u64) -> Option<u64> {
        let (offset, _) = self.cache.take(bytes)?;
        self.written.insert(offset);
        Some(offset)
    }

    /// Keeps a block that nobody reads for the next value; what is too much goes back to the node.
    fn keep_block(&mut self, location: Location) {
        self.written.remove(&location.offset);
        let back = self.cache.put(location.offset, weft_store::Arena::rounded(location.length));
        self.outbox.free_blocks(back);
    }

    /// Tells the node which of these blocks nobody here knows.
    fn disown_unknown(&mut self, question: GivenBlocks) {
        let is_known = |block: &u64| self.written.contains(block) || self.cache.contains(*block);
        let offsets: Vec<u64> = question.offsets.into_iter().filter(|block| !is_known(block)).collect();
        if !offsets.is_empty() {
            self.outbox.push(Peer::Node, &UnknownBlocks { giver: question.giver, offsets }.into());
        }
    }
}

/// One receiving half.
struct Inbound {
    peer: Peer,
    socket: Arc<OwnedFd>,
    inlet: Inlet,
}

/// Everything the leader holds.
pub(crate) struct Lead {
    /// `None` once the client is closed.
    epoll: Option<Arc<OwnedFd>>,
    inbound: FxHashMap<u64, Inbound>,
    spinner: Spinner,
    /// Where something came from last: looked at first.
    last: u64,
    /// Messages that were read and go to the core next; empty between looks.
    batch: Batch,
}

/// Messages and who sent them.
type Batch = Vec<(Peer, Received)>;

/// Messages that are read before the core gets them: without its lock, and no more than the processor keeps at hand.
const BATCH_MESSAGES: usize = 128;

/// See the module.
pub struct Client {
    me: WorkerId,
    /// The driver of the session.
    pub driver: WorkerId,
    is_driver: bool,
    /// What the node said at the greeting.
    pub welcome: Welcome,
    mapping: Mapping,
    shared: Mutex<Shared>,
    lead: Mutex<Lead>,
    wake: Mutex<Option<OwnedFd>>,
    numbers: AtomicU64,
    requests: AtomicU64,
    dropped: Mutex<Vec<ObjectId>>,
    has_dropped: AtomicBool,
    hooks: OnceLock<Box<dyn Hooks>>,
    /// Counts steps and the ends of leads: how the background thread knows that someone attends.
    attention: AtomicU64,
    /// Threads that want to lead.
    wanted: AtomicU32,
    background: background::Background,
    progress: (Mutex<()>, Condvar),
    followers: AtomicU32,
    closed: AtomicBool,
    /// The main thread runs an event loop that watches the sockets.
    in_loop: AtomicBool,
    loop_waits: AtomicBool,
    /// What happens to tasks is recorded.
    records: bool,
    stacks: OnceLock<inspect::StackFile>,
    is_local: AtomicBool,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Client({:x})", self.me.0)
    }
}

/// How long to wait before each attempt to get a block (milliseconds).
const ALLOCATE_PAUSES_MS: [u64; 10] = [0, 1, 5, 20, 50, 100, 200, 300, 400, 500];

/// How long a driver tries to say that it leaves (nanoseconds).
const LEAVE_NANOS: u64 = 100_000_000;

const NODE_TOKEN: u64 = 0;
const WAKE_TOKEN: u64 = 1;

impl Client {
    /// Connects to a node by its socket, as a driver. The one that hosts the node brings no job along.
    ///
    /// # Errors
    /// When the node cannot be reached or refuses.
    pub fn connect(path: &Path, python: &str, job: Option<JobConfig>) -> io::Result<Arc<Self>> {
        let stream = std::os::unix::net::UnixStream::connect(path)?;
        stream.set_nonblocking(true)?;
        let hello = hello(role::DRIVER, WorkerId::default(), python, job.map(Box::new));
        Self::greet(stream.into(), hello)
    }

    /// Greets the node over a socket that it made for this worker.
    ///
    /// # Errors
    /// When the node refuses.
    pub fn adopt(socket: OwnedFd, worker: WorkerId, python: &str) -> io::Result<Arc<Self>> {
        Self::greet(socket, hello(role::WORKER, worker, python, None))
    }

    fn greet(socket: OwnedFd, hello: Hello) -> io::Result<Arc<Self>> {
        let role = hello.role;
        let mut outlet = crate::transport::Outlet::default();
        outlet.push(&hello.into());
        outlet.flush(&socket);
        let mut inlet = Inlet::default();
        let (welcome, descriptor) = read_welcome(&socket, &mut inlet)?;
        let mapping = Mapping::open(descriptor, welcome.arena_bytes).map_err(io::Error::other)?;
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        let wake = rustix::event::eventfd(0, flags)?;
        let socket = Arc::new(socket);
        let data = epoll::EventData::new_u64;
        epoll::add(&*epoll, &*socket, data(NODE_TOKEN), epoll::EventFlags::IN)?;
        epoll::add(&*epoll, &wake, data(WAKE_TOKEN), epoll::EventFlags::IN)?;
        let mut shared = Shared {
            core: WorkerCore::new(welcome.worker),
            outbox: Outbox::new(epoll.clone(), socket.clone()),
            actions: Actions::new(),
            answers: FxHashMap::default(),
            cache: BlockCache::new(welcome.arena_bytes),
            written: FxHashSet::default(),
            aftermath: Aftermath::default(),
            deadline: None,
            next_look: Instant(0),
            loopback: VecDeque::new(),
            told: Counts::default(),
            local: None,
        };
        let events_bytes = usize::try_from(welcome.events_bytes.unwrap_or(0)).unwrap_or(usize::MAX);
        shared.core.record_events(events_bytes);
        if let Some(bytes) = welcome.lineage_bytes {
            shared.core.limit_lineage(usize::try_from(bytes).unwrap_or(usize::MAX));
        }
        let inbound = Inbound { peer: Peer::Node, socket, inlet };
        let lead = Lead {
            epoll: Some(epoll),
            inbound: FxHashMap::from_iter([(NODE_TOKEN, inbound)]),
            spinner: Spinner::default(),
            last: NODE_TOKEN,
            batch: Batch::new(),
        };
        let client = Arc::new(Self {
            me: welcome.worker,
            driver: welcome.driver,
            is_driver: role == role::DRIVER,
            welcome,
            mapping,
            shared: Mutex::new(shared),
            lead: Mutex::new(lead),
            wake: Mutex::new(Some(wake)),
            numbers: AtomicU64::new(1),
            requests: AtomicU64::new(1),
            dropped: Mutex::new(Vec::new()),
            has_dropped: AtomicBool::new(false),
            hooks: OnceLock::new(),
            attention: AtomicU64::new(0),
            wanted: AtomicU32::new(0),
            background: background::Background::default(),
            progress: (Mutex::new(()), Condvar::new()),
            followers: AtomicU32::new(0),
            closed: AtomicBool::new(false),
            in_loop: AtomicBool::new(false),
            loop_waits: AtomicBool::new(false),
            records: events_bytes > 0,
            stacks: OnceLock::new(),
            is_local: AtomicBool::new(false),
        });
        Ok(client)
    }

    /// Starts the background thread.
    ///
    /// # Errors
    /// When there can be no more threads.
    pub fn start(self: &Arc<Self>, hooks: Box<dyn Hooks>) -> io::Result<()> {
        let _ = self.hooks.set(hooks);
        // What the node said right after its welcome has been read with it: no event of the socket will tell of that.
        if let Some(mut lead) = self.take_lead() {
            self.receive_greeting(&mut lead);
        }
        background::start(self)
    }

    /// This process.
    #[must_use]
    pub fn me(&self) -> WorkerId {
        self.me
    }

    /// The node's shared memory.
    #[must_use]
    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// A fresh task or object number.
    #[must_use]
    pub fn next_task(&self) -> TaskId {
        TaskId { owner: self.me, number: self.numbers.fetch_add(1, Ordering::Relaxed) }
    }

    /// Whether this process has submitted or put nothing after this task.
    #[must_use]
    pub fn is_latest(&self, task: TaskId) -> bool {
        self.numbers.load(Ordering::Relaxed) == task.number + 1
    }

    /// Whether the session is over.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Runs `work` on the core and carries out what it wants. What is to be sent leaves with the next flush: at once
    /// when the peers have been quiet, otherwise with others (see [`Outbox`]).
    pub fn step<R>(&self, work: impl FnOnce(&mut WorkerCore, &mut Actions) -> R) -> R {
        let shared = self.shared.lock();
        self.step_and_send(shared, None, work)
    }

    /// A [`Self::step`] that submits a task. One look at the clock serves its record and the decision when to send.
    pub fn step_submit<R>(
        &self,
        is_recorded: bool,
        work: impl FnOnce(&mut WorkerCore, &mut Actions) -> R,
    ) -> R {
        let time = (is_recorded && self.records).then(now);
        let mut shared = self.shared.lock();
        shared.core.set_submitting(time.unwrap_or_default());
        self.step_and_send(shared, time, work)
    }

    fn step_and_send<R>(
        &self,
        mut shared: MutexGuard<'_, Shared>,
        time: Option<Instant>,
        work: impl FnOnce(&mut WorkerCore, &mut Actions) -> R,
    ) -> R {
        let result = self.step_locked(&mut shared, work);
        let flushed = self.flush_soon(&mut shared, time);
        let aftermath = self.take_aftermath(&mut shared);
        drop(shared);
        match flushed {
            FlushedSoon::Burst => self.look_between(),
            FlushedSoon::MustKick => self.kick(),
            FlushedSoon::Nothing => {}
        }
        self.finish(aftermath);
        result
    }

    pub(crate) fn step_locked<R>(
        &self,
        shared: &mut Shared,
        work: impl FnOnce(&mut WorkerCore, &mut Actions) -> R,
    ) -> R {
        let mut actions = std::mem::take(&mut shared.actions);
        if self.has_dropped.load(Ordering::Acquire) {
            self.has_dropped.store(false, Ordering::Release);
            let dropped = std::mem::take(&mut *self.dropped.lock());
            shared.core.on_handles_dropped(&dropped, &mut actions);
        }
        let result = work(&mut shared.core, &mut actions);
        self.perform(shared, &mut actions);
        while let Some((from, message)) = shared.loopback.pop_front() {
            let from = match from {
                Peer::Node => Peer::Node,
                Peer::Worker(_) => local::sender(self.me, &message, |task| shared.core.pushed_to(task)),
            };
            shared.core.on_message(from, message, now(), &mut actions);
            self.perform(shared, &mut actions);
        }
        shared.actions = actions;
        result
    }

    fn perform(&self, shared: &mut Shared, actions: &mut Actions) {
        for action in actions.drain(..) {
            match action {
                Action::Send { to: Peer::Node, message } if shared.local.is_some() => {
                    Self::send_to_local_node(shared, *message);
                }
                Action::Send { to: Peer::Worker(to), message } if to == self.me || local::is_local(to) => {
                    shared.loopback.push_back((Peer::Worker(to), *message));
                }
                Action::Send { to, message } => {
                    if let Some(block) = block_given_with(&message) {
                        shared.written.remove(&block);
                    }
                    shared.outbox.push(to, &message);
                }
                Action::Push { worker, spec, dependencies, gpus }
                    if worker == self.me || local::is_local(worker) =>
                {
                    let push = Push { spec: Box::new((*spec).clone()), dependencies, gpus };
                    shared.loopback.push_back((Peer::Worker(worker), push.into()));
                }
                Action::Push { worker, spec, dependencies, gpus } => {
                    let push =
                        weft_wire::message::PushRef { spec: &spec, dependencies: &dependencies, gpus: &gpus };
                    push.append(shared.outbox.buffer(Peer::Worker(worker)));
                }
                Action::Ready(object) => shared.aftermath.ready.push(object),
                Action::FreeBlock(location) => shared.keep_block(location),
                Action::Interrupt { task, force } => shared.aftermath.interrupts.push((task, force)),
                Action::Warn(text) => shared.aftermath.warnings.push(text),
            }
        }
    }

    fn send_to_local_node(shared: &mut Shared, message: Message) {
        let Some(node) = &mut shared.local else { return };
        if let Some(note) = LocalNode::frees_name(&message) {
            shared.outbox.push(Peer::Node, &note);
        }
        match node.on_message(message) {
            Answer::Pass(message) => shared.outbox.push(Peer::Node, &message),
            Answer::Replies(replies) => {
                shared.loopback.extend(replies.into_iter().map(|reply| (Peer::Node, reply)));
            }
        }
        shared.aftermath.ended_actors.append(&mut node.ended);
    }

    /// From now on this process executes what it submits. `total` are the resources there are.
    pub fn enter_local_mode(&self, total: ResourceSet) {
        self.shared.lock().local = Some(LocalNode::new(self.me, total));
        self.is_local.store(true, Ordering::Release);
    }

    /// Whether this process executes what it submits.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.is_local.load(Ordering::Relaxed)
    }

    /// Something happened in this process that a waiting thread may wait for.
    pub fn notify(&self) {
        self.kick();
        self.wake_followers();
    }

    fn take_aftermath(&self, shared: &mut Shared) -> Aftermath {
        if shared.aftermath.is_empty() { Aftermath::default() } else { std::mem::take(&mut shared.aftermath) }
    }

    fn finish(&self, aftermath: Aftermath) {
        if aftermath.is_empty() {
            return;
        }
        let Some(hooks) = self.hooks.get() else { return };
        for (task, force) in aftermath.interrupts {
            hooks.on_interrupt(task, force);
        }
        if !aftermath.ready.is_empty() {
            hooks.on_ready(aftermath.ready);
        }
        for text in aftermath.warnings {
            hooks.on_warning(text);
        }
        for (actor, in_order) in aftermath.ended_actors {
            hooks.on_actor_end(actor, in_order);
        }
        if aftermath.memory_pressure {
            hooks.on_memory_pressure();
        }
        if let Some(reason) = aftermath.end {
            hooks.on_end(&reason);
        }
    }

    /// Sends everything that waits to be sent, for at most `nanos`. True if all of it has left. Must be called without
    /// the GIL.
    pub fn flush_all(&self, nanos: u64) -> bool {
        self.flush_now();
        let has_left = || self.shared.lock().outbox.is_empty();
        self.wait_until(has_left, Some(now().plus(nanos)), false) == Waited::Done
    }

    /// A handle was dropped; `slot` says whether anyone must hear of it.
    pub fn drop_handle(&self, object: ObjectId, slot: &Slot) {
        if slot.release() {
            self.note_dropped(object);
        }
    }

    /// The reader of a streaming task was dropped.
    pub fn drop_reader(&self, task: TaskId) {
        self.note_dropped(task.reader());
    }

    fn note_dropped(&self, object: ObjectId) {
        if self.is_closed() {
            return;
        }
        let was_empty = {
            let mut dropped = self.dropped.lock();
            dropped.push(object);
            dropped.len() == 1
        };
        if was_empty {
            // Either the background thread sees this before it sleeps, or we see that it sleeps.
            self.has_dropped.store(true, Ordering::SeqCst);
            // Nobody may step for long: the background thread looks after a while.
            self.rouse();
        }
    }

    /// Puts a small value: nobody else knows it, so the table need not.
    #[must_use]
    pub fn put_inline(&self, outcome: Outcome) -> (ObjectId, Arc<Slot>) {
        (self.next_task().object(0), Arc::new(Slot::with_outcome(outcome)))
    }

    /// Asks the node and waits for its answer. Must be called without the GIL.
    ///
    /// # Errors
    /// When the session ends before the answer.
    pub fn ask(&self, question: impl FnOnce(u64) -> Message) -> Result<Message, Waited> {
        let request = self.requests.fetch_add(1, Ordering::Relaxed);
        {
            let mut shared = self.shared.lock();
            shared.answers.insert(request, None);
            let message = question(request);
            shared.outbox.push(Peer::Node, &message);
            shared.outbox.flush();
        }
        let is_answered = || self.shared.lock().answers.get(&request).is_none_or(Option::is_some);
        let waited = self.wait_until(is_answered, None, false);
        let answer = self.shared.lock().answers.remove(&request).flatten();
        answer.ok_or(waited)
    }

    /// A block for a value of `bytes`: one kept from before, or a new one from the node. Must be called without the
    /// GIL.
    ///
    /// # Errors
    /// A sentence on how full the store is.
    pub fn allocate(&self, bytes: u64) -> Result<Location, String> {
        // What was dropped just now may be the very block this value fits into.
        self.step(|_, _| ());
        if let Some(offset) = self.shared.lock().take_kept_block(bytes) {
            return Ok(Location { offset, length: bytes });
        }
        // What others keep for reuse comes back when the node asks for it, and what is held by cycles of Python objects
        // when the collectors of all processes have run; that takes a moment.
        for pause_ms in ALLOCATE_PAUSES_MS {
            if pause_ms > 0 {
                std::thread::sleep(Duration::from_millis(pause_ms));
                self.step(|_, _| ());
            }
            let ask = |request| Allocate { request, bytes }.into();
            let Ok(Message::Allocated(answer)) = self.ask(ask) else {
                return Err("the session has ended".to_owned());
            };
            if let Some(offset) = answer.offset {
                self.shared.lock().written.insert(offset);
                return Ok(Location { offset, length: bytes });
            }
            if bytes > answer.capacity || Some(&pause_ms) == ALLOCATE_PAUSES_MS.last() {
                return Err(format!(
                    "a value of {bytes} bytes does not fit into the object store: {} of {} bytes are in use. Drop references that are not needed, or start with a larger store: weft.init(object_store_memory={})",
                    answer.used,
                    answer.capacity,
                    (answer.used + 2 * bytes).next_multiple_of(1 << 20)
                ));
            }
        }
        unreachable!("the last pause returns")
    }

    /// Gives back a block that was never shown to anyone.
    pub fn free(&self, location: Location) {
        self.shared.lock().keep_block(location);
    }

    /// Tells the node that this driver leaves in order, so that its workers may, too.
    pub fn leave(&self) {
        let word = Shutdown { reason: "the program ends".to_owned() };
        self.shared.lock().outbox.push(Peer::Node, &word.into());
        self.flush_all(LEAVE_NANOS);
    }

    /// Ends the client: the background thread stops, and waits end.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.kick();
        self.background.stop();
        let _waiting = self.progress.0.lock();
        self.progress.1.notify_all();
    }

    /// Closes every descriptor of a closed client: references and views that outlive the session keep the client's
    /// memory mapped, and nothing else.
    pub fn release(&self) {
        let mut lead = self.lead.lock();
        lead.inbound.clear();
        lead.epoll = None;
        self.shared.lock().outbox.close();
        *self.wake.lock() = None;
        self.mapping.close_descriptor();
    }

    /// In a forked child: the session is the parent's. Takes no lock, since a thread that does not exist here may have
    /// held it.
    pub fn abandon(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Number of the descriptor that is readable when something came: for event loops.
    #[must_use]
    pub fn loop_descriptor(&self) -> Option<i32> {
        self.lead.lock().epoll.as_ref().map(AsRawFd::as_raw_fd)
    }
}

/// The first message of this process.
pub(crate) fn hello(role: u8, worker: WorkerId, python: &str, job: Option<Box<JobConfig>>) -> Hello {
    Hello {
        major: version::PROTOCOL_MAJOR,
        minor: version::PROTOCOL_MINOR,
        features: 0,
        role,
        pid: std::process::id(),
        python: python.to_owned(),
        worker,
        job,
    }
}

/// The block that this process does not have any more with this message.
fn block_given_with(message: &Message) -> Option<u64> {
    match message {
        // The core gives them up one by one.
        Message::FreeBlocks(free) => free.offsets.first().copied(),
        Message::GiveBlock(give) => Some(give.offset),
        Message::Checkpoint(Checkpoint { state: Return { outcome: Outcome::Stored(at), .. }, .. }) => {
            Some(at.offset)
        }
        _ => None,
    }
}

fn read_welcome(socket: &OwnedFd, inlet: &mut Inlet) -> io::Result<(Welcome, OwnedFd)> {
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    let mut end = false;
    loop {
        if let Some(mut received) = inlet.next_message().map_err(io::Error::other)? {
            return match received.message {
                Message::Welcome(welcome) => match received.descriptors.pop() {
                    Some(descriptor) => Ok((welcome, descriptor)),
                    None => Err(io::Error::other("the node passed no shared memory: too many open files")),
                },
                Message::Refused(refused) => Err(io::Error::other(refused.reason)),
                Message::Shutdown(shutdown) => {
                    Err(io::Error::new(io::ErrorKind::ConnectionAborted, shutdown.reason))
                }
                other => Err(io::Error::other(format!("the node answered {}", other.kind()))),
            };
        }
        if end {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the node ended the connection"));
        }
        if std::time::Instant::now() > deadline {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the node does not answer"));
        }
        let mut poll = [rustix::event::PollFd::new(socket, rustix::event::PollFlags::IN)];
        let second = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };
        let _ = rustix::event::poll(&mut poll, Some(&second));
        end = inlet.read(socket) == ReadResult::End;
    }
}

/// Now, for callers outside.
#[must_use]
pub fn time() -> Instant {
    now()
}
