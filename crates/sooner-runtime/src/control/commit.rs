//! The writing thread: it commits the batches that come in, many at a time, and returns their outcomes in
//! order.
//!
//! A batch is committed at once when the disk is idle; batches that come while it is busy form the next
//! group. So a single write waits only for the disk, and a flood of batches costs as many commits as the disk
//! can do, not one for each.
//!
//! The thread knows nothing of what it writes. It never drops a batch: each has an outcome, also when the
//! thread is told to end.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};
use sooner_wire::limits::{STORE_GROUP_MAX, STORE_QUEUE_MAX};

use super::store::{Batch, Outcome, Store, StoreError};
use crate::clock;

/// The result of one batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// The ticket with which the batch was submitted.
    pub ticket: u64,
    /// The outcome, or why there is none.
    pub outcome: Result<Outcome, StoreError>,
}

/// Called for each group when it is durable, or could not be made so, by the writing thread: it must hand on
/// the outcomes and return.
pub type OnDone = Box<dyn FnMut(Vec<Done>) + Send>;

#[derive(Debug, Default)]
struct Queue {
    batches: VecDeque<(u64, Batch)>,
    is_ending: bool,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
}

/// See the module. Dropping it writes the submitted batches and waits for that.
pub struct Committer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Box<dyn Store>>>,
}

impl Committer {
    /// Starts the thread, which takes over the store.
    ///
    /// # Errors
    /// When the system cannot start a thread.
    pub fn start(store: Box<dyn Store>, on_done: OnDone) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let of_thread = shared.clone();
        let run = move || run(store, &of_thread, on_done);
        let thread = std::thread::Builder::new().name("sooner-commit".into()).spawn(run)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Submits a batch. Batches are applied in the order of these calls.
    ///
    /// # Errors
    /// The batch, when too many wait: the disk cannot keep up.
    pub fn submit(&self, ticket: u64, batch: Batch) -> Result<(), Batch> {
        let mut queue = self.shared.queue.lock();
        if queue.batches.len() >= STORE_QUEUE_MAX {
            return Err(batch);
        }
        queue.batches.push_back((ticket, batch));
        drop(queue);
        self.shared.wake.notify_one();
        Ok(())
    }

    /// Writes the submitted batches, and returns the store.
    #[must_use]
    pub fn stop(mut self) -> Box<dyn Store> {
        self.end().expect("it is ended once")
    }

    fn end(&mut self) -> Option<Box<dyn Store>> {
        self.shared.queue.lock().is_ending = true;
        self.shared.wake.notify_one();
        self.thread.take().map(|thread| thread.join().expect("the thread does not panic"))
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.end();
    }
}

fn run(mut store: Box<dyn Store>, shared: &Shared, mut on_done: OnDone) -> Box<dyn Store> {
    while let Some((tickets, batches)) = next_group(shared) {
        let done = match store.commit(&batches, clock::now()) {
            Ok(outcomes) => tickets
                .into_iter()
                .zip(outcomes)
                .map(|(ticket, outcome)| Done { ticket, outcome: Ok(outcome) })
                .collect(),
            Err(error) => {
                tickets.into_iter().map(|ticket| Done { ticket, outcome: Err(error.clone()) }).collect()
            }
        };
        on_done(done);
    }
    store
}

/// Waits for batches; `None` when none are left and the thread is to end.
fn next_group(shared: &Shared) -> Option<(Vec<u64>, Vec<Batch>)> {
    let mut queue = shared.queue.lock();
    while queue.batches.is_empty() {
        if queue.is_ending {
            return None;
        }
        shared.wake.wait(&mut queue);
    }
    let count = queue.batches.len().min(STORE_GROUP_MAX);
    Some(queue.batches.drain(..count).unzip())
}
