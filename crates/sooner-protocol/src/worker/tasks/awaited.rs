//! What a task waits for before it is queued, apart from its dependencies: a number of values behind the
//! references that it takes. So it waits without a worker. The values are not brought anywhere for it.
//!
//! It is a hint for the first execution. A task that is executed again begins at once, and has to wait in
//! its worker if need be.

use sooner_wire::ObjectId;
use sooner_wire::message::TaskSpec;

use super::{Pendings, State};
use crate::probes::{bug, mark};
use crate::worker::action::Actions;
use crate::worker::ownership::Ownership;

/// How many outcomes a task waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Awaited {
    /// Values that have to come; zero: the wait is over.
    values: usize,
    /// Failures that may come without making that impossible.
    spare: usize,
}

impl Awaited {
    /// Waits for `values` out of `all` objects that have no outcome, if there are so many.
    #[must_use]
    pub fn new(values: usize, all: usize) -> Self {
        match all.checked_sub(values) {
            Some(spare) => Self { values, spare },
            None => Self { values: 0, spare: 0 },
        }
    }

    /// Whether nothing is waited for any more.
    #[must_use]
    pub fn is_over(self) -> bool {
        self.values == 0
    }

    /// A value came, or a failure. True if the wait ends with it: all values are there, or too many of the
    /// outcomes are failures for that.
    #[must_use]
    pub fn ends_with(&mut self, has_failed: bool) -> bool {
        if !has_failed {
            self.values -= 1;
        } else if self.spare > 0 || bug!(AwaitedFailureForgotten) {
            self.spare = self.spare.saturating_sub(1);
        } else {
            mark!("a value that a task waited for behind a reference failed");
            self.values = 0;
        }
        self.is_over()
    }
}

/// Has a task that was entered wait for so many of its references. Gives those without an outcome.
pub fn begin(
    values: usize,
    spec: &TaskSpec,
    pendings: &mut Pendings,
    ownership: &mut Ownership,
    out: &mut Actions,
) -> Vec<ObjectId> {
    let number = spec.task.number;
    let objects = awaitable(spec).into_iter();
    let (absent, there): (Vec<_>, Vec<_>) =
        objects.partition(|object| ownership.depend(*object, number, out));
    let has_value =
        |object: &&ObjectId| ownership.record(**object).is_none_or(|record| !record.slot.has_failed());
    let come = there.iter().filter(has_value).count();
    let awaited = Awaited::new(values.saturating_sub(come), absent.len());
    let pending = pendings.get_mut(number).expect("entered before");
    pending.awaited = Some(awaited);
    if awaited.is_over() {
        end(number, pendings, ownership);
        return Vec::new();
    }
    if let State::Waiting { missing } = &mut pending.state {
        *missing += 1;
        mark!("a task waited for values behind references");
    }
    absent
}

/// If a task waits for none of its references any more, those that have no outcome forget it: it may be
/// executed again, and then it waits for other things.
pub fn end(number: u64, pendings: &mut Pendings, ownership: &mut Ownership) {
    let Some(pending) = pendings.get_mut(number) else { return };
    if pending.awaited.take_if(|awaited| awaited.is_over()).is_some() {
        for object in awaitable(&pending.spec) {
            ownership.forget_dependent(object, number);
        }
    }
}

/// The objects that a task may wait for in this way.
pub fn awaitable(spec: &TaskSpec) -> Vec<ObjectId> {
    let mut objects: Vec<ObjectId> = spec.references.to_vec();
    objects.sort_unstable();
    objects.dedup();
    objects.retain(|object| !spec.dependencies.contains(object));
    objects
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_awaited_as_long_as_enough_can_come() {
        let mut two_of_three = Awaited::new(2, 3);
        assert!(!two_of_three.ends_with(true), "the other two are enough");
        assert!(!two_of_three.ends_with(false));
        assert!(two_of_three.ends_with(false), "both are there");

        let mut all = Awaited::new(3, 3);
        assert!(!all.ends_with(false));
        assert!(all.ends_with(true), "the second one never comes");
    }

    #[test]
    fn what_cannot_come_is_not_awaited() {
        assert!(Awaited::new(0, 3).is_over());
        assert!(Awaited::new(2, 1).is_over());
        assert!(!Awaited::new(1, 1).is_over());
    }
}
