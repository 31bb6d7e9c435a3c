//! A simulated process: a driver or worker core, what runs in it, and what its shell keeps.

use rustc_hash::{FxHashMap, FxHashSet};
use sooner_protocol::probes::hit;
use sooner_protocol::session::{Behind, FlushOrder};
use sooner_protocol::worker::WorkerCore;
use sooner_wire::message::Message;
use sooner_wire::{ActorId, ObjectId, Started, TaskId, WorkerId};

use crate::program::{Frame, Instance, Reference};

/// Where a process is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// Being forked.
    Starting,
    /// Connected.
    Running,
    /// Gone.
    Ended,
}

/// A process, and up to where it must have what was said to it; not known yet before there is a line.
pub type Owed = (u32, Option<u64>);

/// See the module.
pub struct Process {
    /// Its id.
    pub id: WorkerId,
    /// It runs a program of its own, and no tasks.
    pub is_driver: bool,
    /// Its program has made all its steps.
    pub is_over: bool,
    /// Where it is in its life.
    pub life: Life,
    /// Stopped by a signal: it does nothing, and nothing is lost.
    pub is_paused: bool,
    /// Its node has sent it the signal that ends it.
    pub is_doomed: bool,
    /// Its core.
    pub core: WorkerCore,
    /// The last task or object number it used.
    pub numbers: u64,
    /// What runs in it.
    pub frames: Vec<Frame>,
    /// The actor it is.
    pub instance: Option<Instance>,
    /// Processes that it has a line to, or has asked for one.
    pub lines: FxHashSet<u32>,
    /// Channels with something to flush.
    pub dirty: FlushOrder<u32>,
    /// Dropped references that the core has not heard of.
    pub dropped: Vec<ObjectId>,
    /// Answers to deaths that wait until what was said before has come.
    pub held_back: Behind<Box<Message>, Owed>,
    /// References that outlive the task that brought them.
    pub kept: Vec<Reference>,
    /// Blocks kept for reuse.
    pub cache: Vec<u64>,
    /// Blocks with values that it writes, or has written and still has.
    pub written: FxHashSet<u64>,
    /// Tasks that began here.
    pub begun: FxHashSet<TaskId>,
    /// What its progress cell says.
    pub last_started: Option<Started>,
    /// Tasks that were pushed to it and whose reply nobody has read.
    pub assigned: FxHashSet<TaskId>,
    /// Those of them that it has given back; their owners may not have read it.
    pub given_back: FxHashSet<TaskId>,
    /// Those of them that had to wait here for an argument in the memory of another node, or might have:
    /// others passed them.
    pub passed: FxHashSet<TaskId>,
    /// After its end: those of them that had not begun here.
    pub unbegun: FxHashSet<TaskId>,
    /// Answers of the node to the process's own questions.
    pub answers: FxHashMap<u64, Message>,
    /// Questions asked.
    pub questions: u64,
    /// It has read something and not looked at its timer since: its shell does so after each batch.
    pub has_read: bool,
    /// When its timer is due; zero: never.
    pub timer_at: u64,
    /// The actor that the node has placed here.
    pub hosts: Option<ActorId>,
    /// It is among the things that may happen next.
    pub is_listed: bool,
    /// It ended because it had nothing to do, and nobody needed it.
    pub has_retired: bool,
}

impl Process {
    /// A process that is being started.
    #[must_use]
    pub fn new(id: WorkerId, is_driver: bool) -> Self {
        Self {
            id,
            is_driver,
            is_over: false,
            life: Life::Starting,
            is_paused: false,
            is_doomed: false,
            core: WorkerCore::new(id),
            numbers: 0,
            frames: Vec::new(),
            instance: None,
            lines: FxHashSet::default(),
            dirty: FlushOrder::default(),
            dropped: Vec::new(),
            held_back: Behind::default(),
            kept: Vec::new(),
            cache: Vec::new(),
            written: FxHashSet::default(),
            begun: FxHashSet::default(),
            last_started: None,
            assigned: FxHashSet::default(),
            given_back: FxHashSet::default(),
            passed: FxHashSet::default(),
            unbegun: FxHashSet::default(),
            answers: FxHashMap::default(),
            questions: 0,
            has_read: false,
            timer_at: 0,
            hosts: None,
            is_listed: false,
            has_retired: false,
        }
    }

    /// Whether it takes part.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.life == Life::Running
    }

    /// A fresh task or object number.
    pub fn next_task(&mut self) -> TaskId {
        self.numbers += 1;
        TaskId { owner: self.id, number: self.numbers }
    }

    /// Which of these blocks are being written here, or kept for reuse.
    #[must_use]
    pub fn without_value(&self, blocks: &[u64]) -> Vec<u64> {
        let is_here = |block: &u64| self.written.contains(block) || self.cache.contains(block);
        blocks.iter().copied().filter(is_here).collect()
    }

    /// Drops a reference; the core hears of it with the next step.
    pub fn release(&mut self, reference: Reference) {
        if reference.slot.release() {
            self.dropped.push(reference.id);
        }
    }

    /// Calls that may run here at a time.
    #[must_use]
    pub fn places(&self) -> usize {
        self.instance.as_ref().map_or(1, Instance::places)
    }

    /// Whether a wait in it lends its CPU: a worker that runs one thing at a time.
    #[must_use]
    pub fn lends(&self) -> bool {
        self.places() == 1
    }

    /// Notes in what state it ends.
    pub fn mark_end(&self) {
        let running = self.frames.iter().filter(|frame| frame.task.is_some()).count();
        if running > 1 {
            hit("a process ended with several calls running");
        }
        if running > 0 && self.core.execution().queued() > 0 {
            hit("a process ended with tasks queued behind a running one");
        }
        if self.instance.as_ref().is_some_and(|instance| !instance.kept.is_empty()) {
            hit("an actor ended with references in its state");
        }
        if self.core.leases_held() > 0 {
            hit("a process ended that held leases");
        }
        if self.core.open_streams() > 0 {
            hit("a process ended that read a stream");
        }
    }
}
