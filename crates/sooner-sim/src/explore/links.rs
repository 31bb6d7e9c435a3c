//! A session by itself: two ends, connections that are cut anywhere and lose messages on their way, dials
//! that fail or are repeated, and ends at any time.
//!
//! Time passes only when a timer fires, so that a late hello meets every state.

use sooner_protocol::probes::{Bug, switch};
use sooner_protocol::time::Instant;
use sooner_wire::limits::{HANDSHAKE_NANOS, LINK_BUFFER_BYTES_MAX, LINK_PATIENCE_NANOS};

use super::plain::{self, Model};
use super::search::Found;
use super::world::Violation;
use crate::lines::Line;

/// The time of all events but timers.
const NOW: Instant = Instant(0);
/// Steps of a walk at most.
const WALK_STEPS: u64 = 8000;
/// Reasons for an end that are no sign of a defect.
const GOOD_REASONS: &[&str] = &["was ended", "there was no connection to it for 25 s"];

/// The frames that the two ends send, and the faults that may happen.
#[derive(Debug, Clone)]
pub struct Links {
    /// For the command line.
    pub name: &'static str,
    /// What it covers.
    pub about: &'static str,
    /// The bytes of each frame of each end.
    pub frames: [Vec<u64>; 2],
    /// How many connections are cut.
    pub cuts: u8,
    /// How many dials fail, or hellos are repeated before they are answered.
    pub repeats: u8,
    /// Whether an end may end the session, or give it up after too long without a connection.
    pub may_end: bool,
}

/// See [`Model`].
#[derive(Debug, Clone, Hash)]
pub struct State {
    line: Line<u8>,
    /// How many frames each end has sent.
    said: [u8; 2],
    /// How many frames each end's machine has handed up.
    handed_up: [u8; 2],
    cuts: u8,
    repeats: u8,
}

/// Moves. The numbers are those of ends and, before them, those of connections.
#[derive(Debug, Clone, Copy)]
pub enum Move {
    /// An end sends its next frame.
    Say(usize),
    /// The first item on a connection arrives.
    Deliver(usize, usize),
    /// A dial succeeds.
    Dialled(usize),
    /// A dial fails.
    DialFails(usize),
    /// A timer fires.
    Timer(usize),
    /// The timer of an unanswered hello fires.
    Repeat(usize),
    /// The timer of a session without a connection fires.
    Patience(usize),
    /// An end ends the session.
    End(usize),
    /// A connection is cut; each flag says whether items on their way to that end are lost.
    Cut(usize, [bool; 2]),
}

impl Model for Links {
    type State = State;
    type Move = Move;

    fn first(&self) -> State {
        let line = Line::new();
        State { line, said: [0; 2], handed_up: [0; 2], cuts: self.cuts, repeats: self.repeats }
    }

    fn moves(&self, state: &State, moves: &mut Vec<(Move, bool)>) {
        for index in 0..2 {
            self.moves_of_end(state, index, moves);
        }
        moves.extend(state.line.arrivals().map(|(wire, to)| (Move::Deliver(wire, to), false)));
        if state.cuts > 0 {
            moves.extend(state.line.cuts().map(|(wire, loses)| (Move::Cut(wire, loses), true)));
        }
    }

    fn take(&self, state: &State, taken: Move) -> Result<State, Violation> {
        let mut next = state.clone();
        next.happen(self, taken)?;
        next.check(self)?;
        Ok(next)
    }

    fn check_end(&self, state: &State) -> Result<(), Violation> {
        match &state.line.ends {
            [one, other] if one.ended.is_some() && other.ended.is_some() => Ok(()),
            [one, other] if one.ended.is_none() && other.ended.is_none() => state.check_complete(self),
            ends if ends.iter().any(|end| end.link.connection().is_some()) => {
                Err("I1: one end has ended the session and the other one never hears of it".to_owned())
            }
            // The other end gives up when its patience ends.
            _ => Ok(()),
        }
    }

    fn is_late(&self, state: &State, taken: Move) -> bool {
        // Items of connections before the latest one.
        matches!(taken, Move::Deliver(wire, _) if wire + 1 < state.line.wires())
    }

    fn describe(&self, state: &State, taken: Move) -> String {
        let name = |index: usize| ["A", "B"][index];
        match taken {
            Move::Say(index) => format!("{} says its next frame", name(index)),
            Move::Deliver(wire, to) => {
                format!("{} reads from connection {wire}: {}", name(to), state.line.describe_next(wire, to))
            }
            Move::Dialled(index) => format!("{} makes connection {}", name(index), state.line.wires()),
            Move::DialFails(index) => format!("FAULT: {} cannot connect", name(index)),
            Move::Timer(index) => format!("{}: the timer fires", name(index)),
            Move::Repeat(index) => format!("FAULT: {} has waited too long for a welcome", name(index)),
            Move::Patience(index) => format!("{} has had no connection for too long", name(index)),
            Move::End(index) => format!("{} ends the session", name(index)),
            Move::Cut(wire, loses) => {
                format!("FAULT: connection {wire} is cut; lost on its way to A and B: {loses:?}")
            }
        }
    }
}

impl Links {
    fn moves_of_end(&self, state: &State, index: usize, moves: &mut Vec<(Move, bool)>) {
        let end = &state.line.ends[index];
        if end.may_dial {
            moves.push((Move::Dialled(index), false));
            if state.repeats > 0 {
                moves.push((Move::DialFails(index), true));
            }
        }
        if end.ended.is_some() {
            return;
        }
        if usize::from(state.said[index]) < self.frames[index].len() && !end.link.is_full(0) {
            moves.push((Move::Say(index), false));
        }
        match end.link.next_deadline() {
            Some(Instant(HANDSHAKE_NANOS)) if state.repeats > 0 => moves.push((Move::Repeat(index), true)),
            Some(Instant(HANDSHAKE_NANOS | LINK_PATIENCE_NANOS)) | None => {}
            Some(_) => moves.push((Move::Timer(index), false)),
        }
        if self.may_end {
            moves.push((Move::End(index), true));
            if end.link.connection().is_none() {
                moves.push((Move::Patience(index), true));
            }
        }
    }
}

impl State {
    fn happen(&mut self, links: &Links, taken: Move) -> Result<(), Violation> {
        let line = &mut self.line;
        match taken {
            Move::Say(index) => {
                let frame = self.said[index];
                self.said[index] += 1;
                line.send(index, frame, links.frames[index][usize::from(frame)], NOW)
            }
            Move::Deliver(wire, to) => match line.deliver(wire, to, NOW)? {
                Some(frame) => self.hand_up(to, frame),
                None => Ok(()),
            },
            Move::Dialled(index) => line.dialled(index, NOW),
            Move::DialFails(index) => {
                self.repeats -= 1;
                line.dial_fails(index, NOW);
                Ok(())
            }
            Move::Timer(index) | Move::Repeat(index) => {
                self.repeats -= u8::from(matches!(taken, Move::Repeat(_)));
                let at = line.ends[index].link.next_deadline().expect("it waits for a time");
                line.on_timer(index, at)
            }
            Move::Patience(index) => line.on_timer(index, Instant(LINK_PATIENCE_NANOS)),
            Move::End(index) => line.end(index, "was ended"),
            Move::Cut(wire, loses) => {
                self.cuts -= 1;
                line.cut(wire, loses, NOW);
                Ok(())
            }
        }
    }

    fn hand_up(&mut self, to: usize, frame: u8) -> Result<(), Violation> {
        if frame != self.handed_up[to] {
            return Err(format!("SE3: frame {frame} is handed up after {} others", self.handed_up[to]));
        }
        self.handed_up[to] += 1;
        Ok(())
    }

    /// Checks the properties of every state.
    fn check(&self, links: &Links) -> Result<(), Violation> {
        for (index, end) in self.line.ends.iter().enumerate() {
            if let Some(reason) = end.ended.as_ref().filter(|reason| !GOOD_REASONS.contains(&reason.as_str()))
            {
                return Err(format!("I1: the session ends without a fault, because {reason}"));
            }
            let largest = links.frames[index].iter().max().copied().unwrap_or(0);
            // Acknowledgements are retained even without room for them.
            if end.link.retained() >= LINK_BUFFER_BYTES_MAX as u64 + largest + 1000 {
                return Err(format!("SE2: {} bytes are retained", end.link.retained()));
            }
            let is_flushed = end.ended.is_none() && end.link.is_acknowledged(end.link.position());
            if is_flushed && self.handed_up[1 - index] < self.said[index] {
                return Err("SE1: a flush is over although the other end does not have everything".to_owned());
            }
        }
        Ok(())
    }

    /// Checks an end state in which the session goes on.
    fn check_complete(&self, links: &Links) -> Result<(), Violation> {
        for (index, end) in self.line.ends.iter().enumerate() {
            let wanted = links.frames[index].len();
            if usize::from(self.said[index]) < wanted {
                return Err("I1: an end waits for ever to say its next frame".to_owned());
            }
            if usize::from(self.handed_up[1 - index]) < wanted {
                return Err("I1: a frame never arrives, although nobody has ended the session".to_owned());
            }
            if !end.link.is_acknowledged(end.link.position()) {
                return Err("I1: a frame is never acknowledged".to_owned());
            }
        }
        Ok(())
    }
}

/// The sessions that are searched completely on every change.
#[must_use]
pub fn small() -> Vec<Links> {
    vec![
        links("link-both-cut", "2 ends with 1 frame each; 2 cuts", &[100], &[9], (2, 0, false)),
        links("link-one-way", "3 frames one way; 2 cuts", &[100, 300_000, 7], &[], (2, 0, false)),
        links(
            "link-both-ways",
            "2 ends with 3 frames each that dial at once; no cut",
            &[100, 300_000, 7],
            &[9, 50, 1],
            (0, 0, false),
        ),
        links(
            "link-redials",
            "1 frame; 2 cuts, 2 dials that fail or are repeated, ends at any time",
            &[100],
            &[],
            (2, 2, true),
        ),
        links(
            "link-ends",
            "2 ends with 1 frame each; a cut, a dial that fails or is repeated, ends at any time",
            &[100],
            &[9],
            (1, 1, true),
        ),
        links(
            "link-full",
            "4 frames of which 2 fill the buffer; 2 cuts, a dial that fails, ends at any time",
            &[3 << 20, 2 << 20, 1 << 20, 5],
            &[],
            (2, 1, true),
        ),
    ]
}

/// All sessions.
#[must_use]
pub fn all() -> Vec<Links> {
    let mut all = small();
    let three: (&[u64], &[u64]) = (&[100, 300_000, 7], &[9, 50, 1]);
    all.push(links(
        "link-two",
        "2 ends with 2 frames each; 2 cuts",
        &three.0[..2],
        &three.1[..2],
        (2, 0, false),
    ));
    all.push(links("link-three", "2 ends with 3 frames each; a cut", three.0, three.1, (1, 0, false)));
    all.push(links("link", "2 ends with 3 frames each; 2 cuts", three.0, three.1, (2, 0, false)));
    all
}

fn links(
    name: &'static str,
    about: &'static str,
    one: &[u64],
    other: &[u64],
    (cuts, repeats, may_end): (u8, u8, bool),
) -> Links {
    Links { name, about, frames: [one.to_vec(), other.to_vec()], cuts, repeats, may_end }
}

/// Searches a session.
#[must_use]
pub fn search(links: &Links, states_max: u64) -> Found {
    plain::search(links, states_max)
}

/// Walks through a longer session with more faults; the seed picks the moves.
///
/// # Errors
/// What is wrong.
pub fn walk(seed: u64, bug: Option<Bug>) -> Result<u64, crate::violation::Violation> {
    let frames =
        |from: u64| -> Vec<u64> { (0..30).map(|at| 1 + (seed + from + at * 7919) % 90_000).collect() };
    let faults = (12, 6, seed.is_multiple_of(4));
    let links = links("link-walk", "2 ends with 30 frames each", &frames(0), &frames(1), faults);
    switch(bug);
    let ended = plain::walk(&links, seed, WALK_STEPS);
    switch(None);
    ended.map_err(|text| {
        let invariant = text.split(':').next().unwrap_or_default().to_owned();
        crate::violation::Violation { invariant, text }
    })
}
