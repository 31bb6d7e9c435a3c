//! Messages arrive: at the control service, at a node or a process; also messages of a dead process.

use sooner_protocol::probes::hit;
use sooner_protocol::worker::action::Peer;
use sooner_wire::WorkerId;
use sooner_wire::message::{Message, Route};

use super::describe::{brief, name};
use super::processes::{HEAD, is_node, node_at};
use super::{Item, Next, SimNode, World, number_of};
use crate::violation::fail;

impl World {
    /// Lists a channel if something can be delivered.
    pub fn list(&mut self, number: u32) {
        let channel = self.channels.get(number);
        if channel.is_listed || !channel.has_arrived() {
            return;
        }
        let to = channel.to;
        if is_node(to) || (self.process(to).is_running() && !self.process(to).is_paused) {
            self.channels.get_mut(number).is_listed = true;
            self.next.push(Next::Channel(number));
        }
    }

    pub(super) fn deliver(&mut self, number: u32) {
        let channel = self.channels.get_mut(number);
        channel.is_listed = false;
        let (from, to) = (channel.from, channel.to);
        let can_read = is_node(to) || (self.process(to).is_running() && !self.process(to).is_paused);
        let channel = self.channels.get_mut(number);
        if !can_read || !channel.has_arrived() {
            return;
        }
        let Some(item) = channel.take() else { return };
        if to == HEAD {
            let message = into_message(item);
            assert_route(from, &message, &[Route::NodeToControl, Route::NodeToDirectory]);
            self.deliver_to_head(from, message);
        } else if is_node(from) && is_node(to) {
            self.deliver_between(from, to, into_message(item));
        } else if is_node(to) {
            self.deliver_to_node(from, item);
        } else {
            self.deliver_to(from, to, item);
        }
        self.list(number);
    }

    fn deliver_to_node(&mut self, from: u32, item: Item) {
        self.events += 1;
        let worker = self.process(from).id;
        let now = self.now();
        match item {
            Item::End => {
                self.trace.note(u64::from(from) << 16);
                self.trace.send(|| format!("node hears the end of {from}"));
                let last = self.process(from).last_started;
                let SimNode { core, out, .. } = self.node_mut(from);
                core.on_dead(worker, "was killed", last, out);
            }
            item => {
                let message = into_message(item);
                assert_route(from, &message, &[Route::ProcessToNode]);
                self.trace.note((u64::from(from) << 16) ^ u64::from(message.kind()));
                self.trace.send(|| format!("node <- {from}: {}", brief(&message)));
                let SimNode { core, out, .. } = self.node_mut(from);
                core.on_message(worker, message, now, out);
            }
        }
        // The node places once per batch of what it reads.
        if self.random.chance(1, 2) { self.after_events_of_node(node_at(from)) } else { self.list_node(from) }
    }

    /// A node receives a message from another node, or from the control service.
    fn deliver_between(&mut self, from: u32, to: u32, message: Message) {
        self.events += 1;
        self.trace.note(u64::from(from) ^ (u64::from(to) << 32) ^ (u64::from(message.kind()) << 8));
        self.trace.send(|| format!("{} <- {}: {}", name(to), name(from), brief(&message)));
        let at = node_at(to);
        let from_head = [Route::ControlToNode, Route::DirectoryToNode];
        assert_route(from, &message, if from == HEAD { &from_head } else { &[Route::NodeToNode] });
        if from == HEAD {
            self.receive_from_head(at, message);
        } else {
            self.receive_from_node(from, at, message);
        }
        if self.random.chance(1, 2) { self.after_events_of_node(at) } else { self.list_node_at(at) }
    }

    /// A process reads an item from another process, or from its node.
    pub(super) fn deliver_to(&mut self, from: u32, to: u32, item: Item) {
        let mut message = into_message(item);
        let route = if is_node(from) { Route::NodeToProcess } else { Route::ProcessToProcess };
        assert_route(from, &message, &[route]);
        self.unpack(from, to, &mut message);
        self.trace.note((u64::from(to) << 40) ^ (u64::from(from) << 16) ^ u64::from(message.kind()));
        self.trace.send(|| format!("{to} <- {}: {}", name(from), brief(&message)));
        if is_node(from) {
            match &message {
                Message::PeerConnected(connected) => return self.on_connected(to, connected.worker),
                Message::Shutdown(_) | Message::ExitActor(_) => return self.leave(to),
                Message::EndIdle(_) if !self.process(to).core.is_needed() => {
                    self.process_mut(to).has_retired = true;
                    return self.leave(to);
                }
                Message::TrimBlocks(_) => return self.give_cache_back(to),
                Message::WorkerDead(gone) => {
                    // The messages that a dead process sent are read before its death is believed.
                    self.drain(number_of(gone.worker), to);
                    self.process_mut(to).lines.remove(&number_of(gone.worker));
                    self.answer_what_may_go(to);
                }
                _ => {}
            }
        }
        let is_loss = matches!(message, Message::BlocksLost(_));
        self.receive(from, to, message);
        if is_loss && self.process(to).is_running() {
            // The process may keep one of the lost blocks for reuse, even one that a handle dropped in this
            // very step gave up.
            self.give_cache_back(to);
        }
        self.process_mut(to).has_read = true;
        if self.random.chance(1, 4) {
            self.look_at_timer(to);
        }
        self.touch(to);
    }

    fn receive(&mut self, from: u32, to: u32, message: Message) {
        if !self.process(to).is_running() {
            return;
        }
        self.observe(from, to, &message);
        self.record_read(to, &message);
        let peer = if is_node(from) { Peer::Node } else { Peer::Worker(self.process(from).id) };
        let now = self.now();
        let other = self.with_core(to, |core, out| core.on_message(peer, message, now, out));
        match other {
            Some(Message::Answer(answer)) => {
                self.process_mut(to).answers.insert(answer.request, answer.into());
            }
            Some(Message::GivenBlocks(question)) => self.disown_unknown(to, question),
            Some(Message::ReadersOf(question)) => {
                let kept = self.process(to).without_value(&question.places);
                self.with_core(to, |core, out| core.on_readers_of(question, |b| kept.contains(&b), out));
            }
            _ => {}
        }
    }

    fn drain(&mut self, dead: u32, to: u32) {
        let Some(number) = self.channels.find(dead, to) else { return };
        if !self.channels.get(number).is_open {
            return;
        }
        if self.has_session(dead, to) {
            for item in self.drain_session(dead, to) {
                hit("a message was read after its sender was known to be gone");
                let mut message = into_message(item);
                self.unpack(dead, to, &mut message);
                self.receive(dead, to, message);
            }
            return;
        }
        while let Some(item) = self.channels.get_mut(number).take() {
            hit("a message was read after its sender was known to be gone");
            let message = into_message(item);
            self.trace.send(|| format!("{to} <- {dead} (drained): {}", brief(&message)));
            self.receive(dead, to, message);
        }
    }

    fn on_connected(&mut self, number: u32, peer: WorkerId) {
        let peer = number_of(peer);
        self.process_mut(number).lines.insert(peer);
        let towards = self.channels.number(number, peer);
        self.channels.get_mut(towards).is_connected = true;
        if !self.channels.get(towards).is_dirty {
            self.flush_channel(towards);
        }
        let from = self.channels.number(peer, number);
        self.channels.get_mut(from).is_open = true;
        self.list(from);
        self.look_at_session_of(number, peer);
        self.answer_what_may_go(number);
        self.touch(number);
    }
}

/// A message takes only the routes that its row names. Without this check, a core could silently ignore a
/// message that is not meant for it.
fn assert_route(from: u32, message: &Message, routes: &[Route]) {
    let row = message.row();
    if !routes.iter().any(|route| row.routes.contains(*route)) {
        fail("I14", format!("{} sends {}, which does not go {}", name(from), row.name, routes[0]));
    }
}

pub(super) fn into_message(item: Item) -> Message {
    match item {
        Item::Message(message) => *message,
        Item::Push(spec, dependencies, gpus) => {
            sooner_wire::message::Push { spec: Box::new((*spec).clone()), dependencies, gpus }.into()
        }
        Item::End => unreachable!("only the node reads it"),
    }
}
