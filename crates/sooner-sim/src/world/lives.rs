//! Processes start, stop, continue and end.

use sooner_protocol::node::Room;
use sooner_protocol::probes::hit;
use sooner_protocol::worker::WorkerCore;
use sooner_wire::limits::{LEASE_ARGUMENT_SHARE, START_PATIENCE_NANOS};
use sooner_wire::message::{FreeBlocks, GivenBlocks, Place, TrimBlocks, UnknownBlocks};

use super::blocks::BLOCK_BYTES;
use super::node::SEVERAL;
use super::processes::node_of;
use super::{Blocks, Item, Life, Next, SimNode, World};
use crate::oracle::Oracle;
use crate::plan::{Fault, Plan};
use crate::random::Random;

/// Whether tasks and calls wait at their submitter while others have large arguments. A generator of its own
/// decides it, so that the rest of the run stays the same.
fn holds_back(plan: &Plan) -> bool {
    plan.breaks(Fault::Full) && Random::new(plan.seed ^ 0x5eed_0000_0000_0006).chance(1, 2)
}

/// Whether copies of objects out of reference stay until there is no room: in every other run of several
/// nodes. A generator of its own decides it, too.
pub(super) fn unpins(plan: &Plan) -> bool {
    plan.nodes > 1 && Random::new(plan.seed ^ 0x5eed_0000_0000_0007).chance(1, 2)
}

/// Whether nodes now and then lack a resource for processes, for long. Such a generator decides it, too.
fn lacks(plan: &Plan) -> bool {
    plan.breaks(Fault::FailedStart) && Random::new(plan.seed ^ 0x5eed_0000_0000_00f1).chance(1, 8)
}

/// In such a run, a failed start begins a lack if the process's number is a multiple of this.
const LACKS_EVERY: u32 = 8;

/// How long a lack lasts (nanoseconds): long enough for several demands in a row.
const LACKS_NANOS: u64 = 4 * START_PATIENCE_NANOS;

impl World {
    /// A driver starts on a node.
    pub(super) fn start_driver(&mut self, at: usize) {
        let worker = self.nodes[at].core.new_worker_id();
        let driver = self.processes.add(worker, true);
        self.connect(driver);
        if self.head.is_some() {
            let SimNode { core, out, .. } = &mut self.nodes[at];
            core.member().expect(SEVERAL).on_job(worker, Box::default(), out);
        }
        self.begin_program(driver);
    }

    pub(super) fn connect(&mut self, number: u32) {
        let now = self.now();
        let worker = self.process(number).id;
        self.process_mut(number).life = Life::Running;
        if holds_back(&self.plan) {
            // The store is so small that one value fills the share that may wait at another process.
            self.process_mut(number).core.set_store_bytes(LEASE_ARGUMENT_SHARE * BLOCK_BYTES);
        }
        if unpins(&self.plan) {
            self.process_mut(number).core.ownership_mut().unpin_lazily();
        }
        self.node_mut(number).core.on_connected(worker, number, now);
        self.events += 1;
        self.define_function(number);
        self.list_node(number);
    }

    pub(super) fn finish_start(&mut self, number: u32) {
        if self.process(number).life != Life::Starting {
            return;
        }
        let worker = self.process(number).id;
        let now = self.now();
        let lacks = self.node(number).lacks_until.is_some_and(|until| now < until);
        let fails =
            lacks || (self.has_faults() && self.plan.breaks(Fault::FailedStart) && self.random.chance(1, 4));
        if fails && !lacks && number.is_multiple_of(LACKS_EVERY) && self::lacks(&self.plan) {
            // From now on the node lacks a resource for longer than any request waits.
            self.oracle.lacks += 1;
            self.node_mut(number).lacks_until = Some(now.plus(LACKS_NANOS));
        }
        if !fails {
            self.trace.send(|| format!("{number} comes up"));
            self.connect(number);
            return self.touch(number);
        }
        hit("a worker process did not come up");
        self.process_mut(number).life = Life::Ended;
        self.trace.send(|| format!("{number} does not come up"));
        // Either the fork failed, or the process died before it said hello.
        let is_forked = !self.random.chance(1, 2);
        let SimNode { core, out, .. } = self.node_mut(number);
        if is_forked {
            hit("a worker process died before it said hello");
            core.on_dead(worker, "died at its start", None, out);
        } else {
            core.on_start_failed(worker, "no more processes", out);
        }
        self.events += 1;
        self.list_node(number);
    }

    /// Lists a process if it has something to do.
    pub fn touch(&mut self, number: u32) {
        let process = self.process(number);
        if process.is_listed || !process.is_running() || process.is_paused {
            return;
        }
        if self.has_work(number) {
            self.process_mut(number).is_listed = true;
            self.next.push(Next::Process(number));
        }
    }

    /// Kills a process: its buffers are lost, but for those that were flushed just before.
    pub fn kill(&mut self, number: u32, how: &str) {
        self.end_process(number, how, true);
    }

    /// `is_reset`: the kernel resets its connections because it left messages unread.
    fn end_process(&mut self, number: u32, how: &str, is_reset: bool) {
        if !self.process(number).is_running() {
            return;
        }
        self.trace.note(0xdead ^ u64::from(number));
        self.trace.send(|| format!("*** {number} {how}"));
        let dirty = self.take_dirty(number);
        let flushed = self.random.below(dirty.len() + 1);
        for (at, channel) in dirty.into_iter().enumerate() {
            self.channels.get_mut(channel).is_dirty = false;
            if at < flushed {
                self.flush_channel(channel);
            }
        }
        for other in self.processes.numbers() {
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
        // Otherwise the end of its sessions would release answers that it never gave, and its own end would
        // stay behind them, unread.
        self.process_mut(number).held_back.clear();
        self.abandon_sessions(number, is_reset);
        self.record_death(number);
        let process = self.process_mut(number);
        process.life = Life::Ended;
        process.frames.clear();
        process.kept.clear();
        process.dropped.clear();
        process.instance = None;
        process.core = WorkerCore::new(process.id);
        let channel = self.channels.number(number, node_of(number));
        self.channels.get_mut(channel).queue.push_back(Item::End);
        self.channels.get_mut(channel).sent += 1;
        self.list(channel);
    }

    /// A process ends as its node has asked.
    pub(super) fn leave(&mut self, number: u32) {
        if self.random.chance(3, 4) {
            self.flush(number);
        }
        self.end_process(number, "leaves", false);
    }

    pub(super) fn resume(&mut self, number: u32) {
        if !self.process(number).is_paused {
            return;
        }
        self.process_mut(number).is_paused = false;
        self.trace.send(|| format!("{number} goes on"));
        for other in self.processes.numbers() {
            if let Some(channel) = self.channels.find(other, number) {
                self.list(channel);
            }
        }
        self.resume_sessions(number);
        self.look_at_timer(number);
        self.touch(number);
    }

    pub(super) fn end_faults(&mut self) {
        for number in 0..self.channels.len() {
            let number = u32::try_from(number).expect("few channels");
            self.channels.get_mut(number).is_stalled = false;
            self.list(number);
        }
        for number in self.processes.numbers() {
            self.resume(number);
        }
    }

    /// The program is over: references that processes kept for themselves are dropped.
    pub(super) fn sweep(&mut self) {
        for number in self.processes.numbers() {
            if !self.process(number).is_running() {
                continue;
            }
            self.end_cycle(number);
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

    /// An actor's checkpoint and the calls since then may refer back to the actor: then the program has to
    /// end the actor.
    fn end_cycle(&mut self, number: u32) {
        let Some(instance) = &self.process(number).instance else { return };
        let actor = instance.actor;
        if instance.has_checkpoints && self.oracle.actors[&actor].may_hold_itself {
            self.with_core(number, |core, out| core.kill_actor(actor, "the actor", false, out));
        }
    }

    /// Processes give back the blocks that they keep for reuse, and nodes the copies that they would keep
    /// until there is no room.
    pub(super) fn trim(&mut self) {
        for number in self.processes.numbers() {
            self.send_from_node(number, Item::Message(Box::new(TrimBlocks { moves: None }.into())));
        }
        if unpins(&self.plan) {
            for at in 0..self.nodes.len() {
                let SimNode { core, out, .. } = &mut self.nodes[at];
                core.spill_ahead(Room::of(u64::MAX), Blocks::length_in_memory, out);
                self.list_node_at(at);
            }
        }
    }

    pub(super) fn give_cache_back(&mut self, number: u32) {
        let blocks = std::mem::take(&mut self.process_mut(number).cache);
        if !blocks.is_empty() {
            let places = blocks.into_iter().map(Place::from).collect();
            self.send(number, node_of(number), Item::Message(Box::new(FreeBlocks { places }.into())));
        }
        self.touch(number);
    }

    /// Returns the blocks of a dead worker that were given to this process and that it never learned of.
    pub(super) fn disown_unknown(&mut self, number: u32, question: GivenBlocks) {
        let GivenBlocks { giver, mut places } = question;
        let known = self.process(number).without_value(&places);
        places.retain(|place| !place.block().is_some_and(|block| known.contains(&block)));
        if !places.is_empty() {
            hit("a block was given to a process that never heard of it");
            self.send(
                number,
                node_of(number),
                Item::Message(Box::new(UnknownBlocks { giver, places }.into())),
            );
        }
    }
}
