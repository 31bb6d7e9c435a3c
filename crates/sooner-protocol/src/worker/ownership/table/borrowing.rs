//! Counts references that are handed from process to process ([`crate::worker::ownership::Borrowers`] and the
//! module above say how).

use std::sync::Arc;

use sooner_wire::message::{AddBorrow, RemoveBorrow, Watch};
use sooner_wire::{ObjectId, WorkerId};

use super::{Origin, Ownership, Record, Registration};
use crate::probes::{bug, mark};
use crate::worker::action::{Actions, Peer, send};
use crate::worker::ownership::Slot;
use crate::worker::ownership::borrowers::Return;

impl Ownership {
    /// Counts a reference for which the owner or this process registered this process.
    pub fn received(&mut self, object: ObjectId) -> Arc<Slot> {
        let slot = self.meet(object);
        if let Some(Record { origin: Origin::Borrowed { received, .. }, .. }) = self.records.get_mut(&object)
        {
            *received += 1;
        }
        slot
    }

    /// Another process handed this one a reference and registered it with the owner.
    pub fn handed_by(&mut self, object: ObjectId, giver: WorkerId) {
        if giver == object.owner() || giver == self.me || object.owner() == self.me {
            self.received(object);
            return;
        }
        self.meet(object);
        let givers = self.handed.entry(object).or_default();
        match givers.iter_mut().find(|(who, _)| *who == giver) {
            Some((_, count)) => *count += 1,
            None => givers.push((giver, 1)),
        }
    }

    /// A task that another process pushed here uses the object. Its caller keeps the object for it until the
    /// reply, so the owner need not know of this process (Ownership, section 4.2).
    pub fn begin_loan(&mut self, object: ObjectId) -> Arc<Slot> {
        let Some(record) = self.records.get_mut(&object) else {
            self.meet(object);
            return self.begin_loan(object);
        };
        record.uses += 1;
        if let Origin::Borrowed { loans, .. } = &mut record.origin {
            *loans += 1;
        }
        record.slot.clone()
    }

    /// Ends one [`Self::begin_loan`].
    pub fn end_loan(&mut self, object: ObjectId, out: &mut Actions) {
        let Some(record) = self.records.get_mut(&object) else { return };
        // An object taken over from its dead owner since then counts no loans.
        if let Origin::Borrowed { loans, .. } = &mut record.origin {
            assert!(*loans > 0, "O5: a loan ends that never began");
            *loans -= 1;
        }
        if record.end_use() {
            self.drop_if_unkept(object, out);
        }
    }

    /// Whether this process goes on holding a borrowed object after a task that was lent it, by a right that
    /// no caller knows (`docs/adr/0037-loans-stand-for-themselves.md`).
    ///
    /// Other tasks that were lent it are no such right: each caller keeps the object for its task, and learns
    /// from that task's reply what is kept then. Nor need this caller be told if another was: that one
    /// registers this process, which returns the object when it has no use for it.
    #[must_use]
    pub fn is_kept_untold(&self, object: ObjectId, caller: WorkerId) -> bool {
        let Some(record) = self.records.get(&object) else { return false };
        let Origin::Borrowed { loans, registration, .. } = record.origin else { return false };
        let is_told = registration == Registration::Announced;
        let is_kept = record.slot.handles() > 0 || record.uses > loans || record.lineage > 0;
        if caller != object.owner() && loans > 0 {
            mark!("a borrower lent a reference to several tasks of a process");
        }
        if caller != object.owner() && is_kept && is_told {
            mark!("a borrower lent a reference to a process that goes on holding it");
        }
        if bug!(KeptWhileLent) && loans > 0 {
            return false;
        }
        is_kept && !is_told
    }

    /// The reply to a caller says that this process goes on holding what its task was lent: as if the caller
    /// had handed it over.
    pub fn hold_on(&mut self, objects: &[ObjectId], caller: WorkerId) {
        for object in objects {
            self.handed_by(*object, caller);
            // Not if an actor called itself: its message to the owner is under way, and nothing keeps the
            // object until then.
            if caller != self.me
                && let Some(Record { origin: Origin::Borrowed { registration, .. }, .. }) =
                    self.records.get_mut(object)
            {
                *registration = Registration::Announced;
            }
        }
    }

    /// Whether this process was only lent a reference, handed it on, and told no caller. A process that gave
    /// it back in a result, and registered this one, may have been lent it as well: its message to the owner
    /// is under way, and nothing keeps the object until then.
    #[must_use]
    pub fn must_be_registered(&self, object: ObjectId) -> bool {
        let Some(Record { origin, .. }) = self.records.get(&object) else { return false };
        let Origin::Borrowed { received: 0, registration: Registration::Due, .. } = origin else {
            return false;
        };
        !(bug!(ReturnedIsTold) && self.handed.contains_key(&object))
    }

    /// Registers `borrower` for a reference that is being handed to it.
    ///
    /// A process that was only lent the reference gives it up with its reply to the lender. The lender's
    /// message could then reach the owner before the one about `borrower`. So the reply says that this
    /// process holds the object on: the lender registers it, and it returns the reference at once, behind its
    /// own message.
    pub fn hand_over(&mut self, object: ObjectId, borrower: WorkerId, out: &mut Actions) {
        if let Some(Record { origin: Origin::Borrowed { received: 0, registration, .. }, .. }) =
            self.records.get_mut(&object)
            && *registration == Registration::Unasked
        {
            *registration = Registration::Due;
        }
        self.hand_back(object, borrower, out);
    }

    /// [`Self::hand_over`] to the lender, with the reply: the lender has a right of its own to the reference.
    pub fn hand_back(&mut self, object: ObjectId, borrower: WorkerId, out: &mut Actions) {
        if object.owner() == self.me && borrower == self.me {
            // An actor called itself: the owner needs no registration.
        } else if self.gone.contains(&borrower) {
            // The owner may be younger than the borrower's end, and would never learn that it is dead.
        } else if object.owner() == self.me {
            self.on_add_borrow(object, borrower, self.me, out);
        } else if object.owner() != borrower && !bug!(BorrowerNotRegistered) {
            send(out, Peer::Worker(object.owner()), AddBorrow { object, borrower });
        }
    }

    /// Counts a borrower, registered by itself, by this process, or by the `giver` of a reference.
    pub fn on_add_borrow(
        &mut self,
        object: ObjectId,
        borrower: WorkerId,
        giver: WorkerId,
        out: &mut Actions,
    ) {
        if self.gone.contains(&borrower) {
            mark!("a dead process was registered as a borrower");
        }
        if self.is_settled(borrower) && !bug!(LateBorrowerOfTheDead) {
            return;
        }
        let giver = (giver != self.me && giver != borrower).then_some(giver);
        self.change_borrow(object, borrower, giver, 1, out);
    }

    /// A borrower returns references that it received from one giver.
    pub fn on_remove_borrow(&mut self, from: WorkerId, remove: &RemoveBorrow, out: &mut Actions) {
        let RemoveBorrow { object, count, giver, was_sent } = *remove;
        let count = i32::try_from(count).unwrap_or(i32::MAX);
        match Return::of(giver, was_sent == Some(true), |giver| self.is_settled(giver)) {
            Return::Nothing => mark!("a reference was returned whose giver's death had been settled"),
            Return::Later(giver) => {
                mark!("what was held of a dead process was returned before its death was settled");
                self.set_aside(object, from, giver, count);
            }
            Return::Now(giver) => self.change_borrow(object, from, giver, -count, out),
        }
    }

    /// An object is gone while returns of it were set aside. The counts that settling the death brings are
    /// still to come, and would otherwise count alone.
    pub(super) fn keep_set_aside(&mut self, object: ObjectId, returns: Vec<(WorkerId, WorkerId, i32)>) {
        for (borrower, giver, count) in returns {
            self.set_aside(object, borrower, giver, count);
        }
    }

    fn set_aside(&mut self, object: ObjectId, borrower: WorkerId, giver: WorkerId, count: i32) {
        if object.owner() == self.me {
            // The object may be gone: see `keep_set_aside`.
            self.meet(object);
        }
        let Some(Record { origin: Origin::Owned(borrowers), .. }) = self.records.get_mut(&object) else {
            return;
        };
        borrowers.set_aside(borrower, giver, count);
        for process in [borrower, giver] {
            self.borrowed_by.entry(process).or_default().insert(object);
        }
    }

    /// Whether a process is dead and its death is settled.
    pub(super) fn is_settled(&self, process: WorkerId) -> bool {
        self.gone.contains(&process) && !self.unsettled.contains(&process)
    }

    pub(super) fn change_borrow(
        &mut self,
        object: ObjectId,
        borrower: WorkerId,
        giver: Option<WorkerId>,
        change: i32,
        out: &mut Actions,
    ) {
        let Some(record) = self.records.get_mut(&object) else {
            if object.owner() == self.me
                && ![Some(borrower), giver].into_iter().flatten().any(|who| self.is_settled(who))
            {
                // Gone, so all that was said of it comes to nothing. What is said later has its other half
                // still to come, which may meet a record: of one that makes a lost value again.
                self.meet(object);
                self.change_borrow(object, borrower, giver, change, out);
            }
            return;
        };
        let Origin::Owned(borrowers) = &mut record.origin else { return };
        let count = borrowers.change(borrower, giver, change);
        if count < 0 {
            mark!("a borrower returned a reference before it was registered");
        }
        for process in [Some(borrower), giver].into_iter().flatten() {
            if count != 0 || borrowers.names(process) {
                self.borrowed_by.entry(process).or_default().insert(object);
            } else if let Some(objects) = self.borrowed_by.get_mut(&process) {
                objects.swap_remove(&object);
            }
        }
        record.record_end();
        if borrower.node() != self.me.node() {
            self.watch_borrower(borrower, out);
        }
        if change < 0 || count == 0 {
            self.drop_if_unkept(object, out);
        }
    }

    /// Asks the node, once, to report the end of a borrower of another node: by itself it learns only of
    /// processes it has to do with, and another process may have registered the borrower.
    fn watch_borrower(&mut self, borrower: WorkerId, out: &mut Actions) {
        if !self.gone.contains(&borrower) && self.watched.insert(borrower) {
            send(out, Peer::Node, Watch { worker: borrower });
        }
    }

    /// Counts the references that came inside a value from `giver`.
    pub fn receive(&mut self, contained: &[ObjectId], giver: WorkerId) {
        for inner in contained {
            self.handed_by(*inner, giver);
        }
    }

    /// Tells the owner that this process has no use for an object any more.
    pub(super) fn return_borrows(&mut self, object: ObjectId, received: u32, out: &mut Actions) {
        let mut tell = |count, giver, was_sent| {
            let remove = RemoveBorrow { object, count, giver, was_sent };
            send(out, Peer::Worker(object.owner()), remove);
        };
        let said = if self.sent_of.is_empty() { None } else { self.sent_of.swap_remove(&object) };
        let said = said.unwrap_or_default();
        let others = received - said.iter().map(|(_, count)| count).sum::<u32>();
        if others > 0 {
            tell(others, None, None);
        }
        for (giver, count) in said {
            tell(count, Some(giver), Some(true));
        }
        if self.handed.is_empty() {
            return;
        }
        for (giver, count) in self.handed.swap_remove(&object).unwrap_or_default() {
            tell(count, Some(giver), None);
        }
    }
}
