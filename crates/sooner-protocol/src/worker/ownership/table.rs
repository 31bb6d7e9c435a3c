//! The ownership table (Ownership, tables 2 and 3): per object its slot, what keeps it alive, and, for a
//! borrowed one, how often it was handed to this process.
//!
//! Counting (Ownership, appendix A, as weighted counts). A process that hands a reference on registers the
//! receiver with the owner, on its own ordered connection, before it gives up its own reference. The owner
//! counts registrations per borrower and giver ([`super::Borrowers`]). The borrower counts the references
//! received per giver, and returns exactly that number when it has no more use for the object.
//!
//! A process may die after its message reached the borrower and not the owner, or the other way round. What
//! it borrowed and registered counts until its death is settled; then what all others report to hold from it
//! counts instead ([`Self::on_settled`](Ownership::on_settled), `docs/adr/0015-settling-a-death.md`).
//!
//! Invariants:
//! - O1: a record is removed only when no handle, no use and no borrower is left and its outcome is known.
//! - O2: `uses` counts submitted or executing tasks, containing objects and pins; it never underflows.
//! - O3: the contained references of a value are used by its record for as long as it stands.
//! - O4: a record that only lineage keeps holds no shared memory: its value goes, and comes back by
//!   execution.
//! - O5: of the uses of a borrowed object, `loans` are those of tasks that others pushed here. For handles
//!   and all other uses this process is registered with the owner, or will be by a caller that was told; or a
//!   task runs that was lent the object, and whose reply will tell.
//!
//! It never frees memory or sends anything by itself: it appends actions.

use std::sync::Arc;

use crate::probes::{bug, mark};
use sooner_wire::message::{FreeBlocks, Held, Location, Outcome, Place, Remote};
use sooner_wire::{Name, ObjectId, TaskId, WorkerId};

use directory::Directory;
use promotion::Promotions;
use remote::Remotes;

pub use promotion::Promotion;
pub use remote::Brought;

use super::{Borrowers, Slot};
use crate::table::{Map, Set};
use crate::worker::action::{Action, Actions, Peer, send};

/// Whether this process owns the object.
#[derive(Debug)]
pub enum Origin {
    /// This process owns it; others may borrow it.
    Owned(Borrowers),
    /// Another process owns it.
    Borrowed {
        /// References received whose registration is certain: the owner or this process made it.
        received: u32,
        /// Uses by tasks that others pushed here: each caller keeps the object for its task until the reply.
        loans: u32,
        /// Whether a caller registers this process.
        registration: Registration,
        /// Whether the owner was asked for the value. Independent of `registration`.
        fetching: bool,
    },
}

/// Whether a caller registers this process with the owner of an object lent to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Registration {
    /// No caller was told to.
    Unasked,
    /// A caller must: this process handed the object on unregistered, and its message to the owner needs
    /// time.
    Due,
    /// A caller was told that this process holds the object on: it registers this one before it gives up its
    /// own.
    Announced,
}

/// What the slot of an owned object does not say about its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ValueState {
    /// Nothing: the value is still to come, or is where the outcome says.
    #[default]
    Regular,
    /// Its block was freed before the record was removed.
    Released,
    /// The value is gone, and no task computes it.
    Absent,
}

/// What waits for an outcome; nothing does for most objects.
#[derive(Debug, Default)]
struct Waiting {
    /// Borrowers that asked for the value.
    fetchers: Vec<WorkerId>,
    /// Tasks of this process that depend on it.
    dependents: Vec<u64>,
    /// The shell wants [`Action::Ready`].
    watched: bool,
}

/// How an owned object was made, as far as that says whether it can be made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Made {
    /// By `put`, or by a task that is pending.
    #[default]
    Itself,
    /// By a task that is kept in the lineage, or as an item of one that has not ended.
    Kept,
    /// By a call of an actor that may not be repeated.
    Call,
    /// By a streaming task that was cancelled.
    Item,
    /// By a task that may not be executed again: it has no retries, or has used them up.
    Spent,
    /// By a task whose description was given up to save memory.
    Evicted,
}

/// One object. Its booleans are independent of each other and of the other states: a dropped value may be
/// lost or released later, a shared block may be released, and any of them may have been told to a process.
#[derive(Debug)]
pub struct Record {
    /// Where the outcome appears.
    pub slot: Arc<Slot>,
    uses: u32,
    /// Number of kept tasks that take this object as an argument (Ownership, table 2: the lineage count).
    lineage: u32,
    made: Made,
    value: ValueState,
    /// Its value was dropped for want of room, and is computed again when it is wanted.
    is_dropped: bool,
    origin: Origin,
    contained: Box<[ObjectId]>,
    waiting: Option<Box<Waiting>>,
    /// The handle of an actor: when it goes, the actor goes.
    is_actor: bool,
    /// Others hold the block, too: it goes back to the node, and is not reused here.
    is_shared: bool,
    /// A process that may still use this owned object was told where its value is.
    is_told: bool,
}

/// What a lost value leaves behind, where a process may still be reading.
#[derive(Debug, Default)]
struct Stale {
    blocks: Vec<Location>,
    /// Copies of values of other nodes.
    copies: Vec<Location>,
    /// Blocks of other nodes.
    remotes: Vec<Remote>,
    /// References inside.
    contained: Vec<ObjectId>,
}

/// The table of one process.
#[derive(Debug)]
pub struct Ownership {
    me: WorkerId,
    records: Map<ObjectId, Record>,
    /// Per other process, objects that it borrows or registered borrowers of: its death costs only those.
    borrowed_by: Map<WorkerId, Set<ObjectId>>,
    /// How often borrowed objects were handed to this process, by others than their owners.
    handed: Map<ObjectId, Vec<(WorkerId, u32)>>,
    /// Per borrowed object, the counts reported as held from dead givers: part of `received`.
    sent_of: Map<ObjectId, Vec<(WorkerId, u32)>>,
    /// Borrowed objects by owner, to find those of a dead one.
    borrowed_from: Map<WorkerId, Set<ObjectId>>,
    /// Dead processes, the latest last: a third one may register a dead one for a reference handed to it
    /// shortly before its end. As many as a node has at a time; messages are not under way for longer.
    gone: Set<WorkerId>,
    /// Those of `gone` whose death is not settled yet.
    unsettled: Set<WorkerId>,
    /// What this process reported to hold from those of `unsettled` that are of other nodes.
    said: Map<WorkerId, Vec<Held>>,
    /// Borrowers at other nodes whose end the node was asked to report.
    watched: Set<WorkerId>,
    /// Objects with references that were pickled outside of the engine, and how many.
    pins: Map<ObjectId, u32>,
    /// Where objects were made; empty unless that is recorded.
    sites: Map<ObjectId, Name>,
    /// Blocks whose contents are lost, until the node uses them again.
    lost: Set<Place>,
    /// What lost values leave behind. Freed with the record, because a process may still be reading there.
    stale: Map<ObjectId, Stale>,
    /// Results of kept tasks whose records were removed.
    out_of_scope: Vec<ObjectId>,
    /// Tasks of this process, by number, that are executed again for a lost result: they make their other
    /// results, too.
    repeated: Set<u64>,
    /// Blocks of this process's values that it has not freed, and the objects in them.
    given_blocks: Map<Place, ObjectId>,
    /// Outcomes that turned out to be errors: see [`Self::failures`].
    failures: u64,
    /// Blocks of dead owners of which the node asked last whether they are read here.
    orphans: Set<Place>,
    /// How often this process was lent a value in a block of `orphans`, present or earlier.
    orphans_met: u64,
    remotes: Remotes,
    /// Which node pulls this process's values from which.
    directory: Directory,
    promotions: Promotions,
    /// Actors whose handle's record went since [`Self::take_dropped_actors`].
    dropped_actors: Vec<TaskId>,
}

/// Effects of an outcome that the caller must act on.
#[derive(Debug, Default)]
pub struct Resolved {
    /// Tasks whose dependency this was.
    pub dependents: Vec<u64>,
}

impl Ownership {
    /// An empty table of process `me`.
    #[must_use]
    pub fn new(me: WorkerId) -> Self {
        Self {
            me,
            records: Map::default(),
            borrowed_by: Map::default(),
            handed: Map::default(),
            sent_of: Map::default(),
            borrowed_from: Map::default(),
            gone: Set::default(),
            unsettled: Set::default(),
            said: Map::default(),
            watched: Set::default(),
            pins: Map::default(),
            sites: Map::default(),
            lost: Set::default(),
            stale: Map::default(),
            out_of_scope: Vec::new(),
            repeated: Set::default(),
            given_blocks: Map::default(),
            failures: 0,
            orphans: Set::default(),
            orphans_met: 0,
            remotes: Remotes::default(),
            directory: Directory::default(),
            promotions: Promotions::default(),
            dropped_actors: Vec::new(),
        }
    }

    /// Number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether nothing is owned or borrowed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The record of an object.
    #[must_use]
    pub fn record(&self, object: ObjectId) -> Option<&Record> {
        self.records.get(&object)
    }

    /// Objects in the table.
    pub fn objects(&self) -> impl Iterator<Item = (ObjectId, &Record)> {
        self.records.iter().map(|(id, record)| (*id, record))
    }

    /// Enters an owned object: a return value that is to come, or a value that was put.
    pub fn own(&mut self, object: ObjectId, slot: Arc<Slot>) {
        debug_assert_eq!(object.owner(), self.me, "only the owner enters an object");
        slot.register();
        if let Some(Outcome::Stored(location)) = slot.outcome().as_deref() {
            self.given_blocks.insert(location.place(), object);
        }
        self.records.entry(object).or_insert_with(|| Record::new(slot, Origin::Owned(Borrowers::default())));
    }

    /// Marks a record as the handle of an actor.
    pub fn mark_actor(&mut self, object: ObjectId) {
        if let Some(record) = self.records.get_mut(&object) {
            record.is_actor = true;
        }
    }

    /// The slot of an object that came inside a message; enters it when it is new.
    pub fn meet(&mut self, object: ObjectId) -> Arc<Slot> {
        if let Some(record) = self.records.get(&object) {
            return record.slot.clone();
        }
        let slot = Arc::new(Slot::default());
        slot.register();
        let origin = if object.owner() == self.me {
            // Owned here, and gone: a process kept an id without a reference. Readers learn that.
            slot.fill(Outcome::Failed(Box::new(freed_failure(object))));
            Origin::Owned(Borrowers::default())
        } else {
            self.borrowed_from.entry(object.owner()).or_default().insert(object);
            Origin::Borrowed { received: 0, loans: 0, registration: Registration::Unasked, fetching: false }
        };
        self.records.insert(object, Record::new(slot.clone(), origin));
        slot
    }

    /// Keeps an object alive for a task, a containing value or a pin.
    pub fn add_use(&mut self, object: ObjectId) {
        if let Some(record) = self.records.get_mut(&object) {
            record.uses += 1;
            return;
        }
        self.meet(object);
        self.records[&object].uses += 1;
    }

    /// Ends one [`Self::add_use`].
    pub fn end_use(&mut self, object: ObjectId, out: &mut Actions) {
        if self.records.get_mut(&object).is_some_and(Record::end_use) {
            self.drop_if_unkept(object, out);
        }
    }

    /// Whether nothing waits for the owned object, or could: lineage that counts it may want it again.
    #[must_use]
    pub fn is_unwanted(&self, object: ObjectId) -> bool {
        self.records.get(&object).is_none_or(|record| {
            let is_unborrowed = matches!(&record.origin, Origin::Owned(borrowers) if borrowers.is_empty());
            is_unborrowed && !record.is_used() && record.lineage == 0 && record.waiting.is_none()
        })
    }

    /// Whether this process owns the object and only the caller's one handle keeps it: no other reader is
    /// left.
    #[must_use]
    pub fn is_sole(&self, object: ObjectId) -> bool {
        if object.owner() != self.me {
            return false;
        }
        self.records.get(&object).is_none_or(|record| {
            let is_unborrowed = matches!(&record.origin, Origin::Owned(borrowers) if borrowers.is_empty());
            is_unborrowed && record.uses == 0 && record.slot.handles() <= 1
        })
    }

    /// Frees an owned object although references are left: reading through them is an error in this process.
    /// Its memory is free at once if no other process can read it and no view is left or about to be made,
    /// else when that is so.
    pub fn free(&mut self, object: ObjectId, out: &mut Actions) {
        let Some(record) = self.records.get_mut(&object) else { return };
        let is_ours = matches!(&record.origin, Origin::Owned(borrowers) if borrowers.is_empty());
        if object.owner() != self.me || !record.slot.has_outcome() {
            return;
        }
        record.slot.mark_freed();
        let outcome =
            record.slot.outcome().filter(|outcome| outcome.is_in_memory()).map(std::borrow::Cow::into_owned);
        if let Some(outcome) = outcome
            && is_ours
            && record.uses == 0
            && record.slot.views() == 0
            && record.value != ValueState::Released
            && !self.remotes.is_pulling(object)
        {
            record.value = ValueState::Released;
            let is_shared = record.is_shared;
            self.end_copies(object, out);
            self.free_value(object, Some(&outcome), is_shared, out);
        }
    }

    /// The last handle of an object was dropped.
    pub fn on_handle_dropped(&mut self, object: ObjectId, out: &mut Actions) {
        self.drop_if_unkept(object, out);
    }

    /// Writes the outcome of an object. `contained` are references inside the value; those that came with it
    /// were counted as received before.
    pub fn resolve(
        &mut self,
        object: ObjectId,
        outcome: Outcome,
        contained: &[ObjectId],
        out: &mut Actions,
    ) -> Resolved {
        let Some(record) = self.records.get_mut(&object).filter(|record| !record.slot.has_outcome()) else {
            self.discard(object, &outcome, contained, out);
            return Resolved::default();
        };
        if let Outcome::Stored(location) = outcome
            && object.owner() == self.me
        {
            self.given_blocks.insert(location.place(), object);
        }
        self.failures += u64::from(matches!(outcome, Outcome::Failed(_)));
        record.slot.fill(outcome);
        record.contained = contained.into();
        let (is_used, waiting) = (record.is_used(), record.waiting.take());
        self.publish(object, out);
        for inner in contained.iter().filter(|_| !bug!(NestedNotKept)) {
            self.add_use(*inner);
        }
        if bug!(NestedNotKept) {
            record_without_contained(&mut self.records[&object]);
        }
        let mut resolved = Resolved::default();
        if let Some(waiting) = waiting {
            if waiting.fetchers.len() > 1 {
                mark!("several borrowers waited for one value");
            }
            if waiting.watched && !self.watch(object, out) {
                out.push(Action::Ready(object));
            }
            for fetcher in waiting.fetchers {
                self.send_value(object, fetcher, out);
            }
            resolved.dependents = if bug!(DependentsForgotten) { Vec::new() } else { waiting.dependents };
        }
        if !is_used {
            self.drop_if_unkept(object, out);
        }
        resolved
    }

    /// How many objects have failed so far. A wait for many objects looks at each for an error only when this
    /// number has changed.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures
    }

    /// Frees a value that is not wanted any more, and drops the received references inside it.
    pub fn discard(
        &mut self,
        object: ObjectId,
        outcome: &Outcome,
        contained: &[ObjectId],
        out: &mut Actions,
    ) {
        contained.iter().for_each(|inner| self.drop_if_unkept(*inner, out));
        match outcome {
            Outcome::Stored(location) if object.owner() == self.me => self.free_block(*location, false, out),
            Outcome::Remote(remote) => self.free_remote(object, remote, out),
            Outcome::Inline(_) | Outcome::Stored(_) | Outcome::Failed(_) => {}
        }
    }

    /// Records the references inside a value that was put by this process.
    pub fn contain(&mut self, object: ObjectId, contained: &[ObjectId]) {
        for inner in contained {
            self.add_use(*inner);
        }
        if let Some(record) = self.records.get_mut(&object) {
            record.contained = contained.into();
        }
    }

    /// References inside a value.
    #[must_use]
    pub fn contained(&self, object: ObjectId) -> Vec<ObjectId> {
        self.records.get(&object).map(|r| r.contained.to_vec()).unwrap_or_default()
    }

    /// A process is dead: its objects have no value (fate-sharing, Ownership, section 4.3). What it borrowed
    /// counts until [`Self::on_settled`]. Gives the objects whose waiting tasks must learn of it.
    pub fn on_worker_dead(&mut self, worker: WorkerId) -> Vec<ObjectId> {
        if self.record_death_of(worker) {
            self.unsettled.insert(worker);
        }
        let mut objects = self.borrowed_from.get(&worker).cloned().unwrap_or_default();
        if !objects.is_empty() {
            mark!("an owner died while this process borrowed from it");
        }
        if bug!(OwnerDeathLostInFetch) {
            objects.retain(|object| {
                !matches!(self.records[object].origin, Origin::Borrowed { fetching: true, .. })
            });
        }
        objects
            .into_iter()
            .filter(|object| {
                self.lose_with_owner(*object)
                    || self.records.get(object).is_some_and(|r| !r.slot.has_outcome())
            })
            .collect()
    }

    /// Enters a value that came with its block: this process is one of the block's holders.
    pub fn adopt(&mut self, object: ObjectId, outcome: Outcome) {
        let slot = Arc::new(Slot::with_outcome(outcome));
        slot.register();
        let record = Record { is_shared: true, ..Record::new(slot, Origin::Owned(Borrowers::default())) };
        self.records.insert(object, record);
    }

    /// Actors to which nothing in this process refers any more.
    pub fn take_dropped_actors(&mut self) -> Vec<TaskId> {
        std::mem::take(&mut self.dropped_actors)
    }

    /// Whether the block holds a value that another process gave to this one.
    #[must_use]
    pub fn knows_block(&self, place: Place) -> bool {
        self.given_blocks.contains_key(&place)
    }

    /// Removes a record that nothing keeps (O1), and ends the uses that it made.
    fn drop_if_unkept(&mut self, object: ObjectId, out: &mut Actions) {
        let Some(record) = self.records.get(&object) else { return };
        let owned_and_free = match &record.origin {
            Origin::Owned(borrowers) => {
                (borrowers.is_empty() || (record.is_actor && bug!(ActorCollectedWhileBorrowed)))
                    && (record.slot.has_outcome() || record.is_actor || record.is_absent())
            }
            Origin::Borrowed { .. } => true,
        };
        if !owned_and_free || record.is_used() {
            return;
        }
        if record.lineage > 0 {
            return self.release_value(object, out);
        }
        let record = self.records.swap_remove(&object).expect("looked up above");
        if !self.sites.is_empty() {
            self.sites.swap_remove(&object);
        }
        if record.made == Made::Kept {
            self.out_of_scope.push(object);
        }
        if record.is_actor {
            self.dropped_actors.push(object.task);
        }
        match record.origin {
            Origin::Owned(mut borrowers) => {
                self.keep_set_aside(object, borrowers.take_set_aside());
                if record.is_actor && !bug!(ActorNeverCollected) {
                    let message = sooner_wire::message::ActorOutOfScope { actor: object.task };
                    send(out, Peer::Node, message);
                }
                if record.value != ValueState::Released && !bug!(BlockNeverFreed) {
                    if let Some(Outcome::Stored(location)) = record.slot.outcome().as_deref()
                        && bug!(BlockFreedTwice)
                    {
                        out.push(Action::FreeBlock(*location));
                    }
                    self.free_value(object, record.slot.outcome().as_deref(), record.is_shared, out);
                }
                // The copy here was lost, and the object was not wanted again.
                self.free_primary(object, out);
            }
            Origin::Borrowed { received, .. } => {
                if let Some(objects) = self.borrowed_from.get_mut(&object.owner()) {
                    objects.swap_remove(&object);
                    if objects.is_empty() {
                        self.borrowed_from.swap_remove(&object.owner());
                    }
                }
                self.free_copy(object, out);
                self.return_borrows(object, received, out);
            }
        }
        self.forget_remote(object);
        self.unpin_copies(object, out);
        if let Some(stale) = self.stale.swap_remove(&object) {
            self.let_go_of(object, stale, record.is_shared, out);
        }
        for inner in &record.contained {
            self.end_use(*inner, out);
        }
    }

    /// A block is not needed any more. It is not reused here if it is lost, because a process may still read
    /// there, or if others hold it, too: the node knows when the last one is done.
    fn free_block(&mut self, location: Location, is_shared: bool, out: &mut Actions) {
        let place = location.place();
        self.given_blocks.swap_remove(&place);
        let is_shared = self.promotions.forget_here(place) || is_shared;
        if is_shared || self.lost.contains(&place) {
            send(out, Peer::Node, FreeBlocks { places: vec![location.place()] });
        } else {
            out.push(Action::FreeBlock(location));
        }
    }
}

impl Record {
    fn new(slot: Arc<Slot>, origin: Origin) -> Self {
        Self {
            slot,
            uses: 0,
            lineage: 0,
            made: Made::default(),
            value: ValueState::default(),
            is_dropped: false,
            origin,
            contained: Box::default(),
            waiting: None,
            is_actor: false,
            is_shared: false,
            is_told: false,
        }
    }

    /// Whether a borrower of an owned object was registered by another process.
    #[must_use]
    pub fn is_handed_on(&self) -> bool {
        matches!(&self.origin, Origin::Owned(borrowers) if borrowers.is_handed_on())
    }

    /// Whether the value is gone, and no task computes it.
    fn is_absent(&self) -> bool {
        self.value == ValueState::Absent
    }

    /// The value is here again, or a task computes it.
    fn end_absence(&mut self) {
        if self.is_absent() {
            self.value = ValueState::Regular;
        }
    }

    /// Ends one use. True if it was the last one, and there is no handle.
    fn end_use(&mut self) -> bool {
        assert!(self.uses > 0, "O2: a use ends that never began");
        self.uses -= 1;
        self.record_end();
        !self.is_used()
    }

    /// A use or a borrower has ended. When none is left, no process that was told the place is left either.
    fn record_end(&mut self) {
        let is_lent = matches!(&self.origin, Origin::Owned(borrowers) if !borrowers.is_empty());
        self.is_told &= self.uses > 0 || is_lent;
    }

    /// Submitted or executing tasks, containing objects and pins that use it.
    fn uses(&self) -> u32 {
        self.uses
    }

    /// Whether this process needs the object.
    fn is_used(&self) -> bool {
        self.uses > 0 || self.slot.handles() > 0
    }

    /// Borrowers of an owned object.
    #[must_use]
    pub fn borrowers(&self) -> Vec<WorkerId> {
        match &self.origin {
            Origin::Owned(borrowers) => borrowers.list(),
            Origin::Borrowed { .. } => Vec::new(),
        }
    }
}

/// The defect `NestedNotKept`: no table knows what a value contains.
fn record_without_contained(record: &mut Record) {
    record.contained = Box::default();
}

fn freed_failure(object: ObjectId) -> sooner_wire::message::Failure {
    sooner_wire::message::Failure::new(
        sooner_wire::message::FailureCode::ObjectFreed,
        format!(
            "{} was freed: its last reference was dropped before this one was used. Keep a reference, or pass the reference itself instead of its id",
            name_of(object)
        ),
    )
}

fn name_of(object: ObjectId) -> String {
    let TaskId { owner, number } = object.task;
    format!("object {number}/{} of process {:x}", object.index, owner.0)
}

mod borrowing;
mod directory;
mod promotion;
mod recovery;
mod relinquishing;
mod remote;
mod report;
mod settling;
#[cfg(test)]
mod tests;
mod waiting;
