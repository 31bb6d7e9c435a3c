//! The simulated world: nodes with their memory, drivers and workers, the channels between them, and a
//! virtual clock.
//!
//! Events that may happen next are in one list, from which a seeded generator picks: a message that has
//! arrived, a process with work to do, a node's turn to place. Events that are due at a time are in a heap.
//! Nothing else moves the world, so a seed repeats a run exactly.
//!
//! Faults are in [`crate::faults`], the programs of the processes in [`crate::program`], and the properties
//! that must hold in [`crate::invariants`].

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use sooner_protocol::time::Instant;
use sooner_protocol::worker::action::Actions;
use sooner_wire::message::SpillId;

use crate::oracle::Oracle;
use crate::plan::Plan;
use crate::random::Random;
use crate::trace::Trace;
use crate::violation::fail;

mod between;
mod blocks;
mod carry;
mod channels;
mod deliver;
mod describe;
mod head;
mod holding;
mod lives;
mod node;
mod process;
mod processes;
mod sessions;
mod spilling;

pub use blocks::Blocks;
pub use channels::{Channel, Channels, Item};
pub use head::Head;
pub use node::SimNode;
pub use process::{Life, Process};
pub use processes::{Processes, is_node, node_at, node_of, number_of};
pub use sessions::Sessions;

/// After this many steps a run counts as one that never ends.
const STEPS_MAX: u64 = 4_000_000;
/// After this many handler calls of cores, too: it catches a single step that goes on for ever.
const EVENTS_MAX: u64 = 4_000_000;
/// Blocks that a process keeps for reuse.
const CACHE_MAX: usize = 2;

/// Events of which the generator picks the next one.
#[derive(Debug, Clone, Copy)]
enum Next {
    Channel(u32),
    Process(u32),
    Node(usize),
    Head,
    Session(usize),
}

/// Events that are due at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wake {
    /// A process may have something to do.
    Process(u32),
    /// A process's timer is due.
    Timer(u32),
    /// If the frame still waits, its process lends the CPU.
    Blocked(u32, u64),
    /// If the frame still runs, its process returns the tasks queued behind it.
    Long(u32, u64),
    /// A worker process comes up, or fails to.
    Start(u32),
    /// A stopped process continues.
    Resume(u32),
    /// A stalled channel delivers again.
    Unstall(u32),
    /// A signal of the node arrives.
    Kill(u32),
    /// The node's timer is due.
    Node(usize),
    /// The control service's timer is due.
    Head,
    /// The control service checks its nodes for silence.
    HeadTick,
    /// A node finds the control service that has started again.
    Link(usize),
    /// A connection of the first process arrives at the node of the second one.
    Arrive(u32, u32),
    /// A node's request for a value's bytes arrives at the serving node, or the bytes arrive at this one.
    Fetching(usize, u64),
    /// A write of a value to a node's disk succeeds or fails.
    Written(usize, SpillId),
    /// The timer of one end of a session is due.
    Session(usize, usize),
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The program runs, with faults.
    Faults,
    /// No faults any more: everything must finish.
    Calm,
    /// The program is over; references that processes kept are dropped.
    Sweep,
    /// Blocks kept for reuse are given back.
    Trim,
}

/// See the module.
pub struct World {
    /// Decided by the seed.
    pub plan: Plan,
    /// Decides everything that the plan leaves open.
    pub random: Random,
    /// What happened.
    pub trace: Trace,
    /// The legal outcomes of every task.
    pub oracle: Oracle,
    /// Virtual time (nanoseconds).
    pub time: u64,
    /// Steps so far.
    pub steps: u64,
    /// Handler calls of cores so far.
    pub events: u64,
    /// Processes that faults killed.
    pub kills: u64,
    /// By process number.
    pub processes: Processes,
    /// Between processes, nodes and the control service.
    pub channels: Channels,
    /// Sessions between processes whose connections may be cut.
    pub sessions: Sessions,
    /// Nodes, with their memory.
    pub nodes: Vec<SimNode>,
    /// The control service, where there are several nodes.
    pub head: Option<Head>,
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
        let recomputes = (0..plan.nodes).any(|at| node::recomputes(at, &plan));
        let mut world = Self {
            random: Random::new(plan.seed),
            trace,
            oracle: Oracle { recomputes, ..Oracle::default() },
            time: 1,
            steps: 0,
            events: 0,
            kills: 0,
            processes: Processes::of_nodes(plan.nodes),
            channels: Channels::default(),
            sessions: Sessions::default(),
            nodes: (0..plan.nodes).map(|at| SimNode::new(at, &plan)).collect(),
            head: None,
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
        if world.plan.nodes > 1 {
            world.start_head();
        }
        for at in 0..world.plan.drivers {
            world.start_driver(at);
        }
        world.schedule_fault();
        world
    }

    /// A process by its number.
    #[must_use]
    pub fn process(&self, number: u32) -> &Process {
        self.processes.get(number)
    }

    /// A process by its number, to change it.
    pub fn process_mut(&mut self, number: u32) -> &mut Process {
        self.processes.get_mut(number)
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

    /// A driver's program has made all its steps. When the programs of all drivers have, faults end.
    pub fn calm_down(&mut self, driver: u32) {
        self.process_mut(driver).is_over = true;
        let is_busy = self.processes.running().any(|process| process.is_driver && !process.is_over);
        if is_busy || self.phase != Phase::Faults {
            return;
        }
        self.phase = Phase::Calm;
        self.trace.send(|| "--- no faults from here on".to_owned());
        self.end_faults();
    }

    /// Performs one event; false if none is left.
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
            if self.next.is_empty() && self.only_ticks_are_left() {
                return false;
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
            Next::Node(at) => self.take_turn_of_node(at),
            Next::Head => self.take_turn_of_head(),
            Next::Session(number) => self.take_turn_of_session(number),
        }
        self.check_step();
        true
    }

    /// Whether the only events left are the control service's checks of its nodes.
    fn only_ticks_are_left(&self) -> bool {
        self.wakes.iter().all(|Reverse((.., wake))| *wake == Wake::HeadTick)
    }

    fn schedule_fault(&mut self) {
        let pause = 1 + self.random.below(2 * self.plan.fault_every);
        self.next_fault = self.steps + pause as u64;
    }

    /// Schedules an event after `nanos`.
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
            Wake::Node(at) => self.wake_node(at),
            Wake::Head => self.wake_head(),
            Wake::HeadTick => self.tick_head(),
            Wake::Link(at) => self.find_head(at),
            Wake::Arrive(from, to) => self.arrive(from, to),
            Wake::Fetching(at, number) => self.on_fetching(at, number),
            Wake::Written(at, spilled) => self.on_written(at, spilled),
            Wake::Session(number, index) => self.wake_session(number, index),
        }
    }
}
