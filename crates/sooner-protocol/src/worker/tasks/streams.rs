//! Streaming tasks as their owner sees them: which items have come, and which the reader has taken.
//!
//! Item `i` is object `i` of the task, from 1; object 0 is what the task returns in the end. The record of
//! the item that the reader takes next always exists, so that a reader waits for it as for any object. Behind
//! the last item comes, after an error, the error, and then one object that says that there is no more.
//!
//! Items whose values are lost come again from another execution, under the same indices. One that the
//! execution has passed already will not come from it: that one ends at its next item, and the task begins
//! again. An execution that is only for lost items ends when it has yielded the last of them, so that also
//! endless generators are repeated.
//!
//! Invariants:
//! - ST1: the reader takes each item once, in order, also when the task was executed again.
//! - ST2: items from the next one to the last known one are used by the stream; no other is.
//! - ST3: an item that is missing has no value; the task is pending.
//!
//! It keeps counts only: the records are the ownership table's.

use crate::probes::{bug, mark};
use sooner_wire::message::Streaming;

use crate::table::{Map, Set};

/// What to do with an item that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// The next one: it gets its value.
    New,
    /// It came before and was lost: it gets its value.
    Missed,
    /// It came before, in an earlier execution, or nobody reads any more.
    Unwanted,
}

/// One streaming task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    /// How it was submitted.
    pub options: Streaming,
    /// The item the reader takes next.
    pub next: u32,
    /// Items up to this one have records.
    pub known: u32,
    /// Items up to this one have come.
    pub received: u32,
    /// The task has ended.
    pub has_ended: bool,
    /// The reader is gone.
    pub is_dropped: bool,
    /// The reader is gone and nobody waits for the end either.
    pub stops: bool,
    /// An item lay in shared memory.
    pub has_stored: bool,
    /// Items whose values are lost and that come again; 0 for what the task returns.
    missing: Set<u32>,
    /// The last item of the execution that goes on.
    position: u32,
    /// An item was lost that the execution has passed.
    is_behind: bool,
    /// The execution was told to stop, or has passed what is missing.
    is_cut: bool,
}

impl Stream {
    fn new(options: Streaming) -> Self {
        Self {
            options,
            next: 1,
            known: 1,
            received: 0,
            has_ended: false,
            is_dropped: false,
            stops: false,
            has_stored: false,
            missing: Set::default(),
            position: 0,
            is_behind: false,
            is_cut: false,
        }
    }

    /// The stream of a task that is executed again for lost items, whose reader is gone.
    fn unread(options: Streaming, items: u32) -> Self {
        Self {
            next: items + 1,
            known: items,
            received: items,
            has_ended: true,
            is_dropped: true,
            stops: true,
            has_stored: true,
            ..Self::new(options)
        }
    }

    /// An execution begins.
    pub fn begin(&mut self) {
        (self.position, self.is_behind, self.is_cut) = (0, false, false);
    }

    /// Whether the execution that goes on has yielded this item already.
    #[must_use]
    pub fn has_passed(&self, index: u32) -> bool {
        (1..=self.position).contains(&index)
    }

    /// The value of an item is lost; `is_passed`: the execution that goes on does not bring it.
    pub fn expect(&mut self, index: u32, is_passed: bool) {
        self.missing.insert(index);
        self.is_behind |= is_passed;
        self.is_cut |= is_passed;
    }

    /// Nobody needs the item any more.
    pub fn forget(&mut self, index: u32) {
        self.missing.swap_remove(&index);
    }

    /// Whether the execution that has ended did not come far enough, because it was told to end.
    #[must_use]
    pub fn begins_again(&self) -> bool {
        self.is_cut && (!self.missing.is_empty() || (!self.has_ended && !self.stops))
    }

    /// The task has ended: its last item, whether it ended by itself, and what is missing still.
    pub fn take_missing(&mut self) -> (u32, bool, Vec<u32>) {
        let mut missing: Vec<u32> =
            std::mem::take(&mut self.missing).into_iter().filter(|index| *index > 0).collect();
        missing.sort_unstable();
        (self.position, !self.is_cut, missing)
    }

    /// An item came; `is_current`: from the execution that goes on.
    pub fn on_item(&mut self, index: u32, is_current: bool) -> Arrival {
        if is_current {
            self.position = index;
        }
        if self.missing.swap_remove(&index) {
            return Arrival::Missed;
        }
        if index <= self.received {
            mark!("an item came again in a second execution");
        }
        if bug!(ItemTakenTwice) && index <= self.received {
            self.received += 1;
            return Arrival::New;
        }
        if self.is_dropped || self.has_ended || index != self.received + 1 {
            return Arrival::Unwanted;
        }
        self.received = index;
        Arrival::New
    }

    /// What the executing worker must know before it goes on, if anything.
    #[must_use]
    pub fn progress(&mut self) -> Option<(u32, bool)> {
        let taken = if self.is_dropped { u32::MAX } else { self.next - 1 };
        let stops = self.is_behind || (self.missing.is_empty() && (self.stops || self.has_ended));
        self.is_cut |= stops;
        let matters = stops || (self.options.backpressure > 0 && taken > 0);
        matters.then_some((taken, stops))
    }
}

/// All streams of this process, by task number.
#[derive(Debug, Default)]
pub struct Streams {
    streams: Map<u64, Stream>,
}

impl Streams {
    /// Enters a task.
    pub fn insert(&mut self, task: u64, options: Streaming) {
        self.streams.insert(task, Stream::new(options));
    }

    /// A task is executed again for items that are lost, of which this many had come.
    pub fn reopen(&mut self, task: u64, options: Streaming, items: u32) {
        self.streams.entry(task).or_insert_with(|| Stream::unread(options, items));
    }

    /// Looks a stream up.
    #[must_use]
    pub fn get(&self, task: u64) -> Option<&Stream> {
        self.streams.get(&task)
    }

    /// All streams, by task number.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Stream)> {
        self.streams.iter().map(|(task, stream)| (*task, stream))
    }

    /// Looks a stream up to change it.
    pub fn get_mut(&mut self, task: u64) -> Option<&mut Stream> {
        self.streams.get_mut(&task)
    }

    /// Forgets a stream.
    pub fn remove(&mut self, task: u64) {
        self.streams.swap_remove(&task);
    }

    /// Number of streams that are open or unread.
    #[must_use]
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_of_a_second_execution_are_taken_once() {
        let mut stream = Stream::new(Streaming { backpressure: 2, dynamic: false });
        assert_eq!(stream.on_item(1, true), Arrival::New);
        assert_eq!(stream.on_item(2, true), Arrival::New);
        stream.next = 2;
        assert_eq!(stream.progress(), Some((1, false)));
        // The worker died; another one begins again.
        assert_eq!(stream.on_item(1, true), Arrival::Unwanted);
        assert_eq!(stream.on_item(2, true), Arrival::Unwanted);
        assert_eq!(stream.on_item(3, true), Arrival::New);
        stream.is_dropped = true;
        assert_eq!(stream.on_item(4, true), Arrival::Unwanted);
        assert_eq!(stream.progress(), Some((u32::MAX, false)));
    }
}
