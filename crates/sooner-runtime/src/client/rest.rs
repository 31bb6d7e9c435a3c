//! Rest: a thread sleeps while others attend to something, and is woken by the thread that stops attending.
//!
//! Sleeper and waker each write one flag and then read the other's: the sleeper writes that it rests, the
//! waker that it no longer attends. A processor may let the read pass the write before it; then both read old
//! values, and the sleeper sleeps for ever. So write and read must be ordered for all threads: the waker's
//! write is followed by a fence ([`Rest::end_after`]), unless it is sequentially consistent itself or is made
//! under a lock that the sleeper takes before it looks ([`Rest::end`]).
//!
//! Only the thread that rests may block here.

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
    /// Sets the thread that rests. Called once.
    pub(super) fn of(&self, thread: Thread) {
        let _ = self.thread.set(thread);
    }

    pub(super) fn is_resting(&self) -> bool {
        self.is_resting.load(Ordering::SeqCst)
    }

    /// Sleeps until another thread ends the rest, or for as long as `limit` says; not at all if that is
    /// `None`. Called by the resting thread. Reasons not to rest must be looked at in `limit`, and nowhere
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

    /// Like [`Self::end_after`], without a fence: the caller's change ended in a sequentially consistent
    /// write, or was made under a lock.
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
