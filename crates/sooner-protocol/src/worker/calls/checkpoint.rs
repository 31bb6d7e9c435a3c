//! Calls to an actor with checkpoints, kept by their caller until a checkpoint covers them (Ray, section
//! 5.1).
//!
//! A call is kept from its first push on, in the order of the pushes. When another process takes the actor
//! over, every kept call is pushed again, in that order and before any new one: first those that were
//! answered, then, after [`Replayed`](sooner_wire::message::Replayed), those that were not. So the restored
//! state plus the answered calls is the state that the caller saw.
//!
//! Invariants:
//! - CP1: kept calls are in the order in which they were pushed; those before `pushed` are with the actor's
//!   process.
//! - CP2: a new call is pushed only when every kept one was.
//!
//! It never pushes and counts no references: it says which calls are kept, and which is next.

use std::collections::VecDeque;
use std::sync::Arc;

use sooner_wire::message::TaskSpec;

use crate::table::Set;

#[derive(Debug)]
struct KeptCall {
    number: u64,
    spec: Arc<TaskSpec>,
}

/// The kept calls of one actor.
#[derive(Debug, Default)]
pub struct Kept {
    calls: VecDeque<KeptCall>,
    pushed: usize,
    /// A process took the actor over: calls are to be pushed again.
    is_replaying: bool,
    /// It waits to learn that all answered calls were pushed again.
    owes_end: bool,
}

impl Kept {
    /// A call was pushed for the first time.
    pub fn add(&mut self, spec: Arc<TaskSpec>) {
        debug_assert_eq!(self.pushed, self.calls.len(), "CP2");
        self.calls.push_back(KeptCall { number: spec.task.number, spec });
        self.pushed += 1;
    }

    /// Takes out a call that need not be made again. `in_flight` calls have no reply yet: as replies come in
    /// the order of the pushes, the call is most likely the first of them.
    pub fn remove(&mut self, number: u64, in_flight: usize) -> Option<Arc<TaskSpec>> {
        let guess = self.calls.len().saturating_sub(in_flight);
        let is_there = self.calls.get(guess).is_some_and(|call| call.number == number);
        let at =
            if is_there { Some(guess) } else { self.calls.iter().rposition(|call| call.number == number) };
        self.take(at?)
    }

    fn take(&mut self, at: usize) -> Option<Arc<TaskSpec>> {
        self.pushed -= usize::from(at < self.pushed);
        Some(self.calls.remove(at)?.spec)
    }

    /// A checkpoint covers these calls, given in the order of their execution.
    pub fn cover(&mut self, numbers: &[u64]) -> Vec<Arc<TaskSpec>> {
        let mut covered = Vec::with_capacity(numbers.len());
        let mut others: Set<u64> = Set::default();
        for number in numbers {
            if self.calls.front().is_some_and(|call| call.number == *number) {
                covered.extend(self.take(0));
            } else {
                others.insert(*number);
            }
        }
        let mut at = 0;
        while !others.is_empty() && at < self.calls.len() {
            if others.swap_remove(&self.calls[at].number) {
                covered.extend(self.take(at));
            } else {
                at += 1;
            }
        }
        covered
    }

    /// The kept calls.
    pub fn calls(&self) -> impl Iterator<Item = &TaskSpec> {
        self.calls.iter().map(|call| &*call.spec)
    }

    /// The numbers of the kept calls.
    #[must_use]
    pub fn numbers(&self) -> Set<u64> {
        self.calls.iter().map(|call| call.number).collect()
    }

    /// The actor's process is dead: every call has to be pushed again.
    pub fn rewind(&mut self) {
        self.pushed = 0;
        self.is_replaying = false;
        self.owes_end = false;
    }

    /// A process took the actor over.
    pub fn begin(&mut self) {
        self.pushed = 0;
        self.is_replaying = true;
        self.owes_end = true;
    }

    /// Whether calls are to be pushed again before new ones.
    #[must_use]
    pub fn is_replaying(&self) -> bool {
        self.is_replaying
    }

    /// The call to push again next.
    #[must_use]
    pub fn next(&self) -> Option<&Arc<TaskSpec>> {
        self.calls.get(self.pushed).map(|call| &call.spec)
    }

    /// The next call was pushed.
    pub fn on_pushed(&mut self) {
        self.pushed += 1;
    }

    /// Whether the process must learn, once, that all answered calls were pushed again.
    pub fn take_end(&mut self) -> bool {
        std::mem::take(&mut self.owes_end)
    }

    /// Whether all calls were pushed again. New ones may follow.
    pub fn finish(&mut self) -> bool {
        if self.pushed == self.calls.len() {
            self.is_replaying = false;
        }
        !self.is_replaying
    }

    /// Calls kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether no call is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// All calls: the actor is dead for good.
    pub fn into_specs(self) -> impl Iterator<Item = Arc<TaskSpec>> {
        self.calls.into_iter().map(|call| call.spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sooner_wire::message::TaskKind;
    use sooner_wire::{Blob, FunctionId, Name, TaskId, WorkerId};

    fn call(number: u64) -> Arc<TaskSpec> {
        let actor = TaskId { owner: WorkerId(1), number: 1 };
        let task = TaskId { owner: WorkerId(1), number };
        let kind = TaskKind::Method(actor);
        Arc::new(TaskSpec::new(task, kind, FunctionId(0), Name::from("m"), Blob::default()))
    }

    fn kept(numbers: &[u64]) -> Kept {
        let mut kept = Kept::default();
        numbers.iter().for_each(|number| kept.add(call(*number)));
        kept
    }

    fn replayed(kept: &mut Kept) -> Vec<u64> {
        let mut numbers = Vec::new();
        while let Some(spec) = kept.next() {
            numbers.push(spec.task.number);
            kept.on_pushed();
        }
        numbers
    }

    #[test]
    fn what_no_checkpoint_covers_is_pushed_again_in_order() {
        // 9 was pushed before 8: two threads of the caller made them.
        let mut kept = kept(&[5, 6, 7, 9, 8]);
        assert_eq!(kept.cover(&[5, 6]).len(), 2);
        kept.begin();
        assert!(!kept.finish());
        assert_eq!(replayed(&mut kept), [7, 9, 8]);
        assert!(kept.finish());
        assert!(kept.take_end());
        assert!(!kept.take_end());
        kept.add(call(10));
        kept.begin();
        assert_eq!(replayed(&mut kept), [7, 9, 8, 10]);
    }

    #[test]
    fn a_checkpoint_in_the_middle_of_a_replay_moves_nothing() {
        let mut kept = kept(&[5, 6, 7, 8]);
        kept.begin();
        kept.on_pushed();
        kept.on_pushed();
        assert_eq!(kept.cover(&[5]).len(), 1);
        assert_eq!(kept.next().expect("two are left").task.number, 7);
        assert!(kept.remove(8, 0).is_some());
        assert_eq!(replayed(&mut kept), [7]);
    }

    #[test]
    fn calls_leave_from_anywhere() {
        let mut kept = kept(&[5, 6, 7, 8]);
        // Two are in flight, and the reply of the first of them says that it was read-only.
        assert_eq!(kept.remove(7, 2).expect("kept").task.number, 7);
        assert_eq!(kept.remove(5, 1).expect("kept").task.number, 5);
        assert!(kept.remove(5, 1).is_none());
        assert_eq!(kept.cover(&[8, 6, 4]).len(), 2);
        assert!(kept.is_empty());
    }
}
