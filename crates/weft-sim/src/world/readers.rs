//! Streaming tasks in the simulated world: readers take items at random and may leave early.
//!
//! The oracle: a task yields as many items as its number says, in every execution. A reader that stays sees each of
//! them once and in order, then the end; after a fault it sees the first of them, an error, and the end.

use std::sync::Arc;

use weft_protocol::ownership::Slot;
use weft_wire::message::{FailureCode, Outcome, Streaming, TaskSpec};
use weft_wire::{TaskId, WorkerId};

use super::World;

/// Someone who reads the items of one task.
pub(super) struct Reader {
    task: TaskId,
    taken: u32,
    has_failed: bool,
    has_lost: bool,
}

impl Reader {
    pub(super) fn task(&self) -> TaskId {
        self.task
    }
}

/// How many items a task yields.
pub(super) fn items_of(task: TaskId) -> u32 {
    u32::try_from(task.number % 5).expect("less than five")
}

/// How a task streams, if its number says that it does.
pub(super) fn streaming_of(task: TaskId) -> Option<Streaming> {
    let backpressure = u32::try_from(task.number % 3).expect("less than three");
    (task.number % 4 == 1).then_some(Streaming { backpressure, dynamic: false })
}

impl World {
    pub(super) fn add_reader(&mut self, task: TaskId) {
        self.readers.push(Reader { task, taken: 0, has_failed: false, has_lost: false });
    }

    /// A reader looks for its next item, takes it, and keeps it for a while; now and then one leaves.
    pub(super) fn read_an_item(&mut self) {
        if self.readers.is_empty() {
            return;
        }
        let at = self.random.below(self.readers.len());
        if self.random.chance(1, 30) {
            return self.leave(at);
        }
        let task = self.readers[at].task;
        let next = self.with_core(self.driver, |core, _| core.next_item(task));
        let (index, slot) = next.expect("a stream stands as long as its reader");
        let reader = &mut self.readers[at];
        assert_eq!(index, reader.taken + 1, "S1: items are taken in order");
        match slot.outcome() {
            None => return,
            Some(Outcome::Failed(failure)) if failure.code == FailureCode::EndOfStream => {
                let complete = reader.taken == items_of(task);
                assert!(
                    reader.has_failed || reader.has_lost || complete,
                    "S1: {task:?} ended after {} items",
                    reader.taken
                );
                return self.leave(at);
            }
            // An item may be lost, or one of the task's arguments was: only then nothing follows.
            Some(Outcome::Failed(failure)) if failure.code == FailureCode::ObjectLost => {
                reader.has_lost = true
            }
            Some(Outcome::Failed(_)) => reader.has_failed = true,
            Some(_) => assert!(!reader.has_failed, "nothing comes after an error"),
        }
        reader.taken += 1;
        slot.acquire();
        let taken = self.with_core(self.driver, |core, out| core.take_item(task, index, out));
        assert!(taken, "there is one reader");
        self.handles.push(super::Handle { id: task.object(index), slot, is_actor: false });
    }

    fn leave(&mut self, at: usize) {
        let reader = self.readers.swap_remove(at);
        self.with_core(self.driver, |core, out| core.on_handles_dropped(&[reader.task.reader()], out));
        self.has_left_streams = true;
    }

    /// A streaming task that runs yields its next item if it may; true when it has none left.
    pub(super) fn yield_an_item(&mut self, who: WorkerId, spec: &TaskSpec, yielded: &mut u32) -> bool {
        let (task, Some(options)) = (spec.task, spec.stream) else { return true };
        let execution = self.processes[&who].core.execution();
        let taken = execution.taken(task);
        if *yielded >= items_of(task) || taken.stop || execution.is_cancelled(task) {
            return true;
        }
        let index = *yielded + 1;
        if options.backpressure > 0 && index > taken.items.saturating_add(options.backpressure) {
            return false;
        }
        *yielded = index;
        let value = self.make_value(who);
        self.with_core(who, |core, out| core.on_yielded(task, index, value, out));
        false
    }

    /// Submits the reader's side of a task.
    pub(super) fn completion_slot(&mut self, task: TaskId) -> Arc<Slot> {
        self.add_reader(task);
        Arc::new(Slot::default())
    }
}
