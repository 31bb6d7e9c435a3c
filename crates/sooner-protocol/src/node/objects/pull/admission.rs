//! Which pulls get room, in which order, and which of them give it up for others.
//!
//! Pulls are admitted in order of priority, then of age, as far as the budget goes. A pull that finds no room
//! is asked for again when memory was freed, and every so often even if none was: a value in use may become
//! movable, because a reader ends, without a message to the node.
//!
//! **Overtaking.** Pulls behind one that found no room may be the arguments of the very tasks whose end would
//! give it room. So some may pass: no more bytes at a time than the blocked pull has, and at times that are
//! further and further apart, up to 8 s ([`Overtaking`]). In between, all that is freed is kept for the
//! blocked pull. So a large pull does not starve: what has passed is small, ends, and is followed by nothing
//! for a while. And it holds up the others for no longer than such a while.
//!
//! **Arguments of a task come together, or not at all** (`docs/adr/0041-arguments-are-admitted-together.md`).
//! Pulls of arguments are as old as their tasks are at their workers, so the oldest task gets all of its
//! arguments first. Younger tasks that wait for their own may hold the memory it lacks:
//! [`Pulls::youngest_behind`] says which process has to give way.

use sooner_wire::limits::{MOVES_PAUSE_NANOS, PULL_AGAIN_NANOS, PULL_ROOM_NANOS};
use sooner_wire::message::Priority;
use sooner_wire::{BlockId, ObjectId, WorkerId};

use super::{PullAction, Pulls, Requester, State, no_room, too_large};
use crate::probes::{bug, mark};
use crate::table::{Map, Set};
use crate::time::Instant;

/// How many pulls may be without room before no other is asked for: each of them is asked for again and
/// again.
const BLOCKED_MAX: usize = 8;

/// The longest time in which no pull overtakes, in turns of [`PULL_AGAIN_NANOS`].
const STRICT_TURNS_MAX: u64 = 16;

/// What may overtake a pull that found no room.
#[derive(Debug, Default)]
pub(super) struct Overtaking {
    /// When the pull first found no room, whatever was freed since.
    since: Option<Instant>,
    /// How often [`PULL_AGAIN_NANOS`] had passed by the last time.
    turn: u64,
    /// Bytes that may still pass.
    left: u64,
}

impl Overtaking {
    /// A pull of `bytes` bytes found no room.
    fn on_refused(&mut self, bytes: u64, now: Instant) {
        let is_first = self.since.is_none();
        let turn = now.since(*self.since.get_or_insert(now)) / PULL_AGAIN_NANOS;
        if is_first || turn != self.turn {
            let is_open = turn.is_power_of_two() || turn.is_multiple_of(STRICT_TURNS_MAX);
            self.left = if is_open { bytes } else { 0 };
            self.turn = turn;
        }
    }
}

/// A pull that has no room yet.
struct Candidate {
    object: ObjectId,
    bytes: u64,
    /// It was asked for; whether it gets room this time will be known.
    is_asked: bool,
    /// The pull found no room before: what may pass it.
    left: Option<u64>,
}

impl Pulls {
    /// There is no room for an object now in a store of `capacity` bytes. `moves`: values are being brought
    /// elsewhere to make room, so a block is asked for again soon. They may turn out to be read here; then
    /// other values are asked for.
    pub fn on_no_block(
        &mut self,
        object: ObjectId,
        capacity: u64,
        moves: bool,
        now: Instant,
        out: &mut Vec<PullAction>,
    ) {
        let Some(open) = self.open.get_mut(&object).filter(|open| matches!(open.state, State::Allocating))
        else {
            return;
        };
        let bytes = open.remote.location.length;
        if bytes > capacity || open.askers.is_empty() {
            let failure = too_large(&open.remote, capacity);
            return self.fail(object, &failure, out);
        }
        let end = open.refused.get_or_insert(now).plus(PULL_ROOM_NANOS);
        if end <= now {
            // A block was asked for once more at the very end.
            let failure = no_room(&open.remote);
            return self.fail(object, &failure, out);
        }
        let pause = if moves { MOVES_PAUSE_NANOS } else { PULL_AGAIN_NANOS };
        let again = if bug!(RestoreNotTriedAgain) && !moves { end } else { end.min(now.plus(pause)) };
        open.overtaking.on_refused(bytes, now);
        open.state = State::Waiting { again: Some(again) };
        self.in_flight -= bytes;
        self.admit(out);
    }

    /// Blocks were freed: pulls that found no room try again.
    pub fn on_room(&mut self, out: &mut Vec<PullAction>) {
        for open in self.open.values_mut() {
            if let State::Waiting { again } = &mut open.state {
                *again = None;
                open.refused = None;
            }
        }
        self.admit(out);
    }

    /// When a pull that found no room is to be asked for again.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let again = self.open.values().filter_map(|open| match open.state {
            State::Waiting { again } => again,
            State::Allocating | State::Asking { .. } | State::Moving { .. } => None,
        });
        again.min()
    }

    /// Asks again for pulls that found no room, the last time before they are given up:
    /// [`Self::on_no_block`].
    pub fn on_timer(&mut self, now: Instant, out: &mut Vec<PullAction>) {
        for open in self.open.values_mut() {
            if let State::Waiting { again } = &mut open.state {
                again.take_if(|again| *again <= now);
            }
        }
        self.admit(out);
    }

    /// Lets the pulls go on whose turn it is.
    pub(super) fn admit(&mut self, out: &mut Vec<PullAction>) {
        if self.in_flight > 0 && self.in_flight >= self.budget {
            return;
        }
        let mut blocked: Vec<ObjectId> = Vec::new();
        let mut may_pass = u64::MAX;
        for candidate in self.candidates() {
            let Candidate { object, bytes, is_asked, left } = candidate;
            if let Some(left) = left.filter(|_| is_asked) {
                blocked.push(object);
                may_pass = may_pass.min(left);
                if may_pass == 0 || blocked.len() == BLOCKED_MAX {
                    return;
                }
            }
            if is_asked || bytes > may_pass {
                continue;
            }
            if self.in_flight > 0 && self.in_flight.saturating_add(bytes) > self.budget {
                return;
            }
            if !blocked.is_empty() {
                mark!("a pull overtook one that found no room");
                may_pass -= bytes;
            }
            for passed in &blocked {
                self.open[passed].overtaking.left -= bytes;
            }
            self.in_flight += bytes;
            self.open[&object].state = State::Allocating;
            out.push(PullAction::Allocate { object, bytes });
            if left.is_some() {
                // The pull found no room before: whether it does now decides what those behind it may.
                blocked.push(object);
                may_pass = may_pass.min(left.unwrap_or(0));
                if may_pass == 0 || blocked.len() == BLOCKED_MAX {
                    return;
                }
            }
        }
    }

    /// All pulls that have no block, in the order of their turns.
    fn candidates(&self) -> Vec<Candidate> {
        let mut all: Vec<_> = Vec::new();
        for (object, open) in &self.open {
            let is_asked = match open.state {
                State::Waiting { again } => again.is_some(),
                State::Allocating => true,
                State::Asking { .. } | State::Moving { .. } => continue,
            };
            let left = open.overtaking.since.map(|_| open.overtaking.left);
            let bytes = open.remote.location.length;
            all.push((open.priority, open.age, Candidate { object: *object, bytes, is_asked, left }));
        }
        all.sort_unstable_by_key(|(priority, age, _)| (*priority, *age));
        all.into_iter().map(|(.., candidate)| candidate).collect()
    }

    /// The process that has to give way to `object`: of those that wait for arguments of tasks that have not
    /// begun, for less long than the first process that waits for `object`, the one that has waited least
    /// long. A process that makes a value (`None`) goes before all. Never one that `is_spared`.
    #[must_use]
    pub fn youngest_behind(
        &self,
        object: Option<ObjectId>,
        is_spared: impl Fn(WorkerId) -> bool,
    ) -> Option<WorkerId> {
        let order = |asker: &Requester| (asker.priority, asker.age);
        let first = match object {
            Some(object) => Some(self.open.get(&object)?.askers.iter().min_by_key(|asker| order(asker))?),
            None => None,
        };
        let is_behind = |asker: &Requester| {
            asker.priority == Priority::Argument
                && first.is_none_or(|first| first.process != asker.process && order(first) < order(asker))
        };
        // A process is as old as the oldest of its pulls.
        let mut ages: Map<WorkerId, u64> = Map::default();
        let mut older: Set<WorkerId> = Set::default();
        for asker in self.open.values().flat_map(|open| &open.askers) {
            if is_behind(asker) {
                let age = ages.entry(asker.process).or_insert(asker.age);
                *age = asker.age.min(*age);
            } else if asker.priority == Priority::Argument {
                older.insert(asker.process);
            }
        }
        let may_be = |process: &WorkerId| !older.contains(process) && !is_spared(*process);
        let youngest = ages.iter().filter(|(process, _)| may_be(process)).max_by_key(|(_, age)| **age);
        youngest.map(|(process, _)| *process)
    }

    /// The blocks of copies that were pulled.
    pub fn copied_blocks(&self) -> impl Iterator<Item = BlockId> {
        self.objects.keys().copied()
    }
}

#[cfg(test)]
mod tests;
