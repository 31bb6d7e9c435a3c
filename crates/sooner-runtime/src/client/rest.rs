//! Rest: how a thread sleeps for as long as others attend to something, and is woken by whoever stops to.
//!
//! Sleeper and waker each write one thing and then read what the other wrote: that it rests, and that nobody
//! attends any more. A processor may let such a read pass the write before it, so that both read what was
//! before, and the sleeper sleeps for ever. So each write comes before its read in one order that all threads
//! agree on: the waker's is followed by a fence ([`Rest::end_after`]), unless it is sequentially consistent
//! itself or is made under a lock that the sleeper takes for its look ([`Rest::end`]).
//!
//! Nobody but its thread may block here.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread::Thread;
use std::time::Duration;

/// See the module.
#[derive(Default)]
pub(super) struct Rest {
    is_resting: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Rest {
    /// Whose rest it is. Once.
    pub(super) fn of(&self, thread: Thread) {
        let _ = self.thread.set(thread);
    }

    pub(super) fn is_resting(&self) -> bool {
        self.is_resting.load(Ordering::SeqCst)
    }

    /// Sleeps until somebody ends the rest, or for as long as `limit` says; not at all if that is `None`.
    /// Called by the thread itself. What speaks against a rest must be looked at in `limit`, and nowhere
    /// before.
    pub(super) fn begin(&self, limit: impl FnOnce() -> Option<Duration>) {
        self.is_resting.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if let Some(limit) = limit() {
            std::thread::park_timeout(limit);
        }
        self.is_resting.store(false, Ordering::SeqCst);
    }

    /// Wakes the thread if it rests, because of something that the caller has just done.
    pub(super) fn end_after(&self) {
        fence(Ordering::SeqCst);
        self.end();
    }

    /// The same without a fence: what the caller did ends in a sequentially consistent write, or was done
    /// under a lock.
    pub(super) fn end(&self) {
        if self.is_resting()
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::time::Instant;

    use parking_lot::Mutex;

    use super::*;

    const ROUNDS: u64 = 2_000_000;
    const OVERSLEPT: Duration = Duration::from_secs(20);

    /// Waits until both threads are at a step.
    fn meet(step: u64, own: &AtomicU64, other: &AtomicU64) {
        own.store(step, Ordering::SeqCst);
        while other.load(Ordering::SeqCst) < step {
            std::hint::spin_loop();
        }
    }

    /// One thread attends and leaves while the other goes to rest, at the same moment, again and again.
    #[test]
    fn whoever_rests_is_woken_by_the_one_that_leaves() {
        let (rest, attended) = (Rest::default(), Mutex::new(()));
        let (sleeper, attendant) = (AtomicU64::new(0), AtomicU64::new(0));
        let overslept = std::thread::scope(|scope| {
            let sleeps = scope.spawn(|| {
                rest.of(std::thread::current());
                for round in 1..=ROUNDS {
                    meet(2 * round, &sleeper, &attendant);
                    while attended.is_locked() {
                        let start = Instant::now();
                        rest.begin(|| attended.is_locked().then_some(OVERSLEPT));
                        if start.elapsed() >= OVERSLEPT {
                            sleeper.store(u64::MAX, Ordering::SeqCst);
                            return Some(round);
                        }
                    }
                    meet(2 * round + 1, &sleeper, &attendant);
                }
                None
            });
            for round in 1..=ROUNDS {
                let lock = attended.lock();
                meet(2 * round, &attendant, &sleeper);
                drop(lock);
                rest.end_after();
                meet(2 * round + 1, &attendant, &sleeper);
            }
            sleeps.join().expect("it only sleeps")
        });
        assert_eq!(overslept, None, "the round in which nobody woke it");
    }
}
