//! What a node tells a control service that has started again
//! (`docs/adr/0032-what-nodes-tell-a-head-again.md`): the actors that have a process here, or wait for one,
//! and those of whose end it may not know.
//!
//! A node that carries the control service itself keeps nothing for that.

use sooner_wire::message::state::ActorRow;
use sooner_wire::message::{
    ActorDead, ActorHere, Checkpoint, CreateActor, Failure, Outcome, Place, PlaceActor, Return, WorkerDead,
};
use sooner_wire::{ActorId, Blob, GroupId, ResourceSet, Strategy, Takeover, TaskId, WorkerId};

use super::local_actors::{LocalActor, LocalActors};
use crate::node::{NodeAction, NodeActions};
use crate::uplink::{ToControl, takes_checkpoints};

/// Ends of actors that are reported again: more than a control service can have missed.
const ENDS_MAX: usize = 1024;
/// Calls of an actor that are reported again: more than a control service has under way when it ends, not
/// known to their callers.
const COVERED_MAX: usize = 1024;

/// What is kept of an actor for a restarted control service.
#[derive(Debug)]
pub(in crate::node) struct ActorSnapshot {
    is_ready: bool,
    concurrency: u32,
    restarts: i32,
    description: Option<Blob>,
    group: Option<GroupId>,
    create: Option<Box<CreateActor>>,
    pub(in crate::node) checkpoint: Option<Return>,
    /// The latest calls of this process that checkpoints cover.
    covered: Vec<TaskId>,
}

impl ActorSnapshot {
    pub(in crate::node) fn of(place: &PlaceActor) -> Self {
        let spec = &place.create.constructor.spec;
        let restarts = place.restarts.unwrap_or(0);
        Self {
            is_ready: false,
            concurrency: spec.concurrency(),
            restarts,
            description: place.description.clone(),
            group: spec.strategy().and_then(Strategy::group).map(|place| place.group),
            // Also without restarts: the process may end before it has begun.
            create: Some(place.create.clone()),
            checkpoint: None,
            covered: Vec::new(),
        }
    }
}

impl LocalActor {
    fn row(&self, id: ActorId, snapshot: &ActorSnapshot) -> ActorHere {
        ActorHere {
            actor: id,
            takeover: self.takeover,
            // One that waits for its state is not there yet: see [`NodeCore::send_placed_again`].
            worker: self.process.as_ref().filter(|_| self.has_begun()).map(|(worker, _)| *worker),
            is_ready: snapshot.is_ready,
            job: self.job,
            name: self.name.clone(),
            description: snapshot.description.clone(),
            class: self.class.clone(),
            detached: self.detached,
            concurrency: snapshot.concurrency,
            restarts: snapshot.restarts,
            create: snapshot.create.clone(),
            checkpoint: snapshot.checkpoint.clone(),
            gone: None,
            group: snapshot.group,
            covered: (!snapshot.covered.is_empty()).then(|| snapshot.covered.clone()),
        }
    }
}

impl LocalActors {
    /// From now on the node keeps what a control service elsewhere may have to learn.
    pub(in crate::node) fn keep_snapshots(&mut self) {
        self.keeps_snapshots = true;
    }

    /// The constructor of an actor has returned.
    pub(in crate::node) fn record_ready(&mut self, id: ActorId) {
        if let Some(snapshot) = self.actors.get_mut(&id).and_then(|local| local.snapshot.as_mut()) {
            snapshot.is_ready = true;
            // Without restarts no other process takes over. `create` stays also if it says that the actor
            // takes checkpoints.
            let takes = |create: &CreateActor| create.constructor.spec.checkpoint_every().is_some();
            snapshot.create = snapshot.create.take().filter(|create| snapshot.restarts != 0 || takes(create));
        }
    }

    /// The process of an actor is dead.
    pub(in crate::node) fn record_end(&mut self, id: ActorId, local: &LocalActor, gone: &WorkerDead) {
        let Some(snapshot) = &local.snapshot else { return };
        if self.ended.len() == ENDS_MAX {
            self.ended.pop_front();
        }
        // Its process is named if it had begun: then what it began with is known, too.
        self.ended.push_back(ActorHere { gone: Some(Box::new(gone.clone())), ..local.row(id, snapshot) });
    }

    /// An actor is dead: the ends of its processes have no other effect.
    fn forget_ends(&mut self, id: ActorId) {
        self.ended.retain(|here| here.actor != id);
    }

    /// `later` is a process that came after those that ended. It may not have the state of the one before
    /// yet.
    pub(in crate::node) fn forget_ends_before(&mut self, id: ActorId, later: WorkerId) {
        let is_its = |gone: &WorkerDead| gone.worker == later;
        let stays = |here: &ActorHere| takes_checkpoints(here) || here.gone.as_deref().is_some_and(is_its);
        self.ended.retain(|here| here.actor != id || stays(here));
    }

    /// The state for a process that ended before the state came: the next process begins with it, too.
    pub(in crate::node) fn record_unread_state(
        &mut self,
        id: ActorId,
        takeover: Takeover,
        state: Option<Return>,
    ) {
        let is_its = |here: &&mut ActorHere| here.actor == id && here.takeover == takeover;
        if let Some(here) = self.ended.iter_mut().find(is_its) {
            here.checkpoint = state;
            here.worker = here.gone.as_ref().map(|gone| gone.worker);
        }
    }

    /// An actor is dead: a later control service is told neither of its process, which is about to end, nor
    /// of that end.
    pub(in crate::node) fn record_death_at(&mut self, id: ActorId, failure: &Failure) {
        if self.keeps_snapshots {
            if self.dead.len() == ENDS_MAX {
                self.dead.pop_front();
            }
            self.dead.push_back(ActorDead { actor: id, failure: failure.clone() });
        }
        self.forget_ends(id);
        if let Some(local) = self.actors.get_mut(&id) {
            local.snapshot = None;
        }
    }

    /// The control service knows what followed from the ends of an actor's processes, up to this takeover.
    pub(in crate::node) fn forget_ends_up_to(&mut self, id: ActorId, takeover: Takeover) {
        self.ended.retain(|here| here.actor != id || here.takeover > takeover);
    }

    /// A block is not kept any more: no state is in it.
    pub(in crate::node) fn forget_state(&mut self, place: Place) {
        if !self.keeps_snapshots {
            return;
        }
        let lies_there = |state: &mut Option<Return>| {
            let outcome = state.as_ref().map(|state| &state.outcome);
            matches!(outcome, Some(Outcome::Stored(location)) if location.place() == place)
        };
        let snapshots = self.actors.values_mut().filter_map(|local| local.snapshot.as_mut());
        let states = snapshots.map(|snapshot| &mut snapshot.checkpoint);
        for state in states.chain(self.ended.iter_mut().map(|here| &mut here.checkpoint)) {
            if lies_there(state) {
                *state = None;
            }
        }
    }

    /// A checkpoint of the actor in a process stands: a process after this one is to begin with it.
    pub(in crate::node) fn record_checkpoint(&mut self, process: WorkerId, checkpoint: Checkpoint) {
        let Checkpoint { actor: id, state, calls } = checkpoint;
        let is_its = |local: &&mut LocalActor| local.process.as_ref().is_some_and(|(its, _)| *its == process);
        let living = self.actors.get_mut(&id).filter(is_its).and_then(|local| local.snapshot.as_mut());
        let is_end = |here: &&mut ActorHere| here.gone.as_ref().is_some_and(|gone| gone.worker == process);
        let ended = self.ended.iter_mut().filter(|here| here.actor == id).find(is_end);
        let living = living.map(|snapshot| (&mut snapshot.checkpoint, &mut snapshot.covered));
        let ended = ended.map(|here| (&mut here.checkpoint, here.covered.get_or_insert_default()));
        let Some((its_state, covered)) = living.or(ended) else { return };
        *its_state = Some(state);
        covered.extend(calls);
        covered.drain(..covered.len().saturating_sub(COVERED_MAX));
    }

    /// The actors here, those that ended first.
    pub(in crate::node) fn rows(&self) -> impl Iterator<Item = ActorHere> {
        let present =
            self.actors.iter().filter_map(|(id, local)| Some(local.row(*id, local.snapshot.as_ref()?)));
        self.ended.iter().cloned().chain(present)
    }

    /// The actors that the control service reported dead last.
    pub(in crate::node) fn dead(&self) -> Vec<ActorDead> {
        self.dead.iter().cloned().collect()
    }

    /// The actors here, for people. [`NodeCore::complete`] adds the rest.
    ///
    /// [`NodeCore::complete`]: crate::node::NodeCore::complete
    pub(in crate::node) fn rows_for_people(&self) -> Vec<ActorRow> {
        self.rows().filter(|here| here.gone.is_none()).map(actor_row).collect()
    }

    /// The control service has started again: processes that wait for the state of their actors get it from
    /// the new one.
    pub(in crate::node) fn send_placed_again(&self, out: &mut NodeActions) {
        for (actor, local) in &self.actors {
            if let Some((worker, _)) = local.process.as_ref().filter(|_| !local.has_begun()) {
                let (actor, takeover, worker) = (*actor, local.takeover, *worker);
                out.push(NodeAction::Control(ToControl::ActorPlaced { actor, takeover, worker }));
            }
        }
    }
}

fn actor_row(here: ActorHere) -> ActorRow {
    let phase = match here.worker {
        Some(_) if here.is_ready => 3,
        _ if here.takeover > Takeover::FIRST => 5,
        Some(_) => 2,
        None => 1,
    };
    ActorRow {
        actor: here.actor,
        owner: here.actor.owner,
        class: here.class,
        name: here.name,
        phase,
        worker: here.worker,
        pid: 0,
        death: None,
        resources: ResourceSet::default(),
        detached: Some(here.detached),
        restarts: Some(here.takeover.0),
        checkpoints: here.checkpoint.map(|_| 1),
        job: Some(here.job),
    }
}
