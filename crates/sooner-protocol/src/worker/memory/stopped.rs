//! Tasks whose worker was stopped by its node because memory ran out ([`crate::node::workers::memory`]).
//!
//! The tasks are not, or not alone, to blame: those that may be retried are, after a pause that doubles, with
//! a budget of their own. So that it does not happen again, the retry reserves half as much again as the task
//! was seen to hold: then only as many such tasks run at a time as there is room for.
//!
//! It never raises the reservation of a task for which others may wait while it waits itself: a task that
//! holds memory and waits for one that waits for memory would wait for ever. Such tasks are tasks of tasks,
//! tasks that were given references, and tasks in a placement group, whose bundles are fixed.
//!
//! Tasks whose reservation it does raise are asked for in a shape of their own: a node may hold them to their
//! reservation, because being ended costs them only time ([`crate::node::workers::memory`]).

use std::sync::Arc;

use sooner_wire::limits::{MEMORY_RESERVATION_STEPS, MEMORY_RETRIES_MAX};
use sooner_wire::message::{Failure, FailureCode, MemoryEnd, TaskKind, TaskSpec};
use sooner_wire::resources::{UNIT, size};
use sooner_wire::{ResourceSet, ShapeId, Strategy, TaskId};

use crate::pace::pause_after;
use crate::worker::WorkerCore;
use crate::worker::action::Actions;
use crate::worker::tasks::State;
use crate::worker::tasks::cancelling::cancelled_failure;

const MEMORY: &str = "memory";
/// A task that the kernel ended this often is believed to be too large.
const UNCERTAIN_ENDS_MAX: u8 = 3;

/// Why a task is not executed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NoRetry {
    /// The task has no retries.
    NotAllowed,
    /// It was retried often enough.
    UsedUp,
    /// It had reserved all there is.
    TooLarge,
}

impl WorkerCore {
    /// The worker of a task that may have begun was stopped.
    pub(in crate::worker) fn after_memory_end(&mut self, number: u64, end: &MemoryEnd, out: &mut Actions) {
        let Some(pending) = self.pendings.get(number) else { return };
        let TaskKind::Task(shape) = pending.spec.kind() else { return };
        if pending.cancelled {
            let failure = cancelled_failure(pending.spec.task);
            return self.fail(number, &failure, out);
        }
        let reserved = self.reserved(shape);
        let no_retry = if pending.spec.retries == 0 {
            Some(NoRetry::NotAllowed)
        } else if end.limit.is_none()
            && end.reservable > 0
            && reserved >= end.reservable
            && is_certain(end, reserved, pending.memory_ends)
        {
            Some(NoRetry::TooLarge)
        } else {
            (pending.memory_ends >= MEMORY_RETRIES_MAX).then_some(NoRetry::UsedUp)
        };
        if let Some(no_retry) = no_retry {
            let failure = failure(&pending.spec, end, no_retry);
            return self.fail(number, &failure, out);
        }
        let (mut spec, parent, ends) = (pending.spec.clone(), pending.parent, pending.memory_ends + 1);
        let raised = if may_wait(&spec, parent) { shape } else { self.raise(shape, reserved, end) };
        Arc::make_mut(&mut spec).set_shape(raised);
        // The task reserves all it can have without waiting for others that may never end: the monitor is
        // enough for it.
        let has_all = end.limit.is_some() && self.reserved(raised) >= end.reservable;
        self.choose_shape(&mut spec, parent, if has_all { MEMORY_RETRIES_MAX } else { ends });
        Arc::make_mut(&mut spec).spared = (ends == MEMORY_RETRIES_MAX).then_some(true);
        let pending = self.pendings.get_mut(number).expect("looked up above");
        self.events.on_failed(pending, FailureCode::OutOfMemory as u8 + 1, true, self.now);
        pending.repeat(self.now);
        pending.memory_ends = ends;
        pending.spec = spec;
        // Memory comes free only as other tasks end, so there is a pause from the first time on.
        let until = self.now.plus(pause_after(u32::from(pending.memory_ends) + 1));
        pending.state = State::Delayed { until };
        self.delays.insert(until, number);
    }

    /// Chooses the shape for a task that ended `ends` times for want of memory: the shape says whether the
    /// next such end would raise its reservation.
    pub(in crate::worker) fn choose_shape(
        &mut self,
        spec: &mut Arc<TaskSpec>,
        parent: Option<TaskId>,
        ends: u8,
    ) {
        let TaskKind::Task(shape) = spec.kind() else { return };
        if self.reserved(shape) == 0 {
            return;
        }
        let is_in_group =
            self.leases.described(shape).is_some_and(|(_, place)| place.and_then(Strategy::group).is_some());
        let raises =
            spec.retries != 0 && ends < MEMORY_RETRIES_MAX && !is_in_group && !may_wait(spec, parent);
        let chosen = self.leases.raising_memory(shape, raises);
        if chosen != shape {
            Arc::make_mut(spec).set_shape(chosen);
        }
    }

    fn reserved(&self, shape: ShapeId) -> u64 {
        self.leases.resources(shape).map_or(0, |resources| resources.amount(MEMORY) / UNIT)
    }

    /// The raised shape with which a task is tried again.
    fn raise(&mut self, shape: ShapeId, reserved: u64, end: &MemoryEnd) -> ShapeId {
        let Some((resources, strategy)) = self.leases.described(shape) else { return shape };
        let bytes = larger(reserved, end);
        if bytes <= reserved || strategy.and_then(Strategy::group).is_some() {
            return shape;
        }
        let (mut resources, strategy): (ResourceSet, Option<Strategy>) =
            (resources.clone(), strategy.cloned());
        resources.add_one(MEMORY, (bytes - reserved).saturating_mul(UNIT));
        self.leases.shape(&resources, strategy.as_ref())
    }
}

/// Whether others may wait for a task while it waits itself.
fn may_wait(spec: &TaskSpec, parent: Option<TaskId>) -> bool {
    parent.is_some() || !spec.references.is_empty()
}

/// Whether this task certainly took the memory. The node knows what each worker holds and had reserved. The
/// kernel ends the largest process, which may keep to its reservation beside others that have none yet, and
/// it may end two at once.
fn is_certain(end: &MemoryEnd, reserved: u64, ends_before: u8) -> bool {
    end.by_kernel.is_none() || (end.held > reserved && ends_before >= UNCERTAIN_ENDS_MAX)
}

/// Bytes to reserve: half as much again as the task held, in few sizes, and never more than there is.
fn larger(reserved: u64, end: &MemoryEnd) -> u64 {
    let step = (end.reservable / MEMORY_RESERVATION_STEPS).max(1);
    let wanted = end.held.saturating_add(end.held / 2).div_ceil(step).saturating_mul(step);
    wanted.min(end.reservable).max(reserved)
}

fn failure(spec: &TaskSpec, end: &MemoryEnd, no_retry: NoRetry) -> Failure {
    let name = spec.name.as_str();
    let why = match no_retry {
        NoRetry::NotAllowed => {
            "it is not retried (max_retries=0). Run fewer such tasks at a time, with the option memory=BYTES or more num_cpus \
             per task, let the task hold less, or allow retries"
                .to_owned()
        }
        NoRetry::UsedUp => format!(
            "it was tried {} times. Run fewer such tasks at a time, with the option memory=BYTES, or let the task hold less",
            u32::from(MEMORY_RETRIES_MAX) + 1
        ),
        NoRetry::TooLarge => format!(
            "it had reserved all the memory that can be reserved there ({}). Let the task hold less, in smaller parts for \
             instance, or run it on a larger machine",
            size(end.reservable)
        ),
    };
    let (held, report) = (size(end.held), &end.report);
    let text = match end.limit {
        None => format!(
            "{name}() was stopped because memory ran out; its worker held {held}, and {why}.\n{report}"
        ),
        Some(limit) => format!(
            "{name}() was ended because it took more memory than its limit of {}, and {why}.\n{report}",
            size(limit)
        ),
    };
    Failure::new(FailureCode::OutOfMemory, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GIB: u64 = 1 << 30;

    fn end(held: u64, reservable: u64) -> MemoryEnd {
        MemoryEnd { held, reservable, ..MemoryEnd::default() }
    }

    #[test]
    fn half_as_much_again_in_sixteenths() {
        assert_eq!(larger(0, &end(2 * GIB, 16 * GIB)), 3 * GIB);
        assert_eq!(larger(0, &end(2 * GIB + 1, 16 * GIB)), 4 * GIB);
        assert_eq!(larger(0, &end(15 * GIB, 16 * GIB)), 16 * GIB, "no more than there is");
        assert_eq!(larger(5 * GIB, &end(GIB, 16 * GIB)), 5 * GIB, "no less than before");
        assert_eq!(larger(0, &end(GIB, 0)), 0, "nothing can be reserved");
    }

    proptest! {
        #[test]
        fn reservations_never_shrink_are_few_and_end_at_all_there_is(held in 1u64.., reservable in 1u64.., reserved: u64) {
            let reserved = reserved.min(reservable);
            let raised = larger(reserved, &end(held, reservable));
            prop_assert!(raised >= reserved && raised <= reservable);
            let step = (reservable / MEMORY_RESERVATION_STEPS).max(1);
            prop_assert!(raised == reserved || raised == reservable || raised.is_multiple_of(step));
            // A task that always takes all it has reserved reaches the end soon.
            let mut now = reserved.max(step);
            for _ in 0..2 * MEMORY_RESERVATION_STEPS {
                now = larger(now, &end(now, reservable));
            }
            prop_assert_eq!(now, reservable);
        }
    }
}
