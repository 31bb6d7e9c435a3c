//! Tasks that wait for their arguments give way to older ones
//! (`docs/adr/0041-arguments-are-admitted-together.md`).
//!
//! A waiting task keeps arguments in use: those that were brought for it, and those that were in memory when
//! it was sent. Two such tasks may keep from each other the memory they lack. So when all of memory is in
//! use, the worker of the youngest such task is asked to give way: the task goes back to its submitter, and
//! comes again after a pause. Then no process uses its arguments, and they go to disk like others.
//!
//! The oldest task never gives way, and processes that make values never do: they run. So some task goes on
//! as long as there is room for the arguments of one task beside what running tasks keep.
//!
//! This file never waits for an answer: one worker is asked at a time, and its death counts as one.

use sooner_wire::WorkerId;

use crate::probes::mark;
use crate::table::Set;

/// See the module.
#[derive(Debug, Default)]
pub(in crate::node) struct Yielding {
    /// The worker that was asked, and has not answered.
    asked: Option<WorkerId>,
    /// Workers that were asked since the last time that none was left to ask.
    before: Set<WorkerId>,
}

/// Who gives way next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::node) enum Turn {
    /// A worker was asked, and has not answered.
    Waits,
    /// This process is to be asked.
    Ask(WorkerId),
    /// No process can give way, or all have been asked.
    Nobody,
}

impl Yielding {
    /// Whose turn it is. `youngest` gives the process with the youngest task that may give way, except those
    /// that its argument spares.
    pub(in crate::node) fn next(
        &mut self,
        youngest: impl FnOnce(&dyn Fn(WorkerId) -> bool) -> Option<WorkerId>,
    ) -> Turn {
        if self.asked.is_some() {
            return Turn::Waits;
        }
        let Some(worker) = youngest(&|process| self.before.contains(&process)) else {
            // Next time from the beginning: other processes may have come.
            self.before.clear();
            return Turn::Nobody;
        };
        mark!("a task had to give way to an older one");
        self.asked = Some(worker);
        self.before.insert(worker);
        Turn::Ask(worker)
    }

    /// A process has answered a question for blocks, or is dead. True if it was the one that was asked.
    pub(in crate::node) fn end(&mut self, process: WorkerId) -> bool {
        self.asked.take_if(|asked| *asked == process).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_asked_at_a_time_and_each_once_until_none_is_left() {
        let all = [WorkerId(1), WorkerId(2)];
        let mut yielding = Yielding::default();
        let next = |yielding: &mut Yielding| {
            yielding.next(|is_spared| all.into_iter().find(|process| !is_spared(*process)))
        };
        assert_eq!(next(&mut yielding), Turn::Ask(all[0]));
        assert_eq!(next(&mut yielding), Turn::Waits);
        assert!(!yielding.end(all[1]) && yielding.end(all[0]) && !yielding.end(all[0]));
        assert_eq!(next(&mut yielding), Turn::Ask(all[1]));
        assert!(yielding.end(all[1]));
        assert_eq!(next(&mut yielding), Turn::Nobody);
        assert_eq!(next(&mut yielding), Turn::Ask(all[0]), "from the beginning");
    }
}
