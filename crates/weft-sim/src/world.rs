//! The simulated world: one node core, a driver and workers, the channels between them, and a virtual clock.
//!
//! What may happen next lies in one list, of which a seeded generator picks: a message that has arrived, a process that
//! has something to do, the node's turn to place. What is to happen at a time lies in a heap. Nothing else moves the
//! world, so a seed repeats a run exactly.
//!
//! What a fault may do is in [`crate::faults`], what the processes run in [`crate::program`], and what must hold in
//! [`crate::invariants`].

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use weft_protocol::action::{Action, Actions, Peer};
use weft_protocol::node::{NodeAction, NodeActions, NodeCore};
use weft_protocol::probes::hit;
use weft_protocol::time::Instant;
use weft_protocol::worker::WorkerCore;
use weft_wire::message::state::{Inspect, about};
use weft_wire::message::{
    Connect, FreeBlocks, GivenBlocks, Message, PeerConnected, TrimBlocks, UnknownBlocks,
};
use weft_wire::{ResourceSet, WorkerId};

use crate::oracle::Oracle;
use crate::plan::{Fault, Plan};
use crate::random::Random;
use crate::trace::Trace;
use crate::violation::fail;

mod blocks;
mod channels;
mod process;

pub use blocks::Blocks;
pub use channels::{Channel, Channels, Item};
pub use process::{Life, Process};

/// Ids of processes count up from here.
const FIRST: u64 = 1000;
/// The driver's number.
pub const DRIVER: u32 = 1;
/// Steps after which a run that has not ended counts as one that never ends.
const STEPS_MAX: u64 = 4_000_000;
/// Blocks that a process keeps for reuse.
const CACHE_MAX: usize = 2;

/// What may happen next.
#[derive(Debug, Clone, Copy)]
enum Next {
    Channel(u32),
    Process(u32),
    Node,
}

/// What happens at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wake {
    /// A process may have something to do.
    Process(u32),
    /// A process's timer is due.
    Timer(u32),
    /// A frame that still waits lends its CPU.
    Blocked(u32, u64),
    /// A frame that still runs has taken long.
    Long(u32, u64),
    /// A worker process is there, or has failed to come.
    Start(u32),
    /// A stopped process goes on.
    Resume(u32),
    /// A stalled channel delivers again.
    Unstall(u32),
    /// A signal of the node arrives.
    Kill(u32),
    /// The node looks although nothing came.
    Node,
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The program runs, with faults.
    Faults,
    /// No faults any more: everything must finish.
    Calm,
    /// The program is over; what processes kept for themselves goes.
    Sweep,
    /// Memory kept for reuse goes back.
    Trim,
}

/// See the module.
pub struct World {
    /// What the seed decided.
    pub plan: Plan,
    /// Decides the rest.
    pub random: Random,
    /// What happened.
    pub trace: Trace,
    /// What may come of every task.
    pub oracle: Oracle,
    /// Nanoseconds.
    pub time: u64,
    /// Steps so far.
    pub steps: u64,
    /// Handler calls of cores so far.
    pub events: u64,
    /// Processes that faults killed.
    pub kills: u64,
    /// By number; 0 stands for the node.
    pub processes: Vec<Process>,
    /// Between them.
    pub channels: Channels,
    /// Shared memory.
    pub blocks: Blocks,
    /// The node.
    pub node: NodeCore,
    node_out: NodeActions,
    is_node_listed: bool,
    node_wakes_at: u64,
    next: Vec<Next>,
    wakes: BinaryHeap<Reverse<(u64, u64, Wake)>>,
    wakes_made: u64,
    actions: Actions,
    loopback: VecDeque<Item>,
    ending: Vec<u32>,
    next_fault: u64,
    phase: Phase,
    frames_made: u64,
}

impl World {
    /// The world of a plan.
    #[must_use]
    pub fn new(plan: Plan, trace: Trace) -> Self {
        let cpus = ResourceSet::from_amounts([("CPU".to_owned(), f64::from(plan.cpus))]);
        let node = NodeCore::new(cpus, FIRST, plan.pool);
        let mut world = Self {
            random: Random::new(plan.seed),
            trace,
            oracle: Oracle::default(),
            time: 1,
            steps: 0,
            events: 0,
            kills: 0,
            processes: vec![Process::new(WorkerId(FIRST))],
            channels: Channels::default(),
            blocks: Blocks::default(),
            node,
            node_out: NodeActions::new(),
            is_node_listed: false,
            node_wakes_at: 0,
            next: Vec::new(),
            wakes: BinaryHeap::new(),
            wakes_made: 0,
            actions: Actions::new(),
            loopback: VecDeque::new(),
            ending: Vec::new(),
            next_fault: 0,
            phase: Phase::Faults,
            frames_made: 0,
            plan,
        };
        let driver = world.node.new_worker_id();
        world.processes.push(Process::new(driver));
        world.connect(DRIVER);
        world.begin_program();
        world.schedule_fault();
        world
    }

    /// The number of a process.
    #[must_use]
    pub fn number(worker: WorkerId) -> u32 {
        u32::try_from(worker.0 - FIRST).expect("ids count up from the first")
    }

    /// A process by its number.
    #[must_use]
    pub fn process(&self, number: u32) -> &Process {
        &self.processes[number as usize]
    }

    /// A process by its number, to change it.
    pub fn process_mut(&mut self, number: u32) -> &mut Process {
        &mut self.processes[number as usize]
    }

    /// Now.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant(self.time)
    }

    /// Whether faults may happen.
    #[must_use]
    pub fn has_faults(&self) -> bool {
        self.phase == Phase::Faults
    }

    /// A number for a frame.
    pub fn new_frame_number(&mut self) -> u64 {
        self.frames_made += 1;
        self.frames_made
    }

    /// Runs the program to its end: first with faults, then without.
    ///
    /// # Panics
    /// With a [`crate::violation::Violation`] when an invariant does not hold.
    pub fn run(&mut self) {
        loop {
            while self.step() {
                if self.steps > STEPS_MAX {
                    fail("I1", format!("the run does not end: {}", self.describe()));
                }
            }
            match self.phase {
                Phase::Faults | Phase::Calm => {
                    self.check_everyone_finished();
                    self.sweep();
                    self.phase = Phase::Sweep;
                }
                Phase::Sweep => {
                    self.trim();
                    self.phase = Phase::Trim;
                }
                Phase::Trim => return self.check_end(),
            }
        }
    }

    /// The program of the driver has made all its steps: no faults from here on.
    pub fn calm_down(&mut self) {
        if self.phase != Phase::Faults {
            return;
        }
        self.phase = Phase::Calm;
        self.trace.say(|| "--- no faults from here on".to_owned());
        self.end_faults();
    }

    /// One thing happens; false if nothing can.
    fn step(&mut self) -> bool {
        self.steps += 1;
        let step = usize::try_from(self.plan.step_nanos).expect("small");
        self.time += self.random.below(2 * step) as u64;
        if self.steps >= self.next_fault && self.has_faults() {
            self.strike();
            self.schedule_fault();
        }
        while let Some(Reverse((at, _, wake))) = self.wakes.peek().copied() {
            if at > self.time && !self.next.is_empty() {
                break;
            }
            self.wakes.pop();
            self.time = self.time.max(at);
            self.wake(wake);
        }
        if self.next.is_empty() {
            return false;
        }
        let at = self.random.below(self.next.len());
        match self.next.swap_remove(at) {
            Next::Channel(channel) => self.deliver(channel),
            Next::Process(process) => {
                self.process_mut(process).is_listed = false;
                if self.process(process).is_running() && !self.process(process).is_paused {
                    self.turn(process);
                }
                self.touch(process);
            }
            Next::Node => {
                self.is_node_listed = false;
                self.settle_node();
            }
        }
        self.check_step();
        true
    }

    fn schedule_fault(&mut self) {
        let pause = 1 + self.random.below(2 * self.plan.fault_every);
        self.next_fault = self.steps + pause as u64;
    }

    /// Has something happen after a time.
    pub fn wake_in(&mut self, nanos: u64, wake: Wake) {
        self.wakes_made += 1;
        self.wakes.push(Reverse((self.time + nanos, self.wakes_made, wake)));
    }

    fn wake(&mut self, wake: Wake) {
        match wake {
            Wake::Process(process) => self.touch(process),
            Wake::Timer(process) => {
                self.process_mut(process).timer_at = 0;
                self.look_at_timer(process);
            }
            Wake::Blocked(process, frame) => self.lend_if_waiting(process, frame),
            Wake::Long(process, frame) => self.return_if_long(process, frame),
            Wake::Start(process) => self.finish_start(process),
            Wake::Resume(process) => self.resume(process),
            Wake::Unstall(channel) => {
                self.channels.get_mut(channel).is_stalled = false;
                self.list(channel);
            }
            Wake::Kill(process) => {
                if self.process(process).is_running() {
                    self.kill(process, "was killed by the node");
                }
            }
            Wake::Node => {
                self.node_wakes_at = 0;
                self.settle_node();
            }
        }
    }

    // --- processes ---------------------------------------------------------------------------------

    fn connect(&mut self, number: u32) {
        let now = self.now();
        let worker = self.process(number).id;
        self.process_mut(number).life = Life::Running;
        self.node.on_connected(worker, number, now);
        self.events += 1;
        self.define_function(number);
        self.list_node();
    }

    fn finish_start(&mut self, number: u32) {
        if self.process(number).life != Life::Starting {
            return;
        }
        let worker = self.process(number).id;
        let fails = self.has_faults() && self.plan.breaks(Fault::FailedStart) && self.random.chance(1, 4);
        if !fails {
            self.trace.say(|| format!("{number} comes up"));
            self.connect(number);
            return self.touch(number);
        }
        hit("a worker process did not come up");
        self.process_mut(number).life = Life::Ended;
        self.trace.say(|| format!("{number} does not come up"));
        // Either the fork failed, or the process died before it said hello.
        if self.random.chance(1, 2) {
            self.node.on_start_failed(worker, "no more processes", &mut self.node_out);
        } else {
            hit("a worker process died before it said hello");
            self.node.on_gone(worker, "died at its start", None, &mut self.node_out);
        }
        self.events += 1;
        self.list_node();
    }

    /// Lists a process if it has something to do.
    pub fn touch(&mut self, number: u32) {
        let process = &self.processes[number as usize];
        if process.is_listed || !process.is_running() || process.is_paused {
            return;
        }
        if self.has_work(number) {
            self.processes[number as usize].is_listed = true;
            self.next.push(Next::Process(number));
        }
    }

    /// Runs `work` on a core and carries out what it wants, as the shell does.
    pub fn with_core<R>(&mut self, number: u32, work: impl FnOnce(&mut WorkerCore, &mut Actions) -> R) -> R {
        self.events += 1;
        let mut out = std::mem::take(&mut self.actions);
        let process = &mut self.processes[number as usize];
        if !process.dropped.is_empty() {
            let dropped = std::mem::take(&mut process.dropped);
            process.core.on_handles_dropped(&dropped, &mut out);
        }
        let result = work(&mut process.core, &mut out);
        if !self.process(number).is_running() {
            // It died a moment ago: what is left of the frame that was at it has no effect.
            out.clear();
        }
        let cut = self.cut_in(number, out.len());
        for (at, action) in out.drain(..).enumerate() {
            if cut == Some(at) {
                break;
            }
            self.perform(number, action);
        }
        self.actions = out;
        if cut.is_some() {
            self.kill(number, "was killed while it sent");
        }
        while let Some(item) = self.loopback.pop_front() {
            self.deliver_to_self(number, item);
        }
        if let Some(ending) = self.ending.pop() {
            self.flush(ending);
            self.kill(ending, "was ended by force");
        }
        result
    }

    fn deliver_to_self(&mut self, number: u32, item: Item) {
        if !self.process(number).is_running() {
            return;
        }
        let message = into_message(item);
        let now = self.now();
        let me = Peer::Worker(self.process(number).id);
        self.with_core(number, |core, out| core.on_message(me, message, now, out));
    }

    fn perform(&mut self, number: u32, action: Action) {
        match action {
            Action::Send { to: Peer::Node, message } => {
                match &*message {
                    Message::GiveBlock(give) => {
                        self.process_mut(number).written.remove(&give.offset);
                    }
                    Message::FreeBlocks(free) => {
                        let written = &mut self.process_mut(number).written;
                        free.offsets.iter().for_each(|block| _ = written.remove(block));
                    }
                    _ => {}
                }
                self.send(number, 0, Item::Message(message));
            }
            Action::Send { to: Peer::Worker(to), message } => {
                self.send_to_peer(number, to, Item::Message(message));
            }
            Action::Push { worker, spec, dependencies, gpus } => {
                self.oracle.on_pushed(spec.task);
                let to = Self::number(worker);
                if self.process(to).is_running() {
                    self.process_mut(to).assigned.insert(spec.task);
                } else if let Some(fact) = self.oracle.facts.get_mut(&spec.task) {
                    // Its worker is gone, and the progress cell may name a task that was sent there again.
                    fact.crashed += 1;
                }
                self.send_to_peer(number, worker, Item::Push(spec, dependencies, gpus));
            }
            Action::FreeBlock(location) => {
                let process = self.process_mut(number);
                process.written.remove(&location.offset);
                process.cache.push(location.offset);
                if process.cache.len() > CACHE_MAX {
                    let offsets = vec![process.cache.remove(0)];
                    self.send(number, 0, Item::Message(Box::new(FreeBlocks { offsets }.into())));
                }
            }
            Action::Interrupt { task, force } => {
                let process = self.process_mut(number);
                let mut runs = false;
                for frame in process.frames.iter_mut().filter(|frame| frame.task == Some(task)) {
                    frame.is_interrupted = true;
                    runs = true;
                }
                if force && runs {
                    hit("a task was cancelled by ending its process");
                    self.ending.push(number);
                }
            }
            Action::Ready(_) | Action::Warn(_) => {}
        }
    }

    fn send_to_peer(&mut self, from: u32, to: WorkerId, item: Item) {
        let to = Self::number(to);
        if to == from {
            return self.loopback.push_back(item);
        }
        if self.process_mut(from).lines.insert(to) {
            let worker = self.process(to).id;
            self.send(from, 0, Item::Message(Box::new(Connect { worker }.into())));
        }
        if self.process(to).life == Life::Ended {
            hit("a message went to a process that was gone");
            Oracle::on_lost([&item]);
            return;
        }
        self.send(from, to, item);
    }

    /// Puts an item into a sender's buffer.
    pub fn send(&mut self, from: u32, to: u32, item: Item) {
        let item = self.through_the_wire(item);
        let number = self.channels.number(from, to);
        let channel = self.channels.get_mut(number);
        channel.queue.push_back(item);
        let gathers = from != 0 && self.plan.breaks(Fault::Gather);
        if !gathers {
            self.flush_channel(number);
        } else if !channel.is_dirty {
            channel.is_dirty = true;
            self.process_mut(from).dirty.push(number);
        }
    }

    /// What is sent can be read: on a sample, since it costs more than all the rest.
    fn through_the_wire(&mut self, item: Item) -> Item {
        if !self.steps.is_multiple_of(61) {
            return item;
        }
        let message = into_message(item);
        let mut bytes = Vec::new();
        message.append(&mut bytes, 0);
        let head = weft_wire::frame::whole_frame(&bytes).expect("fits").expect("whole");
        let body = &bytes[weft_wire::frame::HEAD_BYTES..];
        Item::Message(Box::new(Message::decode(head.kind, body).expect("what was written can be read")))
    }

    fn flush_channel(&mut self, number: u32) {
        let channel = self.channels.get_mut(number);
        if channel.is_connected {
            channel.sent = channel.queue.len();
            self.list(number);
        }
    }

    /// The buffers of a process in the order in which they are flushed: the node's first.
    fn take_dirty(&mut self, number: u32) -> Vec<u32> {
        let mut dirty = std::mem::take(&mut self.process_mut(number).dirty);
        if let Some(at) = dirty.iter().position(|channel| self.channels.get(*channel).to == 0) {
            dirty.swap(0, at);
        }
        dirty
    }

    /// Everything in a process's buffers leaves.
    pub fn flush(&mut self, number: u32) {
        for channel in self.take_dirty(number) {
            self.channels.get_mut(channel).is_dirty = false;
            self.flush_channel(channel);
        }
    }

    /// The timer of a process: idle leases go back.
    pub fn look_at_timer(&mut self, number: u32) {
        if !self.process(number).is_running() || self.process(number).is_paused {
            return;
        }
        let now = self.now();
        self.process_mut(number).has_read = false;
        let due = self.with_core(number, |core, out| core.on_timer(now, out));
        self.touch(number);
        let Some(due) = due else { return };
        if self.process(number).timer_at == 0 && self.process(number).is_running() {
            let late =
                if self.plan.breaks(Fault::LateTimers) { self.random.below(30_000_000) as u64 } else { 0 };
            self.process_mut(number).timer_at = due.0;
            self.wake_in(due.since(now) + late + 1, Wake::Timer(number));
        }
    }

    // --- the wire ----------------------------------------------------------------------------------

    /// Lists a channel if something can be delivered.
    pub fn list(&mut self, number: u32) {
        let channel = self.channels.get(number);
        if channel.is_listed || !channel.has_arrived() {
            return;
        }
        let to = channel.to;
        if to == 0 || (self.process(to).is_running() && !self.process(to).is_paused) {
            self.channels.get_mut(number).is_listed = true;
            self.next.push(Next::Channel(number));
        }
    }

    fn deliver(&mut self, number: u32) {
        let channel = self.channels.get_mut(number);
        channel.is_listed = false;
        let (from, to) = (channel.from, channel.to);
        let can_read = to == 0 || (self.process(to).is_running() && !self.process(to).is_paused);
        let channel = self.channels.get_mut(number);
        if !can_read || !channel.has_arrived() {
            return;
        }
        let Some(item) = channel.take() else { return };
        if to == 0 {
            self.deliver_to_node(from, item);
        } else {
            self.deliver_to(from, to, item);
        }
        self.list(number);
    }

    fn deliver_to_node(&mut self, from: u32, item: Item) {
        self.events += 1;
        let worker = self.process(from).id;
        let now = self.now();
        match item {
            Item::End => {
                self.trace.note(u64::from(from) << 16);
                self.trace.say(|| format!("node hears the end of {from}"));
                let last = self.process(from).last_started;
                self.node.on_gone(worker, "was killed", last, &mut self.node_out);
            }
            item => {
                let message = into_message(item);
                self.trace.note((u64::from(from) << 16) ^ u64::from(message.kind()));
                self.trace.say(|| format!("node <- {from}: {}", brief(&message)));
                self.node.on_message(worker, message, now, &mut self.node_out);
            }
        }
        // The node places once per batch of what it reads.
        if self.random.chance(1, 2) { self.settle_node() } else { self.list_node() }
    }

    /// A process reads an item from another one, or from the node.
    fn deliver_to(&mut self, from: u32, to: u32, item: Item) {
        let message = into_message(item);
        self.trace.note((u64::from(to) << 40) ^ (u64::from(from) << 16) ^ u64::from(message.kind()));
        self.trace.say(|| format!("{to} <- {}: {}", name(from), brief(&message)));
        if from == 0 {
            match &message {
                Message::PeerConnected(connected) => return self.on_connected(to, connected.worker),
                Message::Shutdown(_) | Message::ExitActor(_) => return self.leave(to),
                Message::TrimBlocks(_) => return self.give_cache_back(to),
                Message::WorkerGone(gone) => {
                    // What a dead process sent before its end is read before its end is believed.
                    self.drain(Self::number(gone.worker), to);
                    self.process_mut(to).lines.remove(&Self::number(gone.worker));
                }
                _ => {}
            }
        }
        self.receive(from, to, message);
        self.process_mut(to).has_read = true;
        if self.random.chance(1, 4) {
            self.look_at_timer(to);
        }
        self.touch(to);
    }

    fn receive(&mut self, from: u32, to: u32, message: Message) {
        if !self.process(to).is_running() {
            return;
        }
        self.observe(from, to, &message);
        let peer = if from == 0 { Peer::Node } else { Peer::Worker(self.process(from).id) };
        let now = self.now();
        let is_loss = matches!(message, Message::BlocksLost(_));
        let other = self.with_core(to, |core, out| core.on_message(peer, message, now, out));
        if is_loss {
            // One of them may be kept for the next value.
            self.give_cache_back(to);
        }
        match other {
            Some(Message::Answer(answer)) => {
                self.process_mut(to).answers.insert(answer.request, answer.into());
            }
            Some(Message::GivenBlocks(question)) => self.disown_unknown(to, question),
            _ => {}
        }
    }

    fn drain(&mut self, dead: u32, to: u32) {
        let Some(number) = self.channels.find(dead, to) else { return };
        if !self.channels.get(number).is_open {
            return;
        }
        while let Some(item) = self.channels.get_mut(number).take() {
            hit("a message was read after its sender was known to be gone");
            let message = into_message(item);
            self.trace.say(|| format!("{to} <- {dead} (drained): {}", brief(&message)));
            self.receive(dead, to, message);
        }
    }

    fn on_connected(&mut self, number: u32, peer: WorkerId) {
        let peer = Self::number(peer);
        self.process_mut(number).lines.insert(peer);
        let towards = self.channels.number(number, peer);
        self.channels.get_mut(towards).is_connected = true;
        if !self.channels.get(towards).is_dirty {
            self.flush_channel(towards);
        }
        let from = self.channels.number(peer, number);
        self.channels.get_mut(from).is_open = true;
        self.list(from);
        self.touch(number);
    }

    // --- the node ----------------------------------------------------------------------------------

    fn list_node(&mut self) {
        if !self.is_node_listed {
            self.is_node_listed = true;
            self.next.push(Next::Node);
        }
    }

    fn settle_node(&mut self) {
        let now = self.now();
        self.events += 1;
        let mut out = std::mem::take(&mut self.node_out);
        self.node.settle(now, &mut out);
        for action in out.drain(..) {
            self.perform_for_node(action);
        }
        self.node_out = out;
        if self.node_wakes_at == 0
            && let Some(at) = self.node.next_deadline()
        {
            self.node_wakes_at = at.0;
            self.wake_in(at.since(now) + 1, Wake::Node);
        }
    }

    fn perform_for_node(&mut self, action: NodeAction) {
        match action {
            NodeAction::Send(to, message) => {
                let to = Self::number(to);
                if let Message::Push(constructor) = &*message {
                    self.note_placed(to, constructor.spec.task);
                }
                if self.process(to).is_running() {
                    self.send(0, to, Item::Message(message));
                }
            }
            NodeAction::Introduce(one, other) => {
                for (to, worker) in [(one, other), (other, one)] {
                    let to = Self::number(to);
                    if self.process(to).is_running() {
                        let message = PeerConnected { worker }.into();
                        self.send(0, to, Item::Message(Box::new(message)));
                    }
                }
            }
            NodeAction::StartWorker(worker) => {
                let number = Self::number(worker);
                assert_eq!(number as usize, self.processes.len(), "ids count up");
                self.processes.push(Process::new(worker));
                let slow = self.has_faults() && self.plan.breaks(Fault::SlowStart);
                let nanos = if slow { 200_000_000 } else { 3_000_000 };
                let nanos = 1 + self.random.below(nanos) as u64;
                self.wake_in(nanos, Wake::Start(number));
            }
            NodeAction::KillWorker(worker) => {
                let number = Self::number(worker);
                if self.process(number).is_running() {
                    let nanos = self.random.below(100_000) as u64;
                    self.wake_in(nanos, Wake::Kill(number));
                }
            }
            NodeAction::FreeBlock(block) => self.free_block(block),
            NodeAction::Warn(_) => {}
        }
    }

    // --- ends --------------------------------------------------------------------------------------

    /// A process ends: what is in its buffers is lost, but for the buffers that were flushed just before.
    pub fn kill(&mut self, number: u32, how: &str) {
        if !self.process(number).is_running() {
            return;
        }
        self.trace.note(0xdead ^ u64::from(number));
        self.trace.say(|| format!("*** {number} {how}"));
        let dirty = self.take_dirty(number);
        let flushed = self.random.below(dirty.len() + 1);
        for (at, channel) in dirty.into_iter().enumerate() {
            self.channels.get_mut(channel).is_dirty = false;
            if at < flushed {
                self.flush_channel(channel);
            }
        }
        for other in 0..self.processes.len() {
            let other = u32::try_from(other).expect("few processes");
            if let Some(channel) = self.channels.find(number, other) {
                let channel = self.channels.get_mut(channel);
                let lost: Vec<Item> = channel.queue.drain(channel.sent..).collect();
                Oracle::on_lost(&lost);
            }
            if let Some(channel) = self.channels.find(other, number) {
                let channel = self.channels.get_mut(channel);
                Oracle::on_lost(&channel.queue);
                channel.queue.clear();
                channel.sent = 0;
            }
        }
        self.note_death(number);
        let process = self.process_mut(number);
        process.life = Life::Ended;
        process.frames.clear();
        process.kept.clear();
        process.dropped.clear();
        process.instance = None;
        process.core = WorkerCore::new(process.id);
        let channel = self.channels.number(number, 0);
        self.channels.get_mut(channel).queue.push_back(Item::End);
        self.channels.get_mut(channel).sent += 1;
        self.list(channel);
    }

    /// The node ends a process.
    fn leave(&mut self, number: u32) {
        if self.random.chance(3, 4) {
            self.flush(number);
        }
        self.kill(number, "leaves");
    }

    fn resume(&mut self, number: u32) {
        if !self.process(number).is_paused {
            return;
        }
        self.process_mut(number).is_paused = false;
        self.trace.say(|| format!("{number} goes on"));
        for other in 0..self.processes.len() {
            let other = u32::try_from(other).expect("few processes");
            if let Some(channel) = self.channels.find(other, number) {
                self.list(channel);
            }
        }
        self.look_at_timer(number);
        self.touch(number);
    }

    fn end_faults(&mut self) {
        for number in 0..self.channels.len() {
            let number = u32::try_from(number).expect("few channels");
            self.channels.get_mut(number).is_stalled = false;
            self.list(number);
        }
        for number in 1..self.processes.len() {
            self.resume(u32::try_from(number).expect("few processes"));
        }
    }

    /// The program is over: what processes kept for themselves goes.
    fn sweep(&mut self) {
        for number in 1..self.processes.len() {
            let number = u32::try_from(number).expect("few processes");
            if !self.process(number).is_running() {
                continue;
            }
            let process = self.process_mut(number);
            let mut kept = std::mem::take(&mut process.kept);
            if let Some(instance) = &mut process.instance {
                kept.append(&mut instance.kept);
            }
            kept.into_iter().for_each(|reference| process.release(reference));
            self.with_core(number, |_, _| ());
            self.look_at_timer(number);
            self.touch(number);
        }
    }

    fn trim(&mut self) {
        for number in 1..self.processes.len() {
            let number = u32::try_from(number).expect("few processes");
            if self.process(number).is_running() {
                self.send(0, number, Item::Message(Box::new(TrimBlocks {}.into())));
            }
        }
    }

    fn give_cache_back(&mut self, number: u32) {
        let offsets = std::mem::take(&mut self.process_mut(number).cache);
        if !offsets.is_empty() {
            self.send(number, 0, Item::Message(Box::new(FreeBlocks { offsets }.into())));
        }
        self.touch(number);
    }

    /// A worker that is gone gave this process blocks that it knows nothing of.
    fn disown_unknown(&mut self, number: u32, question: GivenBlocks) {
        let GivenBlocks { giver, mut offsets } = question;
        let process = self.process(number);
        offsets.retain(|block| !process.cache.contains(block) && !process.written.contains(block));
        if !offsets.is_empty() {
            hit("a block was given to a process that never heard of it");
            self.send(number, 0, Item::Message(Box::new(UnknownBlocks { giver, offsets }.into())));
        }
    }

    /// The contents of blocks are lost.
    pub fn lose(&mut self, blocks: &[u64]) {
        self.events += 1;
        self.node.lose_blocks(blocks, &mut self.node_out);
        self.list_node();
    }

    /// Where the run stands, for people.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut lines = vec![format!(
            "{:?} after {} steps at {} ms; node quiet: {}",
            self.phase,
            self.steps,
            self.time / 1_000_000,
            self.node.is_quiet()
        )];
        for process in self.processes.iter().filter(|process| process.is_running()) {
            let number = Self::number(process.id);
            let frames: Vec<String> = process.frames.iter().map(crate::program::Frame::describe).collect();
            lines.push(format!(
                "  {number}: {} pending, {} records, {} leases, {} queued, frames {frames:?}",
                process.core.pending_tasks(),
                process.core.ownership().len(),
                process.core.leases_held(),
                process.core.execution().queued()
            ));
            let question = Inspect { request: 0, about: about::TASKS, rows: 12, events: 0 };
            for task in process.core.report(&question).tasks {
                let (label, state, missing) = (task.label, task.state, task.missing);
                let actor = label.actor;
                lines.push(format!("    {:?} of {actor:?} in state {state}, misses {missing:?}", task.task));
            }
        }
        for channel in self.channels.iter().filter(|channel| !channel.queue.is_empty()) {
            lines.push(format!(
                "  {} -> {}: {} waiting, {} sent, connected {}, open {}",
                name(channel.from),
                name(channel.to),
                channel.queue.len(),
                channel.sent,
                channel.is_connected,
                channel.is_open
            ));
        }
        lines.join("\n")
    }
}

fn into_message(item: Item) -> Message {
    match item {
        Item::Message(message) => *message,
        Item::Push(spec, dependencies, gpus) => {
            weft_wire::message::Push { spec: (*spec).clone(), dependencies, gpus }.into()
        }
        Item::End => unreachable!("only the node reads it"),
    }
}

fn name(number: u32) -> String {
    if number == 0 { "node".to_owned() } else { number.to_string() }
}

fn brief(message: &Message) -> String {
    let mut text = format!("{message:?}");
    if text.len() > 300 {
        let end = (0..=300).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.push_str("...");
    }
    text
}
