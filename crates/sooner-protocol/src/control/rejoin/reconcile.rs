//! Combines the records that an earlier control service wrote with what nodes report.
//!
//! | record of an actor | its node | what follows |
//! |---|---|---|
//! | waits for a process | any | it is placed |
//! | that takeover is at a node | says that it has it | it is there |
//! | | says that it has a later one | the later one counts |
//! | | says that it has an earlier one | that one ends |
//! | | is there and says nothing of it | the node is asked for the process: it was not before |
//! | | is gone | the process is: the actor starts again, or is dead |
//! | | has neither come back nor gone | nothing, until it does |
//!
//! A record is written before the message that depends on it, so no node can know of something that no record
//! has. If no node knows the last checkpoint of an actor that takes checkpoints, the actor has lost its state
//! and is dead: a fresh start would forget calls that had succeeded.

use sooner_wire::limits::CREATION_PIECES_MAX;
use sooner_wire::message::{CreateActor, WorkerDead};
use sooner_wire::record::{
    ACTORS, ActorRecord, CREATIONS, GROUPS, GroupRecord, HEAD, HeadRecord, JOBS, JobRecord, NAMES, NODES,
    NameRecord, NodeRecord, RecordError, creation_from, creation_key,
};
use sooner_wire::{ActorId, NodeId, Strategy, Takeover, WorkerId};

use crate::control::directory::actor_died;
use crate::control::directory::actors::{Actor, Phase};
use crate::control::directory::checkpoints::Checkpoints;
use crate::control::directory::durable::{Durable, Subject};
use crate::control::groups::{Groups, Record};
use crate::control::{Directory, DirectoryActions};
use crate::table::{Map, Set};

/// The records of an earlier control service; empty in a new cluster.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Found {
    /// How many control services there were.
    pub incarnation: u32,
    /// Nodes that may still live.
    pub nodes: Vec<NodeId>,
    /// Jobs.
    pub jobs: Vec<JobRecord>,
    /// Names.
    pub names: Vec<NameRecord>,
    /// Actors, with what their processes are sent, where that is known.
    pub actors: Vec<(ActorRecord, Option<Box<CreateActor>>)>,
    /// Placement groups.
    pub groups: Vec<GroupRecord>,
}

impl Found {
    /// Reads the records in a store, by key. Records of others are skipped.
    ///
    /// # Errors
    /// The key of an invalid record, and what is wrong with it.
    pub fn read(rows: impl IntoIterator<Item = (String, Vec<u8>)>) -> Result<Self, (String, RecordError)> {
        let mut found = Self::default();
        let mut pieces = Map::default();
        for (key, value) in rows {
            if key.starts_with(CREATIONS) {
                pieces.insert(key, value);
            } else {
                found.read_one(&key, &value).map_err(|error| (key, error))?;
            }
        }
        for (record, create) in &mut found.actors {
            let keys = (0..record.pieces).map(|piece| creation_key(record.actor, piece));
            let its: Option<Vec<&[u8]>> = keys.map(|key| pieces.get(&key).map(Vec::as_slice)).collect();
            if let Some(its) = its.filter(|its| !its.is_empty()) {
                let read = creation_from(its.into_iter());
                *create = Some(Box::new(read.map_err(|error| (creation_key(record.actor, 0), error))?));
            }
        }
        Ok(found)
    }

    fn read_one(&mut self, key: &str, value: &[u8]) -> Result<(), RecordError> {
        let table = key.find('/').map_or(key, |at| &key[..=at]);
        match table {
            HEAD => {
                let before = HeadRecord::from_bytes(value)?.incarnation.unwrap_or(0);
                self.incarnation = before.saturating_add(1);
            }
            NODES => self.nodes.push(NodeRecord::from_bytes(value)?.node),
            JOBS => self.jobs.push(JobRecord::from_bytes(value)?),
            NAMES => self.names.push(NameRecord::from_bytes(value)?),
            ACTORS => {
                let mut record = ActorRecord::from_bytes(value)?;
                // No record ever had more pieces.
                record.pieces = record.pieces.min(CREATION_PIECES_MAX);
                self.actors.push((record, None));
            }
            GROUPS => self.groups.push(GroupRecord::from_bytes(value)?),
            _ => {}
        }
        Ok(())
    }
}

impl Directory {
    /// From now on, writes what must survive. `found` is already on disk.
    pub fn keep_records(&mut self, found: Found) {
        let mut durable = Durable::default();
        durable.absent.extend(found.nodes);
        let mut recorded = |subject, pieces| {
            durable.recorded.insert(subject, pieces);
        };
        found.jobs.iter().for_each(|record| recorded(Subject::Job(record.job), 0));
        found.groups.iter().for_each(|record| recorded(Subject::Group(record.group), 0));
        found.actors.iter().for_each(|(record, _)| recorded(Subject::Actor(record.actor), record.pieces));
        for NameRecord { namespace, name, actor, description } in found.names {
            let key = (namespace, name);
            recorded(Subject::Name(key.clone()), 0);
            self.names.insert(key.clone(), (actor, description));
            self.actors.entry(actor).or_insert_with(|| Actor::new(actor.owner)).name = Some(key);
        }
        durable.unconfirmed.extend(found.actors.iter().map(|(record, _)| record.actor));
        self.durable = Some(Box::new(durable));
        found.jobs.into_iter().for_each(|record| self.jobs.restore(record));
        found.actors.into_iter().for_each(|(record, create)| self.restore_actor(&record, create));
        // No node is connected yet: each learns which bundles to commit when it comes back.
        let groups = found.groups.into_iter().map(Record::from_record).collect();
        self.groups = Groups::restored(groups, found.incarnation, &mut Vec::new());
        self.groups.keep_records();
    }

    fn restore_actor(&mut self, record: &ActorRecord, create: Option<Box<CreateActor>>) {
        let id = record.actor;
        let actor = self.actors.entry(id).or_insert_with(|| Actor::new(id.owner));
        (actor.takeovers, actor.restarts, actor.job) = (record.takeover, record.restarts, record.job);
        (actor.detached, actor.last_node) = (record.detached, record.node);
        if create.is_none() {
            // A next process would not know what to create.
            actor.restarts = 0;
        }
        if let Some(mut create) = create {
            let spec = &mut create.constructor.spec;
            spec.retries = spec.retries.saturating_add(i32::try_from(record.takeover.0).unwrap_or(i32::MAX));
            actor.concurrency = create.constructor.spec.concurrency();
            actor.class = create.class.name.as_str().to_owned();
            actor.group = create.constructor.spec.strategy().and_then(Strategy::group).map(|at| at.group);
            actor.checkpoints = create.constructor.spec.checkpoint_every().map(|_| Checkpoints::default());
            actor.creation = Some(create);
        }
        let has_begun = record.node.is_some() || record.takeover > Takeover::FIRST;
        if actor.checkpoints.is_some() && has_begun {
            // Until the actor's node reports more.
            actor.ending = Some(actor_died(format!(
                "{} died: the head was started again, and no node that is left knows its last checkpoint",
                actor.title()
            )));
        }
        match (record.node, actor.creation.take()) {
            (None, Some(create)) if actor.ending.is_none() => self.wait(id, create),
            (node, creation) => {
                actor.creation = creation;
                actor.phase = Phase::Placing { node: node.unwrap_or_default() };
            }
        }
    }

    /// Whether a node is neither connected, nor may still come back.
    pub(in crate::control) fn is_lost(&self, node: NodeId) -> bool {
        let is_absent = self.durable.as_ref().is_some_and(|durable| durable.absent.contains(&node));
        !self.nodes.contains_key(&node) && !is_absent
    }

    /// The connected nodes, and the nodes of an earlier control service that have neither come back nor been
    /// declared dead.
    pub(in crate::control) fn nodes_that_may_be(&self) -> impl Iterator<Item = NodeId> + '_ {
        let absent = self.durable.iter().flat_map(|durable| &durable.absent);
        self.nodes.keys().chain(absent.filter(|node| !self.nodes.contains_key(*node))).copied()
    }

    /// A node has reported what it has of an actor: the record must agree.
    pub(in crate::control) fn note_learnt(&mut self, id: ActorId) {
        let Some(durable) = &mut self.durable else { return };
        if durable.unconfirmed.swap_remove(&id)
            && let Some(actor) = self.actors.get_mut(&id)
        {
            actor.ending = None;
        }
        if !self.is_durable(id) {
            return;
        }
        let actor = &self.actors[&id];
        let name = actor.name.clone();
        if self.durable.as_ref().is_some_and(|durable| !durable.recorded.contains_key(&Subject::Actor(id))) {
            self.record_pieces(id);
        }
        self.record_job_of(id);
        self.note(|| Subject::Actor(id));
        if let Some(name) = name {
            self.note(|| Subject::Name(name));
        }
    }

    /// All connected nodes, except the `silent`, have reported what they have.
    pub(in crate::control) fn reconcile(&mut self, silent: &Set<NodeId>, out: &mut DirectoryActions) {
        if self.durable.is_none() {
            return;
        }
        let there: Vec<NodeId> = self.nodes.keys().filter(|node| !silent.contains(*node)).copied().collect();
        there.into_iter().for_each(|node| self.reconcile_with(node, out));
        for (id, node) in self.unconfirmed() {
            if self.is_lost(node) {
                self.end_restored(id, node, out);
            }
        }
        for node in self.groups.nodes() {
            if self.is_lost(node) {
                self.with_groups(out, |groups, acts| groups.on_node_dead(node, acts));
            }
        }
        let drivers: Set<WorkerId> = self.groups.drivers().chain(self.jobs.drivers()).collect();
        for driver in drivers {
            if self.is_lost(driver.node()) {
                self.end_groups_of(driver, out);
                self.on_driver_dead(driver, out);
            }
        }
    }

    /// A node has reported what it has. Anything else that it was asked for, it has not learned of.
    pub(in crate::control) fn reconcile_with(&mut self, node: NodeId, out: &mut DirectoryActions) {
        if self.durable.is_none() {
            return;
        }
        for (id, at) in self.unconfirmed() {
            if at == node {
                self.place_again(id, node, out);
            }
        }
        self.with_groups(out, |groups, acts| groups.commit_again(node, acts));
    }

    /// Actors of which only the record is known, with the node where the record has them.
    fn unconfirmed(&mut self) -> Vec<(ActorId, NodeId)> {
        let Some(durable) = &mut self.durable else { return Vec::new() };
        let place = |id: &ActorId| match self.actors.get(id).map(|actor| &actor.phase) {
            Some(Phase::Placing { node }) => Some(*node),
            _ => None,
        };
        durable.unconfirmed.retain(|id| place(id).is_some());
        durable.unconfirmed.iter().filter_map(|id| Some((*id, place(id)?))).collect()
    }

    /// More is known of an actor than its record.
    pub(in crate::control) fn confirm(&mut self, id: ActorId) {
        if let Some(durable) = &mut self.durable {
            durable.unconfirmed.swap_remove(&id);
        }
    }

    /// A connected node was to give an actor a process, and has not learned of it.
    fn place_again(&mut self, id: ActorId, node: NodeId, out: &mut DirectoryActions) {
        self.confirm(id);
        let Some(actor) = self.actors.get_mut(&id) else { return };
        if actor.knows_what_came_before() {
            // Nothing was done in that process, or the next one begins with what was.
            actor.ending = None;
        }
        match actor.creation.take().filter(|_| actor.ending.is_none()) {
            Some(create) => {
                self.wait(id, create);
                self.place_on(id, node, out);
            }
            None => self.end_restored(id, node, out),
        }
    }

    /// The process of an actor is dead, if there was one.
    fn end_restored(&mut self, id: ActorId, node: NodeId, out: &mut DirectoryActions) {
        self.confirm(id);
        let Some(actor) = self.actors.get_mut(&id) else { return };
        let (takeover, worker) = (actor.takeovers, WorkerId::default());
        if node == NodeId::default()
            && actor.knows_what_came_before()
            && let Some(create) = actor.creation.take()
        {
            // No node was asked for this process.
            actor.ending = None;
            return self.wait(id, create);
        }
        actor.phase = Phase::Placed { node, worker };
        let reason = "was on a node that ended while the cluster had no head".to_owned();
        let gone = WorkerDead { worker, reason, all_begun: Some(true), ..WorkerDead::default() };
        self.on_actor_process_dead(id, takeover, gone, out);
    }
}
