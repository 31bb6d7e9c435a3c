//! What of the directory outlives the control service: named and detached actors, their names and jobs, and
//! placement groups.
//!
//! A message about these that could not be taken back is held until the record is on disk: the answer that a
//! name is given, the request to a node to give an actor a process, the order that bundles may be used
//! (`docs/adr/0033-what-the-directory-writes.md`). The changes of one turn are written together, in their
//! final state.
//!
//! A disk that takes nothing refuses new subjects, with its reason. Recorded subjects go on, and their
//! changes are tried again each second. Ends are sent at once: their sender repeats them to the next control
//! service.
//!
//! No other message ever waits here, and without [`Directory::keep_records`] nothing is recorded.

use sooner_wire::limits::{
    CONTROL_AWAY_NANOS, STORE_BATCH_MAX, STORE_KEY_BYTES_MAX, STORE_RETRY_NANOS, STORE_VALUE_BYTES_MAX,
};
use sooner_wire::message::{Answer, CreateActor, GroupPhase, GroupState, PlaceActor};
use sooner_wire::record::{
    ActorRecord, JobRecord, NameRecord, actor_key, creation_key, creation_pieces, group_key, job_key,
    name_key,
};
use sooner_wire::{ActorId, GroupId, NodeId, Takeover, WorkerId};

use super::actors::{Actor, Phase};
use crate::control::persist::{BatchId, Write};
use crate::control::{Directory, DirectoryAction, DirectoryActions};
use crate::table::{Map, Set};
use crate::time::Instant;
use crate::uplink::{BundleOrder, ToNode};

/// What a record is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::control) enum Subject {
    Job(WorkerId),
    /// Namespace and name.
    Name((String, String)),
    Actor(ActorId),
    Group(GroupId),
}

/// A message that is held until the record is on disk.
#[derive(Debug)]
pub(in crate::control) enum Held {
    /// A name is given.
    Answer(WorkerId, Box<Answer>),
    /// An actor is to have a process.
    Place(NodeId, Box<PlaceActor>),
    /// Bundles may be used.
    Commit(NodeId, BundleOrder),
    /// A group is known.
    State(WorkerId, Box<GroupState>),
}

/// One subject in a batch of writes.
#[derive(Debug)]
struct Entry {
    subject: Subject,
    held: Vec<Held>,
    /// Its entry in [`Durable::recorded`] before this write, and after it (`after`).
    before: Option<u32>,
    after: Option<u32>,
}

/// Writes that the disk has not answered.
#[derive(Debug)]
struct Batch {
    until: Instant,
    entries: Vec<Entry>,
}

/// See the module.
#[derive(Debug, Default)]
pub(in crate::control) struct Durable {
    /// Subjects to be written at the end of this turn.
    dirty: Set<Subject>,
    held: Map<Subject, Vec<Held>>,
    /// Being written. What changes meanwhile is written after that: it depends on whether the disk takes
    /// this.
    writing: Set<Subject>,
    /// Subjects in `writing` that have changed since.
    changed: Set<Subject>,
    /// Not written: tried again at `retry`.
    failed: Set<Subject>,
    retry: Option<Instant>,
    batches: u64,
    pending: Map<BatchId, Batch>,
    /// Subjects that have a record, or will when the disk has answered, with the number of pieces of an
    /// actor's creation.
    pub(in crate::control) recorded: Map<Subject, u32>,
    /// What processes of actors are sent, in pieces, where no record has it yet. Kept until the disk has it.
    creations: Map<ActorId, Vec<Vec<u8>>>,
    /// Actors of which only the record is known: no node has reported them.
    pub(in crate::control) unconfirmed: Set<ActorId>,
    /// Nodes of an earlier control service that have neither come back nor been declared dead.
    pub(in crate::control) absent: Set<NodeId>,
}

impl Durable {
    fn is_on_disk(&self, subject: &Subject) -> bool {
        ![&self.dirty, &self.failed, &self.writing].into_iter().any(|set| set.contains(subject))
    }

    /// Subjects to be written now that are not being written.
    fn take_dirty(&mut self, now: Instant) -> Set<Subject> {
        if self.retry.is_some_and(|retry| retry <= now) {
            self.retry = None;
            self.dirty.extend(std::mem::take(&mut self.failed));
        }
        let dirty = std::mem::take(&mut self.dirty).into_iter();
        let (later, next): (Set<_>, Set<_>) = dirty.partition(|subject| self.writing.contains(subject));
        self.changed.extend(later);
        next
    }

    /// The disk has answered. A subject changed since is written again.
    fn on_answer(&mut self, subject: &Subject) {
        self.writing.swap_remove(subject);
        if let Some(subject) = self.changed.swap_take(subject) {
            self.dirty.insert(subject);
        }
    }

    fn hold(&mut self, subject: Subject, held: Held) {
        self.held.entry(subject.clone()).or_default().push(held);
        self.failed.swap_remove(&subject);
        self.dirty.insert(subject);
    }

    fn try_later(&mut self, subject: Subject, held: Vec<Held>, now: Instant) {
        if !held.is_empty() {
            self.held.entry(subject.clone()).or_default().extend(held);
        }
        self.failed.insert(subject);
        self.retry.get_or_insert(now.plus(STORE_RETRY_NANOS));
    }

    fn submit(&mut self, entries: Vec<Entry>, writes: Vec<Write>, now: Instant) -> DirectoryAction {
        self.batches += 1;
        let batch = BatchId(self.batches);
        self.writing.extend(entries.iter().map(|entry| entry.subject.clone()));
        self.pending.insert(batch, Batch { until: now.plus(CONTROL_AWAY_NANOS), entries });
        DirectoryAction::Persist(batch, writes)
    }

    fn set_recorded(&mut self, subject: &Subject, pieces: Option<u32>) {
        if let Some(pieces) = pieces {
            self.recorded.insert(subject.clone(), pieces);
        } else {
            self.recorded.swap_remove(subject);
        }
    }

    /// When there is something to do, even if nothing happens.
    fn next_deadline(&self) -> Option<Instant> {
        if !self.dirty.is_empty() {
            // Marked after this turn's changes were written.
            return Some(Instant::default());
        }
        self.pending.values().map(|batch| batch.until).chain(self.retry).min()
    }
}

/// Why a store would not take these writes.
fn check(writes: &[Write]) -> Result<(), String> {
    if writes.len() > STORE_BATCH_MAX {
        return Err(format!("{} records at once are too many: at most {STORE_BATCH_MAX}", writes.len()));
    }
    for write in writes {
        let bytes = write.value.as_ref().map_or(0, Vec::len);
        if write.key.len() > STORE_KEY_BYTES_MAX || bytes > STORE_VALUE_BYTES_MAX {
            return Err(format!(
                "a record of {bytes} bytes with a key of {} is too large: at most {STORE_VALUE_BYTES_MAX} and {STORE_KEY_BYTES_MAX} bytes",
                write.key.len()
            ));
        }
    }
    Ok(())
}

impl Directory {
    /// Whether this actor is written to disk, and messages wait for that.
    pub(in crate::control) fn is_durable(&self, actor: ActorId) -> bool {
        self.durable.is_some() && self.actors.get(&actor).is_some_and(Actor::outlives_control)
    }

    /// A record must be written anew.
    pub(in crate::control) fn note(&mut self, subject: impl FnOnce() -> Subject) {
        if let Some(durable) = &mut self.durable {
            let subject = subject();
            durable.failed.swap_remove(&subject);
            durable.dirty.insert(subject);
        }
    }

    /// An actor's record, if there is one, must be written anew.
    pub(in crate::control) fn record_actor(&mut self, actor: ActorId) {
        let Some(durable) = &self.durable else { return };
        if durable.recorded.contains_key(&Subject::Actor(actor)) || self.is_durable(actor) {
            self.note(|| Subject::Actor(actor));
        }
    }

    /// A durable actor is to be created and written.
    ///
    /// # Errors
    /// Its size in bytes, if that is more than can be written.
    pub(in crate::control) fn record_creation(&mut self, create: &CreateActor) -> Result<(), usize> {
        if !self.is_durable(create.actor) {
            return Ok(());
        }
        let pieces = creation_pieces(create)?;
        self.record_job_of(create.actor);
        self.note(|| Subject::Actor(create.actor));
        if let Some(durable) = &mut self.durable {
            durable.creations.insert(create.actor, pieces);
        }
        Ok(())
    }

    /// An actor is to be written: from then on its job is, too.
    pub(in crate::control) fn record_job_of(&mut self, actor: ActorId) {
        let Some(job) = self.actors.get(&actor).map(|actor| Subject::Job(actor.job)) else { return };
        if self.durable.as_ref().is_some_and(|durable| !durable.recorded.contains_key(&job)) {
            self.note(|| job);
        }
    }

    /// Sends a message now, or when the record that it depends on is on disk.
    pub(in crate::control) fn when_written(
        &mut self,
        subject: impl FnOnce() -> Subject,
        held: Held,
        out: &mut DirectoryActions,
    ) {
        match &mut self.durable {
            Some(durable) => durable.hold(subject(), held),
            None => self.release(held, out),
        }
    }

    /// Whether a group's record on disk is up to date.
    pub(in crate::control) fn is_group_written(&self, group: GroupId) -> bool {
        self.durable.as_ref().is_none_or(|durable| durable.is_on_disk(&Subject::Group(group)))
    }

    /// When [`Self::write_down`] has something to do, even if nothing happens.
    pub(in crate::control) fn writes_at(&self) -> Option<Instant> {
        self.durable.as_ref().and_then(|durable| durable.next_deadline())
    }

    /// Asks for this turn's changes to be written.
    pub(in crate::control) fn write_down(&mut self, now: Instant, out: &mut DirectoryActions) {
        self.wait_for_the_disk_no_longer(now, out);
        let Some(durable) = &mut self.durable else { return };
        let mut writes = Vec::new();
        let mut entries = Vec::new();
        for subject in durable.take_dirty(now) {
            let before = self.pieces_of(&subject);
            let its = self.writes_of(&subject);
            let after = self.pieces_of(&subject);
            let Some(durable) = &mut self.durable else { return };
            let held = durable.held.swap_remove(&subject).unwrap_or_default();
            let entry = Entry { subject, held, before, after };
            if let Err(reason) = check(&its) {
                self.on_failed(entry, &reason, now, out);
                continue;
            }
            if writes.len() + its.len() > STORE_BATCH_MAX {
                out.push(durable.submit(std::mem::take(&mut entries), std::mem::take(&mut writes), now));
            }
            writes.extend(its);
            entries.push(entry);
        }
        if writes.is_empty() {
            // Nothing was ever written of these.
            let held = entries.into_iter().flat_map(|entry| entry.held);
            return held.for_each(|held| self.release(held, out));
        }
        if let Some(durable) = &mut self.durable {
            out.push(durable.submit(entries, writes, now));
        }
    }

    /// The number of pieces of a recorded subject's creation; zero for a subject without one.
    fn pieces_of(&self, subject: &Subject) -> Option<u32> {
        self.durable.as_ref().and_then(|durable| durable.recorded.get(subject).copied())
    }

    /// The writes that bring a subject's record up to date. `recorded` counts them as done from now on.
    fn writes_of(&mut self, subject: &Subject) -> Vec<Write> {
        let Some(durable) = &mut self.durable else { return Vec::new() };
        let recorded = durable.recorded.get(subject).copied();
        let mut pieces = recorded.unwrap_or(0);
        let mut writes = Vec::new();
        let (key, record) = match subject {
            Subject::Job(job) => {
                let needs =
                    self.actors.values().any(|a| a.job == *job && !a.has_ended() && a.outlives_control());
                let known = self.jobs.known(*job).filter(|_| needs);
                let record = known.map(|(config, is_dead)| {
                    let config = Box::new(config.clone());
                    JobRecord { job: *job, config, is_dead }
                });
                (job_key(*job), record.map(|record| record.to_bytes()))
            }
            Subject::Name(name) => {
                let record = self.names.get(name).map(|(actor, description)| {
                    let (namespace, name) = name.clone();
                    NameRecord { namespace, name, actor: *actor, description: description.clone() }.to_bytes()
                });
                (name_key(&name.0, &name.1), record)
            }
            Subject::Actor(id) => {
                let actor = self.actors.get(id).filter(|actor| actor.outlives_control());
                let actor = actor.filter(|actor| actor.is_known() && !actor.has_ended());
                if actor.is_none() {
                    durable.creations.swap_remove(id);
                }
                let creation = durable.creations.get(id);
                if let Some(creation) = creation {
                    let keyed = (0..).zip(creation.iter().cloned());
                    writes.extend(keyed.map(|(piece, bytes)| Write::put(creation_key(*id, piece), bytes)));
                }
                if creation.is_some() || actor.is_none() {
                    let count = u32::try_from(writes.len()).unwrap_or(u32::MAX);
                    writes.extend((count..pieces).map(|piece| Write::delete(creation_key(*id, piece))));
                    pieces = count;
                }
                (actor_key(*id), actor.map(|actor| record_of(*id, actor, pieces).to_bytes()))
            }
            Subject::Group(id) => {
                (group_key(*id), self.groups.record(*id).map(|record| record.to_record().to_bytes()))
            }
        };
        match record {
            Some(record) => {
                durable.recorded.insert(subject.clone(), pieces);
                writes.push(Write::put(key, record));
            }
            None if recorded.is_some() => {
                durable.recorded.swap_remove(subject);
                writes.push(Write::delete(key));
            }
            None => writes.clear(),
        }
        writes
    }

    /// A batch was written, or failed for this reason.
    pub fn on_persisted(
        &mut self,
        batch: BatchId,
        outcome: Result<(), String>,
        now: Instant,
        out: &mut DirectoryActions,
    ) {
        let Some(durable) = &mut self.durable else { return };
        // A batch that was too late was followed by others that undo it.
        let Some(Batch { entries, .. }) = durable.pending.shift_remove(&batch) else { return };
        for entry in entries {
            if let Some(durable) = &mut self.durable {
                durable.on_answer(&entry.subject);
                if let (Ok(()), Subject::Actor(id)) = (&outcome, &entry.subject) {
                    durable.creations.swap_remove(id);
                }
            }
            match &outcome {
                Ok(()) => entry.held.into_iter().for_each(|held| self.release(held, out)),
                Err(reason) => self.on_failed(entry, reason, now, out),
            }
        }
    }

    fn wait_for_the_disk_no_longer(&mut self, now: Instant, out: &mut DirectoryActions) {
        let Some(durable) = &mut self.durable else { return };
        let late = durable.pending.iter().filter(|(_, batch)| batch.until <= now).map(|(id, _)| *id);
        for id in late.collect::<Vec<_>>() {
            let Some(durable) = &mut self.durable else { return };
            let Some(batch) = durable.pending.shift_remove(&id) else { continue };
            let seconds = CONTROL_AWAY_NANOS / 1_000_000_000;
            let reason = format!("the disk of the head has not answered for {seconds} s");
            for entry in batch.entries {
                let (subject, after) = (entry.subject.clone(), entry.after.or(entry.before));
                if let Some(durable) = &mut self.durable {
                    durable.on_answer(&subject);
                }
                self.on_failed(entry, &reason, now, out);
                // The subject may still be written: a write behind that takes it back, or repeats it.
                if let Some(durable) = &mut self.durable {
                    durable.set_recorded(&subject, after);
                    durable.failed.insert(subject);
                    durable.retry.get_or_insert(now.plus(STORE_RETRY_NANOS));
                }
            }
        }
    }

    fn release(&mut self, held: Held, out: &mut DirectoryActions) {
        match held {
            Held::Answer(to, answer) => self.send(to, *answer, out),
            Held::State(to, state) => self.send(to, *state, out),
            Held::Place(node, place) => {
                // The actor may have ended since, or its node may be dead.
                let is_it = |actor: &&Actor| {
                    actor.takeovers == place.takeover
                        && matches!(actor.phase, Phase::Placing { node: asked } if asked == node)
                };
                if self.actors.get(&place.create.actor).filter(is_it).is_some() {
                    self.ask_for_process(node, place, out);
                }
            }
            Held::Commit(node, order) => {
                if self.groups.stands_by(node, &order) {
                    out.push(DirectoryAction::Send(node, Box::new(ToNode::Bundles(Box::new(order)))));
                }
            }
        }
    }

    /// A subject could not be written. What is new is refused, the rest is tried again.
    fn on_failed(&mut self, entry: Entry, why: &str, now: Instant, out: &mut DirectoryActions) {
        let Entry { subject, mut held, before, .. } = entry;
        let reason = format!("the head cannot write this down, and it would be lost with the head: {why}");
        if let Some(durable) = &mut self.durable {
            durable.set_recorded(&subject, before);
            // Messages that wait for its next write have the same fate.
            held.extend(durable.held.swap_remove(&subject).into_iter().flatten());
        }
        let (mut is_refused, mut is_placing, mut kept) = (false, false, Vec::new());
        for held in held {
            match held {
                // The record that these depend on is there.
                Held::Answer(..) | Held::State(..) if before.is_some() => self.release(held, out),
                Held::Answer(to, answer) => {
                    is_refused = true;
                    let (error, unavailable) = (Some(reason.clone()), Some(true));
                    let request = answer.request;
                    self.send(to, Answer { request, error, unavailable, ..Answer::default() }, out);
                }
                Held::State(to, state) => self.refuse_state(to, *state, &reason, out),
                Held::Place(..) | Held::Commit(..) => {
                    is_placing |= matches!(held, Held::Place(..));
                    kept.push(held);
                }
            }
        }
        match &subject {
            Subject::Name(name) if is_refused => return self.take_name_back(name),
            Subject::Actor(id) if before.is_none() && self.is_new(*id, is_placing) => {
                let failure = super::actor_died(format!("{} could not begin: {reason}", self.title_of(*id)));
                return self.end_actor(*id, failure, out);
            }
            Subject::Group(id) if before.is_none() && self.groups.is_new(*id) => {
                return self.with_groups(out, |groups, acts| groups.refuse(*id, reason, acts));
            }
            _ => {}
        }
        if let Some(durable) = &mut self.durable {
            durable.try_later(subject, kept, now);
        }
    }

    /// What the next process of an actor is sent is written with the actor's record.
    pub(in crate::control) fn record_pieces(&mut self, id: ActorId) {
        let Some(actor) = self.actors.get(&id) else { return };
        let create = match &actor.phase {
            Phase::Pending(create) => Some(create),
            _ => actor.creation.as_ref(),
        };
        let pieces = create.and_then(|create| creation_pieces(create).ok());
        if let (Some(durable), Some(pieces)) = (&mut self.durable, pieces) {
            durable.creations.insert(id, pieces);
        }
    }

    /// Whether an actor has never had a process, and no node may be giving it one.
    fn is_new(&self, id: ActorId, was_placed: bool) -> bool {
        let actor = self.actors.get(&id).filter(|actor| actor.takeovers == Takeover::FIRST);
        actor.is_some_and(|actor| match actor.phase {
            Phase::Pending(_) => true,
            Phase::Placing { .. } => was_placed,
            Phase::Reserved | Phase::Placed { .. } | Phase::Dead(_) => false,
        })
    }

    fn take_name_back(&mut self, name: &(String, String)) {
        let Some((actor, _)) = self.names.swap_remove(name) else { return };
        let reserved = self.actors.get_mut(&actor);
        let Some(reserved) = reserved.filter(|actor| actor.name.as_ref() == Some(name)) else { return };
        reserved.name = None;
        if !reserved.is_known() && reserved.subscribers.is_empty() {
            self.actors.swap_remove(&actor);
        }
    }

    fn refuse_state(&self, to: WorkerId, mut state: GroupState, reason: &str, out: &mut DirectoryActions) {
        for row in &mut state.groups {
            (row.phase, row.reason) = (GroupPhase::Removed, Some(reason.to_owned()));
        }
        state.error = Some(reason.to_owned());
        self.send(to, state, out);
    }
}

fn record_of(id: ActorId, actor: &Actor, pieces: u32) -> ActorRecord {
    ActorRecord {
        actor: id,
        takeover: actor.takeovers,
        node: actor.place().map(|(node, _)| node),
        restarts: actor.restarts,
        job: actor.job,
        name: actor.name.clone(),
        pieces,
        detached: actor.detached,
    }
}
