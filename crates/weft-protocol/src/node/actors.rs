//! The node's half of actors: placing them, telling callers where they are, ending them (Ray, section 4.2.1: the
//! actor table).

use crate::probes::{bug, mark};
use weft_wire::limits::ENDED_MAX;
use weft_wire::message::{
    ActorDead, ActorRestarting, ActorStarted, CreateActor, Dependency, ExitActor, Failure, Infeasible,
    Outcome, WorkerGone,
};
use weft_wire::{ActorId, WorkerId};

use super::pace::Pace;
use super::{
    Actor, ActorPhase, Checkpoints, Grant, NodeAction, NodeActions, NodeCore, Placement, Set, WorkerState,
    actor_died,
};
use crate::time::Instant;

impl NodeCore {
    pub(super) fn on_create_actor(&mut self, from: WorkerId, create: CreateActor, out: &mut NodeActions) {
        let actor = create.actor;
        let entry = self.actors.entry(actor).or_insert_with(|| Actor::new(from));
        entry.subscribers.insert(from);
        if matches!(entry.phase, ActorPhase::Dead(_)) {
            // Killed before its creation came.
            return self.publish(actor, out);
        }
        entry.concurrency = create.constructor.spec.concurrency;
        entry.class = create.class.name.as_str().to_owned();
        entry.restarts = create.restarts.unwrap_or(0);
        entry.detached = create.detached == Some(true);
        entry.checkpoints = create.constructor.spec.checkpoint_every.map(|_| Checkpoints::default());
        if entry.detached {
            // Its creator may end before its process, or the next one, has read the arguments.
            entry.kept = stored_arguments(&create);
            entry.kept.iter().for_each(|block| self.holders.keep(*block));
        }
        let feasible =
            self.resources.is_feasible(&create.placement) && self.resources.is_feasible(&create.lifetime);
        if !feasible {
            let asked = if self.resources.is_feasible(&create.placement) {
                create.lifetime.clone()
            } else {
                create.placement.clone()
            };
            let report = Infeasible { asked, total: self.resources.total().clone() };
            out.push(NodeAction::Send(from, Box::new(report.into())));
        }
        entry.phase = ActorPhase::Waiting(Box::new(create));
        self.waiting_actors.push_back(actor);
    }

    /// Gives waiting actors their resources, in order of shape: one that does not fit holds up none that does.
    pub(super) fn place_actors(&mut self, now: Instant) {
        let mut still_waiting = std::collections::VecDeque::new();
        for actor in std::mem::take(&mut self.waiting_actors) {
            let Some(Actor { phase: ActorPhase::Waiting(create), pace, .. }) = self.actors.get_mut(&actor)
            else {
                continue;
            };
            let fits = pace.may_begin(now) && self.resources.fits(&create.placement);
            match fits.then(|| self.resources.acquire(&create.lifetime)).flatten() {
                Some(grant) => self.placements.push_back(Placement::Actor { actor, grant }),
                None => still_waiting.push_back(actor),
            }
        }
        self.waiting_actors = still_waiting;
    }

    pub(super) fn start_actor(&mut self, id: ActorId, grant: Grant, worker: WorkerId, out: &mut NodeActions) {
        let Some(actor) = self.actors.get_mut(&id) else {
            return self.resources.release(&grant);
        };
        if !matches!(actor.phase, ActorPhase::Waiting(_)) {
            return self.resources.release(&grant);
        }
        let gpus = grant.gpu_indices();
        let phase = ActorPhase::Placed { worker, grant };
        let ActorPhase::Waiting(create) = std::mem::replace(&mut actor.phase, phase) else {
            unreachable!("matched above")
        };
        if actor.restarts != 0 {
            actor.creation = Some(create.clone());
        }
        self.workers[&worker].state = WorkerState::Actor(id);
        let mut constructor = create.constructor;
        constructor.gpus = gpus;
        self.restore(id, worker, out);
        out.push(NodeAction::Send(worker, Box::new((*create.class).into())));
        out.push(NodeAction::Send(worker, Box::new((*constructor).into())));
        self.publish(id, out);
    }

    pub(super) fn on_subscribe(&mut self, from: WorkerId, id: ActorId, out: &mut NodeActions) {
        if from == id.owner {
            // Its creator says that it will come: its constructor waits for arguments.
            self.actors.entry(id).or_insert_with(|| Actor::new(from));
        }
        let Some(actor) = self.actors.get_mut(&id) else { return self.look_up(id, from, out) };
        actor.subscribers.insert(from);
        self.tell(id, from, out);
    }

    fn publish(&mut self, id: ActorId, out: &mut NodeActions) {
        let subscribers: Vec<WorkerId> =
            self.actors.get(&id).map(|a| a.subscribers.iter().copied().collect()).unwrap_or_default();
        for subscriber in subscribers {
            self.tell(id, subscriber, out);
        }
    }

    fn tell(&mut self, id: ActorId, to: WorkerId, out: &mut NodeActions) {
        let Some(actor) = self.actors.get(&id) else { return };
        match &actor.phase {
            ActorPhase::Reserved | ActorPhase::Waiting(_) => {}
            ActorPhase::Placed { worker, .. } => {
                let worker = *worker;
                let replays = (actor.takeovers > 0 && actor.checkpoints.is_some()).then_some(true);
                let started = ActorStarted { actor: id, worker, concurrency: actor.concurrency, replays };
                self.introduce(to, worker, out);
                out.push(NodeAction::Send(to, Box::new(started.into())));
            }
            ActorPhase::Dead(failure) => {
                let dead = ActorDead { actor: id, failure: failure.clone() };
                out.push(NodeAction::Send(to, Box::new(dead.into())));
            }
        }
    }

    pub(super) fn on_actor_ready(&mut self, id: ActorId, failure: Option<Failure>, out: &mut NodeActions) {
        let Some(actor) = self.actors.get_mut(&id) else { return };
        let Some(failure) = failure else {
            actor.is_ready = true;
            return;
        };
        if matches!(actor.phase, ActorPhase::Reserved) {
            // An argument of its constructor failed.
            return self.bury(id, failure, out);
        }
        // The process ends by itself and its end publishes this.
        actor.ending.get_or_insert(failure);
        if let ActorPhase::Placed { worker, .. } = actor.phase {
            let exit = ExitActor { actor: id };
            out.push(NodeAction::Send(worker, Box::new(exit.into())));
        }
    }

    pub(super) fn on_kill_actor(&mut self, id: ActorId, may_restart: bool, out: &mut NodeActions) {
        let unknown = || Actor { is_dropped: true, ..Actor::new(id.owner) };
        let actor = self.actors.entry(id).or_insert_with(unknown);
        if let ActorPhase::Waiting(create) = &actor.phase
            && may_restart
            && create.constructor.spec.retries > 0
        {
            // It is starting again: there is no process to kill.
            return;
        }
        if let ActorPhase::Placed { worker, .. } = actor.phase
            && may_restart
            && actor.restarts != 0
        {
            return out.push(NodeAction::KillWorker(worker));
        }
        let failure = actor_died(format!("{} was ended by weft.kill()", actor.title()));
        if actor.takeovers > 0 && matches!(actor.phase, ActorPhase::Waiting(_)) {
            mark!("an actor was ended while it was starting again");
        }
        match &actor.phase {
            ActorPhase::Reserved | ActorPhase::Waiting(_) => self.bury(id, failure, out),
            ActorPhase::Placed { worker, .. } => {
                let worker = *worker;
                actor.ending.get_or_insert(failure);
                self.free_name(id);
                out.push(NodeAction::KillWorker(worker));
            }
            ActorPhase::Dead(_) => {}
        }
    }

    pub(super) fn on_out_of_scope(&mut self, id: ActorId, out: &mut NodeActions) {
        let Some(actor) = self.actors.get_mut(&id) else { return };
        actor.is_dropped = true;
        let failure = actor_died(format!("{} ended because its last handle was dropped", actor.title()));
        match &actor.phase {
            ActorPhase::Reserved | ActorPhase::Waiting(_) => {
                self.bury(id, failure, out);
                self.actors.swap_remove(&id);
            }
            ActorPhase::Placed { worker, .. } => {
                let worker = *worker;
                actor.ending.get_or_insert(failure);
                self.free_name(id);
                out.push(NodeAction::Send(worker, Box::new(ExitActor { actor: id }.into())));
            }
            ActorPhase::Dead(_) => {
                self.actors.swap_remove(&id);
            }
        }
    }

    pub(super) fn on_actor_process_gone(
        &mut self,
        id: ActorId,
        blocked: bool,
        gone: &WorkerGone,
        out: &mut NodeActions,
    ) {
        let reason = &gone.reason;
        let Some(actor) = self.actors.get_mut(&id) else { return };
        if actor.ending.is_none() && actor.restarts != 0 {
            return self.restart(id, blocked, gone, out);
        }
        let title = actor.title();
        let failure = actor.ending.take().unwrap_or_else(|| {
            actor_died(format!(
                "{title} died: its process {reason}. Calls that were running may have been executed in part"
            ))
        });
        let phase = std::mem::replace(&mut actor.phase, ActorPhase::Dead(failure.clone()));
        if let ActorPhase::Placed { grant, .. } = phase {
            if blocked {
                self.resources.reclaim_cpu(&grant);
            }
            self.resources.release(&grant);
        }
        self.bury(id, failure, out);
    }

    /// A new process takes over: it is placed like a new actor, under the same id and name.
    fn restart(&mut self, id: ActorId, blocked: bool, gone: &WorkerGone, out: &mut NodeActions) {
        let actor = self.actors.get_mut(&id).expect("looked up by the caller");
        let mut creation = actor.creation.take().expect("kept while there are restarts");
        actor.pace.ended(actor.is_ready);
        if !bug!(RestartUncounted) {
            actor.restarts -= i32::from(actor.restarts > 0);
        }
        actor.is_ready = false;
        actor.takeovers += 1;
        // The constructor learns that it is not the first one.
        creation.constructor.spec.retries += 1;
        let phase = std::mem::replace(&mut actor.phase, ActorPhase::Waiting(creation));
        if let ActorPhase::Placed { grant, .. } = phase {
            if blocked {
                self.resources.reclaim_cpu(&grant);
            }
            self.resources.release(&grant);
        }
        self.waiting_actors.push_back(id);
        let WorkerGone { reason, last_started, .. } = gone.clone();
        let restarting = ActorRestarting { actor: id, reason, last_started };
        for subscriber in self.actors[&id].subscribers.clone() {
            out.push(NodeAction::Send(subscriber, Box::new(restarting.clone().into())));
        }
    }

    fn bury(&mut self, id: ActorId, failure: Failure, out: &mut NodeActions) {
        self.drop_checkpoint(id, out);
        if let Some(actor) = self.actors.get_mut(&id) {
            actor.phase = ActorPhase::Dead(failure);
            actor.creation = None;
            for block in std::mem::take(&mut actor.kept) {
                if self.holders.let_go(block) {
                    self.free_block(block, out);
                }
            }
        }
        self.free_name(id);
        self.publish(id, out);
        self.retire(id);
    }

    /// Keeps an ended actor that nobody refers to for a while, for those who look at the state.
    fn retire(&mut self, id: ActorId) {
        if self.actors.get(&id).is_none_or(|actor| !actor.is_dropped) {
            return;
        }
        self.ended_actors.push_back(id);
        if self.ended_actors.len() > ENDED_MAX
            && let Some(oldest) = self.ended_actors.pop_front()
        {
            self.actors.swap_remove(&oldest);
        }
    }

    fn free_name(&mut self, id: ActorId) {
        if let Some(name) = self.actors.get_mut(&id).and_then(|actor| actor.name.take())
            && self.names.get(&name).is_some_and(|(owner, _)| *owner == id)
        {
            self.names.swap_remove(&name);
        }
    }

    /// Actors share their owner's fate.
    pub(super) fn end_actors_of(&mut self, owner: WorkerId, out: &mut NodeActions) {
        let owned: Vec<ActorId> =
            self.actors.iter().filter(|(_, a)| a.owner == owner && !a.detached).map(|(id, _)| *id).collect();
        for id in owned {
            let actor = self.actors.get_mut(&id).expect("listed above");
            let failure = actor_died(format!("{} ended with the process that owned it", actor.title()));
            match &actor.phase {
                ActorPhase::Placed { worker, .. } => {
                    let worker = *worker;
                    actor.ending.get_or_insert(failure);
                    out.push(NodeAction::KillWorker(worker));
                }
                ActorPhase::Reserved | ActorPhase::Waiting(_) => self.bury(id, failure, out),
                ActorPhase::Dead(_) => {
                    self.actors.swap_remove(&id);
                }
            }
        }
    }
}

/// Blocks with arguments of a constructor.
fn stored_arguments(create: &CreateActor) -> Vec<u64> {
    let block = |dependency: &Dependency| match &dependency.outcome {
        Outcome::Stored(location) => Some(location.offset),
        Outcome::Inline(_) | Outcome::Failed(_) => None,
    };
    create.constructor.dependencies.iter().filter_map(block).collect()
}

impl Actor {
    pub(super) fn new(owner: WorkerId) -> Self {
        Self {
            owner,
            concurrency: 1,
            phase: ActorPhase::Reserved,
            subscribers: Set::default(),
            name: None,
            class: String::new(),
            is_ready: false,
            takeovers: 0,
            ending: None,
            restarts: 0,
            creation: None,
            kept: Vec::new(),
            detached: false,
            is_dropped: false,
            pace: Pace::default(),
            checkpoints: None,
        }
    }

    pub(super) fn title(&self) -> String {
        match (&self.name, self.class.as_str()) {
            (Some((_, name)), class) => format!("actor {name:?} ({class})"),
            (None, "") => "the actor".to_owned(),
            (None, class) => format!("actor {class}"),
        }
    }
}
