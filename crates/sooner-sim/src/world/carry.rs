//! Performs the actions of worker cores as the shell does: in order, through buffers, with timers.

use sooner_protocol::probes::hit;
use sooner_protocol::session::{Turn, goes_behind};
use sooner_protocol::worker::WorkerCore;
use sooner_protocol::worker::action::{Action, Actions, Peer};
use sooner_protocol::worker::memory::given_with;
use sooner_wire::WorkerId;
use sooner_wire::message::{Connect, FreeBlocks, Message};

use super::deliver::into_message;
use super::{CACHE_MAX, EVENTS_MAX, Item, Life, Wake, World, is_node, node_of, number_of};
use crate::oracle::Oracle;
use crate::plan::Fault;
use crate::violation::fail;

impl World {
    /// Runs `work` on a core and performs the actions that result, as the shell does.
    pub fn with_core<R>(&mut self, number: u32, work: impl FnOnce(&mut WorkerCore, &mut Actions) -> R) -> R {
        self.events += 1;
        if self.events > EVENTS_MAX {
            fail("I1", format!("the run does not end: {}", self.describe()));
        }
        let mut out = std::mem::take(&mut self.actions);
        let process = self.processes.get_mut(number);
        if !process.dropped.is_empty() {
            let dropped = std::mem::take(&mut process.dropped);
            process.core.on_handles_dropped(&dropped, &mut out);
        }
        let result = work(&mut process.core, &mut out);
        if !self.process(number).is_running() {
            // The process has just died: the rest of its frame has no effect.
            out.clear();
        }
        let cut = self.cut_in(number, out.len());
        for (at, action) in out.drain(..).enumerate() {
            if cut.is_some_and(|cut| at >= cut) {
                Self::lose_action(action);
            } else {
                self.perform(number, action);
            }
        }
        self.actions = out;
        if cut.is_some() {
            self.kill(number, "was killed while it sent");
        }
        while let Some(item) = self.loopback.pop_front() {
            self.deliver_to_self(number, item);
        }
        if let Some(ending) = self.ending.pop() {
            self.flush(ending);
            self.kill(ending, "was ended by force");
        }
        self.arm_timer(number);
        result
    }

    /// Sets a process's timer to the deadline of its core, after everything that is done with the core.
    fn arm_timer(&mut self, number: u32) {
        let process = self.processes.get_mut(number);
        let Some(due) = process.core.next_deadline() else { return };
        if !process.is_running() || (process.timer_at != 0 && process.timer_at <= due.0) {
            return;
        }
        process.timer_at = due.0;
        let late = if self.plan.breaks(Fault::LateTimers) { self.random.below(30_000_000) as u64 } else { 0 };
        self.wake_in(due.since(self.now()) + late + 1, Wake::Timer(number));
    }

    /// An action that a process died before performing.
    fn lose_action(action: Action) {
        if let Action::Send { message, .. } = action {
            Oracle::on_lost([&Item::Message(message)]);
        }
    }

    fn deliver_to_self(&mut self, number: u32, item: Item) {
        if !self.process(number).is_running() {
            return;
        }
        let message = into_message(item);
        let now = self.now();
        let me = Peer::Worker(self.process(number).id);
        self.with_core(number, |core, out| core.on_message(me, message, now, out));
    }

    fn perform(&mut self, number: u32, action: Action) {
        match action {
            Action::Send { to: Peer::Node, message } => {
                let written = &mut self.process_mut(number).written;
                given_with(&message, |block| _ = written.remove(&block));
                if goes_behind(&message) {
                    return self.answer_in_time(number, message);
                }
                self.send(number, node_of(number), Item::Message(message));
            }
            Action::Send { to: Peer::Worker(to), message } => {
                if let Message::TasksReturned(returned) = &*message {
                    self.process_mut(number).given_back.extend(&returned.tasks);
                }
                self.send_to_peer(number, to, Item::Message(message));
            }
            Action::Push { worker, spec, dependencies, gpus } => {
                self.oracle.on_pushed(spec.task);
                let to = number_of(worker);
                if self.process(to).is_running() {
                    self.process_mut(to).assigned.insert(spec.task);
                } else {
                    self.record_late_push(to, spec.task);
                }
                self.send_to_peer(number, worker, Item::Push(spec, dependencies, gpus));
            }
            Action::FreeBlock(location) => {
                let process = self.process_mut(number);
                let block = location.place().block().expect("its values are in memory");
                process.written.remove(&block);
                process.cache.push(block);
                if process.cache.len() > CACHE_MAX {
                    let places = vec![process.cache.remove(0).into()];
                    self.send(number, node_of(number), Item::Message(Box::new(FreeBlocks { places }.into())));
                }
            }
            Action::Interrupt { task, force } => {
                let process = self.process_mut(number);
                let mut runs = false;
                for frame in process.frames.iter_mut().filter(|frame| frame.task == Some(task)) {
                    frame.is_interrupted = true;
                    runs = true;
                }
                if force && runs {
                    hit("a task was cancelled by ending its process");
                    self.ending.push(number);
                }
            }
            Action::Ready(_) | Action::Warn(_) => {}
        }
    }

    fn send_to_peer(&mut self, from: u32, to: WorkerId, item: Item) {
        let to = number_of(to);
        if to == from {
            return self.loopback.push_back(item);
        }
        if self.process_mut(from).lines.insert(to) {
            let worker = self.process(to).id;
            self.send(from, node_of(from), Item::Message(Box::new(Connect { worker }.into())));
        }
        if self.process(to).life == Life::Ended {
            hit("a message went to a process that was gone");
            Oracle::on_lost([&item]);
            return;
        }
        if self.process(to).is_paused && matches!(item, Item::Push(..)) {
            hit("a stopped process was sent a task");
        }
        let item = self.pack(from, to, item);
        self.send(from, to, item);
    }

    /// Makes locations in a message to another node valid there.
    fn pack(&self, from: u32, to: u32, item: Item) -> Item {
        if node_of(from) == node_of(to) {
            return item;
        }
        let mut message = into_message(item);
        message.globalise(self.process(from).id.node());
        Item::Message(Box::new(message))
    }

    /// Makes locations in a message from another node local again.
    pub(super) fn unpack(&self, from: u32, to: u32, message: &mut Message) {
        if node_of(from) != node_of(to) {
            message.localise_from(self.process(from).id, self.process(to).id.node());
        }
    }

    /// Puts an item into a sender's buffer.
    pub fn send(&mut self, from: u32, to: u32, item: Item) {
        let item = self.through_the_wire(item);
        let number = self.channels.number(from, to);
        let channel = self.channels.get_mut(number);
        channel.queue.push_back(item);
        let gathers = !is_node(from) && self.plan.breaks(Fault::Gather);
        if !gathers {
            self.flush_channel(number);
        } else if !channel.is_dirty {
            channel.is_dirty = true;
            let order = &mut self.process_mut(from).dirty;
            if is_node(to) { order.mark_node() } else { order.mark(number) }
        }
    }

    /// Checks that a message can be decoded: on a sample, since this costs more than all the rest.
    fn through_the_wire(&mut self, item: Item) -> Item {
        if !self.steps.is_multiple_of(61) {
            return item;
        }
        let message = into_message(item);
        let mut bytes = Vec::new();
        message.append(&mut bytes, 0);
        let head = sooner_wire::frame::whole_frame(&bytes).expect("fits").expect("whole");
        let body = &bytes[sooner_wire::frame::HEAD_BYTES..];
        Item::Message(Box::new(Message::decode(head.kind, body).expect("what was written can be read")))
    }

    pub(super) fn flush_channel(&mut self, number: u32) {
        let channel = self.channels.get_mut(number);
        if !channel.is_connected {
            return;
        }
        let (from, to) = (channel.from, channel.to);
        if self.has_session(from, to) {
            return self.send_over_session(number);
        }
        let channel = self.channels.get_mut(number);
        channel.sent = channel.queue.len();
        self.list(number);
    }

    /// The channels that a process must flush, in order. A node's socket is never full here.
    pub(super) fn take_dirty(&mut self, number: u32) -> Vec<u32> {
        let to_node = self.channels.number(number, node_of(number));
        let order = &mut self.process_mut(number).dirty;
        order.begin();
        let turns = std::iter::from_fn(|| order.take_turn());
        turns
            .map(|turn| match turn {
                Turn::Node => to_node,
                Turn::Other(channel) => channel,
            })
            .collect()
    }

    /// Flushes all buffers of a process.
    pub fn flush(&mut self, number: u32) {
        for channel in self.take_dirty(number) {
            self.channels.get_mut(channel).is_dirty = false;
            self.flush_channel(channel);
        }
    }

    /// Fires a process's timer: idle leases go back.
    pub fn look_at_timer(&mut self, number: u32) {
        if !self.process(number).is_running() || self.process(number).is_paused {
            return;
        }
        let now = self.now();
        self.process_mut(number).has_read = false;
        self.with_core(number, |core, out| core.on_timer(now, out));
        self.touch(number);
    }
}
