//! Two nodes with two processes each: cores, holders and pulls are those of production, the nodes' other work
//! is not there.
//!
//! Messages between two ends stay in order, and nothing else does. A message that crosses nodes is globalised
//! where it leaves and localised where it comes. Blocks are used again as soon as they are free, so that a
//! value that is read where another one lies by now is noticed; every view is checked after every step.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use sooner_protocol::node::objects::{Fetching, Holders, PullAction, Pulls, Serves, StreamEnd};
use sooner_protocol::time::Instant;
use sooner_protocol::worker::WorkerCore;
use sooner_protocol::worker::action::{Action, Actions, Peer};
use sooner_protocol::worker::execution::Incoming;
use sooner_protocol::worker::ownership::Slot;
use sooner_wire::message::{
    BlocksLost, Define, FailureCode, FreeBlocks, LeaseGranted, Location, LostAt, Message, Outcome, Place,
    Priority, Pull, Pulled, Push, Remote, Return, TaskKind, TaskSpec,
};
use sooner_wire::{
    Blob, BlockId, FunctionId, LeaseId, Name, NodeId, ObjectId, ResourceSet, TaskId, WorkerId,
};

const DRIVER: WorkerId = WorkerId((1 << 24) + 1);
const PROCESSES: [WorkerId; 4] =
    [DRIVER, WorkerId((1 << 24) + 2), WorkerId((2 << 24) + 1), WorkerId((2 << 24) + 2)];
const NODES: [NodeId; 2] = [NodeId(1 << 24), NodeId(2 << 24)];
const OPERATIONS: usize = 25;
const STEPS_MAX: usize = 60_000;
const LENGTH: u64 = 1000;
/// What tasks do: return a large or a small value, keep their arguments, pass them to a task of their own, or
/// read the references they were given.
const TASKS: [&str; 5] = ["large", "small", "hold", "nest", "get"];

/// What happened, to be sure that the runs reach what they are for.
#[derive(Debug, Default)]
pub struct Seen {
    copies: usize,
    shared: usize,
    waited: usize,
    cut: usize,
    asked_early: usize,
    not_there: usize,
    lost: usize,
    copies_lost: usize,
    failures: usize,
    at_home: usize,
    waited_at_home: usize,
}

impl Seen {
    pub fn add(&mut self, other: &Self) {
        self.copies += other.copies;
        self.shared += other.shared;
        self.waited += other.waited;
        self.cut += other.cut;
        self.asked_early += other.asked_early;
        self.not_there += other.not_there;
        self.lost += other.lost;
        self.copies_lost += other.copies_lost;
        self.failures += other.failures;
        self.at_home += other.at_home;
        self.waited_at_home += other.waited_at_home;
    }

    pub fn check_without_losses(&self) {
        assert!(self.copies > 100 && self.shared > 10 && self.waited > 10 && self.cut > 10, "{self:?}");
        assert!(self.asked_early > 0 && self.at_home > 10, "{self:?}");
        assert_eq!((self.not_there, self.failures), (0, 0), "nothing is ever lost: {self:?}");
    }

    pub fn check_with_losses(&self) {
        assert!(self.not_there > 10 && self.copies_lost > 10 && self.failures > 10, "{self:?}");
    }
}

struct Process {
    core: WorkerCore,
    numbers: u64,
    handles: Vec<(ObjectId, Arc<Slot>)>,
    /// Arguments that are read on after their tasks, and where.
    views: Vec<(ObjectId, Arc<Slot>, u64)>,
    /// References whose values it wants to read.
    gets: Vec<(ObjectId, Arc<Slot>)>,
    running: Vec<Incoming>,
}

#[derive(Default)]
struct Node {
    holders: Holders,
    pulls: Pulls,
    /// What lies in each block that is not free.
    contents: BTreeMap<u64, Option<ObjectId>>,
    free: Vec<u64>,
    lost: BTreeSet<u64>,
    made: u64,
    allocating: Vec<ObjectId>,
    streams: Vec<Fetching>,
}

pub struct World {
    random: u64,
    /// One step in so many loses a block; zero for never.
    lose_one_in: u64,
    nodes: [Node; 2],
    processes: BTreeMap<WorkerId, Process>,
    /// Nodes stand here under the first id of their processes.
    channels: BTreeMap<(WorkerId, WorkerId), VecDeque<Message>>,
    leases: BTreeSet<(WorkerId, u32, WorkerId)>,
    made_leases: u64,
    operations: usize,
    seen: Seen,
}

impl World {
    pub fn new(seed: u64, lose_one_in: u64) -> Self {
        let mut processes = BTreeMap::new();
        for process in PROCESSES {
            let mut core = WorkerCore::new(process);
            let (function, name) = (FunctionId(1), Name::from("f"));
            let (code, references) = (Blob::default(), Vec::new());
            core.define(Define { function, name, code, references, place: None });
            let (handles, views, gets, running) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
            processes.insert(process, Process { core, numbers: 0, handles, views, gets, running });
        }
        Self {
            random: seed.wrapping_mul(0xd134_2543_de82_ef95),
            lose_one_in,
            nodes: [Node::default(), Node::default()],
            processes,
            channels: BTreeMap::new(),
            leases: BTreeSet::new(),
            made_leases: 0,
            operations: 0,
            seen: Seen::default(),
        }
    }

    pub fn run(mut self) -> Seen {
        let mut quiet = 0;
        for _ in 0..STEPS_MAX {
            let is_open = self.operations < OPERATIONS;
            match self.below(12) {
                0 if is_open => self.operate(),
                0 => self.let_go(),
                1 | 2 => self.work(),
                3 => self.read_on(),
                4 => self.stream(),
                5 => self.allocate_for_a_pull(),
                6 if is_open && self.lose_one_in > 0 && self.below(self.lose_one_in) == 0 => self.lose(),
                _ => self.deliver(),
            }
            self.check();
            quiet = if !is_open && self.is_quiet() { quiet + 1 } else { 0 };
            if quiet > 300 {
                self.check_end();
                return self.seen;
            }
        }
        panic!("I1: not everything has finished: {:?} {:?}", self.seen, self.channels);
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn pick(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(bound as u64)).expect("small")
    }

    // --- the program ---

    fn operate(&mut self) {
        self.operations += 1;
        match self.below(6) {
            0 => self.put(),
            1 => {
                let count = self.processes[&DRIVER].handles.len();
                if count > 0 {
                    let at = self.pick(count);
                    let (object, slot) = self.processes[&DRIVER].handles[at].clone();
                    slot.acquire();
                    self.process(DRIVER).gets.push((object, slot));
                }
            }
            2 => self.let_go_of_one(DRIVER),
            _ => {
                let what = TASKS[self.pick(TASKS.len())];
                let arguments: Vec<ObjectId> =
                    self.processes[&DRIVER].handles.iter().map(|(o, _)| *o).collect();
                let chosen = arguments.into_iter().filter(|_| self.below(3) == 0).collect();
                let handle = self.submit(DRIVER, what, chosen, None);
                self.process(DRIVER).handles.push(handle);
            }
        }
    }

    fn put(&mut self) {
        let object = self.next_task(DRIVER).object(0);
        let reuses = self.below(2) == 0;
        let node = self.node(DRIVER.node());
        let at = node.allocate(Some(object), reuses);
        node.holders.insert(Place::of(at), DRIVER);
        let slot = Arc::new(Slot::with_outcome(stored(at)));
        slot.acquire();
        self.with_core(DRIVER, |core, _| core.ownership_mut().own(object, slot.clone()));
        self.process(DRIVER).handles.push((object, slot));
    }

    fn submit(
        &mut self,
        who: WorkerId,
        what: &str,
        objects: Vec<ObjectId>,
        parent: Option<TaskId>,
    ) -> (ObjectId, Arc<Slot>) {
        let task = self.next_task(who);
        let slot = Arc::new(Slot::default());
        slot.acquire();
        let made = slot.clone();
        let what = Name::from(what);
        self.with_core(who, |core, out| {
            let shape = core.shape(&ResourceSet::default());
            let mut spec =
                TaskSpec::new(task, TaskKind::Task(shape), FunctionId(1), what.clone(), Blob::default());
            spec.retries = -1;
            if what.as_str() == "get" {
                spec.references = objects.into();
            } else {
                spec.dependencies = objects.into();
            }
            core.submit(Arc::new(spec), [made], parent, out);
        });
        (task.object(0), slot)
    }

    fn next_task(&mut self, who: WorkerId) -> TaskId {
        let process = self.process(who);
        process.numbers += 1;
        TaskId { owner: who, number: process.numbers }
    }

    /// The program is over: one thing is let go after the other.
    fn let_go(&mut self) {
        let who = PROCESSES[self.pick(PROCESSES.len())];
        self.let_go_of_one(who);
        if let Some((object, slot, _)) = self.process(who).views.pop() {
            self.drop_handle(who, object, &slot);
        }
    }

    fn let_go_of_one(&mut self, who: WorkerId) {
        let count = self.processes[&who].handles.len();
        if count > 0 {
            let at = self.pick(count);
            let (object, slot) = self.process(who).handles.swap_remove(at);
            self.drop_handle(who, object, &slot);
        }
    }

    fn drop_handle(&mut self, who: WorkerId, object: ObjectId, slot: &Slot) {
        if slot.release() {
            self.with_core(who, |core, out| core.on_handles_dropped(&[object], out));
        }
    }

    // --- the workers ---

    fn work(&mut self) {
        let who = PROCESSES[1 + self.pick(3)];
        if self.below(2) == 0 && !self.processes[&who].running.is_empty() {
            let at = self.pick(self.processes[&who].running.len());
            let ended = self.process(who).running.swap_remove(at);
            return self.end_task(who, &ended);
        }
        let waits = self.processes[&who].core.execution().queued() > 0;
        match self.with_core(who, |core, _| core.next_execution()) {
            Some(next) => {
                self.read_arguments(who, &next);
                self.process(who).running.push(next);
            }
            None => self.seen.waited += usize::from(waits),
        }
    }

    fn read_arguments(&self, who: WorkerId, incoming: &Incoming) {
        for dependency in &incoming.push.dependencies {
            self.read(who, dependency.object, &dependency.outcome);
        }
    }

    fn read(&self, who: WorkerId, object: ObjectId, outcome: &Outcome) {
        match outcome {
            Outcome::Inline(_) => {}
            Outcome::Stored(at) => self.check_view(who, object, at.offset),
            Outcome::Failed(failure) => panic!("{object:?} has no value: {failure:?}"),
            Outcome::Remote(remote) => panic!("{object:?} was not brought from {remote:?}"),
        }
    }

    fn check_view(&self, who: WorkerId, object: ObjectId, block: u64) {
        let inside = self.nodes[index(who.node())].contents.get(&block);
        assert_eq!(inside, Some(&Some(object)), "I5: block {block} is read by {who:?}");
    }

    fn end_task(&mut self, who: WorkerId, incoming: &Incoming) {
        self.read_arguments(who, incoming);
        let spec = &incoming.push.spec;
        let task = spec.task;
        match spec.name.as_str() {
            "hold" => {
                for (dependency, met) in incoming.push.dependencies.iter().zip(&incoming.dependencies) {
                    if let (Some(slot), Outcome::Stored(at)) = (&met.stored, &dependency.outcome) {
                        slot.acquire();
                        let view = (dependency.object, slot.clone(), at.offset);
                        self.process(who).views.push(view);
                    }
                }
            }
            "nest" => {
                let with_slots = incoming.push.dependencies.iter().zip(&incoming.dependencies);
                let objects =
                    with_slots.filter(|(_, met)| met.stored.is_some()).map(|(d, _)| d.object).collect();
                let what = ["large", "hold", "get"][self.pick(3)];
                let handle = self.submit(who, what, objects, Some(task));
                self.process(who).handles.push(handle);
            }
            "get" => {
                for (object, slot) in &incoming.references {
                    slot.acquire();
                    self.process(who).gets.push((*object, slot.clone()));
                }
            }
            _ => {}
        }
        let is_large = spec.name.as_str() == "large";
        let outcome = if is_large {
            let reuses = self.below(2) == 0;
            let node = self.node(who.node());
            let at = node.allocate(Some(task.object(0)), reuses);
            node.holders.insert(Place::of(at), who);
            stored(at)
        } else {
            Outcome::Inline(Blob::from(&b"small"[..]))
        };
        let value = Return { outcome, contained: Vec::new() };
        self.with_core(who, |core, out| core.on_finished(task, vec![value], 1000, false, out));
    }

    /// A thread that waits in `get` looks again.
    fn read_on(&mut self) {
        let who = PROCESSES[self.pick(PROCESSES.len())];
        let count = self.processes[&who].gets.len();
        if count == 0 {
            return;
        }
        let at = self.pick(count);
        let (object, slot) = self.processes[&who].gets[at].clone();
        match slot.outcome().as_deref() {
            None => return self.with_core(who, |core, out| core.ownership_mut().need(object, out)),
            Some(Outcome::Remote(_)) => {
                self.with_core(who, |core, out| core.ownership_mut().bring(object, Priority::Get, out));
                return;
            }
            Some(Outcome::Failed(failure)) => {
                let codes = [FailureCode::ObjectLost, FailureCode::ReconstructionFailed];
                assert!(self.lose_one_in > 0 && codes.contains(&failure.code), "I2: {failure:?}");
                self.seen.failures += 1;
            }
            Some(outcome) => self.read(who, object, outcome),
        }
        self.process(who).gets.swap_remove(at);
        self.drop_handle(who, object, &slot);
    }

    // --- messages ---

    fn process(&mut self, who: WorkerId) -> &mut Process {
        self.processes.get_mut(&who).expect("nobody dies")
    }

    fn node(&mut self, node: NodeId) -> &mut Node {
        &mut self.nodes[index(node)]
    }

    fn with_core<R>(&mut self, who: WorkerId, work: impl FnOnce(&mut WorkerCore, &mut Actions) -> R) -> R {
        let mut out = Actions::new();
        let result = work(&mut self.process(who).core, &mut out);
        let node = WorkerId(who.node().0);
        for action in out {
            match action {
                Action::Send { to: Peer::Node, message } => self.post(who, node, *message),
                Action::Send { to: Peer::Worker(to), message } => self.post(who, to, *message),
                Action::Push { worker, spec, dependencies, gpus } => {
                    let push = Push { spec: Box::new((*spec).clone()), dependencies, gpus };
                    self.post(who, worker, push.into());
                }
                Action::FreeBlock(at) => {
                    self.post(who, node, FreeBlocks { places: vec![at.place()] }.into());
                }
                Action::Ready(_) | Action::Interrupt { .. } | Action::Warn(_) => {}
            }
        }
        result
    }

    fn post(&mut self, from: WorkerId, to: WorkerId, mut message: Message) {
        if from.node() != to.node() {
            message.globalise(from.node());
        }
        self.channels.entry((from, to)).or_default().push_back(message);
    }

    fn deliver(&mut self) {
        let full: Vec<_> =
            self.channels.iter().filter(|(_, queue)| !queue.is_empty()).map(|(k, _)| *k).collect();
        if full.is_empty() {
            return;
        }
        let (from, to) = full[self.pick(full.len())];
        let mut message =
            self.channels.get_mut(&(from, to)).and_then(VecDeque::pop_front).expect("not empty");
        if from.node() != to.node() {
            message.localise_from(from, to.node());
        }
        if to.0 == to.node().0 {
            return self.on_node_message(to.node(), from, message);
        }
        let peer = if from.0 == from.node().0 { Peer::Node } else { Peer::Worker(from) };
        self.with_core(to, |core, out| core.on_message(peer, message, Instant(1), out));
    }

    // --- the nodes ---

    fn on_node_message(&mut self, node: NodeId, from: WorkerId, message: Message) {
        match message {
            Message::RequestLease(request) if request.demand > 0 => {
                for worker in &PROCESSES[1..] {
                    if *worker != from && self.leases.insert((from, request.shape.0, *worker)) {
                        self.made_leases += 1;
                        let lease = LeaseId(self.made_leases);
                        let (shape, worker) = (request.shape, *worker);
                        let granted = LeaseGranted { shape, lease, worker, gpus: Vec::new() };
                        self.post(WorkerId(node.0), from, granted.into());
                    }
                }
            }
            Message::GiveBlock(give) => {
                let place = give.block.into();
                let holders = &mut self.node(node).holders;
                if holders.give(place, from, give.owner, &|_| false) {
                    self.free(node, give.block.offset());
                } else if let Some(object) = give.object {
                    holders.set_object(place, object);
                }
            }
            Message::FreeBlocks(free) => {
                for place in free.places {
                    if self.node(node).holders.release(place, from) {
                        self.free(node, place.offset());
                    }
                }
            }
            Message::FreeAt(free) => {
                let there = WorkerId(free.node.0);
                self.post(from, there, FreeBlocks { places: free.places }.into());
            }
            Message::Pull(pull) if pull.remote.node == node => self.on_home_pull(node, from, pull),
            Message::Pull(pull) => {
                let mut out = Vec::new();
                self.node(node).pulls.on_pull(from, &pull, false, &mut out);
                self.seen.shared += usize::from(matches!(out[..], [PullAction::Here { .. }]));
                self.perform(node, out);
            }
            _ => {}
        }
    }

    /// A process asks its own node for what lies there: it has heard of it from somebody who borrows it.
    fn on_home_pull(&mut self, node: NodeId, from: WorkerId, pull: Pull) {
        let Pull { object, remote: Remote { location, .. }, .. } = pull;
        let this = self.node(node);
        let is_lost = this.lost.contains(&location.offset);
        let action = match this.holders.serves(location.place(), object) {
            Serves::Yes if !is_lost => PullAction::Here { to: from, object, location },
            Serves::NotYet if !is_lost => {
                // It is asked again later.
                self.seen.waited_at_home += 1;
                return self.post(from, WorkerId(node.0), pull.into());
            }
            Serves::Yes | Serves::No | Serves::NotYet => {
                PullAction::NotThere { to: from, object, tried: Some(pull.remote) }
            }
        };
        self.seen.at_home += 1;
        self.perform(node, vec![action]);
    }

    fn free(&mut self, node: NodeId, block: u64) {
        let this = self.node(node);
        assert!(this.contents.remove(&block).is_some(), "block {block} is freed once");
        if !this.lost.contains(&block) {
            // One that was lost is not used again here: all would have to be asked to forget that.
            this.free.push(block);
        }
        this.pulls.on_freed(BlockId(block));
        let mut out = Vec::new();
        this.pulls.on_room(&mut out);
        self.perform(node, out);
    }

    fn perform(&mut self, node: NodeId, actions: Vec<PullAction>) {
        for action in actions {
            let this = &mut self.nodes[index(node)];
            match action {
                PullAction::Allocate { object, .. } => this.allocating.push(object),
                PullAction::Fetch(fetching) => this.streams.push(fetching),
                PullAction::Stop { object, attempt } => {
                    this.streams.retain(|stream| (stream.object, stream.attempt) != (object, attempt));
                }
                PullAction::Here { to, object, location } => {
                    if this.holders.serves(location.place(), object) == Serves::No {
                        this.holders.insert(Place::of(location.offset), to);
                        this.holders.set_object(Place::of(location.offset), object);
                    } else {
                        this.holders.share(Place::of(location.offset), to);
                    }
                    self.seen.copies += 1;
                    let answer = Pulled { object, location: Some(location), failure: None, tried: None };
                    self.post(WorkerId(node.0), to, answer.into());
                }
                PullAction::NotThere { to, object, tried } => {
                    self.seen.not_there += 1;
                    let answer = Pulled { object, location: None, failure: None, tried };
                    self.post(WorkerId(node.0), to, answer.into());
                }
                PullAction::Failed { failure, .. } => panic!("there is always room: {failure:?}"),
                PullAction::Free(block) => {
                    assert!(this.contents.remove(&block.offset()).is_some());
                    this.free.push(block.offset());
                }
                other => panic!("owners are not asked here: {other:?}"),
            }
            self.nodes[index(node)].pulls.check();
        }
    }

    fn allocate_for_a_pull(&mut self) {
        let node = NODES[self.pick(2)];
        let reuses = self.below(2) == 0;
        let this = self.node(node);
        if let Some(object) = this.allocating.pop() {
            let block = this.allocate(None, reuses);
            let mut out = Vec::new();
            this.pulls.on_block(object, BlockId(block), &mut out);
            self.perform(node, out);
        }
    }

    /// A stream moves, breaks, or ends.
    fn stream(&mut self) {
        let node = NODES[self.pick(2)];
        let count = self.nodes[index(node)].streams.len();
        if count == 0 {
            return;
        }
        let at = self.pick(count);
        let Fetching { object, remote, block, attempt, .. } = self.nodes[index(node)].streams[at];
        let sender = &self.nodes[index(remote.node)];
        let offset = remote.location.offset;
        let serves = sender.holders.serves(Place::of(offset), object);
        if serves == Serves::NotYet && !sender.lost.contains(&offset) {
            self.seen.asked_early += 1;
            return;
        }
        let is_there = serves == Serves::Yes && !sender.lost.contains(&offset);
        let inside = sender.contents.get(&offset).copied();
        let is_cut = self.below(4) == 0;
        self.nodes[index(node)].streams.swap_remove(at);
        let mut out = Vec::new();
        let this = &mut self.nodes[index(node)];
        if is_cut {
            self.seen.cut += 1;
            this.pulls.on_stream_end(object, attempt, StreamEnd::Cut, &mut out);
        } else if is_there {
            assert_eq!(inside, Some(Some(object)), "what is served is what was asked for");
            this.contents.insert(block.offset(), Some(object));
            this.pulls.on_bytes(object, attempt, remote.location.length, &mut out);
        } else {
            this.pulls.on_stream_end(object, attempt, StreamEnd::NotThere, &mut out);
        }
        self.perform(node, out);
    }

    /// What lies in a block is lost.
    fn lose(&mut self) {
        let node = NODES[self.pick(2)];
        let this = self.node(node);
        let mut held: Vec<(u64, ObjectId)> =
            this.contents.iter().filter_map(|(block, inside)| Some((*block, (*inside)?))).collect();
        held.retain(|(block, _)| this.holders.is_held(Place::of(*block)) && !this.lost.contains(block));
        if held.is_empty() {
            return;
        }
        let (block, object) = held[self.pick(held.len())];
        let this = self.node(node);
        this.lost.insert(block);
        let is_copy = this.pulls.object_in(BlockId(block)).is_some();
        this.pulls.on_freed(BlockId(block));
        self.seen.lost += 1;
        self.seen.copies_lost += usize::from(is_copy);
        let from = WorkerId(node.0);
        for process in PROCESSES.iter().filter(|process| process.node() == node) {
            self.post(from, *process, BlocksLost { blocks: vec![BlockId(block)] }.into());
        }
        if object.owner().node() != node {
            self.post(from, object.owner(), LostAt { node, blocks: vec![BlockId(block)] }.into());
        }
    }

    // --- the oracle ---

    fn check(&self) {
        for (who, process) in &self.processes {
            process.core.check();
            process.views.iter().for_each(|(object, _, block)| self.check_view(*who, *object, *block));
            process.running.iter().for_each(|incoming| self.read_arguments(*who, incoming));
        }
    }

    fn is_quiet(&self) -> bool {
        let is_idle = |process: &Process| {
            process.handles.is_empty()
                && process.views.is_empty()
                && process.gets.is_empty()
                && process.running.is_empty()
                && process.core.execution().queued() == 0
        };
        self.processes.values().all(is_idle)
            && self.channels.values().all(VecDeque::is_empty)
            && self.nodes.iter().all(|node| node.streams.is_empty() && node.allocating.is_empty())
    }

    fn check_end(&self) {
        for (who, process) in &self.processes {
            let core = &process.core;
            assert!(core.ownership().is_empty(), "I4: {who:?} has {:?}", core.ownership());
            assert_eq!((core.pending_tasks(), core.ownership().copies()), (0, (0, 0)), "I4: {who:?}");
        }
        for node in &self.nodes {
            assert!(node.contents.is_empty(), "I4: blocks are left: {:?}", node.contents);
            assert!(node.holders.is_empty() && node.pulls.is_empty(), "I4: {:?}", node.pulls);
        }
    }
}

impl Node {
    fn allocate(&mut self, inside: Option<ObjectId>, reuses: bool) -> u64 {
        let reused = if reuses { self.free.pop() } else { None };
        let block = reused.unwrap_or_else(|| {
            self.made += 4096;
            self.made
        });
        let before = self.contents.insert(block, inside);
        assert!(before.is_none(), "block {block} was free");
        block
    }
}

fn stored(offset: u64) -> Outcome {
    Outcome::Stored(Location { offset, length: LENGTH })
}

fn index(node: NodeId) -> usize {
    usize::from(node == NODES[1])
}
