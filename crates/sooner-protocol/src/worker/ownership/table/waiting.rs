//! Waiting for outcomes: tasks of this process, the shell's threads, and borrowers.

use sooner_wire::message::{Fetch, Outcome, Priority, Value};
use sooner_wire::{ObjectId, WorkerId};

use super::{Origin, Ownership};
use crate::probes::bug;
use crate::worker::action::{Actions, Peer, send};

impl Ownership {
    /// Asks the owner for the value of a borrowed object, once.
    pub fn need(&mut self, object: ObjectId, out: &mut Actions) {
        let Some(record) = self.records.get_mut(&object) else { return };
        if record.slot.has_outcome() {
            return;
        }
        if let Origin::Borrowed { fetching, .. } = &mut record.origin
            && !*fetching
        {
            *fetching = true;
            let missing_at = self.missing_at(object);
            send(out, Peer::Worker(object.owner()), Fetch { object, missing_at });
        }
    }

    /// The shell wants to learn when the outcome is there and readable here; false if it already is.
    pub fn watch(&mut self, object: ObjectId, out: &mut Actions) -> bool {
        let Some(record) = self.records.get_mut(&object) else { return false };
        if record.slot.is_readable() {
            return false;
        }
        record.waiting.get_or_insert_default().watched = true;
        if !self.bring(object, Priority::Get, out) {
            self.need(object, out);
        }
        true
    }

    /// Lets a task of this process wait for the object; false if its outcome is there already.
    pub fn depend(&mut self, object: ObjectId, task: u64, out: &mut Actions) -> bool {
        let Some(record) = self.records.get_mut(&object) else { return false };
        if record.slot.has_outcome() {
            return false;
        }
        record.waiting.get_or_insert_default().dependents.push(task);
        self.need(object, out);
        true
    }

    /// A borrower asks for the value. False if it has dropped its reference since and no process has one
    /// left: then a lost value need not come again.
    pub fn on_fetch(&mut self, object: ObjectId, from: WorkerId, out: &mut Actions) -> bool {
        self.meet(object);
        let record = &mut self.records[&object];
        if record.slot.has_outcome() {
            self.send_value(object, from, out);
            self.drop_if_unkept(object, out);
            return true;
        }
        if record.is_absent() && !record.is_used() && record.borrowers().is_empty() {
            let outcome = Outcome::Failed(Box::new(super::freed_failure(object)));
            send(out, Peer::Worker(from), Value { object, outcome, contained: Vec::new() });
            return false;
        }
        if !bug!(FetcherForgotten) {
            let fetchers = &mut record.waiting.get_or_insert_default().fetchers;
            // A borrower that dropped its references since may ask again, any number of times.
            if !fetchers.contains(&from) {
                fetchers.push(from);
            }
        }
        true
    }

    pub(super) fn send_value(&mut self, object: ObjectId, to: WorkerId, out: &mut Actions) {
        let outcome = self.tell(object, Some(to)).expect("asked only when there is one");
        let contained = self.records[&object].contained.clone();
        for inner in &contained {
            self.hand_over(*inner, to, out);
        }
        let value = Value { object, outcome, contained: contained.into_vec() };
        send(out, Peer::Worker(to), value);
    }
}
