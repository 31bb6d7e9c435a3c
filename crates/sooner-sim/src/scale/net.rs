//! Sessions between nodes, and between nodes and the head: messages arrive in order, and none is lost while
//! both ends live. A network that does not carry a message delivers it later.

use std::collections::VecDeque;

use sooner_protocol::time::Instant;
use sooner_wire::message::Message;

use super::counts::Way;
use super::meter::Meter;
use super::plan::SECOND;
use super::world::{Event, World};

/// The number that stands for the head as an end.
pub const HEAD: usize = usize::MAX;

/// How soon a session tries the network again (nanoseconds).
const AGAIN_NANOS: u64 = SECOND / 20;

/// One direction between two ends.
#[derive(Debug, Default)]
pub struct Channel {
    queue: VecDeque<(Instant, Box<Message>)>,
    is_scheduled: bool,
}

/// A network that holds back messages between two sides, until then.
#[derive(Debug, Clone)]
pub struct Split {
    /// By place: whether the machine is on the first side.
    pub one_side: Vec<bool>,
    /// When the split ends.
    pub until: Instant,
}

impl World {
    fn place_of(&self, end: usize) -> usize {
        if end == HEAD { 0 } else { self.nodes[end].place }
    }

    /// Whether the network carries messages between two places now.
    pub(super) fn is_carried(&self, from: usize, to: usize) -> bool {
        let now = self.now;
        let apart = |split: &Split| now < split.until && split.one_side[from] != split.one_side[to];
        from == to || !self.splits.iter().any(apart)
    }

    /// One end sends a message to another.
    pub(super) fn send(&mut self, from: usize, to: usize, message: Message) {
        let (way, ends) = match (from, to) {
            (HEAD, to) => (Way::FromHead, [to, to]),
            (from, HEAD) => (Way::ToHead, [from, from]),
            ends => (Way::Between, ends.into()),
        };
        let begun = self.meter.as_ref().map(Meter::begin);
        let frame = self.counts.add(way, &message, ends);
        if let (Some(meter), Some(begun)) = (&mut self.meter, begun) {
            meter.coded(way, frame, begun);
        }
        let is_near = self.place_of(from) == self.place_of(to);
        let latency = if is_near { 10_000 } else { self.latency() };
        let channel = self.channels.entry((from, to)).or_default();
        // No message overtakes another one.
        let due = self.now.plus(latency).max(channel.queue.back().map_or(Instant(0), |(due, _)| *due));
        channel.queue.push_back((due, Box::new(message)));
        if !std::mem::replace(&mut channel.is_scheduled, true) {
            self.at(due, Event::Carry(from, to));
        }
    }

    /// The latency of a small message (nanoseconds).
    pub(super) fn latency(&mut self) -> u64 {
        let usual = self.plan.latency;
        usual + self.random.below(1 + usual as usize / 2) as u64
    }

    /// A message is due, or is tried again.
    pub(super) fn carry(&mut self, from: usize, to: usize) {
        let is_carried = self.is_carried(self.place_of(from), self.place_of(to));
        let is_known = from == HEAD || to == HEAD || self.nodes[to].knows(self.nodes[from].id);
        let now = self.now;
        if self.is_over(from, to, is_known) {
            self.channels.swap_remove(&(from, to));
            return;
        }
        let Some(channel) = self.channels.get_mut(&(from, to)) else { return };
        if !is_carried || !is_known {
            return self.at(now.plus(AGAIN_NANOS), Event::Carry(from, to));
        }
        let Some((due, _)) = channel.queue.front() else {
            channel.is_scheduled = false;
            return;
        };
        if *due > now {
            let due = *due;
            return self.at(due, Event::Carry(from, to));
        }
        let Some((_, message)) = channel.queue.pop_front() else { return };
        match channel.queue.front().map(|(next, _)| *next) {
            Some(next) => self.at(next.max(now), Event::Carry(from, to)),
            None => channel.is_scheduled = false,
        }
        self.trace.note((from as u64).rotate_left(20) ^ (to as u64) ^ (u64::from(message.kind()) << 44));
        match (from, to) {
            (from, HEAD) => self.head_receives(from, *message),
            (HEAD, to) => self.node_receives_head(to, *message),
            (from, to) => self.node_receives_node(to, from, *message),
        }
    }

    /// Whether no message of this channel can be received any more.
    fn is_over(&self, from: usize, to: usize, is_known: bool) -> bool {
        let runs = |end: usize| end == HEAD || self.nodes[end].runs();
        let is_buried = || from != HEAD && to != HEAD && self.nodes[to].has_buried(self.nodes[from].id);
        !runs(to) || is_buried() || (!runs(from) && !is_known)
    }

    /// Ends all sessions of an end. Other nodes still receive a dead node's messages, up to a random point.
    pub(super) fn end_sessions_of(&mut self, end: usize) {
        let its: Vec<(usize, usize)> =
            self.channels.keys().copied().filter(|(from, to)| *from == end || *to == end).collect();
        for key in its {
            if key.0 == end && end != HEAD && key.1 != HEAD {
                // The receiver reads the dead node's messages until their connection ends.
                let length = self.channels[&key].queue.len();
                let kept = self.random.below(length + 1);
                self.channels[&key].queue.truncate(kept);
            } else {
                self.channels.swap_remove(&key);
            }
        }
    }

    /// Ends the session of two ends.
    pub(super) fn end_session(&mut self, one: usize, other: usize) {
        self.channels.swap_remove(&(one, other));
        self.channels.swap_remove(&(other, one));
    }

    /// The nodes that have a session with this one.
    pub(super) fn peers_of(&self, node: usize) -> Vec<usize> {
        let with = |(from, to): &(usize, usize)| match (*from == node, *to == node) {
            (true, false) => Some(*to),
            (false, true) => Some(*from),
            _ => None,
        };
        let mut peers: Vec<usize> =
            self.channels.keys().filter_map(with).filter(|peer| *peer != HEAD).collect();
        peers.sort_unstable();
        peers.dedup();
        peers
    }
}
