//! Actors: creating them, calling them, the effects of their calls, and their end.

use std::sync::Arc;

use sooner_protocol::probes::hit;
use sooner_protocol::worker::ActorDemand;
use sooner_protocol::worker::execution::Incoming;
use sooner_protocol::worker::ownership::Slot;
use sooner_wire::message::{
    ActorCreation, Failure, FailureCode, FindName, Message, MethodCall, ReserveName, Streaming, Target,
    TaskKind,
};
use sooner_wire::{ActorId, Blob, ResourceSet, TaskId};

use super::begin::FUNCTION;
use super::{Frame, Instance, Method, Wait};
use crate::oracle::{ActorFact, Kind, Raises, State};
use crate::plan::Feature;
use crate::random::mix_two;
use crate::violation::fail;
use crate::world::{Item, World, node_of};

/// Calls at a time in each concurrency group, the default group first.
pub(crate) const PLACES: [u32; 3] = [1, 2, 1];

impl World {
    pub(super) fn create_actor(&mut self, number: u32, frame: &mut Frame) {
        if frame.locals.iter().filter(|local| local.is_actor).count() >= 3 {
            return;
        }
        let is_driver = frame.task.is_none();
        let (dependencies, mut references) = self.pick_arguments(number, frame, !is_driver);
        // A future value may contain the actor's own handle: a cycle that nothing would collect.
        references.retain(|id| {
            frame.locals.iter().any(|local| local.id == *id && !local.is_actor && local.slot.has_outcome())
        });
        let actor = self.process_mut(number).next_task();
        let mut fact = self.new_fact(Kind::Creation, frame, &dependencies);
        let raises = fact.raises == Raises::Always && self.random.chance(1, 2);
        fact.raises = Raises::Never;
        fact.retries = 0;
        let is_detached = is_driver && self.plan.has(Feature::Detached) && self.random.chance(1, 3);
        let has_groups = self.plan.has(Feature::Groups) && self.random.chance(1, 3);
        let is_named = is_detached && self.plan.has(Feature::Named) && self.random.chance(1, 2);
        let restarts = if self.plan.has(Feature::Restarts) { [0, 1, 4, -1][self.random.below(4)] } else { 0 };
        let facts = ActorFact {
            restarts,
            is_detached,
            is_unordered: self.plan.has(Feature::Unordered) && self.random.chance(1, 3),
            has_groups,
            retries: [0, 1, 3, -1][self.random.below(4)],
            deaths: 0,
            is_ended: false,
            is_restarted: false,
            raises,
            incarnations: 0,
            name: is_named.then(|| format!("actor-{}", actor.number)),
            checkpoint_every: None,
            may_hold_itself: false,
            holds_cpu: self.may_hold_cpu(),
        };
        let facts = self.with_checkpoints(facts);
        let mut spec = self.spec(actor, TaskKind::Creation, &fact, references);
        spec.target = Target::Class(self.creation(&facts));
        let restarts = facts.restarts;
        let demand = ActorDemand {
            restarts,
            detached: is_detached,
            placement: ResourceSet::from_amounts([("CPU".to_owned(), 1.0)]),
            lifetime: if facts.holds_cpu {
                ResourceSet::from_amounts([("CPU".to_owned(), 1.0)])
            } else {
                ResourceSet::default()
            },
        };
        self.oracle.facts.insert(actor, fact);
        if let Some(name) = facts.name.clone() {
            let description = Blob::default();
            let reserve = ReserveName { request: 0, namespace: String::new(), name, actor, description };
            self.send(number, node_of(number), Item::Message(Box::new(reserve.into())));
        }
        self.oracle.actors.insert(actor, facts);
        let slot = Arc::new(Slot::default());
        let reference = self.hold(actor.object(0), slot.clone());
        frame.locals.push(reference);
        self.trace.send(|| format!("{number} creates actor {actor:?}"));
        self.with_core(number, |core, out| core.create_actor(Arc::new(spec), slot, demand, out));
    }

    /// Draws how many calls the actor may run at a time, and its groups.
    fn creation(&mut self, facts: &ActorFact) -> ActorCreation {
        let checkpoint_every = facts.checkpoint_every;
        let (concurrency, groups) = if checkpoint_every.is_some() {
            (1, None)
        } else if facts.has_groups {
            (PLACES.iter().sum(), Some(PLACES[1..].into()))
        } else if self.plan.has(Feature::Groups) && self.random.chance(1, 3) {
            (3, None)
        } else {
            (1, None)
        };
        ActorCreation { concurrency, groups, checkpoint_every, ..ActorCreation::new(FUNCTION) }
    }

    /// Whether one more actor may hold a CPU for good. One CPU is left to the tasks, which could not continue
    /// without it.
    fn may_hold_cpu(&mut self) -> bool {
        if !self.plan.has(Feature::Holding) || self.random.chance(1, 4) {
            return false;
        }
        let holding = self.oracle.actors.values().filter(|facts| facts.holds_cpu && !facts.is_ended).count();
        let all = self.plan.cpus as usize * self.plan.nodes;
        if holding + 2 == all {
            hit("actors held all CPUs but one");
        }
        holding + 1 < all
    }

    /// Gives some actors checkpoints: they run one call at a time, and they restart.
    fn with_checkpoints(&mut self, facts: ActorFact) -> ActorFact {
        if !self.plan.has(Feature::Checkpoints) || self.random.chance(1, 3) {
            return facts;
        }
        let every = [1, 2, 3, 5, 12][self.random.below(5)];
        ActorFact {
            restarts: [1, 4, -1, -1][self.random.below(4)],
            is_unordered: false,
            has_groups: false,
            checkpoint_every: Some(every),
            ..facts
        }
    }

    pub(super) fn call_an_actor(&mut self, number: u32, frame: &mut Frame) {
        let actors: Vec<(ActorId, bool)> = frame
            .locals
            .iter()
            .filter(|local| local.is_actor)
            .map(|local| (local.id.task, local.may_wait))
            .collect();
        if actors.is_empty() {
            return;
        }
        let (actor, is_older) = actors[self.random.below(actors.len())];
        // A call never waits for another call, which may be queued behind it.
        let may_wait = frame.method.is_none() && is_older;
        let has_checkpoints = self.oracle.actors[&actor].checkpoint_every.is_some();
        let method = match self.pick_method(frame) {
            Method::Count if has_checkpoints && self.random.chance(1, 3) => Method::Read,
            method => method,
        };
        let is_driver = frame.task.is_none();
        let (dependencies, references) = self.pick_arguments(number, frame, !is_driver);
        let task = self.process_mut(number).next_task();
        let mut fact = self.new_fact(Kind::Call(actor, method), frame, &dependencies);
        let facts = &self.oracle.actors[&actor];
        fact.retries = if fact.raises == Raises::Always { facts.retries.max(0) } else { facts.retries };
        let (is_unordered, has_groups) = (facts.is_unordered, facts.has_groups);
        if method == Method::Exit {
            fact.raises = Raises::Never;
        }
        if has_checkpoints {
            fact.kept = Some(method != Method::Read);
            fact.asked_at = self.oracle.answers.now();
        }
        let mut spec = self.spec(task, TaskKind::Method(actor), &fact, references);
        if fact.kept == Some(true) {
            spec.retry_exceptions = false;
            let facts = self.oracle.actors.get_mut(&actor).expect("it was created");
            facts.may_hold_itself |= !spec.references.is_empty() || !spec.dependencies.is_empty();
        }
        let group =
            if has_groups { u32::try_from(self.random.below(3)).expect("few").checked_sub(1) } else { None };
        spec.target = Target::Method(MethodCall {
            retry_on: Some(FUNCTION),
            group,
            unordered: is_unordered,
            kept: fact.kept,
            ..MethodCall::new(actor)
        });
        // A reader waits for the items.
        let can_stream =
            method == Method::Count && may_wait && !has_checkpoints && self.plan.has(Feature::Streams);
        if can_stream && self.random.chance(1, 8) {
            spec.stream = Some(Streaming::default());
            fact.items = Some(u32::try_from(self.random.below(5)).expect("few"));
        }
        self.oracle.facts.insert(task, fact);
        let before = frame.locals.len();
        self.submit(number, frame, spec);
        for local in &mut frame.locals[before..] {
            local.may_wait = may_wait;
            // A frame may not wait for some tasks. Nothing that it waits for may wait for them either.
            local.may_pass = method != Method::Hand && (is_older || frame.method.is_some());
        }
    }

    fn pick_method(&mut self, frame: &Frame) -> Method {
        let is_driver = frame.task.is_none();
        let keeps = self.plan.has(Feature::State);
        match self.random.below(16) {
            0..=2 if keeps => Method::Keep,
            3 if keeps && is_driver => Method::Hand,
            4 if keeps => Method::Forget,
            5..=7 if self.plan.has(Feature::Nested) => Method::Spawn,
            8 if self.plan.has(Feature::Ending) && self.random.chance(1, 3) => Method::Exit,
            _ => Method::Count,
        }
    }

    /// A constructor begins: from now on the actor lives in this process.
    pub(super) fn begin_instance(&mut self, number: u32, incoming: &Incoming) {
        let spec = &incoming.push.spec;
        self.check_one_instance(number, spec.task);
        let facts = self.oracle.actors.get_mut(&spec.task).expect("it was created");
        facts.incarnations += 1;
        // A process that died before its constructor began used up a restart, too.
        let most = u32::try_from(facts.restarts).map_or(u32::MAX, |restarts| restarts + 1);
        if facts.incarnations > most {
            fail("I7", format!("{:?} has its {}th process", spec.task, facts.incarnations));
        }
        if facts.incarnations > 1 {
            hit("an actor was constructed again");
        }
        if facts.incarnations > 2 {
            hit("an actor was constructed a third time");
        }
        let instance = Instance {
            actor: spec.task,
            is_constructed: false,
            count: 0,
            incarnation: facts.incarnations,
            kept: Vec::new(),
            has_checkpoints: facts.checkpoint_every.is_some(),
            is_due: false,
            state: State::default(),
            checked: rustc_hash::FxHashMap::default(),
            groups: if facts.has_groups { PLACES.to_vec() } else { Vec::new() },
            concurrency: spec.concurrency(),
            is_unordered: facts.is_unordered,
            latest: rustc_hash::FxHashMap::default(),
        };
        let actor = instance.actor;
        self.process_mut(number).instance = Some(instance);
        self.restore(number, actor);
    }

    pub(super) fn end_constructor(&mut self, number: u32, frame: &mut Frame, actor: TaskId) -> bool {
        self.read_again(number, frame);
        for reference in std::mem::take(&mut frame.locals) {
            self.process_mut(number).release(reference);
        }
        if self.oracle.actors[&actor].raises {
            hit("a constructor raised");
            let failure = Failure::new(FailureCode::ActorInit, "raised");
            self.with_core(number, |core, out| core.on_constructed(actor, Some(failure), out));
            self.flush(number);
            frame.wait = Wait::End;
            return true;
        }
        if let Some(instance) = &mut self.process_mut(number).instance {
            instance.is_constructed = true;
        }
        self.with_core(number, |core, out| core.on_constructed(actor, None, out));
        false
    }

    /// A call begins: it changes the actor's state at once.
    pub(super) fn begin_call(&mut self, number: u32, frame: &mut Frame, incoming: &Incoming) {
        self.check_call(number, incoming);
        let Some(instance) = &mut self.process_mut(number).instance else { return };
        instance.count += 1;
        if instance.has_checkpoints {
            let (actor, call) = (instance.actor, incoming.push.spec.task);
            self.check_state(number, actor, call, incoming.is_early);
            let Some(instance) = &self.process(number).instance else { return };
            frame.base = mix_two(frame.base, instance.state.count_of(call.owner) as u64);
        } else {
            frame.base = mix_two(frame.base, (u64::from(instance.incarnation) << 32) | instance.count);
        }
        let Some(instance) = &mut self.process_mut(number).instance else { return };
        match frame.method {
            Some(Method::Keep) => {
                for mut reference in std::mem::take(&mut frame.locals) {
                    reference.may_wait = false;
                    instance.kept.push(reference);
                }
                if instance.kept.len() > 6 {
                    let gone: Vec<_> = instance.kept.drain(..3).collect();
                    gone.into_iter().for_each(|reference| self.process_mut(number).release(reference));
                }
            }
            Some(Method::Hand) => {
                let found = instance.kept.first().map(|kept| (kept.id, kept.slot.clone()));
                if let Some((id, slot)) = found {
                    hit("an actor returned a reference of its state");
                    let reference = self.hold(id, slot);
                    frame.locals.push(reference);
                }
            }
            Some(Method::Forget) => {
                let gone = std::mem::take(&mut instance.kept);
                gone.into_iter().for_each(|reference| self.process_mut(number).release(reference));
            }
            Some(Method::Spawn) => self.spawn(number, frame),
            Some(Method::Count | Method::Read | Method::Exit) | None => {}
        }
    }

    /// A call submits a task without arguments, and may wait for it.
    fn spawn(&mut self, number: u32, frame: &mut Frame) {
        let task = self.process_mut(number).next_task();
        let cpu = ResourceSet::from_amounts([("CPU".to_owned(), 1.0)]);
        let shape = self.process_mut(number).core.shape(&cpu);
        let fact = self.new_fact(Kind::Task, frame, &[]);
        let spec = self.spec(task, TaskKind::Task(shape), &fact, Vec::new());
        self.oracle.facts.insert(task, fact);
        self.submit(number, frame, spec);
        if self.random.chance(1, 2) {
            let child = frame.locals.last().map(|local| (local.id, local.slot.clone()));
            frame.wait = Wait::All(child.into_iter().collect());
        }
    }

    pub(super) fn exit_actor(
        &mut self,
        number: u32,
        frame: &mut Frame,
        actor: ActorId,
        call: TaskId,
    ) -> bool {
        hit("an actor ended itself");
        self.oracle.actors.get_mut(&actor).expect("it was created").is_ended = true;
        for reference in std::mem::take(&mut frame.locals) {
            self.process_mut(number).release(reference);
        }
        let failure = Failure::new(FailureCode::ActorDied, "the actor ended");
        self.with_core(number, |core, out| core.on_actor_exits(actor, call, failure, out));
        self.flush(number);
        frame.wait = Wait::End;
        true
    }

    pub(super) fn end_an_actor(&mut self, number: u32, frame: &mut Frame) {
        let actors: Vec<ActorId> =
            frame.locals.iter().filter(|local| local.is_actor).map(|local| local.id.task).collect();
        if actors.is_empty() || self.random.chance(1, 2) {
            return;
        }
        let actor = actors[self.random.below(actors.len())];
        let may_restart = self.random.chance(1, 2);
        if frame.task.is_some_and(|task| task != actor && actor.owner != self.process(number).id) {
            hit("a task ended an actor that it was given");
        }
        self.kill_actor(number, actor, may_restart);
    }

    fn kill_actor(&mut self, number: u32, actor: ActorId, may_restart: bool) {
        let facts = self.oracle.actors.get_mut(&actor).expect("it was created");
        facts.is_ended |= !may_restart;
        facts.is_restarted = true;
        self.trace.send(|| format!("{number} kills actor {actor:?} (may restart: {may_restart})"));
        self.with_core(number, |core, out| core.kill_actor(actor, "the actor", may_restart, out));
    }

    /// The driver drops a handle: it ends an actor that would live on without handles.
    pub(super) fn leave_actor(&mut self, number: u32, actor: ActorId) {
        if self.oracle.actors[&actor].is_detached {
            self.kill_actor(number, actor, false);
        }
    }

    /// Looks a named actor up at the node.
    pub(super) fn look_up(&mut self, number: u32, frame: &mut Frame) {
        if frame.method.is_some() {
            return;
        }
        let mut names: Vec<&String> =
            self.oracle.actors.values().filter_map(|facts| facts.name.as_ref()).collect();
        names.sort_unstable();
        if names.is_empty() {
            return;
        }
        let name = names[self.random.below(names.len())].clone();
        let process = self.process_mut(number);
        process.questions += 1;
        let request = process.questions;
        let find = FindName { request, namespace: String::new(), name };
        self.send(number, node_of(number), Item::Message(Box::new(find.into())));
        self.flush(number);
        frame.wait = Wait::Answer(request);
    }

    pub(super) fn on_answer(&mut self, number: u32, frame: &mut Frame, request: u64) {
        let answer = self.process_mut(number).answers.remove(&request);
        let Some(Message::Answer(answer)) = answer else { return };
        let Some(actor) = answer.actor else {
            return hit("a name was looked up whose actor was gone");
        };
        hit("an actor was found by its name");
        let id = actor.object(0);
        let slot = self.with_core(number, |core, out| {
            let me = core.me();
            core.ownership_mut().hand_over(id, me, out);
            core.ownership_mut().received(id)
        });
        let mut reference = self.hold(id, slot);
        // Nobody who keeps the handle gave it to this frame: it is not passed on.
        reference.may_pass = false;
        // The actor may be younger than this task, and its constructor may wait for the task.
        let is_needy = self.oracle.facts.get(&actor).is_none_or(|fact| !fact.dependencies.is_empty());
        reference.may_wait = frame.task.is_none() || !is_needy;
        frame.locals.push(reference);
    }
}
