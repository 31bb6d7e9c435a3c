//! What a node tells a control service that has started again (`docs/adr/0032-what-nodes-tell-a-head-again.md`): the actors
//! that have a process here, or wait for one, and those whose end it may not have heard of.
//!
//! A node that carries the control service itself keeps nothing for that.

use weft_wire::message::state::ActorRow;
use weft_wire::message::{ActorHere, PlaceActor, Return, WorkerGone};
use weft_wire::{ActorId, Blob, GroupId, ResourceSet, Strategy, WorkerId};

use super::NodeCore;
use super::local_actors::{LocalActor, LocalActors};

/// Ends of actors that are told again: later ones than a control service can have missed.
const ENDS_MAX: usize = 1024;

/// What is kept of an actor for that alone.
#[derive(Debug)]
pub(super) struct Memo {
    is_ready: bool,
    concurrency: u32,
    restarts: i32,
    description: Option<Blob>,
    group: Option<GroupId>,
    create: Option<Box<weft_wire::message::CreateActor>>,
    pub(super) checkpoint: Option<Return>,
}

impl Memo {
    pub(super) fn of(place: &PlaceActor) -> Self {
        let spec = &place.create.constructor.spec;
        let restarts = place.restarts.unwrap_or(0);
        Self {
            is_ready: false,
            concurrency: spec.concurrency,
            restarts,
            description: place.description.clone(),
            group: spec.strategy.as_deref().and_then(Strategy::group).map(|place| place.group),
            create: (restarts != 0).then(|| place.create.clone()),
            checkpoint: None,
        }
    }
}

impl LocalActor {
    fn row(&self, id: ActorId, memo: &Memo) -> ActorHere {
        ActorHere {
            actor: id,
            takeover: self.takeover,
            worker: self.process.as_ref().map(|(worker, _)| *worker),
            is_ready: memo.is_ready,
            job: self.job,
            name: self.name.clone(),
            description: memo.description.clone(),
            class: self.class.clone(),
            detached: self.detached,
            concurrency: memo.concurrency,
            restarts: memo.restarts,
            create: memo.create.clone(),
            checkpoint: memo.checkpoint.clone(),
            gone: None,
            group: memo.group,
        }
    }
}

impl LocalActors {
    /// From now on it is kept what a control service elsewhere may have to learn.
    pub(super) fn keep_memos(&mut self) {
        self.keeps_memos = true;
    }

    /// The constructor of an actor has returned.
    pub(super) fn note_ready(&mut self, id: ActorId) {
        if let Some(memo) = self.actors.get_mut(&id).and_then(|local| local.memo.as_mut()) {
            memo.is_ready = true;
        }
    }

    /// The process of an actor is gone.
    pub(super) fn note_end(&mut self, id: ActorId, local: &LocalActor, gone: &WorkerGone) {
        let Some(memo) = &local.memo else { return };
        if self.ended.len() == ENDS_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(ActorHere {
            gone: Some(Box::new(gone.clone())),
            worker: None,
            ..local.row(id, memo)
        });
    }

    /// What followed from ends of an actor's processes is known: it is dead, or `later` is a process that came after them.
    pub(super) fn forget_ends(&mut self, id: ActorId, later: Option<WorkerId>) {
        let is_its = |gone: &WorkerGone| Some(gone.worker) == later;
        self.ended.retain(|here| here.actor != id || here.gone.as_deref().is_some_and(is_its));
    }

    /// The same of those up to the one with this number.
    pub(super) fn forget_ends_up_to(&mut self, id: ActorId, takeover: u32) {
        self.ended.retain(|here| here.actor != id || here.takeover > takeover);
    }

    fn rows(&self) -> impl Iterator<Item = ActorHere> {
        let present = self.actors.iter().filter_map(|(id, local)| Some(local.row(*id, local.memo.as_ref()?)));
        self.ended.iter().cloned().chain(present)
    }
}

impl NodeCore {
    /// From now on it is kept what a control service elsewhere may have to learn.
    pub(crate) fn keep_memos(&mut self) {
        self.local_actors.keep_memos();
    }

    /// The constructor of an actor has returned.
    pub(crate) fn note_ready(&mut self, actor: ActorId) {
        self.local_actors.note_ready(actor);
    }

    /// The actors here, those that ended first.
    #[must_use]
    pub fn actors_here(&self) -> Vec<ActorHere> {
        self.local_actors.rows().collect()
    }

    /// The actors here, for people. [`Self::complete`] adds the rest.
    #[must_use]
    pub fn actor_rows(&self) -> Vec<ActorRow> {
        self.local_actors.rows().filter(|here| here.gone.is_none()).map(actor_row).collect()
    }

    /// Which processes here hear of which actors: of those of which it was said that they have a process, or of the others.
    #[must_use]
    pub fn subscribers_here(&self, have_begun: bool) -> Vec<(ActorId, WorkerId)> {
        self.places.all(have_begun).collect()
    }
}

fn actor_row(here: ActorHere) -> ActorRow {
    let phase = match here.worker {
        Some(_) if here.is_ready => 3,
        _ if here.takeover > 0 => 5,
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
        restarts: Some(here.takeover),
        checkpoints: here.checkpoint.map(|_| 1),
        job: Some(here.job),
    }
}
