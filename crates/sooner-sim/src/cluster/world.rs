//! The world of a cluster: machines, processes, and the agenda of events.

use std::collections::{BTreeMap, BTreeSet};

use sooner_protocol::control::Probed;
use sooner_protocol::table::Map;
use sooner_protocol::time::Instant;
use sooner_wire::NodeId;

use super::conns::{Conn, Side};
use super::counts::Counts;
use super::daemons::{Daemon, Line};
use super::disk::Disk;
use super::faults::Split;
use super::head::Head;
use super::plan::{ClusterPlan, SECOND};
use crate::random::Random;
use crate::seeds::{Agenda, Ran};
use crate::trace::Trace;
use crate::violation::caught;

/// Time between the end of faults and the moment when all must agree (nanoseconds): the longest pause before
/// a message is sent again, and some health timeouts.
const CALM_NANOS: u64 = 150 * SECOND;

/// A machine.
#[derive(Debug, Clone, Default)]
pub struct Host {
    /// The latest daemon that started on it.
    pub(super) daemon: Option<usize>,
    /// Another daemon will start on it.
    pub(super) will_start: bool,
    /// The machine is lost until it is switched on.
    pub(super) is_lost: bool,
    /// Its daemons are drivers.
    pub(super) is_driver: bool,
    /// The free resources of its daemons never change: they send only heartbeats.
    pub(super) is_idle: bool,
}

/// Scheduled events.
#[derive(Debug, Clone)]
pub enum Event {
    /// A packet is due at that end of a connection.
    Carry(u64, Side),
    /// A daemon starts on a machine.
    Start(usize),
    /// A line is dialled.
    Dial(usize, Line),
    /// A dial succeeds, and both ends greet each other.
    Arrive(usize, Line, u32),
    /// A dial fails.
    Undialled(usize, Line, u32),
    /// A node has waited too long to be taken in.
    Impatient(usize, u64),
    /// A heartbeat is due.
    Beat(usize, u64),
    /// The free resources of a node change.
    Work(usize),
    /// A node's report of them may be due.
    Report(usize),
    /// A node that leaves has handed on its values.
    Leave(usize),
    /// A node notices that its connection to another one has ended.
    Suspect(NodeId, usize),
    /// A probe by that head ends.
    Probed(u32, NodeId, u32, Probed),
    /// The disk has written a group of that head.
    Written(u32),
    /// The head's timer with that number fires.
    Tick(u64),
    /// The head starts.
    Head,
    /// A fault strikes.
    Blow,
    /// A machine is switched on.
    Mend(usize),
}

/// See the module.
pub struct World {
    /// Decided by the seed.
    pub plan: ClusterPlan,
    pub(super) random: Random,
    /// The virtual time.
    pub now: Instant,
    agenda: Agenda<Event>,
    pub(super) hosts: Vec<Host>,
    pub(super) daemons: Vec<Daemon>,
    pub(super) conns: Map<u64, Conn>,
    next_conn: u64,
    pub(super) splits: Vec<Split>,
    pub(super) late_until: Instant,
    pub(super) head: Option<Head>,
    pub(super) head_life: u32,
    pub(super) head_stands: Instant,
    pub(super) disk: Disk,
    pub(super) timer: u64,
    pub(super) timer_due: Option<Instant>,
    faults_end: Instant,
    /// The daemon behind each id that was taken in.
    pub(super) members: BTreeMap<NodeId, usize>,
    pub(super) heard: BTreeMap<NodeId, Instant>,
    pub(super) judged: BTreeSet<NodeId>,
    pub(super) told: BTreeSet<NodeId>,
    pub(super) drained: BTreeSet<NodeId>,
    /// Ids that were drawn twice.
    pub(super) twins: BTreeSet<NodeId>,
    /// Counts of the messages sent.
    pub counts: Counts,
    /// What happened.
    pub trace: Trace,
    /// Calls of the head's machines.
    pub events: u64,
    /// How many faults have struck.
    pub blows: u64,
    /// States worth reaching, and how often they were.
    pub seen: BTreeMap<&'static str, u64>,
}

/// Runs a plan.
#[must_use]
pub fn run(plan: &ClusterPlan, trace: Trace) -> Ran {
    let mut world = World::new(plan.clone(), trace);
    let ended = caught(|| world.run());
    let seen = std::mem::take(&mut world.seen);
    Ran::new(ended, &world.trace, (world.events, world.blows), seen)
}

impl World {
    /// A world before anything happened.
    #[must_use]
    pub fn new(plan: ClusterPlan, trace: Trace) -> Self {
        let random = Random::new(plan.seed);
        let faults_end = Instant(plan.seconds * SECOND);
        let mut world = Self {
            random,
            now: Instant(0),
            agenda: Agenda::default(),
            hosts: vec![Host::default(); plan.nodes + 1],
            daemons: Vec::new(),
            conns: Map::default(),
            next_conn: 0,
            splits: Vec::new(),
            late_until: Instant(0),
            head: None,
            head_life: 0,
            head_stands: Instant(0),
            disk: Disk::default(),
            timer: 0,
            timer_due: None,
            faults_end,
            members: BTreeMap::new(),
            heard: BTreeMap::new(),
            judged: BTreeSet::new(),
            told: BTreeSet::new(),
            drained: BTreeSet::new(),
            twins: BTreeSet::new(),
            counts: Counts::default(),
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
        let spread = (SECOND * (1 + self.plan.nodes as u64 / 50)) as usize;
        for host in 1..=self.plan.nodes {
            // Some machines run a driver instead of a daemon.
            self.hosts[host].is_driver = self.plan.blows > 0 && self.random.chance(1, 8);
            self.hosts[host].is_idle = self.plan.blows > 0 && self.random.chance(1, 4);
            self.hosts[host].will_start = true;
            let begins = Instant(self.random.below(spread) as u64);
            self.at(begins, Event::Start(host));
        }
        for _ in 0..self.plan.blows {
            let when =
                SECOND + self.random.below((self.plan.seconds - 1).max(1) as usize * SECOND as usize) as u64;
            self.at(Instant(when), Event::Blow);
        }
    }

    /// Runs the cluster to its end.
    pub fn run(&mut self) {
        self.run_until(self.faults_end);
        self.mend_all();
        self.run_until(self.faults_end.plus(CALM_NANOS));
        self.judge_end();
    }

    /// Runs all events up to `until`.
    pub fn run_until(&mut self, until: Instant) {
        while let Some((time, event)) = self.agenda.next(until) {
            self.now = self.now.max(time);
            self.happen(event);
        }
        self.now = self.now.max(until);
    }

    fn happen(&mut self, event: Event) {
        self.trace.note(self.now.0);
        self.trace.send(|| format!("{:?}: {event:?}", self.now));
        if let Some(resumes) = self.waits_for(&event) {
            return self.at(resumes, event);
        }
        match event {
            Event::Carry(conn, to) => self.carry(conn, to),
            Event::Start(host) if self.hosts[host].is_lost => {}
            Event::Start(host) => self.start_daemon(host),
            Event::Dial(daemon, line) => self.dial(daemon, line),
            Event::Arrive(daemon, line, number) => self.arrive(daemon, line, number),
            Event::Undialled(daemon, line, number) => self.undialled(daemon, line, number),
            Event::Impatient(daemon, conn) => self.impatient(daemon, conn),
            Event::Beat(daemon, conn) => self.beat(daemon, conn),
            Event::Work(daemon) => self.work(daemon),
            Event::Report(daemon) => self.report(daemon),
            Event::Leave(daemon) => self.leave_cluster(daemon),
            Event::Suspect(suspected, by) => self.suspect(suspected, by),
            Event::Probed(life, node, number, probed) => self.probed(life, node, number, probed),
            Event::Written(life) => self.written(life),
            Event::Tick(number) => self.tick_head(number),
            Event::Head => self.start_head(),
            Event::Blow => self.blow(),
            Event::Mend(host) => self.mend(host),
        }
    }

    /// When the process that performs this event continues, if it stands still.
    fn waits_for(&self, event: &Event) -> Option<Instant> {
        let stands = match event {
            Event::Dial(daemon, _)
            | Event::Arrive(daemon, ..)
            | Event::Undialled(daemon, ..)
            | Event::Impatient(daemon, _)
            | Event::Beat(daemon, _)
            | Event::Work(daemon)
            | Event::Report(daemon)
            | Event::Leave(daemon)
            | Event::Suspect(_, daemon) => self.daemons[*daemon].stands,
            Event::Probed(..) | Event::Written(_) | Event::Tick(_) => self.head_stands,
            Event::Carry(..) | Event::Start(_) | Event::Head | Event::Blow | Event::Mend(_) => Instant(0),
        };
        (stands > self.now).then_some(stands)
    }

    /// Counts a state that runs should reach.
    pub(super) fn saw(&mut self, state: &'static str) {
        *self.seen.entry(state).or_default() += 1;
    }

    /// Schedules an event.
    pub(super) fn at(&mut self, when: Instant, event: Event) {
        self.agenda.enter(when.max(self.now), event);
    }

    /// Sets the head's timer to the deadline of its core.
    pub(super) fn set_timer(&mut self) {
        let Some(head) = &self.head else { return };
        let Some(due) = head.core.next_deadline().map(|due| due.max(self.now)) else { return };
        if self.timer_due.is_none_or(|set| due < set) {
            self.timer += 1;
            self.timer_due = Some(due);
            self.at(due, Event::Tick(self.timer));
        }
    }

    pub(super) fn new_conn(&mut self, conn: Conn) -> u64 {
        self.next_conn += 1;
        self.conns.insert(self.next_conn, conn);
        self.next_conn
    }

    /// The latency of a message between two machines (nanoseconds).
    pub(super) fn latency(&mut self) -> u64 {
        let usual = SECOND / 10_000 + self.random.below(SECOND as usize / 1000) as u64;
        if self.late_until > self.now && self.random.chance(1, 4) {
            return usual + self.random.below(3 * SECOND as usize) as u64;
        }
        usual
    }

    /// Whether faults still happen.
    pub(super) fn has_faults(&self) -> bool {
        self.now < self.faults_end
    }

    /// Whether no new work begins any more.
    pub(super) fn is_ending(&self) -> bool {
        self.now.0 >= self.faults_end.0 + CALM_NANOS / 2
    }

    /// Whether the network carries messages between two machines, and the second one is not lost.
    pub(super) fn is_carried(&self, from: usize, to: usize) -> bool {
        let is_apart = || self.splits.iter().any(|split| split.holds_back(from, to, self.now));
        !self.hosts[to].is_lost && (from == to || !is_apart())
    }

    /// The machine with an address.
    pub(super) fn host_of(&self, address: &str) -> usize {
        let ip = address.split(':').next().unwrap_or_default();
        ip.split('.').skip(1).fold(0, |host, part| (host << 8) | part.parse::<usize>().expect("ours"))
    }
}
