//! Tasks whose worker crashed, and when they are tried again.
//!
//! The first retry is at once: most crashes have nothing to do with the task. Then a pause doubles with each
//! crash, so that a task which kills its workers costs little beside the others, however often it may be
//! retried.

use crate::time::Instant;

/// See the module. An entry stays until its time, even if its task ends earlier.
#[derive(Debug, Default)]
pub struct Delays {
    /// By time, the earliest last.
    tasks: Vec<(Instant, u64)>,
}

impl Delays {
    /// A task waits until `until`.
    pub fn insert(&mut self, until: Instant, task: u64) {
        let at = self.tasks.partition_point(|entry| *entry > (until, task));
        self.tasks.insert(at, (until, task));
    }

    /// Takes out a task whose time has come.
    pub fn take_due(&mut self, now: Instant) -> Option<u64> {
        self.tasks.pop_if(|(until, _)| *until <= now).map(|(_, task)| task)
    }

    /// When the next task's time comes.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.tasks.last().map(|(until, _)| *until)
    }
}

#[cfg(test)]
mod tests {
    use sooner_wire::limits::{RETRY_PAUSE_NANOS, RETRY_PAUSE_NANOS_MAX};

    use super::*;
    use crate::pace::pause_after;

    #[test]
    fn the_first_retry_is_at_once_and_pauses_double_up_to_a_bound() {
        let pauses: Vec<u64> = (0..6).map(|failures| pause_after(failures) / RETRY_PAUSE_NANOS).collect();
        assert_eq!(pauses, [0, 0, 1, 2, 4, 8]);
        assert_eq!(pause_after(u32::MAX), RETRY_PAUSE_NANOS_MAX);
    }

    #[test]
    fn tasks_come_back_by_time() {
        let mut delays = Delays::default();
        for (until, task) in [(30, 1), (10, 2), (20, 3), (10, 4)] {
            delays.insert(Instant(until), task);
        }
        assert_eq!(delays.next(), Some(Instant(10)));
        assert_eq!(delays.take_due(Instant(9)), None);
        let due: Vec<u64> = std::iter::from_fn(|| delays.take_due(Instant(20))).collect();
        assert_eq!(due, [2, 4, 3]);
        assert_eq!(delays.next(), Some(Instant(30)));
    }
}
