//! Streaming tasks: their readers, and the items that they yield.

use sooner_protocol::probes::hit;
use sooner_wire::TaskId;
use sooner_wire::message::{FailureCode, Outcome};

use super::{Frame, Reader, Wait};
use crate::violation::fail;
use crate::world::{Process, World};

impl World {
    pub(super) fn add_reader(frame: &mut Frame, task: TaskId) {
        frame.readers.push(Reader { task, taken: 0, has_failed: false, has_lost: false });
    }

    /// A reader takes its next item; now and then it leaves the stream instead.
    pub(super) fn read_stream(&mut self, number: u32, frame: &mut Frame) {
        if frame.readers.is_empty() {
            return;
        }
        let at = self.random.below(frame.readers.len());
        if self.random.chance(1, 15) {
            hit("a reader left a stream before its end");
            let reader = frame.readers.swap_remove(at);
            return self.leave_stream(number, &reader);
        }
        let task = frame.readers[at].task;
        let Some((index, slot)) = self.with_core(number, |core, _| core.next_item(task)) else { return };
        if !self.process(number).is_running() {
            return;
        }
        let reader = &mut frame.readers[at];
        if index != reader.taken + 1 {
            fail("ST1", format!("{task:?}: item {index} is next after {} were taken", reader.taken));
        }
        match slot.outcome().as_deref() {
            None => {
                frame.wait = Wait::All(vec![(task.object(index), slot)]);
                return;
            }
            Some(Outcome::Failed(failure)) if failure.code == FailureCode::EndOfStream => {
                let complete = Some(reader.taken) == self.oracle.facts[&task].items;
                let (taken, has_failed) = (reader.taken, reader.has_failed || reader.has_lost);
                if !complete && !has_failed && !self.oracle.is_cancelled(task) {
                    fail("ST1", format!("{task:?} ended after {taken} items"));
                }
                let reader = frame.readers.swap_remove(at);
                return self.leave_stream(number, &reader);
            }
            Some(outcome @ Outcome::Failed(_)) => {
                // With losses, an item may be lost, and others follow; or an argument, and none does.
                let is_lost = self.oracle.losses > 0;
                reader.has_failed |= !is_lost;
                reader.has_lost |= is_lost;
                self.check_outcome(number, task.object(index), outcome);
            }
            Some(outcome) => {
                if reader.has_failed {
                    fail("ST1", format!("{task:?} yielded item {index} after an error"));
                }
                self.check_outcome(number, task.object(index), outcome);
            }
        }
        frame.readers[at].taken += 1;
        let reference = self.hold(task.object(index), slot);
        if !self.with_core(number, |core, out| core.take_item(task, index, out))
            && self.process(number).is_running()
        {
            fail("ST1", format!("{task:?}: item {index} was there, and was not given to its only reader"));
        }
        frame.locals.push(reference);
    }

    /// A reader leaves the stream, whatever is left to read.
    pub(super) fn leave_stream(&mut self, number: u32, reader: &Reader) {
        self.oracle.left_streams.insert(reader.task);
        self.process_mut(number).dropped.push(reader.task.reader());
        self.with_core(number, |_, _| ());
    }

    /// Whether a streaming task may go on to its item `index`, or must end.
    pub(super) fn may_yield(&self, process: &Process, frame: &Frame, index: u32) -> bool {
        let Some(task) = frame.task else { return true };
        let options = frame.incoming.as_ref().and_then(|incoming| incoming.push.spec.stream);
        let backpressure = options.map_or(0, |options| options.backpressure);
        let taken = process.core.execution().taken(task);
        let is_over = taken.stop || process.core.execution().is_cancelled(task);
        is_over || backpressure == 0 || index <= taken.items.saturating_add(backpressure)
    }

    /// A streaming task yields its next item, or waits until it may. False if no item is left.
    pub(super) fn yields(&mut self, number: u32, frame: &mut Frame, task: TaskId) -> bool {
        let Some(items) = self.oracle.facts[&task].items else { return false };
        let execution = self.process(number).core.execution();
        if frame.yielded >= items || execution.taken(task).stop || execution.is_cancelled(task) {
            return false;
        }
        let index = frame.yielded + 1;
        if !self.may_yield(self.process(number), frame, index) {
            hit("a streaming task waited for its reader");
            frame.wait = Wait::Reading(index);
            return true;
        }
        frame.yielded = index;
        self.record_base(frame);
        let value = self.make_return(number, frame, index);
        self.with_core(number, |core, out| core.on_yielded(task, index, value, out));
        true
    }
}
