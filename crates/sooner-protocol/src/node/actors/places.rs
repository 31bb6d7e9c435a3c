//! Actors that processes of this node have to do with, wherever they are: which local process learns of each.
//!
//! All messages about an actor come from the control service, one after the other, and go to every local
//! subscriber. Nothing is answered from earlier ones: a process that asks for an actor that has been taken
//! over since would be told of a dead process.

use sooner_wire::message::{
    ActorDead, ActorRestarting, ActorStarted, CreateActor, Dependency, Message, Outcome, Place,
};
use sooner_wire::{ActorId, NodeId, ObjectId, WorkerId};

use crate::node::core::send;
use crate::node::{NodeActions, NodeCore};
use crate::table::{Map, Set};

/// See the module.
#[derive(Debug, Default)]
pub(in crate::node) struct Places {
    actors: Map<ActorId, ActorPlace>,
}

#[derive(Debug, Default)]
struct ActorPlace {
    subscribers: Set<WorkerId>,
    /// Blocks with arguments of its constructor, which the node keeps.
    kept: Vec<Place>,
    /// Its process, as reported last.
    at: Option<WorkerId>,
    /// It was reported to have a process.
    has_begun: bool,
}

impl Places {
    /// A process is dead.
    pub(in crate::node) fn forget(&mut self, gone: WorkerId) {
        self.actors.retain(|_, place| {
            place.subscribers.swap_remove(&gone);
            !place.subscribers.is_empty() || !place.kept.is_empty()
        });
    }

    /// Subscribers with their actors: of the actors that were reported to have a process, or of the others.
    pub(in crate::node) fn all(&self, have_begun: bool) -> impl Iterator<Item = (ActorId, WorkerId)> {
        let wanted = self.actors.iter().filter(move |(_, place)| place.has_begun == have_begun);
        wanted.flat_map(|(actor, place)| place.subscribers.iter().map(|process| (*actor, *process)))
    }

    /// Actors that have begun and for whose next process arguments are kept.
    pub(in crate::node) fn keeping(&self) -> impl Iterator<Item = ActorId> {
        let keeping = self.actors.iter().filter(|(_, place)| place.has_begun && !place.kept.is_empty());
        keeping.map(|(actor, _)| *actor)
    }

    pub(in crate::node) fn subscribers(&self, actor: ActorId) -> Vec<WorkerId> {
        self.actors.get(&actor).map(|place| place.subscribers.iter().copied().collect()).unwrap_or_default()
    }
}

impl NodeCore {
    /// Blocks kept here for actors: states with their blocks, and, without the blocks, arguments of actors
    /// that have begun. An actor that has not begun is created again.
    pub(crate) fn kept_for_actors(&self) -> Vec<(ActorId, Option<Place>)> {
        let states = self.holders.kept_states().map(|(actor, place)| (actor, Some(place)));
        states.chain(self.places.keeping().map(|actor| (actor, None))).collect()
    }

    /// Which local processes learn of which actors: of those that were reported to have a process, or of the
    /// others.
    #[must_use]
    pub fn subscribers_here(&self, have_begun: bool) -> Vec<(ActorId, WorkerId)> {
        self.places.all(have_begun).collect()
    }

    /// A process creates an actor, and learns of it from now on.
    pub(in crate::node) fn on_create_actor(
        &mut self,
        from: WorkerId,
        mut create: CreateActor,
        out: &mut NodeActions,
    ) {
        create.job = Some(self.job_of(from));
        let here = self.id();
        let place = self.places.actors.entry(create.actor).or_default();
        place.subscribers.insert(from);
        if create.detached == Some(true) {
            // Its creator may end before its process, or the next one, has read the arguments.
            for (at, object) in stored_arguments(&create, here) {
                self.holders.keep_object(at, object);
                place.kept.push(at);
            }
        }
        self.route(from, create, out);
    }

    pub(in crate::node) fn on_subscribed(
        &mut self,
        actor: ActorId,
        process: WorkerId,
        started: Option<&ActorStarted>,
        out: &mut NodeActions,
    ) {
        if !self.clients.contains_key(&process) {
            return;
        }
        self.places.actors.entry(actor).or_default().subscribers.insert(process);
        if let Some(started) = started {
            self.record_place(started, out);
            self.notify_started(process, started, out);
        }
    }

    /// An actor is at another process than was reported before. If nothing was reported in between, a
    /// restarted control service does not know that callers were not told.
    fn record_place(&mut self, started: &ActorStarted, out: &mut NodeActions) {
        let Some(place) = self.places.actors.get_mut(&started.actor) else { return };
        place.has_begun = true;
        if place.at.replace(started.worker).is_some_and(|before| before != started.worker) {
            let (actor, reason) = (started.actor, "has ended".to_owned());
            let news =
                ActorRestarting { actor, reason, last_started: None, nobody_starts_it: None, unbegun: None };
            self.notify_subscribers(actor, &news.into(), out);
        }
    }

    /// The actor gets another process.
    pub(in crate::node) fn on_actor_restarting(&mut self, news: ActorRestarting, out: &mut NodeActions) {
        if let Some(place) = self.places.actors.get_mut(&news.actor) {
            place.at = None;
        }
        self.notify_subscribers(news.actor, &news.into(), out);
    }

    pub(in crate::node) fn on_actor_started(&mut self, started: &ActorStarted, out: &mut NodeActions) {
        self.local_actors.forget_ends_before(started.actor, started.worker);
        self.record_place(started, out);
        for subscriber in self.places.subscribers(started.actor) {
            self.notify_started(subscriber, started, out);
        }
    }

    fn notify_started(&mut self, to: WorkerId, started: &ActorStarted, out: &mut NodeActions) {
        if self.clients.contains_key(&started.worker) {
            self.introduce(to, started.worker, out);
        }
        out.push(send(to, started.clone()));
    }

    /// No process can reach a node, nor ask for other processes of the actors there.
    pub(in crate::node) fn give_up_places_at(&mut self, node: NodeId, reason: &str, out: &mut NodeActions) {
        let is_there = |place: &ActorPlace| place.at.is_some_and(|process| process.node() == node);
        let there = self.places.actors.iter().filter(|(_, place)| is_there(place));
        for actor in there.map(|(actor, _)| *actor).collect::<Vec<_>>() {
            let (reason, nobody_starts_it) = (reason.to_owned(), Some(true));
            let news = ActorRestarting { actor, reason, last_started: None, nobody_starts_it, unbegun: None };
            self.notify_subscribers(actor, &news.into(), out);
        }
    }

    /// Sends a message to an actor's subscribers.
    pub(in crate::node) fn notify_subscribers(&self, actor: ActorId, news: &Message, out: &mut NodeActions) {
        out.extend(self.places.subscribers(actor).into_iter().map(|to| send(to, news.clone())));
    }

    /// An actor is dead.
    pub(in crate::node) fn on_actor_dead(&mut self, news: ActorDead, out: &mut NodeActions) {
        let actor = news.actor;
        self.local_actors.record_death_at(actor, &news.failure);
        let kept = self.places.actors.get_mut(&actor).map(|place| std::mem::take(&mut place.kept));
        for place in kept.unwrap_or_default() {
            self.let_go(place, out);
        }
        self.notify_subscribers(actor, &news.into(), out);
        self.places.actors.swap_remove(&actor);
    }
}

/// Blocks, or values on this node's disk, that are arguments of a constructor, with their objects.
fn stored_arguments(create: &CreateActor, here: NodeId) -> Vec<(Place, ObjectId)> {
    let place = |dependency: &Dependency| match &dependency.outcome {
        Outcome::Stored(location) => Some((location.place(), dependency.object)),
        // Other nodes use the same numbers.
        Outcome::Remote(remote) if remote.node == here && remote.location.place().is_disk() => {
            Some((remote.location.place(), dependency.object))
        }
        Outcome::Inline(_) | Outcome::Failed(_) | Outcome::Remote(_) => None,
    };
    create.constructor.dependencies.iter().filter_map(place).collect()
}
