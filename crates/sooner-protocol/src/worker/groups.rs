//! Placement groups that this process deals with: their states, the objects that wait for them, and the
//! shapes of the tasks in them.
//!
//! A group is asked for without waiting; the control service reports what becomes of it. When it is removed,
//! the tasks that wait for a place in it fail, and its state is forgotten: its id is never used again.

use std::sync::Arc;

use sooner_wire::message::{
    CreateGroup, Failure, FailureCode, FindGroup, GroupPhase, GroupRow, GroupState, Infeasible, Message,
    Outcome, RemoveGroup, TaskKind, WorkerDead,
};
use sooner_wire::{GroupId, ObjectId, ResourceSet, ShapeId, Strategy};

use super::WorkerCore;
use super::action::{Action, Actions, Peer, send};
use super::ownership::Slot;
use crate::failures::removed_failure;
use crate::table::Map;

/// What is known of a group.
#[derive(Debug)]
pub(super) struct Known {
    phase: GroupPhase,
    /// The control service has reported on it.
    is_received: bool,
    /// Shapes of tasks that run in it.
    shapes: Vec<ShapeId>,
    /// Objects that get this value when it is created.
    awaited: Vec<(ObjectId, Outcome)>,
}

/// All groups known.
pub(super) type Groups = Map<GroupId, Known>;

impl Known {
    fn new() -> Self {
        Self { phase: GroupPhase::Pending, is_received: false, shapes: Vec::new(), awaited: Vec::new() }
    }
}

impl WorkerCore {
    /// The number of a shape with a strategy.
    pub fn shape_at(&mut self, resources: &ResourceSet, strategy: &Strategy, out: &mut Actions) -> ShapeId {
        let shape = self.leases.shape(resources, Some(strategy));
        if let Some(place) = strategy.group() {
            self.meet_group(place.group, out);
            let shapes = &mut self.groups[&place.group].shapes;
            if !shapes.contains(&shape) {
                shapes.push(shape);
            }
        }
        shape
    }

    /// This process asks for a group from now on, by its own message or through the shell.
    pub fn expect_group(&mut self, group: GroupId) {
        self.groups.insert(group, Known::new());
    }

    /// The shell learned that there is no such group, after all.
    pub fn forget_group(&mut self, group: GroupId) {
        self.groups.swap_remove(&group);
    }

    /// Asks for a group.
    pub fn create_group(&mut self, create: CreateGroup, out: &mut Actions) {
        self.expect_group(create.group);
        send(out, Peer::Node, create);
    }

    /// Ends a group, and all that runs in it.
    pub fn remove_group(&mut self, group: GroupId, out: &mut Actions) {
        if let Some(known) = self.groups.get_mut(&group) {
            // Tasks that wait for it from now on learn that it was removed.
            known.phase = GroupPhase::Pending;
        }
        send(out, Peer::Node, RemoveGroup { group });
    }

    /// Whether the control service surely knows a group: other processes may learn of it.
    #[must_use]
    pub fn is_group_known(&self, group: GroupId) -> bool {
        group.owner != self.me || self.groups.get(&group).is_none_or(|known| known.is_received)
    }

    /// Asks for the state of a group, once.
    fn meet_group(&mut self, group: GroupId, out: &mut Actions) {
        if self.groups.contains_key(&group) {
            return;
        }
        self.groups.insert(group, Known::new());
        let find = FindGroup { request: 0, group: Some(group), title: None, attempt: None };
        send(out, Peer::Node, find);
    }

    /// An object of this process gets `value` when a group is created.
    pub fn await_group(
        &mut self,
        group: GroupId,
        object: ObjectId,
        slot: Arc<Slot>,
        value: Outcome,
        out: &mut Actions,
    ) {
        self.ownership.own(object, slot);
        self.meet_group(group, out);
        let known = &mut self.groups[&group];
        if known.phase == GroupPhase::Created {
            self.resolve(object, value, &[], out);
        } else {
            known.awaited.push((object, value));
        }
        self.run_unblocked(out);
    }

    /// The control service reports the state of groups. Gives back an answer to the shell's question, too.
    pub(super) fn on_group_state(&mut self, state: GroupState, out: &mut Actions) -> Option<Message> {
        for row in &state.groups {
            self.on_group(row, out);
        }
        self.run_unblocked(out);
        (state.request != 0).then(|| state.into())
    }

    fn on_group(&mut self, row: &GroupRow, out: &mut Actions) {
        let Some(known) = self.groups.get_mut(&row.group) else { return };
        known.phase = row.phase;
        known.is_received = true;
        match row.phase {
            GroupPhase::Created => {
                for (object, value) in std::mem::take(&mut known.awaited) {
                    self.resolve(object, value, &[], out);
                }
            }
            GroupPhase::Removed => self.on_group_removed(row, out),
            GroupPhase::Pending | GroupPhase::Committing | GroupPhase::Rescheduling => {}
        }
    }

    fn on_group_removed(&mut self, row: &GroupRow, out: &mut Actions) {
        let Some(known) = self.groups.swap_remove(&row.group) else { return };
        let failure = removed_failure(row.group, row.reason.as_deref(), FailureCode::TaskGroupRemoved);
        for (object, _) in known.awaited {
            self.resolve(object, Outcome::Failed(Box::new(failure.clone())), &[], out);
        }
        for shape in known.shapes {
            self.close_shape(shape, failure.clone(), out);
        }
    }

    /// No node meets a shape: its tasks fail if that is for ever; otherwise the user is warned.
    pub(super) fn on_infeasible(&mut self, what: Infeasible, out: &mut Actions) {
        if let Some(closed) = what.closed.as_ref().filter(|closed| closed.for_now == Some(true)) {
            for number in self.leases.give_up(closed.shape, out) {
                self.fail(number, &closed.failure, out);
            }
            return;
        }
        if let Some(closed) = what.closed {
            return self.close_shape(closed.shape, closed.failure, out);
        }
        let text = match what.reason {
            Some(reason) => {
                format!(
                    "{reason}: it stays pending until there is one. Start such a node, or ask for another"
                )
            }
            None => format!(
                "a task or actor asks for {}, but this cluster has only {}: it stays pending until resources are added. Ask for less, or start with more",
                what.asked.describe(),
                what.total.describe()
            ),
        };
        out.push(Action::Warn(text));
    }

    /// No worker will ever be granted for a shape: waiting tasks fail.
    fn close_shape(&mut self, shape: ShapeId, failure: Failure, out: &mut Actions) {
        self.leases.close(shape, failure);
        self.fail_stranded(shape, out);
    }

    /// Asks the node for the leases that a shape needs; tasks that would wait in vain fail.
    pub(super) fn ask_for_leases(&mut self, shape: ShapeId, out: &mut Actions) {
        if !self.leases.update_demand(shape, out) {
            self.fail_stranded(shape, out);
        }
    }

    /// A task that was pushed and did not run goes before those of equal priority.
    pub(super) fn requeue(&mut self, shape: ShapeId, number: u64) {
        let priority = self.pendings.get(number).and_then(|pending| pending.spec.priority());
        self.leases.enqueue_front(shape, number, priority);
    }

    /// A task's worker is dead. The task fails if its placement group was removed, and its worker with it.
    pub(super) fn interrupt(
        &mut self,
        number: u64,
        maybe_executed: bool,
        gone: &WorkerDead,
        out: &mut Actions,
    ) {
        let Some(pending) = self.pendings.get(number) else { return };
        if let TaskKind::Task(shape) = pending.spec.kind()
            && !pending.cancelled
            && let Some(failure) = self.leases.closed(shape).cloned()
        {
            return self.fail(number, &failure, out);
        }
        match gone.memory.as_deref() {
            Some(end) if maybe_executed => self.after_memory_end(number, end, out),
            _ => self.after_crash(number, maybe_executed, &gone.reason, out),
        }
    }

    /// Fails the tasks that wait for a shape in vain.
    fn fail_stranded(&mut self, shape: ShapeId, out: &mut Actions) {
        let Some((tasks, failure)) = self.leases.take_stranded(shape) else { return };
        for number in tasks {
            self.fail(number, &failure, out);
        }
    }
}
