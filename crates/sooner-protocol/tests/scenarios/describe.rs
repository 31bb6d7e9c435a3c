//! What processes, objects and messages are called in a scenario.

use std::collections::BTreeMap;

use sooner_wire::message::{Failure, Held, Message, Outcome, Place, Push, Reply, Return, TaskKind, TaskSpec};
use sooner_wire::{NodeId, ObjectId, Strategy, TaskId, WorkerId};

use super::cluster::{End, node_of};

/// See the module.
#[derive(Default)]
pub struct Names {
    pub processes: BTreeMap<WorkerId, String>,
    /// By the name of its (first) result.
    pub tasks: BTreeMap<TaskId, String>,
    workers: BTreeMap<usize, u32>,
}

impl Names {
    /// The next worker of a node.
    pub fn add_worker(&mut self, id: WorkerId) {
        let at = node_of(id);
        let count = self.workers.entry(at).or_default();
        *count += 1;
        let name = format!("{}.w{count}", letter(at));
        self.processes.insert(id, name);
    }

    pub fn end(&self, end: End) -> String {
        match end {
            End::Process(id) => self.process(id),
            End::Node(at) => format!("node {}", letter(at)),
            End::Head => "head".to_owned(),
        }
    }

    pub fn way(&self, from: End, to: End) -> String {
        format!("{} -> {}", self.end(from), self.end(to))
    }

    pub fn process(&self, id: WorkerId) -> String {
        if id.0 == id.node().0 {
            return node(id.node());
        }
        self.processes.get(&id).cloned().unwrap_or_else(|| format!("process {:x}", id.0))
    }

    pub fn task(&self, task: TaskId) -> String {
        self.tasks.get(&task).cloned().unwrap_or_else(|| format!("task {}", task.number))
    }

    pub fn object(&self, object: ObjectId) -> String {
        let task = self.task(object.task);
        if object == object.task.state() {
            return format!("the state of {task}");
        }
        if object.index == 0 { task } else { format!("{task}.{}", object.index) }
    }

    fn objects<'a>(&self, objects: impl IntoIterator<Item = &'a ObjectId>) -> String {
        objects.into_iter().map(|object| self.object(*object)).collect::<Vec<_>>().join(", ")
    }

    fn tasks<'a>(&self, tasks: impl IntoIterator<Item = &'a TaskId>) -> String {
        tasks.into_iter().map(|task| self.task(*task)).collect::<Vec<_>>().join(", ")
    }

    fn processes(&self, processes: &[WorkerId]) -> String {
        if processes.is_empty() {
            return "nobody".to_owned();
        }
        processes.iter().map(|process| self.process(*process)).collect::<Vec<_>>().join(", ")
    }

    /// A value as the sender names it.
    fn outcome(&self, from: End, outcome: &Outcome) -> String {
        match outcome {
            Outcome::Inline(bytes) => format!("{:?}", String::from_utf8_lossy(bytes.as_slice())),
            Outcome::Stored(_) => format!("in memory of {}", self.machine(from)),
            Outcome::Remote(remote) if matches!(remote.location.place(), Place::Disk(_)) => {
                format!("on disk of {}", node(remote.node))
            }
            Outcome::Remote(remote) => format!("in memory of {}", node(remote.node)),
            Outcome::Failed(failure) => failed(failure),
        }
    }

    /// Where a value is that is not here.
    pub fn place(&self, outcome: &Outcome) -> String {
        self.outcome(End::Head, outcome)
    }

    fn machine(&self, end: End) -> String {
        match end {
            End::Process(id) => self.end(End::Node(node_of(id))),
            other => self.end(other),
        }
    }

    fn value(&self, from: End, value: &Return) -> String {
        let outcome = self.outcome(from, &value.outcome);
        if value.contained.is_empty() {
            return outcome;
        }
        format!("{outcome} with &{}", self.objects(&value.contained).replace(", ", ", &"))
    }

    /// `x = f(a, &b)`.
    pub fn call(&self, spec: &TaskSpec) -> String {
        let values = spec.dependencies.iter().map(|object| self.object(*object));
        let references = spec.references.iter().map(|object| format!("&{}", self.object(*object)));
        let arguments = values.chain(references).collect::<Vec<_>>().join(", ");
        let callee = match spec.kind() {
            TaskKind::Method(actor) => format!("{}.{}", self.task(actor), spec.name.as_str()),
            TaskKind::Task(_) | TaskKind::Creation => spec.name.as_str().to_owned(),
        };
        format!("{} = {callee}({arguments})", self.task(spec.task))
    }

    fn push(&self, from: End, push: &Push) -> String {
        let values = push.dependencies.iter().map(|dependency| {
            format!("{} {}", self.object(dependency.object), self.outcome(from, &dependency.outcome))
        });
        let values: Vec<String> = values.collect();
        let call = self.call(&push.spec);
        if values.is_empty() { call } else { format!("{call}   where {}", values.join(", ")) }
    }

    fn reply(&self, from: End, reply: &Reply) -> String {
        let values: Vec<String> = reply.returns.iter().map(|value| self.value(from, value)).collect();
        let held = if reply.held.is_empty() {
            String::new()
        } else {
            format!("   goes on borrowing {}", self.objects(&reply.held))
        };
        format!("{} {}{held}", self.task(reply.task), values.join(", "))
    }

    fn held(&self, held: &[Held]) -> String {
        let one = |held: &Held| {
            let of = held.of.map_or(String::new(), |of| format!(" (of {})", self.process(of)));
            {
                let (who, what) = (self.process(held.borrower), self.object(held.object));
                format!("{who} has {what}{}{of}", times(held.count))
            }
        };
        if held.is_empty() {
            "nothing".to_owned()
        } else {
            held.iter().map(one).collect::<Vec<_>>().join(", ")
        }
    }

    /// One line: its kind, and the fields that matter.
    pub fn describe(&self, from: End, message: &Message) -> String {
        let name = message.row().name;
        if let Message::Routed(routed) = message {
            let sender = End::Process(routed.from);
            let inside = self.describe(if is_node(routed.from) { from } else { sender }, &routed.message);
            if is_node(routed.from) && is_node(routed.to) {
                return inside;
            }
            let (from_name, to_name) = (self.process(routed.from), self.process(routed.to));
            return format!("[{from_name} -> {to_name}] {inside}");
        }
        let fields = self.of_work(from, message);
        let fields =
            fields.or_else(|| self.of_objects(from, message)).or_else(|| self.of_actors(from, message));
        let fields = fields.or_else(|| self.of_ends(message)).unwrap_or_default();
        format!("{name} {fields}").trim_end().to_owned()
    }

    fn of_work(&self, from: End, message: &Message) -> Option<String> {
        Some(match message {
            Message::RequestLease(ask) => {
                let on = ask.strategy.as_deref().map_or(String::new(), |strategy| match strategy {
                    Strategy::Node(affinity) => format!(" on {}", node(affinity.node)),
                    other => format!(" {other:?}"),
                });
                let near = ask.prefer.map_or(String::new(), |prefer| format!(", near {}", node(prefer)));
                format!("{} of {}{on}{near}", ask.demand, ask.resources.describe())
            }
            Message::LeaseGranted(granted) => self.process(granted.worker),
            Message::LeaseAt(ask) => {
                format!("for {}: {} of {}", self.process(ask.client), ask.demand, ask.resources.describe())
            }
            Message::LeaseGrantedAt(granted) => {
                format!("for {}: {}", self.process(granted.client), self.process(granted.worker))
            }
            Message::LeaseRefused(refused) => {
                format!("for {}: {}", self.process(refused.client), refused.reason)
            }
            Message::Define(define) => define.name.as_str().to_owned(),
            Message::Push(push) => self.push(from, push),
            Message::Reply(reply) => self.reply(from, reply),
            Message::TasksReturned(returned) => self.tasks(&returned.tasks),
            Message::CancelTask(cancel) => self.task(cancel.task),
            Message::Connect(connect) => self.process(connect.worker),
            Message::PeerConnected(connected) => self.process(connected.worker),
            Message::Job(job) => format!("of {}: {:?}", self.process(job.job), job.state),
            Message::FindNodes(_) | Message::Candidates(_) => String::new(),
            _ => return None,
        })
    }

    fn of_objects(&self, from: End, message: &Message) -> Option<String> {
        Some(match message {
            Message::Fetch(fetch) => {
                let at = fetch.missing_at.map_or(String::new(), |at| format!(", not in {}", node(at.node)));
                format!("{}{at}", self.object(fetch.object))
            }
            Message::Value(value) => {
                let outcome = self.outcome(from, &value.outcome);
                let contained = self.objects(&value.contained);
                let with = if contained.is_empty() { String::new() } else { format!(" with &{contained}") };
                format!("{} {outcome}{with}", self.object(value.object))
            }
            Message::AddBorrow(add) => {
                format!("{} by {}", self.object(add.object), self.process(add.borrower))
            }
            Message::RemoveBorrow(remove) => {
                let giver =
                    remove.giver.map_or(String::new(), |giver| format!(" from {}", self.process(giver)));
                format!("{}{}{giver}", self.object(remove.object), times(remove.count))
            }
            Message::GiveBlock(give) => {
                let what = give.object.map_or(String::new(), |object| format!(" ({})", self.object(object)));
                format!("to {}{what}", self.process(give.owner))
            }
            Message::Pull(pull) => {
                let outcome = Outcome::Remote(Box::new(pull.remote));
                format!(
                    "{}, {}, for {:?}",
                    self.object(pull.object),
                    self.outcome(from, &outcome),
                    pull.priority
                )
            }
            Message::Pulled(pulled) => {
                let how = pulled.failure.as_deref().map_or("is here".to_owned(), failed);
                let how = if pulled.location.is_none() && pulled.failure.is_none() {
                    "was not found".to_owned()
                } else {
                    how
                };
                format!("{} {how}", self.object(pulled.object))
            }
            Message::Locate(said) => format!("{} for {}", self.object(said.object), node(said.node)),
            Message::Located(said) => {
                let sender = said
                    .sender
                    .map_or("wait".to_owned(), |sender| format!("take it from {}", node(sender.node)));
                let copy = if said.is_copy { ", from its copy" } else { "" };
                format!("{} for {}: {sender}{copy}", self.object(said.object), node(said.node))
            }
            Message::CopyMade(said) => format!("{} at {}", self.object(said.object), node(said.node)),
            Message::CopyLeaving(said) => format!("{} at {}", self.object(said.object), node(said.node)),
            Message::DropCopy(said) => format!("{} at {}", self.object(said.object), node(said.node)),
            Message::SenderFailed(said) => format!("{} for {}", self.object(said.object), node(said.node)),
            Message::Promote(said) => {
                format!("the copy of {} at {}", self.object(said.object), node(said.node))
            }
            Message::Promoted(said) => {
                let how = if said.location.is_some() { "is the value now" } else { "is not there" };
                format!("{} at {} {how}", self.object(said.object), node(said.node))
            }
            Message::LostAt(lost) => node(lost.node),
            Message::FreeAt(free) => format!("{} of {}", count(free.places.len(), "block"), node(free.node)),
            Message::FreeBlocks(free) => count(free.places.len(), "block"),
            Message::BlocksLost(lost) => count(lost.blocks.len(), "block"),
            Message::Relinquish(wanted) => count(wanted.blocks.len(), "block"),
            Message::Relinquished(answer) => {
                format!("{} to move, {} in use", count(answer.moved.len(), "block"), answer.others.len())
            }
            Message::ReadersOf(question) => count(question.places.len(), "block"),
            Message::StillRead(answer) => count(answer.places.len(), "block"),
            Message::ForgetLost(question) => count(question.blocks.len(), "block"),
            Message::GivenBlocks(given) => {
                format!("{} of {}", count(given.places.len(), "block"), self.process(given.giver))
            }
            Message::UnknownBlocks(given) => {
                format!("{} of {}", count(given.places.len(), "block"), self.process(given.giver))
            }
            _ => return None,
        })
    }

    fn of_actors(&self, from: End, message: &Message) -> Option<String> {
        Some(match message {
            Message::CreateActor(create) => self.push(from, &create.constructor),
            Message::PlaceActor(place) => {
                let restores = if place.restores { ", its state follows" } else { "" };
                format!("{}, takeover {}{restores}", self.task(place.create.actor), place.takeover)
            }
            Message::ActorPlaced(placed) => {
                format!(
                    "{} in {}, takeover {}",
                    self.task(placed.actor),
                    self.process(placed.worker),
                    placed.takeover
                )
            }
            Message::ActorProcessDead(gone) => {
                format!("{}, takeover {}", self.task(gone.actor), gone.takeover)
            }
            Message::EndActor(end) => format!("{}, takeover {}", self.task(end.actor), end.takeover),
            Message::ActorStarted(started) => {
                let replays = if started.replays == Some(true) { ", make your calls again" } else { "" };
                format!("{} in {}{replays}", self.task(started.actor), self.process(started.worker))
            }
            Message::ActorRestarting(news) => format!("{}: {}", self.task(news.actor), news.reason),
            Message::ActorDead(dead) => format!("{} {}", self.task(dead.actor), failed(&dead.failure)),
            Message::ActorReady(ready) => {
                let how =
                    ready.failure.as_ref().map_or(String::new(), |failure| format!(" {}", failed(failure)));
                format!("{}{how}", self.task(ready.actor))
            }
            Message::SubscribeActor(subscribe) => self.task(subscribe.actor),
            Message::ActorSubscribed(said) => {
                format!("{} to {}", self.process(said.process), self.task(said.actor))
            }
            Message::ActorOutOfScope(said) => self.task(said.actor),
            Message::KillActor(kill) => self.task(kill.actor),
            Message::ExitActor(exit) => self.task(exit.actor),
            Message::Checkpoint(checkpoint) => {
                let covers = self.tasks(&checkpoint.calls);
                format!(
                    "{} {}, covers {covers}",
                    self.task(checkpoint.actor),
                    self.value(from, &checkpoint.state)
                )
            }
            Message::Checkpointed(done) => {
                let calls = count(done.calls.len(), "call");
                format!("{}: {calls} need not be made again", self.task(done.actor))
            }
            Message::Restore(restore) => {
                let state =
                    restore.state.as_ref().map_or("no state".to_owned(), |state| self.value(from, state));
                format!("{} {state}, awaits {}", self.task(restore.actor), self.processes(&restore.callers))
            }
            Message::Replayed(replayed) => self.task(replayed.actor),
            Message::KeepObjects(keep) => {
                format!("{} for {}", self.objects(&keep.objects), self.task(keep.actor))
            }
            Message::ActorsHere(here) => {
                let actors: Vec<String> = here.actors.iter().map(|row| self.task(row.actor)).collect();
                let actors = if actors.is_empty() { "no actors".to_owned() } else { actors.join(", ") };
                format!("{actors}; {}", count(here.jobs.len(), "job"))
            }
            _ => return None,
        })
    }

    fn of_ends(&self, message: &Message) -> Option<String> {
        Some(match message {
            Message::WorkerDead(gone) => {
                let last = gone
                    .last_started
                    .map_or(String::new(), |task| format!(", began {} last", self.task(task)));
                format!("{}{last}", self.process(gone.worker))
            }
            Message::ProcessLeft(left) => {
                let nodes: Vec<String> = left.watchers.iter().map(|watcher| node(*watcher)).collect();
                let concerns =
                    if nodes.is_empty() { String::new() } else { format!(", concerns {}", nodes.join(", ")) };
                format!("{}{concerns}", self.process(left.process))
            }
            Message::HeldFrom(answer) => {
                format!("{}: {}", self.process(answer.gone), self.held(&answer.held))
            }
            Message::Collected(answer) => {
                format!("{}: {}", self.process(answer.gone), self.held(&answer.held))
            }
            Message::Settled(settled) => {
                format!("{}: {}", self.processes(&settled.gone), self.held(&settled.held))
            }
            Message::NodeDead(gone) => node(gone.node),
            Message::Suspect(suspect) => node(suspect.node),
            Message::Watch(watch) => self.process(watch.worker),
            Message::Needed(needed) => if needed.is_needed { "yes" } else { "no" }.to_owned(),
            _ => return None,
        })
    }
}

fn is_node(id: WorkerId) -> bool {
    id.0 == id.node().0
}

fn node(id: NodeId) -> String {
    if id.0 == 0 {
        return "head".to_owned();
    }
    format!("node {}", letter(node_of(WorkerId(id.0))))
}

pub fn letter(at: usize) -> char {
    char::from(b'a' + u8::try_from(at).expect("few nodes"))
}

fn times(count: u32) -> String {
    if count == 1 { String::new() } else { format!(" ({count} times)") }
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

pub fn failed(failure: &Failure) -> String {
    format!("failed {:?}", failure.code)
}
