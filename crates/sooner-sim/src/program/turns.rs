//! The next thing that a process does: begin a task, continue a frame, or flush its buffers.

use sooner_protocol::probes::hit;
use sooner_protocol::worker::ownership::{Place, Slot};

use super::{Frame, Wait};
use crate::world::{Process, Wake, World};

/// A wait inside a task that lasts longer (nanoseconds) lends the task's CPU, as in the shell.
pub(super) const BLOCKED_AFTER_NANOS: u64 = 1_000_000;

/// Pause before a stopped process is looked at again (nanoseconds).
const PAUSED_NANOS: u64 = 50_000_000;

impl World {
    /// Whether a process has something to do.
    #[must_use]
    pub fn has_work(&self, number: u32) -> bool {
        let process = self.process(number);
        !process.dirty.is_empty()
            || !process.dropped.is_empty()
            || process.has_read
            || can_take(process)
            || (is_due(process) && self.is_all_acknowledged(number))
            || process.frames.iter().any(|frame| self.can_run(process, frame))
    }

    fn can_run(&self, process: &Process, frame: &Frame) -> bool {
        if frame.is_interrupted {
            return true;
        }
        match &frame.wait {
            Wait::Nothing => true,
            Wait::All(slots) => slots.iter().all(|(_, slot)| has_come(slot)),
            Wait::Any(slots, until) => {
                self.time >= *until || slots.iter().any(|(_, slot)| slot.has_outcome())
            }
            Wait::Time(until) => self.time >= *until,
            Wait::Reading(index) => self.may_yield(process, frame, *index),
            Wait::Answer(request) => process.answers.contains_key(request),
            Wait::End => false,
        }
    }

    /// A process does one thing.
    pub fn turn(&mut self, number: u32) {
        let process = self.process(number);
        if !process.dirty.is_empty() && self.random.chance(1, 3) {
            return self.flush(number);
        }
        if is_due(self.process(number)) && self.random.chance(1, 2) {
            // Replies leave before the checkpoint that covers their calls; in between, the process may die.
            if !self.process(number).dirty.is_empty() {
                return self.flush(number);
            }
            if self.is_all_acknowledged(number) {
                self.take_checkpoint(number);
            }
            return;
        }
        let process = self.process(number);
        if process.has_read && self.random.chance(1, 2) {
            return self.look_at_timer(number);
        }
        let process = self.process(number);
        let ready = process.frames.iter().filter(|frame| self.can_run(process, frame)).count();
        if can_take(process) && (ready == 0 || self.random.chance(1, 2)) {
            return self.begin_frame(number);
        }
        if ready == 0 {
            if is_due(self.process(number)) {
                return;
            }
            self.flush(number);
            return self.look_at_timer(number);
        }
        let wanted = self.random.below(ready);
        let process = self.process(number);
        let at = (0..process.frames.len())
            .filter(|at| self.can_run(process, &process.frames[*at]))
            .nth(wanted)
            .expect("counted above");
        self.run_frame(number, at);
    }

    fn run_frame(&mut self, number: u32, at: usize) {
        let mut frame = self.process_mut(number).frames.swap_remove(at);
        let process = self.process(number);
        if process.core.execution().is_blocked() {
            self.with_core(number, |core, out| core.set_blocked(false, out));
        }
        if !self.process(number).is_running() {
            return;
        }
        if frame.task.is_some_and(|task| self.is_dead(task.owner)) {
            hit("a task of a dead caller went on");
        }
        let goes_on = self.advance_frame(number, &mut frame);
        if goes_on && self.process(number).is_running() {
            if !matches!(frame.wait, Wait::Nothing | Wait::End) && frame.task.is_some() {
                self.watch_wait(number, &frame);
            }
            self.process_mut(number).frames.push(frame);
        }
    }

    /// Sets the shell's timer for a long wait or a long computation.
    fn watch_wait(&mut self, number: u32, frame: &Frame) {
        if !self.process(number).lends() {
            return;
        }
        let wake = match &frame.wait {
            Wait::Time(_) => Wake::Long(number, frame.number),
            _ => Wake::Blocked(number, frame.number),
        };
        self.wake_in(BLOCKED_AFTER_NANOS, wake);
    }

    /// Continues a frame whose wait is over. False if the frame has ended.
    fn advance_frame(&mut self, number: u32, frame: &mut Frame) -> bool {
        if frame.is_interrupted {
            frame.is_interrupted = false;
            // Now and then the task ends by itself before the interrupt reaches it.
            if self.random.chance(3, 4) {
                return self.end_interrupted(number, frame);
            }
            if !matches!(frame.wait, Wait::Nothing) {
                return true;
            }
        }
        match std::mem::replace(&mut frame.wait, Wait::Nothing) {
            Wait::All(objects) => self.on_waited(number, frame, &objects),
            Wait::Answer(request) => self.on_answer(number, frame, request),
            Wait::Nothing | Wait::Any(..) | Wait::Time(_) | Wait::Reading(_) | Wait::End => {
                if frame.operations == 0 {
                    return self.finish_frame(number, frame);
                }
                frame.operations -= 1;
                self.operate(number, frame);
            }
        }
        true
    }

    /// A frame has waited for a millisecond.
    pub fn lend_if_waiting(&mut self, number: u32, frame: u64) {
        let process = self.process(number);
        if process.is_running() && process.is_paused {
            // The process's clock stands still as well.
            return self.wake_in(PAUSED_NANOS, Wake::Blocked(number, frame));
        }
        if !process.is_running() || !process.lends() {
            return;
        }
        let Some(found) = process.frames.iter().find(|f| f.number == frame) else { return };
        if matches!(found.wait, Wait::All(_) | Wait::Any(..)) && self.can_run(process, found) {
            // The objects are there, and may be lost before the frame looks.
            return self.wake_in(BLOCKED_AFTER_NANOS, Wake::Blocked(number, frame));
        }
        let waits = !self.can_run(process, found) && !matches!(found.wait, Wait::End);
        if waits && !process.core.execution().is_blocked() {
            hit("a task waited and lent its CPU");
            if process.core.execution().queued() > 0 {
                hit("a task waited with others queued behind it");
            }
            self.with_core(number, |core, out| core.set_blocked(true, out));
            self.touch(number);
        }
    }

    /// A frame has run for a millisecond: the tasks queued behind it go back.
    pub fn return_if_long(&mut self, number: u32, frame: u64) {
        let process = self.process(number);
        if process.is_running() && process.is_paused {
            return self.wake_in(PAUSED_NANOS, Wake::Long(number, frame));
        }
        if !process.is_running() {
            return;
        }
        if process.frames.iter().any(|f| f.number == frame) {
            if process.core.execution().queued() > 0 {
                hit("a task took long with others queued behind it");
            }
            self.with_core(number, |core, out| core.return_queued(out));
            self.touch(number);
        }
    }
}

/// Whether a frame need not wait for the object: a value at another node may still have to be pulled.
fn has_come(slot: &Slot) -> bool {
    !matches!(slot.place(), Place::Nowhere | Place::OnItsWay)
}

/// Whether a checkpoint is to be taken and no call is running.
fn is_due(process: &Process) -> bool {
    process.frames.is_empty() && process.instance.as_ref().is_some_and(|instance| instance.is_due)
}

fn can_take(process: &Process) -> bool {
    let has_room = process.frames.len() < process.places();
    let is_due = process.instance.as_ref().is_some_and(|instance| instance.is_due);
    has_room && !is_due && !process.is_driver && process.core.execution().can_take()
}
