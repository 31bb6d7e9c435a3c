//! Streaming tasks as their owner sees them: which items have come, and which the reader has taken.
//!
//! Item `i` is object `i` of the task, from 1; object 0 is what the task returns in the end. The record of the item
//! that the reader takes next always exists, so that a reader waits for it as for any object. Behind the last item
//! comes, after an error, the error, and then one object that says that there is no more.
//!
//! Invariants:
//! - S1: the reader takes each item once, in order, also when the task was executed again.
//! - S2: items from the next one to the last known one are used by the stream; no other is.
//!
//! It keeps counts only: the records are the ownership table's.

use crate::probes::{bug, mark};
use sooner_wire::message::Streaming;

use crate::table::Map;

/// What to do with an item that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// The next one: it gets its value.
    New,
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
}

impl Stream {
    fn new(options: Streaming) -> Self {
        Self { options, next: 1, known: 1, received: 0, has_ended: false, is_dropped: false, stops: false }
    }

    /// An item came.
    pub fn on_item(&mut self, index: u32) -> Arrival {
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
    pub fn progress(&self) -> Option<(u32, bool)> {
        let taken = if self.is_dropped { u32::MAX } else { self.next - 1 };
        let matters = self.stops || (self.options.backpressure > 0 && taken > 0);
        matters.then_some((taken, self.stops))
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
        assert_eq!(stream.on_item(1), Arrival::New);
        assert_eq!(stream.on_item(2), Arrival::New);
        stream.next = 2;
        assert_eq!(stream.progress(), Some((1, false)));
        // The worker died; another one begins again.
        assert_eq!(stream.on_item(1), Arrival::Unwanted);
        assert_eq!(stream.on_item(2), Arrival::Unwanted);
        assert_eq!(stream.on_item(3), Arrival::New);
        stream.is_dropped = true;
        assert_eq!(stream.on_item(4), Arrival::Unwanted);
        assert_eq!(stream.progress(), Some((u32::MAX, false)));
    }
}
