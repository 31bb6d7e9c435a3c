//! Lost values and lineage counts in the ownership table (Ownership, sections 4.2 and 4.3).
//!
//! A value is lost when the node says so. A borrower forgets the place and asks the owner again; the owner's
//! core has the value computed again, or says why that cannot be ([`super::Made`]). Between the node's
//! message and its reuse of the memory, another process that has not received the message may still name the
//! old place: that counts as no answer.
//!
//! It never decides whether a task is executed again: `worker/ownership/recovery.rs` does.

use sooner_wire::message::{AddBorrow, Failure, FailureCode, Outcome, Place, Remote};
use sooner_wire::{BlockId, ObjectId, TaskId};

use super::{Made, Origin, Ownership, Record, Stale, ValueState, freed_failure};
use crate::worker::action::{Actions, Peer, send};

impl Ownership {
    /// Blocks lost their contents. Gives the objects that were there, which have no value now.
    pub fn on_blocks_lost(&mut self, blocks: &[BlockId], out: &mut Actions) -> Vec<ObjectId> {
        self.lost.extend(blocks.iter().copied().map(Place::from));
        let is_hit = |object: ObjectId, record: &Record| {
            record.slot.outcome().is_some_and(|outcome| self.is_lost(object, &outcome))
        };
        let hit = self.records.iter().filter(|(object, record)| is_hit(**object, record));
        let hit: Vec<ObjectId> = hit.map(|(object, _)| *object).collect();
        for object in &hit {
            self.lose(*object, out);
        }
        hit
    }

    /// The node uses the blocks again.
    pub fn forget_lost(&mut self, blocks: &[BlockId]) {
        for block in blocks {
            self.lost.swap_remove(&Place::from(*block));
        }
    }

    /// Whether the place that an outcome of an object names is known to be lost.
    #[inline]
    #[must_use]
    pub fn is_lost(&self, object: ObjectId, outcome: &Outcome) -> bool {
        match outcome {
            Outcome::Stored(location) => !self.lost.is_empty() && self.lost.contains(&location.place()),
            Outcome::Remote(remote) => self.is_lost_at(object, remote),
            Outcome::Inline(_) | Outcome::Failed(_) => false,
        }
    }

    /// Takes the outcome of an object back.
    pub fn lose(&mut self, object: ObjectId, out: &mut Actions) {
        let copy = self.take_copy(object);
        let Some(record) = self.records.get_mut(&object) else { return };
        let Some(outcome) = record.slot.outcome().filter(|outcome| outcome.is_in_memory()) else { return };
        match &mut record.origin {
            Origin::Owned(_) => {
                if std::mem::replace(&mut record.value, ValueState::Absent) != ValueState::Released {
                    let stale = self.stale.entry(object).or_default();
                    match &*outcome {
                        Outcome::Stored(_) if copy.is_some() => stale.copies.extend(copy),
                        Outcome::Stored(location) => stale.blocks.push(*location),
                        Outcome::Remote(remote) => stale.remotes.push(**remote),
                        Outcome::Inline(_) | Outcome::Failed(_) => {}
                    }
                }
            }
            Origin::Borrowed { fetching, .. } => {
                *fetching = false;
                if copy.is_some() {
                    self.stale.entry(object).or_default().copies.extend(copy);
                }
            }
        }
        record.slot.lose();
        record.slot.set_elsewhere();
        // A thread may have waited for the value and not looked yet: it would wait for ever.
        let may_wait = record.slot.handles() > 0;
        if may_wait {
            self.need(object, out);
        }
        let Some(record) = self.records.get_mut(&object) else { return };
        let contained = std::mem::take(&mut record.contained);
        if !contained.is_empty() {
            self.stale.entry(object).or_default().contained.extend(contained);
        }
    }

    /// Frees what a lost value left behind, which no process reads any more.
    pub(super) fn let_go_of(&mut self, object: ObjectId, stale: Stale, is_shared: bool, out: &mut Actions) {
        stale.blocks.into_iter().for_each(|location| self.free_block(location, is_shared, out));
        stale.copies.into_iter().for_each(|location| self.free_block(location, true, out));
        stale.remotes.iter().for_each(|remote| self.free_remote(object, remote, out));
        stale.contained.into_iter().for_each(|inner| self.end_use(inner, out));
    }

    /// Asks the owner again: a borrowed value was lost on arrival. An owner on another node may learn later
    /// than this process that a block of this node is lost, and would name it until then.
    pub fn ask_again(&mut self, object: ObjectId, lost: &Outcome, out: &mut Actions) {
        let here = self.me.node();
        let place = match lost {
            Outcome::Stored(location) if object.owner().node() != here => {
                Some(Remote { node: here, location: *location })
            }
            _ => lost.place_elsewhere(),
        };
        if let Some(place) = place {
            self.record_missing(object, place);
        }
        if let Some(Record { origin: Origin::Borrowed { fetching, .. }, .. }) = self.records.get_mut(&object)
        {
            *fetching = false;
        }
        self.need(object, out);
    }

    /// Whether an object has a value that is lost.
    #[must_use]
    pub fn has_lost_value(&self, object: ObjectId) -> bool {
        let outcome = self.records.get(&object).and_then(|record| record.slot.outcome());
        outcome.is_some_and(|outcome| self.is_lost(object, &outcome) || self.is_missing(object, &outcome))
    }

    /// Whether an owned object has no value and none is being computed.
    #[must_use]
    pub fn is_absent(&self, object: ObjectId) -> bool {
        self.records.get(&object).is_some_and(Record::is_absent)
    }

    /// The task that makes an object is executed again.
    pub fn expect_again(&mut self, object: ObjectId) {
        if let Some(record) = self.records.get_mut(&object) {
            record.end_absence();
            if record.made == Made::Kept {
                record.made = Made::Itself;
            }
        }
    }

    /// A task of this process is executed again, and is to make all its results.
    pub fn begin_repeat(&mut self, task: TaskId, returns: u32) {
        self.repeated.insert(task.number);
        for index in 0..returns {
            self.expect_again(task.object(index));
        }
    }

    /// That execution has ended: from now on lineage says whether its results can return.
    pub fn end_repeat(&mut self, task: TaskId) {
        self.repeated.swap_remove(&task.number);
    }

    /// If a task makes the value of an object again, that is no failure: a value that was dropped is made of
    /// it.
    pub fn record_dropped(&mut self, object: ObjectId) {
        let is_elsewhere = self.remotes.has_primary(object);
        let goes = |record: &&mut Record| record.is_absent() && record.made == Made::Kept && !is_elsewhere;
        if let Some(record) = self.records.get_mut(&object).filter(goes) {
            record.is_dropped = true;
        }
    }

    /// Whether a result of a task was dropped for want of room since the last call.
    pub fn take_dropped(&mut self, task: TaskId, returns: u32) -> bool {
        let mut was_dropped = false;
        for index in 0..returns {
            if let Some(record) = self.records.get_mut(&task.object(index)) {
                was_dropped |= std::mem::take(&mut record.is_dropped);
            }
        }
        was_dropped
    }

    /// Whether a result of a task lies in shared memory.
    #[must_use]
    pub fn is_any_stored(&self, task: TaskId, returns: u32) -> bool {
        let is_stored = |object| {
            self.records
                .get(&object)
                .and_then(|r| r.slot.outcome())
                .is_some_and(|outcome| outcome.is_in_memory())
        };
        (0..returns).any(|index| is_stored(task.object(index)))
    }

    /// The task that made an object is kept in the lineage. False if the object is gone.
    pub fn mark_kept(&mut self, object: ObjectId) -> bool {
        self.records.get_mut(&object).is_some_and(|record| {
            record.made = Made::Kept;
            true
        })
    }

    /// Whether the task that makes an object is kept, or executes.
    #[must_use]
    pub fn is_kept(&self, object: ObjectId) -> bool {
        self.records.get(&object).is_some_and(|record| record.made == Made::Kept)
    }

    /// Whether an object has a value in shared memory.
    #[must_use]
    pub fn is_in_memory(&self, object: ObjectId) -> bool {
        let outcome = self.records.get(&object).and_then(|record| record.slot.outcome());
        outcome.is_some_and(|outcome| outcome.is_in_memory())
    }

    /// Notes why an object cannot be made again.
    pub fn set_made(&mut self, object: ObjectId, made: Made) {
        if let Some(record) = self.records.get_mut(&object) {
            record.made = made;
        }
    }

    /// How an object came to be.
    #[must_use]
    pub fn made(&self, object: ObjectId) -> Made {
        self.records.get(&object).map_or(Made::Itself, |record| record.made)
    }

    /// A kept task takes the object as an argument. False if that does not keep it: actor handles, and
    /// borrowed values in shared memory, live only as long as they are used.
    pub fn add_lineage(&mut self, object: ObjectId) -> bool {
        let me = self.me;
        let Some(record) = self.records.get_mut(&object) else { return false };
        let is_small = matches!(record.slot.outcome().as_deref(), Some(Outcome::Inline(_)));
        let is_kept = !record.is_actor && (object.owner() == me || is_small);
        record.lineage += u32::from(is_kept);
        is_kept
    }

    /// Borrows an object again that this process had returned, if its owner still has it.
    pub fn borrow_again(&mut self, object: ObjectId, out: &mut Actions) {
        if object.owner() != self.me && !self.records.contains_key(&object) {
            send(out, Peer::Worker(object.owner()), AddBorrow { object, borrower: self.me });
            self.received(object);
        }
    }

    /// Ends one [`Self::add_lineage`] that counted.
    pub fn end_lineage(&mut self, object: ObjectId, out: &mut Actions) {
        let Some(record) = self.records.get_mut(&object) else { return };
        assert!(record.lineage > 0, "O2: lineage lets go of what it never kept");
        record.lineage -= 1;
        self.drop_if_unkept(object, out);
    }

    /// Kept tasks that take the object as an argument.
    #[must_use]
    pub fn lineage_count(&self, object: ObjectId) -> u32 {
        self.records.get(&object).map_or(0, |record| record.lineage)
    }

    /// Whether [`Self::take_out_of_scope`] would give any.
    #[inline]
    #[must_use]
    pub fn has_out_of_scope(&self) -> bool {
        !self.out_of_scope.is_empty()
    }

    /// Results of kept tasks whose records were removed since the last call.
    pub fn take_out_of_scope(&mut self) -> Vec<ObjectId> {
        std::mem::take(&mut self.out_of_scope)
    }

    /// Only lineage keeps the record: its shared memory is freed (O4). If the task is being executed again
    /// for another result, the value comes with that.
    pub(super) fn release_value(&mut self, object: ObjectId, out: &mut Actions) {
        let record = self.records.get(&object).expect("looked up by the caller");
        let (can_return, is_ours) = (record.made == Made::Kept, object.owner() == self.me);
        if !is_ours || !record.slot.outcome().is_some_and(|outcome| outcome.is_in_memory()) {
            return;
        }
        self.end_copies(object, out);
        self.lose(object, out);
        self.free_primary(object, out);
        if let Some(stale) = self.stale.swap_remove(&object) {
            self.let_go_of(object, stale, false, out);
        }
        if can_return {
            return;
        }
        let record = self.records.get_mut(&object).expect("a lost object stays while lineage counts it");
        record.end_absence();
        if self.repeated.contains(&object.task.number) {
            return;
        }
        record.slot.fill(Outcome::Failed(Box::new(freed_failure(object))));
        self.failures += 1;
    }

    /// Why an object whose value is lost stays lost.
    #[must_use]
    pub fn lost_failure(&self, object: ObjectId) -> Failure {
        let name = super::name_of(object);
        let (code, why) = match self.made(object) {
            _ if object.owner() != self.me => (
                FailureCode::OwnerDied,
                "The process that owned it is gone, and with it how it was made. Let a longer-lived process create the object",
            ),
            Made::Itself | Made::Kept => (
                FailureCode::ObjectLost,
                "It was made by sooner.put(), or as a large argument: no task can compute it again. Put it again, or let a task make it",
            ),
            Made::Call => (
                FailureCode::ReconstructionFailed,
                "It was made by a call of an actor, which is not repeated. Allow that with max_task_retries, or let a task make it",
            ),
            Made::Item => (
                FailureCode::ReconstructionFailed,
                "It is an item of a generator that was cancelled, which is not repeated. Call the generator again",
            ),
            Made::Spent => (
                FailureCode::ReconstructionFailed,
                "The task that made it may not be executed again: it has no retries left. Allow more with max_retries",
            ),
            Made::Evicted => (
                FailureCode::LineageEvicted,
                "The description of the task that made it was given up to save memory. Allow more with sooner.init(lineage_bytes=...)",
            ),
        };
        Failure::new(code, format!("{name} is lost: no copy of its value is left. {why}"))
    }
}
