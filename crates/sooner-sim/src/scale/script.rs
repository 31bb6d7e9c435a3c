//! The script of drivers: they ask for leases, hold them and give them back, create actors and end them, make
//! values and pull those of other drivers.

use std::sync::Arc;

use sooner_protocol::table::{Map, Set};
use sooner_protocol::time::Instant;
use sooner_protocol::worker::ownership::Slot;
use sooner_wire::message::{
    ActorCreation, ActorOutOfScope, Connect, CreateActor, Define, FreeBlocks, GiveBlock, LeaseGranted,
    Location, Message, Outcome, Priority, Pull, Pulled, Push, Remote, RequestLease, ReturnLease, Target,
    TaskSpec,
};
use sooner_wire::{
    ActorId, Blob, BlockId, FunctionId, LeaseId, Name, ObjectId, ResourceSet, ShapeId, TaskId, WorkerId,
};

use super::losses::Found;
use super::node::cpus;
use super::plan::SECOND;
use super::uplinks::Block;
use super::world::{Event, World};

/// The next thing that a driver does.
#[derive(Debug, Clone, Copy)]
pub enum Cue {
    /// Begin a round.
    Round,
    /// Return a lease that was used for long enough.
    Return(LeaseId),
    /// End an actor that was used for long enough.
    EndActor(ActorId),
    /// Pull a value.
    Pull(usize),
    /// Drop a value that was used for long enough.
    Drop(usize),
}

/// The state of a driver's script.
#[derive(Debug, Default)]
pub struct Script {
    pub(super) shape: u32,
    /// Leases that were requested and not granted yet.
    pub(super) wanted: u32,
    pub(super) held: Map<LeaseId, WorkerId>,
    /// Actors that were created and have not died yet.
    pub(super) actors: Set<ActorId>,
    /// Values that were requested and have not arrived yet.
    pub(super) pulls: Map<ObjectId, usize>,
    /// The blocks of values that have arrived.
    copies: Map<usize, u64>,
    made: u64,
    lines: Set<WorkerId>,
    /// Rounds that began, and rounds that ended with everything served.
    pub(super) rounds: (u64, u64),
    /// When the last round began.
    pub(super) since: Instant,
}

/// A value, and the receivers that want it.
#[derive(Debug)]
pub struct Value {
    pub(super) object: ObjectId,
    pub(super) place: Remote,
    /// The handle that keeps the value alive.
    _handle: Arc<Slot>,
    /// How many receivers have not got it.
    pub(super) waiting: usize,
    /// No copy of it is left.
    pub(super) is_lost: bool,
    /// When the value was first pulled, and when the latest receiver got it.
    pub(super) took: (Option<Instant>, Instant),
}

/// The resources of a shape.
#[must_use]
pub fn resources_of(shape: u32) -> ResourceSet {
    cpus(1 << shape)
}

fn creation(actor: ActorId) -> CreateActor {
    let name = Name::from("Counter");
    let target = ActorCreation { concurrency: 1, ..ActorCreation::new(FunctionId(1)) };
    let spec = TaskSpec::of(actor, Target::Class(target), name.clone(), Blob::default());
    let (code, references) = (Blob::from(vec![7; 200]), Vec::new());
    CreateActor {
        actor,
        placement: cpus(1),
        lifetime: cpus(1),
        class: Box::new(Define { function: FunctionId(1), name, code, references, place: None }),
        constructor: Box::new(Push { spec: Box::new(spec), dependencies: Vec::new(), gpus: Vec::new() }),
        restarts: None,
        detached: None,
        job: None,
    }
}

impl World {
    fn script(&mut self, driver: WorkerId) -> Option<&mut Script> {
        self.processes.get_mut(&driver)?.script.as_deref_mut()
    }

    pub(super) fn cue(&mut self, driver: WorkerId, cue: Cue) {
        match cue {
            Cue::Round => self.begin_round(driver),
            Cue::Return(lease) => self.return_lease(driver, lease),
            Cue::EndActor(actor) => {
                if self.script(driver).is_some() {
                    self.send_to_node(driver, ActorOutOfScope { actor }.into());
                }
            }
            Cue::Pull(value) => self.pull(driver, value),
            Cue::Drop(value) => {
                let Some(block) = self.script(driver).and_then(|script| script.copies.swap_remove(&value))
                else {
                    return;
                };
                self.send_to_node(driver, FreeBlocks { places: vec![BlockId(block).into()] }.into());
            }
        }
    }

    fn begin_round(&mut self, driver: WorkerId) {
        let (load, now) = (self.plan.load, self.now);
        let is_actor = load.actors > 0 && self.random.chance(load.actors, 100);
        let shape = if load.is_even { 0 } else { self.random.below(3) as u32 };
        let wanted = if load.is_even {
            load.leases
        } else {
            1 + self.random.below(load.leases.max(1) as usize) as u32
        };
        let Some(script) = self.script(driver) else { return };
        script.rounds.0 += 1;
        script.since = now;
        script.shape = shape;
        if is_actor || load.leases == 0 {
            script.made += 1;
            let actor = TaskId { owner: driver, number: script.made };
            script.actors.insert(actor);
            return self.send_to_node(driver, creation(actor).into());
        }
        script.wanted = wanted;
        self.ask_for_leases(driver);
    }

    fn ask_for_leases(&mut self, driver: WorkerId) {
        let Some(script) = self.script(driver) else { return };
        let (shape, demand) = (script.shape, script.wanted);
        let (strategy, prefer, priority, raises_memory) = (None, None, None, None);
        let (resources, shape) = (resources_of(shape), ShapeId(shape));
        let request = RequestLease { shape, resources, demand, strategy, prefer, priority, raises_memory };
        self.send_to_node(driver, request.into());
    }

    /// A driver receives a message from its node; a message that does not concern the script is returned.
    pub(super) fn script_receives(&mut self, driver: WorkerId, message: Message) -> Option<Message> {
        match message {
            Message::LeaseGranted(granted) => self.on_granted(driver, granted),
            Message::ReclaimLease(reclaim) => {
                let script = self.script(driver)?;
                let any = script.held.keys().next().copied();
                if let Some(lease) = reclaim.lease.or(any) {
                    self.return_lease(driver, lease);
                }
            }
            Message::Infeasible(infeasible) => {
                if infeasible.closed.is_some() {
                    crate::violation::fail(
                        "FL2",
                        format!("{driver:?} asked for what cannot be: {infeasible:?}"),
                    );
                }
            }
            Message::ActorStarted(started) => {
                let holds = self.about(self.plan.load.hold / 2);
                self.after(holds, Event::Script(driver, Cue::EndActor(started.actor)));
            }
            Message::ActorDead(dead) => {
                let script = self.script(driver)?;
                if script.actors.swap_remove(&dead.actor) {
                    self.truth.used += 1;
                    self.end_round(driver);
                }
            }
            Message::Pulled(pulled) => self.on_pulled(driver, &pulled),
            Message::WorkerDead(gone) => {
                self.lose_leases(driver, |worker| worker == gone.worker);
                return Some(Message::WorkerDead(gone));
            }
            Message::NodeDead(gone) => {
                self.lose_leases(driver, |worker| worker.node() == gone.node);
                return Some(Message::NodeDead(gone));
            }
            other => return Some(other),
        }
        None
    }

    fn on_granted(&mut self, driver: WorkerId, granted: LeaseGranted) {
        let LeaseGranted { shape, lease, worker, .. } = granted;
        let now = self.now;
        let runs = self.processes.contains_key(&worker);
        let hold = self.plan.load.hold / 4;
        let hold = 1 + hold + self.about(hold);
        let Some(script) = self.script(driver) else { return };
        let is_wanted = script.wanted > 0 && ShapeId(script.shape) == shape;
        script.held.insert(lease, worker);
        if !is_wanted {
            self.saw("a lease came that was not wanted any more");
            return self.return_lease(driver, lease);
        }
        script.wanted -= 1;
        if script.wanted == 0 {
            let waited = now.since(script.since);
            self.truth.record_waited(waited);
        }
        let is_far = worker.node() != driver.node();
        let script = self.script(driver).expect("it is there");
        if is_far && script.lines.insert(worker) {
            self.send_to_node(driver, Connect { worker }.into());
        }
        if is_far {
            self.saw("a lease was granted on another node");
        }
        if runs {
            self.judge_lease(driver, worker, shape);
        }
        self.after(hold, Event::Script(driver, Cue::Return(lease)));
    }

    fn return_lease(&mut self, driver: WorkerId, lease: LeaseId) {
        let Some(script) = self.script(driver) else { return };
        if let Some(worker) = script.held.swap_remove(&lease) {
            self.truth.give_back(driver, worker);
            self.truth.used += 1;
            self.send_to_node(driver, ReturnLease { lease }.into());
            self.end_round(driver);
        }
    }

    /// Workers have died: their leases are requested again.
    fn lose_leases(&mut self, driver: WorkerId, which: impl Fn(WorkerId) -> bool) {
        let Some(script) = self.script(driver) else { return };
        script.lines.retain(|worker| !which(*worker));
        let before = script.held.len();
        script.held.retain(|_, worker| !which(*worker));
        let lost = u32::try_from(before - script.held.len()).expect("few");
        if lost > 0 {
            script.wanted += lost;
            self.saw("a lease was lost with its worker");
            self.ask_for_leases(driver);
        }
    }

    fn end_round(&mut self, driver: WorkerId) {
        let Some(script) = self.script(driver) else { return };
        if script.wanted > 0 || !script.held.is_empty() || !script.actors.is_empty() {
            return;
        }
        script.rounds.1 += 1;
        if self.is_on() {
            let pause = self.about(self.plan.load.think);
            self.after(pause, Event::Script(driver, Cue::Round));
        }
    }

    /// Faults are over: every idle driver begins one more round.
    pub(super) fn begin_last_rounds(&mut self) {
        let has_load = self.plan.load.leases > 0 || self.plan.load.actors > 0;
        let idle = |script: &Script| script.wanted == 0 && script.held.is_empty() && script.actors.is_empty();
        let drivers =
            self.processes.iter().filter(|(_, process)| process.script.as_deref().is_some_and(idle));
        let drivers: Vec<WorkerId> = drivers.filter(|_| has_load).map(|(id, _)| *id).collect();
        for driver in drivers {
            let pause = self.about(SECOND);
            self.after(pause, Event::Script(driver, Cue::Round));
        }
    }

    /// A driver makes a value, and other drivers will pull it.
    pub(super) fn make_value(&mut self, number: usize) {
        let drivers: Vec<WorkerId> = self
            .processes
            .iter()
            .filter(|(_, process)| process.script.is_some())
            .map(|(id, _)| *id)
            .collect();
        if drivers.len() < 2 {
            return;
        }
        let owner = drivers[if self.plan.at_once { 0 } else { self.random.below(drivers.len()) }];
        let maker = self.maker_of(number, owner, &drivers);
        let length = if self.plan.at_once {
            self.plan.bytes
        } else {
            1 + self.random.below(usize::try_from(self.plan.bytes).expect("small")) as u64
        };
        let at = self.processes[&maker].node;
        let now = self.now;
        let node = &mut self.nodes[at];
        node.blocks_made += 1;
        let block = node.blocks_made;
        let object = TaskId { owner, number: (1 << 32) + number as u64 }.object(0);
        node.blocks.insert(block, Block { object, bytes: length, whole: Some(now) });
        let Some(core) = &mut node.core else { return };
        core.on_allocated(BlockId(block), maker);
        if maker != owner {
            let give = GiveBlock { block: BlockId(block), owner, object: Some(object) };
            core.on_message(maker, give.into(), now, &mut node.out);
        }
        let location = Location { offset: block, length };
        let place = Remote { node: node.id, location };
        let slot = Arc::new(Slot::default());
        slot.acquire();
        let of_core = slot.clone();
        self.with_client(owner, |core, out| {
            core.ownership_mut().own(object, of_core);
            let outcome =
                if maker == owner { Outcome::Stored(location) } else { Outcome::Remote(Box::new(place)) };
            core.ownership_mut().resolve(object, outcome, &[], out);
        });
        self.list_node(at);
        let value = self.values.len();
        let mut others: Vec<WorkerId> = drivers.into_iter().filter(|driver| *driver != owner).collect();
        let mut waiting = 0;
        while !others.is_empty() && waiting < self.plan.receivers {
            let receiver = others.swap_remove(self.random.below(others.len()));
            waiting += 1;
            let when = if self.plan.at_once { 0 } else { self.about(SECOND) };
            self.after(when, Event::Script(receiver, Cue::Pull(value)));
        }
        let took = (None, Instant(0));
        self.values.push(Value { object, place, _handle: slot, waiting, is_lost: false, took });
    }

    fn pull(&mut self, driver: WorkerId, value: usize) {
        let object = self.values[value].object;
        let now = self.now;
        if !self.processes.contains_key(&object.owner()) {
            // The owner is dead, and the value with it: the driver gives up.
            return self.give_up(driver, value);
        }
        let Some(script) = self.script(driver) else { return };
        script.pulls.insert(object, value);
        let remote = match self.find_value(value) {
            Found::At(remote) => remote,
            Found::NotYet => return self.after(SECOND / 10, Event::Script(driver, Cue::Pull(value))),
            Found::Lost => return self.give_up(driver, value),
        };
        self.values[value].took.0.get_or_insert(now);
        self.send_to_node(driver, Pull { object, remote, priority: Priority::Get }.into());
    }

    fn give_up(&mut self, driver: WorkerId, value: usize) {
        let object = self.values[value].object;
        if let Some(script) = self.script(driver) {
            script.pulls.swap_remove(&object);
        }
    }

    fn on_pulled(&mut self, driver: WorkerId, pulled: &Pulled) {
        let now = self.now;
        let Some(script) = self.script(driver) else { return };
        let Some(value) = script.pulls.get(&pulled.object).copied() else { return };
        let Some(location) = pulled.location else {
            self.saw("a value was not where it should be pulled from");
            return self.after(SECOND / 10, Event::Script(driver, Cue::Pull(value)));
        };
        script.pulls.swap_remove(&pulled.object);
        script.copies.insert(value, location.offset);
        self.judge_copy(driver, pulled.object, location);
        self.saw("a value arrived whole");
        let value_of = &mut self.values[value];
        value_of.took.1 = now;
        value_of.waiting -= 1;
        let pause = self.about(SECOND / 2);
        self.after(pause, Event::Script(driver, Cue::Drop(value)));
    }
}
