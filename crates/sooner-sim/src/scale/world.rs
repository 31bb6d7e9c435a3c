//! The world of a whole cluster: its parts, and the agenda of events.

use std::collections::BTreeMap;

use sooner_protocol::control::Probed;
use sooner_protocol::table::Map;
use sooner_protocol::time::Instant;
use sooner_wire::message::Message;
use sooner_wire::{NodeId, WorkerId};

use super::counts::Counts;
use super::head::Head;
use super::meter::Meter;
use super::net::{Channel, Split};
use super::node::Node;
use super::plan::{SECOND, ScalePlan};
use super::process::Process;
use super::script::{Cue, Value};
use super::truth::Truth;
use super::uplinks::Transfer;
use crate::cluster::disk::Disk;
use crate::random::Random;
use crate::seeds::{Agenda, Ran};
use crate::trace::Trace;
use crate::violation::caught;

/// Time between the end of faults and the moment when all must be well (nanoseconds): a head waits 10 s for
/// nodes, and requests to a dead node wait for its health timeout.
const CALM_NANOS: u64 = 40 * SECOND;

/// A machine.
#[derive(Debug, Clone, Default)]
pub struct Place {
    /// The latest node that started on it.
    pub(super) node: Option<usize>,
    /// Another node will start on it.
    pub(super) will_start: bool,
}

/// Scheduled events. A `usize` is a node: its index among all nodes there ever were.
#[derive(Debug, Clone)]
pub enum Event {
    /// A message between two ends is due.
    Carry(usize, usize),
    /// A process receives a message from its node.
    ToClient(WorkerId, Box<Message>),
    /// A node receives a message from one of its processes.
    FromClient(WorkerId, Box<Message>),
    /// A node starts on a machine.
    Start(usize),
    /// A node dials the head.
    Dial(usize),
    /// A heartbeat is due.
    Beat(usize),
    /// A node takes a turn.
    Turn(usize),
    /// A node takes a turn because its deadline has come.
    Wake(usize, u64),
    /// A process is forked.
    Fork(usize, WorkerId),
    /// A process ends.
    End(WorkerId),
    /// A node that has announced that it leaves ends.
    Left(usize),
    /// A driver acts on its script.
    Script(WorkerId, Cue),
    /// A driver makes a value that others will pull.
    Make(usize),
    /// The head notices that a node's connection has ended.
    HeadLoses(u32, usize),
    /// A node notices that the connection of another one has ended.
    Suspect(usize, NodeId),
    /// A probe by that head ends.
    Probed(u32, NodeId, u32, Probed),
    /// The disk has written something for that head.
    Written(u32),
    /// The head takes a turn.
    HeadTurn(u32),
    /// The head takes a turn because its deadline has come.
    HeadWake(u32, u64),
    /// A head starts.
    Head,
    /// A fault strikes.
    Blow,
    /// A request for bytes has arrived at their sender.
    Ask(u64),
    /// An uplink has sent a chunk.
    Sent(usize),
    /// A chunk is at its receiver.
    Chunk(u64, u64),
    /// A receiver learns that its sender is dead or has no bytes.
    NoMore(u64, bool),
}

/// See the module.
pub struct World {
    /// Decided before the run.
    pub plan: ScalePlan,
    pub(super) random: Random,
    /// The virtual time.
    pub now: Instant,
    agenda: Agenda<Event>,
    pub(super) places: Vec<Place>,
    pub(super) nodes: Vec<Node>,
    pub(super) processes: Map<WorkerId, Process>,
    pub(super) channels: Map<(usize, usize), Channel>,
    pub(super) splits: Vec<Split>,
    pub(super) head: Option<Head>,
    pub(super) head_life: u32,
    /// The disk under all heads, one after the other.
    pub(super) disk: Disk,
    pub(super) transfers: Map<u64, Transfer>,
    pub(super) transfers_made: u64,
    pub(super) values: Vec<Value>,
    pub(super) truth: Truth,
    /// Counts of the messages sent.
    pub counts: Counts,
    /// The processor time of the run, if it is measured.
    pub meter: Option<Meter>,
    /// What happened.
    pub trace: Trace,
    /// Turns and calls of cores.
    pub events: u64,
    /// How many faults have struck.
    pub blows: u64,
    /// States worth reaching, and how often they were.
    pub seen: BTreeMap<&'static str, u64>,
}

/// Runs a plan.
#[must_use]
pub fn run(plan: &ScalePlan, trace: Trace) -> Ran {
    let mut world = World::new(plan.clone(), trace);
    let ended = caught(|| world.run());
    let seen = std::mem::take(&mut world.seen);
    Ran::new(ended, &world.trace, (world.events, world.blows), seen)
}

impl World {
    /// A world before anything happened.
    #[must_use]
    pub fn new(plan: ScalePlan, trace: Trace) -> Self {
        let mut world = Self {
            random: Random::new(plan.seed),
            now: Instant(0),
            agenda: Agenda::default(),
            places: vec![Place::default(); plan.nodes],
            nodes: Vec::new(),
            processes: Map::default(),
            channels: Map::default(),
            splits: Vec::new(),
            head: None,
            head_life: 0,
            disk: Disk::default(),
            transfers: Map::default(),
            transfers_made: 0,
            values: Vec::new(),
            truth: Truth::default(),
            counts: Counts::default(),
            meter: None,
            trace,
            events: 0,
            blows: 0,
            seen: BTreeMap::new(),
            plan,
        };
        world.prepare();
        world
    }

    fn prepare(&mut self) {
        self.at(Instant(0), Event::Head);
        let spread = usize::try_from(self.plan.joining()).expect("some seconds");
        for place in 1..self.plan.nodes {
            self.places[place].will_start = true;
            let begins = Instant(self.random.below(spread) as u64);
            self.at(begins, Event::Start(place));
        }
        let (begins, ends) = (self.begins(), self.ends().0);
        let while_it_works = usize::try_from(ends - begins).expect("some seconds");
        for value in 0..self.plan.values {
            let when = if self.plan.at_once { 0 } else { self.random.below(while_it_works) as u64 };
            self.at(Instant(begins + when), Event::Make(value));
        }
        for _ in 0..self.plan.blows {
            let when = begins + self.random.below(while_it_works) as u64;
            self.at(Instant(when), Event::Blow);
        }
    }

    /// When all nodes have joined, and faults begin (nanoseconds).
    fn begins(&self) -> u64 {
        self.plan.joining() + SECOND
    }

    /// When faults end, and drivers do their last round.
    #[must_use]
    pub fn ends(&self) -> Instant {
        Instant(self.begins() + self.plan.seconds * SECOND)
    }

    /// Whether faults happen, and drivers begin new rounds.
    pub(super) fn is_on(&self) -> bool {
        self.now < self.ends()
    }

    /// Runs the cluster to its end.
    pub fn run(&mut self) {
        self.run_until(self.ends());
        self.mend_all();
        self.run_until(self.ends().plus(CALM_NANOS / 2));
        self.begin_last_rounds();
        self.run_until(self.ends().plus(CALM_NANOS));
        self.judge_end();
    }

    /// Runs all events up to `until`.
    pub fn run_until(&mut self, until: Instant) {
        while let Some((time, event)) = self.agenda.next(until) {
            self.now = self.now.max(time);
            self.trace.note(self.now.0);
            self.trace.send(|| format!("{:?}: {event:?}", self.now));
            self.happen(event);
        }
        self.now = self.now.max(until);
    }

    fn happen(&mut self, event: Event) {
        if self.meter.is_none() {
            return self.do_it(event);
        }
        let whose = self.whose(&event);
        let begun = self.meter.as_ref().map(Meter::begin);
        self.do_it(event);
        if let (Some(meter), Some(whose), Some(begun)) = (&mut self.meter, whose, begun) {
            meter.end(whose, begun);
        }
    }

    fn do_it(&mut self, event: Event) {
        match event {
            Event::Carry(from, to) => self.carry(from, to),
            Event::ToClient(client, message) => self.client_receives(client, *message),
            Event::FromClient(client, message) => self.node_receives_client(client, *message),
            Event::Start(place) => self.start_node(place),
            Event::Dial(node) => self.dial(node),
            Event::Beat(node) => self.beat(node),
            Event::Turn(node) => self.take_turn(node),
            Event::Wake(node, due) => self.wake_node(node, due),
            Event::Fork(node, worker) => self.start_worker(node, worker),
            Event::End(worker) => self.end_process(worker),
            Event::Left(node) => self.end_node(node, true),
            Event::Script(driver, cue) => self.cue(driver, cue),
            Event::Make(value) => self.make_value(value),
            Event::HeadLoses(life, node) => self.head_loses(life, node),
            Event::Suspect(by, node) => self.suspect(by, node),
            Event::Probed(life, node, number, probed) => self.probed(life, node, number, probed),
            Event::Written(life) => self.written(life),
            Event::HeadTurn(life) => self.take_turn_of_head(life),
            Event::HeadWake(life, due) => self.wake_head(life, due),
            Event::Head => self.start_head(),
            Event::Blow => self.blow(),
            Event::Ask(transfer) => self.serve(transfer),
            Event::Sent(node) => self.uplink_is_free(node),
            Event::Chunk(transfer, bytes) => self.take_chunk(transfer, bytes),
            Event::NoMore(transfer, is_cut) => self.no_more(transfer, is_cut),
        }
    }

    /// Counts a state that runs should reach.
    pub(super) fn saw(&mut self, state: &'static str) {
        *self.seen.entry(state).or_default() += 1;
    }

    /// Schedules an event.
    pub(super) fn at(&mut self, when: Instant, event: Event) {
        self.agenda.enter(when.max(self.now), event);
    }

    /// Schedules an event in `nanos` nanoseconds.
    pub(super) fn after(&mut self, nanos: u64, event: Event) {
        self.at(self.now.plus(nanos), event);
    }

    /// A random time between zero and twice `nanos`.
    pub(super) fn about(&mut self, nanos: u64) -> u64 {
        self.random.below(1 + 2 * usize::try_from(nanos).expect("some seconds")) as u64
    }

    /// The index of the node with an id, among all nodes there ever were.
    pub(super) fn index_of(&self, node: NodeId) -> Option<usize> {
        let at = usize::try_from((node.0 >> 24).checked_sub(1)?).ok()?;
        (at < self.nodes.len()).then_some(at)
    }
}
