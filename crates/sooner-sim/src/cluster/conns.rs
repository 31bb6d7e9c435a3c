//! Connections between nodes and their head, as TCP has them: in order, late, cut, or half open.
//!
//! A message that the network does not carry is sent again, with growing pauses, until it arrives or the
//! connection ends. When a process dies, its machine reports the end to the other side. When a machine is
//! lost, the other side notices only if it sends something after the machine is back.

use std::collections::VecDeque;

use sooner_protocol::time::Instant;
use sooner_wire::message::Message;

use super::daemons::Line;
use super::plan::SECOND;
use super::world::{Event, World};

/// First and longest pause before a message is sent again (nanoseconds).
const AGAIN_NANOS: u64 = SECOND / 5;
const AGAIN_NANOS_MAX: u64 = 16 * SECOND;

/// An item on a connection.
#[derive(Debug)]
enum Packet {
    Say(Box<Message>),
    /// The sender has closed the connection: nothing follows.
    End,
}

#[derive(Debug)]
struct Pipe {
    packets: VecDeque<(Instant, Packet)>,
    is_scheduled: bool,
    has_ended: bool,
    again: u64,
}

impl Default for Pipe {
    fn default() -> Self {
        Self { packets: VecDeque::new(), is_scheduled: false, has_ended: false, again: AGAIN_NANOS }
    }
}

/// Which end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The head's.
    Head,
    /// The node's.
    Node,
}

impl Side {
    fn other(self) -> Self {
        match self {
            Self::Head => Self::Node,
            Self::Node => Self::Head,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Conn {
    /// The daemon that dialled it.
    pub daemon: usize,
    /// Its purpose.
    pub line: Line,
    /// Whether each end has been left: the head's, the node's.
    over: [bool; 2],
    /// Packets on their way to each end.
    pipes: [Pipe; 2],
}

impl Conn {
    pub(super) fn new(daemon: usize, line: Line) -> Self {
        Self { daemon, line, over: [false; 2], pipes: [Pipe::default(), Pipe::default()] }
    }

    /// Whether a process still holds that end.
    #[must_use]
    pub fn is_held(&self, side: Side) -> bool {
        !self.over[side as usize]
    }
}

impl World {
    /// Sends a message to the end `to`.
    pub(super) fn send(&mut self, conn: u64, to: Side, message: Message) {
        let Some(connection) = self.conns.get(&conn) else { return };
        if !connection.is_held(to.other()) || connection.pipes[to as usize].has_ended {
            return;
        }
        self.counts.add(to == Side::Head, &message);
        self.push(conn, to, Packet::Say(Box::new(message)));
    }

    fn push(&mut self, conn: u64, to: Side, packet: Packet) {
        let Some(daemon) = self.conns.get(&conn).map(|connection| connection.daemon) else { return };
        let latency = if self.daemons[daemon].is_own { 0 } else { self.latency() };
        let Some(connection) = self.conns.get_mut(&conn) else { return };
        let pipe = &mut connection.pipes[to as usize];
        // No packet overtakes another one.
        let due = self.now.plus(latency).max(pipe.packets.back().map_or(Instant(0), |(due, _)| *due));
        pipe.has_ended |= matches!(packet, Packet::End);
        pipe.packets.push_back((due, packet));
        if !pipe.is_scheduled {
            pipe.is_scheduled = true;
            self.at(due, Event::Carry(conn, to));
        }
    }

    /// Leaves an end. `is_told`: the machine is still there, and reports it to the other end.
    pub(super) fn leave(&mut self, conn: u64, side: Side, is_told: bool) {
        let Some(connection) = self.conns.get_mut(&conn) else { return };
        if connection.over[side as usize] {
            return;
        }
        connection.over[side as usize] = true;
        if is_told && !connection.pipes[side.other() as usize].has_ended {
            self.push(conn, side.other(), Packet::End);
        }
        self.forget_if_over(conn);
    }

    fn forget_if_over(&mut self, conn: u64) {
        if self.conns.get(&conn).is_some_and(|connection| connection.over == [true, true]) {
            self.conns.shift_remove(&conn);
        }
    }

    /// A packet for an end is due, or is tried again.
    pub(super) fn carry(&mut self, conn: u64, to: Side) {
        let Some(connection) = self.conns.get(&conn) else { return };
        let host = self.daemons[connection.daemon].host;
        let (from_host, to_host) = if to == Side::Head { (host, 0) } else { (0, host) };
        let is_carried = self.is_carried(from_host, to_host);
        let resumes = self.resumes(connection.daemon, to);
        let now = self.now;
        let Some(connection) = self.conns.get_mut(&conn) else { return };
        let is_held = connection.is_held(to);
        let pipe = &mut connection.pipes[to as usize];
        if !is_carried {
            let again = now.plus(pipe.again);
            pipe.again = (pipe.again * 2).min(AGAIN_NANOS_MAX);
            return self.at(again, Event::Carry(conn, to));
        }
        pipe.again = AGAIN_NANOS;
        if !is_held {
            return self.reject(conn, to);
        }
        if let Some(resumes) = resumes {
            return self.at(resumes, Event::Carry(conn, to));
        }
        let pipe = &mut connection.pipes[to as usize];
        let Some((due, packet)) = pipe.packets.pop_front() else {
            pipe.is_scheduled = false;
            return;
        };
        if due > now {
            pipe.packets.push_front((due, packet));
            return self.at(due, Event::Carry(conn, to));
        }
        match pipe.packets.front().map(|(next, _)| *next) {
            Some(next) => self.at(next.max(now), Event::Carry(conn, to)),
            None => pipe.is_scheduled = false,
        }
        self.hand_up(conn, to, packet);
    }

    fn hand_up(&mut self, conn: u64, to: Side, packet: Packet) {
        match (to, packet) {
            (Side::Head, Packet::Say(message)) => self.head_receives(conn, *message),
            (Side::Node, Packet::Say(message)) => self.daemon_receives(conn, *message),
            (Side::Head, Packet::End) => {
                self.head_loses(conn);
                self.leave(conn, Side::Head, true);
            }
            (Side::Node, Packet::End) => {
                let found = self.conns.get(&conn).map(|connection| (connection.daemon, connection.line));
                self.leave(conn, Side::Node, true);
                if let Some((daemon, line)) = found {
                    self.daemon_loses(daemon, line, conn);
                }
            }
        }
    }

    /// A packet has come to an end that no process holds: the machine reports that to the sender.
    fn reject(&mut self, conn: u64, to: Side) {
        let Some(connection) = self.conns.get_mut(&conn) else { return };
        let pipe = &mut connection.pipes[to as usize];
        pipe.packets.clear();
        pipe.is_scheduled = false;
        let is_known = connection.pipes[to.other() as usize].has_ended;
        if !is_known {
            self.push(conn, to.other(), Packet::End);
        }
        self.forget_if_over(conn);
    }

    /// Resets a connection at both ends.
    pub(super) fn cut(&mut self, conn: u64) {
        for to in [Side::Head, Side::Node] {
            let Some(connection) = self.conns.get_mut(&conn) else { return };
            let pipe = &mut connection.pipes[to as usize];
            pipe.packets.clear();
            pipe.has_ended = false;
            self.push(conn, to, Packet::End);
        }
    }
}
