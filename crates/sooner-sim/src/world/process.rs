//! A simulated process: a driver or worker core, the program that runs in it, and the state of its shell.

use rustc_hash::{FxHashMap, FxHashSet};
use sooner_protocol::probes::hit;
use sooner_protocol::session::{Behind, FlushOrder};
use sooner_protocol::worker::WorkerCore;
use sooner_wire::message::{Message, Place};
use sooner_wire::{ActorId, BlockId, ObjectId, Started, TaskId, WorkerId};

use crate::program::{Frame, Instance, Reference};

/// Where a process is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// Being forked.
    Starting,
    /// Connected.
    Running,
    /// Dead.
    Ended,
}

/// A process, and the session position up to which it must have received; `None` until there is a line.
pub type Owed = (u32, Option<u64>);

/// See the module.
pub struct Process {
    /// Its id.
    pub id: WorkerId,
    /// It runs a program of its own, and no tasks.
    pub is_driver: bool,
    /// The driver's program has made all its steps.
    pub is_over: bool,
    /// Where it is in its life.
    pub life: Life,
    /// Stopped by a signal: the process does nothing and loses nothing.
    pub is_paused: bool,
    /// The node has sent the process the signal that ends it.
    pub is_doomed: bool,
    /// Its core.
    pub core: WorkerCore,
    /// The last task or object number that the process used.
    pub numbers: u64,
    /// The functions that run in it.
    pub frames: Vec<Frame>,
    /// The actor that lives in it.
    pub instance: Option<Instance>,
    /// Processes with which it has a line, or has requested one.
    pub lines: FxHashSet<u32>,
    /// Channels with something to flush.
    pub dirty: FlushOrder<u32>,
    /// Dropped references that the core has not been told of yet.
    pub dropped: Vec<ObjectId>,
    /// Answers to deaths, held back until the messages sent before them have been received.
    pub held_back: Behind<Box<Message>, Owed>,
    /// References that outlive the task that brought them.
    pub kept: Vec<Reference>,
    /// Blocks kept for reuse.
    pub cache: Vec<BlockId>,
    /// Blocks whose values the process is writing, or has written and still has.
    pub written: FxHashSet<BlockId>,
    /// Tasks that began here.
    pub begun: FxHashSet<TaskId>,
    /// The content of its progress cell.
    pub last_started: Option<Started>,
    /// Tasks that were pushed to the process and whose reply nobody has read.
    pub assigned: FxHashSet<TaskId>,
    /// Tasks of `assigned` that the process has given back; their owners may not have read that message yet.
    pub given_back: FxHashSet<TaskId>,
    /// Tasks of `assigned` that had to wait here for an argument in another node's memory, or may have had
    /// to: other tasks overtook them.
    pub passed: FxHashSet<TaskId>,
    /// After the process's end: tasks of `assigned` that had not begun here.
    pub unbegun: FxHashSet<TaskId>,
    /// The node's answers to the process's requests, by request number.
    pub answers: FxHashMap<u64, Message>,
    /// Requests sent so far.
    pub questions: u64,
    /// The process has read messages and not checked its timer since; its shell does so after each batch.
    pub has_read: bool,
    /// When its timer is due; zero: not set.
    pub timer_at: u64,
    /// The actor that the node has placed here.
    pub hosts: Option<ActorId>,
    /// The process is in the list of next events.
    pub is_listed: bool,
    /// The process ended in order: it was idle, and no other process needed it.
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

    /// Whether the process takes part in the run.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.life == Life::Running
    }

    /// A fresh task or object number.
    pub fn next_task(&mut self) -> TaskId {
        self.numbers += 1;
        TaskId { owner: self.id, number: self.numbers }
    }

    /// Which of these blocks the process is writing, or keeps for reuse.
    #[must_use]
    pub fn without_value(&self, places: &[Place]) -> Vec<BlockId> {
        let is_here = |block: &BlockId| self.written.contains(block) || self.cache.contains(block);
        places.iter().filter_map(|place| place.block()).filter(is_here).collect()
    }

    /// Drops a reference; the core learns of it at the process's next step.
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

    /// Whether a wait in this process lends its CPU: in workers that run one task at a time.
    #[must_use]
    pub fn lends(&self) -> bool {
        self.places() == 1
    }

    /// Marks the rare states in which a process may end.
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
