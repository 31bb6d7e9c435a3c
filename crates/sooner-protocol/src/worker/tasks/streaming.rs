//! Streaming tasks in the core: the owner's records of items, and the messages to and from the executing
//! worker.

use std::sync::Arc;

use crate::probes::{bug, mark};
use sooner_wire::message::{Failure, FailureCode, Item, ItemsTaken, Outcome, Return, Streaming, TaskSpec};
use sooner_wire::{ObjectId, TaskId, WorkerId};

use super::{Arrival, State, Stream};
use crate::worker::WorkerCore;
use crate::worker::action::{Actions, Peer, send};
use crate::worker::ownership::Slot;
use crate::worker::ownership::recovery::{reconstruction_failure, unrepeatable};

impl WorkerCore {
    /// The items of a submitted task will arrive one by one.
    pub(in crate::worker) fn open_stream(&mut self, task: TaskId, options: Streaming) {
        self.streams.insert(task.number, options);
        self.ownership.add_use(task.object(0));
        self.enter_item(task.object(1));
    }

    fn enter_item(&mut self, object: ObjectId) {
        self.ownership.own(object, Arc::new(Slot::default()));
        if let Some(site) = self.ownership.site(object.task.object(0)).cloned() {
            self.ownership.set_site(object, site);
        }
        self.ownership.add_use(object);
    }

    /// Enters the record of this item, if it has none yet.
    fn know_item(&mut self, task: TaskId, index: u32) {
        let Some(stream) = self.streams.get_mut(task.number) else { return };
        if index > stream.known {
            stream.known = index;
            self.enter_item(task.object(index));
        }
    }

    /// The item that the reader takes next, and its slot.
    #[must_use]
    pub fn next_item(&self, task: TaskId) -> Option<(u32, Arc<Slot>)> {
        let next = self.streams.get(task.number)?.next;
        Some((next, self.ownership.record(task.object(next))?.slot.clone()))
    }

    /// The reader takes the next item, of which it has a handle. False if another thread took the item first
    /// or closed the stream.
    pub fn take_item(&mut self, task: TaskId, index: u32, out: &mut Actions) -> bool {
        let Some(stream) = self.streams.get_mut(task.number) else { return false };
        if stream.is_dropped || stream.next != index {
            return false;
        }
        stream.next += 1;
        self.know_item(task, index + 1);
        self.ownership.end_use(task.object(index), out);
        self.notify_progress(task, out);
        true
    }

    /// The reader is gone: its unread items are dropped, and the task ends at its next item unless the end of
    /// the task is awaited.
    pub fn drop_stream(&mut self, task: TaskId, out: &mut Actions) {
        let number = task.number;
        let waits_for_end = self.ownership.record(task.object(0)).is_some_and(|r| r.slot.handles() > 0);
        let state = self.pendings.get(number).map(|pending| &pending.state);
        let (is_pending, is_pushed) = (state.is_some(), matches!(state, Some(State::Pushed { .. })));
        let Some(stream) = self.streams.get_mut(number) else { return };
        let (unread, has_ended) = (stream.next..=stream.known, stream.has_ended);
        let has_items = stream.received > 0;
        stream.is_dropped = true;
        stream.stops = !waits_for_end;
        if !is_pending {
            self.streams.remove(number);
        }
        for index in unread {
            self.forget_item(task.object(index), out);
        }
        self.ownership.end_use(task.object(0), out);
        if !is_pending {
            return self.end_need(out);
        }
        if is_pushed {
            self.notify_progress(task, out);
        } else if !waits_for_end && !has_ended && !has_items {
            // With items received, the task begins again and ends there: it may have to make lost ones again
            // one day.
            self.cancel_own(number, false, true, out);
        }
        self.run_unblocked(out);
        self.end_need(out);
    }

    /// Drops an item, also one that has not come.
    fn forget_item(&mut self, object: ObjectId, out: &mut Actions) {
        if let Some(stream) = self.streams.get_mut(object.task.number) {
            stream.forget(object.index);
        }
        if self.ownership.record(object).is_some_and(|record| !record.slot.has_outcome()) {
            self.resolve(object, Outcome::Failed(Box::new(end_of_stream())), &[], out);
        }
        self.ownership.end_use(object, out);
    }

    /// Tells the worker that executes a streaming task how far it may go.
    pub(in crate::worker) fn notify_progress(&mut self, task: TaskId, out: &mut Actions) {
        let Some(State::Pushed { worker, .. }) = self.pendings.get(task.number).map(|p| &p.state) else {
            return;
        };
        if bug!(BackpressureForgotten) {
            return;
        }
        if let Some((taken, stop)) = self.streams.get_mut(task.number).and_then(Stream::progress) {
            send(out, Peer::Worker(*worker), ItemsTaken { task, taken, stop });
        }
    }

    /// An item of a task of this process arrived.
    pub(in crate::worker) fn on_item(&mut self, from: WorkerId, item: Item, out: &mut Actions) {
        let Item { task, index, value } = item;
        self.ownership.receive(&value.contained, from);
        let object = task.object(index);
        let pending = self.pendings.get(task.number);
        let is_current =
            pending.is_some_and(|p| matches!(p.state, State::Pushed { worker, .. } if worker == from));
        let arrival = self.streams.get_mut(task.number).map(|stream| stream.on_item(index, is_current));
        match arrival {
            Some(Arrival::New | Arrival::Missed) => {
                if arrival == Some(Arrival::New) {
                    self.know_item(task, index);
                }
                if value.outcome.is_in_memory() {
                    self.record_item(object);
                }
                self.resolve(object, value.outcome, &value.contained, out);
                if arrival == Some(Arrival::Missed) {
                    mark!("a lost item came again");
                    self.notify_progress(task, out);
                }
            }
            Some(Arrival::Unwanted) | None => {
                self.ownership.discard(object, &value.outcome, &value.contained, out);
            }
        }
    }

    /// An item of a task of this process lies in shared memory. From now on it may be dropped, and made again
    /// if its task can be.
    fn record_item(&mut self, object: ObjectId) {
        let number = object.task.number;
        let (Some(pending), Some(stream)) = (self.pendings.get(number), self.streams.get_mut(number)) else {
            return;
        };
        stream.has_stored = true;
        match unrepeatable(pending) {
            Some(made) => self.ownership.set_made(object, made),
            None => _ = self.ownership.mark_kept(object),
        }
    }

    /// An item lost its value, and its task has not ended or is executed again: it comes from this execution
    /// or from a later one. False if there is no such task.
    pub(in crate::worker) fn expect_item(&mut self, object: ObjectId, out: &mut Actions) -> bool {
        let ObjectId { task, index } = object;
        let pending = self.pendings.get(task.number).filter(|_| task.owner == self.me);
        let (Some(pending), Some(stream)) = (pending, self.streams.get_mut(task.number)) else {
            return false;
        };
        let is_passed = matches!(pending.state, State::Pushed { .. }) && stream.has_passed(index);
        self.ownership.expect_again(object);
        if is_passed && let Some(made) = unrepeatable(pending) {
            self.ownership.set_made(object, made);
            let failure = self.ownership.lost_failure(object);
            self.resolve(object, Outcome::Failed(Box::new(failure)), &[], out);
            return true;
        }
        stream.expect(index, is_passed);
        if is_passed {
            mark!("an item was lost that the execution had passed");
            self.notify_progress(task, out);
        }
        true
    }

    /// A streaming task of this process has ended; object 0 has its outcome.
    pub(in crate::worker) fn end_stream(
        &mut self,
        spec: &TaskSpec,
        failure: Option<&Failure>,
        out: &mut Actions,
    ) {
        let task = spec.task;
        let Some(stream) = self.streams.get_mut(task.number) else { return };
        let had_ended = std::mem::replace(&mut stream.has_ended, true);
        let (last, known, options, is_dropped) =
            (stream.received, stream.known, stream.options, stream.is_dropped);
        let (position, is_whole, missing) = stream.take_missing();
        if is_dropped {
            self.streams.remove(task.number);
        }
        for object in missing.into_iter().map(|index| task.object(index)) {
            let failure = match failure {
                Some(failure) => reconstruction_failure(spec, failure),
                None if is_whole => fewer_items(spec, object.index, position),
                None => self.ownership.lost_failure(object),
            };
            self.resolve(object, Outcome::Failed(Box::new(failure)), &[], out);
        }
        if is_dropped || had_ended {
            return;
        }
        if options.dynamic {
            self.streams.remove(task.number);
            for index in 1..=known {
                self.forget_item(task.object(index), out);
            }
            return self.ownership.end_use(task.object(0), out);
        }
        let mut ends = failure.cloned().into_iter().collect::<Vec<_>>();
        ends.push(end_of_stream());
        for (index, failure) in (last + 1..).zip(ends) {
            self.know_item(task, index);
            self.resolve(task.object(index), Outcome::Failed(Box::new(failure)), &[], out);
        }
    }

    /// A local task has yielded. References inside the item are registered for the caller first.
    pub fn on_yielded(&mut self, task: TaskId, index: u32, value: Return, out: &mut Actions) {
        let Some(Peer::Worker(caller)) = self.execution.caller(task) else { return };
        // Most items contain no reference: nothing is copied for them.
        let lent = if value.contained.is_empty() { Vec::new() } else { self.execution.uses(task).to_vec() };
        self.give_away(task.object(index), &value, caller, &lent, out);
        send(out, Peer::Worker(caller), Item { task, index, value });
    }
}

/// A lost item does not come again.
fn fewer_items(spec: &TaskSpec, index: u32, last: u32) -> Failure {
    let message = format!(
        "item {index} of {}() was lost, and the generator, executed again, ended after item {last}. A generator that is repeated must \
         yield the same items each time; with max_retries=0 it is not repeated",
        spec.name.as_str()
    );
    Failure::new(FailureCode::ReconstructionFailed, message)
}

fn end_of_stream() -> Failure {
    Failure::new(FailureCode::EndOfStream, "the generator has no further items")
}

#[cfg(test)]
mod tests {
    use sooner_wire::message::{Define, LeaseGranted, Reply, TaskKind, TaskSpec};
    use sooner_wire::{Blob, FunctionId, LeaseId, Name, ResourceSet};

    use super::*;
    use crate::time::Instant;

    const ME: WorkerId = WorkerId(1);
    const WORKER: WorkerId = WorkerId(2);

    /// A streaming task that runs.
    fn streaming(core: &mut WorkerCore, out: &mut Actions) -> TaskId {
        let task = TaskId { owner: ME, number: 1 };
        let shape = core.shape(&ResourceSet::default());
        let (function, name) = (FunctionId(1), Name::from("f"));
        core.define(Define {
            function,
            name: name.clone(),
            code: Blob::default(),
            references: Vec::new(),
            place: None,
        });
        let spec = TaskSpec {
            stream: Some(Streaming::default()),
            ..TaskSpec::new(task, TaskKind::Task(shape), function, name, Blob::default())
        };
        core.submit(Arc::new(spec), [Arc::new(Slot::default())], None, out);
        let granted = LeaseGranted { shape, lease: LeaseId(1), worker: WORKER, gpus: Vec::new() };
        core.on_message(Peer::Node, granted.into(), Instant(0), out);
        task
    }

    fn value() -> Return {
        Return { outcome: Outcome::Inline(Blob::from(&b"1"[..])), contained: Vec::new() }
    }

    #[test]
    fn nothing_is_taken_from_a_stream_whose_reader_left() {
        // One thread saw an item and made a handle of it; another one closed the generator before it was
        // taken.
        let mut core = WorkerCore::new(ME);
        let mut out = Actions::new();
        let task = streaming(&mut core, &mut out);
        core.on_item(WORKER, Item { task, index: 1, value: value() }, &mut out);
        let (index, slot) = core.next_item(task).expect("it streams");
        slot.acquire();
        core.drop_stream(task, &mut out);
        assert!(!core.take_item(task, index, &mut out));
        assert!(slot.release());
        core.on_handles_dropped(&[task.object(index)], &mut out);
        let reply = Reply {
            task,
            returns: vec![value()],
            held: Vec::new(),
            nanos: 1,
            retry: false,
            timing: None,
            not_run: None,
        };
        core.on_message(Peer::Worker(WORKER), reply.into(), Instant(0), &mut out);
        assert!(core.ownership().is_empty(), "{:?}", core.ownership());
        assert_eq!(core.open_streams(), 0);
    }
}
