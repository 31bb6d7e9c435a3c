//! A driver's or worker's shell around its [`WorkerCore`].
//!
//! The thread that waits does the I/O. A thread in `get` (or a worker that waits for a task) takes the lead,
//! reads the sockets itself and so sees its reply without a hand-over. A background thread leads only when no
//! thread has done I/O for about a millisecond ([`background`]). [`lead`] has the details.
//!
//! Locks: `shared` guards the core and queued messages, and is held for one step at a time; `lead` guards the
//! receiving halves and belongs to the leader. `lead` is taken before `shared`. Neither is held while Python
//! runs, and the GIL is never taken under them; `shared` may be taken with the GIL held.
//!
//! Dropped handles go to a queue that the next step empties. A destructor takes no lock but that queue's.

mod background;
mod collections;
mod greeting;
mod holding;
mod inspect;
mod lead;
mod lines;
mod local;
mod outbox;
mod receiving;
mod refusal;
mod remote;
mod rest;
mod shared;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use sooner_protocol::session::goes_behind;
use sooner_protocol::time::Instant;
use sooner_protocol::worker::WorkerCore;
use sooner_protocol::worker::action::{Action, Actions, Peer};
use sooner_protocol::worker::memory::{AfterRefusal, Allocation, given_with};
use sooner_protocol::worker::ownership::Slot;
use sooner_store::Mapping;
use sooner_wire::message::{Location, Message, Outcome, Push, Shutdown, Welcome};
use sooner_wire::{ObjectId, ResourceSet, TaskId, WorkerId};

use self::lead::{FlushedSoon, Led};
use self::local::{Answer, LocalNode};
use self::receiving::Lead;
use self::shared::{Aftermath, Shared};
use crate::clock::now;
use crate::transport::TlsFailure;

pub use collections::Collections;
pub(crate) use greeting::hello;
pub use lead::Waited;
pub use lines::LineReader;
pub(crate) use outbox::Outbox;
pub use refusal::NoRoom;

/// What the bindings do for the shell. Called without a lock held and without the GIL.
pub trait Hooks: Send + Sync {
    /// Watched objects have their outcome.
    fn on_ready(&self, objects: Vec<ObjectId>);
    /// A task that runs here was cancelled.
    fn on_interrupt(&self, task: TaskId, force: bool);
    /// Shows the user a warning.
    fn on_warning(&self, text: String);
    /// A signal may have come while a thread waited: true when the wait must end.
    fn on_signal(&self) -> bool;
    /// The session is over for this process (the node is dead or ends it).
    fn on_end(&self, reason: &str);
    /// In local mode: an actor of this process has ended, in order or not.
    fn on_actor_end(&self, actor: TaskId, in_order: bool);
    /// The object store is short of room: release what is held without need. `is_full`: no room will be made
    /// otherwise.
    fn on_memory_pressure(&self, is_full: bool);
    /// A waiting thread has polled for a while, and sleeps now.
    fn on_sleep(&self) {}
    /// A process of another node was dialled, and one of the two does not accept the other's certificate:
    /// their tokens differ. It is dialled again for a while.
    fn on_mistrust(&self, _failure: &TlsFailure) {}
}

/// See the module.
pub struct Client {
    me: WorkerId,
    /// The driver of the session.
    pub driver: WorkerId,
    is_driver: bool,
    /// The node's answer to the greeting.
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
    /// Counts steps and the ends of leads. The background thread sees by it that other threads attend.
    attention: AtomicU64,
    /// Objects that have failed so far, as the core counts them.
    failures: AtomicU64,
    /// Threads that want to lead.
    wanted: AtomicU32,
    background: background::Background,
    progress: (Mutex<()>, Condvar),
    followers: AtomicU32,
    closed: AtomicBool,
    end_reason: OnceLock<String>,
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

/// How long a driver tries to send that it leaves (nanoseconds).
const LEAVE_NANOS: u64 = 100_000_000;

const NODE_TOKEN: u64 = 0;
const WAKE_TOKEN: u64 = 1;

impl Client {
    /// Starts the background thread.
    ///
    /// # Errors
    /// When there can be no more threads.
    pub fn start(self: &Arc<Self>, hooks: Box<dyn Hooks>) -> io::Result<()> {
        let _ = self.hooks.set(hooks);
        // Messages that came right behind the welcome were read with it: no event of the socket will report
        // them.
        if let Some(mut lead) = self.take_lead() {
            self.receive_greeting(&mut lead);
        }
        background::start(self);
        Ok(())
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

    /// Why the session is over, if it was not this process that ended it.
    #[must_use]
    pub fn end_reason(&self) -> Option<&str> {
        self.end_reason.get().map(String::as_str)
    }

    /// Runs `work` on the core and carries out the actions. Messages leave with the next flush: at once when
    /// the peers have been quiet, otherwise with others (see [`Outbox`]).
    pub fn step<R>(&self, work: impl FnOnce(&mut WorkerCore, &mut Actions) -> R) -> R {
        let shared = self.shared.lock();
        self.step_and_send(shared, None, work)
    }

    /// A [`Self::step`] that submits a task. The clock is read once, for the task's record and for the
    /// decision when to send.
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
        if shared.outbox.remotes.has_fullness() {
            // Before the flush: what the core now pushes to lines with room is to leave, too.
            self.notify_fullness(&mut shared, now());
        }
        let flushed = self.flush_soon(&mut shared, time);
        let aftermath = self.take_aftermath(&mut shared);
        drop(shared);
        match flushed {
            FlushedSoon::Burst => self.look_between(),
            FlushedSoon::MustRouse => self.rouse(),
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
        let failures = shared.core.ownership().failures();
        if failures != self.failures.load(Ordering::Relaxed) {
            self.failures.store(failures, Ordering::Release);
        }
        result
    }

    /// How many objects of this process have failed so far. A thread that waits for many need not look at
    /// each of them before this changes.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Acquire)
    }

    fn perform(&self, shared: &mut Shared, actions: &mut Actions) {
        if self.end_reason().is_some() {
            // Tasks that fail without the node must not report a result: to others this process is dead.
            actions.retain(|action| !matches!(action, Action::Send { .. } | Action::Push { .. }));
        }
        for action in actions.drain(..) {
            match action {
                Action::Send { to: Peer::Node, message } if shared.local.is_some() => {
                    Self::send_to_local_node(shared, *message);
                }
                Action::Send { to: Peer::Worker(to), message } if to == self.me || local::is_local(to) => {
                    shared.loopback.push_back((Peer::Worker(to), *message));
                }
                Action::Send { to: Peer::Node, message } if goes_behind(&message) => {
                    shared.outbox.send_after_flush(*message);
                }
                Action::Send { to: Peer::Worker(to), mut message } if to.node() != self.me.node() => {
                    message.globalise(self.me.node());
                    shared.outbox.push(Peer::Worker(to), &message);
                }
                Action::Send { to, message } => {
                    given_with(&message, |block| _ = shared.written.remove(&block));
                    shared.outbox.push(to, &message);
                }
                Action::Push { worker, spec, dependencies, gpus }
                    if worker == self.me || local::is_local(worker) =>
                {
                    let push = Push { spec: Box::new((*spec).clone()), dependencies, gpus };
                    shared.loopback.push_back((Peer::Worker(worker), push.into()));
                }
                Action::Push { worker, spec, mut dependencies, gpus } => {
                    if worker.node() != self.me.node() {
                        dependencies.iter_mut().for_each(|one| one.outcome.globalise(self.me.node()));
                    }
                    let push = sooner_wire::message::PushRef {
                        spec: &spec,
                        dependencies: &dependencies,
                        gpus: &gpus,
                    };
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

    /// A condition that a waiting thread may wait for has changed in this process.
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
        if let Some(is_full) = aftermath.memory_pressure {
            hooks.on_memory_pressure(is_full);
        }
        if let Some(failure) = aftermath.mistrust {
            hooks.on_mistrust(&failure);
        }
        if let Some(reason) = aftermath.end {
            hooks.on_end(&reason);
        }
    }

    /// Sends everything that is queued, for at most `nanos`. True if all of it has left, and has arrived
    /// where it goes to other nodes. Must be called without the GIL.
    pub fn flush_all(&self, nanos: u64) -> bool {
        self.flush_now();
        let said = self.shared.lock().outbox.remotes.said();
        let has_left = || self.shared.lock().outbox.is_empty(&said);
        self.wait_until(has_left, Some(now().plus(nanos)), false) == Waited::Done
    }

    /// A handle was dropped; `slot` says whether the core must learn of it.
    pub fn drop_handle(&self, object: ObjectId, slot: &Slot) {
        if slot.release() {
            self.record_dropped(object);
        }
    }

    /// The reader of a streaming task was dropped.
    pub fn drop_reader(&self, task: TaskId) {
        self.record_dropped(task.reader());
    }

    fn record_dropped(&self, object: ObjectId) {
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
            // No thread may step for long: the background thread looks after a while.
            self.rouse();
        }
    }

    /// Puts a small value. No other process knows the object, so the ownership table need not either.
    #[must_use]
    pub fn put_inline(&self, outcome: Outcome) -> (ObjectId, Arc<Slot>) {
        (self.next_task().object(0), Arc::new(Slot::with_outcome(outcome)))
    }

    /// Asks the node and waits for its answer. Must be called without the GIL.
    ///
    /// # Errors
    /// When the session ends before the answer.
    pub fn ask(&self, question: impl FnOnce(u64) -> Message) -> Result<Message, Waited> {
        self.ask_with(question, false)
    }

    /// Like [`Self::ask`], on behalf of the user, who may interrupt it: with `heeds_signals`, signal handlers
    /// run and may end the wait. An answer that comes after that is dropped.
    ///
    /// # Errors
    /// When the session ends before the answer, or a signal handler wants that.
    pub fn ask_with(
        &self,
        question: impl FnOnce(u64) -> Message,
        heeds_signals: bool,
    ) -> Result<Message, Waited> {
        let request = self.requests.fetch_add(1, Ordering::Relaxed);
        {
            let mut shared = self.shared.lock();
            shared.answers.insert(request, None);
            let message = question(request);
            shared.outbox.push(Peer::Node, &message);
            shared.outbox.flush();
        }
        let is_answered = || self.shared.lock().answers.get(&request).is_none_or(Option::is_some);
        let waited = self.wait_until(is_answered, None, heeds_signals);
        let answer = self.shared.lock().answers.remove(&request).flatten();
        answer.ok_or(waited)
    }

    /// A block for a value of `bytes`: one kept from before, or a new one from the node. Must be called
    /// without the GIL.
    ///
    /// # Errors
    /// [`NoRoom`], which says how full the store is.
    pub fn allocate(&self, bytes: u64) -> Result<Location, NoRoom> {
        self.allocate_with(bytes, &[])
    }

    /// Like [`Self::allocate`], and asks for blocks of the sizes in `ahead` in the same round trip, if the
    /// node is asked at all. Those granted go into the local cache.
    ///
    /// # Errors
    /// [`NoRoom`], which says how full the store is.
    pub fn allocate_with(&self, bytes: u64, ahead: &[u64]) -> Result<Location, NoRoom> {
        // A handle that was dropped just now may free the very block this value fits into.
        self.step(|_, _| ());
        let ahead = {
            let mut shared = self.shared.lock();
            if let Some(block) = shared.take_kept_block(bytes) {
                return Ok(Location::in_memory(block, bytes));
            }
            shared.cache.within(ahead)
        };
        let mut allocation = Allocation::new(bytes, now());
        loop {
            let ask = |request| allocation.ask(request, ahead).into();
            let Ok(Message::Allocated(answer)) = self.ask(ask) else {
                return Err(NoRoom::session_ended());
            };
            if let Some(block) = answer.block {
                let mut shared = self.shared.lock();
                for (block, length) in answer.ahead.into_iter().flatten().zip(ahead) {
                    shared.keep_block(Location::in_memory(block, *length));
                }
                shared.written.insert(block);
                return Ok(Location::in_memory(block, bytes));
            }
            match allocation.on_refused(&answer, now()) {
                AfterRefusal::AskAfter(nanos) => {
                    std::thread::sleep(Duration::from_nanos(nanos));
                    self.step(|_, _| ());
                }
                AfterRefusal::GoOnAfter(nanos) => std::thread::sleep(Duration::from_nanos(nanos)),
                AfterRefusal::AskAtLast => {}
                AfterRefusal::GiveUp => return Err(NoRoom::of(bytes, &answer)),
            }
        }
    }

    /// Gives back a block that no other process has seen.
    pub fn free(&self, location: Location) {
        self.shared.lock().keep_block(location);
    }

    /// Reports to the node that this driver leaves in order, so that its workers may, too.
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

    /// Closes every descriptor of a closed client: references and views that outlive the session keep the
    /// client's memory mapped, and nothing else.
    pub fn release(&self) {
        let mut lead = Led::of(self, self.lead.lock());
        lead.inbound.clear();
        lead.poller = None;
        self.shared.lock().outbox.close();
        *self.wake.lock() = None;
        self.mapping.close_descriptor();
    }

    /// In a forked child: the session is the parent's. Takes no lock, since a thread that does not exist in
    /// the child may have held it.
    pub fn abandon(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Number of the descriptor that is readable when something came: for event loops.
    #[must_use]
    pub fn loop_descriptor(&self) -> Option<i32> {
        self.lead.lock().poller.as_ref().map(|poller| poller.as_fd().as_raw_fd())
    }
}

/// Now, for callers outside.
#[must_use]
pub fn time() -> Instant {
    now()
}
