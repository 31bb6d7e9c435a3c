//! Lines between processes as between machines: sessions over connections that are cut and made again.
//!
//! All lines between processes of different nodes are sessions. With [`Fault::Cuts`] all lines between
//! processes are, and are cut. What a dying process has sent arrives unless its connection is cut, or the
//! kernel resets it because of unread messages. A process and its node never use a session.

use rustc_hash::FxHashMap;
use sooner_protocol::probes::hit;

use super::{Item, Next, Wake, World, is_node, node_of};
use crate::lines::Line;
use crate::plan::Fault;
use crate::violation::fail;

/// Bytes of frames, in turns: small ones, and one large enough to make acknowledgements fall due by bytes.
const FRAME_BYTES: [u64; 3] = [100, 3_000, 120_000];

/// A line, and the processes at its ends.
pub struct Session {
    line: Line<Item>,
    ends: [u32; 2],
    is_listed: bool,
    /// When the timer of each end is due; zero: never.
    timers: [u64; 2],
    /// One of the processes is dead, and the other one knows it.
    is_over: bool,
}

/// All sessions of a world.
#[derive(Default)]
pub struct Sessions {
    numbers: FxHashMap<(u32, u32), u32>,
    all: Vec<Session>,
}

/// What a session may do next.
#[derive(Clone, Copy)]
enum Turn {
    Deliver(usize, usize),
    Dial(usize),
}

impl World {
    /// Whether messages between these two processes go over a session.
    pub(super) fn has_session(&self, one: u32, other: u32) -> bool {
        let is_far = node_of(one) != node_of(other);
        (is_far || self.plan.breaks(Fault::Cuts)) && !is_node(one) && !is_node(other)
    }

    fn session(&mut self, one: u32, other: u32) -> (usize, usize) {
        let ends = [one.min(other), one.max(other)];
        let all = &mut self.sessions.all;
        let number = *self.sessions.numbers.entry((ends[0], ends[1])).or_insert_with(|| {
            all.push(Session { line: Line::new(), ends, is_listed: false, timers: [0; 2], is_over: false });
            u32::try_from(all.len() - 1).expect("few lines")
        });
        (number as usize, usize::from(ends[0] != one))
    }

    /// Moves the items of a channel into the session.
    pub(super) fn send_over_session(&mut self, channel: u32) {
        let channel = self.channels.get_mut(channel);
        let (from, to) = (channel.from, channel.to);
        let items: Vec<Item> = channel.queue.drain(..).collect();
        let now = self.now();
        let (number, index) = self.session(from, to);
        for item in items {
            let bytes = FRAME_BYTES[(self.steps % 3) as usize];
            let said = self.sessions.all[number].line.send(index, item, bytes, now);
            Self::must(said);
        }
        self.look_at_session(number);
    }

    fn must<R>(result: Result<R, String>) -> R {
        result.unwrap_or_else(|wrong| fail(wrong.split(':').next().unwrap_or_default(), wrong.clone()))
    }

    /// An end has just been connected, or a stopped process continues.
    pub(super) fn look_at_session_of(&mut self, one: u32, other: u32) {
        if self.has_session(one, other) {
            let (number, _) = self.session(one, other);
            self.look_at_session(number);
        }
    }

    /// A stopped process continues.
    pub(super) fn resume_sessions(&mut self, number: u32) {
        for at in 0..self.sessions.all.len() {
            if self.sessions.all[at].ends.contains(&number) {
                self.look_at_session(at);
            }
        }
    }

    /// Lists a session if an event may happen in it, and sets its timers.
    fn look_at_session(&mut self, number: usize) {
        let session = &self.sessions.all[number];
        if session.is_over {
            return;
        }
        let do_both_live = session.ends.iter().all(|end| self.process(*end).is_running());
        if let Some(reason) = session.line.ends.iter().find_map(|end| end.ended.as_ref()) {
            let how = if do_both_live { "although both live" } else { "before its end is told" };
            fail("I1", format!("the session of {:?} ends {how}: {reason}", session.ends));
        }
        if !session.is_listed && self.turns_of(number).next().is_some() {
            self.sessions.all[number].is_listed = true;
            self.next.push(Next::Session(number));
        }
        for index in 0..2 {
            self.set_session_timer(number, index);
            self.answer_what_may_go(self.sessions.all[number].ends[index]);
        }
    }

    /// The position behind the last message that a process has sent over its session with another one.
    pub(super) fn position(&mut self, from: u32, to: u32) -> u64 {
        let (number, index) = self.session(from, to);
        self.sessions.all[number].line.ends[index].link.position()
    }

    /// Whether the receiver has acknowledged messages up to `position`, or one end is known to be dead.
    pub(super) fn has_come(&mut self, from: u32, to: u32, position: u64) -> bool {
        let (number, index) = self.session(from, to);
        let session = &self.sessions.all[number];
        session.is_over || session.line.ends[index].link.is_acknowledged(position)
    }

    fn set_session_timer(&mut self, number: usize, index: usize) {
        let session = &self.sessions.all[number];
        let Some(due) = session.line.ends[index].link.next_deadline() else { return };
        let is_set = session.timers[index] != 0 && session.timers[index] <= due.0;
        if is_set || !self.process(session.ends[index]).is_running() {
            return;
        }
        self.sessions.all[number].timers[index] = due.0;
        let nanos = due.since(self.now()) + 1;
        self.wake_in(nanos, Wake::Session(number, index));
    }

    pub(super) fn wake_session(&mut self, number: usize, index: usize) {
        let now = self.now();
        let session = &mut self.sessions.all[number];
        if session.timers[index] > now.0 {
            // This timer was replaced by an earlier one, and the session waits for a later time now.
            return;
        }
        session.timers[index] = 0;
        let process = session.ends[index];
        if session.is_over || !self.process(process).is_running() || self.process(process).is_paused {
            return;
        }
        let fired = self.sessions.all[number].line.on_timer(index, now);
        Self::must(fired);
        self.look_at_session(number);
    }

    /// What may happen to a session now.
    fn turns_of(&self, number: usize) -> impl Iterator<Item = Turn> {
        let session = &self.sessions.all[number];
        let is_awake = move |index: usize| {
            let process = self.process(session.ends[index]);
            process.is_running() && !process.is_paused
        };
        let may_read = move |index: usize| {
            let (to, from) = (session.ends[index], session.ends[1 - index]);
            let channel = self.channels.find(from, to);
            is_awake(index) && channel.is_some_and(|channel| self.channels.get(channel).is_open)
        };
        let dials = (0..2).filter(move |index| session.line.ends[*index].may_dial && is_awake(*index));
        let arrivals = session.line.arrivals().filter(move |(_, to)| may_read(*to));
        dials.map(Turn::Dial).chain(arrivals.map(|(wire, to)| Turn::Deliver(wire, to)))
    }

    pub(super) fn take_turn_of_session(&mut self, number: usize) {
        self.sessions.all[number].is_listed = false;
        if self.sessions.all[number].is_over {
            return;
        }
        let turns: Vec<Turn> = self.turns_of(number).collect();
        if turns.is_empty() {
            return;
        }
        let now = self.now();
        match turns[self.random.below(turns.len())] {
            Turn::Dial(index) => self.dial_session(number, index),
            Turn::Deliver(wire, to) => {
                let session = &mut self.sessions.all[number];
                let (process, from) = (session.ends[to], session.ends[1 - to]);
                let arrived = Self::must(session.line.deliver(wire, to, now));
                if let Some(item) = arrived {
                    self.deliver_to(from, process, item);
                } else {
                    self.touch(process);
                }
            }
        }
        self.look_at_session(number);
    }

    fn dial_session(&mut self, number: usize, index: usize) {
        let now = self.now();
        let fails = self.has_faults() && self.plan.breaks(Fault::Cuts) && self.random.chance(1, 4);
        let line = &mut self.sessions.all[number].line;
        if fails {
            hit("a line could not be made");
            line.dial_fails(index, now);
        } else {
            Self::must(line.dialled(index, now));
        }
    }

    /// Cuts one connection of some session.
    pub fn cut_a_connection(&mut self) {
        let live = self.sessions.all.iter().enumerate().filter(|(_, session)| !session.is_over);
        let cuts: Vec<(usize, usize, [bool; 2])> = live
            .flat_map(|(number, session)| session.line.cuts().map(move |(wire, loses)| (number, wire, loses)))
            .collect();
        if cuts.is_empty() {
            return;
        }
        let (number, wire, loses) = cuts[self.random.below(cuts.len())];
        let now = self.now();
        let session = &mut self.sessions.all[number];
        self.trace.send(|| format!("*** the line of {:?} is cut, losing {loses:?}", session.ends));
        if loses.contains(&true) {
            hit("a line was cut with messages on their way");
        }
        session.line.cut(wire, loses, now);
        self.look_at_session(number);
    }

    /// Whether all that a process has sent over sessions to living processes is acknowledged.
    pub fn is_all_acknowledged(&self, number: u32) -> bool {
        if self.sessions.all.is_empty() {
            return true;
        }
        self.sessions.all.iter().filter(|session| !session.is_over).all(|session| {
            let Some(index) = session.ends.iter().position(|end| *end == number) else { return true };
            let link = &session.line.ends[index].link;
            !self.process(session.ends[1 - index]).is_running() || link.is_acknowledged(link.position())
        })
    }

    /// A process ends: its messages arrive, unless the connection is cut or reset.
    pub(super) fn abandon_sessions(&mut self, number: u32, is_reset: bool) {
        let now = self.now();
        for at in 0..self.sessions.all.len() {
            let session = &mut self.sessions.all[at];
            let Some(index) = session.ends.iter().position(|end| *end == number) else { continue };
            let live = session.line.cuts().find(|(_, loses)| loses[1 - index]);
            if let Some((wire, loses)) = live
                && is_reset
                && self.random.chance(1, 2)
            {
                hit("what a process had sent was lost with its connection");
                session.line.cut(wire, loses, now);
            }
            session.line.abandon(index);
            self.look_at_session(at);
        }
    }

    /// A receiver learns that the sender is dead: it reads the messages left on the line, which is over.
    pub(super) fn drain_session(&mut self, dead: u32, to: u32) -> Vec<Item> {
        let now = self.now();
        let (number, index) = self.session(to, dead);
        let session = &mut self.sessions.all[number];
        let mut read = Vec::new();
        loop {
            let next = session.line.arrivals().find(|(_, at)| *at == index);
            let Some((wire, _)) = next else { break };
            read.extend(Self::must(session.line.deliver(wire, index, now)));
        }
        session.is_over = true;
        read
    }
}
