//! Messages of the node's processes to the control service that have no answer: sent again when it has
//! started again, and answered with an error when it stays away.
//!
//! Questions (names, resources, groups) end after [`CONTROL_AWAY_NANOS`], also while there is a connection: a
//! control service that stands still keeps the connection, and has nothing to send when all is well either.
//! What a question that ended was to make is taken back. An actor that is to be created waits as long as it
//! takes: it waits for resources as well. Its creation and its name are kept until it has a process: until
//! then only its creator knows of it. The creation of an actor that may start again is kept as long as the
//! actor lives: if the control service and the node of its process end together, nobody else knows what it
//! is.
//!
//! This file never answers for the control service while that is there.

use std::collections::VecDeque;

use sooner_wire::limits::CONTROL_AWAY_NANOS;
use sooner_wire::message::{
    ActorOutOfScope, Answer, Checkpoint, CreateActor, CreateGroup, FindGroup, GroupPhase, GroupState,
    Message, Outcome, Place, RemoveGroup, ReserveName, SubscribeActor,
};
use sooner_wire::{ActorId, GroupId, NodeId, WorkerId};

use crate::node::{NodeAction, NodeActions};
use crate::table::{Map, Set};
use crate::time::Instant;
use crate::uplink::{ToControl, ToNode};

/// The request number of a name's reservation that was answered before: its answer is not passed on.
const AGAIN: u64 = u64::MAX;

/// How much longer a question waits whose answer waits for the disk (nanoseconds): a control service whose
/// disk does not answer says so itself after [`CONTROL_AWAY_NANOS`], with the reason.
const DISK_SPARE_NANOS: u64 = 2_000_000_000;

/// Ends of processes, and messages that end actors and groups, which are sent again at most.
const SENT_MAX: usize = 4096;

/// The process that asks, and the request's number.
type Question = (WorkerId, u64);

#[derive(Debug)]
struct Open {
    turn: u64,
    question: Box<Message>,
    /// Since when this control service is asked; `None` until the end of the turn that sent the question.
    since: Option<Instant>,
}

impl Open {
    /// When the question ends.
    fn until(&self) -> Option<Instant> {
        let spare = if waits_for_disk(&self.question) { DISK_SPARE_NANOS } else { 0 };
        Some(self.since?.plus(CONTROL_AWAY_NANOS + spare))
    }
}

#[derive(Debug, Default)]
struct Creation {
    name: Option<(u64, ReserveName)>,
    create: Option<(u64, Box<CreateActor>)>,
    /// The latest process of the actor, and how many there were.
    processes: Option<(WorkerId, i32)>,
}

impl Creation {
    /// The actor has this process. False if nothing of the actor needs to be sent again: it never starts
    /// again, its state would be lost, or it outlives its creator and is written down.
    fn begin(&mut self, process: WorkerId) -> bool {
        let (last, count) = self.processes.unwrap_or_default();
        self.processes = Some((process, count + i32::from(last != process)));
        self.create.as_ref().is_some_and(|(_, create)| {
            let takes_checkpoints = create.constructor.spec.checkpoint_every().is_some();
            create.detached != Some(true) && !takes_checkpoints && self.restarts_left(create) != Some(0)
        })
    }

    /// How often a new process may take over behind those in `processes`; `None` for ever.
    fn restarts_left(&self, create: &CreateActor) -> Option<i32> {
        let all = u32::try_from(create.restarts.unwrap_or(0)).ok()?;
        // The current process ends before the next one begins.
        let ended = self.processes.map_or(0, |(_, count)| count);
        let ended_before_the_last = (ended - 1).max(0);
        Some(i32::try_from(all).unwrap_or(i32::MAX).saturating_sub(ended_before_the_last).max(0))
    }

    /// What a restarted control service is told: it goes on counting.
    fn again(&self) -> Option<(u64, CreateActor)> {
        let (turn, create) = self.create.as_ref()?;
        let mut create = (**create).clone();
        if let Some((_, count)) = self.processes {
            create.constructor.spec.retries += count;
            create.restarts = Some(self.restarts_left(&create).map_or(-1, |left| left - 1));
        }
        Some((*turn, create))
    }
}

/// The creation of a placement group, until the control service has answered, and the processes that learn of
/// it.
#[derive(Debug, Default)]
struct Group {
    create: Option<(u64, WorkerId, Box<CreateGroup>)>,
    hearers: Set<WorkerId>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// Since when the control service is away.
    away: Option<Instant>,
    open: Map<Question, Open>,
    /// Processes that want to learn of an actor, and have no confirmation yet.
    subscribing: Map<(WorkerId, ActorId), u64>,
    /// Placement groups that local processes learn of.
    groups: Map<GroupId, Group>,
    /// Actors of local processes that have no process yet, or may start again.
    creations: Map<ActorId, Creation>,
    /// Questions that were given up: no process waits for their answers.
    abandoned: Set<Question>,
    /// Checkpoints that are not known to stand, in order.
    checkpoints: VecDeque<(WorkerId, Box<Checkpoint>)>,
    /// The latest messages that end actors and groups. No other state on this node shows them.
    ends: VecDeque<(u64, WorkerId, Box<Message>)>,
    /// The latest processes whose end was reported.
    ended: VecDeque<WorkerId>,
    /// How many messages were sent: each has its number.
    turns: u64,
}

impl Requests {
    /// The node sends messages, to the control service among others.
    pub(super) fn on_sent(&mut self, actions: &[NodeAction]) {
        for action in actions {
            match action {
                NodeAction::Control(ToControl::Routed { from, message }) => self.note(*from, message),
                NodeAction::Control(ToControl::ProcessDead { process, .. }) => self.record_end(*process),
                _ => {}
            }
        }
    }

    fn note(&mut self, from: WorkerId, message: &Message) {
        self.turns += 1;
        let turn = self.turns;
        if let Some(request) = number(message) {
            let open = Open { turn, question: Box::new(message.clone()), since: None };
            self.open.insert((from, request), open);
        }
        match message {
            Message::ReserveName(reserve) => {
                self.creations.entry(reserve.actor).or_default().name = Some((turn, reserve.clone()));
            }
            Message::CreateActor(create) => {
                let creation = self.creations.entry(create.actor).or_default();
                creation.create = Some((turn, Box::new(create.clone())));
            }
            Message::SubscribeActor(subscribe) => {
                self.subscribing.insert((from, subscribe.actor), turn);
            }
            Message::CreateGroup(create) => {
                let group = self.groups.entry(create.group).or_default();
                group.hearers.insert(from);
                group.create = Some((turn, from, Box::new(create.clone())));
            }
            Message::FindGroup(find) => {
                // The node itself asks by itself.
                if let Some(group) = find.group.filter(|_| from.node() != NodeId(from.0)) {
                    self.groups.entry(group).or_default().hearers.insert(from);
                }
            }
            Message::RemoveGroup(_) => self.record_end_of(from, message),
            Message::Checkpoint(checkpoint) => {
                if self.checkpoints.len() == SENT_MAX {
                    self.checkpoints.pop_front();
                }
                self.checkpoints.push_back((from, Box::new(checkpoint.clone())));
            }
            // Its creation is sent again before: its creator waits to learn what became of it.
            Message::KillActor(kill) if kill.may_restart != Some(true) => self.record_end_of(from, message),
            Message::ActorReady(ready) if ready.failure.is_some() => self.record_end_of(from, message),
            Message::ActorOutOfScope(_) | Message::Sever(_) => self.record_end_of(from, message),
            _ => {}
        }
    }

    fn record_end_of(&mut self, from: WorkerId, message: &Message) {
        if self.ends.len() == SENT_MAX {
            self.ends.pop_front();
        }
        self.ends.push_back((self.turns, from, Box::new(message.clone())));
    }

    fn record_end(&mut self, process: WorkerId) {
        if self.ended.len() == SENT_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(process);
    }

    /// A process is dead: it waits for no answers.
    pub(super) fn end(&mut self, process: WorkerId) {
        self.open.retain(|(from, _), _| *from != process);
        self.subscribing.retain(|(from, _), _| *from != process);
        self.abandoned.retain(|(from, _)| *from != process);
        self.groups.retain(|_, group| {
            group.hearers.swap_remove(&process);
            !group.hearers.is_empty()
        });
        // A detached actor is created although its creator is dead.
        let lives_on = |create: &Option<(u64, Box<CreateActor>)>| {
            create.as_ref().is_some_and(|(_, create)| create.detached == Some(true))
        };
        self.creations.retain(|actor, creation| actor.owner != process || lives_on(&creation.create));
    }

    /// Takes the checkpoint of the actor in a process, if the message says that it stands.
    pub(super) fn take_checkpoint(&mut self, word: &ToNode) -> Option<(WorkerId, Box<Checkpoint>)> {
        let ToNode::Routed { to, message } = word else { return None };
        let Message::Checkpointed(done) = &**message else { return None };
        let is_it =
            |(from, checkpoint): &(WorkerId, Box<Checkpoint>)| (*from, checkpoint.actor) == (*to, done.actor);
        let at = self.checkpoints.iter().position(is_it)?;
        self.checkpoints.remove(at)
    }

    /// The state in this block is not needed: the block may be in use for another value.
    pub(super) fn forget_checkpoint_in(&mut self, place: Place) {
        let lies_there = |checkpoint: &Checkpoint| matches!(&checkpoint.state.outcome, Outcome::Stored(location) if location.place() == place);
        self.checkpoints.retain(|(_, checkpoint)| !lies_there(checkpoint));
    }

    /// Checkpoints that are not known to stand.
    pub(super) fn checkpoints(&self) -> Vec<(WorkerId, Checkpoint)> {
        self.checkpoints.iter().map(|(process, checkpoint)| (*process, (**checkpoint).clone())).collect()
    }

    /// Whether a message of the control service is an answer that no process waits for any more. Records what
    /// it answers.
    pub(super) fn is_stale(&mut self, word: &ToNode) -> bool {
        match word {
            ToNode::Routed { to, message } => {
                if let Message::GroupState(state) = &**message {
                    self.on_groups(state);
                }
                self.is_stale_answer(*to, message)
            }
            ToNode::Subscribed { actor, process, started } => {
                self.subscribing.swap_remove(&(*process, *actor));
                if let Some(started) = started {
                    self.on_started(*actor, started.worker);
                }
                false
            }
            ToNode::Started(started) => {
                self.on_started(started.actor, started.worker);
                false
            }
            ToNode::Dead(dead) => {
                self.creations.swap_remove(&dead.actor);
                false
            }
            _ => false,
        }
    }

    fn on_started(&mut self, actor: ActorId, process: WorkerId) {
        if let Some(creation) = self.creations.get_mut(&actor)
            && !creation.begin(process)
        {
            self.creations.swap_remove(&actor);
        }
    }

    /// The control service knows these groups, or they are removed.
    fn on_groups(&mut self, state: &GroupState) {
        for row in &state.groups {
            if row.phase == GroupPhase::Removed {
                self.groups.swap_remove(&row.group);
            } else if let Some(group) = self.groups.get_mut(&row.group) {
                group.create = None;
            }
        }
    }

    fn is_stale_answer(&mut self, to: WorkerId, message: &Message) -> bool {
        let (request, is_refused) = match message {
            Message::Answer(answer) => (answer.request, answer.error.is_some()),
            Message::GroupState(state) if state.request != 0 => (state.request, state.error.is_some()),
            Message::ActorDead(dead) => {
                self.creations.swap_remove(&dead.actor);
                self.subscribing.swap_remove(&(to, dead.actor));
                return false;
            }
            _ => return false,
        };
        if request == AGAIN || self.abandoned.swap_remove(&(to, request)) {
            return true;
        }
        let open = self.open.swap_remove(&(to, request));
        if let Some(Open { question, .. }) = open
            && let Message::ReserveName(reserve) = *question
            && is_refused
        {
            self.forget_name(reserve.actor);
        }
        false
    }

    fn forget_name(&mut self, actor: ActorId) {
        let Some(creation) = self.creations.get_mut(&actor) else { return };
        creation.name = None;
        if creation.create.is_none() {
            self.creations.swap_remove(&actor);
        }
    }

    /// The control service is there. If it `is_new`, it is asked again.
    pub(super) fn on_up(&mut self, is_new: bool) {
        self.away = None;
        if is_new {
            self.open.values_mut().for_each(|open| open.since = None);
        }
    }

    /// Since when the control service is away, if it is.
    pub(super) fn away_since(&self) -> Option<Instant> {
        self.away
    }

    /// The control service is away.
    pub(super) fn on_down(&mut self, now: Instant) {
        self.away.get_or_insert(now);
    }

    /// When [`Self::give_up`] should be called.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let away = self.away.filter(|_| !self.open.is_empty()).map(|since| since.plus(CONTROL_AWAY_NANOS));
        self.open.values().filter_map(Open::until).chain(away).min()
    }

    /// Answers the questions that nobody else will. Called at the end of each turn.
    pub(super) fn give_up(&mut self, now: Instant, out: &mut NodeActions) {
        for open in self.open.values_mut() {
            open.since.get_or_insert(now);
        }
        if self.next_deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        let is_away = self.away.is_some_and(|since| since.plus(CONTROL_AWAY_NANOS) <= now);
        let is_late = |open: &Open| is_away || open.until().is_some_and(|until| until <= now);
        let late: Vec<(Question, Open)> = self.open.extract_if(.., |_, open| is_late(open)).collect();
        for ((to, request), Open { question, .. }) in late {
            self.abandoned.insert((to, request));
            let error = Some(format!(
                "the head of the cluster has not answered for {} s, and only it can answer this: see `sooner status`, start it again with `sooner start --head`, or try again later",
                CONTROL_AWAY_NANOS / 1_000_000_000
            ));
            let answer = match *question {
                Message::CreateGroup(CreateGroup { group, .. }) => {
                    self.groups.swap_remove(&group);
                    self.take_back(to, RemoveGroup { group }, out);
                    GroupState { request, groups: Vec::new(), error }.into()
                }
                Message::FindGroup(_) => GroupState { request, groups: Vec::new(), error }.into(),
                Message::ReserveName(ReserveName { actor, .. }) => {
                    self.forget_name(actor);
                    self.take_back(to, ActorOutOfScope { actor }, out);
                    unavailable(request, error)
                }
                _ => unavailable(request, error),
            };
            out.push(NodeAction::Send(to, Box::new(answer)));
        }
    }

    /// What a question was to make is not wanted any more. The control service gets this right behind the
    /// question, if that is still to come: a process that asks for the same name again comes after it.
    fn take_back(&mut self, from: WorkerId, end: impl Into<Message>, out: &mut NodeActions) {
        let message = end.into();
        self.turns += 1;
        self.record_end_of(from, &message);
        out.push(NodeAction::Control(ToControl::Routed { from, message: Box::new(message) }));
    }

    /// The control service knows nothing of this node: all messages are sent again, in order. `subscribers`:
    /// local processes that learn of actors that have not begun, as far as reported.
    pub(super) fn send_again(&mut self, subscribers: &[(ActorId, WorkerId)], out: &mut NodeActions) {
        let known = subscribers.iter().map(|(actor, process)| (0, *process, subscribe(*actor)));
        let mut words: Vec<(u64, WorkerId, Message)> = known.collect();
        for (actor, creation) in &self.creations {
            // Open questions are sent below.
            let name = creation.name.as_ref().filter(|(_, name)| {
                let question = (actor.owner, name.request);
                !self.open.contains_key(&question)
            });
            let name =
                name.map(|(turn, name)| (*turn, ReserveName { request: AGAIN, ..name.clone() }.into()));
            let create = creation.again().map(|(turn, create)| (turn, create.into()));
            words.extend(name.into_iter().chain(create).map(|(turn, word)| (turn, actor.owner, word)));
        }
        for (id, group) in &self.groups {
            let create = group.create.as_ref().filter(|(_, from, create)| {
                // Open questions are sent below.
                !self.open.contains_key(&(*from, create.request))
            });
            words.extend(create.map(|(turn, from, create)| (*turn, *from, (**create).clone().into())));
            let find = FindGroup { request: 0, group: Some(*id), title: None, attempt: None };
            // Behind the message that makes the group.
            words.extend(group.hearers.iter().map(|process| (u64::MAX, *process, find.clone().into())));
        }
        let subscribing = self.subscribing.iter();
        words.extend(subscribing.map(|((from, actor), turn)| (*turn, *from, subscribe(*actor))));
        words.extend(self.open.iter().map(|((from, _), open)| (open.turn, *from, (*open.question).clone())));
        words.extend(self.ends.iter().map(|(turn, from, word)| (*turn, *from, (**word).clone())));
        words.sort_by_key(|(turn, ..)| *turn);
        for (_, from, message) in words {
            out.push(NodeAction::Control(ToControl::Routed { from, message: Box::new(message) }));
        }
        for process in &self.ended {
            let (process, watchers, gone) = (*process, Vec::new(), None);
            out.push(NodeAction::Control(ToControl::ProcessDead { process, watchers, gone }));
        }
        // The new control service does not know the questions that were given up.
        self.abandoned.clear();
    }
}

fn subscribe(actor: ActorId) -> Message {
    SubscribeActor { actor }.into()
}

fn unavailable(request: u64, error: Option<String>) -> Message {
    Answer { request, error, unavailable: Some(true), ..Answer::default() }.into()
}

/// Whether a question may be answered only when something is written down.
fn waits_for_disk(question: &Message) -> bool {
    match question {
        Message::ReserveName(_) | Message::CreateGroup(_) => true,
        Message::FindGroup(find) => find.group.is_some() || find.title.is_some(),
        _ => false,
    }
}

/// The number under which an answer is expected.
fn number(message: &Message) -> Option<u64> {
    let request = match message {
        Message::ReserveName(reserve) => reserve.request,
        Message::FindName(find) => find.request,
        Message::ListNames(list) => list.request,
        Message::Query(query) => query.request,
        Message::CreateGroup(create) => create.request,
        Message::FindGroup(find) => find.request,
        _ => return None,
    };
    // Groups whose creator wants no answer.
    let is_awaited = request != 0 || !matches!(message, Message::CreateGroup(_) | Message::FindGroup(_));
    is_awaited.then_some(request)
}
