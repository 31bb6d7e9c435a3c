//! The actors that have a process on this node, or are to get one.
//!
//! The control service says which (it has the directory: [`crate::control`]). The node waits for room, gives
//! the actor a worker, and reports what became of it. The node knows an actor from
//! [`ToNode::PlaceActor`](crate::uplink::ToNode) until its process is dead, or the actor is ended before it
//! got one.

use std::cmp::Reverse;
use std::collections::VecDeque;

use sooner_wire::message::state::ActorRow;
use sooner_wire::message::{
    ActorDead, ActorHere, Checkpoint, CreateActor, ExitActor, Outcome, Restore, WorkerDead,
};
use sooner_wire::{ActorId, ResourceSet, Takeover, WorkerId};

use super::snapshot::ActorSnapshot;
use super::suspending::Suspended;
use crate::failures::title;
use crate::node::core::{Placement, send};
use crate::node::workers::pool::WorkerState;
use crate::node::workers::unable::refused_place;
use crate::node::{NodeAction, NodeActions, NodeCore};
use crate::probes::mark;
use crate::scheduling::Grant;
use crate::table::Map;
use crate::uplink::{End, PlaceActor, ToControl};

/// The more urgent actors first; of equals, those that began to wait first.
type Rank = (Reverse<i32>, u64);

/// See the module.
#[derive(Debug, Default)]
pub(in crate::node) struct LocalActors {
    pub(in crate::node) actors: Map<ActorId, LocalActor>,
    /// Actors that wait for resources, in order.
    waiting: VecDeque<(Rank, ActorId)>,
    /// The control service is elsewhere, and may start again.
    pub(in crate::node) keeps_snapshots: bool,
    /// Actors that wait for arguments and hold no resources.
    pub(in crate::node) suspended: Vec<ActorId>,
    /// The actors that ended last, the latest last.
    pub(in crate::node) ended: VecDeque<ActorHere>,
    /// The actors reported dead last, the latest last: other nodes may not know of these deaths.
    pub(in crate::node) dead: VecDeque<ActorDead>,
}

#[derive(Debug)]
pub(in crate::node) struct LocalActor {
    pub(in crate::node) takeover: Takeover,
    pub(in crate::node) name: Option<(String, String)>,
    pub(in crate::node) class: String,
    /// The driver whose workers may be its process.
    pub(in crate::node) job: WorkerId,
    pub(in crate::node) detached: bool,
    takes_checkpoints: bool,
    /// The actor waits for its state before its constructor.
    restores: bool,
    /// The message for its process, until it is sent.
    create: Option<Box<CreateActor>>,
    /// Its process was told to end.
    is_ending: bool,
    /// Its process, as soon as it has one.
    pub(in crate::node) process: Option<(WorkerId, Grant)>,
    /// Set while the actor holds no resources.
    pub(in crate::node) suspended: Option<Suspended>,
    /// What a restarted control service has to learn of the actor, where there may be one.
    pub(in crate::node) snapshot: Option<Box<ActorSnapshot>>,
}

impl LocalActors {
    fn insert(&mut self, place: PlaceActor) {
        let job = job_of(&place);
        let snapshot = self.keeps_snapshots.then(|| Box::new(ActorSnapshot::of(&place)));
        let PlaceActor { takeover, turn, name, restores, create, .. } = place;
        let id = create.actor;
        let rank = (Reverse(create.constructor.spec.priority().unwrap_or(0)), turn);
        let local = LocalActor {
            takeover,
            name,
            class: create.class.name.as_str().to_owned(),
            job,
            detached: create.detached == Some(true),
            takes_checkpoints: create.constructor.spec.checkpoint_every().is_some(),
            restores,
            create: Some(create),
            is_ending: false,
            process: None,
            suspended: None,
            snapshot,
        };
        self.actors.insert(id, local);
        let at = self.waiting.partition_point(|(other, _)| *other < rank);
        self.waiting.insert(at, (rank, id));
    }

    /// The creation of an actor that has no process yet.
    fn wanted(&self, id: ActorId) -> Option<&CreateActor> {
        self.actors.get(&id).filter(|local| local.process.is_none())?.create.as_deref()
    }

    /// Takes out the actors of a job that have no process: the numbers of their takeovers, and the messages
    /// for their processes.
    pub(in crate::node) fn take_waiting(&mut self, job: WorkerId) -> Vec<(Takeover, Box<CreateActor>)> {
        let is_its = |_: &ActorId, local: &mut LocalActor| local.job == job && local.process.is_none();
        let taken = self.actors.extract_if(.., is_its);
        taken.filter_map(|(_, local)| Some((local.takeover, local.create?))).collect()
    }

    /// Takes out an actor that has no process: the number of its takeover, and the message for its process.
    pub(in crate::node) fn take_unbegun(&mut self, id: ActorId) -> Option<(Takeover, Box<CreateActor>)> {
        self.wanted(id)?;
        let local = self.actors.swap_remove(&id)?;
        Some((local.takeover, local.create?))
    }

    fn placed(&mut self, id: ActorId, takeover: Takeover) -> Option<&mut LocalActor> {
        self.actors.get_mut(&id).filter(|local| local.takeover == takeover)
    }

    /// What the process of an actor holds.
    pub(in crate::node) fn grant(&self, id: ActorId) -> Option<&Grant> {
        self.actors.get(&id)?.process.as_ref().map(|(_, grant)| grant)
    }

    /// Namespace and name.
    pub(in crate::node) fn name(&self, id: ActorId) -> Option<&(String, String)> {
        self.actors.get(&id)?.name.as_ref()
    }

    /// The driver whose workers may be its process.
    pub(in crate::node) fn job(&self, id: ActorId) -> WorkerId {
        self.actors.get(&id).map_or(id.owner, |local| local.job)
    }

    /// Whether an actor outlives its owner.
    pub(in crate::node) fn is_detached(&self, id: ActorId) -> bool {
        self.actors.get(&id).is_some_and(|local| local.detached)
    }

    /// Whether the process of any actor was told to end, and has not.
    pub(in crate::node) fn is_one_ending(&self) -> bool {
        self.actors.values().any(|local| local.is_ending)
    }

    /// What an actor is called, for people.
    pub(in crate::node) fn title(&self, id: ActorId) -> Option<String> {
        let local = self.actors.get(&id)?;
        Some(title(local.name.as_ref(), &local.class))
    }
}

/// The driver whose workers may be the process of an actor.
fn job_of(place: &PlaceActor) -> WorkerId {
    place.create.job.unwrap_or(place.create.actor.owner)
}

/// Gives back an actor that has not begun here: the control service finds it another node.
fn given_back(takeover: Takeover, create: Box<CreateActor>, why: &str) -> NodeAction {
    let (actor, reason, create) = (create.actor, why.to_owned(), Some(create));
    let (no_workers, for_now) = (false, false);
    NodeAction::Control(ToControl::PlaceRefused { actor, takeover, reason, create, no_workers, for_now })
}

/// An actor that was ended before it had a process. With what it is, in case it was another one for this
/// control service.
pub(crate) fn ended_unbegun(takeover: Takeover, create: Box<CreateActor>) -> NodeAction {
    refused_for_now(takeover, create, "it was ended there")
}

/// An actor cannot begin here now: the control service tries other nodes first.
pub(crate) fn refused_for_now(takeover: Takeover, create: Box<CreateActor>, why: &str) -> NodeAction {
    let (actor, reason, create) = (create.actor, why.to_owned(), Some(create));
    let (no_workers, for_now) = (false, true);
    NodeAction::Control(ToControl::PlaceRefused { actor, takeover, reason, create, no_workers, for_now })
}

impl LocalActor {
    /// Its process was told what it is, if it has one.
    pub(in crate::node) fn has_begun(&self) -> bool {
        self.create.is_none()
    }

    /// Its process is told what it is.
    fn begin(&mut self, out: &mut NodeActions) {
        if let (Some((worker, _)), Some(create)) = (&self.process, self.create.take()) {
            out.push(send(*worker, *create.class));
            out.push(send(*worker, *create.constructor));
        }
    }
}

impl NodeCore {
    pub(in crate::node) fn on_place_actor(&mut self, place: PlaceActor, out: &mut NodeActions) {
        let (actor, takeover) = (place.create.actor, place.takeover);
        if let Some(why) = self.cannot_start(job_of(&place))
            && self.local_actors.actors.get(&actor).is_none_or(|local| local.takeover != takeover)
        {
            return out.push(refused_place(takeover, place.create, why));
        }
        match self.local_actors.placed(actor, takeover).map(|local| local.process.as_ref()) {
            None => self.local_actors.insert(place),
            // A restarted control service asks for what an earlier one has asked for.
            Some(Some((worker, _))) => {
                let placed = ToControl::ActorPlaced { actor, takeover, worker: *worker };
                out.push(NodeAction::Control(placed));
            }
            Some(None) => {}
        }
    }

    /// Gives back actors that have no process yet: the control service finds them another node.
    pub(in crate::node) fn give_waiting_actors_back(&mut self, out: &mut NodeActions) {
        self.local_actors.waiting.clear();
        let waits = |local: &LocalActor| local.process.is_none() && local.create.is_some();
        let ids = self.local_actors.actors.iter().filter(|(_, local)| waits(local)).map(|(id, _)| *id);
        for actor in ids.collect::<Vec<ActorId>>() {
            let Some(local) = self.local_actors.actors.swap_remove(&actor) else { continue };
            let given = |create| given_back(local.takeover, create, "its node is about to end");
            out.extend(local.create.map(given));
        }
    }

    /// Gives waiting actors their resources, in order of rank: an actor that does not fit holds up none that
    /// does.
    pub(in crate::node) fn place_actors(&mut self) {
        let mut still_waiting = VecDeque::new();
        for (rank, actor) in std::mem::take(&mut self.local_actors.waiting) {
            let Some(create) = self.local_actors.wanted(actor) else { continue };
            let strategy = create.constructor.spec.strategy();
            let fits = self.resources.fits(&create.placement, strategy);
            match fits.then(|| self.resources.acquire(&create.lifetime, strategy)).flatten() {
                Some(grant) => self.placements.push_back(Placement::Actor { actor, grant }),
                None => still_waiting.push_back((rank, actor)),
            }
        }
        self.local_actors.waiting = still_waiting;
    }

    /// Whether the creator of an actor was a process of this node that is dead. The control service elsewhere
    /// is about to end such an actor. But all local processes were asked already what they have of the
    /// creator: none may be shown what it had given to the constructor.
    fn ends_with_its_creator(&self, actor: ActorId) -> bool {
        let creator = actor.owner;
        let is_dead = creator.node() == self.id() && !self.clients.contains_key(&creator);
        self.role.is_member() && is_dead && !self.local_actors.is_detached(actor)
    }

    /// A worker becomes an actor's process.
    pub(in crate::node) fn start_actor(
        &mut self,
        id: ActorId,
        grant: Grant,
        worker: WorkerId,
        out: &mut NodeActions,
    ) {
        let ends = self.ends_with_its_creator(id);
        let local = self.local_actors.actors.get_mut(&id).filter(|local| local.process.is_none());
        let Some(local) = local else { return self.resources.release(&grant) };
        let limits = self.memory.limits.of(worker, &grant, self.resources.total());
        out.extend(limits);
        if let Some(create) = &mut local.create {
            create.constructor.gpus = grant.gpu_indices();
        }
        local.process = Some((worker, grant));
        self.pool.give(worker, WorkerState::Actor(id));
        if !local.restores && !ends {
            local.begin(out);
        }
        let placed = ToControl::ActorPlaced { actor: id, takeover: local.takeover, worker };
        out.push(NodeAction::Control(placed));
    }

    /// What the new process of an actor begins with.
    pub(in crate::node) fn on_restore(
        &mut self,
        takeover: Takeover,
        mut restore: Restore,
        out: &mut NodeActions,
    ) {
        let id = restore.actor;
        let ends = self.ends_with_its_creator(id);
        restore.callers.retain(|caller| self.will_learn_of_end(*caller, out));
        let Some(local) = self.local_actors.placed(id, takeover) else {
            return self.local_actors.record_unread_state(id, takeover, restore.state);
        };
        let Some((worker, _)) = local.process else { return };
        if let Some(snapshot) = &mut local.snapshot {
            snapshot.checkpoint.clone_from(&restore.state);
        }
        if let Some(Outcome::Stored(location)) = restore.state.as_ref().map(|state| &state.outcome) {
            self.holders.share(location.place(), worker);
        }
        out.push(send(worker, restore));
        if !ends {
            local.begin(out);
        }
    }

    /// Whether local processes will learn of the death of a process that their actor waits for. Not if they
    /// would know of it: the control service may name a process of whose death it learns later than this
    /// node.
    fn will_learn_of_end(&mut self, process: WorkerId, out: &mut NodeActions) -> bool {
        if !self.is_elsewhere(process) {
            return self.clients.contains_key(&process);
        }
        let is_dead = self.departed.has(process) || self.watches.is_with_node(process);
        if is_dead {
            return false;
        }
        // The process may end before it has a line with the actor's new process.
        self.on_watch(process, out);
        true
    }

    /// The control service has room for an actor elsewhere: the actor goes there, unless resources were set
    /// aside for it here.
    fn on_recall_actor(&mut self, actor: ActorId, takeover: Takeover, out: &mut NodeActions) {
        if self.local_actors.placed(actor, takeover).is_none() {
            return;
        }
        let Some(at) = self.local_actors.waiting.iter().position(|(_, id)| *id == actor) else { return };
        mark!("an actor that waited at one node went to another");
        self.local_actors.waiting.remove(at);
        let Some(local) = self.local_actors.actors.swap_remove(&actor) else { return };
        out.extend(local.create.map(|create| given_back(takeover, create, "another node has room for it")));
    }

    pub(in crate::node) fn on_end_actor(
        &mut self,
        id: ActorId,
        takeover: Takeover,
        end: End,
        out: &mut NodeActions,
    ) {
        if end == End::Recalled {
            return self.on_recall_actor(id, takeover, out);
        }
        if end == End::Succeeded {
            return self.local_actors.forget_ends_up_to(id, takeover);
        }
        // Otherwise the actor may have ended, and that is still to be reported.
        let Some(local) = self.local_actors.placed(id, takeover) else { return };
        local.is_ending = local.process.is_some();
        match (&local.process, end) {
            (Some((worker, _)), End::Killed) => out.push(NodeAction::KillWorker(*worker)),
            (Some((worker, _)), End::Finished) => out.push(send(*worker, ExitActor { actor: id })),
            (None, _) | (_, End::Recalled | End::Succeeded) => {
                // The owner learns of the actor's end when nothing here can read the arguments any more: the
                // owner gives them back then.
                let ended = self.local_actors.actors.swap_remove(&id);
                out.extend(
                    ended.and_then(|local| local.create).map(|create| ended_unbegun(takeover, create)),
                );
                // Others may have what was set aside for the actor at once: when a worker comes for it,
                // nothing more happens.
                self.drop_actor_placement(id);
            }
        }
    }

    /// An actor does not wait for a worker any more.
    fn drop_actor_placement(&mut self, id: ActorId) {
        let is_its =
            |placement: &Placement| matches!(placement, Placement::Actor { actor, .. } if *actor == id);
        while let Some(at) = self.placements.iter().position(is_its) {
            if let Some(Placement::Actor { grant, .. }) = self.placements.remove(at) {
                self.resources.release(&grant);
            }
        }
    }

    /// The process of an actor is dead, and what it held is free.
    pub(in crate::node) fn end_local_actor(
        &mut self,
        id: ActorId,
        blocked: bool,
        gone: &WorkerDead,
        out: &mut NodeActions,
    ) {
        let Some(local) = self.local_actors.actors.swap_remove(&id) else { return };
        self.local_actors.record_end(id, &local, gone);
        if let Some((_, grant)) = &local.process {
            if blocked {
                self.resources.reclaim_cpu(grant);
            }
            self.resources.release(grant);
        }
        let gone = Box::new(gone.clone());
        out.push(NodeAction::Control(ToControl::ActorProcessDead {
            actor: id,
            takeover: local.takeover,
            gone,
        }));
    }

    /// An actor's process has taken a checkpoint: the node keeps the block of the state from now on.
    pub(in crate::node) fn on_checkpoint(
        &mut self,
        from: WorkerId,
        checkpoint: Checkpoint,
        out: &mut NodeActions,
    ) {
        let local = self.local_actors.actors.get(&checkpoint.actor);
        let lives_here = |local: &&LocalActor| {
            local.takes_checkpoints && local.process.as_ref().is_some_and(|(worker, _)| *worker == from)
        };
        if local.filter(lives_here).is_none() {
            return;
        }
        if let Outcome::Stored(location) = checkpoint.state.outcome {
            self.holders.keep_object(location.place(), checkpoint.actor.state());
            let is_free = self.holders.release(location.place(), from);
            debug_assert!(!is_free, "the node keeps it");
        }
        self.route(from, checkpoint, out);
    }

    /// Adds what only the actor's node knows to the control service's row of the actor.
    pub fn complete(&self, row: &mut ActorRow) {
        let wanted = self.local_actors.wanted(row.actor).map(|create| create.placement.clone());
        if let Some(resources) = wanted.or_else(|| self.held_by(row.actor)) {
            row.resources = resources;
        }
        if let Some(worker) = row.worker.and_then(|id| self.pool.get(id)) {
            row.pid = worker.pid;
        }
    }

    pub(in crate::node) fn held_by(&self, actor: ActorId) -> Option<ResourceSet> {
        self.local_actors.grant(actor).map(|grant| grant.resources.clone())
    }
}
