//! The simulated world: cores, the channels between them, and a driver program that a seed writes.
//!
//! The program submits tasks that take earlier results as arguments, put values with references inside, call actors of
//! all kinds, read streams, and drop references at random. The oracle knows what each task may end in. Checked after every step: the
//! invariants of the cores. Checked at the end, when faults have stopped: every task has an outcome (I1); what was not
//! touched by a fault has its value; no record, block, lease or resource is left.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use weft_protocol::action::{Action, Actions, Peer};
use weft_protocol::execution::Incoming;
use weft_protocol::node::{NodeAction, NodeActions, NodeCore};
use weft_protocol::ownership::Slot;
use weft_protocol::time::Instant;
use weft_protocol::worker::WorkerCore;
use weft_wire::message::{
    Define, Failure, FailureCode, FreeBlocks, Location, Message, Outcome, Push, Return, TaskKind, TaskSpec,
};
use weft_wire::{Blob, FunctionId, Name, ObjectId, ResourceSet, TaskId, WorkerId};

use crate::random::Random;

mod actors;
mod readers;

use actors::{SimActor, Starts};
use readers::{Reader, streaming_of};

/// Nanoseconds per step.
const STEP_NANOS: u64 = 100_000;
/// Steps that may pass after the last fault before everything must have finished.
const STEPS_MAX: usize = 400_000;

/// Actors alive at a time.
const ACTORS_MAX: usize = 3;

/// What a run may do.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Tasks the driver submits.
    pub tasks: usize,
    /// CPUs of the node.
    pub cpus: u32,
    /// One step in so many kills a worker; zero for never.
    pub kill_one_in: u64,
    /// One step in so many cancels a task; zero for never.
    pub cancel_one_in: u64,
    /// One step in so many loses a block of shared memory; zero for never.
    pub lose_one_in: u64,
}

struct Process {
    core: WorkerCore,
    numbers: u64,
    /// What runs: one task, or the calls of an actor with groups.
    running: Vec<Running>,
    blocked: bool,
    is_constructed: bool,
    /// The calls of an actor that began here.
    starts: Starts,
}

impl Process {
    fn new(core: WorkerCore) -> Self {
        Self {
            core,
            numbers: 0,
            running: Vec::new(),
            blocked: false,
            is_constructed: false,
            starts: Starts::default(),
        }
    }
}

struct Running {
    incoming: Incoming,
    /// When it ends; zero: it was interrupted.
    end: u64,
    /// Items that it has yielded.
    yielded: u32,
}

struct Handle {
    id: ObjectId,
    slot: Arc<Slot>,
    is_actor: bool,
}

/// See the module.
pub struct World {
    random: Random,
    plan: Plan,
    time: u64,
    node: NodeCore,
    processes: BTreeMap<WorkerId, Process>,
    dead: BTreeSet<WorkerId>,
    /// Messages on their way, per ordered channel. The node is `None`.
    channels: BTreeMap<(Option<WorkerId>, Option<WorkerId>), VecDeque<Message>>,
    starting: Vec<WorkerId>,
    driver: WorkerId,
    handles: Vec<Handle>,
    results: Vec<Arc<Slot>>,
    submitted: usize,
    next_block: u64,
    blocks: BTreeSet<u64>,
    actors: Vec<SimActor>,
    /// The program ended an actor.
    has_killed_actors: bool,
    readers: Vec<Reader>,
    /// A reader left before the end: its task may have been cancelled.
    has_left_streams: bool,
    /// Kills so far.
    pub kills: usize,
    /// Blocks lost so far.
    pub losses: usize,
    faults: bool,
}

impl World {
    /// A world that a seed decides.
    #[must_use]
    pub fn new(seed: u64, plan: Plan) -> Self {
        let cpus = ResourceSet::from_amounts([("CPU".to_owned(), f64::from(plan.cpus))]);
        let mut node = NodeCore::new(cpus, 1000, plan.cpus as usize);
        let driver = node.new_worker_id();
        node.on_connected(driver, 1, Instant(0));
        let mut core = WorkerCore::new(driver);
        core.define(Define {
            function: FunctionId(1),
            name: Name::from("f"),
            code: Blob::default(),
            references: Vec::new(),
            place: None,
        });
        let process = Process::new(core);
        Self {
            random: Random::new(seed),
            plan,
            time: 1,
            node,
            processes: BTreeMap::from([(driver, process)]),
            dead: BTreeSet::new(),
            channels: BTreeMap::new(),
            starting: Vec::new(),
            driver,
            handles: Vec::new(),
            results: Vec::new(),
            submitted: 0,
            next_block: 0,
            blocks: BTreeSet::new(),
            actors: Vec::new(),
            has_killed_actors: false,
            readers: Vec::new(),
            has_left_streams: false,
            kills: 0,
            losses: 0,
            faults: true,
        }
    }

    /// Runs the program to its end: first with faults, then without.
    ///
    /// # Panics
    /// When an invariant does not hold.
    pub fn run(&mut self) {
        let mut quiet = 0;
        for step in 0..STEPS_MAX {
            self.step();
            self.faults = self.submitted < self.plan.tasks;
            quiet = if self.is_idle() { quiet + 1 } else { 0 };
            if quiet > 2000 {
                return self.check_end();
            }
            assert!(step + 1 < STEPS_MAX, "I1: not everything has finished: {}", self.describe());
        }
    }

    fn describe(&self) -> String {
        let open = self.results.iter().filter(|slot| slot.outcome().is_none()).count();
        let waiting: usize = self.channels.values().map(VecDeque::len).sum();
        format!(
            "{:?} {open} results open, {waiting} messages on their way, {} tasks pending, {} processes, quiet node: {}",
            self.processes[&self.driver].core,
            self.processes[&self.driver].core.pending_tasks(),
            self.processes.len(),
            self.node.is_quiet()
        )
    }

    fn is_idle(&self) -> bool {
        self.submitted >= self.plan.tasks
            && self.handles.is_empty()
            && self.readers.is_empty()
            && self.channels.values().all(VecDeque::is_empty)
            && self.processes.values().all(|process| process.running.is_empty())
            && self.starting.is_empty()
    }

    fn step(&mut self) {
        self.time += STEP_NANOS;
        match self.random.below(11) {
            0 if self.submitted < self.plan.tasks => self.submit(),
            1 => self.drop_a_handle(),
            2 => self.run_a_task(),
            3 => self.start_a_worker(),
            4 => self.tick(),
            5 => self.fault(),
            6 => self.read_an_item(),
            _ => self.deliver(),
        }
        self.node.check();
        for process in self.processes.values() {
            process.core.check();
        }
    }

    fn now(&self) -> Instant {
        Instant(self.time)
    }

    fn submit(&mut self) {
        self.submitted += 1;
        if self.actors.len() < ACTORS_MAX && self.random.chance(1, 8) {
            return self.create_actor();
        }
        let mut dependencies = Vec::new();
        let mut references = Vec::new();
        for handle in self.handles.iter().filter(|handle| !handle.is_actor) {
            if self.random.chance(1, 6) {
                dependencies.push(handle.id);
            } else if self.random.chance(1, 6) {
                references.push(handle.id);
            }
        }
        let calls_actor = !self.actors.is_empty() && self.random.chance(1, 2);
        let actor = calls_actor.then(|| self.random.below(self.actors.len()));
        let process = self.processes.get_mut(&self.driver).expect("the driver lives");
        process.numbers += 1;
        let task = TaskId { owner: self.driver, number: process.numbers };
        let cpu = ResourceSet::from_amounts([("CPU".to_owned(), 1.0)]);
        let kind = match actor {
            Some(at) => TaskKind::Method(self.actors[at].id),
            None => TaskKind::Task(process.core.shape(&cpu)),
        };
        let mut spec = TaskSpec { stream: streaming_of(task), ..spec(task, kind, dependencies, references) };
        if let Some(at) = actor {
            self.actors[at].make_call(&mut spec);
        }
        if spec.stream.is_some() {
            let slot = self.completion_slot(task);
            self.results.push(slot.clone());
            return self.with_core(self.driver, |core, out| core.submit(Arc::new(spec), [slot], None, out));
        }
        let slot = Arc::new(Slot::default());
        slot.acquire();
        self.handles.push(Handle { id: task.object(0), slot: slot.clone(), is_actor: false });
        self.with_core(self.driver, |core, out| core.submit(Arc::new(spec), [slot], None, out));
    }

    fn drop_a_handle(&mut self) {
        let is_late = self.submitted >= self.plan.tasks;
        if self.handles.is_empty() || (!is_late && self.handles.len() < 6) {
            return;
        }
        let at = self.random.below(self.handles.len());
        let handle = &self.handles[at];
        // In the end every outcome is looked at: that of a dropped one may be gone before anybody sees it.
        if is_late && !handle.is_actor && handle.slot.outcome().is_none() {
            return;
        }
        let handle = self.handles.swap_remove(at);
        self.check_outcome(&handle);
        if handle.is_actor {
            self.leave_actor(handle.id.task);
        }
        if handle.slot.release() {
            self.with_core(self.driver, |core, out| core.on_handles_dropped(&[handle.id], out));
        }
    }

    fn with_core<R>(&mut self, who: WorkerId, work: impl FnOnce(&mut WorkerCore, &mut Actions) -> R) -> R {
        let mut out = Actions::new();
        let process = self.processes.get_mut(&who).expect("only living processes act");
        let result = work(&mut process.core, &mut out);
        for action in out {
            self.perform(who, action);
        }
        result
    }

    fn perform(&mut self, who: WorkerId, action: Action) {
        match action {
            Action::Send { to: Peer::Node, message } => self.send(Some(who), None, *message),
            Action::Send { to: Peer::Worker(to), message } => {
                assert_ne!(to, who, "a process does not talk to itself");
                if self.dead.contains(&to) {
                    // The node answers the question for a connection.
                    let connect = weft_wire::message::Connect { worker: to };
                    return self.send(Some(who), None, connect.into());
                }
                self.send(Some(who), Some(to), *message);
            }
            Action::Push { worker, spec, dependencies, gpus } => {
                let push = Push { spec: (*spec).clone(), dependencies, gpus };
                if !self.dead.contains(&worker) {
                    self.send(Some(who), Some(worker), push.into());
                }
            }
            Action::FreeBlock(location) => {
                let free = FreeBlocks { offsets: vec![location.offset] };
                self.send(Some(who), None, free.into());
            }
            Action::Interrupt { task, .. } => {
                let process = self.processes.get_mut(&who).expect("it acts");
                for running in process.running.iter_mut().filter(|r| r.incoming.push.spec.task == task) {
                    running.end = 0;
                }
            }
            Action::Ready(_) | Action::Warn(_) => {}
        }
    }

    fn send(&mut self, from: Option<WorkerId>, to: Option<WorkerId>, message: Message) {
        // Through the wire, so that what is sent can be read.
        let mut bytes = Vec::new();
        message.append(&mut bytes, 0);
        let head = weft_wire::frame::whole_frame(&bytes).expect("fits").expect("whole");
        let body = &bytes[weft_wire::frame::HEAD_BYTES..];
        let message = Message::decode(head.kind, body).expect("what was written can be read");
        self.channels.entry((from, to)).or_default().push_back(message);
    }

    fn with_node(&mut self, work: impl FnOnce(&mut NodeCore, Instant, &mut NodeActions)) {
        let now = self.now();
        let mut out = NodeActions::new();
        work(&mut self.node, now, &mut out);
        self.node.settle(now, &mut out);
        let mut killed = Vec::new();
        for action in out {
            match action {
                NodeAction::Send(to, message) => {
                    if self.processes.contains_key(&to) {
                        self.send(None, Some(to), *message);
                    }
                }
                NodeAction::StartWorker(worker) => self.starting.push(worker),
                NodeAction::KillWorker(worker) => killed.push(worker),
                NodeAction::FreeBlock(block) => {
                    assert!(self.blocks.remove(&block), "a block is freed once");
                }
                NodeAction::Introduce(_, _) | NodeAction::Warn(_) => {}
            }
        }
        // A process ends some time after the signal: what the node said together with it is on its way by then.
        killed.into_iter().for_each(|worker| self.kill(worker));
    }

    fn start_a_worker(&mut self) {
        let Some(worker) = self.starting.pop() else { return };
        let core = WorkerCore::new(worker);
        self.processes.insert(worker, Process::new(core));
        self.with_node(|node, now, _| node.on_connected(worker, 2, now));
    }

    fn deliver(&mut self) {
        let open: Vec<_> =
            self.channels.iter().filter(|(_, queue)| !queue.is_empty()).map(|(k, _)| *k).collect();
        if open.is_empty() {
            return;
        }
        let (from, to) = open[self.random.below(open.len())];
        let queue = self.channels.get_mut(&(from, to)).expect("listed above");
        let message = queue.pop_front().expect("not empty");
        match to {
            None => {
                let from = from.expect("the node does not talk to itself");
                self.with_node(|node, now, out| {
                    node.on_message(from, message, now, out);
                });
            }
            Some(to) => self.deliver_to(from, to, message),
        }
    }

    fn deliver_to(&mut self, from: Option<WorkerId>, to: WorkerId, message: Message) {
        if !self.processes.contains_key(&to) {
            return;
        }
        match &message {
            Message::Shutdown(_) | Message::ExitActor(_) => return self.kill(to),
            Message::WorkerGone(gone) => self.drain(gone.worker, to),
            _ => {}
        }
        let peer = from.map_or(Peer::Node, Peer::Worker);
        let now = self.now();
        self.with_core(to, |core, out| core.on_message(peer, message, now, out));
    }

    /// What a dead process sent before its end is read before its end is believed, as the shell does.
    fn drain(&mut self, dead: WorkerId, to: WorkerId) {
        while let Some(message) = self.channels.get_mut(&(Some(dead), Some(to))).and_then(VecDeque::pop_front)
        {
            let now = self.now();
            self.with_core(to, |core, out| core.on_message(Peer::Worker(dead), message, now, out));
        }
    }

    fn run_a_task(&mut self) {
        let ids: Vec<WorkerId> = self.processes.keys().copied().filter(|id| *id != self.driver).collect();
        if ids.is_empty() {
            return;
        }
        let who = ids[self.random.below(ids.len())];
        let count = self.processes[&who].running.len();
        if count < self.processes[&who].starts.places() && (count == 0 || self.random.chance(1, 2)) {
            return self.start_a_task(who);
        }
        let at = self.random.below(count);
        let running = self.processes.get_mut(&who).expect("listed above").running.swap_remove(at);
        if running.end > self.time {
            self.processes.get_mut(&who).expect("listed above").running.push(running);
            return self.maybe_block(who);
        }
        // A cancelled task ends where it stands; another one yields what it has first.
        let mut running = running;
        if running.end == 0 || self.yield_an_item(who, &running.incoming.push.spec, &mut running.yielded) {
            self.end_task(who, running.incoming);
        } else {
            self.processes.get_mut(&who).expect("it lives").running.push(running);
        }
    }

    fn start_a_task(&mut self, who: WorkerId) {
        let end = self.time + self.random.next_number() % (20 * STEP_NANOS);
        let Some(incoming) = self.with_core(who, |core, _| core.next_execution()) else { return };
        // A call whose result was lost is made again, behind the others.
        let caller = self.processes.get(&incoming.push.spec.task.owner);
        let is_repeated = caller.is_some_and(|caller| caller.core.recovers(incoming.push.spec.task));
        let process = self.processes.get_mut(&who).expect("it lives");
        match incoming.push.spec.kind {
            TaskKind::Creation => {
                process.is_constructed = true;
                process.starts.on_constructor(&incoming.push.spec);
            }
            TaskKind::Method(_) if is_repeated => {}
            TaskKind::Method(_) => {
                assert!(process.is_constructed, "E3: a call runs before the constructor");
                let running = process.running.iter().map(|running| &running.incoming.push.spec);
                process.starts.on_call(&incoming.push.spec, running);
            }
            TaskKind::Task(_) => {}
        }
        process.running.push(Running { incoming, end, yielded: 0 });
    }

    /// A running task may wait in `get` for a while, or take long: what is queued behind it goes back.
    fn maybe_block(&mut self, who: WorkerId) {
        let process = self.processes.get_mut(&who).expect("it lives");
        if process.starts.places() > 1 {
            return;
        }
        if process.blocked || self.random.chance(1, 4) {
            process.blocked = !process.blocked;
            let blocked = process.blocked;
            self.with_core(who, |core, out| core.set_blocked(blocked, out));
        } else if self.random.chance(1, 4) {
            self.with_core(who, |core, out| core.return_queued(out));
        }
    }

    fn end_task(&mut self, who: WorkerId, incoming: Incoming) {
        if self.processes[&who].blocked {
            self.processes.get_mut(&who).expect("it lives").blocked = false;
            self.with_core(who, |core, out| core.set_blocked(false, out));
        }
        let task = incoming.push.spec.task;
        if incoming.push.spec.kind == TaskKind::Creation {
            return self.with_core(who, |core, out| core.on_constructed(task, None, out));
        }
        let is_cancelled = self.processes[&who].core.execution().is_cancelled(task);
        if is_cancelled && incoming.push.spec.stream.is_some() {
            let failure = Failure::new(FailureCode::Cancelled, "cancelled");
            let outcome = Outcome::Failed(Box::new(failure));
            let returns = vec![Return { outcome, contained: Vec::new() }];
            return self.with_core(who, |core, out| core.on_finished(task, returns, 1000, false, out));
        }
        let mut returned = self.make_value(who);
        // A value may contain references: those it was given, and one of its own.
        let kept: Vec<(ObjectId, Arc<Slot>)> = incoming.references.clone();
        for (id, _) in &kept {
            if self.random.chance(1, 2) {
                returned.contained.push(*id);
            }
        }
        let own = match self.random.below(8) {
            0 => Some(self.put_at(who)),
            1 => Some(self.submit_at(who)),
            _ => None,
        };
        returned.contained.extend(own.as_ref().map(|(id, _)| *id));
        // Handles inside the task are alive until its reply is made.
        kept.iter().for_each(|(_, slot)| slot.acquire());
        self.with_core(who, |core, out| core.on_finished(task, vec![returned], 1000, false, out));
        for (id, slot) in kept.into_iter().chain(own) {
            if slot.release() {
                self.with_core(who, |core, out| core.on_handles_dropped(&[id], out));
            }
        }
    }

    /// A value that a process makes: small, or in shared memory.
    fn make_value(&mut self, who: WorkerId) -> Return {
        let mut value = Return { outcome: Outcome::Inline(Blob::from(&b"value"[..])), contained: Vec::new() };
        if self.random.chance(1, 3) {
            let offset = self.next_block;
            self.next_block += 4096;
            self.blocks.insert(offset);
            self.node.on_allocated(offset, who);
            value.outcome = Outcome::Stored(Location { offset, length: 4096 });
        }
        value
    }

    fn put_at(&mut self, who: WorkerId) -> (ObjectId, Arc<Slot>) {
        let process = self.processes.get_mut(&who).expect("it lives");
        process.numbers += 1;
        let id = TaskId { owner: who, number: process.numbers }.object(0);
        let slot = Arc::new(Slot::with_outcome(Outcome::Inline(Blob::from(&b"put"[..]))));
        slot.acquire();
        process.core.ownership_mut().own(id, slot.clone());
        (id, slot)
    }

    /// A task submits another one and returns its reference.
    fn submit_at(&mut self, who: WorkerId) -> (ObjectId, Arc<Slot>) {
        let process = self.processes.get_mut(&who).expect("it lives");
        process.numbers += 1;
        let task = TaskId { owner: who, number: process.numbers };
        process.core.define(Define {
            function: FunctionId(1),
            name: Name::from("f"),
            code: Blob::default(),
            references: Vec::new(),
            place: None,
        });
        let shape = process.core.shape(&ResourceSet::from_amounts([("CPU".to_owned(), 1.0)]));
        let spec = spec(task, TaskKind::Task(shape), Vec::new(), Vec::new());
        let slot = Arc::new(Slot::default());
        slot.acquire();
        let id = task.object(0);
        self.with_core(who, |core, out| core.submit(Arc::new(spec), [slot.clone()], None, out));
        (id, slot)
    }

    fn tick(&mut self) {
        let now = self.now();
        let ids: Vec<WorkerId> = self.processes.keys().copied().collect();
        let who = ids[self.random.below(ids.len())];
        self.with_core(who, |core, out| core.on_timer(now, out));
        self.with_node(|_, _, _| ());
    }

    fn fault(&mut self) {
        if !self.faults {
            return;
        }
        if self.plan.kill_one_in > 0 && self.random.chance(1, self.plan.kill_one_in) {
            let ids: Vec<WorkerId> = self.processes.keys().copied().filter(|id| *id != self.driver).collect();
            if !ids.is_empty() {
                let who = ids[self.random.below(ids.len())];
                self.kills += 1;
                self.kill(who);
            }
        }
        if self.plan.lose_one_in > 0 && self.random.chance(1, self.plan.lose_one_in) {
            let blocks: Vec<u64> = self.blocks.iter().copied().collect();
            if !blocks.is_empty() {
                let block = blocks[self.random.below(blocks.len())];
                self.losses += 1;
                self.with_node(|node, _, out| node.lose_blocks(&[block], out));
            }
        }
        if self.plan.cancel_one_in > 0 && self.random.chance(1, self.plan.cancel_one_in) {
            self.cancel_something();
        }
        if self.plan.kill_one_in > 0 && self.random.chance(1, 4 * self.plan.kill_one_in) {
            self.kill_an_actor();
        }
    }

    /// Cancels a task by one of its references, or a streaming one by its reader.
    fn cancel_something(&mut self) {
        let tasks: Vec<TaskId> = self
            .handles
            .iter()
            .filter(|handle| !handle.is_actor)
            .map(|handle| handle.id.task)
            .chain(self.readers.iter().map(Reader::task))
            .collect();
        if !tasks.is_empty() {
            let task = tasks[self.random.below(tasks.len())];
            self.with_core(self.driver, |core, out| core.cancel(task, false, true, out));
        }
    }

    fn kill(&mut self, who: WorkerId) {
        let Some(process) = self.processes.remove(&who) else { return };
        self.dead.insert(who);
        // The node reads what the process sent before it notices the end.
        while let Some(message) = self.channels.get_mut(&(Some(who), None)).and_then(VecDeque::pop_front) {
            self.with_node(|node, now, out| {
                node.on_message(who, message, now, out);
            });
        }
        let last = process.running.last().map(|running| running.incoming.push.spec.task);
        self.with_node(|node, _, out| node.on_gone(who, "was killed", last, out));
        self.channels.retain(|(_, to), _| *to != Some(who));
    }

    fn check_outcome(&self, handle: &Handle) {
        let outcome = handle.slot.outcome();
        assert!(
            handle.is_actor || self.allows(outcome),
            "a task ended in {outcome:?} with {} kills",
            self.kills
        );
    }

    fn allows(&self, outcome: Option<&Outcome>) -> bool {
        match outcome {
            None | Some(Outcome::Inline(_) | Outcome::Stored(_)) => true,
            Some(Outcome::Failed(failure)) => match failure.code {
                FailureCode::Cancelled => self.plan.cancel_one_in > 0 || self.has_left_streams,
                FailureCode::ActorUnavailable => self.kills > 0,
                FailureCode::WorkerCrashed | FailureCode::OwnerDied => self.kills > 0,
                FailureCode::ObjectLost | FailureCode::ReconstructionFailed => self.losses > 0,
                // The program may drop the actor's handle and have no calls left, or lose it to a fault.
                FailureCode::ActorDied => self.kills > 0 || self.has_killed_actors,
                _ => false,
            },
        }
    }

    /// Everything has an outcome and nothing is left.
    fn check_end(&mut self) {
        for slot in &self.results {
            let outcome = slot.outcome();
            assert!(outcome.is_some(), "I1: a task has no outcome: {}", self.describe());
            assert!(self.allows(outcome), "a task ended in {outcome:?} with {} kills", self.kills);
        }
        let driver = &self.processes[&self.driver].core;
        assert_eq!(driver.pending_tasks(), 0, "no task is pending");
        assert!(driver.ownership().is_empty(), "no record is left: {:?}", driver.ownership());
        assert_eq!(driver.open_streams(), 0, "no stream is open");
        assert_eq!(driver.leases_held(), 0, "no lease is kept");
        assert!(self.node.is_quiet(), "no resource is held");
        for (id, process) in &self.processes {
            assert!(process.core.ownership().is_empty(), "{id:?} holds {:?}", process.core.ownership());
        }
        assert!(self.blocks.is_empty(), "no block is left: {:?}", self.blocks);
    }
}

fn spec(task: TaskId, kind: TaskKind, dependencies: Vec<ObjectId>, references: Vec<ObjectId>) -> TaskSpec {
    TaskSpec {
        dependencies: dependencies.into(),
        references: references.into(),
        retries: 3,
        concurrency: 1,
        ..TaskSpec::new(task, kind, FunctionId(1), Name::from("f"), Blob::default())
    }
}
