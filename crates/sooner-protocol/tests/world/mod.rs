//! A node, two callers and one actor, made of the cores; messages on their way; processes that die.
//!
//! What a process says waits in it until it is flushed, and is lost when the process dies before. What was
//! flushed arrives, also after its death, and before its death is known.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use sooner_protocol::engine::Solo;
use sooner_protocol::node::{NodeAction, NodeActions};
use sooner_protocol::time::Instant;
use sooner_protocol::worker::action::{Action, Actions, Peer};
use sooner_protocol::worker::execution::Incoming;
use sooner_protocol::worker::ownership::Slot;
use sooner_protocol::worker::{ActorDemand, WorkerCore};
use sooner_wire::message::{
    ActorCreation, Connect, Define, Failure, FailureCode, FreeBlocks, GivenBlocks, Location, Message,
    MethodCall, Outcome, Push, Return, Target, TaskKind, TaskSpec, UnknownBlocks,
};
use sooner_wire::{
    ActorId, Blob, BlockId, FunctionId, Name, ObjectId, ResourceSet, Started, TaskId, WorkerId,
};

const STEPS_MAX: usize = 200_000;
/// Nanoseconds per step.
const STEP_NANOS: u64 = 5_000_000;

/// What a run may do. One step in so many is a kill or a cancellation; zero for never.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub calls: usize,
    pub every: u32,
    pub kill_one_in: u64,
    pub cancel_one_in: u64,
    /// Of each call, for the case that its process ends while it runs.
    pub retries: i32,
}

/// What happened, to be sure that a plan reaches what it is for.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Seen {
    pub kills: usize,
    pub checkpoints: usize,
    pub restored: usize,
    pub replayed: usize,
    pub cancelled: usize,
    pub given_up: usize,
    pub killed_before_sending: usize,
    pub killed_in_replay: usize,
}

impl Seen {
    pub fn add(&mut self, other: &Self) {
        self.kills += other.kills;
        self.checkpoints += other.checkpoints;
        self.restored += other.restored;
        self.replayed += other.replayed;
        self.cancelled += other.cancelled;
        self.given_up += other.given_up;
        self.killed_before_sending += other.killed_before_sending;
        self.killed_in_replay += other.killed_in_replay;
    }
}

struct Process {
    core: WorkerCore,
    numbers: u64,
    unsent: Vec<(Option<WorkerId>, Message)>,
    actor: Instance,
}

/// The actor in its process: the calls that changed it, and the references it holds.
#[derive(Default)]
struct Instance {
    log: Vec<TaskId>,
    held: Vec<(ObjectId, Arc<Slot>)>,
    running: Option<Incoming>,
    last_started: Option<Started>,
    is_constructed: bool,
    is_due: bool,
}

struct Call {
    task: TaskId,
    slot: Arc<Slot>,
    is_read: bool,
    is_cancelled: bool,
    /// Calls that had been answered when this one was made.
    answered: Vec<TaskId>,
}

pub struct World {
    random: u64,
    plan: Plan,
    time: u64,
    node: Solo,
    processes: BTreeMap<WorkerId, Process>,
    channels: BTreeMap<(Option<WorkerId>, Option<WorkerId>), VecDeque<Message>>,
    starting: Vec<WorkerId>,
    /// Processes that have died without the node knowing, and what they began last.
    dying: BTreeMap<WorkerId, Option<Started>>,
    dead: BTreeSet<WorkerId>,
    callers: [WorkerId; 2],
    actor: ActorId,
    calls: Vec<Call>,
    blocks: BTreeMap<u64, Vec<u8>>,
    next_block: u64,
    executed: BTreeMap<TaskId, usize>,
    seen: Seen,
}

impl World {
    pub fn new(seed: u64, plan: Plan) -> Self {
        let mut node = Solo::new(ResourceSet::from_amounts([("CPU".to_owned(), 4.0)]), 1000, 1);
        let callers = [node.new_worker_id(), node.new_worker_id()];
        let mut processes = BTreeMap::new();
        for caller in callers {
            node.on_connected(caller, 1, Instant(0));
            let mut core = WorkerCore::new(caller);
            core.define(define());
            processes.insert(caller, Process::new(core));
        }
        let mut world = Self {
            random: seed,
            plan,
            time: 1,
            node,
            processes,
            channels: BTreeMap::new(),
            starting: Vec::new(),
            dying: BTreeMap::new(),
            dead: BTreeSet::new(),
            callers,
            actor: TaskId { owner: callers[0], number: 1 },
            calls: Vec::new(),
            blocks: BTreeMap::new(),
            next_block: 0,
            executed: BTreeMap::new(),
            seen: Seen::default(),
        };
        world.create();
        world
    }

    /// The first caller creates the actor and lends its handle to the second.
    fn create(&mut self) {
        let [owner, borrower] = self.callers;
        let (actor, every) = (self.actor, self.plan.every);
        let creation = ActorCreation {
            concurrency: 1,
            checkpoint_every: Some(every),
            ..ActorCreation::new(FunctionId(1))
        };
        let spec = TaskSpec::of(actor, Target::Class(creation), Name::from("Log"), Blob::default());
        let demand = ActorDemand {
            placement: ResourceSet::default(),
            lifetime: ResourceSet::default(),
            restarts: -1,
            detached: false,
        };
        self.processes.get_mut(&owner).expect("lives").numbers = 1;
        let slot = Arc::new(Slot::default());
        slot.acquire();
        self.with_core(owner, |core, out| {
            core.create_actor(Arc::new(spec), slot, demand, out);
            core.ownership_mut().hand_over(actor.object(0), borrower, out);
        });
        self.flush(owner);
        self.deliver();
        self.with_core(borrower, |core, _| core.ownership_mut().received(actor.object(0)).acquire());
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        if of.is_empty() {
            return None;
        }
        let at = self.below(of.len() as u64);
        Some(of[usize::try_from(at).expect("small")])
    }

    pub fn run(mut self) -> Seen {
        let mut quiet = 0;
        for _ in 0..STEPS_MAX {
            self.time += STEP_NANOS;
            let is_open = self.calls.len() < self.plan.calls;
            match self.below(8) {
                0 if is_open => self.call(),
                1 => self.act(),
                2 => self.flush_one(),
                3 => self.start(),
                4 if is_open => self.fail(),
                5 => self.notice_a_death(),
                _ => self.deliver(),
            }
            self.node.check();
            self.processes.values().for_each(|process| process.core.check());
            quiet = if !is_open && self.is_quiet() { quiet + 1 } else { 0 };
            if quiet > 500 {
                self.check_calls();
                return self.end();
            }
        }
        panic!("I1: not everything has finished: {}", self.describe());
    }

    fn describe(&self) -> String {
        let open = self.calls.iter().filter(|call| !call.slot.has_outcome()).count();
        format!("{open} calls open, {} processes, {:?}", self.processes.len(), self.seen)
    }

    fn is_quiet(&self) -> bool {
        self.calls.iter().all(|call| call.slot.has_outcome())
            && self.channels.values().all(VecDeque::is_empty)
            && self.processes.values().all(|p| p.unsent.is_empty() && !p.actor.is_busy())
            && self.starting.is_empty()
            && self.dying.is_empty()
    }

    // --- the callers ---

    fn call(&mut self) {
        let caller = self.callers[usize::try_from(self.below(2)).expect("small")];
        let is_read = self.below(5) == 0;
        let answered = self.calls.iter().filter(|call| call.changed()).map(|call| call.task).collect();
        let number = self.number_at(caller);
        let task = TaskId { owner: caller, number };
        let call = MethodCall { kept: Some(!is_read), ..MethodCall::new(self.actor) };
        let name = Name::from(if is_read { "read" } else { "add" });
        let mut spec = TaskSpec {
            retries: self.plan.retries,
            ..TaskSpec::of(task, Target::Method(call), name, Blob::default())
        };
        // The caller drops its own handle at once: the object lives by the call, the actor and its
        // checkpoints.
        let put = (!is_read && self.below(3) == 0).then(|| self.put_at(caller));
        spec.references = put.iter().map(|(id, _)| *id).collect();
        let slot = Arc::new(Slot::default());
        slot.acquire();
        self.calls.push(Call { task, slot: slot.clone(), is_read, is_cancelled: false, answered });
        self.with_core(caller, |core, out| core.submit(Arc::new(spec), [slot], None, out));
        self.drop_handles(caller, put);
    }

    fn number_at(&mut self, who: WorkerId) -> u64 {
        let process = self.processes.get_mut(&who).expect("lives");
        process.numbers += 1;
        process.numbers
    }

    fn put_at(&mut self, who: WorkerId) -> (ObjectId, Arc<Slot>) {
        let id = TaskId { owner: who, number: self.number_at(who) }.object(0);
        let slot = Arc::new(Slot::with_outcome(Outcome::Inline(Blob::from(&b"put"[..]))));
        slot.acquire();
        self.with_core(who, |core, _| core.ownership_mut().own(id, slot.clone()));
        (id, slot)
    }

    fn drop_handles(&mut self, who: WorkerId, handles: impl IntoIterator<Item = (ObjectId, Arc<Slot>)>) {
        for (id, slot) in handles {
            if slot.release() {
                self.with_core(who, |core, out| core.on_handles_dropped(&[id], out));
            }
        }
    }

    // --- the actor ---

    fn actor_process(&self) -> Option<WorkerId> {
        let is_worker = |id: &WorkerId| !self.callers.contains(id);
        let actor = self.processes.iter().find(|(_, process)| process.actor.is_constructed);
        actor.map(|(id, _)| *id).or_else(|| self.processes.keys().copied().find(is_worker))
    }

    /// One step of the actor's process: it begins a call, ends one, or takes a checkpoint.
    fn act(&mut self) {
        let Some(who) = self.actor_process() else { return };
        let process = self.processes.get_mut(&who).expect("lives");
        if process.actor.is_due {
            return self.take_checkpoint(who);
        }
        match process.actor.running.take() {
            Some(incoming) => self.end_call(who, &incoming),
            None => {
                let Some(next) = self.with_core(who, |core, _| core.next_execution()) else { return };
                let actor = &mut self.processes.get_mut(&who).expect("lives").actor;
                actor.last_started = Some(Started { task: next.push.spec.task, in_actor: true });
                actor.running = Some(next);
            }
        }
    }

    fn end_call(&mut self, who: WorkerId, incoming: &Incoming) {
        let spec = &incoming.push.spec;
        let task = spec.task;
        if spec.kind() == TaskKind::Creation {
            return self.construct(who);
        }
        let mut value = Vec::new();
        let process = self.processes.get_mut(&who).expect("lives");
        if spec.name.as_str() == "add" {
            process.actor.log.push(task);
            let count = self.executed.entry(task).or_default();
            *count += 1;
            self.seen.replayed += usize::from(*count > 1);
            let of_caller = process.actor.log.iter().filter(|call| call.owner == task.owner).count();
            value.push(u8::try_from(of_caller).expect("few calls"));
        } else {
            process.actor.log.iter().for_each(|call| value.extend(to_bytes(*call)));
        }
        let before = if incoming.references.is_empty() {
            Vec::new()
        } else {
            incoming.references.iter().for_each(|(_, slot)| slot.acquire());
            std::mem::replace(&mut process.actor.held, incoming.references.clone())
        };
        let returned = self.make_value(who, value);
        self.with_core(who, |core, out| core.on_finished(task, vec![returned], 1000, false, out));
        self.drop_handles(who, before);
        self.processes.get_mut(&who).expect("lives").actor.is_due =
            self.processes[&who].core.checkpoint_is_due();
    }

    /// A value: small, or in a block.
    fn make_value(&mut self, who: WorkerId, bytes: Vec<u8>) -> Return {
        if self.below(2) == 0 {
            return Return { outcome: Outcome::Inline(Blob::from(bytes)), contained: Vec::new() };
        }
        self.next_block += 4096;
        let location = Location { offset: self.next_block, length: bytes.len() as u64 };
        self.blocks.insert(location.offset, bytes);
        self.node.on_allocated(BlockId(location.offset), who);
        Return { outcome: Outcome::Stored(location), contained: Vec::new() }
    }

    fn read(&self, outcome: &Outcome) -> Vec<u8> {
        match outcome {
            Outcome::Inline(blob) => blob.as_slice().to_vec(),
            Outcome::Stored(location) => {
                self.blocks.get(&location.offset).expect("I5: a block is there as long as it is read").clone()
            }
            Outcome::Failed(failure) => panic!("no value: {failure:?}"),
            Outcome::Remote(remote) => panic!("there is one node, and not {:?}", remote.node),
        }
    }

    fn construct(&mut self, who: WorkerId) {
        let restored = self.with_core(who, |core, _| core.take_restored());
        if let Some(restored) = restored {
            self.seen.restored += 1;
            let log = self.read(&restored.outcome).chunks(16).map(from_bytes).collect();
            restored.contained.iter().for_each(|(_, slot)| slot.acquire());
            let actor = &mut self.processes.get_mut(&who).expect("lives").actor;
            (actor.log, actor.held) = (log, restored.contained.clone());
            self.with_core(who, |core, out| core.on_restored(&restored, out));
        }
        self.processes.get_mut(&who).expect("lives").actor.is_constructed = true;
        let actor = self.actor;
        self.with_core(who, |core, out| core.on_constructed(actor, None, out));
    }

    /// Either everything leaves first, or, in another step, the checkpoint is made.
    fn take_checkpoint(&mut self, who: WorkerId) {
        if !self.processes[&who].unsent.is_empty() {
            return self.flush(who);
        }
        if self.below(20) == 0 {
            self.processes.get_mut(&who).expect("lives").actor.is_due = false;
            return self.with_core(who, |core, _| core.postpone_checkpoint());
        }
        self.seen.checkpoints += 1;
        let bytes = self.processes[&who].actor.log.iter().flat_map(|call| to_bytes(*call)).collect();
        let mut state = self.make_value(who, bytes);
        state.contained = self.processes[&who].actor.held.iter().map(|(id, _)| *id).collect();
        self.processes.get_mut(&who).expect("lives").actor.is_due = false;
        let actor = self.actor;
        self.with_core(who, |core, out| core.on_checkpoint(actor, state, out));
    }

    // --- messages ---

    fn with_core<R>(&mut self, who: WorkerId, work: impl FnOnce(&mut WorkerCore, &mut Actions) -> R) -> R {
        let mut out = Actions::new();
        let process = self.processes.get_mut(&who).expect("only living processes act");
        let result = work(&mut process.core, &mut out);
        for action in out {
            match action {
                Action::Send { to: Peer::Node, message } => process.unsent.push((None, *message)),
                Action::Send { to: Peer::Worker(to), message } => process.unsent.push((Some(to), *message)),
                Action::Push { worker, spec, dependencies, gpus } => {
                    let push = Push { spec: Box::new((*spec).clone()), dependencies, gpus };
                    process.unsent.push((Some(worker), push.into()));
                }
                Action::FreeBlock(location) => {
                    process.unsent.push((None, FreeBlocks { places: vec![location.place()] }.into()));
                }
                Action::Ready(_) | Action::Interrupt { .. } | Action::Warn(_) => {}
            }
        }
        result
    }

    /// What one process has to say to one receiver leaves.
    fn flush_one(&mut self) {
        let waiting: Vec<WorkerId> =
            self.processes.iter().filter(|(_, p)| !p.unsent.is_empty()).map(|(id, _)| *id).collect();
        let Some(who) = self.pick(&waiting) else { return };
        let receivers: Vec<Option<WorkerId>> =
            self.processes[&who].unsent.iter().map(|(to, _)| *to).collect();
        let to = self.pick(&receivers).expect("not empty");
        // A block is given away before the reply that names it leaves.
        for to in [None, to] {
            let unsent = std::mem::take(&mut self.processes.get_mut(&who).expect("lives").unsent);
            for (receiver, message) in unsent {
                if receiver == to {
                    self.post(Some(who), to, message);
                } else {
                    self.processes.get_mut(&who).expect("lives").unsent.push((receiver, message));
                }
            }
        }
    }

    fn flush(&mut self, who: WorkerId) {
        for (to, message) in std::mem::take(&mut self.processes.get_mut(&who).expect("lives").unsent) {
            self.post(Some(who), to, message);
        }
    }

    fn post(&mut self, from: Option<WorkerId>, to: Option<WorkerId>, message: Message) {
        if let Some(worker) = to.filter(|to| self.dead.contains(to)) {
            // The node answers the question for a connection.
            return self.channels.entry((from, None)).or_default().push_back(Connect { worker }.into());
        }
        self.channels.entry((from, to)).or_default().push_back(message);
    }

    fn deliver(&mut self) {
        let open: Vec<_> = self.channels.iter().filter(|(_, q)| !q.is_empty()).map(|(k, _)| *k).collect();
        let Some((from, to)) = self.pick(&open) else { return };
        let message = self.channels.get_mut(&(from, to)).and_then(VecDeque::pop_front).expect("listed");
        match (from, to) {
            (Some(from), None) => self.with_node(|node, now, out| {
                node.on_message(from, message, now, out);
            }),
            (from, Some(to)) => self.deliver_to(from, to, message),
            (None, None) => unreachable!("the node does not talk to itself"),
        }
    }

    fn deliver_to(&mut self, from: Option<WorkerId>, to: WorkerId, message: Message) {
        if !self.processes.contains_key(&to) {
            return;
        }
        let now = Instant(self.time);
        if let Message::WorkerDead(gone) = &message {
            // What it sent is read before its end is believed.
            let dead = gone.worker;
            while let Some(early) =
                self.channels.get_mut(&(Some(dead), Some(to))).and_then(VecDeque::pop_front)
            {
                self.with_core(to, |core, out| core.on_message(Peer::Worker(dead), early, now, out));
            }
        }
        if matches!(message, Message::ExitActor(_) | Message::Shutdown(_)) {
            return self.die(to);
        }
        let peer = from.map_or(Peer::Node, Peer::Worker);
        let left = self.with_core(to, |core, out| core.on_message(peer, message, now, out));
        match left {
            Some(Message::EndIdle(_)) => self.die(to),
            Some(Message::GivenBlocks(GivenBlocks { giver, places })) => {
                let answer = UnknownBlocks { giver, places };
                self.processes.get_mut(&to).expect("lives").unsent.push((None, answer.into()));
            }
            Some(Message::ReadersOf(question)) => {
                self.with_core(to, |core, out| core.on_readers_of(question, |_| false, out));
            }
            _ => {}
        }
    }

    fn with_node(&mut self, work: impl FnOnce(&mut Solo, Instant, &mut NodeActions)) {
        let now = Instant(self.time);
        let mut out = NodeActions::new();
        work(&mut self.node, now, &mut out);
        self.node.after_events(now, &mut out);
        for action in out {
            match action {
                NodeAction::Send(to, message) => self.post(None, Some(to), *message),
                NodeAction::StartWorker(worker) => self.starting.push(worker),
                NodeAction::KillWorker(worker) => self.die(worker),
                NodeAction::FreeBlock(block) => {
                    assert!(self.blocks.remove(&block.offset()).is_some(), "a block is freed once");
                }
                NodeAction::Introduce(_, _) | NodeAction::Warn(_) | NodeAction::LimitMemory(..) => {}
                NodeAction::Control(_)
                | NodeAction::BeginJob(..)
                | NodeAction::FindNodes(_)
                | NodeAction::JobLeaves(_) => {
                    unreachable!("both cores are in this node")
                }
                NodeAction::AllocateFor { .. }
                | NodeAction::Fetch(_)
                | NodeAction::StopFetching { .. }
                | NodeAction::Spill { .. }
                | NodeAction::DropSpilled(_)
                | NodeAction::Route { .. }
                | NodeAction::GiveUp(_)
                | NodeAction::Dial { .. } => unreachable!("there is one node"),
            }
        }
    }

    // --- processes ---

    fn start(&mut self) {
        // A process that takes over may have to wait for its time.
        self.with_node(|_, _, _| ());
        let Some(worker) = self.starting.pop() else { return };
        self.processes.insert(worker, Process::new(WorkerCore::new(worker)));
        self.with_node(|node, now, _| node.on_connected(worker, 2, now));
    }

    fn fail(&mut self) {
        if self.plan.cancel_one_in > 0 && self.below(self.plan.cancel_one_in) == 0 {
            self.cancel();
        }
        // One step in eight comes here.
        if self.plan.kill_one_in == 0 || self.below(self.plan.kill_one_in.div_ceil(8)) > 0 {
            return;
        }
        let Some(who) = self.actor_process() else { return };
        self.seen.kills += 1;
        let process = &self.processes[&who];
        let says_checkpoint = |(_, message): &(_, Message)| matches!(message, Message::Checkpoint(_));
        self.seen.killed_before_sending +=
            usize::from(process.actor.is_due || process.unsent.iter().any(says_checkpoint));
        let is_behind = self.executed.keys().any(|call| !process.actor.log.contains(call));
        self.seen.killed_in_replay += usize::from(is_behind);
        self.die(who);
    }

    fn cancel(&mut self) {
        let open: Vec<usize> =
            (0..self.calls.len()).filter(|at| !self.calls[*at].slot.has_outcome()).collect();
        let Some(at) = self.pick(&open) else { return };
        self.calls[at].is_cancelled = true;
        let task = self.calls[at].task;
        self.with_core(task.owner, |core, out| core.cancel(task, false, false, out));
    }

    fn die(&mut self, who: WorkerId) {
        if let Some(process) = self.processes.remove(&who) {
            self.dying.insert(who, process.actor.last_started);
        }
    }

    fn notice_a_death(&mut self) {
        let Some((who, last_started)) = self.dying.first_key_value().map(|(who, last)| (*who, *last)) else {
            return;
        };
        while let Some(message) = self.channels.get_mut(&(Some(who), None)).and_then(VecDeque::pop_front) {
            self.with_node(|node, now, out| {
                node.on_message(who, message, now, out);
            });
        }
        self.dying.remove(&who);
        self.dead.insert(who);
        self.with_node(|node, _, out| node.on_dead(who, "was killed", last_started, out));
    }

    // --- the oracle ---

    /// Checks every result and the final state.
    fn check_calls(&mut self) {
        let who = self.actor_process().expect("it restarts for ever");
        let log = self.processes[&who].actor.log.clone();
        for caller in self.callers {
            let mut expected = Vec::new();
            for call in self.calls.iter().filter(|call| call.task.owner == caller && !call.is_read) {
                let times = log.iter().filter(|task| **task == call.task).count();
                let outcome = call.slot.outcome().expect("finished");
                if let Outcome::Failed(failure) = &*outcome {
                    let is_given_up = failure.code == FailureCode::ActorUnavailable;
                    assert!(self.may_fail(call, failure), "{failure:?}");
                    assert!(times <= usize::from(!is_given_up), "I8: {:?} is there {times} times", call.task);
                    self.seen.given_up += usize::from(is_given_up);
                    self.seen.cancelled += usize::from(!is_given_up);
                } else {
                    assert_eq!(times, 1, "I8: {:?} is in the state once", call.task);
                }
                expected.extend((times == 1).then_some(call.task));
                if matches!(*outcome, Outcome::Inline(_) | Outcome::Stored(_)) && self.plan.cancel_one_in == 0
                {
                    assert_eq!(self.read(&outcome), [u8::try_from(expected.len()).expect("few")], "I2");
                }
            }
            let of_caller: Vec<TaskId> = log.iter().copied().filter(|task| task.owner == caller).collect();
            assert_eq!(of_caller, expected, "I8: in the order of the caller");
        }
        self.check_reads();
        for (id, _) in &self.processes[&who].actor.held {
            assert!(self.processes[&id.owner()].core.ownership().record(*id).is_some(), "I5: {id:?} is held");
        }
    }

    fn may_fail(&self, call: &Call, failure: &Failure) -> bool {
        match failure.code {
            FailureCode::Cancelled => call.is_cancelled,
            FailureCode::ActorUnavailable => self.plan.retries >= 0,
            _ => false,
        }
    }

    fn check_reads(&self) {
        for call in self.calls.iter().filter(|call| call.is_read) {
            let outcome = call.slot.outcome().expect("finished");
            if let Outcome::Failed(failure) = &*outcome {
                assert!(self.may_fail(call, failure), "{failure:?}");
                continue;
            }
            let seen: BTreeSet<TaskId> = self.read(&outcome).chunks(16).map(from_bytes).collect();
            for before in &call.answered {
                assert!(seen.contains(before), "I7: {:?} does not see {before:?}", call.task);
            }
        }
    }

    /// Everything is let go of; nothing may be left.
    fn end(mut self) -> Seen {
        for call in std::mem::take(&mut self.calls) {
            self.drop_handles(call.task.owner, [(call.task.object(0), call.slot)]);
        }
        for caller in self.callers {
            let handle = self.actor.object(0);
            let slot = self.processes[&caller].core.ownership().record(handle).expect("held").slot.clone();
            self.drop_handles(caller, [(handle, slot)]);
        }
        for _ in 0..20_000 {
            self.time += STEP_NANOS;
            match self.below(5) {
                0 => self.flush_one(),
                1 => self.act(),
                2 => self.start(),
                3 => self.notice_a_death(),
                _ => self.deliver(),
            }
        }
        for caller in self.callers {
            let core = &self.processes[&caller].core;
            assert!(core.ownership().is_empty(), "{caller:?} holds {:?}", core.ownership());
            assert_eq!(core.pending_tasks(), 0);
        }
        assert!(self.blocks.is_empty(), "no block is left: {:?}", self.blocks.keys());
        assert!(self.node.is_quiet());
        self.seen
    }
}

impl Process {
    fn new(core: WorkerCore) -> Self {
        Self { core, numbers: 0, unsent: Vec::new(), actor: Instance::default() }
    }
}

impl Instance {
    fn is_busy(&self) -> bool {
        self.running.is_some() || self.is_due
    }
}

impl Call {
    /// It changed the state, and its caller knows.
    fn changed(&self) -> bool {
        !self.is_read && self.slot.outcome().is_some_and(|outcome| !matches!(*outcome, Outcome::Failed(_)))
    }
}

fn to_bytes(task: TaskId) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&task.owner.0.to_le_bytes());
    bytes[8..].copy_from_slice(&task.number.to_le_bytes());
    bytes
}

fn from_bytes(bytes: &[u8]) -> TaskId {
    let number = |part: &[u8]| u64::from_le_bytes(part.try_into().expect("eight bytes"));
    TaskId { owner: WorkerId(number(&bytes[..8])), number: number(&bytes[8..]) }
}

fn define() -> Define {
    Define {
        function: FunctionId(1),
        name: Name::from("Log"),
        code: Blob::default(),
        references: Vec::new(),
        place: None,
    }
}
