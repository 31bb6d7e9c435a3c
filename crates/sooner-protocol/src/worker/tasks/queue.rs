//! Tasks of one shape that wait for a worker: those of higher priority first, equals in the order they came.
//!
//! Nearly all have priority zero and wait in one plain queue; the others cost them a look at an empty list.
//! There is no rule against starvation: a task waits as long as any task of higher priority does.

use std::collections::VecDeque;

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Queue {
    /// Tasks of priority zero.
    plain: VecDeque<u64>,
    /// The other tasks by priority, the highest first; no queue is empty.
    ranked: Vec<(i32, VecDeque<u64>)>,
}

impl Queue {
    fn lane(&mut self, priority: i32) -> &mut VecDeque<u64> {
        if priority == 0 {
            return &mut self.plain;
        }
        let at = self.ranked.partition_point(|(other, _)| *other > priority);
        if self.ranked.get(at).is_none_or(|(other, _)| *other != priority) {
            self.ranked.insert(at, (priority, VecDeque::new()));
        }
        &mut self.ranked[at].1
    }

    /// Behind those of equal priority.
    pub fn push_back(&mut self, priority: i32, task: u64) {
        self.lane(priority).push_back(task);
    }

    /// Before those of equal priority.
    pub fn push_front(&mut self, priority: i32, task: u64) {
        self.lane(priority).push_front(task);
    }

    /// Takes a task out, wherever it is.
    pub fn remove(&mut self, task: u64) {
        self.plain.retain(|queued| *queued != task);
        self.ranked.iter_mut().for_each(|(_, lane)| lane.retain(|queued| *queued != task));
        self.ranked.retain(|(_, lane)| !lane.is_empty());
    }

    /// Whether the plain queue has the next task.
    fn is_plain_next(&self) -> bool {
        match self.ranked.first() {
            None => true,
            Some((priority, _)) => *priority < 0 && !self.plain.is_empty(),
        }
    }

    /// The next task.
    #[must_use]
    pub fn front(&self) -> Option<u64> {
        let lane = if self.is_plain_next() { &self.plain } else { &self.ranked[0].1 };
        lane.front().copied()
    }

    /// Takes the next task out.
    pub fn pop_front(&mut self) -> Option<u64> {
        if self.is_plain_next() {
            return self.plain.pop_front();
        }
        let lane = &mut self.ranked[0].1;
        let task = lane.pop_front();
        if lane.is_empty() {
            self.ranked.remove(0);
        }
        task
    }

    /// Number of waiting tasks.
    #[must_use]
    pub fn len(&self) -> usize {
        let ranked =
            if self.ranked.is_empty() { 0 } else { self.ranked.iter().map(|(_, lane)| lane.len()).sum() };
        self.plain.len() + ranked
    }

    /// Whether no task waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.plain.is_empty() && self.ranked.is_empty()
    }

    /// The priority of the next task; zero without one.
    #[must_use]
    pub fn priority(&self) -> i32 {
        if self.is_plain_next() { 0 } else { self.ranked[0].0 }
    }

    /// Takes out all tasks, in their order.
    pub fn drain(&mut self) -> Vec<u64> {
        std::iter::from_fn(|| self.pop_front()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn tasks_come_by_priority_and_equals_in_their_order(
            priorities in proptest::collection::vec(-2i32..3, 0..40),
            removed in proptest::collection::vec(0u64..40, 0..5),
        ) {
            let mut queue = Queue::default();
            let mut expected: Vec<(i32, u64)> = Vec::new();
            for (task, priority) in (0..).zip(priorities) {
                queue.push_back(priority, task);
                expected.push((priority, task));
            }
            for task in removed {
                queue.remove(task);
                expected.retain(|(_, other)| *other != task);
            }
            // A stable sort.
            expected.sort_by_key(|(priority, _)| std::cmp::Reverse(*priority));
            prop_assert_eq!(queue.len(), expected.len());
            prop_assert_eq!(queue.is_empty(), expected.is_empty());
            for (priority, task) in expected {
                prop_assert_eq!((queue.priority(), queue.front()), (priority, Some(task)));
                prop_assert_eq!(queue.pop_front(), Some(task));
            }
            prop_assert!(queue.is_empty() && queue.priority() == 0 && queue.pop_front().is_none());
        }
    }

    #[test]
    fn what_comes_back_goes_before_its_equals() {
        let mut queue = Queue::default();
        for (priority, task) in [(0, 1), (5, 2), (-1, 3), (5, 4)] {
            queue.push_back(priority, task);
        }
        queue.push_front(5, 9);
        queue.push_front(-1, 8);
        assert_eq!(queue.drain(), vec![9, 2, 4, 1, 8, 3]);
    }
}
