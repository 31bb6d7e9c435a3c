//! How many bytes of arguments the tasks in flight on workers may have together, when there is not room for
//! the arguments of all.
//!
//! A task that came back for want of room shows that they have too many: from then on as many as are still in
//! flight are allowed. After a pause one task more may go, to see whether there is room by now; the pause is
//! longer the more often there was none. Without this, the worker of a task that gave way would get the next
//! one, whose arguments stay in memory from then on: each would keep from the oldest what the one before gave
//! up.
//!
//! It holds nothing back until a task comes back, and never the only task: so one always goes on. And each
//! pause ends, so that a task for which others wait is sent in the end, however many those are.

use sooner_wire::ObjectId;

use crate::probes::{bug, mark};
use crate::table::Set;
use crate::time::Instant;
use crate::worker::WorkerCore;
use crate::worker::action::Actions;

/// After this pause one task more may go (nanoseconds): at first, and at most.
const RAISE_NANOS: u64 = 500_000_000;
const RAISE_NANOS_MAX: u64 = 8_000_000_000;
/// After this time a task that was held back is looked at again, whatever ended meanwhile (nanoseconds).
const LOOK_NANOS: u64 = 100_000_000;
/// When no task came back for this time, none is held back any more (nanoseconds).
const FORGET_NANOS: u64 = 60_000_000_000;
/// After a pause the bound grows by one part in this many, if that is more than one task.
const RAISE_PART: u64 = 8;

/// See the module.
#[derive(Debug, Default)]
pub(in crate::worker) struct Admitting {
    /// The bound in bytes; `None`: any number.
    most: Option<u64>,
    /// When the bound grows.
    raise_at: Instant,
    pause: u64,
    /// When a task came back last.
    lacked: Instant,
    /// When a task that was held back is looked at again.
    look_at: Option<Instant>,
}

impl Admitting {
    /// Tasks came back for want of room; `out` bytes are still in flight. Tasks that come back at about the
    /// same time count as one sign.
    fn on_lack(&mut self, out: u64, now: Instant) {
        let is_first = self.most.is_none();
        if is_first || now >= self.lacked.plus(RAISE_NANOS / 2) {
            self.pause = if is_first { RAISE_NANOS } else { (4 * self.pause).min(RAISE_NANOS_MAX) };
        }
        self.most = Some(self.most.map_or(out, |most| most.min(out)));
        self.lacked = now;
        self.raise_at = now.plus(self.pause);
    }

    /// Whether a task with `more` bytes may go when `out` bytes are in flight.
    fn may_push(&mut self, more: u64, out: u64, now: Instant) -> bool {
        let Some(most) = &mut self.most else { return true };
        if now >= self.lacked.plus(FORGET_NANOS) {
            *self = Self::default();
            return true;
        }
        if out == 0 || out + more <= *most {
            return true;
        }
        if now >= self.raise_at {
            *most = (out + more).max(*most + *most / RAISE_PART);
            self.pause = (self.pause / 2).max(RAISE_NANOS);
            self.raise_at = now.plus(self.pause);
            return true;
        }
        self.look_at = Some(now.plus(LOOK_NANOS));
        false
    }

    /// When tasks that were held back are to be looked at.
    pub(in crate::worker) fn next(&self) -> Option<Instant> {
        self.look_at
    }
}

impl WorkerCore {
    /// Tasks came back because there was no room for their arguments.
    pub(in crate::worker) fn record_lack(&mut self) {
        let out = self.argument_bytes_out(&mut Set::default());
        self.admitting.on_lack(out, self.now);
    }

    /// Whether a task with `bytes` bytes of arguments in a store may go to a worker.
    #[inline]
    pub(in crate::worker) fn may_send(&mut self, task: u64, bytes: u64) -> bool {
        self.admitting.most.is_none() || bytes == 0 || self.may_send_beside_others(task)
    }

    fn may_send_beside_others(&mut self, task: u64) -> bool {
        let mut seen = Set::default();
        let out = self.argument_bytes_out(&mut seen);
        let more = self.argument_bytes(task, &mut seen);
        let may_send = more == 0 || self.admitting.may_push(more, out, self.now);
        if !may_send {
            mark!("a task was held back because others lacked room for their arguments");
        }
        may_send
    }

    /// Sends the tasks that were held back, if they may go by now.
    pub(in crate::worker) fn send_held_back(&mut self, out: &mut Actions) {
        if self.admitting.look_at.take_if(|at| *at <= self.now).is_some() && !bug!(HeldBackForGood) {
            for shape in self.leases.shape_ids() {
                self.dispatch(shape, out);
            }
        }
    }

    fn argument_bytes_out(&self, seen: &mut Set<ObjectId>) -> u64 {
        self.leases.in_flight().map(|task| self.argument_bytes(task, seen)).sum()
    }

    /// Bytes of the arguments of a task that are not among those `seen`.
    fn argument_bytes(&self, task: u64, seen: &mut Set<ObjectId>) -> u64 {
        let Some(pending) = self.pendings.get(task) else { return 0 };
        let arguments = pending.spec.dependencies.iter().filter(|argument| seen.insert(**argument));
        arguments.map(|argument| self.ownership.bytes_in_memory(&[*argument])).sum()
    }
}

#[cfg(test)]
mod tests {
    use sooner_wire::Message;

    use super::*;
    use crate::worker::action::Action;
    use crate::worker::testing::{HERE, ME, core, grant, pushed, submit, value};

    #[test]
    fn there_is_as_much_as_was_left_and_a_task_more_after_each_pause() {
        let mut all = Admitting::default();
        let mut now = Instant(1);
        assert!(all.may_push(1000, 5000, now), "nothing came back");
        all.on_lack(40, now);
        assert!(all.may_push(20, 20, now) && !all.may_push(20, 30, now));
        assert_eq!(all.next(), Some(now.plus(LOOK_NANOS)));
        now = now.plus(RAISE_NANOS);
        assert!(all.may_push(20, 30, now) && !all.may_push(20, 50, now));
        // It was too much.
        all.on_lack(40, now);
        now = now.plus(3 * RAISE_NANOS);
        assert!(!all.may_push(20, 40, now), "the pause is longer");
        now = now.plus(RAISE_NANOS);
        assert!(all.may_push(20, 40, now));
        assert_eq!(all.pause, 2 * RAISE_NANOS, "it was none too many");
    }

    #[test]
    fn the_only_one_always_goes_and_small_ones_pass() {
        let mut all = Admitting::default();
        let now = Instant(1);
        (0..100).for_each(|_| all.on_lack(30, now));
        assert_eq!(all.pause, RAISE_NANOS, "they are one sign");
        assert!(all.may_push(1000, 0, now) && !all.may_push(1000, 1, now));
        assert!(all.may_push(1, 29, now));
    }

    #[test]
    fn a_task_that_is_held_back_as_it_is_submitted_is_looked_at_in_time() {
        let (mut core, shape) = core();
        let arguments = [101, 102].map(|number| value(&mut core, number, ME.node(), 100));
        let mut out = submit(&mut core, shape, 1, vec![arguments[0]]);
        grant(&mut core, shape, HERE, 1, &mut out);
        assert_eq!(pushed(&out), [(HERE, 1)]);
        core.admitting.on_lack(0, Instant(1));
        core.on_timer(Instant(2), &mut out);
        assert_eq!(core.next_deadline(), None, "nothing is held back, and its worker is busy");
        out = submit(&mut core, shape, 2, vec![arguments[1]]);
        assert_eq!(pushed(&out), []);
        let at = core.next_deadline().expect("nobody else says when it may go");
        assert!(at <= Instant(2).plus(LOOK_NANOS), "{at:?}");
        core.on_timer(Instant(1).plus(RAISE_NANOS), &mut out);
        let asks = |action: &Action| matches!(action, Action::Send { message, .. } if matches!(**message, Message::RequestLease(_)));
        assert!(out.iter().any(asks), "there is room for a task more, on another worker: {out:?}");
    }

    #[test]
    fn it_is_forgotten_after_a_while() {
        let mut all = Admitting::default();
        all.on_lack(0, Instant(1));
        assert!(!all.may_push(9, 1, Instant(1)));
        assert!(all.may_push(1 << 40, 1, Instant(1).plus(FORGET_NANOS)));
        assert!(
            all.may_push(1 << 40, 1 << 40, Instant(1).plus(FORGET_NANOS)),
            "nothing is held back any more"
        );
    }
}
