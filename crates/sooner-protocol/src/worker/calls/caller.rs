//! Calls to actors: where each actor lives and the order of the calls to it (Ray, section 4.2.2: stateful
//! edges).
//!
//! Calls of one caller reach an actor in the order of submission: a call whose arguments are missing holds
//! the later ones back. A call that is made again for its lost result goes before all queued ones, which may
//! wait for it. Calls go straight to the actor's process; the node is asked once for its place.
//!
//! Invariants:
//! - A1: a call is queued or in flight, never both.
//! - A2: calls leave the queue from its front only, unless they are cancelled or wait for an argument again;
//!   those that recover a value leave first, the oldest of them before the others.
//! - A3: a call is held back for the size of its arguments only while so many calls are in flight that it
//!   could not run yet, and none of them can wait for it.
//!
//! It never sends: [`Callers::next_call`] names call and process.

use std::collections::{BTreeSet, VecDeque};
use std::num::NonZeroU32;
use std::sync::Arc;

use sooner_wire::limits::ACTOR_CALLS_IN_FLIGHT;
use sooner_wire::message::{ActorStarted, Failure, TaskSpec};
use sooner_wire::{ActorId, ObjectId, WorkerId};

use super::Kept;
use crate::table::{Map, Set};

/// Where an actor is.
#[derive(Debug, Clone, PartialEq)]
pub enum ActorPlace {
    /// Created or asked for; the node has not answered.
    Pending,
    /// In this process, which takes a window of calls ahead.
    At {
        /// The process.
        worker: WorkerId,
        /// Calls that may be in flight.
        window: usize,
        /// Calls that it runs at a time.
        concurrency: usize,
    },
    /// Its process is taken for dead, and no node can start another one now: calls fail.
    OutOfReach(Failure),
    /// Dead for good.
    Dead(Failure),
}

/// Where a call is queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Behind the others.
    Last,
    /// Before them: it is made once more, and one of them may wait for its result.
    First,
    /// It is made again for its lost result, and has no place in the order.
    Recovering,
}

#[derive(Debug)]
struct Caller {
    place: ActorPlace,
    queue: VecDeque<u64>,
    /// Queued calls that are made again for their lost results. They go before all others in the queue, and
    /// take no heed of the window: all that are in flight may wait for one of them.
    recovering: BTreeSet<u64>,
    in_flight: Set<u64>,
    /// Bytes of arguments in memory, per call in flight that has any; below, their sum.
    arguments: Map<u64, u64>,
    argument_bytes: u64,
    /// A call to one of its concurrency groups was made: it may run while all of another group wait for it.
    has_groups: bool,
    /// How often another process has taken the actor over, as last reported; `None`: nothing was.
    restarts: Option<u32>,
    /// The object that fails when the actor is dead, if this process has asked for it.
    end: Option<ObjectId>,
    /// Only for an actor with checkpoints.
    kept: Option<Box<Kept>>,
}

/// The calls that were in flight when an actor's process ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Interrupted {
    /// Kept for a checkpoint: pushed again.
    pub kept: Vec<u64>,
    /// Not kept, in order.
    pub others: Vec<u64>,
}

/// Every actor this process calls.
#[derive(Debug, Default)]
pub struct Callers {
    actors: Map<ActorId, Caller>,
    /// Actors that were taken over and whose kept calls are to be pushed again.
    replaying: Set<ActorId>,
    /// Calls in flight with a known outcome: pushed again only for their effects.
    ghosts: Map<u64, ActorId>,
    /// Bytes of arguments in memory that may wait at an actor.
    argument_bytes_max: Option<u64>,
}

impl Callers {
    /// Bounds the bytes of arguments in memory that wait at an actor: they stay there until its calls have
    /// run.
    pub fn set_argument_bytes(&mut self, most: u64) {
        self.argument_bytes_max = Some(most);
    }

    /// An actor has concurrency groups.
    pub fn record_groups(&mut self, actor: ActorId) {
        if let Some(caller) = self.actors.get_mut(&actor) {
            caller.has_groups = true;
        }
    }

    /// Whether a call with `bytes` bytes of arguments in memory should wait here, where they can go to disk:
    /// it would wait at the actor as well.
    #[must_use]
    pub fn holds_back(&self, actor: ActorId, bytes: u64) -> bool {
        let (Some(most), Some(caller)) = (self.argument_bytes_max, self.actors.get(&actor)) else {
            return false;
        };
        let ActorPlace::At { concurrency, .. } = caller.place else { return false };
        // With checkpoints, calls that are made again after a takeover may wait for new calls.
        let is_simple = !caller.has_groups && caller.kept.is_none();
        // One more than the actor runs, so that it need not wait for the next call.
        let cannot_run = is_simple && caller.in_flight.len() > concurrency;
        bytes > 0 && cannot_run && caller.argument_bytes + bytes > most
    }

    /// Whether the actor was known already; if not, the caller must ask the node.
    pub fn meet(&mut self, actor: ActorId) -> bool {
        let mut is_new = false;
        self.actors.entry(actor).or_insert_with(|| {
            is_new = true;
            Caller {
                place: ActorPlace::Pending,
                queue: VecDeque::new(),
                recovering: BTreeSet::new(),
                in_flight: Set::default(),
                arguments: Map::default(),
                argument_bytes: 0,
                has_groups: false,
                restarts: None,
                end: None,
                kept: None,
            }
        });
        !is_new
    }

    /// Actors that live in this process.
    #[must_use]
    pub fn at(&self, process: WorkerId) -> Vec<ActorId> {
        let is_there =
            |caller: &Caller| matches!(caller.place, ActorPlace::At { worker, .. } if worker == process);
        self.actors.iter().filter(|(_, caller)| is_there(caller)).map(|(id, _)| *id).collect()
    }

    /// Queues a call, or says why it cannot run.
    ///
    /// # Errors
    /// The failure of an actor that is dead or out of reach.
    pub fn enqueue(&mut self, actor: ActorId, task: u64, turn: Turn) -> Result<(), Failure> {
        let caller = self.actors.get_mut(&actor).expect("met before");
        if let ActorPlace::Dead(failure) | ActorPlace::OutOfReach(failure) = &caller.place {
            return Err(failure.clone());
        }
        caller.enqueue(task, turn);
        Ok(())
    }

    /// The next call and where it may go now.
    #[must_use]
    pub fn next_call(&self, actor: ActorId) -> Option<(u64, WorkerId)> {
        let caller = self.actors.get(&actor).filter(|caller| !caller.is_replaying())?;
        match caller.recovering.first() {
            Some(first) => Some((*first, caller.process()?)),
            None => Some((*caller.queue.front()?, caller.room()?)),
        }
    }

    /// The next call that recovers a value, and where it may go now: it is older than the call `before`,
    /// which is to be pushed again and waits for an argument.
    #[must_use]
    pub fn next_recovering(&self, actor: ActorId, before: u64) -> Option<(u64, WorkerId)> {
        let caller = self.actors.get(&actor)?;
        let first = caller.recovering.first().filter(|number| **number < before)?;
        Some((*first, caller.process()?))
    }

    /// The call that is next was pushed, with `bytes` bytes of arguments in memory.
    pub fn on_pushed(&mut self, actor: ActorId, task: u64, bytes: u64) {
        let caller = self.actors.get_mut(&actor).expect("next_call found it");
        let next = caller.recovering.pop_first().or_else(|| caller.queue.pop_front());
        assert_eq!(next, Some(task), "A2: it is another one's turn");
        assert!(caller.in_flight.insert(task), "A1: call {task} was queued and in flight");
        if bytes > 0 {
            caller.arguments.insert(task, bytes);
            caller.argument_bytes += bytes;
        }
    }

    /// A call ended.
    pub fn on_reply(&mut self, actor: ActorId, task: u64) {
        if let Some(caller) = self.actors.get_mut(&actor) {
            caller.in_flight.swap_remove(&task);
            if !caller.arguments.is_empty() {
                caller.argument_bytes -= caller.arguments.swap_remove(&task).unwrap_or(0);
            }
        }
    }

    /// The calls that are kept, of all actors.
    pub fn kept_calls(&self) -> impl Iterator<Item = &TaskSpec> {
        self.actors.values().filter_map(|caller| caller.kept.as_ref()).flat_map(|kept| kept.calls())
    }

    /// A call to an actor with checkpoints was pushed for the first time.
    pub fn keep(&mut self, actor: ActorId, spec: Arc<TaskSpec>) {
        if let Some(caller) = self.actors.get_mut(&actor) {
            caller.kept.get_or_insert_default().add(spec);
        }
    }

    /// Takes out a kept call, if it is there.
    pub fn forget_kept(&mut self, actor: ActorId, task: u64) -> Option<Arc<TaskSpec>> {
        let caller = self.actors.get_mut(&actor)?;
        // This call, whose reply has come, is not among them.
        let in_flight = caller.in_flight.len() + 1;
        caller.kept.as_mut()?.remove(task, in_flight)
    }

    /// A checkpoint covers these calls: takes them out.
    pub fn cover(&mut self, actor: ActorId, calls: &[u64]) -> Vec<Arc<TaskSpec>> {
        let kept = self.actors.get_mut(&actor).and_then(|caller| caller.kept.as_mut());
        kept.map(|kept| kept.cover(calls)).unwrap_or_default()
    }

    /// Takes all kept calls: the actor is dead for good.
    pub fn take_kept(&mut self, actor: ActorId) -> Vec<Arc<TaskSpec>> {
        self.replaying.swap_remove(&actor);
        self.ghosts.retain(|_, of| *of != actor);
        let kept = self.actors.get_mut(&actor).and_then(|caller| caller.kept.take());
        kept.map(|kept| kept.into_specs().collect()).unwrap_or_default()
    }

    /// Whether calls of any actor are being pushed again.
    #[inline]
    #[must_use]
    pub fn is_replaying(&self) -> bool {
        !self.replaying.is_empty()
    }

    /// Actors whose calls are being pushed again.
    #[must_use]
    pub fn replaying(&self) -> Vec<ActorId> {
        self.replaying.iter().copied().collect()
    }

    /// The kept call to push again next, and where to, if there is room now.
    #[must_use]
    pub fn next_replay(&self, actor: ActorId) -> Option<(Arc<TaskSpec>, WorkerId)> {
        let caller = self.actors.get(&actor)?;
        let kept = caller.kept.as_ref().filter(|kept| kept.is_replaying())?;
        Some((kept.next()?.clone(), caller.room()?))
    }

    /// The next kept call was pushed again. `is_ghost`: its outcome is known already.
    pub fn on_replayed(&mut self, actor: ActorId, task: u64, is_ghost: bool) {
        let caller = self.actors.get_mut(&actor).expect("next_replay found it");
        caller.kept.as_mut().expect("next_replay found it").on_pushed();
        assert!(caller.in_flight.insert(task), "A1: call {task} was kept and in flight");
        if is_ghost {
            self.ghosts.insert(task, actor);
        }
    }

    /// The process that must learn, once, that all answered calls were pushed again.
    pub fn take_replay_end(&mut self, actor: ActorId) -> Option<WorkerId> {
        let caller = self.actors.get_mut(&actor)?;
        let ActorPlace::At { worker, .. } = caller.place else { return None };
        caller.kept.as_mut()?.take_end().then_some(worker)
    }

    /// Whether all kept calls were pushed: then new ones may be.
    pub fn finish_replay(&mut self, actor: ActorId) -> bool {
        let kept = self.actors.get_mut(&actor).and_then(|caller| caller.kept.as_mut());
        let is_done = kept.is_some_and(|kept| kept.is_replaying() && kept.finish());
        if is_done {
            self.replaying.swap_remove(&actor);
        }
        is_done
    }

    /// A reply came for which no task waits. Gives the actor if the call was a ghost.
    pub fn on_ghost_reply(&mut self, task: u64) -> Option<ActorId> {
        let actor = self.ghosts.swap_remove(&task)?;
        self.on_reply(actor, task);
        Some(actor)
    }

    /// Takes out a queued call.
    pub fn remove_queued(&mut self, actor: ActorId, task: u64) {
        if let Some(caller) = self.actors.get_mut(&actor)
            && !caller.recovering.remove(&task)
        {
            caller.queue.retain(|queued| *queued != task);
        }
    }

    /// The node names the actor's process, and whether that took the actor over and waits for kept calls.
    pub fn on_started(&mut self, started: &ActorStarted) {
        let ActorStarted { actor, worker, concurrency, .. } = *started;
        let window = ACTOR_CALLS_IN_FLIGHT.max(2 * concurrency as usize);
        // It may have gone out of scope here. Or this process ended it while it started: then its calls do
        // not go there any more.
        let Some(caller) = self.actors.get_mut(&actor) else { return };
        // The node may report it twice: to all callers, and to one that asks. Calls are pushed to a process
        // once.
        let is_known = matches!(caller.place, ActorPlace::At { worker: before, .. } if before == worker);
        if is_known || matches!(caller.place, ActorPlace::Dead(_)) {
            return;
        }
        caller.restarts = Some(started.restarts.map_or(0, NonZeroU32::get));
        caller.place = ActorPlace::At { worker, window, concurrency: concurrency as usize };
        if started.replays == Some(true) {
            caller.kept.get_or_insert_default().begin();
            self.replaying.insert(actor);
        }
    }

    /// This process ends the actor: later calls fail at once. Calls made before end as the node reports it.
    pub fn refuse(&mut self, actor: ActorId, failure: Failure) {
        self.meet(actor);
        self.actors[&actor].place = ActorPlace::Dead(failure);
    }

    /// The actor's process is dead and another one will start. Gives the calls in flight without an outcome;
    /// queued calls wait for the new process.
    pub fn on_restarting(&mut self, actor: ActorId) -> Interrupted {
        let Some(caller) = self.actors.get_mut(&actor) else { return Interrupted::default() };
        if !matches!(caller.place, ActorPlace::Dead(_)) {
            caller.place = ActorPlace::Pending;
        }
        let mut calls = caller.take_in_flight();
        calls.sort_unstable();
        let Some(kept) = &mut caller.kept else { return Interrupted { kept: Vec::new(), others: calls } };
        kept.rewind();
        self.replaying.swap_remove(&actor);
        calls.retain(|task| self.ghosts.swap_remove(task).is_none());
        let numbers = kept.numbers();
        let (kept, others) = calls.into_iter().partition(|task| numbers.contains(task));
        Interrupted { kept, others }
    }

    /// The actor's process is taken for dead, and no node can start another one. Calls in flight have been
    /// taken out ([`Self::on_restarting`]). Gives the calls that were queued.
    pub fn on_out_of_reach(&mut self, actor: ActorId, failure: Failure) -> Vec<u64> {
        let Some(caller) = self.actors.get_mut(&actor) else { return Vec::new() };
        if matches!(caller.place, ActorPlace::Dead(_)) {
            return Vec::new();
        }
        caller.place = ActorPlace::OutOfReach(failure);
        caller.take_queued()
    }

    /// Calls in flight, of all actors.
    pub fn in_flight(&self) -> impl Iterator<Item = u64> {
        self.actors.values().flat_map(|caller| caller.in_flight.iter().copied())
    }

    /// Calls pushed again although their outcome is known, of actors whose place is wanted.
    pub fn ghosts(&self, is_wanted: impl Fn(&ActorPlace) -> bool) -> impl Iterator<Item = &TaskSpec> {
        let actors = self.actors.values().filter(move |caller| is_wanted(&caller.place));
        let kept = actors.filter_map(|caller| caller.kept.as_ref()).flat_map(|kept| kept.calls());
        kept.filter(|spec| self.ghosts.contains_key(&spec.task.number))
    }

    /// Queues a call again that was in flight, wherever the actor is.
    pub fn enqueue_again(&mut self, actor: ActorId, task: u64, turn: Turn) {
        if let Some(caller) = self.actors.get_mut(&actor) {
            caller.enqueue(task, turn);
        }
    }

    /// Calls to one actor that have not ended.
    #[must_use]
    pub fn pending_calls(&self, actor: ActorId) -> usize {
        self.actors.get(&actor).map_or(0, |caller| caller.queued() + caller.in_flight.len())
    }

    /// The actor is dead. Gives the calls that were queued or in flight.
    pub fn on_dead(&mut self, actor: ActorId, failure: Failure) -> Vec<u64> {
        let Some(caller) = self.actors.get_mut(&actor) else { return Vec::new() };
        caller.place = ActorPlace::Dead(failure);
        let mut calls = caller.take_in_flight();
        calls.extend(caller.take_queued());
        calls.sort_unstable();
        calls
    }

    /// The object that is to fail when the actor is dead: `object`, if there was none.
    pub fn watch_end(&mut self, actor: ActorId, object: ObjectId) -> ObjectId {
        *self.actors.get_mut(&actor).expect("met before").end.get_or_insert(object)
    }

    /// Takes the object that is to fail, as the actor is dead.
    pub fn take_end(&mut self, actor: ActorId) -> Option<ObjectId> {
        self.actors.get_mut(&actor)?.end.take()
    }

    /// How often another process has taken an actor over, unless that may change before it is reported: the
    /// actor waits for its next process.
    #[must_use]
    pub fn restarts(&self, actor: ActorId) -> Option<u32> {
        let caller = self.actors.get(&actor)?;
        let is_settled = matches!(caller.place, ActorPlace::At { .. } | ActorPlace::Dead(_));
        caller.restarts.filter(|_| is_settled)
    }

    /// Forgets an actor that went out of scope here, if it has no calls left and nobody waits for its end.
    pub fn forget(&mut self, actor: ActorId) {
        let is_idle = self.actors.get(&actor).is_some_and(|caller| {
            let keeps = caller.kept.as_ref().is_some_and(|kept| kept.is_replaying() || !kept.is_empty());
            caller.queued() == 0 && caller.in_flight.is_empty() && !keeps && caller.end.is_none()
        });
        if is_idle {
            self.actors.swap_remove(&actor);
        }
    }

    /// Where an actor is, if this process knows.
    #[must_use]
    pub fn place(&self, actor: ActorId) -> Option<&ActorPlace> {
        self.actors.get(&actor).map(|caller| &caller.place)
    }

    /// Every actor known here: its place, calls queued, calls in flight.
    pub fn known(&self) -> impl Iterator<Item = (ActorId, &ActorPlace, usize, usize)> {
        self.actors
            .iter()
            .map(|(actor, caller)| (*actor, &caller.place, caller.queued(), caller.in_flight.len()))
    }

    /// Number of calls to an actor that are kept here.
    #[must_use]
    pub fn kept(&self, actor: ActorId) -> usize {
        let kept = self.actors.get(&actor).and_then(|caller| caller.kept.as_ref());
        kept.map_or(0, |kept| kept.len())
    }

    /// Calls queued or in flight over all actors.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.actors.values().map(|caller| caller.queued() + caller.in_flight.len()).sum()
    }
}

impl Caller {
    fn enqueue(&mut self, task: u64, turn: Turn) {
        match turn {
            Turn::Last => self.queue.push_back(task),
            Turn::First => self.queue.push_front(task),
            Turn::Recovering => _ = self.recovering.insert(task),
        }
    }

    /// The actor's process, if it is known.
    fn process(&self) -> Option<WorkerId> {
        match self.place {
            ActorPlace::At { worker, .. } => Some(worker),
            ActorPlace::Pending | ActorPlace::OutOfReach(_) | ActorPlace::Dead(_) => None,
        }
    }

    /// The actor's process, if it takes another call now.
    fn room(&self) -> Option<WorkerId> {
        match self.place {
            ActorPlace::At { worker, window, .. } if self.in_flight.len() < window => Some(worker),
            ActorPlace::At { .. } | ActorPlace::Pending | ActorPlace::OutOfReach(_) | ActorPlace::Dead(_) => {
                None
            }
        }
    }

    fn queued(&self) -> usize {
        self.recovering.len() + self.queue.len()
    }

    fn take_queued(&mut self) -> Vec<u64> {
        let recovering = std::mem::take(&mut self.recovering);
        recovering.into_iter().chain(std::mem::take(&mut self.queue)).collect()
    }

    fn take_in_flight(&mut self) -> Vec<u64> {
        self.arguments.clear();
        self.argument_bytes = 0;
        std::mem::take(&mut self.in_flight).into_iter().collect()
    }

    fn is_replaying(&self) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.is_replaying())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sooner_wire::TaskId;
    use sooner_wire::message::FailureCode;

    fn actor() -> ActorId {
        TaskId { owner: WorkerId(1), number: 1 }
    }

    fn started(worker: u64, concurrency: u32) -> ActorStarted {
        let (actor, worker) = (actor(), WorkerId(worker));
        ActorStarted { actor, worker, concurrency, replays: None, restarts: None }
    }

    #[test]
    fn calls_wait_for_the_place_and_leave_in_order() {
        let mut callers = Callers::default();
        assert!(!callers.meet(actor()));
        assert!(callers.meet(actor()));
        (1..=3).for_each(|task| callers.enqueue(actor(), task, Turn::Last).expect("alive"));
        assert_eq!(callers.next_call(actor()), None);
        callers.on_started(&started(4, 1));
        let mut order = Vec::new();
        while let Some((task, worker)) = callers.next_call(actor()) {
            assert_eq!(worker, WorkerId(4));
            callers.on_pushed(actor(), task, 0);
            order.push(task);
        }
        assert_eq!(order, [1, 2, 3]);
    }

    #[test]
    fn what_recovers_a_value_goes_first_even_if_no_other_call_may() {
        let mut callers = with_calls(1, ACTOR_CALLS_IN_FLIGHT as u64 + 1);
        let sent = std::iter::from_fn(|| {
            let (task, _) = callers.next_call(actor())?;
            callers.on_pushed(actor(), task, 0);
            Some(task)
        });
        assert_eq!(sent.count(), ACTOR_CALLS_IN_FLIGHT);
        assert_eq!(callers.next_call(actor()), None, "the window is full");
        for task in [9_002, 9_001] {
            callers.enqueue(actor(), task, Turn::Recovering).expect("alive");
        }
        assert_eq!(
            callers.next_call(actor()),
            Some((9_001, WorkerId(4))),
            "the calls out there may wait for it"
        );
        assert_eq!(callers.next_recovering(actor(), 9_001), None, "it was made later than what waits");
        assert_eq!(callers.next_recovering(actor(), 9_002), Some((9_001, WorkerId(4))));
        callers.on_pushed(actor(), 9_001, 0);
        callers.remove_queued(actor(), 9_002);
        assert_eq!(callers.next_call(actor()), None);
        assert_eq!(callers.pending_calls(actor()), ACTOR_CALLS_IN_FLIGHT + 2);
    }

    /// Sends calls as long as that may be, and gives those that went.
    fn send(callers: &mut Callers, bytes: u64) -> Vec<u64> {
        let mut sent = Vec::new();
        while let Some((task, _)) = callers.next_call(actor())
            && !callers.holds_back(actor(), bytes)
        {
            callers.on_pushed(actor(), task, bytes);
            sent.push(task);
        }
        sent
    }

    fn with_calls(concurrency: u32, calls: u64) -> Callers {
        let mut callers = Callers::default();
        callers.set_argument_bytes(100);
        callers.meet(actor());
        callers.on_started(&started(4, concurrency));
        (1..=calls).for_each(|task| callers.enqueue(actor(), task, Turn::Last).expect("alive"));
        callers
    }

    #[test]
    fn calls_with_large_arguments_wait_here_while_they_could_not_run_there() {
        let mut callers = with_calls(2, 9);
        assert_eq!(send(&mut callers, 60), [1, 2, 3], "two run, and the next one is there");
        callers.on_reply(actor(), 2);
        assert_eq!(send(&mut callers, 60), [4]);
        assert_eq!(send(&mut callers, 0), [5, 6, 7, 8, 9], "what keeps nothing in memory may wait anywhere");
    }

    #[test]
    fn calls_with_small_arguments_are_sent_until_these_are_large_together() {
        let mut callers = with_calls(1, 20);
        assert_eq!(send(&mut callers, 10).len(), 10);
        (1..=10).for_each(|task| callers.on_reply(actor(), task));
        assert_eq!(send(&mut callers, 10).len(), 10, "what has ended counts no more");
        let interrupted = callers.on_restarting(actor());
        interrupted.others.iter().rev().for_each(|task| callers.enqueue_again(actor(), *task, Turn::First));
        callers.on_started(&started(5, 1));
        assert_eq!(send(&mut callers, 10).len(), 10, "nor does what was with a process that is gone");
    }

    /// One that runs may wait for a call to another group, which would run at once.
    #[test]
    fn calls_to_an_actor_with_groups_do_not_wait_here() {
        let mut callers = with_calls(2, 9);
        assert_eq!(send(&mut callers, 60), [1, 2, 3]);
        callers.record_groups(actor());
        assert_eq!(send(&mut callers, 60), [4, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn after_a_kill_calls_fail_at_once_and_earlier_ones_end_with_the_actor() {
        let mut callers = Callers::default();
        callers.meet(actor());
        callers.enqueue(actor(), 1, Turn::Last).expect("alive");
        let failure = Failure::new(FailureCode::ActorDied, "killed");
        callers.refuse(actor(), failure.clone());
        assert_eq!(callers.enqueue(actor(), 2, Turn::Last), Err(failure.clone()));
        callers.on_started(&started(4, 1));
        assert_eq!(callers.next_call(actor()), None);
        assert_eq!(callers.on_dead(actor(), failure), [1]);
    }

    #[test]
    fn news_of_an_actor_that_was_forgotten_enters_nothing() {
        let mut callers = Callers::default();
        callers.meet(actor());
        callers.on_started(&started(4, 1));
        callers.forget(actor());
        callers.on_started(&started(5, 1));
        assert_eq!(callers.on_restarting(actor()), Interrupted::default());
        assert!(callers.on_dead(actor(), Failure::new(FailureCode::ActorDied, "gone")).is_empty());
        assert_eq!(callers.known().count(), 0);
    }

    #[test]
    fn death_ends_every_call_and_refuses_later_ones() {
        let mut callers = Callers::default();
        callers.meet(actor());
        callers.on_started(&started(4, 1));
        (1..=3).for_each(|task| callers.enqueue(actor(), task, Turn::Last).expect("alive"));
        callers.on_pushed(actor(), 1, 0);
        let failure = Failure::new(FailureCode::ActorDied, "gone");
        assert_eq!(callers.on_dead(actor(), failure.clone()), [1, 2, 3]);
        assert_eq!(callers.enqueue(actor(), 4, Turn::Last), Err(failure));
        assert_eq!(callers.calls(), 0);
    }
}
