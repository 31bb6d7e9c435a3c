//! Values in the memory of other nodes, and copies of them that were pulled here
//! (`docs/adr/0023-remote-values.md`).
//!
//! A record whose slot says `Remote` has its outcome: dependents run, references are passed on. A process
//! that needs the bytes has them brought; the slot then names the copy. A copy is held by the process that
//! pulled it, until its record goes. Only the owner lends a copy on, because its record outlives every
//! borrower's; others name the place they pulled from, and the receiver pulls for itself. So every copy that
//! is read has a process that answers for it.
//!
//! The block in which the value was made is held by the owner, at its node, from afar: [`FreeAt`] gives it
//! back.
//!
//! All of it is empty as long as there is one node.

use sooner_wire::message::{
    Failure, FreeAt, FreeBlocks, HandedOver, Location, Outcome, Place, Priority, Pull, Remote,
};
use sooner_wire::{NodeId, ObjectId, WorkerId};

use super::{Origin, Ownership, Record, ValueState};
use crate::probes::{bug, mark};
use crate::table::{Map, Set};
use crate::worker::action::{Action, Actions, Peer, send};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Remotes {
    /// Copies that the slots of their records name.
    copies: Map<ObjectId, Copy>,
    /// Pulls that the node was asked for and has not answered: one per object, even if its record goes
    /// meanwhile.
    pulling: Map<ObjectId, Remote>,
    /// Why the last pull failed, for those that waited.
    failed: Map<ObjectId, Failure>,
    /// Where the owned values are whose copies here were lost.
    primaries: Map<ObjectId, Remote>,
    /// Owned values that are brought here because their nodes leave or lack room.
    handed: Map<ObjectId, Remote>,
    /// Lost blocks of other nodes that held values of this process: until they are given back, or no process
    /// is left that would name their contents.
    lost: Set<(NodeId, Place)>,
    /// Dead nodes. As many as died in this process's life.
    gone: Set<NodeId>,
    /// Where borrowed values are known not to be, until their records go: that long their owners do not reuse
    /// those blocks.
    missing: Map<ObjectId, Remote>,
}

#[derive(Debug)]
struct Copy {
    at: Location,
    /// The place it was pulled from, unless that was lost.
    from: Option<Remote>,
    /// Whether `from` is given back as soon as no process reads there; processes elsewhere are sent to the
    /// copy.
    replaces: bool,
}

impl Remotes {
    /// The copies here, and their places.
    pub(super) fn copies(&self) -> impl Iterator<Item = (ObjectId, Location)> {
        self.copies.iter().map(|(object, copy)| (*object, copy.at))
    }

    /// Whether what this process reads here is a copy.
    pub(super) fn has_copy(&self, object: ObjectId) -> bool {
        !self.copies.is_empty() && self.copies.contains_key(&object)
    }

    /// The place that the copy here was pulled from, unless that was lost.
    pub(super) fn source_of(&self, object: ObjectId) -> Option<Remote> {
        self.copies.get(&object).and_then(|copy| copy.from)
    }

    /// The value that the copy here was pulled from has a new place.
    pub(super) fn move_source(&mut self, object: ObjectId, to: Remote) {
        if let Some(copy) = self.copies.get_mut(&object) {
            copy.from = Some(to);
        }
    }

    /// Whether the value is to be on this node only, as soon as that is possible.
    pub(super) fn is_leaving(&self, object: ObjectId) -> bool {
        let replaces = self.copies.get(&object).is_some_and(|copy| copy.replaces);
        replaces || self.handed.contains_key(&object)
    }

    /// Whether the value is being brought here.
    pub(super) fn is_pulling(&self, object: ObjectId) -> bool {
        !self.pulling.is_empty() && self.pulling.contains_key(&object)
    }

    /// Whether an owned value is at another node, although its copy here was lost.
    pub(super) fn has_primary(&self, object: ObjectId) -> bool {
        self.primaries.contains_key(&object)
    }

    /// This process holds a copy that was brought here for another one.
    pub(super) fn hold_copy(&mut self, object: ObjectId, at: Location) {
        self.copies.entry(object).or_insert(Copy { at, from: None, replaces: false });
    }

    /// The copy here is no copy any more.
    pub(super) fn forget_copy(&mut self, object: ObjectId) {
        self.copies.swap_remove(&object);
    }
}

/// What became of a pull.
#[derive(Debug, PartialEq, Eq)]
pub enum Brought {
    /// The value can be read here.
    Here,
    /// The value was not at its place, and is lost.
    Lost,
    /// The value is not wanted any more, or was asked for anew.
    Nothing,
}

impl Ownership {
    /// Whether the value of an object is on the disk of its node, with a copy in memory or without.
    #[must_use]
    pub fn has_spilled(&self, object: ObjectId) -> bool {
        let is_without = || self.records.get(&object).is_some_and(|record| record.slot.is_on_disk());
        let source = self.remotes.source_of(object);
        source.is_some_and(|source| source.location.place().is_disk()) || is_without()
    }

    /// The nodes that have the value of an object, as far as this process knows; the node that made it is
    /// first.
    #[must_use]
    pub fn nodes_with(&self, object: ObjectId) -> Vec<NodeId> {
        let source = self.remotes.source_of(object).map(|source| source.node);
        let place = self.place_of(object).map(|place| place.node);
        let mut nodes = Vec::new();
        let here = self
            .records
            .get(&object)
            .filter(|record| record.slot.outcome().is_some_and(|outcome| outcome.place_here().is_some()));
        let all =
            source.into_iter().chain(place).chain(here.map(|_| self.me.node())).chain(self.copies_at(object));
        for node in all {
            if !nodes.contains(&node) {
                nodes.push(node);
            }
        }
        nodes
    }

    /// Has the value of an object brought into the memory of this node, if it is elsewhere. True if it is on
    /// its way.
    pub fn bring(&mut self, object: ObjectId, priority: Priority, out: &mut Actions) -> bool {
        let Some(record) = self.records.get(&object) else { return false };
        let Some(remote) = record.slot.outcome().and_then(|outcome| outcome.place_elsewhere()) else {
            return false;
        };
        record.slot.set_on_its_way();
        self.remotes.failed.swap_remove(&object);
        if !self.remotes.pulling.contains_key(&object) {
            self.remotes.pulling.insert(object, remote);
            send(out, Peer::Node, Pull { object, remote, priority });
        }
        true
    }

    /// The node has pulled a copy of an object, and this process holds it.
    pub fn on_copy(&mut self, object: ObjectId, at: Location, out: &mut Actions) -> Brought {
        self.remotes.pulling.swap_remove(&object);
        if let Some(record) = self.records.get_mut(&object)
            && let Some(Outcome::Remote(remote)) = record.slot.outcome().as_deref()
            && record.value != ValueState::Released
        {
            let from = Some(**remote);
            self.remotes.copies.insert(object, Copy { at, from, replaces: false });
            let moves = self.end_hand_over(object, out);
            self.record_local(object, at, out);
            if moves {
                self.keep_copy_only(object, out);
            }
            return Brought::Here;
        }
        if !self.holds_asked_copy(object, at.place()) {
            send(out, Peer::Node, FreeBlocks { places: vec![at.place()] });
        }
        Brought::Nothing
    }

    /// A value that was elsewhere can be read here from now on.
    pub fn record_local(&mut self, object: ObjectId, at: Location, out: &mut Actions) {
        let Some(record) = self.records.get_mut(&object) else { return };
        // A later reader that finds the value elsewhere has it brought again.
        record.slot.set_elsewhere();
        record.slot.supersede(&Outcome::Stored(at));
        if record.waiting.as_ref().is_some_and(|waiting| waiting.watched) {
            record.waiting = None;
            out.push(Action::Ready(object));
        }
    }

    /// Whether the latest known place of an object is at another node, or on disk.
    #[must_use]
    pub fn is_elsewhere(&self, object: ObjectId) -> bool {
        let outcome = self.records.get(&object).and_then(|record| record.slot.outcome());
        matches!(outcome.as_deref(), Some(Outcome::Remote(_)))
    }

    /// A value was not where this process, or one that asked before it, believed it to be. If no newer place
    /// is known, the value is lost; else it is brought from there for those that still wait. `tried`: where
    /// it certainly is not. `None`: nothing is certain; the owner is asked, and may name the same place
    /// again.
    pub fn on_not_there(
        &mut self,
        object: ObjectId,
        tried: Option<Remote>,
        is_wanted: bool,
        out: &mut Actions,
    ) -> Brought {
        let asked = self.remotes.pulling.swap_remove(&object);
        self.end_hand_over(object, out);
        let latest = self.records.get(&object).and_then(|record| record.slot.outcome());
        let latest = match latest.as_deref() {
            Some(Outcome::Remote(remote)) => **remote,
            Some(Outcome::Inline(_) | Outcome::Stored(_) | Outcome::Failed(_)) | None => {
                return Brought::Nothing;
            }
        };
        if tried.or(asked) == Some(latest) {
            self.records[&object].slot.set_elsewhere();
            if object.owner() == self.me {
                self.remotes.lost.insert((latest.node, latest.location.place()));
            } else if tried.is_some() {
                self.record_missing(object, latest);
            }
            self.lose(object, out);
            return Brought::Lost;
        }
        let is_watched = self.records[&object].waiting.is_some();
        if is_wanted || is_watched || self.records[&object].slot.handles() > 0 {
            self.bring(object, Priority::Get, out);
        }
        Brought::Nothing
    }

    /// A value cannot be brought here. It stays at its place; those that wait learn why.
    pub fn on_pull_failed(&mut self, object: ObjectId, failure: &Failure, out: &mut Actions) {
        self.remotes.pulling.swap_remove(&object);
        self.end_hand_over(object, out);
        let Some(record) = self.records.get_mut(&object) else { return };
        if !matches!(record.slot.outcome().as_deref(), Some(Outcome::Remote(_))) {
            return;
        }
        record.slot.set_out_of_reach();
        self.failures += 1;
        if record.waiting.as_ref().is_some_and(|waiting| waiting.watched) {
            record.waiting = None;
            out.push(Action::Ready(object));
        }
        self.remotes.failed.insert(object, failure.clone());
    }

    /// Why the last pull of an object failed.
    #[must_use]
    pub fn pull_failure(&self, object: ObjectId) -> Option<&Failure> {
        self.remotes.failed.get(&object)
    }

    /// Like [`Self::outcome_for`], and records that a process was told the place: as long as that process may
    /// use the object, it may read the value there.
    pub fn tell(&mut self, object: ObjectId, to: Option<WorkerId>) -> Option<Outcome> {
        self.records.get_mut(&object)?.is_told |= !bug!(ToldAndForgotten);
        self.outcome_for(object, to)
    }

    /// What to tell a process that is handed an object. `None`: the process that will execute an actor's
    /// constructor. A value that leaves its node is still read there by that node's processes: with a second
    /// copy for them, a node without room would wait for itself.
    pub fn outcome_for(&self, object: ObjectId, to: Option<WorkerId>) -> Option<Outcome> {
        let outcome = self.records.get(&object)?.slot.outcome()?;
        if self.remotes.copies.is_empty() {
            return Some(outcome.into_owned());
        }
        let is_here = to.is_none_or(|to| to.node() == self.me.node());
        let is_there = |from: &Remote| to.is_some_and(|to| to.node() == from.node);
        let copy = self.remotes.copies.get(&object);
        let from = copy.and_then(|copy| copy.from.filter(|from| !copy.replaces || is_there(from)));
        match from {
            Some(from) if object.owner() != self.me || !is_here => Some(Outcome::Remote(Box::new(from))),
            Some(_) => Some(outcome.into_owned()),
            None => match copy.filter(|_| object.owner() != self.me) {
                // The value was lost at its source, and only an owner answers for the readers of its block:
                // this node is asked for the copy.
                Some(Copy { at, .. }) => {
                    mark!("a copy was lent whose value was lost where it came from");
                    Some(Outcome::Remote(Box::new(Remote { node: self.me.node(), location: *at })))
                }
                None => Some(outcome.into_owned()),
            },
        }
    }

    /// Blocks of another node lost their contents, which this process holds there, or held when the loss was
    /// reported. Gives the objects that were there and have no value now; those with a copy here keep that
    /// one. Borrowed values stay: one reported there came after this process gave the block back, or its node
    /// knows that it is gone.
    pub fn on_lost_at(&mut self, node: NodeId, places: &[Place], out: &mut Actions) -> Vec<ObjectId> {
        self.remotes.lost.extend(places.iter().map(|place| (node, *place)));
        let me = self.me;
        let is_hit = |object: ObjectId, remote: &Remote| {
            object.owner() == me && remote.node == node && places.contains(&remote.location.place())
        };
        self.lose_places(is_hit, out)
    }

    /// This process turned out not to hold these blocks of another node: the process that was to name their
    /// contents is dead, and its messages have been read. That the old contents were lost says nothing about
    /// the next.
    pub fn forget_lost_at(&mut self, node: NodeId, places: &[Place]) {
        for place in places {
            self.remotes.lost.swap_remove(&(node, *place));
        }
    }

    /// A node is dead, with all that was there. Gives the objects that have no value now, as above.
    pub fn on_node_dead(&mut self, node: NodeId, out: &mut Actions) -> Vec<ObjectId> {
        self.remotes.gone.insert(node);
        self.lose_places(|_, remote| remote.node == node, out)
    }

    /// Another process did not find a value at `place`. Gives the object if that is the latest place known: a
    /// process that asked with older knowledge has its answer already.
    pub fn on_missing(&mut self, object: ObjectId, place: &Remote, out: &mut Actions) -> Vec<ObjectId> {
        let latest = self.records.get(&object).and_then(|record| record.slot.outcome());
        let is_latest = matches!(latest.as_deref(), Some(Outcome::Remote(remote)) if **remote == *place);
        let is_below_copy = self.remotes.copies.get(&object).is_some_and(|copy| copy.from == Some(*place));
        if !(is_latest || is_below_copy) {
            return Vec::new();
        }
        if object.owner() == self.me {
            return self.on_lost_at(place.node, &[place.location.place()], out);
        }
        // This process's knowledge may be old, and another value in that block by now.
        self.lose_places(|lost, remote| lost == object && remote == place, out)
    }

    fn lose_places(
        &mut self,
        is_hit: impl Fn(ObjectId, &Remote) -> bool,
        out: &mut Actions,
    ) -> Vec<ObjectId> {
        for (object, copy) in &mut self.remotes.copies {
            if let Some(from) = copy.from.take_if(|from| is_hit(*object, from)) {
                self.stale.entry(*object).or_default().remotes.push(from);
                if let Some(record) = self.records.get_mut(object) {
                    record.is_dropped = false;
                }
            }
        }
        let outcomes =
            self.records.iter().filter_map(|(object, record)| Some((object, record.slot.outcome()?)));
        let hit = outcomes.filter(
            |(object, outcome)| matches!(&**outcome, Outcome::Remote(remote) if is_hit(**object, remote)),
        );
        let hit: Vec<ObjectId> = hit.map(|(object, _)| *object).collect();
        for object in &hit {
            if object.owner() != self.me
                && let Some(Outcome::Remote(place)) = self.records[object].slot.outcome().as_deref()
            {
                let place = **place;
                self.record_missing(*object, place);
            }
            self.lose(*object, out);
        }
        hit
    }

    /// Where the block is in which an owned value was made, or the copy that has taken its place.
    pub(super) fn place_of(&self, object: ObjectId) -> Option<Remote> {
        let record = self.records.get(&object).filter(|record| {
            matches!(record.origin, Origin::Owned(_)) && record.value == ValueState::Regular
        })?;
        match &*record.slot.outcome()? {
            Outcome::Remote(remote) => Some(**remote),
            Outcome::Stored(location) => {
                let made = self.remotes.copies.get(&object).and_then(|copy| copy.from);
                Some(made.unwrap_or(Remote { node: self.me.node(), location: *location }))
            }
            Outcome::Inline(_) | Outcome::Failed(_) => None,
        }
    }

    /// A node leaves, or has no room: owned values in these blocks of it are brought here. A copy that is
    /// here already becomes the value. The node learns of each block as soon as it need not wait for it, and
    /// asks again about those that it did not get back.
    pub fn on_hand_over(&mut self, node: NodeId, mut places: Vec<Place>, out: &mut Actions) {
        let hit: Set<Place> = places.iter().copied().collect();
        let is_hit = |remote: &Remote| remote.node == node && hit.contains(&remote.location.place());
        let is_ours = |object: &ObjectId| object.owner() == self.me;
        let copies = self.remotes.copies.iter().filter(|(object, _)| is_ours(object));
        let copied = copies.filter(|(_, copy)| copy.from.as_ref().is_some_and(is_hit));
        let copied: Vec<ObjectId> = copied.map(|(object, _)| *object).collect();
        let place = |record: &Record| match record.slot.outcome().as_deref() {
            Some(Outcome::Remote(at)) if is_hit(at) => Some(**at),
            _ => None,
        };
        let owned = self.records.iter().filter(|(object, _)| is_ours(object));
        let there = owned.filter_map(|(object, record)| Some((*object, place(record)?)));
        let there: Vec<(ObjectId, Remote)> = there.collect();
        for object in copied {
            self.keep_copy_only(object, out);
        }
        for (object, at) in there {
            places.retain(|place| *place != at.location.place());
            self.remotes.handed.insert(object, at);
            self.bring(object, Priority::Argument, out);
        }
        if !places.is_empty() {
            send(out, Peer::Node, HandedOver { node, places });
        }
    }

    /// Makes the copy of an owned value the value. The block it was pulled from is given back if only this
    /// process can use it; otherwise with the value, or when the node asks again.
    fn keep_copy_only(&mut self, object: ObjectId, out: &mut Actions) {
        let Some(copy) = self.remotes.copies.get_mut(&object) else { return };
        copy.replaces = true;
        let is_read = |record: &Record| {
            let is_lent = !matches!(&record.origin, Origin::Owned(borrowers) if borrowers.is_empty());
            let is_released = record.value == ValueState::Released;
            is_lent || record.uses > 0 || record.waiting.is_some() || is_released
        };
        if self.records.get(&object).is_none_or(is_read) && !bug!(PlaceLeftWhileRead) {
            return;
        }
        if let Some(from) = copy.from.take() {
            mark!("a value left the node that it was made at, and nobody read it there");
            self.end_copies(object, out);
            self.free_remote(object, &from, out);
        }
    }

    /// Tells the node that leaves not to wait for a value any more. True if it waited.
    fn end_hand_over(&mut self, object: ObjectId, out: &mut Actions) -> bool {
        if self.remotes.handed.is_empty() {
            return false;
        }
        let Some(at) = self.remotes.handed.swap_remove(&object) else { return false };
        send(out, Peer::Node, HandedOver { node: at.node, places: vec![at.location.place()] });
        true
    }

    /// Whether an owned value is, or was, in this block of another node, and the block has not been given
    /// back. A borrowed value reported there may have left, and the block be in use for an owned one that
    /// never came.
    #[must_use]
    pub fn knows_block_at(&self, node: NodeId, place: Place) -> bool {
        let me = self.me;
        let is_there = |remote: &Remote| remote.node == node && remote.location.place() == place;
        let is_latest = |record: &Record| matches!(record.slot.outcome().as_deref(), Some(Outcome::Remote(at)) if is_there(at));
        let is_ours = |object: &ObjectId| object.owner() == me;
        let below =
            self.remotes.copies.iter().filter_map(|(object, copy)| Some((object, copy.from.as_ref()?)));
        let stale =
            self.stale.iter().flat_map(|(object, stale)| stale.remotes.iter().map(move |at| (object, at)));
        below.chain(&self.remotes.primaries).chain(stale).any(|(object, at)| is_ours(object) && is_there(at))
            || self.records.iter().any(|(object, record)| is_ours(object) && is_latest(record))
    }

    /// Whether an object is no longer at a place of another node. A lost block says so of owned values only:
    /// only those were in it.
    pub(super) fn is_lost_at(&self, object: ObjectId, remote: &Remote) -> bool {
        let is_in_lost = || self.remotes.lost.contains(&(remote.node, remote.location.place()));
        (object.owner() == self.me && is_in_lost()) || self.remotes.gone.contains(&remote.node)
    }

    /// Records that a borrowed value is not where this process was told.
    pub(super) fn record_missing(&mut self, object: ObjectId, place: Remote) {
        self.remotes.missing.insert(object, place);
    }

    /// The place where a borrowed value is not, to send with the question to its owner.
    pub(super) fn missing_at(&self, object: ObjectId) -> Option<Remote> {
        if self.remotes.missing.is_empty() { None } else { self.remotes.missing.get(&object).copied() }
    }

    /// Whether this process knows for certain that a value of another node is not where an outcome says.
    #[must_use]
    pub fn is_dead_from(&self, object: ObjectId, outcome: &Outcome) -> bool {
        let place = outcome.place_elsewhere();
        place.is_some_and(|place| self.is_lost_at(object, &place)) || self.is_missing(object, outcome)
    }

    /// Whether this process knows that a borrowed value is not where an outcome says.
    #[must_use]
    pub fn is_missing(&self, object: ObjectId, outcome: &Outcome) -> bool {
        matches!(outcome, Outcome::Remote(_)) && outcome.place_elsewhere() == self.missing_at(object)
    }

    /// The copy here was lost, or is to go: forgets it. Gives its place.
    pub(super) fn take_copy(&mut self, object: ObjectId) -> Option<Location> {
        if self.remotes.copies.is_empty() {
            return None;
        }
        let Copy { at, from, .. } = self.remotes.copies.swap_remove(&object)?;
        if let Some(from) = from.filter(|_| object.owner() == self.me) {
            self.remotes.primaries.insert(object, from);
        }
        Some(at)
    }

    /// For an owned value of which only the copy was lost: where the value still is, and the references in
    /// it.
    pub fn take_primary(&mut self, object: ObjectId) -> Option<(Remote, Vec<ObjectId>)> {
        let primary = self.remotes.primaries.swap_remove(&object)?;
        let contained = self.stale.get(&object).map_or(Vec::new(), |stale| stale.contained.clone());
        if let Some(record) = self.records.get_mut(&object) {
            record.end_absence();
        }
        Some((primary, contained))
    }

    /// Frees a value: its block here, or its copy here and its block at another node.
    pub(super) fn free_value(
        &mut self,
        object: ObjectId,
        outcome: Option<&Outcome>,
        is_shared: bool,
        out: &mut Actions,
    ) {
        match outcome {
            Some(Outcome::Stored(location)) => {
                if !self.free_copy(object, out) {
                    self.free_block(*location, is_shared, out);
                }
            }
            Some(Outcome::Remote(remote)) => self.free_remote(object, remote, out),
            Some(Outcome::Inline(_) | Outcome::Failed(_)) | None => {}
        }
    }

    /// Frees the copy of an object, if there is one, and the block that it was pulled from.
    pub(super) fn free_copy(&mut self, object: ObjectId, out: &mut Actions) -> bool {
        let Some(at) = self.take_copy(object) else { return false };
        send(out, Peer::Node, FreeBlocks { places: vec![at.place()] });
        self.free_primary(object, out);
        true
    }

    /// Frees the block that an owned value was pulled from.
    pub(super) fn free_primary(&mut self, object: ObjectId, out: &mut Actions) {
        if self.remotes.primaries.is_empty() {
            return;
        }
        if let Some(primary) = self.remotes.primaries.swap_remove(&object) {
            self.free_remote(object, &primary, out);
        }
    }

    /// Gives a block of another node back, if this process owns the object: only the owner holds it.
    pub(super) fn free_remote(&mut self, object: ObjectId, remote: &Remote, out: &mut Actions) {
        if object.owner() == self.me {
            self.remotes.lost.swap_remove(&(remote.node, remote.location.place()));
        }
        if object.owner() == self.me && !self.remotes.gone.contains(&remote.node) {
            send(out, Peer::Node, FreeAt { node: remote.node, places: vec![remote.location.place()] });
        }
    }

    /// The owner of a borrowed value died before the value was brought here: the value is lost. False if it
    /// stays. A value on this node's disk stays: it may be kept there for later processes, which get their
    /// answer from the node.
    pub(super) fn lose_with_owner(&mut self, object: ObjectId) -> bool {
        let here = self.me.node();
        let Some(record) = self.records.get_mut(&object) else { return false };
        let is_kept = |at: &Remote| at.node == here && at.location.place().is_disk();
        let goes = match (&record.origin, record.slot.outcome().as_deref()) {
            (Origin::Borrowed { .. }, Some(Outcome::Remote(at))) => !is_kept(at),
            _ => false,
        };
        if goes {
            record.slot.lose();
            let contained = std::mem::take(&mut record.contained);
            if !contained.is_empty() {
                // They came with the value, and are dropped with its record.
                self.stale.entry(object).or_default().contained.extend(contained);
            }
        }
        goes
    }

    /// Forgets an object whose record goes, but not an open pull.
    pub(super) fn forget_remote(&mut self, object: ObjectId) {
        if !self.remotes.failed.is_empty() {
            self.remotes.failed.swap_remove(&object);
        }
        if !self.remotes.missing.is_empty() {
            self.remotes.missing.swap_remove(&object);
        }
        if !self.remotes.handed.is_empty() {
            self.remotes.handed.swap_remove(&object);
        }
    }

    /// Copies here, and pulls that the node has not answered; for tests.
    #[must_use]
    pub fn copies(&self) -> (usize, usize) {
        (self.remotes.copies.len(), self.remotes.pulling.len())
    }
}
