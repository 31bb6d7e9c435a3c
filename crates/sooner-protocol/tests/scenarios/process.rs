//! A process of a scenario: its core, the tasks that run in it, and the references they have.

use std::collections::BTreeSet;
use std::sync::Arc;

use sooner_protocol::worker::WorkerCore;
use sooner_protocol::worker::action::{Action, Actions, Peer};
use sooner_protocol::worker::execution::Incoming;
use sooner_protocol::worker::ownership::{Place, Slot};
use sooner_wire::message::{
    Connect, Failure, FailureCode, FreeBlocks, GivenBlocks, Message, Outcome, Priority, Push, Return,
    TaskKind, UnknownBlocks,
};
use sooner_wire::{ActorId, Blob, ObjectId, Started, TaskId, WorkerId};

use super::cluster::{Cluster, End, Item, node_of};
use super::describe::failed;

/// A reference, which keeps its object.
pub type Handle = (ObjectId, Arc<Slot>);

/// A task that runs.
pub struct Frame {
    pub task: TaskId,
    pub incoming: Incoming,
    pub locals: Vec<Handle>,
}

/// The actor that a process is.
pub struct Instance {
    pub actor: ActorId,
    /// Its state: the calls that changed it, in order.
    pub calls: Vec<String>,
}

/// See the module.
pub struct Process {
    pub core: WorkerCore,
    pub is_driver: bool,
    numbers: u64,
    pub frames: Vec<Frame>,
    /// References of the program, or of an actor's state.
    pub kept: Vec<Handle>,
    /// What somebody waits for.
    pub gets: Vec<Handle>,
    pub instance: Option<Instance>,
    dropped: Vec<ObjectId>,
    lines: BTreeSet<WorkerId>,
    /// Answers to deaths, which go behind all that was sent before.
    held_back: Vec<Message>,
    last_started: Option<Started>,
}

impl Process {
    pub fn new(id: WorkerId, is_driver: bool) -> Self {
        Self {
            core: WorkerCore::new(id),
            is_driver,
            numbers: 0,
            frames: Vec::new(),
            kept: Vec::new(),
            gets: Vec::new(),
            instance: None,
            dropped: Vec::new(),
            lines: BTreeSet::new(),
            held_back: Vec::new(),
            last_started: None,
        }
    }

    pub fn next_task(&mut self) -> TaskId {
        self.numbers += 1;
        TaskId { owner: self.core.me(), number: self.numbers }
    }

    /// The reference of this object that is met first.
    pub fn handle(&self, object: ObjectId) -> Option<Handle> {
        let locals = self.frames.iter().flat_map(|frame| &frame.locals);
        locals.chain(&self.kept).find(|(id, _)| *id == object).cloned()
    }

    /// A reference goes; the core hears of it with the next step.
    pub fn release(&mut self, (id, slot): Handle) {
        if slot.release() {
            self.dropped.push(id);
        }
    }

    /// A reference comes to what runs there, or to the program.
    pub fn hold(&mut self, handle: Handle) {
        match self.frames.last_mut() {
            Some(frame) => frame.locals.push(handle),
            None => self.kept.push(handle),
        }
    }
}

impl Cluster {
    /// Has the core of a process do something, and carries out what it wants.
    pub fn with_process<R>(
        &mut self,
        id: WorkerId,
        work: impl FnOnce(&mut WorkerCore, &mut Actions) -> R,
    ) -> R {
        let mut out = Actions::new();
        let process = self.processes.get_mut(&id).expect("only living processes act");
        let dropped = std::mem::take(&mut process.dropped);
        if !dropped.is_empty() {
            process.core.on_handles_dropped(&dropped, &mut out);
        }
        let result = work(&mut process.core, &mut out);
        // What a process sends its node goes out before what it sends others.
        let (first, rest): (Actions, Actions) = out
            .into_iter()
            .partition(|action| matches!(action, Action::Send { to: Peer::Node, .. } | Action::FreeBlock(_)));
        for action in first.into_iter().chain(rest) {
            self.perform(id, action);
        }
        result
    }

    fn perform(&mut self, id: WorkerId, action: Action) {
        match action {
            Action::Send { to: Peer::Node, message } => match *message {
                answer @ Message::HeldFrom(_) => {
                    self.processes.get_mut(&id).expect("lives").held_back.push(answer);
                }
                message => self.send_to_node(id, message),
            },
            Action::Send { to: Peer::Worker(to), message } => self.send_to(id, to, *message),
            Action::Push { worker, spec, dependencies, gpus } => {
                let push = Push { spec: Box::new((*spec).clone()), dependencies, gpus };
                self.send_to(id, worker, push.into());
            }
            Action::FreeBlock(location) => {
                self.send_to_node(id, FreeBlocks { places: vec![location.place()] }.into());
            }
            Action::Warn(text) => self.tell(End::Process(id), &format!("warns: {text}")),
            Action::Interrupt { task, .. } => {
                let task = self.names.task(task);
                self.tell(End::Process(id), &format!("is to interrupt {task}"));
            }
            Action::Ready(_) => {}
        }
    }

    fn send_to_node(&mut self, id: WorkerId, message: Message) {
        self.send(End::Process(id), End::Node(node_of(id)), Item::Message(Box::new(message)));
    }

    /// Something for another process: the node is asked for a connection, once.
    fn send_to(&mut self, id: WorkerId, to: WorkerId, mut message: Message) {
        if to == id {
            let now = self.now;
            self.with_process(id, |core, out| core.on_message(Peer::Worker(id), message, now, out));
            return;
        }
        if self.processes.get_mut(&id).expect("lives").lines.insert(to) {
            self.send_to_node(id, Connect { worker: to }.into());
        }
        if node_of(id) != node_of(to) {
            message.globalise(id.node());
        }
        self.send(End::Process(id), End::Process(to), Item::Message(Box::new(message)));
    }

    // --- what it hears ---

    pub fn process_hears(&mut self, from: End, id: WorkerId, mut message: Message) {
        let peer = match from {
            End::Process(from) => {
                message.localise_from(from, id.node());
                Peer::Worker(from)
            }
            End::Node(_) | End::Head => Peer::Node,
        };
        match &message {
            Message::PeerConnected(connected) => {
                let other = connected.worker;
                self.processes.get_mut(&id).expect("lives").lines.insert(other);
                self.channel(End::Process(id), End::Process(other)).is_connected = true;
                self.channel(End::Process(other), End::Process(id)).is_open = true;
                return;
            }
            Message::Shutdown(_) | Message::ExitActor(_) => return self.kill_process(id, "ends"),
            Message::EndIdle(_) if !self.processes[&id].core.is_needed() => {
                return self.kill_process(id, "ends, for want of work");
            }
            Message::TrimBlocks(_) => return,
            Message::WorkerDead(gone) => self.read_to_the_end(gone.worker, id),
            _ => {}
        }
        let now = self.now;
        match self.with_process(id, |core, out| core.on_message(peer, message, now, out)) {
            Some(Message::GivenBlocks(GivenBlocks { giver, places })) => {
                self.send_to_node(id, UnknownBlocks { giver, places }.into());
            }
            Some(Message::ReadersOf(question)) => {
                self.with_process(id, |core, out| core.on_readers_of(question, |_| false, out));
            }
            _ => {}
        }
        // The shell looks at the timer after each batch of what it reads.
        if self.processes.contains_key(&id) {
            self.with_process(id, |core, out| core.on_timer(now, out));
        }
    }

    /// The line of a process that is gone is read to its end before the core hears that it is.
    fn read_to_the_end(&mut self, dead: WorkerId, id: WorkerId) {
        while self.deliver(End::Process(dead), End::Process(id)) {}
        self.channels.remove(&(End::Process(dead), End::Process(id)));
        self.processes.get_mut(&id).expect("lives").lines.remove(&dead);
    }

    // --- what it does ---

    /// What runs in a process goes as far as it can.
    pub fn process_goes_on(&mut self, id: WorkerId) {
        self.answer_what_may_go(id);
        self.read_on(id);
        while self.processes.contains_key(&id) && self.begin_next(id) {
            self.answer_what_may_go(id);
        }
        if let Some(process) = self.processes.get(&id)
            && !process.dropped.is_empty()
        {
            self.with_process(id, |_, _| ());
        }
    }

    /// An answer to the news of a death goes when all that was said before to other nodes has come.
    fn answer_what_may_go(&mut self, id: WorkerId) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        if process.held_back.is_empty() {
            return;
        }
        let is_owed = |((from, to), channel): (&(End, End), &super::cluster::Channel)| {
            let is_far = matches!(to, End::Process(to) if node_of(*to) != node_of(id));
            *from == End::Process(id) && !channel.queue.is_empty() && (is_far || !channel.is_connected)
        };
        if !self.channels.iter().any(is_owed) {
            for answer in std::mem::take(&mut process.held_back) {
                self.send_to_node(id, answer);
            }
        }
    }

    /// Whoever waits for a value asks for it, has it brought, or reads it.
    fn read_on(&mut self, id: WorkerId) {
        let Some(process) = self.processes.get_mut(&id) else { return };
        let mut waiting = Vec::new();
        for (object, slot) in std::mem::take(&mut process.gets) {
            match slot.place() {
                Place::Nowhere => self.with_process(id, |core, out| core.need(object, out)),
                Place::Elsewhere => {
                    self.with_process(id, |core, out| {
                        core.ownership_mut().bring(object, Priority::Get, out);
                    });
                }
                Place::OnItsWay => {}
                Place::OutOfReach | Place::Here => {
                    let outcome = slot.outcome().expect("it is there");
                    self.assert_readable(id, object, &outcome);
                    let (name, value) = (self.names.object(object), self.names.value_read(&outcome));
                    self.tell(End::Process(id), &format!("has {name}: {value}"));
                    self.processes.get_mut(&id).expect("lives").release((object, slot));
                    continue;
                }
            }
            waiting.push((object, slot));
        }
        self.processes.get_mut(&id).expect("lives").gets.append(&mut waiting);
    }

    /// The next task begins; most end at once. False if there is none.
    fn begin_next(&mut self, id: WorkerId) -> bool {
        let process = &self.processes[&id];
        if process.is_driver || !process.frames.is_empty() || self.has_to_save(id) {
            return false;
        }
        let Some(incoming) = self.with_process(id, |core, _| core.next_execution()) else { return false };
        let spec = incoming.push.spec.clone();
        let task = spec.task;
        let call = self.names.call(&spec);
        let again = if incoming.is_again { ", which was answered before" } else { "" };
        self.tell(End::Process(id), &format!("runs {call}{again}"));
        let mut locals: Vec<Handle> = incoming.references.clone();
        for (dependency, met) in incoming.push.dependencies.iter().zip(&incoming.dependencies) {
            self.assert_readable(id, dependency.object, &dependency.outcome);
            assert!(!matches!(dependency.outcome, Outcome::Failed(_)), "it has a value");
            locals.extend(met.stored.iter().map(|slot| (dependency.object, slot.clone())));
            locals.extend(met.contained.iter().cloned());
        }
        locals.iter().for_each(|(_, slot)| slot.acquire());
        let process = self.processes.get_mut(&id).expect("lives");
        process.last_started = Some(Started { task, in_actor: spec.kind().in_actor() });
        process.frames.push(Frame { task, incoming, locals });
        match spec.kind() {
            TaskKind::Creation => self.construct(id, task),
            TaskKind::Method(_) if spec.kept() != Some(false) => {
                let name = self.names.task(task);
                let instance = self.processes.get_mut(&id).expect("lives").instance.as_mut();
                instance.expect("its constructor was first").calls.push(name);
            }
            TaskKind::Method(_) | TaskKind::Task(_) => {}
        }
        if spec.kind() != TaskKind::Creation && !self.waits.contains(&task.object(0)) {
            let is_large = self.large.contains(&task.object(0));
            self.finish(id, task, is_large, Vec::new(), false);
        }
        true
    }

    /// A task ends: with its value, which may contain references, or with an exception. Its arguments are
    /// read once more.
    pub fn finish(
        &mut self,
        id: WorkerId,
        task: TaskId,
        is_large: bool,
        contained: Vec<ObjectId>,
        raises: bool,
    ) {
        let process = self.processes.get_mut(&id).expect("lives");
        let at = process.frames.iter().position(|frame| frame.task == task).expect("it runs there");
        let frame = process.frames.remove(at);
        for argument in &frame.incoming.push.dependencies {
            self.assert_readable(id, argument.object, &argument.outcome);
        }
        let process = self.processes.get_mut(&id).expect("lives");
        let (returned, gone): (Vec<_>, Vec<_>) =
            frame.locals.into_iter().partition(|(local, _)| contained.contains(local));
        gone.into_iter().for_each(|handle| process.release(handle));
        let object = task.object(0);
        let outcome = if raises {
            Outcome::Failed(Box::new(Failure::new(FailureCode::Task, "raised")))
        } else if is_large {
            self.store(id, object)
        } else {
            Outcome::Inline(Blob::from(self.names.object(object).as_bytes()))
        };
        for (local, slot) in &returned {
            if !slot.is_registered() {
                self.with_process(id, |core, _| core.ownership_mut().own(*local, slot.clone()));
            }
        }
        let returns = vec![Return { outcome, contained }];
        self.with_process(id, |core, out| core.on_finished(task, returns, 1_000u64, false, out));
        let process = self.processes.get_mut(&id).expect("lives");
        returned.into_iter().for_each(|handle| process.release(handle));
        self.with_process(id, |_, _| ());
    }

    // --- actors ---

    /// The constructor runs: this process is the actor from now on, with the state of the one before, if that
    /// was saved.
    fn construct(&mut self, id: WorkerId, actor: ActorId) {
        let mut calls = Vec::new();
        let mut kept = Vec::new();
        if let Some(restored) = self.with_process(id, |core, _| core.take_restored()) {
            let Outcome::Inline(bytes) = &restored.outcome else { panic!("states are small here") };
            let text = String::from_utf8_lossy(bytes.as_slice()).into_owned();
            self.tell(End::Process(id), &format!("goes on from the state {text:?}"));
            calls = text.split(' ').filter(|call| !call.is_empty()).map(str::to_owned).collect();
            for (object, slot) in &restored.contained {
                slot.acquire();
                kept.push((*object, slot.clone()));
            }
            self.with_process(id, |core, out| core.on_restored(&restored, out));
        }
        let process = self.processes.get_mut(&id).expect("lives");
        process.instance = Some(Instance { actor, calls });
        process.kept.append(&mut kept);
        let frame = process.frames.pop().expect("the constructor");
        frame.locals.into_iter().for_each(|handle| process.release(handle));
        self.with_process(id, |core, out| core.on_constructed(actor, None, out));
    }

    /// A checkpoint is due: it is taken when all replies have left and have come. True until then.
    fn has_to_save(&mut self, id: WorkerId) -> bool {
        let process = &self.processes[&id];
        let Some(instance) = process.instance.as_ref().filter(|_| process.core.checkpoint_is_due()) else {
            return false;
        };
        let is_on_its_way = |((from, to), channel): (&(End, End), &super::cluster::Channel)| {
            *from == End::Process(id) && matches!(to, End::Process(_)) && !channel.queue.is_empty()
        };
        if self.channels.iter().any(is_on_its_way) {
            return true;
        }
        let (actor, text) = (instance.actor, instance.calls.join(" "));
        let contained: Vec<ObjectId> = process.kept.iter().map(|(object, _)| *object).collect();
        let outcome = Outcome::Inline(Blob::from(text.as_bytes()));
        self.with_process(id, |core, out| core.on_checkpoint(actor, Return { outcome, contained }, out));
        false
    }

    // --- ends ---

    /// A process ends. What it has sent arrives, and its node hears of the end behind that.
    pub fn kill_process(&mut self, id: WorkerId, how: &'static str) {
        let is_starting = self.starting.remove(&id);
        let process = self.processes.remove(&id);
        if process.is_none() && !is_starting {
            return;
        }
        self.tell(End::Process(id), how);
        self.gone.insert(id);
        let end = End::Process(id);
        let to_it: Vec<(End, End)> = self.channels.keys().filter(|(_, to)| *to == end).copied().collect();
        for key in to_it {
            let channel = self.channels.remove(&key).expect("listed");
            for (_, item) in channel.queue {
                self.record_lost(key.0, end, &item);
            }
        }
        let last = process.and_then(|process| process.last_started);
        self.send(end, End::Node(node_of(id)), Item::End("was killed", last));
    }
}

impl super::describe::Names {
    /// A value as whoever reads it sees it.
    pub fn value_read(&self, outcome: &Outcome) -> String {
        match outcome {
            Outcome::Inline(bytes) => format!("{:?}", String::from_utf8_lossy(bytes.as_slice())),
            Outcome::Stored(_) => "in shared memory".to_owned(),
            Outcome::Remote(_) => "out of reach".to_owned(),
            Outcome::Failed(failure) => failed(failure),
        }
    }
}
