//! A node and a control service with a connection in between, against the two in one: the same words have the
//! same outcome, whenever they arrive, and a control service that starts again learns what it has to know.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;
use sooner_protocol::control::{Directory, DirectoryAction, DirectoryActions};
use sooner_protocol::engine::Solo;
use sooner_protocol::node::uplink::Member;
use sooner_protocol::node::{NodeAction, NodeActions};
use sooner_protocol::scheduling::policy::NodeRow;
use sooner_protocol::time::Instant;
use sooner_protocol::uplink::{End, ToControl, ToNode};
use sooner_wire::limits::CONTROL_AWAY_NANOS;
use sooner_wire::message::state::ActorRow;
use sooner_wire::message::{
    ActorCreation, ActorOutOfScope, ActorReady, Bundle, Checkpoint, CreateActor, CreateGroup, Define,
    FindGroup, FindName, GroupStrategy, Job, JobConfig, JobState, KillActor, ListNames, Location, Message,
    Outcome, Push, Query, QueryKind, RemoveGroup, ReserveName, SubscribeActor, Target, TaskSpec,
};
use sooner_wire::{ActorId, Blob, BlockId, FunctionId, GroupId, Name, NodeId, Takeover, TaskId, WorkerId};

mod kit;

use kit::{cpus, plain};

const NOW: Instant = Instant(5);
const HERE: NodeId = NodeId(1 << 24);
const CLIENTS: usize = 2;

/// A node and a control service, however they are connected.
trait Pair {
    fn new_process(&mut self) -> WorkerId;
    fn send(&mut self, from: WorkerId, message: Message) -> NodeActions;
    fn end(&mut self, process: WorkerId) -> NodeActions;
    fn connect(&mut self, process: WorkerId) -> NodeActions;
    fn allocate(&mut self, block: u64, process: WorkerId);
    /// One word arrives, up or down.
    fn pump(&mut self, up: bool) -> NodeActions;
    fn is_silent(&self) -> bool;
    fn actors(&self) -> Vec<ActorRow>;
    fn blocks(&self) -> usize;
    fn is_quiet(&self) -> bool;
}

impl Pair for Solo {
    fn new_process(&mut self) -> WorkerId {
        let id = self.new_worker_id();
        self.on_connected(id, 1, NOW);
        id
    }

    fn send(&mut self, from: WorkerId, message: Message) -> NodeActions {
        let mut out = NodeActions::new();
        assert_eq!(self.on_message(from, message, NOW, &mut out), None);
        self.after_events(NOW, &mut out);
        self.check();
        out
    }

    fn end(&mut self, process: WorkerId) -> NodeActions {
        let mut out = NodeActions::new();
        self.on_dead(process, "was killed", None, &mut out);
        self.after_events(NOW, &mut out);
        out
    }

    fn connect(&mut self, process: WorkerId) -> NodeActions {
        let mut out = NodeActions::new();
        self.on_connected(process, 1, NOW);
        self.after_events(NOW, &mut out);
        out
    }

    fn allocate(&mut self, block: u64, process: WorkerId) {
        self.on_allocated(BlockId(block), process);
    }

    fn pump(&mut self, _: bool) -> NodeActions {
        NodeActions::new()
    }

    fn is_silent(&self) -> bool {
        true
    }

    fn actors(&self) -> Vec<ActorRow> {
        self.report().actors
    }

    fn blocks(&self) -> usize {
        self.holders().len()
    }

    fn is_quiet(&self) -> bool {
        sooner_protocol::node::NodeCore::is_quiet(self)
    }
}

/// With everything encoded in between.
struct Linked {
    member: Member,
    control: Directory,
    up: VecDeque<Vec<u8>>,
    down: VecDeque<Vec<u8>>,
}

fn encode(message: &Message) -> Vec<u8> {
    let mut bytes = message.kind().to_be_bytes().to_vec();
    let mut frame = Vec::new();
    message.append(&mut frame, 0);
    bytes.extend_from_slice(&frame[sooner_wire::frame::HEAD_BYTES..]);
    bytes
}

fn decode(bytes: &[u8]) -> Message {
    let kind = u16::from_be_bytes([bytes[0], bytes[1]]);
    assert!(sooner_protocol::uplink::wire::is_for_directory(kind), "{kind}");
    Message::decode(kind, &bytes[2..]).expect("it was encoded")
}

impl Linked {
    fn new(count: f64) -> Self {
        let mut this = Self {
            member: Member::new(cpus(count), HERE.0, 2),
            control: Directory::default(),
            up: VecDeque::new(),
            down: VecDeque::new(),
        };
        this.join(count);
        this
    }

    fn join(&mut self, count: f64) {
        let (total, free, labels) = (cpus(count), cpus(count), Vec::new());
        self.control.on_node_joined(NodeRow { node: HERE, total, free, labels });
    }

    fn with(&mut self, work: impl FnOnce(&mut Member, &mut NodeActions)) -> NodeActions {
        self.at(NOW, work)
    }

    /// Settles the node, and has what it says to the control service on its way.
    fn at(&mut self, now: Instant, work: impl FnOnce(&mut Member, &mut NodeActions)) -> NodeActions {
        let mut out = NodeActions::new();
        work(&mut self.member, &mut out);
        self.member.after_events(now, &mut out);
        self.member.check();
        let mut rest = NodeActions::new();
        for action in out {
            match action {
                NodeAction::Control(word) => self.up.push_back(encode(&word.into_message(HERE))),
                other => rest.push(other),
            }
        }
        rest
    }

    fn with_control(&mut self, work: impl FnOnce(&mut Directory, &mut DirectoryActions)) {
        let mut out = DirectoryActions::new();
        if self.control.wants_reports() {
            self.report();
        }
        work(&mut self.control, &mut out);
        self.control.after_events(NOW, &mut out);
        for action in out {
            if let DirectoryAction::Send(node, word) = action {
                assert_eq!(node, HERE);
                self.down.push_back(encode(&word.into_message()));
            }
        }
    }

    fn report(&mut self) {
        let (total, labels) = (self.member.report().total, Vec::new());
        let free = self.member.resources_now().0;
        self.control.on_report(NodeRow { node: HERE, total, free, labels });
    }

    /// The control service forgets everything and starts again.
    fn restart_control(&mut self, count: f64) -> NodeActions {
        self.control = Directory::default();
        self.up.clear();
        self.down.clear();
        self.member.on_control_down(NOW);
        self.control.expect_nodes(Instant(1 << 40));
        self.join(count);
        let out = self.with(|member, out| member.on_control_up(true, NOW, out));
        while let Some(word) = self.up.pop_front() {
            let word = ToControl::parse(decode(&word), HERE).expect("a word");
            self.with_control(|control, out| control.on_node(HERE, word, NOW, out));
        }
        self.with_control(|control, out| control.on_all_here(NOW, out));
        out
    }
}

impl Pair for Linked {
    fn new_process(&mut self) -> WorkerId {
        let id = self.member.new_worker_id();
        self.member.on_connected(id, 1, NOW);
        let config = Box::new(JobConfig::default());
        assert_eq!(self.with(|member, out| member.on_job(id, config, out)), []);
        id
    }

    fn send(&mut self, from: WorkerId, message: Message) -> NodeActions {
        self.with(|member, out| assert_eq!(member.on_message(from, message, NOW, out), None))
    }

    fn end(&mut self, process: WorkerId) -> NodeActions {
        self.with(|member, out| member.on_dead(process, "was killed", None, out))
    }

    fn connect(&mut self, process: WorkerId) -> NodeActions {
        self.with(|member, _| member.on_connected(process, 1, NOW))
    }

    fn allocate(&mut self, block: u64, process: WorkerId) {
        self.member.on_allocated(BlockId(block), process);
    }

    fn pump(&mut self, up: bool) -> NodeActions {
        let is_up = if self.up.is_empty() { false } else { up || self.down.is_empty() };
        if is_up {
            let word = decode(&self.up.pop_front().expect("checked"));
            let word = ToControl::parse(word, HERE).expect("a word of this node");
            self.with_control(|control, out| control.on_node(HERE, word, NOW, out));
            return NodeActions::new();
        }
        let Some(word) = self.down.pop_front() else { return NodeActions::new() };
        let word = ToNode::parse(decode(&word), HERE).expect("a word of the control service");
        self.with(|member, out| member.on_control(word, NOW, out))
    }

    fn is_silent(&self) -> bool {
        self.up.is_empty() && self.down.is_empty()
    }

    fn actors(&self) -> Vec<ActorRow> {
        self.control.report()
    }

    fn blocks(&self) -> usize {
        self.member.holders().len()
    }

    fn is_quiet(&self) -> bool {
        self.member.is_quiet()
    }
}

#[derive(Debug, Clone)]
enum Step {
    Create {
        by: usize,
        number: u64,
        restarts: i32,
        detached: bool,
        checkpoints: bool,
    },
    Reserve {
        by: usize,
        number: u64,
        name: u8,
    },
    Find {
        by: usize,
        name: u8,
    },
    List {
        by: usize,
    },
    Subscribe {
        by: usize,
        to: (usize, u64),
    },
    Kill {
        by: usize,
        to: (usize, u64),
        may_restart: bool,
    },
    Drop {
        by: usize,
        number: u64,
    },
    Group {
        by: usize,
        number: u64,
    },
    RemoveGroup {
        by: usize,
        number: u64,
    },
    /// The process of an actor ends by itself.
    Crash {
        to: (usize, u64),
    },
    Checkpoint {
        to: (usize, u64),
    },
    EndClient {
        by: usize,
    },
    Pump(Vec<bool>),
}

fn step() -> impl Strategy<Value = Step> {
    let by = 0..CLIENTS;
    let number = 1..4u64;
    let to = (0..CLIENTS, 1..4u64);
    prop_oneof![
        6 => (by.clone(), number.clone(), -1..2i32, any::<bool>(), any::<bool>()).prop_map(
            |(by, number, restarts, detached, checkpoints)| Step::Create { by, number, restarts, detached, checkpoints }),
        3 => (by.clone(), number.clone(), 0..3u8).prop_map(|(by, number, name)| Step::Reserve { by, number, name }),
        1 => (by.clone(), 0..3u8).prop_map(|(by, name)| Step::Find { by, name }),
        1 => by.clone().prop_map(|by| Step::List { by }),
        2 => (by.clone(), to.clone()).prop_map(|(by, to)| Step::Subscribe { by, to }),
        2 => (by.clone(), to.clone(), any::<bool>())
            .prop_map(|(by, to, may_restart)| Step::Kill { by, to, may_restart }),
        1 => (by.clone(), number.clone()).prop_map(|(by, number)| Step::Drop { by, number }),
        1 => (by.clone(), number.clone()).prop_map(|(by, number)| Step::Group { by, number }),
        1 => (by.clone(), number).prop_map(|(by, number)| Step::RemoveGroup { by, number }),
        2 => to.clone().prop_map(|to| Step::Crash { to }),
        2 => to.prop_map(|to| Step::Checkpoint { to }),
        1 => by.prop_map(|by| Step::EndClient { by }),
        6 => proptest::collection::vec(any::<bool>(), 1..6).prop_map(Step::Pump),
    ]
}

/// Clients, the processes of actors, and what is said to them.
struct World<P> {
    pair: P,
    clients: [Option<WorkerId>; CLIENTS],
    ids: [WorkerId; CLIENTS],
    /// Actors that were created, or will never be.
    made: BTreeSet<ActorId>,
    named: BTreeSet<ActorId>,
    groups: BTreeSet<TaskId>,
    requests: u64,
    blocks: u64,
    /// What each client was told in answer, by question: whether it was refused.
    answers: BTreeMap<(WorkerId, u64), (bool, Option<ActorId>)>,
    /// Whether a client was told that an actor is gone.
    dead: BTreeSet<(WorkerId, ActorId)>,
    /// With which state the latest process of an actor began.
    restored: BTreeMap<ActorId, Option<Outcome>>,
}

impl<P: Pair> World<P> {
    fn new(mut pair: P) -> Self {
        let ids = [pair.new_process(), pair.new_process()];
        Self {
            pair,
            clients: ids.map(Some),
            ids,
            made: BTreeSet::new(),
            named: BTreeSet::new(),
            groups: BTreeSet::new(),
            requests: 0,
            blocks: 0,
            answers: BTreeMap::new(),
            dead: BTreeSet::new(),
            restored: BTreeMap::new(),
        }
    }

    fn actor(&self, (by, number): (usize, u64)) -> ActorId {
        TaskId { owner: self.ids[by], number }
    }

    fn perform(&mut self, out: NodeActions) {
        for action in out {
            match action {
                NodeAction::StartWorker(worker) => {
                    let more = self.pair.connect(worker);
                    self.perform(more);
                }
                NodeAction::KillWorker(worker) => self.end(worker),
                NodeAction::Send(to, message) => self.deliver(to, *message),
                _ => {}
            }
        }
    }

    fn deliver(&mut self, to: WorkerId, message: Message) {
        match message {
            // The constructor returns at once.
            Message::Push(push) => self.send(to, ActorReady { actor: push.spec.task, failure: None }),
            Message::Restore(restore) => {
                self.restored.insert(restore.actor, restore.state.map(|state| state.outcome));
            }
            Message::ExitActor(_) | Message::Shutdown(_) | Message::EndIdle(_) => self.end(to),
            Message::Answer(answer) => {
                self.answers.insert((to, answer.request), (answer.error.is_some(), answer.actor));
            }
            Message::GroupState(state) if state.request != 0 => {
                self.answers.insert((to, state.request), (state.error.is_some(), None));
            }
            Message::ActorDead(dead) => {
                self.dead.insert((to, dead.actor));
            }
            Message::ForgetLost(question) => {
                let round = question.round;
                self.send(to, sooner_wire::message::StillRead { round, places: Vec::new(), lent: None });
            }
            Message::ReadersOf(question) => {
                let round = question.round;
                self.send(to, sooner_wire::message::StillRead { round, places: Vec::new(), lent: Some(0) });
            }
            Message::WorkerDead(gone) => {
                self.send(to, sooner_wire::message::HeldFrom { gone: gone.worker, held: Vec::new() });
            }
            _ => {}
        }
    }

    fn send(&mut self, from: WorkerId, message: impl Into<Message>) {
        let out = self.pair.send(from, message.into());
        self.perform(out);
    }

    fn end(&mut self, process: WorkerId) {
        let out = self.pair.end(process);
        self.perform(out);
    }

    fn drain(&mut self) {
        while !self.pair.is_silent() {
            let out = self.pair.pump(true);
            self.perform(out);
        }
    }

    fn process(&self, actor: ActorId) -> Option<WorkerId> {
        self.pair.actors().into_iter().find(|row| row.actor == actor)?.worker
    }

    fn run(&mut self, steps: &[Step]) {
        for step in steps {
            self.step(step);
        }
        self.drain();
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Create { by, number, restarts, detached, checkpoints } => {
                let Some(from) = self.clients[*by] else { return };
                let id = self.actor((*by, *number));
                if self.made.insert(id) {
                    self.send(from, create(id, *restarts, *detached, *checkpoints));
                }
            }
            Step::Reserve { by, number, name } => {
                let Some(from) = self.clients[*by] else { return };
                let actor = self.actor((*by, *number));
                if !self.made.contains(&actor) && self.named.insert(actor) {
                    self.requests += 1;
                    let (namespace, name) = ("space".to_owned(), name.to_string());
                    let (request, description) = (self.requests, Blob::from(&b"it"[..]));
                    self.send(from, ReserveName { request, namespace, name, actor, description });
                }
            }
            Step::Find { by, name } => {
                let Some(from) = self.clients[*by] else { return };
                self.requests += 1;
                let (request, namespace, name) = (self.requests, "space".to_owned(), name.to_string());
                self.send(from, FindName { request, namespace, name });
            }
            Step::List { by } => {
                let Some(from) = self.clients[*by] else { return };
                self.requests += 1;
                self.send(from, ListNames { request: self.requests, namespace: None });
            }
            Step::Subscribe { by, to } => {
                let Some(from) = self.clients[*by] else { return };
                let actor = self.actor(*to);
                // An owner says so that its actor will come, others ask for it.
                if (actor.owner == from) != self.made.contains(&actor) {
                    self.send(from, SubscribeActor { actor });
                }
            }
            Step::Kill { by, to, may_restart } => {
                let Some(from) = self.clients[*by] else { return };
                let actor = self.actor(*to);
                if !self.made.contains(&actor) {
                    return;
                }
                // Whether there is a process to be killed must not be a matter of time.
                self.drain();
                self.send(from, KillActor { actor, may_restart: Some(*may_restart) });
                self.drain();
            }
            Step::Drop { by, number } => {
                let Some(from) = self.clients[*by] else { return };
                let actor = self.actor((*by, *number));
                if self.made.contains(&actor) {
                    self.send(from, ActorOutOfScope { actor });
                }
            }
            Step::Group { by, number } => {
                let Some(from) = self.clients[*by] else { return };
                let group = TaskId { owner: from, number: 100 + *number };
                if self.groups.insert(group) {
                    self.requests += 1;
                    let bundles = vec![Bundle { resources: cpus(1.0), labels: Vec::new() }];
                    let (request, strategy, driver) = (self.requests, GroupStrategy::Pack, Some(from));
                    self.send(from, CreateGroup { request, group, title: None, strategy, bundles, driver });
                }
            }
            Step::RemoveGroup { by, number } => {
                let Some(from) = self.clients[*by] else { return };
                self.send(from, RemoveGroup { group: TaskId { owner: from, number: 100 + *number } });
            }
            Step::Crash { to } => {
                self.drain();
                if let Some(worker) = self.process(self.actor(*to)) {
                    self.end(worker);
                }
            }
            Step::Checkpoint { to } => {
                self.drain();
                let actor = self.actor(*to);
                let Some(worker) = self.process(actor) else { return };
                self.blocks += 64;
                self.pair.allocate(self.blocks, worker);
                let location = Location { offset: self.blocks, length: 7 };
                let state = plain(Outcome::Stored(location));
                self.send(worker, Checkpoint { actor, state, calls: Vec::new() });
            }
            Step::EndClient { by } => {
                self.drain();
                if let Some(client) = self.clients[*by].take() {
                    self.end(client);
                }
                self.drain();
            }
            Step::Pump(ways) => {
                for up in ways {
                    let out = self.pair.pump(*up);
                    self.perform(out);
                }
            }
        }
    }

    /// What is to be the same, however words travelled: of actors that are not gone. How long the others are
    /// remembered for those who look at the state may depend on it.
    fn outcome(&self) -> BTreeMap<ActorId, Told> {
        let rows = self.pair.actors().into_iter().filter(|row| row.phase != 4);
        rows.map(|row| (row.actor, told(&row))).collect()
    }
}

/// Its name, and how many processes it had before.
type Living = (Option<(String, String)>, Option<u32>);

/// Phase, name, processes before, whether it is detached, checkpoints, whether it has a process.
type Told = (u8, Option<(String, String)>, Option<u32>, Option<bool>, Option<u64>, bool);

fn told(row: &ActorRow) -> Told {
    (row.phase, row.name.clone(), row.restarts, row.detached, row.checkpoints, row.worker.is_some())
}

fn create(actor: ActorId, restarts: i32, detached: bool, checkpoints: bool) -> CreateActor {
    let name = Name::from("Counter");
    let (code, references) = (Blob::default(), Vec::new());
    let class = FunctionId(1);
    let checkpoint_every = checkpoints.then_some(1);
    let creation = ActorCreation { concurrency: 1, checkpoint_every, ..ActorCreation::new(class) };
    let spec = TaskSpec::of(actor, Target::Class(creation), name.clone(), Blob::default());
    CreateActor {
        actor,
        placement: cpus(1.0),
        lifetime: cpus(0.5),
        class: Box::new(Define { function: class, name, code, references, place: None }),
        constructor: Box::new(Push { spec: Box::new(spec), dependencies: Vec::new(), gpus: Vec::new() }),
        restarts: Some(restarts),
        detached: Some(detached),
        job: None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_same_happens_wherever_the_control_service_is(steps in proptest::collection::vec(step(), 0..40)) {
        let mut here = World::new(Solo::new(cpus(64.0), HERE.0, 2));
        let mut linked = World::new(Linked::new(64.0));
        here.run(&steps);
        linked.run(&steps);
        prop_assert_eq!(here.outcome(), linked.outcome());
        prop_assert_eq!(&here.answers, &linked.answers);
        prop_assert_eq!(here.pair.blocks(), linked.pair.blocks());
        for client in 0..CLIENTS {
            let end = Step::EndClient { by: client };
            here.step(&end);
            linked.step(&end);
        }
        for actor in here.made.clone() {
            for (by, number) in [(0, actor.number), (1, actor.number)] {
                here.step(&Step::Crash { to: (by, number) });
                linked.step(&Step::Crash { to: (by, number) });
            }
        }
        linked.drain();
        prop_assert_eq!(here.outcome(), linked.outcome());
        prop_assert_eq!(here.pair.is_quiet(), linked.pair.is_quiet());
    }

    #[test]
    fn a_control_service_that_starts_again_learns_what_lives(
        steps in proptest::collection::vec(step(), 0..30),
        at in 0..30usize,
        more in proptest::collection::vec(step(), 0..10),
    ) {
        let mut steady = World::new(Linked::new(64.0));
        let mut shaken = World::new(Linked::new(64.0));
        // Whether a process begins before its actor is dropped, or a name is free before it is asked for,
        // must not be a matter of time: so only the words of one step are under way when the control service
        // ends.
        for (number, step) in steps.iter().enumerate() {
            steady.run(std::slice::from_ref(step));
            shaken.step(step);
            if number == at {
                let out = shaken.pair.restart_control(64.0);
                shaken.perform(out);
            }
            shaken.drain();
        }
        let living = |world: &World<Linked>| -> BTreeMap<ActorId, Living> {
            let all = world.outcome().into_iter();
            all.map(|(actor, told)| (actor, (told.1, told.2))).collect()
        };
        prop_assert_eq!(living(&steady), living(&shaken));
        prop_assert_eq!(&steady.answers, &shaken.answers);
        steady.run(&more);
        shaken.run(&more);
        prop_assert_eq!(living(&steady), living(&shaken));
        for actor in steady.made.clone() {
            let by = usize::from(actor.owner == steady.ids[1]);
            let crash = [Step::Crash { to: (by, actor.number) }];
            steady.run(&crash);
            shaken.run(&crash);
        }
        prop_assert_eq!(&steady.restored, &shaken.restored);
        // Groups end with the process that they were made for, wherever that is noticed.
        for world in [&mut steady, &mut shaken] {
            world.run(&[Step::EndClient { by: 0 }, Step::EndClient { by: 1 }]);
            for actor in world.made.clone() {
                let by = usize::from(actor.owner == world.ids[1]);
                world.run(&[Step::Crash { to: (by, actor.number) }, Step::Crash { to: (by, actor.number) }]);
            }
        }
        prop_assert_eq!(steady.pair.is_quiet(), shaken.pair.is_quiet());
    }
}

#[test]
fn questions_end_when_the_control_service_stays_away() {
    let mut linked = Linked::new(1.0);
    let client = linked.new_process();
    linked.member.on_control_down(NOW);
    let find = FindName { request: 3, namespace: "space".to_owned(), name: "it".to_owned() };
    assert_eq!(linked.send(client, find.into()), []);
    let until = linked.member.next_deadline().expect("it does not wait for ever");
    assert_eq!(until.since(NOW), CONTROL_AWAY_NANOS);
    let mut out = NodeActions::new();
    linked.member.after_events(until, &mut out);
    let [NodeAction::Send(to, message)] = &out[..] else { panic!("one answer: {out:?}") };
    let Message::Answer(answer) = &**message else { panic!("{message:?}") };
    assert_eq!((*to, answer.request), (client, 3));
    assert!(answer.error.as_ref().is_some_and(|error| error.contains("sooner start --head")), "{answer:?}");
    assert_eq!(answer.unavailable, Some(true));
    assert_eq!(linked.member.next_deadline(), None);
    // What comes after that is not for anybody.
    while !linked.is_silent() {
        let out = linked.pump(true);
        assert!(!out.iter().any(|action| matches!(action, NodeAction::Send(..))), "{out:?}");
    }
}

/// Questions of each kind, under numbers from 1 on.
fn questions(linked: &mut Linked, client: WorkerId) {
    let (namespace, name) = ("space".to_owned(), "it".to_owned());
    let title = Some((namespace.clone(), name.clone()));
    let all: [Message; 5] = [
        FindName { request: 1, namespace, name }.into(),
        ListNames { request: 2, namespace: None }.into(),
        Query { request: 3, what: QueryKind::TotalResources }.into(),
        FindGroup { request: 4, group: None, title: None, attempt: None }.into(),
        FindGroup { request: 5, group: None, title, attempt: None }.into(),
    ];
    for question in all {
        assert_eq!(linked.send(client, question), []);
    }
}

/// Which questions are answered, each with an error.
fn given_up(out: &NodeActions) -> Vec<u64> {
    let answered = |action: &NodeAction| {
        let NodeAction::Send(_, message) = action else { panic!("{action:?}") };
        let (request, error) = match &**message {
            Message::Answer(answer) => (answer.request, &answer.error),
            Message::GroupState(state) => (state.request, &state.error),
            other => panic!("{other:?}"),
        };
        assert!(error.as_ref().is_some_and(|error| error.contains("has not answered for 30 s")), "{error:?}");
        request
    };
    out.iter().map(answered).collect()
}

#[test]
fn questions_end_when_the_control_service_stands_still_behind_its_connection() {
    let mut linked = Linked::new(1.0);
    let client = linked.new_process();
    questions(&mut linked, client);
    let until = linked.member.next_deadline().expect("they do not wait for ever");
    assert_eq!(until.since(NOW), CONTROL_AWAY_NANOS);
    assert_eq!(linked.at(Instant(until.0 - 1), |_, _| ()), []);
    assert_eq!(given_up(&linked.at(until, |_, _| ())), [1, 2, 3, 4]);
    // The head says itself that its disk does not answer, and why.
    let last = linked.member.next_deadline().expect("one is left");
    assert!(last > until);
    assert_eq!(given_up(&linked.at(last, |_, _| ())), [5]);
    assert_eq!(linked.member.next_deadline(), None);
    // One that is asked later has its own time.
    let later = last.plus(1);
    let ask = Query { request: 6, what: QueryKind::TotalResources };
    linked.at(later, |member, out| assert_eq!(member.on_message(client, ask.into(), later, out), None));
    assert_eq!(linked.member.next_deadline(), Some(later.plus(CONTROL_AWAY_NANOS)));
    // It goes on, and what it answers is only for who still waits.
    let mut answered = Vec::new();
    while !linked.is_silent() {
        for action in linked.pump(true) {
            let NodeAction::Send(_, message) = action else { continue };
            let Message::Answer(answer) = *message else { panic!("{message:?}") };
            answered.push((answer.request, answer.error));
        }
    }
    assert_eq!(answered, [(6, None)]);
    assert_eq!(linked.member.next_deadline(), None);
}

#[test]
fn a_control_service_that_has_just_begun_has_its_own_time_to_answer() {
    let mut linked = Linked::new(1.0);
    let client = linked.new_process();
    questions(&mut linked, client);
    let begun = NOW.plus(CONTROL_AWAY_NANOS - 1);
    linked.at(begun, |member, _| member.on_control_down(begun));
    linked.at(begun, |member, out| member.on_control_up(true, begun, out));
    assert_eq!(linked.member.next_deadline(), Some(begun.plus(CONTROL_AWAY_NANOS)));
}

#[test]
fn what_a_question_that_was_given_up_would_have_made_is_taken_back() {
    let mut linked = Linked::new(4.0);
    let (client, driver) = (linked.new_process(), None);
    let name = |request, number| {
        let (namespace, name) = ("space".to_owned(), "it".to_owned());
        let actor = TaskId { owner: client, number };
        ReserveName { request, actor, namespace, name, description: Blob::default() }
    };
    let group = |request, number| {
        let bundles = vec![Bundle { resources: cpus(1.0), labels: Vec::new() }];
        let title = Some(("space".to_owned(), "it".to_owned()));
        let group = GroupId { owner: client, number };
        CreateGroup { request, group, title, strategy: GroupStrategy::Pack, bundles, driver }
    };
    linked.send(client, name(1, 1).into());
    linked.send(client, group(2, 1).into());
    let until = linked.member.next_deadline().expect("they do not wait for ever");
    assert_eq!(given_up(&linked.at(until, |_, _| ())), [1, 2]);
    // Who tries again meanwhile is behind that, and gets both.
    linked.send(client, name(3, 2).into());
    linked.send(client, group(4, 2).into());
    let mut answered = Vec::new();
    while !linked.is_silent() {
        for action in linked.pump(true) {
            let NodeAction::Send(_, message) = action else { continue };
            match *message {
                Message::Answer(answer) => answered.push((answer.request, answer.error)),
                Message::GroupState(state) if state.request != 0 => {
                    answered.push((state.request, state.error))
                }
                _ => {}
            }
        }
    }
    assert_eq!(answered, [(3, None), (4, None)]);
    linked.send(client, RemoveGroup { group: group(0, 2).group }.into());
    while !linked.is_silent() {
        linked.pump(true);
    }
    assert!(linked.is_quiet(), "no bundle of the first group is left");
}

/// It might have started again, if it were not dead; and what its constructor was given is gone.
#[test]
fn an_actor_that_died_before_its_process_was_known_stays_dead() {
    let mut world = World::new(Linked::new(4.0));
    world.drain();
    world.step(&Step::Create { by: 0, number: 1, restarts: -1, detached: false, checkpoints: false });
    world.step(&Step::Pump(vec![true]));
    // The node gives it a process when the word that its last handle is gone is on its way.
    world.step(&Step::Drop { by: 0, number: 1 });
    while !world.pair.down.is_empty() {
        world.step(&Step::Pump(vec![false]));
    }
    world.step(&Step::Pump(vec![true]));
    while !world.pair.down.is_empty() {
        world.step(&Step::Pump(vec![false]));
    }
    assert_eq!(world.dead.len(), 0, "its process is about to end");
    let out = world.pair.restart_control(4.0);
    world.perform(out);
    world.drain();
    assert_eq!(world.outcome(), BTreeMap::new());
    assert_eq!(world.dead.len(), 1, "its owner was told");
    assert!(world.pair.is_quiet());
}

/// The control service had removed the group, and was killed before the node heard of that.
#[test]
fn a_group_of_which_the_next_control_service_does_not_know_leaves_nothing_reserved() {
    let mut world = World::new(Linked::new(4.0));
    world.run(&[Step::Group { by: 0, number: 1 }]);
    assert!(!world.pair.is_quiet(), "its bundles are reserved");
    world.step(&Step::RemoveGroup { by: 0, number: 1 });
    world.step(&Step::Pump(vec![true]));
    let out = world.pair.restart_control(4.0);
    world.perform(out);
    world.drain();
    assert!(world.pair.is_quiet(), "{:?}", world.pair.member);
}

#[test]
fn a_job_is_over_when_its_driver_is_gone_and_no_actor_is_left() {
    let mut world = World::new(Linked::new(4.0));
    let driver = world.ids[0];
    world.run(&[Step::Create { by: 0, number: 1, restarts: 0, detached: true, checkpoints: false }]);
    world.step(&Step::EndClient { by: 0 });
    assert!(!world.pair.member.is_over(driver), "a detached actor lives on");
    world.run(&[Step::Crash { to: (0, 1) }]);
    assert!(world.pair.member.is_over(driver));
}

/// An actor of a driver on another node.
fn placed(driver: WorkerId) -> ToNode {
    let actor = TaskId { owner: driver, number: 1 };
    let create = CreateActor { job: Some(driver), ..create(actor, 0, false, false) };
    ToNode::PlaceActor(Box::new(sooner_wire::message::PlaceActor {
        takeover: Takeover(0),
        turn: 0,
        name: None,
        restores: false,
        create: Box::new(create),
        restarts: Some(0),
        description: None,
    }))
}

fn news_of(driver: WorkerId, state: JobState) -> ToNode {
    let config = (state == JobState::Started).then(Box::default);
    ToNode::Job(Box::new(Job { job: driver, state, config }))
}

#[test]
fn an_actor_that_waits_for_its_job_stays_when_another_node_has_room_for_it() {
    let mut linked = Linked::new(4.0);
    let driver = WorkerId((2 << 24) + 1);
    let actor = TaskId { owner: driver, number: 1 };
    let end = |end| ToNode::EndActor { actor, takeover: Takeover(0), end };
    assert_eq!(linked.with(|member, out| member.on_control(placed(driver), NOW, out)), []);
    linked.up.clear();
    linked.with(|member, out| member.on_control(end(End::Recalled), NOW, out));
    assert_eq!(linked.up.len(), 0, "it has room here, and is refused nothing");
    let out = linked.with(|member, out| member.on_control(news_of(driver, JobState::Started), NOW, out));
    assert!(out.iter().any(|action| matches!(action, NodeAction::StartWorker(_))), "{out:?}");
}

#[test]
fn work_of_a_job_of_another_node_waits_until_it_is_known() {
    let mut linked = Linked::new(4.0);
    let elsewhere = NodeId(2 << 24);
    let driver = WorkerId(elsewhere.0 + 1);
    let word = placed(driver);
    assert_eq!(linked.with(|member, out| member.on_control(word.clone(), NOW, out)), []);
    assert_eq!(linked.with(|member, out| member.on_control(word, NOW, out)), []);
    let asked = Job { job: driver, state: JobState::Asked, config: None };
    assert_eq!(linked.up.drain(..).map(|word| decode(&word)).collect::<Vec<_>>(), [asked.into()], "once");
    let begins = news_of(driver, JobState::Started);
    let out = linked.with(|member, out| member.on_control(begins.clone(), NOW, out));
    let [NodeAction::BeginJob(job, its), NodeAction::StartWorker(worker)] = &out[..] else {
        panic!("{out:?}")
    };
    assert_eq!((*job, its, linked.member.job_of(*worker)), (driver, &Box::new(JobConfig::default()), driver));
    assert_eq!(linked.with(|member, out| member.on_control(begins, NOW, out)), [], "it is known");
    assert!(!linked.member.is_over(driver));
    let worker = *worker;
    linked.connect(worker);
    linked.end(worker);
    assert!(!linked.member.is_over(driver), "there may be more for it");
    linked.with(|member, out| member.on_control(news_of(driver, JobState::Ended), NOW, out));
    assert!(linked.member.is_over(driver));
}
