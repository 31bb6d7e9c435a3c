//! What a restarted control service learns from the nodes: actors, their names, jobs, and the subscribers of
//! everything that went on without it (`docs/adr/0032-what-nodes-tell-a-head-again.md`).
//!
//! Messages of nodes wait in order until all nodes that an earlier control service knew have come back or are
//! dead, or until that takes too long. An actor that is not reported yet may be on a node still to come: it
//! is not dead, and its name must not be given away. What a node reports of itself is handled at once.
//!
//! When two nodes report the same actor as theirs, the later takeover counts, and the other process ends
//! (CT1).

use std::collections::VecDeque;

use sooner_wire::message::{ActorDead, ActorHere, ActorsHere, AlsoHere, Checkpoint, WorkerDead};
use sooner_wire::{ActorId, NodeId, Takeover, TaskId, WorkerId};

use super::directory::actors::{Actor, Phase};
use super::directory::checkpoints::Keeping;
use super::{Directory, DirectoryAction, DirectoryActions};
use crate::table::Set;
use crate::time::Instant;
use crate::uplink::{End, ToControl, ToNode, takes_checkpoints};

mod reconcile;

pub use reconcile::Found;

/// Messages that wait at most: beyond, missing nodes are given up.
const WORDS_MAX: usize = 1 << 16;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Learning {
    until: Instant,
    subscribers: Vec<(ActorId, WorkerId)>,
    keeping: Vec<Keeping>,
    /// Calls that checkpoints of an actor cover, and the process that took those.
    covered: Vec<(ActorId, WorkerId, Vec<TaskId>)>,
    /// Checkpoints that are not known to stand. They are handled before all messages: a process that takes
    /// over must get the one that stands.
    checkpoints: Vec<(WorkerId, Checkpoint)>,
    /// Actors that are dead.
    dead: Vec<ActorDead>,
    /// Connected nodes that have not reported what they have.
    silent: Set<NodeId>,
    words: VecDeque<(NodeId, ToControl)>,
    /// Nodes that are dead. Expected nodes that have not come back yet must learn of it, too.
    gone: Vec<NodeId>,
    /// Nodes with processes whose deaths matter to other nodes.
    watched: Set<NodeId>,
}

impl Directory {
    /// Expects the nodes that an earlier control service knew: messages wait until [`Self::on_all_here`], or
    /// `until`.
    pub fn expect_nodes(&mut self, until: Instant) {
        self.learning = Some(Learning { until, ..Learning::default() });
    }

    /// All expected nodes have come back or are dead.
    pub fn on_all_here(&mut self, now: Instant, out: &mut DirectoryActions) {
        let Some(learning) = self.learning.take() else { return };
        // These processes receive what follows after what they know.
        for (actor, process) in &learning.subscribers {
            if let Some(actor) = self.actors.get_mut(actor) {
                actor.subscribers.insert(*process);
            }
        }
        for (actor, taker, calls) in learning.covered {
            self.cover_again(actor, taker, calls, out);
        }
        for (process, checkpoint) in learning.checkpoints {
            self.on_checkpoint(process, checkpoint, out);
        }
        self.learn_dead(learning.dead, out);
        // A dead node sent its messages before its death; the others' messages about that death come after
        // it.
        let is_dead = |(node, _): &(NodeId, ToControl)| learning.gone.contains(node);
        let (last, words): (Vec<_>, Vec<_>) = learning.words.into_iter().partition(is_dead);
        for (node, word) in last {
            self.on_node(node, word, now, out);
        }
        for node in learning.gone {
            self.settle_without(node, out);
        }
        self.settle_forgotten(learning.watched, out);
        for (node, word) in words {
            self.on_node(node, word, now, out);
        }
        for (actor, takeover, gone) in std::mem::take(&mut self.unheard_ends) {
            self.on_actor_process_dead(actor, takeover, gone, out);
        }
        self.reconcile(&learning.silent, out);
        for actor in self.actors.keys().copied().collect::<Vec<_>>() {
            self.let_earlier_go(actor, out);
        }
        self.subscribe_again(learning.subscribers, out);
        self.keep_again(learning.keeping, out);
        // Owners on nodes that did not come back.
        let owners = self.actors.values().map(|actor| actor.owner);
        let lost: Set<WorkerId> = owners.filter(|owner| self.is_lost(owner.node())).collect();
        for owner in lost {
            self.end_actors_of(owner, End::Killed, out);
        }
    }

    /// Keeps a message that must wait, and returns any other.
    pub(super) fn must_wait(&mut self, node: NodeId, word: ToControl) -> Option<ToControl> {
        match &mut self.learning {
            Some(learning) if !matches!(word, ToControl::Here(_)) => {
                learning.words.push_back((node, word));
                None
            }
            _ => Some(word),
        }
    }

    /// Goes on without the nodes that do not come back.
    pub(super) fn wait_no_longer(&mut self, now: Instant, out: &mut DirectoryActions) {
        let is_enough = |learning: &Learning| learning.until <= now || learning.words.len() > WORDS_MAX;
        if self.learning.as_ref().is_some_and(is_enough) {
            self.on_all_here(now, out);
        }
    }

    /// Whether all connected nodes have reported what they have.
    #[must_use]
    pub fn has_received_all(&self) -> bool {
        self.learning.as_ref().is_none_or(|learning| learning.silent.is_empty())
    }

    /// A node is connected, and will report what it has.
    pub(super) fn expect_message_of(&mut self, node: NodeId) {
        if let Some(durable) = &mut self.durable {
            durable.absent.swap_remove(&node);
        }
        if let Some(learning) = &mut self.learning {
            learning.silent.insert(node);
        }
    }

    /// A node is dead. True if an earlier control service knew it and it had not come back.
    pub(super) fn expect_no_longer(&mut self, node: NodeId) -> bool {
        if let Some(learning) = &mut self.learning {
            learning.silent.swap_remove(&node);
        }
        self.durable.as_mut().is_some_and(|durable| durable.absent.swap_remove(&node))
    }

    /// Whether it is too early to ask about the processes of a dead node: not all nodes that may know them
    /// are connected. Then they are asked when they are.
    pub(super) fn must_settle_later(&mut self, gone: NodeId) -> bool {
        let Some(learning) = &mut self.learning else { return false };
        learning.gone.push(gone);
        true
    }

    /// Returns these nodes, unless it is too early to ask about their processes: then they are kept until all
    /// nodes are connected.
    pub(super) fn not_too_early(&mut self, nodes: impl IntoIterator<Item = NodeId>) -> Vec<NodeId> {
        match &mut self.learning {
            Some(learning) => {
                learning.watched.extend(nodes);
                Vec::new()
            }
            None => nodes.into_iter().collect(),
        }
    }

    pub(super) fn is_learning(&self) -> bool {
        self.learning.is_some()
    }

    pub(super) fn learning_ends(&self) -> Option<Instant> {
        self.learning.as_ref().map(|learning| learning.until)
    }

    /// A node reports what it has.
    pub(super) fn on_here(&mut self, node: NodeId, mut here: ActorsHere, out: &mut DirectoryActions) {
        self.ask_what_is_owed(node, out);
        let keeping = Keeping::all_of(node, &mut here);
        for job in here.jobs {
            self.on_job(node, job, out);
        }
        for row in here.actors {
            self.on_actor_here(node, row, out);
        }
        let AlsoHere { checkpoints, dead, watched } = here.also.map_or_else(AlsoHere::default, |also| *also);
        self.settle_forgotten(watched.unwrap_or_default(), out);
        match &mut self.learning {
            Some(learning) => {
                learning.silent.swap_remove(&node);
                learning.checkpoints.extend(checkpoints);
                learning.dead.extend(dead);
                learning.subscribers.extend(here.subscribers);
                learning.keeping.extend(keeping);
            }
            None => {
                for (process, checkpoint) in checkpoints {
                    self.on_checkpoint(process, checkpoint, out);
                }
                self.learn_dead(dead, out);
                self.reconcile_with(node, out);
                self.subscribe_again(here.subscribers, out);
                self.keep_again(keeping.collect(), out);
            }
        }
    }

    /// These processes know that these actors began. An actor that no node has reported is dead.
    fn subscribe_again(&mut self, subscribers: Vec<(ActorId, WorkerId)>, out: &mut DirectoryActions) {
        for (actor, process) in subscribers {
            match self.actors.get(&actor).is_some_and(Actor::is_known) {
                true => self.on_subscribe(process, actor, out),
                false => self.notify_death(actor, process, out),
            }
        }
    }

    fn on_actor_here(&mut self, node: NodeId, mut row: ActorHere, out: &mut DirectoryActions) {
        let id = row.actor;
        let (taker, covered) = (taker(&row), row.covered.take().unwrap_or_default());
        match &mut self.learning {
            Some(learning) => learning.covered.push((id, taker, covered)),
            None => self.cover_again(id, taker, covered, out),
        }
        let before = self.actors.get(&id).filter(|actor| actor.is_known());
        if let Some((takeovers, place, ended)) = before.map(|a| (a.takeovers, a.place(), a.has_ended())) {
            let is_same = takeovers == row.takeover && !ended && place.is_none_or(|(at, _)| at == node);
            if !is_same && (ended || takeovers >= row.takeover) {
                return self.learn_earlier(node, row, ended, out);
            }
            if let Some((at, _)) = place.filter(|_| !is_same) {
                end(at, id, takeovers, End::Killed, out);
            }
        }
        let takeover = row.takeover;
        let gone = row.gone.clone();
        self.learn(node, row);
        if !self.is_learning() {
            self.let_earlier_go(id, out);
        }
        if let Some(gone) = gone {
            match self.is_learning() {
                true => self.unheard_ends.push((id, takeover, *gone)),
                false => self.on_actor_process_dead(id, takeover, *gone, out),
            }
        }
    }

    /// An earlier control service had declared these actors dead. One that lives after all was declared dead
    /// because its node came back too late.
    fn learn_dead(&mut self, dead: Vec<ActorDead>, out: &mut DirectoryActions) {
        for ActorDead { actor: id, failure } in dead {
            let ends = |takeover| self.unheard_ends.iter().any(|end| (end.0, end.1) == (id, takeover));
            match self.actors.get(&id).map(|actor| (&actor.phase, actor.takeovers)) {
                Some((Phase::Dead(_), _)) => {}
                Some((Phase::Placed { .. }, takeover)) if !ends(takeover) => {}
                Some(_) => self.bury(id, failure, out),
                None => self.bury_unknown(id, failure),
            }
        }
    }

    /// A process of an actor that has ended, or has a later process: it ends, and its state counts until a
    /// later process has its own.
    fn learn_earlier(&mut self, node: NodeId, row: ActorHere, has_ended: bool, out: &mut DirectoryActions) {
        let (id, takeover, taker) = (row.actor, row.takeover, taker(&row));
        let is_kept = !has_ended && takes_checkpoints(&row);
        match row.gone {
            None => end(node, id, takeover, End::Killed, out),
            Some(_) if !is_kept && self.has_later_process(id) => end(node, id, takeover, End::Succeeded, out),
            Some(_) => {}
        }
        let actor = self.actors.get_mut(&id).filter(|_| is_kept);
        if let Some(checkpoints) = actor.map(|actor| actor.checkpoints.get_or_insert_default()) {
            checkpoints.record_earlier(taker, takeover, row.worker.is_some());
            if let Some(state) = row.checkpoint {
                checkpoints.learn(state, node, taker, takeover);
            }
        }
        if !self.is_learning() {
            self.let_earlier_go(id, out);
        }
    }

    fn learn(&mut self, node: NodeId, row: ActorHere) {
        let (id, taker) = (row.actor, taker(&row));
        let actor = self.actors.entry(id).or_insert_with(|| Actor::new(id.owner));
        let worker = Some(taker).filter(|worker| *worker != WorkerId::default());
        if let (Phase::Placed { worker: before, .. }, Some(checkpoints)) =
            (&actor.phase, &mut actor.checkpoints)
            && worker != Some(*before)
        {
            checkpoints.record_earlier(*before, actor.takeovers, checkpoints.has_begun());
        }
        actor.phase = match worker {
            Some(worker) => Phase::Placed { node, worker },
            None => {
                self.recalls.learn(id, node);
                Phase::Placing { node }
            }
        };
        (actor.last_node, actor.is_asked) = (Some(node), worker.is_none());
        (actor.job, actor.class, actor.concurrency) = (row.job, row.class, row.concurrency);
        (actor.detached, actor.group, actor.is_ready) = (row.detached, row.group, row.is_ready);
        let takes = row.create.as_ref().is_some_and(|c| c.constructor.spec.checkpoint_every().is_some());
        (actor.takeovers, actor.restarts) =
            (row.takeover, if row.create.is_some() { row.restarts } else { 0 });
        actor.keep_creation(row.create);
        if takes || row.checkpoint.is_some() {
            actor.checkpoints.get_or_insert_default();
        }
        if let Some(checkpoints) = &mut actor.checkpoints {
            checkpoints.begins(row.worker.is_some());
            // A process that waits for its state has no checkpoint to report: then that of the process before
            // counts.
            if let Some(state) = row.checkpoint {
                checkpoints.learn(state, node, taker, row.takeover);
            }
        }
        if let (Some(name), Some(description)) = (row.name, row.description) {
            let (owner, _) = self.names.entry(name.clone()).or_insert((id, description));
            // Another actor may have the name by now, if this node took too long.
            actor.name = (*owner == id).then_some(name);
        }
        self.note_learnt(id);
    }
}

/// The process that took the checkpoint that a node reports, or was given that of the process before it.
fn taker(row: &ActorHere) -> WorkerId {
    row.worker.or(row.gone.as_ref().map(|gone| gone.worker)).unwrap_or_default()
}

fn end(node: NodeId, actor: ActorId, takeover: Takeover, end: End, out: &mut DirectoryActions) {
    let end = ToNode::EndActor { actor, takeover, end };
    out.push(DirectoryAction::Send(node, Box::new(end)));
}

/// The end of an actor's process that the control service may not have learned of.
pub(super) type UnheardEnd = (ActorId, Takeover, WorkerDead);
