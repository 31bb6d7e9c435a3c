//! The directory of actors: which exist, where they are, and when they end (Ray, section 4.2.1: the actor
//! table).
//!
//! An actor is *reserved* when its creation was announced, *pending* while no node has been asked to give it
//! a process, *placing* while one has, *placed* when it has a process, and dead for good after that. If its
//! process ends while restarts are left, the actor is pending again, with the number of the next takeover.

use std::num::NonZeroU32;

use crate::failures::title;
use crate::probes::{bug, mark};
use sooner_wire::limits::ENDED_MAX;
use sooner_wire::message::{ActorDead, ActorRestarting, ActorStarted, CreateActor, Failure, WorkerDead};
use sooner_wire::{ActorId, GroupId, NodeId, Strategy, Takeover, WorkerId};

use super::actor_died;
use super::checkpoints::Checkpoints;
use super::durable::{Held, Subject};
use super::placing::Target;
use super::recalling::Needs;
use crate::control::{Directory, DirectoryAction, DirectoryActions};
use crate::pace::Pace;
use crate::table::Set;
use crate::time::Instant;
use crate::uplink::{End, PlaceActor, ToNode};

/// How many processes in a row that end before anything of an actor has begun in them are no lives of it. One
/// more is: what it is sent may be what ends it.
const UNBEGUN_ENDS_MAX: u32 = 8;

#[derive(Debug)]
pub(in crate::control) struct Actor {
    pub(in crate::control) owner: WorkerId,
    /// The job whose workers may be its process.
    pub(in crate::control) job: WorkerId,
    pub(in crate::control) concurrency: u32,
    pub(in crate::control) phase: Phase,
    /// Processes that receive changes of the actor.
    pub(in crate::control) subscribers: Set<WorkerId>,
    pub(in crate::control) name: Option<(String, String)>,
    pub(in crate::control) class: String,
    /// Its constructor has returned.
    pub(in crate::control) is_ready: bool,
    /// How many processes took over so far.
    pub(in crate::control) takeovers: Takeover,
    /// Why it is being ended, for the message its callers get.
    pub(in crate::control) ending: Option<Failure>,
    /// How often a new process may still take over; -1 for ever.
    pub(in crate::control) restarts: i32,
    /// What a new process is sent: kept while there are restarts.
    pub(in crate::control) creation: Option<Box<CreateActor>>,
    /// The same for an actor without restarts, until its constructor has returned: the process may end before
    /// the actor has begun.
    unbegun: Option<Box<CreateActor>>,
    /// Processes in a row that ended before anything of the actor had begun in them.
    unbegun_ends: u32,
    /// How many takeovers followed such an end: they do not count as restarts.
    spared: u32,
    pub(in crate::control) detached: bool,
    /// The placement group that it runs in.
    pub(in crate::control) group: Option<GroupId>,
    /// The owner has no reference to the actor any more, or never reported one.
    is_dropped: bool,
    /// Where its latest process is or was.
    pub(in crate::control) last_node: Option<NodeId>,
    /// How soon its next process may begin.
    pub(in crate::control) pace: Pace,
    /// Nodes that could start no worker for the actor for long, and why: not asked again until it has a
    /// process.
    pub(in crate::control) refusals: Vec<(NodeId, String)>,
    /// When the latest refusal came.
    pub(in crate::control) refused_at: Instant,
    /// Its place among the waiting actors.
    pub(in crate::control) turn: u64,
    /// `Some` for an actor that takes checkpoints.
    pub(in crate::control) checkpoints: Option<Checkpoints>,
    /// Its process ends because its node leaves.
    pub(in crate::control) is_moving: bool,
    /// The node that is to give it a process was sent the request, and has not answered.
    pub(in crate::control) is_asked: bool,
}

#[derive(Debug)]
pub(in crate::control) enum Phase {
    /// A name was reserved; the creation has not come.
    Reserved,
    /// Waits for a node, or for its next process to be allowed.
    Pending(Box<CreateActor>),
    /// A node was asked to give it a process.
    Placing { node: NodeId },
    /// Has a process.
    Placed { node: NodeId, worker: WorkerId },
    /// Dead, and why.
    Dead(Failure),
}

impl Directory {
    pub(in crate::control) fn on_create_actor(
        &mut self,
        from: WorkerId,
        create: CreateActor,
        out: &mut DirectoryActions,
    ) {
        let id = create.actor;
        let actor = self.actors.entry(id).or_insert_with(|| Actor::new(from));
        match &actor.phase {
            Phase::Reserved => {}
            Phase::Dead(failure) => {
                // Killed before its creation came.
                let dead = ActorDead { actor: id, failure: failure.clone() };
                return out.push(DirectoryAction::Send(from.node(), Box::new(ToNode::Dead(Box::new(dead)))));
            }
            // Nobody creates an actor twice.
            Phase::Pending(_) | Phase::Placing { .. } | Phase::Placed { .. } => return,
        }
        actor.subscribers.insert(from);
        actor.concurrency = create.constructor.spec.concurrency();
        actor.class = create.class.name.as_str().to_owned();
        actor.restarts = create.restarts.unwrap_or(0);
        // More than zero if it had processes of which an earlier control service knew.
        actor.takeovers = Takeover(u32::try_from(create.constructor.spec.retries).unwrap_or(0));
        actor.detached = create.detached == Some(true);
        let strategy = create.constructor.spec.strategy();
        actor.group = strategy.and_then(Strategy::group).map(|place| place.group);
        actor.job = create.job.unwrap_or(from);
        actor.checkpoints = create.constructor.spec.checkpoint_every().map(|_| Checkpoints::default());
        let lacking = || self.lacks_labels(from.node(), &create);
        if let Some(report) = self.infeasible([&create.placement, &create.lifetime]).or_else(lacking) {
            self.send(from, report, out);
        }
        if let Err(bytes) = self.record_creation(&create) {
            let failure = actor_died(format!(
                "{} could not begin: its class and arguments are {bytes} bytes, more than the head can write down for an actor that outlives it: give it large values with sooner.put()",
                self.title_of(id)
            ));
            return self.bury(id, failure, out);
        }
        self.wait(id, Box::new(create));
    }

    /// An actor waits for a process.
    pub(in crate::control) fn wait(&mut self, id: ActorId, create: Box<CreateActor>) {
        self.forget_sent(id);
        let Some(actor) = self.actors.get_mut(&id) else { return };
        actor.is_asked = false;
        actor.turn = self.turns;
        self.turns += 1;
        actor.phase = Phase::Pending(create);
        self.pending.push_back(id);
    }

    /// Asks nodes to give processes to the waiting actors that may begin.
    pub(in crate::control) fn place_actors(&mut self, now: Instant, out: &mut DirectoryActions) {
        for id in std::mem::take(&mut self.pending) {
            let Some(actor) = self.actors.get_mut(&id) else { continue };
            let may_begin = actor.pace.may_begin(now);
            let Phase::Pending(create) = &self.actors[&id].phase else { continue };
            if !may_begin {
                self.pending.push_back(id);
                continue;
            }
            let target = self.target_of(id, &Needs::of(create), None);
            let waits = matches!(target, Target::Queue(_));
            match target {
                Target::Node(node) | Target::Queue(node) => {
                    self.record_sent(id, node, waits, now);
                    self.place_on(id, node, out);
                }
                Target::None => self.pending.push_back(id),
                Target::Never(failure) => self.bury(id, failure, out),
            }
        }
    }

    /// Asks a node to give an actor a process. What that is sent goes to the node, and stays here only for
    /// the next one.
    pub(in crate::control) fn place_on(&mut self, id: ActorId, node: NodeId, out: &mut DirectoryActions) {
        let Some(actor) = self.actors.get_mut(&id) else { return };
        let phase = std::mem::replace(&mut actor.phase, Phase::Placing { node });
        let Phase::Pending(create) = phase else { return };
        actor.keep_creation(Some(create.clone()));
        let named = actor.name.as_ref().and_then(|name| self.names.get(name));
        let place = PlaceActor {
            takeover: actor.takeovers,
            turn: actor.turn,
            name: actor.name.clone(),
            restores: actor.restores(),
            create,
            restarts: Some(actor.restarts),
            description: named.map(|(_, description)| description.clone()),
        };
        let place = Box::new(place);
        if self.is_durable(id) {
            self.confirm(id);
            return self.when_written(|| Subject::Actor(id), Held::Place(node, place), out);
        }
        self.ask_for_process(node, place, out);
    }

    /// Sends a node the request to give an actor a process.
    pub(in crate::control) fn ask_for_process(
        &mut self,
        node: NodeId,
        place: Box<PlaceActor>,
        out: &mut DirectoryActions,
    ) {
        if let Some(actor) = self.actors.get_mut(&place.create.actor) {
            actor.is_asked = true;
        }
        out.push(DirectoryAction::Send(node, Box::new(ToNode::PlaceActor(place))));
    }

    /// A node gave an actor a process.
    pub(in crate::control) fn on_actor_placed(
        &mut self,
        id: ActorId,
        takeover: Takeover,
        (node, worker): (NodeId, WorkerId),
        now: Instant,
        out: &mut DirectoryActions,
    ) {
        let Some(actor) = self.actors.get_mut(&id) else { return };
        let is_it = matches!(actor.phase, Phase::Placing { node: asked } if asked == node);
        if actor.takeovers != takeover || !is_it {
            if !matches!(actor.phase, Phase::Placed { worker: its, .. } if its == worker) {
                // An earlier control service asked that node, and this one did not know.
                let end = ToNode::EndActor { actor: id, takeover, end: End::Killed };
                out.push(DirectoryAction::Send(node, Box::new(end)));
            }
            return;
        }
        actor.phase = Phase::Placed { node, worker };
        actor.is_asked = false;
        if actor.ending.is_some() {
            // The actor was ended meanwhile, so this process ends, unknown to subscribers.
            actor.last_node = Some(node);
            self.forget_sent(id);
            return self.end_process(id, End::Killed, out);
        }
        actor.pace.begins(now);
        actor.refusals.clear();
        self.recalls.forget(id);
        self.rows.begun(id, node, now);
        self.restore(id, node, worker, out);
        let started = self.actors[&id].started(id, worker);
        self.tell(id, &ToNode::Started(Box::new(started)), out);
        // Only now: the node of the process before has learned of this one, too.
        self.actors[&id].last_node = Some(node);
        self.leave_if_draining(id, node, out);
    }

    /// A node refuses to give an actor a process, and no other node is asked: the job has ended meanwhile.
    pub(in crate::control) fn on_place_refused(
        &mut self,
        node: NodeId,
        id: ActorId,
        takeover: Takeover,
        reason: &str,
        out: &mut DirectoryActions,
    ) {
        let Some(actor) = self.actors.get(&id) else { return };
        let is_it = matches!(actor.phase, Phase::Placing { node: asked } if asked == node);
        if actor.takeovers == takeover && is_it {
            let failure = actor_died(format!("{} could not begin: {reason}", actor.title()));
            self.bury(id, failure, out);
        }
    }

    pub(in crate::control) fn on_subscribe(
        &mut self,
        from: WorkerId,
        id: ActorId,
        out: &mut DirectoryActions,
    ) {
        if from == id.owner {
            // The owner announces the actor: its constructor waits for arguments.
            self.actors.entry(id).or_insert_with(|| Actor::new(from));
        }
        let Some(actor) = self.actors.get_mut(&id) else { return self.look_up(id, from, out) };
        let worker = match &actor.phase {
            Phase::Reserved | Phase::Pending(_) | Phase::Placing { .. } => None,
            Phase::Placed { worker, .. } => Some(*worker),
            Phase::Dead(failure) => {
                let dead = ActorDead { actor: id, failure: failure.clone() };
                return self.send(from, dead, out);
            }
        };
        actor.subscribers.insert(from);
        // A process that is known to have ended is not reported as started.
        let lives =
            |_: &WorkerId| !self.unheard_ends.iter().any(|end| (end.0, end.1) == (id, actor.takeovers));
        let started = worker.filter(lives).map(|worker| Box::new(actor.started(id, worker)));
        let subscribed = ToNode::Subscribed { actor: id, process: from, started };
        out.push(DirectoryAction::Send(from.node(), Box::new(subscribed)));
    }

    /// Sends `news` to each node with subscribers, and to the one that has or had the process. The owner's
    /// node keeps the arguments of a detached actor.
    fn tell(&self, id: ActorId, news: &ToNode, out: &mut DirectoryActions) {
        let Some(actor) = self.actors.get(&id) else { return };
        let keeper = actor.detached.then_some(actor.owner);
        let hearers = actor.subscribers.iter().copied().chain(keeper).map(WorkerId::node);
        // When an actor is dead, nodes must not report its earlier processes again, either.
        let is_dead = matches!(news, ToNode::Dead(_));
        let earlier = actor.checkpoints.iter().filter(|_| is_dead).flat_map(Checkpoints::nodes_of_earlier);
        let known =
            hearers.chain(actor.last_node).chain(earlier).filter(|node| self.nodes.contains_key(node));
        let nodes: Set<NodeId> = known.collect();
        out.extend(nodes.into_iter().map(|node| DirectoryAction::Send(node, Box::new(news.clone()))));
    }

    pub(in crate::control) fn on_actor_ready(
        &mut self,
        id: ActorId,
        failure: Option<Failure>,
        out: &mut DirectoryActions,
    ) {
        let Some(actor) = self.actors.get_mut(&id) else { return };
        let Some(failure) = failure else {
            actor.is_ready = true;
            (actor.unbegun, actor.unbegun_ends) = (None, 0);
            if let Some(checkpoints) = &mut actor.checkpoints {
                checkpoints.begins(true);
                self.let_earlier_go(id, out);
            }
            return;
        };
        if matches!(actor.phase, Phase::Reserved) {
            // An argument of its constructor failed.
            return self.bury(id, failure, out);
        }
        // The process ends by itself, and its end publishes this failure.
        actor.ending.get_or_insert(failure);
        if matches!(actor.phase, Phase::Placed { .. }) {
            self.end_process(id, End::Finished, out);
        }
    }

    /// Ends the process of an actor, or the one that it is to get.
    pub(in crate::control) fn end_process(&self, id: ActorId, end: End, out: &mut DirectoryActions) {
        let Some(actor) = self.actors.get(&id) else { return };
        if let Phase::Placed { node, .. } | Phase::Placing { node } = actor.phase {
            let end = ToNode::EndActor { actor: id, takeover: actor.takeovers, end };
            out.push(DirectoryAction::Send(node, Box::new(end)));
        }
    }

    pub(in crate::control) fn on_kill_actor(
        &mut self,
        id: ActorId,
        may_restart: bool,
        out: &mut DirectoryActions,
    ) {
        if may_restart && self.actors.get(&id).is_none_or(Actor::has_no_process_to_kill) {
            // The actor is starting. The kill is aimed at a process, and a process is coming.
            return;
        }
        let unknown = || Actor { is_dropped: true, ..Actor::new(id.owner) };
        let actor = self.actors.entry(id).or_insert_with(unknown);
        if actor.is_waiting() && actor.takeovers > Takeover::FIRST {
            mark!("an actor was ended while it was starting again");
        }
        let failure = actor_died(format!("{} was ended by sooner.kill()", actor.title()));
        match &actor.phase {
            Phase::Placed { .. } if may_restart && actor.restarts != 0 => {
                self.end_process(id, End::Killed, out);
            }
            Phase::Placed { .. } => {
                actor.ending.get_or_insert(failure);
                self.free_name(id);
                self.end_process(id, End::Killed, out);
            }
            Phase::Reserved | Phase::Pending(_) | Phase::Placing { .. } => self.end_unbegun(id, failure, out),
            Phase::Dead(_) => {}
        }
    }

    /// Ends an actor that has no process. If a node may be giving it one, the end is published only after
    /// that node has reported that nothing of the actor is there: the owner of the constructor's arguments
    /// releases them when it learns of the end, and they may lie on that node.
    fn end_unbegun(&mut self, id: ActorId, failure: Failure, out: &mut DirectoryActions) {
        let Some(actor) = self.actors.get_mut(&id) else { return };
        match actor.phase {
            Phase::Placing { node } if actor.is_asked && self.nodes.contains_key(&node) => {
                actor.ending.get_or_insert(failure);
                self.forget_sent(id);
                self.free_name(id);
                self.end_process(id, End::Killed, out);
            }
            _ => self.bury(id, failure, out),
        }
    }

    /// A node reports that an actor has no process there and will get none. True if that answer was awaited.
    pub(in crate::control) fn has_ended_unbegun(
        &mut self,
        node: NodeId,
        id: ActorId,
        takeover: Takeover,
        out: &mut DirectoryActions,
    ) -> bool {
        let is_it = self.is_placing(id, takeover, node);
        let ending = self.actors.get_mut(&id).filter(|_| is_it).and_then(|actor| actor.ending.take());
        let Some(failure) = ending else { return false };
        self.bury(id, failure, out);
        true
    }

    pub(in crate::control) fn on_out_of_scope(&mut self, id: ActorId, out: &mut DirectoryActions) {
        let Some(actor) = self.actors.get_mut(&id) else { return };
        actor.is_dropped = true;
        let failure = actor_died(format!("{} ended because its last handle was dropped", actor.title()));
        match &actor.phase {
            Phase::Reserved | Phase::Pending(_) | Phase::Placing { .. } => {
                self.end_unbegun(id, failure, out);
                if self.actors.get(&id).is_some_and(Actor::has_ended) {
                    self.actors.swap_remove(&id);
                }
            }
            Phase::Placed { .. } => {
                actor.ending.get_or_insert(failure);
                self.free_name(id);
                self.end_process(id, End::Finished, out);
            }
            Phase::Dead(_) => {
                self.actors.swap_remove(&id);
            }
        }
    }

    pub(in crate::control) fn on_actor_process_dead(
        &mut self,
        id: ActorId,
        takeover: Takeover,
        gone: WorkerDead,
        out: &mut DirectoryActions,
    ) {
        let Some(actor) = self.actors.get_mut(&id) else { return };
        if actor.takeovers != takeover || !matches!(actor.phase, Phase::Placed { .. }) {
            if takeover < actor.takeovers || actor.has_ended() {
                // A process that had to end, because there is a later one.
                self.record_earlier(id, gone.worker, takeover, out);
            }
            return;
        }
        let has_begun = actor.is_ready || gone.all_begun == Some(true) || gone.last_started.is_some();
        if !actor.spares(has_begun) {
            actor.unbegun = None;
        }
        if actor.ending.is_none() && (actor.restarts != 0 || actor.unbegun.is_some()) {
            return self.restart(id, gone, has_begun, out);
        }
        let title = actor.title();
        let failure = actor.ending.take().unwrap_or_else(|| {
            let reason = gone.reason;
            actor_died(format!(
                "{title} died: its process {reason}. Calls that were running may have been executed in part"
            ))
        });
        self.bury(id, failure, out);
    }

    /// A new process takes over: it is placed like a new actor, under the same id and name. The process
    /// before does not count as a life if it ended before anything of the actor had begun there: a worker may
    /// end at the moment at which it becomes an actor.
    fn restart(&mut self, id: ActorId, gone: WorkerDead, has_begun: bool, out: &mut DirectoryActions) {
        let actor = self.actors.get_mut(&id).expect("looked up by the caller");
        let creation = actor.creation.take().or_else(|| actor.unbegun.take());
        let mut creation = creation.expect("kept while there are restarts, or it has not begun");
        let is_moving = std::mem::take(&mut actor.is_moving);
        actor.pace.ended(actor.is_ready || is_moving);
        let is_spared = actor.spares(has_begun);
        actor.unbegun_ends = if is_spared { actor.unbegun_ends + 1 } else { 0 };
        actor.spared += u32::from(is_spared);
        if is_spared {
            mark!("the process of an actor ended before anything of it had begun there");
        }
        if !is_moving && !is_spared && !bug!(RestartUncounted) {
            actor.restarts -= i32::from(actor.restarts > 0);
        }
        actor.is_ready = false;
        if let Some(checkpoints) = &mut actor.checkpoints {
            checkpoints.record_earlier(gone.worker, actor.takeovers, checkpoints.has_begun());
            checkpoints.begins(false);
        }
        actor.takeovers = actor.takeovers.next();
        // The constructor learns that it is not the first one.
        creation.constructor.spec.retries += 1;
        self.wait(id, creation);
        let WorkerDead { reason, last_started, .. } = gone;
        let unbegun = (!has_begun).then_some(true);
        let restarting = ActorRestarting { actor: id, reason, last_started, nobody_starts_it: None, unbegun };
        self.tell(id, &ToNode::Restarting(Box::new(restarting)), out);
    }

    /// Declares an actor dead for good; the process of a placed one must have ended. A node that may be
    /// giving it one is told to end that.
    pub(in crate::control) fn bury(&mut self, id: ActorId, failure: Failure, out: &mut DirectoryActions) {
        self.forget_sent(id);
        self.drop_checkpoint(id, out);
        if self.actors.get(&id).is_some_and(Actor::is_waiting) {
            self.end_process(id, End::Killed, out);
        }
        self.free_name(id);
        let mut before = None;
        if let Some(actor) = self.actors.get_mut(&id) {
            if let Phase::Placing { node } = actor.phase {
                // This node may have given the actor a process. It must not report that one's end to a later
                // control service as that of an actor which may start again; nor must the node of the process
                // before report that end.
                before = actor.last_node.replace(node).filter(|before| *before != node);
            }
            actor.phase = Phase::Dead(failure.clone());
            (actor.creation, actor.unbegun) = (None, None);
        }
        self.record_actor(id);
        let dead = ToNode::Dead(Box::new(ActorDead { actor: id, failure }));
        self.tell(id, &dead, out);
        let before = before.filter(|before| self.nodes.contains_key(before));
        out.extend(before.map(|before| DirectoryAction::Send(before, Box::new(dead))));
        self.retire(id);
        self.jobs.record_end();
    }

    /// An actor that no other node has reported is dead for good.
    pub(in crate::control) fn bury_unknown(&mut self, id: ActorId, failure: Failure) {
        let phase = Phase::Dead(failure);
        self.actors.insert(id, Actor { phase, is_dropped: true, ..Actor::new(id.owner) });
        self.retire(id);
    }

    /// Actors in a placement group.
    pub(in crate::control) fn actors_in(&self, group: GroupId) -> Vec<ActorId> {
        let is_in = |actor: &Actor| actor.group == Some(group) && !matches!(actor.phase, Phase::Dead(_));
        self.actors.iter().filter(|(_, actor)| is_in(actor)).map(|(id, _)| *id).collect()
    }

    /// Ends an actor for good, with a process or without.
    pub(in crate::control) fn end_actor(
        &mut self,
        id: ActorId,
        failure: Failure,
        out: &mut DirectoryActions,
    ) {
        let Some(actor) = self.actors.get_mut(&id) else { return };
        match &actor.phase {
            Phase::Placed { .. } => {
                actor.ending.get_or_insert(failure);
                self.free_name(id);
                self.end_process(id, End::Killed, out);
            }
            Phase::Reserved | Phase::Pending(_) | Phase::Placing { .. } => self.end_unbegun(id, failure, out),
            Phase::Dead(_) => {}
        }
    }

    /// An ended actor has no subscribers any more. One that nobody refers to is kept for a while, for tools
    /// that show the state.
    fn retire(&mut self, id: ActorId) {
        let Some(actor) = self.actors.get_mut(&id) else { return };
        actor.subscribers.clear();
        if !actor.is_dropped {
            return;
        }
        self.ended_actors.push_back(id);
        if self.ended_actors.len() > ENDED_MAX
            && let Some(oldest) = self.ended_actors.pop_front()
        {
            self.actors.swap_remove(&oldest);
        }
    }

    /// What an actor is called, for people.
    pub(in crate::control) fn title_of(&self, id: ActorId) -> String {
        self.actors.get(&id).map_or_else(|| title(None, ""), Actor::title)
    }

    /// Whether an actor of a job lives, or is to live.
    #[must_use]
    pub fn has_actors(&self, job: WorkerId) -> bool {
        self.actors.values().any(|actor| actor.job == job && !matches!(actor.phase, Phase::Dead(_)))
    }

    /// Actors share their owner's fate.
    pub(in crate::control) fn end_actors_of(
        &mut self,
        owner: WorkerId,
        end: End,
        out: &mut DirectoryActions,
    ) {
        let owned: Vec<ActorId> =
            self.actors.iter().filter(|(_, a)| a.owner == owner && !a.detached).map(|(id, _)| *id).collect();
        for id in owned {
            let actor = self.actors.get_mut(&id).expect("listed above");
            let failure = actor_died(format!("{} ended with the process that owned it", actor.title()));
            match &actor.phase {
                Phase::Placed { .. } => {
                    actor.ending.get_or_insert(failure);
                    self.end_process(id, end, out);
                }
                Phase::Reserved | Phase::Pending(_) | Phase::Placing { .. } => self.bury(id, failure, out),
                Phase::Dead(_) => {
                    self.actors.swap_remove(&id);
                }
            }
        }
    }
}

impl Actor {
    pub(in crate::control) fn new(owner: WorkerId) -> Self {
        Self {
            owner,
            job: owner,
            concurrency: 1,
            phase: Phase::Reserved,
            subscribers: Set::default(),
            name: None,
            class: String::new(),
            is_ready: false,
            takeovers: Takeover(0),
            ending: None,
            restarts: 0,
            creation: None,
            unbegun: None,
            unbegun_ends: 0,
            spared: 0,
            detached: false,
            group: None,
            is_dropped: false,
            last_node: None,
            pace: Pace::default(),
            turn: 0,
            checkpoints: None,
            refusals: Vec::new(),
            refused_at: Instant(0),
            is_moving: false,
            is_asked: false,
        }
    }

    /// Keeps what a next process is sent, if there may be one: after restarts, or if this one ends before the
    /// actor has begun.
    pub(in crate::control) fn keep_creation(&mut self, told: Option<Box<CreateActor>>) {
        (self.creation, self.unbegun) = match self.restarts {
            0 => (None, told.filter(|_| !self.is_ready)),
            _ => (told, None),
        };
    }

    /// Whether the end of a process does not count as a life.
    fn spares(&self, has_begun: bool) -> bool {
        !has_begun && self.unbegun_ends < UNBEGUN_ENDS_MAX
    }

    /// How often another process has taken over from one in which the actor had begun.
    pub(in crate::control) fn restarted(&self) -> u32 {
        self.takeovers.0.saturating_sub(self.spared)
    }

    /// Whether another process may take over from the present one.
    pub(in crate::control) fn may_move(&self) -> bool {
        self.restarts != 0 && self.ending.is_none() && self.group.is_none()
    }

    /// Its creation has come, and it has no process.
    fn is_waiting(&self) -> bool {
        matches!(self.phase, Phase::Pending(_) | Phase::Placing { .. })
    }

    /// It waits for its creation or for a process: for its first process only if others may follow.
    fn has_no_process_to_kill(&self) -> bool {
        let may_begin_again = self.restarted() > 0 || self.restarts != 0;
        matches!(self.phase, Phase::Reserved) || (self.is_waiting() && may_begin_again)
    }

    /// Its next process begins with the state of the one before.
    pub(in crate::control) fn restores(&self) -> bool {
        self.takeovers > Takeover::FIRST && self.checkpoints.is_some()
    }

    /// Where its process is, or is to be.
    pub(in crate::control) fn place(&self) -> Option<(NodeId, Option<WorkerId>)> {
        match self.phase {
            Phase::Placing { node } => Some((node, None)),
            Phase::Placed { node, worker } => Some((node, Some(worker))),
            Phase::Reserved | Phase::Pending(_) | Phase::Dead(_) => None,
        }
    }

    /// More is known of it than that it is to come.
    pub(in crate::control) fn is_known(&self) -> bool {
        !matches!(self.phase, Phase::Reserved)
    }

    /// It survives a restart of the control service, whatever its nodes know.
    pub(in crate::control) fn outlives_control(&self) -> bool {
        self.detached || self.name.is_some()
    }

    pub(in crate::control) fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Dead(_))
    }

    fn started(&self, actor: ActorId, worker: WorkerId) -> ActorStarted {
        let replays = self.restores().then_some(true);
        let restarts = NonZeroU32::new(self.restarted());
        ActorStarted { actor, worker, concurrency: self.concurrency, replays, restarts }
    }

    pub(in crate::control) fn title(&self) -> String {
        title(self.name.as_ref(), &self.class)
    }
}
