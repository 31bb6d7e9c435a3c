//! Object recovery (Ownership, section 4.3): what happens when the node says that values are lost.
//!
//! The owner asks for a complete copy, if its directory knows of one ([`super::Promotion`]). Without one it
//! has the creating task executed again, after those that make its lost arguments, as often as their retries
//! allow. Tasks that were about to read a lost value wait for it again: tasks not yet pushed wait with their
//! owner; pushed tasks go back; pushed actor calls wait where they are, to stay in order. A value of another
//! node that was brought here survives the loss of either place.
//!
//! Invariants:
//! - RC1: an object of ours that something needs has a value, is being computed, or has a failure that says
//!   why not; or a node was asked for its copy of it.
//! - RC2: a task is kept in the lineage only while it is not pending.

use std::sync::Arc;

use sooner_wire::message::{
    Dependency, Failure, FailureCode, Missing, Outcome, Promoted, Target, TaskKind, TaskSpec,
};
use sooner_wire::{BlockId, NodeId, ObjectId, TaskId};

use super::{Finished, Made, Promotion};
use crate::probes::mark;
use crate::table::Set;
use crate::worker::WorkerCore;
use crate::worker::action::{Actions, Peer};
use crate::worker::core::{hex, uses};
use crate::worker::execution::{Incoming, Met};
use crate::worker::tasks::{Pending, State};

/// Which other processes learn of a loss from their own nodes. A task with a lost argument can go back to
/// such a caller, which does not push it again unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::worker) enum Told {
    Nobody,
    /// Callers that get a task back that takes lost values: the message says where those are not.
    Callers,
    /// Every process of this node.
    Neighbours,
    /// Every process of every node.
    All,
}

impl WorkerCore {
    /// Limits the memory for lineage (bytes).
    pub fn limit_lineage(&mut self, bytes: usize) {
        self.lineage.set_limit(bytes);
    }

    /// Whether a task of this process is pending because a result of it is lost.
    #[must_use]
    pub fn recovers(&self, task: TaskId) -> bool {
        task.owner == self.me && self.pendings.get(task.number).is_some_and(|pending| pending.recovers)
    }

    /// Tasks kept for recovery, and their bytes.
    #[must_use]
    pub fn lineage(&self) -> (usize, usize) {
        (self.lineage.len(), self.lineage.bytes())
    }

    /// A task of this process succeeded. Its description is kept if one of its results lies in shared memory
    /// and it may be executed again; its arguments are still used.
    pub(in crate::worker) fn keep_lineage(&mut self, pending: &Pending, out: &mut Actions) {
        let spec = &pending.spec;
        let objects = || (0..spec.returns).map(|index| spec.task.object(index));
        if let Some(made) = unrepeatable(pending) {
            return objects().for_each(|object| self.ownership.set_made(object, made));
        }
        let mut records = 0;
        for object in objects() {
            records += u32::from(self.ownership.mark_kept(object));
        }
        self.keep_finished(pending, 0, records, out);
    }

    /// [`Self::keep_lineage`] for a streaming task that ended, well or not: for its items, and for its return
    /// value if that `is_stored`.
    pub(in crate::worker) fn keep_generator(
        &mut self,
        pending: &Pending,
        is_stored: bool,
        out: &mut Actions,
    ) {
        let spec = &pending.spec;
        let Some(stream) = self.streams.get(spec.task.number) else { return };
        let items = stream.received;
        if !stream.has_stored && !is_stored {
            return;
        }
        let result = spec.task.object(0);
        let objects = || (0..=items).map(|index| spec.task.object(index));
        if let Some(made) = unrepeatable(pending) {
            return objects().for_each(|object| self.ownership.set_made(object, made));
        }
        // Records that were removed while it ran are not counted in `records`.
        self.drop_unneeded_lineage(out);
        let mut records = 0;
        for object in objects() {
            let is_in_memory = self.ownership.is_in_memory(object) || (is_stored && object == result);
            let is_kept =
                self.ownership.is_kept(object) || (is_in_memory && self.ownership.mark_kept(object));
            records += u32::from(is_kept);
        }
        self.keep_finished(pending, items, records, out);
    }

    fn keep_finished(&mut self, pending: &Pending, items: u32, records: u32, out: &mut Actions) {
        let spec = &pending.spec;
        if records == 0 {
            return;
        }
        let arguments = spec.dependencies.iter().chain(&spec.references).copied();
        let arguments = arguments.filter(|object| self.ownership.add_lineage(*object)).collect();
        let (retries, parent) = (pending.retries, pending.parent);
        self.lineage.keep(Finished { spec: spec.clone(), retries, parent, arguments, records, items });
        while let Some(evicted) = self.lineage.evict() {
            for index in (0..evicted.spec.returns).chain(1..=evicted.items) {
                self.ownership.set_made(evicted.spec.task.object(index), Made::Evicted);
            }
            self.release_lineage(&evicted, out);
        }
    }

    fn release_lineage(&mut self, finished: &Finished, out: &mut Actions) {
        for object in &finished.arguments {
            self.ownership.end_lineage(*object, out);
        }
    }

    /// Drops kept tasks whose results are all gone. A loop, because one task may have kept a chain of any
    /// length.
    pub(in crate::worker) fn drop_unneeded_lineage(&mut self, out: &mut Actions) {
        while self.ownership.has_out_of_scope() {
            for object in self.ownership.take_out_of_scope() {
                if let Some(finished) = self.lineage.on_record_dropped(object.task.number) {
                    self.release_lineage(&finished, out);
                }
            }
        }
    }

    /// A node has answered whether it has a copy of an owned value.
    pub(in crate::worker) fn on_promoted(&mut self, answer: &Promoted, out: &mut Actions) {
        match self.ownership.on_promoted(answer, out) {
            Promotion::Taken(outcome, contained) => self.resolve(answer.object, outcome, &contained, out),
            // Asks the next node, or has the value made again, unless it is there or is being made.
            Promotion::Refused | Promotion::Unwanted => self.recover(answer.object, out),
        }
    }

    /// A node is dead that may have been asked for copies.
    pub(in crate::worker) fn end_promotions_at(&mut self, node: NodeId, out: &mut Actions) {
        for object in self.ownership.end_promotions_at(node) {
            self.recover(object, out);
        }
    }

    /// Blocks lost their contents.
    pub(in crate::worker) fn on_blocks_lost(&mut self, blocks: &[BlockId], out: &mut Actions) {
        let lost = self.ownership.on_blocks_lost(blocks, out);
        self.after_loss(lost, Told::Neighbours, out);
    }

    /// Objects lost their values: tasks about to read one wait for it, and owned ones are recovered.
    pub(in crate::worker) fn after_loss(&mut self, lost: Vec<ObjectId>, told: Told, out: &mut Actions) {
        self.wait_again(&lost, out);
        let me = self.me.node();
        let was_elsewhere = |incoming: &Incoming| {
            let mut lost = incoming.push.dependencies.iter().filter(|d| lost.contains(&d.object));
            lost.all(Dependency::is_elsewhere)
        };
        let hears = |incoming: &Incoming| match (incoming.from, told) {
            (Peer::Worker(_), Told::All) => true,
            (Peer::Worker(_), Told::Callers) => was_elsewhere(incoming),
            (Peer::Worker(caller), Told::Neighbours) => caller.node() == me,
            (Peer::Node, _) | (_, Told::Nobody) => false,
        };
        let back = self.execution.on_lost(&lost, hears);
        self.suspend_if_lost(out);
        for object in &lost {
            if self.execution.is_missing(*object) {
                self.ownership.need(*object, out);
            }
        }
        if !back.is_empty() {
            let missing = if told == Told::Callers { missing_of(&back, &lost) } else { Vec::new() };
            self.give_back_as(back, None, &missing, out);
        }
        for object in lost {
            self.recover(object, out);
        }
    }

    /// Lets tasks of this process that take lost values wait for them, also tasks that wait for others
    /// already.
    fn wait_again(&mut self, lost: &[ObjectId], out: &mut Actions) {
        let lost: Set<ObjectId> = lost.iter().copied().collect();
        let takes_lost = |spec: &TaskSpec| spec.dependencies.iter().any(|object| lost.contains(object));
        let affected: Vec<(Arc<TaskSpec>, u32)> = self
            .pendings
            .iter()
            .filter(|pending| takes_lost(&pending.spec))
            .filter_map(|pending| match pending.state {
                // A constructor waits at the node: its worker fetches lost values.
                State::Queued if pending.spec.kind() == TaskKind::Creation => None,
                State::Queued => Some((pending.spec.clone(), 0)),
                State::Waiting { missing } => Some((pending.spec.clone(), missing)),
                State::Pushed { .. } | State::Delayed { .. } => None,
            })
            .collect();
        for (spec, mut missing) in affected {
            // Ordered calls keep their place.
            if missing == 0 && (matches!(spec.kind(), TaskKind::Task(_)) || spec.is_unordered()) {
                self.remove_from_queue(&spec);
            }
            for object in spec.dependencies.iter().filter(|object| lost.contains(*object)) {
                missing += u32::from(self.ownership.depend(*object, spec.task.number, out));
            }
            if let Some(pending) = self.pendings.get_mut(spec.task.number) {
                pending.state = State::Waiting { missing };
            }
        }
    }

    /// Has a task wait for those of its arguments that have no outcome. False if all have one.
    fn await_arguments(&mut self, spec: &TaskSpec, out: &mut Actions) -> bool {
        let mut missing = 0;
        for object in &spec.dependencies {
            missing += u32::from(self.ownership.depend(*object, spec.task.number, out));
        }
        if missing == 0 {
            return false;
        }
        if let Some(pending) = self.pendings.get_mut(spec.task.number) {
            pending.state = State::Waiting { missing };
        }
        true
    }

    /// A pushed task is to be queued again. True if it must wait, because an argument was lost meanwhile.
    pub(in crate::worker) fn must_wait_again(&mut self, number: u64, out: &mut Actions) -> bool {
        let Some(pending) = self.pendings.get(number) else { return false };
        if pending.spec.dependencies.is_empty() {
            return false;
        }
        let spec = pending.spec.clone();
        if self.look_at_arguments(&spec).0.is_some() {
            // The argument was lost and did not come back: the task ends as if it had waited for it.
            self.pendings.get_mut(number).expect("looked up above").state = State::Waiting { missing: 0 };
            self.unblocked.push_back(number);
            return true;
        }
        let waits = self.await_arguments(&spec, out);
        if waits {
            mark!("a task came back and waited for an argument that was lost meanwhile");
        }
        waits
    }

    /// Recovers the value of an owned object, if it has none and none is being computed: from a copy, or by
    /// executing its task again.
    pub(in crate::worker) fn recover(&mut self, object: ObjectId, out: &mut Actions) {
        let mut todo = vec![object];
        while let Some(object) = todo.pop() {
            if !self.ownership.is_absent(object) {
                continue;
            }
            if let Some((remote, contained)) = self.ownership.take_primary(object) {
                self.resolve(object, Outcome::Remote(Box::new(remote)), &contained, out);
                continue;
            }
            if self.ownership.ask_for_copy(object, out) {
                continue;
            }
            self.ownership.refuse_waiting(object, out);
            if self.expect_item(object, out) {
                continue;
            }
            if object.owner() == self.me && self.recovers(object.task) {
                // Its task is being executed again already, for another one of its results.
                self.ownership.expect_again(object);
                continue;
            }
            let finished = match object.owner() == self.me {
                true => self.lineage.take(object.task.number),
                false => None,
            };
            match finished {
                Some(finished) => {
                    self.repeat(&finished, &mut todo, out);
                    self.expect_item(object, out);
                }
                None => {
                    mark!("a lost value could not be computed again");
                    self.ownership.expect_again(object);
                    let failure = self.ownership.lost_failure(object);
                    self.resolve(object, Outcome::Failed(Box::new(failure)), &[], out);
                }
            }
        }
    }

    /// Executes a task again of which some or all results are lost.
    fn repeat(&mut self, finished: &Finished, todo: &mut Vec<ObjectId>, out: &mut Actions) {
        mark!("a lost value was computed again");
        let mut spec = finished.spec.clone();
        let changed = Arc::make_mut(&mut spec);
        changed.recovers = Some(true);
        // The turn of a call has passed: calls that wait for it must not hold it up, here or at the actor.
        changed.set_unordered();
        let was_dropped = self.ownership.take_dropped(spec.task, spec.returns);
        if was_dropped {
            // What it is made of is made again because of it, and nothing has failed there, either.
            uses(&spec).for_each(|object| self.ownership.record_dropped(object));
        }
        if let Some(options) = spec.stream {
            // Items that are there stay, and can return while the task is pending.
            self.streams.reopen(spec.task.number, options, finished.items);
        } else {
            self.ownership.begin_repeat(spec.task, spec.returns);
        }
        let number = spec.task.number;
        for object in uses(&spec) {
            self.ownership.borrow_again(object, out);
        }
        self.enter(spec.clone(), finished.parent, out);
        let pending = self.pendings.get_mut(number).expect("entered above");
        // A value that was dropped for want of room is no failure.
        let counts = finished.retries > 0 && !was_dropped;
        pending.retries = finished.retries - i32::from(counts);
        pending.recovers = true;
        todo.extend(uses(&spec).filter(|object| self.ownership.is_absent(*object)));
        self.release_lineage(finished, out);
        if let TaskKind::Method(actor) = spec.kind() {
            self.find_actor(actor, out);
        }
        self.unblocked.push_back(number);
    }

    /// Handles owned values that arrived from a process that had not learned of their loss.
    pub(in crate::worker) fn lose_arrivals(&mut self, out: &mut Actions) {
        while let Some(object) = self.lost_on_arrival.pop() {
            self.ownership.lose(object, out);
            self.wait_again(&[object], out);
            self.recover(object, out);
        }
    }

    /// A value that queued calls here wait for has come, or will not.
    pub(in crate::worker) fn deliver_missing(&mut self, object: ObjectId, out: &mut Actions) {
        let Some(outcome) = self.ownership.outcome(object) else {
            return;
        };
        if let Outcome::Failed(failure) = outcome {
            for incoming in self.execution.take_missing(object) {
                self.refuse(incoming, &failure, out);
            }
            return;
        }
        let is_elsewhere = matches!(outcome, Outcome::Remote(_));
        let contained = self.ownership.contained(object);
        let met: Vec<Met> = contained.iter().map(|inner| (*inner, self.ownership.meet(*inner))).collect();
        let (places, before) = self.execution.on_value(object, &outcome, &met);
        for inner in contained.iter().cycle().take(places * contained.len()) {
            self.ownership.begin_loan(*inner);
        }
        for inner in before {
            self.ownership.end_loan(inner, out);
        }
        if is_elsewhere && places > 0 {
            self.bring_arguments(vec![object], out);
        }
        self.ask_to_resume(out);
    }

    /// A local reader waits for a value: asks its owner, or has it computed again if it went with its last
    /// use and a reference came back.
    pub fn need(&mut self, object: ObjectId, out: &mut Actions) {
        self.ownership.need(object, out);
        self.revive(object, out);
        self.run_unblocked(out);
    }

    /// The shell wants to learn when the outcome is there; false if it already is.
    pub fn watch(&mut self, object: ObjectId, out: &mut Actions) -> bool {
        let watches = self.ownership.watch(object, out);
        if watches {
            self.need(object, out);
        }
        watches
    }

    /// Has an owned value computed that is wanted, if it went with its last use.
    pub(in crate::worker) fn revive(&mut self, object: ObjectId, out: &mut Actions) {
        if object.owner() == self.me && self.ownership.is_absent(object) {
            self.recover(object, out);
        }
    }
}

/// The places where tasks were to read lost values.
fn missing_of(tasks: &[Incoming], lost: &[ObjectId]) -> Vec<Missing> {
    let dependencies = tasks.iter().flat_map(|incoming| &incoming.push.dependencies);
    let places =
        dependencies.filter(|dependency| lost.contains(&dependency.object)).filter_map(|dependency| {
            Some(Missing { object: dependency.object, place: dependency.outcome.place_elsewhere()? })
        });
    let mut missing: Vec<Missing> = Vec::new();
    for place in places {
        if !missing.contains(&place) {
            missing.push(place);
        }
    }
    missing
}

/// Why the results of a pending task cannot be made again; `None`: they can.
pub(in crate::worker) fn unrepeatable(pending: &Pending) -> Option<Made> {
    let spec = &pending.spec;
    match &spec.target {
        _ if spec.stream.is_some() && pending.cancelled => Some(Made::Item),
        // A repeated call would change the state that its checkpoints restore.
        Target::Method(call) if spec.retries == 0 || call.kept == Some(true) => Some(Made::Call),
        _ if pending.retries == 0 => Some(Made::Spent),
        Target::Method(_) | Target::Function(_) | Target::Class(_) => None,
    }
}

/// The failure of lost results whose repeated execution failed.
pub(in crate::worker) fn reconstruction_failure(spec: &TaskSpec, failure: &Failure) -> Failure {
    let says_so = matches!(
        failure.code,
        FailureCode::Cancelled | FailureCode::Task | FailureCode::ReconstructionFailed
    );
    if says_so {
        return failure.clone();
    }
    Failure::new(
        FailureCode::ReconstructionFailed,
        format!(
            "the value of object {} was lost, and executing {}() again failed: {}",
            hex(spec.task),
            spec.name.as_str(),
            failure.message
        ),
    )
}

#[cfg(test)]
mod tests;
