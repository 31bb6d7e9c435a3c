//! Streaming tasks as their owner sees them: which items have come, and which the reader has taken.
//!
//! Item `i` is object `i` of the task, from 1; object 0 is the final return value. The record of the item
//! that the reader takes next always exists, so a reader waits for it as for any object. Behind the last item
//! comes the error, if there was one, and then one object that says that there are no more.
//!
//! Items whose values are lost come again from another execution, under the same indices. If the current
//! execution has already passed a lost item, it ends at its next item, and the task begins again. An
//! execution that is only for lost items ends when it has yielded the last of them, so endless generators can
//! be repeated, too.
//!
//! Invariants:
//! - ST1: the reader takes each item once, in order, also when the task was executed again.
//! - ST2: items from the next one to the last known one are used by the stream; no other is.
//! - ST3: an item that is missing has no value; the task is pending.
//!
//! It keeps counts only: the records are in the ownership table.

use crate::probes::{bug, mark};
use sooner_wire::message::Streaming;

use crate::table::{Map, Set};

/// What to do with an item that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// The next item: it gets its value.
    New,
    /// The item arrived before and was lost: it gets its value.
    Missed,
    /// The item arrived before, in an earlier execution, or has no reader any more.
    Unwanted,
}

/// One streaming task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    /// Options it was submitted with.
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
    /// The reader is gone and the end of the task is not awaited either.
    pub stops: bool,
    /// Whether an item ever lay in shared memory.
    pub has_stored: bool,
    /// Items whose values are lost and that come again; 0 for the task's return value.
    missing: Set<u32>,
    /// The last item yielded by the current execution.
    position: u32,
    /// An item was lost that the current execution has passed.
    is_behind: bool,
    /// The current execution was told to stop, or has passed a missing item.
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

    /// Whether the current execution has yielded this item already.
    #[must_use]
    pub fn has_passed(&self, index: u32) -> bool {
        (1..=self.position).contains(&index)
    }

    /// The value of an item is lost; `is_passed`: the current execution does not bring it.
    pub fn expect(&mut self, index: u32, is_passed: bool) {
        self.missing.insert(index);
        self.is_behind |= is_passed;
        self.is_cut |= is_passed;
    }

    /// The item is not needed any more.
    pub fn forget(&mut self, index: u32) {
        self.missing.swap_remove(&index);
    }

    /// Whether the ended execution did not come far enough, because it was told to end.
    #[must_use]
    pub fn begins_again(&self) -> bool {
        self.is_cut && (!self.missing.is_empty() || (!self.has_ended && !self.stops))
    }

    /// The task has ended: gives its last item, whether it ended by itself, and the missing items.
    pub fn take_missing(&mut self) -> (u32, bool, Vec<u32>) {
        let mut missing: Vec<u32> =
            std::mem::take(&mut self.missing).into_iter().filter(|index| *index > 0).collect();
        missing.sort_unstable();
        (self.position, !self.is_cut, missing)
    }

    /// An item arrived; `is_current`: from the current execution.
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

    /// How far the executing worker may go, and whether it must stop; `None`: no need to tell it.
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

    /// A task is executed again for lost items, of which `items` had come.
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
