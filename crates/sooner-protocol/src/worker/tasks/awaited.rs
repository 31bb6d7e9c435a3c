//! What a task waits for before it is queued, apart from its dependencies: a number of values behind
//! references. So it waits without a worker, and nothing is brought to a node for it. (Small values come in
//! messages to whoever waits for them, so also to this process.)
//!
//! It is a hint for the first execution. A task that is executed again begins at once, and so does one whose
//! awaited value came and was lost: they have to wait in their workers.

use sooner_wire::ObjectId;
use sooner_wire::message::{Outcome, TaskSpec};

use super::{Pendings, State};
use crate::probes::{bug, mark};
use crate::table::Map;
use crate::worker::action::Actions;
use crate::worker::ownership::Ownership;

/// Set in the number of a task that waits for an object in this way. The object keeps it until it has its
/// outcome, even if the task has ended by then, or is executed again and waits for other things.
const TOKEN: u64 = 1 << 63;

/// The values that a task waits for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Awaited {
    /// Values that have to come; zero: nothing is waited for.
    values: usize,
    /// Failures that may come without making that impossible.
    spare: usize,
    /// The objects, each with the number of values that it stands for.
    objects: Map<ObjectId, usize>,
}

impl Awaited {
    /// Waits for `values` of the values of objects. One that is named twice counts twice.
    #[must_use]
    pub fn new(values: usize, objects: impl IntoIterator<Item = ObjectId>) -> Self {
        let mut awaited = Self { values, ..Self::default() };
        let mut all = 0_usize;
        for object in objects {
            *awaited.objects.entry(object).or_default() += 1;
            all += 1;
        }
        match all.checked_sub(values) {
            Some(spare) => awaited.spare = spare,
            None => awaited.values = 0,
        }
        awaited
    }

    /// Whether nothing is waited for any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.values == 0
    }

    /// The objects.
    pub fn objects(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.objects.keys().copied()
    }

    /// A value came, or a failure. True if the wait ends with it: all values are there, or too many of the
    /// outcomes are failures for that.
    #[must_use]
    pub fn ends_with(&mut self, object: ObjectId, has_failed: bool) -> bool {
        if self.is_over() {
            return false;
        }
        let weight = self.objects.swap_remove(&object).unwrap_or(0);
        if !has_failed {
            self.values = self.values.saturating_sub(weight);
        } else if weight <= self.spare || bug!(AwaitedFailureForgotten) {
            self.spare = self.spare.saturating_sub(weight);
        } else {
            mark!("a value that a task waited for behind a reference failed");
            self.values = 0;
        }
        self.is_over()
    }
}

/// Has a task that was entered wait. Gives the objects without an outcome.
pub fn begin(
    mut awaited: Awaited,
    spec: &TaskSpec,
    pendings: &mut Pendings,
    ownership: &mut Ownership,
    out: &mut Actions,
) -> Vec<ObjectId> {
    let number = spec.task.number;
    let mut absent = Vec::new();
    for object in awaited.objects().collect::<Vec<_>>() {
        match ownership.record(object).map(|record| record.slot.outcome()) {
            Some(None) => absent.push(object),
            Some(Some(outcome)) => {
                let _ = awaited.ends_with(object, matches!(*outcome, Outcome::Failed(_)));
            }
            // Nobody here has a reference any more.
            None => {
                let _ = awaited.ends_with(object, true);
            }
        }
    }
    if awaited.is_over() {
        return Vec::new();
    }
    mark!("a task waited for values behind references");
    for object in &absent {
        ownership.depend(*object, number | TOKEN, out);
    }
    let pending = pendings.get_mut(number).expect("entered before");
    pending.awaited = Some(Box::new(awaited));
    if let State::Waiting { missing } = &mut pending.state {
        *missing += 1;
    }
    absent
}

/// An object has its outcome, which was awaited under this number. Gives the task if nothing is missing any
/// more.
pub fn note_outcome(number: u64, object: ObjectId, has_failed: bool, pendings: &mut Pendings) -> Option<u64> {
    let task = number & !TOKEN;
    let pending = pendings.get_mut(task)?;
    if number & TOKEN > 0 {
        if !pending.awaited.as_mut()?.ends_with(object, has_failed) {
            return None;
        }
        pending.awaited = None;
    }
    let State::Waiting { missing } = &mut pending.state else { return None };
    *missing -= 1;
    (*missing == 0).then_some(task)
}

#[cfg(test)]
mod tests {
    use sooner_wire::{TaskId, WorkerId};

    use super::*;

    fn object(number: u64) -> ObjectId {
        TaskId { owner: WorkerId(1), number }.object(0)
    }

    fn awaited<const N: usize>(values: usize, objects: [u64; N]) -> Awaited {
        Awaited::new(values, objects.map(object))
    }

    #[test]
    fn values_are_awaited_as_long_as_enough_can_come() {
        let mut two_of_three = awaited(2, [1, 2, 3]);
        assert!(!two_of_three.ends_with(object(3), true), "the other two are enough");
        assert!(!two_of_three.ends_with(object(1), false));
        assert!(two_of_three.ends_with(object(2), false), "both are there");

        let mut all = awaited(3, [1, 2, 3]);
        assert!(!all.ends_with(object(1), false));
        assert!(all.ends_with(object(2), true), "the second one never comes");
        assert!(!all.ends_with(object(3), false), "it has ended once");
    }

    #[test]
    fn one_that_is_named_twice_counts_twice() {
        let mut four_of_five = awaited(4, [1, 2, 3, 3, 2]);
        assert!(!four_of_five.ends_with(object(1), false));
        assert!(!four_of_five.ends_with(object(2), false), "three are there");
        assert!(four_of_five.ends_with(object(3), false));
        let mut four_of_five = awaited(4, [1, 2, 3, 3, 2]);
        assert!(four_of_five.ends_with(object(3), true), "only three can come");
    }

    #[test]
    fn what_cannot_come_is_not_awaited() {
        assert!(awaited(0, [1, 2]).is_over());
        assert!(awaited(2, [1]).is_over());
        assert!(!awaited(1, [1]).is_over());
        assert!(!awaited(1, [1]).ends_with(object(2), false), "another one is not awaited");
    }
}
